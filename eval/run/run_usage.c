/* Which options of dpe-run go together. */
#include <string.h>

#include "eval/run/run_tool.h"

/* The message about an option that the mode does not use; NULL: all are used. */
static const char *check_modes(const struct arguments *args)
{
    const unsigned show = 1U << MODE_SHOW;
    const unsigned run = 1U << MODE_GENERATE | 1U << MODE_NLL;
    const unsigned text = run | 1U << MODE_TOKENIZE;
    const unsigned plan = run | show | 1U << MODE_SHOW_PLAN;
    const unsigned asked = 1U << MODE_RUNTIMES;
    const struct {
        bool given;
        unsigned modes;
        const char *wrong;
    } options[] = {
        {args->context > 0, 1U << MODE_NLL, "--context goes with --nll"},
        {args->score_given, 1U << MODE_NLL, "--score goes with --nll"},
        {args->max_new > 0, 1U << MODE_GENERATE, "--max-new goes with a prompt"},
        {args->corpus != NULL, show, "--corpus goes with --show"},
        {args->seed_given && !args->temperature_given, show,
         "--seed goes with --show or --temperature"},
        {args->temperature_given, 1U << MODE_GENERATE, "--temperature goes with a prompt"},
        {args->chunk > 0, run | show, "--chunk goes with a prompt, --nll and --show"},
        {args->result != DPE_RESULT_TEXT,
         1U << MODE_INFO | 1U << MODE_NLL | 1U << MODE_SHOW_PLAN | asked,
         "--json goes with --info, --nll, --show-plan and --runtimes"},
        {args->raw, text, "--raw goes with a prompt, --tokenize and --nll"},
        {args->special_given, text | show,
         "--special-in-text goes with a prompt, --tokenize, --nll and --show"},
        {args->method != NULL, plan, "--method goes with a prompt, --nll, --show and --show-plan"},
        {args->table != NULL, plan | asked,
         "--table goes with a prompt, --nll, --show, --show-plan and --runtimes"},
        {args->length > 0, plan | asked,
         "--length goes with a prompt, --nll, --show, --show-plan and --runtimes"},
        {args->trained_length > 0, plan | 1U << MODE_INFO,
         "--trained-length goes with a prompt, --nll, --show, --show-plan and --info"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i].given && (options[i].modes & 1U << args->mode) == 0) {
            return options[i].wrong;
        }
    }
    return NULL;
}

/* The message about what a conversation lacks or cannot have; NULL: nothing is wrong. */
static const char *check_chat(const struct arguments *args)
{
    if (args->mode == MODE_SHOW && !args->chat && args->system == NULL) {
        return NULL;
    }
    if (args->chat && args->mode != MODE_GENERATE) {
        return "--chat goes with generating, not with --tokenize, --nll, --info, --show or "
               "--show-plan";
    }
    if (!args->chat && (args->system != NULL || args->chat_template != NULL)) {
        return "--system and --chat-template go with --chat";
    }
    if (args->chat_template != NULL && strcmp(args->chat_template, "none") == 0) {
        return "--chat needs a chat template; --chat-template none has none: leave out --chat to "
               "run the prompt as it is";
    }
    if (args->chat && args->raw) {
        return "--chat and --raw exclude each other: the template decides about special tokens";
    }
    if (args->chat && args->special_given && args->special == DPE_SPECIAL_LITERAL) {
        return "--special-in-text literal would spell out the special tokens of the chat template";
    }
    return NULL;
}

void dpe_run_tool_check(const struct arguments *args)
{
    const char *missing = check_modes(args);
    missing = missing != NULL ? missing : check_chat(args);
    bool needs_prompt = args->mode == MODE_GENERATE || args->mode == MODE_TOKENIZE;
    if (missing != NULL) {
        /* printed below */
    } else if (args->model == NULL) {
        missing = "--model DIR is missing";
    } else if (needs_prompt && !args->chat && args->prompt == NULL && args->prompt_file == NULL) {
        missing = "nothing to do: give --prompt, --prompt-file, --chat, --nll, --info, --show, "
                  "--show-plan or --runtimes";
    } else if (args->prompt != NULL && args->prompt_file != NULL) {
        missing = "--prompt and --prompt-file exclude each other";
    } else if (!needs_prompt && (args->prompt != NULL || args->prompt_file != NULL)) {
        missing = "--prompt goes with generating and --tokenize, not with --nll, --info, --show or "
                  "--show-plan";
    } else if (args->mode == MODE_SHOW && args->table == NULL && args->method == NULL) {
        missing =
            "--show goes with --table or --method, which it compares with the model unchanged";
    } else if (args->mode == MODE_SHOW && args->corpus == NULL) {
        missing = "--show needs --corpus PATH: the text to hide the secret in, for example a "
                  "folder of .txt files";
    } else if (args->table != NULL && args->method != NULL) {
        missing = "--table and --method exclude each other";
    } else if (dpe_run_tool_table(args) != NULL && args->trained_length > 0) {
        missing =
            "--table and --trained-length exclude each other: the table holds the trained length";
    } else if (dpe_run_tool_table(args) == NULL && args->other_model) {
        missing = "--other-model goes with --table";
    } else if (args->top_p_given && !(args->temperature > 0.0)) {
        missing =
            "--top-p needs --temperature T, above 0: without one the likeliest token is taken";
    } else if (args->context > 0 && args->context < 4) {
        missing = "--context: expected 4 or more tokens";
    }
    if (missing != NULL) {
        dpe_tool_refuse(missing);
    }
}

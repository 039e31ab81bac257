/* dpe-run: one model, one position method, one prompt. Generates, tokenizes, measures perplexity of
 * a file, describes a model or a plan. */
#include <math.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/cache/cache.h"
#include "eval/chat/chat.h"
#include "eval/run/run_tool.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

enum { KEY_MODE = DPE_KEY_PROGRAM /* and an enum dpe_run_mode */ };

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to run:", 1},
    {"model", 'm', "DIR", DPE_BASIC,
     "Hugging Face folder (config.json, safetensors, tokenizer.json) or GGUF file", 1,
     DPE_MODEL(struct dpe_run_args, model)},
    {"method", 0, "NAME[:K=V,...]", DPE_BASIC,
     "Position method, e.g. rope (default), self-extend:window=32, or help to list them", 1,
     DPE_TEXT(struct dpe_run_args, method)},
    {"table", 0, "FILE", DPE_BASIC,
     "Run with a DPE table (of dpe-detect or dpe-export, or a folder of dpe-calibrate) instead of "
     "--method: with its entry for prompt and --max-new together (--nll: --context), or for "
     "--length. "
     "Up to the trained length the model runs unchanged, as with --method",
     1, DPE_TABLE(struct dpe_run_args, table)},
    {"other-model", 0, NULL, 0,
     "Apply a table that was measured on other weights of the same shape", 1,
     DPE_SWITCH(struct dpe_run_args, other_model)},
    {"trained-length", 0, "L0", 0, "Trained length (default: max_position_embeddings)", 1,
     DPE_TOKENS(struct dpe_run_args, trained_length, 2, DPE_MOST_TRAINED)},
    {"length", 'l', "L", 0,
     "Evaluated length that a method scales for, once prompt and --max-new pass the trained length "
     "(default: what this run needs)",
     1, DPE_TOKENS(struct dpe_run_args, length, 1, DPE_MOST_COUNT)},
    {"chunk", 0, "N", 0, "Tokens of a prefill chunk (default with --prompt-cache: 512)", 1,
     DPE_TOKENS(struct dpe_run_args, chunk, 1, DPE_MOST_COUNT)},
    {NULL, 0, NULL, 0, "What to do (default: generate from a prompt):", 2},
    {"prompt", 'p', "TEXT", DPE_BASIC, "Prompt to continue", 2,
     DPE_TEXT(struct dpe_run_args, prompt)},
    {"prompt-file", 0, "FILE", DPE_BASIC, "Prompt to continue, from a file (-: standard input)", 2,
     DPE_TEXT(struct dpe_run_args, prompt_file)},
    {"prompt-cache", 0, "FILE", 0,
     "Keep the prompt's keys and values in FILE, and go on from what FILE has of it: a long prompt "
     "is read once. Of another model, plan (--length makes it the same for longer prompts), type "
     "or chunk FILE is refused. A slot that dpe-serve saved is such a file, and it restores FILE",
     2, DPE_PATH(struct dpe_run_args, prompt_cache)},
    {"chat", 0, NULL, DPE_BASIC,
     "Answer as an instruct model: the prompt, or each line of standard input, is a message", 2,
     DPE_SWITCH(struct dpe_run_args, chat)},
    {"system", 0, "TEXT", 0, "With --chat: the system message", 2,
     DPE_TEXT(struct dpe_run_args, system)},
    {"chat-template", 0, "auto|FILE", 0,
     "With --chat: the template of the turns (auto, the default: the model's own)", 2,
     DPE_TEXT(struct dpe_run_args, chat_template)},
    {"template-vars", 0, "NAME=VALUE[,...]", 0,
     "Variables of the chat template, such as enable_thinking=false", 2,
     DPE_TEXT(struct dpe_run_args, template_vars)},
    {"max-new", 'n', "N", DPE_BASIC,
     "Generate at most N tokens (default 64; with --chat 512 an answer)", 2,
     DPE_TOKENS(struct dpe_run_args, max_new, 1, DPE_MOST_COUNT)},
    {"show", KEY_MODE + MODE_SHOW, NULL, DPE_BASIC,
     "Hide a secret in a long text of --corpus; what the model finds alone, and with the table", 2},
    {"corpus", 0, "PATH", 0, "With --show: the text, as dpe-eval takes it", 2,
     DPE_TEXT(struct dpe_run_args, corpus)},
    {"temperature", 0, "T", DPE_BASIC,
     "Draw tokens at random, from logits that are divided by T (default 0: always the likeliest "
     "token)",
     2, DPE_REAL(struct dpe_run_args, temperature, 0.0, 100.0),
     DPE_GIVEN(struct dpe_run_args, temperature_given)},
    {"top-p", 0, "P", 0,
     "With --temperature: of the likeliest tokens that have the share P (default 1: all)", 2,
     DPE_REAL(struct dpe_run_args, top_p, 1e-9, 1.0), DPE_GIVEN(struct dpe_run_args, top_p_given)},
    {"seed", 0, "S", 0,
     "With --show: which text and secret; with --temperature: which tokens are drawn (default 0)",
     2, DPE_COUNT(struct dpe_run_args, seed, 0, DPE_MOST_COUNT),
     DPE_GIVEN(struct dpe_run_args, seed_given)},
    {"tokenize", KEY_MODE + MODE_TOKENIZE, NULL, 0, "Print the token ids of the prompt", 2},
    {"nll", KEY_MODE + MODE_NLL, "FILE", DPE_BASIC,
     "Perplexity of FILE in windows of --context tokens", 2},
    {"context", 'c', "C", DPE_BASIC, "Tokens of a window (default: the trained length)", 2,
     DPE_TOKENS(struct dpe_run_args, context, 4, DPE_MOST_COUNT)},
    {"score", 0, "second-half|all", 0, "Tokens of a window that are scored (default: second-half)",
     2, DPE_CHOICE(struct dpe_run_args, score_all, NULL),
     DPE_GIVEN(struct dpe_run_args, score_given)},
    {"info", KEY_MODE + MODE_INFO, NULL, DPE_BASIC, "Describe the model", 2},
    {"show-plan", KEY_MODE + MODE_SHOW_PLAN, NULL, DPE_BASIC, "Describe the method's position plan",
     2},
    {"runtimes", KEY_MODE + MODE_RUNTIMES, "WHICH", DPE_BASIC,
     "What other runtimes compute from the model's configuration (a folder, config.json or GGUF "
     "file), "
     "and apply of --table, at --length: current, all (older versions too), or names joined by "
     "commas. "
     "The exit code is 1 where they do not agree",
     2},
    {"special-in-text", 0, "WHAT", 0,
     "Spelling of a special token in the text: error (default), literal or parse", 2,
     DPE_CHOICE(struct dpe_run_args, special, dpe_special_names),
     DPE_GIVEN(struct dpe_run_args, special_given)},
    {"raw", 0, NULL, 0, "Do not add the tokenizer's special tokens (BOS)", 2,
     DPE_SWITCH(struct dpe_run_args, raw)},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_run_args *args = state->input;
    if (key == DPE_LINE_BEGIN) {
        state->child_inputs[0] = &args->tool;
        state->child_inputs[1] = &args->json;
        return 0;
    }
    if (key <= KEY_MODE + MODE_GENERATE || key > KEY_MODE + MODE_RUNTIMES) {
        return DPE_LINE_UNKNOWN;
    }
    enum dpe_run_mode mode = (enum dpe_run_mode)(key - KEY_MODE);
    if (args->mode != MODE_GENERATE && args->mode != mode) {
        dpe_line_error(
            state,
            "--tokenize, --nll, --info, --show, --show-plan and --runtimes exclude each other");
    }
    args->mode = mode;
    args->nll_file = mode == MODE_NLL ? arg : args->nll_file;
    args->runtimes = mode == MODE_RUNTIMES ? arg : args->runtimes;
    return 0;
}

/* Refuse an option that the mode does not use. */
static void check_modes(const struct dpe_run_args *args)
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
        {args->prompt_cache != NULL, 1U << MODE_GENERATE, "--prompt-cache goes with a prompt"},
        {args->seed_given && !args->temperature_given, show,
         "--seed goes with --show or --temperature"},
        {args->temperature_given, 1U << MODE_GENERATE, "--temperature goes with a prompt"},
        {args->chunk > 0, run | show, "--chunk goes with a prompt, --nll and --show"},
        {args->json, 1U << MODE_INFO | 1U << MODE_NLL | 1U << MODE_SHOW_PLAN | asked,
         "--json goes with --info, --nll, --show-plan and --runtimes"},
        {args->raw, text, "--raw goes with a prompt, --tokenize and --nll"},
        {args->special_given, text | show,
         "--special-in-text goes with a prompt, --tokenize, --nll and --show"},
        {args->method != NULL, plan, "--method goes with a prompt, --nll, --show and --show-plan"},
        {args->table != NULL, plan | asked,
         "--table goes with a prompt, --nll, --show, --show-plan and --runtimes"},
        {args->length > 0, plan | asked,
         "--length goes with a prompt, --nll, --show, --show-plan and --runtimes"},
        {args->trained_length > 0, plan | asked | 1U << MODE_INFO,
         "--trained-length goes with a prompt, --nll, --show, --show-plan, --info and --runtimes"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i].given && (options[i].modes & 1U << args->mode) == 0) {
            dpe_tool_refuse(options[i].wrong);
        }
    }
}

/* Refuse options that do not go together, or lack something. */
static void check_usage(const struct dpe_run_args *args)
{
    bool needs_prompt = args->mode == MODE_GENERATE || args->mode == MODE_TOKENIZE;
    bool prompt = args->prompt != NULL || args->prompt_file != NULL;
    bool show = args->mode == MODE_SHOW;
    bool table = dpe_run_tool_table(args) != NULL;
    const char *template = args->chat_template;
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {args->chat && args->mode != MODE_GENERATE,
         "--chat goes with generating, not with --tokenize, --nll, --info, --show or --show-plan"},
        {!args->chat && !show && args->template_vars != NULL,
         "--template-vars goes with --chat and --show"},
        {!args->chat && (args->system != NULL || (template != NULL && !show)),
         "--system and --chat-template go with --chat"},
        {args->chat && template != NULL && strcmp(template, "none") == 0,
         "--chat needs a chat template; --chat-template none has none: leave out --chat to run the "
         "prompt as it is"},
        {args->chat && args->prompt_cache != NULL, "--chat and --prompt-cache exclude each other"},
        {args->chat && args->raw,
         "--chat and --raw exclude each other: the template decides about special tokens"},
        {args->chat && args->special_given && args->special == DPE_SPECIAL_LITERAL,
         "--special-in-text literal would spell out the special tokens of the chat template"},
        {args->model == NULL, "--model DIR is missing"},
        {needs_prompt && !args->chat && !prompt,
         "nothing to do: give --prompt, --prompt-file, --chat, --nll, --info, --show, --show-plan "
         "or --runtimes"},
        {args->prompt != NULL && args->prompt_file != NULL,
         "--prompt and --prompt-file exclude each other"},
        {!needs_prompt && prompt,
         "--prompt goes with generating and --tokenize, not with --nll, --info, --show or "
         "--show-plan"},
        {show && args->table == NULL && args->method == NULL,
         "--show goes with --table or --method, which it compares with the model unchanged"},
        {show && args->corpus == NULL,
         "--show needs --corpus PATH: the text to hide the secret in, for example a folder of .txt "
         "files"},
        {args->table != NULL && args->method != NULL, "--table and --method exclude each other"},
        {table && args->trained_length > 0,
         "--table and --trained-length exclude each other: the table holds the trained length"},
        {!table && args->other_model, "--other-model goes with --table"},
        {args->top_p_given && !(args->temperature > 0.0),
         "--top-p needs --temperature T, above 0: without one the likeliest token is taken"},
    };
    check_modes(args);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].wrong) {
            dpe_tool_refuse(rules[i].why);
        }
    }
}

dpe_status dpe_run_tool_open(struct dpe_runner *run, const struct dpe_run_args *args,
                             struct dpe_error *err)
{
    run->args = args;
    run->deadline = args->tool.time_budget > 0.0 ? dpe_clock() + args->tool.time_budget : HUGE_VAL;
    bool weights = args->mode == MODE_GENERATE || args->mode == MODE_NLL || args->mode == MODE_SHOW;
    bool named = args->mode == MODE_INFO || args->json; /* by its fingerprint */
    const struct dpe_model_options options = {
        .config_only = !weights && !named,
        .trained_length = dpe_table_trained(dpe_run_tool_table(args), args->trained_length)};
    DPE_TRY(dpe_chat_set_variables(args->template_vars, err));
    if (args->mode != MODE_TOKENIZE) {
        DPE_TRY(dpe_model_open(args->model, &options, &run->model, err));
        if (dpe_model_warning(run->model) != NULL) {
            dpe_log_warning("%s: %s", args->model, dpe_model_warning(run->model));
        }
        DPE_TRY(dpe_tool_find_device(&args->tool, run->model, &run->device, err));
        run->trained_length = args->trained_length > 0
                                  ? args->trained_length
                                  : dpe_config_trained(dpe_model_config(run->model));
    }
    if (args->mode == MODE_SHOW_PLAN || args->mode == MODE_INFO) {
        return DPE_OK;
    }
    DPE_TRY(dpe_tokenizer_open(args->model, &run->tokenizer, err));
    const struct dpe_tokenizer_limits limits = {.poll = dpe_signals_poll,
                                                .max_memory = args->tool.max_memory};
    dpe_tokenizer_set_limits(run->tokenizer, &limits);
    return DPE_OK;
}

void dpe_run_tool_close(struct dpe_runner *run)
{
    dpe_tokenizer_close(run->tokenizer);
    dpe_model_close(run->model);
}

/* The plan of --method or --table for a text of so many tokens; owned by the caller. `note`: the
 * entry of the table, or that the method changes nothing; else "". */
static dpe_status make_plan(const struct dpe_runner *run, int64_t length, struct dpe_plan *plan,
                            char note[DPE_TABLE_NOTE], struct dpe_error *err)
{
    note[0] = '\0';
    const struct dpe_plan_context context = {
        .config = dpe_model_config(run->model),
        .trained_length = run->trained_length,
        .length = run->args->length > 0 ? run->args->length : length,
        .text = length,
        .official = true,
    };
    bool compare = !run->args->other_model && dpe_model_weights(run->model) != NULL;
    const char *fingerprint = compare ? dpe_model_fingerprint(run->model) : NULL;
    return dpe_plan_asked(run->args->table, run->args->method, &context, fingerprint, plan, note,
                          err);
}

dpe_status dpe_run_tool_session(const struct dpe_runner *run, int64_t capacity, int64_t length,
                                struct dpe_session **session, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    char note[DPE_TABLE_NOTE];
    DPE_TRY(make_plan(run, length, &plan, note, err));
    const char *table = dpe_run_tool_table(run->args);
    if (note[0] != '\0' && (table != NULL || run->args->document == NULL)) {
        dpe_log_info("%s%s: %s", table != NULL ? table : "--method ",
                     table != NULL ? ": entry" : run->args->method, note);
    }
    const struct dpe_session_options options = {
        .device = run->device,
        .n_threads = run->args->tool.threads,
        .capacity = capacity,
        .prefill_chunk = run->args->chunk,
        .max_memory = run->args->tool.max_memory,
        .kv_type = run->args->tool.kv_type,
        .kv_dir = dpe_tool_kv_dir(),
        .knobs = {.length = run->args->mode == MODE_NLL   ? "--context"
                            : run->args->document != NULL ? "--document, --max-new"
                                                          : "prompt, --max-new",
                  .chunk = run->args->document != NULL ? NULL : "--chunk",
                  .max_memory = "--max-memory"},
    };
    DPE_TRY(dpe_session_create(run->model, &plan, &options, session, err));
    int64_t logged = 0;
    dpe_log_chunk(*session, &logged);
    dpe_log_file(*session);
    dpe_session_set_poll(*session, dpe_signals_poll, NULL);
    return DPE_OK;
}

/* The ids of a text given on the command line or as a file, specials added unless --raw. */
static dpe_status encode(const struct dpe_runner *run, const char *text, const char *file,
                         struct dpe_tokens *tokens, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    size_t n = text != NULL ? strlen(text) : 0;
    if (text == NULL) {
        DPE_TRY(dpe_run_tool_read(run, file, &bytes, &n, err));
        text = bytes;
    }
    const struct dpe_encode_options options = {
        .add_special = !run->args->raw,
        .once = true,
        .special = run->args->special,
        .advice = "choose whether it is ordinary text (literal) or the token (parse) with "
                  "--special-in-text",
    };
    dpe_status status = dpe_tokenizer_encode(run->tokenizer, text, n, &options, tokens, err);
    return status == DPE_OK || bytes == NULL ? status : dpe_fail_prefix(err, "%s", file);
}

static dpe_status tokenize(const struct dpe_runner *run, struct dpe_error *err)
{
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    const size_t often = 1 << 16;
    DPE_TRY(encode(run, run->args->prompt, run->args->prompt_file, &tokens, err));
    for (size_t i = 0; i < tokens.n; i++) {
        printf("%s%d", i == 0 ? "" : " ", tokens.ids[i]);
        if (i % often == 0) {
            DPE_TRY(dpe_signals_poll(NULL, err));
        }
    }
    printf("\n");
    return DPE_OK;
}

/* Bring the whole chunks of the prompt into the cache, from FILE or by reading, and from there into
 * FILE. *n: how many tokens these are; none of the last chunk, whose bits would depend on its end.
 */
static dpe_status read_cached(const struct dpe_runner *run, struct dpe_session *session,
                              const struct dpe_tokens *prompt, int64_t *n, struct dpe_error *err)
{
    const char *path = run->args->prompt_cache;
    const struct dpe_session_limits limits = dpe_session_limits(session);
    DPE_OWNED int32_t *ids = dpe_alloc((size_t)limits.capacity, sizeof *ids);
    DPE_TRY(DPE_MADE(ids, err, "out of memory"));
    uint64_t bytes = 0;
    int64_t held = 0;
    double begin = dpe_clock();
    dpe_status status =
        dpe_cache_restore(path, session, 0, "", ids, limits.capacity, &held, &bytes, err);
    DPE_TRY(status == DPE_NO_INPUT ? DPE_OK : status);
    *n = ((int64_t)prompt->n - 1) / limits.chunk * limits.chunk;
    if (*n == 0) {
        dpe_log_info("%s: not written: the prompt has no whole chunk of %lld tokens before its "
                     "last token",
                     path, (long long)limits.chunk);
    }
    int64_t keep = dpe_least(dpe_session_common(session, prompt->ids, *n), *n);
    keep = keep / limits.chunk * limits.chunk;
    if (held > 0) {
        dpe_log_info("%s: %lld tokens in %.2f s, %lld of them are the prompt's", path,
                     (long long)held, dpe_clock() - begin, (long long)keep);
    }
    DPE_TRY(dpe_session_cut(session, keep, err));
    DPE_TRY(dpe_session_feed(session, prompt->ids + keep, *n - keep, NULL, err));
    return *n > keep ? dpe_cache_save(path, session, 0, prompt->ids, *n, "", &bytes, err) : DPE_OK;
}

static dpe_status generate(const struct dpe_runner *run, struct dpe_error *err)
{
    const struct dpe_run_args *args = run->args;
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens prompt = {0};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens out = {0};
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    DPE_TRY(encode(run, args->prompt, args->prompt_file, &prompt, err));
    if (prompt.n == 0) {
        return dpe_fail(err, DPE_USAGE, "the prompt is empty");
    }
    int64_t length = (int64_t)prompt.n + args->max_new;
    int64_t held = 0; /* tokens of the file, and then of the cache */
    char plan[65];
    if (args->prompt_cache != NULL) {
        dpe_status status = dpe_cache_look(args->prompt_cache, &held, plan, err);
        DPE_TRY(status == DPE_NO_INPUT ? DPE_OK : status);
        held = dpe_most(held, args->chunk);
    }
    DPE_TRY(dpe_run_tool_session(run, dpe_most(length, held), length, &session, err));
    struct stream stream = {.tokenizer = run->tokenizer, .deadline = run->deadline};
    const struct dpe_generate_options options = {.max_new = args->max_new,
                                                 .stop = dpe_run_tool_token,
                                                 .user = &stream,
                                                 .sampling = run->sampling};
    double begin = dpe_clock();
    held = 0;
    DPE_TRY(args->prompt_cache != NULL ? read_cached(run, session, &prompt, &held, err) : DPE_OK);
    DPE_TRY(dpe_session_generate(session, prompt.ids + held, (int64_t)prompt.n - held, &options,
                                 &out, err));
    dpe_run_tool_print(&stream, out.ids, out.n, true);
    printf("\n");
    fflush(stdout);
    if (dpe_signals_asked() == DPE_STOP_NONE) {
        dpe_run_tool_hint(run, out.ids, out.n);
    }
    dpe_log_info("%zu tokens read, %zu written, %.2f s", prompt.n, out.n, dpe_clock() - begin);
    if (dpe_signals_asked() != DPE_STOP_NONE) {
        return dpe_fail(err, DPE_INCOMPLETE, "interrupted by a signal after %zu tokens", out.n);
    }
    return stream.late && (int64_t)out.n < args->max_new
               ? dpe_fail(err, DPE_INCOMPLETE,
                          "the time budget is used up after %zu of %lld tokens", out.n,
                          (long long)args->max_new)
               : DPE_OK;
}

/* Window i holds the tokens iC … iC+C−1 with its first replaced by BOS where the model has one, so
 * that each window reads like a text's beginning; a last partial window is dropped. Scored are the
 * window's indices C/2+1 … C−1 (second half) or 1 … C−1 (all). */
static dpe_status nll_windows(const struct dpe_runner *run, struct dpe_session *session,
                              const struct dpe_tokens *tokens, int64_t context,
                              struct dpe_error *err)
{
    int64_t bos = dpe_model_config(run->model)->bos_id;
    int64_t first = run->args->score_all ? 1 : context / 2 + 1;
    int64_t n_windows = (int64_t)tokens->n / context;
    DPE_OWNED double *sum = NULL;
    DPE_OWNED double *nll = NULL;
    DPE_TRY(DPE_NEW(&sum, (size_t)n_windows, err, "out of memory"));
    DPE_TRY(DPE_NEW(&nll, (size_t)context, err, "out of memory"));
    struct nll_result result = {.tokens = tokens->n,
                                .context = context,
                                .scored = context - first,
                                .n = n_windows,
                                .sum = sum};
    double begin = dpe_clock();
    for (int64_t window = 0; window < n_windows; window++) {
        if (dpe_clock() > run->deadline) {
            return dpe_fail(err, DPE_INCOMPLETE,
                            "the time budget is used up after %lld of %lld windows",
                            (long long)window, (long long)n_windows);
        }
        int32_t *ids = tokens->ids + window * context;
        ids[0] = bos >= 0 && !run->args->raw ? (int32_t)bos : ids[0];
        DPE_TRY(dpe_session_cut(session, 0, err));
        DPE_TRY(dpe_session_nll(session, ids, context, nll, err));
        for (int64_t i = first; i < context; i++) {
            sum[window] += nll[i - 1];
        }
        char line[96];
        result.seconds = dpe_clock() - begin;
        snprintf(line, sizeof line, "window %lld of %lld, %.0f tokens/s", (long long)window + 1,
                 (long long)n_windows, (double)((window + 1) * context) / result.seconds);
        const struct dpe_event event = {.name = "nll",
                                        .done = (double)(window + 1),
                                        .total = (double)n_windows,
                                        .rate = (double)((window + 1) * context) / result.seconds,
                                        .eta = result.seconds / (double)(window + 1) *
                                               (double)(n_windows - window - 1)};
        dpe_progress(&event, line);
    }
    dpe_progress_clear();
    return dpe_run_tool_print_nll(run, &result, err);
}

static dpe_status nll(const struct dpe_runner *run, struct dpe_error *err)
{
    int64_t context = run->args->context > 0 ? run->args->context : run->trained_length;
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    DPE_TRY(encode(run, NULL, run->args->nll_file, &tokens, err));
    const struct dpe_config *config = dpe_model_config(run->model);
    if ((int64_t)tokens.n < context) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected at least one window of %lld tokens, found %zu; use a longer "
                        "text or a smaller --context",
                        run->args->nll_file, (long long)context, tokens.n);
    }
    if (config->bos_id >= config->vocab && !run->args->raw) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s/config.json: bos_token_id: expected an id below vocab_size %lld, found "
                        "%lld; give --raw to run without it",
                        run->args->model, (long long)config->vocab, (long long)config->bos_id);
    }
    DPE_TRY(dpe_run_tool_session(run, context, context, &session, err));
    return nll_windows(run, session, &tokens, context, err);
}

dpe_status dpe_run_tool_length(const struct dpe_runner *run, int64_t *length, int64_t *trained,
                               struct dpe_error *err)
{
    const char *path = dpe_run_tool_table(run->args);
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    *trained = run->trained_length;
    *length = run->args->length > 0 ? run->args->length : 4 * run->trained_length;
    if (path == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_table_load(path, &table, err));
    *trained = dpe_table_values(table)->trained_length;
    *length = run->args->length > 0 ? *length : dpe_table_values(table)->length;
    const struct dpe_table *entry = run->args->json ? dpe_table_choose(table, *length) : NULL;
    *length = entry != NULL ? dpe_table_values(entry)->length : *length;
    return DPE_OK;
}

static dpe_status show_plan(const struct dpe_runner *run, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    struct dpe_runner own = *run; /* a table may be of another trained length than the model says */
    int64_t length = 0;
    char note[DPE_TABLE_NOTE];
    DPE_TRY(dpe_run_tool_length(run, &length, &own.trained_length, err));
    DPE_TRY(make_plan(run, length, &plan, note, err));
    if (run->args->json) {
        return dpe_run_tool_plan_json(&own, &plan, length, err);
    }
    dpe_run_tool_show_plan(&own, &plan, length, note);
    return DPE_OK;
}

DPE_MAIN(dpe_run)
{
    static const struct dpe_option_set *const children[] = {&dpe_tool_option_set,
                                                            &dpe_result_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Run a RoPE language model with a position method.\v"
               "Examples:\n"
               "  dpe-run -m data/reference -p \"Once upon a time\" -n 32\n"
               "  dpe-run -m data/reference --table TABLE.h5 --show --corpus data/sample\n"
               "  dpe-run -m DIR --chat --system \"Answer in one sentence.\"\n"
               "  dpe-run -m data/reference --nll README.md --context 1k --method self-extend\n"
               "  dpe-run -m data/reference --show-plan --method dpe:window=32 --length 4k\n"
               "  dpe-run -m DIR/config.json --runtimes current --length 128k\n"
               "  dpe-run --method help",
        .children = children,
    };
    dpe_tool_start(argv);
    struct dpe_run_args args = {0};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    dpe_tool_configure(&args.tool);
    struct dpe_error err = {0};
    if (args.method != NULL && strcmp(args.method, "help") == 0) {
        dpe_run_tool_methods();
        return dpe_tool_end(DPE_OK, &err);
    }
    check_usage(&args);
    if (args.mode == MODE_RUNTIMES) {
        bool agree = false;
        int code = dpe_tool_end(dpe_run_tool_runtimes(&args, &agree, &err), &err);
        return code == 0 && !agree ? 1 : code;
    }
    args.method = args.method != NULL ? args.method : "rope";
    args.max_new = dpe_run_tool_room(args.max_new, args.chat);
    args.chunk = args.prompt_cache != NULL && args.chunk == 0 ? DPE_CACHE_CHUNK : args.chunk;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, (uint64_t)args.seed, 0);
    const struct dpe_sampling sampling = {args.temperature, args.top_p_given ? args.top_p : 1.0,
                                          &rng};
    struct dpe_runner run = {.sampling = args.temperature > 0.0 ? &sampling : NULL};
    dpe_status status = dpe_run_tool_open(&run, &args, &err);
    if (status == DPE_OK) {
        static dpe_status (*const modes[])(const struct dpe_runner *run, struct dpe_error *err) = {
            [MODE_GENERATE] = generate,
            [MODE_TOKENIZE] = tokenize,
            [MODE_NLL] = nll,
            [MODE_INFO] = dpe_run_tool_info,
            [MODE_SHOW] = dpe_run_tool_show,
            [MODE_SHOW_PLAN] = show_plan,
        };
        status = args.chat ? dpe_run_tool_chat(&run, &err) : modes[args.mode](&run, &err);
    }
    dpe_run_tool_close(&run);
    return dpe_tool_end(status, &err);
}

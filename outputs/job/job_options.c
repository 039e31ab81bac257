/* The options that tools share. */
#include "outputs/job/job.h"

#include <string.h>

enum option_key { KEY_SAMPLES = DPE_KEY_JOB, KEY_SEED };

/* ------------------------------------------------------------------------------ model and texts */

static const struct dpe_option inputs_table[] = {
    {"model", 'm', "DIR", DPE_BASIC,
     "Hugging Face folder (config.json, safetensors, tokenizer.json) or GGUF file", 1,
     DPE_MODEL(struct dpe_job_options, model)},
    {"corpus", 0, "PATH", DPE_BASIC,
     "Texts: a PG-19 folder (with metadata.csv) or one of its splits (PG-19/test), a folder of "
     ".txt files, or a text file",
     1, DPE_TEXT(struct dpe_job_options, corpus)},
    {"trained-length", 0, "L0", 0, "Trained length in tokens (default: max_position_embeddings)", 1,
     DPE_TOKENS(struct dpe_job_options, trained_length, 2, DPE_MOST_TRAINED)},
    {"tensor-parallel", 0, "T", 0,
     "Under mpirun, for a model that does not fit on one device: T processes share it, each with "
     "a part of the heads and MLP columns (default 1)",
     50, DPE_COUNT(struct dpe_job_options, tensor_parallel, 1, 256)},
    /* A busy rank sends a message once a second: a shorter limit would end a healthy job. */
    {"rank-timeout", 0, "TIME", 0,
     "Under mpirun: end the job when a rank sends nothing for this long (default 30m)", 50,
     DPE_SECONDS(struct dpe_job_options, rank_timeout, 1.0)},
    {0},
};

static int parse_inputs(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_job_options *options = state->input;
    (void)arg;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &options->tool;
        options->rank_timeout = 1800.0;
        options->tensor_parallel = 1;
        if (options->knobs.length == NULL) {
            options->knobs.length = "--length";
        }
        options->knobs.peers = "--tensor-parallel (under mpirun)";
        options->knobs.max_memory = "--max-memory";
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static const struct dpe_option_set *const tool_child[] = {&dpe_tool_option_set, NULL};
const struct dpe_option_set dpe_job_option_set = {
    .options = inputs_table, .parser = parse_inputs, .children = tool_child};

/* ----------------------------------------------------------------------------------------- rows */

static const struct dpe_option rows_table[] = {
    {"output", 'o', "OUT.h5", DPE_BASIC,
     "Table to write; if it is unfinished, the run continues it", 1},
    {"samples", KEY_SAMPLES, "N", DPE_BASIC,
     "Number of samples (books, excerpts) of each configuration", 2,
     DPE_COUNT(struct dpe_job_options, samples, 1, 1000000),
     DPE_GIVEN(struct dpe_job_options, samples_given)},
    {"seed", KEY_SEED, "S", 0, "Seed of all random choices", 2,
     DPE_COUNT(struct dpe_job_options, seed, 0, DPE_MOST_COUNT)},
    {0},
};

static int parse_rows(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_job_options *options = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &options->tool;
        state->child_inputs[1] = &options->json;
        return 0;
    case 'o':
        if (strcmp(arg, "-") == 0) {
            dpe_line_error(state,
                           "--output: a table cannot go to standard output; give a file's name "
                           "(./- is a file named -)");
        }
        options->output = dpe_tool_path(state, "--output", arg);
        return 0;
    case DPE_LINE_END:
        if (options->dry_run && !options->dry_run_result && options->json) {
            dpe_line_error(state,
                           "--json prints a result, and --dry-run has none: leave one of the two");
        }
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

/* Append the defaults of the tool to the texts. */
static const char *show_defaults(int key, const char *text, const void *input, char *room,
                                 size_t size)
{
    const struct dpe_job_options *options = input;
    if (key == KEY_SAMPLES) {
        snprintf(room, size, "%s (default %lld)", text, (long long)options->samples);
        return room;
    }
    if (key == KEY_SEED) {
        snprintf(room, size, "%s (default %llu)", text, (unsigned long long)options->seed);
        return room;
    }
    return text;
}

static const struct dpe_option_set *const output_children[] = {&dpe_tool_output_option_set,
                                                               &dpe_result_option_set, NULL};
const struct dpe_option_set dpe_job_rows_option_set = {.options = rows_table,
                                                       .parser = parse_rows,
                                                       .children = output_children,
                                                       .about = show_defaults};

/* -------------------------------------------------------------------------------------- prompts */

static const struct dpe_option prompt_table[] = {
    {"length", 'l', "L", DPE_BASIC, "Length in tokens, prompt and answer together: 16384, 16k, 1M",
     1},
    {"chat-template", 0, "auto|none|FILE", 0,
     "Chat template to wrap prompts in (auto, the default: the model's own, if it has one)", 2,
     DPE_TEXT(struct dpe_job_options, chat_template)},
    {"template-vars", 0, "NAME=VALUE[,...]", 0,
     "Variables of the chat template, such as enable_thinking=false", 2,
     DPE_TEXT(struct dpe_job_options, template_vars)},
    {0},
};

/* One length, or several of them separated by commas for a tool that takes them. */
static void parse_lengths(struct dpe_command_line *state, const char *arg,
                          struct dpe_job_options *options)
{
    struct dpe_error err = {0};
    int n = 1;
    if (options->most_lengths > 1) {
        n = dpe_parse_lengths(arg, 1, DPE_MOST_COUNT, "", options->lengths, options->most_lengths,
                              &err);
    } else {
        options->lengths[0] = dpe_parse_tokens(state, "--length", arg, 1, DPE_MOST_COUNT);
    }
    if (n == 0) {
        dpe_line_error(state, "--length: %s", err.text);
    }
    options->n_lengths = n;
    options->length = options->lengths[n - 1];
}

static int parse_prompt(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_job_options *options = state->input;
    switch (key) {
    case 'l':
        parse_lengths(state, arg, options);
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

const struct dpe_option_set dpe_job_prompt_option_set = {.options = prompt_table,
                                                         .parser = parse_prompt};

static const struct dpe_option engine_table[] = {
    {"engine", 0, "URL", 0,
     "Have this server run the model: dpe-serve, or vLLM with DPE_ENGINE=1, under each plan in "
     "turn; "
     "or, with dpe-eval, another one of OpenAI's interface as it is "
     "(--method rope then stands for what it does). --model gives config.json and the tokenizer; "
     "its weights are not read",
     1, DPE_TEXT(struct dpe_job_options, engine)},
    {"engine-key-file", 0, "FILE", 0, "File with the key of --engine in its first line", 1,
     DPE_TEXT(struct dpe_job_options, engine_key)},
    {0},
};

static int parse_engine(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_job_options *options = state->input;
    (void)arg;
    switch (key) {
    case DPE_LINE_END:
        if (options->engine != NULL && options->tensor_parallel > 1) {
            dpe_line_error(state, "--engine and --tensor-parallel exclude each other");
        } else if (options->engine == NULL && options->engine_key != NULL) {
            dpe_line_error(state, "--engine-key-file goes with --engine");
        }
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

const struct dpe_option_set dpe_job_engine_option_set = {.options = engine_table,
                                                         .parser = parse_engine};

static const struct dpe_option dry_run_table[] = {
    {"dry-run", 0, NULL, DPE_BASIC, "Print samples, tokens, memory and time, and run nothing", 1,
     DPE_SWITCH(struct dpe_job_options, dry_run)},
    {0},
};

const struct dpe_option_set dpe_job_dry_run_option_set = {.options = dry_run_table};

void dpe_job_require(struct dpe_command_line *state, const struct dpe_job_options *options,
                     bool prompts, const char *output)
{
    const char *missing = options->model == NULL                         ? "--model DIR"
                          : prompts && options->length == 0              ? "--length L"
                          : options->corpus == NULL                      ? "--corpus PATH"
                          : options->output == NULL && !options->dry_run ? output
                                                                         : NULL;
    if (missing != NULL) {
        dpe_line_error(state, "%s is missing", missing);
    }
}

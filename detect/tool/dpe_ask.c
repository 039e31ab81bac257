/* dpe-ask: a document and a question go in, the answer comes out. Beyond the trained length the
 * plan is a formula, or what a search with this document as its haystack finds. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "detect/tool/detection.h"
#include "engine/system/folder.h"
#include "eval/chat/chat.h"
#include "eval/run/conversation.h"
#include "outputs/read/read.h"

enum { KEY_BUDGET = DPE_KEY_PROGRAM, STEP = 1024, SPARE = 16, TOLD = 1024 };

struct ask {
    struct dpe_run_args run;
    struct dpe_detect_budget budget;
    const char *path;         /* of the document */
    struct dpe_text document; /* its text, and an empty line */
    bool parse_special;
    int argc;
    char **argv;
    char table[NAME_MAX + 1]; /* that the search writes, unless --table names one */
    char told[TOLD];
};

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to ask:", 1},
    {"model", 'm', "DIR", DPE_BASIC,
     "Hugging Face folder (config.json, safetensors, tokenizer.json) or GGUF file", 1,
     DPE_MODEL(struct ask, run.model)},
    {"document", 'd', "FILE", DPE_BASIC,
     "The text that QUESTION is about (UTF-8), or a folder of .txt files", 1,
     DPE_PATH(struct ask, path)},
    {"chat", 0, NULL, DPE_BASIC, "Go on: every line of standard input is a further question", 1,
     DPE_SWITCH(struct ask, run.chat)},
    {"max-new", 'n', "N", DPE_BASIC,
     "Most tokens of an answer (default 512; 64 of a model without a chat template)", 1,
     DPE_TOKENS(struct ask, run.max_new, 1, DPE_MOST_COUNT)},
    {"system", 0, "TEXT", 0, "The system message", 1, DPE_TEXT(struct ask, run.system)},
    {"chat-template", 0, "auto|FILE", 0,
     "The template of the turns (auto, the default: the model's own)", 1,
     DPE_TEXT(struct ask, run.chat_template)},
    {"template-vars", 0, "NAME=VALUE[,...]", 0,
     "Variables of the chat template, such as enable_thinking=false", 1,
     DPE_TEXT(struct ask, run.template_vars)},
    {"special-in-text", 0, "error|parse", 0,
     "Spelling of a special token in the text: refuse it (error, the default), or make it the "
     "token",
     1, DPE_CHOICE(struct ask, parse_special, NULL)},
    {NULL, 0, NULL, 0, "The plan, where the text is longer than the trained length:", 2},
    {"budget", KEY_BUDGET, "TIME|TOKENS", DPE_BASIC,
     "Search it, by numbers that are hidden in this document, for a time such as 10m or tokens "
     "such as 2Mtok (default: a formula, of which nothing is measured)",
     2},
    {"table", 0, "FILE", DPE_BASIC,
     "Take it from a DPE table. With --budget where the search keeps what it finds, and goes on "
     "from (default: the document's name, the length and .dpe.h5, in the current folder)",
     2, DPE_TABLE(struct ask, run.table)},
    {"trained-length", 0, "L0", 0, "Trained length (default: as dpe-run --info says)", 2,
     DPE_TOKENS(struct ask, run.trained_length, 2, DPE_MOST_TRAINED)},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct ask *ask = state->input;
    const struct dpe_run_args *run = &ask->run;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = state->child_inputs[1] = &ask->run.tool;
        return 0;
    case KEY_BUDGET:
        ask->budget = dpe_detect_parse_budget(state, arg);
        return 0;
    case DPE_LINE_WORD:
        if (run->prompt != NULL) {
            dpe_line_error(state, "expected one QUESTION, in quotes, found '%.80s' and '%.80s'",
                           run->prompt, arg);
        }
        ask->run.prompt = arg;
        return 0;
    case DPE_LINE_END:
        if (run->model == NULL || ask->path == NULL) {
            dpe_line_error(state, "%s is missing",
                           run->model == NULL ? "--model DIR" : "--document FILE");
        }
        if (strcmp(ask->path, "-") == 0) {
            dpe_line_error(state, "--document -: it is read twice: keep it in a file first");
        }
        if (run->prompt != NULL ? run->prompt[0] == '\0' : !run->chat) {
            dpe_line_error(state, "a question is missing, as in: dpe ask -m MODEL --document "
                                  "app.log \"What failed first?\"");
        }
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

/* ------------------------------------------------------------------------------------- the text */

static dpe_status read_document(struct ask *ask, struct dpe_error *err)
{
    DPE_SCOPED(dpe_corpus_close_scoped) struct dpe_corpus *corpus = NULL;
    DPE_TRY(dpe_job_corpus(ask->path, &corpus, err));
    for (size_t i = 0; i < corpus->n; i++) {
        const struct dpe_book *book = &corpus->books[i];
        DPE_TRY(dpe_text_append(&ask->document, book->text, book->n, err));
        DPE_TRY(dpe_text_append(&ask->document, "\n\n", 2, err));
    }
    return DPE_OK;
}

/* Tokens of the first prompt, to a few: pieces are tokenized one by one. Sets the longest answer.
 */
static dpe_status count(struct ask *ask, const struct dpe_runner *run, int64_t *n,
                        struct dpe_error *err)
{
    struct dpe_run_args *args = &ask->run;
    struct dpe_encode_options options = {.special = args->special,
                                         .advice = "--special-in-text parse makes it the token"};
    DPE_SCOPED(dpe_chat_frame_free) struct dpe_chat_frame frame = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text rest = {0};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    if (dpe_tokenizer_encode(run->tokenizer, ask->document.bytes, ask->document.n, &options,
                             &tokens, err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s", ask->path);
    }
    DPE_TRY(dpe_chat_wrap(args->chat_template, args->model, &frame, err));
    dpe_text_put(&rest, "%s%s%s%s", frame.before, args->system != NULL ? args->system : "",
                 args->prompt != NULL ? args->prompt : "", frame.after);
    DPE_TRY(dpe_text_done(&rest, err));
    options.special = DPE_SPECIAL_PARSE;
    DPE_TRY(dpe_tokenizer_encode(run->tokenizer, rest.bytes, rest.n, &options, &tokens, err));
    *n = (int64_t)tokens.n + SPARE;
    args->max_new = dpe_run_tool_room(args->max_new, dpe_chat_framed(&frame));
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- the plan */

/* The widest keys and values that fit into memory. */
static dpe_status choose_types(struct ask *ask, const struct dpe_runner *run, struct dpe_error *err)
{
    struct dpe_tool_options *tool = &ask->run.tool;
    const struct dpe_plan_context context = {.config = dpe_model_config(run->model),
                                             .trained_length = run->trained_length,
                                             .length = ask->run.made_for};
    const uint64_t room = tool->max_memory > 0 ? tool->max_memory : dpe_device_memory(run->device);
    struct dpe_session_options options = {.device = run->device,
                                          .n_threads = tool->threads,
                                          .capacity = context.length,
                                          .kv_type = tool->kv_type};
    struct dpe_session_needs needs = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_TRY(dpe_plan_make("dpe", &context, &plan, err));
    DPE_TRY(dpe_session_estimate(context.config, &plan, &options, &needs, err));
    while (needs.memory > room && strncmp(options.device, "cpu", 3) == 0 && !tool->kv_given &&
           options.kv_type < DPE_KV_INT8) {
        options.kv_type++;
        DPE_TRY(dpe_session_estimate(context.config, &plan, &options, &needs, err));
    }
    if (options.kv_type != tool->kv_type && needs.memory <= room) {
        char bytes[32];
        dpe_log_info("keys and values are kept in %s, as wider ones do not fit into %s",
                     dpe_kv_type_names[options.kv_type], dpe_format_bytes(room, bytes));
        tool->kv_type = options.kv_type;
    }
    return DPE_OK;
}

/* What the search in this document found of the plan that it took. */
static dpe_status tell_search(struct ask *ask, const char *path, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_TRY(dpe_table_load(path, &table, err));
    const struct dpe_table_values *values = dpe_table_values(table);
    const char *of = values->evidence_task != NULL ? strstr(values->evidence_task, " of ") : NULL;
    char words[DPE_TABLE_EVIDENCE];
    int each = 1;
    if (of == NULL) {
        snprintf(ask->told, TOLD, "%s: %s", path, dpe_table_evidence(values, words));
        return DPE_OK;
    }
    (void)sscanf(of, " of %d value", &each);
    const double hidden = (double)values->evidence_samples * (double)each;
    snprintf(ask->told, TOLD, "%.0f of %.0f numbers hidden in this document were found",
             round(values->evidence_score * hidden), hidden);
    if (values->evidence_unchanged >= 0.0) {
        dpe_append(ask->told, TOLD, ", by the model as it is %.0f",
                   round(values->evidence_unchanged * hidden));
    }
    dpe_append(ask->told, TOLD, " (%s)", path);
    return DPE_OK;
}

/* Where the search keeps its plan: by default a file for each length. One that --table names keeps
 * its length where that suffices, so that another question goes on with its rows. */
static void place(struct ask *ask)
{
    struct dpe_run_args *run = &ask->run;
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    int n = 0;
    const char *name = dpe_folder_name(ask->path, &n);
    snprintf(ask->table, sizeof ask->table, "%.*s.%lldk.dpe.h5", n, name,
             (long long)run->made_for / STEP);
    run->table = run->table != NULL ? run->table : ask->table;
    if (dpe_table_load(run->table, &table, NULL) == DPE_OK) {
        run->made_for = dpe_most(run->made_for, dpe_table_values(table)->length);
    }
}

/* Needles in this document, by the study of dpe-detect. */
static dpe_status search(struct ask *ask, struct dpe_error *err)
{
    const struct dpe_run_args *run = &ask->run;
    struct dpe_detect_arguments detect;
    dpe_detect_defaults(&detect);
    detect.job.tool = run->tool;
    detect.job.model = run->model;
    detect.job.corpus = ask->path;
    detect.job.chat_template = run->chat_template;
    detect.job.template_vars = run->template_vars;
    detect.job.output = run->table;
    detect.job.length = detect.job.lengths[0] = run->made_for;
    detect.job.n_lengths = detect.job.tensor_parallel = 1;
    detect.job.rank_timeout = 1800.0;
    detect.job.trained_length = run->trained_length;
    detect.job.silent = true;
    detect.job.argc = ask->argc;
    detect.job.argv = ask->argv;
    detect.niah = ask->parse_special ? "repeat=1,special=parse" : "repeat=1";
    detect.budget = ask->budget;
    detect.guard = 0.0; /* no text is as long as this one and its question */
    dpe_detect_settle(&detect);
    const dpe_status status = dpe_study_run(&dpe_detect_study, &detect, NULL, err);
    if (status == DPE_MISMATCH) {
        dpe_fail_prefix(err, "to search %s too, give another --table FILE", ask->path);
    }
    return status == DPE_OK ? tell_search(ask, run->table, err) : status;
}

static dpe_status answer(struct ask *ask, const struct dpe_runner *run, struct dpe_error *err)
{
    struct dpe_run_args *args = &ask->run;
    DPE_SCOPED(dpe_chat_close_scoped) struct dpe_chat *template = NULL;
    int64_t n = 0;
    DPE_TRY(dpe_run_tool_template(run, &template, err));
    DPE_TRY(read_document(ask, err));
    DPE_TRY(count(ask, run, &n, err));
    args->document = &ask->document;
    args->told = ask->told;
    args->made_for = (n + args->max_new + STEP - 1) / STEP * STEP;
    const bool looks = n + args->max_new > run->trained_length && dpe_detect_budgeted(&ask->budget);
    if (looks) {
        place(ask);
    }
    dpe_log_info("%s: about %lld tokens with the question, the model's trained length is %lld; "
                 "device %s",
                 ask->path, (long long)n, (long long)run->trained_length, run->device);
    if (looks) {
        DPE_TRY(search(ask, err));
    } else if (args->table == NULL) {
        args->told = "nothing was measured: the plan is a formula; --budget 10m looks for one with "
                     "numbers that are hidden in this document";
    } else {
        snprintf(ask->told, TOLD, "nothing was measured of this document: the plan is that of %s",
                 args->table);
    }
    DPE_TRY(choose_types(ask, run, err));
    return dpe_run_tool_chat(run, err);
}

DPE_MAIN(dpe_ask)
{
    static const struct dpe_option_set *const children[] = {&dpe_tool_option_set,
                                                            &dpe_tool_output_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .args_doc = "QUESTION",
        .doc = "Ask a RoPE language model about a document that is longer than its trained length."
               "\vThe length is that of the document. A text within the trained length is read by "
               "the model as it is. The answer goes to standard output; the last line on standard "
               "error says what was measured. Keys and values are as wide as fits into memory."
               "\n\nExamples:\n"
               "  dpe ask -m MODEL --document app.log \"What failed first?\"\n"
               "  dpe ask -m MODEL --document app.log --budget 10m --chat \"What failed first?\"",
        .children = children,
    };
    dpe_tool_start(argv);
    struct ask ask = {
        .run = {.method = "dpe", .chat_template = "auto"}, .argc = argc, .argv = argv};
    dpe_tool_parse(&options, argc, argv, 0, &ask);
    dpe_tool_configure(&ask.run.tool);
    ask.run.special = ask.parse_special ? DPE_SPECIAL_PARSE : DPE_SPECIAL_ERROR;
    struct dpe_error err = {0};
    struct dpe_runner run = {0};
    dpe_status status = dpe_run_tool_open(&run, &ask.run, &err);
    status = status == DPE_OK ? answer(&ask, &run, &err) : status;
    dpe_run_tool_close(&run);
    dpe_text_free(&ask.document);
    return dpe_tool_end(status, &err);
}

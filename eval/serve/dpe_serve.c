/* dpe-serve: runs a model under a position plan and answers HTTP requests in the form of OpenAI's
 * API. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "eval/cache/cache.h"
#include "eval/serve/serve_tool.h"
#include "outputs/read/read.h"

enum option_key { KEY_ALLOW_HOST = DPE_KEY_PROGRAM, KEY_ALLOW_ORIGIN };
enum { MOST_PORT = 65535, MOST_QUEUE = 1 << 20, MOST_SECONDS = 86400 };

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to serve:", 1},
    {"model", 'm', "DIR", DPE_BASIC,
     "Hugging Face folder (config.json, safetensors, tokenizer.json) or GGUF file", 1},
    {"method", 0, "NAME[:K=V,...]", DPE_BASIC,
     "Position method, made for --length, for requests that may pass the trained length (default: "
     "where --length does, dpe, a formula of which nothing was measured)",
     1, DPE_TEXT(struct dpe_serve_arguments, method)},
    {"table", 0, "FILE", DPE_BASIC,
     "DPE table (of dpe-detect or dpe-export, or a folder of dpe-calibrate) instead of --method: "
     "each request runs with the entry "
     "for its prompt and max_tokens together; up to the trained length the model runs unchanged",
     1, DPE_TABLE(struct dpe_serve_arguments, table)},
    {"answer-room", 0, "N", 0,
     "With --table: a chat without max_tokens runs with the entry for its prompt and N tokens "
     "together, "
     "and its answer may fill that entry's length (default 512)",
     1, DPE_TOKENS(struct dpe_serve_arguments, answer_room, 1, DPE_MOST_COUNT)},
    {"other-model", 0, NULL, 0,
     "Apply a table that was measured on other weights of the same shape", 1,
     DPE_SWITCH(struct dpe_serve_arguments, other_model)},
    {"trained-length", 0, "L0", 0, "Trained length (default: max_position_embeddings)", 1,
     DPE_TOKENS(struct dpe_serve_arguments, trained_length, 2, DPE_MOST_TRAINED)},
    {"length", 'l', "L", DPE_BASIC,
     "Most tokens of a prompt and its answer (default: the longest entry of the table, else the "
     "trained length)",
     1, DPE_TOKENS(struct dpe_serve_arguments, length, 2, DPE_MOST_COUNT)},
    {"chat-template", 0, "FILE", 0,
     "Template for chats, as for dpe-eval: auto (default) is that of the model's folder", 1,
     DPE_TEXT(struct dpe_serve_arguments, chat_template)},
    {"template-vars", 0, "NAME=VALUE[,...]", 0,
     "Variables of the chat template, such as enable_thinking=false; a request's own win", 1,
     DPE_TEXT(struct dpe_serve_arguments, template_vars)},
    {"name", 0, "TEXT", 0, "Name of the model for clients (default: that of the folder)", 1,
     DPE_PATH(struct dpe_serve_arguments, name)},
    {NULL, 0, NULL, 0, "How to serve it:", 2},
    {"host", 0, "ADDRESS", DPE_BASIC,
     "Address to listen on (default 127.0.0.1: this machine alone)", 2,
     DPE_TEXT(struct dpe_serve_arguments, host)},
    {"port", 0, "N", DPE_BASIC, "Port to listen on (default 8080; 0: a free one)", 2,
     DPE_COUNT(struct dpe_serve_arguments, port, 0, MOST_PORT)},
    {"api-key-file", 0, "FILE", DPE_BASIC,
     "File with the keys, one a line, of which clients have to send one", 2,
     DPE_TEXT(struct dpe_serve_arguments, key_file)},
    {"allow-host", KEY_ALLOW_HOST, "NAME", 0,
     "A name by which clients may call the server, besides --host and the names of this machine "
     "alone; may be "
     "given several times",
     2},
    {"allow-origin", KEY_ALLOW_ORIGIN, "ORIGIN", 0,
     "An origin, as https://app.example, whose pages may ask from a browser, besides the server's "
     "own page; * for "
     "all; may be given several times",
     2},
    {"slots", 0, "N", DPE_BASIC,
     "Sequences that run at once, each with a cache of --length tokens (default: as many as fit "
     "into half of the free memory, or nine tenths of a CUDA device's, at most 8)",
     2, DPE_COUNT(struct dpe_serve_arguments, slots, 1, SERVE_MOST_SLOTS)},
    {"slot-save-path", 0, "DIR", 0,
     "Folder for what slots hold: POST /slots/N?action=save|restore|erase with {\"filename\": "
     "NAME}, "
     "as llama.cpp's server has it; a long text outlives a restart",
     2, DPE_PATH(struct dpe_serve_arguments, slot_path)},
    {"queue", 0, "N", 0,
     "Sequences that may wait, besides --slots that run; a request beyond them is refused with 503 "
     "(default 128)",
     2, DPE_COUNT(struct dpe_serve_arguments, queue, 1, MOST_QUEUE)},
    {"client-timeout", 0, "SECONDS", 0,
     "Time that a client has to send its request, and between two parts of an answer that it takes "
     "(default 60)",
     2, DPE_COUNT(struct dpe_serve_arguments, client_timeout, 1, MOST_SECONDS)},
    {"stop-timeout", 0, "SECONDS", 0,
     "After a signal, time for what is being answered; then it is ended (default 30)", 2,
     DPE_COUNT(struct dpe_serve_arguments, stop_timeout, 1, MOST_SECONDS)},
    {"request-timeout", 0, "SECONDS", 0,
     "Time for a request, its wait included; then it is ended with 504 (default: no limit)", 2,
     DPE_COUNT(struct dpe_serve_arguments, request_timeout, 1, MOST_SECONDS)},
    {"no-plans", 0, NULL, 0,
     "Take no plans from clients (POST /v1/dpe/plan, which dpe-eval --engine and the like need)", 2,
     DPE_SWITCH(struct dpe_serve_arguments, no_plans)},
    {"chunk", 0, "N", 0,
     "Prompt tokens that are read between two steps of the running sequences (default 512)", 2,
     DPE_TOKENS(struct dpe_serve_arguments, chunk, 1, DPE_MOST_COUNT)},
    {0},
};

static void add_name(const struct dpe_command_line *state, const char *option, const char *name,
                     const char **names, int64_t *n)
{
    if (*n == SERVE_MOST_NAMES) {
        dpe_line_error(state, "%s: expected at most %d", option, SERVE_MOST_NAMES);
    }
    names[(*n)++] = dpe_tool_path(state, option, name);
}

/* As browsers send it: a scheme, a host, a port, no path. */
static void check_origin(const struct dpe_command_line *state, const char *origin)
{
    const char *name = strstr(origin, "://");
    if (strcmp(origin, "*") != 0 && strcmp(origin, "null") != 0 &&
        (name == NULL || name == origin || name[3] == '\0' || strpbrk(name + 3, "/ ?#") != NULL)) {
        dpe_line_error(state,
                       "--allow-origin: expected an origin such as https://app.example, found '%s'",
                       origin);
    }
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_serve_arguments *args = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->tool;
        return 0;
    case 'm':
        args->model = dpe_tool_model(arg);
        args->given = arg;
        return 0;
    case KEY_ALLOW_HOST:
        add_name(state, "--allow-host", arg, args->hosts, &args->n_hosts);
        return 0;
    case KEY_ALLOW_ORIGIN:
        check_origin(state, arg);
        add_name(state, "--allow-origin", arg, args->origins, &args->n_origins);
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static void check_usage(const struct dpe_serve_arguments *args)
{
    const char *wrong = NULL;
    bool table = args->table != NULL ||
                 (args->method != NULL && dpe_plan_table_of_spec(args->method) != NULL);
    if (args->model == NULL) {
        wrong = "--model DIR is missing";
    } else if (args->table != NULL && args->method != NULL) {
        wrong = "--table and --method exclude each other";
    } else if (table && args->trained_length > 0) {
        wrong =
            "--table and --trained-length exclude each other: the table holds the trained length";
    } else if (!table && args->other_model) {
        wrong = "--other-model goes with --table";
    } else if (args->table == NULL && args->answer_room > 0) {
        wrong = "--answer-room goes with --table";
    } else if (!dpe_is_utf8(args->name)) {
        wrong = "--name: expected UTF-8, the encoding of JSON";
    }
    if (wrong != NULL) {
        dpe_tool_refuse(wrong);
    }
}

/* Until a signal or the end of the time budget; what is being answered then is finished. */
static dpe_status serve(const struct dpe_serve_arguments *args, struct dpe_serve_http *http,
                        struct dpe_error *err)
{
    const struct timespec moment = {.tv_nsec = 200000000};
    double budget = args->tool.time_budget;
    double deadline = budget > 0.0 ? dpe_clock() + budget : HUGE_VAL;
    while (dpe_signals_asked() == DPE_STOP_NONE && dpe_clock() < deadline) {
        nanosleep(&moment, NULL);
        dpe_serve_http_watch(http);
    }
    dpe_log_info("stopping: requests that are being answered are finished");
    dpe_serve_http_stop(http);
    return dpe_signals_asked() != DPE_STOP_NONE
               ? DPE_OK
               : dpe_fail(err, DPE_INCOMPLETE, "the time budget is used up");
}

static dpe_status run(const struct dpe_serve_arguments *args, struct dpe_error *err)
{
    DPE_SCOPED(dpe_serve_world_close) struct dpe_serve_world world = {0};
    DPE_SCOPED(dpe_serve_engine_stop) struct dpe_serve_engine engine = {0};
    struct dpe_serve_http *http = NULL;
    DPE_TRY(dpe_serve_world_open(args, &world, err));
    DPE_TRY(dpe_serve_engine_start(&world, &engine, err));
    DPE_TRY(dpe_serve_http_start(&world, &engine, &http, err));
    bool v6 = strchr(args->host, ':') != NULL;
    dpe_log_info("%s: %lld sequences of up to %lld tokens, and a page to ask about a document, at "
                 "http://%s%s%s:%lld",
                 world.name, (long long)engine.n_slots, (long long)world.length, v6 ? "[" : "",
                 args->host, v6 ? "]" : "", (long long)dpe_serve_http_port(http));
    return serve(args, http, err);
}

DPE_MAIN(dpe_serve)
{
    static const struct dpe_option_set *const children[] = {&dpe_tool_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Serve a RoPE language model with a position method over HTTP, in the form of "
               "OpenAI's API.\v"
               "Examples:\n"
               "  dpe-serve -m data/reference --method yarn -l 4k\n"
               "  dpe-serve -m MODEL --table table.h5 --port 8000 --api-key-file key.txt\n"
               "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once\", "
               "\"max_tokens\": 8}'",
        .children = children,
    };
    dpe_tool_start(argv);
    struct dpe_serve_arguments args = {.host = "127.0.0.1",
                                       .port = 8080,
                                       .queue = 128,
                                       .chunk = DPE_CACHE_CHUNK,
                                       .client_timeout = 60,
                                       .stop_timeout = 30};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    dpe_tool_configure(&args.tool);
    check_usage(&args);
    args.answer_room = args.answer_room > 0 ? args.answer_room : 512;
    struct dpe_error err = {0};
    return dpe_tool_end(run(&args, &err), &err);
}

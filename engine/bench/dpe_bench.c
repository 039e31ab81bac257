/* dpe-bench: what a shape costs on a device, under any method: prefill, attention alone, decoding,
 * beside what the device can do, measured in the same run. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/bench/signature.h"
#include "engine/model/config/layer_weights.h"
#include "engine/model/model.h"
#include "engine/ops/module.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/device.h"
#include "engine/session/ladder.h"
#include "engine/session/session.h"
#include "engine/tool/tool.h"

#include <jansson.h>
#include <omp.h>

enum { MOST_LENGTHS = 16, MOST_METHODS = 16, MOST_REPEATS = 25, MOST_COUNTS = 8, MOST_BESIDE = 64 };

struct arguments {
    struct dpe_tool_options tool;
    const char *shape, *json, *csv, *gpu_report;
    int64_t lengths[MOST_LENGTHS];
    const char *methods[MOST_METHODS];
    int64_t counts[MOST_COUNTS]; /* of branches */
    int n_lengths, n_methods, n_counts;
    int64_t repeats, new_tokens, layers, chunk, branches, trained_length; /* branches: most */
    int64_t beside;
    double deadline; /* dpe_clock() */
    bool signature;
};

enum { KEY_METHOD = DPE_KEY_PROGRAM, KEY_BRANCHES };

static const struct dpe_option options_table[] = {
    {0, 0, 0, 0, "What to measure:", 1},
    {"shape", 0, "SHAPE", DPE_BASIC,
     "llama3-8b, llama3-70b-layer, mistral-7b, qwen2.5-7b (with random weights), or a model folder",
     1, DPE_TEXT(struct arguments, shape)},
    {"length", 'l', "TOKENS", DPE_BASIC,
     "Length of a prompt, e.g. 8192 or 8k; may be repeated (default 8k)", 1},
    {"method", KEY_METHOD, "NAME[:K=V,...]", DPE_BASIC,
     "Position method; may be repeated (default: rope, and dpe with 48 of 64 pairs in its masks)",
     1},
    {"new", 0, "N", 0, "Tokens to decode after a prompt (default 16)", 1,
     DPE_COUNT(struct arguments, new_tokens, 1, 1 << 20)},
    {"branches", KEY_BRANCHES, "B", 0,
     "Number of branches to decode as one batch; may be repeated: a prompt is read once for all "
     "(default 1)",
     1},
    {"beside", 0, "N", 0,
     "Measure also a step of N sessions beside each other, each with a prompt and, by turns, one "
     "of the methods: of all at once, and of one after another; as many as have room",
     1, DPE_COUNT(struct arguments, beside, 1, MOST_BESIDE)},
    {"repeats", 0, "N", 0, "Number of runs; the median is reported (default 3)", 1,
     DPE_COUNT(struct arguments, repeats, 1, MOST_REPEATS)},
    {"layers", 0, "N", 0, "Use only the first N layers of the shape", 1,
     DPE_COUNT(struct arguments, layers, 1, 1 << 20)},
    {"chunk", 0, "N", 0, "Tokens in a prefill chunk", 1,
     DPE_TOKENS(struct arguments, chunk, 1, 1 << 30)},
    {"trained-length", 0, "L0", 0, "Trained length (default: that of the shape)", 1,
     DPE_TOKENS(struct arguments, trained_length, 2, DPE_MOST_TRAINED)},
    {"signature", 0, NULL, 0,
     "Measure nothing, but print one number over plans, logits and tokens of a small model, which "
     "a "
     "change of the source that changes no result leaves as it is",
     1, DPE_SWITCH(struct arguments, signature)},
    {0, 0, 0, 0, "Files for the results, in addition to stdout:", 2},
    {"json", 0, "FILE", 0, "Write one JSON object per line to FILE", 2,
     DPE_PATH(struct arguments, json)},
    {"csv", 0, "FILE", 0, "Write a table with a header line to FILE", 2,
     DPE_PATH(struct arguments, csv)},
    {"gpu-report", 0, "FILE", 0,
     "Measure nothing, but test every kernel of --device cuda in a process of its own, for --shape "
     "or else for "
     "all kinds of models, and write the results to FILE, to be attached to a report of an error",
     2, DPE_PATH(struct arguments, gpu_report)},
    {"force", 0, NULL, 0, "Replace these files if they exist", 2,
     DPE_SWITCH(struct arguments, tool.force)},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct arguments *a = state->input;
    struct dpe_config known;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &a->tool;
        return 0;
    case 'l':
        if (a->n_lengths == MOST_LENGTHS) {
            dpe_line_error(state, "--length: expected at most %d lengths", MOST_LENGTHS);
        }
        a->lengths[a->n_lengths++] = dpe_parse_tokens(state, "--length", arg, 1, INT64_C(1) << 30);
        return 0;
    case KEY_METHOD:
        if (a->n_methods == MOST_METHODS) {
            dpe_line_error(state, "--method: expected at most %d methods", MOST_METHODS);
        }
        a->methods[a->n_methods++] = arg;
        return 0;
    case KEY_BRANCHES:
        if (a->n_counts == MOST_COUNTS) {
            dpe_line_error(state, "--branches: expected at most %d numbers", MOST_COUNTS);
        }
        a->counts[a->n_counts] = dpe_parse_count(state, "--branches", arg, 1, DPE_MAX_BRANCHES);
        a->branches = dpe_most(a->branches, a->counts[a->n_counts++]);
        return 0;
    case DPE_LINE_END:
        if (a->shape == NULL && a->gpu_report == NULL && !a->signature) {
            dpe_line_error(state, "--shape is missing");
        }
        if (a->layers > 0 && !dpe_known_shape(a->shape, &known)) {
            dpe_line_error(state, "--layers needs a named shape, found --shape %s", a->shape);
        }
        if (a->json != NULL && a->csv != NULL && strcmp(a->json, a->csv) == 0) {
            dpe_line_error(state, "--json and --csv name the same file %s", a->json);
        }
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

/* -------------------------------------------------------------------------------------- results */

struct result {
    const char *method;
    int64_t length, branches;
    double prefill, attention, token;      /* seconds; attention of all layers, a token a branch */
    double product_flops, attention_flops; /* of a prefill */
    double token_bytes;                    /* that a step of decoding has to read */
    uint64_t memory;
};

struct output {
    const char *path; /* NULL: not asked for */
    FILE *file;
    bool made; /* was not there before */
};

struct outputs {
    struct output json, csv;
    bool begun; /* a result is there: what the files held is gone */
    struct dpe_device_rates rates;
};

/* The least time that the rates measured in this run allow. */
static double prefill_floor(const struct outputs *out, const struct result *r)
{
    return (r->product_flops + r->attention_flops) / out->rates.product;
}

static double token_floor(const struct outputs *out, const struct result *r)
{
    return r->token_bytes / out->rates.copy;
}

/* An old file is worth more than none until there is a first result. */
static void begin_outputs(struct outputs *out)
{
    FILE *files[] = {out->json.file, out->csv.file};
    struct stat info;
    for (int i = 0; i < 2 && !out->begun; i++) {
        if (files[i] != NULL && fstat(fileno(files[i]), &info) == 0 && S_ISREG(info.st_mode) &&
            ftruncate(fileno(files[i]), 0) != 0) {
            dpe_log_warning("an output file cannot be emptied, so results are appended to it: %s",
                            strerror(errno));
        }
    }
    if (out->csv.file != NULL && !out->begun) {
        fprintf(out->csv.file,
                "method,length,branches,prefill_s,prefill_flops_per_s,prefill_floor_s,"
                "attention_s,attention_flops_per_s,token_s,token_floor_s,memory_bytes\n");
    }
    out->begun = true;
}

/* JSON has no NaN and no infinity: null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void write_json(const struct outputs *out, const struct arguments *a, const struct result *r)
{
    json_t *line = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "shape",
        a->shape, "device", out->rates.name, "method", r->method, "length", (json_int_t)r->length,
        "branches", (json_int_t)r->branches, "prefill_s", number(r->prefill), "prefill_flops",
        number(r->product_flops + r->attention_flops), "prefill_floor_s",
        number(prefill_floor(out, r)), "attention_s", number(r->attention), "attention_flops",
        number(r->attention_flops), "token_s", number(r->token), "token_bytes",
        number(r->token_bytes), "token_floor_s", number(token_floor(out, r)), "memory_bytes",
        (json_int_t)r->memory, "copy_bytes_per_s", number(out->rates.copy), "product_flops_per_s",
        number(out->rates.product));
    if (line == NULL || json_dumpf(line, out->json.file, JSON_REAL_PRECISION(6)) != 0 ||
        fputc('\n', out->json.file) == EOF) {
        dpe_log_warning("writing a result to the JSON file failed; that result is missing there");
    }
    json_decref(line);
}

static void print_result(const struct outputs *out, const struct arguments *a,
                         const struct result *r)
{
    double rate = (r->product_flops + r->attention_flops) / r->prefill;
    dpe_print("%s, %" PRId64 " tokens, %.1f GiB\n", r->method, r->length,
              (double)r->memory / 0x1p30);
    dpe_print("  prefill   %10.1f ms %8.3f TFLOP/s %6.1f %% of the floor\n", 1e3 * r->prefill,
              1e-12 * rate, 100.0 * prefill_floor(out, r) / r->prefill);
    dpe_print("  attention %10.1f ms %8.3f TFLOP/s\n", 1e3 * r->attention,
              1e-12 * r->attention_flops / r->attention);
    dpe_print("  a token   %10.3f ms %8.1f GB/s    %6.1f %% of the floor", 1e3 * r->token,
              1e-9 * r->token_bytes / r->token, 100.0 * token_floor(out, r) / r->token);
    dpe_print(r->branches > 1 ? "   for each of %" PRId64 "\n" : "\n", r->branches);
    fflush(stdout);
    if (out->json.file != NULL) {
        write_json(out, a, r);
        fflush(out->json.file); /* a process that is killed later has written this result */
    }
    if (out->csv.file != NULL) {
        fprintf(out->csv.file,
                "%s,%" PRId64 ",%" PRId64 ",%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%" PRIu64 "\n",
                r->method, r->length, r->branches, r->prefill, rate, prefill_floor(out, r),
                r->attention, r->attention_flops / r->attention, r->token, token_floor(out, r),
                r->memory);
        fflush(out->csv.file);
    }
}

/* ------------------------------------------------------------------------------------ measuring */

static double median(double *values, int64_t n)
{
    dpe_sort(values, (size_t)n);
    return values[n / 2];
}

/* Products of the CPU backend at a size that shows its rate. */
static dpe_status measure_products(const struct arguments *a, double *rate, struct dpe_error *err)
{
    enum { ROWS = 512, HIDDEN = 1024, WIDE = 4096 };
    struct dpe_config config;
    (void)dpe_known_shape("llama3-70b-layer", &config);
    config.hidden = HIDDEN;
    config.intermediate = WIDE;
    config.n_heads = config.n_kv_heads = 1;
    config.vocab = 16;
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *s = NULL;
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = ROWS, .length = ROWS};
    const struct dpe_session_options options = {
        .device = a->tool.device, .n_threads = a->tool.threads, .capacity = ROWS};
    DPE_TRY(dpe_random_model(&config, true, 1, &model, err));
    DPE_TRY(dpe_plan_make("rope", &context, &plan, err));
    DPE_TRY(dpe_session_create(model, &plan, &options, &s, err));
    for (int i = 0; i < 5; i++) {
        double seconds = 0.0;
        DPE_TRY(dpe_session_measure_product(s, ROWS, &seconds, err));
        *rate = fmax(*rate, 2.0 * ROWS * HIDDEN * WIDE / seconds);
    }
    return DPE_OK;
}

static dpe_status measure_host(const struct arguments *a, struct outputs *out,
                               struct dpe_error *err)
{
    const int64_t words = 32 << 20;
    int threads = a->tool.threads > 0 ? a->tool.threads : dpe_limit_processors(omp_get_num_procs());
    uint64_t *memory = NULL;
    DPE_TRY(DPE_NEW(&memory, (size_t)words, err, "out of memory for reads of 256 MiB"));
    /* What decoding does: every thread reads a part of its own from end to end. */
    uint64_t all = 0;
    for (int i = 0; i < 8; i++) {
        double start = dpe_clock();
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : all)
        for (int64_t j = 0; j < words; j++) {
            all |= memory[j];
        }
        double rate = (double)words * sizeof *memory / (dpe_clock() - start);
        out->rates.copy = all == 0 ? fmax(out->rates.copy, rate) : 0.0;
    }
    free(memory);
    snprintf(out->rates.name, sizeof out->rates.name, "%s", a->tool.device);
    DPE_TRY(measure_products(a, &out->rates.product, err));
    dpe_print("# %s: reads of %d threads %.1f GB/s, products %.3f TFLOP/s (512 x 1024 x 4096)\n",
              out->rates.name, threads, 1e-9 * out->rates.copy, 1e-12 * out->rates.product);
    return DPE_OK;
}

/* A dpe_poll; its user is the deadline. */
static dpe_status poll(void *user, struct dpe_error *err)
{
    double deadline = *(const double *)user;
    return dpe_clock() <= deadline
               ? dpe_signals_poll(NULL, err)
               : dpe_fail(
                     err, DPE_INCOMPLETE,
                     "the time budget was used up before all measurements; raise --time-budget");
}

static dpe_status make_prompt(const struct dpe_config *c, int64_t length, int32_t **tokens,
                              struct dpe_error *err)
{
    DPE_TRY(DPE_NEW(tokens, (size_t)length, err, "out of memory for %" PRId64 " tokens", length));
    for (int64_t i = 0; i < length; i++) {
        (*tokens)[i] = (int32_t)((uint64_t)i * 2654435761U >> 7) & 0x7fffffff;
        (*tokens)[i] = (int32_t)((*tokens)[i] % c->vocab);
    }
    return DPE_OK;
}

/* r [n_counts]: one for each number of branches. */
static dpe_status measure(struct dpe_session *s, const struct dpe_model *model,
                          const struct arguments *a, int64_t length, struct result *r,
                          struct dpe_error *err)
{
    const struct dpe_config *c = dpe_model_config(model);
    const struct dpe_weights *weights = dpe_model_weights(model);
    double prefill[MOST_REPEATS];
    double attention[MOST_REPEATS];
    double token[MOST_COUNTS][MOST_REPEATS];
    DPE_OWNED int32_t *tokens = NULL;
    DPE_OWNED float *logits = dpe_alloc((size_t)c->vocab, sizeof *logits);
    DPE_TRY(DPE_MADE(logits, err, "out of memory for logits"));
    DPE_TRY(make_prompt(c, length, &tokens, err));
    /* Round −1 warms up. */
    for (int64_t i = -1; i < a->repeats; i++) {
        int64_t at = i < 0 ? 0 : i;
        DPE_TRY(dpe_session_cut(s, 0, err));
        double start = dpe_clock();
        DPE_TRY(dpe_session_feed(s, tokens, length, logits, err));
        prefill[at] = dpe_clock() - start;
        DPE_TRY(dpe_session_measure_attention(s, length, &attention[at], err));
        for (int b = 0; b < a->n_counts; b++) {
            DPE_TRY(b > 0 ? dpe_session_cut(s, length, err) : DPE_OK);
            DPE_TRY(dpe_session_measure_tokens(s, a->counts[b], a->new_tokens, &token[b][at], err));
        }
    }
    double e = (double)dpe_session_memory(s).element;
    /* A key and a value of a layer, and the keys that all layers see in the middle of decoding; of
     * several branches those that each has of its own. */
    double cache = 2.0 * (double)(c->n_kv_heads * c->head_dim) * e;
    for (int b = 0; b < a->n_counts; b++, r++) {
        double keys = dpe_config_seen(c, length + a->new_tokens / 2, 1) +
                      (double)(c->n_layers * (a->counts[b] - 1) * a->new_tokens) / 2.0;
        r->branches = a->counts[b];
        r->prefill = median(prefill, a->repeats);
        r->attention = median(attention, a->repeats);
        r->token = median(token[b], a->repeats);
        dpe_config_flops(c, 0, length, 1, &r->product_flops, &r->attention_flops);
        r->token_bytes =
            dpe_weights_step_bytes(c, weights, dpe_cuda_is_name(a->tool.device)) + cache * keys;
        r->memory = dpe_session_memory(s).total;
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- plans */

/* dpe as a profile would have it: 8 groups, three quarters of all pairs in the masks. */
static dpe_status masked_dpe(const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err)
{
    const struct dpe_config *c = context->config;
    int64_t n_pairs = c->head_dim / 2;
    int n_groups = n_pairs < 8 ? 1 : 8;
    int32_t edges[9];
    const double scale[8] = {2, 8, 2, 8, 32, 32, 16, 4};
    size_t n = (size_t)(c->n_layers * c->n_heads * n_pairs);
    DPE_OWNED uint8_t *mask = NULL;
    DPE_TRY(DPE_NEW(&mask, n, err, "out of memory for a mask"));
    for (size_t i = 0; i < n; i++) {
        mask[i] = (i * 2654435761U >> 7) % 4 != 0;
    }
    DPE_TRY(dpe_plan_group_edges(n_pairs, n_groups, edges, err));
    int64_t window = context->length / 8 < 1024 ? context->length / 8 + 1 : 1024;
    const struct dpe_dpe_params params = {
        .window = window, .n_groups = n_groups, .edges = edges, .scale = scale, .mask = mask};
    return dpe_plan_make_dpe(&params, context, plan, err);
}

static struct dpe_session_options session_options(const struct arguments *a, int64_t length)
{
    return (struct dpe_session_options){
        .device = a->tool.device,
        .n_threads = a->tool.threads,
        .capacity = length + a->branches * (a->new_tokens + 1),
        .positions = length + a->new_tokens + 1,
        .branches = a->branches,
        .prefill_chunk = a->chunk,
        .max_memory = a->tool.max_memory,
        .kv_type = a->tool.kv_type,
        .kv_dir = dpe_tool_kv_dir(),
        .knobs = {.length = "--length, --new",
                  .chunk = "--chunk",
                  .branches = "--branches",
                  .max_memory = "--max-memory"},
    };
}

static dpe_status plan_of(const struct arguments *a, const struct dpe_config *c, const char *method,
                          int64_t length, struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_plan_context context = {
        .config = c,
        .trained_length = a->trained_length > 0 ? a->trained_length : dpe_config_trained(c),
        .length = length + a->new_tokens + 1,
        .official = true};
    return strcmp(method, "dpe") == 0 ? masked_dpe(&context, plan, err)
                                      : dpe_plan_make(method, &context, plan, err);
}

/* Before anything is measured. */
static dpe_status check_plans(const struct arguments *a, const struct dpe_config *config,
                              struct dpe_error *err)
{
    for (int i = 0; i < a->n_lengths * a->n_methods; i++) {
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        DPE_TRY(plan_of(a, config, a->methods[i % a->n_methods], a->lengths[i / a->n_methods],
                        &plan, err));
    }
    return DPE_OK;
}

static dpe_status one(const struct dpe_model *model, const struct arguments *a, const char *method,
                      int64_t length, struct outputs *out, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_TRY(plan_of(a, dpe_model_config(model), method, length, &plan, err));
    const struct dpe_session_options options = session_options(a, length);
    uint64_t before = dpe_device_memory(a->tool.device);
    struct result results[MOST_COUNTS] = {0};
    int64_t reported = 0;
    double deadline = a->deadline;
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    DPE_TRY(dpe_session_create(model, &plan, &options, &session, err));
    dpe_log_chunk(session, &reported);
    dpe_session_set_poll(session, poll, &deadline);
    DPE_TRY(measure(session, model, a, length, results, err));
    uint64_t after = dpe_device_memory(a->tool.device);
    begin_outputs(out);
    for (int i = 0; i < a->n_counts; i++) {
        struct result *result = &results[i];
        result->method = method;
        result->length = length;
        if (dpe_cuda_is_name(a->tool.device) && after < before) {
            result->memory = before - after; /* what was taken, not what was reckoned */
        }
        print_result(out, a, result);
    }
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------- several plans
 */

/* Sessions beside each other, a branch of each in a step. */
struct sides {
    struct dpe_session *sessions[MOST_BESIDE];
    struct dpe_session_part parts[MOST_BESIDE];
    int64_t n;             /* that have read their prompts */
    double read, deadline; /* seconds until all have, dpe_clock() */
};

static void sides_close(struct sides *sides)
{
    for (int i = MOST_BESIDE; i > 0;) {
        dpe_session_destroy(sides->sessions[--i]);
    }
}

/* One more, which has read the prompt. */
static dpe_status sides_add(struct sides *sides, const struct dpe_model *model,
                            const struct arguments *a, int64_t length, const int32_t *tokens,
                            struct dpe_error *err)
{
    static const int64_t first = 0;
    const char *method = a->methods[sides->n % a->n_methods];
    const int64_t room = 2 * a->new_tokens + 1; /* steps of both ways, and the first */
    struct dpe_session_options options = session_options(a, length);
    struct dpe_session **s = &sides->sessions[sides->n];
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_TRY(plan_of(a, dpe_model_config(model), method, length, &plan, err));
    options.beside = sides->n > 0 ? sides->sessions[0] : NULL;
    options.capacity = options.positions = length + room;
    options.branches = 1;
    DPE_TRY(dpe_session_create(model, &plan, &options, s, err));
    dpe_session_set_poll(*s, poll, &sides->deadline);
    const double start = dpe_clock();
    DPE_TRY(dpe_session_feed(*s, tokens, length, NULL, err));
    sides->read += dpe_clock() - start;
    DPE_TRY(dpe_session_branch(*s, 1, room, err));
    sides->parts[sides->n++] = (struct dpe_session_part){*s, 1, &first};
    return DPE_OK;
}

/* Seconds of a step of all, `at_once` of them at a time. */
static dpe_status sides_step(const struct sides *sides, int64_t steps, int64_t at_once,
                             double *seconds, struct dpe_error *err)
{
    int32_t tokens[MOST_BESIDE] = {1};
    int32_t best[MOST_BESIDE];
    const double start = dpe_clock();
    for (int64_t i = 0; i < steps; i++) {
        for (int64_t p = 0; p < sides->n; p += at_once) {
            DPE_TRY(dpe_session_step_parts(sides->parts + p, at_once, tokens, NULL, best, err));
        }
    }
    *seconds = (dpe_clock() - start) / (double)steps;
    return DPE_OK;
}

static dpe_status measure_beside(const struct dpe_model *model, const struct arguments *a,
                                 int64_t length, struct outputs *out, struct dpe_error *err)
{
    DPE_SCOPED(sides_close) struct sides sides = {.deadline = a->deadline};
    DPE_OWNED int32_t *tokens = NULL;
    dpe_status status = make_prompt(dpe_model_config(model), length, &tokens, err);
    double cold = 0.0, together = 0.0, in_turn = 0.0;
    while (status == DPE_OK && sides.n < a->beside) {
        status = sides_add(&sides, model, a, length, tokens, err);
    }
    DPE_TRY(status == DPE_NO_MEMORY && sides.n > 0 ? DPE_OK : status);
    DPE_TRY(sides_step(&sides, 1, sides.n, &cold, err));
    DPE_TRY(sides_step(&sides, a->new_tokens, sides.n, &together, err));
    DPE_TRY(sides_step(&sides, a->new_tokens, 1, &in_turn, err));
    begin_outputs(out);
    dpe_print("%" PRId64 " prompts of %" PRId64 " tokens, read in %.1f ms\n  a step of all %8.3f "
              "ms, one after another %.3f ms\n",
              sides.n, length, 1e3 * sides.read, 1e3 * together, 1e3 * in_turn);
    if (out->json.file != NULL) {
        fprintf(out->json.file,
                "{\"beside\": %" PRId64 ", \"length\": %" PRId64
                ", \"read_s\": %.6g, \"step_s\": %.6g, \"in_turn_s\": %.6g}\n",
                sides.n, length, sides.read, together, in_turn);
    }
    fflush(NULL); /* a process that is killed later has written this result */
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------------- main */

/* Before minutes of drawing weights: whether they and the shortest session fit. */
static dpe_status check_room(const struct arguments *a, const struct dpe_config *config,
                             struct dpe_error *err)
{
    int64_t length = a->lengths[0];
    for (int i = 1; i < a->n_lengths; i++) {
        length = a->lengths[i] < length ? a->lengths[i] : length;
    }
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    const struct dpe_plan_context context = {
        .config = config, .trained_length = dpe_config_trained(config), .length = length};
    const struct dpe_session_options options = session_options(a, length);
    struct dpe_session_needs needs = {0};
    DPE_TRY(dpe_plan_make("rope", &context, &plan, err));
    DPE_TRY(dpe_session_estimate(config, &plan, &options, &needs, err));
    uint64_t available = dpe_memory_available();
    if (needs.weights > available || needs.memory > available - needs.weights) {
        return dpe_fail(
            err, DPE_NO_MEMORY,
            "--shape %s: random weights of %.1f GiB and a session of %.1f GiB (%lld "
            "tokens) do not fit into the %.1f GiB that are free; fewer --layers or a smaller "
            "--length need less",
            a->shape, (double)needs.weights / 0x1p30, (double)needs.memory / 0x1p30,
            (long long)length, (double)available / 0x1p30);
    }
    return DPE_OK;
}

static dpe_status open_model(const struct arguments *a, bool cuda, struct dpe_model **model,
                             struct dpe_error *err)
{
    struct dpe_config config;
    if (dpe_known_shape(a->shape, &config)) {
        config.n_layers = a->layers > 0 ? a->layers : config.n_layers;
        DPE_TRY(check_plans(a, &config, err));
        DPE_TRY(cuda ? DPE_OK : check_room(a, &config, err));
        return dpe_random_model(&config, !cuda, 1, model, err);
    }
    struct stat info;
    if (stat(a->shape, &info) != 0) {
        return dpe_fail(err, DPE_NO_INPUT,
                        "--shape: unknown shape '%s'; shapes: llama3-8b, llama3-70b-layer, "
                        "mistral-7b, qwen2.5-7b, or a model folder",
                        a->shape);
    }
    DPE_TRY(dpe_model_open(dpe_tool_model(a->shape), NULL, model, err));
    return check_plans(a, dpe_model_config(*model), err);
}

static dpe_status open_output(const struct arguments *a, struct output *out, struct dpe_error *err)
{
    if (out->path == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_tool_check_output(out->path, &a->shape, 1, err));
    DPE_TRY(dpe_tool_check_new(out->path, a->tool.force, err));
    out->file = fopen(out->path, "wxe");
    out->made = out->file != NULL;
    if (!out->made && (out->file = fopen(out->path, "ae")) == NULL) {
        int code = errno;
        return dpe_fail(err, code == EACCES ? DPE_PERMISSION : DPE_CANNOT_CREATE, "%s: %s",
                        out->path, strerror(code));
    }
    return DPE_OK;
}

/* After what ended with `status`, which is returned unless it is DPE_OK. A file that was made and
 * not `used` goes. */
static dpe_status close_output(const struct output *out, bool used, dpe_status status,
                               struct dpe_error *err)
{
    if (out->made && !used) {
        (void)unlink(out->path);
    }
    const bool lost = out->file != NULL &&
                      (fflush(out->file) != 0 || ferror(out->file) != 0 || fclose(out->file) != 0);
    return status == DPE_OK && lost ? dpe_fail(err, DPE_IO, "%s: cannot be written", out->path)
                                    : status;
}

static dpe_status measure_card(const struct arguments *a, struct outputs *out,
                               struct dpe_error *err)
{
    const struct dpe_cuda_module *module = NULL;
    DPE_TRY(dpe_cuda_load(&module, err));
    DPE_TRY(module->measure(a->tool.device, &out->rates, err));
    dpe_print("# %s, compute capability %d.%d, %d multiprocessors, %.1f GiB: copies %.0f GB/s, "
              "products %.0f TFLOP/s (8192^3, bfloat16)\n",
              out->rates.name, out->rates.major, out->rates.minor, out->rates.processors,
              (double)out->rates.memory / 0x1p30, 1e-9 * out->rates.copy,
              1e-12 * out->rates.product);
    return DPE_OK;
}

static dpe_status measure_all(const struct arguments *given, struct outputs *out,
                              struct dpe_error *err)
{
    struct arguments found = *given;
    const struct arguments *a = &found;
    const bool cuda = dpe_cuda_is_name(a->tool.device);
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_TRY(open_output(a, &out->json, err));
    DPE_TRY(open_output(a, &out->csv, err));
    DPE_TRY(open_model(a, cuda, &model, err));
    DPE_TRY(dpe_tool_find_device(&given->tool, model, &found.tool.device, err));
    DPE_TRY(cuda ? measure_card(a, out, err) : measure_host(a, out, err));
    for (int l = 0; l < a->n_lengths; l++) {
        for (int m = 0; m < a->n_methods; m++) {
            DPE_TRY(one(model, a, a->methods[m], a->lengths[l], out, err));
        }
        DPE_TRY(a->beside > 0 ? measure_beside(model, a, a->lengths[l], out, err) : DPE_OK);
    }
    return DPE_OK;
}

static dpe_status run(const struct arguments *a, struct dpe_error *err)
{
    struct outputs out = {.json.path = a->json, .csv.path = a->csv};
    dpe_status status = measure_all(a, &out, err);
    status = close_output(&out.json, out.begun, status, err);
    return close_output(&out.csv, out.begun, status, err);
}

/* Exit code 69 where a test is not right: the file says which. */
static dpe_status report_device(const struct arguments *a, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    struct output out = {.path = a->gpu_report};
    int n_bad = 0;
    dpe_status status = open_output(a, &out, err);
    status = status == DPE_OK && a->shape != NULL ? open_model(a, true, &model, err) : status;
    if (status == DPE_OK) {
        status = dpe_device_report(model != NULL ? dpe_model_config(model) : NULL, a->tool.device,
                                   a->tool.threads, &text, &n_bad, err);
    }
    const bool written = status == DPE_OK && ftruncate(fileno(out.file), 0) == 0 &&
                         fwrite(text.bytes, 1, text.n, out.file) == text.n;
    status = close_output(&out, written, status, err);
    if (status == DPE_OK) {
        dpe_print("%s: %s\n", a->gpu_report,
                  n_bad == 0 ? "all tests are right" : "some tests are not right");
        status = n_bad == 0 ? DPE_OK
                            : dpe_fail(err, DPE_NO_DEVICE, "%d tests are not right: %s says which",
                                       n_bad, a->gpu_report);
    }
    return status;
}

DPE_MAIN(dpe_bench)
{
    static const struct dpe_option_set *const children[] = {&dpe_tool_option_set, NULL};
    const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Measure prefill, attention and decoding of a model's shape.",
        .children = children};
    struct arguments a = {.repeats = 3, .new_tokens = 16, .branches = 1};
    struct dpe_error err = {0};
    if (argc == 2 && strcmp(argv[1], DPE_DEVICE_CHILD) == 0) {
        return dpe_device_child();
    }
    dpe_tool_start(argv);
    dpe_tool_parse(&options, argc, argv, 0, &a);
    dpe_tool_configure(&a.tool);
    a.deadline = a.tool.time_budget > 0.0 ? dpe_clock() + a.tool.time_budget : HUGE_VAL;
    if (a.signature) {
        char hex[65] = "";
        dpe_status status = dpe_bench_signature(hex, &err);
        if (status == DPE_OK) {
            dpe_print("%.16s\n", hex);
        }
        return dpe_tool_end(status, &err);
    }
    if (a.gpu_report != NULL) {
        return dpe_tool_end(report_device(&a, &err), &err);
    }
    if (a.n_lengths == 0) {
        a.lengths[a.n_lengths++] = 8192;
    }
    if (a.n_counts == 0) {
        a.counts[a.n_counts++] = 1;
    }
    if (a.n_methods == 0) {
        a.methods[a.n_methods++] = "rope";
        a.methods[a.n_methods++] = "dpe";
    }
    return dpe_tool_end(run(&a, &err), &err);
}

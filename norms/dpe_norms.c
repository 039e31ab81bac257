/* dpe-norms: the study that measures the 2-norm profile of every head on real text, from its
 * inputs to its table; and the options of the tool. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "norms/norms.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/job/job.h"
#include "outputs/job/price.h"
#include "outputs/read/read.h"
#include "outputs/words/words.h"

enum {
    MAX_LENGTHS = 32,
    MOST_TOGETHER = 64, /* excerpts that an engine runs at once */
};

/* Everything a profile needs, in the order in which it is opened. */
struct profile {
    const struct dpe_norms_arguments *args;
    struct dpe_job job;
    int n_lengths;
    int64_t lengths[MAX_LENGTHS]; /* ascending */
    struct dpe_excerpts excerpts; /* of the longest; shorter ones are their beginnings */
    struct dpe_plan plan;         /* the model's own rotation */
    char key[33];
    struct dpe_norms norms[MOST_TOGETHER]; /* [job.batch], at least 1 */
};

/* -------------------------------------------------------------------------------------- opening */

/* Powers of two up to the trained length, unless others are given. */
static dpe_status parse_lengths(struct profile *profile, struct dpe_error *err)
{
    const char *text = profile->args->lengths;
    const int64_t trained = profile->job.trained_length;
    if (text != NULL && strcmp(text, "auto") != 0) {
        profile->n_lengths = dpe_parse_lengths(text, 2, DPE_MOST_COUNT, "auto or ",
                                               profile->lengths, MAX_LENGTHS, err);
        return profile->n_lengths > 0 ? DPE_OK : dpe_fail_prefix(err, "--lengths");
    }
    int64_t length = 1;
    while (length < (trained / 4 < 2048 ? trained / 4 : 2048)) {
        length *= 2;
    }
    for (; length <= trained && profile->n_lengths < MAX_LENGTHS; length *= 2) {
        profile->lengths[profile->n_lengths++] = length;
    }
    return profile->n_lengths > 0
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "--lengths: a trained length of %lld is too short for auto; give lengths",
                          (long long)trained);
}

static int64_t longest(const struct profile *profile)
{
    return profile->lengths[profile->n_lengths - 1];
}

static dpe_status profile_open(void *state, const void *asked, struct dpe_error *err)
{
    struct profile *profile = state;
    const struct dpe_norms_arguments *args = asked;
    profile->args = args;
    DPE_TRY(dpe_job_open(&profile->job, &args->job, args->job.dry_run, err));
    DPE_TRY(dpe_job_needs_plans(&profile->job, "it gives no norms", err));
    DPE_TRY(parse_lengths(profile, err));
    DPE_TRY(dpe_excerpts_make(profile->job.corpus, profile->job.tokenizer, longest(profile),
                              args->job.samples, args->job.seed, args->special, &profile->excerpts,
                              err));
    const struct dpe_plan_context context = dpe_job_context(&profile->job, longest(profile));
    DPE_TRY(dpe_plan_make("rope", &context, &profile->plan, err));
    return dpe_plan_key(&profile->plan, profile->key, err);
}

static dpe_status profile_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct profile *profile = state;
    status = dpe_job_close(&profile->job, status, err);
    for (int i = 0; i < MOST_TOGETHER; i++) {
        dpe_norms_destroy(&profile->norms[i]);
    }
    dpe_plan_free(&profile->plan);
    dpe_excerpts_free(&profile->excerpts);
    return status;
}

/* What decides a row. Samples and lengths may grow: an excerpt does not depend on how many there
 * are, only on the longest length, which all excerpts are cut to. */
static dpe_status start(void *state, struct dpe_error *err)
{
    struct profile *profile = state;
    const struct dpe_norms_arguments *args = profile->args;
    const char *const fields[][2] = {
        {"contribution", dpe_contribution_names[args->contribution]},
        {"special_in_text", args->special == DPE_SPECIAL_LITERAL ? "literal" : "error"},
    };
    const struct dpe_job_identity own = {.kind = "norms",
                                         .own = fields,
                                         .n_own = sizeof fields / sizeof fields[0],
                                         .length_name = "excerpt_length",
                                         .length = longest(profile)};
    struct dpe_job *job = &profile->job;
    const struct dpe_job_batch wanted = {.together = 1, .own = longest(profile)};
    DPE_TRY(dpe_job_fit_batch(job, &profile->plan, longest(profile), &wanted, err));
    job->group = job->batch = dpe_least(job->batch, MOST_TOGETHER);
    for (int64_t i = 0; i == 0 || i < job->batch; i++) {
        DPE_TRY(dpe_norms_create(dpe_model_config(profile->job.model), args->contribution,
                                 &profile->norms[i], err));
    }
    DPE_TRY(dpe_job_start(job, &own, &profile->plan, longest(profile), err));
    DPE_TRY(dpe_run_plan(job->run, profile->key, profile->plan.name, err));
    dpe_job_header(job);
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- results */

/* Name of the sample stream of a length. */
static void task_name(int64_t length, char name[32])
{
    snprintf(name, 32, "norms-%lld", (long long)length);
}

/* Score tables by (length, sample), borrowed from the run; NULL = missing. */
static const double **collect(const struct profile *profile)
{
    int64_t samples = profile->args->job.samples;
    const double **tables =
        dpe_alloc_zero((size_t)profile->n_lengths, (size_t)samples * sizeof *tables);
    for (int i = 0; i < profile->n_lengths && tables != NULL; i++) {
        char task[32];
        task_name(profile->lengths[i], task);
        for (int64_t s = 0; s < samples; s++) {
            const struct dpe_row *row = dpe_run_find(profile->job.run, task, profile->key, s);
            if (row != NULL && row->status == DPE_ROW_OK) {
                tables[i * samples + s] = row->buckets;
            }
        }
    }
    return tables;
}

static void result_free(struct dpe_norms_result *result)
{
    dpe_datasets_free(&dpe_norms_kind, result);
}

/* Results of the rows so far; free with result_free, also after a failure. */
static dpe_status summarize(const struct profile *profile, struct dpe_norms_result *result,
                            struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    int64_t pairs = config->head_dim / 2;
    int64_t samples = profile->args->job.samples;
    int64_t rows = config->n_layers * config->n_heads;
    size_t cells = (size_t)(profile->n_lengths * samples);
    size_t size = (size_t)(rows * pairs);
    DPE_OWNED const double **tables = collect(profile);
    *result = (struct dpe_norms_result){
        .n = {profile->n_lengths, samples, config->n_layers, config->n_heads, pairs, pairs}};
    DPE_TRY(DPE_MADE(tables, err, "out of memory for the profile's table"));
    DPE_TRY(dpe_datasets_make(&dpe_norms_kind, result, "length contribution mean sem top_k_index",
                              err));
    memcpy(result->length, profile->lengths, (size_t)profile->n_lengths * sizeof *result->length);
    dpe_norms_mean(tables, cells, (int64_t)size, result->mean, result->sem);
    dpe_norms_rank(result->mean, rows, pairs, result->ranking);
    for (size_t c = 0; c < cells; c++) {
        for (size_t i = 0; i < size; i++) {
            result->contribution[c * size + i] = tables[c] != NULL ? (float)tables[c][i] : NAN;
        }
    }
    return DPE_OK;
}

static void put_texts(const struct profile *profile, struct dpe_h5 *table)
{
    const struct {
        const char *object, *name, *value;
    } texts[] = {
        {"/", "title", "2-norm profile of queries and keys"},
        {"/norms", "contribution", dpe_contribution_names[profile->args->contribution]},
        {"/norms", "tie_rule", "lower pair first"},
        {"/tokenizer", "sha256", dpe_tokenizer_fingerprint(profile->job.tokenizer)},
        {"/corpus", "sha256", profile->job.corpus->fingerprint},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_h5_attr_text(table, texts[i].object, texts[i].name, texts[i].value);
    }
    dpe_model_put(table, dpe_model_config(profile->job.model), dpe_job_fingerprint(&profile->job));
}

/* The table of a run. */
static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct profile *profile = user;
    DPE_SCOPED(result_free) struct dpe_norms_result result = {0};
    DPE_TRY(summarize(profile, &result, err));
    dpe_datasets_put(&dpe_norms_kind, &result, "/norms", table);
    put_texts(profile, table);
    return dpe_h5_failed(table, err);
}

/* For scripts. */
static dpe_status print_result(const struct profile *profile, const struct dpe_norms_result *result,
                               struct dpe_error *err)
{
    int64_t pairs = result->n[DPE_NORMS_PAIR];
    static const char *const names[] = {"top_25", "top_50", "top_75"};
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    struct dpe_result *out = dpe_result_begin("dpe-norms");
    dpe_result_text(out, "model", profile->args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&profile->job));
    dpe_result_text(out, "table", profile->args->job.output);
    dpe_result_text(out, "contribution", dpe_contribution_names[profile->args->contribution]);
    dpe_result_whole(out, "samples", profile->args->job.samples);
    dpe_result_wholes(out, "lengths", profile->lengths, (size_t)profile->n_lengths);
    dpe_result_whole(out, "pairs", pairs);
    for (int64_t row = 0; row < config->n_layers * config->n_heads; row++) {
        int64_t at = row * pairs;
        if (!dpe_config_attends(config, row / config->n_heads)) {
            continue;
        }
        dpe_result_row(out, "heads");
        dpe_result_whole(out, "layer", row / config->n_heads);
        dpe_result_whole(out, "head", row % config->n_heads);
        dpe_result_number(out, "entropy_bits", dpe_norms_entropy(result->mean + at, pairs));
        for (int i = 0; i < 3; i++) {
            dpe_result_number(out, names[i],
                              dpe_norms_share(result->mean + at, result->ranking + at, pairs,
                                              pairs * (i + 1) / 4));
        }
    }
    return dpe_result_print(out, err);
}

/* ----------------------------------------------------------------------------------------- rows */

/* The scores of an excerpt. Values that are not finite are recorded in the row and do not end the
 * run. */
static dpe_status fill_row(const struct dpe_norms *norms, dpe_status status, struct dpe_row *row,
                           struct dpe_error *err)
{
    int64_t size = dpe_norms_size(norms);
    if (status == DPE_OK) {
        DPE_TRY(DPE_NEW(&row->buckets, (size_t)size, err, "out of memory for a row"));
        row->n_buckets = (int32_t)size;
        status = dpe_norms_finish(norms, row->buckets, err);
    }
    if (status == DPE_NONFINITE) {
        free(row->buckets);
        row->buckets = NULL;
        row->n_buckets = 0;
        row->status = DPE_ROW_NONFINITE;
        row->layer = err != NULL ? err->layer : -1;
        row->position = err != NULL ? err->position : -1;
        status = DPE_OK;
    }
    return status;
}

/* Excerpts at one length (the items' task); an engine runs them at once. */
static dpe_status make_rows(void *user, const struct dpe_job_rows *part, int64_t one,
                            struct dpe_error *err)
{
    struct profile *profile = user;
    int64_t length = profile->lengths[part->items->task];
    (void)one;
    struct dpe_norm_text texts[MOST_TOGETHER];
    double begin = dpe_clock();
    for (int64_t i = 0; i < part->n; i++) {
        dpe_norms_reset(&profile->norms[i]);
        texts[i] = (struct dpe_norm_text){profile->excerpts.ids +
                                              part->items[i].sample * profile->excerpts.length,
                                          length, profile->norms[i].sums};
    }
    dpe_status status = dpe_session_norms(part->session, texts, part->n, err);
    if (status == DPE_NONFINITE && part->n > 1) { /* which one is not */
        for (int64_t i = 0; i < part->n; i++) {
            const struct dpe_job_rows each = {part->session, part->key, part->items + i, 1,
                                              part->rows + i};
            DPE_TRY(make_rows(user, &each, 1, err));
        }
        return DPE_OK;
    }
    for (int64_t i = 0; i < part->n && (status == DPE_OK || status == DPE_NONFINITE); i++) {
        struct dpe_row *row = &part->rows[i];
        task_name(length, row->task);
        snprintf(row->plan, sizeof row->plan, "%s", part->key);
        row->sample = part->items[i].sample;
        row->prompt_tokens = length;
        row->seed = profile->args->job.seed;
        status = fill_row(&profile->norms[i], status, row, err);
        row->seconds = (dpe_clock() - begin) / (double)part->n;
    }
    return status;
}

static dpe_status measure_rows(void *state, struct dpe_error *err)
{
    struct profile *profile = state;
    char names[MAX_LENGTHS][32];
    struct dpe_wanted wanted = {0};
    const struct dpe_work how = {.name = "norms",
                                 .capacity = longest(profile),
                                 .user = profile,
                                 .rows = make_rows,
                                 .fill = fill,
                                 .nonfinite_limit = 0.05};
    dpe_wanted_plan(&wanted, &profile->plan, profile->key);
    for (int i = 0; i < profile->n_lengths; i++) {
        double products = 0.0;
        double attention = 0.0;
        task_name(profile->lengths[i], names[i]);
        dpe_config_flops(dpe_model_config(profile->job.model), 0, profile->lengths[i], 0, &products,
                         &attention);
        dpe_wanted_task(&wanted, names[i], profile->lengths[i], products + attention);
    }
    for (int64_t s = 0; s < profile->args->job.samples; s++) {
        for (int i = 0; i < profile->n_lengths; i++) {
            dpe_wanted_rows(&wanted, i, 0, s, 1);
        }
    }
    return dpe_wanted_run(&wanted, &profile->job, &how, err);
}

/* ------------------------------------------------------------------------------------- printing */

static dpe_status print_summary(void *state, struct dpe_error *err)
{
    const struct profile *profile = state;
    DPE_SCOPED(result_free) struct dpe_norms_result result = {0};
    DPE_TRY(summarize(profile, &result, err));
    if (profile->args->job.json) {
        return print_result(profile, &result, err);
    }
    const struct dpe_norms_words of = {.contribution =
                                           dpe_contribution_names[profile->args->contribution],
                                       .k = dpe_words_usual_k(result.n[DPE_NORMS_PAIR]),
                                       .k_source = "three quarters, as in the paper"};
    struct dpe_page page = {.printed = true};
    dpe_words_norms(&page, &result, &of);
    dpe_page_print(&page, false);
    return DPE_OK;
}

/* Every excerpt at every length. */
static void add_rows(const struct profile *profile, const struct dpe_job_speed *speed,
                     struct dpe_bill *bill)
{
    double samples = (double)profile->args->job.samples;
    for (int i = 0; i < profile->n_lengths; i++) {
        struct dpe_price price;
        dpe_price_text(dpe_model_config(profile->job.model), profile->lengths[i], 1.0, false,
                       &price);
        dpe_bill_add(bill, &price, samples, samples, NULL, speed);
    }
}

static dpe_status profile_cost(void *state, struct dpe_bill *sum, struct dpe_error *err)
{
    const struct profile *profile = state;
    const struct dpe_job *job = &profile->job;
    struct dpe_job_speed speed = {0};
    struct dpe_bill bill = {0};
    dpe_status status = DPE_OK;
    if (!job->options->silent) {
        struct dpe_bill untimed = {0};
        add_rows(profile, &speed, &untimed);
        dpe_print("norms            %lld excerpts of", (long long)job->options->samples);
        for (int i = 0; i < profile->n_lengths; i++) {
            dpe_print("%s %lld", i > 0 ? "," : "", (long long)profile->lengths[i]);
        }
        dpe_print(" tokens\n");
        dpe_bill_print(&untimed);
        status = dpe_price_print_memory(job, &profile->plan, longest(profile), "", err);
    }
    dpe_bill_measure(&bill, job, &profile->plan, longest(profile), &speed);
    add_rows(profile, &speed, &bill);
    if (!job->options->silent) {
        dpe_bill_print_time(&bill);
    }
    dpe_bill_sum(sum, &bill);
    return status;
}

static void suggest(const void *state)
{
    const struct profile *profile = state;
    char table[1024];
    dpe_tool_quote(profile->args->job.output, table, sizeof table);
    dpe_tool_next("dpe-export DETECT.h5 %s --top-k 0.75 -o table.h5", table);
    dpe_tool_next("dpe-report %s -o report.html", table);
}

const struct dpe_study dpe_norms_study = {
    .size = sizeof(struct profile),
    .job = offsetof(struct profile, job),
    .open = profile_open,
    .cost = profile_cost,
    .start = start,
    .rows = measure_rows,
    .fill = fill,
    .print = print_summary,
    .suggest = suggest,
    .close = profile_close,
};

/* ------------------------------------------------------------------------------------- the tool */

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to measure:", 1},
    {"contribution", 0, "NAME", 0,
     "product-of-means (default, the paper) or mean-of-products (its released code)", 1,
     DPE_CHOICE(struct dpe_norms_arguments, contribution, dpe_contribution_names)},
    {"dry-run", 0, NULL, DPE_BASIC,
     "Print the cost (tokens, operations, memory, time) and run nothing", 1,
     DPE_SWITCH(struct dpe_norms_arguments, job.dry_run)},
    {NULL, 0, NULL, 0, "Excerpts:", 2},
    {"lengths", 0, "A,B,...", DPE_BASIC,
     "Tokens of an excerpt (default auto: powers of two from min(2048, L0/4) to L0)", 2,
     DPE_TEXT(struct dpe_norms_arguments, lengths)},
    {"special-in-text", 0, "error|literal", 0,
     "Special tokens spelled out in the text (default: error)", 2,
     DPE_CHOICE(struct dpe_norms_arguments, special, NULL)},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_norms_arguments *args = state->input;
    (void)arg;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->job;
        state->child_inputs[1] = &args->job;
        state->child_inputs[2] = &args->job;
        return 0;
    case DPE_LINE_END:
        dpe_job_require(state, &args->job, false, "-o OUT.h5");
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

DPE_MAIN(dpe_norms)
{
    static const struct dpe_option_set *const children[] = {
        &dpe_job_option_set, &dpe_job_rows_option_set, &dpe_job_engine_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Measure which pairs of each head carry its logits (2-norms of queries and keys).\v"
               "The table holds every score by length and sample, so any top-k can be chosen "
               "later. If a run is stopped, run the same command to continue.\n\n"
               "Example:\n"
               "  dpe-norms -m data/reference --corpus data/sample -o norms.h5",
        .children = children,
    };
    dpe_tool_start(argv);
    struct dpe_norms_arguments args = {.job = {.samples = DPE_NORMS_SAMPLES,
                                               .seed = DPE_NORMS_SEED,
                                               .knobs = {.length = "--lengths"},
                                               .argc = argc,
                                               .argv = argv}};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    return dpe_study_main(&dpe_norms_study, &args, &args.job);
}

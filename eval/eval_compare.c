/* A comparison from its inputs to its last row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpe_table.h"
#include "eval_tool.h"

static const double snapshot_interval = 60.0; /* seconds */

/* The plan a DPE table describes. */
static dpe_status plan_of_table(const char *path, const struct dpe_plan_context *context,
                                struct dpe_plan *plan, struct dpe_error *err)
{
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE];
    int error = dpe_table_open(path, &table, why);
    if (error != DPE_TABLE_OK) {
        return dpe_fail(err, error == DPE_TABLE_NO_FILE ? DPE_NO_INPUT : DPE_BAD_DATA, "%s", why);
    }
    dpe_status status = dpe_plan_of_table(dpe_table_values(table), context, plan, err);
    dpe_table_close(table);
    return status == DPE_OK ? status : dpe_fail_prefix(err, "%s", path);
}

static dpe_status make_plans(struct comparison *comparison, struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    const struct dpe_config *config = dpe_model_config(comparison->model);
    const struct dpe_plan_context context = {
        .config = config,
        .trained_length = args->trained_length > 0 ? args->trained_length : config->max_position,
        .length = args->length,
        .official = args->official,
        .angle = DPE_ANGLE_F32,
    };
    dpe_status status = DPE_OK;
    for (int i = 0; i < args->n_methods && status == DPE_OK; i++) {
        struct dpe_plan *plan = &comparison->plans[i];
        status = args->is_table[i] ? plan_of_table(args->methods[i], &context, plan, err)
                                   : dpe_plan_make(args->methods[i], &context, plan, err);
        if (status == DPE_OK) {
            comparison->n_plans++;
            status = dpe_plan_key(plan, comparison->keys[i], err);
        }
    }
    return status;
}

static dpe_status open_niah(struct comparison *comparison, struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    struct dpe_niah *niah = NULL;
    dpe_niah_defaults(&comparison->niah);
    dpe_status status = DPE_OK;
    if (args->niah != NULL) {
        status = dpe_niah_parse(args->niah, &comparison->niah, err);
    }
    if (status == DPE_OK) {
        status = dpe_niah_open(&comparison->niah, args->length, comparison->corpus,
                               comparison->tokenizer, args->chat_template, args->seed, &niah, err);
    }
    if (status != DPE_OK) {
        return status;
    }
    dpe_niah_format(&comparison->niah, comparison->niah_spec, sizeof comparison->niah_spec);
    memcpy(comparison->niah_template, dpe_niah_template_hash(niah),
           sizeof comparison->niah_template);
    comparison->n_samples = args->samples;
    return dpe_task_niah("niah", niah, comparison->tokenizer, &comparison->task, err);
}

static dpe_status open_ppl(struct comparison *comparison, struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    int64_t skipped = 0;
    dpe_status status = dpe_task_ppl("ppl", comparison->corpus, comparison->tokenizer, args->length,
                                     comparison->niah.special, &comparison->task, &skipped, err);
    if (status == DPE_OK) {
        int64_t books = comparison->task.n_samples;
        comparison->n_samples = books < args->samples ? books : args->samples;
        if (skipped > 0) {
            dpe_log_info("%lld books have fewer than %lld tokens and are left out",
                         (long long)skipped, (long long)args->length);
        }
    }
    return status;
}

dpe_status comparison_open(struct comparison *comparison, const struct eval_arguments *args,
                           struct dpe_error *err)
{
    comparison->args = args;
    const struct dpe_corpus_options corpus_options = {.split = args->split};
    dpe_status status = dpe_model_open(args->model, NULL, &comparison->model, err);
    if (status == DPE_OK) {
        status = make_plans(comparison, err);
    }
    if (status == DPE_OK) {
        status = dpe_tokenizer_open(args->model, &comparison->tokenizer, err);
    }
    if (status == DPE_OK) {
        status = dpe_corpus_open(args->corpus, &corpus_options, &comparison->corpus, err);
    }
    if (status == DPE_OK) {
        status = strcmp(args->suite, "niah") == 0 ? open_niah(comparison, err)
                                                  : open_ppl(comparison, err);
    }
    return status;
}

void comparison_close(struct comparison *comparison)
{
    dpe_session_destroy(comparison->session);
    for (int i = 0; i < comparison->n_plans; i++) {
        dpe_plan_free(&comparison->plans[i]);
    }
    if (comparison->task.close != NULL) {
        dpe_task_close(&comparison->task);
    }
    dpe_corpus_close(comparison->corpus);
    dpe_tokenizer_close(comparison->tokenizer);
    dpe_model_close(comparison->model);
}

/* Methods and samples may grow; everything else decides a row. */
static dpe_status make_identity(const struct comparison *comparison, struct dpe_identity *identity,
                                struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    const struct {
        const char *name, *value;
    } texts[] = {
        {"kind", "eval"},
        {"suite", args->suite},
        {"model", dpe_model_fingerprint(comparison->model)},
        {"tokenizer", dpe_tokenizer_fingerprint(comparison->tokenizer)},
        {"corpus", dpe_corpus_fingerprint(comparison->corpus)},
        {"niah", comparison->niah_spec},
        {"niah_template", comparison->niah_template},
        {"device", args->tool.device != NULL ? args->tool.device : "cpu"},
        {"dtype", "f32"},
        {"angle", "f32"},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == DPE_OK; i++) {
        status = dpe_identity_add(identity, texts[i].name, texts[i].value, err);
    }
    if (status == DPE_OK) {
        status = dpe_identity_addf(identity, err, "length", "%lld", (long long)args->length);
    }
    return status == DPE_OK
               ? dpe_identity_addf(identity, err, "seed", "%llu", (unsigned long long)args->seed)
               : status;
}

static void notice(void *user, const char *text)
{
    (void)user;
    dpe_log_warning("%s", text);
}

static dpe_status open_run(struct comparison *comparison, struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    struct dpe_identity identity = {0};
    struct dpe_identity info = {0};
    dpe_status status = make_identity(comparison, &identity, err);
    if (status == DPE_OK) {
        status = dpe_run_info(&info, args->argc, args->argv, args->tool.threads, err);
    }
    const struct dpe_run_options options = {
        .force = args->tool.force,
        .salvage = args->tool.salvage,
        .keep_journal = args->tool.keep_journal,
        .force_unlock = args->tool.force_unlock,
        .info = &info,
        .notice = notice,
    };
    if (status == DPE_OK) {
        status = dpe_run_open(args->output, &identity, &options, &comparison->run, err);
    }
    dpe_identity_free(&identity);
    dpe_identity_free(&info);
    for (int i = 0; i < comparison->n_plans && status == DPE_OK; i++) {
        status = dpe_run_plan(comparison->run, comparison->keys[i], comparison->plans[i].name, err);
    }
    return status;
}

/* The session under plan `i`; changing the plan empties the cache. */
static dpe_status use_plan(struct comparison *comparison, int i, struct dpe_error *err)
{
    const struct dpe_session_options options = {
        .device = comparison->args->tool.device,
        .n_threads = comparison->args->tool.threads,
        .capacity = comparison->args->length,
        .max_memory = comparison->args->tool.max_memory,
    };
    if (comparison->session != NULL) {
        return dpe_session_set_plan(comparison->session, &comparison->plans[i], err);
    }
    dpe_status status = dpe_session_create(comparison->model, &comparison->plans[i], &options,
                                           &comparison->session, err);
    if (status == DPE_OK) {
        dpe_session_set_tap(comparison->session, dpe_signals_tap, NULL);
    }
    return status;
}

static dpe_status run_row(struct comparison *comparison, int plan, int64_t sample,
                          struct dpe_error *err)
{
    struct dpe_row row;
    dpe_row_init(&row);
    dpe_status status = use_plan(comparison, plan, err);
    if (status == DPE_OK) {
        status = dpe_task_row(&comparison->task, comparison->session, comparison->keys[plan],
                              sample, &row, err);
    }
    if (status == DPE_OK) {
        status = dpe_run_add(comparison->run, &row, err);
    }
    dpe_row_free(&row);
    return status;
}

/* Sample after sample under every method, so that a comparison that stops early is still one. */
static dpe_status run_rows(struct comparison *comparison, double begin, struct dpe_error *err)
{
    double budget = comparison->args->tool.time_budget;
    int64_t total = comparison->n_samples * comparison->n_plans;
    int64_t done = 0;
    double last_snapshot = dpe_clock();
    for (int64_t s = 0; s < comparison->n_samples; s++) {
        for (int p = 0; p < comparison->n_plans; p++, done++) {
            char line[64];
            snprintf(line, sizeof line, "%s: %lld of %lld rows", comparison->args->suite,
                     (long long)done, (long long)total);
            dpe_progress((double)done, (double)total, line);
            if (dpe_run_find(comparison->run, comparison->task.name, comparison->keys[p], s) !=
                NULL) {
                continue;
            }
            if (dpe_signals_asked() != DPE_STOP_NONE ||
                (budget > 0.0 && dpe_clock() - begin > budget)) {
                return dpe_fail(err, DPE_INCOMPLETE,
                                "stopped with %lld of %lld rows done; the same command continues",
                                (long long)done, (long long)total);
            }
            dpe_status status = run_row(comparison, p, s, err);
            if (status == DPE_OK && dpe_clock() - last_snapshot > snapshot_interval) {
                status = dpe_run_snapshot(comparison->run, false, comparison_fill, comparison, err);
                last_snapshot = dpe_clock();
            }
            if (status != DPE_OK) {
                return status;
            }
        }
    }
    return DPE_OK;
}

dpe_status comparison_run(struct comparison *comparison, struct dpe_error *err)
{
    double begin = dpe_clock();
    dpe_status status = open_run(comparison, err);
    if (status == DPE_OK) {
        status = run_rows(comparison, begin, err);
    }
    if (comparison->run != NULL && (status == DPE_OK || status == DPE_INCOMPLETE)) {
        dpe_status saved = dpe_run_snapshot(comparison->run, status == DPE_OK, comparison_fill,
                                            comparison, status == DPE_OK ? err : NULL);
        status = status == DPE_OK ? saved : status;
    }
    if (status == DPE_OK) {
        status = comparison_print(comparison, err);
    }
    dpe_status closed = dpe_run_close(comparison->run, status == DPE_OK ? err : NULL);
    comparison->run = NULL;
    return status == DPE_OK ? closed : status;
}

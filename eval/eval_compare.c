/* A comparison from its inputs to its last row. */
#include <stdlib.h>
#include <string.h>

#include "eval_tool.h"

static dpe_status make_plans(struct comparison *comparison, struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    struct dpe_plan_context context = dpe_job_context(&comparison->job, args->job.length);
    context.official = args->official;
    dpe_status status = DPE_OK;
    for (int i = 0; i < args->n_methods && status == DPE_OK; i++) {
        struct dpe_plan *plan = &comparison->plans[i];
        status = args->is_table[i] ? dpe_job_plan_of_table(args->methods[i], &context, plan, err)
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
        status = dpe_niah_open(&comparison->niah, args->job.length, comparison->job.corpus,
                               comparison->job.tokenizer, args->job.chat_template, args->job.seed,
                               &niah, err);
    }
    if (status != DPE_OK) {
        return status;
    }
    dpe_niah_format(&comparison->niah, comparison->niah_spec, sizeof comparison->niah_spec);
    memcpy(comparison->niah_template, dpe_niah_template_hash(niah),
           sizeof comparison->niah_template);
    comparison->n_samples = args->job.samples;
    return dpe_task_niah("niah", niah, comparison->job.tokenizer, &comparison->task, err);
}

static dpe_status open_ppl(struct comparison *comparison, struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    int64_t skipped = 0;
    dpe_status status =
        dpe_task_ppl("ppl", comparison->job.corpus, comparison->job.tokenizer, args->job.length,
                     comparison->niah.special, &comparison->task, &skipped, err);
    if (status == DPE_OK) {
        int64_t books = comparison->task.n_samples;
        comparison->n_samples = books < args->job.samples ? books : args->job.samples;
        if (skipped > 0) {
            dpe_log_info("%lld books have fewer than %lld tokens and are left out",
                         (long long)skipped, (long long)args->job.length);
        }
    }
    return status;
}

dpe_status comparison_open(struct comparison *comparison, const struct eval_arguments *args,
                           struct dpe_error *err)
{
    comparison->args = args;
    dpe_status status = dpe_job_open(&comparison->job, &args->job, false, err);
    if (status == DPE_OK) {
        status = make_plans(comparison, err);
    }
    if (status == DPE_OK) {
        status = strcmp(args->suite, "niah") == 0 ? open_niah(comparison, err)
                                                  : open_ppl(comparison, err);
    }
    return status;
}

dpe_status comparison_close(struct comparison *comparison, dpe_status status, struct dpe_error *err)
{
    for (int i = 0; i < comparison->n_plans; i++) {
        dpe_plan_free(&comparison->plans[i]);
    }
    if (comparison->task.close != NULL) {
        dpe_task_close(&comparison->task);
    }
    return dpe_job_close(&comparison->job, status, err);
}

/* Methods and samples may grow; everything else decides a row. */
static dpe_status start(struct comparison *comparison, struct dpe_error *err)
{
    const struct eval_arguments *args = comparison->args;
    const char *const fields[][2] = {
        {"niah", comparison->niah_spec},
        {"niah_template", comparison->niah_template},
    };
    const struct dpe_job_identity own = {.kind = "eval",
                                         .suite = args->suite,
                                         .own = fields,
                                         .n_own = sizeof fields / sizeof fields[0],
                                         .length_name = "length",
                                         .length = args->job.length};
    dpe_status status =
        dpe_job_start(&comparison->job, &own, &comparison->plans[0], args->job.length, err);
    for (int i = 0; i < comparison->n_plans && status == DPE_OK; i++) {
        status =
            dpe_run_plan(comparison->job.run, comparison->keys[i], comparison->plans[i].name, err);
    }
    return status;
}

static dpe_status make_row(void *user, const struct dpe_item *item, struct dpe_session *session,
                           struct dpe_row *row, struct dpe_error *err)
{
    const struct comparison *comparison = user;
    return dpe_task_row(&comparison->task, session, comparison->keys[item->plan], item->sample, row,
                        err);
}

/* Sample after sample under every method, so that a comparison that stops early is still one. */
static dpe_status run_rows(struct comparison *comparison, struct dpe_error *err)
{
    const char *names[1] = {comparison->task.name};
    const struct dpe_plan *plans[EVAL_MAX_METHODS];
    const char *keys[EVAL_MAX_METHODS];
    size_t n_items = 0;
    struct dpe_item *items =
        dpe_alloc((size_t)comparison->n_samples, (size_t)comparison->n_plans * sizeof *items);
    if (items == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %lld samples",
                        (long long)comparison->n_samples);
    }
    for (int p = 0; p < comparison->n_plans; p++) {
        plans[p] = &comparison->plans[p];
        keys[p] = comparison->keys[p];
    }
    for (int64_t s = 0; s < comparison->n_samples; s++) {
        for (int p = 0; p < comparison->n_plans; p++) {
            items[n_items++] = (struct dpe_item){.plan = p, .sample = s};
        }
    }
    const struct dpe_work work = {
        .name = comparison->args->suite,
        .n_tasks = 1,
        .tasks = names,
        .n_plans = comparison->n_plans,
        .plans = plans,
        .keys = keys,
        .items = items,
        .n_items = n_items,
        .capacity = comparison->args->job.length,
        .user = comparison,
        .row = make_row,
        .fill = comparison_fill,
    };
    dpe_status status = dpe_job_rows(&comparison->job, &work, err);
    free(items);
    return status;
}

dpe_status comparison_run(struct comparison *comparison, struct dpe_error *err)
{
    dpe_status status = start(comparison, err);
    if (status != DPE_OK) {
        return status;
    }
    status = run_rows(comparison, err);
    status = dpe_job_finish(&comparison->job, status, comparison_fill, comparison, err);
    return status == DPE_OK ? comparison_print(comparison, err) : status;
}

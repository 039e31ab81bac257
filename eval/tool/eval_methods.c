/* The methods of a comparison: what they are called, their plans, how many samples are made
 * together, and what their rows would cost and how long they would take here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "eval/tool/comparison.h"
#include "outputs/job/price.h"
#include "outputs/read/read.h"

/* How many characters of the tables' paths are a folder that all of them are in. */
static size_t common_folder(const struct dpe_eval_arguments *args, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < args->n_methods; i++) {
        size_t same = 0;
        while (args->is_table[i] && same < n && args->methods[i][same] == path[same]) {
            same++;
        }
        n = args->is_table[i] ? same : n;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    return n;
}

/* A table is called by its file's name; if another has the same, by its path below the folder that
 * all tables are in. */
static void name_table(struct dpe_comparison *comparison, struct dpe_eval_method *method)
{
    const struct dpe_eval_arguments *args = comparison->args;
    int same = 0;
    for (int i = 0; i < args->n_methods; i++) {
        same += args->is_table[i] &&
                strcmp(dpe_last_part(args->methods[i]), dpe_last_part(method->table)) == 0;
    }
    snprintf(method->label, sizeof method->label, "table:%s",
             same > 1 ? method->table + common_folder(args, method->table)
                      : dpe_last_part(method->table));
}

static dpe_status add(struct dpe_comparison *comparison, const struct dpe_eval_method *method,
                      struct dpe_error *err)
{
    if (comparison->n_methods == EVAL_MAX_METHODS) {
        return dpe_fail(err, DPE_USAGE, "more than %d methods", EVAL_MAX_METHODS);
    }
    for (int i = 0; i < comparison->n_methods; i++) {
        if (strcmp(comparison->methods[i].label, method->label) == 0) {
            return dpe_fail(err, DPE_USAGE, "method %s is given twice", method->label);
        }
    }
    struct dpe_eval_method *added = &comparison->methods[comparison->n_methods];
    *added = *method;
    comparison->labels[comparison->n_methods++] = added->label;
    return DPE_OK;
}

static dpe_status open_ablation(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_ablation *ablation = &comparison->ablation;
    DPE_TRY(dpe_ablation_read(args->methods[0], args->norms, &ablation->source, err));
    const char *fingerprint = dpe_job_fingerprint(&comparison->job);
    if (!args->other_model &&
        strcmp(ablation->source.values->model_fingerprint, fingerprint) != 0) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: measured on the model %.16s…, --model is %.16s…; give --other-model to "
            "apply it anyway",
            args->methods[0], ablation->source.values->model_fingerprint, fingerprint);
    }
    if (args->temperature != NULL &&
        dpe_temperature_parse(args->temperature, dpe_model_config(comparison->job.model)->head_dim,
                              &ablation->source.temperature, err) != DPE_OK) {
        return dpe_fail_prefix(err, "--temperature");
    }
    DPE_TRY(dpe_ablation_make(ablation, (enum dpe_ablation_what)dpe_ablation_find(args->what),
                              args->values, args->n_values, err));
    /* The first two are rope and base. */
    for (int i = args->alone ? 2 : 0; i < ablation->n_steps; i++) {
        struct dpe_eval_method method = {.step = &ablation->steps[i]};
        snprintf(method.label, sizeof method.label, "%s", method.step->label);
        DPE_TRY(add(comparison, &method, err));
    }
    return DPE_OK;
}

/* Differences are relative to a table of the user's, or else to the first method; an ablation's to
 * the unchanged model, its first step. */
static dpe_status choose_against(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const char *name = comparison->args->against;
    for (int m = 0; m < comparison->n_methods; m++) {
        const struct dpe_eval_method *method = &comparison->methods[m];
        bool named = name != NULL && (strcmp(method->label, name) == 0 ||
                                      (method->table != NULL && strcmp(method->table, name) == 0));
        if (named || (name == NULL && method->table != NULL)) {
            comparison->against = m;
        }
        if (named) {
            return DPE_OK;
        }
    }
    if (name == NULL) {
        return DPE_OK;
    }
    char names[512] = "";
    for (int m = 0; m < comparison->n_methods; m++) {
        dpe_append(names, sizeof names, "%s%s", m > 0 ? ", " : "", comparison->labels[m]);
    }
    return dpe_fail(err, DPE_USAGE, "--against %s: expected one of the methods, %s", name, names);
}

dpe_status dpe_eval_comparison_methods(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    const struct dpe_remote_engine *engine = comparison->job.remote;
    if (engine != NULL && !dpe_remote_about(engine)->plans &&
        (args->what != NULL || args->n_methods != 1 || args->is_table[0] ||
         strcmp(args->methods[0], "rope") != 0)) {
        return dpe_fail(err, DPE_USAGE,
                        "%s takes no plans (it is neither dpe-serve nor vLLM with DPE_ENGINE=1) "
                        "and has the one that it runs: "
                        "expected --method rope alone, "
                        "which stands for that",
                        args->job.engine);
    }
    if (args->what != NULL) {
        return open_ablation(comparison, err);
    }
    for (int i = 0; i < args->n_methods; i++) {
        struct dpe_eval_method method = {0};
        if (args->is_table[i]) {
            method.table = args->methods[i];
            name_table(comparison, &method);
        } else if (strlen(args->methods[i]) >= sizeof method.label) {
            return dpe_fail(err, DPE_USAGE, "--method %.40s…: longer than %zu characters",
                            args->methods[i], sizeof method.label - 1);
        } else {
            method.spec = args->methods[i];
            memcpy(method.label, method.spec, strlen(method.spec) + 1);
        }
        DPE_TRY(add(comparison, &method, err));
    }
    return choose_against(comparison, err);
}

static dpe_status make_plan(const struct dpe_comparison *comparison,
                            const struct dpe_eval_method *method, int64_t length,
                            struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_plan_context context = dpe_job_context(&comparison->job, length);
    context.official = args->official;
    if (method->step != NULL) {
        return dpe_ablation_plan(&comparison->ablation, method->step, &context, plan, err);
    }
    const char *fingerprint = args->other_model ? NULL : dpe_job_fingerprint(&comparison->job);
    return dpe_plan_asked(method->table, method->spec, &context, fingerprint, plan, NULL, err);
}

dpe_status dpe_eval_comparison_plans(struct dpe_comparison *comparison, struct dpe_error *err)
{
    size_t n = (size_t)comparison->n_methods * (size_t)comparison->n_lengths;
    DPE_TRY(DPE_NEW(&comparison->plans, n, err, "out of memory for %zu plans", n));
    DPE_TRY(DPE_NEW(&comparison->keys, n, err, "out of memory for %zu plans", n));
    const struct dpe_table_values *table = comparison->ablation.source.values; /* of an ablation */
    int64_t longest = comparison->lengths[comparison->n_lengths - 1];
    if (comparison->args->what != NULL && longest > table->length) {
        dpe_log_warning(
            "%s was made for %lld tokens, --length goes to %lld: larger distances were not "
            "measured",
            comparison->args->methods[0], (long long)table->length, (long long)longest);
    }
    for (int m = 0; m < comparison->n_methods; m++) {
        for (int l = 0; l < comparison->n_lengths; l++) {
            struct dpe_plan *plan = &comparison->plans[comparison->n_plans];
            DPE_TRY(
                make_plan(comparison, &comparison->methods[m], comparison->lengths[l], plan, err));
            DPE_TRY(dpe_plan_key(plan, comparison->keys[comparison->n_plans++], err));
            DPE_TRY(dpe_job_check_plan(&comparison->job, plan, comparison->lengths[l], err));
        }
    }
    return DPE_OK;
}

void dpe_eval_want_plans(const struct dpe_comparison *comparison, struct dpe_wanted *wanted)
{
    for (int p = 0; p < comparison->n_plans; p++) {
        dpe_wanted_plan(wanted, &comparison->plans[p], comparison->keys[p]);
    }
}

/* Books: every window is read whole, and its tokens go through the LM head. */
static double windows_of(const struct dpe_comparison *comparison, const struct dpe_suite_task *task)
{
    const struct dpe_eval_arguments *args = comparison->args;
    double n = (double)task->length;
    double stride = (double)args->general.stride;
    double most = args->general.max_tokens > 0 ? (double)args->general.max_tokens : 4.0 * n;
    return stride > 0.0 ? 1.0 + fmax(ceil((most - n) / stride), 0.0) : 1.0;
}

static dpe_status price_task(const struct dpe_comparison *comparison, const struct dpe_suite *suite,
                             const struct dpe_suite_task *task, struct dpe_price *price,
                             struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(comparison->job.model);
    if (suite->kind->perplexity) {
        dpe_price_text(config, task->length, windows_of(comparison, task), true, price);
        return DPE_OK;
    }
    int64_t together = dpe_least(task->task.together, task->n_samples);
    return dpe_task_price(&task->task, together, task->length, &comparison->job, price, NULL, err);
}

/* Add the rows of every task, or print them. rows: of each task of the first suite, the only one
 * then; NULL: every sample under `share` of all methods. */
static dpe_status each_task(const struct dpe_comparison *comparison, const double *rows,
                            double share, const struct dpe_selection *selection,
                            const struct dpe_job_speed *speed, struct dpe_bill *bill,
                            struct dpe_error *err)
{
    const char *planned = comparison->args->planned;
    for (int i = 0; i < (rows != NULL ? 1 : comparison->n_suites); i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        for (size_t t = 0; t < suite->n_tasks; t++) {
            const struct dpe_suite_task *task = &suite->tasks[t];
            struct dpe_price price = {0};
            double n = rows != NULL
                           ? rows[t]
                           : (double)task->n_samples * (double)comparison->n_methods * share;
            DPE_TRY(price_task(comparison, suite, task, &price, err));
            if (bill == NULL) {
                dpe_price_print(planned != NULL ? planned : task->task.name, n, planned != NULL,
                                &price);
            } else {
                dpe_bill_add(bill, &price, n, n, selection, speed);
            }
        }
    }
    return DPE_OK;
}

static bool more_work(const struct dpe_plan *plan, const struct dpe_plan *than, int64_t length)
{
    return dpe_selects(&plan->selection) ? dpe_selection_work(&plan->selection, length) >
                                               dpe_selection_work(&than->selection, length)
                                         : plan->n_bands > than->n_bands;
}

/* The plan whose attention does most, of those that select blocks or of the others: that which
 * meets and scores most, or that with most bands. NULL: none; *share: of all plans. */
static const struct dpe_plan *slowest_plan(const struct dpe_comparison *comparison, bool selects,
                                           double *share)
{
    const struct dpe_plan *slowest = NULL;
    int64_t length = comparison->lengths[comparison->n_lengths - 1];
    int n = 0;
    for (int p = 0; p < comparison->n_plans; p++) {
        const struct dpe_plan *plan = &comparison->plans[p];
        if (dpe_selects(&plan->selection) == selects) {
            slowest = slowest == NULL || more_work(plan, slowest, length) ? plan : slowest;
            n++;
        }
    }
    *share = (double)n / fmax((double)comparison->n_plans, 1.0);
    return slowest;
}

const struct dpe_plan *dpe_eval_larger_plan(const struct dpe_comparison *comparison,
                                            const struct dpe_plan *plan,
                                            const struct dpe_plan *other)
{
    int64_t longest = comparison->lengths[comparison->n_lengths - 1];
    return dpe_job_needs_more(&comparison->job, other, plan, longest) ? other : plan;
}

const struct dpe_plan *dpe_eval_largest_plan(const struct dpe_comparison *comparison)
{
    const struct dpe_plan *largest = &comparison->plans[0];
    for (int p = 1; p < comparison->n_plans; p++) {
        largest = dpe_eval_larger_plan(comparison, largest, &comparison->plans[p]);
    }
    return largest;
}

/* The rows under one plan, with the time that they take where that is wanted. */
static dpe_status add_rows(const struct dpe_comparison *comparison, const struct dpe_plan *plan,
                           const double *rows, double share, bool timed, struct dpe_bill *bill,
                           struct dpe_error *err)
{
    struct dpe_job_speed speed = {0};
    if (timed) {
        dpe_bill_measure(bill, &comparison->job, plan,
                         comparison->lengths[comparison->n_lengths - 1], &speed);
    }
    return each_task(comparison, rows, share, &plan->selection, &speed, bill, err);
}

/* Those of a part of dpe-calibrate whose inputs are not there yet stand below others. */
static dpe_status print_rows(const struct dpe_comparison *comparison, const struct dpe_plan *plan,
                             const double *rows, struct dpe_error *err)
{
    const bool planned = comparison->args->planned != NULL;
    dpe_print("%s", planned ? "\n" : "");
    DPE_TRY(each_task(comparison, rows, 1.0, NULL, NULL, NULL, err));
    return planned
               ? DPE_OK
               : dpe_price_print_memory(&comparison->job,
                                        plan != NULL ? plan : dpe_eval_largest_plan(comparison),
                                        comparison->lengths[comparison->n_lengths - 1], "", err);
}

dpe_status dpe_eval_add_cost(const struct dpe_comparison *comparison, const struct dpe_plan *plan,
                             const double *rows, struct dpe_bill *sum, struct dpe_error *err)
{
    struct dpe_bill bill = {0};
    const bool print = !comparison->args->job.silent;
    const bool timed = print || sum != NULL;
    double share = 1.0;
    DPE_TRY(print ? print_rows(comparison, plan, rows, err) : DPE_OK);
    if (plan != NULL) {
        DPE_TRY(add_rows(comparison, plan, rows, 1.0, timed, &bill, err));
    }
    for (int selects = 1; selects >= 0 && plan == NULL; selects--) {
        const struct dpe_plan *slowest = slowest_plan(comparison, selects != 0, &share);
        if (slowest != NULL) {
            DPE_TRY(add_rows(comparison, slowest, rows, share, timed, &bill, err));
        }
    }
    if (print) {
        dpe_bill_print(&bill);
        dpe_bill_print_time(&bill);
    }
    dpe_bill_sum(sum, &bill);
    return DPE_OK;
}

/* Samples that are made together: those that share a context, which is then read once. */
static struct dpe_job_batch together_at_once(const struct dpe_comparison *comparison)
{
    struct dpe_job_batch wanted = {.together = 1, .own = DPE_QUESTION_ROWS};
    for (int i = 0; i < comparison->n_suites; i++) {
        const struct dpe_suite_task *task = &comparison->suites[i].tasks[0];
        int64_t together = task->task.together;
        wanted.together = dpe_most(dpe_least(together, task->n_samples), wanted.together);
        wanted.answers = wanted.answers || !comparison->suites[i].kind->perplexity;
    }
    return wanted;
}

dpe_status dpe_eval_fit_batch(struct dpe_comparison *comparison, const struct dpe_plan *plan,
                              struct dpe_error *err)
{
    const struct dpe_job_batch wanted = together_at_once(comparison);
    return dpe_job_fit_batch(&comparison->job, plan, comparison->lengths[comparison->n_lengths - 1],
                             &wanted, err);
}

dpe_status dpe_eval_cost(void *state, struct dpe_bill *sum, struct dpe_error *err)
{
    struct dpe_comparison *comparison = state;
    const struct dpe_eval_arguments *args = comparison->args;
    const struct dpe_plan *largest = dpe_eval_largest_plan(comparison);
    DPE_TRY(dpe_eval_fit_batch(comparison, largest, err));
    if (args->planned != NULL) { /* so many rows of its only task, under a plan of its kind */
        const double rows =
            (double)(comparison->suites[0].tasks[0].n_samples * args->planned_methods);
        return dpe_eval_add_cost(comparison, largest, &rows, sum, err);
    }
    if (!args->job.silent) {
        dpe_print("model            %s\n", args->job.model);
        dpe_print("%-16s %d\n", args->what != NULL ? "steps" : "methods", comparison->n_methods);
    }
    return dpe_eval_add_cost(comparison, NULL, NULL, sum, err);
}

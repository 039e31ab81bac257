/* dpe-eval tune: a search among the settings of each method, on the same samples and with the same
 * number of rows; what it chose is compared on fresh samples. */
#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"
#include "eval/chat/chat.h"
#include "eval/tool/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2000, LEAST_ROUND = 4, USUAL_ROUNDS = 100 };
static const double level = 0.95;

/* -------------------------------------------------------------------------------------- opening */

const struct dpe_suite_task *dpe_tune_task(const struct dpe_tuning *tuning, int length)
{
    return &tuning->comparison.suites[0].tasks[length];
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Samples that a search reads as one context: several, where each has a context of its own. */
static int64_t per_round_of(const struct dpe_tuning *tuning)
{
    return round_up(LEAST_ROUND, dpe_tune_task(tuning, 0)->task.together);
}

int64_t dpe_tune_first_fresh(const struct dpe_tuning *tuning)
{
    return round_up(TUNE_FIRST_FRESH, dpe_tune_task(tuning, 0)->task.together);
}

/* Add the arm of a setting, unless its plan is there already. One of the default grid that the
 * method refuses at this length is left out; one that was asked for is an error. */
static dpe_status add_arm(const struct dpe_job *job, struct dpe_tune_group *group, int setting,
                          const struct dpe_plan_context *context, struct dpe_error *err)
{
    struct dpe_tune_arm *arm = &group->arms[group->n_arms];
    *arm = (struct dpe_tune_arm){
        .raced = {.spec = group->settings.specs[setting], .plan = arm->key, .dropped = -1}};
    dpe_status status = dpe_plan_make(arm->raced.spec, context, &arm->plan, err);
    if (status == DPE_USAGE && setting > 0 && strchr(group->result->method, ':') == NULL) {
        dpe_log_info("%s at %lld tokens is left out: %s", arm->raced.spec,
                     (long long)context->length, err->text);
        *err = (struct dpe_error){0};
        return DPE_OK;
    }
    DPE_TRY(status);
    group->n_arms++; /* its plan is freed with the group */
    DPE_TRY(dpe_job_check_plan(job, &arm->plan, context->length, err));
    DPE_TRY(dpe_plan_key(&arm->plan, arm->key, err));
    for (int i = 0; i < group->n_arms - 1; i++) {
        if (strcmp(group->arms[i].key, arm->key) == 0) {
            dpe_plan_free(&arm->plan);
            group->n_arms--;
            return DPE_OK;
        }
    }
    return DPE_OK;
}

static dpe_status open_group(struct dpe_tuning *tuning, struct dpe_tune_group *group,
                             struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = tuning->comparison.args;
    struct dpe_plan_context context =
        dpe_job_context(&tuning->comparison.job, tuning->comparison.lengths[group->length]);
    context.official = args->official;
    DPE_TRY(dpe_tune_expand(group->result->method, &context, args->tune_temperature,
                            &group->settings, err));
    DPE_TRY(DPE_NEW(&group->arms, (size_t)group->settings.n, err, "out of memory for %d settings",
                    group->settings.n));
    for (int i = 0; i < group->settings.n; i++) {
        DPE_TRY(add_arm(&tuning->comparison.job, group, i, &context, err));
    }
    return DPE_OK;
}

/* Each setting reads the first samples. The method that needs most is named. */
static dpe_status check_budget(const struct dpe_tuning *tuning, struct dpe_error *err)
{
    const struct dpe_tune_group *most = NULL;
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct dpe_tune_group *group = &tuning->groups[g];
        if (group->n_arms > 1 && (most == NULL || group->n_arms > most->n_arms)) {
            most = group;
        }
    }
    int64_t round = per_round_of(tuning);
    if (most == NULL || tuning->budget >= most->n_arms * round) {
        return DPE_OK;
    }
    return dpe_fail(err, DPE_USAGE,
                    "--budget: %s has %d settings, of which each needs %lld samples: expected "
                    "at least %lld rows, found %lld",
                    most->result->method, most->n_arms, (long long)round,
                    (long long)(most->n_arms * round), (long long)tuning->budget);
}

static dpe_status open_groups(struct dpe_tuning *tuning, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = tuning->comparison.args;
    int n = args->n_methods * args->n_lengths;
    DPE_TRY(DPE_NEW(&tuning->groups, (size_t)n, err, "out of memory for %d methods", n));
    DPE_TRY(DPE_NEW(&tuning->result.tuned, (size_t)n, err, "out of memory for %d methods", n));
    tuning->result.n[0] = n;
    for (int i = 0; i < args->n_methods; i++) {
        for (int k = 0; k < i; k++) {
            if (strcmp(args->methods[i], args->methods[k]) == 0) {
                return dpe_fail(err, DPE_USAGE, "method %s is given twice", args->methods[i]);
            }
        }
    }
    while (tuning->n_groups < n) {
        struct dpe_tune_group *group = &tuning->groups[tuning->n_groups];
        group->result = &tuning->result.tuned[tuning->n_groups];
        group->result->method = args->methods[tuning->n_groups % args->n_methods];
        group->length = tuning->n_groups / args->n_methods;
        group->result->length = tuning->comparison.lengths[group->length];
        tuning->n_groups++;
        DPE_TRY(open_group(tuning, group, err));
    }
    return check_budget(tuning, err);
}

static dpe_status tuning_open(void *state, const void *asked, struct dpe_error *err)
{
    struct dpe_tuning *tuning = state;
    const struct dpe_eval_arguments *args = asked;
    struct dpe_comparison *comparison = &tuning->comparison;
    comparison->args = args;
    tuning->fresh = args->job.samples;
    DPE_TRY(dpe_chat_set_variables(args->job.template_vars, err));
    DPE_TRY(dpe_job_open(&comparison->job, &args->job, args->job.dry_run, err));
    comparison->n_lengths = args->n_lengths;
    comparison->n_methods = args->n_methods;
    memcpy(comparison->lengths, args->lengths, sizeof comparison->lengths);
    DPE_TRY(dpe_eval_open_suites(comparison, err));
    tuning->budget = args->budget > 0 ? args->budget : USUAL_ROUNDS * per_round_of(tuning);
    return open_groups(tuning, err);
}

static void free_groups(struct dpe_tuning *tuning)
{
    for (int g = 0; g < tuning->n_groups; g++) {
        for (int i = 0; i < tuning->groups[g].n_arms; i++) {
            dpe_plan_free(&tuning->groups[g].arms[i].plan);
        }
        free(tuning->groups[g].arms);
        dpe_detect_search_free(&tuning->groups[g].search);
        dpe_tune_settings_free(&tuning->groups[g].settings);
    }
    free(tuning->groups);
    free(tuning->result.tuned);
}

/* --------------------------------------------------------------------------------------- search */

/* Where a search gets its rows. */
struct source {
    const struct dpe_tuning *tuning;
    const struct dpe_tune_group *group;
};

/* Arms are plans of the model already, and no two the same. */
static dpe_status admit(void *user, struct dpe_detect_tried *tried, bool *fits,
                        struct dpe_error *err)
{
    const struct dpe_tune_group *group = ((const struct source *)user)->group;
    (void)err;
    for (int i = 0; i < group->n_arms && !*fits; i++) {
        *fits = strcmp(group->arms[i].raced.spec, tried->spec) == 0;
        memcpy(tried->key, group->arms[i].key, sizeof tried->key);
    }
    tried->table = true;
    return DPE_OK;
}

static dpe_status scores_of(void *user, enum dpe_detect_stream stream, const char *const *keys,
                            int n, int64_t contexts, struct dpe_detect_scores *scores,
                            struct dpe_error *err)
{
    const struct source *source = user;
    const struct dpe_task *task = &dpe_tune_task(source->tuning, source->group->length)->task;
    (void)stream;
    return dpe_detect_collect(source->tuning->comparison.job.run, task->name, keys, n, 0,
                              contexts * per_round_of(source->tuning), task->together, scores, err);
}

/* Replay the search on the rows that are there. */
static dpe_status replay(const struct dpe_tuning *tuning, struct dpe_tune_group *group,
                         struct dpe_error *err)
{
    const int64_t per_round = per_round_of(tuning);
    const int64_t budget = group->n_arms > 1 ? tuning->budget / per_round : 0;
    struct source of = {tuning, group};
    const struct dpe_detect_source source = {&of, admit, scores_of};
    const struct dpe_detect_search_options options = {.settings = group->settings.specs,
                                                      .n_settings = group->settings.n,
                                                      .criterion = DPE_DETECT_RECALL,
                                                      .most = {budget},
                                                      .budget = budget};
    struct dpe_detect_search *search = &group->search;
    dpe_detect_search_free(search);
    DPE_TRY(dpe_detect_search_replay(&options, &source, search, err));
    group->chosen = search->best;
    group->result->chosen = group->arms[group->chosen].raced.spec;
    group->result->rows = 0;
    group->result->samples = search->tried[search->best].contexts[DPE_DETECT_NEEDLES] * per_round;
    for (int i = 0; i < search->n; i++) {
        struct dpe_raced *raced = &group->arms[i].raced;
        raced->samples = search->tried[i].contexts[DPE_DETECT_NEEDLES] * per_round;
        raced->dropped = raced->samples < group->result->samples ? raced->samples : -1;
        raced->mean = search->tried[i].found.n > 0 ? search->tried[i].found.mean : (double)NAN;
        group->result->rows += raced->samples;
    }
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------------- rows */

/* A list of rows: some arms of all groups on some samples. */
struct tune_rows {
    struct dpe_tuning *tuning;
    struct dpe_wanted wanted;
};

static dpe_status make_rows(void *user, const struct dpe_job_rows *parts, int64_t n,
                            struct dpe_error *err)
{
    const struct tune_rows *batch = user;
    return dpe_task_rows(&dpe_tune_task(batch->tuning, parts->items->task)->task, parts, n, err);
}

/* Rows of an arm, unless the list has them: methods may have a plan in common. */
static void add_rows(struct tune_rows *batch, const struct dpe_tune_group *group,
                     const struct dpe_tune_arm *arm, int64_t first, int64_t n)
{
    struct dpe_wanted *wanted = &batch->wanted;
    size_t plan = 0;
    while (plan < wanted->n_plans && strcmp(wanted->plans[plan].key, arm->key) != 0) {
        plan++;
    }
    for (size_t i = 0; i < wanted->n_items; i++) {
        const struct dpe_item *item = &wanted->items[i];
        if (item->plan == (int)plan && item->task == group->length && item->sample == first) {
            return;
        }
    }
    if (plan == wanted->n_plans) {
        dpe_wanted_plan(wanted, &arm->plan, arm->key);
    }
    dpe_wanted_rows(wanted, group->length, (int)plan, first, n);
}

static dpe_status run_batch(struct tune_rows *batch, const char *name, struct dpe_error *err)
{
    struct dpe_comparison *comparison = &batch->tuning->comparison;
    for (int l = 0; l < comparison->n_lengths; l++) {
        const struct dpe_suite_task *task = dpe_tune_task(batch->tuning, l);
        dpe_wanted_task(&batch->wanted, task->task.name, task->length / task->task.together,
                        (double)task->length);
    }
    const struct dpe_work how = {.name = name,
                                 .capacity = comparison->lengths[comparison->n_lengths - 1],
                                 .user = batch,
                                 .rows = make_rows};
    return dpe_wanted_run(&batch->wanted, &comparison->job, &how, err);
}

/* What the search of every group lacks; *more: whether there is something. */
static dpe_status run_round(struct dpe_tuning *tuning, bool *more, struct dpe_error *err)
{
    struct tune_rows batch = {.tuning = tuning};
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct dpe_tune_group *group = &tuning->groups[g];
        for (int i = 0; i < group->search.n && !group->search.complete; i++) {
            if (group->search.wanted[i] != 0) {
                add_rows(&batch, group, &group->arms[i], 0,
                         group->search.contexts * per_round_of(tuning));
            }
        }
    }
    *more = batch.wanted.n_items > 0 || batch.wanted.failed;
    DPE_TRY(*more ? run_batch(&batch, "tune", err) : DPE_OK);
    for (int g = 0; g < tuning->n_groups; g++) {
        DPE_TRY(tuning->groups[g].search.complete ? DPE_OK
                                                  : replay(tuning, &tuning->groups[g], err));
    }
    return DPE_OK;
}

static dpe_status run_fresh(struct dpe_tuning *tuning, struct dpe_error *err)
{
    struct tune_rows batch = {.tuning = tuning};
    int64_t first = dpe_tune_first_fresh(tuning);
    /* Context after context under every plan, so that one that stops early is still a comparison.
     */
    int64_t together = dpe_tune_task(tuning, 0)->task.together;
    for (int64_t s = 0; s < tuning->fresh; s += together) {
        int64_t n = dpe_least(together, tuning->fresh - s);
        for (int g = 0; g < tuning->n_groups; g++) {
            const struct dpe_tune_group *group = &tuning->groups[g];
            add_rows(&batch, group, &group->arms[0], first + s, n);
            add_rows(&batch, group, &group->arms[group->chosen], first + s, n);
        }
    }
    return run_batch(&batch, "fresh", err);
}

/* -------------------------------------------------------------------------------------- results */

/* The score of a row, NaN when it is not there or not valid. */
static double score_of(const struct dpe_tuning *tuning, const struct dpe_tune_group *group,
                       const struct dpe_tune_arm *arm, int64_t sample)
{
    const char *task = dpe_tune_task(tuning, group->length)->task.name;
    const struct dpe_row *row = dpe_run_find(tuning->comparison.job.run, task, arm->key, sample);
    return row != NULL && row->status == DPE_ROW_OK ? row->score : (double)NAN;
}

static dpe_status summarize(struct dpe_tuning *tuning, struct dpe_error *err)
{
    size_t n = (size_t)tuning->fresh;
    int n_methods = tuning->comparison.args->n_methods;
    DPE_OWNED double *scores = NULL;
    DPE_TRY(DPE_NEW(&scores, 3 * n, err, "out of memory for %zu scores", n));
    const struct dpe_resampling how = {dpe_tune_task(tuning, 0)->task.together, level, ROUNDS,
                                       tuning->comparison.args->job.seed};
    for (int g = 0; g < tuning->n_groups; g++) {
        struct dpe_tune_group *group = &tuning->groups[g];
        const struct dpe_tune_group *against = &tuning->groups[g / n_methods * n_methods];
        const struct dpe_tune_arm *arms[3] = {&group->arms[0], &group->arms[group->chosen],
                                              &against->arms[against->chosen]};
        for (size_t i = 0; i < 3 * n; i++) {
            scores[i] = score_of(tuning, i < 2 * n ? group : against, arms[i / n],
                                 dpe_tune_first_fresh(tuning) + (int64_t)(i % n));
        }
        group->result->plain = dpe_bootstrap_share(scores, n, &how);
        group->result->tuned = dpe_bootstrap_share(scores + n, n, &how);
        /* What a setting is compared with may be itself. */
        const double *plain = arms[0] == arms[1] ? scores + n : scores;
        const double *first = arms[2] == arms[1] ? scores + n : scores + 2 * n;
        group->result->gain = dpe_compare(scores + n, plain, n, true, &how);
        group->result->ahead = dpe_compare(scores + n, first, n, true, &how);
    }
    return DPE_OK;
}

/* dpe_run_fill; `user` is a struct dpe_tuning. */
static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    struct dpe_tuning *tuning = user;
    DPE_TRY(summarize(tuning, err));
    return dpe_tune_put(tuning, table, err);
}

/* The plan whose session needs most memory. */
static const struct dpe_plan *largest_plan(const struct dpe_tuning *tuning)
{
    const struct dpe_plan *largest = &tuning->groups[0].arms[0].plan;
    for (int g = 0; g < tuning->n_groups; g++) {
        for (int i = 0; i < tuning->groups[g].n_arms; i++) {
            largest =
                dpe_eval_larger_plan(&tuning->comparison, largest, &tuning->groups[g].arms[i].plan);
        }
    }
    return largest;
}

static dpe_status tuning_start(void *state, struct dpe_error *err)
{
    struct dpe_tuning *tuning = state;
    return dpe_eval_start(&tuning->comparison, "tune", largest_plan(tuning), err);
}

static dpe_status tuning_rows(void *state, struct dpe_error *err)
{
    struct dpe_tuning *tuning = state;
    for (int g = 0; g < tuning->n_groups; g++) {
        DPE_TRY(replay(tuning, &tuning->groups[g], err));
    }
    for (bool more = true; more;) {
        DPE_TRY(run_round(tuning, &more, err));
    }
    return run_fresh(tuning, err);
}

static dpe_status tuning_cost(void *state, struct dpe_bill *bill, struct dpe_error *err)
{
    struct dpe_tuning *tuning = state;
    DPE_TRY(dpe_eval_fit_batch(&tuning->comparison, largest_plan(tuning), err));
    return dpe_tune_cost(tuning, bill, err);
}

static dpe_status tuning_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct dpe_tuning *tuning = state;
    status = dpe_eval_comparison_close(&tuning->comparison, status, err);
    free_groups(tuning);
    return status;
}

const struct dpe_study dpe_eval_tune_study = {
    .size = sizeof(struct dpe_tuning),
    .job = offsetof(struct dpe_tuning, comparison.job),
    .open = tuning_open,
    .cost = tuning_cost,
    .start = tuning_start,
    .rows = tuning_rows,
    .fill = fill,
    .print = dpe_tune_print,
    .close = tuning_close,
};

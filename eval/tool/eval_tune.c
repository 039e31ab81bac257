/* dpe-eval tune: a search among the settings of each method, on the same samples and with the same
 * number of rows; what it chose is compared on fresh samples. */
#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"
#include "eval/chat/chat.h"
#include "eval/tool/comparison.h"
#include "eval/tool/tune.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/words/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_FRESH = 1 << 20 /* no search comes that far */ };
enum { ROUNDS = 2000, LEAST_ROUND = 4, USUAL_ROUNDS = 100 };
static const double level = 0.95;

/* A setting of a method at one length. */
struct tune_arm {
    struct dpe_raced raced; /* as it is written; its spec is borrowed from settings, its plan is
                                 `key`, its mean NaN where no row of the search is valid */
    struct dpe_plan plan;
    char key[33];
};

/* A method at one length. */
struct tune_group {
    int length; /* index */
    struct dpe_tune_settings settings;
    struct tune_arm *arms; /* [n_arms], distinct plans; the first is the default */
    int n_arms, chosen;
    struct dpe_detect_search search; /* its candidates are the arms, in their order */
    struct dpe_tuned *result;        /* in those of the tuning */
};

struct tuning {
    struct dpe_comparison comparison; /* job, suite, lengths */
    struct tune_group *groups;        /* [n_groups]: by length, then as given */
    int n_groups;
    struct dpe_tune_result result; /* of each group; intervals and differences are of fresh
                                        samples, once those ran */
    int64_t budget;                /* rows of a method at a length */
    int64_t fresh;                 /* samples */
};

/* -------------------------------------------------------------------------------------- opening */

/* The task at a length. */
static const struct dpe_suite_task *task_at(const struct tuning *tuning, int length)
{
    return &tuning->comparison.suites[0].tasks[length];
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Samples that a search reads as one context: several, where each has a context of its own. */
static int64_t per_round_of(const struct tuning *tuning)
{
    return round_up(LEAST_ROUND, task_at(tuning, 0)->task.together);
}

/* Fresh samples begin at this index of the stream. */
static int64_t first_fresh(const struct tuning *tuning)
{
    return round_up(FIRST_FRESH, task_at(tuning, 0)->task.together);
}

/* Add the arm of a setting, unless its plan is there already. One of the default grid that the
 * method refuses at this length is left out; one that was asked for is an error. */
static dpe_status add_arm(const struct dpe_job *job, struct tune_group *group, int setting,
                          const struct dpe_plan_context *context, struct dpe_error *err)
{
    struct tune_arm *arm = &group->arms[group->n_arms];
    *arm = (struct tune_arm){
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

static dpe_status open_group(struct tuning *tuning, struct tune_group *group, struct dpe_error *err)
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
static dpe_status check_budget(const struct tuning *tuning, struct dpe_error *err)
{
    const struct tune_group *most = NULL;
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
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

static dpe_status open_groups(struct tuning *tuning, struct dpe_error *err)
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
        struct tune_group *group = &tuning->groups[tuning->n_groups];
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
    struct tuning *tuning = state;
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

static void free_groups(struct tuning *tuning)
{
    for (int g = 0; g < tuning->n_groups; g++) {
        for (int i = 0; i < tuning->groups[g].n_arms; i++) {
            dpe_plan_free(&tuning->groups[g].arms[i].plan);
        }
        free(tuning->groups[g].arms);
        dpe_detect_search_free(&tuning->groups[g].search);
        free(tuning->groups[g].settings.specs);
    }
    free(tuning->groups);
    free(tuning->result.tuned);
}

/* --------------------------------------------------------------------------------------- search */

/* Where a search gets its rows. */
struct source {
    const struct tuning *tuning;
    const struct tune_group *group;
};

/* Arms are plans of the model already, and no two the same. */
static dpe_status admit(void *user, struct dpe_detect_tried *tried, bool *fits,
                        struct dpe_error *err)
{
    const struct tune_group *group = ((const struct source *)user)->group;
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
    const struct dpe_task *task = &task_at(source->tuning, source->group->length)->task;
    (void)stream;
    return dpe_detect_collect(source->tuning->comparison.job.run, task->name, keys, n, 0,
                              contexts * per_round_of(source->tuning), task->together, scores, err);
}

/* Replay the search on the rows that are there. */
static dpe_status replay(const struct tuning *tuning, struct tune_group *group,
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

static dpe_status make_rows(void *user, const struct dpe_job_rows *parts, int64_t n,
                            struct dpe_error *err)
{
    return dpe_task_rows(&task_at(user, parts->items->task)->task, parts, n, err);
}

/* Rows of an arm, unless the list has them: methods may have a plan in common. */
static void add_rows(struct dpe_wanted *wanted, const struct tune_group *group,
                     const struct tune_arm *arm, int64_t first, int64_t n)
{
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

static dpe_status run_batch(struct tuning *tuning, struct dpe_wanted *wanted, const char *name,
                            struct dpe_error *err)
{
    struct dpe_comparison *comparison = &tuning->comparison;
    for (int l = 0; l < comparison->n_lengths; l++) {
        const struct dpe_suite_task *task = task_at(tuning, l);
        dpe_wanted_task(wanted, task->task.name, task->length / task->task.together,
                        (double)task->length);
    }
    const struct dpe_work how = {.name = name,
                                 .capacity = comparison->lengths[comparison->n_lengths - 1],
                                 .user = tuning,
                                 .rows = make_rows};
    return dpe_wanted_run(wanted, &comparison->job, &how, err);
}

/* What the search of every group lacks; *more: whether there is something. */
static dpe_status run_round(struct tuning *tuning, bool *more, struct dpe_error *err)
{
    struct dpe_wanted wanted = {0};
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        for (int i = 0; i < group->search.n && !group->search.complete; i++) {
            if (group->search.wanted[i] != 0) {
                add_rows(&wanted, group, &group->arms[i], 0,
                         group->search.contexts * per_round_of(tuning));
            }
        }
    }
    *more = wanted.n_items > 0 || wanted.failed;
    DPE_TRY(*more ? run_batch(tuning, &wanted, "tune", err) : DPE_OK);
    for (int g = 0; g < tuning->n_groups; g++) {
        DPE_TRY(tuning->groups[g].search.complete ? DPE_OK
                                                  : replay(tuning, &tuning->groups[g], err));
    }
    return DPE_OK;
}

static dpe_status run_fresh(struct tuning *tuning, struct dpe_error *err)
{
    struct dpe_wanted wanted = {0};
    int64_t first = first_fresh(tuning);
    /* Context after context under every plan, so that one that stops early is still a comparison.
     */
    int64_t together = task_at(tuning, 0)->task.together;
    for (int64_t s = 0; s < tuning->fresh; s += together) {
        int64_t n = dpe_least(together, tuning->fresh - s);
        for (int g = 0; g < tuning->n_groups; g++) {
            const struct tune_group *group = &tuning->groups[g];
            add_rows(&wanted, group, &group->arms[0], first + s, n);
            add_rows(&wanted, group, &group->arms[group->chosen], first + s, n);
        }
    }
    return run_batch(tuning, &wanted, "fresh", err);
}

/* -------------------------------------------------------------------------------------- results */

/* The score of a row, NaN when it is not there or not valid. */
static double score_of(const struct tuning *tuning, const struct tune_group *group,
                       const struct tune_arm *arm, int64_t sample)
{
    const char *task = task_at(tuning, group->length)->task.name;
    const struct dpe_row *row = dpe_run_find(tuning->comparison.job.run, task, arm->key, sample);
    return row != NULL && row->status == DPE_ROW_OK ? row->score : (double)NAN;
}

static dpe_status summarize(struct tuning *tuning, struct dpe_error *err)
{
    size_t n = (size_t)tuning->fresh;
    int n_methods = tuning->comparison.args->n_methods;
    DPE_OWNED double *scores = NULL;
    DPE_TRY(DPE_NEW(&scores, 3 * n, err, "out of memory for %zu scores", n));
    const struct dpe_resampling how = {task_at(tuning, 0)->task.together, level, ROUNDS,
                                       tuning->comparison.args->job.seed};
    for (int g = 0; g < tuning->n_groups; g++) {
        struct tune_group *group = &tuning->groups[g];
        const struct tune_group *against = &tuning->groups[g / n_methods * n_methods];
        const struct tune_arm *arms[3] = {&group->arms[0], &group->arms[group->chosen],
                                          &against->arms[against->chosen]};
        for (size_t i = 0; i < 3 * n; i++) {
            scores[i] = score_of(tuning, i < 2 * n ? group : against, arms[i / n],
                                 first_fresh(tuning) + (int64_t)(i % n));
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

static dpe_status put_arms(const struct tuning *tuning, struct dpe_h5 *table, struct dpe_error *err)
{
    struct dpe_race_result result = {0};
    for (int g = 0; g < tuning->n_groups; g++) {
        result.n[0] += tuning->groups[g].n_arms;
    }
    DPE_TRY(DPE_NEW(&result.raced, (size_t)result.n[0], err, "out of memory for results"));
    struct dpe_raced *at = result.raced;
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        for (int a = 0; a < group->n_arms; a++) {
            *at = group->arms[a].raced;
            at++->of = g;
        }
    }
    dpe_datasets_put(&dpe_race_kind, &result, "/tune/setting", table);
    free(result.raced);
    return DPE_OK;
}

static dpe_status put_result(const struct tuning *tuning, struct dpe_h5 *table,
                             struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = tuning->comparison.args;
    dpe_datasets_put(&dpe_tune_kind, &tuning->result, "/tune", table);
    DPE_TRY(put_arms(tuning, table, err));
    dpe_h5_attr_i64(table, "/tune", "seed", (int64_t)args->job.seed);
    dpe_h5_attr_i64(table, "/tune", "trained_length", tuning->comparison.job.trained_length);
    dpe_h5_attr_i64(table, "/tune", "official", args->official);
    dpe_h5_attr_i64(table, "/tune", "budget", tuning->budget);
    dpe_h5_attr_i64(table, "/tune", "fresh_samples", tuning->fresh);
    dpe_h5_attr_i64(table, "/tune", "first_fresh_sample", first_fresh(tuning));
    dpe_h5_attr_i64(table, "/tune", "samples_together", task_at(tuning, 0)->task.together);
    dpe_h5_attr_text(table, "/", "title",
                     "Settings of position methods, found with as many rows for each");
    return dpe_h5_failed(table, err);
}

static struct dpe_result *begin_document(const struct tuning *tuning)
{
    const struct dpe_eval_arguments *args = tuning->comparison.args;
    struct dpe_result *out = dpe_result_begin("dpe-eval");
    dpe_result_text(out, "model", args->job.model);
    dpe_result_text(out, "table", args->job.output);
    dpe_result_whole(out, "trained_length", tuning->comparison.job.trained_length);
    dpe_result_whole(out, "seed", (int64_t)args->job.seed);
    dpe_result_whole(out, "budget", tuning->budget);
    return out;
}

/* The same for scripts: a row for each length and method. */
static dpe_status print_document(const struct tuning *tuning, struct dpe_error *err)
{
    struct dpe_result *out = begin_document(tuning);
    for (int g = 0; g < tuning->n_groups; g++) {
        dpe_result_row(out, "results");
        dpe_result_whole(out, "settings", tuning->groups[g].n_arms);
        dpe_datasets_fields(&dpe_tune_kind, &tuning->result, "method", g, out);
    }
    return dpe_result_print(out, err);
}

static dpe_status print(void *state, struct dpe_error *err)
{
    const struct tuning *tuning = state;
    if (tuning->comparison.args->job.json) {
        return print_document(tuning, err);
    }
    struct dpe_page page = {.printed = true};
    dpe_words_tune(&page, &tuning->result, tuning->fresh);
    dpe_page_print(&page, false);
    return DPE_OK;
}

/* dpe_run_fill; `user` is a struct tuning. */
static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    struct tuning *tuning = user;
    DPE_TRY(summarize(tuning, err));
    return put_result(tuning, table, err);
}

/* The plan whose session needs most memory. */
static const struct dpe_plan *largest_plan(const struct tuning *tuning)
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

/* The plan of any setting whose attention does most: that with most bands. */
static const struct dpe_plan *slowest_plan(const struct tuning *tuning)
{
    const struct dpe_plan *slowest = &tuning->groups[0].arms[0].plan;
    for (int g = 0; g < tuning->n_groups; g++) {
        for (int i = 0; i < tuning->groups[g].n_arms; i++) {
            const struct dpe_plan *plan = &tuning->groups[g].arms[i].plan;
            slowest = plan->n_bands > slowest->n_bands ? plan : slowest;
        }
    }
    return slowest;
}

/* What a group may run at most: its search, and the default and the chosen setting on fresh
 * samples. */
static int64_t search_rows(const struct tuning *tuning, const struct tune_group *group)
{
    return group->n_arms > 1 ? tuning->budget : 0;
}

static int64_t fresh_rows(const struct tuning *tuning, const struct tune_group *group)
{
    return (group->n_arms > 1 ? 2 : 1) * tuning->fresh;
}

static void print_settings(const struct tuning *tuning)
{
    const struct dpe_comparison *comparison = &tuning->comparison;
    dpe_print("model            %s\n", comparison->args->job.model);
    dpe_print("%-16s %8s %8s %12s %6s\n", "method", "length", "settings", "rows", "fresh");
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        dpe_print("%-16.*s %8lld %8d %12lld %6lld\n", (int)strcspn(group->result->method, ":"),
                  group->result->method, (long long)group->result->length, group->n_arms,
                  (long long)search_rows(tuning, group), (long long)fresh_rows(tuning, group));
    }
}

static dpe_status print_cost_document(const struct tuning *tuning, struct dpe_error *err)
{
    struct dpe_result *out = begin_document(tuning);
    int64_t rows = 0;
    double tokens = 0.0;
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        int64_t n = search_rows(tuning, group) + fresh_rows(tuning, group);
        rows += n;
        tokens += (double)n * (double)group->result->length;
        dpe_result_row(out, "methods");
        dpe_result_text(out, "method", group->result->method);
        dpe_result_whole(out, "length", group->result->length);
        dpe_result_whole(out, "settings", group->n_arms);
        dpe_result_whole(out, "search_rows", search_rows(tuning, group));
        dpe_result_whole(out, "fresh_rows", fresh_rows(tuning, group));
    }
    dpe_result_row(out, NULL);
    dpe_result_whole(out, "rows", rows);
    dpe_result_number(out, "tokens", tokens);
    return dpe_result_print(out, err);
}

static dpe_status cost(const struct tuning *tuning, struct dpe_bill *sum, struct dpe_error *err)
{
    if (tuning->comparison.args->job.json) {
        return print_cost_document(tuning, err);
    }
    DPE_OWNED double *rows = NULL;
    DPE_TRY(DPE_NEW(&rows, (size_t)tuning->comparison.n_lengths, err, "out of memory"));
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        rows[group->length] +=
            (double)search_rows(tuning, group) + (double)fresh_rows(tuning, group);
    }
    if (!tuning->comparison.args->job.silent) {
        print_settings(tuning);
    }
    return dpe_eval_add_cost(&tuning->comparison, slowest_plan(tuning), rows, sum, err);
}

static dpe_status tuning_start(void *state, struct dpe_error *err)
{
    struct tuning *tuning = state;
    return dpe_eval_start(&tuning->comparison, "tune", largest_plan(tuning), err);
}

static dpe_status tuning_rows(void *state, struct dpe_error *err)
{
    struct tuning *tuning = state;
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
    struct tuning *tuning = state;
    DPE_TRY(dpe_eval_fit_batch(&tuning->comparison, largest_plan(tuning), err));
    return cost(tuning, bill, err);
}

static dpe_status tuning_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct tuning *tuning = state;
    status = dpe_eval_comparison_close(&tuning->comparison, status, err);
    free_groups(tuning);
    return status;
}

const struct dpe_study dpe_eval_tune_study = {
    .size = sizeof(struct tuning),
    .job = offsetof(struct tuning, comparison.job),
    .open = tuning_open,
    .cost = tuning_cost,
    .start = tuning_start,
    .rows = tuning_rows,
    .fill = fill,
    .print = print,
    .close = tuning_close,
};

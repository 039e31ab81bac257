/* The stages around the sweep: the search, and what fresh samples show of its end. */
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"

/* --------------------------------------------------------------------------------------- search */

/* What a task of the search is among the inputs. */
static const struct detect_opened *stream_of(const struct detect_inputs *inputs,
                                             enum dpe_detect_stream stream)
{
    const bool needles = dpe_detect_inputs_by_needles(inputs);
    return stream == DPE_DETECT_USERS                ? &inputs->streams[DETECT_SEARCHED_USERS]
           : stream == DPE_DETECT_NEEDLES && needles ? &inputs->streams[DETECT_SEARCHED]
                                                     : &inputs->streams[DETECT_GUARD];
}

static dpe_status admit(void *user, struct dpe_detect_tried *tried, bool *fits,
                        struct dpe_error *err)
{
    const struct sweep *sweep = user;
    const struct detect_inputs *inputs = &sweep->inputs;
    struct dpe_error why = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_SCOPED(dpe_detect_entry_free) struct dpe_detect_entry entry = {0};
    dpe_status status = dpe_detect_inputs_plan(inputs, tried->spec, &plan, &why);
    if (status == DPE_OK) {
        status = dpe_job_check_plan(&inputs->job, &plan, inputs->args->job.length, &why);
    }
    /* One that needs more memory than is allowed is left out. */
    *fits = status == DPE_OK && dpe_job_allows(&inputs->job, &plan, inputs->args->job.length);
    if (!*fits) {
        return status == DPE_NO_MEMORY ? dpe_fail(err, status, "%s", why.text) : DPE_OK;
    }
    DPE_TRY(dpe_plan_key(&plan, tried->key, err));
    if (tried->kind == DPE_DETECT_UNCHANGED) {
        tried->table = true;
        return DPE_OK;
    }
    DPE_TRY(dpe_detect_holds(&inputs->grid, &inputs->context, &plan, &entry, &tried->table, err));
    tried->plain = tried->table && dpe_detect_is_plain(inputs->context.config, &entry.values);
    return DPE_OK;
}

static dpe_status scores_of(void *user, enum dpe_detect_stream stream, const char *const *keys,
                            int n, int64_t contexts, struct dpe_detect_scores *scores,
                            struct dpe_error *err)
{
    const struct sweep *sweep = user;
    const struct dpe_task *task = &stream_of(&sweep->inputs, stream)->task;
    return dpe_detect_collect(sweep->inputs.job.run, task->name, keys, n, 0,
                              contexts * task->together, task->together, scores, err);
}

/* As far as the rows of the search go. */
static dpe_status replay(struct sweep *sweep, struct dpe_error *err)
{
    struct dpe_detect_report *report = &sweep->report;
    const struct detect_inputs *inputs = &sweep->inputs;
    const struct dpe_detect_arguments *args = inputs->args;
    const bool needles = dpe_detect_inputs_by_needles(inputs);
    const int64_t texts = inputs->streams[DETECT_GUARD].n;
    const struct detect_opened *users = &inputs->streams[DETECT_SEARCHED_USERS];
    const struct dpe_detect_source source = {sweep, admit, scores_of};
    const struct dpe_detect_search_options how = {
        .params = &inputs->grid.params,
        .temperature = strcmp(args->temperature, "auto") == 0,
        .window = args->window == 0,
        .methods = !args->no_against && args->selection == NULL,
        .against = args->against,
        .n_against = args->n_against,
        .ranking = dpe_detect_sweeps(args->rule) ? &dpe_detect_deciding(report)->ranking : NULL,
        .criterion = needles ? DPE_DETECT_RECALL : DPE_DETECT_PERPLEXITY,
        /* Where texts decide, half of them are fresh. */
        .most = {needles ? DETECT_MOST_CONTEXTS : texts - texts / 2, needles ? users->n : 0,
                 needles ? dpe_least(texts, DETECT_SEARCH_TEXTS) : 0},
        .guard = args->guard,
        .questions = needles ? dpe_detect_inputs_together(inputs) : DPE_DETECT_QUESTIONS,
        .budget = dpe_detect_inputs_contexts(inputs),
    };
    dpe_detect_search_free(&report->search);
    return dpe_detect_search_replay(&how, &source, &report->search, err);
}

/* The rows that the search lacks. */
static dpe_status search_rows(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = &sweep->inputs;
    const struct dpe_detect_search *search = &sweep->report.search;
    const struct dpe_task *task = &stream_of(inputs, search->stream)->task;
    char name[32];
    int n = 0;
    dpe_status status = DPE_OK;
    /* Too large for a small stack. */
    struct dpe_detect_config *configs = NULL;
    DPE_TRY(DPE_NEW(&configs, (size_t)search->n, err, "out of memory for %d plans", search->n));
    for (int i = 0; i < search->n && status == DPE_OK; i++) {
        if (search->wanted[i] != 0) {
            memcpy(configs[n].key, search->tried[i].key, sizeof configs[n].key);
            status = dpe_detect_inputs_plan(inputs, search->tried[i].spec, &configs[n++].plan, err);
        }
    }
    snprintf(name, sizeof name, "search (%d plan%s)", n, n == 1 ? "" : "s");
    const struct stage stage = {.name = name,
                                .n_tasks = 1,
                                .tasks = {{*task, 0, search->contexts * task->together}},
                                .n_plans = n,
                                .configs = configs};
    if (status == DPE_OK) {
        status = dpe_detect_stage_run(sweep, &stage, err);
    }
    for (int i = 0; i < n; i++) {
        dpe_plan_free(&configs[i].plan);
    }
    free(configs);
    return status;
}

dpe_status dpe_detect_stage_search(struct sweep *sweep, struct dpe_error *err)
{
    const struct dpe_detect_search *search = &sweep->report.search;
    DPE_TRY(replay(sweep, err));
    if (search->least > dpe_detect_inputs_contexts(&sweep->inputs)) {
        dpe_log_warning("--budget: a search reads %lld contexts of --length tokens at least, and "
                        "fresh ones: more than was given",
                        (long long)search->least);
    }
    while (!search->complete) {
        DPE_TRY(search_rows(sweep, err));
        DPE_TRY(replay(sweep, err));
    }
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------- validation */

/* The plan of this name, unless one that is the same is there: its index. */
static dpe_status add_plan(struct sweep *sweep, const char *name, const struct dpe_detect_tried *of,
                           int *at, struct dpe_error *err)
{
    struct dpe_detect_report *report = &sweep->report;
    const struct detect_inputs *inputs = &sweep->inputs;
    struct dpe_detect_validated_plan *plan = &report->validated[report->n_validated];
    double base[DPE_MOST_PAIRS]; /* a scale for each group */
    for (int g = 0; g < inputs->grid.params.n_groups; g++) {
        base[g] = dpe_detect_base_scale(&inputs->grid.params);
    }
    const bool swept = strcmp(name, "joint") == 0 || strcmp(name, "base") == 0;
    DPE_TRY(swept ? dpe_detect_joint_plan(&inputs->grid, &inputs->context,
                                          strcmp(name, "base") == 0 ? base : report->scale,
                                          &plan->config.plan, err)
                  : dpe_detect_inputs_plan(inputs, name, &plan->config.plan, err));
    DPE_TRY(dpe_plan_key(&plan->config.plan, plan->config.key, err));
    snprintf(plan->name, sizeof plan->name, "%s", name);
    plan->table = of == NULL || of->table;
    plan->plain = of != NULL && of->plain;
    for (*at = 0; strcmp(report->validated[*at].config.key, plan->config.key) != 0;) {
        (*at)++;
    }
    if (*at < report->n_validated) {
        dpe_plan_free(&plan->config.plan);
    } else {
        report->n_validated++;
    }
    return DPE_OK;
}

/* The model as it is, what was chosen, the best without an adapter and the formula, and what the
 * sweep comes to; of the paper's procedure what that validates. */
static dpe_status make_validated(struct sweep *sweep, struct dpe_error *err)
{
    struct dpe_detect_report *report = &sweep->report;
    const struct dpe_detect_search *search = &report->search;
    const bool searches = dpe_detect_searches(report->of->args->rule);
    int at = 0;
    for (int v = 0; v < DPE_DETECT_MOST_VALIDATED; v++) {
        dpe_plan_free(&report->validated[v].config.plan);
    }
    report->n_validated = 0;
    report->chosen = DPE_DETECT_ROPE;
    DPE_TRY(add_plan(sweep, "rope", NULL, &at, err));
    const int chosen[] = {search->best, search->plain, search->n > 1 ? 1 : -1};
    for (int i = 0; i < 3 && searches; i++) {
        const struct dpe_detect_tried *tried = &search->tried[chosen[i] > 0 ? chosen[i] : 0];
        const bool formula = tried->kind == DPE_DETECT_FORMULA;
        if (chosen[i] > 0 && (i < 2 || (formula && search->heats > 1))) {
            DPE_TRY(add_plan(sweep, tried->spec, tried, &at, err));
            report->chosen = i == 0 ? at : report->chosen;
        }
    }
    if (dpe_detect_sweeps(report->of->args->rule)) {
        DPE_TRY(searches ? DPE_OK : add_plan(sweep, "base", NULL, &at, err));
        DPE_TRY(add_plan(sweep, "joint", NULL, &at, err));
        report->chosen = searches ? report->chosen : at;
    }
    return DPE_OK;
}

int64_t dpe_detect_inputs_fresh(const struct detect_inputs *inputs, int64_t spent)
{
    const int64_t together = dpe_detect_inputs_together(inputs);
    return inputs->args->job.samples_given
               ? (inputs->args->job.samples + together - 1) / together
               : dpe_most((DETECT_LEAST_FRESH + together - 1) / together,
                          dpe_least(spent / DETECT_FRESH, DETECT_MOST_CONTEXTS));
}

/* How many fresh samples each task has, now that it is known what the search has read. */
static void set_fresh(struct sweep *sweep)
{
    struct dpe_detect_report *report = &sweep->report;
    const struct detect_inputs *inputs = &sweep->inputs;
    const int64_t contexts = dpe_detect_inputs_fresh(inputs, report->search.spent);
    const struct detect_opened *texts = &inputs->streams[DETECT_GUARD];
    const bool further = report->search.heats > 1;
    struct dpe_detect_result *niah = &report->results[0], *ppl = &report->results[1];
    if (niah->used) {
        niah->checked.n = contexts * inputs->streams[DETECT_FRESH_NEEDLES].task.together;
        report->results[DPE_DETECT_OWN].checked.n =
            further ? contexts * inputs->streams[DETECT_FRESH_USERS].task.together : 0;
        report->results[DPE_DETECT_GUARD].checked.n =
            further ? dpe_least(texts->n, DETECT_GUARD_BOOKS) : 0;
    } else {
        const int64_t fresh = texts->n / 2;
        ppl->checked.first = fresh > 0 ? texts->n - fresh : 0;
        ppl->checked.n = dpe_least(contexts, fresh > 0 ? fresh : texts->n);
        ppl->fresh = fresh > 0 && ppl->swept.n <= ppl->checked.first; /* not swept */
    }
}

dpe_status dpe_detect_stage_validate(struct sweep *sweep, struct dpe_error *err)
{
    struct dpe_detect_report *report = &sweep->report;
    const struct detect_inputs *inputs = &sweep->inputs;
    struct dpe_detect_config configs[DPE_DETECT_MOST_VALIDATED];
    DPE_TRY(make_validated(sweep, err));
    for (int v = 0; v < report->n_validated; v++) {
        configs[v] = report->validated[v].config;
    }
    if (dpe_detect_searches(report->of->args->rule)) {
        set_fresh(sweep);
    }
    for (int i = 0; i < DPE_DETECT_RESULTS; i++) {
        const struct dpe_detect_result *result = &report->results[i];
        const struct stage stage = {.name = "validate",
                                    .n_tasks = result->used && result->checked.n > 0,
                                    .tasks = {{dpe_detect_inputs_fresh_of(inputs, i)->task,
                                               result->checked.first, result->checked.n}},
                                    .n_plans = report->n_validated,
                                    .configs = configs};
        DPE_TRY(dpe_detect_stage_run(sweep, &stage, err));
    }
    for (int i = DETECT_CEILING; i <= DETECT_QUARTER; i++) {
        const struct stage stage = {.name = "unchanged",
                                    .n_tasks = inputs->streams[i].n > 0,
                                    .tasks = {inputs->streams[i]},
                                    .length =
                                        inputs->job.trained_length / (i == DETECT_QUARTER ? 4 : 1),
                                    .n_plans = 1,
                                    .configs = configs};
        DPE_TRY(dpe_detect_stage_run(sweep, &stage, err));
    }
    return DPE_OK;
}

/* The stages around the sweep: the search for temperature and joint plan, and the validation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "engine/plan/methods/methods.h"

/* --------------------------------------------------------------------------------------- search */

/* Until the temperature is found, all rows of the sweep lie ahead (`later`), those of its plans
 * that the search has run included. */
static void plan_searched(struct sweep *sweep)
{
    const struct dpe_detect_search *search = &sweep->report->search;
    bool found = dpe_detect_sweeps(sweep->inputs->args->rule) &&
                 (search->complete || search->wants_sweep || sweep->report->swept);
    int64_t rows = dpe_detect_search_asked(search, found ? &sweep->inputs->grid : NULL,
                                           sweep->inputs->n_samples[0]);
    sweep->planned[0] += rows - sweep->searched;
    sweep->searched = rows;
}

/* The rows that the last step of the search lacks, on the deciding task, which is the first, or of
 * the guard's texts. */
static dpe_status search_rows(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_search *search = &sweep->report->search;
    const struct dpe_detect_step *step = &search->steps[search->n_steps - 1];
    char name[32];
    int n = 0;
    dpe_status status = DPE_OK;
    /* Too large for a small stack; copies, because a table on the way replays the search. */
    struct dpe_detect_config *configs = NULL;
    DPE_TRY(DPE_NEW(&configs, (size_t)step->n, err, "out of memory for %d plans", step->n));
    for (int i = 0; i < step->n && status == DPE_OK; i++) {
        if (step->tried[i].wanted) {
            memcpy(configs[n].key, step->tried[i].key, sizeof configs[n].key);
            status = dpe_detect_point_plan(&inputs->grid, &inputs->context, &step->tried[i].point,
                                           &configs[n++].plan, err);
        }
    }
    snprintf(name, sizeof name, "search %s", dpe_detect_move_names[step->move]);
    struct stage stage = dpe_detect_stage_of(
        sweep, name, search->wants_texts ? &inputs->held[DETECT_GUARD].task : inputs->tasks,
        search->wanted, configs, n);
    const bool before = dpe_detect_sweeps(inputs->args->rule) && !sweep->report->swept;
    for (int i = 0; i < inputs->n_tasks && before; i++) {
        stage.later[i] += inputs->n_samples[i] * inputs->grid.n_configs;
    }
    if (status == DPE_OK) {
        plan_searched(sweep);
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
    struct dpe_detect_report *report = sweep->report;
    const struct dpe_run *run = sweep->inputs->job.run;
    DPE_TRY(dpe_detect_report_search(report, run, err));
    while (!report->search.complete && !report->search.wants_sweep) {
        DPE_TRY(search_rows(sweep, err));
        DPE_TRY(dpe_detect_report_search(report, run, err));
    }
    if (report->search.complete) {
        plan_searched(sweep); /* rows of steps that were there already, too */
    }
    return DPE_OK;
}

dpe_status dpe_detect_stage_warm(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    if (!sweep->report->searching.temperature || sweep->report->searching.brief) {
        return DPE_OK;
    }
    char text[DPE_TEMPERATURE_TEXT];
    struct dpe_detect_params params = inputs->grid.params;
    params.temperature = sweep->report->search.point.temperature;
    dpe_temperature_text(&params.temperature, text);
    dpe_log_info("attention temperature found: %s", text);
    dpe_detect_grid_free(&inputs->grid);
    DPE_TRY(dpe_detect_grid_make(&params, &inputs->context, &inputs->grid, err));
    plan_searched(sweep);
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------- validation */

static bool is_validated(const struct dpe_detect_report *report, const char *name)
{
    bool found = false;
    for (int v = 0; v < report->n_validated; v++) {
        found = found || strcmp(report->names[v], name) == 0;
    }
    return found;
}

/* The place of the next one. */
static struct dpe_plan *next_plan(struct sweep *sweep)
{
    return &sweep->validated[sweep->report->n_validated].plan;
}

/* Put the plan that was made there under its name and its key. */
static dpe_status add_plan(struct sweep *sweep, const char *name, struct dpe_error *err)
{
    const int v = sweep->report->n_validated++;
    snprintf(sweep->report->names[v], sizeof sweep->report->names[v], "%s", name);
    return dpe_plan_key(&sweep->validated[v].plan, sweep->validated[v].key, err);
}

static dpe_status add_point(struct sweep *sweep, const char *name,
                            const struct dpe_detect_point *point, struct dpe_error *err)
{
    DPE_TRY(dpe_detect_point_plan(&sweep->inputs->grid, &sweep->inputs->context, point,
                                  next_plan(sweep), err));
    return add_plan(sweep, name, err);
}

/* The first plan with this key; as many as there are: none has it. */
static int find_key(const struct sweep *sweep, const char *key)
{
    int v = 0;
    while (v < sweep->report->n_validated && strcmp(sweep->validated[v].key, key) != 0) {
        v++;
    }
    return v;
}

/* The best methods that the search found, by their specs; those of --against are there already. */
static dpe_status add_families(struct sweep *sweep, struct dpe_error *err)
{
    struct dpe_detect_report *report = sweep->report;
    const struct dpe_detect_point *const points[] = {&report->search.plain, &report->search.family};
    for (int i = 0; i < 2; i++) {
        char spec[DPE_DETECT_SPEC];
        dpe_detect_point_spec(points[i], spec);
        if (points[i]->family > 0 && !is_validated(report, spec)) {
            DPE_TRY(add_point(sweep, spec, points[i], err));
        }
    }
    return DPE_OK;
}

/* Perplexity of finalists on the first of the guard's texts: most of them the search has read. */
enum { FINALISTS = 32 };
struct finalists {
    int n;
    struct dpe_detect_point points[FINALISTS];
    struct dpe_detect_config configs[FINALISTS];
    double value[FINALISTS], nll[FINALISTS];
    bool read[FINALISTS];
};

static void finalists_free(struct finalists **all)
{
    for (int i = 0; *all != NULL && i < (*all)->n; i++) {
        dpe_plan_free(&(*all)->configs[i].plan);
    }
    free(*all);
}

static dpe_status read_finalists(struct sweep *sweep, struct finalists *all, struct dpe_error *err)
{
    const struct detect_held *held = &sweep->inputs->held[DETECT_GUARD];
    const int64_t texts = sweep->report->searching.texts;
    for (int i = 0; i < all->n; i++) {
        struct dpe_detect_config *config = &all->configs[i];
        DPE_TRY(dpe_detect_point_plan(&sweep->inputs->grid, &sweep->inputs->context,
                                      &all->points[i], &config->plan, err));
        DPE_TRY(dpe_plan_key(&config->plan, config->key, err));
        sweep->planned[0] += all->read[i] ? 0 : texts;
    }
    const struct stage stage =
        dpe_detect_stage_of(sweep, "guard", &held->task, texts, all->configs, all->n);
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    DPE_TRY(dpe_detect_stage_scores(sweep, &stage, 1, &scores, err));
    dpe_detect_texts(&scores, all->nll);
    return DPE_OK;
}

/* Of the plans that the search ran on all samples the one that finds most within the guard:
 * validated beside those that needles alone chose. */
static dpe_status add_guarded(struct sweep *sweep, struct dpe_error *err)
{
    const struct dpe_detect_report *report = sweep->report;
    if (sweep->inputs->held[DETECT_GUARD].n == 0 || report->search.n_steps == 0 ||
        report->searching.brief) {
        return DPE_OK;
    }
    DPE_SCOPED(finalists_free) struct finalists *all = NULL; /* too large for a small stack */
    DPE_TRY(DPE_NEW(&all, 1, err, "out of memory for finalists"));
    all->n =
        dpe_detect_search_finalists(&report->search, all->points, all->value, all->read, FINALISTS);
    DPE_TRY(read_finalists(sweep, all, err));
    int best = dpe_detect_guarded(all->value, all->nll, all->n, report->guard_share);
    if (best < 0 || find_key(sweep, all->configs[best].key) < report->n_validated) {
        return DPE_OK;
    }
    char name[DPE_DETECT_PLAN_NAME];
    dpe_detect_point_spec(&all->points[best], name);
    if (name[0] == '\0') {
        dpe_detect_point_dpe_spec(&sweep->inputs->grid, &all->points[best], name, sizeof name);
    }
    return name[0] != '\0' ? add_point(sweep, name, &all->points[best], err) : DPE_OK;
}

static dpe_status add_against(struct sweep *sweep, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = sweep->inputs->args;
    for (int i = 0; i < args->n_against; i++) {
        DPE_TRY(dpe_detect_inputs_rival(sweep->inputs, i, next_plan(sweep), err));
        DPE_TRY(add_plan(sweep, args->against[i], err));
    }
    return DPE_OK;
}

/* A plan of DPE beside the others, as a method, unless it is one of them: what a brief search ended
 * with, or, also where needles say too little for one, where most searches end; where that is none,
 * the base.
 */
static dpe_status add_own(struct sweep *sweep, struct dpe_error *err)
{
    const struct detect_inputs *inputs = sweep->inputs;
    struct dpe_detect_report *report = sweep->report;
    struct dpe_detect_point point = report->search.point;
    if (!report->searching.brief && !dpe_detect_point_usual(&inputs->grid.params, &point)) {
        sweep->inputs->held_ready = false;
        return DPE_OK;
    }
    if (!inputs->searches_temperature) {
        point.temperature = dpe_detect_report_point(report, DPE_DETECT_BASE).temperature;
    }
    char name[DPE_DETECT_PLAN_NAME];
    const int v = report->n_validated;
    dpe_detect_point_dpe_spec(&inputs->grid, &point, name, sizeof name);
    DPE_TRY(add_point(sweep, name, &point, err));
    /* Where no method can say it, by key pairs, the base is raced in its place. */
    int own = name[0] == '\0' ? DPE_DETECT_BASE : v;
    for (int i = v - 1; i >= DPE_DETECT_BASE; i--) {
        own = strcmp(sweep->validated[i].key, sweep->validated[v].key) == 0 ? i : own;
    }
    if (own < v) {
        dpe_plan_free(&sweep->validated[v].plan);
        report->n_validated = v;
    }
    sweep->inputs->held_ready = own != DPE_DETECT_BASE;
    report->own = own;
    return DPE_OK;
}

/* The joint one needs the ranks. */
static dpe_status make_validated(struct sweep *sweep, struct dpe_error *err)
{
    const struct detect_inputs *inputs = sweep->inputs;
    struct dpe_detect_report *report = sweep->report;
    const char *const *names = dpe_detect_validated_names;
    report->n_validated = 0;
    report->own = 0;
    report->plans = sweep->validated;
    for (int v = 0; v < DPE_DETECT_MOST_VALIDATED; v++) {
        dpe_plan_free(&sweep->validated[v].plan); /* of a search that was given up */
    }
    const struct dpe_plan_context context = dpe_detect_inputs_context(inputs);
    DPE_TRY(dpe_plan_make("rope", &context, next_plan(sweep), err));
    DPE_TRY(add_plan(sweep, names[DPE_DETECT_ROPE], err));
    /* Without the temperature that a search found. */
    const struct dpe_detect_point base = dpe_detect_report_point(report, DPE_DETECT_BASE);
    DPE_TRY(add_point(sweep, names[DPE_DETECT_BASE], &base, err));
    if (dpe_detect_report_chooses(report)) {
        const struct dpe_detect_point joint = dpe_detect_report_point(report, DPE_DETECT_JOINT);
        const struct dpe_detect_point single = dpe_detect_report_point(report, DPE_DETECT_SINGLE);
        DPE_TRY(add_point(sweep, names[DPE_DETECT_JOINT], &joint, err));
        DPE_TRY(add_point(sweep, "single", &single, err));
    } else {
        DPE_TRY(dpe_detect_joint_plan(&inputs->grid, &inputs->context, report->scale,
                                      next_plan(sweep), err));
        DPE_TRY(add_plan(sweep, names[DPE_DETECT_JOINT], err));
    }
    DPE_TRY(add_against(sweep, err));
    DPE_TRY(dpe_detect_inputs_has_own(inputs) ? add_own(sweep, err) : DPE_OK);
    DPE_TRY(add_families(sweep, err));
    DPE_TRY(add_guarded(sweep, err));
    for (int v = 0; v < report->n_validated; v++) { /* from here on the report can be made */
        report->keys[v] = sweep->validated[v].key;
    }
    return DPE_OK;
}

/* The rows of what is held beside the validation: one task after another, on these plans. */
static dpe_status run_held(struct sweep *sweep, const struct stage *validation,
                           struct dpe_error *err)
{
    static const char *const names[DETECT_N_HELD] = {"validate user's", "ceiling", "ceiling",
                                                     "guard"};
    const struct detect_held_rows most = dpe_detect_inputs_held(sweep->inputs);
    sweep->planned[0] -= most.users + most.ceilings + most.texts; /* now what there is */
    for (int i = 0; i < DETECT_N_HELD; i++) {
        const struct detect_held *held = &sweep->inputs->held[i];
        struct stage stage = {.name = names[i],
                              .n_tasks = 1,
                              .tasks = &held->task,
                              .n_samples = {held->n},
                              .configs = validation->configs,
                              .last = true};
        const bool ceiling = i == DETECT_CEILING || i == DETECT_USERS_CEILING;
        stage.n_plans = ceiling ? 1 : validation->n_plans; /* the first is rope */
        stage.live = ceiling ? NULL : validation->live;
        for (int v = 0; v < stage.n_plans; v++) {
            sweep->planned[0] += ceiling || stage.live[v] != 0 ? held->n : 0;
        }
        DPE_TRY(held->n > 0 ? dpe_detect_stage_run(sweep, &stage, err) : DPE_OK);
    }
    return DPE_OK;
}

/* Methods that are ready: contexts one after another, the later ones under what is left. */
static dpe_status race_ready(struct sweep *sweep, const struct stage *all, unsigned char *live,
                             struct dpe_error *err)
{
    const struct detect_inputs *inputs = sweep->inputs;
    const int64_t samples = inputs->n_validated[0];
    const int64_t together = dpe_detect_inputs_least_round(inputs);
    const int64_t contexts = (samples + together - 1) / together;
    struct stage stage = *all;
    /* What comes after the list at work, at most. */
    stage.later[0] =
        dpe_detect_inputs_validated_rows(inputs, 0) + dpe_detect_inputs_held(inputs).ceilings;
    stage.first[0] = stage.n_samples[0] = 0;
    stage.last = false;
    for (int64_t c = 0; c < contexts; stage.first[0] += stage.n_samples[0]) {
        c = c < 2 ? c + 1 : contexts;
        stage.n_samples[0] = (c * together < samples ? c * together : samples) - stage.first[0];
        for (int i = 0; i < all->n_plans; i++) {
            stage.later[0] -= live[i] != 0 ? stage.n_samples[0] : 0;
        }
        DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
        DPE_TRY(dpe_detect_stage_scores(sweep, &stage, together, &scores, err));
        if (c < contexts) {
            dpe_detect_ready_race(&scores, contexts, sweep->report->own, live);
        }
        if (memchr(live, 1, (size_t)all->n_plans) == NULL) { /* the choice is clear */
            sweep->planned[0] -= stage.later[0] - dpe_detect_inputs_held(inputs).ceilings;
            break;
        }
    }
    return DPE_OK;
}

dpe_status dpe_detect_stage_validate(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_report *report = sweep->report;
    DPE_TRY(make_validated(sweep, err));
    unsigned char live[DPE_DETECT_MOST_VALIDATED]; /* equal plans are run once */
    const bool ready = dpe_detect_inputs_races_ready(inputs);
    for (int v = 0; v < report->n_validated; v++) {
        live[v] = find_key(sweep, report->keys[v]) == v;
        for (int i = 0; i < inputs->n_tasks && live[v] == 0 && !ready; i++) {
            sweep->planned[i] -= inputs->n_validated[i];
        }
    }
    struct stage stage = {.name = "validate",
                          .n_tasks = inputs->n_tasks,
                          .tasks = inputs->validate_tasks,
                          .first = {inputs->first_validated[0], inputs->first_validated[1]},
                          .n_samples = {inputs->n_validated[0], inputs->n_validated[1]},
                          .n_plans = report->n_validated,
                          .configs = sweep->validated,
                          .live = live,
                          .last = true};
    if (!dpe_detect_inputs_races_base(inputs)) {
        live[DPE_DETECT_BASE] = live[DPE_DETECT_JOINT] = 0;
    }
    DPE_TRY(ready ? race_ready(sweep, &stage, live, err)
                  : dpe_detect_stage_run(sweep, &stage, err));
    return run_held(sweep, &stage, err);
}

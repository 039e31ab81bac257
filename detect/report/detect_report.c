/* Rows of a run → what the table and the terminal show. */
#include "detect/report/report.h"
#include "outputs/h5/rows.h"
#include "outputs/read/read.h"
#include "outputs/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct dpe_detect_result *dpe_detect_deciding(const struct dpe_detect_report *report)
{
    return &report->results[report->results[0].used ? 0 : 1];
}

static struct dpe_detect_result *deciding_of(struct dpe_detect_report *report)
{
    return &report->results[report->results[0].used ? 0 : 1];
}

const char **dpe_detect_cell_keys(const struct dpe_detect_grid *grid)
{
    size_t n_cells = (size_t)grid->params.n_groups * (size_t)grid->params.n_lengths;
    const char **keys = dpe_alloc(n_cells, sizeof *keys);
    for (size_t c = 0; keys != NULL && c < n_cells; c++) {
        keys[c] = grid->configs[grid->cell[c]].key;
    }
    return keys;
}

int dpe_detect_positions(const struct dpe_detect_report *report)
{
    int n = 0;
    while (n < DPE_POSITIONS && (INT64_C(1) << n) < report->grid->params.length) {
        n++;
    }
    return n;
}

/* Where in its texts each of n plans predicts how well, into *at; needles have no such place. */
static dpe_status find_positions(const struct dpe_detect_report *report,
                                 const struct dpe_detect_result *result, const struct dpe_run *run,
                                 const char *const *keys, int n, bool validation, double **at,
                                 struct dpe_error *err)
{
    const int buckets = dpe_detect_positions(report);
    const char *task = validation ? result->validate_task : result->task;
    const int64_t first = validation ? result->first_validated : 0;
    free(*at);
    *at = NULL;
    if (result->criterion == DPE_DETECT_RECALL) {
        return DPE_OK;
    }
    DPE_TRY(DPE_NEW(at, (size_t)n * (size_t)buckets, err, "out of memory for %d plans", n));
    for (int c = 0; c < n; c++) {
        struct dpe_positions positions = {.n = 0};
        for (int64_t s = 0; s < (validation ? result->n_validated : result->n_samples); s++) {
            dpe_positions_add(&positions, dpe_run_find(run, task, keys[c], first + s));
        }
        for (int b = 0; b < buckets; b++) {
            (*at)[c * buckets + b] = dpe_positions_at(&positions, b);
        }
    }
    return DPE_OK;
}

static dpe_status collect_task(const struct dpe_detect_report *report,
                               struct dpe_detect_result *result, const struct dpe_run *run,
                               struct dpe_error *err)
{
    const int n_cells = report->grid->params.n_groups * report->grid->params.n_lengths;
    DPE_OWNED const char **keys = dpe_detect_cell_keys(report->grid);
    dpe_detect_scores_free(&result->scores);
    DPE_TRY(DPE_MADE(keys, err, "out of memory for the keys of cells"));
    DPE_TRY(dpe_detect_collect(run, result->task, keys, n_cells, 0, result->n_samples,
                               result->together, &result->scores, err));
    return find_positions(report, result, run, keys, n_cells, false, &result->at, err);
}

static dpe_status replay_race(struct dpe_detect_report *report,
                              const struct dpe_detect_result *result, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &report->grid->params;
    dpe_race_free(&report->race);
    return dpe_detect_race_replay(&report->race_options, &result->scores, params->n_groups,
                                  params->n_lengths, dpe_detect_base_length(params),
                                  result->criterion, &report->race, err);
}

dpe_status dpe_detect_report_race(struct dpe_detect_report *report, const struct dpe_run *run,
                                  struct dpe_error *err)
{
    struct dpe_detect_result *result = deciding_of(report);
    DPE_TRY(collect_task(report, result, run, err));
    return replay_race(report, result, err);
}

static dpe_status report_task(struct dpe_detect_report *report, struct dpe_detect_result *result,
                              const struct dpe_run *run, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &report->grid->params;
    dpe_detect_ranking_free(&result->ranking);
    DPE_TRY(collect_task(report, result, run, err));
    if (!report->racing || result != dpe_detect_deciding(report)) {
        return dpe_detect_rank(&result->scores, params->n_groups, params->lengths,
                               params->n_lengths, result->criterion, &result->ranking, err);
    }
    DPE_TRY(replay_race(report, result, err));
    return dpe_detect_rank_race(&result->scores, &report->race, params->n_groups, params->lengths,
                                params->n_lengths, result->criterion, &result->ranking, err);
}

/* The rows of a sequential step, as far as they are there. */
struct step_rows {
    const struct dpe_detect_report *report;
    const struct dpe_run *run;
};

static dpe_status step_scores(void *user, const int *at, int group,
                              struct dpe_detect_scores *scores, char (*keys)[33], bool *complete,
                              struct dpe_error *err)
{
    const struct step_rows *rows = user;
    const struct dpe_detect_report *report = rows->report;
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    int n = report->grid->params.n_lengths;
    const char *names[DPE_DETECT_MAX_LENGTHS];
    for (int t = 0; t < n; t++) {
        struct dpe_detect_config config;
        DPE_TRY(dpe_detect_step_plan(report->grid, report->context, at, group, t, &config, err));
        dpe_plan_free(&config.plan);
        memcpy(keys[t], config.key, sizeof config.key);
        names[t] = keys[t];
    }
    DPE_TRY(dpe_detect_collect(rows->run, deciding->task, names, n, 0, deciding->n_samples,
                               deciding->together, scores, err));
    for (int64_t i = 0; i < n * deciding->n_samples; i++) {
        *complete = *complete && scores->status[i] >= 0;
    }
    return DPE_OK;
}

static dpe_status select_lengths(struct dpe_detect_report *report, const struct dpe_run *run,
                                 struct dpe_error *err)
{
    const struct dpe_detect_params *params = &report->grid->params;
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    struct step_rows rows = {report, run};
    const struct dpe_detect_steps steps = {&rows, step_scores};
    dpe_detect_selection_free(&report->selection);
    switch (report->rule) {
    case DPE_DETECT_GUARDED:
        return dpe_detect_select_guarded(params, &deciding->scores, deciding->criterion,
                                         &report->selection, err);
    case DPE_DETECT_SEQUENTIAL:
        return dpe_detect_select_sequential(params, &deciding->ranking, report->rounds, &steps,
                                            &report->selection, err);
    case DPE_DETECT_JOINTLY:
        return dpe_detect_select_point(params, report->search.point.at, &report->selection, err);
    case DPE_DETECT_READY: /* nothing is ranked: every group stays in the base */
    case DPE_DETECT_BRIEF:
    case DPE_DETECT_PAPER:
        break;
    }
    dpe_status status =
        dpe_detect_select_paper(params, &deciding->ranking, &report->selection, err);
    report->selection.rule = report->rule;
    return status;
}

static dpe_status searched_scores(void *user, const char *const *keys, int n,
                                  struct dpe_detect_scores *scores, struct dpe_error *err)
{
    const struct step_rows *rows = user;
    const struct dpe_detect_result *deciding = dpe_detect_deciding(rows->report);
    return dpe_detect_collect(rows->run, deciding->task, keys, n, 0,
                              rows->report->searching.n_samples, deciding->together, scores, err);
}

static dpe_status guard_scores(void *user, const char *const *keys, int n,
                               struct dpe_detect_scores *scores, struct dpe_error *err)
{
    const struct step_rows *rows = user;
    return dpe_detect_collect(rows->run, rows->report->texts.validate_task, keys, n, 0,
                              rows->report->searching.texts, 1, scores, err);
}

dpe_status dpe_detect_report_search(struct dpe_detect_report *report, const struct dpe_run *run,
                                    struct dpe_error *err)
{
    struct step_rows rows = {report, run};
    const struct dpe_detect_source source = {&rows, searched_scores, guard_scores};
    dpe_detect_search_free(&report->search);
    if (report->searching.n_samples == 0) {
        report->search.complete = true;
        return DPE_OK;
    }
    const struct dpe_detect_ranking *ranking =
        report->swept ? &dpe_detect_deciding(report)->ranking : NULL;
    return dpe_detect_search_replay(&report->searching, report->grid, report->context, ranking,
                                    &source, &report->search, err);
}

dpe_status dpe_detect_report_sweep(struct dpe_detect_report *report, const struct dpe_run *run,
                                   struct dpe_error *err)
{
    const struct dpe_detect_grid *grid = report->grid;
    size_t n = (size_t)grid->params.n_groups;
    if (report->scale == NULL) {
        report->scale = dpe_alloc(n, sizeof *report->scale);
        report->selected = dpe_alloc(n, sizeof *report->selected);
    }
    DPE_TRY(DPE_MADE(report->scale, err, "out of memory for %zu groups", n));
    DPE_TRY(DPE_MADE(report->selected, err, "out of memory for %zu groups", n));
    for (int i = 0; i < 2; i++) {
        if (report->results[i].used) {
            DPE_TRY(report_task(report, &report->results[i], run, err));
        }
    }
    DPE_TRY(dpe_detect_report_search(report, run, err));
    DPE_TRY(select_lengths(report, run, err));
    dpe_detect_selected_scales(&grid->params, &report->selection, report->scale);
    for (int g = 0; g < grid->params.n_groups; g++) {
        int at = report->selection.at[g];
        report->selected[g] = at < 0 ? -1 : grid->params.lengths[at];
    }
    return DPE_OK;
}

bool dpe_detect_report_chooses(const struct dpe_detect_report *report)
{
    return report->rule == DPE_DETECT_JOINTLY;
}

/* Whether the search compared a plan in which groups differ. */
static bool tried_groups(const struct dpe_detect_report *report)
{
    const struct dpe_detect_params *params = &report->grid->params;
    for (int i = 0; i < report->search.n_steps; i++) {
        const struct dpe_detect_step *step = &report->search.steps[i];
        for (int k = 1; k < step->n && step->tested; k++) {
            if (!dpe_detect_point_is_single(params, &step->tried[k].point)) {
                return true;
            }
        }
    }
    return false;
}

const char *const dpe_detect_worth_names[] = {
    [DPE_DETECT_WORTH_UNKNOWN] = "unknown", [DPE_DETECT_WORTH_UNTRIED] = "not tried",
    [DPE_DETECT_WORTH_NONE] = "nothing",    [DPE_DETECT_WORTH_NOT_SHOWN] = "not shown",
    [DPE_DETECT_WORTH_SHOWN] = "better",
};

enum dpe_detect_worth dpe_detect_report_worth(const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    const struct dpe_detect_validation *v = &deciding->validation;
    const int single = DPE_DETECT_SINGLE;
    if (!deciding->validated || !dpe_detect_report_chooses(report) || v->n_plans <= single ||
        report->grid->params.n_groups < 2) {
        return DPE_DETECT_WORTH_UNKNOWN;
    }
    if (dpe_detect_point_is_single(&report->grid->params, &report->search.point)) {
        return tried_groups(report) ? DPE_DETECT_WORTH_NONE : DPE_DETECT_WORTH_UNTRIED;
    }
    return dpe_detect_judge(&v->minus[single], v->criterion) == DPE_DETECT_BETTER
               ? DPE_DETECT_WORTH_SHOWN
               : DPE_DETECT_WORTH_NOT_SHOWN;
}

/* Where no search began at it. */
static struct dpe_detect_point base_point(const struct dpe_detect_report *report)
{
    struct dpe_detect_point point = report->search.start;
    if (report->searching.n_samples == 0) {
        dpe_detect_point_base(&report->grid->params, &point);
    }
    return point;
}

struct dpe_detect_point dpe_detect_report_point(const struct dpe_detect_report *report, int plan)
{
    return plan == DPE_DETECT_BASE     ? base_point(report)
           : plan == DPE_DETECT_SINGLE ? report->search.single
                                       : report->search.point;
}

bool dpe_detect_report_static(const struct dpe_detect_report *report)
{
    return report->kept.plan != DPE_DETECT_ROPE && report->statics[report->kept.plan];
}

/* A plan of --against. */
static dpe_status keep_other(struct dpe_detect_report *report, int plan, struct dpe_error *err)
{
    struct dpe_detect_entry *entry = &report->kept.entry;
    struct dpe_table_values *values = &entry->values;
    bool holds = false;
    DPE_TRY(dpe_detect_holds(report->grid, report->context, &report->plans[plan].plan, entry,
                             &holds, err));
    for (int64_t g = 0; g < values->n_groups; g++) {
        values->effective_length[g] = round((double)values->length / values->scale_factor[g]);
    }
    return DPE_OK;
}

/* The model as it is, or a plan of DPE. */
static dpe_status keep_own(struct dpe_detect_report *report, int plan, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &report->grid->params;
    struct dpe_detect_entry *entry = &report->kept.entry;
    struct dpe_table_values *values = &entry->values;
    struct dpe_temperature temperature = params->temperature;
    const uint8_t *mask = params->mask;
    DPE_TRY(dpe_detect_entry_make(report->grid, report->context, entry, err));
    for (int g = 0; g < params->n_groups; g++) {
        values->scale_factor[g] = plan == DPE_DETECT_ROPE ? 1.0 : report->scale[g];
        values->effective_length[g] =
            (double)(plan == DPE_DETECT_ROPE ? params->length : report->selected[g]);
    }
    if (plan == DPE_DETECT_ROPE) {
        temperature = dpe_temperature_none;
    } else if (dpe_detect_report_chooses(report) || plan == DPE_DETECT_BASE) {
        const struct dpe_detect_point point = dpe_detect_report_point(report, plan);
        temperature = point.temperature;
        values->window = point.window;
        mask = dpe_detect_point_pairs(params, &point).mask;
        dpe_detect_point_scales(params, &point, values->scale_factor);
        for (int g = 0; g < params->n_groups; g++) {
            values->effective_length[g] = (double)dpe_detect_point_length(params, &point, g);
        }
    }
    dpe_table_put_temperature(&temperature, entry->room, values);
    values->mask = (uint8_t *)(uintptr_t)mask;
    for (int64_t j = 0; mask != NULL && j < values->n_pairs; j++) {
        values->top_k += mask[j];
    }
    return DPE_OK;
}

/* What the table gets. */
static dpe_status keep(struct dpe_detect_report *report, int plan, struct dpe_error *err)
{
    const struct dpe_detect_grid *grid = report->grid;
    const double own = grid->params.temperature.logit_scale;
    dpe_detect_entry_free(&report->kept.entry);
    report->kept.plan = plan;
    DPE_TRY(plan >= DPE_DETECT_N_VALIDATED + dpe_detect_report_chooses(report)
                ? keep_other(report, plan, err)
                : keep_own(report, plan, err));
    /* That of the model; plans of frequencies have another. */
    report->kept.entry.values.attention_scaling =
        sqrt(grid->configs[0].plan.temperature.logit_scale / (own > 0.0 ? own : 1.0));
    return DPE_OK;
}

/* Which of the validated plans a table can hold, and which need no adapter. */
static dpe_status find_tables(struct dpe_detect_report *report, struct dpe_error *err)
{
    int ours = DPE_DETECT_N_VALIDATED + dpe_detect_report_chooses(report);
    for (int v = 0; v < report->n_validated; v++) {
        DPE_SCOPED(dpe_detect_entry_free) struct dpe_detect_entry entry = {0};
        report->tables[v] = v < ours;
        report->statics[v] = v == DPE_DETECT_ROPE;
        if (v >= ours && report->plans != NULL) {
            DPE_TRY(dpe_detect_holds(report->grid, report->context, &report->plans[v].plan, &entry,
                                     &report->tables[v], err));
            report->statics[v] =
                report->tables[v] && dpe_detect_is_plain(report->context->config, &entry.values);
        }
    }
    return DPE_OK;
}

static dpe_status validate_task(struct dpe_detect_report *report, struct dpe_detect_result *result,
                                const struct dpe_run *run, struct dpe_error *err)
{
    const char *const *keys = report->keys;
    dpe_detect_scores_free(&result->validate_scores);
    result->validated = false;
    DPE_TRY(dpe_detect_collect(run, result->validate_task, keys, report->n_validated,
                               result->first_validated, result->n_validated, result->together,
                               &result->validate_scores, err));
    DPE_TRY(dpe_detect_validate(&result->validate_scores, keys, result->criterion,
                                /* The paper's procedure keeps what it chose, whatever is shown. */
                                report->rule == DPE_DETECT_PAPER ? NULL : report->tables,
                                &result->validation, err));
    DPE_TRY(find_positions(report, result, run, keys, report->n_validated, true,
                           &result->validate_at, err));
    result->validated = true;
    return DPE_OK;
}

/* What the model as it is finds in its trained length. */
static dpe_status find_ceiling(const struct dpe_detect_report *report,
                               struct dpe_detect_result *result, const struct dpe_run *run,
                               struct dpe_error *err)
{
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    if (result->ceiling_task == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_detect_collect(run, result->ceiling_task, &report->keys[DPE_DETECT_ROPE], 1, 0,
                               result->n_ceiling, result->together, &scores, err));
    result->ceiling = dpe_detect_interval(&scores, 0, DPE_DETECT_RECALL);
    return DPE_OK;
}

/* The comparisons of all validations are of the plan that is kept. */
static dpe_status keep_everywhere(struct dpe_detect_report *report, int kept, struct dpe_error *err)
{
    struct dpe_detect_result *const results[] = {deciding_of(report), &report->users,
                                                 &report->texts};
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        if (results[i]->validated) {
            DPE_TRY(dpe_detect_validate_keep(&results[i]->validate_scores, report->keys, kept,
                                             &results[i]->validation, err));
        }
    }
    return DPE_OK;
}

/* What texts make of the plan that needles chose. */
static dpe_status guard_kept(struct dpe_detect_report *report, int *kept, struct dpe_error *err)
{
    const struct dpe_detect_validation *const needles[2] = {
        &report->results[0].validation, report->users.validated ? &report->users.validation : NULL};
    if (!report->texts.validated) {
        return DPE_OK;
    }
    if (dpe_detect_report_chooses(report)) {
        *kept = dpe_detect_undominated(needles, &report->texts.validation, report->tables, *kept);
        DPE_TRY(keep_everywhere(report, *kept, err));
    }
    report->guard =
        dpe_detect_guard(needles, &report->texts.validation, report->tables, report->guard_share);
    *kept = report->guard.kept;
    return keep_everywhere(report, *kept, err);
}

/* What the search's task and the one that the user named show together, or of methods that are
 * ready the best that a table can hold; then the guard. */
static dpe_status settle_kept(struct dpe_detect_report *report, int *kept, struct dpe_error *err)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    *kept = deciding->validation.kept;
    if (!dpe_detect_sweeps(report->rule)) {
        *kept = dpe_detect_ready_kept(&deciding->validation, report->tables, report->own);
    } else if (report->users.validated) {
        *kept = dpe_detect_kept_by_both(&deciding->validation, &report->users.validation,
                                        report->rule == DPE_DETECT_PAPER ? NULL : report->tables);
    }
    DPE_TRY(keep_everywhere(report, *kept, err));
    return guard_kept(report, kept, err);
}

bool dpe_detect_report_disagrees(const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    return deciding->validated && report->users.validated &&
           dpe_detect_disagree(&deciding->validation, &report->users.validation);
}

/* Which of two plans that need no adapter: one of the final, the better one. */
static bool is_better_plain(const struct dpe_detect_validation *v, int plan, int other)
{
    const bool in_final = dpe_detect_in_final(v, plan);
    const double more = v->value[plan].mean - v->value[other].mean;
    return in_final != dpe_detect_in_final(v, other) ? in_final
           : v->criterion == DPE_DETECT_RECALL       ? more > 0.0
                                                     : more < 0.0;
}

/* Of those that need no adapter the kept plan, else the best. */
static void find_plain(struct dpe_detect_report *report)
{
    const struct dpe_detect_validation *v = &dpe_detect_deciding(report)->validation;
    const bool compares = report->rule == DPE_DETECT_JOINTLY || !dpe_detect_sweeps(report->rule);
    report->plain = -1;
    if (!compares || report->grid->params.frequencies) {
        return;
    }
    for (int i = 0; i < report->n_validated; i++) {
        if (report->statics[i] && v->value[i].n > 0 &&
            (report->plain < 0 || is_better_plain(v, i, report->plain))) {
            report->plain = i;
        }
    }
    report->plain = report->statics[report->kept.plan] ? report->kept.plan : report->plain;
}

dpe_status dpe_detect_report_validation(struct dpe_detect_report *report, const struct dpe_run *run,
                                        struct dpe_error *err)
{
    struct dpe_detect_result *const results[] = {&report->results[0], &report->results[1],
                                                 &report->users, &report->texts};
    int kept = DPE_DETECT_JOINT;
    DPE_TRY(find_tables(report, err));
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        if (results[i]->used) {
            DPE_TRY(validate_task(report, results[i], run, err));
            DPE_TRY(find_ceiling(report, results[i], run, err));
        }
    }
    DPE_TRY(settle_kept(report, &kept, err));
    DPE_TRY(keep(report, kept, err));
    find_plain(report);
    return DPE_OK;
}

void dpe_detect_report_free(struct dpe_detect_report *report)
{
    struct dpe_detect_result *const results[] = {&report->results[0], &report->results[1],
                                                 &report->users, &report->texts};
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        dpe_detect_scores_free(&results[i]->scores);
        dpe_detect_scores_free(&results[i]->validate_scores);
        dpe_detect_ranking_free(&results[i]->ranking);
        free(results[i]->at);
        free(results[i]->validate_at);
    }
    dpe_detect_selection_free(&report->selection);
    dpe_race_free(&report->race);
    dpe_detect_search_free(&report->search);
    dpe_detect_entry_free(&report->kept.entry);
    free(report->scale);
    free(report->selected);
    report->scale = NULL;
    report->selected = NULL;
}

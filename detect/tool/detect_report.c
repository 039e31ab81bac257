/* Rows of a run → what the table and the terminal show. */
#include "detect/tool/detect_table.h"
#include "detect/tool/detect_tool.h"
#include "outputs/h5/rows.h"
#include "outputs/read/read.h"
#include "outputs/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const dpe_detect_rule_names[] = {"search", "paper", "both", NULL};

const struct dpe_detect_result *dpe_detect_deciding(const struct dpe_detect_report *report)
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
    while (n < DPE_POSITIONS && (INT64_C(1) << n) < report->of->grid.params.length) {
        n++;
    }
    return n;
}

/* The scores of n plans, and where in its texts each predicts how well; needles have no such place.
 */
static dpe_status collect(const struct dpe_detect_report *report,
                          const struct dpe_detect_result *result, struct dpe_detect_read *read,
                          const char *const *keys, int n, struct dpe_error *err)
{
    const struct dpe_run *run = report->of->job.run;
    const int buckets = dpe_detect_positions(report);
    dpe_detect_scores_free(&read->scores);
    free(read->at);
    read->at = NULL;
    DPE_TRY(dpe_detect_collect(run, read->task, keys, n, read->first, read->n, result->together,
                               &read->scores, err));
    if (result->criterion == DPE_DETECT_RECALL) {
        return DPE_OK;
    }
    DPE_TRY(DPE_NEW(&read->at, (size_t)n * (size_t)buckets, err, "out of memory for %d plans", n));
    for (int c = 0; c < n; c++) {
        struct dpe_positions positions = {.n = 0};
        for (int64_t s = 0; s < read->n; s++) {
            dpe_positions_add(&positions, dpe_run_find(run, read->task, keys[c], read->first + s));
        }
        for (int b = 0; b < buckets; b++) {
            read->at[c * buckets + b] = dpe_positions_at(&positions, b);
        }
    }
    return DPE_OK;
}

static dpe_status report_task(struct dpe_detect_report *report, struct dpe_detect_result *result,
                              struct dpe_error *err)
{
    const struct dpe_detect_params *params = &report->of->grid.params;
    DPE_OWNED const char **keys = dpe_detect_cell_keys(&report->of->grid);
    dpe_detect_ranking_free(&result->ranking);
    DPE_TRY(DPE_MADE(keys, err, "out of memory for the keys of cells"));
    DPE_TRY(
        collect(report, result, &result->swept, keys, params->n_groups * params->n_lengths, err));
    DPE_TRY(dpe_detect_rank(&result->swept.scores, params->n_groups, params->lengths,
                            params->n_lengths, result->criterion, &result->ranking, err));
    dpe_detect_tell_cells(report, result);
    return DPE_OK;
}

dpe_status dpe_detect_report_sweep(struct dpe_detect_report *report, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &report->of->grid.params;
    size_t n = (size_t)params->n_groups;
    if (report->scale == NULL) {
        report->scale = dpe_alloc(n, sizeof *report->scale);
        report->selected = dpe_alloc(n, sizeof *report->selected);
    }
    DPE_TRY(DPE_MADE(report->scale, err, "out of memory for %zu groups", n));
    DPE_TRY(DPE_MADE(report->selected, err, "out of memory for %zu groups", n));
    for (int i = 0; i < 2; i++) {
        if (report->results[i].used) {
            DPE_TRY(report_task(report, &report->results[i], err));
        }
    }
    for (int g = 0; g < params->n_groups; g++) {
        const int t = dpe_detect_ranked(&dpe_detect_deciding(report)->ranking, g, 1);
        report->selected[g] = t < 0 ? -1 : params->lengths[t];
        report->scale[g] = dpe_detect_joint_scale(params, report->selected[g]);
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------
 * validation */

/* The model as it is, and plans of the sweep, have no spec. */
static dpe_status keep_own(struct dpe_detect_report *report, bool rope, bool base,
                           struct dpe_error *err)
{
    const struct dpe_detect_params *params = &report->of->grid.params;
    struct dpe_table_values *values = &report->entry.values;
    DPE_TRY(dpe_detect_entry_make(&report->of->grid, &report->of->context, &report->entry, err));
    for (int g = 0; g < params->n_groups; g++) {
        const int at = dpe_detect_base_at(params);
        values->scale_factor[g] = rope   ? 1.0
                                  : base ? dpe_detect_base_scale(params)
                                         : report->scale[g];
        values->effective_length[g] = rope   ? (double)params->length
                                      : base ? (at < 0 ? -1.0 : (double)params->lengths[at])
                                             : (double)report->selected[g];
    }
    dpe_table_put_temperature(rope ? &dpe_temperature_none : &params->temperature,
                              report->entry.room, values);
    values->applied_inv_freq = params->still ? values->inv_freq + values->n_pairs : NULL; /* 0 */
    return DPE_OK;
}

/* A plan of a spec. */
static dpe_status keep_named(struct dpe_detect_report *report, struct dpe_error *err)
{
    struct dpe_table_values *values = &report->entry.values;
    bool holds = false;
    DPE_TRY(dpe_detect_holds(&report->of->grid, &report->of->context,
                             &report->validated[report->kept].config.plan, &report->entry, &holds,
                             err));
    for (int64_t g = 0; g < values->n_groups; g++) {
        values->effective_length[g] = round((double)values->length / values->scale_factor[g]);
    }
    return DPE_OK;
}

/* What the table gets. */
static dpe_status keep(struct dpe_detect_report *report, struct dpe_error *err)
{
    const struct dpe_detect_grid *grid = &report->of->grid;
    const double own = grid->params.temperature.logit_scale;
    const char *name = report->validated[report->kept].name;
    dpe_detect_entry_free(&report->entry);
    const bool rope = report->kept == DPE_DETECT_ROPE, base = strcmp(name, "base") == 0;
    DPE_TRY(rope || base || strcmp(name, "joint") == 0 ? keep_own(report, rope, base, err)
                                                       : keep_named(report, err));
    /* That of the model. */
    report->entry.values.attention_scaling =
        sqrt(grid->configs[0].plan.temperature.logit_scale / (own > 0.0 ? own : 1.0));
    return DPE_OK;
}

static dpe_status validate_task(struct dpe_detect_report *report, struct dpe_detect_result *result,
                                struct dpe_error *err)
{
    const char *keys[DPE_DETECT_MOST_VALIDATED];
    for (int v = 0; v < report->n_validated; v++) {
        keys[v] = report->validated[v].config.key;
    }
    result->validated = false;
    DPE_TRY(collect(report, result, &result->checked, keys, report->n_validated, err));
    dpe_detect_validate(&result->checked.scores, keys, result->criterion, report->kept,
                        &result->validation);
    result->validated = true;
    return DPE_OK;
}

/* What the model as it is finds in fewer tokens. */
static dpe_status find_short(const struct dpe_detect_report *report, int64_t together,
                             struct dpe_detect_short *read, struct dpe_error *err)
{
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    const char *key = report->validated[DPE_DETECT_ROPE].config.key;
    if (read->task == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_detect_collect(report->of->job.run, read->task, &key, 1, 0, read->n, together,
                               &scores, err));
    read->found = dpe_detect_interval(&scores, 0, DPE_DETECT_RECALL);
    return DPE_OK;
}

static dpe_status validate_all(struct dpe_detect_report *report, struct dpe_error *err)
{
    for (int i = 0; i < DPE_DETECT_RESULTS; i++) {
        struct dpe_detect_result *result = &report->results[i];
        if (result->used && result->checked.n > 0) {
            DPE_TRY(validate_task(report, result, err));
            for (int at = 0; at < 2; at++) {
                DPE_TRY(find_short(report, result->together, &result->shorter[at], err));
            }
        }
    }
    return DPE_OK;
}

/* Whether a plan loses more perplexity of the texts than the guard lets it. */
static bool is_guarded(const struct dpe_detect_report *report, int plan)
{
    const struct dpe_interval *texts = report->results[DPE_DETECT_GUARD].validation.value;
    double least = INFINITY;
    for (int i = 0; i < report->n_validated && report->results[DPE_DETECT_GUARD].validated; i++) {
        least = fmin(least, texts[i].mean); /* of a NaN the other */
    }
    return report->of->args->guard > 0.0 && isfinite(least) &&
           !(texts[plan].mean <= least * (1.0 + report->of->args->guard));
}

/* Whether the plan that a search chose finds about as much as the model as it is, which fresh
 * samples do not show to be worse. */
static bool is_idle(const struct dpe_detect_report *report)
{
    const struct dpe_detect_validation *v = &dpe_detect_deciding(report)->validation;
    const struct dpe_difference *gain = &v->minus[DPE_DETECT_ROPE];
    const double more = v->criterion == DPE_DETECT_RECALL ? gain->minus.mean : -gain->minus.mean;
    return gain->minus.n > 0 && more <= DPE_DETECT_CLEAR && !is_guarded(report, DPE_DETECT_ROPE) &&
           dpe_detect_judge(gain, v->criterion) != DPE_DETECT_BETTER;
}

/* The plan that a search chose, unless fresh samples show another to be better, by a test that
 * counts how many there are; the model as it is where that plan is not shown to help. */
static int find_kept(const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *own = &report->results[DPE_DETECT_OWN];
    const struct dpe_detect_validation *v = &dpe_detect_deciding(report)->validation;
    const bool recall = v->criterion == DPE_DETECT_RECALL;
    int better = report->kept;
    for (int i = 0; i < report->n_validated; i++) {
        const double more = v->value[i].mean - v->value[better].mean;
        if (report->validated[i].table && !is_guarded(report, i) &&
            (recall ? more > 0.0 : more < 0.0) &&
            dpe_detect_judge(&v->minus[i], v->criterion) == DPE_DETECT_WORSE &&
            v->minus[i].p * report->n_validated < 0.05 &&
            !(own->validated && dpe_detect_judge(&own->validation.minus[i], DPE_DETECT_RECALL) ==
                                    DPE_DETECT_BETTER)) {
            better = i;
        }
    }
    return better == report->chosen && is_idle(report) ? DPE_DETECT_ROPE : better;
}

/* Of those that need no adapter the kept plan, else the one that the search found; none where
 * nothing helps. */
static void find_plain(struct dpe_detect_report *report)
{
    report->plain = -1;
    for (int i = 1;
         i < report->n_validated && report->search.plain > 0 && report->kept != DPE_DETECT_ROPE;
         i++) {
        const char *key = report->search.tried[report->search.plain].key;
        if (strcmp(report->validated[i].config.key, key) == 0) {
            report->plain = i;
        }
    }
    if (report->validated[report->kept].plain) {
        report->plain = report->kept;
    }
}

dpe_status dpe_detect_report_validation(struct dpe_detect_report *report, struct dpe_error *err)
{
    report->kept = report->chosen;
    DPE_TRY(validate_all(report, err));
    if (dpe_detect_searches(report->of->args->rule)) {
        report->kept = find_kept(report);
    }
    if (report->kept != report->chosen) {
        DPE_TRY(validate_all(report, err));
    }
    DPE_TRY(keep(report, err));
    find_plain(report);
    return DPE_OK;
}

void dpe_detect_report_free(struct dpe_detect_report *report)
{
    for (int i = 0; i < DPE_DETECT_RESULTS; i++) {
        struct dpe_detect_result *result = &report->results[i];
        dpe_detect_scores_free(&result->swept.scores);
        dpe_detect_scores_free(&result->checked.scores);
        dpe_detect_ranking_free(&result->ranking);
        free(result->swept.at);
        free(result->checked.at);
    }
    for (int v = 0; v < DPE_DETECT_MOST_VALIDATED; v++) {
        dpe_plan_free(&report->validated[v].config.plan);
    }
    dpe_detect_search_free(&report->search);
    dpe_detect_entry_free(&report->entry);
    free(report->scale);
    free(report->selected);
    report->scale = NULL;
    report->selected = NULL;
}

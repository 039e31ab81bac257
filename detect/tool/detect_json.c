/* The result of dpe-detect for scripts. */
#include "detect/table/detect_table.h"
#include "detect/tool/detect_tool.h"
#include "outputs/datasets/kinds.h"

/* A task's cells. */
static void add_cells(struct dpe_result *out, const struct dpe_detect_report *report,
                      const struct dpe_detect_result *result)
{
    static const char axes[] = "/group /length";
    const bool recall = result->criterion == DPE_DETECT_RECALL;
    struct dpe_scores_result scores;
    struct dpe_ranking_result ranking;
    dpe_detect_cells_of(report, result, &scores, &ranking);
    for (int64_t i = 0; i < ranking.n[DPE_CELLS_GROUP] * ranking.n[DPE_CELLS_LENGTH]; i++) {
        dpe_result_row(out, "cells");
        dpe_result_text(out, "task", result->task);
        dpe_datasets_fields(recall ? &dpe_needle_cells_kind : &dpe_book_cells_kind, &scores, axes,
                            i, out);
        dpe_datasets_fields(&dpe_ranking_kind, &ranking, axes, i, out);
    }
}

static void add_groups(struct dpe_result *out, const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    struct dpe_scores_result scores;
    struct dpe_ranking_result ranking;
    dpe_detect_cells_of(report, result, &scores, &ranking);
    const struct dpe_choices_result choices = {.n = {ranking.n[DPE_CELLS_GROUP]},
                                               .selected = report->selected};
    for (int64_t g = 0; g < ranking.n[DPE_CELLS_GROUP]; g++) {
        dpe_result_row(out, "groups");
        dpe_datasets_fields(&dpe_ranking_kind, &ranking, "/group", g, out);
        dpe_datasets_fields(&dpe_choices_kinds[0], &choices, "/group", g, out);
        dpe_result_number(out, "scale", report->scale[g]);
    }
}

static void add_validation(struct dpe_result *out, const struct dpe_detect_report *report,
                           const struct dpe_detect_result *result)
{
    struct dpe_detect_validated validated;
    dpe_detect_validated_of(report, result, &validated);
    for (int i = 0; i < result->validation.n_plans; i++) {
        dpe_result_row(out, "validation");
        dpe_result_text(out, "task", result->task);
        dpe_datasets_fields(&dpe_validated_scores_kinds[0], &validated.scores, "/validated_plan", i,
                            out);
    }
}

static void add_guard(struct dpe_result *out, const struct dpe_detect_report *report)
{
    const struct dpe_detect_guard *guard = &report->guard;
    dpe_result_row(out, "guard");
    dpe_result_number(out, "share", report->guard_share);
    dpe_result_text(out, "chosen", report->names[guard->chosen]);
    dpe_result_text(out, "kept", report->names[guard->kept]);
    dpe_result_text(out, "best", guard->best >= 0 ? report->names[guard->best] : NULL);
    dpe_result_number(out, "loss", guard->loss);
    dpe_result_flag(out, "traded", guard->traded);
}

dpe_status dpe_detect_print_result(const struct detect_inputs *inputs,
                                   const struct dpe_detect_report *report, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    struct dpe_result *out = dpe_result_begin("dpe-detect");
    dpe_result_text(out, "model", inputs->args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&inputs->job));
    dpe_result_text(out, "table", inputs->args->job.output);
    dpe_result_whole(out, "trained_length", params->trained_length);
    dpe_result_whole(out, "length", params->length);
    dpe_result_whole(out, "window",
                     dpe_detect_deciding(report)->validated ? report->kept.values.window
                                                            : params->window);
    dpe_result_text(out, "rule", dpe_detect_rule_names[report->rule]);
    dpe_result_wholes(out, "lengths", params->lengths, (size_t)params->n_lengths);
    dpe_result_text(out, "verdict",
                    dpe_detect_deciding(report)->validated
                        ? dpe_detect_verdict_text(dpe_detect_deciding(report)->validation.verdict)
                        : NULL);
    if (dpe_detect_deciding(report)->validated) {
        char temperature[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&report->kept.values.temperature, temperature);
        dpe_result_text(out, "kept", report->names[report->kept.plan]);
        dpe_result_text(out, "temperature", temperature);
        if (report->rule == DPE_DETECT_JOINTLY && report->plain >= 0) {
            dpe_result_text(out, "without_adapter", report->names[report->plain]);
        }
        dpe_result_text(out, "groups_add", dpe_detect_worth_names[dpe_detect_report_worth(report)]);
    }
    for (int i = 0; i < 2; i++) {
        if (report->results[i].used) {
            add_cells(out, report, &report->results[i]);
        }
    }
    add_groups(out, report);
    for (int i = 0; i < 2; i++) {
        if (report->results[i].used && report->results[i].validated) {
            add_validation(out, report, &report->results[i]);
        }
    }
    if (report->users.validated) {
        add_validation(out, report, &report->users);
    }
    if (report->texts.validated) {
        add_validation(out, report, &report->texts);
        add_guard(out, report);
    }
    return dpe_result_print(out, inputs->args->job.result, err);
}

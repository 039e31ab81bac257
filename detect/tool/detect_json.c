/* The result of dpe-detect for scripts. */
#include <math.h>
#include <string.h>

#include "detect/tool/detect_tool.h"

static const char *const verdicts[] = {[DPE_DETECT_BETTER] = "better",
                                       [DPE_DETECT_INDISTINCT] = "indistinct",
                                       [DPE_DETECT_WORSE] = "worse",
                                       [DPE_DETECT_UNKNOWN] = "unknown"};

static void add_cells(struct dpe_result *out, const struct detect_inputs *inputs,
                      const struct dpe_detect_result *result)
{
    const struct dpe_detect_ranking *ranking = &result->ranking;
    for (int g = 0; g < ranking->n_groups; g++) {
        for (int t = 0; t < ranking->n_lengths; t++) {
            int at = g * ranking->n_lengths + t;
            dpe_result_row(out, "cells");
            dpe_result_text(out, "task", result->task);
            dpe_result_whole(out, "group", g);
            dpe_result_whole(out, "length", inputs->grid.params.lengths[t]);
            dpe_result_number(out, "mean", ranking->mean[at]);
            dpe_result_number(out, "low", ranking->low[at]);
            dpe_result_number(out, "high", ranking->high[at]);
            dpe_result_whole(out, "samples", ranking->n_valid[at]);
            dpe_result_whole(out, "rank", ranking->rank[at]);
        }
    }
}

static void add_groups(struct dpe_result *out, const struct dpe_detect_report *report)
{
    const struct dpe_detect_ranking *ranking = &dpe_detect_deciding(report)->ranking;
    for (int g = 0; g < ranking->n_groups; g++) {
        dpe_result_row(out, "groups");
        dpe_result_whole(out, "group", g);
        dpe_result_whole(out, "effective_length", ranking->effective[g]);
        dpe_result_whole(out, "selected_length", report->selected[g]);
        dpe_result_number(out, "scale", report->scale[g]);
        dpe_result_number(out, "p_value", ranking->p_value[g]);
        dpe_result_flag(out, "informative", ranking->informative[g]);
    }
}

static void add_validation(struct dpe_result *out, const struct dpe_detect_report *report,
                           const struct dpe_detect_result *result)
{
    const struct dpe_detect_validation *validation = &result->validation;
    for (int i = 0; i < validation->n_plans; i++) {
        dpe_result_row(out, "validation");
        dpe_result_text(out, "task", result->task);
        dpe_result_text(out, "plan", report->names[i]);
        dpe_result_number(out, "mean", validation->value[i].mean);
        dpe_result_number(out, "low", validation->value[i].low);
        dpe_result_number(out, "high", validation->value[i].high);
        dpe_result_whole(out, "samples", validation->value[i].n);
        dpe_result_number(out, "kept_minus", validation->kept_minus[i].mean);
        dpe_result_number(out, "kept_minus_low", validation->kept_minus[i].low);
        dpe_result_number(out, "kept_minus_high", validation->kept_minus[i].high);
        dpe_result_number(out, "p_value", validation->kept_p[i]);
        dpe_result_text(
            out, "kept_is",
            strcmp(report->keys[i], report->keys[validation->kept]) == 0
                ? NULL
                : verdicts[dpe_detect_judge(&validation->kept_minus[i], validation->kept_p[i],
                                            validation->criterion)]);
        dpe_result_whole(out, "samples_needed", validation->kept_needed[i]);
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

static const char *verdict(const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    return result->validated ? verdicts[result->validation.verdict] : NULL;
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
                     dpe_detect_deciding(report)->validated ? report->kept.window : params->window);
    dpe_result_text(out, "rule", dpe_detect_rule_names[report->rule]);
    dpe_result_wholes(out, "lengths", params->lengths, (size_t)params->n_lengths);
    dpe_result_text(out, "verdict", verdict(report));
    if (dpe_detect_deciding(report)->validated) {
        char temperature[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&report->kept.temperature, temperature);
        dpe_result_text(out, "kept", report->names[report->kept.plan]);
        dpe_result_text(out, "temperature", temperature);
        if (report->rule == DPE_DETECT_JOINTLY && report->plain >= 0) {
            dpe_result_text(out, "without_adapter", report->names[report->plain]);
        }
        dpe_result_text(out, "groups_add", dpe_detect_worth_names[dpe_detect_report_worth(report)]);
    }
    for (int i = 0; i < 2; i++) {
        if (report->results[i].used) {
            add_cells(out, inputs, &report->results[i]);
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

/* /race: what was dropped, when and on what grounds. */
#include <stdlib.h>

#include "detect/table/detect_table_internal.h"
#include "outputs/h5/h5_put.h"

static void put_drops(struct table_writer *w, const struct dpe_detect_report *report)
{
    const struct dpe_race *race = &report->race;
    const int64_t *lengths = report->grid->params.lengths;
    int n_lengths = report->grid->params.n_lengths;
    size_t n = (size_t)race->n_drops;
    int32_t *group = dpe_alloc(n, sizeof *group);
    int64_t *numbers = dpe_alloc(3 * n, sizeof *numbers);
    double *values = dpe_alloc(2 * n, sizeof *values);
    if (group == NULL || numbers == NULL || values == NULL) {
        dpe_detect_put_no_memory(w, "decisions", n);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        const struct dpe_race_drop *drop = &race->drops[i];
        group[i] = drop->arm / n_lengths;
        numbers[i] = lengths[drop->arm % n_lengths];
        numbers[n + i] = lengths[drop->leader % n_lengths];
        numbers[2 * n + i] = drop->samples;
        values[i] = drop->difference;
        values[n + i] = drop->p;
    }
    bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    const struct table_axis axis = {"/race/drop", race->n_drops};
    const struct table_entry entries[] = {
        {"/group", DPE_COL_I32, group, "group of the decision", "1", NULL},
        {"/dropped_length", DPE_COL_I64, numbers, "length that was dropped", "tokens", NULL},
        {"/leader_length", DPE_COL_I64, numbers + n, "best length at that time", "tokens", NULL},
        {"/samples", DPE_COL_I64, numbers + 2 * n, "samples that both had been run on", "1", NULL},
        {"/difference", DPE_COL_F64, values, "mean paired advantage of the leader",
         recall ? "1" : "nats/token", NULL},
        {"/p_value", DPE_COL_F64, values + n,
         "one-sided sign-flip test of: the dropped length is better by the indifference", "1",
         NULL},
    };
    dpe_detect_put_count(w, "/race/drop", race->n_drops, "decision, in order");
    dpe_detect_put_entries(w, "/race", entries, COUNT(entries), &axis, 1);
done:
    free(group);
    free(numbers);
    free(values);
}

void dpe_detect_put_race(struct table_writer *w, const struct dpe_detect_report *report)
{
    const struct dpe_race *race = &report->race;
    if (!report->racing) {
        return;
    }
    const struct dpe_detect_params *params = &report->grid->params;
    const struct table_axis axes[] = {{"/group", params->n_groups}, {"/length", params->n_lengths}};
    const struct table_entry entry = {"/dropped_after",
                                      DPE_COL_I64,
                                      race->dropped,
                                      "samples after which the length was dropped, -1 = never",
                                      "1",
                                      NULL};
    dpe_detect_put_entry(w, "/race", &entry, axes, 2);
    put_drops(w, report);
    dpe_detect_put_f64(w, "/race", "level", report->race_options.level);
    dpe_detect_put_f64(w, "/race", "indifference", report->race_options.indifference);
    dpe_detect_put_i64(w, "/race", "per_round", report->race_options.per_round);
    dpe_detect_put_text(w, "/race", "rule",
                        "after each round every length is compared with the best one that is left "
                        "by a paired one-sided sign-flip test (samples of one context are one); "
                        "p < level drops it; half the trained length is never dropped");
}

/* dpe-eval check: whether a table holds on other weights than those that it was measured on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/tool/comparison/comparison.h"
#include "outputs/datasets/worth.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

dpe_status dpe_eval_check_lengths(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const char *path = comparison->args->methods[comparison->args->n_methods - 1];
    struct dpe_table *table = NULL;
    dpe_status status = dpe_table_load(path, &table, err);
    if (status != DPE_OK) {
        return status;
    }
    const struct dpe_table_values *values = dpe_table_values(table);
    const bool same = strcmp(values->model_fingerprint, dpe_job_fingerprint(&comparison->job)) == 0;
    comparison->n_lengths = 0;
    comparison->lengths[comparison->n_lengths++] = comparison->job.trained_length;
    if (values->length > comparison->job.trained_length) {
        comparison->lengths[comparison->n_lengths++] = values->length;
    }
    dpe_log_info("%s: made for %lld tokens, of %s", path, (long long)values->length,
                 same ? "this very model" : "a model of other weights");
    char evidence[DPE_TABLE_EVIDENCE];
    if (dpe_table_evidence(values, evidence)[0] != '\0') {
        dpe_log_info("%s: there it %s", path, evidence);
    }
    if (comparison->n_lengths < 2) {
        status =
            dpe_fail(err, DPE_BAD_DATA,
                     "%s: made for %lld tokens; the model was trained at %lld and needs no "
                     "table for them",
                     path, (long long)values->length, (long long)comparison->job.trained_length);
    }
    dpe_table_close(table);
    return status;
}

/* What follows from recall with the table, without it, and at the trained length. */
static const char *verdict(const struct dpe_interval *with, const struct dpe_interval *without,
                           double possible, double p)
{
    static const double significant = 0.05;
    if (!isfinite(with->mean) || !isfinite(without->mean)) {
        return "Nothing could be measured.";
    }
    if (possible < 0.5) {
        return "The model does not find these needles at its trained length either: ask for easier "
               "ones (--niah keys=1).";
    }
    if (p < significant && with->mean < without->mean) {
        return "The table harms this model: calibrate it (dpe-calibrate).";
    }
    if (p < significant && with->mean >= DPE_WORTH_MOST * possible) {
        return "The table holds on this model.";
    }
    if (p < significant) {
        return "The table helps this model, but less than it could: calibrating may gain more.";
    }
    return without->mean >= DPE_WORTH_MOST * possible
               ? "The model needs no table at this length."
               : "The table is not shown to help this model: more --samples, or calibrate it.";
}

void dpe_eval_print_check(const struct dpe_results *results)
{
    const int64_t last = results->n_tasks - 1;
    struct dpe_worth worth;
    dpe_worth_of(&results->r, last, false, results->against, &worth);
    worth.trained = results->r.task_length[0];
    worth.possible = results->r.mean[0].mean;
    dpe_worth_words(&worth, dpe_print_labelled, NULL);
    dpe_print("%s\n", verdict(&worth.value[DPE_WORTH_TABLE], &worth.value[DPE_WORTH_ALONE],
                              worth.possible, worth.p));
}

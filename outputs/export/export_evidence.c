/* What a check measured under a table, into the table. */
#include "outputs/export/export.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "outputs/datasets/kinds.h"
#include "outputs/datasets/worth.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

/* A check's results: of needles, else of perplexity. */
struct check {
    struct dpe_h5 *file;
    struct dpe_suite_result r;
    bool needles;
    const struct dpe_pooled *pooled; /* NULL: none */
    char task[DPE_FIELD_MOST_TEXT + 1];
};

static dpe_status open_check(const char *path, struct check *check, struct dpe_error *err)
{
    DPE_TRY(dpe_h5_open(path, &check->file, err));
    check->needles = dpe_h5_has(check->file, "/eval/niah");
    if (!check->needles && !dpe_h5_has(check->file, "/eval/ppl")) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected results of dpe-eval niah or ppl", path);
    }
    snprintf(check->task, sizeof check->task, "perplexity");
    if (check->needles) {
        char words[DPE_TASK_WORDS];
        dpe_worth_task(check->file, words);
        snprintf(check->task, sizeof check->task, "needles%s%s", words[0] != '\0' ? ": " : "",
                 words);
    }
    struct dpe_error why = {0};
    dpe_status status = dpe_datasets_get(
        &dpe_suite_kinds[0], &check->r, check->needles ? "/eval/niah" : "/eval/ppl",
        "method task_length mean ci_low ci_high n_valid", check->file, &why);
    return status == DPE_OK ? DPE_OK : dpe_fail(err, status, "%s: %s", path, why.text);
}

static void close_check(struct check *check)
{
    dpe_datasets_free(&dpe_suite_kinds[0], &check->r);
    dpe_h5_close(check->file);
}

static double known(const struct dpe_interval *value)
{
    return isfinite(value->mean) ? value->mean : -1.0;
}

/* What is possible of the check's own task. */
static double possible_of(const struct check *check, const struct dpe_table_values *values)
{
    const struct dpe_pooled *pooled = check->pooled;
    if (pooled != NULL && pooled->length == values->length && pooled->possible > 0.0) {
        return pooled->possible;
    }
    const bool same =
        values->evidence_task != NULL && strcmp(values->evidence_task, check->task) == 0;
    return check->needles && same && values->evidence_possible > 0.0 ? values->evidence_possible
                                                                     : -1.0;
}

/* Fill in what the check has for the length of an entry; the texts are borrowed. */
static bool find_evidence(const struct check *check, struct dpe_table_values *values)
{
    int64_t task = 0;
    while (task < check->r.n[DPE_SUITE_TASK] && check->r.task_length[task] != values->length) {
        task++;
    }
    if (task == check->r.n[DPE_SUITE_TASK]) {
        return false;
    }
    struct dpe_worth worth;
    dpe_worth_of(&check->r, task, !check->needles, -1, &worth);
    const struct dpe_interval *value = &worth.value[DPE_WORTH_TABLE];
    const int64_t method = worth.method[DPE_WORTH_TABLE];
    if (method < 0 || strncmp(check->r.method[method], "table:", 6) != 0 ||
        !isfinite(value->mean)) {
        return false;
    }
    values->evidence_possible = possible_of(check, values);
    values->evidence_task = (char *)(uintptr_t)check->task;
    values->evidence_score = value->mean;
    values->evidence_low = isfinite(value->low) ? value->low : -1.0;
    values->evidence_high = isfinite(value->low) ? value->high : -1.0;
    values->evidence_samples = value->n;
    values->evidence_unchanged = known(&worth.value[DPE_WORTH_ALONE]);
    values->evidence_rival = (char *)(uintptr_t)(worth.rival != NULL ? worth.rival : "none");
    values->evidence_rival_score = known(&worth.value[DPE_WORTH_RIVAL]);
    values->evidence_short_loss = values->frequencies != 0 ? -1.0 : 0.0;
    return true;
}

/* The same table with the evidence, in the place of the one that is given. */
static dpe_status take_evidence(const struct check *check, const char *path,
                                struct dpe_table **table, struct dpe_error *err)
{
    DPE_SCOPED(dpe_tables_close) struct dpe_table *made[DPE_TABLE_ENTRIES] = {0};
    struct dpe_table *joined = NULL;
    const int64_t n = dpe_table_count(*table);
    char why[DPE_TABLE_MESSAGE];
    int64_t found = 0;
    int error = DPE_TABLE_OK;
    for (int64_t i = 0; i < n && error == DPE_TABLE_OK; i++) {
        struct dpe_table_values values = *dpe_table_values(dpe_table_entry(*table, i));
        found += find_evidence(check, &values);
        error = dpe_table_make(&values, &made[i], why);
    }
    if (error == DPE_TABLE_OK) {
        error = dpe_table_join((const struct dpe_table *const *)made, n, &joined, why);
    }
    if (error != DPE_TABLE_OK) {
        return dpe_fail(err, dpe_table_status(error), "%s: %s", path, why);
    }
    dpe_table_close(*table);
    *table = joined;
    return found > 0 ? DPE_OK
                     : dpe_fail(err, DPE_BAD_DATA,
                                "%s: expected results of a table (dpe-eval … --table TABLE) at the "
                                "length of an entry",
                                path);
}

/* In place of what the check found alone. */
static void put_pooled(const struct dpe_pooled *pooled, struct check *check)
{
    const int64_t tasks = check->r.n[DPE_SUITE_TASK];
    for (int64_t m = 0; m < pooled->n_methods && m < check->r.n[DPE_SUITE_METHOD]; m++) {
        for (int64_t t = 0; t < tasks; t++) {
            if (check->r.task_length[t] == pooled->length) {
                check->r.mean[m * tasks + t] = pooled->of[m];
            }
        }
    }
}

dpe_status dpe_export_evidence(const char *path, const struct dpe_pooled *pooled,
                               struct dpe_table **table, struct dpe_identity *origin,
                               struct dpe_error *err)
{
    DPE_SCOPED(close_check) struct check check = {.pooled = pooled};
    DPE_OWNED char *identity = NULL;
    DPE_TRY(open_check(path, &check, err));
    if (pooled != NULL) {
        put_pooled(pooled, &check);
    }
    DPE_TRY(take_evidence(&check, path, table, err));
    if (origin == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_h5_get_attr_text(check.file, "/", "identity", &identity, err));
    return dpe_identity_add(origin, "evidence", identity, err);
}

/* What dpe-eval tune found: its table, its text, and what it would cost. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/tool/tune/tune.h"
#include "outputs/h5/h5.h"

/* ------------------------------------------------------------------------------------------ table
 */

/* One column of the groups or the arms, gathered from structs. */
struct gathered {
    const char *name, *long_name, *units;
    enum dpe_column_type type;
    size_t offset;     /* in struct tune_group or struct tune_arm */
    const char *scale; /* path of the column that names its rows; NULL: it is that one */
};
static const char group_scale[] = "/tune/method";
static const char arm_scale[] = "/tune/setting/spec";

/* The scale of a column of this path, NULL for a scale. */
static const char *scale_of(const char *path)
{
    const char *scale = strncmp(path, "/tune/setting/", 14) == 0 ? arm_scale : group_scale;
    return strcmp(path, scale) == 0 ? NULL : scale;
}

static dpe_status put_column(const char *path, const struct gathered *what, const void *data,
                             int64_t n, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_column column = {.path = path,
                                      .type = what->type,
                                      .rank = 1,
                                      .dims = {n},
                                      .data = data,
                                      .long_name = what->long_name,
                                      .units = what->units,
                                      .scales = {what->scale},
                                      .is_scale = what->scale == NULL};
    return dpe_h5_put(table, &column, err);
}

/* Columns of doubles; `at` names the struct of row i. */
static dpe_status put_numbers(const char *folder, const struct gathered *columns, size_t n_columns,
                              const void *(*at)(const struct tuning *, int64_t),
                              const struct tuning *tuning, int64_t n, struct dpe_h5 *table,
                              struct dpe_error *err)
{
    double *values = dpe_alloc((size_t)n, sizeof *values);
    dpe_status status =
        values == NULL ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for results") : DPE_OK;
    for (size_t c = 0; c < n_columns && status == DPE_OK; c++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", folder, columns[c].name);
        for (int64_t i = 0; i < n; i++) {
            memcpy(&values[i], (const char *)at(tuning, i) + columns[c].offset, sizeof *values);
        }
        status = put_column(path, &columns[c], values, n, table, err);
    }
    free(values);
    return status;
}

static const void *group_at(const struct tuning *tuning, int64_t i)
{
    return &tuning->groups[i];
}

/* Arm i of all groups in their order. */
static const struct tune_arm *arm_of(const struct tuning *tuning, int64_t i, int *group)
{
    *group = 0;
    while (i >= tuning->groups[*group].n_arms) {
        i -= tuning->groups[(*group)++].n_arms;
    }
    return &tuning->groups[*group].arms[i];
}

static const void *arm_at(const struct tuning *tuning, int64_t i)
{
    int group = 0;
    return arm_of(tuning, i, &group);
}

static dpe_status put_text(const char *path, const char *long_name, const char *const *texts,
                           int64_t n, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct gathered what = {
        .long_name = long_name, .units = "1", .type = DPE_COL_STRING, .scale = scale_of(path)};
    return put_column(path, &what, texts, n, table, err);
}

static dpe_status put_count(const char *path, const char *long_name, const char *units,
                            const int64_t *values, int64_t n, struct dpe_h5 *table,
                            struct dpe_error *err)
{
    const struct gathered what = {
        .long_name = long_name, .units = units, .type = DPE_COL_I64, .scale = scale_of(path)};
    return put_column(path, &what, values, n, table, err);
}

static dpe_status put_groups(const struct tuning *tuning, struct dpe_h5 *table,
                             struct dpe_error *err)
{
#define GROUP(name, field, text)                                                                   \
    {                                                                                              \
        name, text, "1", DPE_COL_F64, offsetof(struct tune_group, field), group_scale              \
    }
    static const struct gathered columns[] = {
        GROUP("default_mean", plain.mean, "recall of the method at its defaults, fresh samples"),
        GROUP("default_ci_low", plain.low, "ends of its 95 % interval"),
        GROUP("default_ci_high", plain.high, "ends of its 95 % interval"),
        GROUP("mean", tuned.mean, "recall of the chosen setting, fresh samples"),
        GROUP("ci_low", tuned.low, "ends of its 95 % interval"),
        GROUP("ci_high", tuned.high, "ends of its 95 % interval"),
        GROUP("gain", gain.mean, "chosen setting less the defaults, paired"),
        GROUP("gain_ci_low", gain.low, "ends of its 95 % interval"),
        GROUP("gain_ci_high", gain.high, "ends of its 95 % interval"),
        GROUP("gain_p", gain_p, "sign-flip test of that difference"),
        GROUP("ahead", ahead.mean, "chosen setting less that of the first method, paired"),
        GROUP("ahead_ci_low", ahead.low, "ends of its 95 % interval"),
        GROUP("ahead_ci_high", ahead.high, "ends of its 95 % interval"),
        GROUP("ahead_p", ahead_p, "sign-flip test of that difference"),
    };
#undef GROUP
    int64_t n = tuning->n_groups;
    const char **texts = dpe_alloc((size_t)n, 2 * sizeof *texts);
    int64_t *counts = dpe_alloc((size_t)n, 3 * sizeof *counts);
    dpe_status status = texts == NULL || counts == NULL
                            ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for results")
                            : DPE_OK;
    for (int64_t g = 0; g < n && status == DPE_OK; g++) {
        const struct tune_group *group = &tuning->groups[g];
        texts[g] = group->method;
        texts[n + g] = group->arms[group->chosen].spec;
        counts[g] = tuning->comparison.lengths[group->length];
        counts[n + g] = group->rows;
        counts[2 * n + g] = group->samples;
    }
    if (status == DPE_OK) {
        status = put_text("/tune/method", "method, as it was given", texts, n, table, err);
    }
    if (status == DPE_OK) {
        status =
            put_text("/tune/chosen", "the setting that the race chose", texts + n, n, table, err);
    }
    if (status == DPE_OK) {
        status = put_count("/tune/length", "prompt and answer together", "tokens", counts, n, table,
                           err);
    }
    if (status == DPE_OK) {
        status = put_count("/tune/rows", "rows of the race", "1", counts + n, n, table, err);
    }
    if (status == DPE_OK) {
        status = put_count("/tune/samples", "samples that every setting in the race at its end has",
                           "1", counts + 2 * n, n, table, err);
    }
    if (status == DPE_OK) {
        status = put_numbers("/tune", columns, sizeof columns / sizeof columns[0], group_at, tuning,
                             n, table, err);
    }
    free(texts);
    free(counts);
    return status;
}

static dpe_status put_arms(const struct tuning *tuning, struct dpe_h5 *table, struct dpe_error *err)
{
    static const struct gathered columns[] = {
        {"mean", "recall in the race", "1", DPE_COL_F64, offsetof(struct tune_arm, mean),
         arm_scale},
    };
    int64_t n = 0;
    for (int g = 0; g < tuning->n_groups; g++) {
        n += tuning->groups[g].n_arms;
    }
    const char **texts = dpe_alloc((size_t)n, 2 * sizeof *texts);
    int64_t *counts = dpe_alloc((size_t)n, 3 * sizeof *counts);
    dpe_status status = texts == NULL || counts == NULL
                            ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for results")
                            : DPE_OK;
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        int group = 0;
        const struct tune_arm *arm = arm_of(tuning, i, &group);
        texts[i] = arm->spec;
        texts[n + i] = arm->key;
        counts[i] = group;
        counts[n + i] = arm->samples;
        counts[2 * n + i] = arm->dropped;
    }
    if (status == DPE_OK) {
        status = put_text("/tune/setting/spec", "a setting that raced", texts, n, table, err);
    }
    if (status == DPE_OK) {
        status = put_text("/tune/setting/plan", "key in /plans/plan", texts + n, n, table, err);
    }
    if (status == DPE_OK) {
        status =
            put_count("/tune/setting/of", "index into /tune/method", "1", counts, n, table, err);
    }
    if (status == DPE_OK) {
        status = put_count("/tune/setting/samples", "samples that it ran", "1", counts + n, n,
                           table, err);
    }
    if (status == DPE_OK) {
        status = put_count("/tune/setting/dropped",
                           "samples after which it was dropped, -1 = in the race at its end", "1",
                           counts + 2 * n, n, table, err);
    }
    if (status == DPE_OK) {
        status = put_numbers("/tune/setting", columns, sizeof columns / sizeof columns[0], arm_at,
                             tuning, n, table, err);
    }
    free(texts);
    free(counts);
    return status;
}

dpe_status dpe_tune_put(const struct tuning *tuning, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct eval_arguments *args = tuning->comparison.args;
    dpe_status status = put_groups(tuning, table, err);
    if (status == DPE_OK) {
        status = put_arms(tuning, table, err);
    }
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"seed", (int64_t)args->job.seed},
                   {"trained_length", tuning->comparison.job.trained_length},
                   {"official", args->official},
                   {"budget", tuning->budget},
                   {"fresh_samples", tuning->fresh},
                   {"first_fresh_sample", dpe_tune_first_fresh(tuning)},
                   {"samples_together", dpe_tune_task(tuning, 0)->task.together}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == DPE_OK; i++) {
        status = dpe_h5_attr_i64(table, "/tune", numbers[i].name, numbers[i].value, err);
    }
    return status == DPE_OK
               ? dpe_h5_attr_text(table, "/", "title",
                                  "Settings of position methods, found with as many rows for each",
                                  err)
               : status;
}

/* ------------------------------------------------------------------------------------------- text
 */

static void print_share(const struct dpe_interval *share, char text[48])
{
    if (isnan(share->mean)) {
        snprintf(text, 48, "n/a");
    } else if (isnan(share->low)) {
        snprintf(text, 48, "%.1f", 100.0 * share->mean);
    } else {
        snprintf(text, 48, "%.1f [%.1f, %.1f]", 100.0 * share->mean, 100.0 * share->low,
                 100.0 * share->high);
    }
}

static void print_gain(const struct dpe_interval *gain, double p, char text[48])
{
    if (isnan(gain->mean)) {
        snprintf(text, 48, "n/a");
    } else {
        snprintf(text, 48, "%+.1f (p %.3f)", 100.0 * gain->mean, p);
    }
}

static void print_length(const struct tuning *tuning, int length)
{
    int n_methods = tuning->comparison.args->n_methods;
    printf("niah at %lld tokens: recall in percent on %lld fresh samples, 95 %% intervals\n",
           (long long)tuning->comparison.lengths[length], (long long)tuning->fresh);
    printf("%-13s %8s %6s  %-20s %-20s %-17s %-17s %s\n", "method", "settings", "rows", "defaults",
           "tuned", "tuned - defaults", "tuned - first", "chosen");
    for (int g = length * n_methods; g < (length + 1) * n_methods; g++) {
        const struct tune_group *group = &tuning->groups[g];
        char plain[48], tuned[48], gain[48], ahead[48];
        print_share(&group->plain, plain);
        print_share(&group->tuned, tuned);
        print_gain(&group->gain, group->gain_p, gain);
        print_gain(&group->ahead, group->ahead_p, ahead);
        printf("%-13.*s %8d %6lld  %-20s %-20s %-17s %-17s %s\n", (int)strcspn(group->method, ":"),
               group->method, group->n_arms, (long long)group->rows, plain, tuned, gain, ahead,
               group->arms[group->chosen].spec);
    }
}

static void add_interval(struct dpe_result *out, const struct dpe_interval *interval,
                         const char *const names[3])
{
    dpe_result_number(out, names[0], interval->mean);
    dpe_result_number(out, names[1], interval->low);
    dpe_result_number(out, names[2], interval->high);
}

static struct dpe_result *begin_document(const struct tuning *tuning)
{
    const struct eval_arguments *args = tuning->comparison.args;
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
    static const char *const plain[] = {"default_mean", "default_low", "default_high"};
    static const char *const tuned[] = {"mean", "low", "high"};
    static const char *const gain[] = {"gain", "gain_low", "gain_high"};
    static const char *const ahead[] = {"ahead", "ahead_low", "ahead_high"};
    struct dpe_result *out = begin_document(tuning);
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        dpe_result_row(out, "results");
        dpe_result_whole(out, "length", tuning->comparison.lengths[group->length]);
        dpe_result_text(out, "method", group->method);
        dpe_result_text(out, "chosen", group->arms[group->chosen].spec);
        dpe_result_whole(out, "settings", group->n_arms);
        dpe_result_whole(out, "rows", group->rows);
        dpe_result_whole(out, "samples", group->tuned.n);
        add_interval(out, &group->plain, plain);
        add_interval(out, &group->tuned, tuned);
        add_interval(out, &group->gain, gain);
        dpe_result_number(out, "gain_p", group->gain_p);
        add_interval(out, &group->ahead, ahead);
        dpe_result_number(out, "ahead_p", group->ahead_p);
    }
    return dpe_result_print(out, tuning->comparison.args->job.result, err);
}

dpe_status dpe_tune_print(const struct tuning *tuning, struct dpe_error *err)
{
    if (tuning->comparison.args->job.result != DPE_RESULT_TEXT) {
        return print_document(tuning, err);
    }
    for (int l = 0; l < tuning->comparison.n_lengths; l++) {
        print_length(tuning, l);
    }
    printf("p: sign-flip test on the same samples, not corrected for the number of tests\n");
    return DPE_OK;
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

/* What a group may run at most: its race, and the default and the chosen setting on fresh samples. */
static int64_t race_rows(const struct tuning *tuning, const struct tune_group *group)
{
    return group->n_arms > 1 ? tuning->budget : 0;
}

static int64_t fresh_rows(const struct tuning *tuning, const struct tune_group *group)
{
    return (group->n_arms > 1 ? 2 : 1) * tuning->fresh;
}

static dpe_status print_cost_text(const struct tuning *tuning, const double *rows,
                                  struct dpe_error *err)
{
    const struct comparison *comparison = &tuning->comparison;
    printf("model            %s\n", comparison->args->job.model);
    printf("%-16s %8s %8s %12s %6s\n", "method", "length", "settings", "race, rows", "fresh");
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        printf("%-16.*s %8lld %8d %12lld %6lld\n", (int)strcspn(group->method, ":"), group->method,
               (long long)comparison->lengths[group->length], group->n_arms,
               (long long)race_rows(tuning, group), (long long)fresh_rows(tuning, group));
    }
    return dpe_eval_print_cost(comparison, slowest_plan(tuning), rows, err);
}

static dpe_status print_cost_document(const struct tuning *tuning, struct dpe_error *err)
{
    const struct comparison *comparison = &tuning->comparison;
    struct dpe_result *out = begin_document(tuning);
    int64_t rows = 0;
    double tokens = 0.0;
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        int64_t n = race_rows(tuning, group) + fresh_rows(tuning, group);
        rows += n;
        tokens += (double)n * (double)comparison->lengths[group->length];
        dpe_result_row(out, "methods");
        dpe_result_text(out, "method", group->method);
        dpe_result_whole(out, "length", comparison->lengths[group->length]);
        dpe_result_whole(out, "settings", group->n_arms);
        dpe_result_whole(out, "race_rows", race_rows(tuning, group));
        dpe_result_whole(out, "fresh_rows", fresh_rows(tuning, group));
    }
    dpe_result_row(out, NULL);
    dpe_result_whole(out, "rows", rows);
    dpe_result_number(out, "tokens", tokens);
    return dpe_result_print(out, comparison->args->job.result, err);
}

dpe_status dpe_tune_print_cost(const struct tuning *tuning, struct dpe_error *err)
{
    if (tuning->comparison.args->job.result != DPE_RESULT_TEXT) {
        return print_cost_document(tuning, err);
    }
    double *rows = dpe_alloc_zero((size_t)tuning->comparison.n_lengths, sizeof *rows);
    if (rows == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct tune_group *group = &tuning->groups[g];
        rows[group->length] +=
            (double)race_rows(tuning, group) + (double)fresh_rows(tuning, group);
    }
    dpe_status status = print_cost_text(tuning, rows, err);
    free(rows);
    return status;
}

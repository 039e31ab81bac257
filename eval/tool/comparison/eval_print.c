/* Results as text: tables in the paper's layout, intervals, heat maps, what a check says; and for
 * scripts. */
#include "engine/base/p_text.h"
#include "eval/tool/comparison/comparison.h"
#include "outputs/datasets/kinds.h"
#include "outputs/datasets/worth.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LABEL = 40, MAX_COLUMNS = 128 };
static const double significant = 0.05;

/* A column of the overview: a task, or else a category at a length, or a bucket of positions. */
struct column {
    char header[32];
    int task, bucket;
    const char *category;
    int64_t length;
};

static double value_of(const struct dpe_results *results, int method, const struct column *column)
{
    if (column->category != NULL) {
        return dpe_results_category(results, method, column->category, column->length);
    }
    size_t at = dpe_results_cell(results, method, column->task);
    return column->bucket >= 0
               ? results->r
                     .position_mean[at * (size_t)results->n_positions + (size_t)column->bucket]
               : results->r.mean[at].mean;
}

/* '+': better than the method `against` beyond noise, '-': worse, ' ': neither, or not tested. */
static char mark_of(const struct dpe_results *results, int method, const struct column *column)
{
    if (column->category != NULL || column->bucket >= 0 || method == results->against) {
        return ' ';
    }
    size_t at = dpe_results_cell(results, method, column->task);
    bool higher = results->r.difference[at].minus.low > 0.0;
    bool lower = results->r.difference[at].minus.high < 0.0;
    if (!(results->r.difference[at].p < significant) || (!higher && !lower)) {
        return ' ';
    }
    return higher != results->suite->perplexity ? '+' : '-';
}

static void print_cell(const struct dpe_results *results, int method, const struct column *column,
                       int width)
{
    char text[32];
    double value = value_of(results, method, column);
    if (isnan(value)) {
        snprintf(text, sizeof text, "n/a");
    } else if (results->suite->perplexity) {
        snprintf(text, sizeof text, value < 1000.0 ? "%.2f" : "%.3g", value);
    } else {
        snprintf(text, sizeof text, "%.1f", 100.0 * value);
    }
    dpe_print(" %*s%c", width - 2, text, mark_of(results, method, column));
}

static int label_width(const struct dpe_results *results)
{
    size_t width = 6;
    for (int m = 0; m < results->n_methods; m++) {
        size_t n = strlen(results->r.method[m]);
        width = n > width ? n : width;
    }
    return width > MAX_LABEL ? MAX_LABEL : (int)width;
}

/* As many columns as fit beside the names, the others in blocks below. */
static void print_columns(const struct dpe_results *results, const struct column *columns, int n)
{
    int label = label_width(results);
    int width = 8;
    for (int c = 0; c < n; c++) {
        int needed = (int)strlen(columns[c].header) + 2;
        width = needed > width ? needed : width;
    }
    int fit = (dpe_terminal_width(stdout) - label) / width;
    fit = fit < 1 ? 1 : fit;
    for (int begin = 0; begin < n; begin += fit) {
        int end = begin + fit < n ? begin + fit : n;
        dpe_print("%-*s", label, "method");
        for (int c = begin; c < end; c++) {
            dpe_print(" %*s ", width - 2, columns[c].header);
        }
        dpe_print("\n");
        for (int m = 0; m < results->n_methods; m++) {
            dpe_print("%-*.*s", label, label, results->r.method[m]);
            for (int c = begin; c < end; c++) {
                print_cell(results, m, &columns[c], width);
            }
            dpe_print("\n");
        }
    }
}

static bool one_label(const struct dpe_suite *suite)
{
    for (size_t t = 1; t < suite->n_tasks; t++) {
        if (strcmp(suite->tasks[t].label, suite->tasks[0].label) != 0) {
            return false;
        }
    }
    return true;
}

static int columns_by_length(const struct dpe_suite *suite, struct column *columns)
{
    int n = 0;
    for (; (size_t)n < suite->n_tasks && n < MAX_COLUMNS; n++) {
        columns[n] = (struct column){.task = n, .bucket = -1};
        snprintf(columns[n].header, sizeof columns[n].header, "%lld",
                 (long long)suite->tasks[n].length);
    }
    return n;
}

static int columns_of_length(const struct dpe_suite *suite, int64_t length, struct column *columns)
{
    const char *categories[MAX_COLUMNS];
    int n_categories = dpe_results_categories(suite, categories, MAX_COLUMNS / 2);
    int n = 0;
    for (int c = 0; c < n_categories; c++) {
        columns[n] = (struct column){.bucket = -1, .category = categories[c], .length = length};
        snprintf(columns[n].header, sizeof columns[n].header, "%s", categories[c]);
        n++;
    }
    for (size_t t = 0; t < suite->n_tasks && n < MAX_COLUMNS; t++) {
        if (suite->tasks[t].length == length) {
            columns[n] = (struct column){.task = (int)t, .bucket = -1};
            snprintf(columns[n].header, sizeof columns[n].header, "%s", suite->tasks[t].label);
            n++;
        }
    }
    return n;
}

/* What a cell of the suite means. */
static const char *measure(const struct dpe_results *results)
{
    return results->suite->perplexity ? "perplexity by token" : results->suite->score;
}

static void print_overview(const struct dpe_results *results)
{
    static struct column columns[MAX_COLUMNS];
    const struct dpe_suite *suite = results->suite;
    const char *unit = suite->perplexity ? "" : ", %";
    if (one_label(suite)) {
        dpe_print("%s: %s%s, by length (%s: %lld)\n", suite->name, measure(results), unit,
                  suite->perplexity ? "books" : "samples", (long long)results->n_samples);
        print_columns(results, columns, columns_by_length(suite, columns));
        return;
    }
    int64_t lengths[EVAL_MAX_LENGTHS];
    int n_lengths = dpe_results_lengths(suite, lengths, EVAL_MAX_LENGTHS);
    for (int l = 0; l < n_lengths; l++) {
        dpe_print("%s at %lld tokens: %s%s (samples of a task: %lld)\n", suite->name,
                  (long long)lengths[l], measure(results), unit, (long long)results->n_samples);
        print_columns(results, columns, columns_of_length(suite, lengths[l], columns));
    }
}

static void print_positions(const struct dpe_results *results, int task)
{
    static struct column columns[MAX_COLUMNS];
    for (int b = 0; b < results->n_positions; b++) {
        columns[b] = (struct column){.task = task, .bucket = b};
        snprintf(columns[b].header, sizeof columns[b].header, "%lld", (long long)1 << b);
    }
    dpe_print("%s: perplexity by position, from the given one to the next\n",
              results->suite->tasks[task].task.name);
    print_columns(results, columns, results->n_positions);
}

/* One context has no interval. */
static void print_interval(const struct dpe_interval *interval, bool sign)
{
    if (isnan(interval->low) || isnan(interval->high)) {
        dpe_print("%*s", 16, "");
    } else {
        dpe_print(sign ? "[%+6.3f, %+6.3f]" : "[%6.4g, %6.4g]", interval->low, interval->high);
    }
}

static void print_details(const struct dpe_results *results, int task)
{
    bool ppl = results->suite->perplexity;
    const struct dpe_suite_task *suite_task = &results->suite->tasks[task];
    dpe_print("%s, 95 %% intervals (%s: %lld", suite_task->task.name, ppl ? "books" : "samples",
              (long long)suite_task->n_samples);
    if (suite_task->task.together > 1) {
        dpe_print(", %lld of a context count as one", (long long)suite_task->task.together);
    }
    dpe_print(")\n");
    if (results->n_methods > 1) {
        dpe_print("differences are to %s\n", results->r.method[results->against]);
    }
    dpe_print("%8s %16s %7s %23s %7s method\n", ppl ? "by token" : "score", "interval",
              ppl                    ? "by word"
              : results->suite->half ? "half"
                                     : "",
              ppl ? "difference, nats/token" : "difference", "p");
    for (int m = 0; m < results->n_methods; m++) {
        size_t at = dpe_results_cell(results, m, task);
        const struct dpe_interval *mean = &results->r.mean[at];
        const struct dpe_difference *difference = &results->r.difference[at];
        dpe_print("%8.4g ", mean->mean);
        print_interval(mean, false);
        dpe_print(" ");
        if (ppl) {
            dpe_print("%7.5g ", results->r.word[at].mean);
        } else if (results->suite->half) {
            dpe_print("%7.4g ", results->r.half_mean[at]);
        } else {
            dpe_print("%7s ", "");
        }
        if (m == results->against) {
            dpe_print("%23s %7s", "", "");
        } else {
            dpe_print("%+6.3f ", difference->minus.mean);
            print_interval(&difference->minus, true);
            char p[DPE_P_TEXT];
            dpe_p_text(difference->p, p);
            dpe_print(" %7s", p + (p[2] == '=' ? 4 : 2)); /* the column says p */
        }
        dpe_print(" %s\n", results->r.method[m]);
    }
}

/* Samples without a number do not count as 0: report how many are missing. */
static void print_gaps(const struct dpe_results *results)
{
    int64_t nonfinite = 0;
    size_t n = (size_t)results->n_methods * (size_t)results->n_tasks * (size_t)results->n_samples;
    for (size_t i = 0; i < n; i++) {
        nonfinite += results->r.status[i] == DPE_ROW_NONFINITE;
    }
    if (nonfinite > 0) {
        dpe_print("left out %lld samples with NaN or infinity in their logits\n",
                  (long long)nonfinite);
    }
}

void dpe_eval_print(const struct dpe_results *results, bool details)
{
    print_overview(results);
    if (results->n_methods > 1) {
        dpe_print("+ better, - worse than %s: p < %g in a paired test on the same\nsamples, not "
                  "corrected for the number of tests\n",
                  results->r.method[results->against], significant);
    }
    print_gaps(results);
    for (int t = 0; t < results->n_tasks && (details || results->n_tasks == 1); t++) {
        dpe_print("\n");
        print_details(results, t);
        if (results->n_positions > 0 && details) {
            print_positions(results, t);
        }
    }
    dpe_print("\n");
}

/* From red over yellow to green, of the 256 terminal colours. */
static int colour_of(double share)
{
    static const int ramp[] = {196, 202, 208, 214, 220, 226, 190, 154, 118, 82, 46};
    int steps = (int)(sizeof ramp / sizeof ramp[0]) - 1;
    return ramp[(int)lround(share * steps)];
}

static void print_share(double share, bool colours)
{
    if (isnan(share)) {
        dpe_print("    n/a ");
    } else if (colours) {
        dpe_print(" \033[30;48;5;%dm %4.0f  \033[0m", colour_of(share), 100.0 * share);
    } else {
        dpe_print("  %4.0f  ", 100.0 * share);
    }
}

void dpe_eval_print_grid(const struct dpe_results *results, const double *depths, int n_depths)
{
    bool colours = dpe_terminal_color(stdout);
    int n_lengths = results->n_tasks / n_depths;
    for (int m = 0; m < results->n_methods; m++) {
        dpe_print("%s: one needle found, %% of the %lld samples of a cell\n", results->r.method[m],
                  (long long)results->n_samples);
        dpe_print("depth  ");
        for (int l = 0; l < n_lengths; l++) {
            dpe_print(" %6lld ", (long long)results->suite->tasks[l * n_depths].length);
        }
        dpe_print("\n");
        for (int d = 0; d < n_depths; d++) {
            dpe_print("%5.4g%% ", 100.0 * depths[d]);
            for (int l = 0; l < n_lengths; l++) {
                print_share(results->r.mean[dpe_results_cell(results, m, l * n_depths + d)].mean,
                            colours);
            }
            dpe_print("\n");
        }
    }
    print_gaps(results);
}

/* --------------------------------------------------------------------------------------- check */

dpe_status dpe_eval_check_lengths(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const char *path = comparison->args->methods[comparison->args->n_methods - 1];
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_TRY(dpe_table_load(path, &table, err));
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
    return comparison->n_lengths < 2
               ? dpe_fail(err, DPE_BAD_DATA,
                          "%s: made for %lld tokens; the model was trained at %lld and needs no "
                          "table for them",
                          path, (long long)values->length,
                          (long long)comparison->job.trained_length)
               : DPE_OK;
}

/* What follows from recall with the table, without it, and at the trained length. */
static const char *verdict(const struct dpe_interval *with, const struct dpe_interval *without,
                           double possible, double p)
{
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

/* --------------------------------------------------------------------------------- for scripts */

struct dpe_result *dpe_eval_result_begin(const struct dpe_comparison *comparison)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_result *out = dpe_result_begin("dpe-eval");
    dpe_result_text(out, "model", args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&comparison->job));
    dpe_result_text(out, "table", args->job.output);
    dpe_result_whole(out, "trained_length", comparison->job.trained_length);
    dpe_result_whole(out, "seed", (int64_t)args->job.seed);
    dpe_result_text(out, "against", comparison->labels[comparison->against]);
    dpe_result_text(out, "ablation", args->what);
    return out;
}

/* The method that the others are compared with differs in nothing from itself. */
void dpe_eval_result_add(struct dpe_result *out, const struct dpe_results *results)
{
    for (int64_t i = 0; i < (int64_t)results->n_tasks * results->n_methods; i++) {
        const int64_t m = i % results->n_methods;
        const int64_t at = m * results->n_tasks + i / results->n_methods;
        struct dpe_suite_result r = results->r;
        r.difference = m == results->against ? NULL : r.difference;
        dpe_result_row(out, "results");
        dpe_result_text(out, "suite", results->suite->name);
        dpe_result_text(out, "measure",
                        results->suite->perplexity ? "perplexity" : results->suite->score);
        dpe_datasets_fields(&dpe_suite_kinds[0], &r, "/method task", at, out);
    }
}

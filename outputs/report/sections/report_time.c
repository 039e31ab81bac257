/* Time and memory of the runs. */
#include "outputs/report/sections/sections.h"
#include "outputs/rows/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Rows of one task under one method (or of all methods, where these are configurations). */
struct bucket {
    const struct input *input;
    char task[32], method[96];
    double *seconds;
    size_t n;
    double total, prompt;
};

struct buckets {
    struct bucket *buckets;
    size_t n;
};

static void buckets_free(struct buckets *all)
{
    for (size_t i = 0; i < all->n; i++) {
        free(all->buckets[i].seconds);
    }
    free(all->buckets);
}

static struct bucket *find_bucket(struct buckets *all, const struct input *input, const char *task,
                                  const char *method)
{
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *one = &all->buckets[i];
        if (one->input == input && strcmp(one->task, task) == 0 &&
            strcmp(one->method, method) == 0) {
            return one;
        }
    }
    if (!dpe_make_room(&all->buckets, all->n, sizeof *all->buckets)) {
        return NULL;
    }
    struct bucket *one = &all->buckets[all->n++];
    *one = (struct bucket){.input = input};
    snprintf(one->task, sizeof one->task, "%s", task);
    snprintf(one->method, sizeof one->method, "%s", method);
    return one;
}

static bool add_row(struct bucket *bucket, const struct dpe_row *row)
{
    if (bucket == NULL || !dpe_make_room(&bucket->seconds, bucket->n, sizeof *bucket->seconds)) {
        return false;
    }
    bucket->seconds[bucket->n++] = row->seconds;
    bucket->total += row->seconds;
    int64_t tokens = row->prompt_tokens > 0 ? row->prompt_tokens : row->n_tokens;
    bucket->prompt += tokens > 0 ? (double)tokens : 0.0;
    return true;
}

enum { MOST_SUITES = 32 };

/** Plans by their keys, with the names given on the command line: lists of keys, as long as that of
 * the names or a multiple of it. */
struct plans {
    struct names words, keys[MOST_SUITES];
    size_t n;
};

static void plans_free(struct plans *plans)
{
    dpe_input_names_free(&plans->words);
    for (size_t i = 0; i < plans->n; i++) {
        dpe_input_names_free(&plans->keys[i]);
    }
}

/* A comparison has the plan of each method at each length, suite by suite. */
static dpe_status read_plans(const struct input *input, struct plans *plans, struct dpe_error *err)
{
    char **suites = NULL;
    size_t n = 0;
    DPE_TRY(dpe_input_read_names(input, "/method", -1, &plans->words, err));
    if (plans->words.n == 0) {
        DPE_TRY(dpe_input_read_names(input, "/plans/plan", -1, &plans->keys[0], err));
        plans->n = 1;
        return dpe_input_read_names(input, "/plans/name", (int64_t)plans->keys[0].n, &plans->words,
                                    err);
    }
    dpe_status status = dpe_h5_list(input->table, "/eval", &suites, &n, err);
    for (size_t s = 0; s < n && plans->n < MOST_SUITES && status == DPE_OK; s++) {
        char *path = dpe_draw_format_text("/eval/%s/plan", suites[s]);
        status = path != NULL ? dpe_input_read_names(input, path, -1, &plans->keys[plans->n++], err)
                              : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
        free(path);
    }
    dpe_strings_free(suites, n);
    return status;
}

static const char *plan_words(const struct plans *plans, const char *plan)
{
    for (size_t s = 0; s < plans->n; s++) {
        const struct names *keys = &plans->keys[s];
        const size_t each = plans->words.n > 0 ? keys->n / plans->words.n : 0;
        for (size_t i = 0; i < each * plans->words.n; i++) {
            if (strcmp(keys->names[i], plan) == 0) {
                return plans->words.names[i / each];
            }
        }
    }
    return "";
}

static dpe_status collect(const struct input *input, struct buckets *all, struct dpe_error *err)
{
    struct plans plans = {0};
    struct dpe_row *rows = NULL;
    size_t n = 0;
    /* The plans of a sweep are its configurations: they are taken together. */
    bool sweep = strcmp(input->kind, "detect") == 0;
    dpe_status status = sweep ? DPE_OK : read_plans(input, &plans, err);
    if (status == DPE_OK && (status = dpe_h5_get_rows(input->table, &rows, &n, err)) != DPE_OK) {
        dpe_fail_prefix(err, "%s", input->path);
    }
    for (size_t i = 0; i < n; i++) {
        if (status == DPE_OK && rows[i].status == DPE_ROW_OK && rows[i].seconds >= 0.0) {
            struct bucket *bucket =
                find_bucket(all, input, rows[i].task, plan_words(&plans, rows[i].plan));
            if (!add_row(bucket, &rows[i])) {
                status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
            }
        }
        dpe_row_free(&rows[i]);
    }
    free(rows);
    plans_free(&plans);
    return status;
}

/* Median and middle half. */
static struct sheet_cell seconds_cell(const struct bucket *one)
{
    return dpe_interval_cell(one->seconds[one->n / 2], one->seconds[one->n / 4],
                             one->seconds[one->n - 1 - one->n / 4]);
}

static void add_table(struct report *report, const struct buckets *all)
{
    struct sheet *sheet = dpe_report_sheet(report, "time",
                                           "file:t|task:t|method:t|samples:0|median and middle "
                                           "half, s:i3|total, s:1|tokens read per s:0",
                                           "Time per sample");
    for (size_t i = 0; i < all->n; i++) {
        const struct bucket *one = &all->buckets[i];
        dpe_draw_row(sheet, one->input->name, one->task,
                     one->method[0] != '\0' ? one->method : "all configurations", one->n,
                     seconds_cell(one), one->total,
                     one->total > 0.0 ? one->prompt / one->total : (double)NAN);
    }
    dpe_draw_shown(sheet, 0, all->n > 8);
    dpe_report_add(report, sheet);
}

/* Seconds in order within each, and what took longest in all first. */
static int compare_totals(const void *a, const void *b)
{
    double x = ((const struct bucket *)a)->total;
    double y = ((const struct bucket *)b)->total;
    return x > y ? -1 : x < y;
}

static void sort_buckets(struct buckets *all)
{
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *one = &all->buckets[i];
        dpe_sort(one->seconds, one->n);
    }
    qsort(all->buckets, all->n, sizeof *all->buckets, compare_totals);
}

/* The twelve with the largest total: the table has the rest. */
static void add_dots(struct report *report, const struct buckets *all)
{
    enum { SHOWN = 12 };
    const struct plot plot = {
        .kind = PLOT_DOTS, .high = (double)NAN, .digits = 2, .x_title = "seconds"};
    struct sheet *sheet = dpe_report_sheet(
        report, "time-samples", "what:t|seconds, median and middle half:i3", "Seconds per sample");
    for (size_t i = 0; i < all->n && i < SHOWN; i++) {
        const struct bucket *one = &all->buckets[i];
        char *name = one->method[0] != '\0'
                         ? dpe_draw_format_text("%s %s", one->task, one->method)
                         : dpe_draw_format_text("%s (%s)", one->task, one->input->kind);
        dpe_draw_row(sheet, name, seconds_cell(one));
        free(name);
    }
    dpe_report_figure(report, sheet, &plot,
                      "The median time of a sample; the bar is the middle half of the "
                      "samples. The twelve tasks with the largest total time are shown. "
                      "Times depend on the machine and its load; they are not part of a "
                      "result's identity.");
}

static void add_memory(struct report *report)
{
    struct sheet *sheet = dpe_report_sheet(report, "memory", "file:t|most resident, MiB:0",
                                           "Memory of the process that wrote the table");
    for (size_t i = 0; i < report->n; i++) {
        int64_t bytes = dpe_input_read_whole(&report->inputs[i], "/run", "peak_memory_bytes", 0);
        if (bytes > 0) {
            dpe_draw_row(sheet, report->inputs[i].name, (double)bytes / 1048576.0);
        }
    }
    if (sheet == NULL || sheet->failed || sheet->n_cells > 0) {
        dpe_report_add(report, sheet);
    } else {
        dpe_draw_sheet_free(sheet);
    }
}

dpe_status dpe_sections_time(struct report *report, struct dpe_error *err)
{
    struct buckets all = {0};
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/run/seconds")) {
            status = collect(&report->inputs[i], &all, err);
        }
    }
    if (status == DPE_OK && all.n > 0) {
        dpe_report_section(report, "Time and memory");
        sort_buckets(&all);
        add_dots(report, &all);
        add_table(report, &all);
        add_memory(report);
    }
    buckets_free(&all);
    return status;
}

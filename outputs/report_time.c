/* Time and memory of the runs. */
#include "report_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Rows of one task under one method (or of all methods, where these are configurations). */
struct bucket {
    const struct input *input;
    char task[32], method[96];
    double *seconds;
    size_t n, capacity;
    double total, prompt;
};

struct buckets {
    struct bucket *buckets;
    size_t n, capacity;
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
    if (all->n == all->capacity) {
        size_t capacity = all->capacity == 0 ? 32 : all->capacity * 2;
        void *grown = realloc(all->buckets, capacity * sizeof *all->buckets);
        if (grown == NULL) {
            return NULL;
        }
        all->buckets = grown;
        all->capacity = capacity;
    }
    struct bucket *one = &all->buckets[all->n++];
    *one = (struct bucket){.input = input};
    snprintf(one->task, sizeof one->task, "%s", task);
    snprintf(one->method, sizeof one->method, "%s", method);
    return one;
}

static bool add_row(struct bucket *bucket, const struct dpe_row *row)
{
    if (bucket == NULL || bucket->n == bucket->capacity) {
        size_t capacity = bucket == NULL || bucket->capacity == 0 ? 64 : bucket->capacity * 2;
        void *grown =
            bucket == NULL ? NULL : realloc(bucket->seconds, capacity * sizeof *bucket->seconds);
        if (grown == NULL) {
            return false;
        }
        bucket->seconds = grown;
        bucket->capacity = capacity;
    }
    bucket->seconds[bucket->n++] = row->seconds;
    bucket->total += row->seconds;
    int64_t tokens = row->prompt_tokens > 0 ? row->prompt_tokens : row->n_tokens;
    bucket->prompt += tokens > 0 ? (double)tokens : 0.0;
    return true;
}

/* The method's words for a plan, "" when the plans are configurations of one sweep. */
static const char *plan_words(const struct names *keys, const struct names *words, bool many,
                              const char *plan)
{
    for (size_t i = 0; !many && i < keys->n && i < words->n; i++) {
        if (strcmp(keys->names[i], plan) == 0) {
            return words->names[i];
        }
    }
    return "";
}

static dpe_status collect(const struct input *input, struct buckets *all, struct dpe_error *err)
{
    struct names keys = {0};
    struct names words = {0};
    struct dpe_row *rows = NULL;
    size_t n = 0;
    bool many = strcmp(input->kind, "detect") == 0;
    dpe_status status = read_names(input, "/plans/plan", -1, &keys, err);
    if (status == DPE_OK) {
        status = read_names(input, "/plans/name", -1, &words, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_get_rows(input->table, &rows, &n, err);
    }
    for (size_t i = 0; i < n; i++) {
        if (status == DPE_OK && rows[i].status == DPE_ROW_OK && rows[i].seconds >= 0.0) {
            struct bucket *bucket = find_bucket(all, input, rows[i].task,
                                                plan_words(&keys, &words, many, rows[i].plan));
            if (!add_row(bucket, &rows[i])) {
                status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
            }
        }
        dpe_row_free(&rows[i]);
    }
    free(rows);
    names_free(&keys);
    names_free(&words);
    return status;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void add_table(struct report *report, struct buckets *all)
{
    struct sheet *sheet = sheet_new("time", "Time for a sample");
    sheet_column(sheet, "file", COLUMN_TEXT, 0);
    sheet_column(sheet, "task", COLUMN_TEXT, 0);
    sheet_column(sheet, "method", COLUMN_TEXT, 0);
    sheet_column(sheet, "samples", COLUMN_NUMBER, 0);
    sheet_column(sheet, "median and middle half, s", COLUMN_INTERVAL, 3);
    sheet_column(sheet, "all, s", COLUMN_NUMBER, 1);
    sheet_column(sheet, "tokens read per s", COLUMN_NUMBER, 0);
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *one = &all->buckets[i];
        qsort(one->seconds, one->n, sizeof *one->seconds, compare_doubles);
        sheet_text(sheet, one->input->name);
        sheet_text(sheet, one->task);
        sheet_text(sheet, one->method[0] != '\0' ? one->method : "all configurations");
        sheet_number(sheet, (double)one->n);
        sheet_interval(sheet, one->seconds[one->n / 2], one->seconds[one->n / 4],
                       one->seconds[one->n - 1 - one->n / 4]);
        sheet_number(sheet, one->total);
        sheet_number(sheet, one->total > 0.0 ? one->prompt / one->total : (double)NAN);
    }
    if (sheet != NULL) {
        sheet->shown = 60;
    }
    add_sheet(&report->document, sheet);
}

/* At most a dozen of the slowest: the table has all. */
static void add_dots(struct report *report, const struct buckets *all)
{
    enum { SHOWN = 12 };
    const char *names[SHOWN];
    double block[3][SHOWN];
    char *texts[SHOWN] = {0};
    size_t n = 0;
    for (size_t i = 0; i < all->n && n < SHOWN; i++) {
        const struct bucket *one = &all->buckets[i];
        texts[n] = one->method[0] != '\0' ? format_text("%s, %s", one->method, one->task)
                                          : format_text("%s", one->task);
        names[n] = texts[n] != NULL ? texts[n] : "";
        block[0][n] = one->seconds[one->n / 2];
        block[1][n] = one->seconds[one->n / 4];
        block[2][n] = one->seconds[one->n - 1 - one->n / 4];
        n++;
    }
    struct sheet *sheet = sheet_new("time-samples", "Seconds for a sample");
    sheet_column(sheet, "what", COLUMN_TEXT, 0);
    sheet_column(sheet, "seconds, median and middle half", COLUMN_INTERVAL, 3);
    for (size_t i = 0; i < n; i++) {
        sheet_text(sheet, names[i]);
        sheet_interval(sheet, block[0][i], block[1][i], block[2][i]);
    }
    struct figure *figure = figure_new(
        "time-samples", "Seconds for a sample",
        format_text("The median time of a sample, and as a bar the middle half of them. "
                    "These times belong to the machine they were measured on and to what "
                    "else it did; they are no part of a result's identity."),
        sheet);
    if (figure != NULL) {
        const struct dots dots = {.n = n,
                                  .names = names,
                                  .value = block[0],
                                  .low = block[1],
                                  .high = block[2],
                                  .x_low = 0.0,
                                  .x_high = (double)NAN,
                                  .digits = 2,
                                  .x_title = "seconds"};
        draw_dots(figure, &dots);
    }
    add_figure(&report->document, figure);
    for (size_t i = 0; i < SHOWN; i++) {
        free(texts[i]);
    }
}

static void add_memory(struct report *report)
{
    struct sheet *sheet = sheet_new("memory", "Memory of the process that wrote the table");
    bool any = false;
    sheet_column(sheet, "file", COLUMN_TEXT, 0);
    sheet_column(sheet, "most resident, MiB", COLUMN_NUMBER, 0);
    for (size_t i = 0; i < report->n; i++) {
        int64_t bytes = read_whole(&report->inputs[i], "/run", "peak_memory_bytes", 0);
        if (bytes > 0) {
            sheet_text(sheet, report->inputs[i].name);
            sheet_number(sheet, (double)bytes / 1048576.0);
            any = true;
        }
    }
    if (any) {
        add_sheet(&report->document, sheet);
    } else {
        sheet_free(sheet);
    }
}

dpe_status report_time(struct report *report, struct dpe_error *err)
{
    struct buckets all = {0};
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/run/seconds")) {
            status = collect(&report->inputs[i], &all, err);
        }
    }
    if (status == DPE_OK && all.n > 0) {
        add_text(&report->document, BLOCK_SECTION, format_text("Time and memory"));
        add_table(report, &all);
        add_dots(report, &all);
        add_memory(report);
    }
    buckets_free(&all);
    return status;
}

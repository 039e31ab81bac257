/* The runs: their time, and where the numbers come from. */
#include "outputs/h5/rows.h"
#include "outputs/report/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- time */

/** Rows of one task under one method (or of all methods, where these are configurations). */
struct bucket {
    const struct dpe_report_input *input;
    const char *task, *method;
    double *seconds;
    size_t n;
    double total, prompt;
};

struct buckets {
    struct bucket *buckets;
    size_t n;
};

/* `method` is the report's. */
static struct bucket *find_bucket(struct dpe_report *report, struct buckets *all, const char *task,
                                  const char *method)
{
    const struct dpe_report_input *input = report->about.input;
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *one = &all->buckets[i];
        if (one->input == input && strcmp(one->task, task) == 0 &&
            strcmp(one->method, method) == 0) {
            return one;
        }
    }
    dpe_draw_room(&all->buckets, all->n, sizeof *all->buckets);
    all->buckets[all->n] = (struct bucket){
        .input = input, .task = dpe_page_text(&report->page, "%s", task), .method = method};
    return &all->buckets[all->n++];
}

/** The plans of rows by their keys. */
struct plans {
    const struct dpe_report_suite *suites; /**< [n_suites] of a comparison */
    char **keys, **names;                  /**< n_keys / n_names keys in a row belong to one name */
    size_t n_suites, n_keys, n_names;
};

/* In a comparison what the method was given as, else the plan's name. */
static const char *plan_words(const struct plans *plans, const char *plan)
{
    for (size_t s = 0; s < plans->n_suites; s++) {
        const struct dpe_suite_words *of = &plans->suites[s].of;
        for (size_t i = 0; of->r->plan != NULL && i < of->n_methods * of->n_tasks; i++) {
            if (strcmp(of->r->plan[i], plan) == 0) {
                return of->r->method[i / of->n_tasks];
            }
        }
    }
    const size_t each = plans->n_names > 0 ? plans->n_keys / plans->n_names : 0;
    for (size_t i = 0; i < each * plans->n_names; i++) {
        if (strcmp(plans->keys[i], plan) == 0) {
            return plans->names[i / each];
        }
    }
    return "";
}

static void add_row(struct bucket *bucket, double seconds, int64_t tokens)
{
    dpe_draw_room(&bucket->seconds, bucket->n, sizeof seconds);
    bucket->seconds[bucket->n++] = seconds;
    bucket->total += seconds;
    bucket->prompt += tokens > 0 ? (double)tokens : 0.0;
}

/* The rows of the subject. */
static void collect(struct dpe_report *report, struct buckets *all)
{
    const struct dpe_report_input *input = report->about.input;
    struct plans plans = {0};
    DPE_OWNED struct dpe_row *rows = NULL;
    size_t n = 0;
    /* The plans of a sweep are its configurations: they are taken together. */
    if (strcmp(input->kind, "detect") != 0) {
        plans.suites = dpe_comparison_suites(report, input, &plans.n_suites);
        const bool grid = dpe_h5_has(input->table, "/eval/niah_grid/plan");
        plans.keys = dpe_input_names(report, input, grid ? "/eval/niah_grid/plan" : "/plans/plan",
                                     &plans.n_keys);
        plans.names =
            dpe_input_names(report, input, grid ? "/method" : "/plans/name", &plans.n_names);
    }
    if (report->status == DPE_OK &&
        !dpe_report_ok(report, dpe_h5_get_rows(input->table, &rows, &n, report->err))) {
        dpe_fail_prefix(report->err, "%s", input->path);
    }
    for (size_t i = 0; i < n; i++) {
        const int64_t tokens = rows[i].prompt_tokens > 0 ? rows[i].prompt_tokens : rows[i].n_tokens;
        if (rows[i].status == DPE_ROW_OK && rows[i].seconds >= 0.0) {
            struct bucket *bucket =
                find_bucket(report, all, rows[i].task, plan_words(&plans, rows[i].plan));
            add_row(bucket, rows[i].seconds, tokens);
        }
        dpe_row_free(&rows[i]);
    }
}

static void add_table(struct dpe_report *report, const struct buckets *all)
{
    struct dpe_sheet *sheet = dpe_page_sheet(&report->page, "time",
                                             "file:t|task:t|method:t|samples:0|median and middle "
                                             "half, s:i3|total, s:1|tokens read per s:0",
                                             "Time per sample");
    for (size_t i = 0; i < all->n; i++) {
        const struct bucket *one = &all->buckets[i];
        const double *s = one->seconds; /* sorted */
        dpe_draw_row(sheet, one->input->name, one->task,
                     one->method[0] != '\0' ? one->method : "all configurations", one->n,
                     dpe_interval_cell(s[one->n / 2], s[one->n / 4], s[one->n - 1 - one->n / 4]),
                     one->total, one->total > 0.0 ? one->prompt / one->total : (double)NAN);
    }
    dpe_draw_shown(sheet, 0, all->n > 8);
    dpe_page_add(&report->page, sheet);
}

/* What took longest in all first. */
static int compare_totals(const void *a, const void *b)
{
    double x = ((const struct bucket *)a)->total;
    double y = ((const struct bucket *)b)->total;
    return x > y ? -1 : x < y;
}

void dpe_sections_time(struct dpe_report *report)
{
    struct buckets all = {0};
    for (size_t i = 0; i < report->n && report->status == DPE_OK; i++) {
        dpe_report_about(report, &report->inputs[i], "/run/seconds");
        if (dpe_h5_has(report->inputs[i].table, "/run/seconds")) {
            collect(report, &all);
        }
    }
    dpe_report_about(report, NULL, NULL);
    if (report->status == DPE_OK && all.n > 0) {
        dpe_page_section(&report->page, "Time");
        for (size_t i = 0; i < all.n; i++) {
            dpe_sort(all.buckets[i].seconds, all.buckets[i].n);
        }
        qsort(all.buckets, all.n, sizeof *all.buckets, compare_totals);
        add_table(report, &all);
    }
    for (size_t i = 0; i < all.n; i++) {
        free(all.buckets[i].seconds);
    }
    free(all.buckets);
}

/* -------------------------------------------------------------------------------------- origin */

static void add_files(struct dpe_report *report)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "files",
        "file:t|made by:t|complete:t|rows:0|most resident, MiB:0|software:t|written:t|identity:t",
        "Files");
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        const char *git = dpe_input_words(report, input, "/", "git");
        const char *version = dpe_input_words(report, input, "/", "software_version");
        const bool complete = dpe_input_read_whole(input, "/", "complete", 0) != 0;
        dpe_draw_row(sheet, input->name, input->kind, complete ? "yes" : "no, unfinished",
                     dpe_input_read_whole(input, "/", "n_rows", 0),
                     dpe_input_read_whole(input, "/run", "peak_memory_bytes", 0) / 1048576,
                     dpe_page_text(&report->page, "dpe %s%s%s", version != NULL ? version : "?",
                                   git != NULL ? ", git " : "", git != NULL ? git : ""),
                     dpe_input_words(report, input, "/run", "modified"),
                     dpe_input_words(report, input, "/", "identity"));
    }
    dpe_page_add(&report->page, sheet);
}

/* Names of the files with a value of a field; "" where a file before `first` has it. */
static const char *files_with(struct dpe_report *report, size_t first, const char *field,
                              const char *value)
{
    const char *files = "";
    for (size_t i = 0; i < report->n; i++) {
        const char *own = dpe_identity_get(&report->inputs[i].identity, field);
        if (own != NULL && strcmp(own, value) == 0 && i < first) {
            return "";
        }
        if (own != NULL && strcmp(own, value) == 0) {
            files = dpe_page_text(&report->page, "%s%s%s", files, i > first ? ", " : "",
                                  report->inputs[i].name);
        }
    }
    return files;
}

/* Fields that decide a result, one table for all files: equal values stand once. */
static void add_identities(struct dpe_report *report)
{
    struct dpe_sheet *sheet = dpe_page_sheet(&report->page, "identity", "field:t|value:t|files:t",
                                             "Fields of the identity");
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_identity *own = &report->inputs[i].identity;
        for (size_t f = 0; f < own->n; f++) {
            const char *files = files_with(report, i, own->fields[f].name, own->fields[f].value);
            if (files[0] != '\0') {
                dpe_draw_row(sheet, own->fields[f].name, own->fields[f].value, files);
            }
        }
    }
    dpe_page_add(&report->page, sheet);
}

/* The processes of a run: their commands and machines. */
static void add_sessions_of(struct dpe_report *report, const struct dpe_report_input *input,
                            struct dpe_sheet *sheet)
{
    static const char *const fields[] = {"started",      "command", "software", "device",  "gpu",
                                         "driver",       "kernels", "cpu",      "threads", "cores",
                                         "memory_bytes", "os",      "compiler", "hdf5"};
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    char **values[FIELDS] = {0};
    size_t n[FIELDS] = {0};
    for (int f = 0; f < FIELDS; f++) {
        char path[64];
        snprintf(path, sizeof path, "/run/sessions/%s", fields[f]);
        values[f] = dpe_input_names(report, input, path, &n[f]);
    }
    for (size_t s = 0; s < n[0]; s++) {
        const char *machine = "";
        for (int f = 2; f < FIELDS; f++) {
            const char *value = s < n[f] ? values[f][s] : "";
            if (value[0] != '\0' && strcmp(value, "0") != 0) {
                machine = dpe_page_text(&report->page, "%s%s%s: %s", machine,
                                        machine[0] != '\0' ? "; " : "", fields[f], value);
            }
        }
        dpe_draw_row(sheet, input->name, values[0][s], s < n[1] ? values[1][s] : "", machine);
    }
}

void dpe_sections_provenance(struct dpe_report *report)
{
    if (report->n == 0) {
        return;
    }
    dpe_page_section(&report->page, "Origin of the numbers");
    dpe_page_say(
        &report->page, BLOCK_TEXT,
        "The identity of a result is all that decides its numbers: model, tokenizer, corpus, "
        "task and seed, among others. Equal identities give equal numbers, bit for bit.");
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "sessions", "file:t|started:t|command:t|ran on:t", "Commands and machines");
    for (size_t i = 0; i < report->n; i++) {
        add_sessions_of(report, &report->inputs[i], sheet);
    }
    dpe_page_add(&report->page, sheet);
    add_files(report);
    add_identities(report);
}

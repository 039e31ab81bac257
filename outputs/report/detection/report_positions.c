/* A detection by position in the text: what its rows keep of each token's likelihood. */
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 40 }; /* buckets are powers of two */

/** NLL and tokens by plan and bucket, of the rows of one task. */
struct buckets {
    struct names plans;
    int n; /**< buckets of the row that has most */
    double (*nll)[MOST];
    double (*tokens)[MOST];
};

static void buckets_free(struct buckets *buckets)
{
    dpe_input_names_free(&buckets->plans);
    free(buckets->nll);
    free(buckets->tokens);
    *buckets = (struct buckets){0};
}

/** /rows as it is stored. */
struct rows {
    int64_t n[DPE_DATASET_AXES]; /**< rows, and the numbers of all their buckets */
    double *plan, *task, *status, *n_tokens, *bucket_count, *bucket_nll;
};
#define ROW(member, axis)                                                                          \
    {                                                                                              \
        .name = #member, .type = DPE_COL_F64, .axes = axis, DPE_IN_ARRAY(struct rows, member)      \
    }
static const struct dpe_dataset row_datasets[] = {
    {.name = "row", .type = DPE_COL_I64, .array = DPE_DATASET_COUNT},
    {.name = "bucket", .type = DPE_COL_I64, .array = DPE_DATASET_COUNT},
    ROW(plan, "row"),
    ROW(task, "row"),
    ROW(status, "row"),
    ROW(n_tokens, "row"),
    ROW(bucket_count, "row"),
    ROW(bucket_nll, "bucket"),
};
static const struct dpe_dataset_kind rows_kind = {row_datasets,
                                                  sizeof row_datasets / sizeof row_datasets[0]};

static int64_t index_of(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->names[i], name) == 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* Bucket b begins at position 2^b; the first token is not predicted, so n tokens end at n. */
static void add_row(struct buckets *buckets, size_t plan, double n_tokens, const double *nll, int n)
{
    for (int b = 0; b < n; b++) {
        double first = ldexp(1.0, b);
        buckets->nll[plan][b] += nll[b];
        buckets->tokens[plan][b] += fmax(0.0, fmin(n_tokens, 2.0 * first - 1.0) - first + 1.0);
    }
    buckets->n = n > buckets->n ? n : buckets->n;
}

static dpe_status add_rows(const struct input *input, const struct rows *rows, int64_t task,
                           struct buckets *buckets, struct dpe_error *err)
{
    int64_t at = 0;
    for (int64_t i = 0; i < rows->n[0]; i++) {
        double count = rows->bucket_count[i];
        double plan = rows->plan[i];
        if (!(count >= 0.0) || count > (double)(rows->n[1] - at) ||
            !(plan >= 0.0 && plan < (double)buckets->plans.n)) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: /rows: row %lld points beyond the plans or buckets", input->path,
                            (long long)i);
        }
        bool wanted = rows->task[i] == (double)task && rows->status[i] == 0.0;
        if (wanted && count <= MOST) {
            add_row(buckets, (size_t)plan, rows->n_tokens[i], rows->bucket_nll + at, (int)count);
        }
        at += (int64_t)count;
    }
    return DPE_OK;
}

/* n = 0 when the table has no such rows. */
static dpe_status read_buckets(const struct input *input, const char *task, struct buckets *buckets,
                               struct dpe_error *err)
{
    struct rows rows = {0};
    struct names tasks = {0};
    *buckets = (struct buckets){0};
    if (!dpe_h5_has(input->table, "/rows/bucket_nll")) {
        return DPE_OK;
    }
    dpe_status status = dpe_input_read_names(input, "/tasks/task", -1, &tasks, err);
    if (status == DPE_OK) {
        status = dpe_input_read_names(input, "/plans/plan", -1, &buckets->plans, err);
    }
    int64_t place = index_of(&tasks, task);
    if (status == DPE_OK && place >= 0) {
        buckets->nll = dpe_alloc_zero(buckets->plans.n + 1, sizeof *buckets->nll);
        buckets->tokens = dpe_alloc_zero(buckets->plans.n + 1, sizeof *buckets->tokens);
        status = buckets->nll == NULL || buckets->tokens == NULL
                     ? dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory for buckets", input->path)
                     : dpe_input_get(input, &rows_kind, &rows, "/rows", NULL, err);
    }
    if (status == DPE_OK && place >= 0) {
        status = add_rows(input, &rows, place, buckets, err);
    }
    dpe_datasets_free(&rows_kind, &rows);
    dpe_input_names_free(&tasks);
    return status;
}

static double perplexity_at(const struct buckets *buckets, int64_t plan, int b)
{
    if (plan < 0 || !(buckets->tokens[plan][b] > 0.0)) {
        return (double)NAN;
    }
    return exp(buckets->nll[plan][b] / buckets->tokens[plan][b]);
}

/* The first tokens have hardly any context: their perplexity of hundreds would flatten the rest. */
static int first_shown(int n)
{
    return n > 6 ? 3 : 0;
}

/* -------------------------------------------------------------------------- group by position */

/** Plans of the cells: [group][length], and that of "every group at half the trained length". */
struct cells {
    const struct detection *detection;
    struct names keys;
    int64_t base;
    int64_t *best; /**< [group] index of the length of rank 1, −1 = none */
};

/* All cells, as numbers. */
static struct sheet *positions_sheet(const struct report *report, const struct cells *cells,
                                     const struct buckets *buckets)
{
    const struct detection *d = cells->detection;
    struct sheet *sheet = dpe_report_sheet(report, "detect-positions",
                                           "group:0|length:0|from position:0|perplexity:3",
                                           "Perplexity by position, group by group");
    for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
        int64_t plan = index_of(&buckets->plans, cells->keys.names[i]);
        for (int b = 0; b < buckets->n; b++) {
            dpe_draw_row(sheet, dpe_number_cell((double)(i / d->n_lengths)),
                         dpe_number_cell((double)d->ranking.length[i % d->n_lengths]),
                         dpe_number_cell(ldexp(1.0, b)),
                         dpe_number_cell(perplexity_at(buckets, plan, b)));
        }
    }
    if (sheet != NULL) {
        sheet->shown = 80;
    }
    return sheet;
}

/* What is drawn: groups at their best lengths ("3 at 256"). Against the base a change of a few
 * percent shows; without one there are the values themselves. */
static struct sheet *best_sheet(const struct report *report, const struct cells *cells,
                                const struct buckets *buckets)
{
    const struct detection *d = cells->detection;
    struct sheet *sheet = dpe_report_sheet(report, "", "group:0|from position:0|value:0", "%s", "");
    for (int64_t g = 0; g < d->n_groups; g++) {
        const int64_t best = cells->best[g];
        const int64_t plan =
            best < 0 ? -1 : index_of(&buckets->plans, cells->keys.names[g * d->n_lengths + best]);
        struct sheet_cell group = dpe_number_cell((double)g);
        char name[64], tokens[32] = "–";
        if (best >= 0) {
            dpe_draw_length_text((double)d->ranking.length[best], tokens);
        }
        snprintf(name, sizeof name, "%lld at %s", (long long)g, tokens);
        group.text = name;
        for (int b = first_shown(buckets->n); b < buckets->n; b++) {
            const double value = perplexity_at(buckets, plan, b);
            dpe_draw_row(sheet, group, dpe_number_cell(ldexp(1.0, b)),
                         dpe_number_cell(
                             cells->base < 0
                                 ? value
                                 : 100.0 * (value / perplexity_at(buckets, cells->base, b) - 1.0)));
        }
    }
    return sheet;
}

static void add_groups(struct report *report, const struct cells *cells,
                       const struct buckets *buckets)
{
    const bool relative = cells->base >= 0;
    char tokens[32];
    const struct plot none = {.kind = PLOT_NONE};
    const struct plot plot = {.kind = PLOT_HEAT,
                              .x = 1,
                              .value = 2,
                              .log = !relative,
                              .low_is_good = true,
                              .digits = relative ? 1 : 3,
                              .x_title = "from position, tokens",
                              .y_title = "group, at its best length",
                              .bar_title = relative ? "change, percent" : "perplexity"};
    struct sheet *drawn = best_sheet(report, cells, buckets);
    struct figure *figure = dpe_report_figure(
        report, positions_sheet(report, cells, buckets), &none,
        "The %s of the tokens from each position to twice "
        "that position when one group goes from %s to the length that perplexity "
        "ranks first and the other groups keep theirs. Near positions "
        "are inside the window, which no length changes. There are no "
        "intervals by position: small changes may be chance. All "
        "lengths are in the table of numbers.",
        relative ? "change in perplexity (less is better)" : "perplexity",
        dpe_draw_length_text(dpe_detection_trained(cells->detection) / 2.0, tokens));
    if (figure != NULL) {
        dpe_draw_plot(figure, drawn, &plot);
    }
    report->document.failed = report->document.failed || drawn == NULL || drawn->failed;
    dpe_draw_sheet_free(drawn);
}

static dpe_status write_groups(struct report *report, const struct detection *d,
                               struct dpe_error *err)
{
    struct buckets buckets = {0};
    struct cells cells = {.detection = d, .base = -1};
    const int32_t *rank = d->by_recall ? d->by_perplexity.rank : d->ranking.rank;
    dpe_status status = dpe_input_read_names(d->input, "/detect/plan", d->n_groups * d->n_lengths,
                                             &cells.keys, err);
    if (status == DPE_OK && cells.keys.n > 0 && rank != NULL) {
        status = read_buckets(d->input, "ppl", &buckets, err);
    }
    cells.best = dpe_alloc((size_t)d->n_groups, sizeof *cells.best);
    if (status == DPE_OK && cells.best == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", d->input->path);
    }
    if (status == DPE_OK && buckets.n > 0) {
        for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
            int64_t length = i % d->n_lengths;
            if (length == 0) {
                cells.best[i / d->n_lengths] = -1;
            }
            if (rank[i] == 1) {
                cells.best[i / d->n_lengths] = length;
            }
            if ((double)d->ranking.length[length] == dpe_detection_trained(d) / 2.0) {
                cells.base = index_of(&buckets.plans, cells.keys.names[i]);
            }
        }
        add_groups(report, &cells, &buckets);
    }
    free(cells.best);
    dpe_input_names_free(&cells.keys);
    buckets_free(&buckets);
    return status;
}

/* ------------------------------------------------------------------------------------ validation
 */

/* The model as it is, every group at half the trained length, and the detection. */
static void add_plans(struct report *report, const struct detection *d, const struct names *names,
                      const int64_t *plan, const struct buckets *buckets)
{
    const struct plot plot = {.kind = PLOT_CURVES,
                              .x = 1,
                              .value = 2,
                              .log_x = true,
                              .log = true,
                              .x_title = "position in the text, tokens",
                              .y_title = "perplexity per token",
                              .x_line = dpe_detection_trained(d),
                              .x_line_title = "trained length"};
    struct sheet *sheet =
        dpe_report_sheet(report, "validate-positions", "plan:t|from position:0|perplexity:3",
                         "Perplexity by position, the chosen lengths together");
    for (size_t p = 0; p < names->n; p++) {
        for (int b = 0; b < buckets->n; b++) {
            dpe_draw_row(sheet, dpe_text_cell(names->names[p]), dpe_number_cell(ldexp(1.0, b)),
                         dpe_number_cell(perplexity_at(buckets, plan[p], b)));
            dpe_draw_row_mark(sheet, (strcmp(names->names[p], "joint") == 0 ? ROW_STRONG : 0) |
                                         (strcmp(names->names[p], "rope") == 0 ? ROW_PLAIN : 0) |
                                         (b < first_shown(buckets->n) ? ROW_UNDRAWN : 0));
        }
    }
    dpe_report_figure(
        report, sheet, &plot,
        "Books under three plans: rope, the unchanged model; base, %s; joint, the chosen "
        "lengths. Each point is the perplexity of the tokens from its position to twice that "
        "position. More context should lower it; a line that rises shows where a plan stops "
        "working.",
        dpe_detection_base(d));
}

static dpe_status write_plans(struct report *report, const struct detection *d,
                              struct dpe_error *err)
{
    struct buckets buckets = {0};
    struct names names = {0};
    struct names keys = {0};
    int64_t plan[16];
    dpe_status status = dpe_input_read_names(d->input, "/validated_plan", -1, &names, err);
    if (status == DPE_OK) {
        status = dpe_input_read_names(d->input, "/validate/plan", (int64_t)names.n, &keys, err);
    }
    if (status == DPE_OK && keys.n > 0 && keys.n <= sizeof plan / sizeof plan[0]) {
        const char *task =
            dpe_h5_has(d->input->table, "/validate/guard") ? "guard-ppl" : "validate-ppl";
        status = read_buckets(d->input, task, &buckets, err);
    }
    if (status == DPE_OK && buckets.n > 0) {
        for (size_t i = 0; i < keys.n; i++) {
            plan[i] = index_of(&buckets.plans, keys.names[i]);
        }
        add_plans(report, d, &names, plan, &buckets);
    }
    dpe_input_names_free(&names);
    dpe_input_names_free(&keys);
    buckets_free(&buckets);
    return status;
}

dpe_status dpe_detection_positions(struct report *report, const struct detection *detection,
                                   struct dpe_error *err)
{
    DPE_TRY(write_groups(report, detection, err));
    return write_plans(report, detection, err);
}

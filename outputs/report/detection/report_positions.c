/* A detection by position in the text: what its rows keep of each token's likelihood. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/detection/report_detect.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

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
    struct numbers plan, task, status, n_tokens, count, nll;
};

static void rows_free(struct rows *rows)
{
    struct numbers *const all[] = {&rows->plan,     &rows->task,  &rows->status,
                                   &rows->n_tokens, &rows->count, &rows->nll};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_input_numbers_free(all[i]);
    }
}

static dpe_status read_rows(const struct input *input, struct rows *rows, struct dpe_error *err)
{
    const struct wanted first[] = {{"/rows/plan", 1, {-1}, true, &rows->plan}};
    dpe_status status = dpe_input_read_wanted(input, first, 1, err);
    int64_t n = (int64_t)rows->plan.n;
    const struct wanted rest[] = {
        {"/rows/task", 1, {n}, true, &rows->task},
        {"/rows/status", 1, {n}, true, &rows->status},
        {"/rows/n_tokens", 1, {n}, true, &rows->n_tokens},
        {"/rows/bucket_count", 1, {n}, true, &rows->count},
        {"/rows/bucket_nll", 1, {-1}, true, &rows->nll},
    };
    return status == DPE_OK ? dpe_input_read_wanted(input, rest, sizeof rest / sizeof rest[0], err)
                            : status;
}

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
    size_t at = 0;
    for (size_t i = 0; i < rows->plan.n; i++) {
        double count = rows->count.values[i];
        double plan = rows->plan.values[i];
        if (!(count >= 0.0) || count > (double)(rows->nll.n - at) ||
            !(plan >= 0.0 && plan < (double)buckets->plans.n)) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: /rows: row %zu points beyond the plans or buckets", input->path,
                            i);
        }
        bool wanted = rows->task.values[i] == (double)task && rows->status.values[i] == 0.0;
        if (wanted && count <= MOST) {
            add_row(buckets, (size_t)plan, rows->n_tokens.values[i], rows->nll.values + at,
                    (int)count);
        }
        at += (size_t)count;
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
                     : read_rows(input, &rows, err);
    }
    if (status == DPE_OK && place >= 0) {
        status = add_rows(input, &rows, place, buckets, err);
    }
    rows_free(&rows);
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

static struct sheet *positions_sheet(const struct cells *cells, const struct buckets *buckets,
                                     const char *id, const char *title)
{
    const struct detection *d = cells->detection;
    struct sheet *sheet = dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "group", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "from position", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "perplexity", COLUMN_NUMBER, 3);
    for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
        int64_t plan = index_of(&buckets->plans, cells->keys.names[i]);
        for (int b = 0; b < buckets->n; b++) {
            dpe_draw_sheet_number(sheet, (double)(i / d->n_lengths));
            dpe_draw_sheet_number(sheet, (double)d->ranking.length[i % d->n_lengths]);
            dpe_draw_sheet_number(sheet, ldexp(1.0, b));
            dpe_draw_sheet_number(sheet, perplexity_at(buckets, plan, b));
        }
    }
    if (sheet != NULL) {
        sheet->shown = 80;
    }
    return sheet;
}

/* "3 at 256": pointers followed by their text, owned; NULL without memory. */
static const char **name_rows(const struct cells *cells)
{
    const struct detection *d = cells->detection;
    size_t rows = (size_t)d->n_groups;
    char *block = dpe_alloc_zero(rows + 1, sizeof(char *) + 64);
    const char **names = (const char **)(void *)block;
    for (size_t i = 0; names != NULL && i < rows; i++) {
        char *text = block + (rows + 1) * sizeof(char *) + i * 64;
        char tokens[32] = "–";
        if (cells->best[i] >= 0) {
            dpe_draw_length_text((double)d->ranking.length[cells->best[i]], tokens);
        }
        snprintf(text, 64, "%zu at %s", i, tokens);
        names[i] = text;
    }
    return names;
}

static const char **name_positions(int first, int n)
{
    size_t columns = (size_t)(n - first);
    char *block = dpe_alloc_zero(columns + 1, sizeof(char *) + 32);
    const char **names = (const char **)(void *)block;
    for (size_t i = 0; names != NULL && i < columns; i++) {
        char *text = block + (columns + 1) * sizeof(char *) + i * 32;
        names[i] = dpe_draw_length_text(ldexp(1.0, first + (int)i), text);
    }
    return names;
}

/* Against the base a change of a few percent shows; without one there are the values themselves. */
static double position_value(const struct cells *cells, const struct buckets *buckets,
                             int64_t group, int b)
{
    int64_t best = cells->best[group];
    int64_t cell = group * cells->detection->n_lengths + best;
    int64_t plan = best < 0 ? -1 : index_of(&buckets->plans, cells->keys.names[cell]);
    double value = perplexity_at(buckets, plan, b);
    return cells->base < 0 ? value : 100.0 * (value / perplexity_at(buckets, cells->base, b) - 1.0);
}

static void draw_positions(struct figure *figure, const struct cells *cells,
                           const struct buckets *buckets, double *value, const char *const *rows,
                           const char *const *columns)
{
    int first = first_shown(buckets->n);
    int64_t groups = cells->detection->n_groups;
    int64_t width = buckets->n - first;
    bool relative = cells->base >= 0;
    for (int64_t i = 0; i < groups * width; i++) {
        value[i] = position_value(cells, buckets, i / width, first + (int)(i % width));
    }
    const struct heat heat = {.n_rows = groups,
                              .n_columns = width,
                              .value = value,
                              .low = (double)NAN,
                              .high = (double)NAN,
                              .log = !relative,
                              .low_is_good = true,
                              .digits = relative ? 1 : 3,
                              .row_names = rows,
                              .column_names = columns,
                              .x_title = "from position, tokens",
                              .y_title = "group, at its best length",
                              .bar_title = relative ? "change, percent" : "perplexity"};
    dpe_draw_heat(figure, &heat);
}

static char *positions_caption(const struct cells *cells)
{
    char tokens[32];
    dpe_draw_length_text(dpe_detection_trained(cells->detection) / 2.0, tokens);
    char *what =
        cells->base >= 0
            ? dpe_draw_format_text(
                  "The change in perplexity (less is better) of the tokens from each "
                  "position to twice that position")
            : dpe_draw_format_text("The perplexity of the tokens from each position to twice that "
                                   "position");
    char *text =
        what == NULL
            ? NULL
            : dpe_draw_format_text("%s when one group goes from %s to the length that perplexity "
                                   "ranks first and the other groups keep theirs. Near positions "
                                   "are inside the window, which no length changes. There are no "
                                   "intervals by position: small changes may be chance. All "
                                   "lengths are in the table of numbers.",
                                   what, tokens);
    free(what);
    return text;
}

static void add_groups(struct report *report, const struct cells *cells,
                       const struct buckets *buckets)
{
    const struct detection *d = cells->detection;
    const char *title = "Perplexity by position, group by group";
    int first = first_shown(buckets->n);
    char *id = dpe_input_report_id(report, d->input, DETECTION, "detect-positions");
    const char **rows = name_rows(cells);
    const char **columns = name_positions(first, buckets->n);
    double *value = dpe_alloc((size_t)d->n_groups, (size_t)(buckets->n - first) * sizeof *value);
    bool ok = id != NULL && rows != NULL && columns != NULL && value != NULL;
    struct figure *figure =
        dpe_draw_figure_new(ok ? id : NULL, title, positions_caption(cells),
                            ok ? positions_sheet(cells, buckets, id, title) : NULL);
    if (figure != NULL && ok) {
        draw_positions(figure, cells, buckets, value, rows, columns);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(id);
    free(rows);
    free(columns);
    free(value);
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
    const char *title = "Perplexity by position, the chosen lengths together";
    int first = first_shown(buckets->n);
    size_t n = (size_t)(buckets->n - first);
    char *id = dpe_input_report_id(report, d->input, DETECTION, "validate-positions");
    double *block = dpe_alloc((names->n + 1) * n + 1, sizeof *block);
    struct curve *all = dpe_alloc_zero(names->n, sizeof *all);
    bool ok = id != NULL && block != NULL && all != NULL;
    struct sheet *sheet = ok ? dpe_draw_sheet_new(id, title) : NULL;
    dpe_draw_sheet_column(sheet, "plan", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "from position", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "perplexity", COLUMN_NUMBER, 3);
    for (size_t p = 0; ok && p < names->n; p++) {
        for (int b = 0; b < buckets->n; b++) {
            dpe_draw_sheet_text(sheet, names->names[p]);
            dpe_draw_sheet_number(sheet, ldexp(1.0, b));
            dpe_draw_sheet_number(sheet, perplexity_at(buckets, plan[p], b));
        }
        for (size_t i = 0; i < n; i++) {
            block[i] = ldexp(1.0, first + (int)i);
            block[(p + 1) * n + i] = perplexity_at(buckets, plan[p], first + (int)i);
        }
        bool joint = strcmp(names->names[p], "joint") == 0;
        all[p] = (struct curve){.name = names->names[p],
                                .n = (int64_t)n,
                                .x = block,
                                .y = block + (p + 1) * n,
                                .strong = joint,
                                .plain = strcmp(names->names[p], "rope") == 0};
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, title,
        dpe_draw_format_text(
            "Books under three plans: rope, the unchanged model; base, %s; joint, the chosen "
            "lengths. Each point is the perplexity of the tokens from its position to twice that "
            "position. More context should lower it; a line that rises shows where a plan stops "
            "working.",
            dpe_detection_base(d)),
        sheet);
    if (figure != NULL && ok) {
        const struct curves curves = {.curves = all,
                                      .n = names->n,
                                      .log_x = true,
                                      .log_y = true,
                                      .y_low = (double)NAN,
                                      .y_high = (double)NAN,
                                      .x_title = "position in the text, tokens",
                                      .y_title = "perplexity per token",
                                      .x_line = dpe_detection_trained(d),
                                      .x_line_title = "trained length"};
        dpe_draw_curves(figure, &curves);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(id);
    free(block);
    free(all);
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
    dpe_status status = write_groups(report, detection, err);
    return status == DPE_OK ? write_plans(report, detection, err) : status;
}

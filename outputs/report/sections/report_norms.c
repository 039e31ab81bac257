/* A profile: which pairs carry the logits of each head, and the share of its top k. */
#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"
#include "outputs/report/sections/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A profile as shares of each head's total. */
struct profile {
    const struct input *input;
    int64_t layers, heads, pairs;
    struct dpe_norms_result r;
    double *share;  /**< the same, each head's sum = 1; NaN where a head was not measured */
    double *sorted; /**< each head's shares, largest first */
    int64_t *order; /**< the pairs in that order, ties to the lower one */
    double *held;   /**< [k + 1][layer × head]: share of the first k */
    int64_t k;      /**< key pairs of each head */
    const char *k_source;
    struct numbers edge; /**< group edges from a table beside it, for the axis */
};

static void profile_free(struct profile *p)
{
    dpe_datasets_free(&dpe_norms_kind, &p->r);
    dpe_input_numbers_free(&p->edge);
    free(p->share);
    free(p->sorted);
    free(p->order);
    free(p->held);
    *p = (struct profile){0};
}

/* Insertion sort: a head has some 64 pairs. NaN stays where it is. */
static void sort_pairs(const double *share, int64_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i;
        order[i] = i;
        for (; k > 0 && share[i] > share[order[k - 1]]; k--) {
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
}

static dpe_status derive(struct profile *p, struct dpe_error *err)
{
    int64_t rows = p->layers * p->heads;
    size_t n = (size_t)(rows * p->pairs);
    p->share = dpe_alloc(n, sizeof *p->share);
    p->sorted = dpe_alloc(n, sizeof *p->sorted);
    p->order = dpe_alloc(n, sizeof *p->order);
    p->held = dpe_alloc_zero(n + (size_t)rows, sizeof *p->held);
    if (p->share == NULL || p->sorted == NULL || p->order == NULL || p->held == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory for %zu scores", p->input->path, n);
    }
    for (int64_t r = 0; r < rows; r++) {
        const double *mean = p->r.mean + r * p->pairs;
        double total = 0.0;
        for (int64_t j = 0; j < p->pairs; j++) {
            total += mean[j];
        }
        double held = 0.0;
        for (int64_t j = 0; j < p->pairs; j++) {
            p->share[r * p->pairs + j] = total > 0.0 ? mean[j] / total : (double)NAN;
        }
        sort_pairs(p->share + r * p->pairs, p->order + r * p->pairs, p->pairs);
        for (int64_t j = 0; j < p->pairs; j++) {
            double share = p->share[r * p->pairs + p->order[r * p->pairs + j]];
            p->sorted[r * p->pairs + j] = share;
            held += share;
            p->held[(j + 1) * rows + r] = held;
        }
    }
    return DPE_OK;
}

/* How many pairs the line is drawn at: asked for, or of a table in the report, or the paper's three
 * quarters. */
static dpe_status choose_k(const struct report *report, struct profile *p, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    p->k = (int64_t)llround(0.75 * (double)p->pairs);
    p->k_source = "three quarters, as in the paper";
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        struct numbers k = {0};
        const int64_t none[1] = {0};
        const int64_t any[1] = {-1};
        status = dpe_input_read_numbers(&report->inputs[i], "/table/top_k", 0, none, &k, err);
        if (status == DPE_OK && k.n == 1 && k.values[0] >= 0.0 && k.values[0] <= (double)p->pairs) {
            p->k = (int64_t)k.values[0];
            p->k_source = "the table's";
        }
        dpe_input_numbers_free(&k);
        if (status == DPE_OK && p->edge.n == 0) {
            status = dpe_input_read_numbers(&report->inputs[i], "/table/group_edge", 1, any,
                                            &p->edge, err);
        }
    }
    if (report->top_k < 0.0) {
        p->k = (int64_t)llround(-report->top_k * (double)p->pairs);
        p->k_source = "from --top-k";
    } else if (report->top_k > 0.0) {
        p->k = (int64_t)report->top_k;
        p->k_source = "from --top-k";
    }
    if (status == DPE_OK && p->k > p->pairs) {
        status = dpe_fail(err, DPE_USAGE, "--top-k: a head has %lld pairs, found %lld",
                          (long long)p->pairs, (long long)p->k);
    }
    return status;
}

static dpe_status read_profile(const struct report *report, const struct input *input,
                               struct profile *p, struct dpe_error *err)
{
    *p = (struct profile){.input = input};
    dpe_status status = dpe_input_get(input, &dpe_norms_kind, &p->r, "/norms", "mean sem", err);
    p->layers = p->r.n[DPE_NORMS_LAYER];
    p->heads = p->r.n[DPE_NORMS_HEAD];
    p->pairs = p->r.n[DPE_NORMS_PAIR];
    if (status == DPE_OK) {
        status = choose_k(report, p, err);
    }
    return status == DPE_OK ? derive(p, err) : status;
}

/* ------------------------------------------------------------------------------------------ sheets
 */

static struct sheet *map_sheet(const struct profile *p, const char *id, const char *title,
                               bool ranked)
{
    struct sheet *sheet = dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "layer", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "head", COLUMN_NUMBER, 0);
    if (ranked) {
        dpe_draw_sheet_column(sheet, "place", COLUMN_NUMBER, 0);
    }
    dpe_draw_sheet_column(sheet, "pair", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "share of the head", COLUMN_NUMBER, 5);
    dpe_draw_sheet_column(sheet, ranked ? "share up to here" : "contribution", COLUMN_NUMBER, 5);
    if (!ranked) {
        dpe_draw_sheet_column(sheet, "standard error", COLUMN_NUMBER, 5);
    }
    int64_t rows = p->layers * p->heads;
    for (int64_t i = 0; i < rows * p->pairs; i++) {
        int64_t row = i / p->pairs;
        int64_t place = i % p->pairs;
        dpe_draw_sheet_number(sheet, (double)(row / p->heads));
        dpe_draw_sheet_number(sheet, (double)(row % p->heads));
        if (ranked) {
            dpe_draw_sheet_number(sheet, (double)place);
            dpe_draw_sheet_number(sheet, (double)p->order[i]);
            dpe_draw_sheet_number(sheet, p->sorted[i]);
            dpe_draw_sheet_number(sheet, p->held[(place + 1) * rows + row]);
        } else {
            dpe_draw_sheet_number(sheet, (double)place);
            dpe_draw_sheet_number(sheet, p->share[i]);
            dpe_draw_sheet_number(sheet, p->r.mean[i]);
            dpe_draw_sheet_number(sheet, p->r.sem != NULL ? p->r.sem[i] : (double)NAN);
        }
    }
    if (sheet != NULL) {
        sheet->shown = 12;
    }
    return sheet;
}

/* ----------------------------------------------------------------------------------------- figures
 */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The value that a share of the finite ones stays below; NaN when there are none. `values` is
 * reordered. */
static double quantile(double *values, int64_t n, double share)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(values[i])) {
            values[kept++] = values[i];
        }
    }
    if (kept == 0) {
        return (double)NAN;
    }
    qsort(values, (size_t)kept, sizeof *values, compare_doubles);
    double at = share * (double)(kept - 1);
    int64_t i = (int64_t)at;
    double next = i + 1 < kept ? values[i + 1] : values[i];
    return values[i] + (at - (double)i) * (next - values[i]);
}

static char *map_caption(const struct profile *p, bool ranked)
{
    return ranked
               ? dpe_draw_format_text(
                     "The same contributions, sorted within each head. The vertical line follows "
                     "the top %lld of %lld pairs (%s): to its left are the key pairs, whose far "
                     "positions are scaled; the pairs to its right keep their true positions.",
                     (long long)p->k, (long long)p->pairs, p->k_source)
               : dpe_draw_format_text(
                     "Each row is a query head (%lld in each layer), each column a pair of "
                     "dimensions. The value bounds how much the pair can contribute to the "
                     "head's logits: its mean query norm times its mean key norm, where 1 is an "
                     "even share. Bright cells are the pairs that a head uses most.",
                     (long long)p->heads);
}

enum { MOST_EDGES = 65 };

/* Where the axis of pairs has its ticks: at the groups' edges, else at quarters. How many. */
static int64_t axis_edges(const struct profile *p, bool ranked, int64_t edges[MOST_EDGES])
{
    int64_t n = 0;
    for (size_t e = 0; !ranked && e < p->edge.n && e < MOST_EDGES; e++) {
        edges[n++] = (int64_t)p->edge.values[e];
    }
    if (n == 0 || edges[n - 1] != p->pairs) {
        for (n = 0; n <= 4; n++) {
            edges[n] = n * p->pairs / 4;
        }
    }
    return n;
}

/* In units of the even share; the colours end at the largest percent, which few outliers fill. */
static void add_map(struct report *report, const struct profile *p, bool ranked)
{
    int64_t n = p->layers * p->heads * p->pairs;
    double *value = dpe_alloc((size_t)n + 1, 2 * sizeof *value);
    int64_t edges[MOST_EDGES];
    int64_t n_edges = axis_edges(p, ranked, edges);
    char cut[48];
    char *id =
        dpe_input_report_id(report, p->input, "/norms/mean", ranked ? "norms-ranked" : "norms");
    const char *title = ranked ? "Contributions of each head, largest first"
                               : "2-norm contributions by layer, head and pair";
    struct figure *figure = id == NULL || value == NULL
                                ? NULL
                                : dpe_draw_figure_new(id, title, map_caption(p, ranked),
                                                      map_sheet(p, id, title, ranked));
    for (int64_t i = 0; value != NULL && i < n; i++) {
        value[i] = (ranked ? p->sorted[i] : p->share[i]) * (double)p->pairs;
        value[n + i] = value[i];
    }
    snprintf(cut, sizeof cut, "top %lld", (long long)p->k);
    if (figure != NULL) {
        double high = quantile(value + n, n, 0.99);
        const struct field field = {.n_rows = p->layers * p->heads,
                                    .n_columns = p->pairs,
                                    .value = value,
                                    .low = 0.0,
                                    .high = isnan(high) ? 1.0 : fmax(high, 1.0),
                                    .row_step = p->heads,
                                    .x_title = ranked ? "pairs of the head, largest first"
                                                      : "pair (0 turns fastest)",
                                    .y_title = "layer",
                                    .bar_title = "times the even share",
                                    .cut = ranked ? (double)p->k : (double)NAN,
                                    .cut_title = cut,
                                    .x_edges = edges,
                                    .n_x_edges = n_edges};
        dpe_draw_field(figure, &field);
    }
    dpe_draw_add_figure(&report->document, figure);
    free(value);
    free(id);
}

/* Share that the top-k hold: a cell for each head. */
static void add_held(struct report *report, const struct profile *p)
{
    int64_t rows = p->layers * p->heads;
    const double *held = p->held + p->k * rows;
    char *id = dpe_input_report_id(report, p->input, "/norms/mean", "norms-top-k");
    int64_t most = p->layers > p->heads ? p->layers : p->heads;
    char *block = dpe_alloc_zero((size_t)most, 24 + sizeof(char *));
    const char **names = (const char **)(void *)block;
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, "Share of the key pairs");
    dpe_draw_sheet_column(sheet, "layer", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "head", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "share of the top k", COLUMN_NUMBER, 4);
    for (int64_t r = 0; r < rows; r++) {
        dpe_draw_sheet_number(sheet, (double)(r / p->heads));
        dpe_draw_sheet_number(sheet, (double)(r % p->heads));
        dpe_draw_sheet_number(sheet, held[r]);
    }
    for (int64_t i = 0; block != NULL && i < most; i++) {
        char *text = block + (size_t)most * sizeof(char *) + (size_t)i * 24;
        snprintf(text, 24, "%lld", (long long)i);
        names[i] = text;
    }
    struct figure *figure = dpe_draw_figure_new(
        id, "Share of the key pairs",
        dpe_draw_format_text("The share of a head's total contribution that its top %lld of %lld "
                             "pairs have; an even spread would be %.2f. Bright heads lose little "
                             "when only their key pairs are scaled; dark heads spread their "
                             "contribution evenly.",
                             (long long)p->k, (long long)p->pairs, (double)p->k / (double)p->pairs),
        sheet);
    if (figure != NULL && names != NULL) {
        const struct heat heat = {.n_rows = p->layers,
                                  .n_columns = p->heads,
                                  .value = held,
                                  .low = (double)NAN,
                                  .high = (double)NAN,
                                  .digits = 3,
                                  .row_names = names,
                                  .column_names = names,
                                  .x_title = "query head",
                                  .y_title = "layer",
                                  .bar_title = "share"};
        dpe_draw_heat(figure, &heat);
    }
    report->document.failed = report->document.failed || names == NULL;
    dpe_draw_add_figure(&report->document, figure);
    free(block);
    free(id);
}

/** Median and extremes over the heads, for each k. */
struct spread {
    double *k, *middle, *least, *most, *even;
};

static bool make_spread(const struct profile *p, struct spread *s, double *block)
{
    int64_t rows = p->layers * p->heads;
    int64_t n = p->pairs + 1;
    double *scratch = dpe_alloc((size_t)rows, sizeof *scratch);
    if (scratch == NULL) {
        return false;
    }
    *s = (struct spread){block, block + n, block + 2 * n, block + 3 * n, block + 4 * n};
    for (int64_t k = 0; k < n; k++) {
        memcpy(scratch, p->held + k * rows, (size_t)rows * sizeof *scratch);
        s->k[k] = (double)k;
        s->even[k] = (double)k / (double)p->pairs;
        s->middle[k] = quantile(scratch, rows, 0.5);
        s->least[k] = quantile(scratch, rows, 0.0);
        s->most[k] = quantile(scratch, rows, 1.0);
    }
    free(scratch);
    return true;
}

static void add_cumulative(struct report *report, const struct profile *p)
{
    int64_t n = p->pairs + 1;
    double *block = dpe_alloc((size_t)n, 5 * sizeof *block);
    struct spread s;
    char *id = dpe_input_report_id(report, p->input, "/norms/mean", "norms-cumulative");
    bool ok = block != NULL && id != NULL && make_spread(p, &s, block);
    const char *title = "Share of the top k pairs";
    struct sheet *sheet = ok ? dpe_draw_sheet_new(id, title) : NULL;
    dpe_draw_sheet_column(sheet, "k", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "share, median and range of heads", COLUMN_INTERVAL, 4);
    for (int64_t k = 0; ok && k < n; k++) {
        dpe_draw_sheet_number(sheet, (double)k);
        dpe_draw_sheet_interval(sheet, s.middle[k], s.least[k], s.most[k]);
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, title,
        dpe_draw_format_text("The share of a head's total contribution that its k largest pairs "
                             "have: the median head, and as a band all heads from the most even to "
                             "the most concentrated. The further the curve is above the even "
                             "spread, the more pairs can keep their true positions."),
        sheet);
    if (figure != NULL && ok) {
        const struct curve all[] = {
            {"median head, range of heads", n, s.k, s.middle, s.least, s.most, false, false},
            {"even spread", n, s.k, s.even, NULL, NULL, true, false},
        };
        char line[48];
        snprintf(line, sizeof line, "top %lld", (long long)p->k);
        const struct curves curves = {.curves = all,
                                      .n = 2,
                                      .y_low = 0.0,
                                      .y_high = 1.02,
                                      .x_title = "k, pairs of a head",
                                      .y_title = "share of the total",
                                      .x_line = (double)p->k,
                                      .x_line_title = line};
        dpe_draw_curves(figure, &curves);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(block);
    free(id);
}

/* ---------------------------------------------------------------------------------------- section
 */

dpe_status dpe_sections_norms(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        struct input *input = &report->inputs[i];
        if (!dpe_h5_has(input->table, "/norms/mean")) {
            continue;
        }
        struct profile profile;
        status = read_profile(report, input, &profile, err);
        if (status == DPE_OK) {
            char *rule = dpe_input_read_words(input, "/norms", "contribution");
            dpe_draw_add_text(
                &report->document, BLOCK_SECTION,
                dpe_input_section_title(report, input, "/norms/mean", "Contribution of each pair"));
            dpe_draw_add_text(
                &report->document, BLOCK_TEXT,
                dpe_draw_format_text(
                    "Pairs that contribute little to a head's logits need no scaled "
                    "positions. Contributions are averaged over excerpts of lengths "
                    "up to the trained one (rule: %s). Their standard errors are in "
                    "the CSV file; pairs whose contributions differ by less are ties.",
                    rule != NULL ? rule : "unknown"));
            free(rule);
            add_map(report, &profile, false);
            add_map(report, &profile, true);
            add_held(report, &profile);
            add_cumulative(report, &profile);
        }
        profile_free(&profile);
    }
    return status;
}

/* A profile: which pairs carry the logits of each head, and the share of its top k. */
#include "outputs/datasets/kinds.h"
#include "outputs/report/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/** A profile as shares of each head's total. */
struct profile {
    int64_t layers, heads, pairs;
    const struct dpe_norms_result *r;
    double *share;  /**< the same, each head's sum = 1; NaN where a head was not measured */
    int64_t *order; /**< the pairs of each head, those with the largest share first */
    double *held;   /**< [k + 1][layer × head]: share of the first k */
    int64_t k;      /**< key pairs of each head */
    const char *k_source;
    const struct dpe_table_part
        *table; /**< group edges of a table beside it, for the axis; or NULL */
};

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

/* The share at a place of the order. */
static double ranked(const struct profile *p, int64_t place)
{
    return p->share[place - place % p->pairs + p->order[place]];
}

/* False without memory. */
static bool derive(struct dpe_report *report, struct profile *p)
{
    const int64_t rows = p->layers * p->heads;
    const size_t n = (size_t)(rows * p->pairs);
    p->share = dpe_report_alloc(report, n, sizeof *p->share);
    p->order = dpe_report_alloc(report, n, sizeof *p->order);
    p->held = dpe_report_alloc(report, n + (size_t)rows, sizeof *p->held);
    for (int64_t r = 0; r < rows && report->status == DPE_OK; r++) {
        const double *mean = p->r->mean + r * p->pairs;
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
            held += ranked(p, r * p->pairs + j);
            p->held[(j + 1) * rows + r] = held;
        }
    }
    return report->status == DPE_OK;
}

/* How many pairs the line is drawn at: asked for, or of a table in the report, or the paper's three
 * quarters. False after a failure. */
static bool choose_k(struct dpe_report *report, struct profile *p)
{
    p->k = (int64_t)llround(0.75 * (double)p->pairs);
    p->k_source = "three quarters, as in the paper";
    for (size_t i = 0; i < report->n && report->status == DPE_OK; i++) {
        const struct dpe_table_part *part =
            dpe_input_table(report, &report->inputs[i], "top_k group_edge");
        if (part != NULL && part->top_k != NULL && *part->top_k >= 0.0 &&
            *part->top_k <= (double)p->pairs) {
            p->k = (int64_t)*part->top_k;
            p->k_source = "the table's";
        }
        p->table = p->table == NULL && part != NULL && part->group_edge != NULL ? part : p->table;
    }
    if (report->top_k != 0.0) {
        p->k = report->top_k < 0.0 ? (int64_t)llround(-report->top_k * (double)p->pairs)
                                   : (int64_t)report->top_k;
        p->k_source = "from --top-k";
    }
    if (report->status == DPE_OK && p->k > p->pairs) {
        dpe_report_ok(report,
                      dpe_fail(report->err, DPE_USAGE, "--top-k: a head has %lld pairs, found %lld",
                               (long long)p->pairs, (long long)p->k));
    }
    return report->status == DPE_OK;
}

/* --------------------------------------------------------------------------------------- sheets */

static struct dpe_sheet *map_sheet(const struct dpe_report *report, const struct profile *p,
                                   bool by_size)
{
    struct dpe_sheet *sheet = dpe_report_sheet(
        report, by_size ? "norms-ranked" : "norms",
        by_size ? "layer:0|head:0|place:0|pair:0|share of the head:5|share up to here:5"
                : "layer:0|head:0|pair:0|share of the head:5|contribution:5|standard error:5",
        "%s",
        by_size ? "Contributions of each head, largest first"
                : "2-norm contributions by layer, head and pair");
    const int64_t rows = p->layers * p->heads;
    for (int64_t i = 0; i < rows * p->pairs; i++) {
        const int64_t row = i / p->pairs;
        const int64_t place = i % p->pairs;
        dpe_draw_row(sheet, row / p->heads, row % p->heads, place);
        if (by_size) {
            dpe_draw_row(sheet, p->order[i], ranked(p, i), p->held[(place + 1) * rows + row]);
        } else {
            dpe_draw_row(sheet, p->share[i], p->r->mean[i],
                         p->r->sem != NULL ? p->r->sem[i] : (double)NAN);
        }
    }
    dpe_draw_shown(sheet, 12, false);
    return sheet;
}

/* -------------------------------------------------------------------------------------- figures */

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
    dpe_sort(values, (size_t)kept);
    return dpe_quantile(values, (size_t)kept, share);
}

enum { MOST_EDGES = 65 };

/* Where the axis of pairs has its ticks: at the groups' edges, else at quarters. How many. */
static int64_t axis_edges(const struct profile *p, bool by_size, int64_t edges[MOST_EDGES])
{
    int64_t n = 0;
    for (; !by_size && p->table != NULL && n < p->table->n[TABLE_EDGE] && n < MOST_EDGES; n++) {
        edges[n] = (int64_t)p->table->group_edge[n];
    }
    if (n == 0 || edges[n - 1] != p->pairs) {
        for (n = 0; n <= 4; n++) {
            edges[n] = n * p->pairs / 4;
        }
    }
    return n;
}

/* In units of the even share; the colours end at the largest percent, which few outliers fill. */
static void add_map(struct dpe_report *report, const struct profile *p, bool by_size)
{
    const int64_t n = p->layers * p->heads * p->pairs;
    double *value = dpe_report_alloc(report, (size_t)n + 1, 2 * sizeof *value);
    int64_t edges[MOST_EDGES];
    char cut[48];
    struct dpe_sheet *sheet = map_sheet(report, p, by_size);
    struct dpe_figure *figure =
        by_size ? dpe_report_figure(
                      report, sheet, NULL,
                      "The same contributions, sorted within each head. The vertical line follows "
                      "the top %lld of %lld pairs (%s): to its left are the key pairs, whose far "
                      "positions are scaled; the pairs to its right keep their true positions.",
                      (long long)p->k, (long long)p->pairs, p->k_source)
                : dpe_report_figure(
                      report, sheet, NULL,
                      "Each row is a query head (%lld in each layer), each column a pair of "
                      "dimensions. The value bounds how much the pair can contribute to the "
                      "head's logits: its mean query norm times its mean key norm, where 1 is an "
                      "even share. Bright cells are the pairs that a head uses most.",
                      (long long)p->heads);
    for (int64_t i = 0; value != NULL && i < n; i++) {
        value[i] = (by_size ? ranked(p, i) : p->share[i]) * (double)p->pairs;
        value[n + i] = value[i];
    }
    snprintf(cut, sizeof cut, "top %lld", (long long)p->k);
    if (figure != NULL && value != NULL) {
        double high = quantile(value + n, n, 0.99);
        const struct dpe_field field = {
            .n_rows = p->layers * p->heads,
            .n_columns = p->pairs,
            .value = value,
            DPE_ENDS(0.0, isnan(high) ? 1.0 : fmax(high, 1.0)),
            .row_step = p->heads,
            DPE_TITLES(by_size ? "pairs of the head, largest first" : "pair (0 turns fastest)",
                       "layer", "times the even share"),
            .cut = by_size ? (double)p->k : (double)NAN,
            .cut_title = cut,
            .x_edges = edges,
            .n_x_edges = axis_edges(p, by_size, edges)};
        dpe_draw_field(figure, &field);
    }
}

/* Share that the top-k hold: a cell for each head. */
static void add_held(struct dpe_report *report, const struct profile *p)
{
    const int64_t rows = p->layers * p->heads;
    struct dpe_sheet *sheet = dpe_report_sheet(
        report, "norms-top-k", "layer:0|head:0|share of the top k:4", "Share of the key pairs");
    const struct dpe_plot plot = {
        .kind = PLOT_HEAT, .digits = 3, DPE_TITLES("query head", "layer", "share")};
    for (int64_t r = 0; r < rows; r++) {
        dpe_draw_row(sheet, r / p->heads, r % p->heads, p->held[p->k * rows + r]);
    }
    dpe_report_figure(report, sheet, &plot,
                      "The share of a head's total contribution that its top %lld of %lld pairs "
                      "have; an even spread would be %.2f. Bright heads lose little when only "
                      "their key pairs are scaled; dark heads spread their contribution evenly.",
                      (long long)p->k, (long long)p->pairs, (double)p->k / (double)p->pairs);
}

/* Median and extremes over the heads, for each k. */
static void add_cumulative(struct dpe_report *report, const struct profile *p)
{
    const int64_t rows = p->layers * p->heads;
    char line[48];
    snprintf(line, sizeof line, "top %lld", (long long)p->k);
    const struct dpe_plot plot = {.kind = PLOT_CURVES,
                                  DPE_ENDS(0.0, 1.02),
                                  DPE_TITLES("k, pairs of a head", "share of the total", NULL),
                                  DPE_LINE((double)p->k, line)};
    double *heads = dpe_report_alloc(report, (size_t)rows, sizeof *heads);
    struct dpe_sheet *sheet =
        dpe_report_sheet(report, "norms-cumulative", "k:0|share, median and range of heads:i4",
                         "Share of the top k pairs");
    struct dpe_sheet *drawn = dpe_draw_instead(sheet, "line:t|k:0|share:i4");
    for (int64_t k = 0; heads != NULL && k <= p->pairs; k++) {
        memcpy(heads, p->held + k * rows, (size_t)rows * sizeof *heads);
        const double middle = quantile(heads, rows, 0.5);
        const struct dpe_sheet_cell share =
            dpe_interval_cell(middle, quantile(heads, rows, 0.0), quantile(heads, rows, 1.0));
        dpe_draw_row(sheet, k, share);
        dpe_draw_row(drawn, "median head, range of heads", k, share);
    }
    for (int64_t k = 0; k <= p->pairs; k++) {
        dpe_draw_row(drawn, "even spread", k, (double)k / (double)p->pairs);
        dpe_draw_row_mark(drawn, ROW_PLAIN);
    }
    dpe_report_figure(report, sheet, &plot,
                      "The share of a head's total contribution that its k largest pairs have: "
                      "the median head, and as a band all heads from the most even to the most "
                      "concentrated. The further the curve is above the even spread, the more "
                      "pairs can keep their true positions.");
}

/* -------------------------------------------------------------------------------------- section */

void dpe_sections_norms(struct dpe_report *report)
{
    const struct dpe_report_input *input = report->about.input;
    struct profile p = {.r = dpe_input_get(report, input, &dpe_norms_kind, "/norms", "mean sem")};
    if (p.r == NULL) {
        return;
    }
    p.layers = p.r->n[DPE_NORMS_LAYER];
    p.heads = p.r->n[DPE_NORMS_HEAD];
    p.pairs = p.r->n[DPE_NORMS_PAIR];
    if (!choose_k(report, &p) || !derive(report, &p)) {
        return;
    }
    const char *rule = dpe_input_words(report, input, "/norms", "contribution");
    dpe_report_section(report, "Contribution of each pair");
    dpe_report_say(report, BLOCK_TEXT,
                   "Pairs that contribute little to a head's logits need no scaled positions. "
                   "Contributions are averaged over excerpts of lengths up to the trained one "
                   "(rule: %s). Their standard errors are in the CSV file; pairs whose "
                   "contributions differ by less are ties.",
                   rule != NULL ? rule : "unknown");
    add_map(report, &p, false);
    add_map(report, &p, true);
    add_held(report, &p);
    add_cumulative(report, &p);
}

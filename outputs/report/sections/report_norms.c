/* A profile: which pairs carry the logits of each head, and the share of its top k. */
#include "outputs/datasets/kinds.h"
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
    int64_t *order; /**< the pairs of each head, those with the largest share first */
    double *held;   /**< [k + 1][layer × head]: share of the first k */
    int64_t k;      /**< key pairs of each head */
    const char *k_source;
    struct table_part table; /**< group edges of a table beside it, for the axis */
};

static void profile_free(struct profile *p)
{
    dpe_datasets_free(&dpe_norms_kind, &p->r);
    dpe_input_table_free(&p->table);
    free(p->share);
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

/* The share at a place of the order. */
static double ranked(const struct profile *p, int64_t place)
{
    return p->share[place - place % p->pairs + p->order[place]];
}

static dpe_status derive(struct profile *p, struct dpe_error *err)
{
    int64_t rows = p->layers * p->heads;
    size_t n = (size_t)(rows * p->pairs);
    p->share = dpe_alloc(n, sizeof *p->share);
    p->order = dpe_alloc(n, sizeof *p->order);
    p->held = dpe_alloc_zero(n + (size_t)rows, sizeof *p->held);
    if (p->share == NULL || p->order == NULL || p->held == NULL) {
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
            held += ranked(p, r * p->pairs + j);
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
        struct table_part part;
        status = dpe_input_table(&report->inputs[i], "top_k group_edge", &part, err);
        if (status == DPE_OK && part.top_k != NULL && *part.top_k >= 0.0 &&
            *part.top_k <= (double)p->pairs) {
            p->k = (int64_t)*part.top_k;
            p->k_source = "the table's";
        }
        if (status == DPE_OK && p->table.group_edge == NULL) {
            dpe_input_table_free(&p->table);
            p->table = part;
        } else {
            dpe_input_table_free(&part);
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
    DPE_TRY(dpe_input_get(input, &dpe_norms_kind, &p->r, "/norms", "mean sem", err));
    p->layers = p->r.n[DPE_NORMS_LAYER];
    p->heads = p->r.n[DPE_NORMS_HEAD];
    p->pairs = p->r.n[DPE_NORMS_PAIR];
    DPE_TRY(choose_k(report, p, err));
    return derive(p, err);
}

/* ------------------------------------------------------------------------------------------ sheets
 */

static struct sheet *map_sheet(const struct report *report, const struct profile *p, bool by_size)
{
    struct sheet *sheet = dpe_report_sheet(
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
            dpe_draw_row(sheet, p->share[i], p->r.mean[i],
                         p->r.sem != NULL ? p->r.sem[i] : (double)NAN);
        }
    }
    dpe_draw_shown(sheet, 12, false);
    return sheet;
}

/* ----------------------------------------------------------------------------------------- figures
 */

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
    for (size_t e = 0; !by_size && p->table.group_edge != NULL &&
                       e < (size_t)p->table.n[TABLE_EDGE] && e < MOST_EDGES;
         e++) {
        edges[n++] = (int64_t)p->table.group_edge[e];
    }
    if (n == 0 || edges[n - 1] != p->pairs) {
        for (n = 0; n <= 4; n++) {
            edges[n] = n * p->pairs / 4;
        }
    }
    return n;
}

/* In units of the even share; the colours end at the largest percent, which few outliers fill. */
static void add_map(struct report *report, const struct profile *p, bool by_size)
{
    const int64_t n = p->layers * p->heads * p->pairs;
    double *value = dpe_alloc((size_t)n + 1, 2 * sizeof *value);
    int64_t edges[MOST_EDGES];
    char cut[48];
    struct sheet *sheet = map_sheet(report, p, by_size);
    struct figure *figure =
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
        const struct field field = {.n_rows = p->layers * p->heads,
                                    .n_columns = p->pairs,
                                    .value = value,
                                    .low = 0.0,
                                    .high = isnan(high) ? 1.0 : fmax(high, 1.0),
                                    .row_step = p->heads,
                                    .x_title = by_size ? "pairs of the head, largest first"
                                                       : "pair (0 turns fastest)",
                                    .y_title = "layer",
                                    .bar_title = "times the even share",
                                    .cut = by_size ? (double)p->k : (double)NAN,
                                    .cut_title = cut,
                                    .x_edges = edges,
                                    .n_x_edges = axis_edges(p, by_size, edges)};
        dpe_draw_field(figure, &field);
    }
    report->document.failed = report->document.failed || value == NULL;
    free(value);
}

/* Share that the top-k hold: a cell for each head. */
static void add_held(struct report *report, const struct profile *p)
{
    const int64_t rows = p->layers * p->heads;
    struct sheet *sheet = dpe_report_sheet(
        report, "norms-top-k", "layer:0|head:0|share of the top k:4", "Share of the key pairs");
    const struct plot plot = {.kind = PLOT_HEAT,
                              .digits = 3,
                              .x_title = "query head",
                              .y_title = "layer",
                              .bar_title = "share"};
    for (int64_t r = 0; r < rows; r++) {
        dpe_draw_row(sheet, r / p->heads, r % p->heads, p->held[p->k * rows + r]);
    }
    dpe_report_figure(report, sheet, &plot,
                      "The share of a head's total contribution that its top %lld of %lld "
                      "pairs have; an even spread would be %.2f. Bright heads lose little "
                      "when only their key pairs are scaled; dark heads spread their "
                      "contribution evenly.",
                      (long long)p->k, (long long)p->pairs, (double)p->k / (double)p->pairs);
}

/* Median and extremes over the heads, for each k. */
static void add_cumulative(struct report *report, const struct profile *p)
{
    const int64_t rows = p->layers * p->heads;
    char line[48];
    snprintf(line, sizeof line, "top %lld", (long long)p->k);
    const struct plot plot = {.kind = PLOT_CURVES,
                              .low = 0.0,
                              .high = 1.02,
                              .x_title = "k, pairs of a head",
                              .y_title = "share of the total",
                              .x_line = (double)p->k,
                              .x_line_title = line};
    double *heads = dpe_alloc((size_t)rows, sizeof *heads);
    struct sheet *sheet =
        dpe_report_sheet(report, "norms-cumulative", "k:0|share, median and range of heads:i4",
                         "Share of the top k pairs");
    struct sheet *drawn = dpe_report_sheet(report, "", "line:t|k:0|share:i4", "%s", "");
    for (int64_t k = 0; heads != NULL && k <= p->pairs; k++) {
        memcpy(heads, p->held + k * rows, (size_t)rows * sizeof *heads);
        const double middle = quantile(heads, rows, 0.5);
        const struct sheet_cell share =
            dpe_interval_cell(middle, quantile(heads, rows, 0.0), quantile(heads, rows, 1.0));
        dpe_draw_row(sheet, k, share);
        dpe_draw_row(drawn, "median head, range of heads", k, share);
    }
    for (int64_t k = 0; k <= p->pairs; k++) {
        dpe_draw_row(drawn, "even spread", k, (double)k / (double)p->pairs);
        dpe_draw_row_mark(drawn, ROW_PLAIN);
    }
    struct figure *figure =
        dpe_report_figure(report, sheet, NULL,
                          "The share of a head's total contribution that its k largest pairs "
                          "have: the median head, and as a band all heads from the most even to "
                          "the most concentrated. The further the curve is above the even "
                          "spread, the more pairs can keep their true positions.");
    if (figure != NULL) {
        dpe_draw_plot(figure, drawn, &plot);
    }
    report->document.failed =
        report->document.failed || heads == NULL || drawn == NULL || drawn->failed;
    dpe_draw_sheet_free(drawn);
    free(heads);
}

/* ---------------------------------------------------------------------------------------- section
 */

dpe_status dpe_sections_norms(struct report *report, const struct input *input,
                              struct dpe_error *err)
{
    struct profile profile;
    dpe_status status = read_profile(report, input, &profile, err);
    if (status == DPE_OK) {
        char *rule = dpe_input_read_words(input, "/norms", "contribution");
        dpe_report_section(report, "Contribution of each pair");
        dpe_report_say(report, BLOCK_TEXT,
                       "Pairs that contribute little to a head's logits need no scaled "
                       "positions. Contributions are averaged over excerpts of lengths "
                       "up to the trained one (rule: %s). Their standard errors are in "
                       "the CSV file; pairs whose contributions differ by less are ties.",
                       rule != NULL ? rule : "unknown");
        free(rule);
        add_map(report, &profile, false);
        add_map(report, &profile, true);
        add_held(report, &profile);
        add_cumulative(report, &profile);
    }
    profile_free(&profile);
    return status;
}

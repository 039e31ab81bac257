/* A profile: which pairs carry the logits of each head, and the share of its top k. */
#include "outputs/words/words.h"

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
    const struct dpe_norms_words *of;
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

static void derive(struct dpe_page *page, struct profile *p)
{
    const int64_t rows = p->layers * p->heads;
    const size_t n = (size_t)(rows * p->pairs);
    p->share = dpe_page_alloc(page, n, sizeof *p->share);
    p->order = dpe_page_alloc(page, n, sizeof *p->order);
    p->held = dpe_page_alloc(page, n + (size_t)rows, sizeof *p->held);
    for (int64_t r = 0; r < rows; r++) {
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
}

/* --------------------------------------------------------------------------------------- sheets */

static struct dpe_sheet *map_sheet(const struct dpe_page *page, const struct profile *p,
                                   bool by_size)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        page, by_size ? "norms-ranked" : "norms",
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
    for (; !by_size && p->of->group_edge != NULL && n < p->of->n_edges && n < MOST_EDGES; n++) {
        edges[n] = p->of->group_edge[n];
    }
    if (n == 0 || edges[n - 1] != p->pairs) {
        for (n = 0; n <= 4; n++) {
            edges[n] = n * p->pairs / 4;
        }
    }
    return n;
}

/* In units of the even share; the colours end at the largest percent, which few outliers fill. */
static void add_map(struct dpe_page *page, const struct profile *p, bool by_size)
{
    const int64_t n = p->layers * p->heads * p->pairs;
    double *value = dpe_page_alloc(page, (size_t)n, 2 * sizeof *value);
    int64_t edges[MOST_EDGES];
    char cut[48];
    struct dpe_sheet *sheet = map_sheet(page, p, by_size);
    struct dpe_figure *figure =
        by_size ? dpe_page_figure(
                      page, sheet, NULL,
                      "The same contributions, sorted within each head. The vertical line follows "
                      "the top %lld of %lld pairs (%s): to its left are the key pairs, whose far "
                      "positions are scaled; the pairs to its right keep their true positions.",
                      (long long)p->of->k, (long long)p->pairs, p->of->k_source)
                : dpe_page_figure(
                      page, sheet, NULL,
                      "Each row is a query head (%lld in each layer), each column a pair of "
                      "dimensions. The value bounds how much the pair can contribute to the "
                      "head's logits: its mean query norm times its mean key norm, where 1 is an "
                      "even share. Bright cells are the pairs that a head uses most.",
                      (long long)p->heads);
    for (int64_t i = 0; i < n; i++) {
        value[i] = (by_size ? ranked(p, i) : p->share[i]) * (double)p->pairs;
        value[n + i] = value[i];
    }
    snprintf(cut, sizeof cut, "top %lld", (long long)p->of->k);
    const double high = quantile(value + n, n, 0.99);
    const struct dpe_field field = {
        .n_rows = p->layers * p->heads,
        .n_columns = p->pairs,
        .value = value,
        DPE_ENDS(0.0, isnan(high) ? 1.0 : fmax(high, 1.0)),
        .row_step = p->heads,
        DPE_TITLES(by_size ? "pairs of the head, largest first" : "pair (0 turns fastest)", "layer",
                   "times the even share"),
        .cut = by_size ? (double)p->of->k : (double)NAN,
        .cut_title = cut,
        .x_edges = edges,
        .n_x_edges = axis_edges(p, by_size, edges)};
    dpe_draw_field(figure, &field);
}

/* What k pairs of each head hold: the median head, and all of them. */
static struct dpe_sheet_cell held_by(const struct profile *p, int64_t k, double *heads)
{
    const int64_t rows = p->layers * p->heads;
    memcpy(heads, p->held + k * rows, (size_t)rows * sizeof *heads);
    const double middle = quantile(heads, rows, 0.5);
    return dpe_interval_cell(middle, quantile(heads, rows, 0.0), quantile(heads, rows, 1.0));
}

/* Median and extremes over the heads, for each k. */
static void add_cumulative(struct dpe_page *page, const struct profile *p, double *heads)
{
    char line[48];
    snprintf(line, sizeof line, "top %lld", (long long)p->of->k);
    const struct dpe_plot plot = {.kind = PLOT_CURVES,
                                  DPE_ENDS(0.0, 1.02),
                                  DPE_TITLES("k, pairs of a head", "share of the total", NULL),
                                  DPE_LINE((double)p->of->k, line)};
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "norms-cumulative", "k:0|share, median and range of heads:i4",
                       "Share of the top k pairs");
    struct dpe_sheet *drawn = dpe_draw_instead(sheet, "line:t|k:0|share:i4");
    for (int64_t k = 0; k <= p->pairs; k++) {
        const struct dpe_sheet_cell share = held_by(p, k, heads);
        dpe_draw_row(sheet, k, share);
        dpe_draw_row(drawn, "median head, range of heads", k, share);
    }
    for (int64_t k = 0; k <= p->pairs; k++) {
        dpe_draw_row(drawn, "even spread", k, (double)k / (double)p->pairs);
        dpe_draw_row_mark(drawn, ROW_PLAIN);
    }
    dpe_page_figure(page, sheet, &plot,
                    "The share of a head's total contribution that its k largest pairs have: "
                    "the median head, and as a band all heads from the most even to the most "
                    "concentrated. The further the curve is above the even spread, the more "
                    "pairs can keep their true positions.");
}

/* -------------------------------------------------------------------------------------- section */

int64_t dpe_words_usual_k(int64_t pairs)
{
    return (int64_t)llround(0.75 * (double)pairs);
}

/* The mean over the heads of a layer that were measured. */
static double mean_of_layer(const struct profile *p, int64_t layer, int64_t k)
{
    const double *held = p->held + k * p->layers * p->heads + layer * p->heads;
    double sum = 0.0;
    double n = 0.0;
    for (int64_t head = 0; head < p->heads; head++) {
        sum += isnan(held[head]) ? 0.0 : held[head];
        n += isnan(held[head]) ? 0.0 : 1.0;
    }
    return sum / n;
}

static void add_layers(struct dpe_page *page, const struct profile *p)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        page, "norms-layers", "layer:0|top quarter, %:1|half, %:1|three quarters, %:1",
        "What the largest pairs hold of a head's contribution, mean of a layer's heads");
    for (int64_t layer = 0; layer < p->layers; layer++) {
        if (!isnan(mean_of_layer(p, layer, p->pairs))) { /* a recurrent one has no keys */
            dpe_draw_row(sheet, layer, 100.0 * mean_of_layer(p, layer, p->pairs / 4),
                         100.0 * mean_of_layer(p, layer, p->pairs / 2),
                         100.0 * mean_of_layer(p, layer, p->pairs * 3 / 4));
        }
    }
    dpe_page_add(page, sheet);
}

void dpe_words_norms(struct dpe_page *page, const struct dpe_norms_result *result,
                     const struct dpe_norms_words *of)
{
    struct profile p = {.layers = result->n[DPE_NORMS_LAYER],
                        .heads = result->n[DPE_NORMS_HEAD],
                        .pairs = result->n[DPE_NORMS_PAIR],
                        .r = result,
                        .of = of};
    double *heads = dpe_page_alloc(page, (size_t)(p.layers * p.heads), sizeof *heads);
    derive(page, &p);
    const struct dpe_sheet_cell held = held_by(&p, of->k, heads);
    dpe_page_section(page, "Contribution of each pair");
    dpe_page_say(page, BLOCK_LEAD,
                 "The largest %lld of the %lld pairs (%s) hold %.0f\u00a0%% of a head's "
                 "contribution: the median head; %.0f to %.0f\u00a0%% over all heads.",
                 (long long)of->k, (long long)p.pairs, of->k_source, 100.0 * held.number[0],
                 100.0 * held.number[1], 100.0 * held.number[2]);
    dpe_page_say(page, BLOCK_TEXT,
                 "Pairs that contribute little to a head's logits need no scaled positions. "
                 "Contributions are averaged over excerpts of lengths up to the trained one "
                 "(rule: %s). Their standard errors are in the CSV file; pairs whose "
                 "contributions differ by less are ties.",
                 of->contribution != NULL ? of->contribution : "unknown");
    add_layers(page, &p);
    if (page->printed) {
        return;
    }
    add_map(page, &p, false);
    add_map(page, &p, true);
    add_cumulative(page, &p, heads);
}

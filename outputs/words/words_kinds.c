/* Results of one kind each: tunings, needles by depth and length, divergences. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "outputs/words/words.h"

/* -------------------------------------------------------------------------------------- tunings */

/* Whether no method at this length has a larger mean. */
static bool is_best(const struct dpe_tune_result *t, int64_t i)
{
    bool best = !isnan(t->tuned[i].tuned.mean);
    for (int64_t k = 0; k < t->n[0]; k++) {
        best = best && !(t->tuned[k].length == t->tuned[i].length &&
                         t->tuned[k].tuned.mean > t->tuned[i].tuned.mean);
    }
    return best;
}

static void add_tuned(struct dpe_page *page, const struct dpe_tune_result *t)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        page, "tune",
        "method:t|length:0|chosen setting:t|defaults:i1|tuned:i1|tuned - defaults:i1|p:p|"
        "tuned - first:i1|p of it:p|rows:0",
        "Recall on fresh samples, in percent");
    for (int64_t i = 0; i < t->n[0]; i++) {
        const struct dpe_tuned *one = &t->tuned[i];
        struct dpe_sheet_cell tuned = dpe_scaled_cell(&one->tuned, 100.0);
        tuned.mark = is_best(t, i) ? MARK_BEST : 0;
        dpe_draw_row(sheet, one->method, one->length, one->chosen,
                     dpe_scaled_cell(&one->plain, 100.0), tuned,
                     dpe_scaled_cell(&one->gain.minus, 100.0), one->gain.p,
                     dpe_scaled_cell(&one->ahead.minus, 100.0), one->ahead.p, one->rows);
    }
    dpe_page_add(page, sheet);
}

void dpe_words_tune(struct dpe_page *page, const struct dpe_tune_result *result, int64_t fresh)
{
    dpe_page_section(page, "Settings of methods");
    dpe_page_say(
        page, BLOCK_NOTE,
        "The settings of each method had as many rows as those of the others. What was chosen of "
        "them was then run on %lld fresh samples, beside the method at its defaults. 95 %% "
        "intervals; p is of a sign-flip test of the difference, not "
        "corrected for the number of methods. The largest mean of each length is marked.",
        (long long)fresh);
    add_tuned(page, result);
}

static void add_map(struct dpe_page *page, const struct dpe_grid_result *g, size_t method)
{
    const size_t lengths = (size_t)g->n[DPE_GRID_LENGTH];
    const size_t cells = (size_t)g->n[DPE_GRID_DEPTH] * lengths;
    const struct dpe_interval *mean = g->mean + method * cells;
    double most = 0.0;
    char id[32];
    snprintf(id, sizeof id, "grid-%zu", method + 1);
    struct dpe_sheet *sheet = dpe_page_sheet(page, id, "depth:2|length:0|recall, %:i1|samples:0",
                                             "%s: one needle by depth and length",
                                             dpe_page_clean(page, g->method[method], 60));
    for (size_t i = 0; i < cells; i++) {
        char depth_text[32];
        struct dpe_sheet_cell depth = dpe_number_cell(g->depth[i / lengths]);
        snprintf(depth_text, sizeof depth_text, "%.0f %%", 100.0 * depth.number[0]);
        depth.text = depth_text;
        dpe_draw_row(sheet, depth, g->length[i % lengths], dpe_scaled_cell(&mean[i], 100.0),
                     mean[i].n);
        most = fmax(most, (double)mean[i].n);
    }
    const struct dpe_plot plot = {
        .kind = PLOT_HEAT,
        .told = true,
        DPE_ENDS(0.0, 100.0),
        DPE_TITLES("length, tokens", "depth of the needle", "needles found, %")};
    dpe_page_figure(page, sheet, &plot,
                    "Percentage of needles found, with %.0f sample%s in each cell.", most,
                    most == 1.0 ? "" : "s");
}

void dpe_words_grid(struct dpe_page *page, const struct dpe_grid_result *g)
{
    dpe_page_section(page, "One needle by depth and length");
    dpe_page_say(
        page, BLOCK_TEXT,
        "One needle is hidden at a depth of the text (0\u00a0%% is its beginning), and a question "
        "at the end asks for it. A dark column or band shows where a method fails; intervals are "
        "in "
        "the table of numbers.");
    for (size_t m = 0; m < (size_t)g->n[DPE_GRID_METHOD]; m++) {
        add_map(page, g, m);
    }
}

/* What is less is rounding, and would stretch a logarithmic axis. */
static const double least_drawn = 1e-9;

static void add_row(struct dpe_sheet *sheet, const char *method, double position,
                    const struct dpe_kld_cell *cell)
{
    dpe_draw_row(sheet, method, position, dpe_scaled_cell(&cell->mean, 1.0), cell->median,
                 cell->p99, cell->p999, 100.0 * cell->same_top, 100.0 * cell->change_rms,
                 cell->ratio.mean);
}

#define COLUMNS(second)                                                                            \
    "method:t|" second                                                                             \
    "|mean:i5|median:5|99 %:4|99.9 %:4|same top token, %:2|RMS change of p, %:2|"                  \
    "perplexity / base:4"

static void add_sheets(struct dpe_page *page, const struct dpe_kld_result *k)
{
    const int64_t buckets = k->n[DPE_KLD_POSITION];
    struct dpe_sheet *whole =
        dpe_page_sheet(page, "divergence", COLUMNS("tokens:0"), "Over all tokens");
    struct dpe_sheet *by = dpe_page_sheet(page, "divergence-by-position",
                                          COLUMNS("from position:0"), "Divergence by position");
    for (int64_t m = 0; m < k->n[DPE_KLD_METHOD]; m++) {
        add_row(whole, k->method[m], (double)k->whole[m].n, &k->whole[m]);
        for (int64_t b = 0; b < buckets; b++) {
            add_row(by, k->method[m], (double)k->position[b], &k->at[m * buckets + b]);
        }
    }
    const struct dpe_plot plot = {
        .kind = PLOT_CURVES,
        .log_x = true,
        .log = true,
        .least = least_drawn,
        .told = true,
        DPE_TITLES("position of the token", "KL(base, method), nats", NULL)};
    dpe_page_add(page, whole);
    dpe_page_figure(
        page, by, &plot,
        "Mean over the tokens from each power of two of positions to the next; less than %g "
        "is not drawn.",
        least_drawn);
}

void dpe_words_kld(struct dpe_page *page, const struct dpe_kld_result *result,
                   const struct dpe_kld_words *of)
{
    dpe_page_section(page, "Divergence from the base");
    dpe_page_say(page, BLOCK_TEXT,
                 "How far the distribution of the next token is from that of the base "
                 "(%s), after every token of the same texts: the Kullback-Leibler "
                 "divergence in nats, 0 where both agree. 95 %% intervals over texts.",
                 of->base);
    if (strcmp(of->base, "rope") == 0 && of->length > of->trained) {
        dpe_page_say(page, BLOCK_NOTE,
                     "Beyond position %lld, the trained length, the base is no yardstick: "
                     "unchanged, the model may fail there, and what differs from it may be "
                     "better.",
                     (long long)of->trained);
    }
    add_sheets(page, result);
}

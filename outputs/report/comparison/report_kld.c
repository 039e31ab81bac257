/* Divergence of the next token from a base's, by position. */
#include "outputs/report/comparison/report_eval.h"

#include <stdlib.h>
#include <string.h>

/* What is less is rounding, and would stretch a logarithmic axis. */
static const double least_drawn = 1e-9;

static void add_row(struct sheet *sheet, const char *method, double position,
                    const struct dpe_kld_cell *cell)
{
    dpe_draw_row(sheet, dpe_text_cell(method), dpe_number_cell(position),
                 dpe_scaled_cell(&cell->mean, 1.0), dpe_number_cell(cell->median),
                 dpe_number_cell(cell->p99), dpe_number_cell(cell->p999),
                 dpe_number_cell(100.0 * cell->same_top), dpe_number_cell(100.0 * cell->change_rms),
                 dpe_number_cell(cell->ratio.mean));
}

#define COLUMNS(second)                                                                            \
    "method:t|" second                                                                             \
    "|mean:i5|median:5|99 %:4|99.9 %:4|same top token, %:2|RMS change of p, %:2|"                  \
    "perplexity / base:4"

static void add_sheets(struct report *report, const struct dpe_kld_result *k)
{
    const int64_t buckets = k->n[DPE_KLD_POSITION];
    struct sheet *whole =
        dpe_report_sheet(report, "divergence", COLUMNS("tokens:0"), "Over all tokens");
    struct sheet *by = dpe_report_sheet(report, "divergence-by-position",
                                        COLUMNS("from position:0"), "Divergence by position");
    for (int64_t m = 0; m < k->n[DPE_KLD_METHOD]; m++) {
        add_row(whole, k->method[m], (double)k->whole[m].n, &k->whole[m]);
        for (int64_t b = 0; b < buckets; b++) {
            add_row(by, k->method[m], (double)k->position[b], &k->at[m * buckets + b]);
        }
    }
    const struct plot plot = {.kind = PLOT_CURVES,
                              .x = 1,
                              .value = 2,
                              .log_x = true,
                              .log = true,
                              .least = least_drawn,
                              .x_title = "position of the token",
                              .y_title = "KL(base, method), nats"};
    dpe_report_add(report, whole);
    dpe_report_figure(
        report, by, &plot,
        "Mean over the tokens from each power of two of positions to the next; less than %g "
        "is not drawn.",
        least_drawn);
}

static dpe_status write_divergence(struct report *report, const struct input *input,
                                   struct dpe_error *err)
{
    struct dpe_kld_result k = {0};
    dpe_status status = dpe_input_get(input, &dpe_kld_kind, &k, "/kld", NULL, err);
    if (status == DPE_OK) {
        char *base = dpe_input_read_words(input, "/kld", "base");
        dpe_report_section(report, "Divergence from the base");
        dpe_report_unfinished(report);
        dpe_report_say(report, BLOCK_TEXT,
                       "How far the distribution of the next token is from that of the base "
                       "(%s), after every token of the same texts: the Kullback-Leibler "
                       "divergence in nats, 0 where both agree. 95 %% intervals over texts.",
                       base != NULL ? base : "rope");
        const long long trained = dpe_input_read_whole(input, "/kld", "trained_length", 0);
        const bool unchanged = base != NULL && strcmp(base, "rope") == 0;
        if (unchanged && dpe_input_read_whole(input, "/kld", "length", 0) > trained) {
            dpe_report_say(report, BLOCK_TEXT,
                           "From position %lld, the trained length, on the base is no yardstick: "
                           "unchanged, the model may fail there, and what differs from it may be "
                           "better.",
                           trained);
        }
        add_sheets(report, &k);
        free(base);
    }
    dpe_datasets_free(&dpe_kld_kind, &k);
    return status;
}

dpe_status dpe_comparison_divergences(struct report *report, struct dpe_error *err)
{
    return dpe_report_each(report, "/kld/method", NULL, write_divergence, err);
}

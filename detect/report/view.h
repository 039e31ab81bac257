/**
 * @file view.h
 * How the terminal shows a report. Texts are put at the end of `out`, which remembers when memory
 * ran out.
 */
#ifndef DPE_DETECT_VIEW_H
#define DPE_DETECT_VIEW_H

#include "data/data.h"
#include "detect/report/report.h"
#include "engine/base/base.h"

enum dpe_detect_colour { DPE_DETECT_MONO, DPE_DETECT_256, DPE_DETECT_TRUECOLOUR };

/** What the terminal can show. `no_colour`, `term` and `colorterm` are the environment's NO_COLOR,
 *  TERM and COLORTERM (NULL = unset). */
enum dpe_detect_colour dpe_detect_colour_of(bool terminal, const char *no_colour, const char *term,
                                            const char *colorterm);

/** The group × length heat map, the best of each group marked by '*', appended to `out`. Fits into
 *  `width` columns (≥ 20): cells shrink from 0.625 to 6, and from there whole columns are left out
 *  and counted. Colours set both fore- and background, so any terminal theme shows them. */
void dpe_detect_heatmap(const struct dpe_detect_grid *grid,
                        const struct dpe_detect_ranking *ranking, int width,
                        enum dpe_detect_colour colour, struct dpe_text *out);
/** A line per group: pairs, effective length, scale, and as many ranks with their intervals as fit
 *  into `width`. */
void dpe_detect_rank_table(const struct dpe_detect_grid *grid,
                           const struct dpe_detect_ranking *ranking, int width,
                           struct dpe_text *out);
/** The answer, at most twelve lines: which plan, up to which length the model is usable with it,
 * what it finds and predicts, what short texts lose, the best plan that needs no adapter, and what
 * was tried. First lines of the terminal; the table keeps them for dpe-report. Nothing before the
 * validation. */
void dpe_detect_words(const struct dpe_detect_report *report, struct dpe_text *out);
/** What an adapter is worth beside the best plan without one, in a line; nothing where there is
 * none. */
void dpe_detect_plain_text(const struct dpe_detect_report *report, struct dpe_text *out);
/** Groups whose lengths may be first by chance, in a line; nothing where there are none. */
void dpe_detect_noise_words(const struct dpe_detect_report *report, struct dpe_text *out);

/** What the live line shows. */
struct dpe_detect_progress {
    const char *stage;     /**< "sweep" or "validate" */
    int64_t round, rounds; /**< 1-based; plans_done counts within the round */
    int64_t plans_done, plans, rows_done, rows;
    double rate;         /**< rows per second, ≤ 0 = unknown */
    double seconds_left; /**< < 0 = unknown */
    const int64_t *best; /**< [n_best] best length so far, −1 = none yet; NULL = not shown */
    int n_best;
};
/** One line of at most `width` columns, NUL-terminated in text[size], no newline: what matters
 *  least is shortened and dropped first. */
void dpe_detect_live_line(const struct dpe_detect_progress *progress, int width, char *text,
                          size_t size);

/* ---------------------------------------------------------------------- parts of several texts */

/** What a result measured: "recall", "step score" or "perplexity". */
const char *dpe_detect_measure(const struct dpe_detect_report *report,
                               const struct dpe_detect_result *result);
/** A mean of recall or a perplexity, with its interval where it has one: "0.938 [0.900, 0.970]". */
void dpe_detect_interval_text(enum dpe_detect_criterion criterion, const struct dpe_interval *value,
                              bool with_bounds, char text[64]);
/** "+0.042 [+0.000, +0.125], p = 1.000". */
void dpe_detect_difference_text(const struct dpe_difference *difference, char text[96]);

#endif

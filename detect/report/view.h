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
/** The validated plans and the verdict in words; names [n_plans], NULL: there are but three; `base`
 *  says what the base is. */
void dpe_detect_validation_table(const struct dpe_detect_validation *validation,
                                 const char (*names)[DPE_DETECT_PLAN_NAME], const char *base,
                                 int width, struct dpe_text *out);
/** The steps of a search: its plans with recall (or nats per token), which was taken, and why. */
void dpe_detect_search_table(const struct dpe_detect_report *report, struct dpe_text *out);
/** Where the rule has no first lines and another validated plan than the joint one is kept: which.
 *  Nothing otherwise. */
void dpe_detect_kept_line(const struct dpe_detect_report *report, struct dpe_text *out);
/** What the guard did, and perplexities of the validated plans by position. Nothing without one. */
void dpe_detect_guard_table(const struct dpe_detect_report *report, struct dpe_text *out);
/** Lines about the best plan that needs no adapter, and what an adapter adds to it; nothing where
 * no such plan was validated. */
void dpe_detect_plain_text(const struct dpe_detect_report *report, struct dpe_text *out);
/** What came out, in sentences: what the table holds, how well it does, and against what. A line
 *  each, those below the main one indented by two spaces. First lines of the terminal; the table
 *  keeps them for dpe-report. Nothing before the validation. */
void dpe_detect_words(const struct dpe_detect_report *report, struct dpe_text *out);
/** Groups whose lengths may be first by chance, in a line; nothing where there are none. */
void dpe_detect_noise_words(const struct dpe_detect_report *report, struct dpe_text *out);
/** What a race dropped, in a line; nothing without a race. */
void dpe_detect_race_words(const struct dpe_detect_report *report, struct dpe_text *out);
/** How the joint plan does against the base, a line for each sentence. */
void dpe_detect_verdict_words(const struct dpe_detect_validation *validation, struct dpe_text *out);

/** The result of the rule `ready`: a line for each plan, and the words. */
void dpe_detect_ready(const struct dpe_detect_report *report, struct dpe_text *out);

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
/** What the guard did, in a sentence without a line's end; "" where there is nothing to say. */
void dpe_detect_guard_words(const struct dpe_detect_report *report, char *text, size_t size);
/** The advice of the rule `ready`, and what the samples show of it. */
void dpe_detect_ready_words(const struct dpe_detect_report *report, struct dpe_text *out);
/** A number of samples in two digits, rounded up: more would be more than is known. */
int64_t dpe_detect_two_digits(int64_t n);
/** Whether an interval of a difference has both ends on one side of 0. */
bool dpe_detect_leaves_zero(const struct dpe_difference *difference);
/** "+0.042 [+0.000, +0.125], p = 1.000". */
void dpe_detect_difference_text(const struct dpe_difference *difference, char text[96]);

#endif

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

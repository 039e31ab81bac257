/**
 * @file render.h
 * What the files that render into memory share.
 */
#ifndef DPE_DETECT_RENDER_H
#define DPE_DETECT_RENDER_H

#include "detect/report/report.h"
#include "detect/sweep/ranking.h"
#include "engine/base/base.h"

/** A mean of recall or a perplexity, with its interval where it has one: "0.938 [0.900, 0.970]". */
void dpe_detect_interval_text(enum dpe_detect_criterion criterion, double mean, double low,
                              double high, bool with_bounds, char *text, size_t size);
/** What the guard did, in a sentence without a line's end; "" where there is nothing to say. */
void dpe_detect_guard_words(const struct dpe_detect_report *report, char *text, size_t size);
/** The advice of the rule `ready`, and what the samples show of it. */
void dpe_detect_ready_words(const struct dpe_detect_report *report, struct dpe_text *out);
/** A number of samples in two digits, rounded up: more would be more than is known. */
int64_t dpe_detect_two_digits(int64_t n);
/** Whether an interval of a difference has both ends on one side of 0. */
bool dpe_detect_leaves_zero(const struct dpe_difference *difference);
/** "+0.042 [+0.000, +0.125], p = 1.000". */
void dpe_detect_difference_text(const struct dpe_difference *difference, char *text, size_t size);

#endif

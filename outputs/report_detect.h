/**
 * @file report_detect.h
 * A detection as dpe-report reads it; shared by the files that write about one.
 */
#ifndef DPE_REPORT_DETECT_H
#define DPE_REPORT_DETECT_H

#include "report.h"

/** What an input has that is a detection. */
#define DETECTION "/detect/effective_length"

/** Mean with interval, [group][length]; n = 0 when it is not there. */
struct measured {
    struct numbers mean, low, high, rank, informative;
};

struct detection {
    const struct input *input;
    int64_t n_groups, n_lengths;
    struct numbers length, effective, informative, p_value, rank;
    struct measured recall, perplexity;
    struct numbers inv_freq, edge, scale_factor, trained, evaluated;
    char *criterion;
    bool by_recall; /**< needles decide */
};
void detection_free(struct detection *detection);
/** Tokens: the length it is for, and the trained one (0 = unknown). */
double detection_length(const struct detection *detection);
double detection_trained(const struct detection *detection);
/** "The answer": what the chosen lengths are worth, and which they are. */
dpe_status detection_answer(struct report *report, const struct detection *detection,
                            struct dpe_error *err);

#endif

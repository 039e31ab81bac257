/**
 * @file interval.h
 * A mean and its interval, and the difference of two: as statistics make them and tables hold them.
 */
#ifndef DPE_INTERVAL_H
#define DPE_INTERVAL_H

#include <stdint.h>

struct dpe_interval {
    double mean;      /**< NaN when there is no valid value */
    double low, high; /**< NaN when they cannot be had: fewer than two contexts (books), no rounds,
                           a level outside (0, 1), no memory */
    int64_t n;        /**< valid (non-NaN) values */
};

/** The numbers that a comparison has besides the difference: NUMBER(member, dataset, units, what).
 * Units NULL: those of the score. A further number is a line here and a line in dpe_compare: tables
 * hold it, and JSON, CSV and reports show it. */
#define DPE_DIFFERENCE_NUMBERS(NUMBER, ...)                                                        \
    NUMBER(p, "p_value", "1", "two-sided paired test of: no difference", __VA_ARGS__)              \
    NUMBER(detectable, "detectable", NULL,                                                         \
           "smallest difference that a test of so many samples shows in four of five cases",       \
           __VA_ARGS__)

/** What one plan is better than another by. */
struct dpe_difference {
    struct dpe_interval minus; /**< mean(a − b), pairs */
#define DPE_DIFFERENCE_MEMBER(member, name, units, what, ...) double member;
    DPE_DIFFERENCE_NUMBERS(DPE_DIFFERENCE_MEMBER, )
#undef DPE_DIFFERENCE_MEMBER
};

#endif

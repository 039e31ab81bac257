/**
 * @file interval.h
 * A mean and its interval, as statistics make it and tables hold it.
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

#endif

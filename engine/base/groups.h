/**
 * @file groups.h
 * Groups of tokens that grow along a curve (engine/plan/plan.h and outputs/table/dpe_table.h say
 * which).
 */
#ifndef DPE_GROUPS_H
#define DPE_GROUPS_H

#include <math.h>

/** A place in the list of groups: the groups of `size` tokens begin at token `begin`, and the first
 * of them has the number `first`. */
struct dpe_groups {
    double size, first, begin;
};

/** The number of the group that token x lies in. `at` begins with {0}; for tokens that do not
 * decrease it goes on from where the last call left it, and then a call costs next to nothing.
 * Alone it takes at most sqrt(2 x) steps.
 *
 * Groups of k tokens end before the first whose number i has C / (1 + (C − 1) e^(−r i)) ≥ k + 1,
 * i = ln((k + 1) (C − 1) / (C − k − 1)) / r. Sizes that no group has are passed over: the curve
 * gives the size at a number, less one for rounding. */
static inline double dpe_group_of(double most, double rate, double x, struct dpe_groups *at)
{
    at->size = fmax(at->size, 1.0);
    while (at->size < most - 1.0) {
        double k = at->size;
        double end = ceil(log((k + 1.0) * (most - 1.0) / (most - k - 1.0)) / rate);
        double next = at->begin + fmax(0.0, end - at->first) * k;
        if (x < next) {
            break;
        }
        at->begin = next;
        at->first = fmax(at->first, end);
        at->size = fmax(k + 1.0, floor(most / (1.0 + (most - 1.0) * exp(-rate * at->first))) - 1.0);
    }
    return x > at->begin ? at->first + floor((x - at->begin) / at->size) : at->first;
}

#endif

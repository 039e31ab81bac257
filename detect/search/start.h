/**
 * @file start.h
 * Where the sweep of a longer length begins: near what the sweep of a shorter one chose.
 */
#ifndef DPE_DETECT_START_H
#define DPE_DETECT_START_H

#include "engine/base/base.h"
#include "engine/plan/plan.h"

/** What the shorter sweep found. Borrowed. */
struct dpe_detect_shorter {
    int64_t length;         /**< that it is for */
    int64_t trained;        /**< L0 */
    const int64_t *chosen;  /**< [n_groups] lengths, −1: none */
    const uint8_t *informs; /**< [n_groups] the group's lengths differ beyond noise */
    int64_t n_groups;
    struct dpe_temperature temperature; /**< of its table */
};
/** The detecting lengths that a sweep for `length` tokens tries: of `auto` (the length and its
 * halves, down to 1/128 of it and to the window) the length itself, those from L0/2 to L0, those
 * nearest to what the shorter sweep chose, and those within a factor of two of what it chose for a
 * group whose lengths differ beyond noise. To `text` as
 *  --lengths takes them; "" where that leaves fewer than two, which are not limited then. */
void dpe_detect_start_lengths(const struct dpe_detect_shorter *shorter, int64_t length,
                              int64_t window, char *text, size_t size);
/** "auto:K=V,…", a search around its temperature, as --temperature takes it; "" where it has none.
 */
void dpe_detect_start_temperature(const struct dpe_detect_shorter *shorter,
                                  char text[DPE_TEMPERATURE_TEXT + 8]);

#endif

/**
 * @file rotation.h
 * Tables of cosines and sines of a plan.
 */
#ifndef DPE_ROTATION_H
#define DPE_ROTATION_H

#include "engine/base/base.h"
#include "engine/plan/plan.h"

/** Cosines and sines of a plan, made once per plan and capacity: every distinct (band, side)
 *  position list becomes one table [capacity][n_pairs], angle in the plan's precision, cosine
 *  evaluated in double, stored as float. A selection that packs keys needs fewer rows
 *  (dpe_selection_places), which `capacity` then is. Constant maps and equal maps share a table. */
struct dpe_rotation {
    int64_t capacity, n_pairs;
    int n_tables;
    float *cos[2 * DPE_MAX_BANDS], *sin[2 * DPE_MAX_BANDS]; /**< of one block, from cos[0] on */
    int q_table[DPE_MAX_BANDS], k_table[DPE_MAX_BANDS];     /**< which table a band's side uses */
};
dpe_status dpe_rotation_make(const struct dpe_plan *plan, int64_t capacity, int n_threads,
                             struct dpe_rotation *rotation, struct dpe_error *err);
void dpe_rotation_free(struct dpe_rotation *rotation);
/** Bytes of the tables that dpe_rotation_make will allocate. */
uint64_t dpe_rotation_bytes(const struct dpe_plan *plan, int64_t capacity);

#endif

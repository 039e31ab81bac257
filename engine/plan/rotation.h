/**
 * @file rotation.h
 * The tables of a plan (struct dpe_rotation, plan.h) made in two steps, for a caller that looks up
 * meanwhile.
 */
#ifndef DPE_ROTATION_H
#define DPE_ROTATION_H

#include "engine/plan/plan.h"

/** Room for the tables; free it with dpe_rotation_free. Errors as dpe_rotation_make. */
dpe_status dpe_rotation_room(const struct dpe_plan *plan, int64_t capacity,
                             struct dpe_rotation *rotation, struct dpe_error *err);
/** Their rows first … end − 1. */
void dpe_rotation_fill(const struct dpe_plan *plan, int64_t first, int64_t end, int n_threads,
                       struct dpe_rotation *rotation);

#endif

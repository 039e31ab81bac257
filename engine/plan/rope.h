/**
 * @file rope.h
 * Frequencies of the rope types that checkpoints name.
 */
#ifndef DPE_ROPE_H
#define DPE_ROPE_H

#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/plan/plan.h"

/** Native frequencies and attention factor of a checkpoint (rope, linear, dynamic, yarn, longrope,
 *  llama3) for an evaluated length: inv_freq [head_dim/2]; *attention_factor is a (logits × a²).
 *  Source: transformers' modeling_rope_utils. */
dpe_status dpe_rope_native(const struct dpe_config *config, int64_t length, double *inv_freq,
                           double *attention_factor, struct dpe_error *err);

/** Frequencies [head_dim/2] and attention factor of a rope configuration; `head_dim` counts the
 *  components that rotate. `max_position` is what
 *  `dynamic` grows from, and what takes the place of an absent original_max_position.
 *  DPE_BAD_DATA names a parameter that is missing or makes no sense. */
dpe_status dpe_rope_compute(const struct dpe_rope_config *rope, int64_t head_dim,
                            int64_t max_position, int64_t length, double *inv_freq,
                            double *attention_factor, struct dpe_error *err);

/** Multiply the plan's logits by a², those of pairs that do not rotate apart (HF multiplies the
 *  cosines and sines by a). Once for each plan. */
void dpe_plan_set_rope_factor(struct dpe_plan *plan, double a);

#endif

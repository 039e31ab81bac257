/**
 * @file recur_cpu.h
 * Layers with a state on the CPU backend (engine/model/config/recurrent.h).
 */
#ifndef DPE_RECUR_CPU_H
#define DPE_RECUR_CPU_H

#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/model/config/config.h"
#include "engine/model/config/layer_weights.h"
#include "engine/ops/ops.h"

/** Bytes of dpe_recurrence.workspace. */
uint64_t dpe_cpu_recur_workspace(const struct dpe_config *config, int n_threads);
/** Slot recur. A run goes in pieces that end at multiples of 64 tokens, each by matrix products;
 * key heads are shared among the threads, so the bits do not depend on their number, and a row of a
 * step has those of a run of one token. */
void dpe_cpu_recur(const struct dpe_cpu_kernels *kernels, const struct dpe_config *config,
                   const struct dpe_layer_weights *weights, const struct dpe_recurrence *args,
                   int n_threads);

#endif

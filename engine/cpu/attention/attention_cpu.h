/**
 * @file attention_cpu.h
 * Attention of the CPU backend.
 */
#ifndef DPE_ATTENTION_CPU_H
#define DPE_ATTENTION_CPU_H

#include "engine/base/base.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/model/config/config.h"
#include "engine/ops/ops.h"
#include "engine/plan/plan.h"

/** Bytes of dpe_attention.workspace for calls of at most `rows` rows over at most `keys` keys. */
uint64_t dpe_cpu_attention_workspace(const struct dpe_cpu_kernels *kernels,
                                     const struct dpe_cpu_bf16 *bf16,
                                     const struct dpe_config *config, const struct dpe_plan *plan,
                                     int64_t keys, int64_t rows, int n_threads);
/** Fills dpe_attention.marks (ops.h, slot represent). */
void dpe_cpu_represent(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args);
/** The whole attention of one layer, as dpe_ops.attention; picks the decode driver for few rows.
 *  bf16 not NULL: many rows without a selection in bfloat16. */
void dpe_cpu_attention(const struct dpe_cpu_kernels *kernels, const struct dpe_cpu_bf16 *bf16,
                       const struct dpe_attention *args, int64_t n);

#endif

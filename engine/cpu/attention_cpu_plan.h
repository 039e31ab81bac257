/**
 * @file attention_cpu.h
 * What the two attention drivers of the CPU backend share: how a copy is rotated, where the key of
 * a position lies, and sizes that do not overflow.
 */
#ifndef DPE_ATTENTION_CPU_PLAN_H
#define DPE_ATTENTION_CPU_PLAN_H

#include "engine/cpu/cpu_kernels.h"
#include "engine/plan/segments.h"

/** The mask of a head as words for dpe_cpu_rotation.select; n_pairs of them. */
void dpe_copy_select(const struct dpe_attention *args, int64_t head, uint32_t *select);
/** The rotation of a copy from position `first` on; `select` is used when the copy is masked. */
struct dpe_cpu_rotation dpe_copy_rotation(const struct dpe_attention *args,
                                          const struct dpe_rotated *copy, int base_table,
                                          int64_t first, const uint32_t *select);

/** Raw logits of one row, of which `factor` makes base-2 logits, under the plan's cap; n a multiple
 *  of lanes. */
void dpe_cap_logits(const struct dpe_cpu_kernels *kernels, const struct dpe_plan *plan,
                    float factor, int64_t n, float *logits);

/** a · b and a + b that stay at UINT64_MAX when they overflow. */
uint64_t dpe_bytes_times(uint64_t a, uint64_t b);
uint64_t dpe_bytes_plus(uint64_t a, uint64_t b);

/** The cache row of the key at position n for a query with this offset, and in *end the first
 *  position after n whose row does not follow. */
static inline int64_t dpe_cache_row(const struct dpe_attention *args, int64_t offset, int64_t n,
                                    int64_t *end)
{
    bool common = n < args->prefix && offset != 0;
    *end = common ? args->prefix : INT64_MAX;
    return n < args->prefix ? n : n + offset;
}

/** Calls of at most so many rows, and those of several branches, take the decode driver, which
 *  packs nothing and takes so many rows at a time. */
enum { DPE_CPU_DECODE_ROWS = 4 };

/** The decode driver and its workspace in bytes. */
void dpe_cpu_attention_decode(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args);
uint64_t dpe_cpu_decode_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int n_threads);

#endif

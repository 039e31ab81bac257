/**
 * @file attention_cpu.h
 * What the two attention drivers of the CPU backend share: where bands lie in the keys, which
 * rotated copies of queries and keys a plan needs, and where things lie in the workspace.
 */
#ifndef DPE_ATTENTION_CPU_PLAN_H
#define DPE_ATTENTION_CPU_PLAN_H

#include "engine/cpu/ops_cpu_kernels.h"

/** Keys [any_lo, any_hi) are all that some query of a range has in a band by its predicate alone,
 *  [all_lo, all_hi) those that every query of the range has; both within the causal triangle. For a
 *  single query they are the same. */
struct dpe_reach {
    int64_t any_lo, any_hi, all_lo, all_hi;
};
/** Reach of band b for the queries first … last (inclusive). */
struct dpe_reach dpe_band_reach(const struct dpe_plan *plan, int b, int64_t first, int64_t last);

/** One rotated copy of the keys or queries: the table that turns it; in a masked copy only the
 * pairs of the head's mask, the others by the first band's table. */
struct dpe_copy {
    int table;
    bool masked;
};

/** The distinct copies of one side of a plan, and which of them each band uses. */
struct dpe_copies {
    int n, n_masked;
    struct dpe_copy copies[DPE_MAX_BANDS];
    int of_band[DPE_MAX_BANDS];
};
/** `table` is dpe_rotation.q_table or k_table. */
struct dpe_copies dpe_copies_find(const struct dpe_plan *plan, const int *table);
/** As many copies as a plan can need when its rotation is not made yet. */
struct dpe_copies dpe_copies_most(const struct dpe_plan *plan);

/** The mask of a head as words for dpe_cpu_rotation.select; n_pairs of them. */
void dpe_copy_select(const struct dpe_attention *args, int64_t head, uint32_t *select);
/** The rotation of a copy from position `first` on; `select` is used when the copy is masked. */
struct dpe_cpu_rotation dpe_copy_rotation(const struct dpe_attention *args,
                                          const struct dpe_copy *copy, int base_table,
                                          int64_t first, const uint32_t *select);

/** a · b and a + b that stay at UINT64_MAX when they overflow. */
uint64_t dpe_bytes_times(uint64_t a, uint64_t b);
uint64_t dpe_bytes_plus(uint64_t a, uint64_t b);

/** The cache row of the key at position n for a query with this offset, and in *end the first
 *  position behind n whose row does not follow. */
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

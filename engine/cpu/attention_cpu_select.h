/**
 * @file attention_cpu_select.h
 * The parts of attention under a selection: representatives of blocks (attention_cpu_represent.c),
 * choices (attention_cpu_choose.c), and the walk of what was chosen (attention_cpu_select.c).
 */
#ifndef DPE_ATTENTION_CPU_SELECT_H
#define DPE_ATTENTION_CPU_SELECT_H

#include "engine/cpu/attention_cpu_plan.h"

enum {
    DPE_CPU_SELECT_SLAB = 256, /**< rows whose choices are in the workspace at a time */
    DPE_CPU_SELECT_HEADS = 4,  /**< heads or queries at a time: what the kernel `dots` takes */
};

/** Workspace, in floats. */
struct dpe_cpu_select_layout {
    int64_t group, units, keys;
    int64_t blocks, chosen, slashes; /**< blocks, and choices of a query, at most */
    uint64_t lists_at, thread_at, thread_floats, total;
    uint64_t far_at, p_at, dots_at, x_at, o_at, keys_at, rotated_at, select_at, s_at, q_at,
        state_at, runs_at;
};

struct dpe_cpu_select_call {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_attention *args;
    const struct dpe_selection *selection;
    struct dpe_rotated_copies q_copies, k_copies;
    struct dpe_cpu_select_layout layout;
    int64_t row, rows;                     /**< of the slab */
    int64_t groups;                        /**< of the slab */
    int64_t of_group[DPE_CPU_SELECT_SLAB]; /**< first row of each */
    int64_t of_row[DPE_CPU_SELECT_SLAB];   /**< group of each, from 0 on */
    int32_t *counts;                       /**< [groups][units][2]: blocks, distances */
    int32_t *lists;                        /**< [groups][units][chosen + slashes] */
    float *threads;
};

/** What scoring and representing use of a thread's part. */
struct dpe_cpu_select_room {
    double *scores; /**< of all blocks; or sums of the keys of a block and a row */
    double *far;    /**< of all distances */
    float *p;       /**< [DPE_CPU_SELECT_HEADS][keys]: probabilities, where they score */
    float *dots;    /**< [DPE_CPU_SELECT_HEADS][DPE_CPU_BLOCK] */
    float *x;       /**< [DPE_CPU_SELECT_HEADS][2 · head_dim] */
    float *o;       /**< [DPE_CPU_SELECT_HEADS][head_dim] */
    float *keys;    /**< [block][head_dim], where a block is weighed */
    float *rotated; /**< [DPE_CPU_ROTATED][head_dim] */
};

/** Of a call whose queries see at most so many keys, with so many rotated copies of a query. */
struct dpe_cpu_select_layout dpe_cpu_select_lay_out(const struct dpe_attention *args, int n_copies,
                                                    int64_t keys);
float *dpe_cpu_select_thread(const struct dpe_cpu_select_call *call);
struct dpe_cpu_select_room dpe_cpu_select_thread_room(const struct dpe_cpu_select_call *call);

/** A kept query of a head. */
const float *dpe_cpu_select_query(const struct dpe_attention *args, int64_t head, int64_t offset,
                                  int64_t m);
/** Keys n … n+count−1 of a KV head, count ≤ DPE_CPU_ROTATED and one after another in the cache from
 *  `row` on, as they are scored: where they are or in `room`. */
const float *dpe_cpu_select_keys(const struct dpe_cpu_select_call *call, int64_t kv_head, int64_t n,
                                 int64_t row, int64_t count, float *room);
/** The rotation of a query or of keys from `position` on as they are scored; false: none. */
bool dpe_cpu_select_rotation(const struct dpe_attention *args, bool keys, int64_t position,
                             struct dpe_cpu_rotation *rotation);
/** How many keys from n on, before `end` and at most `most`, are one after another in the cache. */
int64_t dpe_cpu_select_next(const struct dpe_attention *args, int64_t offset, int64_t n,
                            int64_t end, int64_t most, int64_t *row);

/** What group g of the slab chooses for a unit, to the call's lists. */
void dpe_cpu_select_choose(const struct dpe_cpu_select_call *call, int64_t g, int64_t unit);

/** Floats of a representative. */
int64_t dpe_cpu_select_mark_floats(const struct dpe_cpu_select_call *call);

#endif

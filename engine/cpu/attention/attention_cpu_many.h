/**
 * @file attention_cpu_many.h
 * Attention for many rows in two parts: attention_cpu_pack.c says where things lie in the workspace
 * and packs keys, values and queries, attention_cpu.c walks what is packed.
 */
#ifndef DPE_ATTENTION_CPU_MANY_H
#define DPE_ATTENTION_CPU_MANY_H

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/attention/attention_cpu_plan.h"

enum {
    DPE_CPU_QUERY_ROWS = 96,              /**< rows of an item: a multiple of every mr */
    DPE_CPU_STRIPE = 128 * DPE_CPU_BLOCK, /**< keys that are packed at a time */
};

static inline int64_t dpe_cpu_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/** What the layout depends on. */
struct dpe_cpu_extent {
    int64_t n_heads, n_kv_heads, head_dim, rows, keys;
    int n_threads;
    bool unpacks; /**< keys and values lie in a dpe_kv */
    bool bf16;
};

/** Where things lie in the workspace, in floats. The same arithmetic for the largest call
 * (estimate) and for the call at hand, which therefore fits. */
struct dpe_cpu_layout {
    struct dpe_rotated_copies q, k;
    int64_t kv_heads_at_once, group;                          /* group: query heads of a KV head */
    int64_t stripe, panels, panel_floats, pack_floats, width; /* keys and panels of a stripe */
    int64_t copies_per_kv_head;                               /* packed key copies */
    int64_t pair; /* numbers in the place of a float: 2 in bfloat16, else 1 */
    bool pack_v;  /* rows of V are not whole vectors, are unpacked or rounded */
    bool stripes; /* several: every item has a state of its own, else every thread */
    uint64_t k_at, v_at, state_at, thread_at, total;
    uint64_t state_floats; /* of an item: o [rows][width], reference [rows], sum [rows] */
    uint64_t q_floats, s_at, mixed_at, rotated_at, tile_at, select_at, thread_floats;
};

struct dpe_cpu_call {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_cpu_bf16 *bf16; /* NULL: in float */
    const struct dpe_attention *args;
    struct dpe_cpu_layout layout;
    int64_t keys;  /* start + rows */
    float *factor; /* [rows up to a whole item] base-2 logit of a dot product */
    float *packed_k, *packed_v, *states, *threads;
};

/** One (query block, query head) and the buffers of the thread that works on it. */
struct dpe_cpu_item {
    const struct dpe_cpu_call *call;
    int64_t begin, end;              /* keys of the stripe */
    int64_t head, slot, row, n_rows; /* slot: KV head among those packed now */
    float *q, *o, *reference, *sum, *s, *mixed, *rotated, *tile;
    uint32_t *select;
};

struct dpe_cpu_layout dpe_cpu_lay_out(const struct dpe_cpu_kernels *kernels,
                                      const struct dpe_cpu_extent *extent,
                                      struct dpe_rotated_copies q, struct dpe_rotated_copies k);
/** All copies of the keys n0 … of one block of one KV head, and its rows of V where they are
 * packed. */
void dpe_cpu_pack_block(const struct dpe_cpu_item *item, int64_t kv_head, int64_t n0);
/** The packed panel of keys n0 … of copy c for a query head; n0 a multiple of panel. */
float *dpe_cpu_key_panel(const struct dpe_cpu_item *item, int64_t head_in_group, int c, int64_t n0);
/** All copies of the queries of an item. */
void dpe_cpu_pack_queries(const struct dpe_cpu_item *item);

#endif

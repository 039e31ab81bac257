/**
 * @file attention_cpu_internal.h
 * What the attention drivers of the CPU backend share, and what each is made of.
 */
#ifndef DPE_ATTENTION_CPU_INTERNAL_H
#define DPE_ATTENTION_CPU_INTERNAL_H

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/plan/segments.h"

/* ----------------------------------------------------------------------------- of all drivers */

/* How a copy is rotated, where the key of a position lies, which bands a tile touches, how a head
 * is written, and sizes that do not overflow. */

#define LOG2_E 1.4426950408889634

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

/** Appends `floats` to *total, in whole cache lines; where they start. */
uint64_t dpe_place(uint64_t *total, uint64_t floats);

/** Bands of a tile row that touch the keys at places n0 … n1−1, as bits; *whole: the one band that
 *  holds all of them for all rows, or −1. */
unsigned dpe_cpu_touching_bands(const struct dpe_reach *reach, int n_bands, int64_t n0, int64_t n1,
                                int *whole);
/** Appends `count` keys to the spans; the last span goes on where they follow it. */
void dpe_cpu_add_span(struct dpe_cpu_spans *spans, int64_t column, int64_t row, int64_t count);
/** The attention of a head of a row to args->out, and to args->lse where not NULL: o [head_dim] is
 *  the sum of 2^(logit − reference) · v, `sum` that of 2^(logit − reference). */
void dpe_cpu_write_head(const struct dpe_attention *args, int64_t row, int64_t head, const float *o,
                        float reference, float sum);

/** The cache row of the key at position n for a query with this offset, and in *end the first
 *  position after n whose row does not follow. */
static inline int64_t dpe_cache_row(const struct dpe_attention *args, int64_t offset, int64_t n,
                                    int64_t *end)
{
    bool common = n < args->prefix && offset != 0;
    *end = common ? args->prefix : INT64_MAX;
    return n < args->prefix ? n : n + offset;
}

/** The same for query r of a call without a selection, which may read rows of another branch. */
static inline int64_t dpe_key_row(const struct dpe_attention *args, int64_t r, int64_t n,
                                  int64_t *end)
{
    struct dpe_lent lent = dpe_attention_lent(args, r);
    if (n < lent.positions) {
        *end = lent.positions;
        return n + lent.offset;
    }
    return dpe_cache_row(args, dpe_attention_offset(args, r), n, end);
}

/** Calls of at most so many rows, and those of several branches, take the decode driver, which
 * packs nothing. */
enum { DPE_CPU_DECODE_ROWS = 4 };

/** Some query heads of a KV head at one query, for the drivers that pack nothing: the state of
 *  their softmax and room to work in. */
struct dpe_cpu_query {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_attention *args;
    const struct dpe_rotated_copies *q_copies, *k_copies;
    int64_t place;              /**< of the query: its position, or where a selection puts it */
    int64_t head, heads;        /**< first query head and their number */
    const float *q;             /**< [heads][q_copies->n][head_dim], rotated */
    float factor;               /**< of a product as a base-2 logit */
    float *reference, *sum, *o; /**< [heads], [heads], [heads][head_dim] */
    float *s;                   /**< [heads][DPE_CPU_BLOCK] */
    float *rotated;             /**< [DPE_CPU_ROTATED][head_dim] */
    float *tile;                /**< the same, for rows that a dpe_kv unpacks */
    uint32_t *select;           /**< [head_dim / 2] */
    const float *after;         /**< keys that are met next, requested meanwhile; or NULL */
    struct dpe_reach reach[DPE_MAX_BANDS];
};
enum { DPE_CPU_ROTATED = 32 /**< keys rotated at a time */ };

/** At most DPE_CPU_BLOCK keys that lie one after another in the cache. */
struct dpe_cpu_keys {
    int64_t place; /**< of the first */
    bool constant; /**< all stand there; else one after another */
    int64_t count;
    int64_t row; /**< cache row of the first */
};
/** Nothing is seen yet; the reaches of the bands from `place`. */
void dpe_cpu_query_begin(struct dpe_cpu_query *query);
/** The query meets these keys, whose rows are read a tile at a time (dpe_attention_rows). */
void dpe_cpu_query_meet(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys);
/** All copies of head `head` of row `row` at a place: out [q_copies.n][head_dim]. */
void dpe_cpu_rotate_query(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args,
                          const struct dpe_rotated_copies *copies, int64_t row, int64_t head,
                          int64_t place, uint32_t *select, float *out);

/** Rotated queries [rows][head_dim] times dpe_attention.late, where there is one. */
static inline void dpe_cpu_scale_rotated(const struct dpe_attention *args, int64_t rows, float *q)
{
    for (int64_t i = 0; args->late != NULL && i < rows * args->head_dim; i++) {
        q[i] *= args->late[i % args->head_dim];
    }
}

/** The driver of plans with a selection, its workspace in bytes, and the representatives it chooses
 * by (ops.h, slot represent). */
void dpe_cpu_attention_select(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args);
uint64_t dpe_cpu_select_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int64_t rows, int n_threads);

/** The decode driver, for n calls as dpe_ops.attention has them, and its workspace in bytes. */
void dpe_cpu_attention_decode(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args, int64_t n);
uint64_t dpe_cpu_decode_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int n_threads);

/* -------------------------------------------------------------------------- under a selection */

/* Representatives of blocks (attention_cpu_represent.c), scores and choices
 * (attention_cpu_choose.c), and the walk of what was chosen (attention_cpu_select.c). */

enum {
    DPE_CPU_SELECT_SLAB = 256,   /**< rows whose choices are in the workspace at a time */
    DPE_CPU_SELECT_ROWS = 96,    /**< of a strip, a multiple of every mr */
    DPE_CPU_SELECT_HEADS = 4,    /**< heads or queries at a time: what the kernel `dots` takes */
    DPE_CPU_SELECT_QUERIES = 32, /**< that choose together at most */
};

/** Workspace, in floats. */
struct dpe_cpu_select_layout {
    int64_t group, units, keys;
    int64_t blocks, chosen, slashes; /**< blocks, and choices of a query, at most */
    int64_t queries;                 /**< that choose together, at most */
    uint64_t lists_at, thread_at, thread_floats, total;
    int copies; /**< rotated, of a query or of keys, whichever has more */
    uint64_t strip_at, tile_at, far_at, p_at, dots_at, x_at, packs_at, panel_at, best_at, o_at,
        keys_at, rotated_at, select_at, s_at, q_at, state_at, runs_at;
};

/** Consecutive rows that share a choice. */
struct dpe_cpu_select_rows {
    int64_t row, n;
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
    bool tiles; /**< queries of the slab choose together, in tiles: of all of it, whatever a thread
                     takes, since the sums of tiles have another order */
    int64_t n_strips;
    struct dpe_cpu_select_rows strips[DPE_CPU_SELECT_SLAB]; /**< of the slab */
    int32_t *counts; /**< [groups][units][2]: blocks, distances */
    int32_t *lists;  /**< [groups][units][chosen + slashes] */
    float *threads;
};

/** What scoring and representing use of a thread's part. */
struct dpe_cpu_select_room {
    double *scores; /**< [queries][layout.blocks]; or sums of the keys of a block and a row */
    double *far;    /**< of all distances */
    float *p;       /**< [DPE_CPU_SELECT_HEADS][keys, or blocks]: probabilities, where they score */
    float *dots;    /**< [DPE_CPU_SELECT_HEADS][DPE_CPU_BLOCK] */
    float *x;       /**< [queries][DPE_CPU_SELECT_HEADS][2 · head_dim] */
    float *packs;   /**< x in row packs of mr, where several queries choose together */
    float *panel;   /**< [head_dim or 2 · head_dim][kernels->panel], the same */
    float *best;    /**< [queries][DPE_CPU_SELECT_HEADS] */
    float *o;       /**< [DPE_CPU_SELECT_HEADS][head_dim] */
    float *keys;    /**< [block][head_dim], where a block is weighed */
    float *rotated; /**< [DPE_CPU_ROTATED][head_dim] */
    float *tile;    /**< the same, for rows that a dpe_kv unpacks */
};

/** The sizes of a call, for an estimate of what the largest one needs. */
static inline struct dpe_attention dpe_cpu_attention_sized(const struct dpe_config *config,
                                                           const struct dpe_plan *plan,
                                                           int64_t rows, int n_threads)
{
    return (struct dpe_attention){.plan = plan,
                                  .rows = rows,
                                  .n_heads = config->n_heads,
                                  .n_kv_heads = config->n_kv_heads,
                                  .head_dim = config->head_dim,
                                  .n_threads = n_threads};
}
/** Of a call whose queries see at most so many keys, with so many rotated copies of a query. */
struct dpe_cpu_select_layout dpe_cpu_select_lay_out(const struct dpe_attention *args, int n_copies,
                                                    int64_t keys);
float *dpe_cpu_select_thread(const struct dpe_cpu_select_call *call);
struct dpe_cpu_select_room dpe_cpu_select_thread_room(const struct dpe_cpu_select_call *call);

/** A kept query of a head: where it is, or in `room` [head_dim]. */
const float *dpe_cpu_select_query(const struct dpe_attention *args, int64_t head, int64_t offset,
                                  int64_t m, float *room);
/** Keys n … n+count−1 of a KV head, count ≤ DPE_CPU_ROTATED and one after another in the cache from
 *  `row` on, as they are scored: where they are or in the room. */
const float *dpe_cpu_select_keys(const struct dpe_cpu_select_call *call, int64_t kv_head, int64_t n,
                                 int64_t row, int64_t count,
                                 const struct dpe_cpu_select_room *room);
/** Consecutive rows that queries are multiplied with: keys, or representatives of blocks. */
struct dpe_cpu_vectors {
    const float *first; /**< [count][width] */
    int64_t width, count;
};
/** Products of `rows` ≤ DPE_CPU_SELECT_HEADS queries of the room (x, [rows][2 · head_dim]) with
 * them: out [rows][ldo]. */
void dpe_cpu_select_dots(const struct dpe_cpu_select_call *call, const struct dpe_cpu_vectors *to,
                         int64_t rows, const struct dpe_cpu_select_room *room, float *out,
                         int64_t ldo);
/** How many keys from n on, before `end` and at most `most`, are one after another in the cache. */
int64_t dpe_cpu_select_next(const struct dpe_attention *args, int64_t offset, int64_t n,
                            int64_t end, int64_t most, int64_t *row);

/** What `count` groups of the slab from g on choose for a unit, to the call's lists: at most
 *  layout.queries, of one sequence. */
void dpe_cpu_select_choose(const struct dpe_cpu_select_call *call, int64_t g, int64_t count,
                           int64_t unit);

/** The keys that a head sees at a row, by the call's lists: dpe_selection_runs. */
int64_t dpe_cpu_select_runs(const struct dpe_cpu_select_call *call, int64_t row, int64_t head,
                            struct dpe_key_run *runs, int64_t *query);

/** Whether rows that share a choice of this call can be taken as tiles: their keys stand at the
 * same places for all of them, and rows of values are whole vectors. */
bool dpe_cpu_select_tiles(const struct dpe_cpu_select_call *call);
/** Attention of a head for such rows, at most DPE_CPU_SELECT_ROWS. */
void dpe_cpu_select_meet_tile(const struct dpe_cpu_select_call *call,
                              const struct dpe_cpu_select_rows *rows, int64_t head);
/** Floats of a thread's part that this takes. */
uint64_t dpe_cpu_select_tile_floats(int64_t head_dim, int n_copies);

/** Floats of a representative. */
int64_t dpe_cpu_select_mark_floats(const struct dpe_cpu_select_call *call);

/* ------------------------------------------------------------------------------- of many rows */

/* attention_cpu_pack.c says where things lie in the workspace and packs keys, values and queries,
 * attention_cpu.c walks what is packed. */

enum {
    DPE_CPU_QUERY_ROWS = 96,              /**< rows of an item: a multiple of every mr */
    DPE_CPU_STRIPE = 128 * DPE_CPU_BLOCK, /**< keys that are packed at a time */
};

static inline int64_t dpe_cpu_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/** Where things lie in the workspace, in floats. The same arithmetic for the largest call
 * (estimate) and for the call at hand, which therefore fits. */
struct dpe_cpu_layout {
    struct dpe_rotated_copies q, k;
    int64_t kv_heads_at_once, group;                          /* group: query heads of a KV head */
    int64_t stripe, panels, panel_floats, pack_floats, width; /* keys and panels of a stripe */
    int64_t copies_per_kv_head;                               /* packed key copies */
    int64_t mr;                                               /* rows of a row pack */
    int64_t pair; /* numbers in the place of a float: 2 in bfloat16, else 1 */
    int64_t late; /* keys that are added together */
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

/** By the sizes of the call, its kernels and keys; `unpacks`: keys and values lie in a dpe_kv. */
struct dpe_cpu_layout dpe_cpu_lay_out(const struct dpe_cpu_call *call, bool unpacks,
                                      struct dpe_rotated_copies q, struct dpe_rotated_copies k);
/** All copies of the keys n0 … of one block of one KV head, and its rows of V where they are
 * packed. */
void dpe_cpu_pack_block(const struct dpe_cpu_item *item, int64_t kv_head, int64_t n0);
/** The packed panel of keys n0 … of copy c for a query head; n0 a multiple of panel. */
float *dpe_cpu_key_panel(const struct dpe_cpu_item *item, int64_t head_in_group, int c, int64_t n0);
/** All copies of the queries of an item. */
void dpe_cpu_pack_queries(const struct dpe_cpu_item *item);

#endif

/**
 * @file attention_cpu_select.h
 * The parts of attention under a selection: representatives of blocks (attention_cpu_represent.c),
 * scores (attention_cpu_score.c), choices (attention_cpu_choose.c), and the walk of what was chosen
 * (attention_cpu_select.c).
 */
#ifndef DPE_ATTENTION_CPU_SELECT_H
#define DPE_ATTENTION_CPU_SELECT_H

#include "engine/cpu/attention/attention_cpu_plan.h"

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
/** The query of a head at position m that scores for a row, as it is scored (`room` [head_dim] to
 *  read it): x [head_dim], or for extremes what is above 0 of it and what is below, [2 · head_dim].
 */
void dpe_cpu_select_scored_query(const struct dpe_cpu_select_call *call, int64_t row, int64_t head,
                                 int64_t m, float *room, float *x);
/** Products of `rows` ≤ DPE_CPU_SELECT_HEADS queries of the room (x, [rows][2 · head_dim]) with
 * them: out [rows][ldo]. */
void dpe_cpu_select_dots(const struct dpe_cpu_select_call *call, const struct dpe_cpu_vectors *to,
                         int64_t rows, const struct dpe_cpu_select_room *room, float *out,
                         int64_t ldo);
/** How many blocks from i on, before n and at most DPE_CPU_BLOCK, have their representatives one
 * after another: of a head of those that have some, from *mark on. */
int64_t dpe_cpu_select_next_marks(const struct dpe_cpu_select_call *call, int64_t mark_head,
                                  int64_t offset, int64_t i, int64_t n, const float **mark);
/** Products of queries of the room (x, [queries][heads]) with the representatives of n blocks,
 * summed over heads and added to the scores [queries][layout.blocks]. */
void dpe_cpu_select_score_marks(const struct dpe_cpu_select_call *call, int64_t mark_head,
                                int64_t offset, int64_t n, int64_t queries, int64_t heads,
                                const struct dpe_cpu_select_room *room);
/** The same with the largest product of a block's keys, which are unpacked and rotated once for all
 *  queries. */
void dpe_cpu_select_score_keys(const struct dpe_cpu_select_call *call, int64_t kv_head,
                               int64_t offset, int64_t n, int64_t queries, int64_t heads,
                               const struct dpe_cpu_select_room *room);
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

#endif

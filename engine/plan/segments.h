/**
 * @file segments.h
 * A plan as attention sees it, on every backend: which rotated copies of queries and keys it needs,
 * where its bands lie in the keys, and, as the kernels of a device walk it, for every block of
 * query rows, an ordered list of segments {copy of Q, copy of K, keys, mask}. One fused kernel so
 * serves every plan and does not depend on bands, windows or chunks. Host C, no CUDA; a test walks
 * every list and finds each (query, key) pair once, under the band of dpe_plan_band.
 *
 * A kernel's part: for every segment, for tile t = 0 … n_tiles−1, take the keys
 * [end − (t+1)·shape.keys, end − t·shape.keys). Tiles hang from the segment's end, so no tile
 * reaches above it (what lies after the last valid key is never read); the lowest tile may reach
 * below `first` and even below key 0. Tiles full_first … full_end−1 are seen whole by all rows of
 * the block, the others need the mask of dpe_segment_keys, computed per row.
 */
#ifndef DPE_SEGMENTS_H
#define DPE_SEGMENTS_H

#include "engine/base/base.h"
#include "engine/plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One rotated copy of the queries (always per query head) or keys. */
struct dpe_rotated {
    int table;     /**< index into dpe_rotation.cos and sin */
    bool per_head; /**< pairs outside the head's mask are rotated by dpe_rotated_copies.base_table
                        instead, so keys differ between the query heads of a KV head */
    bool constant; /**< the table's rows are all equal: row 0 is enough */
    bool plain;    /**< rotated by 0 everywhere: the unrotated tensor is this copy */
};

/** The distinct copies of one side of a plan. */
struct dpe_rotated_copies {
    int n, n_per_head;
    int base_table; /**< table of band 0 */
    struct dpe_rotated copies[DPE_MAX_BANDS];
    int of_band[DPE_MAX_BANDS]; /**< the copy that a band uses */
};

/** Copies of the queries (`keys` false) or keys of a plan; `rotation` names the tables. */
struct dpe_rotated_copies dpe_rotated_find(const struct dpe_plan *plan,
                                           const struct dpe_rotation *rotation, bool keys);

/** As many copies as a side can need, for a plan whose rotation is not made yet. */
struct dpe_rotated_copies dpe_rotated_most(const struct dpe_plan *plan);

/** Keys [any_lo, any_hi) are all that some query of a range has in a band by its predicate alone,
 *  [all_lo, all_hi) those that every query of the range has; both within the causal triangle. For
 *  the queries of one chunk and a band of chunks, or a single query, they are the same but for keys
 *  above the first query. */
struct dpe_reach {
    int64_t any_lo, any_hi, all_lo, all_hi;
};
/** Reach of band b for the queries first … last (inclusive). */
struct dpe_reach dpe_band_reach(const struct dpe_plan *plan, int b, int64_t first, int64_t last);

/** Rows of a query block and keys of a tile. */
struct dpe_tile_shape {
    int32_t rows, keys;
};

/** Keys that some rows of a query block meet in one band. Row r (query m = block.query + r) sees
 *  key n when row_first ≤ r < row_end, first ≤ n < end and near ≤ m − n < far. 64 bytes. */
struct dpe_segment {
    int64_t first, end;
    int64_t near, far;
    int32_t row_first, row_end;
    int32_t q_copy, k_copy; /**< indices into dpe_rotated_copies.copies */
    int32_t band;
    int32_t n_tiles;
    int32_t full_first, full_end; /**< tiles that need no mask; 0, 0 when there are none */
};

/** Consecutive query rows that one thread block works on. 32 bytes. */
struct dpe_query_block {
    int64_t query; /**< position of its first row */
    int64_t row; /**< its first row among those of the call: query − start; part p of a split walk
                      has p · rows of the call added */
    int32_t rows;                      /**< 1 … shape.rows */
    int32_t first_segment, n_segments; /**< n_segments 0: no row sees any key */
    int32_t n_tiles;                   /**< of all its segments */
};

/** All blocks of a call. Depends on plan, start, rows and shape alone: the same for every layer and
 *  head. */
struct dpe_walk {
    struct dpe_query_block *blocks; /**< most tiles first, ties by position */
    struct dpe_segment *segments; /**< of a block: by descending end, so that rows see a key early;
                                       ties by band */
    int64_t n_blocks, n_segments;
    int64_t n_tiles;                                      /**< of all blocks */
    int64_t k_first[DPE_MAX_BANDS], k_end[DPE_MAX_BANDS]; /**< keys that are read of each copy of K
                                                           (0, 0: none); a tile that reaches below
                                                           masks what it finds there */
};

/** The walk of queries start … start+rows−1. Query blocks are cut at the plan's chunk edges when
 *  chunks are no shorter than a block. The plan passed dpe_plan_check; rows ≥ 1.
 *  DPE_NO_MEMORY; DPE_USAGE when the counts above would overflow. Free with dpe_walk_free. */
dpe_status dpe_walk_make(const struct dpe_plan *plan, const struct dpe_rotated_copies *q,
                         const struct dpe_rotated_copies *k, struct dpe_tile_shape shape,
                         int64_t start, int64_t rows, struct dpe_walk *walk, struct dpe_error *err);
void dpe_walk_free(struct dpe_walk *walk);

/** Cut every block into `parts` ≥ 1 blocks with about as many tiles each (possibly none), so that
 *  few queries over many keys occupy a whole device; their results are put together by log-sum-exp.
 *  `rows` as at dpe_walk_make, `keys` the tile shape's. The walk is exchanged, or on DPE_NO_MEMORY
 *  left as it is; splitting one that is split already is not meant. */
dpe_status dpe_walk_split(struct dpe_walk *walk, int64_t rows, int32_t keys, int32_t parts,
                          struct dpe_error *err);

/** Keys [*lo, *hi) that row r of a block sees in a segment; none when *lo ≥ *hi. */
DPE_HOST_DEVICE static inline void dpe_segment_keys(const struct dpe_query_block *block,
                                                    const struct dpe_segment *segment, int32_t r,
                                                    int64_t *lo, int64_t *hi)
{
    int64_t m = block->query + r;
    *lo = m - segment->far + 1 > segment->first ? m - segment->far + 1 : segment->first;
    *hi = m - segment->near + 1 < segment->end ? m - segment->near + 1 : segment->end;
    if (r < segment->row_first || r >= segment->row_end) {
        *hi = *lo;
    }
}

#ifdef __cplusplus
}
#endif
#endif

/**
 * @file selection.h
 * Which keys a query meets, as data beside the position plan: blocks of keys that are always seen
 * and blocks that are chosen by a score. What stands where is computed here, for every backend.
 *
 * Keys 0 … sinks−1 are sinks. The others form blocks: block i is keys sinks + i·block …
 * sinks + (i+1)·block − 1. Queries are taken in groups of `refresh` positions from 0 on; the first
 * of a group, at position c, chooses for all of it. Its candidates are the blocks that end before
 * its local window, keys c − local + 1 … c. A query at position m sees
 *   - the sinks,
 *   - the k candidates with the largest scores (ties: the lower block),
 *   - the keys at the `slashes` best distances of local … c from it (ties: the shorter distance),
 *   - every key from the end of the last candidate to m.
 * So a query whose group has at most k candidates sees all keys. A choice depends on the queries
 * and keys at the positions up to its own, not on how tokens are cut into calls: prefill, chunks,
 * decoding and branches agree.
 */
#ifndef DPE_SELECTION_H
#define DPE_SELECTION_H

#include "engine/base/base.h"

#ifdef __CUDACC__
#define DPE_HOST_DEVICE __host__ __device__
#else
#define DPE_HOST_DEVICE
#endif

/** What stands for a block when a query's head scores it. */
enum dpe_representative {
    DPE_REPRESENT_MEAN,     /**< q · the mean of its keys */
    DPE_REPRESENT_EXTREMES, /**< Σ_c max(q_c · largest_c, q_c · smallest_c), over its keys (Quest)
                             */
    DPE_REPRESENT_ATTENDED, /**< q · the mean of its `attended` keys n with the largest
                                 Σ_{j=1…local} q_{n+j} · k_n, for each query head (ties: the lower
                                 key); queries and keys there as they leave the projection */
    DPE_REPRESENT_KEYS,     /**< the largest q · k of its keys */
    DPE_REPRESENT_WEIGHTED, /**< q · its keys, averaged with the softmax of f · k, for each query
                                 head; f is the mean of what the block's queries make of its values
                                 when they see all of the block. Queries and keys there stand at
                                 their places in the block, in band 0 for all pairs; q is scored as
                                 `scored` says (LongHeads) */
    DPE_REPRESENT_PROBABILITY, /**< the sum of the probabilities of its keys for the `last` queries
                                    up to the one that chooses, each over all keys up to its own
                                    (MInference); the only one that scores distances */
    DPE_REPRESENT_COMPRESSED, /**< the probability of the mean of its keys among those of all blocks
                                   that end at or before the query that chooses, for each query head
                                   (NSA). What these probabilities make of the means of the blocks'
                                   values may be asked for beside (struct dpe_attention) */
};

/** Whose scores are summed, and who therefore chooses the same blocks. */
enum dpe_choice_unit {
    DPE_CHOICE_HEAD,    /**< each query head for itself */
    DPE_CHOICE_KV_HEAD, /**< the query heads of a KV head */
    DPE_CHOICE_LAYER,   /**< all heads of a layer */
};

/** Where queries and keys stand in the plan: the plan's bands and maps are applied to these places
 *  in place of positions. The temperature keeps the query's position. */
enum dpe_chosen_place {
    DPE_PLACE_TRUE,   /**< at their positions */
    DPE_PLACE_PACKED, /**< the keys that a query sees one after another, from 0 on; the query where
                           its own key stands */
    DPE_PLACE_CONSTANT, /**< keys at a distance of `local` or more are at distance local − 1 */
};

/** How queries and keys stand when they are scored; places are those of the plan's last band, for
 *  all pairs. */
enum dpe_scored_place {
    DPE_SCORE_BARE,     /**< as they leave the projection, without positions */
    DPE_SCORE_TRUE,     /**< at their positions */
    DPE_SCORE_CONSTANT, /**< the query at local − 1, keys at 0 */
};

struct dpe_selection {
    int64_t block;   /**< keys of a block; 0: the plan has no selection, the rest decides nothing */
    int64_t sinks;   /**< ≥ 0 */
    int64_t local;   /**< ≥ 1; the query's own key is one of them */
    int64_t k;       /**< blocks to choose, ≥ 0 */
    int64_t refresh; /**< positions of a group, ≥ 1 */
    int64_t attended; /**< keys that DPE_REPRESENT_ATTENDED takes, 1 … block */
    int64_t last;     /**< queries that DPE_REPRESENT_PROBABILITY takes, ≥ 1 */
    int64_t slashes;  /**< distances to choose by it, ≥ 0; 0 with other representatives */
    int64_t first; /**< of the k, blocks 0 … first−1 whatever their scores, 0 ≤ first ≤ k */
    enum dpe_representative representative;
    enum dpe_choice_unit unit;
    enum dpe_chosen_place positions;
    enum dpe_scored_place scored;
};

static inline bool dpe_selects(const struct dpe_selection *s)
{
    return s->block > 0;
}
/** What attention of compressed, chosen and windowed keys chooses (NSA): of blocks of `block` keys
 * `count`, ≥ 3, the first and the last two always. */
struct dpe_selection dpe_selection_compressed(int64_t block, int64_t count);
/** The ranges above: DPE_USAGE names the field that is outside. */
dpe_status dpe_selection_check(const struct dpe_selection *s, struct dpe_error *err);

/** The position of the query that chooses for the query at m. */
DPE_HOST_DEVICE static inline int64_t dpe_selection_chooser(const struct dpe_selection *s,
                                                            int64_t m)
{
    return m - m % s->refresh;
}
/** Candidates of the query at m: blocks 0 … this − 1. */
DPE_HOST_DEVICE static inline int64_t dpe_selection_candidates(const struct dpe_selection *s,
                                                               int64_t m)
{
    int64_t before = dpe_selection_chooser(s, m) + 1 - s->local - s->sinks;
    return before > 0 ? before / s->block : 0;
}
/** Blocks that end at or before position m. */
DPE_HOST_DEVICE static inline int64_t dpe_selection_complete(const struct dpe_selection *s,
                                                             int64_t m)
{
    return m + 1 > s->sinks ? (m + 1 - s->sinks) / s->block : 0;
}
/** Distances that may be chosen for the query at m: local, local + 1, …; 0 without slashes. */
DPE_HOST_DEVICE static inline int64_t dpe_selection_distances(const struct dpe_selection *s,
                                                              int64_t m)
{
    int64_t far = dpe_selection_chooser(s, m) + 1 - s->local;
    return s->slashes > 0 && far > 0 ? far : 0;
}
/** What was chosen for a query, both ascending: blocks, and distances as local + index. */
struct dpe_choice {
    const int32_t *blocks, *slashes;
    int64_t n_blocks, n_slashes;
};
/** The scores of the blocks that are chosen whatever they have, of n. */
void dpe_selection_favour(const struct dpe_selection *s, double *scores, int64_t n);
/** The k largest of n scores as indices in ascending order; NaN counts as the smallest score. Their
 *  number, min(k, n). */
int64_t dpe_selection_choose(const double *scores, int64_t n, int64_t k, int32_t *chosen);

/** Consecutive keys that a query sees, and their places. */
struct dpe_key_run {
    int64_t first, end; /**< keys first … end − 1 */
    int64_t place;      /**< of the first */
    bool constant;      /**< all stand there; else one after another */
};
/** The keys of the query at m for what its group chose, in order; *query is the query's place.
 *  `runs` has room for n_blocks + n_slashes + 3. Their number. */
int64_t dpe_selection_runs(const struct dpe_selection *s, int64_t m,
                           const struct dpe_choice *choice, struct dpe_key_run *runs,
                           int64_t *query);
/** Places 0 … this − 1 are all that queries and keys at so many positions take, scored or met. */
int64_t dpe_selection_places(const struct dpe_selection *s, int64_t positions);
/** Keys that the query at m sees; with slashes at most, since these may fall on other keys. */
int64_t dpe_selection_keys(const struct dpe_selection *s, int64_t m);
/** Pairs of a query and a key that it sees, of n tokens; without a selection n(n+1)/2. */
double dpe_selection_pairs(const struct dpe_selection *s, int64_t n);

/** The same with the products that choosing takes: what attention and scoring cost together, in
 * pairs. */
double dpe_selection_work(const struct dpe_selection *s, int64_t n);

/** Whether queries must be kept beside keys. */
static inline bool dpe_selection_keeps_queries(const struct dpe_selection *s)
{
    return dpe_selects(s) && (s->refresh > 1 || s->representative == DPE_REPRESENT_ATTENDED ||
                              s->representative == DPE_REPRESENT_WEIGHTED ||
                              s->representative == DPE_REPRESENT_PROBABILITY);
}

/* Representatives that a backend keeps. That of block i is known once the query at
 * dpe_block_known(i) is: the block's last key, and for DPE_REPRESENT_ATTENDED `local` queries
 * after it. Branches share those known before their common prefix ends. */

/** Whether each query head has representatives of its own. */
DPE_HOST_DEVICE static inline bool dpe_selection_own_marks(const struct dpe_selection *s)
{
    return s->representative == DPE_REPRESENT_ATTENDED ||
           s->representative == DPE_REPRESENT_WEIGHTED;
}
/** Floats of a representative, and how many are there of a block: of each KV head or query head, of
 *  DPE_REPRESENT_COMPRESSED the means of all KV heads' keys and then of their values; 0: none are
 *  kept. */
int64_t dpe_selection_width(const struct dpe_selection *s, int64_t head_dim);
DPE_HOST_DEVICE static inline int64_t dpe_selection_heads(const struct dpe_selection *s,
                                                          int64_t n_heads, int64_t n_kv_heads)
{
    int64_t kinds = s->representative == DPE_REPRESENT_COMPRESSED ? 2 : 1;
    return dpe_selection_own_marks(s) ? n_heads : kinds * n_kv_heads;
}
DPE_HOST_DEVICE static inline int64_t dpe_block_known(const struct dpe_selection *s, int64_t i)
{
    int64_t after = s->representative == DPE_REPRESENT_ATTENDED ? s->local : 0;
    return s->sinks + (i + 1) * s->block - 1 + after;
}
/** Blocks whose representatives are known before position m. */
DPE_HOST_DEVICE static inline int64_t dpe_blocks_known_before(const struct dpe_selection *s,
                                                              int64_t m)
{
    int64_t over = m - (dpe_block_known(s, 0) - s->block + 1);
    return over > 0 ? over / s->block : 0;
}
/** Representatives of a head for a cache of `capacity` rows and so many branches. */
static inline int64_t dpe_selection_slots(const struct dpe_selection *s, int64_t capacity,
                                          int64_t branches)
{
    return capacity / s->block + 2 * branches + 2;
}
/** Bytes of the representatives of all heads, as floats. */
uint64_t dpe_selection_mark_bytes(const struct dpe_selection *s, int64_t head_dim, int64_t n_heads,
                                  int64_t n_kv_heads, int64_t capacity, int64_t branches);
/** Which of them is block i's in the branch whose own keys lie `offset` rows after their positions,
 *  `room` rows for each branch. */
DPE_HOST_DEVICE static inline int64_t dpe_block_slot(const struct dpe_selection *s, int64_t prefix,
                                                     int64_t room, int64_t offset, int64_t i)
{
    bool own = offset > 0 && dpe_block_known(s, i) >= prefix;
    return own ? i + offset / room * (room / s->block + 2) : i;
}

#endif

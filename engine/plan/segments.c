/* Plans as segment lists. Rows of one chunk see every band as a range of keys or of distances; a
 * band less the bands before it is a few pieces, each a range of keys and a range of distances. */
#include "engine/plan/segments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PIECES = 1 << (DPE_MAX_BANDS - 1), /* every earlier band cuts a piece in two at most */
};

/* Keys first ≤ n < end at distances near ≤ m − n < far. */
struct piece {
    int64_t first, end, near, far;
};

/* A band for the rows of one chunk. */
struct piece_range {
    bool by_distance;
    int64_t lo, hi; /* keys or distances */
};

struct builder {
    const struct dpe_plan *plan;
    const struct dpe_rotated_copies *q, *k;
    struct dpe_tile_shape shape;
    struct dpe_walk *walk;
};

/* ------------------------------------------------------------------------------------- copies */

static bool map_constant(const struct dpe_position_map *map, int64_t n_pairs)
{
    for (int64_t j = 0; j < n_pairs && map->period > 1.0; j++) {
        if (isfinite(map->scale[j])) {
            return false;
        }
    }
    return true;
}

static bool map_zero(const struct dpe_position_map *map, int64_t n_pairs)
{
    bool zero = map_constant(map, n_pairs);
    for (int64_t j = 0; j < n_pairs && zero; j++) {
        zero = fmin(map->offset[j], map->cap) == 0.0;
    }
    return zero;
}

struct dpe_rotated_copies dpe_rotated_find(const struct dpe_plan *plan,
                                           const struct dpe_rotation *rotation, bool keys)
{
    const int *table = keys ? rotation->k_table : rotation->q_table;
    struct dpe_rotated_copies found = {.base_table = table[0]};
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_position_map *map = keys ? &plan->bands[b].k : &plan->bands[b].q;
        bool per_head = plan->bands[b].per_head && plan->mask != NULL && table[b] != table[0];
        struct dpe_rotated copy = {
            .table = table[b],
            .per_head = per_head,
            .constant = !per_head && map_constant(map, plan->n_pairs),
            .plain = !per_head && map_zero(map, plan->n_pairs),
        };
        int c = 0;
        while (c < found.n &&
               (found.copies[c].table != copy.table || found.copies[c].per_head != per_head)) {
            c++;
        }
        if (c == found.n) {
            found.copies[found.n++] = copy;
            found.n_per_head += per_head ? 1 : 0;
        }
        found.of_band[b] = c;
    }
    return found;
}

struct dpe_rotated_copies dpe_rotated_most(const struct dpe_plan *plan)
{
    struct dpe_rotation rotation = {0};
    for (int b = 0; b < DPE_MAX_BANDS; b++) {
        rotation.q_table[b] = b;
        rotation.k_table[b] = b;
    }
    return dpe_rotated_find(plan, &rotation, true);
}

/* ------------------------------------------------------------------------------------- pieces */

struct dpe_reach dpe_band_reach(const struct dpe_plan *plan, int b, int64_t first, int64_t last)
{
    const struct dpe_band *band = &plan->bands[b];
    struct dpe_reach reach = {band->lo, band->hi, band->lo, band->hi};
    if (band->kind != DPE_BAND_KEY) {
        /* A distance is a difference of chunks of one token. */
        int64_t unit = band->kind == DPE_BAND_CHUNK ? plan->chunk : 1;
        int64_t c0 = first / unit;
        int64_t c1 = last / unit;
        /* lo ≤ c − c(n) < hi; differences outside 0 … c1 + 1 do not occur and could overflow. */
        int64_t lo = dpe_least(dpe_most(band->lo, 0), c1 + 2);
        int64_t hi = dpe_least(dpe_most(band->hi, 0), c1 + 1);
        reach.any_lo = (c0 - hi + 1) * unit;
        reach.any_hi = (c1 - lo + 1) * unit;
        reach.all_lo = (c1 - hi + 1) * unit;
        reach.all_hi = (c0 - lo + 1) * unit;
    }
    reach.any_lo = dpe_most(reach.any_lo, 0);
    reach.all_lo = dpe_most(reach.all_lo, 0);
    reach.any_hi = dpe_most(dpe_least(reach.any_hi, last + 1), reach.any_lo);
    reach.all_hi = dpe_most(dpe_least(reach.all_hi, first + 1), reach.all_lo);
    return reach;
}

/* What queries up to `last`, all of its chunk, have in a band. */
static struct piece_range chunk_range(const struct dpe_plan *plan, int b, int64_t last)
{
    const struct dpe_band *band = &plan->bands[b];
    if (band->kind == DPE_BAND_DISTANCE) {
        return (struct piece_range){true, dpe_least(band->lo, last + 1),
                                    dpe_least(band->hi, last + 1)};
    }
    struct dpe_reach reach = dpe_band_reach(plan, b, last, last);
    return (struct piece_range){false, reach.any_lo, reach.any_hi};
}

static struct piece within(struct piece piece, bool by_distance, int64_t lo, int64_t hi)
{
    if (by_distance) {
        piece.near = dpe_most(piece.near, lo);
        piece.far = dpe_least(piece.far, hi);
    } else {
        piece.first = dpe_most(piece.first, lo);
        piece.end = dpe_least(piece.end, hi);
    }
    return piece;
}

/* Whether some query first … last has a key in the piece. The number of keys, min(end, m − near +
 * 1) − max(first, m − far + 1), is concave in m: it has one rise and one fall, with corners at two
 * m. */
static bool occupied(const struct piece *piece, int64_t first, int64_t last)
{
    int64_t corners[4] = {first, last, piece->end + piece->near - 1, piece->first + piece->far - 1};
    for (int i = 0; i < 4; i++) {
        int64_t m = dpe_most(dpe_least(corners[i], last), first);
        int64_t lo = dpe_most(piece->first, m - piece->far + 1);
        int64_t hi = dpe_least(piece->end, m - piece->near + 1);
        if (lo < hi) {
            return true;
        }
    }
    return false;
}

/* The pieces of band b that earlier bands leave to queries first … last, all of one chunk. */
static int band_pieces(const struct dpe_plan *plan, int b, int64_t first, int64_t last,
                       struct piece pieces[MAX_PIECES])
{
    struct piece all = {0, last + 1, 0, last + 1};
    struct piece_range own = chunk_range(plan, b, last);
    pieces[0] = within(all, own.by_distance, own.lo, own.hi);
    int n = occupied(&pieces[0], first, last) ? 1 : 0;
    for (int a = 0; a < b; a++) {
        struct piece_range before = chunk_range(plan, a, last);
        struct piece left[MAX_PIECES];
        int n_left = 0;
        for (int i = 0; i < n && before.lo < before.hi; i++) {
            const struct piece sides[2] = {
                within(pieces[i], before.by_distance, 0, before.lo),
                within(pieces[i], before.by_distance, before.hi, INT64_MAX),
            };
            for (int side = 0; side < 2; side++) {
                if (occupied(&sides[side], first, last)) {
                    left[n_left++] = sides[side];
                }
            }
        }
        if (before.lo < before.hi) {
            memcpy(pieces, left, (size_t)n_left * sizeof *left);
            n = n_left;
        }
    }
    return n;
}

/* ----------------------------------------------------------------------------------- segments */

/* Cuts first and end down to keys that some row sees, and counts tiles. */
static void fit_segment(const struct builder *builder, const struct dpe_query_block *block,
                        struct dpe_segment *segment)
{
    int64_t lowest = INT64_MAX; /* over rows that see a key */
    int64_t highest = 0;
    int64_t all_lo = 0; /* keys that every row sees: [all_lo, all_hi) */
    int64_t all_hi = INT64_MAX;
    for (int32_t r = 0; r < block->rows; r++) {
        int64_t lo = 0;
        int64_t hi = 0;
        dpe_segment_keys(block, segment, r, &lo, &hi);
        if (lo < hi) {
            lowest = dpe_least(lowest, lo);
            highest = dpe_most(highest, hi);
        }
        all_lo = dpe_most(all_lo, lo);
        all_hi = dpe_least(all_hi, hi);
    }
    segment->first = lowest;
    segment->end = highest;
    int64_t keys = builder->shape.keys;
    segment->n_tiles = (int32_t)((highest - lowest + keys - 1) / keys);
    segment->full_first = segment->full_end = 0;
    if (all_lo < all_hi) {
        int64_t first = (highest - all_hi + keys - 1) / keys;
        int64_t end = (highest - all_lo) / keys;
        segment->full_first = first < end ? (int32_t)first : 0;
        segment->full_end = first < end ? (int32_t)end : 0;
    }
}

static bool add_segment(struct builder *builder, struct dpe_query_block *block,
                        const struct dpe_segment *segment)
{
    struct dpe_walk *walk = builder->walk;
    if (!dpe_make_room(&walk->segments, (size_t)walk->n_segments, sizeof *walk->segments)) {
        return false;
    }
    /* By descending end, equal ones as they come. */
    int64_t at = walk->n_segments++;
    while (at > block->first_segment && walk->segments[at - 1].end < segment->end) {
        walk->segments[at] = walk->segments[at - 1];
        at--;
    }
    walk->segments[at] = *segment;
    block->n_segments++;
    block->n_tiles += segment->n_tiles;
    return true;
}

static void widen_copy(struct dpe_walk *walk, const struct dpe_segment *segment)
{
    int64_t *first = &walk->k_first[segment->k_copy];
    int64_t *end = &walk->k_end[segment->k_copy];
    *first = *end == 0 ? segment->first : dpe_least(*first, segment->first);
    *end = dpe_most(*end, segment->end);
}

/* The segments of band b for rows row … row_end−1 of a block, all of one chunk. */
static bool add_band(struct builder *builder, struct dpe_query_block *block, int b, int32_t row,
                     int32_t row_end)
{
    struct piece pieces[MAX_PIECES];
    int n = band_pieces(builder->plan, b, block->query + row, block->query + row_end - 1, pieces);
    for (int i = 0; i < n; i++) {
        struct dpe_segment segment = {
            .first = pieces[i].first,
            .end = pieces[i].end,
            .near = pieces[i].near,
            .far = pieces[i].far,
            .row_first = row,
            .row_end = row_end,
            .q_copy = builder->q->of_band[b],
            .k_copy = builder->k->of_band[b],
            .band = b,
        };
        fit_segment(builder, block, &segment);
        widen_copy(builder->walk, &segment);
        if (!add_segment(builder, block, &segment)) {
            return false;
        }
    }
    return true;
}

static bool add_block(struct builder *builder, struct dpe_query_block block)
{
    struct dpe_walk *walk = builder->walk;
    const struct dpe_plan *plan = builder->plan;
    if (!dpe_make_room(&walk->blocks, (size_t)walk->n_blocks, sizeof *walk->blocks)) {
        return false;
    }
    block.first_segment = (int32_t)walk->n_segments;
    int32_t row = 0;
    while (row < block.rows) {
        int64_t m = block.query + row;
        int64_t left = plan->chunk > 0 ? plan->chunk - m % plan->chunk : block.rows;
        int32_t row_end = (int32_t)dpe_least(block.rows, row + dpe_least(left, block.rows));
        for (int b = 0; b < plan->n_bands; b++) {
            if (!add_band(builder, &block, b, row, row_end)) {
                return false;
            }
        }
        row = row_end;
    }
    walk->n_tiles += block.n_tiles;
    walk->blocks[walk->n_blocks++] = block;
    return walk->n_segments <= INT32_MAX - 1;
}

static int more_tiles_first(const void *left, const void *right)
{
    const struct dpe_query_block *a = left;
    const struct dpe_query_block *b = right;
    if (a->n_tiles != b->n_tiles) {
        return a->n_tiles > b->n_tiles ? -1 : 1;
    }
    return a->row < b->row ? -1 : a->row > b->row;
}

dpe_status dpe_walk_make(const struct dpe_plan *plan, const struct dpe_rotated_copies *q,
                         const struct dpe_rotated_copies *k, struct dpe_tile_shape shape,
                         int64_t start, int64_t rows, struct dpe_walk *walk, struct dpe_error *err)
{
    memset(walk, 0, sizeof *walk);
    /* A block has at most start + rows keys per band and piece. */
    if ((start + rows) / shape.keys > INT32_MAX / (MAX_PIECES * DPE_MAX_BANDS * (shape.rows + 1))) {
        return dpe_fail(err, DPE_USAGE, "attention walk: %lld keys are too many",
                        (long long)(start + rows));
    }
    struct builder builder = {.plan = plan, .q = q, .k = k, .shape = shape, .walk = walk};
    bool cut = plan->chunk >= shape.rows;
    for (int64_t row = 0; row < rows;) {
        struct dpe_query_block block = {.query = start + row, .row = row};
        int64_t n = dpe_least(shape.rows, rows - row);
        if (cut) {
            n = dpe_least(n, plan->chunk - block.query % plan->chunk);
        }
        block.rows = (int32_t)n;
        if (!add_block(&builder, block)) {
            dpe_walk_free(walk);
            return dpe_fail(err, DPE_NO_MEMORY,
                            "attention walk: out of memory for the segments of %lld queries",
                            (long long)rows);
        }
        row += n;
    }
    qsort(walk->blocks, (size_t)walk->n_blocks, sizeof *walk->blocks, more_tiles_first);
    return DPE_OK;
}

void dpe_walk_free(struct dpe_walk *walk)
{
    free(walk->blocks);
    free(walk->segments);
    memset(walk, 0, sizeof *walk);
}

/* ---------------------------------------------------------------------------------- splitting */

/* Tiles first … end−1 of a segment as a segment. */
static struct dpe_segment cut_segment(const struct dpe_segment *segment, int32_t keys,
                                      int32_t first, int32_t end)
{
    struct dpe_segment cut = *segment;
    int64_t bottom = segment->end - (int64_t)end * keys;
    cut.end = segment->end - (int64_t)first * keys;
    cut.first = dpe_most(segment->first, bottom);
    cut.n_tiles = end - first;
    int64_t full_first = dpe_most(segment->full_first, first);
    int64_t full_end = dpe_least(segment->full_end, end);
    bool full = full_first < full_end;
    cut.full_first = full ? (int32_t)(full_first - first) : 0;
    cut.full_end = full ? (int32_t)(full_end - first) : 0;
    return cut;
}

/* The tiles first … end−1 of a block, counted through its segments, as a block. */
static bool add_part(struct builder *builder, const struct dpe_walk *from,
                     struct dpe_query_block block, int32_t first, int32_t end)
{
    struct dpe_walk *walk = builder->walk;
    const struct dpe_segment *segments = from->segments + block.first_segment;
    int32_t n_segments = block.n_segments;
    if (!dpe_make_room(&walk->blocks, (size_t)walk->n_blocks, sizeof *walk->blocks)) {
        return false;
    }
    block.first_segment = (int32_t)walk->n_segments;
    block.n_segments = block.n_tiles = 0;
    int32_t before = 0;
    for (int32_t i = 0; i < n_segments; i++) {
        int64_t lo = dpe_most(first - before, 0);
        int64_t hi = dpe_least(end - before, segments[i].n_tiles);
        if (lo < hi) {
            struct dpe_segment cut =
                cut_segment(&segments[i], builder->shape.keys, (int32_t)lo, (int32_t)hi);
            if (!add_segment(builder, &block, &cut)) {
                return false;
            }
        }
        before += segments[i].n_tiles;
    }
    walk->n_tiles += block.n_tiles;
    walk->blocks[walk->n_blocks++] = block;
    return walk->n_segments <= INT32_MAX - 1;
}

dpe_status dpe_walk_split(struct dpe_walk *walk, int64_t rows, int32_t keys, int32_t parts,
                          struct dpe_error *err)
{
    struct dpe_walk split = {.n_blocks = 0};
    struct builder builder = {.shape = {.keys = keys}, .walk = &split};
    for (int64_t i = 0; i < walk->n_blocks; i++) {
        for (int32_t p = 0; p < parts; p++) {
            struct dpe_query_block block = walk->blocks[i];
            int64_t n = block.n_tiles;
            block.row += p * rows;
            if (!add_part(&builder, walk, block, (int32_t)(n * p / parts),
                          (int32_t)(n * (p + 1) / parts))) {
                dpe_walk_free(&split);
                return dpe_fail(err, DPE_NO_MEMORY,
                                "attention walk: out of memory for %d parts of %lld blocks",
                                (int)parts, (long long)walk->n_blocks);
            }
        }
    }
    memcpy(split.k_first, walk->k_first, sizeof split.k_first);
    memcpy(split.k_end, walk->k_end, sizeof split.k_end);
    qsort(split.blocks, (size_t)split.n_blocks, sizeof *split.blocks, more_tiles_first);
    dpe_walk_free(walk);
    *walk = split;
    return DPE_OK;
}

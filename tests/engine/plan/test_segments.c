/* Segment lists: walked as a kernel walks them, tile by tile and row by row, they visit every pair
 * of query and key that the plan evaluator shows, once, in the band it names, with copies rotated
 * by the positions it names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/segments.h"
#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/near.h"

static const struct dpe_config config = {
    .model_type = "llama",
    .n_layers = 2,
    .n_heads = 3,
    .n_kv_heads = 1,
    .head_dim = 16,
    .max_position = 64,
    .rope = {.type = DPE_ROPE_DEFAULT, .theta = 10000.0},
};

struct scene {
    struct dpe_plan plan;
    struct dpe_rotation rotation;
    struct dpe_rotated_copies q, k;
    struct dpe_tile_shape shape;
    int64_t start, rows;
    int32_t parts; /* 0: not split */
    struct dpe_walk walk;
    uint8_t *seen; /* [rows][start + rows]: 1 + band */
    int64_t full_tiles;
};

/* cos of the angle that a copy turns pair j of token x by, as the kernel that fills it computes. */
static float copy_cos(const struct scene *s, const struct dpe_rotated_copies *copies, int c,
                      int64_t layer, int64_t head, int64_t j, int64_t x)
{
    const struct dpe_rotated *copy = &copies->copies[c];
    const struct dpe_plan *plan = &s->plan;
    int table = copy->table;
    if (copy->per_head && plan->mask[(layer * plan->n_heads + head) * plan->n_pairs + j] == 0) {
        table = copies->base_table;
    }
    if (copy->plain) {
        return 1.0F;
    }
    return s->rotation.cos[table][(copy->constant ? 0 : x) * plan->n_pairs + j];
}

static void check_positions(const struct scene *s, const struct dpe_segment *segment, int64_t m,
                            int64_t n, struct dpe_rng *rng)
{
    int64_t layer = dpe_rng_below(rng, (uint32_t)s->plan.n_layers);
    int64_t head = dpe_rng_below(rng, (uint32_t)s->plan.n_heads);
    int64_t j = dpe_rng_below(rng, (uint32_t)s->plan.n_pairs);
    struct dpe_rel want = dpe_plan_position(&s->plan, layer, head, j, m, n);
    double q_angle = (double)((float)want.pq * (float)s->plan.inv_freq[j]);
    double k_angle = (double)((float)want.pk * (float)s->plan.inv_freq[j]);
    float q = copy_cos(s, &s->q, segment->q_copy, layer, head, j, m);
    float k = copy_cos(s, &s->k, segment->k_copy, layer, head, j, n);
    assert_true(q == (float)(want.scale * cos(q_angle)));
    assert_true(k == (float)cos(k_angle));
}

static void visit(struct scene *s, const struct dpe_query_block *block,
                  const struct dpe_segment *segment, int32_t r, int64_t n, struct dpe_rng *rng)
{
    int64_t m = block->query + r;
    int64_t keys = s->start + s->rows;
    uint8_t *seen = &s->seen[(block->row % s->rows + r) * keys + n];
    assert_int_equal(*seen, 0);
    *seen = (uint8_t)(1 + segment->band);
    assert_int_equal(dpe_plan_band(&s->plan, m, n), segment->band);
    assert_true(n >= s->walk.k_first[segment->k_copy] && n < s->walk.k_end[segment->k_copy]);
    if (dpe_rng_below(rng, 16) == 0) {
        check_positions(s, segment, m, n, rng);
    }
}

static void walk_tile(struct scene *s, const struct dpe_query_block *block,
                      const struct dpe_segment *segment, int32_t t, struct dpe_rng *rng)
{
    int64_t n1 = segment->end - (int64_t)t * s->shape.keys;
    int64_t n0 = n1 - s->shape.keys;
    bool full = t >= segment->full_first && t < segment->full_end;
    s->full_tiles += full ? 1 : 0;
    int64_t pairs = 0;
    for (int32_t r = 0; r < block->rows; r++) {
        int64_t lo = 0;
        int64_t hi = 0;
        dpe_segment_keys(block, segment, r, &lo, &hi);
        for (int64_t n = n0; n < n1; n++) {
            bool visible = n >= lo && n < hi;
            assert_true(visible || !full);
            if (visible) {
                visit(s, block, segment, r, n, rng);
                pairs++;
            }
        }
    }
    /* No tile is walked for nothing but in a hole between rows. */
    assert_true(pairs > 0 || segment->near > 0 || segment->far <= block->query);
    /* A tile that all could see whole is not masked. */
    assert_true(full || pairs < (int64_t)block->rows * s->shape.keys);
}

static void walk_block(struct scene *s, const struct dpe_query_block *block, struct dpe_rng *rng)
{
    assert_true(block->rows >= 1 && block->rows <= s->shape.rows);
    assert_int_equal(block->query, s->start + block->row % s->rows);
    int64_t tiles = 0;
    const struct dpe_segment *list = &s->walk.segments[block->first_segment];
    for (int32_t i = 0; i < block->n_segments; i++) {
        const struct dpe_segment *segment = &list[i];
        assert_true(segment->n_tiles >= 1);
        assert_true(segment->first >= 0 && segment->end <= block->query + block->rows);
        assert_true(i == 0 || segment->end <= list[i - 1].end);
        for (int32_t t = 0; t < segment->n_tiles; t++) {
            walk_tile(s, block, segment, t, rng);
        }
        tiles += segment->n_tiles;
    }
    assert_int_equal(tiles, block->n_tiles);
}

static void run_scene(struct scene *s, struct dpe_rng *rng)
{
    struct dpe_error err = {0};
    int64_t keys = s->start + s->rows;
    s->q = dpe_rotated_find(&s->plan, &s->rotation, false);
    s->k = dpe_rotated_find(&s->plan, &s->rotation, true);
    assert_int_equal(
        dpe_walk_make(&s->plan, &s->q, &s->k, s->shape, s->start, s->rows, &s->walk, &err), DPE_OK);
    int64_t tiles = s->walk.n_tiles;
    if (s->parts > 0) {
        assert_int_equal(dpe_walk_split(&s->walk, s->rows, s->shape.keys, s->parts, &err), DPE_OK);
    }
    assert_int_equal(s->walk.n_tiles, tiles);
    s->seen = dpe_alloc_zero((size_t)(s->rows * keys), 1);
    assert_non_null(s->seen);
    int64_t rows = 0;
    for (int64_t i = 0; i < s->walk.n_blocks; i++) {
        const struct dpe_query_block *block = &s->walk.blocks[i];
        assert_true(i == 0 || block->n_tiles <= s->walk.blocks[i - 1].n_tiles);
        walk_block(s, block, rng);
        rows += block->rows;
    }
    assert_int_equal(rows, s->rows * (s->parts > 0 ? s->parts : 1));
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t n = 0; n < keys; n++) {
            assert_int_equal(s->seen[r * keys + n], 1 + dpe_plan_band(&s->plan, s->start + r, n));
        }
    }
    free(s->seen);
    dpe_walk_free(&s->walk);
}

/* Windows at, one before and one after a multiple of the tile, and anywhere. */
static int64_t draw_window(struct dpe_rng *rng, struct dpe_tile_shape shape)
{
    int64_t edge = shape.keys * (1 + (int64_t)dpe_rng_below(rng, 6));
    switch (dpe_rng_below(rng, 5)) {
    case 0:
        return edge;
    case 1:
        return edge - 1;
    case 2:
        return edge + 1;
    case 3:
        return 2 + dpe_rng_below(rng, 5);
    default:
        return 2 + dpe_rng_below(rng, 8 * (uint32_t)shape.keys);
    }
}

static void every_pair_once(void **state)
{
    (void)state;
    static const struct dpe_tile_shape shapes[] = {{16, 8}, {8, 16}, {24, 16}, {64, 32}};
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 20, 1);
    int64_t full_tiles = 0;
    for (int i = 0; i < PLAN_CASES * 40; i++) {
        struct scene s = {.shape = shapes[dpe_rng_below(&rng, 4)]};
        struct dpe_error err = {0};
        plan_case_make(i % PLAN_CASES, draw_window(&rng, s.shape), &config, &s.plan);
        s.start = dpe_rng_below(&rng, 3) == 0 ? 0 : dpe_rng_below(&rng, 200);
        s.rows = 1 + dpe_rng_below(&rng, 150);
        s.parts = i % 3 == 0 ? 1 + (int32_t)dpe_rng_below(&rng, 9) : 0;
        assert_int_equal(dpe_rotation_make(&s.plan, s.start + s.rows, 1, &s.rotation, &err),
                         DPE_OK);
        run_scene(&s, &rng);
        full_tiles += s.full_tiles;
        dpe_rotation_free(&s.rotation);
        dpe_plan_free(&s.plan);
    }
    assert_true(full_tiles > 1000);
}

/* Bands of any kind and bounds, overlapping at will. */
static void random_bands(void **state)
{
    (void)state;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 21, 1);
    for (int i = 0; i < 600; i++) {
        struct scene s = {.shape = {16, 8}, .start = dpe_rng_below(&rng, 60)};
        struct dpe_error err = {0};
        assert_int_equal(dpe_plan_init(&s.plan, 8, 2, 3, &err), DPE_OK);
        s.rows = 1 + dpe_rng_below(&rng, 60);
        s.plan.chunk = 1 + dpe_rng_below(&rng, 40);
        int n_bands = 1 + (int)dpe_rng_below(&rng, DPE_MAX_BANDS);
        for (int b = 0; b < n_bands; b++) {
            enum dpe_band_kind kind = (enum dpe_band_kind)dpe_rng_below(&rng, 3);
            int64_t most = kind == DPE_BAND_CHUNK ? 5 : 70;
            int64_t lo = dpe_rng_below(&rng, (uint32_t)most);
            int64_t hi = lo + 1 + dpe_rng_below(&rng, (uint32_t)most);
            hi = dpe_rng_below(&rng, 3) == 0 ? INT64_MAX : hi;
            plan_case_band(&s.plan, kind, lo, hi, (double)(1 + b), false);
        }
        for (int64_t j = 0; j < 8; j++) {
            s.plan.inv_freq[j] = 1.0 / (double)(1 + j);
        }
        assert_int_equal(dpe_plan_check(&s.plan, &err), DPE_OK);
        assert_int_equal(dpe_rotation_make(&s.plan, s.start + s.rows, 1, &s.rotation, &err),
                         DPE_OK);
        run_scene(&s, &rng);
        dpe_rotation_free(&s.rotation);
        dpe_plan_free(&s.plan);
    }
}

static void copies_of(int i, struct dpe_rotated_copies *q, struct dpe_rotated_copies *k)
{
    struct dpe_plan plan;
    struct dpe_rotation rotation;
    struct dpe_error err = {0};
    plan_case_make(i, 6, &config, &plan);
    assert_int_equal(dpe_rotation_make(&plan, 40, 1, &rotation, &err), DPE_OK);
    *q = dpe_rotated_find(&plan, &rotation, false);
    *k = dpe_rotated_find(&plan, &rotation, true);
    dpe_rotation_free(&rotation);
    dpe_plan_free(&plan);
}

static void copies_are_shared(void **state)
{
    (void)state;
    struct dpe_rotated_copies q;
    struct dpe_rotated_copies k;
    copies_of(0, &q, &k); /* rope */
    assert_int_equal(q.n, 1);
    assert_int_equal(k.n, 1);
    copies_of(1, &q, &k); /* dpe: far keys differ between query heads */
    assert_int_equal(q.n, 2);
    assert_int_equal(k.n, 2);
    assert_true(k.copies[1].per_head && !k.copies[0].per_head);
    copies_of(2, &q, &k); /* dca: three copies of queries, the oldest rotated alike; one of keys */
    assert_int_equal(q.n, 3);
    assert_int_equal(k.n, 1);
    assert_true(q.copies[q.of_band[2]].constant && !q.copies[q.of_band[2]].plain);
    copies_of(5, &q, &k); /* rerope: far keys are not rotated at all */
    assert_true(k.copies[k.of_band[1]].plain && q.copies[q.of_band[1]].constant);
    copies_of(8, &q, &k); /* string: keys alike in both bands */
    assert_int_equal(k.n, 1);
}

/* What a second band costs: at most two tiles more per block than one band has. */
static void second_band_is_cheap(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    const struct dpe_tile_shape shape = {128, 64};
    int64_t tiles[2] = {0, 0};
    int64_t blocks = 0;
    for (int i = 0; i < 2; i++) {
        struct dpe_plan plan;
        struct dpe_rotation rotation = {.q_table = {0, 1}, .k_table = {0, 1}};
        plan_case_make(i, 1024, &config, &plan);
        struct dpe_rotated_copies q = dpe_rotated_find(&plan, &rotation, false);
        struct dpe_walk walk;
        assert_int_equal(dpe_walk_make(&plan, &q, &q, shape, 0, 8192, &walk, &err), DPE_OK);
        tiles[i] = walk.n_tiles;
        blocks = walk.n_blocks;
        dpe_walk_free(&walk);
        dpe_plan_free(&plan);
    }
    assert_int_equal(blocks, 64);
    assert_int_equal(tiles[0], 64 * 65); /* Σ 2 (i + 1) */
    /* A boundary of 127 keys under both bands; blocks inside the window pay nothing. */
    assert_true(tiles[1] <= tiles[0] + 2 * (64 - 8));
}

/* Parts of a block have as many tiles as each other, and their results have rows of their own. */
static void parts_are_equal(void **state)
{
    (void)state;
    enum { PARTS = 7, ROWS = 40 };
    struct dpe_error err = {0};
    struct dpe_plan plan;
    struct dpe_rotation rotation = {.q_table = {0, 1}, .k_table = {0, 1}};
    plan_case_make(1, 1024, &config, &plan);
    struct dpe_rotated_copies q = dpe_rotated_find(&plan, &rotation, false);
    struct dpe_walk walk;
    const struct dpe_tile_shape shape = {64, 64};
    assert_int_equal(dpe_walk_make(&plan, &q, &q, shape, 9000, ROWS, &walk, &err), DPE_OK);
    int64_t tiles = walk.n_tiles;
    assert_int_equal(dpe_walk_split(&walk, ROWS, shape.keys, PARTS, &err), DPE_OK);
    assert_int_equal(walk.n_blocks, PARTS);
    uint32_t seen = 0;
    for (int i = 0; i < PARTS; i++) {
        assert_in_range(walk.blocks[i].n_tiles, tiles / PARTS, tiles / PARTS + 1);
        assert_int_equal(walk.blocks[i].row % ROWS, 0);
        seen |= 1U << walk.blocks[i].row / ROWS;
    }
    assert_int_equal(seen, (1U << PARTS) - 1);
    dpe_walk_free(&walk);
    dpe_plan_free(&plan);
}

/* Long contexts: nothing but arithmetic, in 64 bits. */
static void far_out(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_plan plan;
    struct dpe_rotation rotation = {.q_table = {0, 1}, .k_table = {0, 1}};
    plan_case_make(1, 1024, &config, &plan);
    struct dpe_rotated_copies q = dpe_rotated_find(&plan, &rotation, false);
    struct dpe_walk walk;
    int64_t start = (INT64_C(1) << 24) - 100;
    const struct dpe_tile_shape shape = {128, 64};
    assert_int_equal(dpe_walk_make(&plan, &q, &q, shape, start, 200, &walk, &err), DPE_OK);
    assert_int_equal(walk.n_blocks, 2);
    assert_int_equal(walk.k_end[0], start + 200);
    assert_int_equal(walk.k_first[1], 0);
    assert_int_equal(walk.k_end[1], start + 200 - 1024);
    assert_int_equal(walk.k_first[0], start - 1023);
    dpe_walk_free(&walk);
    assert_int_equal(dpe_walk_make(&plan, &q, &q, shape, INT64_C(1) << 39, 200, &walk, &err),
                     DPE_USAGE);
    dpe_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_once),   cmocka_unit_test(random_bands),
        cmocka_unit_test(copies_are_shared), cmocka_unit_test(second_band_is_cheap),
        cmocka_unit_test(far_out),           cmocka_unit_test(parts_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

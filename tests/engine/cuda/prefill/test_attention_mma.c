/* The mma.sync attention kernel, its very source run by the emulator, against the reference
 * backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulate/emulate_control.h"
#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/few.h"
#include "tests/lib/near.h"

#include "tests/engine/cuda/flash_case.h"
#include "tests/engine/cuda/flash_properties.h"

static void launch(struct flash_case *c)
{
    if (dpe_attention_mma(&c->call) != 0) {
        fail_msg("launch: %s", emulate_error());
    }
}

static void run_case(const struct flash_shape *shape, int plan_case, int64_t window)
{
    struct flash_case c =
        flash_case_make(shape, plan_case, window, dpe_attention_mma_shape(shape->head_dim));
    emulate_set_seed(shape->seed);
    launch(&c);
    flash_case_check(&c, "mma.sync");
    flash_case_free(&c);
}

/* The same, its walk split. */
static void run_parts(const struct flash_shape *shape, int plan_case, int32_t parts)
{
    struct dpe_tile_shape tile = dpe_attention_mma_shape(shape->head_dim);
    struct flash_case c = flash_case_make(shape, plan_case, 50, tile);
    int64_t n = parts * shape->rows * shape->n_heads * (shape->head_dim + 1);
    flash_split(&c, tile, parts);
    assert_int_not_equal(dpe_attention_mma(&c.call), 0); /* no room for the parts */
    c.call.partial = flash_memory(n, sizeof(float));
    emulate_set_seed(shape->seed);
    launch(&c);
    flash_case_check(&c, "parts");
    free(c.call.partial);
    flash_case_free(&c);
}

static void every_plan(void **state)
{
    static const int64_t dims[] = {64, 96, 128, 256, 512};
    struct dpe_rng rng;
    (void)state;
    dpe_rng_seed(&rng, 30, 1);
    for (int i = 0; i < PLAN_CASES; i += few(3)) {
        for (int k = 0; k < (i % 4 == 1 ? 5 : 4); k++) { /* 512: some plans, which take long */
            struct flash_shape shape = flash_draw_shape(&rng, dims[k], 150, k == 4 ? 70 : 140);
            shape.seed = 1 + (uint64_t)(4 * i + k);
            run_case(&shape, i, 3 + dpe_rng_below(&rng, 100));
        }
    }
}

/* Bands that end on, one before and one after the edge of a tile or of a query block. */
static void window_edges(void **state)
{
    static const int64_t windows[] = {63, 64, 65, 127, 128, 129};
    (void)state;
    for (int i = 0; i < 6; i += few(2)) {
        struct flash_shape shape = {
            .dtype = DPE_BF16,
            .n_heads = 2,
            .n_kv_heads = 1,
            .head_dim = 128,
            .start = i % 3 == 0 ? 0 : 64 * i,
            .rows = 129,
            .seed = 100 + (uint64_t)i,
        };
        run_case(&shape, 1, windows[i]); /* dpe */
        shape.rows = 128;
        run_case(&shape, 9, windows[i]); /* streaming-llm */
        shape.head_dim = 256;            /* tiles of 64 queries and 32 keys */
        shape.rows = 65;
        run_case(&shape, 1, windows[i] / 2);
        run_case(&shape, 9, windows[i] / 2);
    }
}

static void chunk_edges(void **state)
{
    (void)state;
    flash_chunk_edges(run_case);
}

/* Logits so far apart that maxima move all the time. */
static void large_logits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct flash_shape shape = {
            .dtype = i == 1 ? DPE_F16 : DPE_BF16,
            .n_heads = 2,
            .n_kv_heads = 2,
            .head_dim = i == 2   ? 96
                        : i == 3 ? 256
                                 : 128,
            .rows = 150,
            .start = 90,
            .seed = 140 + (uint64_t)i,
            .size = i == 0 ? 4.0 : 8.0,
        };
        run_case(&shape, 1, 40);
    }
}

/* Capped logits, some of them near the cap, in every kernel of its own; whole walks and parts. */
static void caps(void **state)
{
    static const int64_t dims[] = {64, 96, 128, 256, 512};
    static const int plans[] = {1, 7, 13, 11}; /* dpe, self-extend, log-n, holes */
    (void)state;
    for (int i = 0; i < 10; i += few(3)) {
        const struct flash_shape shape = {
            .dtype = i < 5 ? DPE_BF16 : DPE_F16,
            .n_heads = 2,
            .n_kv_heads = 1,
            .head_dim = dims[i % 5],
            .start = 25 * i,
            .rows = 70 + i,
            .seed = 170 + (uint64_t)i,
            .size = i % 3 == 0 ? 3.0 : 1.5,
            .cap = i % 2 == 0 ? 4.0 : 1.5,
        };
        run_case(&shape, plans[i % 4], 40);
        run_parts(&shape, plans[(i + 1) % 4], 2 + i);
    }
}

/* Blocks without a key give zeros and −∞. */
static void nothing_visible(void **state)
{
    (void)state;
    const struct flash_shape shape = {
        .dtype = DPE_BF16, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .rows = 200, .seed = 150};
    run_case(&shape, 11, 140); /* holes */
    run_case(&shape, 11, 250);
    struct flash_shape wide = shape;
    wide.head_dim = 256;
    run_case(&wide, 11, 140);
}

static const struct flash_shape usual = {.dtype = DPE_BF16,
                                         .n_heads = 2,
                                         .n_kv_heads = 1,
                                         .head_dim = 128,
                                         .start = 70,
                                         .rows = 140,
                                         .seed = 160};

static struct flash_case usual_case(int plan_case, int64_t window)
{
    return flash_case_make(&usual, plan_case, window, dpe_attention_mma_shape(usual.head_dim));
}

static void same_bits_in_any_order(void **state)
{
    (void)state;
    struct flash_case c = usual_case(1, 50);
    flash_same_bits(&c, launch);
}

static void a_nan_stays_in_its_row(void **state)
{
    (void)state;
    struct flash_case c = usual_case(7, 50);
    flash_nan_stays(&c, launch);
}

/* Bands one by one, put together by their log-sum-exp. */
static void passes_merge(void **state)
{
    (void)state;
    struct flash_case whole = usual_case(7, 50); /* self-extend */
    int64_t n = usual.rows * usual.n_heads;
    int64_t d = usual.head_dim;
    struct flash_case part[2] = {usual_case(7, 50), usual_case(7, 50)};
    for (int i = 0; i < 2; i++) {
        /* The walk of one band alone: the other one's keys are masked. */
        struct dpe_error err = {0};
        struct flash_case *c = &part[i];
        struct dpe_plan one = c->plan;
        struct dpe_rotated_copies q = c->q_copies;
        struct dpe_rotated_copies k = c->k_copies;
        one.n_bands = 1;
        one.bands[0] = c->plan.bands[i];
        q.of_band[0] = q.of_band[i];
        k.of_band[0] = k.of_band[i];
        dpe_walk_free(&c->walk);
        assert_int_equal(dpe_walk_make(&one, &q, &k, dpe_attention_mma_shape(d), usual.start,
                                       usual.rows, &c->walk, &err),
                         DPE_OK);
        flash_set_walk(c);
        launch(c);
        flash_case_read(c);
    }
    for (int64_t i = 0; i < n; i++) {
        double a = (double)part[0].lse[FLASH_GUARD + i];
        double b = (double)part[1].lse[FLASH_GUARD + i];
        double near_share = 1.0 / (1.0 + exp(b - a));
        for (int64_t j = 0; j < d; j++) {
            whole.got[i * d + j] = (float)(near_share * (double)part[0].got[i * d + j] +
                                           (1.0 - near_share) * (double)part[1].got[i * d + j]);
        }
    }
    assert_int_equal(near_oracle("merged", whole.got, whole.plain, whole.want, (size_t)(n * d)), 0);
    flash_case_free(&whole);
    flash_case_free(&part[0]);
    flash_case_free(&part[1]);
}

/* Few queries over many keys, in parts; some parts have nothing to do. */
static void parts_combine(void **state)
{
    static const int64_t dims[] = {64, 96, 128, 256};
    (void)state;
    for (int i = 0; i < 8; i++) {
        const struct flash_shape shape = {
            .dtype = i / 3 % 2 == 0 ? DPE_F16 : DPE_BF16,
            .n_heads = 2,
            .n_kv_heads = 1 + i % 2,
            .head_dim = dims[i % 4],
            .start = i == 4 ? 30 : 300 - 40 * i, /* its first rows see nothing */
            .rows = i == 4 ? 40 : 1 + 5 * i,
            .seed = 180 + (uint64_t)i,
        };
        run_parts(&shape, i == 4 ? 11 : i, 2 + 3 * i);
    }
    /* 32 heads, one block of 2048 tiles, 132 multiprocessors. */
    assert_int_equal(dpe_attention_mma_parts(1, 2048, 32, 132), 8);
    assert_int_equal(dpe_attention_mma_parts(1, 20, 32, 132), 2);
    assert_int_equal(dpe_attention_mma_parts(64, 2048, 32, 132), 1);
}

static void refuses(void **state)
{
    (void)state;
    struct flash_case c = usual_case(0, 50);
    struct dpe_flash call = c.call;
    call.head_dim = 80;
    assert_int_equal(dpe_attention_mma_shape(80).rows, 0);
    assert_int_not_equal(dpe_attention_mma(&call), 0);
    call = c.call;
    call.dtype = DPE_F32;
    assert_int_not_equal(dpe_attention_mma(&call), 0);
    flash_case_free(&c);
}

/* Of all the reads above none found two of its rows in the same banks. */
static void no_bank_conflicts(void **state)
{
    (void)state;
    struct emulate_bank_counts counts = emulate_bank_counts_read();
    assert_true(counts.reads > 1000000);
    assert_int_equal(counts.conflicts, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan),
        cmocka_unit_test(window_edges),
        cmocka_unit_test(chunk_edges),
        cmocka_unit_test(large_logits),
        cmocka_unit_test(caps),
        cmocka_unit_test(nothing_visible),
        cmocka_unit_test(same_bits_in_any_order),
        cmocka_unit_test(a_nan_stays_in_its_row),
        cmocka_unit_test(passes_merge),
        cmocka_unit_test(parts_combine),
        cmocka_unit_test(refuses),
        cmocka_unit_test(no_bank_conflicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The Hopper attention kernel, its very source run by the emulator, against the reference backend.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulate/emulate_control.h"
#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/near.h"

#include "engine/cuda/prefill/attention_wgmma.h"
#include "tests/engine/cuda/flash_case.h"
#include "tests/engine/cuda/flash_properties.h"

/* Of every call: left as it was found. */
static int32_t counters[2];

static void launch(struct flash_case *c)
{
    if (dpe_attention_wgmma(&c->call, counters) != 0) {
        fail_msg("%s: %s", c->title, emulate_error());
    }
    assert_true(counters[0] == 0 && counters[1] == 0);
}

static void run_case(const struct flash_shape *shape, int plan_case, int64_t window)
{
    struct flash_case c = flash_case_make(
        shape, plan_case, window, dpe_attention_wgmma_shape(shape->head_dim, shape->cap > 0.0));
    emulate_set_seed(shape->seed);
    launch(&c);
    flash_case_check(&c, "wgmma");
    flash_case_free(&c);
}

/* Every plan, lengths and heads at random. */
static void every_plan(void **state)
{
    struct dpe_rng rng;
    (void)state;
    dpe_rng_seed(&rng, 31, 1);
    for (int i = 0; i < PLAN_CASES; i++) {
        for (int64_t d = 64; d <= 256; d *= 2) {
            struct flash_shape shape = flash_draw_shape(&rng, d, 150, 200);
            shape.seed = dpe_rng_u32(&rng);
            run_case(&shape, i, 3 + dpe_rng_below(&rng, 100));
        }
    }
}

/* Windows, chunks and lengths on, before and after the edges of tiles. */
static void edges(void **state)
{
    static const int cases[4] = {0, 1, 2, 7}; /* rope, dpe, dca, self-extend */
    struct dpe_rng rng;
    (void)state;
    dpe_rng_seed(&rng, 32, 1);
    for (int64_t d = 64; d <= 256; d *= 2) {
        for (int i = 0; i < 4; i++) {
            struct dpe_tile_shape tile = dpe_attention_wgmma_shape(d, false);
            for (int off = -1; off <= 1; off++) {
                struct flash_shape shape = {
                    .dtype = off == 0 ? DPE_F16 : DPE_BF16,
                    .n_heads = 2,
                    .n_kv_heads = 1,
                    .head_dim = d,
                    .start = i % 2 == 0 ? 0 : tile.keys + off,
                    .rows = tile.rows + tile.keys + off,
                    .seed = dpe_rng_u32(&rng),
                };
                run_case(&shape, cases[(i + off + 1) % 4], tile.keys + off);
            }
        }
    }
}

/* Long walks of unmasked tiles, many items per block, several orders of the threads. */
static void long_walks(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct flash_shape shape = {
            .dtype = DPE_BF16,
            .n_heads = 4,
            .n_kv_heads = 2,
            .head_dim = i < 4 ? 128 : 256,
            .start = 517,
            .rows = 203,
            .seed = (uint64_t)(40 + i),
        };
        run_case(&shape, 1, 150);
        shape.seed = 0;
        run_case(&shape, 2, 190);
    }
}

/* Bands that meet in one tile: near keys from one product, far keys from another. */
static void paired_tiles(void **state)
{
    static const int64_t windows[3] = {128, 256, 384};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const struct flash_shape shape = {
            .dtype = i % 2 == 0 ? DPE_BF16 : DPE_F16,
            .n_heads = 2,
            .n_kv_heads = i == 2 ? 2 : 1,
            .head_dim = i < 4 ? 128 : 64,
            .start = i == 1 ? 0 : 128 * i,
            .rows = i == 3 ? 77 : 512,
            .seed = 60 + (uint64_t)i,
        };
        run_case(&shape, i % 2 == 0 ? 1 : 5, windows[i % 3]);
    }
}

static void chunk_edges(void **state)
{
    (void)state;
    flash_chunk_edges(run_case);
}

/* Logits so far apart that maxima move all the time; blocks of rows that see nothing. */
static void extremes(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct flash_shape shape = {
            .dtype = i == 1 ? DPE_F16 : DPE_BF16,
            .n_heads = 2,
            .n_kv_heads = 2,
            .head_dim = i == 2 ? 64 : 128,
            .rows = 150,
            .start = 234,
            .seed = 140 + (uint64_t)i,
            .size = i == 0 ? 4.0 : 8.0,
        };
        run_case(&shape, 1, i == 1 ? 128 : 40);
    }
    const struct flash_shape shape = {.dtype = DPE_BF16,
                                      .n_heads = 1,
                                      .n_kv_heads = 1,
                                      .head_dim = 128,
                                      .rows = 200,
                                      .seed = 150};
    run_case(&shape, 11, 140); /* holes */
    run_case(&shape, 11, 250);
    struct flash_shape large = shape;
    large.head_dim = 256;
    run_case(&large, 11, 140);
    large.size = 8.0;
    run_case(&large, 1, 40);
}

/* Capped logits, some of them near the cap; bands that meet in one tile, rows that see nothing. */
static void caps(void **state)
{
    static const int plans[] = {1, 13, 11, 7}; /* dpe, log-n, holes, self-extend */
    (void)state;
    for (int i = 0; i < 10; i++) {
        const struct flash_shape shape = {
            .dtype = i % 4 < 2 ? DPE_BF16 : DPE_F16,
            .n_heads = 2,
            .n_kv_heads = 1 + i % 2,
            .head_dim = i >= 8       ? 256
                        : i % 2 == 0 ? 128
                                     : 64,
            .start = i < 4 ? 128 * i : 99,
            .rows = i < 4 ? 200 : 131,
            .seed = 170 + (uint64_t)i,
            .size = i % 3 == 0 ? 3.0 : 1.5,
            .cap = i < 4 ? 4.0 : 1.5,
        };
        run_case(&shape, plans[i / 2 % 4], 128);
    }
}

static const struct flash_shape usual = {.dtype = DPE_BF16,
                                         .n_heads = 2,
                                         .n_kv_heads = 1,
                                         .head_dim = 128,
                                         .start = 186,
                                         .rows = 140,
                                         .seed = 160};

static struct flash_case usual_case(int plan_case, int64_t window)
{
    return flash_case_make(&usual, plan_case, window,
                           dpe_attention_wgmma_shape(usual.head_dim, false));
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

static void refuses(void **state)
{
    struct dpe_flash call = {.dtype = DPE_BF16, .head_dim = 96, .n_heads = 1, .n_kv_heads = 1};
    (void)state;
    assert_int_equal(dpe_attention_wgmma_shape(96, false).rows, 0);
    assert_int_equal(dpe_attention_wgmma_shape(96, true).rows, 0);
    assert_int_not_equal(dpe_attention_wgmma(&call, counters), 0);
    call.head_dim = 128;
    call.dtype = DPE_F32;
    assert_int_not_equal(dpe_attention_wgmma(&call, counters), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan),
        cmocka_unit_test(edges),
        cmocka_unit_test(long_walks),
        cmocka_unit_test(paired_tiles),
        cmocka_unit_test(chunk_edges),
        cmocka_unit_test(extremes),
        cmocka_unit_test(caps),
        cmocka_unit_test(same_bits_in_any_order),
        cmocka_unit_test(a_nan_stays_in_its_row),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

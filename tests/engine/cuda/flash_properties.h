/**
 * @file flash_properties.h
 * What holds for every attention kernel in the emulator, whatever its tiles. Include after
 * cmocka.h.
 */
#ifndef DPE_FLASH_PROPERTIES_H
#define DPE_FLASH_PROPERTIES_H

#include "tests/emulate/emulate_control.h"
#include "tests/engine/cuda/flash_case.h"

/** Run the kernel under test on a case; fails the test when it cannot be launched. */
typedef void (*flash_launch)(struct flash_case *c);

/** Make, run, check and free one case. */
typedef void (*flash_run)(const struct flash_shape *shape, int plan_case, int64_t window);

/** Chunks shorter than a query block, and longer ones, at whose edges blocks are cut. */
static inline void flash_chunk_edges(flash_run run)
{
    static const int64_t chunks[] = {20, 50, 128, 131};
    for (int i = 0; i < 4; i++) {
        const struct flash_shape shape = {
            .dtype = i % 2 == 0 ? DPE_F16 : DPE_BF16,
            .n_heads = 1,
            .n_kv_heads = 1,
            .head_dim = i < 2 ? 64 : 128,
            .start = i < 3 ? 37 * i : 300,
            .rows = 200,
            .seed = 120 + (uint64_t)i,
        };
        run(&shape, 2, chunks[i]); /* dca */
    }
}

/** The same bits whatever the order in which threads run. Frees the case. */
static inline void flash_same_bits(struct flash_case *c, flash_launch launch)
{
    size_t n = (size_t)(c->call.rows * c->call.n_heads * c->call.head_dim);
    uint16_t *first = flash_memory((int64_t)n, sizeof *first);
    for (uint64_t seed = 0; seed < 4; seed++) {
        emulate_set_seed(seed);
        memset(c->out, 0xff, (n + 2 * FLASH_GUARD) * sizeof *c->out);
        launch(c);
        flash_case_check(c, "any order");
        if (seed == 0) {
            memcpy(first, c->out + FLASH_GUARD, n * sizeof *first);
        }
        assert_memory_equal(first, c->out + FLASH_GUARD, n * sizeof *first);
    }
    free(first);
    flash_case_free(c);
}

/** A query that is not a number changes its own row and no other; the log-sum-exp may be left out.
 * Frees the case. */
static inline void flash_nan_stays(struct flash_case *c, flash_launch launch)
{
    enum { ROW = 33 };
    int64_t d = c->call.head_dim;
    for (int i = 0; i < c->q_copies.n; i++) {
        c->q_rotated[i][ROW * d + 5] = FLASH_POISON; /* head 0 */
    }
    launch(c);
    flash_case_read(c);
    for (int64_t j = 0; j < d; j++) {
        int64_t at = ROW * c->call.n_heads * d + j;
        assert_true(isnan(c->got[at]));
        c->got[at] = (float)c->want[at];
    }
    assert_true(isnan(c->lse[FLASH_GUARD + ROW * c->call.n_heads]));
    assert_int_equal(near_oracle("beside a NaN", c->got, c->plain, c->want,
                                 (size_t)(c->call.rows * c->call.n_heads * d)),
                     0);
    c->call.lse = NULL;
    launch(c);
    flash_case_free(c);
}

#endif

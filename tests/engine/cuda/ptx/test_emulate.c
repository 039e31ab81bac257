/* The emulator that runs kernel sources on the CPU: what it computes, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ops/ops_host.h"
#include "tests/emulate/emulate_control.h"
#include "tests/emulate/emulate_kernels.h"

static void sums_blocks(void **state)
{
    (void)state;
    enum { BLOCKS = 3, N = 1000 };
    float x[BLOCKS * N];
    float sums[BLOCKS];
    for (uint64_t seed = 0; seed < 4; seed++) {
        emulate_set_seed(seed);
        for (int i = 0; i < BLOCKS * N; i++) {
            x[i] = (float)(i % 7);
        }
        assert_int_equal(emulate_block_sum(x, BLOCKS, N, 256, sums), 0);
        for (int b = 0; b < BLOCKS; b++) {
            float want = 0.0f;
            for (int i = 0; i < N; i++) {
                want += x[b * N + i];
            }
            assert_true(sums[b] == want);
        }
    }
    emulate_set_seed(0);
}

static void shows_a_missing_barrier(void **state)
{
    (void)state;
    enum { N = 1024 };
    int x[N];
    int y[N];
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        x[i] = i;
    }
    for (uint64_t seed = 0; seed < 3; seed++) {
        emulate_set_seed(seed);
        assert_int_equal(emulate_reverse(x, y, 1, N, true), 0);
        for (int i = 0; i < N; i++) {
            assert_int_equal(y[i], N - 1 - i);
        }
        assert_int_equal(emulate_reverse(x, y, 1, N, false), 0);
        for (int i = 0; i < N; i++) {
            wrong += y[i] != N - 1 - i;
        }
    }
    emulate_set_seed(0);
    assert_true(wrong > N);
}

/* A warp that runs ahead of the others into the next step. */
static void shows_a_missing_barrier_at_the_end(void **state)
{
    (void)state;
    enum { STEPS = 9, THREADS = 256 };
    int counted[STEPS * THREADS];
    int wrong = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        emulate_set_seed(seed);
        for (int without = 0; without < 2; without++) {
            assert_int_equal(emulate_count_votes(STEPS, THREADS, counted, without == 0), 0);
            for (int i = 0; i < STEPS * THREADS; i++) {
                int want = 0;
                for (int t = i / THREADS; t < i / THREADS + THREADS; t++) {
                    want += t % 3 == 0;
                }
                assert_true(without == 1 || counted[i] == want);
                wrong += counted[i] != want;
            }
        }
    }
    emulate_set_seed(0);
    assert_true(wrong > 0);
}

static void expect_failure(enum emulate_wrong_kind kind, const char *a, const char *b)
{
    emulate_clear_error();
    assert_int_not_equal(emulate_wrong(kind), 0);
    if (strstr(emulate_error(), a) == NULL || strstr(emulate_error(), b) == NULL) {
        fail_msg("expected \"%s\" and \"%s\" in: %s", a, b, emulate_error());
    }
}

static void tells_what_is_wrong(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        emulate_set_seed(seed);
        expect_failure(EMULATE_WRONG_BARRIER, "7 from thread 0 on: __syncthreads at",
                       "57 have ended");
        expect_failure(EMULATE_WRONG_SHUFFLE, "all threads wait", "a shuffle at");
        expect_failure(EMULATE_WRONG_AFTER, "after", "256 bytes of shared memory");
        expect_failure(EMULATE_WRONG_COUNT, "barrier 1 of", "the block has 96");
    }
    emulate_set_seed(0);
    emulate_clear_error();
    /* And goes on afterwards. */
    sums_blocks(NULL);
}

static void hands_over_through_named_barriers(void **state)
{
    (void)state;
    enum { STEPS = 40 };
    int seen[STEPS * 32];
    for (uint64_t seed = 0; seed < 5; seed++) {
        emulate_set_seed(seed);
        assert_int_equal(emulate_hand_over(STEPS, seen), 0);
        for (int i = 0; i < STEPS * 32; i++) {
            assert_int_equal(seen[i], i / 32 * 100 + i % 32);
        }
    }
    emulate_set_seed(0);
}

static void moves_values_between_lanes(void **state)
{
    (void)state;
    uint32_t out[32 * 6 + 1];
    memset(out, 0, sizeof out);
    assert_int_equal(emulate_lanes(out), 0);
    uint32_t taken = 0;
    for (uint32_t t = 0; t < 32; t++) {
        assert_int_equal(out[t * 6 + 0], 0x49249249U);
        assert_int_equal(out[t * 6 + 1], t == 0 ? 0 : t - 1);
        assert_int_equal(out[t * 6 + 2], t % 8 < 4 ? t + 4 : t);
        assert_int_equal(out[t * 6 + 3], t % 2 == 0 ? 6 : 7);
        assert_int_equal(out[t * 6 + 4], 20);
        taken |= 1U << out[t * 6 + 5];
    }
    assert_int_equal(taken, 0xffffffffU);
    assert_int_equal(out[32 * 6], 32);
}

/* Every half there is, and floats between and beside them. */
static void rounds_halves(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    float *x = malloc(3 * N * sizeof *x);
    uint16_t *bits = malloc((size_t)3 * N * 2 * sizeof *bits);
    float *back = malloc((size_t)3 * N * 2 * sizeof *back);
    assert_non_null(x);
    assert_non_null(bits);
    assert_non_null(back);
    for (int i = 0; i < N; i++) {
        float low = dpe_from_f16((uint16_t)i);
        float next = dpe_from_f16((uint16_t)(i + 1));
        x[3 * i] = low;
        x[3 * i + 1] = isfinite(low) && isfinite(next) ? 0.5f * (low + next) : low;
        x[3 * i + 2] = isfinite(low) ? nextafterf(x[3 * i + 1], low) : low;
    }
    assert_int_equal(emulate_halves(x, 3 * N, bits, bits + (size_t)3 * N, back), 0);
    for (int i = 0; i < 3 * N; i++) {
        uint16_t half = bits[3 * N + i];
        uint16_t bf16 = bits[i];
        if (isnan(x[i])) {
            assert_true(isnan(dpe_from_f16(half)) && isnan(dpe_from_bf16(bf16)));
            continue;
        }
        /* The compiler's own conversion is the oracle for halves; for bfloat16 it is distance. */
        assert_true(back[2 * i] == dpe_from_bf16(bf16));
        assert_true(back[2 * i + 1] == dpe_from_f16(half));
        double error = fabs((double)back[2 * i + 1] - (double)x[i]);
        double up = fabs((double)dpe_from_f16((uint16_t)(half + 1)) - (double)x[i]);
        double down = fabs((double)dpe_from_f16((uint16_t)(half - 1)) - (double)x[i]);
        if (isfinite(back[2 * i + 1]) && (half & 0x7fffU) != 0) {
            assert_true(!(error > up) && !(error > down));
            assert_true(error != up || half % 2 == 0);
            assert_true(error != down || half % 2 == 0);
        }
        error = fabs((double)back[2 * i] - (double)x[i]);
        assert_true(isinf(x[i]) ? isinf(back[2 * i]) : error <= fabs((double)x[i]) / 256.0);
    }
    free(x);
    free(bits);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_blocks),
        cmocka_unit_test(shows_a_missing_barrier),
        cmocka_unit_test(shows_a_missing_barrier_at_the_end),
        cmocka_unit_test(tells_what_is_wrong),
        cmocka_unit_test(hands_over_through_named_barriers),
        cmocka_unit_test(moves_values_between_lanes),
        cmocka_unit_test(rounds_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

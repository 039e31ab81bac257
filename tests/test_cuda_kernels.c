/* Kernels of the CUDA backend that read logits, called directly in the emulator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "emulate_control.h"
#include "near.h"

#include "kernels.h"

enum { ROWS = 4 };

/* Small numbers with many equal ones, the largest at `best` and, where there is room, behind it. */
static float *make_logits(int64_t vocab, int64_t best)
{
    float *logits = dpe_alloc((size_t)(ROWS * vocab), sizeof *logits);
    assert_non_null(logits);
    for (int64_t i = 0; i < ROWS * vocab; i++) {
        logits[i] = (float)(i * 7919 % 31) - 40.0f;
    }
    for (int64_t r = 0; r < ROWS; r++) {
        int64_t at = (best + r) % vocab;
        logits[r * vocab + at] = -3.0f;
        logits[r * vocab + (at + vocab) / 2] = -3.0f;
        logits[r * vocab + vocab - 1] = -3.0f;
    }
    return logits;
}

static int32_t first_largest(const float *row, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return (int32_t)best;
}

static void largest_logit(void **state)
{
    static const int64_t vocabs[] = {1, 31, 257, 1500, 8191, 8192, 12289};
    (void)state;
    for (size_t i = 0; i < sizeof vocabs / sizeof vocabs[0]; i++) {
        int64_t vocab = vocabs[i];
        int32_t tokens[ROWS];
        float *logits = make_logits(vocab, vocab * 5 / 7);
        emulate_set_seed(i);
        assert_int_equal(dpe_kernel_argmax(logits, ROWS, vocab, tokens), 0);
        for (int r = 0; r < ROWS; r++) {
            assert_int_equal(tokens[r], first_largest(logits + r * vocab, vocab));
        }
        logits[vocab - 1] = NAN;
        logits[vocab + vocab / 2] = INFINITY;
        logits[2 * vocab] = -INFINITY;
        assert_int_equal(dpe_kernel_argmax(logits, ROWS, vocab, tokens), 0);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(tokens[r], -1);
        }
        assert_int_equal(tokens[3], first_largest(logits + 3 * vocab, vocab));
        free(logits);
    }
}

static void likelihood(void **state)
{
    enum { VOCAB = 1500 };
    const int32_t targets[ROWS] = {0, 7, VOCAB - 1, 700};
    double nll[ROWS];
    float *logits = make_logits(VOCAB, 900);
    (void)state;
    logits[3 * VOCAB + 5] = INFINITY;
    assert_int_equal(dpe_kernel_nll(logits, targets, ROWS, VOCAB, nll), 0);
    for (int r = 0; r < ROWS; r++) {
        const float *row = logits + r * VOCAB;
        double sum = 0.0;
        for (int i = 0; i < VOCAB; i++) {
            sum += exp((double)row[i]);
        }
        double want = log(sum) - (double)row[targets[r]];
        assert_true(r == 3 ? isnan(nll[r]) : fabs(nll[r] - want) <= 1e-6 * fabs(want));
    }
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_logit),
        cmocka_unit_test(likelihood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

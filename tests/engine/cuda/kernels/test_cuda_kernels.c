/* Small kernels of the CUDA backend, called directly in the emulator: what reads logits,
 * biases, activations, experts of a row, branches of attention, rotating rows, products of few
 * rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/emulate/emulate_control.h"
#include "tests/lib/near.h"

#include "engine/base/halves.h"
#include "engine/cuda/kernels/cuda_select.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/ops/ops_host.h"

enum { ROWS = 4 };

/* Small numbers with many equal ones, the largest at `best` and, where there is room, after it. */
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

static float *make_numbers(int64_t n, uint32_t seed)
{
    float *x = dpe_alloc((size_t)n, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525U + 1013904223U;
        x[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
    }
    return x;
}

/* Widths that are walked eight at a time, beyond a block's reach, and one by one. */
static void bias(void **state)
{
    static const int64_t widths[] = {8, 2056, 301};
    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        int64_t n = 3 * widths[w];
        float *out = make_numbers(n, 1);
        float *before = make_numbers(n, 1);
        float *by = make_numbers(widths[w], 2);
        assert_int_equal(dpe_kernel_bias(DPE_F32, out, by, 3, widths[w]), 0);
        for (int64_t i = 0; i < n; i++) {
            assert_true(out[i] == before[i] + by[i % widths[w]]);
        }
        free(out);
        free(before);
        free(by);
    }
}

static double activated(enum dpe_activation kind, double g, double u)
{
    if (kind == DPE_GEGLU_TANH) {
        return 0.5 * g * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (g + 0.044715 * g * g * g))) * u;
    }
    if (kind == DPE_SWIGLU_CLAMPED) {
        g = g > 7.0 ? 7.0 : g;
        u = u > 7.0 ? 7.0 : (u < -7.0 ? -7.0 : u);
        return g / (1.0 + exp(-1.702 * g)) * (u + 1.0);
    }
    return g / (1.0 + exp(-g)) * u;
}

/* Numbers on both sides of the clamps; what is not a number stays that. */
static void activations(void **state)
{
    static const int64_t sizes[] = {2048, 301};
    (void)state;
    for (int kind = DPE_SWIGLU; kind <= DPE_SWIGLU_CLAMPED; kind++) {
        for (int s = 0; s < 2; s++) {
            int64_t n = sizes[s];
            float *gate = make_numbers(n, 3);
            float *before = make_numbers(n, 3);
            float *up = make_numbers(n, 4);
            for (int64_t i = 0; i < n; i++) {
                before[i] *= 24.0F;
                gate[i] = before[i];
                up[i] *= 24.0F;
            }
            gate[5] = NAN;
            up[6] = NAN;
            assert_int_equal(dpe_kernel_activate((enum dpe_activation)kind, DPE_F32, gate, up, n),
                             0);
            for (int64_t i = 0; i < n; i++) {
                double want =
                    activated((enum dpe_activation)kind, (double)before[i], (double)up[i]);
                double error = fabs((double)gate[i] - want);
                assert_true(i == 5 || i == 6 ? isnan(gate[i]) : error <= 1e-6 * (1.0 + fabs(want)));
            }
            free(gate);
            free(before);
            free(up);
        }
    }
}

/* Small multiples of 1/4, which bfloat16 has exactly. */
static float quarter(int64_t i)
{
    return (float)((i * 7919 + i / 13) % 33 - 16) / 4.0F;
}

static void fill_both(float *floats, uint16_t *halves, int64_t n, int64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        floats[i] = quarter(i + seed);
        memcpy(&bits, &floats[i], sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
}

/* All experts in one launch: none, one, a tile, a tile and one, more of rows; a depth and a width
 * that no tile divides; in float, by plain loops in halves, and with tensor cores. Then the rows of
 * two experts each are added up. */
static void experts_in_groups(void **state)
{
    enum { E = 6, TOKENS = 150, K = 40, N = 136, MOST = 2 * TOKENS };
    static const int takes[E] = {0, 1, 64, 65, 150, 20};
    static float x[TOKENS * K], w[E * N * K], bias[E * N], weights[TOKENS * E], made[MOST * N];
    static uint16_t x_half[TOKENS * K], w_half[E * N * K];
    static float out[TOKENS * N], wants[2][TOKENS * N];
    int32_t counts[E];
    int32_t routes[MOST];
    (void)state;
    fill_both(x, x_half, TOKENS * K, 1);
    fill_both(w, w_half, (int64_t)E * N * K, 5);
    for (int64_t i = 0; i < (int64_t)E * N; i++) {
        bias[i] = quarter(i);
    }
    for (int e = 0, at = 0; e < E; e++) { /* two different experts a row */
        for (int i = 0; i < takes[e]; i++, at++) {
            weights[at % TOKENS * E + e] = 1.0F + (float)e;
        }
    }
    for (int r = 0; r < TOKENS; r++) {
        for (int n = 0; n < N; n++) {
            for (int e = 0; e < E; e++) {
                const float by = weights[r * E + e];
                float sum = 0.0F;
                for (int k = 0; k < K; k++) {
                    sum += x[r * K + k] * w[(e * N + n) * K + k];
                }
                wants[0][r * N + n] += by * (sum + bias[e * N + n]);
                wants[1][r * N + n] += by * sum + (by != 0.0F ? bias[e * N + n] : 0.0F);
            }
        }
    }
    assert_int_equal(dpe_kernel_route(weights, TOKENS, E, MOST, counts, routes), 0);
    for (int e = 0; e < E; e++) {
        assert_int_equal(counts[e], takes[e]);
    }
    for (int way = 0; way < 6; way++) { /* weights after the products, and in them */
        struct dpe_cuda_matrix matrices[E];
        const bool half = way % 3 > 0;
        const bool weighed = way >= 3;
        const float *want = wants[weighed ? 1 : 0];
        for (int e = 0; e < E; e++) {
            matrices[e] = (struct dpe_cuda_matrix){
                half ? (void *)(w_half + e * N * K) : (void *)(w + e * N * K), bias + e * N};
        }
        const struct dpe_grouped grouped = {
            .dtype = half ? DPE_BF16 : DPE_F32,
            .out_float = true,
            .gathers = true,
            .tiles = way % 3 == 2,
            .matrices = matrices,
            .counts = counts,
            .routes = routes,
            .n_experts = E,
            .most = MOST,
            .x = half ? (void *)x_half : (void *)x,
            .out = made,
            .n = N,
            .k = K,
            .weights = weighed ? weights : NULL,
        };
        const struct dpe_combined combined = {made,   weights, counts, routes, E,
                                              TOKENS, MOST,    N,      out,    weighed};
        memset(made, 0x7f, sizeof made); /* a large number */
        memset(out, 0, sizeof out);
        assert_int_equal(dpe_kernel_grouped(&grouped), 0);
        assert_int_equal(dpe_kernel_combine(&combined), 0);
        for (int i = 0; i < TOKENS * N; i++) {
            if (!(fabsf(out[i] - want[i]) <= 1e-3F)) {
                fail_msg("way %d, row %d, column %d: %g, expected %g", way, i / N, i % N,
                         (double)out[i], (double)want[i]);
            }
        }
    }
}

/* The largest two of five, of equal ones the first; what is not a number is found. */
static void experts_of_a_row(void **state)
{
    enum { N = 5 };
    static const float scores[3][N] = {{1.0F, 3.0F, 3.0F, 3.0F, -80.0F},
                                       {0.0F, -1.0F, 2.0F, 1.0F, 0.5F},
                                       {0.0F, NAN, 1.0F, 2.0F, 3.0F}};
    static const int best[2][2] = {{1, 2}, {2, 3}};
    static const struct dpe_router plain;
    (void)state;
    for (int normalised = 0; normalised < 2; normalised++) {
        float got[3][N];
        memcpy(got, scores, sizeof got);
        const struct dpe_routing choice = {.scores = got[0],
                                           .rows = 3,
                                           .n_experts = N,
                                           .per_token = 2,
                                           .router = plain,
                                           .normalised = normalised != 0};
        assert_int_equal(dpe_kernel_choose_experts(&choice), 0);
        for (int r = 0; r < 2; r++) {
            double all = 0.0;
            double chosen = exp((double)scores[r][best[r][0]]) + exp((double)scores[r][best[r][1]]);
            for (int e = 0; e < N; e++) {
                all += exp((double)scores[r][e]);
            }
            for (int e = 0; e < N; e++) {
                bool taken = e == best[r][0] || e == best[r][1];
                double want =
                    taken ? exp((double)scores[r][e]) / (normalised != 0 ? chosen : all) : 0.0;
                assert_true(fabs((double)got[r][e] - want) <= 1e-6);
                assert_true(taken || got[r][e] == 0.0F);
            }
        }
        int bad = 0;
        for (int e = 0; e < N; e++) {
            bad += isnan(got[2][e]) != 0;
        }
        assert_int_equal(bad, 2); /* as many as a row takes */
    }
}

/* Weights far below 1 keep their digits, and one that is 0 is taken once. */
static void small_weights_of_a_row(void **state)
{
    enum { N = 7, TAKEN = 4 };
    static const float scores[2][N] = {{-9.3F, 2.0F, -21.0F, 0.5F, -200.0F, -40.0F, 1.0F},
                                       {-12.0F, 3.0F, -17.7F, -1.0F, -9.0F, -30.0F, -200.0F}};
    static float shift[N] = {9.0F, 0.0F, 8.0F, 0.0F, 7.0F, 6.0F, 0.0F};
    const struct dpe_tensor shifts = {.data = shift, .dtype = DPE_F32, .rows = 1, .cols = N};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct dpe_config config = {
            .n_experts = N,
            .experts_per_token = TAKEN,
            .experts_normalised = i % 2 != 0,
            .router = {.sigmoid = true, .shifted = true, .scale = i / 2 != 0 ? 2.5 : 0.0}};
        float got[2][N];
        memcpy(got, scores, sizeof got);
        const struct dpe_routing choice = {.scores = got[0],
                                           .shift = shift,
                                           .rows = 2,
                                           .n_experts = N,
                                           .per_token = TAKEN,
                                           .router = config.router,
                                           .normalised = config.experts_normalised};
        assert_int_equal(dpe_kernel_choose_experts(&choice), 0);
        for (int r = 0; r < 2; r++) {
            float want[N];
            memcpy(want, scores[r], sizeof want);
            dpe_experts_choose(&config, &shifts, &(struct dpe_tensor){0}, want);
            assert_true(want[0] > 0.0F && want[1] == 0.0F && want[2] > 0.0F && want[5] > 0.0F);
            for (int e = 0; e < N; e++) {
                assert_true(fabs((double)got[r][e] - (double)want[e]) <= 1e-6 * (double)want[e]);
            }
        }
    }
}

/* Weights of more experts than a row takes, as a broken card may make them: nothing is read or
 * written beyond what there is room for. */
static void more_experts_than_room(void **state)
{
    enum { N = 3, WIDTH = 2, TAKEN = 20, GUARD = -77 };
    float weights[ROWS * N];
    float x[ROWS * WIDTH];
    float w[WIDTH * WIDTH] = {1.0F, 0.0F, 0.0F, 1.0F};
    (void)state;
    for (int i = 0; i < ROWS * N; i++) {
        weights[i] = 1.0F;
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = (float)(i + 1);
    }
    for (int64_t most = 1; most <= (int64_t)ROWS * N; most++) {
        int32_t counts[N];
        int32_t routes[TAKEN];
        float made[TAKEN * WIDTH];
        float out[ROWS * WIDTH] = {0};
        struct dpe_cuda_matrix matrices[N];
        double sum = 0.0;
        for (int i = 0; i < TAKEN; i++) {
            routes[i] = GUARD;
            made[2 * i] = made[2 * i + 1] = (float)GUARD;
        }
        for (int e = 0; e < N; e++) {
            matrices[e] = (struct dpe_cuda_matrix){w, NULL};
        }
        assert_int_equal(dpe_kernel_route(weights, ROWS, N, most, counts, routes), 0);
        const struct dpe_grouped grouped = {.dtype = DPE_F32,
                                            .out_float = true,
                                            .gathers = true,
                                            .matrices = matrices,
                                            .counts = counts,
                                            .routes = routes,
                                            .n_experts = N,
                                            .most = most,
                                            .x = x,
                                            .out = made,
                                            .n = WIDTH,
                                            .k = WIDTH};
        const struct dpe_combined combined = {made, weights, counts, routes, N,
                                              ROWS, most,    WIDTH,  out,    false};
        assert_int_equal(dpe_kernel_grouped(&grouped), 0);
        assert_int_equal(dpe_kernel_combine(&combined), 0);
        for (int64_t i = 0; i < TAKEN; i++) {
            assert_true((routes[i] == GUARD) == (i >= most));
            assert_true((made[2 * i] == (float)GUARD) == (i >= most));
        }
        for (int i = 0; i < ROWS * WIDTH; i++) {
            assert_true(out[i] > 0.0F); /* of rows that are there alone */
            sum += (double)out[i];
        }
        assert_true(most < (int64_t)ROWS * N || sum == 3.0 * 36.0);
    }
}

/* More experts than a warp has lanes, in groups and without, some of equal scores: those of the
 * reference, with its weights. */
static void many_experts_of_a_row(void **state)
{
    enum { N = 160, MANY = 37 };
    static float shift[N];
    static float factor[N];
    const struct dpe_tensor none = {0};
    const struct dpe_tensor shifts = {.data = shift, .dtype = DPE_F32, .rows = 1, .cols = N};
    const struct dpe_tensor factors = {.data = factor, .dtype = DPE_F32, .rows = 1, .cols = N};
    (void)state;
    for (int e = 0; e < N; e++) {
        shift[e] = (float)(e * 37 % 11) / 16.0F;
        factor[e] = 0.5F + (float)(e % 7) / 4.0F;
    }
    for (int i = 0; i < 6; i++) {
        const bool shifted = i == 1 || i == 3;
        const bool before = i == 5; /* by scores whose sigmoids are one and the same number */
        const struct dpe_config config = {.n_experts = N,
                                          .experts_per_token = i == 3 ? MANY : 6,
                                          .experts_normalised = i % 2 != 0 && !before,
                                          .router = {.sigmoid = shifted || before,
                                                     .shifted = shifted,
                                                     .before = before,
                                                     .groups = i == 2   ? 40
                                                               : i == 1 ? 8
                                                                        : 0,
                                                     .of_these = 4}};
        float got[ROWS][N];
        float want[N];
        for (int j = 0; j < ROWS * N; j++) {
            got[j / N][j % N] = (float)(j * 7919 % 53) / 8.0F + (before ? 30.0F : -4.0F);
        }
        const struct dpe_routing choice = {.scores = got[0],
                                           .shift = shifted ? shift : NULL,
                                           .factors = i == 4 ? factor : NULL,
                                           .rows = ROWS,
                                           .n_experts = N,
                                           .per_token = config.experts_per_token,
                                           .router = config.router,
                                           .normalised = config.experts_normalised};
        float scores[ROWS][N];
        memcpy(scores, got, sizeof got);
        assert_int_equal(dpe_kernel_choose_experts(&choice), 0);
        for (int r = 0; r < ROWS; r++) {
            int64_t taken = 0;
            memcpy(want, scores[r], sizeof want);
            dpe_experts_choose(&config, shifted ? &shifts : &none, i == 4 ? &factors : &none, want);
            for (int e = 0; e < N; e++) {
                assert_true((got[r][e] != 0.0F) == (want[e] != 0.0F));
                assert_true(fabs((double)got[r][e] - (double)want[e]) <= 1e-6 * (double)want[e]);
                taken += got[r][e] != 0.0F;
            }
            assert_int_equal(taken, config.experts_per_token);
        }
    }
}

/* 100 experts, of which a row takes 80, more than are added up at once. Sums are whole numbers. */
static void many_experts_in_groups(void **state)
{
    enum { E = 100, TOKENS = 5, K = 16, N = 8, MOST = TOKENS * 80 };
    static float x[TOKENS * K], w[E * N * K], weights[TOKENS * E], made[MOST * N], want[TOKENS * N];
    static uint16_t x_half[TOKENS * K], w_half[E * N * K];
    int32_t counts[E];
    int32_t routes[MOST];
    (void)state;
    fill_both(x, x_half, TOKENS * K, 3);
    fill_both(w, w_half, (int64_t)E * N * K, 9);
    memset(want, 0, sizeof want);
    for (int i = 0; i < TOKENS * E; i++) {
        const int r = i / E;
        weights[i] = (i % E + 3 * r) % 5 != 0 ? (float)(1 + i % 4) : 0.0F;
        for (int n = 0; n < N && weights[i] != 0.0F; n++) {
            float sum = 0.0F;
            for (int k = 0; k < K; k++) {
                sum += x[r * K + k] * w[(i % E * N + n) * K + k];
            }
            want[r * N + n] += weights[i] * sum;
        }
    }
    assert_int_equal(dpe_kernel_route(weights, TOKENS, E, MOST, counts, routes), 0);
    for (int way = 0; way < 2; way++) {
        struct dpe_cuda_matrix matrices[E];
        float out[TOKENS * N] = {0};
        for (int e = 0; e < E; e++) {
            matrices[e] = (struct dpe_cuda_matrix){
                way > 0 ? (void *)(w_half + e * N * K) : (void *)(w + e * N * K), NULL};
        }
        const struct dpe_grouped grouped = {.dtype = way > 0 ? DPE_BF16 : DPE_F32,
                                            .out_float = true,
                                            .gathers = true,
                                            .tiles = true,
                                            .matrices = matrices,
                                            .counts = counts,
                                            .routes = routes,
                                            .n_experts = E,
                                            .most = MOST,
                                            .x = way > 0 ? (void *)x_half : (void *)x,
                                            .out = made,
                                            .n = N,
                                            .k = K};
        const struct dpe_combined combined = {made,   weights, counts, routes, E,
                                              TOKENS, MOST,    N,      out,    false};
        memset(made, 0x7f, sizeof made);
        assert_int_equal(dpe_kernel_grouped(&grouped), 0);
        assert_int_equal(dpe_kernel_combine(&combined), 0);
        for (int i = 0; i < TOKENS * N; i++) {
            assert_true(out[i] == want[i]);
        }
    }
}

/* Rows of a table times a factor, eight numbers at a time and one by one, in halves and in float.
 */
static void rows_of_a_table(void **state)
{
    enum { WORDS = 5, TOKENS = 9 };
    static const int32_t tokens[TOKENS] = {4, 0, 3, 3, 1, 2, 4, 0, 1};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int64_t width = i % 2 == 0 ? 48 : 7;
        static float table[WORDS * 48], x[TOKENS * 48], want[TOKENS * 48];
        static uint16_t table_half[WORDS * 48], x_half[TOKENS * 48];
        fill_both(table, table_half, WORDS * width, 1);
        fill_both(x, x_half, TOKENS * width, 2);
        for (int64_t j = 0; j < TOKENS * width; j++) {
            want[j] = x[j] + 4.0F * table[tokens[j / width] * width + j % width];
        }
        assert_int_equal(
            i < 2 ? dpe_kernel_add_rows(DPE_F32, x, table, tokens, TOKENS, width, 4.0F)
                  : dpe_kernel_add_rows(DPE_BF16, x_half, table_half, tokens, TOKENS, width, 4.0F),
            0);
        for (int64_t j = 0; j < TOKENS * width; j++) {
            const uint32_t bits = (uint32_t)x_half[j] << 16;
            float half = 0.0F;
            memcpy(&half, &bits, sizeof half);
            assert_true(i < 2 ? x[j] == want[j] : fabsf(half - want[j]) <= fabsf(want[j]) / 256.0F);
        }
    }
}

/* Branches add up by their gates, large ones too, with a window and without. */
static void branches(void **state)
{
    enum { HEADS_OF = 300, WIDTH = 3, N = HEADS_OF * WIDTH };
    (void)state;
    float *gates = make_numbers(3 * HEADS_OF, 31);
    float *compressed = make_numbers(N, 32);
    float *windowed = make_numbers(N, 33);
    gates[0] = -200.0F;
    gates[1] = 200.0F;
    for (int window = 0; window < 2; window++) {
        float *out = make_numbers(N, 34);
        float *chosen = make_numbers(N, 34);
        assert_int_equal(dpe_select_merge(DPE_F32, gates, compressed, window != 0 ? windowed : NULL,
                                          HEADS_OF, WIDTH, out),
                         0);
        for (int i = 0; i < N; i++) {
            const float *of[3] = {compressed, chosen, windowed};
            double want = 0.0;
            for (int b = 0; b < 2 + window; b++) {
                want += (double)of[b][i] / (1.0 + exp(-(double)gates[i / WIDTH * 3 + b]));
            }
            assert_true(fabs((double)out[i] - want) <= 1e-6);
        }
        free(out);
        free(chosen);
    }
    free(gates);
    free(compressed);
    free(windowed);
}

/* Rows are rotated by one table, outside of the mask by another, and back by a third; a second copy
 * by a table alone. Keys of a KV head become those of its two query heads; `scattered`: rows have
 * positions and places of their own. */
struct rotating {
    int64_t rows, head_dim;
    bool masked, undone, scattered, late;
};

enum { HEADS = 4, GROUP = 2, PLACES = 1400 };

/* A rotated row of head h against the definition; true where it holds. */
static bool rotated_well(const struct rotating *t, const struct dpe_row_rotation *rotation,
                         const float *late, const float *from, const float *to, int64_t h,
                         int64_t position)
{
    int64_t pairs = t->head_dim / 2;
    bool good = true;
    for (int64_t j = 0; j < pairs; j++) {
        int64_t at = position * pairs + j;
        bool base = rotation->mask != NULL && rotation->mask[h * pairs + j] == 0;
        double c = (double)(base ? rotation->base_cos : rotation->cos)[at];
        double s = (double)(base ? rotation->base_sin : rotation->sin)[at];
        if (rotation->undo_cos != NULL) {
            double uc = (double)rotation->undo_cos[at];
            double us = (double)rotation->undo_sin[at];
            double back = c * uc + s * us;
            s = s * uc - c * us;
            c = back;
        }
        double x = (double)from[j];
        double y = (double)from[j + pairs];
        const double low = t->late ? (double)late[j] : 1.0;
        const double high = t->late ? (double)late[j + pairs] : 1.0;
        good = good && fabs((double)to[j] - (x * c - y * s) * low) <= 1e-6 &&
               fabs((double)to[j + pairs] - (x * s + y * c) * high) <= 1e-6;
    }
    return good;
}

static void rotate_case(const struct rotating *t)
{
    int64_t d = t->head_dim;
    int64_t n = PLACES * d / 2;
    int64_t positions[PLACES];
    int64_t offsets[PLACES];
    uint8_t *mask = dpe_alloc((size_t)(HEADS * d / 2), 1);
    float *tables[6];
    float *from = make_numbers(t->rows * HEADS / GROUP * d, 9);
    float *to = make_numbers(2 * HEADS * PLACES * d, 10);
    float *late = make_numbers(d, 12);
    assert_non_null(mask);
    for (int i = 0; i < 6; i++) {
        tables[i] = make_numbers(n, 20 + (uint32_t)i);
    }
    for (int64_t i = 0; i < HEADS * d / 2; i++) {
        mask[i] = i * 40503 % 7 < 4;
    }
    for (int64_t r = 0; r < t->rows; r++) {
        positions[r] = r * 7 % t->rows;
        offsets[r] = 2;
    }
    const struct dpe_row_rotation rotation[2] = {{.cos = tables[0],
                                                  .sin = tables[1],
                                                  .base_cos = tables[2],
                                                  .base_sin = tables[3],
                                                  .undo_cos = t->undone ? tables[4] : NULL,
                                                  .undo_sin = t->undone ? tables[5] : NULL,
                                                  .mask = t->masked ? mask : NULL},
                                                 {.cos = tables[4], .sin = tables[3]}};
    const struct dpe_rotated_rows rows = {.dtype = DPE_F32,
                                          .n_rotations = 2,
                                          .rotations = {rotation[0], rotation[1]},
                                          .from = from,
                                          .from_row = HEADS / GROUP * d,
                                          .from_head = d,
                                          .to = to,
                                          .to_row = d,
                                          .to_head = PLACES * d,
                                          .to_copy = HEADS * PLACES * d,
                                          .rows = t->rows,
                                          .head_dim = d,
                                          .n_heads = HEADS,
                                          .group = GROUP,
                                          .first = 5,
                                          .positions = t->scattered ? positions : NULL,
                                          .to_offsets = t->scattered ? offsets : NULL,
                                          .to_first = 3,
                                          .late = t->late ? late : NULL};
    /* A copy of the first rows is another call of the same launch. */
    float *copied = make_numbers(HEADS / GROUP * 7 * d, 11);
    const struct dpe_rotated_rows copy = {.dtype = DPE_F32,
                                          .from = from,
                                          .from_row = HEADS / GROUP * d,
                                          .from_head = d,
                                          .to = copied,
                                          .to_row = d,
                                          .to_head = 7 * d,
                                          .rows = t->rows < 7 ? t->rows : 7,
                                          .head_dim = d,
                                          .n_heads = HEADS / GROUP,
                                          .group = 1};
    const struct dpe_rotated_rows calls[2] = {rows, copy};
    const uint64_t launches = emulate_counts_read().launches;
    assert_int_equal(dpe_kernel_rotate(calls, 2), 0);
    assert_int_equal(emulate_counts_read().launches - launches, 1);
    for (int64_t i = 0; i < HEADS / GROUP * copy.rows; i++) {
        int64_t h = i / copy.rows;
        int64_t r = i % copy.rows;
        assert_memory_equal(copied + (h * 7 + r) * d, from + (r * HEADS / GROUP + h) * d,
                            (size_t)d * sizeof *from);
    }
    free(copied);
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t position = t->scattered ? positions[r] : 5 + r;
        int64_t to_row = t->scattered ? positions[r] + offsets[r] : 3 + r;
        for (int64_t i = 0; i < 2 * HEADS; i++) {
            int64_t h = i % HEADS;
            assert_true(rotated_well(t, &rotation[i / HEADS], late,
                                     from + (r * HEADS / GROUP + h / GROUP) * d,
                                     to + (i * PLACES + to_row) * d, h, position));
        }
    }
    for (int i = 0; i < 6; i++) {
        free(tables[i]);
    }
    free(late);
    free(mask);
    free(from);
    free(to);
}

static void rotated_rows(void **state)
{
    static const struct rotating cases[] = {
        {1, 16, true, true, false, false},     {1023, 32, false, false, false, true},
        {1024, 16, true, false, false, false}, {1025, 32, true, true, false, false},
        {1300, 6, true, true, false, true},    {1301, 16, false, true, true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        emulate_set_seed(i);
        rotate_case(&cases[i]);
    }
}

/* Norms of rows that are kept whole and of longer ones, eight elements at a time and one by one;
 * and which row is the first that is not finite: not one whose squares alone are too large. */
static void norms(void **state)
{
    static const int64_t widths[] = {24, 1031, 4096, 9000};
    (void)state;
    enum { HUGE_ROW = 1, WRONG_ROW = 2 };
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        const int64_t width = widths[w];
        float *x = make_numbers(ROWS * width, 3);
        float *weight = make_numbers(width, 4);
        float *out = make_numbers(ROWS * width, 5);
        unsigned long long first = ~0ULL;
        emulate_set_seed(w);
        assert_int_equal(dpe_kernel_rmsnorm(DPE_F32, x, weight, ROWS, width, 1e-5f, out, 7, &first),
                         0);
        assert_true(first == ~0ULL);
        for (int64_t r = 0; r < ROWS; r++) {
            double squares = 0.0;
            for (int64_t i = 0; i < width; i++) {
                squares += (double)x[r * width + i] * (double)x[r * width + i];
            }
            const double scale = 1.0 / sqrt(squares / (double)width + 1e-5);
            for (int64_t i = 0; i < width; i++) {
                const double want = (double)x[r * width + i] * scale * (double)weight[i];
                assert_true(fabs((double)out[r * width + i] - want) <= 1e-6 * (fabs(want) + 1.0));
            }
        }
        x[HUGE_ROW * width] = 1e30f;
        x[WRONG_ROW * width + width - 1] = -INFINITY;
        x[(WRONG_ROW + 1) * width + width / 2] = NAN;
        assert_int_equal(dpe_kernel_rmsnorm(DPE_F32, x, weight, ROWS, width, 1e-5f, out, 7, NULL),
                         0);
        assert_true(first == ~0ULL);
        assert_int_equal(dpe_kernel_rmsnorm(DPE_F32, x, weight, ROWS, width, 1e-5f, out, 7, &first),
                         0);
        assert_true(first == (7ULL << 40 | WRONG_ROW));
        first = ~0ULL;
        assert_int_equal(dpe_kernel_nonfinite(x, ROWS, width, 7, &first), 0);
        assert_true(first == (7ULL << 40 | WRONG_ROW));
        free(x);
        free(weight);
        free(out);
    }
}

/* -1, 0 and 1 in a dtype, element i of a tensor. */
static float small_number(int64_t i, int tensor)
{
    return (float)((i * 7919 + tensor * 31) % 3 - 1);
}

static void *make_small(enum dpe_dtype dtype, int64_t n, int tensor)
{
    char *to = dpe_alloc((size_t)n, 4);
    assert_non_null(to);
    for (int64_t i = 0; i < n; i++) {
        float x = small_number(i, tensor);
        uint16_t one = dtype == DPE_F16 ? 0x3c00 : 0x3f80;
        uint16_t half = (uint16_t)(x == 0.0f ? 0 : (x < 0.0f ? 0x8000 | one : one));
        memcpy(to + i * (dtype == DPE_F32 ? 4 : 2), dtype == DPE_F32 ? (void *)&x : (void *)&half,
               dtype == DPE_F32 ? 4 : 2);
    }
    return to;
}

static float small_product(int64_t column, int64_t row, int64_t k, int tensor)
{
    float sum = 0.0f;
    for (int64_t j = 0; j < k; j++) {
        sum += small_number(column * k + j, tensor) * small_number(row * k + j, 0);
    }
    return sum;
}

/* Launches that so many rows take: of four rows, of two, of one. */
static uint64_t launches_of(int64_t rows)
{
    return (uint64_t)(rows / 4 + (rows % 4 + 1) / 2 + 0);
}

/* Weights of different widths, whose ends share no block, with a bias and without. */
static void product_case(enum dpe_dtype dtype, int64_t rows, int64_t k, int n_weights)
{
    static const int64_t widths[] = {11, 5, 19};
    bool accumulate = rows % 2 == 1;
    float *out[3] = {NULL};
    float *before[3] = {NULL};
    float *bias = make_numbers(5, 9);
    void *w[3] = {NULL};
    void *x = make_small(dtype, rows * k, 0);
    struct dpe_few_product product = {.dtype = dtype,
                                      .out_float = true,
                                      .accumulate = accumulate,
                                      .x = x,
                                      .rows = rows,
                                      .k = k,
                                      .n_weights = n_weights};
    for (int i = 0; i < n_weights; i++) {
        w[i] = make_small(dtype, widths[i] * k, i + 1);
        out[i] = make_numbers(rows * widths[i], 3 + (uint32_t)i);
        before[i] = make_numbers(rows * widths[i], 3 + (uint32_t)i);
        product.weights[i] = (struct dpe_few_weight){w[i], i == 1 ? bias : NULL, out[i], widths[i]};
    }
    uint64_t launches = emulate_counts_read().launches;
    assert_int_equal(dpe_kernel_product_few(&product), 0);
    assert_int_equal(emulate_counts_read().launches - launches, launches_of(rows));
    for (int i = 0; i < n_weights; i++) {
        for (int64_t at = 0; at < rows * widths[i]; at++) {
            float sum = small_product(at % widths[i], at / widths[i], k, i + 1);
            sum += i == 1 ? bias[at % widths[i]] : 0.0f;
            assert_true(out[i][at] == (accumulate ? before[i][at] + sum : sum));
        }
        free(w[i]);
        free(out[i]);
        free(before[i]);
    }
    free(x);
    free(bias);
}

/* As many rows as there are ways to cut them; lengths that warps walk in one go and in several with
 * an end, alone and shared. */
static void products(void **state)
{
    static const enum dpe_dtype dtypes[] = {DPE_F32, DPE_F16, DPE_BF16};
    static const int64_t lengths[] = {40, 1288, 2568, 3072, 17000};
    (void)state;
    for (int64_t rows = 1; rows <= DPE_FEW_ROWS; rows++) {
        for (int i = 0; i < 15; i++) {
            product_case(dtypes[i / 5], rows, lengths[i % 5], 1 + i % 3);
        }
    }
}

/* Enough columns that a warp has one to itself, and that two and four share one. */
static void wide_products(void **state)
{
    (void)state;
    enum { K = 16, ALL = 4104 };
    static const int64_t widths[] = {1000, 3000, 4097};
    float *w = make_small(DPE_F32, ALL * K, 1);
    float *x = make_small(DPE_F32, K, 0);
    float *out = make_numbers(ALL, 3);
    for (int i = 0; i < 3; i++) {
        const struct dpe_few_product product = {
            .dtype = DPE_F32,
            .out_float = true,
            .x = x,
            .rows = 1,
            .k = K,
            .n_weights = 2,
            .weights = {{w, NULL, out, widths[i]}, {w + widths[i] * K, NULL, out + widths[i], 7}},
        };
        assert_int_equal(dpe_kernel_product_few(&product), 0);
        for (int64_t at = 0; at < widths[i] + 7; at++) {
            assert_true(out[at] == small_product(at, 0, K, 1));
        }
    }
    free(w);
    free(x);
    free(out);
}

/* Gate and up in one launch. Sums are whole numbers; what rounds is the activation. */
static void gated_products(void **state)
{
    (void)state;
    enum { N = 21, K = 2184 };
    static const float deviation[] = {1e-6f, 1e-3f, 8e-3f};
    static const enum dpe_dtype dtypes[] = {DPE_F32, DPE_F16, DPE_BF16};
    float *bias = make_numbers(N, 5);
    for (int64_t i = 0; i < 3 * DPE_FEW_ROWS; i++) {
        enum dpe_dtype dtype = dtypes[i % 3];
        int64_t rows = 1 + i / 3;
        void *x = make_small(dtype, rows * K, 0);
        void *gate = make_small(dtype, N * K, 1);
        void *up = make_small(dtype, N * K, 2);
        void *out = make_small(dtype, rows * N, 3);
        struct dpe_few_product product = {
            .dtype = dtype,
            .x = x,
            .rows = rows,
            .k = K,
            .n_weights = 2,
            .weights = {{gate, NULL, out, N}, {up, bias, NULL, N}},
        };
        uint64_t launches = emulate_counts_read().launches;
        assert_int_equal(dpe_kernel_gated_few(&product), 0);
        assert_int_equal(emulate_counts_read().launches - launches, launches_of(rows));
        for (int64_t at = 0; at < rows * N; at++) {
            double g = (double)small_product(at % N, at / N, K, 1);
            double u = (double)(small_product(at % N, at / N, K, 2) + bias[at % N]);
            double want = g / (1.0 + exp(-g)) * u;
            float got = dtype == DPE_F32   ? ((float *)out)[at]
                        : dtype == DPE_F16 ? dpe_from_f16(((uint16_t *)out)[at])
                                           : dpe_from_bf16(((uint16_t *)out)[at]);
            assert_true(fabs((double)got - want) <= (double)deviation[i % 3] * (fabs(want) + 1e-3));
        }
        /* Two weights of other widths are no gate and up. */
        product.weights[1].n = N - 1;
        assert_int_equal(dpe_kernel_gated_few(&product), 1);
        free(x);
        free(gate);
        free(up);
        free(out);
    }
    free(bias);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_logit),
        cmocka_unit_test(likelihood),
        cmocka_unit_test(bias),
        cmocka_unit_test(rotated_rows),
        cmocka_unit_test(rows_of_a_table),
        cmocka_unit_test(products),
        cmocka_unit_test(wide_products),
        cmocka_unit_test(gated_products),
        cmocka_unit_test(activations),
        cmocka_unit_test(experts_of_a_row),
        cmocka_unit_test(small_weights_of_a_row),
        cmocka_unit_test(more_experts_than_room),
        cmocka_unit_test(experts_in_groups),
        cmocka_unit_test(many_experts_of_a_row),
        cmocka_unit_test(many_experts_in_groups),
        cmocka_unit_test(branches),
        cmocka_unit_test(norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The kernels and matrix products of the CPU backend against sums in double, for every instruction
 * set this machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/cpu/product.h"
#include "engine/ops/ops_head.h"
#include "engine/ops/ops_host.h"
#include "tests/engine/cpu/kernel_sets.h"
#include "tests/lib/near.h"

static const struct dpe_cpu_kernels *found[MOST_KERNEL_SETS];
static int n_found;

static int find_kernels(void **state)
{
    (void)state;
    n_found = kernel_sets(found);
    return n_found > 0 ? 0 : -1;
}

static float uniform(struct dpe_rng *rng)
{
    return (float)(2.0 * dpe_rng_unit(rng) - 1.0);
}

/* n floats of an exact size, so that a sanitizer sees the first byte after them. */
static float *exact_floats(int64_t n, struct dpe_rng *rng)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = uniform(rng);
    }
    return x;
}

static void exp2_within_two_units(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    float *x = malloc((N + 3) * sizeof *x);
    float *y = malloc((N + 3) * sizeof *y);
    for (int i = 0; i < N + 3; i++) {
        /* Dense around 0, where softmax needs it, and out to both ends. */
        double t = (double)i / N * 2.0 - 1.0;
        x[i] = (float)(i % 2 == 0 ? t : t * 125.9);
    }
    for (int set = 0; set < n_found; set++) {
        double worst = 0.0;
        found[set]->exp2(x, N + 3, y);
        for (int i = 0; i < N + 3; i++) {
            double want = exp2((double)x[i]);
            double unit = ldexp(1.0, ilogb(want) - 23);
            double error = fabs((double)y[i] - want) / unit;
            worst = !(error <= worst) ? error : worst;
        }
        printf("exp2, %s: worst error %.2f units in the last place\n", found[set]->name, worst);
        assert_true(worst <= 2.0);
        float special[5] = {-INFINITY, -127.5F, -1e30F, NAN, 0.0F};
        float result[5];
        found[set]->exp2(special, 5, result);
        assert_true(result[0] == 0.0F && result[1] == 0.0F && result[2] == 0.0F);
        assert_true(isnan(result[3]) != 0);
        assert_true(fabsf(result[4] - 1.0F) <= 0x1p-22F);
    }
    free(x);
    free(y);
}

static void every_half_and_bfloat_is_widened_exactly(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    uint16_t *bits = malloc(N * sizeof *bits);
    float *got = malloc(N * sizeof *got);
    for (int i = 0; i < N; i++) {
        bits[i] = (uint16_t)i;
    }
    for (int set = 0; set < n_found; set++) {
        for (int half = 0; half < 2; half++) {
            /* An odd count: the last vector is not full. */
            found[set]->widen(bits, half ? DPE_F16 : DPE_BF16, N - 1, got);
            for (int i = 0; i < N - 1; i++) {
                float want = half ? dpe_from_f16(bits[i]) : dpe_from_bf16(bits[i]);
                assert_true(isnan(want) ? isnan(got[i]) != 0
                                        : memcmp(&want, &got[i], sizeof want) == 0);
            }
        }
    }
    free(bits);
    free(got);
}

/* Bits of a float cut to bfloat16, or the half of a small whole number of sixty-fourths. */
static uint16_t narrow(float x, enum dpe_dtype dtype)
{
    uint32_t bits = 0;
    if (dtype == DPE_BF16) {
        memcpy(&bits, &x, sizeof bits);
        return (uint16_t)(bits >> 16);
    }
    float rounded = roundf(x * 512.0F) / 512.0F;
    memcpy(&bits, &rounded, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffffU;
    return (uint16_t)(bits >> 16 & 0x8000U) |
           (uint16_t)(magnitude == 0 ? 0 : (magnitude - 0x38000000U) >> 13);
}

struct matrix {
    struct dpe_tensor tensor;
    void *data;
};

static struct matrix random_matrix(int64_t rows, int64_t cols, enum dpe_dtype dtype,
                                   struct dpe_rng *rng)
{
    int64_t n = rows * cols;
    struct matrix m = {.data = malloc((size_t)n * (dtype == DPE_F32 ? 4 : 2))};
    assert_non_null(m.data);
    for (int64_t i = 0; i < n; i++) {
        float x = uniform(rng);
        if (dtype == DPE_F32) {
            ((float *)m.data)[i] = x;
        } else {
            ((uint16_t *)m.data)[i] = narrow(x, dtype);
        }
    }
    m.tensor = (struct dpe_tensor){.data = m.data, .dtype = dtype, .rows = rows, .cols = cols};
    return m;
}

struct product_case {
    int64_t rows, n, k;
    enum dpe_dtype dtype;
    bool bias, accumulate;
};

/* What a product reads, and what it must give. */
struct product_data {
    struct matrix w, bias;
    float *x, *before; /* before: what is accumulated to */
    size_t count;      /* of results */
    double *oracle;
    float *plain; /* in floats throughout */
};

static void expect_row(const struct product_case *c, struct product_data *d, int64_t j, float *row)
{
    float b = 0.0F;
    dpe_tensor_read(&d->w.tensor, j * c->k, c->k, row);
    dpe_tensor_read(&d->bias.tensor, j, 1, &b);
    for (int64_t r = 0; r < c->rows; r++) {
        double sum = 0.0;
        float narrow_sum = 0.0F;
        for (int64_t i = 0; i < c->k; i++) {
            sum += (double)d->x[r * c->k + i] * (double)row[i];
            narrow_sum += d->x[r * c->k + i] * row[i];
        }
        int64_t at = r * c->n + j;
        d->oracle[at] = sum + (c->bias ? (double)b : 0.0);
        d->plain[at] = narrow_sum + (c->bias ? b : 0.0F);
        d->oracle[at] += c->accumulate ? (double)d->before[at] : 0.0;
        d->plain[at] += c->accumulate ? d->before[at] : 0.0F;
    }
}

static struct product_data product_make(const struct product_case *c)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 5, (uint64_t)(c->rows * 1000003 + c->n * 1009 + c->k));
    struct product_data d = {.count = (size_t)(c->rows * c->n)};
    d.w = random_matrix(c->n, c->k, c->dtype, &rng);
    d.bias = random_matrix(1, c->n, c->dtype, &rng);
    d.x = exact_floats(c->rows * c->k, &rng);
    d.before = exact_floats(c->rows * c->n, &rng);
    d.oracle = malloc(d.count * sizeof *d.oracle);
    d.plain = malloc(d.count * sizeof *d.plain);
    float *row = malloc((size_t)c->k * sizeof *row);
    for (int64_t j = 0; j < c->n; j++) {
        expect_row(c, &d, j, row);
    }
    free(row);
    return d;
}

static void product_free(struct product_data *d)
{
    free(d->plain);
    free(d->oracle);
    free(d->before);
    free(d->x);
    free(d->w.data);
    free(d->bias.data);
}

/* Right, the same bits with any number of threads, and nothing written beside. */
static void check_product(const struct product_case *c, const struct dpe_cpu_kernels *kernels,
                          const struct dpe_cpu_products *products, int n_products)
{
    struct product_data d = product_make(c);
    float *first = NULL;
    for (int i = 0; i < n_products; i++) {
        char what[128];
        snprintf(what, sizeof what, "%s: %d x %d x %d, type %d, %d threads", kernels->name,
                 (int)c->rows, (int)c->n, (int)c->k, (int)c->dtype, products[i].n_threads);
        float *out = malloc((d.count + 2 * NEAR_GUARD) * sizeof *out);
        near_guard_fill(out, d.count + 2 * NEAR_GUARD);
        if (c->accumulate) {
            memcpy(out + NEAR_GUARD, d.before, d.count * sizeof *out);
        }
        struct dpe_cpu_product product = {
            .weight = &d.w.tensor,
            .bias = c->bias ? &d.bias.tensor : NULL,
            .x = d.x,
            .rows = c->rows,
            .out = out + NEAR_GUARD,
            .accumulate = c->accumulate,
        };
        dpe_cpu_product(&products[i], &product);
        assert_int_equal(near_oracle(what, out + NEAR_GUARD, d.plain, d.oracle, d.count), 0);
        assert_int_equal(near_guard_broken(out, NEAR_GUARD), 0);
        assert_int_equal(near_guard_broken(out + NEAR_GUARD + d.count, NEAR_GUARD), 0);
        if (first == NULL) {
            first = out;
        } else {
            assert_memory_equal(first + NEAR_GUARD, out + NEAR_GUARD, d.count * sizeof *out);
            free(out);
        }
    }
    free(first);
    product_free(&d);
}

static void products_of_any_shape(void **state)
{
    (void)state;
    const int64_t rows[] = {1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 96, 97, 193, 770};
    const int64_t ns[] = {1, 3, 4, 15, 33, 64, 65, 130, 257};
    const int64_t ks[] = {1, 7, 16, 33, 255, 256, 257, 300};
    struct dpe_config config = {
        .hidden = 1000, .n_heads = 2, .head_dim = 8, .intermediate = 260, .vocab = 1100};
    for (int set = 0; set < n_found; set++) {
        struct dpe_cpu_products products[3];
        struct dpe_error err = {0};
        for (int threads = 1; threads <= 3; threads++) {
            assert_int_equal(dpe_cpu_products_make(found[set], NULL, &config, threads,
                                                   &products[threads - 1], &err),
                             DPE_OK);
        }
        struct dpe_rng rng;
        dpe_rng_seed(&rng, 77, 1);
        for (int i = 0; i < 90; i++) {
            struct product_case c = {
                .rows = rows[i % 14],
                .n = ns[dpe_rng_below(&rng, 9)],
                .k = ks[dpe_rng_below(&rng, 8)],
                .dtype = (enum dpe_dtype)dpe_rng_below(&rng, 3),
                .bias = dpe_rng_below(&rng, 2) == 1,
                .accumulate = dpe_rng_below(&rng, 2) == 1,
            };
            check_product(&c, found[set], products, 3);
        }
        /* Large enough that few rows are shared out among threads. */
        const struct product_case large = {3, 1100, 1000, DPE_BF16, true, true};
        check_product(&large, found[set], products, 3);
        for (int i = 0; i < 3; i++) {
            dpe_cpu_products_free(&products[i]);
        }
    }
}

/* Rounded to bfloat16, ties to even. */
static double to_bf16(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
    memcpy(&value, &bits, sizeof bits);
    return (double)value;
}

struct bf16_case {
    int64_t rows, n, k;
    enum dpe_dtype dtype; /* of the weights */
};

/* Each result against the sum of the rounded factors in double. */
static void check_rounded(const struct bf16_case *c, const struct dpe_tensor *weight,
                          const float *x, const float *out)
{
    double lost = 0.0; /* against the numbers before rounding: shows that they were rounded */
    float *w = malloc((size_t)c->k * sizeof *w);
    for (int64_t j = 0; j < c->n; j++) {
        dpe_tensor_read(weight, j * c->k, c->k, w);
        for (int64_t r = 0; r < c->rows; r++) {
            double want = 0.0;
            double full = 0.0;
            double size = 0.0;
            for (int64_t p = 0; p < c->k; p++) {
                double product = to_bf16(x[r * c->k + p]) * to_bf16(w[p]);
                want += product;
                size += fabs(product);
                full += (double)x[r * c->k + p] * (double)w[p];
            }
            double got = (double)out[r * c->n + j];
            assert_true(fabs(got - want) <= 1e-6 * size + 1e-30);
            lost = fmax(lost, fabs(got - full) / size);
        }
    }
    assert_true(lost > 1e-5);
    free(w);
}

static void check_bf16(const struct bf16_case *c, const struct dpe_cpu_products *products,
                       struct dpe_rng *rng)
{
    size_t bytes = (size_t)(c->rows * c->n) * sizeof(float);
    float *x = exact_floats(c->rows * c->k, rng);
    float *out[2] = {malloc(bytes), malloc(bytes)};
    struct matrix w = random_matrix(c->n, c->k, c->dtype, rng);
    for (int i = 0; i < 2; i++) {
        struct dpe_cpu_product product = {
            .weight = &w.tensor, .x = x, .rows = c->rows, .out = out[i]};
        dpe_cpu_product(&products[i], &product);
    }
    assert_memory_equal(out[0], out[1], bytes);
    check_rounded(c, &w.tensor, x, out[0]);
    free(x);
    free(w.data);
    free(out[0]);
    free(out[1]);
}

/* Products of up to 8 rows, whose weights are in bfloat16: right, and each row has the bits that it
 * has alone, with a bias, in place and beside a product of other weights of the same x. */
static void check_few_bf16(int64_t n, int64_t k, const struct dpe_cpu_products *products,
                           struct dpe_rng *rng)
{
    enum { MOST = 8 };
    float *x = exact_floats(MOST * k, rng);
    float *alone = malloc((size_t)(2 * MOST * n) * sizeof *alone);
    struct matrix w = random_matrix(n, k, DPE_BF16, rng);
    struct matrix other = random_matrix(n, k, DPE_BF16, rng);
    struct matrix bias = random_matrix(1, n, DPE_BF16, rng);
    struct dpe_cpu_product both[2] = {{.weight = &w.tensor},
                                      {.weight = &other.tensor, .bias = &bias.tensor}};
    for (int64_t r = 0; r < MOST; r++) {
        for (int i = 0; i < 2; i++) {
            both[i].x = x + r * k;
            both[i].rows = 1;
            both[i].out = alone + (i * MOST + r) * n;
            dpe_cpu_product(&products[0], &both[i]);
        }
    }
    for (int64_t rows = 1; rows <= MOST; rows++) {
        size_t bytes = (size_t)(rows * n) * sizeof(float);
        float *out[2] = {malloc(bytes), malloc(bytes)};
        for (int i = 0; i < 2; i++) {
            both[i].x = x;
            both[i].rows = rows;
            both[i].out = out[i];
        }
        dpe_cpu_product_several(&products[rows % 2], both, 2);
        const struct bf16_case c = {rows, n, k, DPE_BF16};
        check_rounded(&c, &w.tensor, x, out[0]);
        assert_memory_equal(out[0], alone, bytes);
        assert_memory_equal(out[1], alone + MOST * n, bytes);
        free(out[0]);
        free(out[1]);
    }
    free(x);
    free(alone);
    free(w.data);
    free(other.data);
    free(bias.data);
}

/* Few rows with weights of another type stay in float. */
static void check_few_floats(const struct dpe_cpu_products *bf16,
                             const struct dpe_cpu_products *plain, struct dpe_rng *rng)
{
    enum { N = 33, K = 100 };
    float out[2][8 * N];
    float *x = exact_floats(8 * K, rng);
    struct matrix w = random_matrix(N, K, DPE_F32, rng);
    struct dpe_cpu_product product = {.weight = &w.tensor, .x = x, .rows = 8, .out = out[0]};
    dpe_cpu_product(bf16, &product);
    product.out = out[1];
    dpe_cpu_product(plain, &product);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    free(x);
    free(w.data);
}

/* Factors are rounded to bfloat16 and nothing else is, for any shape and number of threads. */
static void check_products_in_bfloat16(const struct dpe_cpu_bf16 *bf16)
{
    const struct bf16_case cases[] = {{9, 1, 1, DPE_F32},      {9, 33, 7, DPE_F32},
                                      {12, 64, 256, DPE_F32},  {13, 65, 257, DPE_BF16},
                                      {97, 130, 515, DPE_F16}, {770, 40, 1000, DPE_F32}};
    const int64_t few[][2] = {{1, 1},    {3, 31},    {4, 32},   {17, 33},
                              {33, 100}, {640, 257}, {2, 4095}, {9, 4500}};
    struct dpe_config config = {
        .hidden = 5000, .n_heads = 2, .head_dim = 8, .intermediate = 660, .vocab = 200};
    struct dpe_cpu_products products[2];
    struct dpe_cpu_products plain;
    struct dpe_error err = {0};
    struct dpe_rng rng;
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            dpe_cpu_products_make(kernels, bf16, &config, 1 + 2 * i, &products[i], &err), DPE_OK);
    }
    assert_int_equal(dpe_cpu_products_make(kernels, NULL, &config, 1, &plain, &err), DPE_OK);
    dpe_rng_seed(&rng, 5, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_bf16(&cases[i], products, &rng);
    }
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        check_few_bf16(few[i][0], few[i][1], products, &rng);
    }
    check_few_floats(&products[0], &plain, &rng);
    dpe_cpu_products_free(&products[0]);
    dpe_cpu_products_free(&products[1]);
    dpe_cpu_products_free(&plain);
}

/* All kernels that the processor has. Where it has none, the device says so. */
static void products_in_bfloat16(void **state)
{
    (void)state;
    const struct dpe_cpu_bf16 *bf16 = dpe_cpu_bf16_choose();
    const struct dpe_config config = {0};
    const struct dpe_plan plan = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_ops_cpu_bf16()->supports(&config, &plan, &err),
                     bf16 != NULL ? DPE_OK : DPE_NO_DEVICE);
    if (bf16 == NULL) {
        assert_non_null(strstr(err.text, "AVX512-BF16"));
        return;
    }
    check_products_in_bfloat16(bf16);
    if (getenv("DPE_CPU") == NULL) {
        setenv("DPE_CPU", dpe_cpu_kernels_choose()->name, 1); /* without AMX */
        check_products_in_bfloat16(dpe_cpu_bf16_choose());
        unsetenv("DPE_CPU");
    }
}

static void norms_and_gates(void **state)
{
    (void)state;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 3, 1);
    const int64_t widths[] = {1, 4, 15, 16, 17, 64, 65, 192, 300};
    for (int i = 0; i < 9; i++) {
        int64_t n = widths[i];
        float *x = exact_floats(n, &rng);
        float *y = exact_floats(n, &rng);
        float *out = malloc((size_t)n * sizeof *out);
        float *plain = malloc((size_t)n * sizeof *plain);
        double *want = malloc((size_t)n * sizeof *want);
        for (int set = 0; set < n_found; set++) {
            double squares = 0.0;
            float narrow_squares = 0.0F;
            for (int64_t j = 0; j < n; j++) {
                squares += (double)x[j] * (double)x[j];
                narrow_squares += x[j] * x[j];
            }
            for (int64_t j = 0; j < n; j++) {
                want[j] = (double)x[j] / sqrt(squares / (double)n + 1e-5) * (double)y[j];
                plain[j] = x[j] / sqrtf(narrow_squares / (float)n + 1e-5F) * y[j];
            }
            found[set]->rmsnorm(x, y, n, 1e-5F, out);
            assert_int_equal(near_oracle("rmsnorm", out, plain, want, (size_t)n), 0);
            for (int64_t j = 0; j < n; j++) {
                /* Small, large, and beyond what e^−g holds. */
                float g = x[j] * (j % 3 == 0 ? 200.0F : 6.0F);
                out[j] = g;
                want[j] = (double)g / (1.0 + exp(-(double)g)) * (double)y[j];
                plain[j] = g / (1.0F + expf(-g)) * y[j];
            }
            found[set]->activate(DPE_SWIGLU, out, y, n);
            assert_int_equal(near_oracle("swiglu", out, plain, want, (size_t)n), 0);
        }
        free(x);
        free(y);
        free(out);
        free(plain);
        free(want);
    }
}

static void a_gate_hands_nan_through(void **state)
{
    (void)state;
    for (int set = 0; set < n_found; set++) {
        float gate[20] = {NAN, INFINITY, -INFINITY, -1000.0F};
        float up[20];
        for (int i = 0; i < 20; i++) {
            up[i] = 1.0F;
        }
        found[set]->activate(DPE_SWIGLU, gate, up, 20);
        assert_true(isnan(gate[0]) != 0);
        assert_true(isfinite(gate[1]) == 0);
        assert_true(fabsf(gate[3]) < 1e-30F);
    }
}

/* Any number of logits, some far below the largest, against double. */
static void log_sums_are_near_double(void **state)
{
    (void)state;
    const int64_t vocabs[] = {1, 2, 15, 255, 256, 257, 5000};
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 8, 1);
    for (size_t i = 0; i < sizeof vocabs / sizeof vocabs[0]; i++) {
        int64_t n = vocabs[i];
        float *x = malloc((size_t)n * sizeof *x);
        for (double width = 0.0; width < 1e4; width = width * 20.0 + 0.5) {
            double largest = -(double)INFINITY;
            double total = 0.0;
            for (int64_t j = 0; j < n; j++) {
                x[j] = (float)((dpe_rng_unit(&rng) - 0.7) * width);
                largest = fmax(largest, (double)x[j]);
            }
            for (int64_t j = 0; j < n; j++) {
                total += exp((double)x[j] - largest);
            }
            double want = largest + log(total);
            assert_true(fabs(dpe_log_sum(x, n) - want) <= 2e-6 + 1e-7 * fabs(want));
        }
        const float bad[] = {NAN, INFINITY, -INFINITY};
        for (int j = 0; j < 3; j++) {
            x[n / 2] = bad[j];
            assert_true(isnan(dpe_log_sum(x, n)) != 0);
        }
        free(x);
    }
}

/* Powers and weighted differences against libm's; where x is other, nothing is ahead. */
static void power_sums_are_libms(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    static float x[MOST], other[MOST];
    const int64_t sizes[] = {1, 7, 8, 255, 256, 257, MOST};
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 9, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int64_t n = sizes[i];
        for (double width = 0.0; width < 1e4; width = width * 20.0 + 0.5) {
            double largest = -(double)INFINITY, total = 0.0, want = 0.0, size = 0.0, ahead = 0.0;
            for (int64_t j = 0; j < n; j++) {
                x[j] = (float)((dpe_rng_unit(&rng) - 0.7) * width);
                other[j] = x[j] + (float)(dpe_rng_unit(&rng) - 0.4);
                largest = fmax(largest, (double)x[j]);
            }
            for (int64_t j = 0; j < n; j++) {
                const double power = exp((double)x[j] - largest);
                total += power;
                want += power * ((double)x[j] - (double)other[j]);
                size += power;
            }
            assert_true(fabs(dpe_power_sums(x, other, n, largest, &ahead) - total) <=
                        1e-14 * total);
            assert_true(fabs(ahead - want) <= 1e-14 * size);
            assert_true(dpe_power_sums(x, x, n, largest, &ahead) ==
                            dpe_power_sums(x, NULL, n, largest, NULL) &&
                        ahead == 0.0);
        }
    }
    /* Each power by itself, with its sign of rounding: 2^-50 of itself. */
    for (double at = 0.0; at > -699.0; at -= 0.37) {
        const float one = (float)at;
        const double power = dpe_power_sums(&one, NULL, 1, 0.0, NULL);
        assert_true(fabs(power - exp((double)one)) <= 0x1p-50 * exp((double)one));
    }
    const float far = -1e30F;
    assert_true(dpe_power_sums(&far, NULL, 1, 0.0, NULL) < 1e-303);
}

static void nothing(void)
{
}

/* A tile of pairs that does half of the work of one in float. */
static void fast_tile(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc)
{
    found[n_found - 1]->tile(rows, panel, k, c, ldc);
}

/* Twice the work. */
static void slow_tile(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc)
{
    for (int i = 0; i < 4; i++) {
        found[n_found - 1]->tile(rows, panel, k, c, ldc);
    }
}

static void bfloat16_pays_where_it_is_faster(void **state)
{
    (void)state;
    const struct dpe_cpu_kernels *kernels = found[n_found - 1];
    struct dpe_cpu_bf16 bf16 = {
        .mr = kernels->mr, .begin = nothing, .end = nothing, .tile = fast_tile};
    assert_true(dpe_cpu_bf16_pays(kernels, &bf16));
    bf16.tile = slow_tile;
    assert_true(!dpe_cpu_bf16_pays(kernels, &bf16));
}

/* The first rows of a tile are those of the whole one, whatever is left of the others. */
static void a_part_of_a_tile(void **state)
{
    (void)state;
    enum { K = 37 };
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 60, 2);
    for (int i = 0; i < n_found; i++) {
        const struct dpe_cpu_kernels *kernels = found[i];
        int64_t panel = kernels->panel;
        float *rows = exact_floats(K * kernels->mr + kernels->lanes, &rng);
        float *columns = exact_floats(K * panel, &rng);
        float *whole = exact_floats(kernels->mr * panel, &rng);
        float *part = exact_floats(kernels->mr * panel, &rng);
        kernels->tile(rows, columns, K, whole, panel);
        for (int64_t n = 1; n <= kernels->mr; n++) {
            memset(part, 0, (size_t)(kernels->mr * panel) * sizeof *part);
            kernels->tile_part(n, rows, columns, K, part, panel);
            assert_memory_equal(part, whole, (size_t)(n * panel) * sizeof *part);
        }
        free(rows);
        free(columns);
        free(whole);
        free(part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bfloat16_pays_where_it_is_faster),
        cmocka_unit_test(a_part_of_a_tile),
        cmocka_unit_test(exp2_within_two_units),
        cmocka_unit_test(log_sums_are_near_double),
        cmocka_unit_test(power_sums_are_libms),
        cmocka_unit_test(every_half_and_bfloat_is_widened_exactly),
        cmocka_unit_test(products_of_any_shape),
        cmocka_unit_test(products_in_bfloat16),
        cmocka_unit_test(norms_and_gates),
        cmocka_unit_test(a_gate_hands_nan_through),
    };
    return cmocka_run_group_tests(tests, find_kernels, NULL);
}

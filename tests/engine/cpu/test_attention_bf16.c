/* Prefill attention in bfloat16 against the same computation in double on inputs that are rounded
 * the same way: every kind of band, masks, caps, branches, a cache of another type, shapes that are
 * not multiples of any block size.
 *
 * The oracle rotates with the kernel that the driver uses and rounds rotated queries, rotated keys
 * and values to bfloat16, so that the only rounding it does not repeat is that of the
 * probabilities, at most 2^-8 of each, and that of sums in float. With weights w_n = p_n / Σ p:
 *   |logit − its oracle|  ≤ e = (head_dim + 8) · 2^-24 · largest Σ |q_i k_i| · scale
 *   |out − its oracle|    ≤ (2^-8 + 2 e + (keys + 64) · 2^-24) · Σ w_n |v_n|
 *   |log-sum-exp − …|     ≤ e + (keys + 64) · 2^-24, and 2^-23 of itself */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/ops/kv.h"
#include "tests/engine/cpu/attention_run.h"

static const struct dpe_cpu_bf16 *bf16;

/* To the nearest, ties to even; finite x. */
static double rounded(float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* A query at position m, or a key, in band b: rotated and rounded. */
static void rotate(const struct inputs *in, bool key, int b, int64_t head, int64_t at,
                   const float *x, double *out)
{
    const struct dpe_plan *plan = &in->plan;
    const struct dpe_rotation *tables = &in->rotation;
    const int *table_of = key ? tables->k_table : tables->q_table;
    int64_t n_pairs = tables->n_pairs;
    uint32_t select[128];
    float turned[256];
    struct dpe_cpu_rotation rotation = {
        .n_pairs = n_pairs,
        .cos = tables->cos[table_of[b]] + at * n_pairs,
        .sin = tables->sin[table_of[b]] + at * n_pairs,
    };
    if (plan->bands[b].per_head && plan->mask != NULL) {
        for (int64_t j = 0; j < n_pairs; j++) {
            bool moved = plan->mask[(plan->n_heads + head) * n_pairs + j] != 0;
            select[j] = moved ? UINT32_MAX : 0;
        }
        rotation.base_cos = tables->cos[table_of[0]] + at * n_pairs;
        rotation.base_sin = tables->sin[table_of[0]] + at * n_pairs;
        rotation.select = select;
    }
    dpe_cpu_kernels_choose()->rotate(&rotation, x, 2 * n_pairs, 1, turned);
    for (int64_t i = 0; i < 2 * n_pairs; i++) {
        out[i] = rounded(turned[i]);
    }
}

/* What one row and head must be, and how far from it the kernels may be. */
struct oracle {
    double *logits, *keys; /* [keys], [bands][keys][head_dim] of one head */
    double lse, lse_error;
    double out[256], error[256];
};

static double capped(const struct dpe_plan *plan, double logit)
{
    double cap = plan->attention_cap;
    return cap > 0.0 ? cap * tanh(logit / cap) : logit;
}

static void oracle_row(const struct inputs *in, const struct shape *shape, int64_t row,
                       int64_t head, struct oracle *oracle)
{
    const struct dpe_plan *plan = &in->plan;
    int64_t d = shape->head_dim;
    int64_t m = shape->start + row;
    int64_t all = shape->start + shape->rows;
    const float *v = in->v + head / (shape->n_heads / shape->n_kv_heads) * shape->capacity * d;
    double scale = dpe_plan_query_scale(plan, 1, m);
    double q[DPE_MAX_BANDS][256];
    double largest = -(double)INFINITY;
    double most = 0.0;
    for (int b = 0; b < plan->n_bands; b++) {
        rotate(in, false, b, head, m, in->q + (row * shape->n_heads + head) * d, q[b]);
    }
    for (int64_t n = 0; n <= m; n++) {
        int b = dpe_plan_band(plan, m, n);
        double sum = 0.0;
        double size = 0.0;
        for (int64_t i = 0; b >= 0 && i < d; i++) {
            double product = q[b][i] * oracle->keys[(b * all + n) * d + i];
            sum += product;
            size += fabs(product);
        }
        oracle->logits[n] = b >= 0 ? capped(plan, sum * scale) : -(double)INFINITY;
        largest = fmax(largest, oracle->logits[n]);
        most = fmax(most, size * scale);
    }
    double total = 0.0;
    memset(oracle->out, 0, sizeof oracle->out);
    memset(oracle->error, 0, sizeof oracle->error);
    for (int64_t n = 0; n <= m && largest > -(double)INFINITY; n++) {
        double p = exp(oracle->logits[n] - largest);
        total += p;
        for (int64_t i = 0; i < d; i++) {
            oracle->out[i] += p * rounded(v[n * d + i]);
            oracle->error[i] += p * fabs(rounded(v[n * d + i]));
        }
    }
    double e = (double)(d + 8) * 0x1p-24 * most;
    double sums = (double)(m + 65) * 0x1p-24;
    for (int64_t i = 0; i < d && total > 0.0; i++) {
        oracle->out[i] /= total;
        oracle->error[i] *= (0x1p-8 + 2.0 * e + sums) / total;
    }
    oracle->lse = total > 0.0 ? largest + log(total) : -(double)INFINITY;
    oracle->lse_error = e + sums + fabs(oracle->lse) * 0x1p-23;
}

static void rotate_keys(const struct inputs *in, const struct shape *shape, int64_t head,
                        double *keys)
{
    int64_t d = shape->head_dim;
    int64_t all = shape->start + shape->rows;
    int64_t kv_head = head / (shape->n_heads / shape->n_kv_heads);
    for (int b = 0; b < in->plan.n_bands; b++) {
        for (int64_t n = 0; n < all; n++) {
            rotate(in, true, b, head, n, in->k + (kv_head * shape->capacity + n) * d,
                   keys + (b * all + n) * d);
        }
    }
}

/* 1 when an element is further from the oracle than it may be. */
static int wrong(const char *what, double got, double want, double allowed, int64_t row)
{
    if (got == want || fabs(got - want) <= allowed) {
        return 0;
    }
    fprintf(stderr, "%s: row %d: got %.9g, expected %.9g, |difference| %.3g > %.3g\n", what,
            (int)row, got, want, fabs(got - want), allowed);
    return 1;
}

static void compare(const struct inputs *in, const struct shape *shape, const char *what,
                    const float *out, const float *lse)
{
    int64_t d = shape->head_dim;
    int64_t all = shape->start + shape->rows;
    struct oracle oracle;
    int n_wrong = 0;
    oracle.logits = malloc((size_t)all * sizeof *oracle.logits);
    oracle.keys = malloc((size_t)(in->plan.n_bands * all * d) * sizeof *oracle.keys);
    for (int64_t head = 0; head < shape->n_heads; head++) {
        rotate_keys(in, shape, head, oracle.keys);
        for (int64_t row = 0; row < shape->rows; row++) {
            int64_t at = row * shape->n_heads + head;
            oracle_row(in, shape, row, head, &oracle);
            n_wrong += wrong(what, (double)lse[at], oracle.lse, oracle.lse_error, row);
            for (int64_t i = 0; i < d; i++) {
                n_wrong +=
                    wrong(what, (double)out[at * d + i], oracle.out[i], oracle.error[i], row);
            }
            assert_true(n_wrong < 10);
        }
    }
    assert_int_equal(n_wrong, 0);
    free(oracle.logits);
    free(oracle.keys);
}

/* One case: right, and the same bits with any number of threads and in calls of any number of rows,
 * as long as all have more than 4 (fewer are decoded, in float). */
static void check_inputs(const struct inputs *in, const struct shape *shape, const char *name)
{
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    size_t n = (size_t)(shape->rows * shape->n_heads);
    size_t width = (size_t)shape->head_dim;
    float *out = malloc(n * width * sizeof *out);
    float *other = malloc(n * width * sizeof *other);
    float *lse = malloc(n * sizeof *lse);
    float *other_lse = malloc(n * sizeof *other_lse);
    char what[160];
    snprintf(what, sizeof what, "%s, heads %d/%d x %d, start %d, rows %d, window %d", name,
             (int)shape->n_heads, (int)shape->n_kv_heads, (int)shape->head_dim, (int)shape->start,
             (int)shape->rows, (int)shape->window);
    run_cpu(kernels, bf16, in, shape, 1, shape->rows, out, lse);
    compare(in, shape, what, out, lse);
    const int64_t steps[] = {shape->rows, 37, 5, 13};
    for (int s = 0; s < 4; s++) {
        if (shape->rows % steps[s] == 0 || shape->rows % steps[s] > 4) {
            run_cpu(kernels, bf16, in, shape, 2 + s % 2, steps[s], other, other_lse);
            assert_memory_equal(out, other, n * width * sizeof *out);
            assert_memory_equal(lse, other_lse, n * sizeof *lse);
        }
    }
    free(out);
    free(other);
    free(lse);
    free(other_lse);
}

static void check(enum plan_kind kind, const struct shape *shape)
{
    char name[32];
    struct inputs in = inputs_make(kind, shape);
    snprintf(name, sizeof name, "plan %d", (int)kind);
    check_inputs(&in, shape, name);
    inputs_free(&in);
}

static void every_plan_and_head_dimension(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 6, 8, 48, 64, 80, 128, 256};
    for (int kind = 0; kind < N_PLANS; kind++) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            struct shape shape = {4, 2, dims[i], 13, 71, 90, 19, 0, {0}};
            check((enum plan_kind)kind, &shape);
        }
    }
}

static void windows_at_the_edges_of_blocks(void **state)
{
    (void)state;
    const int64_t windows[] = {1, 2, 12, 31, 32, 33, 96, 97, 255, 256, 257};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        struct shape shape = {2, 1, 16, 0, 291, 291, windows[i], 0, {0}};
        check(MASKED_FAR, &shape);
        check(CHUNKS, &shape);
        check(SINKS, &shape);
    }
}

static void query_offsets_and_rows(void **state)
{
    (void)state;
    const int64_t starts[] = {0, 1, 255, 256, 1023, 1025};
    const int64_t rows[] = {5, 6, 12, 25, 40};
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 5; j++) {
            struct shape shape = {6, 2, 32, starts[i], rows[j], 1100, 40, 0, {0}};
            check(FOUR, &shape);
            check(i % 2 == 0 ? HOLES : CONSTANT, &shape);
        }
    }
}

static void capped_logits(void **state)
{
    (void)state;
    struct shape shape = {4, 2, 64, 13, 71, 90, 19, 0, {0}};
    for (int kind = 0; kind < N_PLANS; kind++) {
        struct inputs in = inputs_make((enum plan_kind)kind, &shape);
        in.plan.attention_cap = 3.0;
        check_inputs(&in, &shape, "capped");
        inputs_free(&in);
    }
}

/* Prefixes of an even and of an odd number of keys: a pair may lie in two places of the cache. */
static void branches_after_a_prefix(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_PLANS; kind++) {
        for (int64_t prefix = 26; prefix <= 27; prefix++) {
            struct shape shape = {4, 2, 24, 40, 70, 120, 19, 0, {0}};
            const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
            struct inputs in = inputs_make((enum plan_kind)kind, &shape);
            size_t n = (size_t)(shape.rows * shape.n_heads * shape.head_dim);
            float *out = malloc(n * sizeof *out);
            float *other = malloc(n * sizeof *other);
            float *lse = malloc(n * sizeof *lse);
            run_cpu(kernels, bf16, &in, &shape, 2, shape.rows, out, lse);
            shape.prefix = prefix;
            shape.offset[0] = 5;
            shape.offset[1] = 5 + shape.capacity;
            float *k = scatter(&shape, in.k);
            float *v = scatter(&shape, in.v);
            free(in.k);
            free(in.v);
            in.k = k;
            in.v = v;
            run_cpu(kernels, bf16, &in, &shape, 2, shape.rows, other, lse);
            assert_memory_equal(out, other, n * sizeof *out);
            free(out);
            free(other);
            free(lse);
            inputs_free(&in);
        }
    }
}

/* A value that is not finite must show at its own position and after, not before, also where it is
 * the second of a pair. */
static void nan_stays_at_its_position(void **state)
{
    (void)state;
    struct shape shape = {2, 1, 32, 0, 150, 150, 40, 0, {0}};
    struct inputs in = inputs_make(MASKED_FAR, &shape);
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    int64_t width = shape.n_heads * shape.head_dim;
    float *lse = malloc((size_t)(shape.rows * shape.n_heads) * sizeof *lse);
    float *clean = malloc((size_t)(shape.rows * width) * sizeof *clean);
    float *out = malloc((size_t)(shape.rows * width) * sizeof *out);
    run_cpu(kernels, bf16, &in, &shape, 2, shape.rows, clean, lse);
    for (int64_t bad = 0; bad < shape.rows; bad++) {
        float *value = in.v + bad * shape.head_dim + 3;
        float *key = in.k + bad * shape.head_dim + 5;
        float saved = *value;
        float saved_key = *key;
        *value = bad % 4 < 2 ? NAN : INFINITY;
        *key = bad % 3 == 0 ? NAN : saved_key;
        run_cpu(kernels, bf16, &in, &shape, 2, shape.rows, out, lse);
        *value = saved;
        *key = saved_key;
        assert_memory_equal(out, clean, (size_t)(bad * width) * sizeof *out);
        for (int64_t r = bad; r < shape.rows; r++) {
            assert_true(isfinite(out[r * width + 3]) == 0);
        }
    }
    free(lse);
    free(clean);
    free(out);
    inputs_free(&in);
}

/* More keys than are packed at a time: the second stripe goes on where the first ended. */
static void several_stripes(void **state)
{
    (void)state;
    struct shape shape = {2, 1, 32, 32700, 109, 32820, 500, 0, {0}};
    check(MASKED_FAR, &shape);
    check(ROPE, &shape);
}

/* Rows that a cache of its own type hands out are packed like rows in memory. */
static void keys_and_values_of_a_cache(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct shape shape = {4, 2, 24, 13, 71, 84, 19, 0, {0}};
    struct inputs in = inputs_make(FOUR, &shape);
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    const struct dpe_kv_shape kv_shape = {.layers = 2,
                                          .heads = shape.n_kv_heads,
                                          .capacity = shape.capacity,
                                          .width = shape.head_dim};
    size_t n = (size_t)(shape.rows * shape.n_heads * shape.head_dim);
    float *out = malloc(n * sizeof *out);
    float *want = malloc(n * sizeof *want);
    float *lse = malloc((size_t)(shape.rows * shape.n_heads) * sizeof *lse);
    run_cpu(kernels, bf16, &in, &shape, 2, shape.rows, want, lse);
    struct dpe_attention args = arguments(&in, &shape, 2);
    assert_int_equal(dpe_kv_create(&kv_shape, NULL, &args.kv, &err), DPE_OK);
    for (int64_t head = 0; head < shape.n_kv_heads; head++) {
        struct dpe_kv_rows rows = {DPE_KV_KEYS, 1, head, 0, shape.start + shape.rows};
        int64_t first = head * shape.capacity * shape.head_dim;
        dpe_kv_write(args.kv, &rows, in.k + first, shape.head_dim);
        rows.part = DPE_KV_VALUES;
        dpe_kv_write(args.kv, &rows, in.v + first, shape.head_dim);
    }
    args.k = args.v = NULL;
    args.out = out;
    args.workspace = dpe_alloc(dpe_cpu_attention_workspace(kernels, bf16, &in.config, &in.plan,
                                                           shape.capacity, shape.rows, 2),
                               1);
    dpe_cpu_attention(kernels, bf16, &args, 1);
    assert_memory_equal(out, want, n * sizeof *out);
    dpe_kv_destroy(args.kv);
    free(args.workspace);
    free(out);
    free(want);
    free(lse);
    inputs_free(&in);
}

/* Calls of few rows have the bits of the device cpu. */
static void few_rows_stay_in_float(void **state)
{
    (void)state;
    struct shape shape = {4, 2, 64, 100, 4, 120, 19, 0, {0}};
    struct inputs in = inputs_make(MASKED_FAR, &shape);
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    float out[2][4 * 4 * 64];
    float lse[16];
    run_cpu(kernels, bf16, &in, &shape, 2, 4, out[0], lse);
    run_cpu(kernels, NULL, &in, &shape, 2, 4, out[1], lse);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    inputs_free(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_and_head_dimension),
        cmocka_unit_test(windows_at_the_edges_of_blocks),
        cmocka_unit_test(query_offsets_and_rows),
        cmocka_unit_test(capped_logits),
        cmocka_unit_test(branches_after_a_prefix),
        cmocka_unit_test(nan_stays_at_its_position),
        cmocka_unit_test(several_stripes),
        cmocka_unit_test(keys_and_values_of_a_cache),
        cmocka_unit_test(few_rows_stay_in_float),
    };
    bf16 = dpe_cpu_bf16_choose();
    if (bf16 == NULL) {
        fprintf(stderr, "this machine lacks AVX512-BF16, or BF16 of ARM\n");
        return 125;
    }
    int failed = cmocka_run_group_tests_name("dpe_cpu_bf16_choose", tests, NULL, NULL);
    setenv("DPE_CPU", dpe_cpu_kernels_choose()->name, 1); /* without AMX */
    const struct dpe_cpu_bf16 *widest = bf16;
    bf16 = dpe_cpu_bf16_choose();
    if (bf16 != widest) {
        failed += cmocka_run_group_tests_name("DPE_CPU", tests, NULL, NULL);
    }
    return failed;
}

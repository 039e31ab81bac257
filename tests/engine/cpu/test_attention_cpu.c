/* The attention of the CPU backend against the reference: every kind of band, masks, shapes that
 * are not multiples of any block size, all instruction sets. Memory before and after what may be
 * read or written is poisoned with NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/cpu/kernels/cpu_kernels.h"
#include "tests/engine/cpu/attention_run.h"
#include "tests/engine/cpu/kernel_sets.h"
#include "tests/lib/few.h"
#include "tests/lib/near.h"

static const struct dpe_cpu_kernels *const *all_kernels(int *n)
{
    static const struct dpe_cpu_kernels *found[MOST_KERNEL_SETS];
    *n = kernel_sets(found);
    return found;
}

/* The plain fp32 computation of one row and head: what the error of a fast one is measured by. */
static void plain_row(const struct inputs *in, const struct shape *shape, int64_t row, int64_t head,
                      float *logits, float *out, float *lse)
{
    const struct dpe_plan *plan = &in->plan;
    int64_t d = shape->head_dim;
    int64_t n_pairs = d / 2;
    int64_t m = shape->start + row;
    int64_t kv = head / (shape->n_heads / shape->n_kv_heads);
    const float *q = in->q + (row * shape->n_heads + head) * d;
    const uint8_t *mask = plan->mask == NULL ? NULL : plan->mask + (plan->n_heads + head) * n_pairs;
    float scale = (float)dpe_plan_query_scale(plan, 1, m);
    float largest = -INFINITY;
    for (int64_t n = 0; n <= m; n++) {
        int b = dpe_plan_band(plan, m, n);
        const float *k = in->k + (kv * shape->capacity + n) * d;
        float sum = 0.0F;
        for (int64_t j = 0; b >= 0 && j < n_pairs; j++) {
            int use = plan->bands[b].per_head && mask != NULL && mask[j] == 0 ? 0 : b;
            int qt = in->rotation.q_table[use];
            int kt = in->rotation.k_table[use];
            float qc = in->rotation.cos[qt][m * n_pairs + j];
            float qs = in->rotation.sin[qt][m * n_pairs + j];
            float kc = in->rotation.cos[kt][n * n_pairs + j];
            float ks = in->rotation.sin[kt][n * n_pairs + j];
            sum += (q[j] * qc - q[j + n_pairs] * qs) * (k[j] * kc - k[j + n_pairs] * ks);
            sum += (q[j] * qs + q[j + n_pairs] * qc) * (k[j] * ks + k[j + n_pairs] * kc);
        }
        logits[n] = b >= 0 ? sum * scale : -INFINITY;
        largest = logits[n] > largest ? logits[n] : largest;
    }
    float total = 0.0F;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t n = 0; n <= m && largest > -INFINITY; n++) {
        float p = expf(logits[n] - largest);
        total += p;
        for (int64_t i = 0; i < d; i++) {
            out[i] += p * in->v[(kv * shape->capacity + n) * d + i];
        }
    }
    for (int64_t i = 0; i < d && total > 0.0F; i++) {
        out[i] /= total;
    }
    *lse = total > 0.0F ? largest + logf(total) : -INFINITY;
}

struct truth {
    size_t n, n_lse;
    double *out, *lse;
    float *plain, *plain_lse;
};

static struct truth truth_make(const struct inputs *in, const struct shape *shape)
{
    struct truth truth = {.n_lse = (size_t)(shape->rows * shape->n_heads)};
    truth.n = truth.n_lse * (size_t)shape->head_dim;
    truth.out = malloc(truth.n * sizeof *truth.out);
    truth.lse = malloc(truth.n_lse * sizeof *truth.lse);
    truth.plain = malloc(truth.n * sizeof *truth.plain);
    truth.plain_lse = malloc(truth.n_lse * sizeof *truth.plain_lse);
    struct dpe_attention args = arguments(in, shape, 2);
    args.out = malloc(truth.n * sizeof *args.out);
    args.lse = malloc(truth.n_lse * sizeof *args.lse);
    args.workspace = dpe_alloc(dpe_ops_reference()->attention_workspace(
                                   &in->config, &in->plan, shape->capacity, shape->rows, 2),
                               1);
    dpe_ops_reference()->attention(NULL, &args, 1);
    for (size_t i = 0; i < truth.n; i++) {
        truth.out[i] = (double)args.out[i];
    }
    for (size_t i = 0; i < truth.n_lse; i++) {
        truth.lse[i] = (double)args.lse[i];
    }
    float *logits = malloc((size_t)(shape->start + shape->rows) * sizeof *logits);
    for (int64_t i = 0; i < shape->rows * shape->n_heads; i++) {
        plain_row(in, shape, i / shape->n_heads, i % shape->n_heads, logits,
                  truth.plain + i * shape->head_dim, truth.plain_lse + i);
    }
    free(logits);
    free(args.out);
    free(args.lse);
    free(args.workspace);
    return truth;
}

static void truth_free(struct truth *truth)
{
    free(truth->out);
    free(truth->lse);
    free(truth->plain);
    free(truth->plain_lse);
}

/* Rows without a visible key have −∞ in all three; near.h wants numbers. */
static void compare_lse(const char *what, const struct truth *truth, const float *lse)
{
    double *want = malloc(truth->n_lse * sizeof *want);
    float *plain = malloc(truth->n_lse * sizeof *plain);
    float *got = malloc(truth->n_lse * sizeof *got);
    for (size_t i = 0; i < truth->n_lse; i++) {
        bool none = truth->lse[i] < -1e30;
        assert_true(!none || (lse[i] < -1e30F && truth->plain_lse[i] < -1e30F));
        want[i] = none ? 0.0 : truth->lse[i];
        plain[i] = none ? 0.0F : truth->plain_lse[i];
        got[i] = none ? 0.0F : lse[i];
    }
    assert_int_equal(near_oracle(what, got, plain, want, truth->n_lse), 0);
    free(want);
    free(plain);
    free(got);
}

/* One case on all instruction sets: right, the same bits with 1, 2 and 3 threads, and right when
 * cut into calls of few rows (packed) and of one (decoded). */
static void check(enum plan_kind kind, const struct shape *shape)
{
    struct inputs in = inputs_make(kind, shape);
    struct truth truth = truth_make(&in, shape);
    float *out = malloc(truth.n * sizeof *out);
    float *other = malloc(truth.n * sizeof *other);
    float *lse = malloc(truth.n_lse * sizeof *lse);
    int n_kernels = 0;
    const struct dpe_cpu_kernels *const *kernels = all_kernels(&n_kernels);
    for (int i = 0; i < n_kernels; i++) {
        const int64_t steps[] = {shape->rows, 37, 1};
        for (int s = 0; s < 3; s++) {
            char what[160];
            snprintf(what, sizeof what,
                     "plan %d, %s, heads %d/%d x %d, start %d, rows %d by %d, window %d", (int)kind,
                     kernels[i]->name, (int)shape->n_heads, (int)shape->n_kv_heads,
                     (int)shape->head_dim, (int)shape->start, (int)shape->rows, (int)steps[s],
                     (int)shape->window);
            run_cpu(kernels[i], NULL, &in, shape, 1, steps[s], out, lse);
            assert_int_equal(near_oracle(what, out, truth.plain, truth.out, truth.n), 0);
            compare_lse(what, &truth, lse);
            for (int threads = s == 0 ? 2 : 3; threads <= 3; threads++) {
                run_cpu(kernels[i], NULL, &in, shape, threads, steps[s], other, lse);
                assert_memory_equal(out, other, truth.n * sizeof *out);
            }
        }
    }
    free(out);
    free(other);
    free(lse);
    truth_free(&truth);
    inputs_free(&in);
}

/* Tokens of both branches in one call, up to sixteen of which meet the keys of the prefix together,
 * have the bits that each has alone, with any number of threads. */
static void check_together(const char *what, const struct inputs *in, const struct shape *shape)
{
    size_t n = (size_t)(shape->rows * shape->n_heads * shape->head_dim);
    size_t n_lse = (size_t)(shape->rows * shape->n_heads);
    float *out[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
    float *lse[2] = {malloc(n_lse * sizeof(float)), malloc(n_lse * sizeof(float))};
    int n_kernels = 0;
    const struct dpe_cpu_kernels *const *kernels = all_kernels(&n_kernels);
    for (int j = 0; j < n_kernels; j++) {
        run_cpu(kernels[j], NULL, in, shape, 1, 1, out[0], lse[0]);
        for (int threads = 1; threads <= 2; threads++) {
            run_cpu(kernels[j], NULL, in, shape, threads, 0, out[1], lse[1]);
            const bool same = memcmp(out[0], out[1], n * sizeof(float)) == 0 &&
                              memcmp(lse[0], lse[1], n_lse * sizeof(float)) == 0;
            if (!same) {
                printf("%s on %s: rows together have other bits than alone\n", what,
                       kernels[j]->name);
            }
            assert_true(same);
        }
    }
    for (int i = 0; i < 2; i++) {
        free(out[i]);
        free(lse[i]);
    }
}

/* The same keys after a prefix in two branches: both backends, packed, in few rows, and as tokens
 * of both branches. */
static void check_branches(enum plan_kind kind, struct shape shape)
{
    const struct dpe_ops *reference = dpe_ops_reference();
    struct inputs in = inputs_make(kind, &shape);
    struct truth truth = truth_make(&in, &shape);
    float *out = malloc(truth.n * sizeof *out);
    float *lse = malloc(truth.n_lse * sizeof *lse);
    shape.prefix = shape.start * 2 / 3;
    shape.offset[0] = 5;
    shape.offset[1] = 5 + shape.capacity;
    float *k = scatter(&shape, in.k);
    float *v = scatter(&shape, in.v);
    free(in.k);
    free(in.v);
    in.k = k;
    in.v = v;
    const int64_t steps[] = {shape.rows, 3, 0};
    int n_kernels = 0;
    const struct dpe_cpu_kernels *const *kernels = all_kernels(&n_kernels);
    for (int i = 0; i < 3; i++) {
        char what[96];
        snprintf(what, sizeof what, "plan %d in branches, prefix %d, rows by %d", (int)kind,
                 (int)shape.prefix, (int)steps[i]);
        for (int j = 0; j < n_kernels; j++) {
            run_cpu(kernels[j], NULL, &in, &shape, 2, steps[i], out, lse);
            assert_int_equal(near_oracle(what, out, truth.plain, truth.out, truth.n), 0);
            compare_lse(what, &truth, lse);
        }
        int64_t positions[MOST_ROWS];
        int64_t offsets[MOST_ROWS];
        struct dpe_attention args = arguments(&in, &shape, 2);
        place_rows(&args, &shape, 0, steps[i] == 0, positions, offsets);
        args.out = out;
        args.workspace = dpe_alloc(
            reference->attention_workspace(&in.config, &in.plan, shape.capacity, shape.rows, 2), 1);
        reference->attention(NULL, &args, 1);
        free(args.workspace);
        for (size_t x = 0; x < truth.n; x++) {
            assert_true((double)out[x] == truth.out[x]);
        }
    }
    char what[96];
    snprintf(what, sizeof what, "plan %d, head_dim %d", (int)kind, (int)shape.head_dim);
    check_together(what, &in, &shape);
    free(out);
    free(lse);
    truth_free(&truth);
    inputs_free(&in);
}

static void branches_after_a_prefix(void **state)
{
    (void)state;
    const int64_t dims[] = {64, 80, 128, 20, 256};
    for (int kind = 0; kind < N_PLANS; kind += few(3)) {
        int64_t d = dims[kind % 5];
        check_branches((enum plan_kind)kind, (struct shape){6, 2, d, 1500, 35, 1540, 300, 0, {0}});
    }
    for (int kind = 0; kind < N_PLANS; kind += few(3)) {
        check_branches((enum plan_kind)kind, (struct shape){4, 2, 64, 13, 41, 60, 19, 0, {0}});
        check_branches((enum plan_kind)kind, (struct shape){4, 2, 24, 900, 70, 990, 200, 0, {0}});
        check_branches((enum plan_kind)kind, (struct shape){3, 1, 32, 0, 70, 70, 9, 0, {0}});
        check_branches((enum plan_kind)kind, (struct shape){70, 1, 8, 90, 16, 110, 20, 0, {0}});
    }
}

enum { CALLS = 8 }; /* one for each plan */

/* Calls as a step of several sessions has them, in a workspace that is as large as the largest
 * needs: each has the bits that it has alone. */
static void calls_together(void **state)
{
    (void)state;
    static const int64_t rows[CALLS] = {3, 16, 7, 1, 20, 2, 5, 1};
    static const int64_t starts[CALLS] = {900, 40, 0, 1500, 300, 2000, 9, 1030};
    struct inputs in[CALLS];
    struct shape shapes[CALLS];
    struct dpe_attention args[CALLS];
    static int64_t positions[CALLS][MOST_ROWS], offsets[CALLS][MOST_ROWS];
    static float alone[CALLS][20 * 120], together[CALLS][20 * 120];
    static float lse[CALLS][20 * 6], lse_together[CALLS][20 * 6];
    int n_kernels = 0;
    const struct dpe_cpu_kernels *const *kernels = all_kernels(&n_kernels);
    for (int c = 0; c < CALLS; c++) {
        shapes[c] =
            (struct shape){6, 2, 20, starts[c], rows[c], starts[c] + rows[c] + 3, 90, 0, {0}};
        in[c] = inputs_make((enum plan_kind)(c % N_PLANS), &shapes[c]);
    }
    for (int i = 0; i < 2 * n_kernels; i++) {
        const struct dpe_cpu_kernels *k = kernels[i / 2];
        const int threads = i % 2 == 0 ? 1 : 3;
        uint64_t bytes = 0;
        for (int c = 0; c < CALLS; c++) {
            run_cpu(k, NULL, &in[c], &shapes[c], threads, 0, alone[c], lse[c]);
            const uint64_t own = dpe_cpu_attention_workspace(
                k, NULL, &in[c].config, &in[c].plan, shapes[c].capacity, shapes[c].rows, threads);
            bytes = own > bytes ? own : bytes;
            args[c] = arguments(&in[c], &shapes[c], threads);
            place_rows(&args[c], &shapes[c], 0, true, positions[c], offsets[c]);
            args[c].out = together[c];
            args[c].lse = lse_together[c];
        }
        float *workspace = dpe_alloc(bytes, 1);
        near_guard_fill(workspace, bytes / sizeof *workspace);
        for (int c = 0; c < CALLS; c++) {
            args[c].workspace = workspace;
        }
        dpe_cpu_attention(k, NULL, args, CALLS);
        free(workspace);
        assert_memory_equal(together, alone, sizeof alone);
        assert_memory_equal(lse_together, lse, sizeof lse);
    }
    for (int c = 0; c < CALLS; c++) {
        inputs_free(&in[c]);
    }
}

static void every_plan_and_head_dimension(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 8, 48, 64, 96, 128, 256};
    for (int kind = 0; kind < N_PLANS; kind++) {
        for (size_t i = (size_t)kind % (size_t)few(3); i < sizeof dims / sizeof dims[0];
             i += (size_t)few(3)) {
            struct shape shape = {4, 2, dims[i], 13, 71, 90, 19, 0, {0}};
            check((enum plan_kind)kind, &shape);
        }
    }
}

static void windows_at_the_edges_of_blocks(void **state)
{
    (void)state;
    const int64_t windows[] = {1, 12, 31, 32, 33, 95, 96, 97, 255, 256, 257};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i += (size_t)few(3)) {
        struct shape shape = {2, 1, 16, 0, 290, 290, windows[i], 0, {0}};
        check(MASKED_FAR, &shape);
        check(CHUNKS, &shape);
        check(SINKS, &shape);
    }
}

static void query_offsets_and_rows(void **state)
{
    (void)state;
    const int64_t starts[] = {0, 1, 255, 256, 1023, 1025};
    const int64_t rows[] = {1, 2, 4, 5, 12, 25};
    for (int i = 0; i < 6; i++) {
        for (size_t j = (size_t)i % (size_t)few(3); j < 6; j += (size_t)few(3)) {
            struct shape shape = {6, 2, 32, starts[i], rows[j], 1100, 40, 0, {0}};
            check(FOUR, &shape);
            check(i % 2 == 0 ? HOLES : CONSTANT, &shape);
        }
    }
}

/* Enough keys that several threads share the splits of a decoded row. */
static void decoding_long_contexts(void **state)
{
    (void)state;
    const enum plan_kind kinds[] = {MASKED_FAR, FOUR, SINKS};
    for (int i = 0; i < 3; i++) {
        struct shape shape = {8, 2, 64, 2100, 4, 2110, 700, 0, {0}};
        check(kinds[i], &shape);
    }
}

static void groups_of_query_heads(void **state)
{
    (void)state;
    const int64_t ratios[] = {1, 2, 3, 4, 5, 7};
    for (int i = 0; i < 6; i++) {
        for (int64_t kv = 1; kv <= 3; kv++) {
            struct shape shape = {kv * ratios[i], kv, 24, 20, 60, 80, 17, 0, {0}};
            check(MASKED_FAR, &shape);
        }
    }
}

static void random_shapes(void **state)
{
    (void)state;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 20260, 1);
    for (size_t i = 0; i < 30; i += (size_t)few(3)) {
        int64_t kv = 1 + dpe_rng_below(&rng, 3);
        struct shape shape = {
            .n_kv_heads = kv,
            .n_heads = kv * (1 + dpe_rng_below(&rng, 3)),
            .head_dim = 2 * (1 + dpe_rng_below(&rng, 40)),
            .start = dpe_rng_below(&rng, 200),
            .rows = 1 + dpe_rng_below(&rng, 200),
            .window = 1 + dpe_rng_below(&rng, 120),
        };
        shape.capacity = shape.start + shape.rows + dpe_rng_below(&rng, 40);
        check((enum plan_kind)dpe_rng_below(&rng, N_PLANS), &shape);
    }
}

/* A value that is not finite must show at its own position and after, not before: the session's
 * error names the first. */
static void nan_stays_at_its_position(void **state)
{
    (void)state;
    struct shape shape = {2, 1, 32, 0, 150, 150, 40, 0, {0}};
    struct inputs in = inputs_make(MASKED_FAR, &shape);
    int n_kernels = 0;
    const struct dpe_cpu_kernels *const *kernels = all_kernels(&n_kernels);
    int64_t width = shape.n_heads * shape.head_dim;
    float *lse = malloc((size_t)(shape.rows * shape.n_heads) * sizeof *lse);
    float *clean = malloc((size_t)(shape.rows * width) * sizeof *clean);
    float *out = malloc((size_t)(shape.rows * width) * sizeof *out);
    for (int i = 0; i < n_kernels; i++) {
        const int64_t bad[] = {0, 5, 31, 32, 100, 149};
        run_cpu(kernels[i], NULL, &in, &shape, 2, shape.rows, clean, lse);
        for (int b = 0; b < 6; b++) {
            float *value = in.v + bad[b] * shape.head_dim + 3;
            float *key = in.k + bad[b] * shape.head_dim + 5;
            float saved = *value;
            float saved_key = *key;
            *value = b % 2 == 0 ? NAN : INFINITY;
            *key = b % 2 == 0 ? saved_key : NAN;
            run_cpu(kernels[i], NULL, &in, &shape, 2, shape.rows, out, lse);
            *value = saved;
            *key = saved_key;
            assert_memory_equal(out, clean, (size_t)(bad[b] * width) * sizeof *out);
            for (int64_t r = bad[b]; r < shape.rows; r++) {
                assert_true(isfinite(out[r * width + 3]) == 0);
            }
        }
    }
    free(lse);
    free(clean);
    free(out);
    inputs_free(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_and_head_dimension),
        cmocka_unit_test(windows_at_the_edges_of_blocks),
        cmocka_unit_test(query_offsets_and_rows),
        cmocka_unit_test(decoding_long_contexts),
        cmocka_unit_test(groups_of_query_heads),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(branches_after_a_prefix),
        cmocka_unit_test(calls_together),
        cmocka_unit_test(nan_stays_at_its_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

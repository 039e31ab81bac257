/* The attention of the CPU backend against the reference: every kind of band, masks, shapes that
 * are multiples of nothing, all instruction sets. Memory around and behind what may be read or
 * written is poisoned with NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "near.h"
#include "ops_cpu_kernels.h"

/* Which plan a case runs; each is one of the shapes that methods.md lists. */
enum plan_kind {
    ROPE,
    MASKED_FAR, /* dpe: half of the pairs, another half for every head */
    ALL_FAR,    /* self-extend */
    CONSTANT,   /* rerope: the far key position is constant, log-n query factor */
    CHUNKS,     /* dca: three bands by chunk, one key map */
    SINKS,      /* first keys and a window, the rest masked */
    HOLES,      /* a band that begins behind the diagonal: first rows see nothing */
    FOUR,       /* four bands of three kinds, two of them per head */
    N_PLANS,
};

struct shape {
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t start, rows, capacity;
    int64_t window;            /* or chunk */
    int64_t prefix, offset[2]; /* the keys behind the prefix lie there, twice; 0: as they are */
};

struct inputs {
    struct dpe_plan plan;
    struct dpe_rotation rotation;
    struct dpe_config config;
    float *q, *k, *v;
};

static const struct dpe_cpu_kernels *const *all_kernels(int *n)
{
    static const struct dpe_cpu_kernels *found[3];
    const char *const names[] = {"portable", "avx2", "avx512"};
    *n = 0;
    for (int i = 0; i < 3; i++) {
        setenv("DPE_CPU", names[i], 1);
        const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
        if (strcmp(kernels->name, names[i]) == 0) {
            found[(*n)++] = kernels;
        } else {
            fprintf(stderr, "this machine lacks %s\n", names[i]);
        }
    }
    unsetenv("DPE_CPU");
    return found;
}

static void set_band(struct dpe_plan *plan, enum dpe_band_kind kind, int64_t lo, int64_t hi)
{
    struct dpe_band *band = &plan->bands[plan->n_bands++];
    band->kind = kind;
    band->lo = lo;
    band->hi = hi;
}

/* pos = floor(x / (2 + j mod 3)), queries shifted so that both bands meet at w. */
static void scale_band(struct dpe_plan *plan, int b, int64_t w)
{
    struct dpe_band *band = &plan->bands[b];
    band->q.floored = band->k.floored = true;
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        double s = (double)(2 + j % 3);
        band->q.scale[j] = band->k.scale[j] = s;
        band->q.offset[j] = (double)w - floor((double)w / s);
    }
}

static void mask_pairs(struct dpe_plan *plan)
{
    int64_t n = plan->n_layers * plan->n_heads * plan->n_pairs;
    plan->mask = malloc((size_t)n);
    assert_non_null(plan->mask);
    for (int64_t i = 0; i < n; i++) {
        plan->mask[i] = (uint8_t)((uint64_t)i * 0x9e3779b97f4a7c15U >> 63);
    }
}

static void chunk_bands(struct dpe_plan *plan, int64_t p)
{
    plan->chunk = p;
    set_band(plan, DPE_BAND_CHUNK, 0, 1);
    set_band(plan, DPE_BAND_CHUNK, 1, 2);
    set_band(plan, DPE_BAND_CHUNK, 2, INT64_MAX);
    for (int b = 0; b < 3; b++) {
        struct dpe_band *band = &plan->bands[b];
        band->q.period = band->k.period = (double)p;
        for (int64_t j = 0; j < plan->n_pairs; j++) {
            band->q.offset[j] = b == 0 ? 0.0 : (double)p;
            if (b == 2) {
                band->q.scale[j] = INFINITY;
                band->q.offset[j] = (double)(2 * p - 1);
            }
        }
        if (b == 1) {
            band->q.cap = (double)(p + p / 2);
        }
    }
}

static void four_bands(struct dpe_plan *plan, int64_t w)
{
    plan->chunk = w;
    set_band(plan, DPE_BAND_DISTANCE, 0, w);
    set_band(plan, DPE_BAND_KEY, 3, 9);
    set_band(plan, DPE_BAND_CHUNK, 2, 4);
    set_band(plan, DPE_BAND_DISTANCE, 2 * w, INT64_MAX);
    scale_band(plan, 2, w);
    scale_band(plan, 3, 2 * w);
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        plan->bands[1].k.offset[j] = (double)(j % 5);
    }
    plan->bands[2].per_head = plan->bands[3].per_head = true;
    mask_pairs(plan);
}

static void make_plan(enum plan_kind kind, const struct shape *shape, struct dpe_plan *plan)
{
    struct dpe_error err = {0};
    int64_t n_pairs = shape->head_dim / 2;
    int64_t w = shape->window;
    assert_int_equal(dpe_plan_init(plan, n_pairs, 2, shape->n_heads, &err), DPE_OK);
    for (int64_t j = 0; j < n_pairs; j++) {
        plan->inv_freq[j] = pow(1000.0, -(double)j / (double)n_pairs);
    }
    plan->logit_factor = 1.25;
    switch (kind) {
    case ROPE:
        set_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
        break;
    case MASKED_FAR:
    case ALL_FAR:
        set_band(plan, DPE_BAND_DISTANCE, 0, w);
        set_band(plan, DPE_BAND_DISTANCE, w, INT64_MAX);
        scale_band(plan, 1, w);
        plan->bands[1].per_head = kind == MASKED_FAR;
        if (kind == MASKED_FAR) {
            mask_pairs(plan);
        }
        break;
    case CONSTANT:
        set_band(plan, DPE_BAND_DISTANCE, 0, w);
        set_band(plan, DPE_BAND_DISTANCE, w, INT64_MAX);
        plan->log_n_length = 40.0;
        for (int64_t j = 0; j < n_pairs; j++) {
            plan->bands[1].q.scale[j] = plan->bands[1].k.scale[j] = INFINITY;
            plan->bands[1].q.offset[j] = (double)w;
        }
        break;
    case CHUNKS:
        chunk_bands(plan, w);
        break;
    case SINKS:
        set_band(plan, DPE_BAND_KEY, 0, 4);
        set_band(plan, DPE_BAND_DISTANCE, 0, w);
        break;
    case HOLES:
        set_band(plan, DPE_BAND_DISTANCE, w, 3 * w);
        break;
    case FOUR:
        four_bands(plan, w);
        break;
    case N_PLANS:
        break;
    }
    assert_int_equal(dpe_plan_check(plan, &err), DPE_OK);
}

/* n random floats of about `size`, then NaN up to `all`. */
static float *floats(int64_t n, int64_t all, double size, uint64_t seed)
{
    float *x = dpe_alloc((size_t)all, sizeof *x);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, 7);
    assert_non_null(x);
    for (int64_t i = 0; i < all; i++) {
        x[i] = i < n ? (float)(size * (2.0 * dpe_rng_unit(&rng) - 1.0)) : NAN;
    }
    return x;
}

/* Rows of a cache that holds both branches. */
static int64_t cache_rows(const struct shape *shape)
{
    return shape->capacity + shape->offset[1];
}

/* The same keys in a cache of two branches, with NaN around them. */
static float *scatter(const struct shape *shape, const float *from)
{
    int64_t d = shape->head_dim;
    int64_t rows = cache_rows(shape);
    float *to = floats(0, shape->n_kv_heads * rows * d, 1.0, 1);
    for (int64_t h = 0; h < shape->n_kv_heads; h++) {
        for (int64_t n = 0; n < shape->start + shape->rows; n++) {
            for (int b = 0; b < 2; b++) {
                int64_t row = n < shape->prefix ? n : n + shape->offset[b];
                memcpy(to + (h * rows + row) * d, from + (h * shape->capacity + n) * d,
                       (size_t)d * sizeof *to);
            }
        }
    }
    return to;
}

static struct inputs inputs_make(enum plan_kind kind, const struct shape *shape)
{
    struct dpe_error err = {0};
    struct inputs in = {.config = {.n_heads = shape->n_heads,
                                   .n_kv_heads = shape->n_kv_heads,
                                   .head_dim = shape->head_dim}};
    int64_t d = shape->head_dim;
    int64_t keys = shape->start + shape->rows;
    make_plan(kind, shape, &in.plan);
    assert_int_equal(dpe_rotation_make(&in.plan, shape->capacity, 1, &in.rotation, &err), DPE_OK);
    in.q = floats(shape->rows * shape->n_heads * d, shape->rows * shape->n_heads * d, 2.0, 1);
    in.k = floats(0, shape->n_kv_heads * shape->capacity * d, 2.0, 2);
    in.v = floats(0, shape->n_kv_heads * shape->capacity * d, 1.0, 3);
    for (int64_t h = 0; h < shape->n_kv_heads; h++) {
        float *k = floats(keys * d, keys * d, 2.0, 10 + (uint64_t)h);
        float *v = floats(keys * d, keys * d, 1.0, 30 + (uint64_t)h);
        memcpy(in.k + h * shape->capacity * d, k, (size_t)(keys * d) * sizeof *k);
        memcpy(in.v + h * shape->capacity * d, v, (size_t)(keys * d) * sizeof *v);
        free(k);
        free(v);
    }
    return in;
}

static void inputs_free(struct inputs *in)
{
    dpe_plan_free(&in->plan);
    dpe_rotation_free(&in->rotation);
    free(in->q);
    free(in->k);
    free(in->v);
}

static struct dpe_attention arguments(const struct inputs *in, const struct shape *shape,
                                      int n_threads)
{
    struct dpe_attention args = {
        .plan = &in->plan,
        .rotation = &in->rotation,
        .layer = 1,
        .start = shape->start,
        .rows = shape->rows,
        .n_heads = shape->n_heads,
        .n_kv_heads = shape->n_kv_heads,
        .head_dim = shape->head_dim,
        .capacity = shape->capacity,
        .q = in->q,
        .k = in->k,
        .v = in->v,
        .n_threads = n_threads,
    };
    return args;
}

enum { MOST_ROWS = 512 };

/* The arguments of the rows from `at` on: of the first branch, or of both in turn. */
static void place_rows(struct dpe_attention *args, const struct shape *shape, int64_t at,
                       bool in_turn, int64_t *positions, int64_t *offsets)
{
    args->start = shape->start + at;
    args->prefix = shape->prefix;
    args->offset = shape->offset[0];
    args->capacity = cache_rows(shape);
    assert_true(args->rows <= MOST_ROWS);
    for (int64_t r = 0; in_turn && r < args->rows; r++) {
        positions[r] = shape->start + at + r;
        offsets[r] = shape->offset[r % 2];
    }
    args->positions = in_turn ? positions : NULL;
    args->offsets = in_turn ? offsets : NULL;
}

/* Runs with a poisoned workspace of exactly the size asked for and sentinels around both outputs,
 * `step` rows a call; step 0: all rows as tokens of the two branches in turn. */
static void run_cpu(const struct dpe_cpu_kernels *kernels, const struct inputs *in,
                    const struct shape *shape, int n_threads, int64_t step, float *out, float *lse)
{
    int64_t width = shape->n_heads * shape->head_dim;
    size_t n = (size_t)(shape->rows * width);
    size_t n_lse = (size_t)(shape->rows * shape->n_heads);
    float *guarded = malloc((n + 2 * NEAR_GUARD) * sizeof *guarded);
    float *guarded_lse = malloc((n_lse + 2 * NEAR_GUARD) * sizeof *guarded_lse);
    near_guard_fill(guarded, n + 2 * NEAR_GUARD);
    near_guard_fill(guarded_lse, n_lse + 2 * NEAR_GUARD);
    int64_t positions[MOST_ROWS];
    int64_t offsets[MOST_ROWS];
    bool in_turn = step == 0;
    step = in_turn ? shape->rows : step;
    uint64_t bytes = dpe_cpu_attention_workspace(kernels, &in->config, &in->plan, shape->capacity,
                                                 step, n_threads);
    float *workspace = dpe_alloc(bytes, 1);
    near_guard_fill(workspace, bytes / sizeof *workspace);
    struct dpe_attention args = arguments(in, shape, n_threads);
    args.workspace = workspace;
    for (int64_t at = 0; at < shape->rows; at += step) {
        args.rows = shape->rows - at < step ? shape->rows - at : step;
        place_rows(&args, shape, at, in_turn, positions, offsets);
        args.q = in->q + at * width;
        args.out = guarded + NEAR_GUARD + at * width;
        args.lse = guarded_lse + NEAR_GUARD + at * shape->n_heads;
        dpe_cpu_attention(kernels, &args);
    }
    assert_int_equal(near_guard_broken(guarded, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(guarded + NEAR_GUARD + n, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(guarded_lse, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(guarded_lse + NEAR_GUARD + n_lse, NEAR_GUARD), 0);
    memcpy(out, guarded + NEAR_GUARD, n * sizeof *out);
    memcpy(lse, guarded_lse + NEAR_GUARD, n_lse * sizeof *lse);
    free(workspace);
    free(guarded);
    free(guarded_lse);
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
    float scale = (float)dpe_plan_query_scale(plan, m);
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
    dpe_ops_reference()->attention(NULL, &args);
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
            run_cpu(kernels[i], &in, shape, 1, steps[s], out, lse);
            assert_int_equal(near_oracle(what, out, truth.plain, truth.out, truth.n), 0);
            compare_lse(what, &truth, lse);
            for (int threads = s == 0 ? 2 : 3; threads <= 3; threads++) {
                run_cpu(kernels[i], &in, shape, threads, steps[s], other, lse);
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

/* The same keys behind a prefix in two branches: both backends, packed, in few rows, and as tokens
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
            run_cpu(kernels[j], &in, &shape, 2, steps[i], out, lse);
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
        reference->attention(NULL, &args);
        free(args.workspace);
        for (size_t x = 0; x < truth.n; x++) {
            assert_true((double)out[x] == truth.out[x]);
        }
    }
    free(out);
    free(lse);
    truth_free(&truth);
    inputs_free(&in);
}

static void branches_behind_a_prefix(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_PLANS; kind++) {
        check_branches((enum plan_kind)kind, (struct shape){4, 2, 64, 13, 41, 60, 19, 0, {0}});
        check_branches((enum plan_kind)kind, (struct shape){4, 2, 24, 900, 70, 990, 200, 0, {0}});
        check_branches((enum plan_kind)kind, (struct shape){3, 1, 32, 0, 70, 70, 9, 0, {0}});
    }
}

static void every_plan_and_head_dimension(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 8, 48, 64, 96, 128, 256};
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
    const int64_t windows[] = {1, 12, 31, 32, 33, 95, 96, 97, 255, 256, 257};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
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
        for (int j = 0; j < 6; j++) {
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
    for (int i = 0; i < 30; i++) {
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
        run_cpu(kernels[i], &in, &shape, 2, shape.rows, clean, lse);
        for (int b = 0; b < 6; b++) {
            float *value = in.v + bad[b] * shape.head_dim + 3;
            float *key = in.k + bad[b] * shape.head_dim + 5;
            float saved = *value;
            float saved_key = *key;
            *value = b % 2 == 0 ? NAN : INFINITY;
            *key = b % 2 == 0 ? saved_key : NAN;
            run_cpu(kernels[i], &in, &shape, 2, shape.rows, out, lse);
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
        cmocka_unit_test(branches_behind_a_prefix),
        cmocka_unit_test(nan_stays_at_its_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

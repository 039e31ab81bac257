/**
 * @file flash_case.h
 * Attention calls for the kernels of engine/cuda, prepared and judged on the host: rotated copies
 * as the backend makes them, the reference backend as the oracle, and a plain loop in the kernel's
 * precision (rounded copies, float logits, rounded weights) that gives the error to expect.
 * Whatever a kernel must not read or leave unwritten is NaN.
 *
 * Include after cmocka.h, near.h and plan_cases.h.
 */
#ifndef DPE_FLASH_CASE_H
#define DPE_FLASH_CASE_H

#include "engine/base/base.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"
#include "engine/plan/plan.h"

struct flash_shape {
    enum dpe_dtype dtype;
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t start, rows;
    uint64_t seed;
    double size; /* deviation of queries and keys; 0: 1.5 */
    double cap;  /* of logits; 0: none */
};

struct flash_case {
    char title[192];
    struct flash_shape shape;
    struct dpe_plan plan; /* owned */
    struct dpe_rotation rotation;
    struct dpe_rotated_copies q_copies, k_copies;
    struct dpe_walk walk;
    int64_t capacity;
    float *q, *k, *v; /* unrotated, values of the dtype */
    uint16_t *q_rotated[DPE_MAX_BANDS], *k_rotated[DPE_MAX_BANDS], *v_bits, *k_bits;
    double *want, *want_lse;
    float *plain, *plain_lse;
    uint16_t *out; /* FLASH_GUARD sentinels on both sides */
    float *got, *lse;
    struct dpe_flash call;
};

enum { FLASH_GUARD = 64, FLASH_POISON = 0x7fff };

/* ---------------------------------------------------------------------------- 16-bit arithmetic */

static uint16_t flash_bits(enum dpe_dtype dtype, float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == DPE_BF16) {
        return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
    }
    /* Scaling by a power of two and back rounds to the 10 bits of a half, or to 2^-24. */
    int exponent = 0;
    double size = fabs((double)x);
    frexp(size, &exponent);
    double unit = ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
    double rounded = nearbyint(size / unit) * unit;
    frexp(rounded, &exponent);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000U);
    if (rounded < 0x1p-14) {
        return (uint16_t)(sign | (uint16_t)(rounded * 0x1p24));
    }
    uint16_t fraction = (uint16_t)(ldexp(rounded, 11 - exponent) - 1024.0);
    return (uint16_t)(sign | (uint16_t)((exponent + 14) << 10) | fraction);
}

static float flash_half(uint16_t half)
{
    int exponent = half >> 10 & 31;
    int fraction = half & 1023;
    double size = exponent == 0    ? ldexp(fraction, -24)
                  : exponent == 31 ? (fraction == 0 ? (double)INFINITY : (double)NAN)
                                   : ldexp(1024 + fraction, exponent - 25);
    return (float)((half & 0x8000) != 0 ? -size : size);
}

static float flash_float(enum dpe_dtype dtype, uint16_t half)
{
    static float *halves; /* by all their bits: the plain loop needs millions */
    if (dtype == DPE_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        float x = 0.0F;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    if (halves == NULL) {
        halves = dpe_alloc(1 << 16, sizeof *halves);
        assert_non_null(halves);
        for (uint32_t i = 0; i < 1 << 16; i++) {
            halves[i] = flash_half((uint16_t)i);
        }
    }
    return halves[half];
}

static void *flash_memory(int64_t n, size_t size)
{
    unsigned char *memory = dpe_alloc((size_t)n, size);
    assert_non_null(memory);
    memset(memory, 0xff, (size_t)n * size); /* NaN in every dtype */
    return memory;
}

/* n values of the dtype, about normal with deviation `size`. */
static void flash_random(enum dpe_dtype dtype, float *x, int64_t n, double size,
                         struct dpe_rng *rng)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int k = 0; k < 4; k++) {
            sum += dpe_rng_unit(rng) - 0.5;
        }
        x[i] = flash_float(dtype, flash_bits(dtype, (float)(size * 1.7 * sum)));
    }
}

/* ----------------------------------------------------------------------------------- preparing */

/* One row through a copy's table, as the rotation kernel does it: float, rounded once. */
static void flash_rotate(const struct flash_case *c, const struct dpe_rotated_copies *copies,
                         int copy, int64_t head, int64_t x, const float *from, uint16_t *to)
{
    int64_t pairs = c->plan.n_pairs;
    const struct dpe_rotated *rotated = &copies->copies[copy];
    for (int64_t j = 0; j < pairs; j++) {
        int table = rotated->table;
        if (rotated->per_head && c->plan.mask[head * pairs + j] == 0) {
            table = copies->base_table;
        }
        int64_t at = (rotated->constant ? 0 : x) * pairs + j;
        float cosine = c->rotation.cos[table][at];
        float sine = c->rotation.sin[table][at];
        to[j] = flash_bits(c->shape.dtype, from[j] * cosine - from[j + pairs] * sine);
        to[j + pairs] = flash_bits(c->shape.dtype, from[j + pairs] * cosine + from[j] * sine);
    }
}

static void flash_inputs(struct flash_case *c)
{
    const struct flash_shape *s = &c->shape;
    int64_t d = s->head_dim;
    int64_t keys = s->start + s->rows;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, s->seed, 3);
    c->capacity = keys + 3;
    c->q = flash_memory(s->rows * s->n_heads * d, sizeof(float));
    c->k = flash_memory(s->n_kv_heads * c->capacity * d, sizeof(float));
    c->v = flash_memory(s->n_kv_heads * c->capacity * d, sizeof(float));
    double size = s->size > 0.0 ? s->size : 1.5;
    flash_random(s->dtype, c->q, s->rows * s->n_heads * d, size, &rng);
    for (int64_t h = 0; h < s->n_kv_heads; h++) {
        flash_random(s->dtype, c->k + h * c->capacity * d, keys * d, size, &rng);
        flash_random(s->dtype, c->v + h * c->capacity * d, keys * d, 1.0, &rng);
    }
    int64_t n = s->n_kv_heads * c->capacity * d;
    c->k_bits = flash_memory(n, sizeof(uint16_t));
    c->v_bits = flash_memory(n, sizeof(uint16_t));
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(c->k[i])) {
            c->k_bits[i] = flash_bits(s->dtype, c->k[i]);
            c->v_bits[i] = flash_bits(s->dtype, c->v[i]);
        }
    }
}

static void flash_copies(struct flash_case *c)
{
    const struct flash_shape *s = &c->shape;
    int64_t d = s->head_dim;
    for (int i = 0; i < c->q_copies.n; i++) {
        c->q_rotated[i] = flash_memory(s->n_heads * s->rows * d, sizeof(uint16_t));
        c->call.q[i] = c->q_rotated[i];
        for (int64_t h = 0; h < s->n_heads; h++) {
            for (int64_t r = 0; r < s->rows; r++) {
                flash_rotate(c, &c->q_copies, i, h, s->start + r, c->q + (r * s->n_heads + h) * d,
                             c->q_rotated[i] + (h * s->rows + r) * d);
            }
        }
    }
    c->call.q_head_stride = s->rows * d;
    for (int i = 0; i < c->k_copies.n; i++) {
        bool per_head = c->k_copies.copies[i].per_head;
        int64_t heads = per_head ? s->n_heads : s->n_kv_heads;
        c->k_rotated[i] = flash_memory(heads * c->capacity * d, sizeof(uint16_t));
        c->call.k[i] = c->k_copies.copies[i].plain ? c->k_bits : c->k_rotated[i];
        c->call.k_head_stride[i] = c->capacity * d;
        c->call.k_per_head[i] = per_head;
        for (int64_t h = 0; h < heads; h++) {
            int64_t kv = per_head ? h / (s->n_heads / s->n_kv_heads) : h;
            for (int64_t n = c->walk.k_first[i]; n < c->walk.k_end[i]; n++) {
                int64_t at = n * d + h * c->capacity * d;
                flash_rotate(c, &c->k_copies, i, h, n, c->k + (kv * c->capacity + n) * d,
                             c->k_rotated[i] + at);
            }
        }
    }
}

/* A capped logit; beside bfloat16 tanh has a relative error of 2^-11. */
static float flash_cap(const struct flash_shape *s, float logit)
{
    if (s->cap == 0.0) {
        return logit;
    }
    int exponent = 0;
    double x = tanh((double)logit / s->cap);
    (void)frexp(x, &exponent);
    const double unit = ldexp(1.0, exponent - 11);
    return (float)(s->cap * (s->dtype == DPE_BF16 ? nearbyint(x / unit) * unit : x));
}

/* Row r of head h by a plain loop in the kernel's precision. */
static void flash_plain_row(struct flash_case *c, int64_t r, int64_t h, float *logits)
{
    const struct flash_shape *s = &c->shape;
    int64_t d = s->head_dim;
    int64_t kv = h / (s->n_heads / s->n_kv_heads);
    int64_t m = s->start + r;
    float top = -INFINITY;
    float scale = (float)dpe_plan_query_scale(&c->plan, 0, m);
    for (int64_t n = 0; n <= m; n++) {
        int b = dpe_plan_band(&c->plan, m, n);
        logits[n] = -INFINITY;
        if (b >= 0) {
            int qc = c->q_copies.of_band[b];
            int kc = c->k_copies.of_band[b];
            const uint16_t *q = c->q_rotated[qc] + (h * s->rows + r) * d;
            const uint16_t *k =
                c->k_rotated[kc] + ((c->call.k_per_head[kc] ? h : kv) * c->capacity + n) * d;
            float dot = 0.0F;
            for (int64_t j = 0; j < d; j++) {
                dot += flash_float(s->dtype, q[j]) * flash_float(s->dtype, k[j]);
            }
            logits[n] = flash_cap(s, scale * dot);
        }
        top = fmaxf(top, logits[n]);
    }
    float sum = 0.0F;
    float *out = c->plain + (r * s->n_heads + h) * d;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t n = 0; n <= m && top > -INFINITY; n++) {
        float p = expf(logits[n] - top);
        float rounded = flash_float(s->dtype, flash_bits(s->dtype, p));
        sum += p;
        for (int64_t j = 0; j < d && rounded > 0.0F; j++) {
            out[j] += rounded * c->v[(kv * c->capacity + n) * d + j];
        }
    }
    for (int64_t j = 0; j < d && sum > 0.0F; j++) {
        out[j] = flash_float(s->dtype, flash_bits(s->dtype, out[j] / sum));
    }
    c->plain_lse[r * s->n_heads + h] = sum > 0.0F ? top + logf(sum) : -INFINITY;
}

static void flash_oracle(struct flash_case *c)
{
    const struct flash_shape *s = &c->shape;
    const struct dpe_ops *ops = dpe_ops_reference();
    const struct dpe_config config = {
        .n_heads = s->n_heads, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim};
    int64_t n = s->rows * s->n_heads;
    float *out = flash_memory(n * s->head_dim, sizeof(float));
    float *lse = flash_memory(n, sizeof(float));
    void *workspace =
        dpe_alloc((size_t)ops->attention_workspace(&config, &c->plan, c->capacity, s->rows, 1), 1);
    assert_non_null(workspace);
    const struct dpe_attention args = {
        .plan = &c->plan,
        .rotation = &c->rotation,
        .start = s->start,
        .rows = s->rows,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .capacity = c->capacity,
        .q = c->q,
        .k = c->k,
        .v = c->v,
        .out = out,
        .lse = lse,
        .workspace = workspace,
        .n_threads = 1,
    };
    ops->attention(NULL, &args, 1);
    for (int64_t i = 0; i < n * s->head_dim; i++) {
        c->want[i] = (double)out[i];
    }
    for (int64_t i = 0; i < n; i++) {
        c->want_lse[i] = (double)lse[i];
    }
    free(out);
    free(lse);
    free(workspace);
}

/** One layer of a model with these heads. */
static struct dpe_config flash_config(const struct flash_shape *s)
{
    return (struct dpe_config){
        .model_type = "llama",
        .n_layers = 1,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .max_position = 64,
        .rope = {.type = DPE_ROPE_DEFAULT, .theta = 10000.0},
    };
}

/** Heads, dtype and sizes at random; no seed. */
static inline struct flash_shape flash_draw_shape(struct dpe_rng *rng, int64_t head_dim,
                                                  int64_t latest_start, int64_t longest)
{
    static const int64_t heads[4][2] = {{2, 1}, {3, 3}, {3, 1}, {4, 2}};
    const int64_t *h = heads[dpe_rng_below(rng, 4)];
    return (struct flash_shape){
        .dtype = dpe_rng_below(rng, 2) == 0 ? DPE_BF16 : DPE_F16,
        .n_heads = h[0],
        .n_kv_heads = h[1],
        .head_dim = head_dim,
        .start = dpe_rng_below(rng, 2) == 0 ? 0 : 1 + dpe_rng_below(rng, (uint32_t)latest_start),
        .rows = 1 + dpe_rng_below(rng, (uint32_t)longest),
    };
}

/** The call walks c->walk as it is now. */
static void flash_set_walk(struct flash_case *c)
{
    c->call.blocks = c->walk.blocks;
    c->call.segments = c->walk.segments;
    c->call.n_blocks = c->walk.n_blocks;
}

/** Cut the walk into parts. They need memory that the caller gives. */
static inline void flash_split(struct flash_case *c, struct dpe_tile_shape tile, int32_t parts)
{
    struct dpe_error err = {0};
    assert_int_equal(dpe_walk_split(&c->walk, c->shape.rows, tile.keys, parts, &err), DPE_OK);
    flash_set_walk(c);
    c->call.parts = parts;
}

/** A case of plan_cases.h at a window. `tile` is the kernel's shape. */
static struct flash_case flash_case_make(const struct flash_shape *shape, int plan_case,
                                         int64_t window, struct dpe_tile_shape tile)
{
    struct flash_case c = {.shape = *shape};
    const struct dpe_config config = flash_config(shape);
    struct dpe_error err = {0};
    plan_case_make(plan_case, window, &config, &c.plan);
    c.plan.attention_cap = shape->cap;
    snprintf(c.title, sizeof c.title,
             "%s, window %d, head_dim %d, %s, heads %d/%d, rows %d + %d, cap %g",
             plan_cases[plan_case], (int)window, (int)shape->head_dim,
             shape->dtype == DPE_BF16 ? "bf16" : "f16", (int)shape->n_heads, (int)shape->n_kv_heads,
             (int)shape->start, (int)shape->rows, shape->cap);
    int64_t n = shape->rows * shape->n_heads;
    int64_t d = shape->head_dim;
    assert_int_equal(dpe_rotation_make(&c.plan, shape->start + shape->rows, 1, &c.rotation, &err),
                     DPE_OK);
    c.q_copies = dpe_rotated_find(&c.plan, &c.rotation, false);
    c.k_copies = dpe_rotated_find(&c.plan, &c.rotation, true);
    assert_int_equal(dpe_walk_make(&c.plan, &c.q_copies, &c.k_copies, tile, shape->start,
                                   shape->rows, &c.walk, &err),
                     DPE_OK);
    flash_inputs(&c);
    flash_copies(&c);
    c.want = flash_memory(n * d, sizeof(double));
    c.want_lse = flash_memory(n, sizeof(double));
    c.plain = flash_memory(n * d, sizeof(float));
    c.plain_lse = flash_memory(n, sizeof(float));
    float *logits = flash_memory(shape->start + shape->rows, sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        flash_plain_row(&c, i / shape->n_heads, i % shape->n_heads, logits);
    }
    free(logits);
    flash_oracle(&c);
    c.out = flash_memory(n * d + 2 * FLASH_GUARD, sizeof(uint16_t));
    c.got = flash_memory(n * d, sizeof(float));
    c.lse = flash_memory(n + 2 * FLASH_GUARD, sizeof(float));
    c.call.dtype = shape->dtype;
    c.call.n_heads = shape->n_heads;
    c.call.n_kv_heads = shape->n_kv_heads;
    c.call.head_dim = d;
    c.call.rows = shape->rows;
    c.call.v = c.v_bits;
    c.call.v_head_stride = c.capacity * d;
    c.call.out = c.out + FLASH_GUARD;
    c.call.lse = c.lse + FLASH_GUARD;
    flash_set_walk(&c);
    c.call.scale = (float)dpe_plan_query_scale(&c.plan, 0, 0);
    c.call.cap = (float)shape->cap;
    c.call.log_n = dpe_log_n_of(&c.plan);
    return c;
}

/** Output bits to `got`, and no byte around the outputs touched. */
static void flash_case_read(struct flash_case *c)
{
    int64_t n = c->shape.rows * c->shape.n_heads;
    int64_t values = n * c->shape.head_dim;
    for (int64_t i = 0; i < values; i++) {
        c->got[i] = flash_float(c->shape.dtype, c->out[FLASH_GUARD + i]);
    }
    for (int64_t i = 0; i < FLASH_GUARD; i++) {
        uint32_t bits[2] = {0, 0};
        memcpy(&bits[0], &c->lse[i], sizeof bits[0]);
        memcpy(&bits[1], &c->lse[FLASH_GUARD + n + i], sizeof bits[1]);
        assert_int_equal(c->out[i], 0xffff);
        assert_int_equal(c->out[FLASH_GUARD + values + i], 0xffff);
        assert_true(bits[0] == UINT32_MAX && bits[1] == UINT32_MAX);
    }
}

/** Whether the outputs are further off than they may be; `kernel` is its name in the message. */
static bool flash_case_wrong(struct flash_case *c, const char *kernel)
{
    char what[256];
    int64_t n = c->shape.rows * c->shape.n_heads;
    int64_t d = c->shape.head_dim;
    flash_case_read(c);
    snprintf(what, sizeof what, "%s: %s", kernel, c->title);
    /* Rows without a key are 0 and −∞ exactly; near_oracle takes equal infinities as equal. */
    return near_oracle(what, c->got, c->plain, c->want, (size_t)(n * d)) != 0 ||
           near_oracle(what, c->lse + FLASH_GUARD, c->plain_lse, c->want_lse, (size_t)n) != 0;
}

static inline void flash_case_check(struct flash_case *c, const char *kernel)
{
    assert_false(flash_case_wrong(c, kernel));
}

static void flash_case_free(struct flash_case *c)
{
    for (int i = 0; i < DPE_MAX_BANDS; i++) {
        free(c->q_rotated[i]);
        free(c->k_rotated[i]);
    }
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->k_bits);
    free(c->v_bits);
    free(c->want);
    free(c->want_lse);
    free(c->plain);
    free(c->plain_lse);
    free(c->out);
    free(c->got);
    free(c->lse);
    dpe_walk_free(&c->walk);
    dpe_rotation_free(&c->rotation);
    dpe_plan_free(&c->plan);
}

#endif

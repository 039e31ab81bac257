/**
 * @file attention_case.h
 * Attention calls in floats, for backends that take the reference's arguments: plans with every
 * kind of band, shapes, inputs whose unused places are NaN, and caches of two branches. Include
 * after cmocka.h.
 */
#ifndef DPE_ATTENTION_CASE_H
#define DPE_ATTENTION_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"
#include "engine/plan/plan.h"

/** Which plan a case runs; each is one of the shapes that plans of the methods have. */
enum plan_kind {
    ROPE,
    MASKED_FAR, /* dpe: half of the pairs, another half for every head */
    ALL_FAR,    /* self-extend */
    CONSTANT,   /* rerope: the far key position is constant, log-n query factor */
    CHUNKS,     /* dca: three bands by chunk, one key map */
    SINKS,      /* first keys and a window, the rest masked */
    HOLES,      /* a band that begins below the diagonal: first rows see nothing */
    FOUR,       /* four bands of three kinds, two of them per head; InfoScale */
    N_PLANS,
};

struct shape {
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t start, rows, capacity;
    int64_t window;            /* or chunk */
    int64_t prefix, offset[2]; /* the keys after the prefix lie there, twice; 0: as they are */
};

struct inputs {
    struct dpe_plan plan;
    struct dpe_rotation rotation;
    struct dpe_config config;
    float *q, *k, *v;
};

static inline void set_band(struct dpe_plan *plan, enum dpe_band_kind kind, int64_t lo, int64_t hi)
{
    struct dpe_band *band = &plan->bands[plan->n_bands++];
    band->kind = kind;
    band->lo = lo;
    band->hi = hi;
}

/** pos = floor(x / (2 + j mod 3)), queries shifted so that both bands meet at w. */
static inline void scale_band(struct dpe_plan *plan, int b, int64_t w)
{
    struct dpe_band *band = &plan->bands[b];
    band->q.floored = band->k.floored = true;
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        double s = (double)(2 + j % 3);
        band->q.scale[j] = band->k.scale[j] = s;
        band->q.offset[j] = (double)w - floor((double)w / s);
    }
}

static inline void mask_pairs(struct dpe_plan *plan)
{
    int64_t n = plan->n_layers * plan->n_heads * plan->n_pairs;
    plan->mask = malloc((size_t)n);
    assert_non_null(plan->mask);
    for (int64_t i = 0; i < n; i++) {
        plan->mask[i] = (uint8_t)((uint64_t)i * 0x9e3779b97f4a7c15U >> 63);
    }
}

static inline void chunk_bands(struct dpe_plan *plan, int64_t p)
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

static inline void four_bands(struct dpe_plan *plan, int64_t w)
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

static inline void make_plan(enum plan_kind kind, const struct shape *shape, struct dpe_plan *plan)
{
    struct dpe_error err = {0};
    int64_t n_pairs = shape->head_dim / 2;
    int64_t w = shape->window;
    assert_int_equal(dpe_plan_init(plan, n_pairs, 2, shape->n_heads, &err), DPE_OK);
    for (int64_t j = 0; j < n_pairs; j++) {
        plan->inv_freq[j] = pow(1000.0, -(double)j / (double)n_pairs);
    }
    plan->temperature.logit_scale = 1.25;
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
        plan->temperature.log_n_length = 40.0;
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
        plan->temperature.log_n_length = 24.0;
        plan->temperature.log_n_power = 0.5;
        plan->temperature.log_n_decay = 2.0 / (double)shape->head_dim;
        plan->temperature.depth[2] = 1.375; /* that of layer 1 of 2 */
        break;
    case N_PLANS:
        break;
    }
    assert_int_equal(dpe_plan_check(plan, &err), DPE_OK);
}

/** n random floats of about `size`, then NaN up to `all`. */
static inline float *floats(int64_t n, int64_t all, double size, uint64_t seed)
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

/** Rows of a cache that holds both branches. */
static inline int64_t cache_rows(const struct shape *shape)
{
    return shape->capacity + shape->offset[1];
}

/** The same keys in a cache of two branches, with NaN around them. */
static inline float *scatter(const struct shape *shape, const float *from)
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

/** Keys and values after the last row are NaN. */
static inline struct inputs inputs_make(enum plan_kind kind, const struct shape *shape)
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

static inline void inputs_free(struct inputs *in)
{
    dpe_plan_free(&in->plan);
    dpe_rotation_free(&in->rotation);
    free(in->q);
    free(in->k);
    free(in->v);
}

/** All rows in one call, outputs and workspace left to the caller. */
static inline struct dpe_attention arguments(const struct inputs *in, const struct shape *shape,
                                             int n_threads)
{
    struct dpe_attention args = {
        .plan = &in->plan,
        .rotation = &in->rotation,
        .layer = 1,
        .kv_layer = 1,
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

/** The arguments of the rows from `at` on: of the first branch, or of both in turn. */
static inline void place_rows(struct dpe_attention *args, const struct shape *shape, int64_t at,
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

#endif

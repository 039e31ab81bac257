/* ptx_calls OUT GROUP: small calls of the kernels as the host code of engine/cuda makes them,
 * written to a file for ptx_check.py: what lies in memory, each launch with its arguments, and what
 * the reference needs. This program links what nvcc made of the kernel sources, so grids, arguments
 * and the parameters of tensor maps are those of a card; in the place of the CUDA runtime are the
 * few functions below. Nothing here says what an instruction does.
 *
 * Lines, and the bytes that some of them announce:
 *     case TITLE
 *     number NAME VALUE
 *     region NAME ADDRESS BYTES WRITABLE    then its bytes
 *     launch NAME GRID BLOCK SHARED N       three numbers each; then N lines "argument BYTES" with
 * their bytes end */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/near.h"

#include "tests/engine/cuda/flash_case.h"

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/cuda_recur.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/prefill/attention_wgmma.h"
#include "tests/ptx/ptx_runtime.h"

static FILE *out;

enum { TEMPERED = 13 /* of plan_cases */ };

/* ---------------------------------------------------------------------------- what is written */

static void number(const char *name, double value)
{
    fprintf(out, "number %s %.17g\n", name, value);
}

static void region(const char *name, const void *at, size_t bytes, bool writable)
{
    fprintf(out, "region %s %llu %llu %d\n", name, (unsigned long long)(uintptr_t)at,
            (unsigned long long)bytes, writable);
    fwrite(at, 1, bytes, out);
}

static void region_of(const char *name, int i, const void *at, size_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%s%d", name, i);
    region(text, at, bytes, false);
}

/* Which band each query and key have, the copies that a band takes, and the factor of a query's
 * logits. */
static void write_plan(const struct flash_case *c)
{
    const int64_t rows = c->shape.rows, keys = c->shape.start + rows;
    int8_t *bands = flash_memory(rows * keys, 1);
    double *factor = flash_memory(rows, sizeof *factor);
    for (int64_t r = 0; r < rows; r++) {
        factor[r] = dpe_plan_query_scale(&c->plan, 0, c->shape.start + r);
        for (int64_t n = 0; n < keys; n++) {
            const int64_t m = c->shape.start + r;
            bands[r * keys + n] = n <= m ? (int8_t)dpe_plan_band(&c->plan, m, n) : -1;
        }
    }
    region("bands", bands, (size_t)(rows * keys), false);
    region("factor", factor, (size_t)rows * sizeof *factor, false);
    free(bands);
    free(factor);
    char text[32];
    for (int b = 0; b < c->plan.n_bands; b++) {
        const int copy = c->k_copies.of_band[b];
        snprintf(text, sizeof text, "band%d_q", b);
        number(text, c->q_copies.of_band[b]);
        snprintf(text, sizeof text, "band%d_k", b);
        number(text, copy);
        snprintf(text, sizeof text, "band%d_per_head", b);
        number(text, c->call.k_per_head[copy]);
    }
    number("n_bands", c->plan.n_bands);
}

static void write_case(const struct flash_case *c, const char *kernel)
{
    const struct flash_shape *s = &c->shape;
    const size_t d = (size_t)s->head_dim, rows = (size_t)(s->rows * s->n_heads);
    fprintf(out, "case %s: %s\n", kernel, c->title);
    number("bf16", s->dtype == DPE_BF16);
    number("heads", (double)s->n_heads);
    number("kv_heads", (double)s->n_kv_heads);
    number("head_dim", (double)s->head_dim);
    number("rows", (double)s->rows);
    number("keys", (double)(s->start + s->rows));
    number("capacity", (double)c->capacity);
    number("cap", s->cap);
    write_plan(c);
    for (int i = 0; i < c->q_copies.n; i++) {
        region_of("q", i, c->call.q[i], rows * d * 2);
    }
    region("v", c->v_bits, (size_t)(s->n_kv_heads * c->capacity) * d * 2, false);
    region("out", c->out, (rows * d + 2 * FLASH_GUARD) * 2, true);
    region("lse", c->lse, (rows + 2 * FLASH_GUARD) * 4, true);
}

static void end(struct flash_case *c)
{
    fprintf(out, "end\n");
    flash_case_free(c);
}

/* ---------------------------------------------------------------------------------- the calls */

static struct flash_shape shape_of(enum dpe_dtype dtype, int64_t heads, int64_t kv_heads,
                                   int64_t head_dim, int64_t start, int64_t rows)
{
    return (struct flash_shape){.dtype = dtype,
                                .n_heads = heads,
                                .n_kv_heads = kv_heads,
                                .head_dim = head_dim,
                                .start = start,
                                .rows = rows,
                                .seed = 7};
}

static struct flash_shape capped(struct flash_shape shape, double cap)
{
    shape.cap = cap;
    return shape;
}

/* The case of a plan with log-n: queries that also grow, and in bfloat16 a decay. */
static void temper(struct flash_case *c, int plan_case)
{
    if (plan_case == TEMPERED) {
        c->plan.query_growth = 0.4;
        c->plan.query_length = 40.0;
        c->plan.temperature.log_n_decay = c->shape.dtype == DPE_BF16 ? 0.3 : 0.0;
        c->call.log_n = dpe_log_n_of(&c->plan);
    }
}

/* parts > 1: the keys of a query block are split. */
static void prefill(const char *kernel, bool mma, struct flash_shape shape, int plan_case,
                    int64_t window, int32_t parts)
{
    const struct dpe_tile_shape tile =
        mma ? dpe_attention_mma_shape(shape.head_dim)
            : dpe_attention_wgmma_shape(shape.head_dim, shape.cap > 0.0);
    struct flash_case c = flash_case_make(&shape, plan_case, window, tile);
    temper(&c, plan_case);
    const size_t n = (size_t)(shape.rows * shape.n_heads), d = (size_t)shape.head_dim;
    int32_t *counters = dpe_alloc_zero(2, sizeof *counters);
    float *partial = NULL;
    if (parts > 1) {
        flash_split(&c, tile, parts);
        partial = flash_memory((int64_t)((size_t)parts * n * (d + 1)), sizeof *partial);
        c.call.partial = partial;
    }
    write_case(&c, kernel);
    for (int i = 0; i < c.k_copies.n; i++) {
        const int64_t heads = c.call.k_per_head[i] ? shape.n_heads : shape.n_kv_heads;
        region_of("k", i, c.call.k[i], (size_t)(heads * c.capacity) * d * 2);
    }
    if (partial != NULL) {
        region("partial", partial, (size_t)parts * n * (d + 1) * sizeof *partial, true);
    }
    region("blocks", c.walk.blocks, (size_t)c.walk.n_blocks * sizeof *c.walk.blocks, false);
    region("segments", c.walk.segments, (size_t)c.walk.n_segments * sizeof *c.walk.segments, false);
    region("counters", counters, 2 * sizeof *counters, true);
    assert_int_equal(mma ? dpe_attention_mma(&c.call) : dpe_attention_wgmma(&c.call, counters), 0);
    end(&c);
    free(partial);
    free(counters);
}

static void group_mma(void)
{
    prefill("mma", true, shape_of(DPE_BF16, 2, 1, 64, 0, 90), 0, 40, 0);
    prefill("mma", true, shape_of(DPE_F16, 2, 1, 64, 37, 140), 1, 40, 0);
    prefill("mma", true, shape_of(DPE_BF16, 1, 1, 96, 150, 20), 2, 30, 0);
    prefill("mma", true, shape_of(DPE_F16, 1, 1, 96, 0, 70), 11, 20, 0);
    prefill("mma", true, shape_of(DPE_BF16, 2, 2, 128, 20, 100), 12, 24, 0);
    prefill("mma", true, shape_of(DPE_F16, 2, 1, 128, 0, 80), TEMPERED, 40, 0);
    prefill("mma", true, shape_of(DPE_BF16, 1, 1, 256, 30, 70), 1, 33, 0);
    prefill("mma", true, shape_of(DPE_F16, 2, 1, 256, 0, 66), TEMPERED, 20, 0);
    prefill("mma", true, shape_of(DPE_BF16, 1, 1, 512, 20, 40), 1, 30, 0);
    prefill("mma", true, shape_of(DPE_BF16, 1, 1, 64, 60, 70), TEMPERED, 40, 0);
    prefill("mma", true, capped(shape_of(DPE_BF16, 1, 1, 128, 30, 80), 3.0), 1, 40, 0);
    prefill("mma", true, capped(shape_of(DPE_F16, 1, 1, 256, 0, 66), 2.0), TEMPERED, 20, 0);
    prefill("mma, split", true, shape_of(DPE_BF16, 2, 1, 64, 300, 3), 1, 90, 3);
}

static void group_wgmma(void)
{
    static const int64_t dims[] = {128, 64, 256};
    for (int i = 0; i < 3; i++) {
        prefill("wgmma", false, capped(shape_of(DPE_BF16, 2, 1, dims[i], 128, 140), 3.0), 1, 128,
                0);
        prefill("wgmma", false, capped(shape_of(DPE_F16, 1, 1, dims[i], 40, 70), 2.0), TEMPERED, 50,
                0);
        prefill("wgmma", false, shape_of(DPE_BF16, 2, 1, dims[i], 0, 150), 1, 60, 0);
        prefill("wgmma", false, shape_of(DPE_F16, 2, 2, dims[i], 190, 140), 2, 50, 0);
        prefill("wgmma", false, shape_of(DPE_F16, 2, 1, dims[i], 0, 150), TEMPERED, 60, 0);
        prefill("wgmma", false, shape_of(DPE_BF16, 2, 2, dims[i], 190, 140), 12, 50, 0);
    }
}

/* The kernels on little, for faults planted into their text. */
static void group_faults_mma(void)
{
    prefill("mma", true, shape_of(DPE_BF16, 1, 1, 64, 200, 70), 1, 40, 0);
}
static void group_faults_wgmma(void)
{
    prefill("wgmma", false, shape_of(DPE_BF16, 1, 1, 128, 420, 130), 1, 60, 0);
}

/* -----------------------------------------------------------------------------------------
 * decoding */

/* The cache: keys rotated by the first band's table. */
static uint16_t *cache_of(const struct flash_case *c)
{
    const int64_t d = c->shape.head_dim, keys = c->shape.start + c->shape.rows;
    uint16_t *cache = flash_memory(c->shape.n_kv_heads * c->capacity * d, sizeof *cache);
    for (int64_t h = 0; h < c->shape.n_kv_heads; h++) {
        for (int64_t n = 0; n < keys; n++) {
            const int64_t at = (h * c->capacity + n) * d;
            flash_rotate(c, &c->k_copies, c->k_copies.of_band[0], h, n, c->k + at, cache + at);
        }
    }
    return cache;
}

/* Every key of every query head under every band, in double: the reference rotates nothing. */
static void write_keys(const struct flash_case *c)
{
    const struct flash_shape *s = &c->shape;
    const int64_t d = s->head_dim, pairs = d / 2, keys = s->start + s->rows;
    for (int b = 0; b < c->plan.n_bands; b++) {
        const struct dpe_rotated *copy = &c->k_copies.copies[c->k_copies.of_band[b]];
        double *rotated = flash_memory(s->n_heads * keys * d, sizeof *rotated);
        for (int64_t i = 0; i < s->n_heads * keys * pairs; i++) {
            const int64_t h = i / pairs / keys, n = i / pairs % keys, j = i % pairs;
            const bool moves = !copy->per_head || c->plan.mask[h * pairs + j] != 0;
            const int64_t at = n * pairs + j;
            const double x =
                (double)c->rotation.cos[moves ? copy->table : c->k_copies.base_table][at];
            const double y =
                (double)c->rotation.sin[moves ? copy->table : c->k_copies.base_table][at];
            const float *k = c->k + (h / (s->n_heads / s->n_kv_heads) * c->capacity + n) * d + j;
            double *to = rotated + (h * keys + n) * d + j;
            to[0] = (double)k[0] * x - (double)k[pairs] * y;
            to[pairs] = (double)k[pairs] * x + (double)k[0] * y;
        }
        region_of("keys", b, rotated, (size_t)(s->n_heads * keys * d) * sizeof *rotated);
        free(rotated);
    }
}

static void set_bands(const struct flash_case *c, uint32_t *const tables[], struct dpe_decode *call)
{
    const int32_t most = INT32_C(1) << 30;
    call->n_bands = c->plan.n_bands;
    call->chunk = c->plan.chunk > 0 ? (int32_t)c->plan.chunk : 1;
    for (int b = 0; b < c->plan.n_bands; b++) {
        const struct dpe_band *band = &c->plan.bands[b];
        const int copy = c->k_copies.of_band[b];
        call->bands[b] = (struct dpe_decode_band){.kind = (int32_t)band->kind,
                                                  .q_copy = c->q_copies.of_band[b],
                                                  .lo = band->lo < most ? (int32_t)band->lo : most,
                                                  .hi = band->hi < most ? (int32_t)band->hi : most,
                                                  .table = tables[copy],
                                                  .per_head = tables[copy] != NULL &&
                                                              c->k_copies.copies[copy].per_head};
    }
}

/* Tables of what rotates the keys of the cache further, by their kernel. */
static void make_tables(const struct flash_case *c, uint32_t *tables[])
{
    const struct dpe_rotation *r = &c->rotation;
    const int64_t n = (c->shape.start + c->shape.rows) * r->n_pairs;
    const int base = c->k_copies.base_table;
    region("cosines", r->cos[0], (size_t)(2 * r->n_tables * r->capacity * r->n_pairs) * 4, false);
    for (int i = 0; i < c->k_copies.n; i++) {
        const int table = c->k_copies.copies[i].table;
        tables[i] = NULL;
        if (table != base) {
            tables[i] = flash_memory(n, 4);
            fprintf(out, "region table%d %llu %llu 1\n", i,
                    (unsigned long long)(uintptr_t)tables[i], (unsigned long long)n * 4);
            fwrite(tables[i], 4, (size_t)n, out);
            assert_int_equal(dpe_decode_table(r->cos[table], r->sin[table], r->cos[base],
                                              r->sin[base], n, tables[i]),
                             0);
        }
    }
}

/* Alone, or as the second of two calls, the first of which has no cache. */
static void decode_as(int32_t which, struct flash_shape shape, int plan_case, int64_t window,
                      int64_t unit)
{
    enum { MOST_UNITS = 64 };
    struct flash_case c =
        flash_case_make(&shape, plan_case, window, (struct dpe_tile_shape){128, 64});
    temper(&c, plan_case);
    const int64_t keys = shape.start + shape.rows, d = shape.head_dim;
    uint16_t *cache = cache_of(&c);
    uint32_t *tables[DPE_MAX_BANDS] = {NULL};
    struct dpe_decode_unit *units = dpe_alloc_zero(MOST_UNITS, sizeof *units);
    struct dpe_decode_parts *parts = dpe_alloc_zero((size_t)shape.rows, sizeof *parts);
    struct dpe_decode call = {.dealing = dpe_decode_deal(shape.n_kv_heads, d, 163U << 10),
                              .dtype = shape.dtype,
                              .n_heads = shape.n_heads,
                              .n_kv_heads = shape.n_kv_heads,
                              .head_dim = d,
                              .rows = shape.rows,
                              .q_head_stride = shape.rows * d,
                              .k = cache,
                              .v = c.v_bits,
                              .head_stride = c.capacity * d,
                              .mask = c.plan.mask,
                              .units = units,
                              .parts = parts,
                              .out = c.call.out,
                              .lse = c.call.lse,
                              .scale = c.call.scale,
                              .log_n = c.call.log_n,
                              .cap = c.call.cap};
    memcpy(call.q, c.call.q, sizeof call.q);
    for (int64_t at = 0; at < keys; at += unit) {
        const int64_t last = at + unit < keys ? at + unit : keys;
        units[call.n_units++] =
            (struct dpe_decode_unit){at, last, 0, 0, (int32_t)shape.rows, which};
    }
    call.n_units++; /* one that is empty */
    const int32_t n_units = (int32_t)call.n_units - 1,
                  middle = (n_units + 1) / 2; /* of the two lists */
    for (int32_t r = 0; r < shape.rows; r++) {
        parts[r] = (struct dpe_decode_parts){.a_end = middle,
                                             .a_row = r,
                                             .b_first = middle,
                                             .b_end = n_units,
                                             .b_row = r,
                                             .position = shape.start + r};
    }
    const size_t bytes = dpe_decode_partial_bytes(shape.n_kv_heads, d, call.n_units);
    call.partial = flash_memory((int64_t)bytes, 1);
    write_case(&c, which > 0 ? "decode together" : "decode");
    write_keys(&c);
    region("cache", cache, (size_t)(shape.n_kv_heads * c.capacity * d) * 2, false);
    region("partial", call.partial, bytes, true);
    region("units", units, MOST_UNITS * sizeof *units, false);
    region("parts", parts, (size_t)shape.rows * sizeof *parts, false);
    if (c.plan.mask != NULL) {
        region("mask", c.plan.mask, (size_t)(c.plan.n_layers * c.plan.n_heads * c.plan.n_pairs),
               false);
    }
    make_tables(&c, tables);
    set_bands(&c, tables, &call);
    struct dpe_decode calls[] = {call, call};
    if (which > 0) {
        calls[0].k = calls[0].v = NULL;
    }
    assert_int_equal(dpe_attention_decode_calls(calls, which + 1), 0);
    end(&c);
    for (int i = 0; i < DPE_MAX_BANDS; i++) {
        free(tables[i]);
    }
    free(call.partial);
    free(units);
    free(parts);
    free(cache);
}

static void decode(struct flash_shape shape, int plan_case, int64_t window, int64_t unit)
{
    decode_as(0, shape, plan_case, window, unit);
}

static void group_decode(void)
{
    decode_as(1, shape_of(DPE_BF16, 4, 2, 64, 150, 3), 1, 40, 64);
    decode_as(1, shape_of(DPE_F16, 4, 2, 128, 90, 2), 12, 24, 64);
    decode(shape_of(DPE_BF16, 4, 2, 64, 200, 1), 0, 40, 128);
    decode(shape_of(DPE_F16, 4, 2, 64, 250, 3), 1, 40, 256);
    decode(shape_of(DPE_BF16, 2, 1, 96, 170, 2), 2, 30, 256);
    decode(shape_of(DPE_F16, 1, 1, 96, 90, 1), 5, 30, 64);
    decode(shape_of(DPE_BF16, 4, 2, 128, 180, 2), 1, 50, 256);
    decode(shape_of(DPE_F16, 8, 2, 128, 200, 1), 14, 50, 128);
    decode(shape_of(DPE_BF16, 4, 2, 64, 140, 3), 12, 24, 64);
    decode(shape_of(DPE_F16, 3, 3, 128, 120, 4), 12, 20, 256);
    decode(shape_of(DPE_BF16, 2, 1, 96, 130, 2), 15, 40, 64);
    decode(shape_of(DPE_BF16, 4, 2, 64, 110, 2), TEMPERED, 40, 64);
    decode(shape_of(DPE_BF16, 4, 1, 256, 100, 2), 1, 40, 64);
    decode(shape_of(DPE_F16, 2, 1, 256, 90, 1), 12, 24, 64);
    decode(shape_of(DPE_BF16, 4, 1, 512, 70, 2), 1, 40, 64);
    decode(shape_of(DPE_F16, 2, 1, 512, 50, 1), 12, 24, 64);
    decode(shape_of(DPE_F16, 2, 1, 64, 110, 1), TEMPERED, 40, 128);
    decode(capped(shape_of(DPE_BF16, 4, 2, 128, 110, 2), 3.0), 1, 40, 64);
    decode(capped(shape_of(DPE_F16, 2, 1, 256, 70, 1), 2.0), TEMPERED, 40, 64);
}
static void group_faults_decode(void)
{
    decode(shape_of(DPE_BF16, 4, 2, 128, 180, 2), 1, 50, 256);
}

/* -----------------------------------------------------------------------------------------
 * products */

static void *random_memory(enum dpe_dtype dtype, int64_t n, struct dpe_rng *rng, const char *name,
                           bool writable)
{
    const size_t size = dtype == DPE_F32 ? 4 : 2;
    float *values = flash_memory(n, sizeof *values);
    void *memory = flash_memory(n, size);
    flash_random(DPE_BF16, values, n, 1.0, rng);
    values[0] = 7.5F; /* beyond a clamp */
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits = flash_bits(dtype, values[i]);
        memcpy((char *)memory + (size_t)i * size,
               size == 4 ? (const void *)&values[i] : (const void *)&bits, size);
    }
    free(values);
    region(name, memory, (size_t)n * size, writable);
    return memory;
}

static void product(enum dpe_dtype dtype, bool gated, int64_t rows, int64_t k,
                    const int64_t *columns, int n_weights, bool out_float, bool accumulate)
{
    static const char *const dtypes[] = {
        [DPE_F32] = "float", [DPE_F16] = "f16", [DPE_BF16] = "bf16"};
    struct dpe_rng rng;
    char name[32];
    struct dpe_few_product p = {.dtype = dtype,
                                .out_float = out_float,
                                .accumulate = accumulate,
                                .rows = rows,
                                .k = k,
                                .n_weights = n_weights};
    dpe_rng_seed(&rng, 5, (uint64_t)(rows + k));
    fprintf(out, "case %s: %s, rows %d, %d elements\n", gated ? "gated_few" : "product_few",
            dtypes[dtype], (int)rows, (int)k);
    number("size", dtype == DPE_F32 ? 4 : 2);
    number("bf16", dtype == DPE_BF16);
    number("gated", gated);
    number("out_size", out_float || dtype == DPE_F32 ? 4 : 2);
    number("accumulate", accumulate);
    number("rows", (double)rows);
    number("k", (double)k);
    number("n_weights", n_weights);
    p.x = random_memory(dtype, rows * k, &rng, "x", false);
    for (int i = 0; i < n_weights; i++) {
        snprintf(name, sizeof name, "n%d", i);
        number(name, (double)columns[i]);
        snprintf(name, sizeof name, "w%d", i);
        p.weights[i].w = random_memory(dtype, columns[i] * k, &rng, name, false);
        snprintf(name, sizeof name, "bias%d", i);
        p.weights[i].bias = random_memory(DPE_F32, columns[i], &rng, name, false);
        snprintf(name, sizeof name, "out%d", i);
        p.weights[i].out =
            random_memory(out_float ? DPE_F32 : dtype, rows * columns[i], &rng, name, true);
        p.weights[i].n = columns[i];
    }
    assert_int_equal(gated ? dpe_kernel_gated_few(&p) : dpe_kernel_product_few(&p), 0);
    fprintf(out, "end\n"); /* the process ends soon, and with it what it holds */
}

static void group_products(void)
{
    static const int64_t three[] = {24, 8, 9}, two[] = {17, 17};
    product(DPE_BF16, false, 1, 576, three, 3, false, false);
    product(DPE_F16, false, 7, 2048, three, 1, true, true);
    product(DPE_BF16, false, 2, 4096, two, 1, true, false);
    product(DPE_F32, false, 3, 1032, three, 2, true, true);
    product(DPE_F16, true, 2, 1024, two, 2, false, false);
    product(DPE_BF16, true, 4, 520, two, 2, false, false);
}

/* ------------------------------------------------------------------------------ small kernels */

static void begin_small(const char *what, enum dpe_dtype dtype, int64_t rows, int64_t width)
{
    fprintf(out, "case %s: %s, %d rows of %d\n", what, dpe_block_types[dtype].name, (int)rows,
            (int)width);
    number("size", dtype == DPE_F32 ? 4 : 2);
    number("bf16", dtype == DPE_BF16);
    number("rows", (double)rows);
    number("width", (double)width);
    number(what, 1);
}

static void small(enum dpe_dtype dtype, int64_t rows, int64_t width)
{
    static const char *const activations[] = {"swiglu", "geglu", "clamped"};
    const int64_t n = rows * width;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 6, (uint64_t)width);
    begin_small("rmsnorm", dtype, rows, width);
    const void *x = random_memory(DPE_F32, n, &rng, "a", false);
    const void *by = random_memory(DPE_F32, width, &rng, "b", false);
    void *to = random_memory(dtype, n, &rng, "to", true);
    assert_int_equal(dpe_kernel_rmsnorm(dtype, x, by, rows, width, 1e-5F, to, 0, NULL), 0);
    fprintf(out, "end\n");
    begin_small("narrow", dtype, rows, width);
    x = random_memory(DPE_F32, n, &rng, "a", false);
    to = random_memory(dtype, n, &rng, "to", true);
    assert_int_equal(dpe_kernel_narrow(dtype, x, n, to), 0);
    fprintf(out, "end\n");
    for (int kind = DPE_SWIGLU; kind <= DPE_SWIGLU_CLAMPED; kind++) {
        begin_small(activations[kind], dtype, rows, width);
        to = random_memory(dtype, n, &rng, "to", true);
        by = random_memory(dtype, n, &rng, "b", false);
        assert_int_equal(dpe_kernel_activate((enum dpe_activation)kind, dtype, to, by, n), 0);
        fprintf(out, "end\n");
    }
}

static void group_small(void)
{
    small(DPE_BF16, 5, 576);
    small(DPE_F16, 3, 2048);
    small(DPE_F32, 2, 40);
    small(DPE_BF16, 3, 37); /* one element at a time */
}

/* --------------------------------------------------------------------------------------------
 * rotation */

/* As the backend rotates queries: every copy in one launch. */
static void rotation(enum dpe_dtype dtype, int64_t head_dim, int plan_case)
{
    const struct flash_shape shape = shape_of(dtype, 2, 1, head_dim, 33, 9);
    struct flash_case c = flash_case_make(&shape, plan_case, 10, (struct dpe_tile_shape){128, 64});
    const int64_t n = shape.rows * shape.n_heads * head_dim;
    uint16_t *from = flash_memory(n, 2), *to = flash_memory(n * c.q_copies.n, 2);
    struct dpe_rotated_rows rows = {.dtype = dtype,
                                    .n_rotations = c.q_copies.n,
                                    .from = from,
                                    .from_row = shape.n_heads * head_dim,
                                    .from_head = head_dim,
                                    .to = to,
                                    .to_row = head_dim,
                                    .to_head = shape.rows * head_dim,
                                    .to_copy = n,
                                    .rows = shape.rows,
                                    .head_dim = head_dim,
                                    .n_heads = shape.n_heads,
                                    .group = 1,
                                    .first = shape.start};
    for (int64_t i = 0; i < n; i++) {
        from[i] = flash_bits(dtype, c.q[i]);
    }
    for (int i = 0; i < c.q_copies.n; i++) {
        const struct dpe_rotated *copy = &c.q_copies.copies[i];
        rows.rotations[i].cos = c.rotation.cos[copy->table];
        rows.rotations[i].sin = c.rotation.sin[copy->table];
        if (copy->per_head) {
            rows.rotations[i].base_cos = c.rotation.cos[c.q_copies.base_table];
            rows.rotations[i].base_sin = c.rotation.sin[c.q_copies.base_table];
            rows.rotations[i].mask = c.plan.mask;
        }
    }
    fprintf(out, "case rotate: %s\n", c.title);
    number("bf16", dtype == DPE_BF16);
    number("copies", c.q_copies.n);
    number("rows", (double)n);
    for (int i = 0; i < c.q_copies.n; i++) {
        region_of("q", i, c.call.q[i], (size_t)n * 2);
    }
    region("from", from, (size_t)n * 2, false);
    region("to", to, (size_t)(n * c.q_copies.n) * 2, true);
    region("cosines", c.rotation.cos[0],
           (size_t)(2 * c.rotation.n_tables * c.rotation.capacity * c.rotation.n_pairs) * 4, false);
    if (c.plan.mask != NULL) {
        region("mask", c.plan.mask, (size_t)(c.plan.n_layers * c.plan.n_heads * c.plan.n_pairs),
               false);
    }
    assert_int_equal(dpe_kernel_rotate(&rows, 1), 0);
    end(&c);
    free(from);
    free(to);
}

static void group_rotate(void)
{
    rotation(DPE_BF16, 64, 1);
    rotation(DPE_F16, 96, 2);
    rotation(DPE_BF16, 128, 12);
}

/* --------------------------------------------------------------------------------------------
 * layers with a state */

/* A run of rows in a state that has seen others, piece by piece. */
static void recur(enum dpe_dtype dtype, const struct dpe_recurrent *shape, int64_t rows,
                  int64_t lead)
{
    const int64_t channels[] = {dpe_recurrent_keys(shape), dpe_recurrent_keys(shape),
                                dpe_recurrent_values(shape)};
    const int64_t heads = shape->value_heads;
    const int64_t n_pieces = (lead + rows + DPE_RECUR_PIECE - 1) / DPE_RECUR_PIECE;
    static const char *const names[] = {"q", "k", "v", "conv_q", "conv_k", "conv_v"};
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 8, (uint64_t)(rows + shape->key_dim));
    struct dpe_recur call = {.dtype = dtype,
                             .width = (int32_t)shape->width,
                             .key_heads = (int32_t)shape->key_heads,
                             .value_heads = (int32_t)heads,
                             .key_dim = (int32_t)shape->key_dim,
                             .value_dim = (int32_t)shape->value_dim,
                             .tiled = shape->tiled,
                             .lead = (int32_t)lead,
                             .eps = 1e-6F,
                             .reach = shape->doubled ? 2.0F : 1.0F,
                             .rows = rows};
    fprintf(out, "case recur: %s, %d rows after %d, heads of %d and %d\n",
            dpe_block_types[dtype].name, (int)rows, (int)lead, (int)shape->key_dim,
            (int)shape->value_dim);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"recur", 1},
                   {"size", dtype == DPE_F32 ? 4 : 2},
                   {"bf16", dtype == DPE_BF16},
                   {"rows", rows},
                   {"width", shape->width},
                   {"key_heads", shape->key_heads},
                   {"value_heads", heads},
                   {"key_dim", shape->key_dim},
                   {"value_dim", shape->value_dim},
                   {"tiled", shape->tiled},
                   {"doubled", shape->doubled}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        number(numbers[i].name, (double)numbers[i].value);
    }
    for (int i = 0; i < 3; i++) {
        call.x[i] = random_memory(dtype, rows * channels[i], &rng, names[i], false);
        call.convolution[i] =
            random_memory(dtype, channels[i] * shape->width, &rng, names[3 + i], false);
    }
    float *rate = flash_memory(heads, sizeof *rate);
    for (int64_t h = 0; h < heads; h++) {
        rate[h] = -0.1F - 0.3F * (float)h;
    }
    region("rate", rate, (size_t)heads * sizeof *rate, false);
    call.rate = rate;
    call.step = random_memory(DPE_F32, heads, &rng, "step", false);
    call.norm = random_memory(DPE_F32, shape->value_dim, &rng, "norm", false);
    call.gate = random_memory(dtype, rows * channels[2], &rng, "gate", true);
    call.beta = random_memory(dtype, rows * heads, &rng, "beta", false);
    call.decay = random_memory(dtype, rows * heads, &rng, "decay", false);
    call.out = random_memory(dtype, rows * channels[2], &rng, "made", true);
    call.states = random_memory(DPE_F32, dpe_recurrent_floats(shape), &rng, "states", true);
    const int64_t floats = dpe_recurrent_floats(shape);
    float *before = flash_memory(floats, sizeof *before);
    memcpy(before, call.states, (size_t)floats * sizeof *before);
    region("before", before, (size_t)floats * sizeof *before, false);
    const int64_t n = dpe_recur_floats(shape, n_pieces);
    float *workspace = flash_memory(n, sizeof *workspace);
    region("workspace", workspace, (size_t)n * sizeof *workspace, true);
    assert_int_equal(dpe_kernel_recur_pieces(&call, workspace), 0);
    fprintf(out, "end\n");
}

static void group_recur(void)
{
    /* A warp keeps 32 channels: of one of q, k and v, as the interpreter wants. */
    const struct dpe_recurrent small = {1, 2, 32, 32, 4, false, false, 1e-6};
    const struct dpe_recurrent tiled = {2, 4, 16, 40, 3, true, true, 1e-6};
    recur(DPE_BF16, &small, 70, 0);
    recur(DPE_F32, &tiled, 30, 50);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } groups[] = {{"mma", group_mma},
                  {"wgmma", group_wgmma},
                  {"decode", group_decode},
                  {"products", group_products},
                  {"rotate", group_rotate},
                  {"small", group_small},
                  {"recur", group_recur},
                  {"faults_mma", group_faults_mma},
                  {"faults_wgmma", group_faults_wgmma},
                  {"faults_decode", group_faults_decode}};
    for (size_t i = 0; argc == 3 && i < sizeof groups / sizeof groups[0]; i++) {
        if (strcmp(argv[2], groups[i].name) == 0) {
            out = fopen(argv[1], "we");
            if (out == NULL) {
                break;
            }
            ptx_write_to(out);
            groups[i].run();
            return fclose(out) == 0 ? 0 : 74;
        }
    }
    fprintf(stderr, "usage: ptx_calls OUT GROUP\n");
    return 64;
}

/**
 * @file cpu_kernels.h
 * One table of kernels per instruction set (cpu_kernels.c compiled once for each). The attention
 * drivers and the matrix products of the CPU backend are made of them.
 *
 * Everything is fp32. Work is cut into fixed blocks that do not depend on the number of threads,
 * and every sum has a fixed order, so results have the same bits for any number of threads; between
 * instruction sets they agree to rounding only.
 *
 * Two packed layouts, both for a product C = A · Bᵀ of row-major A [rows][k], B [columns][k]:
 *   row pack    [k][mr]     mr rows of A side by side, followed by `lanes` floats of slack
 *   panel       [k][panel]  `panel` = 2 · lanes rows of B side by side
 * One call of `tile` multiplies a row pack with a panel into an mr × panel tile of C. In attention
 * A are queries and B keys, in a linear layer A are activations and B weights.
 */
#ifndef DPE_CPU_KERNELS_H
#define DPE_CPU_KERNELS_H

#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/ops/ops.h"

/** For functions whose loops an argument unrolls. */
#define UNROLLED static inline __attribute__((always_inline))

enum {
    DPE_CPU_MAX_LANES = 16,
    DPE_CPU_MAX_MR = 12,
    DPE_CPU_MOST_MR = 32,      /**< of any set, those for bfloat16 too */
    DPE_CPU_BLOCK = 256,       /**< keys of one step of the online softmax; floats in a row of S */
    DPE_CPU_MAX_PRODUCTS = 64, /**< that run together */
    DPE_CPU_MAX_SPANS = 64,    /**< of `accumulate`: panels in a block at most */
};

/** Keys whose probabilities stand side by side: columns column … column+count−1 of P belong to rows
 *  row … row+count−1 of V. */
struct dpe_cpu_span {
    int64_t column, row, count;
};
struct dpe_cpu_spans {
    int64_t n;
    struct dpe_cpu_span spans[DPE_CPU_MAX_SPANS];
};

/** P · V of few rows: o [rows][width] = alpha · o + p [rows][DPE_CPU_BLOCK] · v [count][width]. */
struct dpe_cpu_few {
    int64_t rows, count, width;
    const float *p, *v, *alpha;
    const float *after; /**< [count][width] that is read next, requested meanwhile; or NULL */
};

/** out[r · ldo + i] = x row r · weight row i for r < rows ≤ 4, i < n; k columns; weights row-major
 *  and read in their own type. */
struct dpe_cpu_dots {
    const void *w;
    int64_t ldw; /**< elements from a weight row to the next */
    enum dpe_dtype dtype;
    int64_t n, k, rows;
    const float *x; /**< row stride ldx */
    int64_t ldx;
    float *out;
    int64_t ldo;
};

/** out[r · ldo + i] = q row r · key i rotated, for the queries r < rows ≤ 4 of one KV head and keys
 *  i < n; k = 2 · n_pairs columns. */
struct dpe_cpu_key_dots {
    const struct dpe_cpu_rotation *rotation; /**< of the keys; select is not read */
    const uint8_t *mask; /**< [rows][n_pairs]: pairs of 0 are rotated by base_cos, base_sin for this
                              head; NULL: none is */
    const float *keys;   /**< [n][k] */
    int64_t n, k, rows;
    const float *q; /**< row stride ldq */
    int64_t ldq;
    float *out;
    int64_t ldo;
    float *room;        /**< [n][k], what is there afterwards is not said */
    uint32_t *words;    /**< [n_pairs], the same */
    const float *after; /**< [n][k] that is read next, requested meanwhile; or NULL */
};

/** out[r · ldo + i] = q[r] · key i for any number of queries and keys i < n that are rotated
 * already, k columns: the bits of dpe_cpu_key_dots. */
struct dpe_cpu_shared_dots {
    const float *keys; /**< [n][k] */
    int64_t n, k, rows;
    const float *const *q; /**< [rows], of k floats each */
    float *out;
    int64_t ldo;
    const float *soon[2]; /**< [n][k] that are read soon, requested meanwhile; or NULL */
};

/** c [m][n] (row stride ldc) = keep · c + A · b, with A_ip = a[i · a_row + p · a_column] over p < k
 *  and b [k][n] (row stride ldb): small matrices, as they lie. keep 0: c is not read. A row of c
 * has the same bits for any m. */
struct dpe_cpu_small {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    float keep;
};

/** A tile [rows ≤ mr][panel] of a product and what happens to its first `columns` columns on the
 *  way out: + bias where not NULL, + what is there already where `keep`. */
struct dpe_cpu_tile {
    const float *sums;
    int64_t rows, columns;
    const float *bias;
    bool keep;
};

/** Rotation of consecutive rows: the pair (j, j + n_pairs) of row i is rotated by the angle whose
 * cosine and sine are cos[i][j], sin[i][j]; with `select` (one word a pair, all ones or 0) pairs of
 * all ones use those, the others base_cos, base_sin. */
struct dpe_cpu_rotation {
    int64_t n_pairs;
    const float *cos, *sin;           /**< [rows][n_pairs] */
    const float *base_cos, *base_sin; /**< as cos, or NULL */
    const uint32_t *select;           /**< [n_pairs] or NULL */
};

/** Online softmax state of the rows of a tile, all [rows]. Logits in base 2 are factor · s. */
struct dpe_cpu_softmax {
    const float *factor; /**< > 0 */
    float *reference;    /**< largest base-2 logit met so far, −INFINITY before any */
    float *sum;          /**< Σ 2^(logit − reference) */
    float *alpha;        /**< out: what earlier sums must be multiplied with */
};

struct dpe_cpu_kernels {
    const char *name;
    int64_t lanes, mr, panel;

    /** c [mr][panel], row stride ldc = row pack · panelᵀ over k. */
    void (*tile)(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc);
    /** The same where only the first n ≤ mr rows are wanted; the others may be left as they are. */
    void (*tile_part)(int64_t n, const float *rows, const float *panel, int64_t k, float *c,
                      int64_t ldc);
    /** Row pack of n ≤ mr rows of k floats, row stride ld; missing rows are 0. */
    void (*pack_rows)(const float *x, int64_t ld, int64_t n, int64_t k, float *out);
    /** Panel of n ≤ panel rows; missing rows are 0. */
    void (*pack_panel)(const float *x, int64_t ld, int64_t n, int64_t k, float *out);
    /** out [n][2·n_pairs] = rows of x (row stride ld) rotated. */
    void (*rotate)(const struct dpe_cpu_rotation *rotation, const float *x, int64_t ld, int64_t n,
                   float *out);
    /** One step of the online softmax on the first `rows` ≤ mr rows of s [mr][DPE_CPU_BLOCK], their
     *  first `columns` (a multiple of panel): s becomes 2^(factor·s − reference). */
    void (*softmax)(const struct dpe_cpu_softmax *state, int64_t rows, int64_t columns, float *s);
    /** o [mr][width] = alpha · o + P · V over the spans; p [mr][DPE_CPU_BLOCK], v [keys][width],
     *  width a multiple of lanes. */
    void (*accumulate)(const float *p, const struct dpe_cpu_spans *spans, const float *v,
                       const float *alpha, float *o, int64_t width);
    /** o[r] += p[r · DPE_CPU_BLOCK] · v for the rows r = first … mr−1. */
    void (*accumulate_row)(const float *p, int64_t first, const float *v, float *o, int64_t width);
    /** Any width. */
    void (*accumulate_few)(const struct dpe_cpu_few *few, float *o);
    /** Row stride ldo. */
    void (*write_tile)(const struct dpe_cpu_tile *tile, float *out, int64_t ldo);
    void (*small)(const struct dpe_cpu_small *product);
    void (*dots)(const struct dpe_cpu_dots *dots);
    void (*dots_rotated)(const struct dpe_cpu_key_dots *dots);
    void (*dots_shared)(const struct dpe_cpu_shared_dots *dots);
    /** out [n] = the numbers of any type as float. */
    void (*widen)(const void *from, enum dpe_dtype dtype, int64_t n, float *out);
    /** out[i] = x[i] / sqrt(mean(x²) + eps) · weight[i], one row. */
    void (*rmsnorm)(const float *x, const float *weight, int64_t n, float eps, float *out);
    /** out [n] = out / (1 + e^−gate). */
    void (*sigmoid)(float *out, const float *gate, int64_t n);
    /** gate = what the activation makes of gate and up, n elements. */
    void (*activate)(enum dpe_activation activation, float *gate, const float *up, int64_t n);
    /** x[i] = outer · tanh(inner · x[i]), −∞ stays; n a multiple of lanes. */
    void (*cap)(float *x, int64_t n, float inner, float outer);
    /** y[i] = 2^x[i] (tests of the function all softmaxes use). */
    void (*exp2)(const float *x, int64_t n, float *y);
};

/** The kernels of an instruction set, or NULL when this build does not have it. */
const struct dpe_cpu_kernels *dpe_cpu_kernels_portable(void);
const struct dpe_cpu_kernels *dpe_cpu_kernels_avx2(void);
const struct dpe_cpu_kernels *dpe_cpu_kernels_avx512(void);
const struct dpe_cpu_kernels *dpe_cpu_kernels_neon(void);
/** The widest set that this machine runs; the environment variable DPE_CPU (portable, avx2, avx512;
 *  on ARM portable, neon) caps it, for tests and comparisons. */
const struct dpe_cpu_kernels *dpe_cpu_kernels_choose(void);

/** What the device cpu-bf16 has beside the kernels of AVX-512, or NEON: products and prefill
 * attention in bfloat16. It is an option, because it rounds what the other kernels do not.
 *
 * Both factors of a product are rounded to bfloat16 (to the nearest, ties to even), sums are float.
 * A pair is two numbers in the place of one float, which are multiplied with another pair and added
 * together: two neighbours of k in a linear layer and in query · key, two neighbouring keys in
 * probabilities · V. Panels, P and V have the layouts above, with pairs for floats. */
struct dpe_cpu_bf16 {
    int64_t mr;    /**< rows of a row pack, in the place of the other kernels' */
    int64_t depth; /**< pairs of k that a row pack is filled up to */
    int64_t keys;  /**< that accumulate adds together, from a multiple of them on */
    /** By each thread before it calls tile or accumulate…, and after. */
    void (*begin)(void);
    void (*end)(void);
    /** As dpe_cpu_kernels.pack_rows, of k pairs; NULL: that one. */
    void (*pack_rows)(const float *x, int64_t ld, int64_t n, int64_t k, float *out);
    /** pairs [(n+1)/2] of x [n]; the second of a last single number is 0. They may begin at x. */
    void (*halve)(const float *x, int64_t n, float *pairs);
    /** dpe_cpu_kernels.tile of packs and panels of k pairs. */
    void (*tile)(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc);
    /** pairs [n]: number i of x [n] and of y [n]; y NULL: 0. */
    void (*pair)(const float *x, const float *y, int64_t n, float *pairs);
    /** dpe_cpu_kernels.accumulate of pairs of keys; sums, alpha and o are float. */
    void (*accumulate)(const float *p, const struct dpe_cpu_spans *spans, const float *v,
                       const float *alpha, float *o, int64_t width);
    /** o[r] += p[r · DPE_CPU_BLOCK …] · v, `keys` keys, for the rows r = first … mr−1, of which
     *  first + i sees keys 0 … i and has a weight of 0 for the others. first > −keys. */
    void (*accumulate_late)(const float *p, int64_t first, const float *v, float *o, int64_t width);
    /** dpe_cpu_kernels.dots of pairs of x (row stride ldx in pairs) and weights in bfloat16, which
     *  are read as they lie; k and ldw count numbers. A row of x gets the same bits with any others
     *  beside it. */
    void (*dots)(const struct dpe_cpu_dots *dots);
};

/** Those of AMX where the processor and the system have it, else those of AVX512-BF16 (also with
 *  DPE_CPU=avx512); on ARM those of FEAT_BF16, under Linux. NULL where this build or this processor
 *  does not have them, or DPE_CPU names a narrower set. */
const struct dpe_cpu_bf16 *dpe_cpu_bf16_choose(void);
/** Whether a product takes less time in them than in float, with what rounding adds: a millisecond
 * of tiles of both in turn, the best of each. false where memory is short. */
bool dpe_cpu_bf16_pays(const struct dpe_cpu_kernels *kernels, const struct dpe_cpu_bf16 *bf16);
/** Those of this build (cpu_bf16.c and, x86 only, cpu_amx.c; cpu_bf16_neon.c on ARM), for any
 * processor. */
const struct dpe_cpu_bf16 *dpe_cpu_bf16(void);
const struct dpe_cpu_bf16 *dpe_cpu_amx(void);
/* What both of x86 have in common (cpu_bf16.c). */
void dpe_cpu_bf16_halve(const float *x, int64_t n, float *pairs);
void dpe_cpu_bf16_pair(const float *x, const float *y, int64_t n, float *pairs);
void dpe_cpu_bf16_dots(const struct dpe_cpu_dots *dots);

/** Rows of a row pack, and what makes one; bf16: NULL or those kernels. */
static inline int64_t dpe_cpu_mr(const struct dpe_cpu_kernels *kernels,
                                 const struct dpe_cpu_bf16 *bf16)
{
    return bf16 != NULL ? bf16->mr : kernels->mr;
}

static inline void dpe_cpu_pack_rows(const struct dpe_cpu_kernels *kernels,
                                     const struct dpe_cpu_bf16 *bf16, const float *x, int64_t n,
                                     int64_t k, float *out)
{
    bool own = bf16 != NULL && bf16->pack_rows != NULL;
    (own ? bf16->pack_rows : kernels->pack_rows)(x, k, n, k, out);
}

/** Floats of a row pack of k columns, or pairs of them in bfloat16: a multiple of 16. */
static inline int64_t dpe_cpu_pack_floats(const struct dpe_cpu_kernels *kernels,
                                          const struct dpe_cpu_bf16 *bf16, int64_t k)
{
    int64_t depth = bf16 != NULL ? bf16->depth : 1;
    k = (k + depth - 1) / depth * depth;
    return (k * dpe_cpu_mr(kernels, bf16) + kernels->lanes + 15) / 16 * 16;
}

#endif

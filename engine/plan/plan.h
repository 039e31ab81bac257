/**
 * @file plan.h
 * Position methods as data: bands, position maps, frequencies, factors; parser, methods, oracle.
 */
#ifndef DPE_PLAN_H
#define DPE_PLAN_H

#include "engine/base/base.h"
#include "engine/model/model.h"

/** Coordinate map of one band, for one side (query m or key n):
 *      pos_j(x) = min( f( (x mod period) / scale_j ) + offset_j , cap )
 *  f = floor or identity; scale_j = INFINITY makes it the constant offset_j. */
struct dpe_position_map {
    bool floored;
    double period;  /**< INFINITY: none */
    double cap;     /**< INFINITY: none */
    double *scale;  /**< [n_pairs], each ≥ 1 or INFINITY */
    double *offset; /**< [n_pairs] */
};

/** What decides whether (m, n) lies in a band; first band that matches wins, none = masked. */
enum dpe_band_kind {
    DPE_BAND_DISTANCE, /**< lo ≤ m − n < hi */
    DPE_BAND_CHUNK,    /**< lo ≤ ⌊m/chunk⌋ − ⌊n/chunk⌋ < hi */
    DPE_BAND_KEY,      /**< lo ≤ n < hi (sinks) */
};

struct dpe_band {
    enum dpe_band_kind kind;
    int64_t lo, hi; /**< half open, tokens or chunks; hi = INT64_MAX: no end */
    bool per_head;  /**< pairs outside the mask use the first band's maps */
    struct dpe_position_map q, k;
};

enum { DPE_MAX_BANDS = 4 };

enum dpe_angle_precision {
    DPE_ANGLE_F32, /**< float32(position) * float32(inv_freq), as Hugging Face code (default) */
    DPE_ANGLE_F64,
};

/** A position method as data (methods.md, "The struct that holds all of it"). The logit of query m
 *  and key n is  logit_factor * query_factor(m) / sqrt(head_dim) * Σ_j ⟨R(θ_j pq_j(m)) q_j,
 *  R(θ_j pk_j(n)) k_j⟩ with pair j = components (j, j + n_pairs) (half-split). No kernel and no
 *  forward pass knows the name of a method. */
struct dpe_plan {
    char name[256];  /**< the canonical spec it was made from, cut if longer; for people, never
                          decides */
    int64_t n_pairs; /**< head_dim / 2 */
    int64_t n_layers, n_heads;
    double *inv_freq;    /**< θ_j [n_pairs], radians per position; the maps' arrays are in the same
                              block: write into them, don't exchange them */
    double logit_factor; /**< a² of yarn and the like, 1 otherwise */
    double log_n_length; /**< > 0: query factor max(1, ln(m+1)/ln(log_n_length)); 0: off */
    int64_t chunk;       /**< P of DPE_BAND_CHUNK, 0 when no band needs it */
    int n_bands;
    struct dpe_band bands[DPE_MAX_BANDS];
    uint8_t *mask; /**< [n_layers][n_heads][n_pairs], 1 = key pair; NULL = all ones */
    bool exact;    /**< far rel = ⌊(Δ−lo)/s_j⌋ + lo instead of the separable form; reference
                        attention only, DISTANCE bands only */
    enum dpe_angle_precision angle;
};

/** What a method's defaults are computed from. */
struct dpe_plan_context {
    const struct dpe_config *config;
    int64_t trained_length; /**< L0 */
    int64_t length;         /**< L, the evaluated length (prompt + generated) */
    bool official;          /**< switches that official codes carry silently, see methods.md */
    enum dpe_angle_precision angle;
};

/** Make a plan from "name" or "name:key=value,key=value". Lists inside a value are separated by
 *  '/'. Known names: dpe_plan_method. Unknown names and keys are DPE_USAGE and listed.
 *  Frequency methods replace the model's own rope scaling, band methods and `rope` keep it.
 *  *plan is filled and owned by the caller (dpe_plan_free). */
dpe_status dpe_plan_make(const char *spec, const struct dpe_plan_context *context,
                         struct dpe_plan *plan, struct dpe_error *err);
/** Line i of the methods, NULL behind the last: "name<TAB>key=default key=default …<TAB>what it
 * does and its source". */
const char *dpe_plan_method(size_t i);

/** The parameters of DPE (and of Self-Extend, which is DPE with one group and all pairs). */
struct dpe_dpe_params {
    int64_t window;       /**< w, ≥ 1 */
    int n_groups;         /**< C; group g holds pairs [edges[g], edges[g+1]) */
    const int32_t *edges; /**< [n_groups + 1], strictly increasing from 0 to n_pairs */
    const double *scale;  /**< s_g [n_groups], finite, ≥ 1 */
    const uint8_t *mask;  /**< [n_layers][n_heads][n_pairs] or NULL = all pairs; copied */
    bool exact;
};
dpe_status dpe_plan_make_dpe(const struct dpe_dpe_params *params,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);
/** Equal ranges of pairs: edges[g] = ⌊g·n_pairs/n_groups⌋, [n_groups + 1]. DPE_USAGE when n_groups
 *  is not in 1..n_pairs. */
dpe_status dpe_plan_group_edges(int64_t n_pairs, int n_groups, int32_t *edges,
                                struct dpe_error *err);

/** The mask [n_rows][n_pairs] that marks the first k pairs of every row of a ranking [n_rows]
 *  [n_pairs], or the last k. 0 ≤ k ≤ n_pairs. DPE_BAD_DATA where one of them is not a pair. */
dpe_status dpe_plan_mask_ranked(const uint16_t *ranking, int64_t n_rows, int64_t n_pairs, int64_t k,
                                bool last, uint8_t *mask, struct dpe_error *err);

/** An empty plan with zeroed bands and allocated arrays ([n_pairs] maps with scale 1, offset 0,
 *  period and cap infinite), for filling by hand. */
dpe_status dpe_plan_init(struct dpe_plan *plan, int64_t n_pairs, int64_t n_layers, int64_t n_heads,
                         struct dpe_error *err);
dpe_status dpe_plan_copy(struct dpe_plan *to, const struct dpe_plan *from, struct dpe_error *err);
/** The plan for the heads of slice `index` of `size` of a model (engine/model/slice.h); free with
 *  dpe_plan_free. DPE_NO_MEMORY. */
dpe_status dpe_plan_slice(const struct dpe_plan *plan, int index, int size, struct dpe_plan *slice,
                          struct dpe_error *err);
void dpe_plan_free(struct dpe_plan *plan);
/** Structural check: finite, positive, bands within limits, exact only where allowed. */
dpe_status dpe_plan_check(const struct dpe_plan *plan, struct dpe_error *err);
/** SHA-256 of the plan's meaning (not of its name), 32 bytes; equal plans have equal digests.
 *  DPE_NO_MEMORY is the only error. */
dpe_status dpe_plan_digest(const struct dpe_plan *plan, uint8_t digest[32], struct dpe_error *err);
/** The name of a plan in results: the first 16 bytes of its digest in hex. */
dpe_status dpe_plan_key(const struct dpe_plan *plan, char key[33], struct dpe_error *err);

/** The oracle: band index of (m, n), -1 when masked (n > m is always masked), and if ≥ 0 the
 * effective positions of pair j. Everything else that computes positions is tested against this. */
int dpe_plan_band(const struct dpe_plan *plan, int64_t m, int64_t n);
struct dpe_rel {
    int band;      /**< -1 = masked; then the rest is 0 */
    double pq, pk; /**< pq_j(m), pk_j(n) */
    double rel;    /**< pq − pk, or the exact form when plan->exact */
};
struct dpe_rel dpe_plan_position(const struct dpe_plan *plan, int64_t layer, int64_t head,
                                 int64_t pair, int64_t m, int64_t n);
/** The factor on all logits of query m: logit_factor * query factor / sqrt(head_dim). */
double dpe_plan_query_scale(const struct dpe_plan *plan, int64_t m);

/** Native frequencies and attention factor of a checkpoint (rope, linear, dynamic, yarn, longrope,
 *  llama3) for an evaluated length: inv_freq [head_dim/2]; *attention_factor is a (logits × a²).
 *  Source: transformers' modeling_rope_utils. */
dpe_status dpe_rope_native(const struct dpe_config *config, int64_t length, double *inv_freq,
                           double *attention_factor, struct dpe_error *err);

#endif

/**
 * @file plan.h
 * Position methods as data: bands, position maps, frequencies, factors; the oracle, tables of
 * cosines and sines, and the frequencies of checkpoints. The methods by name are in
 * methods/methods.h.
 */
#ifndef DPE_PLAN_H
#define DPE_PLAN_H

#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/model/config/selection.h"

/** Coordinate map of one band, for one side (query m or key n):
 *      pos_j(x) = min( f( (g(x) mod period) / scale_j ) + offset_j , cap )
 *  f = floor or identity; scale_j = INFINITY makes it the constant offset_j. g(x) = x, or where
 *  group_most C > 0 the number of the group that token x lies in, counted from 0: the tokens from
 *  group_from on are divided into groups, of which group i has the whole part of
 *  C / (1 + (C − 1) e^(−group_rate i)) tokens, at most C − 1: 1 at first. g of earlier tokens
 *  is 0. */
struct dpe_position_map {
    bool floored;
    double period;     /**< INFINITY: none */
    double cap;        /**< INFINITY: none */
    double group_most; /**< C, a whole number from 2 on; 0: no groups */
    double group_rate; /**< > 0 with groups */
    double group_from; /**< a whole number of tokens, ≥ 0 */
    double *scale;     /**< [n_pairs], each ≥ 1 or INFINITY */
    double *offset;    /**< [n_pairs] */
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

/** A factor of one query head's logits. */
struct dpe_head_factor {
    int32_t layer, head;
    double factor; /**< above 0 */
};
/** Heads with a factor of their own, at most. */
enum { DPE_HEAD_FACTORS = 32 };

/** The attention temperature: in layer l of n the logits of head h and a query at position m (0, 1,
 *  …) are multiplied by
 *
 *      A · D(l) · H(l, h) · f(m),   f(m) = max(1, ln(m + 1) / ln N)^G,
 *      D(l) = (1 − t)² first + 2 t (1 − t) middle + t² last,   t = l / (n − 1),
 *
 *  A = logit_scale, N = log_n_length, G = log_n_power, first, middle, last = depth; D is a
 * quadratic Bézier curve, 1 where the three are 1; H is 1 but for the heads that are named. The
 * forward pass multiplies the queries of these by it, before attention, so no kernel of attention
 * knows of it. m + 1 is the number of keys that a causal query
 * sees, so f depends on the position alone and not on how tokens are cut into calls. f is 1 up to m
 * = N − 1 and undoes the dilution of the softmax over more keys than that. With a decay B > 0, ln x
 * is replaced by 1 − x^−B on both sides, which for B → 0 gives ln again.
 *
 *  F = far_scale multiplies, besides, what the pairs contribute that a band after the first gives a
 * position: all of a far key's logit, or with key pairs by head what these are part of. Rotated
 * queries of such a band are that much longer, so no kernel of attention knows of it.
 *
 *  Sources. log-n (G = 1, B = 0): J. Su, "Entropy invariance of softmax", kexue.fm/archives/8823,
 *  2021; D. Chiang and P. Cholak, "Overcoming a theoretical limitation of self-attention", ACL
 * 2022. InfoScale (G = ½, B = 2/head_dim): K. Li and others, arXiv 2501.08570, as in its released
 * code (HT-NEKO/Information-Entropy-Invariance, 66d4543): sqrt(1 − l^(−2/d)) / sqrt(1 − N^(−2/d))
 * with l the number of keys; not less than 1, as in its T5 variant. A: a constant factor, as YaRN's
 * a² is one (Peng et al. 2023). */
struct dpe_temperature {
    double log_n_length; /**< N > 1, tokens; 0: f is 1 */
    double log_n_power;  /**< G, in (0, 64] */
    double log_n_decay;  /**< B, in [0, 64] */
    double logit_scale;  /**< A > 0 */
    double depth[3];     /**< first, middle, last; each > 0 */
    double far_scale;    /**< F > 0 */
    int n_heads;         /**< that are named, by layer and then head, each once */
    struct dpe_head_factor heads[DPE_HEAD_FACTORS];
};
/** Most of G, B and A: factors beyond these are not temperatures. */
static const double DPE_MOST_LOG_N_POWER = 64.0;
static const double DPE_MOST_LOG_N_DECAY = 64.0;
static const double DPE_MOST_LOGIT_SCALE = 1024.0;
enum { DPE_TEMPERATURE_TEXT = 320 + 40 * DPE_HEAD_FACTORS };
/** No temperature: A = 1, D = 1, f = 1, F = 1. */
extern const struct dpe_temperature dpe_temperature_none;
/** Whether it changes any logit. */
bool dpe_temperature_is_none(const struct dpe_temperature *temperature);
/** The canonical form: equal temperatures have equal texts, which dpe_temperature_parse reads back
 *  to the same bits. */
void dpe_temperature_text(const struct dpe_temperature *temperature,
                          char text[DPE_TEMPERATURE_TEXT]);
/** The ranges above: DPE_USAGE names the field that is outside. */
dpe_status dpe_temperature_check(const struct dpe_temperature *temperature, struct dpe_error *err);
/** f(m); both are ≥ 0 and f ≥ 1. */
double dpe_temperature_factor(const struct dpe_temperature *temperature, int64_t m);
/** D(layer) of a model with so many layers. */
double dpe_temperature_depth(const struct dpe_temperature *temperature, int64_t layer,
                             int64_t n_layers);
/** H(layer, head). */
double dpe_temperature_head(const struct dpe_temperature *temperature, int64_t layer, int64_t head);
/** Give a head this factor in place of its own; 1 takes it away. False: too many have one. */
bool dpe_temperature_set_head(struct dpe_temperature *temperature, int64_t layer, int64_t head,
                              double factor);
/** Whether D is 1 in every layer. */
static inline bool dpe_temperature_is_level(const struct dpe_temperature *temperature)
{
    return temperature->depth[0] == 1.0 && temperature->depth[1] == 1.0 &&
           temperature->depth[2] == 1.0;
}

/** A position method as data. The logit of query m
 *  and key n is  A * D(layer) * f(m) / sqrt(head_dim) * Σ_j ⟨R(θ_j pq_j(m)) q_j,
 *  R(θ_j pk_j(n)) k_j⟩ with pair j = components (j, j + n_pairs) (half-split), A, D and f as in
 *  struct dpe_temperature. Kernels and the forward pass do not depend on the name of a method. The
 * fields of the model (dpe_plan_init_for) change this where they are not 0. A plan holds for the
 *  full-attention layers with rotation (dpe_config_moves); the others have plans of their own
 *  (dpe_plan_make_layer). */
struct dpe_plan {
    char name[256];  /**< the canonical spec it was made from, cut if longer; for people, never
                          decides */
    bool always;     /**< for texts of at most the trained length too (dpe_plan_for_text); decides
                          nothing else */
    int64_t n_pairs; /**< head_dim / 2 */
    int64_t n_layers, n_heads;
    double *inv_freq; /**< θ_j [n_pairs], radians per position; the maps' arrays are in the same
                           block: write into them, don't exchange them */
    struct dpe_temperature temperature; /**< its A times a² of yarn and the like */
    /* Of the model: 0 in most. */
    int64_t n_still;             /**< the last so many pairs do not rotate: their θ_j is 0 */
    double still_factor;         /**< of each side of these, which logit_factor is not for */
    double attention_multiplier; /**< in place of 1/sqrt(head_dim) */
    double attention_cap;        /**< c: a logit x becomes c tanh(x/c) */
    double query_growth; /**< b: logits of query m times 1 + b ln(1 + floor((m + from)/L)) */
    double query_length; /**< L of query_growth */
    int64_t query_from;  /**< 0 or 1 */
    int64_t chunk;       /**< P of DPE_BAND_CHUNK, 0 when no band needs it */
    int n_bands;
    struct dpe_band bands[DPE_MAX_BANDS];
    uint8_t *mask; /**< [n_layers][n_heads][n_pairs], 1 = key pair; NULL = all ones */
    struct dpe_selection selection; /**< which keys a query meets (block 0: all); the bands then
                                         hold for the places that it gives to queries and keys */
};

/** The mask [n_rows][n_pairs] that marks the first k pairs of every row of a ranking [n_rows]
 *  [n_pairs], or the last k. 0 ≤ k ≤ n_pairs. DPE_BAD_DATA where one of them is not a pair. */
dpe_status dpe_plan_mask_ranked(const uint16_t *ranking, int64_t n_rows, int64_t n_pairs, int64_t k,
                                bool last, uint8_t *mask, struct dpe_error *err);

/** Give the plan its own copy of `mask` [n_layers][n_heads][n_pairs]. */
dpe_status dpe_plan_set_mask(struct dpe_plan *plan, const uint8_t *mask, struct dpe_error *err);
/** An empty plan with zeroed bands and allocated arrays ([n_pairs] maps with scale 1, offset 0,
 *  period and cap infinite), for filling by hand. */
dpe_status dpe_plan_init(struct dpe_plan *plan, int64_t n_pairs, int64_t n_layers, int64_t n_heads,
                         struct dpe_error *err);
/** dpe_plan_init for a model, with what it adds to every plan: the pairs that do not rotate, the
 *  scale, cap and growth of its logits. */
dpe_status dpe_plan_init_for(struct dpe_plan *plan, const struct dpe_config *config,
                             struct dpe_error *err);
/** No pair of the plan rotates: what is left of it is its temperature. */
void dpe_plan_stand_still(struct dpe_plan *plan);
/** The plan of the layers of a kind that position plans do not move: one band of the kind's window,
 *  with the kind's rotation for sequences of `length` tokens, or none. */
dpe_status dpe_plan_make_layer(const struct dpe_config *config, const struct dpe_layer_kind *kind,
                               int64_t length, struct dpe_plan *plan, struct dpe_error *err);
/** Give the plan this temperature, its logit_scale and depth times those that the plan has. */
dpe_status dpe_plan_set_temperature(struct dpe_plan *plan,
                                    const struct dpe_temperature *temperature,
                                    struct dpe_error *err);
dpe_status dpe_plan_copy(struct dpe_plan *to, const struct dpe_plan *from, struct dpe_error *err);
/** The plan for the heads of slice `index` of `size` of a model (engine/model/slice.h); free with
 *  dpe_plan_free. DPE_NO_MEMORY. */
dpe_status dpe_plan_slice(const struct dpe_plan *plan, int index, int size, struct dpe_plan *slice,
                          struct dpe_error *err);
void dpe_plan_free(struct dpe_plan *plan);
/** Structural check: finite, positive, bands within limits. */
dpe_status dpe_plan_check(const struct dpe_plan *plan, struct dpe_error *err);
/** SHA-256 of the plan's meaning (not of its name), in hex; equal plans have equal digests.
 *  DPE_NO_MEMORY is the only error. */
dpe_status dpe_plan_digest(const struct dpe_plan *plan, char digest[65], struct dpe_error *err);
/** The name of a plan in results: the first half of its digest. */
dpe_status dpe_plan_key(const struct dpe_plan *plan, char key[33], struct dpe_error *err);

/** The oracle: band index of (m, n), -1 when masked (n > m is always masked), and if ≥ 0 the
 * effective positions of pair j. Everything else that computes positions is tested against this. */
int dpe_plan_band(const struct dpe_plan *plan, int64_t m, int64_t n);
struct dpe_rel {
    int band;      /**< -1 = masked; then the rest is 0 */
    double pq, pk; /**< pq_j(m), pk_j(n) */
    double rel;    /**< pq − pk */
    double scale;  /**< F, or 1 where the pair has the first band's maps */
};
struct dpe_rel dpe_plan_position(const struct dpe_plan *plan, int64_t layer, int64_t head,
                                 int64_t pair, int64_t m, int64_t n);
/** The factor on all logits of query m in a layer: A * D(layer) * f(m) / sqrt(head_dim), and what
 * the model's fields make of it; a cap comes after it. */
double dpe_plan_query_scale(const struct dpe_plan *plan, int64_t layer, int64_t m);

/** Cosines and sines of a plan, made once per plan and capacity: every distinct (band, side)
 *  position list becomes one table [capacity][n_pairs], the angle float32(position) *
 *  float32(inv_freq) as in Hugging Face code, cosine evaluated in double, stored as float, times F
 * on the side of queries after the first band. A selection that packs keys needs fewer rows
 * (dpe_selection_places), which `capacity` then is. Constant maps and equal maps share a table. */
struct dpe_rotation {
    int64_t capacity, n_pairs;
    int n_tables;
    float *cos[2 * DPE_MAX_BANDS], *sin[2 * DPE_MAX_BANDS]; /**< of one block, from cos[0] on */
    int q_table[DPE_MAX_BANDS], k_table[DPE_MAX_BANDS];     /**< which table a band's side uses */
};
dpe_status dpe_rotation_make(const struct dpe_plan *plan, int64_t capacity, int n_threads,
                             struct dpe_rotation *rotation, struct dpe_error *err);
void dpe_rotation_free(struct dpe_rotation *rotation);
/** Bytes of the tables that dpe_rotation_make will allocate. */
uint64_t dpe_rotation_bytes(const struct dpe_plan *plan, int64_t capacity);

/** Native frequencies and attention factor of a checkpoint (rope, linear, dynamic, yarn, longrope,
 *  llama3) for an evaluated length: inv_freq [head_dim/2]; *attention_factor is a (logits × a²).
 *  Source: transformers' modeling_rope_utils. */
dpe_status dpe_rope_native(const struct dpe_config *config, int64_t length, double *inv_freq,
                           double *attention_factor, struct dpe_error *err);

/** Frequencies [head_dim/2] and attention factor of a rope configuration; `head_dim` counts the
 *  components that rotate. `max_position` is what
 *  `dynamic` grows from, and what takes the place of an absent original_max_position.
 *  DPE_BAD_DATA names a parameter that is missing or makes no sense. */
dpe_status dpe_rope_compute(const struct dpe_rope_config *rope, int64_t head_dim,
                            int64_t max_position, int64_t length, double *inv_freq,
                            double *attention_factor, struct dpe_error *err);

/** Multiply the plan's logits by a², those of pairs that do not rotate apart (HF multiplies the
 *  cosines and sines by a). Once for each plan. */
void dpe_plan_set_rope_factor(struct dpe_plan *plan, double a);

#endif

/**
 * @file methods_internal.h
 * What the files of this room share.
 */
#ifndef DPE_METHODS_INTERNAL_H
#define DPE_METHODS_INTERNAL_H

#include "engine/base/base.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

/** The numbers of a context make sense: DPE_USAGE else. */
dpe_status dpe_plan_context_check(const struct dpe_plan_context *context, struct dpe_error *err);

enum { DPE_SPEC_MAX_KEYS = 16 };

/** A method spec, taken apart. The first failure sticks in `status`; getters then return their
 *  default, so that a builder reads all it needs and checks once. Every getter appends the value
 *  it gave to `name`, which so becomes the canonical spec. */
struct dpe_spec {
    const struct dpe_plan_context *context;
    struct dpe_error *err;
    dpe_status status;
    const char *method;
    const char *over; /**< the spec after "over=", the last key of select */
    bool alone; /**< a selection for another plan: errors list neither "over" nor a temperature */
    int n;
    const char *keys[DPE_SPEC_MAX_KEYS], *values[DPE_SPEC_MAX_KEYS];
    bool read[DPE_SPEC_MAX_KEYS]; /**< a getter found it */
    char name[sizeof((struct dpe_plan *)0)->name];
};

/** dpe_plan_make without the context's selection; `alone`: of a spec of `select` that is for
 * another plan (struct dpe_spec). */
dpe_status dpe_spec_make(const char *text, const struct dpe_plan_context *context, bool alone,
                         struct dpe_plan *plan, struct dpe_error *err);

/** Fail with "method NAME: " and this text, unless something failed before. */
void dpe_spec_fail(struct dpe_spec *spec, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** A number in [lo, hi]. */
double dpe_spec_number(struct dpe_spec *spec, const char *key, double fallback, double lo,
                       double hi);
/** A whole number in [lo, hi]. */
int64_t dpe_spec_whole(struct dpe_spec *spec, const char *key, int64_t fallback, int64_t lo,
                       int64_t hi);
/** 0 or 1. */
bool dpe_spec_flag(struct dpe_spec *spec, const char *key, bool fallback);
/** Numbers in [lo, hi] separated by '/', at most `most`; their count. When the key is absent: the
 * one number `fallback`, or none when that is NaN. */
int dpe_spec_list(struct dpe_spec *spec, const char *key, double fallback, double lo, double hi,
                  double *values, int most);

/** The index of the value among `words` [n]. */
unsigned dpe_spec_word(struct dpe_spec *spec, const char *key, unsigned fallback,
                       const char *const *words, size_t n);

/** More than any text has, and more than any scale needs. */
static const int64_t DPE_MOST_TOKENS = INT64_C(1) << 31;
static const double DPE_MOST_SCALE = 0x1p31;

/* What builders share. */

/** L/L0, at least 1: the scale that brings the evaluated length back into the trained one. */
double dpe_length_ratio(const struct dpe_plan_context *context);
/** 2 L/L0, at least 1: the DPE paper's base setting, every pair has an effective length of L0/2. */
double dpe_half_trained_ratio(const struct dpe_plan_context *context);
/** min(1024, L0/8) tokens. */
int64_t dpe_default_window(const struct dpe_plan_context *context);
/** The key "scale", from 1 on; L/L0 without it. */
double dpe_spec_scale(struct dpe_spec *spec);
/** Where official codes scale q and k by a without a word: the key "official". */
void dpe_spec_official(struct dpe_spec *spec, struct dpe_plan *plan, double a);
/** A number of tokens, from 1 on. */
int64_t dpe_spec_tokens(struct dpe_spec *spec, const char *key, int64_t fallback);
/** Give the plan the model's own frequencies and factor; the second as dpe_rope_native. */
void dpe_spec_native(struct dpe_spec *spec, struct dpe_plan *plan);
dpe_status dpe_plan_keep_native(const struct dpe_plan_context *context, struct dpe_plan *plan,
                                struct dpe_error *err);
/** The same scale and offset for all pairs of a map. */
void dpe_map_fill(struct dpe_position_map *map, int64_t n_pairs, double scale, double offset);
/** The same scale for all pairs of queries and keys, and this offset for those of the queries. */
void dpe_band_fill(struct dpe_band *band, int64_t n_pairs, double scale, double offset);
/** The next band, with identity maps. */
struct dpe_band *dpe_plan_add_band(struct dpe_plan *plan, enum dpe_band_kind kind, int64_t lo,
                                   int64_t hi);
/** The two bands of DPE in a plan whose frequencies are there. */
void dpe_plan_add_dpe_bands(const struct dpe_dpe_params *params, struct dpe_plan *plan);

/** A method: documentation, keys and builder. */
struct dpe_method {
    /** "name<TAB>key=default key=default …<TAB>what it does and its source" */
    const char *line;
    /** Fill a plan that dpe_plan_init made; failures go to spec->status. */
    void (*build)(struct dpe_spec *spec, struct dpe_plan *plan);
};
/** Those of a file, beside their builders; a line NULL ends them. */
extern const struct dpe_method dpe_frequency_methods[], dpe_band_methods[], dpe_adaptive_methods[],
    dpe_select_methods[];
/** The i-th of all, NULL after the last. */
const struct dpe_method *dpe_method_at(size_t i);

#endif

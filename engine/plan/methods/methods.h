/**
 * @file methods.h
 * Position methods by name: the plan of a method spec, of a temperature's text, of DPE's
 * parameters.
 */
#ifndef DPE_PLAN_METHODS_H
#define DPE_PLAN_METHODS_H

#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/plan/plan.h"

/** What a method's defaults are computed from. */
struct dpe_plan_context {
    const struct dpe_config *config;
    int64_t trained_length; /**< L0 */
    int64_t length;         /**< L, the evaluated length (prompt + generated) */
    int64_t text;           /**< the most tokens of the text that is run; 0: `length`, which may be
                                 more, as a user chose it */
    bool official; /**< switches that official codes carry silently; engine/README.md lists them */
    const char *select; /**< keys of the method `select` ("k=8,block=16"), NULL: none; every plan
                           made from the context that selects nothing gets this selection */
};

/** Make a plan from "name" or "name:key=value,key=value". Lists inside a value are separated by
 *  '/'. Known names: dpe_plan_method. Unknown names and keys are DPE_USAGE and listed. Every method
 *  has the keys of struct dpe_temperature (dpe_plan_temperature_keys); `log-n` and `infoscale`
 *  replace the log-n that official=1 sets, `logit-scale` multiplies what a method has; and the key
 *  `always`, which the plan has as a field.
 *  Frequency methods replace the model's own rope scaling, band methods and `rope` keep it.
 *  *plan is filled and owned by the caller (dpe_plan_free). */
dpe_status dpe_plan_make(const char *spec, const struct dpe_plan_context *context,
                         struct dpe_plan *plan, struct dpe_error *err);
/** What far positions of a text of `length` tokens are divided by, to lie within an effective
 * length. The paper rounds it down: where it does not divide L, they then reach beyond it. */
static inline double dpe_length_scale(int64_t length, double effective)
{
    return (double)length > effective ? (double)length / effective : 1.0;
}
/** Whether a text is one that the model was trained for: no method and no table changes it. */
static inline bool dpe_plan_text_is_short(const struct dpe_plan_context *context)
{
    return (context->text > 0 ? context->text : context->length) <= context->trained_length;
}
/** The model unchanged, for such a text: `rope`, without the context's selection. */
dpe_status dpe_plan_make_unchanged(const struct dpe_plan_context *context, struct dpe_plan *plan,
                                   struct dpe_error *err);
/** The plan that a text is run with under a method: dpe_plan_make, or where the text is short and
 * the spec lacks always=1 the model unchanged; the spec is refused for the same reasons. *differs
 * (NULL allowed): whether that is another plan than the method's. */
dpe_status dpe_plan_for_text(const char *spec, const struct dpe_plan_context *context,
                             struct dpe_plan *plan, bool *differs, struct dpe_error *err);
/** Give a plan that selects nothing the selection of the method `select` with these keys, of which
 *  none is `over` or a temperature's, and its name. DPE_USAGE as dpe_plan_make. */
dpe_status dpe_plan_select(struct dpe_plan *plan, const char *keys,
                           const struct dpe_plan_context *context, struct dpe_error *err);
/** The keys of `select` that make the plan's selection again; "" without one, and for one that a
 * model was trained with. `text` has room for the plan's name. */
void dpe_plan_selection_text(const struct dpe_plan *plan, char *text);
/** Whether the spec is `dpe` without window, scales, lengths and groups: the formula, of which
 * nothing was measured. */
bool dpe_plan_is_formula(const char *spec);
/** What the formula gives `groups` equal groups of pairs, `near` being the usual window min(1024,
 * L0/8): those before `kept` stay where they are, the others are at `length` tokens.
 * still: no pair moves, and what is left is the temperature. */
struct dpe_formula {
    int64_t window, length;
    int kept;
    struct dpe_temperature temperature;
};
struct dpe_formula dpe_formula_of(int64_t length, int64_t trained, int64_t near, int groups,
                                  bool still);
enum { DPE_FORMULA = 1024 };
/** The spec of `dpe` that such a one stands for, a near window, lengths and log-n by L and L0: to
 * whole [DPE_FORMULA]. */
void dpe_plan_formula(const struct dpe_plan_context *context, const char *spec, char *whole);
/** Line i of the methods, NULL after the last: "name<TAB>key=default key=default …<TAB>what it
 * does and its source". */
const char *dpe_plan_method(size_t i);
enum { DPE_TEMPERATURE_KEYS = 320 };
/** The keys of the temperature, which every method has besides its own and `always`, in the same
 *  form. Returns the buffer. */
const char *dpe_plan_temperature_keys(char text[DPE_TEMPERATURE_KEYS]);

/** The parameters of DPE (and of Self-Extend, which is DPE with one group and all pairs). */
struct dpe_dpe_params {
    /** The scales divide the frequencies of their groups, at every distance, as factors of longrope
     *  do. Such a plan has no window, rounds nothing and moves every pair of every head; a runtime
     *  needs no adapter for it. */
    bool frequencies;
    int64_t window;       /**< w, ≥ 1; not used with `frequencies` */
    int n_groups;         /**< C; group g holds pairs [edges[g], edges[g+1]) */
    const int32_t *edges; /**< [n_groups + 1], strictly increasing from 0 to n_pairs */
    const double *scale;  /**< s_g [n_groups], finite, ≥ 1 */
    const uint8_t *mask;  /**< [n_layers][n_heads][n_pairs] or NULL = all pairs; copied; NULL with
                               `frequencies` */
    /* Of plans of other methods that a table can hold (outputs/SCHEMA.md, "Other methods"). */
    bool unrounded;         /**< far positions are not rounded, as in Leaky ReRoPE */
    const double *inv_freq; /**< [n_pairs], what the pairs rotate by, as YaRN chooses it; NULL: the
                                 model's own. Where all scales are 1 such a plan has one band. */
    const struct dpe_temperature *temperature; /**< NULL: none */
};
dpe_status dpe_plan_make_dpe(const struct dpe_dpe_params *params,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);
/** Equal ranges of pairs: edges[g] = ⌊g·n_pairs/n_groups⌋, [n_groups + 1]. DPE_USAGE when n_groups
 *  is not in 1..n_pairs. */
dpe_status dpe_plan_group_edges(int64_t n_pairs, int n_groups, int32_t *edges,
                                struct dpe_error *err);

/** Equal ranges of the pairs of a model that rotate; those that do not belong to the last group,
 *  whose scale does not move them: edges [n_groups + 1] from 0 to head_dim/2. DPE_USAGE when
 *  n_groups is not in 1..dpe_config_pairs. */
dpe_status dpe_plan_model_edges(const struct dpe_config *config, int n_groups, int32_t *edges,
                                struct dpe_error *err);

/** "off", or a comma-separated list of the keys of dpe_temperature_numbers (engine/plan/fields.c),
 * infoscale=N and logit-scale-heads=LAYER.HEAD:A/…, with the meaning that these have in a method
 * spec. `head_dim` gives infoscale its decay. DPE_USAGE names the key, what was expected and what
 * was found. */
dpe_status dpe_temperature_parse(const char *text, int64_t head_dim,
                                 struct dpe_temperature *temperature, struct dpe_error *err);

#endif

/* Frequencies of the rope types that checkpoints name in config.json. Each formula is the one of
 * transformers' modeling_rope_utils, in double. */
#include "engine/model/config/clex.h"
#include "engine/plan/plan.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

static void rope_base(double base, int64_t head_dim, double *inv_freq)
{
    for (int64_t j = 0; j < head_dim / 2; j++) {
        inv_freq[j] = pow(base, -2.0 * (double)j / (double)head_dim);
    }
}

static dpe_status need(bool good, const char *what, double found, struct dpe_error *err)
{
    if (good) {
        return DPE_OK;
    }
    return dpe_fail(err, DPE_BAD_DATA, "rope scaling: %s, found %g", what, found);
}

/* yarn and longrope default to how much longer the model is than it was. */
static double factor_or_ratio(const struct dpe_rope_config *rope, double original,
                              int64_t max_position)
{
    return isnan(rope->factor) ? (double)max_position / original : rope->factor;
}

/* Pair index (real) that makes `rotations` rotations over `original` tokens. */
static double correction_pair(double rotations, double head_dim, double base, double original)
{
    return head_dim * log(original / (rotations * 2.0 * PI)) / (2.0 * log(base));
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* Divides by the list for the length, one number for each pair. */
static dpe_status divide(const struct dpe_rope_config *rope, int64_t n_pairs, bool many,
                         double *inv_freq, struct dpe_error *err)
{
    const double *divisor = many ? rope->long_factor : rope->short_factor;
    if (divisor == NULL) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "rope scaling: longrope expects short_factor and long_factor");
    }
    for (int64_t j = 0; j < n_pairs; j++) {
        DPE_TRY(need(divisor[j] > 0.0 && isfinite(divisor[j]), "longrope expects positive factors",
                     divisor[j], err));
        inv_freq[j] /= divisor[j];
    }
    return DPE_OK;
}

static dpe_status yarn(const struct dpe_rope_config *rope, int64_t head_dim, double original,
                       int64_t max_position, bool many, double *inv_freq, double *attention_factor,
                       struct dpe_error *err)
{
    double factor = factor_or_ratio(rope, original, max_position);
    double fast = isnan(rope->beta_fast) ? 32.0 : rope->beta_fast;
    double slow = isnan(rope->beta_slow) ? 1.0 : rope->beta_slow;
    DPE_TRY(need(factor > 0.0 && isfinite(factor), "yarn expects a positive factor", factor, err));
    DPE_TRY(need(fast > 0.0 && slow > 0.0 && isfinite(fast) && isfinite(slow),
                 "yarn expects positive betas", fast > 0.0 ? slow : fast, err));
    double d = (double)head_dim;
    double low = correction_pair(fast, d, rope->theta, original);
    double high = correction_pair(slow, d, rope->theta, original);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, d - 1.0);
    if (low == high) {
        high += 0.001; /* the reference's guard against dividing by zero */
    }
    for (int64_t j = 0; j < head_dim / 2; j++) {
        double ramp = fmin(fmax(((double)j - low) / (high - low), 0.0), 1.0);
        inv_freq[j] = inv_freq[j] / factor * ramp + inv_freq[j] * (1.0 - ramp);
    }
    if (!isnan(rope->attention_factor)) {
        *attention_factor = rope->attention_factor;
    } else if (rope->mscale > 0.0 && rope->mscale_all_dim > 0.0) {
        *attention_factor =
            yarn_mscale(factor, rope->mscale) / yarn_mscale(factor, rope->mscale_all_dim);
    } else {
        *attention_factor = yarn_mscale(factor, 1.0);
    }
    return rope->divided ? divide(rope, head_dim / 2, many, inv_freq, err) : DPE_OK;
}

static dpe_status longrope(const struct dpe_rope_config *rope, int64_t head_dim, double original,
                           int64_t max_position, bool many, double *inv_freq,
                           double *attention_factor, struct dpe_error *err)
{
    double factor = factor_or_ratio(rope, original, max_position);
    double mscale = many ? rope->long_mscale : rope->short_mscale;
    DPE_TRY(divide(rope, head_dim / 2, many, inv_freq, err));
    *attention_factor = 1.0;
    if (mscale > 0.0) {
        *attention_factor = mscale;
    } else if (!isnan(rope->attention_factor)) {
        *attention_factor = rope->attention_factor;
    } else if (factor > 1.0) {
        *attention_factor = sqrt(1.0 + log(factor) / log(original));
    }
    return need(isfinite(*attention_factor) && *attention_factor > 0.0,
                "longrope expects a positive attention factor", *attention_factor, err);
}

static dpe_status llama3(const struct dpe_rope_config *rope, int64_t head_dim, double original,
                         double *inv_freq, struct dpe_error *err)
{
    double low = rope->low_freq_factor;
    double high = rope->high_freq_factor;
    if (!(low > 0.0 && high > low && isfinite(high))) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "rope scaling: llama3 expects 0 < low_freq_factor < high_freq_factor, "
                        "found %g and %g",
                        low, high);
    }
    for (int64_t j = 0; j < head_dim / 2; j++) {
        double rotations = original * inv_freq[j] / (2.0 * PI);
        double smooth = fmin(fmax((rotations - low) / (high - low), 0.0), 1.0);
        inv_freq[j] = (1.0 - smooth) * inv_freq[j] / rope->factor + smooth * inv_freq[j];
    }
    return DPE_OK;
}

static dpe_status dynamic(const struct dpe_rope_config *rope, int64_t head_dim,
                          int64_t max_position, int64_t length, double *inv_freq,
                          struct dpe_error *err)
{
    if (head_dim <= 2) {
        return dpe_fail(err, DPE_BAD_DATA, "rope scaling: dynamic expects head_dim above 2");
    }
    double d = (double)head_dim;
    double original = (double)max_position;
    double longest = fmax((double)length, original);
    double grown = rope->factor * longest / original - (rope->factor - 1.0);
    rope_base(rope->theta * pow(grown, d / (d - 2.0)), head_dim, inv_freq);
    return DPE_OK;
}

dpe_status dpe_rope_compute(const struct dpe_rope_config *rope, int64_t head_dim,
                            int64_t max_position, int64_t length, double *inv_freq,
                            double *attention_factor, struct dpe_error *err)
{
    *attention_factor = 1.0;
    double original =
        isnan(rope->original_max_position) ? (double)max_position : rope->original_max_position;
    DPE_TRY(need(rope->theta > 1.0 && isfinite(rope->theta), "expected a base above 1", rope->theta,
                 err));
    bool needs_factor = rope->type == DPE_ROPE_LINEAR || rope->type == DPE_ROPE_DYNAMIC ||
                        rope->type == DPE_ROPE_LLAMA3;
    bool needs_original = rope->type == DPE_ROPE_YARN || rope->type == DPE_ROPE_LONGROPE ||
                          rope->type == DPE_ROPE_LLAMA3;
    if (needs_original) {
        DPE_TRY(need(original > 1.0 && isfinite(original), "expected an original length above 1",
                     original, err));
    }
    if (needs_factor) {
        DPE_TRY(need(rope->factor >= 1.0 && isfinite(rope->factor),
                     "expected a factor of at least 1", rope->factor, err));
    }
    rope_base(rope->theta, head_dim, inv_freq);
    switch (rope->type) {
    case DPE_ROPE_DEFAULT:
        return DPE_OK;
    case DPE_ROPE_LINEAR:
        for (int64_t j = 0; j < head_dim / 2; j++) {
            inv_freq[j] /= rope->factor;
        }
        return DPE_OK;
    case DPE_ROPE_DYNAMIC:
        return dynamic(rope, head_dim, max_position, length, inv_freq, err);
    case DPE_ROPE_YARN:
        return yarn(rope, head_dim, original, max_position, (double)length > original, inv_freq,
                    attention_factor, err);
    case DPE_ROPE_LONGROPE:
        return longrope(rope, head_dim, original, max_position, (double)length > original, inv_freq,
                        attention_factor, err);
    case DPE_ROPE_LLAMA3:
        return llama3(rope, head_dim, original, inv_freq, err);
    case DPE_ROPE_NETWORK:
        return dpe_clex_frequencies(rope->network, head_dim / 2, max_position, length, inv_freq,
                                    attention_factor, err);
    }
    return dpe_fail(err, DPE_BAD_DATA, "rope scaling: unknown type %d", (int)rope->type);
}

static dpe_status compute_for(const struct dpe_config *config, const struct dpe_rope_config *rope,
                              int64_t pairs, int64_t length, double *inv_freq,
                              double *attention_factor, struct dpe_error *err)
{
    for (int64_t j = pairs; j < config->head_dim / 2; j++) {
        inv_freq[j] = 0.0;
    }
    return dpe_rope_compute(rope, 2 * pairs, config->max_position, length, inv_freq,
                            attention_factor, err);
}

dpe_status dpe_rope_native(const struct dpe_config *config, int64_t length, double *inv_freq,
                           double *attention_factor, struct dpe_error *err)
{
    DPE_TRY(compute_for(config, &config->rope, dpe_config_pairs(config), length, inv_freq,
                        attention_factor, err));
    if (dpe_config_stands(config)) {
        *attention_factor = 1.0; /* that of layers which a plan is not for */
    }
    return DPE_OK;
}

void dpe_plan_set_rope_factor(struct dpe_plan *plan, double a)
{
    plan->temperature.logit_scale *= a * a;
    /* The factor is on the cosines and sines of the pairs that rotate. */
    plan->still_factor = plan->n_still > 0 && a != 1.0 ? 1.0 / a : 0.0;
}

void dpe_plan_stand_still(struct dpe_plan *plan)
{
    plan->n_still = plan->n_pairs;
    plan->still_factor = 0.0;
    memset(plan->inv_freq, 0, (size_t)plan->n_pairs * sizeof *plan->inv_freq);
}

dpe_status dpe_plan_make_layer(const struct dpe_config *config, const struct dpe_layer_kind *kind,
                               int64_t length, struct dpe_plan *plan, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan made = {0};
    struct dpe_config own = *config;
    if (kind->head_dim > 0) { /* of these the whole head rotates */
        own.head_dim = own.rotary_dim = kind->head_dim;
    }
    DPE_TRY(dpe_plan_init_for(&made, &own, err));
    made.selection = (struct dpe_selection){0};
    made.n_bands = 1;
    made.bands[0].hi = kind->window > 0 ? kind->window : INT64_MAX;
    if (kind->chunked) {
        made.chunk = kind->window;
        made.bands[0].kind = DPE_BAND_CHUNK;
        made.bands[0].hi = 1;
    }
    if (config->growth_still) {
        made.query_growth = kind->rope < 0 ? config->query_growth : 0.0;
    }
    if (kind->rope < 0) {
        dpe_plan_stand_still(&made);
    } else {
        const struct dpe_rope_config *rope = kind->rope == 0 ? &config->rope : &config->local_rope;
        double a = 1.0;
        DPE_TRY(compute_for(&own, rope, dpe_config_pairs(&own), length, made.inv_freq, &a, err));
        dpe_plan_set_rope_factor(&made, a);
    }
    DPE_TRY(dpe_plan_check(&made, err));
    *plan = made;
    made = (struct dpe_plan){0};
    return DPE_OK;
}

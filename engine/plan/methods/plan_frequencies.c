/* Methods that change frequencies: one band, positions as they are. */
#include "engine/plan/methods/methods_internal.h"
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <math.h>

static const double PI = 3.14159265358979323846;
enum { MAX_FACTORS = 512 };

static struct dpe_rope_config plain_rope(const struct dpe_spec *spec)
{
    struct dpe_rope_config rope = dpe_rope_plain;
    rope.theta = spec->context->config->rope.theta;
    rope.original_max_position = (double)spec->context->trained_length;
    return rope;
}

/* One band, positions as they are, frequencies of `rope` in place of the model's own. */
static void frequencies(struct dpe_spec *spec, struct dpe_plan *plan,
                        const struct dpe_rope_config *rope)
{
    const struct dpe_plan_context *context = spec->context;
    double a = 1.0;
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
    if (spec->status == DPE_OK) {
        spec->status =
            dpe_rope_compute(rope, 2 * dpe_config_pairs(context->config), context->trained_length,
                             context->length, plan->inv_freq, &a, spec->err);
    }
    plan->temperature.logit_scale = 1.0;
    dpe_plan_set_rope_factor(plan, a);
}

double dpe_spec_scale(struct dpe_spec *spec)
{
    return dpe_spec_number(spec, "scale", dpe_length_ratio(spec->context), 1.0, DPE_MOST_SCALE);
}

static void check_order(struct dpe_spec *spec, const char *low_key, double low,
                        const char *high_key, double high)
{
    if (!(low < high)) {
        dpe_spec_fail(spec, "expected %s < %s, found %g and %g", low_key, high_key, low, high);
    }
}

static void build_rope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    if (dpe_spec_flag(spec, "native", true)) {
        dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
        dpe_spec_native(spec, plan);
    } else {
        frequencies(spec, plan, &rope);
    }
}

static void build_scaled(struct dpe_spec *spec, struct dpe_plan *plan, enum dpe_rope_type type)
{
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = type;
    rope.factor = dpe_spec_scale(spec);
    frequencies(spec, plan, &rope);
}

static void build_pi(struct dpe_spec *spec, struct dpe_plan *plan)
{
    build_scaled(spec, plan, DPE_ROPE_LINEAR);
}

static void build_ntk(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    double d = 2.0 * (double)dpe_config_pairs(spec->context->config);
    rope.theta *= pow(dpe_spec_scale(spec), d / (d - 2.0));
    frequencies(spec, plan, &rope);
}

static void build_ntk_dynamic(struct dpe_spec *spec, struct dpe_plan *plan)
{
    build_scaled(spec, plan, DPE_ROPE_DYNAMIC);
}

static void build_ntk_by_parts(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    double scale = dpe_spec_scale(spec);
    double alpha = dpe_spec_number(spec, "alpha", 1.0, 0.0, DPE_MOST_SCALE);
    double beta = dpe_spec_number(spec, "beta", 32.0, 0.0, DPE_MOST_SCALE);
    check_order(spec, "alpha", alpha, "beta", beta);
    frequencies(spec, plan, &rope);
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        double rotations = (double)spec->context->trained_length * plan->inv_freq[j] / (2.0 * PI);
        double keep = fmin(fmax((rotations - alpha) / (beta - alpha), 0.0), 1.0);
        plan->inv_freq[j] = plan->inv_freq[j] / scale * (1.0 - keep) + plan->inv_freq[j] * keep;
    }
}

static void build_yarn(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_YARN;
    rope.factor = dpe_spec_scale(spec);
    rope.attention_factor =
        dpe_spec_number(spec, "a", 0.1 * log(rope.factor) + 1.0, 0x1p-10, 0x1p10);
    rope.beta_fast = dpe_spec_number(spec, "beta_fast", 32.0, 0x1p-10, DPE_MOST_SCALE);
    rope.beta_slow = dpe_spec_number(spec, "beta_slow", 1.0, 0x1p-10, DPE_MOST_SCALE);
    rope.truncate = dpe_spec_flag(spec, "truncate", true);
    frequencies(spec, plan, &rope);
}

static void build_llama3(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_LLAMA3;
    rope.factor = dpe_spec_scale(spec);
    rope.low_freq_factor = dpe_spec_number(spec, "low", 1.0, 0x1p-10, DPE_MOST_SCALE);
    rope.high_freq_factor = dpe_spec_number(spec, "high", 4.0, 0x1p-10, DPE_MOST_SCALE);
    check_order(spec, "low", rope.low_freq_factor, "high", rope.high_freq_factor);
    frequencies(spec, plan, &rope);
}

static void build_mrrope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    static const char *const forms[] = {"pro", "uni"};
    const struct dpe_plan_context *context = spec->context;
    struct dpe_rope_config rope = plain_rope(spec);
    double scale = dpe_spec_scale(spec);
    bool pro = dpe_spec_word(spec, "form", 0, forms, 2) == 0;
    double a = dpe_spec_number(spec, "a", 0.1 * log(scale) + 1.0, 0x1p-10, 0x1p10);
    double fast = dpe_spec_number(spec, "beta_fast", 32.0, 0x1p-10, DPE_MOST_SCALE);
    double slow = dpe_spec_number(spec, "beta_slow", 1.0, 0x1p-10, DPE_MOST_SCALE);
    check_order(spec, "beta_slow", slow, "beta_fast", fast);
    frequencies(spec, plan, &rope);
    dpe_plan_set_rope_factor(plan, a);
    int64_t n_pairs = dpe_config_pairs(context->config);
    int64_t low = -1; /* the last pair that is kept */
    int64_t high = 0; /* the first that is divided by all of the scale */
    for (int64_t j = 0; j < n_pairs; j++) {
        double turns = (double)context->trained_length * plan->inv_freq[j] / (2.0 * PI);
        low = turns > fast ? j : low;
        high = turns >= slow ? j + 1 : high;
    }
    double n = (double)(high - low);
    for (int64_t j = 0; j < n_pairs; j++) {
        double t = fmin(fmax((double)(j - low), 0.0), n);
        plan->inv_freq[j] /= pow(scale, pro ? t * (t + 1.0) / (n * (n + 1.0)) : t / n);
    }
}

/* Divisors of the pairs, to values [n_pairs]: those of the key, one for all pairs or one each, else
 * the model's own; false when there are none. */
static bool longrope_factors(struct dpe_spec *spec, const char *key, const double *own,
                             double *values)
{
    int64_t n_pairs = dpe_config_pairs(spec->context->config);
    int n = dpe_spec_list(spec, key, (double)NAN, 0x1p-10, DPE_MOST_SCALE, values, MAX_FACTORS);
    if (n > 1 && n != n_pairs) {
        dpe_spec_fail(spec, "%s: expected one number or %" PRId64 " (one for each pair), found %d",
                      key, n_pairs, n);
    }
    for (int64_t j = n; j < n_pairs; j++) {
        values[j] = n == 0 && own != NULL ? own[j] : values[0];
    }
    return n > 0 || own != NULL;
}

static void build_longrope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    const struct dpe_rope_config *own = &context->config->rope;
    double long_factor[MAX_FACTORS] = {1.0};
    double short_factor[MAX_FACTORS] = {1.0};
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_LONGROPE;
    rope.long_factor = long_factor;
    rope.short_factor = short_factor;
    double ratio = dpe_length_ratio(context);
    double a = (double)NAN;
    if (own->type == DPE_ROPE_LONGROPE) {
        if (!isnan(own->original_max_position)) {
            rope.original_max_position = own->original_max_position;
        }
        ratio = isnan(own->factor)
                    ? (double)context->config->max_position / rope.original_max_position
                    : own->factor;
        double mscale = (double)context->length > rope.original_max_position ? own->long_mscale
                                                                             : own->short_mscale;
        a = mscale > 0.0 ? mscale : own->attention_factor;
    }
    rope.factor = dpe_spec_number(spec, "scale", fmax(1.0, ratio), 1.0, DPE_MOST_SCALE);
    double usual = sqrt(1.0 + log(rope.factor) / log(rope.original_max_position));
    rope.attention_factor = dpe_spec_number(spec, "a", isnan(a) ? usual : a, 0x1p-10, 0x1p10);
    if (dpe_config_pairs(context->config) > MAX_FACTORS) {
        dpe_spec_fail(spec, "more than %d pairs", (int)MAX_FACTORS);
        return;
    }
    bool known = longrope_factors(spec, "long", own->long_factor, long_factor);
    (void)longrope_factors(spec, "short", own->short_factor, short_factor);
    if (!known) {
        dpe_spec_fail(
            spec,
            "the model's config.json has no long_factor; give long=x/x/..., a divisor for "
            "each of the %" PRId64 " pairs",
            dpe_config_pairs(context->config));
    }
    frequencies(spec, plan, &rope);
}

/* clang-format off */
const struct dpe_method dpe_frequency_methods[] = {
    {"rope\tnative=1\t"
     "the model's own rotation; native=0 leaves its rope scaling out (Su et al. 2021)",
     build_rope},
    {"pi\tscale=L/L0\t"
     "all frequencies divided by the scale (position interpolation, Chen et al. 2023)",
     build_pi},
    {"ntk\tscale=L/L0\t"
     "base times scale^(d/(d-2)) (NTK-aware, bloc97 2023)",
     build_ntk},
    {"ntk-dynamic\tscale=L/L0\t"
     "base enlarged for the evaluated length (Hugging Face \"dynamic\")",
     build_ntk_dynamic},
    {"ntk-by-parts\tscale=L/L0 alpha=1 beta=32\t"
     "interpolates pairs that rotate at most alpha times in L0, keeps those that rotate at least "
     "beta times (Peng et al. 2023)",
     build_ntk_by_parts},
    {"yarn\tscale=L/L0 a=0.1*ln(scale)+1 beta_fast=32 beta_slow=1 truncate=1\t"
     "ramp between kept and divided frequencies, logits times a^2 (Peng et al. 2023, released "
     "code)",
     build_yarn},
    {"llama3\tscale=L/L0 low=1 high=4\t"
     "the ramp over wavelengths of Llama 3.1",
     build_llama3},
    {"longrope\tlong=config short=config scale=L/L0 a=sqrt(1+ln(scale)/ln(L0))\t"
     "each frequency divided by its own factor, from config.json or from long and short; long "
     "beyond L0 (Ding et al. 2024)",
     build_longrope},
    {"mrrope\tscale=L/L0 form=pro a=0.1*ln(scale)+1 beta_fast=32 beta_slow=1\t"
     "divisors that grow from 1 to the scale between the pairs that turn beta_fast times in L0 "
     "and beta_slow times: the t-th of n pairs by scale^(t(t+1)/(n(n+1))), with form=uni by "
     "scale^(t/n); logits times a^2 (MrRoPE, ICLR 2026, arXiv 2601.22181; no released code)",
     build_mrrope},
    {NULL, NULL},
};
/* clang-format on */

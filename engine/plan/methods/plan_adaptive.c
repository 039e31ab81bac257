/* Builders of the methods that adapt bands or frequencies to the length. Formulas and sources stand
 * in the lines of the table. */
#include "engine/plan/methods/methods_internal.h"

#include <inttypes.h>
#include <math.h>

static const double PI = 3.14159265358979323846;

/* ---------------------------------------------------------------------------------------- LaMPE */

/* What the released code maps L to for Llama 3 (L0 = 8192), remap_uselen in scar-on/LaMPE 34331cf,
 * in units of L0: 6204.409 / (1 + exp(-(1.0493e-4 L - 2.46664))), and 1536 below L0. */
static int64_t lampe_length(const struct dpe_plan_context *context)
{
    double trained = (double)context->trained_length;
    double length = (double)context->length;
    double mapped = 1536.0 / 8192.0 * trained;
    if (context->length >= context->trained_length) {
        double x = 0.00010493097327094324 * 8192.0 * length / trained - 2.466638011138158;
        mapped = 6204.409324666837 / 8192.0 * trained / (1.0 + exp(-x));
    }
    return dpe_most(1, (int64_t)mapped);
}

static void build_lampe(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    const int64_t usual = dpe_least(512, dpe_most(1, context->trained_length / 16));
    int64_t window = dpe_spec_tokens(spec, "window", usual);
    int64_t tail = dpe_spec_tokens(spec, "tail", dpe_most(1, 25 * window / 64));
    int64_t mapped = dpe_spec_tokens(spec, "map", lampe_length(context));
    int64_t last = context->length - 1;
    dpe_spec_official(spec, plan, 0.1 * log(2.0) + 1.0);
    dpe_spec_native(spec, plan);
    if (context->length < 2 * window || mapped >= last) {
        dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
        return;
    }
    double scale = (double)last / (double)mapped;
    /* The tail ends where the positions of its first keys change. */
    while (tail < last && floor((double)tail / scale) == floor((double)(tail + 1) / scale)) {
        tail++;
    }
    if (tail >= context->length - window) {
        dpe_spec_fail(spec,
                      "window and tail together, with what belongs to the tail's last position: "
                      "expected at most %" PRId64 ", found %" PRId64,
                      context->length - 1, window + tail);
        return;
    }
    int64_t far = context->length - tail;
    double bias = (double)window - floor((double)window / scale) - 1.0;
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *middle = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, far);
    dpe_band_fill(middle, plan->n_pairs, scale, bias);
    middle->q.floored = middle->k.floored = true;
    /* As they are, less what the middle has left out. */
    double before = (double)(far - 1);
    double missing = before - floor(before / scale) - bias;
    struct dpe_band *end = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, far, INT64_MAX);
    dpe_map_fill(&end->q, plan->n_pairs, 1.0, -missing);
}

/* ------------------------------------------------------------------------------------- Jet-Long */

/* Near keys, those `window` away included. */
static int64_t jet_long_window(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t window =
        dpe_spec_tokens(spec, "window", dpe_most(1, spec->context->trained_length / 16));
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window + 1);
    return window;
}

static void build_jet_long(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t window = jet_long_window(spec, plan);
    int64_t group = dpe_spec_tokens(spec, "group", (int64_t)ceil(dpe_length_ratio(spec->context)));
    dpe_spec_native(spec, plan);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window + 1, INT64_MAX);
    dpe_band_fill(far, plan->n_pairs, (double)group, 0.0);
    far->q.floored = far->k.floored = true;
}

/* YaRN's ramp of pair j, from 0 (kept) to 1 (divided by the scale), cut to the pairs. */
static double jet_long_ramp(const struct dpe_plan_context *context, double fast, double slow,
                            int64_t j)
{
    double d = 2.0 * (double)dpe_config_pairs(context->config);
    double per_turn = (double)context->trained_length / (2.0 * PI);
    double base = 2.0 * log(context->config->rope.theta);
    double low = fmax(floor(d * log(per_turn / fast) / base), 0.0);
    double high = fmin(ceil(d * log(per_turn / slow) / base), d / 2.0 - 1.0);
    return fmin(fmax(((double)j - low) / fmax(high - low, 0.001), 0.0), 1.0);
}

static void build_jetlong_freq(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    int64_t window = jet_long_window(spec, plan);
    double left = (double)dpe_most(1, context->trained_length - window);
    double usual = (double)(context->length - window) / left;
    double scale = dpe_spec_number(spec, "scale", fmax(1.0, usual), 1.0, DPE_MOST_SCALE);
    double fast = dpe_spec_number(spec, "beta_fast", 32.0, 0x1p-10, DPE_MOST_SCALE);
    double slow = dpe_spec_number(spec, "beta_slow", 1.0, 0x1p-10, DPE_MOST_SCALE);
    if (dpe_spec_flag(spec, "official", context->official)) {
        plan->temperature.logit_scale = 0.1 * log(scale) + 1.0;
    }
    dpe_spec_native(spec, plan);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window + 1, INT64_MAX);
    for (int64_t j = 0; j < dpe_config_pairs(context->config); j++) {
        double s = 1.0 / (1.0 - jet_long_ramp(context, fast, slow, j) * (1.0 - 1.0 / scale));
        far->q.scale[j] = far->k.scale[j] = s;
        far->q.offset[j] = (double)window - (double)window / s;
    }
}

/* ----------------------------------------------------------------------------------------- SELF */

static void build_self(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    int64_t window = dpe_spec_tokens(spec, "window", dpe_default_window(context));
    int64_t usual = (int64_t)ceil(dpe_half_trained_ratio(context)) + 1;
    int64_t group = dpe_spec_whole(spec, "group", usual < 1 << 20 ? usual : 1 << 20, 2, 1 << 20);
    double rate = dpe_spec_number(spec, "rate", 0.02 * 4096.0 / (double)context->trained_length,
                                  0x1p-30, 1e6);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, INT64_MAX);
    struct dpe_position_map *sides[] = {&far->q, &far->k};
    for (int side = 0; side < 2; side++) {
        /* The first token has no group of its own in the released code: it is in that of the
         * second. */
        sides[side]->group_from = side == 0 ? (double)window + 1.0 : 1.0;
        sides[side]->group_most = (double)group;
        sides[side]->group_rate = rate;
    }
    dpe_map_fill(&far->q, plan->n_pairs, 1.0, (double)window);
}

/* ----------------------------------------------------------------------------------------- CoPE */

static void build_cope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t n_pairs = dpe_config_pairs(spec->context->config);
    int64_t clip = dpe_spec_whole(spec, "clip", 5 * n_pairs / 16, 0, n_pairs);
    bool hard = dpe_spec_flag(spec, "hard", false);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
    for (int64_t i = 0; i < clip; i++) {
        double along = clip > 1 ? (double)i / (double)(clip - 1) : 0.0;
        double kept = hard ? 0.0 : 0.5 * (1.0 + cos(PI * along));
        plan->inv_freq[n_pairs - clip + i] *= kept;
    }
}

/* ------------------------------------------------------------------------------------- AdaGroPE */

/* r >= 1 with 1 + r + r^2 + r^3 = total, 1 when total is at most 4. */
static double solve_reuse(double total)
{
    double low = 1.0;
    double high = fmax(1.0, cbrt(total));
    for (int i = 0; i < 200; i++) {
        double r = 0.5 * (low + high);
        double sum = 1.0 + r + r * r + r * r * r;
        *(sum < total ? &low : &high) = r;
    }
    return total <= 4.0 ? 1.0 : high;
}

static void build_adagrope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    int64_t first = dpe_spec_tokens(spec, "first", dpe_most(1, context->trained_length / 4));
    double usual = solve_reuse((double)context->length / (double)first);
    double reuse = dpe_spec_number(spec, "reuse", usual, 1.0, DPE_MOST_SCALE);
    dpe_spec_native(spec, plan);
    double scale = 1.0;
    int64_t lo = 0;
    for (int b = 0; b < DPE_MAX_BANDS; b++) {
        double end = (double)lo + floor((double)first * scale);
        bool whole = b + 1 == DPE_MAX_BANDS || end >= (double)DPE_MOST_TOKENS;
        int64_t hi = whole ? INT64_MAX : (int64_t)end;
        struct dpe_band *band = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, lo, hi);
        double offset = (double)(b * first) - floor((double)lo / scale);
        dpe_band_fill(band, plan->n_pairs, scale, offset);
        band->q.floored = band->k.floored = true;
        if (whole) {
            break;
        }
        lo = hi;
        scale = fmin(scale * reuse, DPE_MOST_SCALE);
    }
}

/* ----------------------------------------------------------------------------------------- DoPE */

/* The first pair that turns less than once in L0; frequencies fall. */
static int64_t first_slow(const struct dpe_plan *plan, int64_t n_pairs, int64_t trained)
{
    int64_t j = 0;
    while (j < n_pairs && (double)trained * plan->inv_freq[j] >= 2.0 * PI) {
        j++;
    }
    return j;
}

static void build_dope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    enum { MOST = 1024 };
    double heads[MOST];
    int64_t all = plan->n_layers * plan->n_heads;
    int n = dpe_spec_list(spec, "heads", (double)NAN, 0.0, (double)(all - 1), heads, MOST);
    dpe_spec_native(spec, plan);
    int64_t n_pairs = dpe_config_pairs(spec->context->config);
    int64_t usual = first_slow(plan, n_pairs, spec->context->trained_length);
    int64_t from = dpe_spec_whole(spec, "from", usual, 0, n_pairs);
    /* At distance 0 a position and no position are the same. */
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, 1);
    struct dpe_band *rest = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 1, INT64_MAX);
    dpe_band_fill(rest, plan->n_pairs, INFINITY, 0.0);
    rest->per_head = true;
    if (spec->status == DPE_OK) {
        spec->status = DPE_NEW(&plan->mask, (size_t)all * (size_t)plan->n_pairs, spec->err,
                               "plan: out of memory for a mask");
    }
    int64_t count = n > 0 ? n : all;
    for (int64_t i = 0; i < count && spec->status == DPE_OK; i++) {
        int64_t head = n > 0 ? (int64_t)heads[i] : i;
        if (n > 0 && (double)head != heads[i]) {
            dpe_spec_fail(spec, "heads: expected whole numbers, found %g", heads[i]);
        }
        for (int64_t j = from; j < n_pairs; j++) {
            plan->mask[head * plan->n_pairs + j] = 1;
        }
    }
}

/* clang-format off */
const struct dpe_method dpe_adaptive_methods[] = {
    {"lampe\twindow=min(512;L0/16) tail=25*window/64 map=sigmoid(L/L0) official=1\t"
     "three bands of distance: near and last ones as they are, those between divided so that L "
     "becomes map (LaMPE, Zhang et al. 2026); map follows the curve fitted for Llama 3, in units "
     "of L0; official scales the logits by 1.1434; released code takes the prompt's length for L, "
     "counts the edges of the bands twice in a prefill, and places tokens in float32",
     build_lampe},
    {"jet-long\twindow=L0/16 group=ceil(L/L0)\t"
     "positions beyond the window are grouped and nothing is added (Jet-Long, 2026, arXiv "
     "2607.07740); keys `window` away are near, as released; released code takes the tokens so "
     "far for L, so its groups grow while it decodes, over a cache that was rotated with smaller "
     "ones: here L is fixed for a text",
     build_jet_long},
    {"jetlong_freq\twindow=L0/16 scale=(L-w)/(L0-w) beta_fast=32 beta_slow=1 official=1\t"
     "distances beyond the window are divided pair by pair along YaRN's ramp, not rounded "
     "(Jet-Long's variant by frequency, 2026); official scales the logits by 0.1*ln(scale)+1",
     build_jetlong_freq},
    {"self\twindow=min(1024;L0/8) group=2L/L0+1 rate=82/L0\t"
     "positions beyond the window are grouped, by 1 token at a text's beginning and by up to "
     "group-1 along a logistic curve (SELF, 2025, arXiv 2505.17296), as in the released prefill, "
     "whose rate is 0.02; released decode places keys by another rule",
     build_self},
    {"cope\tclip=5*pairs/16 hard=0\t"
     "the lowest frequencies fade to 0 along half a cosine, or with hard=1 are 0 (CoPE, Li et al. "
     "2026: the part without training; released code clips 20 of 64 pairs)",
     build_cope},
    {"adagrope\tfirst=L0/4 reuse=(L-becomes-L0)\t"
     "farther positions are used more often: four bands of `first` positions, used 1, r, r^2 and "
     "r^3 times (after AdaGroPE, Xu et al. 2025); an approximation made from the paper's "
     "description: its count grows by smaller steps, and its code was not found",
     build_adagrope},
    {"dope\theads=all from=(first-beyond-L0)\t"
     "pairs of heads lose their position (after DoPE, Xiong et al. 2025); heads=i/i/..., i = "
     "layer * heads + head; the paper finds heads and pairs by matrix entropy, and its other "
     "forms zero them or add noise, which no plan does",
     build_dope},
    {NULL, NULL},
};
/* clang-format on */

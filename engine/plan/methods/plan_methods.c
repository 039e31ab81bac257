/* The methods in one table, and what their builders share. Formulas and sources stand in the lines
 * of the table. */
#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/plan/methods/methods_internal.h"
#include "engine/plan/plan.h"
#include "engine/plan/rope.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

dpe_status dpe_plan_context_check(const struct dpe_plan_context *context, struct dpe_error *err)
{
    const struct dpe_config *config = context->config;
    if (config->head_dim < 2 || config->head_dim % 2 != 0) {
        return dpe_fail(err, DPE_USAGE, "plan: expected an even head_dim, found %" PRId64,
                        config->head_dim);
    }
    if (context->trained_length < 2 || context->trained_length > DPE_MOST_TOKENS ||
        context->length < 1 || context->length > DPE_MOST_TOKENS) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: expected a trained length from 2 and an evaluated length from 1, "
                        "both up to %" PRId64 ", found %" PRId64 " and %" PRId64,
                        DPE_MOST_TOKENS, context->trained_length, context->length);
    }
    return DPE_OK;
}

double dpe_length_ratio(const struct dpe_plan_context *context)
{
    return fmax(1.0, (double)context->length / (double)context->trained_length);
}

double dpe_half_trained_ratio(const struct dpe_plan_context *context)
{
    return fmax(1.0, 2.0 * (double)context->length / (double)context->trained_length);
}

int64_t dpe_at_least_one(int64_t x)
{
    return x < 1 ? 1 : x;
}

int64_t dpe_default_window(const struct dpe_plan_context *context)
{
    int64_t eighth = dpe_at_least_one(context->trained_length / 8);
    return eighth < 1024 ? eighth : 1024;
}

/* ------------------------------------------------------------------------- pieces of a plan */

void dpe_map_fill(struct dpe_position_map *map, int64_t n_pairs, double scale, double offset)
{
    for (int64_t j = 0; j < n_pairs; j++) {
        map->scale[j] = scale;
        map->offset[j] = offset;
    }
}

struct dpe_band *dpe_plan_add_band(struct dpe_plan *plan, enum dpe_band_kind kind, int64_t lo,
                                   int64_t hi)
{
    struct dpe_band *band = &plan->bands[plan->n_bands++];
    band->kind = kind;
    band->lo = lo;
    band->hi = hi;
    return band;
}

dpe_status dpe_plan_keep_native(const struct dpe_plan_context *context, struct dpe_plan *plan,
                                struct dpe_error *err)
{
    double a = 1.0;
    dpe_status status = dpe_rope_native(context->config, context->length, plan->inv_freq, &a, err);
    dpe_plan_set_rope_factor(plan, a);
    return status;
}

void dpe_spec_native(struct dpe_spec *spec, struct dpe_plan *plan)
{
    if (spec->status == DPE_OK) {
        spec->status = dpe_plan_keep_native(spec->context, plan, spec->err);
    }
}

int64_t dpe_spec_tokens(struct dpe_spec *spec, const char *key, int64_t fallback)
{
    return dpe_spec_whole(spec, key, fallback, 1, DPE_MOST_TOKENS);
}

/* clang-format off */
const struct dpe_method dpe_methods[] = {
    {"rope\tnative=1\t"
     "the model's own rotation; native=0 leaves its rope scaling out (Su et al. 2021)",
     dpe_build_rope},
    {"pi\tscale=L/L0\t"
     "all frequencies divided by the scale (position interpolation, Chen et al. 2023)",
     dpe_build_pi},
    {"ntk\tscale=L/L0\t"
     "base times scale^(d/(d-2)) (NTK-aware, bloc97 2023)",
     dpe_build_ntk},
    {"ntk-dynamic\tscale=L/L0\t"
     "base enlarged for the evaluated length (Hugging Face \"dynamic\")",
     dpe_build_ntk_dynamic},
    {"ntk-by-parts\tscale=L/L0 alpha=1 beta=32\t"
     "interpolates pairs that rotate at most alpha times in L0, keeps those that rotate at least "
     "beta times (Peng et al. 2023)",
     dpe_build_ntk_by_parts},
    {"yarn\tscale=L/L0 a=0.1*ln(scale)+1 beta_fast=32 beta_slow=1 truncate=1\t"
     "ramp between kept and divided frequencies, logits times a^2 (Peng et al. 2023, released "
     "code)",
     dpe_build_yarn},
    {"llama3\tscale=L/L0 low=1 high=4\t"
     "the ramp over wavelengths of Llama 3.1",
     dpe_build_llama3},
    {"longrope\tlong=config short=config scale=L/L0 a=sqrt(1+ln(scale)/ln(L0))\t"
     "each frequency divided by its own factor, from config.json or from long and short; long "
     "beyond L0 (Ding et al. 2024)",
     dpe_build_longrope},
    {"mrrope\tscale=L/L0 form=pro a=0.1*ln(scale)+1 beta_fast=32 beta_slow=1\t"
     "divisors that grow from 1 to the scale between the pairs that turn beta_fast times in L0 "
     "and beta_slow times: the t-th of n pairs by scale^(t(t+1)/(n(n+1))), with form=uni by "
     "scale^(t/n); logits times a^2 (MrRoPE, ICLR 2026, arXiv 2601.22181; no released code)",
     dpe_build_mrrope},
    {"rerope\twindow=min(2048;L0/4) official=1\t"
     "distances are cut at the window (ReRoPE, Su 2023); official adds log-n",
     dpe_build_rerope},
    {"leaky-rerope\twindow=min(512;L0/16) scale=L/L0 official=1\t"
     "distances beyond the window are divided by the scale, not rounded (Su 2023); official adds "
     "log-n",
     dpe_build_leaky_rerope},
    {"self-extend\twindow=min(1024;L0/8) group=2L/L0 exact=0\t"
     "positions beyond the window are grouped (Jin et al. 2024); adds floor(w/s), as released "
     "decode does, released prefill w/s",
     dpe_build_self_extend},
    {"dpe\twindow=min(1024;L0/8) scales=2L/L0 lengths=(instead-of-scales) groups=8 exact=0\t"
     "positions beyond the window are grouped, each range of pairs by its own scale, "
     "scale = max(1, floor(L/length)) (Lu et al. 2025); adds floor(w/s), released prefill w/s",
     dpe_build_dpe},
    {"dca\tchunk=3*L0/4 local=L0/8 official=1\t"
     "three bands by chunk (ChunkLlama, An et al. 2024); official scales the logits",
     dpe_build_dca},
    {"string\tshift=0.33*L window=128 official=1\t"
     "far positions shifted into trained ones (STRING, An et al. 2024); official scales the "
     "logits; released prefill counts distance S in both bands, this one once",
     dpe_build_string},
    {"streaming-llm\tsinks=4 window=L0-sinks\t"
     "first tokens and a sliding window, positions inside the cache (Xiao et al. 2023); the window "
     "counts the query: released recent_size=W is window=W+1",
     dpe_build_streaming_llm},
    {"lm-infinite\tsinks=10 window=L0\t"
     "first tokens at the window's distance and a sliding window (Han et al. 2023)",
     dpe_build_lm_infinite},
    {"lampe\twindow=min(512;L0/16) tail=25*window/64 map=sigmoid(L/L0) official=1\t"
     "three bands of distance: near and last ones as they are, those between divided so that L "
     "becomes map (LaMPE, Zhang et al. 2026); map follows the curve fitted for Llama 3, in units "
     "of L0; official scales the logits by 1.1434; released code takes the prompt's length for L, "
     "counts the edges of the bands twice in a prefill, and places tokens in float32",
     dpe_build_lampe},
    {"jet-long\twindow=L0/16 group=ceil(L/L0)\t"
     "positions beyond the window are grouped and nothing is added (Jet-Long, 2026, arXiv "
     "2607.07740); keys `window` away are near, as released; released code takes the tokens so "
     "far for L, so its groups grow while it decodes, over a cache that was rotated with smaller "
     "ones: here L is fixed for a text",
     dpe_build_jet_long},
    {"jetlong_freq\twindow=L0/16 scale=(L-w)/(L0-w) beta_fast=32 beta_slow=1 official=1\t"
     "distances beyond the window are divided pair by pair along YaRN's ramp, not rounded "
     "(Jet-Long's variant by frequency, 2026); official scales the logits by 0.1*ln(scale)+1",
     dpe_build_jetlong_freq},
    {"self\twindow=min(1024;L0/8) group=2L/L0+1 rate=82/L0\t"
     "positions beyond the window are grouped, by 1 token at a text's beginning and by up to "
     "group-1 along a logistic curve (SELF, 2025, arXiv 2505.17296), as in the released prefill, "
     "whose rate is 0.02; released decode places keys by another rule",
     dpe_build_self},
    {"cope\tclip=5*pairs/16 hard=0\t"
     "the lowest frequencies fade to 0 along half a cosine, or with hard=1 are 0 (CoPE, Li et al. "
     "2026: the part without training; released code clips 20 of 64 pairs)",
     dpe_build_cope},
    {"hirope\twindow=min(1024;L0/8) segment=2L/L0 split=pairs/2\t"
     "pairs from split on count segments beyond the window, the others tokens (HiRoPE, Zhang et "
     "al. 2024); a segment is so many tokens, where the paper takes a function of the program",
     dpe_build_hirope},
    {"adagrope\tfirst=L0/4 reuse=(L-becomes-L0)\t"
     "farther positions are used more often: four bands of `first` positions, used 1, r, r^2 and "
     "r^3 times (after AdaGroPE, Xu et al. 2025); an approximation made from the paper's "
     "description: its count grows by smaller steps, and its code was not found",
     dpe_build_adagrope},
    {"dope\theads=all from=(first-beyond-L0)\t"
     "pairs of heads lose their position (after DoPE, Xiong et al. 2025); heads=i/i/..., i = "
     "layer * heads + head; the paper finds heads and pairs by matrix entropy, and its other "
     "forms zero them or add noise, which no plan does",
     dpe_build_dope},
    {"select\tk=8 block=min(64;L0/16) sinks=block local=L0/4 refresh=1 representative=mean "
     "attended=4 last=min(64;L0/16) slashes=0 unit=kv-head positions=true scored=bare over=rope\t"
     "the first tokens, a local window and the k blocks of keys with the best scores, with the "
     "positions of any method: over=METHOD:KEY=VALUE,... comes last; representative: mean, "
     "extremes, attended, keys, weighted, probability or compressed (attended, last and slashes "
     "belong to one of them); unit: head, kv-head or layer; positions: true, packed or constant; "
     "scored: bare, true or constant; the query at the first of `refresh` positions chooses for "
     "all of them",
     dpe_build_select},
    {"longheads\tblock=min(256;L0/16) k=L0/block-3 refresh=1 mean=0\t"
     "each head meets the first block, its k best and the last two, positions one after another "
     "(LongHeads, Lu et al. 2024); a block is scored by its keys weighed by an attention inside "
     "the block, as in released code, or with mean=1 by the mean of its keys; released prefill "
     "leaves out the query's own key, this one as its decode does not",
     dpe_build_longheads},
    {"infllm\tblock=min(128;L0/32) sinks=block local=min(4096;L0/2) k=16 attended=4 refresh=1\t"
     "first tokens, a local window and k blocks that a layer chooses by their most attended keys, "
     "all before the window at one distance (InfLLM, Xiao et al. 2024); attended by the paper's "
     "formula, where released code sums probabilities; every query chooses, as in released "
     "decode, where its prefill takes the mean of 512",
     dpe_build_infllm},
    {"reattention\tblock=min(32;L0/32) sinks=min(32;L0/32) local=min(4096;L0/2) "
     "k=(so-that-all-is-L0) refresh=1\t"
     "first tokens, a local window and the k blocks that hold the keys with the largest products "
     "without positions, one after another (ReAttention, Liu et al. 2025); blocks lie on a grid "
     "and are a KV head's own for every query, where released code takes spans around keys and "
     "joins those of all heads and queries of a chunk",
     dpe_build_reattention},
    {"minference\tblock=min(64;L0/16) k=100 refresh=block\t"
     "the block-sparse pattern of MInference (Jiang et al. 2024): each head meets its own block "
     "and the k-1 best by mean keys with positions; the first query of a block chooses, where "
     "released code takes the mean of the block and may leave the own block out",
     dpe_build_minference},
    {"vertical-slash\tsinks=min(30;L0/8) local=min(100;L0/4) columns=min(970;L0/4) "
     "slashes=min(5996;L0/4) last=min(64;L0/16) refresh=16*last\t"
     "the vertical-and-slash pattern of MInference (Jiang et al. 2024): each head meets first and "
     "last keys and the columns and distances to which the last queries give most; the last "
     "queries before each group of `refresh`, where released code takes those of the whole prompt "
     "for all of it, counts first and last ones among the best, widens distances to blocks of 64 "
     "and decodes without a selection; keys after those queries are all met",
     dpe_build_vertical_slash},
    {"moba\tblock=min(4096;L0/16) k=12 refresh=1\t"
     "each head meets its own block and the k-1 best by mean keys with positions (MoBA, Lu et al. "
     "2025, without its training)",
     dpe_build_moba},
};
/* clang-format on */
const size_t dpe_n_methods = sizeof dpe_methods / sizeof dpe_methods[0];

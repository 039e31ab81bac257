/* Methods that choose what a query meets: each is positions, as any method gives them, and a
 * selection. */
#include "engine/plan/methods/methods_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const representatives[] = {"mean",     "extremes",    "attended",  "keys",
                                              "weighted", "probability", "compressed"};
static const char *const units[] = {"head", "kv-head", "layer"};
static const char *const places[] = {"true", "packed", "constant"};
static const char *const scored[] = {"bare", "true", "constant"};

/* A share of the trained length, at least one token. */
static int64_t trained_share(const struct dpe_spec *spec, int64_t part)
{
    return dpe_most(1, spec->context->trained_length / part);
}

static int64_t spec_count(struct dpe_spec *spec, const char *key, int64_t fallback)
{
    return dpe_spec_whole(spec, key, fallback, 0, DPE_MOST_TOKENS);
}

/* A model that was trained to choose its keys has room for one choice. */
static void check_model(struct dpe_spec *spec, const struct dpe_plan *plan)
{
    if (dpe_selects(&plan->selection)) {
        dpe_spec_fail(spec,
                      "the model chooses the keys that a query meets itself (model_type %s); use a "
                      "method that selects nothing",
                      spec->context->config->model_type);
    }
}

/* The model's own rotation, for methods that bring no positions of their own. */
static void plain_positions(struct dpe_spec *spec, struct dpe_plan *plan)
{
    check_model(spec, plan);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
}

/* The positions of select: those of the method after "over=". */
static void inner_positions(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_plan_context context = *spec->context;
    context.select = NULL;
    check_model(spec, plan);
    if (spec->status != DPE_OK) {
        return;
    }
    bool selects = strncmp(spec->over, "select", 6) == 0;
    struct dpe_plan inner = {0};
    if (!selects) {
        spec->status = dpe_plan_make(spec->over, &context, &inner, spec->err);
        if (spec->status != DPE_OK) {
            dpe_fail_prefix(spec->err, "method select: over");
            return;
        }
    }
    if (selects || dpe_selects(&inner.selection)) {
        dpe_spec_fail(spec, "over: expected a method that selects nothing, found \"%.64s\"",
                      spec->over);
        dpe_plan_free(&inner);
        return;
    }
    dpe_plan_free(plan);
    *plan = inner;
}

static void build_select(struct dpe_spec *spec, struct dpe_plan *plan)
{
    inner_positions(spec, plan);
    if (spec->status != DPE_OK) {
        return;
    }
    struct dpe_selection *s = &plan->selection;
    s->k = spec_count(spec, "k", 8);
    s->block = dpe_spec_tokens(spec, "block", dpe_least(64, trained_share(spec, 16)));
    s->sinks = spec_count(spec, "sinks", s->block);
    s->local = dpe_spec_tokens(spec, "local", trained_share(spec, 4));
    s->refresh = dpe_spec_tokens(spec, "refresh", 1);
    s->representative = dpe_spec_word(spec, "representative", DPE_REPRESENT_MEAN, representatives,
                                      sizeof representatives / sizeof *representatives);
    if (s->representative == DPE_REPRESENT_ATTENDED) {
        s->attended = dpe_spec_whole(spec, "attended", dpe_least(4, s->block), 1, s->block);
    }
    if (s->representative == DPE_REPRESENT_PROBABILITY) {
        s->last = dpe_spec_tokens(spec, "last", dpe_least(64, trained_share(spec, 16)));
        s->slashes = spec_count(spec, "slashes", 0);
    }
    s->unit = dpe_spec_word(spec, "unit", DPE_CHOICE_KV_HEAD, units, sizeof units / sizeof *units);
    s->positions =
        dpe_spec_word(spec, "positions", DPE_PLACE_TRUE, places, sizeof places / sizeof *places);
    s->scored =
        dpe_spec_word(spec, "scored", DPE_SCORE_BARE, scored, sizeof scored / sizeof *scored);
}

static void build_longheads(struct dpe_spec *spec, struct dpe_plan *plan)
{
    plain_positions(spec, plan);
    struct dpe_selection *s = &plan->selection;
    s->block = dpe_spec_tokens(spec, "block", dpe_least(256, trained_share(spec, 16)));
    /* With the first block, the block before the query's and the query's own, L0 tokens at most. */
    int64_t most = spec->context->trained_length / s->block - 3;
    s->k = spec_count(spec, "k", most > 0 ? most : 0);
    s->sinks = s->block;
    s->local = s->block + 1;
    s->refresh = dpe_spec_tokens(spec, "refresh", 1);
    s->representative =
        dpe_spec_flag(spec, "mean", false) ? DPE_REPRESENT_MEAN : DPE_REPRESENT_WEIGHTED;
    s->unit = DPE_CHOICE_HEAD;
    s->positions = DPE_PLACE_PACKED;
}

static void build_infllm(struct dpe_spec *spec, struct dpe_plan *plan)
{
    plain_positions(spec, plan);
    struct dpe_selection *s = &plan->selection;
    s->block = dpe_spec_tokens(spec, "block", dpe_least(128, trained_share(spec, 32)));
    s->sinks = spec_count(spec, "sinks", s->block);
    s->local = dpe_spec_tokens(spec, "local", dpe_least(4096, trained_share(spec, 2)));
    s->k = spec_count(spec, "k", 16);
    s->representative = DPE_REPRESENT_ATTENDED;
    s->attended = dpe_spec_whole(spec, "attended", dpe_least(4, s->block), 1, s->block);
    s->refresh = dpe_spec_tokens(spec, "refresh", 1);
    s->unit = DPE_CHOICE_LAYER;
    s->positions = DPE_PLACE_CONSTANT;
    s->scored = DPE_SCORE_CONSTANT;
}

static void build_reattention(struct dpe_spec *spec, struct dpe_plan *plan)
{
    plain_positions(spec, plan);
    struct dpe_selection *s = &plan->selection;
    s->block = dpe_spec_tokens(spec, "block", dpe_least(32, trained_share(spec, 32)));
    s->sinks = spec_count(spec, "sinks", dpe_least(32, trained_share(spec, 32)));
    s->local = dpe_spec_tokens(spec, "local", dpe_least(4096, trained_share(spec, 2)));
    int64_t left = spec->context->trained_length - s->sinks - s->local;
    int64_t most = left / s->block - 1;
    s->k = spec_count(spec, "k", most > 0 ? dpe_least(most, 127) : 0);
    s->representative = DPE_REPRESENT_KEYS;
    s->refresh = dpe_spec_tokens(spec, "refresh", 1);
    s->unit = DPE_CHOICE_KV_HEAD;
    s->positions = DPE_PLACE_PACKED;
}

/* Each head's own block and the k-1 best by their mean keys. */
static void own_and_best(struct dpe_spec *spec, struct dpe_plan *plan, int64_t block, int64_t k,
                         int64_t refresh)
{
    plain_positions(spec, plan);
    struct dpe_selection *s = &plan->selection;
    s->block = dpe_spec_tokens(spec, "block", dpe_least(block, trained_share(spec, 16)));
    s->k = dpe_spec_whole(spec, "k", k, 1, DPE_MOST_TOKENS) - 1;
    s->local = 1;
    s->refresh = dpe_spec_tokens(spec, "refresh", refresh > 0 ? refresh : s->block);
    s->unit = DPE_CHOICE_HEAD;
    s->scored = DPE_SCORE_TRUE;
}

static void build_minference(struct dpe_spec *spec, struct dpe_plan *plan)
{
    own_and_best(spec, plan, 64, 100, 0);
}

static void build_moba(struct dpe_spec *spec, struct dpe_plan *plan)
{
    own_and_best(spec, plan, 4096, 12, 1);
}

static void build_vertical_slash(struct dpe_spec *spec, struct dpe_plan *plan)
{
    plain_positions(spec, plan);
    struct dpe_selection *s = &plan->selection;
    s->block = 1;
    s->sinks = spec_count(spec, "sinks", dpe_least(30, trained_share(spec, 8)));
    s->local = dpe_spec_tokens(spec, "local", dpe_least(100, trained_share(spec, 4)));
    s->k = spec_count(spec, "columns", dpe_least(970, trained_share(spec, 4)));
    s->slashes = spec_count(spec, "slashes", dpe_least(5996, trained_share(spec, 4)));
    s->last = dpe_spec_tokens(spec, "last", dpe_least(64, trained_share(spec, 16)));
    s->refresh = dpe_spec_tokens(spec, "refresh", 16 * s->last);
    s->representative = DPE_REPRESENT_PROBABILITY;
    s->unit = DPE_CHOICE_HEAD;
    s->scored = DPE_SCORE_TRUE;
}

/* clang-format off */
const struct dpe_method dpe_select_methods[] = {
    {"select\tk=8 block=min(64;L0/16) sinks=block local=L0/4 refresh=1 representative=mean "
     "attended=4 last=min(64;L0/16) slashes=0 unit=kv-head positions=true scored=bare over=rope\t"
     "the first tokens, a local window and the k blocks of keys with the best scores, with the "
     "positions of any method: over=METHOD:KEY=VALUE,... comes last; representative: mean, "
     "extremes, attended, keys, weighted, probability or compressed (attended, last and slashes "
     "belong to one of them); unit: head, kv-head or layer; positions: true, packed or constant; "
     "scored: bare, true or constant; the query at the first of `refresh` positions chooses for "
     "all of them",
     build_select},
    {"longheads\tblock=min(256;L0/16) k=L0/block-3 refresh=1 mean=0\t"
     "each head meets the first block, its k best and the last two, positions one after another "
     "(LongHeads, Lu et al. 2024); a block is scored by its keys weighed by an attention inside "
     "the block, as in released code, or with mean=1 by the mean of its keys; released prefill "
     "leaves out the query's own key, this one as its decode does not",
     build_longheads},
    {"infllm\tblock=min(128;L0/32) sinks=block local=min(4096;L0/2) k=16 attended=4 refresh=1\t"
     "first tokens, a local window and k blocks that a layer chooses by their most attended keys, "
     "all before the window at one distance (InfLLM, Xiao et al. 2024); attended by the paper's "
     "formula, where released code sums probabilities; every query chooses, as in released "
     "decode, where its prefill takes the mean of 512",
     build_infllm},
    {"reattention\tblock=min(32;L0/32) sinks=min(32;L0/32) local=min(4096;L0/2) "
     "k=(so-that-all-is-L0) refresh=1\t"
     "first tokens, a local window and the k blocks that hold the keys with the largest products "
     "without positions, one after another (ReAttention, Liu et al. 2025); blocks lie on a grid "
     "and are a KV head's own for every query, where released code takes spans around keys and "
     "joins those of all heads and queries of a chunk",
     build_reattention},
    {"minference\tblock=min(64;L0/16) k=100 refresh=block\t"
     "the block-sparse pattern of MInference (Jiang et al. 2024): each head meets its own block "
     "and the k-1 best by mean keys with positions; the first query of a block chooses, where "
     "released code takes the mean of the block and may leave the own block out",
     build_minference},
    {"vertical-slash\tsinks=min(30;L0/8) local=min(100;L0/4) columns=min(970;L0/4) "
     "slashes=min(5996;L0/4) last=min(64;L0/16) refresh=16*last\t"
     "the vertical-and-slash pattern of MInference (Jiang et al. 2024): each head meets first and "
     "last keys and the columns and distances to which the last queries give most; the last "
     "queries before each group of `refresh`, where released code takes those of the whole prompt "
     "for all of it, counts first and last ones among the best, widens distances to blocks of 64 "
     "and decodes without a selection; keys after those queries are all met",
     build_vertical_slash},
    {"moba\tblock=min(4096;L0/16) k=12 refresh=1\t"
     "each head meets its own block and the k-1 best by mean keys with positions (MoBA, Lu et al. "
     "2025, without its training)",
     build_moba},
    {NULL, NULL},
};
/* clang-format on */

/* -------------------------------------------------------------------- selections of other plans */

dpe_status dpe_plan_select(struct dpe_plan *plan, const char *keys,
                           const struct dpe_plan_context *context, struct dpe_error *err)
{
    static const char begin[] = "select:";
    DPE_SCOPED(dpe_plan_free) struct dpe_plan made = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plain = {0};
    char spec[sizeof plan->name];
    char name[3 * sizeof plan->name];
    if (strstr(keys, "over=") != NULL || strlen(keys) >= sizeof spec - sizeof begin) {
        return dpe_fail(
            err, DPE_USAGE,
            "selection: expected keys of the method select without \"over\", at most %zu "
            "characters, found \"%.64s\"",
            sizeof spec - sizeof begin - 1, keys);
    }
    snprintf(spec, sizeof spec, "%s%s", keys[0] != '\0' ? begin : "select", keys);
    if (dpe_spec_make(spec, context, true, &made, err) != DPE_OK) {
        return dpe_fail_prefix(err, "selection");
    }
    DPE_TRY(dpe_spec_make("rope", context, false, &plain, err));
    if (memcmp(&made.temperature, &plain.temperature, sizeof made.temperature) != 0) {
        return dpe_fail(err, DPE_USAGE,
                        "selection: a temperature belongs to the method or table that the "
                        "selection is for, found \"%.64s\"",
                        keys);
    }
    plan->selection = made.selection;
    dpe_plan_selection_text(plan, spec);
    snprintf(name, sizeof name, "%s%s,over=%s", begin, spec, plan->name);
    name[sizeof plan->name - 1] = '\0'; /* cut if longer */
    memcpy(plan->name, name, sizeof plan->name);
    return dpe_plan_check(plan, err);
}

void dpe_plan_selection_text(const struct dpe_plan *plan, char *text)
{
    const struct dpe_selection *s = &plan->selection;
    char own[96] = "";
    if (s->representative == DPE_REPRESENT_ATTENDED) {
        snprintf(own, sizeof own, ",attended=%" PRId64, s->attended);
    } else if (s->representative == DPE_REPRESENT_PROBABILITY) {
        snprintf(own, sizeof own, ",last=%" PRId64 ",slashes=%" PRId64, s->last, s->slashes);
    }
    snprintf(text, sizeof plan->name,
             "k=%" PRId64 ",block=%" PRId64 ",sinks=%" PRId64 ",local=%" PRId64 ",refresh=%" PRId64
             ",representative=%s%s,unit=%s,positions=%s,scored=%s",
             s->k, s->block, s->sinks, s->local, s->refresh, representatives[s->representative],
             own, units[s->unit], places[s->positions], scored[s->scored]);
    text[0] = dpe_selects(s) && s->first == 0 ? text[0] : '\0';
}

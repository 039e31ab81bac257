/* One test of a device: a small random model with the head dimension, the dtype and the query heads
 * per KV head of the model at hand runs on it and on the processors, in float on these: a prefill
 * in two chunks, tokens one by one, a few and many after a cache, branches, each under one band,
 * two bands with key pairs, and three bands, with logits that hang on few keys. So the kernels and
 * products of a session are held against other code, all but the largest logit's index and the
 * profile's sums. */
#include "engine/plan/methods/methods.h"
#include "engine/session/device_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/model.h"

enum {
    LAYERS = 2,
    KV_HEADS = 2,
    WIDE = 256, /* the stream, the MLP, the vocabulary; of short tests NARROW */
    NARROW = 64,
    LONG = 256, /* tokens of a test that is not short */
    MOST_TOKENS = 1 << 17,
    FEW = 3,   /* rows that decoding takes at once */
    MANY = 40, /* rows after a cache that go the way of a prefill */
    BRANCHES = 3,
    STEPS = 2,
    STEPS_IN_USE = 4,        /* so many that their launches become a graph, which then runs */
    BEHIND = 1 + FEW + MANY, /* tokens of the first branch after the prefill */
    ROOM = BEHIND + BRANCHES * STEPS_IN_USE,
    ROWS = 3 + BRANCHES * (STEPS + STEPS_IN_USE),
    USED_PLAN = 1,  /* steps as they are in use are asked under this one */
    EXACT_PLAN = 2, /* has no selection, unless the model has */
};

/* Logits of the small model spread with a deviation of about 1. On the emulated device rounding
 * made of them at most 7e-6, 0.008 and 0.07 (the largest answer's rms, all kernels), one head of
 * eight whose output was zero 0.5 to 0.9. */
static double tolerance(enum dpe_dtype dtype)
{
    return dtype == DPE_F32 ? 1e-3 : dtype == DPE_F16 ? 0.05 : 0.2;
}

const char *const dpe_device_questions[DPE_QUESTIONS] = {
    "a prefill", "one token", "a few tokens", "many tokens", "branches", "steps as in use"};

/* Where the logits of each question are among those of all; a prefill has likelihoods. */
static const struct {
    int first, rows;
} parts[DPE_QUESTIONS] = {{0, 0},
                          {0, 1},
                          {1, 1},
                          {2, 1},
                          {3, BRANCHES *STEPS},
                          {3 + BRANCHES * STEPS, BRANCHES *STEPS_IN_USE}};

struct test {
    const struct dpe_device_request *request;
    struct dpe_config config;
    struct dpe_model *model;
    int64_t n; /* tokens of the prefill */
    int32_t *tokens;
};

struct answers {
    double *nll;   /* [n − 1] */
    float *logits; /* [ROWS][vocab] */
};

/* ------------------------------------------------------------------------------------ the model */

/* Keys that a window of a small model has: fewer than the text, and no multiple of a tile. */
static int64_t small_window(int64_t window, int64_t tokens)
{
    const int64_t most = tokens / 3 + 5;
    return window < most ? window : most;
}

/* Heads of the sizes of all kinds of layers, few of them: as many for a KV head as the model has,
 * in each kind. */
static void small_heads(const struct dpe_config *config, struct dpe_config *small)
{
    int64_t least = config->n_kv_heads;
    bool divides = true;
    for (int i = 0; i < config->n_kinds; i++) {
        const int64_t own = config->kinds[i].kv_heads;
        least = own > 0 ? dpe_least(least, own) : least;
    }
    small->n_heads = KV_HEADS * (config->n_heads / least);
    for (int i = 0; i < config->n_kinds; i++) {
        const int64_t own = config->kinds[i].kv_heads;
        divides = divides && (own == 0 || small->n_heads * own % config->n_heads == 0);
    }
    divides = divides && small->n_heads * config->n_kv_heads % config->n_heads == 0;
    small->n_heads = divides ? small->n_heads : config->n_heads;
    small->n_kv_heads = small->n_heads * config->n_kv_heads / config->n_heads;
    for (int i = 0; i < config->n_kinds; i++) {
        small->kinds[i].kv_heads = small->n_heads * config->kinds[i].kv_heads / config->n_heads;
    }
}

/* Layers whose keys are seen in several ways: one of each, or the window of attention's branches;
 * and one more that has keys of a layer before. */
static void small_kinds(const struct dpe_config *config, int64_t tokens, struct dpe_config *small)
{
    for (int i = 0; i < config->n_kinds; i++) {
        small->kinds[i].window = small_window(config->kinds[i].window, tokens);
    }
    const bool kinds = config->layer_kinds != NULL && config->n_kinds > LAYERS;
    small->shared_layers = config->shared_layers > 0 && config->n_kinds > 1 ? 1 : 0;
    small->n_layers = (kinds ? config->n_kinds : LAYERS) + small->shared_layers;
    small->wide_layers = config->wide_layers > 0 ? small->shared_layers : 0;
    small->input_width = config->input_width > 0 ? small->intermediate / 2 : 0;
    small->input_vocab = config->input_width > 0 ? small->vocab : 0;
}

/* A selection over so few keys. Where keys, or experts, are chosen by their scores, rounding may
 * choose others. So in halves all are chosen, and a test in float shows that the choice is right.
 */
static struct dpe_selection small_selection(struct dpe_selection s, int64_t tokens, bool all)
{
    const int64_t most = tokens / 12 + 2;
    if (!dpe_selects(&s)) {
        return s;
    }
    s.block = s.block < most ? s.block : most;
    s.local = s.local < most + 1 ? s.local : most + 1;
    s.sinks = s.sinks < 4 ? s.sinks : 4;
    s.refresh = s.refresh < 8 ? s.refresh : 8;
    s.last = s.last < 8 ? s.last : 8;
    s.attended = s.attended < s.block ? s.attended : s.block;
    s.k = all ? tokens + ROOM : s.k < 4 ? s.k : 4;
    s.first = s.first < s.k ? s.first : s.k;
    s.slashes = s.slashes == 0 ? 0 : all ? tokens + ROOM : s.slashes < 4 ? s.slashes : 4;
    return s;
}

static void small_choices(const struct dpe_config *config, int64_t tokens, struct dpe_config *small)
{
    const bool all = dpe_config_unpacked(small) != DPE_F32;
    small->n_experts = config->n_experts < 4 ? config->n_experts : 4;
    small->experts_per_token = all || config->experts_per_token > small->n_experts
                                   ? small->n_experts
                                   : config->experts_per_token;
    small->experts_per_token =
        !all && small->experts_per_token == small->n_experts && small->n_experts > 1
            ? small->n_experts - 1
            : small->experts_per_token;
    small->expert_width = config->n_experts > 0 ? small->intermediate : 0;
    small->shared_width = config->shared_width > 0 ? small->intermediate : 0;
    small->dense_layers = config->dense_layers > 0 ? 1 : 0;
    if (!all && small->n_experts == 4 && config->router.groups > 1) {
        small->router.groups = 2; /* and so two experts are left to choose */
        small->router.of_these = 1;
        small->experts_per_token = dpe_least(small->experts_per_token, 2);
    } else {
        small->router.groups = 0;
    }
    small->selection = small_selection(config->selection, tokens, all);
}

/* States of the same size, of fewer heads. */
static void small_states(const struct dpe_config *config, struct dpe_config *small)
{
    const struct dpe_recurrent *r = &config->recurrent;
    if (r->value_heads > 0) {
        small->recurrent.key_heads = dpe_least(r->key_heads, KV_HEADS);
        small->recurrent.value_heads =
            small->recurrent.key_heads * dpe_least(r->value_heads / r->key_heads, 4);
    }
}

static struct dpe_rope_config plain_rope(const struct dpe_rope_config *rope)
{
    struct dpe_rope_config plain = dpe_rope_plain;
    plain.partial_rotary_factor = rope->partial_rotary_factor;
    return plain;
}

/* A copy of the model's: a new field of struct dpe_config that is large or points has its place
 * here. */
static void small_config(const struct dpe_config *config, int64_t tokens, bool in_float,
                         struct dpe_config *small)
{
    const int64_t wide = tokens < LONG && config->blocks == 0 ? NARROW : WIDE; /* of whole blocks */
    memcpy(small, config, sizeof *small);
    snprintf(small->model_type, sizeof small->model_type, "%s",
             config->family != NULL ? config->family->model_type : "llama");
    small->family = NULL;
    small->longer_by = NULL;
    small->layer_kinds = NULL;
    small->hidden = small->intermediate = small->vocab = wide;
    small->max_position = MOST_TOKENS;
    small->made_longer = small->weight_bytes = 0;
    small->rms_eps = 1e-5;
    small->bos_id = -1;
    small->n_eos = 0;
    small->blocks = in_float ? 0 : config->blocks;
    small->dtype = in_float ? DPE_F32 : config->dtype;
    memset(small->fp8_block, 0, sizeof small->fp8_block);
    small->tied_embeddings = small->tied_outside = small->own_head = false;
    small->parallel = small->centred = small->fast = small->values_are_keys = false;
    small->routed_every = small->further_layers = 0;
    /* Random heads have no norms that make a larger one fit, as Gemma 4's have: scores would be so
     * far apart that what rounding does to one decides. */
    small->attention_multiplier =
        fmin(config->attention_multiplier, 1.0 / sqrt((double)config->head_dim));
    small->query_length = config->query_length < (double)tokens / 3.0 ? config->query_length
                                                                      : floor((double)tokens / 3.0);
    small->rope = plain_rope(&config->rope);
    small->local_rope = plain_rope(&config->local_rope);
    small_heads(config, small);
    small_kinds(config, tokens, small);
    small_states(config, small);
    small_choices(config, tokens, small);
}

bool dpe_device_chooses(const struct dpe_config *config, const struct dpe_selection *selection)
{
    return config->n_experts > 0 || dpe_selects(&config->selection) ||
           (selection != NULL && dpe_selects(selection));
}

void dpe_device_request_make(const struct dpe_config *config,
                             const struct dpe_session_options *options,
                             const struct dpe_selection *selection, int64_t tokens, bool in_float,
                             struct dpe_device_request *request)
{
    memset(request, 0, sizeof *request);
    snprintf(request->device, sizeof request->device, "%s", options->device);
    small_config(config, tokens, in_float, &request->config);
    if (selection != NULL && !dpe_selects(&config->selection)) {
        const bool all = dpe_config_unpacked(&request->config) != DPE_F32;
        request->selection = small_selection(*selection, tokens, all);
    }
    request->tokens = tokens;
    request->n_threads = options->n_threads;
    request->plan = DPE_DEVICE_ALL;
    request->timeout_seconds =
        60.0; /* far longer than a working device needs for these few tokens */
}

void dpe_device_kind(const struct dpe_device_request *request, char text[512])
{
    static const char *const norms[] = {"", ", norm of heads", ", norm of all heads"};
    static const char *const activations[] = {"", ", GeGLU", ", clamped SwiGLU"};
    const struct dpe_config *c = &request->config;
    const enum dpe_dtype dtype = dpe_config_unpacked(c);
    int used = snprintf(
        text, 512, "%s, %s, head dimension %lld (%lld rotate), %lld heads for a KV head%s%s",
        c->model_type,
        dtype == DPE_F32   ? "float"
        : dtype == DPE_F16 ? "float16"
                           : "bfloat16",
        (long long)c->head_dim, (long long)(2 * dpe_config_pairs(c)),
        (long long)(c->n_heads / c->n_kv_heads), norms[c->qk_norm], activations[c->activation]);
    const struct {
        const char *words;
        double value; /* 0: not there */
    } words[] = {{"biases %g", c->qkv_bias + 2 * c->o_bias + 4 * c->mlp_bias},
                 {"embeddings times %.4g", c->embedding_multiplier},
                 {"logits times %.4g", c->logits_multiplier},
                 {"attention times %.4g", c->attention_multiplier},
                 {"queries grow by %.4g", c->query_growth},
                 {"norms after rotation", c->late_norms ? 1 : 0},
                 {"norms of values", c->value_norms ? 1 : 0},
                 {"inputs of layers", c->input_width > 0 ? 1 : 0},
                 {"shared keys", c->shared_layers > 0 ? 1 : 0},
                 {"attention's cap %.4g", c->attention_cap},
                 {"logits' cap %.4g", c->logit_cap},
                 {"sinks", c->sinks ? 1 : 0},
                 {"a gate of the output", c->output_gate ? 1 : 0},
                 {"states of %g", (double)c->recurrent.key_dim},
                 {"times %g", (double)c->recurrent.value_dim},
                 {"of %g heads", (double)c->recurrent.value_heads},
                 {"experts %g", (double)c->n_experts},
                 {"of which %g are chosen", (double)c->experts_per_token},
                 {"weights sum to 1", c->n_experts > 0 && c->experts_normalised ? 1 : 0},
                 {"a router of sigmoids", c->n_experts > 0 && c->router.sigmoid ? 1 : 0},
                 {"before the experts", c->n_experts > 0 && c->router.before ? 1 : 0},
                 {"experts beside an MLP", c->experts_beside ? 1 : 0},
                 {"branches with blocks of %g", c->branches ? (double)c->selection.block : 0}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char part[64];
        snprintf(part, sizeof part, words[i].words, words[i].value);
        used += words[i].value != 0.0 && used < 400
                    ? snprintf(text + used, 512 - (size_t)used, ", %s", part)
                    : 0;
    }
    for (int type = 0; type < DPE_DTYPES && used < 430; type++) {
        used += (c->blocks >> type & 1U) != 0
                    ? snprintf(text + used, 512 - (size_t)used, ", %s", dpe_block_types[type].name)
                    : 0;
    }
    for (int i = 0; i < c->n_kinds && used < 440; i++) {
        const struct dpe_layer_kind *kind = &c->kinds[i];
        used += snprintf(text + used, 512 - (size_t)used, ", %s %lld (rope %d)",
                         kind->chunked ? "chunks" : "window", (long long)kind->window, kind->rope);
        used += kind->head_dim > 0 ? snprintf(text + used, 512 - (size_t)used, " of %lld x %lld",
                                              (long long)kind->kv_heads, (long long)kind->head_dim)
                                   : 0;
    }
    if (dpe_selects(&request->selection) && used < 440) { /* at the end (find_passed) */
        const struct dpe_selection *s = &request->selection;
        (void)snprintf(text + used, 512 - (size_t)used, ", selection %lld/%d/%d/%d/%d",
                       (long long)s->block, (int)s->representative, (int)s->unit, (int)s->positions,
                       (int)s->scored);
    }
}

/* ------------------------------------------------------------------------------------ the plans */

/* Key pairs: every head has others. */
static dpe_status add_mask(struct dpe_plan *plan, struct dpe_error *err)
{
    int64_t n = plan->n_layers * plan->n_heads * plan->n_pairs;
    DPE_TRY(DPE_NEW(&plan->mask, (size_t)n, err, "out of memory"));
    for (int64_t i = 0; i < n; i++) {
        plan->mask[i] = (uint8_t)((uint64_t)(i + 1) * 0x9e3779b97f4a7c15U >> 63);
    }
    plan->bands[1].per_head = plan->n_bands > 1;
    return DPE_OK;
}

static dpe_status make_plan(const struct test *test, int which, struct dpe_plan *plan,
                            struct dpe_error *err)
{
    char spec[96];
    int window = (int)(test->n * 2 / 9);
    /* Edges at a multiple of every tile where there is room, and at odd places. */
    window = window >= 128 ? window / 128 * 128 : window;
    if (which == 0 || (which == EXACT_PLAN && dpe_config_still(&test->config))) {
        snprintf(spec, sizeof spec, "rope");
    } else if (which == EXACT_PLAN) {
        snprintf(spec, sizeof spec, "dca:chunk=%d,local=%d", window + 11, window / 3);
    } else {
        int used = dpe_config_still(&test->config)
                       ? snprintf(spec, sizeof spec, "rope:")
                       : snprintf(spec, sizeof spec, "dpe:window=%d,scales=1/2/3.5/8,", window);
        snprintf(spec + used, sizeof spec - (size_t)used, "log-n=%d,log-n-power=0.8",
                 (int)(test->n / 4 + 2));
    }
    const struct dpe_plan_context context = {
        .config = &test->config, .trained_length = test->n / 2 + 1, .length = test->n + ROOM};
    DPE_TRY(dpe_plan_make(spec, &context, plan, err));
    /* Else random queries look at all keys alike, and no single one matters. */
    plan->temperature.logit_scale *= 4.0;
    if (which != EXACT_PLAN && dpe_selects(&test->request->selection)) {
        plan->selection = test->request->selection;
    }
    for (int32_t layer = 0; which == 1 && layer < plan->n_layers; layer++) {
        dpe_temperature_set_head(&plan->temperature, layer, (layer + 1) % plan->n_heads,
                                 layer % 2 == 0 ? 1.5 : 0.75);
    }
    return which == 1 ? add_mask(plan, err) : DPE_OK;
}

/* ---------------------------------------------------------------------------------- the answers */

static dpe_status open_session(const struct test *test, const char *device, bool each_call,
                               const struct dpe_plan *plan, struct dpe_session **session,
                               struct dpe_error *err)
{
    const struct dpe_session_options options = {
        .device = device,
        .n_threads = test->request->n_threads,
        .capacity = test->n + ROOM,
        .branches = BRANCHES,
        .prefill_chunk = test->n * 3 / 4,
        .timeout_seconds = test->request->timeout_seconds,
        .each_call = each_call,
        .ways = test->request->ways,
        .knobs = {.length = "DPE_DEVICE_SELF_TEST"},
    };
    return dpe_session_create_untested(test->model, plan, &options, session, err);
}

static dpe_status ask_steps(struct dpe_session *s, const int32_t *tokens, int steps, float *logits,
                            int64_t vocab, struct dpe_error *err)
{
    static const int64_t which[BRANCHES] = {1, 2, 0};
    DPE_TRY(dpe_session_branch(s, BRANCHES, steps, err));
    for (int step = 0; step < steps; step++) {
        DPE_TRY(dpe_session_step(s, BRANCHES, which, tokens + (ptrdiff_t)step * BRANCHES,
                                 logits + (ptrdiff_t)step * BRANCHES * vocab, err));
    }
    return DPE_OK;
}

static dpe_status ask(struct dpe_session *s, const struct test *test,
                      enum dpe_device_question question, struct answers *answers,
                      struct dpe_error *err)
{
    static const int64_t feeds[] = {1, FEW, MANY};
    const int64_t vocab = test->config.vocab;
    const int32_t *next = test->tokens + test->n;
    float *logits = answers->logits + (ptrdiff_t)parts[question].first * vocab;
    switch (question) {
    case DPE_ASK_PREFILL:
        return dpe_session_nll(s, test->tokens, test->n, answers->nll, err);
    case DPE_ASK_BRANCHES:
        return ask_steps(s, next + BEHIND, STEPS, logits, vocab, err);
    case DPE_ASK_STEPS:
        DPE_TRY(dpe_session_feed(s, test->tokens, test->n, NULL, err));
        return ask_steps(s, next, STEPS_IN_USE, logits, vocab, err);
    default:
        for (int i = DPE_ASK_ONE; i < (int)question; i++) {
            next += feeds[i - DPE_ASK_ONE];
        }
        return dpe_session_feed(s, next, feeds[(int)question - DPE_ASK_ONE], logits, err);
    }
}

/* All questions of a plan; *question is the one that failed. */
static dpe_status ask_all(const struct test *test, const char *device, const struct dpe_plan *plan,
                          bool steps, struct answers *answers, int *question, char *code,
                          struct dpe_error *err)
{
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    for (int q = 0; q < (steps ? DPE_QUESTIONS : DPE_ASK_STEPS); q++) {
        const bool in_use = q == DPE_ASK_STEPS;
        *question = q;
        if (q == 0 || in_use) {
            dpe_session_destroy(session);
            session = NULL;
            DPE_TRY(open_session(test, device, !in_use, plan, &session, err));
        }
        const dpe_status status = ask(session, test, (enum dpe_device_question)q, answers, err);
        if (code != NULL) {
            char ran[64];
            session->ops->code(session->own.backend, ran);
            if (ran[0] != '\0') {
                snprintf(code, sizeof ran, "%s", ran);
            }
        }
        DPE_TRY(status);
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------- comparing */

struct difference {
    double sum, largest;
    int64_t n, at;
};

static void add(struct difference *d, double got, double want)
{
    double difference = fabs(got - want);
    d->sum += difference * difference;
    if (!(difference <= d->largest)) {
        d->largest = difference;
        d->at = d->n;
    }
    d->n++;
}

static struct difference compare(const struct test *test, const struct answers *got,
                                 const struct answers *want, int question)
{
    struct difference d = {0};
    const int64_t vocab = test->config.vocab;
    const int64_t first = parts[question].first * vocab;
    for (int64_t i = 0; question == DPE_ASK_PREFILL && i < test->n - 1; i++) {
        add(&d, got->nll[i], want->nll[i]);
    }
    for (int64_t i = first; i < first + parts[question].rows * vocab; i++) {
        add(&d, (double)got->logits[i], (double)want->logits[i]);
    }
    return d;
}

/* Root of the mean square; INFINITY when a value is not a number. */
static double root_mean(const struct difference *d)
{
    return isfinite(d->sum) ? sqrt(d->sum / (double)d->n) : (double)INFINITY;
}

static void compare_all(const struct test *test, const struct dpe_plan *plan, int which, bool steps,
                        const struct answers answers[2], struct dpe_device_result *result)
{
    for (int q = 0; q < (steps ? DPE_QUESTIONS : DPE_ASK_STEPS); q++) {
        const struct difference d = compare(test, &answers[1], &answers[0], q);
        const int64_t row = q == DPE_ASK_PREFILL ? 1 : test->config.vocab;
        const double rms = root_mean(&d);
        result->rms[which][q] = rms;
        if (rms <= result->most || result->outcome != DPE_DEVICE_RIGHT) {
            continue;
        }
        result->outcome = DPE_DEVICE_WRONG;
        result->plan = which;
        result->question = (enum dpe_device_question)q;
        snprintf(
            result->text, sizeof result->text,
            "%s under %s: expected the logits of the CPU within %.2g (rms), found a difference of "
            "%.2g, the largest %.2g at row %lld, place %lld",
            dpe_device_questions[q], plan->name, result->most, rms, d.largest,
            (long long)(d.at / row), (long long)(d.at % row));
    }
}

/* ------------------------------------------------------------------------------------ the place */

/* Queries of every layer of a prefill, before rotation: the processors' are kept, the device's held
 * against them. */
struct trace {
    const struct dpe_config *config;
    float *q; /* [n_layers][n][width] */
    int64_t n, width;
    bool compares;
    double value[DPE_MAX_LAYER_KINDS + LAYERS],
        difference[DPE_MAX_LAYER_KINDS + LAYERS]; /* squares */
};

static dpe_status trace_layer(void *user, int64_t layer, int64_t start, int64_t rows,
                              const float *q, const float *k, struct dpe_error *err)
{
    struct trace *t = user;
    const int64_t width = t->config->n_heads * dpe_config_head_dim(t->config, layer);
    float *kept = t->q + layer * t->n * t->width + start * width;
    (void)k, (void)err;
    if (!t->compares) {
        memcpy(kept, q, (size_t)(rows * width) * sizeof *q);
    }
    for (int64_t i = 0; t->compares && i < rows * width; i++) {
        const double difference = (double)q[i] - (double)kept[i];
        t->value[layer] += (double)kept[i] * (double)kept[i];
        t->difference[layer] += difference * difference;
    }
    return DPE_OK;
}

/* In which part of the model a prefill goes wrong first, at the end of the text. */
static void find_place(const struct test *test, const struct dpe_plan *plan,
                       const char *const devices[2], double *nll, struct dpe_device_result *result)
{
    const struct dpe_config *c = &test->config;
    const int64_t width = dpe_config_most_queries(c);
    DPE_OWNED float *q = dpe_alloc((size_t)(c->n_layers * test->n * width), sizeof *q);
    struct trace trace = {.config = c, .q = q, .n = test->n, .width = width};
    dpe_status status = q != NULL ? DPE_OK : DPE_NO_MEMORY;
    for (int d = 0; d < 2 && status == DPE_OK; d++) {
        DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
        trace.compares = d == 1;
        status = open_session(test, devices[d], true, plan, &session, NULL);
        if (status == DPE_OK) {
            dpe_session_set_tap(session, trace_layer, &trace);
            status = dpe_session_nll(session, test->tokens, test->n, nll, NULL);
        }
    }
    if (status != DPE_OK && status != DPE_NONFINITE) {
        return;
    }
    int64_t layer = 0;
    while (layer < c->n_layers && /* layers with a state have no queries */
           (!dpe_config_attends(c, layer) ||
            sqrt(trace.difference[layer] / trace.value[layer]) <= result->most / 2.0)) {
        layer++;
    }
    const size_t used = strlen(result->text);
    snprintf(
        result->text + used, sizeof result->text - used, "%s",
        layer == 0 ? "; wrong from the first queries on: embedding, norm or products"
        : layer < c->n_layers
            ? "; the first queries are right, those of the next layer are not: attention or MLP"
            : "; the queries of all layers are right: the last layer, the head or likelihoods");
}

/* ------------------------------------------------------------------------------------- one test */

/* The device did not get through. */
static void note_failure(dpe_status status, const struct dpe_error *err, int plan, int question,
                         struct dpe_device_result *result)
{
    result->plan = plan;
    result->question = (enum dpe_device_question)question;
    result->status = status;
    result->outcome = status == DPE_NONFINITE ? DPE_DEVICE_WRONG
                      : status != DPE_INCOMPLETE
                          ? DPE_DEVICE_UNTESTED /* want of memory is not the device's fault */
                      : strstr(err->text, "no answer in time") != NULL ? DPE_DEVICE_HANGS
                                                                       : DPE_DEVICE_FAILED;
    snprintf(result->text, sizeof result->text, "%.500s", err->text);
}

static void test_plan(const struct test *test, int which, struct answers answers[2],
                      struct dpe_device_result *result)
{
    const char *const devices[2] = {"cpu", test->request->device};
    const bool steps = which == USED_PLAN;
    struct dpe_error err = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    dpe_status status = make_plan(test, which, &plan, &err);
    int question = 0;
    if (status != DPE_OK) {
        note_failure(DPE_INTERNAL, &err, which, 0, result);
        return;
    }
    snprintf(result->plans[which], sizeof result->plans[which], "%.63s", plan.name);
    if (test->request->plan == DPE_DEVICE_OPEN) {
        DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
        status = open_session(test, devices[1], true, &plan, &session, &err);
        if (status != DPE_OK) {
            note_failure(status, &err, which, question, result);
        }
        return;
    }
    for (int d = 0; d < 2 && status == DPE_OK; d++) {
        status = ask_all(test, devices[d], &plan, steps, &answers[d], &question,
                         d == 1 ? result->code : NULL, &err);
        if (status != DPE_OK) { /* what the processors cannot do is not the device's fault */
            note_failure(d == 0 && status == DPE_INCOMPLETE ? DPE_INTERNAL : status, &err, which,
                         question, result);
        }
    }
    if (status == DPE_OK) {
        compare_all(test, &plan, which, steps, answers, result);
    }
    if (result->outcome == DPE_DEVICE_WRONG && result->question == DPE_ASK_PREFILL) {
        find_place(test, &plan, devices, answers[1].nll, result);
    }
}

static dpe_status make_test(struct test *test, struct answers answers[2], struct dpe_error *err)
{
    const int64_t n = test->n;
    const size_t logits = (size_t)(ROWS * test->config.vocab);
    DPE_TRY(dpe_random_model(&test->config, true, 1, &test->model, err));
    DPE_TRY(DPE_NEW(&test->tokens, (size_t)(n + ROOM), err, "out of memory"));
    for (int d = 0; d < 2; d++) {
        DPE_TRY(DPE_NEW(&answers[d].nll, (size_t)n, err, "out of memory"));
        DPE_TRY(DPE_NEW(&answers[d].logits, logits, err, "out of memory"));
    }
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 2, 1);
    for (int64_t i = 0; i < n + ROOM; i++) {
        test->tokens[i] = (int32_t)dpe_rng_below(&rng, (uint32_t)test->config.vocab);
    }
    return DPE_OK;
}

void dpe_device_test(const struct dpe_device_request *request, struct dpe_device_result *result)
{
    struct test test = {.request = request, .config = request->config, .n = request->tokens};
    struct answers answers[2] = {{NULL, NULL}, {NULL, NULL}};
    struct dpe_error err = {0};
    uint8_t kinds[DPE_MAX_LAYER_KINDS + LAYERS];
    for (int64_t i = 0; i < test.config.n_layers; i++) {
        kinds[i] = (uint8_t)(test.config.n_kinds > 1 ? i % test.config.n_kinds : 0);
    }
    test.config.layer_kinds = test.config.n_kinds > 1 && !test.config.branches ? kinds : NULL;
    test.config.family = dpe_family_find(request->config.model_type);
    memset(result, 0, sizeof *result);
    result->most = tolerance(dpe_config_unpacked(&test.config));
    for (int i = 0; i < DPE_DEVICE_PLANS * DPE_QUESTIONS; i++) {
        result->rms[i / DPE_QUESTIONS][i % DPE_QUESTIONS] = (double)NAN;
    }
    dpe_status status = make_test(&test, answers, &err);
    if (status != DPE_OK) {
        note_failure(status, &err, 0, 0, result);
    }
    for (int i = 0; i < DPE_DEVICE_PLANS && result->outcome == DPE_DEVICE_RIGHT; i++) {
        if (request->plan == i || request->plan == DPE_DEVICE_ALL ||
            (request->plan == DPE_DEVICE_OPEN && i == 0)) {
            test_plan(&test, i, answers, result);
        }
    }
    for (int d = 0; d < 2; d++) {
        free(answers[d].nll);
        free(answers[d].logits);
    }
    free(test.tokens);
    dpe_model_close(test.model);
}

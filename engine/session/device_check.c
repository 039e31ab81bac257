/* Compares a device with the CPU before its first session.
 *
 * A small random model with the head dimension, the dtype and the query heads per KV head of the
 * model at hand runs on both, in float on the processors: a prefill in two chunks, tokens one by
 * one, a few and many after a cache, branches, each under one band, two bands with key pairs, and
 * three bands, with logits that hang on few keys. So the kernels and products of a session are held
 * against other code, all but the largest logit's index and the profile's sums. */
#include "engine/device/device.h"
#include "engine/device/device_ops.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/session_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>

#include "engine/model/random_model.h"

enum {
    LAYERS = 2,
    KV_HEADS = 2,
    HIDDEN = 256,
    INTERMEDIATE = 256,
    VOCAB = 256,
    LEAST_TOKENS = 24,
    MOST_TOKENS = 1 << 16,
    FEW = 3,   /* rows that decoding takes at once */
    MANY = 40, /* rows after a cache that go the way of a prefill */
    BRANCHES = 3,
    STEPS = 2,
    BEHIND = 1 + FEW + MANY, /* tokens of the first branch after the prefill */
    ROOM = BEHIND + BRANCHES * STEPS,
    ANSWERS = 3 + BRANCHES * STEPS,
};

/* Logits of the small model spread with a deviation of about 1. On the emulated device rounding
 * made of them at most 7e-6, 0.008 and 0.07 (the largest answer's rms, all kernels), one head of
 * eight whose output was zero 0.5 to 0.9. */
static double tolerance(enum dpe_dtype dtype)
{
    return dtype == DPE_F32 ? 1e-3 : dtype == DPE_F16 ? 0.05 : 0.2;
}

/* Far longer than a working device needs for these few tokens. */
static const double TIMEOUT_SECONDS = 60.0;

struct test {
    const struct dpe_session_options *options;
    struct dpe_config config;
    struct dpe_model *model;
    int64_t n; /* tokens of the prefill */
    int32_t *tokens;
};

struct answers {
    double *nll;                   /* [n − 1] */
    float logits[ANSWERS * VOCAB]; /* of what names[] says */
};
static const char *const names[] = {"one token", "a few tokens", "many tokens", "branches"};

static struct dpe_config small_config(const struct dpe_config *config)
{
    struct dpe_config small = {
        .n_layers = LAYERS,
        .hidden = HIDDEN,
        .intermediate = INTERMEDIATE,
        .n_heads = KV_HEADS * (config->n_heads / config->n_kv_heads),
        .n_kv_heads = KV_HEADS,
        .head_dim = config->head_dim,
        .vocab = VOCAB,
        .max_position = MOST_TOKENS,
        .rms_eps = 1e-5,
        .qkv_bias = config->qkv_bias,
        .family = config->family,
        .qk_norm = config->qk_norm,
        .embedding_multiplier = config->embedding_multiplier,
        .bos_id = -1,
        .dtype = dpe_config_unpacked(config),
        .rope = {.type = DPE_ROPE_DEFAULT,
                 .theta = 1e4,
                 .factor = (double)NAN,
                 .original_max_position = (double)NAN,
                 .attention_factor = (double)NAN,
                 .partial_rotary_factor = 1.0},
    };
    snprintf(small.model_type, sizeof small.model_type, "llama");
    return small;
}

/* ------------------------------------------------------------------------------------- the plans
 */

enum { PLANS = 3 };

/* Key pairs: every head has others. */
static dpe_status add_mask(struct dpe_plan *plan, struct dpe_error *err)
{
    int64_t n = plan->n_layers * plan->n_heads * plan->n_pairs;
    plan->mask = dpe_alloc((size_t)n, 1);
    if (plan->mask == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    for (int64_t i = 0; i < n; i++) {
        plan->mask[i] = (uint8_t)((uint64_t)(i + 1) * 0x9e3779b97f4a7c15U >> 63);
    }
    plan->bands[1].per_head = true;
    return DPE_OK;
}

static dpe_status make_plan(const struct test *test, int which, struct dpe_plan *plan,
                            struct dpe_error *err)
{
    char spec[96];
    int window = (int)(test->n * 2 / 9);
    /* Edges at a multiple of every tile where there is room, and at odd places. */
    window = window >= 128 ? window / 128 * 128 : window;
    switch (which) {
    case 0:
        snprintf(spec, sizeof spec, "rope");
        break;
    case 1:
        snprintf(spec, sizeof spec, "dpe:window=%d,scales=1/2/3.5/8,log-n=%d,log-n-power=0.8",
                 window, (int)(test->n / 4 + 2));
        break;
    default:
        snprintf(spec, sizeof spec, "dca:chunk=%d,local=%d", window + 11, window / 3);
    }
    const struct dpe_plan_context context = {
        .config = &test->config, .trained_length = test->n / 2 + 1, .length = test->n + ROOM};
    dpe_status status = dpe_plan_make(spec, &context, plan, err);
    if (status != DPE_OK) {
        return status;
    }
    /* Else random queries look at all keys alike, and no single one matters. */
    plan->logit_factor *= 4.0;
    if (which == 1 && (status = add_mask(plan, err)) != DPE_OK) {
        dpe_plan_free(plan);
    }
    return status;
}

/* ----------------------------------------------------------------------------------- the answers
 */

static dpe_status ask_branches(struct dpe_session *s, const int32_t *tokens, float *logits,
                               struct dpe_error *err)
{
    static const int64_t which[BRANCHES] = {1, 2, 0};
    dpe_status status = dpe_session_branch(s, BRANCHES, STEPS, err);
    for (int step = 0; step < STEPS && status == DPE_OK; step++) {
        status = dpe_session_step(s, BRANCHES, which, tokens + (ptrdiff_t)step * BRANCHES,
                                  logits + (ptrdiff_t)step * BRANCHES * VOCAB, err);
    }
    return status;
}

static dpe_status ask(struct dpe_session *s, const struct test *test, struct answers *answers,
                      struct dpe_error *err)
{
    static const int64_t feeds[] = {1, FEW, MANY};
    dpe_status status = dpe_session_nll(s, test->tokens, test->n, answers->nll, err);
    const int32_t *next = test->tokens + test->n;
    for (int i = 0; i < 3 && status == DPE_OK; i++) {
        status = dpe_session_feed(s, next, feeds[i], answers->logits + (ptrdiff_t)i * VOCAB, err);
        next += feeds[i];
    }
    return status != DPE_OK ? status
                            : ask_branches(s, next, answers->logits + (ptrdiff_t)3 * VOCAB, err);
}

/* Root of the mean square; INFINITY when a value is not a number. */
static double root_mean(double sum, int64_t n)
{
    return isfinite(sum) ? sqrt(sum / (double)n) : (double)INFINITY;
}

/* The largest error, and what of. */
static double compare(const struct test *test, const struct answers *got,
                      const struct answers *want, const char **what)
{
    double sum = 0.0;
    for (int64_t i = 0; i < test->n - 1; i++) {
        sum += (got->nll[i] - want->nll[i]) * (got->nll[i] - want->nll[i]);
    }
    double worst = root_mean(sum, test->n - 1);
    *what = "a prefill";
    for (int a = 0; a < ANSWERS; a++) {
        sum = 0.0;
        for (int64_t i = (int64_t)a * VOCAB; i < (int64_t)(a + 1) * VOCAB; i++) {
            double difference = (double)got->logits[i] - (double)want->logits[i];
            sum += difference * difference;
        }
        double error = root_mean(sum, VOCAB);
        if (error > worst) {
            worst = error;
            *what = names[a < 3 ? a : 3];
        }
    }
    return worst;
}

static dpe_status open_session(const struct test *test, const char *device,
                               const struct dpe_plan *plan, struct dpe_session **session,
                               struct dpe_error *err)
{
    const struct dpe_session_options options = {
        .device = device,
        .n_threads = test->options->n_threads,
        .capacity = test->n + ROOM,
        .branches = BRANCHES,
        .prefill_chunk = test->n * 3 / 4,
        .timeout_seconds = TIMEOUT_SECONDS,
        .knobs = {.length = "DPE_DEVICE_SELF_TEST"},
    };
    return dpe_session_create_untested(test->model, plan, &options, session, err);
}

static dpe_status refuse(const struct test *test, struct dpe_error *err)
{
    dpe_fail_prefix(err, "device %s failed its self-test and is not used; use --device cpu%s",
                    test->options->device,
                    test->config.dtype != DPE_F32
                        ? ", or set DPE_CUDA_ATTENTION=mma or =plain for a simpler kernel"
                        : "");
    if (err != NULL) {
        err->status = DPE_NO_DEVICE;
    }
    return DPE_NO_DEVICE;
}

/* One plan on both. */
static dpe_status test_plan(const struct test *test, const struct dpe_plan *plan,
                            struct answers answers[2], struct dpe_error *err)
{
    const char *device = test->options->device;
    const char *const devices[2] = {"cpu", device};
    dpe_status status = DPE_OK;
    for (int d = 0; d < 2 && status == DPE_OK; d++) {
        struct dpe_session *session = NULL;
        status = open_session(test, devices[d], plan, &session, err);
        if (status == DPE_OK) {
            status = ask(session, test, &answers[d], err);
        }
        dpe_session_destroy(session);
        /* What the processors cannot do is not the device's fault, nor is want of memory. */
        if (d == 1 && (status == DPE_INCOMPLETE || status == DPE_NONFINITE)) {
            return refuse(test, err);
        }
    }
    if (status != DPE_OK) {
        return dpe_fail_prefix(err, "self-test of device %s", device);
    }
    const char *what = NULL;
    double most = tolerance(test->config.dtype);
    double error = compare(test, &answers[1], &answers[0], &what);
    if (!(error <= most)) {
        dpe_fail(
            err, DPE_NO_DEVICE,
            "%s under %s: expected the logits of the CPU within %.2g (rms), found a difference of "
            "%.2g",
            what, plan->name, most, error);
        return refuse(test, err);
    }
    return DPE_OK;
}

static dpe_status run_test(const struct dpe_config *config,
                           const struct dpe_session_options *options, int64_t tokens,
                           struct dpe_error *err)
{
    struct test test = {.options = options, .config = small_config(config), .n = tokens};
    struct answers answers[2] = {{.nll = NULL}, {.nll = NULL}};
    dpe_status status = dpe_random_model(&test.config, true, 1, &test.model, err);
    test.tokens = dpe_alloc((size_t)(tokens + ROOM), sizeof *test.tokens);
    answers[0].nll = dpe_alloc((size_t)tokens, sizeof(double));
    answers[1].nll = dpe_alloc((size_t)tokens, sizeof(double));
    if (status == DPE_OK &&
        (test.tokens == NULL || answers[0].nll == NULL || answers[1].nll == NULL)) {
        status =
            dpe_fail(err, DPE_NO_MEMORY, "self-test of device %s: out of memory", options->device);
    }
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 2, 1);
    for (int64_t i = 0; i < tokens + ROOM && test.tokens != NULL; i++) {
        test.tokens[i] = (int32_t)dpe_rng_below(&rng, VOCAB);
    }
    for (int i = 0; i < PLANS && status == DPE_OK; i++) {
        struct dpe_plan plan;
        status = make_plan(&test, i, &plan, err);
        if (status == DPE_OK) {
            status = test_plan(&test, &plan, answers, err);
            dpe_plan_free(&plan);
        }
    }
    free(answers[0].nll);
    free(answers[1].nll);
    free(test.tokens);
    dpe_model_close(test.model);
    return status;
}

/* ------------------------------------------------------------------------------------------ once
 */

/* What a test was about. */
struct subject {
    char device[64];
    int64_t head_dim, group;
    enum dpe_dtype dtype;
    bool qkv_bias;
};
enum { SUBJECTS = 16 };
static struct subject passed[SUBJECTS];
static size_t n_passed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_same(const struct subject *a, const struct subject *b)
{
    return strcmp(a->device, b->device) == 0 && a->head_dim == b->head_dim &&
           a->group == b->group && a->dtype == b->dtype && a->qkv_bias == b->qkv_bias;
}

static bool has_passed(const struct subject *subject)
{
    for (size_t i = 0; i < n_passed; i++) {
        if (is_same(&passed[i], subject)) {
            return true;
        }
    }
    return false;
}

/* The environment's tokens, else those given. */
static dpe_status find_tokens(int64_t *tokens, struct dpe_error *err)
{
    const char *words = getenv("DPE_DEVICE_SELF_TEST");
    if (*tokens == 0 || words == NULL || words[0] == '\0') {
        return DPE_OK;
    }
    if (strcmp(words, "off") == 0) {
        *tokens = 0;
        return DPE_OK;
    }
    char *end = NULL;
    long n = strtol(words, &end, 10);
    if (*end != '\0' || n < LEAST_TOKENS || n > MOST_TOKENS) {
        return dpe_fail(
            err, DPE_USAGE,
            "DPE_DEVICE_SELF_TEST: expected off or a number of tokens from %d to %d, found "
            "%.64s",
            LEAST_TOKENS, MOST_TOKENS, words);
    }
    *tokens = n;
    return DPE_OK;
}

dpe_status dpe_session_check_device(const struct dpe_config *config,
                                    const struct dpe_session_options *options, int64_t tokens,
                                    struct dpe_error *err)
{
    struct dpe_device_info info;
    dpe_status status = find_tokens(&tokens, err);
    if (status != DPE_OK || tokens == 0 ||
        (status = dpe_device_describe(options->device, &info, err)) != DPE_OK) {
        return status;
    }
    struct subject subject = {.head_dim = config->head_dim,
                              .group = config->n_heads / config->n_kv_heads,
                              .dtype = dpe_config_unpacked(config),
                              .qkv_bias = config->qkv_bias};
    snprintf(subject.device, sizeof subject.device, "%s", info.id);
    /* Who comes while the device is tested waits for the answer. */
    (void)pthread_mutex_lock(&lock);
    if (!has_passed(&subject)) {
        status = run_test(config, options, tokens, err);
        if (status == DPE_OK && n_passed < SUBJECTS) {
            passed[n_passed++] = subject;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return status;
}

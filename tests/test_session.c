/* Sessions, on every backend and for every method: prefill = chunked prefill = token by token, cut
 * back and continue, likelihoods, taps, generation, memory, and what goes wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "near.h"
#include "tiny.h"

static const char *const devices[] = {"reference", "cpu"};
static const char *const specs[] = {
    "rope",
    "pi",
    "ntk",
    "ntk-dynamic",
    "ntk-by-parts:alpha=0.5,beta=3",
    "yarn",
    "llama3:low=0.5,high=3",
    "longrope:long=2.5",
    "rerope:window=6",
    "leaky-rerope:window=5,scale=4.3",
    "self-extend:window=5,group=4",
    "dpe:window=5,groups=3,scales=1/2.5/4",
    "dca:chunk=12,local=5",
    "string:window=3",
    "streaming-llm:window=9",
    "lm-infinite:window=7,sinks=3",
};
enum { N_DEVICES = 2, N_SPECS = sizeof specs / sizeof specs[0], VOCAB = 64 };

static void feed(struct dpe_session *session, const struct tiny *tiny, int64_t to, float *logits)
{
    struct dpe_error err = {0};
    int64_t from = dpe_session_length(session);
    TINY_OK(dpe_session_feed(session, tiny->tokens + from, to - from, logits, &err), err);
    assert_int_equal(dpe_session_length(session), to);
}

static void cut(struct dpe_session *session, int64_t keep)
{
    struct dpe_error err = {0};
    TINY_OK(dpe_session_cut(session, keep, &err), err);
}

/* Rounding, not meaning: logits of these models spread over about 1 to 10. */
static void same_to_rounding(const char *what, const float *got, const float *want)
{
    double wanted[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        wanted[i] = (double)want[i];
    }
    assert_int_equal(near_f32(what, got, wanted, VOCAB, 2e-5), 0);
}

static struct dpe_session *open_session(const struct tiny *tiny, const char *device,
                                        const char *spec, bool masked, int n_threads, int64_t chunk)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {
        .device = device, .n_threads = n_threads, .capacity = tiny->n, .prefill_chunk = chunk};
    struct dpe_plan plan = tiny_plan(tiny, spec, tiny->n);
    if (masked) {
        tiny_mask(&plan);
    }
    TINY_OK(dpe_session_create(tiny->model, &plan, &options, &session, &err), err);
    dpe_plan_free(&plan);
    return session;
}

static void one_plan(const struct tiny *tiny, const char *device, const char *spec, bool masked)
{
    float whole[VOCAB];
    float again[VOCAB];
    char what[128];
    snprintf(what, sizeof what, "%s on %s%s", spec, device, masked ? ", masked" : "");
    struct dpe_session *session = open_session(tiny, device, spec, masked, 1, tiny->n);
    feed(session, tiny, tiny->n, whole);
    /* Token by token, and in two calls. */
    cut(session, 0);
    for (int64_t i = 1; i <= tiny->n; i++) {
        feed(session, tiny, i, again);
    }
    same_to_rounding(what, again, whole);
    cut(session, 0);
    feed(session, tiny, 23, NULL);
    feed(session, tiny, tiny->n, again);
    same_to_rounding(what, again, whole);
    /* Cut back into the middle of what was fed, go on. */
    cut(session, 9);
    feed(session, tiny, tiny->n, again);
    same_to_rounding(what, again, whole);
    dpe_session_destroy(session);

    /* A small grid; a cut at its lines gives the same bits. */
    session = open_session(tiny, device, spec, masked, 1, 7);
    assert_int_equal(dpe_session_chunk(session), 7);
    feed(session, tiny, tiny->n, again);
    same_to_rounding(what, again, whole);
    memcpy(whole, again, sizeof whole);
    cut(session, 21);
    feed(session, tiny, tiny->n, again);
    assert_memory_equal(again, whole, sizeof whole);
    cut(session, 0);
    feed(session, tiny, 14, NULL);
    feed(session, tiny, 35, NULL);
    feed(session, tiny, tiny->n, again);
    assert_memory_equal(again, whole, sizeof whole);
    dpe_session_destroy(session);

    /* Two threads, the same bits. */
    session = open_session(tiny, device, spec, masked, 2, 7);
    feed(session, tiny, tiny->n, again);
    assert_memory_equal(again, whole, sizeof whole);
    dpe_session_destroy(session);
}

static void however_tokens_are_fed_the_logits_agree(void **state)
{
    (void)state;
    static const char *const folders[] = {"llama", "mistral"};
    for (int f = 0; f < 2; f++) {
        struct tiny tiny = tiny_open(folders[f]);
        for (int d = 0; d < N_DEVICES; d++) {
            for (int i = 0; i < 2 * N_SPECS; i++) {
                one_plan(&tiny, devices[d], specs[i / 2], i % 2 == 1);
            }
        }
        one_plan(&tiny, "reference", "dpe:window=5,groups=3,scales=1/2.5/4,exact=1", true);
        tiny_close(&tiny);
    }
}

static void backends_agree_under_every_plan(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("qwen2");
    for (int i = 0; i < 2 * N_SPECS; i++) {
        float logits[2][VOCAB];
        for (int d = 0; d < 2; d++) {
            const char *spec = i / 2 == 6 ? "dpe:window=5,groups=2,scales=1/2.5" : specs[i / 2];
            struct dpe_session *session = open_session(&tiny, devices[d], spec, i % 2 == 1, 1, 16);
            feed(session, &tiny, tiny.n, logits[d]);
            dpe_session_destroy(session);
        }
        same_to_rounding(specs[i / 2], logits[1], logits[0]);
    }
    tiny_close(&tiny);
}

static void set_plan_is_a_new_session(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    for (int d = 0; d < N_DEVICES; d++) {
        struct dpe_session *session = open_session(&tiny, devices[d], "rope", false, 1, 16);
        for (int i = 2 * N_SPECS - 1; i >= 0; i--) {
            float fresh[VOCAB];
            float changed[VOCAB];
            struct dpe_plan plan = tiny_plan(&tiny, specs[i / 2], tiny.n);
            if (i % 2 == 1) {
                tiny_mask(&plan);
            }
            feed(session, &tiny, 11, NULL);
            TINY_OK(dpe_session_set_plan(session, &plan, &err), err);
            assert_int_equal(dpe_session_length(session), 0);
            dpe_plan_free(&plan);
            feed(session, &tiny, tiny.n, changed);
            cut(session, 0);
            struct dpe_session *other =
                open_session(&tiny, devices[d], specs[i / 2], i % 2 == 1, 1, 16);
            feed(other, &tiny, tiny.n, fresh);
            assert_memory_equal(fresh, changed, sizeof fresh);
            dpe_session_destroy(other);
        }
        /* A plan of another shape is refused and changes nothing. */
        float before[VOCAB];
        float after[VOCAB];
        feed(session, &tiny, 20, before);
        struct dpe_plan wrong;
        TINY_OK(dpe_plan_init(&wrong, tiny.config->head_dim, 2, 4, &err), err);
        assert_int_equal(dpe_session_set_plan(session, &wrong, &err), DPE_USAGE);
        wrong.n_bands = 1;
        wrong.bands[0].hi = 5;
        for (int64_t j = 0; j < wrong.n_pairs; j++) {
            wrong.inv_freq[j] = 1.0;
        }
        assert_int_equal(dpe_session_set_plan(session, &wrong, &err), DPE_USAGE);
        assert_non_null(strstr(err.text, "the model has"));
        dpe_plan_free(&wrong);
        cut(session, 0);
        feed(session, &tiny, 20, after);
        assert_memory_equal(before, after, sizeof before);
        dpe_session_destroy(session);
    }
    tiny_close(&tiny);
}

/* ------------------------------------------------------------------------------- likelihoods */

static void likelihoods_are_those_of_the_logits(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama3");
    struct dpe_error err = {0};
    for (int d = 0; d < N_DEVICES; d++) {
        double nll[64];
        double part[64];
        struct dpe_session *session = open_session(&tiny, devices[d], "rope", false, 2, 16);
        TINY_OK(dpe_session_nll(session, tiny.tokens, tiny.n, nll, &err), err);
        assert_int_equal(dpe_session_length(session), tiny.n);
        for (int64_t i = 0; i + 1 < tiny.n; i++) {
            const double *row = tiny.oracle + i * VOCAB;
            double total = 0.0;
            for (int t = 0; t < VOCAB; t++) {
                total += exp(row[t]);
            }
            assert_true(fabs(nll[i] - (log(total) - row[tiny.tokens[i + 1]])) < 1e-5);
        }
        /* Behind a prefix that was fed. */
        cut(session, 0);
        feed(session, &tiny, 19, NULL);
        TINY_OK(dpe_session_nll(session, tiny.tokens + 19, tiny.n - 19, part, &err), err);
        for (int64_t i = 0; i + 1 < tiny.n - 19; i++) {
            assert_true(fabs(part[i] - nll[19 + i]) < 1e-5);
        }
        assert_int_equal(dpe_session_nll(session, tiny.tokens, 1, part, &err), DPE_USAGE);
        dpe_session_destroy(session);
    }
    tiny_close(&tiny);
}

/* --------------------------------------------------------------------------------------- taps */

struct tapped {
    const struct dpe_config *config;
    int64_t calls, stop_at;
    float q[2][40][256], k[2][40][256];
    int64_t rows[2];
};

static dpe_status keep_tap(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                           const float *k, struct dpe_error *err)
{
    struct tapped *t = user;
    if (t->calls++ == t->stop_at) {
        return dpe_fail(err, DPE_INCOMPLETE, "stopped by the tap");
    }
    assert_int_equal(start, t->rows[layer]);
    t->rows[layer] += rows;
    size_t q_width = (size_t)(t->config->n_heads * t->config->head_dim);
    size_t k_width = (size_t)(t->config->n_kv_heads * t->config->head_dim);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(t->q[layer][start + r], q + (size_t)r * q_width, q_width * sizeof *q);
        memcpy(t->k[layer][start + r], k + (size_t)r * k_width, k_width * sizeof *k);
    }
    return DPE_OK;
}

/* Row o of an F32 weight times the normalised embedding of a token: q and k of the first layer. */
static double first_layer_value(const struct tiny *tiny, const struct dpe_tensor *weight, int64_t o,
                                int32_t token)
{
    const struct dpe_weights *w = dpe_model_weights(tiny->model);
    int64_t n = tiny->config->hidden;
    const float *x = (const float *)w->embedding.data + token * n;
    const float *gain = w->layers[0].attention_norm.data;
    double squares = 0.0;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        squares += (double)x[i] * (double)x[i];
        sum += (double)((const float *)weight->data)[o * n + i] * (double)x[i] * (double)gain[i];
    }
    return sum / sqrt(squares / (double)n + tiny->config->rms_eps);
}

static void taps_see_q_and_k_before_rotation(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    const struct dpe_layer_weights *layer = &dpe_model_weights(tiny.model)->layers[0];
    assert_true(layer->q.dtype == DPE_F32 && tiny.config->n_layers == 2);
    for (int d = 0; d < N_DEVICES; d++) {
        struct tapped *taps[2] = {calloc(1, sizeof(struct tapped)),
                                  calloc(1, sizeof(struct tapped))};
        float plain[VOCAB];
        float tapped[VOCAB];
        for (int i = 0; i < 2; i++) {
            struct dpe_session *session = open_session(
                &tiny, devices[d], i == 0 ? "rope" : "dpe:window=5,scales=4", false, 1, 16);
            feed(session, &tiny, tiny.n, plain);
            cut(session, 0);
            taps[i]->config = tiny.config;
            taps[i]->stop_at = -1;
            dpe_session_set_tap(session, keep_tap, taps[i]);
            feed(session, &tiny, tiny.n, tapped);
            assert_memory_equal(plain, tapped, sizeof plain);
            assert_int_equal(taps[i]->calls, 2 * 3); /* 2 layers; 16, 16 and 8 rows */
            assert_int_equal(taps[i]->rows[0], tiny.n);
            assert_int_equal(taps[i]->rows[1], tiny.n);
            /* A tap that says stop: its status, and the cache as it was. */
            cut(session, 5);
            taps[i]->calls = 0;
            taps[i]->stop_at = 0;
            assert_int_equal(dpe_session_feed(session, tiny.tokens, 9, plain, &err),
                             DPE_INCOMPLETE);
            assert_int_equal(dpe_session_length(session), 5);
            dpe_session_destroy(session);
        }
        for (int64_t t = 0; t < tiny.n; t++) {
            for (int64_t o = 0; o < layer->q.rows; o++) {
                double want = first_layer_value(&tiny, &layer->q, o, tiny.tokens[t]);
                assert_int_equal(near_f32("q", &taps[0]->q[0][t][o], &want, 1, 1e-5), 0);
            }
            for (int64_t o = 0; o < layer->k.rows; o++) {
                double want = first_layer_value(&tiny, &layer->k, o, tiny.tokens[t]);
                assert_int_equal(near_f32("k", &taps[0]->k[0][t][o], &want, 1, 1e-5), 0);
            }
        }
        /* The first layer knows no positions, the second has seen them. */
        assert_memory_equal(taps[0]->q[0], taps[1]->q[0], sizeof taps[0]->q[0]);
        assert_memory_not_equal(taps[0]->q[1], taps[1]->q[1], sizeof taps[0]->q[1]);
        free(taps[0]);
        free(taps[1]);
    }
    tiny_close(&tiny);
}

/* --------------------------------------------------------------------------------- generation */

static bool stop_after_three(void *user, const int32_t *generated, size_t n)
{
    *(int32_t *)user = generated[n - 1];
    return n == 3;
}

static void generation_follows_the_largest_logit(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama3");
    struct dpe_error err = {0};
    for (int d = 0; d < N_DEVICES; d++) {
        struct dpe_session *session = open_session(&tiny, devices[d], "rope", false, 1, 16);
        int32_t want[12];
        float logits[VOCAB];
        feed(session, &tiny, 10, logits);
        for (int i = 0; i < 12; i++) {
            want[i] = 0;
            for (int32_t t = 1; t < VOCAB; t++) {
                want[i] = logits[t] > logits[want[i]] ? t : want[i];
            }
            TINY_OK(dpe_session_feed(session, &want[i], 1, logits, &err), err);
        }
        struct dpe_tokens out = {0};
        int32_t before = 7;
        TINY_OK(dpe_tokens_append(&out, &before, 1, &err), err);
        struct dpe_generate_options options = {.max_new = 12, .ignore_eos = true};
        cut(session, 0);
        TINY_OK(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err), err);
        assert_int_equal(out.n, 13);
        assert_int_equal(out.ids[0], 7);
        assert_memory_equal(out.ids + 1, want, sizeof want);
        assert_int_equal(dpe_session_length(session), 10 + 11);

        int32_t last = -1;
        options.stop = stop_after_three;
        options.user = &last;
        out.n = 0;
        cut(session, 0);
        TINY_OK(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err), err);
        assert_int_equal(out.n, 3);
        assert_int_equal(last, want[2]);
        assert_int_equal(dpe_session_length(session), 12);

        out.n = 0;
        options.max_new = 0;
        cut(session, 0);
        TINY_OK(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err), err);
        assert_int_equal(out.n, 0);
        assert_int_equal(dpe_session_length(session), 10);

        cut(session, 0);
        options.max_new = tiny.n - 10 + 2;
        assert_int_equal(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err),
                         DPE_USAGE);
        options.max_new = INT64_MAX;
        assert_int_equal(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err),
                         DPE_USAGE);
        assert_int_equal(dpe_session_generate(session, tiny.tokens, 0, &options, &out, &err),
                         DPE_USAGE);
        dpe_tokens_free(&out);
        dpe_session_destroy(session);
    }
    tiny_close(&tiny);
}

/* ------------------------------------------------------------------------------------- memory */

#if defined(__SANITIZE_ADDRESS__)
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

static double allocated_now(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return (double)__sanitizer_get_current_allocated_bytes();
#else
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
#endif
}

static void the_estimate_is_what_is_allocated(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("mistral");
    struct dpe_error err = {0};
    for (int i = 0; i < N_DEVICES * 2; i++) {
        const struct dpe_session_options options = {
            .device = devices[i / 2], .n_threads = 2, .capacity = 20000, .prefill_chunk = 256};
        struct dpe_plan plan =
            tiny_plan(&tiny, i % 2 == 0 ? "rope" : "dpe:window=5,scales=4", 20000);
        uint64_t bytes = 0;
        uint64_t weights = 0;
        TINY_OK(dpe_session_estimate(tiny.config, &plan, &options, &bytes, &weights, &err), err);
        assert_true(weights == 2 * (uint64_t)dpe_config_parameters(tiny.config));
        double before = allocated_now();
        struct dpe_session *session = NULL;
        TINY_OK(dpe_session_create(tiny.model, &plan, &options, &session, &err), err);
        feed(session, &tiny, tiny.n, NULL);
        double used = allocated_now() - before;
        printf("%s, %s: estimated %.3f MB, allocated %.3f MB\n", options.device, plan.name,
               (double)bytes / 1e6, used / 1e6);
        assert_true(bytes > 4000000);
        assert_true(used <= 1.02 * (double)bytes + 65536.0);
        assert_true(used >= 0.90 * (double)bytes);
        dpe_session_destroy(session);
        dpe_plan_free(&plan);
    }
    tiny_close(&tiny);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    struct dpe_plan plan = tiny_plan(&tiny, "dpe:window=5,scales=4", 40);
    struct dpe_session_options options = {.device = "reference", .capacity = 40};
    uint64_t bytes = 0;
    uint64_t weights = 0;
    TINY_OK(dpe_session_estimate(tiny.config, &plan, &options, &bytes, &weights, &err), err);
    options.max_memory = bytes;
    TINY_OK(dpe_session_create(tiny.model, &plan, &options, &session, &err), err);
    dpe_session_destroy(session);
    options.max_memory = bytes - 1;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &session, &err),
                     DPE_NO_MEMORY);
    assert_non_null(strstr(err.text, "MiB are allowed"));
    assert_non_null(strstr(err.text, "a smaller length"));
    /* A plan with more tables does not fit into what one with fewer was allowed. */
    struct dpe_plan small = tiny_plan(&tiny, "rope", 40);
    TINY_OK(dpe_session_estimate(tiny.config, &small, &options, &bytes, &weights, &err), err);
    options.max_memory = bytes;
    TINY_OK(dpe_session_create(tiny.model, &small, &options, &session, &err), err);
    assert_int_equal(dpe_session_set_plan(session, &plan, &err), DPE_NO_MEMORY);
    feed(session, &tiny, tiny.n, NULL);
    dpe_session_destroy(session);

    options.max_memory = 0;
    options.capacity = INT64_C(1) << 50;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &session, &err),
                     DPE_NO_MEMORY);
    options.capacity = INT64_MAX;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &session, &err),
                     DPE_NO_MEMORY);
    assert_true(dpe_memory_available() > (1 << 20));
    dpe_plan_free(&plan);
    dpe_plan_free(&small);
    tiny_close(&tiny);
}

static void flops_are_counted(void **state)
{
    (void)state;
    /* Llama-3-8B at 128k: figures of the kernel notes. */
    const struct dpe_config llama = {.n_layers = 32,
                                     .hidden = 4096,
                                     .intermediate = 14336,
                                     .n_heads = 32,
                                     .n_kv_heads = 8,
                                     .head_dim = 128,
                                     .vocab = 128256};
    double products = 0.0;
    double attention = 0.0;
    dpe_config_flops(&llama, 0, 131072, 1, &products, &attention);
    assert_true(fabs(products / 1830e12 - 1.0) < 0.01);
    assert_true(fabs(attention / 4504e12 - 1.0) < 0.01);
    double first[2];
    double rest[2];
    dpe_config_flops(&llama, 0, 1000, 0, &first[0], &first[1]);
    dpe_config_flops(&llama, 1000, 130072, 1, &rest[0], &rest[1]);
    assert_true(fabs((first[0] + rest[0]) / products - 1.0) < 1e-12);
    assert_true(fabs((first[1] + rest[1]) / attention - 1.0) < 1e-12);
}

/* ------------------------------------------------------------------------------------- faults */

static void misuse_is_named(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    struct dpe_plan plan = tiny_plan(&tiny, "rope", 40);
    const struct dpe_session_options bad[] = {
        {.capacity = 0}, {.capacity = 8, .prefill_chunk = -1}, {.capacity = 8, .n_threads = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dpe_session_create(tiny.model, &plan, &bad[i], &session, &err), DPE_USAGE);
    }
    const struct dpe_session_options unknown = {.device = "abacus", .capacity = 8};
    assert_int_equal(dpe_session_create(tiny.model, &plan, &unknown, &session, &err),
                     DPE_NO_DEVICE);
    assert_non_null(strstr(err.text, "\"abacus\"; there are "));
    assert_non_null(strstr(err.text, "reference"));
    dpe_plan_free(&plan);
    const struct dpe_session_options fast = {.device = "cpu", .capacity = 8};
    plan = tiny_plan(&tiny, "dpe:window=5,scales=4,exact=1", 40);
    assert_int_equal(dpe_session_create(tiny.model, &plan, &fast, &session, &err), DPE_NO_DEVICE);
    assert_non_null(strstr(err.text, "exact"));
    dpe_plan_free(&plan);

    for (int d = 0; d < N_DEVICES; d++) {
        float logits[VOCAB];
        session = open_session(&tiny, devices[d], "rope", false, 1, 16);
        feed(session, &tiny, 4, NULL);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, tiny.n - 3, logits, &err),
                         DPE_USAGE);
        assert_non_null(strstr(err.text, "do not fit behind 4 in a cache of 40"));
        const int32_t outside[3] = {1, VOCAB, 2};
        assert_int_equal(dpe_session_feed(session, outside, 3, logits, &err), DPE_BAD_DATA);
        assert_non_null(strstr(err.text, "token 1: expected an id from 0 to 63, found 64"));
        const int32_t negative[1] = {-1};
        assert_int_equal(dpe_session_feed(session, negative, 1, logits, &err), DPE_BAD_DATA);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, 0, logits, &err), DPE_USAGE);
        TINY_OK(dpe_session_feed(session, tiny.tokens, 0, NULL, &err), err);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, -1, NULL, &err), DPE_USAGE);
        assert_int_equal(dpe_session_cut(session, 5, &err), DPE_USAGE);
        assert_int_equal(dpe_session_cut(session, -1, &err), DPE_USAGE);
        assert_int_equal(dpe_session_length(session), 4);
        dpe_session_destroy(session);
    }
    dpe_session_destroy(NULL);
    tiny_close(&tiny);
}

static void patch_tensor(char *safetensors, const char *tensor, int64_t element, float value)
{
    uint64_t header = 0;
    memcpy(&header, safetensors, sizeof header);
    const char *entry = strstr(safetensors + 8, tensor);
    assert_non_null(entry);
    entry = strstr(entry, "data_offsets");
    assert_non_null(entry);
    int64_t at = strtoll(strchr(entry, '[') + 1, NULL, 10) + element * (int64_t)sizeof value;
    memcpy(safetensors + 8 + header + at, &value, sizeof value);
}

static void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* A copy of the llama folder in `folder`, with a float of a tensor replaced. */
static void copy_with(const char *folder, const char *tensor, int64_t element, float value)
{
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    for (int i = 0; i < 3; i++) {
        size_t n = 0;
        char path[512];
        char *bytes = NULL;
        struct dpe_error err = {0};
        snprintf(path, sizeof path, "%s/tests/golden/llama/%s", DPE_SOURCE_DIR, names[i]);
        TINY_OK(dpe_read_file(path, 1 << 20, &bytes, &n, &err), err);
        if (i == 2) {
            patch_tensor(bytes, tensor, element, value);
        }
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, n, file), n);
        assert_int_equal(fclose(file), 0);
        free(bytes);
    }
}

/* Any of several end ids of generation_config.json ends a generation and is not part of it. */
static void generation_ends_at_any_end_id(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    struct dpe_tokens all = {0};
    struct dpe_tokens out = {0};
    struct dpe_generate_options options = {.max_new = 8, .ignore_eos = true};
    struct dpe_session *session = open_session(&tiny, "reference", "rope", false, 1, 16);
    TINY_OK(dpe_session_generate(session, tiny.tokens, 20, &options, &all, &err), err);
    dpe_session_destroy(session);
    assert_int_equal(all.n, 8);
    size_t end = 1; /* the first id, from the second on, that did not come before */
    for (size_t i = 0; end < 8 && i < end;) {
        bool repeats = all.ids[i] == all.ids[end];
        end += repeats;
        i = repeats ? 0 : i + 1;
    }
    assert_true(end < 8);

    char folder[] = "/tmp/dpe_session_XXXXXX";
    char path[128];
    assert_non_null(mkdtemp(folder));
    copy_with(folder, "model.norm.weight", 0,
              ((const float *)dpe_model_weights(tiny.model)->final_norm.data)[0]);
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fprintf(file, "{\"eos_token_id\": [63, %d]}", all.ids[end]);
    assert_int_equal(fclose(file), 0);
    struct tiny twin = {.n = tiny.n};
    TINY_OK(dpe_model_open(folder, NULL, &twin.model, &err), err);
    twin.config = dpe_model_config(twin.model);
    options.ignore_eos = false;
    for (int d = 0; d < N_DEVICES; d++) {
        session = open_session(&twin, devices[d], "rope", false, 1, 16);
        out.n = 0;
        TINY_OK(dpe_session_generate(session, tiny.tokens, 20, &options, &out, &err), err);
        assert_int_equal(out.n, end);
        assert_memory_equal(out.ids, all.ids, end * sizeof *out.ids);
        dpe_session_destroy(session);
    }
    remove_folder(folder);
    dpe_model_close(twin.model);
    dpe_tokens_free(&all);
    dpe_tokens_free(&out);
    tiny_close(&tiny);
}

static void nan_is_an_error_with_layer_and_position(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    char folder[] = "/tmp/dpe_session_XXXXXX";
    assert_non_null(mkdtemp(folder));
    int64_t seventh = 0; /* a token that first comes late */
    for (int64_t i = 20; i < tiny.n; i++) {
        bool before = false;
        for (int64_t j = 0; j < i; j++) {
            before = before || tiny.tokens[j] == tiny.tokens[i];
        }
        seventh = seventh == 0 && !before ? i : seventh;
    }
    assert_true(seventh > 0);
    const struct {
        const char *tensor;
        int64_t element;
        float value;
        int layer;
        int64_t position;
    } cases[] = {
        {"model.embed_tokens.weight", tiny.tokens[seventh] * tiny.config->hidden, NAN, 0, seventh},
        {"model.layers.0.mlp.down_proj.weight", 3, INFINITY, 0, 0},
        {"model.layers.1.self_attn.v_proj.weight", 0, NAN, 1, tiny.n - 1},
        {"model.norm.weight", 5, NAN, 2, tiny.n - 1},
    };
    for (size_t i = 0; i < N_DEVICES * sizeof cases / sizeof cases[0]; i++) {
        size_t c = i / N_DEVICES;
        struct tiny bad = {.n = tiny.n};
        struct dpe_error err = {0};
        float logits[VOCAB];
        double nll[64];
        copy_with(folder, cases[c].tensor, cases[c].element, cases[c].value);
        TINY_OK(dpe_model_open(folder, NULL, &bad.model, &err), err);
        bad.config = dpe_model_config(bad.model);
        struct dpe_session *session =
            open_session(&bad, devices[i % N_DEVICES], "rope", false, 1, 64);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, tiny.n, logits, &err),
                         DPE_NONFINITE);
        assert_int_equal(err.layer, cases[c].layer);
        assert_int_equal(err.position, cases[c].position);
        assert_int_equal(dpe_session_length(session), 0);
        assert_int_equal(dpe_session_nll(session, tiny.tokens, tiny.n, nll, &err), DPE_NONFINITE);
        assert_int_equal(err.layer, cases[c].layer);
        assert_int_equal(err.position, cases[c].layer > 0 ? 0 : cases[c].position);
        dpe_session_destroy(session);
        dpe_model_close(bad.model);
    }
    remove_folder(folder);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(however_tokens_are_fed_the_logits_agree),
        cmocka_unit_test(backends_agree_under_every_plan),
        cmocka_unit_test(set_plan_is_a_new_session),
        cmocka_unit_test(likelihoods_are_those_of_the_logits),
        cmocka_unit_test(taps_see_q_and_k_before_rotation),
        cmocka_unit_test(generation_follows_the_largest_logit),
        cmocka_unit_test(the_estimate_is_what_is_allocated),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(flops_are_counted),
        cmocka_unit_test(misuse_is_named),
        cmocka_unit_test(generation_ends_at_any_end_id),
        cmocka_unit_test(nan_is_an_error_with_layer_and_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

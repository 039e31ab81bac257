/* Sessions, on every backend and for every method: prefill = chunked prefill = token by token, cut
 * back and continue, likelihoods, taps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <unistd.h>

#include "engine/model/config/layer_weights.h"
#include "engine/session/device.h"
#include "tests/engine/session/session_case.h"

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
    "lampe:window=5,tail=6,map=11,log-n=6",
    "cope:clip=3,infoscale=4",
    "hirope:window=5,segment=3,logit-scale=1.2",
    "adagrope:first=4,reuse=1.75,log-n=6",
    "dope:from=2,log-n=6,log-n-power=0.5",
    "mrrope:form=uni",
    "jet-long:window=4,group=3",
    "jetlong_freq:window=4,official=1",
    "self:window=5,group=4,rate=0.4",
    "dpe:window=5,groups=3,scales=1/2.5/4,log-n=6,log-n-power=1.3,logit-scale=0.9,far-scale=1.2",
    "dpe:window=5,groups=3,scales=1/2.5/4,logit-scale-heads=0.1:0.5/1.0:1.75/1.2:0.25",
    "string:window=3,infoscale=4",
    "select:k=2,block=4,sinks=2,local=5,refresh=3,representative=extremes,over=dpe:window=5,groups="
    "3,scales=1/2.5/4",
    "longheads:block=2,k=2",
    "infllm:block=3,sinks=2,local=6,k=2,attended=2",
    "reattention:block=3,sinks=2,local=6,k=2",
    "minference:block=5,k=2",
    "moba:block=4,k=2",
    /* Nothing to choose: the place of a scored query, local − 1, lies beyond all positions. */
    "select:k=2,block=4,local=2147483648,scored=constant",
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

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
        tiny_close(&tiny);
    }
}

/* Device cpu-bf16 rounds what it multiplies (logits differ from those of cpu, by little), and gives
 * the same bits however many threads there are and wherever a text is cut into calls of more than 8
 * rows. */
static void prompts_in_bfloat16_keep_their_bits(void **state)
{
    (void)state;
    const struct dpe_ops *ops = NULL;
    struct dpe_error err = {0};
    struct tiny tiny = tiny_open("llama");
    assert_int_equal(dpe_device_dtype("cpu-bf16", tiny.config), DPE_BF16);
    assert_int_equal(dpe_device_dtype("cpu", tiny.config), DPE_F32);
    assert_int_equal(dpe_ops_find("cpu-bf16", &ops, &err), DPE_OK);
    const struct dpe_plan none = {0};
    bool has = ops->supports(tiny.config, &none, &err) == DPE_OK;
    for (int i = 0; i < 2 * N_SPECS && has; i++) {
        float exact[VOCAB];
        float whole[VOCAB];
        float again[VOCAB];
        const char *spec = specs[i / 2];
        struct dpe_session *session = open_session(&tiny, "cpu", spec, i % 2 == 1, 1, tiny.n);
        feed(session, &tiny, tiny.n, exact);
        dpe_session_destroy(session);
        session = open_session(&tiny, "cpu-bf16", spec, i % 2 == 1, 1, tiny.n);
        feed(session, &tiny, tiny.n, whole);
        dpe_session_destroy(session);
        session = open_session(&tiny, "cpu-bf16", spec, i % 2 == 1, 2, tiny.n);
        feed(session, &tiny, tiny.n - 11, NULL);
        feed(session, &tiny, tiny.n, again);
        dpe_session_destroy(session);
        float largest = 0.0F;
        float apart = 0.0F;
        for (int j = 0; j < VOCAB; j++) {
            largest = fmaxf(largest, fabsf(exact[j]));
            apart = fmaxf(apart, fabsf(exact[j] - whole[j]));
        }
        assert_true(apart > 0.0F && apart < 0.25F * largest);
        assert_memory_equal(again, whole, sizeof whole);
    }
    tiny_close(&tiny);
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

/* Factors of all heads are the factor of the plan, and those of a layer's heads the layer's; that
 * of one head is another thing. */
static void factors_of_heads_are_factors_of_logits(void **state)
{
    static const struct {
        const char *heads, *other;
        bool same;
    } cases[] = {
        {"0.0:1.5/0.1:1.5/0.2:1.5/0.3:1.5/1.0:1.5/1.1:1.5/1.2:1.5/1.3:1.5", "logit-scale=1.5",
         true},
        {"1.0:0.5/1.1:0.5/1.2:0.5/1.3:0.5", "logit-scale-last=0.5", true},
        {"1.0:0.5/1.1:0.5/1.2:0.5", "logit-scale-last=0.5", false},
        {"0.1:3", "logit-scale=1", false},
        {"0.1:3", "logit-scale-heads=0.2:3", false},
    };
    (void)state;
    struct tiny tiny = tiny_open("qwen2");
    assert_int_equal(dpe_model_config(tiny.model)->n_layers, 2);
    assert_int_equal(dpe_model_config(tiny.model)->n_heads, 4);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        float logits[2][VOCAB];
        double furthest = 0.0;
        for (int s = 0; s < 2; s++) {
            char spec[256];
            snprintf(spec, sizeof spec, "yarn:%s%s", s == 0 ? "logit-scale-heads=" : "",
                     s == 0 ? cases[i / 2].heads : cases[i / 2].other);
            struct dpe_session *session = open_session(&tiny, devices[i % 2], spec, false, 1, 7);
            feed(session, &tiny, tiny.n, logits[s]);
            dpe_session_destroy(session);
        }
        if (cases[i / 2].same) {
            same_to_rounding(cases[i / 2].other, logits[0], logits[1]);
        }
        for (int v = 0; v < VOCAB; v++) {
            furthest = fmax(furthest, fabs((double)logits[0][v] - (double)logits[1][v]));
        }
        assert_true(cases[i / 2].same || furthest > 1e-3);
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
            assert_int_equal(session->length[0], 0);
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
        assert_int_equal(session->length[0], tiny.n);
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
    const float *gain = w->layers[0].weight[DPE_WEIGHT_ATTENTION_NORM].data;
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
    assert_true(layer->weight[DPE_WEIGHT_Q].dtype == DPE_F32 && tiny.config->n_layers == 2);
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
            /* A tap that stops the pass: its status, and the cache as it was. */
            cut(session, 5);
            taps[i]->calls = 0;
            taps[i]->stop_at = 0;
            assert_int_equal(dpe_session_feed(session, tiny.tokens, 9, plain, &err),
                             DPE_INCOMPLETE);
            assert_int_equal(session->length[0], 5);
            dpe_session_destroy(session);
        }
        for (int64_t t = 0; t < tiny.n; t++) {
            for (int64_t o = 0; o < layer->weight[DPE_WEIGHT_Q].rows; o++) {
                double want =
                    first_layer_value(&tiny, &layer->weight[DPE_WEIGHT_Q], o, tiny.tokens[t]);
                assert_int_equal(near_f32("q", &taps[0]->q[0][t][o], &want, 1, 1e-5), 0);
            }
            for (int64_t o = 0; o < layer->weight[DPE_WEIGHT_K].rows; o++) {
                double want =
                    first_layer_value(&tiny, &layer->weight[DPE_WEIGHT_K], o, tiny.tokens[t]);
                assert_int_equal(near_f32("k", &taps[0]->k[0][t][o], &want, 1, 1e-5), 0);
            }
        }
        /* The first layer's input has no positions, the second's depends on them. */
        assert_memory_equal(taps[0]->q[0], taps[1]->q[0], sizeof taps[0]->q[0]);
        assert_memory_not_equal(taps[0]->q[1], taps[1]->q[1], sizeof taps[0]->q[1]);
        free(taps[0]);
        free(taps[1]);
    }
    tiny_close(&tiny);
}

static int threads_here(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        n += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return n;
}

/* Hand over frees the threads of this thread's team; later calls make a new one
 * and the same bits. */
static void handing_over_frees_the_team(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    float before[VOCAB];
    float after[VOCAB];
    const struct dpe_session_options options = {
        .device = "cpu", .n_threads = 2, .capacity = tiny.n, .prefill_chunk = 16};
    struct dpe_session *session = session_with(&tiny, "rope", false, &options);
    feed(session, &tiny, tiny.n, before);
#pragma omp parallel num_threads(2) /* models of this size may be left to one thread */
    {
    }
    const int with = threads_here();
    assert_true(with > 1);
    dpe_session_hand_over();
    /* A thread that was joined may be listed for a moment. */
    for (int i = 0; i < 1000 && threads_here() == with; i++) {
        usleep(10000);
    }
    assert_true(threads_here() < with);
    cut(session, 0);
    feed(session, &tiny, tiny.n, after);
    assert_memory_equal(before, after, sizeof before);
    dpe_session_destroy(session);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(however_tokens_are_fed_the_logits_agree),
        cmocka_unit_test(prompts_in_bfloat16_keep_their_bits),
        cmocka_unit_test(backends_agree_under_every_plan),
        cmocka_unit_test(factors_of_heads_are_factors_of_logits),
        cmocka_unit_test(set_plan_is_a_new_session),
        cmocka_unit_test(likelihoods_are_those_of_the_logits),
        cmocka_unit_test(taps_see_q_and_k_before_rotation),
        cmocka_unit_test(handing_over_frees_the_team),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The CUDA backend as a whole, on a device that is host memory and the emulator: every method
 * against the reference, prefill and decode, branches, taps. (When the device fails:
 * test_cuda_faults.)
 *
 * DPE_TEST_CUDA_MODULE names the module to test on the device of this machine instead; with
 * DPE_TEST_FEW as well, or on the emulated device alone, only what a sanitizer has time for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/session/session_internal.h"
#include "tests/engine/cuda/host/cuda_case.h"
#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/few.h"

/* Halves keep 8 bits of every activation: of logits that spread over 1 to 10 and are sums of 32
 * products of two of them, a few hundredths are rounding. */
static const double HALF_ROUNDING = 0.2;
static const double FLOAT_ROUNDING = 2e-5;

static void with_wide_heads(struct dpe_config *config)
{
    config->head_dim = 1024;
}

static void with_wide_states(struct dpe_config *config)
{
    config->recurrent.value_dim = 300;
}

/* With these words in one line, and before the device does anything. */
static void expect_refused(const struct tiny *tiny, const struct dpe_plan *plan,
                           const struct dpe_session_options *options, dpe_status wanted,
                           const char *words)
{
    const uint64_t before = cuda_is_real() ? 0 : counts().calls;
    struct dpe_session *session = NULL;
    struct dpe_error err = {0};
    dpe_status status = dpe_session_create(tiny->model, plan, options, &session, &err);
    const bool names_device = strstr(err.text, "--device ") != NULL;
    if (status != wanted || strstr(err.text, words) == NULL ||
        names_device != (wanted == DPE_NO_DEVICE) || strchr(err.text, '\n') != NULL) {
        fail_msg("%s: %s", plan->name, err.text);
    }
    assert_true(cuda_is_real() || counts().calls == before);
}

/* What the kernels do not carry is refused by name, in one line, before the device does anything.
 */
static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *plan;
        void (*change)(struct dpe_config *config); /* NULL: the model is as it is */
        const char *words;
    } rows[] = {
        {"llama", "rope", with_wide_heads, "a head dimension of 1024"},
        {"families/qwen3_5", "rope", with_wide_states, "numbers a head, found 12 x 300"},
        {"llama", "infllm:block=5000", NULL,
         "device cuda does not represent blocks of more than 4096 keys by what attends to them "
         "yet"},
    };
    device("");
    setenv("DPE_DEVICE_SELF_TEST", "40", 1); /* not even that */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tiny tiny = tiny_open(rows[i].folder);
        if (rows[i].change != NULL) {
            rows[i].change(&tiny.model->config);
        }
        struct dpe_plan plan = tiny_plan(&tiny, rows[i].plan, tiny.n);
        const struct dpe_session_options options = {.device = "cuda", .capacity = tiny.n};
        expect_refused(&tiny, &plan, &options, DPE_NO_DEVICE, rows[i].words);
        dpe_plan_free(&plan);
        tiny_close(&tiny);
    }
    setenv("DPE_DEVICE_SELF_TEST", "off", 1);
    expect_clean();
}

/* Keys and values in 8 bits, or in a file. The tools name a folder for such a file always, so a
 * session that does not need it is not refused. */
static void caches_are_refused(void **state)
{
    (void)state;
    device("");
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct dpe_session_options options = {.device = "cuda", .capacity = tiny.n};
    options.kv_type = DPE_KV_INT8;
    setenv("DPE_DEVICE_SELF_TEST", "40", 1);
    expect_refused(&tiny, &plan, &options, DPE_NO_DEVICE,
                   "device cuda keeps keys and values in its own type, not in int8; use --device "
                   "cpu");
    setenv("DPE_DEVICE_SELF_TEST", "off", 1); /* it comes before the question of memory */
    options.kv_type = DPE_KV_F32;
    options.kv_dir = "/tmp";
    options.max_memory = 1 << 20;
    expect_refused(&tiny, &plan, &options, DPE_NO_MEMORY, "allow more with max_memory");
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

static void one_case(const struct tiny *tiny, int i, int64_t window, double most)
{
    struct dpe_plan plan;
    float want[VOCAB];
    float got[VOCAB];
    plan_case_make(i, window, tiny->config, &plan);
    most *=
        fmax(1.0, plan.temperature.logit_scale); /* which enlarges the rounding of logits as well */
    struct dpe_session *reference = open_on(tiny, "reference", &plan, tiny->n);
    struct dpe_session *session = open_on(tiny, "cuda", &plan, tiny->n);
    feed(reference, tiny, tiny->n, want);
    feed(session, tiny, tiny->n, got);
    double error = worst(got, want, VOCAB);
    printf("%s, window %d: worst difference %.2e\n", plan_cases[i], (int)window, error);
    assert_true(error <= most);
    /* Token by token, then in pieces after a cut. */
    struct dpe_error err = {0};
    TINY_OK(dpe_session_cut(session, 0, &err), err);
    for (int64_t t = 1; t <= tiny->n; t += t < 24 && i % 4 != 1 ? 5 : 1) {
        feed(session, tiny, t, got);
    }
    assert_true(worst(got, want, VOCAB) <= most);
    TINY_OK(dpe_session_cut(session, 11, &err), err);
    feed(session, tiny, 30, NULL);
    feed(session, tiny, tiny->n, got);
    assert_true(worst(got, want, VOCAB) <= most);
    dpe_session_destroy(session);
    dpe_session_destroy(reference);
    dpe_plan_free(&plan);
}

static void every_method(void **state)
{
    (void)state;
    /* Under a sanitizer the emulator takes minutes for all of them. */
    const int step = few(5);
    struct tiny tiny = tiny_open("llama");
    for (int i = 0; i < PLAN_CASES; i += step) {
        device(i % 2 == 0 ? "" : "seed=7");
        one_case(&tiny, i, i % 3 == 0 ? 7 : 16, FLOAT_ROUNDING);
    }
    tiny_close(&tiny);
    tiny = tiny_open("llama_bf16");
    for (int i = 0; i < PLAN_CASES; i += 2 * step) {
        device("");
        one_case(&tiny, i, i % 3 == 0 ? 9 : 17, HALF_ROUNDING);
    }
    tiny_close(&tiny);
    expect_clean();
}

static void branches(void **state)
{
    (void)state;
    device("");
    struct tiny tiny = tiny_open("llama");
    for (int i = 0; i < 3; i++) {
        struct dpe_plan plan;
        plan_case_make(i, 7, tiny.config, &plan);
        assert_true(branches_error(&tiny, &plan) <= FLOAT_ROUNDING);
        dpe_plan_free(&plan);
    }
    tiny_close(&tiny);
    expect_clean();
}

/* Models whose head dimensions have fast kernels, in halves: prefill in pieces, decoding and
 * branches on every kernel against the reference. The plain kernel on the same device gives the
 * error that rounding activations to halves costs; a fast one may cost twice that. */
static void one_wide(const struct wide *wide, int plan_case, int64_t window, const char *kernel)
{
    enum { N = WIDE_LOGITS };
    static float want[N];
    static float plain[N];
    static float got[N];
    struct dpe_plan plan;
    plan_case_make(plan_case, window, &wide->config, &plan);
    run_wide(wide, &plan, NULL, want);
    run_wide(wide, &plan, "plain", plain);
    run_wide(wide, &plan, kernel, got);
    double rounding = worst(plain, want, N);
    double error = worst(got, want, N);
    printf("%s, %d of %d, %s, window %d: %.2e, plain %.2e\n", kernel, (int)wide->config.n_heads,
           (int)wide->config.head_dim, plan_cases[plan_case], (int)window, error, rounding);
    assert_true(rounding < 0.3 && error <= fmax(2.0 * rounding, 0.02));
    dpe_plan_free(&plan);
}

/* Greedy generation finds its tokens on the device. */
static void generates(void **state)
{
    (void)state;
    device("");
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct dpe_tokens made[2] = {{0}, {0}};
    const char *const names[2] = {"reference", "cuda"};
    struct dpe_error err = {0};
    const struct dpe_generate_options options = {.max_new = 12, .ignore_eos = true};
    for (int d = 0; d < 2; d++) {
        struct dpe_session *session = open_on(&tiny, names[d], &plan, 16);
        TINY_OK(dpe_session_generate(session, tiny.tokens, 20, &options, &made[d], &err), err);
        dpe_session_destroy(session);
    }
    assert_int_equal(made[0].n, 12);
    assert_int_equal(made[1].n, 12);
    assert_memory_equal(made[0].ids, made[1].ids, 12 * sizeof *made[0].ids);
    dpe_tokens_free(&made[0]);
    dpe_tokens_free(&made[1]);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

static void fast_kernels(void **state)
{
    (void)state;
    const struct {
        const char *device, *kernel;
        int64_t heads, kv_heads, head_dim;
        enum dpe_dtype dtype;
        int plan_case, window;
    } cases[] = {
        {"capability=80", "mma", 4, 2, 64, DPE_BF16, 0, 9},
        {"capability=80,seed=3", "mma", 4, 2, 64, DPE_BF16, 1, 33},
        {"capability=80", "mma", 4, 1, 64, DPE_F16, 12, 24},
        {"capability=90", "wgmma", 2, 2, 128, DPE_BF16, 1, 20},
        {"capability=90,seed=9", "wgmma", 6, 2, 64, DPE_BF16, 2, 30},
        {"capability=80", "mma", 3, 1, 96, DPE_BF16, 1, 17},
        {"capability=120", "mma", 2, 1, 128, DPE_BF16, 13, 21},
        {"capability=80", "mma", 4, 1, 256, DPE_BF16, 1, 20},
        {"capability=90,seed=5", "wgmma", 4, 2, 256, DPE_F16, 12, 24},
        {"capability=120", "mma", 2, 1, 256, DPE_BF16, 2, 30},
        /* Decoding alone is fast; two KV heads a block, and without room for tables. */
        {"capability=80", "mma", 8, 1, 512, DPE_BF16, 1, 20},
        {"capability=90,seed=5", "wgmma", 4, 2, 512, DPE_F16, 12, 24},
        {"capability=120,seed=3", "mma", 4, 2, 512, DPE_BF16, 2, 30},
    };
    const char *best = cuda_best_kernel();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (best != NULL && strcmp(best, cases[i].kernel) != 0) {
            continue;
        }
        device(cases[i].device);
        struct wide wide =
            wide_open(cases[i].heads, cases[i].kv_heads, cases[i].head_dim, cases[i].dtype);
        wide.config.query_growth = i % 2 == 0 ? 0.3 : 0.0;
        wide.config.query_length = 40.0;
        wide.config.attention_cap = i % 3 == 2 ? 0.5 : 0.0;
        one_wide(&wide, cases[i].plan_case, cases[i].window, cases[i].kernel);
        dpe_model_close(wide.model);
    }
    expect_clean();
}

struct tapped {
    int calls;
    double sum, size;
};

static dpe_status note(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                       const float *k, struct dpe_error *err)
{
    struct tapped *tapped = user;
    (void)layer;
    (void)start;
    (void)err;
    tapped->calls++;
    for (int64_t i = 0; i < rows * 4 * 16; i++) {
        double part = (double)q[i] * (double)(i % 7) + (double)k[i] * (double)(i % 5);
        tapped->sum += part;
        tapped->size += fabs(part);
    }
    return DPE_OK;
}

static void taps_and_likelihoods(void **state)
{
    (void)state;
    device("");
    struct tiny tiny = tiny_open("llama_bf16");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct tapped tapped[2] = {{0, 0.0, 0.0}, {0, 0.0, 0.0}};
    double nll[2][64];
    const char *const names[2] = {"reference", "cuda"};
    struct dpe_error err = {0};
    for (int d = 0; d < 2; d++) {
        struct dpe_session *session = open_on(&tiny, names[d], &plan, 16);
        dpe_session_set_tap(session, note, &tapped[d]);
        TINY_OK(dpe_session_nll(session, tiny.tokens, tiny.n, nll[d], &err), err);
        dpe_session_destroy(session);
    }
    assert_int_equal(tapped[0].calls, tapped[1].calls);
    assert_true(tapped[0].size > 0.0);
    assert_true(fabs(tapped[0].size - tapped[1].size) <= 0.01 * tapped[0].size);
    assert_true(fabs(tapped[0].sum - tapped[1].sum) <= 0.01 * tapped[0].size);
    for (int64_t i = 0; i + 1 < tiny.n; i++) {
        assert_true(fabs(nll[0][i] - nll[1][i]) <= HALF_ROUNDING);
    }
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

/* Sums of norms over a prefill in chunks, added up on the device, against those of a tap there. */
struct norm_tap {
    const struct dpe_config *config;
    bool products;
    double q[2 * 4 * 8], k[2 * 4 * 8];
};

static double pair_norm(const float *x, int64_t j, int64_t n_pairs)
{
    return sqrt((double)x[j] * (double)x[j] + (double)x[j + n_pairs] * (double)x[j + n_pairs]);
}

static dpe_status norm_note(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                            const float *k, struct dpe_error *err)
{
    struct norm_tap *tap = user;
    const struct dpe_config *c = tap->config;
    int64_t pairs = c->head_dim / 2;
    int64_t group = c->n_heads / c->n_kv_heads;
    (void)start, (void)err;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < c->n_heads * pairs; i++) {
            const float *of_q = q + (r * c->n_heads + i / pairs) * c->head_dim;
            const float *of_k = k + (r * c->n_kv_heads + i / pairs / group) * c->head_dim;
            double norm = pair_norm(of_q, i % pairs, pairs);
            tap->q[layer * c->n_heads * pairs + i] +=
                tap->products ? norm * pair_norm(of_k, i % pairs, pairs) : norm;
        }
        for (int64_t i = 0; i < c->n_kv_heads * pairs; i++) {
            const float *of_k = k + (r * c->n_kv_heads + i / pairs) * c->head_dim;
            tap->k[layer * c->n_kv_heads * pairs + i] += pair_norm(of_k, i % pairs, pairs);
        }
    }
    return DPE_OK;
}

static void norms_on_the_device(void **state)
{
    (void)state;
    const char *const folders[2] = {"llama", "llama_bf16"};
    device("");
    for (int i = 0; i < 4; i++) {
        struct tiny tiny = tiny_open(folders[i / 2]);
        const struct dpe_config *c = tiny.config;
        int64_t pairs = c->head_dim / 2;
        int64_t n_q = c->n_layers * c->n_heads * pairs;
        int64_t n_k = c->n_layers * c->n_kv_heads * pairs;
        struct norm_tap tap = {.config = c, .products = i % 2 == 1};
        double q[2 * 4 * 8] = {0};
        double k[2 * 4 * 8] = {0};
        int64_t rows[2] = {0};
        assert_true(n_q <= 64 && n_k <= 64 && c->n_layers == 2);
        struct dpe_error err = {0};
        const struct dpe_norm_text text = {
            tiny.tokens, tiny.n, {tap.products, q, tap.products ? NULL : k, rows}};
        struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
        struct dpe_session *session = open_on(&tiny, "cuda", &plan, 16);
        dpe_session_set_tap(session, norm_note, &tap);
        TINY_OK(dpe_session_norms(session, &text, 1, &err), err);
        assert_int_equal(rows[0], tiny.n);
        assert_int_equal(rows[1], tiny.n);
        for (int64_t j = 0; j < n_q; j++) {
            assert_true(tap.q[j] > 0.0 && fabs(q[j] - tap.q[j]) <= 1e-6 * tap.q[j]);
        }
        for (int64_t j = 0; j < n_k; j++) {
            assert_true(tap.products ? k[j] == 0.0 : fabs(k[j] - tap.k[j]) <= 1e-6 * tap.k[j]);
        }
        TINY_OK(dpe_session_cut(session, 0, &err), err);
        feed(session, &tiny, 1, NULL); /* is not added */
        assert_int_equal(rows[0], tiny.n);
        dpe_session_destroy(session);
        dpe_plan_free(&plan);
        tiny_close(&tiny);
    }
    expect_clean();
}

/* NaN weights after layer 0: layer and position are reported at the end of the pass. */
static void non_finite(void **state)
{
    (void)state;
    device("");
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    plan.temperature.logit_scale =
        1e38; /* times logits: infinite in float, so NaN in the softmax */
    const struct dpe_session_options options = {.device = "cuda", .capacity = tiny.n};
    TINY_OK(dpe_session_create(tiny.model, &plan, &options, &session, &err), err);
    float logits[VOCAB];
    dpe_status status = dpe_session_feed(session, tiny.tokens, tiny.n, logits, &err);
    assert_int_equal(status, DPE_NONFINITE);
    assert_int_equal(err.layer, 0);
    assert_true(err.position >= 0 && err.position < tiny.n);
    assert_int_equal(session->length[0], 0);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

int main(void)
{
    int status = cuda_begin();
    if (status != 0) {
        return status;
    }
    const struct CMUnitTest small[] = {
        cmocka_unit_test(non_finite),
        cmocka_unit_test(taps_and_likelihoods),
        cmocka_unit_test(fast_kernels),
    };
    const struct CMUnitTest on_device[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(caches_are_refused),
        cmocka_unit_test(every_method),
        cmocka_unit_test(branches),
        cmocka_unit_test(generates),
        cmocka_unit_test(non_finite),
        cmocka_unit_test(taps_and_likelihoods),
        cmocka_unit_test(norms_on_the_device),
        cmocka_unit_test(fast_kernels),
    };
    return cuda_is_real() && few_cases() ? cuda_run(small) : cuda_run(on_device);
}

/* The CUDA backend as a whole, on a device that is host memory and the emulator: golden models,
 * every method against the reference, prefill and decode, branches, taps, and what happens when the
 * device fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "emulate/fake_runtime.h"
#include "near.h"
#include "plan_cases.h"
#include "random_model.h"
#include "tiny.h"

enum { VOCAB = 64 };

/* Halves keep 8 bits of every activation: of logits that spread over 1 to 10 and are sums of 32
 * products of two of them, a few hundredths are rounding. */
static const double HALF_ROUNDING = 0.2;
static const double FLOAT_ROUNDING = 2e-5;

/* DPE_TEST_CUDA_MODULE names the module to test on the device of this machine instead; what is
 * about the fake one is then left out. With DPE_TEST_CUDA_SMALL as well only what a sanitizer has
 * time for. */
static bool real;

/* A test's device is new: what it is and what goes wrong on it is said here. */
static void device(const char *words)
{
    setenv("DPE_FAKE_CUDA", words, 1);
}

static struct fake_counts counts(void)
{
    struct fake_counts (*read)(void) = NULL;
    assert_false(real);
    void *library = dlopen(getenv("DPE_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    *(void **)(&read) = dlsym(library, "fake_counts_read");
    assert_non_null(read);
    struct fake_counts found = read();
    dlclose(library);
    return found;
}

/* After every session: nothing is left, nothing was written beside what was asked for. */
static void expect_clean(void)
{
    if (real) {
        return;
    }
    struct fake_counts found = counts();
    assert_int_equal(found.live, 0);
    assert_int_equal(found.damaged, 0);
}

static struct dpe_session *open_on(const struct tiny *tiny, const char *name,
                                   const struct dpe_plan *plan, int64_t chunk)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {
        .device = name, .n_threads = 1, .capacity = tiny->n, .prefill_chunk = chunk};
    TINY_OK(dpe_session_create(tiny->model, plan, &options, &session, &err), err);
    return session;
}

static void feed(struct dpe_session *session, const struct tiny *tiny, int64_t to, float *logits)
{
    struct dpe_error err = {0};
    int64_t from = dpe_session_length(session);
    TINY_OK(dpe_session_feed(session, tiny->tokens + from, to - from, logits, &err), err);
}

static double worst(const float *got, const float *want, int64_t n)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double error = near_error((double)got[i], (double)want[i]);
        largest = !(error <= largest) ? error : largest;
    }
    return largest;
}

/* Logits of every position against float64, next to those of transformers in float32. */
static void golden(const char *folder)
{
    struct tiny tiny = tiny_open(folder);
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct dpe_session *session = open_on(&tiny, "cuda", &plan, 16);
    double error = 0.0;
    double plain = 0.0;
    for (int64_t i = 0; i < tiny.n; i++) {
        float logits[VOCAB];
        feed(session, &tiny, i + 1, logits);
        for (int64_t t = 0; t < VOCAB; t++) {
            error = fmax(error, near_error((double)logits[t], tiny.oracle[i * VOCAB + t]));
            plain = fmax(
                plain, near_error((double)tiny.logits[i * VOCAB + t], tiny.oracle[i * VOCAB + t]));
        }
    }
    printf("%s: worst error %.2e, of transformers in float32 %.2e\n", folder, error, plain);
    assert_true(error <= (tiny.config->dtype == DPE_F32 ? fmax(2.0 * plain, 2e-6) : HALF_ROUNDING));
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

static void golden_logits(void **state)
{
    (void)state;
    device("");
    golden("llama");
    golden("llama_bf16");
    golden("llama3");
    golden("yarn");
    golden("sharded");
    golden("qwen2");
    golden("mistral");
}

static void one_case(const struct tiny *tiny, int i, int64_t window, double most)
{
    struct dpe_plan plan;
    float want[VOCAB];
    float got[VOCAB];
    plan_case_make(i, window, tiny->config, &plan);
    struct dpe_session *reference = open_on(tiny, "reference", &plan, tiny->n);
    struct dpe_session *session = open_on(tiny, "cuda", &plan, tiny->n);
    feed(reference, tiny, tiny->n, want);
    feed(session, tiny, tiny->n, got);
    double error = worst(got, want, VOCAB);
    printf("%s, window %d: worst difference %.2e\n", plan_cases[i], (int)window, error);
    assert_true(error <= most);
    /* Token by token, then in pieces behind a cut. */
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
    struct tiny tiny = tiny_open("llama");
    for (int i = 0; i < PLAN_CASES; i++) {
        device(i % 2 == 0 ? "" : "seed=7");
        one_case(&tiny, i, i % 3 == 0 ? 7 : 16, FLOAT_ROUNDING);
    }
    tiny_close(&tiny);
    tiny = tiny_open("llama_bf16");
    for (int i = 0; i < PLAN_CASES; i += 2) {
        device("");
        one_case(&tiny, i, i % 3 == 0 ? 9 : 17, HALF_ROUNDING);
    }
    tiny_close(&tiny);
    expect_clean();
}

/* Branches of different lengths, fed in steps, against a session for each alone. */
static void branches(void **state)
{
    (void)state;
    enum { N = 3, ROOM = 12, PREFIX = 20 };
    device("");
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    for (int i = 0; i < 3; i++) {
        struct dpe_plan plan;
        plan_case_make(i, 7, tiny.config, &plan);
        struct dpe_session *session = NULL;
        const struct dpe_session_options options = {.device = "cuda",
                                                    .n_threads = 1,
                                                    .capacity = PREFIX + N * ROOM,
                                                    .positions = PREFIX + ROOM,
                                                    .branches = N};
        TINY_OK(dpe_session_create(tiny.model, &plan, &options, &session, &err), err);
        TINY_OK(dpe_session_feed(session, tiny.tokens, PREFIX, NULL, &err), err);
        TINY_OK(dpe_session_branch(session, N, ROOM, &err), err);
        for (int64_t b = 0; b < N; b++) {
            TINY_OK(
                dpe_session_branch_feed(session, b, tiny.tokens + PREFIX + b, 3 + b, NULL, &err),
                err);
        }
        const int64_t which[N] = {2, 0, 1};
        float logits[N * VOCAB];
        for (int step = 0; step < 4; step++) {
            int32_t tokens[N];
            for (int64_t b = 0; b < N; b++) {
                tokens[b] = tiny.tokens[5 * step + which[b]];
            }
            TINY_OK(dpe_session_step(session, N, which, tokens, logits, &err), err);
        }
        for (int64_t b = 0; b < N; b++) {
            struct dpe_session *alone = open_on(&tiny, "reference", &plan, tiny.n);
            float want[VOCAB];
            feed(alone, &tiny, PREFIX, NULL);
            TINY_OK(
                dpe_session_feed(alone, tiny.tokens + PREFIX + which[b], 3 + which[b], NULL, &err),
                err);
            for (int step = 0; step < 4; step++) {
                TINY_OK(dpe_session_feed(alone, &tiny.tokens[5 * step + which[b]], 1, want, &err),
                        err);
            }
            assert_true(worst(logits + b * VOCAB, want, VOCAB) <= FLOAT_ROUNDING);
            dpe_session_destroy(alone);
        }
        dpe_session_destroy(session);
        dpe_plan_free(&plan);
    }
    tiny_close(&tiny);
    expect_clean();
}

/* Models whose head dimensions have fast kernels, in halves: prefill in pieces, decoding and
 * branches on every kernel against the reference. The plain kernel on the same device says what the
 * rounding of activations to halves costs; a fast one may cost twice that. */
struct wide {
    struct dpe_model *model;
    struct dpe_config config;
    int32_t tokens[160];
};

static struct wide wide_open(int64_t heads, int64_t kv_heads, int64_t head_dim,
                             enum dpe_dtype dtype)
{
    struct dpe_error err = {0};
    struct wide wide = {.config = {.model_type = "llama",
                                   .n_layers = 2,
                                   .hidden = 48,
                                   .intermediate = 56,
                                   .n_heads = heads,
                                   .n_kv_heads = kv_heads,
                                   .head_dim = head_dim,
                                   .vocab = VOCAB,
                                   .max_position = 64,
                                   .rms_eps = 1e-5,
                                   .bos_id = -1,
                                   .dtype = dtype,
                                   .rope = {.theta = 1e4,
                                            .factor = NAN,
                                            .original_max_position = NAN,
                                            .attention_factor = NAN,
                                            .partial_rotary_factor = 1.0}}};
    TINY_OK(dpe_random_model(&wide.config, true, 5, &wide.model, &err), err);
    for (int i = 0; i < 160; i++) {
        wide.tokens[i] = (i * 29 + i / 7) % VOCAB;
    }
    return wide;
}

enum { LONG = 150, OWN = 5, BRANCHES = 6 };

/* Logits behind a prefill in two pieces, behind decoding, and of the steps of branches; kernel
 * NULL: of the reference. */
static void run_wide(const struct wide *wide, const struct dpe_plan *plan, const char *kernel,
                     float *logits)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {.device = kernel == NULL ? "reference" : "cuda",
                                                .n_threads = 1,
                                                .capacity = LONG + BRANCHES * OWN,
                                                .positions = LONG + OWN,
                                                .branches = BRANCHES,
                                                .prefill_chunk = 100};
    setenv("DPE_CUDA_ATTENTION", kernel == NULL ? "" : kernel, 1);
    TINY_OK(dpe_session_create(wide->model, plan, &options, &session, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens, LONG - 3, logits, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens + LONG - 3, 2, logits + VOCAB, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens + LONG - 1, 1, logits + 2 * VOCAB, &err), err);
    TINY_OK(dpe_session_branch(session, BRANCHES, OWN, &err), err);
    /* One branch is ahead of the others. */
    TINY_OK(dpe_session_branch_feed(session, 2, wide->tokens + 3, 2, NULL, &err), err);
    const int64_t which[BRANCHES] = {1, 0, 2, 3, 5, 4};
    for (int step = 0; step < 2; step++) {
        TINY_OK(dpe_session_step(session, BRANCHES, which, wide->tokens + 10 * step,
                                 logits + 3 * VOCAB, &err),
                err);
    }
    /* And a branch's own prefill, behind keys of others. */
    TINY_OK(
        dpe_session_branch_feed(session, 4, wide->tokens, 3, logits + (3 + BRANCHES) * VOCAB, &err),
        err);
    dpe_session_destroy(session);
    unsetenv("DPE_CUDA_ATTENTION");
}

static void one_wide(const struct wide *wide, int plan_case, int64_t window, const char *kernel)
{
    enum { N = (4 + BRANCHES) * VOCAB };
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
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        device(cases[i].device);
        struct wide wide =
            wide_open(cases[i].heads, cases[i].kv_heads, cases[i].head_dim, cases[i].dtype);
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
        const struct dpe_norm_sums sums = {tap.products, q, tap.products ? NULL : k, rows};
        struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
        struct dpe_session *session = open_on(&tiny, "cuda", &plan, 16);
        assert_true(dpe_session_set_norm_sums(session, &sums));
        dpe_session_set_tap(session, norm_note, &tap);
        feed(session, &tiny, tiny.n, NULL);
        assert_int_equal(rows[0], tiny.n);
        assert_int_equal(rows[1], tiny.n);
        for (int64_t j = 0; j < n_q; j++) {
            assert_true(tap.q[j] > 0.0 && fabs(q[j] - tap.q[j]) <= 1e-6 * tap.q[j]);
        }
        for (int64_t j = 0; j < n_k; j++) {
            assert_true(tap.products ? k[j] == 0.0 : fabs(k[j] - tap.k[j]) <= 1e-6 * tap.k[j]);
        }
        assert_true(dpe_session_set_norm_sums(session, NULL) && q[0] > 0.0);
        dpe_session_destroy(session);
        session = open_on(&tiny, "reference", &plan, 16);
        assert_false(dpe_session_set_norm_sums(session, &sums));
        dpe_session_destroy(session);
        dpe_plan_free(&plan);
        tiny_close(&tiny);
    }
    expect_clean();
}

static dpe_status try_session(const struct tiny *tiny, const struct dpe_plan *plan,
                              uint64_t max_memory, struct dpe_error *err)
{
    struct dpe_session *session = NULL;
    float logits[VOCAB];
    const struct dpe_session_options options = {
        .device = "cuda", .capacity = tiny->n, .max_memory = max_memory};
    dpe_status status = dpe_session_create(tiny->model, plan, &options, &session, err);
    if (status == DPE_OK) {
        status = dpe_session_feed(session, tiny->tokens, tiny->n, logits, err);
    }
    dpe_session_destroy(session);
    return status;
}

static void expect_text(const struct dpe_error *err, const char *text)
{
    if (strstr(err->text, text) == NULL) {
        fail_msg("expected \"%s\" in: %s", text, err->text);
    }
}

/* The N-th allocation fails, for every N there is; and the device breaks at the N-th call. */
static void failures(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama_bf16");
    struct dpe_plan plan = tiny_plan(&tiny, "dpe:window=5,groups=3,scales=1/2.5/4", tiny.n);
    struct dpe_error err = {0};
    device("");
    uint64_t before = counts().calls;
    uint64_t allocations = counts().allocations;
    assert_int_equal(try_session(&tiny, &plan, 0, &err), DPE_OK);
    uint64_t calls = counts().calls - before;
    allocations = counts().allocations - allocations;
    printf("%d allocations, %d calls\n", (int)allocations, (int)calls);
    for (uint64_t n = 1; n <= allocations; n += n < 8 || n + 8 > allocations ? 1 : 5) {
        char words[64];
        snprintf(words, sizeof words, "allocate=%d", (int)(counts().allocations + n));
        device(words);
        dpe_status status = try_session(&tiny, &plan, 0, &err);
        /* The walk's few bytes are asked for while tokens run. */
        assert_true(status == DPE_NO_MEMORY || (status == DPE_INCOMPLETE && n == allocations));
        device("");
        expect_clean();
    }
    for (uint64_t n = 1; n <= calls; n += 1 + n / 4) {
        char words[64];
        snprintf(words, sizeof words, "sticky=%d", (int)(counts().calls + n));
        device(words);
        dpe_status status = try_session(&tiny, &plan, 0, &err);
        device("");
        /* The last calls are releases. */
        assert_true(status == DPE_INCOMPLETE || (status == DPE_OK && n > calls / 2));
        if (status == DPE_INCOMPLETE) {
            expect_text(&err, "the device (emulated device 0) failed in");
            expect_text(&err, "an illegal memory access");
        }
        expect_clean();
    }
    assert_int_equal(try_session(&tiny, &plan, 0, &err), DPE_OK);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

/* Few rows over many keys are cut into parts where they would leave most of the card idle. */
static void few_rows_in_parts(void **state)
{
    (void)state;
    enum { KEYS = 530, ROWS = 9 };
    struct wide wide = wide_open(2, 1, 256, DPE_BF16);
    struct dpe_error err = {0};
    const struct dpe_plan_context context = {
        .config = &wide.config, .trained_length = 64, .length = KEYS + ROWS};
    int32_t tokens[KEYS + ROWS];
    float logits[3][VOCAB];
    const char *const devices[3] = {"processors=1", "processors=4", NULL};
    struct dpe_plan plan;
    TINY_OK(dpe_plan_make("dpe:window=100,scales=1/2/3.5/8", &context, &plan, &err), err);
    for (int i = 0; i < KEYS + ROWS; i++) {
        tokens[i] = (i * 37 + i / 11) % VOCAB;
    }
    for (int i = 0; i < 3; i++) {
        const struct dpe_session_options options = {.device =
                                                        devices[i] == NULL ? "reference" : "cuda",
                                                    .n_threads = 1,
                                                    .capacity = KEYS + ROWS};
        struct dpe_session *session = NULL;
        device(devices[i] == NULL ? "" : devices[i]);
        setenv("DPE_CUDA_ATTENTION", "", 1);
        TINY_OK(dpe_session_create(wide.model, &plan, &options, &session, &err), err);
        TINY_OK(dpe_session_feed(session, tokens, KEYS, NULL, &err), err);
        TINY_OK(dpe_session_feed(session, tokens + KEYS, ROWS, logits[i], &err), err);
        dpe_session_destroy(session);
        expect_clean();
    }
    /* Two heads are two blocks, and a card of one multiprocessor is busy with them. */
    assert_memory_not_equal(logits[0], logits[1], sizeof logits[0]);
    double whole = worst(logits[0], logits[2], VOCAB);
    double parted = worst(logits[1], logits[2], VOCAB);
    printf("in parts: %.2e, whole: %.2e\n", parted, whole);
    assert_true(parted <= 2.0 * whole);
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
}

/* Chunks are halved as far as it takes, whether memory is known to be short or turns out to be; the
 * answer stays the same. */
static void short_memory(void **state)
{
    (void)state;
    enum { N = 2000 };
    struct wide wide = wide_open(2, 1, 8, DPE_F32);
    struct dpe_error err = {0};
    const struct dpe_plan_context context = {
        .config = &wide.config, .trained_length = 64, .length = N};
    struct dpe_plan plan;
    TINY_OK(dpe_plan_make("dpe:window=5,scales=4", &context, &plan, &err), err);
    struct dpe_session_options options = {.device = "cuda", .n_threads = 1, .capacity = N};
    struct dpe_session *session = NULL;
    uint64_t bytes = 0;
    uint64_t weights = 0;
    float logits[2][VOCAB];
    device("");
    TINY_OK(dpe_session_estimate(&wide.config, &plan, &options, &bytes, &weights, &err), err);
    TINY_OK(dpe_session_create(wide.model, &plan, &options, &session, &err), err);
    uint64_t taken = counts().bytes;
    assert_int_equal(dpe_session_chunk(session), N);
    dpe_session_destroy(session);
    for (int i = 0; i < 2; i++) {
        char words[64];
        /* Short by a quarter of a megabyte; then nobody says so before it is asked for. */
        snprintf(words, sizeof words, "memory=%llu%s",
                 (unsigned long long)(i == 0 ? bytes : taken) - (1 << 18), i == 0 ? "" : ",hidden");
        device(words);
        TINY_OK(dpe_session_create(wide.model, &plan, &options, &session, &err), err);
        assert_int_equal(dpe_session_full_chunk(session), N);
        assert_true(dpe_session_chunk(session) < N);
        assert_true(dpe_session_chunk(session) >= 512);
        printf("chunks of %d\n", (int)dpe_session_chunk(session));
        TINY_OK(dpe_session_feed(session, wide.tokens, 160, logits[i], &err), err);
        TINY_OK(dpe_session_set_plan(session, &plan, &err), err);
        assert_true(dpe_session_chunk(session) >= 512);
        dpe_session_destroy(session);
        expect_clean();
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    /* Who asks for a chunk gets it, or a refusal that says what fits. */
    device("");
    options.prefill_chunk = N;
    options.max_memory = bytes - (1 << 18);
    assert_int_equal(dpe_session_create(wide.model, &plan, &options, &session, &err),
                     DPE_NO_MEMORY);
    expect_text(&err, "in chunks of 2000");
    const char *fits = strstr(err.text, "less (");
    long length = fits == NULL ? 0 : strtol(fits + 6, NULL, 10);
    assert_true(length > 0 && length < N);
    options.capacity = length;
    options.prefill_chunk = 0;
    TINY_OK(dpe_session_create(wide.model, &plan, &options, &session, &err), err);
    dpe_session_destroy(session);
    /* The floor. */
    options.capacity = N;
    options.max_memory = 193 << 20;
    assert_int_equal(dpe_session_create(wide.model, &plan, &options, &session, &err),
                     DPE_NO_MEMORY);
    expect_text(&err, "in chunks of 512");
    expect_text(&err, "--max-memory");
    options.max_memory = 1 << 20;
    assert_int_equal(dpe_session_create(wide.model, &plan, &options, &session, &err),
                     DPE_NO_MEMORY);
    expect_text(&err, "no length fits");
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
    expect_clean();
}

static void refusals(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct dpe_error err = {0};
    const char *name = NULL;
    device("none");
    assert_int_equal(try_session(&tiny, &plan, 0, &err), DPE_NO_DEVICE);
    expect_text(&err, "there is a driver but no device");
    assert_int_equal(dpe_device_resolve("auto", &name, &err), DPE_OK);
    assert_string_equal(name, "cpu");
    device("driver=0");
    assert_int_equal(try_session(&tiny, &plan, 0, &err), DPE_NO_DEVICE);
    expect_text(&err, "no NVIDIA driver");
    device("driver=12080");
    assert_int_equal(try_session(&tiny, &plan, 0, &err), DPE_NO_DEVICE);
    expect_text(&err, "the driver is for CUDA 12.8, expected at least 13.0");
    device("capability=75");
    assert_int_equal(try_session(&tiny, &plan, 0, &err), DPE_NO_DEVICE);
    expect_text(&err, "compute capability 7.5, expected at least 8.0");
    device("memory=1000000");
    assert_int_equal(try_session(&tiny, &plan, 0, &err), DPE_NO_MEMORY);
    expect_text(&err, "a smaller length or prefill chunk");
    device("");
    assert_int_equal(try_session(&tiny, &plan, 1 << 20, &err), DPE_NO_MEMORY);
    expect_text(&err, "--max-memory");
    assert_int_equal(dpe_device_resolve("auto", &name, &err), DPE_OK);
    assert_string_equal(name, "cuda");
    assert_int_equal(dpe_device_resolve("cuda:2", &name, &err), DPE_NO_DEVICE);
    expect_text(&err, "there are 2");
    assert_int_equal(dpe_device_resolve("cuda:1", &name, &err), DPE_OK);
    assert_int_equal(dpe_device_resolve("cuda:x", &name, &err), DPE_USAGE);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

/* NaN weights behind layer 0: layer and position are told at the end of the pass. */
static void non_finite(void **state)
{
    (void)state;
    device("");
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    plan.logit_factor = 1e38; /* times logits: infinite in float, so NaN in the softmax */
    const struct dpe_session_options options = {.device = "cuda", .capacity = tiny.n};
    TINY_OK(dpe_session_create(tiny.model, &plan, &options, &session, &err), err);
    float logits[VOCAB];
    dpe_status status = dpe_session_feed(session, tiny.tokens, tiny.n, logits, &err);
    assert_int_equal(status, DPE_NONFINITE);
    assert_int_equal(err.layer, 0);
    assert_true(err.position >= 0 && err.position < tiny.n);
    assert_int_equal(dpe_session_length(session), 0);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

int main(void)
{
    const char *module = getenv("DPE_TEST_CUDA_MODULE");
    struct dpe_error err = {0};
    const char *name = NULL;
    real = module != NULL;
    setenv("DPE_CUDA_MODULE", real ? module : DPE_BINARY_DIR "/tests/libdpe_cuda_emulated.so", 1);
    device("");
    dpe_status status = dpe_device_resolve("cuda", &name, &err);
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return real && status == DPE_NO_DEVICE ? 125 : 1;
    }
    const struct CMUnitTest small[] = {
        cmocka_unit_test(fast_kernels),
        cmocka_unit_test(taps_and_likelihoods),
        cmocka_unit_test(non_finite),
    };
    const struct CMUnitTest on_device[] = {
        cmocka_unit_test(golden_logits),
        cmocka_unit_test(every_method),
        cmocka_unit_test(fast_kernels),
        cmocka_unit_test(branches),
        cmocka_unit_test(generates),
        cmocka_unit_test(non_finite),
        cmocka_unit_test(taps_and_likelihoods),
        cmocka_unit_test(norms_on_the_device),
    };
    const struct CMUnitTest on_fake[] = {
        cmocka_unit_test(failures),
        cmocka_unit_test(refusals),
        cmocka_unit_test(short_memory),
        cmocka_unit_test(few_rows_in_parts),
    };
    if (real && getenv("DPE_TEST_CUDA_SMALL") != NULL) {
        return cmocka_run_group_tests(small, NULL, NULL);
    }
    int failed = cmocka_run_group_tests(on_device, NULL, NULL);
    return real ? failed : failed + cmocka_run_group_tests(on_fake, NULL, NULL);
}

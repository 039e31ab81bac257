/**
 * @file cuda_case.h
 * What tests of the CUDA backend as a whole share: the device that is host memory and the emulator
 * (or, with DPE_TEST_CUDA_MODULE in the environment, the one of this machine), sessions on it, and
 * models whose head dimensions have fast kernels. Include after cmocka.h.
 */
#ifndef DPE_CUDA_CASE_H
#define DPE_CUDA_CASE_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/model.h"
#include "engine/session/device.h"
#include "tests/emulate/fake_runtime.h"
#include "tests/engine/session/session_case.h"

/** Whether the device is that of this machine; what is about the emulated one is then left out. */
static inline bool cuda_is_real(void)
{
    return getenv("DPE_TEST_CUDA_MODULE") != NULL;
}

/** DPE_TEST_CUDA_ATTENTION: the best kernel that tests may use, where a better one is broken; NULL:
 *  all may be used. */
static inline const char *cuda_best_kernel(void)
{
    return getenv("DPE_TEST_CUDA_ATTENTION");
}

/** Sessions take this kernel; NULL: what a backend takes by itself, but none better than the best.
 */
static inline void cuda_use_kernel(const char *name)
{
    const char *best = cuda_best_kernel();
    setenv("DPE_CUDA_ATTENTION", name != NULL ? name : best != NULL ? best : "", 1);
}

/** Every test has a new device; `words` sets its kind and its faults. */
static inline void device(const char *words)
{
    setenv("DPE_FAKE_CUDA", words, 1);
}

static inline struct fake_counts counts(void)
{
    struct fake_counts (*read)(void) = NULL;
    assert_false(cuda_is_real());
    void *library = dlopen(getenv("DPE_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    *(void **)(&read) = dlsym(library, "fake_counts_read");
    assert_non_null(read);
    struct fake_counts found = read();
    dlclose(library);
    return found;
}

/** After every session: nothing is left, nothing was written outside what was allocated. */
static inline void expect_clean(void)
{
    if (cuda_is_real()) {
        return;
    }
    struct fake_counts found = counts();
    assert_int_equal(found.live, 0);
    assert_int_equal(found.damaged, 0);
}

/** Load the module under test. 0, or what main returns: 125 where this machine has no device. */
static inline int cuda_begin(void)
{
    struct dpe_error err = {0};
    const char *name = NULL;
    const char *module = getenv("DPE_TEST_CUDA_MODULE");
    const char *emulated = DPE_BINARY_DIR "/tests/libdpe_cuda_emulated.so";
    setenv("DPE_CUDA_MODULE", module != NULL ? module : emulated, 1);
    /* What sessions do by themselves at first is test_self_test's. */
    setenv("DPE_DEVICE_SELF_TEST", "off", 1);
    device("");
    cuda_use_kernel(NULL);
    dpe_status status = dpe_device_resolve("cuda", &name, &err);
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return module != NULL && status == DPE_NO_DEVICE ? 125 : 1;
    }
    return 0;
}

/** Run these tests; with DPE_TEST_CUDA_FIRST=N in the environment, the first N of them. The exit
 * status of main. */
#define cuda_run(tests) cuda_run_first(#tests, tests, sizeof(tests) / sizeof((tests)[0]))
static inline int cuda_run_first(const char *name, const struct CMUnitTest *tests, size_t n)
{
    const char *first = getenv("DPE_TEST_CUDA_FIRST");
    size_t most = first != NULL ? strtoul(first, NULL, 10) : n;
    /* None would pass without a test. */
    return _cmocka_run_group_tests(name, tests, most > 0 && most < n ? most : n, NULL, NULL);
}

static inline struct dpe_session *open_on(const struct tiny *tiny, const char *name,
                                          const struct dpe_plan *plan, int64_t chunk)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {
        .device = name, .n_threads = 1, .capacity = tiny->n, .prefill_chunk = chunk};
    TINY_OK(dpe_session_create(tiny->model, plan, &options, &session, &err), err);
    return session;
}

/** The largest difference; INFINITY where one is not a number. */
static inline double worst(const float *got, const float *want, int64_t n)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double error = near_error((double)got[i], (double)want[i]);
        largest = !(error <= largest) ? error : largest;
    }
    return largest;
}

/** The largest difference between branches of different lengths, fed in steps, and a session of the
 *  reference for each alone. */
static inline double branches_error(const struct tiny *tiny, const struct dpe_plan *plan)
{
    enum { N = 3, ROOM = 12, PREFIX = 20 };
    const int32_t *tokens = tiny->tokens;
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {.device = "cuda",
                                                .n_threads = 1,
                                                .capacity = PREFIX + N * ROOM,
                                                .positions = PREFIX + ROOM,
                                                .branches = N};
    TINY_OK(dpe_session_create(tiny->model, plan, &options, &session, &err), err);
    TINY_OK(dpe_session_feed(session, tokens, PREFIX, NULL, &err), err);
    TINY_OK(dpe_session_branch(session, N, ROOM, &err), err);
    /* Branch 1 is a copy of what branch 0 held before it was cut. */
    TINY_OK(dpe_session_branch_feed(session, 0, tokens + PREFIX + 1, 6, NULL, &err), err);
    TINY_OK(dpe_session_branch_copy(session, 0, 1, PREFIX + 4, &err), err);
    TINY_OK(dpe_session_branch_cut(session, 0, PREFIX, &err), err);
    for (int64_t b = 0; b < N; b += 2) {
        TINY_OK(dpe_session_branch_feed(session, b, tokens + PREFIX + b, 3 + b, NULL, &err), err);
    }
    const int64_t which[N] = {2, 0, 1};
    float logits[N * VOCAB];
    for (int step = 0; step < 4; step++) {
        int32_t next[N];
        for (int64_t b = 0; b < N; b++) {
            next[b] = tokens[5 * step + which[b]];
        }
        TINY_OK(dpe_session_step(session, N, which, next, logits, &err), err);
    }
    double error = 0.0;
    for (int64_t b = 0; b < N; b++) {
        struct dpe_session *alone = open_on(tiny, "reference", plan, tiny->n);
        float want[VOCAB];
        feed(alone, tiny, PREFIX, NULL);
        TINY_OK(dpe_session_feed(alone, tokens + PREFIX + which[b], 3 + which[b], NULL, &err), err);
        for (int step = 0; step < 4; step++) {
            TINY_OK(dpe_session_feed(alone, &tokens[5 * step + which[b]], 1, want, &err), err);
        }
        error = fmax(error, worst(logits + b * VOCAB, want, VOCAB));
        dpe_session_destroy(alone);
    }
    dpe_session_destroy(session);
    return error;
}

/** A shape in halves or floats whose head dimension has fast kernels, and tokens for it. */
struct wide {
    struct dpe_model *model;
    struct dpe_config config;
    int32_t tokens[160];
};

static inline struct wide wide_config(int64_t heads, int64_t kv_heads, int64_t head_dim,
                                      enum dpe_dtype dtype)
{
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
    for (int i = 0; i < 160; i++) {
        wide.tokens[i] = (i * 29 + i / 7) % VOCAB;
    }
    return wide;
}

/** The same with its model: random weights of that shape. */
static inline struct wide wide_open(int64_t heads, int64_t kv_heads, int64_t head_dim,
                                    enum dpe_dtype dtype)
{
    struct dpe_error err = {0};
    struct wide wide = wide_config(heads, kv_heads, head_dim, dtype);
    TINY_OK(dpe_random_model(&wide.config, true, 5, &wide.model, &err), err);
    return wide;
}

/** A layer with a state before one of attention whose output has a gate. */
static inline struct wide wide_with_states(int64_t head_dim, enum dpe_dtype dtype)
{
    static uint8_t kinds[2] = {1, 0};
    struct dpe_error err = {0};
    struct wide wide = wide_config(2, 2, head_dim, dtype);
    snprintf(wide.config.model_type, sizeof wide.config.model_type, "qwen3_5_text");
    wide.config.family = dpe_family_find(wide.config.model_type);
    wide.config.output_gate = true;
    wide.config.qk_norm = DPE_QK_NORM_HEAD;
    wide.config.n_kinds = 2;
    wide.config.kinds[1].recurrent = true;
    wide.config.layer_kinds = kinds;
    wide.config.recurrent = (struct dpe_recurrent){
        .key_heads = 2, .value_heads = 4, .key_dim = 24, .value_dim = 40, .width = 4, .eps = 1e-6};
    TINY_OK(dpe_random_model(&wide.config, true, 5, &wide.model, &err), err);
    return wide;
}

/** Experts in every layer, some of which a token takes. */
static inline struct wide wide_with_experts(int64_t head_dim, enum dpe_dtype dtype)
{
    struct dpe_error err = {0};
    struct wide wide = wide_config(2, 2, head_dim, dtype);
    snprintf(wide.config.model_type, sizeof wide.config.model_type, "qwen3_moe");
    wide.config.family = dpe_family_find(wide.config.model_type);
    wide.config.n_experts = 7;
    wide.config.experts_per_token = 3;
    wide.config.expert_width = wide.config.intermediate;
    wide.config.experts_normalised = true;
    TINY_OK(dpe_random_model(&wide.config, true, 5, &wide.model, &err), err);
    return wide;
}

/** Layers whose heads have two sizes, with a window in the first, and one more that has the keys of
 * the first. */
static inline struct wide wide_with_sizes(int64_t head_dim, int64_t other, enum dpe_dtype dtype)
{
    static uint8_t kinds[3] = {1, 0, 1};
    struct dpe_error err = {0};
    struct wide wide = wide_config(4, 1, head_dim, dtype);
    wide.config.n_layers = 3;
    wide.config.n_kinds = 2;
    wide.config.kinds[1] = (struct dpe_layer_kind){.window = 13, .head_dim = other, .kv_heads = 2};
    wide.config.layer_kinds = kinds;
    wide.config.shared_layers = 1;
    TINY_OK(dpe_random_model(&wide.config, true, 5, &wide.model, &err), err);
    return wide;
}

enum {
    WIDE_LONG = 150,
    WIDE_OWN = 5,
    WIDE_BRANCHES = 6,
    WIDE_LOGITS = (4 + WIDE_BRANCHES) * VOCAB
};

/** [WIDE_LOGITS]: logits after a prefill in two pieces, after decoding, and of the steps of
 * branches; kernel NULL: of the reference. */
static inline void run_wide(const struct wide *wide, const struct dpe_plan *plan,
                            const char *kernel, float *logits)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {.device = kernel == NULL ? "reference" : "cuda",
                                                .n_threads = 1,
                                                .capacity = WIDE_LONG + WIDE_BRANCHES * WIDE_OWN,
                                                .positions = WIDE_LONG + WIDE_OWN,
                                                .branches = WIDE_BRANCHES,
                                                .prefill_chunk = 100};
    cuda_use_kernel(kernel);
    TINY_OK(dpe_session_create(wide->model, plan, &options, &session, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens, WIDE_LONG - 3, logits, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens + WIDE_LONG - 3, 2, logits + VOCAB, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens + WIDE_LONG - 1, 1, logits + 2 * VOCAB, &err),
            err);
    TINY_OK(dpe_session_branch(session, WIDE_BRANCHES, WIDE_OWN, &err), err);
    /* One branch is ahead of the others. */
    TINY_OK(dpe_session_branch_feed(session, 2, wide->tokens + 3, 2, NULL, &err), err);
    const int64_t which[WIDE_BRANCHES] = {1, 0, 2, 3, 5, 4};
    for (int step = 0; step < 2; step++) {
        TINY_OK(dpe_session_step(session, WIDE_BRANCHES, which, wide->tokens + 10 * step,
                                 logits + 3 * VOCAB, &err),
                err);
    }
    /* And a branch's own prefill, after keys of others. */
    TINY_OK(dpe_session_branch_feed(session, 4, wide->tokens, 3,
                                    logits + (3 + WIDE_BRANCHES) * VOCAB, &err),
            err);
    dpe_session_destroy(session);
    cuda_use_kernel(NULL);
}

#endif

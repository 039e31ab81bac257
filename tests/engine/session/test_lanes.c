/* Steps of a few sequences in which each thread takes some of them (session_lanes.c): the same bits
 * as on one thread, the same errors, and none where somebody looks at the layers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/cpu/kernels/cpu_kernels.h"
#include "tests/engine/session/session_case.h"

enum { BRANCHES = 8, PREFIX = 6, ROOM = 12, STEPS = 5 };

static const char *const specs[] = {
    "rope",
    "self-extend:window=5,group=4",
    "dpe:window=5,groups=3,scales=1/2.5/4",
    "select:k=2,block=4,sinks=2,local=5,refresh=3,representative=extremes,over=self-extend:group=4",
    "infllm:block=3,sinks=2,local=6,k=2,attended=2",
};

static struct dpe_session *open_device(const struct tiny *tiny, const char *device,
                                       const char *spec, bool masked, int n_threads)
{
    struct dpe_error err = {0};
    const struct dpe_session_options options = {.device = device,
                                                .n_threads = n_threads,
                                                .capacity = PREFIX + BRANCHES * ROOM,
                                                .positions = PREFIX + ROOM,
                                                .branches = BRANCHES};
    struct dpe_session *s = session_with(tiny, spec, masked, &options);
    assert_int_equal(s->n_lanes, n_threads > 1 ? n_threads : 0);
    TINY_OK(dpe_session_feed(s, tiny->tokens, PREFIX, NULL, &err), err);
    TINY_OK(dpe_session_branch(s, BRANCHES, ROOM, &err), err);
    return s;
}

static struct dpe_session *open_threads(const struct tiny *tiny, const char *spec, bool masked,
                                        int n_threads)
{
    return open_device(tiny, "cpu", spec, masked, n_threads);
}

/* A step of the branches from the last to first, one of them left out, which have tokens of their
 * own. */
static dpe_status step(struct dpe_session *s, const struct tiny *tiny, int64_t first, int64_t out,
                       float *logits, struct dpe_error *err)
{
    int64_t branches[BRANCHES];
    int32_t tokens[BRANCHES];
    int64_t n = 0;
    for (int64_t b = BRANCHES - 1; b >= first; b--) {
        if (b != out) {
            branches[n] = b;
            tokens[n++] = tiny->tokens[(5 * b + 3 * s->length[b]) % 20];
        }
    }
    return dpe_session_step(s, n, branches, tokens, logits, err);
}

static void same_steps(const struct tiny *tiny, struct dpe_session *one, struct dpe_session *many)
{
    struct dpe_error err = {0};
    for (int64_t i = 0; i < STEPS; i++) {
        float want[BRANCHES * VOCAB] = {0};
        float got[BRANCHES * VOCAB] = {0};
        TINY_OK(step(one, tiny, i / 2, i + 3, want, &err), err);
        TINY_OK(step(many, tiny, i / 2, i + 3, got, &err), err);
        assert_memory_equal(got, want, sizeof got);
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        for (int threads = 2; threads <= 4; threads++) {
            struct dpe_error err = {0};
            struct dpe_session *pair[] = {open_threads(&tiny, specs[i], i % 2 == 1, 1),
                                          open_threads(&tiny, specs[i], i % 2 == 1, threads)};
            same_steps(&tiny, pair[0], pair[1]);
            struct dpe_plan plan = tiny_plan(&tiny, specs[(i + 2) % 5], tiny.n);
            for (int j = 0; j < 2; j++) {
                TINY_OK(dpe_session_set_plan(pair[j], &plan, &err), err);
                TINY_OK(dpe_session_feed(pair[j], tiny.tokens, PREFIX, NULL, &err), err);
                TINY_OK(dpe_session_branch(pair[j], BRANCHES, ROOM, &err), err);
            }
            same_steps(&tiny, pair[0], pair[1]);
            dpe_plan_free(&plan);
            dpe_session_destroy(pair[0]);
            dpe_session_destroy(pair[1]);
        }
    }
    tiny_close(&tiny);
}

/* What other models have: two kinds of layers, norms after attention, sinks, experts, branches of
 * attention, weights in halves. */
static void other_models(void **state)
{
    (void)state;
    static const char *const folders[] = {"llama_bf16",        "families/gemma2",
                                          "families/gpt_oss",  "families/qwen3_moe",
                                          "families/glm4_moe", "families/nsa"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        struct tiny tiny = tiny_open(folders[i]);
        for (int bf16 = 0; bf16 < (dpe_cpu_bf16_choose() != NULL ? 2 : 1); bf16++) {
            const char *device = bf16 == 1 ? "cpu-bf16" : "cpu";
            struct dpe_session *one = open_device(&tiny, device, specs[i % 2], false, 1);
            struct dpe_session *many = open_device(&tiny, device, specs[i % 2], false, 2);
            same_steps(&tiny, one, many);
            dpe_session_destroy(one);
            dpe_session_destroy(many);
        }
        tiny_close(&tiny);
    }
}

/* The processors, which give no memory from a call on, counted from 0. */
static struct {
    bool watched;
    int64_t calls, gives;
    struct dpe_ops ops;
    const struct dpe_ops *real;
} memory;

dpe_status __real_dpe_ops_find(const char *device, const struct dpe_ops **ops,
                               struct dpe_error *err);
dpe_status __wrap_dpe_ops_find(const char *device, const struct dpe_ops **ops,
                               struct dpe_error *err);

static bool gives(void)
{
    return memory.calls++ < memory.gives;
}

static dpe_mem allocate_some(struct dpe_backend *backend, uint64_t bytes)
{
    return gives() ? memory.real->allocate(backend, bytes) : NULL;
}

static dpe_status open_some(const struct dpe_model *model,
                            const struct dpe_session_options *options, struct dpe_backend **backend,
                            struct dpe_error *err)
{
    return gives() ? memory.real->open(model, options, backend, err)
                   : dpe_fail(err, DPE_NO_MEMORY, "out of memory");
}

dpe_status __wrap_dpe_ops_find(const char *device, const struct dpe_ops **ops,
                               struct dpe_error *err)
{
    dpe_status status = __real_dpe_ops_find(device, ops, err);
    if (status == DPE_OK && memory.watched) {
        memory.real = *ops;
        memory.ops = **ops;
        memory.ops.allocate = allocate_some;
        memory.ops.open = open_some;
        *ops = &memory.ops;
    }
    return status;
}

/* Where there is memory for a session but not for all of its lanes, it has none; a later plan may
 * have them. */
static void without_memory_for_them(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, specs[2], tiny.n);
    struct dpe_error err = {0};
    struct dpe_session *one = open_threads(&tiny, "rope", false, 1);
    memory.watched = true;
    memory.calls = 0;
    memory.gives = INT64_MAX;
    dpe_session_destroy(open_threads(&tiny, "rope", false, 2));
    int64_t all = memory.calls;
    int without = 0;
    for (int64_t n = all - 1; n > 0; n--) {
        struct dpe_session *s = NULL;
        const struct dpe_session_options options = {.device = "cpu",
                                                    .n_threads = 2,
                                                    .capacity = PREFIX + BRANCHES * ROOM,
                                                    .positions = PREFIX + ROOM,
                                                    .branches = BRANCHES};
        struct dpe_plan rope = tiny_plan(&tiny, "rope", tiny.n);
        memory.calls = 0;
        memory.gives = n;
        dpe_status status = dpe_session_create(tiny.model, &rope, &options, &s, &err);
        dpe_plan_free(&rope);
        if (status != DPE_OK) {
            assert_int_equal(status, DPE_NO_MEMORY);
            continue;
        }
        without++;
        assert_int_equal(s->n_lanes, 0);
        float want[BRANCHES * VOCAB] = {0};
        float got[BRANCHES * VOCAB] = {0};
        TINY_OK(dpe_session_feed(s, tiny.tokens, PREFIX, NULL, &err), err);
        TINY_OK(dpe_session_branch(s, BRANCHES, ROOM, &err), err);
        TINY_OK(step(s, &tiny, 0, -1, got, &err), err);
        if (without == 1) {
            TINY_OK(step(one, &tiny, 0, -1, want, &err), err);
            assert_memory_equal(got, want, sizeof got);
        }
        memory.gives = INT64_MAX;
        TINY_OK(dpe_session_set_plan(s, &plan, &err), err);
        assert_int_equal(s->n_lanes, 2);
        /* And loses them again. */
        memory.calls = memory.gives = 0;
        assert_int_equal(dpe_session_set_plan(s, &plan, &err), DPE_OK);
        assert_int_equal(s->n_lanes, 0);
        dpe_session_destroy(s);
    }
    assert_true(without > 2 && without < all - 1);
    memory.watched = false;
    dpe_session_destroy(one);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

/* The error is that of the first layer, and nothing has changed. The embedding is the LM head too,
 * so that the other rows' logits are not finite either. */
static void failures_are_named(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct tiny bad = {.n = tiny.n};
    struct dpe_error err = {0};
    char folder[] = "/tmp/dpe_lanes_XXXXXX";
    assert_non_null(mkdtemp(folder));
    copy_with(folder, "model.embed_tokens.weight", 63 * tiny.config->hidden, NAN);
    TINY_OK(dpe_model_open(folder, NULL, &bad.model, &err), err);
    bad.config = dpe_model_config(bad.model);
    memcpy(bad.tokens, tiny.tokens, sizeof bad.tokens);
    for (int64_t at = 0; at < BRANCHES; at++) {
        struct dpe_session *s = open_threads(&bad, "rope", false, 2);
        const int64_t branches[BRANCHES] = {0, 1, 2, 3, 4, 5, 6, 7};
        int32_t tokens[BRANCHES] = {1, 2, 3, 4, 5, 6, 7, 8};
        float logits[BRANCHES * VOCAB];
        TINY_OK(dpe_session_branch_feed(s, at, tokens, at, NULL, &err), err);
        tokens[at] = 63;
        assert_int_equal(dpe_session_step(s, BRANCHES, branches, tokens, logits, &err),
                         DPE_NONFINITE);
        assert_int_equal(err.layer, 0);
        assert_int_equal(err.position, PREFIX + at);
        assert_int_equal(s->length[7 - at], PREFIX + (at == 7 - at ? at : 0));
        tokens[at] = 9;
        TINY_OK(dpe_session_step(s, BRANCHES, branches, tokens, NULL, &err), err);
        dpe_session_destroy(s);
    }
    dpe_model_close(bad.model);
    remove_folder(folder);
    tiny_close(&tiny);
}

static dpe_status stop(void *user, struct dpe_error *err)
{
    (void)user;
    return dpe_fail(err, DPE_INCOMPLETE, "stopped");
}

static dpe_status count_rows(void *user, int64_t layer, int64_t position, int64_t rows,
                             const float *q, const float *k, struct dpe_error *err)
{
    (void)layer, (void)position, (void)q, (void)k, (void)err;
    *(int64_t *)user += rows;
    return DPE_OK;
}

static void polls_and_taps_are_asked(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    struct dpe_session *s = open_threads(&tiny, "rope", false, 2);
    float logits[BRANCHES * VOCAB];
    dpe_session_set_poll(s, stop, NULL);
    assert_int_equal(step(s, &tiny, 0, -1, logits, &err), DPE_INCOMPLETE);
    assert_int_equal(s->length[0], PREFIX);
    /* So does making a plan's tables: the session has none then, and takes the next one. */
    struct dpe_plan plan = {0};
    const struct dpe_plan_context context = {
        .config = tiny.config, .trained_length = 16, .length = 4 * PREFIX};
    TINY_OK(dpe_plan_make("self:window=4,group=1048576,rate=1e6", &context, &plan, &err), err);
    assert_int_equal(dpe_session_set_plan(s, &plan, &err), DPE_INCOMPLETE);
    dpe_session_set_poll(s, NULL, NULL);
    assert_int_not_equal(dpe_session_feed(s, tiny.tokens, 2, NULL, &err), DPE_OK);
    TINY_OK(dpe_session_set_plan(s, &plan, &err), err);
    dpe_plan_free(&plan);
    dpe_session_destroy(s);
    s = open_threads(&tiny, "rope", false, 2);
    int64_t rows = 0;
    dpe_session_set_tap(s, count_rows, &rows);
    TINY_OK(step(s, &tiny, 0, -1, logits, &err), err);
    assert_int_equal(rows, BRANCHES * tiny.config->n_layers);
    dpe_session_destroy(s);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_threads), cmocka_unit_test(other_models),
        cmocka_unit_test(without_memory_for_them),       cmocka_unit_test(failures_are_named),
        cmocka_unit_test(polls_and_taps_are_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

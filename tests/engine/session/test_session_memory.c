/* What a session takes: memory as estimated and as refused, operations as counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <math.h>

#include "engine/session/device.h"
#include "tests/engine/session/session_case.h"

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

/* The processors, and the most that was allocated after a call of their `allocate`. */
static struct {
    bool counts;
    double most;
    struct dpe_ops ops;
    const struct dpe_ops *real;
} watched;

dpe_status __real_dpe_ops_find(const char *device, const struct dpe_ops **ops,
                               struct dpe_error *err);
dpe_status __wrap_dpe_ops_find(const char *device, const struct dpe_ops **ops,
                               struct dpe_error *err);

static dpe_mem allocate_watched(struct dpe_backend *backend, uint64_t bytes)
{
    dpe_mem memory = watched.real->allocate(backend, bytes);
    watched.most = fmax(watched.most, allocated_now());
    return memory;
}

dpe_status __wrap_dpe_ops_find(const char *device, const struct dpe_ops **ops,
                               struct dpe_error *err)
{
    dpe_status status = __real_dpe_ops_find(device, ops, err);
    if (status == DPE_OK && watched.counts) {
        watched.real = *ops;
        watched.ops = **ops;
        watched.ops.allocate = allocate_watched;
        *ops = &watched.ops;
    }
    return status;
}

static void the_estimate_is_what_is_allocated(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("mistral");
    struct dpe_error err = {0};
    static const char *const plans[] = {"rope", "dpe:window=5,scales=4", "infllm:block=4",
                                        "select:block=3,representative=extremes,refresh=9"};
    for (int i = 0; i < N_DEVICES * 4; i++) {
        const struct dpe_session_options options = {
            .device = devices[i / 4], .n_threads = 2, .capacity = 20000, .prefill_chunk = 256};
        struct dpe_plan plan = tiny_plan(&tiny, plans[i % 4], 20000);
        struct dpe_session_needs needs = {0};
        TINY_OK(dpe_session_estimate(tiny.config, &plan, &options, &needs, &err), err);
        assert_true(needs.weights == 2 * (uint64_t)dpe_config_parameters(tiny.config));
        double before = allocated_now();
        struct dpe_session *session = NULL;
        TINY_OK(dpe_session_create(tiny.model, &plan, &options, &session, &err), err);
        feed(session, &tiny, tiny.n, NULL);
        double used = allocated_now() - before;
        printf("%s, %s: estimated %.3f MB, allocated %.3f MB\n", options.device, plan.name,
               (double)needs.memory / 1e6, used / 1e6);
        assert_true(needs.memory > 4000000);
        assert_true(used <= 1.02 * (double)needs.memory + 65536.0);
        assert_true(used >= 0.90 * (double)needs.memory);
        dpe_session_destroy(session);
        dpe_plan_free(&plan);
    }
    tiny_close(&tiny);
}

/* Rows of experts are many and narrow, those of a dense MLP or of the shared expert few and wide.
 */
static void widths_of_experts_and_others_are_apart(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("families/glm4_moe");
    struct dpe_config config = *tiny.config;
    struct dpe_plan plan = tiny_plan(&tiny, "rope", 300);
    struct dpe_session_options options = {
        .device = "cpu", .n_threads = 1, .capacity = 300, .prefill_chunk = 100};
    struct dpe_session_options resolved;
    const struct dpe_ops *ops = NULL;
    struct dpe_error err = {0};
    TINY_OK(dpe_session_resolve(&options, &resolved, &ops, &err), err);
    const struct dpe_session_ask ask = {&config, &plan, ops, &resolved};
    assert_int_equal(config.experts_per_token, 3);
    static const int64_t widths[][4] = {{40, 10, 11, 4000}, /* dense, shared, expert: in all */
                                        {10, 50, 11, 5000},
                                        {20, 10, 11, 3300}};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        config.intermediate = widths[i][0];
        config.shared_width = widths[i][1];
        config.expert_width = widths[i][2];
        assert_int_equal(dpe_session_count_bytes(&ask).mlp, 4 * widths[i][3]);
    }
    dpe_plan_free(&plan);
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
    struct dpe_session_needs needs = {0};
    TINY_OK(dpe_session_estimate(tiny.config, &plan, &options, &needs, &err), err);
    options.max_memory = needs.memory;
    TINY_OK(dpe_session_create(tiny.model, &plan, &options, &session, &err), err);
    dpe_session_destroy(session);
    options.max_memory = needs.memory - 1;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &session, &err),
                     DPE_NO_MEMORY);
    assert_non_null(strstr(err.text, "MiB are allowed"));
    assert_non_null(strstr(err.text, "; a smaller length or prefill chunk needs less ("));
    assert_non_null(strstr(err.text, "), or allow more with max_memory"));
    /* A plan with more tables does not fit into what one with fewer was allowed. */
    struct dpe_plan small = tiny_plan(&tiny, "rope", 40);
    TINY_OK(dpe_session_estimate(tiny.config, &small, &options, &needs, &err), err);
    options.max_memory = needs.memory;
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

/* A plan whose cache does not fit follows one whose cache does: the old one goes first. */
static void a_change_of_plans_stays_within_the_limit(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("mistral");
    struct dpe_error err = {0};
    struct dpe_session_options options = {.device = "cpu",
                                          .n_threads = 2,
                                          .capacity = 60000,
                                          .prefill_chunk = 64,
                                          .kv_dir = "/var/tmp"};
    struct dpe_plan small = tiny_plan(&tiny, "rope", 60000);
    struct dpe_plan large = tiny_plan(&tiny, "dpe:window=5,scales=1/2/4", 60000);
    struct dpe_session_needs needs = {0};
    struct dpe_session *session = NULL;
    TINY_OK(dpe_session_estimate(tiny.config, &small, &options, &needs, &err), err);
    options.max_memory = needs.memory;
    watched.counts = true;
    watched.most = 0.0;
    double before = allocated_now();
    TINY_OK(dpe_session_create(tiny.model, &small, &options, &session, &err), err);
    assert_int_equal(dpe_session_memory(session).file, 0);
    TINY_OK(dpe_session_set_plan(session, &large, &err), err);
    assert_true(dpe_session_memory(session).file > 0);
    double used = watched.most - before;
    printf("%.3f MB were allowed, %.3f MB allocated\n", (double)options.max_memory / 1e6,
           used / 1e6);
    assert_true(used <= 1.02 * (double)options.max_memory + 65536.0);
    watched.counts = false;
    dpe_session_destroy(session);
    dpe_plan_free(&small);
    dpe_plan_free(&large);
    tiny_close(&tiny);
}

/* A refusal names the options that the caller can change, under the caller's names, and only those.
 */
static void refusals_name_what_can_be_changed(void **state)
{
    (void)state;
    const struct {
        struct dpe_session_knobs knobs;
        int64_t branches;
        const char *expected;
    } cases[] = {
        {{.length = "--length", .branches = "--branches"}, 1, "; a smaller --length needs less ("},
        {{.length = "--length", .branches = "--branches"},
         2,
         "2 sequences of up to 20 tokens in chunks of 20 needs"},
        {{.length = "--length", .branches = "--branches"},
         2,
         "; a smaller --length or --branches needs less ("},
        {{.length = "prompt, --max-new", .chunk = "--chunk", .max_memory = "--max-memory"},
         1,
         "; a smaller prompt, --max-new or --chunk needs less (no length fits), or allow more with "
         "--max-memory"},
        {{.length = "--length", .peers = "--tensor-parallel"},
         1,
         "; a smaller --length, or a larger --tensor-parallel needs less (no length fits)"},
        {{.max_memory = "--max-memory"},
         1,
         "0.0 MiB are allowed (no length fits); allow more with --max-memory"},
    };
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", 40);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_error err = {0};
        struct dpe_session *session = NULL;
        const struct dpe_session_options options = {.device = "reference",
                                                    .capacity = 20 * cases[i].branches,
                                                    .positions = 20,
                                                    .branches = cases[i].branches,
                                                    .max_memory = 1,
                                                    .knobs = cases[i].knobs};
        assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &session, &err),
                         DPE_NO_MEMORY);
        if (strstr(err.text, cases[i].expected) == NULL) {
            fail_msg("expected '%s' in: %s", cases[i].expected, err.text);
        }
    }
    dpe_plan_free(&plan);
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

/* Layers that see a window: each query counts the keys that it sees, one by one. */
static void windows_are_counted(void **state)
{
    (void)state;
    uint8_t kinds[] = {1, 0, 1, 2, 1};
    const struct dpe_config config = {
        .n_layers = 5, .n_kinds = 3, .kinds = {{0, 0}, {7, 1}, {30, -1}}, .layer_kinds = kinds};
    static const int64_t from_to[][2] = {{0, 5}, {0, 100}, {3, 9}, {29, 2}, {500, 1}};
    for (size_t i = 0; i < sizeof from_to / sizeof from_to[0]; i++) {
        double sum = 0.0;
        for (int64_t query = from_to[i][0]; query < from_to[i][0] + from_to[i][1]; query++) {
            for (int64_t layer = 0; layer < config.n_layers; layer++) {
                const int64_t window = config.kinds[kinds[layer]].window;
                sum += (double)(window > 0 && window < query + 1 ? window : query + 1);
            }
        }
        assert_true(dpe_config_seen(&config, from_to[i][0], from_to[i][1]) == sum);
    }
}

/* What decoding reads of a model in the file's own type is all of it but what the head shares. */
static void a_step_reads_the_weights_as_they_are_stored(void **state)
{
    (void)state;
    const struct dpe_tensor none = {.dtype = DPE_F32};
    struct dpe_layer_weights layer = {.experts = NULL};
    for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
        layer.weight[which] = none;
    }
    layer.weight[DPE_WEIGHT_Q] = (struct dpe_tensor){.dtype = DPE_Q8_0, .rows = 3, .cols = 64};
    layer.weight[DPE_WEIGHT_Q_NORM] = (struct dpe_tensor){.dtype = DPE_F32, .rows = 1, .cols = 16};
    const struct dpe_weights weights = {.embedding = {.dtype = DPE_BF16, .rows = 1000, .cols = 64},
                                        .layers = &layer,
                                        .lm_head = {.dtype = DPE_BF16, .rows = 10, .cols = 64}};
    const struct dpe_config config = {.n_layers = 1, .blocks = 1U << DPE_Q4_0};
    const double others = 4.0 * 16.0 + 2.0 * 640.0;
    assert_true(dpe_weights_step_bytes(&config, &weights, false) == others + 3.0 * 2.0 * 34.0);
    assert_true(dpe_weights_step_bytes(&config, &weights, true) == others + 3.0 * 64.0 * 2.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_estimate_is_what_is_allocated),
        cmocka_unit_test(widths_of_experts_and_others_are_apart),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(windows_are_counted),
        cmocka_unit_test(a_step_reads_the_weights_as_they_are_stored),
        cmocka_unit_test(a_change_of_plans_stays_within_the_limit),
        cmocka_unit_test(refusals_name_what_can_be_changed),
        cmocka_unit_test(flops_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

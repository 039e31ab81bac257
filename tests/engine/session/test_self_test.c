/* The self-test of a device before its first session, on the emulated one: that a good device
 * passes with every kernel, and that a wrong, a broken and a silent one are refused in words. Where
 * another way of computing helps, see test_ladder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/model/config/family.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/device_check.h"
#include "engine/session/ladder.h"
#include "tests/engine/cuda/host/cuda_case.h"
#include "tests/lib/few.h"

static dpe_status try_wide(const struct wide *wide, struct dpe_error *err)
{
    const struct dpe_plan_context context = {
        .config = &wide->config, .trained_length = 64, .length = 64};
    const struct dpe_session_options options = {.device = "cuda", .capacity = 8};
    struct dpe_plan plan;
    struct dpe_session *session = NULL;
    TINY_OK(dpe_plan_make("rope", &context, &plan, err), *err);
    dpe_status status = dpe_session_create(wide->model, &plan, &options, &session, err);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
    return status;
}

static void expect_text(const struct dpe_error *err, const char *text)
{
    if (strstr(err->text, text) == NULL) {
        fail_msg("expected \"%s\" in: %s", text, err->text);
    }
}

static struct dpe_device_result test_here(const struct wide *wide, int plan)
{
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    struct dpe_device_request request;
    struct dpe_device_result result;
    dpe_device_request_make(&wide->config, &options, NULL, 48, false, &request);
    request.plan = plan;
    dpe_device_test(&request, &result);
    return result;
}

/* Every kernel and dtype. */
static void good_devices_pass(void **state)
{
    (void)state;
    static const struct {
        const char *device, *kernel;
        int64_t heads, kv_heads, head_dim;
        enum dpe_dtype dtype;
    } all[] = {
        {"capability=90", "wgmma", 2, 1, 128, DPE_BF16},
        {"capability=80", "mma", 3, 1, 64, DPE_F16},
        {"capability=80", "plain", 2, 2, 32, DPE_F32},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct wide wide =
            wide_config(all[i].heads, all[i].kv_heads, all[i].head_dim, all[i].dtype);
        device(all[i].device);
        cuda_use_kernel(all[i].kernel);
        const struct dpe_device_result result = test_here(&wide, DPE_DEVICE_ALL);
        printf("%s, heads of %d: a prefill %.1e, steps %.1e, of %.1e %s\n", all[i].kernel,
               (int)all[i].head_dim, result.rms[0][DPE_ASK_PREFILL], result.rms[1][DPE_ASK_STEPS],
               result.most, result.text);
        assert_int_equal(result.outcome, DPE_DEVICE_RIGHT);
        for (int plan = 0; plan < DPE_DEVICE_PLANS; plan++) {
            for (int q = 0; q < DPE_ASK_STEPS; q++) {
                assert_true(result.rms[plan][q] > 0.0 && result.rms[plan][q] <= result.most / 2.0);
            }
        }
        expect_clean();
    }
    cuda_use_kernel(NULL);
}

/* The parts of the families: windows, sinks, caps, experts, partial rotation, layers without
 * positions, norms, branches. In their dtype or in float, and without one product of an expert, a
 * window or a cap it is another model. */
static void kinds_of_models_pass(void **state)
{
    (void)state;
    static const char *const all[] = {"families/gemma2",       "families/gemma3",
                                      "families/gpt_oss",      "families/qwen3_moe",
                                      "families/glm4",         "families/olmo3",
                                      "families/smollm3",      "families/nsa",
                                      "families/phi3",         "families/glm4_moe",
                                      "families/minimax_m2",   "families/qwen3_5",
                                      "families/qwen3_5_moe",  "families/olmo_hybrid",
                                      "families/hunyuan",      "families/llama4",
                                      "families/llama4_moves", "families/gemma4",
                                      "families/gemma4_alike", "families/gemma4_experts",
                                      "families/cohere2",      "families/olmo_hybrid_still"};
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    device("capability=90");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i += (size_t)few(3)) {
        struct tiny tiny = tiny_open(all[i]);
        const struct dpe_config *config = dpe_model_config(tiny.model);
        struct dpe_device_request request;
        struct dpe_device_result result;
        char kind[512];
        dpe_device_request_make(config, &options, NULL, 48, i / 2 % 2 == 0, &request);
        request.plan = dpe_config_pairs(config) < 4 ? 0 : (int)i % 2; /* 1 has four groups */
        dpe_device_kind(&request, kind);
        dpe_device_test(&request, &result);
        printf("%s: a prefill %.1e of %.1e %s\n", kind, result.rms[request.plan][DPE_ASK_PREFILL],
               result.most, result.text);
        assert_int_equal(result.outcome, DPE_DEVICE_RIGHT);
        expect_clean();
        tiny_close(&tiny);
    }
    device("");
}

/* Gemma 4's heads as published, of 512 and of 256 with a window: the latter have a fast kernel. */
static void two_sizes_of_heads_pass(void **state)
{
    (void)state;
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    struct tiny tiny = tiny_open("families/gemma4_alike");
    struct dpe_config config = *dpe_model_config(tiny.model);
    struct dpe_device_request request;
    struct dpe_device_result result;
    device("capability=90");
    config.head_dim = config.rotary_dim = 512;
    config.kinds[1].head_dim = 256;
    dpe_device_request_make(&config, &options, NULL, 48, false, &request);
    request.plan = 1;
    dpe_device_test(&request, &result);
    printf("heads of 512 and 256: a prefill %.1e, steps %.1e, of %.1e %s\n",
           result.rms[1][DPE_ASK_PREFILL], result.rms[1][DPE_ASK_STEPS], result.most, result.text);
    assert_int_equal(result.outcome, DPE_DEVICE_RIGHT);
    assert_true(result.rms[1][DPE_ASK_PREFILL] > 0.0);
    expect_clean();
    tiny_close(&tiny);
    device("");
}

/* Selections of every representative and place: all keys chosen in halves, or the choice in float.
 */
static void selections_pass(void **state)
{
    (void)state;
    static const char *const all[] = {
        "select:k=2,block=4,sinks=2,local=5,refresh=3,representative=extremes",
        "moba:block=64,k=3",
        "longheads:block=32,k=2",
        "infllm:block=30,sinks=20,local=60,k=2,attended=2",
        "vertical-slash:sinks=10,local=40,columns=3,slashes=4,last=50,refresh=60",
        "select:k=1,block=2,sinks=1,local=3,positions=packed,unit=layer"};
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    struct wide wide = wide_config(2, 1, 64, DPE_BF16);
    const struct dpe_plan_context context = {
        .config = &wide.config, .trained_length = 64, .length = 4096};
    device("capability=80");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct dpe_error err = {0};
        struct dpe_plan plan;
        TINY_OK(dpe_plan_make(all[i], &context, &plan, &err), err);
        assert_true(dpe_device_chooses(&wide.config, &plan.selection));
        struct dpe_device_request request;
        struct dpe_device_result result;
        dpe_device_request_make(&wide.config, &options, &plan.selection, 48, i / 2 % 2 == 0,
                                &request);
        request.plan = (int)i % 2;
        dpe_device_test(&request, &result);
        printf("%s: a prefill %.1e of %.1e %s\n", all[i], result.rms[request.plan][DPE_ASK_PREFILL],
               result.most, result.text);
        assert_int_equal(result.outcome, DPE_DEVICE_RIGHT);
        dpe_plan_free(&plan);
        expect_clean();
    }
    device("");
}

/* The types of a GGUF file: the small model has them too, and the device unpacks them. */
static void weights_in_blocks_pass(void **state)
{
    (void)state;
    static const struct {
        uint32_t types;
        const char *words;
    } all[] = {{1U << DPE_Q8_0, ", Q8_0"},
               {1U << DPE_Q4_0 | 1U << DPE_Q4_K | 1U << DPE_Q6_K, ", Q4_0, Q4_K, Q6_K"},
               {1U << DPE_Q4_1 | 1U << DPE_Q5_0 | 1U << DPE_Q5_1, ", Q4_1, Q5_0, Q5_1"},
               {1U << DPE_Q5_K | 1U << DPE_MXFP4, ", Q5_K, MXFP4"}};
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    device("capability=80");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct wide wide = wide_config(2, 1, 64, DPE_F32);
        struct dpe_device_request request;
        struct dpe_device_result result;
        char kind[512];
        wide.config.blocks = all[i].types;
        dpe_device_request_make(&wide.config, &options, NULL, 48, false, &request);
        request.plan = (int)i % 2;
        dpe_device_kind(&request, kind);
        assert_non_null(strstr(kind, "bfloat16"));
        assert_non_null(strstr(kind, all[i].words));
        dpe_device_test(&request, &result);
        printf("%s: a prefill %.1e of %.1e %s\n", kind, result.rms[request.plan][DPE_ASK_PREFILL],
               result.most, result.text);
        assert_int_equal(result.outcome, DPE_DEVICE_RIGHT);
        assert_true(result.rms[request.plan][DPE_ASK_PREFILL] <= result.most / 2.0);
        expect_clean();
    }
    device("");
}

/* On the processors: −ln p of the text's last token under a request's model. */
static double last_nll(const struct dpe_device_request *request, const int32_t *tokens)
{
    struct dpe_error err = {0};
    struct dpe_config config = request->config;
    struct dpe_model *model = NULL;
    struct dpe_session *session = NULL;
    struct dpe_plan plan;
    double nll[47];
    config.family = dpe_family_find(config.model_type);
    TINY_OK(dpe_random_model(&config, true, 1, &model, &err), err);
    const struct dpe_plan_context context = {.config = &config, .trained_length = 64, .length = 64};
    const struct dpe_session_options options = {.device = "cpu", .n_threads = 1, .capacity = 48};
    TINY_OK(dpe_plan_make("rope", &context, &plan, &err), err);
    TINY_OK(dpe_session_create(model, &plan, &options, &session, &err), err);
    TINY_OK(dpe_session_nll(session, tokens, 48, nll, &err), err);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
    dpe_model_close(model);
    return nll[46];
}

/* A query's growth begins within the small text, in every attention kernel, and is no small thing.
 */
static void growing_queries_pass(void **state)
{
    (void)state;
    static const struct {
        const char *device, *kernel;
        int64_t head_dim;
        enum dpe_dtype dtype;
    } all[] = {{"capability=90", "wgmma", 128, DPE_BF16},
               {"capability=80", "mma", 64, DPE_F16},
               {"capability=80", "plain", 32, DPE_F32}};
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct wide wide = wide_config(2, 1, all[i].head_dim, all[i].dtype);
        struct dpe_device_request request;
        struct dpe_device_result result;
        wide.config.query_growth = 0.5;
        wide.config.query_length = 16384.0;
        device(all[i].device);
        cuda_use_kernel(all[i].kernel);
        dpe_device_request_make(&wide.config, &options, NULL, 48, false, &request);
        request.plan = (int)i % 2;
        dpe_device_test(&request, &result);
        printf("%s: a prefill %.1e of %.1e %s\n", all[i].kernel,
               result.rms[request.plan][DPE_ASK_PREFILL], result.most, result.text);
        assert_int_equal(result.outcome, DPE_DEVICE_RIGHT);
        expect_clean();
        if (all[i].dtype == DPE_F32) {
            const double grown = last_nll(&request, wide.tokens);
            request.config.query_growth = 0.0;
            const double moved = fabs(last_nll(&request, wide.tokens) - grown);
            printf("without growth the last likelihood moves by %.1e\n", moved);
            assert_true(moved > 3.0 * result.most);
        }
    }
    cuda_use_kernel(NULL);
    device("");
}

/* Half of what a kernel writes is missing, of those that only such models and selections have. */
static void parts_of_models_are_tested(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *select, *kernel;
    } all[] = {
        {"families/gemma2", NULL, "plain"},
        {"families/gpt_oss", NULL, "sinks"},
        {"families/gpt_oss", NULL, "grouped_few"},
        {"families/gpt_oss", NULL, "combine"},
        {"families/qwen3_moe", NULL, "choose"},
        {"families/qwen3_5", NULL, "convolve"},
        {"families/qwen3_5", NULL, "keep"},
        {"families/qwen3_5", NULL, "relate"},
        {"families/qwen3_5", NULL, "carry"},
        {"families/qwen3_5", NULL, "finish"},
        {"families/qwen3_5", NULL, "recur_tokens"},
        {"families/qwen3_5", NULL, "output_gate"},
        {"families/nsa", NULL, "merge"},
        {"families/nsa", NULL, "compress"},
        {"families/nsa", NULL, "represent"},
        {"llama", "moba:block=4,k=2", "attend"},
        {"llama", "moba:block=4,k=2", "choose"},
        {"llama", "moba:block=4,k=2", "score"},
        {"llama", "vertical-slash", "sum_keys"},
        {"llama", "vertical-slash", "add_keys"},
        {"llama", "infllm:block=3,sinks=2,local=6,k=2,attended=2", "represent"},
    };
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    device("capability=90");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i += (size_t)few(2)) {
        struct tiny tiny = tiny_open(all[i].folder);
        struct dpe_plan plan =
            tiny_plan(&tiny, all[i].select != NULL ? all[i].select : "rope", tiny.n);
        struct dpe_device_request request;
        struct dpe_device_result result;
        char fault[64];
        dpe_device_request_make(dpe_model_config(tiny.model), &options, &plan.selection, 48, true,
                                &request);
        request.plan = 0;
        snprintf(fault, sizeof fault, "wrong:%s", all[i].kernel);
        setenv("DPE_FAKE_FAULT", fault, 1);
        dpe_device_test(&request, &result);
        printf("%s, %s: %s\n", all[i].folder, all[i].kernel, result.text);
        assert_int_equal(result.outcome, DPE_DEVICE_WRONG);
        setenv("DPE_FAKE_FAULT", "", 1);
        dpe_plan_free(&plan);
        tiny_close(&tiny);
    }
    device("");
}

/* What is right is remembered for its kind of model; what is refused is not. */
static void wrong_devices_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *text;
    } all[] = {
        {"wrong=16", "expected the logits of the CPU"},
        {"sticky=100", "an illegal memory access"},
        {"hangs=200", "no answer in time"},
    };
    struct wide wide = wide_open(2, 1, 32, DPE_F32);
    setenv("DPE_DEVICE_SELF_TEST", "24", 1);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct dpe_error err = {0};
        device(all[i].words);
        assert_int_equal(try_wide(&wide, &err), DPE_NO_DEVICE);
        assert_int_equal(err.status, DPE_NO_DEVICE);
        printf("%s: %s\n", all[i].words, err.text);
        expect_text(&err, "device cuda failed its self-test");
        expect_text(&err, "--device cpu");
        expect_text(&err, all[i].text);
        expect_clean();
    }
    struct dpe_error err = {0};
    device("");
    TINY_OK(try_wide(&wide, &err), err);
    device("wrong=16");
    TINY_OK(try_wide(&wide, &err), err);
    /* A verdict of before, and a card that is wrong now: another kind of model, as if of a new
     * process. */
    dpe_model_close(wide.model);
    wide = wide_open(4, 1, 32, DPE_F32);
    char text[256];
    dpe_device_kernels(&wide.config, "cuda", text);
    assert_string_equal(text,
                        "attention plain, split whole, decoding attention, products product_few, "
                        "steps graph");
    dpe_model_close(wide.model);
    expect_clean();
}

/* A launch does not return its result: the check of a device waits for it after each one. */
static void the_call_that_fails_is_named(void **state)
{
    (void)state;
    struct wide wide = wide_config(2, 1, 16, DPE_F32);
    int launches = 0;
    for (int call = 0; call < 20; call++) {
        char words[64];
        snprintf(words, sizeof words, "late=%d", (int)counts().calls + 400 + call);
        device(words);
        const struct dpe_device_result result = test_here(&wide, 0);
        assert_int_equal(result.outcome, DPE_DEVICE_FAILED);
        assert_non_null(strstr(result.text, "an illegal memory access"));
        launches += strstr(result.text, "dpe_kernel_") != NULL;
        expect_clean();
    }
    printf("%d of 20 failures are a kernel's\n", launches);
    assert_in_range(launches, 8, 19); /* the others are of copies and products */
    device("broken=0");
    const struct dpe_device_result result = test_here(&wide, 0);
    assert_non_null(strstr(result.text, "the device (emulated device 0) failed in"));
    device("");
}

static void environment_says_how_long(void **state)
{
    (void)state;
    struct wide wide = wide_open(2, 1, 48, DPE_F32);
    struct dpe_error err = {0};
    static const char *const wrong[] = {"1", "no", "70000", "40x", "-5"};
    device("wrong=16");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("DPE_DEVICE_SELF_TEST", wrong[i], 1);
        assert_int_equal(try_wide(&wide, &err), DPE_USAGE);
        expect_text(&err, wrong[i]);
    }
    setenv("DPE_DEVICE_SELF_TEST", "off", 1);
    TINY_OK(try_wide(&wide, &err), err);
    dpe_model_close(wide.model);
    expect_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_devices_pass),
        cmocka_unit_test(kinds_of_models_pass),
        cmocka_unit_test(two_sizes_of_heads_pass),
        cmocka_unit_test(selections_pass),
        cmocka_unit_test(weights_in_blocks_pass),
        cmocka_unit_test(growing_queries_pass),
        cmocka_unit_test(parts_of_models_are_tested),
        cmocka_unit_test(wrong_devices_are_refused),
        cmocka_unit_test(the_call_that_fails_is_named),
        cmocka_unit_test(environment_says_how_long),
    };
    char folder[] = "/tmp/dpe-self-test-XXXXXX";
    int code = cuda_begin();
    setenv("XDG_CACHE_HOME", mkdtemp(folder) != NULL ? folder : "/",
           1); /* no verdict of another run */
    return code != 0 ? code : cmocka_run_group_tests_name("self_test", tests, NULL, NULL);
}

/* The self-test of a device before its first session, on the emulated one: that a good device
 * passes with every kernel, and that a wrong, a broken and a silent one are refused in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/methods/methods.h"
#include "tests/engine/cuda/host/cuda_case.h"

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

/* Every kernel and dtype; once for each kind of model. */
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
    setenv("DPE_DEVICE_SELF_TEST", "48", 1);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct dpe_error err = {0};
        struct wide wide = wide_open(all[i].heads, all[i].kv_heads, all[i].head_dim, all[i].dtype);
        device(all[i].device);
        cuda_use_kernel(all[i].kernel);
        uint64_t before = counts().calls;
        TINY_OK(try_wide(&wide, &err), err);
        uint64_t first = counts().calls - before;
        TINY_OK(try_wide(&wide, &err), err);
        uint64_t second = counts().calls - before - first;
        printf("%s, heads of %d: %d calls, then %d\n", all[i].kernel, (int)all[i].head_dim,
               (int)first, (int)second);
        assert_true(first > 10 * second);
        dpe_model_close(wide.model);
        expect_clean();
    }
}

/* What is refused is not remembered: a device that is good again is used. */
static void wrong_devices_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *text;
    } all[] = {
        {"wrong=16", "expected the logits of the CPU"},
        {"sticky", "an illegal memory access"},
        {"hangs", "no answer in time"},
    };
    struct wide wide = wide_open(2, 1, 32, DPE_F32);
    setenv("DPE_DEVICE_SELF_TEST", "24", 1);
    cuda_use_kernel(NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (uint64_t call = 3; call < 2000; call = i == 0 ? 2000 : 16 * call) {
            struct dpe_error err = {0};
            char words[64];
            snprintf(words, sizeof words, "%s", all[i].words);
            if (i > 0) {
                snprintf(words, sizeof words, "%s=%d", all[i].words, (int)(counts().calls + call));
            }
            device(words);
            assert_int_equal(try_wide(&wide, &err), DPE_NO_DEVICE);
            assert_int_equal(err.status, DPE_NO_DEVICE);
            printf("%s: %s\n", words, err.text);
            expect_text(&err, "device cuda failed its self-test");
            expect_text(&err, "--device cpu");
            expect_text(&err, all[i].text);
            expect_clean();
        }
    }
    struct dpe_error err = {0};
    device("");
    TINY_OK(try_wide(&wide, &err), err);
    dpe_model_close(wide.model);
    expect_clean();
}

/* A launch does not return its result: the check of a device waits for it after each one. */
static void the_call_that_fails_is_named(void **state)
{
    (void)state;
    struct wide wide = wide_open(2, 1, 16, DPE_F32);
    setenv("DPE_DEVICE_SELF_TEST", "24", 1);
    cuda_use_kernel(NULL);
    int launches = 0;
    for (int call = 0; call < 20; call++) {
        struct dpe_error err = {0};
        char words[64];
        snprintf(words, sizeof words, "late=%d", (int)counts().calls + 700 + call);
        device(words);
        assert_int_equal(try_wide(&wide, &err), DPE_NO_DEVICE);
        expect_text(&err, "an illegal memory access");
        launches += strstr(err.text, "dpe_kernel_") != NULL;
        expect_clean();
    }
    printf("%d of 20 failures are a kernel's\n", launches);
    assert_in_range(launches, 8, 19); /* the others are of copies and products */
    struct dpe_error err = {0};
    device("broken=0");
    assert_int_equal(try_wide(&wide, &err), DPE_NO_DEVICE);
    expect_text(&err, "the device (emulated device 0) failed in");
    device("");
    dpe_model_close(wide.model);
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
        cmocka_unit_test(wrong_devices_are_refused),
        cmocka_unit_test(the_call_that_fails_is_named),
        cmocka_unit_test(environment_says_how_long),
    };
    int code = cuda_begin();
    return code != 0 ? code : cmocka_run_group_tests_name("self_test", tests, NULL, NULL);
}

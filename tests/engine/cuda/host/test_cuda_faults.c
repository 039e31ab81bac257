/* The CUDA backend when its device fails, is short of memory, too old or missing, and on
 * GPUs of several sizes: all on the emulated device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/methods/methods.h"
#include "tests/engine/cuda/host/cuda_case.h"

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
static void failures_under(const char *spec)
{
    struct tiny tiny = tiny_open("llama_bf16");
    struct dpe_plan plan = tiny_plan(&tiny, spec, tiny.n);
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
        /* The walk's few bytes are allocated while tokens run. */
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

static void failures(void **state)
{
    (void)state;
    failures_under("dpe:window=5,groups=3,scales=1/2.5/4");
    failures_under("infllm:block=3,sinks=2,local=6,k=2,attended=2");
}

/* Few rows over many keys are cut into parts where they would leave most of the GPU idle. */
static void few_rows_in_parts(void **state)
{
    (void)state;
    enum { KEYS = 1030, ROWS = 9 }; /* more than 16 tiles */
    struct wide wide = wide_open(2, 1, 64, DPE_BF16);
    struct dpe_error err = {0};
    const struct dpe_plan_context context = {
        .config = &wide.config, .trained_length = 64, .length = KEYS + ROWS};
    int32_t tokens[KEYS + ROWS];
    float logits[3][VOCAB];
    const char *const gpus[3] = {"processors=1", "processors=4", NULL};
    struct dpe_plan plan;
    TINY_OK(dpe_plan_make("dpe:window=100,scales=1/2/3.5/8", &context, &plan, &err), err);
    for (int i = 0; i < KEYS + ROWS; i++) {
        tokens[i] = (i * 37 + i / 11) % VOCAB;
    }
    for (int i = 0; i < 3; i++) {
        const struct dpe_session_options options = {.device =
                                                        gpus[i] == NULL ? "reference" : "cuda",
                                                    .n_threads = 1,
                                                    .capacity = KEYS + ROWS};
        struct dpe_session *session = NULL;
        device(gpus[i] == NULL ? "" : gpus[i]);
        setenv("DPE_CUDA_ATTENTION", "", 1);
        TINY_OK(dpe_session_create(wide.model, &plan, &options, &session, &err), err);
        TINY_OK(dpe_session_feed(session, tokens, KEYS, NULL, &err), err);
        TINY_OK(dpe_session_feed(session, tokens + KEYS, ROWS, logits[i], &err), err);
        dpe_session_destroy(session);
        expect_clean();
    }
    /* Two heads are two blocks, and a GPU of one multiprocessor is busy with them. */
    assert_memory_not_equal(logits[0], logits[1], sizeof logits[0]);
    double whole = worst(logits[0], logits[2], VOCAB);
    double parted = worst(logits[1], logits[2], VOCAB);
    printf("in parts: %.2e, whole: %.2e\n", parted, whole);
    assert_true(parted <= 2.0 * whole);
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
}

enum { N = 2000 };

/* A model, and the plan and options under which N of its tokens are prefilled in one chunk. */
struct prefill {
    struct wide wide;
    struct dpe_plan plan;
    struct dpe_session_options options;
    uint64_t bytes; /* what that takes */
};

static void prefill_make(struct prefill *p)
{
    struct dpe_error err = {0};
    struct dpe_session_needs needs = {0};
    device("");
    p->wide = wide_open(2, 1, 8, DPE_F32);
    const struct dpe_plan_context context = {
        .config = &p->wide.config, .trained_length = 64, .length = N};
    TINY_OK(dpe_plan_make("dpe:window=5,scales=4", &context, &p->plan, &err), err);
    p->options = (struct dpe_session_options){.device = "cuda", .n_threads = 1, .capacity = N};
    TINY_OK(dpe_session_estimate(&p->wide.config, &p->plan, &p->options, &needs, &err), err);
    p->bytes = needs.memory;
}

static void prefill_free(struct prefill *p)
{
    dpe_plan_free(&p->plan);
    dpe_model_close(p->wide.model);
    expect_clean();
}

/* Chunks are halved as far as it takes, whether memory is known to be short or turns out to be; the
 * answer stays the same. */
static void short_memory_halves_chunks(void **state)
{
    (void)state;
    struct prefill p;
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    float logits[2][VOCAB];
    prefill_make(&p);
    TINY_OK(dpe_session_create(p.wide.model, &p.plan, &p.options, &session, &err), err);
    uint64_t taken = counts().bytes;
    assert_int_equal(dpe_session_chunk(session), N);
    dpe_session_destroy(session);
    for (int i = 0; i < 2; i++) {
        char words[64];
        /* Short by a quarter of a megabyte; then also without a report of free memory before. */
        snprintf(words, sizeof words, "memory=%llu%s",
                 (unsigned long long)(i == 0 ? p.bytes : taken) - (1 << 18),
                 i == 0 ? "" : ",hidden");
        device(words);
        TINY_OK(dpe_session_create(p.wide.model, &p.plan, &p.options, &session, &err), err);
        assert_int_equal(dpe_session_limits(session).full_chunk, N);
        assert_true(dpe_session_chunk(session) < N);
        assert_true(dpe_session_chunk(session) >= 512);
        printf("chunks of %d\n", (int)dpe_session_chunk(session));
        TINY_OK(dpe_session_feed(session, p.wide.tokens, 160, logits[i], &err), err);
        TINY_OK(dpe_session_set_plan(session, &p.plan, &err), err);
        assert_true(dpe_session_chunk(session) >= 512);
        dpe_session_destroy(session);
        expect_clean();
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    prefill_free(&p);
}

/* A chunk size given by the user is used, or refused with the size that fits. */
static void refusals_name_what_fits(void **state)
{
    (void)state;
    struct prefill p;
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    prefill_make(&p);
    p.options.prefill_chunk = N;
    p.options.max_memory = p.bytes - (1 << 18);
    assert_int_equal(dpe_session_create(p.wide.model, &p.plan, &p.options, &session, &err),
                     DPE_NO_MEMORY);
    expect_text(&err, "in chunks of 2000");
    const char *fits = strstr(err.text, "less (");
    long length = fits == NULL ? 0 : strtol(fits + 6, NULL, 10);
    assert_true(length > 0 && length < N);
    p.options.capacity = length;
    p.options.prefill_chunk = 0;
    TINY_OK(dpe_session_create(p.wide.model, &p.plan, &p.options, &session, &err), err);
    dpe_session_destroy(session);
    /* The floor. */
    p.options.capacity = N;
    p.options.max_memory = 193 << 20;
    assert_int_equal(dpe_session_create(p.wide.model, &p.plan, &p.options, &session, &err),
                     DPE_NO_MEMORY);
    expect_text(&err, "in chunks of 512");
    expect_text(&err, "allow more with max_memory");
    p.options.max_memory = 1 << 20;
    assert_int_equal(dpe_session_create(p.wide.model, &p.plan, &p.options, &session, &err),
                     DPE_NO_MEMORY);
    expect_text(&err, "no length fits");
    prefill_free(&p);
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
    expect_text(&err, "the driver does not find a device");
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
    expect_text(&err, "allow more with max_memory");
    assert_int_equal(dpe_device_resolve("auto", &name, &err), DPE_OK);
    assert_string_equal(name, "cuda");
    assert_int_equal(dpe_device_resolve("cuda:2", &name, &err), DPE_NO_DEVICE);
    expect_text(&err, "from 0 to 1");
    assert_int_equal(dpe_device_resolve("cuda:1", &name, &err), DPE_OK);
    assert_int_equal(dpe_device_resolve("cuda:x", &name, &err), DPE_USAGE);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
    expect_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures),
        cmocka_unit_test(refusals),
        cmocka_unit_test(short_memory_halves_chunks),
        cmocka_unit_test(refusals_name_what_fits),
        cmocka_unit_test(few_rows_in_parts),
    };
    unsetenv("DPE_TEST_CUDA_MODULE");
    int status = cuda_begin();
    return status != 0 ? status : cuda_run(tests);
}

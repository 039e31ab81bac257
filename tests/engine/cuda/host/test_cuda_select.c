/* Plans with a selection on the CUDA backend, on a device that is host memory and the emulator (or,
 * with DPE_TEST_CUDA_MODULE, the one of this machine): against the reference, in one prefill, in
 * chunks, token by token, after cuts, and in branches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/methods/methods.h"
#include "tests/engine/cuda/host/cuda_case.h"
#include "tests/lib/few.h"

static const double FLOAT_ROUNDING = 2e-5;
/* As in test_cuda.c. */
static const double HALF_ROUNDING = 0.2;

static const char *const specs[] = {
    "select:k=2,block=4,sinks=2,local=5",
    "select:k=2,block=4,sinks=2,local=5,refresh=3,representative=extremes,over=dpe:window=5,groups="
    "3,scales=1/2.5/4",
    "select:k=1,block=2,sinks=1,local=3,positions=packed,unit=layer",
    "select:k=3,block=3,sinks=0,local=4,positions=packed,unit=head,scored=true,over=self-extend:"
    "window=8,group=3",
    "select:k=2,block=5,sinks=3,local=7,positions=constant,refresh=4,scored=constant,log-n=20",
    "moba:block=4,k=2",
    "minference:block=5,k=2",
    "longheads:block=3,k=2",
    "longheads:block=2,k=2,mean=1",
    "infllm:block=3,sinks=2,local=6,k=2,attended=2",
    "reattention:block=3,sinks=2,local=6,k=2",
    "select:k=0,block=4,sinks=2,local=6",
    "select:k=2,block=3,sinks=1,local=4,representative=compressed,refresh=2,log-n=20",
    "select:k=3,block=2,sinks=0,local=3,representative=compressed,unit=layer,scored=true,over=dpe:"
    "window=5,groups=3,scales=1/2.5/4",
    "vertical-slash:sinks=1,local=4,columns=3,slashes=4,last=5,refresh=6",
    "select:k=2,block=3,sinks=2,local=5,representative=probability,last=3,slashes=3,positions="
    "packed,scored=true,log-n=20",
    "select:k=1,block=4,sinks=0,local=3,representative=probability,last=4,slashes=5,unit=layer,"
    "refresh=4,positions=constant,scored=constant,over=dpe:window=5,groups=3,scales=1/2.5/4",
    "select:k=3,block=2,sinks=1,local=4,representative=probability,last=2,unit=head,positions="
    "packed",
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

/* A prefill, tokens and pieces, against the reference's prefill. */
static void one_selection(const struct tiny *tiny, const char *spec, double most)
{
    struct dpe_error err = {0};
    float want[VOCAB];
    float got[VOCAB];
    struct dpe_plan plan = tiny_plan(tiny, spec, tiny->n);
    assert_true(dpe_selects(&plan.selection));
    struct dpe_session *reference = open_on(tiny, "reference", &plan, tiny->n);
    feed(reference, tiny, tiny->n, want);
    dpe_session_destroy(reference);
    for (int64_t chunk = 13; chunk <= tiny->n; chunk += tiny->n - 13) {
        struct dpe_session *session = open_on(tiny, "cuda", &plan, chunk);
        feed(session, tiny, tiny->n, got);
        double error = worst(got, want, VOCAB);
        printf("%s, chunks of %d: worst difference %.2e\n", spec, (int)chunk, error);
        assert_true(error <= most);
        if (chunk < tiny->n) {
            TINY_OK(dpe_session_cut(session, 0, &err), err);
            for (int64_t t = 1; t <= tiny->n; t += t < 12 ? 5 : 1) {
                feed(session, tiny, t, got);
            }
            assert_true(worst(got, want, VOCAB) <= most);
            TINY_OK(dpe_session_cut(session, 11, &err), err);
            feed(session, tiny, 30, NULL);
            feed(session, tiny, tiny->n, got);
            assert_true(worst(got, want, VOCAB) <= most);
        }
        dpe_session_destroy(session);
    }
    /* In chunks of one row the workspace is no larger than what that row takes. */
    struct dpe_session *session = open_on(tiny, "cuda", &plan, 1);
    feed(session, tiny, tiny->n, got);
    assert_true(worst(got, want, VOCAB) <= most);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
}

static void against_the_reference(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    for (int i = 0; i < N_SPECS; i += few(6)) {
        device(i % 2 == 0 ? "" : "seed=7");
        one_selection(&tiny, specs[i], FLOAT_ROUNDING);
    }
    tiny_close(&tiny);
    expect_clean();
}

/* In halves a rounded score may choose another block than the reference's, so all are chosen. */
static void in_halves(void **state)
{
    (void)state;
    static const char *const all[] = {
        "select:k=40,block=3,sinks=2,local=5,positions=packed,over=self-extend:window=8,group=3",
        "infllm:block=3,sinks=2,local=6,k=40,attended=2",
    };
    struct tiny tiny = tiny_open("llama_bf16");
    for (int i = 0; i < 2; i++) {
        device("");
        one_selection(&tiny, all[i], HALF_ROUNDING);
    }
    tiny_close(&tiny);
    expect_clean();
}

static void branches(void **state)
{
    (void)state;
    device("");
    struct tiny tiny = tiny_open("llama");
    for (int i = 0; i < N_SPECS; i += few(6)) {
        struct dpe_plan plan = tiny_plan(&tiny, specs[i], tiny.n);
        double error = branches_error(&tiny, &plan);
        printf("%s, branches: worst difference %.2e\n", specs[i], error);
        assert_true(error <= FLOAT_ROUNDING);
        dpe_plan_free(&plan);
    }
    tiny_close(&tiny);
    expect_clean();
}

static void run_steps(const struct wide *wide, const struct dpe_plan *plan, float *logits)
{
    enum { PROMPT = 40, STEPS = 6, BRANCHES = 2 };
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {.device = "cuda",
                                                .n_threads = 1,
                                                .capacity = PROMPT + BRANCHES * STEPS,
                                                .positions = PROMPT + STEPS,
                                                .branches = BRANCHES};
    const int64_t which[BRANCHES] = {1, 0};
    TINY_OK(dpe_session_create(wide->model, plan, &options, &session, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens, PROMPT, NULL, &err), err);
    TINY_OK(dpe_session_branch(session, BRANCHES, STEPS, &err), err);
    for (int step = 0; step < STEPS; step++) {
        TINY_OK(dpe_session_step(session, BRANCHES, which, wide->tokens + 7 * step, logits, &err),
                err);
    }
    dpe_session_destroy(session);
}

/* Steps under a selection do not become graphs. */
static void no_graphs(void **state)
{
    (void)state;
    struct wide wide = wide_open(4, 2, 64, DPE_BF16);
    const struct dpe_plan_context context = {
        .config = &wide.config, .trained_length = 64, .length = 64};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    float logits[2 * VOCAB];
    TINY_OK(dpe_plan_make("infllm:block=4,sinks=2,local=6,k=3,attended=2", &context, &plan, &err),
            err);
    device("capability=90");
    run_steps(&wide, &plan, logits);
    assert_true(cuda_is_real() || counts().graphs == 0);
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
    expect_clean();
}

int main(void)
{
    int status = cuda_begin();
    if (status != 0) {
        return status;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_the_reference),
        cmocka_unit_test(in_halves),
        cmocka_unit_test(branches),
        cmocka_unit_test(no_graphs),
    };
    return cuda_run(tests);
}

/* Plans with a selection on the CUDA backend, on a device that is host memory and the emulator (or,
 * with DPE_TEST_CUDA_MODULE, the one of this machine): against the reference, in one prefill, in
 * chunks, token by token, after cuts, and in branches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/session/session_internal.h"
#include "tests/engine/cuda/cuda_case.h"

static const double FLOAT_ROUNDING = 2e-5;

static const char *const specs[] = {
    "select:k=2,block=4,sinks=2,local=5",
    "select:k=2,block=4,sinks=2,local=5,refresh=3,representative=extremes,over=dpe:window=5,groups=3,scales=1/2.5/4",
    "select:k=1,block=2,sinks=1,local=3,positions=packed,unit=layer",
    "select:k=3,block=3,sinks=0,local=4,positions=packed,unit=head,scored=true,over=self-extend:window=8,group=3",
    "select:k=2,block=5,sinks=3,local=7,positions=constant,refresh=4,scored=constant,log-n=20",
    "moba:block=4,k=2",
    "minference:block=5,k=2",
    "longheads:block=3,k=2",
    "longheads:block=2,k=2,mean=1",
    "infllm:block=3,sinks=2,local=6,k=2,attended=2",
    "reattention:block=3,sinks=2,local=6,k=2",
    "select:k=0,block=4,sinks=2,local=6",
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
    dpe_plan_free(&plan);
}

static void against_the_reference(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    for (int i = 0; i < N_SPECS; i++) {
        device(i % 2 == 0 ? "" : "seed=7");
        one_selection(&tiny, specs[i], FLOAT_ROUNDING);
    }
    tiny_close(&tiny);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

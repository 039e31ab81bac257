/* Layers with a state in sessions: whatever is cut, copied and branched, the logits are those of a
 * session that read the same tokens alone, and the same bits where the grid promises them.
 *
 * With an argument, on the device cuda, which is the emulated one, or that of the module which
 * DPE_TEST_CUDA_MODULE names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/model/weights/opened.h"
#include "tests/lib/few.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

enum { N = 150, CHUNK = 16, ROOM = 64 };

static const char *devices[] = {"reference", "cpu"};
static size_t n_devices = 2;
static double rounding = 2e-6; /* of the largest logit */
static int32_t text[N];

static struct dpe_session *open_session(const struct tiny *tiny, const char *device, int threads,
                                        int64_t branches)
{
    const struct dpe_session_options options = {.device = device,
                                                .n_threads = threads,
                                                .capacity = 4 * N,
                                                .positions = N + ROOM,
                                                .branches = branches,
                                                .prefill_chunk = CHUNK};
    return tiny_session(tiny, "rope", &options);
}

/* The logits after tokens alone. */
static void alone(const struct tiny *tiny, const char *device, const int32_t *tokens, int64_t n,
                  float *logits)
{
    struct dpe_error err = {0};
    struct dpe_session *session = open_session(tiny, device, 1, 1);
    TINY_OK(dpe_session_feed(session, tokens, n, logits, &err), err);
    dpe_session_destroy(session);
}

static void check_near(const char *what, const struct tiny *tiny, const float *got,
                       const float *want)
{
    double spread = 0.0;
    double wide[64];
    for (int64_t i = 0; i < tiny->config->vocab; i++) {
        wide[i] = (double)want[i];
        spread = fmax(spread, fabs(wide[i]));
    }
    assert_int_equal(near_f32(what, got, wide, (size_t)tiny->config->vocab, rounding * spread), 0);
}

static void cuts_go_anywhere(void **state)
{
    const struct tiny *tiny = *state;
    const int64_t cuts[] = {149, 148, 131, 128, 97, 96, 33, 15, 1, 0, 140};
    for (size_t d = 0; d < n_devices; d++) {
        struct dpe_error err = {0};
        float want[64];
        float got[64];
        alone(tiny, devices[d], text, N, want);
        struct dpe_session *session = open_session(tiny, devices[d], 1, 1);
        TINY_OK(dpe_session_feed(session, text, N, got, &err), err);
        assert_memory_equal(got, want, sizeof got);
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            const int64_t before = dpe_session_work(session).fed;
            TINY_OK(dpe_session_cut(session, cuts[i], &err), err);
            TINY_OK(dpe_session_feed(session, text + cuts[i], N - cuts[i], got, &err), err);
            check_near("after a cut", tiny, got, want);
            if (cuts[i] % CHUNK == 0) {
                assert_memory_equal(got, want, sizeof got);
            }
            /* Of the kept states the nearest is a fraction of the distance to the end away. */
            const int64_t again = dpe_session_work(session).fed - before - (N - cuts[i]);
            assert_true(again >= 0 && again <= CHUNK + (N - cuts[i]));
        }
        /* Two cuts without a token in between, and a cut further back than any kept state. */
        TINY_OK(dpe_session_cut(session, 120, &err), err);
        TINY_OK(dpe_session_cut(session, 64, &err), err);
        TINY_OK(dpe_session_feed(session, text + 64, N - 64, got, &err), err);
        assert_memory_equal(got, want, sizeof got);
        dpe_session_destroy(session);
    }
}

static void bits_do_not_depend_on_threads_or_calls(void **state)
{
    const struct tiny *tiny = *state;
    float want[64];
    float got[64];
    struct dpe_error err = {0};
    alone(tiny, "cpu", text, N, want);
    for (int threads = 1; threads <= 3; threads++) {
        struct dpe_session *session = open_session(tiny, "cpu", threads, 1);
        for (int64_t at = 0; at < N;) {
            int64_t n = CHUNK * (1 + at / CHUNK % threads);
            n = n < N - at ? n : N - at;
            TINY_OK(dpe_session_feed(session, text + at, n, got, &err), err);
            at += n;
        }
        assert_memory_equal(got, want, sizeof got);
        dpe_session_destroy(session);
    }
}

/* Branches after a prefix, each with other tokens; some cut, one that goes on by steps. */
static void branches_are_as_alone(void **state)
{
    const struct tiny *tiny = *state;
    enum { PREFIX = 53, BRANCHES = 4, OWN = 21 };
    for (size_t d = 0; d < n_devices; d++) {
        struct dpe_error err = {0};
        float got[64];
        float want[64];
        float all[BRANCHES * 64];
        int32_t tokens[PREFIX + 2 * OWN];
        struct dpe_session *session = open_session(tiny, devices[d], 2, BRANCHES);
        TINY_OK(dpe_session_feed(session, text, PREFIX + 9, NULL, &err), err);
        TINY_OK(dpe_session_cut(session, PREFIX, &err), err);
        TINY_OK(dpe_session_branch(session, BRANCHES, ROOM, &err), err);
        for (int round = 0; round < 2; round++) {
            for (int64_t b = 0; b < BRANCHES; b++) {
                TINY_OK(dpe_session_branch_cut(session, b, PREFIX, &err), err);
                TINY_OK(dpe_session_branch_feed(session, b, text + PREFIX + 5 * b + round, OWN, got,
                                                &err),
                        err);
                memcpy(tokens, text, sizeof tokens);
                memcpy(tokens + PREFIX, text + PREFIX + 5 * b + round, OWN * sizeof *tokens);
                alone(tiny, devices[d], tokens, PREFIX + OWN, want);
                check_near("a branch", tiny, got, want);
            }
        }
        int64_t which[BRANCHES] = {2, 0, 3, 1};
        int32_t next[BRANCHES] = {7, 8, 9, 10};
        TINY_OK(dpe_session_branch_cut(session, 3, PREFIX + 11, &err), err);
        TINY_OK(dpe_session_step(session, BRANCHES, which, next, all, &err), err);
        for (int64_t i = 0; i < BRANCHES; i++) {
            const int64_t b = which[i];
            const int64_t own = b == 3 ? 11 : OWN;
            memcpy(tokens, text, sizeof tokens);
            memcpy(tokens + PREFIX, text + PREFIX + 5 * b + 1, (size_t)own * sizeof *tokens);
            tokens[PREFIX + own] = next[i];
            alone(tiny, devices[d], tokens, PREFIX + own + 1, want);
            check_near("a step", tiny, all + i * 64, want);
        }
        /* One branch again, of less than the prefix. */
        TINY_OK(dpe_session_cut(session, 48, &err), err);
        TINY_OK(dpe_session_feed(session, text + 48, N - 48, got, &err), err);
        alone(tiny, devices[d], text, N, want);
        assert_memory_equal(got, want, sizeof got);
        dpe_session_destroy(session);
    }
}

static void copies_are_as_alone(void **state)
{
    const struct tiny *tiny = *state;
    for (size_t d = 0; d < n_devices; d++) {
        struct dpe_error err = {0};
        float got[64];
        float want[64];
        struct dpe_session *session = open_session(tiny, devices[d], 1, 3);
        TINY_OK(dpe_session_branch(session, 3, N, &err), err);
        TINY_OK(dpe_session_branch_feed(session, 0, text, 70, NULL, &err), err);
        const int64_t counts[] = {70, 41, 32, 3};
        alone(tiny, devices[d], text, 110, want);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            const int64_t to = 1 + (int64_t)i % 2;
            TINY_OK(dpe_session_branch_copy(session, 0, to, counts[i], &err), err);
            TINY_OK(
                dpe_session_branch_feed(session, to, text + counts[i], 110 - counts[i], got, &err),
                err);
            check_near("a copy", tiny, got, want);
        }
        /* The one that was copied goes on. */
        TINY_OK(dpe_session_branch_feed(session, 0, text + 70, 40, got, &err), err);
        check_near("what was copied", tiny, got, want);
        dpe_session_destroy(session);
    }
}

/* A row of a step has the same bits whatever stands beside it, and in lanes of threads. */
static void steps_do_not_depend_on_others(void **state)
{
    const struct tiny *tiny = *state;
    enum { BRANCHES = 4, STEPS = 40 };
    float want[STEPS][64];
    for (int64_t together = 1; together <= BRANCHES; together += BRANCHES - 1) {
        struct dpe_error err = {0};
        float all[BRANCHES * 64];
        struct dpe_session *session = open_session(tiny, "cpu", 2, BRANCHES);
        TINY_OK(dpe_session_branch(session, BRANCHES, N, &err), err);
        for (int64_t i = 0; i < STEPS; i++) {
            const int64_t which[BRANCHES] = {2, 0, 1, 3};
            const int32_t tokens[BRANCHES] = {text[i], text[i + 1], text[i + 2], text[i + 3]};
            TINY_OK(dpe_session_step(session, together, which, tokens, all, &err), err);
            if (together == 1) {
                memcpy(want[i], all, sizeof want[i]);
            }
            assert_memory_equal(all, want[i], sizeof want[i]);
        }
        dpe_session_destroy(session);
    }
}

static int left;

static dpe_status stop_soon(void *user, struct dpe_error *err)
{
    (void)user;
    return left-- > 0 ? DPE_OK : dpe_fail(err, DPE_INCOMPLETE, "stopped");
}

/* A call that is stopped half way, while old tokens run again or new ones run, is as none. */
static void stopped_calls_leave_nothing(void **state)
{
    const struct tiny *tiny = *state;
    struct dpe_error err = {0};
    float got[64];
    float want[64];
    const char *device = devices[n_devices - 1];
    alone(tiny, device, text, N, want);
    struct dpe_session *session = open_session(tiny, device, 1, 1);
    TINY_OK(dpe_session_feed(session, text, N, NULL, &err), err);
    for (int layers = 0; layers < 30; layers += 3) {
        TINY_OK(dpe_session_cut(session, 90, &err), err);
        left = layers;
        dpe_session_set_poll(session, stop_soon, NULL);
        assert_int_equal(dpe_session_feed(session, text + 90, N - 90, got, &err), DPE_INCOMPLETE);
        dpe_session_set_poll(session, NULL, NULL);
        TINY_OK(dpe_session_feed(session, text + 90, N - 90, got, &err), err);
        check_near("after a stop", tiny, got, want);
    }
    dpe_session_destroy(session);
}

static const char *folder; /* of the model */

static int open_model(void **state)
{
    static struct tiny tiny;
    tiny = tiny_open(folder);
    assert_int_equal(tiny.config->vocab, 64);
    if (n_devices == 1) {
        tiny.model->config.dtype = DPE_F32; /* where rounding hides nothing */
    }
    for (int64_t i = 0; i < N; i++) {
        text[i] = (int32_t)(3 + (i * i * 7 + i * 13) % 61);
    }
    *state = &tiny;
    return 0;
}

static int close_model(void **state)
{
    tiny_close(*state);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_go_anywhere),
        cmocka_unit_test(branches_are_as_alone),
        cmocka_unit_test(copies_are_as_alone),
        cmocka_unit_test(stopped_calls_leave_nothing),
    };
    const struct CMUnitTest some[] = {cmocka_unit_test(copies_are_as_alone)};
    const struct CMUnitTest on_processors[] = {
        cmocka_unit_test(bits_do_not_depend_on_threads_or_calls),
        cmocka_unit_test(steps_do_not_depend_on_others),
    };
    static const char *const folders[] = {"families/qwen3_5", "families/qwen3_next"};
    int failed = 0;
    (void)argv;
    if (argc > 1) {
        const char *module = getenv("DPE_TEST_CUDA_MODULE");
        const char *emulated = DPE_BINARY_DIR "/tests/libdpe_cuda_emulated.so";
        setenv("DPE_CUDA_MODULE", module != NULL ? module : emulated, 1);
        setenv("DPE_DEVICE_SELF_TEST", "off", 1);
        devices[0] = "cuda";
        n_devices = 1;
        rounding = 1e-5;
    }
    const bool small = few_cases();
    for (size_t i = 0; i < (small ? 1 : 2); i++) { /* the second has experts */
        folder = folders[i];
        failed += small ? cmocka_run_group_tests(some, open_model, close_model)
                        : cmocka_run_group_tests(tests, open_model, close_model);
        failed += argc > 1 ? 0 : cmocka_run_group_tests(on_processors, open_model, close_model);
    }
    return failed;
}

/* mpirun -n N peers_mpi T [DEVICE]: ranks that hold a model together, through MPI. What each of
 * them computes is compared with the model in one process, and with what transformers computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "outputs/job/ranks.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

enum { NEW = 6, LARGE = (1 << 22) + 5 };
static struct dpe_ranks ranks = {.limit = 1800.0};
static int n_checked;
static const char *device = "cpu";

static dpe_status meet(void *user, float *x, int64_t n, dpe_status status, struct dpe_error *err)
{
    return dpe_ranks_sum(user, x, n, status, err);
}

static dpe_status share(void *user, void *bytes, size_t n, struct dpe_error *err)
{
    return dpe_ranks_broadcast(user, bytes, n, err);
}

static int own(void)
{
    return ranks.rank - ranks.leader;
}

static void draw(int index, int64_t n, float *x)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 7, (uint64_t)index);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(dpe_rng_unit(&rng) - 0.5);
    }
}

static void sums_are_in_the_order_of_ranks(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 3, 1000, 65537, LARGE};
    float *x = malloc(LARGE * sizeof *x);
    float *want = malloc(LARGE * sizeof *want);
    float *other = malloc(LARGE * sizeof *other);
    assert_true(x != NULL && want != NULL && other != NULL);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s];
        draw(0, n, want);
        for (int i = 1; i < ranks.peers; i++) {
            draw(i, n, other);
            for (int64_t k = 0; k < n; k++) {
                want[k] += other[k];
            }
        }
        draw(own(), n, x);
        struct dpe_error err = {0};
        TINY_OK(dpe_ranks_sum(&ranks, x, n, DPE_OK, &err), err);
        assert_memory_equal(x, want, (size_t)n * sizeof *x);
        assert_int_equal(ranks.failed, DPE_OK);
    }
    free(x);
    free(want);
    free(other);
}

/* Whoever brings it, and whatever the others wanted to sum. */
static void a_failure_is_everybodys(void **state)
{
    (void)state;
    float x[100] = {0};
    for (int failing = 0; failing < ranks.peers; failing++) {
        for (int late = 0; late < 2; late++) {
            struct dpe_error err = {0};
            dpe_status status = DPE_OK;
            int64_t n = 100;
            /* With `late`, all from `failing` on fail: the first of them counts. */
            if (own() == failing || (late && own() > failing)) {
                n = 0;
                status =
                    dpe_fail(&err, failing == own() ? DPE_INCOMPLETE : DPE_IO, "peer %d", own());
                err.layer = 3;
            }
            status = dpe_ranks_sum(&ranks, n == 0 ? NULL : x, n, status, &err);
            char want[24];
            snprintf(want, sizeof want, "peer %d", failing);
            assert_int_equal(status, DPE_INCOMPLETE);
            assert_string_equal(err.text, want);
            assert_int_equal(err.layer, 3);
            assert_int_equal(ranks.failed, DPE_INCOMPLETE);
            assert_int_equal(dpe_ranks_sync_status(&ranks, status, &err), DPE_INCOMPLETE);
        }
    }
    struct dpe_error err = {0};
    dpe_status status = own() == 0 ? dpe_fail(&err, DPE_NO_MEMORY, "none left") : DPE_OK;
    assert_int_equal(dpe_ranks_sum(&ranks, x, 100, DPE_OK, &err), DPE_OK);
    assert_int_equal(dpe_ranks_sync_status(&ranks, status, &err), DPE_NO_MEMORY);
    /* After a failure that all know and that ends nothing, as of a sample that is not finite. */
    err = (struct dpe_error){0};
    status = own() == 1 ? dpe_fail(&err, DPE_NONFINITE, "not finite") : DPE_OK;
    assert_int_equal(dpe_ranks_sum(&ranks, NULL, 0, status, &err), DPE_NONFINITE);
    status = own() == 0 ? dpe_fail(&err, DPE_NO_MEMORY, "none left") : DPE_OK;
    assert_int_equal(dpe_ranks_sync_status(&ranks, status, &err), DPE_NO_MEMORY);
    assert_string_equal(err.text, "none left");
    assert_string_equal(err.text, "none left");
}

static void who_sums_something_else_is_lost(void **state)
{
    (void)state;
    float x[100] = {0};
    struct dpe_error err = {0};
    dpe_status status = dpe_ranks_sum(&ranks, x, own() == 0 ? 100 : 99, DPE_OK, &err);
    assert_int_equal(status, DPE_INTERNAL);
    assert_non_null(strstr(err.text, "no longer at the same sum"));
    char word[8] = "other";
    if (own() == 0) {
        memcpy(word, "shared", 7);
    }
    TINY_OK(dpe_ranks_broadcast(&ranks, word, sizeof word, &err), err);
    assert_string_equal(word, "shared");
}

/* Every position's logits by prefills in pieces or token by token, and some greedy tokens. */
static void run(struct dpe_session *session, const struct tiny *tiny, int64_t step, float *logits,
                struct dpe_tokens *generated)
{
    struct dpe_error err = {0};
    const struct dpe_generate_options options = {.max_new = NEW, .ignore_eos = true};
    for (int64_t i = 0; i < tiny->n; i++) {
        int64_t from = step == 1 ? i : 0;
        TINY_OK(dpe_session_cut(session, from, &err), err);
        for (int64_t at = from; at <= i; at += step) {
            int64_t n = i + 1 - at < step ? i + 1 - at : step;
            TINY_OK(dpe_session_feed(session, tiny->tokens + at, n,
                                     at + n == i + 1 ? logits + i * tiny->config->vocab : NULL,
                                     &err),
                    err);
        }
    }
    TINY_OK(dpe_session_cut(session, 0, &err), err);
    TINY_OK(dpe_session_generate(session, tiny->tokens, tiny->n - NEW, &options, generated, &err),
            err);
}

static void check_folder(const char *folder, int64_t chunk, int64_t step)
{
    const struct dpe_peers peers = {
        .index = own(), .size = ranks.peers, .user = &ranks, .meet = meet, .share = share};
    struct tiny tiny = tiny_open(folder);
    if (tiny.config->n_kv_heads % ranks.peers != 0) {
        tiny_close(&tiny);
        return;
    }
    n_checked++;
    tiny.n = strcmp(device, "cpu") == 0 ? tiny.n : NEW + 2; /* emulated perhaps, and slow */
    size_t count = (size_t)(tiny.n * tiny.config->vocab);
    struct dpe_session_options options = {
        .device = device, .n_threads = 1, .capacity = tiny.n, .prefill_chunk = chunk};
    float *got = calloc(count, sizeof *got);
    float *whole = calloc(count, sizeof *whole);
    float *first = calloc(count, sizeof *first);
    double *want = calloc(count, sizeof *want);
    assert_true(got != NULL && whole != NULL && first != NULL && want != NULL);
    struct dpe_tokens tokens[2] = {{0}, {0}};
    struct dpe_session *session = tiny_session(&tiny, "rope", &options);
    run(session, &tiny, step, whole, &tokens[0]);
    dpe_session_destroy(session);
    options.peers = &peers;
    session = tiny_session(&tiny, "rope", &options);
    run(session, &tiny, step, got, &tokens[1]);
    dpe_session_destroy(session);

    double least = INFINITY;
    double most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        want[i] = (double)whole[i];
        least = fmin(least, want[i]);
        most = fmax(most, want[i]);
    }
    if (ranks.rank == 0) {
        printf("%-12s pieces of %d, chunk %d: max |difference| / spread %.1e\n", folder, (int)step,
               (int)chunk, near_worst_f32(got, want, count).error / (most - least));
    }
    assert_int_equal(near_f32(folder, got, want, count, 1e-5 * (most - least)), 0);
    for (size_t i = 0; i < count; i++) {
        want[i] = (double)tiny.logits[i];
    }
    assert_int_equal(near_f32("transformers", got, want, count, 1e-4 * (most - least)), 0);
    assert_int_equal(tokens[0].n, NEW);
    assert_int_equal(tokens[1].n, NEW);
    assert_memory_equal(tokens[0].ids, tokens[1].ids, NEW * sizeof *tokens[0].ids);
    /* The same bits on every rank. */
    struct dpe_error err = {0};
    memcpy(first, got, count * sizeof *got);
    TINY_OK(dpe_ranks_broadcast(&ranks, first, count * sizeof *first, &err), err);
    assert_memory_equal(got, first, count * sizeof *got);
    dpe_tokens_free(&tokens[0]);
    dpe_tokens_free(&tokens[1]);
    free(got);
    free(whole);
    free(first);
    free(want);
    tiny_close(&tiny);
}

static void shared_models_give_the_logits_of_whole_ones(void **state)
{
    (void)state;
    static const char *const folders[] = {"llama",  "llama_bf16", "llama3", "qwen2",
                                          "linear", "longrope",   "yarn",   "sharded"};
    if (strcmp(device, "cpu") != 0) { /* a model in float: others are rounded to halves there */
        check_folder("llama", 64, 7);
        check_folder("llama", 64, 1);
        return;
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        check_folder(folders[i], 64, 64);
        check_folder(folders[i], 5, 64);
        check_folder(folders[i], 64, 7);
        check_folder(folders[i], 64, 1);
    }
    /* Two key-value heads have all of them, four has one. */
    assert_int_equal(n_checked, ranks.peers == 2 ? 4 * 8 : ranks.peers == 4 ? 4 : 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_in_the_order_of_ranks),
        cmocka_unit_test(a_failure_is_everybodys),
        cmocka_unit_test(who_sums_something_else_is_lost),
        cmocka_unit_test(shared_models_give_the_logits_of_whole_ones),
    };
    struct dpe_error err = {0};
    device = argc > 2 ? argv[2] : device;
    dpe_status status = dpe_ranks_start(&ranks, &err);
    if (status == DPE_OK) {
        status = dpe_ranks_group(&ranks, argc > 1 ? atoi(argv[1]) : 2, &err);
    }
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return (int)status;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* The others wait for a process that failed an assertion. */
    if (failed != 0) {
        dpe_ranks_abort(&ranks, 1);
    }
    dpe_ranks_stop(&ranks, DPE_OK);
    return 0;
}

/* The forward pass against the logits that transformers computes, for every golden tiny model and
 * every backend. With the names of folders as arguments: for these alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

static const char *const all_folders[] = {"llama",  "llama_bf16", "llama3",  "mistral", "qwen2",
                                          "linear", "longrope",   "dynamic", "yarn",    "sharded"};
static const char *const *folders = all_folders;
static int n_folders = sizeof all_folders / sizeof all_folders[0];

static size_t argmax_of(const float *row, int64_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < (size_t)n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

/* Every position's logits, by prefills of growing length or token by token. */
static void all_logits(struct dpe_session *session, const struct tiny *tiny, bool decode,
                       float *logits)
{
    struct dpe_error err = {0};
    for (int64_t i = 0; i < tiny->n; i++) {
        int64_t from = decode ? i : 0;
        TINY_OK(dpe_session_cut(session, from, &err), err);
        TINY_OK(dpe_session_feed(session, tiny->tokens + from, i + 1 - from,
                                 logits + i * tiny->config->vocab, &err),
                err);
    }
}

static void check_folder(const char *folder, const char *device)
{
    struct tiny tiny = tiny_open(folder);
    int64_t vocab = tiny.config->vocab;
    size_t count = (size_t)(tiny.n * vocab);
    double least = INFINITY;
    double most = -INFINITY;
    double *want = calloc(count, sizeof *want);
    float *got = calloc(count, sizeof *got);
    for (size_t i = 0; i < count; i++) {
        want[i] = (double)tiny.logits[i];
        least = fmin(least, want[i]);
        most = fmax(most, want[i]);
    }
    const struct dpe_session_options options = {
        .device = device, .n_threads = 1, .capacity = tiny.n, .prefill_chunk = 16};
    struct dpe_session *session = tiny_session(&tiny, "rope", &options);
    for (int decode = 0; decode < 2; decode++) {
        char what[128];
        snprintf(what, sizeof what, "%s on %s, %s", folder, device, decode ? "decode" : "prefill");
        all_logits(session, &tiny, decode != 0, got);
        double worst = near_worst_f32(got, want, count).error / (most - least);
        double oracle = near_worst_f32(got, tiny.oracle, count).error / (most - least);
        printf("%-32s max |difference| / spread: %.1e to float32, %.1e to float64\n", what, worst,
               oracle);
        assert_int_equal(near_f32(what, got, want, count, 1e-4 * (most - least)), 0);
        for (int64_t i = 0; i < tiny.n; i++) {
            assert_int_equal(argmax_of(got + i * vocab, vocab),
                             argmax_of(tiny.logits + i * vocab, vocab));
        }
    }
    dpe_session_destroy(session);
    free(want);
    free(got);
    tiny_close(&tiny);
}

static void reference_gives_the_logits_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < n_folders; i++) {
        check_folder(folders[i], "reference");
    }
}

/* The instruction sets give different bits, so each must pass; where the machine lacks one, the
 * next smaller runs in its place. */
static void cpu_gives_the_logits_of_transformers(void **state)
{
    (void)state;
    const char *const sets[] = {"portable", "avx2", "avx512"};
    for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++) {
        setenv("DPE_CPU", sets[set], 1);
        for (int i = 0; i < n_folders; i++) {
            check_folder(folders[i], "cpu");
        }
    }
    unsetenv("DPE_CPU");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        folders = (const char *const *)argv + 1;
        n_folders = argc - 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_gives_the_logits_of_transformers),
        cmocka_unit_test(cpu_gives_the_logits_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

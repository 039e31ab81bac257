/* bench_tokenizer TOKENIZER TEXT...: load time and MB/s of one core, best of a few. Measures the
 * processor time of the thread, so that a busy machine gives nearly the same figures as an idle
 * one. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(const struct dpe_error *err)
{
    fprintf(stderr, "%s\n", err->text);
    return dpe_exit_code(err->status);
}

static dpe_status bench_text(const struct dpe_tokenizer *tokenizer, const char *path,
                             struct dpe_error *err)
{
    struct dpe_encode_options options = {.special = DPE_SPECIAL_PARSE, .replace_invalid = true};
    struct dpe_tokens tokens = {0};
    char *text = NULL;
    size_t n = 0;
    double best = 1e30;
    dpe_status status = dpe_read_file(path, (uint64_t)1 << 32, &text, &n, err);
    for (int i = 0; i < 5 && status == DPE_OK; i++) {
        tokens.n = 0;
        double start = now();
        status = dpe_tokenizer_encode(tokenizer, text, n, &options, &tokens, err);
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    if (status == DPE_OK) {
        printf("%-40s %10zu bytes %9zu tokens %8.2f MB/s\n", path, n, tokens.n,
               (double)n / best * 1e-6);
    }
    dpe_tokens_free(&tokens);
    free(text);
    return status;
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct dpe_tokenizer *tokenizer = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER TEXT...\n");
        return DPE_USAGE;
    }
    double start = now();
    if (dpe_tokenizer_open(argv[1], &tokenizer, &err) != DPE_OK) {
        return fail(&err);
    }
    printf("%-40s loaded in %.3f s, %lld ids\n", argv[1], now() - start,
           (long long)dpe_tokenizer_size(tokenizer));
    for (int i = 2; i < argc; i++) {
        if (bench_text(tokenizer, argv[i], &err) != DPE_OK) {
            dpe_tokenizer_close(tokenizer);
            return fail(&err);
        }
    }
    dpe_tokenizer_close(tokenizer);
    return 0;
}

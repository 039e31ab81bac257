/* Real text for profiling: seeded, not overlapping, of an exact number of tokens. */
#include "norms/norms.h"

#include <stdlib.h>
#include <string.h>

/* A seeded order of n books. */
static void shuffle(size_t *order, size_t n, uint64_t seed)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (size_t i = n; i > 1; i--) {
        size_t other = dpe_rng_below(&rng, (uint32_t)i);
        size_t swap = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swap;
    }
}

/* Ids of the books in order, until there are `wanted`. */
static dpe_status gather(const struct dpe_corpus *corpus, const struct dpe_tokenizer *tokenizer,
                         enum dpe_special_policy special, uint64_t seed, size_t wanted,
                         struct dpe_tokens *tokens, struct dpe_error *err)
{
    size_t n_books = dpe_corpus_size(corpus);
    size_t *order = NULL;
    DPE_TRY(DPE_NEW(&order, n_books, err, "out of memory for %zu books", n_books));
    shuffle(order, n_books, seed);
    const struct dpe_encode_options options = {
        .special = special, .advice = "--special-in-text literal makes it ordinary text"};
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n_books && tokens->n < wanted && status == DPE_OK; i++) {
        const struct dpe_book *book = dpe_corpus_book(corpus, order[i]);
        status = dpe_tokenizer_encode(tokenizer, book->text, book->n, &options, tokens, err);
        if (status != DPE_OK) {
            dpe_fail_prefix(err, "%s: book %s", dpe_corpus_path(corpus), book->id);
        }
    }
    free(order);
    return status;
}

dpe_status dpe_excerpts_make(const struct dpe_corpus *corpus, const struct dpe_tokenizer *tokenizer,
                             int64_t length, int64_t n, uint64_t seed,
                             enum dpe_special_policy special, struct dpe_excerpts *excerpts,
                             struct dpe_error *err)
{
    *excerpts = (struct dpe_excerpts){.length = length, .n = n};
    struct dpe_tokens prefix = {0};
    struct dpe_tokens tokens = {0};
    const struct dpe_encode_options options = {.add_special = true};
    dpe_status status = dpe_tokenizer_encode(tokenizer, "", 0, &options, &prefix, err);
    if (status != DPE_OK) {
        goto done;
    }
    int64_t body = length - (int64_t)prefix.n;
    size_t wanted = 0;
    if (body < 1 || n < 1 || __builtin_mul_overflow(body, n, &wanted)) {
        status = dpe_fail(err, DPE_USAGE, "%lld excerpts of %lld tokens cannot be cut",
                          (long long)n, (long long)length);
        goto done;
    }
    status = gather(corpus, tokenizer, special, seed, wanted, &tokens, err);
    if (status == DPE_OK && tokens.n < wanted) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "the corpus is too short: %lld excerpts of %lld tokens need %zu, it has "
                          "%zu (%zu missing); give a longer corpus or fewer excerpts "
                          "(dpe-norms --samples, dpe-calibrate --norm-samples)",
                          (long long)n, (long long)length, wanted, tokens.n, wanted - tokens.n);
    }
    if (status != DPE_OK) {
        goto done;
    }
    excerpts->ids = dpe_alloc((size_t)n, (size_t)length * sizeof *excerpts->ids);
    if (excerpts->ids == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for %lld excerpts", (long long)n);
        goto done;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t *to = excerpts->ids + i * length;
        if (prefix.n > 0) {
            memcpy(to, prefix.ids, prefix.n * sizeof *to);
        }
        memcpy(to + prefix.n, tokens.ids + i * body, (size_t)body * sizeof *to);
    }
done:
    dpe_tokens_free(&prefix);
    dpe_tokens_free(&tokens);
    return status;
}

void dpe_excerpts_free(struct dpe_excerpts *excerpts)
{
    free(excerpts->ids);
    *excerpts = (struct dpe_excerpts){0};
}

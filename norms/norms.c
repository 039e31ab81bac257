/* Streaming 2-norm profile of queries and keys, and what is cut from it. */
#include "norms/norms.h"
#include "engine/session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const dpe_contribution_names[] = {"product-of-means", "mean-of-products", NULL};

dpe_status dpe_norms_create(const struct dpe_config *config, enum dpe_contribution kind,
                            struct dpe_norms *norms, struct dpe_error *err)
{
    static const char no_memory[] = "out of memory for the norm profile";
    *norms = (struct dpe_norms){.config = config, .sums.products = kind == DPE_MEAN_OF_PRODUCTS};
    const int64_t queries = dpe_norms_size(norms);
    const int64_t keys = norms->sums.products ? 0 : queries / config->n_heads * config->n_kv_heads;
    norms->n = (size_t)(queries + keys);
    DPE_TRY(DPE_NEW(&norms->sums.q, norms->n, err, no_memory));
    norms->sums.k = keys > 0 ? norms->sums.q + queries : NULL;
    return DPE_NEW(&norms->sums.rows, (size_t)config->n_layers, err, no_memory);
}

void dpe_norms_destroy(struct dpe_norms *norms)
{
    free(norms->sums.q);
    free(norms->sums.rows);
}

int64_t dpe_norms_size(const struct dpe_norms *norms)
{
    return norms->config->n_layers * norms->config->n_heads * (norms->config->head_dim / 2);
}

void dpe_norms_reset(struct dpe_norms *norms)
{
    memset(norms->sums.q, 0, norms->n * sizeof *norms->sums.q);
    memset(norms->sums.rows, 0, (size_t)norms->config->n_layers * sizeof *norms->sums.rows);
}

dpe_status dpe_norms_finish(const struct dpe_norms *norms, double *scores, struct dpe_error *err)
{
    const struct dpe_config *config = norms->config;
    const int64_t group = config->n_heads / config->n_kv_heads, pairs = config->head_dim / 2;
    const int64_t rotating = dpe_config_pairs(config); /* the others have no part in positions */
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        if (norms->sums.rows[layer] == 0) {
            return dpe_fail(err, DPE_INTERNAL, "layer %lld received no token", (long long)layer);
        }
        double n = (double)norms->sums.rows[layer];
        for (int64_t head = 0; head < config->n_heads; head++) {
            int64_t at = (layer * config->n_heads + head) * pairs;
            int64_t of = (layer * config->n_kv_heads + head / group) * pairs;
            for (int64_t j = 0; j < pairs; j++) {
                double mean_q = norms->sums.q[at + j] / n;
                double score = norms->sums.products ? mean_q : mean_q * (norms->sums.k[of + j] / n);
                if (!isfinite(score)) {
                    dpe_fail(err, DPE_NONFINITE, "layer %lld, head %lld: a norm is not finite",
                             (long long)layer, (long long)head);
                    if (err != NULL) {
                        err->layer = (int)layer;
                    }
                    return DPE_NONFINITE;
                }
                scores[at + j] = j < rotating ? score : 0.0;
            }
        }
    }
    return DPE_OK;
}

void dpe_norms_mean(const double *const *tables, size_t n, int64_t size, double *mean, double *sem)
{
    for (int64_t i = 0; i < size; i++) {
        double sum = 0.0;
        size_t valid = 0;
        for (size_t t = 0; t < n; t++) {
            if (tables[t] != NULL) {
                sum += tables[t][i];
                valid++;
            }
        }
        mean[i] = valid > 0 ? sum / (double)valid : (double)NAN;
        double squares = 0.0;
        for (size_t t = 0; t < n; t++) {
            if (tables[t] != NULL) {
                squares += (tables[t][i] - mean[i]) * (tables[t][i] - mean[i]);
            }
        }
        sem[i] = valid > 1 ? sqrt(squares / (double)(valid - 1) / (double)valid) : (double)NAN;
    }
}

struct ranked {
    double score;
    uint16_t pair;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return (x->pair > y->pair) - (x->pair < y->pair);
}

void dpe_norms_rank(const double *mean, int64_t n_rows, int64_t n_pairs, uint16_t *ranking)
{
    struct ranked order[DPE_MOST_PAIRS];
    for (int64_t row = 0; row < n_rows; row++) {
        for (int64_t j = 0; j < n_pairs; j++) {
            order[j] = (struct ranked){mean[row * n_pairs + j], (uint16_t)j};
        }
        qsort(order, (size_t)n_pairs, sizeof order[0], by_score);
        for (int64_t j = 0; j < n_pairs; j++) {
            ranking[row * n_pairs + j] = order[j].pair;
        }
    }
}

double dpe_norms_entropy(const double *scores, int64_t n_pairs)
{
    double total = 0.0;
    for (int64_t j = 0; j < n_pairs; j++) {
        total += scores[j];
    }
    double entropy = 0.0;
    for (int64_t j = 0; j < n_pairs && total > 0.0; j++) {
        double share = scores[j] / total;
        entropy -= share > 0.0 ? share * log2(share) : 0.0;
    }
    return entropy;
}

double dpe_norms_share(const double *scores, const uint16_t *ranking, int64_t n_pairs, int64_t k)
{
    double total = 0.0;
    double held = 0.0;
    for (int64_t i = 0; i < n_pairs; i++) {
        total += scores[ranking[i]];
        held += i < k ? scores[ranking[i]] : 0.0;
    }
    return total > 0.0 ? held / total : (double)NAN;
}

/* ------------------------------------------------------------------------------------- excerpts */

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
    size_t n_books = corpus->n;
    DPE_OWNED size_t *order = NULL;
    DPE_TRY(DPE_NEW(&order, n_books, err, "out of memory for %zu books", n_books));
    shuffle(order, n_books, seed);
    const struct dpe_encode_options options = {
        .special = special, .advice = "--special-in-text literal makes it ordinary text"};
    for (size_t i = 0; i < n_books && tokens->n < wanted; i++) {
        const struct dpe_book *book = &corpus->books[order[i]];
        dpe_status status =
            dpe_tokenizer_encode(tokenizer, book->text, book->n, &options, tokens, err);
        if (status != DPE_OK) {
            dpe_fail_prefix(err, "%s: book %s", corpus->path, book->id);
            return status;
        }
    }
    return DPE_OK;
}

dpe_status dpe_excerpts_make(const struct dpe_corpus *corpus, const struct dpe_tokenizer *tokenizer,
                             int64_t length, int64_t n, uint64_t seed,
                             enum dpe_special_policy special, struct dpe_excerpts *excerpts,
                             struct dpe_error *err)
{
    *excerpts = (struct dpe_excerpts){.length = length, .n = n};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens prefix = {0};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    const struct dpe_encode_options options = {.add_special = true};
    DPE_TRY(dpe_tokenizer_encode(tokenizer, "", 0, &options, &prefix, err));
    int64_t body = length - (int64_t)prefix.n;
    size_t wanted = 0;
    if (body < 1 || n < 1 || __builtin_mul_overflow(body, n, &wanted)) {
        return dpe_fail(err, DPE_USAGE, "%lld excerpts of %lld tokens cannot be cut", (long long)n,
                        (long long)length);
    }
    DPE_TRY(gather(corpus, tokenizer, special, seed, wanted, &tokens, err));
    if (tokens.n < wanted) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "the corpus is too short: %lld excerpts of %lld tokens need %zu, it has "
                        "%zu (%zu missing); give a longer corpus or fewer excerpts "
                        "(dpe-norms --samples)",
                        (long long)n, (long long)length, wanted, tokens.n, wanted - tokens.n);
    }
    DPE_TRY(DPE_NEW(&excerpts->ids, wanted + (size_t)n * prefix.n, err,
                    "out of memory for %lld excerpts", (long long)n));
    for (int64_t i = 0; i < n; i++) {
        int32_t *to = excerpts->ids + i * length;
        if (prefix.n > 0) {
            memcpy(to, prefix.ids, prefix.n * sizeof *to);
        }
        memcpy(to + prefix.n, tokens.ids + i * body, (size_t)body * sizeof *to);
    }
    return DPE_OK;
}

void dpe_excerpts_free(struct dpe_excerpts *excerpts)
{
    free(excerpts->ids);
    *excerpts = (struct dpe_excerpts){0};
}

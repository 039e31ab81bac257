/* Two sessions read a text in turn, and what follows from it. */
#include "eval/compare/kld.h"
#include "engine/session/session.h"
#include "eval/task/stats.h"

#include <math.h>
#include <string.h>

/* With p = e^(a − most) / sum and q alike, KL(p‖q) = Σ p (a − b) − ln Σ e^a + ln Σ e^b: an
 * exponential of each is enough. */
struct dpe_kld_token dpe_kld_compare(const float *base, const float *other, int64_t vocab,
                                     int32_t token)
{
    if (dpe_first_nonfinite(base, vocab) >= 0 || dpe_first_nonfinite(other, vocab) >= 0) {
        const double none = (double)NAN;
        return (struct dpe_kld_token){none, none, none, none, none};
    }
    const int32_t best[] = {dpe_likeliest(base, vocab), dpe_likeliest(other, vocab)};
    const double base_most = (double)base[best[0]], most = (double)other[best[1]];
    double ahead = 0.0;
    double base_sum = dpe_power_sums(base, other, vocab, base_most, &ahead);
    ahead /= base_sum;
    base_sum = base_most + log(base_sum);
    const double sum = most + log(dpe_power_sums(other, NULL, vocab, most, NULL));
    const double kl = ahead - base_sum + sum;
    const double base_nll = base_sum - (double)base[token];
    const double nll = sum - (double)other[token];
    return (struct dpe_kld_token){.kl = kl > 0.0 ? kl : 0.0, /* rounding */
                                  .change = exp(-nll) - exp(-base_nll),
                                  .base_nll = base_nll,
                                  .nll = nll,
                                  .same = best[0] == best[1]};
}

/* -------------------------------------------------------------------------------------- reading */

struct piece {
    int64_t vocab;
    float *base;   /* [piece][vocab]; NULL: the other's */
    double *known; /* [piece] −ln p of the next token where a file has it, else NaN */
    const int32_t *next;
    struct dpe_kld_token *tokens;
};

static void keep(void *user, int64_t first, int64_t n, const float *logits)
{
    const struct piece *piece = user;
    memcpy(piece->base + first * piece->vocab, logits, (size_t)(n * piece->vocab) * sizeof *logits);
}

static void compare(void *user, int64_t first, int64_t n, const float *logits)
{
    const struct piece *piece = user;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float *other = logits + i * piece->vocab;
        const float *base = piece->base != NULL ? piece->base + (first + i) * piece->vocab : other;
        struct dpe_kld_token token =
            dpe_kld_compare(base, other, piece->vocab, piece->next[first + i]);
        if (!isnan(piece->known[first + i])) {
            token.base_nll = piece->known[first + i];
            token.change = exp(-token.nll) - exp(-token.base_nll);
        }
        piece->tokens[first + i] = token;
    }
}

static dpe_status check_finite(const struct dpe_kld_token *tokens, int64_t n, int64_t position,
                               struct dpe_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(tokens[i].kl)) {
            dpe_status status =
                dpe_fail(err, DPE_NONFINITE, "NaN or infinity in the logits at position %lld",
                         (long long)(position + i));
            if (err != NULL) {
                err->layer = -1;
                err->position = position + i;
            }
            return status;
        }
    }
    return DPE_OK;
}

/* The base's logits of rows tokens from `at` on into piece->base; `there`: the file has them. */
static dpe_status read_base(const struct dpe_kld_base *base, bool there, const int32_t *ids,
                            int64_t at, int64_t rows, struct piece *piece, struct dpe_error *err)
{
    for (int64_t i = 0; i < rows; i++) {
        piece->known[i] = (double)NAN;
    }
    if (piece->base == NULL) {
        return DPE_OK;
    }
    if (there) {
        return dpe_kld_saved_get(base->saved, base->text, at, rows, piece->base, piece->known, err);
    }
    dpe_status status = dpe_session_branch_rows(base->session, 0, ids + at, rows, keep, piece, err);
    return status != DPE_OK || base->saved == NULL
               ? status
               : dpe_kld_saved_put(base->saved, base->text, at, rows, piece->next, piece->base,
                                   piece->known, err);
}

/* `step` tokens at a time. */
static dpe_status read_pieces(const struct dpe_kld_base *base, struct dpe_session *other,
                              const int32_t *ids, int64_t n, int64_t step, struct piece *piece,
                              struct dpe_kld_token *tokens, struct dpe_error *err)
{
    bool there = false;
    if (base->saved != NULL) {
        DPE_TRY(dpe_kld_saved_has(base->saved, base->text, ids, &there, err));
    }
    if (!there) {
        DPE_TRY(dpe_session_cut(base->session, 0, err));
    }
    DPE_TRY(dpe_session_cut(other, 0, err));
    for (int64_t at = 0; at < n - 1; at += step) {
        const int64_t rows = dpe_least(step, n - 1 - at);
        piece->next = ids + at + 1;
        piece->tokens = tokens + at;
        DPE_TRY(read_base(base, there, ids, at, rows, piece, err));
        DPE_TRY(dpe_session_branch_rows(other, 0, ids + at, rows, compare, piece, err));
        DPE_TRY(check_finite(tokens + at, rows, at, err));
    }
    return base->saved != NULL && !there ? dpe_kld_saved_end(base->saved, base->text, ids, err)
                                         : DPE_OK;
}

dpe_status dpe_kld_read(const struct dpe_kld_base *base, struct dpe_session *other, int64_t vocab,
                        const int32_t *ids, int64_t n, struct dpe_kld_token *tokens,
                        struct dpe_error *err)
{
    enum { LEAST = 16 };
    const int64_t most = DPE_KLD_BYTES / (vocab * (int64_t)sizeof(float));
    const int64_t step = dpe_least(dpe_most(most, LEAST), n - 1);
    const bool once = base->session == other;
    DPE_OWNED float *logits = NULL;
    DPE_OWNED double *known = dpe_alloc((size_t)step, sizeof *known);
    DPE_TRY(DPE_MADE(known, err, "out of memory for %lld tokens", (long long)step));
    if (!once) {
        logits = dpe_alloc((size_t)step, (size_t)vocab * sizeof *logits);
        DPE_TRY(
            DPE_MADE(logits, err, "out of memory for the logits of %lld tokens", (long long)step));
    }
    struct piece piece = {.vocab = vocab, .base = logits, .known = known};
    return read_pieces(base, other, ids, n, step, &piece, tokens, err);
}

/* ------------------------------------------------------------------------- numbers over tokens */

static const double level = 0.95;

int64_t dpe_kld_buckets(int64_t n)
{
    int64_t buckets = 0;
    for (int64_t first = 1; first <= n; first *= 2) {
        buckets++;
    }
    return buckets;
}

/* Sums over the tokens of the cell; `kl` gets all divergences, the others the means of each text.
 */
static void add_tokens(const struct dpe_kld_token *const *texts, int64_t n_texts, int64_t first,
                       int64_t end, double *kl, double *text_kl, double *text_ratio,
                       struct dpe_kld_cell *cell)
{
    double squares = 0.0;
    double change = 0.0;
    double same = 0.0;
    for (int64_t s = 0; s < n_texts; s++) {
        text_kl[s] = text_ratio[s] = texts[s] != NULL ? 0.0 : (double)NAN;
        for (int64_t i = first; i < end && texts[s] != NULL; i++) {
            const struct dpe_kld_token *token = &texts[s][i - 1];
            kl[cell->n++] = token->kl;
            text_kl[s] += token->kl / (double)(end - first);
            text_ratio[s] += (token->nll - token->base_nll) / (double)(end - first);
            change += token->change;
            squares += token->change * token->change;
            same += token->same;
        }
    }
    const double n = (double)cell->n;
    cell->same_top = same / n;
    cell->change_mean = change / n;
    cell->change_rms = sqrt(squares / n);
}

dpe_status dpe_kld_summarize(const struct dpe_kld_token *const *texts, int64_t n_texts, int64_t n,
                             int64_t first, int64_t end, struct dpe_kld_cell *cell,
                             struct dpe_error *err)
{
    const struct dpe_resampling how = {.together = 1, .level = level};
    end = dpe_least(end, n + 1);
    DPE_OWNED double *kl = dpe_alloc((size_t)n_texts, (size_t)(end - first) * sizeof *kl);
    DPE_OWNED double *means = dpe_alloc(2, (size_t)n_texts * sizeof *means);
    *cell = (struct dpe_kld_cell){0};
    DPE_TRY(DPE_MADE(kl, err, "out of memory for the divergences of %lld tokens",
                     (long long)(n_texts * (end - first))));
    DPE_TRY(DPE_MADE(means, err, "out of memory for the means of %lld texts", (long long)n_texts));
    add_tokens(texts, n_texts, first, end, kl, means, means + n_texts, cell);
    dpe_sort(kl, (size_t)cell->n);
    const double shares[] = {0.5, 0.9, 0.99, 0.999, 1.0};
    double *const quantiles[] = {&cell->median, &cell->p90, &cell->p99, &cell->p999, &cell->most};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        *quantiles[i] = cell->n > 0 ? dpe_quantile(kl, (size_t)cell->n, shares[i]) : (double)NAN;
    }
    cell->mean = dpe_bootstrap_mean(means, (size_t)n_texts, &how);
    cell->mean.low = cell->mean.low < 0.0 ? 0.0 : cell->mean.low; /* none is negative */
    struct dpe_interval ratio = dpe_bootstrap_mean(means + n_texts, (size_t)n_texts, &how);
    cell->ratio = (struct dpe_interval){
        .mean = exp(ratio.mean), .low = exp(ratio.low), .high = exp(ratio.high), .n = ratio.n};
    return DPE_OK;
}

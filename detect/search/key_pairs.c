/* How many key pairs of a head move. */
#include "detect/search/key_pairs.h"

#include <math.h>

static const double same_mean = 1e-12;
/* One-sided 95 %. */
static const double level = 0.90;

int dpe_detect_top_k_candidates(int64_t n_pairs, int64_t k[DPE_DETECT_CANDIDATES])
{
    int n = 0;
    for (int eighths = 4; eighths <= 8 && n_pairs > 0; eighths++) {
        /* As dpe-export rounds a share. */
        int64_t candidate = (n_pairs * eighths + 4) / 8;
        if (n == 0 || candidate > k[n - 1]) {
            k[n++] = candidate;
        }
    }
    return n;
}

/* Rungs with at least half as many valid samples as the fullest, into compared [n]. False when no
 * sample of any is valid. */
static bool find_compared(const double *values, int n, int64_t n_samples,
                          struct dpe_detect_top_k *out)
{
    int64_t fullest = 0;
    for (int i = 0; i < n; i++) {
        out->candidates[i].n_valid = 0;
        for (int64_t s = 0; s < n_samples; s++) {
            out->candidates[i].n_valid += !isnan(values[i * n_samples + s]);
        }
        fullest = out->candidates[i].n_valid > fullest ? out->candidates[i].n_valid : fullest;
    }
    for (int i = 0; i < n; i++) {
        out->candidates[i].compared = fullest > 0 && 2 * out->candidates[i].n_valid >= fullest;
    }
    return fullest > 0;
}

static bool is_common(const double *values, int64_t n_samples, int64_t s,
                      const struct dpe_detect_top_k *out)
{
    for (int i = 0; i < out->n; i++) {
        if (out->candidates[i].compared && isnan(values[i * n_samples + s])) {
            return false;
        }
    }
    return true;
}

/* Means over the samples of each context that are valid under every compared candidate, contexts
 * without any left out: [n][n_samples] of which the first out->n_contexts of a row are filled,
 * those of other candidates with anything. Owned by the caller; NULL: no memory. */
static double *take_contexts(const double *values, int64_t n_samples, int64_t together,
                             struct dpe_detect_top_k *out)
{
    double *means = dpe_alloc_zero((size_t)out->n * (size_t)n_samples, sizeof *means);
    int64_t here = 0; /* samples of this context so far */
    for (int64_t s = 0; s < n_samples && means != NULL; s++) {
        bool common = is_common(values, n_samples, s, out);
        bool ends = (s + 1) % together == 0 || s + 1 == n_samples;
        here += common;
        for (int i = 0; i < out->n && here > 0; i++) {
            double *mean = &means[i * n_samples + out->n_contexts];
            *mean += common ? values[i * n_samples + s] : 0.0;
            *mean /= ends ? (double)here : 1.0;
        }
        if (ends) {
            out->n_contexts += here > 0;
            here = 0;
        }
    }
    return means;
}

static void take_means(const double *contexts, int64_t stride, struct dpe_detect_top_k *out)
{
    for (int i = 0; i < out->n; i++) {
        double sum = 0.0;
        for (int64_t c = 0; c < out->n_contexts; c++) {
            sum += contexts[i * stride + c];
        }
        out->candidates[i].mean =
            out->candidates[i].compared ? sum / (double)out->n_contexts : (double)NAN;
    }
}

/* Loss of candidate i against the one it is held against, and what it is at most. Of recall two
 * more contexts count, one without a difference and one with the largest there can be, half of it
 * in either direction: contexts that all agree would otherwise be taken for certainty, however few
 * (Agresti and Min's interval of paired proportions). */
static void bound_loss(const double *contexts, int64_t stride, bool recall, int i,
                       struct dpe_detect_top_k *out)
{
    struct dpe_detect_candidate *candidate = &out->candidates[i];
    double sum = 0.0;
    double squares = recall ? 1.0 : 0.0;
    double n = (double)out->n_contexts + (recall ? 2.0 : 0.0);
    for (int64_t c = 0; c < out->n_contexts; c++) {
        double loss = contexts[out->against * stride + c] - contexts[i * stride + c];
        loss = recall ? loss : -loss;
        sum += loss;
        squares += loss * loss;
    }
    candidate->loss = sum / (double)out->n_contexts;
    if (n >= 2.0) {
        double mean = sum / n;
        double variance = fmax(squares / n - mean * mean, 0.0) / (n - 1.0);
        candidate->at_most = mean + dpe_student_quantile(level, (int64_t)n - 1) * sqrt(variance);
        candidate->at_most = recall ? fmin(candidate->at_most, 1.0) : candidate->at_most;
    }
}

/* Of recall the margin is a share of what is found. */
static double margin_of(const struct dpe_detect_top_k *out, bool recall)
{
    return recall ? (1.0 - DPE_DETECT_KEPT) * out->candidates[out->against].mean : DPE_DETECT_NATS;
}

/* From the largest number downwards, as far as samples carry. */
static void descend(const double *contexts, int64_t stride, bool recall,
                    struct dpe_detect_top_k *out)
{
    double sign = recall ? 1.0 : -1.0;
    for (int i = out->against - 1; i >= 0 && out->candidates[i].compared; i--) {
        bound_loss(contexts, stride, recall, i, out);
        if (!(out->candidates[i].at_most <= margin_of(out, recall))) {
            break;
        }
        out->chosen = i;
        if (sign * out->candidates[i].mean >
            sign * out->candidates[out->against].mean + same_mean) {
            out->against = i;
        }
    }
    out->margin = margin_of(out, recall);
    for (int i = 0; i < out->n; i++) {
        out->candidates[i].loss = out->candidates[i].at_most = NAN;
        if (out->candidates[i].compared && i != out->against) {
            bound_loss(contexts, stride, recall, i, out);
        }
    }
}

dpe_status dpe_detect_choose_top_k(const int64_t *k, const double *values, int n, int64_t n_samples,
                                   int64_t together, enum dpe_detect_criterion criterion,
                                   struct dpe_detect_top_k *out, struct dpe_error *err)
{
    *out = (struct dpe_detect_top_k){.n = n, .criterion = criterion, .against = -1, .chosen = -1};
    if (n < 1 || n > DPE_DETECT_CANDIDATES) {
        return dpe_fail(err, DPE_INTERNAL, "a choice among %d numbers of key pairs", n);
    }
    bool recall = criterion == DPE_DETECT_RECALL;
    for (int i = 0; i < n; i++) {
        out->candidates[i] = (struct dpe_detect_candidate){.k = k[i], .loss = NAN, .at_most = NAN};
        if (i > 0 && k[i] <= k[i - 1]) {
            return dpe_fail(err, DPE_INTERNAL, "numbers of key pairs are not ascending");
        }
    }
    DPE_OWNED double *contexts = NULL;
    if (find_compared(values, n, n_samples, out)) {
        contexts = take_contexts(values, n_samples, together, out);
        DPE_TRY(DPE_MADE(contexts, err, "out of memory for %lld samples", (long long)n_samples));
    }
    if (out->n_contexts == 0) {
        return dpe_fail(err, DPE_NONFINITE,
                        "no sample is valid under the numbers of key pairs that are compared");
    }
    take_means(contexts, n_samples, out);
    for (int i = 0; i < n; i++) {
        out->against = out->candidates[i].compared ? i : out->against;
    }
    out->chosen = out->against;
    descend(contexts, n_samples, recall, out);
    return DPE_OK;
}

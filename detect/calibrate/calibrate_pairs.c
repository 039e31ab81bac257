/* --top-k auto: the number of key pairs, from the table that dpe-eval made of each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

/* The table, as far as it is read: a step is a method of the suite's only task. */
struct ablation {
    struct dpe_ablate_result steps;
    struct dpe_suite_result suite;
};

static void ablation_free(struct ablation *ablation)
{
    dpe_datasets_free(&dpe_ablate_kind, &ablation->steps);
    dpe_datasets_free(&dpe_suite_kinds[0], &ablation->suite);
}

static dpe_status read_steps(struct dpe_h5 *table, const char *suite, struct ablation *ablation,
                             struct dpe_error *err)
{
    int64_t complete = 0;
    DPE_TRY(dpe_h5_get_attr_i64(table, "/", "complete", &complete, err));
    if (complete != 1) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "expected a finished table, found samples missing; run the same command "
                        "to finish it");
    }
    DPE_TRY(dpe_datasets_get(&dpe_ablate_kind, &ablation->steps, "/ablate", "axis k", table, err));
    DPE_TRY(dpe_datasets_get(&dpe_suite_kinds[0], &ablation->suite, suite, "score", table, err));
    return ablation->suite.score != NULL && ablation->suite.n[DPE_SUITE_TASK] == 1
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "expected scores of one task of an ablation");
}

/* The step that moves the k pairs that contribute most; NULL: there is none. */
static const double *scores_of(const struct ablation *ablation, int64_t k)
{
    for (int64_t i = 0; i < ablation->steps.n[0]; i++) {
        if (ablation->steps.k[i] == k && strcmp(ablation->steps.axis[i], "top-k") == 0) {
            return ablation->suite.score + i * ablation->suite.n[DPE_SUITE_SAMPLE];
        }
    }
    return NULL;
}

static dpe_status choose(struct batch *batch, const struct ablation *ablation,
                         struct dpe_error *err)
{
    int64_t k[DPE_DETECT_CANDIDATES];
    int n = dpe_detect_top_k_candidates(batch->n_pairs, k);
    int64_t n_samples = ablation->suite.n[DPE_SUITE_SAMPLE];
    DPE_OWNED double *values = NULL;
    DPE_TRY(DPE_NEW(&values, (size_t)(n * n_samples), err, "out of memory for %lld samples",
                    (long long)n_samples));
    for (int i = 0; i < n; i++) {
        const double *scores = scores_of(ablation, k[i]);
        if (scores == NULL) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "expected a step top-k %lld, found none; remove the file and run the "
                            "same command to measure it again",
                            (long long)k[i]);
        }
        memcpy(values + i * n_samples, scores, (size_t)n_samples * sizeof *values);
    }
    return dpe_detect_choose_top_k(k, values, n, n_samples, dpe_calibrate_together(batch),
                                   batch->needles ? DPE_DETECT_RECALL : DPE_DETECT_PERPLEXITY,
                                   &batch->entry->pairs, err);
}

dpe_status dpe_calibrate_choose_pairs(struct batch *batch, struct dpe_error *err)
{
    const char *path = dpe_calibrate_path(batch, batch->entry, "ablate.h5");
    DPE_SCOPED(ablation_free) struct ablation ablation = {0};
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *table = NULL;
    DPE_TRY(dpe_h5_open(path, &table, err));
    if (read_steps(table, batch->needles ? "/eval/niah" : "/eval/ppl", &ablation, err) != DPE_OK ||
        choose(batch, &ablation, err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s", path);
    }
    const struct dpe_detect_top_k *pairs = &batch->entry->pairs;
    snprintf(batch->entry->k, sizeof batch->entry->k, "%lld",
             (long long)pairs->candidates[pairs->chosen].k);
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- words */

static void print_candidate(const struct dpe_detect_top_k *pairs, int i)
{
    const struct dpe_detect_candidate *candidate = &pairs->candidates[i];
    bool recall = pairs->criterion == DPE_DETECT_RECALL;
    double scale = recall ? 100.0 : 1.0;
    int digits = recall ? 1 : 4;
    dpe_print("%c %5lld  ", i == pairs->chosen ? '*' : ' ', (long long)candidate->k);
    if (!candidate->compared) {
        dpe_print("%10s  too few samples without NaN or infinity\n", "n/a");
        return;
    }
    dpe_print("%10.*f", digits, scale * candidate->mean);
    if (i == pairs->against) {
        dpe_print("  %10s", "-");
    } else if (isnan(candidate->at_most)) {
        dpe_print("  %10.*f", digits, scale * candidate->loss);
    } else {
        dpe_print("  %10.*f  %10.*f", digits, scale * candidate->loss, digits,
                  scale * candidate->at_most);
    }
    dpe_print("\n");
}

static bool finds_nothing(const struct dpe_detect_top_k *pairs)
{
    bool nothing = pairs->criterion == DPE_DETECT_RECALL;
    for (int i = 0; i < pairs->n && nothing; i++) {
        nothing = !(pairs->candidates[i].mean > 0.0);
    }
    return nothing;
}

/* Why the chosen number and no smaller one. */
static void print_reason(const struct batch *batch)
{
    const struct dpe_detect_top_k *pairs = &batch->entry->pairs;
    long long chosen = (long long)pairs->candidates[pairs->chosen].k;
    long long against = (long long)pairs->candidates[pairs->against].k;
    bool recall = pairs->criterion == DPE_DETECT_RECALL;
    char kept[64];
    if (recall) {
        snprintf(kept, sizeof kept, "%g %% of what %lld find", 100.0 * DPE_DETECT_KEPT, against);
    } else {
        snprintf(kept, sizeof kept, "%g nats a token of what %lld have", DPE_DETECT_NATS, against);
    }
    dpe_print("%lld of %lld move: ", chosen, (long long)batch->n_pairs);
    if (finds_nothing(pairs)) {
        dpe_print("no number of pairs finds anything, so recall cannot choose one\n");
    } else if (pairs->chosen < pairs->against) {
        dpe_print("the fewest that are shown, with 95 %% confidence, to %s %s\n",
                  recall ? "find" : "stay within", kept);
    } else if (pairs->chosen == 0) {
        dpe_print("no smaller number was tried\n");
    } else {
        dpe_print("%lld pairs are not shown, with 95 %% confidence, to %s %s\n",
                  (long long)pairs->candidates[pairs->chosen - 1].k,
                  recall ? "find" : "stay within", kept);
    }
}

void dpe_calibrate_print_pairs(const struct batch *batch)
{
    const struct dpe_detect_top_k *pairs = &batch->entry->pairs;
    bool recall = pairs->criterion == DPE_DETECT_RECALL;
    int64_t together = dpe_calibrate_together(batch);
    dpe_print("\nKey pairs of each head (%sablate.h5), %s\n", batch->entry->folder,
              recall ? "measured on needles that neither the sweep nor the check uses"
                     : "measured on the corpus's books, some of which the sweep used");
    char of[64] = "";
    if (together > 1) {
        snprintf(of, sizeof of, " of %lld samples", (long long)together);
    }
    dpe_print("  %5s  %10s  %10s  %10s  (%lld %s%s%s, paired)\n", "pairs",
              recall ? "recall, %" : "nats/token", recall ? "less, by" : "more, by", "at most",
              (long long)pairs->n_contexts,
              !recall        ? "book"
              : together > 1 ? "context"
                             : "sample",
              pairs->n_contexts == 1 ? "" : "s", of);
    for (int i = 0; i < pairs->n; i++) {
        print_candidate(pairs, i);
    }
    print_reason(batch);
}

/* Which plan: one rule. */
#include "detect/search/search.h"

#include <math.h>

enum { ROUNDS = 999, SEED = 1 };
/* The standard error of a difference of recall, and of nats per token, of one question or text,
 * which shows none of its own: about what many have (tests/bench/NOTES.md). */
static const double of_one[] = {0.1, 0.005};

/* What a finds more than b, the mean of the tasks, and the standard error of that, which is half of
 * an interval of 68 %, over questions: what two plans differ by, those of one context do not share
 * (tests/bench/NOTES.md). */
static double gain_of(const struct dpe_detect_choice *choice, int a, int b, double *error)
{
    const bool recall = choice->criterion == DPE_DETECT_RECALL;
    double gain = 0.0;
    double variance = 0.0;
    int n = 0;
    for (int t = 0; t < 2; t++) {
        const struct dpe_detect_scores *scores = choice->tasks[t];
        if (scores == NULL) {
            continue;
        }
        const struct dpe_resampling how = {
            .together = 1, .rounds = ROUNDS, .seed = SEED, .level = 0.68};
        struct dpe_difference d;
        if (dpe_detect_difference(scores, choice->criterion, a, b, &how, &d) == 0) {
            continue;
        }
        gain += recall ? d.minus.mean : -d.minus.mean;
        const double one =
            isfinite(d.minus.low) ? 0.5 * (d.minus.high - d.minus.low) : of_one[recall ? 0 : 1];
        variance += one * one;
        n++;
    }
    *error = n > 0 ? sqrt(variance) / n : (double)INFINITY;
    return n > 0 ? gain / n : (double)NAN;
}

/* What a smaller budget answered comes before the formula: a larger one says otherwise where it has
 * a reason to. */
static int rank_of(const struct dpe_detect_choice *choice, int plan)
{
    return plan == choice->held ? 2 * DPE_DETECT_FORMULA - 1 : 2 * (int)choice->kinds[plan];
}

/* Whether a plan may be chosen: it is able and within the guard. Where some have read texts, one
 * that has read none is not. */
static bool may(const struct dpe_detect_choice *choice, int plan)
{
    double least = INFINITY;
    for (int i = 0; i < choice->n; i++) {
        least = fmin(least, choice->nll[i]); /* of a NaN the other */
    }
    return choice->able[plan] && (choice->guard <= 0.0 || isinf(least) ||
                                  choice->nll[plan] <= least + log1p(choice->guard));
}

int dpe_detect_choose(const struct dpe_detect_choice *choice)
{
    int best = -1;
    for (int i = 0; i < choice->n; i++) {
        double error = 0.0;
        if (may(choice, i) && (best < 0 || gain_of(choice, i, best, &error) > DPE_DETECT_TIE)) {
            best = i;
        }
    }
    int chosen = best;
    for (int i = 0; i < choice->n && best >= 0; i++) {
        double error = 0.0;
        if (may(choice, i) && rank_of(choice, i) < rank_of(choice, chosen) &&
            -gain_of(choice, i, best, &error) <= error) {
            chosen = i;
        }
    }
    return chosen;
}

/* What follows from methods that are ready: nothing is needed, one of them is enough, or more may
 * be gained. */
#include "detect/report/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Recall that a calibration is worth. */
static const double worth = 0.05;

int dpe_detect_ready_left(int plans, int64_t context, int64_t contexts)
{
    enum { FINALISTS = 2 };
    const int some = context == 0                   ? plans
                     : contexts > 2 && context == 1 ? (plans + 1) / 2
                                                    : FINALISTS;
    return some > FINALISTS ? some : plans < FINALISTS ? plans : FINALISTS;
}

/* By how much the best of those in `live` found more than the next. */
static double lead_of(const double *mean, int n, const unsigned char *live)
{
    double best = -INFINITY;
    double next = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (live[i] != 0) {
            next = fmax(next, fmin(best, mean[i]));
            best = fmax(best, mean[i]);
        }
    }
    return best - next;
}

void dpe_detect_ready_race(const struct dpe_detect_scores *scores, int64_t contexts, int searched,
                           unsigned char *live)
{
    const int64_t done = scores->n_samples / scores->together;
    double mean[DPE_DETECT_MOST_VALIDATED];
    int plans = 0;
    for (int i = 0; i < scores->n_cells; i++) {
        plans += live[i];
        mean[i] = live[i] != 0 ? dpe_detect_interval(scores, i, DPE_DETECT_RECALL).mean : 0.0;
        mean[i] = isfinite(mean[i]) ? mean[i] : -1.0;
    }
    if (contexts == 2 && searched < 0 &&
        lead_of(mean, scores->n_cells, live) >= DPE_DETECT_READY_CLEAR) {
        memset(live, 0, (size_t)scores->n_cells);
        return;
    }
    for (int left = dpe_detect_ready_left(plans, done, contexts); plans > left; plans--) {
        int worst = -1;
        for (int i = 0; i < scores->n_cells; i++) {
            worst =
                live[i] != 0 && i != searched && (worst < 0 || mean[i] <= mean[worst]) ? i : worst;
        }
        live[worst] = 0;
    }
}

bool dpe_detect_in_final(const struct dpe_detect_validation *v, int plan)
{
    static const double most_lost = 0.25; /* samples that are not valid */
    int64_t most = 0;
    for (int i = 0; i < v->n_plans; i++) {
        most = v->value[i].n > most ? v->value[i].n : most;
    }
    return most > 0 && (double)v->value[plan].n > (1.0 - most_lost) * (double)most;
}

/* Of the plans in the final with `may`, but not the joint plan, which is the base; -1: none. */
static int best_of(const struct dpe_detect_validation *v, const bool *may, int first)
{
    const bool recall = v->criterion == DPE_DETECT_RECALL;
    int best = -1;
    for (int i = first; i < v->n_plans; i++) {
        const double mean = v->value[i].mean;
        if (i != DPE_DETECT_JOINT && (may == NULL || may[i]) && dpe_detect_in_final(v, i) &&
            (best < 0 || (recall ? mean > v->value[best].mean : mean < v->value[best].mean))) {
            best = i;
        }
    }
    return best;
}

int dpe_detect_ready_kept(const struct dpe_detect_validation *v, const bool *tables)
{
    const int kept = best_of(v, tables, 0);
    return kept < 0 ? DPE_DETECT_JOINT : kept;
}

struct dpe_detect_advice dpe_detect_advise(const struct dpe_detect_validation *v,
                                           const struct dpe_interval *ceiling)
{
    const int best = best_of(v, NULL, DPE_DETECT_BASE);
    struct dpe_detect_advice advice = {.plan = best < 0 ? DPE_DETECT_BASE : best};
    const double possible = ceiling->n > 0 ? ceiling->mean : 1.0;
    const double found = v->value[advice.plan].mean;
    advice.gain = fmax(0.0, possible - found);
    advice.what = possible < DPE_DETECT_LOW_CEILING                    ? DPE_DETECT_ADVICE_TASK
                  : possible - v->value[DPE_DETECT_ROPE].mean <= worth ? DPE_DETECT_ADVICE_NOTHING
                  : possible - found <= worth                          ? DPE_DETECT_ADVICE_TAKE
                                              : DPE_DETECT_ADVICE_CALIBRATE;
    return advice;
}

static const char *name_of(const struct dpe_detect_report *report, int plan)
{
    return plan == DPE_DETECT_ROPE   ? "unchanged"
           : plan == DPE_DETECT_BASE ? "every group at L0/2"
                                     : report->names[plan];
}

/* One line a plan, the best first, those in the final before the others; the joint plan is the
 * base. */
static void put_plans(struct dpe_text *page, const struct dpe_detect_report *report,
                      const struct dpe_detect_validation *v, int width)
{
    bool told[DPE_DETECT_MOST_VALIDATED] = {[DPE_DETECT_JOINT] = true};
    for (int n = 0; n < v->n_plans - 1; n++) {
        int best = -1;
        char value[64];
        char few[48] = "";
        for (int i = 0; i < v->n_plans; i++) {
            const bool before = best < 0 ||
                                dpe_detect_in_final(v, i) > dpe_detect_in_final(v, best) ||
                                (dpe_detect_in_final(v, i) == dpe_detect_in_final(v, best) &&
                                 v->value[i].mean > v->value[best].mean);
            best = !told[i] && v->value[i].n > 0 && before ? i : best;
        }
        if (best < 0) {
            return;
        }
        told[best] = true;
        dpe_detect_interval_text(v->criterion, &v->value[best], true, value);
        if (!dpe_detect_in_final(v, best)) {
            snprintf(few, sizeof few, "  after %lld samples", (long long)v->value[best].n);
        }
        dpe_text_put(page, "  %-*s %s%s\n", width, name_of(report, best), value, few);
    }
}

/* What these samples show of the plan that the table holds, against the best other one in the
 * final. */
static void put_shown(struct dpe_text *page, const struct dpe_detect_report *report,
                      const struct dpe_detect_validation *v)
{
    int second = -1;
    for (int i = 0; i < v->n_plans; i++) {
        if (i != v->kept && i != DPE_DETECT_JOINT && dpe_detect_in_final(v, i) &&
            (second < 0 || v->value[i].mean > v->value[second].mean)) {
            second = i;
        }
    }
    if (second < 0 || !dpe_detect_in_final(v, v->kept)) {
        return;
    }
    char text[96];
    dpe_detect_difference_text(&v->kept_minus[second], text);
    const bool shown =
        dpe_detect_judge(&v->kept_minus[second], v->criterion) != DPE_DETECT_INDISTINCT;
    /* No table can hold some methods: then the two need not be the best. */
    dpe_text_put(page, "  %s, %s - %s: %s%s\n",
                 v->value[v->kept].mean >= v->value[second].mean ? "the best two"
                                                                 : "the table's and the best",
                 name_of(report, v->kept), name_of(report, second), text,
                 shown ? "" : ": not shown to differ by so few samples");
}

static void put_advice(struct dpe_text *page, const struct dpe_detect_report *report,
                       const struct dpe_detect_advice *advice)
{
    const char *name = name_of(report, advice->plan);
    switch (advice->what) {
    case DPE_DETECT_ADVICE_TASK:
        dpe_text_put(
            page, "Needles say little of this model: it finds less than a quarter of the easiest "
                  "ones in its own trained length.\ndpe-eval ppl compares perplexities.\n");
        return;
    case DPE_DETECT_ADVICE_NOTHING:
        dpe_text_put(page, "You need nothing: the model as it is finds what is possible.\n");
        return;
    case DPE_DETECT_ADVICE_TAKE:
        dpe_text_put(page, "Take %s: it finds what is possible.%s\n", name,
                     report->kept.plan == advice->plan
                         ? " The table holds it."
                         : "\nNo table can hold it: --method of dpe-run and dpe-serve is it.");
        return;
    case DPE_DETECT_ADVICE_CALIBRATE:
        break;
    }
    dpe_text_put(page, "Of these take %s%s.\nCalibrating may gain up to %.0f points more.\n", name,
                 report->kept.plan == advice->plan ? " (the table holds it)" : "",
                 100.0 * advice->gain);
}

void dpe_detect_ready_words(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    struct dpe_detect_advice advice = dpe_detect_advise(&result->validation, &result->ceiling);
    char words[512];
    if (report->texts.validated) {
        advice.plan = report->kept.plan; /* what the guard allows */
    }
    if (result->validated) {
        put_advice(out, report, &advice);
        put_shown(out, report, &result->validation);
        dpe_detect_guard_words(report, words, sizeof words);
        dpe_text_put(out, words[0] != '\0' ? "  Guard: %s.\n" : "", words);
    }
}

void dpe_detect_ready(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    char task[DPE_TASK_WORDS];
    int64_t most = 0;
    int width = 28;
    for (int i = 0; i < result->validation.n_plans; i++) {
        const int64_t n = result->validation.value[i].n;
        const int wide = (int)strlen(name_of(report, i));
        most = n > most ? n : most;
        width = n > 0 && wide > width ? wide : width;
    }
    dpe_text_put(out, "Recall in %lld tokens of %s, %lld samples\n",
                 (long long)report->grid->params.length,
                 dpe_identity_task_words(report->niah_spec, task), (long long)most);
    if (result->ceiling.n > 0) {
        char trained[64], value[64];
        snprintf(trained, sizeof trained, "possible (in %lld tokens)",
                 (long long)report->grid->params.trained_length);
        dpe_detect_interval_text(DPE_DETECT_RECALL, &result->ceiling, true, value);
        dpe_text_put(out, "  %-*s %s\n", width, trained, value);
    }
    put_plans(out, report, &result->validation, width);
    dpe_detect_ready_words(report, out);
}

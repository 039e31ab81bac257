/* What follows from methods that are ready: nothing is needed, one of them is enough, or more may be gained. */
#include "detect/report/render.h"
#include "detect/report/view.h"

#include <math.h>
#include <string.h>

/* Recall that a calibration is worth. */
static const double worth = 0.05;

/* The plan with the best mean of those that are methods, or the base; the joint plan is the base. */
static int best_method(const struct dpe_detect_validation *v)
{
    int best = DPE_DETECT_BASE;
    for (int i = DPE_DETECT_N_VALIDATED; i < v->n_plans; i++) {
        best = v->value[i].mean > v->value[best].mean ? i : best;
    }
    return best;
}

struct dpe_detect_advice dpe_detect_advise(const struct dpe_detect_validation *v,
                                           const struct dpe_interval *ceiling)
{
    struct dpe_detect_advice advice = {.plan = best_method(v)};
    const double possible = ceiling->n > 0 ? ceiling->mean : 1.0;
    const double found = v->value[advice.plan].mean;
    advice.gain = fmax(0.0, possible - found);
    advice.what = possible < DPE_DETECT_LOW_CEILING                               ? DPE_DETECT_ADVICE_TASK
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

/* One line a plan, the best first; the joint plan is the base. */
static void put_plans(struct dpe_detect_page *page, const struct dpe_detect_report *report,
                      const struct dpe_detect_validation *v)
{
    bool told[DPE_DETECT_MOST_VALIDATED] = {[DPE_DETECT_JOINT] = true};
    for (int n = 0; n < v->n_plans - 1; n++) {
        int best = -1;
        char value[64];
        for (int i = 0; i < v->n_plans; i++) {
            best = !told[i] && (best < 0 || v->value[i].mean > v->value[best].mean) ? i : best;
        }
        told[best] = true;
        dpe_detect_interval_text(v->criterion, v->value[best].mean, v->value[best].low,
                                 v->value[best].high, true, value, sizeof value);
        dpe_detect_put(page, "  %-28s %s\n", name_of(report, best), value);
    }
}

static void put_advice(struct dpe_detect_page *page, const struct dpe_detect_report *report,
                       const struct dpe_detect_advice *advice)
{
    const char *name = name_of(report, advice->plan);
    switch (advice->what) {
    case DPE_DETECT_ADVICE_TASK:
        dpe_detect_put(page, "Needles say little of this model: it finds less than half of the easiest ones "
                             "in its own trained length. dpe-eval ppl compares perplexities.\n");
        return;
    case DPE_DETECT_ADVICE_NOTHING:
        dpe_detect_put(page, "You need nothing: the model as it is finds what is possible.\n");
        return;
    case DPE_DETECT_ADVICE_TAKE:
        dpe_detect_put(page, "Take %s: it finds what is possible.%s\n", name,
                       report->kept.plan == advice->plan
                           ? " The table holds it."
                           : " No table can hold it: --method of dpe-run and dpe-serve is it.");
        return;
    case DPE_DETECT_ADVICE_CALIBRATE:
        break;
    }
    dpe_detect_put(page, "Of these take %s%s. Calibrating may gain up to %.0f points more.\n", name,
                   report->kept.plan == advice->plan ? " (the table holds it)" : "",
                   100.0 * advice->gain);
}

dpe_status dpe_detect_ready(const struct dpe_detect_report *report, struct dpe_text *out,
                            struct dpe_error *err)
{
    struct dpe_detect_page page = {out, DPE_OK, err};
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    const struct dpe_detect_advice advice =
        dpe_detect_advise(&result->validation, &result->ceiling);
    char task[DPE_TASK_WORDS];
    dpe_detect_put(&page, "Recall in %lld tokens of %s, %lld samples",
                   (long long)report->grid->params.length,
                   dpe_identity_task_words(report->niah_spec, task), (long long)result->n_validated);
    if (result->ceiling.n > 0) {
        dpe_detect_put(&page, "; %.2f are possible (unchanged, in %lld tokens)",
                       result->ceiling.mean, (long long)report->grid->params.trained_length);
    }
    dpe_detect_put(&page, "\n");
    put_plans(&page, report, &result->validation);
    put_advice(&page, report, &advice);
    return page.status;
}

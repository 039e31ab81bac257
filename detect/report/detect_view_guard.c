/* What the guard on perplexity did, and where in the texts plans predict how well. */
#include "detect/report/render.h"
#include "detect/report/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void dpe_detect_guard_words(const struct dpe_detect_report *report, char *text, size_t size)
{
    const struct dpe_detect_guard *guard = &report->guard;
    text[0] = '\0';
    if (!report->texts.validated || guard->best < 0) {
        return;
    }
    const struct dpe_detect_validation *needles = report->users.validated
                                                      ? &report->users.validation
                                                      : &dpe_detect_deciding(report)->validation;
    const double loss = 100.0 * guard->loss;
    const double share = 100.0 * report->guard_share;
    const char *kept = report->names[guard->kept];
    const char *best = report->names[guard->best];
    if (guard->traded && guard->found >= 0) {
        snprintf(text, size,
                 "%s trades perplexity for needles: it loses %.1f %% to %s (the guard allows %.3g "
                 "%%), and "
                 "finds %.1f points more%s than %s, which does not",
                 kept, loss, best, share,
                 100.0 * (needles->value[guard->kept].mean - needles->value[guard->found].mean),
                 report->users.validated ? " on your task" : "", report->names[guard->found]);
    } else if (guard->traded) {
        snprintf(text, size,
                 "%s loses %.1f %% of perplexity to %s (the guard allows %.3g %%); no plan that a "
                 "table can "
                 "hold loses less",
                 kept, loss, best, share);
    } else if (guard->kept != guard->chosen) {
        snprintf(text, size,
                 "%s takes the place of %s, which loses %.1f %% of perplexity to %s (the guard "
                 "allows %.3g "
                 "%%) and is not shown to find more",
                 kept, report->names[guard->chosen],
                 100.0 * (report->texts.validation.value[guard->chosen].mean /
                              report->texts.validation.value[guard->best].mean -
                          1.0),
                 best, share);
    } else if (guard->kept == guard->best || guard->loss <= 0.0) { /* also one of several */
        snprintf(text, size, "%s predicts texts best", kept);
    } else {
        snprintf(text, size, "%s loses %.1f %% of perplexity to %s (the guard allows %.3g %%)",
                 kept, loss, best, share);
    }
}

/* The first range of positions that is shown alone: those below are one. */
static int first_range(const struct dpe_detect_report *report)
{
    int b = 0;
    while (b < DPE_POSITIONS - 1 && ldexp(1.0, b) < (double)report->grid->params.trained_length) {
        b++;
    }
    return b;
}

static void put_value(struct dpe_text *page, double value)
{
    if (isfinite(value) && value < 1e6) {
        dpe_text_put(page, " %9.4g", value);
    } else {
        dpe_text_put(page, " %9s", isfinite(value) ? "> 1e6" : "-");
    }
}

static double value_at(const struct dpe_detect_report *report, int plan, int b)
{
    const int n = dpe_detect_positions(report);
    const double *at = report->texts.validate_at;
    return at != NULL && b < n ? at[plan * n + b] : (double)NAN;
}

void dpe_detect_guard_table(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_validation *v = &report->texts.validation;
    char words[1024];
    dpe_detect_guard_words(report, words, sizeof words);
    if (words[0] == '\0') {
        return;
    }
    const int first = first_range(report);
    int last = first;
    for (int b = first; b < DPE_POSITIONS; b++) {
        last = isfinite(value_at(report, report->guard.best, b)) ? b : last;
    }
    dpe_text_put(out, "\nPerplexity of %lld text%s, of all tokens and from a position on; * kept\n",
                 (long long)report->texts.n_validated, report->texts.n_validated == 1 ? "" : "s");
    dpe_text_put(out, "  %9s", "all");
    for (int b = first; b <= last; b++) {
        dpe_text_put(out, " %9.0f", ldexp(1.0, b));
    }
    dpe_text_put(out, "\n");
    for (int plan = 0; plan < v->n_plans; plan++) {
        dpe_text_put(out, "%c", plan == v->kept ? '*' : ' ');
        put_value(out, v->value[plan].mean);
        for (int b = first; b <= last; b++) {
            put_value(out, value_at(report, plan, b));
        }
        dpe_text_put(out, "  %s\n", report->names[plan]);
    }
    dpe_text_put(out, "Guard: %s.\n", words);
}

/* The validated plans and the verdict as text. */
#include "detect/report/render.h"
#include "detect/report/view.h"
#include "engine/base/p_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Two names of one plan: only then has a difference of 0 no width. */
static bool is_same(const struct dpe_interval *d)
{
    return d->n > 0 && d->mean == 0.0 && d->low == 0.0 && d->high == 0.0;
}

static void put_difference(struct dpe_text *page, const char *name,
                           const struct dpe_difference *difference, int width)
{
    const struct dpe_interval *d = &difference->minus;
    if (d->n == 0) {
        dpe_text_put(page, "%s: no valid pair\n", name);
        return;
    }
    if (is_same(d)) {
        dpe_text_put(page, "%-13s the same plan\n", name);
        return;
    }
    char value[DPE_P_TEXT], bounds[48] = "";
    bool wide = width >= 60;
    dpe_p_text(difference->p, value);
    if (isfinite(d->low) && isfinite(d->high)) {
        snprintf(bounds, sizeof bounds, wide ? " [%+.3f, %+.3f]" : "\n [%+.3f,%+.3f]", d->low,
                 d->high);
    }
    dpe_text_put(page, wide ? "%-13s %+.3f%s  %s, %lld pairs\n" : "%s\n %+.3f%s\n %s, %lld\n", name,
                 d->mean, bounds, value, (long long)d->n);
}

int64_t dpe_detect_two_digits(int64_t n)
{
    int64_t unit = 1;
    while (n / unit >= 100) {
        unit *= 10;
    }
    return (n + unit - 1) / unit * unit;
}

static void put_indistinct(struct dpe_text *page, const struct dpe_detect_validation *validation)
{
    const char *what = validation->criterion == DPE_DETECT_RECALL ? "samples" : "books";
    if (is_same(&validation->minus[DPE_DETECT_BASE].minus)) {
        dpe_text_put(page, "The joint plan and the base are the same plan.\n");
        return;
    }
    dpe_text_put(page, "The joint plan is not distinguishable from the base with %lld %s.\n",
                 (long long)validation->minus[DPE_DETECT_BASE].minus.n, what);
    if (dpe_detect_leaves_zero(&validation->minus[DPE_DETECT_BASE])) {
        dpe_text_put(page, "The interval leaves 0 out, but of so few contexts only p decides.\n");
    }
    if (validation->needed == 0) {
        return;
    }
    dpe_text_put(page, "About %lld %s would show a difference of this size.\n",
                 (long long)dpe_detect_two_digits(validation->needed), what);
}

void dpe_detect_verdict_words(const struct dpe_detect_validation *validation, struct dpe_text *page)
{
    if (validation->too_easy) {
        dpe_text_put(page,
                     "Base and joint plan both find 100 %%: the task is too easy at this length to "
                     "compare lengths.\nMake it harder with --niah keys=4,values=4, "
                     "--keys-per-context 4 or a larger --length.\n");
        return;
    }
    switch (validation->verdict) {
    case DPE_DETECT_BETTER:
        dpe_text_put(page, "The joint plan is better than the base.\n");
        return;
    case DPE_DETECT_WORSE:
        dpe_text_put(page, "The joint plan is worse than the base%s.\n",
                     validation->kept != DPE_DETECT_JOINT
                         ? ", so the table holds the better one"
                         : "; --select joint (the default) ends with the better one");
        return;
    case DPE_DETECT_INDISTINCT:
        put_indistinct(page, validation);
        return;
    case DPE_DETECT_UNKNOWN:
        break;
    }
    dpe_text_put(page, "The joint plan could not be compared with the base: no sample is valid "
                       "under both.\n");
}

void dpe_detect_validation_table(const struct dpe_detect_validation *validation,
                                 const char (*names)[DPE_DETECT_PLAN_NAME], const char *base,
                                 int width, struct dpe_text *out)
{
    const char *const meaning[DPE_DETECT_N_VALIDATED] = {"the model as it is", base,
                                                         "every group at the length chosen for it"};
    bool recall = validation->criterion == DPE_DETECT_RECALL;
    int widest = 6;
    for (int v = DPE_DETECT_N_VALIDATED; v < validation->n_plans; v++) {
        int n = (int)strlen(names[v]);
        widest = n > widest && n <= 24 ? n : widest;
    }
    for (int v = 0; v < DPE_DETECT_N_VALIDATED || v < validation->n_plans; v++) {
        char value[64];
        const struct dpe_interval *one = &validation->value[v];
        bool own = v < DPE_DETECT_N_VALIDATED;
        const char *name = own ? dpe_detect_validated_names[v] : names[v];
        const char *what = own                           ? meaning[v]
                           : strcmp(name, "single") == 0 ? "one length for all groups"
                                                         : "";
        dpe_detect_interval_text(validation->criterion, one->mean, one->low, one->high, width >= 34,
                                 value, sizeof value);
        if (width >= 80 && what[0] != '\0') {
            dpe_text_put(out, "%-*s %-24s %s\n", widest, name, value, what);
        } else {
            dpe_text_put(out, "%-*s %s\n", widest, name, value);
        }
    }
    put_difference(out, "joint - base", &validation->minus[DPE_DETECT_BASE], width);
    put_difference(out, "joint - rope", &validation->minus[DPE_DETECT_ROPE], width);
    for (int v = DPE_DETECT_N_VALIDATED; v < validation->n_plans; v++) {
        char name[DPE_DETECT_PLAN_NAME + 16];
        snprintf(name, sizeof name, "joint - %s", names[v]);
        put_difference(out, name, &validation->minus[v], width);
    }
    if (!recall) {
        dpe_text_put(out, "(differences in nats per token: lower is better)\n");
    }
    dpe_detect_verdict_words(validation, out);
}

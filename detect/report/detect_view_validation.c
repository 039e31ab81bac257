/* The validated plans as text: the verdict, the guard on perplexity, the best plan that runtimes
 * read as they are; and for methods that are ready: nothing is needed, one of them is enough, or
 * more may be gained. */
#include "detect/report/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/p_text.h"

/* ---------------------------------------------------------------------------------------- ready */

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
        if (words[0] != '\0') {
            dpe_text_put(out, "  Guard: %s.\n", words);
        } else if (report->kept.plan != DPE_DETECT_ROPE) {
            dpe_text_put(out,
                         "  No text was read: dpe-eval ppl compares perplexities, and --select "
                         "brief has a guard\n");
        }
        dpe_detect_plain_text(report, out);
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

/* ------------------------------------------------------------------------------------- numbers */

const char *dpe_detect_measure(const struct dpe_detect_report *report,
                               const struct dpe_detect_result *result)
{
    return result->criterion != DPE_DETECT_RECALL
               ? "perplexity"
               : dpe_identity_measure(result == &report->users ? report->users_spec
                                                               : report->niah_spec);
}

void dpe_detect_interval_text(enum dpe_detect_criterion criterion, const struct dpe_interval *value,
                              bool with_bounds, char text[64])
{
    const int after = criterion == DPE_DETECT_RECALL ? 3 : value->mean < 99.95 ? 2 : 1;
    if (!isfinite(value->mean)) {
        snprintf(text, 64, "-");
    } else if (with_bounds && isfinite(value->low) && isfinite(value->high)) {
        snprintf(text, 64, "%.*f [%.*f, %.*f]", after, value->mean, after, value->low, after,
                 value->high);
    } else {
        snprintf(text, 64, "%.*f", after, value->mean);
    }
}

bool dpe_detect_leaves_zero(const struct dpe_difference *difference)
{
    return difference->minus.low > 0.0 || difference->minus.high < 0.0;
}

void dpe_detect_difference_text(const struct dpe_difference *difference, char text[96])
{
    const struct dpe_interval *minus = &difference->minus;
    char bounds[48] = "";
    char value[DPE_P_TEXT];
    dpe_p_text(difference->p, value);
    if (isfinite(minus->low) && isfinite(minus->high)) {
        snprintf(bounds, sizeof bounds, " [%+.3f, %+.3f]", minus->low, minus->high);
    }
    snprintf(text, 96, "%+.3f%s, %s", minus->mean, bounds, value);
}

/* ----------------------------------------------------------------------------- validated plans */

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
        bool own = v < DPE_DETECT_N_VALIDATED;
        const char *name = own ? dpe_detect_validated_names[v] : names[v];
        const char *what = own                           ? meaning[v]
                           : strcmp(name, "single") == 0 ? "one length for all groups"
                                                         : "";
        dpe_detect_interval_text(validation->criterion, &validation->value[v], width >= 34, value);
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

/* ----------------------------------------------------------------------------------- the guard */

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

/* -------------------------------------------------------------------------- without an adapter */

static void put_worth(struct dpe_text *page, const struct dpe_detect_validation *v, int plain,
                      const char *words)
{
    char text[96];
    dpe_detect_difference_text(&v->kept_minus[plain], text);
    dpe_text_put(page, words, text);
}

/* Nothing where one of them read no text. */
static void put_perplexity(struct dpe_text *page, const struct dpe_detect_validation *v, int plain)
{
    const struct dpe_interval *d = &v->kept_minus[plain].minus;
    if (!isfinite(d->mean)) {
        return;
    }
    dpe_text_put(page, "  perplexity %.4g in place of %.4g (%+.1f %%", v->value[v->kept].mean,
                 v->value[plain].mean, 100.0 * expm1(d->mean));
    if (isfinite(d->low) && isfinite(d->high)) {
        dpe_text_put(page, " [%+.1f, %+.1f]", 100.0 * expm1(d->low), 100.0 * expm1(d->high));
    }
    dpe_text_put(page, ")\n");
}

/* What the kept plan has more than `plain`. */
static void put_more(struct dpe_text *page, const struct dpe_detect_report *report, int plain)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    if (deciding->criterion == DPE_DETECT_RECALL) {
        dpe_text_put(page, "  in %s", dpe_detect_measure(report, deciding));
        put_worth(page, &deciding->validation, plain, " the adapter is worth %s");
        if (report->users.validated) {
            put_worth(page, &report->users.validation, plain, "; on your task %s");
        }
        dpe_text_put(page, "\n");
    } else {
        put_perplexity(page, &deciding->validation, plain);
    }
    if (report->texts.validated) {
        put_perplexity(page, &report->texts.validation, plain);
    }
}

void dpe_detect_plain_text(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    const struct dpe_detect_validation *v = &deciding->validation;
    const int plain = report->plain;
    char text[64];
    if (plain < 0 || v->kept == DPE_DETECT_ROPE) {
        return;
    }
    if (plain == v->kept) {
        dpe_text_put(out,
                     "  It needs no adapter, and no plan that needs one is shown to be better\n");
        return;
    }
    dpe_detect_interval_text(v->criterion, &v->value[plain], true, text);
    if (plain == DPE_DETECT_ROPE) {
        dpe_text_put(out,
                     "Without an adapter nothing that was compared is better than the model as it "
                     "is: %s %s\n",
                     dpe_detect_measure(report, deciding), text);
        return;
    }
    dpe_text_put(out, "Without an adapter take %s: %s %s", report->names[plain],
                 dpe_detect_measure(report, deciding), text);
    if (!dpe_detect_in_final(v, plain)) {
        dpe_text_put(out, " after %lld samples", (long long)v->value[plain].n);
    }
    dpe_text_put(out, "\n");
    put_more(out, report, plain);
    dpe_text_put(out,
                 "  The table is for the vLLM plugin, the transformers adapter and dpe-serve; this "
                 "plan for runtimes as they are\n");
}

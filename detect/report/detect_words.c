/* The answer in words: which plan, up to which length, and what that costs. */
#include "detect/report/view.h"
#include "engine/base/p_text.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/read/read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Means of dropped lengths are of other samples than their neighbours'. */
void dpe_detect_noise_words(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_ranking *ranking = &dpe_detect_deciding(report)->ranking;
    int n = 0;
    int told = 0;
    for (int g = 0; g < ranking->n_groups; g++) {
        n += ranking->effective[g] > 0 && !ranking->informative[g];
    }
    if (n == 0) {
        return;
    }
    dpe_text_put(out, n > 1 ? "groups" : "group");
    for (int g = 0; g < ranking->n_groups; g++) {
        if (ranking->effective[g] > 0 && !ranking->informative[g]) {
            dpe_text_put(out, "%s%d", told++ > 0 ? ", " : " ", g);
        }
    }
    dpe_text_put(out, ": the lengths do not differ beyond noise, so rank 1 is a matter of chance "
                      "there; more --samples may help");
}

/* ------------------------------------------------------------------------------------- the lines
 */

static const char *name_of(const struct dpe_detect_report *report, int plan)
{
    return plan == DPE_DETECT_ROPE ? "the model as it is" : report->validated[plan].name;
}

/* The chosen candidate; -1: a plan of the sweep, or one that took its place. */
static int tried_of(const struct dpe_detect_report *report, int plan)
{
    for (int i = 0; i < report->search.n; i++) {
        if (strcmp(report->search.tried[i].key, report->validated[plan].config.key) == 0) {
            return i;
        }
    }
    return -1;
}

static void put_plan(struct dpe_text *out, const struct dpe_detect_report *report)
{
    const enum dpe_detect_advice advice = dpe_detect_advise(report);
    const struct dpe_detect_params *params = &report->grid->params;
    const int tried = tried_of(report, report->kept);
    const bool formula = tried >= 0 && report->search.tried[tried].kind == DPE_DETECT_FORMULA;
    if (report->rule == DPE_DETECT_PAPER) {
        dpe_text_put(out,
                     "The table holds the sweep's plan: every group at its effective length\n");
    } else if (advice == DPE_DETECT_ADVICE_NOTHING) {
        dpe_text_put(out,
                     "You need nothing: the model as it is finds what is possible in %lld "
                     "tokens; the table leaves it as it is\n",
                     (long long)params->length);
    } else if (advice == DPE_DETECT_ADVICE_NONE) {
        dpe_text_put(out,
                     "None of %d plans is shown to help; the table leaves the model as it is\n",
                     report->search.n - 1);
    } else {
        dpe_text_put(out, "Take %s%s%s\n", name_of(report, report->kept),
                     formula ? ", the formula of dpe" : "",
                     report->kept != report->chosen
                         ? ": fresh samples show it to be better than the plan that was chosen"
                         : "; the table holds it");
    }
}

static void put_usable(struct dpe_text *out, const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    const int64_t unchanged = dpe_detect_usable(report, DPE_DETECT_ROPE);
    const int64_t with = dpe_detect_usable(report, report->kept);
    const struct dpe_detect_short *const shorts[] = {&result->quarter, &result->ceiling};
    const char *before = "";
    if (unchanged <= 0) {
        return;
    }
    dpe_text_put(out, "  usable length: unchanged %lld tokens", (long long)unchanged);
    if (report->kept != DPE_DETECT_ROPE) {
        dpe_text_put(out, ", with it %lld", (long long)with);
    }
    dpe_text_put(out, " (%.0f %% of what the model finds in a short text; read at ",
                 100.0 * DPE_DETECT_USABLE);
    for (int i = 0; i < 2; i++) {
        if (shorts[i]->found.n > 0) {
            dpe_text_put(out, "%s%lld", before, (long long)shorts[i]->length);
            before = ", ";
        }
    }
    dpe_text_put(out, " and %lld, not between)\n", (long long)report->grid->params.length);
}

/* "recall in 1024 tokens of 4 keys of 4 values: 0.656 [0.4, 0.8]; unchanged …; possible …" */
static void put_found(struct dpe_text *out, const struct dpe_detect_report *report,
                      const struct dpe_detect_result *result, const char *of)
{
    const struct dpe_detect_validation *v = &result->validation;
    char kept[64], rope[64], difference[96], words[DPE_TASK_WORDS];
    const char *spec = result == &report->users ? report->users_spec : report->niah_spec;
    const bool recall = result->criterion == DPE_DETECT_RECALL;
    dpe_detect_interval_text(v->criterion, &v->value[report->kept], true, kept);
    dpe_detect_interval_text(v->criterion, &v->value[DPE_DETECT_ROPE], true, rope);
    words[0] = '\0';
    if (recall && spec != NULL) {
        dpe_identity_task_words(spec, words);
    }
    dpe_text_put(out, "  %s%s in %lld tokens%s%s: %s, of %lld fresh samples", of,
                 dpe_detect_measure(report, result), (long long)report->grid->params.length,
                 words[0] != '\0' ? " of " : "", words, kept, (long long)v->value[report->kept].n);
    if (report->kept != DPE_DETECT_ROPE) {
        dpe_detect_difference_text(&v->minus[DPE_DETECT_ROPE], difference);
        dpe_text_put(out, "; unchanged %s (%s)", rope, difference);
    }
    if (result->ceiling.found.n > 0) {
        dpe_detect_interval_text(DPE_DETECT_RECALL, &result->ceiling.found, true, kept);
        dpe_text_put(out, "; possible %s, in %lld tokens", kept, (long long)result->ceiling.length);
    }
    dpe_text_put(out, "\n");
}

static void put_texts(struct dpe_text *out, const struct dpe_detect_report *report)
{
    const struct dpe_detect_validation *v = &report->texts.validation;
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    char kept[64], rope[64];
    if (!report->texts.validated && deciding->criterion == DPE_DETECT_RECALL &&
        dpe_detect_searches(report->rule)) {
        const int tried = tried_of(report, report->kept);
        const bool read = tried >= 0 && isfinite(report->search.tried[tried].nll);
        dpe_text_put(out,
                     read ? "  of one text it loses at most %.0f %% of perplexity to the best; "
                            "dpe-eval ppl compares more\n"
                          : "  no text was read: dpe-eval ppl compares perplexities, and a larger "
                            "--budget keeps within %.0f %% of the best\n",
                     100.0 * report->guard_share);
    }
    if (report->texts.validated) {
        dpe_detect_interval_text(v->criterion, &v->value[report->kept], true, kept);
        dpe_detect_interval_text(v->criterion, &v->value[DPE_DETECT_ROPE], true, rope);
        dpe_text_put(out, "  perplexity %s; unchanged %s\n", kept, rope);
    }
}

static void put_short(struct dpe_text *out, const struct dpe_detect_report *report)
{
    const long long trained = (long long)report->grid->params.trained_length;
    if (report->kept == DPE_DETECT_ROPE) {
        return;
    }
    if (report->validated[report->kept].plain || report->grid->params.frequencies) {
        dpe_text_put(out,
                     "  short texts change too: dpe-eval ppl -l %lld measures what they lose\n",
                     trained);
    } else {
        dpe_text_put(out, "  texts of up to %lld tokens run unchanged\n", trained);
    }
}

void dpe_detect_plain_text(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_validation *v = &dpe_detect_deciding(report)->validation;
    char value[64], worth[96];
    if (report->plain < 1) {
        return;
    }
    dpe_detect_interval_text(v->criterion, &v->value[report->plain], true, value);
    dpe_text_put(out, "  without an adapter: %s, %s %s", report->validated[report->plain].name,
                 dpe_detect_measure(report, dpe_detect_deciding(report)), value);
    if (report->plain != report->kept && v->minus[report->plain].minus.n > 0) {
        dpe_detect_difference_text(&v->minus[report->plain], worth);
        dpe_text_put(out, "; the adapter is worth %s", worth);
    }
    dpe_text_put(out, "\n");
}

static void put_budget(struct dpe_text *out, const struct dpe_detect_report *report)
{
    const struct dpe_detect_search *search = &report->search;
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    const double room = result->ceiling.found.mean - result->validation.value[report->kept].mean;
    if (search->n == 0) {
        return;
    }
    dpe_text_put(out, "  %d plans were tried in %lld contexts", search->n - 1,
                 (long long)search->spent);
    if (search->exhausted) {
        dpe_text_put(out, "; nothing is left to try\n");
    } else if (result->ceiling.found.n > 0 && room > 0.005) {
        dpe_text_put(out, "; a larger --budget tries more, with room of %.0f points\n",
                     100.0 * room);
    } else {
        dpe_text_put(out, "; a larger --budget tries more\n");
    }
}

void dpe_detect_words(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    if (!result->validated) {
        return;
    }
    put_plan(out, report);
    put_usable(out, report);
    put_found(out, report, result, "");
    if (report->users.validated) {
        put_found(out, report, &report->users, "your own task: ");
    }
    put_texts(out, report);
    put_short(out, report);
    dpe_detect_plain_text(report, out);
    put_budget(out, report);
}

/* A search as text: its steps, and the first lines of its result. */
#include "detect/report/view.h"
#include "engine/base/p_text.h"
#include "outputs/h5/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LENGTHS_TEXT = 16 * DPE_DETECT_MOST_GROUPS };

/* The lengths of a point: "256", or "256 128 ...", of frequencies always of every group; that of
 * the base where it is none of the detecting lengths. */
static void lengths_text(const struct dpe_detect_params *params,
                         const struct dpe_detect_point *point, char text[LENGTHS_TEXT])
{
    bool one = !params->frequencies && dpe_detect_point_is_single(params, point);
    int n = one ? 1 : params->n_groups;
    text[0] = '\0';
    for (int g = 0; g < n; g++) {
        double length = point->at[g] < 0 ? (double)params->length / dpe_detect_base_scale(params, g)
                                         : (double)params->lengths[point->at[g]];
        dpe_append(text, LENGTHS_TEXT, "%s%.10g", g > 0 ? " " : "", length);
    }
}

/* How many pairs move, where the search chooses it. */
static void put_pairs(struct dpe_text *page, const struct dpe_detect_params *params,
                      const struct dpe_detect_point *point)
{
    if (point->fewer > 0) {
        dpe_text_put(page, ", %lld key pairs", (long long)dpe_detect_point_pairs(params, point).k);
    } else if (params->n_fewer > 0) {
        dpe_text_put(page, ", all pairs");
    }
}

/* ------------------------------------------------------------------------------------ the steps */

static const char *const titles[DPE_DETECT_N_MOVES] = {"temperature",
                                                       "lengths of all groups",
                                                       "near window",
                                                       "fast groups longer",
                                                       "length of one group",
                                                       "key pairs",
                                                       "methods without an adapter",
                                                       "other methods",
                                                       "temperature, near window and lengths"};

static bool was_tested(const struct dpe_detect_search *search, enum dpe_detect_move move)
{
    for (int i = 0; i < search->n_steps; i++) {
        if (search->steps[i].tested && search->steps[i].move == move) {
            return true;
        }
    }
    return false;
}

/* What no step tried, for one reason, in one line. */
static void put_untested(struct dpe_text *page, const struct dpe_detect_search *search,
                         bool nothing, const char *reason)
{
    int n = 0;
    bool told[DPE_DETECT_N_MOVES] = {0};
    for (int i = 0; i < search->n_steps; i++) {
        const struct dpe_detect_step *step = &search->steps[i];
        if (!step->tested && (step->n < 2) == nothing && !told[step->move] &&
            !was_tested(search, step->move)) {
            told[step->move] = true;
            dpe_text_put(page, "%s%s", n++ > 0 ? ", " : "\nnot tried: ", titles[step->move]);
        }
    }
    if (n > 0) {
        dpe_text_put(page, " (%s)\n", reason);
    }
}

static void put_step(struct dpe_text *page, const struct dpe_detect_report *report,
                     const struct dpe_detect_step *step)
{
    const struct dpe_detect_params *params = &report->grid->params;
    if (!step->tested) {
        return;
    }
    char p[DPE_P_TEXT];
    dpe_text_put(page, "\n%s, round %d", titles[step->move], step->round + 1);
    if (step->chosen > 0 && step->guarded) {
        dpe_text_put(page, ": changed, the plan so far loses too much perplexity\n");
    } else if (step->chosen > 0 && dpe_detect_step_picks(step)) {
        dpe_text_put(page, ": the best of them (fresh samples decide)\n");
    } else if (step->chosen > 0) {
        dpe_text_put(page, ": changed (%s)\n", dpe_p_text(step->p, p));
    } else if (step->best > 0) {
        dpe_text_put(page, ": unchanged, no change is shown to be better (%s)\n",
                     dpe_p_text(step->p, p));
    } else {
        dpe_text_put(page, ": unchanged, none was better on all samples%s\n",
                     step->tried[0].read ? " and within the guard" : "");
    }
    for (int i = 0; i < step->n; i++) {
        const struct dpe_detect_tried *tried = &step->tried[i];
        char temperature[DPE_TEMPERATURE_TEXT], lengths[LENGTHS_TEXT], value[64];
        dpe_temperature_text(&tried->point.temperature, temperature);
        lengths_text(params, &tried->point, lengths);
        dpe_detect_interval_text(report->searching.criterion, &tried->value, true, value);
        char spec[DPE_DETECT_SPEC];
        dpe_detect_point_spec(&tried->point, spec);
        char perplexity[16] = "";
        if (isfinite(tried->nll)) {
            snprintf(perplexity, sizeof perplexity, "%.4g", exp(tried->nll));
        }
        dpe_text_put(page, "%c %-24s %4lld samples  %5s  %s", i == step->chosen ? '*' : ' ', value,
                     (long long)tried->samples, perplexity, spec[0] != '\0' ? spec : temperature);
        if (spec[0] != '\0') {
            dpe_text_put(page, "\n");
            continue;
        }
        if (!params->frequencies) {
            dpe_text_put(page, ", window %lld", (long long)tried->point.window);
        }
        dpe_text_put(page, ", %s", lengths);
        put_pairs(page, params, &tried->point);
        dpe_text_put(page, "\n");
    }
}

void dpe_detect_search_table(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_search *search = &report->search;
    const bool recall = report->searching.criterion == DPE_DETECT_RECALL;
    dpe_text_put(out, "Search, %s%s%s; * the plan that each step ends with\n",
                 recall ? dpe_identity_measure(report->niah_spec) : "nats per token",
                 recall ? " of needles" : "",
                 report->searching.texts > 0 ? " and perplexity of texts" : "");
    for (int i = 0; i < search->n_steps; i++) {
        put_step(out, report, &search->steps[i]);
    }
    put_untested(out, search, true, "there is nothing else to try");
    put_untested(out, search, false,
                 "no test of these samples could show a gain over the plan so far");
}

/* ---------------------------------------------------------------------------------- first lines */

static const char *name_of(const struct dpe_detect_report *report, int plan)
{
    return plan == DPE_DETECT_ROPE    ? "the model as it is (rope)"
           : plan == DPE_DETECT_BASE  ? (report->grid->params.frequencies
                                             ? "the base (frequencies that go round kept)"
                                             : "the base (every group at half the trained length)")
           : plan == DPE_DETECT_JOINT ? "the joint plan"
           : strcmp(report->names[plan], "single") == 0
               ? (report->grid->params.frequencies ? "one length for all groups that are not kept"
                                                   : "one length for all groups")
               : report->names[plan];
}

static const char *const verdict_words[] = {[DPE_DETECT_BETTER] = "better than",
                                            [DPE_DETECT_INDISTINCT] = "not distinguishable from",
                                            [DPE_DETECT_WORSE] = "worse than",
                                            [DPE_DETECT_UNKNOWN] = "not comparable with"};

static bool finds_less_for_user(const struct dpe_detect_report *report, int plan)
{
    const struct dpe_detect_validation *v = &report->users.validation;
    return report->users.validated && v->value[plan].mean < v->value[v->kept].mean;
}

static void put_against(struct dpe_text *page, const struct dpe_detect_report *report,
                        const struct dpe_detect_validation *v, int plan)
{
    enum dpe_detect_verdict verdict = dpe_detect_judge(&v->kept_minus[plan], v->criterion);
    char difference[96];
    dpe_detect_difference_text(&v->kept_minus[plan], difference);
    dpe_text_put(page, "  %s %s: %s", verdict_words[verdict], name_of(report, plan), difference);
    if (verdict == DPE_DETECT_INDISTINCT && dpe_detect_leaves_zero(&v->kept_minus[plan])) {
        dpe_text_put(page, " (the interval leaves 0 out, but of so few contexts only p decides)");
    }
    if (v->kept_needed[plan] > 0) {
        dpe_text_put(page, "; about %lld %s would show it",
                     (long long)dpe_detect_two_digits(v->kept_needed[plan]),
                     v->criterion == DPE_DETECT_RECALL ? "samples" : "books");
    }
    dpe_text_put(page, "\n");
    if (verdict == DPE_DETECT_WORSE && !report->tables[plan]) {
        dpe_text_put(
            page,
            "    (a table cannot hold that plan: --method %s of dpe-run and dpe-eval is it)\n",
            report->names[plan]);
    } else if (verdict == DPE_DETECT_WORSE && finds_less_for_user(report, plan)) {
        dpe_text_put(page, "    (on your task that plan finds less)\n");
    }
}

static void put_plan(struct dpe_text *page, const struct dpe_detect_report *report, int plan)
{
    char temperature[DPE_TEMPERATURE_TEXT], lengths[LENGTHS_TEXT];
    if (plan == DPE_DETECT_ROPE) {
        return;
    }
    if (plan > DPE_DETECT_SINGLE) { /* of --against: its name says it */
        if (dpe_detect_report_static(report)) {
            dpe_text_put(
                page, "  frequencies and a factor on the logits: dpe-export --format longrope or "
                      "gguf-rope writes them for runtimes without an adapter\n");
        }
        return;
    }
    const struct dpe_detect_point point = dpe_detect_report_point(report, plan);
    dpe_temperature_text(&point.temperature, temperature);
    lengths_text(&report->grid->params, &point, lengths);
    if (report->grid->params.frequencies) {
        dpe_text_put(page, "  temperature %s, frequencies of groups at %s\n", temperature, lengths);
        return;
    }
    dpe_text_put(
        page, "  temperature %s, near window %lld, %s %s", temperature, (long long)point.window,
        dpe_detect_point_is_single(&report->grid->params, &point) ? "all groups at" : "groups at",
        lengths);
    put_pairs(page, &report->grid->params, &point);
    dpe_text_put(page, "\n");
}

/* What detection by groups adds to one length for all of them. */
static void put_worth(struct dpe_text *page, const struct dpe_detect_report *report)
{
    static const char *const words[] = {
        [DPE_DETECT_WORTH_UNTRIED] =
            "  Lengths of groups of their own were not compared: no test of "
            "these samples could show a gain over the plan with one "
            "length.\n",
        [DPE_DETECT_WORTH_NONE] = "  Detection by groups adds nothing here: no group was shown to "
                                  "do better at a length of its own.\n",
        [DPE_DETECT_WORTH_NOT_SHOWN] = "  Detection by groups adds nothing that these samples "
                                       "show: lengths of their own are not shown to be better "
                                       "than one for all.\n",
        [DPE_DETECT_WORTH_SHOWN] = NULL, /* the comparisons above say it */
    };
    const char *text = words[dpe_detect_report_worth(report)];
    dpe_text_put(page, "%s", text != NULL ? text : "");
}

void dpe_detect_kept_line(const struct dpe_detect_report *report, struct dpe_text *out)
{
    int kept = dpe_detect_deciding(report)->validation.kept;
    if (report->rule != DPE_DETECT_JOINTLY && dpe_detect_deciding(report)->validated &&
        kept != DPE_DETECT_JOINT) {
        dpe_text_put(out, "The table holds %s, which did better than the joint plan.\n",
                     name_of(report, kept));
    }
}

/* "0.391 [0.297, 0.484] of 0.96 possible": what the unchanged model finds in its trained length. A
 * plan may find more. */
static void put_ceiling(struct dpe_text *page, double found, const struct dpe_interval *ceiling)
{
    if (ceiling->n > 0) {
        dpe_text_put(page,
                     found > ceiling->mean ? " (%.2f in the trained length)" : " of %.2f possible",
                     ceiling->mean);
    }
}

/* What the kept plan finds on the task that the user named, against every other plan. */
static void put_users(struct dpe_text *page, const struct dpe_detect_report *report)
{
    const struct dpe_detect_validation *v = &report->users.validation;
    char value[64];
    char task[DPE_TASK_WORDS];
    if (!report->users.validated) {
        return;
    }
    dpe_detect_interval_text(v->criterion, &v->value[v->kept], true, value);
    dpe_text_put(page, "  On texts with %s it finds %s",
                 dpe_identity_task_words(report->users_spec, task), value);
    put_ceiling(page, v->value[v->kept].mean, &report->users.ceiling);
    dpe_text_put(page, " on %lld fresh samples\n", (long long)v->value[v->kept].n);
    for (int kind = DPE_DETECT_BETTER; kind <= DPE_DETECT_WORSE; kind++) {
        int n = 0;
        for (int plan = 0; plan < v->n_plans; plan++) {
            bool same = strcmp(report->keys[plan], report->keys[v->kept]) == 0;
            if (!same && (int)dpe_detect_judge(&v->kept_minus[plan], v->criterion) == kind) {
                dpe_text_put(page, "%s%s %s (%.3f)", n > 0 ? "" : "  ",
                             n > 0 ? "," : verdict_words[kind], name_of(report, plan),
                             v->value[plan].mean);
                n++;
            }
        }
        dpe_text_put(page, n > 0 ? "\n" : "");
    }
    if (dpe_detect_report_disagrees(report)) {
        dpe_text_put(page, "  This task orders plans otherwise than the search's, beyond noise: it "
                           "decides, and --task user searches with it\n");
    }
}

static void put_guard(struct dpe_text *page, const struct dpe_detect_report *report)
{
    char words[1024];
    dpe_detect_guard_words(report, words, sizeof words);
    if (words[0] != '\0') {
        dpe_text_put(page, "  Guard: %s\n", words);
    }
}

void dpe_detect_words(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    const struct dpe_detect_validation *v = &deciding->validation;
    bool recall = v->criterion == DPE_DETECT_RECALL;
    int compared = 0;
    char value[64];
    char task[DPE_TASK_WORDS];
    if (!deciding->validated || !dpe_detect_sweeps(report->rule)) {
        dpe_detect_ready_words(report, out);
        return;
    }
    dpe_detect_interval_text(v->criterion, &v->value[v->kept], true, value);
    dpe_text_put(out, "The table holds %s: %s %s", name_of(report, v->kept),
                 dpe_detect_measure(report, deciding), value);
    put_ceiling(out, v->value[v->kept].mean, &deciding->ceiling);
    dpe_text_put(out, " on %lld %s %s\n", (long long)v->value[v->kept].n,
                 deciding->fresh ? "fresh" : "of the sweep's", recall ? "samples" : "books");
    if (dpe_detect_report_chooses(report)) {
        put_plan(out, report, v->kept);
    }
    if (recall && dpe_identity_task_words(report->niah_spec, task)[0] != '\0') {
        dpe_text_put(out,
                     "  measured on texts with %s; on other tasks it may find less (dpe-eval "
                     "niah --table)\n",
                     task);
    }
    for (int plan = 0; plan < v->n_plans; plan++) {
        if (plan != v->kept && strcmp(report->keys[plan], report->keys[v->kept]) != 0) {
            put_against(out, report, v, plan);
            compared++;
        }
    }
    if (compared > 1) {
        dpe_text_put(out, "  (%d paired tests on the same %s, not corrected for their number)\n",
                     compared, recall ? "samples" : "books");
    }
    put_users(out, report);
    put_guard(out, report);
    put_worth(out, report);
    dpe_detect_plain_text(report, out);
}

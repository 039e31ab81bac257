/* What chose the plan: /select, /search and /race. */
#include "detect/report/detect_table_internal.h"
#include "outputs/datasets/kinds.h"

#include <stdlib.h>
#include <string.h>

/* dpe_datasets_make; without memory the table gets no more. */
static bool make(struct dpe_h5 *table, const struct dpe_dataset_kind *kind, void *result,
                 const char *names)
{
    struct dpe_error why = {0};
    if (dpe_datasets_make(kind, result, names, &why) == DPE_OK) {
        return true;
    }
    dpe_h5_stop(table, why.status, "%s", why.text);
    return false;
}

/* ------------------------------------------------------------------------------------- /select */

static const char *rule_text(enum dpe_detect_rule rule)
{
    static const char *const texts[] = {
        [DPE_DETECT_PAPER] = "rank 1 of each group; ties go to the larger length",
        [DPE_DETECT_GUARDED] =
            "half the trained length, except where a paired two-sided sign-flip test (samples of "
            "one context are one), its p times the lengths compared, shows with p < 0.05 that "
            "another length is better; of several "
            "the one with the largest gain, ties to the larger",
        [DPE_DETECT_SEQUENTIAL] =
            "all groups begin at half the trained length; in the order of /select/order each gets "
            "the length with the largest gain given the lengths of all others, ties to the larger; "
            "no gain, no change; again until nothing changes or the rounds are used up",
        [DPE_DETECT_READY] = "none: methods that are ready, and the base",
        [DPE_DETECT_BRIEF] = "none: methods that are ready, and the best of one step of a search",
        [DPE_DETECT_JOINTLY] = "the search of /search: temperature, lengths, near window and "
                               "groups one after another, "
                               "each change only where a paired test shows that it is better; the "
                               "table then holds this "
                               "plan, or another validated one that did better than it"};
    return texts[rule];
}

/* Every comparison: what each length gains over that which the group had. */
static void fill_choices(const struct dpe_detect_report *report, struct dpe_choices_result *out)
{
    const struct dpe_detect_params *params = &report->grid->params;
    const int lengths = params->n_lengths;
    for (int c = 0; c < report->selection.n_choices * lengths; c++) {
        const struct dpe_detect_choice *choice = &report->selection.choices[c / lengths];
        out->choices[c / lengths] = (struct dpe_compared_lengths){choice->group, choice->round,
                                                                  params->lengths[choice->from],
                                                                  params->lengths[choice->to]};
        out->gain[c] = choice->gain[c % lengths];
        out->p[c] = choice->p[c % lengths];
        if (out->plan != NULL) {
            out->plan[c] = choice->keys[c % lengths];
        }
    }
}

void dpe_detect_put_selection(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_detect_selection *selection = &report->selection;
    const struct dpe_detect_params *params = &report->grid->params;
    const bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    const bool sequential = selection->rule == DPE_DETECT_SEQUENTIAL;
    /* The cells of the sweep have their plans in /detect/plan. */
    const char *made = sequential ? "from_length gain p_value plan" : "from_length gain p_value";
    struct dpe_choices_result out = {
        .n = {params->n_groups, params->n_lengths, selection->n_choices},
        .selected = report->selected,
        .order = sequential ? selection->order : NULL};
    if (selection->n_choices == 0 || make(table, &dpe_choices_kinds[0], &out, made)) {
        fill_choices(report, &out);
        dpe_datasets_put(&dpe_choices_kinds[!recall], &out, "/select", table);
    }
    dpe_h5_attr_text(table, "/select", "rule", dpe_detect_rule_names[selection->rule]);
    dpe_h5_attr_text(table, "/select", "rule_in_words", rule_text(selection->rule));
    if (sequential) {
        dpe_h5_attr_i64(table, "/select", "rounds", selection->rounds);
    }
    dpe_datasets_drop(&dpe_choices_kinds[0], &out, made);
}

/* ------------------------------------------------------------------------------------- /search */

static const char rule[] =
    "each step runs the plan that the search has on all samples, and its changes by sequential "
    "halving: all on an eighth (at least four contexts), the better third on a quarter, and so on; "
    "the best one is taken "
    "when its one-sided paired sign-flip test has p < 0.05 (samples of one context change their "
    "sign together), not corrected for the number of changes: validation decides what is kept; of "
    "other methods the best, without a test";

/* The plans' temperatures are texts, each in a place of its own. */
struct searched {
    struct dpe_search_result r;
    char (*texts)[DPE_TEMPERATURE_TEXT];
    char (*specs)[DPE_DETECT_SPEC];
};

static void fill_plan(const struct dpe_detect_params *params, const struct dpe_detect_tried *tried,
                      int step, size_t at, struct searched *s)
{
    s->r.tried[at] = (struct dpe_searched_plan){.temperature = s->texts[at],
                                                .plan = tried->key,
                                                .method = s->specs[at],
                                                .step = step,
                                                .window = tried->point.window,
                                                .samples = tried->samples,
                                                .value = tried->value,
                                                .gain = tried->gain};
    if (s->r.top_k != NULL) {
        s->r.top_k[at] = dpe_detect_point_pairs(params, &tried->point).k;
    }
    dpe_temperature_text(&tried->point.temperature, s->texts[at]);
    dpe_detect_point_spec(&tried->point, s->specs[at]);
    for (int g = 0; g < params->n_groups; g++) {
        s->r.length[at * (size_t)params->n_groups + (size_t)g] =
            dpe_detect_point_length(params, &tried->point, g);
    }
}

static void fill(const struct dpe_detect_report *report, struct searched *s)
{
    const struct dpe_detect_search *search = &report->search;
    size_t at = 0;
    for (int i = 0; i < search->n_steps; i++) {
        const struct dpe_detect_step *step = &search->steps[i];
        s->r.steps[i] = (struct dpe_searched_step){.move = dpe_detect_move_names[step->move],
                                                   .round = step->round,
                                                   .chosen = (int32_t)at + step->chosen,
                                                   .tested = step->tested,
                                                   .p = step->p};
        for (int k = 0; k < step->n; k++) {
            fill_plan(&report->grid->params, &step->tried[k], i, at++, s);
        }
    }
}

static void put(struct dpe_h5 *table, const struct dpe_detect_report *report,
                const struct searched *s)
{
    const struct dpe_detect_search *search = &report->search;
    const bool recall = search->options.criterion == DPE_DETECT_RECALL;
    dpe_datasets_put(&dpe_search_kinds[!recall], &s->r, "/search", table);
    dpe_h5_attr_text(table, "/search", "rule", rule);
    dpe_h5_attr_i64(table, "/search", "samples", search->options.n_samples);
    dpe_h5_attr_i64(table, "/search", "rounds", search->options.rounds);
    if (search->options.near.logit_scale > 0.0) {
        char near[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&search->options.near, near);
        dpe_h5_attr_text(table, "/search", "near", near);
    }
}

void dpe_detect_put_search(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_detect_search *search = &report->search;
    const char *made = report->grid->params.n_fewer > 0 ? "move tried_step length top_k"
                                                        : "move tried_step length";
    struct searched s = {.r.n = {search->n_steps, 0, report->grid->params.n_groups}};
    for (int i = 0; i < search->n_steps; i++) {
        s.r.n[DPE_SEARCH_TRIED] += search->steps[i].n;
    }
    const size_t plans = (size_t)s.r.n[DPE_SEARCH_TRIED];
    if (search->n_steps == 0) {
        return;
    }
    s.texts = dpe_alloc(plans, sizeof *s.texts);
    s.specs = dpe_alloc(plans, sizeof *s.specs);
    if (s.texts == NULL || s.specs == NULL) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for %zu plans of a search", plans);
    } else if (make(table, &dpe_search_kinds[0], &s.r, made)) {
        fill(report, &s);
        put(table, report, &s);
    }
    dpe_datasets_drop(&dpe_search_kinds[0], &s.r, made);
    free(s.texts);
    free(s.specs);
}

/* --------------------------------------------------------------------------------------- /race */

void dpe_detect_put_race(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_race *race = &report->race;
    const struct dpe_detect_params *params = &report->grid->params;
    const bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    if (!report->racing) {
        return;
    }
    struct dpe_drops_result result = {.n = {params->n_groups, params->n_lengths, race->n_drops},
                                      .after = race->dropped};
    if (!make(table, &dpe_drops_kinds[0], &result, "difference")) {
        return;
    }
    for (int i = 0; i < race->n_drops; i++) {
        const struct dpe_race_drop *drop = &race->drops[i];
        result.drops[i] =
            (struct dpe_dropped){.group = drop->arm / params->n_lengths,
                                 .length = params->lengths[drop->arm % params->n_lengths],
                                 .leader = params->lengths[drop->leader % params->n_lengths],
                                 .samples = drop->samples,
                                 .difference = drop->difference,
                                 .p = drop->p};
    }
    dpe_datasets_put(&dpe_drops_kinds[!recall], &result, "/race", table);
    dpe_h5_attr_f64(table, "/race", "level", report->race_options.level);
    dpe_h5_attr_f64(table, "/race", "indifference", report->race_options.indifference);
    dpe_h5_attr_i64(table, "/race", "per_round", report->race_options.per_round);
    dpe_h5_attr_text(table, "/race", "rule",
                     "after each round every length is compared with the best one that is left "
                     "by a paired one-sided sign-flip test (samples of one context are one); "
                     "p < level drops it; half the trained length is never dropped");
    struct dpe_text words = {0};
    dpe_detect_race_words(report, &words);
    dpe_detect_put_words(table, "/race", "words", &words);
    dpe_datasets_drop(&dpe_drops_kinds[0], &result, "difference");
}

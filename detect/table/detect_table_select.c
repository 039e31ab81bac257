/* /select: which rule chose the joint plan's lengths, and on what grounds. */
#include <stdlib.h>

#include "detect/table/detect_table_internal.h"

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

/* Every comparison: what each length gains over that which the group had. False without memory. */
static bool fill_choices(const struct dpe_detect_report *report, struct dpe_choices_result *out)
{
    const struct dpe_detect_selection *selection = &report->selection;
    const struct dpe_detect_params *params = &report->grid->params;
    const size_t n = (size_t)selection->n_choices;
    const size_t cells = n * (size_t)params->n_lengths;
    out->choices = dpe_alloc(n, sizeof *out->choices);
    out->gain = dpe_alloc(cells, sizeof *out->gain);
    out->p = dpe_alloc(cells, sizeof *out->p);
    out->plan = dpe_alloc(cells, sizeof *out->plan);
    if (out->choices == NULL || out->gain == NULL || out->p == NULL || out->plan == NULL) {
        return false;
    }
    for (size_t c = 0; c < cells; c++) {
        const struct dpe_detect_choice *choice = &selection->choices[c / (size_t)params->n_lengths];
        const size_t t = c % (size_t)params->n_lengths;
        out->choices[c / (size_t)params->n_lengths] = (struct dpe_compared_lengths){
            choice->group, choice->round, params->lengths[choice->from],
            params->lengths[choice->to]};
        out->gain[c] = choice->gain[t];
        out->p[c] = choice->p[t];
        out->plan[c] = choice->keys[t];
    }
    return true;
}

void dpe_detect_put_selection(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_detect_selection *selection = &report->selection;
    const struct dpe_detect_params *params = &report->grid->params;
    const bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    const bool sequential = selection->rule == DPE_DETECT_SEQUENTIAL;
    const bool compares =
        (sequential || selection->rule == DPE_DETECT_GUARDED) && selection->n_choices > 0;
    struct dpe_choices_result out = {
        .n = {params->n_groups, params->n_lengths, compares ? selection->n_choices : 0},
        .selected = report->selected,
        .order = sequential ? selection->order : NULL};
    if (compares && !fill_choices(report, &out)) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for %d comparisons", selection->n_choices);
    } else {
        const char **plan = out.plan;
        out.plan =
            sequential ? plan : NULL; /* the cells of the sweep have theirs in /detect/plan */
        dpe_datasets_put(&dpe_choices_kinds[!recall], &out, "/select", table, NULL);
        out.plan = plan;
    }
    dpe_h5_attr_text(table, "/select", "rule", dpe_detect_rule_names[selection->rule], NULL);
    dpe_h5_attr_text(table, "/select", "rule_in_words", rule_text(selection->rule), NULL);
    if (sequential) {
        dpe_h5_attr_i64(table, "/select", "rounds", selection->rounds, NULL);
    }
    free(out.choices);
    free(out.gain);
    free(out.p);
    free(out.plan);
}

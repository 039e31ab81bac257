/* /select: which rule chose the joint plan's lengths, and on what grounds. */
#include <math.h>
#include <stdlib.h>

#include "detect/table/detect_table_internal.h"
#include "outputs/h5/h5_put.h"

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
        [DPE_DETECT_JOINTLY] = "the search of /search: temperature, lengths, near window and "
                               "groups one after another, "
                               "each change only where a paired test shows that it is better; the "
                               "table then holds this "
                               "plan, or another validated one that did better than it"};
    return texts[rule];
}

/* The columns of the comparisons, in one block each. */
struct columns {
    int64_t *from, *to;
    int32_t *group, *round;
    double *gain, *p;
    const char **keys;
};

static void fill_columns(const struct dpe_detect_report *report, struct columns *columns)
{
    const struct dpe_detect_selection *selection = &report->selection;
    const struct dpe_detect_params *params = &report->grid->params;
    for (int i = 0; i < selection->n_choices; i++) {
        const struct dpe_detect_choice *choice = &selection->choices[i];
        columns->from[i] = params->lengths[choice->from];
        columns->to[i] = params->lengths[choice->to];
        columns->group[i] = choice->group;
        columns->round[i] = choice->round;
        for (int t = 0; t < params->n_lengths; t++) {
            int cell = i * params->n_lengths + t;
            columns->gain[cell] = choice->gain[t];
            columns->p[cell] = choice->p[t];
            columns->keys[cell] = choice->keys[t];
        }
    }
}

static void put_columns(struct table_writer *w, const struct dpe_detect_report *report,
                        const struct columns *columns)
{
    const struct dpe_detect_params *params = &report->grid->params;
    const struct dpe_detect_selection *selection = &report->selection;
    bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    const struct table_axis axes[] = {{"/select/step", selection->n_choices},
                                      {"/length", params->n_lengths}};
    const struct table_entry steps[] = {
        {"/group", DPE_COL_I32, columns->group, "group that was chosen for", "1", NULL},
        {"/round", DPE_COL_I32, columns->round, "round, from 0", "1", NULL},
        {"/from_length", DPE_COL_I64, columns->from, "length the group had", "tokens", NULL},
        {"/to_length", DPE_COL_I64, columns->to, "length it got", "tokens", NULL},
    };
    const struct table_entry cells[] = {
        {"/gain", DPE_COL_F64, columns->gain, "mean paired improvement over from_length",
         recall ? "1" : "nats/token", NULL},
        {"/p_value", DPE_COL_F64, columns->p,
         "two-sided sign-flip test of: no difference, times the lengths compared", "1", NULL},
    };
    const struct table_entry plans = {
        "/plan", DPE_COL_STRING, columns->keys, "configuration: its key in /rows", "1", NULL};
    dpe_detect_put_count(w, "/select/step", selection->n_choices,
                         "comparison of a group's lengths");
    dpe_detect_put_entries(w, "/select", steps, COUNT(steps), axes, 1);
    dpe_detect_put_entries(w, "/select", cells, COUNT(cells), axes, 2);
    if (selection->rule == DPE_DETECT_SEQUENTIAL) {
        dpe_detect_put_entry(w, "/select", &plans, axes, 2);
    }
}

static void put_choices(struct table_writer *w, const struct dpe_detect_report *report)
{
    size_t n = (size_t)report->selection.n_choices;
    size_t cells = n * (size_t)report->grid->params.n_lengths;
    struct columns columns = {
        .from = dpe_alloc(n, sizeof(int64_t)),
        .to = dpe_alloc(n, sizeof(int64_t)),
        .group = dpe_alloc(n, sizeof(int32_t)),
        .round = dpe_alloc(n, sizeof(int32_t)),
        .gain = dpe_alloc(cells, sizeof(double)),
        .p = dpe_alloc(cells, sizeof(double)),
        .keys = dpe_alloc(cells, sizeof(char *)),
    };
    if (columns.from == NULL || columns.to == NULL || columns.group == NULL ||
        columns.round == NULL || columns.gain == NULL || columns.p == NULL ||
        columns.keys == NULL) {
        dpe_detect_put_no_memory(w, "comparisons", n);
    } else {
        fill_columns(report, &columns);
        put_columns(w, report, &columns);
    }
    free(columns.from);
    free(columns.to);
    free(columns.group);
    free(columns.round);
    free(columns.gain);
    free(columns.p);
    free(columns.keys);
}

void dpe_detect_put_selection(struct table_writer *w, const struct dpe_detect_report *report)
{
    const struct dpe_detect_selection *selection = &report->selection;
    const struct dpe_detect_params *params = &report->grid->params;
    size_t n = (size_t)params->n_groups;
    int32_t *order = dpe_alloc(n, sizeof *order);
    if (order == NULL) {
        dpe_detect_put_no_memory(w, "groups", n);
        return;
    }
    for (size_t g = 0; g < n; g++) {
        order[g] = selection->order[g];
    }
    const struct table_axis group = {"/group", params->n_groups};
    const struct table_entry entries[] = {
        {"/selected_length", DPE_COL_I64, report->selected,
         "selected length of the group, -1 = none", "tokens", NULL},
        {"/order", DPE_COL_I32, order, "group that was taken at this place", "1", NULL},
    };
    bool sequential = selection->rule == DPE_DETECT_SEQUENTIAL;
    dpe_detect_put_entries(w, "/select", entries, sequential ? 2 : 1, &group, 1);
    if (selection->rule == DPE_DETECT_GUARDED || sequential) {
        put_choices(w, report);
    }
    dpe_detect_put_text(w, "/select", "rule", dpe_detect_rule_names[selection->rule]);
    dpe_detect_put_text(w, "/select", "rule_in_words", rule_text(selection->rule));
    if (sequential) {
        dpe_detect_put_i64(w, "/select", "rounds", selection->rounds);
    }
    free(order);
}

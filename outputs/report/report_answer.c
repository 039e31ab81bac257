/* The result of a detection: how the chosen lengths score at the target length, which they are, and
 * in which groups they may be chance. */
#include "outputs/report/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/** What was measured of the chosen lengths on samples of their own. */
struct validation {
    bool recall;
    const struct dpe_scores_result *r;
    const double *mean; /**< [plan] of r; NULL: nothing was measured */
    int n, kept;        /* plans; the one that the table holds */
};

static const char *plan_name(const struct validation *v, int plan)
{
    const char *name = v->r->plan[plan];
    return strcmp(name, "rope") == 0    ? "unchanged (rope)"
           : strcmp(name, "base") == 0  ? "all groups at half (base)"
           : strcmp(name, "joint") == 0 ? "lengths of the sweep (joint)"
                                        : name;
}

/* How many plans there are, and which of them the table holds: the last unless it says so. */
static void count_plans(const struct dpe_report_input *input, struct validation *v)
{
    v->n = (int)v->r->n[DPE_VALIDATED_PLAN];
    v->kept = v->n - 1;
    for (int i = 0; i < v->n; i++) {
        v->kept = dpe_input_says(input, "/validate", "kept", v->r->plan[i]) ? i : v->kept;
    }
}

static struct validation read_validation(struct dpe_report *report,
                                         const struct dpe_report_detection *d, const char *folder,
                                         bool recall)
{
    const struct dpe_report_input *input = d->input;
    struct validation v = {.recall = recall};
    if (!dpe_h5_has(input->table, folder)) {
        dpe_page_ok(&report->page, dpe_h5_answered(input->table, report->page.err));
        return v;
    }
    v.r = dpe_input_get(report, input, &dpe_validated_scores_kinds[0], folder, "-validated_sample");
    if (v.r == NULL) {
        return v;
    }
    v.mean = recall ? v.r->recall_mean : v.r->perplexity;
    if (v.mean == NULL || v.r->low == NULL || v.r->high == NULL || v.r->n_valid == NULL) {
        dpe_page_ok(&report->page, dpe_fail(report->page.err, DPE_BAD_DATA,
                                            "%s: %s is not complete", input->path, folder));
        v.mean = NULL;
    } else {
        count_plans(input, &v);
    }
    return v;
}

static void add_plans(struct dpe_report *report, const struct validation *v)
{
    const double scale = v->recall ? 100.0 : 1.0;
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, v->recall ? "validation" : "validation-perplexity",
        v->recall ? "plan:@|recall, %:i1|valid samples:0" : "plan:@|perplexity:i3|valid samples:0",
        "%s at the target length", v->recall ? "Needles found" : "Perplexity");
    for (int i = 0; i < v->n; i++) {
        dpe_draw_row(
            sheet, plan_name(v, i),
            dpe_interval_cell(scale * v->mean[i], scale * v->r->low[i], scale * v->r->high[i]),
            v->r->n_valid[i]);
        dpe_draw_row_mark(sheet, i == v->kept ? ROW_STRONG : 0);
    }
    dpe_page_add(&report->page, sheet);
}

/* -------------------------------------------------------------------------------------- section */

/* In comparisons the plan that the table holds is called by its file. Of several detections all may
 * be called detect.h5. */
static void name_table(struct dpe_report *report, const struct dpe_report_detection *d,
                       const struct validation *v)
{
    size_t n = 0;
    for (size_t i = 0; i < report->n; i++) {
        n += dpe_h5_has(report->inputs[i].table, DETECTION);
    }
    if (n == 1 && v->r != NULL) {
        dpe_draw_same_method(dpe_page_text(&report->page, "table:%s", d->input->name),
                             plan_name(v, v->kept));
    }
}

static const double two_pi = 6.283185307179586;

/* "6 to 11": tokens in which the group's fastest and slowest pair rotate once. */
static void turn_text(const struct dpe_report_detection *d, int64_t group, char text[64])
{
    const struct dpe_table_part *t = d->table;
    snprintf(text, 64, "–");
    if (t->group_edge == NULL || t->inv_freq == NULL) {
        return;
    }
    const double n = (double)t->n[TABLE_PAIR];
    double first = t->group_edge[group];
    double last = t->group_edge[group + 1] - 1.0;
    /* Some models rotate a part of the head: its last pairs have no frequency. */
    while (last > first && last < n && t->inv_freq[(size_t)last] == 0.0) {
        last -= 1.0;
    }
    if (first >= 0.0 && last >= first && last < n) {
        double fast = two_pi / t->inv_freq[(size_t)first];
        double slow = two_pi / t->inv_freq[(size_t)last];
        snprintf(text, 64, "%.*f to %.*f", fast < 20.0 ? 1 : 0, fast, fast < 20.0 ? 1 : 0, slow);
    }
}

static void add_chosen(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const uint8_t *informative = d->ranking->informative;
    const struct dpe_table_part *t = d->table;
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "effective-lengths",
        "group:0|effective length:0|scale:0|lengths differ?:t|wavelength, tokens:t|pairs:t",
        "Effective lengths");
    for (int64_t g = 0; g < d->n_groups; g++) {
        char pairs[64] = "–", signal[64] = "–", turns[64], p[32];
        const double rank_1 = (double)d->ranking->effective[g];
        if (t->group_edge != NULL) {
            snprintf(pairs, sizeof pairs, "%.0f–%.0f", t->group_edge[g],
                     t->group_edge[g + 1] - 1.0);
        }
        turn_text(d, g, turns);
        if (informative != NULL) {
            const double *p_value = d->ranking->p_value;
            snprintf(signal, sizeof signal, "%s (%s)",
                     informative[g] != 0 ? "yes" : "not distinguishable",
                     p_value != NULL ? dpe_p_text(p_value[g], p) : "p unknown");
        }
        dpe_draw_row(sheet, g, dpe_number_cell(rank_1 < 0.0 ? (double)NAN : rank_1),
                     rank_1 > 0.0 ? dpe_detection_length(d) / rank_1 : (double)NAN, signal, turns,
                     pairs);
    }
    dpe_page_add(&report->page, sheet);
    if (informative != NULL) {
        dpe_page_say(&report->page, BLOCK_TEXT,
                     "p is of a permutation test that the best and the worst length of "
                     "a group do not differ; not of the chosen length against another.");
    }
}

/* How the lengths were chosen, and which they are. */
static void add_lengths(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const double times = dpe_detection_length(d) / dpe_detection_trained(d);
    dpe_detection_recall_map(report, d);
    dpe_page_say(
        &report->page, BLOCK_TEXT,
        "A rotary position embedding (RoPE) rotates each pair of a head's dimensions at its "
        "own frequency. The distances of far keys are divided by the scale of the pair's frequency "
        "group, so that %s "
        "tokens, %.3g times the trained length, span no more than the group's effective length, a "
        "length at which these pairs still work.",
        DPE_LENGTH_TEXT(dpe_detection_length(d)), times);
    add_chosen(report, d);
    dpe_words_noise(&report->page, d->ranking);
}

/* Another validation, or a search, where there is one. */
static void *read_other(struct dpe_report *report, const struct dpe_report_input *input,
                        const struct dpe_dataset_kind *kind, const char *folder, const char *names)
{
    return dpe_h5_has(input->table, folder) ? dpe_input_get(report, input, kind, folder, names)
                                            : NULL;
}

/* What dpe-detect said. */
static void add_words(struct dpe_report *report, const struct dpe_report_detection *d,
                      const struct validation *v)
{
    if (v->mean == NULL) {
        dpe_page_say(&report->page, BLOCK_LEAD,
                     "The plan of all chosen lengths together was not measured (the run is "
                     "%s), so how well it works is unknown.",
                     dpe_input_read_whole(d->input, "/", "complete", 0) != 0 ? "complete"
                                                                             : "unfinished");
        return;
    }
    const struct dpe_report_input *input = d->input;
    const struct dpe_dataset_kind *scores = &dpe_validated_scores_kinds[0];
    const struct dpe_detect_words of = {
        .decides = v->r,
        .users = read_other(report, input, scores, "/validate/user", "-validated_sample"),
        .texts = read_other(report, input, scores, "/validate/guard", "-validated_sample"),
        .search = read_other(report, input, &dpe_search_kind, "/search", NULL),
        .spent = dpe_input_read_whole(input, "/search", "contexts", 0),
        .exhausted = dpe_input_read_whole(input, "/search", "exhausted", 0) != 0,
        .recall = v->recall,
        .length = (int64_t)dpe_detection_length(d),
        .trained = (int64_t)dpe_detection_trained(d),
        .task = dpe_input_words(report, input, "/detect", "niah_parameters"),
        .users_task = dpe_input_words(report, input, "/validate/user", "task"),
        .kept = v->r->plan[v->kept],
        .chosen = dpe_input_words(report, input, "/validate", "chosen"),
        .plain = dpe_input_words(report, input, "/validate", "without_adapter")};
    if (report->page.status == DPE_OK) {
        dpe_words_detect(&report->page, &of);
    }
    const char *selection = dpe_identity_get(&d->input->identity, "selection");
    if (selection != NULL) {
        dpe_page_say(
            &report->page, BLOCK_TEXT,
            "Every query met only the keys of the selection %s, but with the unchanged model. "
            "The table alone does not apply it: --method select:%s,over=table:FILE does.",
            selection, selection);
    }
}

void dpe_detection_result(struct dpe_report *report)
{
    const struct dpe_report_detection *d = dpe_detection_of(report);
    if (d == NULL) {
        return;
    }
    dpe_page_section(&report->page, "Result at %s tokens",
                     DPE_LENGTH_TEXT(dpe_detection_length(d)));
    const struct validation all[2] = {read_validation(report, d, "/validate/niah", true),
                                      read_validation(report, d, "/validate/ppl", false)};
    if (report->page.status == DPE_OK) {
        add_words(report, d, &all[d->by_recall ? 0 : 1]);
        name_table(report, d, &all[d->by_recall ? 0 : 1]);
    }
    if (report->page.status == DPE_OK && dpe_detection_swept(d)) {
        add_lengths(report, d);
    }
    for (int i = 0; i < 2 && report->page.status == DPE_OK; i++) {
        if (all[i].mean != NULL) {
            add_plans(report, &all[i]);
        }
    }
    if (report->page.status == DPE_OK) {
        dpe_detection_search(report, d);
    }
}

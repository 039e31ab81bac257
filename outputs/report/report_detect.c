/* A detection: as the report reads it, the maps of its cells, its search; and its result: how the
 * chosen lengths score at the target length, which they are, and in which groups they may be
 * chance. */
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/report/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- reading */

struct dpe_report_detection {
    const struct dpe_report_input *input;
    int64_t n_groups, n_lengths;
    const struct dpe_ranking_result *ranking;            /**< by the task that decides */
    const struct dpe_scores_result *recall, *perplexity; /**< means and intervals; NULL in them: not
                                                            there */
    const struct dpe_ranking_result
        *by_perplexity;                   /**< where needles decide; rank NULL: not there */
    const struct dpe_table_values *table; /**< what it came to; NULL: it is unfinished */
    bool by_recall;                       /**< needles decide */
};

/* Ranks and means of all tasks. False after a failure. */
static bool read_cells(struct dpe_report *report, struct dpe_report_detection *d)
{
    const struct dpe_report_input *input = d->input;
    d->ranking = dpe_h5_has(input->table, "/detect/rank")
                     ? dpe_input_get(report, input, &dpe_ranking_kind, "/detect", NULL)
                     : dpe_page_alloc(&report->page, 1, sizeof(struct dpe_ranking_result));
    d->recall = dpe_input_get(report, input, &dpe_needle_cells_kind, "/detect/niah",
                              "recall_mean ci_low ci_high n_valid");
    d->perplexity = dpe_input_get(report, input, &dpe_book_cells_kind, "/detect/ppl",
                                  "perplexity ci_low ci_high n_valid perplexity_at");
    d->by_perplexity =
        dpe_h5_has(input->table, "/detect/ppl/rank")
            ? dpe_input_get(report, input, &dpe_ranking_kind, "/detect/ppl", "rank informative")
            : dpe_page_alloc(&report->page, 1, sizeof(struct dpe_ranking_result));
    d->table = input->dpe != NULL ? dpe_table_values(input->dpe) : NULL;
    return report->status == DPE_OK;
}

static bool fits(const int64_t n[2], const void *values, int64_t first, int64_t second)
{
    return values == NULL || (n[0] == first && n[1] == second);
}

static bool check_extents(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const int64_t groups = d->n_groups, lengths = d->n_lengths;
    bool fit = fits(d->recall->n, d->recall->recall_mean, groups, lengths) &&
               fits(d->perplexity->n, d->perplexity->perplexity, groups, lengths) &&
               fits(d->by_perplexity->n, d->by_perplexity->rank, groups, lengths) &&
               (d->table == NULL || d->table->n_groups == groups);
    return fit || dpe_report_ok(report, dpe_fail(report->err, DPE_BAD_DATA,
                                                 "%s: /detect: expected %lld groups in every task",
                                                 d->input->path, (long long)groups));
}

/* Whether it has a sweep of groups: detecting lengths and their ranks. */
static bool is_swept(const struct dpe_report_detection *d)
{
    return d->ranking->rank != NULL;
}

/* The subject, read once; NULL after a failure. */
static const struct dpe_report_detection *detection_of(struct dpe_report *report)
{
    struct dpe_report_input *input = &report->inputs[report->about.input - report->inputs];
    struct dpe_report_detection *d = input->detection;
    if (d != NULL) {
        return d;
    }
    d = dpe_page_alloc(&report->page, 1, sizeof *d);
    d->input = input;
    if (!read_cells(report, d)) {
        return NULL;
    }
    d->n_groups = d->ranking->n[DPE_CELLS_GROUP];
    d->n_lengths = d->ranking->n[DPE_CELLS_LENGTH];
    if (is_swept(d) && !check_extents(report, d)) {
        return NULL;
    }
    const char *criterion = dpe_input_words(report, input, "/detect", "criterion");
    d->by_recall = criterion == NULL || strstr(criterion, "recall") != NULL;
    input->detection = d;
    return d;
}

/* Tokens: the length it is for, and the trained one (0: unknown). */
static double length_of(const struct dpe_report_detection *d)
{
    const char *length = dpe_identity_get(&d->input->identity, "length");
    return d->table != NULL ? (double)d->table->length
           : length != NULL ? strtod(length, NULL)
                            : (double)d->ranking->length[d->n_lengths - 1];
}

static double trained_of(const struct dpe_report_detection *d)
{
    return d->table != NULL
               ? (double)d->table->trained_length
               : (double)dpe_input_read_whole(d->input, "/model", "max_position_embeddings", 0);
}

/* ---------------------------------------------------------------------------------------- maps */

/* Ranks by a task: the one that decides, or perplexity beside it. */
static const struct dpe_ranking_result *ranking_of(const struct dpe_report_detection *d,
                                                   bool recall)
{
    return recall || !d->by_recall ? d->ranking : d->by_perplexity;
}

static void add_rank_map(struct dpe_report *report, const struct dpe_report_detection *d,
                         bool recall)
{
    if (ranking_of(d, recall)->rank != NULL) {
        dpe_words_cells(
            &report->page, recall ? d->recall : d->perplexity, ranking_of(d, recall), true,
            recall == d->by_recall
                ? "The same cells, ranked within each group: 1 is the best length of its row; "
                  "of equal values, the larger length comes first. The length of rank 1 is the "
                  "group's effective length. In a row called flat the ranks may be chance."
                : "The same cells, ranked within each group: 1 is the best length of its row; "
                  "of equal values, the larger length comes first. These ranks are for "
                  "comparison: the lengths are chosen by needles.");
    }
}

static void add_recall_map(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const uint8_t *informative = d->ranking->informative;
    bool flat = false;
    for (int64_t g = 0; informative != NULL && g < d->n_groups; g++) {
        flat = flat || informative[g] == 0;
    }
    if (d->recall->recall_mean == NULL) {
        return;
    }
    dpe_words_cells(
        &report->page, d->recall, ranking_of(d, true), false,
        dpe_page_text(
            &report->page,
            "Each cell is the percentage of needles found at %s tokens when one frequency "
            "group is scaled to a detecting length and all other groups to half the trained "
            "length. The length of rank 1 has a frame.%s",
            DPE_LENGTH_TEXT(length_of(d)),
            flat ? " In a group called flat the lengths are not distinguishable from each "
                   "other."
                 : ""));
}

static void detection_maps(struct dpe_report *report, const struct dpe_report_detection *d)
{
    if (d->recall->recall_mean != NULL) {
        add_rank_map(report, d, true);
    }
    if (d->perplexity->perplexity != NULL) {
        dpe_words_cells(
            &report->page, d->perplexity, ranking_of(d, false), false,
            dpe_page_text(
                &report->page,
                "Perplexity per token over the books, under the same plans; lower is better "
                "and brighter. The colour scale covers only the values that occur, so a large "
                "difference in colour can be a small one in perplexity. The length of rank 1 "
                "has a frame. Intervals are in the table of numbers.%s",
                d->by_recall ? " The lengths are chosen by needles, not by perplexity." : ""));
        add_rank_map(report, d, false);
    }
}

/* ----------------------------------------------------------------------------------- positions */

/* The first tokens have hardly any context: their perplexity of hundreds would flatten the rest. */
static int64_t first_shown(int64_t n)
{
    return n > 6 ? 3 : 0;
}

/* All cells, as numbers. */
static struct dpe_sheet *positions_sheet(const struct dpe_report *report,
                                         const struct dpe_report_detection *d)
{
    const struct dpe_scores_result *r = d->perplexity;
    const int64_t n = r->n[DPE_CELLS_POSITION];
    struct dpe_sheet *sheet = dpe_page_sheet(&report->page, "detect-positions",
                                             "group:0|length:0|from position:0|perplexity:3",
                                             "Perplexity by position, group by group");
    for (int64_t i = 0; i < d->n_groups * d->n_lengths * n; i++) {
        dpe_draw_row(sheet, i / n / d->n_lengths, d->ranking->length[i / n % d->n_lengths],
                     r->position[i % n], r->perplexity_at[i]);
    }
    dpe_draw_shown(sheet, 80, false);
    return sheet;
}

/* The cell of a group's length of rank 1 by perplexity; -1: none. */
static int64_t best_of(const struct dpe_report_detection *d, int64_t group)
{
    const int32_t *rank = ranking_of(d, false)->rank;
    int64_t best = -1;
    for (int64_t i = group * d->n_lengths; i < (group + 1) * d->n_lengths; i++) {
        best = rank[i] == 1 ? i : best;
    }
    return best;
}

/* Perplexities of a cell in which the groups are at half the trained length; NULL: there is none.
 */
static const double *base_of(const struct dpe_report_detection *d)
{
    const struct dpe_scores_result *r = d->perplexity;
    for (int64_t t = 0; t < d->n_lengths; t++) {
        if ((double)d->ranking->length[t] == trained_of(d) / 2.0) {
            return r->perplexity_at +
                   ((d->n_groups - 1) * d->n_lengths + t) * r->n[DPE_CELLS_POSITION];
        }
    }
    return NULL;
}

/* What is drawn: groups at their best lengths ("3 at 256"). Against the base a change of a few
 * percent shows; without one there are the values themselves. */
static void add_best(struct dpe_sheet *drawn, const struct dpe_report_detection *d)
{
    const struct dpe_scores_result *r = d->perplexity;
    const double *base = base_of(d);
    const int64_t n = r->n[DPE_CELLS_POSITION];
    for (int64_t g = 0; g < d->n_groups; g++) {
        const int64_t best = best_of(d, g);
        struct dpe_sheet_cell group = dpe_number_cell((double)g);
        char name[64], tokens[32] = "–";
        if (best >= 0) {
            dpe_length_text((double)d->ranking->length[best % d->n_lengths], tokens);
        }
        snprintf(name, sizeof name, "%lld at %s", (long long)g, tokens);
        group.text = name;
        for (int64_t b = first_shown(n); b < n; b++) {
            const double value = best < 0 ? (double)NAN : r->perplexity_at[best * n + b];
            dpe_draw_row(drawn, group, r->position[b],
                         base == NULL ? value : 100.0 * (value / base[b] - 1.0));
        }
    }
}

static void add_groups(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const bool relative = base_of(d) != NULL;
    const struct dpe_plot plot = {.kind = PLOT_HEAT,
                                  .log = !relative,
                                  .low_is_good = true,
                                  .digits = relative ? 1 : 3,
                                  DPE_TITLES("from position, tokens", "group, at its best length",
                                             relative ? "change, percent" : "perplexity")};
    struct dpe_sheet *sheet = positions_sheet(report, d);
    add_best(dpe_draw_instead(sheet, "group:0|from position:0|value:0"), d);
    dpe_page_figure(&report->page, sheet, &plot,
                    "The %s of the tokens from each position to twice that position when one "
                    "group goes from %s to the length that perplexity ranks first and the other "
                    "groups keep theirs. Near positions are inside the window, which no length "
                    "changes. There are no intervals by position: small changes may be chance. "
                    "All lengths are in the table of numbers.",
                    relative ? "change in perplexity (less is better)" : "perplexity",
                    DPE_LENGTH_TEXT(trained_of(d) / 2.0));
}

/* The model as it is, every group at half the trained length, and the detection. */
static void add_plans(struct dpe_report *report, const struct dpe_report_detection *d,
                      const struct dpe_scores_result *r)
{
    const int64_t n = r->n[DPE_VALIDATED_POSITION];
    const struct dpe_plot plot = {
        .kind = PLOT_CURVES,
        .log_x = true,
        .log = true,
        DPE_TITLES("position in the text, tokens", "perplexity per token", NULL),
        DPE_LINE(trained_of(d), "trained length")};
    struct dpe_sheet *sheet =
        dpe_page_sheet(&report->page, "validate-positions", "plan:t|from position:0|perplexity:3",
                       "Perplexity by position, the chosen lengths together");
    for (int64_t i = 0; i < r->n[DPE_VALIDATED_PLAN] * n; i++) {
        const char *name = r->plan[i / n];
        dpe_draw_row(sheet, name, r->position[i % n], r->perplexity_at[i]);
        dpe_draw_row_mark(sheet, (strcmp(name, "joint") == 0 ? ROW_STRONG : 0) |
                                     (strcmp(name, "rope") == 0 ? ROW_PLAIN : 0) |
                                     (i % n < first_shown(n) ? ROW_UNDRAWN : 0));
    }
    dpe_page_figure(
        &report->page, sheet, &plot,
        "Books under three plans: rope, the unchanged model; base, every group at half the "
        "trained length; joint, the chosen lengths. Each point is the perplexity of the tokens "
        "from its position to twice that position. More "
        "context should lower it; a line that rises shows where a plan stops working.");
}

/* Perplexity by position in the text, where the rows have it: groups at their best length, and the
 * plans that were validated. */
static void add_positions(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const bool guard = dpe_h5_has(d->input->table, "/validate/guard");
    const char *folder = guard ? "/validate/guard" : "/validate/ppl";
    const struct dpe_scores_result *swept = d->perplexity;
    if (swept->perplexity_at != NULL && swept->position != NULL &&
        ranking_of(d, false)->rank != NULL) {
        add_groups(report, d);
    }
    if (!dpe_h5_has(d->input->table, folder)) {
        return;
    }
    const struct dpe_scores_result *r =
        dpe_input_get(report, d->input, &dpe_validated_scores_kinds[1], folder, "perplexity_at");
    if (r != NULL && r->perplexity_at != NULL && r->position != NULL) {
        add_plans(report, d, r);
    }
}

void dpe_detection_section(struct dpe_report *report)
{
    const struct dpe_report_detection *d = detection_of(report);
    if (d != NULL && is_swept(d)) {
        dpe_page_section(&report->page, "Detection at %s tokens", DPE_LENGTH_TEXT(length_of(d)));
        detection_maps(report, d);
        add_positions(report, d);
    }
}

/* ---------------------------------------------------------------------------------- the search */

static void add_search(struct dpe_report *report, const struct dpe_report_detection *d)
{
    if (!dpe_h5_has(d->input->table, "/search/method")) {
        return;
    }
    const struct dpe_search_result *s =
        dpe_input_get(report, d->input, &dpe_search_kind, "/search", NULL);
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "search",
        d->by_recall ? "plan:t|kind:t|heat:0|contexts:0|recall, %:i1|nats per token of texts:3"
                     : "plan:t|kind:t|heat:0|contexts:0|perplexity:i2|nats per token of texts:3",
        "Plans that the search tried");
    for (int64_t i = 0; s != NULL && i < s->n[0]; i++) {
        const struct dpe_searched_plan *tried = &s->tried[i];
        dpe_draw_row(sheet, tried->method, tried->kind, tried->heat, tried->contexts,
                     dpe_scaled_cell(&tried->value, d->by_recall ? 100.0 : 1.0), tried->nll);
    }
    dpe_page_say(&report->page, BLOCK_TEXT,
                 "Plans of a heat read the same contexts, and the better third of them read on. "
                 "These numbers chose the plan, so the best of them are too good: what it is "
                 "worth is measured above, on fresh samples.");
    dpe_page_add(&report->page, sheet);
}

/* ---------------------------------------------------------------------------------- the answer */

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

/* A validation, or a search. */
static void *read_if_there(struct dpe_report *report, const struct dpe_report_input *input,
                           const struct dpe_dataset_kind *kind, const char *folder,
                           const char *names)
{
    return dpe_h5_has(input->table, folder) ? dpe_input_get(report, input, kind, folder, names)
                                            : NULL;
}

static struct validation read_validation(struct dpe_report *report,
                                         const struct dpe_report_detection *d, const char *folder,
                                         bool recall)
{
    const struct dpe_report_input *input = d->input;
    struct validation v = {.recall = recall};
    v.r = read_if_there(report, input, &dpe_validated_scores_kinds[0], folder, "-validated_sample");
    if (v.r == NULL) {
        return v;
    }
    v.mean = recall ? v.r->recall_mean : v.r->perplexity;
    v.n = (int)v.r->n[DPE_VALIDATED_PLAN];
    v.kept = v.n - 1; /* unless it says so */
    for (int i = 0; i < v.n; i++) {
        v.kept = dpe_input_says(input, "/validate", "kept", v.r->plan[i]) ? i : v.kept;
    }
    if (v.mean == NULL || v.r->low == NULL || v.r->high == NULL || v.r->n_valid == NULL ||
        v.n < 1) {
        dpe_report_ok(report, dpe_fail(report->err, DPE_BAD_DATA, "%s: %s is not complete",
                                       input->path, folder));
        v.mean = NULL;
    }
    return v;
}

static void add_validated(struct dpe_report *report, const struct validation *v)
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
    if (n == 1 && v->mean != NULL) {
        dpe_draw_same_method(dpe_page_text(&report->page, "table:%s", d->input->name),
                             plan_name(v, v->kept));
    }
}

/* "6 to 11": tokens in which the group's fastest and slowest pair rotate once. */
static void turn_text(const struct dpe_report_detection *d, int64_t group, char text[64])
{
    const struct dpe_table_values *t = d->table;
    const int32_t first = t->group_edge[group];
    int32_t last = t->group_edge[group + 1] - 1;
    /* Some models rotate a part of the head: its last pairs have no frequency. */
    while (last > first && t->inv_freq[last] == 0.0) {
        last--;
    }
    const double fast = 2.0 * M_PI / t->inv_freq[first], slow = 2.0 * M_PI / t->inv_freq[last];
    snprintf(text, 64, "%.*f to %.*f", fast < 20.0 ? 1 : 0, fast, fast < 20.0 ? 1 : 0, slow);
}

static void add_chosen(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const uint8_t *informative = d->ranking->informative;
    const struct dpe_table_values *t = d->table;
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "effective-lengths",
        "group:0|effective length:0|scale:0|lengths differ?:t|wavelength, tokens:t|pairs:t",
        "Effective lengths");
    for (int64_t g = 0; g < d->n_groups; g++) {
        char pairs[64] = "–", signal[64] = "–", turns[64] = "–", p[32];
        const double rank_1 = (double)d->ranking->effective[g];
        if (t != NULL) {
            snprintf(pairs, sizeof pairs, "%d–%d", t->group_edge[g], t->group_edge[g + 1] - 1);
            turn_text(d, g, turns);
        }
        if (informative != NULL) {
            const double *p_value = d->ranking->p_value;
            snprintf(signal, sizeof signal, "%s (%s)",
                     informative[g] != 0 ? "yes" : "not distinguishable",
                     p_value != NULL ? dpe_p_text(p_value[g], p) : "p unknown");
        }
        dpe_draw_row(sheet, g, dpe_number_cell(rank_1 < 0.0 ? (double)NAN : rank_1),
                     rank_1 > 0.0 ? length_of(d) / rank_1 : (double)NAN, signal, turns, pairs);
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
    const double times = length_of(d) / trained_of(d);
    add_recall_map(report, d);
    dpe_page_say(
        &report->page, BLOCK_TEXT,
        "A rotary position embedding (RoPE) rotates each pair of a head's dimensions at its "
        "own frequency. The distances of far keys are divided by the scale of the pair's frequency "
        "group, so that %s "
        "tokens, %.3g times the trained length, span no more than the group's effective length, a "
        "length at which these pairs still work.",
        DPE_LENGTH_TEXT(length_of(d)), times);
    add_chosen(report, d);
    dpe_words_noise(&report->page, d->ranking);
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
        .users = read_if_there(report, input, scores, "/validate/user", "-validated_sample"),
        .texts = read_if_there(report, input, scores, "/validate/guard", "-validated_sample"),
        .search = read_if_there(report, input, &dpe_search_kind, "/search", NULL),
        .spent = dpe_input_read_whole(input, "/search", "contexts", 0),
        .exhausted = dpe_input_read_whole(input, "/search", "exhausted", 0) != 0,
        .recall = v->recall,
        .length = (int64_t)length_of(d),
        .trained = (int64_t)trained_of(d),
        .task = dpe_input_words(report, input, "/detect", "niah_parameters"),
        .users_task = dpe_input_words(report, input, "/validate/user", "task"),
        .kept = v->r->plan[v->kept],
        .chosen = dpe_input_words(report, input, "/validate", "chosen"),
        .plain = dpe_input_words(report, input, "/validate", "without_adapter")};
    dpe_words_detect(&report->page, &of);
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
    const struct dpe_report_detection *d = detection_of(report);
    if (d == NULL) {
        return;
    }
    dpe_page_section(&report->page, "Result at %s tokens", DPE_LENGTH_TEXT(length_of(d)));
    const struct validation all[2] = {read_validation(report, d, "/validate/niah", true),
                                      read_validation(report, d, "/validate/ppl", false)};
    add_words(report, d, &all[d->by_recall ? 0 : 1]);
    name_table(report, d, &all[d->by_recall ? 0 : 1]);
    if (is_swept(d)) {
        add_lengths(report, d);
    }
    for (int i = 0; i < 2; i++) {
        if (all[i].mean != NULL) {
            add_validated(report, &all[i]);
        }
    }
    add_search(report, d);
}

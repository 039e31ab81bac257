/* The answer of a detection: which plan, up to which length, and what that costs. */
#include "outputs/h5/rows.h"
#include "outputs/words/words.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* On a page sentences begin and end as such. */
static void say(struct dpe_page *page, enum dpe_block_kind kind, struct dpe_text *text)
{
    const char *words = dpe_draw_text(text);
    if (page->printed && words[0] != '\0') {
        dpe_page_say(page, kind, "%s", words);
    } else if (words[0] != '\0') {
        dpe_page_say(page, kind, "%c%s.", toupper((unsigned char)words[0]), words + 1);
    }
    dpe_text_free(text);
}

/* What was validated, with everything that a sentence needs of it. */
static bool is_whole(const struct dpe_scores_result *r)
{
    return r != NULL && (r->recall_mean != NULL || r->perplexity != NULL) && r->low != NULL &&
           r->high != NULL && r->n_valid != NULL;
}

/* The plan of this name; −1: there is none. */
static int64_t plan_of(const struct dpe_scores_result *r, const char *name)
{
    int64_t i = name != NULL ? r->n[DPE_VALIDATED_PLAN] - 1 : -1;
    while (i >= 0 && strcmp(r->plan[i], name) != 0) {
        i--;
    }
    return i;
}

static struct dpe_interval value_of(const struct dpe_scores_result *r, const char *name)
{
    const int64_t i = is_whole(r) ? plan_of(r, name) : -1;
    const double *mean = r->recall_mean != NULL ? r->recall_mean : r->perplexity;
    return i < 0 ? (struct dpe_interval){(double)NAN, (double)NAN, (double)NAN, 0}
                 : (struct dpe_interval){mean[i], r->low[i], r->high[i], r->n_valid[i]};
}

static bool is_unchanged(const struct dpe_detect_words *of)
{
    return strcmp(of->kept, "rope") == 0;
}

/* What the search knew of the kept plan; NULL: it is the sweep's. */
static const struct dpe_searched_plan *tried_of(const struct dpe_detect_words *of)
{
    const struct dpe_search_result *search = of->search;
    return search == NULL
               ? NULL
               : dpe_named(search->tried, (size_t)search->n[0], sizeof *search->tried, of->kept);
}

void dpe_words_interval(bool recall, const struct dpe_interval *value, char text[64])
{
    const int after = recall ? 3 : value->mean < 99.95 ? 2 : 1;
    if (!isfinite(value->mean)) {
        snprintf(text, 64, "-");
    } else if (isfinite(value->low) && isfinite(value->high)) {
        snprintf(text, 64, "%.*f [%.*f, %.*f]", after, value->mean, after, value->low, after,
                 value->high);
    } else {
        snprintf(text, 64, "%.*f", after, value->mean);
    }
}

static void put_value(bool recall, const struct dpe_interval *value, struct dpe_text *out)
{
    char text[64];
    dpe_words_interval(recall, value, text);
    dpe_text_put(out, "%s", text);
}

/* "+0.042 [+0.000, +0.125], p = 1.000": the kept plan less this one. */
static void put_minus(const struct dpe_scores_result *r, const char *name, const char *before,
                      const char *after, struct dpe_text *out)
{
    const int64_t i = r->kept != NULL ? plan_of(r, name) : -1;
    char p[DPE_P_TEXT];
    if (i < 0 || r->kept[i].minus.n == 0) {
        return;
    }
    const struct dpe_interval *minus = &r->kept[i].minus;
    dpe_text_put(out, "%s%+.3f", before, minus->mean);
    if (isfinite(minus->low) && isfinite(minus->high)) {
        dpe_text_put(out, " [%+.3f, %+.3f], %s", minus->low, minus->high,
                     dpe_p_text(r->kept[i].p, p));
    } /* one context shows no difference, whatever it is: its p is 1 */
    dpe_text_put(out, "%s", after);
}

/* --------------------------------------------------------------------------------- the sentences
 */

/* Within five points of what the unchanged model finds in a shorter text, or of all. */
static bool finds_possible(const struct dpe_detect_words *of)
{
    const struct dpe_interval *possible = dpe_validated_possible(of->decides);
    return of->recall &&
           value_of(of->decides, of->kept).mean >= (possible != NULL ? possible->mean : 1.0) - 0.05;
}

static void put_plan(const struct dpe_detect_words *of, struct dpe_text *out)
{
    const struct dpe_searched_plan *tried = tried_of(of);
    if (of->search == NULL) {
        dpe_text_put(out, "The table holds the sweep's plan: every group at its effective length");
    } else if (is_unchanged(of) && finds_possible(of)) {
        dpe_text_put(out,
                     "You need nothing: the model as it is finds what is possible in %lld "
                     "tokens; the table leaves it as it is",
                     (long long)of->length);
    } else if (is_unchanged(of)) {
        dpe_text_put(out,
                     "None of %lld plans is shown to help; the table leaves the model as it is",
                     (long long)of->search->n[0] - 1);
    } else {
        const bool formula = tried != NULL && strcmp(tried->kind, "formula") == 0;
        dpe_text_put(out, "Take %.*s%s", formula ? INT_MAX : (int)strcspn(of->kept, ":"),
                     formula ? "the formula of dpe" : of->kept,
                     of->chosen != NULL && strcmp(of->kept, of->chosen) != 0
                         ? ": fresh samples show it to be better than the plan that was chosen"
                         : "; the table holds it");
    }
}

static void put_settings(const struct dpe_detect_words *of, struct dpe_text *out)
{
    if (of->search != NULL && strchr(of->kept, ':') != NULL) {
        dpe_text_put(out, "plan: %s", of->kept);
    }
}

int64_t dpe_words_usable(const struct dpe_detect_words *of, const char *plan)
{
    const struct dpe_scores_result *r = of->decides;
    if (!of->recall || r->shorter == NULL || r->n[DPE_VALIDATED_SHORT] < 1 ||
        !(r->shorter[0].mean > 0.0)) {
        return 0;
    }
    const double least = DPE_WORDS_USABLE * r->shorter[0].mean;
    int64_t usable = value_of(r, plan).mean >= least ? of->length : 0;
    for (int64_t i = r->n[DPE_VALIDATED_SHORT] - 1; i >= 0 && usable == 0; i--) {
        usable = r->shorter[i].mean >= least ? r->short_length[i] : 0;
    }
    return usable;
}

static void put_usable(const struct dpe_detect_words *of, struct dpe_text *out)
{
    const struct dpe_scores_result *r = of->decides;
    const int64_t unchanged = dpe_words_usable(of, "rope");
    if (unchanged <= 0) {
        return;
    }
    dpe_text_put(out, "usable length: unchanged %lld tokens", (long long)unchanged);
    if (!is_unchanged(of)) {
        dpe_text_put(out, ", with it %lld", (long long)dpe_words_usable(of, of->kept));
    }
    dpe_text_put(out, " (%.0f %% of what the model finds in a short text; read at",
                 100.0 * DPE_WORDS_USABLE);
    for (int64_t i = 0; i < r->n[DPE_VALIDATED_SHORT]; i++) {
        dpe_text_put(out, "%s %lld", i > 0 ? "," : "", (long long)r->short_length[i]);
    }
    dpe_text_put(out, " and %lld, not between)", (long long)of->length);
}

/* "recall in 1024 tokens of 4 keys of 4 values: 0.656 [0.4, 0.8]; unchanged …; possible …" */
static void put_found(const struct dpe_detect_words *of, const struct dpe_scores_result *r,
                      const char *task, struct dpe_text *out)
{
    char words[DPE_TASK_WORDS] = "";
    const bool recall = r->recall_mean != NULL;
    const struct dpe_interval kept = value_of(r, of->kept), rope = value_of(r, "rope");
    const struct dpe_interval *possible = dpe_validated_possible(r);
    if (recall) {
        dpe_identity_task_words(task, words);
    }
    dpe_text_put(out, "%s in %lld tokens%s%s: ", recall ? dpe_identity_measure(task) : "perplexity",
                 (long long)of->length, words[0] != '\0' ? " of " : "", words);
    put_value(recall, &kept, out);
    dpe_text_put(out, ", of %lld fresh samples", (long long)kept.n);
    if (!is_unchanged(of)) {
        dpe_text_put(out, "; unchanged ");
        put_value(recall, &rope, out);
        put_minus(r, "rope", " (", ")", out);
    }
    if (possible != NULL) {
        dpe_text_put(out, "; possible ");
        put_value(true, possible, out);
        dpe_text_put(out, ", in %lld tokens", (long long)r->short_length[possible - r->shorter]);
    }
}

static void put_decides(const struct dpe_detect_words *of, struct dpe_text *out)
{
    put_found(of, of->decides, of->task, out);
}

static void put_users(const struct dpe_detect_words *of, struct dpe_text *out)
{
    if (is_whole(of->users)) {
        dpe_text_put(out, "your own task: ");
        put_found(of, of->users, of->users_task, out);
    }
}

/* What the kept plan loses of one text's perplexity to the best that read it; NaN: it read none. */
static double loss_of(const struct dpe_detect_words *of)
{
    const struct dpe_searched_plan *tried = tried_of(of);
    double least = tried != NULL ? tried->nll : (double)NAN;
    for (int64_t i = 0; i < of->search->n[0] && tried != NULL; i++) {
        least = fmin(least, of->search->tried[i].nll); /* of a NaN the other */
    }
    return tried != NULL ? expm1(tried->nll - least) : (double)NAN;
}

static void put_texts(const struct dpe_detect_words *of, struct dpe_text *out)
{
    if (is_whole(of->texts)) {
        const struct dpe_interval kept = value_of(of->texts, of->kept),
                                  rope = value_of(of->texts, "rope");
        dpe_text_put(out, "perplexity ");
        put_value(false, &kept, out);
        dpe_text_put(out, "; unchanged ");
        put_value(false, &rope, out);
    } else if (of->recall && of->search != NULL && isfinite(loss_of(of))) {
        dpe_text_put(out,
                     "of one text it loses %.1f %% of perplexity to the best; dpe-eval ppl "
                     "compares more",
                     100.0 * loss_of(of));
    } else if (of->recall && of->search != NULL) {
        dpe_text_put(out, "no text was read: dpe-eval ppl compares perplexities, and a larger "
                          "--budget reads some");
    }
}

/* Of a model with states: attention that sees a window alone beside the model as it is. A window
 * finds what lies in it without any state: this share of the needles whose depth is drawn. */
static void put_states(const struct dpe_detect_words *of, struct dpe_text *out)
{
    const double share = (double)of->trained / (double)of->length;
    const struct dpe_searched_plan *rope = of->search != NULL ? of->search->tried : NULL;
    const bool drawn =
        of->task == NULL || strstr(of->task, "depth=") == strstr(of->task, "depth=drawn");
    char values[2][64];
    for (int64_t i = 1; rope != NULL && i < of->search->n[0]; i++) {
        const struct dpe_interval *alone = &rope[i].value;
        if (strstr(rope[i].method, "streaming-llm") == rope[i].method && isfinite(alone->mean)) {
            dpe_words_interval(of->recall, alone, values[0]);
            dpe_words_interval(of->recall, &rope->value, values[1]);
            dpe_text_put(out,
                         "the states or the rotation: where attention sees only the last %lld "
                         "tokens %s is %s, as it is %s (%lld and %lld contexts)",
                         (long long)of->trained, of->recall ? "recall" : "perplexity", values[0],
                         values[1], (long long)rope[i].contexts, (long long)rope->contexts);
            if (of->recall && drawn) {
                dpe_text_put(
                    out,
                    "; %.0f %% of the needles lie there, and that the states carry others is %s",
                    100.0 * share,
                    alone->low > share
                        ? "shown, whatever the plan"
                        : "not shown: what is far needs attention, which a plan moves");
            }
        }
    }
}

static void put_short(const struct dpe_detect_words *of, struct dpe_text *out)
{
    const bool plain = of->plain != NULL && strcmp(of->plain, of->kept) == 0;
    if (!is_unchanged(of)) {
        dpe_text_put(out,
                     plain ? "texts of up to %lld tokens run unchanged with the table; without an "
                             "adapter they change, and dpe-export says by how much"
                           : "texts of up to %lld tokens run unchanged",
                     (long long)of->trained);
    }
}

static void put_plain(const struct dpe_detect_words *of, struct dpe_text *out)
{
    if (of->plain == NULL) {
        return;
    }
    const struct dpe_interval value = value_of(of->decides, of->plain);
    dpe_text_put(out, "without an adapter: %s, %s ", of->plain,
                 of->recall ? dpe_identity_measure(of->task) : "perplexity");
    put_value(of->recall, &value, out);
    if (strcmp(of->plain, of->kept) != 0) {
        put_minus(of->decides, of->plain, "; the adapter is worth ", "", out);
    }
}

static void put_budget(const struct dpe_detect_words *of, struct dpe_text *out)
{
    if (of->search == NULL) {
        return;
    }
    const struct dpe_interval *possible = dpe_validated_possible(of->decides);
    const double room =
        possible != NULL ? possible->mean - value_of(of->decides, of->kept).mean : 0.0;
    dpe_text_put(out, "%lld plans were tried in %lld contexts; %s", (long long)of->search->n[0] - 1,
                 (long long)of->spent,
                 of->exhausted ? "nothing is left to try" : "a larger --budget tries more");
    if (!of->exhausted && room > 0.005) {
        dpe_text_put(out, ", with room of %.0f points", 100.0 * room);
    }
}

void dpe_words_detect(struct dpe_page *page, const struct dpe_detect_words *of)
{
    static void (*const lines[])(const struct dpe_detect_words *, struct dpe_text *) = {
        put_plan,  put_settings, put_usable, put_decides, put_users,
        put_texts, put_states,   put_short,  put_plain,   put_budget};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0] && is_whole(of->decides); i++) {
        struct dpe_text line = {0};
        lines[i](of, &line);
        say(page, i == 0 ? BLOCK_LEAD : BLOCK_TEXT, &line);
    }
}

void dpe_words_noise(struct dpe_page *page, const struct dpe_ranking_result *ranking)
{
    struct dpe_text groups = {0}, line = {0};
    int n = 0;
    for (int64_t g = 0; g < ranking->n[DPE_CELLS_GROUP] && ranking->informative != NULL; g++) {
        if (ranking->effective[g] > 0 && ranking->informative[g] == 0) {
            dpe_text_put(&groups, "%s %lld", n++ > 0 ? "," : "", (long long)g);
        }
    }
    if (n > 0) {
        dpe_text_put(&line,
                     "group%s%s: the lengths do not differ beyond noise, so rank 1 is a matter of "
                     "chance there; more --samples may help",
                     n > 1 ? "s" : "", dpe_draw_text(&groups));
    }
    dpe_text_free(&groups);
    say(page, BLOCK_NOTE, &line);
}

/* ------------------------------------------------------------------------------------- a sweep */

static double or_none(const double *values, int64_t i)
{
    return values != NULL ? values[i] : (double)NAN;
}

/* A row for each cell, with group, length, value with interval, rank, of which 1 is outlined. */
void dpe_words_cells(struct dpe_page *page, const struct dpe_scores_result *scores,
                     const struct dpe_ranking_result *ranking, bool ranks, const char *caption)
{
    static const struct {
        const char *id, *title, *bar;
    } names[2][2] = {
        {{"detect-perplexity", "Perplexity, by group and detecting length", "perplexity"},
         {"detect-perplexity-rank", "Ranks by perplexity", "rank"}},
        {{"detect-recall", "Needles found, by group and detecting length", "needles found, %"},
         {"detect-rank", "Ranks of the detecting lengths", "rank"}}};
    const bool recall = scores->recall_mean != NULL;
    const int64_t lengths = scores->n[DPE_CELLS_LENGTH];
    const double *mean = recall ? scores->recall_mean : scores->perplexity;
    const double scale = recall ? 100.0 : 1.0;
    double least = (double)NAN, most = (double)NAN;
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, names[recall][ranks].id,
                       recall  ? "group:0|length:0|recall, %:i1|rank:0|samples:0"
                       : ranks ? "group:0|length:0|perplexity:i3|rank:0|samples:0"
                               : "group:0|length:0|perplexity:i4|rank:0|samples:0",
                       "%s", page->printed ? "By detecting length" : names[recall][ranks].title);
    for (int64_t i = 0; i < scores->n[DPE_CELLS_GROUP] * lengths; i++) {
        const int64_t g = i / lengths;
        const bool flat =
            !page->printed && ranking->informative != NULL && ranking->informative[g] == 0;
        char name[32];
        struct dpe_sheet_cell group = dpe_number_cell((double)g);
        snprintf(name, sizeof name, "%s%lld", flat ? "flat " : "", (long long)g);
        group.text = name;
        least = fmin(least, mean[i]);
        most = fmax(most, mean[i]);
        dpe_draw_row(sheet, group, scores->length[i % lengths],
                     dpe_interval_cell(scale * mean[i], scale * or_none(scores->low, i),
                                       scale * or_none(scores->high, i)),
                     ranking->rank != NULL && ranking->rank[i] >= 1 ? (double)ranking->rank[i]
                                                                    : (double)NAN,
                     scores->n_valid != NULL ? (double)scores->n_valid[i] : (double)NAN);
    }
    struct dpe_plot plot = {.kind = PLOT_HEAT,
                            .told = true,
                            DPE_COLUMNS(0, 1, ranks ? 3 : 2),
                            .framed = ranking->rank != NULL ? 3 : 0,
                            DPE_ENDS(ranks ? 1.0 : 0.0, ranks    ? (double)lengths
                                                        : recall ? 100.0
                                                                 : 0.0),
                            .log = !ranks && !recall,
                            .low_is_good = ranks || !recall,
                            .digits = ranks || recall ? 0 : 3,
                            DPE_TITLES("detecting length, tokens",
                                       "frequency group (0 turns fastest)",
                                       names[recall][ranks].bar)};
    if (page->printed && !recall) { /* small ones are bright */
        plot.low = most;
        plot.high = least;
        plot.digits = 2;
    }
    dpe_page_figure(page, sheet, &plot, "%s", caption);
}

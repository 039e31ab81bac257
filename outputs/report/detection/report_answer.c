/* The result of a detection: how the chosen lengths score at the target length. */
#include "engine/base/p_text.h"
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROPE, BASE, JOINT, VALIDATED, MOST_VALIDATED = 16 };

static const char *const meaning[VALIDATED] = {"unchanged (rope)", "all groups at half (base)",
                                               "chosen lengths (dpe)"};

/** What was measured of the chosen lengths on samples of their own. */
struct validation {
    const char *folder; /**< /validate/niah or /validate/ppl */
    bool recall;
    bool frequencies; /* of the detection */
    struct dpe_dataset datasets[DPE_VALIDATED_DATASETS];
    struct dpe_dataset_kind kind;
    struct dpe_scores_result r;
    const double *mean; /**< [plan] of r */
    int64_t together;   /* samples in a row that count as one */
    int64_t needed;     /* samples that would show the difference; 0 = unknown */
    char *samples;
    int n, kept; /* plans; the one that the table holds */
};

static void validation_free(struct validation *v)
{
    dpe_datasets_free(&v->kind, &v->r);
    free(v->samples);
    *v = (struct validation){0};
}

static const char *plan_name(const struct validation *v, int plan)
{
    if (plan < VALIDATED) {
        return v->frequencies && plan == BASE    ? "frequencies that go round kept (base)"
               : v->frequencies && plan == JOINT ? "chosen factors"
                                                 : meaning[plan];
    }
    return strcmp(v->r.plan[plan], "single") == 0 ? "one length for all groups" : v->r.plan[plan];
}

/* How many plans there are, and which of them the table holds: the joint one unless it says so. */
static dpe_status count_plans(const struct input *input, struct validation *v,
                              struct dpe_error *err)
{
    const int64_t n = v->r.n[DPE_VALIDATED_PLAN];
    if (n < VALIDATED || n > MOST_VALIDATED || v->r.n[DPE_VALIDATED_OTHER] != n - 1) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: %s: expected %d to %d plans, and the joint one compared with the others; "
            "found %lld",
            input->path, v->folder, VALIDATED, MOST_VALIDATED, (long long)n);
    }
    v->n = (int)n;
    v->kept = JOINT;
    char *kept = dpe_input_read_words(input, "/validate", "kept");
    for (int i = 0; kept != NULL && i < v->n; i++) {
        v->kept = strcmp(v->r.plan[i], kept) == 0 ? i : v->kept;
    }
    free(kept);
    return DPE_OK;
}

static dpe_status read_validation(const struct detection *d, const char *folder, bool recall,
                                  struct validation *v, struct dpe_error *err)
{
    const struct input *input = d->input;
    *v = (struct validation){.folder = folder, .recall = recall, .frequencies = d->frequencies};
    v->kind = dpe_validated_datasets(recall, v->datasets);
    if (!dpe_h5_has(input->table, folder)) {
        return dpe_h5_answered(input->table, err);
    }
    dpe_status status =
        dpe_input_get(input, &v->kind, &v->r, folder,
                      "recall_mean perplexity ci_low ci_high n_valid difference difference_low "
                      "difference_high p_value n_pairs",
                      err);
    v->mean = recall ? v->r.recall_mean : v->r.perplexity;
    if (status == DPE_OK && (v->mean == NULL || v->r.low == NULL || v->r.high == NULL ||
                             v->r.n_valid == NULL || v->r.difference == NULL || v->r.p == NULL)) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: %s is not complete", input->path, folder);
    }
    status = status == DPE_OK ? count_plans(input, v, err) : status;
    v->samples = dpe_input_read_words(input, folder, "samples");
    v->together = dpe_input_read_whole(input, folder, "samples_together", 1);
    v->needed = dpe_input_read_whole(input, folder, "samples_needed", 0);
    return status;
}

/* ------------------------------------------------------------------------------------------ words
 */

/* What the table holds. */
static void kept_words(const struct detection *d, const struct validation *v, char *text, size_t size)
{
    const char *what = v->kept == BASE && d->frequencies ? "the base"
                       : v->kept == BASE                 ? "every group at half the trained length"
                       : v->kept == ROPE                 ? "no change"
                                                         : plan_name(v, v->kept);
    bool joint = d->rule != NULL && strcmp(d->rule, "joint") == 0;
    if (v->kept == JOINT) {
        snprintf(text, size, "%s",
                 joint ? "the plan that the search below found" : "the effective lengths chosen below");
    } else {
        snprintf(text, size, "%s, which the table holds because it did better than what %s", what,
                 joint ? "the search found" : "was chosen");
    }
}

static void add_lead(struct report *report, const struct detection *d, const struct validation *v)
{
    char values[VALIDATED][96];
    char length[32];
    char kept[512];
    char times[64] = "";
    double trained = dpe_detection_trained(d);
    double target = dpe_detection_length(d);
    for (int i = 0; i < VALIDATED; i++) {
        const int plan = i == JOINT ? v->kept : i;
        const struct dpe_interval value = {v->mean[plan], v->r.low[plan], v->r.high[plan], 0};
        dpe_report_value(&value, v->recall, values[i]);
    }
    if (trained > 0.0) {
        snprintf(times, sizeof times, ", %.3g times its trained length,", target / trained);
    }
    dpe_draw_length_text(target, length);
    kept_words(d, v, kept, sizeof kept);
    if (dpe_detection_is_ready(d)) {
        dpe_report_say(
            report, BLOCK_LEAD,
            "At %s tokens%s the model finds %s of the needles with %s, the best of the "
            "methods that the table can hold. Unchanged, it finds %s. A method that finds "
            "least in the first texts reads no more of them.",
            length, times, values[JOINT], plan_name(v, v->kept), values[ROPE]);
    } else {
        dpe_report_say(
            report, BLOCK_LEAD,
            v->recall ? "Validated at %s tokens%s the model finds %s of the needles with "
                        "%s. Unchanged, it finds %s; with %s, %s."
                      : "Validated at %s tokens%s the model has a perplexity of %s with %s. "
                        "Unchanged, it has %s; with %s, %s.",
            length, times, values[JOINT], kept, values[ROPE], dpe_detection_base(d), values[BASE]);
    }
    if (v->recall && d->task[0] != '\0') {
        dpe_report_say(report, BLOCK_TEXT,
                       "The texts have %s. On other tasks the plan may find less: dpe-eval niah "
                       "--table with another --niah measures it.",
                       d->task);
    }
    const char *selection = dpe_identity_get(&d->input->identity, "selection");
    if (selection != NULL) {
        dpe_report_say(
            report, BLOCK_TEXT,
            "Every query met only the keys of the selection %s, but with the unchanged model. "
            "The table alone does not apply it: --method select:%s,over=table:FILE does.",
            selection, selection);
    }
}

/* Better or worse when the interval of the difference excludes 0 and the sign-flip test agrees:
 * means of a few contexts drawn again and again vary less than new contexts would. */
static char *verdict_text(const struct validation *v)
{
    static const double level = 0.05;
    bool real = v->r.p[BASE] < level;
    bool above = real && v->r.difference[BASE].low > 0.0;
    bool below = real && v->r.difference[BASE].high < 0.0;
    double n = (double)v->r.difference[BASE].n;
    const char *base = v->frequencies ? "the base" : "half the trained length for every group";
    if (!(n > 0.0)) {
        return dpe_draw_format_text("The chosen lengths could not be compared with %s: no sample "
                                    "has a valid result under both plans.",
                                    base);
    }
    if (v->recall ? above : below) {
        return dpe_draw_format_text("The chosen lengths are better than %s.", base);
    }
    if (v->recall ? below : above) {
        return dpe_draw_format_text(
            "The chosen lengths are worse than %s: groups are chosen one at a time, and good choices "
            "can be bad together.%s",
            base, v->kept != JOINT ? " So the table holds the better plan."
                             : " Use half the trained length for every group, or choose again with "
                               "dpe-detect's --select joint, which ends with the better plan.");
    }
    bool outside = v->r.difference[BASE].low > 0.0 || v->r.difference[BASE].high < 0.0;
    return dpe_draw_format_text(
        "The chosen lengths are not distinguishable from %s with %.0f %s%s%s.", base, n,
        v->recall ? "sample" : "book", n == 1.0 ? "" : "s",
        outside
            ? ": the interval of the difference leaves 0 out, but drawing so few again and again "
              "varies less than new ones would, and the test does not reject that "
              "there is none"
            : "");
}

/* "+12", "-3.14", and "0" for what rounds to it. */
static void signed_text(double value, int digits, char text[32])
{
    snprintf(text, 32, "%+.*f", digits, value);
    if (strtod(text, NULL) == 0.0) {
        snprintf(text, 32, "0");
    }
}

/* What to do where the samples cannot decide; "" where they can. */
static void advice(const struct validation *v, char *text, size_t size)
{
    text[0] = '\0';
    if (v->recall && v->mean[BASE] >= 1.0 && v->mean[JOINT] >= 1.0) {
        snprintf(text, size,
                 " Both find every needle: the task is too easy at this length to compare lengths. "
                 "Make it harder with --niah keys=4,values=4, --keys-per-context 4 or a larger "
                 "--length.");
    } else if (v->needed > 0) {
        snprintf(text, size, " About %lld %s would show a difference of this size.",
                 (long long)v->needed, v->recall ? "samples" : "books");
    }
}

static void add_verdict(struct report *report, const struct validation *v)
{
    double scale = v->recall ? 100.0 : 1.0;
    int digits = v->recall ? 0 : 3;
    char p[32], difference[32], low[32], high[32], interval[128] = "", contexts[96] = "";
    char more[256];
    char *verdict = verdict_text(v);
    if (verdict == NULL || v->r.difference[BASE].n <= 0) {
        dpe_report_say(report, BLOCK_TEXT, "%s", verdict != NULL ? verdict : "");
        free(verdict);
        return;
    }
    dpe_p_text(v->r.p[BASE], p);
    signed_text(v->r.difference[BASE].mean * scale, digits, difference);
    signed_text(v->r.difference[BASE].low * scale, digits, low);
    signed_text(v->r.difference[BASE].high * scale, digits, high);
    /* A single context has no interval. */
    if (!isnan(v->r.difference[BASE].low)) {
        snprintf(interval, sizeof interval, "95\u00a0%% interval %s to %s, ", low, high);
    }
    if (v->together > 1) {
        snprintf(contexts, sizeof contexts,
                 " (%lld in a row share a context and count as one in the statistics)",
                 (long long)v->together);
    }
    advice(v, more, sizeof more);
    dpe_report_say(
        report, BLOCK_TEXT,
        "%s On the same %.0f %s%s%s, the difference is %s %s (%s%s in a sign-flip test).%s%s%s%s",
        verdict, (double)v->r.difference[BASE].n, v->recall ? "sample" : "book",
        (double)v->r.difference[BASE].n == 1.0 ? "" : "s", contexts, difference,
        v->recall ? "percentage points" : "nats per token", interval, p,
        v->samples != NULL ? " These samples are " : "", v->samples != NULL ? v->samples : "",
        v->samples != NULL ? "." : "", more);
    free(verdict);
}

static void add_dots(struct report *report, const struct detection *d, const struct validation *v)
{
    const bool ready = dpe_detection_is_ready(d);
    const double scale = v->recall ? 100.0 : 1.0;
    char length[32];
    const struct plot plot = {.kind = PLOT_DOTS,
                              .value = 1,
                              .high = v->recall ? 100.0 : 0.0,
                              .log = !v->recall,
                              .digits = v->recall ? 1 : 2,
                              .x_title = v->recall ? "needles found, %" : "perplexity per token"};
    struct sheet *sheet = dpe_report_sheet(
        report, v->recall ? "validation" : "validation-perplexity",
        v->recall ? "plan:@|recall, %:i1|valid samples:0" : "plan:@|perplexity:i3|valid samples:0",
        "%s at the target length", v->recall ? "Needles found" : "Perplexity");
    for (int i = 0; i < v->n; i++) {
        if (ready && v->r.n_valid[i] == 0) {
            continue; /* the base, where another plan can be the table */
        }
        dpe_draw_row(
            sheet, dpe_text_cell(plan_name(v, i)),
            dpe_interval_cell(scale * v->mean[i], scale * v->r.low[i], scale * v->r.high[i]),
            dpe_number_cell((double)v->r.n_valid[i]));
        dpe_draw_row_mark(sheet, i == v->kept ? ROW_STRONG : 0);
    }
    dpe_report_figure(report, sheet, &plot,
                      "The plans on the same samples of %s tokens, with 95\u00a0%% intervals%s. "
                      "Whether two plans differ is not visible from these intervals%s.",
                      dpe_draw_length_text(dpe_detection_length(d), length),
                      v->recall ? "" : " (lower is better)",
                      ready ? "" : "; the paired test above compares them sample by sample");
}

/* ---------------------------------------------------------------------------------------- section
 */

/* In comparisons the plan that the table holds is called by its file. Of several detections all may be called
 * detect.h5. */
static void name_table(const struct report *report, const struct detection *d,
                       const struct validation *v)
{
    size_t n = 0;
    for (size_t i = 0; i < report->n; i++) {
        n += dpe_h5_has(report->inputs[i].table, DETECTION);
    }
    char *name = n == 1 ? dpe_draw_format_text("table:%s", d->input->name) : NULL;
    if (name != NULL) {
        dpe_draw_same_method(name, plan_name(v, v->kept));
    }
    free(name);
}

/* What the plan loses in predicting texts, and what it was traded for. */
static void add_guard(struct report *report, const struct detection *d)
{
    char *words = dpe_input_read_words(d->input, "/validate/guard", "words");
    if (words != NULL && words[0] != '\0') {
        dpe_report_say(report, BLOCK_TEXT, "Texts beside needles: %s.", words);
    }
    free(words);
}

/* How the lengths were chosen, and which they are. */
static dpe_status add_lengths(struct report *report, const struct detection *d,
                              struct dpe_error *err)
{
    char length[32];
    dpe_detection_recall_map(report, d);
    dpe_report_say(
        report, BLOCK_TEXT,
        "A rotary position embedding (RoPE) rotates each pair of a head's dimensions at its "
        "own frequency. %s divided by the scale of the pair's frequency group, so that %s "
        "tokens span no more than the group's effective length, a length at which these "
        "pairs still work.",
        d->frequencies ? "The frequency, and so every distance, is"
                       : "The distances of far keys are",
        dpe_draw_length_text(dpe_detection_length(d), length));
    if (dpe_detection_is_selected(d)) {
        dpe_report_say(report, BLOCK_TEXT, "The lengths were chosen by the rule \"%s\"%s%s.",
                       d->rule, d->rule_words != NULL ? ": " : "",
                       d->rule_words != NULL ? d->rule_words : "");
    }
    dpe_detection_lengths(report, d);
    return dpe_detection_search(report, d, err);
}

static void add_validated(struct report *report, const struct detection *d,
                          const struct validation *v)
{
    if (v->mean == NULL) {
        dpe_report_say(report, BLOCK_LEAD,
                       "The plan of all chosen lengths together was not measured (the run is "
                       "%s), so how well it works is unknown.",
                       dpe_input_read_whole(d->input, "/", "complete", 0) != 0 ? "complete"
                                                                               : "unfinished");
    } else {
        add_lead(report, d, v);
        if (!dpe_detection_is_ready(d)) { /* there is no plan that was chosen by lengths */
            add_verdict(report, v);
        }
        add_guard(report, d);
    }
    name_table(report, d, v);
}

dpe_status dpe_detection_answer(struct report *report, const struct detection *d,
                                struct dpe_error *err)
{
    static const char *const folders[2] = {"/validate/niah", "/validate/ppl"};
    char length[32];
    dpe_report_section(report, "Result at %s tokens",
                       dpe_draw_length_text(dpe_detection_length(d), length));
    struct validation all[2] = {0};
    dpe_status status = read_validation(d, folders[0], true, &all[0], err);
    status = status == DPE_OK ? read_validation(d, folders[1], false, &all[1], err) : status;
    if (status == DPE_OK) {
        add_validated(report, d, &all[d->by_recall ? 0 : 1]);
    }
    if (status == DPE_OK && !dpe_detection_is_ready(d)) {
        status = add_lengths(report, d, err);
    }
    for (int i = 0; i < 2 && status == DPE_OK; i++) {
        if (all[i].mean != NULL) {
            add_dots(report, d, &all[i]);
        }
    }
    validation_free(&all[0]);
    validation_free(&all[1]);
    return status;
}

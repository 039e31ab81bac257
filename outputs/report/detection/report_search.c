/* The search for temperature and joint plan: a table for each step that tried something. */
#include "engine/base/p_text.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>

/* "256", or "256, 128, …"; the base's where that is no detecting length. */
static void lengths_text(const struct dpe_report_detection *d, const struct dpe_search_result *s,
                         size_t tried, char *text, size_t size)
{
    const int64_t *length = s->length + tried * (size_t)d->n_groups;
    bool single = true;
    for (int64_t g = 1; g < d->n_groups; g++) {
        single = single && length[g] == length[0];
    }
    text[0] = '\0';
    for (int64_t g = 0; g < (single ? 1 : d->n_groups); g++) {
        double tokens = length[g] > 0 ? (double)length[g]
                                      : (d->frequencies ? 1.0 : 0.5) * dpe_detection_trained(d);
        dpe_append(text, size, "%s%.10g", g > 0 ? ", " : "", tokens);
    }
}

/* "all pairs", "24 key pairs"; nothing where the search did not vary it. */
static void pairs_text(const struct dpe_search_result *s, size_t tried, char *text, size_t size)
{
    text[0] = '\0';
    if (s->top_k != NULL && s->top_k[tried] < 0) {
        snprintf(text, size, "all pairs");
    } else if (s->top_k != NULL) {
        snprintf(text, size, "%lld key pairs", (long long)s->top_k[tried]);
    }
}

static void add_step(struct dpe_report *report, const struct dpe_report_detection *d,
                     const struct dpe_search_result *s, size_t step)
{
    char id[64], title[128], p[32], columns[160];
    snprintf(id, sizeof id, "search-%zu", step + 1);
    snprintf(title, sizeof title, "Step %zu: %.40s, round %d", step + 1, s->steps[step].move,
             s->steps[step].round + 1);
    snprintf(
        columns, sizeof columns,
        "plan:t|temperature, or method:t|window:0|lengths of groups:t|%s%s:i3|samples:0|gain:3",
        s->top_k != NULL ? "pairs:t|" : "", d->by_recall ? "recall" : "nats per token");
    struct dpe_sheet *sheet = dpe_report_sheet(report, id, columns, "%s", title);
    bool first = true;
    for (size_t i = 0; i < (size_t)s->n[DPE_SEARCH_TRIED]; i++) {
        const struct dpe_searched_plan *tried = &s->tried[i];
        char lengths[4096], pairs[64];
        if (tried->step != (int32_t)step) {
            continue;
        }
        bool chosen = s->steps[step].chosen == (int32_t)i;
        lengths_text(d, s, i, lengths, sizeof lengths);
        const bool other = tried->method != NULL && tried->method[0] != '\0';
        dpe_draw_row(sheet,
                     chosen  ? "taken"
                     : first ? "before"
                             : "tried",
                     other ? tried->method : tried->temperature, tried->window, lengths);
        if (s->top_k != NULL) {
            pairs_text(s, i, pairs, sizeof pairs);
            dpe_draw_cell(sheet, dpe_text_cell(pairs));
        }
        dpe_draw_row(sheet, dpe_scaled_cell(&tried->value, 1.0), tried->samples, tried->gain);
        first = false;
    }
    if (isnan(s->steps[step].p)) {
        dpe_report_say(report, BLOCK_TEXT, "%s: no change was better on all samples.", title);
    } else {
        dpe_report_say(report, BLOCK_TEXT, "%s: the best change has %s in a sign-flip test.", title,
                       dpe_p_text(s->steps[step].p, p));
    }
    dpe_report_add(report, sheet);
}

void dpe_detection_search(struct dpe_report *report, const struct dpe_report_detection *d)
{
    if (!dpe_h5_has(d->input->table, "/search/move")) {
        return;
    }
    const struct dpe_search_result *s =
        dpe_input_get(report, d->input, &dpe_search_kinds[0], "/search", NULL);
    if (s != NULL && s->n[DPE_SEARCH_GROUP] != d->n_groups) {
        dpe_report_ok(report, dpe_fail(report->err, DPE_BAD_DATA,
                                       "%s: /search/length: expected %lld groups", d->input->path,
                                       (long long)d->n_groups));
    }
    const int64_t steps = report->status == DPE_OK ? s->n[DPE_SEARCH_STEP] : 0;
    int64_t left = 0;
    if (steps > 0) {
        dpe_report_say(
            report, BLOCK_TEXT,
            "Each step of the search runs the plan so far on all samples and its changes by "
            "sequential halving, and takes one only when a test shows that it is better.");
    }
    for (int64_t i = 0; i < steps; i++) {
        left += s->steps[i].tested == 0;
        if (s->steps[i].tested != 0) {
            add_step(report, d, s, (size_t)i);
        }
    }
    if (left > 0) {
        dpe_report_say(report, BLOCK_TEXT,
                       "%lld of %lld steps were not run: the plan before them loses too "
                       "little for a test of these samples to show an improvement.",
                       (long long)left, (long long)steps);
    }
}

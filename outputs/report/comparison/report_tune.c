/* A tuning: which setting of each method its race chose, and what fresh samples say of it. */
#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdlib.h>

static void add_interval(struct sheet *sheet, const struct dpe_interval *share)
{
    dpe_draw_sheet_interval(sheet, 100.0 * share->mean, 100.0 * share->low, 100.0 * share->high);
}

/* Whether no method at this length has a larger mean. */
static bool is_best(const struct dpe_tune_result *t, int64_t i)
{
    bool best = !isnan(t->tuned[i].tuned.mean);
    for (int64_t k = 0; k < t->n[0]; k++) {
        best = best && !(t->tuned[k].length == t->tuned[i].length &&
                         t->tuned[k].tuned.mean > t->tuned[i].tuned.mean);
    }
    return best;
}

static void add_sheet(struct report *report, const struct input *input,
                      const struct dpe_tune_result *t)
{
    char *id = dpe_input_report_id(report, input, "/tune/method", "tune");
    struct sheet *sheet =
        id == NULL ? NULL : dpe_draw_sheet_new(id, "Recall on fresh samples, in percent");
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "chosen setting", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "defaults", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "tuned", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "tuned - defaults", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "p", COLUMN_P, 4);
    dpe_draw_sheet_column(sheet, "rows of the race", COLUMN_NUMBER, 0);
    for (int64_t i = 0; i < t->n[0]; i++) {
        const struct dpe_tuned *tuned = &t->tuned[i];
        dpe_draw_sheet_text(sheet, tuned->method);
        dpe_draw_sheet_number(sheet, (double)tuned->length);
        dpe_draw_sheet_text(sheet, tuned->chosen);
        add_interval(sheet, &tuned->plain);
        add_interval(sheet, &tuned->tuned);
        dpe_draw_sheet_mark(sheet, is_best(t, i) ? MARK_BEST : 0);
        add_interval(sheet, &tuned->gain);
        dpe_draw_sheet_number(sheet, tuned->gain_p);
        dpe_draw_sheet_number(sheet, (double)tuned->rows);
    }
    dpe_draw_add_sheet(&report->document, sheet);
    free(id);
}

static dpe_status add_tuned(struct report *report, const struct input *input, struct dpe_error *err)
{
    struct dpe_tune_result t = {0};
    dpe_status status = dpe_input_get(input, &dpe_tune_kind, &t, "/tune", NULL, err);
    if (status == DPE_OK) {
        dpe_draw_add_text(&report->document, BLOCK_SECTION,
                          dpe_input_section_title(report, input, "/tune/method",
                                                  "Settings of methods"));
        dpe_input_add_unfinished(report, input);
        dpe_draw_add_text(
            &report->document, BLOCK_TEXT,
            dpe_draw_format_text(
                "The settings of each method raced with as many rows as those of the others. The "
                "setting with the best mean was then run on %lld fresh samples, beside the method at "
                "its defaults. 95 %% intervals; p is of a sign-flip test of the difference, not "
                "corrected for the number of methods. The largest mean of each length is bold.",
                (long long)dpe_input_read_whole(input, "/tune", "fresh_samples", 0)));
        add_sheet(report, input, &t);
    }
    dpe_datasets_free(&dpe_tune_kind, &t);
    return status;
}

dpe_status dpe_comparison_tunings(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/tune/method")) {
            status = add_tuned(report, &report->inputs[i], err);
        }
    }
    return status;
}

/* A tuning: which setting of each method its race chose, and what fresh samples say of it. */
#include "outputs/report/comparison/report_eval.h"

#include <math.h>

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

static void add_sheet(struct report *report, const struct dpe_tune_result *t)
{
    struct sheet *sheet = dpe_report_sheet(
        report, "tune",
        "method:t|length:0|chosen setting:t|defaults:i1|tuned:i1|tuned - defaults:i1|p:p|"
        "rows of the race:0",
        "Recall on fresh samples, in percent");
    for (int64_t i = 0; i < t->n[0]; i++) {
        const struct dpe_tuned *one = &t->tuned[i];
        struct sheet_cell tuned = dpe_scaled_cell(&one->tuned, 100.0);
        tuned.mark = is_best(t, i) ? MARK_BEST : 0;
        dpe_draw_row(sheet, dpe_text_cell(one->method), dpe_number_cell((double)one->length),
                     dpe_text_cell(one->chosen), dpe_scaled_cell(&one->plain, 100.0), tuned,
                     dpe_scaled_cell(&one->gain, 100.0), dpe_number_cell(one->gain_p),
                     dpe_number_cell((double)one->rows));
    }
    dpe_report_add(report, sheet);
}

static dpe_status write_tuned(struct report *report, const struct input *input,
                              struct dpe_error *err)
{
    struct dpe_tune_result t = {0};
    dpe_status status = dpe_input_get(input, &dpe_tune_kind, &t, "/tune", NULL, err);
    if (status == DPE_OK) {
        dpe_report_section(report, "Settings of methods");
        dpe_report_unfinished(report);
        dpe_report_say(
            report, BLOCK_TEXT,
            "The settings of each method raced with as many rows as those of the others. The "
            "setting with the best mean was then run on %lld fresh samples, beside the method at "
            "its defaults. 95 %% intervals; p is of a sign-flip test of the difference, not "
            "corrected for the number of methods. The largest mean of each length is bold.",
            (long long)dpe_input_read_whole(input, "/tune", "fresh_samples", 0));
        add_sheet(report, &t);
    }
    dpe_datasets_free(&dpe_tune_kind, &t);
    return status;
}

dpe_status dpe_comparison_tunings(struct report *report, struct dpe_error *err)
{
    return dpe_report_each(report, "/tune/method", NULL, write_tuned, err);
}

/* A tuning: which setting of each method its race chose, and what fresh samples say of it. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdlib.h>

enum { PLAIN, TUNED, GAIN, QUANTITIES };

struct tuned {
    const struct input *input;
    struct names method, chosen; /**< [n] a method at one length */
    struct numbers length, rows, p;
    struct numbers value[QUANTITIES][3]; /**< mean and the ends of its interval */
};

static void tuned_free(struct tuned *t)
{
    dpe_input_names_free(&t->method);
    dpe_input_names_free(&t->chosen);
    dpe_input_numbers_free(&t->length);
    dpe_input_numbers_free(&t->rows);
    dpe_input_numbers_free(&t->p);
    for (int i = 0; i < QUANTITIES * 3; i++) {
        dpe_input_numbers_free(&t->value[i / 3][i % 3]);
    }
}

static dpe_status read_tuned(const struct input *input, struct tuned *t, struct dpe_error *err)
{
    *t = (struct tuned){.input = input};
    dpe_status status = dpe_input_read_names(input, "/tune/method", -1, &t->method, err);
    int64_t n = (int64_t)t->method.n;
    if (status == DPE_OK) {
        status = dpe_input_read_names(input, "/tune/chosen", n, &t->chosen, err);
    }
    if (status != DPE_OK) {
        return status;
    }
    const struct wanted wanted[] = {
        {"/tune/length", 1, {n}, true, &t->length},
        {"/tune/rows", 1, {n}, true, &t->rows},
        {"/tune/gain_p", 1, {n}, true, &t->p},
        {"/tune/default_mean", 1, {n}, true, &t->value[PLAIN][0]},
        {"/tune/default_ci_low", 1, {n}, true, &t->value[PLAIN][1]},
        {"/tune/default_ci_high", 1, {n}, true, &t->value[PLAIN][2]},
        {"/tune/mean", 1, {n}, true, &t->value[TUNED][0]},
        {"/tune/ci_low", 1, {n}, true, &t->value[TUNED][1]},
        {"/tune/ci_high", 1, {n}, true, &t->value[TUNED][2]},
        {"/tune/gain", 1, {n}, true, &t->value[GAIN][0]},
        {"/tune/gain_ci_low", 1, {n}, true, &t->value[GAIN][1]},
        {"/tune/gain_ci_high", 1, {n}, true, &t->value[GAIN][2]},
    };
    return dpe_input_read_wanted(input, wanted, sizeof wanted / sizeof wanted[0], err);
}

static void add_interval(struct sheet *sheet, const struct numbers value[3], size_t i)
{
    dpe_draw_sheet_interval(sheet, 100.0 * value[0].values[i], 100.0 * value[1].values[i],
                            100.0 * value[2].values[i]);
}

/* Whether no method at this length has a larger mean. */
static bool is_best(const struct tuned *t, size_t i)
{
    const double *mean = t->value[TUNED][0].values;
    bool best = !isnan(mean[i]);
    for (size_t k = 0; k < t->method.n; k++) {
        best = best && !(t->length.values[k] == t->length.values[i] && mean[k] > mean[i]);
    }
    return best;
}

static void add_sheet(struct report *report, const struct tuned *t)
{
    char *id = dpe_input_report_id(report, t->input, "/tune/method", "tune");
    struct sheet *sheet =
        id == NULL ? NULL : dpe_draw_sheet_new(id, "Recall on fresh samples, in percent");
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "chosen setting", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "defaults", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "tuned", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "tuned - defaults", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "p", COLUMN_NUMBER, 4);
    dpe_draw_sheet_column(sheet, "rows of the race", COLUMN_NUMBER, 0);
    for (size_t i = 0; i < t->method.n; i++) {
        dpe_draw_sheet_text(sheet, t->method.names[i]);
        dpe_draw_sheet_number(sheet, t->length.values[i]);
        dpe_draw_sheet_text(sheet, t->chosen.names[i]);
        add_interval(sheet, t->value[PLAIN], i);
        add_interval(sheet, t->value[TUNED], i);
        dpe_draw_sheet_mark(sheet, is_best(t, i) ? MARK_BEST : 0);
        add_interval(sheet, t->value[GAIN], i);
        dpe_draw_sheet_number(sheet, t->p.values[i]);
        dpe_draw_sheet_number(sheet, t->rows.values[i]);
    }
    dpe_draw_add_sheet(&report->document, sheet);
    free(id);
}

static dpe_status add_tuned(struct report *report, const struct input *input, struct dpe_error *err)
{
    struct tuned t;
    dpe_status status = read_tuned(input, &t, err);
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
        add_sheet(report, &t);
    }
    tuned_free(&t);
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

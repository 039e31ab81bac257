/* --budget: what fits into it, and what is left out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"

/* From everything downwards: what is left out first is what changes least. */
static const struct setting {
    const char *without; /* what is left out, in words */
    bool sweeps;         /* the sweep of groups */
    bool pairs;          /* --top-k auto; else all pairs move */
    bool diverges;       /* from the unchanged model: of a GGUF */
    int64_t excerpts;    /* of each length of the profile; 1: of the shortest length alone */
    int64_t check;       /* samples of the check */
} settings[] = {
    {"nothing", true, true, true, 10, 100},
    {"the sweep of groups", false, true, true, 5, 64},
    {"the sweep of groups and the choice of key pairs, so that all move", false, false, true, 1,
     48},
    {"the sweep of groups, the choice of key pairs and the divergence from the unchanged model",
     false, false, false, 1, 16},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* Of a budget the estimate may take this share: measuring the machine, exports and the report come
 * on top. And the share of what is left that the search gets: the check gets the rest. */
static const double usable = 0.92;
static const double searched = 0.7;

/* The arguments with a setting, where they were not given, and with a search of `tokens`. */
static void apply(struct batch *batch, const struct setting *setting, double tokens)
{
    static char shortest[24];
    const struct calibrate_arguments *line = batch->line;
    const int64_t trained = batch->job.trained_length;
    struct calibrate_arguments *args = &batch->fitted;
    const struct dpe_tool_options tool = args->detect.job.tool;
    *args = *line;
    args->detect.job.tool = tool;
    args->detect.budget = (struct dpe_detect_budget){.tokens = tokens};
    if (args->detect.rule == DPE_DETECT_BOTH && !setting->sweeps) {
        args->detect.rule = DPE_DETECT_SEARCH;
    }
    if (!args->detect.job.samples_given) {
        args->check_samples = setting->check;
    }
    if (!args->top_k_given && !setting->pairs) {
        args->top_k = "all";
    }
    args->norm_samples = setting->excerpts;
    if (setting->excerpts == 1) {
        snprintf(shortest, sizeof shortest, "%lld", (long long)dpe_least(trained / 4, 2048));
        args->norms.lengths = shortest;
    }
    batch->args = args;
    batch->chooses = strcmp(args->top_k, CALIBRATE_AUTO) == 0 && !batch->pairless;
    batch->diverges = batch->diverges && setting->diverges;
}

/* Of what was given, in its own units. */
static double taken(const struct batch *batch, const struct dpe_bill *bill)
{
    return batch->line->detect.budget.tokens > 0.0 ? bill->tokens : bill->time.high;
}

static double given(const struct batch *batch)
{
    const struct dpe_detect_budget *budget = &batch->line->detect.budget;
    return budget->tokens > 0.0 ? budget->tokens : usable * budget->seconds;
}

static dpe_status price(struct batch *batch, const struct setting *setting, double tokens,
                        struct dpe_bill *bill, struct dpe_error *err)
{
    apply(batch, setting, tokens);
    *bill = (struct dpe_bill){0};
    return dpe_calibrate_price(batch, CALIBRATE_PRICE, bill, err);
}

/* What is left goes into the search: by the price of one that reads twice as much. */
static dpe_status widen(struct batch *batch, const struct setting *setting, double left,
                        double least, double before, struct dpe_error *err)
{
    struct dpe_bill bill = {0};
    DPE_TRY(price(batch, setting, 2.0 * least, &bill, err));
    const double more = taken(batch, &bill) - before;
    double tokens = more > 0.0 ? least * (1.0 + searched * left / more) : least;
    DPE_TRY(dpe_job_tell(&batch->job, &tokens, sizeof tokens, err)); /* as rank 0 has measured it */
    return price(batch, setting, tokens, &bill, err);
}

dpe_status dpe_calibrate_fit(struct batch *batch, struct dpe_error *err)
{
    char text[64];
    struct dpe_bill bill = {0};
    const bool diverges = batch->diverges;
    if (!dpe_detect_budgeted(&batch->line->detect.budget)) {
        return DPE_OK;
    }
    batch->fitted = *batch->line;
    for (int i = 0; i < SETTINGS; i++) {
        const double least = (double)(2 * DETECT_BUDGET * batch->entry->length); /* and fresh */
        batch->diverges = diverges;
        DPE_TRY(price(batch, &settings[i], least, &bill, err));
        if (bill.untimed && batch->line->detect.budget.seconds > 0.0) {
            return dpe_fail(err, DPE_USAGE,
                            "--budget: how fast this model runs here cannot be measured, so no "
                            "time can be kept; give tokens (--budget 20Mtok)");
        }
        const double left = given(batch) - taken(batch, &bill);
        bool fits = left >= 0.0;
        DPE_TRY(dpe_job_tell(&batch->job, &fits, sizeof fits, err));
        if (fits) {
            dpe_log_info("--budget: left out: %s", settings[i].without);
            return widen(batch, &settings[i], left, least, taken(batch, &bill), err);
        }
    }
    /* None fits for certain: the smallest is taken where it may. */
    bool may = batch->line->detect.budget.seconds > 0.0 &&
               bill.time.low <= batch->line->detect.budget.seconds;
    DPE_TRY(dpe_job_tell(&batch->job, &may, sizeof may, err));
    dpe_job_range_text(&bill.time, text);
    if (!may) {
        return dpe_fail(err, DPE_USAGE,
                        "--budget: the smallest calibration takes %s here, and %.0f tokens; give "
                        "more, or run dpe-detect alone",
                        text, ceil(bill.tokens));
    }
    dpe_log_warning("--budget: the smallest calibration takes %s here: it may end later", text);
    return DPE_OK;
}

dpe_status dpe_calibrate_fit_check(struct batch *batch, struct dpe_error *err)
{
    enum { MOST = 400, UNIT = 4 };
    struct calibrate_arguments *args = &batch->fitted;
    struct dpe_bill bill = {0};
    const double seconds = batch->line->detect.budget.seconds;
    if (seconds <= 0.0 || args->check_samples == 0) {
        return DPE_OK;
    }
    const double left = usable * seconds - (dpe_clock() - batch->job.begin);
    const int64_t planned = args->check_samples;
    const int64_t unit = dpe_most(dpe_calibrate_together(batch), UNIT);
    args->check_samples = unit;
    dpe_status status = dpe_calibrate_check(batch, CALIBRATE_PRICE, &bill, err);
    args->check_samples = planned;
    DPE_TRY(status);
    if (bill.time.high > 0.0 && left > 0.0) {
        int64_t contexts = (int64_t)fmin(floor(left / bill.time.high), (double)(MOST / unit));
        args->check_samples = contexts * unit > planned ? contexts * unit : planned;
    }
    return dpe_job_tell(&batch->job, &args->check_samples, sizeof args->check_samples, err);
}

dpe_status dpe_calibrate_dry_run(struct batch *batch, struct dpe_error *err)
{
    struct dpe_bill sum = {0};
    char text[64];
    DPE_TRY(dpe_calibrate_price(batch, CALIBRATE_COST, &sum, err));
    if (!sum.untimed) {
        dpe_print("\ntotal            %s for all parts; exports and the report take seconds\n",
                  dpe_job_range_text(&sum.time, text));
    }
    dpe_print("\nall parts        at most %.4g tokens, %.3g operations\n", sum.tokens,
              sum.products + sum.attention);
    return DPE_OK;
}

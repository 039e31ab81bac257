/* --budget: the largest setting that ends in it, and what differences a setting can show. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/task/stats.h"
#include "outputs/storage/storage.h"

/* What is chosen, from the cheapest upwards. Those without a sweep take the best of the methods
 * that are ready, and of one step of a search; in their table all pairs move. A whole search of few
 * samples finds no more than that step (eval/RESULTS.md), so there is none. */
static const struct setting {
    enum dpe_detect_rule rule;
    int64_t samples, groups;
    bool pairs;       /* --top-k auto; else all pairs move */
    int64_t excerpts; /* of each length of the profile; 0: one, of the shortest length */
    int64_t check;    /* samples of the check */
} settings[] = {
    {DPE_DETECT_READY, 16, 8, false, 0, 8},      {DPE_DETECT_READY, 16, 8, false, 0, 16},
    {DPE_DETECT_READY, 16, 8, false, 0, 32},     {DPE_DETECT_READY, 32, 8, false, 0, 48},
    {DPE_DETECT_BRIEF, 16, 1, false, 0, 32},     {DPE_DETECT_BRIEF, 32, 1, false, 0, 48},
    {DPE_DETECT_BRIEF, 64, 1, false, 0, 64},     {DPE_DETECT_BRIEF, 128, 1, false, 0, 128},
    {DPE_DETECT_JOINTLY, 48, 8, true, 5, 64},    {DPE_DETECT_JOINTLY, 100, 8, true, 10, 100},
    {DPE_DETECT_JOINTLY, 200, 8, true, 10, 200}, {DPE_DETECT_JOINTLY, 400, 8, true, 10, 400},
};
enum {
    SETTINGS = sizeof settings / sizeof settings[0],
    QUICK = 2,
    USUAL = 9,
    THOROUGH = 11,
    TOGETHER = 4,      /* questions of a context, of a search */
    READY_TOGETHER = 8 /* of methods that are ready */
};

/* Of a budget the estimate may take this share: measuring the machine, exports and the report come
 * on top. */
static const double usable = 0.92;

/* ----------------------------------------------------------------------------------- what shows */

/* The smallest difference of recall between two plans that so many samples show. Questions of four
 * answered by chance alike have a difference of variance 0.44; those of a context share 0.3 of it.
 */
static const char *difference_text(const struct calibrate_arguments *args, int64_t samples,
                                   char text[64])
{
    const int64_t together = !dpe_detect_sweeps(args->detect.rule) ? READY_TOGETHER : TOGETHER;
    const double least =
        dpe_shown_difference(0.44 * (0.3 + 0.7 / (double)together), samples / together, together);
    if (!(least < 1.0)) {
        snprintf(text, 64, "none, of so few contexts");
    } else {
        snprintf(text, 64, "from %.0f points of recall", ceil(100.0 * least));
    }
    return text;
}

/* ------------------------------------------------------------------------------------- settings */

/* The setting's rule, unless something was given that it does not have. */
static enum dpe_detect_rule rule_of(const struct dpe_detect_arguments *asked,
                                    const struct setting *setting)
{
    const bool guards = asked->guard_given && asked->guard > 0.0;
    const bool own = asked->rule_given || asked->frequencies || !asked->use_niah || asked->race ||
                     asked->against_tuned || asked->score == DETECT_SCORE_STEPS;
    return own                                           ? asked->rule
           : guards && setting->rule == DPE_DETECT_READY ? DPE_DETECT_BRIEF
                                                         : setting->rule;
}

/* The arguments with a setting, where they were not given. */
static void apply(const struct calibrate_arguments *given, const struct setting *setting,
                  int64_t trained_length, struct calibrate_arguments *args)
{
    static char shortest[24];
    *args = *given;
    args->detect = given->asked;
    struct dpe_detect_arguments *detect = &args->detect;
    detect->rule = rule_of(&given->asked, setting);
    detect->groups = detect->groups_given ? detect->groups : setting->groups;
    if (!detect->job.samples_given) {
        detect->job.samples = setting->samples;
        detect->job.samples_given = true;
        args->check_samples = setting->check;
    }
    if (!args->top_k_given && !setting->pairs) {
        args->top_k = "all";
    }
    if (args->norm_samples == 0) {
        args->norm_samples = setting->excerpts > 0 ? setting->excerpts : 1;
    }
    if (args->norms.lengths == NULL && setting->excerpts == 0) {
        snprintf(shortest, sizeof shortest, "%lld",
                 (long long)(trained_length / 4 < 2048 ? trained_length / 4 : 2048));
        args->norms.lengths = shortest;
    }
    dpe_detect_settle(detect);
}

/* What a setting costs; its arguments are the batch's afterwards. */
static dpe_status price(struct batch *batch, const struct calibrate_arguments *given,
                        const struct setting *setting, struct dpe_bill *bill, struct dpe_error *err)
{
    apply(given, setting, batch->job.trained_length, &batch->fitted);
    batch->args = &batch->fitted;
    batch->chooses = strcmp(batch->args->top_k, CALIBRATE_AUTO) == 0 && !batch->frequencies &&
                     dpe_detect_sweeps(batch->args->detect.rule);
    *bill = (struct dpe_bill){0};
    return dpe_calibrate_price(batch, CALIBRATE_PRICE, bill, err);
}

static bool fits(const struct calibrate_arguments *given, const struct dpe_bill *bill)
{
    return given->budget_tokens > 0.0 ? bill->tokens <= given->budget_tokens
                                      : bill->time.high <= usable * given->budget_seconds;
}

/* How many times as fast bfloat16 must be to be worth its rounding. */
static const double worth = 1.3;

/* bfloat16 where this processor multiplies in it, so much faster. */
static dpe_status choose_dtype(struct batch *batch, struct dpe_error *err)
{
    const struct dpe_tool_options *tool = &batch->args->detect.job.tool;
    struct dpe_job_speed speeds[2] = {{0}};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    const int64_t length = batch->state.entries[0].length;
    const struct dpe_plan_context context = dpe_job_context(&batch->job, length);
    if (tool->dtype_given || strcmp(batch->job.device, "cpu") != 0) {
        return DPE_OK;
    }
    DPE_TRY(dpe_plan_make(batch->frequencies ? "rope" : "dpe", &context, &plan, err));
    for (int i = 0; i < 2; i++) {
        DPE_TRY(dpe_job_use_device(&batch->job, i == 0 ? "cpu" : "cpu-bf16", err));
        (void)dpe_job_measure_here(&batch->job, &plan, length, &speeds[i], err);
    }
    const bool measured = speeds[0].tokens > 0 && speeds[1].tokens > 0;
    batch->bf16_gain = measured ? speeds[0].seconds / speeds[1].seconds : 0.0;
    const bool faster = batch->bf16_gain > worth;
    DPE_TRY(dpe_job_use_device(&batch->job, faster ? "cpu-bf16" : "cpu", err));
    if (faster) {
        batch->fitted.detect.job.tool.device = "cpu-bf16";
        batch->fitted.detect.job.tool.bf16 = true;
    }
    return DPE_OK;
}

const char *dpe_calibrate_holds(enum dpe_detect_rule rule)
{
    return rule == DPE_DETECT_BRIEF ? "the best of the methods that are ready and of a short search"
                                    : "the best of the methods that are ready";
}

static void tell(const struct batch *batch, const struct dpe_bill *bill)
{
    const struct calibrate_arguments *args = batch->args;
    const int64_t samples = args->detect.job.samples;
    const int64_t check = args->check_samples > 0 ? args->check_samples : samples;
    const bool ready = !dpe_detect_sweeps(args->detect.rule);
    char time[64];
    char sweep[64];
    char shown[64];
    dpe_log_info(
        "--budget: --select %s, %lld samples%s, %s%s, %lld samples in the check; %s, at most "
        "%.3g tokens",
        dpe_detect_rule_names[args->detect.rule], (long long)samples,
        args->detect.job.tool.bf16 ? ", --dtype bf16" : "",
        ready            ? dpe_calibrate_holds(args->detect.rule)
        : batch->chooses ? "the number of key pairs is measured"
                         : "all key pairs move",
        ready ? " becomes the table" : "", (long long)check,
        bill->untimed ? "time not known" : dpe_job_range_text(&bill->time, time), bill->tokens);
    if (args->detect.use_niah) {
        dpe_log_info(
            "--budget: differences between plans that can be shown (p < 0.05, power 0.8): in "
            "the sweep %s, in the check %s; smaller ones stay unshown",
            difference_text(args, samples, sweep), difference_text(args, check, shown));
    }
}

/* None fits for certain: the smallest is taken where it may. */
static dpe_status take_smallest(const struct batch *batch, const struct calibrate_arguments *given,
                                const struct dpe_bill *bill, int *chosen, struct dpe_error *err)
{
    char text[64];
    bool may = given->budget_seconds > 0.0 && bill->time.low <= given->budget_seconds;
    DPE_TRY(dpe_job_tell(&batch->job, &may, sizeof may, err)); /* as rank 0 has measured it */
    dpe_job_range_text(&bill->time, text);
    if (!may) {
        return dpe_fail(err, DPE_USAGE,
                        "--budget: the smallest calibration takes %s here, and %.3g tokens; give "
                        "more, or see dpe-detect --select ready",
                        text, bill->tokens);
    }
    if (bill->time.high > given->budget_seconds) {
        dpe_log_warning("--budget: the smallest calibration takes %s here: it may end later", text);
    }
    *chosen = 0;
    return DPE_OK;
}

/* The dearest setting that fits, by halving: a dearer one never costs less. */
static dpe_status search(struct batch *batch, const struct calibrate_arguments *given, int *chosen,
                         struct dpe_error *err)
{
    struct dpe_bill bill = {0};
    int low = -1;
    int high = SETTINGS;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        DPE_TRY(price(batch, given, &settings[middle], &bill, err));
        if (bill.untimed && given->budget_seconds > 0.0) {
            return dpe_fail(err, DPE_USAGE,
                            "--budget: how fast this model runs here cannot be measured, so no "
                            "time can be kept; give tokens (--budget 20Mtok)");
        }
        bool fit = fits(given, &bill); /* as rank 0 has measured it */
        DPE_TRY(dpe_job_tell(&batch->job, &fit, sizeof fit, err));
        *(fit ? &low : &high) = middle;
    }
    *chosen = low;
    if (low < 0) {
        DPE_TRY(price(batch, given, &settings[0], &bill, err));
        return take_smallest(batch, given, &bill, chosen, err);
    }
    return DPE_OK;
}

dpe_status dpe_calibrate_fit(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_arguments *line = batch->args;
    struct dpe_bill bill = {0};
    int chosen = 0;
    if (line->budget_seconds <= 0.0 && line->budget_tokens <= 0.0) {
        return DPE_OK;
    }
    batch->fitted = *line;
    DPE_TRY(choose_dtype(batch, err));
    struct calibrate_arguments given = *line;
    given.asked.job.tool = batch->fitted.detect.job.tool;
    DPE_TRY(search(batch, &given, &chosen, err));
    DPE_TRY(price(batch, &given, &settings[chosen], &bill, err));
    tell(batch, &bill);
    return DPE_OK;
}

static dpe_status move_needles(struct batch *batch, struct dpe_error *err)
{
    const char *from = dpe_calibrate_path(batch, batch->entry, "detect.h5");
    const char *to = dpe_calibrate_path(batch, NULL, "needles.h5");
    return rename(from, to) == 0 ? DPE_OK : dpe_fail_errno(err, errno, from, "cannot be renamed");
}

/* The dearest setting on texts that fits into the rest; false: none does. */
static dpe_status fit_texts(struct batch *batch, bool *fit, struct dpe_error *err)
{
    struct calibrate_arguments given = *batch->line;
    struct dpe_bill bill = {0};
    struct dpe_error why = {0};
    const struct calibrate_arguments before = batch->fitted;
    int chosen = 0;
    given.asked.use_niah = given.asked.auto_task = false;
    given.asked.use_ppl = given.asked.task_given = true;
    given.asked.job.tool = before.detect.job.tool;
    /* What was spent: such a sweep ends with few samples, and searches nothing. */
    batch->fitted.detect.rule =
        before.detect.rule == DPE_DETECT_BRIEF ? settings[0].rule : before.detect.rule;
    batch->fitted.detect.job.samples = settings[0].samples;
    dpe_status status = dpe_calibrate_sweep(batch, CALIBRATE_PRICE, &bill, &why);
    if (given.budget_seconds > 0.0) {
        given.budget_seconds -= dpe_clock() - batch->job.begin;
    } else {
        given.budget_tokens -= bill.tokens;
    }
    batch->needles = false;
    status = status == DPE_OK ? search(batch, &given, &chosen, &why) : status;
    *fit = status == DPE_OK;
    if (status == DPE_OK) {
        status = price(batch, &given, &settings[chosen], &bill, err);
        batch->fitted.budget_seconds = batch->line->budget_seconds;
        batch->fitted.budget_tokens = batch->line->budget_tokens;
        tell(batch, &bill);
        return status;
    }
    batch->needles = true;
    batch->fitted = before;
    if (status != DPE_USAGE && status != DPE_BAD_DATA && status != DPE_NO_INPUT) {
        return dpe_fail(err, status, "%s", why.text);
    }
    dpe_log_warning("perplexity was not measured either (%s): the table is the best by the needles "
                    "that were found",
                    why.text);
    return DPE_OK;
}

dpe_status dpe_calibrate_fall_back(struct batch *batch, bool *again, struct dpe_error *err)
{
    const double ceiling = batch->state.ceiling;
    *again = false;
    if (batch->args != &batch->fitted || !batch->needles || batch->args->detect.frequencies ||
        (!batch->state.texts &&
         !(!dpe_detect_sweeps(batch->args->detect.rule) && ceiling < DPE_DETECT_LOW_CEILING))) {
        return DPE_OK;
    }
    if (!batch->state.texts) {
        dpe_log_warning(
            "needles say little of this model: in its own trained length it finds %.0f %% "
            "of the easiest ones. The plan is chosen and checked by the perplexity of "
            "texts instead, by position (needles.h5 has what was found)",
            100.0 * ceiling);
    }
    DPE_TRY(fit_texts(batch, again, err));
    if (!*again || batch->state.texts) {
        return DPE_OK;
    }
    const dpe_status moved = dpe_job_leads(&batch->job) ? move_needles(batch, err) : DPE_OK;
    return dpe_job_meet(&batch->job, moved, err);
}

dpe_status dpe_calibrate_fit_check(struct batch *batch, struct dpe_error *err)
{
    enum { MOST = 400 };
    struct calibrate_arguments *args = &batch->fitted;
    struct dpe_bill bill = {0};
    if (args->budget_seconds <= 0.0 || args->check_samples == 0) {
        return DPE_OK;
    }
    const double left = usable * args->budget_seconds - (dpe_clock() - batch->job.begin);
    const int64_t planned = args->check_samples;
    const int64_t together = dpe_calibrate_together(batch);
    const int64_t unit = together > TOGETHER ? together : TOGETHER;
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

/* A row of the settings. The cheapest is what --budget takes for that time, with its dtype and its
 * check; the others are run as the command line stands, with so many samples. */
static dpe_status print_setting(struct batch *batch, const struct calibrate_arguments *line,
                                const char *name, int at, struct dpe_error *err)
{
    struct calibrate_arguments given = *line;
    struct dpe_bill bill = {0};
    char time[64], shown[64], by[64] = "";
    if (at == QUICK) {
        batch->fitted = *line;
        DPE_TRY(choose_dtype(batch, err));
        given.asked.job.tool = batch->fitted.detect.job.tool;
        given.budget_seconds = (double)INFINITY;
    }
    DPE_TRY(price(batch, &given, &settings[at], &bill, err));
    const int64_t samples = batch->args->detect.job.samples;
    const int64_t check = batch->args->check_samples > 0 ? batch->args->check_samples : samples;
    if (at == QUICK && !bill.untimed) {
        snprintf(by, sizeof by, "--budget %.0fm", ceil(bill.time.high / usable / 60.0));
    } else if (at != USUAL && at != QUICK) {
        snprintf(by, sizeof by, "--samples %lld", (long long)samples);
    }
    dpe_print("%-10s %-16s %-9.3g %-16s %s\n", name,
              bill.untimed ? "not measured" : dpe_job_range_text(&bill.time, time), bill.tokens, by,
              difference_text(batch->args, check > samples ? check : samples, shown));
    return DPE_OK;
}

static dpe_status print_settings(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_arguments *line = batch->args;
    const bool chooses = batch->chooses;
    char device[sizeof batch->job.device];
    if (batch->state.n_entries > 1 || line->budget_seconds > 0.0 || line->budget_tokens > 0.0) {
        return DPE_OK;
    }
    snprintf(device, sizeof device, "%s", batch->job.device);
    dpe_print("\n%-10s %-16s %-9s %-16s %s\n", "setting", "time", "tokens", "by",
              "shows differences (p < 0.05, power 0.8)");
    dpe_status status = print_setting(batch, line, "quick", QUICK, err);
    status = status == DPE_OK ? dpe_job_use_device(&batch->job, device, err) : status;
    status = status == DPE_OK ? print_setting(batch, line, "default", USUAL, err) : status;
    status = status == DPE_OK ? print_setting(batch, line, "thorough", THOROUGH, err) : status;
    batch->args = line;
    batch->chooses = chooses;
    if (status == DPE_OK && batch->bf16_gain > worth) {
        dpe_print("\n--dtype bf16     reads %.1f times as fast here; only quick takes it unasked\n",
                  batch->bf16_gain);
    }
    return status;
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
    return print_settings(batch, err);
}

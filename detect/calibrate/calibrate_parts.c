/* The studies of a calibration, what each is asked for, and what of them fits into --budget. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/niah/niah.h"
#include "eval/tool/comparison.h"

static bool is_dry(enum calibrate_way way)
{
    return way != CALIBRATE_RUN && way != CALIBRATE_RUN_SILENT;
}

/* What all studies have. `name`: of the table, in the entry's folder. */
static struct dpe_job_options job_of(struct batch *batch, enum calibrate_way way,
                                     const struct entry *entry, const char *name)
{
    struct dpe_job_options job = batch->args->detect.job;
    job.within = &batch->job;
    job.output = is_dry(way) ? NULL : dpe_calibrate_path(batch, entry, name);
    job.dry_run = is_dry(way);
    job.silent = way != CALIBRATE_RUN && way != CALIBRATE_COST;
    job.length = batch->entry->length;
    job.lengths[0] = batch->entry->length;
    job.n_lengths = 1;
    return job;
}

/* Run the study, or price it. A table of another run must be moved away; --force would repeat
 * everything. */
static dpe_status work(const struct dpe_study *study, const void *args,
                       const struct dpe_job_options *job, enum calibrate_way way,
                       struct dpe_bill *bill, struct dpe_error *err)
{
    const dpe_status status = dpe_study_run(study, args, bill, err);
    if (!is_dry(way) && (status == DPE_CANNOT_CREATE || status == DPE_MISMATCH) &&
        strstr(job->output, "detect.h5") == NULL) {
        dpe_log_warning("move %s away and run the same command: it measures this part again and "
                        "keeps the others (--force would repeat the sweep too)",
                        job->output);
    }
    return status;
}

dpe_status dpe_calibrate_sweep(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                               struct dpe_error *err)
{
    struct dpe_detect_arguments args = batch->args->detect;
    args.job = job_of(batch, way, batch->entry, "detect.h5");
    return work(&dpe_detect_study, &args, &args.job, way, bill, err);
}

/* What becomes of the spelling of a special token in a text: --niah special=. */
static enum dpe_special_policy special_of(const struct batch *batch)
{
    struct dpe_niah_params params;
    dpe_niah_defaults(&params);
    if (batch->args->detect.niah != NULL) {
        (void)dpe_niah_parse(batch->args->detect.niah, &params, &(struct dpe_error){0});
    }
    return params.special;
}

dpe_status dpe_calibrate_profile(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                                 struct dpe_error *err)
{
    struct dpe_norms_arguments args = batch->args->norms;
    args.special =
        special_of(batch) == DPE_SPECIAL_LITERAL ? DPE_SPECIAL_LITERAL : DPE_SPECIAL_ERROR;
    args.job = job_of(batch, way, NULL, "norms.h5");
    args.job.samples = batch->args->norm_samples;
    args.job.seed = batch->args->seed_given ? args.job.seed : DPE_NORMS_SEED;
    return work(&dpe_norms_study, &args, &args.job, way, bill, err);
}

/* ---------------------------------------------------------------------------------- of dpe-eval */

/* Settings of the needles of a part. */
static void write_niah(const struct batch *batch, enum calibrate_part part,
                       char spec[CALIBRATE_NIAH])
{
    const struct dpe_detect_arguments *detect = &batch->args->detect;
    const char *given = detect->niah != NULL ? detect->niah : "";
    /* With a budget the task is one that the model can do, for the check too. */
    const bool own = part == CALIBRATE_PAIRS ||
                     (part == CALIBRATE_CHECK && dpe_detect_budgeted(&batch->line->detect.budget));
    const char *chosen = own ? batch->entry->task : "";
    snprintf(spec, CALIBRATE_NIAH, "%.400s%s%s", given,
             given[0] != '\0' && chosen[0] != '\0' ? "," : "", chosen);
}

int64_t dpe_calibrate_together(const struct batch *batch)
{
    struct dpe_niah_params params;
    struct dpe_error err = {0};
    char spec[CALIBRATE_NIAH];
    dpe_niah_defaults(&params);
    write_niah(batch, CALIBRATE_PAIRS, spec);
    if (batch->needles && spec[0] != '\0') {
        (void)dpe_niah_parse(spec, &params, &err);
    }
    return dpe_niah_together(&params);
}

/* The samples of a part of dpe-eval, which no other part uses. `spec` holds the settings of its
 * needles. */
static void fill_questions(struct batch *batch, enum calibrate_part part,
                           struct dpe_eval_arguments *args, char spec[CALIBRATE_NIAH])
{
    static const uint64_t seeds[] = {CALIBRATE_PAIRS_SEED, CALIBRATE_CHECK_SEED};
    const struct dpe_job_options *given = &batch->args->detect.job;
    args->official = true;
    args->suites[0].name = batch->needles ? "niah" : "ppl";
    args->n_suites = 1;
    args->job.seed = given->seed + seeds[part];
    args->job.knobs = (struct dpe_session_knobs){.length = "--length"};
    dpe_eval_default_depths(args);
    for (int i = 0; i < batch->state.n_entries; i++) {
        const struct entry *entry = &batch->state.entries[i];
        if (args->planned != NULL || part != CALIBRATE_CHECK ? entry == batch->entry : true) {
            args->lengths[args->n_lengths++] = entry->length;
        }
    }
    if (batch->needles) {
        write_niah(batch, part, spec);
        args->general.niah = spec[0] != '\0' ? spec : NULL;
        args->general.chat_template = batch->args->chat_template;
        return;
    }
    args->special = special_of(batch);
}

static void add_method(struct dpe_eval_arguments *args, const char *method, bool table)
{
    args->methods[args->n_methods] = method;
    args->is_table[args->n_methods++] = table;
}

/* Before there are tables: so many plans of this kind. */
static void plan_methods(const char *name, int64_t n, struct dpe_eval_arguments *args)
{
    args->planned = name;
    args->planned_methods = n;
    add_method(args, "dpe", false);
}

dpe_status dpe_calibrate_pairs(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                               struct dpe_error *err)
{
    struct dpe_eval_arguments args = {.job = job_of(batch, way, batch->entry, "ablate.h5")};
    int64_t k[DPE_DETECT_CANDIDATES];
    const int n = dpe_detect_top_k_candidates(batch->n_pairs, k);
    char spec[CALIBRATE_NIAH];
    if (is_dry(way)) {
        plan_methods("--top-k auto", n, &args);
    } else {
        add_method(&args, dpe_calibrate_path(batch, batch->entry, "detect.h5"), true);
        args.norms = dpe_calibrate_path(batch, NULL, "norms.h5");
        args.what = "top-k";
        args.alone = true;
        for (int i = 0; i < n; i++) {
            args.values[args.n_values++] = (double)k[i];
        }
    }
    fill_questions(batch, CALIBRATE_PAIRS, &args, spec);
    return work(&dpe_eval_comparison_study, &args, &args.job, way, bill, err);
}

static dpe_status check(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                        struct dpe_error *err)
{
    const struct calibrate_state *state = &batch->state;
    const struct entry *longest = &state->entries[state->n_entries - 1];
    const bool several = state->n_entries > 1;
    struct dpe_eval_arguments args = {.job = job_of(batch, way, NULL, "check.h5")};
    char spec[CALIBRATE_NIAH];
    if (batch->args->check_samples > 0) {
        args.job.samples = batch->args->check_samples;
    }
    if (is_dry(way)) {
        /* At most: rope, of a search the best other method, where the key pairs were chosen all of
         * them, and the table. */
        const bool searches = dpe_detect_searches(batch->args->detect.rule);
        plan_methods("check", 2 + searches + (batch->chooses || several), &args);
    } else {
        add_method(&args, "rope", false);
        if (state->rival[0] != '\0') {
            add_method(&args, state->rival, false);
        }
        if (several || (batch->chooses && !longest->other)) {
            add_method(&args,
                       dpe_calibrate_path(batch, longest, several ? "table.h5" : "detect.h5"),
                       true);
        }
        add_method(&args, dpe_calibrate_path(batch, NULL, "table.h5"), true);
    }
    fill_questions(batch, CALIBRATE_CHECK, &args, spec);
    return work(&dpe_eval_comparison_study, &args, &args.job, way, bill, err);
}

dpe_status dpe_calibrate_check(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                               struct dpe_error *err)
{
    /* With a budget, before the pilot has chosen: tasks that it may choose, of which the first that
     * has room counts. */
    static const char *const stand_ins[] = {"keys=8,values=4,asked=8", "keys=4,values=4,asked=4",
                                            "keys=4,values=1,asked=4", "keys=1,values=1,asked=1"};
    enum { STAND_INS = sizeof stand_ins / sizeof stand_ins[0] };
    char *task = batch->entry->task;
    if (!is_dry(way) || !dpe_detect_budgeted(&batch->line->detect.budget) ||
        !batch->args->detect.auto_task || task[0] != '\0') {
        return check(batch, way, bill, err);
    }
    dpe_status status = DPE_USAGE;
    for (int i = 0; i < STAND_INS && status == DPE_USAGE; i++) {
        snprintf(task, sizeof batch->entry->task, "%s", stand_ins[i]);
        status = check(batch, way, bill, err);
    }
    task[0] = '\0';
    return status;
}

dpe_status dpe_calibrate_kld(struct batch *batch, bool trained, enum calibrate_way way,
                             struct dpe_bill *bill, struct dpe_error *err)
{
    enum { TEXTS = 2 }; /* an interval needs two; what must be 0 needs one */
    struct dpe_eval_arguments args = {
        .job = job_of(batch, way, NULL, trained ? "kld-trained.h5" : "kld.h5"),
        .base = "rope",
        .official = true,
        .n_lengths = 1};
    args.lengths[0] = trained ? batch->job.trained_length : batch->entry->length;
    args.job.length = args.job.lengths[0] = args.lengths[0];
    args.job.samples = trained ? 1 : TEXTS;
    args.job.seed += CALIBRATE_CHECK_SEED;
    if (is_dry(way)) {
        plan_methods("kld", 1, &args);
    } else {
        add_method(&args, dpe_calibrate_path(batch, NULL, "table.h5"), true);
    }
    return work(&dpe_eval_kld_study, &args, &args.job, way, bill, err);
}

void dpe_calibrate_try_kld(struct batch *batch)
{
    struct stat model;
    struct dpe_error why = {0};
    batch->entry = &batch->state.entries[batch->state.n_entries - 1];
    batch->diverges = stat(batch->args->detect.job.model, &model) == 0 && S_ISREG(model.st_mode);
    for (int trained = 0; trained < 2 && batch->diverges; trained++) {
        if (dpe_calibrate_kld(batch, trained, CALIBRATE_TRY, NULL, &why) != DPE_OK) {
            dpe_log_info("no divergence from the unchanged model is measured: %s", why.text);
            batch->diverges = false;
        }
    }
}

/* -------------------------------------------------------------------------------------- dry run */

/* What every entry has after its sweep. */
static dpe_status price_entry(struct batch *batch, enum calibrate_way way, struct dpe_bill *sum,
                              struct dpe_error *err)
{
    if (batch->chooses) {
        DPE_TRY(dpe_calibrate_pairs(batch, way, sum, err));
    }
    return dpe_calibrate_check(batch, way, sum, err);
}

static dpe_status price_all(struct batch *batch, enum calibrate_way way, struct dpe_bill *sum,
                            struct dpe_error *err)
{
    struct calibrate_state *state = &batch->state;
    for (int e = 0; e < state->n_entries; e++) {
        batch->entry = &state->entries[e];
        DPE_TRY(dpe_calibrate_sweep(batch, way, sum, err));
        if (way == CALIBRATE_COST) {
            dpe_print("\n");
        }
    }
    if (!batch->pairless) {
        DPE_TRY(dpe_calibrate_profile(batch, way, sum, err));
    }
    for (int e = 0; e < state->n_entries; e++) {
        batch->entry = &state->entries[e];
        DPE_TRY(price_entry(batch, way, sum, err));
    }
    for (int trained = 1; trained >= 0 && batch->diverges; trained--) {
        if (way == CALIBRATE_COST) {
            dpe_print("\n");
        }
        DPE_TRY(dpe_calibrate_kld(batch, trained, way, sum, err));
    }
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- budget */

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
    return price_all(batch, CALIBRATE_PRICE, bill, err);
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
    DPE_TRY(price_all(batch, CALIBRATE_COST, &sum, err));
    if (!sum.untimed) {
        dpe_print("\ntotal            %s for all parts; exports and the report take seconds\n",
                  dpe_job_range_text(&sum.time, text));
    }
    dpe_print("\nall parts        at most %.4g tokens, %.3g operations\n", sum.tokens,
              sum.products + sum.attention);
    return DPE_OK;
}

/* dpe-calibrate: sweep, profile, table and every form of it, as a list of studies over one job that
 * can be stopped anywhere: each keeps its own results safe, so there is nothing here to lose. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/chat/chat.h"
#include "outputs/export/export.h"
#include "outputs/report/report_page.h"
#include "outputs/storage/storage.h"

/* -------------------------------------------------------------------------------- several ranks */

/* A step that rank 0 does alone, with files; what it has found out goes to all. */
static dpe_status lead(struct batch *batch, dpe_status (*step)(struct batch *, struct dpe_error *),
                       struct dpe_error *err)
{
    const dpe_status status = dpe_job_leads(&batch->job) ? step(batch, err) : DPE_OK;
    DPE_TRY(dpe_job_meet(&batch->job, status, err));
    return dpe_job_tell(&batch->job, &batch->state, sizeof batch->state, err);
}

/* ---------------------------------------------------------------------------------------- steps */

static void announce(struct batch *batch, const char *what)
{
    int parts =
        (1 + batch->chooses) * batch->state.n_entries + (batch->pairless ? 3 : 4) + batch->diverges;
    (void)fflush(stdout); /* the part before is whole where both streams go to one file */
    dpe_log_info("%d of %d: %s", ++batch->step, parts, what);
}

/* The same of a part that each entry has. */
static void announce_entry(struct batch *batch, const char *what, const char *tool)
{
    char text[96] = "", of[40] = "";
    if (batch->state.n_entries > 1) {
        snprintf(of, sizeof of, " for %lld tokens", (long long)batch->entry->length);
    }
    dpe_append(text, sizeof text, "%s%s (%s)", what, of, tool);
    announce(batch, text);
}

static dpe_status make_entry_folder(struct batch *batch, struct dpe_error *err)
{
    return dpe_make_folder(dpe_calibrate_path(batch, batch->entry, ""), err);
}

/* What decides is what the search went by. */
static dpe_status sweep(struct batch *batch, struct dpe_error *err)
{
    announce_entry(batch,
                   dpe_detect_sweeps(batch->args->detect.rule) ? "sweep and search" : "search",
                   "dpe-detect");
    DPE_TRY(lead(batch, make_entry_folder, err));
    DPE_TRY(dpe_calibrate_sweep(batch, CALIBRATE_RUN, NULL, err));
    DPE_TRY(lead(batch, dpe_calibrate_look, err));
    batch->needles = batch->needles && !batch->state.texts;
    return DPE_OK;
}

static dpe_status profile(struct batch *batch, struct dpe_error *err)
{
    if (batch->pairless) {
        return DPE_OK;
    }
    announce(batch, "profile of the heads (dpe-norms)");
    dpe_print("\n");
    return dpe_calibrate_profile(batch, CALIBRATE_RUN, NULL, err);
}

/* How many key pairs of an entry: given, or measured. */
static dpe_status choose_pairs(struct batch *batch, struct dpe_error *err)
{
    struct entry *entry = batch->entry;
    if (batch->pairless) {
        return DPE_OK;
    }
    if (entry->other) {
        if (batch->chooses) {
            announce_entry(batch, "number of key pairs", "none to choose");
        }
        dpe_log_info("%lld tokens: the table holds another method, of which all pairs move; no "
                     "number of key "
                     "pairs is chosen",
                     (long long)entry->length);
        snprintf(entry->k, sizeof entry->k, "%lld", (long long)batch->n_pairs);
        return DPE_OK;
    }
    if (!batch->chooses) {
        snprintf(entry->k, sizeof entry->k, "%.31s", batch->args->top_k);
        return DPE_OK;
    }
    announce_entry(batch, "number of key pairs", "dpe-eval");
    dpe_print("\nDetected lengths, by number of key pairs of each head\n");
    DPE_TRY(dpe_calibrate_pairs(batch, CALIBRATE_RUN, NULL, err));
    return lead(batch, dpe_calibrate_choose_pairs, err);
}

static dpe_status check(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_state *state = &batch->state;
    batch->entry = &batch->state.entries[state->n_entries - 1];
    DPE_TRY(dpe_calibrate_fit_check(batch, err));
    announce(batch, "what the table finds (dpe-eval)");
    dpe_print("\n%s:\n", batch->needles ? "On needles that no earlier part has used"
                                        : "On the corpus's books, some of which the sweep used");
    if (state->n_entries > 1) {
        dpe_print("table.h5 has an entry for each length, %stable.h5 is the longest alone\n",
                  batch->entry->folder);
    } else if (batch->entry->other) {
        dpe_print("table.h5 holds the plan of another method\n");
    } else if (batch->chooses) {
        dpe_print("detect.h5 moves every pair, table.h5 the key pairs of each head\n(--top-k %s)\n",
                  batch->entry->k);
    }
    return dpe_calibrate_check(batch, CALIBRATE_RUN, NULL, err);
}

/* The check reads the table, so what it says comes into the forms after it. */
static dpe_status keep_evidence(struct batch *batch, struct dpe_error *err)
{
    batch->checked = true;
    DPE_TRY(lead(batch, dpe_calibrate_pool, err));
    return lead(batch, dpe_calibrate_export, err);
}

/* Of a GGUF, whose files are compared by it; before the check, which takes what is left of
 * --budget. */
static dpe_status diverge(struct batch *batch, struct dpe_error *err)
{
    if (!batch->diverges) {
        return DPE_OK;
    }
    announce(batch, "divergence from the unchanged model (dpe-eval kld)");
    for (int trained = 1; trained >= 0; trained--) {
        dpe_print("\n");
        DPE_TRY(dpe_calibrate_kld(batch, trained, CALIBRATE_RUN, NULL, err));
    }
    return DPE_OK;
}

static dpe_status make_report(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_state *state = &batch->state;
    struct dpe_report_arguments args = {.force = true, .quiet = true};
    const struct {
        const char *name;
        bool made, each; /* there is one for each entry */
    } inputs[] = {
        {"detect.h5", true, true},
        {"norms.h5", !batch->pairless, false},
        {"table.h5", true, false},
        {"no-adapter.h5", true, true},
        {"check.h5", true, false},
        {"kld.h5", batch->diverges, false},
        /* Left out where the number of pairs was given: they would be of an older choice. */
        {"ablate.h5", batch->chooses, true}};
    args.output = dpe_calibrate_path(batch, NULL, "report.html");
    args.runtimes = batch->args->detect.job.model;
    args.length = state->entries[state->n_entries - 1].length;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        const int n = !inputs[i].made ? 0 : inputs[i].each ? state->n_entries : 1;
        for (int e = 0; e < n; e++) {
            const struct entry *entry = &state->entries[e];
            if ((!entry->other || strcmp(inputs[i].name, "ablate.h5") != 0) &&
                (entry->plain[0] != '\0' || strcmp(inputs[i].name, "no-adapter.h5") != 0)) {
                args.inputs[args.n++] =
                    dpe_calibrate_path(batch, inputs[i].each ? entry : NULL, inputs[i].name);
            }
        }
    }
    return dpe_report_write(&args, err);
}

/* ----------------------------------------------------------------------------------- the answer */

static dpe_status print_name(struct batch *batch, const char *name, struct dpe_error *err)
{
    (void)batch;
    (void)err;
    dpe_print(" %s", name);
    return DPE_OK;
}

static dpe_status print_files(struct batch *batch, struct dpe_error *err)
{
    dpe_print("%s:\n ", batch->args->detect.job.output);
    dpe_status status = dpe_calibrate_each_table(batch, print_name, err);
    dpe_print("\n ");
    status = status == DPE_OK ? dpe_calibrate_export_each(batch, print_name, err) : status;
    dpe_print(" report.html\n");
    return status;
}

static void suggest(const struct batch *batch)
{
    const struct dpe_job_options *job = &batch->args->detect.job;
    char model[1024], folder[1024], corpus[1024];
    dpe_tool_quote(job->model, model, sizeof model);
    dpe_tool_quote(job->corpus, corpus, sizeof corpus);
    dpe_tool_quote(job->output, folder, sizeof folder);
    dpe_tool_next("dpe-run -m %s --table %s/table.h5 --show --corpus %s%s", model, folder, corpus,
                  job->tool.dtype == DPE_TOOL_BF16 ? " --dtype bf16" : "");
    if (dpe_calibrate_factors(batch)) {
        dpe_tool_next("dpe-export %s/table.h5 --gguf MODEL.gguf -o NEW.gguf", folder);
    }
    dpe_tool_next("xdg-open %s/report.html", folder);
}

static dpe_status print_all(struct batch *batch, struct dpe_error *err)
{
    struct dpe_export_arguments args = {.show = true, .n_inputs = 1};
    for (int i = 0; i < batch->state.n_entries && batch->chooses; i++) {
        batch->entry = &batch->state.entries[i];
        if (!batch->entry->other) {
            dpe_calibrate_print_pairs(batch);
        }
    }
    dpe_print("\n");
    args.inputs[0] = dpe_calibrate_path(batch, NULL, "table.h5");
    DPE_TRY(dpe_export_do(&args, err));
    DPE_TRY(print_files(batch, err));
    DPE_TRY(dpe_calibrate_print_answer(batch, err));
    suggest(batch);
    return DPE_OK;
}

/* The choices are read from their tables again, for what is printed. */
static dpe_status show_again(struct batch *batch, struct dpe_error *err)
{
    dpe_log_info("complete: %s has all results of this command; nothing was changed",
                 batch->args->detect.job.output);
    batch->chooses = batch->chooses && batch->state.pairs;
    batch->needles = batch->needles && !batch->state.texts;
    for (int i = 0; i < batch->state.n_entries && batch->chooses; i++) {
        batch->entry = &batch->state.entries[i];
        DPE_TRY(batch->entry->other ? DPE_OK : lead(batch, dpe_calibrate_choose_pairs, err));
    }
    return lead(batch, print_all, err);
}

/* A sweep that has not ended, or is not ours, is looked at when it has. */
static dpe_status look_around(struct batch *batch, struct dpe_error *err)
{
    for (int e = 0; e < batch->state.n_entries; e++) {
        batch->entry = &batch->state.entries[e];
        (void)dpe_calibrate_look(batch, NULL);
    }
    return dpe_calibrate_is_done(batch, err);
}

static dpe_status calibrate(struct batch *batch, struct dpe_error *err)
{
    static const struct {
        dpe_status (*step)(struct batch *, struct dpe_error *);
        bool each;         /* for each entry, the shortest first */
        bool leads;        /* rank 0 does it */
        const char *words; /* that announce it; NULL: the step does */
    } steps[] = {{.step = sweep, .each = true},
                 {.step = profile},
                 {.step = choose_pairs, .each = true},
                 {dpe_calibrate_export, false, true, "the table and its forms (dpe-export)"},
                 {.step = diverge},
                 {.step = check},
                 {.step = keep_evidence},
                 {make_report, false, true, "the report (dpe-report)"},
                 {.step = print_all, .leads = true}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int n = steps[i].each ? batch->state.n_entries : 1;
        for (int e = 0; e < n; e++) {
            batch->entry = &batch->state.entries[e];
            if (dpe_clock() >= batch->job.deadline) {
                return dpe_fail(err, DPE_INCOMPLETE,
                                "the time budget is used up; run the same command to continue");
            }
            if (steps[i].words != NULL) {
                announce(batch, steps[i].words);
            }
            DPE_TRY(steps[i].leads ? lead(batch, steps[i].step, err) : steps[i].step(batch, err));
        }
    }
    return lead(batch, dpe_calibrate_set_done, err);
}

/* ------------------------------------------------------------------------------ before any work */

/* What is derived from model and options. */
static dpe_status prepare(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    const struct dpe_config *config = dpe_model_config(batch->job.model);
    const bool automatic = strcmp(args->top_k, CALIBRATE_AUTO) == 0;
    dpe_status status = dpe_calibrate_entries(batch, err);
    batch->n_pairs = dpe_config_pairs(config);
    batch->needles = args->detect.use_niah;
    batch->alike = dpe_config_alike(config);
    batch->pairless = dpe_config_still(config);
    batch->chooses = automatic && !batch->pairless;
    if (batch->pairless) {
        dpe_log_info("no profile of the heads is made, and no key pairs are chosen: what the table "
                     "changes holds for every head");
    }
    DPE_TRY(status);
    dpe_calibrate_try_kld(batch);
    if (!automatic && strtod(args->top_k, NULL) > (double)batch->n_pairs) {
        return dpe_fail(err, DPE_USAGE, "--top-k: a head has %lld pairs, found '%s'",
                        (long long)batch->n_pairs, args->top_k);
    }
    return DPE_OK;
}

/* What a later part would refuse is found before the first one, not after it: the inputs of every
 * part that has not begun, of the first sweep those too. */
static dpe_status try_entry(struct batch *batch, struct dpe_error *err)
{
    if (!dpe_calibrate_has_begun(batch, batch->entry, "detect.h5")) {
        DPE_TRY(dpe_calibrate_sweep(batch, CALIBRATE_TRY, NULL, err));
    }
    if (dpe_calibrate_has_begun(batch, NULL, "check.h5")) {
        return DPE_OK;
    }
    if (batch->chooses) {
        DPE_TRY(dpe_calibrate_pairs(batch, CALIBRATE_TRY, NULL, err));
    }
    return dpe_calibrate_check(batch, CALIBRATE_TRY, NULL, err);
}

static dpe_status try_parts(struct batch *batch, struct dpe_error *err)
{
    DPE_TRY(dpe_calibrate_check_exports(batch, err));
    if (!batch->pairless && !dpe_calibrate_has_begun(batch, NULL, "norms.h5")) {
        DPE_TRY(dpe_calibrate_profile(batch, CALIBRATE_TRY, NULL, err));
    }
    for (int e = 0; e < batch->state.n_entries; e++) {
        batch->entry = &batch->state.entries[e];
        DPE_TRY(try_entry(batch, err));
    }
    return DPE_OK;
}

/* The folders that a refused calibration made: rmdir leaves those that hold anything. */
static void remove_empty(struct batch *batch)
{
    for (int e = 0; e < batch->state.n_entries; e++) {
        rmdir(dpe_calibrate_path(batch, &batch->state.entries[e], ""));
    }
    rmdir(batch->args->detect.job.output);
}

/* Tables have locks of their own, but two batches in a folder would mix theirs. Rank 0 holds the
 * lock. */
static dpe_status take_lock(struct batch *batch, struct dpe_lock *lock, bool *made,
                            struct dpe_error *err)
{
    char note[256] = "";
    DPE_TRY(dpe_calibrate_make_folder(batch, made, err));
    const char *path = dpe_calibrate_path(batch, NULL, "LOCK");
    DPE_TRY(dpe_lock_take(lock, path, note, err));
    if (note[0] != '\0') {
        dpe_log_info("%s: %s", path, note);
    }
    /* A second time: from here on the lock keeps other commands from writing it. */
    return dpe_calibrate_forms_read(batch, err);
}

static dpe_status calibrate_alone(struct batch *batch, struct dpe_error *err)
{
    struct dpe_lock lock = {.fd = -1};
    bool made = false;
    const bool leads = dpe_job_leads(&batch->job);
    dpe_status status = leads ? take_lock(batch, &lock, &made, err) : DPE_OK;
    const bool locked = leads && status == DPE_OK;
    status = dpe_job_meet(&batch->job, status, err);
    if (status == DPE_OK) {
        status = calibrate(batch, err);
    }
    if (locked) {
        dpe_lock_release(&lock, true);
    }
    if (made && status != DPE_OK) {
        remove_empty(batch);
    }
    return status;
}

/* The job that all parts run in: model, texts and processes. It writes nothing itself. */
static dpe_status open_job(struct batch *batch, struct dpe_job_options *options,
                           struct dpe_error *err)
{
    *options = batch->args->detect.job;
    options->output = NULL; /* a folder, which is not touched */
    DPE_TRY(batch->args->detect.job.output != NULL
                ? dpe_tool_check_folder(batch->args->detect.job.output, err)
                : DPE_OK);
    DPE_TRY(dpe_chat_set_variables(options->template_vars, err));
    return dpe_job_open(&batch->job, options, options->dry_run, err);
}

static dpe_status work(struct batch *batch, struct dpe_error *err)
{
    const bool dry = batch->args->detect.job.dry_run;
    DPE_TRY(prepare(batch, err));
    if (!dry) {
        DPE_TRY(lead(batch, look_around, err));
    }
    if (batch->state.done) {
        return show_again(batch, err);
    }
    const char *first = dpe_calibrate_path(batch, &batch->state.entries[0], "detect.h5");
    DPE_TRY(dpe_job_find_dtype(&batch->job, dry ? NULL : first, DPE_OK, err));
    DPE_TRY(dpe_calibrate_fit(batch, err));
    if (dry) {
        return dpe_calibrate_dry_run(batch, err);
    }
    DPE_TRY(dpe_job_meet(&batch->job, try_parts(batch, err), err));
    return calibrate_alone(batch, err);
}

DPE_MAIN(dpe_calibrate)
{
    dpe_tool_start(argv);
    struct calibrate_arguments args;
    dpe_calibrate_defaults(&args);
    args.detect.job.argc = argc;
    args.detect.job.argv = argv;
    dpe_tool_parse(&dpe_calibrate_option_set, argc, argv, 0, &args);
    dpe_tool_configure(&args.detect.job.tool);
    struct batch *batch = dpe_alloc_zero(1, sizeof *batch); /* too large for a small stack */
    struct dpe_job_options options;
    struct dpe_error err = {0};
    if (batch == NULL) {
        return dpe_tool_end(dpe_fail(&err, DPE_NO_MEMORY, "out of memory"), &err);
    }
    batch->line = batch->args = &args;
    dpe_status status = open_job(batch, &options, &err);
    if (status == DPE_OK) {
        const bool still = dpe_config_still(dpe_model_config(batch->job.model));
        if (still && args.detect.rule == DPE_DETECT_BOTH) {
            args.detect.rule = DPE_DETECT_SEARCH; /* there are no groups to sweep */
        }
        status = work(batch, &err);
    }
    status = dpe_job_close(&batch->job, status, &err);
    free(batch->pooled.of);
    while (batch->n_paths > 0) {
        free(batch->paths[--batch->n_paths]);
    }
    free(batch->paths);
    free(batch);
    return dpe_tool_end(status, &err);
}

/* dpe-calibrate: sweep, profile, table and every form of it, as a list of studies over one job that
 * can be stopped anywhere: each keeps its own results safe, so there is nothing here to lose. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/chat/chat.h"
#include "outputs/export/export.h"
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

/* What is called batch->wanted; of the entries' tables the one with all of them. */
static dpe_status add_input(struct batch *batch, const char *name, struct dpe_error *err)
{
    (void)err;
    const char *last = dpe_last_part(name);
    if (strcmp(last, batch->wanted) == 0 && (last == name || strcmp(last, "table.h5") != 0)) {
        batch->report->inputs[batch->report->n++] = dpe_calibrate_path(batch, NULL, name);
    }
    return DPE_OK;
}

static dpe_status make_report(struct batch *batch, struct dpe_error *err)
{
    static const char *const order[] = {"detect.h5", "norms.h5", "table.h5", "no-adapter.h5",
                                        "check.h5",  "kld.h5",   "ablate.h5"};
    const struct calibrate_state *state = &batch->state;
    struct dpe_report_arguments args = {.force = true,
                                        .quiet = true,
                                        .output = dpe_calibrate_path(batch, NULL, "report.html"),
                                        .runtimes = batch->args->detect.job.model,
                                        .length = state->entries[state->n_entries - 1].length};
    batch->report = &args;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        batch->wanted = order[i];
        DPE_TRY(dpe_calibrate_each_table(batch, add_input, err));
        DPE_TRY(dpe_calibrate_export_each(batch, add_input, err));
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

/* ------------------------------------------------------------------------------------- the tool */

enum option_key {
    KEY_TOP_K = DPE_KEY_PROGRAM,
    KEY_SEED,
};

static const int64_t most_seed = (INT64_C(1) << 40) - CALIBRATE_SEEDS;

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to calibrate:", 1},
    {"top-k", KEY_TOP_K, "K", DPE_BASIC,
     "Key pairs of each head: auto (default: the fewest that are shown to keep 97 % of the "
     "recall), a count, or a share (the paper's is 0.75)",
     1},
    {"output", 'o', "DIR", DPE_BASIC, "Folder for all results; run the same command to continue",
     1},
    {"dry-run", 0, NULL, DPE_BASIC,
     "Print what every part would cost, and run nothing. How fast the model runs here is measured "
     "once and kept for a day in ~/.cache/dpe/speeds ($XDG_CACHE_HOME)",
     1, DPE_SWITCH(struct calibrate_arguments, detect.job.dry_run)},
    {"samples", 0, "N", DPE_BASIC,
     "Samples per configuration of the sweep, and of the check (default 100)", 2,
     DPE_COUNT(struct calibrate_arguments, detect.job.samples, 1, 1000000),
     DPE_GIVEN(struct calibrate_arguments, detect.job.samples_given)},
    {"seed", KEY_SEED, "S", 0,
     "Seed of sweep, search and profile (default: 0, of the profile 1); the check adds 1000 to it, "
     "--top-k auto 2000",
     2},
    {0},
};

static void set_defaults(struct calibrate_arguments *args)
{
    *args = (struct calibrate_arguments){.norm_samples = DPE_NORMS_SAMPLES};
    dpe_detect_defaults(&args->detect);
    args->detect.rule = DPE_DETECT_BOTH;
    args->detect.job.most_lengths = DPE_JOB_LENGTHS;
}

static void complete_line(struct dpe_command_line *state, struct calibrate_arguments *args)
{
    struct dpe_detect_arguments *detect = &args->detect;
    dpe_job_require(state, &detect->job, true, "--output DIR");
    if (dpe_detect_budgeted(&detect->budget) && detect->job.n_lengths > 1) {
        dpe_line_error(state, "--budget takes one length; run it once for each");
    }
    args->chat_template = detect->job.chat_template;
    dpe_detect_complete(state, detect);
    args->top_k_given = args->top_k != NULL;
    args->top_k = args->top_k != NULL ? args->top_k : CALIBRATE_AUTO;
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct calibrate_arguments *args = state->input;
    struct dpe_job_options *job = &args->detect.job;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->detect;
        state->child_inputs[1] = job;
        state->child_inputs[2] = job;
        state->child_inputs[3] = job;
        state->child_inputs[4] = &job->tool;
        return 0;
    case 'o':
        if (strcmp(arg, "-") == 0) {
            dpe_line_error(state, "--output: expected a folder, found '-'");
        }
        job->output = dpe_tool_path(state, "--output", arg);
        return 0;
    case KEY_TOP_K:
        if (strcmp(arg, CALIBRATE_AUTO) != 0) {
            dpe_parse_top_k(state, "--top-k", arg, CALIBRATE_AUTO);
        }
        args->top_k = arg;
        return 0;
    case DPE_LINE_END:
        complete_line(state, args);
        return 0;
    case KEY_SEED: {
        /* The parts after the sweep add to it. */
        const int64_t seed = dpe_parse_count(state, "--seed", arg, 0, DPE_MOST_COUNT);
        if (seed > most_seed) {
            dpe_line_error(state, "--seed: expected at most %lld, found '%s'", (long long)most_seed,
                           arg);
        }
        job->seed = (uint64_t)seed;
        args->seed_given = true;
        return 0;
    }
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static const struct dpe_option_set *const children[] = {
    &dpe_detect_option_set,     &dpe_job_option_set,         &dpe_job_prompt_option_set,
    &dpe_job_engine_option_set, &dpe_tool_output_option_set, NULL};
static const struct dpe_option_set option_set = {
    .options = options_table,
    .parser = parse_option,
    .doc =
        "Calibrate a RoPE language model for one or several lengths (-l 2k,4k,8k): effective "
        "lengths, the plan, key pairs, and the DPE table that a runtime loads.\v"
        "Into DIR: detect.h5 (dpe-detect: the sweep of groups and the search), norms.h5 "
        "(dpe-norms), with --top-k auto ablate.h5 "
        "(dpe-eval), table.h5 and its forms "
        "table.json, table.yaml with scores.pt, table.safetensors, config.json, table.csv "
        "(dpe-export), check.h5 with what the table finds (dpe-eval), of a GGUF kld-trained.h5 and "
        "kld.h5 with how far it is from the unchanged model (dpe-eval kld), report.html "
        "(dpe-report). With several lengths the table has an entry for each, and a runtime chooses "
        "by the length of the text: then DIR/LENGTH has detect.h5, ablate.h5, table.h5, "
        "table.yaml and table.csv of its entry, and everything else is in DIR once. A table that "
        "holds another method than DPE, because that one is shown to be "
        "better, has no ablate.h5, table.yaml and table.csv; one of frequencies alone has the "
        "config.json of longrope. Finished parts are kept: after a kill, a signal or a full disk, "
        "run the same command to continue. With --budget the sweep, the choice of key pairs and "
        "the "
        "divergence are left out where they do not fit, which is said. --time-budget covers all "
        "parts together. mpirun -n 8 "
        "dpe-calibrate ... distributes the samples over processes.\n\n"
        "Exit status: 0 complete, 75 stopped and resumable, else as in dpe-detect --help.\n\n"
        "Example:\n"
        "  dpe-calibrate -m data/reference -l 1k --corpus data/sample --budget 5m -o calibrated",
    .children = children,
};

DPE_MAIN(dpe_calibrate)
{
    dpe_tool_start(argv);
    struct calibrate_arguments args;
    set_defaults(&args);
    args.detect.job.argc = argc;
    args.detect.job.argv = argv;
    dpe_tool_parse(&option_set, argc, argv, 0, &args);
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

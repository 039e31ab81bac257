/* dpe-calibrate: sweep, profile, table and every form of it, as one batch that can be stopped
 * anywhere. It starts the other tools: each keeps its own results safe, so there is nothing here to
 * lose. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "engine/system/child.h"
#include "outputs/storage/storage.h"

/* ------------------------------------------------------------------------------------------- steps
 */

static void announce(struct batch *batch, const char *what)
{
    int parts = (1 + batch->chooses + batch->args->tunes) * batch->n_entries +
                (batch->frequencies ? 3 : 4);
    dpe_log_info("%d of %d: %s", ++batch->step, parts, what);
}

/* The same of a part that each entry has. */
static void announce_entry(struct batch *batch, const char *what, const char *tool)
{
    char text[96];
    if (batch->n_entries > 1) {
        snprintf(text, sizeof text, "%s for %lld tokens (%s)", what,
                 (long long)batch->entry->length, tool);
    } else {
        snprintf(text, sizeof text, "%s (%s)", what, tool);
    }
    announce(batch, text);
}

/* The tool that refused its output suggests --force, which here would measure everything again. A
 * file with a journal belongs to a run that works or was interrupted: it must not be moved away. */
static void suggest_moving(const struct batch *batch, const char *name, const char *output)
{
    char journal_name[96];
    snprintf(journal_name, sizeof journal_name, "%s.journal", name);
    char *journal = dpe_calibrate_tools_path(batch->args->job.output, journal_name);
    bool refused = batch->code == DPE_CANNOT_CREATE || batch->code == DPE_MISMATCH;
    if (refused && strstr(name, "detect.h5") == NULL && access(output, F_OK) == 0 &&
        journal != NULL && access(journal, F_OK) != 0) {
        dpe_log_warning("move %s away and run the same command: it measures this part again and "
                        "keeps the others (--force would repeat the sweep too)",
                        output);
    }
    free(journal);
}

/* Our tools say why they fail; a launcher may not, or may start nothing and call it success. */
static dpe_status check_launched(const struct batch *batch, const char *output,
                                 struct dpe_error *err)
{
    enum { FIRST_OF_OURS = 64, LAST_OF_OURS = 78 };
    bool ours = batch->code >= FIRST_OF_OURS && batch->code <= LAST_OF_OURS;
    if (batch->code != 0 && !ours && batch->args->launch != NULL) {
        dpe_log_error("--launch '%s' ended with exit code %d before %s was written", batch->args->launch,
                      batch->code, output);
    }
    if (batch->code == 0 && access(output, F_OK) != 0) {
        return dpe_fail(err, DPE_CANNOT_CREATE,
                        "%s: expected to be there after the tool that writes it ended without an "
                        "error%s%s%s",
                        output, batch->args->launch != NULL ? "; check --launch '" : "",
                        batch->args->launch != NULL ? batch->args->launch : "",
                        batch->args->launch != NULL ? "', which has to start the command that follows it" : "");
    }
    return DPE_OK;
}

/* A part that measures, into DIR/NAME; `silent`: what it prints is not shown. */
static dpe_status measure(struct batch *batch, calibrate_fill fill, const char *name, bool silent,
                          struct dpe_error *err)
{
    char *output = dpe_calibrate_tools_path(batch->args->job.output, name);
    struct argv argv = {0};
    dpe_status status = DPE_OK;
    if (output == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    } else if (!fill(batch, output, &argv)) {
        dpe_calibrate_argv_free(&argv);
        status = dpe_fail(err, DPE_INCOMPLETE,
                          "the time budget is used up before %s; run the same command to continue",
                          name);
    } else {
        status = dpe_calibrate_run(batch, &argv, silent, err);
    }
    if (status == DPE_OK) {
        status = check_launched(batch, output, err);
    }
    if (status == DPE_OK) {
        suggest_moving(batch, name, output);
    }
    free(output);
    return status;
}

/* A part that measures, into the entry's file. */
static dpe_status measure_entry(struct batch *batch, calibrate_fill fill, const char *name,
                                bool silent, struct dpe_error *err)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", batch->entry->folder, name);
    return measure(batch, fill, full, silent, err);
}

static void show_argv(const struct batch *batch, struct argv *argv)
{
    dpe_calibrate_argv_add(argv, "dpe-export");
    dpe_calibrate_argv_add(argv, "--show");
    dpe_calibrate_argv_add_path(argv, NULL, batch->args->job.output, "table.h5");
}

static dpe_status print_name(const struct batch *batch, const char *name, struct dpe_error *err)
{
    (void)batch;
    (void)err;
    printf(" %s", name);
    return DPE_OK;
}

static dpe_status show(struct batch *batch, struct dpe_error *err)
{
    struct argv argv = {0};
    show_argv(batch, &argv);
    for (int i = 0; i < batch->n_entries && batch->chooses; i++) {
        batch->entry = &batch->entries[i];
        if (!batch->entry->other) {
            dpe_calibrate_print_pairs(batch);
        }
    }
    printf("\n");
    dpe_status status = dpe_calibrate_run(batch, &argv, false, err);
    if (status == DPE_OK && batch->code == 0) {
        printf("%s:", batch->args->job.output);
        for (int i = 0; i < batch->n_entries; i++) {
            if (batch->args->tunes) {
                printf(" %stune.h5", batch->entries[i].folder);
            }
            printf(" %sdetect.h5", batch->entries[i].folder);
        }
        printf("%s", batch->frequencies ? "" : " norms.h5");
        for (int i = 0; i < batch->n_entries && batch->chooses; i++) {
            if (!batch->entries[i].other) {
                printf(" %sablate.h5", batch->entries[i].folder);
            }
        }
        printf(" check.h5");
        status = dpe_calibrate_export_each(batch, print_name, err);
        printf(" report.html\n");
    }
    if (status == DPE_OK && batch->code == 0) {
        status = dpe_calibrate_print_answer(batch, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        char model[1024], folder[1024], corpus[1024];
        dpe_tool_quote(batch->args->job.model, model, sizeof model);
        dpe_tool_quote(batch->args->job.corpus, corpus, sizeof corpus);
        dpe_tool_quote(batch->args->job.output, folder, sizeof folder);
        unsetenv("DPE_PART");
        dpe_tool_next("dpe-run -m %s --table %s/table.h5 --show --corpus %s", model, folder,
                      corpus);
        if (batch->frequencies && dpe_calibrate_factors(batch)) {
            dpe_tool_next("dpe-export %s/table.h5 --gguf MODEL.gguf -o NEW.gguf", folder);
        }
        dpe_tool_next("xdg-open %s/report.html", folder);
    }
    return status;
}

static void report_argv(const struct batch *batch, struct argv *argv)
{
    dpe_calibrate_argv_add(argv, "dpe-report");
    dpe_calibrate_argv_add(argv, "--force");
    dpe_calibrate_argv_add(argv, "--quiet");
    dpe_calibrate_argv_add_path(argv, "--output", batch->args->job.output, "report.html");
    for (int i = 0; i < batch->n_entries; i++) {
        dpe_calibrate_argv_add_entry(argv, NULL, batch, &batch->entries[i], "detect.h5");
    }
    if (!batch->frequencies) {
        dpe_calibrate_argv_add_path(argv, NULL, batch->args->job.output, "norms.h5");
    }
    dpe_calibrate_argv_add_path(argv, NULL, batch->args->job.output, "table.h5");
    dpe_calibrate_argv_add_path(argv, NULL, batch->args->job.output, "check.h5");
    for (int i = 0; i < batch->n_entries && batch->args->tunes; i++) {
        dpe_calibrate_argv_add_entry(argv, NULL, batch, &batch->entries[i], "tune.h5");
    }
    /* Left out where the number of pairs was given: they would be of an older choice. */
    for (int i = 0; i < batch->n_entries && batch->chooses; i++) {
        if (!batch->entries[i].other) {
            dpe_calibrate_argv_add_entry(argv, NULL, batch, &batch->entries[i], "ablate.h5");
        }
    }
}

static dpe_status write_report(struct batch *batch, struct dpe_error *err)
{
    struct argv argv = {0};
    announce(batch, "the report (dpe-report)");
    report_argv(batch, &argv);
    return dpe_calibrate_run(batch, &argv, false, err);
}

/* How many key pairs of an entry: given, or measured. --move frequencies chooses none. */
static dpe_status choose_pairs(struct batch *batch, struct dpe_error *err)
{
    if (batch->frequencies) {
        return DPE_OK;
    }
    if (batch->entry->other) {
        if (batch->chooses) {
            announce_entry(batch, "number of key pairs", "none to choose");
        }
        dpe_log_info("%lld tokens: the table holds another method, of which all pairs move; no number of key "
                     "pairs is chosen",
                     (long long)batch->entry->length);
        snprintf(batch->entry->k, sizeof batch->entry->k, "%lld", (long long)batch->n_pairs);
        return DPE_OK;
    }
    if (!batch->chooses) {
        snprintf(batch->entry->k, sizeof batch->entry->k, "%s", batch->args->top_k);
        return DPE_OK;
    }
    announce_entry(batch, "number of key pairs", "dpe-eval");
    printf("\nDetected lengths, by number of key pairs of each head\n");
    dpe_status status = measure_entry(batch, dpe_calibrate_pairs_argv, "ablate.h5", false, err);
    if (status != DPE_OK || batch->code != 0) {
        return status;
    }
    char *path = dpe_calibrate_entry_path(batch, batch->entry, "ablate.h5");
    status = path != NULL ? dpe_calibrate_choose_pairs(batch, path, err)
                          : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    free(path);
    return status;
}

static dpe_status check(struct batch *batch, struct dpe_error *err)
{
    announce(batch, "what the table finds (dpe-eval)");
    printf("\n%s: ", dpe_calibrate_needles(batch->args)
                         ? "On needles that no earlier part has used"
                         : "On the corpus's books, some of which the sweep used");
    if (batch->frequencies) {
        printf("what the factors of table.h5 find\n");
    } else if (batch->n_entries > 1) {
        printf("table.h5 has an entry for each length, %stable.h5 is the longest one alone\n",
               batch->entries[batch->n_entries - 1].folder);
    } else if (batch->entry->other) {
        printf("table.h5 holds the plan of another method\n");
    } else {
        printf("detect.h5 moves every pair, table.h5 the key pairs of each head (--top-k %s)\n",
               batch->entry->k);
    }
    return measure(batch, dpe_calibrate_check_argv, "check.h5", false, err);
}

static dpe_status export_forms(struct batch *batch, struct dpe_error *err)
{
    announce(batch, "the table and its forms (dpe-export)");
    return dpe_calibrate_export(batch, err);
}

static dpe_status make_entry_folder(const struct batch *batch, struct dpe_error *err)
{
    char *path = dpe_calibrate_entry_path(batch, batch->entry, "");
    dpe_status status = DPE_OK;
    if (path == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    } else if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        status = dpe_fail_errno(err, errno, path, "cannot be created");
    }
    free(path);
    return status;
}

/* What is printed of it, a few fresh samples of each method, would not be what the sweep's
 * validation shows. */
static dpe_status tune(struct batch *batch, struct dpe_error *err)
{
    if (!batch->args->tunes) {
        return DPE_OK;
    }
    announce_entry(batch, "settings of other methods", "dpe-eval");
    dpe_status status = make_entry_folder(batch, err);
    return status == DPE_OK ? measure_entry(batch, dpe_calibrate_tune_argv, "tune.h5", true, err)
                            : status;
}

/* A longer entry begins where the shorter one ended. */
static dpe_status sweep(struct batch *batch, struct dpe_error *err)
{
    announce_entry(batch, "sweep", "dpe-detect");
    dpe_status status = make_entry_folder(batch, err);
    if (status == DPE_OK) {
        status = dpe_calibrate_start(batch, err);
    }
    if (status == DPE_OK) {
        status = measure_entry(batch, dpe_calibrate_sweep_argv, "detect.h5", false, err);
    }
    return status == DPE_OK && batch->code == 0 ? dpe_calibrate_look(batch, batch->entry, err) : status;
}

static dpe_status profile(struct batch *batch, struct dpe_error *err)
{
    if (batch->frequencies) {
        return DPE_OK;
    }
    announce(batch, "profile of the heads (dpe-norms)");
    printf("\n");
    return measure(batch, dpe_calibrate_profile_argv, "norms.h5", false, err);
}

/* The choices are read from their tables again, for what is printed. */
static dpe_status show_again(struct batch *batch, struct dpe_error *err)
{
    dpe_log_info("complete: %s has all results of this command; nothing was changed",
                 batch->args->job.output);
    dpe_status status = DPE_OK;
    for (int i = 0; i < batch->n_entries && batch->chooses && status == DPE_OK; i++) {
        batch->entry = &batch->entries[i];
        if (batch->entry->other) {
            continue;
        }
        char *path = dpe_calibrate_entry_path(batch, batch->entry, "ablate.h5");
        status = path != NULL ? dpe_calibrate_choose_pairs(batch, path, err)
                              : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
        free(path);
    }
    return status == DPE_OK ? show(batch, err) : status;
}

static dpe_status calibrate(struct batch *batch, struct dpe_error *err)
{
    bool done = false;
    for (int e = 0; e < batch->n_entries; e++) {
        /* A sweep that has not ended, or is not ours, is looked at when it has. */
        (void)dpe_calibrate_look(batch, &batch->entries[e], NULL);
    }
    dpe_status found = dpe_calibrate_is_done(batch, &done, err);
    if (found != DPE_OK || done) {
        return found == DPE_OK ? show_again(batch, err) : found;
    }
    static const struct {
        dpe_status (*step)(struct batch *, struct dpe_error *);
        bool each; /* for each entry, the shortest first */
    } steps[] = {{tune, true},         {sweep, true},  {profile, false},      {choose_pairs, true},
                 {export_forms, false}, {check, false}, {write_report, false}, {show, false}};
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int n = steps[i].each ? batch->n_entries : 1;
        for (int e = 0; e < n && status == DPE_OK && batch->code == 0; e++) {
            batch->entry = &batch->entries[e];
            status = steps[i].step(batch, err);
        }
    }
    return status == DPE_OK && batch->code == 0 ? dpe_calibrate_set_done(batch, err) : status;
}

/* --------------------------------------------------------------------------------- before any work
 */

static dpe_status check_model(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    struct dpe_model *model = NULL;
    const struct dpe_model_options options = {.config_only = true};
    dpe_status status = dpe_model_open(args->job.model, &options, &model, err);
    if (status == DPE_OK) {
        int64_t given = args->job.trained_length;
        const struct dpe_config *config = dpe_model_config(model);
        status = dpe_calibrate_entries(batch, given > 0 ? given : dpe_config_trained(config), err);
    }
    if (status == DPE_OK) {
        const struct dpe_config *config = dpe_model_config(model);
        batch->n_pairs = dpe_config_pairs(config);
        batch->alike = true;
        for (int64_t layer = 0; layer < config->n_layers; layer++) {
            batch->alike = batch->alike && dpe_config_moves(config, layer);
        }
        bool automatic = strcmp(args->top_k, CALIBRATE_AUTO) == 0;
        batch->frequencies = dpe_calibrate_frequencies(args);
        if (batch->frequencies && !batch->alike) {
            dpe_log_info("config.json will be left out: layers of this model have windows or "
                         "rotations of their "
                         "own, which longrope's one list of factors cannot hold; table.h5 and "
                         "table.json hold "
                         "the table");
        }
        batch->chooses = automatic && !batch->frequencies;
        if (!automatic && strtod(args->top_k, NULL) > (double)batch->n_pairs) {
            status = dpe_fail(err, DPE_USAGE, "--top-k: a head has %lld pairs, found '%s'",
                              (long long)batch->n_pairs, args->top_k);
        }
    }
    dpe_model_close(model);
    return status;
}

/* Let a tool read its command line and do nothing else. */
static dpe_status check_argv(struct batch *batch, struct argv *argv, struct dpe_error *err)
{
    /* Before the inputs, as the first option of the tool. */
    struct argv checked = {0};
    for (size_t i = 0; i < argv->n; i++) {
        dpe_calibrate_argv_add(&checked, argv->items[i]);
        bool eval = strcmp(argv->items[argv->program], "dpe-eval") == 0;
        if (i == argv->program + (eval ? 1 : 0)) {
            dpe_calibrate_argv_add(&checked, "--check-options");
        }
    }
    checked.program = argv->program;
    checked.failed = checked.failed || argv->failed;
    dpe_calibrate_argv_free(argv);
    return dpe_calibrate_run(batch, &checked, true, err);
}

/* Hours of work do not end at a command line that a later part refuses: all of them are read before
 * the first part runs. */
static dpe_status check_all_argv(struct batch *batch, struct dpe_error *err)
{
    const calibrate_fill parts[] = {dpe_calibrate_tune_argv, dpe_calibrate_sweep_argv,
                                    dpe_calibrate_profile_argv, dpe_calibrate_pairs_argv,
                                    dpe_calibrate_check_argv};
    struct calibrate_arguments alone = *batch->args;
    struct batch trial = *batch;
    struct argv argv = {0};
    dpe_status status = DPE_OK;
    alone.launch = NULL; /* the tools themselves, once */
    trial.args = &alone;
    for (int e = 0; e < trial.n_entries; e++) {
        snprintf(trial.entries[e].k, sizeof trial.entries[e].k, "%.31s",
                 batch->chooses ? "1" : batch->args->top_k);
    }
    trial.entry = &trial.entries[0];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == DPE_OK && trial.code == 0;
         i++) {
        if ((parts[i] != dpe_calibrate_pairs_argv || batch->chooses) &&
            (parts[i] != dpe_calibrate_profile_argv || !batch->frequencies) &&
            (parts[i] != dpe_calibrate_tune_argv || batch->args->tunes)) {
            parts[i](&trial, "OUT.h5", &argv);
            status = check_argv(&trial, &argv, err);
        }
    }
    for (int i = 0;
         status == DPE_OK && trial.code == 0 && dpe_calibrate_export_argv(&trial, i, &argv); i++) {
        status = check_argv(&trial, &argv, err);
    }
    if (status == DPE_OK && trial.code == 0) {
        report_argv(&trial, &argv);
        status = check_argv(&trial, &argv, err);
    }
    if (status == DPE_OK && trial.code == 0) {
        show_argv(&trial, &argv);
        status = check_argv(&trial, &argv, err);
    }
    batch->code = trial.code;
    return status;
}

/* What a later part would refuse is found before the first one, not after it. */
static dpe_status try_part(struct batch *batch, calibrate_fill fill, struct dpe_error *err)
{
    struct argv argv = {0};
    setenv("DPE_PART_TIMES", "none", 1); /* whether it begins, not how long it takes */
    fill(batch, NULL, &argv);
    dpe_calibrate_argv_add(&argv, "--dry-run");
    return dpe_calibrate_run(batch, &argv, true, err);
}

/* The sweeps that have not begun but the first, which says for itself what it lacks; with --against
 * tuned every race, and the sweep after it. */
static dpe_status try_entries(struct batch *batch, struct dpe_error *err)
{
    const bool tunes = batch->args->tunes;
    dpe_status status = DPE_OK;
    for (int i = tunes ? 0 : 1; i < batch->n_entries && status == DPE_OK && batch->code == 0; i++) {
        batch->entry = &batch->entries[i];
        if (dpe_calibrate_has_begun(batch, batch->entry->folder, tunes ? "tune.h5" : "detect.h5")) {
            continue;
        }
        status = tunes ? try_part(batch, dpe_calibrate_tune_argv, err) : DPE_OK;
        if (status == DPE_OK && batch->code == 0) {
            status = try_part(batch, dpe_calibrate_sweep_argv, err);
        }
    }
    return status;
}

/* The inputs of every part that has not begun. */
static dpe_status try_parts(struct batch *batch, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    if (!batch->frequencies && !dpe_calibrate_has_begun(batch, "", "norms.h5")) {
        status = try_part(batch, dpe_calibrate_profile_argv, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        status = try_entries(batch, err);
    }
    return status == DPE_OK && batch->code == 0 && !dpe_calibrate_has_begun(batch, "", "check.h5")
               ? dpe_calibrate_check_samples(batch, err)
               : status;
}

/* The cost of every part. The sweep of a longer entry may try fewer lengths than it is priced with.
 */
static dpe_status dry_run(struct batch *batch, struct dpe_error *err)
{
    struct argv argv = {0};
    dpe_status status = DPE_OK;
    for (int e = 0; e < batch->n_entries && status == DPE_OK && batch->code == 0; e++) {
        batch->entry = &batch->entries[e];
        if (batch->args->tunes) { /* its cost is printed below, with that of the other parts of dpe-eval */
            dpe_calibrate_tune_argv(batch, NULL, &argv);
            dpe_calibrate_argv_add(&argv, "--dry-run");
            status = dpe_calibrate_run(batch, &argv, true, err);
            if (status != DPE_OK || batch->code != 0) {
                break;
            }
        }
        dpe_calibrate_sweep_argv(batch, NULL, &argv);
        dpe_calibrate_argv_add(&argv, "--dry-run");
        status = dpe_calibrate_try(batch, &argv, err);
        if (status == DPE_OK && batch->code == 0) {
            fputs("\n", stdout);
        }
    }
    if (status == DPE_OK && batch->code == 0 && !batch->frequencies) {
        dpe_calibrate_profile_argv(batch, NULL, &argv);
        dpe_calibrate_argv_add(&argv, "--dry-run");
        status = dpe_calibrate_try(batch, &argv, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        status = dpe_calibrate_print_cost(batch, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        printf("\nall parts        at most %.4g tokens, %.3g operations\n", batch->tokens,
               batch->operations);
    }
    return status;
}

/* The dry run of all parts, which leave their times in a file. */
static dpe_status print_costs(struct batch *batch, struct dpe_error *err)
{
    char times[] = "/tmp/dpe-times-XXXXXX";
    int fd = mkstemp(times);
    if (fd >= 0) {
        close(fd);
        setenv("DPE_PART_TIMES", times, 1);
    }
    dpe_status status = dry_run(batch, err);
    if (fd >= 0) {
        unlink(times);
    }
    return status;
}

/* Tables have locks of their own, but two batches in a folder would mix theirs. */
static dpe_status calibrate_alone(struct batch *batch, struct dpe_error *err)
{
    struct dpe_lock lock = {.fd = -1};
    char note[256];
    char *path = dpe_calibrate_tools_path(batch->args->job.output, "LOCK");
    dpe_status status =
        path == NULL ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path")
                     : dpe_lock_take(&lock, path, batch->args->job.tool.force_unlock, note, err);
    if (status == DPE_OK) {
        if (note[0] != '\0') {
            dpe_log_info("%s: %s", path, note);
        }
        status = calibrate(batch, err);
        dpe_lock_release(&lock, true);
    }
    free(path);
    return status;
}

/* The folders that a refused calibration made: rmdir leaves those that hold anything. */
static void remove_empty(const struct batch *batch)
{
    for (int e = 0; e < batch->n_entries; e++) {
        char *path = dpe_calibrate_entry_path(batch, &batch->entries[e], "");
        if (path != NULL) {
            rmdir(path);
        }
        free(path);
    }
    rmdir(batch->args->job.output);
}

static dpe_status work(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    if (dpe_job_launched()) {
        return dpe_fail(err, DPE_USAGE,
                        "dpe-calibrate was started as several ranks; start it once, with --launch "
                        "'mpirun -n N', and it starts its tools as ranks");
    }
    int peers = args->job.tensor_parallel;
    if (peers > 1 && args->launch == NULL && !args->job.dry_run) {
        return dpe_fail(err, DPE_USAGE,
                        "--tensor-parallel %d needs %d processes that hold the model together: add "
                        "--launch 'mpirun -n %d'",
                        peers, peers, peers);
    }
    dpe_status status =
        args->job.output != NULL ? dpe_tool_check_folder(args->job.output, err) : DPE_OK;
    if (status == DPE_OK) {
        status = check_model(batch, err);
    }
    if (status == DPE_OK) {
        status = dpe_calibrate_tools_folder(&batch->tools, err);
    }
    if (status != DPE_OK || args->job.dry_run) {
        return status == DPE_OK ? print_costs(batch, err) : status;
    }
    status = check_all_argv(batch, err);
    if (status == DPE_OK && batch->code == 0) {
        status = try_parts(batch, err);
    }
    bool made = false;
    if (status == DPE_OK && batch->code == 0) {
        status = dpe_calibrate_make_folder(batch, &made, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        status = calibrate_alone(batch, err);
    }
    if (made && (status != DPE_OK || batch->code != 0)) {
        remove_empty(batch);
    }
    return status;
}

int main(int argc, char **argv)
{
    dpe_tool_start(&argc, &argv);
    struct batch batch = {.begin = dpe_clock()};
    struct calibrate_arguments args = {.job.most_lengths = DPE_JOB_LENGTHS};
    dpe_tool_parse(&dpe_calibrate_option_set, argc, argv, 0, &args);
    dpe_tool_configure(&args.job.tool);
    dpe_child_forward_signals();
    setenv("DPE_PART", "dpe-calibrate", 1); /* its tools do not suggest what to type next */
    batch.args = &args;
    struct dpe_error err = {0};
    dpe_status status = work(&batch, &err);
    free(batch.tools);
    int code = dpe_tool_end(status, &err);
    return code != 0 ? code : batch.code;
}

/* dpe-calibrate: sweep, profile, table and every form of it, as one batch that can be stopped
 * anywhere. It starts the other tools: each keeps its own results safe, so there is nothing here to
 * lose. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate_tool.h"
#include "ranks.h"

enum { CHECK_SEED = 1000 }; /* behind the sweep's seed: other samples */

/* ----------------------------------------------------------------------------- command lines below
 */

/* A batch: the arguments and what is derived from them. */
struct batch {
    const struct calibrate_arguments *args;
    char *tools; /* folder of the tools */
    double begin;
    int code; /* of the tool that ended last */
};

/* Options that every long-running tool takes. False when the time budget is used up. */
static bool add_common(const struct batch *batch, struct words *words)
{
    const struct dpe_tool_options *tool = &batch->args->job.tool;
    const struct {
        const char *option;
        bool given;
    } flags[] = {
        {"--quiet", tool->quiet},
        {"--force", tool->force},
        {"--salvage", tool->salvage},
        {"--keep-journal", tool->keep_journal},
        {"--force-unlock", tool->force_unlock},
    };
    words_add_pair(words, "--device", tool->device);
    if (batch->args->launch != NULL) {
        char text[32];
        snprintf(text, sizeof text, "%.3f", batch->args->job.rank_timeout);
        words_add_pair(words, "--rank-timeout", text);
    }
    words_add_number(words, "--tensor-parallel", batch->args->job.tensor_parallel, 2);
    words_add_number(words, "--threads", tool->threads, 1);
    words_add_number(words, "--max-memory", (int64_t)tool->max_memory, 1);
    words_add_pair(words, "--log-format", tool->json ? "json" : NULL);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (flags[i].given) {
            words_add(words, flags[i].option);
        }
    }
    if (tool->time_budget > 0.0) {
        char text[32];
        double left = tool->time_budget - (dpe_clock() - batch->begin);
        snprintf(text, sizeof text, "%.3f", fmax(left, 0.001));
        words_add_pair(words, "--time-budget", text);
        return left >= 0.001;
    }
    return true;
}

/* What starts the tool, and its name. A dry run needs no ranks. */
static void add_tool(const struct batch *batch, const char *output, struct words *words,
                     const char *name)
{
    const char *at = output != NULL && batch->args->launch != NULL ? batch->args->launch : "";
    for (at += strspn(at, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        char *word = strndup(at, n);
        words_add(words, word != NULL ? word : "");
        words->failed = words->failed || word == NULL;
        free(word);
        at += n;
    }
    words->program = words->n;
    words_add(words, name);
}

static bool sweep_words(const struct batch *batch, const char *output, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, words, "dpe-detect");
    words_add_pair(words, "--model", args->job.model);
    words_add_number(words, "--length", args->job.length, 1);
    words_add_pair(words, "--corpus", args->job.corpus);
    words_add_pair(words, "--split", args->job.split);
    words_add_pair(words, "--chat-template", args->job.chat_template);
    words_add_number(words, "--trained-length", args->job.trained_length, 1);
    words_add_pair(words, "--output", output);
    words_add_handed(words, args, CALIBRATE_SWEEP);
    return add_common(batch, words);
}

static bool profile_words(const struct batch *batch, const char *output, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, words, "dpe-norms");
    words_add_pair(words, "--model", args->job.model);
    words_add_pair(words, "--corpus", args->job.corpus);
    words_add_pair(words, "--split", args->job.split);
    words_add_number(words, "--trained-length", args->job.trained_length, 1);
    words_add_pair(words, "--output", output);
    words_add_handed(words, args, CALIBRATE_PROFILE);
    return add_common(batch, words);
}

static void add_path(struct words *words, const char *option, const char *folder, const char *name)
{
    char *path = tools_path(folder, name);
    if (option != NULL) {
        words_add(words, option);
    }
    words_add(words, path != NULL ? path : "");
    words->failed = words->failed || path == NULL;
    free(path);
}

static bool asks_needles(const struct calibrate_arguments *args)
{
    const char *task = calibrate_value(args, "--task");
    return task == NULL || strcmp(task, "ppl") != 0;
}

/* The finished table, beside the same lengths with all pairs moved and the model as it is: needles
 * that the sweep did not see, perplexity of the corpus's books. */
static bool check_words(const struct batch *batch, const char *output, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    const char *seed = calibrate_value(args, "--seed");
    bool needles = asks_needles(args);
    add_tool(batch, output, words, "dpe-eval");
    words_add(words, needles ? "niah" : "ppl");
    words_add_pair(words, "--model", args->job.model);
    words_add_number(words, "--length", args->job.length, 1);
    words_add_pair(words, "--corpus", args->job.corpus);
    words_add_pair(words, "--split", args->job.split);
    words_add_number(words, "--trained-length", args->job.trained_length, 1);
    words_add_pair(words, "--niah", needles ? calibrate_value(args, "--niah") : NULL);
    words_add_pair(words, "--chat-template", needles ? args->job.chat_template : NULL);
    words_add_number(words, "--seed", CHECK_SEED + (seed != NULL ? strtoll(seed, NULL, 10) : 0), 0);
    words_add_pair(words, "--method", "rope");
    add_path(words, "--table", args->job.output, "detect.h5");
    add_path(words, "--table", args->job.output, "table.h5");
    words_add_pair(words, "--output", output);
    words_add_handed(words, args, CALIBRATE_CHECK);
    return add_common(batch, words);
}

/* Run, and free the words. A tool that failed has said why: its code is all that is kept. */
static dpe_status run(struct batch *batch, struct words *words, bool silent, struct dpe_error *err)
{
    dpe_status status = tools_run(batch->tools, words, silent, &batch->code, err);
    words_free(words);
    return status;
}

/* ------------------------------------------------------------------------------------------- steps
 */

typedef bool (*fill_words)(const struct batch *batch, const char *output, struct words *words);

/* Sweep, profile or check, into DIR/NAME. */
static dpe_status measure(struct batch *batch, fill_words fill, const char *name,
                          struct dpe_error *err)
{
    char *output = tools_path(batch->args->job.output, name);
    struct words words = {0};
    dpe_status status = DPE_OK;
    if (output == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    } else if (!fill(batch, output, &words)) {
        words_free(&words);
        status = dpe_fail(err, DPE_INCOMPLETE,
                          "the time budget is used up before %s; the same command continues", name);
    } else {
        status = run(batch, &words, false, err);
    }
    free(output);
    return status;
}

/* Every form: written from the one before it in `from`, up to two files of DIR. */
static const struct form {
    const char *name, *from[2];
    bool top_k, model, scores;
} forms[] = {
    {"table.h5", {"detect.h5", "norms.h5"}, true, false, false},
    {"table.json", {"table.h5"}, false, false, false},
    {"scores.pt", {"detect.h5", "norms.h5"}, false, false, false},
    {"table.yaml", {"table.h5"}, false, true, true},
    {"table.safetensors", {"table.h5"}, false, false, false},
    {"config.json", {"table.h5"}, false, true, false},
    {"table.csv", {"table.h5"}, false, false, false},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static dpe_status write_form(struct batch *batch, const struct form *form, struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    struct words words = {0};
    words_add(&words, "dpe-export");
    for (int i = 0; i < 2 && form->from[i] != NULL; i++) {
        add_path(&words, NULL, args->job.output, form->from[i]);
    }
    words_add_pair(&words, "--top-k", form->top_k ? args->top_k : NULL);
    words_add_pair(&words, "--model", form->model ? args->job.model : NULL);
    if (form->scores) {
        add_path(&words, "--scores", args->job.output, "scores.pt");
    }
    words_add(&words, "--force");
    add_path(&words, "--output", args->job.output, form->name);
    return run(batch, &words, false, err);
}

static dpe_status show(struct batch *batch, struct dpe_error *err)
{
    struct words words = {0};
    words_add(&words, "dpe-export");
    words_add(&words, "--show");
    add_path(&words, NULL, batch->args->job.output, "table.h5");
    printf("\n");
    dpe_status status = run(batch, &words, false, err);
    if (status == DPE_OK && batch->code == 0) {
        printf("%s: detect.h5 norms.h5 check.h5", batch->args->job.output);
        for (int i = 0; i < FORMS; i++) {
            printf(" %s", forms[i].name);
        }
        printf(" report.html\n");
    }
    return status;
}

static dpe_status report_once(struct batch *batch, bool figures, struct dpe_error *err)
{
    static const char *const inputs[] = {"detect.h5", "norms.h5", "table.h5", "check.h5"};
    struct words words = {0};
    words_add(&words, "dpe-report");
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        add_path(&words, NULL, batch->args->job.output, inputs[i]);
    }
    words_add(&words, "--force");
    words_add(&words, "--quiet");
    if (!figures) {
        words_add(&words, "--no-figures");
    }
    add_path(&words, "--output", batch->args->job.output, "report.html");
    return run(batch, &words, false, err);
}

/* Hours of work do not fail for want of gnuplot: the numbers then stand without figures. */
static dpe_status write_report(struct batch *batch, struct dpe_error *err)
{
    dpe_status status = report_once(batch, true, err);
    if (status == DPE_OK && (batch->code == DPE_NO_INPUT || batch->code == DPE_IO)) {
        dpe_log_warning("the report is written without figures (dpe-report said why)");
        status = report_once(batch, false, err);
    }
    return status;
}

static dpe_status calibrate(struct batch *batch, struct dpe_error *err)
{
    dpe_log_info("1 of 5: sweep (dpe-detect)");
    dpe_status status = measure(batch, sweep_words, "detect.h5", err);
    if (status == DPE_OK && batch->code == 0) {
        dpe_log_info("2 of 5: profile of the heads (dpe-norms)");
        printf("\n");
        status = measure(batch, profile_words, "norms.h5", err);
    }
    if (status == DPE_OK && batch->code == 0) {
        dpe_log_info("3 of 5: the table and its forms (dpe-export)");
    }
    for (int i = 0; i < FORMS && status == DPE_OK && batch->code == 0; i++) {
        status = write_form(batch, &forms[i], err);
    }
    if (status == DPE_OK && batch->code == 0) {
        dpe_log_info("4 of 5: what the table finds (dpe-eval)");
        printf(
            "\n%s: detect.h5 moves every pair, table.h5 the key pairs of each head (--top-k %s)\n",
            asks_needles(batch->args) ? "On needles that the sweep did not see"
                                      : "On the corpus's books, the sweep's among them",
            batch->args->top_k);
        status = measure(batch, check_words, "check.h5", err);
    }
    if (status == DPE_OK && batch->code == 0) {
        dpe_log_info("5 of 5: the report (dpe-report)");
        status = write_report(batch, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        status = show(batch, err);
    }
    return status;
}

/* --------------------------------------------------------------------------------- before any work
 */

static dpe_status check_model(const struct calibrate_arguments *args, struct dpe_error *err)
{
    struct dpe_model *model = NULL;
    const struct dpe_model_options options = {.config_only = true};
    dpe_status status = dpe_model_open(args->job.model, &options, &model, err);
    if (status == DPE_OK) {
        int64_t n_pairs = dpe_model_config(model)->head_dim / 2;
        if (strtod(args->top_k, NULL) > (double)n_pairs) {
            status = dpe_fail(err, DPE_USAGE, "--top-k: a head has %lld pairs, found '%s'",
                              (long long)n_pairs, args->top_k);
        }
    }
    dpe_model_close(model);
    return status;
}

/* What the profile would refuse is found before the sweep, not after it. */
static dpe_status try_tools(struct batch *batch, bool silent, struct dpe_error *err)
{
    struct words words = {0};
    dpe_status status = DPE_OK;
    if (!silent) {
        sweep_words(batch, NULL, &words);
        words_add(&words, "--dry-run");
        status = run(batch, &words, false, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        fputs(silent ? "" : "\n", stdout);
        profile_words(batch, NULL, &words);
        words_add(&words, "--dry-run");
        status = run(batch, &words, silent, err);
    }
    return status;
}

/* Whether a table or its journal is there. */
static bool has_begun(const struct calibrate_arguments *args, const char *name,
                      const char *journal_name)
{
    char *table = tools_path(args->job.output, name);
    char *journal = tools_path(args->job.output, journal_name);
    bool has = table != NULL && journal != NULL &&
               (access(table, F_OK) == 0 || access(journal, F_OK) == 0);
    free(table);
    free(journal);
    return has;
}

/* The forms are written anew each time, so files of their names must be ours. */
static dpe_status spare_strangers(const struct calibrate_arguments *args, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (int i = 0; i < FORMS && status == DPE_OK; i++) {
        char *path = tools_path(args->job.output, forms[i].name);
        if (path == NULL) {
            status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
        } else if (access(path, F_OK) == 0) {
            status =
                dpe_fail(err, DPE_CANNOT_CREATE,
                         "%s: exists and is of no calibration that was begun here; choose another "
                         "folder, or --force",
                         path);
        }
        free(path);
    }
    return status;
}

/* Make DIR. It must not be the model's own folder: config.json would be lost there. */
static dpe_status make_folder(const struct calibrate_arguments *args, bool *made,
                              struct dpe_error *err)
{
    struct stat model;
    struct stat output;
    *made = mkdir(args->job.output, 0777) == 0;
    if (!*made && errno != EEXIST) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: cannot be made: %s", args->job.output,
                        strerror(errno));
    }
    if (stat(args->job.output, &output) != 0 || !S_ISDIR(output.st_mode)) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: exists and is no folder", args->job.output);
    }
    if (stat(args->job.model, &model) == 0 && model.st_dev == output.st_dev &&
        model.st_ino == output.st_ino) {
        return dpe_fail(err, DPE_CANNOT_CREATE,
                        "%s is the model's folder: its config.json would be replaced; give another",
                        args->job.output);
    }
    if (!*made && !args->job.tool.force && !has_begun(args, "detect.h5", "detect.h5.journal")) {
        return spare_strangers(args, err);
    }
    return DPE_OK;
}

static dpe_status work(struct batch *batch, struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    if (dpe_ranks_launched()) {
        return dpe_fail(err, DPE_USAGE,
                        "started as several ranks: start dpe-calibrate once, with --launch 'mpirun "
                        "-n N' it starts its tools so");
    }
    int peers = args->job.tensor_parallel;
    if (peers > 1 && args->launch == NULL && !args->job.dry_run) {
        return dpe_fail(err, DPE_USAGE,
                        "--tensor-parallel %d needs %d processes that hold the model together: add "
                        "--launch 'mpirun -n %d'",
                        peers, peers, peers);
    }
    dpe_status status = check_model(args, err);
    if (status == DPE_OK) {
        status = tools_folder(&batch->tools, err);
    }
    if (status != DPE_OK || args->job.dry_run) {
        return status == DPE_OK ? try_tools(batch, false, err) : status;
    }
    if (!has_begun(args, "norms.h5", "norms.h5.journal")) {
        status = try_tools(batch, true, err);
    }
    bool made = false;
    if (status == DPE_OK && batch->code == 0) {
        status = make_folder(args, &made, err);
    }
    if (status == DPE_OK && batch->code == 0) {
        status = calibrate(batch, err);
    }
    if (made && (status != DPE_OK || batch->code != 0)) {
        rmdir(args->job.output); /* only an empty one goes */
    }
    return status;
}

int main(int argc, char **argv)
{
    dpe_tool_start(argv[0]);
    struct batch batch = {.begin = dpe_clock()};
    struct calibrate_arguments args = {.top_k = "0.75"};
    argp_parse(&calibrate_argp, argc, argv, 0, NULL, &args);
    dpe_tool_configure(&args.job.tool);
    tools_signals_install();
    batch.args = &args;
    struct dpe_error err = {0};
    dpe_status status = work(&batch, &err);
    free(batch.tools);
    int code = dpe_tool_end(status, &err);
    return code != 0 ? code : batch.code;
}

/* dpe-eval score: predictions of other programs, by the benchmarks' own rules. Their files are
 * found in the layouts in which they are published: in a folder, in folders of models, in folders
 * of tasks that hold folders of models. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/tool/result.h"
#include "engine/tool/tool.h"
#include "eval/score/score.h"
#include "eval/suite/suite.h"
#include "eval/tool/eval_commands.h"
#include "outputs/storage/storage.h"

/* ------------------------------------------------------------------------------- files to score */

/* A file, its task, and whose predictions they are: the folders on the way to it but for the one
 *  that has the task's name. */
struct score_found {
    char *path, *label; /* owned; label "" in the folder itself */
    const struct dpe_score_task *task;
    size_t rest; /* bytes that its name has after the task's */
    bool extra;
};
struct score_files {
    const char *suite;
    const struct dpe_score_task *only; /* the task of all, else NULL */
    bool skip_bad;
    size_t from;            /* where paths go on behind the folder */
    struct score_found *at; /* [n] by label, then path */
    size_t n;
};

enum { MAX_DEPTH = 4, MAX_FILES = 10000 };

/* "…-3.jsonl": one part of several that make a file. */
static bool is_part(const char *file)
{
    const char *dash = strrchr(file, '-');
    size_t digits = dash == NULL ? 0 : strspn(dash + 1, "0123456789");
    return digits > 0 && strcmp(dash + 1 + digits, ".jsonl") == 0;
}

/* Bytes between the name of the task in a file's name and its end, without the number of a part. */
static size_t rest_of(const char *file, const char *task)
{
    const char *at = strstr(file, task);
    const char *end = is_part(file) ? strrchr(file, '-') : strrchr(file, '.');
    return at == NULL || end == NULL || end < at + strlen(task) ? 0
                                                                : (size_t)(end - at) - strlen(task);
}

static const struct dpe_score_task *task_named(const char *suite, const char *name)
{
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        if (strcmp(dpe_score_task(suite, i)->name, name) == 0) {
            return dpe_score_task(suite, i);
        }
    }
    return NULL;
}

static dpe_status no_task(const char *path, const char *suite, struct dpe_error *err)
{
    return dpe_fail(err, DPE_BAD_DATA, "%s: the file name holds no task of %s; give --task NAME",
                    path, suite);
}

static void free_found(struct score_found *found)
{
    free(found->path);
    free(found->label);
}

/* Label and task of a file that was found. */
static dpe_status classify(const struct score_files *files, struct score_found *found,
                           struct dpe_error *err)
{
    const char *name = dpe_last_part(found->path);
    const struct dpe_score_task *own = dpe_score_task_of_file(files->suite, name);
    const struct dpe_score_task *of_folder = NULL;
    struct dpe_text label = {0};
    dpe_text_put_bytes(&label, "", 0);
    for (const char *part = found->path + files->from, *end = NULL; part < name; part = end + 1) {
        char folder[256];
        end = strchr(part, '/');
        snprintf(folder, sizeof folder, "%.*s", (int)(end - part), part);
        const struct dpe_score_task *task = task_named(files->suite, folder);
        of_folder = task != NULL ? task : of_folder;
        if (task == NULL) {
            dpe_text_put(&label, "%s%s", label.n > 0 ? "/" : "", folder);
        }
    }
    found->label = label.bytes;
    DPE_TRY(dpe_text_done(&label, err));
    found->task = files->only != NULL ? files->only : own != NULL ? own : of_folder;
    found->rest = own != NULL && own == found->task ? rest_of(name, own->name) : 0;
    return found->task != NULL ? DPE_OK : no_task(found->path, files->suite, err);
}

static int no_dot(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static dpe_status see_folder(struct score_files *files, const char *folder, int depth,
                             struct dpe_error *err);

static dpe_status see_entry(struct score_files *files, const char *folder, const char *name,
                            int depth, struct dpe_error *err)
{
    const size_t n = strlen(name);
    DPE_OWNED char *path = dpe_join(folder, "/", name);
    DPE_TRY(DPE_MADE(path, err, "no memory for a list of files"));
    if (dpe_is_folder(path)) {
        return depth < MAX_DEPTH ? see_folder(files, path, depth + 1, err) : DPE_OK;
    }
    if (n <= 6 || strcmp(name + n - 6, ".jsonl") != 0) {
        return DPE_OK;
    }
    if (files->n == MAX_FILES) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: more than %d files", path, MAX_FILES);
    }
    DPE_TRY(DPE_ROOM(&files->at, files->n, err, "no memory for a list of files"));
    struct score_found *found = &files->at[files->n++];
    *found = (struct score_found){.path = path};
    path = NULL;
    const dpe_status status = classify(files, found, err);
    if (status != DPE_BAD_DATA || !files->skip_bad) {
        return status;
    }
    dpe_log_warning("%s", err->text);
    free_found(found);
    files->n--;
    return DPE_OK;
}

/* Links are followed, to as many names as a folder has; the depth ends those to a folder above. */
static dpe_status see_folder(struct score_files *files, const char *folder, int depth,
                             struct dpe_error *err)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, no_dot, alphasort);
    dpe_status status = n < 0 ? dpe_fail_errno(err, errno, folder, "cannot be read") : DPE_OK;
    for (int i = 0; i < n; i++) {
        if (status == DPE_OK) {
            status = see_entry(files, folder, entries[i]->d_name, depth, err);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

static int by_label(const void *a, const void *b)
{
    const struct score_found *x = a;
    const struct score_found *y = b;
    int order = strcmp(x->label, y->label);
    return order != 0 ? order : strcmp(x->path, y->path);
}

/* A file beside another one of its task whose name says more than the task's is something else. */
static void find_extras(struct score_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        struct score_found *file = &files->at[i];
        for (size_t k = 0; k < files->n && !file->extra; k++) {
            const struct score_found *other = &files->at[k];
            file->extra = other->task == file->task && other->rest < file->rest &&
                          strcmp(other->label, file->label) == 0;
        }
        if (file->extra) {
            dpe_log_warning("%s is left out: another file has the plain name of the task %s",
                            file->path, file->task->name);
        }
    }
}

static void free_files(struct score_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free_found(&files->at[i]);
    }
    free(files->at);
}

/* All .jsonl files below a folder: FOLDER/…TASK….jsonl, FOLDER/MODEL/…TASK….jsonl and
 *  FOLDER/TASK/MODEL/….jsonl. The task is `only`, else the one in the file's name, else the one
 * that a folder on the way has as its name. Of several files of one task in one place all but those
 * with the shortest rest after the task's name are extra, and named in a warning. A file without a
 * task is DPE_BAD_DATA, or with skip_bad left out with a warning; no file is DPE_NO_INPUT, or
 * DPE_BAD_DATA when some were left out. Free with free_files, also after failures. */
static dpe_status find_files(struct score_files *files, const char *folder, struct dpe_error *err)
{
    files->from = strlen(folder) + 1;
    DPE_TRY(see_folder(files, folder, 0, err));
    if (files->n == 0) {
        return dpe_fail(err, files->skip_bad ? DPE_BAD_DATA : DPE_NO_INPUT,
                        "%s: expected .jsonl files%s, found none", folder,
                        files->skip_bad ? " of tasks" : "");
    }
    qsort(files->at, files->n, sizeof *files->at, by_label);
    find_extras(files);
    return DPE_OK;
}

enum {
    KEY_SUITE = DPE_KEY_PROGRAM,
};
enum { MAX_TASKS = 16 };

struct score_arguments {
    const char *suite, *predictions, *task, *scorer;
    bool skip_bad;
    int64_t threads;
    bool json;
};

static const struct dpe_option options_table[] = {
    {"suite", KEY_SUITE, "NAME", DPE_BASIC, "niah, ruler, ruler2 or infinitebench", 1},
    {"predictions", 0, "FILE|DIR", DPE_BASIC,
     "JSON lines, or a folder of .jsonl files, also in folders of models and tasks", 1,
     DPE_TEXT(struct score_arguments, predictions)},
    {"task", 0, "NAME", DPE_BASIC, "Task of the file (default: the one in its name)", 1,
     DPE_TEXT(struct score_arguments, task)},
    {"scorer", 0, "NAME", 0,
     "ruler: all or part; infinitebench: official (script of June 2024), official-2024-08 (En.Dia "
     "as "
     "since 214808d) or string (default: the task's own, official)",
     1, DPE_TEXT(struct score_arguments, scorer)},
    {"skip-bad", 0, NULL, 0,
     "Leave out and count lines that are not predictions, count empty predictions", 1,
     DPE_SWITCH(struct score_arguments, skip_bad)},
    {"threads", 0, "N", 0, "Threads to use (default: the cores it may use)", 1,
     DPE_COUNT(struct score_arguments, threads, 1, 4096)},
    {0},
};

/* Ends the process unless the suite has rules for predictions. */
static void check_suite(struct dpe_command_line *state, const char *name)
{
    char known[128] = "";
    if (dpe_suite_find(name) != NULL && dpe_score_task(name, 0) != NULL) {
        return;
    }
    for (size_t i = 0; dpe_suite_kind(i) != NULL; i++) {
        const char *other = dpe_suite_kind(i)->name;
        if (dpe_score_task(other, 0) != NULL) {
            dpe_append(known, sizeof known, "%s%s", known[0] == '\0' ? "" : ", ", other);
        }
    }
    dpe_line_error(state, "--suite: expected one of %s; found '%s'", known, name);
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct score_arguments *args = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->json;
        return 0;
    case KEY_SUITE:
        check_suite(state, arg);
        args->suite = arg;
        return 0;
    case DPE_LINE_WORD:
        dpe_line_error(state, "unexpected argument '%s' (the file or folder is --predictions)",
                       arg);
        return 0;
    case DPE_LINE_END:
        if (args->suite == NULL || args->predictions == NULL) {
            dpe_line_error(state, "%s is missing",
                           args->suite == NULL ? "--suite NAME" : "--predictions FILE|DIR");
        }
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

/* The request and its results, by task in the suite's order. */
struct scoring {
    const struct score_arguments *args;
    const struct dpe_suite_kind *suite;
    const struct dpe_score_task *only; /* --task, or NULL */
    struct dpe_score_sums sums[MAX_TASKS];
    char file[MAX_TASKS][256]; /* the file that a task's lines came from, for a second one */
    struct dpe_result *out;    /* --json, else NULL */
};

/* ------------------------------------------------------------------------------------- reading */

static dpe_status pick_rule(const struct dpe_score_task *task, const char *scorer, dpe_rule *rule,
                            const char **name, struct dpe_error *err)
{
    char sets[80];
    *rule = dpe_score_rule(task, scorer, name);
    return *rule != NULL ? DPE_OK
                         : dpe_fail(err, DPE_USAGE, "--scorer: %s has %s, found '%s'", task->suite,
                                    dpe_score_sets(task, sets), scorer);
}

static size_t place_of(const struct dpe_score_task *task)
{
    size_t i = 0;
    while (dpe_score_task(task->suite, i) != task) {
        i++;
    }
    return i;
}

static dpe_status find_task(const char *suite, const char *name, const struct dpe_score_task **task,
                            struct dpe_error *err)
{
    *task = task_named(suite, name);
    if (*task != NULL) {
        return DPE_OK;
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text known = {0};
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        dpe_text_put(&known, "%s%s", i == 0 ? "" : " ", dpe_score_task(suite, i)->name);
    }
    const char *list = known.failed ? "" : known.bytes;
    char meant[96];
    return dpe_fail(err, DPE_USAGE, "--task: %s has no task '%.100s'; its tasks: %s%s", suite, name,
                    list, dpe_suggest(name, list, meant));
}

static dpe_status score_file(struct scoring *scoring, const char *path,
                             const struct dpe_score_task *task, struct dpe_error *err)
{
    size_t place = place_of(task);
    struct dpe_score_sums *sums = scoring->sums + place;
    if (sums->scored > 0 && !(is_part(path) && is_part(scoring->file[place]))) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: a second file for the task %s, the first is %s; only parts named "
                        "…-0.jsonl, …-1.jsonl are joined",
                        path, task->name, scoring->file[place]);
    }
    snprintf(scoring->file[place], sizeof scoring->file[place], "%.255s", path);
    struct dpe_score_options options = {
        .task = task, .skip_bad = scoring->args->skip_bad, .threads = (int)scoring->args->threads};
    const char *name = NULL;
    DPE_TRY(pick_rule(task, scoring->args->scorer, &options.rule, &name, err));
    return dpe_score_file(path, &options, sums, err);
}

/* ------------------------------------------------------------------------------------ printing */

/* The number that the official script prints for a task. */
static double official_score(const struct dpe_suite_kind *suite, const struct dpe_score_sums *sums)
{
    double mean = sums->sum / (double)sums->scored;
    if (!suite->per_cent) {
        return mean;
    }
    char text[64];
    snprintf(text, sizeof text, "%.2f", mean * 100.0);
    return strtod(text, NULL);
}

static double per_cent(const struct dpe_suite_kind *suite, const struct dpe_score_sums *sums)
{
    double score = official_score(suite, sums);
    return suite->per_cent ? score : score * 100.0;
}

/* Mean over a category's tasks (NULL: all), as far as they are there; `label`: the folder's. */
static void put_mean(const struct scoring *scoring, const char *label, const char *category)
{
    double sum = 0.0;
    int n = 0, total = 0;
    const struct dpe_score_task *task = NULL;
    const char *name = category == NULL ? "overall" : category;
    for (size_t i = 0; (task = dpe_score_task(scoring->args->suite, i)) != NULL; i++) {
        if (category != NULL && strcmp(task->category, category) != 0) {
            continue;
        }
        total++;
        if (scoring->sums[i].scored > 0) {
            n++;
            sum += per_cent(scoring->suite, scoring->sums + i);
        }
    }
    if (n > 0 && scoring->out != NULL) {
        dpe_result_row(scoring->out, "means");
        dpe_result_text(scoring->out, "folder", label);
        dpe_result_text(scoring->out, "category", name);
        dpe_result_whole(scoring->out, "tasks", n);
        dpe_result_whole(scoring->out, "tasks_of_suite", total);
        dpe_result_number(scoring->out, "score", sum / n);
    } else if (n > 0) {
        dpe_print("%-20s  mean of %2d of %2d tasks %22.2f\n", name, n, total, sum / n);
    }
}

/* In per cent of a task's samples. */
static double at_least_half(const struct dpe_score_sums *sums)
{
    return 100.0 * (double)sums->at_least_half / (double)sums->scored;
}

static void add_task(const struct scoring *scoring, const char *label, const char *task,
                     const char *rule, const struct dpe_score_sums *sums)
{
    struct dpe_result *out = scoring->out;
    dpe_result_row(out, "tasks");
    dpe_result_text(out, "folder", label);
    dpe_result_text(out, "task", task);
    dpe_result_text(out, "scorer", rule);
    dpe_result_whole(out, "samples", sums->scored);
    dpe_result_whole(out, "empty", sums->empty);
    dpe_result_whole(out, "left_out", sums->bad + sums->no_object);
    dpe_result_number(out, "score", per_cent(scoring->suite, sums));
    dpe_result_number(out, "official", official_score(scoring->suite, sums));
    dpe_result_number(out, "at_least_half",
                      scoring->suite->half ? at_least_half(sums) : (double)NAN);
}

static void put_task(const struct scoring *scoring, const char *label, size_t i)
{
    const struct dpe_score_task *task = dpe_score_task(scoring->args->suite, i);
    const struct dpe_score_sums *sums = scoring->sums + i;
    dpe_rule rule = NULL;
    const char *name = "";
    char number[DPE_PY_REAL];
    pick_rule(task, scoring->args->scorer, &rule, &name, NULL);
    if (scoring->out != NULL) {
        add_task(scoring, label, task->name, name, sums);
        return;
    }
    dpe_print("%-20s  %-8s %8lld %6lld %8lld %9.2f  %s\n", task->name, name,
              (long long)sums->scored, (long long)sums->empty,
              (long long)(sums->bad + sums->no_object), per_cent(scoring->suite, sums),
              dpe_py_real(official_score(scoring->suite, sums), number));
    if (scoring->suite->half) {
        dpe_print("%-20s  %42.2f\n", "at least half", at_least_half(sums));
    }
}

/* What was scored; `label`: of a folder of folders the one it is in, else "". */
static void put_scores(const struct scoring *scoring, const char *label)
{
    const char *suite = scoring->args->suite;
    const char *category = "";
    if (scoring->out == NULL) {
        dpe_print("%-20s  %-8s %8s %6s %8s %9s  %s\n", "task", "scorer", "samples", "empty",
                  "left out", "score", "official");
    }
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        if (scoring->sums[i].scored > 0) {
            put_task(scoring, label, i);
        }
    }
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        const char *next = dpe_score_task(suite, i)->category;
        if (strcmp(next, category) != 0) {
            category = next;
            put_mean(scoring, label, category);
        }
    }
    if (dpe_score_task(suite, 1) != NULL) {
        put_mean(scoring, label, NULL);
    }
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        const struct dpe_score_sums *sums = scoring->sums + i;
        if (sums->first[0] != '\0') {
            dpe_log_warning(
                "%s: left out %lld lines that are not JSON objects and %lld that are not "
                "predictions; scored %lld empty predictions as 0; first: %s",
                dpe_score_task(suite, i)->name, (long long)sums->no_object, (long long)sums->bad,
                (long long)sums->empty, sums->first);
        }
    }
}

/* One file, whose name has the task unless --task does. */
static dpe_status score_alone(struct scoring *scoring, struct dpe_error *err)
{
    const char *path = scoring->args->predictions;
    const struct dpe_score_task *task =
        scoring->only != NULL ? scoring->only : dpe_score_task_of_file(scoring->args->suite, path);
    if (task == NULL) {
        /* A name that holds no task is perhaps a mistyped path. */
        int fd = -1;
        uint64_t size = 0;
        DPE_TRY(dpe_open_regular(path, &fd, &size, err));
        close(fd);
        return no_task(path, scoring->args->suite, err);
    }
    DPE_TRY(score_file(scoring, path, task, err));
    put_scores(scoring, "");
    return DPE_OK;
}

/* The files of a folder, a table for each model. */
static dpe_status score_folder(struct scoring *scoring, struct dpe_error *err)
{
    const struct score_arguments *args = scoring->args;
    DPE_SCOPED(free_files)
    struct score_files files = {
        .suite = args->suite, .only = scoring->only, .skip_bad = args->skip_bad};
    DPE_TRY(find_files(&files, args->predictions, err));
    for (size_t i = 0; i < files.n; i++) {
        const struct score_found *file = &files.at[i];
        DPE_TRY(dpe_signals_poll(NULL, err));
        DPE_TRY(file->extra ? DPE_OK : score_file(scoring, file->path, file->task, err));
        if (i + 1 == files.n || strcmp(file[1].label, file->label) != 0) {
            bool first = strcmp(file->label, files.at[0].label) == 0;
            if (file->label[0] != '\0' && scoring->out == NULL) {
                dpe_print("%s%s\n", first ? "" : "\n", file->label);
            }
            put_scores(scoring, file->label);
            memset(scoring->sums, 0, sizeof scoring->sums);
        }
    }
    return DPE_OK;
}

static dpe_status score(const struct score_arguments *args, struct dpe_error *err)
{
    DPE_OWNED struct scoring *scoring = NULL;
    DPE_TRY(DPE_NEW(&scoring, 1, err, "no memory for scores"));
    scoring->args = args;
    scoring->suite = dpe_suite_find(args->suite);
    if (args->task != NULL) {
        DPE_TRY(find_task(args->suite, args->task, &scoring->only, err));
    }
    if (dpe_score_task(args->suite, 1) == NULL) {
        scoring->only =
            dpe_score_task(args->suite, 0); /* its only task, whatever the file's name */
    }
    if (args->scorer != NULL) {
        dpe_rule rule = NULL;
        const char *name = NULL;
        DPE_TRY(pick_rule(dpe_score_task(args->suite, 0), args->scorer, &rule, &name, err));
    }
    if (args->json) {
        scoring->out = dpe_result_begin("dpe-eval");
        dpe_result_text(scoring->out, "suite", args->suite);
        dpe_result_text(scoring->out, "predictions", args->predictions);
    }
    dpe_status status =
        dpe_is_folder(args->predictions) ? score_folder(scoring, err) : score_alone(scoring, err);
    if (status == DPE_OK && args->json) {
        return dpe_result_print(scoring->out, err);
    }
    dpe_result_free(scoring->out);
    return status;
}

int dpe_eval_score_main(int argc, char **argv)
{
    static const struct dpe_option_set *const children[] = {&dpe_result_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .children = children,
        .doc = "Score predictions that other programs made, by the rules of the benchmark's own "
               "scripts. The prediction is the field pred or prediction, the references are "
               "outputs, needle, ground_truth, label or answer.\v"
               "The column official is the number that the official script prints.\n\n"
               "Example:\n"
               "  dpe-eval score --suite ruler --predictions pred/",
    };
    static char name[] = "dpe-eval score";
    argv[0] = name;
    struct score_arguments args = {0};
    struct dpe_error err = {0};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    return dpe_tool_end(score(&args, &err), &err);
}

/* Answers of a comparison as files in the formats of their benchmarks. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/system/folder.h"
#include "eval/score/score.h"
#include "eval/tool/comparison.h"
#include "outputs/storage/storage.h"

enum { LABEL = sizeof(((struct dpe_eval_method *)NULL)->label) };

/* A task's file under one method. */
struct file {
    const struct dpe_suite_task *task;
    enum dpe_record_format format;
    bool numbers; /* references are numbers */
    bool many;    /* they are a list even when there is one */
};

/* The references as their benchmark has them; NULL: no memory, or one that should be a number
 * and is not. */
static json_t *references(const struct file *file, const struct dpe_sample *sample)
{
    bool list = file->many || sample->n_references != 1;
    json_auto_t *all = json_array();
    for (size_t i = 0; i < sample->n_references; i++) {
        const char *text = sample->references[i];
        json_t *one = file->numbers ? json_loads(text, JSON_DECODE_ANY, NULL) : json_string(text);
        if (json_array_append_new(all, one) != 0) {
            return NULL;
        }
    }
    return json_incref(list ? all : json_array_get(all, 0));
}

/* A line of a file as its evaluation reads it; NULL: no memory, or a text that is not UTF-8. */
static json_t *line_of(const struct file *file, const struct dpe_row *row,
                       const struct dpe_sample *sample, const struct dpe_text *prompt)
{
    const json_int_t index = row->sample;
    const json_int_t length = (json_int_t)sample->prompt.n;
    const char *answer = row->text == NULL ? "" : row->text;
    json_t *right = references(file, sample);
    switch (file->format) {
    case DPE_RECORD_RULER:
        return json_pack("{s:I, s:s, s:s%, s:o, s:{}, s:i, s:I}", "index", index, "pred", answer,
                         "input", prompt->n > 0 ? prompt->bytes : "", prompt->n, "outputs", right,
                         "others", "truncation", -1, "length", length + sample->max_new);
    case DPE_RECORD_RULER2:
        return json_pack("{s:I, s:s, s:o, s:I}", "index", index, "generation", answer,
                         "expected_answer", right, "length", length);
    default:
        return json_pack("{s:I, s:s, s:o}", "id", index, "prediction", answer, "ground_truth",
                         right);
    }
}

static dpe_status write_row(const struct file *file, const struct dpe_row *row,
                            struct dpe_new_file *out, struct dpe_error *err)
{
    DPE_SCOPED(dpe_sample_free) struct dpe_sample sample = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text prompt = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text line = {0};
    DPE_TRY(dpe_task_sample(&file->task->task, row->sample, &sample,
                            file->format == DPE_RECORD_RULER ? &prompt : NULL, err));
    DPE_TRY(dpe_jsonl_append(&line, line_of(file, row, &sample, &prompt), err));
    return dpe_new_file_write(out, line.bytes, line.n, err);
}

/* A label as a name of files: what may mean something to a shell or a file system becomes '_'. */
static void plain_name(const char *label, char name[LABEL])
{
    size_t n = 0;
    for (; label[n] != '\0' && n < LABEL - 1; n++) {
        bool plain = (label[n] >= 'a' && label[n] <= 'z') || (label[n] >= 'A' && label[n] <= 'Z') ||
                     (label[n] >= '0' && label[n] <= '9') || strchr("-_.=,", label[n]) != NULL;
        name[n] = plain && !(n == 0 && label[n] == '.') ? label[n] : '_';
    }
    name[n] = '\0';
}

/* Where the answers of a method to a task go: a file and its folder. */
struct place {
    char folder[4096], path[4200];
};

static dpe_status find_place(const struct dpe_comparison *comparison, const char *label,
                             const struct dpe_suite_task *task, struct place *place,
                             struct dpe_error *err)
{
    char name[LABEL];
    plain_name(label, name);
    int n = snprintf(place->folder, sizeof place->folder, "%s/%s-%lld",
                     comparison->args->predictions, name, (long long)task->length);
    if (n < 0 || (size_t)n >= sizeof place->folder) {
        return dpe_fail(err, DPE_USAGE, "%s: the path is too long", comparison->args->predictions);
    }
    snprintf(place->path, sizeof place->path, "%s/%s.jsonl", place->folder, task->label);
    return DPE_OK;
}

static dpe_status write_task(const struct dpe_comparison *comparison, const struct file *file,
                             const char *label, const char *key, struct dpe_error *err)
{
    struct place place;
    DPE_TRY(find_place(comparison, label, file->task, &place, err));
    DPE_TRY(dpe_make_folder(place.folder, err));
    DPE_SCOPED(dpe_new_file_drop) struct dpe_new_file out = {.fd = -1};
    DPE_TRY(dpe_new_file_open(&out, place.path, NULL, err));
    for (int64_t s = 0; s < file->task->n_samples; s++) {
        const struct dpe_row *row =
            dpe_run_find(comparison->job.run, file->task->task.name, key, s);
        if (row != NULL && row->status == DPE_ROW_OK) {
            DPE_TRY(write_row(file, row, &out, err));
        }
    }
    return dpe_new_file_finish_over(&out, comparison->args->job.tool.force, err);
}

static dpe_status write_suite(const struct dpe_comparison *comparison, int i, struct dpe_error *err)
{
    const struct dpe_suite *suite = &comparison->suites[i];
    for (int m = 0; m < comparison->n_methods; m++) {
        for (size_t t = 0; t < suite->n_tasks; t++) {
            const struct dpe_score_task *task =
                dpe_score_task_of_file(suite->name, suite->tasks[t].label);
            const struct file file = {
                .task = &suite->tasks[t],
                .format = task->format,
                .numbers = task->references == DPE_REFERENCES_NUMBER,
                .many =
                    task->format == DPE_RECORD_RULER ||
                    (task->format == DPE_RECORD_RULER2 && task->rule != dpe_score_multichoice) ||
                    task->references == DPE_REFERENCES_PAIR || task->rule == dpe_score_f1 ||
                    task->rule == dpe_score_dialogue,
            };
            DPE_TRY(write_task(comparison, &file, comparison->labels[m],
                               comparison->cells[i][(size_t)m * suite->n_tasks + t], err));
        }
    }
    return DPE_OK;
}

/* A folder that exists, or whose parent can be written. */
static dpe_status check_folder(const char *path, struct dpe_error *err)
{
    struct stat info;
    char parent[4096];
    int length = 0;
    const int n = (int)(dpe_folder_name(path, &length) - path);
    const bool there = stat(path, &info) == 0;
    snprintf(parent, sizeof parent, "%.*s", n > 0 ? n : 1, n > 0 ? path : ".");
    if (there && !S_ISDIR(info.st_mode)) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: expected a folder or nothing, found a file",
                        path);
    }
    return access(there ? path : parent, W_OK | X_OK) == 0
               ? DPE_OK
               : dpe_fail(err, there || errno == EACCES ? DPE_PERMISSION : DPE_CANNOT_CREATE,
                          "%s: cannot be written: %s", path, strerror(errno));
}

/* A run that begins has no answers yet, so a file that is there holds those of another one: refused
 * before the work that would be done for it, unless --force replaces it; never one that is read. A
 * run that goes on compares when it writes. */
static dpe_status check_files(const struct dpe_comparison *comparison, struct dpe_error *err)
{
    const char *output = comparison->args->job.output;
    DPE_OWNED char *journal = dpe_join(output, ".journal", "");
    DPE_TRY(DPE_MADE(journal, err, "out of memory"));
    bool begins = access(output, F_OK) != 0 && access(journal, F_OK) != 0;
    const struct dpe_job_options *job = &comparison->args->job;
    for (int i = 0; i < comparison->n_suites && (begins || job->tool.force); i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        for (size_t t = 0; t < (size_t)comparison->n_methods * suite->n_tasks; t++) {
            struct place place;
            DPE_TRY(find_place(comparison, comparison->labels[t / suite->n_tasks],
                               &suite->tasks[t % suite->n_tasks], &place, err));
            if (suite->kind->predictions) {
                DPE_TRY(job->tool.force ? dpe_job_check_replaced(job, place.path, err)
                                        : dpe_tool_check_new(place.path, false, err));
            }
        }
    }
    return DPE_OK;
}

dpe_status dpe_eval_check_predictions(const struct dpe_comparison *comparison,
                                      struct dpe_error *err)
{
    const char *path = comparison->args->predictions;
    if (path[0] == '\0' || strlen(path) > 3900) {
        return dpe_fail(err, DPE_USAGE,
                        "--predictions: expected the name of a folder, found \"%.40s\"", path);
    }
    for (int m = 0; m < comparison->n_methods; m++) {
        char name[LABEL];
        plain_name(comparison->labels[m], name);
        for (int other = 0; other < m; other++) {
            char same[LABEL];
            plain_name(comparison->labels[other], same);
            if (strcmp(name, same) == 0) {
                return dpe_fail(err, DPE_USAGE,
                                "--predictions: %s and %s would write the same files, %s/%s-…; "
                                "run them separately",
                                comparison->labels[other], comparison->labels[m], path, name);
            }
        }
    }
    if (!dpe_job_leads(&comparison->job)) {
        return DPE_OK;
    }
    DPE_TRY(check_folder(path, err));
    return check_files(comparison, err);
}

dpe_status dpe_eval_write_predictions(const struct dpe_comparison *comparison,
                                      struct dpe_error *err)
{
    DPE_TRY(dpe_make_folder(comparison->args->predictions, err));
    for (int i = 0; i < comparison->n_suites; i++) {
        if (comparison->suites[i].kind->predictions) {
            DPE_TRY(write_suite(comparison, i, err));
        }
    }
    return DPE_OK;
}

/* Files of predictions, as their authors publish them: in a folder, in folders of models, in
 * folders of tasks that hold folders of models. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/tool/score_files.h"
#include "outputs/storage/storage.h"

enum { MAX_DEPTH = 4, MAX_FILES = 10000 };

struct walk {
    const char *suite;
    const struct dpe_score_task *only;
    bool skip_bad;
    struct score_files *files;
};

static dpe_status no_memory(struct dpe_error *err)
{
    return dpe_fail(err, DPE_NO_MEMORY, "no memory for a list of files");
}

/* "…-3.jsonl": one part of several that make a file. */
bool dpe_eval_is_part(const char *file)
{
    const char *dash = strrchr(file, '-');
    size_t digits = dash == NULL ? 0 : strspn(dash + 1, "0123456789");
    return digits > 0 && strcmp(dash + 1 + digits, ".jsonl") == 0;
}

/* Bytes between the name of the task in a file's name and its end, without the number of a part. */
static size_t rest_of(const char *file, const char *task)
{
    const char *at = strstr(file, task);
    const char *end = dpe_eval_is_part(file) ? strrchr(file, '-') : strrchr(file, '.');
    if (at == NULL || end == NULL || end < at + strlen(task)) {
        return 0;
    }
    return (size_t)(end - at) - strlen(task);
}

static dpe_status add(struct walk *walk, const char *path, const struct dpe_score_task *task,
                      const char *label, size_t rest, struct dpe_error *err)
{
    struct score_files *files = walk->files;
    if (!dpe_make_room(&files->at, files->n, sizeof *files->at)) {
        return no_memory(err);
    }
    struct score_found *found = &files->at[files->n++];
    *found = (struct score_found){
        .path = strdup(path), .label = strdup(label), .task = task, .rest = rest};
    return found->path == NULL || found->label == NULL ? no_memory(err)
           : files->n <= MAX_FILES
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "%s: more than %d files", path, MAX_FILES);
}

static dpe_status see_file(struct walk *walk, const char *path, const char *name,
                           const struct dpe_score_task *of_folder, const char *label,
                           struct dpe_error *err)
{
    const struct dpe_score_task *own = dpe_score_task_of_file(walk->suite, name);
    const struct dpe_score_task *task = walk->only != NULL ? walk->only
                                        : own != NULL      ? own
                                                           : of_folder;
    if (task != NULL) {
        bool named = own == task;
        return add(walk, path, task, label, named ? rest_of(name, task->name) : 0, err);
    }
    dpe_fail(err, DPE_BAD_DATA, "%s: the file name holds no task of %s; give --task NAME", path,
             walk->suite);
    if (!walk->skip_bad) {
        return DPE_BAD_DATA;
    }
    dpe_log_warning("%s", err->text);
    return DPE_OK;
}

static int no_dot(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

const struct dpe_score_task *dpe_eval_task_named(const char *suite, const char *name)
{
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        if (strcmp(dpe_score_task(suite, i)->name, name) == 0) {
            return dpe_score_task(suite, i);
        }
    }
    return NULL;
}

static dpe_status see_folder(struct walk *walk, const char *folder,
                             const struct dpe_score_task *task, const char *label, int depth,
                             struct dpe_error *err);

static dpe_status see_entry(struct walk *walk, const char *folder, const char *name,
                            const struct dpe_score_task *task, const char *label, int depth,
                            struct dpe_error *err)
{
    struct stat info;
    size_t n = strlen(name);
    DPE_OWNED char *path = dpe_join(folder, "/", name);
    if (path == NULL) {
        return no_memory(err);
    }
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        bool jsonl = n > 6 && strcmp(name + n - 6, ".jsonl") == 0;
        return jsonl ? see_file(walk, path, name, task, label, err) : DPE_OK;
    }
    const struct dpe_score_task *own = dpe_eval_task_named(walk->suite, name);
    DPE_OWNED char *below =
        own != NULL ? strdup(label) : dpe_join(label, label[0] != '\0' ? "/" : "", name);
    return below == NULL ? no_memory(err)
           : depth < MAX_DEPTH
               ? see_folder(walk, path, own != NULL ? own : task, below, depth + 1, err)
               : DPE_OK;
}

static dpe_status see_folder(struct walk *walk, const char *folder,
                             const struct dpe_score_task *task, const char *label, int depth,
                             struct dpe_error *err)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, no_dot, by_bytes);
    if (n < 0) {
        return dpe_fail(err, errno == EACCES ? DPE_PERMISSION : DPE_IO, "%s: %s", folder,
                        strerror(errno));
    }
    dpe_status status = DPE_OK;
    for (int i = 0; i < n; i++) {
        if (status == DPE_OK) {
            status = see_entry(walk, folder, entries[i]->d_name, task, label, depth, err);
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
static void leave_out_extras(struct score_files *files)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->n; i++) {
        const struct score_found *file = &files->at[i];
        for (size_t k = 0; k < files->n && !files->at[i].extra; k++) {
            const struct score_found *other = &files->at[k];
            files->at[i].extra = other->task == file->task && other->rest < file->rest &&
                                 strcmp(other->label, file->label) == 0;
        }
    }
    for (size_t i = 0; i < files->n; i++) {
        if (files->at[i].extra) {
            dpe_log_warning("%s is left out: another file has the plain name of the task %s",
                            files->at[i].path, files->at[i].task->name);
            free(files->at[i].path);
            free(files->at[i].label);
        } else {
            files->at[kept++] = files->at[i];
        }
    }
    files->n = kept;
}

dpe_status dpe_eval_find_predictions(const char *suite, const struct dpe_score_task *only,
                                     const char *folder, bool skip_bad, struct score_files *files,
                                     struct dpe_error *err)
{
    struct walk walk = {suite, only, skip_bad, files};
    *files = (struct score_files){0};
    DPE_TRY(see_folder(&walk, folder, NULL, "", 0, err));
    if (files->n == 0) {
        return dpe_fail(err, skip_bad ? DPE_BAD_DATA : DPE_NO_INPUT,
                        "%s: expected .jsonl files%s, found none", folder,
                        skip_bad ? " of tasks" : "");
    }
    qsort(files->at, files->n, sizeof *files->at, by_label);
    leave_out_extras(files);
    return DPE_OK;
}

void dpe_eval_free_predictions(struct score_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free(files->at[i].path);
        free(files->at[i].label);
    }
    free(files->at);
    *files = (struct score_files){0};
}

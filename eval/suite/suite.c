/* The suites by name. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kind {
    const char *name, *about;
    bool needs_corpus;
    dpe_status (*open)(const struct dpe_suite_options *options, struct dpe_suite *suite,
                       struct dpe_error *err);
};

static const struct kind kinds[] = {
    {"niah", "needles in a haystack, all values of a key: recall", true, dpe_suite_open_niah},
    {"niah_grid", "one needle, by depth and length: recall", true, dpe_suite_open_grid},
    {"ppl", "perplexity of books", true, dpe_suite_open_ppl},
    {"ruler", "13 tasks of finding, following, counting and answering, generated or --data", false,
     dpe_suite_open_ruler},
    {"infinitebench", "8 tasks over 100K tokens, from official --data", false,
     dpe_suite_open_infinitebench},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const char *dpe_suite_name(size_t i)
{
    return i < N_KINDS ? kinds[i].name : NULL;
}

const char *dpe_suite_about(size_t i)
{
    return i < N_KINDS ? kinds[i].about : NULL;
}

static const struct kind *find(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

bool dpe_suite_needs_corpus(const char *name)
{
    const struct kind *kind = find(name);
    return kind != NULL && kind->needs_corpus;
}

struct dpe_suite_task *dpe_suite_add(struct dpe_suite *suite, const char *label,
                                     const char *category, int64_t length, int64_t n_samples,
                                     struct dpe_error *err)
{
    struct dpe_suite_task made = {.length = length, .n_samples = n_samples};
    int n = snprintf(made.task.name, sizeof made.task.name, "%s-%lld", label, (long long)length);
    if (n < 0 || (size_t)n >= sizeof made.task.name || strlen(label) >= sizeof made.label ||
        strlen(category) >= sizeof made.category) {
        dpe_fail(err, DPE_USAGE, "task \"%s\" at %lld tokens: the name is too long", label,
                 (long long)length);
        return NULL;
    }
    memcpy(made.label, label, strlen(label) + 1);
    memcpy(made.category, category, strlen(category) + 1);
    struct dpe_suite_task *tasks =
        realloc(suite->tasks, (suite->n_tasks + 1) * sizeof *suite->tasks);
    if (tasks == NULL) {
        dpe_fail(err, DPE_NO_MEMORY, "no memory for a task");
        return NULL;
    }
    suite->tasks = tasks;
    tasks[suite->n_tasks] = made;
    return &tasks[suite->n_tasks];
}

void dpe_suite_keep(struct dpe_suite *suite)
{
    struct dpe_suite_task *task = &suite->tasks[suite->n_tasks++];
    if (task->n_samples > task->task.n_samples) {
        task->n_samples = task->task.n_samples;
    }
}

dpe_status dpe_suite_open(const char *name, const struct dpe_suite_options *options,
                          struct dpe_suite *suite, struct dpe_error *err)
{
    struct dpe_error own = {0};
    err = err == NULL ? &own : err;
    *suite = (struct dpe_suite){0};
    const struct kind *kind = find(name);
    if (kind == NULL) {
        char known[256] = "";
        for (size_t i = 0; i < N_KINDS; i++) {
            size_t n = strlen(known);
            snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", kinds[i].name);
        }
        return dpe_fail(err, DPE_USAGE, "unknown suite \"%s\"; there are %s", name, known);
    }
    if (kind->needs_corpus && options->corpus == NULL) {
        return dpe_fail(err, DPE_USAGE, "suite %s needs texts: give --corpus", name);
    }
    snprintf(suite->name, sizeof suite->name, "%s", kind->name);
    dpe_status status = kind->open(options, suite, err);
    if (status != DPE_OK) {
        dpe_suite_close(suite);
    }
    return status;
}

void dpe_suite_close(struct dpe_suite *suite)
{
    for (size_t i = 0; i < suite->n_tasks; i++) {
        dpe_task_close(&suite->tasks[i].task);
    }
    free(suite->tasks);
    dpe_identity_free(&suite->parameters);
    *suite = (struct dpe_suite){0};
}

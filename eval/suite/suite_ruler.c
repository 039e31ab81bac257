/* RULER as a suite: generated, or read from official data. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "eval/ruler/ruler.h"
#include "eval/score/score.h"
#include "eval/suite/official.h"

/* A slash where commas separate something else: --suite ruler:tasks=vt/cwe,samples=10. */
#define LIST_SEPARATORS ",/"

/* Whether a task is on the list (NULL: all), by its name or its category's. */
static bool listed(const char *list, const char *name, const char *category)
{
    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, LIST_SEPARATORS);
        if ((strlen(name) == n && memcmp(list, name, n) == 0) ||
            (n > 0 && strlen(category) == n && strncasecmp(list, category, n) == 0)) {
            return true;
        }
        list += n + (list[n] != '\0');
    }
    return list == NULL;
}

/* With the tasks and categories that the suite has. */
static dpe_status refuse_task(const char *suite, const char *name, struct dpe_error *err)
{
    char known[768] = "";
    const char *category = "";
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        dpe_append(known, sizeof known, "%s%s", i == 0 ? "" : ", ", dpe_score_task(suite, i)->name);
    }
    dpe_append(known, sizeof known, "; categories: ");
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        const char *next = dpe_score_task(suite, i)->category;
        if (strcmp(next, category) != 0) {
            dpe_append(known, sizeof known, "%s%s", category[0] == '\0' ? "" : ", ", next);
        }
        category = next;
    }
    char meant[96];
    return dpe_fail(err, DPE_USAGE, "--tasks: %s has no task \"%s\"; tasks: %s%s", suite, name,
                    known, dpe_suggest(name, known, meant));
}

dpe_status dpe_suite_check_tasks(const char *suite, const char *list, struct dpe_error *err)
{
    if (list != NULL && *list == '\0') {
        return dpe_fail(err, DPE_USAGE, "--tasks: expected tasks of %s, found an empty list",
                        suite);
    }
    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, LIST_SEPARATORS);
        char one[64];
        bool known = false;
        snprintf(one, sizeof one, "%.*s", (int)(n < 63 ? n : 63), list);
        for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
            const struct dpe_score_task *task = dpe_score_task(suite, i);
            known = known || listed(one, task->name, task->category);
        }
        if (!known) {
            return refuse_task(suite, one, err);
        }
        list += n + (list[n] != '\0');
    }
    return DPE_OK;
}

bool dpe_suite_task_listed(const char *list, const struct dpe_score_task *task)
{
    return listed(list, task->name, task->category);
}

dpe_status dpe_suite_official(const struct dpe_official_options *options, struct dpe_suite *suite,
                              struct dpe_source *source, struct dpe_error *err)
{
    char name[48];
    struct dpe_official_file file = {0};
    DPE_TRY(dpe_official_source(options, source, &file, err));
    snprintf(name, sizeof name, "data_%s", options->task->name);
    for (size_t i = 0; i < suite->n_tasks; i++) {
        if (strcmp(suite->tasks[i].label, options->task->name) == 0) {
            return DPE_OK; /* known from another length */
        }
    }
    if (suite->skipped == 0) {
        snprintf(suite->first_skipped, sizeof suite->first_skipped, "%s", file.first);
    }
    suite->skipped += file.left_out;
    return dpe_identity_add(&suite->parameters, name, file.hash, err);
}

/* What the opened tasks share. */
struct opening {
    const struct dpe_suite_options *options;
    struct dpe_suite *suite;
    struct dpe_ruler *ruler;            /* generated, */
    struct dpe_official_shared *shared; /* or read */
};

static dpe_status add_task(struct opening *opening, size_t i, int64_t length, struct dpe_error *err)
{
    const struct dpe_suite_options *options = opening->options;
    const struct dpe_ruler_kind *kind = dpe_ruler_kind(i);
    struct dpe_source source = {0};
    struct dpe_suite_task *added =
        dpe_suite_add(opening->suite, kind->name, kind->category, length, options->n_samples, err);
    if (added == NULL) {
        return err->status;
    }
    if (opening->ruler != NULL) {
        DPE_TRY(dpe_ruler_source(opening->ruler, kind, length, &source, err));
    } else {
        const struct dpe_official_options official = {.shared = opening->shared,
                                                      .folder = options->data,
                                                      .task = dpe_score_task("ruler", i),
                                                      .tokenizer = options->tokenizer,
                                                      .length = length,
                                                      .kind = kind,
                                                      .score = kind->score,
                                                      .growing = kind->growing,
                                                      .skip_bad = options->skip_bad};
        DPE_TRY(dpe_suite_official(&official, opening->suite, &source, err));
    }
    return dpe_suite_keep_questions(opening->suite, added, &source, options->tokenizer, err);
}

static dpe_status open_generator(struct opening *opening, struct dpe_error *err)
{
    const struct dpe_suite_options *options = opening->options;
    const struct dpe_ruler_options ruler = {
        .tokenizer = options->tokenizer,
        .corpus = options->corpus,
        .chat_template = options->chat_template,
        .template_file = options->template_file,
        .squad = options->squad,
        .hotpotqa = options->hotpotqa,
        .special = options->niah.special,
        .seed = options->seed,
        .max_length = options->lengths[options->n_lengths - 1],
    };
    static const char *const specials[] = {"error", "literal", "parse"};
    DPE_TRY(dpe_ruler_open(&ruler, &opening->ruler, err));
    DPE_TRY(dpe_identity_add(&opening->suite->parameters, "template", opening->ruler->hash, err));
    return dpe_identity_add(&opening->suite->parameters, "special", specials[ruler.special], err);
}

/* Files of questions decide rows as well. */
static dpe_status identify_questions(const struct opening *opening, struct dpe_error *err)
{
    static const char *const files[] = {"squad", "hotpotqa"};
    for (int d = 0; d < 2 && opening->ruler != NULL; d++) {
        const char *hash = opening->ruler->qa[d].hash;
        if (hash[0] != '\0') {
            DPE_TRY(dpe_identity_add(&opening->suite->parameters, files[d], hash, err));
        }
    }
    return DPE_OK;
}

/* The option without which the task has nothing to be made of; NULL: it can be run. Of a task that
 * was asked for that is an error. */
static const char *lacking(const struct opening *opening, size_t i)
{
    const struct dpe_ruler_kind *kind = dpe_ruler_kind(i);
    if (opening->options->tasks != NULL || opening->ruler == NULL) {
        return NULL;
    }
    if (kind->draw == dpe_ruler_qa_draw) {
        return opening->ruler->qa[kind->dataset].n_questions > 0 ? NULL
               : kind->dataset == 0                              ? "--squad FILE"
                                                                 : "--hotpotqa FILE";
    }
    bool texts = kind->draw == dpe_ruler_niah_draw && kind->haystack == RULER_ESSAY;
    return texts && opening->options->corpus == NULL ? "--corpus PATH" : NULL;
}

static void note_lack(struct dpe_suite *suite, size_t i, const char *option)
{
    dpe_append(suite->lacks, sizeof suite->lacks, "%s%s without %s",
               suite->lacks[0] != '\0' ? ", " : "", dpe_ruler_kind(i)->name, option);
}

dpe_status dpe_suite_open_ruler(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                struct dpe_error *err)
{
    struct opening opening = {.options = options, .suite = suite};
    dpe_status status = dpe_suite_check_tasks("ruler", options->tasks, err);
    if (status == DPE_OK && options->data == NULL) {
        status = open_generator(&opening, err);
    } else if (status == DPE_OK) {
        status = dpe_official_share(options->chat_template, dpe_tokenizer_path(options->tokenizer),
                                    NULL, NULL, 0, &opening.shared, err);
        if (status == DPE_OK) {
            status = dpe_official_identify(opening.shared, &suite->parameters, err);
        }
    }
    for (size_t l = 0; l < options->n_lengths && status == DPE_OK; l++) {
        for (size_t i = 0; dpe_ruler_kind(i) != NULL && status == DPE_OK; i++) {
            const char *option = lacking(&opening, i);
            if (option != NULL && l == 0) {
                note_lack(suite, i, option);
            }
            if (option == NULL &&
                dpe_suite_task_listed(options->tasks, dpe_score_task("ruler", i))) {
                status = add_task(&opening, i, options->lengths[l], err);
            }
        }
    }
    if (status == DPE_OK) {
        status = identify_questions(&opening, err);
    }
    dpe_ruler_close(opening.ruler);
    dpe_official_release(opening.shared);
    return status;
}

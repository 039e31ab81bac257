/* Suites of official files: what is asked for, and each of its tasks at every length. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "eval/score/score.h"

/* --------------------------------------------------------------------------------------- tasks */

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

/* Its file's hash joins the suite's parameters, lines that were left out are counted. */
static dpe_status open_official(const struct dpe_official_options *options, struct dpe_suite *suite,
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

/* --------------------------------------------------------------------------------------- files */

/* A benchmark whose tasks are official files. */
struct files {
    const char *name;     /* of dpe_score_task */
    const int64_t *rooms; /* tokens to generate for each task; NULL: those of ruler's kinds */
    const struct dpe_phrase_field *fields; /* [n_fields] two of each task; NULL: no phrases */
    size_t n_fields;
    const char *scorer; /* NULL: the official one */
    struct dpe_official_shared *shared;
};

static void release_files(struct files *files)
{
    dpe_official_release(files->shared);
}

static dpe_status add_file(const struct dpe_suite_options *options, const struct files *files,
                           size_t i, int64_t length, struct dpe_suite *suite, struct dpe_error *err)
{
    const struct dpe_score_task *task = dpe_score_task(files->name, i);
    const char *set = NULL;
    struct dpe_source source = {0};
    struct dpe_suite_task *added =
        dpe_suite_add(suite, task->name, task->category, length, options->n_samples, err);
    if (added == NULL) {
        return err->status;
    }
    const struct dpe_official_options official = {
        .shared = files->shared,
        .folder = options->data,
        .task = task,
        .tokenizer = options->tokenizer,
        .length = length,
        .room = files->rooms != NULL ? files->rooms[i] : 0,
        .kind = files->rooms != NULL ? NULL : dpe_ruler_kind(i),
        .phrase = 2 * i,
        .score = dpe_score_rule(task, files->scorer, &set),
        .skip_bad = options->skip_bad};
    DPE_TRY(open_official(&official, suite, &source, err));
    return dpe_suite_keep_questions(suite, added, &source, options->tokenizer, err);
}

/* Those of its tasks that are asked for, at every length. */
static dpe_status add_files(const struct dpe_suite_options *options, const struct files *files,
                            struct dpe_suite *suite, struct dpe_error *err)
{
    for (size_t l = 0; l < options->n_lengths; l++) {
        for (size_t i = 0; dpe_score_task(files->name, i) != NULL; i++) {
            if (dpe_suite_task_listed(options->tasks, dpe_score_task(files->name, i))) {
                DPE_TRY(add_file(options, files, i, options->lengths[l], suite, err));
            }
        }
    }
    return DPE_OK;
}

static dpe_status share(const struct dpe_suite_options *options, struct files *files,
                        struct dpe_error *err)
{
    return dpe_official_share(options->chat_template, dpe_tokenizer_path(options->tokenizer),
                              options->template_file, files->fields, files->n_fields,
                              &files->shared, err);
}

dpe_status dpe_suite_read_ruler(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                struct dpe_error *err)
{
    DPE_SCOPED(release_files) struct files files = {.name = "ruler"};
    DPE_TRY(share(options, &files, err));
    DPE_TRY(dpe_official_identify(files.shared, &suite->parameters, err));
    return add_files(options, &files, suite, err);
}

/* The 12 tasks of NVIDIA-NeMo/Skills, from the files that its preparation writes. */
dpe_status dpe_suite_open_ruler2(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                 struct dpe_error *err)
{
    /* A number, a copied question, or a copied document and what is said about it. */
    static const int64_t rooms[] = {32, 512, 1024, 512, 128, 1024, 1024, 512, 32, 32, 1024, 128};
    DPE_SCOPED(release_files) struct files files = {.name = "ruler2", .rooms = rooms};
    if (options->data == NULL) {
        return dpe_fail(
            err, DPE_USAGE,
            "ruler2 reads the files of its own preparation: give the folder of its tasks with "
            "--data DIR");
    }
    DPE_TRY(dpe_suite_check_tasks(files.name, options->tasks, err));
    DPE_TRY(share(options, &files, err));
    DPE_TRY(add_files(options, &files, suite, err));
    return dpe_official_identify(files.shared, &suite->parameters, err);
}

/* -------------------------------------------------------------------------------- infinitebench */

#define OPTIONS "option_a option_b option_c option_d"
static const struct dpe_phrase_field infinitebench_fields[] = {
    {"longbook_qa_eng", "context input", "", NULL, false},
    {"longbook_qa_eng_answer", "", "", "", false},
    {"longbook_choice_eng", "context input " OPTIONS, "", NULL, false},
    {"longbook_choice_eng_answer", "", "", "", false},
    {"longdialogue_qa_eng", "context", "input", NULL, false},
    {"longdialogue_qa_eng_answer", "", "", "", false},
    {"passkey", "context input", "", NULL, false},
    {"passkey_answer", "", "", "", false},
    {"number_string", "context input", "", NULL, false},
    {"number_string_answer", "", "", "", false},
    {"kv_retrieval", "context input", "", NULL, false},
    {"kv_retrieval_answer", "", "", "", false},
    {"code_debug", "context " OPTIONS, "input", NULL, false},
    {"code_debug_answer", "", "", "", false},
    {"math_find", "context input", "", NULL, false},
    {"math_find_answer", "", "", "", false},
};

static dpe_status check_infinitebench(const struct dpe_suite_options *options,
                                      struct dpe_error *err)
{
    if (options->data == NULL) {
        return dpe_fail(
            err, DPE_USAGE,
            "infinitebench reads the official files: give their folder with --data DIR");
    }
    const struct dpe_score_task *first = dpe_score_task("infinitebench", 0);
    const char *name = NULL;
    char sets[80];
    if (dpe_score_rule(first, options->scorer, &name) == NULL) {
        return dpe_fail(err, DPE_USAGE, "--scorer: infinitebench has %s, found '%.40s'",
                        dpe_score_sets(first, sets), options->scorer);
    }
    return dpe_suite_check_tasks("infinitebench", options->tasks, err);
}

/* The 8 tasks of the paper's table. */
dpe_status dpe_suite_open_infinitebench(const struct dpe_suite_options *options,
                                        struct dpe_suite *suite, struct dpe_error *err)
{
    static const int64_t rooms[] = {40, 40, 40, 6, 12, 50, 5, 3};
    const char *scorer = options->scorer == NULL ? "official" : options->scorer;
    DPE_SCOPED(release_files)
    struct files files = {.name = "infinitebench",
                          .rooms = rooms,
                          .fields = infinitebench_fields,
                          .n_fields = sizeof infinitebench_fields / sizeof infinitebench_fields[0],
                          .scorer = options->scorer};
    snprintf(suite->score, sizeof suite->score, "score by the %s rules", scorer);
    DPE_TRY(check_infinitebench(options, err));
    DPE_TRY(share(options, &files, err));
    DPE_TRY(add_files(options, &files, suite, err));
    DPE_TRY(dpe_identity_add(&suite->parameters, "template", files.shared->phrases.hash, err));
    DPE_TRY(dpe_official_identify(files.shared, &suite->parameters, err));
    return dpe_identity_add(&suite->parameters, "scorer", scorer, err);
}

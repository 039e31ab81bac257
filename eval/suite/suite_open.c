/* Suites opened: of the texts of a corpus (needles, one needle by depth, perplexity), RULER
 * generated, and of official files: what is asked for, and each of its tasks at every length. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "eval/ruler/ruler.h"
#include "eval/score/score.h"

/* --------------------------------------------------------------------------------------- texts */

/* The needle task of one length; its template's hash goes to `hash`. */
static dpe_status add_needles(const struct dpe_suite_options *options,
                              const struct dpe_niah_params *params, const char *label,
                              int64_t length, struct dpe_suite *suite, char hash[65],
                              struct dpe_error *err)
{
    struct dpe_niah *niah = NULL;
    struct dpe_task task = {0};
    DPE_TRY(dpe_niah_open(params, length, options->corpus, options->tokenizer,
                          options->given.chat_template, options->seed, &niah, err));
    snprintf(hash, 65, "%s", dpe_niah_template_hash(niah));
    DPE_TRY(dpe_task_niah(label, niah, options->tokenizer, &task, err));
    return dpe_suite_add(suite, label, "", length, options->given.samples, &task, err);
}

static dpe_status describe(struct dpe_suite *suite, const struct dpe_niah_params *params,
                           const char *hash, struct dpe_error *err)
{
    char spec[256];
    dpe_niah_format(params, spec, sizeof spec);
    suite->unit = params->steps ? "step score (share of steps that name a missing value)"
                                : "recall (share of needles found)";
    snprintf(suite->score, sizeof suite->score, "%s of the needles", dpe_identity_measure(spec));
    DPE_TRY(dpe_identity_add(&suite->parameters, "parameters", spec, err));
    return dpe_identity_add(&suite->parameters, "template", hash, err);
}

dpe_status dpe_suite_open_niah(const struct dpe_suite_options *options, struct dpe_suite *suite,
                               struct dpe_error *err)
{
    char hash[65] = "";
    for (size_t i = 0; i < options->n_lengths; i++) {
        DPE_TRY(
            add_needles(options, &options->niah, "niah", options->lengths[i], suite, hash, err));
    }
    return describe(suite, &options->niah, hash, err);
}

dpe_status dpe_suite_open_grid(const struct dpe_suite_options *options, struct dpe_suite *suite,
                               struct dpe_error *err)
{
    char hash[65] = "";
    struct dpe_niah_params params = options->niah;
    params.keys = params.values = params.queries = params.asked = 1;
    for (size_t i = 0; i < options->n_depths * options->n_lengths; i++) {
        char label[24];
        params.depth = options->depths[i / options->n_lengths];
        snprintf(label, sizeof label, "depth-%.4g", params.depth);
        DPE_TRY(add_needles(options, &params, label, options->lengths[i % options->n_lengths],
                            suite, hash, err));
    }
    params.depth = options->niah.depth; /* of the cells, not of the suite */
    return describe(suite, &params, hash, err);
}

/* Perplexity of the first tokens of books, or of a window that slides over them. */
static dpe_status add_books(const struct dpe_suite_options *options, int64_t length,
                            struct dpe_suite *suite, struct dpe_error *err)
{
    const bool slides = options->given.stride > 0;
    const struct dpe_ppl_options books = {.length = length,
                                          .stride = slides ? options->given.stride : length,
                                          .max_tokens = slides ? options->given.max_tokens : length,
                                          .special = options->niah.special};
    struct dpe_task task = {0};
    DPE_TRY(dpe_task_ppl_sliding("ppl", options->corpus, options->tokenizer, &books, &task,
                                 &suite->skipped, err));
    return dpe_suite_add(suite, "ppl", "", length, options->given.samples, &task, err);
}

dpe_status dpe_suite_open_ppl(const struct dpe_suite_options *options, struct dpe_suite *suite,
                              struct dpe_error *err)
{
    for (size_t i = 0; i < options->n_lengths; i++) {
        DPE_TRY(add_books(options, options->lengths[i], suite, err));
    }
    DPE_TRY(dpe_identity_addf(&suite->parameters, err, "stride", "%lld",
                              (long long)options->given.stride));
    DPE_TRY(dpe_identity_addf(&suite->parameters, err, "max_tokens", "%lld",
                              (long long)options->given.max_tokens));
    return dpe_identity_add(&suite->parameters, "special", dpe_niah_specials[options->niah.special],
                            err);
}

/* -------------------------------------------------------------------------------------- RULER */

static dpe_status add_task(const struct dpe_suite_options *options, size_t i, int64_t length,
                           struct dpe_suite *suite, struct dpe_error *err)
{
    struct dpe_source source = {0};
    DPE_TRY(dpe_ruler_source(suite->ruler, dpe_ruler_kind(i), length, &source, err));
    return dpe_suite_add_questions(suite, dpe_score_task("ruler", i), options, length, &source,
                                   err);
}

static dpe_status open_generator(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                 struct dpe_error *err)
{
    const struct dpe_ruler_options given = {
        .tokenizer = options->tokenizer,
        .corpus = options->corpus,
        .chat_template = options->given.chat_template,
        .template_file = options->given.template_file,
        .squad = options->given.squad,
        .hotpotqa = options->given.hotpotqa,
        .special = options->niah.special,
        .seed = options->seed,
        .max_length = options->lengths[options->n_lengths - 1],
    };
    DPE_TRY(dpe_ruler_open(&given, &suite->ruler, err));
    DPE_TRY(dpe_identity_add(&suite->parameters, "template", suite->ruler->hash, err));
    return dpe_identity_add(&suite->parameters, "special", dpe_niah_specials[given.special], err);
}

/* Files of questions decide rows as well. */
static dpe_status identify_questions(struct dpe_suite *suite, struct dpe_error *err)
{
    static const char *const files[] = {"squad", "hotpotqa"};
    for (int d = 0; d < 2; d++) {
        const char *hash = suite->ruler->qa[d].hash;
        if (hash[0] != '\0') {
            DPE_TRY(dpe_identity_add(&suite->parameters, files[d], hash, err));
        }
    }
    return DPE_OK;
}

/* The option without which the task has nothing to be made of; NULL: it can be run. Of a task that
 * was asked for that is an error. */
static const char *lacking(const struct dpe_suite_options *options, const struct dpe_ruler *ruler,
                           const struct dpe_ruler_kind *kind)
{
    if (options->given.tasks != NULL) {
        return NULL;
    }
    if (kind->maker == &dpe_ruler_qa) {
        return ruler->qa[kind->dataset].n_questions > 0 ? NULL
               : kind->dataset == DPE_QA_SQUAD          ? "--squad FILE"
                                                        : "--hotpotqa FILE";
    }
    bool texts = kind->maker == &dpe_ruler_niah && kind->haystack == RULER_ESSAY;
    return texts && options->corpus == NULL ? "--corpus PATH" : NULL;
}

/* Those of the tasks that are asked for and have what they are made of, at every length. */
static dpe_status add_tasks(const struct dpe_suite_options *options, struct dpe_suite *suite,
                            struct dpe_error *err)
{
    for (size_t l = 0; l < options->n_lengths; l++) {
        for (size_t i = 0; dpe_ruler_kind(i) != NULL; i++) {
            const char *option = lacking(options, suite->ruler, dpe_ruler_kind(i));
            if (option != NULL && l == 0) {
                dpe_append(suite->lacks, sizeof suite->lacks, "%s%s without %s",
                           suite->lacks[0] != '\0' ? ", " : "", dpe_ruler_kind(i)->name, option);
            }
            if (option == NULL &&
                dpe_suite_task_listed(options->given.tasks, dpe_score_task("ruler", i))) {
                DPE_TRY(add_task(options, i, options->lengths[l], suite, err));
            }
        }
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------- official files */

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

/* --------------------------------------------------------------------------------------- files */

/* A benchmark whose tasks are official files. */
struct files {
    const char *name;     /* of dpe_score_task */
    const int64_t *rooms; /* tokens to generate for each task; NULL: those of ruler's kinds */
    const struct dpe_phrase_field
        *fields; /* [n_fields] of each task, and how its answer begins; NULL: no phrases */
    size_t n_fields;
};

/* The file's hash joins the suite's parameters, lines that were left out are counted. */
static dpe_status identify_file(const char *task, const struct dpe_official_file *file,
                                struct dpe_suite *suite, struct dpe_error *err)
{
    char name[48];
    snprintf(name, sizeof name, "data_%s", task);
    for (size_t i = 0; i < suite->n_tasks; i++) {
        if (strcmp(suite->tasks[i].label, task) == 0) {
            return DPE_OK; /* known from another length */
        }
    }
    if (suite->skipped == 0) {
        snprintf(suite->first_skipped, sizeof suite->first_skipped, "%s", file->first);
    }
    suite->skipped += file->left_out;
    return dpe_identity_add(&suite->parameters, name, file->hash, err);
}

static dpe_status add_file(const struct dpe_suite_options *options, const struct files *files,
                           size_t i, int64_t length, struct dpe_suite *suite, struct dpe_error *err)
{
    const struct dpe_score_task *task = dpe_score_task(files->name, i);
    const bool scorers = (suite->kind->takes & DPE_SUITE_SCORER) != 0;
    const char *set = NULL;
    DPE_SCOPED(dpe_source_close) struct dpe_source source = {0};
    struct dpe_official_file file = {0};
    const struct dpe_official_task official = {
        .task = task,
        .length = length,
        .room = files->rooms != NULL ? files->rooms[i] : 0,
        .kind = files->rooms != NULL ? NULL : dpe_ruler_kind(i),
        .score = dpe_score_rule(task, scorers ? options->given.scorer : NULL, &set)};
    DPE_TRY(dpe_official_source(suite->official, &official, &source, &file, err));
    DPE_TRY(identify_file(task->name, &file, suite, err));
    return dpe_suite_add_questions(suite, task, options, length, &source, err);
}

/* Those of its tasks that are asked for, at every length. */
static dpe_status add_files(const struct dpe_suite_options *options, const struct files *files,
                            struct dpe_suite *suite, struct dpe_error *err)
{
    for (size_t l = 0; l < options->n_lengths; l++) {
        for (size_t i = 0; dpe_score_task(files->name, i) != NULL; i++) {
            if (dpe_suite_task_listed(options->given.tasks, dpe_score_task(files->name, i))) {
                DPE_TRY(add_file(options, files, i, options->lengths[l], suite, err));
            }
        }
    }
    return DPE_OK;
}

/* The chat template decides rows; nothing without one. */
static dpe_status identify_chat(struct dpe_suite *suite, struct dpe_error *err)
{
    const char *hash = suite->official->chat_hash;
    return hash[0] != '\0' ? dpe_identity_add(&suite->parameters, "chat_template", hash, err)
                           : DPE_OK;
}

static dpe_status open_files(const struct dpe_suite_options *options, const struct files *files,
                             struct dpe_suite *suite, struct dpe_error *err)
{
    DPE_TRY(dpe_suite_check_tasks(files->name, options->given.tasks, err));
    return dpe_official_open(options, files->fields, files->n_fields, &suite->official, err);
}

dpe_status dpe_suite_open_ruler(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                struct dpe_error *err)
{
    static const struct files files = {.name = "ruler"};
    if (options->given.data != NULL) {
        DPE_TRY(open_files(options, &files, suite, err));
        DPE_TRY(identify_chat(suite, err));
        return add_files(options, &files, suite, err);
    }
    DPE_TRY(dpe_suite_check_tasks(files.name, options->given.tasks, err));
    DPE_TRY(open_generator(options, suite, err));
    DPE_TRY(add_tasks(options, suite, err));
    return identify_questions(suite, err);
}

/* The 12 tasks of NVIDIA-NeMo/Skills, from the files that its preparation writes. */
dpe_status dpe_suite_open_ruler2(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                 struct dpe_error *err)
{
    /* A number, a copied question, or a copied document and what is said about it. */
    static const int64_t rooms[] = {32, 512, 1024, 512, 128, 1024, 1024, 512, 32, 32, 1024, 128};
    static const struct files files = {.name = "ruler2", .rooms = rooms};
    DPE_TRY(open_files(options, &files, suite, err));
    DPE_TRY(add_files(options, &files, suite, err));
    return identify_chat(suite, err);
}

/* -------------------------------------------------------------------------------- infinitebench */

#define OPTIONS "option_a option_b option_c option_d"
static const struct dpe_phrase_field infinitebench_fields[] = {
    {"longbook_qa_eng", "context input", ""},
    {"longbook_qa_eng_answer", "", "", ""},
    {"longbook_choice_eng", "context input " OPTIONS, ""},
    {"longbook_choice_eng_answer", "", "", ""},
    {"longdialogue_qa_eng", "context", "input"},
    {"longdialogue_qa_eng_answer", "", "", ""},
    {"passkey", "context input", ""},
    {"passkey_answer", "", "", ""},
    {"number_string", "context input", ""},
    {"number_string_answer", "", "", ""},
    {"kv_retrieval", "context input", ""},
    {"kv_retrieval_answer", "", "", ""},
    {"code_debug", "context " OPTIONS, "input"},
    {"code_debug_answer", "", "", ""},
    {"math_find", "context input", ""},
    {"math_find_answer", "", "", ""},
};

/* The 8 tasks of the paper's table. */
dpe_status dpe_suite_open_infinitebench(const struct dpe_suite_options *options,
                                        struct dpe_suite *suite, struct dpe_error *err)
{
    static const int64_t rooms[] = {40, 40, 40, 6, 12, 50, 5, 3};
    static const struct files files = {.name = "infinitebench",
                                       .rooms = rooms,
                                       .fields = infinitebench_fields,
                                       .n_fields = sizeof infinitebench_fields /
                                                   sizeof infinitebench_fields[0]};
    const struct dpe_score_task *first = dpe_score_task(files.name, 0);
    const char *scorer = NULL;
    char sets[80];
    if (dpe_score_rule(first, options->given.scorer, &scorer) == NULL) {
        return dpe_fail(err, DPE_USAGE, "--scorer: infinitebench has %s, found '%.40s'",
                        dpe_score_sets(first, sets), options->given.scorer);
    }
    snprintf(suite->score, sizeof suite->score, "score by the %s rules", scorer);
    DPE_TRY(open_files(options, &files, suite, err));
    DPE_TRY(add_files(options, &files, suite, err));
    DPE_TRY(dpe_identity_add(&suite->parameters, "template", suite->official->phrases.hash, err));
    DPE_TRY(identify_chat(suite, err));
    return dpe_identity_add(&suite->parameters, "scorer", scorer, err);
}

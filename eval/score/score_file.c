/* The tasks that can be scored, which one a file is about, and the sums of the scores of a file's
 * lines, predictions of other programs. */
#include "engine/text/json.h"
#include "eval/score/score.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char all[] = "all";
static const char part[] = "part";
static const char official[] = "official";
static const char loose[] = "string";
static const char later[] = "official-2024-08";

#define RULER(name, category, scorer, rule, other, other_rule)                                     \
    {                                                                                              \
        "ruler", name, category, DPE_RECORD_RULER, DPE_REFERENCES_TEXTS, rule, scorer, other,      \
            other_rule, NULL, NULL                                                                 \
    }
#define RULER_ALL(name, category)  RULER(name, category, all, dpe_score_all, part, dpe_score_part)
#define RULER_PART(name, category) RULER(name, category, part, dpe_score_part, all, dpe_score_all)
#define RULER2(name, category, scorer, rule)                                                       \
    {                                                                                              \
        "ruler2", name, category, DPE_RECORD_RULER2, DPE_REFERENCES_TEXTS, rule, scorer, "", NULL, \
            NULL, NULL                                                                             \
    }
#define INFINITE_LATER(name, references, rule, other_rule, later_rule)                             \
    {                                                                                              \
        "infinitebench", name, "", DPE_RECORD_INFINITEBENCH, references, rule, official, loose,    \
            other_rule, later, later_rule                                                          \
    }
#define INFINITE(name, references, rule, other_rule)                                               \
    INFINITE_LATER(name, references, rule, other_rule, rule)

static const struct dpe_score_task tasks[] = {
    RULER_ALL("niah_single_1", "NIAH"),
    RULER_ALL("niah_single_2", "NIAH"),
    RULER_ALL("niah_single_3", "NIAH"),
    RULER_ALL("niah_multikey_1", "NIAH"),
    RULER_ALL("niah_multikey_2", "NIAH"),
    RULER_ALL("niah_multikey_3", "NIAH"),
    RULER_ALL("niah_multivalue", "NIAH"),
    RULER_ALL("niah_multiquery", "NIAH"),
    RULER_ALL("vt", "VT"),
    RULER_ALL("cwe", "Aggregation"),
    RULER_ALL("fwe", "Aggregation"),
    RULER_PART("qa_1", "QA"),
    RULER_PART("qa_2", "QA"),
    RULER2("mk_niah_basic", "mk_niah", all, dpe_score_near_all),
    RULER2("mk_niah_easy", "mk_niah", all, dpe_score_near_all),
    RULER2("mk_niah_medium", "mk_niah", "multichoice", dpe_score_multichoice),
    RULER2("mk_niah_hard", "mk_niah", "multichoice", dpe_score_multichoice),
    RULER2("mv_niah_basic", "mv_niah", all, dpe_score_near_all),
    RULER2("mv_niah_easy", "mv_niah", all, dpe_score_near_all),
    RULER2("mv_niah_medium", "mv_niah", "2steps", dpe_score_near_last),
    RULER2("mv_niah_hard", "mv_niah", all, dpe_score_near_all),
    RULER2("qa_basic", "qa", part, dpe_score_near_part),
    RULER2("qa_easy", "qa", part, dpe_score_near_part),
    RULER2("qa_medium", "qa", part, dpe_score_near_part),
    RULER2("qa_hard", "qa", part, dpe_score_near_part),
    INFINITE("longbook_qa_eng", DPE_REFERENCES_TEXTS, dpe_score_f1, dpe_score_f1),
    INFINITE("longbook_choice_eng", DPE_REFERENCES_PAIR, dpe_score_choice, dpe_score_choice_string),
    INFINITE_LATER("longdialogue_qa_eng", DPE_REFERENCES_TEXTS, dpe_score_dialogue,
                   dpe_score_dialogue_string, dpe_score_dialogue_string),
    INFINITE("passkey", DPE_REFERENCES_TEXTS, dpe_score_integer, dpe_score_integer),
    INFINITE("number_string", DPE_REFERENCES_TEXTS, dpe_score_integer, dpe_score_integer),
    INFINITE("kv_retrieval", DPE_REFERENCES_TEXTS, dpe_score_word, dpe_score_word),
    INFINITE("code_debug", DPE_REFERENCES_PAIR, dpe_score_debug, dpe_score_debug_string),
    INFINITE("math_find", DPE_REFERENCES_NUMBER, dpe_score_number, dpe_score_number_string),
    {"niah", "niah", "", DPE_RECORD_RULER, DPE_REFERENCES_TEXTS, dpe_score_all, all, part,
     dpe_score_part, NULL, NULL},
};
enum { N_TASKS = sizeof tasks / sizeof tasks[0] };

const struct dpe_score_task *dpe_score_task(const char *suite, size_t i)
{
    for (size_t t = 0; t < N_TASKS; t++) {
        if (strcmp(tasks[t].suite, suite) == 0 && i-- == 0) {
            return tasks + t;
        }
    }
    return NULL;
}

dpe_rule dpe_score_rule(const struct dpe_score_task *task, const char *scorer, const char **name)
{
    const struct {
        const char *name;
        dpe_rule rule;
    } sets[] = {{task->scorer, task->rule},
                {task->other, task->other_rule},
                {task->later, task->later_rule}};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (scorer == NULL || (sets[i].name != NULL && strcmp(scorer, sets[i].name) == 0)) {
            *name = sets[i].name;
            return sets[i].rule;
        }
    }
    return NULL;
}

const char *dpe_score_sets(const struct dpe_score_task *task, char text[80])
{
    snprintf(text, 80, "%s%s%s%s%s", task->scorer, task->later != NULL ? ", " : "",
             task->later != NULL ? task->later : "", task->other[0] != '\0' ? " and " : "",
             task->other);
    return text;
}

static bool letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool names(const char *file, const char *task)
{
    size_t n = strlen(task);
    for (const char *at = strstr(file, task); at != NULL; at = strstr(at + 1, task)) {
        if ((at == file || !letter_or_digit(at[-1])) && !letter_or_digit(at[n])) {
            return true;
        }
    }
    return false;
}

const struct dpe_score_task *dpe_score_task_of_file(const char *suite, const char *path)
{
    const char *file = dpe_last_part(path);
    const struct dpe_score_task *found = NULL;
    for (size_t t = 0; t < N_TASKS; t++) {
        if (strcmp(tasks[t].suite, suite) == 0 && names(file, tasks[t].name) &&
            (found == NULL || strlen(tasks[t].name) > strlen(found->name))) {
            found = tasks + t;
        }
    }
    return found;
}

/* A thread takes a block of lines at a time. */
enum { BLOCK = 16 };

enum outcome { SCORED, EMPTY, NO_OBJECT, BAD, FAILED };

/* Where a format has its prediction and its references: the first field that is present. */
static const struct layout {
    const char *predictions[4], *references[6];
    const char *prediction, *reference; /* in words */
} layouts[] = {
    [DPE_RECORD_RULER] = {{"pred", "prediction"},
                          {"outputs", "needle", "ground_truth", "answer", "label"},
                          "prediction in \"pred\" or \"prediction\"",
                          "reference in \"outputs\", \"needle\", \"ground_truth\", \"label\" or "
                          "\"answer\""},
    [DPE_RECORD_INFINITEBENCH] = {{"prediction", "pred"},
                                  {"ground_truth", "label", "answer", "outputs", "needle"},
                                  "prediction in \"pred\" or \"prediction\"",
                                  "reference in \"outputs\", \"needle\", \"ground_truth\", "
                                  "\"label\" or \"answer\""},
    [DPE_RECORD_RULER2] = {{"generation", "pred", "prediction"},
                           {"expected_answer", "outputs", "answer"},
                           "prediction in \"generation\", \"pred\" or \"prediction\"",
                           "reference in \"expected_answer\", \"outputs\" or \"answer\""},
};

/* The name of the first that is there, NULL: none is. */
static const char *first_of(const json_t *line, const char *const *order)
{
    while (*order != NULL && json_object_get(line, *order) == NULL) {
        order++;
    }
    return *order;
}

/* Of the kind that the task wants. */
static dpe_status check_references(const char *name, const json_t *value,
                                   enum dpe_references wanted, struct dpe_error *err)
{
    const bool number = wanted == DPE_REFERENCES_NUMBER;
    const size_t n = dpe_jsonl_entries(value);
    if (n == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected references, found an empty list",
                        name);
    }
    if (wanted == DPE_REFERENCES_PAIR && n < 2) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "\"%s\": expected a list of the right option and its letter, found %s",
                        name, json_is_array(value) ? "one entry" : dpe_jsonl_kind(value));
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = dpe_jsonl_entry(value, i);
        if (number ? !dpe_jsonl_is_number(entry) : !dpe_jsonl_has_text(entry)) {
            return dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected %s, found %s", name,
                            number ? "a number" : "a string or a list of strings",
                            dpe_jsonl_kind(entry));
        }
    }
    return DPE_OK;
}

/* Score a line that is an object. */
static enum outcome score_line(const json_t *line, const struct dpe_score_options *options,
                               double *score, struct dpe_error *err)
{
    const struct layout *layout = &layouts[options->task->format];
    const char *predicted = first_of(line, layout->predictions);
    const char *name = first_of(line, layout->references);
    if (predicted == NULL || name == NULL) {
        dpe_fail(err, DPE_BAD_DATA, "expected a %s, found none",
                 predicted == NULL ? layout->prediction : layout->reference);
        return BAD;
    }
    const json_t *prediction = json_object_get(line, predicted);
    const json_t *references = json_object_get(line, name);
    if (!dpe_json_is_text(prediction)) {
        dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected a string, found %s", predicted,
                 dpe_jsonl_kind(prediction));
        return BAD;
    }
    if (check_references(name, references, options->task->references, err) != DPE_OK) {
        return BAD;
    }
    const char *text = json_string_value(prediction);
    if (text[strspn(text, " \t\n\v\f\r")] == '\0') {
        dpe_fail(err, DPE_BAD_DATA, "\"%s\": the prediction is empty", predicted);
        *score = 0.0;
        return EMPTY;
    }
    const size_t n = dpe_jsonl_entries(references);
    DPE_OWNED char **texts = NULL;
    DPE_OWNED char(*numbers)[DPE_JSONL_NUMBER] = NULL;
    if (DPE_NEW(&texts, n, err, "no memory for references") != DPE_OK ||
        DPE_NEW(&numbers, n, err, "no memory for references") != DPE_OK) {
        return FAILED;
    }
    for (size_t i = 0; i < n; i++) {
        const char *reference = dpe_jsonl_text(dpe_jsonl_entry(references, i), numbers[i]);
        texts[i] = (char *)(uintptr_t)reference;
    }
    *score = options->rule(text, texts, n);
    if (isnan(*score)) {
        dpe_fail(err, DPE_NO_MEMORY, "no memory to score a line");
        return FAILED;
    }
    return SCORED;
}

/* All lines of a file. */
struct pass {
    const struct dpe_jsonl *jsonl;
    const struct dpe_score_options *options;
    double *scores;         /* [lines] */
    unsigned char *outcome; /* [lines] */
    int64_t trouble;        /* first line that is not SCORED, −1: none */
    bool failed;            /* the line could not be read, or memory ran out */
    struct dpe_error err;   /* its message */
};

static void note(struct pass *pass, int64_t i, bool failed, const struct dpe_error *err)
{
#pragma omp critical(dpe_score_note)
    {
        bool earlier = pass->trouble < 0 || i < pass->trouble;
        if (failed == pass->failed ? earlier : failed) {
            pass->trouble = i;
            pass->failed = failed;
            pass->err = *err;
        }
    }
}

static void score_one(struct pass *pass, int64_t i)
{
    struct dpe_error err = {0};
    DPE_SCOPED(json_decrefp) json_t *line = NULL;
    const dpe_status status = dpe_jsonl_read(pass->jsonl, i, &line, &err);
    enum outcome outcome = status == DPE_BAD_DATA ? NO_OBJECT : FAILED;
    if (status == DPE_OK) {
        outcome = score_line(line, pass->options, pass->scores + i, &err);
        if (outcome != SCORED) {
            dpe_fail_prefix(&err, "%s: line %lld", dpe_jsonl_path(pass->jsonl),
                            (long long)dpe_jsonl_number(pass->jsonl, i));
        }
    }
    pass->outcome[i] = (unsigned char)outcome;
    if (outcome != SCORED) {
        note(pass, i, outcome == FAILED, &err);
    }
}

static void score_lines(struct pass *pass, int64_t n, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(dynamic, BLOCK)
    for (int64_t i = 0; i < n; i++) {
        score_one(pass, i);
    }
}

/* Added in the order of the lines, so that the sum has the same bits as the official script's. */
static void add_up(const struct pass *pass, int64_t n, struct dpe_score_sums *sums)
{
    for (int64_t i = 0; i < n; i++) {
        enum outcome outcome = (enum outcome)pass->outcome[i];
        sums->no_object += outcome == NO_OBJECT;
        sums->bad += outcome == BAD;
        sums->empty += outcome == EMPTY;
        if (outcome == SCORED || outcome == EMPTY) {
            sums->scored++;
            sums->sum += pass->scores[i];
            sums->at_least_half += pass->scores[i] >= 0.5;
        }
    }
}

static dpe_status finish(const struct pass *pass, int64_t n, struct dpe_score_sums *sums,
                         struct dpe_error *err)
{
    int64_t before = sums->scored;
    add_up(pass, n, sums);
    if (pass->trouble >= 0 && (pass->failed || !pass->options->skip_bad)) {
        return dpe_fail(err, pass->err.status, "%s%s", pass->err.text,
                        !pass->failed
                            ? "; --skip-bad leaves such lines out (an empty prediction scores 0) "
                              "and counts them"
                            : "");
    }
    if (pass->trouble >= 0 && sums->first[0] == '\0') {
        snprintf(sums->first, sizeof sums->first, "%.500s", pass->err.text);
    }
    return sums->scored > before
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "%s: expected predictions, found none%s%s",
                          dpe_jsonl_path(pass->jsonl), pass->trouble >= 0 ? "; first: " : "",
                          pass->trouble >= 0 ? pass->err.text : "");
}

dpe_status dpe_score_file(const char *path, const struct dpe_score_options *options,
                          struct dpe_score_sums *sums, struct dpe_error *err)
{
    DPE_SCOPED(dpe_jsonl_close_scoped) struct dpe_jsonl *jsonl = NULL;
    DPE_OWNED double *scores = NULL;
    DPE_OWNED unsigned char *outcome = NULL;
    DPE_TRY(dpe_jsonl_open(path, &jsonl, err));
    const int64_t n = dpe_jsonl_size(jsonl);
    DPE_TRY(DPE_NEW(&scores, (size_t)n, err, "%s: no memory for %lld scores", path, (long long)n));
    DPE_TRY(DPE_NEW(&outcome, (size_t)n, err, "%s: no memory for %lld scores", path, (long long)n));
    struct pass pass = {jsonl, options, scores, outcome, .trouble = -1};
    score_lines(&pass, n,
                options->threads > 0 ? options->threads
                                     : dpe_limit_processors(omp_get_max_threads()));
    return finish(&pass, n, sums, err);
}

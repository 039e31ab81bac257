/* The tasks that can be scored, and which one a file is about. */
#include "eval/score/score.h"

#include <stdio.h>
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
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    const struct dpe_score_task *found = NULL;
    for (size_t t = 0; t < N_TASKS; t++) {
        if (strcmp(tasks[t].suite, suite) == 0 && names(file, tasks[t].name) &&
            (found == NULL || strlen(tasks[t].name) > strlen(found->name))) {
            found = tasks + t;
        }
    }
    return found;
}

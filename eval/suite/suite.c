/* The registry of suites. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char needles[] =
    "Needles in a haystack: short statements with numbers are hidden in a long text, and a "
    "question "
    "at its end asks for them; the score is the share of numbers in the answer. All methods read "
    "the same samples.";

static const struct dpe_suite_kind kinds[] = {
    {.name = "niah",
     .title = "Needles",
     .about = "needles in a haystack, all values of a key: recall",
     .explanation = needles,
     .takes = DPE_SUITE_CHAT_TEMPLATE | DPE_SUITE_NEEDLES,
     .needs_corpus = true,
     .half = true,
     .open = dpe_suite_open_niah},
    {.name = "niah_grid",
     .title = "Needles by depth",
     .about = "one needle, by depth and length: recall",
     .explanation = needles,
     .takes = DPE_SUITE_CHAT_TEMPLATE | DPE_SUITE_NEEDLES | DPE_SUITE_DEPTHS,
     .needs_corpus = true,
     .half = true,
     .open = dpe_suite_open_grid},
    {.name = "ppl",
     .title = "Perplexity",
     .about = "perplexity of books",
     .explanation =
         "Perplexity measures how surprised the model is by each next token of real books: 1 is "
         "certainty, and a method that breaks at a length shows as a jump. It is insensitive to "
         "whether far tokens can be found again.",
     .unit = "perplexity per token",
     .score = "negative log-likelihood per token",
     .takes = DPE_SUITE_WINDOW,
     .needs_corpus = true,
     .perplexity = true,
     .open = dpe_suite_open_ppl},
    {.name = "ruler",
     .title = "RULER",
     .about = "13 tasks of finding, following, counting and answering, generated or --data",
     .explanation =
         "RULER tests more than retrieval: several needles, chains of variables, the most common "
         "words, questions on documents. Scores are shares of the expected answers, on the same "
         "samples for all methods.",
     .unit = "score (1 = all right)",
     .score = "share of the expected answers",
     .takes = DPE_SUITE_CHAT_TEMPLATE | DPE_SUITE_TASKS | DPE_SUITE_QUESTIONS,
     .generates = true,
     .per_cent = true,
     .predictions = true,
     .open = dpe_suite_open_ruler},
    {.name = "ruler2",
     .title = "RULER v2",
     .about = "12 tasks of copying, finding and solving among many, from official --data",
     .explanation = "RULER v2 asks for one of many questions or documents: to copy it, to find all "
                    "of a name, or to "
                    "solve it, in four steps of difficulty. Scores are shares of the expected "
                    "answers, or of their "
                    "words, on the same samples for all methods.",
     .unit = "score (1 = all right)",
     .score = "share of the expected answers",
     .takes = DPE_SUITE_CHAT_TEMPLATE | DPE_SUITE_TASKS,
     .per_cent = true,
     .predictions = true,
     .open = dpe_suite_open_ruler2},
    {.name = "infinitebench",
     .title = "InfiniteBench",
     .about = "8 tasks over 100K tokens, from official --data",
     .explanation = "Scores by the rules of the benchmark, on the same samples for all methods. 1 "
                    "is all right, 0 nothing.",
     .unit = "score (1 = all right)",
     .score = "score by the official rules",
     .takes = DPE_SUITE_CHAT_TEMPLATE | DPE_SUITE_TASKS | DPE_SUITE_SCORER,
     .predictions = true,
     .open = dpe_suite_open_infinitebench},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const struct dpe_suite_kind *dpe_suite_kind(size_t i)
{
    return i < N_KINDS ? &kinds[i] : NULL;
}

const struct dpe_suite_kind *dpe_suite_find(const char *name)
{
    return DPE_NAMED(kinds, name);
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
    if (DPE_ROOM(&suite->tasks, suite->n_tasks, err, "no memory for a task") != DPE_OK) {
        return NULL;
    }
    suite->tasks[suite->n_tasks] = made;
    return &suite->tasks[suite->n_tasks];
}

void dpe_suite_keep(struct dpe_suite *suite)
{
    struct dpe_suite_task *task = &suite->tasks[suite->n_tasks++];
    task->n_samples = dpe_least(task->n_samples, task->task.n_samples);
}

dpe_status dpe_suite_keep_questions(struct dpe_suite *suite, struct dpe_suite_task *added,
                                    struct dpe_source *source,
                                    const struct dpe_tokenizer *tokenizer, struct dpe_error *err)
{
    memcpy(source->name, added->task.name, sizeof source->name);
    DPE_TRY(dpe_task_questions(source, tokenizer, &added->task, err));
    dpe_suite_keep(suite);
    return DPE_OK;
}

dpe_status dpe_suite_open(const char *name, const struct dpe_suite_options *options,
                          struct dpe_suite *suite, struct dpe_error *err)
{
    struct dpe_error own = {0};
    err = err == NULL ? &own : err;
    *suite = (struct dpe_suite){0};
    const struct dpe_suite_kind *kind = dpe_suite_find(name);
    if (kind == NULL) {
        char known[256] = "";
        for (size_t i = 0; i < N_KINDS; i++) {
            dpe_append(known, sizeof known, "%s%s", i == 0 ? "" : ", ", kinds[i].name);
        }
        char meant[96];
        return dpe_fail(err, DPE_USAGE, "unknown suite '%s'; suites: %s%s", name, known,
                        dpe_suggest(name, known, meant));
    }
    if (kind->needs_corpus && options->corpus == NULL) {
        return dpe_fail(err, DPE_USAGE, "the suite %s reads texts: give --corpus PATH", name);
    }
    suite->kind = kind;
    suite->perplexity = kind->perplexity;
    suite->half = kind->half;
    snprintf(suite->name, sizeof suite->name, "%s", kind->name);
    suite->unit = kind->unit;
    snprintf(suite->score, sizeof suite->score, "%s", kind->score != NULL ? kind->score : "");
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

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
     .needs_data = true,
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
     .needs_data = true,
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

dpe_status dpe_suite_add(struct dpe_suite *suite, const char *label, const char *category,
                         int64_t length, int64_t n_samples, struct dpe_task *task,
                         struct dpe_error *err)
{
    DPE_SCOPED(dpe_task_close) struct dpe_task taken = *task;
    struct dpe_suite_task made = {.length = length,
                                  .n_samples = dpe_least(n_samples, task->n_samples)};
    *task = (struct dpe_task){0};
    int n = snprintf(taken.name, sizeof taken.name, "%s-%lld", label, (long long)length);
    if (n < 0 || (size_t)n >= sizeof taken.name || strlen(label) >= sizeof made.label ||
        strlen(category) >= sizeof made.category) {
        return dpe_fail(err, DPE_USAGE, "task \"%s\" at %lld tokens: the name is too long", label,
                        (long long)length);
    }
    memcpy(made.label, label, strlen(label) + 1);
    memcpy(made.category, category, strlen(category) + 1);
    DPE_TRY(DPE_ROOM(&suite->tasks, suite->n_tasks, err, "no memory for a task"));
    made.task = taken;
    taken = (struct dpe_task){0};
    suite->tasks[suite->n_tasks++] = made;
    return DPE_OK;
}

dpe_status dpe_suite_add_questions(struct dpe_suite *suite, const struct dpe_score_task *of,
                                   const struct dpe_suite_options *options, int64_t length,
                                   struct dpe_source *source, struct dpe_error *err)
{
    struct dpe_task task = {0};
    snprintf(source->name, sizeof source->name, "%s", of->name);
    DPE_TRY(dpe_task_questions(source, options->tokenizer, &task, err));
    return dpe_suite_add(suite, of->name, of->category, length, options->given.samples, &task, err);
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
    if (kind->needs_data && options->given.data == NULL) {
        return dpe_fail(err, DPE_USAGE,
                        "%s reads the benchmark's own files: give their folder with --data DIR",
                        name);
    }
    suite->kind = kind;
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
    dpe_ruler_close(suite->ruler);
    dpe_official_close(suite->official);
    dpe_identity_free(&suite->parameters);
    *suite = (struct dpe_suite){0};
}

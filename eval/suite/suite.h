/**
 * @file suite.h
 * Benchmark suites: tasks with a name, and all that is true of a suite by name.
 */
#ifndef DPE_SUITE_H
#define DPE_SUITE_H

#include "engine/base/base.h"
#include "eval/niah/niah.h"
#include "eval/score/score.h"
#include "eval/task/task.h"
#include "outputs/rows/rows.h"

/** What suites are opened from; each takes what it needs. Pointers are borrowed for the suite's
 *  life. */
struct dpe_suite_options {
    const struct dpe_tokenizer *tokenizer;
    const struct dpe_corpus *corpus; /**< NULL: none was given */
    const char *chat_template;       /**< file, or NULL (dpe_niah_open) */
    const int64_t *lengths;          /**< [n_lengths], tokens, ascending, distinct, ≥ 16 */
    size_t n_lengths;
    int64_t n_samples; /**< of each task, ≥ 1; a task may have fewer */
    uint64_t seed;
    struct dpe_niah_params niah;
    const double *depths; /**< niah_grid: [n_depths], each 0 … 1, ascending, distinct */
    size_t n_depths;
    int64_t stride;     /**< ppl: 0 = the first L tokens of a book; ≥ 1 = a window of L slides so
                             far over the book */
    int64_t max_tokens; /**< ppl, sliding: of a book, 0 = all */
    /* ruler, infinitebench: */
    const char *tasks;         /**< names of tasks or categories, separated by , or /; NULL = all */
    const char *data;          /**< folder of official JSON lines; ruler without it generates */
    const char *template_file; /**< NULL = the built-in one */
    const char *squad, *hotpotqa; /**< ruler, generated: files of questions, NULL = none */
    const char *scorer;           /**< infinitebench: "official" (NULL too), "official-2024-08" or
                                       "string" (dpe_score_rule) */
    bool skip_bad;                /**< leave out lines of data that are no samples */
};

/** A task at one length. */
struct dpe_suite_task {
    struct dpe_task task; /**< its name, "LABEL-LENGTH", is the task of its rows */
    char label[24];       /**< "niah", "niah_single_1": the same at every length */
    char category[16];    /**< of a suite that averages tasks by category; "" = none */
    int64_t length;       /**< tokens, prompt and answer together */
    int64_t n_samples;    /**< to run: what was asked for, or what there is */
};

/** Tasks with a name: all that comparisons and ablations know of a benchmark. */
struct dpe_suite {
    char name[16];
    bool perplexity; /**< rows hold NLL sums, lower is better; else scores, higher is better */
    bool half;       /**< at_least_half means something */
    char score[64];  /**< what a score is: "recall of the needles" */
    struct dpe_suite_task *tasks; /**< [n_tasks]: by length, then in the suite's own order */
    size_t n_tasks;
    int64_t skipped;                /**< books that are too short, at the largest length; lines of
                                         data that were left out */
    char first_skipped[1024];       /**< lines of data: file, line and reason of the first */
    struct dpe_identity parameters; /**< what decides its rows besides model, tokenizer, corpus,
                                         seed and length */
};

/** Suite i, or NULL behind the last: its name and a line about it. */
const char *dpe_suite_name(size_t i);
const char *dpe_suite_about(size_t i);
/** Whether a suite needs a corpus; false for unknown names too. */
bool dpe_suite_needs_corpus(const char *name);
/** Open the suite `name` at every length. *suite is owned by the caller, also empty after a
 *  failure. DPE_USAGE: an unknown name (those known are listed), lengths too short for the task, a
 *  corpus that is missing; else as the tasks (dpe_niah_open, dpe_task_ppl). */
dpe_status dpe_suite_open(const char *name, const struct dpe_suite_options *options,
                          struct dpe_suite *suite, struct dpe_error *err);
void dpe_suite_close(struct dpe_suite *suite);

/** Whether every name on a list (separated by , or /) is a task's or a category's of the suite
 * (NULL is all); DPE_USAGE names one that is not. */
dpe_status dpe_suite_check_tasks(const char *suite, const char *list, struct dpe_error *err);
/** Whether a task is on such a list. */
bool dpe_suite_task_listed(const char *list, const struct dpe_score_task *task);

#endif

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
#include "outputs/h5/rows.h"

/** Options that not every suite takes; bits of dpe_suite_kind.takes. */
enum {
    DPE_SUITE_CHAT_TEMPLATE = 1,
    DPE_SUITE_NEEDLES = 2, /**< niah */
    DPE_SUITE_DEPTHS = 4,
    DPE_SUITE_WINDOW = 8,     /**< stride, max_tokens */
    DPE_SUITE_TASKS = 16,     /**< tasks, data, template_file */
    DPE_SUITE_QUESTIONS = 32, /**< squad, hotpotqa */
    DPE_SUITE_SCORER = 64,
};

struct dpe_suite_options;
struct dpe_suite;
typedef dpe_status dpe_suite_opener(const struct dpe_suite_options *options,
                                    struct dpe_suite *suite, struct dpe_error *err);

/** A suite, as the registry in suite.c lists it: everything that is true of it before it is
 *  opened. A new benchmark is one more entry there (and its tasks in eval/score). */
struct dpe_suite_kind {
    const char *name;        /**< on the command line and in tables: "ruler" */
    const char *title;       /**< in reports: "RULER" */
    const char *about;       /**< in lists of suites: a line */
    const char *explanation; /**< in reports: what its numbers mean */
    const char *unit;        /**< in reports: what a mean is, for axes */
    const char *score; /**< what a score is; both NULL: the opener writes them into the suite */
    unsigned takes;    /**< DPE_SUITE_… */
    bool needs_corpus, needs_data;
    bool generates;   /**< makes its samples itself unless `data` is given, which then words the
                           prompts instead of the template */
    bool perplexity;  /**< rows hold NLL sums, lower is better; else scores, higher is better */
    bool half;        /**< the share of samples with a score of at least ½ means something */
    bool per_cent;    /**< its own script prints per cent with two decimals, else a share */
    bool predictions; /**< answers can be written as its own script reads them */
    dpe_suite_opener *open;
};
/** Suite i in the order in which suites are listed; NULL after the last one. */
const struct dpe_suite_kind *dpe_suite_kind(size_t i);
/** NULL: not a suite. */
const struct dpe_suite_kind *dpe_suite_find(const char *name);

/** What the command line sets for one suite or for all; NULL and 0: not given. */
struct dpe_suite_given {
    const char *chat_template; /**< as dpe_chat_open names one */
    const char *niah;          /**< as dpe_niah_parse reads it */
    const char *tasks;         /**< names of tasks or categories, separated by , or /; NULL: all */
    const char *data;          /**< folder of official JSON lines; ruler without it generates */
    const char *template_file; /**< NULL: the built-in one */
    const char *squad, *hotpotqa; /**< ruler, generated: files of questions */
    const char *scorer;           /**< infinitebench: "official" (NULL too), "official-2024-08" or
                                       "string" (dpe_score_rule) */
    int64_t samples;              /**< of each task; a task may have fewer */
    int64_t stride;     /**< ppl: 0 = the first L tokens of a book; ≥ 1 = a window of L slides so
                             far over the book */
    int64_t max_tokens; /**< ppl, sliding: of a book, 0 = all */
};

/** What suites are opened from; each takes what it needs. Pointers are borrowed for the suite's
 *  life. */
struct dpe_suite_options {
    struct dpe_suite_given given; /**< samples ≥ 1 */
    const struct dpe_tokenizer *tokenizer;
    const struct dpe_corpus *corpus; /**< NULL: none was given */
    const int64_t *lengths;          /**< [n_lengths], tokens, ascending, distinct, ≥ 16 */
    size_t n_lengths;
    uint64_t seed;
    struct dpe_niah_params niah; /**< in place of the text that is given */
    const double *depths;        /**< niah_grid: [n_depths], each 0 … 1, ascending, distinct */
    size_t n_depths;
    bool skip_bad; /**< leave out lines of data that are not samples */
};

/** A task at one length. */
struct dpe_suite_task {
    struct dpe_task task; /**< its name, "LABEL-LENGTH", is the task of its rows */
    char label[24];       /**< "niah", "niah_single_1": the same at every length */
    char category[16];    /**< of a suite that averages tasks by category; "" = none */
    int64_t length;       /**< tokens, prompt and answer together */
    int64_t n_samples;    /**< to run: what was requested, or as many as exist */
};

struct dpe_ruler;
struct dpe_official;

/** Tasks with a name: all that comparisons and ablations need of a benchmark. */
struct dpe_suite {
    char name[16];
    const struct dpe_suite_kind *kind; /**< its entry in the registry */
    const char *unit;                  /**< "recall (share of needles found)" */
    char score[64];                    /**< what a score is: "recall of the needles" */
    struct dpe_suite_task *tasks;      /**< [n_tasks]: by length, then in the suite's own order;
                                            of a grid by depth, then by length */
    size_t n_tasks;
    struct dpe_ruler *ruler;       /**< what its tasks share: of RULER generated, */
    struct dpe_official *official; /**< or of official files */
    int64_t skipped;               /**< books that are too short, at the largest length; lines of
                                        data that were left out */
    char lacks[512]; /**< "qa_1 without --squad FILE, …": tasks that were left out, because their
                        input was not given and neither were they; "": none */
    char first_skipped[1024];       /**< lines of data: file, line and reason of the first */
    struct dpe_identity parameters; /**< what decides its rows besides model, tokenizer, corpus,
                                         seed and length */
};

/** Open the suite `name` at every length. *suite is owned by the caller, also empty after a
 *  failure. DPE_USAGE: an unknown name (the message lists the suites), lengths too short for the
 * task, a corpus that is missing; else as the tasks (dpe_niah_open, dpe_task_ppl). */
dpe_status dpe_suite_open(const char *name, const struct dpe_suite_options *options,
                          struct dpe_suite *suite, struct dpe_error *err);
void dpe_suite_close(struct dpe_suite *suite);

/** Whether every name on a list (separated by , or /) is a task's or a category's of the suite
 * (NULL is all); DPE_USAGE names one that is not. */
dpe_status dpe_suite_check_tasks(const char *suite, const char *list, struct dpe_error *err);
/** Whether a task is on such a list. */
bool dpe_suite_task_listed(const char *list, const struct dpe_score_task *task);

#endif

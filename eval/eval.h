/**
 * @file eval.h
 * Samples under plans → rows, and statistics of rows.
 *
 * A *task* is a numbered stream of samples; running sample i of a task in a session (which has its
 * plan) fills one row. Sweeps, comparisons and ablations are all the same loop: for plan, for
 * sample, one row.
 */
#ifndef DPE_EVAL_H
#define DPE_EVAL_H

#include "data.h"
#include "engine.h"
#include "outputs.h"

/** Prompt tokens, references, room: what a benchmark asks. Owned arrays; free with dpe_sample_free.
 */
struct dpe_sample {
    int64_t index;
    uint64_t seed;
    struct dpe_tokens prompt;
    char **references;
    size_t n_references;
    int64_t max_new; /**< generation room */
};
void dpe_sample_free(struct dpe_sample *sample);

/* ---------------------------------------------------------------------------- needle in a haystack
 */

/** The task's parameters; part of a run's identity. Defaults: the paper's 4 needles. */
struct dpe_niah_params {
    int keys;     /**< keys in the context (default 1) */
    int values;   /**< values per key (default 4) */
    int queries;  /**< keys asked for, ≤ keys (default 1) */
    int digits;   /**< of a value (default 7) */
    double depth; /**< single needle's depth 0 … 1, NaN = drawn (each in its own share) */
    char template_file[512]; /**< "" = the built-in template (eval/templates/niah.json) */
    int asked;  /**< keys of one context that are asked one after another, 1 … keys: sample i asks
                     key i mod asked of context i / asked (default 1; more need queries = 1) */
    int shared; /**< contexts in a row that share their first half, haystack and needles, so that
                     it is read once (default 1: none do) */
    bool repeat_haystack; /**< a corpus that is too short is repeated instead of refused */
    enum dpe_special_policy special; /**< special-token text inside the corpus (default: refused) */
};
void dpe_niah_defaults(struct dpe_niah_params *params);
/** Read "keys=1,values=4,queries=1,digits=7,depth=…,asked=1,shared=1,template=FILE,repeat=0|1,
 *  special=error|literal|parse" over what is in params. Unknown keys, numbers out of range and
 *  combinations that make no sense are DPE_USAGE, and so
 *  are keys given twice. */
dpe_status dpe_niah_parse(const char *spec, struct dpe_niah_params *params, struct dpe_error *err);
/** What such a text says of a key: where its value begins, with its length in *n; NULL when it does
 *  not name the key. */
const char *dpe_niah_find(const char *spec, const char *key, size_t *n);
/** The parameters as a canonical spec for identities and titles, without the template's path (its
 *  hash says more: dpe_niah_template_hash). Cut to n bytes. */
void dpe_niah_format(const struct dpe_niah_params *params, char *text, size_t n);

/** Samples in a row that share a context: asked × shared. */
int64_t dpe_niah_together(const struct dpe_niah_params *params);

struct dpe_niah;
/** Samples of length L: the finished prompt (specials included) plus room lies in [L−16, L]. The
 *  corpus and tokenizer are borrowed for the task's life. chat_template: NULL, or a text file that
 *  holds {prompt} once and the model's turn markers around it (special tokens there are parsed; the
 *  answer's beginning goes behind it; a BOS in it is not doubled).
 *  The corpus is tokenized once and sample 0 is made, so that what cannot work fails here: template
 *  without a placeholder (DPE_BAD_DATA, file named), special-token text in a book (DPE_BAD_DATA,
 *  book and offset), corpus too short (DPE_BAD_DATA, tokens missing), a vocabulary that loses
 * digits (DPE_BAD_DATA), length too short for needles and question (DPE_USAGE). */
dpe_status dpe_niah_open(const struct dpe_niah_params *params, int64_t length,
                         const struct dpe_corpus *corpus, const struct dpe_tokenizer *tokenizer,
                         const char *chat_template, uint64_t seed, struct dpe_niah **niah,
                         struct dpe_error *err);
void dpe_niah_close(struct dpe_niah *niah);
/** Sample i ≥ 0: a function of (seed, i, parameters, corpus, tokenizer, length) alone.
 *  Thread-safe. */
dpe_status dpe_niah_sample(const struct dpe_niah *niah, int64_t index, struct dpe_sample *sample,
                           struct dpe_error *err);
/** SHA-256 of the template and the chat template, hex (for identities). */
const char *dpe_niah_template_hash(const struct dpe_niah *niah);
/** Share of references that occur in text, ASCII-case-insensitive substrings; NaN when n is 0. */
double dpe_recall(const char *text, char *const *references, size_t n);

/* ---------------------------------------------------------------------------------------- tasks */

struct dpe_task {
    char name[32];
    int64_t n_samples; /**< how many there are at most (books long enough); INT64_MAX: no end */
    int64_t together; /**< samples in a row that share a context, ≥ 1: with N, iN … iN + N − 1 */
    void *state;
    /** Run sample `index` in a session whose plan is set and whose cache it may clear; fill
     * everything of the row but plan, task, sample and seconds. DPE_NONFINITE is handled by
     * dpe_task_row. */
    dpe_status (*run)(void *state, struct dpe_session *session, int64_t index, struct dpe_row *row,
                      struct dpe_error *err);
    /** The same for n different samples at once, where that is cheaper (NULL: it never is): rows
     *  [n] as `run` would fill them, up to the rounding of a batch. */
    dpe_status (*run_many)(void *state, struct dpe_session *session, const int64_t *indices,
                           int64_t n, struct dpe_row *rows, struct dpe_error *err);
    void (*close)(void *state);
};
/** Score of a prediction, 0 … 1; NaN when there are no references (n = 0). */
typedef double (*dpe_scorer)(const char *prediction, char *const *references, size_t n);

/** A benchmark that asks: samples and a scorer. Zero-initialise. */
struct dpe_source {
    char name[32];     /**< of the task in tables and files, e.g. "niah_single_1" */
    int64_t n_samples; /**< how many there are at most; INT64_MAX: no end */
    int64_t together;  /**< as the task's; 0: none share one */
    void *state;
    /** Sample `index` (freed by the caller with dpe_sample_free): a function of seed, index,
     *  parameters, tokenizer and length alone. Thread-safe. */
    dpe_status (*sample)(void *state, int64_t index, struct dpe_sample *sample,
                         struct dpe_error *err);
    dpe_scorer score;
    bool growing; /**< more text never lowers the score: generation stops once it is 1 */
    void (*close)(void *state); /**< NULL: nothing to close */
};
/** Also of a source that was never opened. */
void dpe_source_close(struct dpe_source *source);
/** A source as a task: the prompt is fed, the answer generated greedily (until end of sequence, the
 *  sample's room, or full score of a growing source), detokenized without specials and scored. The
 *  row gets score, at_least_half (score ≥ ½), seed, prompt_tokens, new_tokens and the first 4096
 *  bytes of the text. Takes the source over, on failure too. The tokenizer is borrowed for the
 *  task's life. DPE_NO_MEMORY. */
dpe_status dpe_task_questions(struct dpe_source *source, const struct dpe_tokenizer *tokenizer,
                              struct dpe_task *task, struct dpe_error *err);
/** What a task of dpe_task_questions asks: sample `index`, freed by the caller, and the prompt's
 * text without special tokens appended to `prompt` (NULL: not wanted). DPE_USAGE for other tasks.
 */
dpe_status dpe_task_sample(const struct dpe_task *task, int64_t index, struct dpe_sample *sample,
                           struct dpe_text *prompt, struct dpe_error *err);
/** NIAH as a task of questions; takes the niah over, on failure too. */
dpe_status dpe_task_niah(const char *name, struct dpe_niah *niah,
                         const struct dpe_tokenizer *tokenizer, struct dpe_task *task,
                         struct dpe_error *err);
/** Perplexity of the first `length` tokens of each book that has as many, BOS included where the
 *  tokenizer adds one (others are skipped and counted in *skipped; none left is DPE_BAD_DATA).
 *  Sample i is the i-th such book. Every token but the first is scored, so a BOS is context. The
 *  row's n_words are the words of the scored tokens' text; its bucket b is the NLL sum of the
 *  tokens at positions 2^b … 2^(b+1) − 1. Books are tokenized here, once; corpus and tokenizer are
 *  not needed afterwards. */
dpe_status dpe_task_ppl(const char *name, const struct dpe_corpus *corpus,
                        const struct dpe_tokenizer *tokenizer, int64_t length,
                        enum dpe_special_policy special, struct dpe_task *task, int64_t *skipped,
                        struct dpe_error *err);
struct dpe_ppl_options {
    int64_t length, stride, max_tokens; /**< tokens */
    enum dpe_special_policy special;
};
/** Perplexity of whole books through a window of `length` tokens that moves by `stride` ≤ length:
 *  window i is tokens i·stride … i·stride + length − 1 (fewer at the end), run from an empty cache,
 *  and scores the tokens that no window before it scored, so every token but the first is scored
 *  once, with length − stride … length − 1 tokens before it once the first window is passed. Of a
 *  book the first max_tokens tokens are used (0: all). Books shorter than the window are left out,
 *  as in dpe_task_ppl; a BOS stands in the first window only. Buckets are by position in the book.
 */
dpe_status dpe_task_ppl_sliding(const char *name, const struct dpe_corpus *corpus,
                                const struct dpe_tokenizer *tokenizer,
                                const struct dpe_ppl_options *options, struct dpe_task *task,
                                int64_t *skipped, struct dpe_error *err);
/** The corpus index of the book that is sample `index` (0 ≤ index < n_samples) of a task that
 *  dpe_task_ppl made. */
size_t dpe_task_ppl_book(const struct dpe_task *task, int64_t index);
void dpe_task_close(struct dpe_task *task);

/** One row of `task` under the session's plan: runs the sample, times it, retries once on
 * non-finite logits and then records the row as DPE_ROW_NONFINITE. `plan` is the row key's hex. */
dpe_status dpe_task_row(const struct dpe_task *task, struct dpe_session *session, const char *plan,
                        int64_t index, struct dpe_row *row, struct dpe_error *err);

/** dpe_task_row for n samples: what their prompts have in common is computed once, and they are
 *  decoded as one batch, as far as the session has branches and room. A batch with non-finite
 *  logits is run again one by one. Each row's seconds are its share of the whole. rows [n] are
 *  filled on success only. */
dpe_status dpe_task_rows(const struct dpe_task *task, struct dpe_session *session, const char *plan,
                         const int64_t *indices, int64_t n, struct dpe_row *rows,
                         struct dpe_error *err);

/** What answering samples computes. */
struct dpe_answering {
    int64_t samples;
    int64_t prompts; /**< tokens of their prompts */
    int64_t read;    /**< of these, tokens that are read */
    double pairs;    /**< of a token that is read and one at or before it */
    int64_t decoded; /**< new tokens that are fed */
    int64_t steps;   /**< passes that these take */
};
/** Add to *cost what dpe_task_rows computes at most when it is given these n samples under one
 * plan, `together` at a time, in a session of these limits (chunk 0: not known, nothing is kept for
 *  samples that are alone). DPE_NO_MEMORY. */
dpe_status dpe_answering_cost(const struct dpe_sample *samples, int64_t n, int64_t together,
                              const struct dpe_session_limits *limits, struct dpe_answering *cost,
                              struct dpe_error *err);

/* --------------------------------------------------------------------------------------- suites */

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

/* ------------------------------------------------------------------------------------- statistics
 */

struct dpe_interval {
    double mean;      /**< NaN when there is no valid value */
    double low, high; /**< NaN when they cannot be had: fewer than two contexts (books), no rounds,
                           a level outside (0, 1), no memory */
    int64_t n;        /**< valid (non-NaN) values */
};
/** How means are resampled. Samples that share a context, or its first half, are not independent:
 *  they are drawn, and change their sign, as one. "Contexts" below are such samples in a row. */
struct dpe_resampling {
    int64_t together; /**< values in a row that belong together, ≥ 1; the last ones may be fewer */
    double level;     /**< of an interval, e.g. 0.95 */
    int rounds;       /**< resamples */
    uint64_t seed;
};
/** Mean and percentile bootstrap interval (quantiles linear between order statistics). NaN values
 *  are left out; contexts differ in how many valid ones they have, so a resampled mean is the sum
 *  of what was drawn over its number. */
struct dpe_interval dpe_bootstrap_mean(const double *values, size_t n,
                                       const struct dpe_resampling *how);
/** Same for the mean of a[i] − b[i] over pairs where both are valid. */
struct dpe_interval dpe_bootstrap_paired(const double *a, const double *b, size_t n,
                                         const struct dpe_resampling *how);
/** Two-sided p-value of a sign-flip permutation test of mean(a − b) = 0 over pairs where both are
 *  valid; exact for ≤ 16 contexts whose sum is not zero, else how->rounds random flips (+1 rule).
 *  1 when there is no difference at all. */
double dpe_sign_flip(const double *a, const double *b, size_t n, const struct dpe_resampling *how);
/** The t with P(|T| ≤ t) = level of Student's t; NaN for no degree of freedom or a level outside
 *  (0, 1). */
double dpe_student_quantile(double level, int64_t freedom);
/** exp(Σ nll / Σ tokens) over books, with an interval from the delete-one-book jackknife of
 *  Σ nll / Σ tokens and Student's t with (books − 1) degrees of freedom. Books with NaN or without
 *  tokens are left out. With words in place of tokens it is the word-level perplexity. */
struct dpe_interval dpe_perplexity(const double *nll_sum, const int64_t *n_tokens, size_t n,
                                   double level);

#endif

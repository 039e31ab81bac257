/**
 * @file task.h
 * A task is a numbered stream of samples; a sample under a plan is a row.
 */
#ifndef DPE_TASK_H
#define DPE_TASK_H

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "outputs/h5/rows.h"

/** Prompt tokens, references, room for the answer. Owned arrays; free with dpe_sample_free.
 */
struct dpe_sample {
    int64_t index;
    uint64_t seed;
    struct dpe_tokens prompt;
    char **references;
    size_t n_references;
    int64_t max_new; /**< generation room */
    char **answers;  /**< [n_references] how an answer writes each after another one; NULL: the
                        answer is  free text, which has no steps */
    size_t *
        skip; /**< [n_references] bytes of these that a prompt has at its end already; NULL: none */
};
void dpe_sample_free(struct dpe_sample *sample);
/** A random order of 0 … n − 1. */
void dpe_draw_order(struct dpe_rng *rng, size_t *order, size_t n);
/** Share of references that occur in text; NaN when n is 0. */
double dpe_recall(const char *text, char *const *references, size_t n);

struct dpe_job;
struct dpe_job_rows;

struct dpe_task {
    char name[32];
    int64_t n_samples; /**< how many there are at most (books long enough); INT64_MAX: no end */
    int64_t together; /**< samples in a row that share a context, ≥ 1: with N, iN … iN + N − 1 */
    void *state;
    /** Run the samples of n parts in their sessions, whose plans are set and whose caches it may
     * clear; fill everything of the rows but plan, task, sample and seconds. DPE_NONFINITE is
     * handled by dpe_task_rows. */
    dpe_status (*run)(void *state, const struct dpe_job_rows *parts, int64_t n,
                      struct dpe_error *err);
    void (*close)(void *state);
};
/** Score of a prediction, 0 … 1; NaN when there are no references (n = 0). */
typedef double (*dpe_scorer)(const char *prediction, char *const *references, size_t n);

/** A benchmark with prompts and answers: samples and a scorer. Zero-initialise. */
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
    bool steps;   /**< score by steps (below) in place of `score`; samples have answers */
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
/** The question of a task of dpe_task_questions: sample `index`, freed by the caller, and the
 * prompt's text without special tokens appended to `prompt` (NULL: not needed). DPE_USAGE for other
 * tasks.
 */
dpe_status dpe_task_sample(const struct dpe_task *task, int64_t index, struct dpe_sample *sample,
                           struct dpe_text *prompt, struct dpe_error *err);

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
/** Its tokens; borrowed, at least the task's length of them. */
const int32_t *dpe_task_ppl_tokens(const struct dpe_task *task, int64_t index);
void dpe_task_close(struct dpe_task *task);

/** Rows of the samples of n parts (outputs/job/job.h), all of this task, under the plans of their
 * sessions; they are filled on success only. What prompts of a part have in common is computed
 * once, and all are decoded together, as far as the sessions have branches and room; what is read,
 * and its bits, do not depend on these. Samples with non-finite logits among them are run again one
 * by one, and recorded as DPE_ROW_NONFINITE when that fails too. Each row's seconds are its share
 * of the whole. */
dpe_status dpe_task_rows(const struct dpe_task *task, const struct dpe_job_rows *parts, int64_t n,
                         struct dpe_error *err);

struct dpe_price;
struct dpe_price_answers;
/** Add to *cost (outputs/job/price.h; but for its room) what dpe_task_rows computes at most when it
 * is given these n samples under one plan, `group` at a time, in a session of this capacity and so
 * many branches. DPE_NO_MEMORY. */
dpe_status dpe_answering_cost(const struct dpe_sample *samples, int64_t n, int64_t group,
                              const struct dpe_session_limits *limits,
                              struct dpe_price_answers *cost, struct dpe_error *err);

/** What a sample of a task costs on average, by its first n samples (at most 64), in the job's
 * session for texts of `length` tokens. *counted: what they compute, NULL allowed. Errors of making
 * the samples. */
dpe_status dpe_task_price(const struct dpe_task *task, int64_t n, int64_t length,
                          const struct dpe_job *job, struct dpe_price *price,
                          struct dpe_price_answers *counted, struct dpe_error *err);

/* A score by steps: after the prompt and some right values, does greedy decoding name one that is
 * still missing?
 *
 * One slip early in a free answer costs all later values. Step k of V begins after the prompt and
 * k − 1 of the values, in an order drawn for the sample and written as the answer writes them, and
 * asks for any of the V − k + 1 others. The score is the share of steps that name one. Near the
 * ceiling of recall it tells plans apart with a tenth of the samples; where recall is spread,
 * recall does as well. */

/** What the steps of a sample show. */
struct dpe_steps {
    double found;       /**< share of the steps that name a missing value, 0 … 1 */
    double margin;      /**< mean over the steps of 1 / (1 + exp(−m / DPE_STEPS_SHARPNESS)) */
    int64_t new_tokens; /**< decoded */
};
#define DPE_STEPS_SHARPNESS 0.3

/** Whether a sample has steps: at least one reference, each with an answer that holds it, none
 * empty or part of another (naming one would name both; values that only begin alike are told apart
 * by what follows), and all of them written at most max_new tokens. DPE_BAD_DATA, which names
 * sample and value; free text is DPE_USAGE. */
dpe_status dpe_steps_check(const struct dpe_sample *sample, const struct dpe_tokenizer *tokenizer,
                           struct dpe_error *err);

/** One look at logits [vocab]: the likeliest token if it is one of right [n] (repeats allowed),
 * else −1; and in *log_odds ln Σ p(right) − ln p of the likeliest other token. Ties go to the
 * smaller id, as in generation. n ≥ 1; +INFINITY where every token is right. */
int32_t dpe_steps_look(const float *logits, int64_t vocab, const int32_t *right, int64_t n,
                       double *log_odds);

/** Run the steps of a sample whose prompt the session holds but for its last `rest` ≥ 1 tokens.
 * What is decoded in each step is appended to `text`, a line each. m of a step is the least
 * log-odds (dpe_steps_look) of its tokens, up to the first one that belongs to no missing value.
 * Errors of dpe_steps_check and of the session; DPE_USAGE in one without logits (--engine). */
dpe_status dpe_steps_run(struct dpe_session *session, const struct dpe_sample *sample, int64_t rest,
                         const struct dpe_tokenizer *tokenizer, struct dpe_steps *steps,
                         struct dpe_text *text, struct dpe_error *err);

#endif

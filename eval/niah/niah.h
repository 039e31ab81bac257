/**
 * @file niah.h
 * Needles in a haystack.
 */
#ifndef DPE_NIAH_H
#define DPE_NIAH_H

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/task.h"

/** The task's parameters; part of a run's identity. Defaults: the paper's 4 needles. */
struct dpe_niah_params {
    int keys;     /**< keys in the context (default 1) */
    int values;   /**< values per key (default 4) */
    int queries;  /**< keys asked for, ≤ keys (default 1) */
    int digits;   /**< of a value (default 7) */
    double depth; /**< single needle's depth 0 … 1, NaN = drawn (each in its own share) */
    char template_file[512]; /**< "" = the built-in template (eval/templates/niah.json) */
    int asked; /**< keys of one context that samples ask for one after another, 1 … keys: sample i
                  asks for key i mod asked of context i / asked (default 1; more need queries = 1)
                */
    int shared; /**< contexts in a row that share their first half, haystack and needles, so that
                     it is read once (default 1: none do) */
    int spare;  /**< an answer may take at most so many tokens beside what the values need; 0
                   (default): room 128 from L = 4096 on, as the paper, what they need + 8 below */
    bool steps; /**< score=steps: a score by steps (eval/task/task.h) in place of recall */
    bool repeat_haystack; /**< a corpus that is too short is repeated instead of refused */
    enum dpe_special_policy special; /**< special-token text inside the corpus (default: refused) */
};
/** The names that dpe_niah_parse knows, separated by ", ". */
extern const char dpe_niah_keys[];
/** Names of dpe_special_policy in identities. */
extern const char *const dpe_niah_specials[];
void dpe_niah_defaults(struct dpe_niah_params *params);
/** Read
 * "keys=1,values=4,queries=1,digits=7,depth=…,asked=1,shared=1,spare=0,template=FILE,repeat=0|1,
 *  score=recall|steps,special=error|literal|parse" over what is in params. Unknown keys, numbers
 * out of range and invalid combinations are DPE_USAGE, and so are keys given twice. */
dpe_status dpe_niah_parse(const char *spec, struct dpe_niah_params *params, struct dpe_error *err);
/** Where the value of a key begins in such a text, with its length in *n; NULL if the text does not
 *  name the key. */
const char *dpe_niah_find(const char *spec, const char *key, size_t *n);
/** The parameters as a canonical spec for identities and titles, without the template's path (its
 *  hash identifies it: dpe_niah_template_hash). Cut to n bytes. */
void dpe_niah_format(const struct dpe_niah_params *params, char *text, size_t n);

/** Samples in a row that share a context: asked × shared. */
int64_t dpe_niah_together(const struct dpe_niah_params *params);

struct dpe_niah;
/** Samples of length L: the finished prompt (specials included) plus room lies in [L−16, L]. The
 *  corpus and tokenizer are borrowed for the task's life. chat_template: as
 *  dpe_chat_open names one, NULL for none (special tokens there are parsed; the answer's beginning
 *  follows it; a BOS in it is not doubled).
 *  The corpus is tokenized once and sample 0 is made, so that these fail here: template
 *  without a placeholder (DPE_BAD_DATA, file named), special-token text in a book (DPE_BAD_DATA,
 *  book and offset), corpus too short (DPE_BAD_DATA, tokens missing), a vocabulary that loses
 * digits (DPE_BAD_DATA), length too short for needles and question (DPE_USAGE). */
dpe_status dpe_niah_open(const struct dpe_niah_params *params, int64_t length,
                         const struct dpe_corpus *corpus, const struct dpe_tokenizer *tokenizer,
                         const char *chat_template, uint64_t seed, struct dpe_niah **niah,
                         struct dpe_error *err);
void dpe_niah_close(struct dpe_niah *niah);
DPE_SCOPED_HANDLE(struct dpe_niah *, dpe_niah_close)
/** Sample i ≥ 0: a function of (seed, i, parameters, corpus, tokenizer, length) alone.
 *  Thread-safe. */
dpe_status dpe_niah_sample(const struct dpe_niah *niah, int64_t index, struct dpe_sample *sample,
                           struct dpe_error *err);
/** SHA-256 of the template and the chat template, hex (for identities). */
const char *dpe_niah_template_hash(const struct dpe_niah *niah);

/** NIAH as a task of questions; takes the niah over, on failure too. */
dpe_status dpe_task_niah(const char *name, struct dpe_niah *niah,
                         const struct dpe_tokenizer *tokenizer, struct dpe_task *task,
                         struct dpe_error *err);

#endif

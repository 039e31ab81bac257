/**
 * @file ruler2.h
 * The samples of RULER v2's twelve tasks, drawn as its own generator (NVIDIA-NeMo/Skills) draws
 * them: with its sentences, words and sets the same samples for the same tokenizer, length and
 * seed. Used inside eval/ only.
 */
#ifndef DPE_RULER2_H
#define DPE_RULER2_H

#include "engine/tokenizer/tokenizer.h"

/** What samples are made of. Strings and tokenizer are borrowed and must outlive it. */
struct dpe_ruler2_options {
    const char *folder; /**< nounlist.txt and adjectivelist.txt, a word a line; mmlu/test.jsonl and
                           mmlu/auxiliary_train.jsonl, hotpotqa/validation.jsonl and
                           hotpotqa/train.jsonl, a JSON object a line. What is not there is needed
                           only for the tasks that it is for */
    const char *template_file; /**< the sentences around them; NULL: the built-in ones */
    const struct dpe_tokenizer *tokenizer;
    int64_t length; /**< the most tokens of a prompt */
    uint32_t seed;
};
struct dpe_ruler2;
/** DPE_BAD_DATA, DPE_NO_INPUT: of the template. DPE_NO_MEMORY. */
dpe_status dpe_ruler2_open(const struct dpe_ruler2_options *options, struct dpe_ruler2 **ruler2,
                           struct dpe_error *err);
void dpe_ruler2_close(struct dpe_ruler2 *ruler2);
DPE_SCOPED_HANDLE(struct dpe_ruler2 *, dpe_ruler2_close)

/** The first file that a task of the suite "ruler2" needs and the folder has not; NULL: none. */
const char *dpe_ruler2_lacks(const struct dpe_ruler2 *ruler2, const char *task);

/** A sample. */
struct dpe_ruler2_sample {
    int64_t index; /**< of the question in its set, else of the sample */
    struct dpe_text prompt;
    struct dpe_text answers; /**< each followed by a NUL */
    size_t n_answers;
    bool one;       /**< the answer is a text, not a list of texts */
    int64_t tokens; /**< of the prompt */
};
/** Draw the first n samples of a task in turn, or all where its set has fewer, and hand each to
 *  `take`, which may fail. *drawn is their number. DPE_USAGE: the smallest prompt is longer than
 *  the length; DPE_NO_INPUT, DPE_BAD_DATA: of a file, with its line; DPE_NO_MEMORY. */
dpe_status dpe_ruler2_draw(struct dpe_ruler2 *ruler2, const char *task, int64_t n,
                           dpe_status (*take)(void *user, const struct dpe_ruler2_sample *sample,
                                              struct dpe_error *err),
                           void *user, int64_t *drawn, struct dpe_error *err);

#endif

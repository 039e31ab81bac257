/**
 * @file ruler2_niah.h
 * RULER v2's tasks of needles among needles, mk_niah_basic and mv_niah_basic, drawn as its own
 * generator (NVIDIA-NeMo/Skills) draws them: with its sentences and words the same samples for the
 * same tokenizer, length and seed. Used inside eval/ only.
 */
#ifndef DPE_RULER2_NIAH_H
#define DPE_RULER2_NIAH_H

#include "engine/tokenizer/tokenizer.h"
#include "eval/prompt/phrases.h"

/** Words with which keys are made: every adjective with every noun, once each, in their order. */
struct dpe_ruler2_words {
    char *text;   /**< all of them, NUL-terminated */
    char **words; /**< [n], sorted */
    size_t n;
};
/** Of the lists nounlist.txt and adjectivelist.txt of a folder, a word a line. Free with
 *  dpe_ruler2_words_free, after a failure too. DPE_NO_INPUT, DPE_BAD_DATA: a list without words;
 *  DPE_NO_MEMORY. */
dpe_status dpe_ruler2_words_open(const char *folder, struct dpe_ruler2_words *words,
                                 struct dpe_error *err);
void dpe_ruler2_words_free(struct dpe_ruler2_words *words);

/** The sentences around words and numbers: a file, or NULL for the built-in ones. Free with
 *  dpe_phrases_free. Errors as dpe_phrases_open. */
dpe_status dpe_ruler2_phrases(const char *file, struct dpe_phrases *phrases, struct dpe_error *err);

enum { DPE_RULER2_MOST_VALUES = 4, DPE_RULER2_VALUE = 11 };
/** A sample: the prompt, and the numbers that it asks for. */
struct dpe_ruler2_sample {
    struct dpe_text prompt;
    char values[DPE_RULER2_MOST_VALUES][DPE_RULER2_VALUE];
    int64_t tokens; /**< of the prompt */
};
/** What samples are of: `values` numbers of one key, 1 (mk_niah_basic) or 4 (mv_niah_basic), in a
 * prompt of at most `length` tokens. */
struct dpe_ruler2_niah {
    const struct dpe_phrases *phrases; /**< of dpe_ruler2_phrases */
    const struct dpe_ruler2_words *words;
    const struct dpe_tokenizer *tokenizer;
    int64_t length;
    int values;
    uint32_t seed;
};
/** Draw samples 0 … n − 1 in turn and hand each to `take`, which may fail. DPE_USAGE: a prompt of
 * five needles is longer than the length. */
dpe_status dpe_ruler2_niah_draw(const struct dpe_ruler2_niah *niah, int64_t n,
                                dpe_status (*take)(void *user, int64_t index,
                                                   const struct dpe_ruler2_sample *sample,
                                                   struct dpe_error *err),
                                void *user, struct dpe_error *err);

#endif

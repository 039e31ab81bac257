/**
 * @file lexicon.h
 * Words to build keys and lists from. Used inside eval/ only.
 *
 * They are words of the user's texts (distinct, 4 to 10 small ASCII letters, in a drawn order),
 * followed by as many as are needed of the words of a generator of pronounceable syllables. No word
 * comes twice. The list depends on the texts alone, and a longer one begins with the shorter.
 */
#ifndef DPE_LEXICON_H
#define DPE_LEXICON_H

#include "data/data.h"

struct dpe_lexicon {
    struct dpe_text text; /**< the words, each after a space and before a NUL */
    size_t *at;           /**< [n] offsets of the words */
    size_t n;
};

/** n ≥ 1 words; corpus NULL: generated ones only. Free with dpe_lexicon_free, also after
 * DPE_NO_MEMORY. */
dpe_status dpe_lexicon_make(const struct dpe_corpus *corpus, size_t n, struct dpe_lexicon *lexicon,
                            struct dpe_error *err);
void dpe_lexicon_free(struct dpe_lexicon *lexicon);
/** Word i < n. */
const char *dpe_lexicon_word(const struct dpe_lexicon *lexicon, size_t i);

#endif

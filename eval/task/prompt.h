/**
 * @file prompt.h
 * What prompts are made of: the words of a template, texts to hide needles in, words for keys and
 * lists. Used inside eval/ only.
 */
#ifndef DPE_PROMPT_H
#define DPE_PROMPT_H

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"

/* -------------------------------------------------------------------------------------- phrases */

/* The words of a task's prompts, as data: a JSON object of strings with {placeholders} and of lists
 * of words. */

/** What a member of the file must and may hold. */
struct dpe_phrase_field {
    const char *name;
    const char *needed;   /**< placeholder names separated by spaces */
    const char *allowed;  /**< further ones */
    const char *fallback; /**< when the file lacks it; NULL: it must not */
    bool list;            /**< words, each once, instead of a string */
};

struct dpe_phrases {
    struct json_t *root; /**< the file, checked, with what it lacks and may */
    char hash[65];       /**< SHA-256 of the file's bytes */
};

/** Compiled-in template files. */
struct dpe_builtin {
    const char *name;
    const unsigned char *bytes;
    size_t n;
};

/** Read and check a template file, or `builtin` when `file` is NULL or "". Errors name file, field
 *  and placeholder (DPE_BAD_DATA). Free with dpe_phrases_free. */
dpe_status dpe_phrases_open(const char *file, const struct dpe_builtin *builtin,
                            const struct dpe_phrase_field *fields, size_t n,
                            struct dpe_phrases *phrases, struct dpe_error *err);
void dpe_phrases_free(struct dpe_phrases *phrases);

/** The text that replaces {name}. */
struct dpe_phrase_value {
    const char *name, *text;
};
/** The string of a field; of a list how many words there are, and word i. */
const char *dpe_phrases_text(const struct dpe_phrases *phrases, const char *field);
size_t dpe_phrases_words(const struct dpe_phrases *phrases, const char *field);
const char *dpe_phrases_word(const struct dpe_phrases *phrases, const char *field, size_t i);
/** Put the string of a field with its placeholders replaced, as dpe_text_put; `values` ends with a
 * NULL name. */
void dpe_phrases_put(const struct dpe_phrases *phrases, const char *field,
                     const struct dpe_phrase_value *values, struct dpe_text *out);

/** Whether the vocabulary can write digits, which the answers consist of. DPE_BAD_DATA. */
dpe_status dpe_phrases_check_digits(const struct dpe_tokenizer *tokenizer, struct dpe_error *err);

extern const struct dpe_builtin dpe_builtin_niah, dpe_builtin_ruler, dpe_builtin_ruler2,
    dpe_builtin_infinitebench;

/* ------------------------------------------------------------------------------------ haystacks */

/** Append to `out` the books of the corpus in drawn order, from a sentence's start near a drawn
 *  byte on, with an empty line between books, until `reserve` bytes (cut between characters) or
 *  once around (the start's own book ends it). The text begins with white space. With `repeat` it
 *  goes around until `reserve`. *whole is set if the corpus ended it. Draws from `rng` do not
 *  depend on `reserve`. */
dpe_status dpe_haystack_make(const struct dpe_corpus *corpus, struct dpe_rng *rng, bool repeat,
                             size_t reserve, struct dpe_text *out, bool *whole,
                             struct dpe_error *err);

/** Whether a sentence ends right before byte i: . ! ? … and closing quotes or brackets, then white
 *  space or the end; or an ideographic full stop. */
bool dpe_haystack_sentence_end(const char *text, size_t n, size_t i);

/** The largest word end in (low, at] (a non-space before, white space or the end of the text
 *  after it); `low` if there is no such end. */
size_t dpe_haystack_word_end(const char *text, size_t n, size_t low, size_t at);

/** The largest character boundary ≤ at. */
size_t dpe_haystack_character(const char *text, size_t n, size_t at);

/** Where to insert a needle that should be at byte `want` of [low, high]: the nearest sentence
 *  boundary (0 is one) in that range, else the nearest within 512 bytes of want, else the nearest
 *  word end in the range, else the character at want. */
size_t dpe_haystack_place(const char *text, size_t n, size_t low, size_t high, size_t want);

/* ---------------------------------------------------------------------------------------- words */

/** Texts, each once, in the order in which they came. Zero-initialise. */
struct dpe_texts {
    struct json_t *numbers; /**< of each by the text, which lives there */
    const char **at;        /**< [n] */
    size_t n;
};
/** *number: of the text, which is copied unless it is there. DPE_NO_MEMORY. */
dpe_status dpe_texts_add(struct dpe_texts *texts, const char *text, size_t *number,
                         struct dpe_error *err);
void dpe_texts_free(struct dpe_texts *texts);

/** n ≥ 1 words of the user's texts (4 to 10 small ASCII letters, in a drawn order), followed by as
 * many as are needed of the words of a generator of pronounceable syllables. The list depends on
 * the texts alone, and a longer one begins with the shorter. corpus NULL: generated ones only. To
 * be freed after DPE_NO_MEMORY too. */
dpe_status dpe_lexicon_make(const struct dpe_corpus *corpus, size_t n, struct dpe_texts *lexicon,
                            struct dpe_error *err);

#endif

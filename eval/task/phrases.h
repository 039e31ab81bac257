/**
 * @file phrases.h
 * The words of a task's prompts, as data: a JSON object of strings with {placeholders} and of lists
 * of words. Used inside eval/ only.
 */
#ifndef DPE_PHRASES_H
#define DPE_PHRASES_H

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"

/** What a member of the file must and may hold. */
struct dpe_phrase_field {
    const char *name;
    const char *needed;   /**< placeholder names separated by spaces */
    const char *allowed;  /**< further ones */
    const char *fallback; /**< when the file lacks it; NULL: it must not */
    bool list;            /**< words, each once, instead of a string */
};

struct dpe_phrase_list {
    char **words;
    size_t n;
};

struct dpe_phrases {
    const struct dpe_phrase_field *fields; /**< borrowed */
    size_t n;
    char **text;                   /**< [n] in the order of the fields; NULL where it is a list */
    struct dpe_phrase_list *lists; /**< [n] likewise; empty where it is a string */
    char hash[65];                 /**< SHA-256 of the file's bytes */
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
/** Put phrase `field` with its placeholders replaced, as dpe_text_put; `values` ends with a NULL
 * name. */
void dpe_phrases_put(const struct dpe_phrases *phrases, size_t field,
                     const struct dpe_phrase_value *values, struct dpe_text *out);

/** Whether the vocabulary can write digits, which the answers consist of. DPE_BAD_DATA. */
dpe_status dpe_phrases_check_digits(const struct dpe_tokenizer *tokenizer, struct dpe_error *err);

extern const struct dpe_builtin dpe_builtin_niah, dpe_builtin_ruler, dpe_builtin_ruler2,
    dpe_builtin_infinitebench;

#endif

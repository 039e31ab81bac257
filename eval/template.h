/**
 * @file template.h
 * The words of the needle task, as data: a JSON file. Used inside eval/ only.
 *
 *     intro            first in the prompt                                 may hold {keys}
 *     needle           one needle                                          {key} and {value}
 *     question         after the haystack                                  {keys}
 *     answer_prefix    last in the prompt: how the answer begins           may hold {key}, {keys}
 *     answer           how one value is expected to be said after that     {value}, may hold {key}
 *     keys_separator   between the asked keys in {keys}
 *     adjectives, nouns   a key is "adjective-noun"
 *
 * intro, answer_prefix and keys_separator may be left out ("", "", ", ").
 */
#ifndef DPE_TEMPLATE_H
#define DPE_TEMPLATE_H

#include "engine.h"

struct dpe_template {
    char *intro, *needle, *question, *answer_prefix, *answer, *keys_separator;
    char **adjectives, **nouns;
    size_t n_adjectives, n_nouns;
    char hash[65]; /**< SHA-256 of the file's bytes */
};

/** Read and check a template file; "" is the built-in one. Errors name file, field, placeholder.
 *  Free with dpe_template_free. */
dpe_status dpe_template_open(const char *file, struct dpe_template *out, struct dpe_error *err);
void dpe_template_free(struct dpe_template *t);

/** What stands for the placeholders; NULL: they are not replaced. */
struct dpe_template_words {
    const char *key, *value, *keys;
};
/** Append `pattern` with its placeholders replaced. */
dpe_status dpe_template_fill(const char *pattern, const struct dpe_template_words *words,
                             struct dpe_text *out, struct dpe_error *err);

/** The built-in template's bytes (made from templates/niah.json when the build is configured). */
extern const unsigned char dpe_builtin_template[];
extern const size_t dpe_builtin_template_size;

#endif

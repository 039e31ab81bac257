/**
 * @file tokenizer_json.h
 * Reading typed members of the JSON of a tokenizer file, with the member named in the error.
 * Internal to engine/tokenizer_*.c.
 */
#ifndef DPE_TOKENIZER_JSON_H
#define DPE_TOKENIZER_JSON_H

#include <jansson.h>

#include "tokenizer_parts.h"

/** `where` in all of these is the component's name for messages, "pre_tokenizer" and the like. An
 *  absent or null member leaves *value as it was when `required` is false. All errors are
 *  DPE_BAD_DATA. */
dpe_status dpe_member_bool(const json_t *object, const char *where, const char *key, bool required,
                           bool *value, struct dpe_error *err);
/** *value is borrowed from the JSON. */
dpe_status dpe_member_string(const json_t *object, const char *where, const char *key,
                             bool required, const char **value, size_t *n, struct dpe_error *err);
/** The member as a list or an object. */
dpe_status dpe_member_list(const json_t *object, const char *where, const char *key,
                           const json_t **value, struct dpe_error *err);
dpe_status dpe_member_object(const json_t *object, const char *where, const char *key,
                             const json_t **value, struct dpe_error *err);
/** An integer from 0 to `most`. */
dpe_status dpe_member_count(const json_t *value, const char *where, const char *what, int64_t most,
                            int64_t *count, struct dpe_error *err);
/** The "type" of a component. */
dpe_status dpe_member_type(const json_t *component, const char *where, const char **type,
                           struct dpe_error *err);

/** The components of the file, in their own file. NULL and JSON null mean that there is none. */
dpe_status dpe_load_normalizer(struct dpe_tokenizer *tokenizer, const json_t *component, int depth,
                               struct dpe_error *err);
dpe_status dpe_load_pre_tokenizer(struct dpe_tokenizer *tokenizer, const json_t *component,
                                  int depth, struct dpe_error *err);
dpe_status dpe_load_decoder(struct dpe_tokenizer *tokenizer, const json_t *component, int depth,
                            struct dpe_error *err);
/** After the vocabulary: its ids are checked. */
dpe_status dpe_load_post_processor(struct dpe_tokenizer *tokenizer, const json_t *component,
                                   int depth, struct dpe_error *err);
/** model and added_tokens; after normalizer and pre_tokenizer. */
dpe_status dpe_load_model(struct dpe_tokenizer *tokenizer, const json_t *model, const json_t *added,
                          struct dpe_error *err);

#endif

/**
 * @file tokenizer_load.h
 * From the JSON of a tokenizer file to the parts of a dpe_tokenizer; internal to
 * engine/tokenizer*.c. Components are read through dpe_json_reader, whose `file` is the component's
 * name ("pre_tokenizer"); the path is put before the message once, by dpe_tokenizer_open.
 */
#ifndef DPE_TOKENIZER_LOAD_H
#define DPE_TOKENIZER_LOAD_H

#include "engine/text/json.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_parts.h"

/** Members that must be there: absent, null or of another type fails the reader. Strings fall back
 *  to "", the others to false and NULL. */
const char *dpe_tokenizer_need_string(struct dpe_json_reader *reader, const char *key);
bool dpe_tokenizer_need_bool(struct dpe_json_reader *reader, const char *key);
json_t *dpe_tokenizer_need_list(struct dpe_json_reader *reader, const char *key);
json_t *dpe_tokenizer_need_object(struct dpe_json_reader *reader, const char *key);

/** An id from 0 to DPE_MAX_IDS − 1. `where` and `token` are for the message. */
dpe_status dpe_tokenizer_read_id(const json_t *value, const char *where, const char *token,
                                 int32_t *id, struct dpe_error *err);

/** The components; NULL and JSON null mean that there is none. `depth`: 0, grows in sequences. */
dpe_status dpe_load_normalizer(struct dpe_tokenizer *tokenizer, json_t *component, int depth,
                               struct dpe_error *err);
dpe_status dpe_load_pre_tokenizer(struct dpe_tokenizer *tokenizer, json_t *component, int depth,
                                  struct dpe_error *err);
dpe_status dpe_load_decoder(struct dpe_tokenizer *tokenizer, json_t *component, int depth,
                            struct dpe_error *err);
/** After the vocabulary: its ids are checked. */
dpe_status dpe_load_post_processor(struct dpe_tokenizer *tokenizer, json_t *component, int depth,
                                   struct dpe_error *err);
/** model and added_tokens; after normaliser and pre-tokenizer. */
dpe_status dpe_load_model(struct dpe_tokenizer *tokenizer, json_t *model, json_t *added,
                          struct dpe_error *err);

/** The metadata of a GGUF file as JSON: *root (a new reference, after a failure too) is what its
 * tokenizer.json would be, as far as the metadata says; fingerprint is the SHA-256 over the
 * metadata of the tokenizer. DPE_BAD_DATA names what is missing or not supported; as dpe_gguf_open.
 */
dpe_status dpe_tokenizer_of_gguf(const char *path, json_t **root, char fingerprint[65],
                                 struct dpe_error *err);

#endif

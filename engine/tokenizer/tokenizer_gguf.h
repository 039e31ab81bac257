/**
 * @file tokenizer_gguf.h
 * The metadata of a GGUF file as the JSON of a tokenizer file; internal to engine/tokenizer*.c.
 */
#ifndef DPE_TOKENIZER_GGUF_H
#define DPE_TOKENIZER_GGUF_H

#include <jansson.h>

#include "engine/base/base.h"
#include "engine/gguf/gguf.h"

/** Read a file's metadata: *root (a new reference) is what its tokenizer.json would be, as far as
 *  the metadata says; fingerprint is the SHA-256 over the metadata of the tokenizer. DPE_BAD_DATA
 *  names what is missing or not supported; as dpe_gguf_open. */
dpe_status dpe_tokenizer_of_gguf(const char *path, json_t **root, char fingerprint[65],
                                 struct dpe_error *err);

/** tokenizer_gguf_merges.c: the merges of a SentencePiece vocabulary, [["left", "right"], …], best
 *  first: every way to divide a token into two others, by the score of the whole, then the longer
 *  left part, as transformers derives them. `types` and `scores` have an element for each token. */
dpe_status dpe_tokenizer_spm_merges(const struct dpe_gguf *gguf,
                                    const struct dpe_gguf_value *tokens,
                                    const struct dpe_gguf_value *types,
                                    const struct dpe_gguf_value *scores, json_t **merges,
                                    struct dpe_error *err);

enum dpe_token_type { /* the format's numbers */
                      DPE_TOKEN_NORMAL = 1,
                      DPE_TOKEN_UNKNOWN = 2,
                      DPE_TOKEN_CONTROL = 3,
                      DPE_TOKEN_USER_DEFINED = 4,
                      DPE_TOKEN_UNUSED = 5,
                      DPE_TOKEN_BYTE = 6,
};

#endif

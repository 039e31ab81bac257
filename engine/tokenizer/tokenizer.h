/**
 * @file tokenizer.h
 * tokenizer.json: text to token ids and back.
 */
#ifndef DPE_TOKENIZER_H
#define DPE_TOKENIZER_H

#include "engine/base/base.h"

struct dpe_tokenizer;

/** Largest number of ids (16 times the largest vocabulary in use): bounds what a file can make us
 *  allocate with one absurd id. */
enum { DPE_MAX_IDS = 1 << 22 };

/** What to do when the text contains the spelling of a special token. */
enum dpe_special_policy {
    DPE_SPECIAL_ERROR,   /**< refuse, naming the byte offset (default) */
    DPE_SPECIAL_LITERAL, /**< tokenize it like any other text */
    DPE_SPECIAL_PARSE,   /**< make it the special token, as transformers does */
};

struct dpe_encode_options {
    bool add_special; /**< run the file's post_processor (BOS and the like) */
    bool once; /**< a text that begins with what add_special puts before it, as a chat template with
                    its BOS, does not get it again; else both stand there, as in the reference */
    enum dpe_special_policy special;
    bool replace_invalid; /**< invalid UTF-8 → U+FFFD instead of an error with the offset */
    const char *advice;   /**< what the user can do where a special token is refused, which ends the
                               message; NULL: nothing is said */
};

/** Open tokenizer.json: a folder that holds one, the file itself, or a GGUF file with the same in
 * its metadata. BPE only; an unknown component is refused by name. The file decides everything, but
 * for its truncation and padding, which are ignored as transformers does. Reference: the
 * `tokenizers` library, 0.23. Errors: DPE_NO_INPUT, DPE_BAD_DATA, DPE_NO_MEMORY. */
dpe_status dpe_tokenizer_open(const char *path, struct dpe_tokenizer **tokenizer,
                              struct dpe_error *err);
void dpe_tokenizer_close(struct dpe_tokenizer *tokenizer);
DPE_SCOPED_HANDLE(struct dpe_tokenizer *, dpe_tokenizer_close)
/** What holds while this tokenizer encodes, in every later call. Zeros: nothing does. */
struct dpe_tokenizer_limits {
    dpe_status (*poll)(void *user, struct dpe_error *err); /**< called at least every few million
                                    bytes, from the thread that encodes; what is not DPE_OK ends the
                                    call with that status */
    void *user;
    uint64_t max_memory; /**< bytes that one call may hold, its text and ids included: more is
                              DPE_NO_MEMORY. 0: any */
};
void dpe_tokenizer_set_limits(struct dpe_tokenizer *tokenizer,
                              const struct dpe_tokenizer_limits *limits);
/** Append the ids of `text` (n bytes, need not be NUL-terminated, may hold NULs) to `out`.
 *  Thread-safe on one tokenizer. `options` NULL = all defaults (no specials added).
 *  Errors: DPE_BAD_DATA (invalid UTF-8 or special text, with the byte offset), DPE_NO_MEMORY, and
 *  what the poll of dpe_tokenizer_set_limits returns. */
dpe_status dpe_tokenizer_encode(const struct dpe_tokenizer *tokenizer, const char *text, size_t n,
                                const struct dpe_encode_options *options, struct dpe_tokens *out,
                                struct dpe_error *err);
/** Append the text of `ids` to `out`; specials are left out when `skip_special`. An id outside the
 *  vocabulary is DPE_BAD_DATA. Incomplete UTF-8 sequences become U+FFFD as in the reference. */
dpe_status dpe_tokenizer_decode(const struct dpe_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                bool skip_special, struct dpe_text *out, struct dpe_error *err);
/** Append the bytes that one token stands for inside a text: as dpe_tokenizer_decode of it, but
 * bytes of an incomplete character stay as they are, and so does a space that only the beginning of
 * a text loses. */
dpe_status dpe_tokenizer_bytes(const struct dpe_tokenizer *tokenizer, int32_t id, bool skip_special,
                               struct dpe_text *out, struct dpe_error *err);
/** Largest id + 1 (vocabulary and added tokens). */
int64_t dpe_tokenizer_size(const struct dpe_tokenizer *tokenizer);
/** Number of ids that add_special puts before a text (0 or 1 for all supported kinds, or more). */
int dpe_tokenizer_prefix_size(const struct dpe_tokenizer *tokenizer);
/** The file, for messages. */
const char *dpe_tokenizer_path(const struct dpe_tokenizer *tokenizer);
/** SHA-256 over the file's bytes (of a GGUF file over the metadata of its tokenizer), hex. */
const char *dpe_tokenizer_fingerprint(const struct dpe_tokenizer *tokenizer);

#endif

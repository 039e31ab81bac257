/**
 * @file tokenizer_parts.h
 * The parts a dpe_tokenizer is made of; internal to engine/tokenizer*.c. A text goes through
 *     added tokens in the raw text → normalisers → added tokens in the normalised text
 *     → pre-tokenizer steps → BPE → prefix and suffix of the post-processor,
 * exactly in this order, as in the reference. Everything here is immutable once loaded; what an
 * encoding call changes lives in its own struct (dpe_bpe, dpe_matcher). Components are read through
 * dpe_json_reader, whose `file` is the component's name ("pre_tokenizer"); dpe_tokenizer_open puts
 * the path before the message.
 */
#ifndef DPE_TOKENIZER_PARTS_H
#define DPE_TOKENIZER_PARTS_H

#include "engine/text/json.h"
#include "engine/tokenizer/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/base/base.h"
#include "engine/text/unicode.h"

/** Work of one encoding call: every megabyte of it the caller's limits are looked at. */
struct dpe_encode_work {
    const struct dpe_tokenizer_limits *limits;
    uint64_t (*held)(const void *user); /**< bytes that the call holds now */
    const void *user;
    size_t since; /**< bytes of work since the last look */
};
/** The limits, at once: `more` bytes are about to be held besides. */
dpe_status dpe_encode_look(struct dpe_encode_work *work, uint64_t more, struct dpe_error *err);
/** n bytes were worked on. `work` may be NULL. */
static inline dpe_status dpe_encode_did(struct dpe_encode_work *work, size_t n,
                                        struct dpe_error *err)
{
    const size_t often = (size_t)1 << 20;
    if (work == NULL || (work->since += n) < often) {
        return DPE_OK;
    }
    return dpe_encode_look(work, 0, err);
}

/** A piece of the vocabulary's arena. */
struct dpe_token_span {
    uint32_t offset, n;
};

/** Slot of the merges: pair (left << 32 | right), UINT64_MAX: empty. */
struct dpe_merge_slot {
    uint64_t pair;
    uint32_t rank;
    int32_t id;
};

/** Vocabulary and merges. */
struct dpe_vocab {
    int64_t n_ids; /**< largest id + 1 */
    struct dpe_text arena;
    struct dpe_token_span *text;  /**< [n_ids] the token as written in the file */
    struct dpe_token_span *match; /**< [n_ids] what it matches: for byte-level files the bytes that
                                 its characters stand for, else `text` itself */
    uint8_t *known;               /**< [n_ids] 1: the id exists */
    json_t *by_text;              /**< the id of every token, also of added ones */
    json_t *by_match;             /**< of the model's tokens that can match text */
    struct dpe_merge_slot *merges;
    size_t merge_mask;
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    bool words_apart;         /**< no merge crosses from another character to a following U+2581 */
    int32_t byte_id[256];     /**< byte-level: the token of each single byte, −1: none */
    int32_t fallback_id[256]; /**< "<0x00>" … "<0xFF>", −1: none */
    bool has_unk;             /**< the file names an unk_token … */
    int32_t unk_id;           /**< … and this is its id, −1: not in the vocabulary */
    uint16_t char_of_byte[256]; /**< the byte-level alphabet of GPT-2 */
    int16_t byte_of_char[324];  /**< its inverse, −1: not in the alphabet */
};

/** Allocate for ids 0 … n_ids−1 and n_merges merges. */
dpe_status dpe_vocab_init(struct dpe_vocab *vocab, int64_t n_ids, size_t n_merges,
                          struct dpe_error *err);
void dpe_vocab_free(struct dpe_vocab *vocab);
/** Add a token; DPE_BAD_DATA when the id is taken. `in_model`: BPE may produce it. */
dpe_status dpe_vocab_add(struct dpe_vocab *vocab, int32_t id, const char *text, size_t n,
                         bool in_model, struct dpe_error *err);
/** Add the merge of two tokens; DPE_BAD_DATA when they or their join are not in the vocabulary. A
 *  pair given twice has its last rank, as in the reference. */
dpe_status dpe_vocab_merge(struct dpe_vocab *vocab, const char *left, size_t n_left,
                           const char *right, size_t n_right, uint32_t rank, struct dpe_error *err);
/** After the last token and merge: single bytes, fallback ids, words_apart. */
void dpe_vocab_finish(struct dpe_vocab *vocab, const char *unk, size_t n_unk);
/** Id of a token by its text, −1: none. */
int32_t dpe_vocab_id(const struct dpe_vocab *vocab, const char *text, size_t n);
/** Id of the model's token that matches these bytes, −1: none. */
int32_t dpe_vocab_match(const struct dpe_vocab *vocab, const char *bytes, size_t n);
/** The merge of a pair, NULL: none. */
const struct dpe_merge_slot *dpe_vocab_pair(const struct dpe_vocab *vocab, int32_t left,
                                            int32_t right);
/** Append the bytes that a byte-level token stands for; nothing where a character is not of the
 *  alphabet, then *mapped is false: it stands for its own UTF-8. */
dpe_status dpe_vocab_bytes(const struct dpe_vocab *vocab, const char *text, size_t n,
                           struct dpe_text *out, bool *mapped, struct dpe_error *err);

/* ----------------------------------------------------------------------------------------- BPE */

/** What merging needs within one encoding call. */
struct dpe_bpe {
    const struct dpe_vocab *vocab;
    struct dpe_encode_work *work;
    struct dpe_tokens symbols; /**< ids of the word at hand, before and after merging */
    uint32_t *links;           /**< [2][capacity] next and previous symbol */
    uint64_t *heap;            /**< rank << 32 | position */
    size_t link_capacity, heap_n;
};

void dpe_bpe_free(struct dpe_bpe *bpe);
/** Append the ids of one pre-token of n ≥ 1 bytes. */
dpe_status dpe_bpe_encode(struct dpe_bpe *bpe, const char *piece, size_t n, struct dpe_tokens *out,
                          struct dpe_error *err);

/* -------------------------------------------------------------------------------- added tokens */

struct dpe_added_token {
    int32_t id;
    struct dpe_text content; /**< what is looked for and decoded to; normalised if `normalized` */
    bool special;            /**< falls under the special-text policy */
    bool hide;               /**< left out by decode(skip_special) */
    bool single_word, lstrip, rstrip, normalized;
};

/** Tokens to look for, sorted by content. */
struct dpe_added_set {
    const struct dpe_added_token **tokens; /**< [n], borrowed */
    size_t n;
    bool first[256]; /**< bytes that a content begins with */
};

/** Leftmost-longest match that begins in [from, end) of the n bytes; NULL: none, else *start is its
 *  offset. */
const struct dpe_added_token *dpe_added_find(const struct dpe_added_set *set, const char *text,
                                             size_t n, size_t from, size_t end, size_t *start);
/** Sort and index; `tokens` becomes owned by the set. DPE_BAD_DATA on two with one content. */
dpe_status dpe_added_set_init(struct dpe_added_set *set, const struct dpe_added_token **tokens,
                              size_t n, struct dpe_error *err);

/* ------------------------------------------------------------------------------------ patterns */

/** A regular expression in the reference's dialect (Oniguruma, Ruby syntax) compiled by PCRE2.
 *  Only what means the same in both is accepted; \p{…}, \s and \d are replaced by the tables of
 *  unicode.h. */
struct dpe_pattern {
    pcre2_code *code;
};

/** Compile n bytes. DPE_BAD_DATA names what is not supported and where in the pattern. */
dpe_status dpe_pattern_compile(struct dpe_pattern *pattern, const char *regex, size_t n,
                               struct dpe_error *err);
/** Compile a pattern that matches one character of dpe_unicode_numeric. */
dpe_status dpe_pattern_numeric(struct dpe_pattern *pattern, struct dpe_error *err);
/** Compile a pattern that matches exactly these bytes. */
dpe_status dpe_pattern_literal(struct dpe_pattern *pattern, const char *text, size_t n,
                               struct dpe_error *err);
void dpe_pattern_free(struct dpe_pattern *pattern);

/** What matching needs within one call; usable with every pattern. */
struct dpe_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/** `n`: bytes of the whole text; the match limit grows with it. */
dpe_status dpe_matcher_init(struct dpe_matcher *matcher, size_t n, struct dpe_error *err);
void dpe_matcher_free(struct dpe_matcher *matcher);
/** First match at or after `from` in valid UTF-8; *found is whether there is one. A match that
 *  takes too many steps is DPE_BAD_DATA. */
dpe_status dpe_pattern_find(const struct dpe_pattern *pattern, struct dpe_matcher *matcher,
                            const char *text, size_t n, size_t from, bool *found, size_t *start,
                            size_t *end, struct dpe_error *err);

/* ------------------------------------------------------------------------------- normalisation */

enum dpe_form { DPE_NFC, DPE_NFKC };
/** Append a normal form of valid UTF-8 to `out`, as the reference has it: characters younger than
 *  its Unicode version neither decompose nor compose nor move. */
dpe_status dpe_form(enum dpe_form form, const char *text, size_t n, struct dpe_text *out,
                    struct dpe_encode_work *work, struct dpe_error *err);

/* ---------------------------------------------------------------------------------- components */

enum { DPE_MAX_STEPS = 32 };

enum dpe_normalizer_kind { DPE_NORMALIZE_FORM, DPE_NORMALIZE_PREPEND, DPE_NORMALIZE_REPLACE };

struct dpe_normalizer {
    enum dpe_normalizer_kind kind;
    enum dpe_form form;
    struct dpe_text pattern; /**< replace: what */
    struct dpe_text content; /**< replace: by what; prepend: what */
};

/** What becomes of the matches of a pattern; names and meaning as in the reference. */
enum dpe_split_behavior {
    DPE_SPLIT_ISOLATED,
    DPE_SPLIT_REMOVED,
    DPE_SPLIT_MERGED_WITH_PREVIOUS,
    DPE_SPLIT_MERGED_WITH_NEXT,
    DPE_SPLIT_CONTIGUOUS,
};

enum dpe_step_kind { DPE_STEP_PATTERN, DPE_STEP_PREFIX_SPACE, DPE_STEP_METASPACE };

enum dpe_prepend { DPE_PREPEND_NEVER, DPE_PREPEND_FIRST, DPE_PREPEND_ALWAYS };

/** One pre-tokenizer step. A ByteLevel becomes a PREFIX_SPACE (when it adds one) and a PATTERN
 *  (when it uses its own expression); its mapping of bytes to characters is the vocabulary's. A
 *  Metaspace that splits becomes a METASPACE and a PATTERN. */
struct dpe_step {
    enum dpe_step_kind kind;
    struct dpe_pattern pattern;
    enum dpe_split_behavior behavior; /**< PATTERN */
    bool invert;                      /**< PATTERN */
    struct dpe_normalizer spaces;     /**< METASPACE: a space becomes the mark */
    enum dpe_prepend prepend;
};

enum dpe_decoder_kind {
    DPE_DECODE_BYTE_LEVEL,
    DPE_DECODE_REPLACE,
    DPE_DECODE_BYTE_FALLBACK,
    DPE_DECODE_FUSE,
    DPE_DECODE_STRIP,
    DPE_DECODE_METASPACE, /**< in files: it is loaded as a REPLACE of its mark by a space */
};

struct dpe_decoder {
    enum dpe_decoder_kind kind;
    struct dpe_text pattern, content; /**< replace; strip: content = one character */
    size_t start, stop;               /**< strip: how many at each end */
    bool drop_first;                  /**< replace: by nothing in the first token */
};

struct dpe_tokenizer {
    struct dpe_text path; /**< of the file */
    char fingerprint[65];
    struct dpe_tokenizer_limits limits;
    struct dpe_vocab vocab;
    struct dpe_added_token *added;
    size_t n_added;
    struct dpe_added_token **added_by_id; /**< [vocab.n_ids] or NULL when there are none */
    struct dpe_added_set raw, normalized;
    struct dpe_normalizer normalizers[DPE_MAX_STEPS];
    size_t n_normalizers;
    struct dpe_step steps[DPE_MAX_STEPS];
    size_t n_steps;
    struct dpe_decoder decoders[DPE_MAX_STEPS];
    size_t n_decoders;
    double growth;    /**< while it is loaded: how much longer its rules can make a text */
    bool has_decoder; /**< without one the reference joins tokens by spaces */
    struct dpe_tokens prefix, suffix; /**< of the post-processor's template */
    bool has_template;
};

/** Append `text` with `pattern`, which is not empty, replaced by `content`. `work` may be NULL. */
dpe_status dpe_replace_all(const struct dpe_text *pattern, const struct dpe_text *content,
                           const char *text, size_t n, struct dpe_text *out,
                           struct dpe_encode_work *work, struct dpe_error *err);
/** Apply the normalisers; *result is `text` itself or the content of one of the two buffers.
 *  *inserted is the number of bytes in front that stand for nothing in `text`. `work` may be NULL.
 */
dpe_status dpe_normalize(const struct dpe_tokenizer *tokenizer, const char *text, size_t n,
                         struct dpe_text buffers[2], const char **result, size_t *n_result,
                         size_t *inserted, struct dpe_encode_work *work, struct dpe_error *err);

/** Members that must be there: absent, null or of another type fails the reader. Strings fall back
 *  to "", the others to false and NULL. */
const char *dpe_tokenizer_need_string(struct dpe_json_reader *reader, const char *key);
bool dpe_tokenizer_need_bool(struct dpe_json_reader *reader, const char *key);
json_t *dpe_tokenizer_need_list(struct dpe_json_reader *reader, const char *key);
json_t *dpe_tokenizer_need_object(struct dpe_json_reader *reader, const char *key);

/** An id from 0 to DPE_MAX_IDS − 1. `where` and `token` are for the message. */
dpe_status dpe_tokenizer_read_id(const json_t *value, const char *where, const char *token,
                                 int32_t *id, struct dpe_error *err);

/** The component "normalizer", "pre_tokenizer", "decoder" or, after the vocabulary, whose ids are
 * checked, "post_processor"; NULL and JSON null mean that there is none. */
dpe_status dpe_load_component(struct dpe_tokenizer *tokenizer, const json_t *root, const char *name,
                              struct dpe_error *err);

/** What stands beside tokenizer.json at `path` is put into `root`, what is in it: tokens, and the
 * space before a text. `fingerprint` changes where `root` does. DPE_BAD_DATA names the file that is
 * no JSON; DPE_NO_MEMORY. */
dpe_status dpe_tokenizer_beside(const char *path, json_t *root, char fingerprint[65],
                                struct dpe_error *err);
/** The decoder of SentencePiece's pieces as in tokenizer.json; `prefix`: a space before the text is
 * dropped. A new reference, NULL when memory is out. */
json_t *dpe_sentence_piece_decoder(bool prefix);
/** The metadata of a GGUF file as JSON: *root (a new reference, after a failure too) is what its
 * tokenizer.json would be, as far as the metadata says; fingerprint is the SHA-256 over the
 * metadata of the tokenizer. DPE_BAD_DATA names what is missing or not supported; as dpe_gguf_open.
 */
dpe_status dpe_tokenizer_of_gguf(const char *path, json_t **root, char fingerprint[65],
                                 struct dpe_error *err);

#endif

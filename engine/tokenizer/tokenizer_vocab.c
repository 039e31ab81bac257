/* The vocabulary: tokens by text, by what they match and by id; merges by pair. */
#include "engine/text/json.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char WORD_MARK[] = "\xe2\x96\x81";

/* Printable characters of Latin-1 stand for themselves, the other bytes, in order, for U+0100 and
 * on. */
static void make_alphabet(struct dpe_vocab *vocab)
{
    for (size_t i = 0; i < 324; i++) {
        vocab->byte_of_char[i] = -1;
    }
    uint16_t next = 256;
    for (uint16_t b = 0; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        vocab->char_of_byte[b] = printable ? b : next;
        next = (uint16_t)(next + !printable);
        vocab->byte_of_char[vocab->char_of_byte[b]] = (int16_t)b;
    }
}

static size_t table_size(size_t n)
{
    size_t size = 64;
    while (size < 2 * n) {
        size *= 2;
    }
    return size;
}

dpe_status dpe_vocab_init(struct dpe_vocab *vocab, int64_t n_ids, size_t n_merges,
                          struct dpe_error *err)
{
    vocab->n_ids = n_ids;
    vocab->unk_id = -1;
    vocab->words_apart = true;
    size_t n = (size_t)n_ids;
    size_t slots = table_size(n_merges);
    vocab->text = dpe_alloc_zero(n, sizeof *vocab->text);
    vocab->match = dpe_alloc_zero(n, sizeof *vocab->match);
    vocab->known = dpe_alloc_zero(n, 1);
    vocab->by_text = json_object();
    vocab->by_match = json_object();
    vocab->merges = dpe_alloc(slots, sizeof *vocab->merges);
    if (vocab->text == NULL || vocab->match == NULL || vocab->known == NULL ||
        vocab->by_text == NULL || vocab->by_match == NULL || vocab->merges == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "no memory for a vocabulary of %zu ids", n);
    }
    vocab->merge_mask = slots - 1;
    for (size_t i = 0; i < slots; i++) {
        vocab->merges[i].pair = UINT64_MAX;
    }
    make_alphabet(vocab);
    return DPE_OK;
}

void dpe_vocab_free(struct dpe_vocab *vocab)
{
    dpe_text_free(&vocab->arena);
    free(vocab->text);
    free(vocab->match);
    free(vocab->known);
    json_decref(vocab->by_text);
    json_decref(vocab->by_match);
    free(vocab->merges);
    *vocab = (struct dpe_vocab){0};
}

static int32_t id_of(const json_t *table, const char *bytes, size_t n)
{
    const json_t *id = json_object_getn(table, bytes, n);
    return id != NULL ? (int32_t)json_integer_value(id) : -1;
}

int32_t dpe_vocab_id(const struct dpe_vocab *vocab, const char *text, size_t n)
{
    return id_of(vocab->by_text, text, n);
}

int32_t dpe_vocab_match(const struct dpe_vocab *vocab, const char *bytes, size_t n)
{
    return id_of(vocab->by_match, bytes, n);
}

dpe_status dpe_vocab_bytes(const struct dpe_vocab *vocab, const char *text, size_t n,
                           struct dpe_text *out, bool *mapped, struct dpe_error *err)
{
    const size_t before = out->n;
    *mapped = true;
    for (size_t at = 0, length = 0; at < n && *mapped; at += length) {
        uint32_t point = dpe_utf8_next(text + at, &length);
        *mapped = point < 324 && vocab->byte_of_char[point] >= 0;
        char byte = (char)(*mapped ? vocab->byte_of_char[point] : 0);
        DPE_TRY(dpe_text_append(out, &byte, 1, err));
    }
    out->n = *mapped ? out->n : before;
    return DPE_OK;
}

/* What was appended to the arena since `before`. */
static struct dpe_token_span span_from(const struct dpe_vocab *vocab, size_t before)
{
    return (struct dpe_token_span){(uint32_t)before, (uint32_t)(vocab->arena.n - before)};
}

dpe_status dpe_vocab_add(struct dpe_vocab *vocab, int32_t id, const char *text, size_t n,
                         bool in_model, struct dpe_error *err)
{
    struct dpe_text *arena = &vocab->arena;
    const size_t at = arena->n;
    if (vocab->known[id]) {
        char quoted[96];
        char other[96];
        struct dpe_token_span span = vocab->text[id];
        return dpe_fail(err, DPE_BAD_DATA, "id %d is given to two tokens, \"%s\" and \"%s\"",
                        (int)id, dpe_json_quote(other, arena->bytes + span.offset, span.n),
                        dpe_json_quote(quoted, text, n));
    }
    vocab->known[id] = 1;
    DPE_TRY(dpe_text_append(arena, text, n, err));
    vocab->text[id] = vocab->match[id] = span_from(vocab, at);
    bool good = json_object_setn_new_nocheck(vocab->by_text, text, n, json_integer(id)) == 0;
    bool can_match = in_model;
    if (vocab->byte_level) {
        const size_t bytes = arena->n;
        bool mapped = false;
        DPE_TRY(dpe_vocab_bytes(vocab, text, n, arena, &mapped, err));
        vocab->match[id] = mapped ? span_from(vocab, bytes) : vocab->match[id];
        can_match = in_model && mapped; /* BPE makes no other characters */
    }
    if (can_match) {
        struct dpe_token_span span = vocab->match[id];
        good = good && json_object_setn_new_nocheck(vocab->by_match, arena->bytes + span.offset,
                                                    span.n, json_integer(id)) == 0;
    }
    return good ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "no memory for a vocabulary");
}

/* Slot of a pair: its own, or the empty one where it would go. */
static struct dpe_merge_slot *find_merge(const struct dpe_vocab *vocab, uint64_t pair)
{
    uint64_t h = pair * 0x9fb21c651e98df25u;
    size_t at = (size_t)(h ^ h >> 32) & vocab->merge_mask;
    while (vocab->merges[at].pair != pair && vocab->merges[at].pair != UINT64_MAX) {
        at = (at + 1) & vocab->merge_mask;
    }
    return vocab->merges + at;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

const struct dpe_merge_slot *dpe_vocab_pair(const struct dpe_vocab *vocab, int32_t left,
                                            int32_t right)
{
    const struct dpe_merge_slot *slot = find_merge(vocab, pair_of(left, right));
    return slot->pair != UINT64_MAX ? slot : NULL;
}

/* A merge may glue a word mark after another character: then words are not independent. */
static bool crosses_words(const char *text, size_t n)
{
    for (size_t i = 1; i + 3 <= n; i++) {
        if (memcmp(text + i, WORD_MARK, 3) == 0 &&
            !(i >= 3 && memcmp(text + i - 3, WORD_MARK, 3) == 0)) {
            return true;
        }
    }
    return false;
}

static dpe_status not_in_vocabulary(const char *text, size_t n, uint32_t rank,
                                    struct dpe_error *err)
{
    char quoted[96];
    return dpe_fail(err, DPE_BAD_DATA, "model.merges: merge %u: \"%s\" is not in model.vocab", rank,
                    dpe_json_quote(quoted, text, n));
}

dpe_status dpe_vocab_merge(struct dpe_vocab *vocab, const char *left, size_t n_left,
                           const char *right, size_t n_right, uint32_t rank, struct dpe_error *err)
{
    char few[256];
    DPE_OWNED char *many = NULL;
    size_t n = n_left + n_right;
    if (n > sizeof few) {
        DPE_TRY(DPE_NEW(&many, n, err, "no memory for a merge of %zu bytes", n));
    }
    char *joined = many != NULL ? many : few;
    memcpy(joined, left, n_left);
    memcpy(joined + n_left, right, n_right);
    int32_t a = dpe_vocab_id(vocab, left, n_left), b = dpe_vocab_id(vocab, right, n_right);
    int32_t id = dpe_vocab_id(vocab, joined, n);
    if (a < 0 || b < 0 || id < 0) {
        return a < 0   ? not_in_vocabulary(left, n_left, rank, err)
               : b < 0 ? not_in_vocabulary(right, n_right, rank, err)
                       : not_in_vocabulary(joined, n, rank, err);
    }
    if (n_left == 0 || n_right == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "model.merges: merge %u joins an empty token", rank);
    }
    *find_merge(vocab, pair_of(a, b)) = (struct dpe_merge_slot){pair_of(a, b), rank, id};
    vocab->words_apart = vocab->words_apart && !crosses_words(joined, n);
    return DPE_OK;
}

void dpe_vocab_finish(struct dpe_vocab *vocab, const char *unk, size_t n_unk)
{
    for (int b = 0; b < 256; b++) {
        char byte = (char)b, name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        vocab->byte_id[b] = vocab->byte_level ? dpe_vocab_match(vocab, &byte, 1) : -1;
        vocab->fallback_id[b] = dpe_vocab_id(vocab, name, 6);
    }
    vocab->has_unk = unk != NULL;
    vocab->unk_id = unk == NULL ? -1 : dpe_vocab_id(vocab, unk, n_unk);
    /* An unknown character may stand for itself in no merge, but its token's text may. */
    bool unk_ends_in_mark = unk != NULL && n_unk >= 3 && memcmp(unk + n_unk - 3, WORD_MARK, 3) == 0;
    vocab->words_apart = vocab->words_apart && !vocab->byte_level && !unk_ends_in_mark &&
                         dpe_vocab_match(vocab, WORD_MARK, 3) >= 0;
}

/* -------------------------------------------------------------------------------- added tokens
 * Found in a text leftmost first; of those that begin at one place, the longest. */

static int by_content(const void *a, const void *b)
{
    const struct dpe_text *x = &(*(const struct dpe_added_token *const *)a)->content;
    const struct dpe_text *y = &(*(const struct dpe_added_token *const *)b)->content;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

dpe_status dpe_added_set_init(struct dpe_added_set *set, const struct dpe_added_token **tokens,
                              size_t n, struct dpe_error *err)
{
    set->tokens = tokens;
    set->n = n;
    if (n > 0) {
        qsort(tokens, n, sizeof *tokens, by_content);
    }
    for (size_t i = 0; i < n; i++) {
        set->first[(unsigned char)tokens[i]->content.bytes[0]] = true;
        if (i > 0 && by_content(tokens + i - 1, tokens + i) == 0) {
            char quoted[96];
            return dpe_fail(err, DPE_BAD_DATA,
                            "added_tokens: two tokens (ids %d, %d) both match \"%s\"",
                            (int)tokens[i - 1]->id, (int)tokens[i]->id,
                            dpe_json_quote(quoted, tokens[i]->content.bytes, tokens[i]->content.n));
        }
    }
    return DPE_OK;
}

/* First of tokens[low, high), which agree before `depth`, whose byte there is at least `byte`;
 * contents that end there come before all. */
static size_t lower_bound(const struct dpe_added_set *set, size_t low, size_t high, size_t depth,
                          unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct dpe_text *content = &set->tokens[middle]->content;
        if (content->n <= depth || (unsigned char)content->bytes[depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static const struct dpe_added_token *longest_at(const struct dpe_added_set *set, const char *text,
                                                size_t n)
{
    const struct dpe_added_token *longest = NULL;
    size_t low = 0, high = set->n;
    for (size_t depth = 0; depth < n; depth++) {
        unsigned byte = (unsigned char)text[depth];
        low = lower_bound(set, low, high, depth, byte);
        high = lower_bound(set, low, high, depth, byte + 1);
        if (low == high) {
            break;
        }
        if (set->tokens[low]->content.n == depth + 1) {
            longest = set->tokens[low];
        }
    }
    return longest;
}

const struct dpe_added_token *dpe_added_find(const struct dpe_added_set *set, const char *text,
                                             size_t n, size_t from, size_t end, size_t *start)
{
    for (size_t at = from; at < end && set->n > 0; at++) {
        if (set->first[(unsigned char)text[at]]) {
            const struct dpe_added_token *token = longest_at(set, text + at, n - at);
            if (token != NULL) {
                *start = at;
                return token;
            }
        }
    }
    return NULL;
}

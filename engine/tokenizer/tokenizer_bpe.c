/* Byte-pair encoding of one pre-token. The order of merges is that of the reference: lowest rank
 * first, leftmost first among equals. */
#include "engine/text/json.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

static const char WORD_MARK[] = "\xe2\x96\x81";

void dpe_bpe_free(struct dpe_bpe *bpe)
{
    dpe_tokens_free(&bpe->symbols);
    free(bpe->links);
    free(bpe->heap);
    *bpe = (struct dpe_bpe){0};
}

/* ------------------------------------------------------------------------ characters to symbols */

/* *pending: an unknown token that is not written yet; the reference holds it back so that it can
 * fuse, and writes it before the next known character (not before a fallback byte). */
static dpe_status unknown_symbol(struct dpe_bpe *bpe, const char *symbol, size_t n, bool *pending,
                                 struct dpe_error *err)
{
    const struct dpe_vocab *vocab = bpe->vocab;
    if (vocab->byte_fallback) {
        int32_t ids[4];
        bool all = true;
        for (size_t i = 0; i < n; i++) {
            ids[i] = vocab->fallback_id[(unsigned char)symbol[i]];
            all = all && ids[i] >= 0;
        }
        if (all) {
            return dpe_tokens_append(&bpe->symbols, ids, n, err);
        }
    }
    if (!vocab->has_unk) {
        return DPE_OK;
    }
    if (vocab->unk_id < 0) {
        char quoted[96];
        return dpe_fail(err, DPE_BAD_DATA,
                        "\"%s\" is not in the vocabulary, and neither is its unk_token",
                        dpe_json_quote(quoted, symbol, n));
    }
    if (*pending && !vocab->fuse_unk) {
        return dpe_tokens_append(&bpe->symbols, &vocab->unk_id, 1, err);
    }
    *pending = true;
    return DPE_OK;
}

/* The length of the symbol at `piece` and its id (−1: unknown); `name` is its text in the file. */
static size_t next_symbol(const struct dpe_vocab *vocab, const char *piece, int32_t *id,
                          char name[4], size_t *n_name)
{
    if (vocab->byte_level) {
        unsigned char byte = (unsigned char)piece[0];
        *id = vocab->byte_id[byte];
        if (*id < 0) {
            *n_name = dpe_utf8_put(vocab->char_of_byte[byte], name);
        }
        return 1;
    }
    size_t length = 0;
    dpe_utf8_next(piece, &length);
    *id = dpe_vocab_match(vocab, piece, length);
    memcpy(name, piece, length);
    *n_name = length;
    return length;
}

static dpe_status to_symbols(struct dpe_bpe *bpe, const char *piece, size_t n,
                             struct dpe_error *err)
{
    const struct dpe_vocab *vocab = bpe->vocab;
    bool pending = false;
    bpe->symbols.n = 0;
    for (size_t at = 0; at < n;) {
        int32_t id = -1;
        char name[4];
        size_t n_name = 0;
        size_t length = next_symbol(vocab, piece + at, &id, name, &n_name);
        at += length;
        DPE_TRY(dpe_encode_did(bpe->work, length, err));
        if (id < 0) {
            DPE_TRY(unknown_symbol(bpe, name, n_name, &pending, err));
            continue;
        }
        if (pending) {
            pending = false;
            DPE_TRY(dpe_tokens_append(&bpe->symbols, &vocab->unk_id, 1, err));
        }
        DPE_TRY(dpe_tokens_append(&bpe->symbols, &id, 1, err));
    }
    return pending ? dpe_tokens_append(&bpe->symbols, &vocab->unk_id, 1, err) : DPE_OK;
}

/* -------------------------------------------------------------------------------------- merging */

static dpe_status reserve(struct dpe_bpe *bpe, size_t n, struct dpe_error *err)
{
    if (n > UINT32_MAX - 2) {
        return dpe_fail(err, DPE_BAD_DATA, "a word of %zu symbols is too long", n);
    }
    if (n > bpe->link_capacity) {
        free(bpe->links);
        free(bpe->heap);
        bpe->links = NULL;
        bpe->heap = NULL;
        bpe->link_capacity = 0;
        uint64_t bytes = (2 * sizeof *bpe->links + 3 * sizeof *bpe->heap) * (uint64_t)n;
        DPE_TRY(dpe_encode_look(bpe->work, bytes, err));
        /* Every symbol starts one pair, and every merge, at most n − 1, adds at most two. */
        bpe->links = dpe_alloc(n, 2 * sizeof *bpe->links);
        bpe->heap = dpe_alloc(n, 3 * sizeof *bpe->heap);
        bpe->link_capacity = bpe->links == NULL || bpe->heap == NULL ? 0 : n;
        DPE_TRY(DPE_MADE(bpe->link_capacity > 0 ? bpe->links : NULL, err,
                         "no memory for a word of %zu symbols", n));
    }
    return DPE_OK;
}

static void heap_push(struct dpe_bpe *bpe, uint64_t entry)
{
    uint64_t *heap = bpe->heap;
    size_t at = bpe->heap_n++;
    while (at > 0 && heap[(at - 1) / 4] > entry) {
        heap[at] = heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    heap[at] = entry;
}

static uint64_t heap_pop(struct dpe_bpe *bpe)
{
    uint64_t *heap = bpe->heap;
    uint64_t top = heap[0];
    uint64_t last = heap[--bpe->heap_n];
    size_t n = bpe->heap_n, at = 0;
    for (size_t child = 1; child < n; child = 4 * at + 1) {
        size_t end = child + 4 < n ? child + 4 : n;
        size_t least = child;
        for (size_t c = child + 1; c < end; c++) {
            least = heap[c] < heap[least] ? c : least;
        }
        if (heap[least] >= last) {
            break;
        }
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = last;
    return top;
}

static void push_pair(struct dpe_bpe *bpe, uint32_t at, uint32_t next)
{
    const int32_t *id = bpe->symbols.ids;
    const struct dpe_merge_slot *pair = dpe_vocab_pair(bpe->vocab, id[at], id[next]);
    if (pair != NULL) {
        heap_push(bpe, (uint64_t)pair->rank << 32 | at);
    }
}

static dpe_status merge(struct dpe_bpe *bpe, struct dpe_error *err)
{
    DPE_TRY(reserve(bpe, bpe->symbols.n, err));
    int32_t *id = bpe->symbols.ids;
    const uint32_t n = (uint32_t)bpe->symbols.n;
    uint32_t *next = bpe->links, *previous = bpe->links + bpe->link_capacity;
    bpe->heap_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        next[i] = i + 1;
        previous[i] = i == 0 ? n : i - 1;
        if (i + 1 < n) {
            push_pair(bpe, i, i + 1);
        }
        DPE_TRY(dpe_encode_did(bpe->work, 1, err));
    }
    while (bpe->heap_n > 0) {
        /* A step at the heap takes as long as some bytes of text. */
        DPE_TRY(dpe_encode_did(bpe->work, 8, err));
        uint64_t top = heap_pop(bpe);
        uint32_t at = (uint32_t)top;
        if (id[at] < 0 || next[at] == n) {
            continue;
        }
        uint32_t right = next[at];
        const struct dpe_merge_slot *pair = dpe_vocab_pair(bpe->vocab, id[at], id[right]);
        /* One of the two grew since this entry was pushed; the new pair has its own entry. */
        if (pair == NULL || pair->rank != top >> 32) {
            continue;
        }
        id[at] = pair->id;
        id[right] = -1;
        next[at] = next[right];
        if (next[at] < n) {
            previous[next[at]] = at;
            push_pair(bpe, at, next[at]);
        }
        if (previous[at] < n) {
            push_pair(bpe, previous[at], at);
        }
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (id[i] >= 0) {
            id[kept++] = id[i];
        }
    }
    bpe->symbols.n = kept;
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- words */

/* End of the word that starts at `from`: before the next word mark that follows something else. */
static size_t word_end(const char *piece, size_t n, size_t from)
{
    bool marks_only = true;
    size_t at = from;
    while (at < n) {
        bool mark = n - at >= 3 && memcmp(piece + at, WORD_MARK, 3) == 0;
        if (mark && !marks_only) {
            return at;
        }
        marks_only = marks_only && mark;
        at += mark ? 3 : 1;
    }
    return n;
}

dpe_status dpe_bpe_encode(struct dpe_bpe *bpe, const char *piece, size_t n, struct dpe_tokens *out,
                          struct dpe_error *err)
{
    const struct dpe_vocab *vocab = bpe->vocab;
    int32_t id = vocab->ignore_merges ? dpe_vocab_match(vocab, piece, n) : -1;
    if (id >= 0) {
        return dpe_tokens_append(out, &id, 1, err);
    }
    /* SentencePiece-style files give whole texts as one pre-token; where no merge joins two words
     * each can be merged alone, with the same result and no heap over the whole text. */
    for (size_t at = 0, end = 0; at < n; at = end) {
        end = vocab->words_apart ? word_end(piece, n, at) : n;
        DPE_TRY(to_symbols(bpe, piece + at, end - at, err));
        DPE_TRY(merge(bpe, err));
        DPE_TRY(dpe_tokens_append(out, bpe->symbols.ids, bpe->symbols.n, err));
    }
    return DPE_OK;
}

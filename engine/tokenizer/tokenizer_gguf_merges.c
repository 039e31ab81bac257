/* The merges of a SentencePiece vocabulary, which a GGUF file leaves to be derived from the scores.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/tokenizer_gguf.h"
#include "engine/tokenizer/tokenizer_parts.h"

/* A token that merges may make or use. */
struct piece {
    const char *text;
    uint32_t n, characters;
    float score;
};

struct merge {
    float score;
    uint32_t whole, left, right;        /* ids */
    uint32_t left_length, right_length; /* characters */
};

struct deriver {
    struct piece *pieces; /* [n], text NULL for what is not normal text */
    uint64_t n;
    uint32_t *slots; /* [mask + 1] id + 1 by hash, 0: empty */
    size_t mask;
    struct merge *merges;
    size_t n_merges;
};

static bool begins_character(char byte)
{
    return ((unsigned char)byte & 0xc0U) != 0x80U;
}

static uint32_t count_characters(const char *text, size_t n)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += begins_character(text[i]);
    }
    return count;
}

/* The slot of a text: its own, or the empty one where it would go. */
static size_t find_slot(const struct deriver *d, const char *text, size_t n)
{
    size_t at = (size_t)dpe_vocab_hash(text, n) & d->mask;
    while (d->slots[at] != 0) {
        const struct piece *piece = &d->pieces[d->slots[at] - 1];
        if (piece->n == n && memcmp(piece->text, text, n) == 0) {
            break;
        }
        at = (at + 1) & d->mask;
    }
    return at;
}

static bool index_pieces(struct deriver *d, const struct dpe_gguf_value *tokens,
                         const struct dpe_gguf_value *types, const struct dpe_gguf_value *scores)
{
    size_t size = 64;
    while (size < 2 * d->n) {
        size *= 2;
    }
    d->mask = size - 1;
    d->slots = dpe_alloc_zero(size, sizeof *d->slots);
    d->pieces = dpe_alloc_zero((size_t)d->n, sizeof *d->pieces);
    if (d->slots == NULL || d->pieces == NULL) {
        return false;
    }
    size_t at = 0;
    for (uint64_t id = 0; id < d->n; id++) {
        const char *text = NULL;
        size_t n = 0;
        dpe_gguf_next_string(tokens, &at, &text, &n);
        if (n == 0 || n > UINT16_MAX ||
            (types != NULL && dpe_gguf_whole_at(types, id) != DPE_TOKEN_NORMAL)) {
            continue;
        }
        d->pieces[id] = (struct piece){text, (uint32_t)n, count_characters(text, n),
                                       dpe_gguf_f32_at(scores, id)};
        d->slots[find_slot(d, text, n)] = (uint32_t)id + 1;
    }
    return true;
}

static bool add_merge(struct deriver *d, struct merge merge)
{
    if (!dpe_make_room(&d->merges, d->n_merges, sizeof *d->merges)) {
        return false;
    }
    d->merges[d->n_merges++] = merge;
    return true;
}

/* All ways to divide a piece into two. */
static bool divide(struct deriver *d, uint32_t id)
{
    const struct piece *piece = &d->pieces[id];
    uint32_t characters = 0;
    bool good = true;
    for (uint32_t i = 1; i < piece->n && good; i++) {
        characters += begins_character(piece->text[i - 1]);
        if (!begins_character(piece->text[i])) {
            continue;
        }
        uint32_t left = d->slots[find_slot(d, piece->text, i)];
        uint32_t right = left == 0 ? 0 : d->slots[find_slot(d, piece->text + i, piece->n - i)];
        if (right != 0) {
            good = add_merge(d, (struct merge){piece->score, id, left - 1, right - 1, characters,
                                               piece->characters - characters});
        }
    }
    return good;
}

static int compare(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

/* The higher score, the longer left part, the longer right part, and then by ids. */
static int by_rank(const void *a, const void *b)
{
    const struct merge *x = a;
    const struct merge *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    int order = compare(y->left_length, x->left_length);
    order = order != 0 ? order : compare(y->right_length, x->right_length);
    order = order != 0 ? order : compare(x->whole, y->whole);
    order = order != 0 ? order : compare(x->left, y->left);
    return order != 0 ? order : compare(x->right, y->right);
}

dpe_status dpe_tokenizer_spm_merges(const struct dpe_gguf *gguf,
                                    const struct dpe_gguf_value *tokens,
                                    const struct dpe_gguf_value *types,
                                    const struct dpe_gguf_value *scores, json_t **merges,
                                    struct dpe_error *err)
{
    struct deriver d = {.n = tokens->n};
    json_t *list = json_array();
    bool good = list != NULL && index_pieces(&d, tokens, types, scores);
    for (uint64_t id = 0; good && id < d.n; id++) {
        good = divide(&d, (uint32_t)id);
    }
    if (good && d.n_merges > 0) {
        qsort(d.merges, d.n_merges, sizeof *d.merges, by_rank);
    }
    for (size_t i = 0; good && i < d.n_merges; i++) {
        const struct piece *left = &d.pieces[d.merges[i].left];
        const struct piece *right = &d.pieces[d.merges[i].right];
        good = json_array_append_new(list, json_pack("[s%, s%]", left->text, (size_t)left->n,
                                                     right->text, (size_t)right->n)) == 0;
    }
    free(d.pieces);
    free(d.slots);
    free(d.merges);
    *merges = list;
    return good ? DPE_OK
                : dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for the merges of its tokenizer",
                           gguf->path);
}

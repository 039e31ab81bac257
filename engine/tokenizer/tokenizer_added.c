/* Finding added tokens in a text: leftmost first, the longest of those that begin there. */
#include "engine/base/json_strict.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
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
        qsort(tokens, n, sizeof *tokens, compare);
    }
    for (size_t i = 0; i < n; i++) {
        set->first[(unsigned char)tokens[i]->content.bytes[0]] = true;
        if (i > 0 && compare(tokens + i - 1, tokens + i) == 0) {
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

/* The BPE model and the added tokens of a tokenizer file. */
#include "tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

static const char MODEL[] = "model";
static const char ADDED[] = "added_tokens";

/* What the file holds, before anything is allocated for it. */
struct extent {
    int64_t n_ids;
    size_t n_tokens, n_bytes;
};

static void extend(struct extent *extent, int64_t id, size_t n_bytes)
{
    extent->n_ids = id >= extent->n_ids ? id + 1 : extent->n_ids;
    extent->n_tokens++;
    extent->n_bytes += n_bytes;
}

static dpe_status measure(const json_t *vocab, const json_t *added, struct extent *extent,
                          struct dpe_error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    int64_t id = 0;
    dpe_status status = DPE_OK;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
    {
        status = dpe_member_count(value, "model.vocab", key, DPE_MAX_IDS - 1, &id, err);
        if (status != DPE_OK) {
            return status;
        }
        extend(extent, id, strlen(key));
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const char *content = "";
        size_t n = 0;
        status = dpe_member_string(token, ADDED, "content", true, &content, &n, err);
        if (status == DPE_OK) {
            status = dpe_member_count(json_object_get(token, "id"), ADDED, content, DPE_MAX_IDS - 1,
                                      &id, err);
        }
        if (status != DPE_OK) {
            return status;
        }
        extend(extent, id, n);
    }
    return extent->n_tokens > 0 ? DPE_OK
                                : dpe_fail(err, DPE_BAD_DATA, "model.vocab: it has no tokens");
}

/* Options that would change the tokens and are not supported. */
static dpe_status check_model(const json_t *model, struct dpe_error *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *text = "BPE";
    char quoted[80];
    size_t n = 3;
    dpe_status status = dpe_member_string(model, MODEL, "type", false, &text, &n, err);
    if (status == DPE_OK && strcmp(text, "BPE") != 0) {
        return dpe_fail(err, DPE_BAD_DATA, "model: type \"%s\" is not supported, only BPE is",
                        dpe_quote(quoted, text, n));
    }
    for (size_t i = 0; i < 2 && status == DPE_OK; i++) {
        n = 0;
        status = dpe_member_string(model, MODEL, affixes[i], false, &text, &n, err);
        if (status == DPE_OK && n > 0) {
            return dpe_fail(err, DPE_BAD_DATA, "model: %s is not supported", affixes[i]);
        }
    }
    const json_t *dropout = json_object_get(model, "dropout");
    if (status == DPE_OK && dropout != NULL && !json_is_null(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0.0)) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "model: dropout is not supported: it makes tokens random; set it to null");
    }
    return status;
}

/* A merge in either form: "left right" or ["left", "right"]. */
static dpe_status add_merge(struct dpe_vocab *vocab, const json_t *merge, size_t at, uint32_t *rank,
                            struct dpe_error *err)
{
    const char *text = json_string_value(merge);
    if (text != NULL) {
        size_t n = json_string_length(merge);
        if (n >= 8 && memcmp(text, "#version", 8) == 0) {
            return DPE_OK;
        }
        const char *space = memchr(text, ' ', n);
        size_t left = space == NULL ? 0 : (size_t)(space - text);
        if (space == NULL || memchr(space + 1, ' ', n - left - 1) != NULL) {
            char quoted[80];
            return dpe_fail(err, DPE_BAD_DATA,
                            "model.merges: merge %zu: expected two parts, found \"%s\"", at,
                            dpe_quote(quoted, text, n));
        }
        return dpe_vocab_merge(vocab, text, left, space + 1, n - left - 1, (*rank)++, err);
    }
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right)) {
        return dpe_fail(err, DPE_BAD_DATA, "model.merges: merge %zu: expected two strings", at);
    }
    return dpe_vocab_merge(vocab, json_string_value(left), json_string_length(left),
                           json_string_value(right), json_string_length(right), (*rank)++, err);
}

static dpe_status add_merges(struct dpe_vocab *vocab, const json_t *merges, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    uint32_t rank = 0;
    json_type form = json_array_size(merges) > 0 ? json_typeof(json_array_get(merges, 0)) : 0;
    for (size_t i = 0; i < json_array_size(merges) && status == DPE_OK; i++) {
        const json_t *merge = json_array_get(merges, i);
        if (json_typeof(merge) != form) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "model.merges: merge %zu is written otherwise than those before it "
                            "(strings and pairs mixed)",
                            i);
        }
        status = add_merge(vocab, merge, i, &rank, err);
    }
    return status;
}

static dpe_status load_bpe(struct dpe_vocab *vocab, const json_t *model, const json_t *tokens,
                           const json_t *merges, struct dpe_error *err)
{
    const char *key = NULL, *unk = NULL;
    size_t n_unk = 0;
    json_t *value = NULL;
    dpe_status status = DPE_OK;
    json_object_foreach((json_t *)(uintptr_t)tokens, key, value)
    {
        status =
            dpe_vocab_add(vocab, (int32_t)json_integer_value(value), key, strlen(key), true, err);
        if (status != DPE_OK) {
            return dpe_fail_prefix(err, "model.vocab");
        }
    }
    if ((status = add_merges(vocab, merges, err)) != DPE_OK ||
        (status = dpe_member_string(model, MODEL, "unk_token", false, &unk, &n_unk, err)) !=
            DPE_OK ||
        (status = dpe_member_bool(model, MODEL, "fuse_unk", false, &vocab->fuse_unk, err)) !=
            DPE_OK ||
        (status = dpe_member_bool(model, MODEL, "byte_fallback", false, &vocab->byte_fallback,
                                  err)) != DPE_OK ||
        (status = dpe_member_bool(model, MODEL, "ignore_merges", false, &vocab->ignore_merges,
                                  err)) != DPE_OK) {
        return status;
    }
    dpe_vocab_finish(vocab, unk, n_unk);
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------- added tokens
 */

/* The reference numbers added tokens itself: by the vocabulary if it has the token, else in order
 * behind it. A file that says otherwise means something that it does not get there. */
static dpe_status check_added_id(struct dpe_tokenizer *t, int64_t id, const char *content, size_t n,
                                 int64_t *next, struct dpe_error *err)
{
    char quoted[80];
    int32_t known = dpe_vocab_id(&t->vocab, content, n);
    int64_t expected = known >= 0 ? known : *next;
    if (id != expected) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "added_tokens: \"%s\" has id %lld, but its place in the file makes it %lld",
                        dpe_quote(quoted, content, n), (long long)id, (long long)expected);
    }
    if (known >= 0) {
        return t->added_by_id[id] == NULL
                   ? DPE_OK
                   : dpe_fail(err, DPE_BAD_DATA, "added_tokens: \"%s\" is listed twice",
                              dpe_quote(quoted, content, n));
    }
    (*next)++;
    return dpe_vocab_add(&t->vocab, (int32_t)id, content, n, false, err);
}

static dpe_status add_token(struct dpe_tokenizer *t, const json_t *json, int64_t *next,
                            struct dpe_error *err)
{
    const char *content = json_string_value(json_object_get(json, "content"));
    size_t n = json_string_length(json_object_get(json, "content"));
    int64_t id = (int64_t)json_integer_value(json_object_get(json, "id"));
    if (n == 0) {
        return DPE_OK;
    }
    struct dpe_added_token *token = t->added + t->n_added++;
    token->id = (int32_t)id;
    dpe_status status = DPE_OK;
    if ((status = dpe_member_bool(json, ADDED, "special", true, &token->special, err)) != DPE_OK ||
        (status = dpe_member_bool(json, ADDED, "single_word", true, &token->single_word, err)) !=
            DPE_OK ||
        (status = dpe_member_bool(json, ADDED, "lstrip", true, &token->lstrip, err)) != DPE_OK ||
        (status = dpe_member_bool(json, ADDED, "rstrip", true, &token->rstrip, err)) != DPE_OK ||
        (status = dpe_member_bool(json, ADDED, "normalized", true, &token->normalized, err)) !=
            DPE_OK ||
        (status = check_added_id(t, id, content, n, next, err)) != DPE_OK) {
        return status;
    }
    struct dpe_text buffers[2] = {{0}};
    const char *text = content;
    size_t n_text = n, inserted = 0;
    if (token->normalized) {
        status = dpe_normalize(t, content, n, buffers, &text, &n_text, &inserted, err);
    }
    if (status == DPE_OK) {
        status = dpe_text_append(&token->content, text, n_text, err);
    }
    dpe_text_free(buffers);
    dpe_text_free(buffers + 1);
    t->added_by_id[id] = token;
    return status;
}

/* Sorted sets of those to look for before and after normalising. */
static dpe_status index_added(struct dpe_tokenizer *t, struct dpe_error *err)
{
    for (int normalized = 0; normalized < 2; normalized++) {
        const struct dpe_added_token **tokens = dpe_alloc(t->n_added, sizeof(void *));
        if (tokens == NULL) {
            return dpe_fail(err, DPE_NO_MEMORY, "no memory for %zu added tokens", t->n_added);
        }
        size_t n = 0;
        for (size_t i = 0; i < t->n_added; i++) {
            if (t->added[i].normalized == (normalized == 1)) {
                tokens[n++] = t->added + i;
            }
        }
        dpe_status status =
            dpe_added_set_init(normalized == 1 ? &t->normalized : &t->raw, tokens, n, err);
        if (status != DPE_OK) {
            return status;
        }
    }
    /* The reference asks whether what a token decodes to is the text of a special token. */
    for (size_t i = 0; i < t->n_added; i++) {
        struct dpe_added_token *token = t->added + i;
        int32_t id = dpe_vocab_id(&t->vocab, token->content.bytes, token->content.n);
        token->hide = id >= 0 && t->added_by_id[id] != NULL && t->added_by_id[id]->special;
    }
    return DPE_OK;
}

static dpe_status load_added(struct dpe_tokenizer *t, const json_t *added, int64_t n_model,
                             struct dpe_error *err)
{
    size_t n = json_array_size(added);
    t->added = dpe_alloc_zero(n, sizeof *t->added);
    t->added_by_id = dpe_alloc_zero((size_t)t->vocab.n_ids, sizeof *t->added_by_id);
    if (t->added == NULL || t->added_by_id == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "no memory for %zu added tokens", n);
    }
    int64_t next = n_model;
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        status = add_token(t, json_array_get(added, i), &next, err);
    }
    return status == DPE_OK ? index_added(t, err) : status;
}

dpe_status dpe_load_model(struct dpe_tokenizer *t, const json_t *model, const json_t *added,
                          struct dpe_error *err)
{
    const json_t *tokens = NULL, *merges = NULL;
    struct extent extent = {0};
    dpe_status status = DPE_OK;
    if (added != NULL && !json_is_null(added) && !json_is_array(added)) {
        return dpe_fail(err, DPE_BAD_DATA, "added_tokens: expected a list");
    }
    if ((status = check_model(model, err)) != DPE_OK ||
        (status = dpe_member_object(model, MODEL, "vocab", &tokens, err)) != DPE_OK ||
        (status = dpe_member_list(model, MODEL, "merges", &merges, err)) != DPE_OK ||
        (status = measure(tokens, added, &extent, err)) != DPE_OK ||
        (status = dpe_vocab_init(&t->vocab, extent.n_ids, extent.n_tokens, extent.n_bytes,
                                 json_array_size(merges), err)) != DPE_OK ||
        (status = load_bpe(&t->vocab, model, tokens, merges, err)) != DPE_OK) {
        return status;
    }
    return load_added(t, added, (int64_t)json_object_size(tokens), err);
}

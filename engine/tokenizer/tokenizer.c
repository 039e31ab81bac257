/* Opening and closing a tokenizer: its file, the BPE model and the added tokens in it; what it can
 * return without encoding. */
#include "engine/tokenizer/tokenizer.h"
#include "engine/system/folder.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* Ten times the largest file in use. */
enum { MAX_FILE = 1 << 28 };

/* ----------------------------------------------------------------- the model and added tokens */

static const char ADDED[] = "added_tokens";

const char *dpe_tokenizer_need_string(struct dpe_json_reader *reader, const char *key)
{
    const char *text = dpe_json_string(reader, key, NULL);
    if (text == NULL) {
        dpe_json_expected(reader, key, "a string");
    }
    return text == NULL ? "" : text;
}

bool dpe_tokenizer_need_bool(struct dpe_json_reader *reader, const char *key)
{
    if (dpe_json_member(reader, key) == NULL) {
        dpe_json_expected(reader, key, "true or false");
    }
    return dpe_json_bool(reader, key, false);
}

json_t *dpe_tokenizer_need_list(struct dpe_json_reader *reader, const char *key)
{
    json_t *list = dpe_json_member(reader, key);
    if (!json_is_array(list)) {
        dpe_json_expected(reader, key, "a list");
        return NULL;
    }
    return list;
}

json_t *dpe_tokenizer_need_object(struct dpe_json_reader *reader, const char *key)
{
    json_t *object = dpe_json_object(reader, key);
    if (object == NULL) {
        dpe_json_expected(reader, key, "an object");
    }
    return object;
}

dpe_status dpe_tokenizer_read_id(const json_t *value, const char *where, const char *token,
                                 int32_t *id, struct dpe_error *err)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number >= DPE_MAX_IDS) {
        char quoted[96], found[96];
        DPE_OWNED char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: id of \"%s\": expected an integer from 0 to %d, found %s", where,
                        dpe_json_quote(quoted, token, strlen(token)), DPE_MAX_IDS - 1,
                        text == NULL ? "nothing" : dpe_json_quote(found, text, strlen(text)));
    }
    *id = (int32_t)number;
    return DPE_OK;
}

/* The largest id of the file + 1, before anything is allocated for it. */
static dpe_status count_ids(json_t *vocab, const json_t *added, int64_t *n_ids,
                            struct dpe_error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    int32_t id = 0;
    json_object_foreach(vocab, key, value)
    {
        DPE_TRY(dpe_tokenizer_read_id(value, "model.vocab", key, &id, err));
        *n_ids = dpe_most(*n_ids, (int64_t)id + 1);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        struct dpe_json_reader r = {ADDED, "", json_array_get(added, i), err, DPE_OK};
        const char *content = dpe_tokenizer_need_string(&r, "content");
        DPE_TRY(r.status);
        DPE_TRY(dpe_tokenizer_read_id(json_object_get(r.from, "id"), ADDED, content, &id, err));
        *n_ids = dpe_most(*n_ids, (int64_t)id + 1);
    }
    return *n_ids > 0 ? DPE_OK
                      : dpe_fail(err, DPE_BAD_DATA,
                                 "model.vocab: expected at least one token, found none");
}

/* Options that would change the tokens and are not supported. */
static dpe_status check_model(struct dpe_json_reader *r)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    char quoted[96];
    const char *type = dpe_json_string(r, "type", "BPE");
    if (strcmp(type, "BPE") != 0) {
        return dpe_fail(r->err, DPE_BAD_DATA, "model: type \"%s\" is not supported; expected BPE",
                        dpe_json_quote(quoted, type, strlen(type)));
    }
    for (size_t i = 0; i < 2; i++) {
        if (dpe_json_string(r, affixes[i], "")[0] != '\0') {
            return dpe_fail(r->err, DPE_BAD_DATA, "model: %s is not supported", affixes[i]);
        }
    }
    const json_t *dropout = dpe_json_member(r, "dropout");
    if (dropout != NULL && !(json_is_number(dropout) && json_number_value(dropout) == 0.0)) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "model: dropout is not supported: it makes tokens random; set it to null");
    }
    return r->status;
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
            char quoted[96];
            return dpe_fail(err, DPE_BAD_DATA,
                            "model.merges: merge %zu: expected two parts, found \"%s\"", at,
                            dpe_json_quote(quoted, text, n));
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
    uint32_t rank = 0;
    json_type form = json_array_size(merges) > 0 ? json_typeof(json_array_get(merges, 0)) : 0;
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i);
        if (json_typeof(merge) != form) {
            return dpe_fail(
                err, DPE_BAD_DATA,
                "model.merges: expected either strings or pairs throughout, found merge "
                "%zu in the other form",
                i);
        }
        DPE_TRY(add_merge(vocab, merge, i, &rank, err));
    }
    return DPE_OK;
}

static dpe_status load_bpe(struct dpe_vocab *vocab, struct dpe_json_reader *model, json_t *tokens,
                           const json_t *merges)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(tokens, key, value)
    {
        int32_t id = (int32_t)json_integer_value(value);
        if (dpe_vocab_add(vocab, id, key, strlen(key), true, model->err) != DPE_OK) {
            return dpe_fail_prefix(model->err, "model.vocab");
        }
    }
    DPE_TRY(add_merges(vocab, merges, model->err));
    const char *unk = dpe_json_string(model, "unk_token", NULL);
    vocab->fuse_unk = dpe_json_bool(model, "fuse_unk", false);
    vocab->byte_fallback = dpe_json_bool(model, "byte_fallback", false);
    vocab->ignore_merges = dpe_json_bool(model, "ignore_merges", false);
    dpe_vocab_finish(vocab, unk, unk == NULL ? 0 : strlen(unk));
    return model->status;
}

/* --------------------------------------------------------------------------------- added tokens */

/* The reference numbers added tokens itself: by the vocabulary if it has the token, else in order
 * after it. A file that says otherwise means something that it does not get there. */
static dpe_status check_added_id(struct dpe_tokenizer *t, int64_t id, const char *content, size_t n,
                                 int64_t *next, struct dpe_error *err)
{
    char quoted[96];
    int32_t known = dpe_vocab_id(&t->vocab, content, n);
    int64_t expected = known >= 0 ? known : *next;
    if (id != expected) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "added_tokens: \"%s\" has id %lld, expected %lld by its place in the file",
                        dpe_json_quote(quoted, content, n), (long long)id, (long long)expected);
    }
    if (known >= 0) {
        return t->added_by_id[id] == NULL
                   ? DPE_OK
                   : dpe_fail(err, DPE_BAD_DATA, "added_tokens: \"%s\" is listed twice",
                              dpe_json_quote(quoted, content, n));
    }
    (*next)++;
    return dpe_vocab_add(&t->vocab, (int32_t)id, content, n, false, err);
}

static void free_buffers(struct dpe_text (*buffers)[2])
{
    dpe_text_free(*buffers);
    dpe_text_free(*buffers + 1);
}

static dpe_status add_token(struct dpe_tokenizer *t, json_t *json, int64_t *next,
                            struct dpe_error *err)
{
    struct dpe_json_reader r = {ADDED, "", json, err, DPE_OK};
    const char *content = dpe_tokenizer_need_string(&r, "content");
    size_t n = strlen(content);
    if (n == 0) {
        return r.status;
    }
    struct dpe_added_token *token = t->added + t->n_added++;
    int64_t id = json_integer_value(json_object_get(json, "id"));
    token->id = (int32_t)id;
    token->special = dpe_tokenizer_need_bool(&r, "special");
    token->single_word = dpe_tokenizer_need_bool(&r, "single_word");
    token->lstrip = dpe_tokenizer_need_bool(&r, "lstrip");
    token->rstrip = dpe_tokenizer_need_bool(&r, "rstrip");
    token->normalized = dpe_tokenizer_need_bool(&r, "normalized");
    DPE_TRY(r.status);
    DPE_TRY(check_added_id(t, id, content, n, next, err));
    DPE_SCOPED(free_buffers) struct dpe_text buffers[2] = {{0}};
    const char *text = content;
    size_t n_text = n, inserted = 0;
    if (token->normalized) {
        DPE_TRY(dpe_normalize(t, content, n, buffers, &text, &n_text, &inserted, NULL, err));
    }
    if (n_text == 0) {
        char quoted[96];
        return dpe_fail(err, DPE_BAD_DATA, "added_tokens: \"%s\" becomes empty when normalised",
                        dpe_json_quote(quoted, content, n));
    }
    t->added_by_id[id] = token;
    return dpe_text_append(&token->content, text, n_text, err);
}

/* Sorted sets of those to look for before and after normalising. */
static dpe_status index_added(struct dpe_tokenizer *t, struct dpe_error *err)
{
    for (int normalized = 0; normalized < 2; normalized++) {
        const struct dpe_added_token **tokens = NULL;
        DPE_TRY(DPE_NEW(&tokens, t->n_added, err, "no memory for %zu added tokens", t->n_added));
        size_t n = 0;
        for (size_t i = 0; i < t->n_added; i++) {
            if (t->added[i].normalized == (normalized == 1)) {
                tokens[n++] = t->added + i;
            }
        }
        DPE_TRY(dpe_added_set_init(normalized == 1 ? &t->normalized : &t->raw, tokens, n, err));
    }
    /* The reference checks whether what a token decodes to is the text of a special token. */
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
    DPE_TRY(DPE_NEW(&t->added, n, err, "no memory for %zu added tokens", n));
    DPE_TRY(
        DPE_NEW(&t->added_by_id, (size_t)t->vocab.n_ids, err, "no memory for %zu added tokens", n));
    int64_t next = n_model;
    for (size_t i = 0; i < n; i++) {
        DPE_TRY(add_token(t, json_array_get(added, i), &next, err));
    }
    return index_added(t, err);
}

/* model and added_tokens; after normaliser and pre-tokenizer. */
static dpe_status load_model(struct dpe_tokenizer *t, json_t *model, json_t *added,
                             struct dpe_error *err)
{
    struct dpe_json_reader r = {"model", "", model, err, DPE_OK};
    int64_t n_ids = 0;
    if (added != NULL && !json_is_null(added) && !json_is_array(added)) {
        return dpe_fail(err, DPE_BAD_DATA, "added_tokens: expected a list");
    }
    DPE_TRY(check_model(&r));
    json_t *tokens = dpe_tokenizer_need_object(&r, "vocab");
    const json_t *merges = dpe_tokenizer_need_list(&r, "merges");
    DPE_TRY(r.status);
    DPE_TRY(count_ids(tokens, added, &n_ids, err));
    DPE_TRY(dpe_vocab_init(&t->vocab, n_ids, json_array_size(merges), err));
    DPE_TRY(load_bpe(&t->vocab, &r, tokens, merges));
    return load_added(t, added, (int64_t)json_object_size(tokens), err);
}

/* ----------------------------------------------------------------------------- the whole file */

static dpe_status load_parts(struct dpe_tokenizer *t, const json_t *root, struct dpe_error *err)
{
    json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) {
        return dpe_fail(err, DPE_BAD_DATA, "expected an object \"model\", found none");
    }
    /* ByteLevel among the pre-tokenizers decides how the vocabulary is read, normalisers how its
     * added tokens are. */
    t->growth = 1.0;
    DPE_TRY(dpe_load_component(t, root, "normalizer", err));
    DPE_TRY(dpe_load_component(t, root, "pre_tokenizer", err));
    DPE_TRY(load_model(t, model, json_object_get(root, "added_tokens"), err));
    t->has_decoder = json_is_object(json_object_get(root, "decoder"));
    t->growth = 1.0;
    DPE_TRY(dpe_load_component(t, root, "decoder", err));
    return dpe_load_component(t, root, "post_processor", err);
}

/* From tokenizer.json, or the metadata of a GGUF file. */
static dpe_status load(struct dpe_tokenizer *t, const char *path, bool gguf, struct dpe_error *err)
{
    DPE_SCOPED(json_decrefp) json_t *root = NULL;
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    DPE_TRY(gguf ? dpe_tokenizer_of_gguf(path, &root, t->fingerprint, err)
                 : dpe_read_file(path, MAX_FILE, &bytes, &n, err));
    dpe_status status = gguf ? DPE_OK : dpe_sha256_bytes(bytes, n, t->fingerprint, err);
    if (status == DPE_OK && !gguf) {
        status = dpe_json_parse("content", bytes, n, &root, err);
    }
    if (status == DPE_OK && !gguf) {
        DPE_TRY(dpe_tokenizer_beside(path, root, t->fingerprint, err));
    }
    if (status == DPE_OK) {
        status = load_parts(t, root, err);
    }
    if (status != DPE_OK) {
        dpe_fail_prefix(err, gguf ? "%s: its tokenizer" : "%s", path);
    }
    return status;
}

dpe_status dpe_tokenizer_open(const char *path, struct dpe_tokenizer **tokenizer,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_tokenizer_close_scoped) struct dpe_tokenizer *made = NULL;
    bool folder = dpe_is_folder(path);
    DPE_TRY(folder ? DPE_OK : dpe_folder_explain(path, err));
    DPE_TRY(DPE_NEW(&made, 1, err, "%s: no memory", path));
    dpe_text_put(&made->path, folder ? "%s/tokenizer.json" : "%s", path);
    DPE_TRY(dpe_text_done(&made->path, err));
    const dpe_status status = load(made, made->path.bytes, dpe_folder_is_gguf(path), err);
    if (status == DPE_NO_INPUT) {
        dpe_folder_explain(path, err);
    }
    DPE_TRY(status);
    *tokenizer = made;
    made = NULL;
    return DPE_OK;
}

void dpe_tokenizer_close(struct dpe_tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    dpe_text_free(&t->path);
    for (size_t i = 0; i < t->n_added; i++) {
        dpe_text_free(&t->added[i].content);
    }
    free(t->added);
    free(t->added_by_id);
    free(t->raw.tokens);
    free(t->normalized.tokens);
    for (size_t i = 0; i < DPE_MAX_STEPS; i++) {
        dpe_text_free(&t->normalizers[i].pattern);
        dpe_text_free(&t->normalizers[i].content);
        dpe_text_free(&t->decoders[i].pattern);
        dpe_text_free(&t->decoders[i].content);
        dpe_text_free(&t->steps[i].spaces.pattern);
        dpe_text_free(&t->steps[i].spaces.content);
        dpe_pattern_free(&t->steps[i].pattern);
    }
    dpe_tokens_free(&t->prefix);
    dpe_tokens_free(&t->suffix);
    dpe_vocab_free(&t->vocab);
    free(t);
}

int64_t dpe_tokenizer_size(const struct dpe_tokenizer *t)
{
    return t->vocab.n_ids;
}

int dpe_tokenizer_prefix_size(const struct dpe_tokenizer *t)
{
    return (int)t->prefix.n;
}

const char *dpe_tokenizer_path(const struct dpe_tokenizer *t)
{
    return t->path.bytes;
}

const char *dpe_tokenizer_fingerprint(const struct dpe_tokenizer *t)
{
    return t->fingerprint;
}

/* What stands beside tokenizer.json and decides tokens too, as transformers 5.24 reads it: tokens
 * of tokenizer_config.json, special_tokens_map.json and added_tokens.json are added to those of the
 * file, and Llama's class decides the space before a text where its settings name it. */
#include "engine/system/folder.h"
#include "engine/text/json.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* Where a token is named. */
enum origin {
    FROM_DECODER, /* added_tokens_decoder: its flags hold */
    FROM_FILE,    /* added_tokens.json: a text that is not special unless it is named elsewhere */
    NAMED,        /* eos_token and the like: special */
    EXTRA,        /* extra_special_tokens, additional_special_tokens: special */
    SPECIFIC,     /* image_token and the like: special where nothing else has it */
};

struct beside {
    json_t *root;
    json_t *list;  /* its added_tokens */
    json_t *known; /* content: the entry of `list` */
    json_int_t next;
    bool changed, failed;
};

static void set(struct beside *b, json_t *object, const char *key, json_t *value)
{
    b->failed = json_object_set_new(object, key, value) != 0 || b->failed;
}

static bool has_flag(const json_t *token, const char *name)
{
    return json_is_true(json_object_get(token, name));
}

/* The entry of a token of this content; a new one has the id that the reference gives it. */
static json_t *entry_of(struct beside *b, const char *content, bool *made)
{
    json_t *entry = json_object_get(b->known, content);
    *made = entry == NULL;
    if (*made) {
        const json_t *vocab = json_object_get(json_object_get(b->root, "model"), "vocab");
        json_t *id = json_object_get(vocab, content);
        entry = json_pack("{s:s}", "content", content);
        set(b, entry, "id", id != NULL ? json_incref(id) : json_integer(b->next++));
        b->failed = json_array_append(b->list, entry) != 0 || b->failed;
        set(b, b->known, content, entry);
    }
    return entry;
}

static void put(struct beside *b, const json_t *token, enum origin origin)
{
    /* Marks of an entry: of added_tokens.json; first named by a setting, of which the last one
     * holds. */
    static const char plain[] = "plain", late[] = "late";
    const char *content =
        json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
    bool made = false;
    if (content == NULL || content[0] == '\0') {
        return;
    }
    json_t *entry = entry_of(b, content, &made);
    const json_t *normalized = json_object_get(token, "normalized");
    bool special = json_is_string(token) || has_flag(token, "special");
    bool was_plain = json_object_get(entry, plain) != NULL;
    if (made || origin == FROM_DECODER || json_object_get(entry, late) != NULL) {
        set(b, entry, "special", json_boolean(special || origin == NAMED));
        set(b, entry, "single_word", json_boolean(has_flag(token, "single_word")));
        set(b, entry, "lstrip", json_boolean(has_flag(token, "lstrip")));
        set(b, entry, "rstrip", json_boolean(has_flag(token, "rstrip")));
        set(b, entry, "normalized",
            json_boolean(normalized != NULL ? json_is_true(normalized) : !special));
        if (origin != FROM_DECODER) {
            set(b, entry, origin == FROM_FILE ? plain : late, json_true());
        }
    } else if (origin == NAMED || (origin == EXTRA && was_plain)) {
        made = !has_flag(entry, "special");
        set(b, entry, "special", json_true());
        if (was_plain) {
            set(b, entry, "normalized", json_false());
        }
    }
    b->changed = b->changed || made || origin == FROM_DECODER;
}

static int by_id(const void *a, const void *b)
{
    json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "id"));
    json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "id"));
    return (x > y) - (x < y);
}

/* The tokens of an object in the order of their ids: ids are its keys, or (added_tokens.json) its
 * values. */
static void put_by_id(struct beside *b, json_t *object, enum origin origin)
{
    size_t n = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_t **tokens = dpe_alloc(json_object_size(object), sizeof *tokens);
    b->failed = b->failed || tokens == NULL;
    json_object_foreach(object, key, value)
    {
        if (tokens != NULL) {
            tokens[n] = origin == FROM_FILE ? json_pack("{s:s}", "content", key) : json_copy(value);
            json_t *id = origin == FROM_FILE ? json_incref(value) : json_integer(atoll(key));
            set(b, tokens[n++], "id", id);
        }
    }
    if (n > 0) {
        qsort(tokens, n, sizeof(json_t *), by_id);
    }
    for (size_t i = 0; i < n; i++) {
        put(b, tokens[i], origin);
        json_decref(tokens[i]);
    }
    free(tokens);
}

static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
enum { N_NAMES = sizeof names / sizeof names[0] };

/* Members whose name ends as a token's does and is none of those that every model has; with
 * `whole`, all members. What `over` has of that name takes its place. */
static void put_specific(struct beside *b, json_t *from, const json_t *over, bool whole)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(from, key, value)
    {
        size_t n = strlen(key), i = 0;
        while (i < N_NAMES && strcmp(key, names[i]) != 0) {
            i++;
        }
        if (whole || (i == N_NAMES && n > 6 && strcmp(key + n - 6, "_token") == 0)) {
            const json_t *own = json_object_get(over, key);
            put(b, own != NULL ? own : value, SPECIFIC);
        }
    }
}

static void put_list(struct beside *b, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        put(b, json_array_get(list, i), EXTRA);
    }
}

/* `map` and `file` are what is read where `config` has no added_tokens_decoder. */
static void put_tokens(struct beside *b, json_t *config, json_t *map, json_t *file)
{
    static const char extra[] = "extra_special_tokens", older[] = "additional_special_tokens";
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    map = decoder == NULL ? map : NULL;
    put_by_id(b, decoder != NULL ? decoder : file, decoder != NULL ? FROM_DECODER : FROM_FILE);
    for (size_t i = 0; i < N_NAMES; i++) {
        const json_t *named = json_object_get(map, names[i]);
        put(b, named != NULL ? named : json_object_get(config, names[i]), NAMED);
    }
    put_specific(b, map, config, false);
    put_specific(b, config, NULL, false);
    json_t *own = json_object_get(config, extra), *mapped = json_object_get(map, extra);
    json_t *more = dpe_json_is_nothing(own) ? json_object_get(config, older) : own;
    bool listed = json_is_array(own) || json_is_array(more) || json_is_array(mapped);
    put_specific(b, json_is_object(more) ? more : NULL, NULL, true);
    put_specific(b, json_is_object(mapped) ? mapped : NULL, NULL, true);
    put_list(b, more);
    put_list(b, listed ? mapped : json_object_get(map, older));
}

static bool is_byte_level(const json_t *component)
{
    const json_t *parts = json_object_get(component, "pretokenizers");
    const char *type = json_string_value(json_object_get(component, "type"));
    bool is = type != NULL && strcmp(type, "ByteLevel") == 0;
    for (size_t i = 0; i < json_array_size(parts) && !is; i++) {
        is = is_byte_level(json_array_get(parts, i));
    }
    return is;
}

/* The class of Llama's tokenizers with a setting of its own for the space before a text. */
static void put_prefix(struct beside *b, const json_t *config)
{
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    const json_t *prefix = json_object_get(config, "add_prefix_space");
    bool llama = class != NULL &&
                 (strcmp(class, "LlamaTokenizer") == 0 || strcmp(class, "LlamaTokenizerFast") == 0);
    if (!llama || !json_is_boolean(prefix) ||
        is_byte_level(json_object_get(b->root, "pre_tokenizer"))) {
        return;
    }
    const char *scheme = json_is_false(prefix)        ? "never"
                         : has_flag(config, "legacy") ? "always"
                                                      : "first";
    set(b, b->root, "normalizer", json_null());
    set(b, b->root, "pre_tokenizer",
        json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", "\xe2\x96\x81",
                  "prepend_scheme", scheme, "split", 0));
    set(b, b->root, "decoder", dpe_sentence_piece_decoder(json_is_true(prefix)));
    b->changed = true;
}

static dpe_status merge(struct beside *b, json_t *config, json_t *map, json_t *file,
                        char fingerprint[65], struct dpe_error *err)
{
    size_t i = 0;
    json_t *token = NULL;
    json_t *vocab = json_object_get(json_object_get(b->root, "model"), "vocab");
    b->list = json_object_get(b->root, "added_tokens");
    b->next = (json_int_t)json_object_size(vocab);
    json_array_foreach(b->list, i, token)
    {
        const char *content = json_string_value(json_object_get(token, "content"));
        b->next += content != NULL && content[0] != '\0' && json_object_get(vocab, content) == NULL;
        json_object_set(b->known, content != NULL ? content : "", token);
    }
    put_tokens(b, config, map, file);
    put_prefix(b, config);
    if (!b->changed) {
        return b->failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory") : DPE_OK;
    }
    struct dpe_sha256 *hash = dpe_sha256_new();
    DPE_OWNED char *tokens = json_dumps(b->list, JSON_COMPACT | JSON_SORT_KEYS);
    DPE_OWNED char *steps =
        json_dumps(json_object_get(b->root, "pre_tokenizer"), JSON_COMPACT | JSON_ENCODE_ANY);
    dpe_sha256_text(hash, fingerprint);
    dpe_sha256_text(hash, tokens != NULL ? tokens : "");
    dpe_sha256_text(hash, steps != NULL ? steps : "");
    DPE_TRY(dpe_sha256_finish(hash, fingerprint, err));
    return b->failed || tokens == NULL || steps == NULL
               ? dpe_fail(err, DPE_NO_MEMORY, "out of memory")
               : DPE_OK;
}

dpe_status dpe_tokenizer_beside(const char *path, json_t *root, char fingerprint[65],
                                struct dpe_error *err)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    json_t *read[3] = {NULL};
    struct beside b = {.root = root, .known = json_object()};
    dpe_status status = DPE_OK;
    if (dpe_json_is_nothing(json_object_get(root, "added_tokens"))) {
        set(&b, root, "added_tokens", json_array());
    }
    for (size_t i = 0; i < 3 && status == DPE_OK; i++) {
        DPE_OWNED char *name = dpe_folder_beside(path, files[i]);
        status = DPE_MADE(name, err, "out of memory");
        status = status == DPE_OK ? dpe_json_read(name, &read[i], err) : status;
    }
    if (status == DPE_OK) {
        status = merge(&b, read[0], read[1], read[2], fingerprint, err);
    }
    for (size_t i = 0; i < 3; i++) {
        json_decref(read[i]);
    }
    json_decref(b.known);
    return status;
}

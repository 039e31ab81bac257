/* The tokenizer of a GGUF file as the JSON that tokenizer.json of the same model has: one loader
 * decides what it means. */
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAIL        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CONTRACTED  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER     \
    "*" end
#define CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The byte-level kinds: what cuts a text before merging. */
static const struct kind {
    const char *names;      /* of tokenizer.ggml.pre, each between spaces */
    const char *expression; /* NULL: GPT-2's */
    bool digits;            /* each digit alone */
    bool composed;          /* NFC first */
    bool ignore_merges, bos;
} kinds[] = {
    {" gpt-2 phi-2 mpt olmo jais gigachat exaone4 trillion granite-docling ", NULL, false, false,
     false, false},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ", NULL, true, false,
     false, false},
    {" llama3 llama-v3 llama-bpe falcon3 pixtral midm-2.0 lfm2 ", CONTRACTED "|\\p{N}{1,3}" TAIL,
     false, false, true, true},
    {" dbrx smaug-bpe glm4 chatglm-bpe ", CONTRACTED "|\\p{N}{1,3}" TAIL, false, false, false,
     false},
    {" qwen2 deepseek-r1-qwen hunyuan megrez stablelm2 ", CONTRACTED "|\\p{N}" TAIL, false, true,
     false, false},
    {" gpt-4o llama4 kanana2 ", CASED(CONTRACTION) "|\\p{N}{1,3}" CASED_TAIL, false, false, false,
     false},
    {" tekken ", CASED("") "|\\p{N}" CASED_TAIL, false, false, true, true},
};

/* The format's numbers of kinds of tokens. */
enum {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

struct maker {
    struct dpe_json_reader in;
    const struct dpe_gguf *file;
    json_t *tokens; /* [n] */
    uint64_t n;
    const struct dpe_gguf_value *types; /* NULL: all normal */
    json_t *out;
};

static int64_t type_of(const struct maker *maker, uint64_t id)
{
    return maker->types != NULL ? (int64_t)dpe_gguf_number_at(maker->types, id) : TOKEN_NORMAL;
}

/* The text of a token as a key. An empty one is named, as llama.cpp does, in `room`. */
static const char *token_text(const json_t *token, uint64_t id, char room[32])
{
    const char *text = json_string_value(token);
    snprintf(room, 32, "[EMPTY_%llu]", (unsigned long long)id);
    return text != NULL && text[0] != '\0' ? text : room;
}

static json_t *added_token(uint64_t id, const char *text, bool special)
{
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", text,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special",
                     special);
}

/* How many ids belong to the model: what is not text comes behind in many files, and unused ids
 * that only fill the embedding come last. Pieces of the user's take part in SentencePiece's merges.
 */
static uint64_t model_size(const struct maker *maker, bool merged, uint64_t *n)
{
    while (*n > 0 && type_of(maker, *n - 1) == TOKEN_UNUSED) {
        (*n)--;
    }
    uint64_t model = *n;
    while (model > 0 && type_of(maker, model - 1) != TOKEN_NORMAL &&
           type_of(maker, model - 1) != TOKEN_BYTE && type_of(maker, model - 1) != TOKEN_UNUSED &&
           !(merged && type_of(maker, model - 1) == TOKEN_USER_DEFINED)) {
        model--;
    }
    return model;
}

static void put_tokens(struct maker *maker, bool merged, json_t *model)
{
    json_t *vocab = json_object();
    json_t *added = json_array();
    uint64_t n = maker->n;
    uint64_t size = model_size(maker, merged, &n);
    for (uint64_t id = 0; id < n && maker->in.status == DPE_OK; id++) {
        int64_t type = type_of(maker, id);
        char room[32];
        char quoted[96];
        const json_t *token = json_array_get(maker->tokens, id);
        const json_t *text = json_is_array(token) ? json_array_get(token, 0) : token;
        const char *key = token_text(token, id, room);
        const size_t n_text = json_string_length(text);
        const bool good = text == token && strlen(json_string_value(token)) == n_text;
        if (!good || (id < size && json_object_get(vocab, key) != NULL)) {
            maker->in.status = dpe_fail(maker->in.err, DPE_BAD_DATA,
                                        "%s: tokenizer.ggml.tokens: token %llu \"%s\": %s",
                                        maker->in.file, (unsigned long long)id,
                                        dpe_json_quote(quoted, json_string_value(text), n_text),
                                        good ? "occurs twice" : "expected UTF-8 without NUL");
        } else if (id < size) {
            json_object_set_new(vocab, key, json_integer((json_int_t)id));
        }
        bool special = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
        if (special || type == TOKEN_USER_DEFINED) {
            json_array_append_new(added, added_token(id, key, special));
        }
    }
    json_object_set_new(model, "vocab", vocab);
    json_object_set_new(maker->out, "added_tokens", added);
}

static void put_merges(struct maker *maker, json_t *model)
{
    static const char key[] = "tokenizer.ggml.merges";
    json_t *merges = dpe_gguf_strings(maker->file, &maker->in, key, UINT64_MAX);
    if (merges == NULL) {
        dpe_json_expected(&maker->in, key, "an array of strings");
    }
    for (size_t i = 0; i < json_array_size(merges); i++) {
        if (!json_is_string(json_array_get(merges, i))) {
            dpe_json_expected(&maker->in, key, "strings of UTF-8");
        }
    }
    json_object_set_new(model, "merges", merges);
}

/* ----------------------------------------------------------------------------------- byte level */

static const struct kind *find_kind(struct maker *maker)
{
    static const char key[] = "tokenizer.ggml.pre";
    const char *name = dpe_json_string(&maker->in, key, "");
    const size_t n = strlen(name);
    char between[64];
    snprintf(between, sizeof between, " %s ", n < 60 ? name : "");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (n > 0 && strstr(kinds[i].names, between) != NULL) {
            return &kinds[i];
        }
    }
    dpe_json_expected(&maker->in, key,
                      "a known way to cut texts (gpt-2, smollm, llama-bpe, dbrx, qwen2, gpt-4o, "
                      "tekken, …), which decides the tokens");
    return NULL;
}

static json_t *byte_level(bool expression)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 0, "use_regex", expression);
}

static void make_byte_level(struct maker *maker, json_t *model, bool *bos)
{
    const struct kind *kind = find_kind(maker);
    if (kind == NULL) {
        return;
    }
    json_t *steps = json_array();
    *bos = kind->bos;
    if (kind->expression != NULL) {
        json_array_append_new(steps, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split",
                                               "pattern", "Regex", kind->expression, "behavior",
                                               "Isolated", "invert", 0));
    } else if (kind->digits) {
        json_array_append_new(steps,
                              json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    }
    json_array_append_new(steps, byte_level(kind->expression == NULL));
    json_object_set_new(maker->out, "pre_tokenizer",
                        json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps));
    if (kind->composed) {
        json_object_set_new(maker->out, "normalizer", json_pack("{s:s}", "type", "NFC"));
    }
    json_object_set_new(maker->out, "decoder", byte_level(true));
    json_object_set_new(model, "ignore_merges", json_boolean(kind->ignore_merges));
    put_tokens(maker, false, model);
    put_merges(maker, model);
}

/* -------------------------------------------------------------------------------- SentencePiece */

/* The merges, which a file leaves to be derived from the scores. */

/* A token divided into two others. */
struct merge {
    const char *text; /* of the whole, n bytes */
    size_t n_left, n;
    float score;
    int64_t whole, left, right;        /* ids */
    int64_t left_length, right_length; /* characters */
};

struct deriver {
    const struct maker *maker;
    const json_t *vocab; /* the ids of all texts */
    struct merge *merges;
    size_t n;
};

static bool begins_character(char byte)
{
    return ((unsigned char)byte & 0xc0U) != 0x80U;
}

/* The id of a token of this text that takes part in merges, −1: there is none. */
static int64_t find_piece(const struct deriver *d, const char *text, size_t n)
{
    const json_t *id = json_object_getn(d->vocab, text, n);
    const int64_t found = id != NULL ? json_integer_value(id) : -1;
    const int64_t type = found >= 0 ? type_of(d->maker, (uint64_t)found) : TOKEN_UNUSED;
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED ? found : -1;
}

/* All ways to divide a token into two. */
static bool divide(struct deriver *d, struct merge merge)
{
    for (size_t i = 0; i < merge.n; i++) {
        merge.right_length += begins_character(merge.text[i]);
    }
    for (merge.n_left = 1; merge.n_left < merge.n; merge.n_left++) {
        const char *right = merge.text + merge.n_left;
        merge.left_length += begins_character(right[-1]);
        merge.right_length -= begins_character(right[-1]);
        merge.left = begins_character(*right) ? find_piece(d, merge.text, merge.n_left) : -1;
        merge.right = merge.left < 0 ? -1 : find_piece(d, right, merge.n - merge.n_left);
        if (merge.right >= 0) {
            if (!dpe_make_room(&d->merges, d->n, sizeof *d->merges)) {
                return false;
            }
            d->merges[d->n++] = merge;
        }
    }
    return true;
}

/* The higher score, the longer left part, the longer right part, and then by ids. Of one whole all
 * left parts differ. */
static int by_rank(const void *a, const void *b)
{
    const struct merge *x = a;
    const struct merge *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    int64_t order = y->left_length - x->left_length;
    order = order != 0 ? order : y->right_length - x->right_length;
    order = order != 0 ? order : x->whole - y->whole;
    return (order > 0) - (order < 0);
}

/* The merges, [["left", "right"], …], best first: every way to divide a token into two others, by
 * the score of the whole, then the longer left part, as transformers derives them. */
static void derive_merges(struct maker *maker, const struct dpe_gguf_value *scores, json_t *model)
{
    struct deriver d = {.maker = maker, .vocab = json_object_get(model, "vocab")};
    json_t *list = json_array();
    bool good = list != NULL;
    for (uint64_t id = 0; good && id < maker->n; id++) {
        const json_t *token = json_array_get(maker->tokens, id);
        struct merge merge = {.text = json_string_value(token),
                              .n = json_string_length(token),
                              .whole = (int64_t)id,
                              .score = (float)dpe_gguf_number_at(scores, id)};
        const int64_t type = type_of(maker, id);
        if (merge.n <= UINT16_MAX && (type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED)) {
            good = divide(&d, merge);
        }
    }
    if (good && d.n > 0) {
        qsort(d.merges, d.n, sizeof *d.merges, by_rank);
    }
    for (const struct merge *m = d.merges; good && m < d.merges + d.n; m++) {
        good = json_array_append_new(list, json_pack("[s%, s%]", m->text, m->n_left,
                                                     m->text + m->n_left, m->n - m->n_left)) == 0;
    }
    free(d.merges);
    json_object_set_new(model, "merges", list);
    if (!good) {
        maker->in.status =
            dpe_fail(maker->in.err, DPE_NO_MEMORY, "%s: no memory for the merges of its tokenizer",
                     maker->in.file);
    }
}

static const char mark[] = "\xe2\x96\x81";

static json_t *replace(const char *what, const char *by)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", what, "content",
                     by);
}

json_t *dpe_sentence_piece_decoder(bool prefix)
{
    json_t *parts =
        json_pack("[o, {s:s}, {s:s}]", replace(mark, " "), "type", "ByteFallback", "type", "Fuse");
    if (prefix) {
        json_array_append_new(parts, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content",
                                               " ", "start", 1, "stop", 0));
    }
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", parts);
}

static void put_unknown(struct maker *maker, json_t *model)
{
    static const char key[] = "tokenizer.ggml.unknown_token_id";
    uint64_t id = (uint64_t)dpe_gguf_whole(&maker->in, key, 0);
    if (maker->in.status == DPE_OK && id >= maker->n) {
        dpe_json_expected(&maker->in, key, "the id of a token");
    }
    json_t *unknown = json_array_get(maker->tokens, id);
    json_object_set(model, "unk_token", json_is_string(unknown) ? unknown : NULL);
}

/* SentencePiece, whose merges follow from scores, or are in the file (`merged`, Gemma 4). */
static void make_sentence_piece(struct maker *maker, bool merged, json_t *model)
{
    bool prefix = dpe_json_bool(&maker->in, "tokenizer.ggml.add_space_prefix", !merged);
    const struct dpe_gguf_value *scores =
        dpe_gguf_array(maker->file, &maker->in, "tokenizer.ggml.scores", DPE_GGUF_F32);
    json_t *before = json_array();
    if (!merged && (scores == NULL || scores->n != maker->n)) {
        dpe_json_expected(&maker->in, "tokenizer.ggml.scores", "a number for each token");
    }
    if (prefix) {
        json_array_append_new(before, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", mark));
    }
    json_array_append_new(before, replace(" ", mark));
    json_object_set_new(maker->out, "normalizer",
                        json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", before));
    json_object_set_new(maker->out, "decoder", dpe_sentence_piece_decoder(prefix));
    json_object_set_new(model, "byte_fallback", json_true());
    json_object_set_new(model, "fuse_unk", json_true());
    put_unknown(maker, model);
    put_tokens(maker, true, model);
    if (merged) {
        put_merges(maker, model);
    } else if (maker->in.status == DPE_OK) {
        derive_merges(maker, scores, model);
    }
}

/* ----------------------------------------------------------------------------------------- both */

/* A token that is put before or behind each text, as a part of a template. */
static void put_end(struct maker *maker, const char *key, json_t *single, json_t *specials)
{
    int64_t id = dpe_gguf_token_id(maker->file, &maker->in, key);
    char name[32];
    if (maker->in.status == DPE_OK && (id < 0 || (uint64_t)id >= maker->n)) {
        dpe_json_expected(&maker->in, key, "the id of a token, which each text gets");
    }
    snprintf(name, sizeof name, "token %lld", (long long)id);
    json_array_append_new(single,
                          json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", name, "type_id", 0));
    json_object_set_new(
        specials, name,
        json_pack("{s:s, s:[I], s:[s]}", "id", name, "ids", (json_int_t)id, "tokens", name));
}

static void put_ends(struct maker *maker, bool bos)
{
    json_t *single = json_array();
    json_t *specials = json_object();
    if (dpe_json_bool(&maker->in, "tokenizer.ggml.add_bos_token", bos)) {
        put_end(maker, "tokenizer.ggml.bos_token_id", single, specials);
    }
    json_array_append_new(single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
    if (dpe_json_bool(&maker->in, "tokenizer.ggml.add_eos_token", false)) {
        put_end(maker, "tokenizer.ggml.eos_token_id", single, specials);
    }
    json_object_set_new(maker->out, "post_processor",
                        json_pack("{s:s, s:o, s:[], s:o}", "type", "TemplateProcessing", "single",
                                  single, "pair", "special_tokens", specials));
}

static void make(struct maker *maker)
{
    static const char key[] = "tokenizer.ggml.model";
    static const char token_types[] = "tokenizer.ggml.token_type";
    maker->tokens = dpe_gguf_strings(maker->file, &maker->in, "tokenizer.ggml.tokens", DPE_MAX_IDS);
    maker->n = json_array_size(maker->tokens);
    maker->types = dpe_gguf_array(maker->file, &maker->in, token_types, DPE_GGUF_I32);
    if (maker->n < 1) {
        dpe_json_expected(&maker->in, "tokenizer.ggml.tokens", "1 to 4194304 tokens");
    } else if (maker->types != NULL && maker->types->n != maker->n) {
        dpe_json_expected(&maker->in, token_types, "a number for each token");
    }
    json_t *model = json_pack("{s:s}", "type", "BPE");
    bool merged = dpe_gguf_text_is(&maker->in, key, "gemma4");
    bool spm = merged || dpe_gguf_text_is(&maker->in, key, "llama");
    bool bos = spm;
    json_object_set_new(maker->out, "model", model);
    if (maker->in.status != DPE_OK) {
        return;
    }
    if (spm) {
        make_sentence_piece(maker, merged, model);
    } else if (dpe_gguf_text_is(&maker->in, key, "gpt2")) {
        make_byte_level(maker, model, &bos);
    } else {
        dpe_json_expected(&maker->in, key,
                          "gpt2 (byte-level BPE), llama (SentencePiece) or gemma4");
    }
    if (maker->in.status == DPE_OK) {
        put_ends(maker, bos);
    }
}

/* Values stand sorted by key, so the order in the file does not matter. */
static dpe_status hash_metadata(const struct dpe_gguf *gguf, char fingerprint[65],
                                struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    for (size_t i = 0; i < gguf->n_values; i++) {
        const struct dpe_gguf_value *value = &gguf->values[i];
        if (strncmp(value->key, "tokenizer.ggml.", 15) == 0) {
            dpe_sha256_text(hash, value->key);
            dpe_sha256_add(hash, value->bytes, value->n_bytes);
        }
    }
    return dpe_sha256_finish(hash, fingerprint, err);
}

dpe_status dpe_tokenizer_of_gguf(const char *path, json_t **root, char fingerprint[65],
                                 struct dpe_error *err)
{
    DPE_SCOPED(dpe_gguf_close_scoped) struct dpe_gguf *gguf = NULL;
    *root = NULL;
    DPE_TRY(dpe_gguf_open(path, &gguf, err));
    DPE_TRY(hash_metadata(gguf, fingerprint, err));
    struct maker maker = {.in = dpe_gguf_reader(gguf, err), .file = gguf, .out = json_object()};
    make(&maker);
    json_decref(maker.tokens);
    *root = maker.out;
    return maker.in.status;
}

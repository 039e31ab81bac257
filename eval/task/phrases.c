/* Template files: read, checked, filled. */
#include "eval/task/prompt.h"

#include <string.h>

#include "engine/text/json.h"

static const uint64_t max_file_bytes = (uint64_t)1 << 20;
enum { MAX_WORDS = 10000, LONGEST_WORD = 64 };

/* Whether a name of n bytes is one of the space-separated names. */
static bool listed(const char *names, const char *name, size_t n)
{
    while (*names != '\0') {
        size_t size = strcspn(names, " ");
        if (size == n && memcmp(names, name, n) == 0) {
            return true;
        }
        names += size + (names[size] == ' ');
    }
    return false;
}

/* Length of the name in "{name}" at s, 0 when that does not look like a placeholder at all. */
static size_t placeholder(const char *s)
{
    size_t n = strspn(s + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return *s == '{' && n > 0 && s[n + 1] == '}' ? n : 0;
}

static bool holds(const char *text, const char *name, size_t n)
{
    for (const char *s = strchr(text, '{'); s != NULL; s = strchr(s + 1, '{')) {
        if (placeholder(s) == n && memcmp(s + 1, name, n) == 0) {
            return true;
        }
    }
    return false;
}

static dpe_status check_field(const char *file, const struct dpe_phrase_field *field,
                              const char *text, struct dpe_error *err)
{
    for (const char *s = strchr(text, '{'); s != NULL; s = strchr(s + 1, '{')) {
        size_t n = placeholder(s);
        if (n > 0 && !listed(field->needed, s + 1, n) && !listed(field->allowed, s + 1, n)) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": unknown placeholder %.*s", file,
                            field->name, (int)(n < 60 ? n + 2 : 60), s);
        }
    }
    for (const char *name = field->needed; *name != '\0';) {
        size_t n = strcspn(name, " ");
        if (!holds(text, name, n)) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": placeholder {%.*s} is missing", file,
                            field->name, (int)n, name);
        }
        name += n + (name[n] == ' ');
    }
    return DPE_OK;
}

/* The string without NULs that `value` is, NULL when it is something else. */
static const char *plain_string(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && strlen(text) == json_string_length(value) ? text : NULL;
}

static dpe_status check_string(const char *file, json_t *root, const struct dpe_phrase_field *field,
                               struct dpe_error *err)
{
    if (json_object_get(root, field->name) == NULL && field->fallback != NULL) {
        json_object_set_new(root, field->name, json_string(field->fallback));
    }
    const json_t *value = json_object_get(root, field->name);
    return plain_string(value) != NULL
               ? check_field(file, field, plain_string(value), err)
               : dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": expected a string, found %s", file,
                          field->name, value == NULL ? "nothing" : "something else");
}

static dpe_status check_list(const char *file, const json_t *root, const char *name,
                             struct dpe_error *err)
{
    const json_t *list = json_object_get(root, name);
    json_auto_t *seen = json_object();
    size_t size = json_array_size(list);
    if (size == 0 || size > MAX_WORDS) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": expected a list of 1 to %d words", file,
                        name, MAX_WORDS);
    }
    for (size_t i = 0; i < size; i++) {
        const char *word = plain_string(json_array_get(list, i));
        if (word == NULL || word[0] == '\0' || strlen(word) > LONGEST_WORD) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": entry %zu: expected a word", file, name,
                            i + 1);
        }
        if (json_object_get(seen, word) != NULL) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": the word \"%s\" is given twice", file,
                            name, word);
        }
        json_object_set_new(seen, word, json_null());
    }
    return DPE_OK;
}

static dpe_status refuse_unknown(const char *file, json_t *root,
                                 const struct dpe_phrase_field *fields, size_t n,
                                 struct dpe_error *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(root, name, value)
    {
        if (dpe_named(fields, n, sizeof *fields, name) == NULL) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: unknown field \"%.60s\"; see eval/templates for the fields", file,
                            name);
        }
    }
    return DPE_OK;
}

dpe_status dpe_phrases_open(const char *file, const struct dpe_builtin *builtin,
                            const struct dpe_phrase_field *fields, size_t n,
                            struct dpe_phrases *phrases, struct dpe_error *err)
{
    DPE_OWNED char *own = NULL;
    const char *bytes = (const char *)builtin->bytes;
    size_t size = builtin->n;
    json_auto_t *root = NULL;
    *phrases = (struct dpe_phrases){0};
    if (file != NULL && file[0] != '\0') {
        DPE_TRY(dpe_read_file(file, max_file_bytes, &own, &size, err));
        bytes = own;
    } else {
        file = builtin->name;
    }
    DPE_TRY(dpe_sha256_bytes(bytes, size, phrases->hash, err));
    DPE_TRY(dpe_json_parse(file, bytes, size, &root, err));
    DPE_TRY(refuse_unknown(file, root, fields, n, err));
    for (size_t i = 0; i < n; i++) {
        DPE_TRY(fields[i].list ? check_list(file, root, fields[i].name, err)
                               : check_string(file, root, &fields[i], err));
    }
    phrases->root = json_incref(root);
    return DPE_OK;
}

void dpe_phrases_free(struct dpe_phrases *phrases)
{
    json_decref(phrases->root);
    *phrases = (struct dpe_phrases){0};
}

const char *dpe_phrases_text(const struct dpe_phrases *phrases, const char *field)
{
    return json_string_value(json_object_get(phrases->root, field));
}

size_t dpe_phrases_words(const struct dpe_phrases *phrases, const char *field)
{
    return json_array_size(json_object_get(phrases->root, field));
}

const char *dpe_phrases_word(const struct dpe_phrases *phrases, const char *field, size_t i)
{
    return json_string_value(json_array_get(json_object_get(phrases->root, field), i));
}

void dpe_phrases_put(const struct dpe_phrases *phrases, const char *field,
                     const struct dpe_phrase_value *values, struct dpe_text *out)
{
    const char *s = dpe_phrases_text(phrases, field);
    while (*s != '\0') {
        size_t n = placeholder(s);
        const struct dpe_phrase_value *value = values;
        while (n > 0 && value->name != NULL &&
               (strlen(value->name) != n || memcmp(value->name, s + 1, n) != 0)) {
            value++;
        }
        if (n > 0 && value->name != NULL) {
            dpe_text_put_bytes(out, value->text, strlen(value->text));
            s += n + 2;
        } else {
            size_t plain = 1 + strcspn(s + 1, "{");
            dpe_text_put_bytes(out, s, plain);
            s += plain;
        }
    }
}

/* A vocabulary that loses a digit would make every answer wrong without a word. */
dpe_status dpe_phrases_check_digits(const struct dpe_tokenizer *tokenizer, struct dpe_error *err)
{
    static const char digits[] = "0 1 2 3 4 5 6 7 8 9";
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_TRY(dpe_tokenizer_encode(tokenizer, digits, sizeof digits - 1, NULL, &tokens, err));
    DPE_TRY(dpe_tokenizer_decode(tokenizer, tokens.ids, tokens.n, true, &text, err));
    return text.n > 0 && strstr(text.bytes, digits) != NULL
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected a vocabulary that can write digits, because the answers "
                          "are numbers; \"%s\" is decoded as \"%.60s\"",
                          dpe_tokenizer_path(tokenizer), digits, text.n == 0 ? "" : text.bytes);
}

/* Templates of the needle task: read, checked, filled. */
#include "template.h"

#include <stdlib.h>
#include <string.h>

#include "json_strict.h"

static const uint64_t max_file_bytes = (uint64_t)1 << 20;
enum { MAX_WORDS = 10000 };

enum { HAS_KEY = 1, HAS_VALUE = 2, HAS_KEYS = 4 };

static const struct {
    const char *spelling;
    int bit;
} placeholders[] = {{"{key}", HAS_KEY}, {"{value}", HAS_VALUE}, {"{keys}", HAS_KEYS}};
enum { N_PLACEHOLDERS = sizeof placeholders / sizeof placeholders[0] };

/* What a field may and must hold; `fallback` NULL: the field is required. */
struct field {
    const char *name;
    int needed, allowed;
    const char *fallback;
    size_t offset;
};
#define FIELD(name, needed, allowed, fallback)                                                     \
    {                                                                                              \
#name, needed, allowed, fallback, offsetof(struct dpe_template, name)                      \
    }
static const struct field fields[] = {
    FIELD(intro, 0, HAS_KEYS, ""),
    FIELD(needle, HAS_KEY | HAS_VALUE, HAS_KEY | HAS_VALUE, NULL),
    FIELD(question, HAS_KEYS, HAS_KEYS, NULL),
    FIELD(answer_prefix, 0, HAS_KEY | HAS_KEYS, ""),
    FIELD(answer, HAS_VALUE, HAS_KEY | HAS_VALUE, NULL),
    FIELD(keys_separator, 0, 0, ", "),
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* Index of the placeholder at s, −1 when there is none. */
static int placeholder_at(const char *s)
{
    for (int i = 0; i < N_PLACEHOLDERS; i++) {
        if (strncmp(s, placeholders[i].spelling, strlen(placeholders[i].spelling)) == 0) {
            return i;
        }
    }
    return -1;
}

/* Length of "{word}" at s, 0 when it does not look like a placeholder at all. */
static size_t braced_word(const char *s)
{
    size_t n = strspn(s + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return n > 0 && s[n + 1] == '}' ? n + 2 : 0;
}

static dpe_status check_placeholders(const char *file, const struct field *field, const char *text,
                                     struct dpe_error *err)
{
    int found = 0;
    for (const char *s = strchr(text, '{'); s != NULL; s = strchr(s + 1, '{')) {
        int i = placeholder_at(s);
        size_t n = braced_word(s);
        if (i >= 0 && (placeholders[i].bit & field->allowed) != 0) {
            found |= placeholders[i].bit;
        } else if (n > 0) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": placeholder %.*s has no meaning there",
                            file, field->name, (int)(n < 60 ? n : 60), s);
        }
    }
    for (int i = 0; i < N_PLACEHOLDERS; i++) {
        if ((field->needed & ~found & placeholders[i].bit) != 0) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": placeholder %s is missing", file,
                            field->name, placeholders[i].spelling);
        }
    }
    return DPE_OK;
}

/* The string without NULs that `value` is, NULL when it is something else. */
static const char *plain_string(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && strlen(text) == json_string_length(value) ? text : NULL;
}

static dpe_status read_field(const char *file, json_t *root, const struct field *field,
                             struct dpe_template *out, struct dpe_error *err)
{
    json_t *value = json_object_get(root, field->name);
    const char *text = value == NULL ? field->fallback : plain_string(value);
    if (text == NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": expected a string, found %s", file,
                        field->name, value == NULL ? "nothing" : "something else");
    }
    dpe_status status = check_placeholders(file, field, text, err);
    if (status != DPE_OK) {
        return status;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for the template", file);
    }
    memcpy((char *)out + field->offset, &copy, sizeof copy);
    return DPE_OK;
}

static dpe_status read_words(const char *file, json_t *root, const char *name, char ***words,
                             size_t *n, struct dpe_error *err)
{
    json_t *list = json_object_get(root, name);
    size_t size = json_array_size(list);
    if (size == 0 || size > MAX_WORDS) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": expected a list of 1 to %d words", file,
                        name, MAX_WORDS);
    }
    *words = dpe_alloc_zero(size, sizeof **words);
    for (size_t i = 0; *words != NULL && i < size; i++) {
        const char *word = plain_string(json_array_get(list, i));
        if (word == NULL || word[0] == '\0' || strlen(word) > 64) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": entry %zu: expected a word", file, name,
                            i + 1);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp((*words)[j], word) == 0) {
                return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": \"%s\" is there twice", file, name,
                                word);
            }
        }
        (*words)[i] = strdup(word);
        if ((*words)[i] == NULL) {
            break;
        }
        *n = i + 1;
    }
    return *n == size ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for words", file);
}

static dpe_status refuse_unknown(const char *file, json_t *root, struct dpe_error *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(root, name, value)
    {
        bool known = strcmp(name, "adjectives") == 0 || strcmp(name, "nouns") == 0;
        for (int i = 0; i < N_FIELDS; i++) {
            known = known || strcmp(name, fields[i].name) == 0;
        }
        if (!known) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%.60s\" is no field of a template", file,
                            name);
        }
    }
    return DPE_OK;
}

static dpe_status parse(const char *file, const char *bytes, size_t n, struct dpe_template *out,
                        struct dpe_error *err)
{
    json_t *root = NULL;
    dpe_status status = dpe_json_parse(file, bytes, n, &root, err);
    if (status != DPE_OK) {
        return status;
    }
    status = refuse_unknown(file, root, err);
    for (int i = 0; i < N_FIELDS && status == DPE_OK; i++) {
        status = read_field(file, root, &fields[i], out, err);
    }
    if (status == DPE_OK) {
        status = read_words(file, root, "adjectives", &out->adjectives, &out->n_adjectives, err);
    }
    if (status == DPE_OK) {
        status = read_words(file, root, "nouns", &out->nouns, &out->n_nouns, err);
    }
    json_decref(root);
    return status;
}

dpe_status dpe_template_open(const char *file, struct dpe_template *out, struct dpe_error *err)
{
    bool builtin = file[0] == '\0';
    char *read = NULL;
    size_t n = dpe_builtin_template_size;
    dpe_status status = DPE_OK;
    if (!builtin) {
        status = dpe_read_file(file, max_file_bytes, &read, &n, err);
        if (status != DPE_OK) {
            return status;
        }
    }
    const char *bytes = builtin ? (const char *)dpe_builtin_template : read;
    struct dpe_template made = {0};
    struct dpe_sha256 *hash = dpe_sha256_new();
    if (hash == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "no memory for a template");
        goto done;
    }
    dpe_sha256_add(hash, bytes, n);
    dpe_sha256_finish(hash, made.hash);
    status = parse(builtin ? "built-in template" : file, bytes, n, &made, err);
done:
    free(read);
    if (status != DPE_OK) {
        dpe_template_free(&made);
        return status;
    }
    *out = made;
    return DPE_OK;
}

static void free_words(char **words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(words[i]);
    }
    free(words);
}

void dpe_template_free(struct dpe_template *t)
{
    free(t->intro);
    free(t->needle);
    free(t->question);
    free(t->answer_prefix);
    free(t->answer);
    free(t->keys_separator);
    free_words(t->adjectives, t->n_adjectives);
    free_words(t->nouns, t->n_nouns);
    *t = (struct dpe_template){0};
}

dpe_status dpe_template_fill(const char *pattern, const struct dpe_template_words *words,
                             struct dpe_text *out, struct dpe_error *err)
{
    const char *by_index[N_PLACEHOLDERS] = {words->key, words->value, words->keys};
    dpe_status status = DPE_OK;
    while (*pattern != '\0' && status == DPE_OK) {
        int i = *pattern == '{' ? placeholder_at(pattern) : -1;
        if (i >= 0 && by_index[i] != NULL) {
            status = dpe_text_append(out, by_index[i], strlen(by_index[i]), err);
            pattern += strlen(placeholders[i].spelling);
        } else {
            size_t n = 1 + strcspn(pattern + 1, "{");
            status = dpe_text_append(out, pattern, n, err);
            pattern += n;
        }
    }
    return status;
}

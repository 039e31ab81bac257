/* RULER v2's needles among needles. */
#include "eval/ruler/ruler2_niah.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/ruler/python_random.h"

enum { NEEDLE, INTRO_ONE, QUESTION_ONE, INTRO_MANY, QUESTION_MANY, N_FIELDS };
static const struct dpe_phrase_field fields[N_FIELDS] = {
    {"needle", "key value", "", NULL, false},  {"intro_one", "", "", NULL, false},
    {"question_one", "key", "", NULL, false},  {"intro_many", "", "", NULL, false},
    {"question_many", "key", "", NULL, false},
};

dpe_status dpe_ruler2_phrases(const char *file, struct dpe_phrases *phrases, struct dpe_error *err)
{
    return dpe_phrases_open(file, &dpe_builtin_ruler2, fields, N_FIELDS, phrases, err);
}

/* ------------------------------------------------------------------------------------------ words
 */

/* The lines of a file, without white space at their ends; text is the caller's. */
static dpe_status read_lines(const char *folder, const char *name, char **text, char ***lines,
                             size_t *n, struct dpe_error *err)
{
    enum { MOST = 1 << 24 };
    char path[4096];
    size_t bytes = 0;
    snprintf(path, sizeof path, "%.3900s/%s", folder, name);
    dpe_status status = dpe_read_file(path, MOST, text, &bytes, err);
    if (status != DPE_OK) {
        return status;
    }
    *lines = dpe_alloc(bytes + 1, sizeof **lines);
    if (*lines == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory for its words", path);
    }
    for (char *at = *text; at < *text + bytes;) {
        char *end = strchr(at, '\n');
        end = end == NULL ? *text + bytes : end;
        char *next = end + 1;
        while (end > at && strchr(" \t\r\f\v", end[-1]) != NULL) {
            end--;
        }
        *end = '\0';
        (*lines)[(*n)++] = at;
        at = next;
    }
    return *n > 0
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "%s: expected a word on each line, found none", path);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every adjective with every noun, sorted, once each. */
static dpe_status combine(char **nouns, size_t n_nouns, char **adjectives, size_t n_adjectives,
                          struct dpe_ruler2_words *words, struct dpe_error *err)
{
    size_t most = 0;
    for (size_t a = 0; a < n_adjectives; a++) {
        for (size_t b = 0; b < n_nouns; b++) {
            most += strlen(adjectives[a]) + strlen(nouns[b]) + 2;
        }
    }
    words->text = dpe_alloc(most, 1);
    words->words = dpe_alloc(n_nouns * n_adjectives, sizeof *words->words);
    if (words->text == NULL || words->words == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu words", n_nouns * n_adjectives);
    }
    char *at = words->text;
    for (size_t a = 0; a < n_adjectives; a++) {
        for (size_t b = 0; b < n_nouns; b++) {
            words->words[words->n++] = at;
            at += sprintf(at, "%s-%s", adjectives[a], nouns[b]) + 1;
        }
    }
    qsort(words->words, words->n, sizeof *words->words, by_text);
    size_t kept = 0;
    for (size_t i = 0; i < words->n; i++) {
        if (i == 0 || strcmp(words->words[i], words->words[kept - 1]) != 0) {
            words->words[kept++] = words->words[i];
        }
    }
    words->n = kept;
    return DPE_OK;
}

dpe_status dpe_ruler2_words_open(const char *folder, struct dpe_ruler2_words *words,
                                 struct dpe_error *err)
{
    static const char *const names[] = {"nounlist.txt", "adjectivelist.txt"};
    char *text[2] = {NULL, NULL};
    char **lines[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    *words = (struct dpe_ruler2_words){0};
    dpe_status status = DPE_OK;
    for (int i = 0; i < 2 && status == DPE_OK; i++) {
        status = read_lines(folder, names[i], &text[i], &lines[i], &n[i], err);
    }
    if (status == DPE_OK) {
        status = combine(lines[0], n[0], lines[1], n[1], words, err);
    }
    for (int i = 0; i < 2; i++) {
        free(lines[i]);
        free(text[i]);
    }
    return status;
}

void dpe_ruler2_words_free(struct dpe_ruler2_words *words)
{
    free(words->text);
    free(words->words);
    *words = (struct dpe_ruler2_words){0};
}

/* ---------------------------------------------------------------------------------------- drawing
 */

/* What the functions of this part work on. */
struct draw {
    const struct dpe_ruler2_niah *niah;
    struct dpe_python_random random;
    char (*keys)[128]; /* [most] of the haystack */
    char (*values)[DPE_RULER2_VALUE];
    size_t *order;
    size_t most;
};

static void draw_number(struct draw *draw, char number[DPE_RULER2_VALUE])
{
    const uint64_t low = UINT64_C(1000000000);
    snprintf(number, DPE_RULER2_VALUE, "%" PRIu64,
             low + dpe_python_below(&draw->random, UINT64_C(9000000000)));
}

static void draw_key(struct draw *draw, char key[128])
{
    const struct dpe_ruler2_words *words = draw->niah->words;
    snprintf(key, 128, "%s", words->words[dpe_python_below(&draw->random, words->n)]);
}

static dpe_status grow(struct draw *draw, size_t n, struct dpe_error *err)
{
    if (n <= draw->most) {
        return DPE_OK;
    }
    free(draw->keys);
    free(draw->values);
    free(draw->order);
    draw->keys = dpe_alloc(n, sizeof *draw->keys);
    draw->values = dpe_alloc(n, sizeof *draw->values);
    draw->order = dpe_alloc(n, sizeof *draw->order);
    draw->most = draw->keys != NULL && draw->values != NULL && draw->order != NULL ? n : 0;
    return draw->most == n ? DPE_OK
                           : dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu needles", n);
}

/* Keys and numbers of the n sentences around the needles, in the order in which they stand. */
static void draw_haystack(struct draw *draw, size_t n)
{
    size_t many = (size_t)draw->niah->values;
    for (size_t i = 0; i < n && many == 1; i++) {
        draw_key(draw, draw->keys[i]);
        draw_number(draw, draw->values[i]);
        draw->order[i] = i;
    }
    if (many == 1) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        draw_number(draw, draw->values[i]);
    }
    size_t different = (n + many - 1) / many;
    for (size_t i = 0; i < n; i++) {
        if (i < different) {
            draw_key(draw, draw->keys[i]);
        } else {
            memcpy(draw->keys[i], draw->keys[i % different], sizeof draw->keys[i]);
        }
    }
    dpe_python_shuffle(&draw->random, draw->order, n);
}

static dpe_status add_line(const struct draw *draw, const char *key, const char *value, bool first,
                           struct dpe_text *text, struct dpe_error *err)
{
    const struct dpe_phrase_value values[] = {{"key", key}, {"value", value}, {NULL, NULL}};
    dpe_status status = first ? DPE_OK : dpe_text_append(text, "\n", 1, err);
    return status == DPE_OK ? dpe_phrases_fill(draw->niah->phrases, NEEDLE, values, text, err)
                            : status;
}

/* The sentences with the needles put before those at `places`, which descend. */
static dpe_status write_context(const struct draw *draw, size_t n, const char *key,
                                char values[][DPE_RULER2_VALUE], const size_t *needle,
                                const size_t *places, struct dpe_text *text, struct dpe_error *err)
{
    int many = draw->niah->values;
    bool first = true;
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        for (int v = 0; v < many && status == DPE_OK; v++) {
            if (places[v] == i) {
                status = add_line(draw, key, values[needle[v]], first, text, err);
                first = false;
            }
        }
        size_t at = draw->order[i];
        status = status == DPE_OK
                     ? add_line(draw, draw->keys[at], draw->values[at], first, text, err)
                     : status;
        first = false;
    }
    return status;
}

static int descending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a;
    size_t y = *(const size_t *)b;
    return (x < y) - (x > y);
}

/* A prompt with n sentences around the needles; every draw is made in the order of the original. */
static dpe_status make(struct draw *draw, size_t n, struct dpe_ruler2_sample *sample,
                       struct dpe_error *err)
{
    struct dpe_python_random own;
    char key[128];
    size_t needle[DPE_RULER2_MOST_VALUES];
    size_t places[DPE_RULER2_MOST_VALUES];
    size_t one = 0;
    const size_t many = (size_t)draw->niah->values;
    const bool several = many > 1;
    dpe_status status = grow(draw, n, err);
    if (status != DPE_OK) {
        return status;
    }
    draw_key(draw, key);
    for (size_t v = 0; v < many; v++) {
        draw_number(draw, sample->values[v]);
    }
    dpe_python_seed(&own, draw->niah->seed);
    dpe_python_shuffle(&own, needle, many);
    draw_haystack(draw, n);
    dpe_python_sample(&draw->random, n, places, many);
    qsort(places, many, sizeof *places, descending);
    dpe_python_sample(&draw->random, 1, &one, 1); /* which key is asked for */
    const struct dpe_phrase_value asked[] = {{"key", key}, {NULL, NULL}};
    sample->prompt.n = 0;
    status = dpe_phrases_fill(draw->niah->phrases, several ? INTRO_MANY : INTRO_ONE, asked + 1,
                              &sample->prompt, err);
    if (status == DPE_OK) {
        status = write_context(draw, n, key, sample->values, needle, places, &sample->prompt, err);
    }
    if (status == DPE_OK) {
        status = dpe_phrases_fill(draw->niah->phrases, several ? QUESTION_MANY : QUESTION_ONE,
                                  asked, &sample->prompt, err);
    }
    if (status == DPE_OK) {
        struct dpe_tokens tokens = {0};
        status = dpe_tokenizer_encode(draw->niah->tokenizer, sample->prompt.bytes, sample->prompt.n,
                                      NULL, &tokens, err);
        sample->tokens = (int64_t)tokens.n;
        dpe_tokens_free(&tokens);
    }
    return status;
}

/* The largest number of sentences whose prompt fits, found with a prompt of each size. */
static dpe_status find_size(struct draw *draw, size_t step, struct dpe_ruler2_sample *sample,
                            size_t *size, struct dpe_error *err)
{
    dpe_status status = make(draw, step, sample, err);
    double each = (double)sample->tokens / (double)step;
    int64_t low = (int64_t)step;
    int64_t high = status == DPE_OK ? (int64_t)((double)draw->niah->length / each * 3.0) : 0;
    high = high > 2 * low ? high : 2 * low;
    *size = step;
    while (low <= high && status == DPE_OK) {
        int64_t middle = (low + high) / 2;
        status = make(draw, (size_t)middle, sample, err);
        if (sample->tokens <= draw->niah->length) {
            *size = (size_t)middle;
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    return status;
}

dpe_status dpe_ruler2_niah_draw(const struct dpe_ruler2_niah *niah, int64_t n,
                                dpe_status (*take)(void *user, int64_t index,
                                                   const struct dpe_ruler2_sample *sample,
                                                   struct dpe_error *err),
                                void *user, struct dpe_error *err)
{
    enum { STEP = 5 };
    struct draw draw = {.niah = niah};
    struct dpe_ruler2_sample sample = {0};
    size_t size = 0;
    dpe_python_seed(&draw.random, niah->seed);
    dpe_status status = find_size(&draw, STEP, &sample, &size, err);
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        size_t used = size;
        status = make(&draw, used, &sample, err);
        while (status == DPE_OK && sample.tokens > niah->length) {
            if (used <= STEP) {
                status =
                    dpe_fail(err, DPE_USAGE,
                             "length %lld is too short: a prompt of %d needles takes %lld tokens",
                             (long long)niah->length, STEP, (long long)sample.tokens);
                break;
            }
            used -= STEP;
            status = make(&draw, used, &sample, err);
        }
        status = status == DPE_OK ? take(user, i, &sample, err) : status;
    }
    dpe_text_free(&sample.prompt);
    free(draw.keys);
    free(draw.values);
    free(draw.order);
    return status;
}

/* RULER v2's needles among needles. */
#include "eval/ruler/ruler2_parts.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- words */

static void free_words(struct dpe_ruler2_words *words)
{
    free(words->text);
    free(words->words);
}

/* The lines of a file, without white space at their ends. */
static dpe_status read_lines(const char *folder, const char *name, struct dpe_ruler2_words *lines,
                             struct dpe_error *err)
{
    enum { MOST = 1 << 24 };
    char path[4096];
    size_t bytes = 0;
    snprintf(path, sizeof path, "%.3900s/%s", folder, name);
    DPE_TRY(dpe_read_file(path, MOST, &lines->text, &bytes, err));
    DPE_TRY(DPE_NEW(&lines->words, bytes + 1, err, "%s: out of memory for its words", path));
    for (char *at = lines->text; at < lines->text + bytes;) {
        char *end = strchr(at, '\n');
        end = end == NULL ? lines->text + bytes : end;
        char *next = end + 1;
        while (end > at && strchr(" \t\r\f\v", end[-1]) != NULL) {
            end--;
        }
        *end = '\0';
        lines->words[lines->n++] = at;
        at = next;
    }
    return lines->n > 0
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "%s: expected a word on each line, found none", path);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every adjective with every noun, sorted, once each. */
static dpe_status combine(const struct dpe_ruler2_words *nouns,
                          const struct dpe_ruler2_words *adjectives, struct dpe_ruler2_words *words,
                          struct dpe_error *err)
{
    const size_t n = nouns->n * adjectives->n;
    size_t most = 0;
    for (size_t a = 0; a < adjectives->n; a++) {
        for (size_t b = 0; b < nouns->n; b++) {
            most += strlen(adjectives->words[a]) + strlen(nouns->words[b]) + 2;
        }
    }
    DPE_TRY(DPE_NEW(&words->text, most, err, "out of memory for %zu words", n));
    DPE_TRY(DPE_NEW(&words->words, n, err, "out of memory for %zu words", n));
    char *at = words->text;
    for (size_t a = 0; a < adjectives->n; a++) {
        for (size_t b = 0; b < nouns->n; b++) {
            words->words[words->n++] = at;
            at += sprintf(at, "%s-%s", adjectives->words[a], nouns->words[b]) + 1;
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

dpe_status dpe_ruler2_load_words(struct dpe_ruler2 *ruler2, const char *const *files, int64_t *n,
                                 struct dpe_error *err)
{
    DPE_SCOPED(free_words) struct dpe_ruler2_words nouns = {0};
    DPE_SCOPED(free_words) struct dpe_ruler2_words adjectives = {0};
    (void)n; /* every sample is drawn anew */
    if (ruler2->words.n > 0) {
        return DPE_OK;
    }
    DPE_TRY(read_lines(ruler2->options.folder, files[0], &nouns, err));
    DPE_TRY(read_lines(ruler2->options.folder, files[1], &adjectives, err));
    return combine(&nouns, &adjectives, &ruler2->words, err);
}

/* ------------------------------------------------------------------------------------- drawing */

enum { KEY = 128, VALUE = 11, MOST_VALUES = 4 };

/* What one prompt is made of: n sentences around the needles. */
struct scene {
    struct dpe_ruler2_draw *draw;
    size_t n, many;    /* sentences; numbers of the key that is asked for */
    char (*keys)[KEY]; /* [n] */
    char (*numbers)[VALUE];
    size_t *order; /* [n] in which they stand */
    char key[KEY]; /* that is asked for */
    char values[MOST_VALUES][VALUE];
    size_t needle[MOST_VALUES], places[MOST_VALUES]; /* their order; before which sentence */
};

static void free_scene(struct scene *scene)
{
    free(scene->keys);
    free(scene->numbers);
    free(scene->order);
}

static dpe_status open_scene(struct scene *scene, struct dpe_error *err)
{
    DPE_TRY(DPE_NEW(&scene->keys, scene->n, err, "out of memory for %zu needles", scene->n));
    DPE_TRY(DPE_NEW(&scene->numbers, scene->n, err, "out of memory for %zu needles", scene->n));
    return DPE_NEW(&scene->order, scene->n, err, "out of memory for %zu needles", scene->n);
}

static void draw_number(struct scene *scene, char number[VALUE])
{
    const uint64_t low = UINT64_C(1000000000);
    snprintf(number, VALUE, "%" PRIu64,
             low + dpe_python_below(&scene->draw->random, UINT64_C(9000000000)));
}

static void draw_key(struct scene *scene, char key[KEY])
{
    const struct dpe_ruler2_words *words = &scene->draw->ruler2->words;
    snprintf(key, KEY, "%s", words->words[dpe_python_below(&scene->draw->random, words->n)]);
}

/* Keys and numbers of the sentences around the needles, in the order in which they stand. */
static void draw_haystack(struct scene *scene)
{
    const size_t n = scene->n;
    for (size_t i = 0; i < n && scene->many == 1; i++) {
        draw_key(scene, scene->keys[i]);
        draw_number(scene, scene->numbers[i]);
        scene->order[i] = i;
    }
    if (scene->many == 1) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        draw_number(scene, scene->numbers[i]);
    }
    size_t different = (n + scene->many - 1) / scene->many;
    for (size_t i = 0; i < n; i++) {
        if (i < different) {
            draw_key(scene, scene->keys[i]);
        } else {
            memcpy(scene->keys[i], scene->keys[i % different], sizeof scene->keys[i]);
        }
    }
    dpe_python_shuffle(&scene->draw->random, scene->order, n);
}

static int descending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a;
    size_t y = *(const size_t *)b;
    return (x < y) - (x > y);
}

/* Every draw is made in the order of the original. */
static dpe_status set_scene(struct scene *scene, struct dpe_error *err)
{
    struct dpe_python_random *random = &scene->draw->random;
    struct dpe_python_random own;
    size_t one = 0;
    draw_key(scene, scene->key);
    for (size_t v = 0; v < scene->many; v++) {
        draw_number(scene, scene->values[v]);
    }
    dpe_python_seed(&own, scene->draw->ruler2->options.seed);
    dpe_python_shuffle(&own, scene->needle, scene->many);
    draw_haystack(scene);
    bool there = dpe_python_sample(random, scene->n, scene->places, scene->many) &&
                 dpe_python_sample(random, 1, &one, 1); /* which key is asked for */
    qsort(scene->places, scene->many, sizeof *scene->places, descending);
    return there ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu needles", scene->n);
}

static void put_line(const struct scene *scene, const char *key, const char *value,
                     const char *before, struct dpe_text *text)
{
    const struct dpe_phrase_value values[] = {{"key", key}, {"value", value}, {NULL, NULL}};
    dpe_text_put(text, "%s", before);
    dpe_ruler2_say(scene->draw, "needle", values, text);
}

/* The sentences with the needles put before those at `places`, which descend. */
static void put_context(const struct scene *scene, struct dpe_text *text)
{
    const char *before = "";
    for (size_t i = 0; i < scene->n; i++) {
        for (size_t v = 0; v < scene->many; v++) {
            if (scene->places[v] == i) {
                put_line(scene, scene->key, scene->values[scene->needle[v]], before, text);
                before = "\n";
            }
        }
        size_t at = scene->order[i];
        put_line(scene, scene->keys[at], scene->numbers[at], before, text);
        before = "\n";
    }
}

static void write_prompt(const struct scene *scene, struct dpe_text *out)
{
    const bool several = scene->many > 1;
    const struct dpe_phrase_value asked[] = {{"key", scene->key}, {NULL, NULL}};
    dpe_ruler2_say(scene->draw, several ? "intro_many" : "intro_one", asked + 1, out);
    put_context(scene, out);
    dpe_ruler2_say(scene->draw, several ? "question_many" : "question_one", asked, out);
}

dpe_status dpe_ruler2_make_needles(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                                   struct dpe_ruler2_sample *sample, struct dpe_error *err)
{
    DPE_SCOPED(free_scene)
    struct scene scene = {.draw = draw, .n = n, .many = (size_t)draw->task->values};
    (void)index;
    DPE_TRY(open_scene(&scene, err));
    DPE_TRY(set_scene(&scene, err));
    write_prompt(&scene, &sample->prompt);
    for (size_t v = 0; v < scene.many; v++) {
        dpe_ruler2_answer(sample, scene.values[v]);
    }
    return DPE_OK;
}

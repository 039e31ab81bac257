/* RULER's rules, and those of InfiniteBench that both sets share. */
#include "eval/score/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/score/pytext.h"
#include "eval/score/score_internal.h"

/* -------------------------------------------------------------------------------------- RULER */

/* strip, control characters become newlines, strip, lower. */
static dpe_status clean(const char *prediction, struct dpe_text *out)
{
    struct dpe_text plain = {0};
    struct dpe_span span = dpe_py_strip(dpe_span_of(prediction));
    dpe_status status = dpe_text_append(&plain, span.s, span.n, NULL);
    for (size_t i = 0; i < plain.n; i++) {
        plain.bytes[i] = (unsigned char)plain.bytes[i] < 0x20 ? '\n' : plain.bytes[i];
    }
    if (status == DPE_OK) {
        status = dpe_py_lower(dpe_py_strip((struct dpe_span){plain.bytes, plain.n}), out);
    }
    dpe_text_free(&plain);
    return status;
}

/* Number of references that the prediction contains; −1: out of memory. */
static int64_t held(const char *prediction, char *const *references, size_t n)
{
    struct dpe_text text = {0};
    struct dpe_text reference = {0};
    int64_t found = 0;
    dpe_status status = clean(prediction, &text);
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        reference.n = 0;
        status = dpe_py_lower(dpe_span_of(references[i]), &reference);
        found += status == DPE_OK &&
                 dpe_span_find((struct dpe_span){text.bytes, text.n},
                               (struct dpe_span){reference.bytes, reference.n}) != SIZE_MAX;
    }
    dpe_text_free(&text);
    dpe_text_free(&reference);
    return status == DPE_OK ? found : -1;
}

double dpe_score_all(const char *prediction, char *const *references, size_t n)
{
    int64_t found = held(prediction, references, n);
    return found < 0 ? (double)NAN : (double)found / (double)n;
}

double dpe_score_part(const char *prediction, char *const *references, size_t n)
{
    int64_t found = held(prediction, references, n);
    return found < 0 ? (double)NAN : found > 0 ? 1.0 : 0.0;
}

/* ------------------------------------------------------------------------------------ F1 of words
 */

static bool is_article(struct dpe_span word)
{
    static const char *const articles[] = {"a", "an", "the"};
    for (size_t i = 0; i < sizeof articles / sizeof articles[0]; i++) {
        if (dpe_span_equal(word, dpe_span_of(articles[i]))) {
            return true;
        }
    }
    return false;
}

static bool ascii_punctuation(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* Replace each article (a run of word characters) by a space, in place. */
static void remove_articles(struct dpe_text *text)
{
    char *end = text->bytes + text->n;
    char *to = text->bytes;
    size_t n = 0;
    for (char *s = text->bytes; s < end;) {
        char *start = s;
        while (s < end && dpe_py_word(dpe_py_next(s, end, &n))) {
            s += n;
        }
        size_t size = (size_t)(s - start);
        if (size > 0 && is_article((struct dpe_span){start, size})) {
            *to++ = ' ';
        } else if (size > 0) {
            memmove(to, start, size);
            to += size;
        }
        if (s < end) {
            dpe_py_next(s, end, &n);
            memmove(to, s, n);
            to += n;
            s += n;
        }
    }
    text->n = (size_t)(to - text->bytes);
    text->bytes[text->n] = '\0';
}

/* The words of a normalised text; `text` owns their bytes. */
struct words {
    struct dpe_text text;
    struct dpe_span *list;
    size_t n;
};

static int compare_words(const void *a, const void *b)
{
    const struct dpe_span *left = a, *right = b;
    size_t n = left->n < right->n ? left->n : right->n;
    int order = n == 0 ? 0 : memcmp(left->s, right->s, n);
    return order != 0 ? order : (left->n > right->n) - (left->n < right->n);
}

/* Lower case, without punctuation and articles, sorted. */
static dpe_status normalized_words(const char *source, struct words *words)
{
    struct dpe_text *text = &words->text;
    DPE_TRY(dpe_py_lower(dpe_span_of(source), text));
    size_t kept = 0;
    for (size_t i = 0; i < text->n; i++) {
        if (!ascii_punctuation(text->bytes[i])) {
            text->bytes[kept++] = text->bytes[i];
        }
    }
    text->n = kept;
    text->bytes[kept] = '\0';
    remove_articles(text);
    words->list = dpe_alloc(text->n / 2 + 1, sizeof *words->list);
    if (words->list == NULL) {
        return DPE_NO_MEMORY;
    }
    struct dpe_span rest = {text->bytes, text->n}, word;
    while (dpe_py_split(&rest, &word)) {
        words->list[words->n++] = word;
    }
    qsort(words->list, words->n, sizeof *words->list, compare_words);
    return DPE_OK;
}

static void free_words(struct words *words)
{
    dpe_text_free(&words->text);
    free(words->list);
}

static size_t common_words(const struct words *a, const struct words *b)
{
    size_t i = 0, j = 0, same = 0;
    while (i < a->n && j < b->n) {
        int order = compare_words(a->list + i, b->list + j);
        same += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    return same;
}

double dpe_score_f1(const char *prediction, char *const *references, size_t n)
{
    struct words said = {0};
    double best = 0.0;
    dpe_status status = normalized_words(prediction, &said);
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        struct words wanted = {0};
        status = normalized_words(references[i], &wanted);
        size_t same = status == DPE_OK ? common_words(&said, &wanted) : 0;
        if (same > 0) {
            double precision = (double)same / (double)said.n;
            double recall = (double)same / (double)wanted.n;
            double f1 = (2.0 * precision * recall) / (precision + recall);
            best = f1 > best ? f1 : best;
        }
        free_words(&wanted);
    }
    free_words(&said);
    return status == DPE_OK ? best : (double)NAN;
}

/* ----------------------------------------------------------------------------------- retrieval */

double dpe_score_integer(const char *prediction, char *const *references, size_t n)
{
    const char *start = prediction + strcspn(prediction, "0123456789");
    struct dpe_span first = {start, strspn(start, "0123456789")};
    return n > 0 && dpe_span_equal(first, dpe_span_of(references[0])) ? 1.0 : 0.0;
}

dpe_status dpe_score_spaced(struct dpe_span text, const char *characters, struct dpe_text *out)
{
    size_t from = out->n;
    dpe_status status = dpe_text_append(out, text.s, text.n, NULL);
    for (size_t i = from; i < out->n; i++) {
        out->bytes[i] =
            out->bytes[i] != '\0' && strchr(characters, out->bytes[i]) ? ' ' : out->bytes[i];
    }
    return status;
}

double dpe_score_word(const char *prediction, char *const *references, size_t n)
{
    struct dpe_text text = {0};
    bool found = false;
    dpe_status status = dpe_score_spaced(dpe_span_of(prediction), DPE_SCORE_PUNCTUATION, &text);
    struct dpe_span rest = {text.bytes, text.n}, word;
    while (status == DPE_OK && n > 0 && !found && dpe_py_split(&rest, &word)) {
        found = dpe_span_equal(word, dpe_span_of(references[0]));
    }
    dpe_text_free(&text);
    return status != DPE_OK ? (double)NAN : found ? 1.0 : 0.0;
}

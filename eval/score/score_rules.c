/* The rules of RULER and RULER v2, and the F1 of words. */
#include "eval/score/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/score/pytext.h"

/* ---------------------------------------------------------------------------------------- words */

/* The words of a text; `text` owns their bytes. */
struct words {
    struct dpe_text text;
    struct dpe_span *list;
    size_t n;
};

/* Of the text as it is now. */
static dpe_status split_words(struct words *words)
{
    struct dpe_span rest = dpe_span_of_text(&words->text), word;
    words->list = dpe_alloc(rest.n / 2 + 1, sizeof *words->list);
    while (words->list != NULL && dpe_py_split(&rest, &word)) {
        words->list[words->n++] = word;
    }
    return words->list != NULL ? DPE_OK : DPE_NO_MEMORY;
}

static void free_words(struct words *words)
{
    dpe_text_free(&words->text);
    free(words->list);
}

/* -------------------------------------------------------------------------------------- RULER */

/* strip, control characters become newlines, strip, lower. */
static dpe_status clean(const char *prediction, struct dpe_text *out)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text plain = {0};
    struct dpe_span span = dpe_py_strip(dpe_span_of(prediction));
    DPE_TRY(dpe_text_append(&plain, span.s, span.n, NULL));
    for (size_t i = 0; i < plain.n; i++) {
        plain.bytes[i] = (unsigned char)plain.bytes[i] < 0x20 ? '\n' : plain.bytes[i];
    }
    return dpe_py_case(dpe_py_strip(dpe_span_of_text(&plain)), DPE_PY_LOWER, out);
}

/* Number of references that the prediction contains; −1: out of memory. */
static int64_t held(const char *prediction, char *const *references, size_t n)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text reference = {0};
    int64_t found = 0;
    if (clean(prediction, &text) != DPE_OK) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        reference.n = 0;
        if (dpe_py_case(dpe_span_of(references[i]), DPE_PY_LOWER, &reference) != DPE_OK) {
            return -1;
        }
        found += dpe_span_find(dpe_span_of_text(&text), dpe_span_of_text(&reference)) != SIZE_MAX;
    }
    return found;
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

/* --------------------------------------------------------------------------------- F1 of words */

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
    DPE_TRY(dpe_py_case(dpe_span_of(source), DPE_PY_LOWER, text));
    size_t kept = 0;
    for (size_t i = 0; i < text->n; i++) {
        if (!ascii_punctuation(text->bytes[i])) {
            text->bytes[kept++] = text->bytes[i];
        }
    }
    text->n = kept;
    text->bytes[kept] = '\0';
    remove_articles(text);
    DPE_TRY(split_words(words));
    qsort(words->list, words->n, sizeof *words->list, compare_words);
    return DPE_OK;
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
    DPE_SCOPED(free_words) struct words said = {0};
    double best = 0.0;
    if (normalized_words(prediction, &said) != DPE_OK) {
        return (double)NAN;
    }
    for (size_t i = 0; i < n; i++) {
        DPE_SCOPED(free_words) struct words wanted = {0};
        if (normalized_words(references[i], &wanted) != DPE_OK) {
            return (double)NAN;
        }
        size_t same = common_words(&said, &wanted);
        if (same > 0) {
            double precision = (double)same / (double)said.n;
            double recall = (double)same / (double)wanted.n;
            double f1 = (2.0 * precision * recall) / (precision + recall);
            best = f1 > best ? f1 : best;
        }
    }
    return best;
}

/* ------------------------------------------------------------------------------------ RULER v2 */

/* NVIDIA-NeMo/Skills, `ruler2` and `multichoice`: an answer holds a reference, or is near it by the
 * words that differ. */

/* The words of a text in small letters. */
static dpe_status take_words(struct dpe_span source, struct words *words)
{
    DPE_TRY(dpe_py_case(source, DPE_PY_LOWER, &words->text));
    return split_words(words);
}

/* Words to put in, leave out or replace to make one list of the other; −1: out of memory. */
static int64_t distance(const struct words *a, const struct words *b)
{
    DPE_OWNED size_t *row = dpe_alloc(b->n + 1, sizeof *row);
    if (row == NULL) {
        return -1;
    }
    for (size_t j = 0; j <= b->n; j++) {
        row[j] = j;
    }
    for (size_t i = 0; i < a->n; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b->n; j++) {
            size_t least = corner + !dpe_span_equal(a->list[i], b->list[j]);
            least = row[j] + 1 < least ? row[j] + 1 : least;
            least = row[j + 1] + 1 < least ? row[j + 1] + 1 : least;
            corner = row[j + 1];
            row[j + 1] = least;
        }
    }
    return (int64_t)row[b->n];
}

/* 1 where the answer holds the reference, else 1 less the share of words that differ, at least 0;
 * NaN: out of memory. */
static double near(const struct words *answer, const char *reference)
{
    DPE_SCOPED(free_words) struct words wanted = {0};
    if (take_words(dpe_span_of(reference), &wanted) != DPE_OK) {
        return (double)NAN;
    }
    if (dpe_span_find(dpe_span_of_text(&answer->text), dpe_span_of_text(&wanted.text)) !=
        SIZE_MAX) {
        return 1.0;
    }
    if (wanted.n == 0) {
        return 0.0;
    }
    int64_t apart = distance(answer, &wanted);
    return apart < 0 ? (double)NAN : fmax(0.0, 1.0 - (double)apart / (double)wanted.n);
}

/* Mean or best over the references. */
static double score_span(struct dpe_span prediction, char *const *references, size_t n, bool best)
{
    DPE_SCOPED(free_words) struct words answer = {0};
    double sum = take_words(prediction, &answer) == DPE_OK ? 0.0 : (double)NAN;
    double most = sum;
    for (size_t i = 0; i < n && !isnan(sum); i++) {
        double score = near(&answer, references[i]);
        sum += score;
        most = score > most ? score : most;
    }
    return isnan(sum) ? sum : best ? most : sum / (double)n;
}

double dpe_score_near_all(const char *prediction, char *const *references, size_t n)
{
    return score_span(dpe_span_of(prediction), references, n, false);
}

double dpe_score_near_last(const char *prediction, char *const *references, size_t n)
{
    struct dpe_span text = dpe_span_of(prediction);
    for (const char *at = strstr(text.s, "\n\n"); at != NULL; at = strstr(text.s, "\n\n")) {
        text = dpe_span_of(at + 2);
    }
    return score_span(text, references, n, false);
}

/* The end of a document that was copied, from "Document 12:" to the first empty line after a line
 * of it; NULL: none begins here, or it does not end. */
static const char *document_end(const char *s, const char *end)
{
    static const char word[] = "Document ";
    size_t n = 0;
    if ((size_t)(end - s) < sizeof word || memcmp(s, word, sizeof word - 1) != 0) {
        return NULL;
    }
    s += sizeof word - 1;
    const char *digits = s;
    while (s < end && dpe_py_digit(dpe_py_next(s, end, &n)) >= 0) {
        s += n;
    }
    if (s == digits || s >= end || *s++ != ':') {
        return NULL;
    }
    for (s = memchr(s, '\n', (size_t)(end - s)); s != NULL && s + 1 < end;
         s = memchr(s + 1, '\n', (size_t)(end - s - 1))) {
        if (s[1] == '\n') {
            return s + 2;
        }
    }
    return NULL;
}

double dpe_score_near_part(const char *prediction, char *const *references, size_t n)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text kept = {0};
    const char *end = prediction + strlen(prediction);
    for (const char *s = prediction; s < end;) {
        const char *after = document_end(s, end);
        if (after == NULL) {
            dpe_text_put_bytes(&kept, s++, 1);
        } else {
            s = after;
        }
    }
    return kept.failed ? (double)NAN : score_span(dpe_span_of_text(&kept), references, n, true);
}

/* --------------------------------------------------------------------------------- multichoice */

/* What the last \boxed{…} holds; s NULL: there is none, or it is not closed. */
static struct dpe_span boxed(const char *text)
{
    static const char word[] = "\\boxed";
    const char *last = NULL;
    int64_t open = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        last = at;
    }
    const char *begin = last == NULL ? NULL : last + sizeof word - 1;
    for (const char *s = begin; s != NULL && *s != '\0'; s++) {
        open += (*s == '{') - (*s == '}');
        if (*s == '}' && open == 0) {
            return *begin == '{' ? (struct dpe_span){begin + 1, (size_t)(s - begin - 1)}
                                 : (struct dpe_span){0};
        }
    }
    return (struct dpe_span){0};
}

/* Whether a word character stands before s; the text begins at `start`. */
static bool word_before(const char *start, const char *s)
{
    size_t n = 0;
    const char *before = s > start ? dpe_py_before(start, s) : NULL;
    return before != NULL && dpe_py_word(dpe_py_next(before, s, &n));
}

static bool word_at(const char *s, const char *end)
{
    size_t n = 0;
    return s < end && dpe_py_word(dpe_py_next(s, end, &n));
}

/* The last letter A … J that stands alone in the span; 0: none. */
static char lone_letter(struct dpe_span span)
{
    const char *end = span.s + span.n;
    char found = '\0';
    for (const char *s = span.s; s < end; s++) {
        if (*s >= 'A' && *s <= 'J' && !word_before(span.s, s) && !word_at(s + 1, end)) {
            found = *s;
        }
    }
    return found;
}

/* Up to `most` stars, underscores and, where `spaces`, white space. */
static const char *skip(const char *s, const char *end, bool spaces, bool marks, int64_t most)
{
    while (most-- > 0 && s < end) {
        size_t space = spaces ? dpe_py_space(s, end) : 0;
        bool mark = marks && (*s == '*' || *s == '_');
        if (space == 0 && !mark) {
            break;
        }
        s += space > 0 ? space : 1;
    }
    return s;
}

static bool plain_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* The letter after "Answer:" at s, stars and underscores around it; 0: none. */
static char named_letter(const char *s, const char *end)
{
    static const char word[] = "answer";
    for (size_t i = 0; i < sizeof word - 1; i++, s++) {
        if (s >= end || (*s | 0x20) != word[i]) {
            return '\0';
        }
    }
    s = skip(s, end, false, true, 2);
    s = skip(s, end, true, false, INT64_MAX);
    if (s >= end || *s != ':') {
        return '\0';
    }
    s = skip(s + 1, end, true, true, 2);
    s = skip(s, end, true, false, INT64_MAX);
    bool more = s + 1 < end && (plain_letter(s[1]) || (s[1] >= '0' && s[1] <= '9'));
    return s < end && plain_letter(*s) && !more ? *s : '\0';
}

double dpe_score_multichoice(const char *prediction, char *const *references, size_t n)
{
    struct dpe_span answer = boxed(prediction);
    char letter = '\0';
    if (answer.s != NULL) {
        size_t size = 0;
        bool one =
            answer.n > 0 && (dpe_py_next(answer.s, answer.s + answer.n, &size), size == answer.n);
        letter = one ? '\0' : lone_letter(answer);
    } else {
        const char *end = prediction + strlen(prediction);
        for (const char *s = prediction; s < end; s++) {
            char named = named_letter(s, end);
            letter = named != '\0' ? named : letter;
        }
    }
    answer = letter != '\0' ? (struct dpe_span){&letter, 1} : answer;
    return n > 0 && answer.s != NULL && dpe_span_equal(answer, dpe_span_of(references[0])) ? 1.0
                                                                                           : 0.0;
}

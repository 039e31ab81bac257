/* Haystacks: books in drawn order, word and sentence ends. Words of texts and pronounceable ones.
 */
#include "eval/task/prompt.h"
#include "eval/task/task.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A sentence boundary this near is better than a cut inside a sentence. */
enum { NEAR_BYTES = 512 };

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool ends_with(const char *text, size_t n, const char *tail)
{
    size_t size = strlen(tail);
    return n >= size && memcmp(text + n - size, tail, size) == 0;
}

/* Bytes of the longest of `tails` (NULL-ended) that ends text[0..n), 0 for none. */
static size_t one_of(const char *text, size_t n, const char *const *tails)
{
    for (; *tails != NULL; tails++) {
        if (ends_with(text, n, *tails)) {
            return strlen(*tails);
        }
    }
    return 0;
}

bool dpe_haystack_sentence_end(const char *text, size_t n, size_t i)
{
    static const char *const ideographic[] = {"\xe3\x80\x82", "\xef\xbc\x81", "\xef\xbc\x9f", NULL};
    static const char *const closing[] = {"\"",           "'",        ")", "]", "\xe2\x80\x9d",
                                          "\xe2\x80\x99", "\xc2\xbb", NULL};
    static const char *const full_stop[] = {".", "!", "?", "\xe2\x80\xa6", NULL};
    if (one_of(text, i, ideographic) > 0) {
        return true;
    }
    if (i < n && !is_space(text[i])) {
        return false;
    }
    size_t at = i;
    for (size_t bytes = one_of(text, at, closing); bytes > 0; bytes = one_of(text, at, closing)) {
        at -= bytes;
    }
    return one_of(text, at, full_stop) > 0;
}

static bool word_end(const char *text, size_t n, size_t i)
{
    return i > 0 && !is_space(text[i - 1]) && (i == n || is_space(text[i]));
}

size_t dpe_haystack_word_end(const char *text, size_t n, size_t low, size_t at)
{
    size_t i = at < n ? at : n;
    while (i > low && !word_end(text, n, i)) {
        i--;
    }
    return i;
}

size_t dpe_haystack_character(const char *text, size_t n, size_t at)
{
    size_t i = at < n ? at : n;
    while (i > 0 && i < n && ((unsigned char)text[i] & 0xc0) == 0x80) {
        i--;
    }
    return i;
}

/* The boundary nearest to `want` in [low, high], the lower one when two are as near; SIZE_MAX when
 * there is none. */
static size_t nearest(const char *text, size_t n, size_t low, size_t high, size_t want,
                      bool (*boundary)(const char *, size_t, size_t))
{
    for (size_t d = 0; d <= want - low || d <= high - want; d++) {
        if (d <= want - low && boundary(text, n, want - d)) {
            return want - d;
        }
        if (d <= high - want && boundary(text, n, want + d)) {
            return want + d;
        }
    }
    return SIZE_MAX;
}

static bool sentence_boundary(const char *text, size_t n, size_t i)
{
    return i == 0 || dpe_haystack_sentence_end(text, n, i);
}

size_t dpe_haystack_place(const char *text, size_t n, size_t low, size_t high, size_t want)
{
    size_t found = nearest(text, n, low, high, want, sentence_boundary);
    if (found == SIZE_MAX) {
        size_t from = want > NEAR_BYTES ? want - NEAR_BYTES : 0;
        size_t to = n - want > NEAR_BYTES ? want + NEAR_BYTES : n;
        found = nearest(text, n, from, to, want, sentence_boundary);
    }
    if (found == SIZE_MAX) {
        found = nearest(text, n, low, high, want, word_end);
    }
    return found == SIZE_MAX ? dpe_haystack_character(text, n, want) : found;
}

/* Append, but not beyond `reserve` bytes in all. */
static dpe_status append(struct dpe_text *out, const char *bytes, size_t n, size_t reserve,
                         struct dpe_error *err)
{
    size_t room = out->n < reserve ? reserve - out->n : 0;
    return dpe_text_append(out, bytes, dpe_haystack_character(bytes, n, room), err);
}

/* Turn a drawn byte of all books in `order` into a book (its place in order) and the next sentence
 * start in it. */
static size_t find_start(const struct dpe_corpus *corpus, const size_t *order, double share,
                         size_t *start)
{
    size_t n = corpus->n;
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        total += corpus->books[i].n;
    }
    size_t at = (size_t)(share * (double)total);
    size_t k = 0;
    while (k + 1 < n && at >= corpus->books[order[k]].n) {
        at -= corpus->books[order[k]].n;
        k++;
    }
    const struct dpe_book *book = &corpus->books[order[k]];
    at = at < book->n ? at : book->n;
    while (at > 0 && at < book->n && !dpe_haystack_sentence_end(book->text, book->n, at)) {
        at++;
    }
    *start = at;
    return k;
}

/* Once around, from `start` in book order[first] to the same place. */
static dpe_status around(const struct dpe_corpus *corpus, const size_t *order, size_t first,
                         size_t start, size_t reserve, struct dpe_text *out, struct dpe_error *err)
{
    size_t n = corpus->n;
    const struct dpe_book *own = &corpus->books[order[first]];
    if (start == 0) {
        DPE_TRY(append(out, "\n\n", 2, reserve, err));
    }
    DPE_TRY(append(out, own->text + start, own->n - start, reserve, err));
    for (size_t i = 1; i <= n && out->n < reserve; i++) {
        const struct dpe_book *book = &corpus->books[order[(first + i) % n]];
        DPE_TRY(append(out, "\n\n", 2, reserve, err));
        DPE_TRY(append(out, book->text, i < n ? book->n : start, reserve, err));
    }
    return DPE_OK;
}

dpe_status dpe_haystack_make(const struct dpe_corpus *corpus, struct dpe_rng *rng, bool repeat,
                             size_t reserve, struct dpe_text *out, bool *whole,
                             struct dpe_error *err)
{
    DPE_OWNED size_t *order = NULL;
    DPE_TRY(DPE_NEW(&order, corpus->n, err, "no memory for the order of %zu books", corpus->n));
    dpe_draw_order(rng, order, corpus->n);
    size_t start = 0;
    size_t first = find_start(corpus, order, dpe_rng_unit(rng), &start);
    size_t before = 0;
    /* A round that adds nothing has met a character that does not fit: the reserve is full. */
    do {
        before = out->n;
        DPE_TRY(around(corpus, order, first, start, reserve, out, err));
    } while (repeat && out->n > before && out->n < reserve);
    /* Cut between characters, a full haystack may be up to three bytes short of its reserve. */
    *whole = !repeat && out->n + 3 < reserve;
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- words */

enum { MIN_LETTERS = 4, MAX_LETTERS = 10, MAX_TEXT = 4 << 20, SHUFFLE_STREAM = 1, MAKE_STREAM = 2 };

dpe_status dpe_texts_add(struct dpe_texts *texts, const char *text, size_t *number,
                         struct dpe_error *err)
{
    const json_t *there = json_object_get(texts->numbers, text);
    *number = there != NULL ? (size_t)json_integer_value(there) : texts->n;
    if (there != NULL) {
        return DPE_OK;
    }
    texts->numbers = texts->numbers != NULL ? texts->numbers : json_object();
    DPE_TRY(DPE_ROOM(&texts->at, texts->n, err, "out of memory for %zu texts", texts->n));
    const bool set =
        json_object_set_new_nocheck(texts->numbers, text, json_integer((json_int_t)*number)) == 0;
    if (!set) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu texts", texts->n);
    }
    texts->at[texts->n++] = json_object_iter_key(json_object_iter_at(texts->numbers, text));
    return DPE_OK;
}

void dpe_texts_free(struct dpe_texts *texts)
{
    json_decref(texts->numbers);
    free(texts->at);
    *texts = (struct dpe_texts){0};
}

static bool small_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool part_of_word(char c)
{
    return small_letter(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\'' ||
           c == '_' || (unsigned char)c >= 0x80;
}

/* The words of one text. */
static dpe_status take_words(const char *text, size_t size, struct dpe_texts *lexicon,
                             struct dpe_error *err)
{
    for (size_t i = 0; i < size;) {
        char word[MAX_LETTERS + 1];
        size_t start = i, number = 0;
        bool small = true;
        while (i < size && part_of_word(text[i])) {
            small = small && small_letter(text[i]);
            i++;
        }
        if (small && i - start >= MIN_LETTERS && i - start <= MAX_LETTERS) {
            snprintf(word, sizeof word, "%.*s", (int)(i - start), text + start);
            DPE_TRY(dpe_texts_add(lexicon, word, &number, err));
        }
        i += i == start;
    }
    return DPE_OK;
}

static void shuffle_words(struct dpe_texts *lexicon)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 0, SHUFFLE_STREAM);
    for (size_t i = 1; i < lexicon->n; i++) {
        size_t j = dpe_rng_below(&rng, (uint32_t)i + 1);
        const char *at = lexicon->at[i];
        lexicon->at[i] = lexicon->at[j];
        lexicon->at[j] = at;
    }
}

/* Consonant and vowel, two or three times, perhaps with a consonant at the end. */
static void pronounce(struct dpe_rng *rng, char word[16])
{
    static const char *const onsets[] = {"b",  "d",  "f",  "g",  "h",  "j",  "k",  "l",
                                         "m",  "n",  "p",  "r",  "s",  "t",  "v",  "z",
                                         "br", "dr", "gl", "kr", "pl", "st", "tr", "sh"};
    static const char vowels[] = "aeiou";
    static const char codas[] = "lmnrst";
    size_t n = 0;
    uint32_t syllables = 2 + dpe_rng_below(rng, 2);
    for (uint32_t i = 0; i < syllables; i++) {
        const char *onset = onsets[dpe_rng_below(rng, sizeof onsets / sizeof onsets[0])];
        for (; *onset != '\0'; onset++) {
            word[n++] = *onset;
        }
        word[n++] = vowels[dpe_rng_below(rng, 5)];
    }
    if (dpe_rng_below(rng, 2) == 0) {
        word[n++] = codas[dpe_rng_below(rng, 6)];
    }
    word[n] = '\0';
}

static dpe_status from_corpus(const struct dpe_corpus *corpus, struct dpe_texts *lexicon,
                              struct dpe_error *err)
{
    size_t left = MAX_TEXT;
    for (size_t i = 0; i < corpus->n && left > 0; i++) {
        const struct dpe_book *book = &corpus->books[i];
        size_t size = book->n < left ? book->n : left;
        DPE_TRY(take_words(book->text, size, lexicon, err));
        left -= size;
    }
    shuffle_words(lexicon);
    return DPE_OK;
}

dpe_status dpe_lexicon_make(const struct dpe_corpus *corpus, size_t n, struct dpe_texts *lexicon,
                            struct dpe_error *err)
{
    /* All words of the texts are taken, whatever n, so that n does not change the order. */
    *lexicon = (struct dpe_texts){0};
    DPE_TRY(corpus != NULL ? from_corpus(corpus, lexicon, err) : DPE_OK);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 0, MAKE_STREAM);
    while (lexicon->n < n) {
        char word[16];
        size_t number = 0;
        pronounce(&rng, word);
        DPE_TRY(dpe_texts_add(lexicon, word, &number, err));
    }
    lexicon->n = n;
    return DPE_OK;
}

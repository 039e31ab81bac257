/* Words of texts and pronounceable ones. */
#include "eval/task/lexicon.h"

#include <jansson.h>
#include <stdlib.h>

enum { MIN_LETTERS = 4, MAX_LETTERS = 10, MAX_TEXT = 4 << 20, SHUFFLE_STREAM = 1, MAKE_STREAM = 2 };

static dpe_status no_memory(struct dpe_error *err)
{
    return dpe_fail(err, DPE_NO_MEMORY, "no memory for a list of words");
}

/* Add the word unless it is one of the members of `seen`. */
static dpe_status add_word(struct dpe_lexicon *lexicon, json_t *seen, const char *word, size_t n,
                           struct dpe_error *err)
{
    size_t before = lexicon->text.n;
    size_t at = before + 1;
    DPE_TRY(dpe_text_append(&lexicon->text, " ", 1, err));
    DPE_TRY(dpe_text_append(&lexicon->text, word, n, err));
    DPE_TRY(dpe_text_append(&lexicon->text, "", 1, err));
    if (json_object_get(seen, lexicon->text.bytes + at) != NULL) {
        lexicon->text.n = before;
        return DPE_OK;
    }
    lexicon->at[lexicon->n++] = at;
    return json_object_set_new(seen, lexicon->text.bytes + at, json_true()) == 0 ? DPE_OK
                                                                                 : no_memory(err);
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

/* Words of one text until there are n. */
static dpe_status take_words(const char *text, size_t size, size_t n, struct dpe_lexicon *lexicon,
                             json_t *seen, struct dpe_error *err)
{
    for (size_t i = 0; i < size && lexicon->n < n;) {
        size_t start = i;
        bool small = true;
        while (i < size && part_of_word(text[i])) {
            small = small && small_letter(text[i]);
            i++;
        }
        if (small && i - start >= MIN_LETTERS && i - start <= MAX_LETTERS) {
            DPE_TRY(add_word(lexicon, seen, text + start, i - start, err));
        }
        i += i == start;
    }
    return DPE_OK;
}

static void shuffle(struct dpe_lexicon *lexicon)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 0, SHUFFLE_STREAM);
    for (size_t i = 1; i < lexicon->n; i++) {
        size_t j = dpe_rng_below(&rng, (uint32_t)i + 1);
        size_t at = lexicon->at[i];
        lexicon->at[i] = lexicon->at[j];
        lexicon->at[j] = at;
    }
}

/* Consonant and vowel, two or three times, perhaps with a consonant at the end. */
static size_t pronounce(struct dpe_rng *rng, char word[16])
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
    return n;
}

static dpe_status from_corpus(const struct dpe_corpus *corpus, struct dpe_lexicon *lexicon,
                              size_t most, json_t *seen, struct dpe_error *err)
{
    size_t left = MAX_TEXT;
    for (size_t i = 0; i < dpe_corpus_size(corpus) && left > 0; i++) {
        const struct dpe_book *book = dpe_corpus_book(corpus, i);
        size_t size = book->n < left ? book->n : left;
        DPE_TRY(take_words(book->text, size, most, lexicon, seen, err));
        left -= size;
    }
    shuffle(lexicon);
    return DPE_OK;
}

dpe_status dpe_lexicon_make(const struct dpe_corpus *corpus, size_t n, struct dpe_lexicon *lexicon,
                            struct dpe_error *err)
{
    /* All words of the texts are taken, whatever n, so that n does not change the order. */
    size_t most = MAX_TEXT / (MIN_LETTERS + 1) + n;
    json_auto_t *seen = json_object();
    *lexicon = (struct dpe_lexicon){.at = dpe_alloc(most, sizeof *lexicon->at)};
    if (seen == NULL || lexicon->at == NULL) {
        return no_memory(err);
    }
    if (corpus != NULL) {
        DPE_TRY(from_corpus(corpus, lexicon, most, seen, err));
    }
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 0, MAKE_STREAM);
    while (lexicon->n < n) {
        char word[16];
        size_t size = pronounce(&rng, word);
        DPE_TRY(add_word(lexicon, seen, word, size, err));
    }
    lexicon->n = n;
    return DPE_OK;
}

void dpe_lexicon_free(struct dpe_lexicon *lexicon)
{
    dpe_text_free(&lexicon->text);
    free(lexicon->at);
    *lexicon = (struct dpe_lexicon){0};
}

const char *dpe_lexicon_word(const struct dpe_lexicon *lexicon, size_t i)
{
    return lexicon->text.bytes + lexicon->at[i];
}

/* RULER's word lists: common words (cwe) and frequent code words (fwe). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/ruler/ruler.h"

enum { LONG_LENGTH = 4096, COMMON = 10, FREQUENT = 3, LETTERS = 6, CODE = LETTERS + 2 };

/* -------------------------------------------------------------------------------- common words */

/* How often words occur; less often below 4096 tokens, as in the original. */
struct repeats {
    size_t common, rest;  /* in the list */
    size_t example_words; /* distinct words of the example */
    size_t example_common, example_rest;
};

static struct repeats repeats_at(int64_t length)
{
    return length < LONG_LENGTH ? (struct repeats){6, 1, 20, 3, 1}
                                : (struct repeats){30, 3, 40, 10, 3};
}

/* Words in a list of n distinct ones. */
static size_t listed(size_t n, size_t common, size_t rest)
{
    return COMMON * common + (n - COMMON) * rest;
}

static double cwe_cost(const struct dpe_ruler_draw *draw, int64_t n)
{
    struct repeats repeats = repeats_at(draw->length);
    double words = (double)listed((size_t)n, repeats.common, repeats.rest);
    double cost = words * draw->ruler->word_cost;
    double below = 0.0, power = 10.0;
    for (int digits = 1; digits < DPE_RULER_DIGITS && below < words; digits++, power *= 10.0) {
        double here = (words < power - 1.0 ? words : power - 1.0) - below;
        cost += here * draw->ruler->number_cost[digits];
        below += here;
    }
    return cost;
}

/* Put "1. word 2. word …" with the n distinct words at `words`, shuffled. */
static void put_list(const struct dpe_ruler_draw *draw, const size_t *words, size_t n,
                     size_t common, size_t rest, struct dpe_text *text)
{
    size_t size = listed(n, common, rest), at = 0;
    DPE_OWNED size_t *list = dpe_alloc(size, sizeof *list);
    if (list == NULL) {
        text->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < (i < COMMON ? common : rest); j++) {
            list[at++] = words[i];
        }
    }
    dpe_ruler_shuffle(draw, list, size);
    for (size_t i = 0; i < size; i++) {
        dpe_text_put(text, "%s%zu. %s", i == 0 ? "" : " ", i + 1, draw->ruler->lexicon.at[list[i]]);
    }
}

static void put_asking(const struct dpe_ruler_draw *draw, const char *question,
                       const char *beginning, int count, struct dpe_text *text,
                       struct dpe_text *answer)
{
    char number[16];
    snprintf(number, sizeof number, "%d", count);
    const struct dpe_phrase_value values[] = {{"count", number}, {NULL, NULL}};
    const struct dpe_phrases *words = &draw->ruler->words;
    dpe_phrases_put(words, question, values, text);
    dpe_phrases_put(words, beginning, values, answer);
}

/* Write a small list with its answer into draw->scratch. */
static void write_example(struct dpe_ruler_draw *draw)
{
    struct repeats repeats = repeats_at(draw->length);
    struct dpe_text *text = &draw->scratch;
    dpe_text_put(text, "%s", dpe_phrases_text(&draw->ruler->words, "cwe_intro"));
    put_list(draw, draw->unit, repeats.example_words, repeats.example_common, repeats.example_rest,
             text);
    put_asking(draw, "cwe_question", "cwe_answer", COMMON, text, text);
    for (size_t i = 0; i < COMMON; i++) {
        dpe_text_put(text, " %zu. %s", i + 1, draw->ruler->lexicon.at[draw->unit[i]]);
    }
    dpe_text_put(text, "\n\n");
}

/* `unit` has the words of the example, then those of the list, the common ones first. */
static dpe_status cwe_draw(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    struct repeats repeats = repeats_at(draw->length);
    size_t n = dpe_ruler_words(draw->length);
    DPE_TRY(DPE_NEW(&draw->unit, n, err, "ruler: no memory for a sample"));
    dpe_draw_order(&draw->rng, draw->unit, n);
    draw->min_units = COMMON + 1;
    draw->max_units = (int64_t)(n - repeats.example_words);
    write_example(draw);
    for (size_t i = 0; i < COMMON; i++) {
        size_t word = draw->unit[repeats.example_words + i];
        DPE_TRY(dpe_ruler_refer(draw, draw->ruler->lexicon.at[word], err));
    }
    return DPE_OK;
}

static void cwe_compose(struct dpe_ruler_draw *draw, int64_t n, struct dpe_text *text,
                        struct dpe_text *answer)
{
    struct repeats repeats = repeats_at(draw->length);
    dpe_text_put_bytes(text, draw->scratch.bytes, draw->scratch.n);
    dpe_text_put(text, "%s", dpe_phrases_text(&draw->ruler->words, "cwe_intro"));
    put_list(draw, draw->unit + repeats.example_words, (size_t)n, repeats.common, repeats.rest,
             text);
    put_asking(draw, "cwe_question", "cwe_answer", COMMON, text, answer);
}

const struct dpe_ruler_maker dpe_ruler_cwe = {cwe_draw, cwe_cost, cwe_compose};

/* -------------------------------------------------------------------------- frequent code words */

/* How often the word of a rank occurs among `total` words: its share is 1/rank² over their sum. */
static size_t times(int64_t total, size_t rank)
{
    static const double zeta_2 = 1.6449340668482264365;
    double k = (double)rank;
    return (size_t)((double)total / (k * k) / zeta_2);
}

/* Ranks 2, 3 and 4 are the answer: each must occur more often than the next. */
static bool distinct(int64_t total)
{
    return times(total, 2) > times(total, 3) && times(total, 3) > times(total, 4) &&
           times(total, 4) > times(total, 5);
}

/* The most words, at most n, whose answer is beyond doubt; 0: none. */
static int64_t sound(int64_t n)
{
    while (n > 0 && !distinct(n)) {
        n--;
    }
    return n;
}

static size_t n_ranks(const struct dpe_ruler_draw *draw)
{
    size_t most = draw->length / 50 < 5 ? 5 : (size_t)draw->length / 50;
    size_t needed = (size_t)sqrt((double)draw->max_units) + 1;
    return most < needed ? most : needed < 5 ? 5 : needed;
}

static const char *code_word(const struct dpe_ruler_draw *draw, size_t rank)
{
    return rank == 1 ? "..." : draw->scratch.bytes + (rank - 1) * CODE + 1;
}

static double fwe_cost(const struct dpe_ruler_draw *draw, int64_t n)
{
    double cost = 0.0;
    int64_t total = sound(n);
    for (size_t rank = 1; rank <= n_ranks(draw) && times(total, rank) > 0; rank++) {
        cost += (double)times(total, rank) * draw->cost[rank - 1];
    }
    return cost;
}

static bool fresh_code(const struct dpe_ruler_draw *draw, const char *code)
{
    for (size_t at = 1; at < draw->scratch.n; at += CODE) {
        if (strcmp(draw->scratch.bytes + at, code) == 0) {
            return false;
        }
    }
    return true;
}

/* scratch: a space, the word and a NUL for every rank. */
static dpe_status fwe_draw(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    draw->max_units = draw->length;
    while (!distinct(++draw->min_units)) {
    }
    draw->max_units = draw->length > draw->min_units ? draw->length : draw->min_units;
    size_t n = n_ranks(draw);
    DPE_TRY(DPE_NEW(&draw->cost, n, err, "ruler: no memory for a sample"));
    for (size_t rank = 1; rank <= n; rank++) {
        char code[CODE] = " ";
        do {
            for (int i = 1; i <= LETTERS; i++) {
                code[i] = (char)('a' + (int)dpe_rng_below(&draw->rng, 26));
            }
        } while (!fresh_code(draw, code + 1));
        dpe_text_put_bytes(&draw->scratch, code, CODE);
        DPE_TRY(dpe_text_done(&draw->scratch, err));
        DPE_TRY(dpe_ruler_count(draw->ruler, rank == 1 ? " ..." : code, rank == 1 ? 4 : LETTERS + 1,
                                draw->cost + rank - 1, err));
    }
    for (size_t rank = 2; rank < 2 + FREQUENT; rank++) {
        DPE_TRY(dpe_ruler_refer(draw, code_word(draw, rank), err));
    }
    return DPE_OK;
}

static void put_codes(const struct dpe_ruler_draw *draw, int64_t total, struct dpe_text *text)
{
    DPE_OWNED size_t *list = dpe_alloc((size_t)total, sizeof *list);
    size_t n = 0;
    if (list == NULL) {
        text->failed = true;
        return;
    }
    for (size_t rank = 1; rank <= n_ranks(draw); rank++) {
        for (size_t i = 0; i < times(total, rank); i++) {
            list[n++] = rank;
        }
    }
    dpe_ruler_shuffle(draw, list, n);
    for (size_t i = 0; i < n; i++) {
        dpe_text_put(text, "%s%s", i > 0 ? " " : "", code_word(draw, list[i]));
    }
}

static void fwe_compose(struct dpe_ruler_draw *draw, int64_t n, struct dpe_text *text,
                        struct dpe_text *answer)
{
    dpe_text_put(text, "%s", dpe_phrases_text(&draw->ruler->words, "fwe_intro"));
    put_codes(draw, sound(n), text);
    put_asking(draw, "fwe_question", "fwe_answer", FREQUENT, text, answer);
}

const struct dpe_ruler_maker dpe_ruler_fwe = {fwe_draw, fwe_cost, fwe_compose};

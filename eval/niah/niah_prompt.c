/* One sample of the needle task in words: what is drawn, and the finished text. */
#include "eval/niah/niah_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/score/pytext.h"
#include "eval/task/prompt.h"

enum { PAPER_LENGTH = 4096, PAPER_ROOM = 128, SPARE_TOKENS = 8, MAX_TRIES = 1000 };

static const char *draw_word(const struct dpe_niah *niah, struct dpe_rng *rng, const char *list)
{
    size_t n = dpe_phrases_words(&niah->phrases, list);
    return dpe_phrases_word(&niah->phrases, list, dpe_rng_below(rng, (uint32_t)n));
}

static void draw_keys(const struct dpe_niah *niah, struct dpe_rng *rng, struct dpe_niah_draw *draw)
{
    for (int i = 0; i < niah->params.keys; i++) {
        bool fresh = false;
        while (!fresh) {
            const char *adjective = draw_word(niah, rng, "adjectives");
            const char *noun = draw_word(niah, rng, "nouns");
            snprintf(draw->keys[i], sizeof draw->keys[i], "%s-%s", adjective, noun);
            fresh = true;
            for (int j = 0; j < i; j++) {
                fresh = fresh && strcmp(draw->keys[i], draw->keys[j]) != 0;
            }
        }
    }
}

static dpe_status join_asked(const struct dpe_niah *niah, struct dpe_niah_draw *draw,
                             struct dpe_error *err)
{
    struct dpe_text asked = {0};
    draw->first = 0;
    for (int i = 0; i < niah->params.queries; i++) {
        dpe_text_put(&asked, "%s%s",
                     i == 0 ? "" : dpe_phrases_text(&niah->phrases, "keys_separator"),
                     draw->keys[i]);
    }
    draw->asked = asked.bytes;
    return dpe_text_done(&asked, err);
}

dpe_status dpe_niah_ask(struct dpe_niah_draw *draw, int key, struct dpe_error *err)
{
    char *asked = strdup(draw->keys[key]);
    DPE_TRY(DPE_MADE(asked, err, "niah: no memory for a sample"));
    free(draw->asked);
    draw->asked = asked;
    draw->first = key;
    return DPE_OK;
}

dpe_status dpe_niah_draw_words(const struct dpe_niah *niah, struct dpe_rng *rng,
                               struct dpe_niah_draw *draw, struct dpe_error *err)
{
    size_t n = (size_t)niah->params.keys * (size_t)niah->params.values;
    *draw = (struct dpe_niah_draw){.n = (int)n};
    DPE_TRY(DPE_NEW(&draw->keys, (size_t)niah->params.keys, err, "niah: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->values, n, err, "niah: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->needle, n, err, "niah: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->depth, n, err, "niah: no memory for a sample"));
    draw_keys(niah, rng, draw);
    dpe_draw_order(rng, draw->needle, n);
    for (int i = 0; i < draw->n; i++) {
        double drawn = dpe_rng_unit(rng);
        draw->depth[i] = isnan(niah->params.depth) ? drawn : niah->params.depth;
    }
    return join_asked(niah, draw, err);
}

static bool fresh_value(const struct dpe_niah_draw *draw, int i, const struct dpe_text *haystack)
{
    for (int j = 0; j < draw->n; j++) {
        if (j != i && strcmp(draw->values[i], draw->values[j]) == 0) {
            return false;
        }
    }
    return dpe_span_find(dpe_span_of_text(haystack), dpe_span_of(draw->values[i])) == SIZE_MAX;
}

void dpe_niah_answer(const struct dpe_niah *niah, const struct dpe_niah_draw *draw, int n,
                     bool first, struct dpe_text *text)
{
    int value = draw->first * niah->params.values + n;
    const struct dpe_phrase_value values[] = {{"key", draw->keys[value / niah->params.values]},
                                              {"value", draw->values[value]},
                                              {"keys", draw->asked},
                                              {NULL, NULL}};
    if (!first) {
        dpe_phrases_put(&niah->phrases, "answer_prefix", values, text);
    }
    dpe_phrases_put(&niah->phrases, "answer", values, text);
}

static dpe_status compute_room(const struct dpe_niah *niah, struct dpe_niah_draw *draw,
                               struct dpe_error *err)
{
    if (niah->length >= PAPER_LENGTH && niah->params.spare == 0) {
        draw->room = PAPER_ROOM;
        return DPE_OK;
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_LITERAL};
    /* The answers as the template expects them after the prompt's last word. */
    for (int i = 0; i < niah->params.queries * niah->params.values; i++) {
        dpe_niah_answer(niah, draw, i, i == 0, &text);
    }
    DPE_TRY(dpe_text_done(&text, err));
    DPE_TRY(dpe_tokenizer_encode(niah->tokenizer, text.bytes, text.n, &options, &tokens, err));
    const bool paper = niah->length >= PAPER_LENGTH;
    const bool given = niah->params.spare > 0 && (paper || niah->params.spare < SPARE_TOKENS);
    const int64_t need = (int64_t)tokens.n + (given ? niah->params.spare : SPARE_TOKENS);
    draw->room = dpe_least(need, PAPER_ROOM);
    return DPE_OK;
}

static dpe_status draw_value(const struct dpe_niah *niah, const struct dpe_text *haystack, int i,
                             struct dpe_rng *rng, struct dpe_niah_draw *draw, struct dpe_error *err)
{
    int tries = 0;
    do {
        if (tries++ == MAX_TRIES) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "niah: in %d tries every number of %d digits was in the haystack "
                            "already; give more digits",
                            MAX_TRIES, niah->params.digits);
        }
        draw->values[i][0] = (char)('1' + (int)dpe_rng_below(rng, 9));
        for (int d = 1; d < niah->params.digits; d++) {
            draw->values[i][d] = (char)('0' + (int)dpe_rng_below(rng, 10));
        }
    } while (!fresh_value(draw, i, haystack));
    return DPE_OK;
}

dpe_status dpe_niah_draw_values(const struct dpe_niah *niah, const struct dpe_text *haystack,
                                struct dpe_rng *rng, struct dpe_niah_draw *draw,
                                struct dpe_error *err)
{
    for (int i = 0; i < draw->n; i++) {
        DPE_TRY(draw_value(niah, haystack, i, rng, draw, err));
    }
    return compute_room(niah, draw, err);
}

dpe_status dpe_niah_draw_half(const struct dpe_niah *niah, const struct dpe_text *haystack,
                              struct dpe_rng *rng, struct dpe_niah_draw *draw,
                              struct dpe_error *err)
{
    for (int i = (draw->n + 1) / 2; i < draw->n; i++) {
        draw->depth[i] = dpe_rng_unit(rng);
        DPE_TRY(draw_value(niah, haystack, (int)draw->needle[i], rng, draw, err));
    }
    return DPE_OK;
}

void dpe_niah_draw_free(struct dpe_niah_draw *draw)
{
    free(draw->keys);
    free(draw->values);
    free(draw->needle);
    free(draw->depth);
    free(draw->asked);
    *draw = (struct dpe_niah_draw){0};
}

/* Bytes in front of needle i in a haystack of n. */
static size_t needle_place(const struct dpe_niah *niah, const struct dpe_niah_draw *draw, int i,
                           const char *haystack, size_t n)
{
    size_t low = 0;
    size_t high = n;
    if (isnan(niah->params.depth)) {
        low = (size_t)((double)n * i / draw->n);
        high = (size_t)((double)n * (i + 1) / draw->n);
    }
    size_t want = low + (size_t)(draw->depth[i] * (double)(high - low));
    return dpe_haystack_place(haystack, n, low, high, want);
}

/* Haystack with needles, without white space in front. */
static void put_body(const struct dpe_niah *niah, const struct dpe_niah_draw *draw,
                     const char *haystack, size_t n, struct dpe_text *text)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text body = {0};
    size_t at = 0;
    for (int i = 0; i < draw->n; i++) {
        const size_t needle = draw->needle[i];
        const struct dpe_phrase_value values[] = {
            {"key", draw->keys[needle / (size_t)niah->params.values]},
            {"value", draw->values[needle]},
            {NULL, NULL}};
        size_t place = needle_place(niah, draw, i, haystack, n);
        place = place > at ? place : at;
        dpe_text_put_bytes(&body, haystack + at, place - at);
        dpe_phrases_put(&niah->phrases, "needle", values, &body);
        at = place;
    }
    dpe_text_put_bytes(&body, haystack + at, n - at);
    text->failed = text->failed || body.failed;
    if (!text->failed) {
        size_t spaces = strspn(body.bytes, " \t\n\v\f\r");
        dpe_text_put_bytes(text, body.bytes + spaces, body.n - spaces);
    }
}

dpe_status dpe_niah_assemble(const struct dpe_niah *niah, const struct dpe_niah_draw *draw,
                             const char *haystack, size_t n, struct dpe_text *text,
                             struct dpe_error *err)
{
    const struct dpe_phrases *words = &niah->phrases;
    const struct dpe_phrase_value values[] = {
        {"key", draw->keys[draw->first]}, {"keys", draw->asked}, {NULL, NULL}};
    text->n = 0;
    dpe_text_put(text, "%s", niah->frame.before);
    dpe_phrases_put(words, "intro", values, text);
    put_body(niah, draw, haystack, n, text);
    dpe_phrases_put(words, "question", values, text);
    dpe_text_put(text, "%s", niah->frame.after);
    dpe_phrases_put(words, "answer_prefix", values, text);
    return dpe_text_done(text, err);
}

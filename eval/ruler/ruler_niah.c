/* RULER's needles and variables: sentences hidden in an essay, in noise, or among similar ones. */
#include <stdio.h>
#include <string.h>

#include "eval/ruler/ruler.h"
#include "eval/score/pytext.h"

enum { KEY_WORDS = 4096, MAX_KEYS = 8, WORD = 64, MAX_TRIES = 1000, DISTRACTORS_AT_ONCE = 16 };
enum { VT_HOPS = 4, VT_LETTERS = 5, VT_EXAMPLE_LETTERS = 3, VT_EXAMPLE_NOISE = 5 };

/* ---------------------------------------------------------------------------- keys and values */

static void draw_uuid(struct dpe_rng *rng, char text[WORD])
{
    uint32_t r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = dpe_rng_u32(rng);
    }
    snprintf(text, WORD, "%08x-%04x-4%03x-%04x-%04x%08x", (unsigned)r[0], (unsigned)(r[1] >> 16),
             (unsigned)(r[1] & 0xfff), (unsigned)(0x8000 | (r[2] >> 16 & 0x3fff)),
             (unsigned)(r[2] & 0xffff), (unsigned)r[3]);
}

static void draw_number(struct dpe_rng *rng, char text[WORD])
{
    snprintf(text, WORD, "%u", (unsigned)(1000000 + dpe_rng_below(rng, 9000000)));
}

static void draw_key(const struct dpe_ruler_draw *draw, struct dpe_rng *rng, char text[WORD])
{
    if (draw->kind->uuid_keys) {
        draw_uuid(rng, text);
        return;
    }
    const struct dpe_texts *lexicon = &draw->ruler->lexicon;
    uint32_t n = lexicon->n < KEY_WORDS ? (uint32_t)lexicon->n : KEY_WORDS;
    const char *first = lexicon->at[dpe_rng_below(rng, n)];
    const char *second = lexicon->at[dpe_rng_below(rng, n)];
    snprintf(text, WORD, "%.20s-%.20s", first, second);
}

static void draw_value(const struct dpe_ruler_draw *draw, struct dpe_rng *rng, char text[WORD])
{
    if (draw->kind->uuid_values) {
        draw_uuid(rng, text);
    } else {
        draw_number(rng, text);
    }
}

static bool among(const char *word, char words[][WORD], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool in_essay(const struct dpe_ruler_draw *draw, const char *value)
{
    const struct dpe_ruler_essay *essay = &draw->ruler->essay;
    if (draw->kind->haystack != RULER_ESSAY || essay->n == 0) {
        return false;
    }
    size_t n = essay->at[dpe_ruler_sentences(draw->ruler, draw->length)];
    return dpe_span_find((struct dpe_span){essay->text.bytes, n}, dpe_span_of(value)) != SIZE_MAX;
}

/* The words for "number" in this task. */
static const char *phrase(const struct dpe_ruler_draw *draw, bool many)
{
    const bool uuid = draw->kind->uuid_values;
    return dpe_phrases_text(&draw->ruler->words, uuid   ? (many ? "uuid_many" : "uuid_one")
                                                 : many ? "number_many"
                                                        : "number_one");
}

static void put_needle(const struct dpe_ruler_draw *draw, const char *key, const char *value,
                       struct dpe_text *text)
{
    const struct dpe_phrase_value values[] = {
        {"key", key}, {"value", value}, {"one", phrase(draw, false)}, {NULL, NULL}};
    dpe_phrases_put(&draw->ruler->words, "niah_needle", values, text);
}

/* ------------------------------------------------------------------------------------- drawing */

/* The keys and values of one sample. */
struct secrets {
    char keys[MAX_KEYS][WORD], values[MAX_KEYS][WORD];
};

static dpe_status draw_secrets(struct dpe_ruler_draw *draw, struct secrets *secrets,
                               struct dpe_error *err)
{
    const struct dpe_ruler_kind *kind = draw->kind;
    size_t n = (size_t)kind->keys * (size_t)kind->values;
    for (size_t k = 0; k < (size_t)kind->keys; k++) {
        do {
            draw_key(draw, &draw->rng, secrets->keys[k]);
        } while (among(secrets->keys[k], secrets->keys, k));
    }
    for (size_t v = 0; v < n; v++) {
        int tries = 0;
        do {
            if (tries++ == MAX_TRIES) {
                return dpe_fail(err, DPE_BAD_DATA,
                                "ruler: every number that was drawn is in the texts already");
            }
            draw_value(draw, &draw->rng, secrets->values[v]);
        } while (among(secrets->values[v], secrets->values, v) ||
                 in_essay(draw, secrets->values[v]));
    }
    return DPE_OK;
}

/* Choose the keys of the question: the first ones after a shuffle, in order. */
static dpe_status ask(struct dpe_ruler_draw *draw, struct secrets *secrets, struct dpe_error *err)
{
    const struct dpe_ruler_kind *kind = draw->kind;
    size_t order[MAX_KEYS];
    dpe_draw_order(&draw->rng, order, (size_t)kind->keys);
    size_t at = 0;
    for (size_t q = 0; q < (size_t)kind->queries; q++) {
        bool last = q > 0 && q + 1 == (size_t)kind->queries;
        const char *separator = q == 0 ? ""
                                : last ? dpe_phrases_text(&draw->ruler->words, "keys_last")
                                       : dpe_phrases_text(&draw->ruler->words, "keys_separator");
        int n = snprintf(draw->asked + at, sizeof draw->asked - at, "%.8s%s", separator,
                         secrets->keys[order[q]]);
        at += (size_t)n;
        for (size_t v = 0; v < (size_t)kind->values; v++) {
            DPE_TRY(
                dpe_ruler_refer(draw, secrets->values[order[q] * (size_t)kind->values + v], err));
        }
    }
    return DPE_OK;
}

/* Write the needles' sentences in random order. */
static void write_needles(struct dpe_ruler_draw *draw, struct secrets *secrets)
{
    size_t values = (size_t)draw->kind->values;
    size_t order[MAX_KEYS];
    draw->n_needles = (size_t)draw->kind->keys * values;
    dpe_draw_order(&draw->rng, order, draw->n_needles);
    for (size_t i = 0; i < draw->n_needles; i++) {
        put_needle(draw, secrets->keys[order[i] / values], secrets->values[order[i]],
                   draw->needle + i);
    }
}

/* Write distractor lines until they exceed the length of the prompt: line i begins at unit[i]. */
static dpe_status draw_distractors(struct dpe_ruler_draw *draw, struct secrets *secrets,
                                   struct dpe_error *err)
{
    size_t most = (size_t)draw->length / 4 + DISTRACTORS_AT_ONCE;
    size_t n = 0;
    DPE_TRY(DPE_NEW(&draw->unit, most + 1, err, "ruler: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->cost, most + 1, err, "ruler: no memory for a sample"));
    while (draw->cost[n] < (double)draw->length && n + DISTRACTORS_AT_ONCE <= most) {
        size_t start = draw->scratch.n;
        for (size_t i = 1; i <= DISTRACTORS_AT_ONCE; i++) {
            char key[WORD], value[WORD];
            do {
                draw_key(draw, &draw->units, key);
                draw_value(draw, &draw->units, value);
            } while (among(key, secrets->keys, 1) || among(value, secrets->values, 1));
            put_needle(draw, key, value, &draw->scratch);
            dpe_text_put_bytes(&draw->scratch, "\n", 1);
            draw->unit[n + i] = draw->scratch.n;
        }
        DPE_TRY(dpe_text_done(&draw->scratch, err));
        double count = 0.0;
        DPE_TRY(dpe_ruler_count(draw->ruler, draw->scratch.bytes + start, draw->scratch.n - start,
                                &count, err));
        for (size_t i = 1; i <= DISTRACTORS_AT_ONCE; i++) {
            draw->cost[n + i] = draw->cost[n] + count * (double)i / DISTRACTORS_AT_ONCE;
        }
        n += DISTRACTORS_AT_ONCE;
    }
    draw->max_units = (int64_t)n;
    return DPE_OK;
}

static dpe_status draw_lines(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text line = {0};
    DPE_TRY(DPE_NEW(&draw->cost, 1, err, "ruler: no memory for a sample"));
    draw->max_units = draw->length;
    dpe_text_put(&line, "%s\n", dpe_phrases_text(&draw->ruler->words, "noise"));
    DPE_TRY(dpe_text_done(&line, err));
    return dpe_ruler_count(draw->ruler, line.bytes, line.n, draw->cost, err);
}

static dpe_status draw_essay(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    const struct dpe_ruler_essay *essay = &draw->ruler->essay;
    size_t n = dpe_ruler_sentences(draw->ruler, draw->length);
    if (n == 0) {
        return dpe_fail(err, DPE_USAGE, "ruler: %s hides its needles in texts: give --corpus PATH",
                        draw->kind->name);
    }
    draw->sentences = n;
    draw->first = dpe_rng_below(&draw->units, (uint32_t)n);
    double rounds = (double)draw->length / (essay->cost[n] + 1.0);
    draw->max_units = ((int64_t)rounds + 2) * (int64_t)n;
    return DPE_OK;
}

/* Ascending shares in [0, 1) for the needles. */
static void draw_places(struct dpe_ruler_draw *draw)
{
    for (size_t i = 0; i < draw->n_needles; i++) {
        draw->place[i] = dpe_rng_unit(&draw->rng);
    }
    dpe_sort(draw->place, draw->n_needles);
}

static dpe_status draw_haystack(struct dpe_ruler_draw *draw, struct secrets *secrets,
                                struct dpe_error *err)
{
    switch (draw->kind->haystack) {
    case RULER_ESSAY:
        return draw_essay(draw, err);
    case RULER_LINES:
        return draw_lines(draw, err);
    case RULER_NEEDLES:
        return draw_distractors(draw, secrets, err);
    }
    return dpe_fail(err, DPE_INTERNAL, "ruler: haystack %d", (int)draw->kind->haystack);
}

static dpe_status niah_draw(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    struct secrets secrets;
    DPE_TRY(draw_secrets(draw, &secrets, err));
    DPE_TRY(ask(draw, &secrets, err));
    write_needles(draw, &secrets);
    draw_places(draw);
    return draw_haystack(draw, &secrets, err);
}

static double cost_of(const struct dpe_ruler_draw *draw, int64_t n)
{
    if (draw->kind->haystack == RULER_LINES) {
        return (double)n * draw->cost[0];
    }
    if (draw->kind->haystack == RULER_NEEDLES) {
        return draw->cost[n];
    }
    const struct dpe_ruler_essay *essay = &draw->ruler->essay;
    size_t last = draw->first + (size_t)n;
    size_t round = draw->sentences;
    return (double)(last / round) * essay->cost[round] + essay->cost[last % round] -
           essay->cost[draw->first];
}

/* ----------------------------------------------------------------------------------- composing */

/* Append unit i and the separator that follows it. */
static void put_unit(const struct dpe_ruler_draw *draw, size_t i, struct dpe_text *text)
{
    const struct dpe_ruler_essay *essay = &draw->ruler->essay;
    if (draw->kind->haystack == RULER_LINES) {
        const char *noise = dpe_phrases_text(&draw->ruler->words, "noise");
        dpe_text_put_bytes(text, noise, strlen(noise));
        dpe_text_put_bytes(text, "\n", 1);
    } else if (draw->kind->haystack == RULER_NEEDLES) {
        dpe_text_put_bytes(text, draw->scratch.bytes + draw->unit[i],
                           draw->unit[i + 1] - draw->unit[i]);
    } else {
        const size_t *at = essay->at + (draw->first + i) % draw->sentences;
        dpe_text_put_bytes(text, essay->text.bytes + at[0], at[1] - at[0]);
    }
}

/* Append n units with the needles in their places, without white space at the end. */
static void put_haystack(const struct dpe_ruler_draw *draw, size_t n, struct dpe_text *text)
{
    const char *separator = draw->kind->haystack == RULER_ESSAY ? " " : "\n";
    size_t needle = 0;
    for (size_t i = 0; i <= n; i++) {
        while (needle < draw->n_needles && (size_t)(draw->place[needle] * (double)(n + 1)) <= i) {
            dpe_text_put_bytes(text, draw->needle[needle].bytes, draw->needle[needle].n);
            dpe_text_put_bytes(text, separator, 1);
            needle++;
        }
        if (i < n) {
            put_unit(draw, i, text);
        }
    }
    while (text->n > 0 && (text->bytes[text->n - 1] == ' ' || text->bytes[text->n - 1] == '\n')) {
        text->bytes[--text->n] = '\0';
    }
}

static void niah_compose(struct dpe_ruler_draw *draw, int64_t n, struct dpe_text *text,
                         struct dpe_text *answer)
{
    const struct dpe_phrases *words = &draw->ruler->words;
    bool many = draw->n_references > 1;
    const struct dpe_phrase_value values[] = {{"keys", draw->asked},
                                              {"one", phrase(draw, false)},
                                              {"many", phrase(draw, true)},
                                              {NULL, NULL}};
    dpe_phrases_put(words, "niah_intro", values, text);
    put_haystack(draw, (size_t)n, text);
    dpe_phrases_put(words, many ? "niah_question_many" : "niah_question_one", values, text);
    dpe_phrases_put(words, many ? "niah_answer_many" : "niah_answer_one", values, answer);
}

const struct dpe_ruler_maker dpe_ruler_niah = {niah_draw, cost_of, niah_compose};

/* ----------------------------------------------------------------------------------- variables */

/* Names of a chain and the value it begins with. */
struct chain {
    char names[VT_HOPS + 1][WORD];
    char value[WORD];
};

static void draw_chain(struct dpe_rng *rng, int letters, struct chain *chain)
{
    for (size_t i = 0; i <= VT_HOPS; i++) {
        do {
            for (int j = 0; j < letters; j++) {
                chain->names[i][j] = (char)('A' + (int)dpe_rng_below(rng, 26));
            }
            chain->names[i][letters] = '\0';
        } while (among(chain->names[i], chain->names, i));
    }
    snprintf(chain->value, sizeof chain->value, "%u",
             (unsigned)(10000 + dpe_rng_below(rng, 90000)));
}

/* Statement i of a chain. */
static void put_statement(const struct dpe_ruler_draw *draw, const struct chain *chain, size_t i,
                          struct dpe_text *text)
{
    const struct dpe_phrase_value values[] = {{"name", chain->names[i]},
                                              {"value", chain->value},
                                              {"from", i == 0 ? "" : chain->names[i - 1]},
                                              {NULL, NULL}};
    dpe_phrases_put(&draw->ruler->words, i == 0 ? "vt_first" : "vt_next", values, text);
}

static void put_question(const struct dpe_ruler_draw *draw, const char *value,
                         struct dpe_text *text, struct dpe_text *answer)
{
    char count[16];
    snprintf(count, sizeof count, "%d", VT_HOPS + 1);
    const struct dpe_phrase_value values[] = {{"value", value}, {"count", count}, {NULL, NULL}};
    dpe_phrases_put(&draw->ruler->words, "vt_question", values, text);
    dpe_phrases_put(&draw->ruler->words, "vt_answer", values, answer);
}

/* Write a small chain with its answer, the example before the question, into draw->scratch. */
static void write_example(struct dpe_ruler_draw *draw, const struct chain *chain)
{
    const struct dpe_phrases *words = &draw->ruler->words;
    struct dpe_text *text = &draw->scratch;
    const int64_t noise = dpe_least(draw->length / 1024, VT_EXAMPLE_NOISE);
    dpe_text_put(text, "%s", dpe_phrases_text(words, "vt_intro"));
    for (size_t i = 0; i <= VT_HOPS; i++) {
        if ((int64_t)i < noise) {
            dpe_text_put(text, "%s\n", dpe_phrases_text(words, "noise"));
        }
        put_statement(draw, chain, i, text);
        dpe_text_put(text, "%s", i < VT_HOPS ? "\n" : "");
    }
    put_question(draw, chain->value, text, text);
    for (size_t i = 0; i <= VT_HOPS; i++) {
        dpe_text_put(text, " %s", chain->names[i]);
    }
    dpe_text_put(text, "\n\n");
}

static dpe_status vt_draw(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    struct chain chain, example;
    draw_chain(&draw->rng, VT_LETTERS, &chain);
    do {
        draw_chain(&draw->rng, VT_EXAMPLE_LETTERS, &example);
    } while (strcmp(example.value, chain.value) == 0);
    draw->n_needles = VT_HOPS + 1;
    draw_places(draw);
    snprintf(draw->asked, sizeof draw->asked, "%s", chain.value);
    write_example(draw, &example);
    for (size_t i = 0; i <= VT_HOPS; i++) {
        put_statement(draw, &chain, i, draw->needle + i);
        DPE_TRY(dpe_ruler_refer(draw, chain.names[i], err));
    }
    return draw_lines(draw, err);
}

static void vt_compose(struct dpe_ruler_draw *draw, int64_t n, struct dpe_text *text,
                       struct dpe_text *answer)
{
    dpe_text_put_bytes(text, draw->scratch.bytes, draw->scratch.n);
    dpe_text_put(text, "%s", dpe_phrases_text(&draw->ruler->words, "vt_intro"));
    put_haystack(draw, (size_t)n, text);
    put_question(draw, draw->asked, text, answer);
}

const struct dpe_ruler_maker dpe_ruler_vt = {vt_draw, cost_of, vt_compose};

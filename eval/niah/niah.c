/* The needle task: opened, what a sample draws, its text, cut to length. */
#include "eval/niah/niah_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/chat/chat.h"
#include "eval/score/pytext.h"
#include "eval/task/prompt.h"
#include "eval/task/task.h"

/* Prompt + room lies in [L − SLACK, L]. */
enum { SLACK = 16, MAX_PROBES = 200, LONG_WORD = 256, MAX_LENGTH = 100000000 };

struct dpe_niah {
    struct dpe_niah_params params;
    int64_t length;
    const struct dpe_corpus *corpus;
    const struct dpe_tokenizer *tokenizer;
    uint64_t seed;
    struct dpe_phrases phrases;
    struct dpe_chat_frame frame; /* around the question */
    char hash[65];               /* of template and chat template */
    double bytes_per_token;      /* of the corpus */
};

/* ------------------------------------------------------------------------------------- opening */

dpe_status dpe_niah_template_open(const char *file, struct dpe_phrases *phrases,
                                  struct dpe_error *err)
{
    static const struct dpe_phrase_field fields[] = {
        {"intro", "", "keys", ""},          {"needle", "key value", ""},
        {"question", "keys", ""},           {"answer_prefix", "", "key keys", ""},
        {"answer", "value", "key"},         {"keys_separator", "", "", ", "},
        {"adjectives", "", "", NULL, true}, {"nouns", "", "", NULL, true},
    };
    return dpe_phrases_open(file, &dpe_builtin_niah, fields, sizeof fields / sizeof fields[0],
                            phrases, err);
}

/* About a special token in the text: around a chat template literal is refused. */
static const char *advice(const struct dpe_niah *niah)
{
    return dpe_chat_framed(&niah->frame)
               ? "--niah special=parse makes it the token"
               : "choose whether it is ordinary text or the token with --niah "
                 "special=literal or parse";
}

static dpe_status read_chat(struct dpe_niah *niah, const char *file, struct dpe_error *err)
{
    DPE_TRY(dpe_chat_wrap(file, dpe_tokenizer_path(niah->tokenizer), &niah->frame, err));
    if (dpe_chat_framed(&niah->frame) && niah->params.special == DPE_SPECIAL_LITERAL) {
        return dpe_fail(err, DPE_USAGE,
                        "niah: special=literal would spell out the special tokens of the chat "
                        "template; give only one of the two (--chat-template none leaves it out)");
    }
    return DPE_OK;
}

/* Every book is tokenized once: special-token text is met before any work, and the ratio of bytes
 * to tokens saves tokenizations later. */
static dpe_status check_corpus(struct dpe_niah *niah, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.special = niah->params.special,
                                               .advice = advice(niah)};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    double bytes = 0.0;
    double n_tokens = 0.0;
    for (size_t i = 0; i < niah->corpus->n; i++) {
        const struct dpe_book *book = &niah->corpus->books[i];
        tokens.n = 0;
        const dpe_status status =
            dpe_tokenizer_encode(niah->tokenizer, book->text, book->n, &options, &tokens, err);
        if (status != DPE_OK) {
            dpe_fail_prefix(err, "%s: book %s", niah->corpus->path, book->id);
            return status;
        }
        bytes += (double)book->n;
        n_tokens += (double)tokens.n;
    }
    niah->bytes_per_token = n_tokens > 0.0 ? bytes / n_tokens : 1.0;
    return DPE_OK;
}

static dpe_status open_template(struct dpe_niah *niah, struct dpe_error *err)
{
    DPE_TRY(dpe_niah_template_open(niah->params.template_file, &niah->phrases, err));
    size_t most = dpe_phrases_words(&niah->phrases, "adjectives") *
                  dpe_phrases_words(&niah->phrases, "nouns");
    return most >= (size_t)niah->params.keys
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "niah: keys=%d: the adjectives and nouns of the template make only %zu "
                          "keys",
                          niah->params.keys, most);
}

static dpe_status prepare(struct dpe_niah *niah, const char *chat_template, struct dpe_error *err)
{
    if (niah->length < 1 || niah->length > MAX_LENGTH) {
        return dpe_fail(err, DPE_USAGE, "niah: expected a length in 1 … %d, found %lld", MAX_LENGTH,
                        (long long)niah->length);
    }
    DPE_TRY(dpe_niah_check(&niah->params, err));
    DPE_TRY(open_template(niah, err));
    DPE_TRY(read_chat(niah, chat_template, err));
    DPE_TRY(dpe_chat_frame_hash(&niah->frame, niah->phrases.hash, niah->hash, err));
    DPE_TRY(dpe_phrases_check_digits(niah->tokenizer, err));
    DPE_TRY(check_corpus(niah, err));
    DPE_SCOPED(dpe_sample_free) struct dpe_sample trial = {0};
    return dpe_niah_sample(niah, 0, &trial, err);
}

dpe_status dpe_niah_open(const struct dpe_niah_params *params, int64_t length,
                         const struct dpe_corpus *corpus, const struct dpe_tokenizer *tokenizer,
                         const char *chat_template, uint64_t seed, struct dpe_niah **niah,
                         struct dpe_error *err)
{
    DPE_SCOPED(dpe_niah_close_scoped) struct dpe_niah *opened = NULL;
    DPE_TRY(DPE_NEW(&opened, 1, err, "niah: no memory for the task"));
    opened->params = *params;
    opened->length = length;
    opened->corpus = corpus;
    opened->tokenizer = tokenizer;
    opened->seed = seed;
    DPE_TRY(prepare(opened, chat_template, err));
    *niah = opened;
    opened = NULL;
    return DPE_OK;
}

void dpe_niah_close(struct dpe_niah *niah)
{
    if (niah == NULL) {
        return;
    }
    dpe_phrases_free(&niah->phrases);
    dpe_chat_frame_free(&niah->frame);
    free(niah);
}

const char *dpe_niah_template_hash(const struct dpe_niah *niah)
{
    return niah->hash;
}

/* -------------------------------------------------------------------------------------- words */

/* The needles and the question of one sample. Needle i lies in the i-th equal part of the
 * haystack. */
struct draw {
    char (*keys)[160];  /* [params.keys] */
    char (*values)[24]; /* [params.keys][params.values] */
    size_t *needle;     /* [n]: needle i holds key needle[i] / values, value needle[i] */
    double *depth; /* [n]: where in its part, 0 … 1 (the whole haystack when depth is fixed) */
    int n;         /* keys × values */
    char *asked;   /* the asked keys in one string */
    int first;     /* the first of them */
    int64_t room;  /* tokens to generate */
};
enum { PAPER_LENGTH = 4096, PAPER_ROOM = 128, SPARE_TOKENS = 8, MAX_TRIES = 1000 };

static const char *draw_word(const struct dpe_niah *niah, struct dpe_rng *rng, const char *list)
{
    size_t n = dpe_phrases_words(&niah->phrases, list);
    return dpe_phrases_word(&niah->phrases, list, dpe_rng_below(rng, (uint32_t)n));
}

static void draw_keys(const struct dpe_niah *niah, struct dpe_rng *rng, struct draw *draw)
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

static dpe_status join_asked(const struct dpe_niah *niah, struct draw *draw, struct dpe_error *err)
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

/* Let this draw ask key `key` alone. */
static dpe_status ask(struct draw *draw, int key, struct dpe_error *err)
{
    char *asked = strdup(draw->keys[key]);
    DPE_TRY(DPE_MADE(asked, err, "niah: no memory for a sample"));
    free(draw->asked);
    draw->asked = asked;
    draw->first = key;
    return DPE_OK;
}

/* Draw keys, order and depths. To be freed after failures too. */
static dpe_status draw_words(const struct dpe_niah *niah, struct dpe_rng *rng, struct draw *draw,
                             struct dpe_error *err)
{
    size_t n = (size_t)niah->params.keys * (size_t)niah->params.values;
    *draw = (struct draw){.n = (int)n};
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

static bool fresh_value(const struct draw *draw, int i, const struct dpe_text *haystack)
{
    for (int j = 0; j < draw->n; j++) {
        if (j != i && strcmp(draw->values[i], draw->values[j]) == 0) {
            return false;
        }
    }
    return dpe_span_find(dpe_span_of_text(haystack), dpe_span_of(draw->values[i])) == SIZE_MAX;
}

/* Put how an answer writes the n-th asked value: after the prompt where that is `first`, else after
 * another value. */
static void put_answer(const struct dpe_niah *niah, const struct draw *draw, int n, bool first,
                       struct dpe_text *text)
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

static dpe_status compute_room(const struct dpe_niah *niah, struct draw *draw,
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
        put_answer(niah, draw, i, i == 0, &text);
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
                             struct dpe_rng *rng, struct draw *draw, struct dpe_error *err)
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

/* Draw values that occur neither twice nor in the haystack, then compute the room. */
static dpe_status draw_values(const struct dpe_niah *niah, const struct dpe_text *haystack,
                              struct dpe_rng *rng, struct draw *draw, struct dpe_error *err)
{
    for (int i = 0; i < draw->n; i++) {
        DPE_TRY(draw_value(niah, haystack, i, rng, draw, err));
    }
    return compute_room(niah, draw, err);
}

/* Draw depths and values again for the needles in the second half of the context. */
static dpe_status draw_half(const struct dpe_niah *niah, const struct dpe_text *haystack,
                            struct dpe_rng *rng, struct draw *draw, struct dpe_error *err)
{
    for (int i = (draw->n + 1) / 2; i < draw->n; i++) {
        draw->depth[i] = dpe_rng_unit(rng);
        DPE_TRY(draw_value(niah, haystack, (int)draw->needle[i], rng, draw, err));
    }
    return DPE_OK;
}

static void free_draw(struct draw *draw)
{
    free(draw->keys);
    free(draw->values);
    free(draw->needle);
    free(draw->depth);
    free(draw->asked);
    *draw = (struct draw){0};
}

/* Bytes in front of needle i in a haystack of n. */
static size_t needle_place(const struct dpe_niah *niah, const struct draw *draw, int i,
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
static void put_body(const struct dpe_niah *niah, const struct draw *draw, const char *haystack,
                     size_t n, struct dpe_text *text)
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

/* The finished text of a prompt with the first `n` bytes of a haystack. */
static dpe_status assemble(const struct dpe_niah *niah, const struct draw *draw,
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

/* -------------------------------------------------------------------------------------- sizing */

/* One search for the haystack's size: what is known so far. */
struct fit {
    const struct dpe_niah *niah;
    const struct draw *draw;
    const struct dpe_text *haystack;
    bool whole;           /* the haystack is all there is */
    int64_t min, max;     /* wanted tokens */
    size_t low, high;     /* bytes: too few tokens at low, too many at high */
    int64_t at_low;       /* tokens at low */
    int64_t at_high;      /* tokens at high, −1 when nothing was too long yet */
    struct dpe_text text; /* the prompt tried last */
    struct dpe_tokens tokens;
    size_t size; /* bytes tried last */
    bool more;   /* ended because the haystack's reserve is too short */
};

static void free_fit(struct fit *fit)
{
    dpe_text_free(&fit->text);
    dpe_tokens_free(&fit->tokens);
}

static dpe_status encode_prompt(struct fit *fit, struct dpe_error *err)
{
    const struct dpe_niah *niah = fit->niah;
    bool chat = dpe_chat_framed(&niah->frame);
    const struct dpe_encode_options options = {.add_special = true,
                                               .once = chat,
                                               .special =
                                                   chat ? DPE_SPECIAL_PARSE : niah->params.special,
                                               .advice = advice(niah)};
    fit->tokens.n = 0;
    dpe_status status = dpe_tokenizer_encode(niah->tokenizer, fit->text.bytes, fit->text.n,
                                             &options, &fit->tokens, err);
    if (status != DPE_OK) {
        dpe_fail_prefix(err, "niah: prompt");
    }
    return status;
}

/* Try the first n bytes; *fits when the prompt has the wanted size. */
static dpe_status probe(struct fit *fit, size_t n, bool *fits, struct dpe_error *err)
{
    fit->size = n;
    DPE_TRY(assemble(fit->niah, fit->draw, fit->haystack->bytes, n, &fit->text, err));
    DPE_TRY(encode_prompt(fit, err));
    int64_t tokens = (int64_t)fit->tokens.n;
    *fits = tokens >= fit->min && tokens <= fit->max;
    if (tokens < fit->min) {
        fit->low = n;
        fit->at_low = tokens;
    } else if (tokens > fit->max) {
        fit->high = n;
        fit->at_high = tokens;
    }
    return DPE_OK;
}

/* Where the wanted size should be: on the line through what is known, or half-way. */
static double guess(const struct fit *fit, int tries)
{
    double target = (double)(fit->min + fit->max) / 2.0 - (double)fit->at_low;
    if (fit->at_high < 0) {
        return (double)fit->low + target * fit->niah->bytes_per_token;
    }
    double gap = (double)(fit->high - fit->low);
    double share = tries % 4 == 3 ? 0.5 : target / (double)(fit->at_high - fit->at_low);
    return (double)fit->low + share * gap;
}

/* The next size to try in (low, high): a word end near the guess, else a character; 0 for none. */
static size_t next_size(const struct fit *fit, int tries)
{
    const char *text = fit->haystack->bytes;
    size_t n = fit->haystack->n;
    size_t high = fit->at_high < 0 ? n + 1 : fit->high;
    double wanted = guess(fit, tries);
    size_t at = wanted < (double)n ? (size_t)wanted : n;
    at = at <= fit->low ? fit->low + 1 : at;
    at = at >= high ? high - 1 : at;
    size_t size = dpe_haystack_word_end(text, n, fit->low, at);
    /* The next word's end may be far away in a text without spaces. */
    for (size_t i = at + 1; size == fit->low && i < high && i < at + LONG_WORD; i++) {
        size = dpe_haystack_word_end(text, n, i - 1, i);
        size = size == i ? i : fit->low;
    }
    if (size == fit->low) {
        size = dpe_haystack_character(text, n, at);
    }
    for (size_t i = at + 1; size <= fit->low && i < high; i++) {
        size = dpe_haystack_character(text, n, i);
    }
    return size > fit->low && size < high ? size : 0;
}

static dpe_status too_short(const struct fit *fit, struct dpe_error *err)
{
    return dpe_fail(err, DPE_BAD_DATA,
                    "%s: the texts are too short for length %lld: %lld tokens are missing; add "
                    "texts, give a shorter --length or repeat the texts (--niah repeat=1)",
                    fit->niah->corpus->path, (long long)fit->niah->length,
                    (long long)(fit->min - fit->at_low));
}

static dpe_status find_size(struct fit *fit, struct dpe_error *err)
{
    bool fits = false;
    DPE_TRY(probe(fit, 0, &fits, err));
    if (!fits && fit->at_high >= 0) {
        int64_t need = fit->at_high + fit->draw->room;
        return dpe_fail(err, DPE_USAGE,
                        "niah: length %lld is too short: needles, question and %lld tokens for the "
                        "answer need %lld",
                        (long long)fit->niah->length, (long long)fit->draw->room, (long long)need);
    }
    for (int tries = 0; !fits && tries < MAX_PROBES; tries++) {
        bool beyond = fit->at_high < 0 && guess(fit, tries) >= (double)fit->haystack->n;
        if (beyond && !fit->whole) {
            fit->more = true;
            return DPE_OK;
        }
        size_t n = next_size(fit, tries);
        if (n == 0 && fit->at_high < 0) {
            return too_short(fit, err);
        }
        if (n == 0) {
            break;
        }
        DPE_TRY(probe(fit, n, &fits, err));
    }
    if (!fits) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: the text cannot be cut to a prompt of %lld to %lld tokens",
                        fit->niah->corpus->path, (long long)fit->min, (long long)fit->max);
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- samples */

/* How an answer writes each reference; what leads over to it stands at the end of the prompt too.
 */
static dpe_status take_answers(const struct dpe_niah *niah, const struct draw *draw,
                               struct dpe_sample *sample, struct dpe_error *err)
{
    DPE_TRY(DPE_NEW(&sample->answers, sample->n_references, err, "niah: no memory for answers"));
    DPE_TRY(DPE_NEW(&sample->skip, sample->n_references, err, "niah: no memory for answers"));
    for (size_t i = 0; i < sample->n_references; i++) {
        struct dpe_text text = {0};
        DPE_SCOPED(dpe_text_free) struct dpe_text first = {0};
        put_answer(niah, draw, (int)i, true, &first);
        put_answer(niah, draw, (int)i, false, &text);
        text.failed = text.failed || first.failed;
        sample->answers[i] = text.bytes;
        sample->skip[i] = text.n - first.n;
        DPE_TRY(dpe_text_done(&text, err));
    }
    return DPE_OK;
}

static dpe_status take_references(const struct dpe_niah *niah, const struct draw *draw,
                                  struct dpe_sample *sample, struct dpe_error *err)
{
    const size_t n = (size_t)niah->params.queries * (size_t)niah->params.values;
    const size_t first = (size_t)draw->first * (size_t)niah->params.values;
    DPE_TRY(DPE_NEW(&sample->references, n, err, "niah: no memory for the references"));
    for (size_t i = 0; i < n; i++) {
        sample->references[i] = strdup(draw->values[first + i]);
        sample->n_references = i + 1;
        DPE_TRY(DPE_MADE(sample->references[i], err, "niah: no memory for the references"));
    }
    return DPE_OK;
}

/* Which context a sample is about, and the first of those it shares its first half with. */
struct place {
    int64_t context, leader;
    int key; /* asked alone, −1 = as the parameters say */
};

static struct place place_of(const struct dpe_niah *niah, int64_t index)
{
    int64_t asked = niah->params.asked;
    int64_t context = index / asked;
    return (struct place){.context = context,
                          .leader = context - context % niah->params.shared,
                          .key = asked > 1 ? (int)(index % asked) : -1};
}

/* Contexts that share something are cut by their leader, with room for what differs. */
enum { SPARE = 6 };

/* Turn the leader's prompt into the sample's own: its half, its question. */
static dpe_status make_own(struct fit *fit, struct draw *draw, const struct place *place,
                           struct dpe_error *err)
{
    const struct dpe_niah *niah = fit->niah;
    if (place->context != place->leader) {
        struct dpe_rng rng;
        dpe_rng_seed(&rng, niah->seed, (uint64_t)place->context);
        DPE_TRY(draw_half(niah, fit->haystack, &rng, draw, err));
    }
    if (place->key >= 0) {
        DPE_TRY(ask(draw, place->key, err));
    }
    DPE_TRY(assemble(niah, draw, fit->haystack->bytes, fit->size, &fit->text, err));
    DPE_TRY(encode_prompt(fit, err));
    int64_t n = (int64_t)fit->tokens.n;
    int64_t most = niah->length - draw->room;
    if (n > most || n < most - SLACK) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "niah: prompts that share a context differ by too many tokens: expected "
                        "%lld to %lld, found %lld; use keys of more even length",
                        (long long)(most - SLACK), (long long)most, (long long)n);
    }
    return DPE_OK;
}

/* One attempt with a haystack of at most `reserve` bytes; *more when they did not suffice. */
static dpe_status attempt(const struct dpe_niah *niah, int64_t index, size_t reserve,
                          struct dpe_sample *sample, bool *more, struct dpe_error *err)
{
    const struct place place = place_of(niah, index);
    bool alone = niah->params.asked == 1 && niah->params.shared == 1;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, niah->seed, (uint64_t)place.leader);
    DPE_SCOPED(dpe_text_free) struct dpe_text haystack = {0};
    DPE_SCOPED(free_draw) struct draw draw = {0};
    DPE_SCOPED(free_fit)
    struct fit fit = {
        .niah = niah, .draw = &draw, .haystack = &haystack, .high = SIZE_MAX, .at_high = -1};
    DPE_TRY(dpe_haystack_make(niah->corpus, &rng, niah->params.repeat_haystack, reserve, &haystack,
                              &fit.whole, err));
    /* Values last: how many draws they take depends on the haystack. */
    DPE_TRY(draw_words(niah, &rng, &draw, err));
    DPE_TRY(draw_values(niah, &haystack, &rng, &draw, err));
    fit.max = niah->length - draw.room - (alone ? 0 : SPARE);
    fit.min = fit.max - (alone ? SLACK : SLACK - 2 * SPARE);
    DPE_TRY(find_size(&fit, err));
    *more = fit.more;
    if (fit.more) {
        return DPE_OK;
    }
    if (!alone) {
        DPE_TRY(make_own(&fit, &draw, &place, err));
    }
    DPE_TRY(take_references(niah, &draw, sample, err));
    if (niah->params.steps) {
        DPE_TRY(take_answers(niah, &draw, sample, err));
    }
    sample->prompt = fit.tokens;
    fit.tokens = (struct dpe_tokens){0};
    sample->max_new = draw.room;
    return DPE_OK;
}

dpe_status dpe_niah_sample(const struct dpe_niah *niah, int64_t index, struct dpe_sample *sample,
                           struct dpe_error *err)
{
    DPE_SCOPED(dpe_sample_free) struct dpe_sample made = {.index = index, .seed = niah->seed};
    bool more = true;
    double reserve = 1.25 * niah->bytes_per_token * (double)niah->length + 4096.0;
    for (; more; reserve *= 2.0) {
        if (!(reserve < 1e15)) {
            return dpe_fail(err, DPE_NO_MEMORY, "niah: a prompt of %lld tokens is too long",
                            (long long)niah->length);
        }
        DPE_TRY(attempt(niah, index, (size_t)reserve, &made, &more, err));
    }
    *sample = made;
    made = (struct dpe_sample){0};
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- task */

static dpe_status sample_niah(void *state, int64_t index, struct dpe_sample *sample,
                              struct dpe_error *err)
{
    return dpe_niah_sample(state, index, sample, err);
}

static void close_niah(void *state)
{
    dpe_niah_close(state);
}

/* What has no steps is refused before any work. */
static dpe_status check_steps(const struct dpe_niah *niah, const struct dpe_tokenizer *tokenizer,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_sample_free) struct dpe_sample sample = {0};
    DPE_TRY(dpe_niah_sample(niah, 0, &sample, err));
    return dpe_steps_check(&sample, tokenizer, err);
}

dpe_status dpe_task_niah(const char *name, struct dpe_niah *niah,
                         const struct dpe_tokenizer *tokenizer, struct dpe_task *task,
                         struct dpe_error *err)
{
    DPE_SCOPED(dpe_source_close)
    struct dpe_source source = {.n_samples = INT64_MAX,
                                .together = dpe_niah_together(&niah->params),
                                .state = niah,
                                .sample = sample_niah,
                                .score = dpe_recall,
                                .growing = true,
                                .steps = niah->params.steps,
                                .close = close_niah};
    if (source.steps) {
        DPE_TRY(check_steps(niah, tokenizer, err));
    }
    if (strlen(name) >= sizeof source.name) {
        return dpe_fail(err, DPE_INTERNAL, "task name \"%s\" is too long", name);
    }
    snprintf(source.name, sizeof source.name, "%s", name);
    return dpe_task_questions(&source, tokenizer, task, err);
}

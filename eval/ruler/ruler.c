/* RULER: its tasks, and how large a sample becomes. */
#include "eval/ruler/ruler.h"

#include <stdlib.h>
#include <string.h>

#include "eval/score/score.h"

enum { MAX_TRIES = 64 };

#define NEEDLES(task, room_keys, room_values, room_queries, where, by_uuid, to_uuid)               \
    {                                                                                              \
        .name = task, .room = 128, .score = dpe_score_all, .maker = &dpe_ruler_niah,               \
        .keys = room_keys, .values = room_values, .queries = room_queries, .haystack = where,      \
        .uuid_keys = by_uuid, .uuid_values = to_uuid                                               \
    }

static const struct dpe_ruler_kind kinds[] = {
    NEEDLES("niah_single_1", 1, 1, 1, RULER_LINES, false, false),
    NEEDLES("niah_single_2", 1, 1, 1, RULER_ESSAY, false, false),
    NEEDLES("niah_single_3", 1, 1, 1, RULER_ESSAY, false, true),
    NEEDLES("niah_multikey_1", 4, 1, 1, RULER_ESSAY, false, false),
    NEEDLES("niah_multikey_2", 1, 1, 1, RULER_NEEDLES, false, false),
    NEEDLES("niah_multikey_3", 1, 1, 1, RULER_NEEDLES, true, true),
    NEEDLES("niah_multivalue", 1, 4, 1, RULER_ESSAY, false, false),
    NEEDLES("niah_multiquery", 4, 1, 4, RULER_ESSAY, false, false),
    {"vt", 30, dpe_score_all, &dpe_ruler_vt, .haystack = RULER_LINES},
    {"cwe", 120, dpe_score_all, &dpe_ruler_cwe},
    {"fwe", 50, dpe_score_all, &dpe_ruler_fwe},
    {"qa_1", 32, dpe_score_part, &dpe_ruler_qa, .dataset = DPE_QA_SQUAD},
    {"qa_2", 32, dpe_score_part, &dpe_ruler_qa, .dataset = DPE_QA_HOTPOTQA},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const struct dpe_ruler_kind *dpe_ruler_kind(size_t i)
{
    return i < N_KINDS ? kinds + i : NULL;
}

/* --------------------------------------------------------------------------------- one sample */

static void free_draw(struct dpe_ruler_draw *draw)
{
    for (size_t i = 0; i < draw->n_references; i++) {
        free(draw->references[i]);
    }
    for (size_t i = 0; i < sizeof draw->needle / sizeof draw->needle[0]; i++) {
        dpe_text_free(draw->needle + i);
    }
    free(draw->references);
    dpe_text_free(&draw->scratch);
    free(draw->unit);
    free(draw->cost);
    free(draw->pick);
}

/* A composed prompt. */
struct prompt {
    struct dpe_text text;
    struct dpe_tokens tokens;
    int64_t n; /* units */
};

static void free_prompt(struct prompt *prompt)
{
    dpe_text_free(&prompt->text);
    dpe_tokens_free(&prompt->tokens);
}

static dpe_status compose(struct dpe_ruler_draw *draw, int64_t n, struct prompt *prompt,
                          struct dpe_error *err)
{
    const struct dpe_ruler *ruler = draw->ruler;
    const bool chat = dpe_chat_framed(&ruler->frame);
    struct dpe_encode_options options = dpe_ruler_encoding(ruler);
    struct dpe_text *text = &prompt->text;
    DPE_SCOPED(dpe_text_free) struct dpe_text answer = {0};
    text->n = 0;
    prompt->n = n;
    dpe_text_put(text, "%s", ruler->frame.before);
    draw->kind->maker->compose(draw, n, text, &answer);
    dpe_text_put(text, "%s", ruler->frame.after);
    dpe_text_put_bytes(text, answer.bytes, answer.n);
    text->failed = text->failed || answer.failed;
    DPE_TRY(dpe_text_done(text, err));
    options.add_special = true;
    options.once = chat;
    options.special = chat ? DPE_SPECIAL_PARSE : ruler->special;
    prompt->tokens.n = 0;
    if (dpe_tokenizer_encode(ruler->tokenizer, text->bytes, text->n, &options, &prompt->tokens,
                             err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s%s%s: prompt of sample %lld",
                               draw->file != NULL ? draw->file : "", draw->file != NULL ? ": " : "",
                               draw->kind->name, (long long)draw->index);
    }
    return DPE_OK;
}

/* The most units in [low, high] whose cost is at most `most`; low when none is. */
static int64_t most_units(const struct dpe_ruler_draw *draw, int64_t low, int64_t high, double most)
{
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (draw->kind->maker->cost(draw, middle) <= most) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* The number of units to try next when `best` fits and `fail` does not: estimated from the costs
 * and the tokens of a prompt of n units, or half-way after several tries without success. */
static int64_t next_units(const struct dpe_ruler_draw *draw, int64_t best, int64_t fail, int64_t n,
                          double spare, int tries)
{
    if (tries > 8) {
        return best + (fail - best) / 2;
    }
    return most_units(draw, best, fail - 1, draw->kind->maker->cost(draw, n) + spare);
}

/* The largest prompt of at most `max` tokens: *best. */
static dpe_status fit(struct dpe_ruler_draw *draw, int64_t max, struct prompt *best,
                      struct dpe_error *err)
{
    DPE_SCOPED(free_prompt) struct prompt tried = {0};
    DPE_TRY(compose(draw, draw->min_units, best, err));
    if ((int64_t)best->tokens.n > max) {
        return dpe_fail(err, DPE_USAGE,
                        "ruler: length %lld is too short for %s: its smallest sample needs %lld",
                        (long long)draw->length, draw->kind->name,
                        (long long)(draw->length - max + (int64_t)best->tokens.n));
    }
    int64_t fail = draw->max_units + 1;
    int64_t n = draw->min_units;
    double spare = (double)(max - (int64_t)best->tokens.n);
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        n = next_units(draw, best->n, fail, n, spare, tries);
        if (n == best->n) {
            break;
        }
        DPE_TRY(compose(draw, n, &tried, err));
        spare = (double)(max - (int64_t)tried.tokens.n);
        if (spare >= 0.0) {
            struct prompt kept = *best;
            *best = tried;
            tried = kept;
        } else {
            fail = n;
        }
    }
    if (best->n == draw->max_units && draw->file != NULL &&
        max - (int64_t)best->tokens.n > draw->length / 16) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: too few documents for length %lld: %lld tokens are missing; give "
                        "a larger file or a shorter --length",
                        draw->file, (long long)draw->length,
                        (long long)(max - (int64_t)best->tokens.n));
    }
    return DPE_OK;
}

static dpe_status draw_words(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    DPE_TRY(draw->kind->maker->draw(draw, err));
    for (size_t i = 0; i < draw->n_needles; i++) {
        DPE_TRY(dpe_text_done(draw->needle + i, err));
    }
    return dpe_text_done(&draw->scratch, err);
}

dpe_status dpe_ruler_sample(const struct dpe_ruler *ruler, const struct dpe_ruler_kind *kind,
                            int64_t length, int64_t index, struct dpe_sample *sample,
                            struct dpe_text *text, struct dpe_error *err)
{
    DPE_SCOPED(free_draw)
    struct dpe_ruler_draw draw = {.ruler = ruler,
                                  .kind = kind,
                                  .length = length,
                                  .index = index,
                                  .stream = (uint64_t)index << 8 | (uint64_t)(kind - kinds)};
    DPE_SCOPED(free_prompt) struct prompt best = {0};
    int64_t room = 0;
    dpe_rng_seed(&draw.rng, ruler->seed, draw.stream);
    dpe_rng_seed(&draw.units, ~ruler->seed, draw.stream);
    DPE_TRY(draw_words(&draw, err));
    DPE_TRY(dpe_ruler_room(ruler->tokenizer, kind, draw.references, draw.n_references, length,
                           &room, err));
    DPE_TRY(fit(&draw, length - room, &best, err));
    if (text != NULL) {
        text->n = 0;
        DPE_TRY(dpe_text_append(text, best.text.bytes, best.text.n, err));
    }
    *sample = (struct dpe_sample){.index = index,
                                  .seed = ruler->seed,
                                  .prompt = best.tokens,
                                  .references = draw.references,
                                  .n_references = draw.n_references,
                                  .max_new = room};
    best.tokens = (struct dpe_tokens){0};
    draw.references = NULL;
    draw.n_references = 0;
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- source */

struct state {
    const struct dpe_ruler *ruler;
    const struct dpe_ruler_kind *kind;
    int64_t length;
};

static dpe_status sample_source(void *state, int64_t index, struct dpe_sample *sample,
                                struct dpe_error *err)
{
    const struct state *own = state;
    return dpe_ruler_sample(own->ruler, own->kind, own->length, index, sample, NULL, err);
}

dpe_status dpe_ruler_source(const struct dpe_ruler *ruler, const struct dpe_ruler_kind *kind,
                            int64_t length, struct dpe_source *source, struct dpe_error *err)
{
    DPE_SCOPED(dpe_sample_free) struct dpe_sample trial = {0};
    struct state *state = NULL;
    DPE_TRY(dpe_ruler_sample(ruler, kind, length, 0, &trial, NULL, err));
    DPE_TRY(DPE_NEW(&state, 1, err, "ruler: no memory for a sample"));
    *state = (struct state){ruler, kind, length};
    bool questions = kind->maker == &dpe_ruler_qa;
    *source = (struct dpe_source){
        .n_samples = questions ? (int64_t)ruler->qa[kind->dataset].n_questions : INT64_MAX,
        .state = state,
        .sample = sample_source,
        .score = kind->score,
        .growing = true,
        .close = free,
    };
    memcpy(source->name, kind->name, strlen(kind->name) + 1);
    return DPE_OK;
}

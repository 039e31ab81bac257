/* A score by steps: which missing value does greedy decoding name next? */
#include "eval/task/task.h"

#include "engine/base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A value as the tokens that an answer writes it with, and how many of them name it: behind the
 * prompt, and after another value. */
struct value {
    struct written {
        struct dpe_tokens ids;
        int64_t named;
    } first, later;
};

/* The steps of a sample at work. */
struct walk {
    struct dpe_session *session;
    const struct dpe_sample *sample;
    const struct dpe_tokenizer *tokenizer;
    struct value *values; /* [n_references] */
    size_t *order;        /* [n_references] in which values are given */
    bool first;           /* no value has been given yet */
    float *logits;        /* [vocab] */
    int32_t *right;       /* [n_references] */
    unsigned char *live;  /* [n_references] missing values that begin with what is decoded */
    int64_t vocab, begin; /* tokens before the step */
    struct dpe_error *err;
};

static void free_walk(struct walk *walk)
{
    for (size_t i = 0; walk->values != NULL && i < walk->sample->n_references; i++) {
        dpe_tokens_free(&walk->values[i].first.ids);
        dpe_tokens_free(&walk->values[i].later.ids);
    }
    free(walk->values);
    free(walk->order);
    free(walk->logits);
    free(walk->right);
    free(walk->live);
}

/* -------------------------------------------------------------------------------------- values */

/* The tokens of an answer behind a sentence: what encoding alone would put before a text is left
 * out. */
static dpe_status encode_answer(const struct dpe_tokenizer *tokenizer, const char *answer,
                                struct dpe_tokens *ids, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_LITERAL};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens before = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_TRY(dpe_text_append(&text, ".", 1, err));
    DPE_TRY(dpe_text_append(&text, answer, strlen(answer), err));
    DPE_TRY(dpe_tokenizer_encode(tokenizer, ".", 1, &options, &before, err));
    DPE_TRY(dpe_tokenizer_encode(tokenizer, text.bytes, text.n, &options, ids, err));
    if (ids->n > before.n && memcmp(ids->ids, before.ids, before.n * sizeof *before.ids) == 0) {
        ids->n -= before.n;
        memmove(ids->ids, ids->ids + before.n, ids->n * sizeof *ids->ids);
        return DPE_OK;
    }
    ids->n = 0; /* a merge over the boundary */
    return dpe_tokenizer_encode(tokenizer, answer, strlen(answer), &options, ids, err);
}

/* How many tokens it takes until the text holds the value; 0: it never does. */
static dpe_status count_named(const struct dpe_tokenizer *tokenizer, const char *reference,
                              struct written *value, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    char *const one[1] = {(char *)(uintptr_t)reference};
    value->named = 0;
    for (size_t n = 1; n <= value->ids.n && value->named == 0; n++) {
        text.n = 0;
        DPE_TRY(dpe_tokenizer_decode(tokenizer, value->ids.ids, n, true, &text, err));
        DPE_TRY(dpe_text_append(&text, "", 0, err));
        if (dpe_recall(text.bytes, one, 1) >= 1.0) {
            value->named = (int64_t)n;
        }
    }
    return DPE_OK;
}

static dpe_status check_texts(const struct dpe_sample *sample, struct dpe_error *err)
{
    const long long index = (long long)sample->index;
    if (sample->n_references == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "steps: sample %lld has no value to ask for", index);
    }
    if (sample->answers == NULL) {
        return dpe_fail(err, DPE_USAGE,
                        "score=steps: sample %lld is of free text, which has no steps", index);
    }
    for (size_t i = 0; i < sample->n_references; i++) {
        for (size_t k = 0; k < sample->n_references; k++) {
            char *const one[1] = {sample->references[k]};
            if (sample->references[k][0] == '\0' ||
                (i != k && dpe_recall(sample->references[i], one, 1) >= 1.0)) {
                return dpe_fail(
                    err, DPE_BAD_DATA,
                    "steps: sample %lld: the value \"%.60s\" is part of \"%.60s\", so naming one "
                    "names both; leave out score=steps",
                    index, sample->references[k], sample->references[i]);
            }
        }
    }
    return DPE_OK;
}

static dpe_status open_written(const struct dpe_sample *sample, size_t i, size_t skip,
                               const struct dpe_tokenizer *tokenizer, struct written *value,
                               struct dpe_error *err)
{
    const char *answer = sample->answers[i] + skip;
    DPE_TRY(encode_answer(tokenizer, answer, &value->ids, err));
    DPE_TRY(count_named(tokenizer, sample->references[i], value, err));
    if (value->named == 0) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "steps: sample %lld: the answer \"%.60s\" does not hold the value \"%.60s\"",
            (long long)sample->index, answer, sample->references[i]);
    }
    return DPE_OK;
}

static dpe_status open_value(const struct dpe_sample *sample, size_t i,
                             const struct dpe_tokenizer *tokenizer, struct value *value,
                             struct dpe_error *err)
{
    size_t skip = sample->skip != NULL ? sample->skip[i] : 0;
    DPE_TRY(open_written(sample, i, skip, tokenizer, &value->first, err));
    return open_written(sample, i, 0, tokenizer, &value->later, err);
}

/* All values given one after another, however they are ordered. */
static dpe_status check_room(const struct dpe_sample *sample, const struct value *values,
                             struct dpe_error *err)
{
    int64_t need = 0;
    for (size_t i = 0; i < sample->n_references; i++) {
        const struct value *value = &values[i];
        size_t n = i == 0 ? value->first.ids.n : value->later.ids.n;
        need += (int64_t)n;
    }
    return need <= sample->max_new ? DPE_OK
                                   : dpe_fail(err, DPE_BAD_DATA,
                                              "steps: sample %lld: its %zu values take %lld "
                                              "tokens, but there is room for %lld",
                                              (long long)sample->index, sample->n_references,
                                              (long long)need, (long long)sample->max_new);
}

static dpe_status open_values(const struct dpe_sample *sample,
                              const struct dpe_tokenizer *tokenizer, struct value **values,
                              struct dpe_error *err)
{
    DPE_TRY(check_texts(sample, err));
    DPE_TRY(DPE_NEW(values, sample->n_references, err, "out of memory for %zu values",
                    sample->n_references));
    for (size_t i = 0; i < sample->n_references; i++) {
        DPE_TRY(open_value(sample, i, tokenizer, &(*values)[i], err));
    }
    return check_room(sample, *values, err);
}

dpe_status dpe_steps_check(const struct dpe_sample *sample, const struct dpe_tokenizer *tokenizer,
                           struct dpe_error *err)
{
    DPE_SCOPED(free_walk) struct walk walk = {.sample = sample};
    return open_values(sample, tokenizer, &walk.values, err);
}

/* --------------------------------------------------------------------------------------- looks */

static bool is_right(int64_t id, const int32_t *right, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (right[i] == id) {
            return true;
        }
    }
    return false;
}

int32_t dpe_steps_look(const float *logits, int64_t vocab, const int32_t *right, int64_t n,
                       double *log_odds)
{
    int64_t best = 0;
    double most = -INFINITY;
    double wrong = -INFINITY;
    for (int64_t id = 0; id < vocab; id++) {
        double value = (double)logits[id];
        best = value > (double)logits[best] ? id : best;
        if (is_right(id, right, n)) {
            most = fmax(most, value);
        } else {
            wrong = fmax(wrong, value);
        }
    }
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        bool first = !is_right(right[i], right, i);
        sum += first ? exp((double)logits[right[i]] - most) : 0.0;
    }
    *log_odds = most + log(sum) - wrong;
    return is_right(best, right, n) ? (int32_t)best : -1;
}

/* --------------------------------------------------------------------------------------- steps */

static const struct written *value_of(const struct walk *walk, size_t i)
{
    return walk->first ? &walk->values[i].first : &walk->values[i].later;
}

/* Follow greedy decoding from the step's beginning, along the missing values that are live: the
 * path has the decoded tokens as far as they belong to one. Returns through *found whether one was
 * named. */
static dpe_status follow(struct walk *walk, struct dpe_tokens *path, bool *found, double *margin)
{
    const size_t n = walk->sample->n_references;
    unsigned char *live = walk->live;
    double least = INFINITY;
    *found = false;
    while (!*found) {
        int64_t n_right = 0;
        double odds = 0.0;
        for (size_t i = 0; i < n; i++) {
            live[i] = live[i] != 0 && path->n < value_of(walk, i)->ids.n;
            if (live[i] != 0) {
                walk->right[n_right++] = value_of(walk, i)->ids.ids[path->n];
            }
        }
        int32_t next = n_right > 0
                           ? dpe_steps_look(walk->logits, walk->vocab, walk->right, n_right, &odds)
                           : -1;
        least = fmin(least, odds);
        if (next < 0) {
            break;
        }
        for (size_t i = 0; i < n; i++) {
            live[i] = live[i] != 0 && value_of(walk, i)->ids.ids[path->n] == next;
            *found = *found || (live[i] != 0 && (int64_t)path->n + 1 >= value_of(walk, i)->named);
        }
        DPE_TRY(dpe_tokens_append(path, &next, 1, walk->err));
        if (!*found) {
            DPE_TRY(dpe_session_feed(walk->session, &next, 1, walk->logits, walk->err));
        }
    }
    *margin = 1.0 / (1.0 + exp(-least / DPE_STEPS_SHARPNESS));
    return DPE_OK;
}

/* Give the value that is next in the order, behind what the session holds of it already. */
static dpe_status give(struct walk *walk, size_t step, const struct dpe_tokens *path, bool found)
{
    const struct dpe_tokens *ids = &value_of(walk, walk->order[step])->ids;
    size_t held =
        path->n > 0 && found ? path->n - 1 : path->n; /* the last one of a value was not fed */
    size_t common = 0;
    while (common < held && common + 1 < ids->n && path->ids[common] == ids->ids[common]) {
        common++;
    }
    DPE_TRY(dpe_session_cut(walk->session, walk->begin + (int64_t)common, walk->err));
    DPE_TRY(dpe_session_feed(walk->session, ids->ids + common, (int64_t)(ids->n - common),
                             walk->logits, walk->err));
    walk->begin += (int64_t)ids->n;
    walk->first = false;
    return DPE_OK;
}

static dpe_status put_line(struct walk *walk, const struct dpe_tokens *path, bool found,
                           struct dpe_text *text)
{
    DPE_TRY(dpe_text_append(text, found ? "+" : "-", 1, walk->err));
    if (path->n > 0) {
        DPE_TRY(dpe_tokenizer_decode(walk->tokenizer, path->ids, path->n, true, text, walk->err));
    }
    return dpe_text_append(text, "\n", 1, walk->err);
}

static dpe_status run_step(struct walk *walk, size_t step, struct dpe_steps *steps,
                           struct dpe_text *text)
{
    const size_t n = walk->sample->n_references;
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens path = {0};
    bool found = false;
    double margin = 0.0;
    memset(walk->live, 1, n);
    for (size_t i = 0; i < step; i++) {
        walk->live[walk->order[i]] = 0;
    }
    DPE_TRY(follow(walk, &path, &found, &margin));
    DPE_TRY(put_line(walk, &path, found, text));
    if (step + 1 < n) {
        DPE_TRY(give(walk, step, &path, found));
    }
    steps->found += found ? 1.0 / (double)n : 0.0;
    steps->margin += margin / (double)n;
    steps->new_tokens += (int64_t)path.n;
    return DPE_OK;
}

dpe_status dpe_steps_run(struct dpe_session *session, const struct dpe_sample *sample, int64_t rest,
                         const struct dpe_tokenizer *tokenizer, struct dpe_steps *steps,
                         struct dpe_text *text, struct dpe_error *err)
{
    const size_t n = sample->n_references;
    const int64_t prompt = (int64_t)sample->prompt.n;
    struct dpe_rng rng;
    DPE_SCOPED(free_walk)
    struct walk walk = {.session = session,
                        .sample = sample,
                        .tokenizer = tokenizer,
                        .vocab = dpe_session_limits(session).vocab,
                        .begin = prompt,
                        .first = true,
                        .err = err};
    *steps = (struct dpe_steps){0};
    DPE_TRY(open_values(sample, tokenizer, &walk.values, err));
    DPE_TRY(DPE_NEW(&walk.order, n, err, "out of memory for %zu steps", n));
    DPE_TRY(DPE_NEW(&walk.right, n, err, "out of memory for %zu steps", n));
    DPE_TRY(DPE_NEW(&walk.logits, (size_t)walk.vocab, err, "out of memory for %zu steps", n));
    DPE_TRY(DPE_NEW(&walk.live, n, err, "out of memory for %zu steps", n));
    dpe_rng_seed(&rng, sample->seed, (uint64_t)sample->index);
    dpe_draw_order(&rng, walk.order, n);
    DPE_TRY(
        dpe_session_feed(session, sample->prompt.ids + (prompt - rest), rest, walk.logits, err));
    for (size_t step = 0; step < n; step++) {
        DPE_TRY(run_step(&walk, step, steps, text));
    }
    steps->found = fmin(steps->found, 1.0);
    return DPE_OK;
}

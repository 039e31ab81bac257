/* Questions in a session: prompt, greedy generation, score. */
#include "eval.h"

#include <stdlib.h>
#include <string.h>

/* A prediction is kept to be looked at, not to fill tables. */
enum { MAX_PREDICTION = 4096 };

struct questions {
    struct dpe_source source;
    const struct dpe_tokenizer *tokenizer;
};

/* One generation: what it is asked, and how its answer is read. */
struct listener {
    const struct questions *questions;
    const struct dpe_sample *sample;
    struct dpe_text text; /* of the tokens generated so far */
};

/* Decode into listener->text; a NUL would end the string too early and becomes a space. */
static dpe_status hear(struct listener *listener, const int32_t *ids, size_t n,
                       struct dpe_error *err)
{
    struct dpe_text *text = &listener->text;
    text->n = 0;
    dpe_status status = dpe_text_append(text, "", 0, err);
    if (status == DPE_OK) {
        status = dpe_tokenizer_decode(listener->questions->tokenizer, ids, n, true, text, err);
    }
    for (size_t i = 0; i < text->n; i++) {
        if (text->bytes[i] == '\0') {
            text->bytes[i] = ' ';
        }
    }
    return status;
}

static double score_of(const struct listener *listener)
{
    const struct dpe_sample *sample = listener->sample;
    return listener->questions->source.score(listener->text.bytes, sample->references,
                                             sample->n_references);
}

static bool answered(void *user, const int32_t *generated, size_t n)
{
    struct listener *listener = user;
    return hear(listener, generated, n, NULL) == DPE_OK && score_of(listener) >= 1.0;
}

/* The text, cut between characters. */
static char *keep_text(const struct dpe_text *text)
{
    size_t n = text->n < MAX_PREDICTION ? text->n : MAX_PREDICTION;
    while (n > 0 && n < text->n && ((unsigned char)text->bytes[n] & 0xc0) == 0x80) {
        n--;
    }
    return strndup(text->bytes, n);
}

static dpe_status take_answer(struct listener *listener, const struct dpe_tokens *said,
                              struct dpe_row *row, struct dpe_error *err)
{
    dpe_status status = hear(listener, said->ids, said->n, err);
    if (status != DPE_OK) {
        return status;
    }
    row->text = keep_text(&listener->text);
    if (row->text == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for a prediction",
                        listener->questions->source.name);
    }
    row->new_tokens = (int64_t)said->n;
    row->score = score_of(listener);
    row->at_least_half = row->score >= 0.5 ? 1.0 : 0.0;
    return DPE_OK;
}

static dpe_status run_question(void *state, struct dpe_session *session, int64_t index,
                               struct dpe_row *row, struct dpe_error *err)
{
    const struct questions *questions = state;
    const struct dpe_source *source = &questions->source;
    struct dpe_sample sample = {0};
    dpe_status status = source->sample(source->state, index, &sample, err);
    if (status != DPE_OK) {
        return status;
    }
    struct listener listener = {.questions = questions, .sample = &sample};
    struct dpe_tokens said = {0};
    const struct dpe_generate_options options = {
        .max_new = sample.max_new, .stop = source->growing ? answered : NULL, .user = &listener};
    row->seed = sample.seed;
    row->prompt_tokens = (int64_t)sample.prompt.n;
    status = dpe_session_cut(session, 0, err);
    if (status == DPE_OK) {
        status = dpe_session_generate(session, sample.prompt.ids, (int64_t)sample.prompt.n,
                                      &options, &said, err);
    }
    if (status == DPE_OK) {
        status = take_answer(&listener, &said, row, err);
    }
    dpe_tokens_free(&said);
    dpe_text_free(&listener.text);
    dpe_sample_free(&sample);
    return status;
}

static void close_questions(void *state)
{
    struct questions *questions = state;
    dpe_source_close(&questions->source);
    free(questions);
}

void dpe_source_close(struct dpe_source *source)
{
    if (source->close != NULL) {
        source->close(source->state);
    }
    *source = (struct dpe_source){0};
}

dpe_status dpe_task_questions(struct dpe_source *source, const struct dpe_tokenizer *tokenizer,
                              struct dpe_task *task, struct dpe_error *err)
{
    struct questions *state = dpe_alloc(1, sizeof *state);
    if (state == NULL) {
        dpe_status status = dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for a task", source->name);
        dpe_source_close(source);
        return status;
    }
    *state = (struct questions){.source = *source, .tokenizer = tokenizer};
    *task = (struct dpe_task){.n_samples = source->n_samples,
                              .state = state,
                              .run = run_question,
                              .close = close_questions};
    memcpy(task->name, source->name, sizeof task->name);
    *source = (struct dpe_source){0};
    return DPE_OK;
}

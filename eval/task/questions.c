/* Questions in a session: prompt, greedy generation, score. */
#include "engine/base/base.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/batches.h"
#include "eval/task/steps.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"

#include <stdlib.h>
#include <string.h>

/* A prediction is kept to be looked at, not to fill tables. */
enum { MAX_PREDICTION = 4096 };

struct questions {
    struct dpe_source source;
    const struct dpe_tokenizer *tokenizer;
};

/* One generation: its sample, and its answer as text. */
struct reading {
    const struct questions *questions;
    const struct dpe_sample *sample;
    struct dpe_text text; /* of the tokens generated so far */
};

/* Decode into reading->text; a NUL would end the string too early and becomes a space. */
static dpe_status decode_answer(struct reading *reading, const int32_t *ids, size_t n,
                                struct dpe_error *err)
{
    struct dpe_text *text = &reading->text;
    text->n = 0;
    DPE_TRY(dpe_text_append(text, "", 0, err));
    DPE_TRY(dpe_tokenizer_decode(reading->questions->tokenizer, ids, n, true, text, err));
    for (size_t i = 0; i < text->n; i++) {
        if (text->bytes[i] == '\0') {
            text->bytes[i] = ' ';
        }
    }
    return DPE_OK;
}

static double score_of(const struct reading *reading)
{
    const struct dpe_sample *sample = reading->sample;
    return reading->questions->source.score(reading->text.bytes, sample->references,
                                            sample->n_references);
}

static bool answered(void *user, const int32_t *generated, size_t n)
{
    struct reading *reading = user;
    return decode_answer(reading, generated, n, NULL) == DPE_OK && score_of(reading) >= 1.0;
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

static dpe_status take_answer(struct reading *reading, const struct dpe_tokens *tokens,
                              struct dpe_row *row, struct dpe_error *err)
{
    DPE_TRY(decode_answer(reading, tokens->ids, tokens->n, err));
    row->text = keep_text(&reading->text);
    if (row->text == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for a prediction",
                        reading->questions->source.name);
    }
    row->new_tokens = (int64_t)tokens->n;
    row->score = score_of(reading);
    row->at_least_half = row->score >= 0.5 ? 1.0 : 0.0;
    return DPE_OK;
}

/* Everything that answering one sample needs. */
struct answer {
    struct dpe_sample sample;
    struct reading reading;
    struct dpe_tokens tokens;
};

/* `answer` is all zero, and has to be ended after a failure too. */
static dpe_status answer_begin(const struct questions *questions, int64_t index,
                               struct answer *answer, struct dpe_error *err)
{
    const struct dpe_source *source = &questions->source;
    answer->reading.questions = questions;
    answer->reading.sample = &answer->sample;
    return source->sample(source->state, index, &answer->sample, err);
}

static void answer_end(struct answer *answer)
{
    dpe_tokens_free(&answer->tokens);
    dpe_text_free(&answer->reading.text);
    dpe_sample_free(&answer->sample);
}

static dpe_status answer_row(struct answer *answer, struct dpe_row *row, struct dpe_error *err)
{
    row->seed = answer->sample.seed;
    row->prompt_tokens = (int64_t)answer->sample.prompt.n;
    return take_answer(&answer->reading, &answer->tokens, row, err);
}

/* What is left of a sample when the first `fed` tokens of its prompt are in the session. */
static struct dpe_continuation rest_of(struct answer *answer, int64_t fed)
{
    return (struct dpe_continuation){
        .prompt = answer->sample.prompt.ids + fed,
        .n = (int64_t)answer->sample.prompt.n - fed,
        .options = {.max_new = answer->sample.max_new,
                    .stop = answer->reading.questions->source.growing ? answered : NULL,
                    .user = &answer->reading},
        .out = &answer->tokens,
    };
}

/* What an earlier prompt has left; where it gives the same bits, cut at whole chunks. */
static int64_t held_of(const struct dpe_session *session, const struct answer *answer, bool whole)
{
    const struct dpe_tokens *prompt = &answer->sample.prompt;
    int64_t held = dpe_session_common(session, prompt->ids, (int64_t)prompt->n - 1);
    return whole ? held - held % dpe_session_chunk(session) : held;
}

static dpe_status answer_alone(struct dpe_session *session, struct answer *answer,
                               struct dpe_error *err)
{
    int64_t keep = held_of(session, answer, true);
    DPE_TRY(dpe_session_cut(session, keep, err));
    struct dpe_continuation rest = rest_of(answer, keep);
    return dpe_session_generate(session, rest.prompt, rest.n, &rest.options, rest.out, err);
}

/* The steps of one sample. `held` tokens of its prompt may be kept from what the session holds. */
static dpe_status step_alone(struct dpe_session *session, struct answer *answer, int64_t held,
                             struct dpe_row *row, struct dpe_error *err)
{
    struct dpe_sample *sample = &answer->sample;
    struct dpe_steps steps = {0};
    struct dpe_text *text = &answer->reading.text;
    DPE_TRY(dpe_session_cut(session, held, err));
    DPE_TRY(dpe_steps_run(session, sample, (int64_t)sample->prompt.n - held,
                          answer->reading.questions->tokenizer, &steps, text, err));
    row->seed = sample->seed;
    row->prompt_tokens = (int64_t)sample->prompt.n;
    row->new_tokens = steps.new_tokens;
    row->score = steps.found;
    row->at_least_half = row->score >= 0.5 ? 1.0 : 0.0;
    row->margin = steps.margin;
    row->text = keep_text(text);
    return row->text != NULL ? DPE_OK
                             : dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for steps",
                                        answer->reading.questions->source.name);
}

static dpe_status run_question(void *state, struct dpe_session *session, int64_t index,
                               struct dpe_row *row, struct dpe_error *err)
{
    const struct questions *questions = state;
    DPE_SCOPED(answer_end) struct answer answer = {0};
    DPE_TRY(answer_begin(questions, index, &answer, err));
    if (questions->source.steps) {
        return step_alone(session, &answer, held_of(session, &answer, true), row, err);
    }
    DPE_TRY(answer_alone(session, &answer, err));
    return answer_row(&answer, row, err);
}

static dpe_status answer_batch(struct dpe_session *session, struct answer *answers,
                               const struct dpe_queue_batch *batch, struct dpe_error *err)
{
    int64_t n = batch->n;
    DPE_OWNED struct dpe_continuation *items = NULL;
    DPE_TRY(
        DPE_NEW(&items, (size_t)n, err, "out of memory for a batch of %lld samples", (long long)n));
    const int32_t *ids = answers[0].sample.prompt.ids;
    int64_t keep = dpe_session_common(session, ids, batch->prefix);
    for (int64_t i = 0; i < n; i++) {
        items[i] = rest_of(&answers[i], batch->prefix);
    }
    DPE_TRY(dpe_session_cut(session, keep, err));
    DPE_TRY(dpe_session_feed(session, ids + keep, batch->prefix - keep, NULL, err));
    DPE_TRY(dpe_session_branch(session, n, batch->room, err));
    return dpe_session_generate_branches(session, items, n, err);
}

/* All answers, batch after batch. */
static dpe_status answer_all(const struct questions *questions, struct dpe_session *session,
                             const int64_t *indices, int64_t n, struct answer *answers,
                             struct dpe_row *rows, struct dpe_error *err)
{
    const struct dpe_session_limits limits = dpe_session_limits(session);
    DPE_SCOPED(dpe_queue_free) struct dpe_queue queue = {0};
    struct dpe_queue_batch batch;
    DPE_TRY(dpe_queue_init(&queue, n, err));
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(answer_begin(questions, indices[i], &answers[i], err));
        queue.samples[i] = &answers[i].sample;
    }
    dpe_queue_compare(&queue);
    for (int64_t i = 0; i < n; i += batch.n) {
        batch = dpe_queue_fit(&queue, i, n, held_of(session, &answers[i], false), &limits);
        DPE_TRY(batch.n > 1 ? answer_batch(session, &answers[i], &batch, err)
                            : answer_alone(session, &answers[i], err));
    }
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(answer_row(&answers[i], &rows[i], err));
    }
    return DPE_OK;
}

/* Steps of several samples, one after another: what their prompts share is read once. */
static dpe_status run_steps(const struct questions *questions, struct dpe_session *session,
                            const int64_t *indices, int64_t n, struct dpe_row *rows,
                            struct dpe_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        DPE_SCOPED(answer_end) struct answer answer = {0};
        DPE_TRY(answer_begin(questions, indices[i], &answer, err));
        const int64_t held = held_of(session, &answer, i == 0);
        DPE_TRY(step_alone(session, &answer, held, &rows[i], err));
    }
    return DPE_OK;
}

static dpe_status run_questions(void *state, struct dpe_session *session, const int64_t *indices,
                                int64_t n, struct dpe_row *rows, struct dpe_error *err)
{
    const struct questions *questions = state;
    DPE_OWNED struct answer *answers = NULL;
    if (questions->source.steps) {
        return run_steps(questions, session, indices, n, rows, err);
    }
    DPE_TRY(DPE_NEW(&answers, (size_t)n, err, "out of memory for %lld samples", (long long)n));
    const dpe_status status = answer_all(questions, session, indices, n, answers, rows, err);
    for (int64_t i = 0; i < n; i++) {
        answer_end(&answers[i]);
    }
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
    struct questions *state = NULL;
    const dpe_status status = DPE_NEW(&state, 1, err, "%s: no memory for a task", source->name);
    if (status != DPE_OK) {
        dpe_source_close(source);
        return status;
    }
    *state = (struct questions){.source = *source, .tokenizer = tokenizer};
    *task = (struct dpe_task){.n_samples = source->n_samples,
                              .together = source->together > 1 ? source->together : 1,
                              .state = state,
                              .run = run_question,
                              .run_many = run_questions,
                              .close = close_questions};
    memcpy(task->name, source->name, sizeof task->name);
    *source = (struct dpe_source){0};
    return DPE_OK;
}

dpe_status dpe_task_sample(const struct dpe_task *task, int64_t index, struct dpe_sample *sample,
                           struct dpe_text *prompt, struct dpe_error *err)
{
    if (task->close != close_questions) {
        return dpe_fail(err, DPE_USAGE, "task %s has no prompts and answers", task->name);
    }
    const struct questions *questions = task->state;
    DPE_SCOPED(dpe_sample_free) struct dpe_sample made = {0};
    DPE_TRY(questions->source.sample(questions->source.state, index, &made, err));
    if (prompt != NULL) {
        DPE_TRY(dpe_tokenizer_decode(questions->tokenizer, made.prompt.ids, made.prompt.n, true,
                                     prompt, err));
    }
    *sample = made;
    made = (struct dpe_sample){0};
    return DPE_OK;
}

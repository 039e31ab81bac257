/* Questions in a session: which are decoded together and what that costs; prompt, greedy
 * generation, score. */
#include "engine/base/base.h"

#include <stdlib.h>
#include <string.h>

#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"
#include "outputs/job/price.h"

/* Samples to run one after another, and how many tokens each prompt shares with the next. */
struct queue {
    const struct dpe_sample **samples; /* [n], borrowed */
    int64_t *common; /* [n] tokens that prompt i and the next begin with, the last one's 0 */
    int64_t n;
};

/* A queue of n samples that are to be set, then queue_compare. */
static dpe_status queue_init(struct queue *queue, int64_t n, struct dpe_error *err)
{
    *queue = (struct queue){.n = n};
    DPE_TRY(DPE_NEW(&queue->samples, (size_t)n, err, "out of memory for a batch of %lld samples",
                    (long long)n));
    return DPE_NEW(&queue->common, (size_t)n, err, "out of memory for a batch of %lld samples",
                   (long long)n);
}

static void queue_free(struct queue *queue)
{
    free(queue->samples);
    free(queue->common);
    *queue = (struct queue){0};
}

static void queue_compare(struct queue *queue)
{
    for (int64_t i = 0; i + 1 < queue->n; i++) {
        const struct dpe_tokens *a = &queue->samples[i]->prompt;
        const struct dpe_tokens *b = &queue->samples[i + 1]->prompt;
        size_t n = a->n < b->n ? a->n : b->n;
        size_t same = 0;
        while (same < n && a->ids[same] == b->ids[same]) {
            same++;
        }
        queue->common[i] = (int64_t)same;
    }
}

/* Samples that are decoded together. */
struct batch {
    int64_t n;      /* 1: alone */
    int64_t prefix; /* tokens that all of them begin with, fewer than any of them has */
    int64_t room;   /* cache rows that each needs after the prefix */
};

static int64_t length_of(const struct queue *queue, int64_t i)
{
    return (int64_t)queue->samples[i]->prompt.n;
}

/* The n samples from `first` on as one batch. The last new token is not fed. */
static struct batch gather(const struct queue *queue, int64_t first, int64_t n)
{
    struct batch batch = {.n = n, .prefix = length_of(queue, first) - 1, .room = 1};
    for (int64_t i = first; i < first + n; i++) {
        int64_t most = length_of(queue, i) - 1;
        most = i > first && queue->common[i - 1] < most ? queue->common[i - 1] : most;
        batch.prefix = most < batch.prefix ? most : batch.prefix;
    }
    for (int64_t i = first; i < first + n; i++) {
        int64_t need = length_of(queue, i) - batch.prefix + queue->samples[i]->max_new - 1;
        batch.room = need > batch.room ? need : batch.room;
    }
    return batch;
}

/* Tokens of the first sample's prompt that need not be read. One that is alone gets the bits that
 * it would get anywhere, so it is cut at whole chunks. */
static int64_t kept_by(const struct batch *batch, int64_t held,
                       const struct dpe_session_limits *limits)
{
    int64_t kept = held < batch->prefix ? held : batch->prefix;
    return batch->n > 1 ? kept : limits->chunk > 0 ? kept - kept % limits->chunk : 0;
}

/* What the cache holds of the next sample after a batch: after several, their prefix. */
static int64_t held_behind(const struct queue *queue, int64_t first, const struct batch *batch)
{
    int64_t held = batch->n > 1 ? batch->prefix : INT64_MAX;
    for (int64_t i = first; i < first + batch->n; i++) {
        held = queue->common[i] < held ? queue->common[i] : held;
    }
    return held;
}

static int64_t read_by(const struct queue *queue, int64_t first, const struct batch *batch,
                       int64_t kept)
{
    int64_t read = batch->n > 1 ? batch->prefix - kept : -kept;
    for (int64_t i = first; i < first + batch->n; i++) {
        read += length_of(queue, i) - (batch->n > 1 ? batch->prefix : 0);
    }
    return read;
}

/* Tokens that batches of n read. */
static int64_t read_in_batches(const struct queue *queue, int64_t first, int64_t end, int64_t n,
                               int64_t held, const struct dpe_session_limits *limits)
{
    int64_t read = 0;
    for (int64_t i = first; i < end; i += n) {
        const struct batch batch = gather(queue, i, n < end - i ? n : end - i);
        read += read_by(queue, i, &batch, kept_by(&batch, held, limits));
        held = held_behind(queue, i, &batch);
    }
    return read;
}

static bool fits(const struct batch *batch, const struct dpe_session_limits *limits)
{
    return batch->prefix + batch->n * batch->room <= limits->capacity &&
           batch->prefix + batch->room <= limits->positions;
}

/* How many of the samples first … end − 1 make the best batch in a session of these limits, whose
 *  cache holds the first `held` tokens of the first one: as many as fit, or fewer if every
 * additional batch saves reading more than a quarter of a prompt. */
static struct batch queue_fit(const struct queue *queue, int64_t first, int64_t end, int64_t held,
                              const struct dpe_session_limits *limits)
{
    int64_t n = end - first;
    struct batch best = gather(queue, first, 1);
    int64_t best_read = 0;
    for (int64_t k = n < limits->branches ? n : limits->branches; k > 1; k--) {
        const struct batch batch = gather(queue, first, k);
        if (!fits(&batch, limits)) {
            continue;
        }
        int64_t read = read_in_batches(queue, first, end, k, held, limits);
        int64_t more = (n + k - 1) / k - (n + best.n - 1) / best.n;
        if (best.n == 1 || best_read - read > more * length_of(queue, first) / 4) {
            best = batch;
            best_read = read;
        }
    }
    return best;
}

/* Pairs of a token that is read and one at or before it, from token `from` on. */
static double pairs_behind(int64_t from, int64_t to)
{
    return 0.5 * ((double)to * (double)(to + 1) - (double)from * (double)(from + 1));
}

static void add_cost(const struct queue *queue, int64_t first, const struct batch *batch,
                     int64_t kept, struct dpe_price_answers *cost)
{
    int64_t steps = 0;
    int64_t begin = batch->n > 1 ? batch->prefix : kept;
    cost->read += read_by(queue, first, batch, kept);
    cost->pairs += pairs_behind(kept, begin);
    for (int64_t i = first; i < first + batch->n; i++) {
        int64_t fed = queue->samples[i]->max_new - 1;
        cost->prompts += length_of(queue, i);
        cost->pairs += pairs_behind(begin, length_of(queue, i));
        cost->decoded += fed;
        steps = fed > steps ? fed : steps;
    }
    cost->steps += steps;
    cost->samples += batch->n;
}

dpe_status dpe_answering_cost(const struct dpe_sample *samples, int64_t n, int64_t together,
                              const struct dpe_session_limits *limits,
                              struct dpe_price_answers *cost, struct dpe_error *err)
{
    DPE_SCOPED(queue_free) struct queue queue = {0};
    DPE_TRY(queue_init(&queue, n, err));
    for (int64_t i = 0; i < n; i++) {
        queue.samples[i] = &samples[i];
    }
    queue_compare(&queue);
    int64_t held = 0;
    struct batch batch;
    for (int64_t i = 0; i < n; i += batch.n) {
        int64_t end = (i / together + 1) * together;
        batch = queue_fit(&queue, i, end < n ? end : n, held, limits);
        add_cost(&queue, i, &batch, kept_by(&batch, held, limits), cost);
        held = held_behind(&queue, i, &batch);
    }
    return DPE_OK;
}

dpe_status dpe_task_price(const struct dpe_task *task, int64_t n, int64_t length, int64_t batch,
                          const struct dpe_config *config, struct dpe_price *price,
                          struct dpe_price_answers *counted, struct dpe_error *err)
{
    enum { MOST = 64 };
    struct dpe_sample samples[MOST] = {{0}};
    struct dpe_price_answers own = {0};
    struct dpe_price_answers *answering = counted != NULL ? counted : &own;
    const int64_t most = dpe_least(dpe_least(n, task->n_samples), MOST);
    const int64_t together = dpe_most(batch, 1);
    const struct dpe_session_limits limits = {
        .capacity = length * together, .positions = length, .branches = together};
    dpe_status status = DPE_OK;
    *answering = (struct dpe_price_answers){0};
    for (int64_t i = 0; i < most && status == DPE_OK; i++) {
        status = dpe_task_sample(task, i, &samples[i], NULL, err);
    }
    if (status == DPE_OK) {
        status = dpe_answering_cost(samples, most, together, &limits, answering, err);
    }
    answering->room = samples[0].max_new;
    for (int64_t i = 0; i < most; i++) {
        dpe_sample_free(&samples[i]);
    }
    DPE_TRY(status);
    dpe_price_of_answers(config, answering, price);
    return DPE_OK;
}

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
    DPE_TRY(DPE_MADE(row->text, err, "%s: no memory for a prediction",
                     reading->questions->source.name));
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
    return DPE_MADE(row->text, err, "%s: no memory for steps",
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
                               const struct batch *batch, struct dpe_error *err)
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
    DPE_SCOPED(queue_free) struct queue queue = {0};
    struct batch batch;
    DPE_TRY(queue_init(&queue, n, err));
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(answer_begin(questions, indices[i], &answers[i], err));
        queue.samples[i] = &answers[i].sample;
    }
    queue_compare(&queue);
    for (int64_t i = 0; i < n; i += batch.n) {
        batch = queue_fit(&queue, i, n, held_of(session, &answers[i], false), &limits);
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

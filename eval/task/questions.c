/* Questions in a session: which are decoded together and what that costs; prompt, greedy
 * generation, score. */
#include "engine/base/base.h"

#include <stdlib.h>
#include <string.h>

#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"
#include "outputs/job/job.h"
#include "outputs/job/price.h"

/* Samples to run one after another, and how many tokens each prompt shares with the next. */
struct queue {
    const struct dpe_sample *samples; /* [n], borrowed */
    int64_t *common; /* [n] tokens that prompt i and the next begin with, the last one's 0 */
    int64_t n;
};

static dpe_status queue_init(struct queue *queue, const struct dpe_sample *samples, int64_t n,
                             struct dpe_error *err)
{
    *queue = (struct queue){.samples = samples, .n = n};
    DPE_TRY(DPE_NEW(&queue->common, (size_t)n, err, "out of memory for a batch of %lld samples",
                    (long long)n));
    for (int64_t i = 0; i + 1 < n; i++) {
        const struct dpe_tokens *a = &samples[i].prompt;
        const struct dpe_tokens *b = &samples[i + 1].prompt;
        const int64_t most = dpe_least((int64_t)a->n, (int64_t)b->n);
        int64_t *same = &queue->common[i];
        while (*same < most && a->ids[*same] == b->ids[*same]) {
            ++*same;
        }
    }
    return DPE_OK;
}

static void queue_free(struct queue *queue)
{
    free(queue->common);
}

/* Samples that are answered after what their prompts begin with, which is read once. */
struct family {
    int64_t n;
    int64_t prefix; /* tokens that all of them begin with, fewer than any has; 0: none worth it */
    int64_t room;   /* cache rows that each needs after the prefix */
    int64_t read;   /* tokens of their prompts, the prefix once */
};

static int64_t length_of(const struct queue *queue, int64_t i)
{
    return (int64_t)queue->samples[i].prompt.n;
}

/* The n samples from `first` on. A sample that is alone, or shares less than an eighth of a prompt,
 * is read from its first token on, so it gets the bits that it would get anywhere. The last new
 * token is not fed. */
static struct family gather(const struct queue *queue, int64_t first, int64_t n)
{
    struct family family = {.n = n, .prefix = n > 1 ? INT64_MAX : 0};
    for (int64_t i = first; i < first + n; i++) {
        const int64_t common = i > first ? queue->common[i - 1] : INT64_MAX;
        family.prefix = dpe_least(family.prefix, dpe_least(length_of(queue, i) - 1, common));
    }
    family.prefix = 8 * family.prefix < length_of(queue, first) ? 0 : family.prefix;
    family.read = family.prefix;
    for (int64_t i = first; i < first + n; i++) {
        const int64_t own = length_of(queue, i) - family.prefix;
        family.read += own;
        family.room = dpe_most(family.room, own + dpe_most(queue->samples[i].max_new, 1) - 1);
    }
    return family;
}

/* Split the samples first … end − 1 into families that read least; a further one has to save more
 * than a quarter of a prompt, as fewer are decoded together then. The prompts alone decide: bits
 * depend neither on memory nor on what a session holds. sizes [end]: of the family that begins at
 * each. */
static dpe_status split(const struct queue *queue, int64_t first, int64_t end, int64_t *sizes,
                        struct dpe_error *err)
{
    DPE_OWNED int64_t *cost = NULL; /* of those from each on */
    DPE_TRY(DPE_NEW(&cost, (size_t)end + 1, err, "out of memory for a batch of %lld samples",
                    (long long)end));
    for (int64_t i = end - 1; i >= first; i--) {
        const int64_t held = i > first ? queue->common[i - 1] : 0;
        cost[i] = INT64_MAX;
        for (int64_t n = 1; n <= end - i; n++) {
            const struct family family = gather(queue, i, n);
            const int64_t all = family.read - dpe_least(held, family.prefix) +
                                length_of(queue, i) / 4 + cost[i + n];
            sizes[i] = all < cost[i] ? n : sizes[i];
            cost[i] = dpe_least(all, cost[i]);
        }
    }
    return DPE_OK;
}

/* How many of a family a session of these limits decodes together. */
static int64_t at_once(const struct family *family, const struct dpe_session_limits *limits)
{
    const int64_t fit = (limits->capacity - family->prefix) / family->room;
    return dpe_most(dpe_least(dpe_least(fit, limits->branches), family->n), 1);
}

/* Pairs of a token that is read and one at or before it, from token `from` on. */
static double pairs_behind(int64_t from, int64_t to)
{
    return 0.5 * ((double)to * (double)(to + 1) - (double)from * (double)(from + 1));
}

/* `kept`: tokens of the prefix that the cache holds already. */
static void add_cost(const struct queue *queue, int64_t first, const struct family *family,
                     int64_t kept, const struct dpe_session_limits *limits,
                     struct dpe_price_answers *cost)
{
    const int64_t together = at_once(family, limits);
    int64_t steps = 0;
    cost->read += family->read - kept;
    cost->pairs += pairs_behind(kept, family->prefix);
    for (int64_t i = 0; i < family->n; i++) {
        const int64_t fed = queue->samples[first + i].max_new - 1;
        cost->prompts += length_of(queue, first + i);
        cost->pairs += pairs_behind(family->prefix, length_of(queue, first + i));
        cost->decoded += fed;
        steps = i % together == 0 ? fed : dpe_most(fed, steps);
        cost->steps += i % together == together - 1 || i + 1 == family->n ? steps : 0;
    }
    cost->samples += family->n;
}

dpe_status dpe_answering_cost(const struct dpe_sample *samples, int64_t n, int64_t group,
                              const struct dpe_session_limits *limits,
                              struct dpe_price_answers *cost, struct dpe_error *err)
{
    DPE_SCOPED(queue_free) struct queue queue = {0};
    DPE_OWNED int64_t *sizes = NULL;
    DPE_TRY(queue_init(&queue, samples, n, err));
    DPE_TRY(DPE_NEW(&sizes, (size_t)n, err, "out of memory for %lld samples", (long long)n));
    for (int64_t i = 0; i < n; i += group) {
        DPE_TRY(split(&queue, i, dpe_least(i + group, n), sizes, err));
    }
    int64_t held = 0; /* tokens of the next sample that are in the cache */
    for (int64_t i = 0; i < n; i += sizes[i]) {
        const struct family family = gather(&queue, i, sizes[i]);
        add_cost(&queue, i, &family, dpe_least(held, family.prefix), limits, cost);
        held = dpe_least(family.n > 1 ? family.prefix : INT64_MAX, queue.common[i + family.n - 1]);
    }
    return DPE_OK;
}

dpe_status dpe_task_price(const struct dpe_task *task, int64_t n, int64_t length,
                          const struct dpe_job *job, struct dpe_price *price,
                          struct dpe_price_answers *counted, struct dpe_error *err)
{
    enum { MOST = 64 };
    struct dpe_sample samples[MOST] = {{0}};
    struct dpe_price_answers own = {0};
    struct dpe_price_answers *answering = counted != NULL ? counted : &own;
    const int64_t most = dpe_least(dpe_least(n, task->n_samples), MOST);
    const struct dpe_session_options options = dpe_job_session_options(job, length);
    const struct dpe_session_limits limits = {.capacity = options.capacity,
                                              .branches = options.branches};
    dpe_status status = DPE_OK;
    *answering = (struct dpe_price_answers){0};
    for (int64_t i = 0; i < most && status == DPE_OK; i++) {
        status = dpe_task_sample(task, i, &samples[i], NULL, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_answering_cost(samples, most, dpe_most(job->group, 1), &limits, answering, err);
    }
    answering->room = samples[0].max_new;
    for (int64_t i = 0; i < most; i++) {
        dpe_sample_free(&samples[i]);
    }
    DPE_TRY(status);
    dpe_price_of_answers(dpe_model_config(job->model), answering, price);
    return DPE_OK;
}

/* A prediction is kept to be looked at, not to fill tables. */
enum { MAX_PREDICTION = 4096 };

struct questions {
    struct dpe_source source;
    const struct dpe_tokenizer *tokenizer;
};

/* One generation: its sample, and its answer. */
struct reading {
    const struct questions *questions;
    const struct dpe_sample *sample;
    struct dpe_tokens tokens;
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

static dpe_status take_answer(struct reading *reading, struct dpe_row *row, struct dpe_error *err)
{
    DPE_TRY(decode_answer(reading, reading->tokens.ids, reading->tokens.n, err));
    row->text = keep_text(&reading->text);
    DPE_TRY(DPE_MADE(row->text, err, "%s: no memory for a prediction",
                     reading->questions->source.name));
    row->new_tokens = (int64_t)reading->tokens.n;
    row->score = score_of(reading);
    return DPE_OK;
}

/* What is left of a sample when the first `fed` tokens of its prompt are in the session. */
static struct dpe_continuation rest_of(struct reading *reading, int64_t fed)
{
    const struct dpe_sample *sample = reading->sample;
    return (struct dpe_continuation){
        .prompt = sample->prompt.ids + fed,
        .n = (int64_t)sample->prompt.n - fed,
        .options = {.max_new = sample->max_new,
                    .stop = reading->questions->source.growing ? answered : NULL,
                    .user = reading},
        .out = &reading->tokens,
    };
}

/* The steps of one sample, the first `held` tokens of whose prompt the session holds. */
static dpe_status walk_steps(struct dpe_session *session, struct reading *reading, int64_t held,
                             struct dpe_row *row, struct dpe_error *err)
{
    const struct dpe_sample *sample = reading->sample;
    struct dpe_steps steps = {0};
    DPE_TRY(dpe_steps_run(session, sample, (int64_t)sample->prompt.n - held,
                          reading->questions->tokenizer, &steps, &reading->text, err));
    row->new_tokens = steps.new_tokens;
    row->score = steps.found;
    row->margin = steps.margin;
    row->text = keep_text(&reading->text);
    return DPE_MADE(row->text, err, "%s: no memory for steps", reading->questions->source.name);
}

/* The samples that one session answers, and how far they are. */
struct shelf {
    const struct dpe_job_rows *part;
    struct dpe_sample *samples;     /* [part->n] */
    struct reading *answers;        /* [part->n] */
    struct dpe_continuation *items; /* [part->n] of those that are answered now */
    int64_t *sizes;                 /* [part->n] as `split` has them */
    struct queue queue;
    struct family family; /* that is being answered; n 0: none yet */
    int64_t first, done;  /* its first sample; of it answered */
    int64_t n;            /* that are answered now */
};

static dpe_status shelf_begin(const struct questions *questions, const struct dpe_job_rows *part,
                              struct shelf *shelf, struct dpe_error *err)
{
    const struct dpe_source *source = &questions->source;
    const size_t n = (size_t)part->n;
    shelf->part = part;
    DPE_TRY(DPE_NEW(&shelf->sizes, n, err, "out of memory for %zu samples", n));
    DPE_TRY(DPE_NEW(&shelf->items, n, err, "out of memory for %zu samples", n));
    DPE_TRY(DPE_NEW(&shelf->samples, n, err, "out of memory for %zu samples", n));
    DPE_TRY(DPE_NEW(&shelf->answers, n, err, "out of memory for %zu samples", n));
    for (int64_t i = 0; i < part->n; i++) {
        struct dpe_sample *sample = &shelf->samples[i];
        shelf->answers[i] = (struct reading){.questions = questions, .sample = sample};
        DPE_TRY(source->sample(source->state, part->items[i].sample, sample, err));
    }
    DPE_TRY(queue_init(&shelf->queue, shelf->samples, part->n, err));
    return split(&shelf->queue, 0, part->n, shelf->sizes, err);
}

static void shelf_end(struct shelf *shelf)
{
    for (int64_t i = 0; shelf->answers != NULL && i < shelf->part->n; i++) {
        dpe_tokens_free(&shelf->answers[i].tokens);
        dpe_text_free(&shelf->answers[i].text);
        dpe_sample_free(&shelf->samples[i]);
    }
    free(shelf->samples);
    free(shelf->answers);
    free(shelf->items);
    free(shelf->sizes);
    queue_free(&shelf->queue);
}

/* What the next family begins with is in the session's cache. */
static dpe_status open_family(struct shelf *shelf, struct dpe_error *err)
{
    struct dpe_session *session = shelf->part->session;
    struct family *family = &shelf->family;
    const struct dpe_tokens *prompt = &shelf->samples[shelf->first].prompt;
    int64_t kept = dpe_session_common(session, prompt->ids, (int64_t)prompt->n - 1);
    *family = gather(&shelf->queue, shelf->first, shelf->sizes[shelf->first]);
    if (family->prefix == 0) { /* whole chunks give the same bits */
        kept -= kept % dpe_session_chunk(session);
        family->prefix = family->n == 1 ? kept : 0;
        family->room -= family->prefix;
    }
    kept = dpe_least(kept, family->prefix);
    DPE_TRY(dpe_session_cut(session, kept, err));
    return dpe_session_feed(session, prompt->ids + kept, family->prefix - kept, NULL, err);
}

/* The next samples of the shelf: as many of a family as there is room for, after its prefix. One
 * whose score is by steps is answered here. */
static dpe_status next_samples(struct shelf *shelf, struct dpe_error *err)
{
    struct dpe_session *session = shelf->part->session;
    const struct dpe_session_limits limits = dpe_session_limits(session);
    const bool steps = shelf->answers->questions->source.steps;
    if (shelf->done == 0) {
        DPE_TRY(open_family(shelf, err));
    }
    const struct family *family = &shelf->family;
    const int64_t at = shelf->first + shelf->done;
    shelf->n = dpe_least(steps ? 1 : at_once(family, &limits), family->n - shelf->done);
    DPE_TRY(dpe_session_cut(session, family->prefix, err));
    DPE_TRY(dpe_session_branch(session, shelf->n, family->room, err));
    if (steps) {
        return walk_steps(session, &shelf->answers[at], family->prefix, &shelf->part->rows[at],
                          err);
    }
    for (int64_t i = 0; i < shelf->n; i++) {
        shelf->items[i] = rest_of(&shelf->answers[at + i], family->prefix);
    }
    return DPE_OK;
}

/* They are answered. One cache serves a family: it is cut back to what all begin with. */
static dpe_status end_samples(struct shelf *shelf, struct dpe_error *err)
{
    const int64_t at = shelf->first + shelf->done;
    const bool steps = shelf->answers->questions->source.steps;
    for (int64_t i = at; i < at + shelf->n && !steps; i++) {
        DPE_TRY(take_answer(&shelf->answers[i], &shelf->part->rows[i], err));
    }
    shelf->done += shelf->n;
    if (shelf->done < shelf->family.n) {
        return DPE_OK;
    }
    shelf->first += shelf->family.n;
    shelf->done = 0;
    return shelf->family.n > 1 ? dpe_session_cut(shelf->part->session, shelf->family.prefix, err)
                               : DPE_OK;
}

/* The next samples of every shelf that has some, decoded together; *more: there were some. */
static dpe_status answer_next(struct shelf *shelves, int64_t n, struct dpe_generation *parts,
                              bool *more, struct dpe_error *err)
{
    const bool steps = shelves->answers->questions->source.steps;
    int64_t n_parts = 0;
    for (int64_t s = 0; s < n; s++) {
        struct shelf *shelf = &shelves[s];
        shelf->n = 0;
        if (shelf->first < shelf->part->n) {
            DPE_TRY(next_samples(shelf, err));
            parts[n_parts++] =
                (struct dpe_generation){shelf->part->session, shelf->items, shelf->n};
        }
    }
    *more = n_parts > 0;
    DPE_TRY(*more && !steps ? dpe_session_generate_parts(parts, n_parts, err) : DPE_OK);
    for (int64_t s = 0; s < n; s++) {
        DPE_TRY(shelves[s].n > 0 ? end_samples(&shelves[s], err) : DPE_OK);
    }
    return DPE_OK;
}

static dpe_status answer_all(const struct questions *questions, const struct dpe_job_rows *parts,
                             int64_t n, struct shelf *shelves, struct dpe_error *err)
{
    DPE_OWNED struct dpe_generation *generations = NULL;
    bool more = true;
    DPE_TRY(DPE_NEW(&generations, (size_t)n, err, "out of memory for %lld sessions", (long long)n));
    for (int64_t s = 0; s < n; s++) {
        DPE_TRY(shelf_begin(questions, &parts[s], &shelves[s], err));
    }
    while (more) {
        DPE_TRY(answer_next(shelves, n, generations, &more, err));
    }
    for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < parts[s].n; i++) {
            struct dpe_row *row = &parts[s].rows[i];
            row->seed = shelves[s].samples[i].seed;
            row->prompt_tokens = (int64_t)shelves[s].samples[i].prompt.n;
            row->at_least_half = row->score >= 0.5 ? 1.0 : 0.0;
        }
    }
    return DPE_OK;
}

static dpe_status run_questions(void *state, const struct dpe_job_rows *parts, int64_t n,
                                struct dpe_error *err)
{
    DPE_OWNED struct shelf *shelves = NULL;
    DPE_TRY(DPE_NEW(&shelves, (size_t)n, err, "out of memory for %lld sessions", (long long)n));
    const dpe_status status = answer_all(state, parts, n, shelves, err);
    for (int64_t s = 0; s < n; s++) {
        shelf_end(&shelves[s]);
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
                              .run = run_questions,
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

/* Which samples are decoded together: a batch reads what its prompts share once, and keeps what the
 * one before it has left of that. */
#include "eval/task/batches.h"
#include "outputs/job/price.h"

#include <stdlib.h>

dpe_status dpe_queue_init(struct dpe_queue *queue, int64_t n, struct dpe_error *err)
{
    *queue = (struct dpe_queue){.n = n};
    DPE_TRY(DPE_NEW(&queue->samples, (size_t)n, err, "out of memory for a batch of %lld samples",
                    (long long)n));
    return DPE_NEW(&queue->common, (size_t)n, err, "out of memory for a batch of %lld samples",
                   (long long)n);
}

void dpe_queue_free(struct dpe_queue *queue)
{
    free(queue->samples);
    free(queue->common);
    *queue = (struct dpe_queue){0};
}

void dpe_queue_compare(struct dpe_queue *queue)
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

static int64_t length_of(const struct dpe_queue *queue, int64_t i)
{
    return (int64_t)queue->samples[i]->prompt.n;
}

/* The n samples from `first` on as one batch. The last new token is not fed. */
static struct dpe_queue_batch gather(const struct dpe_queue *queue, int64_t first, int64_t n)
{
    struct dpe_queue_batch batch = {.n = n, .prefix = length_of(queue, first) - 1, .room = 1};
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
static int64_t kept_by(const struct dpe_queue_batch *batch, int64_t held,
                       const struct dpe_session_limits *limits)
{
    int64_t kept = held < batch->prefix ? held : batch->prefix;
    return batch->n > 1 ? kept : limits->chunk > 0 ? kept - kept % limits->chunk : 0;
}

/* What the cache holds of the next sample after a batch: after several, their prefix. */
static int64_t held_behind(const struct dpe_queue *queue, int64_t first,
                           const struct dpe_queue_batch *batch)
{
    int64_t held = batch->n > 1 ? batch->prefix : INT64_MAX;
    for (int64_t i = first; i < first + batch->n; i++) {
        held = queue->common[i] < held ? queue->common[i] : held;
    }
    return held;
}

static int64_t read_by(const struct dpe_queue *queue, int64_t first,
                       const struct dpe_queue_batch *batch, int64_t kept)
{
    int64_t read = batch->n > 1 ? batch->prefix - kept : -kept;
    for (int64_t i = first; i < first + batch->n; i++) {
        read += length_of(queue, i) - (batch->n > 1 ? batch->prefix : 0);
    }
    return read;
}

/* Tokens that batches of n read. */
static int64_t read_in_batches(const struct dpe_queue *queue, int64_t first, int64_t end, int64_t n,
                               int64_t held, const struct dpe_session_limits *limits)
{
    int64_t read = 0;
    for (int64_t i = first; i < end; i += n) {
        const struct dpe_queue_batch batch = gather(queue, i, n < end - i ? n : end - i);
        read += read_by(queue, i, &batch, kept_by(&batch, held, limits));
        held = held_behind(queue, i, &batch);
    }
    return read;
}

static bool fits(const struct dpe_queue_batch *batch, const struct dpe_session_limits *limits)
{
    return batch->prefix + batch->n * batch->room <= limits->capacity &&
           batch->prefix + batch->room <= limits->positions;
}

struct dpe_queue_batch dpe_queue_fit(const struct dpe_queue *queue, int64_t first, int64_t end,
                                     int64_t held, const struct dpe_session_limits *limits)
{
    int64_t n = end - first;
    struct dpe_queue_batch best = gather(queue, first, 1);
    int64_t best_read = 0;
    for (int64_t k = n < limits->branches ? n : limits->branches; k > 1; k--) {
        const struct dpe_queue_batch batch = gather(queue, first, k);
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

static void add_cost(const struct dpe_queue *queue, int64_t first,
                     const struct dpe_queue_batch *batch, int64_t kept, struct dpe_answering *cost)
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
                              const struct dpe_session_limits *limits, struct dpe_answering *cost,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_queue_free) struct dpe_queue queue = {0};
    DPE_TRY(dpe_queue_init(&queue, n, err));
    for (int64_t i = 0; i < n; i++) {
        queue.samples[i] = &samples[i];
    }
    dpe_queue_compare(&queue);
    int64_t held = 0;
    struct dpe_queue_batch batch;
    for (int64_t i = 0; i < n; i += batch.n) {
        int64_t end = (i / together + 1) * together;
        batch = dpe_queue_fit(&queue, i, end < n ? end : n, held, limits);
        add_cost(&queue, i, &batch, kept_by(&batch, held, limits), cost);
        held = held_behind(&queue, i, &batch);
    }
    return DPE_OK;
}

dpe_status dpe_task_price(const struct dpe_task *task, int64_t n, int64_t length, int64_t batch,
                          const struct dpe_config *config, struct dpe_price *price,
                          struct dpe_answering *counted, struct dpe_error *err)
{
    enum { MOST = 64 };
    struct dpe_sample samples[MOST] = {{0}};
    struct dpe_answering own = {0};
    struct dpe_answering *answering = counted != NULL ? counted : &own;
    const int64_t most = dpe_least(dpe_least(n, task->n_samples), MOST);
    const int64_t together = dpe_most(batch, 1);
    const struct dpe_session_limits limits = {
        .capacity = length * together, .positions = length, .branches = together};
    dpe_status status = DPE_OK;
    *answering = (struct dpe_answering){0};
    for (int64_t i = 0; i < most && status == DPE_OK; i++) {
        status = dpe_task_sample(task, i, &samples[i], NULL, err);
    }
    if (status == DPE_OK) {
        status = dpe_answering_cost(samples, most, together, &limits, answering, err);
    }
    const int64_t room = samples[0].max_new;
    for (int64_t i = 0; i < most; i++) {
        dpe_sample_free(&samples[i]);
    }
    DPE_TRY(status);
    const struct dpe_price_answers answers = {.samples = most,
                                              .prompts = answering->prompts,
                                              .read = answering->read,
                                              .pairs = answering->pairs,
                                              .decoded = answering->decoded,
                                              .steps = answering->steps,
                                              .room = room};
    dpe_price_of_answers(config, &answers, price);
    return DPE_OK;
}

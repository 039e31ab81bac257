/* Lanes: a step of a few sequences of a small model, each thread with some of the sequences.
 *
 * Elsewhere the threads share every product, and wait for each other and for what the others have
 * written about six times a layer. Where all weights stay in a cache that the threads share, it is
 * faster that each thread takes a part of the sequences through all layers by itself, in a lane of
 * its own: a backend of one thread, and buffers. Sums have the same order as in one batch, so
 * results have the same bits. */
#include "engine/session/session_internal.h"

#include <stddef.h>
#include <stdlib.h>

/* --------------------------------------------------------------------------------- buffers */

#define BUFFER(memory, bytes)                                                                      \
    {                                                                                              \
        offsetof(struct dpe_lane, memory), offsetof(struct dpe_session_bytes, bytes)               \
    }

/* Every buffer, and its size. */
static const struct {
    size_t memory, bytes;
} buffers[] = {
    BUFFER(x, residual),
    BUFFER(normed, hidden),
    BUFFER(q, heads),
    BUFFER(attended, heads),
    BUFFER(k, kv_heads),
    BUFFER(v, kv_heads),
    BUFFER(gate, mlp),
    BUFFER(up, mlp),
    BUFFER(workspace, workspace),
    BUFFER(part, part),
    BUFFER(lse, sinks),
    BUFFER(made, experts),
    BUFFER(scores, scores),
    BUFFER(added, added),
    BUFFER(routes, routes),
    BUFFER(gates, gates),
    BUFFER(embedded, embedded),
    BUFFER(beside, beside),
};

enum { N_BUFFERS = sizeof buffers / sizeof buffers[0] };

static dpe_mem *memory_of(struct dpe_lane *lane, int i)
{
    return (dpe_mem *)(void *)((char *)lane + buffers[i].memory);
}

static uint64_t bytes_of(const struct dpe_session_bytes *bytes, int i)
{
    return *(const uint64_t *)(const void *)((const char *)bytes + buffers[i].bytes);
}

uint64_t dpe_session_buffer_bytes(const struct dpe_session_bytes *bytes)
{
    uint64_t all = 0;
    for (int i = 0; i < N_BUFFERS; i++) {
        all = dpe_bytes_plus(all, bytes_of(bytes, i));
    }
    return all;
}

void dpe_session_share_buffers(struct dpe_session_bytes *all)
{
    for (int i = 0; i < N_BUFFERS; i++) {
        uint64_t *bytes = (uint64_t *)(void *)((char *)all + buffers[i].bytes);
        *bytes = bytes == &all->workspace ? *bytes : 0;
    }
}

bool dpe_lane_allocate(struct dpe_lane *lane, const struct dpe_session_bytes *all)
{
    bool good = true;
    for (int i = 0; i < N_BUFFERS; i++) {
        dpe_mem *memory = memory_of(lane, i);
        uint64_t bytes = bytes_of(all, i);
        bool wanted = bytes > 0 || memory == &lane->workspace; /* else this model does without */
        *memory = good && wanted ? lane->ops->allocate(lane->backend, bytes) : NULL;
        good = good && (!wanted || *memory != NULL);
    }
    return good;
}

void dpe_lane_release(struct dpe_lane *lane)
{
    for (int i = 0; i < N_BUFFERS; i++) {
        lane->ops->release(lane->backend, *memory_of(lane, i));
        *memory_of(lane, i) = NULL;
    }
}

/* ----------------------------------------------------------------------------- lanes of steps */

enum {
    MOST_ROWS = 8,           /* of a step: beyond them products have other sums */
    LEAST_ROWS = 2,          /* of a lane: below, a thread reads all weights for one row */
    MOST_WEIGHTS = 16 << 20, /* bytes that stay in the cache */
    MOST_POSITIONS = 1024    /* beyond them attention is most of a step, and unevenly divided */
};

/* As of a session of one thread for the longest step of the fewest and shortest sequences. */
static struct dpe_session_options lane_options(const struct dpe_session_options *options)
{
    struct dpe_session_options own = *options;
    own.n_threads = 1;
    own.branches = MOST_ROWS;
    own.prefill_chunk = 1;
    own.positions = own.positions < MOST_POSITIONS ? own.positions : MOST_POSITIONS;
    return own;
}

/* One for each thread, or 0 where they do not pay. */
static int count_lanes(const struct dpe_config *config, const struct dpe_ops *ops,
                       const struct dpe_session_options *options)
{
    bool fits = dpe_session_weight_bytes(config) <= MOST_WEIGHTS;
    int64_t rows = options->branches < MOST_ROWS ? options->branches : MOST_ROWS;
    return ops->side_by_side && fits && options->peers->size == 1 && options->beside == NULL &&
                   options->kv_type == DPE_KV_F32 && options->n_threads > 1 &&
                   rows >= (int64_t)LEAST_ROWS * options->n_threads
               ? options->n_threads
               : 0;
}

/* What one of the lanes allocates. */
static struct dpe_session_bytes bytes_of_one(struct dpe_session_ask ask,
                                             struct dpe_session_options *own)
{
    ask.options = own;
    return dpe_session_count_bytes(&ask);
}

uint64_t dpe_session_lanes_bytes(const struct dpe_session_ask *ask)
{
    int n = count_lanes(ask->config, ask->ops, ask->options);
    if (n == 0) {
        return 0;
    }
    struct dpe_session_options own = lane_options(ask->options);
    const struct dpe_session_bytes bytes = bytes_of_one(*ask, &own);
    return dpe_bytes_times(dpe_bytes_plus(dpe_session_buffer_bytes(&bytes), bytes.state),
                           (uint64_t)n);
}

void dpe_session_lanes_free(struct dpe_session *s)
{
    for (int i = 0; i < s->n_lanes; i++) {
        struct dpe_lane *lane = &s->lanes[i];
        if (lane->backend != NULL) {
            dpe_lane_release(lane);
            s->ops->close(lane->backend);
        }
    }
    free(s->lanes);
    s->lanes = NULL;
    s->n_lanes = 0;
}

void dpe_session_lanes_make(struct dpe_session *s)
{
    dpe_session_lanes_free(s);
    int n = count_lanes(s->config, s->ops, &s->options);
    s->lanes = s->kv == NULL && n > 0 ? dpe_alloc_zero((size_t)n, sizeof *s->lanes) : NULL;
    bool good = s->lanes != NULL;
    struct dpe_session_options own = lane_options(&s->options);
    const struct dpe_session_bytes bytes = bytes_of_one(dpe_session_asked(s), &own);
    for (int i = 0; good && i < n; i++) {
        struct dpe_lane *lane = &s->lanes[s->n_lanes++];
        *lane = dpe_lane_of(s, own.n_threads);
        good = s->ops->open(&s->slice, &own, &lane->backend, NULL) == DPE_OK &&
               dpe_lane_allocate(lane, &bytes);
    }
    if (!good) {
        dpe_session_lanes_free(s);
    }
}

bool dpe_session_takes_lanes(const struct dpe_session *s, const struct dpe_batch *batch)
{
    bool takes = s->n_lanes > 0 && s->tap == NULL && s->sums.q == NULL &&
                 batch->rows <= MOST_ROWS && batch->rows >= (int64_t)LEAST_ROWS * s->n_lanes;
    for (int64_t r = 0; takes && r < batch->rows; r++) {
        takes = batch->positions[r] < MOST_POSITIONS;
    }
    return takes;
}

/* Rows first … first+rows−1 of a step. */
static dpe_status run_lane(struct dpe_lane *lane, const struct dpe_batch *all, int64_t first,
                           int64_t rows, float *logits, struct dpe_error *err)
{
    int64_t vocab = lane->config->vocab;
    struct dpe_batch batch = dpe_batch_rows(all, first, rows);
    batch.wanted = all->wanted > 0 ? rows : 0;
    batch.best = all->best != NULL ? all->best + first : NULL;
    batch.room = (struct dpe_logit_room){all->room.logits + first * vocab, rows, 1};
    DPE_TRY(dpe_forward(lane, &batch, err));
    if (logits != NULL) {
        DPE_TRY(dpe_lane_logits(lane, rows, batch.positions, 0, logits + first * vocab, err));
    }
    return DPE_OK;
}

dpe_status dpe_session_run_lanes(struct dpe_session *s, const struct dpe_batch *batch,
                                 float *logits, struct dpe_error *err)
{
    enum { MOST_LANES = MOST_ROWS / LEAST_ROWS };
    struct dpe_error errors[MOST_LANES];
    int n = s->n_lanes;
    DPE_TRY(s->poll != NULL ? s->poll(s->poll_user, err) : DPE_OK);
#pragma omp parallel for num_threads(n) schedule(static, 1)
    for (int i = 0; i < n; i++) {
        int64_t first = batch->rows * i / n;
        int64_t rows = batch->rows * (i + 1) / n - first;
        errors[i] = (struct dpe_error){.layer = -1, .position = -1};
        /* A team of one: operations find their part of the workspace by their number in it. */
#pragma omp parallel num_threads(1)
        errors[i].status = run_lane(&s->lanes[i], batch, first, rows, logits, &errors[i]);
    }
    int bad = 0;
    for (int i = 1; i < n; i++) {
        bool earlier = errors[bad].status == DPE_OK || errors[i].layer < errors[bad].layer;
        bad = errors[i].status != DPE_OK && earlier ? i : bad;
    }
    if (errors[bad].status != DPE_OK && err != NULL) {
        *err = errors[bad];
    }
    return errors[bad].status;
}

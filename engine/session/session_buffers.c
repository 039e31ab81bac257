/* The buffers that a forward pass works in. */
#include "engine/session/session_internal.h"

#include <stddef.h>

#define BUFFER(memory, bytes)                                                                      \
    {                                                                                              \
        offsetof(struct dpe_lane, memory), offsetof(struct dpe_session_bytes, bytes)               \
    }

/* Every buffer, and its size. */
static const struct {
    size_t memory, bytes;
} buffers[] = {
    BUFFER(x, residual),     BUFFER(normed, hidden), BUFFER(q, heads),
    BUFFER(attended, heads), BUFFER(k, kv_heads),    BUFFER(v, kv_heads),
    BUFFER(gate, mlp),       BUFFER(up, mlp),        BUFFER(workspace, workspace),
    BUFFER(part, part),      BUFFER(lse, sinks),     BUFFER(gathered, experts),
    BUFFER(made, experts),   BUFFER(scores, scores), BUFFER(added, added),
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

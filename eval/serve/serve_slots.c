/* Which branch of the session a sequence gets, and what of its cache is used again. */
#include <string.h>

#include "eval/serve/serve_tool.h"

static int64_t common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b)
{
    int64_t most = n_a < n_b ? n_a : n_b;
    int64_t n = 0;
    while (n < most && a[n] == b[n]) {
        n++;
    }
    return n;
}

/* The prompt tokens that a slot's cache can save. The last one is always run: its logits are the
 * first answer. A prompt whose own log-probabilities are asked for is run as a whole. */
static int64_t saved(const struct dpe_serve_slot *slot, const struct dpe_serve_sequence *sequence)
{
    const struct dpe_tokens *prompt = sequence->prompt;
    if (sequence->request->echo && sequence->request->scored) {
        return 0;
    }
    return common(slot->tokens, slot->n, prompt->ids, (int64_t)prompt->n - 1);
}

/* The free slot that saves most; among equals the one that was used least recently. */
static struct dpe_serve_slot *best(struct dpe_serve_engine *engine,
                                   const struct dpe_serve_sequence *sequence, int64_t *most)
{
    struct dpe_serve_slot *found = NULL;
    *most = 0;
    for (int64_t i = 0; i < engine->n_slots; i++) {
        struct dpe_serve_slot *slot = &engine->slots[i];
        if (slot->sequence != NULL) {
            continue;
        }
        int64_t n = saved(slot, sequence);
        if (found == NULL || n > *most || (n == *most && slot->used < found->used)) {
            found = slot;
            *most = n;
        }
    }
    return found;
}

struct dpe_serve_slot *dpe_serve_slot_take(struct dpe_serve_engine *engine,
                                           struct dpe_serve_sequence *sequence,
                                           struct dpe_error *err)
{
    int64_t keep = 0;
    struct dpe_serve_slot *slot = best(engine, sequence, &keep);
    if (slot == NULL) {
        return NULL;
    }
    dpe_session_branch_cut(engine->session, slot - engine->slots, keep, err);
    slot->n = keep;
    slot->sequence = sequence;
    slot->used = ++engine->clock;
    sequence->cached = keep;
    return slot;
}

/**
 * @file serve_engine_internal.h
 * Inside of the engine thread: the queue, the slots, the next token.
 */
#ifndef DPE_SERVE_ENGINE_INTERNAL_H
#define DPE_SERVE_ENGINE_INTERNAL_H

#include "eval/serve/engine/serve_engine.h"

/** Take the first of the queue, which is not empty; with the lock held. */
struct dpe_serve_sequence *dpe_serve_queue_pop(struct dpe_serve_engine *engine);
/** Take cancelled sequences out of the queue: they must not keep others waiting. */
void dpe_serve_queue_drop(struct dpe_serve_engine *engine);
/** A sequence that is in no queue and no slot has ended, with "error" where `err` (NULL: none)
 * holds one; its request may be gone afterwards. */
void dpe_serve_queue_finish(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence,
                            const char *how, const struct dpe_error *err);

/** Whether a running sequence reads what this one begins with as well, so that it is better to wait
 *  until that is in its cache. */
bool dpe_serve_slot_waits(const struct dpe_serve_engine *engine,
                          const struct dpe_serve_sequence *sequence);
/** A free slot for a sequence, which there is. Its cache holds what it, or that of a running
 *  sequence, has in common with the prompt. NULL with an error. */
struct dpe_serve_slot *dpe_serve_slot_take(struct dpe_serve_engine *engine,
                                           struct dpe_serve_sequence *sequence,
                                           struct dpe_error *err);

/** Append the score of `id` and its alternatives. */
void dpe_serve_score_add(struct dpe_serve_sequence *sequence, const float *logits, int64_t vocab,
                         int32_t id);

/** Decode what is new, look for stop strings; `last`: no token follows. True: a stop string ended
 * the text. */
dpe_status dpe_serve_text_grow(const struct dpe_serve_world *world,
                               struct dpe_serve_sequence *sequence, bool last, bool *stopped,
                               struct dpe_error *err);

#endif

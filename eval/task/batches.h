/**
 * @file batches.h
 * Which samples are decoded together. Used inside eval/task only.
 */
#ifndef DPE_BATCHES_H
#define DPE_BATCHES_H

#include "engine/base/base.h"
#include "engine/session/session.h"
#include "eval/task/task.h"

/** Samples to run one after another, and how many tokens each prompt shares with the next. */
struct dpe_queue {
    const struct dpe_sample **samples; /**< [n], borrowed */
    int64_t *common; /**< [n] tokens that prompt i and the next begin with, the last one's 0 */
    int64_t n;
};
/** A queue of n samples that are to be set, then dpe_queue_compare. DPE_NO_MEMORY. */
dpe_status dpe_queue_init(struct dpe_queue *queue, int64_t n, struct dpe_error *err);
void dpe_queue_compare(struct dpe_queue *queue);
void dpe_queue_free(struct dpe_queue *queue);

/** Samples that are decoded together. */
struct dpe_queue_batch {
    int64_t n;      /**< 1: alone */
    int64_t prefix; /**< tokens that all of them begin with, fewer than any of them has */
    int64_t room;   /**< cache rows that each needs after the prefix */
};
/** How many of the samples first … end − 1 make the best batch in a session of these limits, whose
 *  cache holds the first `held` tokens of the first one: as many as fit, or fewer if every
 * additional batch saves reading more than a quarter of a prompt. */
struct dpe_queue_batch dpe_queue_fit(const struct dpe_queue *queue, int64_t first, int64_t end,
                                     int64_t held, const struct dpe_session_limits *limits);

#endif

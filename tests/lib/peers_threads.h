/**
 * @file peers_threads.h
 * Peers (options.h) that are threads of one process, for tests: the contract of dpe_peers and
 * nothing else, so that what a session does with its peers is seen without MPI.
 */
#ifndef DPE_PEERS_THREADS_H
#define DPE_PEERS_THREADS_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/ops/options.h"

enum { PEERS_MOST = 8 };

/** What a member brings to a meeting. */
struct peers_word {
    float *x;
    int64_t n;
    dpe_status status;
    struct dpe_error err;
    void *bytes;
    size_t n_bytes;
};

struct peers_room {
    int size, arrived;
    int64_t meetings; /**< that are over */
    int64_t sums;     /**< of these, with something to sum */
    bool lost;        /**< members brought different n */
    pthread_mutex_t lock;
    pthread_cond_t over;
    struct peers_word words[PEERS_MOST];
    float *sum;
    /** How the last meeting ended: stays until all have come to the next, unlike the words. */
    dpe_status status;
    struct dpe_error err;
};

struct peers_member {
    struct peers_room *room;
    struct dpe_peers peers;
};

static inline void peers_judge(struct peers_room *room)
{
    const struct peers_word *words = room->words;
    room->status = DPE_OK;
    for (int i = 0; i < room->size && room->status == DPE_OK; i++) {
        room->status = words[i].status;
        room->err = words[i].err;
    }
    for (int i = 1; i < room->size && room->status == DPE_OK; i++) {
        room->lost = room->lost || words[i].n != words[0].n;
    }
    if (room->lost) {
        room->status = dpe_fail(&room->err, DPE_INTERNAL, "the peers lost each other");
    }
    if (room->status != DPE_OK || words[0].n == 0) {
        return;
    }
    room->sums++;
    room->sum = realloc(room->sum, (size_t)words[0].n * sizeof *room->sum);
    memcpy(room->sum, words[0].x, (size_t)words[0].n * sizeof *room->sum);
    for (int i = 1; i < room->size; i++) {
        for (int64_t k = 0; k < words[0].n; k++) {
            room->sum[k] += words[i].x[k];
        }
    }
    for (int i = 0; i < room->size; i++) {
        memcpy(words[i].x, room->sum, (size_t)words[0].n * sizeof *room->sum);
    }
}

/** The last to come does all the work while the others wait. */
static inline void peers_wait(struct peers_room *room)
{
    int64_t meeting = room->meetings;
    if (++room->arrived < room->size) {
        while (room->meetings == meeting) {
            pthread_cond_wait(&room->over, &room->lock);
        }
        return;
    }
    peers_judge(room);
    for (int i = 1; i < room->size && room->words[0].bytes != NULL; i++) {
        memcpy(room->words[i].bytes, room->words[0].bytes, room->words[0].n_bytes);
    }
    room->arrived = 0;
    room->meetings++;
    pthread_cond_broadcast(&room->over);
}

static inline dpe_status peers_meet(void *user, float *x, int64_t n, dpe_status status,
                                    struct dpe_error *err)
{
    const struct peers_member *member = user;
    struct peers_room *room = member->room;
    struct peers_word *word = &room->words[member->peers.index];
    pthread_mutex_lock(&room->lock);
    *word = (struct peers_word){.x = x, .n = n, .status = status};
    if (err != NULL && status != DPE_OK) {
        word->err = *err;
    }
    peers_wait(room);
    status = room->status;
    if (status != DPE_OK && err != NULL) {
        *err = room->err;
    }
    pthread_mutex_unlock(&room->lock);
    return status;
}

static inline dpe_status peers_share(void *user, void *bytes, size_t n, struct dpe_error *err)
{
    const struct peers_member *member = user;
    struct peers_room *room = member->room;
    (void)err;
    pthread_mutex_lock(&room->lock);
    room->words[member->peers.index] = (struct peers_word){.bytes = bytes, .n_bytes = n};
    peers_wait(room);
    pthread_mutex_unlock(&room->lock);
    return DPE_OK;
}

static inline void peers_open(struct peers_room *room, struct peers_member *members, int size)
{
    *room = (struct peers_room){.size = size};
    pthread_mutex_init(&room->lock, NULL);
    pthread_cond_init(&room->over, NULL);
    for (int i = 0; i < size; i++) {
        members[i] = (struct peers_member){.room = room};
        members[i].peers = (struct dpe_peers){.index = i,
                                              .size = size,
                                              .user = &members[i],
                                              .meet = peers_meet,
                                              .share = peers_share};
    }
}

static inline void peers_close(struct peers_room *room)
{
    pthread_mutex_destroy(&room->lock);
    pthread_cond_destroy(&room->over);
    free(room->sum);
}

#endif

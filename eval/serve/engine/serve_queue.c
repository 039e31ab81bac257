/* The queue of sequences, and how those that left it end. */
#include "eval/serve/engine/serve_engine_internal.h"

void dpe_serve_queue_finish(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence,
                            const char *how, const struct dpe_error *err)
{
    struct dpe_serve_request *request = sequence->request;
    pthread_mutex_lock(&engine->lock);
    sequence->finish = how;
    sequence->ended = dpe_clock();
    if (err != NULL && request->error.status == DPE_OK) {
        request->error = *err;
    }
    engine->counts.running -= sequence->taken;
    /* Those of a cancelled request are counted already. */
    engine->counts.failed += err != NULL && !request->cancelled;
    if (err == NULL && !request->cancelled) {
        engine->counts.finished++;
        engine->counts.first_seconds += sequence->first - sequence->begun;
        engine->counts.seconds += sequence->ended - sequence->begun;
    }
    request->unfinished--;
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&engine->lock);
}

void dpe_serve_queue_drop(struct dpe_serve_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct dpe_serve_sequence *gone = NULL;
    struct dpe_serve_sequence **at = &engine->head;
    engine->tail = NULL;
    while (*at != NULL) {
        struct dpe_serve_sequence *sequence = *at;
        if (sequence->request->cancelled) {
            *at = sequence->next;
            sequence->next = gone;
            gone = sequence;
            engine->counts.waiting--;
        } else {
            engine->tail = sequence;
            at = &sequence->next;
        }
    }
    pthread_mutex_unlock(&engine->lock);
    while (gone != NULL) {
        struct dpe_serve_sequence *next = gone->next;
        dpe_serve_queue_finish(engine, gone, "error", NULL);
        gone = next;
    }
}

struct dpe_serve_sequence *dpe_serve_queue_pop(struct dpe_serve_engine *engine)
{
    struct dpe_serve_sequence *sequence = engine->head;
    engine->head = sequence->next;
    engine->tail = engine->head != NULL ? engine->tail : NULL;
    engine->counts.waiting--;
    engine->counts.running++;
    sequence->taken = true;
    return sequence;
}

int64_t dpe_serve_engine_most(const struct dpe_serve_engine *engine)
{
    return engine->n_slots + engine->world->args->queue;
}

bool dpe_serve_engine_submit(struct dpe_serve_engine *engine, struct dpe_serve_request *request)
{
    pthread_mutex_lock(&engine->lock);
    int64_t there = engine->counts.running + engine->counts.waiting;
    bool room = !engine->stop && there + request->n_sequences <= dpe_serve_engine_most(engine);
    engine->counts.requests++;
    engine->counts.refused += !room;
    for (int64_t i = 0; room && i < request->n_sequences; i++) {
        struct dpe_serve_sequence *sequence = &request->sequences[i];
        sequence->begun = dpe_clock();
        if (engine->tail != NULL) {
            engine->tail->next = sequence;
        } else {
            engine->head = sequence;
        }
        engine->tail = sequence;
        engine->counts.waiting++;
    }
    int64_t seconds = engine->world->args->request_timeout;
    request->deadline = seconds > 0 ? dpe_clock() + (double)seconds : 0.0;
    request->unfinished = room ? request->n_sequences : 0;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    return room;
}

void dpe_serve_engine_cancel(struct dpe_serve_engine *engine, struct dpe_serve_request *request,
                             const struct dpe_error *err)
{
    if (request->cancelled || request->unfinished == 0) {
        return;
    }
    request->cancelled = true;
    if (err == NULL) {
        engine->counts.cancelled++;
        return;
    }
    engine->counts.failed += request->unfinished;
    request->error = request->error.status == DPE_OK ? *err : request->error;
}

struct dpe_serve_counts dpe_serve_engine_counts(struct dpe_serve_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct dpe_serve_counts counts = engine->counts;
    pthread_mutex_unlock(&engine->lock);
    return counts;
}

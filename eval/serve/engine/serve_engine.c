/* The engine thread: reads prompts a chunk at a time and decodes all running sequences as one
 * batch, a chunk and a step in turn, so that a long prompt does not keep others waiting. */
#include <stdlib.h>
#include <string.h>

#include "engine/session/device.h"
#include "eval/cache/cache.h"
#include "eval/serve/engine/serve_engine_internal.h"

enum {
    NO_TOKEN = -2,       /* of a sequence that has all that were asked for */
    SMALL_WORK = 1 << 14 /* logits for which no second thread is woken */
};

/* --------------------------------------------------------------------------- finishing, failing */

/* The slot is free again and keeps its cache. */
static void finish_slot(struct dpe_serve_engine *engine, struct dpe_serve_slot *slot,
                        const char *how, const struct dpe_error *err)
{
    dpe_serve_queue_finish(engine, slot->sequence, how, err);
    slot->sequence = NULL;
}

/* ----------------------------------------------------------------------------------- new tokens */

static bool ends(const struct dpe_serve_engine *engine, const struct dpe_serve_request *request,
                 int32_t id)
{
    const struct dpe_config *config = dpe_model_config(engine->world->model);
    bool ended = request->kind == SERVE_CHAT && dpe_chat_ends_with(&engine->world->ends, id);
    for (int i = 0; i < config->n_eos; i++) {
        ended = ended || config->eos_ids[i] == id;
    }
    return ended && !request->ignore_eos;
}

/* The next token of a slot; −1: out of memory. */
static int32_t draw(const struct dpe_serve_engine *engine, const struct dpe_serve_slot *slot,
                    const float *logits)
{
    struct dpe_serve_sequence *sequence = slot->sequence;
    const struct dpe_serve_request *request = sequence->request;
    const struct dpe_sampling sampling = {request->temperature, request->top_p, &sequence->rng};
    return sequence->n_out == sequence->max_new
               ? NO_TOKEN
               : dpe_sample(logits, dpe_model_config(engine->world->model)->vocab, &sampling);
}

/* Add a token that was drawn from the logits and show it to the client. */
static void take_token(struct dpe_serve_engine *engine, struct dpe_serve_slot *slot,
                       const float *logits, int32_t id)
{
    struct dpe_serve_sequence *sequence = slot->sequence;
    const struct dpe_serve_request *request = sequence->request;
    int64_t vocab = dpe_model_config(engine->world->model)->vocab;
    struct dpe_error err = {0};
    const char *how = NULL;
    if (id < 0 && id != NO_TOKEN) {
        dpe_fail(&err, DPE_NO_MEMORY, "out of memory");
    }
    pthread_mutex_lock(&engine->lock);
    sequence->first = sequence->first > 0.0 ? sequence->first : dpe_clock();
    if (id >= 0 && ends(engine, request, id)) {
        how = "stop";
    } else if (id >= 0) {
        sequence->out[sequence->n_out++] = id;
        engine->counts.new_tokens++;
        if (request->scored) {
            dpe_serve_score_add(sequence, logits, vocab, id);
        }
    }
    bool full = sequence->n_out == sequence->max_new;
    bool stopped = false;
    bool last = full || how != NULL;
    /* Nobody reads the text before its end, unless it is streamed or a stop string may end it. */
    if (err.status == DPE_OK && (last || request->stream || request->n_stops > 0)) {
        dpe_serve_text_grow(engine->world, sequence, last, &stopped, &err);
    }
    if (request->stream) { /* others wait for the end */
        pthread_cond_broadcast(&sequence->request->changed);
    }
    pthread_mutex_unlock(&engine->lock);
    how = how != NULL || stopped ? "stop" : full ? "length" : NULL;
    if (err.status != DPE_OK || how != NULL) {
        finish_slot(engine, slot, how, &err);
    }
}

/* -------------------------------------------------------------------------------------- reading */

struct scoring {
    struct dpe_serve_engine *engine;
    struct dpe_serve_sequence *sequence;
    int64_t begin; /* of the call, in the prompt */
    float *last;
};

/* Scores of the prompt tokens that follow those of a block; the last row's logits are kept. */
static void score_rows(void *user, int64_t first, int64_t n, const float *logits)
{
    struct scoring *scoring = user;
    int64_t vocab = dpe_model_config(scoring->engine->world->model)->vocab;
    const struct dpe_tokens *prompt = scoring->sequence->prompt;
    for (int64_t i = 0; i < n; i++) {
        int64_t next = scoring->begin + first + i + 1;
        if (next < (int64_t)prompt->n) {
            dpe_serve_score_add(scoring->sequence, logits + i * vocab, vocab, prompt->ids[next]);
        }
    }
    memcpy(scoring->last, logits + (n - 1) * vocab, (size_t)vocab * sizeof *logits);
}

/* The next chunk of a prompt; after its last one the first token. The number of tokens that it
 * took.
 */
static int64_t read_chunk(struct dpe_serve_engine *engine, struct dpe_serve_slot *slot)
{
    struct dpe_serve_sequence *sequence = slot->sequence;
    const struct dpe_tokens *prompt = sequence->prompt;
    int64_t branch = slot - engine->slots;
    int64_t chunk = dpe_session_chunk(engine->session);
    int64_t left = (int64_t)prompt->n - slot->n;
    int64_t n = chunk - slot->n % chunk;
    n = left < n ? left : n;
    const int32_t *tokens = prompt->ids + slot->n;
    struct dpe_error err = {0};
    dpe_status status;
    if (sequence->request->echo && sequence->request->scored) {
        if (slot->n == 0) {
            dpe_serve_score_add(sequence, NULL, 0, prompt->ids[0]);
        }
        struct scoring scoring = {engine, sequence, slot->n, engine->logits};
        status =
            dpe_session_branch_rows(engine->session, branch, tokens, n, score_rows, &scoring, &err);
    } else {
        status = dpe_session_branch_feed(engine->session, branch, tokens, n,
                                         n == left ? engine->logits : NULL, &err);
    }
    if (status != DPE_OK) {
        finish_slot(engine, slot, "error", &err);
        return n;
    }
    memcpy(slot->tokens + slot->n, tokens, (size_t)n * sizeof *tokens);
    slot->n += n;
    pthread_mutex_lock(&engine->lock);
    engine->counts.prompt_tokens += n;
    pthread_mutex_unlock(&engine->lock);
    if (n == left) {
        take_token(engine, slot, engine->logits, draw(engine, slot, engine->logits));
    }
    return n;
}

/* Whether the next token of a slot goes through in a step with those of others: one that was drawn,
 * or the last one of a prompt, whose others are in the cache. */
static bool steps(const struct dpe_serve_slot *slot)
{
    const struct dpe_serve_sequence *sequence = slot->sequence;
    if (sequence == NULL) {
        return false;
    }
    int64_t left = (int64_t)sequence->prompt->n - slot->n;
    bool echoed = sequence->request->echo && sequence->request->scored;
    return left <= 0 || (left == 1 && !echoed);
}

/* Prompts, of one slot after another, until a chunk of tokens was read: many short ones come into
 * the batch together. */
static void read_prompts(struct dpe_serve_engine *engine)
{
    int64_t left = dpe_session_chunk(engine->session);
    for (int64_t i = 0; i < engine->n_slots && left > 0; i++) {
        engine->turn = (engine->turn + 1) % engine->n_slots;
        struct dpe_serve_slot *slot = &engine->slots[engine->turn];
        if (slot->sequence != NULL && !steps(slot)) {
            left -= read_chunk(engine, slot);
        }
    }
}

/* ------------------------------------------------------------------------------------- decoding */

/* The next tokens of these slots. */
static void draw_all(struct dpe_serve_engine *engine, const int64_t *branches, int64_t n,
                     int32_t *drawn)
{
    int64_t vocab = dpe_model_config(engine->world->model)->vocab;
    bool many = n > 1 && n * vocab > SMALL_WORK;
    int threads = many ? dpe_session_limits(engine->session).threads : 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        drawn[i] = draw(engine, &engine->slots[branches[i]], engine->logits + i * vocab);
    }
}

/* One step of these slots; false: it failed and nothing has changed. */
static bool step(struct dpe_serve_engine *engine, const int64_t *branches, int64_t n,
                 struct dpe_error *err)
{
    int32_t tokens[SERVE_MOST_SLOTS];
    int32_t drawn[SERVE_MOST_SLOTS];
    int64_t of_prompts = 0;
    int64_t vocab = dpe_model_config(engine->world->model)->vocab;
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_serve_slot *slot = &engine->slots[branches[i]];
        const struct dpe_serve_sequence *sequence = slot->sequence;
        bool prompt = slot->n < (int64_t)sequence->prompt->n;
        tokens[i] = prompt ? sequence->prompt->ids[slot->n] : sequence->out[sequence->n_out - 1];
        of_prompts += prompt;
    }
    if (dpe_session_step(engine->session, n, branches, tokens, engine->logits, err) != DPE_OK) {
        return false;
    }
    draw_all(engine, branches, n, drawn);
    pthread_mutex_lock(&engine->lock);
    engine->counts.steps++;
    engine->counts.prompt_tokens += of_prompts;
    pthread_mutex_unlock(&engine->lock);
    for (int64_t i = 0; i < n; i++) {
        struct dpe_serve_slot *slot = &engine->slots[branches[i]];
        slot->tokens[slot->n++] = tokens[i];
        take_token(engine, slot, engine->logits + i * vocab, drawn[i]);
    }
    return true;
}

/* A token of every sequence whose prompt is read but for its last token. When the batch fails, each
 * is tried alone: one whose logits are not finite must not end the others. */
static void step_all(struct dpe_serve_engine *engine)
{
    int64_t branches[SERVE_MOST_SLOTS];
    int64_t n = 0;
    for (int64_t i = 0; i < engine->n_slots; i++) {
        if (steps(&engine->slots[i])) {
            branches[n++] = i;
        }
    }
    struct dpe_error err = {0};
    if (n == 0 || step(engine, branches, n, &err)) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!step(engine, &branches[i], 1, &err)) {
            finish_slot(engine, &engine->slots[branches[i]], "error", &err);
        }
    }
}

/* -------------------------------------------------------------------------------------- waiting */

static int64_t running(const struct dpe_serve_engine *engine)
{
    int64_t n = 0;
    for (int64_t i = 0; i < engine->n_slots; i++) {
        n += engine->slots[i].sequence != NULL;
    }
    return n;
}

/* Free the slots of clients that are gone. */
static void drop_cancelled(struct dpe_serve_engine *engine)
{
    dpe_serve_queue_drop(engine);
    for (int64_t i = 0; i < engine->n_slots; i++) {
        struct dpe_serve_slot *slot = &engine->slots[i];
        if (slot->sequence != NULL) {
            pthread_mutex_lock(&engine->lock);
            bool gone = slot->sequence->request->cancelled;
            pthread_mutex_unlock(&engine->lock);
            if (gone) {
                finish_slot(engine, slot, "error", NULL);
            }
        }
    }
}

/* -------------------------------------------------------------------------------------- norms */

/* A prompt whose norms are asked for has the session to itself, and the caches are empty
 * afterwards. */
static void run_norms(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence)
{
    struct dpe_session *session = engine->session;
    struct dpe_error err = {0};
    struct dpe_error again = {0};
    const struct dpe_norm_text text = {sequence->prompt->ids, (int64_t)sequence->prompt->n,
                                       sequence->request->norms};
    dpe_session_norms(session, &text, 1, &err);
    if (dpe_session_cut(session, 0, &again) != DPE_OK ||
        dpe_session_branch(session, engine->n_slots, engine->world->length, &again) != DPE_OK) {
        engine->plan = -1; /* the next text sets its plan, which makes the branches */
    }
    for (int64_t i = 0; i < engine->n_slots; i++) {
        engine->slots[i].n = 0;
    }
    pthread_mutex_lock(&engine->lock);
    engine->counts.prompt_tokens += text.n;
    pthread_mutex_unlock(&engine->lock);
    dpe_serve_queue_finish(engine, sequence, "length", &err);
}

/* A slot's text goes into a file, comes from one, or is forgotten. One that was read for another
 * key, or with another cache_salt, is not there. */
static dpe_status move_slot(struct dpe_serve_engine *engine, struct dpe_serve_request *request,
                            struct dpe_error *err)
{
    struct dpe_serve_move *move = &request->move;
    struct dpe_serve_slot *slot = &engine->slots[move->slot];
    char owner[33] = "";
    if (move->slot >= engine->n_slots) {
        return dpe_fail(err, DPE_USAGE, "expected a slot from 0 to %lld, found %lld",
                        (long long)engine->n_slots - 1, (long long)move->slot);
    }
    if (request->share[0] != 0 || request->share[1] != 0) { /* else anybody's */
        snprintf(owner, sizeof owner, "%016llx%016llx", (unsigned long long)request->share[0],
                 (unsigned long long)request->share[1]);
    }
    bool own = slot->n > 0 && memcmp(slot->share, request->share, sizeof slot->share) == 0;
    move->tokens = own ? slot->n : 0;
    if (move->action == SERVE_SAVE) {
        return own ? dpe_cache_save(move->path, engine->session, move->slot, slot->tokens, slot->n,
                                    owner, &move->bytes, err)
                   : dpe_fail(err, DPE_USAGE, "slot %lld holds nothing", (long long)move->slot);
    }
    if (move->action == SERVE_ERASE && !own) {
        return DPE_OK;
    }
    slot->n = 0;
    DPE_TRY(dpe_session_branch_cut(engine->session, move->slot, 0, err));
    if (move->action == SERVE_RESTORE) {
        DPE_TRY(dpe_cache_restore(move->path, engine->session, move->slot, owner, slot->tokens,
                                  engine->world->length, &move->tokens, &move->bytes, err));
        memcpy(slot->share, request->share, sizeof slot->share);
        slot->n = move->tokens;
        slot->used = ++engine->clock;
    }
    return DPE_OK;
}

static void run_move(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence)
{
    struct dpe_error err = {0};
    const double begin = dpe_clock();
    move_slot(engine, sequence->request, &err);
    sequence->request->move.seconds = dpe_clock() - begin;
    dpe_serve_queue_finish(engine, sequence, "stop", &err);
}

/* A session has one plan. The cache does not outlive it. */
static dpe_status set_plan(struct dpe_serve_engine *engine, int64_t plan, struct dpe_error *err)
{
    if (plan == engine->plan) {
        return DPE_OK;
    }
    engine->plan = -1;
    for (int64_t i = 0; i < engine->n_slots; i++) {
        engine->slots[i].n = 0;
    }
    DPE_TRY(dpe_session_set_plan(engine->session, &dpe_serve_world_plan(engine->world, plan)->plan,
                                 err));
    DPE_TRY(dpe_session_branch(engine->session, engine->n_slots, engine->world->length, err));
    engine->plan = plan;
    return DPE_OK;
}

struct begun {
    struct dpe_serve_engine *engine;
    const struct dpe_serve_sequence *sequence;
};

static dpe_status is_cancelled(void *user, struct dpe_error *err)
{
    const struct begun *begun = user;
    pthread_mutex_lock(&begun->engine->lock);
    bool gone = begun->sequence->request->cancelled;
    pthread_mutex_unlock(&begun->engine->lock);
    return gone ? dpe_fail(err, DPE_INCOMPLETE, "the client is gone") : DPE_OK;
}

static void begin_now(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence)
{
    struct dpe_error err = {0};
    if (sequence->plan >= 0 && set_plan(engine, sequence->plan, &err) != DPE_OK) {
        dpe_serve_queue_finish(engine, sequence, "error", &err);
        return;
    }
    if (sequence->request->kind >= SERVE_NORMS) {
        (sequence->request->kind == SERVE_NORMS ? run_norms : run_move)(engine, sequence);
        return;
    }
    if (dpe_serve_slot_take(engine, sequence, &err) == NULL) {
        dpe_serve_queue_finish(engine, sequence, "error", &err);
        return;
    }
    pthread_mutex_lock(&engine->lock);
    engine->counts.cached_tokens += sequence->cached;
    pthread_mutex_unlock(&engine->lock);
}

/* Begin a sequence that was taken from the queue; there is a free slot. A plan's tables, and norms,
 * take long: its client may go, or its time end, meanwhile. */
static void begin(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence)
{
    struct begun begun = {engine, sequence};
    dpe_session_set_poll(engine->session, is_cancelled, &begun);
    begin_now(engine, sequence);
    dpe_session_set_poll(engine->session, NULL, NULL);
}

/* Begin waiting sequences, in their order: while there is a free slot, and the plan is the one that
 * runs or nothing runs. Sequences do not overtake one with another plan. */
static void admit(struct dpe_serve_engine *engine)
{
    for (;;) {
        int64_t n = running(engine);
        pthread_mutex_lock(&engine->lock);
        struct dpe_serve_sequence *next = engine->head;
        bool now = next != NULL && n < engine->n_slots &&
                   (n == 0 || (next->plan == engine->plan && next->request->kind < SERVE_NORMS &&
                               !dpe_serve_slot_waits(engine, next)));
        next = now ? dpe_serve_queue_pop(engine) : NULL;
        pthread_mutex_unlock(&engine->lock);
        if (next == NULL) {
            return;
        }
        begin(engine, next);
    }
}

/* Sleep until there is something to do; false: the end. */
static bool wait_for_work(struct dpe_serve_engine *engine)
{
    bool busy = running(engine) > 0;
    pthread_mutex_lock(&engine->lock);
    while (!busy && engine->head == NULL && !engine->stop) {
        pthread_cond_wait(&engine->work, &engine->lock);
    }
    bool go = busy || engine->head != NULL;
    pthread_mutex_unlock(&engine->lock);
    return go;
}

static void *run(void *user)
{
    struct dpe_serve_engine *engine = user;
    while (wait_for_work(engine)) {
        drop_cancelled(engine);
        admit(engine);
        read_prompts(engine);
        step_all(engine);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------ interface */

/* Bytes that slots may take by default. The pages of the weights need a part of what is free beside
 * the processors; a device has them in what a session needs. */
static uint64_t memory_for_slots(const char *device)
{
    uint64_t available = dpe_device_memory(device);
    return dpe_cuda_is_name(device) ? available - available / 10 : available / 2;
}

/* Bytes that requests need so that one with a text of the full length, as token ids in JSON, can be
 * read. */
static uint64_t least_for_requests(const struct dpe_serve_world *world)
{
    enum { ANY = 1 << 20, OF_TOKEN = 128 };
    return ANY + OF_TOKEN * (uint64_t)world->length;
}

/* As many slots as fit into the memory that may be used: --slots, or up to 8 where nothing is said.
 * A plan that comes later must fit as well. */
static dpe_status fit_slots(struct dpe_serve_engine *engine, struct dpe_session_options *options,
                            struct dpe_error *err)
{
    enum { SLOTS = 8, PART_FOR_REQUESTS = 8 /* of the free memory, without --max-memory */ };
    const struct dpe_serve_world *world = engine->world;
    uint64_t least = least_for_requests(world);
    const struct dpe_serve_arguments *args = world->args;
    uint64_t most =
        args->tool.max_memory > 0 ? args->tool.max_memory : memory_for_slots(world->device);
    int64_t n = args->slots > 0 ? args->slots : SLOTS;
    for (;; n--) {
        uint64_t needed = 0;
        options->branches = n;
        options->capacity = n * world->length;
        for (int64_t i = 0; i < world->n_plans; i++) {
            struct dpe_session_needs plan_needs = {0};
            DPE_TRY(dpe_session_estimate(dpe_model_config(world->model), &world->plans[i].plan,
                                         options, &plan_needs, err));
            needed = plan_needs.memory > needed ? plan_needs.memory : needed;
        }
        needed += least;
        if (args->slots > 0 || n == 1 || needed <= most) {
            char text[2][32];
            uint64_t rest = args->tool.max_memory == 0 ? dpe_memory_available() / PART_FOR_REQUESTS
                            : most > needed            ? most - needed
                                                       : 0;
            engine->request_memory = least + rest;
            return args->tool.max_memory == 0 || needed <= most
                       ? DPE_OK
                       : dpe_fail(
                             err, DPE_NO_MEMORY,
                             "%lld sequences of %lld tokens need %s, --max-memory allows %s; a "
                             "smaller --length or --slots needs less",
                             (long long)n, (long long)world->length,
                             dpe_format_bytes(needed, text[0]), dpe_format_bytes(most, text[1]));
        }
    }
}

static dpe_status make_slots(struct dpe_serve_engine *engine, struct dpe_error *err)
{
    const struct dpe_serve_world *world = engine->world;
    int64_t vocab = dpe_model_config(world->model)->vocab;
    DPE_TRY(DPE_NEW(&engine->slots, (size_t)engine->n_slots, err, "out of memory"));
    engine->logits = dpe_alloc((size_t)engine->n_slots * (size_t)vocab, sizeof *engine->logits);
    DPE_TRY(DPE_MADE(engine->logits, err, "out of memory"));
    for (int64_t i = 0; i < engine->n_slots; i++) {
        engine->slots[i].tokens = dpe_alloc((size_t)world->length, sizeof *engine->slots[i].tokens);
        DPE_TRY(DPE_MADE(engine->slots[i].tokens, err, "out of memory"));
    }
    return DPE_OK;
}

dpe_status dpe_serve_engine_start(const struct dpe_serve_world *world,
                                  struct dpe_serve_engine *engine, struct dpe_error *err)
{
    const struct dpe_serve_arguments *args = world->args;
    struct dpe_session_options options = {
        .device = world->device,
        .n_threads = args->tool.threads,
        .positions = world->length,
        .prefill_chunk = args->chunk < world->length ? args->chunk : world->length,
        .max_memory = args->tool.max_memory,
        .kv_type = args->tool.kv_type,
        .knobs = {.length = "--length",
                  .chunk = "--chunk",
                  .branches = "--slots",
                  .max_memory = "--max-memory"},
    };
    engine->world = world;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    DPE_TRY(fit_slots(engine, &options, err));
    engine->n_slots = options.branches;
    DPE_TRY(
        dpe_session_create(world->model, &world->plans[0].plan, &options, &engine->session, err));
    DPE_TRY(dpe_session_branch(engine->session, engine->n_slots, world->length, err));
    DPE_TRY(make_slots(engine, err));
    dpe_session_hand_over();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SERVE_STACK);
    engine->started = pthread_create(&engine->thread, &attributes, run, engine) == 0;
    pthread_attr_destroy(&attributes);
    return engine->started ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "cannot start a thread");
}

void dpe_serve_engine_stop(struct dpe_serve_engine *engine)
{
    if (engine->world == NULL) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    engine->stop = true;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    if (engine->started) {
        pthread_join(engine->thread, NULL);
    }
    dpe_session_destroy(engine->session);
    for (int64_t i = 0; i < engine->n_slots && engine->slots != NULL; i++) {
        free(engine->slots[i].tokens);
    }
    free(engine->slots);
    free(engine->logits);
    pthread_cond_destroy(&engine->work);
    pthread_mutex_destroy(&engine->lock);
}

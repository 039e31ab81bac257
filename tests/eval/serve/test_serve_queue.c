/* The queue and the slots of dpe-serve: how many sequences wait, what is counted when they end, and
 * what a slot is taken to hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/serve/engine/serve_engine_internal.h"
#include "outputs/read/read.h"

enum { SLOTS = 2, QUEUE = 3, MOST = 4 };

/* An engine whose thread is the test. */
struct desk {
    struct dpe_serve_arguments args;
    struct dpe_serve_world world;
    struct dpe_serve_engine engine;
};

static void open_desk(struct desk *desk)
{
    memset(desk, 0, sizeof *desk);
    desk->args.queue = QUEUE;
    desk->world.args = &desk->args;
    desk->engine.world = &desk->world;
    desk->engine.n_slots = SLOTS;
    pthread_mutex_init(&desk->engine.lock, NULL);
    pthread_cond_init(&desk->engine.work, NULL);
}

static void close_desk(struct desk *desk)
{
    pthread_cond_destroy(&desk->engine.work);
    pthread_mutex_destroy(&desk->engine.lock);
}

struct asked {
    struct dpe_serve_request request;
    struct dpe_serve_sequence sequences[MOST];
};

static bool ask(struct desk *desk, struct asked *asked, int64_t n)
{
    memset(asked, 0, sizeof *asked);
    asked->request.sequences = asked->sequences;
    asked->request.n_sequences = n;
    for (int64_t i = 0; i < n; i++) {
        asked->sequences[i].request = &asked->request;
    }
    pthread_cond_init(&asked->request.changed, NULL);
    return dpe_serve_engine_submit(&desk->engine, &asked->request);
}

static void check(struct desk *desk, int64_t running, int64_t waiting)
{
    const struct dpe_serve_counts counts = dpe_serve_engine_counts(&desk->engine);
    assert_int_equal(counts.running, running);
    assert_int_equal(counts.waiting, waiting);
}

/* As many as may run and wait, not one more, whichever request brings it. */
static void the_limit_is_strict(void **state)
{
    (void)state;
    struct desk desk;
    struct asked first;
    struct asked second;
    struct asked third;
    open_desk(&desk);
    struct dpe_serve_engine *engine = &desk.engine;
    assert_int_equal(dpe_serve_engine_most(engine), SLOTS + QUEUE);
    assert_true(ask(&desk, &first, 2));
    assert_false(ask(&desk, &second, 4));
    assert_int_equal(second.request.unfinished, 0);
    check(&desk, 0, 2);
    assert_true(ask(&desk, &second, 3));
    assert_false(ask(&desk, &third, 1));
    check(&desk, 0, 5);
    /* That some of them run makes no more room. */
    struct dpe_serve_sequence *running = dpe_serve_queue_pop(engine);
    assert_ptr_equal(running, &first.sequences[0]);
    assert_false(ask(&desk, &third, 1));
    check(&desk, 1, 4);
    dpe_serve_queue_finish(engine, running, "length", NULL);
    check(&desk, 0, 4);
    assert_true(ask(&desk, &third, 1));
    assert_false(ask(&desk, &third, 1));
    assert_int_equal(dpe_serve_engine_counts(engine).refused, 4);
    close_desk(&desk);
}

/* A sequence counts once, however it ends: here one fails before the time of its request is up, one
 * after that, and one is answered just then; one still waits. */
static void each_sequence_is_counted_once(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct dpe_error wrong = {0};
        struct dpe_error time = {0};
        struct desk desk;
        struct asked asked;
        dpe_fail(&wrong, DPE_NONFINITE, "not finite");
        dpe_fail(&time, DPE_INCOMPLETE, "too late");
        open_desk(&desk);
        struct dpe_serve_engine *engine = &desk.engine;
        assert_true(ask(&desk, &asked, 4));
        dpe_serve_queue_finish(engine, dpe_serve_queue_pop(engine), "error", &wrong);
        struct dpe_serve_sequence *fails = dpe_serve_queue_pop(engine);
        struct dpe_serve_sequence *answered = dpe_serve_queue_pop(engine);
        /* By the time, or because the client is gone. */
        dpe_serve_engine_cancel(engine, &asked.request, late ? &time : NULL);
        dpe_serve_queue_finish(engine, fails, "error", &wrong);
        dpe_serve_queue_finish(engine, answered, "stop", NULL);
        check(&desk, 0, 1);
        dpe_serve_queue_drop(engine);
        check(&desk, 0, 0);
        const struct dpe_serve_counts counts = dpe_serve_engine_counts(engine);
        assert_int_equal(counts.failed, late ? 4 : 1);
        assert_int_equal(counts.cancelled, late ? 0 : 1);
        assert_int_equal(counts.finished, 0);
        assert_int_equal(asked.request.unfinished, 0);
        /* The reason that a client reads is the first. */
        assert_int_equal(asked.request.error.status, DPE_NONFINITE);
        close_desk(&desk);
    }
}

dpe_status __wrap_dpe_session_branch_cut(struct dpe_session *session, int64_t branch, int64_t keep,
                                         struct dpe_error *err);

/* The disk of its cache has failed. */
dpe_status __wrap_dpe_session_branch_cut(struct dpe_session *session, int64_t branch, int64_t keep,
                                         struct dpe_error *err)
{
    (void)session, (void)branch, (void)keep;
    return dpe_fail(err, DPE_IO, "reading failed");
}

/* A branch that could not be cut back: none of its tokens are used again. */
static void a_slot_that_failed_is_empty(void **state)
{
    (void)state;
    int32_t held[] = {5, 6, 7, 8};
    int32_t ids[] = {5, 6, 9};
    const struct dpe_tokens prompt = {.ids = ids, .n = 3};
    struct dpe_serve_slot slot = {.tokens = held, .n = 4};
    struct dpe_error err = {0};
    struct desk desk;
    struct asked asked;
    open_desk(&desk);
    desk.engine.slots = &slot;
    desk.engine.n_slots = 1;
    assert_true(ask(&desk, &asked, 1));
    asked.sequences[0].prompt = &prompt;
    assert_null(dpe_serve_slot_take(&desk.engine, dpe_serve_queue_pop(&desk.engine), &err));
    assert_int_equal(err.status, DPE_IO);
    assert_null(slot.sequence);
    assert_int_equal(slot.n, 0);
    close_desk(&desk);
}

/* Plans of strangers: the last ones are there, however many come, and so is one that a request
 * holds, whose number no other gets. Where requests hold all, another one is refused. */
static void plans_that_nobody_uses_are_forgotten(void **state)
{
    (void)state;
    enum { MORE = 40 };
    static char digests[SERVE_MOST_TAKEN + MORE][65];
    static int64_t held[SERVE_MOST_TAKEN];
    struct dpe_serve_arguments args = {.model = DPE_SOURCE_DIR "/data/reference",
                                       .given = DPE_SOURCE_DIR "/data/reference",
                                       .method = "rope",
                                       .length = 512};
    struct dpe_serve_world world;
    struct dpe_error err = {0};
    struct dpe_table *table = NULL;
    if (dpe_serve_world_open(&args, &world, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    const struct dpe_plan_context context = {.config = dpe_model_config(world.model),
                                             .trained_length = 256,
                                             .length = 512,
                                             .official = true};
    if (dpe_table_for_plan(&world.plans[0].plan, &context, dpe_model_fingerprint(world.model), 0,
                           &table, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    char *text = dpe_table_json(table);
    json_t *plan = json_loads(text, 0, NULL);
    assert_non_null(plan);
    for (int i = 0; i < SERVE_MOST_TAKEN + MORE; i++) {
        snprintf(digests[i], sizeof digests[i], "%064x", i);
        assert_int_equal(dpe_serve_taken_add(&world, plan, digests[i], &err), DPE_OK);
        held[0] = i == 0 ? dpe_serve_world_hold(&world, digests[0]) : held[0];
    }
    assert_int_equal(world.taken->n, SERVE_MOST_TAKEN);
    assert_string_equal(dpe_serve_world_plan(&world, held[0])->digest, digests[0]);
    for (int i = 1; i < MORE; i++) {
        assert_int_equal(dpe_serve_world_hold(&world, digests[i]), -1);
    }
    for (int i = 1; i < SERVE_MOST_TAKEN; i++) {
        held[i] = dpe_serve_world_hold(&world, digests[MORE + i]);
        assert_true(held[i] > held[i - 1]);
    }
    char another[65] = "another";
    assert_int_equal(dpe_serve_taken_add(&world, plan, another, &err), DPE_NO_MEMORY);
    dpe_serve_world_release(&world, held[7]);
    assert_int_equal(dpe_serve_taken_add(&world, plan, another, &err), DPE_OK);
    const int64_t last = dpe_serve_world_hold(&world, another);
    assert_true(last > held[SERVE_MOST_TAKEN - 1]);
    dpe_serve_world_release(&world, last);
    for (int i = 0; i < SERVE_MOST_TAKEN; i++) {
        if (i != 7) {
            dpe_serve_world_release(&world, held[i]);
        }
    }
    json_decref(plan);
    free(text);
    dpe_table_close(table);
    dpe_serve_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_is_strict),
        cmocka_unit_test(each_sequence_is_counted_once),
        cmocka_unit_test(a_slot_that_failed_is_empty),
        cmocka_unit_test(plans_that_nobody_uses_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

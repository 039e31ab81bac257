/* Steps of sessions that are beside each other: each has a plan, a context and branches of its own,
 * and gets what it gets alone, on processors with the same bits.
 *
 * With an argument, on the device cuda, which is the emulated one, or that of the module which
 * DPE_TEST_CUDA_MODULE names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/engine/session/session_case.h"
#include "tests/lib/few.h"

enum { SESSIONS = 4, MOST_BRANCHES = 5, ROOM = 12, STEPS = 6, CHUNK = 24 };
enum { MOST_SESSIONS = 19 }; /* more than go into attention at a time */
enum { MOST_ROWS = SESSIONS * MOST_BRANCHES };

static bool on_cuda;

/* What a session is made for. */
struct side {
    const char *spec;
    int64_t context, branches;
};
struct world {
    const struct tiny *tiny;
    const char *device;
    enum dpe_kv_type type;
    struct side sides[MOST_SESSIONS];
    int n;
    struct dpe_session *together[MOST_SESSIONS], *alone[MOST_SESSIONS];
};

static int32_t token_of(const struct tiny *tiny, int64_t session, int64_t i)
{
    return tiny->tokens[(i * (2 * session + 1) + 5 * session + i / 7) % tiny->n];
}

static struct dpe_session *open_side(const struct world *world, int s, struct dpe_session *beside)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct side *side = &world->sides[s];
    struct dpe_plan plan = tiny_plan(world->tiny, side->spec, 64);
    const struct dpe_session_options options = {.device = world->device,
                                                .n_threads = 2,
                                                .capacity = side->context + side->branches * ROOM,
                                                .positions = side->context + ROOM,
                                                .branches = side->branches,
                                                .prefill_chunk = CHUNK,
                                                .kv_type = world->type,
                                                .beside = beside};
    struct dpe_session_needs needs = {0};
    TINY_OK(dpe_session_estimate(world->tiny->config, &plan, &options, &needs, &err), err);
    TINY_OK(dpe_session_create(world->tiny->model, &plan, &options, &session, &err), err);
    assert_int_equal(needs.memory, dpe_session_memory(session).total);
    dpe_plan_free(&plan);
    return session;
}

/* The first has the longest context, so that its chunk and rows are the largest. */
static void open_world(struct world *world)
{
    for (int s = 0; s < world->n; s++) {
        world->together[s] = open_side(world, s, s > 0 ? world->together[s - 1] : NULL);
        world->alone[s] = open_side(world, s, NULL);
        assert_true(s == 0 || dpe_session_memory(world->together[s]).total <
                                  dpe_session_memory(world->alone[s]).total);
    }
}

static void close_world(struct world *world)
{
    for (int s = world->n - 1; s >= 0; s--) {
        dpe_session_destroy(world->together[s]);
        dpe_session_destroy(world->alone[s]);
    }
}

/* Its context is read, and of each branch a prompt of a few tokens. */
static void begin(const struct world *world, int s, struct dpe_session *session)
{
    struct dpe_error err = {0};
    const struct side *side = &world->sides[s];
    int32_t text[64];
    for (int64_t i = 0; i < 64; i++) {
        text[i] = token_of(world->tiny, s, i);
    }
    TINY_OK(dpe_session_cut(session, 0, &err), err);
    TINY_OK(dpe_session_feed(session, text, side->context, NULL, &err), err);
    TINY_OK(dpe_session_branch(session, side->branches, ROOM, &err), err);
    for (int64_t b = 0; b < side->branches; b++) {
        TINY_OK(
            dpe_session_branch_feed(session, b, text + side->context + b, 1 + b % 3, NULL, &err),
            err);
    }
}

static void expect_same(const struct world *world, int64_t rows, const float *got,
                        const float *want)
{
    if (!on_cuda && rows <= 16) { /* more rows have other sums, as in a batch of one session */
        assert_memory_equal(got, want, VOCAB * sizeof *got);
        return;
    }
    double spread = 0.0;
    double wide[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        wide[i] = (double)want[i];
        spread = fmax(spread, fabs(wide[i]));
    }
    assert_int_equal(near_f32(world->sides[0].spec, got, wide, VOCAB, 2e-5 * spread), 0);
}

/* Some of the sessions in turn, with the first branch last, against one row after another. */
static void one_step(struct world *world, int step)
{
    struct dpe_error err = {0};
    struct dpe_session_part parts[MOST_SESSIONS];
    int64_t branches[MOST_ROWS];
    int32_t tokens[MOST_ROWS];
    int32_t best[MOST_ROWS];
    float got[MOST_ROWS * VOCAB];
    float want[VOCAB];
    int64_t n_parts = 0;
    int64_t rows = 0;
    for (int i = 0; i < world->n; i++) {
        const int s = (i + step) % world->n;
        if (world->n > 1 && step % (world->n + 1) == s) {
            continue;
        }
        const int64_t n = world->sides[s].branches;
        parts[n_parts++] = (struct dpe_session_part){world->together[s], n, branches + rows};
        for (int64_t b = 0; b < n; b++) {
            branches[rows] = (b + step) % n;
            tokens[rows++] = token_of(world->tiny, s, 3 * step + b);
        }
    }
    const bool finds = step % 3 == 2;
    TINY_OK(dpe_session_step_parts(parts, n_parts, tokens, finds ? NULL : got, finds ? best : NULL,
                                   &err),
            err);
    for (int64_t p = 0, at = 0; p < n_parts; p++) {
        int s = 0;
        while (world->together[s] != parts[p].session) {
            s++;
        }
        for (int64_t i = 0; i < parts[p].n; i++, at++) {
            TINY_OK(dpe_session_step(world->alone[s], 1, &branches[at], &tokens[at], want, &err),
                    err);
            if (finds) {
                assert_int_equal(best[at], dpe_likeliest(want, VOCAB));
            } else {
                expect_same(world, rows, got + at * VOCAB, want);
            }
        }
    }
}

static void run_world(struct world *world)
{
    struct dpe_error err = {0};
    open_world(world);
    for (int turn = 0; turn < 2; turn++) {
        for (int s = 0; s < world->n; s++) {
            begin(world, s, world->together[s]);
            begin(world, s, world->alone[s]);
        }
        for (int step = 0; step < STEPS; step++) {
            one_step(world, step);
        }
        /* Each takes the plan of the next one. */
        const char *first = world->sides[0].spec;
        for (int s = 0; s < world->n; s++) {
            world->sides[s].spec = s + 1 < world->n ? world->sides[s + 1].spec : first;
            struct dpe_plan plan = tiny_plan(world->tiny, world->sides[s].spec, 64);
            TINY_OK(dpe_session_set_plan(world->together[s], &plan, &err), err);
            TINY_OK(dpe_session_set_plan(world->alone[s], &plan, &err), err);
            dpe_plan_free(&plan);
        }
    }
    close_world(world);
}

static void plans_side_by_side(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        const char *specs[SESSIONS];
        bool on_cuda; /* cuda carries it */
    } cases[] = {
        {"llama",
         {"rope", "dpe:window=5,groups=3,scales=1/2.5/4,log-n=6", "self-extend:window=5,group=4",
          "select:k=2,block=4,sinks=2,local=5,refresh=3,representative=extremes"},
         true},
        {"qwen2", {"yarn", "rerope:window=6", "dca:chunk=12,local=5", "string:window=3"}, true},
        {"families/qwen3_5",
         {"rope", "dpe:window=5,groups=3,scales=1/2.5/4", "yarn", "rope"},
         true},
        {"families/gemma3",
         {"rope", "dpe:window=5,groups=3,scales=1/2.5/4", "rope", "self-extend:window=5,group=4"},
         true},
        {"families/gpt_oss",
         {"rope", "rope", "dpe:window=5,groups=3,scales=1/2.5/4", "rope"},
         true},
        {"families/gemma4", {"rope", "rope", "rope", "rope"}, false},
        {"families/nsa", {"rope", "rope", "rope", "rope"}, true},
    };
    const size_t n_cases = few_cases() ? 3 : sizeof cases / sizeof cases[0];
    for (size_t i = 0; i < n_cases; i += (size_t)few(2)) {
        struct tiny tiny = tiny_open(cases[i].family);
        if (on_cuda) {
            tiny.model->config.dtype = DPE_F32; /* where rounding hides nothing */
        }
        for (int d = 0; d < (on_cuda ? 1 : N_DEVICES) && (cases[i].on_cuda || !on_cuda); d++) {
            struct world world = {
                .tiny = &tiny, .device = on_cuda ? "cuda" : devices[d], .n = SESSIONS};
            static const int64_t contexts[] = {23, 17, 0, 9};
            static const int64_t branches[] = {2, 3, 1, 2};
            for (int s = 0; s < SESSIONS; s++) {
                world.sides[s] = (struct side){cases[i].specs[s], contexts[s], branches[s]};
            }
            run_world(&world);
        }
        tiny_close(&tiny);
    }
}

static void contexts_of_one_plan(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    if (on_cuda) {
        tiny.model->config.dtype = DPE_F32;
    }
    for (int i = 0; i < (on_cuda ? 1 : 3); i++) {
        struct world world = {.tiny = &tiny,
                              .device = on_cuda ? "cuda" : "cpu",
                              .type = on_cuda ? DPE_KV_F32 : (enum dpe_kv_type)i,
                              .n = 3};
        for (int s = 0; s < world.n; s++) {
            world.sides[s] = (struct side){"dpe:window=5,groups=3,scales=1/2.5/4", 29 - 4 * s,
                                           i > 0 ? MOST_BRANCHES : 2};
        }
        run_world(&world);
    }
    tiny_close(&tiny);
}

static void many_contexts(void **state)
{
    (void)state;
    static const char *const specs[] = {"rope", "dpe:window=5,groups=3,scales=1/2.5/4",
                                        "self-extend:window=5,group=4"};
    struct tiny tiny = tiny_open("llama");
    for (int d = 0; d < N_DEVICES; d++) {
        struct world world = {.tiny = &tiny, .device = devices[d], .n = MOST_SESSIONS};
        for (int s = 0; s < world.n; s++) {
            world.sides[s] = (struct side){specs[s % 3], 23 - s, 1};
        }
        run_world(&world);
    }
    tiny_close(&tiny);
}

static bool stop_after(void *user, const int32_t *generated, size_t n)
{
    (void)generated;
    return n == *(size_t *)user;
}

/* Answers of different lengths, of more branches than a step has rows. */
static void generated_as_alone(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama3");
    struct dpe_error err = {0};
    struct world world = {.tiny = &tiny, .device = on_cuda ? "cuda" : "cpu", .n = 3};
    struct dpe_generation parts[SESSIONS];
    struct dpe_continuation items[SESSIONS][MOST_BRANCHES];
    struct dpe_tokens made[2][SESSIONS][MOST_BRANCHES] = {{{{0}}}};
    int32_t prompts[SESSIONS][MOST_BRANCHES];
    size_t stops[MOST_BRANCHES] = {7, 1, 4, 99, 3};
    if (on_cuda) {
        tiny.model->config.dtype = DPE_F32;
    }
    for (int s = 0; s < world.n; s++) {
        world.sides[s] =
            (struct side){s == 1 ? "self-extend:window=5,group=4" : "rope", 20 - 3 * s, s + 3};
    }
    open_world(&world);
    world.together[0]->bytes.rows = 5; /* of a step */
    for (int turn = 0; turn < 2; turn++) {
        struct dpe_session **sessions = turn == 0 ? world.together : world.alone;
        for (int s = 0; s < world.n; s++) {
            begin(&world, s, sessions[s]);
            for (int64_t b = 0; b < world.sides[s].branches; b++) {
                prompts[s][b] = token_of(&tiny, s, 2 * b);
                items[s][b] = (struct dpe_continuation){
                    .prompt = &prompts[s][b],
                    .n = 1,
                    .options = {.max_new = 6,
                                .stop = stop_after,
                                .user = &stops[b],
                                .ignore_eos = true},
                    .out = &made[turn][s][b],
                };
            }
            parts[s] = (struct dpe_generation){sessions[s], items[s], world.sides[s].branches};
            if (turn == 1) {
                TINY_OK(dpe_session_generate_parts(&parts[s], 1, &err), err);
            }
        }
        if (turn == 0) {
            TINY_OK(dpe_session_generate_parts(parts, world.n, &err), err);
        }
    }
    for (int s = 0; s < world.n; s++) {
        for (int64_t b = 0; b < world.sides[s].branches; b++) {
            const struct dpe_tokens *a = &made[0][s][b];
            const struct dpe_tokens *c = &made[1][s][b];
            assert_int_equal(a->n, stops[b] < 6 ? stops[b] : 6);
            assert_int_equal(a->n, c->n);
            assert_memory_equal(a->ids, c->ids, a->n * sizeof *a->ids);
            dpe_tokens_free(&made[0][s][b]);
            dpe_tokens_free(&made[1][s][b]);
        }
    }
    close_world(&world);
    tiny_close(&tiny);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct tiny other = tiny_open("llama");
    struct dpe_error err = {0};
    struct world world = {.tiny = &tiny, .device = "cpu", .n = 2};
    const int64_t branches[] = {0, 1, 2};
    float logits[MOST_ROWS * VOCAB];
    world.sides[0] = (struct side){"rope", 20, 3};
    world.sides[1] = (struct side){"yarn", 10, 3};
    open_world(&world);
    for (int s = 0; s < 2; s++) {
        begin(&world, s, world.together[s]);
        begin(&world, s, world.alone[s]);
    }
    const struct dpe_session_part twice[] = {{world.together[1], 1, branches},
                                             {world.together[1], 1, branches + 1}};
    const struct dpe_session_part apart[] = {{world.together[0], 1, branches},
                                             {world.alone[1], 1, branches}};
    const struct dpe_session_part good[] = {{world.together[1], 3, branches},
                                            {world.together[0], 3, branches}};
    assert_int_equal(dpe_session_step_parts(twice, 2, tiny.tokens, logits, NULL, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "each once"));
    assert_int_equal(dpe_session_step_parts(apart, 2, tiny.tokens, logits, NULL, &err), DPE_USAGE);
    world.together[0]->bytes.rows = 5;
    assert_int_equal(dpe_session_step_parts(good, 2, tiny.tokens, logits, NULL, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "at most 5 rows, found 6"));
    world.together[0]->bytes.rows = CHUNK;
    assert_int_equal(world.together[0]->length[0], 21);
    TINY_OK(dpe_session_step_parts(good, 2, tiny.tokens, NULL, NULL, &err), err);
    assert_int_equal(world.together[0]->length[0], 22);
    assert_int_equal(dpe_session_work(world.together[1]).decoded, 3);
    assert_int_equal(dpe_session_work(world.together[1]).steps, 1);

    struct dpe_session *s = NULL;
    struct dpe_plan plan = tiny_plan(&tiny, "rope", 64);
    struct dpe_session_options options = {.capacity = 400, .branches = CHUNK + 1};
    options.beside = world.together[0];
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &s, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "found it and 25"));
    options.branches = 1;
    assert_int_equal(dpe_session_create(other.model, &plan, &options, &s, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "another model"));
    options.capacity = 0;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &s, &err), DPE_USAGE);
    options.capacity = 400;
    options.max_memory = 1000;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &s, &err), DPE_NO_MEMORY);
    assert_int_equal(world.together[0]->n_beside, 1);
    /* What was refused has changed nothing. */
    for (int t = 0; t < 2; t++) {
        begin(&world, t, world.together[t]);
        begin(&world, t, world.alone[t]);
    }
    one_step(&world, 2);
    dpe_plan_free(&plan);
    close_world(&world);
    tiny_close(&tiny);
    tiny_close(&other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_side_by_side),
        cmocka_unit_test(contexts_of_one_plan),
        cmocka_unit_test(many_contexts),
        cmocka_unit_test(generated_as_alone),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    const struct CMUnitTest few[] = {
        cmocka_unit_test(plans_side_by_side),
        cmocka_unit_test(contexts_of_one_plan),
        cmocka_unit_test(generated_as_alone),
    };
    (void)argv;
    if (argc > 1) {
        const char *module = getenv("DPE_TEST_CUDA_MODULE");
        const char *emulated = DPE_BINARY_DIR "/tests/libdpe_cuda_emulated.so";
        setenv("DPE_CUDA_MODULE", module != NULL ? module : emulated, 1);
        setenv("DPE_DEVICE_SELF_TEST", "off", 1);
        on_cuda = true;
        return cmocka_run_group_tests(few, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

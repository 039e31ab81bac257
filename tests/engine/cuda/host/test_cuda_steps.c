/* Steps of decoding as graphs, against the same steps launch by launch (DPE_CUDA_GRAPHS=off), bit
 * by bit; and what happens where there are no graphs. On the emulated device, or, with
 * DPE_TEST_CUDA_MODULE, on the one of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/cuda/host/cuda_case.h"
#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/few.h"

/* Every position has a step of its own. The prompt ends before 128 keys, where a row's keys are cut
 * into more units, so that the launches of a step change on the way. */
enum { PROMPT = 120, STEPS = 14, ROOM = 20, BRANCHES = 3 };
/* Steps of many rows, whose products are cuBLAS's. */
enum { MOST_ROWS = 64, SHORT_PROMPT = 21, FEW_STEPS = 8 };

/* What the steps of a session gave. */
struct outcome {
    float logits[STEPS][MOST_ROWS][VOCAB];
    int32_t best[STEPS][MOST_ROWS];
};

/* Steps of `n` branches, of one less after half of them; by turns logits and the likeliest tokens.
 */
static void run_steps(const struct wide *wide, const struct dpe_plan *plan, int64_t n,
                      struct outcome *out)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const bool many = n > BRANCHES;
    const int64_t prompt = many ? SHORT_PROMPT : PROMPT;
    const int steps = many ? FEW_STEPS : STEPS;
    const struct dpe_session_options options = {.device = "cuda",
                                                .n_threads = 1,
                                                .capacity = prompt + n * ROOM,
                                                .positions = prompt + ROOM,
                                                .branches = n,
                                                .prefill_chunk = prompt};
    int64_t which[MOST_ROWS];
    for (int64_t i = 0; i < n; i++) {
        which[i] = i < 2 && n > 1 ? 1 - i : i;
    }
    memset(out, 0, sizeof *out);
    TINY_OK(dpe_session_create(wide->model, plan, &options, &session, &err), err);
    TINY_OK(dpe_session_feed(session, wide->tokens, prompt, NULL, &err), err);
    if (n > 1) {
        TINY_OK(dpe_session_branch(session, n, ROOM, &err), err);
    }
    for (int step = 0; step < steps; step++) {
        int64_t rows = n > 1 && step >= steps / 2 ? n - 1 : n;
        const int32_t *tokens = wide->tokens + 7 * step;
        if (step % 3 == 2) {
            TINY_OK(dpe_session_step_best(session, rows, which, tokens, out->best[step], &err),
                    err);
        } else {
            TINY_OK(dpe_session_step(session, rows, which, tokens, out->logits[step][0], &err),
                    err);
        }
    }
    dpe_session_destroy(session);
}

static struct outcome plain;
static struct outcome graphs;

static void expect_same(const char *what)
{
    for (int step = 0; step < STEPS; step++) {
        if (memcmp(plain.logits[step], graphs.logits[step], sizeof plain.logits[step]) != 0 ||
            memcmp(plain.best[step], graphs.best[step], sizeof plain.best[step]) != 0) {
            fail_msg("%s: step %d differs, by up to %.2e", what, step,
                     worst(graphs.logits[step][0], plain.logits[step][0], MOST_ROWS * VOCAB));
        }
    }
}

static struct fake_counts counts_if_emulated(void)
{
    return cuda_is_real() ? (struct fake_counts){0} : counts();
}

static void same_as_launch_by_launch(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int64_t heads, kv_heads, head_dim;
        enum dpe_dtype dtype;
        int plan_case, window, rows;
        enum { PLAIN, STATES, EXPERTS, SIZES } kind;
    } cases[] = {
        {"capability=90", 4, 4, 64, DPE_BF16, 1, 33, 1, PLAIN},
        {"capability=80,seed=3", 4, 4, 64, DPE_F16, 0, 9, 3, PLAIN},
        {"capability=80", 2, 2, 64, DPE_BF16, 2, 30, 2, PLAIN},
        {"capability=80", 2, 2, 64, DPE_BF16, 1, 33, 3, STATES},
        {"capability=80", 2, 2, 64, DPE_BF16, 1, 33, 3, EXPERTS},
        {"capability=80", 4, 1, 512, DPE_BF16, 1, 33, 3, SIZES},
        {"capability=80", 4, 2, 64, DPE_BF16, 1, 9, 16, PLAIN},
        {"capability=90", 2, 1, 64, DPE_F16, 0, 9, 32, EXPERTS},
        {"capability=80", 2, 2, 64, DPE_BF16, 2, 9, 16, STATES},
        {"capability=80", 2, 1, 64, DPE_BF16, 1, 9, MOST_ROWS, PLAIN},
    };
    uint64_t made = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += (size_t)few(2)) {
        struct wide wide =
            cases[i].kind == STATES    ? wide_with_states(cases[i].head_dim, cases[i].dtype)
            : cases[i].kind == EXPERTS ? wide_with_experts(cases[i].head_dim, cases[i].dtype)
            : cases[i].kind == SIZES
                ? wide_with_sizes(cases[i].head_dim, 64, cases[i].dtype)
                : wide_open(cases[i].heads, cases[i].kv_heads, cases[i].head_dim, cases[i].dtype);
        struct dpe_plan plan;
        plan_case_make(cases[i].plan_case, cases[i].window, &wide.config, &plan);
        device(cases[i].device);
        setenv("DPE_CUDA_GRAPHS", "off", 1);
        run_steps(&wide, &plan, cases[i].rows, &plain);
        unsetenv("DPE_CUDA_GRAPHS");
        const struct fake_counts before = counts_if_emulated();
        assert_true(cuda_is_real() || before.graphs == made);
        run_steps(&wide, &plan, cases[i].rows, &graphs);
        expect_same("graphs");
        if (!cuda_is_real()) {
            /* Steps with logits and with tokens; of each of them two kinds: of one row, before and
             * after 128 keys, of several rows, before and after the last branch has ended. Each
             * kind comes once launch by launch; where there are few steps, those with tokens do not
             * come again. */
            const bool many = cases[i].rows > BRANCHES;
            made += many ? 2 : 4;
            assert_int_equal(counts().graphs, made);
            assert_int_equal(counts().graph_runs - before.graph_runs,
                             (many ? FEW_STEPS : STEPS) - 4);
        }
        dpe_plan_free(&plan);
        dpe_model_close(wide.model);
    }
    expect_clean();
}

/* Under a selection: blocks are completed and chosen, keys become more than 128 on the way. */
static void under_a_selection(void **state)
{
    (void)state;
    static const char *const plans[] = {
        "select:k=2,block=8,sinks=2,local=16",
        "select:k=2,block=5,local=9,representative=probability,last=4,slashes=6,over=dpe:window=20,"
        "groups=2,scales=2/3",
        "select:k=1,block=4,local=6,representative=compressed,refresh=2,unit=kv-head",
    };
    for (int i = 0; i < 3; i++) {
        struct wide wide = wide_open(4, 2, 64, i == 1 ? DPE_F16 : DPE_BF16);
        struct dpe_error err = {0};
        struct dpe_plan plan;
        const struct dpe_plan_context context = {
            .config = &wide.config, .trained_length = 64, .length = PROMPT + ROOM};
        TINY_OK(dpe_plan_make(plans[i], &context, &plan, &err), err);
        device("capability=80");
        setenv("DPE_CUDA_GRAPHS", "off", 1);
        run_steps(&wide, &plan, 1 + i, &plain);
        unsetenv("DPE_CUDA_GRAPHS");
        const struct fake_counts before = counts_if_emulated();
        run_steps(&wide, &plan, 1 + i, &graphs);
        expect_same(plans[i]);
        if (!cuda_is_real()) {
            /* Kinds as in the test above; of several rows one step more has kept launches alone: a
             * branch ends one step before keys are more than 128. */
            assert_int_equal(counts().graphs - before.graphs, 4);
            assert_int_equal(counts().graph_runs - before.graph_runs, STEPS - (i == 0 ? 4 : 5));
        }
        dpe_plan_free(&plan);
        dpe_model_close(wide.model);
    }
    expect_clean();
}

/* Sessions beside each other; MOST_SIDES are more than one launch decodes. */
enum { SIDES = 3, MOST_SIDES = 9, SIDE_ROWS = 12 };
static const int64_t side_branches[MOST_SIDES] = {2, 1, 3, 1, 1, 1, 1, 1, 1};
static const int64_t side_prompts[MOST_SIDES] = {PROMPT, 33, 70, 5, 0, 17, 9, 40, 1};

struct side_outcome {
    float logits[FEW_STEPS][SIDE_ROWS][VOCAB];
};

/* Steps of sessions beside each other, each with a plan, a prompt and branches of its own, without
 * the last one after half of them; or, alone, of one session after another. */
static void run_sides(const struct wide *wide, const struct dpe_plan *plans, int sides, bool alone,
                      struct side_outcome *out)
{
    static const int64_t which[] = {0, 1, 2};
    struct dpe_error err = {0};
    struct dpe_session *sessions[MOST_SIDES];
    struct dpe_session_part parts[MOST_SIDES];
    struct dpe_session_options options = {
        .device = "cuda", .n_threads = 1, .prefill_chunk = PROMPT};
    memset(out, 0, sizeof *out);
    for (int s = 0; s < sides; s++) {
        options.branches = side_branches[s];
        options.capacity = side_prompts[s] + side_branches[s] * ROOM;
        options.positions = side_prompts[s] + ROOM;
        TINY_OK(dpe_session_create(wide->model, &plans[s % SIDES], &options, &sessions[s], &err),
                err);
        options.beside = alone ? NULL : sessions[0];
        TINY_OK(dpe_session_feed(sessions[s], wide->tokens + s, side_prompts[s], NULL, &err), err);
        TINY_OK(dpe_session_branch(sessions[s], side_branches[s], ROOM, &err), err);
        parts[s] = (struct dpe_session_part){sessions[s], side_branches[s], which};
    }
    for (int step = 0; step < FEW_STEPS; step++) {
        const int n = step < FEW_STEPS / 2 ? sides : sides - 1;
        const int32_t *tokens = wide->tokens + 7 * step;
        float(*to)[VOCAB] = out->logits[step];
        for (int s = 0; s < n; s += alone ? 1 : n) {
            TINY_OK(dpe_session_step_parts(parts + s, alone ? 1 : n, tokens, to[0], NULL, &err),
                    err);
            tokens += side_branches[s];
            to += side_branches[s];
        }
    }
    for (int s = sides - 1; s >= 0; s--) {
        dpe_session_destroy(sessions[s]);
    }
}

static void sessions_step_together(void **state)
{
    (void)state;
    static struct side_outcome alone, launches, as_graphs;
    enum { N = FEW_STEPS * SIDE_ROWS * VOCAB };
    for (int i = 0; i < 3; i += few(2)) {
        /* Of the first, whose warps take a KV head each, contexts have several units. */
        struct wide wide = i == 0   ? wide_open(8, 8, 64, DPE_F16)
                           : i == 1 ? wide_with_states(64, DPE_BF16)
                                    : wide_open(4, 1, 128, DPE_F16);
        const int sides = i == 2 ? MOST_SIDES : SIDES;
        struct dpe_plan plans[SIDES];
        for (int s = 0; s < SIDES; s++) {
            plan_case_make(s, 33, &wide.config, &plans[s]);
        }
        device("capability=80");
        setenv("DPE_CUDA_GRAPHS", "off", 1);
        run_sides(&wide, plans, sides, true, &alone);
        run_sides(&wide, plans, sides, false, &launches);
        unsetenv("DPE_CUDA_GRAPHS");
        const struct fake_counts before = counts_if_emulated();
        run_sides(&wide, plans, sides, false, &as_graphs);
        assert_memory_equal(&as_graphs, &launches, sizeof launches);
        const double error = worst(&launches.logits[0][0][0], &alone.logits[0][0][0], N);
        printf("together and alone differ by up to %.2e\n", error);
        assert_true(error <= 0.02);
        assert_true(cuda_is_real() || counts().graph_runs - before.graph_runs >= FEW_STEPS / 2);
        for (int s = 0; s < SIDES; s++) {
            dpe_plan_free(&plans[s]);
        }
        dpe_model_close(wide.model);
    }
    expect_clean();
}

/* How many launches a step of an 8B model has for eight questions about each of four contexts: what
 * counts are its 32 layers, not how wide they are. */
static void launches_of_a_step(void **state)
{
    (void)state;
    enum { CONTEXTS = 4, QUESTIONS = 8 };
    static const int64_t which[QUESTIONS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct dpe_error err = {0};
    struct dpe_session *sessions[CONTEXTS] = {NULL};
    struct dpe_session_part parts[CONTEXTS];
    int32_t best[CONTEXTS * QUESTIONS];
    struct dpe_plan plan;
    if (cuda_is_real()) {
        skip();
    }
    struct wide wide = wide_config(4, 1, 64, DPE_BF16);
    wide.config.n_layers = 32;
    TINY_OK(dpe_random_model(&wide.config, true, 5, &wide.model, &err), err);
    plan_case_make(1, 9, &wide.config, &plan);
    device("capability=90");
    struct dpe_session_options options = {.device = "cuda",
                                          .n_threads = 1,
                                          .branches = QUESTIONS,
                                          .capacity = 2 + 2 * QUESTIONS * CONTEXTS,
                                          .positions = 2 + 2 * QUESTIONS * CONTEXTS,
                                          .prefill_chunk = CONTEXTS * QUESTIONS};
    for (int s = 0; s < CONTEXTS; s++) {
        options.beside = sessions[0];
        TINY_OK(dpe_session_create(wide.model, &plan, &options, &sessions[s], &err), err);
        TINY_OK(dpe_session_feed(sessions[s], wide.tokens + s, 2, NULL, &err), err);
        TINY_OK(dpe_session_branch(sessions[s], QUESTIONS, 2, &err), err);
        parts[s] = (struct dpe_session_part){sessions[s], QUESTIONS, which};
    }
    const uint64_t before = counts().launches;
    TINY_OK(dpe_session_step_parts(parts, CONTEXTS, wide.tokens, NULL, best, &err), err);
    printf("%d launches\n", (int)(counts().launches - before));
    assert_int_equal(counts().launches - before, 32 * 15 + 4);
    for (int s = CONTEXTS - 1; s >= 0; s--) {
        dpe_session_destroy(sessions[s]);
    }
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
    expect_clean();
}

/* A graph that cannot be made: the launches follow one by one, and no other is tried. */
static void without_graphs(void **state)
{
    (void)state;
    if (cuda_is_real()) {
        skip();
    }
    struct wide wide = wide_open(4, 2, 64, DPE_BF16);
    struct dpe_plan plan;
    char words[64];
    plan_case_make(1, 33, &wide.config, &plan);
    device("");
    setenv("DPE_CUDA_GRAPHS", "off", 1);
    run_steps(&wide, &plan, 2, &plain);
    unsetenv("DPE_CUDA_GRAPHS");
    const struct fake_counts before = counts();
    snprintf(words, sizeof words, "capture=%d", (int)before.graphs + 1);
    device(words);
    run_steps(&wide, &plan, 2, &graphs);
    expect_same("without graphs");
    assert_int_equal(counts().graphs - before.graphs, 1);
    assert_int_equal(counts().graph_runs, before.graph_runs);
    device("");
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
    expect_clean();
}

struct seen {
    int calls;
    double sum;
};

static dpe_status look(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                       const float *k, struct dpe_error *err)
{
    struct seen *seen = user;
    (void)layer, (void)start, (void)rows, (void)err;
    seen->calls++;
    seen->sum += (double)q[0] + (double)k[0];
    return DPE_OK;
}

/* Who reads in the middle of a step sees what was computed until there. */
static void reads_in_the_middle(void **state)
{
    (void)state;
    struct wide wide = wide_open(4, 2, 64, DPE_BF16);
    struct dpe_plan plan;
    struct dpe_error err = {0};
    struct seen seen[2] = {{0, 0.0}, {0, 0.0}};
    float logits[2][VOCAB];
    plan_case_make(1, 33, &wide.config, &plan);
    device("");
    for (int i = 0; i < 2; i++) {
        const struct dpe_session_options options = {
            .device = "cuda", .n_threads = 1, .capacity = 40, .branches = 1};
        struct dpe_session *session = NULL;
        const int64_t branch = 0;
        setenv("DPE_CUDA_GRAPHS", i == 0 ? "off" : "", 1);
        TINY_OK(dpe_session_create(wide.model, &plan, &options, &session, &err), err);
        TINY_OK(dpe_session_feed(session, wide.tokens, 20, NULL, &err), err);
        for (int step = 0; step < 9; step++) {
            /* Steps 3 to 5 are looked at, after graphs have run. */
            dpe_session_set_tap(session, step / 3 == 1 ? look : NULL, &seen[i]);
            TINY_OK(dpe_session_step(session, 1, &branch, wide.tokens + step, logits[i], &err),
                    err);
        }
        dpe_session_destroy(session);
    }
    unsetenv("DPE_CUDA_GRAPHS");
    assert_int_equal(seen[0].calls, 6); /* two layers */
    assert_int_equal(seen[1].calls, 6);
    assert_true(seen[0].sum == seen[1].sum);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
    expect_clean();
}

/* An unknown word is an error; the default is not taken in its place. */
static void unknown_words(void **state)
{
    (void)state;
    struct wide wide = wide_open(2, 1, 64, DPE_BF16);
    struct dpe_plan plan;
    plan_case_make(1, 33, &wide.config, &plan);
    device("");
    const struct dpe_session_options options = {.device = "cuda", .capacity = 8};
    struct dpe_session *session = NULL;
    struct dpe_error err = {0};
    setenv("DPE_CUDA_GRAPHS", "no", 1);
    assert_int_equal(dpe_session_create(wide.model, &plan, &options, &session, &err), DPE_USAGE);
    unsetenv("DPE_CUDA_GRAPHS");
    assert_string_equal(err.text, "DPE_CUDA_GRAPHS: expected off, found no");
    dpe_plan_free(&plan);
    dpe_model_close(wide.model);
    expect_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_launch_by_launch),
        cmocka_unit_test(under_a_selection),
        cmocka_unit_test(sessions_step_together),
        cmocka_unit_test(launches_of_a_step),
        cmocka_unit_test(without_graphs),
        cmocka_unit_test(reads_in_the_middle),
        cmocka_unit_test(unknown_words),
    };
    unsetenv("DPE_CUDA_GRAPHS");
    int status = cuda_begin();
    return status != 0 ? status : cuda_run(tests);
}

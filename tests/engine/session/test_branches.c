/* Branches after a common prefix: batched = one by one, on every backend and for every method. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/session/session_case.h"

static const char *const specs[] = {
    "rope",
    "yarn",
    "rerope:window=6",
    "leaky-rerope:window=5,scale=4.3",
    "self-extend:window=5,group=4",
    "dpe:window=5,groups=3,scales=1/2.5/4",
    "dpe:window=5,groups=3,scales=1/2.5/4,log-n=6,log-n-power=1.3,logit-scale=0.9",
    "dca:chunk=12,local=5",
    "string:window=3",
    "streaming-llm:window=9",
    "lm-infinite:window=7,sinks=3",
    "lampe:window=5,tail=6,map=11,log-n=6",
    "cope:clip=3,infoscale=4",
    "hirope:window=5,segment=3,logit-scale=1.2",
    "adagrope:first=4,reuse=1.75,log-n=6",
    "dope:from=2,log-n=6,log-n-power=0.5",
    "select:k=2,block=4,sinks=2,local=5,refresh=3,representative=extremes,over=dpe:window=5,groups="
    "3,scales=1/2.5/4",
    "select:k=1,block=2,sinks=1,local=3,positions=packed,unit=layer",
    "infllm:block=3,sinks=2,local=6,k=2,attended=2",
    "reattention:block=3,sinks=2,local=6,k=2",
    "minference:block=5,k=2",
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };
enum { BRANCHES = 6, ROOM = 13, STEPS = 5 };

static struct dpe_session *open_sized(const struct tiny *tiny, const char *device, const char *spec,
                                      bool masked, const struct dpe_session_options *sizes)
{
    struct dpe_session_options options = *sizes;
    options.device = device;
    options.n_threads = 2;
    return session_with(tiny, spec, masked, &options);
}

/* Token i of branch b: different in every branch. */
static int32_t token_of(const struct tiny *tiny, int64_t b, int64_t i)
{
    return tiny->tokens[(5 * b + 3 * i + 1) % tiny->n];
}

static int64_t first_tokens(int64_t b)
{
    return 1 + 3 * (b % 3);
}

/* Logits after the first n own tokens of branch b when it is alone. */
static void alone(struct dpe_session *session, const struct tiny *tiny, int64_t prefix, int64_t b,
                  int64_t n, float *logits)
{
    struct dpe_error err = {0};
    int32_t own[ROOM];
    for (int64_t i = 0; i < n; i++) {
        own[i] = token_of(tiny, b, i);
    }
    TINY_OK(dpe_session_cut(session, 0, &err), err);
    TINY_OK(dpe_session_feed(session, tiny->tokens, prefix, NULL, &err), err);
    TINY_OK(dpe_session_feed(session, own, n, logits, &err), err);
}

/* Branches get prompts of 1, 4 and 7 tokens, then steps in which some of them take part. */
static void one_plan(const struct tiny *tiny, const char *device, const char *spec, bool masked,
                     int64_t prefix)
{
    struct dpe_error err = {0};
    const struct dpe_session_options many = {.capacity = prefix + BRANCHES * ROOM,
                                             .positions = prefix + ROOM,
                                             .branches = BRANCHES,
                                             .prefill_chunk = 7};
    const struct dpe_session_options one = {.capacity = prefix + ROOM, .prefill_chunk = 7};
    struct dpe_session *together = open_sized(tiny, device, spec, masked, &many);
    struct dpe_session *single = open_sized(tiny, device, spec, masked, &one);
    float got[BRANCHES * VOCAB];
    float want[VOCAB];
    char what[128];
    snprintf(what, sizeof what, "%s on %s%s, prefix %d", spec, device, masked ? ", masked" : "",
             (int)prefix);
    TINY_OK(dpe_session_feed(together, tiny->tokens, prefix, NULL, &err), err);
    TINY_OK(dpe_session_branch(together, BRANCHES, ROOM, &err), err);
    assert_int_equal(together->n_branches, BRANCHES);
    for (int64_t b = 0; b < BRANCHES; b++) {
        int32_t own[ROOM];
        for (int64_t i = 0; i < first_tokens(b); i++) {
            own[i] = token_of(tiny, b, i);
        }
        TINY_OK(dpe_session_branch_feed(together, b, own, first_tokens(b), got, &err), err);
        alone(single, tiny, prefix, b, first_tokens(b), want);
        same_to_rounding(what, got, want);
    }
    for (int64_t step = 0; step < STEPS; step++) {
        int64_t n = 0;
        int64_t branches[BRANCHES];
        int32_t tokens[BRANCHES];
        /* From the last to the first, one of them left out. */
        for (int64_t b = BRANCHES - 1; b >= 0; b--) {
            if (b != step) {
                int64_t own = together->length[b] - prefix;
                branches[n] = b;
                tokens[n++] = token_of(tiny, b, own);
            }
        }
        TINY_OK(dpe_session_step(together, n, branches, tokens, got, &err), err);
        for (int64_t i = 0; i < n; i++) {
            int64_t own = together->length[branches[i]] - prefix;
            alone(single, tiny, prefix, branches[i], own, want);
            same_to_rounding(what, got + i * VOCAB, want);
        }
    }
    for (int64_t b = 0; b < BRANCHES; b++) {
        int64_t own = first_tokens(b) + STEPS - (b < STEPS ? 1 : 0);
        assert_int_equal(together->length[b], prefix + own);
    }
    dpe_session_destroy(together);
    dpe_session_destroy(single);
}

static void batched_is_one_by_one(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    for (int d = 0; d < N_DEVICES; d++) {
        for (int i = 0; i < 2 * N_SPECS; i++) {
            one_plan(&tiny, devices[d], specs[i / 2], i % 2 == 1, i % 3 == 0 ? 0 : 17 + i % 7);
        }
    }
    tiny_close(&tiny);
    tiny = tiny_open("qwen2");
    for (int d = 0; d < N_DEVICES; d++) {
        one_plan(&tiny, devices[d], "dpe:window=5,groups=2,scales=1/2.5", true, 20);
    }
    tiny_close(&tiny);
}

/* --------------------------------------------------------------------------------- generation */

static bool stop_after(void *user, const int32_t *generated, size_t n)
{
    (void)generated;
    return n == *(size_t *)user;
}

static void generated_tokens_are_the_same(void **state)
{
    (void)state;
    enum { PREFIX = 19, NEW = 6 };
    struct tiny tiny = tiny_open("llama3");
    struct dpe_error err = {0};
    for (int d = 0; d < N_DEVICES; d++) {
        const struct dpe_session_options sizes = {.capacity = PREFIX + BRANCHES * ROOM,
                                                  .positions = PREFIX + ROOM,
                                                  .branches = BRANCHES,
                                                  .prefill_chunk = 16};
        const char *spec = "self-extend:window=5,group=4";
        struct dpe_session *session = open_sized(&tiny, devices[d], spec, false, &sizes);
        struct dpe_tokens together[BRANCHES] = {{0}};
        struct dpe_continuation items[BRANCHES];
        int32_t prompts[BRANCHES][ROOM];
        size_t stops[BRANCHES] = {100, 2, 100, 1, 100, 100};
        for (int64_t b = 0; b < BRANCHES; b++) {
            for (int64_t i = 0; i < first_tokens(b); i++) {
                prompts[b][i] = token_of(&tiny, b, i);
            }
            items[b] = (struct dpe_continuation){
                .prompt = prompts[b],
                .n = first_tokens(b),
                .options = {.max_new = b == 4 ? 0 : NEW,
                            .stop = stop_after,
                            .user = &stops[b],
                            .ignore_eos = true},
                .out = &together[b],
            };
        }
        TINY_OK(dpe_session_feed(session, tiny.tokens, PREFIX, NULL, &err), err);
        TINY_OK(dpe_session_branch(session, BRANCHES, ROOM, &err), err);
        TINY_OK(dpe_session_generate_branches(session, items, BRANCHES, &err), err);
        for (int64_t b = 0; b < BRANCHES; b++) {
            struct dpe_tokens single = {0};
            TINY_OK(dpe_session_cut(session, PREFIX, &err), err);
            assert_int_equal(session->n_branches, 1);
            TINY_OK(dpe_session_generate(session, prompts[b], first_tokens(b), &items[b].options,
                                         &single, &err),
                    err);
            assert_int_equal(together[b].n, b == 4 ? 0 : stops[b] < NEW ? stops[b] : NEW);
            assert_int_equal(together[b].n, single.n);
            if (single.n > 0) {
                assert_memory_equal(together[b].ids, single.ids, single.n * sizeof *single.ids);
            }
            dpe_tokens_free(&single);
            dpe_tokens_free(&together[b]);
        }
        dpe_session_destroy(session);
    }
    tiny_close(&tiny);
}

/* ------------------------------------------------------------------------------------ refusals */

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    const struct dpe_session_options sizes = {
        .capacity = 40, .positions = 20, .branches = 3, .prefill_chunk = 8};
    struct dpe_session *s = open_sized(&tiny, "cpu", "rope", false, &sizes);
    float logits[3 * VOCAB];
    assert_int_equal(dpe_session_feed(s, tiny.tokens, 21, NULL, &err), DPE_USAGE);
    TINY_OK(dpe_session_feed(s, tiny.tokens, 10, NULL, &err), err);
    assert_int_equal(dpe_session_branch(s, 4, 5, &err), DPE_USAGE); /* branches */
    assert_int_equal(dpe_session_branch(s, 0, 5, &err), DPE_USAGE);
    assert_int_equal(dpe_session_branch(s, 2, 11, &err), DPE_USAGE); /* positions */
    assert_int_equal(dpe_session_branch(s, 2, 0, &err), DPE_USAGE);
    assert_int_equal(dpe_session_branch(s, 3, INT64_MAX / 2, &err), DPE_USAGE);
    TINY_OK(dpe_session_branch(s, 3, 10, &err), err);
    assert_int_equal(dpe_session_branch(s, 2, 5, &err), DPE_USAGE); /* branches already */
    assert_non_null(strstr(err.text, "3 now"));
    assert_int_equal(dpe_session_cut(s, 11, &err), DPE_USAGE);
    assert_int_equal(dpe_session_branch_feed(s, 3, tiny.tokens, 1, NULL, &err), DPE_USAGE);
    assert_int_equal(dpe_session_branch_feed(s, 2, tiny.tokens, 11, NULL, &err), DPE_USAGE);
    TINY_OK(dpe_session_branch_feed(s, 2, tiny.tokens, 10, NULL, &err), err);

    const int64_t full[] = {0, 2};
    const int64_t twice[] = {1, 1};
    const int64_t good[] = {0, 1};
    const int32_t wrong[] = {1, VOCAB};
    assert_int_equal(dpe_session_step(s, 2, full, tiny.tokens, logits, &err), DPE_USAGE);
    assert_int_equal(dpe_session_step(s, 2, twice, tiny.tokens, logits, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "twice"));
    assert_int_equal(dpe_session_step(s, 4, good, tiny.tokens, logits, &err), DPE_USAGE);
    assert_int_equal(dpe_session_step(s, 2, good, wrong, logits, &err), DPE_BAD_DATA);
    assert_int_equal(s->length[0], 10);
    TINY_OK(dpe_session_step(s, 2, good, tiny.tokens, NULL, &err), err);
    assert_int_equal(s->length[0], 11);
    assert_int_equal(dpe_session_generate(s, tiny.tokens, 1, &(struct dpe_generate_options){0},
                                          &(struct dpe_tokens){0}, &err),
                     DPE_USAGE);
    TINY_OK(dpe_session_cut(s, 10, &err), err);
    TINY_OK(dpe_session_feed(s, tiny.tokens, 10, NULL, &err), err);
    dpe_session_destroy(s);

    struct dpe_plan plan = tiny_plan(&tiny, "rope", 40);
    struct dpe_session_options odd = sizes;
    odd.positions = 41;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &odd, &s, &err), DPE_USAGE);
    odd = sizes;
    odd.branches = DPE_MAX_BRANCHES + 1;
    assert_int_equal(dpe_session_create(tiny.model, &plan, &odd, &s, &err), DPE_USAGE);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

struct seen {
    int64_t next;
    float logits[ROOM * VOCAB];
};

static void see(void *user, int64_t first, int64_t n, const float *logits)
{
    struct seen *seen = user;
    assert_int_equal(first, seen->next);
    memcpy(seen->logits + first * VOCAB, logits, (size_t)(n * VOCAB) * sizeof *logits);
    seen->next = first + n;
}

/* A branch that continues from rows of another one, or from its own after a cut, and the logits of
 * every token. */
static void copies_on(const struct tiny *tiny, const char *device, const char *spec, int64_t prefix)
{
    struct dpe_error err = {0};
    const struct dpe_session_options many = {.capacity = prefix + 3 * ROOM,
                                             .positions = prefix + ROOM,
                                             .branches = 3,
                                             .prefill_chunk = 4};
    const struct dpe_session_options one = {.capacity = prefix + ROOM, .prefill_chunk = 4};
    struct dpe_session *s = open_sized(tiny, device, spec, false, &many);
    struct dpe_session *single = open_sized(tiny, device, spec, false, &one);
    int32_t own[ROOM];
    float got[VOCAB];
    float want[VOCAB];
    struct seen seen = {0};
    for (int64_t i = 0; i < ROOM; i++) {
        own[i] = token_of(tiny, 1, i);
    }
    TINY_OK(dpe_session_feed(s, tiny->tokens, prefix, NULL, &err), err);
    TINY_OK(dpe_session_branch(s, 3, ROOM, &err), err);
    TINY_OK(dpe_session_branch_rows(s, 1, own, ROOM - 1, see, &seen, &err), err);
    assert_int_equal(seen.next, ROOM - 1);
    for (int64_t i = 1; i < ROOM; i++) {
        alone(single, tiny, prefix, 1, i, want);
        same_to_rounding("every row", seen.logits + (i - 1) * VOCAB, want);
    }
    TINY_OK(dpe_session_branch_copy(s, 1, 2, prefix + 6, &err), err);
    TINY_OK(dpe_session_branch_cut(s, 1, prefix + 2, &err), err);
    alone(single, tiny, prefix, 1, ROOM, want);
    TINY_OK(dpe_session_branch_feed(s, 2, own + 6, ROOM - 6, got, &err), err);
    same_to_rounding("copied", got, want);
    TINY_OK(dpe_session_branch_feed(s, 1, own + 2, ROOM - 2, got, &err), err);
    same_to_rounding("cut", got, want);
    assert_int_equal(dpe_session_branch_copy(s, 1, 1, prefix + 1, &err), DPE_USAGE);
    assert_int_equal(dpe_session_branch_copy(s, 0, 1, prefix + 1, &err), DPE_USAGE);
    assert_int_equal(dpe_session_branch_cut(s, 1, prefix - 1, &err), DPE_USAGE);
    assert_int_equal(dpe_session_branch_cut(s, 3, prefix, &err), DPE_USAGE);
    dpe_session_destroy(s);
    dpe_session_destroy(single);
}

static void copied_rows_are_as_if_fed(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    for (int d = 0; d < N_DEVICES; d++) {
        for (int i = 0; i < N_SPECS; i++) {
            copies_on(&tiny, devices[d], specs[i], 5);
        }
        copies_on(&tiny, devices[d], specs[0], 0);
    }
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied_rows_are_as_if_fed),
        cmocka_unit_test(batched_is_one_by_one),
        cmocka_unit_test(generated_tokens_are_the_same),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The evaluator of selections against lists written by hand, and a choice against sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

/* What a query sees, one word a key: "n" at its position, "n>p" at place p; then "@" and the
 * query's place. */
static void words(const struct dpe_selection *s, int64_t m, const struct dpe_choice *choice,
                  char *text, size_t room)
{
    struct dpe_key_run runs[16];
    int64_t n = choice->n_blocks;
    int64_t query = 0;
    int64_t count = dpe_selection_runs(s, m, choice, runs, &query);
    int64_t seen = 0;
    size_t used = 0;
    assert_true(count <= n + choice->n_slashes + 3);
    for (int64_t i = 0; i < count; i++) {
        assert_true(runs[i].first < runs[i].end);
        for (int64_t key = runs[i].first; key < runs[i].end; key++, seen++) {
            int64_t at = runs[i].place + (runs[i].constant ? 0 : key - runs[i].first);
            used += (size_t)snprintf(text + used, room - used, at == key ? "%d " : "%d>%d ",
                                     (int)key, (int)at);
        }
    }
    snprintf(text + used, room - used, "@%d", (int)query);
    int64_t candidates = dpe_selection_candidates(s, m);
    if (n == (candidates < s->k ? candidates : s->k)) {
        assert_true(seen == dpe_selection_keys(s, m) ||
                    (s->slashes > 0 && seen < dpe_selection_keys(s, m)));
    }
}

static void expect(const struct dpe_selection *s, int64_t m, const int32_t *chosen, int64_t n,
                   const char *want)
{
    char text[512];
    const struct dpe_choice choice = {.blocks = chosen, .n_blocks = n};
    words(s, m, &choice, text, sizeof text);
    assert_string_equal(text, want);
}

static void keys_by_hand(void **state)
{
    (void)state;
    /* Blocks 2-4, 5-7, 8-10, … after two sinks; a window of four. */
    struct dpe_selection s = {.block = 3, .sinks = 2, .local = 4, .k = 1, .refresh = 1};
    expect(&s, 0, NULL, 0, "0 @0");
    expect(&s, 7, NULL, 0, "0 1 2 3 4 5 6 7 @7");
    assert_int_equal(dpe_selection_candidates(&s, 7), 0);
    assert_int_equal(dpe_selection_candidates(&s, 8), 1);
    assert_int_equal(dpe_selection_candidates(&s, 10), 1);
    assert_int_equal(dpe_selection_candidates(&s, 11), 2);
    const int32_t zero[] = {0};
    const int32_t one[] = {1};
    expect(&s, 8, zero, 1, "0 1 2 3 4 5 6 7 8 @8");
    expect(&s, 12, zero, 1, "0 1 2 3 4 8 9 10 11 12 @12");
    expect(&s, 12, one, 1, "0 1 5 6 7 8 9 10 11 12 @12");
    s.positions = DPE_PLACE_PACKED;
    expect(&s, 12, zero, 1, "0 1 2 3 4 8>5 9>6 10>7 11>8 12>9 @9");
    expect(&s, 12, one, 1, "0 1 5>2 6>3 7>4 8>5 9>6 10>7 11>8 12>9 @9");
    /* The window of 12 is 9 … 12: all before is at 9. */
    s.positions = DPE_PLACE_CONSTANT;
    expect(&s, 12, one, 1, "0>9 1>9 5>9 6>9 7>9 8>9 9 10 11 12 @12");
    expect(&s, 3, NULL, 0, "0 1 2 3 @3");
    expect(&s, 4, NULL, 0, "0>1 1 2 3 4 @4");
    s.positions = DPE_PLACE_TRUE;
    /* Queries 10 … 14 have the candidates of 10. */
    s.refresh = 5;
    assert_int_equal(dpe_selection_chooser(&s, 14), 10);
    assert_int_equal(dpe_selection_candidates(&s, 14), 1);
    expect(&s, 14, zero, 1, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 @14");
    assert_int_equal(dpe_selection_candidates(&s, 15), 3);
    /* No sinks, the query's own block always: MoBA. */
    s = (struct dpe_selection){.block = 4, .local = 1, .k = 1, .refresh = 1};
    expect(&s, 3, NULL, 0, "0 1 2 3 @3");
    expect(&s, 9, zero, 1, "0 1 2 3 8 9 @9");
    /* The block before too: LongHeads. */
    s.local = 5;
    s.sinks = 4;
    expect(&s, 17, NULL, 0, "0 1 2 3 12 13 14 15 16 17 @17");
}

/* Distances from the local window on; their keys may be ones that are seen already. */
static void distances_by_hand(void **state)
{
    (void)state;
    struct dpe_selection s = {.block = 1,
                              .sinks = 2,
                              .local = 3,
                              .k = 2,
                              .refresh = 4,
                              .representative = DPE_REPRESENT_PROBABILITY,
                              .last = 2,
                              .slashes = 3};
    const int32_t blocks[] = {1, 4};     /* keys 3 and 6 */
    const int32_t slashes[] = {0, 2, 9}; /* distances 3, 5 and 12 */
    const struct dpe_choice choice = {blocks, slashes, 2, 3};
    char text[512];
    assert_int_equal(dpe_selection_distances(&s, 14), 10);
    assert_int_equal(dpe_selection_distances(&s, 1), 0);
    assert_int_equal(dpe_selection_candidates(&s, 14), 8);
    words(&s, 12, &choice, text, sizeof text);
    assert_string_equal(text,
                        "0 1 3 6 7 9 10 11 12 @12"); /* 12 − 3 is 9, 12 − 5 is 7, 12 − 12 is 0 */
    words(&s, 14, &choice, text, sizeof text);
    assert_string_equal(text, "0 1 2 3 6 9 10 11 12 13 14 @14");
    s.positions = DPE_PLACE_PACKED;
    words(&s, 14, &choice, text, sizeof text);
    assert_string_equal(text, "0 1 2 3 6>4 9>5 10>6 11>7 12>8 13>9 14>10 @10");
    s.slashes = 0;
    assert_int_equal(dpe_selection_distances(&s, 14), 0);
}

/* The blocks of NSA: the first, the query's own, the one before it and the best of the others. */
static void blocks_of_branches(void **state)
{
    (void)state;
    const struct dpe_config model = {.n_layers = 1,
                                     .n_heads = 2,
                                     .n_kv_heads = 1,
                                     .head_dim = 4,
                                     .selection = dpe_selection_compressed(4, 5)};
    struct dpe_error err = {0};
    struct dpe_plan plan;
    assert_int_equal(dpe_plan_init_for(&plan, &model, &err), DPE_OK);
    const struct dpe_selection *s = &plan.selection;
    for (int64_t m = 0; m < 60; m++) {
        double scores[16];
        int32_t chosen[16];
        struct dpe_key_run runs[16];
        bool sees[16] = {false};
        int64_t own = m / 4;
        int64_t query = 0;
        for (int64_t i = 0; i < 16; i++) {
            scores[i] = (double)(i * 7 % 16) / 100.0; /* of the first: the least */
        }
        int64_t n = dpe_selection_candidates(s, m);
        assert_int_equal(n, own > 1 ? own - 1 : 0);
        assert_int_equal(dpe_selection_complete(s, m), (m + 1) / 4);
        dpe_selection_favour(s, scores, n);
        const struct dpe_choice choice = {
            .blocks = chosen, .n_blocks = dpe_selection_choose(scores, n, s->k, chosen)};
        int64_t count = dpe_selection_runs(s, m, &choice, runs, &query);
        for (int64_t r = 0; r < count; r++) {
            assert_int_equal(runs[r].first % 4, 0);
            for (int64_t key = runs[r].first; key < runs[r].end; key++) {
                sees[key / 4] = true;
            }
        }
        assert_int_equal(runs[count - 1].end, m + 1);
        int64_t left = own + 1 < 5 ? own + 1 : 5;
        for (int64_t b = 0; b <= own; b++) {
            int64_t better = 0; /* candidates but the first that go before it */
            for (int64_t i = 1; i < n; i++) {
                better += scores[i] > scores[b];
            }
            bool want = b == 0 || b >= own - 1 || better < 2;
            assert_true(sees[b] == want);
            left -= sees[b];
        }
        assert_int_equal(left, 0);
    }
    char with[65];
    char without[65];
    assert_int_equal(dpe_plan_digest(&plan, with, &err), DPE_OK);
    plan.selection.first = 0;
    assert_int_equal(dpe_plan_digest(&plan, without, &err), DPE_OK);
    assert_string_not_equal(with, without);
    plan.selection.first = plan.selection.k + 1;
    assert_int_equal(dpe_selection_check(&plan.selection, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "first"));
    dpe_plan_free(&plan);
}

static void pairs_are_counted(void **state)
{
    (void)state;
    struct dpe_selection s = {.block = 3, .sinks = 2, .local = 4, .k = 2, .refresh = 4};
    double pairs = 0.0;
    for (int64_t m = 0; m < 100; m++) {
        pairs += (double)dpe_selection_keys(&s, m);
        assert_true(dpe_selection_keys(&s, m) <= 2 + 2 * 3 + 4 + 2 + 3);
    }
    assert_true(dpe_selection_pairs(&s, 100) == pairs);
    s.block = 0;
    assert_true(dpe_selection_pairs(&s, 100) == 5050.0);
}

static void ties_go_to_the_lower_block(void **state)
{
    (void)state;
    int32_t chosen[8];
    const double same[] = {1, 1, 1, 1, 1};
    assert_int_equal(dpe_selection_choose(same, 5, 2, chosen), 2);
    assert_true(chosen[0] == 0 && chosen[1] == 1);
    const double mixed[] = {(double)NAN, 2, -(double)INFINITY, 3, 2, 3};
    assert_int_equal(dpe_selection_choose(mixed, 6, 3, chosen), 3);
    assert_true(chosen[0] == 1 && chosen[1] == 3 && chosen[2] == 5);
    assert_int_equal(dpe_selection_choose(mixed, 6, 5, chosen), 5);
    assert_true(chosen[0] == 0 && chosen[4] == 5);
    assert_int_equal(dpe_selection_choose(mixed, 6, 0, chosen), 0);
    assert_int_equal(dpe_selection_choose(mixed, 2, 8, chosen), 2);
}

static void a_choice_is_a_sort(void **state)
{
    (void)state;
    enum { MOST = 300 };
    struct dpe_rng rng;
    double scores[MOST];
    int32_t chosen[MOST];
    dpe_rng_seed(&rng, 19, 1);
    for (int round = 0; round < 300; round++) {
        int64_t n = 1 + dpe_rng_below(&rng, MOST);
        int64_t k = dpe_rng_below(&rng, (uint32_t)n + 1);
        for (int64_t i = 0; i < n; i++) {
            /* Many ties; in every other round of all signs and sizes, with both zeros. */
            double small = (double)dpe_rng_below(&rng, 40);
            int size = 200 * ((int)dpe_rng_below(&rng, 7) - 3);
            double any = ldexp(small - 20.0, size) * (dpe_rng_below(&rng, 2) == 0 ? -1.0 : 1.0);
            any = dpe_rng_below(&rng, 20) == 0 ? copysign((double)INFINITY, any) : any;
            scores[i] = round % 2 == 0 ? small : any;
        }
        assert_int_equal(dpe_selection_choose(scores, n, k, chosen), k);
        int64_t at = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t before = 0; /* blocks that go first */
            for (int64_t j = 0; j < n; j++) {
                before += scores[j] > scores[i] || (scores[j] == scores[i] && j < i);
            }
            if (before < k) {
                assert_int_equal(chosen[at++], i);
            }
        }
        assert_int_equal(at, k);
    }
}

/* Own blocks of different branches, and shared ones, have places of their own, within the room. */
static void slots_do_not_meet(void **state)
{
    (void)state;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 23, 1);
    for (int round = 0; round < 400; round++) {
        const struct dpe_selection s = {
            .block = 1 + dpe_rng_below(&rng, 9),
            .sinks = dpe_rng_below(&rng, 6),
            .local = 1 + dpe_rng_below(&rng, 9),
            .representative = dpe_rng_below(&rng, 2) ? DPE_REPRESENT_ATTENDED : DPE_REPRESENT_MEAN,
        };
        int64_t prefix = dpe_rng_below(&rng, 40);
        int64_t room = 1 + dpe_rng_below(&rng, 20);
        int64_t branches = 1 + dpe_rng_below(&rng, 5);
        int64_t slots = dpe_selection_slots(&s, prefix + branches * room, branches);
        int64_t owner[512];
        memset(owner, 0xff, sizeof owner);
        assert_true(slots <= 512);
        for (int64_t b = 0; b < branches; b++) {
            for (int64_t i = 0; dpe_block_known(&s, i) < prefix + room; i++) {
                bool shared = dpe_block_known(&s, i) < prefix;
                int64_t slot = dpe_block_slot(&s, prefix, room, b * room, i);
                int64_t own = shared ? i : i + 1000 * (b + 1);
                assert_true(slot >= 0 && slot < slots);
                assert_true(owner[slot] == -1 || owner[slot] == own);
                owner[slot] = own;
            }
        }
    }
}

static const struct dpe_config shape = {.n_layers = 2,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 16,
                                        .max_position = 256,
                                        .rope = {.theta = 10000.0, .partial_rotary_factor = 1.0}};

static void digest_of(const char *spec, char digest[65])
{
    const struct dpe_plan_context context = {
        .config = &shape, .trained_length = 256, .length = 4096};
    struct dpe_plan plan;
    struct dpe_plan copy;
    struct dpe_error err = {0};
    char again[65];
    if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    assert_int_equal(dpe_plan_digest(&plan, digest, &err), DPE_OK);
    assert_int_equal(dpe_plan_copy(&copy, &plan, &err), DPE_OK);
    assert_int_equal(dpe_plan_digest(&copy, again, &err), DPE_OK);
    assert_string_equal(digest, again);
    dpe_plan_free(&copy);
    /* A slice of the heads has the selection too; the canonical name makes the plan again. */
    assert_int_equal(dpe_plan_slice(&plan, 1, 2, &copy, &err), DPE_OK);
    assert_memory_equal(&copy.selection, &plan.selection, sizeof plan.selection);
    dpe_plan_free(&copy);
    if (dpe_plan_make(plan.name, &context, &copy, &err) != DPE_OK) {
        fail_msg("%s: %s", plan.name, err.text);
    }
    assert_int_equal(dpe_plan_digest(&copy, again, &err), DPE_OK);
    assert_string_equal(digest, again);
    assert_string_equal(copy.name, plan.name);
    dpe_plan_free(&copy);
    dpe_plan_free(&plan);
}

static void every_field_is_in_the_digest(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "rope",
        "select",
        "select:k=9",
        "select:block=8",
        "select:sinks=3",
        "select:local=50",
        "select:refresh=2",
        "select:representative=extremes",
        "select:representative=keys",
        "select:representative=attended",
        "select:representative=attended,attended=2",
        "select:representative=weighted",
        "select:representative=compressed",
        "select:representative=probability",
        "select:representative=probability,last=3",
        "select:representative=probability,slashes=3",
        "select:unit=head",
        "select:unit=layer",
        "select:positions=packed",
        "select:positions=constant",
        "select:scored=true",
        "select:scored=constant",
        "select:over=dpe:window=32,scales=2/4,groups=2",
        "select:log-n=9,over=rope",
        "longheads",
        "longheads:mean=1",
        "vertical-slash",
        "infllm",
        "reattention",
        "minference",
        "moba",
    };
    enum { N = sizeof specs / sizeof specs[0] };
    char digests[N][65];
    for (int i = 0; i < N; i++) {
        digest_of(specs[i], digests[i]);
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(digests[i], digests[j]);
        }
    }
    char digest[65];
    digest_of("select:over=rope", digest);
    assert_string_equal(digest, digests[1]);
}

/* A selection given beside a method is that of select over it. */
static void a_plan_gets_a_selection(void **state)
{
    (void)state;
    struct dpe_plan_context context = {.config = &shape, .trained_length = 256, .length = 4096};
    const int32_t edges[] = {0, 4, 8};
    const double scale[] = {2.0, 4.0};
    const struct dpe_dpe_params params = {
        .window = 32, .n_groups = 2, .edges = edges, .scale = scale};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    char text[sizeof plan.name];
    char want[65];
    char got[65];
    digest_of("select:k=4,block=8,unit=head,over=dpe:window=32,scales=2/4,groups=2", want);
    context.select = "k=4,block=8,unit=head";
    for (int i = 0; i < 2; i++) {
        dpe_status status =
            i == 0 ? dpe_plan_make("dpe:window=32,scales=2/4,groups=2", &context, &plan, &err)
                   : dpe_plan_make_dpe(&params, &context, &plan, &err);
        assert_int_equal(status, DPE_OK);
        assert_int_equal(dpe_plan_digest(&plan, got, &err), DPE_OK);
        assert_string_equal(got, want);
        dpe_plan_selection_text(&plan, text);
        assert_string_equal(text,
                            "k=4,block=8,sinks=8,local=64,refresh=1,representative=mean,unit=head,"
                            "positions=true,scored=bare");
        dpe_plan_free(&plan);
    }
    /* A method that selects keeps its own. */
    digest_of("moba:k=2", want);
    assert_int_equal(dpe_plan_make("moba:k=2", &context, &plan, &err), DPE_OK);
    assert_int_equal(dpe_plan_digest(&plan, got, &err), DPE_OK);
    assert_string_equal(got, want);
    dpe_plan_free(&plan);
    static const char *const refused[] = {"over=rope", "k=1,log-n=9", "logit-scale=2", "blocks=1"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        context.select = refused[i];
        assert_int_equal(dpe_plan_make("rope", &context, &plan, &err), DPE_USAGE);
    }
}

static void refusals(void **state)
{
    (void)state;
    const struct dpe_plan_context context = {
        .config = &shape, .trained_length = 256, .length = 4096};
    static const char *const cases[][2] = {
        {"select:over=select", "expected a method that selects nothing, found \"select\""},
        {"select:over=moba", "expected a method that selects nothing, found \"moba\""},
        {"select:over=nothing:k=1", "method select: over: unknown method 'nothing'"},
        {"select:over=", "method select: over: unknown method ''"},
        {"select:over=rope,over=rope", "method select: over: unknown method 'rope,over=rope'"},
        {"select:k=-1", "k: expected a whole number from 0"},
        {"select:block=0", "block: expected a whole number from 1"},
        {"select:unit=heads", "unit: expected one of head, kv-head, layer, found \"heads\""},
        {"select:representative=attended,block=4,attended=5", "attended: expected a whole number"},
        {"select:representative=probability,last=0", "last: expected a whole number from 1"},
        {"moba:k=0", "k: expected a whole number from 1"},
        {"moba:over=rope", "unknown key 'over'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_plan plan;
        struct dpe_error err = {0};
        assert_int_equal(dpe_plan_make(cases[i][0], &context, &plan, &err), DPE_USAGE);
        if (strstr(err.text, cases[i][1]) == NULL) {
            fail_msg("%s: %s", cases[i][0], err.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_by_hand),
        cmocka_unit_test(distances_by_hand),
        cmocka_unit_test(blocks_of_branches),
        cmocka_unit_test(pairs_are_counted),
        cmocka_unit_test(ties_go_to_the_lower_block),
        cmocka_unit_test(a_choice_is_a_sort),
        cmocka_unit_test(slots_do_not_meet),
        cmocka_unit_test(every_field_is_in_the_digest),
        cmocka_unit_test(a_plan_gets_a_selection),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

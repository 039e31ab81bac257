/* The search where what every plan finds is known: what it reads, in which order, what it chooses,
 * and that a larger budget reads everything that a smaller one has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/detect/detect_case.h"

enum { TOGETHER = 8, LENGTH = 1024, TRAINED = 256 };

/* A world: recall of a plan by its spec, and which rows are there. */
struct world {
    double (*recall)(const char *spec);
    double noise; /* of a context, shared by no plan */
    double nats;  /* of texts that plans of mrrope lose */
    bool texts;   /* recall is of texts: nats that a plan saves */
    int n;
    char specs[DPE_DETECT_MOST_TRIED][DPE_DETECT_SPEC];
    int64_t rows[DPE_DETECT_MOST_TRIED][DPE_DETECT_STREAMS]; /* contexts that were made */
    int64_t made;
};

static int index_of(struct world *world, const char *spec)
{
    int i = 0;
    while (i < world->n && strcmp(world->specs[i], spec) != 0) {
        i++;
    }
    if (i == world->n) {
        snprintf(world->specs[world->n++], DPE_DETECT_SPEC, "%s", spec);
    }
    return i;
}

static dpe_status admit(void *user, struct dpe_detect_tried *tried, bool *fits,
                        struct dpe_error *err)
{
    (void)err;
    const int i = index_of(user, tried->spec);
    snprintf(tried->key, sizeof tried->key, "%032d", i);
    tried->table = strncmp(tried->spec, "lampe", 5) != 0;
    tried->plain = strncmp(tried->spec, "yarn", 4) == 0 || strncmp(tried->spec, "mrrope", 6) == 0;
    *fits = strncmp(tried->spec, "self-extend", 11) != 0; /* one that the model cannot have */
    return DPE_OK;
}

/* The same for the same plan and context. */
static double noise_of(int plan, int64_t context)
{
    uint64_t x = (uint64_t)plan * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)context * 7919U + 1U;
    x ^= x >> 31;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 29;
    return (double)(x % 2000) / 1000.0 - 1.0;
}

static dpe_status scores(void *user, enum dpe_detect_stream stream, const char *const *keys, int n,
                         int64_t contexts, struct dpe_detect_scores *out, struct dpe_error *err)
{
    struct world *world = user;
    const int64_t together = stream == DPE_DETECT_NEEDLES ? TOGETHER : 1;
    const dpe_status status = dpe_detect_scores_init(out, n, contexts * together, err);
    out->together = together;
    for (int k = 0; k < n && status == DPE_OK; k++) {
        const int plan = atoi(keys[k]);
        for (int64_t c = 0; c < world->rows[plan][stream] && c < contexts; c++) {
            for (int64_t q = 0; q < together; q++) {
                const int64_t at = k * contexts * together + c * together + q;
                double value = world->recall(world->specs[plan]) + world->noise * noise_of(plan, c);
                value = fmin(1.0, fmax(0.0, value));
                out->status[at] = DPE_ROW_OK;
                out->recall[at] = value;
                out->n_tokens[at] = 100;
                out->nats[at] =
                    2.0 + (strstr(world->specs[plan], "mrrope") != NULL ? world->nats : 0.0);
                if (world->texts) {
                    out->nats[at] =
                        8.0 - world->recall(world->specs[plan]) - world->noise * noise_of(plan, c);
                }
                out->nll_sum[at] = 100.0 * out->nats[at];
            }
        }
    }
    return status;
}

/* Run a search to its end; the caller frees it. */
static void run(struct world *world, const struct dpe_detect_search_options *options,
                struct dpe_detect_search *search)
{
    const struct dpe_detect_source source = {world, admit, scores};
    struct dpe_error err = {0};
    for (int calls = 0; calls < 200; calls++) {
        assert_int_equal(dpe_detect_search_replay(options, &source, search, &err), DPE_OK);
        if (search->complete) {
            return;
        }
        int wanted = 0;
        for (int i = 0; i < search->n; i++) {
            const int plan = atoi(search->tried[i].key);
            if (search->wanted[i] != 0) {
                world->made += search->contexts - world->rows[plan][search->stream];
                world->rows[plan][search->stream] = search->contexts;
                wanted++;
            }
        }
        assert_true(wanted > 0);
        dpe_detect_search_free(search);
    }
    fail_msg("the search does not end");
}

static struct dpe_detect_params params;

static struct dpe_detect_search_options options_of(int64_t budget)
{
    params = params_of(LENGTH, TRAINED, 32, 8, "auto");
    return (struct dpe_detect_search_options){.params = &params,
                                              .questions = 8,
                                              .temperature = true,
                                              .window = true,
                                              .methods = true,
                                              .criterion = DPE_DETECT_RECALL,
                                              .most = {64, 64, 2},
                                              .guard = 0.05,
                                              .budget = budget};
}

static struct world *world_of(double (*recall)(const char *spec), double noise)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->recall = recall;
    world->noise = noise;
    return world;
}

static bool is_formula(const char *spec)
{
    return strncmp(spec, "dpe:window=48,lengths=1024/256/", 31) == 0 &&
           strstr(spec, "log-n=256,log-n-power=0.7") != NULL;
}

static double formula_is_best(const char *spec)
{
    return strcmp(spec, "rope") == 0 ? 0.0 : is_formula(spec) ? 0.9 : 0.6;
}

static double rope_is_as_good(const char *spec)
{
    return strncmp(spec, "dpe", 3) == 0 ? 0.505 : strcmp(spec, "rope") == 0 ? 0.5 : 0.3;
}

static double jetlong_is_best(const char *spec)
{
    return strncmp(spec, "jetlong_freq", 12) == 0 ? 0.9 : strcmp(spec, "rope") == 0 ? 0.0 : 0.5;
}

static double lampe_is_best(const char *spec)
{
    return strncmp(spec, "lampe", 5) == 0 ? 0.95 : formula_is_best(spec);
}

/* A plan that only the second heat tries: no temperature, window L0/4. */
static double hidden_is_best(const char *spec)
{
    return strcmp(spec, "dpe:window=64,lengths=256") == 0 ? 0.95 : formula_is_best(spec) - 0.2;
}

static double ramps_are_best(const char *spec)
{
    return strstr(spec, "mrrope") != NULL ? 0.95 : formula_is_best(spec) - 0.1;
}

static void the_first_heat_takes_nine_contexts(void **state)
{
    static const struct {
        double (*recall)(const char *spec);
        const char *begins;
        int64_t most;                                                   /* contexts */
    } all[] = {{formula_is_best, "dpe:window=48,lengths=1024/256/", 6}, /* one context is clear */
               {rope_is_as_good, "rope", 9},
               {jetlong_is_best, "jetlong_freq", 9},
               /* no table can hold lampe */
               {lampe_is_best, "dpe:window=48,lengths=1024/256/", 9}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct world *world = world_of(all[i].recall, 0.02);
        struct dpe_detect_search search;
        const struct dpe_detect_search_options options = options_of(9);
        run(world, &options, &search);
        const char *spec = search.tried[search.best].spec;
        printf("%s after %lld contexts\n", spec, (long long)search.spent);
        assert_memory_equal(spec, all[i].begins, strlen(all[i].begins));
        assert_true(search.spent <= all[i].most && search.spent == world->made);
        assert_int_equal(search.heats, 1);
        assert_false(search.exhausted);
        assert_true(search.plain > 0 && search.tried[search.plain].plain);
        dpe_detect_search_free(&search);
        free(world);
    }
}

static void a_larger_budget_reads_what_a_smaller_one_has(void **state)
{
    struct world *before = NULL;
    (void)state;
    for (int64_t budget = 1; budget <= 640; budget = budget < 8 ? 8 : 2 * budget) {
        struct world *world = world_of(hidden_is_best, 0.2);
        struct dpe_detect_search search;
        const struct dpe_detect_search_options options = options_of(budget);
        run(world, &options, &search);
        assert_true(search.spent <= budget || search.heats == 1);
        for (int i = 0; before != NULL && i < before->n; i++) {
            for (int s = 0; s < DPE_DETECT_STREAMS; s++) {
                const int at = index_of(world, before->specs[i]);
                assert_true(world->rows[at][s] >= before->rows[i][s]);
            }
        }
        if (budget >= 160) {
            assert_string_equal(search.tried[search.best].spec, "dpe:window=64,lengths=256");
        }
        /* With what is there the least one finds the same, and reads nothing. */
        const struct dpe_detect_search_options least = options_of(1);
        struct dpe_detect_search again;
        const int64_t made = world->made;
        run(world, &least, &again);
        assert_true(world->made == made && again.spent == search.spent && again.least > 1);
        assert_string_equal(again.tried[again.best].spec, search.tried[search.best].spec);
        dpe_detect_search_free(&again);
        dpe_detect_search_free(&search);
        free(before);
        before = world;
    }
    free(before);
}

/* Where ramps find most and lose ten percent of perplexity, another is chosen: also
 * by the first heat, which reads a text for that. */
static void the_guard_holds(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool guarded = i % 2 != 0;
        struct world *world = world_of(ramps_are_best, 0.02);
        struct dpe_detect_search search;
        struct dpe_detect_search_options options = options_of(i < 2 ? 200 : 16);
        options.guard = guarded ? 0.05 : 0.0;
        options.most[DPE_DETECT_TEXTS] = guarded ? 2 : 0;
        world->nats = 0.1;
        run(world, &options, &search);
        const char *spec = search.tried[search.best].spec;
        assert_true((strstr(spec, "mrrope") == NULL) == guarded);
        assert_true(i < 2 || search.heats == 1);
        dpe_detect_search_free(&search);
        free(world);
    }
}

static double ramps_save_little(const char *spec)
{
    return strstr(spec, "mrrope") != NULL ? 0.012 : strcmp(spec, "rope") == 0 ? 0.0 : -0.05;
}

static double ramps_save_much(const char *spec)
{
    return strstr(spec, "mrrope") != NULL ? 1.2 : strcmp(spec, "rope") == 0 ? 0.0 : 0.5;
}

/* Of texts the model as it is reads as many as the best where that one saves little, of whatever
 * perplexity. */
static void unchanged_reads_on_where_texts_show_little(void **state)
{
    (void)state;
    for (int much = 0; much < 2; much++) {
        struct world *world = world_of(much ? ramps_save_much : ramps_save_little, 0.03);
        struct dpe_detect_search search;
        struct dpe_detect_search_options options = options_of(24);
        world->texts = true;
        options.criterion = DPE_DETECT_PERPLEXITY;
        options.guard = 0.0;
        run(world, &options, &search);
        const struct dpe_detect_tried *best = &search.tried[search.best];
        assert_true(!much || strstr(best->spec, "mrrope") != NULL);
        assert_true((search.tried[0].contexts[DPE_DETECT_NEEDLES] > 1) == !much);
        dpe_detect_search_free(&search);
        free(world);
    }
}

/* Of plans of one key the search ends before the budget: nothing is left to try. */
static void it_ends_when_nothing_is_left(void **state)
{
    (void)state;
    struct world *world = world_of(formula_is_best, 0.0);
    struct dpe_detect_search search;
    struct dpe_detect_search_options options = options_of(1000000);
    options.temperature = options.window = options.methods = false;
    run(world, &options, &search);
    assert_true(search.exhausted && search.spent < 2000);
    dpe_detect_search_free(&search);
    free(world);
}

/* ---------------------------------------------------------------------------------------- the rule
 */

static void set_plans(struct dpe_detect_scores *scores, const double *means, int n)
{
    scores_of(scores, n, 64);
    scores->together = 8;
    for (int c = 0; c < n; c++) {
        for (int64_t s = 0; s < 64; s++) {
            set_recall(scores, c, s,
                       fmin(1.0, fmax(0.0, means[c] + (s / 8 % 2 == 0 ? 0.02 : -0.02) * (c + 1))));
        }
    }
}

static int chosen(const double *means, const double *nll, const bool *able, int held)
{
    static const enum dpe_detect_kind kinds[] = {DPE_DETECT_UNCHANGED, DPE_DETECT_FORMULA,
                                                 DPE_DETECT_METHOD, DPE_DETECT_SEARCHED};
    struct dpe_detect_scores scores;
    set_plans(&scores, means, 4);
    const struct dpe_detect_choice choice = {.n = 4,
                                             .criterion = DPE_DETECT_RECALL,
                                             .tasks = {&scores},
                                             .nll = nll,
                                             .kinds = kinds,
                                             .able = able,
                                             .held = held,
                                             .guard = 0.05};
    const int plan = dpe_detect_choose(&choice);
    dpe_detect_scores_free(&scores);
    return plan;
}

static void one_rule_chooses(void **state)
{
    const double unread[] = {NAN, NAN, NAN, NAN};
    const bool all[] = {true, true, true, true}, not_last[] = {true, true, true, false};
    const bool none[4] = {false};
    (void)state;
    const double clear[] = {0.1, 0.4, 0.5, 0.9};
    assert_int_equal(chosen(clear, unread, all, -1), 3);
    assert_int_equal(chosen(clear, unread, not_last, -1), 2);
    assert_int_equal(chosen(clear, unread, none, -1), -1);
    /* Within the standard error what needs least to be believed. */
    const double close[] = {0.1, 0.800, 0.801, 0.802};
    assert_int_equal(chosen(close, unread, all, -1), 1);
    assert_int_equal(chosen(close, unread, all, 3), 3); /* what an earlier heat chose stays */
    const double better[] = {0.1, 0.9, 0.5, 0.802};
    assert_int_equal(chosen(better, unread, all, 3), 1); /* but where it finds less */
    const double method[] = {0.1, 0.4, 0.801, 0.802};
    assert_int_equal(chosen(method, unread, all, -1), 2);
    assert_int_equal(chosen(method, unread, all, 3), 3);
    const double needless[] = {0.801, 0.4, 0.5, 0.802};
    assert_int_equal(chosen(needless, unread, all, -1), 0);
    /* The guard: 2.1 is 10 % of perplexity above 2.0. */
    const double nll[] = {2.0, 2.0, 2.0, 2.1};
    assert_int_equal(chosen(clear, nll, all, -1), 2);
    const double within[] = {2.0, 2.0, 2.0, 2.04};
    assert_int_equal(chosen(clear, within, all, -1), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_heat_takes_nine_contexts),
        cmocka_unit_test(a_larger_budget_reads_what_a_smaller_one_has),
        cmocka_unit_test(the_guard_holds),
        cmocka_unit_test(unchanged_reads_on_where_texts_show_little),
        cmocka_unit_test(it_ends_when_nothing_is_left),
        cmocka_unit_test(one_rule_chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

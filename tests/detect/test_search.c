/* The search for the best plan, on made-up models whose best plan is known: what it finds, what it
 * leaves alone, how many samples it asks for, and that it can be stopped anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "detect_case.h"
#include "engine/plan/methods/methods.h"

enum { SAMPLES = 64, TEXTS = 2, GROUPS = 4, MOST_PLANS = 400 };

/* A made-up model: the share of samples that a plan finds. */
typedef double (*quality)(const struct dpe_detect_params *params,
                          const struct dpe_detect_point *point);

/* The rows that exist: of these plans the first samples. */
struct world {
    quality find;
    quality nll; /* nats per token of a text, with a guard; NaN: fails, < 0: fails in the first */
    struct dpe_config config;
    struct dpe_plan_context context;
    struct dpe_detect_grid grid;
    struct dpe_detect_ranking ranking;
    struct dpe_detect_search_options options;
    int n;
    int64_t rows;
    struct {
        char key[33];
        double share, nll;
        int64_t samples, texts;
    } plans[MOST_PLANS];
};

/* Where a plan's rows are; world->n: nowhere yet. */
static int find_plan(const struct world *world, const char *key)
{
    int at = 0;
    while (at < world->n && strcmp(world->plans[at].key, key) != 0) {
        at++;
    }
    return at;
}

static dpe_status scores_of_world(void *user, const char *const *keys, int n,
                                  struct dpe_detect_scores *scores, struct dpe_error *err)
{
    const struct world *world = user;
    dpe_status status = dpe_detect_scores_init(scores, n, SAMPLES, err);
    for (int i = 0; i < n; i++) {
        const int k = find_plan(world, keys[i]);
        for (int64_t s = 0; k < world->n && s < world->plans[k].samples; s++) {
            /* Which sample is hard is the same for all plans. */
            double hard = (double)((s * 37 + 11) % SAMPLES) / SAMPLES;
            set_recall(scores, i, s, hard < world->plans[k].share ? 1.0 : 0.0);
        }
    }
    return status;
}

static dpe_status texts_of_world(void *user, const char *const *keys, int n,
                                 struct dpe_detect_scores *scores, struct dpe_error *err)
{
    const struct world *world = user;
    dpe_status status = dpe_detect_scores_init(scores, n, TEXTS, err);
    for (int i = 0; i < n; i++) {
        const int k = find_plan(world, keys[i]);
        for (int64_t t = 0; k < world->n && t < world->plans[k].texts; t++) {
            const double nll = world->plans[k].nll;
            const bool valid = nll >= 0.0 || (t > 0 && nll < 0.0);
            scores->status[i * TEXTS + t] = valid ? DPE_ROW_OK : DPE_ROW_NONFINITE;
            scores->nll_sum[i * TEXTS + t] = valid ? 100.0 * fabs(nll) : (double)NAN;
            scores->n_tokens[i * TEXTS + t] = valid ? 100 : -1;
        }
    }
    return status;
}

/* The rows that a search waits for; a stop leaves only the first plan's. */
static void add_rows(struct world *world, const struct dpe_detect_search *search, bool stop)
{
    const struct dpe_detect_step *step = &search->steps[search->n_steps - 1];
    for (int i = 0; i < step->n; i++) {
        const int at = find_plan(world, step->tried[i].key);
        if (!step->tried[i].wanted) {
            continue;
        }
        if (at == world->n) {
            assert_true(world->n < MOST_PLANS);
            memcpy(world->plans[world->n].key, step->tried[i].key, 33);
            world->plans[world->n].nll =
                world->nll != NULL ? world->nll(&world->grid.params, &step->tried[i].point) : 0.0;
            world->plans[world->n++].share =
                world->find(&world->grid.params, &step->tried[i].point);
        }
        int64_t *rows = search->wants_texts ? &world->plans[at].texts : &world->plans[at].samples;
        assert_true(*rows < search->wanted);
        int64_t now = stop ? *rows + 1 : search->wanted;
        world->rows += now - *rows;
        *rows = now;
        if (stop) {
            return;
        }
    }
}

static void replay(struct world *world, struct dpe_detect_search *search)
{
    const struct dpe_detect_source source = {world, scores_of_world, texts_of_world};
    struct dpe_error err = {0};
    if (dpe_detect_search_replay(&world->options, &world->grid, &world->context, &world->ranking,
                                 &source, search, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
}

/* Until nothing is missing; `stopped`: every row is made by a process of its own. */
static void search_all(struct world *world, bool stopped, struct dpe_detect_search *search)
{
    replay(world, search);
    while (!search->complete) {
        add_rows(world, search, stopped);
        dpe_detect_search_free(search);
        replay(world, search);
    }
}

static void open_world(struct world *world, quality find)
{
    static const int ranks[GROUPS] = {2, 1, 0, 3}; /* what the sweep ranks first in each group */
    *world = (struct world){.find = find,
                            .config = config_of(32, 64),
                            .options = {.temperature = true,
                                        .joint = true,
                                        .rounds = 3,
                                        .n_samples = SAMPLES,
                                        .per_round = 4,
                                        .together = 1,
                                        .criterion = DPE_DETECT_RECALL}};
    world->context = context_of(&world->config, 64, 512);
    struct dpe_detect_params params = params_of(512, 64, 8, GROUPS, "16,32,64,128");
    grid_of(&params, &world->config, &world->grid);
    struct dpe_detect_scores scores = {0};
    scores_of(&scores, GROUPS * 4, 8);
    for (int c = 0; c < GROUPS * 4; c++) {
        for (int64_t s = 0; s < 8; s++) {
            set_recall(&scores, c, s, c % 4 == ranks[c / 4] ? 1.0 : 0.5);
        }
    }
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_rank(&scores, GROUPS, params.lengths, 4, DPE_DETECT_RECALL,
                                     &world->ranking, &err),
                     DPE_OK);
    dpe_detect_scores_free(&scores);
}

static void close_world(struct world *world)
{
    dpe_detect_ranking_free(&world->ranking);
    dpe_detect_grid_free(&world->grid);
}

/* ------------------------------------------------------------------------------------------ models
 */

/* Everything is the same. */
static double flat(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    (void)point;
    return 0.5;
}

static double easy(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    (void)point;
    return 1.0;
}

/* Wants a constant factor of 1.6, the length 64 for all groups and a window of 16. */
static double plain(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    double share = 0.2;
    share += point->temperature.logit_scale == 1.6 ? 0.3 : 0.0;
    share += dpe_detect_point_is_single(params, point) && point->at[0] == 2 ? 0.25 : 0.0;
    return share + (point->window == 16 ? 0.2 : 0.0);
}

/* Wants a log-n, and nothing else. */
static double hot(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    return point->temperature.log_n_length > 0.0 ? 0.7 : 0.3;
}

/* Wants what the sweep ranks first, each group by itself, and no temperature. */
static double grouped(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    static const int best[GROUPS] = {2, 1, 0, 3};
    double share = dpe_temperature_is_none(&point->temperature) ? 0.3 : 0.0;
    for (int g = 0; g < params->n_groups; g++) {
        share += point->at[g] == best[g] ? 0.15 : 0.0;
    }
    return share;
}

/* Wants the fastest group at the longest length and the others at L0/2, all at once, which the
 * base's temperature alone does not give. The sweep shows that the second group is worse at the
 * longest length. */
static const int16_t split[GROUPS] = {3, 1, 1, 1};

static double split_off(const struct dpe_detect_params *params,
                        const struct dpe_detect_point *point)
{
    (void)params;
    return memcmp(point->at, split, sizeof split) == 0 ? 0.9 : 0.3;
}

/* As split_off with a factor of 1.6, but one length for all groups does best with log-n. */
static double two_temperatures(const struct dpe_detect_params *params,
                               const struct dpe_detect_point *point)
{
    const struct dpe_temperature *t = &point->temperature;
    if (memcmp(point->at, split, sizeof split) == 0) {
        return t->logit_scale == 1.6 ? 0.95 : 0.7;
    }
    if (!dpe_detect_point_is_single(params, point)) {
        return 0.2;
    }
    bool trained = params->lengths[point->at[0]] == params->trained_length;
    return trained && t->log_n_length == 64.0 && t->log_n_power == 0.5 && t->log_n_decay == 0.0
               ? 0.5
           : t->logit_scale == 1.6 ? 0.4
                                   : 0.2;
}

/* Wants three things at once, each of which alone spoils it: log-n, the longer window, L0. */
static double together(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    const int wanted = (point->temperature.log_n_length == 64.0) + (point->window == 16) +
                       (point->at[0] == 2 && dpe_detect_point_is_single(params, point));
    return wanted == 3 ? 0.8 : 0.4 - 0.1 * wanted;
}

/* The same, where the groups leave a second round something to try. */
static double two_temperatures_with_room(const struct dpe_detect_params *params,
                                         const struct dpe_detect_point *point)
{
    double share = two_temperatures(params, point);
    return share > 0.8 ? 0.8 : share;
}

/* Wants 12 of the 16 pairs of each head. */
static double twelve_pairs(const struct dpe_detect_params *params,
                           const struct dpe_detect_point *point)
{
    return dpe_detect_point_pairs(params, point).k == 12 ? 0.9 : 0.4;
}

/* Finds most with a factor that spoils the texts, and much with one that does not. */
static double tempting(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    const double factor = point->temperature.logit_scale;
    return factor == 2.0 ? 0.9 : factor == 1.6 ? 0.6 : 0.3;
}

static double spoilt_by_two(const struct dpe_detect_params *params,
                            const struct dpe_detect_point *point)
{
    (void)params;
    return point->temperature.logit_scale == 2.0 ? 1.0 : 0.5;
}

/* Finds much with one factor alone, under which texts fail. */
static double only_two(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    return point->temperature.logit_scale == 2.0 ? 0.9 : 0.3;
}

static double fails_with_two(const struct dpe_detect_params *params,
                             const struct dpe_detect_point *point)
{
    (void)params;
    return point->temperature.logit_scale == 2.0 ? (double)NAN : 0.5;
}

static double fails_once_with_two(const struct dpe_detect_params *params,
                                  const struct dpe_detect_point *point)
{
    (void)params;
    return point->temperature.logit_scale == 2.0 ? -0.2 : 0.5;
}

static double fails(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    (void)point;
    return (double)NAN;
}

/* Finds a little more with one log-n than without a temperature, `little`, which no test shows. */
static double little;

static double strayed(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    const struct dpe_temperature *t = &point->temperature;
    return dpe_temperature_is_none(t)                         ? 0.6
           : t->log_n_length == 64.0 && t->log_n_power == 1.0 ? 0.6 + little
                                                              : 0.2;
}

static double predicts_with_log_n(const struct dpe_detect_params *params,
                                  const struct dpe_detect_point *point)
{
    (void)params;
    return point->temperature.log_n_length == 64.0 ? 0.5 : 0.7;
}

/* ------------------------------------------------------------------------------------------- tests
 */

static void finds_what_is_best(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, plain);
    search_all(&world, false, &search);
    assert_true(search.point.temperature.logit_scale == 1.6);
    assert_int_equal(search.point.window, 16);
    for (int g = 0; g < GROUPS; g++) {
        assert_int_equal(search.point.at[g], 2);
    }
    assert_memory_equal(search.single.at, search.point.at, GROUPS * sizeof search.point.at[0]);
    assert_true(search.start.temperature.logit_scale == 1.0 && search.start.at[0] == 1);
    assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
    /* A change has a test behind it. */
    for (int i = 0; i < search.n_steps; i++) {
        assert_true(search.steps[i].chosen == 0 || search.steps[i].p < DPE_DETECT_SEARCH_LEVEL);
    }
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* Wants the factor that is 1.1 times the shorter length's, which no grid has. */
static double hotter(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    (void)params;
    double off = fabs(point->temperature.logit_scale - 1.1 * 1.27);
    return off < 1e-9 ? 0.8 : 0.3;
}

/* The first step of a kind. */
static const struct dpe_detect_step *step_of(const struct dpe_detect_search *search,
                                             enum dpe_detect_move move)
{
    int s = 0;
    while (search->steps[s].move != move) {
        s++;
        assert_true(s < search->n_steps);
    }
    return &search->steps[s];
}

/* A search around what suits a shorter length finds it, and reads less than one
 * of the whole grid. */
static void begins_around_a_temperature(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, hotter);
    search_all(&world, false, &search);
    assert_true(dpe_temperature_is_none(&search.point.temperature));
    const int whole = step_of(&search, DPE_DETECT_MOVE_TEMPERATURE)->n;
    const int64_t most = dpe_detect_search_most_rows(&world.options, &world.grid.params);
    dpe_detect_search_free(&search);
    close_world(&world);
    open_world(&world, hotter);
    world.options.near = (struct dpe_temperature){0.0, 1.0, 0.0, 1.27, DPE_LEVEL};
    search_all(&world, false, &search);
    assert_true(fabs(search.point.temperature.logit_scale - 1.1 * 1.27) < 1e-9);
    const struct dpe_detect_step *temperatures = step_of(&search, DPE_DETECT_MOVE_TEMPERATURE);
    assert_int_equal(temperatures->n, 8);
    assert_true(temperatures->chosen > 0 && temperatures->n < whole);
    assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
    assert_true(dpe_detect_search_most_rows(&world.options, &world.grid.params) < most);
    /* The first step tries it with two windows and each of the two longest lengths up to L0. */
    int with = 0;
    for (int k = 1; k < search.steps[0].n; k++) {
        with += search.steps[0].tried[k].point.temperature.logit_scale == 1.27;
    }
    assert_int_equal(with, 4);
    dpe_detect_search_free(&search);
    close_world(&world);
}

static void gives_groups_their_own_lengths(void **state)
{
    (void)state;
    static struct world world;
    static const int16_t best[GROUPS] = {2, 1, 0, 3};
    struct dpe_detect_search search;
    open_world(&world, grouped);
    search_all(&world, false, &search);
    assert_true(dpe_temperature_is_none(&search.point.temperature));
    assert_memory_equal(search.point.at, best, sizeof best);
    assert_true(dpe_detect_point_is_single(&world.grid.params, &search.single));
    dpe_detect_search_free(&search);
    close_world(&world);
}

static void lets_fast_groups_keep_their_distances(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, split_off);
    search_all(&world, false, &search);
    assert_memory_equal(search.point.at, split, sizeof split);
    for (int i = 0; i < search.n_steps; i++) {
        const struct dpe_detect_step *step = &search.steps[i];
        bool found = step->chosen > 0;
        assert_int_equal(found, step->move == DPE_DETECT_MOVE_SPLIT && step->round == 0);
        /* Nothing is tried of which the sweep has shown that it is worse. */
        for (int k = 1; k < step->n && step->move == DPE_DETECT_MOVE_SPLIT; k++) {
            assert_int_not_equal(step->tried[k].point.at[1], 3);
        }
    }
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* Groups are held against the best that one length can do, not against one length under the
 * temperature that suits the groups. */
static void one_length_keeps_its_own_temperature(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, two_temperatures);
    search_all(&world, false, &search);
    assert_memory_equal(search.point.at, split, sizeof split);
    assert_true(search.point.temperature.logit_scale == 1.6);
    assert_true(dpe_detect_point_is_single(&world.grid.params, &search.single));
    assert_true(search.single.temperature.log_n_length == 64.0);
    assert_true(search.single.temperature.logit_scale == 1.0);
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* Also when a second round compares lengths again, under the temperature of the groups alone. */
static void a_second_round_leaves_one_length(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, two_temperatures_with_room);
    search_all(&world, false, &search);
    int again = 0;
    for (int i = 0; i < search.n_steps; i++) {
        const struct dpe_detect_step *step = &search.steps[i];
        again += step->move == DPE_DETECT_MOVE_LENGTHS && step->round > 0 && step->tested;
    }
    assert_true(again > 0);
    assert_memory_equal(search.point.at, split, sizeof split);
    assert_true(search.single.temperature.log_n_length == 64.0);
    assert_true(search.single.temperature.logit_scale == 1.0);
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* Without a difference nothing changes, and a ceiling costs the first plan's samples alone. */
static void changes_nothing_without_evidence(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    const quality models[] = {flat, easy};
    for (int i = 0; i < 2; i++) {
        open_world(&world, models[i]);
        search_all(&world, false, &search);
        assert_memory_equal(&search.point, &search.start, sizeof search.point);
        assert_int_equal(search.n_steps, 6); /* a round that changes nothing is the last */
        assert_int_equal(search.steps[0].tested, i == 0);
        if (i == 1) {
            assert_int_equal(world.rows, SAMPLES);
        }
        dpe_detect_search_free(&search);
        close_world(&world);
    }
}

/* Also the first round tries the neighbours of a temperature that was found. */
static void reads_no_more_than_was_said(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, hot);
    world.options.rounds = 1;
    search_all(&world, false, &search);
    const struct dpe_detect_step *last = &search.steps[search.n_steps - 1];
    assert_int_equal(last->move, DPE_DETECT_MOVE_TEMPERATURE);
    assert_int_equal(last->n, 21);
    assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* Factors of some layers come after a whole round: they gain little, and cost a step more rows. */
static void depths_are_tried_late(void **state)
{
    (void)state;
    static struct world world;
    static struct dpe_detect_tried tried[DPE_DETECT_MOST_CANDIDATES];
    open_world(&world, hot);
    struct dpe_detect_params params = world.grid.params;
    for (int round = 0; round < 4; round++) {
        for (int frequencies = 0; frequencies < 2; frequencies++) {
            params.frequencies = frequencies == 1;
            memset(tried, 0, sizeof tried);
            tried[0].point.temperature = dpe_temperature_none;
            int n = dpe_detect_candidates(&params, 32, NULL, &world.options,
                                          DPE_DETECT_MOVE_TEMPERATURE, round, tried);
            int depths = 0;
            for (int i = 0; i < n; i++) {
                depths += !dpe_temperature_is_level(&tried[i].point.temperature);
            }
            assert_int_equal(depths, round > 1 && frequencies == 0 ? 6 : 0);
        }
    }
    close_world(&world);
}

/* A search that is stopped after every row ends as one that is not, and asks for no other rows. */
static void can_be_stopped_anywhere(void **state)
{
    (void)state;
    static struct world calm, stopped;
    struct dpe_detect_search a, b;
    const quality models[] = {plain, grouped};
    for (int i = 0; i < 2; i++) {
        open_world(&calm, models[i]);
        open_world(&stopped, models[i]);
        search_all(&calm, false, &a);
        search_all(&stopped, true, &b);
        assert_int_equal(a.n_steps, b.n_steps);
        assert_memory_equal(&a.point, &b.point, sizeof a.point);
        assert_int_equal(calm.rows, stopped.rows);
        for (int s = 0; s < a.n_steps; s++) {
            assert_int_equal(a.steps[s].chosen, b.steps[s].chosen);
            assert_true(a.steps[s].p == b.steps[s].p || isnan(a.steps[s].p));
        }
        dpe_detect_search_free(&a);
        dpe_detect_search_free(&b);
        close_world(&calm);
        close_world(&stopped);
    }
}

/* Few samples can show nothing: with four no test has p < 0.05. */
static void few_samples_change_nothing(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, plain);
    world.options.n_samples = 4;
    replay(&world, &search);
    assert_int_equal(search.wanted, 4);
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* One step finds what no single change shows, without a sweep and of fewer contexts than a test
 * needs; without a temperature to search it has the windows and lengths alone. */
static void one_step_changes_all_at_once(void **state)
{
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        static struct world world;
        struct dpe_detect_search search;
        open_world(&world, together);
        world.options.joint = false;
        world.options.brief = true;
        world.options.n_samples = 4;
        search_all(&world, stopped == 1, &search);
        assert_int_equal(search.n_steps, 1);
        assert_int_equal(search.steps[0].n, 16);
        assert_true(search.point.temperature.log_n_length == 64.0);
        assert_int_equal(search.point.window, 16);
        assert_int_equal(search.point.at[0], 2);
        assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
        dpe_detect_search_free(&search);
        close_world(&world);
        open_world(&world, plain);
        world.options = (struct dpe_detect_search_options){
            .brief = true, .rounds = 1, .n_samples = SAMPLES, .per_round = 4, .together = 1};
        search_all(&world, stopped == 1, &search);
        assert_int_equal(search.steps[0].n, 4);
        assert_true(search.point.window == 16 && search.point.at[0] == 2);
        dpe_detect_search_free(&search);
        close_world(&world);
    }
}

/* Whether a search meets a plan in its first step. */
static bool is_met_first(const struct dpe_detect_params *params, const struct dpe_detect_point *is)
{
    static struct dpe_detect_tried tried[DPE_DETECT_MOST_CANDIDATES];
    const struct dpe_detect_search_options options = {.temperature = true, .brief = true};
    bool met = false;
    dpe_detect_point_base(params, &tried[0].point);
    const int n =
        dpe_detect_candidates(params, 32, NULL, &options, DPE_DETECT_MOVE_COARSE, 0, tried);
    for (int i = 0; i < n; i++) {
        met = met || memcmp(&tried[i].point, is, sizeof *is) == 0;
    }
    return met;
}

/* Where searches end: the fastest eighth of the groups stays where it is, if there are eight. */
static void the_usual_plan(void **state)
{
    (void)state;
    static const struct {
        int groups;
        const char *lengths;
        bool found;
        int kept, window;
    } cases[] = {{4, "16,32,64,128,512", true, 0, 16},
                 {8, "16,32,64,128,512", true, 1, 12},
                 {16, "64,512", true, 2, 12},
                 {8, "32,64,128", true, 0, 16}, /* L is no detecting length */
                 {8, "32,128,512", false, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dpe_detect_params params =
            params_of(512, 64, 8, cases[i].groups, cases[i].lengths);
        struct dpe_detect_point point;
        assert_int_equal(dpe_detect_point_usual(&params, &point), cases[i].found);
        for (int g = 0; g < cases[i].groups && cases[i].found; g++) {
            assert_int_equal(params.lengths[point.at[g]], g < cases[i].kept ? 512 : 64);
        }
        assert_true(!cases[i].found ||
                    (point.window == cases[i].window && point.temperature.log_n_length == 64.0 &&
                     point.temperature.log_n_power == 0.7));
        assert_true(!cases[i].found || is_met_first(&params, &point));
        struct dpe_detect_params longer = params_of(2048, 64, 8, 8, "64,2048");
        assert_true(dpe_detect_point_usual(&longer, &point));
        assert_int_equal(point.window, 8); /* beyond 16 L0 */
        assert_true(is_met_first(&longer, &point));
        struct dpe_detect_params nearer = params_of(100, 64, 8, cases[i].groups, "32,64,100");
        assert_true(dpe_detect_point_usual(&nearer, &point)); /* up to 2 L0: all at L0/2 */
        assert_true(point.window == 32 && point.at[0] == 0 && point.at[cases[i].groups - 1] == 0);
        assert_true(is_met_first(&nearer, &point));
        struct dpe_detect_params wide = params; /* no wider than what far keys are brought to */
        wide.window = 50;
        assert_int_equal(dpe_detect_point_usual(&wide, &point), cases[i].found);
        assert_int_equal(point.window, 64);
    }
}

/* Of a wide head; without a search, too. */
static void every_pair_can_be_a_group(void **state)
{
    (void)state;
    enum { PAIRS = 300 };
    struct dpe_config config = config_of(2 * PAIRS, 64);
    struct dpe_detect_params params = params_of(256, 64, 8, PAIRS, "64,256");
    struct dpe_plan_context context = context_of(&config, 64, 256);
    struct dpe_detect_grid grid;
    struct dpe_detect_point point;
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    struct dpe_error err = {0};
    grid_of(&params, &config, &grid);
    assert_true(dpe_detect_point_usual(&grid.params, &point));
    assert_int_equal(dpe_detect_point_plan(&grid, &context, &point, &plan, &err), DPE_OK);
    assert_true(plan.bands[1].k.scale[0] == 1.0 && plan.bands[1].k.scale[PAIRS - 1] == 4.0);
    dpe_detect_grid_free(&grid);
}

/* Waits for the sweep once its first step is done, and leaves the rest alone when not asked. */
static void the_sweep_comes_after_the_first_step(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    struct dpe_error err = {0};
    open_world(&world, plain);
    const struct dpe_detect_source source = {&world, scores_of_world, texts_of_world};
    do {
        assert_int_equal(dpe_detect_search_replay(&world.options, &world.grid, &world.context, NULL,
                                                  &source, &search, &err),
                         DPE_OK);
        if (!search.complete && !search.wants_sweep) {
            add_rows(&world, &search, false);
            dpe_detect_search_free(&search);
        }
    } while (search.steps == NULL);
    assert_true(search.wants_sweep && !search.complete);
    assert_int_equal(search.n_steps, 1);
    assert_true(search.point.window == 16 && search.point.at[0] == 2);
    dpe_detect_search_free(&search);
    world.options.joint = false;
    search_all(&world, false, &search);
    assert_true(search.complete && !search.wants_sweep);
    assert_int_equal(search.n_steps, 1);
    assert_true(search.point.temperature.logit_scale == 1.6);
    dpe_detect_search_free(&search);
    world.options.temperature = false;
    replay(&world, &search);
    assert_true(search.complete);
    assert_int_equal(search.n_steps, 0);
    dpe_detect_search_free(&search);
    world.options.rounds = 0;
    assert_int_equal(dpe_detect_search_replay(&world.options, &world.grid, &world.context, NULL,
                                              &source, &search, &err),
                     DPE_INTERNAL);
    close_world(&world);
}

/* Halving: 13 changes on 8 of 64 samples, 5 on 16, 2 on 32, 1 on 64. */
static void halving_has_a_known_cost(void **state)
{
    (void)state;
    const struct dpe_detect_search_options options = {
        .n_samples = 64, .per_round = 4, .together = 1};
    assert_int_equal(dpe_detect_halving_rows(&options, 13), 13 * 8 + 5 * 8 + 2 * 16 + 1 * 32);
    const struct dpe_detect_search_options few = {.n_samples = 3, .per_round = 4, .together = 1};
    assert_int_equal(dpe_detect_halving_rows(&few, 13), 13 * 3);
    /* Changes are first compared in four contexts, however few samples an eighth is, or in two of
     * four questions. */
    const struct dpe_detect_search_options pairs = {.n_samples = 32, .per_round = 4, .together = 2};
    assert_int_equal(dpe_detect_halving_rows(&pairs, 13), 13 * 8 + 5 * 8 + 2 * 16);
    const struct dpe_detect_search_options shared = {
        .n_samples = 32, .per_round = 4, .together = 4};
    assert_int_equal(dpe_detect_halving_rows(&shared, 13), 13 * 8 + 5 * 8 + 2 * 16);
}

/* The table gets another plan than the joint one only when validation shows it to be better. */
static void the_better_plan_is_kept(void **state)
{
    (void)state;
    static const struct {
        double rope, base, joint, single;
        bool any;
        int kept;
    } cases[] = {
        {0.0, 0.5, 0.9, 0.9, true, DPE_DETECT_JOINT},
        {0.0, 0.9, 0.5, 0.6, true, DPE_DETECT_BASE},
        {0.0, 0.5, 0.6, 0.95, true, DPE_DETECT_SINGLE},
        {1.0, 0.5, 0.6, 0.5, true, DPE_DETECT_ROPE},
        {0.0, 0.9, 0.5, 0.9, false, DPE_DETECT_JOINT},
        {0.0, 0.52, 0.5, 0.5, true, DPE_DETECT_JOINT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_detect_scores scores = {0};
        struct dpe_detect_validation validation;
        struct dpe_error err = {0};
        const bool tables[] = {true, true, true, true, false};
        const double share[] = {cases[i].rope, cases[i].base, cases[i].joint, cases[i].single, 1.0};
        scores_of(&scores, 5, SAMPLES);
        for (int v = 0; v < 5; v++) {
            for (int64_t s = 0; s < SAMPLES; s++) {
                double hard = (double)((s * 37 + 11) % SAMPLES) / SAMPLES;
                set_recall(&scores, v, s, hard < share[v] ? 1.0 : 0.0);
            }
        }
        assert_int_equal(dpe_detect_validate(&scores, NULL, DPE_DETECT_RECALL,
                                             cases[i].any ? tables : NULL, &validation, &err),
                         DPE_OK);
        assert_int_equal(validation.kept, cases[i].kept);
        /* A plan that no table can hold is compared and not kept. */
        assert_true(validation.kept_minus[4].minus.mean <= 0.0);
        dpe_detect_scores_free(&scores);
    }
}

/* Scores of four plans that find these shares of the same samples. */
static void fill_shares(struct dpe_detect_scores *scores, const double *share)
{
    scores_of(scores, 4, SAMPLES);
    for (int v = 0; v < 4; v++) {
        for (int64_t s = 0; s < SAMPLES; s++) {
            double hard = (double)((s * 37 + 11) % SAMPLES) / SAMPLES;
            set_recall(scores, v, s, hard < share[v] ? 1.0 : 0.0);
        }
    }
}

/* Two tasks disagree when one shows a plan to be better than the joint one and the other to be
 * worse; not when only one of them shows a difference. What both find together decides otherwise:
 * noise of one task outweighs nothing that the other shows. */
static void two_tasks_may_disagree(void **state)
{
    (void)state;
    static const struct {
        double hard[4], users[4];
        bool disagree;
        int kept;
    } cases[] = {
        {{0.0, 0.2, 0.6, 0.4}, {0.0, 0.5, 0.9, 0.8}, false, DPE_DETECT_JOINT},
        {{0.0, 0.2, 0.6, 0.4}, {0.0, 0.9, 0.5, 0.5}, true, DPE_DETECT_BASE},
        {{0.0, 0.6, 0.2, 0.2}, {0.0, 0.5, 0.9, 0.9}, true, DPE_DETECT_JOINT},
        {{0.0, 0.2, 0.6, 0.6}, {0.0, 0.52, 0.5, 0.5}, false, DPE_DETECT_JOINT},
        {{0.0, 0.2, 0.6, 0.9}, {0.0, 0.52, 0.52, 0.5}, false, DPE_DETECT_SINGLE},
        {{0.0, 0.5, 0.5, 0.7}, {0.0, 0.9, 0.5, 0.5}, false, DPE_DETECT_BASE},
        {{0.0, 0.5, 0.5, 0.52}, {0.0, 0.5, 0.5, 0.5}, false, DPE_DETECT_JOINT},
    };
    const bool tables[] = {true, true, true, true};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_detect_scores scores = {0};
        struct dpe_detect_validation hard, users;
        struct dpe_error err = {0};
        fill_shares(&scores, cases[i].hard);
        assert_int_equal(dpe_detect_validate(&scores, NULL, DPE_DETECT_RECALL, tables, &hard, &err),
                         DPE_OK);
        dpe_detect_scores_free(&scores);
        fill_shares(&scores, cases[i].users);
        assert_int_equal(
            dpe_detect_validate(&scores, NULL, DPE_DETECT_RECALL, tables, &users, &err), DPE_OK);
        assert_int_equal(dpe_detect_disagree(&hard, &users), cases[i].disagree);
        assert_int_equal(dpe_detect_disagree(&users, &hard), cases[i].disagree);
        assert_int_equal(dpe_detect_kept_by_both(&hard, &users, tables), cases[i].kept);
        assert_int_equal(dpe_detect_kept_by_both(&hard, &users, NULL),
                         cases[i].disagree ? cases[i].kept : DPE_DETECT_JOINT);
        /* What another plan is worth when it is kept. */
        assert_int_equal(dpe_detect_validate_keep(&scores, NULL, DPE_DETECT_BASE, &users, &err),
                         DPE_OK);
        assert_int_equal(users.kept, DPE_DETECT_BASE);
        double gain = users.value[DPE_DETECT_BASE].mean - users.value[DPE_DETECT_JOINT].mean;
        assert_true(fabs(users.kept_minus[DPE_DETECT_JOINT].minus.mean - gain) < 1e-12);
        assert_true(users.kept_minus[DPE_DETECT_BASE].minus.mean == 0.0);
        dpe_detect_scores_free(&scores);
    }
}

/* ------------------------------------------------------------------------------------- frequencies
 */

/* Wants a factor of 1.6 and the first three groups kept, the last one at L0. */
static double three_kept(const struct dpe_detect_params *params,
                         const struct dpe_detect_point *point)
{
    double share = 0.2 + (point->temperature.logit_scale == 1.6 ? 0.3 : 0.0);
    for (int g = 0; g < params->n_groups; g++) {
        share += params->lengths[point->at[g]] == (g < 3 ? 512 : 64) ? 0.1 : 0.0;
    }
    return share;
}

/* 16 pairs, of which the first 5 go round within 64 tokens: all pairs of the first group do. */
static void frequencies_begin_with_those_that_go_round(void **state)
{
    (void)state;
    const struct dpe_config config = config_of(32, 64);
    struct dpe_plan_context context = context_of(&config, 64, 512);
    struct dpe_detect_params params = params_of(512, 64, 1, GROUPS, "16,32,64,512");
    struct dpe_detect_grid grid;
    struct dpe_error err = {0};
    struct dpe_plan plan = {0}, rope = {0};
    struct dpe_detect_point base;
    params.frequencies = true;
    grid_of(&params, &config, &grid);
    assert_int_equal(grid.params.n_whole, 1);
    assert_int_equal(dpe_detect_base_length(&grid.params), -1);
    assert_int_equal(dpe_plan_make("rope", &context, &rope, &err), DPE_OK);
    dpe_detect_point_base(&grid.params, &base);
    assert_int_equal(dpe_detect_point_plan(&grid, &context, &base, &plan, &err), DPE_OK);
    assert_int_equal(plan.n_bands, 1);
    for (int64_t j = 0; j < plan.n_pairs; j++) {
        assert_true(plan.inv_freq[j] == rope.inv_freq[j] / (j < 4 ? 1.0 : 8.0));
    }
    dpe_plan_free(&plan);
    /* A factor is not rounded, and a group without a length stays as in the base. */
    const int64_t lengths[GROUPS] = {512, 192, -1, 64};
    double scale[GROUPS];
    joint_scales_of(&grid.params, lengths, scale);
    assert_true(scale[0] == 1.0 && scale[1] == 512.0 / 192.0 && scale[2] == 8.0 && scale[3] == 8.0);
    /* It is what longrope is with these factors. */
    assert_int_equal(dpe_detect_joint_plan(&grid, &context, scale, &plan, &err), DPE_OK);
    dpe_plan_free(&rope);
    assert_int_equal(
        dpe_plan_make("longrope:a=1,long=1/1/1/1/2.6666666666666665/2.6666666666666665/"
                      "2.6666666666666665/2.6666666666666665/8/8/8/8/8/8/8/8",
                      &context, &rope, &err),
        DPE_OK);
    char keys[2][33];
    assert_int_equal(dpe_plan_key(&plan, keys[0], &err), DPE_OK);
    assert_int_equal(dpe_plan_key(&rope, keys[1], &err), DPE_OK);
    assert_string_equal(keys[0], keys[1]);
    dpe_plan_free(&plan);
    dpe_plan_free(&rope);
    dpe_detect_grid_free(&grid);
    /* Nothing that runtimes cannot express. */
    params.temperature = (struct dpe_temperature){64.0, 1.0, 0.0, 1.0, DPE_LEVEL};
    assert_int_equal(dpe_detect_grid_make(&params, &context, &grid, &err), DPE_USAGE);
    params = params_of(512, 64, 1, GROUPS, "16,32,64");
    params.frequencies = true;
    assert_int_equal(dpe_detect_grid_make(&params, &context, &grid, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "512"));
}

static void finds_how_many_pairs_move(void **state)
{
    (void)state;
    enum { HEADS = 2 * 4, PAIRS = 16, NUMBERS = 3 };
    static const int64_t k[NUMBERS] = {8, 10, 12};
    static uint8_t masks[NUMBERS][HEADS][PAIRS];
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, twelve_pairs);
    struct dpe_detect_params params = world.grid.params;
    params.n_fewer = NUMBERS;
    for (int i = 0; i < NUMBERS; i++) {
        for (int h = 0; h < HEADS; h++) {
            memset(masks[i][h], 1, (size_t)k[i]);
        }
        params.fewer[i] = (struct dpe_detect_key_pairs){k[i], &masks[i][0][0]};
    }
    dpe_detect_grid_free(&world.grid);
    grid_of(&params, &world.config, &world.grid);
    search_all(&world, false, &search);
    assert_int_equal(dpe_detect_point_pairs(&world.grid.params, &search.point).k, 12);
    assert_int_equal(search.single.fewer, search.point.fewer);
    assert_int_equal(dpe_detect_point_pairs(&world.grid.params, &search.start).k, -1);
    assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
    /* The plan moves those pairs and no others. */
    struct dpe_plan plan = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_point_plan(&world.grid, &world.context, &search.point, &plan, &err),
                     DPE_OK);
    char key[33];
    assert_int_equal(dpe_plan_key(&plan, key, &err), DPE_OK);
    dpe_plan_free(&plan);
    struct dpe_detect_point all = search.point;
    all.fewer = 0;
    assert_int_equal(dpe_detect_point_plan(&world.grid, &world.context, &all, &plan, &err), DPE_OK);
    char key_of_all[33];
    assert_int_equal(dpe_plan_key(&plan, key_of_all, &err), DPE_OK);
    assert_string_not_equal(key, key_of_all);
    dpe_plan_free(&plan);
    dpe_detect_search_free(&search);
    close_world(&world);
}

static void frequencies_find_how_many_groups_to_keep(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    open_world(&world, three_kept);
    struct dpe_detect_params params = params_of(512, 64, 1, GROUPS, "16,32,64,512");
    params.frequencies = true;
    dpe_detect_grid_free(&world.grid);
    grid_of(&params, &world.config, &world.grid);
    search_all(&world, false, &search);
    assert_true(search.point.temperature.logit_scale == 1.6);
    for (int g = 0; g < GROUPS; g++) {
        assert_int_equal(search.point.at[g], g < 3 ? 3 : 2);
    }
    assert_true(dpe_detect_point_is_single(&params, &search.single));
    assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
    for (int i = 0; i < search.n_steps; i++) {
        assert_int_not_equal(search.steps[i].move, DPE_DETECT_MOVE_WINDOW);
        for (int k = 0; k < search.steps[i].n; k++) {
            assert_true(search.steps[i].tried[k].point.temperature.log_n_length == 0.0);
        }
    }
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* Wants Jet-Long with a window of 16 without a temperature; of what needs no adapter MrRoPE with a
 * factor of 1.1 · 1.2. */
static double families(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    char spec[DPE_DETECT_SPEC];
    (void)params;
    dpe_detect_point_spec(point, spec);
    double share = point->family == 0 ? 0.4 : 0.1;
    share = strncmp(spec, "mrrope:logit-scale=1.2", 22) == 0 ? 0.4 : share;
    share = strcmp(spec, "mrrope:logit-scale=1.32") == 0 ? 0.6 : share;
    share = strcmp(spec, "jet-long:window=8") == 0 ? 0.7 : share; /* the plan's window */
    return strcmp(spec, "jet-long:window=16") == 0 ? 0.9 : share;
}

/* Every plan that was run on all samples, each once; the specs of DPE's plans make the same plans.
 */
static void check_finalists(const struct world *world, const struct dpe_detect_search *search)
{
    enum { MOST = 64 };
    static struct dpe_detect_point points[MOST];
    double value[MOST];
    bool read[MOST];
    char keys[MOST][33];
    struct dpe_error err = {0};
    const int n = dpe_detect_search_finalists(search, points, value, read, MOST);
    bool found = false;
    assert_true(n > 3 && n < MOST);
    assert_int_equal(dpe_detect_search_finalists(search, points, value, read, 2), 2);
    assert_int_equal(dpe_detect_search_finalists(search, points, value, read, MOST), n);
    for (int i = 0; i < n; i++) {
        struct dpe_plan plan = {0};
        char spec[DPE_DETECT_SPEC];
        assert_int_equal(
            dpe_detect_point_plan(&world->grid, &world->context, &points[i], &plan, &err), DPE_OK);
        assert_int_equal(dpe_plan_key(&plan, keys[i], &err), DPE_OK);
        dpe_plan_free(&plan);
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(keys[k], keys[i]);
        }
        found = found || memcmp(&points[i], &search->point, sizeof points[i]) == 0;
        double share = world->find(&world->grid.params, &points[i]);
        assert_true(fabs(value[i] - share) <= 1.0 / SAMPLES);
        dpe_detect_point_spec(&points[i], spec);
        if (spec[0] == '\0') {
            char key[33];
            dpe_detect_point_dpe_spec(&world->grid, &points[i], spec, sizeof spec);
            assert_int_equal(dpe_plan_make(spec, &world->context, &plan, &err), DPE_OK);
            assert_int_equal(dpe_plan_key(&plan, key, &err), DPE_OK);
            assert_string_equal(key, keys[i]);
            dpe_plan_free(&plan);
        }
    }
    assert_true(found);
}

static void other_methods_are_tried_last(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    char spec[DPE_DETECT_SPEC];
    open_world(&world, families);
    world.options.families = (1U << DPE_DETECT_FAMILIES) - 1U;
    search_all(&world, false, &search);
    dpe_detect_point_spec(&search.plain, spec);
    assert_string_equal(spec, "mrrope:logit-scale=1.32");
    dpe_detect_point_spec(&search.family, spec);
    assert_string_equal(spec, "jet-long:window=16");
    assert_int_equal(search.point.family, 0);
    dpe_detect_point_spec(&search.point, spec);
    assert_string_equal(spec, "");
    check_finalists(&world, &search);
    assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
    dpe_detect_search_free(&search);
    close_world(&world);
    /* A family that the model cannot have is not tried, and one that is not better is not kept. */
    open_world(&world, flat);
    world.options.families = 1U | 1U << (DPE_DETECT_FAMILIES - 1);
    search_all(&world, false, &search);
    assert_int_equal(search.family.family, 0);
    assert_int_equal(search.plain.family, 1);
    for (int i = 0; i < search.n_steps; i++) {
        for (int k = 0; k < search.steps[i].n; k++) {
            int family = search.steps[i].tried[k].point.family;
            assert_true(family == 0 || family == 1 || family == DPE_DETECT_FAMILIES);
        }
    }
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* Wants a ramp from pairs of six turns to pairs of three quarters, with a factor of 0.9. */
static double ramps(const struct dpe_detect_params *params, const struct dpe_detect_point *point)
{
    char spec[DPE_DETECT_SPEC];
    (void)params;
    dpe_detect_point_spec(point, spec);
    if (point->turns[0] <= 0.0 || strstr(spec, "logit-scale=0.9") == NULL) {
        return point->family == 0 ? 0.4 : 0.1;
    }
    return 1.0 - fabs(log(point->turns[0] / 6.0)) - fabs(log(point->turns[1] / 0.75));
}

/* Both ends of a ramp are moved, one after another or together, and no other method has them. */
static void the_ends_of_a_ramp_are_moved(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    char spec[DPE_DETECT_SPEC];
    open_world(&world, ramps);
    world.options.families = (1U << DPE_DETECT_FAMILIES) - 1U;
    search_all(&world, false, &search);
    dpe_detect_point_spec(&search.plain, spec);
    assert_string_equal(spec, "mrrope:form=uni,beta_fast=6,beta_slow=0.75,logit-scale=0.9");
    assert_true(search.family.family == 0 && search.family.turns[0] == 0.0);
    int moved = 0;
    for (int i = 0; i < search.n_steps; i++) {
        for (int k = 0; k < search.steps[i].n; k++) {
            const struct dpe_detect_point *point = &search.steps[i].tried[k].point;
            assert_true(point->turns[0] == 0.0 || point->family == DPE_DETECT_RAMP + 1);
            assert_true(point->turns[1] < point->turns[0] || point->turns[0] == 0.0);
            moved += point->turns[0] > 0.0;
        }
    }
    assert_true(moved > 3 &&
                world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
    dpe_detect_search_free(&search);
    close_world(&world);
}

static void open_guarded(struct world *world, quality find, quality nll)
{
    open_world(world, find);
    world->nll = nll;
    world->options.guard = 0.05;
    world->options.texts = TEXTS;
}

/* What finds most is taken only within the guard; without one it is. */
static void stays_within_the_guard(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    for (int stopped = 0; stopped < 2; stopped++) {
        open_guarded(&world, tempting, spoilt_by_two);
        world.options.joint = stopped == 0; /* one process a row takes long */
        search_all(&world, stopped != 0, &search);
        assert_true(search.point.temperature.logit_scale == 1.6);
        assert_true(search.steps[0].tried[0].read);
        assert_true(fabs(search.steps[0].tried[0].nll - 0.5) < 1e-12);
        assert_int_equal(world.rows, dpe_detect_search_asked(&search, NULL, 0));
        assert_true(world.rows <= dpe_detect_search_most_rows(&world.options, &world.grid.params));
        dpe_detect_search_free(&search);
        close_world(&world);
    }
    open_world(&world, tempting);
    search_all(&world, false, &search);
    assert_true(search.point.temperature.logit_scale == 2.0);
    assert_true(!search.steps[0].tried[0].read && isnan(search.steps[0].tried[0].nll));
    dpe_detect_search_free(&search);
    close_world(&world);
}

/* A plan that loses too much perplexity to one that finds more gives way without a test; one that
 * loses it to one that finds no more does not. */
static void comes_back_within_the_guard(void **state)
{
    (void)state;
    static struct world world;
    struct dpe_detect_search search;
    for (int i = 0; i < 2; i++) {
        little = i == 0 ? 0.03 : -0.03;
        open_guarded(&world, strayed, predicts_with_log_n);
        world.options.joint = false;
        search_all(&world, false, &search);
        assert_true(search.steps[0].guarded == (i == 0));
        assert_true((search.steps[0].chosen > 0) == (i == 0));
        assert_true((search.point.temperature.log_n_length == 64.0) == (i == 0));
        assert_true(i == 1 || search.steps[0].p > DPE_DETECT_SEARCH_LEVEL);
        dpe_detect_search_free(&search);
        close_world(&world);
        /* Without a guard it is not shown to be better. */
        open_world(&world, strayed);
        world.options.joint = false;
        search_all(&world, false, &search);
        assert_true(dpe_temperature_is_none(&search.point.temperature));
        dpe_detect_search_free(&search);
        close_world(&world);
    }
}

/* A plan under which a text fails is outside every guard, even where it alone finds more. Without
 * a plan that reads all texts there is no guard. */
static void texts_that_fail_are_outside(void **state)
{
    (void)state;
    static struct world world;
    static const quality nll[] = {fails_with_two, fails_once_with_two, fails};
    struct dpe_detect_search search;
    for (int i = 0; i < 3; i++) {
        open_guarded(&world, only_two, nll[i]);
        world.options.joint = false;
        search_all(&world, i == 1, &search);
        assert_true(search.steps[0].tested);
        assert_true(search.point.temperature.logit_scale == (i == 2 ? 2.0 : 1.0));
        assert_false(search.steps[0].guarded);
        dpe_detect_search_free(&search);
        close_world(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_within_the_guard),
        cmocka_unit_test(texts_that_fail_are_outside),
        cmocka_unit_test(comes_back_within_the_guard),
        cmocka_unit_test(finds_what_is_best),
        cmocka_unit_test(one_step_changes_all_at_once),
        cmocka_unit_test(the_usual_plan),
        cmocka_unit_test(every_pair_can_be_a_group),
        cmocka_unit_test(begins_around_a_temperature),
        cmocka_unit_test(gives_groups_their_own_lengths),
        cmocka_unit_test(lets_fast_groups_keep_their_distances),
        cmocka_unit_test(one_length_keeps_its_own_temperature),
        cmocka_unit_test(a_second_round_leaves_one_length),
        cmocka_unit_test(changes_nothing_without_evidence),
        cmocka_unit_test(reads_no_more_than_was_said),
        cmocka_unit_test(depths_are_tried_late),
        cmocka_unit_test(can_be_stopped_anywhere),
        cmocka_unit_test(few_samples_change_nothing),
        cmocka_unit_test(the_sweep_comes_after_the_first_step),
        cmocka_unit_test(halving_has_a_known_cost),
        cmocka_unit_test(the_better_plan_is_kept),
        cmocka_unit_test(two_tasks_may_disagree),
        cmocka_unit_test(finds_how_many_pairs_move),
        cmocka_unit_test(frequencies_begin_with_those_that_go_round),
        cmocka_unit_test(frequencies_find_how_many_groups_to_keep),
        cmocka_unit_test(other_methods_are_tried_last),
        cmocka_unit_test(the_ends_of_a_ramp_are_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

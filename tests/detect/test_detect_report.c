/* What a table gets after validation, by each rule, and what is said of lengths of groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "detect/report/report.h"
#include "detect/report/view.h"
#include "tests/detect/detect_case.h"
#include "tests/outputs/outputs_fixture.h"

enum { SAMPLES = 16, GROUPS = 2, PLANS = 4 };

/* A report of four validated plans: rope, base, joint and single. */
struct world {
    struct dpe_config config;
    struct dpe_plan_context context;
    struct dpe_detect_grid grid;
    struct dpe_detect_report report;
    struct dpe_detect_step step;
    struct dpe_detect_tried tried[2];
    struct dpe_run *run;
    char keys[PLANS + 2][33];
};

static void name_plan(struct world *world, int plan, const char *name)
{
    struct dpe_detect_report *report = &world->report;
    snprintf(report->names[plan], sizeof report->names[plan], "%s", name);
    snprintf(world->keys[plan], sizeof world->keys[plan], "%032x", (unsigned)plan + 1);
    report->keys[plan] = world->keys[plan];
}

static void add_rows(struct world *world, int plan, double recall)
{
    struct dpe_error err = {0};
    for (int64_t s = 0; s < SAMPLES; s++) {
        struct dpe_row row;
        dpe_row_init(&row);
        snprintf(row.plan, sizeof row.plan, "%s", world->report.keys[plan]);
        snprintf(row.task, sizeof row.task, "validate-niah");
        row.sample = s;
        row.score = (double)(s * 5 % SAMPLES) < recall * SAMPLES ? 1.0 : 0.0;
        row.at_least_half = row.score;
        assert_int_equal(dpe_run_add(world->run, &row, &err), DPE_OK);
        dpe_row_free(&row);
    }
}

/* The joint plan has the lengths at 64 and 32 (indices 1 and 0) of params_of's list. */
static void open_world(struct world *world, struct scratch *scratch, enum dpe_detect_rule rule,
                       const double recall[PLANS])
{
    static const char *const names[PLANS] = {"rope", "base", "joint", "single"};
    struct dpe_identity identity = fixture_identity(1);
    struct dpe_error err = {0};
    *world = (struct world){.config = config_of(64, 64)};
    struct dpe_detect_params params = params_of(256, 64, 8, GROUPS, "16,64,256");
    grid_of(&params, &world->config, &world->grid);
    scratch_clear(scratch);
    assert_int_equal(dpe_run_open(scratch->table, &identity, NULL, &world->run, &err), DPE_OK);
    dpe_identity_free(&identity);
    struct dpe_detect_report *report = &world->report;
    world->context = context_of(&world->config, 64, 256);
    report->grid = &world->grid;
    report->context = &world->context;
    report->rule = rule;
    report->n_validated = rule == DPE_DETECT_JOINTLY ? PLANS : DPE_DETECT_N_VALIDATED;
    report->results[0] = (struct dpe_detect_result){.used = true,
                                                    .criterion = DPE_DETECT_RECALL,
                                                    .task = "niah",
                                                    .validate_task = "validate-niah",
                                                    .n_validated = SAMPLES,
                                                    .together = 1,
                                                    .fresh = true};
    report->scale = calloc(GROUPS, sizeof *report->scale);
    report->selected = calloc(GROUPS, sizeof *report->selected);
    report->scale[0] = 4.0, report->selected[0] = 64;
    report->scale[1] = 16.0, report->selected[1] = 16;
    for (int v = 0; v < report->n_validated; v++) {
        name_plan(world, v, names[v]);
        add_rows(world, v, recall[v]);
    }
    assert_int_equal(dpe_detect_report_validation(report, world->run, &err), DPE_OK);
}

static void close_world(struct world *world)
{
    struct dpe_error err = {0};
    assert_int_equal(dpe_run_close(world->run, &err), DPE_OK);
    world->report.search.n_steps = 0;
    world->report.search.steps = NULL;
    dpe_detect_report_free(&world->report);
    dpe_detect_grid_free(&world->grid);
}

/* Every rule but the paper's ends with the base where validation shows that it is better. */
static void a_worse_plan_is_not_kept(void **state)
{
    static const double worse[PLANS] = {0.0, 0.9, 0.3, 0.3};
    static const double better[PLANS] = {0.0, 0.3, 0.9, 0.3};
    static const enum dpe_detect_rule rules[] = {DPE_DETECT_GUARDED, DPE_DETECT_SEQUENTIAL};
    struct world world;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        open_world(&world, *state, rules[i], worse);
        const struct dpe_detect_kept *kept = &world.report.kept;
        assert_int_equal(kept->plan, DPE_DETECT_BASE);
        for (int g = 0; g < GROUPS; g++) {
            assert_true(kept->entry.values.scale_factor[g] == 8.0); /* 256 over half of 64 */
        }
        assert_true(kept->entry.values.window == 8 && kept->entry.values.logit_scale == 1.0);
        close_world(&world);
        open_world(&world, *state, rules[i], better);
        assert_int_equal(kept->plan, DPE_DETECT_JOINT);
        assert_true(kept->entry.values.scale_factor[0] == 4.0 &&
                    kept->entry.values.scale_factor[1] == 16.0);
        assert_int_equal(dpe_detect_report_worth(&world.report), DPE_DETECT_WORTH_UNKNOWN);
        close_world(&world);
    }
    open_world(&world, *state, DPE_DETECT_PAPER, worse);
    assert_int_equal(world.report.kept.plan, DPE_DETECT_JOINT);
    close_world(&world);
}

/* How many samples it would take is said of every plan that is not distinguishable, and of no
 * other. */
static void indistinct_plans_have_a_number_of_samples(void **state)
{
    static const double close[PLANS] = {0.0, 0.5, 0.6, 0.6};
    struct world world;
    open_world(&world, *state, DPE_DETECT_JOINTLY, close);
    const struct dpe_detect_validation *v = &world.report.results[0].validation;
    assert_true(v->kept_needed[DPE_DETECT_BASE] > SAMPLES);
    assert_true(v->needed == v->kept_needed[DPE_DETECT_BASE]);
    assert_true(v->kept_needed[DPE_DETECT_ROPE] == 0);
    /* Other plans that find the same leave a doubt; the same plan does not. */
    assert_true(v->minus[DPE_DETECT_SINGLE].minus.mean == 0.0 &&
                v->minus[DPE_DETECT_SINGLE].minus.high > 0.1);
    world.report.keys[DPE_DETECT_SINGLE] = world.report.keys[DPE_DETECT_JOINT];
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_report_validation(&world.report, world.run, &err), DPE_OK);
    assert_true(v->minus[DPE_DETECT_SINGLE].minus.low == 0.0 &&
                v->minus[DPE_DETECT_SINGLE].minus.high == 0.0);
    close_world(&world);
}

static void give_search(struct world *world, bool tested, bool differ)
{
    struct dpe_detect_report *report = &world->report;
    dpe_detect_point_base(&world->grid.params, &report->search.point);
    world->tried[0].point = world->tried[1].point = report->search.point;
    world->tried[1].point.at[0] = 2;
    world->step = (struct dpe_detect_step){
        .move = DPE_DETECT_MOVE_SPLIT, .n = 2, .tried = world->tried, .tested = tested};
    report->search.steps = &world->step;
    report->search.n_steps = 1;
    if (differ) {
        report->search.point = world->tried[1].point;
    }
}

/* "Adds nothing" is said only where something was compared. */
static void what_groups_add(void **state)
{
    static const double same[PLANS] = {0.0, 0.3, 0.9, 0.9};
    static const double better[PLANS] = {0.0, 0.3, 0.9, 0.2};
    struct world world;
    open_world(&world, *state, DPE_DETECT_JOINTLY, same);
    give_search(&world, false, false);
    assert_int_equal(dpe_detect_report_worth(&world.report), DPE_DETECT_WORTH_UNTRIED);
    give_search(&world, true, false);
    assert_int_equal(dpe_detect_report_worth(&world.report), DPE_DETECT_WORTH_NONE);
    give_search(&world, true, true);
    assert_int_equal(dpe_detect_report_worth(&world.report), DPE_DETECT_WORTH_NOT_SHOWN);
    close_world(&world);
    open_world(&world, *state, DPE_DETECT_JOINTLY, better);
    give_search(&world, true, true);
    assert_int_equal(dpe_detect_report_worth(&world.report), DPE_DETECT_WORTH_SHOWN);
    assert_string_equal(dpe_detect_worth_names[DPE_DETECT_WORTH_SHOWN], "better");
    close_world(&world);
}

/* A table holds methods with one near window by this and scales, those that change frequencies by
 * these, and others by bands; not one whose pairs stop rotating. */
static void which_methods_a_table_can_hold(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        bool holds;
        double scale[GROUPS];
        bool unrounded, frequencies; /* of other methods */
        int64_t bands;
    } cases[] = {
        {"self-extend:group=4,window=8", true, {4.0, 4.0}, false, false, 0},
        {"self-extend:group=4,window=16,logit-scale=1.5", true, {4.0, 4.0}, false, false, 0},
        {"dpe:window=8,scales=2/16,log-n=64", true, {2.0, 16.0}, false, false, 0},
        /* Four groups, where the table has two. */
        {"dpe:window=8,scales=2/16/4/4", true, {1.0, 1.0}, false, false, 2},
        {"yarn", true, {1.0, 1.0}, false, true, 0},
        {"yarn:scale=8,beta_fast=8,logit-scale=1.25", true, {1.0, 1.0}, false, true, 0},
        {"ntk:log-n=64", true, {1.0, 1.0}, false, true, 0},
        {"pi", true, {1.0, 1.0}, false, true, 0},
        {"leaky-rerope", true, {4.0, 4.0}, true, false, 0},
        {"leaky-rerope:window=16,scale=8,official=0,logit-scale=1.8",
         true,
         {8.0, 8.0},
         true,
         false,
         0},
        {"rerope", true, {1.0, 1.0}, false, false, 2},
        {"cope", true, {1.0, 1.0}, false, true, 0},
        {"dope", false, {0}, false, false, 0},
        {"lampe", true, {1.0, 1.0}, false, false, 3},
        {"dca", true, {1.0, 1.0}, false, false, 3},
        {"streaming-llm", true, {1.0, 1.0}, false, false, 2},
        {"rope", true, {1.0, 1.0}, false, false, 1},
    };
    struct dpe_config config = config_of(64, 64);
    struct dpe_detect_params params = params_of(256, 64, 8, GROUPS, "16,64,256");
    struct dpe_plan_context context = context_of(&config, 64, 256);
    struct dpe_detect_grid grid;
    struct dpe_error err = {0};
    grid_of(&params, &config, &grid);
    struct dpe_detect_grid factors = grid;
    factors.params.frequencies = true;
    factors.params.window = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_plan plan = {0};
        DPE_SCOPED(dpe_detect_entry_free) struct dpe_detect_entry entry = {0};
        const struct dpe_table_values *values = &entry.values;
        bool holds = !cases[i].holds;
        assert_int_equal(dpe_plan_make(cases[i].spec, &context, &plan, &err), DPE_OK);
        assert_int_equal(dpe_detect_holds(&grid, &context, &plan, &entry, &holds, &err), DPE_OK);
        if (holds != cases[i].holds) {
            fail_msg("%s: %d", cases[i].spec, holds);
        }
        for (int g = 0; g < GROUPS && holds; g++) {
            assert_true(values->scale_factor[g] == cases[i].scale[g]);
        }
        if (holds) {
            assert_int_equal(values->unrounded, cases[i].unrounded);
            assert_int_equal(values->applied_inv_freq != NULL, cases[i].frequencies);
            assert_int_equal(values->n_bands, cases[i].bands);
        }
        /* Where frequencies are moved, those that runtimes apply as they are. */
        DPE_SCOPED(dpe_detect_entry_free) struct dpe_detect_entry plain = {0};
        assert_int_equal(dpe_detect_holds(&factors, &context, &plan, &plain, &holds, &err), DPE_OK);
        assert_int_equal(holds, cases[i].frequencies && strstr(cases[i].spec, "log-n") == NULL &&
                                    strcmp(cases[i].spec, "cope") != 0);
        assert_true(!holds ||
                    (plain.values.frequencies == 0 && dpe_table_needs_adapter(&plain.values) == 0));
        dpe_plan_free(&plan);
    }
    dpe_detect_grid_free(&grid);
}

/* A fifth and a sixth plan, made from these specs. */
static void add_methods(struct world *world, const char *const specs[2], const double recall[2],
                        struct dpe_detect_config plans[PLANS + 2])
{
    struct dpe_detect_report *report = &world->report;
    struct dpe_error err = {0};
    for (int i = 0; i < 2; i++) {
        int v = report->n_validated++;
        name_plan(world, v, specs[i]);
        assert_int_equal(dpe_plan_make(specs[i], &world->context, &plans[v].plan, &err), DPE_OK);
        add_rows(world, v, recall[i]);
    }
    report->plans = plans;
    assert_int_equal(dpe_detect_report_validation(report, world->run, &err), DPE_OK);
}

/* Of the methods that need no adapter the one that finds most is told beside the table, with the
 * difference. */
static void the_plan_without_an_adapter(void **state)
{
    static const double recall[PLANS] = {0.1, 0.2, 0.9, 0.9};
    static const double low[PLANS] = {0.1, 0.2, 0.3, 0.3};
    static const double others[2] = {0.5, 0.6};
    const char *const specs[2] = {"mrrope:logit-scale=1.2", "leaky-rerope:official=0"};
    const char *const neither[2] = {"leaky-rerope:official=0", "yarn:log-n=64"};
    struct world world;
    struct dpe_detect_config plans[PLANS + 2] = {{{0}, {{0}}}};
    struct dpe_text text = {0};
    open_world(&world, *state, DPE_DETECT_JOINTLY, recall);
    add_methods(&world, specs, others, plans);
    assert_int_equal(world.report.plain, PLANS);
    assert_int_equal(world.report.kept.plan, DPE_DETECT_JOINT);
    dpe_detect_plain_text(&world.report, &text);
    assert_non_null(
        strstr(text.bytes, "Without an adapter take mrrope:logit-scale=1.2: recall 0.500"));
    assert_non_null(
        strstr(text.bytes, "the adapter is worth +0.438")); /* 15 of 16 samples in place of 8 */
    /* Texts that only the table's plan has read say nothing of the other. */
    struct dpe_detect_validation *texts = &world.report.texts.validation;
    for (int read = 0; read < 2; read++) {
        struct dpe_text with = {0};
        world.report.texts.validated = true;
        texts->kept = DPE_DETECT_JOINT;
        texts->value[DPE_DETECT_JOINT].mean = 2.0;
        texts->value[PLANS].mean = read ? 4.0 : (double)NAN;
        texts->kept_minus[PLANS].minus.mean = read ? -log(2.0) : (double)NAN;
        dpe_detect_plain_text(&world.report, &with);
        assert_int_equal(strstr(with.bytes, "perplexity 2 in place of 4 (-50.0 %") != NULL, read);
        assert_null(strstr(with.bytes, "nan"));
        dpe_text_free(&with);
    }
    world.report.texts = (struct dpe_detect_result){0};
    close_world(&world);
    for (int i = 0; i < 2; i++) {
        dpe_plan_free(&plans[PLANS + i].plan);
    }
    dpe_text_free(&text);
    /* Log-n is none of a runtime's, so the model as it is is left. */
    text = (struct dpe_text){0};
    open_world(&world, *state, DPE_DETECT_JOINTLY, low);
    add_methods(&world, neither, others, plans);
    assert_int_equal(world.report.plain, DPE_DETECT_ROPE);
    dpe_detect_plain_text(&world.report, &text);
    assert_non_null(strstr(text.bytes, "nothing that was compared is better than the model"));
    close_world(&world);
    for (int i = 0; i < 2; i++) {
        dpe_plan_free(&plans[PLANS + i].plan);
    }
    dpe_text_free(&text);
    /* Also of methods that are ready; a table that needs no adapter is that plan itself. */
    for (int needs = 0; needs < 2; needs++) {
        static const double finds[2][2] = {{0.6, 0.5}, {0.5, 0.6}};
        text = (struct dpe_text){0};
        open_world(&world, *state, DPE_DETECT_READY, low);
        add_methods(&world, specs, finds[needs], plans);
        assert_int_equal(world.report.plain, DPE_DETECT_N_VALIDATED);
        assert_int_equal(world.report.kept.plan, DPE_DETECT_N_VALIDATED + needs);
        dpe_detect_words(&world.report, &text);
        assert_int_equal(strstr(text.bytes, "Without an adapter take mrrope") != NULL, needs);
        assert_int_equal(strstr(text.bytes, "It needs no adapter") != NULL, !needs);
        close_world(&world);
        for (int i = 0; i < 2; i++) {
            dpe_plan_free(&plans[DPE_DETECT_N_VALIDATED + i].plan);
        }
        dpe_text_free(&text);
    }
}

/* With every rule: what the table holds leads, and comparisons follow, indented, a line each.
 * Lengths that may be first by chance are named where no search has chosen. */
static void the_words_begin_with_what_the_table_holds(void **state)
{
    static const double worse[PLANS] = {0.0, 0.9, 0.3, 0.3};
    static const enum dpe_detect_rule rules[] = {DPE_DETECT_GUARDED, DPE_DETECT_JOINTLY};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        struct world world;
        struct dpe_text words = {0};
        struct dpe_text noise = {0};
        open_world(&world, *state, rules[i], worse);
        dpe_detect_words(&world.report, &words);
        assert_int_equal(strncmp(words.bytes, "The table holds the base (", 26), 0);
        assert_non_null(strstr(words.bytes, "\n  better than the joint plan: +0.6"));
        uint8_t informative[GROUPS] = {0};
        int64_t effective[GROUPS];
        for (int g = 0; g < GROUPS; g++) {
            effective[g] = 64;
        }
        struct dpe_detect_ranking *ranking = &world.report.results[0].ranking;
        const struct dpe_detect_ranking kept = *ranking;
        ranking->n_groups = GROUPS;
        ranking->informative = informative;
        ranking->effective = effective;
        dpe_detect_noise_words(&world.report, &noise);
        assert_true(rules[i] == DPE_DETECT_JOINTLY ? noise.n == 0
                                                   : strncmp(noise.bytes, "groups 0, 1", 11) == 0);
        *ranking = kept;
        close_world(&world);
        dpe_text_free(&words);
        dpe_text_free(&noise);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(the_words_begin_with_what_the_table_holds),
        WITH_SCRATCH(a_worse_plan_is_not_kept),
        WITH_SCRATCH(indistinct_plans_have_a_number_of_samples),
        WITH_SCRATCH(what_groups_add),
        WITH_SCRATCH(the_plan_without_an_adapter),
        cmocka_unit_test(which_methods_a_table_can_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

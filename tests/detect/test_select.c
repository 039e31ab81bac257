/* Choosing the joint plan's lengths on hand-made rows: flat groups, ties, rows without a value,
 * interactions that only the sequential rule can see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/search/select.h"
#include "outputs/h5/rows.h"

enum { GROUPS = 3, LENGTHS = 4, SAMPLES = 24, BASE = 1, CELLS = GROUPS * LENGTHS };

static const struct dpe_detect_params params = {.length = 512,
                                                .trained_length = 256,
                                                .window = 32,
                                                .n_groups = GROUPS,
                                                .n_lengths = LENGTHS,
                                                .lengths = {64, 128, 256, 512}};

static struct dpe_detect_scores scores_of(int n_cells)
{
    struct dpe_detect_scores scores;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_scores_init(&scores, n_cells, SAMPLES, &err), DPE_OK);
    return scores;
}

/* Sample s of a cell has 1 where s < right, else 0. */
static void set_cell(struct dpe_detect_scores *scores, int cell, int right)
{
    for (int s = 0; s < SAMPLES; s++) {
        scores->status[cell * SAMPLES + s] = DPE_ROW_OK;
        scores->recall[cell * SAMPLES + s] = s < right ? 1.0 : 0.0;
    }
}

static struct dpe_detect_choice choose(const struct dpe_detect_scores *scores, int from,
                                       double level)
{
    struct dpe_detect_choice choice = {0};
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_detect_choose(scores, DPE_DETECT_RECALL, 0, LENGTHS, from, level, &choice, &err),
        DPE_OK);
    return choice;
}

/* --------------------------------------------------------------------------------- one choice */

static void a_choice_needs_more_than_noise(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(LENGTHS);
    const int right[LENGTHS] = {8, 10, 11, 13};
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, right[t]);
    }
    /* Three samples in favour, none against: p = 1/4, times three lengths. */
    struct dpe_detect_choice choice = choose(&scores, BASE, 0.05);
    assert_int_equal(choice.to, BASE);
    assert_true(fabs(choice.gain[3] - 3.0 / SAMPLES) < 1e-12);
    assert_true(fabs(choice.p[3] - 0.75) < 1e-12);
    assert_true(choice.gain[BASE] == 0.0 && choice.p[BASE] == 1.0);
    /* Without a test the best mean wins. */
    assert_int_equal(choose(&scores, BASE, 1.0).to, 3);
    /* Eight in favour: p = 2/256, times three. */
    set_cell(&scores, 3, 18);
    choice = choose(&scores, BASE, 0.05);
    assert_int_equal(choice.to, 3);
    assert_true(fabs(choice.p[3] - 3.0 * 2.0 / 256.0) < 1e-12);
    /* Significantly worse is not a reason to move. */
    set_cell(&scores, 3, 0);
    assert_int_equal(choose(&scores, BASE, 0.05).to, BASE);
    dpe_detect_scores_free(&scores);
}

static void ties_go_to_the_longer_and_no_gain_stays(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(LENGTHS);
    const int right[LENGTHS] = {20, 4, 20, 4};
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, right[t]);
    }
    assert_int_equal(choose(&scores, BASE, 0.05).to, 2);
    /* The same sum in other summands still ties. */
    for (int s = 0; s < 9; s++) {
        const double parts[3] = {1.0 / 3.0, 2.0 / 3.0, 0.0};
        scores.recall[0 * SAMPLES + s] = parts[s % 3];
        scores.recall[2 * SAMPLES + s] = parts[(s / 3 + s) % 3];
    }
    assert_int_equal(choose(&scores, BASE, 1.0).to, 2);
    /* Everything equal: the group stays where it is, at whatever length that is. */
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, 7);
    }
    for (int from = 0; from < LENGTHS; from++) {
        assert_int_equal(choose(&scores, from, 1.0).to, from);
        assert_int_equal(choose(&scores, from, 0.05).to, from);
    }
    dpe_detect_scores_free(&scores);
}

static void rows_without_a_value_are_left_out(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(LENGTHS);
    set_cell(&scores, BASE, 4);
    set_cell(&scores, 2, 16);
    set_cell(&scores, 3, SAMPLES); /* perfect, but on few samples */
    for (int s = 0; s < SAMPLES; s++) {
        if (s >= 11) {
            scores.recall[3 * SAMPLES + s] = NAN;
        }
    }
    /* Cell 0 was not run at all. */
    struct dpe_detect_choice choice = choose(&scores, BASE, 0.05);
    assert_int_equal(choice.to, 2);
    assert_true(isnan(choice.gain[0]));
    assert_true(choice.p[0] == 1.0);
    /* Pairs count only where both samples exist. */
    for (int s = 4; s < 12; s++) {
        scores.recall[BASE * SAMPLES + s] = NAN;
    }
    choice = choose(&scores, BASE, 0.05);
    assert_true(fabs(choice.gain[2] - 4.0 / (SAMPLES - 8)) < 1e-12);
    /* A group without any row of its own stays. */
    for (int s = 0; s < SAMPLES; s++) {
        scores.recall[BASE * SAMPLES + s] = NAN;
    }
    assert_int_equal(choose(&scores, BASE, 1.0).to, BASE);
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_detect_choose(&scores, DPE_DETECT_RECALL, 1, LENGTHS, 0, 1.0, &choice, &err),
        DPE_INTERNAL);
    dpe_detect_scores_free(&scores);
}

static void perplexity_wants_fewer_nats(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(LENGTHS);
    for (int t = 0; t < LENGTHS; t++) {
        for (int s = 0; s < SAMPLES; s++) {
            size_t at = (size_t)(t * SAMPLES + s);
            scores.status[at] = DPE_ROW_OK;
            scores.n_tokens[at] = 100;
            /* 256 is 0.1 nats per token better on every book, 512 as much worse. */
            scores.nll_sum[at] = 200.0 + s + (t == 2 ? -10.0 : t == 3 ? 10.0 : 0.0);
        }
    }
    struct dpe_detect_choice choice = {0};
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_detect_choose(&scores, DPE_DETECT_PERPLEXITY, 0, LENGTHS, BASE, 0.05, &choice, &err),
        DPE_OK);
    assert_int_equal(choice.to, 2);
    assert_true(fabs(choice.gain[2] - 0.1) < 1e-12 && fabs(choice.gain[3] + 0.1) < 1e-12);
    dpe_detect_scores_free(&scores);
}

/* ------------------------------------------------------------------------------ paper, guarded */

static struct dpe_detect_ranking rank(const struct dpe_detect_scores *scores)
{
    struct dpe_detect_ranking ranking;
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_detect_rank(scores, GROUPS, params.lengths, LENGTHS, DPE_DETECT_RECALL, &ranking, &err),
        DPE_OK);
    return ranking;
}

static void flat_groups_stay_only_under_the_guarded_rule(void **state)
{
    (void)state;
    /* Steep, flat but for one sample, without any row. */
    const int right[2][LENGTHS] = {{2, 6, 20, 3}, {9, 9, 9, 10}};
    struct dpe_detect_scores scores = scores_of(CELLS);
    for (int c = 0; c < 2 * LENGTHS; c++) {
        set_cell(&scores, c, right[c / LENGTHS][c % LENGTHS]);
    }
    struct dpe_detect_ranking ranking = rank(&scores);
    struct dpe_detect_selection selection;
    struct dpe_error err = {0};
    double scale[GROUPS];
    assert_int_equal(dpe_detect_select_paper(&params, &ranking, &selection, &err), DPE_OK);
    assert_int_equal(selection.at[0], 2);
    assert_int_equal(selection.at[1], 3);
    assert_int_equal(selection.at[2], -1);
    dpe_detect_selected_scales(&params, &selection, scale);
    assert_true(scale[0] == 2.0 && scale[1] == 1.0 && scale[2] == 4.0);
    dpe_detect_selection_free(&selection);

    assert_int_equal(
        dpe_detect_select_guarded(&params, &scores, DPE_DETECT_RECALL, &selection, &err), DPE_OK);
    assert_int_equal(selection.n_choices, GROUPS);
    assert_int_equal(selection.at[0], 2);
    assert_int_equal(selection.at[1], BASE);
    assert_int_equal(selection.at[2], BASE);
    dpe_detect_selected_scales(&params, &selection, scale);
    assert_true(scale[0] == 2.0 && scale[1] == 4.0 && scale[2] == 4.0);
    dpe_detect_selection_free(&selection);

    /* L0/2 need not divide L: a group that stays keeps the very scale it had. */
    struct dpe_detect_params odd = params;
    odd.trained_length = 200;
    odd.lengths[1] = 100;
    assert_int_equal(dpe_detect_select_guarded(&odd, &scores, DPE_DETECT_RECALL, &selection, &err),
                     DPE_OK);
    dpe_detect_selected_scales(&odd, &selection, scale);
    assert_true(scale[1] == 2.0 * 512.0 / 200.0);
    dpe_detect_selection_free(&selection);
    /* Nothing to compare with. */
    odd.trained_length = 204;
    assert_int_equal(dpe_detect_select_guarded(&odd, &scores, DPE_DETECT_RECALL, &selection, &err),
                     DPE_USAGE);
    assert_non_null(strstr(err.text, "(102)"));
    dpe_detect_ranking_free(&ranking);
    dpe_detect_scores_free(&scores);
}

/* --------------------------------------------------------------------------------- sequential */

/* A model by table: how many samples are right under the lengths of all groups. */
struct world {
    int (*right)(const int *at);
    int steps, most_steps; /* requested; there are no more */
};

static dpe_status world_scores(void *user, const int *at, int group,
                               struct dpe_detect_scores *scores, char (*keys)[33], bool *complete,
                               struct dpe_error *err)
{
    (void)err;
    struct world *world = user;
    *complete = world->steps < world->most_steps;
    if (!*complete) {
        return DPE_OK;
    }
    world->steps++;
    *scores = scores_of(LENGTHS);
    int moved[GROUPS];
    memcpy(moved, at, sizeof moved);
    for (int t = 0; t < LENGTHS; t++) {
        moved[group] = t;
        set_cell(scores, t, world->right(moved));
        keys[t][0] = (char)('a' + t);
    }
    return DPE_OK;
}

/* What a sweep sees: one group moves at a time. */
static struct dpe_detect_ranking sweep(struct world *world, struct dpe_detect_scores *scores)
{
    *scores = scores_of(CELLS);
    for (int c = 0; c < CELLS; c++) {
        int at[GROUPS] = {BASE, BASE, BASE};
        at[c / LENGTHS] = c % LENGTHS;
        set_cell(scores, c, world->right(at));
    }
    return rank(scores);
}

/* Group 0 and 1 each gain alone at 256, and together lose everything; group 2 does not matter. */
static int exclusive(const int *at)
{
    return at[0] == 2 && at[1] == 2 ? 0 : 8 + (at[0] == 2 ? 12 : 0) + (at[1] == 2 ? 10 : 0);
}

/* Nothing helps alone; group 1 at 512 helps once group 0 sits at 256, and group 2 after both. */
static int ladder(const int *at)
{
    return 5 + (at[0] == 2) + (at[0] == 2 && at[1] == 3 ? 8 : 0) +
           (at[0] == 2 && at[1] == 3 && at[2] == 0 ? 6 : 0);
}

/* The order is by steepness (group 2 first), and group 0's best depends on what group 1 does later.
 */
static int second_round(const int *at)
{
    return 4 + (at[2] == 3 ? 12 : 0) + (at[0] == 0 ? 2 : 0) + (at[1] == 2 ? 1 : 0) +
           (at[0] == 3 && at[1] == 2 ? 5 : 0);
}

static struct dpe_detect_selection select_in(struct world *world, int rounds)
{
    struct dpe_detect_scores scores;
    struct dpe_detect_ranking ranking = sweep(world, &scores);
    struct dpe_detect_selection selection;
    struct dpe_error err = {0};
    const struct dpe_detect_steps steps = {world, world_scores};
    assert_int_equal(
        dpe_detect_select_sequential(&params, &ranking, rounds, &steps, &selection, &err), DPE_OK);
    dpe_detect_ranking_free(&ranking);
    dpe_detect_scores_free(&scores);
    return selection;
}

static void only_the_sequential_rule_sees_interactions(void **state)
{
    (void)state;
    struct world world = {exclusive, 0, 100};
    struct dpe_detect_scores scores;
    struct dpe_detect_ranking ranking = sweep(&world, &scores);
    struct dpe_detect_selection selection;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_select_paper(&params, &ranking, &selection, &err), DPE_OK);
    assert_int_equal(world.right(selection.at), 0);
    dpe_detect_selection_free(&selection);
    assert_int_equal(
        dpe_detect_select_guarded(&params, &scores, DPE_DETECT_RECALL, &selection, &err), DPE_OK);
    assert_int_equal(world.right(selection.at), 0);
    dpe_detect_selection_free(&selection);
    dpe_detect_ranking_free(&ranking);
    dpe_detect_scores_free(&scores);

    selection = select_in(&world, 1);
    assert_int_equal(selection.order[0], 0); /* the steepest */
    assert_int_equal(selection.order[1], 1);
    assert_int_equal(selection.at[0], 2);
    assert_int_equal(selection.at[1], BASE);
    assert_int_equal(selection.at[2], BASE);
    assert_int_equal(world.right(selection.at), 20);
    assert_true(selection.complete);
    assert_int_equal(selection.n_choices, GROUPS);
    assert_string_equal(selection.choices[1].keys[3], "d");
    dpe_detect_selection_free(&selection);

    world = (struct world){ladder, 0, 100};
    selection = select_in(&world, 1);
    assert_int_equal(world.right(selection.at), 20);
    dpe_detect_selection_free(&selection);
}

static void rounds_go_on_until_nothing_changes(void **state)
{
    (void)state;
    struct world world = {second_round, 0, 100};
    struct dpe_detect_selection selection = select_in(&world, 1);
    assert_int_equal(selection.order[0], 2);
    assert_int_equal(selection.order[1], 0);
    assert_int_equal(selection.at[0], 0);
    assert_int_equal(selection.at[1], 2);
    assert_int_equal(world.right(selection.at), 19);
    dpe_detect_selection_free(&selection);
    world.steps = 0;
    selection = select_in(&world, 5);
    assert_int_equal(selection.at[0], 3);
    assert_int_equal(world.right(selection.at), 22);
    /* Round 0 and 1 change something, round 2 nothing, and that is the end. */
    assert_int_equal(selection.n_choices, 3 * GROUPS);
    assert_int_equal(selection.choices[4].round, 1);
    assert_int_equal(selection.choices[4].from, 0);
    assert_int_equal(selection.choices[4].to, 3);
    dpe_detect_selection_free(&selection);
}

static void missing_rows_end_the_sequence_where_it_is(void **state)
{
    (void)state;
    for (int most = 0; most < GROUPS; most++) {
        struct world world = {ladder, 0, most};
        struct dpe_detect_selection selection = select_in(&world, 2);
        assert_false(selection.complete);
        assert_int_equal(selection.n_choices, most);
        assert_int_equal(selection.at[0], most > 0 ? 2 : BASE);
        assert_int_equal(selection.at[1], most > 1 ? 3 : BASE);
        assert_int_equal(selection.at[2], BASE);
        dpe_detect_selection_free(&selection);
    }
    struct world world = {ladder, 0, 100};
    struct dpe_detect_scores scores;
    struct dpe_detect_ranking ranking = sweep(&world, &scores);
    const struct dpe_detect_steps steps = {&world, world_scores};
    struct dpe_detect_selection selection;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_select_sequential(&params, &ranking, 0, &steps, &selection, &err),
                     DPE_USAGE);
    dpe_detect_ranking_free(&ranking);
    dpe_detect_scores_free(&scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_needs_more_than_noise),
        cmocka_unit_test(ties_go_to_the_longer_and_no_gain_stays),
        cmocka_unit_test(rows_without_a_value_are_left_out),
        cmocka_unit_test(perplexity_wants_fewer_nats),
        cmocka_unit_test(flat_groups_stay_only_under_the_guarded_rule),
        cmocka_unit_test(only_the_sequential_rule_sees_interactions),
        cmocka_unit_test(rounds_go_on_until_nothing_changes),
        cmocka_unit_test(missing_rows_end_the_sequence_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

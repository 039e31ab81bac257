/* Racing on hand-made rows: what is dropped and when, what is kept, ranks after a race. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/sweep/ranking.h"
#include "outputs/h5/rows.h"

enum { LENGTHS = 4, SAMPLES = 40 };

static const int64_t lengths[LENGTHS] = {64, 128, 256, 512};
static const struct dpe_race_options usual = {.per_round = 4, .level = 0.01};

static struct dpe_detect_scores scores_of(int groups)
{
    struct dpe_detect_scores scores;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_scores_init(&scores, groups * LENGTHS, SAMPLES, &err), DPE_OK);
    return scores;
}

/* Samples first … SAMPLES−1 of a cell: 1 where s % 8 < eighths. */
static void set_cell(struct dpe_detect_scores *scores, int cell, int eighths, int64_t n)
{
    for (int64_t s = 0; s < n; s++) {
        scores->status[cell * SAMPLES + s] = DPE_ROW_OK;
        scores->recall[cell * SAMPLES + s] = s % 8 < eighths ? 1.0 : 0.0;
    }
}

static struct dpe_race replay(const struct dpe_detect_scores *scores,
                              const struct dpe_race_options *options, int keep)
{
    struct dpe_race race;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_race_replay(options, scores, scores->n_cells / LENGTHS, LENGTHS,
                                            keep, DPE_DETECT_RECALL, &race, &err),
                     DPE_OK);
    return race;
}

static void the_worse_are_dropped_in_turn(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(1);
    const int eighths[LENGTHS] = {0, 7, 8, 4};
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, eighths[t], SAMPLES);
    }
    struct dpe_race race = replay(&scores, &usual, -1);
    assert_true(race.complete);
    assert_int_equal(race.samples, SAMPLES);
    /* 8 of 8 for the leader: p = 1/256; after 4 samples it was 1/16. */
    assert_int_equal(race.dropped[0], 8);
    /* Half as good: 8 of 16 differ: p = 1/256. */
    assert_int_equal(race.dropped[3], 16);
    /* One in eight: 5 differences in 40 samples, p = 1/32 at the end. */
    assert_int_equal(race.dropped[1], -1);
    assert_int_equal(race.dropped[2], -1);
    assert_int_equal(race.n_drops, 2);
    assert_int_equal(race.drops[0].arm % LENGTHS, 0);
    assert_int_equal(race.drops[0].leader % LENGTHS, 2);
    assert_true(race.drops[0].difference == 1.0);
    assert_true(fabs(race.drops[0].p - 1.0 / 256.0) < 1e-12);
    assert_true(fabs(race.drops[1].difference - 0.5) < 1e-12);
    dpe_race_free(&race);
    /* What others need is kept, however bad. */
    race = replay(&scores, &usual, 0);
    assert_int_equal(race.dropped[0], -1);
    assert_int_equal(race.n_drops, 1);
    dpe_race_free(&race);
    dpe_detect_scores_free(&scores);
}

static void equals_are_dropped_only_when_it_does_not_matter(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(1);
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, 4, SAMPLES);
    }
    struct dpe_race race = replay(&scores, &usual, -1);
    assert_int_equal(race.n_drops, 0);
    dpe_race_free(&race);
    struct dpe_race_options lazy = usual;
    lazy.indifference = 0.05;
    race = replay(&scores, &lazy, -1);
    /* The leader is the longest: a tie goes to it. */
    assert_int_equal(race.n_drops, 3);
    assert_int_equal(race.dropped[3], -1);
    assert_true(fabs(race.drops[0].difference) < 1e-12);
    dpe_race_free(&race);
    lazy.level = 0.0;
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_detect_race_replay(&lazy, &scores, 1, LENGTHS, -1, DPE_DETECT_RECALL, &race, &err),
        DPE_USAGE);
    dpe_detect_scores_free(&scores);
}

static void a_race_goes_as_far_as_its_rows(void **state)
{
    (void)state;
    const int eighths[LENGTHS] = {0, 7, 8, 4};
    for (int64_t n = 0; n <= SAMPLES; n += 4) {
        struct dpe_detect_scores scores = scores_of(2);
        for (int t = 0; t < LENGTHS; t++) {
            /* A dropped length needs no more rows; group 1 is flat and has them all. */
            int64_t needed = t == 0 && n > 8 ? 8 : t == 3 && n > 16 ? 16 : n;
            set_cell(&scores, t, eighths[t], needed);
            set_cell(&scores, LENGTHS + t, 4, SAMPLES);
        }
        struct dpe_race race = replay(&scores, &usual, -1);
        assert_int_equal(race.samples, n);
        assert_int_equal(race.complete, n == SAMPLES);
        assert_int_equal(race.n_drops, (n >= 8) + (n >= 16));
        dpe_race_free(&race);
        dpe_detect_scores_free(&scores);
    }
    /* A row that could not be run counts as there, and not as a zero. */
    struct dpe_detect_scores scores = scores_of(1);
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, 8, SAMPLES);
    }
    for (int s = 0; s < SAMPLES; s++) {
        scores.status[s] = DPE_ROW_NONFINITE;
        scores.recall[s] = NAN;
    }
    struct dpe_race race = replay(&scores, &usual, -1);
    assert_true(race.complete);
    assert_int_equal(race.n_drops, 0);
    dpe_race_free(&race);
    dpe_detect_scores_free(&scores);
}

/* Four samples of a context are one in every test. */
static void contexts_are_what_is_counted(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(1);
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, t == 2 ? 8 : 0, SAMPLES);
    }
    struct dpe_race race = replay(&scores, &usual, -1);
    assert_int_equal(race.dropped[0], 8);
    dpe_race_free(&race);
    scores.together = 4;
    race = replay(&scores, &usual, -1);
    /* 7 contexts of 7: p = 1/128. */
    assert_int_equal(race.dropped[0], 28);
    assert_true(fabs(race.drops[0].p - 1.0 / 128.0) < 1e-12);
    dpe_race_free(&race);
    dpe_detect_scores_free(&scores);
}

/* A race with a limit on its rows ends before a round that would pass it, whatever rows are there,
 * and when nothing is left to decide. */
static void a_limit_of_rows_ends_a_race(void **state)
{
    (void)state;
    static const int eighths[2][LENGTHS] = {{0, 7, 8, 4}, {0, 0, 8, 0}};
    static const struct {
        int64_t most, samples;
        int n_drops;
    } cases[2][4] = {
        /* 4 arms on 8 samples, 3 up to 16, then 2 */
        {{15, 0, 0}, {43, 8, 1}, {56, 16, 2}, {1000, SAMPLES, 2}},
        {{15, 0, 0}, {31, 4, 0}, {32, 8, 3}, {1000, 8, 3}},
    };
    for (int i = 0; i < 8; i++) {
        struct dpe_detect_scores scores = scores_of(1);
        struct dpe_race_options limited = usual;
        for (int t = 0; t < LENGTHS; t++) {
            set_cell(&scores, t, eighths[i / 4][t], SAMPLES);
        }
        limited.most_rows = cases[i / 4][i % 4].most;
        struct dpe_race race = replay(&scores, &limited, -1);
        assert_true(race.complete);
        assert_int_equal(race.samples, cases[i / 4][i % 4].samples);
        assert_int_equal(race.n_drops, cases[i / 4][i % 4].n_drops);
        dpe_race_free(&race);
        dpe_detect_scores_free(&scores);
    }
}

static void dropped_lengths_rank_after_those_that_were_left(void **state)
{
    (void)state;
    struct dpe_detect_scores scores = scores_of(2);
    const int eighths[LENGTHS] = {0, 7, 8, 4};
    const int64_t rows[LENGTHS] = {8, SAMPLES, SAMPLES, 16};
    for (int t = 0; t < LENGTHS; t++) {
        set_cell(&scores, t, eighths[t], rows[t]);
        set_cell(&scores, LENGTHS + t, 4, SAMPLES);
    }
    struct dpe_race race = replay(&scores, &usual, -1);
    struct dpe_detect_ranking ranking;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_rank_race(&scores, &race, 2, lengths, LENGTHS, DPE_DETECT_RECALL,
                                          &ranking, &err),
                     DPE_OK);
    const int32_t want[2 * LENGTHS] = {4, 2, 1, 3, 4, 3, 2, 1};
    assert_memory_equal(ranking.rank, want, sizeof want);
    assert_int_equal(ranking.effective[0], 256);
    assert_int_equal(ranking.effective[1], 512);
    /* 128 and 256 alone do not differ beyond noise; all four on their first eight samples do. */
    assert_int_equal(ranking.informative[0], 1);
    assert_int_equal(ranking.informative[1], 0);
    assert_int_equal(ranking.n_valid[0], 8);
    assert_true(ranking.mean[0] == 0.0 && fabs(ranking.mean[3] - 0.5) < 1e-12);
    /* The one that is left is compared on all of its samples, not on those of a dropped one. */
    assert_int_equal(ranking.n_valid[1], SAMPLES);
    dpe_detect_ranking_free(&ranking);
    dpe_race_free(&race);
    dpe_detect_scores_free(&scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worse_are_dropped_in_turn),
        cmocka_unit_test(equals_are_dropped_only_when_it_does_not_matter),
        cmocka_unit_test(a_race_goes_as_far_as_its_rows),
        cmocka_unit_test(a_limit_of_rows_ends_a_race),
        cmocka_unit_test(contexts_are_what_is_counted),
        cmocka_unit_test(dropped_lengths_rank_after_those_that_were_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

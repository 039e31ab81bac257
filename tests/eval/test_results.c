/* Rows of a made-up suite as arrays: categories, gaps, non-finite samples, unequal tasks, and what
 * of it is in the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "eval/compare/compare.h"
#include "outputs/h5/h5.h"
#include "tests/outputs/outputs_fixture.h"
#include "tests/outputs/schema_check.h"

enum { METHODS = 2, TASKS = 6, SAMPLES = 3 };
static const char *const methods[METHODS] = {"one", "two"};
static const char *const plans[METHODS] = {"00000000000000000000000000000001",
                                           "00000000000000000000000000000002"};

/* Three tasks in two categories at two lengths; the last task of each length has fewer samples. */
static struct dpe_suite make_suite(struct dpe_suite_task *tasks)
{
    static const char *const labels[] = {"single", "multi", "words"};
    static const char *const categories[] = {"NIAH", "NIAH", "Aggregation"};
    for (int t = 0; t < TASKS; t++) {
        tasks[t] = (struct dpe_suite_task){.length = t < 3 ? 128 : 256,
                                           .n_samples = t % 3 == 2 ? SAMPLES - 1 : SAMPLES};
        snprintf(tasks[t].label, sizeof tasks[t].label, "%s", labels[t % 3]);
        snprintf(tasks[t].category, sizeof tasks[t].category, "%s", categories[t % 3]);
        snprintf(tasks[t].task.name, sizeof tasks[t].task.name, "%s-%d", labels[t % 3],
                 t < 3 ? 128 : 256);
    }
    return (struct dpe_suite){.name = "madeup",
                              .kind = dpe_suite_find("ruler"),
                              .unit = "score (1 = all right)",
                              .score = "share",
                              .tasks = tasks,
                              .n_tasks = TASKS};
}

static double score_of(int m, int t, int64_t s)
{
    return (double)((3 * m + 2 * t + s) % 5) / 4.0;
}

/* Method 1 has no row of task 4, and its sample 0 of task 0 was not finite. */
static void add_rows(struct dpe_run *run, const struct dpe_suite *suite)
{
    for (int m = 0; m < METHODS; m++) {
        for (int t = 0; t < TASKS; t++) {
            for (int64_t s = 0; s < suite->tasks[t].n_samples; s++) {
                struct dpe_row row;
                dpe_row_init(&row);
                snprintf(row.plan, sizeof row.plan, "%s", plans[m]);
                snprintf(row.task, sizeof row.task, "%s", suite->tasks[t].task.name);
                row.sample = s;
                row.score = score_of(m, t, s);
                if (m == 1 && t == 0 && s == 0) {
                    row.status = DPE_ROW_NONFINITE;
                    row.score = NAN;
                    row.layer = 1;
                    row.position = 7;
                }
                if (m == 0 || t != 4) {
                    assert_int_equal(dpe_run_add(run, &row, NULL), DPE_OK);
                }
                dpe_row_free(&row);
            }
        }
    }
}

static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_column axis = {.path = "/method",
                                    .type = DPE_COL_STRING,
                                    .rank = 1,
                                    .dims = {METHODS},
                                    .data = methods,
                                    .long_name = "method",
                                    .units = "1",
                                    .is_scale = true};
    dpe_h5_put(table, &axis);
    return dpe_results_put(user, table, err);
}

struct world {
    struct scratch *scratch;
    struct dpe_suite_task tasks[TASKS];
    struct dpe_suite suite;
    const char *keys[METHODS * TASKS];
    struct dpe_run *run;
    struct dpe_results results;
};

static void open_world(struct world *world)
{
    struct dpe_identity identity = {0};
    struct dpe_error err = {0};
    *world = (struct world){.scratch = scratch_make()};
    world->suite = make_suite(world->tasks);
    for (int i = 0; i < METHODS * TASKS; i++) {
        world->keys[i] = plans[i / TASKS];
    }
    assert_int_equal(dpe_identity_add(&identity, "kind", "test", &err), DPE_OK);
    if (dpe_run_open(world->scratch->table, &identity, NULL, &world->run, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    dpe_identity_free(&identity);
}

static void collect_against(struct world *world, int against)
{
    struct dpe_error err = {0};
    world->results = (struct dpe_results){.suite = &world->suite,
                                          .r = {.method = methods, .plan = world->keys},
                                          .n_methods = METHODS,
                                          .against = against};
    if (dpe_results_collect(&world->results, 5, world->run, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
}

static void collect(struct world *world)
{
    collect_against(world, 0);
}

static void close_world(struct world *world)
{
    dpe_results_free(&world->results);
    assert_int_equal(dpe_run_close(world->run, NULL), DPE_OK);
    assert_int_equal(shell("rm -r %s", world->scratch->folder), 0);
    free(world->scratch);
}

static double mean_of(int m, int t, int64_t from, int64_t n)
{
    double sum = 0.0;
    for (int64_t s = from; s < n; s++) {
        sum += score_of(m, t, s);
    }
    return sum / (double)(n - from);
}

static void arrays_hold_the_rows(void **state)
{
    (void)state;
    struct world world;
    open_world(&world);
    add_rows(world.run, &world.suite);
    collect(&world);
    const struct dpe_results *results = &world.results;
    assert_int_equal(results->n_samples, SAMPLES);
    for (int m = 0; m < METHODS; m++) {
        for (int t = 0; t < TASKS; t++) {
            for (int64_t s = 0; s < SAMPLES; s++) {
                size_t at = (size_t)((m * TASKS + t) * SAMPLES) + (size_t)s;
                bool missing = s >= world.tasks[t].n_samples || (m == 1 && t == 4);
                bool nonfinite = m == 1 && t == 0 && s == 0;
                assert_int_equal(results->r.status[at], missing ? -1 : nonfinite ? 1 : 0);
                assert_true(missing || nonfinite ? isnan(results->r.score[at])
                                                 : results->r.score[at] == score_of(m, t, s));
            }
        }
    }
    /* Means and pairs leave out what is not there. */
    assert_true(fabs(results->r.mean[TASKS].mean - mean_of(1, 0, 1, SAMPLES)) < 1e-12);
    assert_int_equal(results->r.mean[TASKS].n, 2);
    double difference = mean_of(1, 0, 1, SAMPLES) - mean_of(0, 0, 1, SAMPLES);
    assert_true(fabs(results->r.difference[TASKS].minus.mean - difference) < 1e-12);
    assert_int_equal(results->r.difference[TASKS].minus.n, 2);
    assert_true(isnan(results->r.mean[TASKS + 4].mean));
    assert_int_equal(results->r.mean[TASKS + 4].n, 0);
    assert_true(results->r.difference[0].p == 1.0);
    close_world(&world);
}

static void differences_are_to_the_method_that_is_asked_for(void **state)
{
    (void)state;
    struct world world;
    open_world(&world);
    add_rows(world.run, &world.suite);
    collect_against(&world, 1);
    const struct dpe_results *results = &world.results;
    double difference = mean_of(0, 0, 1, SAMPLES) - mean_of(1, 0, 1, SAMPLES);
    assert_int_equal(results->against, 1);
    assert_true(difference != 0.0);
    assert_true(fabs(results->r.difference[0].minus.mean - difference) < 1e-12);
    assert_true(results->r.difference[TASKS].minus.mean == 0.0 &&
                results->r.difference[TASKS].p == 1.0);
    close_world(&world);
}

/* Of a category of three at the first or the second length. */
static double category_of(const struct world *world, int method, int category, int length)
{
    return world->results.r.category_mean[(method * 3 + category) * 2 + length];
}

static void categories_are_means_of_tasks(void **state)
{
    (void)state;
    struct world world;
    open_world(&world);
    add_rows(world.run, &world.suite);
    collect(&world);
    const struct dpe_suite_result *r = &world.results.r;
    assert_int_equal(r->n[DPE_SUITE_CATEGORY], 3);
    assert_string_equal(r->category[0], "NIAH");
    assert_string_equal(r->category[1], "Aggregation");
    assert_string_equal(r->category[2], "overall");
    assert_int_equal(r->n[DPE_SUITE_CATEGORY_LENGTH], 2);
    assert_true(r->category_length[0] == 128 && r->category_length[1] == 256);
    double single = mean_of(0, 3, 0, SAMPLES);
    double multi = mean_of(0, 4, 0, SAMPLES);
    double words = mean_of(0, 5, 0, SAMPLES - 1);
    double niah = category_of(&world, 0, 0, 1);
    double overall = category_of(&world, 0, 2, 1);
    assert_true(fabs(niah - (single + multi) / 2.0) < 1e-12);
    assert_true(fabs(overall - (single + multi + words) / 3.0) < 1e-12);
    /* A task that is missing is not a task that is left out. */
    assert_true(isnan(category_of(&world, 1, 0, 1)));
    assert_true(isnan(category_of(&world, 1, 2, 1)));
    assert_true(!isnan(category_of(&world, 1, 1, 1)));
    /* Nor has a category a mean at a length where none of its tasks is. */
    snprintf(world.suite.tasks[2].category, sizeof world.suite.tasks[2].category, "NIAH");
    dpe_results_free(&world.results);
    collect(&world);
    assert_int_equal(r->n[DPE_SUITE_CATEGORY], 3);
    assert_true(isnan(category_of(&world, 0, 1, 0)));
    assert_true(!isnan(category_of(&world, 0, 1, 1)));
    /* Without categories there is the mean of all, of one task at several lengths nothing. */
    for (size_t t = 0; t < TASKS; t++) {
        world.suite.tasks[t].category[0] = '\0';
    }
    dpe_results_free(&world.results);
    collect(&world);
    assert_int_equal(r->n[DPE_SUITE_CATEGORY], 1);
    assert_string_equal(r->category[0], "overall");
    for (size_t t = 0; t < TASKS; t++) {
        snprintf(world.suite.tasks[t].label, sizeof world.suite.tasks[t].label, "same");
    }
    dpe_results_free(&world.results);
    collect(&world);
    assert_int_equal(r->n[DPE_SUITE_CATEGORY], 0);
    close_world(&world);
}

static void the_table_holds_them(void **state)
{
    (void)state;
    struct world world;
    open_world(&world);
    struct dpe_error err = {0};
    add_rows(world.run, &world.suite);
    collect(&world);
    if (dpe_run_snapshot(world.run, true, fill, &world.results, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(schema_check(world.scratch->table), 0);
    struct dpe_h5 *table = NULL;
    void *data = NULL;
    int rank = 0;
    int64_t dims[5];
    assert_int_equal(dpe_h5_open(world.scratch->table, &table, &err), DPE_OK);
    assert_int_equal(
        dpe_h5_get(table, "/eval/madeup/category_mean", DPE_COL_F64, &data, &rank, dims, &err),
        DPE_OK);
    assert_true(rank == 3 && dims[0] == METHODS && dims[1] == 3 && dims[2] == 2);
    const double *means = data;
    assert_true(means[1] == category_of(&world, 0, 0, 1));
    assert_true(means[4] == category_of(&world, 0, 2, 0));
    assert_true(isnan(means[7]));
    free(data);
    assert_false(dpe_h5_has(table, "/eval/madeup/at_least_half"));
    assert_false(dpe_h5_has(table, "/eval/madeup/nll_sum"));
    assert_false(dpe_h5_has(table, "/eval/madeup/position"));
    dpe_h5_close(table);
    close_world(&world);
}

/* A share in which all samples agree has an interval, too. */
static void shares_that_agree_have_width(void **state)
{
    (void)state;
    struct world world;
    open_world(&world);
    for (int64_t s = 0; s < SAMPLES; s++) {
        struct dpe_row row;
        dpe_row_init(&row);
        snprintf(row.plan, sizeof row.plan, "%s", plans[0]);
        snprintf(row.task, sizeof row.task, "%s", world.tasks[0].task.name);
        row.sample = s;
        row.score = 1.0;
        assert_int_equal(dpe_run_add(world.run, &row, NULL), DPE_OK);
        dpe_row_free(&row);
    }
    collect(&world);
    const struct dpe_interval *all = &world.results.r.mean[0];
    assert_true(all->mean == 1.0 && all->high == 1.0 && all->n == SAMPLES);
    assert_true(all->low > 0.0 && all->low < 0.5);
    close_world(&world);
}

/* Nothing was run yet: a table can be written all the same. */
static void missing_rows_are_not_zeros(void **state)
{
    (void)state;
    struct world world;
    open_world(&world);
    struct dpe_error err = {0};
    collect(&world);
    assert_int_equal(world.results.r.status[0], -1);
    assert_true(isnan(world.results.r.mean[0].mean));
    assert_true(isnan(world.results.r.difference[TASKS].minus.mean));
    if (dpe_run_snapshot(world.run, false, fill, &world.results, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_hold_the_rows),
        cmocka_unit_test(differences_are_to_the_method_that_is_asked_for),
        cmocka_unit_test(categories_are_means_of_tasks),
        cmocka_unit_test(the_table_holds_them),
        cmocka_unit_test(missing_rows_are_not_zeros),
        cmocka_unit_test(shares_that_agree_have_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

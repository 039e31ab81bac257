/* Suites by name: their tasks, what identifies them, how they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "data/data.h"
#include "engine/base/base.h"
#include "eval/niah/niah.h"
#include "eval/suite/suite.h"
#include "outputs/h5/rows.h"
#include "tests/lib/sample_inputs.h"

static const int64_t lengths[] = {160, 256};
static const double depths[] = {0.0, 0.5, 1.0};

static struct dpe_suite_options usual(void)
{
    struct dpe_suite_options options = {.tokenizer = tokenizer,
                                        .corpus = corpus,
                                        .lengths = lengths,
                                        .n_lengths = 2,
                                        .given.samples = 7,
                                        .seed = 3,
                                        .depths = depths,
                                        .n_depths = 3};
    dpe_niah_defaults(&options.niah);
    return options;
}

static struct dpe_suite open_suite(const char *name, const struct dpe_suite_options *options)
{
    struct dpe_suite suite;
    struct dpe_error err = {0};
    if (dpe_suite_open(name, options, &suite, &err) != DPE_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    assert_string_equal(suite.name, name);
    return suite;
}

static void names_are_listed(void **state)
{
    (void)state;
    size_t n = 0;
    bool niah = false;
    for (; dpe_suite_kind(n) != NULL; n++) {
        niah = niah || strcmp(dpe_suite_kind(n)->name, "niah") == 0;
        assert_true(strlen(dpe_suite_kind(n)->about) > 5);
        assert_true(strlen(dpe_suite_kind(n)->name) < sizeof(((struct dpe_suite *)0)->name));
    }
    assert_true(n >= 3 && niah);
    assert_true(dpe_suite_find("ppl")->needs_corpus);
    assert_null(dpe_suite_find("nosuch"));
}

static void needles_have_a_task_per_length(void **state)
{
    (void)state;
    struct dpe_suite_options options = usual();
    struct dpe_suite suite = open_suite("niah", &options);
    assert_int_equal(suite.n_tasks, 2);
    assert_false(suite.kind->perplexity);
    assert_true(suite.kind->half);
    assert_string_equal(suite.tasks[0].task.name, "niah-160");
    assert_string_equal(suite.tasks[1].task.name, "niah-256");
    assert_string_equal(suite.tasks[1].label, "niah");
    assert_string_equal(suite.tasks[1].category, "");
    assert_int_equal(suite.tasks[1].length, 256);
    assert_int_equal(suite.tasks[1].n_samples, 7);
    assert_non_null(strstr(dpe_identity_get(&suite.parameters, "parameters"), "values=4"));
    assert_int_equal(strlen(dpe_identity_get(&suite.parameters, "template")), 64);
    dpe_suite_close(&suite);
    assert_null(suite.tasks);
}

static void a_grid_has_a_task_per_depth_and_length(void **state)
{
    (void)state;
    struct dpe_suite_options options = usual();
    options.niah.values = 4; /* the grid's needle is one */
    struct dpe_suite suite = open_suite("niah_grid", &options);
    assert_int_equal(suite.n_tasks, 6);
    assert_string_equal(suite.tasks[2].task.name, "depth-0.5-160");
    assert_string_equal(suite.tasks[5].task.name, "depth-1-256");
    assert_string_equal(suite.tasks[5].label, "depth-1");
    assert_int_equal(suite.tasks[3].length, 256);
    assert_non_null(strstr(dpe_identity_get(&suite.parameters, "parameters"),
                           "keys=1,values=1,queries=1,digits=7,depth=drawn"));
    dpe_suite_close(&suite);
}

static void perplexity_runs_what_there_is(void **state)
{
    (void)state;
    struct dpe_suite_options options = usual();
    options.given.samples = 100000;
    struct dpe_suite suite = open_suite("ppl", &options);
    assert_int_equal(suite.n_tasks, 2);
    assert_true(suite.kind->perplexity);
    assert_false(suite.kind->half);
    assert_string_equal(suite.tasks[1].task.name, "ppl-256");
    assert_int_equal(suite.tasks[1].n_samples, suite.tasks[1].task.n_samples);
    assert_int_equal(suite.tasks[1].n_samples + suite.skipped, corpus->n);
    assert_string_equal(dpe_identity_get(&suite.parameters, "stride"), "0");
    dpe_suite_close(&suite);
    options.given.stride = 100;
    options.given.samples = 1;
    suite = open_suite("ppl", &options);
    assert_int_equal(suite.tasks[0].n_samples, 1);
    assert_string_equal(dpe_identity_get(&suite.parameters, "stride"), "100");
    dpe_suite_close(&suite);
}

/* What is not asked for by name and cannot be made is left out; what is asked for is an error. */
static void ruler_runs_what_can_be_run(void **state)
{
    (void)state;
    struct dpe_suite_options options = usual();
    const int64_t long_enough[] = {8192, 16384};
    options.lengths = long_enough;
    struct dpe_suite suite = open_suite("ruler", &options);
    assert_int_equal(suite.n_tasks, 2 * 11);
    assert_string_equal(suite.lacks, "qa_1 without --squad FILE, qa_2 without --hotpotqa FILE");
    dpe_suite_close(&suite);
    options.corpus = NULL;
    suite = open_suite("ruler", &options);
    assert_non_null(strstr(suite.lacks, "niah_single_2 without --corpus PATH, "));
    for (size_t i = 0; i < suite.n_tasks; i++) {
        assert_null(strstr(suite.lacks, suite.tasks[i].label));
    }
    dpe_suite_close(&suite);
    options.given.tasks = "vt";
    suite = open_suite("ruler", &options);
    assert_int_equal(suite.n_tasks, 2);
    assert_string_equal(suite.lacks, "");
    dpe_suite_close(&suite);
}

static void refuse(const char *name, const struct dpe_suite_options *options, const char *words)
{
    struct dpe_suite suite;
    struct dpe_error err = {0};
    assert_int_equal(dpe_suite_open(name, options, &suite, &err), DPE_USAGE);
    if (strstr(err.text, words) == NULL) {
        fail_msg("expected '%s' in '%s'", words, err.text);
    }
    assert_null(suite.tasks);
    assert_int_equal(dpe_suite_open(name, options, &suite, NULL), DPE_USAGE);
}

static void what_cannot_work_is_refused(void **state)
{
    (void)state;
    struct dpe_suite_options options = usual();
    refuse("nosuch", &options, "unknown suite 'nosuch'; suites: niah, ");
    options.corpus = NULL;
    refuse("ppl", &options, "--corpus");
    options = usual();
    const int64_t tiny[] = {20};
    options.lengths = tiny;
    options.n_lengths = 1;
    refuse("niah", &options, "20");
    options.given.stride = 20;
    refuse("ppl", &options, "below the window of 20 tokens");
    options.given.stride = 5;
    options.given.max_tokens = 19;
    refuse("ppl", &options, "at least a window of 20 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_listed),
        cmocka_unit_test(needles_have_a_task_per_length),
        cmocka_unit_test(a_grid_has_a_task_per_depth_and_length),
        cmocka_unit_test(perplexity_runs_what_there_is),
        cmocka_unit_test(ruler_runs_what_can_be_run),
        cmocka_unit_test(what_cannot_work_is_refused),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}

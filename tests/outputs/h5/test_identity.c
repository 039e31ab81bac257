/* What makes two runs the same one, and how differences are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "engine/base/base.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"
#include "tests/outputs/outputs_fixture.h"

static void identities_are_strict(void **state)
{
    (void)state;
    struct dpe_identity a = {0}, b = {0};
    char hash_a[65], hash_b[65];
    assert_int_equal(dpe_identity_add(&a, "x", "yz", NULL), DPE_OK);
    assert_int_equal(dpe_identity_add(&a, "x", "again", NULL), DPE_INTERNAL);
    assert_int_equal(dpe_identity_add(&a, "", "v", NULL), DPE_INTERNAL);
    assert_int_equal(dpe_identity_add(&a, "n", "\xff", NULL), DPE_BAD_DATA);
    assert_int_equal(dpe_identity_add(&b, "xy", "z", NULL), DPE_OK);
    assert_int_equal(dpe_identity_hash(&a, hash_a, NULL), DPE_OK);
    assert_int_equal(dpe_identity_hash(&b, hash_b, NULL), DPE_OK);
    assert_string_not_equal(hash_a, hash_b);
    dpe_identity_free(&a);
    dpe_identity_free(&b);
}

static void every_differing_field_is_listed(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    for (int table = 0; table < 2; table++) {
        scratch_clear(scratch);
        if (table) {
            fixture_make_table(scratch, 1, 5);
        } else {
            fixture_make_journal(scratch, 1, 5, 0);
        }
        struct dpe_identity other = {0};
        assert_int_equal(dpe_identity_add(&other, "model", "fedcba", NULL), DPE_OK);
        assert_int_equal(dpe_identity_add(&other, "seed", "1", NULL), DPE_OK);
        assert_int_equal(dpe_identity_addf(&other, NULL, "theta", "%.17g", 0.1), DPE_OK);
        const struct dpe_run_options options = {.notice = scratch_notice, .user = scratch};
        assert_int_equal(dpe_run_open(scratch->table, &other, &options, &run, &err), DPE_MISMATCH);
        assert_non_null(strstr(err.text, "model: expected \"fedcba\", found \"0123456789abcdef\""));
        assert_non_null(strstr(err.text, "task: expected (absent), found \"niah\""));
        assert_non_null(
            strstr(err.text, "theta: expected \"0.10000000000000001\", found (absent)"));
        assert_null(strstr(err.text, "seed:"));
        assert_int_equal(exists(scratch->journal), !table);
        dpe_identity_free(&other);
        fixture_expect_rows(scratch, 5);
    }
}

/* A long value that is shortened still shows where it differs. */
static void a_difference_in_the_middle_is_shown(void **state)
{
    (void)state;
    struct dpe_identity ours = {0};
    struct dpe_identity theirs = {0};
    struct dpe_error err = {0};
    char value[200];
    for (size_t at = 0; at < 190; at += 9) {
        memset(value, 'x', 190);
        value[190] = '\0';
        value[at] = 'a';
        assert_int_equal(dpe_identity_add(&ours, "niah", value, NULL), DPE_OK);
        value[at] = 'b';
        assert_int_equal(dpe_identity_add(&theirs, "niah", value, NULL), DPE_OK);
        assert_int_equal(dpe_identity_mismatch(&ours, &theirs, "t.h5", &err), DPE_MISMATCH);
        const char *expected = strstr(err.text, "niah: expected \"");
        const char *found = strstr(err.text, "\", found \"");
        assert_non_null(memchr(expected + 16, 'a', (size_t)(found - expected - 16)));
        assert_non_null(strchr(found + 10, 'b'));
        dpe_identity_free(&ours);
        dpe_identity_free(&theirs);
    }
}

static void many_long_differences_are_still_named(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    fixture_make_table(scratch, 1, 1);
    struct dpe_identity other = {0};
    char value[400];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 30; i++) {
        char name[24];
        snprintf(name, sizeof name, "field_%02d", i);
        assert_int_equal(dpe_identity_add(&other, name, value, NULL), DPE_OK);
    }
    assert_int_equal(dpe_run_open(scratch->table, &other, NULL, &run, &err), DPE_MISMATCH);
    for (int i = 0; i < 30; i++) {
        char name[24];
        snprintf(name, sizeof name, "field_%02d", i);
        assert_non_null(strstr(err.text, name));
    }
    assert_non_null(strstr(err.text, "--force"));
    dpe_identity_free(&other);
}

static void tasks_in_words(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"keys=1,values=4,queries=1,digits=7,depth=drawn,repeat=0", "one key of 4 values"},
        {"keys=4,values=1,queries=1,digits=7,asked=4", "4 keys of one value"},
        {"keys=4,values=4,queries=2,digits=7", "4 keys of 4 values, 2 asked for at once"},
        {"16 samples, trained length 256, window 32, from keys=1,values=4", ""},
        {NULL, ""},
    };
    char text[DPE_TASK_WORDS];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(dpe_identity_task_words(cases[i][0], text), cases[i][1]);
    }
}

/* A field that most rows do not have changes neither their bytes nor their hash. */
static void optional_fields_are_left_out(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_text without = {0};
    struct dpe_text with = {0};
    struct dpe_row row, back;
    dpe_row_init(&row);
    snprintf(row.plan, sizeof row.plan, "a");
    snprintf(row.task, sizeof row.task, "niah");
    row.sample = 3;
    assert_int_equal(dpe_row_encode(&row, true, &without, &err), DPE_OK);
    row.margin = 0.75;
    assert_int_equal(dpe_row_encode(&row, true, &with, &err), DPE_OK);
    assert_int_equal(with.n, without.n + 14); /* tag, length, value */
    assert_int_equal(dpe_row_decode((unsigned char *)without.bytes, without.n, &back, &err),
                     DPE_OK);
    assert_true(isnan(back.margin));
    assert_string_equal(dpe_row_difference(&row, &back), "margin");
    dpe_row_free(&back);
    assert_int_equal(dpe_row_decode((unsigned char *)with.bytes, with.n, &back, &err), DPE_OK);
    assert_true(back.margin == 0.75);
    assert_null(dpe_row_difference(&row, &back));
    dpe_row_free(&back);
    dpe_text_free(&without);
    dpe_text_free(&with);
}

/* Five tokens: the first alone, two, two of the next four. */
static void texts_by_position(void **state)
{
    (void)state;
    double sums[3] = {4.0, 2.0, 1.0};
    double more[1] = {2.0};
    struct dpe_row row, other;
    struct dpe_positions positions = {.n = 0};
    dpe_row_init(&row);
    row.status = DPE_ROW_OK;
    row.n_tokens = 5;
    row.buckets = sums;
    row.n_buckets = 3;
    dpe_row_init(&other);
    other.status = DPE_ROW_OK;
    other.n_tokens = 1;
    other.buckets = more;
    other.n_buckets = 1;
    dpe_positions_add(&positions, NULL);
    dpe_positions_add(&positions, &row);
    dpe_positions_add(&positions, &other);
    other.status = DPE_ROW_NONFINITE;
    dpe_positions_add(&positions, &other);
    assert_int_equal(positions.n, 3);
    assert_true(fabs(dpe_positions_at(&positions, 0) - exp(6.0 / 2.0)) < 1e-12);
    assert_true(fabs(dpe_positions_at(&positions, 1) - exp(2.0 / 2.0)) < 1e-12);
    assert_true(fabs(dpe_positions_at(&positions, 2) - exp(1.0 / 2.0)) < 1e-12);
    assert_true(isnan(dpe_positions_at(&positions, 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identities_are_strict),
        cmocka_unit_test(optional_fields_are_left_out),
        WITH_SCRATCH(every_differing_field_is_listed),
        cmocka_unit_test(a_difference_in_the_middle_is_shown),
        WITH_SCRATCH(many_long_differences_are_still_named),
        cmocka_unit_test(tasks_in_words),
        cmocka_unit_test(texts_by_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

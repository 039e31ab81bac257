/* Kinds of results: what a struct holds comes back into such a struct, and what does not fit is
 * named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/run/run.h"
#include "tests/outputs/outputs_fixture.h"

/* Shops sell fruit: names and prices lie in records, counts in an array, and a day has a number. */
struct price {
    const char *fruit;
    float euros;
    double kept; /* days */
};
struct market {
    int64_t n[DPE_DATASET_AXES]; /* fruit, shop, day */
    struct price *prices;        /* [fruit] */
    int32_t *sold;               /* [day][shop][fruit] */
    const char *const *labels;   /* [shop][fruit] */
    uint16_t *holiday;           /* [day]; not every market says */
};
static const struct dpe_dataset datasets[] = {
    {.name = "fruit",
     .type = DPE_COL_STRING,
     DPE_IN_RECORDS(struct market, prices, struct price, fruit),
     .long_name = "fruit",
     .units = "1"},
    {.name = "shop",
     .type = DPE_COL_I64,
     .array = DPE_DATASET_COUNT,
     .long_name = "s",
     .units = "1"},
    {.name = "day",
     .type = DPE_COL_I64,
     .array = DPE_DATASET_COUNT,
     .long_name = "d",
     .units = "1"},
    {.name = "euros",
     .type = DPE_COL_F32,
     .axes = "fruit",
     DPE_IN_RECORDS(struct market, prices, struct price, euros),
     .long_name = "price",
     .units = "euro"},
    {.name = "kept",
     .type = DPE_COL_F64,
     .axes = "fruit",
     DPE_IN_RECORDS(struct market, prices, struct price, kept),
     .long_name = "how long it keeps",
     .units = "days"},
    {.name = "sold",
     .type = DPE_COL_I32,
     .axes = "day shop fruit",
     DPE_IN_ARRAY(struct market, sold),
     .long_name = "pieces sold",
     .units = "1"},
    {.name = "label",
     .type = DPE_COL_STRING,
     .axes = "shop fruit",
     DPE_IN_ARRAY(struct market, labels),
     .long_name = "what stands on it",
     .units = "1"},
    {.name = "holiday",
     .type = DPE_COL_U16,
     .axes = "day",
     DPE_IN_ARRAY(struct market, holiday),
     .long_name = "whether it is one",
     .units = "1",
     .optional = true},
};
enum { DATASETS = sizeof datasets / sizeof datasets[0] };
static const struct dpe_dataset_kind kind = {datasets, DATASETS, "1"};

static struct price prices[3] = {{"apple", 0.5f, 30.0}, {"Mirabelle", 0.1f, 2.5}, {"", 7.0f, -0.0}};
static int32_t sold[12] = {1, 2, 3, 4, 5, 6, -7, 8, 9, 10, 11, INT32_MAX};
static const char *const labels[6] = {"a", "b", "c", "d", "", "f"};
static uint16_t holiday[2] = {0, 65535};

/* What is written, and through which kind it is read. */
struct trial {
    struct market market;
    const struct dpe_dataset_kind *kind;
    dpe_status expected;
};

static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct trial *trial = user;
    dpe_datasets_put(trial->kind, &trial->market, "/market", table);
    assert_int_equal(dpe_h5_failed(table, err), trial->expected);
    return DPE_OK;
}

static struct dpe_h5 *write_market(struct scratch *scratch, struct trial *trial)
{
    struct dpe_run *run = NULL;
    struct dpe_h5 *table = NULL;
    struct dpe_error err = {0};
    scratch_clear(scratch);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, fill, trial, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
    return table;
}

static struct trial whole(void)
{
    return (struct trial){.market = {.n = {3, 2, 2},
                                     .prices = prices,
                                     .sold = sold,
                                     .labels = labels,
                                     .holiday = holiday},
                          .kind = &kind};
}

static void test_comes_back(void **state)
{
    struct trial trial = whole();
    struct dpe_h5 *table = write_market(*state, &trial);
    struct market back = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_datasets_get(&kind, &back, "/market", NULL, table, &err), DPE_OK);
    assert_memory_equal(back.n, trial.market.n, sizeof back.n);
    for (int f = 0; f < 3; f++) {
        assert_string_equal(back.prices[f].fruit, prices[f].fruit);
        assert_memory_equal(&back.prices[f].euros, &prices[f].euros, sizeof(float));
        assert_memory_equal(&back.prices[f].kept, &prices[f].kept, sizeof(double));
    }
    assert_memory_equal(back.sold, sold, sizeof sold);
    assert_memory_equal(back.holiday, holiday, sizeof holiday);
    for (int l = 0; l < 6; l++) {
        assert_string_equal(back.labels[l], labels[l]);
    }
    dpe_datasets_free(&kind, &back);
    assert_null(back.prices);
    dpe_datasets_free(&kind, &back); /* a second time: nothing */
    dpe_h5_close(table);
}

/* A part is read with the axes that it needs, and nothing else. */
static void test_part(void **state)
{
    struct trial trial = whole();
    trial.market.holiday = NULL;
    struct dpe_h5 *table = write_market(*state, &trial);
    struct market back = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_datasets_get(&kind, &back, "/market", "label holiday", table, &err),
                     DPE_OK);
    assert_int_equal(back.n[0], 3);
    assert_int_equal(back.n[1], 2);
    assert_string_equal(back.labels[5], "f");
    assert_null(back.holiday);
    assert_null(back.sold);
    dpe_datasets_free(&kind, &back);
    dpe_h5_close(table);
}

/* All but what lies along an axis. */
static void test_without_an_axis(void **state)
{
    struct trial trial = whole();
    struct dpe_h5 *table = write_market(*state, &trial);
    struct market back = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_datasets_get(&kind, &back, "/market", "-day", table, &err), DPE_OK);
    assert_true(back.sold == NULL && back.holiday == NULL && back.n[2] == 0);
    assert_string_equal(back.labels[5], "f");
    assert_true(back.prices[1].kept == 2.5);
    dpe_datasets_free(&kind, &back);
    dpe_h5_close(table);
}

/* A double that the table does not have yet is not known; a text must be there. */
static void test_a_later_number(void **state)
{
    struct dpe_dataset later[DATASETS];
    struct trial trial = whole();
    struct dpe_h5 *table = write_market(*state, &trial);
    struct market back = {0};
    struct dpe_error err = {0};
    memcpy(later, datasets, sizeof later);
    later[4].name = "weight";
    later[4].optional = true;
    const struct dpe_dataset_kind of_later = {later, DATASETS, "1"};
    assert_int_equal(dpe_datasets_get(&of_later, &back, "/market", NULL, table, &err), DPE_OK);
    assert_true(isnan(back.prices[0].kept) && isnan(back.prices[2].kept));
    assert_string_equal(back.prices[1].fruit, "Mirabelle");
    dpe_datasets_free(&of_later, &back);
    dpe_h5_close(table);
}

/* What a tool would print after its version, without blanks: standard output goes to a file
 * meanwhile. */
static char *printed(struct dpe_result *out)
{
    static char text[4096];
    struct dpe_error err = {0};
    FILE *file = tmpfile();
    int kept = dup(STDOUT_FILENO);
    fflush(stdout);
    assert_true(file != NULL && kept >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    dpe_status status = dpe_result_print(out, &err);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(status, DPE_OK);
    char *to = text;
    for (const char *at = strchr(strstr(text, "\"version\""), ',') + 1; *at != '\0'; at++) {
        if (*at != ' ' && *at != '\n') {
            *to++ = *at;
        }
    }
    *to = '\0';
    return text;
}

/* Rows along some axes have what lies along these and no other; what is not there is empty. */
static void test_rows(void **state)
{
    const struct trial trial = whole();
    struct market market = trial.market;
    (void)state;
    struct dpe_result *out = dpe_result_begin("test");
    dpe_datasets_rows(&kind, &market, "shop fruit", "labels", out);
    assert_string_equal(
        printed(out),
        "\"labels\":[{\"fruit\":\"apple\",\"shop\":0,\"euros\":0.5,\"kept\":30.0,\"label\":\"a\"},"
        "{\"fruit\":\"Mirabelle\",\"shop\":0,\"euros\":0.100000001490116,\"kept\":2.5,\"label\":"
        "\"b\"},"
        "{\"fruit\":\"\",\"shop\":0,\"euros\":7.0,\"kept\":-0.0,\"label\":\"c\"},"
        "{\"fruit\":\"apple\",\"shop\":1,\"euros\":0.5,\"kept\":30.0,\"label\":\"d\"},"
        "{\"fruit\":\"Mirabelle\",\"shop\":1,\"euros\":0.100000001490116,\"kept\":2.5,\"label\":"
        "\"\"},"
        "{\"fruit\":\"\",\"shop\":1,\"euros\":7.0,\"kept\":-0.0,\"label\":\"f\"}]}");
    out = dpe_result_begin("test");
    dpe_result_row(out, "sales");
    dpe_result_text(out, "town", "Ulm");
    dpe_datasets_fields(&kind, &market, "day shop fruit", 11, out);
    assert_string_equal(printed(out), "\"sales\":[{\"town\":\"Ulm\",\"fruit\":\"\",\"shop\":1,"
                                      "\"day\":1,\"euros\":7.0,\"kept\":-0.0,"
                                      "\"sold\":2147483647,\"label\":\"f\",\"holiday\":65535}]}");
    market.holiday = NULL;
    market.labels = NULL;
    out = dpe_result_begin("test");
    dpe_datasets_fields(&kind, &market, "day shop", 0, out);
    assert_non_null(strstr(printed(out), "\"holiday\":null"));
}

/* Arrays as long as their axes, made and freed by the names of what lies in them. */
static void test_made(void **state)
{
    struct market market = {.n = {3, 2, 2}};
    struct dpe_error err = {0};
    (void)state;
    assert_int_equal(dpe_datasets_make(&kind, &market, "euros kept sold", &err), DPE_OK);
    assert_true(market.labels == NULL && market.holiday == NULL);
    assert_true(market.prices[2].kept == 0.0 && market.sold[11] == 0);
    market.prices[2].fruit = "not ours";
    dpe_datasets_drop(&kind, &market, "euros kept");
    assert_true(market.prices == NULL && market.sold != NULL);
    dpe_datasets_drop(&kind, &market, "sold label");
    assert_null(market.sold);
    market.n[0] = INT64_MAX / 2;
    assert_int_equal(dpe_datasets_make(&kind, &market, "sold", &err), DPE_NO_MEMORY);
}

static void test_nothing_to_write(void **state)
{
    struct trial trial = {.kind = &kind,
                          .market = {.prices = prices, .sold = sold, .labels = labels}};
    struct dpe_h5 *table = write_market(*state, &trial);
    struct market back = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_datasets_get(&kind, &back, "/market", NULL, table, &err), DPE_OK);
    assert_int_equal(back.n[0] + back.n[1] + back.n[2], 0);
    dpe_datasets_free(&kind, &back);
    dpe_h5_close(table);
}

/* Read through a kind in which one dataset is another. */
static void refused(struct dpe_h5 *table, size_t which, struct dpe_dataset other,
                    dpe_status expected, const char *words)
{
    struct dpe_dataset changed[DATASETS];
    memcpy(changed, datasets, sizeof changed);
    changed[which] = other;
    const struct dpe_dataset_kind wrong = {changed, DATASETS, "1"};
    struct market back = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_datasets_get(&wrong, &back, "/market", NULL, table, &err), expected);
    if (strstr(err.text, words) == NULL) {
        fail_msg("expected \"%s\", found \"%s\"", words, err.text);
    }
    dpe_datasets_free(&wrong, &back);
}

static void test_refused(void **state)
{
    struct trial trial = whole();
    struct dpe_h5 *table = write_market(*state, &trial);
    struct dpe_dataset other = datasets[5];
    other.axes = "shop day fruit fruit";
    refused(table, 5, other, DPE_BAD_DATA,
            "/market/sold: expected the shape [2, 2, 3, 3], found [2, 2, 3]");
    other.axes = "day fruit shop";
    refused(table, 5, other, DPE_BAD_DATA, "expected the shape [2, 3, 2], found [2, 2, 3]");
    other.axes = "day shop weather";
    refused(table, 5, other, DPE_INTERNAL, "has no axis \"weather\"");
    other = datasets[6];
    other.axes = "fruit";
    refused(table, 6, other, DPE_BAD_DATA, "/market/label: expected the shape [3], found [6]");
    other = datasets[3];
    other.name = "dollars";
    refused(table, 3, other, DPE_BAD_DATA, "dollars");
    dpe_h5_close(table);
}

/* A declaration that is wrong is found by whoever writes with it. */
static void test_declarations(void **state)
{
    static const struct {
        const struct dpe_dataset_kind *kind;
        size_t least;
    } kinds[] = {{&dpe_norms_kind, 10},
                 {&dpe_tune_kind, 19},
                 {&dpe_race_kind, 6},
                 {&dpe_grid_kind, 12},
                 {&dpe_ablate_kind, 4}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        assert_true(kinds[k].kind->n >= kinds[k].least);
        for (size_t i = 0; i < kinds[k].kind->n; i++) {
            const struct dpe_dataset *dataset = &kinds[k].kind->datasets[i];
            assert_non_null(dataset->name);
            assert_non_null(dataset->long_name);
            assert_true(dataset->units != NULL || kinds[k].kind->score_units != NULL);
            for (size_t other = 0; other < i; other++) {
                assert_string_not_equal(dataset->name, kinds[k].kind->datasets[other].name);
            }
        }
    }
    /* What is in the score's units has none of its own. */
    for (size_t i = 0; i < dpe_suite_kinds[1].n; i++) {
        const struct dpe_dataset *dataset = &dpe_suite_kinds[1].datasets[i];
        bool is = dataset->array == offsetof(struct dpe_suite_result, difference) ||
                  strcmp(dataset->name, "score") == 0;
        assert_true(dataset->units != NULL || is);
        assert_true(dataset->units == NULL || strncmp(dataset->name, "difference", 10) != 0);
    }
    assert_string_equal(dpe_suite_kinds[0].score_units, "1");
    assert_string_equal(dpe_suite_kinds[1].score_units, "nats/token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_comes_back),       WITH_SCRATCH(test_part),
        WITH_SCRATCH(test_without_an_axis),  WITH_SCRATCH(test_a_later_number),
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_made),
        WITH_SCRATCH(test_nothing_to_write), WITH_SCRATCH(test_refused),
        cmocka_unit_test(test_declarations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

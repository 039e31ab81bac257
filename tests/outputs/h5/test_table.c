/* Tables: what is put comes back, what cannot be is refused, and equal runs give equal tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <hdf5.h>

#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"
#include "outputs/table/trailer.h"
#include "tests/outputs/outputs_fixture.h"
#include "tests/outputs/schema_check.h"

/* A table made by a fill, put at scratch->table; the caller opens it. */
static struct dpe_h5 *write_and_open(struct scratch *scratch, dpe_run_fill fill, void *user)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    struct dpe_h5 *table = NULL;
    scratch_clear(scratch);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    dpe_status status = dpe_run_snapshot(run, true, fill, user, &err);
    if (status != DPE_OK) {
        print_message("%s\n", err.text);
    }
    assert_int_equal(status, DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
    return table;
}

/* HDF5 cannot tell whether a link is there, as when it lacks memory. */
static bool links_fail;
htri_t __real_H5Lexists(hid_t location, const char *name, hid_t access);
htri_t __wrap_H5Lexists(hid_t location, const char *name, hid_t access);
htri_t __wrap_H5Lexists(hid_t location, const char *name, hid_t access)
{
    return __real_H5Lexists(links_fail ? H5I_INVALID_HID : location, name, access);
}

static const int64_t numbers[4] = {0, -1, INT64_MAX, 70000};
static const double reals[4] = {0.1, -0.0, 1e300, NAN};
static const float floats[4] = {0.5f, 3e38f, 1e-40f, -INFINITY};
static const uint64_t naturals[4] = {0, UINT64_MAX, 5, 6};
static const uint16_t shorts[4] = {0, 65535, 5, 6};
static const uint8_t bytes[4] = {0, 255, 5, 6};
static const int32_t ints[4] = {0, -5, INT32_MAX, INT32_MIN};
static const char *const texts[4] = {"", "a", "Grüße", NULL};

static dpe_status fill_types(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    (void)user;
    const struct dpe_column columns[] = {
        {"/x", DPE_COL_I64, 1, {4}, {NULL}, numbers, "x", "m", NULL, true},
        {"/a/reals", DPE_COL_F64, 1, {4}, {"/x"}, reals, "reals", "1", NULL, false},
        {"/a/floats", DPE_COL_F32, 1, {4}, {"/x"}, floats, "floats", "1", NULL, false},
        {"/a/naturals", DPE_COL_U64, 1, {4}, {"/x"}, naturals, "naturals", NULL, NULL, false},
        {"/a/shorts", DPE_COL_U16, 1, {4}, {"/x"}, shorts, "shorts", "1", NULL, false},
        {"/a/b/bytes", DPE_COL_U8, 1, {4}, {"/x"}, bytes, "bytes", "1", NULL, false},
        {"/a/b/ints", DPE_COL_I32, 1, {4}, {"/x"}, ints, "ints", "1", "no yes maybe", false},
        {"/a/b/texts", DPE_COL_STRING, 1, {4}, {"/x"}, texts, "texts", "1", NULL, false},
        {"/a/none", DPE_COL_I64, 1, {0}, {NULL}, NULL, "an empty scale", "1", NULL, true},
        {"/a/empty", DPE_COL_STRING, 1, {0}, {"/a/none"}, NULL, "empty", "1", NULL, false},
        {"/a/scalar", DPE_COL_F64, 0, {0}, {NULL}, reals, "scalar", "1", NULL, false},
        {"/a/word", DPE_COL_STRING, 0, {0}, {NULL}, texts + 2, "word", "1", NULL, false},
    };
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        dpe_h5_put(table, &columns[i]);
    }
    dpe_h5_attr_text(table, "/a/b", "word", "Größe");
    dpe_h5_attr_f64(table, "/only/here", "real", 0.1);
    dpe_h5_attr_i64(table, "/x", "whole", -7);
    dpe_h5_attr_i64(table, "/x", "whole", -8);
    return dpe_h5_failed(table, err);
}

/* The whole dataset has these n elements, bit for bit. */
static void expect_same(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                        const void *want, size_t size)
{
    void *data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_h5_get(table, path, type, &data, &rank, dims, &err), DPE_OK);
    assert_int_equal(rank, 1);
    assert_int_equal(dims[0], 4);
    assert_memory_equal(data, want, size);
    free(data);
}

static dpe_status get(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                      struct dpe_error *err)
{
    void *data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    dpe_status status = dpe_h5_get(table, path, type, &data, &rank, dims, err);
    free(data);
    return status;
}

static void every_type_comes_back(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    struct dpe_h5 *table = write_and_open(scratch, fill_types, NULL);
    expect_same(table, "/x", DPE_COL_I64, numbers, sizeof numbers);
    expect_same(table, "/a/reals", DPE_COL_F64, reals, sizeof reals);
    expect_same(table, "/a/floats", DPE_COL_F32, floats, sizeof floats);
    expect_same(table, "/a/naturals", DPE_COL_U64, naturals, sizeof naturals);
    expect_same(table, "/a/shorts", DPE_COL_U16, shorts, sizeof shorts);
    expect_same(table, "/a/b/bytes", DPE_COL_U8, bytes, sizeof bytes);
    expect_same(table, "/a/b/ints", DPE_COL_I32, ints, sizeof ints);
    char **strings = NULL;
    size_t n = 0;
    assert_int_equal(dpe_h5_get_strings(table, "/a/b/texts", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 4);
    assert_string_equal(strings[2], "Grüße");
    assert_string_equal(strings[3], "");
    dpe_strings_free(strings, n);
    assert_int_equal(dpe_h5_get_strings(table, "/a/word", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 1);
    dpe_strings_free(strings, n);
    assert_int_equal(dpe_h5_get_strings(table, "/a/empty", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 0);
    dpe_strings_free(strings, n);
    char *word = NULL;
    int64_t whole = 0;
    assert_int_equal(dpe_h5_get_attr_text(table, "/a/b", "word", &word, &err), DPE_OK);
    assert_string_equal(word, "Größe");
    free(word);
    assert_int_equal(dpe_h5_get_attr_i64(table, "/only/here", "real", &whole, &err), DPE_BAD_DATA);
    assert_int_equal(dpe_h5_get_attr_i64(table, "/x", "whole", &whole, &err), DPE_OK);
    assert_int_equal(whole, -8);
    assert_int_equal(dpe_h5_get_attr_i64(table, "/a/reals", "_FillValue", &whole, &err),
                     DPE_BAD_DATA);
    assert_int_equal(dpe_h5_get_attr_i64(table, "/a/naturals", "_FillValue", &whole, &err),
                     DPE_BAD_DATA);
    assert_true(dpe_h5_has(table, "/a/b"));
    assert_true(dpe_h5_has(table, "/"));
    assert_false(dpe_h5_has(table, "/a/c"));
    assert_false(dpe_h5_has(table, "/b/c/d"));
    assert_int_equal(dpe_h5_answered(table, &err), DPE_OK);
    struct dpe_h5 *silent = NULL;
    assert_int_equal(dpe_h5_open(scratch->table, &silent, &err), DPE_OK);
    links_fail = true;
    assert_false(dpe_h5_has(silent, "/a/b"));
    assert_int_equal(dpe_h5_list(silent, "/a/b", &strings, &n, &err), DPE_BAD_DATA);
    links_fail = false;
    assert_int_equal(dpe_h5_answered(silent, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "cannot tell"));
    dpe_h5_close(silent);
    assert_int_equal(dpe_h5_list(table, "/a/b", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 3);
    assert_string_equal(strings[0], "bytes");
    assert_string_equal(strings[1], "ints");
    assert_string_equal(strings[2], "texts");
    dpe_strings_free(strings, n);
    assert_int_equal(dpe_h5_list(table, "/b/c/d", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 0);
    assert_null(strings);
    assert_int_equal(dpe_h5_list(table, "/a/b/ints", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 0);
    dpe_h5_close(table);
}

static void conversions_lose_nothing(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    struct dpe_h5 *table = write_and_open(scratch, fill_types, NULL);
    const double as_reals[4] = {0.0, -5.0, INT32_MAX, INT32_MIN};
    expect_same(table, "/a/b/ints", DPE_COL_F64, as_reals, sizeof as_reals);
    const int64_t wide[4] = {0, 255, 5, 6};
    expect_same(table, "/a/b/bytes", DPE_COL_I64, wide, sizeof wide);
    assert_int_equal(get(table, "/x", DPE_COL_I32, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/x", DPE_COL_U16, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/a/naturals", DPE_COL_I64, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/a/b/ints", DPE_COL_U64, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/a/reals", DPE_COL_I64, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/a/reals", DPE_COL_F32, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/a/b/texts", DPE_COL_F64, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/a/reals", DPE_COL_STRING, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/not/there", DPE_COL_F64, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/a", DPE_COL_F64, &err), DPE_BAD_DATA);
    char **strings = NULL;
    size_t n = 0;
    assert_int_equal(dpe_h5_get_strings(table, "/a/reals", &strings, &n, &err), DPE_BAD_DATA);
    dpe_h5_close(table);
}

/* One column that must be refused, and part of why. */
struct refusal {
    struct dpe_column column;
    const char *why;
};

static dpe_status fill_refused(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct refusal *refusal = user;
    dpe_status status = fill_types(NULL, table, err);
    dpe_h5_put(table, &refusal->column);
    /* The first failure stays, and a writer that does not ask cannot get past it. */
    dpe_h5_attr_text(table, "/a", "later", "too late");
    assert_int_not_equal(dpe_h5_failed(table, NULL), DPE_OK);
    dpe_h5_stop(table, DPE_IO, "later still");
    return status;
}

static void what_cannot_be_put_is_refused(void **state)
{
    struct scratch *scratch = *state;
    static const char *const bad[1] = {"\xc3"};
    static const struct refusal refusals[] = {
        {{"/x", DPE_COL_I64, 1, {4}, {NULL}, numbers, "again", "1", NULL, true}, "exists"},
        {{"x", DPE_COL_I64, 1, {4}, {NULL}, numbers, "no slash", "1", NULL, true}, "not a path"},
        {{"/y//z", DPE_COL_I64, 1, {4}, {NULL}, numbers, "empty", "1", NULL, true}, "not a path"},
        {{"/y z", DPE_COL_I64, 1, {4}, {NULL}, numbers, "space", "1", NULL, true}, "not a path"},
        {{"/y", DPE_COL_I64, 1, {4}, {"/z"}, numbers, "no such scale", "1", NULL, false}, "scale"},
        {{"/y", DPE_COL_I64, 1, {3}, {"/x"}, numbers, "length", "1", NULL, false},
         "scale /x has 4"},
        {{"/y", DPE_COL_I64, 1, {4}, {NULL}, numbers, "none", "1", NULL, false}, "scales"},
        {{"/y", DPE_COL_I64, 1, {0}, {"/a/none"}, NULL, "far away", "1", NULL, false}, "above it"},
        {{"/y", DPE_COL_I64, 1, {4}, {"/a"}, numbers, "a group", "1", NULL, false}, "scale"},
        {{"/y", DPE_COL_I64, 1, {4}, {"/x"}, numbers, NULL, "1", NULL, false}, "long_name"},
        {{"/y", DPE_COL_I64, 1, {-1}, {"/x"}, numbers, "negative", "1", NULL, false}, "sizes"},
        {{"/y", DPE_COL_I64, 6, {4}, {"/x"}, numbers, "rank", "1", NULL, false}, "rank"},
        {{"/y", DPE_COL_I64, 2, {INT64_MAX, 4}, {"/x", "/x"}, numbers, "large", "1", NULL, false},
         "sizes"},
        {{"/y", DPE_COL_STRING, 1, {1}, {NULL}, bad, "not UTF-8", "1", NULL, true}, "UTF-8"},
        {{"/run/y", DPE_COL_I64, 1, {4}, {"/x"}, numbers, "run", "1", NULL, false}, "in /run"},
        {{"/x/y", DPE_COL_I64, 0, {0}, {NULL}, numbers, "in a dataset", "1", NULL, false}, "/x/y"},
    };
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct refusal refusal = refusals[i];
        dpe_status status = dpe_run_snapshot(run, true, fill_refused, &refusal, &err);
        assert_true(status == DPE_INTERNAL || status == DPE_BAD_DATA);
        if (strstr(err.text, refusal.why) == NULL) {
            print_message("%zu: %s\n", i, err.text);
        }
        assert_non_null(strstr(err.text, refusal.why));
        assert_false(exists(scratch->table));
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

enum { LARGE_X = 700, LARGE_Y = 501 };

static dpe_status fill_large(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    static const int64_t scale[LARGE_X] = {0};
    const struct dpe_column columns[] = {
        {"/x", DPE_COL_I64, 1, {LARGE_X}, {NULL}, scale, "x", "1", NULL, true},
        {"/y", DPE_COL_I64, 1, {LARGE_Y}, {NULL}, scale, "y", "1", NULL, true},
        {"/two", DPE_COL_I64, 1, {2}, {NULL}, scale, "two", "1", NULL, true},
        {"/large",
         DPE_COL_F64,
         3,
         {2, LARGE_X, LARGE_Y},
         {"/two", "/x", "/y"},
         user,
         "large",
         "1",
         NULL,
         false},
    };
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        dpe_h5_put(table, &columns[i]);
    }
    return dpe_h5_failed(table, err);
}

static void many_chunks_come_back(void **state)
{
    struct scratch *scratch = *state;
    size_t n = (size_t)2 * LARGE_X * LARGE_Y;
    double *values = malloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        values[i] = sin((double)i);
    }
    struct dpe_h5 *table = write_and_open(scratch, fill_large, values);
    void *data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_h5_get(table, "/large", DPE_COL_F64, &data, &rank, dims, &err), DPE_OK);
    assert_int_equal(rank, 3);
    assert_int_equal(dims[0] * dims[1] * dims[2], n);
    assert_memory_equal(data, values, n * sizeof *values);
    free(data);
    free(values);
    dpe_h5_close(table);
}

/* A file of another program, as it would be with the checksum that SCHEMA.md describes. */
static void copy_with_trailer(const char *from, const char *to)
{
    size_t n = 0;
    char *file = slurp(from, &n);
    char *longer = realloc(file, n + DPE_TRAILER);
    assert_non_null(longer);
    dpe_trailer_make((unsigned char *)longer + n, longer, n);
    spill(to, longer, n + DPE_TRAILER);
    free(longer);
}

static void readers_refuse_what_is_not_a_table(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_h5 *table = NULL;
    struct dpe_error err = {0};
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_NO_INPUT);
    assert_int_equal(dpe_h5_open(scratch->folder, &table, &err), DPE_NO_INPUT);
    spill(scratch->table, "no", 2);
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "out.h5"));
    assert_non_null(strstr(err.text, "cannot be read as HDF5"));
    assert_int_equal(dpe_h5_open(DPE_SOURCE_DIR "/tests/golden/outputs/other.h5", &table, &err),
                     DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "has no checksum"));
    copy_with_trailer(DPE_SOURCE_DIR "/tests/golden/outputs/other.h5", scratch->table);
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "schema_name"));
    unlink(scratch->table);
    /* A table of a later major version. */
    dpe_h5_close(write_and_open(scratch, NULL, NULL));
    size_t n = 0;
    char *file = slurp(scratch->table, &n);
    char *version = NULL;
    for (size_t i = 0; i + 5 < n; i++) {
        version = memcmp(file + i, "9.0.0", 6) == 0 ? file + i : version;
    }
    assert_non_null(version);
    version[1] = '9';
    dpe_trailer_make((unsigned char *)file + n - DPE_TRAILER, file, n - DPE_TRAILER);
    spill(scratch->table, file, n);
    free(file);
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "990.0"));
    struct dpe_run *run = NULL;
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_CANNOT_CREATE);
}

static void a_dataset_larger_than_its_file_is_refused(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_h5 *table = NULL;
    struct dpe_error err = {0};
    copy_with_trailer(DPE_SOURCE_DIR "/tests/golden/outputs/huge.h5", scratch->table);
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
    assert_int_equal(get(table, "/huge", DPE_COL_F64, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "claims"));
    char **strings = NULL;
    size_t n = 0;
    assert_int_equal(dpe_h5_get_strings(table, "/words", &strings, &n, &err), DPE_BAD_DATA);
    assert_int_equal(get(table, "/deep", DPE_COL_F64, &err), DPE_BAD_DATA);
    dpe_h5_close(table);
    (void)scratch;
}

/* layers × heads × pairs, all moving, as in the tables of models of 135M, 70B and 405B parameters.
 */
static const int64_t masks[][3] = {{30, 9, 32}, {80, 64, 64}, {126, 128, 64}};
enum { MASKS = sizeof masks / sizeof masks[0] };

static dpe_status fill_masks(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    for (int i = 0; i < MASKS; i++) {
        const int64_t *dims = masks[i];
        char path[3][32];
        const char axes[] = "lhp";
        for (int a = 0; a < 3; a++) {
            snprintf(path[a], sizeof path[a], "/%c%d", axes[a], i);
            dpe_h5_put_count(table, path[a], dims[a], "axis");
        }
        char name[32];
        snprintf(name, sizeof name, "/mask%d", i);
        const struct dpe_column column = {name,
                                          DPE_COL_U8,
                                          3,
                                          {dims[0], dims[1], dims[2]},
                                          {path[0], path[1], path[2]},
                                          user,
                                          "mask",
                                          "1",
                                          NULL,
                                          false};
        dpe_h5_put(table, &column);
    }
    return dpe_h5_failed(table, err);
}

static void equal_values_are_read_whatever_their_number(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    size_t most = (size_t)(masks[MASKS - 1][0] * masks[MASKS - 1][1] * masks[MASKS - 1][2]);
    unsigned char *ones = dpe_alloc(most, 1);
    assert_non_null(ones);
    memset(ones, 1, most);
    struct dpe_h5 *table = write_and_open(scratch, fill_masks, ones);
    for (int i = 0; i < MASKS; i++) {
        char name[32];
        void *data = NULL;
        int rank = 0;
        int64_t dims[5] = {0};
        snprintf(name, sizeof name, "/mask%d", i);
        assert_int_equal(dpe_h5_get(table, name, DPE_COL_F64, &data, &rank, dims, &err), DPE_OK);
        assert_int_equal(rank, 3);
        assert_memory_equal(dims, masks[i], sizeof masks[i]);
        int64_t n = dims[0] * dims[1] * dims[2];
        assert_true(((double *)data)[0] == 1.0 && ((double *)data)[n - 1] == 1.0);
        free(data);
    }
    dpe_h5_close(table);
    free(ones);
}

static dpe_status fill_nested(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const int64_t *n = user;
    dpe_h5_put_count(table, "/sample", n[0], "samples");
    dpe_h5_put_count(table, "/a/b/sample", n[1], "other samples");
    return dpe_h5_failed(table, err);
}

/* Readers of trees take a dimension for the one of its name in a folder above. */
static void a_scale_has_the_length_of_its_namesake_above(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    int64_t n[2] = {4, 4};
    dpe_h5_close(write_and_open(scratch, fill_nested, n));
    n[1] = 5;
    scratch_clear(scratch);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, fill_nested, n, &err), DPE_INTERNAL);
    assert_non_null(strstr(err.text, "/a/b/sample: has 5 values, the scale /sample has 4"));
    dpe_run_close(run, &err);
}

/* What another program made room for and did not write: the values are there, as fill values. */
static void values_that_were_never_written_are_read(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_h5 *table = NULL;
    struct dpe_error err = {0};
    dpe_h5_close(write_and_open(scratch, NULL, NULL));
    hid_t file = H5Fopen(scratch->table, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, (const hsize_t[]){100000}, NULL);
    hid_t set =
        H5Dcreate2(file, "/sparse", H5T_STD_I16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0 && space >= 0 && set >= 0);
    assert_int_equal(H5Dget_storage_size(set), 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(file);
    copy_with_trailer(scratch->table, scratch->table);
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
    assert_int_equal(get(table, "/sparse", DPE_COL_F64, &err), DPE_OK);
    dpe_h5_close(table);
}

static dpe_status fill_some(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_column columns[] = {
        {"/x", DPE_COL_I64, 1, {4}, {NULL}, numbers, "x", "m", NULL, true},
        {"/a/reals", DPE_COL_F64, 1, {4}, {"/x"}, reals, "reals", "1", NULL, false},
        {"/a/texts", DPE_COL_STRING, 1, {4}, {"/x"}, texts, "texts", "1", NULL, false},
        {"/run/x", DPE_COL_I64, 1, {4}, {NULL}, numbers, "x", "m", NULL, true},
        {"/run/mood", DPE_COL_STRING, 1, {4}, {"/run/x"}, user, "mood", "1", NULL, false},
    };
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        dpe_h5_put(table, &columns[i]);
    }
    return dpe_h5_failed(table, err);
}

static void equal_runs_give_equal_tables(void **state)
{
    static const char *moods[2][4] = {{"a", "b", "c", "d"}, {"good", "better", "best", "well"}};
    struct scratch *scratch = *state;
    char first[160];
    snprintf(first, sizeof first, "%s/first.h5", scratch->folder);
    for (int pass = 0; pass < 2; pass++) {
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        struct dpe_identity info = {0};
        char value[3000];
        memset(value, 'x', sizeof value - 1);
        value[pass == 0 ? 3 : sizeof value - 1] = '\0';
        /* As different as /run can be: other names, other lengths, another number of sessions. */
        assert_int_equal(dpe_identity_add(&info, pass == 0 ? "device" : "gpu", value, &err),
                         DPE_OK);
        const struct dpe_run_options options = {.info = &info};
        for (int i = 0; i < 80; i++) {
            if (i == 0 || (pass == 1 && i % 20 == 0)) {
                assert_int_equal(dpe_run_close(run, &err), DPE_OK);
                assert_int_equal(fixture_open(scratch, 1, &options, &run, &err), DPE_OK);
            }
            struct dpe_row row = fixture_row(pass == 0 ? i : (i * 37 + 11) % 80);
            row.seconds = pass * 1000.0 + i;
            assert_int_equal(dpe_run_add(run, &row, &err), DPE_OK);
            dpe_row_free(&row);
        }
        assert_int_equal(dpe_run_snapshot(run, true, fill_some, moods[pass], &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        dpe_identity_free(&info);
        if (pass == 0) {
            assert_int_equal(rename(scratch->table, first), 0);
        }
    }
    assert_int_equal(shell("h5diff --exclude-path=/run '%s' '%s'", first, scratch->table), 0);
    assert_int_equal(
        shell("test -z \"$(h5diff --exclude-path=/run '%s' '%s' 2>&1)\"", first, scratch->table),
        0);
    /* And h5diff does see what differs. */
    assert_int_equal(shell("h5diff '%s' '%s' >/dev/null 2>&1", first, scratch->table), 1);
}

static void the_table_follows_the_schema(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    for (int n = 0; n < 30; n += 29) {
        scratch_clear(scratch);
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        for (int i = 0; i < n; i++) {
            assert_int_equal(fixture_add(run, i, &err), DPE_OK);
        }
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        assert_int_equal(schema_check(scratch->table), 0);
    }
    /* The check itself notices a path too many and ones that are missing. */
    dpe_h5_close(write_and_open(scratch, fill_types, NULL));
    print_message("(the next fifteen lines are expected)\n");
    assert_int_equal(schema_check(scratch->table), 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(every_type_comes_back),
        WITH_SCRATCH(conversions_lose_nothing),
        WITH_SCRATCH(what_cannot_be_put_is_refused),
        WITH_SCRATCH(many_chunks_come_back),
        WITH_SCRATCH(readers_refuse_what_is_not_a_table),
        WITH_SCRATCH(a_dataset_larger_than_its_file_is_refused),
        WITH_SCRATCH(equal_values_are_read_whatever_their_number),
        WITH_SCRATCH(a_scale_has_the_length_of_its_namesake_above),
        WITH_SCRATCH(values_that_were_never_written_are_read),
        WITH_SCRATCH(equal_runs_give_equal_tables),
        WITH_SCRATCH(the_table_follows_the_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

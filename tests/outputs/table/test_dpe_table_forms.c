/* The forms of a table: JSON, safetensors and the paper's YAML read back equal, and damaged or
 * foreign ones are refused. */
#include "tests/outputs/table/dpe_table_case.h"

#include <stdio.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/base/bytes.h"
#include "outputs/export/export.h"
#include "outputs/table/fields.h"

static void write_file(char path[64], const char *bytes, size_t n)
{
    snprintf(path, 64, "/tmp/dpe-table-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

typedef dpe_status (*writer)(const struct dpe_table *, struct dpe_text *, struct dpe_error *);

/* A form of the table that has these values as its only entry. */
static void write_form(writer write, const struct dpe_table_values *v, struct dpe_text *out)
{
    struct dpe_table *table = NULL;
    assert_int_equal(dpe_table_make(v, &table, NULL), DPE_TABLE_OK);
    assert_int_equal(write(table, out, NULL), DPE_OK);
    dpe_table_close(table);
}

static void read_back_equal(struct dpe_table_values v)
{
    v.attention_scaling = 1.0 / 3.0;
    struct dpe_text out = {0};
    write_form(dpe_export_json, &v, &out);
    char path[64];
    write_file(path, out.bytes, out.n);
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    if (dpe_table_open(path, &table, why) != DPE_TABLE_OK) {
        fail_msg("%s", why);
    }
    expect_same(&v, dpe_table_values(table));
    dpe_table_close(table);
    unlink(path);
    /* Cut off anywhere, it is refused. */
    for (size_t n = 0; n + 2 < out.n; n += 13) {
        write_file(path, out.bytes, n);
        assert_int_equal(dpe_table_open(path, &table, why), DPE_TABLE_BAD_FILE);
        unlink(path);
    }
    dpe_text_free(&out);

    struct dpe_error err = {0};
    write_form(dpe_export_safetensors, &v, &out);
    if (dpe_import_safetensors("memory", out.bytes, out.n, &table, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    expect_same(&v, dpe_table_values(table));
    dpe_table_close(table);
    for (size_t n = 0; n < out.n; n += 7) {
        assert_int_equal(dpe_import_safetensors("memory", out.bytes, n, &table, &err),
                         DPE_BAD_DATA);
    }
    dpe_text_free(&out);
}

static void json_and_safetensors_read_back_equal(void **state)
{
    (void)state;
    read_back_equal(good());
    read_back_equal(warm());
    read_back_equal(measured());
    read_back_equal(other());
    struct dpe_table_values v = other();
    v.unrounded = 0;
    read_back_equal(v);
    v = other();
    v.applied_inv_freq = NULL;
    read_back_equal(v);
}

/* What says nothing is left out; every form has the one version. */
static void what_says_nothing_is_left_out(void **state)
{
    (void)state;
    static dpe_status (*const forms[])(const struct dpe_table *, struct dpe_text *,
                                       struct dpe_error *) = {dpe_export_json,
                                                              dpe_export_safetensors};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct dpe_text out = {0};
        struct dpe_table_values v = good();
        write_form(forms[i], &v, &out);
        const char *text = out.bytes + 8; /* the length of a safetensors header is before it */
        assert_non_null(strstr(text, DPE_TABLE_SCHEMA));
        assert_null(strstr(text, "log_n"));
        assert_null(strstr(text, "logit_scale"));
        assert_null(strstr(text, "unrounded"));
        dpe_text_free(&out);
        v = other();
        write_form(forms[i], &v, &out);
        assert_non_null(strstr(out.bytes + 8, "log_n_decay"));
        assert_non_null(strstr(out.bytes + 8, "unrounded"));
        dpe_text_free(&out);
    }
}

/* Text with `from` replaced by `to` is refused with an error that holds `words`. */
static void expect_json(const char *text, const char *from, const char *to,
                        enum dpe_table_error error, const char *words)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    char changed[32768];
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    char path[64];
    write_file(path, changed, strlen(changed));
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    int got = dpe_table_open(path, &table, why);
    unlink(path);
    dpe_table_close(table);
    if (got != (int)error || strstr(why, words) == NULL) {
        fail_msg("%s -> %s: error %d '%s'", from, to, got, why);
    }
}

static void other_versions_and_conventions_are_refused(void **state)
{
    (void)state;
    struct dpe_table_values v = good();
    struct dpe_text out = {0};
    write_form(dpe_export_json, &v, &out);
    const char *text = out.bytes;
    expect_json(text, DPE_TABLE_SCHEMA, "10.0.0", DPE_TABLE_VERSION,
                "expected schema version " DPE_TABLE_SCHEMA ", found '10.0.0'");
    expect_json(text, DPE_TABLE_SCHEMA, "2.0.0", DPE_TABLE_VERSION, "make it again");
    /* A larger minor, and a member that it adds, are read. */
    expect_json(text, DPE_TABLE_SCHEMA "\"", "9.1.0\", \"later\": [1]", DPE_TABLE_OK, "");
    expect_json(text, "\"top_k\": 5", "\"unrounded\": true, \"top_k\": 5", DPE_TABLE_BAD_FILE,
                "\"applied_inv_freq\": expected a list of 8 numbers");
    expect_json(text, "\"top_k\": 5", "\"applied_inv_freq\": [], \"top_k\": 5", DPE_TABLE_BAD_FILE,
                "\"unrounded\": expected true or false");
    expect_json(text, "\"top_k\": 5", "\"entries\": [], \"top_k\": 5", DPE_TABLE_BAD_FILE,
                "expected 1 to 64 entries");
    expect_json(text, "\"top_k\": 5", "\"log_n_length\": 256, \"top_k\": 5", DPE_TABLE_BAD_FILE,
                "\"logit_scale\": expected a number");
    expect_json(text, "\"local_window\": 30", "\"local_window\": 30.5", DPE_TABLE_BAD_FILE,
                "\"local_window\": expected a whole number");
    expect_json(text, "separable", "exact", DPE_TABLE_VERSION, "separable");
    expect_json(text, "half-split", "interleaved", DPE_TABLE_VERSION, "half-split");
    expect_json(text, "dpe-table", "other", DPE_TABLE_VERSION, "dpe-table");
    /* Nothing follows them in this form. */
    expect_json(text, "dpe-table", "dpe-table:x", DPE_TABLE_VERSION, "dpe-table");
    expect_json(text, "\"f32", "\"f32: foo", DPE_TABLE_VERSION, "f32");
    expect_json(text, "\"schema_name\"", "\"other\"", DPE_TABLE_VERSION,
                "schema_name is 'missing'");
    expect_json(text, "\"rounding\"", "\"other\"", DPE_TABLE_VERSION, "rounding is 'missing'");
    static const char *const moves[] = {"3", "null", "[\"frequencies\"]", "\"other\""};
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        char to[64];
        snprintf(to, sizeof to, "\"moves\": %s, \"top_k\"", moves[i]);
        expect_json(text, "\"top_k\"", to, DPE_TABLE_VERSION, "moves is ");
    }
    expect_json(text, "\"top_k\": 5", "\"top_k\": \"5\"", DPE_TABLE_BAD_FILE, "top_k");
    expect_json(text, "\"top_k\": 5", "\"top_k\": 4", DPE_TABLE_BAD_FILE, "top_k is 4");
    expect_json(text, "[0,2,5,8]", "[0,2,5]", DPE_TABLE_BAD_FILE, "list of 4");
    expect_json(text, "[0,2,5,8]", "[0,2,5,1e400]", DPE_TABLE_BAD_FILE, "");
    expect_json(text, "[[0,1,2,3,4]", "[[0,1,2,3,3]", DPE_TABLE_BAD_FILE, "distinct");
    expect_json(text, "[[0,1,2,3,4],", "[", DPE_TABLE_BAD_FILE, "each head");
    expect_json(text, "\"local_window\"", "\"top_k\"", DPE_TABLE_BAD_FILE, "duplicate");
    dpe_text_free(&out);
}

static struct dpe_table_values one_band(void)
{
    static double bands[2 * (DPE_TABLE_BAND_NUMBERS + 2 * PAIRS)];
    static double scale[GROUPS] = {1.0, 1.0, 1.0};
    static uint8_t all[sizeof mask];
    struct dpe_table_values v = other();
    memset(all, 1, sizeof all);
    v.unrounded = 0;
    v.scale_factor = scale;
    v.mask = all;
    v.top_k = PAIRS;
    v.n_bands = 1;
    v.bands = bands;
    return v;
}

/* Twice the numbers of a row of bands would be 2^64, or overflow. */
static void bands_of_impossible_heads_are_refused(void **state)
{
    (void)state;
    static const char *const sizes[] = {"9223372036854775798", "9223372036854775806",
                                        "4611686018427387884", "-22"};
    struct dpe_table_values v = one_band();
    struct dpe_text out = {0};
    write_form(dpe_export_json, &v, &out);
    assert_non_null(strstr(out.bytes, "\"bands\": [0.0"));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char to[64];
        snprintf(to, sizeof to, "\"head_dim\":%s", sizes[i]);
        expect_json(out.bytes, "\"head_dim\":16", to, DPE_TABLE_BAD_FILE,
                    "counts that a model can have");
    }
    dpe_text_free(&out);
}

/* A safetensors file of this header, with nothing after it, is refused with these words. */
static void expect_header(const char *header, const char *words)
{
    struct dpe_text out = {0};
    struct dpe_error err = {0};
    struct dpe_table *table = NULL;
    unsigned char length[8];
    dpe_store_u64(length, strlen(header), sizeof length);
    dpe_text_put_bytes(&out, length, sizeof length);
    dpe_text_put_bytes(&out, header, strlen(header));
    assert_int_equal(dpe_import_safetensors("memory", out.bytes, out.n, &table, &err),
                     DPE_BAD_DATA);
    if (strstr(err.text, words) == NULL) {
        fail_msg("%s: '%s'", words, err.text);
    }
    dpe_text_free(&out);
}

/* Refused for this field, after what `from` is in the header of these values became `to`. */
static void expect_tensor(const struct dpe_table_values *v, const char *from, const char *to,
                          const char *words)
{
    struct dpe_text out = {0};
    struct dpe_error err = {0};
    struct dpe_table *table = NULL;
    write_form(dpe_export_safetensors, v, &out);
    char *at = strstr(out.bytes + 8, from);
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    assert_int_equal(dpe_import_safetensors("memory", out.bytes, out.n, &table, &err),
                     DPE_BAD_DATA);
    assert_non_null(strstr(err.text, words));
    dpe_text_free(&out);
}

/* Shapes of as many elements as the model's, none of which a list of numbers would show; numbers
 * that JSON does not have; a shape without elements, of which a list would have 2^62. */
static void tensors_of_other_shapes_are_refused(void **state)
{
    (void)state;
    char from[64], to[64];
    struct dpe_table_values v = warm();
    snprintf(from, sizeof from, "\"shape\":[%d,%d]", LAYERS, HEADS);
    snprintf(to, sizeof to, "\"shape\":[%d,%d]", HEADS, LAYERS);
    expect_tensor(&v, from, to, "head_scale: expected numbers of the table's shape");
    snprintf(from, sizeof from, "\"shape\":[%d,%d,%d]", LAYERS, HEADS, PAIRS);
    snprintf(to, sizeof to, "\"shape\":[%d,%d,%d]", LAYERS, PAIRS, HEADS);
    expect_tensor(&v, from, to, "mask: expected numbers of the table's shape");
    expect_header("{\"__metadata__\":{},\"mask\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,"
                  "0,5],\"data_offsets\":[0,0]}}",
                  "mask: expected numbers");
    expect_header("{\"__metadata__\":{\"n_layers\":\"1\",\"n_heads\":\"4611686018427387904\","
                  "\"head_dim\":\"0\"},\"mask\":{\"dtype\":\"U8\",\"shape\":[1,4611686018427387904,"
                  "0],\"data_offsets\":[0,0]}}",
                  "mask: expected numbers");
    expect_header("{\"mask\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                  "mask: expected numbers");
    expect_header("{\"__metadata__\":\"none\"}", "schema_name");
    expect_header("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                  "schema_name");
}

/* All numbers of a band: without them there would be none. */
static void numbers_that_are_none_are_refused(void **state)
{
    (void)state;
    struct dpe_table_values v = one_band();
    struct dpe_text out = {0};
    struct dpe_error err = {0};
    struct dpe_table *table = NULL;
    write_form(dpe_export_safetensors, &v, &out);
    char *data = out.bytes + 8 + dpe_load_u64(out.bytes, 8);
    const char *at = strstr(strstr(out.bytes + 8, "\"bands\""), "offsets\":[");
    const long begin = strtol(at + strlen("offsets\":["), NULL, 10);
    const double none[] = {(double)NAN, (double)INFINITY};
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < 2 * (DPE_TABLE_BAND_NUMBERS + 2 * PAIRS); i++) {
            memcpy(data + begin + i * sizeof(double), &none[kind], sizeof(double));
        }
        assert_int_equal(dpe_import_safetensors("memory", out.bytes, out.n, &table, &err),
                         DPE_BAD_DATA);
        assert_non_null(strstr(err.text, "bands: expected numbers"));
    }
    dpe_text_free(&out);
}

static void entries_read_back_equal(void **state)
{
    (void)state;
    struct dpe_table *table = ladder();
    struct dpe_table *back = NULL;
    struct dpe_text out = {0};
    struct dpe_error err = {0};
    char path[64];
    char why[DPE_TABLE_MESSAGE] = "";
    assert_int_equal(dpe_export_json(table, &out, NULL), DPE_OK);
    assert_non_null(strstr(out.bytes, "\"schema_version\": \"" DPE_TABLE_SCHEMA "\""));
    write_file(path, out.bytes, out.n);
    if (dpe_table_open(path, &back, why) != DPE_TABLE_OK) {
        fail_msg("%s", why);
    }
    unlink(path);
    expect_ladder(back);
    dpe_table_close(back);
    for (size_t n = 0; n + 2 < out.n; n += 101) {
        write_file(path, out.bytes, n);
        assert_int_equal(dpe_table_open(path, &back, why), DPE_TABLE_BAD_FILE);
        unlink(path);
    }
    const struct {
        const char *from, *to;
        enum dpe_table_error error;
        const char *words;
    } wrong[] = {
        {"\"evaluated_length\": 2048", "\"evaluated_length\": 1024", DPE_TABLE_BAD_FILE,
         "two entries for 1024 tokens"},
        {"\"evaluated_length\": 2048", "\"evaluated_length\": 200", DPE_TABLE_BAD_FILE,
         "would never be used"},
        {"\"trained_length\": 256", "\"trained_length\": 128", DPE_TABLE_BAD_FILE,
         "disagree on the trained length"},
        {"[0,2,5,8]", "[0,2,6,8]", DPE_TABLE_BAD_FILE, "disagree on group_edge"},
        {"\"local_window\": 31", "\"local_window\": 0", DPE_TABLE_BAD_FILE,
         "the entry for 2048 tokens: local_window is 0"},
        {"\"log_n_power\"", "\"log_n_powers\"", DPE_TABLE_BAD_FILE,
         "\"entries[0].log_n_power\": expected a number"},
        {"\"entries\"", "\"entry\"", DPE_TABLE_BAD_FILE, "\"scale_factor\": expected a list"},
        {"\"scale_factor\": ", "\"scale_factor\": 4.0, \"x\": ", DPE_TABLE_BAD_FILE,
         "\"entries[0].scale_factor\": expected a list"},
        /* The key pairs of one would be read, those of all take too much memory. */
        {"\"n_layers\":2,\"n_heads\":4", "\"n_layers\":65536,\"n_heads\":64", DPE_TABLE_BAD_FILE,
         "in 3 entries"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_json(out.bytes, wrong[i].from, wrong[i].to, wrong[i].error, wrong[i].words);
    }
    dpe_text_free(&out);

    assert_int_equal(dpe_export_safetensors(table, &out, NULL), DPE_OK);
    if (dpe_import_safetensors("memory", out.bytes, out.n, &back, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    expect_ladder(back);
    dpe_table_close(back);
    for (size_t n = 0; n < out.n; n += 37) {
        assert_int_equal(dpe_import_safetensors("memory", out.bytes, n, &back, &err), DPE_BAD_DATA);
    }
    char *listed = strstr(out.bytes + 8, "1024,2048,4096");
    assert_non_null(listed);
    memcpy(listed, "1024,2048,9999", 14);
    assert_int_equal(dpe_import_safetensors("memory", out.bytes, out.n, &back, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "9999."));
    memcpy(listed, "1024;2048,4096", 14);
    assert_int_equal(dpe_import_safetensors("memory", out.bytes, out.n, &back, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "lengths, separated by commas"));
    dpe_text_free(&out);
    dpe_table_close(table);
}

/* In every form: single ones that are damaged, and several entries of which one holds
 * another method. */
static void other_methods_read_back_equal(void **state)
{
    (void)state;
    struct dpe_table_values v = other();
    struct dpe_text out = {0};
    struct dpe_error err = {0};
    char path[64];
    char why[DPE_TABLE_MESSAGE] = "";
    write_form(dpe_export_json, &v, &out);
    static const struct {
        const char *from, *to, *words;
    } wrong[] = {
        {"\"unrounded\": true", "\"unrounded\": 1", "\"unrounded\": expected true or false"},
        {"\"unrounded\"", "\"rounded\"", "\"unrounded\": expected true or false"},
        {"\"applied_inv_freq\"", "\"applied\"", "\"applied_inv_freq\": expected a list of 8"},
        {"\"applied_inv_freq\": [", "\"applied_inv_freq\": [7,", "expected a list of 8 numbers"},
        {"\"applied_inv_freq\": [1.0", "\"applied_inv_freq\": [-1.0", "applied_inv_freq[0] is -1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_json(out.bytes, wrong[i].from, wrong[i].to, DPE_TABLE_BAD_FILE, wrong[i].words);
    }
    dpe_text_free(&out);

    struct dpe_table *tables[3] = {rung(0), NULL, NULL};
    struct dpe_table *joined = NULL;
    struct dpe_table *back = NULL;
    v = other();
    v.length = 2048;
    assert_int_equal(dpe_table_make(&v, &tables[1], NULL), DPE_TABLE_OK);
    if (dpe_table_join((const struct dpe_table *const *)tables, 2, &joined, why) != DPE_TABLE_OK) {
        fail_msg("%s", why);
    }
    const struct dpe_table_values *first = dpe_table_values(dpe_table_entry(joined, 0));
    assert_true(first->unrounded == 0 && first->applied_inv_freq == NULL);
    for (int form = 0; form < 2; form++) {
        assert_int_equal((form == 0 ? dpe_export_json : dpe_export_safetensors)(joined, &out, NULL),
                         DPE_OK);
        if (form == 0) {
            write_file(path, out.bytes, out.n);
            assert_int_equal(dpe_table_open(path, &back, why), DPE_TABLE_OK);
            unlink(path);
        } else if (dpe_import_safetensors("memory", out.bytes, out.n, &back, &err) != DPE_OK) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(dpe_table_count(back), 2);
        for (int e = 0; e < 2; e++) {
            expect_same(dpe_table_values(dpe_table_entry(joined, e)),
                        dpe_table_values(dpe_table_entry(back, e)));
        }
        dpe_table_close(back);
        dpe_text_free(&out);
    }
    for (int i = 0; i < 3; i++) {
        dpe_table_close(tables[i]);
    }
    dpe_table_close(joined);
}

static void missing_files_are_reported(void **state)
{
    (void)state;
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    assert_int_equal(dpe_table_open("/nonexistent/t.h5", &table, why), DPE_TABLE_NO_FILE);
    assert_non_null(strstr(why, "/nonexistent/t.h5"));
    char path[64];
    write_file(path, "\211HDF\r\n\032\n and then nothing", 26);
    assert_int_equal(dpe_table_open(path, &table, why), DPE_TABLE_BAD_FILE);
    unlink(path);
    write_file(path, "", 0);
    assert_int_equal(dpe_table_open(path, &table, why), DPE_TABLE_BAD_FILE);
    assert_non_null(strstr(why, "is empty"));
    unlink(path);
    dpe_table_close(NULL);
}

static void yaml_round_trip(void **state)
{
    (void)state;
    struct dpe_table_values v = good();
    struct dpe_text out = {0};
    struct dpe_error err = {0};
    struct dpe_table_values settings;
    char *selected = NULL;
    assert_int_equal(dpe_export_yaml(&v, "a \"quoted\" name\n", "s.pt", &out, NULL), DPE_OK);
    if (dpe_import_yaml("memory", out.bytes, out.n, "a \"quoted\" name\n", &settings, &selected,
                        &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(settings.window, v.window);
    assert_int_equal(settings.n_groups, GROUPS);
    assert_memory_equal(settings.group_edge, edges, sizeof edges);
    assert_memory_equal(settings.scale_factor, scales, sizeof scales);
    assert_string_equal(selected, "s.pt");
    free(selected);
    dpe_table_values_free(&settings);
    assert_int_equal(
        dpe_import_yaml("memory", out.bytes, out.n, "other", &settings, &selected, &err),
        DPE_USAGE);
    dpe_text_free(&out);
    /* A list stays on its line, and a text is a text whatever it looks like. */
    assert_int_equal(dpe_export_yaml(&v, "no", "~", &out, NULL), DPE_OK);
    assert_non_null(strstr(out.bytes, "\n\"no\":\n  local_window_size: "));
    assert_non_null(strstr(out.bytes, "\n  dimension_groups_range: ["));
    assert_non_null(strstr(out.bytes, "]\n  scale_factors: ["));
    assert_non_null(strstr(out.bytes, "]\n  selected_dim_path: \"~\"\n"));
    dpe_text_free(&out);
    char name[300]; /* longer than what libyaml writes as a plain key */
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(dpe_export_yaml(&v, name, "s.pt", &out, NULL), DPE_OK);
    assert_int_equal(dpe_import_yaml("memory", out.bytes, out.n, name, &settings, &selected, &err),
                     DPE_OK);
    free(selected);
    dpe_table_values_free(&settings);
    dpe_text_free(&out);
    assert_int_equal(dpe_export_yaml(&v, "m\xff", "s.pt", &out, &err), DPE_USAGE);
    dpe_text_free(&out);
    static const char *const broken[] = {
        "",
        "m: [1, 2",
        "m: 3",
        "m: {local_window_size: 0, scale_factors: [1], dimension_groups_range: [0, 8]}",
        "m: {local_window_size: 8, scale_factors: [0.5], dimension_groups_range: [0, 8]}",
        "m: {local_window_size: 8, scale_factors: [2], dimension_groups_range: [0, 4, 8]}",
        "m: {local_window_size: 8, scale_factors: [two], dimension_groups_range: [0, 8]}",
        "m: {local_window_size: 8, dimension_groups_range: [0, 8]}",
        ("m: {local_window_size: 8, scale_factors: [2], dimension_groups_range: [0, 8], "
         "scale_factors: [3]}"),
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        assert_int_equal(dpe_import_yaml("memory", broken[i], strlen(broken[i]), NULL, &settings,
                                         &selected, &err),
                         DPE_BAD_DATA);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_and_safetensors_read_back_equal),
        cmocka_unit_test(what_says_nothing_is_left_out),
        cmocka_unit_test(other_versions_and_conventions_are_refused),
        cmocka_unit_test(bands_of_impossible_heads_are_refused),
        cmocka_unit_test(tensors_of_other_shapes_are_refused),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(entries_read_back_equal),
        cmocka_unit_test(other_methods_read_back_equal),
        cmocka_unit_test(missing_files_are_reported),
        cmocka_unit_test(yaml_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

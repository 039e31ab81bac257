/* The consumer library: what makes a table valid, its JSON form, and its positions against the
 * engine's plan of the same numbers. */
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

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "outputs/export/export.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, PAIRS = 8, GROUPS = 3 };

static int32_t edges[GROUPS + 1] = {0, 2, 5, 8};
static double scales[GROUPS] = {1.0, 4.0, 7.0};
static double effective[GROUPS] = {4096.0, 1024.0, -1.0};
static double inv_freq[PAIRS];
static uint8_t mask[LAYERS * HEADS * PAIRS];

static struct dpe_table_values good(void)
{
    for (int j = 0; j < PAIRS; j++) {
        inv_freq[j] = pow(10000.0, -(double)j / PAIRS);
    }
    for (int row = 0; row < LAYERS * HEADS; row++) {
        for (int j = 0; j < PAIRS; j++) {
            mask[row * PAIRS + j] = (row + j) % PAIRS < 5;
        }
    }
    return (struct dpe_table_values){
        .schema_version = (char *)(uintptr_t) "1.0.0",
        .model_type = (char *)(uintptr_t) "llama",
        .model_fingerprint = (char *)(uintptr_t) "00ff",
        .n_layers = LAYERS,
        .n_heads = HEADS,
        .n_kv_heads = KV_HEADS,
        .head_dim = 2 * PAIRS,
        .n_pairs = PAIRS,
        .trained_length = 256,
        .length = 4096,
        .window = 30,
        .top_k = 5,
        .n_groups = GROUPS,
        .group_edge = edges,
        .effective_length = effective,
        .scale_factor = scales,
        .inv_freq = inv_freq,
        .attention_scaling = 1.0,
        .logit_scale = 1.0,
        .log_n_power = 1.0,
        .mask = mask,
    };
}

/* The same with a temperature, which needs version 2. */
static struct dpe_table_values warm(void)
{
    struct dpe_table_values v = good();
    v.schema_version = (char *)(uintptr_t) "2.0.0";
    v.logit_scale = 1.3;
    v.log_n_length = 40.0;
    v.log_n_power = 0.7;
    v.log_n_decay = 1.0 / 3.0;
    return v;
}

static void expect_refused(const struct dpe_table_values *values, const char *words)
{
    char why[DPE_TABLE_MESSAGE] = "";
    struct dpe_table *table = NULL;
    assert_int_equal(dpe_table_make(values, &table, why), DPE_TABLE_BAD_FILE);
    if (strstr(why, words) == NULL) {
        fail_msg("expected '%s' in '%s'", words, why);
    }
    assert_null(table);
}

static void every_broken_rule_is_named(void **state)
{
    (void)state;
    struct dpe_table_values v = good();
    assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
    v.top_k = PAIRS + 1;
    expect_refused(&v, "top_k is 9");
    v = good();
    v.top_k = 4;
    expect_refused(&v, "marks 5 pairs, top_k is 4");
    v = good();
    v.n_kv_heads = 3;
    expect_refused(&v, "expected a multiple of the");
    v = good();
    v.head_dim = 15;
    expect_refused(&v, "head_dim is 15");
    v = good();
    v.n_layers = INT64_MAX;
    expect_refused(&v, "n_layers");
    v = good();
    v.window = 0;
    expect_refused(&v, "window is 0");
    v = good();
    v.attention_scaling = NAN;
    expect_refused(&v, "attention_scaling");
    v = good();
    v.inv_freq = NULL;
    expect_refused(&v, "missing");
    /* Pairs that do not rotate come last. */
    double some[PAIRS];
    memcpy(some, inv_freq, sizeof some);
    some[PAIRS - 1] = 0.0;
    v = good();
    v.inv_freq = some;
    char message[DPE_TABLE_MESSAGE];
    assert_int_equal(dpe_table_check(&v, message), DPE_TABLE_OK);
    some[PAIRS - 2] = 0.0;
    some[PAIRS - 1] = 0.5;
    expect_refused(&v, "expected a positive number");
    some[0] = 0.0;
    expect_refused(&v, "inv_freq[0] is 0");
    const struct {
        double *value, bad;
        const char *words;
    } temperatures[] = {
        {&v.logit_scale, 0.0, "logit_scale is 0, expected a number above 0"},
        {&v.logit_scale, -1.0, "logit_scale is -1"},
        {&v.logit_scale, NAN, "logit_scale"},
        {&v.logit_scale, INFINITY, "logit_scale"},
        {&v.log_n_length, 1.0, "log_n_length is 1, expected 0 (off) or a number above 1"},
        {&v.log_n_length, -5.0, "log_n_length is -5"},
        {&v.log_n_length, NAN, "log_n_length"},
        {&v.log_n_length, INFINITY, "log_n_length"},
        {&v.log_n_power, 0.0, "log_n_power is 0"},
        {&v.log_n_power, NAN, "log_n_power"},
        {&v.log_n_decay, -0.5, "log_n_decay is -0.5"},
        {&v.log_n_decay, NAN, "log_n_decay"},
    };
    for (size_t i = 0; i < sizeof temperatures / sizeof temperatures[0]; i++) {
        v = warm();
        assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
        *temperatures[i].value = temperatures[i].bad;
        expect_refused(&v, temperatures[i].words);
    }
    v = warm();
    v.schema_version = (char *)(uintptr_t) "1.1.0";
    expect_refused(&v, "schema version 1.1.0 has no temperature");
    static const struct {
        double scale, effective;
        const char *words;
    } numbers[] = {
        {0.5, 100.0, "scale_factor[1] is 0.5"}, {NAN, 100.0, "scale_factor[1]"},
        {INFINITY, 100.0, "scale_factor[1]"},   {2.0, NAN, "effective_length[1]"},
        {2.0, 0.0, "effective_length[1] is 0"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        v = good();
        double scale[GROUPS] = {1.0, numbers[i].scale, 1.0};
        double lengths[GROUPS] = {1.0, numbers[i].effective, 1.0};
        v.scale_factor = scale;
        v.effective_length = lengths;
        expect_refused(&v, numbers[i].words);
    }
    int32_t crossed[GROUPS + 1] = {0, 5, 5, 8};
    v = good();
    v.group_edge = crossed;
    expect_refused(&v, "group_edge[2] = 5 does not increase");
    int32_t early[GROUPS + 1] = {0, 2, 5, 7};
    v.group_edge = early;
    expect_refused(&v, "0 to 7, expected 0 to 8");
}

/* The engine's plan of the same numbers is the oracle. */
static void positions_are_the_engines(void **state)
{
    (void)state;
    struct dpe_table_values v = good();
    struct dpe_table *table = NULL;
    struct dpe_table *hot = NULL;
    struct dpe_table_values with = warm();
    assert_int_equal(dpe_table_make(&v, &table, NULL), DPE_TABLE_OK);
    assert_int_equal(dpe_table_make(&with, &hot, NULL), DPE_TABLE_OK);
    const struct dpe_config config = {.n_layers = LAYERS,
                                      .n_heads = HEADS,
                                      .n_kv_heads = KV_HEADS,
                                      .head_dim = 2 * PAIRS,
                                      .max_position = 256,
                                      .rope = {.theta = 10000.0, .partial_rotary_factor = 1.0}};
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = 256, .length = 4096};
    const struct dpe_dpe_params params = {
        .window = v.window, .n_groups = GROUPS, .edges = edges, .scale = scales, .mask = mask};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make_dpe(&params, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    const struct dpe_temperature temperature = {with.log_n_length, with.log_n_power,
                                                with.log_n_decay, with.logit_scale};
    struct dpe_plan hot_plan;
    assert_int_equal(dpe_plan_copy(&hot_plan, &plan, &err), DPE_OK);
    assert_int_equal(dpe_plan_set_temperature(&hot_plan, &temperature, &err), DPE_OK);
    struct dpe_plan of_table;
    assert_int_equal(dpe_plan_of_table(dpe_table_values(hot), &context, &of_table, &err), DPE_OK);
    static const int64_t queries[] = {0, 29, 30, 31, 100, 1000, 4095};
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        int64_t m = queries[i];
        double scale = dpe_plan_query_scale(&hot_plan, m);
        assert_true(fabs(dpe_table_query_scale(table, m) - 0.25) < 1e-15);
        assert_true(fabs(dpe_table_query_scale(hot, m) - scale) < 1e-15);
        assert_true(dpe_plan_query_scale(&of_table, m) == scale);
        assert_true((m < 40) == (fabs(scale - 0.25 * 1.3) < 1e-15));
        for (int64_t n = m; n >= 0; n -= 1 + n / 9) {
            enum dpe_table_band band = m - n < v.window ? DPE_TABLE_NEAR : DPE_TABLE_FAR;
            for (int64_t at = 0; at < (int64_t)LAYERS * HEADS * PAIRS; at++) {
                int64_t layer = at / (HEADS * PAIRS);
                int64_t head = at / PAIRS % HEADS;
                int64_t pair = at % PAIRS;
                struct dpe_rel want = dpe_plan_position(&plan, layer, head, pair, m, n);
                double q = dpe_table_position(table, layer, head, pair, band, DPE_TABLE_QUERY, m);
                double k = dpe_table_position(table, layer, head, pair, band, DPE_TABLE_KEY, n);
                assert_true(want.rel == q - k);
            }
        }
    }
    float cosines[2 * PAIRS];
    float sines[2 * PAIRS];
    dpe_table_cos_sin(table, 1, 2, DPE_TABLE_FAR, DPE_TABLE_KEY, 4000, 2, cosines, sines);
    for (int64_t j = 0; j < PAIRS; j++) {
        double position = dpe_table_position(table, 1, 2, j, DPE_TABLE_FAR, DPE_TABLE_KEY, 4001);
        double angle = (double)((float)position * (float)inv_freq[j]);
        assert_true(cosines[PAIRS + j] == (float)cos(angle));
        assert_true(sines[PAIRS + j] == (float)sin(angle));
    }
    dpe_plan_free(&of_table);
    dpe_plan_free(&hot_plan);
    dpe_plan_free(&plan);
    dpe_table_close(hot);
    dpe_table_close(table);
}

static void write_file(char path[64], const char *bytes, size_t n)
{
    snprintf(path, 64, "/tmp/dpe-table-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void expect_same(const struct dpe_table_values *a, const struct dpe_table_values *b)
{
    assert_string_equal(a->schema_version, b->schema_version);
    assert_string_equal(a->model_type, b->model_type);
    assert_string_equal(a->model_fingerprint, b->model_fingerprint);
    assert_true(a->n_layers == b->n_layers && a->n_heads == b->n_heads &&
                a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim);
    assert_true(a->trained_length == b->trained_length && a->length == b->length &&
                a->window == b->window && a->top_k == b->top_k && a->n_groups == b->n_groups);
    assert_true(a->attention_scaling == b->attention_scaling);
    assert_true(a->logit_scale == b->logit_scale && a->log_n_length == b->log_n_length &&
                a->log_n_power == b->log_n_power && a->log_n_decay == b->log_n_decay);
    assert_memory_equal(a->group_edge, b->group_edge, sizeof edges);
    assert_memory_equal(a->effective_length, b->effective_length, sizeof effective);
    assert_memory_equal(a->scale_factor, b->scale_factor, sizeof scales);
    assert_memory_equal(a->inv_freq, b->inv_freq, sizeof inv_freq);
    assert_memory_equal(a->mask, b->mask, sizeof mask);
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
}

/* A table without a temperature is what it was; of one with a temperature, what readers of version
 * 1 look at has changed: the version, and in safetensors, where they look at none, the adapter. */
static void readers_of_version_1_refuse_a_temperature(void **state)
{
    (void)state;
    struct dpe_table_values v = good();
    assert_string_equal(dpe_table_version_needed(&v), "1.1.0");
    struct dpe_text out = {0};
    write_form(dpe_export_json, &v, &out);
    assert_null(strstr(out.bytes, "log_n"));
    assert_null(strstr(out.bytes, "logit_scale"));
    dpe_text_free(&out);
    write_form(dpe_export_safetensors, &v, &out);
    assert_non_null(strstr(out.bytes + 8, "\"adapter_required\":\"true\""));
    assert_null(strstr(out.bytes + 8, "log_n"));
    dpe_text_free(&out);
    v = warm();
    assert_string_equal(dpe_table_version_needed(&v), "2.0.0");
    write_form(dpe_export_safetensors, &v, &out);
    assert_null(strstr(out.bytes + 8, "\"adapter_required\":\"true\""));
    dpe_text_free(&out);
    write_form(dpe_export_json, &v, &out);
    assert_non_null(strstr(out.bytes, "\"schema_version\": \"2.0.0\""));
    dpe_text_free(&out);
}

/* Text with `from` replaced by `to` is refused with an error that holds `words`. */
static void expect_json_refused(const char *text, const char *from, const char *to,
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
    expect_json_refused(text, "1.0.0", "5.0.0", DPE_TABLE_VERSION,
                        "expected schema version 1.x, 2.x, 3.x or 4.x, found 5.0.0");
    expect_json_refused(text, "1.0.0", "4.0.0", DPE_TABLE_VERSION, "\"moves\" is 'missing'");
    expect_json_refused(text, "1.0.0", "3.0.0", DPE_TABLE_BAD_FILE, "\"entries\": expected a list");
    expect_json_refused(text, "\"top_k\": 5", "\"entries\": [], \"top_k\": 5", DPE_TABLE_BAD_FILE,
                        "none in a table of schema version 1, 2 or 4");
    expect_json_refused(text, "1.0.0", "2.0.0", DPE_TABLE_BAD_FILE, "\"logit_scale\": expected");
    expect_json_refused(text, "\"top_k\": 5", "\"log_n_length\": 256, \"top_k\": 5",
                        DPE_TABLE_BAD_FILE, "none in a table of schema version 1");
    expect_json_refused(text, "separable", "exact", DPE_TABLE_VERSION, "separable");
    expect_json_refused(text, "half-split", "interleaved", DPE_TABLE_VERSION, "half-split");
    expect_json_refused(text, "dpe-table", "other", DPE_TABLE_VERSION, "dpe-table");
    expect_json_refused(text, "\"top_k\": 5", "\"top_k\": \"5\"", DPE_TABLE_BAD_FILE, "top_k");
    expect_json_refused(text, "\"top_k\": 5", "\"top_k\": 4", DPE_TABLE_BAD_FILE, "top_k is 4");
    expect_json_refused(text, "[0,2,5,8]", "[0,2,5]", DPE_TABLE_BAD_FILE, "list of 4");
    expect_json_refused(text, "[0,2,5,8]", "[0,2,5,1e400]", DPE_TABLE_BAD_FILE, "");
    expect_json_refused(text, "[[0,1,2,3,4]", "[[0,1,2,3,3]", DPE_TABLE_BAD_FILE, "distinct");
    expect_json_refused(text, "[[0,1,2,3,4],", "[", DPE_TABLE_BAD_FILE, "each head");
    expect_json_refused(text, "\"local_window\"", "\"top_k\"", DPE_TABLE_BAD_FILE, "duplicate");
    dpe_text_free(&out);
}

/* ------------------------------------------------------------------------ several entries */

/* Entry `i` of three: 1024, 2048, 4096 tokens, each with its own window, scales, pairs,
 * temperature.
 */
static struct dpe_table *rung(int i)
{
    static double own_scales[3][GROUPS] = {{1.0, 1.0, 2.0}, {1.0, 2.0, 4.0}, {1.0, 4.0, 7.0}};
    struct dpe_table_values v = i == 1 ? warm() : good();
    struct dpe_table *table = NULL;
    v.length = INT64_C(1024) << i;
    v.window = 30 + i;
    v.scale_factor = own_scales[i];
    if (i == 2) {
        v.top_k = PAIRS;
        memset(mask, 1, sizeof mask);
    }
    assert_int_equal(dpe_table_make(&v, &table, NULL), DPE_TABLE_OK);
    return table;
}

static struct dpe_table *ladder(void)
{
    /* In any order. */
    struct dpe_table *rungs[3] = {rung(2), rung(0), rung(1)};
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    if (dpe_table_join((const struct dpe_table *const *)rungs, 3, &table, why) != DPE_TABLE_OK) {
        fail_msg("%s", why);
    }
    for (int i = 0; i < 3; i++) {
        dpe_table_close(rungs[i]);
    }
    return table;
}

static void expect_ladder(const struct dpe_table *table)
{
    assert_int_equal(dpe_table_count(table), 3);
    for (int i = 0; i < 3; i++) {
        struct dpe_table *want = rung(i);
        struct dpe_table_values values = *dpe_table_values(want);
        values.schema_version = (char *)(uintptr_t) "3.0.0";
        expect_same(&values, dpe_table_values(dpe_table_entry(table, i)));
        dpe_table_close(want);
    }
    /* What is asked of the whole is asked of the longest. */
    assert_ptr_equal(dpe_table_values(table)->mask,
                     dpe_table_values(dpe_table_entry(table, 2))->mask);
    assert_true(dpe_table_scale(table, 0, 0, PAIRS - 1) == 7.0);
}

static void the_length_of_the_text_chooses_the_entry(void **state)
{
    (void)state;
    struct dpe_table *table = ladder();
    struct dpe_table *one = rung(0);
    const struct {
        int64_t tokens, length;
    } cases[] = {{1, 0},       {256, 0},     {257, 1024},  {1024, 1024},  {1025, 2048},
                 {2048, 2048}, {2049, 4096}, {4096, 4096}, {100000, 4096}};
    expect_ladder(table);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dpe_table *entry = dpe_table_choose(table, cases[i].tokens);
        assert_int_equal(entry != NULL ? dpe_table_values(entry)->length : 0, cases[i].length);
        entry = dpe_table_choose(one, cases[i].tokens);
        assert_ptr_equal(entry, cases[i].length > 0 ? one : NULL);
    }
    /* An entry alone is a table of the version that it needs. */
    const struct dpe_table *entry = dpe_table_entry(table, 1);
    struct dpe_table *alone = NULL;
    assert_int_equal(dpe_table_join(&entry, 1, &alone, NULL), DPE_TABLE_OK);
    assert_string_equal(dpe_table_values(alone)->schema_version, "2.0.0");
    assert_int_equal(dpe_table_count(alone), 1);
    dpe_table_close(alone);
    /* A table of several entries takes more. */
    const struct dpe_table *const twice[] = {table, one};
    char why[DPE_TABLE_MESSAGE] = "";
    assert_int_equal(dpe_table_join(twice, 2, &alone, why), DPE_TABLE_BAD_FILE);
    assert_string_equal(why, "there are two entries for 1024 tokens");
    dpe_table_close(one);
    dpe_table_close(table);
}

static void entries_that_disagree_are_refused_by_name(void **state)
{
    (void)state;
    static int32_t other_edges[GROUPS + 1] = {0, 3, 5, 8};
    static int32_t two_edges[GROUPS] = {0, 3, 8};
    struct dpe_table *first = rung(0);
    struct dpe_table_values v = good();
    const struct {
        int64_t *number, value;
        const char *words;
    } numbers[] = {
        {&v.n_layers, 1, "disagree on n_layers (2 and 1)"},
        {&v.n_kv_heads, 4, "disagree on n_kv_heads (2 and 4)"},
        {&v.trained_length, 512, "disagree on the trained length (256 and 512)"},
        {&v.length, 1024, "two entries for 1024 tokens"},
        {&v.length, 256, "the entry for 256 tokens would never be used"},
        {&v.n_groups, 2, "disagree on the number of groups (3 and 2)"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] + 3; i++) {
        const char *words = "";
        v = good();
        if (i < sizeof numbers / sizeof numbers[0]) {
            *numbers[i].number = numbers[i].value;
            words = numbers[i].words;
            v.group_edge = numbers[i].number == &v.n_groups ? two_edges : edges;
        } else if (i == sizeof numbers / sizeof numbers[0]) {
            v.group_edge = other_edges;
            words = "disagree on group_edge";
        } else if (i == sizeof numbers / sizeof numbers[0] + 1) {
            v.model_fingerprint = (char *)(uintptr_t) "00fe";
            words = "disagree on the model's fingerprint";
        } else {
            v.model_type = (char *)(uintptr_t) "qwen2";
            words = "disagree on model_type";
        }
        struct dpe_table *second = NULL;
        struct dpe_table *joined = NULL;
        char why[DPE_TABLE_MESSAGE] = "";
        assert_int_equal(dpe_table_make(&v, &second, NULL), DPE_TABLE_OK);
        const struct dpe_table *const both[] = {first, second};
        assert_int_equal(dpe_table_join(both, 2, &joined, why), DPE_TABLE_BAD_FILE);
        if (strstr(why, words) == NULL) {
            fail_msg("expected '%s' in '%s'", words, why);
        }
        assert_null(joined);
        dpe_table_close(second);
    }
    dpe_table_close(first);
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
    assert_non_null(strstr(out.bytes, "\"schema_version\": \"3.0.0\""));
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
        {"3.0.0", "2.0.0", DPE_TABLE_BAD_FILE, "none in a table of schema version 1, 2 or 4"},
        {"3.0.0", "5.0.0", DPE_TABLE_VERSION, "4.x, found 5.0.0"},
        {"\"evaluated_length\": 2048", "\"evaluated_length\": 1024", DPE_TABLE_BAD_FILE,
         "two entries for 1024 tokens"},
        {"\"evaluated_length\": 2048", "\"evaluated_length\": 200", DPE_TABLE_BAD_FILE,
         "would never be used"},
        {"\"trained_length\": 256", "\"trained_length\": 128", DPE_TABLE_BAD_FILE,
         "disagree on the trained length"},
        {"[0,2,5,8]", "[0,2,6,8]", DPE_TABLE_BAD_FILE, "disagree on group_edge"},
        {"\"local_window\": 31", "\"local_window\": 0", DPE_TABLE_BAD_FILE,
         "the entry for 2048 tokens: window is 0"},
        {"\"log_n_power\"", "\"log_n_powers\"", DPE_TABLE_BAD_FILE,
         "\"entries[0].log_n_power\": expected a number"},
        {"\"entries\"", "\"entry\"", DPE_TABLE_BAD_FILE, "\"entries\": expected a list"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_json_refused(out.bytes, wrong[i].from, wrong[i].to, wrong[i].error, wrong[i].words);
    }
    dpe_text_free(&out);

    assert_int_equal(dpe_export_safetensors(table, &out, NULL), DPE_OK);
    if (dpe_import_safetensors("memory", out.bytes, out.n, &back, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    expect_ladder(back);
    dpe_table_close(back);
    /* Readers of earlier versions look at this word. */
    assert_non_null(strstr(out.bytes + 8, "\"adapter_required\":\"entries\""));
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
    struct dpe_yaml_settings settings;
    assert_int_equal(dpe_export_yaml(&v, "a \"quoted\" name\n", "s.pt", &out, NULL), DPE_OK);
    if (dpe_import_yaml("memory", out.bytes, out.n, "a \"quoted\" name\n", &settings, &err) !=
        DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(settings.window, v.window);
    assert_int_equal(settings.n_groups, GROUPS);
    assert_memory_equal(settings.edges, edges, sizeof edges);
    assert_memory_equal(settings.scale, scales, sizeof scales);
    assert_string_equal(settings.selected, "s.pt");
    dpe_yaml_settings_free(&settings);
    assert_int_equal(dpe_import_yaml("memory", out.bytes, out.n, "other", &settings, &err),
                     DPE_USAGE);
    dpe_text_free(&out);
    /* A list stays on its line, and a text is a text whatever it looks like. */
    assert_int_equal(dpe_export_yaml(&v, "no", "~", &out, NULL), DPE_OK);
    assert_non_null(strstr(out.bytes, "\n\"no\":\n  local_window_size: "));
    assert_non_null(strstr(out.bytes, "\n  scale_factors: ["));
    assert_non_null(strstr(out.bytes, "]\n  dimension_groups_range: ["));
    assert_non_null(strstr(out.bytes, "]\n  selected_dim_path: \"~\"\n"));
    dpe_text_free(&out);
    char name[300]; /* longer than what libyaml writes as a plain key */
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(dpe_export_yaml(&v, name, "s.pt", &out, NULL), DPE_OK);
    assert_int_equal(dpe_import_yaml("memory", out.bytes, out.n, name, &settings, &err), DPE_OK);
    dpe_yaml_settings_free(&settings);
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
        "m: {local_window_size: 8, scale_factors: [2], dimension_groups_range: [0, 8], "
        "scale_factors: [3]}",
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        assert_int_equal(
            dpe_import_yaml("memory", broken[i], strlen(broken[i]), NULL, &settings, &err),
            DPE_BAD_DATA);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_broken_rule_is_named),
        cmocka_unit_test(positions_are_the_engines),
        cmocka_unit_test(json_and_safetensors_read_back_equal),
        cmocka_unit_test(readers_of_version_1_refuse_a_temperature),
        cmocka_unit_test(other_versions_and_conventions_are_refused),
        cmocka_unit_test(the_length_of_the_text_chooses_the_entry),
        cmocka_unit_test(entries_that_disagree_are_refused_by_name),
        cmocka_unit_test(entries_read_back_equal),
        cmocka_unit_test(missing_files_are_reported),
        cmocka_unit_test(yaml_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

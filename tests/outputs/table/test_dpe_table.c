/* The consumer library: what makes a table valid, which entry a text gets, and its positions
 * against the engine's plan of the same numbers. */
#include "engine/plan/methods/methods.h"
#include "tests/outputs/table/dpe_table_case.h"

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "outputs/read/read.h"

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
    char **const names[] = {&v.model_type, &v.model_fingerprint};
    for (int i = 0; i < 2; i++) {
        v = good();
        *names[i] = NULL;
        expect_refused(&v, "the table is incomplete");
        *names[i] = (char *)(uintptr_t) "llam\xff";
        expect_refused(&v, "expected UTF-8, found other bytes");
        *names[i] = (char *)(uintptr_t) "\xc3\xa9";
        assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
        *names[i] = (char *)(uintptr_t) "";
        assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
    }
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
        {&v.logit_scale, 0.0, "logit_scale is 0, expected a number above 0, at most 1024"},
        {&v.logit_scale, -1.0, "logit_scale is -1"},
        {&v.logit_scale, NAN, "logit_scale"},
        {&v.logit_scale, INFINITY, "logit_scale"},
        {&v.log_n_length, 1.0,
         "log_n_length is 1, expected 0 or a number above 1, at most 1099511627776"},
        {&v.log_n_length, -5.0, "log_n_length is -5"},
        {&v.log_n_length, NAN, "log_n_length"},
        {&v.log_n_length, INFINITY, "log_n_length"},
        {&v.log_n_power, 0.0, "log_n_power is 0"},
        {&v.log_n_power, NAN, "log_n_power"},
        {&v.logit_scale_middle, 0.0, "logit_scale_middle is 0"},
        {&v.far_scale, 0.0, "far_scale is 0, expected a number above 0, at most 1024"},
        {&v.logit_scale_last, NAN, "logit_scale_last"},
        {&v.log_n_decay, -0.5, "log_n_decay is -0.5"},
        {&v.log_n_decay, NAN, "log_n_decay"},
    };
    for (size_t i = 0; i < sizeof temperatures / sizeof temperatures[0]; i++) {
        v = warm();
        assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
        *temperatures[i].value = temperatures[i].bad;
        expect_refused(&v, temperatures[i].words);
    }
    /* Of other versions; with what makes the table again. */
    static const char *const versions[] = {"1.1.0", "5.0.0", "10.0.0", "6", "six", ""};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        v = warm();
        v.schema_version = (char *)(uintptr_t)versions[i];
        assert_int_equal(dpe_table_check(&v, message), DPE_TABLE_VERSION);
        assert_non_null(strstr(message, versions[i]));
        assert_non_null(strstr(message, i < 2 ? "make it again" : "use the dpe that wrote it"));
    }
    static const struct {
        double scale, effective;
        const char *words;
    } numbers[] = {
        {0.5, 100.0, "scale_factor[1] is 0.5"},      {NAN, 100.0, "scale_factor[1]"},
        {INFINITY, 100.0, "scale_factor[1]"},        {2.0, NAN, "effective_length[1]"},
        {1e308, 100.0, "scale_factor[1] is 1e+308"}, {2.0, 0.0, "effective_length[1] is 0"},
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

static void evidence_is_a_line(void **state)
{
    (void)state;
    char line[DPE_TABLE_EVIDENCE];
    struct dpe_table_values v = good();
    assert_string_equal(dpe_table_evidence(&v, line), "");
    v = measured();
    assert_string_equal(
        dpe_table_evidence(&v, line),
        "finds 93 % (88 % to 97 %) at 4096 tokens, 0 % unchanged, 61 % with "
        "yarn:scale=4; short texts run unchanged (40 samples, needles: 4 keys of one "
        "value)");
    v.evidence_low = v.evidence_high = -1.0;
    v.evidence_possible = 0.98;
    v.evidence_unchanged = v.evidence_rival_score = -1.0;
    v.evidence_short_loss = 0.25;
    assert_string_equal(dpe_table_evidence(&v, line),
                        "finds 93 % at 4096 tokens, 98 % at the trained length; short texts lose "
                        "0.25 nats per token (40 samples, needles: 4 keys of one value)");
    v = measured();
    v.evidence_task = (char *)(uintptr_t) "perplexity";
    v.evidence_score = 12.3456;
    v.evidence_low = 12.0;
    v.evidence_high = 13.0;
    v.evidence_rival_score = -1.0;
    v.evidence_short_loss = -1.0;
    assert_string_equal(dpe_table_evidence(&v, line),
                        "perplexity 12.35 (12 to 13) at 4096 tokens, 0 unchanged (40 samples)");
}

/* What is not known is not said, and a table without evidence has no facts of it. */
static void facts_are_words(void **state)
{
    (void)state;
    char line[DPE_TABLE_EVIDENCE];
    struct dpe_table_values v = measured();
    assert_string_equal(dpe_table_facts(&v, line),
                        "3141592653 prompt tokens that the detection read");
    v.evidence_tokens = 0;
    assert_string_equal(dpe_table_facts(&v, line), "");
    v = good();
    assert_string_equal(dpe_table_facts(&v, line), "");
}

static void broken_evidence_is_named(void **state)
{
    (void)state;
    char *const texts[] = {NULL, (char *)(uintptr_t) "", (char *)(uintptr_t) "red \033[31m",
                           (char *)(uintptr_t) "caf\303\251"};
    char long_text[DPE_FIELD_MOST_TEXT + 2];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct dpe_table_values v = measured();
        v.evidence_rival = texts[i];
        expect_refused(&v, texts[i] == NULL ? "missing" : "evidence_rival: expected 1 to 200");
        v.evidence_rival = long_text;
        expect_refused(&v, "evidence_rival");
        v = measured();
        v.evidence_samples = 0;
        expect_refused(&v, "evidence_samples is 0");
        v = measured();
        v.evidence_score = NAN;
        expect_refused(&v, "evidence_score");
        v = measured();
        v.evidence_possible = -0.5;
        expect_refused(&v, "evidence_possible is -0.5");
    }
}

static void broken_plans_of_other_methods_are_named(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *words;
    } frequencies[] = {
        {1e-300, "applied_inv_freq[3] is 1e-300, expected 1e-9 to 1e9 times inv_freq"},
        {5e-324, "applied_inv_freq[3]"},
        {1e300, "applied_inv_freq[3]"},
        {-1.0, "applied_inv_freq[3] is -1"},
        {NAN, "applied_inv_freq[3]"},
        {INFINITY, "applied_inv_freq[3]"}};
    struct dpe_table_values v = other();
    assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
    for (size_t i = 0; i < sizeof frequencies / sizeof frequencies[0]; i++) {
        v = other();
        v.applied_inv_freq[3] = frequencies[i].value;
        expect_refused(&v, frequencies[i].words);
    }
    v = other();
    v.unrounded = 2;
    expect_refused(&v, "unrounded is 2, expected a whole number from 0 to 1");
    /* A pair that does not rotate stays so. */
    double some[PAIRS];
    v = other();
    memcpy(some, inv_freq, sizeof some);
    some[PAIRS - 1] = 0.0;
    v.inv_freq = some;
    expect_refused(&v, "expected 0 as in inv_freq");
    v.applied_inv_freq[PAIRS - 1] = 0.0;
    assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
    v = warm();
    v.unrounded = 0;
    v.applied_inv_freq = inv_freq; /* which changes nothing */
    assert_int_equal(dpe_table_check(&v, NULL), DPE_TABLE_OK);
}

/* The model of good(), as the engine has it. */
static const struct dpe_config config = {.model_type = "llama",
                                         .n_layers = LAYERS,
                                         .n_heads = HEADS,
                                         .n_kv_heads = KV_HEADS,
                                         .head_dim = 2 * PAIRS,
                                         .max_position = 256,
                                         .rope = {.theta = 10000.0, .partial_rotary_factor = 1.0}};

/* A table with the numbers of a method's plan is that plan. */
static void a_table_is_the_plan_of_a_method(void **state)
{
    (void)state;
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = 256, .length = 4096, .official = true};
    static const char *const specs[] = {
        "leaky-rerope", "leaky-rerope:window=7,scale=12.5,logit-scale=1.3",
        "yarn",         "yarn:scale=4,beta_fast=8,log-n=256",
        "ntk",          "pi",
        "llama3"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct dpe_error err = {0};
        struct dpe_plan plan;
        struct dpe_plan of_table;
        struct dpe_table *table = NULL;
        char want[33];
        char found[33];
        assert_int_equal(dpe_plan_make(specs[i], &context, &plan, &err), DPE_OK);
        bool far = plan.n_bands == 2;
        double scale = far ? plan.bands[1].k.scale[0] : 1.0;
        double three[GROUPS] = {scale, scale, scale};
        uint8_t all[sizeof mask];
        struct dpe_table_values v = other();
        memset(all, 1, sizeof all);
        v.mask = all;
        v.top_k = PAIRS;
        v.window = far ? plan.bands[1].lo : 30;
        v.unrounded = far;
        v.scale_factor = three;
        v.applied_inv_freq = plan.inv_freq;
        dpe_table_put_temperature(&plan.temperature, NULL, &v);
        assert_int_equal(dpe_table_has_method(&v), 1);
        assert_int_equal(dpe_table_needs_adapter(&v), far || plan.temperature.log_n_length > 0.0);
        assert_int_equal(dpe_table_make(&v, &table, NULL), DPE_TABLE_OK);
        if (dpe_plan_of_table(dpe_table_values(table), &context, &of_table, &err) != DPE_OK) {
            fail_msg("%s: %s", specs[i], err.text);
        }
        assert_int_equal(dpe_plan_key(&plan, want, &err), DPE_OK);
        assert_int_equal(dpe_plan_key(&of_table, found, &err), DPE_OK);
        assert_string_equal(want, found);
        /* And what the library says of it without an engine. */
        float cosines[PAIRS];
        float sines[PAIRS];
        for (int64_t m = 0; m < 4096; m += 1 + m / 5) {
            for (int64_t n = 0; n <= m; n += 1 + n / 3) {
                enum dpe_table_band band = m - n < v.window ? DPE_TABLE_NEAR : DPE_TABLE_FAR;
                struct dpe_rel rel = dpe_plan_position(&plan, 1, 2, 5, m, n);
                double q = dpe_table_position(table, 1, 2, 5, band, DPE_TABLE_QUERY, m);
                double k = dpe_table_position(table, 1, 2, 5, band, DPE_TABLE_KEY, n);
                assert_true(rel.pq == q && rel.pk == k);
            }
            dpe_table_cos_sin(table, 1, 2, DPE_TABLE_NEAR, DPE_TABLE_QUERY, m, 1, cosines, sines);
            assert_true(cosines[5] == (float)cos((double)((float)m * (float)plan.inv_freq[5])));
            assert_true(fabs(dpe_table_query_scale(table, 1, m) -
                             dpe_plan_query_scale(&plan, 1, m)) < 1e-15);
        }
        dpe_table_close(table);
        dpe_plan_free(&of_table);
        dpe_plan_free(&plan);
    }
}

/* Every plan of bands is a table of bands, and what the library says of it is what the engine does.
 */
static void a_table_is_a_plan_of_bands(void **state)
{
    (void)state;
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = 256, .length = 2048, .official = true};
    static const char *const specs[] = {"lampe",
                                        "dca",
                                        "dca:chunk=30,local=7,log-n=99",
                                        "string",
                                        "rerope:logit-scale=1.3",
                                        "jet-long",
                                        "jetlong_freq",
                                        "self",
                                        "streaming-llm",
                                        "lm-infinite",
                                        "adagrope",
                                        "dope:from=3",
                                        "rope:infoscale=256"};
    static const char *const none[] = {"select:k=4"};
    enum { ROW = DPE_TABLE_BAND_NUMBERS + 2 * PAIRS, N_HELD = sizeof specs / sizeof specs[0] };
    for (size_t i = 0; i < (sizeof specs + sizeof none) / sizeof specs[0]; i++) {
        bool can = i < N_HELD;
        const char *spec = can ? specs[i] : none[i - N_HELD];
        double bands[2 * DPE_TABLE_MOST_BANDS * ROW];
        double scale[PAIRS];
        double own[PAIRS];
        int32_t edge[PAIRS + 1] = {0, PAIRS};
        uint8_t all[sizeof mask];
        struct dpe_error err = {0};
        struct dpe_plan plan;
        struct dpe_plan again;
        struct dpe_table *table = NULL;
        char want[33];
        char found[33];
        bool holds = false;
        if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
            fail_msg("%s: %s", spec, err.text);
        }
        struct dpe_table_values v = other();
        memset(all, 1, sizeof all);
        v.mask = all;
        v.top_k = PAIRS;
        v.n_groups = 1;
        v.group_edge = edge;
        v.scale_factor = scale;
        v.inv_freq = own;
        v.window = 32;
        assert_int_equal(dpe_table_of_plan(&plan, &context, bands, &v, &holds, &err), DPE_OK);
        if (holds != can) {
            fail_msg("%s: %s", spec, holds ? "a table" : "no table");
        }
        if (!can) {
            dpe_plan_free(&plan);
            continue;
        }
        char why[DPE_TABLE_MESSAGE] = "";
        if (dpe_table_make(&v, &table, why) != DPE_TABLE_OK) {
            fail_msg("%s: %s", spec, why);
        }
        assert_int_equal(dpe_table_needs_adapter(dpe_table_values(table)), 1);
        assert_int_equal(dpe_plan_of_table(dpe_table_values(table), &context, &again, &err),
                         DPE_OK);
        assert_int_equal(dpe_plan_key(&plan, want, &err), DPE_OK);
        assert_int_equal(dpe_plan_key(&again, found, &err), DPE_OK);
        assert_string_equal(want, found);
        for (int64_t m = 0; m < 2048; m += 1 + m / 9) {
            for (int64_t n = 0; n <= m; n += 1 + n / 7) {
                struct dpe_rel rel = dpe_plan_position(&plan, 1, 2, 5, m, n);
                int band = dpe_table_band_of(table, m, n);
                assert_int_equal(band, rel.band);
                if (band >= 0) {
                    enum dpe_table_band b = (enum dpe_table_band)band;
                    assert_true(dpe_table_position(table, 1, 2, 5, b, DPE_TABLE_QUERY, m) ==
                                rel.pq);
                    assert_true(dpe_table_position(table, 1, 2, 5, b, DPE_TABLE_KEY, n) == rel.pk);
                }
            }
            assert_true(fabs(dpe_table_query_scale(table, 1, m) -
                             dpe_plan_query_scale(&plan, 1, m)) < 1e-15);
        }
        dpe_table_close(table);
        dpe_plan_free(&again);
        dpe_plan_free(&plan);
    }
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
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = 256, .length = 4096};
    const struct dpe_dpe_params params = {
        .window = v.window, .n_groups = GROUPS, .edges = edges, .scale = scales, .mask = mask};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make_dpe(&params, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    with.head_scale = NULL;
    const struct dpe_temperature temperature = dpe_table_temperature(&with);
    struct dpe_plan hot_plan;
    assert_int_equal(dpe_plan_copy(&hot_plan, &plan, &err), DPE_OK);
    assert_int_equal(dpe_plan_set_temperature(&hot_plan, &temperature, &err), DPE_OK);
    struct dpe_plan of_table;
    assert_int_equal(dpe_plan_of_table(dpe_table_values(hot), &context, &of_table, &err), DPE_OK);
    static const int64_t queries[] = {0, 29, 30, 31, 100, 1000, 4095};
    const double t = 1.0 / (LAYERS - 1);
    const double depth = (1 - t) * (1 - t) * 0.7 + 2 * t * (1 - t) * 1.6 + t * t * 1.2;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        int64_t m = queries[i];
        double scale = dpe_plan_query_scale(&hot_plan, 1, m);
        assert_true(fabs(dpe_table_query_scale(table, 1, m) - 0.25) < 1e-15);
        assert_true(fabs(dpe_table_query_scale(hot, 1, m) - scale) < 1e-15);
        assert_true(dpe_plan_query_scale(&of_table, 1, m) == scale);
        assert_true((m < 40) == (fabs(scale - 0.25 * 1.3 * depth) < 1e-15));
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
    /* Rotated far queries are longer in the pairs that move, as those of the engine. */
    for (int64_t at = 0; at < (int64_t)LAYERS * HEADS; at++) {
        dpe_table_cos_sin(hot, at / HEADS, at % HEADS, DPE_TABLE_FAR, DPE_TABLE_QUERY, 4000, 1,
                          cosines, sines);
        for (int64_t j = 0; j < PAIRS; j++) {
            struct dpe_rel far = dpe_plan_position(&hot_plan, at / HEADS, at % HEADS, j, 4000, 17);
            double angle = (double)((float)far.pq * (float)inv_freq[j]);
            assert_true(far.scale == (mask[at * PAIRS + j] != 0 ? 1.15 : 1.0));
            assert_true(cosines[j] == (float)(far.scale * cos(angle)));
        }
    }
    dpe_plan_free(&of_table);
    dpe_plan_free(&hot_plan);
    dpe_plan_free(&plan);
    dpe_table_close(hot);
    dpe_table_close(table);
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
    /* An entry alone is a table as well. */
    const struct dpe_table *entry = dpe_table_entry(table, 1);
    struct dpe_table *alone = NULL;
    assert_int_equal(dpe_table_join(&entry, 1, &alone, NULL), DPE_TABLE_OK);
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
    /* Of one model the first pair rotates alike, and none rotates faster in a longer text; slower
     * where its scaling depends on the length. */
    static const struct {
        int pair;
        double factor;
        int error;
    } rotations[] = {{0, 1.5, DPE_TABLE_BAD_FILE},  {0, 0.9, DPE_TABLE_BAD_FILE},
                     {3, 1.01, DPE_TABLE_BAD_FILE}, {7, 0.0, DPE_TABLE_BAD_FILE},
                     {3, 0.7, DPE_TABLE_OK},        {7, 1.0, DPE_TABLE_OK}};
    for (size_t i = 0; i < sizeof rotations / sizeof rotations[0]; i++) {
        double own[PAIRS];
        struct dpe_table *second = NULL;
        struct dpe_table *joined = NULL;
        char why[DPE_TABLE_MESSAGE] = "disagree on inv_freq";
        v = good();
        memcpy(own, inv_freq, sizeof own);
        own[rotations[i].pair] *= rotations[i].factor;
        v.inv_freq = own;
        assert_int_equal(dpe_table_make(&v, &second, NULL), DPE_TABLE_OK);
        const struct dpe_table *const both[] = {first, second};
        assert_int_equal(dpe_table_join(both, 2, &joined, why), rotations[i].error);
        assert_non_null(strstr(why, "disagree on inv_freq"));
        dpe_table_close(joined);
        dpe_table_close(second);
    }
    dpe_table_close(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_broken_rule_is_named),
        cmocka_unit_test(evidence_is_a_line),
        cmocka_unit_test(facts_are_words),
        cmocka_unit_test(broken_evidence_is_named),
        cmocka_unit_test(broken_plans_of_other_methods_are_named),
        cmocka_unit_test(a_table_is_the_plan_of_a_method),
        cmocka_unit_test(a_table_is_a_plan_of_bands),
        cmocka_unit_test(positions_are_the_engines),
        cmocka_unit_test(the_length_of_the_text_chooses_the_entry),
        cmocka_unit_test(entries_that_disagree_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

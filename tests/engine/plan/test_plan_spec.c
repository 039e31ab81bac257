/* Plans as data: specs and their errors, canonical names, digests, copies, structural checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

static const struct dpe_config config = {
    .model_type = "llama",
    .n_layers = 2,
    .n_heads = 4,
    .n_kv_heads = 2,
    .head_dim = 128,
    .max_position = 8192,
    .rope = {.type = DPE_ROPE_DEFAULT, .theta = 5e5, .original_max_position = NAN},
};
static const struct dpe_plan_context context = {
    .config = &config, .trained_length = 8192, .length = 131072, .official = true};

static struct dpe_plan make(const char *spec)
{
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    return plan;
}

static bool equal(const struct dpe_plan *a, const struct dpe_plan *b)
{
    char x[65];
    char y[65];
    assert_int_equal(dpe_plan_digest(a, x, NULL), DPE_OK);
    assert_int_equal(dpe_plan_digest(b, y, NULL), DPE_OK);
    return strcmp(x, y) == 0;
}

static void names_with_their_defaults(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"rope", "rope:native=1"},
        {"pi", "pi:scale=16"},
        {"self-extend", "self-extend:window=1024,group=32"},
        {"dpe:lengths=65536/16384/65536/16384/4096/4096/8192/32768",
         "dpe:window=1024,lengths=65536/16384/65536/16384/4096/4096/8192/32768,groups=8"},
        {"dpe:groups=8", "dpe:window=1024,scales=32,groups=8"},
        {"rerope", "rerope:window=2048,official=1"},
        {"leaky-rerope", "leaky-rerope:window=512,scale=16,official=1"},
        {"dca", "dca:chunk=6144,local=1024,official=1"},
        {"string:official=0", "string:shift=43253,window=128,official=0"},
        {"streaming-llm", "streaming-llm:sinks=4,window=8188"},
        {"lm-infinite", "lm-infinite:sinks=10,window=8192"},
        {"lampe", "lampe:window=512,tail=200,map=6204,official=1"},
        {"cope", "cope:clip=20,hard=0"},
        {"hirope", "hirope:window=1024,segment=32,split=32"},
        {"dope:heads=0/7,from=60", "dope:heads=0/7,from=60"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct dpe_plan plan = make(names[i][0]);
        assert_string_equal(plan.name, names[i][1]);
        dpe_plan_free(&plan);
    }
}

/* Numbers of remap_uselen(L, "llama3") of LaMPE's released code, whose L0 is 8192; the same in
 * units of another L0. */
static void lampe_follows_its_curve(void **state)
{
    (void)state;
    static const int64_t released[][2] = {{2048, 1536},  {4096, 1536},  {8191, 1536},
                                          {8192, 1036},  {10000, 1210}, {16384, 1993},
                                          {32768, 4501}, {65536, 6129}, {131072, 6204}};
    for (size_t i = 0; i < sizeof released / sizeof released[0]; i++) {
        for (int64_t part = 1; part <= 8; part *= 8) {
            struct dpe_plan_context at = context;
            struct dpe_plan plan;
            struct dpe_error err = {0};
            char expected[64];
            if (released[i][0] % part != 0) {
                continue;
            }
            at.trained_length /= part;
            at.length = released[i][0] / part;
            assert_int_equal(dpe_plan_make("lampe", &at, &plan, &err), DPE_OK);
            snprintf(expected, sizeof expected, "map=%lld,", (long long)(released[i][1] / part));
            if (strstr(plan.name, expected) == NULL) {
                fail_msg("L %lld of L0 %lld: expected %s in %s", (long long)at.length,
                         (long long)at.trained_length, expected, plan.name);
            }
            dpe_plan_free(&plan);
        }
    }
}

/* A frequency of 0 is a pair without position; AdaGroPE's last position is not beyond L0. */
static void new_methods_stay_in_the_trained_positions(void **state)
{
    (void)state;
    struct dpe_plan cope = make("cope");
    assert_true(cope.inv_freq[43] > 0.0 && cope.inv_freq[63] == 0.0);
    dpe_plan_free(&cope);
    static const char *const specs[] = {"lampe", "adagrope"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct dpe_plan plan = make(specs[i]);
        for (int64_t m = 0; m < context.length; m += 4099) {
            struct dpe_rel rel = dpe_plan_position(&plan, 0, 0, 5, context.length - 1, m);
            assert_true(rel.band >= 0 && rel.rel >= 0.0 && rel.rel <= 8192.0 + 16.0);
        }
        dpe_plan_free(&plan);
    }
}

static void effective_lengths_become_scales(void **state)
{
    (void)state;
    /* Llama-3-8B-Instruct in the paper's appendix. */
    static const double scales[8] = {2, 8, 2, 8, 32, 32, 16, 4};
    struct dpe_plan plan = make("dpe:lengths=65536/16384/65536/16384/4096/4096/8192/32768");
    for (int j = 0; j < 64; j++) {
        assert_true(plan.bands[1].q.scale[j] == scales[j / 8]);
        assert_true(plan.bands[1].k.scale[j] == scales[j / 8]);
    }
    dpe_plan_free(&plan);
    /* Lengths beyond L scale nothing; the quotient is not rounded. */
    plan = make("dpe:groups=2,lengths=200000/50000");
    assert_true(plan.bands[1].q.scale[0] == 1.0 && plan.bands[1].q.scale[63] == 131072.0 / 50000.0);
    dpe_plan_free(&plan);
    /* By default every group is at L0/2. */
    plan = make("dpe:groups=4");
    assert_true(plan.bands[1].q.scale[0] == 32.0 && plan.bands[1].q.scale[63] == 32.0);
    dpe_plan_free(&plan);
}

static void every_method_makes_itself_again_from_its_name(void **state)
{
    (void)state;
    size_t n = 0;
    for (; dpe_plan_method(n) != NULL; n++) {
        char name[64];
        const char *line = dpe_plan_method(n);
        assert_non_null(strchr(strchr(line, '\t') + 1, '\t'));
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\t"), line);
        /* This model has no factors of its own. */
        struct dpe_plan plan = make(strcmp(name, "longrope") == 0 ? "longrope:long=4" : name);
        struct dpe_plan again = make(plan.name);
        assert_string_equal(plan.name, again.name);
        assert_true(equal(&plan, &again));
        struct dpe_error err = {0};
        assert_int_equal(dpe_plan_check(&plan, &err), DPE_OK);
        dpe_plan_free(&plan);
        dpe_plan_free(&again);
    }
    assert_true(n >= 5);
}

static void bad_specs_are_named(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "unknown method"},
        {"ropes", "methods: rope, pi"},
        {"rop", "unknown method"},
        {"dpe\t", "unknown method"},
        {"rope:", "expected key=value"},
        {"rope:native", "expected key=value"},
        {"rope:=1", "expected key=value"},
        {"rope:native=", "native: expected a whole number from 0 to 1, found \"\""},
        {"rope:native=2", "from 0 to 1"},
        {"rope:scale=2", "unknown key 'scale'; keys and defaults: native=1"},
        {"pi:scale=2,scale=3", "given twice"},
        {"pi:scale=0.5", "from 1"},
        {"pi:scale=nan", "found \"nan\""},
        {"pi:scale=inf", "found \"inf\""},
        {"pi:scale=2x", "found \"2x\""},
        {"pi:scale=1e999", "scale"},
        {"ntk-by-parts:alpha=32,beta=1", "alpha < beta"},
        {"llama3:low=4,high=4", "low < high"},
        {"rerope:window=0", "window"},
        {"rerope:window=2.5", "a whole number"},
        {"rerope:window=99999999999999999999", "window"},
        {"dpe:scales=1/2,groups=3", "3 groups, found 2"},
        {"dpe:scales=2/1/", "found \"2/1/\""},
        {"dpe:scales=/", "scales"},
        {"dpe:scales=1/0.5", "scales"},
        {"dpe:scales=2,lengths=3", "not both"},
        {"dpe:groups=65", "groups"},
        {"dpe:groups=0", "groups"},
        {"dpe:topk=48", "unknown key 'topk'"},
        {"dca:chunk=10,local=10", "local"},
        {"lampe:window=100,tail=131000", "expected at most 131071, found"},
        {"lampe:map=0", "map"},
        {"cope:clip=65", "clip: expected a whole number from 0 to 64"},
        {"cope:hard=2", "hard"},
        {"hirope:split=65", "split"},
        {"hirope:segment=0", "segment"},
        {"adagrope:reuse=0.5", "reuse: expected a number from 1"},
        {"dope:heads=8", "heads: expected numbers separated by '/', each from 0 to 7"},
        {"dope:heads=1.5", "heads: expected whole numbers, found 1.5"},
        {"dope:from=65", "from"},
        {"rope:log-n=1", "log-n: expected 0 or a number above 1"},
        {"dpe:log-n=0.5", "found \"0.5\""},
        {"yarn:log-n=-256", "found \"-256\""},
        {"pi:log-n=nan", "log-n"},
        {"ntk:log-n=inf", "log-n"},
        {"dpe:log-n=1e12", "at most 2147483648"},
        {"dpe:log-n=", "log-n"},
        {"dpe:log-n=256,log-n-power=0", "log-n-power: expected a number above 0"},
        {"dpe:log-n=256,log-n-power=-1", "log-n-power"},
        {"dpe:log-n=256,log-n-power=nan", "log-n-power"},
        {"dpe:log-n=256,log-n-decay=-1", "log-n-decay"},
        {"dpe:log-n-power=2", "log-n: expected it beside the keys that shape it"},
        {"self-extend:logit-scale=0", "logit-scale: expected a number above 0, at most 1024"},
        {"self-extend:logit-scale=-1.5", "logit-scale"},
        {"self-extend:logit-scale=inf", "logit-scale"},
        {"dpe:infoscale=1", "infoscale"},
        {"dpe:infoscale=256,log-n=256", "infoscale: expected it without log-n"},
        {"dpe:temperature=2", "logit-scale=1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dpe_plan plan;
        struct dpe_error err = {0};
        dpe_status status = dpe_plan_make(bad[i][0], &context, &plan, &err);
        if (status != DPE_USAGE || strstr(err.text, bad[i][1]) == NULL) {
            fail_msg("\"%s\": status %d, \"%s\"", bad[i][0], (int)status, err.text);
        }
    }
}

/* `dpe` without its own keys, of a model that was trained on 8192 tokens. */
static void the_formula_is_dpe(void **state)
{
    (void)state;
    static const struct {
        int64_t length;
        const char *spec, *same;
    } cases[] = {
        {16384, "dpe", "dpe:window=4096,lengths=4096,log-n=8192,log-n-power=0.7"},
        {20000, "dpe",
         "dpe:window=1536,lengths=20000/8192/8192/8192/8192/8192/8192/8192,log-n=8192,"
         "log-n-power=0.7"},
        {131072, "dpe", "dpe:window=1536,scales=1/16/16/16/16/16/16/16,log-n=8192,log-n-power=0.7"},
        {262144, "dpe",
         "dpe:window=1024,scales=1/32/32/32/32/32/32/32,log-n=8192,log-n-power=0.6,far-scale=1.1"},
        {262144, "dpe:far-scale=1.3",
         "dpe:window=1024,scales=1/32/32/32/32/32/32/32,log-n=8192,log-n-power=0.6,far-scale=1.3"},
        {262144, "dpe:log-n=0", "dpe:window=1024,scales=1/32/32/32/32/32/32/32"},
        {16384, "dpe:logit-scale=1.25",
         "dpe:window=4096,scales=4,logit-scale=1.25,log-n=8192,log-n-power=0.7"},
        {16384, "dpe:log-n=100", "dpe:window=4096,scales=4,log-n=100"},
        {16384, "dpe:log-n=0", "dpe:window=4096,scales=4"},
        {16384, "dpe:infoscale=64", "dpe:window=4096,scales=4,infoscale=64"},
        {16384, "select:k=4,over=dpe",
         "select:k=4,over=dpe:window=4096,scales=4,log-n=8192,log-n-power=0.7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_plan_context of_length = context;
        struct dpe_plan made, wanted;
        struct dpe_error err = {0};
        of_length.length = cases[i].length;
        if (dpe_plan_make(cases[i].spec, &of_length, &made, &err) != DPE_OK ||
            dpe_plan_make(cases[i].same, &of_length, &wanted, &err) != DPE_OK) {
            fail_msg("%s: %s", cases[i].spec, err.text);
        }
        if (!equal(&made, &wanted)) {
            fail_msg("%s is %s, expected %s", cases[i].spec, made.name, wanted.name);
        }
        dpe_plan_free(&made);
        dpe_plan_free(&wanted);
    }
    static const char *const formula[] = {"dpe", "dpe:log-n=9", "dpe:always=1,logit-scale=2"};
    static const char *const others[] = {
        "dpe:groups=8",         "dpe:window=8",    "dpes", "self-extend",
        "dpe:log-n=9,scales=2", "select:over=dpe", ""};
    for (size_t i = 0; i < sizeof formula / sizeof formula[0]; i++) {
        assert_true(dpe_plan_is_formula(formula[i]));
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(dpe_plan_is_formula(others[i]));
    }
}

static void temperatures_have_one_text(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"off", "off"},
        {"log-n=0", "off"},
        {"logit-scale=1", "off"},
        {"log-n=256", "log-n=256"},
        {"logit-scale=1.4,log-n=256,log-n-power=1", "log-n=256,logit-scale=1.4"},
        {"log-n=0.1e4,log-n-power=0.1", "log-n=1000,log-n-power=0.1"},
        {"log-n=8k,log-n-power=0.5", "log-n=8192,log-n-power=0.5"},
        {"logit-scale-last=0.75,logit-scale=2,logit-scale-middle=1",
         "logit-scale=2,logit-scale-last=0.75"},
        {"logit-scale-first=1.5,logit-scale-middle=0.1,log-n=64",
         "log-n=64,logit-scale-first=1.5,logit-scale-middle=0.1"},
        {"logit-scale-heads=3.1:0.8/0.15:2.5,logit-scale=2",
         "logit-scale=2,logit-scale-heads=0.15:2.5/3.1:0.8"},
        {"logit-scale-heads=2.0:1.0000000000000002", "logit-scale-heads=2.0:1.0000000000000002"},
        {"far-scale=1.06,logit-scale=2", "logit-scale=2,far-scale=1.06"},
        {"infoscale=512", "log-n=512,log-n-power=0.5,log-n-decay=0.015625"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct dpe_temperature read;
        struct dpe_temperature again;
        struct dpe_error err = {0};
        char text[DPE_TEMPERATURE_TEXT];
        assert_int_equal(dpe_temperature_parse(texts[i][0], 128, &read, &err), DPE_OK);
        dpe_temperature_text(&read, text);
        assert_string_equal(text, texts[i][1]);
        assert_int_equal(dpe_temperature_parse(text, 128, &again, &err), DPE_OK);
        assert_memory_equal(&read, &again, sizeof read);
    }
    static const char *const bad[] = {"",
                                      "on",
                                      "auto",
                                      "log-n",
                                      "log-n=1",
                                      "scale=2",
                                      "log-n=2,log-n=3",
                                      "infoscale=2,log-n-power=2",
                                      "log-n-power=2",
                                      "logit-scale=0",
                                      "logit-scale-first=0",
                                      "logit-scale-middle=nan",
                                      "logit-scale-last=1025",
                                      "far-scale=-1",
                                      "logit-scale-heads=",
                                      "logit-scale-heads=3.1",
                                      "logit-scale-heads=3:0.5",
                                      "logit-scale-heads=3.1:0",
                                      "logit-scale-heads=3.1:nan",
                                      "logit-scale-heads=3.-1:2",
                                      "logit-scale-heads=3.1:2/",
                                      "logit-scale-heads=3.1:2/3.1:4",
                                      "logit-scale-heads=3.1:2/4.1:2000"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dpe_temperature read;
        struct dpe_error err = {0};
        assert_int_equal(dpe_temperature_parse(bad[i], 128, &read, &err), DPE_USAGE);
        assert_true(err.text[0] != '\0' && dpe_temperature_is_none(&read));
    }
}

/* Named by layer and head, at most so many; a slice of the heads has its own. */
static void heads_have_factors(void **state)
{
    (void)state;
    struct dpe_temperature t = dpe_temperature_none;
    for (int i = 0; i < DPE_HEAD_FACTORS; i++) {
        assert_true(dpe_temperature_set_head(&t, i * 7 % 5, i, 1.0 + i / 64.0 + 0.01));
    }
    assert_false(dpe_temperature_set_head(&t, 9, 0, 2.0));
    assert_true(dpe_temperature_set_head(&t, 9, 0, 1.0)); /* is none */
    for (int i = 0; i < DPE_HEAD_FACTORS; i++) {
        assert_true(dpe_temperature_head(&t, i * 7 % 5, i) == 1.0 + i / 64.0 + 0.01);
        assert_true(
            i == 0 || t.heads[i].layer > t.heads[i - 1].layer ||
            (t.heads[i].layer == t.heads[i - 1].layer && t.heads[i].head > t.heads[i - 1].head));
    }
    char text[DPE_TEMPERATURE_TEXT];
    struct dpe_temperature again;
    struct dpe_error err = {0};
    dpe_temperature_text(&t, text);
    assert_int_equal(dpe_temperature_parse(text, 128, &again, &err), DPE_OK);
    assert_memory_equal(&t, &again, sizeof t);
    for (int i = 0; i < DPE_HEAD_FACTORS; i++) {
        assert_true(dpe_temperature_set_head(&t, i * 7 % 5, i, 1.0));
    }
    assert_true(dpe_temperature_is_none(&t));
    struct dpe_plan plan = make("yarn:logit-scale-heads=0.1:2/1.0:3/1.3:4");
    struct dpe_plan plain = make("yarn"), slice = {0};
    assert_false(equal(&plain, &plan));
    assert_int_equal(dpe_plan_slice(&plan, 1, 2, &slice, &err), DPE_OK);
    assert_int_equal(plan.n_heads, 4);
    assert_int_equal(slice.temperature.n_heads, 1);
    assert_true(dpe_temperature_head(&slice.temperature, 1, 1) == 4.0);
    dpe_plan_free(&slice);
    assert_int_equal(dpe_plan_slice(&plan, 0, 2, &slice, &err), DPE_OK);
    assert_true(dpe_temperature_head(&slice.temperature, 1, 0) == 3.0);
    plan.temperature.heads[2].head = (int32_t)plan.n_heads;
    assert_int_equal(dpe_plan_check(&plan, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "logit-scale-heads"));
    dpe_plan_free(&slice);
    dpe_plan_free(&plain);
    dpe_plan_free(&plan);
}

/* By hand: 1 up to m + 1 = N, then the formula; 0 is off, and a temperature of no
 * effect makes the same plan as none. */
static void temperatures_multiply_the_logits(void **state)
{
    (void)state;
    struct dpe_plan plain = make("dpe:window=64,scales=32");
    struct dpe_plan off =
        make("dpe:window=64,scales=32,log-n=0,log-n-power=3,logit-scale=1,logit-scale-last=1");
    assert_true(equal(&plain, &off));
    struct dpe_plan plan = make("dpe:window=64,scales=32,log-n=1000,log-n-power=2,logit-scale=1.5");
    assert_false(equal(&plain, &plan));
    double base = 1.5 / sqrt(128.0);
    assert_true(dpe_plan_query_scale(&plan, 0, 0) == base);
    assert_true(dpe_plan_query_scale(&plan, 0, 999) == base);
    /* The middle one of three layers has a quarter of the ends and half of the middle. */
    struct dpe_plan deep = make(
        "dpe:window=64,scales=32,logit-scale-first=2,logit-scale-middle=3,logit-scale-last=0.5");
    assert_false(equal(&plain, &deep));
    static const double depths[] = {2.0, 2.0 / 4 + 3.0 / 2 + 0.5 / 4, 0.5};
    for (int64_t layer = 0; layer < 3; layer++) {
        double depth = dpe_temperature_depth(&deep.temperature, layer, 3);
        assert_true(fabs(depth - depths[layer]) < 1e-15);
    }
    assert_true(dpe_temperature_depth(&deep.temperature, 0, 1) == 2.0);
    assert_true(fabs(dpe_plan_query_scale(&deep, deep.n_layers - 1, 7) - 0.5 / sqrt(128.0)) <
                1e-15);
    dpe_plan_free(&deep);
    double e = log(1001.0) / log(1000.0);
    assert_true(fabs(dpe_plan_query_scale(&plan, 0, 1000) - base * e * e) < 1e-12);
    assert_true(fabs(dpe_plan_query_scale(&plan, 0, 999999) - base * 4.0) < 1e-9);
    struct dpe_plan other =
        make("dpe:window=64,scales=32,log-n=1000,log-n-power=1.5,logit-scale=1.5");
    assert_false(equal(&plan, &other));
    struct dpe_plan info = make("dpe:window=64,scales=32,infoscale=1000");
    struct dpe_plan power = make("dpe:window=64,scales=32,log-n=1000,log-n-power=0.5");
    assert_false(equal(&info, &power));
    double want = sqrt((1.0 - pow(1e6, -2.0 / 128.0)) / (1.0 - pow(1e3, -2.0 / 128.0)));
    assert_true(fabs(dpe_plan_query_scale(&info, 0, 999999) * sqrt(128.0) - want) < 1e-12);
    struct dpe_plan *all[] = {&plain, &off, &plan, &other, &info, &power};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_plan_free(all[i]);
    }
}

static void a_long_hostile_spec_is_refused(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *spec = dpe_alloc(N + 1, 1);
    struct dpe_plan plan;
    struct dpe_error err = {0};
    static const char *const starts[] = {"dpe:scales=", "dpe:", "", "dpe:groups=1,"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        static const char *const fills[] = {"1/", ",", "a", "a=1,"};
        size_t n = strlen(fills[i]);
        for (size_t at = 0; at < N; at++) {
            spec[at] = fills[i][at % n];
        }
        spec[N] = 0;
        memcpy(spec, starts[i], strlen(starts[i]));
        assert_int_equal(dpe_plan_make(spec, &context, &plan, &err), DPE_USAGE);
    }
    free(spec);
}

static void contexts_are_checked(void **state)
{
    (void)state;
    struct dpe_plan plan;
    struct dpe_error err = {0};
    struct dpe_plan_context bad = context;
    bad.trained_length = 1;
    assert_int_equal(dpe_plan_make("rope", &bad, &plan, &err), DPE_USAGE);
    bad = context;
    bad.length = 0;
    assert_int_equal(dpe_plan_make("rope", &bad, &plan, &err), DPE_USAGE);
    struct dpe_config odd = config;
    odd.head_dim = 7;
    bad = context;
    bad.config = &odd;
    assert_int_equal(dpe_plan_make("rope", &bad, &plan, &err), DPE_USAGE);
}

/* ------------------------------------------------------------------------- digests and copies */

static void digests_depend_on_meaning_not_names(void **state)
{
    (void)state;
    struct dpe_plan base = make("dpe:scales=1/2/4/8");
    struct dpe_plan other;
    struct dpe_error err = {0};
    assert_int_equal(dpe_plan_copy(&other, &base, &err), DPE_OK);
    assert_true(equal(&base, &other));
    strcpy(other.name, "something else");
    assert_true(equal(&base, &other));
    other.bands[1].k.offset[5] = -0.0;
    assert_true(equal(&base, &other));
    other.chunk = 77; /* no band goes by chunks */
    assert_true(equal(&base, &other));
    other.bands[1].per_head = true; /* without a mask all pairs are key pairs */
    assert_true(equal(&base, &other));
    other.mask = dpe_alloc(2 * 4 * 64, 1);
    memset(other.mask, 1, 2 * 4 * 64);
    assert_true(equal(&base, &other));
    other.mask[100] = 0;
    assert_false(equal(&base, &other));
    other.bands[1].per_head = false; /* the mask is not read */
    assert_true(equal(&base, &other));
    dpe_plan_free(&other);

    for (int change = 0; change < 10; change++) {
        assert_int_equal(dpe_plan_copy(&other, &base, &err), DPE_OK);
        struct dpe_band *far = &other.bands[1];
        double *numbers[] = {&other.inv_freq[63],
                             &other.temperature.logit_scale,
                             &other.temperature.log_n_length,
                             &far->q.scale[7],
                             &far->q.offset[7],
                             &far->k.scale[7],
                             &far->k.offset[7],
                             &far->q.period,
                             &far->k.cap};
        if (change < 9) {
            *numbers[change] = *numbers[change] == (double)INFINITY ? 64.0 : *numbers[change] + 1.0;
        } else {
            far->lo++;
        }
        assert_false(equal(&base, &other));
        dpe_plan_free(&other);
    }
    dpe_plan_free(&base);
}

static void groups_at_one_length_are_one_configuration(void **state)
{
    (void)state;
    const int32_t edges[3] = {0, 32, 64};
    const double scale[2] = {32.0, 32.0};
    const struct dpe_dpe_params params = {
        .window = 1024, .n_groups = 2, .edges = edges, .scale = scale};
    struct dpe_plan a;
    struct dpe_error err = {0};
    assert_int_equal(dpe_plan_make_dpe(&params, &context, &a, &err), DPE_OK);
    assert_string_equal(a.name, "dpe:window=1024,scales=32/32");
    struct dpe_plan b = make("dpe:groups=2");
    assert_true(equal(&a, &b));
    dpe_plan_free(&a);
    dpe_plan_free(&b);
}

/* --------------------------------------------------------------------------- structural checks */

enum { N_BREAKS = 20 };

/* One number of a good plan replaced by one that makes no sense. */
static void break_number(struct dpe_plan *plan, size_t how)
{
    struct dpe_band *far = &plan->bands[1];
    const struct {
        double *number;
        double value;
    } breaks[N_BREAKS] = {
        {&plan->inv_freq[3], NAN},
        {&plan->inv_freq[3], -1.0},
        {&plan->inv_freq[3], INFINITY},
        {&plan->temperature.logit_scale, 0.0},
        {&plan->temperature.logit_scale, NAN},
        {&plan->temperature.log_n_length, 1.0},
        {&plan->temperature.log_n_length, NAN},
        {&far->q.scale[0], 0.5},
        {&far->k.scale[63], NAN},
        {&far->q.offset[0], INFINITY},
        {&far->k.offset[0], NAN},
        {&far->q.period, 0.0},
        {&far->q.period, 2.5},
        {&far->k.period, NAN},
        {&far->k.cap, NAN},
        {&far->k.cap, -INFINITY},
        {&plan->temperature.log_n_power, 0.0},
        {&plan->temperature.log_n_power, NAN},
        {&plan->temperature.log_n_decay, -1.0},
        {&plan->temperature.log_n_length, INFINITY},
    };
    *breaks[how].number = breaks[how].value;
}

static void break_shape(struct dpe_plan *plan, size_t how)
{
    struct dpe_band *far = &plan->bands[1];
    switch (how) {
    case 0:
        plan->n_bands = 0;
        break;
    case 1:
        plan->n_bands = DPE_MAX_BANDS + 1;
        break;
    case 2:
        far->lo = -1;
        break;
    case 3:
        far->hi = far->lo;
        break;
    case 4:
        far->kind = (enum dpe_band_kind)9;
        break;
    case 5:
        far->kind = DPE_BAND_CHUNK; /* chunk is 0 */
        break;
    case 6:
        plan->bands[0].per_head = true;
        break;
    case 7:
        plan->n_pairs = 0;
        break;
    default:
        plan->mask = dpe_alloc_zero(2 * 4 * 64, 1);
        plan->mask[17] = 2;
        break;
    }
}

static void check_refused(struct dpe_plan *plan, const char *what, size_t how)
{
    struct dpe_error err = {0};
    if (dpe_plan_check(plan, &err) != DPE_USAGE || strncmp(err.text, "plan", 4) != 0) {
        fail_msg("%s %zu was not noticed: %s", what, how, err.text);
    }
    dpe_plan_free(plan);
}

static void broken_structs_are_refused(void **state)
{
    (void)state;
    for (size_t how = 0; how < N_BREAKS; how++) {
        struct dpe_plan broken = make("dpe:scales=1/2/4/8");
        break_number(&broken, how);
        check_refused(&broken, "number", how);
    }
    for (size_t how = 0; how < 9; how++) {
        struct dpe_plan broken = make("dpe:scales=1/2/4/8");
        break_shape(&broken, how);
        check_refused(&broken, "shape", how);
    }
    struct dpe_plan plan;
    struct dpe_error err = {0};
    assert_int_equal(dpe_plan_init(&plan, 0, 1, 1, &err), DPE_USAGE);
    assert_int_equal(dpe_plan_init(&plan, 1, INT64_MAX, 1, &err), DPE_USAGE);
    assert_int_equal(dpe_plan_init(&plan, 1, 1, -1, &err), DPE_USAGE);
}

static void dpe_parameters_are_checked(void **state)
{
    (void)state;
    const int32_t edges[3] = {0, 32, 64};
    const int32_t falling[3] = {0, 0, 64};
    const int32_t shorter[3] = {0, 32, 60};
    const double scale[2] = {2.0, 4.0};
    const double small[2] = {2.0, 0.5};
    const double infinite[2] = {2.0, INFINITY};
    const struct dpe_dpe_params bad[] = {
        {.window = 0, .n_groups = 2, .edges = edges, .scale = scale},
        {.window = 8, .n_groups = 0, .edges = edges, .scale = scale},
        {.window = 8, .n_groups = 65, .edges = edges, .scale = scale},
        {.window = 8, .n_groups = 2, .edges = falling, .scale = scale},
        {.window = 8, .n_groups = 2, .edges = shorter, .scale = scale},
        {.window = 8, .n_groups = 2, .edges = edges, .scale = small},
        {.window = 8, .n_groups = 2, .edges = edges, .scale = infinite},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dpe_plan plan;
        struct dpe_error err = {0};
        assert_int_equal(dpe_plan_make_dpe(&bad[i], &context, &plan, &err), DPE_USAGE);
        assert_int_equal(strncmp(err.text, "dpe", 3), 0);
    }
}

/* The plan of a text of `text` tokens under a method that is made for `length`. */
static struct dpe_plan for_text(const char *spec, int64_t length, int64_t text, bool *differs)
{
    struct dpe_plan_context of_text = context;
    struct dpe_plan plan;
    struct dpe_error err = {0};
    of_text.length = length;
    of_text.text = text;
    if (dpe_plan_for_text(spec, &of_text, &plan, differs, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    return plan;
}

static void short_texts_are_run_unchanged(void **state)
{
    (void)state;
    struct dpe_plan rope = make("rope");
    static const char *const specs[] = {"lampe",
                                        "dca",
                                        "yarn:scale=4",
                                        "self-extend:logit-scale=1.2",
                                        "rope:logit-scale=1.2",
                                        "select:k=4",
                                        "select:k=4,over=dpe:scales=2",
                                        "longrope:long=3"};
    static const struct {
        int64_t length, text;
        bool changes;
    } texts[] = {{131072, 1, false}, {131072, 8192, false}, {131072, 8193, true},
                 {8192, 0, false},   {8193, 0, true},       {64, 0, false}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
            bool differs = true;
            struct dpe_plan plan = for_text(specs[i], texts[t].length, texts[t].text, &differs);
            if (equal(&plan, &rope) == texts[t].changes || (differs && texts[t].changes)) {
                fail_msg("%s for %lld of %lld tokens", specs[i], (long long)texts[t].text,
                         (long long)texts[t].length);
            }
            dpe_plan_free(&plan);
        }
    }
    /* always=1, of the method or of the one in over=, is that plan at any length. */
    bool differs = true;
    struct dpe_plan wanted = make("select:k=4,over=dpe:scales=2");
    static const char *const always[] = {"select:k=4,always=1,over=dpe:scales=2",
                                         "select:k=4,over=dpe:scales=2,always=1"};
    for (size_t i = 0; i < 2; i++) {
        struct dpe_plan plan = for_text(always[i], 131072, 5, &differs);
        assert_true(equal(&plan, &wanted) && !differs && plan.always);
        dpe_plan_free(&plan);
    }
    /* What is wrong with a spec does not depend on the text. */
    struct dpe_plan_context of_text = context;
    struct dpe_plan plan;
    struct dpe_error err = {0};
    of_text.text = 5;
    assert_int_equal(dpe_plan_for_text("lampe:windw=3", &of_text, &plan, NULL, &err), DPE_USAGE);
    assert_int_equal(dpe_plan_for_text("lampe:always=2", &of_text, &plan, NULL, &err), DPE_USAGE);
    struct dpe_temperature temperature;
    assert_int_equal(dpe_temperature_parse("always=1", 64, &temperature, &err), DPE_USAGE);
    of_text.select = "k=4,always=1";
    assert_int_equal(dpe_plan_for_text("rope", &of_text, &plan, NULL, &err), DPE_USAGE);
    dpe_plan_free(&wanted);
    dpe_plan_free(&rope);
}

static void groups_are_equal_ranges(void **state)
{
    (void)state;
    int32_t edges[65];
    struct dpe_error err = {0};
    assert_int_equal(dpe_plan_group_edges(64, 8, edges, &err), DPE_OK);
    for (int g = 0; g <= 8; g++) {
        assert_int_equal(edges[g], 8 * g);
    }
    assert_int_equal(dpe_plan_group_edges(48, 7, edges, &err), DPE_OK);
    const int32_t uneven[8] = {0, 6, 13, 20, 27, 34, 41, 48};
    assert_memory_equal(edges, uneven, sizeof uneven);
    assert_int_equal(dpe_plan_group_edges(64, 64, edges, &err), DPE_OK);
    assert_int_equal(dpe_plan_group_edges(64, 65, edges, &err), DPE_USAGE);
    assert_int_equal(dpe_plan_group_edges(64, 0, edges, &err), DPE_USAGE);
    assert_int_equal(dpe_plan_group_edges(0, 1, edges, &err), DPE_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_with_their_defaults),
        cmocka_unit_test(lampe_follows_its_curve),
        cmocka_unit_test(new_methods_stay_in_the_trained_positions),
        cmocka_unit_test(effective_lengths_become_scales),
        cmocka_unit_test(every_method_makes_itself_again_from_its_name),
        cmocka_unit_test(bad_specs_are_named),
        cmocka_unit_test(the_formula_is_dpe),
        cmocka_unit_test(temperatures_have_one_text),
        cmocka_unit_test(heads_have_factors),
        cmocka_unit_test(temperatures_multiply_the_logits),
        cmocka_unit_test(a_long_hostile_spec_is_refused),
        cmocka_unit_test(contexts_are_checked),
        cmocka_unit_test(digests_depend_on_meaning_not_names),
        cmocka_unit_test(groups_at_one_length_are_one_configuration),
        cmocka_unit_test(broken_structs_are_refused),
        cmocka_unit_test(dpe_parameters_are_checked),
        cmocka_unit_test(short_texts_are_run_unchanged),
        cmocka_unit_test(groups_are_equal_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The settings of a method that dpe-eval tune tries. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "eval/tool/tune.h"

/* What a number of the default grid is a multiple of. */
enum unit { PLAIN, RATIO /* L/L0 */, WHOLE_RATIO, TRAINED, LENGTH, PAIRS };
enum { MAX_VALUES = 6 };

/* Values of one key of a method; 0 ends them. Window, group, base and factor are what publications
 * search or set by rule. */
static const struct {
    const char *method, *key;
    enum unit unit;
    double values[MAX_VALUES + 1];
} grid[] = {
    {"pi", "scale", RATIO, {0.5, 1, 2}},
    {"ntk", "scale", RATIO, {0.5, 1, 2, 4, 8}},
    {"ntk-dynamic", "scale", RATIO, {0.5, 1, 2, 4}},
    {"ntk-by-parts", "scale", RATIO, {0.5, 1, 2, 4}},
    {"ntk-by-parts", "beta", PLAIN, {8, 32}},
    {"yarn", "scale", RATIO, {0.5, 1, 2, 4}},
    {"yarn", "beta_fast", PLAIN, {8, 32}},
    {"llama3", "scale", RATIO, {0.5, 1, 2, 4}},
    {"llama3", "high", PLAIN, {4, 16}},
    {"mrrope", "scale", RATIO, {0.5, 1, 2, 4}},
    {"mrrope", "beta_fast", PLAIN, {8, 32}},
    {"rerope", "window", TRAINED, {0.125, 0.25, 0.5, 0.75}},
    {"leaky-rerope", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"leaky-rerope", "scale", RATIO, {1, 1.4, 2}},
    {"self-extend", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"self-extend", "group", WHOLE_RATIO, {1.15, 1.5, 2}},
    {"dpe", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"dpe", "scales", WHOLE_RATIO, {1.15, 1.5, 2}},
    {"dca", "chunk", TRAINED, {0.5, 0.75}},
    {"dca", "local", TRAINED, {0.0625, 0.125, 0.25}},
    {"string", "shift", LENGTH, {0.25, 0.33, 0.5}},
    {"string", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"streaming-llm", "window", TRAINED, {0.5, 0.75, 0.95}},
    {"lm-infinite", "window", TRAINED, {0.5, 0.75, 1}},
    {"lampe", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"lampe", "map", TRAINED, {0.25, 0.5, 0.75}},
    {"jet-long", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"jet-long", "group", WHOLE_RATIO, {1, 1.5, 2}},
    {"jetlong_freq", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"jetlong_freq", "scale", RATIO, {1, 1.4, 2}},
    {"self", "window", TRAINED, {0.0625, 0.125, 0.25}},
    {"self", "group", WHOLE_RATIO, {1.15, 1.5, 2}},
    {"cope", "clip", PAIRS, {0.1875, 0.3125, 0.5, 0.6875}},
    {"hirope", "segment", WHOLE_RATIO, {1, 2, 4}},
    {"hirope", "split", PAIRS, {0.25, 0.5, 0.75}},
    {"adagrope", "first", TRAINED, {0.125, 0.1875, 0.25}},
    {"dope", "from", PAIRS, {0.25, 0.375, 0.5, 0.75}},
};
enum { N_GRID = sizeof grid / sizeof grid[0] };

/* A setting: the spec, and another item of it ("" for none). */
static dpe_status add(struct dpe_tune_settings *settings, const char *spec, const char *item,
                      struct dpe_error *err)
{
    const char *before = item[0] == '\0' ? "" : strchr(spec, ':') == NULL ? ":" : ",";
    if (settings->n == TUNE_MAX_SETTINGS) {
        return dpe_fail(err, DPE_USAGE,
                        "--method %.60s…: expected at most %d settings, found more; give fewer "
                        "values",
                        spec, TUNE_MAX_SETTINGS);
    }
    int n = snprintf(settings->specs[settings->n++], DPE_DETECT_SPEC, "%s%s%s", spec, before, item);
    return n < DPE_DETECT_SPEC
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE, "--method %.60s…: a setting is longer than %d characters",
                          spec, DPE_DETECT_SPEC - 1);
}

static double unit_of(enum unit unit, const struct dpe_plan_context *context)
{
    double trained = (double)context->trained_length;
    switch (unit) {
    case RATIO:
    case WHOLE_RATIO:
        return fmax(1.0, (double)context->length / trained);
    case TRAINED:
        return trained;
    case LENGTH:
        return (double)context->length;
    case PAIRS:
        return (double)dpe_config_pairs(context->config);
    default:
        return 1.0;
    }
}

/* Between values: what the user writes, and of the default grid, where a list has one number. */
enum { BY_USER = '/', BY_DEFAULT = '|' };

/* The method with the values of its default grid, each once. */
static void put_default(const char *method, const struct dpe_plan_context *context,
                        char spec[DPE_DETECT_SPEC])
{
    snprintf(spec, DPE_DETECT_SPEC, "%s", method);
    for (int i = 0; i < N_GRID; i++) {
        char last[32] = "";
        for (int v = 0; strcmp(grid[i].method, method) == 0 && grid[i].values[v] > 0.0; v++) {
            char text[32];
            double value = grid[i].values[v] * unit_of(grid[i].unit, context);
            bool whole = grid[i].unit != PLAIN && grid[i].unit != RATIO;
            snprintf(text, sizeof text, "%.6g", fmax(1.0, whole ? ceil(value) : value));
            if (v == 0) {
                dpe_append(spec, DPE_DETECT_SPEC, "%s%s=%s", strchr(spec, ':') == NULL ? ":" : ",",
                           grid[i].key, text);
            } else if (strcmp(text, last) != 0) { /* they ascend */
                dpe_append(spec, DPE_DETECT_SPEC, "%c%s", BY_DEFAULT, text);
            }
            memcpy(last, text, sizeof last);
        }
    }
}

/* Keys whose value is a list: '/' does not separate settings there. */
static bool is_list(const char *method, const char *key, size_t n)
{
    static const char *const lists[] = {"dpe:scales", "dpe:lengths", "longrope:long",
                                        "longrope:short", "dope:heads"};
    char name[DPE_DETECT_SPEC];
    snprintf(name, sizeof name, "%s:%.*s", method, (int)n, key);
    return DPE_NAMED(lists, name) != NULL;
}

/* Of an item of a spec the values of KEY=a/b/c, and the key; NULL: it has at most one. In
 * over=NAME:KEY=… `method` becomes NAME: the items that follow are its own (dpe_plan_make).
 * Whatever is wrong with an item, dpe_plan_make says it. */
static const char *values_of(const char *item, char between, char method[32], const char **key)
{
    const char *end = item + strcspn(item, ",");
    const char *inner = strncmp(item, "over=", 5) == 0 ? strpbrk(item, ":,") : NULL;
    inner = inner != NULL && *inner == ':' ? inner : NULL;
    if (inner != NULL) {
        snprintf(method, 32, "%.*s", (int)(inner - item - 5), item + 5);
    }
    *key = inner != NULL ? inner + 1 : item;
    const char *equals = memchr(*key, '=', (size_t)(end - *key));
    return equals != NULL && memchr(equals, between, (size_t)(end - equals)) != NULL &&
                   !(between == BY_USER && is_list(method, *key, (size_t)(equals - *key)))
               ? equals + 1
               : NULL;
}

/* The settings of a spec: it has each value of its first key with several in turn. */
static dpe_status expand(const char *spec, char between, struct dpe_tune_settings *settings,
                         struct dpe_error *err)
{
    const char ends[] = {between, ',', '\0'};
    char method[32];
    const char *key = NULL, *values = NULL;
    const char *item = spec + strcspn(spec, ":");
    snprintf(method, sizeof method, "%.*s", (int)(item - spec), spec);
    while (*item != '\0' && values == NULL) {
        values = values_of(item + 1, between, method, &key);
        item += 1 + strcspn(item + 1, ",");
    }
    if (values == NULL) {
        return add(settings, spec, "", err);
    }
    for (const char *value = values, *end = NULL; value <= item; value = end + 1) {
        char one[DPE_DETECT_SPEC];
        end = value + strcspn(value, ends);
        if (end == value) {
            return dpe_fail(err, DPE_USAGE,
                            "--method %s: %.*s: expected values separated by '/', found \"%.*s\"",
                            method, (int)(values - 1 - key), key, (int)(item - values), values);
        }
        snprintf(one, sizeof one, "%.*s%.*s%s", (int)(values - spec), spec, (int)(end - value),
                 value, item);
        DPE_TRY(expand(one, between, settings, err));
    }
    return DPE_OK;
}

static bool has_temperature(const char *spec)
{
    return strstr(spec, "log-n") != NULL || strstr(spec, "infoscale=") != NULL ||
           strstr(spec, "logit-scale=") != NULL;
}

/* Every setting so far, again with each of these temperatures. */
static dpe_status add_temperatures(struct dpe_tune_settings *settings,
                                   const struct dpe_plan_context *context, struct dpe_error *err)
{
    char log_n[64];
    const char *const scales[] = {log_n, "logit-scale=1.25", "logit-scale=1.6"};
    int n = settings->n;
    snprintf(log_n, sizeof log_n, "log-n=%lld", (long long)context->trained_length);
    for (size_t f = 0; f < sizeof scales / sizeof scales[0]; f++) {
        for (int i = 0; i < n; i++) {
            DPE_TRY(add(settings, settings->specs[i], scales[f], err));
        }
    }
    return DPE_OK;
}

dpe_status dpe_tune_expand(const char *spec, const struct dpe_plan_context *context,
                           bool temperature, struct dpe_tune_settings *settings,
                           struct dpe_error *err)
{
    char method[32], all[DPE_DETECT_SPEC];
    *settings = (struct dpe_tune_settings){0};
    size_t name = strcspn(spec, ":");
    if (strlen(spec) >= sizeof all || name >= sizeof method) {
        return dpe_fail(err, DPE_USAGE, "--method %.60s…: longer than %zu characters", spec,
                        name >= sizeof method ? sizeof method - 1 : sizeof all - 1);
    }
    DPE_TRY(DPE_NEW(&settings->specs, TUNE_MAX_SETTINGS, err, "out of memory for settings"));
    snprintf(method, sizeof method, "%.*s", (int)name, spec);
    DPE_TRY(add(settings, method, "", err));
    put_default(method, context, all);
    if (spec[name] != '\0') {
        DPE_TRY(expand(spec, BY_USER, settings, err));
    } else if (all[name] != '\0') {
        DPE_TRY(expand(all, BY_DEFAULT, settings, err));
    }
    return temperature && !has_temperature(spec) ? add_temperatures(settings, context, err)
                                                 : DPE_OK;
}

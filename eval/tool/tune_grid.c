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

enum { MAX_AXES = 16, MAX_AXIS_VALUES = MAX_VALUES * 4 };
/* An item of a spec: a key and its values, or what all settings have there. */
struct axis {
    char key[64];
    char values[MAX_AXIS_VALUES][32];
    int n; /* 0: fixed */
    char fixed[DPE_DETECT_SPEC];
};

void dpe_tune_settings_free(struct dpe_tune_settings *settings)
{
    free(settings->specs);
    *settings = (struct dpe_tune_settings){0};
}

static dpe_status add(struct dpe_tune_settings *settings, const char *spec, struct dpe_error *err)
{
    if (settings->n == TUNE_MAX_SETTINGS) {
        return dpe_fail(err, DPE_USAGE,
                        "--method %.60s…: expected at most %d settings, found more; give fewer "
                        "values",
                        spec, TUNE_MAX_SETTINGS);
    }
    snprintf(settings->specs[settings->n++], DPE_DETECT_SPEC, "%s", spec);
    return DPE_OK;
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

static bool has_value(const struct axis *axis, const char *text)
{
    for (int i = 0; i < axis->n; i++) {
        if (strcmp(axis->values[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static int default_axes(const char *method, const struct dpe_plan_context *context,
                        struct axis *axes)
{
    int n = 0;
    for (int i = 0; i < N_GRID; i++) {
        if (strcmp(grid[i].method, method) != 0) {
            continue;
        }
        struct axis *axis = &axes[n++];
        *axis = (struct axis){.n = 0};
        snprintf(axis->key, sizeof axis->key, "%s", grid[i].key);
        for (int v = 0; grid[i].values[v] > 0.0; v++) {
            char text[32];
            double value = grid[i].values[v] * unit_of(grid[i].unit, context);
            bool whole = grid[i].unit != PLAIN && grid[i].unit != RATIO;
            value = whole ? fmax(1.0, ceil(value)) : fmax(1.0, value);
            snprintf(text, sizeof text, "%.6g", value);
            if (!has_value(axis, text)) {
                snprintf(axis->values[axis->n++], sizeof text, "%s", text);
            }
        }
    }
    return n;
}

/* Keys whose value is a list: '/' does not separate settings there. */
static bool is_list(const char *method, const char *key, size_t n)
{
    static const char *const lists[] = {"dpe:scales", "dpe:lengths", "longrope:long",
                                        "longrope:short", "dope:heads"};
    size_t of_method = strlen(method);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (strncmp(lists[i], method, of_method) == 0 && lists[i][of_method] == ':' &&
            strlen(lists[i]) == of_method + 1 + n &&
            strncmp(lists[i] + of_method + 1, key, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Append ":item" or ",item"; whether there is room. */
static bool append(char spec[DPE_DETECT_SPEC], const char *item)
{
    size_t used = strlen(spec);
    int n = snprintf(spec + used, DPE_DETECT_SPEC - used, "%c%s",
                     strchr(spec, ':') == NULL ? ':' : ',', item);
    return n >= 0 && (size_t)n < DPE_DETECT_SPEC - used;
}

static dpe_status too_long(const char *spec, struct dpe_error *err)
{
    return dpe_fail(err, DPE_USAGE, "--method %.60s…: a setting is longer than %d characters", spec,
                    DPE_DETECT_SPEC - 1);
}

/* Settings of the spec `made` for all combinations of the axes from `at` on. */
static dpe_status combine(const char *made, const struct axis *axes, int n, int at,
                          struct dpe_tune_settings *settings, struct dpe_error *err)
{
    if (at == n) {
        return add(settings, made, err);
    }
    const struct axis *axis = &axes[at];
    for (int v = 0; v < (axis->n > 0 ? axis->n : 1); v++) {
        char longer[DPE_DETECT_SPEC];
        char item[sizeof axis->key + sizeof axis->values[0] + 1];
        snprintf(item, sizeof item, "%.63s=%.31s", axis->key, axis->values[v]);
        memcpy(longer, made, strlen(made) + 1);
        if (!append(longer, axis->n > 0 ? item : axis->fixed)) {
            return too_long(made, err);
        }
        DPE_TRY(combine(longer, axes, n, at + 1, settings, err));
    }
    return DPE_OK;
}

/* Where the key of an item ends: at its '=', or in over=NAME:KEY=… at the second one. Then `method`
 * becomes NAME: the items that follow are its own (dpe_plan_make). 0: the item has no key. */
static size_t end_of_key(const char *item, char method[32])
{
    const char *inner = strncmp(item, "over=", 5) == 0 ? strchr(item, ':') : NULL;
    if (inner != NULL) {
        snprintf(method, 32, "%.*s", (int)(inner - item - 5), item + 5);
    }
    const char *equals = strchr(inner != NULL ? inner : item, '=');
    return equals != NULL ? (size_t)(equals - item) : 0;
}

/* KEY=a/b/c of a spec, or a part of the spec that all settings have. */
static dpe_status read_item(char method[32], const char *item, struct axis *axis,
                            struct dpe_error *err)
{
    size_t key = end_of_key(item, method);
    const char *inner = memchr(item, ':', key);
    size_t own = inner != NULL ? (size_t)(inner + 1 - item) : 0;
    *axis = (struct axis){.n = 0};
    snprintf(axis->fixed, sizeof axis->fixed, "%s", item);
    if (key == 0 || strchr(item + key, '/') == NULL || is_list(method, item + own, key - own)) {
        return DPE_OK; /* whatever is wrong with it, dpe_plan_make says it */
    }
    snprintf(axis->key, sizeof axis->key, "%.*s", (int)key, item);
    for (const char *at = item + key + 1;; at++) {
        size_t length = strcspn(at, "/");
        if (key >= sizeof axis->key || axis->n == MAX_AXIS_VALUES || length == 0 ||
            length >= sizeof axis->values[0]) {
            return dpe_fail(err, DPE_USAGE,
                            "--method %s: %s: expected 1 to %d values separated by '/', found "
                            "\"%.60s\"",
                            method, axis->key, MAX_AXIS_VALUES, item + key + 1);
        }
        snprintf(axis->values[axis->n++], sizeof axis->values[0], "%.*s", (int)length, at);
        at += length;
        if (*at == '\0') {
            return DPE_OK;
        }
    }
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
    static const char *const scales[] = {NULL, "logit-scale=1.25", "logit-scale=1.6"};
    int n = settings->n;
    for (size_t f = 0; f < sizeof scales / sizeof scales[0]; f++) {
        char text[64];
        if (scales[f] == NULL) {
            snprintf(text, sizeof text, "log-n=%lld", (long long)context->trained_length);
        } else {
            snprintf(text, sizeof text, "%s", scales[f]);
        }
        for (int i = 0; i < n; i++) {
            char spec[DPE_DETECT_SPEC];
            memcpy(spec, settings->specs[i], sizeof spec);
            if (!append(spec, text)) {
                return too_long(spec, err);
            }
            DPE_TRY(add(settings, spec, err));
        }
    }
    return DPE_OK;
}

dpe_status dpe_tune_expand(const char *spec, const struct dpe_plan_context *context,
                           bool temperature, struct dpe_tune_settings *settings,
                           struct dpe_error *err)
{
    struct axis axes[MAX_AXES];
    int n = 0;
    char of_items[32] = "";
    char method[32] = "";
    char item[DPE_DETECT_SPEC];
    *settings = (struct dpe_tune_settings){0};
    size_t name = strcspn(spec, ":");
    if (strlen(spec) >= sizeof item || name >= sizeof method) {
        return dpe_fail(err, DPE_USAGE, "--method %.60s…: longer than %zu characters", spec,
                        name >= sizeof method ? sizeof method - 1 : sizeof item - 1);
    }
    DPE_TRY(DPE_NEW(&settings->specs, TUNE_MAX_SETTINGS, err, "out of memory for settings"));
    snprintf(method, sizeof method, "%.*s", (int)name, spec);
    memcpy(of_items, method, sizeof method);
    DPE_TRY(add(settings, method, err));
    for (const char *at = spec + name; *at != '\0';) {
        size_t length = strcspn(at + 1, ",");
        snprintf(item, sizeof item, "%.*s", (int)length, at + 1);
        if (n == MAX_AXES) {
            return dpe_fail(err, DPE_USAGE, "--method %s: expected at most %d keys", method,
                            MAX_AXES);
        }
        DPE_TRY(read_item(of_items, item, &axes[n++], err));
        at += 1 + length;
    }
    if (spec[name] == '\0') {
        n = default_axes(method, context, axes);
    }
    if (n > 0) {
        DPE_TRY(combine(method, axes, n, 0, settings, err));
    }
    return temperature && !has_temperature(spec) ? add_temperatures(settings, context, err)
                                                 : DPE_OK;
}

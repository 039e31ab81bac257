/* The needle task's parameters: defaults, reading, writing. */
#include "eval/niah/niah_parts.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_KEYS = 1024, MAX_NEEDLES = 1024, MAX_DIGITS = 18, MAX_SHARED = 256, MAX_SPARE = 128 };

const char *const dpe_niah_specials[] = {"error", "literal", "parse"};
const char dpe_niah_keys[] =
    "keys, values, queries, digits, depth, asked, shared, spare, template, repeat, score, special";

void dpe_niah_defaults(struct dpe_niah_params *params)
{
    *params = (struct dpe_niah_params){.keys = 1,
                                       .values = 4,
                                       .queries = 1,
                                       .digits = 7,
                                       .depth = (double)NAN,
                                       .asked = 1,
                                       .shared = 1};
}

dpe_status dpe_niah_check(const struct dpe_niah_params *params, struct dpe_error *err)
{
    if (params->keys < 1 || params->keys > MAX_KEYS || params->values < 1 ||
        params->values > MAX_NEEDLES || params->keys * params->values > MAX_NEEDLES) {
        return dpe_fail(err, DPE_USAGE,
                        "niah: expected 1 to %d needles (keys × values), found %d × %d",
                        MAX_NEEDLES, params->keys, params->values);
    }
    if (params->queries < 1 || params->queries > params->keys) {
        return dpe_fail(err, DPE_USAGE, "niah: expected queries in 1 … %d (keys), found %d",
                        params->keys, params->queries);
    }
    if (params->asked < 1 || params->asked > params->keys ||
        (params->asked > 1 && params->queries != 1)) {
        return dpe_fail(err, DPE_USAGE,
                        "niah: expected asked in 1 … %d (keys), and queries=1 if asked is above 1; "
                        "found asked=%d, queries=%d",
                        params->keys, params->asked, params->queries);
    }
    if (params->shared < 1 || params->shared > MAX_SHARED) {
        return dpe_fail(err, DPE_USAGE, "niah: expected shared in 1 … %d, found %d", MAX_SHARED,
                        params->shared);
    }
    if (params->spare < 0 || params->spare > MAX_SPARE) {
        return dpe_fail(err, DPE_USAGE, "niah: expected spare in 0 … %d, found %d", MAX_SPARE,
                        params->spare);
    }
    if (params->digits < 1 || params->digits > MAX_DIGITS) {
        return dpe_fail(err, DPE_USAGE, "niah: expected digits in 1 … %d, found %d", MAX_DIGITS,
                        params->digits);
    }
    double numbers = 9.0 * pow(10.0, params->digits - 1);
    if (2.0 * params->keys * params->values > numbers) {
        return dpe_fail(err, DPE_USAGE, "niah: %d distinct values need more than digits=%d",
                        params->keys * params->values, params->digits);
    }
    if (!isnan(params->depth) && !(params->depth >= 0.0 && params->depth <= 1.0)) {
        return dpe_fail(err, DPE_USAGE, "niah: expected depth in 0 … 1, found %g", params->depth);
    }
    if (!isnan(params->depth) && params->keys * params->values != 1) {
        return dpe_fail(err, DPE_USAGE, "niah: depth goes with a single needle (keys=1,values=1)");
    }
    return DPE_OK;
}

static dpe_status read_int(const char *name, const char *value, int *out, struct dpe_error *err)
{
    int64_t number = 0;
    if (!dpe_parse_int(value, 0, 1000000, &number)) {
        return dpe_fail(err, DPE_USAGE, "niah: %s: expected a whole number, found \"%.60s\"", name,
                        value);
    }
    *out = (int)number;
    return DPE_OK;
}

static dpe_status read_special(const char *value, enum dpe_special_policy *out,
                               struct dpe_error *err)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, dpe_niah_specials[i]) == 0) {
            *out = (enum dpe_special_policy)i;
            return DPE_OK;
        }
    }
    return dpe_fail(err, DPE_USAGE,
                    "niah: special: expected error, literal or parse, found \"%.60s\"", value);
}

static dpe_status read_one(const char *name, const char *value, struct dpe_niah_params *params,
                           struct dpe_error *err)
{
    const struct {
        const char *name;
        int *to;
    } numbers[] = {{"keys", &params->keys},       {"values", &params->values},
                   {"queries", &params->queries}, {"digits", &params->digits},
                   {"asked", &params->asked},     {"shared", &params->shared},
                   {"spare", &params->spare}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            return read_int(name, value, numbers[i].to, err);
        }
    }
    if (strcmp(name, "special") == 0) {
        return read_special(value, &params->special, err);
    }
    if (strcmp(name, "repeat") == 0) {
        if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
            return dpe_fail(err, DPE_USAGE, "niah: repeat: expected 0 or 1, found \"%.60s\"",
                            value);
        }
        params->repeat_haystack = value[0] == '1';
        return DPE_OK;
    }
    if (strcmp(name, "score") == 0) {
        params->steps = strcmp(value, "steps") == 0;
        return params->steps || strcmp(value, "recall") == 0
                   ? DPE_OK
                   : dpe_fail(err, DPE_USAGE,
                              "niah: score: expected recall or steps, found \"%.60s\"", value);
    }
    if (strcmp(name, "depth") == 0) {
        if (!dpe_parse_real(value, -DBL_MAX, DBL_MAX, &params->depth)) {
            return dpe_fail(err, DPE_USAGE, "niah: depth: expected a number, found \"%.60s\"",
                            value);
        }
        return DPE_OK;
    }
    if (strcmp(name, "template") == 0) {
        if (strlen(value) >= sizeof params->template_file) {
            return dpe_fail(err, DPE_USAGE, "niah: template: the path is too long");
        }
        memcpy(params->template_file, value, strlen(value) + 1);
        return DPE_OK;
    }
    char meant[96];
    return dpe_fail(err, DPE_USAGE, "niah: unknown parameter \"%.60s\": expected one of %s%s", name,
                    dpe_niah_keys, dpe_suggest(name, dpe_niah_keys, meant));
}

const char *dpe_niah_find(const char *spec, const char *key, size_t *n)
{
    size_t length = strlen(key);
    while (*spec != '\0') {
        size_t item = strcspn(spec, ",");
        if (item > length && strncmp(spec, key, length) == 0 && spec[length] == '=') {
            *n = item - length - 1;
            return spec + length + 1;
        }
        spec += item + (spec[item] == ',');
    }
    return NULL;
}

dpe_status dpe_niah_parse(const char *spec, struct dpe_niah_params *params, struct dpe_error *err)
{
    struct dpe_niah_params read = *params;
    DPE_OWNED char *copy = strdup(spec);
    DPE_TRY(DPE_MADE(copy, err, "niah: no memory for its parameters"));
    for (char *rest = copy; *rest != '\0';) {
        char *name = rest;
        size_t n = strcspn(rest, ",");
        rest += n + (rest[n] == ',');
        name[n] = '\0';
        char *equals = strchr(name, '=');
        if (equals == NULL) {
            return dpe_fail(err, DPE_USAGE, "niah: expected key=value, found \"%.60s\"", name);
        }
        *equals = '\0';
        if (dpe_niah_find(rest, name, &n) != NULL) {
            return dpe_fail(err, DPE_USAGE, "niah: %.60s is given twice", name);
        }
        DPE_TRY(read_one(name, equals + 1, &read, err));
    }
    DPE_TRY(dpe_niah_check(&read, err));
    *params = read;
    return DPE_OK;
}

int64_t dpe_niah_together(const struct dpe_niah_params *params)
{
    return (int64_t)params->asked * params->shared;
}

void dpe_niah_format(const struct dpe_niah_params *params, char *text, size_t n)
{
    char depth[32] = "drawn";
    if (!isnan(params->depth)) {
        snprintf(depth, sizeof depth, "%.17g", params->depth);
    }
    snprintf(text, n, "keys=%d,values=%d,queries=%d,digits=%d,depth=%s,repeat=%d,special=%s",
             params->keys, params->values, params->queries, params->digits, depth,
             params->repeat_haystack ? 1 : 0, dpe_niah_specials[params->special]);
    /* What most runs do not use is not part of their name. */
    if (params->asked > 1) {
        dpe_append(text, n, ",asked=%d", params->asked);
    }
    if (params->shared > 1) {
        dpe_append(text, n, ",shared=%d", params->shared);
    }
    if (params->spare > 0) {
        dpe_append(text, n, ",spare=%d", params->spare);
    }
    if (params->steps) {
        dpe_append(text, n, ",score=steps");
    }
}

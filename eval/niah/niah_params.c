/* The needle task's parameters: defaults, reading, writing. */
#include "eval/niah/niah_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NEEDLES = 1024 };

const char *const dpe_niah_specials[] = {"error", "literal", "parse"};
const char dpe_niah_keys[] =
    "keys, values, queries, digits, depth, asked, shared, spare, template, repeat, score, special";

static const struct number {
    const char *name;
    size_t at;
    int low, high;
} numbers[] = {
#define NUMBER(field) #field, offsetof(struct dpe_niah_params, field)
    {NUMBER(keys), 1, MAX_NEEDLES},    {NUMBER(values), 1, MAX_NEEDLES},
    {NUMBER(queries), 1, MAX_NEEDLES}, {NUMBER(digits), 1, 18},
    {NUMBER(asked), 1, MAX_NEEDLES},   {NUMBER(shared), 1, 256},
    {NUMBER(spare), 0, 128},
#undef NUMBER
};

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
    if (params->keys * params->values > MAX_NEEDLES) {
        return dpe_fail(err, DPE_USAGE, "niah: expected at most %d needles, found %d × %d keys",
                        MAX_NEEDLES, params->values, params->keys);
    }
    if (params->queries > params->keys || params->asked > params->keys ||
        (params->asked > 1 && params->queries != 1)) {
        return dpe_fail(err, DPE_USAGE,
                        "niah: expected queries and asked in 1 … %d (keys), and queries=1 if asked "
                        "is above 1; found asked=%d, queries=%d",
                        params->keys, params->asked, params->queries);
    }
    double distinct = 9.0 * pow(10.0, params->digits - 1);
    if (2.0 * params->keys * params->values > distinct) {
        return dpe_fail(err, DPE_USAGE, "niah: %d distinct values need more than digits=%d",
                        params->keys * params->values, params->digits);
    }
    if (!isnan(params->depth) && params->keys * params->values != 1) {
        return dpe_fail(err, DPE_USAGE, "niah: depth goes with a single needle (keys=1,values=1)");
    }
    return DPE_OK;
}

static dpe_status read_one(const char *name, const char *value, struct dpe_niah_params *params,
                           struct dpe_error *err)
{
    const struct number *of = DPE_NAMED(numbers, name);
    bool good = false;
    char expected[96] = "";
    if (of != NULL) {
        int64_t number = 0;
        good = dpe_parse_int(value, of->low, of->high, &number);
        *(int *)(void *)((char *)params + of->at) = (int)number;
        snprintf(expected, sizeof expected, "a whole number in %d … %d", of->low, of->high);
    } else if (strcmp(name, "special") == 0) {
        const char *const *word = DPE_NAMED(dpe_niah_specials, value);
        good = word != NULL;
        params->special = (enum dpe_special_policy)(good ? word - dpe_niah_specials : 0);
        strcpy(expected, "error, literal or parse");
    } else if (strcmp(name, "repeat") == 0) {
        params->repeat_haystack = strcmp(value, "1") == 0;
        good = params->repeat_haystack || strcmp(value, "0") == 0;
        strcpy(expected, "0 or 1");
    } else if (strcmp(name, "score") == 0) {
        params->steps = strcmp(value, "steps") == 0;
        good = params->steps || strcmp(value, "recall") == 0;
        strcpy(expected, "recall or steps");
    } else if (strcmp(name, "depth") == 0) {
        good = dpe_parse_real(value, 0.0, 1.0, &params->depth);
        strcpy(expected, "a number in 0 … 1");
    } else if (strcmp(name, "template") == 0) {
        int n = snprintf(params->template_file, sizeof params->template_file, "%s", value);
        good = n >= 0 && (size_t)n < sizeof params->template_file;
        strcpy(expected, "a shorter path");
    } else {
        return dpe_fail(err, DPE_USAGE, "niah: unknown parameter \"%.60s\": expected one of %s%s",
                        name, dpe_niah_keys, dpe_suggest(name, dpe_niah_keys, expected));
    }
    return good ? DPE_OK
                : dpe_fail(err, DPE_USAGE, "niah: %s: expected %s, found \"%.60s\"", name, expected,
                           value);
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

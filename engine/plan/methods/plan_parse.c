/* "name:key=value,key=value" → plan: taking specs apart, and the way from one to a plan. */
#include "engine/plan/methods/methods_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/fields.h"

void dpe_spec_fail(struct dpe_spec *spec, const char *format, ...)
{
    char text[4096];
    va_list args;
    if (spec->status != DPE_OK) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    spec->status = dpe_fail(spec->err, DPE_USAGE, "method %s: %s", spec->method, text);
}

static void note(struct dpe_spec *spec, const char *text)
{
    dpe_append(spec->name, sizeof spec->name, "%s", text);
}

static void note_key(struct dpe_spec *spec, const char *key)
{
    note(spec, strchr(spec->name, ':') == NULL ? ":" : ",");
    note(spec, key);
    note(spec, "=");
}

static void note_number(struct dpe_spec *spec, double value)
{
    char text[32];
    note(spec, dpe_number_exact(value, text));
}

static const char *find(struct dpe_spec *spec, const char *key)
{
    for (int i = 0; i < spec->n; i++) {
        if (strcmp(spec->keys[i], key) == 0) {
            spec->read[i] = true;
            return spec->values[i];
        }
    }
    return NULL;
}

/* One number at *text, which must end there or at `separator`; moves *text after it. */
static bool read_number(const char **text, char separator, double *value)
{
    const char *end = *text;
    if (!dpe_scan_real(&end, value) || (*end != 0 && *end != separator)) {
        return false;
    }
    *text = end;
    return true;
}

static void refuse(struct dpe_spec *spec, const char *key, const char *expected, double lo,
                   double hi)
{
    dpe_spec_fail(spec, "%s: expected %s from %.15g to %.15g, found \"%s\"", key, expected, lo, hi,
                  find(spec, key));
}

static double number(struct dpe_spec *spec, const char *key, double fallback, double lo, double hi,
                     bool whole)
{
    const char *text = find(spec, key);
    double value = fallback;
    if (text != NULL) {
        const char *end = text;
        int64_t count = 0;
        bool good = whole ? dpe_parse_length(text, INT64_MIN, INT64_MAX, &count)
                          : read_number(&end, 0, &value);
        value = whole ? (double)count : value;
        if (!good || value < lo || value > hi) {
            refuse(spec, key, whole ? "a whole number" : "a number", lo, hi);
            value = fallback;
        }
    }
    note_key(spec, key);
    note_number(spec, value);
    return value;
}

double dpe_spec_number(struct dpe_spec *spec, const char *key, double fallback, double lo,
                       double hi)
{
    return number(spec, key, fallback, lo, hi, false);
}

int64_t dpe_spec_whole(struct dpe_spec *spec, const char *key, int64_t fallback, int64_t lo,
                       int64_t hi)
{
    return (int64_t)number(spec, key, (double)fallback, (double)lo, (double)hi, true);
}

bool dpe_spec_flag(struct dpe_spec *spec, const char *key, bool fallback)
{
    return number(spec, key, fallback ? 1.0 : 0.0, 0.0, 1.0, true) != 0.0;
}

int dpe_spec_list(struct dpe_spec *spec, const char *key, double fallback, double lo, double hi,
                  double *values, int most)
{
    const char *text = find(spec, key);
    int n = 0;
    if (text == NULL && isnan(fallback)) {
        return 0;
    }
    if (text == NULL) {
        values[n++] = fallback;
    }
    for (bool more = text != NULL; more; text++) {
        double value = 0.0;
        if (n == most || !read_number(&text, '/', &value) || value < lo || value > hi) {
            refuse(spec, key, "numbers separated by '/', each", lo, hi);
            return 0;
        }
        values[n++] = value;
        more = *text == '/';
    }
    note_key(spec, key);
    for (int i = 0; i < n; i++) {
        note(spec, i == 0 ? "" : "/");
        note_number(spec, values[i]);
    }
    return n;
}

unsigned dpe_spec_word(struct dpe_spec *spec, const char *key, unsigned fallback,
                       const char *const *words, size_t n)
{
    const char *text = find(spec, key);
    unsigned value = fallback;
    char known[160] = "";
    for (size_t i = 0; i < n; i++) {
        dpe_append(known, sizeof known, "%s%s", i == 0 ? "" : ", ", words[i]);
        if (text != NULL && strcmp(text, words[i]) == 0) {
            value = (unsigned)i;
            text = NULL;
        }
    }
    if (text != NULL) {
        dpe_spec_fail(spec, "%s: expected one of %s, found \"%.64s\"", key, known, text);
    }
    note_key(spec, key);
    note(spec, words[value]);
    return value;
}

static bool method_is(const struct dpe_method *method, const char *name)
{
    size_t n = strlen(name);
    return strncmp(method->line, name, n) == 0 && method->line[n] == '\t';
}

/* The key of struct dpe_plan that every method has too, but not a selection for another plan. */
static const char text_keys[] = "always=0";

/* Whether the key stands in a list "key=default key=default ...". */
static bool list_has_key(const char *list, const char *end, const char *key)
{
    const size_t n = strlen(key);
    const char *at = strstr(list, key);
    while (at != NULL && at < end && !(at[n] == '=' && (at == list || at[-1] == ' '))) {
        at = strstr(at + 1, key);
    }
    return at != NULL && at < end && n > 0;
}

static bool method_has_key(const struct dpe_method *method, const char *key)
{
    const char *keys = strchr(method->line, '\t') + 1;
    return list_has_key(keys, strchr(keys, '\t'), key);
}

/* Keys of a temperature that are no number of it. */
static const char infoscale[] = "infoscale", of_heads[] = "logit-scale-heads";

static const struct dpe_number *number_of_key(const char *key)
{
    size_t i = 0;
    while (i < dpe_temperature_numbers.n && strcmp(dpe_temperature_numbers.of[i].key, key) != 0) {
        i++;
    }
    return i < dpe_temperature_numbers.n ? &dpe_temperature_numbers.of[i] : NULL;
}

const char *dpe_plan_temperature_keys(char text[DPE_TEMPERATURE_KEYS])
{
    text[0] = '\0';
    for (size_t i = 0; i < dpe_temperature_numbers.n; i++) {
        dpe_append(text, DPE_TEMPERATURE_KEYS, "%s=%.15g ", dpe_temperature_numbers.of[i].key,
                   dpe_temperature_numbers.of[i].usual);
    }
    dpe_append(text, DPE_TEMPERATURE_KEYS, "%s=0 %s=(none)", infoscale, of_heads);
    return text;
}

static bool spec_has_key(const struct dpe_spec *spec, const struct dpe_method *method,
                         const char *key)
{
    bool whole = method->build != NULL && !spec->alone;
    return method_has_key(method, key) || number_of_key(key) != NULL ||
           strcmp(key, infoscale) == 0 || strcmp(key, of_heads) == 0 ||
           (whole && list_has_key(text_keys, text_keys + strlen(text_keys), key));
}

static const struct dpe_method *find_method(const char *name, struct dpe_error *err)
{
    char known[512] = "";
    const struct dpe_method *method = NULL;
    for (size_t i = 0; (method = dpe_method_at(i)) != NULL; i++) {
        const char *line = method->line;
        if (method_is(method, name)) {
            return method;
        }
        dpe_append(known, sizeof known, "%s%.*s", i == 0 ? "" : ", ", (int)strcspn(line, "\t"),
                   line);
    }
    char meant[96];
    dpe_fail(err, DPE_USAGE, "unknown method '%.64s'; methods: %s%s", name, known,
             dpe_suggest(name, known, meant));
    return NULL;
}

static dpe_status add_key(struct dpe_spec *spec, const struct dpe_method *method, char *item)
{
    char *equals = strchr(item, '=');
    if (equals == NULL || equals == item || spec->n == DPE_SPEC_MAX_KEYS) {
        return dpe_fail(spec->err, DPE_USAGE, "method %s: expected key=value, found \"%.64s\"",
                        spec->method, item);
    }
    *equals = 0;
    if (!spec_has_key(spec, method, item)) {
        const char *keys = strchr(method->line, '\t') + 1;
        char known[640];
        char meant[96];
        char temperature[DPE_TEMPERATURE_KEYS];
        const char *over = spec->alone ? strstr(keys, " over=") : NULL;
        int n = over != NULL ? (int)(over - keys) : (int)strcspn(keys, "\t");
        snprintf(known, sizeof known, "%.*s%s%s%s%s", n, keys, n == 0 || spec->alone ? "" : " ",
                 spec->alone ? "" : dpe_plan_temperature_keys(temperature),
                 spec->alone || method->build == NULL ? "" : " ",
                 spec->alone || method->build == NULL ? "" : text_keys);
        return dpe_fail(spec->err, DPE_USAGE,
                        "method %s: unknown key '%.64s'; keys and defaults: %s%s", spec->method,
                        item, known, dpe_suggest(item, known, meant));
    }
    if (find(spec, item) != NULL) {
        return dpe_fail(spec->err, DPE_USAGE, "method %s: %s is given twice", spec->method, item);
    }
    spec->keys[spec->n] = item;
    spec->values[spec->n++] = equals + 1;
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------- temperature */

static bool has(struct dpe_spec *spec, const char *key)
{
    return find(spec, key) != NULL;
}

static void fail_temperature(struct dpe_spec *spec, const char *key, const char *expected)
{
    dpe_spec_fail(spec, "%s: expected %s, found \"%s\"", key, expected,
                  has(spec, key) ? find(spec, key) : "nothing");
}

/* What a spec says of a number, under `key`; where it says nothing, what is there, or of one that
 * multiplies 1. Keys that are absent are not noted. */
static void temperature_number(struct dpe_spec *spec, const char *key,
                               const struct dpe_number *number, struct dpe_temperature *temperature)
{
    const char *text = find(spec, key);
    double *value = dpe_number_real(number, temperature);
    int64_t tokens = 0;
    *value = (number->is & DPE_NUMBER_TIMES) != 0 ? number->usual : *value;
    if (text != NULL) {
        bool good = read_number(&text, 0, value);
        if (!good && dpe_parse_length(text, 0, INT64_MAX, &tokens)) { /* 8k */
            good = true;
            *value = (double)tokens;
        }
        if (!good || !dpe_number_fits(number, *value)) {
            char expected[DPE_NUMBER_TEXT];
            fail_temperature(spec, key, dpe_number_range(number, expected));
            return;
        }
        note_key(spec, key);
        note_number(spec, *value);
    }
}

/* "layer.head:factor", up to a slash or the end. */
static bool read_head(const char **text, struct dpe_temperature *temperature)
{
    int64_t layer = 0, head = 0;
    double factor = 0.0;
    const bool good = dpe_scan_int(text, 0, INT32_MAX, &layer) && *(*text)++ == '.' &&
                      dpe_scan_int(text, 0, INT32_MAX, &head) && *(*text)++ == ':' &&
                      read_number(text, '/', &factor) && factor > 0.0 &&
                      factor <= DPE_MOST_LOGIT_SCALE;
    return good && dpe_temperature_head(temperature, layer, head) == 1.0 &&
           dpe_temperature_set_head(temperature, layer, head, factor);
}

static void read_heads(struct dpe_spec *spec, struct dpe_temperature *temperature)
{
    const char *text = find(spec, of_heads);
    if (text == NULL) {
        return;
    }
    bool good = read_head(&text, temperature);
    while (good && *text == '/') {
        text++;
        good = read_head(&text, temperature);
    }
    if (!good || *text != '\0') {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "LAYER.HEAD:FACTOR/… of at most %d heads, each once, factors above 0 and at most "
                 "%.15g",
                 DPE_HEAD_FACTORS, DPE_MOST_LOGIT_SCALE);
        fail_temperature(spec, of_heads, expected);
        return;
    }
    note_key(spec, of_heads);
    note(spec, find(spec, of_heads));
}

/* The temperature keys; those that are absent change nothing. */
static void read_temperature(struct dpe_spec *spec, int64_t head_dim,
                             struct dpe_temperature *temperature)
{
    const bool stands = has(spec, infoscale); /* for log-n, its power and its decay */
    for (size_t i = 0; i < dpe_temperature_numbers.n; i++) {
        const struct dpe_number *number = &dpe_temperature_numbers.of[i];
        const struct dpe_number *whole = dpe_number_whole(number);
        const bool given = has(spec, number->key);
        if (stands && given && strncmp(whole->key, "log-n", 5) == 0) {
            fail_temperature(spec, infoscale,
                             "it without log-n and what shapes it, which it stands for");
        } else if (given && !has(spec, whole->key) &&
                   dpe_number_get(whole, temperature) == whole->usual) {
            fail_temperature(spec, whole->key, "it beside the keys that shape it");
        }
        temperature_number(spec, stands && i == 0 ? infoscale : number->key, number, temperature);
    }
    if (stands) {
        temperature->log_n_power = 0.5;
        temperature->log_n_decay = 2.0 / (double)head_dim;
    }
    read_heads(spec, temperature);
}

static dpe_status apply_temperature(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_temperature temperature = plan->temperature;
    read_temperature(spec, spec->context->config->head_dim, &temperature);
    return spec->status != DPE_OK ? spec->status
                                  : dpe_plan_set_temperature(plan, &temperature, spec->err);
}

/* Cuts ",over=SPEC" off the keys of a method that has it: a spec has commas of its own, so it is
 * the last. Where none is given, rope. */
static const char *cut_over(const struct dpe_method *method, char **rest)
{
    const char *over = "rope";
    if (*rest != NULL && method_has_key(method, "over")) {
        char *found = strncmp(*rest, "over=", 5) == 0 ? *rest : strstr(*rest, ",over=");
        if (found != NULL) {
            over = strchr(found, '=') + 1;
            *rest = found == *rest ? NULL : *rest;
            *found = 0;
        }
    }
    return over;
}

/* Take "key=value,key=value" apart; `rest` is written to and must live as long as the spec. */
static dpe_status add_keys(struct dpe_spec *spec, const struct dpe_method *method, char *rest)
{
    while (rest != NULL) {
        char *item = rest;
        rest = strchr(rest, ',');
        if (rest != NULL) {
            *rest++ = 0;
        }
        DPE_TRY(add_key(spec, method, item));
    }
    return DPE_OK;
}

dpe_status dpe_temperature_parse(const char *text, int64_t head_dim,
                                 struct dpe_temperature *temperature, struct dpe_error *err)
{
    static const struct dpe_method keys_alone = {.line = "temperature\t\t"};
    *temperature = dpe_temperature_none;
    if (strcmp(text, "off") == 0) {
        return DPE_OK;
    }
    DPE_OWNED char *own = strdup(text);
    DPE_TRY(DPE_MADE(own, err, "temperature: out of memory"));
    struct dpe_spec spec = {.err = err, .method = "temperature"};
    struct dpe_temperature read = dpe_temperature_none;
    DPE_TRY(add_keys(&spec, &keys_alone, own));
    read_temperature(&spec, head_dim, &read);
    DPE_TRY(spec.status);
    DPE_TRY(dpe_temperature_check(&read, err));
    *temperature = read;
    return DPE_OK;
}

/* -------------------------------------------------------------------------------- the way there */

/* A key that no one asked for, as the other keys are: its value would change nothing. */
static dpe_status check_all_read(const struct dpe_spec *spec)
{
    for (int i = 0; i < spec->n; i++) {
        if (!spec->read[i]) {
            return dpe_fail(
                spec->err, DPE_USAGE,
                "method %s: %s=%.64s changes nothing beside the other keys; leave it out, "
                "or give the keys that it belongs to (--method help)",
                spec->method, spec->keys[i], spec->values[i]);
        }
    }
    return DPE_OK;
}

/* Noted only where it is given, as the temperature is. */
static void read_always(struct dpe_spec *spec, struct dpe_plan *plan)
{
    if (has(spec, "always")) {
        plan->always = dpe_spec_flag(spec, "always", false) || plan->always;
    }
}

static dpe_status build(struct dpe_spec *spec, const struct dpe_method *method,
                        struct dpe_plan *plan)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan made = {0};
    DPE_TRY(dpe_plan_init_for(&made, spec->context->config, spec->err));
    if (dpe_config_still(spec->context->config) && strcmp(spec->method, "rope") != 0) {
        return dpe_fail(spec->err, DPE_USAGE,
                        "method %s: %s, so a method "
                        "moves nothing; give a temperature alone, as rope:log-n=%lld",
                        spec->method,
                        dpe_config_stands(spec->context->config)
                            ? "no layer of this model that sees all keys rotates"
                            : "every pair that rotates in layers that see all keys turns within "
                              "the trained length",
                        (long long)spec->context->trained_length);
    }
    method->build(spec, &made);
    DPE_TRY(spec->status);
    if (dpe_config_stands(spec->context->config)) {
        dpe_plan_stand_still(&made);
    }
    DPE_TRY(apply_temperature(spec, &made));
    read_always(spec, &made);
    DPE_TRY(spec->status);
    DPE_TRY(check_all_read(spec));
    DPE_TRY(dpe_plan_check(&made, spec->err));
    if (method_has_key(method, "over")) {
        note_key(spec, "over");
        note(spec, made.name);
    }
    memcpy(made.name, spec->name, sizeof made.name);
    *plan = made;
    made = (struct dpe_plan){0};
    return DPE_OK;
}

dpe_status dpe_spec_make(const char *text, const struct dpe_plan_context *context, bool alone,
                         struct dpe_plan *plan, struct dpe_error *err)
{
    char formula[DPE_FORMULA];
    DPE_TRY(dpe_plan_context_check(context, err));
    if (dpe_plan_is_formula(text)) {
        dpe_plan_formula(context, text, formula);
        text = formula;
    }
    DPE_OWNED char *own = strdup(text);
    DPE_TRY(DPE_MADE(own, err, "method: out of memory"));
    char *rest = strchr(own, ':');
    if (rest != NULL) {
        *rest++ = 0;
    }
    struct dpe_spec spec = {.context = context, .err = err, .method = own, .alone = alone};
    const struct dpe_method *method = find_method(own, err);
    if (method == NULL) {
        return DPE_USAGE;
    }
    note(&spec, own);
    spec.over = cut_over(method, &rest);
    DPE_TRY(add_keys(&spec, method, rest));
    return build(&spec, method, plan);
}

dpe_status dpe_plan_make(const char *text, const struct dpe_plan_context *context,
                         struct dpe_plan *plan, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan made = {0};
    DPE_TRY(dpe_spec_make(text, context, false, &made, err));
    bool own = dpe_selects(&context->config->selection); /* which dpe_plan_select refuses */
    if (context->select != NULL && (own || !dpe_selects(&made.selection))) {
        DPE_TRY(dpe_plan_select(&made, context->select, context, err));
    }
    *plan = made;
    made = (struct dpe_plan){0};
    return DPE_OK;
}

dpe_status dpe_plan_make_unchanged(const struct dpe_plan_context *context, struct dpe_plan *plan,
                                   struct dpe_error *err)
{
    struct dpe_plan_context unchanged = *context;
    unchanged.select = NULL;
    unchanged.length = context->text > 0 ? context->text : context->length;
    return dpe_plan_make("rope", &unchanged, plan, err);
}

dpe_status dpe_plan_for_text(const char *spec, const struct dpe_plan_context *context,
                             struct dpe_plan *plan, bool *differs, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan made = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan unchanged = {0};
    struct dpe_plan *used = &made;
    char key[33] = "";
    char own[33] = "";
    DPE_TRY(dpe_plan_make(spec, context, &made, err));
    if (!made.always && dpe_plan_text_is_short(context)) {
        /* The method's plan makes way for the model's own. */
        DPE_TRY(dpe_plan_make_unchanged(context, &unchanged, err));
        DPE_TRY(dpe_plan_key(&made, key, err));
        DPE_TRY(dpe_plan_key(&unchanged, own, err));
        used = &unchanged;
    }
    if (differs != NULL) {
        *differs = strcmp(key, own) != 0;
    }
    *plan = *used;
    *used = (struct dpe_plan){0};
    return DPE_OK;
}

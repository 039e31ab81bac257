/* Typed members of a request, and its refusals. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "eval/serve/serve_tool.h"

static bool refuse(struct dpe_serve_refusal *refusal, unsigned status, const char *code,
                   const char *param, const char *format, va_list values)
{
    if (refusal->status == 0) {
        refusal->status = status;
        refusal->code = code;
        snprintf(refusal->param, sizeof refusal->param, "%s", param);
        vsnprintf(refusal->text, sizeof refusal->text, format, values);
    }
    return false;
}

bool dpe_serve_refuse(struct dpe_serve_refusal *refusal, unsigned status, const char *param,
                      const char *format, ...)
{
    va_list values;
    va_start(values, format);
    refuse(refusal, status, NULL, param, format, values);
    va_end(values);
    return false;
}

bool dpe_serve_refuse_as(struct dpe_serve_refusal *refusal, unsigned status, const char *code,
                         const char *param, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    refuse(refusal, status, code, param, format, values);
    va_end(values);
    return false;
}

/* A client need not know where the server keeps its files: of a path the last part is left. */
static void leave_out_folders(char *text)
{
    static const char ends[] = " \t\n'\"()[]";
    char *to = text;
    const char *from = text;
    while (*from != '\0') {
        size_t n = strcspn(from, ends);
        size_t first = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            bool url = i > 0 && from[i - 1] == ':' && from[i + 1] == '/';
            if (from[i] == '/' && !url) {
                first = i + 1;
            } else if (url) {
                break;
            }
        }
        size_t end = n + strspn(from + n, ends);
        memmove(to, from + first, end - first);
        to += end - first;
        from += end;
    }
    *to = '\0';
}

bool dpe_serve_refuse_error(struct dpe_serve_refusal *refusal, const char *param,
                            const struct dpe_error *err)
{
    bool theirs = err->status == DPE_BAD_DATA || err->status == DPE_USAGE;
    bool late = err->status == DPE_INCOMPLETE;
    bool first = refusal->status == 0;
    dpe_serve_refuse_as(refusal,
                        theirs ? 400
                        : late ? 504
                               : 500,
                        err->status == DPE_NONFINITE ? "not_finite" : NULL, param, "%s", err->text);
    if (first) {
        if (!theirs && !late) {
            dpe_log_warning("%s", err->text);
        }
        leave_out_folders(refusal->text);
    }
    return false;
}

static json_t *member(const json_t *body, const char *key, const struct dpe_serve_refusal *refusal)
{
    json_t *value = refusal->status == 0 ? json_object_get(body, key) : NULL;
    return json_is_null(value) ? NULL : value;
}

int64_t dpe_serve_whole(const json_t *body, const char *key, int64_t low, int64_t high,
                        int64_t fallback, struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value == NULL) {
        return fallback;
    }
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected a whole number from %lld to %lld", key,
                         (long long)low, (long long)high);
        return fallback;
    }
    return json_integer_value(value);
}

double dpe_serve_real(const json_t *body, const char *key, double low, double high, double fallback,
                      struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value == NULL) {
        return fallback;
    }
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!(number >= low && number <= high)) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected a number from %g to %g", key, low, high);
        return fallback;
    }
    return number;
}

bool dpe_serve_flag(const json_t *body, const char *key, bool fallback,
                    struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value != NULL && !json_is_boolean(value)) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected true or false", key);
        return fallback;
    }
    return value != NULL ? json_is_true(value) : fallback;
}

bool dpe_serve_ids(const struct dpe_serve_world *world, const json_t *list, const char *key,
                   struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    int64_t vocab = dpe_model_config(world->model)->vocab;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= vocab) {
            return dpe_serve_refuse(refusal, 400, key, "%s: expected token ids from 0 to %lld", key,
                                    (long long)vocab - 1);
        }
        int32_t id = (int32_t)json_integer_value(value);
        if (dpe_tokens_append(ids, &id, 1, NULL) != DPE_OK) {
            return dpe_serve_refuse(refusal, 500, "", "out of memory");
        }
    }
    return true;
}

bool dpe_serve_encode(const struct dpe_serve_world *world, const json_t *text, const char *key,
                      bool special, struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    const struct dpe_encode_options options = {.add_special = special,
                                               .special = DPE_SPECIAL_PARSE};
    struct dpe_error err = {0};
    dpe_status status = dpe_tokenizer_encode(world->tokenizer, json_string_value(text),
                                             json_string_length(text), &options, ids, &err);
    return status == DPE_OK || dpe_serve_refuse_error(refusal, key, &err);
}

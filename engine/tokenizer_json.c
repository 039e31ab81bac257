/* Typed members of a JSON object. */
#include "tokenizer_json.h"

#include <string.h>

static const char *type_name(const json_t *value)
{
    switch (value == NULL ? JSON_NULL : json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction or exponent";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a truth value";
    default:
        return "nothing";
    }
}

static dpe_status expected(const char *what, const json_t *found, const char *where,
                           const char *key, struct dpe_error *err)
{
    return dpe_fail(err, DPE_BAD_DATA, "%s.%s: expected %s, found %s", where, key, what,
                    type_name(found));
}

dpe_status dpe_member_bool(const json_t *object, const char *where, const char *key, bool required,
                           bool *value, struct dpe_error *err)
{
    const json_t *member = json_object_get(object, key);
    if (member == NULL || json_is_null(member)) {
        return required ? expected("true or false", member, where, key, err) : DPE_OK;
    }
    if (!json_is_boolean(member)) {
        return expected("true or false", member, where, key, err);
    }
    *value = json_is_true(member);
    return DPE_OK;
}

dpe_status dpe_member_string(const json_t *object, const char *where, const char *key,
                             bool required, const char **value, size_t *n, struct dpe_error *err)
{
    const json_t *member = json_object_get(object, key);
    if (member == NULL || json_is_null(member)) {
        return required ? expected("a string", member, where, key, err) : DPE_OK;
    }
    if (!json_is_string(member)) {
        return expected("a string", member, where, key, err);
    }
    *value = json_string_value(member);
    *n = json_string_length(member);
    return DPE_OK;
}

dpe_status dpe_member_list(const json_t *object, const char *where, const char *key,
                           const json_t **value, struct dpe_error *err)
{
    *value = json_object_get(object, key);
    return json_is_array(*value) ? DPE_OK : expected("a list", *value, where, key, err);
}

dpe_status dpe_member_object(const json_t *object, const char *where, const char *key,
                             const json_t **value, struct dpe_error *err)
{
    *value = json_object_get(object, key);
    return json_is_object(*value) ? DPE_OK : expected("an object", *value, where, key, err);
}

dpe_status dpe_member_count(const json_t *value, const char *where, const char *what, int64_t most,
                            int64_t *count, struct dpe_error *err)
{
    char quoted[80];
    dpe_quote(quoted, what, strlen(what));
    if (!json_is_integer(value)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": expected an integer, found %s", where,
                        quoted, type_name(value));
    }
    int64_t number = (int64_t)json_integer_value(value);
    if (number < 0 || number > most) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\": expected 0 to %lld, found %lld", where,
                        quoted, (long long)most, (long long)number);
    }
    *count = number;
    return DPE_OK;
}

dpe_status dpe_member_type(const json_t *component, const char *where, const char **type,
                           struct dpe_error *err)
{
    if (!json_is_object(component)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected an object with a type, found %s", where,
                        type_name(component));
    }
    size_t n = 0;
    return dpe_member_string(component, where, "type", true, type, &n, err);
}

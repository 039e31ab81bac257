/* Results as JSON. */
#include "engine/tool/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "engine/tool/tool_internal.h"

struct wanted {
    bool json;
};
static const struct dpe_option json_table[] = {{"json", 0, NULL, 0,
                                                "Print the result as one JSON document", 60,
                                                DPE_SWITCH(struct wanted, json)},
                                               {0}};
const struct dpe_option_set dpe_result_option_set = {.options = json_table};

/* --------------------------------------------------------------------------------------- fields */

struct dpe_result {
    json_t *document;
    json_t *at; /* borrowed: the object that fields go to */
    bool failed;
};

struct dpe_result *dpe_result_begin(const char *tool)
{
    struct dpe_result *result = dpe_alloc_zero(1, sizeof *result);
    if (result != NULL) {
        result->document = json_object();
        result->at = result->document;
        dpe_result_text(result, "tool", tool);
        dpe_result_text(result, "version", dpe_version());
    }
    return result;
}

/* Takes `value`. */
static void set(struct dpe_result *result, const char *name, json_t *value)
{
    if (result == NULL || value == NULL || json_object_set_new(result->at, name, value) != 0) {
        if (result != NULL) {
            result->failed = true;
        } else {
            json_decref(value);
        }
    }
}

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void dpe_result_text(struct dpe_result *result, const char *name, const char *value)
{
    DPE_OWNED char *shown = value != NULL ? dpe_tool_show_bytes(value) : NULL;
    set(result, name, value == NULL ? json_null() : shown != NULL ? json_string(shown) : NULL);
}

void dpe_result_flag(struct dpe_result *result, const char *name, bool value)
{
    set(result, name, json_boolean(value));
}

void dpe_result_whole(struct dpe_result *result, const char *name, int64_t value)
{
    set(result, name, json_integer(value));
}

void dpe_result_number(struct dpe_result *result, const char *name, double value)
{
    set(result, name, number_or_null(value));
}

void dpe_result_wholes(struct dpe_result *result, const char *name, const int64_t *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_integer(values[i]));
    }
    set(result, name, json_array_size(list) == n ? list : NULL);
}

void dpe_result_numbers(struct dpe_result *result, const char *name, const double *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, number_or_null(values[i]));
    }
    set(result, name, json_array_size(list) == n ? list : NULL);
}

void dpe_result_row(struct dpe_result *result, const char *name)
{
    if (result == NULL || name == NULL) {
        if (result != NULL) {
            result->at = result->document;
        }
        return;
    }
    json_t *list = json_object_get(result->document, name);
    if (list == NULL) {
        result->at = result->document;
        set(result, name, json_array());
        list = json_object_get(result->document, name);
    }
    json_t *row = json_object();
    if (json_array_append_new(list, row) == 0) {
        result->at = row;
    } else {
        result->failed = true;
    }
}

void dpe_result_free(struct dpe_result *result)
{
    if (result != NULL) {
        json_decref(result->document);
        free(result);
    }
}

dpe_status dpe_result_print(struct dpe_result *result, struct dpe_error *err)
{
    bool failed = result == NULL || result->failed;
    if (!failed) {
        DPE_OWNED char *text = json_dumps(result->document, JSON_INDENT(2) | JSON_PRESERVE_ORDER |
                                                                JSON_REAL_PRECISION(15));
        failed = text == NULL;
        if (!failed) {
            puts(text);
        }
    }
    dpe_result_free(result);
    return failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for the result") : DPE_OK;
}

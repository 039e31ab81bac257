/* Results as JSON and CSV. */
#include "engine/tool/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/tool/tool_internal.h"

enum option_key { KEY_JSON = DPE_KEY_RESULT, KEY_CSV };

#define JSON_OPTION                                                                                \
    {                                                                                              \
        "json", KEY_JSON, NULL, 0, "Print the result as one JSON document", 60                     \
    }
static const struct dpe_option json_table[] = {JSON_OPTION, {0}};
static const struct dpe_option both_table[] = {
    JSON_OPTION, {"csv", KEY_CSV, NULL, 0, "Print the result's table as CSV", 60}, {0}};

static int parse_format(int key, char *arg, struct dpe_command_line *state)
{
    enum dpe_result_format *format = state->input;
    (void)arg;
    if (key != KEY_JSON && key != KEY_CSV) {
        return DPE_LINE_UNKNOWN;
    }
    enum dpe_result_format wanted = key == KEY_JSON ? DPE_RESULT_JSON : DPE_RESULT_CSV;
    if (*format != DPE_RESULT_TEXT && *format != wanted) {
        dpe_line_error(state, "--json and --csv exclude each other");
    }
    *format = wanted;
    return 0;
}

const struct dpe_option_set dpe_result_json_option_set = {.options = json_table,
                                                          .parser = parse_format};
const struct dpe_option_set dpe_result_option_set = {.options = both_table, .parser = parse_format};

/* --------------------------------------------------------------------------------------- fields */

struct dpe_result {
    json_t *document;
    json_t *at;   /* borrowed: the object that fields go to */
    json_t *list; /* borrowed: the first list of rows */
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
        result->list = result->list == NULL ? list : result->list;
    }
    json_t *row = json_object();
    if (json_array_append_new(list, row) == 0) {
        result->at = row;
    } else {
        result->failed = true;
    }
}

/* ---------------------------------------------------------------------------------------- print */

static void print_field(const json_t *value)
{
    const char *text = json_string_value(value);
    if (json_is_real(value)) {
        printf("%.15g", json_real_value(value));
    } else if (json_is_integer(value)) {
        printf("%lld", (long long)json_integer_value(value));
    } else if (json_is_boolean(value)) {
        fputs(json_is_true(value) ? "1" : "0", stdout);
    } else if (text != NULL && strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stdout);
    } else if (text != NULL) {
        putchar('"');
        for (; *text != '\0'; text++) {
            printf(*text == '"' ? "\"\"" : "%c", *text);
        }
        putchar('"');
    }
}

static void print_csv_row(json_t *row, bool names)
{
    const char *name = NULL;
    json_t *value = NULL;
    bool first = true;
    json_object_foreach(row, name, value)
    {
        if (json_is_array(value)) {
            continue;
        }
        if (!first) {
            putchar(',');
        }
        first = false;
        if (names) {
            fputs(name, stdout);
        } else {
            print_field(value);
        }
    }
    putchar('\n');
}

static void print_csv(const struct dpe_result *result)
{
    size_t n = result->list != NULL ? json_array_size(result->list) : 1;
    for (size_t i = 0; i < n; i++) {
        json_t *row = result->list != NULL ? json_array_get(result->list, i) : result->document;
        if (i == 0) {
            print_csv_row(row, true);
        }
        print_csv_row(row, false);
    }
}

void dpe_result_free(struct dpe_result *result)
{
    if (result != NULL) {
        json_decref(result->document);
        free(result);
    }
}

dpe_status dpe_result_print(struct dpe_result *result, enum dpe_result_format format,
                            struct dpe_error *err)
{
    bool failed = result == NULL || result->failed;
    if (!failed && format == DPE_RESULT_CSV) {
        print_csv(result);
    } else if (!failed) {
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

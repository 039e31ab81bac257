/**
 * @file tool_tables.h
 * What tests of tools look for in the tables that these have written. Include after tool_run.h.
 */
#ifndef DPE_TOOL_TABLES_H
#define DPE_TOOL_TABLES_H

#include <math.h>

#include "outputs/h5/h5.h"

static inline struct dpe_h5 *tool_table(const char *path)
{
    struct dpe_h5 *table = NULL;
    struct dpe_error err = {0};
    if (dpe_h5_open(path, &table, &err) != DPE_OK) {
        fail_msg("%s: %s", path, err.text);
    }
    return table;
}

/** A dataset as doubles; freed by the caller. */
static inline double *numbers(const char *path, const char *dataset, size_t *n)
{
    struct dpe_h5 *table = tool_table(path);
    struct dpe_error err = {0};
    void *data = NULL;
    int rank = 0;
    int64_t dims[5];
    if (dpe_h5_get(table, dataset, DPE_COL_F64, &data, &rank, dims, &err) != DPE_OK) {
        fail_msg("%s %s: %s", path, dataset, err.text);
    }
    *n = 1;
    for (int i = 0; i < rank; i++) {
        *n *= (size_t)dims[i];
    }
    dpe_h5_close(table);
    return data;
}

/** A dataset must have these numbers. */
static inline void expect_numbers(const char *path, const char *dataset, const double *expected,
                                  size_t n)
{
    size_t found = 0;
    double *x = numbers(path, dataset, &found);
    assert_int_equal(found, n);
    for (size_t i = 0; i < n; i++) {
        if (x[i] != expected[i]) {
            fail_msg("%s %s[%zu]: expected %g, found %g", path, dataset, i, expected[i], x[i]);
        }
    }
    free(x);
}

/** One dataset of two tables. */
static inline void expect_same(const char *a, const char *b, const char *dataset)
{
    size_t n = 0;
    size_t m = 0;
    double *x = numbers(a, dataset, &n);
    double *y = numbers(b, dataset, &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        assert_true(x[i] == y[i] || (isnan(x[i]) && isnan(y[i])));
    }
    free(x);
    free(y);
}

/** Two tables, or these parts of them, but for /run. */
static inline void expect_equal(const char *a, const char *b, const char *part)
{
    char command[512];
    snprintf(command, sizeof command, "h5diff --exclude-path=/run %s %s %s", a, b, part);
    if (system(command) != 0) {
        fail_msg("%s", command);
    }
}

/** A dataset of texts; freed by dpe_strings_free. */
static inline char **strings(const char *path, const char *dataset, size_t *n)
{
    struct dpe_h5 *table = tool_table(path);
    struct dpe_error err = {0};
    char **texts = NULL;
    if (dpe_h5_get_strings(table, dataset, &texts, n, &err) != DPE_OK) {
        fail_msg("%s %s: %s", path, dataset, err.text);
    }
    dpe_h5_close(table);
    return texts;
}

/** Text number `at` of a dataset. */
static inline void expect_text(const char *path, const char *dataset, size_t at,
                               const char *expected)
{
    size_t n = 0;
    char **texts = strings(path, dataset, &n);
    assert_true(at < n);
    assert_string_equal(texts[at], expected);
    dpe_strings_free(texts, n);
}

/** An attribute that is a text must hold `part`. */
static inline void expect_attribute(const char *path, const char *object, const char *name,
                                    const char *part)
{
    struct dpe_h5 *table = tool_table(path);
    struct dpe_error err = {0};
    char *text = NULL;
    if (dpe_h5_get_attr_text(table, object, name, &text, &err) != DPE_OK) {
        fail_msg("%s %s@%s: %s", path, object, name, err.text);
    }
    if (strstr(text, part) == NULL) {
        fail_msg("%s %s@%s: expected \"%s\", found \"%s\"", path, object, name, part, text);
    }
    free(text);
    dpe_h5_close(table);
}

/** Whether one of the plans whose rows a comparison has is number `at` of a detection's
 * validation. */
static inline bool has_validated(const char *comparison, const char *detection, size_t at)
{
    size_t n = 0;
    size_t m = 0;
    bool found = false;
    char **plans = strings(comparison, "/plans/plan", &n);
    char **validated = strings(detection, "/validate/plan", &m);
    assert_true(at < m);
    for (size_t i = 0; i < n; i++) {
        found = found || strcmp(plans[i], validated[at]) == 0;
    }
    dpe_strings_free(plans, n);
    dpe_strings_free(validated, m);
    return found;
}

/** The text of a file. Overwrites tool_out. */
static inline void expect_in_file(const char *path, const char *text)
{
    tool_read(path, tool_out, sizeof tool_out);
    if (strstr(tool_out, text) == NULL) {
        fail_msg("%s lacks \"%s\"", path, text);
    }
}

#endif

/* /rows: every row as a structure of arrays, and back. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"

#include <stdlib.h>
#include <string.h>

static const char *const tasks_path = "/tasks/task", *const plans_path = "/plans/plan";
static const char *const row_path = "/row", *const bucket_path = "/rows/bucket";

/* Room for what is put, whose lack stops the table: then nothing is. */
static void *room(struct dpe_h5 *table, size_t n, size_t size)
{
    return dpe_h5_room(table, n, size, "the rows of a table");
}

/* ------------------------------------------------------------------------------ keys as indices */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *key_of(const struct dpe_row *row, bool plan)
{
    return plan ? row->plan : row->task;
}

/* The distinct keys of the rows and of `more`, sorted; borrowed texts in an owned array. */
static const char **distinct_keys(struct dpe_h5 *table, const struct dpe_h5_common *common,
                                  bool plan, const struct dpe_identity *more, size_t *n)
{
    size_t most = common->n_rows + (more == NULL ? 0 : more->n);
    const char **keys = room(table, most, sizeof *keys);
    size_t got = 0;
    for (size_t i = 0; keys != NULL && i < common->n_rows; i++) {
        /* Rows are sorted by task and plan: most repetitions are neighbours. */
        const char *key = key_of(common->rows[i], plan);
        if (got == 0 || strcmp(keys[got - 1], key) != 0) {
            keys[got++] = key;
        }
    }
    for (size_t i = 0; keys != NULL && more != NULL && i < more->n; i++) {
        keys[got++] = more->fields[i].name;
    }
    if (keys == NULL) {
        return NULL;
    }
    qsort(keys, got, sizeof *keys, compare_texts);
    *n = 0;
    for (size_t i = 0; i < got; i++) {
        if (*n == 0 || strcmp(keys[*n - 1], keys[i]) != 0) {
            keys[(*n)++] = keys[i];
        }
    }
    return keys;
}

static void put_indices(struct dpe_h5 *table, const struct dpe_h5_common *common, bool plan,
                        const char *const *keys, size_t n_keys)
{
    DPE_OWNED int32_t *indices = room(table, common->n_rows, sizeof *indices);
    for (size_t i = 0; indices != NULL && i < common->n_rows; i++) {
        const char *key = key_of(common->rows[i], plan);
        const char *const *at = bsearch(&key, keys, n_keys, sizeof *keys, compare_texts);
        indices[i] = (int32_t)(at - keys);
    }
    dpe_h5_put_list(table, plan ? "/rows/plan" : "/rows/task", DPE_COL_I32, indices, common->n_rows,
                    row_path, plan ? "index into /plans/plan" : "index into /tasks/task", "1");
}

static void put_plans(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    size_t n = 0;
    DPE_OWNED const char **keys = distinct_keys(table, common, true, common->plans, &n);
    DPE_OWNED const char **names = room(table, n, sizeof *names);
    if (keys != NULL && names != NULL) {
        for (size_t i = 0; i < n; i++) {
            names[i] = dpe_identity_get(common->plans, keys[i]);
        }
        dpe_h5_put_list(table, plans_path, DPE_COL_STRING, keys, n, NULL,
                        "first 16 bytes of the plan's SHA-256, hex", "1");
        dpe_h5_put_list(table, "/plans/name", DPE_COL_STRING, names, n, plans_path,
                        "the plan in words (method:key=value,...), empty when unknown", "1");
        put_indices(table, common, true, keys, n);
    }
}

static void put_tasks(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    size_t n = 0;
    DPE_OWNED const char **keys = distinct_keys(table, common, false, NULL, &n);
    if (keys != NULL) {
        dpe_h5_put_list(table, tasks_path, DPE_COL_STRING, keys, n, NULL,
                        "name of a stream of samples", "1");
        put_indices(table, common, false, keys, n);
    }
}

/* -------------------------------------------------------------------------------------- columns */

static void put_field(struct dpe_h5 *table, const struct dpe_h5_common *common,
                      const struct dpe_row_field *field, const char *scale)
{
    size_t size = dpe_hdf5_size(field->type);
    DPE_OWNED char *values = room(table, common->n_rows, size);
    for (size_t i = 0; values != NULL && i < common->n_rows; i++) {
        memcpy(values + i * size, (const char *)common->rows[i] + field->offset, size);
    }
    const struct dpe_column column = {
        .path = field->path,
        .type = field->type,
        .rank = 1,
        .dims = {(int64_t)common->n_rows},
        .scales = {scale},
        .data = values,
        .long_name = field->long_name,
        .units = field->units,
        .flag_meanings = field->flag_meanings,
    };
    dpe_h5_put(table, &column);
}

static void put_texts(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    size_t n = common->n_rows;
    DPE_OWNED const char **texts = room(table, n, sizeof *texts);
    DPE_OWNED uint8_t *present = room(table, n, 1);
    for (size_t i = 0; i < n && texts != NULL && present != NULL; i++) {
        texts[i] = common->rows[i]->text;
        present[i] = texts[i] != NULL;
    }
    const struct dpe_column column = {
        .path = "/rows/text_present",
        .type = DPE_COL_U8,
        .rank = 1,
        .dims = {(int64_t)n},
        .scales = {row_path},
        .data = present,
        .long_name = "whether the sample has a text (an empty one is a text)",
        .units = "1",
        .flag_meanings = "no yes",
    };
    dpe_h5_put_list(table, "/rows/text", DPE_COL_STRING, texts, n, row_path, "generated text", "1");
    dpe_h5_put(table, &column);
}

static void put_buckets(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    size_t total = 0;
    for (size_t i = 0; i < common->n_rows; i++) {
        total += (size_t)common->rows[i]->n_buckets;
    }
    if (total == 0) {
        return;
    }
    DPE_OWNED int32_t *counts = room(table, common->n_rows, sizeof *counts);
    DPE_OWNED double *values = room(table, total, sizeof *values);
    size_t at = 0;
    for (size_t i = 0; i < common->n_rows && counts != NULL && values != NULL; i++) {
        const struct dpe_row *row = common->rows[i];
        counts[i] = row->n_buckets;
        if (row->n_buckets > 0) {
            memcpy(values + at, row->buckets, (size_t)row->n_buckets * sizeof *values);
            at += (size_t)row->n_buckets;
        }
    }
    dpe_h5_put_count(table, bucket_path, (int64_t)total, "index of a bucket over all rows");
    dpe_h5_put_list(table, "/rows/bucket_count", DPE_COL_I32, counts, common->n_rows, row_path,
                    "elements of /rows/bucket_nll that belong to the row", "1");
    dpe_h5_put_list(table, "/rows/bucket_nll", DPE_COL_F64, values, total, bucket_path,
                    "negative log-likelihood by position bucket, rows one after the other", "nats");
}

/* Whether there is anything to write: an optional field may be one of no row. */
static bool has_field(const struct dpe_h5_common *common, const struct dpe_row_field *field)
{
    bool has = !field->optional;
    for (size_t i = 0; i < common->n_rows && !has; i++) {
        has = dpe_row_has(common->rows[i], field);
    }
    return has;
}

static bool differs_between_runs(const struct dpe_row_field *field)
{
    return strncmp(field->path, "/run/", 5) == 0;
}

void dpe_h5_write_run_rows(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    dpe_h5_put_count(table, "/run/row", (int64_t)common->n_rows, "index of a row");
    for (size_t i = 0; i < dpe_n_row_fields; i++) {
        if (differs_between_runs(&dpe_row_fields[i])) {
            put_field(table, common, &dpe_row_fields[i], "/run/row");
        }
    }
}

void dpe_h5_write_rows(struct dpe_h5 *table, const struct dpe_h5_common *common)
{
    char hex[65] = "";
    struct dpe_error why = {0};
    if (dpe_rows_hash(common->rows, common->n_rows, hex, &why) != DPE_OK) {
        dpe_h5_stop(table, why.status, "%s", why.text);
    }
    dpe_h5_attr_text(table, "/rows", "sha256", hex);
    dpe_h5_put_count(table, row_path, (int64_t)common->n_rows, "index of a row");
    put_tasks(table, common);
    put_plans(table, common);
    for (size_t i = 0; i < dpe_n_row_fields; i++) {
        if (!differs_between_runs(&dpe_row_fields[i]) && has_field(common, &dpe_row_fields[i])) {
            put_field(table, common, &dpe_row_fields[i], row_path);
        }
    }
    put_texts(table, common);
    put_buckets(table, common);
}

/* -------------------------------------------------------------------------------------- reading */

static dpe_status disagree(struct dpe_error *err, const char *path)
{
    return dpe_fail(err, DPE_BAD_DATA, "%s: does not match the other datasets of /rows", path);
}

/* A dataset of one axis with exactly n elements. */
static dpe_status get_axis(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                           size_t n, void **data, struct dpe_error *err)
{
    int rank = 0;
    int64_t dims[5] = {0};
    DPE_TRY(dpe_h5_get(table, path, type, data, &rank, dims, err));
    if (rank != 1 || (size_t)dims[0] != n) {
        free(*data);
        *data = NULL;
        return disagree(err, path);
    }
    return DPE_OK;
}

static dpe_status get_field(struct dpe_h5 *table, const struct dpe_row_field *field,
                            struct dpe_row *rows, size_t n, struct dpe_error *err)
{
    DPE_OWNED void *values = NULL;
    DPE_TRY(get_axis(table, field->path, field->type, n, &values, err));
    size_t size = dpe_hdf5_size(field->type);
    for (size_t i = 0; i < n; i++) {
        memcpy((char *)&rows[i] + field->offset, (const char *)values + i * size, size);
    }
    return DPE_OK;
}

static dpe_status get_keys(struct dpe_h5 *table, bool plan, struct dpe_row *rows, size_t n,
                           struct dpe_error *err)
{
    const char *path = plan ? "/rows/plan" : "/rows/task";
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings keys = {0};
    DPE_OWNED void *data = NULL;
    DPE_TRY(dpe_h5_get_strings(table, plan ? plans_path : tasks_path, &keys.at, &keys.n, err));
    DPE_TRY(get_axis(table, path, DPE_COL_I32, n, &data, err));
    const int32_t *indices = data;
    for (size_t i = 0; i < n; i++) {
        size_t room = plan ? sizeof rows->plan : sizeof rows->task;
        char *to = plan ? rows[i].plan : rows[i].task;
        if (indices[i] < 0 || (size_t)indices[i] >= keys.n || strlen(keys.at[indices[i]]) >= room) {
            return disagree(err, path);
        }
        memcpy(to, keys.at[indices[i]], strlen(keys.at[indices[i]]) + 1);
    }
    return DPE_OK;
}

static dpe_status get_texts(struct dpe_h5 *table, struct dpe_row *rows, size_t n,
                            struct dpe_error *err)
{
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings texts = {0};
    DPE_OWNED void *data = NULL;
    DPE_TRY(get_axis(table, "/rows/text_present", DPE_COL_U8, n, &data, err));
    DPE_TRY(dpe_h5_get_strings(table, "/rows/text", &texts.at, &texts.n, err));
    if (texts.n != n) {
        return disagree(err, "/rows/text");
    }
    const uint8_t *present = data;
    for (size_t i = 0; i < n; i++) {
        if (present[i] != 0) {
            rows[i].text = texts.at[i];
            texts.at[i] = NULL;
        }
    }
    return DPE_OK;
}

static dpe_status take_buckets(struct dpe_row *row, int32_t count, const double *from,
                               struct dpe_error *err)
{
    if (count == 0) {
        return DPE_OK;
    }
    DPE_TRY(DPE_NEW(&row->buckets, (size_t)count, err, "out of memory for the rows of a table"));
    memcpy(row->buckets, from, (size_t)count * sizeof *row->buckets);
    row->n_buckets = count;
    return DPE_OK;
}

static dpe_status get_buckets(struct dpe_h5 *table, struct dpe_row *rows, size_t n,
                              struct dpe_error *err)
{
    DPE_OWNED void *counts_data = NULL;
    DPE_OWNED void *values_data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    if (!dpe_h5_has(table, "/rows/bucket_count")) {
        return dpe_h5_answered(table, err);
    }
    DPE_TRY(get_axis(table, "/rows/bucket_count", DPE_COL_I32, n, &counts_data, err));
    DPE_TRY(dpe_h5_get(table, "/rows/bucket_nll", DPE_COL_F64, &values_data, &rank, dims, err));
    const int32_t *counts = counts_data;
    const double *values = values_data;
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (counts[i] < 0 || counts[i] > dims[0] - at) {
            return disagree(err, "/rows/bucket_count");
        }
        DPE_TRY(take_buckets(&rows[i], counts[i], values + at, err));
        at += counts[i];
    }
    return DPE_OK;
}

/* The rows are what was written, in the order they were written. */
static dpe_status check_rows(struct dpe_h5 *table, const struct dpe_row *rows, size_t n,
                             struct dpe_error *err)
{
    DPE_OWNED const struct dpe_row **sorted = NULL;
    char hex[65] = "";
    DPE_TRY(DPE_NEW(&sorted, n, err, "out of memory for the rows of a table"));
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &rows[i];
        struct dpe_error why = {0};
        if (dpe_row_check(&rows[i], &why) != DPE_OK) {
            return dpe_fail(err, DPE_BAD_DATA, "/rows: row %zu: %s", i, why.text);
        }
        if (i > 0 && dpe_row_compare(&rows[i - 1], &rows[i]) >= 0) {
            return dpe_fail(err, DPE_BAD_DATA, "/rows: row %zu is not in order", i);
        }
    }
    DPE_TRY(dpe_rows_hash(sorted, n, hex, err));
    return dpe_h5_check_hash(table, "/rows", "sha256", hex, "/rows: the checksum does not match",
                             err);
}

static dpe_status read_rows(struct dpe_h5 *table, struct dpe_row *rows, size_t n,
                            struct dpe_error *err)
{
    DPE_TRY(get_keys(table, false, rows, n, err));
    DPE_TRY(get_keys(table, true, rows, n, err));
    for (size_t i = 0; i < dpe_n_row_fields; i++) {
        const struct dpe_row_field *field = &dpe_row_fields[i];
        if (!field->optional || dpe_h5_has(table, field->path)) {
            DPE_TRY(get_field(table, field, rows, n, err));
        }
    }
    DPE_TRY(get_texts(table, rows, n, err));
    DPE_TRY(get_buckets(table, rows, n, err));
    return check_rows(table, rows, n, err);
}

dpe_status dpe_h5_get_rows(struct dpe_h5 *table, struct dpe_row **rows, size_t *n,
                           struct dpe_error *err)
{
    DPE_OWNED void *count = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    DPE_TRY(dpe_h5_get(table, row_path, DPE_COL_I64, &count, &rank, dims, err));
    if (rank != 1) {
        return disagree(err, row_path);
    }
    size_t n_rows = (size_t)dims[0];
    struct dpe_row *got = NULL;
    DPE_TRY(DPE_NEW(&got, n_rows, err, "out of memory for the rows of a table"));
    for (size_t i = 0; i < n_rows; i++) {
        dpe_row_init(&got[i]);
        got[i].plan[0] = got[i].task[0] = '\0';
    }
    dpe_status status = read_rows(table, got, n_rows, err);
    if (status != DPE_OK) {
        dpe_rows_free(got, n_rows);
        return status;
    }
    *rows = got;
    *n = n_rows;
    return DPE_OK;
}

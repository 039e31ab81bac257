/* One loop for every kind of result: values in structs to datasets, and back. */
#include "outputs/datasets/kinds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANK = 5, MAX_PATH = 128 };

static bool is_axis(const struct dpe_dataset *dataset)
{
    return dataset->axes == NULL;
}

static char **array_of(const struct dpe_dataset *dataset, const void *result)
{
    return (char **)(void *)((char *)(uintptr_t)result + dataset->array);
}

static const char *path_of(const char *folder, const char *name, char path[MAX_PATH])
{
    snprintf(path, MAX_PATH, "%s%s%s", *name == '/' ? "" : folder, *name == '/' ? "" : "/", name);
    return path;
}

/* The next word of a list, of *length bytes; NULL at its end. */
static const char *next_word(const char *list, size_t *length)
{
    list += strspn(list, " ");
    *length = strcspn(list, " ");
    return *length > 0 ? list : NULL;
}

static bool is_word(const char *name, const char *word, size_t length)
{
    return strlen(name) == length && memcmp(name, word, length) == 0;
}

static bool has_word(const char *list, const char *name)
{
    size_t length = 0;
    for (const char *word = list; (word = next_word(word, &length)) != NULL; word += length) {
        if (is_word(name, word, length)) {
            return true;
        }
    }
    return false;
}

/* Which axis of the kind has this name: the names of axes are checked by every test that writes. */
static size_t axis_of(const struct dpe_dataset_kind *kind, const char *word, size_t length)
{
    size_t a = 0;
    while (a < kind->n && is_axis(&kind->datasets[a]) &&
           !is_word(kind->datasets[a].name, word, length)) {
        a++;
    }
    return a;
}

/* A dataset's axes as indices; an axis has one, itself. DPE_INTERNAL for one that the kind lacks.
 */
static dpe_status axes_of(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                          size_t axes[MAX_RANK], int *rank, struct dpe_error *err)
{
    *rank = 0;
    size_t length = 0;
    if (is_axis(dataset)) {
        axes[(*rank)++] = (size_t)(dataset - kind->datasets);
        return DPE_OK;
    }
    for (const char *word = dataset->axes; (word = next_word(word, &length)) != NULL;
         word += length) {
        size_t a = axis_of(kind, word, length);
        if (a >= DPE_DATASET_AXES || a >= kind->n || !is_axis(&kind->datasets[a]) ||
            *rank == MAX_RANK) {
            return dpe_fail(err, DPE_INTERNAL, "%s: has no axis \"%.*s\"", dataset->name,
                            (int)length, word);
        }
        axes[(*rank)++] = a;
    }
    return DPE_OK;
}

/* Their elements besides; more than there can be where that is no number. */
static dpe_status count_of(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                           const void *result, size_t *n, struct dpe_error *err)
{
    const int64_t *extents = result;
    size_t axes[MAX_RANK];
    int rank = 0;
    *n = 1;
    DPE_TRY(axes_of(kind, dataset, axes, &rank, err));
    for (int a = 0; a < rank; a++) {
        *n = __builtin_mul_overflow(*n, (size_t)extents[axes[a]], n) ? SIZE_MAX : *n;
    }
    return DPE_OK;
}

/* Values that lie apart, side by side; counted ones made. NULL without memory. */
static void *gather(const struct dpe_dataset *dataset, const void *result, int64_t n)
{
    size_t size = dpe_hdf5_size(dataset->type);
    char *values = dpe_alloc((size_t)n, size);
    for (int64_t i = 0; values != NULL && i < n; i++) {
        const void *from =
            dataset->array == DPE_DATASET_COUNT
                ? (const void *)&i
                : *array_of(dataset, result) + (size_t)i * dataset->stride + dataset->at;
        memcpy(values + (size_t)i * size, from, size);
    }
    return values;
}

static void put(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                const void *result, const char *folder, struct dpe_h5 *table)
{
    const int64_t *extents = result;
    const bool apart =
        dataset->array == DPE_DATASET_COUNT || dataset->stride != dpe_hdf5_size(dataset->type);
    char path[MAX_PATH];
    char scales[MAX_RANK][MAX_PATH];
    size_t axes[MAX_RANK];
    struct dpe_error why = {0};
    struct dpe_column column = {.path = path_of(folder, dataset->name, path),
                                .type = dataset->type,
                                .long_name = dataset->long_name,
                                .units =
                                    dataset->units != NULL ? dataset->units : kind->score_units,
                                .flag_meanings = dataset->flag_meanings,
                                .is_scale = is_axis(dataset)};
    if (axes_of(kind, dataset, axes, &column.rank, &why) != DPE_OK) {
        dpe_h5_stop(table, why.status, "%s", why.text);
        return;
    }
    int64_t n = 1;
    for (int i = 0; i < column.rank; i++) {
        column.dims[i] = extents[axes[i]];
        n *= column.dims[i];
        column.scales[i] =
            column.is_scale ? NULL : path_of(folder, kind->datasets[axes[i]].name, scales[i]);
    }
    DPE_OWNED void *gathered = apart ? gather(dataset, result, n) : NULL;
    if (apart && gathered == NULL) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "%s: out of memory for %lld values", path, (long long)n);
    }
    column.data = apart ? gathered : *array_of(dataset, result);
    dpe_h5_put(table, &column);
}

void dpe_datasets_put(const struct dpe_dataset_kind *kind, const void *result, const char *folder,
                      struct dpe_h5 *table)
{
    const int64_t *extents = result;
    for (size_t i = 0; i < kind->n; i++) {
        const struct dpe_dataset *dataset = &kind->datasets[i];
        const bool there = dataset->array == DPE_DATASET_COUNT ? extents[i] > 0
                                                               : *array_of(dataset, result) != NULL;
        if (*dataset->name != '/' && (there || !dataset->optional)) {
            put(kind, dataset, result, folder, table);
        }
    }
}

/* ---------------------------------------------------------------------------------------- rows */

/* The value as a field; the axis that counts, and an array that is not there, have none. */
static void add_field(const struct dpe_dataset *dataset, const void *value, struct dpe_result *out)
{
    const char *slash = strrchr(dataset->name, '/');
    const char *name = slash != NULL ? slash + 1 : dataset->name;
    if (dataset->type == DPE_COL_STRING) {
        dpe_result_text(out, name, value != NULL ? *(const char *const *)value : NULL);
    } else if (value == NULL) {
        dpe_result_number(out, name, (double)NAN);
    } else if (dataset->type == DPE_COL_F64 || dataset->type == DPE_COL_F32) {
        dpe_result_number(out, name,
                          dataset->type == DPE_COL_F64 ? *(const double *)value
                                                       : (double)*(const float *)value);
    } else if (dataset->flag_meanings != NULL && strcmp(dataset->flag_meanings, "no yes") == 0) {
        dpe_result_flag(out, name, *(const uint8_t *)value != 0);
    } else {
        const int64_t whole = dataset->type == DPE_COL_I32   ? *(const int32_t *)value
                              : dataset->type == DPE_COL_U16 ? *(const uint16_t *)value
                              : dataset->type == DPE_COL_U8  ? *(const uint8_t *)value
                                                             : *(const int64_t *)value;
        dpe_result_whole(out, name, whole);
    }
}

void dpe_datasets_fields(const struct dpe_dataset_kind *kind, const void *result, const char *axes,
                         int64_t i, struct dpe_result *out)
{
    const struct dpe_dataset row = {.name = "row", .axes = axes};
    const int64_t *extents = result;
    size_t own[MAX_RANK], of[MAX_RANK];
    int64_t at[DPE_DATASET_AXES] = {0};
    int rank = 0, n = 0;
    if (axes_of(kind, &row, own, &rank, NULL) != DPE_OK) {
        return;
    }
    for (int a = rank; a-- > 0; i /= extents[own[a]]) {
        at[own[a]] = i % extents[own[a]];
    }
    for (size_t d = 0; d < kind->n; d++) {
        const struct dpe_dataset *dataset = &kind->datasets[d];
        bool along = axes_of(kind, dataset, of, &n, NULL) == DPE_OK;
        int64_t index = 0;
        for (int a = 0; a < n && along; a++) {
            along = has_word(axes, kind->datasets[of[a]].name);
            index = index * extents[of[a]] + at[of[a]];
        }
        if (!along) {
            continue;
        }
        const char *array = dataset->array != DPE_DATASET_COUNT ? *array_of(dataset, result) : NULL;
        if (is_axis(dataset) && array == NULL) {
            add_field(&(struct dpe_dataset){.name = dataset->name, .type = DPE_COL_I64}, &index,
                      out);
        } else {
            add_field(dataset,
                      array != NULL ? array + (size_t)index * dataset->stride + dataset->at : NULL,
                      out);
        }
    }
}

void dpe_datasets_rows(const struct dpe_dataset_kind *kind, const void *result, const char *axes,
                       const char *list, struct dpe_result *out)
{
    const struct dpe_dataset row = {.name = list, .axes = axes};
    size_t n = 0;
    n = count_of(kind, &row, result, &n, NULL) == DPE_OK ? n : 0;
    for (size_t i = 0; i < n; i++) {
        dpe_result_row(out, list);
        dpe_datasets_fields(kind, result, axes, (int64_t)i, out);
    }
}

/* ------------------------------------------------------------------------------------- reading */

/* "[8, 7]" */
static const char *shape_text(const int64_t *dims, int rank, char text[128])
{
    size_t used = (size_t)snprintf(text, 128, "[");
    for (int i = 0; i < rank && used < 100; i++) {
        used += (size_t)snprintf(text + used, 128 - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)dims[i]);
    }
    snprintf(text + used, 128 - used, "]");
    return text;
}

/* The values of a dataset as dpe_h5_get gives them, of `n` strings or numbers. */
static dpe_status read_values(const struct dpe_dataset *dataset, const char *path,
                              struct dpe_h5 *table, void **values, int *rank, int64_t dims[5],
                              struct dpe_error *err)
{
    if (dataset->type != DPE_COL_STRING) {
        return dpe_h5_get(table, path, dataset->type, values, rank, dims, err);
    }
    char **strings = NULL;
    size_t n = 0;
    DPE_TRY(dpe_h5_get_strings(table, path, &strings, &n, err));
    *values = strings;
    *rank = 1;
    dims[0] = (int64_t)n;
    return DPE_OK;
}

static void free_values(const struct dpe_dataset *dataset, void *values, int64_t n)
{
    if (dataset->type == DPE_COL_STRING) {
        dpe_strings_free(values, (size_t)n);
    } else {
        free(values);
    }
}

/* Values into the struct: the array itself, or a member of records, which the first of them makes.
 */
static dpe_status keep(const struct dpe_dataset *dataset, void *result, void *values, int64_t n,
                       const char *path, struct dpe_error *err)
{
    size_t size = dpe_hdf5_size(dataset->type);
    char **array = dataset->array == DPE_DATASET_COUNT ? NULL : array_of(dataset, result);
    if (array == NULL) {
        free(values);
        return DPE_OK;
    }
    if (dataset->stride == size) {
        *array = values;
        return DPE_OK;
    }
    if (*array == NULL) {
        *array = dpe_alloc_zero((size_t)n + 1, dataset->stride);
    }
    for (int64_t i = 0; *array != NULL && i < n; i++) {
        memcpy(*array + (size_t)i * dataset->stride + dataset->at,
               (char *)values + (size_t)i * size, size);
    }
    if (*array == NULL) {
        free_values(dataset, values, n);
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory for %lld values", path,
                        (long long)n);
    }
    free(values); /* of strings the list alone: the struct has the strings */
    return DPE_OK;
}

/* An axis whose scale is not in the file (`known`) is as long as the first dataset that has it
 * says. */
static dpe_status get(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                      void *result, const char *folder, bool known[DPE_DATASET_AXES],
                      struct dpe_h5 *table, struct dpe_error *err)
{
    int64_t *extents = result;
    char path[MAX_PATH];
    size_t axes[MAX_RANK];
    int64_t expected[MAX_RANK] = {0};
    int64_t found[MAX_RANK] = {0};
    int rank = 0;
    int found_rank = 0;
    void *values = NULL;
    path_of(folder, dataset->name, path);
    DPE_TRY(axes_of(kind, dataset, axes, &rank, err));
    DPE_TRY(read_values(dataset, path, table, &values, &found_rank, found, err));
    int64_t n = 1;
    bool fits = rank == found_rank || dataset->type == DPE_COL_STRING;
    for (int i = 0; i < rank; i++) {
        if (!known[axes[i]] && i < found_rank) {
            extents[axes[i]] = found[i];
            known[axes[i]] = true;
        }
        expected[i] = extents[axes[i]];
        n *= expected[i];
        fits = fits && (dataset->type == DPE_COL_STRING || expected[i] == found[i]);
    }
    if (!fits || (dataset->type == DPE_COL_STRING && found[0] != n)) {
        char texts[2][128];
        free_values(dataset, values, found[0]);
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected the shape %s, found %s", path,
                        shape_text(expected, rank, texts[0]),
                        shape_text(found, found_rank, texts[1]));
    }
    return keep(dataset, result, values, n, path, err);
}

/* Whether an optional dataset is read: members of one record are there together, so the first of
 * them decides. */
static bool is_there(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                     const char *folder, struct dpe_h5 *table)
{
    const struct dpe_dataset *first = kind->datasets;
    char path[MAX_PATH];
    while (dataset->array != DPE_DATASET_COUNT && first->array != dataset->array) {
        first++;
    }
    first = dataset->array == DPE_DATASET_COUNT ? dataset : first;
    return dpe_h5_has(table, path_of(folder, first->name, path));
}

/* Whether an axis is one of a dataset that is wanted. */
static bool needed(const struct dpe_dataset_kind *kind, const struct dpe_dataset *axis,
                   const char *names)
{
    bool is = false;
    for (size_t i = 0; i < kind->n; i++) {
        const struct dpe_dataset *dataset = &kind->datasets[i];
        is = is || (!is_axis(dataset) && has_word(names, dataset->name) &&
                    has_word(dataset->axes, axis->name));
    }
    return is;
}

/* By the names of dpe_datasets_get. */
static bool is_wanted(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                      const char *names)
{
    if (names != NULL && *names == '-') {
        return strcmp(dataset->name, names + 1) != 0 &&
               (is_axis(dataset) || !has_word(dataset->axes, names + 1));
    }
    return names == NULL || has_word(names, dataset->name) ||
           (is_axis(dataset) && needed(kind, dataset, names));
}

/* A number of records that are there is not known: a table that was made before it has none. */
static dpe_status get_none(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                           void *result, struct dpe_error *err)
{
    size_t n = 0;
    DPE_TRY(count_of(kind, dataset, result, &n, err));
    for (size_t i = 0; i < n; i++) {
        memcpy(*array_of(dataset, result) + i * dataset->stride + dataset->at,
               &(double){(double)NAN}, sizeof(double));
    }
    return DPE_OK;
}

dpe_status dpe_datasets_get(const struct dpe_dataset_kind *kind, void *result, const char *folder,
                            const char *names, struct dpe_h5 *table, struct dpe_error *err)
{
    char path[MAX_PATH];
    bool known[DPE_DATASET_AXES] = {false};
    for (size_t i = 0; i < kind->n; i++) {
        const struct dpe_dataset *dataset = &kind->datasets[i];
        bool wanted = is_wanted(kind, dataset, names);
        if (wanted && (dataset->optional || dataset->array == DPE_DATASET_COUNT)) {
            wanted = is_there(kind, dataset, folder, table);
        }
        const bool none = wanted && dataset->optional && dataset->type == DPE_COL_F64 &&
                          *array_of(dataset, result) != NULL &&
                          !dpe_h5_has(table, path_of(folder, dataset->name, path));
        DPE_TRY(dpe_h5_answered(table, err));
        if (wanted) {
            DPE_TRY(none ? get_none(kind, dataset, result, err)
                         : get(kind, dataset, result, folder, known, table, err));
        }
    }
    return DPE_OK;
}

void dpe_datasets_texts(const struct dpe_dataset_kind *kind, void *result,
                        void (*each)(char **text))
{
    for (size_t i = 0; i < kind->n; i++) {
        const struct dpe_dataset *dataset = &kind->datasets[i];
        size_t n = 0;
        if (dataset->type != DPE_COL_STRING || *array_of(dataset, result) == NULL ||
            count_of(kind, dataset, result, &n, NULL) != DPE_OK) {
            continue;
        }
        char *elements = *array_of(dataset, result) + dataset->at;
        for (size_t e = 0; e < n; e++) {
            char **text = (char **)(void *)(elements + e * dataset->stride);
            if (*text != NULL) {
                each(text);
            }
        }
    }
}

static void drop(const struct dpe_dataset *dataset, void *result)
{
    char **array = array_of(dataset, result);
    free(*array);
    *array = NULL;
}

static void free_text(char **text)
{
    free(*text);
    *text = NULL;
}

/* Whether the dataset is the first of the names' that has its array. */
static bool makes(const struct dpe_dataset_kind *kind, const struct dpe_dataset *dataset,
                  const char *names)
{
    bool first = dataset->array != DPE_DATASET_COUNT && has_word(names, dataset->name);
    for (const struct dpe_dataset *d = kind->datasets; d < dataset && first; d++) {
        first = d->array != dataset->array || !has_word(names, d->name);
    }
    return first;
}

dpe_status dpe_datasets_make(const struct dpe_dataset_kind *kind, void *result, const char *names,
                             struct dpe_error *err)
{
    for (size_t i = 0; i < kind->n; i++) {
        const struct dpe_dataset *dataset = &kind->datasets[i];
        size_t n = 0;
        if (!makes(kind, dataset, names)) {
            continue;
        }
        DPE_TRY(count_of(kind, dataset, result, &n, err));
        char **array = array_of(dataset, result);
        *array = dpe_alloc_zero(n, dataset->stride);
        DPE_TRY(DPE_MADE(*array, err, "out of memory for %s", dataset->name));
    }
    return DPE_OK;
}

void dpe_datasets_drop(const struct dpe_dataset_kind *kind, void *result, const char *names)
{
    for (size_t i = 0; i < kind->n; i++) {
        if (makes(kind, &kind->datasets[i], names)) {
            drop(&kind->datasets[i], result);
        }
    }
}

void dpe_datasets_free(const struct dpe_dataset_kind *kind, void *result)
{
    dpe_datasets_texts(kind, result, free_text);
    for (size_t i = 0; i < kind->n; i++) {
        if (kind->datasets[i].array != DPE_DATASET_COUNT) {
            drop(&kind->datasets[i], result);
        }
    }
}

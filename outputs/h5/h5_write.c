/* What is put into a table: groups, datasets, attributes. Where its bytes go is in h5.c. */
#include "outputs/h5/h5.h"
#include "outputs/h5/h5_internal.h"
#include "outputs/storage/storage.h"
#include "outputs/table/inside.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { GZIP_LEVEL = 4, MAX_RANK = 5 };

dpe_status dpe_h5_failed(const struct dpe_h5 *table, struct dpe_error *err)
{
    if (table->failure.status != DPE_OK && err != NULL) {
        *err = table->failure;
    }
    return table->failure.status;
}

void dpe_h5_stop(struct dpe_h5 *table, dpe_status status, const char *format, ...)
{
    char text[sizeof table->failure.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (table->failure.status == DPE_OK) {
        dpe_fail(&table->failure, status, "%s", text);
    }
}

void *dpe_h5_room(struct dpe_h5 *table, size_t n, size_t size, const char *what)
{
    void *made = dpe_alloc_zero(n, size);
    if (made == NULL) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for %s", what);
    }
    return made;
}

/* --------------------------------------------------------------------------------------- groups */

static bool path_ok(const char *path)
{
    if (path[0] != '/' || path[1] == '\0') {
        return false;
    }
    for (const char *c = path; *c != '\0'; c++) {
        bool name = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                    (*c >= '0' && *c <= '9') || *c == '_' || *c == '-' || *c == '.';
        if (*c == '/' ? c[1] == '/' || c[1] == '\0' : !name) {
            return false;
        }
    }
    return true;
}

static dpe_status make_group(struct dpe_h5 *table, const char *path, struct dpe_error *err)
{
    if (dpe_inside_look(table->file, path) == DPE_INSIDE_THERE) {
        return DPE_OK;
    }
    DPE_SCOPED(dpe_inside_close_scoped) hid_t create = dpe_hdf5_timeless(H5P_GROUP_CREATE);
    hid_t group = create < 0 ? -1 : H5Gcreate2(table->file, path, H5P_DEFAULT, create, H5P_DEFAULT);
    return group >= 0 && dpe_inside_close(group)
               ? DPE_OK
               : dpe_hdf5_fail(err, DPE_INTERNAL, table, path, "group cannot be made");
}

/* Every folder above `path`, and `path` itself when `whole`. */
static dpe_status make_groups(struct dpe_h5 *table, const char *path, bool whole,
                              struct dpe_error *err)
{
    if (strcmp(path, "/") == 0) {
        return DPE_OK;
    }
    if (!path_ok(path)) {
        return dpe_fail(err, DPE_INTERNAL, "%s: \"%s\" is not a path of a table", table->path,
                        path);
    }
    DPE_OWNED char *prefix = dpe_join(path, "", "");
    DPE_TRY(DPE_MADE(prefix, err, "%s: %s: out of memory", table->path, path));
    for (char *at = strchr(prefix + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        DPE_TRY(make_group(table, prefix, err));
        *at = '/';
    }
    return whole ? make_group(table, path, err) : DPE_OK;
}

/* ----------------------------------------------------------------------------------- attributes */

static bool write_attribute(hid_t object, const char *name, hid_t type, hid_t space,
                            const void *value)
{
    bool ok = H5Aexists(object, name) <= 0 || H5Adelete(object, name) >= 0;
    hid_t attribute =
        ok ? H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT) : (hid_t)-1;
    ok = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    return dpe_inside_close(attribute) && ok;
}

static bool write_scalar(hid_t object, const char *name, hid_t type, const void *value)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t space = H5Screate(H5S_SCALAR);
    return space >= 0 && write_attribute(object, name, type, space, value);
}

static bool write_text(hid_t object, const char *name, const char *value)
{
    return write_scalar(object, name, dpe_hdf5_type(DPE_COL_STRING), &value);
}

static dpe_status put_attribute(struct dpe_h5 *table, const char *object, const char *name,
                                hid_t type, const void *value, struct dpe_error *err)
{
    if (dpe_inside_look(table->file, object) != DPE_INSIDE_THERE) {
        DPE_TRY(make_groups(table, object, true, err));
    }
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = -1;
    DPE_TRY(dpe_hdf5_open(table, object, &id, err));
    return write_scalar(id, name, type, value)
               ? DPE_OK
               : dpe_hdf5_fail(err, DPE_INTERNAL, table, object, name);
}

static void attribute_of(struct dpe_h5 *table, const char *object, const char *name, hid_t type,
                         const void *value)
{
    dpe_inside_listen();
    if (table->failure.status == DPE_OK) {
        table->failure.status = put_attribute(table, object, name, type, value, &table->failure);
    }
}

void dpe_h5_attr_text(struct dpe_h5 *table, const char *object, const char *name, const char *value)
{
    if (!dpe_is_utf8(value)) {
        dpe_h5_stop(table, DPE_BAD_DATA, "%s: attribute %s of %s: expected UTF-8", table->path,
                    name, object);
    }
    attribute_of(table, object, name, dpe_hdf5_type(DPE_COL_STRING), &value);
}

void dpe_h5_attr_f64(struct dpe_h5 *table, const char *object, const char *name, double value)
{
    attribute_of(table, object, name, H5T_NATIVE_DOUBLE, &value);
}

void dpe_h5_attr_i64(struct dpe_h5 *table, const char *object, const char *name, int64_t value)
{
    attribute_of(table, object, name, H5T_NATIVE_INT64, &value);
}

/* flag_values 0, 1, 2, … in the type of the dataset, one for each word. */
static bool write_flags(hid_t dataset, enum dpe_column_type type, const char *meanings)
{
    enum { MAX_FLAGS = 64 };
    int64_t values[MAX_FLAGS] = {0};
    hsize_t n = 1;
    for (const char *c = meanings; *c != '\0'; c++) {
        n += *c == ' ' && c[1] != ' ' && c[1] != '\0';
    }
    if (n > MAX_FLAGS) {
        return false;
    }
    for (hsize_t i = 0; i < n; i++) {
        values[i] = (int64_t)i;
    }
    hid_t element = dpe_hdf5_type(type);
    DPE_SCOPED(dpe_inside_close_scoped) hid_t space = H5Screate_simple(1, &n, NULL);
    return space >= 0 && H5Tconvert(H5T_NATIVE_INT64, element, n, values, NULL, H5P_DEFAULT) >= 0 &&
           write_attribute(dataset, "flag_values", element, space, values) &&
           write_text(dataset, "flag_meanings", meanings);
}

/* ------------------------------------------------------------------------------------- datasets */

/* What stands for a value that is not there; NULL for unsigned integers and strings, which have no
 * value to spare. */
static const void *fill_value(enum dpe_column_type type)
{
    static const double f64 = NAN;
    static const float f32 = NAN;
    static const int64_t i64 = -1;
    static const int32_t i32 = -1;
    static const void *const values[] = {
        [DPE_COL_F64] = &f64, [DPE_COL_F32] = &f32,    [DPE_COL_I64] = &i64,
        [DPE_COL_I32] = &i32, [DPE_COL_STRING] = NULL,
    };
    return values[type];
}

static dpe_status count_elements(const struct dpe_h5 *table, const struct dpe_column *column,
                                 size_t *n, struct dpe_error *err)
{
    *n = 1;
    bool ok = column->rank >= 0 && column->rank <= MAX_RANK;
    for (int axis = 0; ok && axis < column->rank; axis++) {
        ok = column->dims[axis] >= 0 && !__builtin_mul_overflow(*n, (size_t)column->dims[axis], n);
    }
    size_t bytes = 0;
    ok = ok && !__builtin_mul_overflow(*n, dpe_hdf5_size(column->type), &bytes);
    for (int axis = 0; ok && axis < column->rank && !column->is_scale; axis++) {
        ok = column->scales[axis] != NULL && column->scales[axis][0] == '/';
    }
    if (!ok || column->long_name == NULL || (*n > 0 && column->data == NULL) ||
        (column->is_scale && column->rank != 1)) {
        return dpe_fail(err, DPE_INTERNAL,
                        "%s: %s: rank, sizes, scales, data or long_name are not valid", table->path,
                        column->path);
    }
    return DPE_OK;
}

/* One chunk when it is small; else rows of the last axes. */
static void chunk_shape(const struct dpe_column *column, hsize_t chunk[MAX_RANK])
{
    size_t bytes = dpe_hdf5_size(column->type);
    for (int axis = column->rank - 1; axis >= 0; axis--) {
        size_t room = DPE_INSIDE_CHUNK / bytes;
        size_t length = (size_t)column->dims[axis];
        length = length > room ? room : length;
        chunk[axis] = length < 1 ? 1 : length;
        bytes *= (size_t)chunk[axis];
    }
}

static hid_t dataset_properties(const struct dpe_column *column, size_t n)
{
    hid_t plist = dpe_hdf5_timeless(H5P_DATASET_CREATE);
    bool ok = plist >= 0;
    /* HDF5 refuses fletcher32 on strings, whose bytes lie in a heap that no filter sees. */
    if (ok && column->rank > 0 && n > 0 && column->type != DPE_COL_STRING) {
        hsize_t chunk[MAX_RANK];
        chunk_shape(column, chunk);
        ok = H5Pset_chunk(plist, column->rank, chunk) >= 0 && H5Pset_shuffle(plist) >= 0 &&
             H5Pset_deflate(plist, GZIP_LEVEL) >= 0 && H5Pset_fletcher32(plist) >= 0;
    }
    const void *fill = fill_value(column->type);
    if (ok && fill != NULL) {
        ok = H5Pset_fill_value(plist, dpe_hdf5_type(column->type), fill) >= 0;
    }
    return dpe_inside_keep(plist, ok);
}

static hid_t create_dataset(struct dpe_h5 *table, const struct dpe_column *column, size_t n,
                            hid_t type)
{
    hsize_t dims[MAX_RANK] = {0};
    for (int axis = 0; axis < column->rank; axis++) {
        dims[axis] = (hsize_t)column->dims[axis];
    }
    DPE_SCOPED(dpe_inside_close_scoped)
    hid_t space =
        column->rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(column->rank, dims, NULL);
    DPE_SCOPED(dpe_inside_close_scoped) hid_t plist = dataset_properties(column, n);
    return space >= 0 && plist >= 0
               ? H5Dcreate2(table->file, column->path, type, space, H5P_DEFAULT, plist, H5P_DEFAULT)
               : -1;
}

static bool write_elements(hid_t dataset, hid_t type, const struct dpe_column *column, size_t n)
{
    if (n == 0) {
        return true;
    }
    if (column->type != DPE_COL_STRING) {
        return H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, column->data) >= 0;
    }
    const char *const *from = column->data;
    DPE_OWNED const char **texts = dpe_alloc(n, sizeof *texts);
    if (texts == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        texts[i] = from[i] == NULL ? "" : from[i];
    }
    /* HDF5 would clear two buffers of 1 MiB for the conversion of each dataset. */
    enum { ELEMENT = 64, MOST = 1 << 20 }; /* a reference to a string is 16 bytes */
    size_t size = n < MOST / ELEMENT ? n * ELEMENT : MOST;
    DPE_SCOPED(dpe_inside_close_scoped) hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    return transfer >= 0 && H5Pset_buffer(transfer, size, NULL, NULL) >= 0 &&
           H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, transfer, texts) >= 0;
}

static bool describe(hid_t dataset, const struct dpe_column *column)
{
    bool ok = write_text(dataset, "long_name", column->long_name) &&
              write_text(dataset, "units", column->units == NULL ? "1" : column->units);
    const void *fill = column->is_scale ? NULL : fill_value(column->type);
    if (ok && fill != NULL) {
        ok = write_scalar(dataset, "_FillValue", dpe_hdf5_type(column->type), fill);
    }
    if (ok && column->flag_meanings != NULL) {
        ok = write_flags(dataset, column->type, column->flag_meanings);
    }
    if (ok && column->is_scale) {
        ok = H5DSset_scale(dataset, strrchr(column->path, '/') + 1) >= 0;
    }
    return ok;
}

/* Open the scale at `path`; its length, -1 when there is none. */
static int64_t open_scale(const struct dpe_h5 *table, const char *path, hid_t *scale)
{
    enum dpe_inside found = DPE_INSIDE_UNKNOWN;
    *scale = dpe_inside_open(table->file, path, &found);
    bool is = *scale >= 0 && H5Iget_type(*scale) == H5I_DATASET && H5DSis_scale(*scale) > 0;
    DPE_SCOPED(dpe_inside_close_scoped) hid_t space = is ? H5Dget_space(*scale) : -1;
    return space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
}

static dpe_status attach_scale(struct dpe_h5 *table, hid_t dataset, const struct dpe_column *column,
                               int axis, struct dpe_error *err)
{
    const char *path = column->scales[axis];
    size_t folder = (size_t)(strrchr(path, '/') - path) + 1;
    if (strncmp(path, column->path, folder) != 0) {
        /* netCDF-4 looks for a dimension there and nowhere else. */
        return dpe_fail(err, DPE_INTERNAL,
                        "%s: %s: its scale %s is not in its own folder or one above it",
                        table->path, column->path, path);
    }
    if (strncmp(column->path, "/run/", 5) == 0 && strncmp(path, "/run/", 5) != 0) {
        /* A scale refers back to its datasets, and h5diff follows: two equal runs would differ. */
        return dpe_fail(err, DPE_INTERNAL, "%s: %s: its scale %s is not in /run", table->path,
                        column->path, path);
    }
    hid_t scale = -1;
    int64_t length = open_scale(table, path, &scale);
    dpe_status status = DPE_OK;
    if (length != column->dims[axis]) {
        status =
            dpe_fail(err, DPE_INTERNAL, "%s: %s: axis %d has %lld elements, its scale %s has %lld",
                     table->path, column->path, axis, (long long)column->dims[axis], path,
                     (long long)length);
    } else if (H5DSattach_scale(dataset, scale, (unsigned)axis) < 0) {
        status = dpe_hdf5_fail(err, DPE_INTERNAL, table, column->path, "scale cannot be attached");
    }
    if (!dpe_inside_close(scale) && status == DPE_OK) {
        status = dpe_hdf5_fail(err, DPE_INTERNAL, table, path, "scale cannot be closed");
    }
    return status;
}

static dpe_status check_strings(const struct dpe_h5 *table, const struct dpe_column *column,
                                size_t n, struct dpe_error *err)
{
    const char *const *texts = column->data;
    for (size_t i = 0; column->type == DPE_COL_STRING && i < n; i++) {
        if (!dpe_is_utf8(texts[i])) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: %s: element %zu is not UTF-8", table->path,
                            column->path, i);
        }
    }
    return DPE_OK;
}

/* Readers of trees, such as xarray.open_datatree, take a dimension to be the one of its name in a
 * folder above, and refuse a file in which the two have not one length. */
static dpe_status check_above(const struct dpe_h5 *table, const struct dpe_column *column,
                              struct dpe_error *err)
{
    const char *path = column->path;
    const char *name = strrchr(path, '/');
    for (const char *end = name; column->is_scale && end != NULL && end > path;) {
        do {
            end--;
        } while (end > path && *end != '/');
        char above[256];
        int length = snprintf(above, sizeof above, "%.*s%s", (int)(end - path), path, name);
        DPE_SCOPED(dpe_inside_close_scoped) hid_t scale = -1;
        int64_t n = length < (int)sizeof above ? open_scale(table, above, &scale) : -1;
        if (n >= 0 && n != column->dims[0]) {
            return dpe_fail(err, DPE_INTERNAL,
                            "%s: %s: has %lld values, the scale %s has %lld: name it differently",
                            table->path, path, (long long)column->dims[0], above, (long long)n);
        }
    }
    return DPE_OK;
}

static dpe_status put(struct dpe_h5 *table, const struct dpe_column *column, struct dpe_error *err)
{
    size_t n = 0;
    dpe_status status = DPE_OK;
    DPE_TRY(count_elements(table, column, &n, err));
    DPE_TRY(check_strings(table, column, n, err));
    DPE_TRY(check_above(table, column, err));
    DPE_TRY(make_groups(table, column->path, false, err));
    hid_t type = dpe_hdf5_type(column->type);
    hid_t dataset = type < 0 ? -1 : create_dataset(table, column, n, type);
    if (dataset < 0) {
        status = dpe_hdf5_fail(err, DPE_INTERNAL, table, column->path, "dataset cannot be made");
    } else if (!write_elements(dataset, type, column, n) || !describe(dataset, column)) {
        status = dpe_hdf5_fail(err, DPE_INTERNAL, table, column->path, "dataset cannot be written");
    }
    for (int axis = 0; status == DPE_OK && axis < column->rank && !column->is_scale; axis++) {
        status = attach_scale(table, dataset, column, axis, err);
    }
    if (dataset >= 0 && H5Dclose(dataset) < 0 && status == DPE_OK) {
        status = dpe_hdf5_fail(err, DPE_INTERNAL, table, column->path, "dataset cannot be closed");
    }
    return status;
}

void dpe_h5_put(struct dpe_h5 *table, const struct dpe_column *column)
{
    dpe_inside_listen();
    if (table->failure.status == DPE_OK) {
        table->failure.status = put(table, column, &table->failure);
    }
}

void dpe_h5_put_list(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                     const void *data, size_t n, const char *scale, const char *long_name,
                     const char *units)
{
    const struct dpe_column column = {.path = path,
                                      .type = type,
                                      .rank = 1,
                                      .dims = {(int64_t)n},
                                      .scales = {scale},
                                      .data = data,
                                      .long_name = long_name,
                                      .units = units,
                                      .is_scale = scale == NULL};
    dpe_h5_put(table, &column);
}

void dpe_h5_put_scale(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                      const void *data, int64_t n, const char *long_name, const char *units)
{
    dpe_h5_put_list(table, path, type, data, (size_t)n, NULL, long_name, units);
}

void dpe_h5_put_count(struct dpe_h5 *table, const char *path, int64_t n, const char *long_name)
{
    DPE_OWNED int64_t *numbers = dpe_alloc((size_t)n, sizeof *numbers);
    if (numbers == NULL) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for a scale of %lld", (long long)n);
    }
    for (int64_t i = 0; i < n && numbers != NULL; i++) {
        numbers[i] = i;
    }
    dpe_h5_put_scale(table, path, DPE_COL_I64, numbers, n, long_name, "1");
}

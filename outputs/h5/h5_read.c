/* Reading tables: what a file claims is checked before anything is allocated. */
#include "outputs/h5/h5_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/storage/storage.h"
#include "outputs/table/fields.h"
#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"

/* Up to SMALL bytes are read whatever the file stores of them: unwritten or equal values may take
 * no room at all, and the key pairs of the largest models need half of it. Above, a filter does not
 * shrink numbers more than deflate can, 1032 to 1. */
enum { MAX_RANK = 5, MOST_SHRINK = 1032, SMALL = 16 << 20 };

static dpe_status check_version(struct dpe_h5 *table, const char *version, struct dpe_error *err)
{
    char why[DPE_TABLE_MESSAGE];
    DPE_OWNED char *history = NULL;
    if (dpe_table_check_version(version, NULL, why) == DPE_TABLE_OK) {
        return DPE_OK;
    }
    dpe_h5_get_attr_text(table, "/run", "history", &history, NULL);
    dpe_table_check_version(version, history, why);
    return dpe_fail(err, DPE_BAD_DATA, "%s: %s", table->path, why);
}

static dpe_status check_schema(struct dpe_h5 *table, struct dpe_error *err)
{
    DPE_OWNED char *name = NULL;
    DPE_OWNED char *version = NULL;
    struct dpe_error why = {0};
    dpe_status status = dpe_h5_get_attr_text(table, "/", "schema_name", &name, &why);
    if (status == DPE_OK) {
        status = dpe_h5_get_attr_text(table, "/", "schema_version", &version, &why);
    }
    if (status == DPE_NO_MEMORY) {
        return dpe_fail(err, status, "%s", why.text);
    }
    if (status != DPE_OK || strcmp(name, DPE_SCHEMA_NAME) != 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a table with schema_name \"%s\", found %s%s%s", table->path,
                        DPE_SCHEMA_NAME, name == NULL ? "none" : "\"", name == NULL ? "" : name,
                        name == NULL ? "" : "\"");
    }
    return check_version(table, version, err);
}

dpe_status dpe_h5_check_trailer(int fd, const char *path, bool needed, struct dpe_error *err)
{
    static const char signature[8] = {'\211', 'H', 'D', 'F', '\r', '\n', '\032', '\n'};
    char begin[sizeof signature] = "", words[DPE_TRAILER_WORDS];
    const enum dpe_trailer_state state = dpe_trailer_check(fd, words);
    if (state == DPE_TRAILER_WHOLE || (state == DPE_TRAILER_NONE && !needed)) {
        return DPE_OK;
    }
    if (state == DPE_TRAILER_NONE && (pread(fd, begin, sizeof begin, 0) != sizeof begin ||
                                      memcmp(begin, signature, sizeof begin) != 0)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: cannot be read as HDF5: expected a table, found %s",
                        path, "another kind of file");
    }
    return dpe_fail(err, state == DPE_TRAILER_UNREADABLE ? DPE_IO : DPE_BAD_DATA, "%s: %s%s", path,
                    words,
                    state == DPE_TRAILER_NONE ? "; dpe-report and dpe-export, which can write it "
                                                "anew, read the file with --unchecked"
                    : state == DPE_TRAILER_DAMAGED ? ", or run the command that wrote it"
                                                   : "");
}

/* Opened once without HDF5, so that a FIFO is not waited for, an errno gets its own words, and HDF5
 * never sees a damaged file. */
static dpe_status check_file(const char *path, struct dpe_error *err)
{
    int opened = -1;
    uint64_t size = 0;
    DPE_TRY(dpe_open_regular(path, &opened, &size, err));
    DPE_SCOPED(dpe_close_fd) int fd = opened;
    DPE_TRY(dpe_h5_check_trailer(fd, path, !dpe_h5_is_unchecked(), err));
    /* HDF5 1.10 crashes when it lacks memory while it starts and opens a file. */
    enum { STARTS = 8 << 20 };
    DPE_OWNED void *room = malloc(STARTS);
    return DPE_MADE(room, err, "%s: HDF5 needs %d MiB of memory to open it", path, STARTS >> 20);
}

dpe_status dpe_h5_open(const char *path, struct dpe_h5 **table, struct dpe_error *err)
{
    DPE_TRY(check_file(path, err));
    dpe_inside_listen();
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "%s: out of memory", path));
    made->file = -1;
    made->path = dpe_join(path, "", "");
    DPE_TRY(DPE_MADE(made->path, err, "%s: out of memory", path));
    made->file = dpe_inside_file(path);
    if (made->file < 0) {
        return dpe_hdf5_fail(err, DPE_BAD_DATA, made, "/", "cannot be read as HDF5");
    }
    DPE_TRY(check_schema(made, err));
    *table = made;
    made = NULL;
    return DPE_OK;
}

bool dpe_h5_has(struct dpe_h5 *table, const char *path)
{
    dpe_inside_listen();
    enum dpe_inside found = dpe_inside_look(table->file, path);
    if (found == DPE_INSIDE_UNKNOWN && table->unanswered == DPE_OK) {
        table->unanswered = dpe_hdf5_fail(NULL, DPE_BAD_DATA, table, path, "");
    }
    return found == DPE_INSIDE_THERE || found == DPE_INSIDE_POINTS;
}

dpe_status dpe_h5_answered(const struct dpe_h5 *table, struct dpe_error *err)
{
    return table->unanswered == DPE_OK
               ? DPE_OK
               : dpe_fail(err, table->unanswered, "%s: HDF5 cannot tell what is in it%s",
                          table->path,
                          table->unanswered == DPE_NO_MEMORY ? ": not enough memory" : "");
}

/* ------------------------------------------------------------------------------------- datasets */

struct shape {
    int rank;
    int64_t dims[MAX_RANK];
    size_t n;
};

/* Bytes of the dataset's n elements as the file has them, before filters. */
static size_t unfiltered(hid_t dataset, size_t n)
{
    size_t bytes = 0;
    dpe_inside_class(dataset, &bytes);
    return bytes == 0 || __builtin_mul_overflow(n, bytes, &bytes) ? SIZE_MAX : bytes;
}

/* The shape of a dataset; refused when its elements could not have come from what is stored. */
static dpe_status read_shape(struct dpe_h5 *table, hid_t dataset, const char *path, size_t element,
                             struct shape *shape, struct dpe_error *err)
{
    hsize_t dims[H5S_MAX_RANK] = {0};
    int rank = dpe_inside_dims(dataset, dims);
    bool ok = rank >= 0 && rank <= MAX_RANK;
    *shape = (struct shape){.rank = rank, .n = 1};
    for (int axis = 0; ok && axis < rank; axis++) {
        shape->dims[axis] = (int64_t)dims[axis];
        ok = dims[axis] <= INT64_MAX &&
             !__builtin_mul_overflow(shape->n, (size_t)dims[axis], &shape->n);
    }
    size_t bytes = 0;
    if (!ok || __builtin_mul_overflow(shape->n, element, &bytes)) {
        return dpe_hdf5_fail(err, DPE_BAD_DATA, table, path, "its shape cannot be read");
    }
    hsize_t stored = H5Dget_storage_size(dataset);
    size_t claimed = unfiltered(dataset, shape->n);
    if (bytes > SMALL && claimed / MOST_SHRINK > stored) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: claims %zu bytes, the file stores %llu",
                        table->path, path, claimed, (unsigned long long)stored);
    }
    dpe_inside_limit(bytes > DPE_INSIDE_MUCH ? dpe_memory_available() : UINT64_MAX);
    return DPE_OK;
}

/* A value that does not fit the requested type is an error; it is not rounded. */
static H5T_conv_ret_t refuse_range(H5T_conv_except_t exception, hid_t from, hid_t to, void *source,
                                   void *target, void *user)
{
    (void)from;
    (void)to;
    (void)source;
    (void)target;
    (void)user;
    bool range = exception == H5T_CONV_EXCEPT_RANGE_HI || exception == H5T_CONV_EXCEPT_RANGE_LOW;
    return range ? H5T_CONV_ABORT : H5T_CONV_UNHANDLED;
}

static bool convertible(hid_t dataset, enum dpe_column_type type)
{
    size_t bytes = 0;
    H5T_class_t class_id = dpe_inside_class(dataset, &bytes);
    bool to_float = type == DPE_COL_F64 || type == DPE_COL_F32;
    return class_id == H5T_INTEGER || (class_id == H5T_FLOAT && to_float);
}

/* An attribute's name, or "". */
static dpe_status read_status(const struct dpe_h5 *table, const char *path, const char *attribute,
                              enum dpe_inside found, struct dpe_error *err)
{
    char what[256];
    snprintf(what, sizeof what, "%s%s%s%s", attribute[0] != '\0' ? "attribute " : "", attribute,
             attribute[0] != '\0' ? " " : "", dpe_inside_text(found));
    return found == DPE_INSIDE_THERE
               ? DPE_OK
               : dpe_hdf5_fail(err, found == DPE_INSIDE_LARGE ? DPE_NO_MEMORY : DPE_BAD_DATA, table,
                               path, what);
}

static dpe_status read_array(struct dpe_h5 *table, hid_t dataset, const char *path,
                             enum dpe_column_type type, void **data, struct shape *shape,
                             struct dpe_error *err)
{
    if (type == DPE_COL_STRING || !convertible(dataset, type)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: has another type than expected", table->path,
                        path);
    }
    DPE_TRY(read_shape(table, dataset, path, dpe_hdf5_size(type), shape, err));
    DPE_SCOPED(dpe_inside_close_scoped) hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    DPE_OWNED void *values = transfer >= 0 ? dpe_alloc(shape->n, dpe_hdf5_size(type)) : NULL;
    DPE_TRY(
        DPE_MADE(values, err, "%s: %s: no memory for %zu elements", table->path, path, shape->n));
    if (shape->n > 0) {
        enum dpe_inside found =
            H5Pset_type_conv_cb(transfer, refuse_range, NULL) < 0
                ? DPE_INSIDE_UNKNOWN
                : dpe_inside_read(dataset, dpe_hdf5_type(type), transfer, values);
        DPE_TRY(read_status(table, path, "", found, err));
    }
    *data = values;
    values = NULL;
    return DPE_OK;
}

dpe_status dpe_h5_get(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                      void **data, int *rank, int64_t dims[5], struct dpe_error *err)
{
    dpe_inside_listen();
    DPE_SCOPED(dpe_inside_close_scoped) hid_t dataset = -1;
    DPE_TRY(dpe_hdf5_open_dataset(table, path, &dataset, err));
    struct shape shape = {0};
    DPE_TRY(read_array(table, dataset, path, type, data, &shape, err));
    *rank = shape.rank;
    memcpy(dims, shape.dims, sizeof shape.dims);
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- folders */

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *user)
{
    struct dpe_strings *names = user;
    char *copy = dpe_make_room(&names->at, names->n, sizeof *names->at) ? strdup(name) : NULL;
    (void)group;
    (void)info;
    if (copy != NULL) {
        names->at[names->n++] = copy;
    }
    return copy == NULL; /* which ends it */
}

dpe_status dpe_h5_list(struct dpe_h5 *table, const char *path, char ***names, size_t *n,
                       struct dpe_error *err)
{
    dpe_inside_listen();
    *names = NULL;
    *n = 0;
    if (dpe_inside_look(table->file, path) == DPE_INSIDE_ABSENT) {
        return DPE_OK;
    }
    DPE_SCOPED(dpe_inside_close_scoped) hid_t group = -1;
    DPE_TRY(dpe_hdf5_open(table, path, &group, err));
    if (H5Iget_type(group) != H5I_GROUP) { /* a dataset has no members */
        return DPE_OK;
    }
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings found = {0};
    const herr_t ended = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, &found);
    if (ended != 0) {
        return ended > 0 ? dpe_fail(err, DPE_NO_MEMORY, "%s: %s: no memory for its names",
                                    table->path, path)
                         : dpe_hdf5_fail(err, DPE_BAD_DATA, table, path, "cannot be read");
    }
    *names = found.at;
    *n = found.n;
    found = (struct dpe_strings){0};
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- strings */

/* Copies of strings that HDF5 allocated (which may be NULL: the empty one). */
static char **copy_strings(char *const *from, size_t n)
{
    char **strings = dpe_alloc_zero(n, sizeof *strings);
    for (size_t i = 0; strings != NULL && i < n; i++) {
        strings[i] = dpe_join(from[i] == NULL ? "" : from[i], "", "");
        if (strings[i] == NULL) {
            dpe_strings_free(strings, i);
            return NULL;
        }
    }
    return strings;
}

/* What strings may still take: together no more than their file, in which each has its own bytes.
 * One that a thousand elements refer to could otherwise fill the memory. The blocks are kept in a
 * list: after a read that fails HDF5 no longer knows all of them. */
struct block {
    struct block *next;
    max_align_t bytes[];
};
struct budget {
    hsize_t left;
    bool spent;
    struct block *blocks;
};

static void *budget_alloc(size_t n, void *user)
{
    struct budget *budget = user;
    budget->spent = budget->spent || n > budget->left;
    budget->left -= budget->spent ? 0 : n;
    struct block *block = budget->spent ? NULL : malloc(sizeof *block + n);
    if (block == NULL) {
        return NULL;
    }
    block->next = budget->blocks;
    budget->blocks = block;
    return block->bytes;
}

/* All at once, by free_blocks. */
static void budget_free(void *bytes, void *user)
{
    (void)bytes;
    (void)user;
}

static void free_blocks(struct budget *budget)
{
    while (budget->blocks != NULL) {
        struct block *next = budget->blocks->next;
        free(budget->blocks);
        budget->blocks = next;
    }
}

/* The transfer of strings within a budget; negative without memory. */
static hid_t within_budget(const struct dpe_h5 *table, struct budget *budget)
{
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    return dpe_inside_keep(transfer, transfer >= 0 &&
                                         H5Fget_filesize(table->file, &budget->left) >= 0 &&
                                         H5Pset_vlen_mem_manager(transfer, budget_alloc, budget,
                                                                 budget_free, budget) >= 0);
}

/* The elements into raw [n], and from there. */
static dpe_status copy_elements(struct dpe_h5 *table, hid_t dataset, const char *path, char **raw,
                                size_t n, char ***strings, struct dpe_error *err)
{
    DPE_SCOPED(free_blocks) struct budget budget = {0};
    hid_t type = dpe_hdf5_type(DPE_COL_STRING);
    DPE_SCOPED(dpe_inside_close_scoped) hid_t transfer = within_budget(table, &budget);
    if (type < 0 || transfer < 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: %s: out of memory", table->path, path);
    }
    enum dpe_inside found =
        n > 0 ? dpe_inside_read(dataset, type, transfer, raw) : DPE_INSIDE_THERE;
    if (budget.spent) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: its strings are longer than the file",
                        table->path, path);
    }
    DPE_TRY(read_status(table, path, "", found, err));
    *strings = copy_strings(raw, n);
    return DPE_MADE(*strings, err, "%s: %s: out of memory", table->path, path);
}

static dpe_status read_strings(struct dpe_h5 *table, hid_t dataset, const char *path,
                               char ***strings, size_t *n, struct dpe_error *err)
{
    struct shape shape = {0};
    DPE_TRY(read_shape(table, dataset, path, sizeof(char *), &shape, err));
    DPE_OWNED char **raw = NULL;
    DPE_TRY(DPE_NEW(&raw, shape.n, err, "%s: %s: out of memory", table->path, path));
    DPE_TRY(copy_elements(table, dataset, path, raw, shape.n, strings, err));
    *n = shape.n;
    return DPE_OK;
}

dpe_status dpe_h5_get_strings(struct dpe_h5 *table, const char *path, char ***strings, size_t *n,
                              struct dpe_error *err)
{
    dpe_inside_listen();
    DPE_SCOPED(dpe_inside_close_scoped) hid_t dataset = -1;
    DPE_TRY(dpe_hdf5_open_dataset(table, path, &dataset, err));
    DPE_SCOPED(dpe_inside_close_scoped) hid_t stored = H5Dget_type(dataset);
    return stored >= 0 && H5Tis_variable_str(stored) > 0
               ? read_strings(table, dataset, path, strings, n, err)
               : dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected strings", table->path, path);
}

void dpe_strings_free(char **strings, size_t n)
{
    for (size_t i = 0; strings != NULL && i < n; i++) {
        free(strings[i]);
    }
    free(strings);
}

void dpe_strings_drop(struct dpe_strings *strings)
{
    dpe_strings_free(strings->at, strings->n);
    *strings = (struct dpe_strings){0};
}

/* ----------------------------------------------------------------------------------- attributes */

dpe_status dpe_h5_get_attr_text(struct dpe_h5 *table, const char *object, const char *name,
                                char **value, struct dpe_error *err)
{
    dpe_inside_listen();
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = -1;
    DPE_TRY(dpe_hdf5_open(table, object, &id, err));
    return read_status(table, object, name, dpe_inside_string(id, name, value), err);
}

dpe_status dpe_h5_check_hash(struct dpe_h5 *table, const char *object, const char *name,
                             const char *hex, const char *message, struct dpe_error *err)
{
    DPE_OWNED char *stated = NULL;
    DPE_TRY(dpe_h5_get_attr_text(table, object, name, &stated, err));
    return strcmp(hex, stated) == 0 ? DPE_OK : dpe_fail(err, DPE_BAD_DATA, "%s", message);
}

dpe_status dpe_h5_get_attr_i64(struct dpe_h5 *table, const char *object, const char *name,
                               int64_t *value, struct dpe_error *err)
{
    dpe_inside_listen();
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = -1;
    DPE_TRY(dpe_hdf5_open(table, object, &id, err));
    return read_status(table, object, name, dpe_inside_whole(id, name, value), err);
}

/* A table that HDF5 has open, without HDF5's own output: its messages become part of ours. The
 * bytes of a new one: the file is made in memory (HDF5's core driver). HDF5 itself never touches
 * the disk, so a full disk or a kill meets our own write, sync and rename, whose every return is
 * seen, and never a half-flushed cache. And tables without a checksum, which a child reads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/bytes.h"
#include "engine/system/child.h"
#include "engine/system/platform.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/h5_internal.h"
#include "outputs/storage/storage.h"
#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"

dpe_status dpe_hdf5_fail(struct dpe_error *err, dpe_status status, const struct dpe_h5 *table,
                         const char *object, const char *what)
{
    const char *words = dpe_inside_words();
    status = dpe_inside_no_memory() ? DPE_NO_MEMORY : status;
    return dpe_fail(err, status, "%s: %s: %s%s%s%s", table->path, object, what,
                    words[0] == '\0' ? "" : " (", words, words[0] == '\0' ? "" : ")");
}

hid_t dpe_hdf5_type(enum dpe_column_type type)
{
    const hid_t numbers[] = {
        [DPE_COL_F64] = H5T_NATIVE_DOUBLE, [DPE_COL_F32] = H5T_NATIVE_FLOAT,
        [DPE_COL_I64] = H5T_NATIVE_INT64,  [DPE_COL_I32] = H5T_NATIVE_INT32,
        [DPE_COL_U64] = H5T_NATIVE_UINT64, [DPE_COL_U16] = H5T_NATIVE_UINT16,
        [DPE_COL_U8] = H5T_NATIVE_UINT8,
    };
    if (type != DPE_COL_STRING) {
        return numbers[type];
    }
    static hid_t text = -1;
    if (text < 0) {
        hid_t made = H5Tcopy(H5T_C_S1);
        text = dpe_inside_keep(made, made >= 0 && H5Tset_size(made, H5T_VARIABLE) >= 0 &&
                                         H5Tset_cset(made, H5T_CSET_UTF8) >= 0);
    }
    return text;
}

size_t dpe_hdf5_size(enum dpe_column_type type)
{
    static const size_t sizes[] = {
        [DPE_COL_F64] = 8, [DPE_COL_F32] = 4, [DPE_COL_I64] = 8, [DPE_COL_I32] = 4,
        [DPE_COL_U64] = 8, [DPE_COL_U16] = 2, [DPE_COL_U8] = 1,  [DPE_COL_STRING] = sizeof(char *),
    };
    return sizes[type];
}

hid_t dpe_hdf5_timeless(hid_t class_id)
{
    hid_t plist = H5Pcreate(class_id);
    return dpe_inside_keep(plist, plist >= 0 && H5Pset_obj_track_times(plist, false) >= 0);
}

dpe_status dpe_hdf5_open(const struct dpe_h5 *table, const char *path, hid_t *object,
                         struct dpe_error *err)
{
    enum dpe_inside found = DPE_INSIDE_UNKNOWN;
    *object = dpe_inside_open(table->file, path, &found);
    if (*object >= 0) {
        return DPE_OK;
    }
    return dpe_hdf5_fail(err, DPE_BAD_DATA, table, path, dpe_inside_text(found));
}

dpe_status dpe_hdf5_open_dataset(const struct dpe_h5 *table, const char *path, hid_t *dataset,
                                 struct dpe_error *err)
{
    DPE_TRY(dpe_hdf5_open(table, path, dataset, err));
    if (H5Iget_type(*dataset) != H5I_DATASET) {
        dpe_inside_close(*dataset);
        *dataset = -1;
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected a dataset, found a group", table->path,
                        path);
    }
    return DPE_OK;
}

void dpe_h5_close(struct dpe_h5 *table)
{
    if (table == NULL) {
        return;
    }
    dpe_inside_listen();
    if (table->file >= 0) {
        H5Fclose(table->file);
    }
    free(table->image.bytes);
    free(table->path);
    free(table);
}

/* Where a disk failed HDF5 cannot close, and would print that when the process ends. All that
 * matters is closed by then. */
__attribute__((constructor)) static void close_nothing_at_exit(void)
{
    H5dont_atexit();
}

/* ----------------------------------------------------------------------------- bytes in memory */

enum { CORE_STEP = 1 << 20 };

/* The memory of the core driver. Its buffer is kept when the file is closed: only then is it the
 * finished file (H5Fget_file_image of an open one leaves a stale checksum in the superblock). */
static void *image_malloc(size_t n, H5FD_file_image_op_t op, void *user)
{
    (void)op;
    struct dpe_h5_image *image = user;
    image->bytes = malloc(n);
    image->n = image->bytes == NULL ? 0 : n;
    return image->bytes;
}

static void *image_realloc(void *bytes, size_t n, H5FD_file_image_op_t op, void *user)
{
    (void)op;
    struct dpe_h5_image *image = user;
    void *grown = realloc(bytes, n);
    if (grown != NULL) {
        image->bytes = grown;
        image->n = n;
    }
    return grown;
}

static herr_t image_free(void *bytes, H5FD_file_image_op_t op, void *user)
{
    (void)bytes;
    (void)op;
    (void)user;
    return 0;
}

static void *same_user(void *user)
{
    return user;
}

static herr_t keep_user(void *user)
{
    (void)user;
    return 0;
}

static hid_t memory_access(struct dpe_h5_image *image)
{
    H5FD_file_image_callbacks_t callbacks = {
        .image_malloc = image_malloc,
        .image_realloc = image_realloc,
        .image_free = image_free,
        .udata_copy = same_user,
        .udata_free = keep_user,
        .udata = image,
    };
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    bool ok = access >= 0 && H5Pset_fapl_core(access, CORE_STEP, false) >= 0 &&
              H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
              H5Pset_file_image_callbacks(access, &callbacks) >= 0;
    return dpe_inside_keep(access, ok);
}

dpe_status dpe_h5_create(struct dpe_h5 **table, struct dpe_error *err)
{
    dpe_inside_listen();
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "out of memory for a table"));
    made->file = -1;
    made->path = dpe_join("(new table)", "", "");
    DPE_TRY(DPE_MADE(made->path, err, "out of memory for a table"));
    DPE_SCOPED(dpe_inside_close_scoped) hid_t access = memory_access(&made->image);
    DPE_SCOPED(dpe_inside_close_scoped) hid_t create = dpe_hdf5_timeless(H5P_FILE_CREATE);
    if (access >= 0 && create >= 0) {
        made->file = H5Fcreate("dpe-table-in-memory", H5F_ACC_TRUNC, create, access);
    }
    if (made->file < 0) {
        return dpe_hdf5_fail(err, DPE_NO_MEMORY, made, "/", "cannot be created");
    }
    *table = made;
    made = NULL;
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------ finishing */

/* Close the file in memory; its length is in its superblock (version 2: signature 8,
 * versions and sizes 3, flags 1, base 8, extension 8, end of file 8 at byte 28), the buffer may be
 * longer. */
static dpe_status close_image(struct dpe_h5 *table, size_t *n, struct dpe_error *err)
{
    enum { VERSION_AT = 8, END_AT = 28, SUPERBLOCK = 48 };
    herr_t closed = H5Fclose(table->file);
    table->file = -1;
    if (closed < 0) {
        return dpe_hdf5_fail(err, DPE_INTERNAL, table, "/", "cannot be closed");
    }
    const unsigned char *bytes = (const unsigned char *)table->image.bytes;
    uint64_t end = 0;
    if (table->image.n >= SUPERBLOCK && bytes[VERSION_AT] == 2) {
        end = dpe_load_u64(bytes + END_AT, 8);
    }
    if (end < SUPERBLOCK || end > table->image.n) {
        return dpe_fail(err, DPE_INTERNAL, "%s: its end is not within the %zu bytes written",
                        table->path, table->image.n);
    }
    *n = (size_t)end;
    return DPE_OK;
}

/* The file has the length and the trailer of the bytes in memory. */
static dpe_status same_end(const char *path, const char *image, size_t n, struct dpe_error *err)
{
    unsigned char trailer[DPE_TRAILER];
    off_t at = (off_t)(n - sizeof trailer);
    struct stat info;
    DPE_SCOPED(dpe_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return dpe_fail_errno(err, errno, path, "cannot be read back");
    }
    bool same = fstat(fd, &info) == 0 && (uint64_t)info.st_size == n &&
                pread(fd, trailer, sizeof trailer, at) == DPE_TRAILER &&
                memcmp(trailer, image + at, sizeof trailer) == 0;
    return same ? DPE_OK
                : dpe_fail(err, DPE_IO, "%s: read back differs from what was written", path);
}

/* With the right trailer, opening compares the file with the checksum of the bytes in memory. What
 * is wrong with a file that was just written is the disk's. */
static dpe_status verify(const struct dpe_h5 *table, const char *path, size_t n,
                         struct dpe_error *err)
{
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *written = NULL;
    DPE_TRY(same_end(path, table->image.bytes, n, err));
    const dpe_status status = dpe_h5_open(path, &written, err);
    return status == DPE_BAD_DATA || status == DPE_NO_INPUT
               ? dpe_fail(err, DPE_IO, "%s: cannot be read back: expected what was just written",
                          path)
               : status;
}

/* Room for the trailer after the image, and the trailer. */
static dpe_status add_trailer(struct dpe_h5 *table, size_t *n, struct dpe_error *err)
{
    if (table->image.n - *n < DPE_TRAILER) {
        char *longer = realloc(table->image.bytes, *n + DPE_TRAILER);
        DPE_TRY(DPE_MADE(longer, err, "%s: out of memory", table->path));
        table->image.bytes = longer;
        table->image.n = *n + DPE_TRAILER;
    }
    unsigned char trailer[DPE_TRAILER];
    dpe_trailer_make(trailer, table->image.bytes, *n);
    memcpy(table->image.bytes + *n, trailer, sizeof trailer);
    *n += DPE_TRAILER;
    return DPE_OK;
}

dpe_status dpe_h5_finish(struct dpe_h5 *table, struct dpe_new_file *file, struct dpe_error *err)
{
    dpe_inside_listen();
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *freed = table;
    size_t n = 0;
    DPE_TRY(dpe_h5_failed(table, err));
    DPE_TRY(close_image(table, &n, err));
    DPE_TRY(add_trailer(table, &n, err));
    DPE_TRY(dpe_new_file_write(file, table->image.bytes, n, err));
    return verify(table, file->path, n, err);
}

/* ------------------------------------------------ tables without a checksum, in a child process */

/* The parent puts its process number there; a variable that was inherited from elsewhere, or set by
 * a user, does not match. */
static const char variable[] = "DPE_UNCHECKED_PARENT";

bool dpe_h5_is_unchecked(void)
{
    const char *value = getenv(variable);
    char parent[32];
    snprintf(parent, sizeof parent, "%ld", (long)getppid());
    return value != NULL && strcmp(value, parent) == 0;
}

static bool has_checksum(const char *path)
{
    char words[DPE_TRAILER_WORDS];
    DPE_SCOPED(dpe_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && dpe_trailer_check(fd, words) == DPE_TRAILER_WHOLE;
}

/* The child crashed: name the tables that may be the reason. */
static dpe_status crashed(const char *const *paths, size_t n, const char *why,
                          struct dpe_error *err)
{
    const char *first = NULL;
    size_t more = 0;
    for (size_t i = 0; i < n; i++) {
        if (!has_checksum(paths[i])) {
            more += first != NULL;
            first = first != NULL ? first : paths[i];
        }
    }
    char others[64] = "";
    if (more > 0) {
        snprintf(others, sizeof others, " (or one of %zu more without a checksum)", more);
    }
    return first == NULL ? dpe_fail(err, DPE_INTERNAL, "%s", why)
                         : dpe_fail(err, DPE_BAD_DATA,
                                    "%s%s: is damaged: the process that read it crashed: %s", first,
                                    others, why);
}

dpe_status dpe_h5_unchecked_run(char *const *argv, const char *const *paths, size_t n, int *code,
                                struct dpe_error *err)
{
    char program[4096];
    char parent[32];
    if (!dpe_program_path(program, sizeof program)) {
        return dpe_fail_errno(err, errno, argv[0], "the program cannot be found");
    }
    size_t n_args = 1;
    while (argv[n_args - 1] != NULL) {
        n_args++;
    }
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    DPE_OWNED char **copy =
        setenv(variable, parent, 1) == 0 ? dpe_alloc(n_args, sizeof *copy) : NULL;
    DPE_TRY(DPE_MADE(copy, err, "out of memory for a child process"));
    memcpy(copy, argv, n_args * sizeof *copy);
    copy[0] = program;
    struct dpe_error why = {0};
    dpe_child_forward_signals();
    dpe_status status = dpe_child_run(copy, false, code, &why);
    if (status == DPE_INTERNAL) {
        return crashed(paths, n, why.text, err);
    }
    return status == DPE_OK ? status : dpe_fail(err, status, "%s", why.text);
}

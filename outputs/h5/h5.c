/* HDF5 without its own output: its messages become part of ours. */
#include "outputs/h5/h5_internal.h"
#include "outputs/storage/storage.h"
#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"

#include <stdlib.h>
#include <string.h>

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
    switch (type) {
    case DPE_COL_F64:
        return H5T_NATIVE_DOUBLE;
    case DPE_COL_F32:
        return H5T_NATIVE_FLOAT;
    case DPE_COL_I64:
        return H5T_NATIVE_INT64;
    case DPE_COL_I32:
        return H5T_NATIVE_INT32;
    case DPE_COL_U64:
        return H5T_NATIVE_UINT64;
    case DPE_COL_U16:
        return H5T_NATIVE_UINT16;
    case DPE_COL_U8:
        return H5T_NATIVE_UINT8;
    case DPE_COL_STRING:
        break;
    }
    hid_t text = H5Tcopy(H5T_C_S1);
    if (text >= 0 &&
        (H5Tset_size(text, H5T_VARIABLE) < 0 || H5Tset_cset(text, H5T_CSET_UTF8) < 0)) {
        H5Tclose(text);
        return -1;
    }
    return text;
}

size_t dpe_hdf5_size(enum dpe_column_type type)
{
    switch (type) {
    case DPE_COL_F64:
    case DPE_COL_I64:
    case DPE_COL_U64:
        return 8;
    case DPE_COL_F32:
    case DPE_COL_I32:
        return 4;
    case DPE_COL_U16:
        return 2;
    case DPE_COL_U8:
        return 1;
    case DPE_COL_STRING:
        break;
    }
    return sizeof(char *);
}

void dpe_hdf5_close_type(enum dpe_column_type type, hid_t id)
{
    if (type == DPE_COL_STRING && id >= 0) {
        H5Tclose(id);
    }
}

hid_t dpe_hdf5_timeless(hid_t class_id)
{
    hid_t plist = H5Pcreate(class_id);
    if (plist >= 0 && H5Pset_obj_track_times(plist, false) < 0) {
        H5Pclose(plist);
        return -1;
    }
    return plist;
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
        H5Oclose(*dataset);
        *dataset = -1;
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected a dataset, found a group", table->path,
                        path);
    }
    return DPE_OK;
}

uint32_t dpe_hdf5_crc(enum dpe_column_type type, const void *data, size_t n)
{
    if (type != DPE_COL_STRING) {
        return dpe_crc32c(0, data, n * dpe_hdf5_size(type));
    }
    const char *const *texts = data;
    uint32_t crc = 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = texts[i] == NULL ? "" : texts[i];
        crc = dpe_crc32c(crc, text, strlen(text) + 1);
    }
    return crc;
}

void dpe_hdf5_free(struct dpe_h5 *table)
{
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < table->n_puts; i++) {
        free(table->puts[i].path);
    }
    if (table->image != NULL) {
        free(table->image->bytes);
        free(table->image);
    }
    free(table->puts);
    free(table->path);
    free(table);
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
    dpe_hdf5_free(table);
}

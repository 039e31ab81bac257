/**
 * @file h5_internal.h
 * What the files of this room share. Outside of it only outputs/table includes hdf5.h.
 */
#ifndef DPE_H5_INTERNAL_H
#define DPE_H5_INTERNAL_H

#include <hdf5.h>
#include <hdf5_hl.h>

#include "engine/base/base.h"
#include "outputs/h5/h5.h"

/** The bytes of a file that HDF5 makes in memory; they outlive its closing. */
struct dpe_h5_image {
    char *bytes;
    size_t n;
};

struct dpe_h5 {
    hid_t file;
    struct dpe_h5_image image; /**< writing */
    char *path;                /**< of the file read; "(new table)" while writing */
    dpe_status unanswered;     /**< of the first question that dpe_h5_has could not answer */
    struct dpe_error failure;  /**< writing: the first, status DPE_OK = none */
};

/** Fail with the message of HDF5's last failure: "FILE: OBJECT: WHAT (words)". */
dpe_status dpe_hdf5_fail(struct dpe_error *err, dpe_status status, const struct dpe_h5 *table,
                         const char *object, const char *what);
/** Type in memory of a column, never closed; strings: char * in UTF-8. −1 on failure. */
hid_t dpe_hdf5_type(enum dpe_column_type type);
/** A property list for making files, groups or datasets without object times, which would differ
 *  between equal runs; −1 on failure. */
hid_t dpe_hdf5_timeless(hid_t class_id);
/** Open a group or a dataset of the table (outputs/table/inside.h). DPE_BAD_DATA when there is
 * none, and when it points to another file. Close it with H5Oclose. */
dpe_status dpe_hdf5_open(const struct dpe_h5 *table, const char *path, hid_t *object,
                         struct dpe_error *err);
/** The same, of a dataset. */
dpe_status dpe_hdf5_open_dataset(const struct dpe_h5 *table, const char *path, hid_t *dataset,
                                 struct dpe_error *err);

#endif

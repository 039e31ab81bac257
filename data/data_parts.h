/**
 * @file data_parts.h
 * What the files of this room share: PG-19's metadata.csv, encodings of text files.
 */
#ifndef DPE_DATA_PARTS_H
#define DPE_DATA_PARTS_H

#include "engine/base/base.h"

struct dpe_metadata_row {
    char *id;     /**< book_id: letters, digits, '.', '_', '-', not starting with '.' */
    char *title;  /**< short_book_title, one line; "" when the file has no such column */
    int64_t line; /**< where its record ends, from 1 */
};

struct dpe_metadata {
    struct dpe_metadata_row *rows; /**< in the file's order */
    size_t n;
};

/** Read and check the file: UTF-8 (BOM allowed), no NUL, ≤ 64 MB, fields ≤ 64 KB, at least the four
 *  published columns (or, with a header, as many as the header names, book_id among them), distinct
 *  ids that are plain names. Errors name file and line. Free with dpe_metadata_free. */
dpe_status dpe_metadata_read(const char *path, struct dpe_metadata *metadata,
                             struct dpe_error *err);
void dpe_metadata_free(struct dpe_metadata *metadata);

/** Name of the encoding when the bytes are UTF-16 or UTF-32 (by byte-order mark, or by NULs at
 *  every other place), else NULL. */
const char *dpe_textfile_wide(const char *bytes, size_t n);

/** Bytes of a UTF-8 byte-order mark at the start: 3 or 0. */
size_t dpe_textfile_bom(const char *bytes, size_t n);

#endif

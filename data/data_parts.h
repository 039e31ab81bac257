/**
 * @file data_parts.h
 * What the files of this room share: PG-19's metadata.csv, files of text.
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

/** A file of valid UTF-8 without a NUL byte; a byte-order mark is dropped. *bytes is owned and has
 *  a NUL after *n. DPE_BAD_DATA says what was found, and where; errors of dpe_read_file. */
dpe_status dpe_textfile_read(const char *path, uint64_t max_bytes, char **bytes, size_t *n,
                             struct dpe_error *err);

#endif

/**
 * @file data_parts.h
 * What the files of this room share: PG-19's metadata.csv, files of text.
 */
#ifndef DPE_DATA_PARTS_H
#define DPE_DATA_PARTS_H

#include <jansson.h>

#include "engine/base/base.h"

/** Read and check the file: UTF-8 (BOM allowed), no NUL, ≤ 64 MB, fields ≤ 64 KB, at least the four
 *  published columns (or, with a header, as many as the header names, book_id among them), distinct
 *  ids that are plain names: letters, digits, '.', '_', '-', not starting with '.'. They are the
 * keys of *ids, in the file's order; its values the lines on which their records end, from 1.
 * Errors name file and line. */
dpe_status dpe_metadata_read(const char *path, json_t **ids, struct dpe_error *err);

/** A file of valid UTF-8 without a NUL byte; a byte-order mark is dropped. *bytes is owned and has
 *  a NUL after *n. DPE_BAD_DATA says what was found, and where; errors of dpe_read_file. */
dpe_status dpe_textfile_read(const char *path, uint64_t max_bytes, char **bytes, size_t *n,
                             struct dpe_error *err);

#endif

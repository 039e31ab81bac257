/**
 * @file textfile.h
 * Text files for a corpus. Used inside data/ only.
 */
#ifndef DPE_TEXTFILE_H
#define DPE_TEXTFILE_H

#include "engine/base/base.h"

/** Name of the encoding when the bytes are UTF-16 or UTF-32 (by byte-order mark, or by NULs at
 *  every other place), else NULL. */
const char *dpe_textfile_wide(const char *bytes, size_t n);

/** Bytes of a UTF-8 byte-order mark at the start: 3 or 0. */
size_t dpe_textfile_bom(const char *bytes, size_t n);

/** Load a text: no NUL byte, BOM dropped, CRLF → LF, valid UTF-8 (each maximal invalid part →
 * U+FFFD when `replace_invalid`, as Python's errors="replace"). *bytes has a NUL after *n bytes and
 * is owned by the caller (free). Errors as dpe_read_file, and DPE_BAD_DATA naming file and offset.
 */
dpe_status dpe_textfile_load(const char *path, bool replace_invalid, char **bytes, size_t *n,
                             struct dpe_error *err);

/** "a/b" (b NULL: a copy of a), owned by the caller; NULL when memory is out. */
char *dpe_textfile_join(const char *a, const char *b);

#endif

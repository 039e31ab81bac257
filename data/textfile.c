/* Text files: encodings, line ends, words. */
#include "data/data.h"
#include "data/data_parts.h"

#include <stdlib.h>
#include <string.h>

/* The largest book of PG-19 has some 50 MB. */
static const uint64_t max_text_bytes = (uint64_t)1 << 30;

size_t dpe_textfile_bom(const char *bytes, size_t n)
{
    return n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

const char *dpe_textfile_wide(const char *bytes, size_t n)
{
    if (n >= 4 &&
        (memcmp(bytes, "\xff\xfe\0\0", 4) == 0 || memcmp(bytes, "\0\0\xfe\xff", 4) == 0)) {
        return "UTF-32";
    }
    if (n >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0)) {
        return "UTF-16";
    }
    size_t pairs = (n < 2048 ? n : 2048) / 2;
    size_t nuls[2] = {0, 0};
    for (size_t i = 0; i < 2 * pairs; i++) {
        nuls[i % 2] += bytes[i] == '\0';
    }
    bool one_side = (nuls[0] == 0) != (nuls[1] == 0);
    return pairs >= 2 && one_side && 2 * (nuls[0] + nuls[1]) > pairs ? "UTF-16" : NULL;
}

/* In place: a BOM at the start goes, CRLF becomes LF. */
static size_t normalize(char *bytes, size_t n)
{
    size_t to = 0;
    for (size_t from = dpe_textfile_bom(bytes, n); from < n; from++) {
        if (bytes[from] == '\r' && from + 1 < n && bytes[from + 1] == '\n') {
            continue;
        }
        bytes[to++] = bytes[from];
    }
    bytes[to] = '\0';
    return to;
}

dpe_status dpe_textfile_load(const char *path, char **bytes, size_t *n, struct dpe_error *err)
{
    DPE_OWNED char *read = NULL;
    size_t size = 0;
    DPE_TRY(dpe_read_file(path, max_text_bytes, &read, &size, err));
    const char *wide = dpe_textfile_wide(read, size);
    if (wide != NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected UTF-8, found %s; convert the file", path,
                        wide);
    }
    const char *nul = memchr(read, '\0', size);
    if (nul != NULL) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected text, found a NUL byte at offset %zu; the file may be "
                        "damaged: copy it again",
                        path, (size_t)(nul - read));
    }
    size_t good = dpe_utf8_check(read, size);
    if (good < size) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected UTF-8, found an invalid byte 0x%02x at offset %zu; convert "
                        "the file",
                        path, (unsigned)(unsigned char)read[good], good);
    }
    *n = normalize(read, size);
    *bytes = read;
    read = NULL;
    return DPE_OK;
}

/* Bytes of the white space character at s, 0 when it is something else. The set is Python's
 * str.isspace. */
static size_t space_at(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80) {
        return (s[0] >= 0x09 && s[0] <= 0x0d) || (s[0] >= 0x1c && s[0] <= 0x20) ? 1 : 0;
    }
    if (s[0] == 0xc2 && left >= 2) {
        return s[1] == 0x85 || s[1] == 0xa0 ? 2 : 0;
    }
    if (left < 3) {
        return 0;
    }
    unsigned code = (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    bool three = (s[0] & 0xf0) == 0xe0;
    bool space = code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
                 code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
    return three && space ? 3 : 0;
}

int64_t dpe_count_words(const char *text, size_t n)
{
    int64_t words = 0;
    bool inside = false;
    size_t at = 0;
    while (at < n) {
        size_t space = space_at((const unsigned char *)text + at, n - at);
        words += space == 0 && !inside;
        inside = space == 0;
        at += space == 0 ? 1 : space;
    }
    return words;
}

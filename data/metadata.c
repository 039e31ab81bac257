/* Files of text, checked; metadata.csv through libcsv: strict, every field bounded, every record
 * checked. */
#include "data/data.h"
#include "data/data_parts.h"

#include <csv.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t max_file_bytes = (uint64_t)64 << 20;
enum { MAX_FIELD = 65536, FIELD_STEP = 4096, PUBLISHED_COLUMNS = 4 };

/* ------------------------------------------------------------------------------- files of text */

/* The encoding of UTF-16 and UTF-32, by byte-order mark or by NULs at every other place; else NULL.
 */
static const char *find_wide(const char *bytes, size_t n)
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

dpe_status dpe_textfile_read(const char *path, uint64_t max_bytes, char **bytes, size_t *n,
                             struct dpe_error *err)
{
    DPE_OWNED char *read = NULL;
    size_t size = 0;
    DPE_TRY(dpe_read_file(path, max_bytes, &read, &size, err));
    const char *wide = find_wide(read, size);
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
    *n = dpe_text_clean(read, size, false);
    *bytes = read;
    read = NULL;
    return DPE_OK;
}

/* ------------------------------------------------------------------------------ metadata.csv */

struct reader {
    const char *path;
    int64_t line;       /* of what is parsed now, from 1 */
    struct dpe_text id; /* of the record so far */
    int n_columns;      /* of it */
    bool started;       /* the first record was seen */
    bool header;        /* that names its columns */
    int expected;       /* columns */
    int id_column;
    json_t *ids;
    dpe_status status;
    struct dpe_error *err;
};

static void *bounded_realloc(void *block, size_t size)
{
    return size > MAX_FIELD ? NULL : realloc(block, size);
}

static void on_field(void *bytes, size_t n, void *user)
{
    static const char name[] = "book_id";
    struct reader *r = user;
    if (!r->started && n == sizeof name - 1 && memcmp(bytes, name, n) == 0) {
        r->header = true;
        r->id_column = r->n_columns;
    }
    if (r->n_columns++ == r->id_column) {
        r->id.n = 0;
        dpe_text_put_bytes(&r->id, bytes, n);
    }
}

static bool plain_name(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= 100 && id[n] == '\0' && id[0] != '.';
}

static dpe_status add_record(struct reader *r)
{
    if (r->n_columns < r->expected) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "%s: line %lld: expected %d columns (book_id, short_book_title, "
                        "publication_date, url), found %d",
                        r->path, (long long)r->line, r->expected, r->n_columns);
    }
    DPE_TRY(dpe_text_done(&r->id, r->err));
    const char *id = r->id.bytes;
    if (!plain_name(id)) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "%s: line %lld: expected a book_id of letters, digits, '.', '_', '-', "
                        "found \"%.60s\"",
                        r->path, (long long)r->line, id);
    }
    const json_t *there = json_object_get(r->ids, id);
    if (there != NULL) {
        return dpe_fail(r->err, DPE_BAD_DATA, "%s: line %lld: book_id %s is already on line %lld",
                        r->path, (long long)r->line, id, (long long)json_integer_value(there));
    }
    return json_object_set_new(r->ids, id, json_integer(r->line)) == 0
               ? DPE_OK
               : dpe_fail(r->err, DPE_NO_MEMORY, "%s: no memory for its records", r->path);
}

static void on_record(int terminator, void *user)
{
    (void)terminator;
    struct reader *r = user;
    if (!r->started && r->header) {
        r->expected = r->n_columns;
    } else if (r->status == DPE_OK) {
        r->status = add_record(r);
    }
    r->started = true;
    r->n_columns = 0;
}

static dpe_status parse_failure(const struct reader *r, struct csv_parser *parser)
{
    if (csv_error(parser) == CSV_ENOMEM && csv_get_buffer_size(parser) + FIELD_STEP > MAX_FIELD) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "%s: line %lld: expected fields of at most %d bytes, found a longer one",
                        r->path, (long long)r->line, (int)MAX_FIELD);
    }
    if (csv_error(parser) == CSV_ENOMEM) {
        return dpe_fail(r->err, DPE_NO_MEMORY, "%s: no memory for a field", r->path);
    }
    return dpe_fail(
        r->err, DPE_BAD_DATA,
        "%s: line %lld: expected CSV, found a quote inside a field or one that is never closed",
        r->path, (long long)r->line);
}

/* Line by line, because libcsv does not report line numbers. */
static dpe_status parse(struct reader *r, struct csv_parser *parser, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n && r->status == DPE_OK;) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t length = end == NULL ? n - at : (size_t)(end - bytes) - at + 1;
        r->line++;
        if (csv_parse(parser, bytes + at, length, on_field, on_record, r) != length) {
            return parse_failure(r, parser);
        }
        at += length;
    }
    if (r->status == DPE_OK && csv_fini(parser, on_field, on_record, r) != 0) {
        return parse_failure(r, parser);
    }
    return r->status;
}

dpe_status dpe_metadata_read(const char *path, json_t **ids, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    json_auto_t *found = json_object();
    size_t n = 0;
    DPE_TRY(DPE_MADE(found, err, "%s: no memory for its records", path));
    DPE_TRY(dpe_textfile_read(path, max_file_bytes, &bytes, &n, err));
    struct csv_parser parser;
    if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: libcsv could not start", path);
    }
    csv_set_realloc_func(&parser, bounded_realloc);
    csv_set_blk_size(&parser, FIELD_STEP);
    struct reader reader = {.path = path, .expected = PUBLISHED_COLUMNS, .ids = found, .err = err};
    dpe_status status = parse(&reader, &parser, bytes, n);
    csv_free(&parser);
    dpe_text_free(&reader.id);
    DPE_TRY(status);
    *ids = json_incref(found);
    return DPE_OK;
}

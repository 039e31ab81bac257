/* Files of text, checked; metadata.csv through libcsv: strict, every field bounded, every record
 * checked. */
#include "data/data.h"
#include "data/data_parts.h"

#include <csv.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t max_file_bytes = (uint64_t)64 << 20;
enum { MAX_FIELD = 65536, FIELD_STEP = 4096, MAX_COLUMNS = 64, PUBLISHED_COLUMNS = 4 };

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
    int64_t line;            /* of what is parsed now, from 1 */
    struct dpe_text columns; /* the record so far: its fields, each ended by a NUL */
    int n_columns;
    bool started;                /* the first record was seen */
    int expected;                /* columns */
    int id_column, title_column; /* −1: none */
    struct dpe_metadata *out;
    dpe_status status;
    struct dpe_error *err;
};

static void *bounded_realloc(void *block, size_t size)
{
    return size > MAX_FIELD ? NULL : realloc(block, size);
}

static void on_field(void *bytes, size_t n, void *user)
{
    struct reader *r = user;
    if (r->status != DPE_OK) {
        return;
    }
    if (r->n_columns == MAX_COLUMNS) {
        r->status =
            dpe_fail(r->err, DPE_BAD_DATA, "%s: line %lld: expected at most %d columns, found more",
                     r->path, (long long)r->line, MAX_COLUMNS);
        return;
    }
    dpe_text_put_bytes(&r->columns, bytes, n);
    dpe_text_put_bytes(&r->columns, "", 1);
    r->status = dpe_text_done(&r->columns, r->err);
    r->n_columns++;
}

/* Field `index` of the record, NULL when index is −1. */
static const char *field(const struct reader *r, int index)
{
    if (index < 0) {
        return NULL;
    }
    const char *at = r->columns.bytes;
    for (int i = 0; i < index; i++) {
        at += strlen(at) + 1;
    }
    return at;
}

static bool read_header(struct reader *r)
{
    int id = -1;
    int title = -1;
    for (int i = 0; i < r->n_columns; i++) {
        const char *name = field(r, i);
        id = strcmp(name, "book_id") == 0 ? i : id;
        title = strcmp(name, "short_book_title") == 0 ? i : title;
    }
    r->expected = id < 0 ? PUBLISHED_COLUMNS : r->n_columns;
    r->id_column = id < 0 ? 0 : id;
    r->title_column = id < 0 ? 1 : title;
    return id >= 0;
}

static bool plain_name(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= 100 && id[n] == '\0' && id[0] != '.';
}

static dpe_status add_row(struct reader *r)
{
    const char *id = field(r, r->id_column);
    const char *title = field(r, r->title_column);
    if (!plain_name(id)) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "%s: line %lld: expected a book_id of letters, digits, '.', '_', '-', "
                        "found \"%.60s\"",
                        r->path, (long long)r->line, id);
    }
    struct dpe_metadata *out = r->out;
    DPE_TRY(DPE_ROOM(&out->rows, out->n, r->err, "%s: no memory for its records", r->path));
    struct dpe_metadata_row *row = &out->rows[out->n++];
    *row = (struct dpe_metadata_row){strdup(id), strdup(title == NULL ? "" : title), r->line};
    DPE_TRY(DPE_MADE(row->id, r->err, "%s: no memory for its records", r->path));
    DPE_TRY(DPE_MADE(row->title, r->err, "%s: no memory for its records", r->path));
    for (char *c = row->title; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r' || *c == '\t') {
            *c = ' ';
        }
    }
    return DPE_OK;
}

static void on_record(int terminator, void *user)
{
    (void)terminator;
    struct reader *r = user;
    if (r->status == DPE_OK && (r->started || !read_header(r))) {
        if (r->n_columns < r->expected) {
            r->status = dpe_fail(r->err, DPE_BAD_DATA,
                                 "%s: line %lld: expected %d columns (book_id, short_book_title, "
                                 "publication_date, url), found %d",
                                 r->path, (long long)r->line, r->expected, r->n_columns);
        } else {
            r->status = add_row(r);
        }
    }
    r->started = true;
    r->n_columns = 0;
    r->columns.n = 0;
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

static int by_id(const void *a, const void *b)
{
    const struct dpe_metadata_row *const *x = a;
    const struct dpe_metadata_row *const *y = b;
    int order = strcmp((*x)->id, (*y)->id);
    return order != 0 ? order : ((*x)->line > (*y)->line) - ((*x)->line < (*y)->line);
}

static dpe_status refuse_duplicates(const char *path, const struct dpe_metadata *metadata,
                                    struct dpe_error *err)
{
    DPE_OWNED const struct dpe_metadata_row **sorted = NULL;
    DPE_TRY(DPE_NEW(&sorted, metadata->n, err, "%s: no memory for its records", path));
    for (size_t i = 0; i < metadata->n; i++) {
        sorted[i] = &metadata->rows[i];
    }
    qsort(sorted, metadata->n, sizeof sorted[0], by_id);
    for (size_t i = 1; i < metadata->n; i++) {
        if (strcmp(sorted[i]->id, sorted[i - 1]->id) == 0) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: line %lld: book_id %s is already on line %lld",
                            path, (long long)sorted[i]->line, sorted[i]->id,
                            (long long)sorted[i - 1]->line);
        }
    }
    return DPE_OK;
}

dpe_status dpe_metadata_read(const char *path, struct dpe_metadata *metadata, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    DPE_TRY(dpe_textfile_read(path, max_file_bytes, &bytes, &n, err));
    struct csv_parser parser;
    if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: libcsv could not start", path);
    }
    csv_set_realloc_func(&parser, bounded_realloc);
    csv_set_blk_size(&parser, FIELD_STEP);
    DPE_SCOPED(dpe_metadata_free) struct dpe_metadata found = {0};
    struct reader reader = {.path = path, .out = &found, .err = err};
    dpe_status status = parse(&reader, &parser, bytes, n);
    csv_free(&parser);
    dpe_text_free(&reader.columns);
    DPE_TRY(status);
    DPE_TRY(refuse_duplicates(path, &found, err));
    *metadata = found;
    found = (struct dpe_metadata){0};
    return DPE_OK;
}

void dpe_metadata_free(struct dpe_metadata *metadata)
{
    for (size_t i = 0; i < metadata->n; i++) {
        free(metadata->rows[i].id);
        free(metadata->rows[i].title);
    }
    free(metadata->rows);
    *metadata = (struct dpe_metadata){0};
}

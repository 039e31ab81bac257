/* Corpora: which files are books, in which order; loaded, checked, hashed. metadata.csv through
 * libcsv: strict, every field bounded, every record checked. */
#include "data/data.h"

#include <csv.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/bytes.h"
#include "engine/system/folder.h"
#include "engine/text/unicode.h"

/* The largest book of PG-19 has some 50 MB. */
static const uint64_t max_text_bytes = (uint64_t)1 << 30;
static const uint64_t max_metadata_bytes = (uint64_t)64 << 20;
enum { MAX_FIELD = 65536, FIELD_STEP = 4096, PUBLISHED_COLUMNS = 4 };

size_t dpe_text_clean(char *bytes, size_t n, bool lines)
{
    size_t to = 0;
    for (size_t from = n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; from < n; from++) {
        if (lines && bytes[from] == '\r' && from + 1 < n && bytes[from + 1] == '\n') {
            continue;
        }
        bytes[to++] = bytes[from];
    }
    bytes[to] = '\0';
    return to;
}

int64_t dpe_count_words(const char *text, size_t n)
{
    int64_t words = 0;
    bool inside = false;
    size_t size = 0;
    for (const char *s = text; s < text + n; s += size) {
        bool space = dpe_unicode_blank(dpe_utf8_next(s, &size));
        words += !space && !inside;
        inside = !space;
    }
    return words;
}

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

/* A file of valid UTF-8 without a NUL byte; a byte-order mark is dropped. *bytes is owned and has
 * a NUL after *n. DPE_BAD_DATA says what was found, and where; errors of dpe_read_file. */
static dpe_status read_text(const char *path, uint64_t max_bytes, char **bytes, size_t *n,
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

/* Read and check the file: UTF-8 (BOM allowed), no NUL, ≤ 64 MB, fields ≤ 64 KB, at least the four
 * published columns (or, with a header, as many as the header names, book_id among them), distinct
 * ids that are plain names: letters, digits, '.', '_', '-', not starting with '.'. They are the
 * keys of *ids, in the file's order; its values the lines on which their records end, from 1.
 * Errors name file and line. */
static dpe_status read_metadata(const char *path, json_t **ids, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    json_auto_t *found = json_object();
    size_t n = 0;
    DPE_TRY(DPE_MADE(found, err, "%s: no memory for its records", path));
    DPE_TRY(read_text(path, max_metadata_bytes, &bytes, &n, err));
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

/* --------------------------------------------------------------------------------------- books */

/* Of several splits together. */
static const uint64_t MOST_BYTES = UINT64_C(2) << 30;

static dpe_status made(const void *p, const char *path, struct dpe_error *err)
{
    return DPE_MADE(p, err, "%s: no memory for the list of books", path);
}

/* Load one text and append it; `id` is copied. */
static dpe_status add_book(struct dpe_corpus *corpus, const char *id, const char *file,
                           struct dpe_error *err)
{
    DPE_TRY(DPE_ROOM(&corpus->books, corpus->n, err, "%s: no memory for the list of books",
                     corpus->path));
    DPE_OWNED char *text = NULL;
    size_t n = 0;
    DPE_TRY(read_text(file, max_text_bytes, &text, &n, err));
    n = dpe_text_clean(text, n, true);
    int64_t n_words = dpe_count_words(text, n);
    if (n_words == 0) {
        corpus->n_empty++;
        corpus->empty = corpus->empty != NULL ? corpus->empty : strdup(file);
        return made(corpus->empty, corpus->path, err);
    }
    DPE_OWNED char *own_id = strdup(id);
    DPE_TRY(made(own_id, corpus->path, err));
    corpus->books[corpus->n++] = (struct dpe_book){own_id, text, n, n_words};
    corpus->bytes += n;
    text = own_id = NULL;
    return DPE_OK;
}

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 || errno != ENOENT;
}

static const char *const splits[] = {"test", "validation", "train"};
enum { SPLITS = sizeof splits / sizeof splits[0] };

/* The folder that is a split, or those of all that are there. */
struct folders {
    char *path[SPLITS];
    int n;
};

static void free_folders(struct folders *folders)
{
    for (int i = 0; i < folders->n; i++) {
        free(folders->path[i]);
    }
}

static dpe_status find_folders(const struct dpe_corpus *corpus, bool split, struct folders *folders,
                               struct dpe_error *err)
{
    for (int i = 0; i < (split ? 1 : SPLITS); i++) {
        DPE_OWNED char *path =
            split ? strdup(corpus->path) : dpe_folder_join(corpus->path, splits[i]);
        DPE_TRY(made(path, corpus->path, err));
        if (dpe_is_folder(path)) {
            folders->path[folders->n++] = path;
            path = NULL;
        }
    }
    return folders->n > 0
               ? DPE_OK
               : dpe_fail(err, DPE_NO_INPUT,
                          "%s: expected a folder test, validation or train of <book_id>.txt "
                          "beside metadata.csv, found none",
                          corpus->path);
}

/* The text of a row of metadata.csv, owned; "" when none of the folders has it: rows are also of
 * other splits. NULL: no memory. */
static char *find_text(const struct folders *folders, const char *id)
{
    char name[128];
    snprintf(name, sizeof name, "%s.txt", id);
    for (int i = 0; i < folders->n; i++) {
        char *file = dpe_folder_join(folders->path[i], name);
        if (file == NULL || exists(file)) {
            return file;
        }
        free(file);
    }
    return strdup("");
}

/* Add the book of one row of metadata.csv if its text is there. Of several splits the books are not
 * more than fit into memory: PG-19 as a whole has 11 GB. */
static dpe_status add_listed(struct dpe_corpus *corpus, const struct folders *folders,
                             const char *id, struct dpe_error *err)
{
    DPE_OWNED char *file = find_text(folders, id);
    DPE_TRY(made(file, corpus->path, err));
    if (file[0] != '\0') {
        DPE_TRY(add_book(corpus, id, file, err));
    }
    return folders->n < 2 || corpus->bytes <= MOST_BYTES
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "%s: all its splits together are more than %d GiB of text; choose one: "
                          "--corpus %s/test",
                          corpus->path, (int)(MOST_BYTES >> 30), corpus->path);
}

static dpe_status open_pg19(struct dpe_corpus *corpus, const char *csv, bool split,
                            struct dpe_error *err)
{
    json_auto_t *ids = NULL;
    DPE_SCOPED(free_folders) struct folders folders = {.n = 0};
    const char *id = NULL;
    json_t *line = NULL;
    DPE_TRY(read_metadata(csv, &ids, err));
    DPE_TRY(find_folders(corpus, split, &folders, err));
    json_object_foreach(ids, id, line)
    {
        DPE_TRY(add_listed(corpus, &folders, id, err));
    }
    return corpus->n + corpus->n_empty > 0
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected texts of the %zu books that %s lists, found none",
                          folders.n == 1 ? folders.path[0] : corpus->path, json_object_size(ids),
                          csv);
}

static int is_text(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return entry->d_name[0] != '.' && n > 4 && strcmp(entry->d_name + n - 4, ".txt") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The file's name without folder and .txt as id; it ends up in tables, so it must be UTF-8. */
static dpe_status add_file(struct dpe_corpus *corpus, const char *file, struct dpe_error *err)
{
    DPE_OWNED char *id = strdup(dpe_last_part(file));
    DPE_TRY(made(id, corpus->path, err));
    size_t n = strlen(id);
    if (!dpe_is_utf8(id)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a file name in UTF-8; rename it", file);
    }
    if (n > 4 && strcmp(id + n - 4, ".txt") == 0) {
        id[n - 4] = '\0';
    }
    return add_book(corpus, id, file, err);
}

static dpe_status open_folder(struct dpe_corpus *corpus, struct dpe_error *err)
{
    DPE_OWNED struct dirent **entries = NULL;
    int n = scandir(corpus->path, &entries, is_text, by_name);
    if (n < 0) {
        dpe_status status = errno == EACCES   ? DPE_PERMISSION
                            : errno == ENOMEM ? DPE_NO_MEMORY
                                              : DPE_NO_INPUT;
        return dpe_fail(err, status, "%s: the folder cannot be read: %s", corpus->path,
                        strerror(errno));
    }
    if (n == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected metadata.csv or .txt files, found none",
                        corpus->path);
    }
    dpe_status status = DPE_OK;
    for (int i = 0; i < n; i++) {
        DPE_OWNED struct dirent *entry = entries[i];
        DPE_OWNED char *file = dpe_folder_join(corpus->path, entry->d_name);
        status = status == DPE_OK ? made(file, corpus->path, err) : status;
        status = status == DPE_OK ? add_file(corpus, file, err) : status;
    }
    return status;
}

static dpe_status hash_books(struct dpe_corpus *corpus, struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    for (size_t i = 0; i < corpus->n; i++) {
        const struct dpe_book *book = &corpus->books[i];
        unsigned char size[8];
        dpe_store_u64(size, book->n, sizeof size);
        /* The NUL and the size keep "ab" + "c" apart from "a" + "bc". */
        dpe_sha256_text(hash, book->id);
        dpe_sha256_add(hash, size, sizeof size);
        dpe_sha256_add(hash, book->text, book->n);
    }
    return dpe_sha256_finish(hash, corpus->fingerprint, err);
}

/* Where metadata.csv of the texts would be: in the folder, or beside it where its name is a
 * split's. Owned; NULL: no memory. */
static char *place_csv(const struct dpe_corpus *corpus, bool *split)
{
    int n = 0;
    const char *name = dpe_folder_name(corpus->path, &n);
    char *csv = dpe_folder_join(corpus->path, "metadata.csv");
    bool named = false;
    for (int i = 0; i < SPLITS; i++) {
        named = named || (strncmp(name, splits[i], (size_t)n) == 0 && splits[i][n] == '\0');
    }
    *split = named && csv != NULL && !exists(csv);
    if (*split) {
        free(csv);
        csv = dpe_folder_join(corpus->path, "../metadata.csv");
        *split = csv != NULL && exists(csv);
    }
    return csv;
}

static dpe_status open_any(struct dpe_corpus *corpus, struct dpe_error *err)
{
    bool split = false;
    DPE_OWNED char *csv = place_csv(corpus, &split);
    DPE_TRY(made(csv, corpus->path, err));
    bool folder = dpe_is_folder(corpus->path);
    if (folder && exists(csv)) {
        return open_pg19(corpus, csv, split, err);
    }
    return folder ? open_folder(corpus, err) : add_file(corpus, corpus->path, err);
}

dpe_status dpe_corpus_open(const char *path, struct dpe_corpus **corpus, struct dpe_error *err)
{
    DPE_SCOPED(dpe_corpus_close_scoped)
    struct dpe_corpus *opened = dpe_alloc_zero(1, sizeof *opened);
    DPE_TRY(made(opened, path, err));
    opened->path = strdup(path);
    DPE_TRY(made(opened->path, path, err));
    DPE_TRY(open_any(opened, err));
    if (opened->n == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a text, found no words", opened->empty);
    }
    DPE_TRY(hash_books(opened, err));
    *corpus = opened;
    opened = NULL;
    return DPE_OK;
}

void dpe_corpus_close(struct dpe_corpus *corpus)
{
    if (corpus == NULL) {
        return;
    }
    for (size_t i = 0; i < corpus->n; i++) {
        free(corpus->books[i].id);
        free(corpus->books[i].text);
    }
    free(corpus->books);
    free(corpus->empty);
    free(corpus->path);
    free(corpus);
}

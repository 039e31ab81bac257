/* JSON lines: an index of the lines of a file, and the fields of one line. */
#include "eval/score/jsonl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/text/json.h"

enum { BLOCK = 1 << 20 };
static const uint64_t max_line = UINT64_C(256) << 20;

struct line {
    uint64_t offset, n;
    int64_t number;
};

struct dpe_jsonl {
    char *path;
    int fd;
    struct line *lines;
    size_t n;
};

/* ----------------------------------------------------------------------------------- the file */

static dpe_status add_line(struct dpe_jsonl *jsonl, struct line line, struct dpe_error *err)
{
    DPE_TRY(DPE_ROOM(&jsonl->lines, jsonl->n, err, "%s: no memory for its lines", jsonl->path));
    jsonl->lines[jsonl->n++] = line;
    return DPE_OK;
}

/* The state of indexing a file. */
struct place {
    struct line line;
    bool blank;
};

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ' && (s[i] < '\t' || s[i] > '\r')) {
            return false;
        }
    }
    return true;
}

static dpe_status index_block(struct dpe_jsonl *jsonl, const char *block, size_t n,
                              struct place *place, struct dpe_error *err)
{
    const char *at = block;
    const char *end = block + n;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop == NULL ? end : stop) - at);
        place->blank = place->blank && is_blank(at, size);
        place->line.n += size;
        at += size;
        if (stop != NULL) {
            if (!place->blank) {
                DPE_TRY(add_line(jsonl, place->line, err));
            }
            place->line =
                (struct line){place->line.offset + place->line.n + 1, 0, place->line.number + 1};
            place->blank = true;
            at++;
        }
    }
    return DPE_OK;
}

static dpe_status index_file(struct dpe_jsonl *jsonl, struct dpe_error *err)
{
    DPE_OWNED char *block = NULL;
    struct place place = {.line = {.number = 1}, .blank = true};
    DPE_TRY(DPE_NEW(&block, BLOCK, err, "%s: no memory for its lines", jsonl->path));
    for (ssize_t n = 1; n != 0;) {
        n = read(jsonl->fd, block, BLOCK);
        if (n < 0 && errno != EINTR) {
            return dpe_fail(err, DPE_IO, "%s: %s", jsonl->path, strerror(errno));
        }
        if (n > 0) {
            DPE_TRY(index_block(jsonl, block, (size_t)n, &place, err));
        }
    }
    return place.blank ? DPE_OK : add_line(jsonl, place.line, err);
}

dpe_status dpe_jsonl_open(const char *path, struct dpe_jsonl **jsonl, struct dpe_error *err)
{
    DPE_SCOPED(dpe_jsonl_close_scoped) struct dpe_jsonl *opened = NULL;
    uint64_t size = 0;
    DPE_TRY(DPE_NEW(&opened, 1, err, "%s: no memory for its lines", path));
    opened->fd = -1;
    DPE_TRY(dpe_open_regular(path, &opened->fd, &size, err));
    opened->path = strdup(path);
    DPE_TRY(DPE_MADE(opened->path, err, "%s: no memory for its lines", path));
    DPE_TRY(index_file(opened, err));
    *jsonl = opened;
    opened = NULL;
    return DPE_OK;
}

void dpe_jsonl_close(struct dpe_jsonl *jsonl)
{
    if (jsonl == NULL) {
        return;
    }
    if (jsonl->fd >= 0) {
        close(jsonl->fd);
    }
    free(jsonl->lines);
    free(jsonl->path);
    free(jsonl);
}

int64_t dpe_jsonl_size(const struct dpe_jsonl *jsonl)
{
    return (int64_t)jsonl->n;
}

int64_t dpe_jsonl_number(const struct dpe_jsonl *jsonl, int64_t i)
{
    return jsonl->lines[i].number;
}

const char *dpe_jsonl_path(const struct dpe_jsonl *jsonl)
{
    return jsonl->path;
}

static dpe_status make_room(struct dpe_text *text, size_t n, const char *path,
                            struct dpe_error *err)
{
    if (text->capacity <= n) {
        char *bytes = realloc(text->bytes, n + 1);
        DPE_TRY(DPE_MADE(bytes, err, "%s: no memory for its lines", path));
        text->bytes = bytes;
        text->capacity = n + 1;
    }
    return DPE_OK;
}

dpe_status dpe_jsonl_read(const struct dpe_jsonl *jsonl, int64_t i, struct dpe_text *text,
                          struct dpe_error *err)
{
    const struct line *line = jsonl->lines + i;
    if (line->n > max_line) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: line %lld: expected at most %llu bytes, found %llu",
                        jsonl->path, (long long)line->number, (unsigned long long)max_line,
                        (unsigned long long)line->n);
    }
    size_t n = (size_t)line->n;
    DPE_TRY(make_room(text, n, jsonl->path, err));
    if (dpe_read_at(jsonl->fd, text->bytes, n, line->offset) != n) {
        return dpe_fail(err, DPE_IO, "%s: line %lld: %s", jsonl->path, (long long)line->number,
                        errno != 0 ? strerror(errno) : "the file became shorter while it was read");
    }
    text->n = n;
    text->bytes[n] = '\0';
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- a line */

void dpe_json_fields_free(struct dpe_json_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(fields[i].items);
        fields[i] = (struct dpe_json_field){.name = fields[i].name};
    }
}

const char *dpe_json_kind_name(enum dpe_json_kind kind)
{
    static const char *const names[] = {"nothing",       "a string", "a whole number", "a number",
                                        "true or false", "null",     "an object",      "a list"};
    return names[kind];
}

static char nothing[] = "";

static char *without_nul(const struct dpe_json_scan_text *text)
{
    char *bytes = (char *)(uintptr_t)text->bytes;
    for (char *nul = memchr(bytes, '\0', text->n); nul != NULL;
         nul = memchr(nul, '\0', text->n - (size_t)(nul - bytes))) {
        *nul = '\1';
    }
    return bytes;
}

/* A number is moved over the byte before it, which was passed, so that it is a C string. */
static bool read_item(struct dpe_json_scan *scan, struct dpe_json_item *item)
{
    char c = dpe_json_scan_peek(scan);
    char *start = scan->text + scan->at;
    *item = (struct dpe_json_item){.kind = DPE_JSON_NULL, .text = nothing};
    if (c == '"') {
        struct dpe_json_scan_text text = {0};
        item->kind = DPE_JSON_STRING;
        if (!dpe_json_scan_string(scan, &text)) {
            return false;
        }
        item->text = without_nul(&text);
        return true;
    }
    item->kind = c == '{'               ? DPE_JSON_OBJECT
                 : c == '['             ? DPE_JSON_LIST
                 : c == 't' || c == 'f' ? DPE_JSON_BOOL
                                        : DPE_JSON_NULL;
    if (!dpe_json_scan_skip(scan)) {
        return false;
    }
    if (c == '-' || c == 'N' || c == 'I' || (c >= '0' && c <= '9')) {
        size_t n = (size_t)(scan->text + scan->at - start);
        item->text = memmove(start - 1, start, n);
        item->text[n] = '\0';
        item->kind = strpbrk(item->text, ".eENI") != NULL ? DPE_JSON_REAL : DPE_JSON_INTEGER;
    }
    return true;
}

/* Read the value of a field. False if it is not valid or, with *memory false, out of memory. */
static bool read_field(struct dpe_json_scan *scan, struct dpe_json_field *field, bool *memory)
{
    if (dpe_json_scan_peek(scan) != '[') {
        return read_item(scan, &field->value);
    }
    field->value = (struct dpe_json_item){.kind = DPE_JSON_LIST, .text = nothing};
    dpe_json_scan_open(scan, '[');
    bool first = true;
    while (*memory && dpe_json_scan_element(scan, &first)) {
        *memory = dpe_make_room(&field->items, field->n, sizeof *field->items);
        if (*memory && !read_item(scan, &field->items[field->n++])) {
            return false;
        }
    }
    return *memory && scan->problem == NULL;
}

static struct dpe_json_field *find_field(struct dpe_json_field *fields, size_t n_fields,
                                         const struct dpe_json_scan_text *key)
{
    for (size_t i = 0; i < n_fields; i++) {
        if (dpe_json_scan_is(key, fields[i].name)) {
            return fields + i;
        }
    }
    return NULL;
}

dpe_status dpe_jsonl_object(char *line, size_t n, struct dpe_json_field *fields, size_t n_fields,
                            enum dpe_jsonl_problem *problem, struct dpe_error *err)
{
    struct dpe_json_scan scan = {.text = line, .n = n, .python = true};
    struct dpe_json_scan_text key = {0};
    bool first = true, memory = true;
    *problem = DPE_JSONL_NO_OBJECT;
    for (size_t i = 0; i < n_fields; i++) {
        fields[i].value = (struct dpe_json_item){.kind = DPE_JSON_ABSENT, .text = nothing};
        fields[i].n = 0;
    }
    size_t valid = dpe_utf8_check(line, n);
    if (valid < n) {
        return dpe_fail(err, DPE_BAD_DATA, "byte %zu: expected UTF-8, found 0x%02x", valid + 1,
                        (unsigned)(unsigned char)line[valid]);
    }
    dpe_json_scan_open(&scan, '{');
    while (scan.problem == NULL && memory && dpe_json_scan_key(&scan, &first, &key)) {
        struct dpe_json_field *field = find_field(fields, n_fields, &key);
        if (field != NULL && field->value.kind != DPE_JSON_ABSENT) {
            *problem = DPE_JSONL_TWICE;
            return dpe_fail(err, DPE_BAD_DATA, "\"%s\" is given twice", field->name);
        }
        if (field != NULL) {
            read_field(&scan, field, &memory);
        } else {
            dpe_json_scan_skip(&scan);
        }
    }
    if (!memory) {
        return dpe_fail(err, DPE_NO_MEMORY, "no memory for the fields of a line");
    }
    if (!dpe_json_scan_end(&scan)) {
        return dpe_fail(err, DPE_BAD_DATA, "expected a JSON object: byte %zu: %s", scan.at + 1,
                        scan.problem);
    }
    *problem = DPE_JSONL_GOOD;
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- writing */

dpe_status dpe_jsonl_append(struct dpe_text *out, json_t *line, struct dpe_error *err)
{
    if (line == NULL) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "a JSON line: expected texts in UTF-8 and finite numbers, found something "
                        "else (or memory ran out)");
    }
    DPE_OWNED char *dumped = json_dumps(line, 0);
    json_decref(line);
    DPE_TRY(DPE_MADE(dumped, err, "out of memory for a JSON line"));
    DPE_TRY(dpe_text_append(out, dumped, strlen(dumped), err));
    return dpe_text_append(out, "\n", 1, err);
}

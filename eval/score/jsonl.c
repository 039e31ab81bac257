/* JSON lines: an index of the lines of a file, and the object of one line. */
#include "eval/score/jsonl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/text/json.h"

enum { BLOCK = 1 << 20 };
static const uint64_t max_line = UINT64_C(64) << 20;

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

/* What an escape \\uXXXX at `bytes` stands for, 0 where there is none. */
static unsigned long escaped_unit(const char *bytes)
{
    char digits[5] = "";
    char *end = digits;
    if (bytes[0] == '\\' && bytes[1] == 'u') {
        memcpy(digits, bytes + 2, strnlen(bytes + 2, 4));
    }
    unsigned long unit = strtoul(digits, &end, 16);
    return end == digits + 4 ? unit : 0;
}

/* Half of a surrogate pair, which Python's json takes, becomes U+FFFD, and U+0000 becomes U+0001,
 * so that texts are C strings. Both are as long. */
static void replace_escapes(char *bytes)
{
    for (char *at = strchr(bytes, '\\'); at != NULL && at[1] != '\0'; at = strchr(at, '\\')) {
        unsigned long unit = escaped_unit(at);
        if (unit >> 10 == 0xd800 >> 10 && escaped_unit(at + 6) >> 10 == 0xdc00 >> 10) {
            at += 6;
        } else if (unit >> 11 == 0xd800 >> 11) {
            memcpy(at + 2, "fffd", 4);
        } else if (strncmp(at, "\\u0000", 6) == 0) {
            at[5] = '1';
        }
        at += 2;
    }
}

dpe_status dpe_jsonl_read(const struct dpe_jsonl *jsonl, int64_t i, json_t **object,
                          struct dpe_error *err)
{
    const struct line *line = jsonl->lines + i;
    DPE_SCOPED(dpe_text_free) struct dpe_text where = {0};
    DPE_OWNED char *bytes = NULL;
    dpe_text_put(&where, "%s: line %lld", jsonl->path, (long long)line->number);
    DPE_TRY(dpe_text_done(&where, err));
    if (line->n > max_line) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected at most %llu bytes, found %llu",
                        where.bytes, (unsigned long long)max_line, (unsigned long long)line->n);
    }
    DPE_TRY(DPE_NEW(&bytes, (size_t)line->n + 1, err, "%s: no memory for it", where.bytes));
    if (dpe_read_at(jsonl->fd, bytes, (size_t)line->n, line->offset) != line->n) {
        return dpe_fail(err, DPE_IO, "%s: %s", where.bytes,
                        errno != 0 ? strerror(errno) : "the file became shorter while it was read");
    }
    bytes[line->n] = '\0';
    replace_escapes(bytes);
    return dpe_json_parse_exact(where.bytes, bytes, (size_t)line->n, object, err);
}

/* ------------------------------------------------------------------------------------- a line */

bool dpe_jsonl_is_number(const json_t *value)
{
    return json_is_number(value) || dpe_json_number_text(value) != NULL;
}

bool dpe_jsonl_has_text(const json_t *value)
{
    return json_is_string(value) || json_is_number(value);
}

const char *dpe_jsonl_text(const json_t *value, char number[DPE_JSONL_NUMBER])
{
    const char *beyond = dpe_json_number_text(value);
    number[0] = '\0';
    if (beyond != NULL && beyond[strspn(beyond, "-0123456789")] != '\0') {
        return dpe_py_real(strtod(beyond, NULL), number);
    }
    if (json_is_integer(value)) {
        snprintf(number, DPE_JSONL_NUMBER, "%lld", (long long)json_integer_value(value));
    }
    return beyond != NULL          ? beyond
           : json_is_string(value) ? json_string_value(value)
           : json_is_real(value)   ? dpe_py_real(json_real_value(value), number)
                                   : number;
}

const char *dpe_jsonl_kind(const json_t *value)
{
    return value == NULL                ? "nothing"
           : json_is_integer(value)     ? "a whole number"
           : dpe_jsonl_is_number(value) ? "a number"
           : json_is_string(value)      ? "a string"
           : json_is_object(value)      ? "an object"
           : json_is_array(value)       ? "a list"
           : json_is_null(value)        ? "null"
                                        : "true or false";
}

size_t dpe_jsonl_entries(const json_t *value)
{
    return json_is_array(value) ? json_array_size(value) : 1;
}

const json_t *dpe_jsonl_entry(const json_t *value, size_t i)
{
    return json_is_array(value) ? json_array_get(value, i) : value;
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

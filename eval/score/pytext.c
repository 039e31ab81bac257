/* Python's view of text: characters, white space, case. */
#include "eval/score/pytext.h"

#include <string.h>

enum { SIGMA = 0x3a3, SMALL_SIGMA = 0x3c3, FINAL_SIGMA = 0x3c2, DOTTED_I = 0x130 };

uint32_t dpe_py_next(const char *s, const char *end, size_t *n)
{
    unsigned char lead = (unsigned char)*s;
    size_t want = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
    uint32_t point = want == 1 ? lead : lead & (0x7fu >> want);
    *n = 1;
    if (want > (size_t)(end - s)) {
        return lead;
    }
    for (size_t i = 1; i < want; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c & 0xc0) != 0x80) {
            return lead;
        }
        point = point << 6 | (c & 0x3fu);
    }
    *n = want;
    return point;
}

const char *dpe_py_before(const char *start, const char *s)
{
    size_t back = (size_t)(s - start) < 4 ? (size_t)(s - start) : 4;
    for (size_t n = 0; back > 1; back--) {
        dpe_py_next(s - back, s, &n);
        if (n == back) {
            break;
        }
    }
    return s - back;
}

size_t dpe_py_space(const char *s, const char *end)
{
    unsigned char c = (unsigned char)*s;
    if (c < 0x80) {
        return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) ? 1 : 0;
    }
    size_t n = 0;
    uint32_t point = dpe_py_next(s, end, &n);
    bool space =
        n > 1 && (point == 0x85 || point == 0xa0 || point == 0x1680 ||
                  (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
                  point == 0x202f || point == 0x205f || point == 0x3000);
    return space ? n : 0;
}

bool dpe_py_word(uint32_t point)
{
    if (point < 0x80) {
        return point == '_' || (point >= '0' && point <= '9') || (point >= 'A' && point <= 'Z') ||
               (point >= 'a' && point <= 'z');
    }
    return dpe_unicode_has(&dpe_case_alnum, point);
}

int dpe_py_digit(uint32_t point)
{
    if (point < 0x80) {
        return point >= '0' && point <= '9' ? (int)(point - '0') : -1;
    }
    for (size_t i = 0; i < dpe_case_digits.n && dpe_case_digits.points[i] <= point; i++) {
        if (point - dpe_case_digits.points[i] < 10) {
            return (int)(point - dpe_case_digits.points[i]);
        }
    }
    return -1;
}

struct dpe_span dpe_py_strip(struct dpe_span text)
{
    const char *s = text.s;
    const char *end = s + text.n;
    for (size_t n = 1; s < end && n > 0; s += n) {
        n = dpe_py_space(s, end);
    }
    while (end > s) {
        const char *last = dpe_py_before(s, end);
        if (dpe_py_space(last, end) == 0) {
            break;
        }
        end = last;
    }
    return (struct dpe_span){s, (size_t)(end - s)};
}

bool dpe_py_split(struct dpe_span *rest, struct dpe_span *word)
{
    const char *s = rest->s;
    const char *end = s + rest->n;
    for (size_t n = 1; s < end && n > 0; s += n) {
        n = dpe_py_space(s, end);
    }
    const char *start = s;
    while (s < end && dpe_py_space(s, end) == 0) {
        size_t n = 0;
        dpe_py_next(s, end, &n);
        s += n;
    }
    *word = (struct dpe_span){start, (size_t)(s - start)};
    *rest = (struct dpe_span){s, (size_t)(end - s)};
    return s > start;
}

/* --------------------------------------------------------------------------------------- case */

static uint32_t moved(const struct dpe_case_map *map, uint32_t point)
{
    size_t low = 0, high = map->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct dpe_case_run *run = map->runs + middle;
        if (point > run->last) {
            low = middle + 1;
        } else if (point < run->first) {
            high = middle;
        } else {
            bool hit = (point - run->first) % run->step == 0;
            return hit ? (uint32_t)((int32_t)point + run->delta) : point;
        }
    }
    return point;
}

static dpe_status put(uint32_t point, struct dpe_text *out)
{
    char bytes[4];
    size_t n = dpe_utf8_put(point, bytes);
    return dpe_text_append(out, bytes, n, NULL);
}

/* Whether the capital sigma at s of [start, end) ends a word: ignoring case-ignorable characters, a
 * cased letter precedes it and none follows. */
static bool ends_word(const char *start, const char *s, const char *end)
{
    const char *at = s;
    uint32_t point = 0;
    size_t n = 0;
    bool found = false;
    while (at > start && !found) {
        at = dpe_py_before(start, at);
        point = dpe_py_next(at, end, &n);
        found = !dpe_unicode_has(&dpe_case_ignorable, point);
    }
    if (!found || !dpe_unicode_has(&dpe_case_cased, point)) {
        return false;
    }
    dpe_py_next(s, end, &n);
    for (at = s + n; at < end; at += n) {
        point = dpe_py_next(at, end, &n);
        if (!dpe_unicode_has(&dpe_case_ignorable, point)) {
            return !dpe_unicode_has(&dpe_case_cased, point);
        }
    }
    return true;
}

/* Most text is ASCII: one append for each run of it. */
static size_t ascii_run(const char *s, const char *end)
{
    size_t n = 0;
    while (s + n < end && (unsigned char)s[n] < 0x80) {
        n++;
    }
    return n;
}

static dpe_status append_ascii(const char *s, size_t n, char from, struct dpe_text *out)
{
    dpe_status status = dpe_text_append(out, s, n, NULL);
    for (char *c = out->bytes + out->n - n; status == DPE_OK && c < out->bytes + out->n; c++) {
        *c = *c >= from && *c <= from + 25 ? (char)(*c ^ 0x20) : *c;
    }
    return status;
}

dpe_status dpe_py_lower(struct dpe_span text, struct dpe_text *out)
{
    const char *end = text.s + text.n;
    dpe_status status = DPE_OK;
    for (const char *s = text.s; s < end && status == DPE_OK;) {
        size_t n = ascii_run(s, end);
        if (n > 0) {
            status = append_ascii(s, n, 'A', out);
            s += n;
            continue;
        }
        uint32_t point = dpe_py_next(s, end, &n);
        if (n == 1) {
            status = dpe_text_append(out, s, 1, NULL);
        } else if (point == SIGMA) {
            status = put(ends_word(text.s, s, end) ? FINAL_SIGMA : SMALL_SIGMA, out);
        } else if (point == DOTTED_I) {
            status = dpe_text_append(out, "i\xcc\x87", 3, NULL);
        } else {
            status = put(moved(&dpe_case_lower, point), out);
        }
        s += n;
    }
    return status == DPE_OK ? dpe_text_append(out, "", 0, NULL) : status;
}

static const struct dpe_case_special *special_upper(uint32_t point)
{
    for (size_t i = 0; i < dpe_case_upper_special.n; i++) {
        if (dpe_case_upper_special.items[i].point == point) {
            return dpe_case_upper_special.items + i;
        }
    }
    return NULL;
}

dpe_status dpe_py_upper(struct dpe_span text, struct dpe_text *out)
{
    const char *end = text.s + text.n;
    dpe_status status = DPE_OK;
    for (const char *s = text.s; s < end && status == DPE_OK;) {
        size_t n = ascii_run(s, end);
        if (n > 0) {
            status = append_ascii(s, n, 'a', out);
            s += n;
            continue;
        }
        uint32_t point = dpe_py_next(s, end, &n);
        const struct dpe_case_special *special = n == 1 ? NULL : special_upper(point);
        if (n == 1) {
            status = dpe_text_append(out, s, 1, NULL);
        } else if (special == NULL) {
            status = put(moved(&dpe_case_upper, point), out);
        }
        for (int i = 0; special != NULL && i < 3 && special->to[i] != 0 && status == DPE_OK; i++) {
            status = put(special->to[i], out);
        }
        s += n;
    }
    return status == DPE_OK ? dpe_text_append(out, "", 0, NULL) : status;
}

/* -------------------------------------------------------------------------------------- spans */

struct dpe_span dpe_span_of(const char *text)
{
    return (struct dpe_span){text, strlen(text)};
}

bool dpe_span_equal(struct dpe_span a, struct dpe_span b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

bool dpe_span_starts(struct dpe_span text, struct dpe_span with)
{
    return text.n >= with.n && (with.n == 0 || memcmp(text.s, with.s, with.n) == 0);
}

size_t dpe_span_find(struct dpe_span text, struct dpe_span part)
{
    if (part.n == 0) {
        return 0;
    }
    const char *s = text.s;
    const char *end = s + text.n;
    while ((size_t)(end - s) >= part.n) {
        s = memchr(s, part.s[0], (size_t)(end - s) - part.n + 1);
        if (s == NULL) {
            break;
        }
        if (memcmp(s, part.s, part.n) == 0) {
            return (size_t)(s - text.s);
        }
        s++;
    }
    return SIZE_MAX;
}

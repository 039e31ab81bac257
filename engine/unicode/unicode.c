/* Looking up character classes, walking UTF-8. */
#include "engine/unicode/unicode.h"

#include <string.h>

bool dpe_unicode_has(const struct dpe_unicode_class *set, uint32_t point)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (point > set->ranges[middle][1]) {
            low = middle + 1;
        } else if (point < set->ranges[middle][0]) {
            high = middle;
        } else {
            return true;
        }
    }
    return false;
}

const struct dpe_unicode_class *dpe_unicode_category(const char *name, size_t n)
{
    static const struct {
        const char *name;
        const struct dpe_unicode_class *set;
    } known[] = {
        {"L", &dpe_unicode_L},   {"Lu", &dpe_unicode_Lu}, {"Ll", &dpe_unicode_Ll},
        {"Lt", &dpe_unicode_Lt}, {"Lm", &dpe_unicode_Lm}, {"Lo", &dpe_unicode_Lo},
        {"M", &dpe_unicode_M},   {"N", &dpe_unicode_N},   {"Nd", &dpe_unicode_Nd},
        {"P", &dpe_unicode_P},   {"S", &dpe_unicode_S},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0) {
            return known[i].set;
        }
    }
    return NULL;
}

uint32_t dpe_utf8_next(const char *s, size_t *n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *n = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *n = 2;
        return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    }
    if (u[0] < 0xf0) {
        *n = 3;
        return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    }
    *n = 4;
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
}

const char *dpe_utf8_before(const char *s)
{
    do {
        s--;
    } while (((unsigned char)*s & 0xc0) == 0x80);
    return s;
}

size_t dpe_utf8_put(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xc0 | point >> 6);
        out[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xe0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 0x3f));
        out[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 0x3f));
    out[2] = (char)(0x80 | (point >> 6 & 0x3f));
    out[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

size_t dpe_utf8_bad_length(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0xc2 || u[0] > 0xf4 || n < 2) {
        return 1;
    }
    unsigned char low = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    if (u[1] < low || u[1] > high) {
        return 1;
    }
    size_t length = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    size_t have = 2;
    while (have < length && have < n && (u[have] & 0xc0) == 0x80) {
        have++;
    }
    return have;
}

dpe_status dpe_utf8_repair(const char *bytes, size_t n, struct dpe_text *out, struct dpe_error *err)
{
    for (size_t at = 0; at < n;) {
        size_t valid = dpe_utf8_check(bytes + at, n - at);
        DPE_TRY(dpe_text_append(out, bytes + at, valid, err));
        at += valid;
        if (at < n) {
            at += dpe_utf8_bad_length(bytes + at, n - at);
            DPE_TRY(dpe_text_append(out, "\xef\xbf\xbd", 3, err));
        }
    }
    return DPE_OK;
}

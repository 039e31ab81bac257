/* Text that is put together piece by piece, and made safe for where it goes. */
#include "engine/base/base.h"
#include "outputs/report/draw/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *dpe_draw_format_list(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (text != NULL) {
        vsnprintf(text, (size_t)n + 1, format, args);
    }
    return text;
}

char *dpe_draw_format_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = dpe_draw_format_list(format, args);
    va_end(args);
    return text;
}

/* -------------------------------------------------------------------------------- hostile names */

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Bytes of the valid character at `text`, 0 if it is invalid. */
static size_t character(const char *text, size_t n)
{
    unsigned char first = (unsigned char)text[0];
    size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return length <= n && dpe_utf8_check(text, length) == length ? length : 0;
}

/* C0 and C1 controls, and the two noncharacters: not allowed in XML, harmful in a terminal.
 * U+2028, U+2029 break lines in some readers; marks that reverse the direction of text (U+202A to
 * U+202E, U+2066 to U+2069) can make a name read as another one. */
static bool is_unwanted(const char *text, size_t length)
{
    const unsigned char *c = (const unsigned char *)text;
    if (length == 1) {
        return c[0] < 0x20 || c[0] == 0x7F;
    }
    if (length == 2) {
        return c[0] == 0xC2 && c[1] < 0xA0;
    }
    if (length == 3 && c[0] == 0xE2 && c[1] == 0x80) {
        return c[2] >= 0xA8 && c[2] <= 0xAE;
    }
    if (length == 3 && c[0] == 0xE2 && c[1] == 0x81) {
        return c[2] >= 0xA6 && c[2] <= 0xA9;
    }
    return length == 3 && c[0] == 0xEF && c[1] == 0xBF && c[2] >= 0xBE;
}

static void put_clean(struct dpe_text *out, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t length = character(text + i, n - i);
        if (length == 0 || is_unwanted(text + i, length)) {
            bool space = text[i] == '\n' || text[i] == '\t' || text[i] == '\r';
            dpe_text_put(out, "%s", space ? " " : replacement);
            i += length == 0 ? 1 : length;
        } else {
            dpe_text_put_bytes(out, text + i, length);
            i += length;
        }
    }
}

/* The byte at which character `index` of clean text begins; *n are those before it. */
static size_t character_offset(const char *text, size_t index, size_t *n)
{
    size_t i = 0;
    for (*n = 0; text[i] != '\0'; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80 && (*n)++ == index) {
            return i;
        }
    }
    return i;
}

char *dpe_draw_clean_text(const char *text, size_t columns)
{
    struct dpe_text out = {0};
    put_clean(&out, text);
    dpe_text_put_bytes(&out, "", 0); /* the empty text is one, too */
    size_t n = 0, unused = 0;
    if (!out.failed && character_offset(out.bytes, SIZE_MAX, &n) > 0 && columns > 2 &&
        n > columns) {
        /* Names differ at their beginning more often than at their end. */
        size_t head = (columns - 1) * 2 / 3;
        size_t tail = n - (columns - 1 - head);
        struct dpe_text cut = {0};
        dpe_text_put_bytes(&cut, out.bytes, character_offset(out.bytes, head, &unused));
        dpe_text_put(&cut, "…%s", out.bytes + character_offset(out.bytes, tail, &unused));
        free(out.bytes);
        out = cut;
    }
    if (out.failed) {
        dpe_text_free(&out);
    }
    return out.bytes;
}

void dpe_draw_put_html(struct dpe_text *out, const char *text)
{
    char *clean = dpe_draw_clean_text(text, 0);
    if (clean == NULL) {
        out->failed = true;
        return;
    }
    for (const char *c = clean; *c != '\0'; c++) {
        const char *entity = *c == '&'    ? "&amp;"
                             : *c == '<'  ? "&lt;"
                             : *c == '>'  ? "&gt;"
                             : *c == '"'  ? "&quot;"
                             : *c == '\'' ? "&#39;"
                                          : NULL;
        if (entity != NULL) {
            dpe_text_put_bytes(out, entity, strlen(entity));
        } else {
            dpe_text_put_bytes(out, c, 1);
        }
    }
    free(clean);
}

/* NFC and NFKC as the reference has them. utf8proc has a newer Unicode, so it is only shown
 * characters that the reference's tables touch; everything else is a wall through which nothing
 * composes or moves. */
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

/* The first character that a form may touch, whose first byte decides for most texts (of NFC
 * U+0300, CC 80 in UTF-8, of NFKC U+00A0, C2 A0), and how utf8proc decomposes. */
static const struct form {
    uint32_t first;
    unsigned char first_byte;
    int decompose;
} forms[] = {
    [DPE_NFC] = {0x300, 0xcc, 0},
    [DPE_NFKC] = {0xa0, 0xc2, UTF8PROC_COMPAT},
};

/* Whether the form may change a character, move it, or join it to the one before. */
static bool is_active(const struct form *form, uint32_t point)
{
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)point);
    bool decomposes = property->decomp_seqindex != UINT16_MAX &&
                      (property->decomp_type == 0 || form->decompose != 0);
    return (decomposes || property->combining_class != 0 ||
            dpe_unicode_has(&dpe_unicode_nfc_second, point)) &&
           !dpe_unicode_has(&dpe_unicode_nfc_unknown, point);
}

bool dpe_form_is_plain(enum dpe_form which, const char *text, size_t n)
{
    const struct form *form = &forms[which];
    for (size_t at = 0; at < n;) {
        if ((unsigned char)text[at] < form->first_byte) {
            at++;
            continue;
        }
        size_t length = 0;
        if (is_active(form, dpe_utf8_next(text + at, &length))) {
            return false;
        }
        at += length;
    }
    return true;
}

struct points {
    int32_t *at;
    size_t n, capacity;
};

static dpe_status add_decomposed(const struct form *form, struct points *points, uint32_t point,
                                 struct dpe_error *err)
{
    enum { LONGEST = 18 }; /* that of U+FDFA; no canonical decomposition is longer than 4 */
    if (points->capacity - points->n < LONGEST) {
        size_t capacity = points->capacity == 0 ? 64 : 2 * points->capacity;
        int32_t *grown = realloc(points->at, capacity * sizeof *grown);
        DPE_TRY(DPE_MADE(grown, err, "no memory for normalising"));
        points->at = grown;
        points->capacity = capacity;
    }
    int last_class = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(
        (utf8proc_int32_t)point, points->at + points->n, LONGEST,
        (utf8proc_option_t)((unsigned)UTF8PROC_DECOMPOSE | (unsigned)UTF8PROC_STABLE |
                            (unsigned)form->decompose),
        &last_class);
    if (n < 0) {
        return dpe_fail(err, DPE_INTERNAL, "normalising failed: %s", utf8proc_errmsg(n));
    }
    points->n += (size_t)n;
    return DPE_OK;
}

static unsigned combining_class(int32_t point)
{
    return (unsigned)utf8proc_get_property(point)->combining_class & 0xffu;
}

/* Stable by combining class; a run may be the whole text, so it is counted, not compared. */
static dpe_status sort_run(int32_t *run, size_t n, struct dpe_error *err)
{
    size_t count[257] = {0};
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        count[combining_class(run[i]) + 1]++;
        sorted = sorted && (i == 0 || combining_class(run[i - 1]) <= combining_class(run[i]));
    }
    if (sorted) {
        return DPE_OK;
    }
    DPE_OWNED int32_t *copy = NULL;
    DPE_TRY(DPE_NEW(&copy, n, err, "no memory for normalising"));
    memcpy(copy, run, n * sizeof *run);
    for (size_t c = 1; c < 257; c++) {
        count[c] += count[c - 1];
    }
    for (size_t i = 0; i < n; i++) {
        run[count[combining_class(copy[i])]++] = copy[i];
    }
    return DPE_OK;
}

static dpe_status sort_marks(struct points *points, struct dpe_error *err)
{
    size_t start = 0;
    while (start < points->n) {
        size_t end = start;
        while (end < points->n && combining_class(points->at[end]) != 0) {
            end++;
        }
        if (end - start > 1) {
            DPE_TRY(sort_run(points->at + start, end - start, err));
        }
        start = end + 1;
    }
    return DPE_OK;
}

/* One character that may begin a composition and the active ones after it. */
static dpe_status compose(const struct form *form, const char *text, size_t n,
                          struct points *points, struct dpe_text *out, struct dpe_error *err)
{
    points->n = 0;
    for (size_t at = 0, length = 0; at < n; at += length) {
        DPE_TRY(add_decomposed(form, points, dpe_utf8_next(text + at, &length), err));
    }
    DPE_TRY(sort_marks(points, err));
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(points->at, (utf8proc_ssize_t)points->n,
                                                         UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];
        size_t length = dpe_utf8_put((uint32_t)points->at[i], bytes);
        DPE_TRY(dpe_text_append(out, bytes, length, err));
    }
    return DPE_OK;
}

static dpe_status form_all(const struct form *form, const char *text, size_t n,
                           struct points *points, struct dpe_text *out,
                           struct dpe_encode_work *work, struct dpe_error *err)
{
    size_t done = 0, before = 0;
    bool any_before = false;
    for (size_t at = 0, length = 0; at < n; at += length) {
        uint32_t point = dpe_utf8_next(text + at, &length);
        DPE_TRY(dpe_encode_did(work, length, err));
        if (point < form->first || !is_active(form, point)) {
            before = at;
            any_before = true;
            continue;
        }
        size_t start = at, end = at, next = length;
        do {
            end += next;
        } while (end < n && is_active(form, dpe_utf8_next(text + end, &next)));
        if (any_before &&
            !dpe_unicode_has(&dpe_unicode_nfc_unknown, dpe_utf8_next(text + before, &next))) {
            start = before;
        }
        DPE_TRY(dpe_text_append(out, text + done, start - done, err));
        DPE_TRY(compose(form, text + start, end - start, points, out, err));
        done = end;
        length = end - at;
        any_before = false;
    }
    return dpe_text_append(out, text + done, n - done, err);
}

dpe_status dpe_form(enum dpe_form which, const char *text, size_t n, struct dpe_text *out,
                    struct dpe_encode_work *work, struct dpe_error *err)
{
    struct points points = {0};
    dpe_status status = form_all(&forms[which], text, n, &points, out, work, err);
    free(points.at);
    return status;
}

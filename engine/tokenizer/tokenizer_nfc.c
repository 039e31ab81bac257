/* NFC and NFKC as the reference has them. utf8proc has a newer Unicode, so it is only shown
 * characters that the reference's tables touch; everything else is a wall through which nothing
 * composes or moves. */
#include "engine/tokenizer/tokenizer_parts.h"

#include <string.h>

#include <utf8proc.h>

/* The first character that a form may touch, and how utf8proc decomposes. */
static const struct form {
    uint32_t first;
    int decompose;
} forms[] = {
    [DPE_NFC] = {0x300, 0},
    [DPE_NFKC] = {0xa0, UTF8PROC_COMPAT},
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

static dpe_status add_decomposed(const struct form *form, struct dpe_tokens *points, uint32_t point,
                                 struct dpe_error *err)
{
    int32_t parts[18]; /* as many as U+FDFA has; no canonical decomposition is longer than 4 */
    int last_class = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(
        (utf8proc_int32_t)point, parts, sizeof parts / sizeof parts[0],
        (utf8proc_option_t)((unsigned)UTF8PROC_DECOMPOSE | (unsigned)UTF8PROC_STABLE |
                            (unsigned)form->decompose),
        &last_class);
    if (n < 0) {
        return dpe_fail(err, DPE_INTERNAL, "normalising failed: %s", utf8proc_errmsg(n));
    }
    return dpe_tokens_append(points, parts, (size_t)n, err);
}

static unsigned combining_class(int32_t point)
{
    return (unsigned)utf8proc_get_property(point)->combining_class & 0xffu;
}

/* Stable by combining class; a run may be the whole text, so it is counted, not compared. */
static dpe_status sort_run(int32_t *run, size_t n, struct dpe_error *err)
{
    size_t count[257] = {0};
    for (size_t i = 0; i < n; i++) {
        count[combining_class(run[i]) + 1]++;
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

static dpe_status sort_marks(struct dpe_tokens *points, struct dpe_error *err)
{
    size_t start = 0;
    while (start < points->n) {
        size_t end = start;
        while (end < points->n && combining_class(points->ids[end]) != 0) {
            end++;
        }
        if (end - start > 1) {
            DPE_TRY(sort_run(points->ids + start, end - start, err));
        }
        start = end + 1;
    }
    return DPE_OK;
}

/* One character that may begin a composition and the active ones after it. */
static dpe_status compose(const struct form *form, const char *text, size_t n,
                          struct dpe_tokens *points, struct dpe_text *out, struct dpe_error *err)
{
    points->n = 0;
    for (size_t at = 0, length = 0; at < n; at += length) {
        DPE_TRY(add_decomposed(form, points, dpe_utf8_next(text + at, &length), err));
    }
    DPE_TRY(sort_marks(points, err));
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(points->ids, (utf8proc_ssize_t)points->n,
                                                         UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];
        size_t length = dpe_utf8_put((uint32_t)points->ids[i], bytes);
        DPE_TRY(dpe_text_append(out, bytes, length, err));
    }
    return DPE_OK;
}

dpe_status dpe_form(enum dpe_form which, const char *text, size_t n, struct dpe_text *out,
                    struct dpe_encode_work *work, struct dpe_error *err)
{
    const struct form *form = &forms[which];
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens points = {0};
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
        DPE_TRY(compose(form, text + start, end - start, &points, out, err));
        done = end;
        length = end - at;
        any_before = false;
    }
    return dpe_text_append(out, text + done, n - done, err);
}

/* Failures in words, and memory: what every part needs, the modules that tools load included. */
#include "engine/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

/* Where a character begins, at or before `at`. */
static size_t character_before(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) {
        at--;
    }
    return at;
}

void dpe_shorten(char *out, size_t size, const char *text)
{
    static const char gap[] = "[...]";
    size_t n = strlen(text);
    if (n < size) {
        memcpy(out, text, n + 1);
        return;
    }
    /* A message begins with a path and ends with the reason: more of the end is kept. */
    size_t room = size - sizeof gap;
    size_t head = character_before(text, room / 3);
    size_t tail = n - (room - room / 3);
    while (((unsigned char)text[tail] & 0xc0) == 0x80) {
        tail++;
    }
    memcpy(out, text, head);
    memcpy(out + head, gap, sizeof gap - 1);
    memcpy(out + head + sizeof gap - 1, text + tail, n - tail + 1);
}

/* Room for a message with two paths as long as the system takes them; on the stack, since memory
 * may be what is out. */
enum { MOST_WORDS = 3 * 4096 };

dpe_status dpe_fail(struct dpe_error *err, dpe_status status, const char *format, ...)
{
    if (err == NULL) {
        return status;
    }
    err->status = status;
    err->layer = -1;
    err->position = -1;
    char words[MOST_WORDS];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    dpe_shorten(err->text, sizeof err->text, words);
    return status;
}

dpe_status dpe_fail_prefix(struct dpe_error *err, const char *format, ...)
{
    if (err == NULL) {
        return DPE_INTERNAL;
    }
    char words[MOST_WORDS];
    const size_t room = sizeof words - sizeof err->text - 2;
    va_list args;
    va_start(args, format);
    vsnprintf(words, room, format, args);
    va_end(args);
    size_t n = strlen(words);
    if (strncmp(err->text, words, n) != 0 || err->text[n] != ':') { /* else it is there already */
        snprintf(words + n, sizeof words - n, ": %s", err->text);
        dpe_shorten(err->text, sizeof err->text, words);
    }
    return err->status;
}

int dpe_exit_code(dpe_status status)
{
    return status == DPE_NONFINITE ? DPE_INTERNAL : (int)status;
}

enum {
    HUGE_PAGE = 2 << 20, /* of x86-64 and most others */
    LARGE = 4 * HUGE_PAGE,
};

void *dpe_alloc(size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - 64) {
        return NULL;
    }
    /* aligned_alloc wants a multiple of the alignment, and some return NULL for 0. */
    size_t rounded = bytes == 0 ? 64 : (bytes + 63) / 64 * 64;
    if (rounded < LARGE || rounded > SIZE_MAX - HUGE_PAGE) {
        return aligned_alloc(64, rounded);
    }
    rounded = (rounded + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, rounded);
#ifdef MADV_HUGEPAGE
    /* One thread of a Zen 4 reads 31 GB/s there and 21 GB/s from pages of 4 KiB. A kernel without
     * huge pages says no, and nothing else changes. */
    if (memory != NULL) {
        (void)madvise(memory, rounded, MADV_HUGEPAGE);
    }
#endif
    return memory;
}

void *dpe_alloc_zero(size_t count, size_t size)
{
    void *memory = dpe_alloc(count, size);
    if (memory != NULL) {
        memset(memory, 0, count * size);
    }
    return memory;
}

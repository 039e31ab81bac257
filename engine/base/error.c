/* Failures in words, and memory: what every part needs, the modules that tools load included. */
#include "engine/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dpe_status dpe_fail(struct dpe_error *err, dpe_status status, const char *format, ...)
{
    if (err == NULL) {
        return status;
    }
    err->status = status;
    err->layer = -1;
    err->position = -1;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

dpe_status dpe_fail_prefix(struct dpe_error *err, const char *format, ...)
{
    if (err == NULL) {
        return DPE_INTERNAL;
    }
    char tail[sizeof err->text];
    memcpy(tail, err->text, sizeof tail);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->text) {
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", tail);
    }
    return err->status;
}

int dpe_exit_code(dpe_status status)
{
    return status == DPE_NONFINITE ? DPE_INTERNAL : (int)status;
}

void *dpe_alloc(size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - 64) {
        return NULL;
    }
    /* aligned_alloc wants a multiple of the alignment, and some return NULL for 0. */
    size_t rounded = bytes == 0 ? 64 : (bytes + 63) / 64 * 64;
    return aligned_alloc(64, rounded);
}

void *dpe_alloc_zero(size_t count, size_t size)
{
    void *memory = dpe_alloc(count, size);
    if (memory != NULL) {
        memset(memory, 0, count * size);
    }
    return memory;
}

/**
 * @file bytes.h
 * Little-endian integers in files, whatever the machine's order. Only inline functions: the
 * consumer library (outputs/table/dpe_table.h) includes it and links no engine.
 */
#ifndef DPE_BYTES_H
#define DPE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/** The low `bytes` ≤ 8 bytes of a value. */
static inline void dpe_store_u64(void *to, uint64_t value, size_t bytes)
{
    unsigned char *at = (unsigned char *)to;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static inline uint64_t dpe_load_u64(const void *from, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)from;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

#endif

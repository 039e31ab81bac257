/**
 * @file trailer.h
 * What is checked before HDF5 sees a file, and how much memory it may take then; not installed.
 *
 * The checksum lies after the end of every DPE table, where HDF5 does not look.
 *
 * HDF5 1.10 keeps strings in heaps without a checksum and crashes on a flipped bit in one, so
 * damage has to be seen before HDF5 sees the file. A trailer is 24 bytes: a magic, the length of
 * the HDF5 file and its CRC-32C, both little-endian in 8 bytes.
 */
#ifndef DPE_TRAILER_H
#define DPE_TRAILER_H

#include <stddef.h>
#include <stdint.h>

enum { DPE_TRAILER = 24 };

/** CRC-32C (Castagnoli) of n bytes going on from `crc`; start with 0. */
uint32_t dpe_crc32c(uint32_t crc, const void *bytes, size_t n);

/** The trailer of a file of n bytes. */
void dpe_trailer_make(unsigned char trailer[DPE_TRAILER], const void *bytes, size_t n);

enum dpe_trailer_state {
    DPE_TRAILER_WHOLE,      /**< the bytes agree with it */
    DPE_TRAILER_NONE,       /**< there is none: another program wrote the file */
    DPE_TRAILER_DAMAGED,    /**< they do not */
    DPE_TRAILER_UNREADABLE, /**< it cannot be read, or shrank meanwhile */
};
enum { DPE_TRAILER_WORDS = 160 };
/** Compare an open regular file with its trailer; in words what is wrong with it, else "". */
enum dpe_trailer_state dpe_trailer_check(int fd, char words[DPE_TRAILER_WORDS]);

/* --------------------------------------------------------------------------------------- memory */

/** So many bytes may be read whatever the limit is. */
enum { DPE_INSIDE_MUCH = 64 << 20 };

/** What dpe_inside_read (inside.h) may take in this thread from now on, all its calls together, in
 * bytes. Without a call there is no limit: the library of tables alone does not know the machine.
 */
void dpe_inside_limit(uint64_t bytes);

#endif

/* CRC-32C and the trailer at the end of every DPE table. */
#include "outputs/table/trailer.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/bytes.h"

/* Eight bytes at a time: table k is the effect of a byte that k more bytes follow. */
static uint32_t crc_tables[8][256];

static void make_crc_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
        }
        crc_tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++) {
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc_tables[k - 1][i];
            crc_tables[k][i] = (before >> 8) ^ crc_tables[0][before & 0xff];
        }
    }
}

uint32_t dpe_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_crc_tables);
    const unsigned char *from = bytes;
    crc = ~crc;
    for (; n >= 8; n -= 8, from += 8) {
        uint64_t eight = dpe_load_u64(from, 8) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; k++) {
            crc ^= crc_tables[7 - k][(eight >> (8 * k)) & 0xff];
        }
    }
    for (size_t i = 0; i < n; i++) {
        crc = (crc >> 8) ^ crc_tables[0][(crc ^ from[i]) & 0xff];
    }
    return ~crc;
}

static const char trailer_magic[8] = {'D', 'P', 'E', '-', 'C', 'R', 'C', '\n'};

void dpe_trailer_make(unsigned char trailer[DPE_TRAILER], const void *bytes, size_t n)
{
    memcpy(trailer, trailer_magic, 8);
    dpe_store_u64(trailer + 8, n, 8);
    dpe_store_u64(trailer + 16, dpe_crc32c(0, bytes, n), 8);
}

/* CRC of the first n bytes; false with errno. */
static bool crc_of_file(int fd, uint64_t n, uint64_t *found)
{
    unsigned char bytes[1 << 14];
    uint32_t crc = 0;
    for (uint64_t at = 0; at < n;) {
        size_t want = n - at < sizeof bytes ? (size_t)(n - at) : sizeof bytes;
        ssize_t got = pread(fd, bytes, want, (off_t)at);
        if (got > 0) {
            crc = dpe_crc32c(crc, bytes, (size_t)got);
            at += (uint64_t)got;
        } else if (got == 0 || errno != EINTR) {
            errno = got == 0 ? ESTALE : errno;
            return false;
        }
    }
    *found = crc;
    return true;
}

enum dpe_trailer_state dpe_trailer_check(int fd, uint64_t *expected, uint64_t *found)
{
    unsigned char trailer[DPE_TRAILER];
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return DPE_TRAILER_UNREADABLE;
    }
    off_t n = info.st_size - DPE_TRAILER;
    if (n < 0 || pread(fd, trailer, sizeof trailer, n) != DPE_TRAILER ||
        memcmp(trailer, trailer_magic, sizeof trailer_magic) != 0) {
        return DPE_TRAILER_NONE;
    }
    *expected = dpe_load_u64(trailer + 16, 8);
    if (!crc_of_file(fd, (uint64_t)n, found)) {
        return DPE_TRAILER_UNREADABLE;
    }
    bool whole = dpe_load_u64(trailer + 8, 8) == (uint64_t)n && *expected == *found;
    return whole ? DPE_TRAILER_WHOLE : DPE_TRAILER_DAMAGED;
}

/* Files that survive a crash: write, sync, rename, sync the folder. And the small change of
 * formats: checksums, little-endian integers, times. */
#include "outputs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

dpe_status dpe_fail_errno(struct dpe_error *err, int code, const char *path, const char *what)
{
    dpe_status status = DPE_IO;
    switch (code) {
    case EACCES:
    case EPERM:
        status = DPE_PERMISSION;
        break;
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ELOOP:
    case ENAMETOOLONG:
        status = DPE_CANNOT_CREATE;
        break;
    case ENOMEM:
        status = DPE_NO_MEMORY;
        break;
    default:
        break;
    }
    return dpe_fail(err, status, "%s: %s: %s", path, what, strerror(code));
}

dpe_status dpe_write_all(int fd, const char *path, const void *bytes, size_t n,
                         struct dpe_error *err)
{
    const char *from = bytes;
    size_t done = 0;
    while (done < n) {
        ssize_t got = write(fd, from + done, n - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return dpe_fail_errno(err, got == 0 ? EIO : errno, path, "write failed");
        }
        done += (size_t)got;
    }
    return DPE_OK;
}

dpe_status dpe_write_synced(const char *path, const void *bytes, size_t n, struct dpe_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return dpe_fail_errno(err, errno, path, "cannot be created");
    }
    dpe_status status = dpe_write_all(fd, path, bytes, n, err);
    if (status == DPE_OK && fsync(fd) != 0) {
        status = dpe_fail_errno(err, errno, path, "sync failed");
    }
    /* Network file systems report a full disk as late as here. */
    if (close(fd) != 0 && status == DPE_OK) {
        status = dpe_fail_errno(err, errno, path, "close failed");
    }
    if (status != DPE_OK) {
        unlink(path);
    }
    return status;
}

dpe_status dpe_sync_folder(const char *folder, struct dpe_error *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return dpe_fail_errno(err, errno, folder, "folder cannot be opened to be synced");
    }
    dpe_status status = DPE_OK;
    /* Some network file systems cannot sync a folder and say EINVAL; they order renames. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        status = dpe_fail_errno(err, errno, folder, "sync of the folder failed");
    }
    close(fd);
    return status;
}

char *dpe_join(const char *a, const char *b, const char *c)
{
    size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = malloc(n);
    if (text != NULL) {
        snprintf(text, n, "%s%s%s", a, b, c);
    }
    return text;
}

char *dpe_parent_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return dpe_join(".", "", "");
    }
    size_t n = slash == path ? 1 : (size_t)(slash - path);
    char *folder = malloc(n + 1);
    if (folder != NULL) {
        memcpy(folder, path, n);
        folder[n] = '\0';
    }
    return folder;
}

dpe_status dpe_rename_synced(const char *from, const char *to, struct dpe_error *err)
{
    char *folder = dpe_parent_folder(to);
    if (folder == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", to);
    }
    dpe_status status = DPE_OK;
    if (rename(from, to) != 0) {
        status = dpe_fail_errno(err, errno, to, "cannot be put in place");
    } else {
        status = dpe_sync_folder(folder, err);
    }
    free(folder);
    return status;
}

dpe_status dpe_write_atomic(const char *path, const void *bytes, size_t n, struct dpe_error *err)
{
    char *temporary = dpe_join(path, ".tmp", "");
    if (temporary == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", path);
    }
    dpe_status status = dpe_write_synced(temporary, bytes, n, err);
    if (status == DPE_OK) {
        status = dpe_rename_synced(temporary, path, err);
        if (status != DPE_OK) {
            unlink(temporary);
        }
    }
    free(temporary);
    return status;
}

void dpe_time_text(char text[32])
{
    time_t now = time(NULL);
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

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

void dpe_store_u64(unsigned char *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
}

uint64_t dpe_load_u64(const unsigned char *from, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

/* The file of a key/value cache: made without a name and whole, read and written at a place. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* O_TMPFILE */
#endif
#include "engine/kv/kv_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/vfs.h>
#endif

enum { PATH_ROOM = 4096 };

/* A file system that keeps its files in memory: the file would take what it is there to save. */
static bool in_memory(int fd)
{
#if defined(__linux__)
    enum { TMPFS = 0x01021994, RAMFS = (int)0x858458f6 };
    struct statfs of;
    return fstatfs(fd, &of) == 0 && ((int)of.f_type == TMPFS || (int)of.f_type == RAMFS);
#else
    (void)fd;
    return false;
#endif
}

/* Without a name from the start where the file system can, else unlinked at once. */
static int open_nameless(const char *folder)
{
#if defined(O_TMPFILE)
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
#else
    int fd = -1;
#endif
    char path[PATH_ROOM];
    int n = snprintf(path, sizeof path, "%s/dpe-kv-XXXXXX", folder);
    if (n < 0 || n >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkstemp(path);
    if (fd >= 0) {
        unlink(path);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return fd;
}

static int reserve(int fd, uint64_t bytes)
{
#if defined(__APPLE__)
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
#else
    int code = 0;
    do {
        code = posix_fallocate(fd, 0, (off_t)bytes);
    } while (code == EINTR);
    return code;
#endif
}

dpe_status dpe_kv_file_make(const char *folder, uint64_t bytes, int *fd, struct dpe_error *err)
{
    *fd = open_nameless(folder);
    if (*fd < 0) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s: cannot create a file for keys and values: %s; name another folder with "
            "--kv-cache-dir",
            folder, strerror(errno));
    }
    if (in_memory(*fd)) {
        close(*fd);
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s: its files lie in memory, where keys and values do not fit; name a folder "
            "on a disk with --kv-cache-dir",
            folder);
    }
    int code = reserve(*fd, bytes);
    if (code != 0) {
        close(*fd);
        return dpe_fail(
            err, DPE_IO,
            "%s: cannot reserve %.1f MiB for keys and values: %s; free space there, name "
            "another folder with --kv-cache-dir, or use a smaller --kv-cache-dtype",
            folder, (double)bytes / 0x1p20, strerror(code));
    }
    return DPE_OK;
}

int dpe_kv_file_read(int fd, void *bytes, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)bytes + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? errno : EIO;
        }
        done += (uint64_t)got;
    }
    return 0;
}

int dpe_kv_file_write(int fd, const void *bytes, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return put < 0 ? errno : EIO;
        }
        done += (uint64_t)put;
    }
    return 0;
}

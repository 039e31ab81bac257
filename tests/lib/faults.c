/* See faults.h. */
#include "tests/lib/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct faults faults;

ssize_t __real_write(int fd, const void *bytes, size_t n);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_rename(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __real_ftruncate(int fd, off_t n);
int __real_open(const char *path, int flags, ...);
void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *old, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);

ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_ftruncate(int fd, off_t n);
int __wrap_open(const char *path, int flags, ...);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *old, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);

static bool fails(enum fault_kind kind)
{
    if (faults.kind != kind) {
        return false;
    }
    faults.seen++;
    bool hit = faults.forever ? faults.seen >= faults.nth : faults.seen == faults.nth;
    faults.failed += hit;
    return hit;
}

static bool disk_fails(void)
{
    bool hit = fails(FAULT_DISK);
    if (hit) {
        errno = faults.code;
    }
    return hit;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (disk_fails()) {
        /* A full disk often takes a part first. */
        return n > 9 && __real_write(fd, bytes, n / 3) < 0 ? -1 : (errno = faults.code, -1);
    }
    if (faults.kind == FAULT_SHORT) {
        faults.failed++;
        if (++faults.seen % 3 == 0) {
            errno = EINTR;
            return -1;
        }
        return __real_write(fd, bytes, n > 1 ? n / 2 : n);
    }
    return __real_write(fd, bytes, n);
}

static bool sync_fails(void)
{
    bool hit = disk_fails();
    faults.syncs += hit;
    return hit;
}

int __wrap_fsync(int fd)
{
    return sync_fails() ? -1 : __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
    return sync_fails() ? -1 : __real_fdatasync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    return disk_fails() ? -1 : __real_rename(from, to);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return disk_fails() ? -1 : __real_mkdir(path, mode);
}

int __wrap_ftruncate(int fd, off_t n)
{
    return disk_fails() ? -1 : __real_ftruncate(fd, n);
}

int __wrap_open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list args;
        va_start(args, flags);
        mode = (mode_t)va_arg(args, unsigned);
        va_end(args);
    }
    bool writes = (flags & (O_WRONLY | O_RDWR)) != 0;
    return writes && disk_fails() ? -1 : __real_open(path, flags, mode);
}

void *__wrap_malloc(size_t n)
{
    return fails(FAULT_ALLOC) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    return fails(FAULT_ALLOC) ? NULL : __real_calloc(count, n);
}

void *__wrap_realloc(void *old, size_t n)
{
    return fails(FAULT_ALLOC) ? NULL : __real_realloc(old, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    return fails(FAULT_ALLOC) ? NULL : __real_aligned_alloc(alignment, n);
}

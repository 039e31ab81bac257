/* What systems have in different forms. */
#ifndef __APPLE__
#define _GNU_SOURCE /* pipe2, memfd_create, F_SETSIG, O_TMPFILE */
#endif
#include "engine/system/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#ifdef __APPLE__

#include <mach-o/dyld.h>

bool dpe_program_path(char *path, size_t n)
{
    uint32_t size = (uint32_t)n;
    bool fits = _NSGetExecutablePath(path, &size) == 0;
    errno = fits ? errno : ENAMETOOLONG;
    return fits;
}

int dpe_pipe(int ends[2])
{
    if (pipe(ends) != 0) {
        return -1;
    }
    if (fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0) {
        return 0;
    }
    close(ends[0]);
    close(ends[1]);
    return -1;
}

int dpe_memory_file(void)
{
    const char *folder = getenv("TMPDIR");
    return dpe_nameless_file(folder != NULL ? folder : "/tmp");
}

void dpe_signal_at_close(int reading_end, pid_t pid)
{
    (void)reading_end;
    (void)pid;
}

int dpe_sync_data(int fd)
{
    /* fsync leaves the data in the disk's own memory there; some file systems know only that. */
    return fcntl(fd, F_FULLFSYNC) == 0 ? 0 : fsync(fd);
}

int dpe_condition_init(pthread_cond_t *condition)
{
    return pthread_cond_init(condition, NULL);
}

clockid_t dpe_condition_clock(void)
{
    return CLOCK_REALTIME;
}

bool dpe_page_is_there(const void *page)
{
    (void)page;
    return true;
}

void dpe_file_forget(int fd, off_t first, off_t bytes)
{
    (void)fd;
    (void)first;
    (void)bytes;
}

struct timespec dpe_modified(const struct stat *info)
{
    return info->st_mtimespec;
}

#else

#include <sys/auxv.h>
#include <sys/mman.h>

bool dpe_program_path(char *path, size_t n)
{
    ssize_t length = readlink("/proc/self/exe", path, n);
    if (length < 0) { /* without a /proc: the name by which it was started */
        length = snprintf(path, n, "%s", (const char *)getauxval(AT_EXECFN));
    }
    if (length < 0 || (size_t)length >= n) {
        errno = ENAMETOOLONG;
        return false;
    }
    path[length] = '\0';
    return true;
}

int dpe_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC);
}

int dpe_memory_file(void)
{
    return memfd_create("dpe", MFD_CLOEXEC);
}

void dpe_signal_at_close(int reading_end, pid_t pid)
{
    /* Should the kernel refuse one of these, the child outlives us; nothing else is lost. */
    if (fcntl(reading_end, F_SETOWN, pid) == 0 && fcntl(reading_end, F_SETSIG, SIGTERM) == 0) {
        fcntl(reading_end, F_SETFL, fcntl(reading_end, F_GETFL) | O_ASYNC);
    }
}

int dpe_sync_data(int fd)
{
    return fdatasync(fd);
}

int dpe_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0) {
        return error;
    }
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error = error != 0 ? error : pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return error;
}

clockid_t dpe_condition_clock(void)
{
    return CLOCK_MONOTONIC;
}

bool dpe_page_is_there(const void *page)
{
    unsigned char there = 1;
    /* Fails where pages are larger, or the file is not ours. */
    return mincore((void *)(uintptr_t)page, 1, &there) != 0 || (there & 1U) != 0;
}

void dpe_file_forget(int fd, off_t first, off_t bytes)
{
    (void)posix_fadvise(fd, first, bytes, POSIX_FADV_DONTNEED);
}

struct timespec dpe_modified(const struct stat *info)
{
    return info->st_mtim;
}

#endif

bool dpe_program_folder(char *folder, size_t n)
{
    char *slash = dpe_program_path(folder, n) ? strrchr(folder, '/') : NULL;
    if (slash != NULL) {
        slash[1] = '\0';
    }
    return slash != NULL;
}

bool dpe_random_bytes(void *to, size_t n)
{
    return getentropy(to, n) == 0;
}

/* Without a name from the start where the file system can, else unlinked at once. */
int dpe_nameless_file(const char *folder)
{
    char path[4096];
#if defined(O_TMPFILE)
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
#else
    int fd = -1;
#endif
    int n = snprintf(path, sizeof path, "%s/dpe-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkstemp(path);
    if (fd >= 0) {
        (void)unlink(path);
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return fd;
}

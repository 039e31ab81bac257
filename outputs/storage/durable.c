/* Files that survive a crash, and take nothing's place but the file that they are meant for: create
 * under a name that is not taken, write, sync, rename, sync the folder. */
#include "engine/base/base.h"
#include "engine/system/platform.h"
#include "outputs/storage/storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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
    return dpe_fail(err, status, "%s: %s: %s", path[0] != '\0' ? path : "\"\"", what,
                    strerror(code));
}

dpe_status dpe_make_folder(const char *path, struct dpe_error *err)
{
    return mkdir(path, 0777) != 0 && errno != EEXIST
               ? dpe_fail_errno(err, errno, path, "cannot be created")
               : DPE_OK;
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

dpe_status dpe_sync_folder(const char *folder, struct dpe_error *err)
{
    DPE_SCOPED(dpe_close_fd) int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return dpe_fail_errno(err, errno, folder, "the folder cannot be opened for sync");
    }
    /* Some network file systems cannot sync a folder and return EINVAL; they order renames. */
    return fsync(fd) != 0 && errno != EINVAL
               ? dpe_fail_errno(err, errno, folder, "sync of the folder failed")
               : DPE_OK;
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
    return slash == NULL ? dpe_join(".", "", "")
                         : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

dpe_status dpe_follow_links(const char *path, char **file, struct dpe_error *err)
{
    enum { MOST_LINKS = 40 };
    DPE_OWNED char *at = dpe_join(path, "", "");
    int links = 0;
    for (; links < MOST_LINKS && at != NULL; links++) {
        char target[4096];
        ssize_t n = readlink(at, target, sizeof target);
        if (n < 0 || (size_t)n >= sizeof target) {
            break; /* not a link; the open that follows reports a link that cannot be followed */
        }
        target[n] = '\0';
        DPE_OWNED char *folder = target[0] == '/' ? dpe_join("", "", "") : dpe_parent_folder(at);
        char *next = folder != NULL ? dpe_join(folder, target[0] == '/' ? "" : "/", target) : NULL;
        free(at);
        at = next;
    }
    *file = NULL;
    DPE_TRY(DPE_MADE(at, err, "%s: out of memory", path));
    if (links == MOST_LINKS) {
        return dpe_fail_errno(err, ELOOP, path, "cannot be written");
    }
    *file = at;
    at = NULL;
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------ new files */

enum { BASE_MOST = 200, BOOT_DIGITS = 8, RANDOM_DIGITS = 16 };

/* "NAME.BOOT-": what names of new files of `target` begin with. flock(2) is known to all processes
 * of one boot of one machine, and on some file systems to those alone. */
static void name_prefix(const char *target, char prefix[BASE_MOST + BOOT_DIGITS + 3])
{
    char boot[64];
    dpe_first_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    snprintf(prefix, BASE_MOST + BOOT_DIGITS + 3, "%.*s.%.*s-", (int)BASE_MOST,
             dpe_last_part(target), (int)BOOT_DIGITS, boot);
}

static bool is_new_file(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && strspn(name + n, "0123456789abcdef") == RANDOM_DIGITS &&
           strcmp(name + n + RANDOM_DIGITS, ".tmp") == 0;
}

/* Remove the new files of this target whose process is gone: they are ours and no process holds
 * them. One that appears meanwhile is held, or its creator sees that its name is gone. */
static void remove_abandoned(const char *folder, const char *prefix)
{
    DIR *list = opendir(folder);
    struct dirent *entry = NULL;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        if (!is_new_file(entry->d_name, prefix)) {
            continue;
        }
        DPE_SCOPED(dpe_close_fd)
        int fd = openat(dirfd(list), entry->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat info;
        if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
            flock(fd, LOCK_EX | LOCK_NB) == 0) {
            unlinkat(dirfd(list), entry->d_name, 0);
        }
    }
    if (list != NULL) {
        closedir(list);
    }
}

/* A name that is not taken, created and held. */
static dpe_status create_new(struct dpe_new_file *file, const char *folder, const char *prefix,
                             struct dpe_error *err)
{
    enum { TRIES = 100 };
    for (int tries = 0; tries < TRIES; tries++) {
        uint64_t number = 0;
        char name[BASE_MOST + BOOT_DIGITS + RANDOM_DIGITS + 16];
        if (!dpe_random_bytes(&number, sizeof number)) {
            break; /* only on Linux before 3.17 */
        }
        snprintf(name, sizeof name, "%s%016llx.tmp", prefix, (unsigned long long)number);
        free(file->path);
        file->path = dpe_join(folder, "/", name);
        DPE_TRY(DPE_MADE(file->path, err, "%s: out of memory", file->target));
        file->fd = open(file->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        struct stat info;
        if (file->fd >= 0) {
            /* A process that found it before it was held may hold it for the moment in which it
             * removes it. Where flock is not known no other process removes anything. */
            while (flock(file->fd, LOCK_EX) != 0 && errno == EINTR) {
            }
            if (fstat(file->fd, &info) == 0 && info.st_nlink > 0) {
                return DPE_OK;
            }
            close(file->fd);
            file->fd = -1;
        } else if (errno != EEXIST) {
            break;
        }
    }
    return dpe_fail_errno(err, errno, file->target, "cannot be created");
}

dpe_status dpe_new_file_open(struct dpe_new_file *file, const char *target, const char *beside,
                             struct dpe_error *err)
{
    *file = (struct dpe_new_file){.fd = -1};
    struct stat info;
    if (target[0] == '\0') {
        return dpe_fail(err, DPE_CANNOT_CREATE, "\"\": expected the name of a file");
    }
    if (lstat(target, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) {
        return dpe_fail(err, DPE_CANNOT_CREATE,
                        "%s: expected a regular file or no file, found something else", target);
    }
    DPE_SCOPED(dpe_new_file_drop)
    struct dpe_new_file made = {.fd = -1, .target = dpe_join(target, "", "")};
    DPE_OWNED char *folder = dpe_parent_folder(beside != NULL ? beside : target);
    char prefix[BASE_MOST + BOOT_DIGITS + 3];
    name_prefix(beside != NULL ? beside : target, prefix);
    DPE_TRY(DPE_MADE(folder, err, "%s: out of memory", target));
    DPE_TRY(DPE_MADE(made.target, err, "%s: out of memory", target));
    remove_abandoned(folder, prefix);
    DPE_TRY(create_new(&made, folder, prefix, err));
    *file = made;
    made = (struct dpe_new_file){.fd = -1};
    return DPE_OK;
}

dpe_status dpe_new_file_write(struct dpe_new_file *file, const void *bytes, size_t n,
                              struct dpe_error *err)
{
    return dpe_write_all(file->fd, file->target, bytes, n, err);
}

/* Network file systems report a full disk as late as when a descriptor is closed. The file's own
 * stays open, because its lock does not outlive it. */
static dpe_status sync_file(const struct dpe_new_file *file, struct dpe_error *err)
{
    if (fsync(file->fd) != 0) {
        return dpe_fail_errno(err, errno, file->target, "sync failed");
    }
    int again = dup(file->fd);
    return again >= 0 && close(again) != 0
               ? dpe_fail_errno(err, errno, file->target, "close failed")
               : DPE_OK;
}

dpe_status dpe_new_file_finish(struct dpe_new_file *file, struct dpe_error *err)
{
    DPE_SCOPED(dpe_new_file_drop_scoped) struct dpe_new_file *dropped = file;
    DPE_OWNED char *folder = dpe_parent_folder(file->target);
    DPE_TRY(DPE_MADE(folder, err, "%s: out of memory", file->target));
    DPE_TRY(sync_file(file, err));
    if (rename(file->path, file->target) != 0) {
        return dpe_fail_errno(err, errno, file->target, "cannot be renamed to its final name");
    }
    /* From here on the name is not this file's to remove. */
    free(file->path);
    file->path = NULL;
    return dpe_sync_folder(folder, err);
}

/* Whether the bytes of `old` are the first ones of `fresh`. */
static bool begins_with(int fresh, int old)
{
    enum { BLOCK = 1 << 16 };
    DPE_OWNED char *blocks = malloc(2 * (size_t)BLOCK);
    for (off_t at = 0; blocks != NULL;) {
        ssize_t n = pread(old, blocks, BLOCK, at);
        if (n <= 0) {
            return n == 0;
        }
        if (pread(fresh, blocks + BLOCK, (size_t)n, at) != n ||
            memcmp(blocks, blocks + BLOCK, (size_t)n) != 0) {
            return false;
        }
        at += n;
    }
    return false;
}

/* Whether the target holds what the new file does not begin with. It is closed again here: a
 * network file system cannot replace a file that is open. */
static bool holds_other(const struct dpe_new_file *file)
{
    DPE_SCOPED(dpe_close_fd) int old = open(file->target, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return old < 0 ? errno != ENOENT : !begins_with(file->fd, old);
}

dpe_status dpe_new_file_finish_over(struct dpe_new_file *file, bool force, struct dpe_error *err)
{
    DPE_SCOPED(dpe_new_file_drop_scoped) struct dpe_new_file *dropped = file;
    return !force && holds_other(file)
               ? dpe_fail(err, DPE_MISMATCH,
                          "%s: exists and holds something else; --force replaces it", file->target)
               : dpe_new_file_finish(file, err);
}

void dpe_new_file_drop(struct dpe_new_file *file)
{
    if (file->path != NULL && file->fd >= 0) {
        unlink(file->path);
    }
    if (file->target != NULL && file->fd >= 0) {
        close(file->fd);
    }
    free(file->path);
    free(file->target);
    *file = (struct dpe_new_file){.fd = -1};
}

dpe_status dpe_replace_file(const char *path, const void *bytes, size_t n, struct dpe_error *err)
{
    DPE_SCOPED(dpe_new_file_drop) struct dpe_new_file file = {.fd = -1};
    DPE_TRY(dpe_new_file_open(&file, path, NULL, err));
    DPE_TRY(dpe_new_file_write(&file, bytes, n, err));
    return dpe_new_file_finish(&file, err);
}

dpe_status dpe_extend_file(const char *path, const void *bytes, size_t n, bool force,
                           struct dpe_error *err)
{
    DPE_OWNED char *target = NULL;
    DPE_SCOPED(dpe_new_file_drop) struct dpe_new_file file = {.fd = -1};
    DPE_TRY(dpe_follow_links(path, &target, err));
    DPE_TRY(dpe_new_file_open(&file, target, NULL, err));
    DPE_TRY(dpe_new_file_write(&file, bytes, n, err));
    return dpe_new_file_finish_over(&file, force, err);
}

dpe_status dpe_write_atomic(const char *path, const void *bytes, size_t n, struct dpe_error *err)
{
    return dpe_extend_file(path, bytes, n, true, err);
}

void dpe_first_line(const char *path, char *line, size_t size)
{
    line[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    if (fgets(line, (int)size, file) == NULL) {
        line[0] = '\0';
    }
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
}

void dpe_time_text(char text[32])
{
    time_t now = time(NULL);
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

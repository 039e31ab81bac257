/* Files that survive a crash: write, sync, rename, sync the folder. And the small change of
 * formats: checksums, little-endian integers, times. */
#include "engine/base/base.h"
#include "outputs/storage/storage.h"

#include <errno.h>
#include <fcntl.h>
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
    return dpe_fail(err, status, "%s: %s: %s", path[0] != '\0' ? path : "\"\"", what,
                    strerror(code));
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

char *dpe_follow_links(const char *path)
{
    enum { MOST_LINKS = 40 };
    char *at = dpe_join(path, "", "");
    for (int i = 0; i < MOST_LINKS && at != NULL; i++) {
        char target[4096];
        ssize_t n = readlink(at, target, sizeof target);
        if (n < 0 || (size_t)n >= sizeof target) {
            break; /* no link; what cannot be followed is for whoever opens it to tell */
        }
        target[n] = '\0';
        char *folder = target[0] == '/' ? dpe_join("", "", "") : dpe_parent_folder(at);
        char *next = folder != NULL ? dpe_join(folder, target[0] == '/' ? "" : "/", target) : NULL;
        free(folder);
        free(at);
        at = next;
    }
    return at;
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
    char *file = dpe_follow_links(path);
    char *temporary = file != NULL ? dpe_join(file, ".tmp", "") : NULL;
    if (temporary == NULL) {
        free(file);
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", path);
    }
    dpe_status status = dpe_write_synced(temporary, bytes, n, err);
    if (status == DPE_OK) {
        status = dpe_rename_synced(temporary, file, err);
        if (status != DPE_OK) {
            unlink(temporary);
        }
    }
    free(temporary);
    free(file);
    return status;
}

void dpe_time_text(char text[32])
{
    time_t now = time(NULL);
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

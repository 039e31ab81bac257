/* One process at a time. The lock is flock(2) on a file that also names its holder: flock ends
 * with its process; the text is for people, and for file systems on which flock does nothing. */
#include "engine/base/base.h"
#include "outputs/storage/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Who holds a lock. A process is named by pid and start time, which a reused pid does not share;
 * both mean something only within one boot of one host. */
struct holder {
    char host[128], boot[64], since[32];
    long pid;
    unsigned long long start;
};

/* Clock ticks from boot to the start of a process, 0 when there is none (or no /proc). One that has
 * ended and waits to be reaped is none. */
static unsigned long long process_start(long pid)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    dpe_first_line(path, line, sizeof line);
    /* The name in parentheses may hold anything; field 22 is the 20th after it. */
    const char *at = strrchr(line, ')');
    if (at != NULL && (strncmp(at, ") Z", 3) == 0 || strncmp(at, ") X", 3) == 0)) {
        return 0;
    }
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static void describe_self(struct holder *self)
{
    *self = (struct holder){.pid = (long)getpid()};
    if (gethostname(self->host, sizeof self->host - 1) != 0) {
        snprintf(self->host, sizeof self->host, "unknown");
    }
    for (char *c = self->host; *c != '\0'; c++) {
        if (*c == ' ' || *c == '\n') {
            *c = '_';
        }
    }
    dpe_first_line("/proc/sys/kernel/random/boot_id", self->boot, sizeof self->boot);
    if (self->boot[0] == '\0') {
        snprintf(self->boot, sizeof self->boot, "unknown");
    }
    self->start = process_start(self->pid);
    dpe_time_text(self->since);
}

/* False when the file is empty (it was released) or was never finished. */
static bool read_holder(int fd, struct holder *holder)
{
    char text[512] = "";
    *holder = (struct holder){0};
    if (pread(fd, text, sizeof text - 1, 0) <= 0) {
        return false;
    }
    int got = sscanf(text, "host %127s pid %ld start %llu boot %63s since %31s", holder->host,
                     &holder->pid, &holder->start, holder->boot, holder->since);
    return got == 5;
}

static int holder_text(const struct holder *holder, char *text, size_t size)
{
    return snprintf(text, size, "host %s pid %ld start %llu boot %s since %s\n", holder->host,
                    holder->pid, holder->start, holder->boot, holder->since);
}

static dpe_status write_holder(int fd, const char *path, const struct holder *self,
                               struct dpe_error *err)
{
    char text[512];
    int n = holder_text(self, text, sizeof text);
    return ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0
               ? dpe_fail_errno(err, errno, path, "cannot be written")
               : dpe_write_all(fd, path, text, (size_t)n, err);
}

static bool alive(const struct holder *holder, const struct holder *self)
{
    /* To kill(2) a number below 1 is not one process but many. */
    if (holder->pid < 1 || holder->pid > INT_MAX || strcmp(holder->boot, self->boot) != 0) {
        return false;
    }
    return kill((pid_t)holder->pid, 0) != 0 && errno == ESRCH
               ? false
               : process_start(holder->pid) == holder->start;
}

static dpe_status held_by(const char *path, const struct holder *holder, const char *advice,
                          struct dpe_error *err)
{
    return dpe_fail(err, DPE_CANNOT_CREATE,
                    "%s: the run is held by process %ld on host %s since %s; %s", path, holder->pid,
                    holder->host, holder->since, advice);
}

/* flock is ours, or does nothing here: the text decides. */
static dpe_status judge_holder(const char *path, const struct holder *holder,
                               const struct holder *self, char *note, struct dpe_error *err)
{
    bool here = strcmp(holder->host, self->host) == 0;
    if (here && alive(holder, self)) {
        return held_by(path, holder, "wait for it, or stop it", err);
    }
    if (!here) {
        return held_by(path, holder, "if that process no longer runs, remove this file", err);
    }
    snprintf(note, 256,
             "took over the lock of process %ld on host %s (since %s), which no longer runs",
             holder->pid, holder->host, holder->since);
    return DPE_OK;
}

/* Tries of a lock whose holder is coming or going, and the pause between two of them. */
enum { TRIES = 100, PAUSE_NS = 10 * 1000 * 1000 };

/* ------------------------------------------------------------------------------- without flock */

/* Where flock fails, a lock is a name: whoever gives it first to a file with its text has it (link
 * fails when the name is there). One that is free or whose holder died goes to the process that
 * first takes the claim on it, a lock beside it whose name tells of that holder; it looks once
 * more, since another may have come before, and puts its own file in the place. */

enum { CLAIMS = 3 /* on claims whose holder died as well */ };

static dpe_status take_name(const char *path, int claims, bool *again, char *note,
                            struct dpe_error *err);

/* A file with our text beside the lock. The name is the caller's. */
static dpe_status write_own(const char *path, char **own, struct dpe_error *err)
{
    struct holder self;
    describe_self(&self);
    *own = dpe_join(path, ".", "XXXXXX");
    DPE_TRY(DPE_MADE(*own, err, "%s: out of memory", path));
    DPE_SCOPED(dpe_close_fd) int fd = mkstemp(*own);
    return fd < 0 ? dpe_fail_errno(err, errno, path, "cannot be created")
                  : write_holder(fd, path, &self, err);
}

static void remove_own(char **own)
{
    if (*own != NULL) {
        unlink(*own);
    }
    free(*own);
}

/* Who the file names; false: nobody. *there: whether there is such a file. */
static bool named_by(const char *path, struct holder *holder, bool *there)
{
    DPE_SCOPED(dpe_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    *holder = (struct holder){0};
    *there = fd >= 0;
    return fd >= 0 && read_holder(fd, holder);
}

/* "PATH.from-HOLDER", owned by the caller. */
static char *claim_on(const char *path, const struct holder *holder)
{
    char text[512];
    char name[32];
    holder_text(holder, text, sizeof text);
    snprintf(name, sizeof name, "%016llx",
             (unsigned long long)dpe_fnv(DPE_FNV, text, strlen(text)));
    return dpe_join(path, ".from-", name);
}

/* Put our file in the place of one that still names `holder`, with the claim on it. */
static dpe_status replace_name(const char *path, const char *own, const struct holder *holder,
                               int claims, bool *again, struct dpe_error *err)
{
    char claim_note[256] = "";
    DPE_OWNED char *claim = claim_on(path, holder);
    DPE_TRY(DPE_MADE(claim, err, "%s: out of memory", path));
    if (claims == 0) {
        return dpe_fail(err, DPE_CANNOT_CREATE,
                        "%s: several processes ended while they took this lock over; remove it and "
                        "the files beside it",
                        path);
    }
    dpe_status status = take_name(claim, claims - 1, again, claim_note, err);
    if (status != DPE_OK) {
        *again = true; /* another process takes it over */
        return status;
    }
    struct holder now;
    bool there = false;
    named_by(path, &now, &there);
    *again = !there || memcmp(&now, holder, sizeof now) != 0;
    if (*again) {
        status = dpe_fail(err, DPE_CANNOT_CREATE, "%s: another process took this lock over", path);
    } else if (rename(own, path) != 0) {
        status = dpe_fail_errno(err, errno, path, "cannot be replaced");
    }
    unlink(claim);
    return status;
}

static dpe_status take_name(const char *path, int claims, bool *again, char *note,
                            struct dpe_error *err)
{
    struct holder self, holder;
    DPE_SCOPED(remove_own) char *own = NULL;
    bool there = false;
    *again = false;
    describe_self(&self);
    DPE_TRY(write_own(path, &own, err));
    if (link(own, path) == 0) {
        return DPE_OK;
    }
    if (errno != EEXIST) {
        return dpe_fail_errno(err, errno, path, "cannot be created");
    }
    if (named_by(path, &holder, &there)) {
        DPE_TRY(judge_holder(path, &holder, &self, note, err));
    }
    return replace_name(path, own, &holder, claims, again, err);
}

/* The lock by its name, and its file. */
static dpe_status take_without_flock(const char *path, int *fd, bool *again, char *note,
                                     struct dpe_error *err)
{
    note[0] = '\0';
    *fd = -1;
    DPE_TRY(take_name(path, CLAIMS, again, note, err));
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return *fd < 0 ? dpe_fail_errno(err, errno, path, "cannot be opened") : DPE_OK;
}

/* ---------------------------------------------------------------------------------- with flock */

/* Open and flock. *without: this file system has no flock, and nothing is open. *again after a
 * failure whose holder was seen coming or going: it has not yet written who it is (the file is
 * empty or still names one that died), has taken that back already, or has unlinked the file in
 * between. */
static dpe_status open_locked(const char *path, int *fd, bool *again, bool *without,
                              struct dpe_error *err)
{
    *again = *without = false;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0) {
        return dpe_fail_errno(err, errno, path, "cannot be created");
    }
    int locked = flock(*fd, LOCK_EX | LOCK_NB);
    if (locked != 0 && errno != EWOULDBLOCK && errno != EINTR) {
        close(*fd);
        *fd = -1;
        *without = true;
        return DPE_OK;
    }
    if (locked != 0) {
        struct holder self, holder;
        describe_self(&self);
        bool named = read_holder(*fd, &holder);
        *again = !named || (strcmp(holder.host, self.host) == 0 && !alive(&holder, &self));
        close(*fd);
        *fd = -1;
        return named ? held_by(path, &holder, "wait for it, or stop it", err)
                     : dpe_fail(err, DPE_CANNOT_CREATE,
                                "%s: another process holds this lock, and the file does not name "
                                "it; wait for that "
                                "process, or stop it",
                                path);
    }
    struct stat opened, named;
    if (fstat(*fd, &opened) != 0 || stat(path, &named) != 0 || opened.st_ino != named.st_ino ||
        opened.st_dev != named.st_dev) {
        close(*fd);
        *fd = -1;
        *again = true;
        return dpe_fail(err, DPE_CANNOT_CREATE,
                        "%s: other processes took this lock during every attempt; try again", path);
    }
    return DPE_OK;
}

/* The lock file is open and flocked: whose was it, and now it is ours. */
static dpe_status take_over(int fd, const char *path, char *note, struct dpe_error *err)
{
    struct holder self, holder;
    describe_self(&self);
    if (read_holder(fd, &holder)) {
        DPE_TRY(judge_holder(path, &holder, &self, note, err));
    }
    dpe_status status = write_holder(fd, path, &self, err);
    if (status != DPE_OK) {
        unlink(path);
    }
    return status;
}

/* Once in a process; what was taken over is said before. */
static void warn_once(const char *path, char *note)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&warned)) {
        dpe_append(note, 256,
                   "%s%s: this file system has no flock; the lock holds by its text alone",
                   note[0] != '\0' ? "; " : "", path);
    }
}

dpe_status dpe_lock_take(struct dpe_lock *lock, const char *path, char *note, struct dpe_error *err)
{
    *lock = (struct dpe_lock){.fd = -1};
    note[0] = '\0';
    DPE_OWNED char *name = dpe_join(path, "", "");
    DPE_TRY(DPE_MADE(name, err, "%s: out of memory", path));
    DPE_SCOPED(dpe_close_fd) int fd = -1;
    bool again = false;
    bool without = false;
    dpe_status status = DPE_OK;
    for (int tries = 0; tries == 0 || (status != DPE_OK && again && tries < TRIES); tries++) {
        if (tries > 0) {
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        }
        status = open_locked(path, &fd, &again, &without, err);
        if (status == DPE_OK && without) {
            status = take_without_flock(path, &fd, &again, note, err);
        }
    }
    DPE_TRY(status);
    if (without) {
        warn_once(path, note);
    } else {
        DPE_TRY(take_over(fd, path, note, err));
    }
    *lock = (struct dpe_lock){fd, name};
    fd = -1;
    name = NULL;
    return DPE_OK;
}

bool dpe_lock_held(const struct dpe_lock *lock)
{
    struct holder self, holder;
    bool there = false;
    if (lock->path == NULL || !named_by(lock->path, &holder, &there)) {
        return false;
    }
    describe_self(&self);
    return holder.pid == self.pid && holder.start == self.start &&
           strcmp(holder.host, self.host) == 0 && strcmp(holder.boot, self.boot) == 0;
}

void dpe_lock_release(struct dpe_lock *lock, bool remove)
{
    if (lock->path == NULL) {
        return;
    }
    /* Emptied while it is still held, so that the next holder sees nothing to take over. */
    if (dpe_lock_held(lock) && (remove || ftruncate(lock->fd, 0) != 0)) {
        unlink(lock->path);
    }
    close(lock->fd);
    free(lock->path);
    *lock = (struct dpe_lock){.fd = -1};
}

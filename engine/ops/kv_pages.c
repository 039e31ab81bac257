/* Pages of a file and the frames of memory that hold some of them.
 *
 * `frame_of` says in which frame a page is. Who wants a page adds 1 to the pins of its frame; a
 * frame without pins may be claimed for another page. A claim makes the pins negative by CLAIMED,
 * so that a pin that comes late sees it and takes it back: pinning a page that is here takes no
 * lock. All else happens under the lock, but for reading and writing itself. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* O_TMPFILE */
#endif
#include "engine/ops/kv_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/vfs.h>
#endif

/* ------------------------------------------------------- the file: read and written at a place */

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

/* A file without a name in `folder`, with `bytes` reserved. The caller closes *fd ≥ 0, also after a
 * failure. */
static dpe_status make_file(const char *folder, uint64_t bytes, int *fd, struct dpe_error *err)
{
    *fd = open_nameless(folder);
    if (*fd < 0) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s: cannot create a file for keys and values: %s; name another folder in TMPDIR",
            folder, strerror(errno));
    }
    if (in_memory(*fd)) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s: its files lie in memory, where keys and values do not fit; name a folder "
            "on a disk in TMPDIR",
            folder);
    }
    int code = reserve(*fd, bytes);
    if (code != 0) {
        return dpe_fail(
            err, DPE_IO,
            "%s: cannot reserve %.1f MiB for keys and values: %s; free space there, name "
            "another folder in TMPDIR, or use a smaller --kv-cache-dtype",
            folder, (double)bytes / 0x1p20, strerror(code));
    }
    return DPE_OK;
}

/* 0 or an errno. */
static int read_file(int fd, void *bytes, uint64_t n, uint64_t at)
{
    return dpe_read_at(fd, bytes, n, at) == n ? 0 : errno != 0 ? errno : EIO;
}

static int write_file(int fd, const void *bytes, uint64_t n, uint64_t at)
{
    return dpe_write_at(fd, bytes, n, at) == n ? 0 : errno != 0 ? errno : EIO;
}

/* --------------------------------------------------------------------------------------- pages */

enum { CLAIMED = 1 << 24, ALIGN = 4096 };

struct frame {
    _Atomic int64_t page; /* −1: none */
    atomic_int pins;
    atomic_bool used; /* since the hand of the clock passed */
    atomic_bool dirty;
};

struct dpe_kv_pages {
    int fd;
    int64_t n_frames, hand;
    _Atomic int32_t *frame_of; /* of each page, −1: not here */
    unsigned char *on_disk;    /* of each page whether the file has its content */
    struct frame *frames;
    unsigned char *memory; /* [n_frames][DPE_KV_PAGE] */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a claim has ended */
    atomic_int failed;      /* errno, negative when it was reading that failed; 0: nothing did */
    atomic_ullong read, written;
};

uint64_t dpe_kv_pages_bytes(int64_t pages, int64_t frames)
{
    uint64_t lists = (uint64_t)pages * (sizeof(_Atomic int32_t) + 1);
    return sizeof(struct dpe_kv_pages) + lists +
           (uint64_t)frames * (DPE_KV_PAGE + sizeof(struct frame)) + ALIGN;
}

void dpe_kv_pages_free(struct dpe_kv_pages *pages)
{
    if (pages == NULL) {
        return;
    }
    if (pages->fd >= 0) {
        close(pages->fd);
    }
    pthread_mutex_destroy(&pages->lock);
    pthread_cond_destroy(&pages->changed);
    free(pages->frame_of);
    free(pages->on_disk);
    free(pages->frames);
    free(pages->memory);
    free(pages);
}

dpe_status dpe_kv_pages_make(const char *folder, int64_t n_pages, int64_t n_frames,
                             struct dpe_kv_pages **made, struct dpe_error *err)
{
    DPE_SCOPED(dpe_kv_pages_free_scoped) struct dpe_kv_pages *pages = NULL;
    DPE_TRY(DPE_NEW(&pages, 1, err, "out of memory"));
    pages->fd = -1;
    pages->n_frames = n_frames;
    pthread_mutex_init(&pages->lock, NULL);
    pthread_cond_init(&pages->changed, NULL);
    pages->frame_of = dpe_alloc((size_t)n_pages, sizeof *pages->frame_of);
    pages->on_disk = dpe_alloc_zero((size_t)n_pages, 1);
    pages->frames = dpe_alloc_zero((size_t)n_frames, sizeof *pages->frames);
    pages->memory = dpe_alloc((size_t)n_frames, DPE_KV_PAGE);
    if (pages->frame_of == NULL || pages->on_disk == NULL || pages->frames == NULL ||
        pages->memory == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory: frames for keys and values");
    }
    DPE_TRY(make_file(folder, (uint64_t)n_pages * DPE_KV_PAGE, &pages->fd, err));
    for (int64_t i = 0; i < n_pages; i++) {
        atomic_init(&pages->frame_of[i], -1);
    }
    for (int64_t i = 0; i < n_frames; i++) {
        atomic_init(&pages->frames[i].page, -1);
    }
    *made = pages;
    pages = NULL;
    return DPE_OK;
}

static unsigned char *bytes_of(const struct dpe_kv_pages *pages, int64_t f)
{
    return pages->memory + f * DPE_KV_PAGE;
}

static void fail(struct dpe_kv_pages *pages, int code, bool reading)
{
    int none = 0;
    atomic_compare_exchange_strong(&pages->failed, &none, reading ? -code : code);
}

/* Pin the frame if it holds the page. */
static bool try_pin(struct dpe_kv_pages *pages, int64_t page, int64_t f)
{
    struct frame *frame = &pages->frames[f];
    if (atomic_fetch_add(&frame->pins, 1) >= 0 && atomic_load(&frame->page) == page) {
        if (!atomic_load_explicit(&frame->used, memory_order_relaxed)) {
            atomic_store_explicit(&frame->used, true, memory_order_relaxed);
        }
        return true;
    }
    atomic_fetch_sub(&frame->pins, 1);
    return false;
}

/* Under the lock: a frame without pins that was not used since the hand passed, claimed; −1 when
 * threads hold all of them. */
static int64_t claim(struct dpe_kv_pages *pages)
{
    for (int64_t i = 0; i < 2 * pages->n_frames; i++) {
        int64_t f = pages->hand;
        struct frame *frame = &pages->frames[f];
        int none = 0;
        pages->hand = f + 1 < pages->n_frames ? f + 1 : 0;
        if (atomic_exchange_explicit(&frame->used, false, memory_order_relaxed)) {
            continue;
        }
        if (atomic_compare_exchange_strong(&frame->pins, &none, -CLAIMED)) {
            return f;
        }
    }
    return -1;
}

static void write_back(struct dpe_kv_pages *pages, int64_t f, int64_t page)
{
    int code = write_file(pages->fd, bytes_of(pages, f), DPE_KV_PAGE, (uint64_t)page * DPE_KV_PAGE);
    if (code != 0) {
        fail(pages, code, false);
    }
    atomic_fetch_add(&pages->written, DPE_KV_PAGE);
}

static void fill(struct dpe_kv_pages *pages, int64_t f, int64_t page, bool on_disk)
{
    int code = 0;
    if (on_disk) {
        code = read_file(pages->fd, bytes_of(pages, f), DPE_KV_PAGE, (uint64_t)page * DPE_KV_PAGE);
        atomic_fetch_add(&pages->read, DPE_KV_PAGE);
    }
    if (code != 0) {
        fail(pages, code, true);
    }
    if (!on_disk || code != 0) {
        memset(bytes_of(pages, f), 0, DPE_KV_PAGE);
    }
}

/* Under the lock, which is released meanwhile: the page into a claimed frame, pinned. Until it is
 * there, who wants it or the page that was in the frame finds the claim and waits. */
static void bring(struct dpe_kv_pages *pages, int64_t page, int64_t f)
{
    struct frame *frame = &pages->frames[f];
    int64_t old = atomic_load(&frame->page);
    bool dirty = atomic_exchange(&frame->dirty, false);
    bool on_disk = pages->on_disk[page] != 0;
    atomic_store(&pages->frame_of[page], (int32_t)f);
    pthread_mutex_unlock(&pages->lock);
    if (dirty) {
        write_back(pages, f, old);
    }
    fill(pages, f, page, on_disk);
    pthread_mutex_lock(&pages->lock);
    if (old >= 0) {
        pages->on_disk[old] = dirty || pages->on_disk[old] ? 1 : 0;
        atomic_store(&pages->frame_of[old], -1);
    }
    atomic_store(&frame->page, page);
    atomic_store_explicit(&frame->used, true, memory_order_relaxed);
    atomic_fetch_add(&frame->pins, CLAIMED + 1);
    pthread_cond_broadcast(&pages->changed);
}

static int64_t find(struct dpe_kv_pages *pages, int64_t page)
{
    pthread_mutex_lock(&pages->lock);
    int64_t f = atomic_load(&pages->frame_of[page]);
    while (f < 0 || !try_pin(pages, page, f)) {
        if (f >= 0) {
            pthread_cond_wait(&pages->changed, &pages->lock);
        } else if ((f = claim(pages)) >= 0) {
            bring(pages, page, f);
            break;
        } else {
            /* Who holds a frame never waits here: one of them will be free. */
            pthread_mutex_unlock(&pages->lock);
            sched_yield();
            pthread_mutex_lock(&pages->lock);
        }
        f = atomic_load(&pages->frame_of[page]);
    }
    pthread_mutex_unlock(&pages->lock);
    return f;
}

unsigned char *dpe_kv_pages_pin(struct dpe_kv_pages *pages, int64_t page, bool writes)
{
    int64_t f = atomic_load(&pages->frame_of[page]);
    if (f < 0 || !try_pin(pages, page, f)) {
        f = find(pages, page);
    }
    if (atomic_load_explicit(&pages->failed, memory_order_relaxed) != 0) {
        dpe_kv_pages_unpin(pages, page);
        return NULL;
    }
    if (writes) {
        atomic_store(&pages->frames[f].dirty, true);
    }
    return bytes_of(pages, f);
}

void dpe_kv_pages_unpin(struct dpe_kv_pages *pages, int64_t page)
{
    int64_t f = atomic_load(&pages->frame_of[page]);
    atomic_fetch_sub(&pages->frames[f].pins, 1);
}

int dpe_kv_pages_failed(const struct dpe_kv_pages *pages, bool *reads)
{
    int failed = atomic_load(&pages->failed);
    *reads = failed < 0;
    return abs(failed);
}

struct dpe_kv_work dpe_kv_pages_work(const struct dpe_kv_pages *pages)
{
    return (struct dpe_kv_work){.read = atomic_load(&pages->read),
                                .written = atomic_load(&pages->written)};
}

/* Rows of keys and values: what types keep of them, and a file that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/halves.h"
#include "engine/ops/kv.h"

enum { THREADS = 16 };

/* Calls of the room to the C library: the nth of a kind fails, all are short and interrupted, or
 * reads wait until there is one of each thread. */
static struct {
    enum { NOTHING, READ, WRITE, RESERVE, SHORT, MEET } kind;
    int code;
    long nth, seen;
} fault;
static atomic_int met; /* reads of MEET */
static atomic_ullong bytes_read, bytes_written;

ssize_t __real_pread(int fd, void *bytes, size_t n, off_t at);
ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);
int __real_posix_fallocate(int fd, off_t at, off_t n);
ssize_t __wrap_pread(int fd, void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at);
int __wrap_posix_fallocate(int fd, off_t at, off_t n);

static bool hits(int kind)
{
    if (fault.kind != (unsigned)kind || ++fault.seen < fault.nth) {
        return false;
    }
    errno = fault.code;
    return true;
}

/* What is left of n bytes; 0: interrupted. */
static size_t shortened(size_t n)
{
    if (fault.kind != SHORT) {
        return n;
    }
    fault.seen++;
    errno = EINTR;
    return fault.seen % 3 == 0 ? 0 : (n + 2) / 3;
}

ssize_t __wrap_pread(int fd, void *bytes, size_t n, off_t at)
{
    if (fault.kind == MEET) {
        atomic_fetch_add(&met, 1);
        while (atomic_load(&met) < (int)THREADS) {
            sched_yield();
        }
    }
    atomic_fetch_add(&bytes_read, n);
    n = shortened(n);
    return n == 0 || hits(READ) ? -1 : __real_pread(fd, bytes, n, at);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    atomic_fetch_add(&bytes_written, n);
    n = shortened(n);
    return n == 0 || hits(WRITE) ? -1 : __real_pwrite(fd, bytes, n, at);
}

int __wrap_posix_fallocate(int fd, off_t at, off_t n)
{
    return hits(RESERVE) ? fault.code : __real_posix_fallocate(fd, at, n);
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof fault);
    snprintf(folder, sizeof folder, "/var/tmp/dpe-test-kv-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int entries(void)
{
    DIR *dir = opendir(folder);
    int n = -2; /* . and .. */
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when something was left there */
}

enum { LAYERS = 2, HEADS = 3, QUERY_HEADS = 6, ROWS = 1500, WIDTH = 24 };

static struct dpe_kv_shape shape_of(enum dpe_kv_type type)
{
    return (struct dpe_kv_shape){.type = type,
                                 .layers = LAYERS,
                                 .heads = HEADS,
                                 .capacity = ROWS,
                                 .width = WIDTH,
                                 .query_heads = QUERY_HEADS};
}

static struct dpe_kv *make(enum dpe_kv_type type, bool file)
{
    struct dpe_error err = {0};
    struct dpe_kv *kv = NULL;
    const struct dpe_kv_shape shape = shape_of(type);
    dpe_status status = dpe_kv_create(&shape, file ? folder : NULL, &kv, &err);
    if (status != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return kv;
}

static float number(int part, int64_t layer, int64_t head, int64_t row, int64_t c)
{
    return sinf((float)(part * 7 + layer * 5 + head * 3 + row) + 0.37F * (float)c) *
           (float)(1 + c % 5);
}

static void fill_row(float *out, int part, int64_t layer, int64_t head, int64_t row)
{
    for (int64_t c = 0; c < WIDTH; c++) {
        out[c] = number(part, layer, head, row, c);
    }
}

/* All rows, `run` at a time, out of rows that lie `stride` apart. */
static void write_all(struct dpe_kv *kv, int64_t run)
{
    enum { STRIDE = WIDTH + 8, MOST = 200 };
    static float from[MOST * STRIDE];
    for (int part = 0; part < DPE_KV_PARTS; part++) {
        for (int64_t at = 0; at < ROWS; at += run) {
            int64_t n = ROWS - at < run ? ROWS - at : run;
            for (int64_t l = 0; l < LAYERS; l++) {
                for (int64_t h = 0; h < (part == DPE_KV_QUERIES ? QUERY_HEADS : HEADS); h++) {
                    for (int64_t i = 0; i < n; i++) {
                        fill_row(from + i * STRIDE, part, l, h, at + i);
                    }
                    const struct dpe_kv_rows rows = {(enum dpe_kv_part)part, l, h, at, n};
                    dpe_kv_write(kv, &rows, from, STRIDE);
                }
            }
        }
    }
}

/* Runs of rows at random places by several threads; what the file and memory give is the same. */
static void same_rows(struct dpe_kv *one, struct dpe_kv *other, int reads)
{
    int wrong = 0;
#pragma omp parallel for num_threads(8) schedule(dynamic, 1) reduction(+ : wrong)
    for (int i = 0; i < reads; i++) {
        struct dpe_rng rng;
        dpe_rng_seed(&rng, (uint64_t)i, 3);
        float got[100 * WIDTH];
        float want[100 * WIDTH];
        int part = (int)(dpe_rng_unit(&rng) * DPE_KV_PARTS);
        int64_t heads = part == DPE_KV_QUERIES ? QUERY_HEADS : HEADS;
        struct dpe_kv_rows rows = {.part = (enum dpe_kv_part)part,
                                   .layer = (int64_t)(dpe_rng_unit(&rng) * LAYERS),
                                   .head = (int64_t)(dpe_rng_unit(&rng) * (double)heads),
                                   .count = 1 + (int64_t)(dpe_rng_unit(&rng) * 100)};
        rows.row = (int64_t)(dpe_rng_unit(&rng) * (double)(ROWS - rows.count + 1));
        dpe_kv_read(one, &rows, got);
        dpe_kv_read(other, &rows, want);
        wrong += memcmp(got, want, (size_t)(rows.count * WIDTH) * sizeof *got) != 0;
    }
    assert_int_equal(wrong, 0);
}

static void a_file_gives_what_memory_gives(void **state)
{
    (void)state;
    for (int type = DPE_KV_F32; type <= DPE_KV_INT8; type++) {
        struct dpe_kv *memory = make((enum dpe_kv_type)type, false);
        struct dpe_kv *file = make((enum dpe_kv_type)type, true);
        const struct dpe_kv_shape shape = shape_of((enum dpe_kv_type)type);
        assert_int_equal(entries(), 0); /* the file has no name */
        atomic_store(&bytes_read, 0);
        atomic_store(&bytes_written, 0);
        write_all(memory, 200);
        assert_true(atomic_load(&bytes_written) == 0);
        write_all(file, 61);
        same_rows(file, memory, 3000);
        for (int64_t h = 0; h < HEADS; h++) {
            const struct dpe_kv_rows rows = {DPE_KV_VALUES, 1, h, 3, 700};
            dpe_kv_copy(memory, &rows, 790);
            dpe_kv_copy(file, &rows, 790);
        }
        same_rows(file, memory, 1000);
        assert_true(atomic_load(&bytes_written) > dpe_kv_bytes(&shape));
        assert_true(atomic_load(&bytes_read) > dpe_kv_bytes(&shape));
        assert_int_equal(dpe_kv_status(file, NULL), DPE_OK);
        dpe_kv_destroy(file);
        dpe_kv_destroy(memory);
    }
}

static void types_keep_what_they_promise(void **state)
{
    (void)state;
    float row[WIDTH];
    float out[WIDTH];
    for (int64_t r = 0; r < 500; r++) {
        fill_row(row, 0, 0, 0, r);
        float largest = 0.0F;
        struct dpe_kv_rows rows = {DPE_KV_KEYS, 0, 0, 0, 1};
        struct dpe_kv *half = make(DPE_KV_BF16, false);
        struct dpe_kv *codes = make(DPE_KV_INT8, false);
        dpe_kv_write(half, &rows, row, WIDTH);
        dpe_kv_write(codes, &rows, row, WIDTH);
        dpe_kv_read(half, &rows, out);
        for (int64_t c = 0; c < WIDTH; c++) {
            uint32_t bits = 0;
            memcpy(&bits, &row[c], sizeof bits);
            float below = dpe_from_bf16((uint16_t)(bits >> 16));
            float above = dpe_from_bf16((uint16_t)((bits >> 16) + 1));
            assert_true(out[c] ==
                            (fabsf(row[c] - below) <= fabsf(row[c] - above) ? below : above) ||
                        fabsf(row[c] - below) == fabsf(row[c] - above));
            largest = fabsf(row[c]) > largest ? fabsf(row[c]) : largest;
        }
        dpe_kv_read(codes, &rows, out);
        for (int64_t c = 0; c < WIDTH; c++) {
            assert_true(fabsf(out[c] - row[c]) <= 0.5001F * largest / 127.0F);
        }
        dpe_kv_destroy(half);
        dpe_kv_destroy(codes);
    }
}

/* With a constant for each channel the error of a channel is in proportion to it. */
static void channels_have_scales_of_their_own(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    float channels[HEADS * WIDTH];
    float row[WIDTH];
    float out[WIDTH];
    for (int64_t c = 0; c < HEADS * WIDTH; c++) {
        channels[c] = c % WIDTH == 5 ? 100.0F : 1.0F;
    }
    struct dpe_kv *kv = make(DPE_KV_INT8, true);
    assert_int_equal(dpe_kv_set_channels(kv, 1, channels, &err), DPE_OK);
    for (int64_t r = 0; r < 50; r++) {
        fill_row(row, 0, 1, 2, r);
        row[5] *= 100.0F;
        const struct dpe_kv_rows rows = {DPE_KV_KEYS, 1, 2, r, 1};
        dpe_kv_write(kv, &rows, row, WIDTH);
        dpe_kv_read(kv, &rows, out);
        for (int64_t c = 0; c < WIDTH; c++) {
            assert_true(fabsf(out[c] - row[c]) <= 0.51F * 5.0F / 127.0F * channels[c]);
        }
    }
    dpe_kv_destroy(kv);
}

static void what_is_not_finite_stays_so(void **state)
{
    (void)state;
    float row[WIDTH] = {0};
    float out[WIDTH];
    const float odd[] = {NAN, INFINITY, -INFINITY, 3.4e38F, 1e-44F, 0.0F};
    for (int type = DPE_KV_F32; type <= DPE_KV_INT8; type++) {
        struct dpe_kv *kv = make((enum dpe_kv_type)type, false);
        const struct dpe_kv_rows rows = {DPE_KV_VALUES, 1, 1, 8, 1};
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            row[3] = odd[i];
            dpe_kv_write(kv, &rows, row, WIDTH);
            dpe_kv_read(kv, &rows, out);
            /* The largest float is rounded to an infinity by bfloat16. */
            assert_int_equal(isfinite(out[3]) != 0,
                             isfinite(odd[i]) != 0 && !(type == DPE_KV_BF16 && i == 3));
            assert_true(i < 4 || out[3] == odd[i] || fabsf(out[3]) < 1e-43F);
        }
        dpe_kv_destroy(kv);
    }
}

static dpe_status create(const char *where, struct dpe_error *err)
{
    struct dpe_kv *kv = NULL;
    const struct dpe_kv_shape shape = shape_of(DPE_KV_F32);
    dpe_status status = dpe_kv_create(&shape, where, &kv, err);
    if (status == DPE_OK) {
        dpe_kv_destroy(kv);
    }
    return status;
}

static void a_full_disk_is_found_when_the_file_is_made(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    fault.kind = RESERVE;
    fault.code = ENOSPC;
    assert_int_equal(create(folder, &err), DPE_IO);
    assert_non_null(strstr(err.text, folder));
    assert_non_null(strstr(err.text, "cannot reserve"));
    assert_non_null(strstr(err.text, strerror(ENOSPC)));
    assert_non_null(strstr(err.text, "TMPDIR"));
}

static void folders_that_cannot_hold_the_file(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    char missing[128];
    snprintf(missing, sizeof missing, "%s/none", folder);
    assert_int_equal(create(missing, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, missing));
    assert_non_null(strstr(err.text, strerror(ENOENT)));
    assert_int_equal(create("/dev/null", &err), DPE_CANNOT_CREATE);
    assert_int_equal(create("/dev/shm", &err), DPE_CANNOT_CREATE); /* memory */
}

/* Rows until the file has to be read or written and fails. */
static dpe_status use_until_it_fails(struct dpe_kv *kv, struct dpe_error *err)
{
    float out[100 * WIDTH];
    for (int64_t i = 0; i < 400 && dpe_kv_status(kv, err) == DPE_OK; i++) {
        write_all(kv, 100);
        const struct dpe_kv_rows rows = {DPE_KV_KEYS, i % LAYERS, i % HEADS, i * 37 % 1400, 100};
        dpe_kv_read(kv, &rows, out);
    }
    return dpe_kv_status(kv, err);
}

static void a_file_that_fails_is_named(void **state)
{
    (void)state;
    const struct {
        int kind, code;
        const char *word;
    } rows[] = {{READ, EIO, "reading"}, {WRITE, EIO, "writing"}, {WRITE, ENOSPC, "writing"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (long nth = 1; nth < 200; nth = nth * 3 + 1) {
            struct dpe_error err = {0};
            memset(&fault, 0, sizeof fault);
            struct dpe_kv *kv = make(DPE_KV_F32, true);
            fault.kind = (unsigned)rows[i].kind;
            fault.code = rows[i].code;
            fault.nth = nth;
            assert_int_equal(use_until_it_fails(kv, &err), DPE_IO);
            assert_non_null(strstr(err.text, rows[i].word));
            assert_non_null(strstr(err.text, strerror(rows[i].code)));
            assert_non_null(strstr(err.text, folder));
            float out[WIDTH];
            memset(out, 1, sizeof out);
            const struct dpe_kv_rows one = {DPE_KV_KEYS, 0, 0, 0, 1};
            dpe_kv_read(kv, &one, out);
            for (int64_t c = 0; c < WIDTH; c++) {
                assert_true(out[c] == 0.0F);
            }
            dpe_kv_destroy(kv);
        }
    }
}

/* A thread that asks until the file has failed, and what it saw. */
struct watcher {
    struct dpe_kv *kv;
    atomic_bool asks;
    struct dpe_error err;
};

static void *watch(void *user)
{
    struct watcher *watcher = user;
    atomic_store(&watcher->asks, true);
    while (dpe_kv_status(watcher->kv, &watcher->err) == DPE_OK) {
    }
    return NULL;
}

static void a_failure_is_seen_whole(void **state)
{
    (void)state;
    enum { TRIALS = 200 };
    const struct dpe_kv_rows rows = {DPE_KV_KEYS, 1, 2, 8, 1};
    float out[WIDTH];
    for (int trial = 0; trial < TRIALS; trial++) {
        struct watcher watcher = {.kv = make(DPE_KV_F32, true)};
        pthread_t thread;
        memset(&fault, 0, sizeof fault);
        fault.kind = READ;
        fault.code = EIO;
        fault.nth = 1;
        assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
        while (!atomic_load(&watcher.asks)) {
            sched_yield();
        }
        dpe_kv_read(watcher.kv, &rows, out);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_non_null(strstr(watcher.err.text, "reading"));
        assert_non_null(strstr(watcher.err.text, strerror(EIO)));
        dpe_kv_destroy(watcher.kv);
    }
}

/* Rows of a head, and where copies of them go. */
struct copying {
    struct dpe_kv *kv;
    struct dpe_kv_rows rows;
    int64_t to;
};

static void *copy(void *user)
{
    const struct copying *copying = user;
    dpe_kv_copy(copying->kv, &copying->rows, copying->to);
    return NULL;
}

/* Each is reading its first rows when the others are. */
static void threads_copy_at_once(void **state)
{
    (void)state;
    enum { EACH = LAYERS * HEADS };
    struct dpe_kv *memory = make(DPE_KV_F32, false);
    struct dpe_kv *file = make(DPE_KV_F32, true);
    struct copying copies[THREADS];
    pthread_t threads[THREADS];
    write_all(memory, 200);
    write_all(file, 200);
    atomic_store(&met, 0);
    fault.kind = MEET;
    for (int i = 0; i < THREADS; i++) {
        enum dpe_kv_part part = (enum dpe_kv_part)(i / EACH);
        int64_t heads = part == DPE_KV_QUERIES ? QUERY_HEADS : HEADS;
        copies[i] = (struct copying){file, {part, i % EACH / heads, i % EACH % heads, 0, 600}, 800};
        dpe_kv_copy(memory, &copies[i].rows, copies[i].to);
        assert_int_equal(pthread_create(&threads[i], NULL, copy, &copies[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_true(atomic_load(&met) >= THREADS);
    same_rows(file, memory, 2000);
    assert_int_equal(dpe_kv_status(file, NULL), DPE_OK);
    dpe_kv_destroy(file);
    dpe_kv_destroy(memory);
}

static void short_and_interrupted_calls_are_finished(void **state)
{
    (void)state;
    struct dpe_kv *memory = make(DPE_KV_F32, false);
    struct dpe_kv *file = make(DPE_KV_F32, true);
    fault.kind = SHORT;
    write_all(memory, 100);
    write_all(file, 100);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 1, 1);
    float got[WIDTH];
    float want[WIDTH];
    for (int i = 0; i < 2000; i++) {
        const struct dpe_kv_rows rows = {DPE_KV_VALUES, i % LAYERS, i % HEADS,
                                         (int64_t)(dpe_rng_unit(&rng) * ROWS), 1};
        dpe_kv_read(memory, &rows, want);
        dpe_kv_read(file, &rows, got);
        assert_memory_equal(got, want, sizeof got);
    }
    assert_true(fault.seen > 1000);
    assert_int_equal(dpe_kv_status(file, NULL), DPE_OK);
    dpe_kv_destroy(file);
    dpe_kv_destroy(memory);
}

static void a_kill_leaves_nothing(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dpe_kv *kv = make(DPE_KV_F32, true);
        write_all(kv, 100);
        if (write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            write_all(kv, 100);
        }
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(entries(), 0);
    close(ready[0]);
    close(ready[1]);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_file_gives_what_memory_gives),
        IN_FOLDER(types_keep_what_they_promise),
        IN_FOLDER(channels_have_scales_of_their_own),
        IN_FOLDER(what_is_not_finite_stays_so),
        IN_FOLDER(a_full_disk_is_found_when_the_file_is_made),
        IN_FOLDER(folders_that_cannot_hold_the_file),
        IN_FOLDER(a_file_that_fails_is_named),
        IN_FOLDER(a_failure_is_seen_whole),
        IN_FOLDER(threads_copy_at_once),
        IN_FOLDER(short_and_interrupted_calls_are_finished),
        IN_FOLDER(a_kill_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

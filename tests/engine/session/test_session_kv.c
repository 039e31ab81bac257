/* Sessions whose keys and values are bf16 or int8, or in a file: what the cache in memory gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/session_internal.h"
#include "tests/lib/tiny.h"

/* The read or write that fails, and how many there were. */
static struct {
    bool writes;
    long nth, seen;
    int code;
} fault;
static atomic_ullong bytes_read, bytes_written;

ssize_t __real_pread(int fd, void *bytes, size_t n, off_t at);
ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at);

static bool fails(bool writing)
{
    errno = fault.code;
    return fault.code != 0 && fault.writes == writing && ++fault.seen >= fault.nth;
}

ssize_t __wrap_pread(int fd, void *bytes, size_t n, off_t at)
{
    atomic_fetch_add(&bytes_read, n);
    return fails(false) ? -1 : __real_pread(fd, bytes, n, at);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    atomic_fetch_add(&bytes_written, n);
    return fails(true) ? -1 : __real_pwrite(fd, bytes, n, at);
}

enum { WORDS = 64, N = 560, ROOM = 50, BRANCHES = 3, CHUNK = 128, CAPACITY = N + BRANCHES * ROOM };

/* With refresh=24 rows that share a choice meet their keys as tiles. */
static const char *const specs[] = {
    "rope",
    "dpe:window=40,groups=3,scales=1/2.5/4",
    "streaming-llm:window=90",
    "select:k=2,block=16,sinks=20,local=30,refresh=24,over=self-extend:window=30,group=4",
    "select:k=3,block=8,sinks=3,local=20,representative=extremes,positions=packed",
    "infllm:block=12,sinks=9,local=40,k=3,attended=2,refresh=3",
    "reattention:block=16,sinks=9,local=40,k=3",
};
enum { N_SPECS = sizeof specs / sizeof *specs };

static const struct dpe_config shape = TINY_LLAMA(64, WORDS);

static struct dpe_model *open_model(void)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    struct dpe_config config = shape;
    TINY_OK(dpe_random_model(&config, true, 5, &model, &err), err);
    return model;
}

static struct dpe_plan plan_of(const struct dpe_model *model, const char *spec)
{
    struct dpe_error err = {0};
    struct dpe_plan plan;
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = 128, .length = CAPACITY};
    TINY_OK(dpe_plan_make(spec, &context, &plan, &err), err);
    if (strncmp(spec, "dpe", 3) == 0) {
        tiny_mask(&plan);
    }
    return plan;
}

/* Bytes of a session whose keys and values are in a file. */
static uint64_t least_memory(const struct dpe_model *model, const struct dpe_plan *plan,
                             struct dpe_session_options options)
{
    struct dpe_error err = {0};
    struct dpe_session_needs needs = {0};
    options.max_memory = 1;
    TINY_OK(dpe_session_estimate(dpe_model_config(model), plan, &options, &needs, &err), err);
    assert_true(needs.file > 0);
    return needs.memory;
}

/* With a file where `file`: as little memory as such a session can have. */
static struct dpe_session *open_session(const struct dpe_model *model, const char *spec,
                                        enum dpe_kv_type type, bool file)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    struct dpe_plan plan = plan_of(model, spec);
    struct dpe_session_options options = {.device = "cpu",
                                          .n_threads = 3,
                                          .capacity = CAPACITY,
                                          .branches = BRANCHES,
                                          .prefill_chunk = CHUNK,
                                          .kv_type = type};
    if (file) {
        options.kv_dir = "/var/tmp";
        options.max_memory = least_memory(model, &plan, options);
    }
    TINY_OK(dpe_session_create(model, &plan, &options, &session, &err), err);
    assert_int_equal(dpe_session_memory(session).file > 0, file);
    dpe_plan_free(&plan);
    return session;
}

static const int32_t *words(void)
{
    static int32_t tokens[CAPACITY];
    for (int i = 0; i < CAPACITY; i++) {
        tokens[i] = (int32_t)((i * i + 7 * i + i / 13) % WORDS);
    }
    return tokens;
}

/* Logits of everything that a cache goes through, one row after another. */
struct trace {
    float rows[64][WORDS];
    int n;
};

static float *next(struct trace *trace)
{
    assert_true(trace->n < 64);
    return trace->rows[trace->n++];
}

static void feed(struct dpe_session *s, int64_t to, struct trace *trace)
{
    struct dpe_error err = {0};
    int64_t from = s->length[0];
    TINY_OK(dpe_session_feed(s, words() + from, to - from, next(trace), &err), err);
}

/* Prefill, tokens one by one, cuts and other continuations, branches of their
 * own lengths, a copy. */
static void go_through(struct dpe_session *s, struct trace *trace)
{
    struct dpe_error err = {0};
    const int32_t *w = words();
    feed(s, 400, trace);
    for (int64_t i = 401; i < 406; i++) {
        feed(s, i, trace);
    }
    TINY_OK(dpe_session_cut(s, 217, &err), err);
    TINY_OK(dpe_session_feed(s, w + 3, 90, next(trace), &err), err);
    TINY_OK(dpe_session_cut(s, 200, &err), err);
    feed(s, N - 1, trace);
    TINY_OK(dpe_session_branch(s, BRANCHES, ROOM, &err), err);
    for (int64_t b = 0; b < BRANCHES; b++) {
        TINY_OK(dpe_session_branch_feed(s, b, w + 11 * b, 7 + 9 * b, next(trace), &err), err);
    }
    const int64_t branches[BRANCHES] = {2, 0, 1};
    for (int i = 0; i < 9; i++) {
        if (i == 5) {
            TINY_OK(dpe_session_branch_copy(s, 2, 0, N - 1 + 20, &err), err);
        }
        float logits[BRANCHES * WORDS];
        TINY_OK(dpe_session_step(s, BRANCHES, branches, w + 5 * i, logits, &err), err);
        for (int b = 0; b < BRANCHES; b++) {
            memcpy(next(trace), logits + b * WORDS, sizeof trace->rows[0]);
        }
    }
}

/* The same of a session whose keys and values are in a file, which is written and read. */
static void go_through_file(struct dpe_session *s, struct trace *trace)
{
    atomic_store(&bytes_read, 0);
    atomic_store(&bytes_written, 0);
    go_through(s, trace);
    assert_true(atomic_load(&bytes_read) > 0);
    assert_true(atomic_load(&bytes_written) > 0);
}

static void a_file_gives_the_same_bits(void **state)
{
    (void)state;
    struct dpe_model *model = open_model();
    for (int i = 0; i < N_SPECS * 3; i++) {
        enum dpe_kv_type type = (enum dpe_kv_type)(i % 3);
        if (type != DPE_KV_F32 && i / 3 % 3 != 0) {
            continue; /* the other types for every third plan */
        }
        struct trace want = {.n = 0};
        struct trace got = {.n = 0};
        struct dpe_session *memory = open_session(model, specs[i / 3], type, false);
        struct dpe_session *file = open_session(model, specs[i / 3], type, true);
        go_through(memory, &want);
        go_through_file(file, &got);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.rows, want.rows, (size_t)want.n * sizeof want.rows[0]);
        dpe_session_destroy(file);
        dpe_session_destroy(memory);
    }
    dpe_model_close(model);
}

/* Largest difference of two rows in units of the spread of the second. */
static double difference(const float *got, const float *want)
{
    double largest = 0.0;
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < WORDS; i++) {
        largest = fmax(largest, fabs((double)got[i] - (double)want[i]));
        sum += (double)want[i];
        squares += (double)want[i] * (double)want[i];
    }
    return largest / sqrt(squares / WORDS - sum * sum / WORDS / WORDS);
}

/* Full attention: where blocks are chosen, a rounded key may change a choice. */
static void types_stay_within_their_bounds(void **state)
{
    (void)state;
    static const double bounds[] = {0.0, 0.03, 0.1};
    struct dpe_model *model = open_model();
    for (int i = 0; i < 3 * 2; i++) {
        enum dpe_kv_type type = i % 2 == 0 ? DPE_KV_BF16 : DPE_KV_INT8;
        struct trace want = {.n = 0};
        struct trace got = {.n = 0};
        struct dpe_session *exact = open_session(model, specs[i / 2], DPE_KV_F32, false);
        struct dpe_session *rounded = open_session(model, specs[i / 2], type, false);
        go_through(exact, &want);
        go_through(rounded, &got);
        double largest = 0.0;
        for (int r = 0; r < want.n; r++) {
            largest = fmax(largest, difference(got.rows[r], want.rows[r]));
        }
        printf("%s, %s: logits differ by %.4f of their spread\n", specs[i / 2],
               dpe_kv_type_names[type], largest);
        assert_true(largest > 0.0 && largest < bounds[type]);
        dpe_session_destroy(rounded);
        dpe_session_destroy(exact);
    }
    dpe_model_close(model);
}

/* However tokens are divided: the same bits where calls end at chunks, else to the type's rounding;
 * a cache that was cut back is one that never had more. */
static void chunks_and_cuts_do_not_matter(void **state)
{
    (void)state;
    struct dpe_model *model = open_model();
    for (int i = 0; i < 3 * 2 * 2; i++) {
        enum dpe_kv_type type = (enum dpe_kv_type)(i % 3);
        const char *spec = i / 6 == 0 ? specs[1] : specs[3];
        struct dpe_session *one = open_session(model, spec, type, false);
        struct dpe_session *other = open_session(model, spec, type, i / 3 % 2 == 1);
        struct trace want = {.n = 0};
        struct trace got = {.n = 0};
        struct dpe_error err = {0};
        feed(one, N, &want);
        feed(other, CHUNK, &got);
        feed(other, 3 * CHUNK, &got);
        TINY_OK(dpe_session_feed(other, words(), 100, NULL, &err), err);
        TINY_OK(dpe_session_cut(other, 2 * CHUNK, &err), err);
        feed(other, N, &got);
        assert_memory_equal(got.rows[2], want.rows[0], sizeof want.rows[0]);
        TINY_OK(dpe_session_cut(other, N - 40, &err), err);
        for (int64_t to = N - 39; to <= N; to++) {
            got.n = 3;
            feed(other, to, &got);
        }
        double apart = difference(got.rows[3], want.rows[0]);
        printf("%s, %s: decoding differs from prefill by %.2g\n", spec, dpe_kv_type_names[type],
               apart);
        assert_true(apart < (type == DPE_KV_F32 ? 1e-4 : 0.04));
        dpe_session_destroy(other);
        dpe_session_destroy(one);
    }
    dpe_model_close(model);
}

/* A model whose attention has branches: compressed and chosen keys, and a window, of one cache. */
static void branches_read_every_cache(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    struct dpe_config config = shape;
    config.branches = true;
    config.selection = dpe_selection_compressed(8, 4);
    config.n_kinds = 2;
    config.kinds[1].window = 20;
    TINY_OK(dpe_random_model(&config, true, 6, &model, &err), err);
    for (int i = 0; i < 3; i++) {
        struct trace want = {.n = 0};
        struct trace got = {.n = 0};
        struct dpe_session *memory = open_session(model, "rope", (enum dpe_kv_type)i, false);
        struct dpe_session *file = open_session(model, "rope", (enum dpe_kv_type)i, true);
        go_through(memory, &want);
        go_through_file(file, &got);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.rows, want.rows, (size_t)want.n * sizeof want.rows[0]);
        dpe_session_destroy(file);
        dpe_session_destroy(memory);
    }
    dpe_model_close(model);
}

/* Each plan after another in one session, and what the cache of the plan before left. */
static void plans_follow_each_other(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_model *model = open_model();
    for (int i = 0; i < 2 * N_SPECS; i++) {
        bool in_file = i % 2 == 1;
        const char *spec = specs[i / 2];
        struct trace want = {.n = 0};
        struct trace got = {.n = 0};
        struct dpe_session *fresh = open_session(model, spec, DPE_KV_INT8, false);
        struct dpe_session *used =
            open_session(model, specs[(i / 2 + 2) % N_SPECS], DPE_KV_INT8, in_file);
        struct dpe_plan plan = plan_of(model, spec);
        feed(used, 300, &got);
        used->options.max_memory = in_file ? 8 << 20 : 0; /* enough for every plan's tables */
        TINY_OK(dpe_session_set_plan(used, &plan, &err), err);
        feed(used, N, &got);
        feed(fresh, N, &want);
        assert_memory_equal(got.rows[1], want.rows[0], sizeof want.rows[0]);
        dpe_plan_free(&plan);
        dpe_session_destroy(used);
        dpe_session_destroy(fresh);
    }
    dpe_model_close(model);
}

/* Prefill, decoding and branches: the call that meets the failure and all after it say so. */
static void a_file_that_fails_ends_the_call(void **state)
{
    (void)state;
    struct dpe_model *model = open_model();
    for (int i = 0; i < 2 * 2 * 5; i++) {
        struct dpe_error err = {0};
        float logits[WORDS];
        const char *spec = i % 2 == 0 ? specs[0] : specs[5];
        struct dpe_session *s = open_session(model, spec, DPE_KV_F32, true);
        fault.writes = i / 2 % 2 == 1;
        fault.nth = 1 + 10 * (i / 4);
        fault.seen = 0;
        fault.code = fault.writes ? ENOSPC : EIO;
        dpe_status status = DPE_OK;
        int64_t before = 0;
        for (int64_t at = 0; at < N && status == DPE_OK; at += 70) {
            before = s->length[0];
            status = dpe_session_feed(s, words() + at, 70, logits, &err);
        }
        assert_int_equal(status, DPE_IO);
        assert_non_null(strstr(err.text, "/var/tmp: "));
        assert_non_null(strstr(err.text, fault.writes ? "writing" : "reading"));
        assert_non_null(strstr(err.text, strerror(fault.code)));
        assert_int_equal(s->length[0], before);
        fault.code = 0;
        assert_int_equal(dpe_session_feed(s, words(), 1, logits, &err), DPE_IO);
        dpe_session_destroy(s);
    }
    dpe_model_close(model);
}

/* A plan whose file cannot be made leaves the session without a plan; the next
 * call makes the file. */
static void a_plan_can_follow_one_without_a_file(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_model *model = open_model();
    struct trace want = {.n = 0};
    struct trace got = {.n = 0};
    const char *spec = specs[5];
    struct dpe_plan plan = plan_of(model, spec);
    struct dpe_session *fresh = open_session(model, spec, DPE_KV_F32, false);
    struct dpe_session *used = open_session(model, specs[0], DPE_KV_F32, true);
    feed(used, 300, &got);
    /* The cache of the second plan has queries too. */
    used->options.max_memory = least_memory(model, &plan, used->options);
    used->options.kv_dir = "/nowhere";
    assert_int_equal(dpe_session_set_plan(used, &plan, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "/nowhere"));
    assert_int_equal(dpe_session_memory(used).file, 0);
    assert_int_not_equal(dpe_session_feed(used, words(), 1, next(&got), &err), DPE_OK);
    used->options.kv_dir = "/var/tmp";
    TINY_OK(dpe_session_set_plan(used, &plan, &err), err);
    assert_true(dpe_session_memory(used).file > 0);
    feed(used, N, &got);
    feed(fresh, N, &want);
    assert_memory_equal(got.rows[2], want.rows[0], sizeof want.rows[0]);
    dpe_plan_free(&plan);
    dpe_session_destroy(used);
    dpe_session_destroy(fresh);
    dpe_model_close(model);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    struct dpe_model *model = open_model();
    struct dpe_plan plan = plan_of(model, "rope");
    struct dpe_session_options options = {
        .device = "reference", .capacity = CAPACITY, .kv_type = DPE_KV_INT8};
    assert_int_equal(dpe_session_create(model, &plan, &options, &session, &err), DPE_NO_DEVICE);
    assert_non_null(strstr(err.text, "reference"));
    assert_non_null(strstr(err.text, "int8"));
    /* No file without a folder, nor on another device; no memory for the rest. */
    options = (struct dpe_session_options){
        .device = "reference", .capacity = CAPACITY, .max_memory = 1 << 20, .kv_dir = "/var/tmp"};
    assert_int_equal(dpe_session_create(model, &plan, &options, &session, &err), DPE_NO_MEMORY);
    options.device = "cpu";
    options.max_memory = 4096;
    assert_int_equal(dpe_session_create(model, &plan, &options, &session, &err), DPE_NO_MEMORY);
    assert_non_null(strstr(err.text, "are allowed"));
    struct dpe_session_needs needs = {0};
    TINY_OK(dpe_session_estimate(dpe_model_config(model), &plan, &options, &needs, &err), err);
    options.max_memory = needs.memory;
    options.kv_dir = "/nowhere";
    assert_int_equal(dpe_session_create(model, &plan, &options, &session, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "/nowhere"));
    options.kv_dir = NULL;
    assert_int_equal(dpe_session_create(model, &plan, &options, &session, &err), DPE_NO_MEMORY);
    dpe_plan_free(&plan);
    dpe_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_gives_the_same_bits),
        cmocka_unit_test(types_stay_within_their_bounds),
        cmocka_unit_test(chunks_and_cuts_do_not_matter),
        cmocka_unit_test(branches_read_every_cache),
        cmocka_unit_test(plans_follow_each_other),
        cmocka_unit_test(a_file_that_fails_ends_the_call),
        cmocka_unit_test(a_plan_can_follow_one_without_a_file),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

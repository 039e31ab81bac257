/* Attention alone on a GPU: every kernel that runs on it.
 *
 *     bench_attention_cuda [-q] [kernel [head_dim [length …]]]  (default: all, 128, 8192 16384
 * 32768 131072)
 *
 * kernel: mma, wgmma or all. First every kernel
 * against the plain one at odd lengths, every method; then, per length, kernel and method, the
 * median of a few runs: milliseconds, TFLOP/s (4 · head_dim · heads · visible pairs) and the time
 * over that of rope. A kernel with a difference above 0.02 is not timed, and the program ends with
 * 1; with 125 where there is no device, or none of these kernels for it. Shape: 32 query heads, 8
 * KV heads, bfloat16; -q: 4 and 2, and short checks, to try the program itself on the emulated
 * device. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/base.h"
#include "engine/base/halves.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/prefill/attention_wgmma.h"
#include "engine/cuda/runtime/runtime.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

enum { RUNS = 15, MOST_KERNELS = 2, METHODS = 4 };
static const double RUN_SECONDS = 0.02; /* so that a launch counts little */
static const double MOST_DIFFERENCE = 0.02;
/* More numbers than these are these again: that costs a kernel the same. */
static const int64_t DRAWN = 1 << 24;

static const char *const methods[METHODS] = {"rope", "dpe:window=1024,scales=2/8/2/8/32/32/16/4",
                                             "dca:chunk=6144,local=1024",
                                             "self-extend:window=1024,group=32"};

/* What kernels are held against the plain one with; the second of a size is for -q. */
static const struct check {
    const char *method;
    int64_t rows;
} checks[2][METHODS + 2] = {
    {{"rope", 1937},
     {"dpe:window=1024,scales=2/8/2/8/32/32/16/4", 1937},
     {"dca:chunk=6144,local=1024", 1937},
     {"self-extend:window=1024,group=32", 1937},
     {"dpe:window=300,scales=2/8/2/8/32/32/16/4", 1000},
     {"dca:chunk=700,local=100", 2000}},
    {{"rope", 137},
     {"dpe:window=64,scales=2/8/2/8/32/32/16/4", 137},
     {"dca:chunk=96,local=32", 137},
     {"self-extend:window=64,group=32", 137},
     {"dpe:window=30,scales=2/8/2/8/32/32/16/4", 100},
     {"dca:chunk=70,local=10", 150}},
};

static int64_t n_heads = 32;
static int64_t n_kv_heads = 8;
static struct dpe_cuda_info device;

static void check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "bench_attention_cuda: %s: %s\n", what, dpe_rt_text(code));
        exit(70);
    }
}

static void check_status(dpe_status status, const char *what, const struct dpe_error *err)
{
    if (status != DPE_OK) {
        fprintf(stderr, "bench_attention_cuda: %s: %s\n", what, err->text);
        exit(dpe_exit_code(status));
    }
}

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "bench_attention_cuda: out of memory\n");
        exit(DPE_NO_MEMORY);
    }
    return memory;
}

/* --------------------------------------------------------------------------------------- inputs */

struct kernel {
    const char *name;
    struct dpe_tile_shape shape;
    enum { PLAIN, MMA, WGMMA } kind;
};

struct inputs {
    int64_t rows, d;
    void *q[DPE_MAX_BANDS], *k[DPE_MAX_BANDS], *v, *out, *lse;
    int32_t *counters;
};

static void *allocate(int64_t bytes)
{
    void *at = NULL;
    check(dpe_rt_allocate(&at, (uint64_t)bytes), "memory");
    return at;
}

/* [DRAWN] about normal with deviation 1, as bfloat16. */
static const uint16_t *drawn_numbers(void)
{
    static uint16_t *numbers;
    struct dpe_rng rng;
    if (numbers != NULL) {
        return numbers;
    }
    numbers = need(dpe_alloc((size_t)DRAWN, sizeof *numbers));
    dpe_rng_seed(&rng, 1, 1);
    for (int64_t i = 0; i < DRAWN; i++) {
        uint32_t a = dpe_rng_u32(&rng);
        uint32_t b = dpe_rng_u32(&rng);
        /* Four uniform numbers have the variance of a third. */
        uint32_t sum = (a & 0xffffU) + (a >> 16) + (b & 0xffffU) + (b >> 16);
        float value = ((float)sum / 65536.0F - 2.0F) * 1.732F;
        uint32_t bits = 0;
        memcpy(&bits, &value, sizeof bits);
        numbers[i] = (uint16_t)(bits >> 16);
    }
    return numbers;
}

/* n of them on the device, again and again, from another place for every stream. */
static void *make_numbers(int64_t n, int64_t stream)
{
    const uint16_t *numbers = drawn_numbers();
    char *at = allocate(n * 2);
    int64_t from = stream * 1000003 % DRAWN;
    for (int64_t i = 0; i < n;) {
        int64_t some = DRAWN - from < n - i ? DRAWN - from : n - i;
        check(dpe_rt_up(at + 2 * i, numbers + from, (uint64_t)some * 2), "numbers");
        i += some;
        from = 0;
    }
    return at;
}

static struct inputs make_inputs(int64_t rows, int64_t d)
{
    struct inputs in = {.rows = rows, .d = d};
    for (int64_t c = 0; c < DPE_MAX_BANDS; c++) {
        in.q[c] = make_numbers(n_heads * rows * d, 1 + c);
        in.k[c] = make_numbers(n_heads * rows * d, 11 + c);
    }
    in.v = make_numbers(n_kv_heads * rows * d, 21);
    in.out = allocate(n_heads * rows * d * 2);
    in.lse = allocate(n_heads * rows * (int64_t)sizeof(float));
    in.counters = allocate(2 * (int64_t)sizeof *in.counters);
    check(dpe_rt_fill(in.counters, 0, 2 * sizeof *in.counters), "counters");
    return in;
}

static void free_inputs(struct inputs *in)
{
    for (int c = 0; c < DPE_MAX_BANDS; c++) {
        check(dpe_rt_release(in->q[c]), "release");
        check(dpe_rt_release(in->k[c]), "release");
    }
    check(dpe_rt_release(in->v), "release");
    check(dpe_rt_release(in->out), "release");
    check(dpe_rt_release(in->lse), "release");
    check(dpe_rt_release(in->counters), "release");
}

static int find_kernels(const char *wanted, int64_t d, struct kernel *found)
{
    int n = 0;
    bool all = strcmp(wanted, "all") == 0;
    struct dpe_tile_shape wgmma = dpe_attention_wgmma_shape(d, false);
    struct dpe_tile_shape mma = dpe_attention_mma_shape(d);
    if (device.major == 9 && wgmma.rows > 0 && (all || strcmp(wanted, "wgmma") == 0)) {
        found[n++] = (struct kernel){"wgmma", wgmma, WGMMA};
    }
    if (mma.rows > 0 && (all || strcmp(wanted, "mma") == 0)) {
        found[n++] = (struct kernel){"mma.sync", mma, MMA};
    }
    return n;
}

/* ---------------------------------------------------------------------------------------- calls */

/* A call over all rows from position 0, its walk on the device. */
struct prepared {
    struct dpe_flash call;
    void *walk;
    double pairs; /* that a query and a key make, per head */
};

static struct dpe_plan make_plan(const char *method, int64_t rows, int64_t d)
{
    struct dpe_plan plan;
    struct dpe_error err = {0};
    struct dpe_config config = {
        .model_type = "llama",
        .n_layers = 1,
        .n_heads = n_heads,
        .n_kv_heads = n_kv_heads,
        .head_dim = d,
        .max_position = 8192,
        .rope = {.type = DPE_ROPE_DEFAULT, .theta = 500000.0},
    };
    const struct dpe_plan_context context = {.config = &config,
                                             .trained_length = 8192,
                                             .length = rows < 8192 ? 8192 : rows,
                                             .official = true};
    check_status(dpe_plan_make(method, &context, &plan, &err), method, &err);
    /* A mask that differs between heads: far keys then lie there per query head. */
    if (strncmp(method, "dpe", 3) == 0) {
        size_t n = (size_t)(n_heads * plan.n_pairs);
        free(plan.mask);
        plan.mask = need(dpe_alloc(n, 1));
        for (size_t i = 0; i < n; i++) {
            plan.mask[i] = (i * 0x9e3779b97f4a7c15U >> 62) != 0;
        }
        for (int b = 1; b < plan.n_bands; b++) {
            plan.bands[b].per_head = true;
        }
    }
    return plan;
}

static double count_pairs(const struct dpe_plan *plan, int64_t rows)
{
    double pairs = 0.0;
    const int64_t sample = rows < 16 ? 1 : rows / 16;
    if (plan->bands[0].lo == 0 && plan->bands[plan->n_bands - 1].hi == INT64_MAX) {
        return 0.5 * (double)rows * (double)(rows + 1);
    }
    for (int64_t m = sample / 2; m < rows; m += sample) {
        for (int64_t n = 0; n <= m; n++) {
            pairs += dpe_plan_band(plan, m, n) >= 0 ? (double)sample : 0.0;
        }
    }
    return pairs;
}

static struct prepared prepare(const struct inputs *in, const char *method,
                               struct dpe_tile_shape shape)
{
    struct dpe_plan plan = make_plan(method, in->rows, in->d);
    struct dpe_rotation rotation = {0};
    struct dpe_walk walk = {0};
    struct dpe_error err = {0};
    check_status(dpe_rotation_make(&plan, 64, 1, &rotation, &err), method, &err);
    struct dpe_rotated_copies q = dpe_rotated_find(&plan, &rotation, false);
    struct dpe_rotated_copies k = dpe_rotated_find(&plan, &rotation, true);
    check_status(dpe_walk_make(&plan, &q, &k, shape, 0, in->rows, &walk, &err), method, &err);
    int64_t blocks = walk.n_blocks * (int64_t)sizeof *walk.blocks;
    int64_t segments = walk.n_segments * (int64_t)sizeof *walk.segments;
    struct prepared p = {.walk = allocate(blocks + segments),
                         .pairs = count_pairs(&plan, in->rows)};
    char *at = p.walk;
    check(dpe_rt_up(at, walk.segments, (uint64_t)segments), "copy");
    check(dpe_rt_up(at + segments, walk.blocks, (uint64_t)blocks), "copy");
    p.call = (struct dpe_flash){
        .dtype = DPE_BF16,
        .n_heads = n_heads,
        .n_kv_heads = n_kv_heads,
        .head_dim = in->d,
        .rows = in->rows,
        .q_head_stride = in->rows * in->d,
        .v = in->v,
        .v_head_stride = in->rows * in->d,
        .out = in->out,
        .lse = in->lse,
        .segments = p.walk,
        .blocks = (const struct dpe_query_block *)(const void *)(at + segments),
        .n_blocks = walk.n_blocks,
        .scale = (float)dpe_plan_query_scale(&plan, 0, 0),
        .log_n = dpe_log_n_of(&plan),
    };
    for (int c = 0; c < q.n; c++) {
        p.call.q[c] = in->q[c];
    }
    for (int c = 0; c < k.n; c++) {
        p.call.k[c] = in->k[c];
        p.call.k_head_stride[c] = in->rows * in->d;
        p.call.k_per_head[c] = k.copies[c].per_head;
    }
    dpe_walk_free(&walk);
    dpe_rotation_free(&rotation);
    dpe_plan_free(&plan);
    return p;
}

static int launch(const struct kernel *k, const struct prepared *p, const struct inputs *in)
{
    if (k->kind == WGMMA) {
        return dpe_attention_wgmma(&p->call, in->counters);
    }
    return k->kind == MMA ? dpe_attention_mma(&p->call) : dpe_attention_plain(&p->call);
}

/* The output's bits. */
static uint16_t *run_once(const struct kernel *k, const char *method, const struct inputs *in)
{
    struct prepared p = prepare(in, method, k->shape);
    size_t n = (size_t)(in->rows * n_heads * in->d);
    uint16_t *bits = need(dpe_alloc(n, sizeof *bits));
    check(dpe_rt_fill(in->out, 0xff, n * sizeof *bits), "poison");
    check(launch(k, &p, in), k->name);
    check(dpe_rt_wait(), k->name);
    check(dpe_rt_down(bits, in->out, n * sizeof *bits), "copy");
    check(dpe_rt_release(p.walk), "release");
    return bits;
}

/* ------------------------------------------------------------------------------------ checking */

/* The worst difference of a row of one head over the value's own size plus the spread of that row.
 * (Of the first rows, which see few keys, values and so the rounding of weights are ten times those
 * of all.) */
static double row_difference(const uint16_t *got, const uint16_t *want, int64_t d)
{
    double square = 0.0;
    double worst = 0.0;
    for (int64_t i = 0; i < d; i++) {
        square += (double)dpe_from_bf16(want[i]) * (double)dpe_from_bf16(want[i]);
    }
    double spread = sqrt(square / (double)d);
    for (int64_t i = 0; i < d; i++) {
        double size = fabs((double)dpe_from_bf16(want[i])) + spread;
        double apart = fabs((double)dpe_from_bf16(got[i]) - (double)dpe_from_bf16(want[i]));
        apart = apart == 0.0 ? 0.0 : apart / size;
        worst = apart <= worst ? worst : (isnan(apart) ? (double)INFINITY : apart);
    }
    return worst;
}

static bool agree(const struct kernel *k, const struct check *c, int64_t d)
{
    const struct kernel plain = {"plain", dpe_attention_plain_shape(d), PLAIN};
    struct inputs in = make_inputs(c->rows, d);
    double worst = 0.0;
    /* Before it runs: when a case hangs, it is the last one printed. */
    printf("%-32s %-46s %6" PRId64 " rows: ", k->name, c->method, c->rows);
    fflush(stdout);
    uint16_t *want = run_once(&plain, c->method, &in);
    uint16_t *got = run_once(k, c->method, &in);
    for (int64_t i = 0; i < c->rows * n_heads * d; i += d) {
        worst = fmax(worst, row_difference(got + i, want + i, d));
    }
    printf("worst difference %.4f\n", worst);
    fflush(stdout);
    free(want);
    free(got);
    free_inputs(&in);
    return worst <= MOST_DIFFERENCE;
}

/* ------------------------------------------------------------------------------------- timing */

static double now(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one of n launches in a row. */
static double run_some(const struct kernel *k, const struct prepared *p, const struct inputs *in,
                       int n)
{
    double begin = now();
    for (int i = 0; i < n; i++) {
        check(launch(k, p, in), k->name);
    }
    check(dpe_rt_wait(), k->name);
    return (now() - begin) / n;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_one(const struct kernel *k, const struct prepared *p, const struct inputs *in)
{
    double seconds[RUNS];
    (void)run_some(k, p, in, 2);
    double one = run_some(k, p, in, 1);
    int launches = (int)fmin(fmax(RUN_SECONDS / one, 1.0), 100.0);
    /* Fewer of long ones. */
    int runs = (int)fmin(fmax(1.0 / (one * launches), 3.0), RUNS);
    for (int i = 0; i < runs; i++) {
        seconds[i] = run_some(k, p, in, launches);
    }
    qsort(seconds, (size_t)runs, sizeof *seconds, by_size);
    return seconds[runs / 2];
}

static void time_length(const struct kernel *right, int n, int64_t rows, int64_t d)
{
    struct inputs in = make_inputs(rows, d);
    for (int i = 0; i < n; i++) {
        double rope = 0.0;
        for (int m = 0; m < METHODS; m++) {
            struct prepared p = prepare(&in, methods[m], right[i].shape);
            double seconds = time_one(&right[i], &p, &in);
            double flop = 4.0 * (double)d * (double)n_heads * p.pairs;
            rope = m == 0 ? seconds : rope;
            printf("%7" PRId64 "  %-32s %-46s %9.3f ms %7.1f TFLOP/s  %.4f of rope\n", rows,
                   right[i].name, methods[m], 1e3 * seconds, flop / seconds * 1e-12,
                   seconds / rope);
            fflush(stdout);
            check(dpe_rt_release(p.walk), "release");
        }
    }
    free_inputs(&in);
}

static _Noreturn void refuse(const char *what, const char *found)
{
    fprintf(stderr, "bench_attention_cuda: expected %s, found %s\n", what, found);
    exit(DPE_USAGE);
}

/* A number of the command line, or what it is without one. */
static int64_t number(char **rest, int n_rest, int at, int64_t usual)
{
    char *end = NULL;
    int64_t value = at < n_rest ? strtoll(rest[at], &end, 10) : usual;
    if (at < n_rest && (*end != '\0' || value < 1 || value > INT32_MAX)) {
        refuse("a head dimension and lengths", rest[at]);
    }
    return value;
}

int main(int argc, char **argv)
{
    static const int64_t usual[] = {8192, 16384, 32768, 131072};
    bool quick = argc > 1 && strcmp(argv[1], "-q") == 0;
    char **rest = argv + 1 + quick;
    int n_rest = argc - 1 - quick;
    const char *wanted = n_rest > 0 ? rest[0] : "all";
    int64_t d = number(rest, n_rest, 1, 128);
    int n_lengths = n_rest > 2 ? n_rest - 2 : 4;
    int count = 0;
    if (strcmp(wanted, "all") != 0 && strcmp(wanted, "mma") != 0 && strcmp(wanted, "wgmma") != 0) {
        refuse("mma, wgmma or all", wanted);
    }
    for (int i = 2; i < n_rest; i++) {
        (void)number(rest, n_rest, i, 1); /* refused before anything takes its time */
    }
    if (dpe_rt_count(&count) != 0 || count == 0) {
        printf("no device here\n");
        return 125;
    }
    check(dpe_rt_use(0), "device");
    check(dpe_rt_info(0, &device), "device");
    n_heads = quick ? 4 : n_heads;
    n_kv_heads = quick ? 2 : n_kv_heads;
    printf("%s, %d multiprocessors, head_dim %" PRId64 ", %" PRId64 " query heads, %" PRId64
           " KV heads, bfloat16\n",
           device.name, device.processors, d, n_heads, n_kv_heads);
    struct kernel found[MOST_KERNELS];
    int n_right = 0;
    bool all = true;
    int n = find_kernels(wanted, d, found);
    if (n == 0) {
        printf("no such kernel here: %s\n", wanted);
        return 125;
    }
    for (int i = 0; i < n; i++) {
        bool good = true;
        for (int c = 0; c < METHODS + 2; c++) {
            good = agree(&found[i], &checks[quick][c], d) && good;
        }
        if (!good) {
            printf("%s is wrong: it is not timed\n", found[i].name);
        }
        found[n_right] = found[i];
        n_right += good;
        all = all && good;
    }
    for (int i = 0; i < n_lengths; i++) {
        time_length(found, n_right, number(rest, n_rest, 2 + i, usual[i < 4 ? i : 3]), d);
    }
    return all ? 0 : 1;
}

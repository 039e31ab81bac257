/* Attention of the CPU backend against the machine's own peak, rope and dpe, in float and, where
 * the processor can, in bfloat16 ("bf16"; the peak remains that of floats). The peak is that of
 * tiles that stay in the first cache level, measured before every run, because other work may share
 * the machine.
 *
 *   bench_attention [THREADS [CHUNK [LENGTH …]]]     defaults: 1, 512, and 4096 8192 16384
 * With one thread the time is the thread's own (CPU), so that other programs' turns do not count;
 * with more it is wall-clock time. CHUNK 0 is one call for the whole length. Best of five, all in
 * turn. stdout: one JSON object a line. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <omp.h>

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/plan/methods/methods.h"

enum { REPEATS = 5 };

static clockid_t clock_id = CLOCK_THREAD_CPUTIME_ID;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tiles; their floating-point operations. */
static double multiply(const struct dpe_cpu_kernels *kernels)
{
    enum { DEPTH = 128, TIMES = 2000 };
    float rows[DPE_CPU_MAX_MR * DEPTH] = {0.0F};
    float panel[2 * DPE_CPU_MAX_LANES * DEPTH] = {0.0F};
    float sums[DPE_CPU_MAX_MR * 2 * DPE_CPU_MAX_LANES];
    for (int i = 0; i < TIMES; i++) {
        kernels->tile(rows, panel, DEPTH, sums, kernels->panel);
    }
    return 2.0 * (double)(kernels->mr * kernels->panel) * DEPTH * TIMES;
}

/* Peak of `threads` threads in GFLOP/s: best of a few bursts, long enough for all to overlap. */
static double measure_peak(const struct dpe_cpu_kernels *kernels, int threads)
{
    double best = 0.0;
    for (int burst = 0; burst < 3; burst++) {
        double flops = 0.0;
        double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : flops)
        flops += multiply(kernels);
        double rate = flops / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* 4 query and 2 KV heads, one layer. */
static struct dpe_config config_of(int64_t head_dim, int64_t length)
{
    struct dpe_config config = {
        .model_type = "llama",
        .n_layers = 1,
        .hidden = 4 * head_dim,
        .intermediate = 10 * head_dim,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = head_dim,
        .vocab = 2048,
        .max_position = length / 4,
        .rms_eps = 1e-5,
    };
    config.rope.type = DPE_ROPE_DEFAULT;
    config.rope.theta = 10000.0;
    config.rope.partial_rotary_factor = 1.0;
    return config;
}

/* rope, or dpe with half of the pairs of every head in the mask. */
static void make_plan(const char *name, const struct dpe_config *config, int64_t length,
                      struct dpe_plan *plan)
{
    struct dpe_error err = {0};
    struct dpe_plan_context context = {
        .config = config, .trained_length = length / 4, .length = length};
    dpe_status status = DPE_OK;
    if (strcmp(name, "rope") == 0) {
        status = dpe_plan_make("rope", &context, plan, &err);
    } else {
        int64_t n_pairs = config->head_dim / 2;
        int64_t n = config->n_layers * config->n_heads * n_pairs;
        uint8_t *mask = dpe_alloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            mask[i] = (i * 2654435761U >> 7) % 2 == 0;
        }
        int32_t edges[9];
        double scale[8];
        for (int g = 0; g < 8; g++) {
            scale[g] = 2.0 + g;
        }
        status = dpe_plan_group_edges(n_pairs, 8, edges, &err);
        int64_t window = length / 32 < 1024 ? length / 32 : 1024;
        struct dpe_dpe_params params = {
            .window = window, .n_groups = 8, .edges = edges, .scale = scale, .mask = mask};
        if (status == DPE_OK) {
            status = dpe_plan_make_dpe(&params, &context, plan, &err);
        }
        free(mask);
    }
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

static float *random_floats(int64_t n, uint64_t seed)
{
    float *x = dpe_alloc((size_t)n, sizeof *x);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, 1);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(dpe_rng_unit(&rng) - 0.5);
    }
    return x;
}

/* One method's run: everything `attend` needs. */
struct side {
    const char *method;
    const struct dpe_cpu_bf16 *bf16;
    struct dpe_plan plan;
    struct dpe_rotation rotation;
    void *workspace;
    double best, peak; /* seconds, GFLOP/s */
};

struct work {
    const struct dpe_cpu_kernels *kernels;
    struct dpe_config config;
    int64_t length, chunk;
    int threads;
    float *q, *k, *v, *out;
};

static struct side side_make(const char *method, const struct dpe_cpu_bf16 *bf16,
                             const struct work *work)
{
    struct dpe_error err = {0};
    struct side side = {.method = method, .bf16 = bf16, .best = 1e30};
    make_plan(method, &work->config, work->length, &side.plan);
    if (dpe_rotation_make(&side.plan, work->length, work->threads, &side.rotation, &err) !=
        DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    side.workspace =
        dpe_alloc(dpe_cpu_attention_workspace(work->kernels, bf16, &work->config, &side.plan,
                                              work->length, work->chunk, work->threads),
                  1);
    return side;
}

/* Causal attention over the whole length in chunks. */
static void attend(const struct work *work, struct side *side)
{
    int64_t width = work->config.n_heads * work->config.head_dim;
    double before = measure_peak(work->kernels, work->threads);
    double start = now();
    for (int64_t at = 0; at < work->length; at += work->chunk) {
        struct dpe_attention args = {
            .plan = &side->plan,
            .rotation = &side->rotation,
            .start = at,
            .rows = work->length - at < work->chunk ? work->length - at : work->chunk,
            .n_heads = work->config.n_heads,
            .n_kv_heads = work->config.n_kv_heads,
            .head_dim = work->config.head_dim,
            .capacity = work->length,
            .q = work->q + at * width,
            .k = work->k,
            .v = work->v,
            .out = work->out + at * width,
            .workspace = side->workspace,
            .n_threads = work->threads,
        };
        dpe_cpu_attention(work->kernels, side->bf16, &args, 1);
    }
    double seconds = now() - start;
    side->best = fmin(side->best, seconds);
    side->peak = fmax(side->peak, before);
}

static void report(const struct work *work, const struct side *side)
{
    double products = 0.0;
    double flops = 0.0;
    dpe_config_flops(&work->config, 0, work->length, 0, &products, &flops);
    double rate = flops / side->best * 1e-9;
    printf("{\"method\": \"%s\", \"dtype\": \"%s\", \"kernels\": \"%s\", \"threads\": %d, "
           "\"head_dim\": %" PRId64 ", \"length\": %" PRId64
           ", \"ms\": %.2f, \"GFLOP/s\": %.1f, \"peak\": %.1f, \"share\": %.3f}\n",
           side->method, side->bf16 != NULL ? "bf16" : "f32", work->kernels->name, work->threads,
           work->config.head_dim, work->length, side->best * 1e3, rate, side->peak,
           rate / side->peak);
}

/* All in turn, so that a change of the machine's load meets all. */
static void compare(const struct work *work)
{
    const struct dpe_cpu_bf16 *bf16 = dpe_cpu_bf16_choose();
    struct side sides[4];
    int n = 0;
    for (int i = 0; i < (bf16 != NULL ? 4 : 2); i++) {
        sides[n++] = side_make(i % 2 == 0 ? "rope" : "dpe", i < 2 ? NULL : bf16, work);
    }
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int i = 0; i < n; i++) {
            attend(work, &sides[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        report(work, &sides[i]);
    }
    for (int i = 0; i < n; i += 2) {
        printf("{\"head_dim\": %" PRId64 ", \"length\": %" PRId64
               ", \"dtype\": \"%s\", \"dpe / rope\": %.3f, \"f32 / this, rope\": %.3f}\n",
               work->config.head_dim, work->length, i == 0 ? "f32" : "bf16",
               sides[i + 1].best / sides[i].best, sides[0].best / sides[i].best);
    }
    for (int i = 0; i < n; i++) {
        dpe_plan_free(&sides[i].plan);
        dpe_rotation_free(&sides[i].rotation);
        free(sides[i].workspace);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int64_t dims[] = {64, 128};
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    clock_id = threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    int64_t chunk = argc > 2 ? atoi(argv[2]) : 512;
    for (size_t i = 0; i < 2; i++) {
        for (int a = 3; a < (argc > 3 ? argc : 6); a++) {
            int64_t length = argc > 3 ? atoi(argv[a]) : (int64_t)512 << a;
            struct work work = {
                .kernels = dpe_cpu_kernels_choose(),
                .config = config_of(dims[i], length),
                .length = length,
                .chunk = chunk < length && chunk > 0 ? chunk : length,
                .threads = threads,
            };
            int64_t kv = length * work.config.n_kv_heads * dims[i];
            int64_t q = length * work.config.n_heads * dims[i];
            work.q = random_floats(q, 1);
            work.k = random_floats(kv, 2);
            work.v = random_floats(kv, 3);
            work.out = random_floats(q, 4);
            compare(&work);
            free(work.q);
            free(work.k);
            free(work.v);
            free(work.out);
        }
    }
    return 0;
}

/* Speed of the CPU backend against the machine's own peak: attention alone and whole prefills, rope
 * and dpe. The peak is measured by a small loop of fused multiply-adds right before and after each
 * figure, because other work may share the machine; shares are taken of the larger of the two.
 *
 *   bench_attention [THREADS [LENGTH …]]      defaults: 1, and 4096 8192 16384
 * stdout: one JSON object a line. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <omp.h>

#include "ops_cpu_kernels.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Peak of `threads` threads in GFLOP/s: best of a few bursts, long enough for all to overlap. */
static double measure_peak(const struct dpe_cpu_kernels *kernels, int threads)
{
    double best = 0.0;
    for (int burst = 0; burst < 3; burst++) {
        double flops = 0.0;
        double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : flops)
        flops += kernels->peak(2000000);
        double rate = flops / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

struct shape {
    int64_t n_heads, n_kv_heads, head_dim, layers;
};

static struct dpe_config config_of(const struct shape *shape, int64_t length)
{
    struct dpe_config config = {
        .model_type = "llama",
        .n_layers = shape->layers,
        .hidden = shape->n_heads * shape->head_dim,
        .intermediate = 4 * shape->n_heads * shape->head_dim,
        .n_heads = shape->n_heads,
        .n_kv_heads = shape->n_kv_heads,
        .head_dim = shape->head_dim,
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
        struct dpe_dpe_params params = {window, 8, edges, scale, mask, false};
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

/* Median seconds of a causal attention over `length` tokens, in chunks of `chunk`. */
static double time_attention(const struct dpe_cpu_kernels *kernels, const struct shape *shape,
                             const struct dpe_plan *plan, int64_t length, int64_t chunk,
                             int threads, double *peak)
{
    struct dpe_error err = {0};
    struct dpe_config config = config_of(shape, length);
    struct dpe_rotation rotation;
    if (dpe_rotation_make(plan, length, 1, &rotation, &err) != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    int64_t width = shape->n_heads * shape->head_dim;
    float *q = random_floats(length * width, 1);
    float *k = random_floats(length * shape->n_kv_heads * shape->head_dim, 2);
    float *v = random_floats(length * shape->n_kv_heads * shape->head_dim, 3);
    float *out = random_floats(length * width, 4);
    void *workspace =
        dpe_alloc(dpe_cpu_attention_workspace(kernels, &config, plan, length, chunk, threads), 1);
    double times[3];
    double before = measure_peak(kernels, threads);
    for (int repeat = 0; repeat < 3; repeat++) {
        double start = now();
        for (int64_t at = 0; at < length; at += chunk) {
            struct dpe_attention args = {
                .plan = plan,
                .rotation = &rotation,
                .start = at,
                .rows = length - at < chunk ? length - at : chunk,
                .n_heads = shape->n_heads,
                .n_kv_heads = shape->n_kv_heads,
                .head_dim = shape->head_dim,
                .capacity = length,
                .q = q + at * width,
                .k = k,
                .v = v,
                .out = out + at * width,
                .workspace = workspace,
                .n_threads = threads,
            };
            dpe_cpu_attention(kernels, &args);
        }
        times[repeat] = now() - start;
    }
    double after = measure_peak(kernels, threads);
    *peak = before > after ? before : after;
    free(q);
    free(k);
    free(v);
    free(out);
    free(workspace);
    dpe_rotation_free(&rotation);
    double low = fmin(times[0], times[1]);
    double high = fmax(times[0], times[1]);
    return fmax(low, fmin(high, times[2]));
}

int main(int argc, char **argv)
{
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    const struct shape shapes[] = {{4, 2, 64, 1}, {4, 2, 128, 1}};
    int64_t chunk = getenv("CHUNK") ? atoi(getenv("CHUNK")) : 1 << 30;
    for (size_t i = 0; i < 2; i++) {
        for (int a = 2; a < (argc > 2 ? argc : 5); a++) {
            int64_t length = argc > 2 ? atoi(argv[a]) : (int64_t)1024 << a;
            double seconds[2];
            for (int p = 0; p < 2; p++) {
                struct dpe_config config = config_of(&shapes[i], length);
                struct dpe_plan plan;
                double peak = 0.0;
                make_plan(p == 0 ? "rope" : "dpe", &config, length, &plan);
                seconds[p] = time_attention(kernels, &shapes[i], &plan, length,
                                            chunk < length ? chunk : length, threads, &peak);
                double products = 0.0;
                double flops = 0.0;
                dpe_config_flops(&config, 0, length, 0, &products, &flops);
                double rate = flops / seconds[p] * 1e-9;
                printf("{\"kernels\": \"%s\", \"threads\": %d, \"head_dim\": %" PRId64
                       ", \"length\": %" PRId64
                       ", \"method\": \"%s\", \"ms\": %.2f, \"gflops\": %.1f, \"peak\": %.1f, "
                       "\"share\": %.3f}\n",
                       kernels->name, threads, shapes[i].head_dim, length, p == 0 ? "rope" : "dpe",
                       seconds[p] * 1e3, rate, peak, rate / peak);
                dpe_plan_free(&plan);
            }
            printf("{\"head_dim\": %" PRId64 ", \"length\": %" PRId64
                   ", \"attention dpe / rope\": %.3f}\n",
                   shapes[i].head_dim, length, seconds[1] / seconds[0]);
            fflush(stdout);
        }
    }
    return 0;
}

/* Whole prefills of a model folder on the CPU backend, rope and dpe, and decoding behind them.
 *
 *   bench_prefill MODEL [THREADS [CHUNK [LENGTH …]]]     defaults: 2, 0 (session's own), 2048 4096
 * Wall-clock time and the time of all threads together (CPU) / threads: on a machine that others
 * use too, the second is what it would take alone. Best of three. One JSON object a line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

static double clock_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(dpe_status status, const struct dpe_error *err)
{
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err->text);
        exit(dpe_exit_code(status));
    }
}

/* dpe: eight groups, half of all pairs in the masks, window 1024 or an eighth of a quarter. */
static void make_plan(bool dpe, const struct dpe_config *config, int64_t length,
                      struct dpe_plan *plan)
{
    struct dpe_error err = {0};
    struct dpe_plan_context context = {
        .config = config, .trained_length = length / 4, .length = length};
    if (!dpe) {
        must(dpe_plan_make("rope", &context, plan, &err), &err);
        return;
    }
    int64_t n_pairs = config->head_dim / 2;
    size_t n = (size_t)(config->n_layers * config->n_heads * n_pairs);
    uint8_t *mask = dpe_alloc(n, 1);
    for (size_t i = 0; mask != NULL && i < n; i++) {
        mask[i] = (i * 2654435761U >> 7) % 2 == 0;
    }
    int32_t edges[9];
    const double scale[8] = {2, 8, 2, 8, 32, 32, 16, 4};
    must(dpe_plan_group_edges(n_pairs, 8, edges, &err), &err);
    int64_t window = length / 32 < 1024 ? length / 32 : 1024;
    struct dpe_dpe_params params = {window, 8, edges, scale, mask, false};
    must(dpe_plan_make_dpe(&params, &context, plan, &err), &err);
    free(mask);
}

struct times {
    double wall, cpu, token; /* seconds of a prefill, twice, and CPU seconds of a decoded token */
};

static struct times run(const struct dpe_model *model, bool dpe, int64_t length, int threads,
                        int64_t chunk)
{
    enum { NEW = 32 };
    struct dpe_error err = {0};
    const struct dpe_config *config = dpe_model_config(model);
    struct dpe_session_options options = {
        .n_threads = threads, .capacity = length + NEW, .prefill_chunk = chunk};
    struct dpe_plan plan;
    struct dpe_session *session = NULL;
    make_plan(dpe, config, length, &plan);
    must(dpe_session_create(model, &plan, &options, &session, &err), &err);
    int32_t *tokens = dpe_alloc((size_t)length, sizeof *tokens);
    float *logits = dpe_alloc((size_t)config->vocab, sizeof *logits);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 1, 1);
    for (int64_t i = 0; i < length; i++) {
        tokens[i] = (int32_t)dpe_rng_below(&rng, (uint32_t)config->vocab);
    }
    struct times best = {1e30, 1e30, 1e30};
    for (int repeat = 0; repeat < 3; repeat++) {
        must(dpe_session_cut(session, 0, &err), &err);
        double wall = clock_of(CLOCK_MONOTONIC);
        double cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
        must(dpe_session_feed(session, tokens, length, logits, &err), &err);
        cpu = (clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) / threads;
        wall = clock_of(CLOCK_MONOTONIC) - wall;
        double token = clock_of(CLOCK_PROCESS_CPUTIME_ID);
        for (int i = 0; i < NEW; i++) {
            must(dpe_session_feed(session, tokens, 1, logits, &err), &err);
        }
        token = (clock_of(CLOCK_PROCESS_CPUTIME_ID) - token) / NEW;
        best.wall = wall < best.wall ? wall : best.wall;
        best.cpu = cpu < best.cpu ? cpu : best.cpu;
        best.token = token < best.token ? token : best.token;
    }
    free(tokens);
    free(logits);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
    return best;
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_prefill MODEL [THREADS [CHUNK [LENGTH …]]]\n");
        return DPE_USAGE;
    }
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    int64_t chunk = argc > 3 ? atoi(argv[3]) : 0;
    must(dpe_model_open(argv[1], NULL, &model, &err), &err);
    for (int a = 4; a < (argc > 4 ? argc : 6); a++) {
        int64_t length = argc > 4 ? atoi(argv[a]) : (int64_t)128 << a;
        double products = 0.0;
        double attention = 0.0;
        dpe_config_flops(dpe_model_config(model), 0, length, 1, &products, &attention);
        struct times times[2];
        for (int dpe = 0; dpe < 2; dpe++) {
            times[dpe] = run(model, dpe == 1, length, threads, chunk);
            printf("{\"method\": \"%s\", \"threads\": %d, \"length\": %" PRId64
                   ", \"wall ms\": %.1f, \"cpu ms\": %.1f, \"tokens/s\": %.0f, \"tokens/cpu s\": "
                   "%.0f, \"GFLOP/cpu s\": %.0f, \"decode cpu ms/token\": %.3f}\n",
                   dpe == 1 ? "dpe" : "rope", threads, length, times[dpe].wall * 1e3,
                   times[dpe].cpu * 1e3, (double)length / times[dpe].wall,
                   (double)length / times[dpe].cpu, (products + attention) / times[dpe].cpu * 1e-9,
                   times[dpe].token * 1e3);
        }
        printf("{\"length\": %" PRId64 ", \"dpe / rope, wall\": %.3f, \"dpe / rope, cpu\": %.3f}\n",
               length, times[1].wall / times[0].wall, times[1].cpu / times[0].cpu);
        fflush(stdout);
    }
    dpe_model_close(model);
    return 0;
}

/* Decoding of the CPU backend beside the rate at which this machine's threads read memory, measured
 * in turn with it, because other work may share the machine: steps of 1 to 16 sequences of a model
 * folder that share a context, and attention of one query alone (rope, and dpe with half of the
 * pairs of each head).
 *
 *   bench_decode [-b] [-c CONTEXT] [-k TYPE] [-n SEQUENCES] [-s SESSIONS] MODEL [THREADS [KEYS
 *                [STEPS]]]                             defaults: 1, 16384 (of attention), 40
 * With -b, steps on the device cpu-bf16 too, after those in float of as many sequences. -c: tokens
 * of the context that the sequences share (32), with the dpe plan of `make_plan` too where the
 * model has it; -k: type of keys and values; -n: of how many sequences on. -s: instead of the
 * above, steps of so many sessions beside each other, rope and dpe by turns, each with a context of
 * its own and SEQUENCES (1) of them: all in one step, and in turn one after another. Wall-clock
 * time of the fastest four steps or call of attention, processor time of all threads in the four
 * steps that took least of it, share of the fastest read. One JSON object a line. Tools set how
 * long a thread waits before it sleeps (engine/README.md); here the environment does. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <omp.h>

#include "engine/base/base.h"
#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/model/model.h"
#include "engine/ops/options.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"

enum { MOST = 16, TOGETHER = 4, READ_BYTES = 256 << 20, CACHE_BYTES = 192 << 20 };

static void must(dpe_status status, const struct dpe_error *err)
{
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err->text);
        exit(dpe_exit_code(status));
    }
}

static void *some(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 1 << 21, bytes) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(DPE_NO_MEMORY);
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    return memory;
}

/* Numbers like those of a model: of bytes alone come some whose products are subnormal, which the
 * processor multiplies slowly. */
static float *some_floats(int64_t n)
{
    float *numbers = some((size_t)n * sizeof *numbers);
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525U + 1013904223U;
        numbers[i] = (float)(state >> 8) * 0x1p-23F - 1.0F;
    }
    return numbers;
}

/* Each thread reads a part of its own from the first byte to the last. */
struct reads {
    const uint64_t *memory;
    int threads;
    double best; /* bytes/s so far */
};

static void read_once(struct reads *reads)
{
    int64_t part = READ_BYTES / 8 / reads->threads / 64 * 64;
    uint64_t all = 0;
    double start = dpe_clock();
#pragma omp parallel num_threads(reads->threads) reduction(| : all)
    {
        const uint64_t *from = reads->memory + omp_get_thread_num() * part;
        for (int64_t i = 0; i < part; i++) {
            all |= from[i];
        }
    }
    double rate = (double)(part * 8 * reads->threads) / (dpe_clock() - start);
    reads->best = all != 0 ? fmax(reads->best, rate) : 0.0;
}

static double weight_bytes(const struct dpe_config *c)
{
    int64_t n = (int64_t)dpe_config_parameters(c) - (c->tied_embeddings ? 0 : c->vocab * c->hidden);
    return (double)n * (c->dtype == DPE_F32 ? 4.0 : 2.0);
}

static void make_plan(bool dpe, const struct dpe_config *c, int64_t length, struct dpe_plan *plan)
{
    struct dpe_error err = {0};
    const struct dpe_plan_context context = {
        .config = c, .trained_length = length / 4, .length = length};
    if (!dpe) {
        must(dpe_plan_make("rope", &context, plan, &err), &err);
        return;
    }
    int64_t pairs = c->n_layers * c->n_heads * c->head_dim / 2;
    uint8_t *mask = some((size_t)pairs);
    int32_t edges[9];
    const double scale[8] = {2, 8, 2, 8, 32, 32, 16, 4};
    for (int64_t i = 0; i < pairs; i++) {
        mask[i] = (i * 2654435761U >> 7) % 2 == 0;
    }
    must(dpe_plan_group_edges(c->head_dim / 2, 8, edges, &err), &err);
    const struct dpe_dpe_params params = {
        .window = 1024, .n_groups = 8, .edges = edges, .scale = scale, .mask = mask};
    must(dpe_plan_make_dpe(&params, &context, plan, &err), &err);
    free(mask);
}

/* What all steps have in common. */
struct bench {
    const struct dpe_config *config;
    struct dpe_session_options options;
    struct reads *reads;
    int64_t context;
    int64_t sequences; /* or 0: 1, 2, 4, … MOST */
    int64_t sessions;
    int steps;
    bool dpe;
};

static struct dpe_session *steps_open(const struct dpe_model *model, const struct bench *bench)
{
    struct dpe_error err = {0};
    struct dpe_plan plan;
    struct dpe_session *s = NULL;
    int32_t *tokens = some((size_t)bench->context * sizeof *tokens);
    for (int64_t i = 0; i < bench->context; i++) {
        tokens[i] = (int32_t)((i * 37 + bench->sessions) % bench->config->vocab);
    }
    make_plan(bench->dpe, bench->config, bench->context + bench->steps, &plan);
    must(dpe_session_create(model, &plan, &bench->options, &s, &err), &err);
    must(dpe_session_feed(s, tokens, bench->context, NULL, &err), &err);
    dpe_plan_free(&plan);
    free(tokens);
    return s;
}

static double processor_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void step_batch(struct dpe_session *s, const struct bench *bench, int64_t n, float *logits)
{
    struct dpe_error err = {0};
    int32_t tokens[MOST];
    int64_t branches[MOST];
    must(dpe_session_cut(s, bench->context, &err), &err);
    must(dpe_session_branch(s, n, bench->steps + 1, &err), &err);
    double best = HUGE_VAL;
    double best_cpu = HUGE_VAL;
    for (int step = 0; step + TOGETHER <= bench->steps; step += TOGETHER) {
        read_once(bench->reads);
        double start = dpe_clock();
        double cpu = processor_clock();
        for (int i = 0; i < TOGETHER; i++) {
            for (int64_t b = 0; b < n; b++) {
                branches[b] = b;
                tokens[b] = (int32_t)(((step + i) * 7 + b) % bench->config->vocab);
            }
            must(dpe_session_step(s, n, branches, tokens, logits, &err), &err);
        }
        best = fmin(best, (dpe_clock() - start) / TOGETHER);
        best_cpu = fmin(best_cpu, (processor_clock() - cpu) / TOGETHER);
    }
    double rate = weight_bytes(bench->config) / best;
    printf("{\"what\": \"step\", \"device\": \"%s\", \"method\": \"%s\", \"context\": %" PRId64
           ", \"threads\": %d, \"sequences\": %" PRId64
           ", \"ms\": %.3f, \"processor_ms\": %.3f, \"tokens/s\": %.1f, \"GB/s\": %.1f"
           ", \"read\": %.1f, \"share\": %.3f}\n",
           bench->options.device, bench->dpe ? "dpe" : "rope", bench->context,
           bench->reads->threads, n, 1e3 * best, 1e3 * best_cpu, (double)n / best, 1e-9 * rate,
           1e-9 * bench->reads->best, rate / bench->reads->best);
    fflush(stdout);
}

static void step_batches(const struct dpe_model *model, struct bench *bench, bool bf16)
{
    static const char *const devices[] = {"cpu", "cpu-bf16"};
    float *logits = some((size_t)(MOST * bench->config->vocab) * sizeof *logits);
    struct dpe_session *sessions[2] = {NULL, NULL};
    int n_devices = bf16 ? 2 : 1;
    for (int d = 0; d < n_devices; d++) {
        bench->options.device = devices[d];
        sessions[d] = steps_open(model, bench);
    }
    for (int64_t n = dpe_most(bench->sequences, 1); n <= MOST; n *= 2) {
        for (int d = 0; d < n_devices; d++) {
            bench->options.device = devices[d];
            step_batch(sessions[d], bench, n, logits);
        }
    }
    for (int d = 0; d < n_devices; d++) {
        dpe_session_destroy(sessions[d]);
    }
    free(logits);
}

/* A step of all parts, or of one after another. */
static void step_parts(const struct dpe_session_part *parts, int64_t n, bool together,
                       const int32_t *tokens, int32_t *best)
{
    struct dpe_error err = {0};
    for (int64_t p = 0; p < n; p += together ? n : 1) {
        must(dpe_session_step_parts(parts + p, together ? n : 1, tokens + p * parts->n, NULL, best,
                                    &err),
             &err);
    }
}

/* Sessions of bench->sequences branches each; both ways in turn, a step of each. */
static void step_sessions(const struct dpe_model *model, struct bench *bench)
{
    struct dpe_error err = {0};
    const int64_t n = bench->sessions;
    const int64_t each = dpe_most(bench->sequences, 1);
    struct dpe_session *sessions[MOST];
    struct dpe_session_part parts[MOST];
    int64_t branches[MOST];
    int32_t tokens[MOST * MOST];
    int32_t found[MOST * MOST];
    double best[2] = {HUGE_VAL, HUGE_VAL};
    double best_cpu[2] = {HUGE_VAL, HUGE_VAL};
    bench->options.branches = each;
    bench->options.capacity = bench->context + each * (bench->steps + 1);
    for (int64_t i = 0; i < MOST * MOST; i++) {
        branches[i % MOST] = i % MOST;
        tokens[i] = (int32_t)(i * 11 % bench->config->vocab);
    }
    for (int64_t s = 0; s < n; s++) {
        bench->dpe = s % 2 == 1;
        bench->sessions = s;
        sessions[s] = steps_open(model, bench);
        bench->options.beside = sessions[0];
        must(dpe_session_branch(sessions[s], each, bench->steps + 1, &err), &err);
        parts[s] = (struct dpe_session_part){sessions[s], each, branches};
    }
    for (int step = 0; step < bench->steps; step++) {
        const int way = step % 2;
        const double start = dpe_clock();
        const double cpu = processor_clock();
        step_parts(parts, n, way == 0, tokens, found);
        best[way] = fmin(best[way], dpe_clock() - start);
        best_cpu[way] = fmin(best_cpu[way], processor_clock() - cpu);
    }
    printf("{\"what\": \"sessions\", \"context\": %" PRId64
           ", \"threads\": %d, \"sessions\": %" PRId64 ", \"sequences\": %" PRId64
           ", \"ms\": %.3f, \"processor_ms\": %.3f, \"in_turn_ms\": %.3f"
           ", \"in_turn_processor_ms\": %.3f, \"ratio\": %.3f}\n",
           bench->context, bench->reads->threads, n, n * each, 1e3 * best[0], 1e3 * best_cpu[0],
           1e3 * best[1], 1e3 * best_cpu[1], best_cpu[1] / best_cpu[0]);
    for (int64_t s = n - 1; s >= 0; s--) {
        dpe_session_destroy(sessions[s]);
    }
}

/* One query of 9 heads on 3 KV heads (8 on 2 for wide ones), over caches of several layers in turn,
 * which together are larger than the processor's cache. */
static void attend(struct reads *reads, bool dpe, int64_t head_dim, int64_t keys, int steps)
{
    struct dpe_error err = {0};
    struct dpe_config c = {
        .n_layers = 1,
        .n_heads = head_dim == 64 ? 9 : 8,
        .n_kv_heads = head_dim == 64 ? 3 : 2,
        .head_dim = head_dim,
        .max_position = keys / 4,
        .rope = {.type = DPE_ROPE_DEFAULT, .theta = 1e4, .partial_rotary_factor = 1.0}};
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    struct dpe_plan plan;
    struct dpe_rotation rotation;
    make_plan(dpe, &c, keys, &plan);
    must(dpe_rotation_make(&plan, keys, reads->threads, &rotation, &err), &err);
    int64_t layer = c.n_kv_heads * keys * head_dim;
    int64_t layers = CACHE_BYTES / (2 * layer * (int64_t)sizeof(float)) + 1;
    float *cache = some_floats(2 * layers * layer);
    float *q = some_floats(c.n_heads * head_dim);
    float *out = some((size_t)(c.n_heads * head_dim) * sizeof *out);
    struct dpe_attention args = {
        .plan = &plan,
        .rotation = &rotation,
        .start = keys - 1,
        .rows = 1,
        .n_heads = c.n_heads,
        .n_kv_heads = c.n_kv_heads,
        .head_dim = head_dim,
        .capacity = keys,
        .q = q,
        .out = out,
        .workspace =
            some(dpe_cpu_attention_workspace(kernels, NULL, &c, &plan, keys, 1, reads->threads)),
        .n_threads = reads->threads,
    };
    double best = HUGE_VAL;
    for (int64_t i = 0; i < steps * layers; i++) {
        args.k = cache + i % layers * 2 * layer;
        args.v = args.k + layer;
        double start = dpe_clock();
        dpe_cpu_attention(kernels, NULL, &args, 1);
        best = fmin(best, dpe_clock() - start);
        if (i % (4 * layers) == 0) {
            read_once(reads);
        }
    }
    double rate = (double)(2 * layer) * sizeof(float) / best;
    printf("{\"what\": \"attention\", \"method\": \"%s\", \"head_dim\": %" PRId64
           ", \"keys\": %" PRId64
           ", \"threads\": %d, \"ms\": %.3f, \"GB/s\": %.1f, \"read\": %.1f, \"share\": %.3f}\n",
           dpe ? "dpe" : "rope", head_dim, keys, reads->threads, 1e3 * best, 1e-9 * rate,
           1e-9 * reads->best, rate / reads->best);
    fflush(stdout);
    free(args.workspace);
    free(cache);
    free(q);
    free(out);
    dpe_rotation_free(&rotation);
    dpe_plan_free(&plan);
}

/* The type of keys and values with this name. */
static enum dpe_kv_type kv_type(const char *name)
{
    int type = DPE_KV_INT8;
    while (type > DPE_KV_F32 && strcmp(dpe_kv_type_names[type], name) != 0) {
        type--;
    }
    return (enum dpe_kv_type)type;
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    struct bench bench = {.context = 32};
    bool bf16 = false;
    bool many = false;
    int option = 0;
    while ((option = getopt(argc, argv, "bc:k:n:s:")) != -1) {
        bf16 = bf16 || option == 'b';
        many = many || option == 'c';
        bench.context = option == 'c' ? atoll(optarg) : bench.context;
        bench.sequences = option == 'n' ? atoll(optarg) : bench.sequences;
        bench.sessions = option == 's' ? dpe_least(atoll(optarg), MOST) : bench.sessions;
        bench.options.kv_type = option == 'k' ? kv_type(optarg) : bench.options.kv_type;
    }
    argc -= optind - 1;
    argv += optind - 1;
    if (argc < 2) {
        fprintf(
            stderr,
            "usage: bench_decode [-b] [-c CONTEXT] [-k TYPE] [-n SEQUENCES] [-s SESSIONS] MODEL "
            "[THREADS [KEYS [STEPS]]]\n");
        return DPE_USAGE;
    }
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    int64_t keys = argc > 3 ? atoi(argv[3]) : 16384;
    bench.steps = argc > 4 ? atoi(argv[4]) : 40;
    uint64_t *memory = some(READ_BYTES);
    struct reads reads = {.memory = memory, .threads = threads};
    must(dpe_model_open(argv[1], NULL, &model, &err), &err);
    bench.config = dpe_model_config(model);
    bench.reads = &reads;
    bench.options.n_threads = threads;
    bench.options.capacity = bench.context + MOST * (bench.steps + 1);
    bench.options.positions = bench.context + bench.steps + 1;
    bench.options.branches = MOST;
    if (bench.sessions > 0) {
        step_sessions(model, &bench);
        dpe_model_close(model);
        free(memory);
        return 0;
    }
    step_batches(model, &bench, bf16);
    bench.dpe = many;
    if (many) {
        step_batches(model, &bench, bf16);
    }
    dpe_model_close(model);
    for (int64_t head_dim = 64; head_dim <= 128 && keys > 0; head_dim *= 2) {
        attend(&reads, false, head_dim, keys, bench.steps);
        attend(&reads, true, head_dim, keys, bench.steps);
    }
    free(memory);
    return 0;
}

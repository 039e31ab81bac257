/* Whole prefills of a model on the CPU backend, rope, dpe, and rope under the 2-norm profile, and
 * decoding after them.
 *
 *   bench_prefill MODEL [THREADS [CHUNK [LENGTH …]]]     defaults: 2, 0 (session's own), 2048 4096
 *   bench_prefill -b …     rope and dpe in float and in bfloat16 (device cpu-bf16)
 *   -r N                   best of N (5)
 * Wall-clock time and the time of all threads together (CPU) / threads: on a machine that others
 * use too, the second is what it would take alone. All of them in turn. One JSON object a line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/options.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "norms/norms.h"

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
    struct dpe_dpe_params params = {
        .window = window, .n_groups = 8, .edges = edges, .scale = scale, .mask = mask};
    must(dpe_plan_make_dpe(&params, &context, plan, &err), &err);
    free(mask);
}

enum { NEW = 32, MOST_SIDES = 4 };

/* The first is what the others are compared with. */
static const struct kind {
    const char *name, *device;
    bool dpe, norms;
} floats[] = {{"rope", "cpu", false, false},
              {"dpe", "cpu", true, false},
              {"rope + norms", "cpu", false, true}},
  types[] = {{"rope", "cpu", false, false},
             {"rope, bf16", "cpu-bf16", false, false},
             {"dpe", "cpu", true, false},
             {"dpe, bf16", "cpu-bf16", true, false}};

struct work {
    const struct dpe_model *model;
    const struct kind *kinds;
    int n_kinds, repeats, threads;
    int64_t chunk;
};

struct side {
    const struct kind *kind;
    struct dpe_session *session;
    struct dpe_norms norms;  /* config NULL: no profile is taken */
    double wall, cpu, token; /* best: seconds of a prefill, twice, and of a new token */
};

static struct side side_make(const struct work *work, const struct kind *kind, int64_t length)
{
    struct dpe_error err = {0};
    struct dpe_plan plan;
    const struct dpe_config *config = dpe_model_config(work->model);
    const struct dpe_session_options options = {.n_threads = work->threads,
                                                .capacity = length + NEW,
                                                .prefill_chunk = work->chunk,
                                                .device = kind->device};
    struct side side = {kind, NULL, {0}, 1e30, 1e30, 1e30};
    make_plan(kind->dpe, config, length, &plan);
    must(dpe_session_create(work->model, &plan, &options, &side.session, &err), &err);
    if (kind->norms) {
        must(dpe_norms_create(config, DPE_PRODUCT_OF_MEANS, &side.norms, &err), &err);
    }
    dpe_plan_free(&plan);
    return side;
}

static void run(struct side *side, const int32_t *tokens, int64_t length, int threads,
                float *logits)
{
    struct dpe_error err = {0};
    must(dpe_session_cut(side->session, 0, &err), &err);
    double wall = clock_of(CLOCK_MONOTONIC);
    double cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    if (side->norms.config != NULL) {
        const struct dpe_norm_text text = {tokens, length, side->norms.sums};
        must(dpe_session_norms(side->session, &text, 1, &err), &err);
    } else {
        must(dpe_session_feed(side->session, tokens, length, logits, &err), &err);
    }
    cpu = (clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) / threads;
    wall = clock_of(CLOCK_MONOTONIC) - wall;
    double token = clock_of(CLOCK_MONOTONIC);
    for (int i = 0; i < NEW; i++) {
        must(dpe_session_feed(side->session, tokens, 1, logits, &err), &err);
    }
    token = (clock_of(CLOCK_MONOTONIC) - token) / NEW;
    side->wall = wall < side->wall ? wall : side->wall;
    side->cpu = cpu < side->cpu ? cpu : side->cpu;
    side->token = token < side->token ? token : side->token;
}

/* All in turn, so that a change of the machine's load meets all. */
static void compare(const struct work *work, int64_t length)
{
    const struct dpe_config *config = dpe_model_config(work->model);
    struct side sides[MOST_SIDES];
    int32_t *tokens = dpe_alloc((size_t)length, sizeof *tokens);
    float *logits = dpe_alloc((size_t)config->vocab, sizeof *logits);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 1, 1);
    for (int64_t i = 0; i < length; i++) {
        tokens[i] = (int32_t)dpe_rng_below(&rng, (uint32_t)config->vocab);
    }
    for (int i = 0; i < work->n_kinds; i++) {
        sides[i] = side_make(work, &work->kinds[i], length);
    }
    for (int repeat = 0; repeat < work->repeats; repeat++) {
        for (int i = 0; i < work->n_kinds; i++) {
            run(&sides[i], tokens, length, work->threads, logits);
        }
    }
    for (int i = 0; i < work->n_kinds; i++) {
        printf("{\"method\": \"%s\", \"threads\": %d, \"head_dim\": %" PRId64
               ", \"length\": %" PRId64
               ", \"wall ms\": %.1f, \"cpu ms\": %.1f, \"tokens/s\": %.0f, \"tokens/cpu s\": "
               "%.0f, \"decode wall ms/token\": %.3f}\n",
               sides[i].kind->name, work->threads, config->head_dim, length, sides[i].wall * 1e3,
               sides[i].cpu * 1e3, (double)length / sides[i].wall, (double)length / sides[i].cpu,
               sides[i].token * 1e3);
        dpe_session_destroy(sides[i].session);
        dpe_norms_destroy(&sides[i].norms);
    }
    for (int i = 1; i < work->n_kinds; i++) {
        const char *name = sides[i].kind->name;
        printf("{\"head_dim\": %" PRId64 ", \"length\": %" PRId64
               ", \"%s / rope, wall\": %.3f, \"%s / rope, cpu\": %.3f}\n",
               config->head_dim, length, name, sides[i].wall / sides[0].wall, name,
               sides[i].cpu / sides[0].cpu);
    }
    fflush(stdout);
    free(tokens);
    free(logits);
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    struct work work = {.kinds = floats, .n_kinds = 3, .repeats = 5};
    int option = 0;
    while ((option = getopt(argc, argv, "br:")) != -1) {
        if (option == 'b') {
            work.kinds = types;
            work.n_kinds = 4;
        } else if (option == 'r') {
            work.repeats = atoi(optarg);
        } else {
            argc = 0;
        }
    }
    if (argc <= optind) {
        fprintf(stderr, "usage: bench_prefill [-b] [-r N] MODEL [THREADS [CHUNK [LENGTH …]]]\n");
        return DPE_USAGE;
    }
    argv += optind - 1;
    argc -= optind - 1;
    work.threads = argc > 2 ? atoi(argv[2]) : 2;
    work.chunk = argc > 3 ? atoi(argv[3]) : 0;
    must(dpe_model_open(argv[1], NULL, &model, &err), &err);
    work.model = model;
    for (int a = 4; a < (argc > 4 ? argc : 6); a++) {
        compare(&work, argc > 4 ? atoi(argv[a]) : (int64_t)128 << a);
    }
    dpe_model_close(model);
    return 0;
}

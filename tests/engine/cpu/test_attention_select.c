/* Attention under random selections: the CPU backend against the reference, on all instruction
 * sets, in one call, in few rows, one by one and in two branches; the same bits for any number of
 * threads. What may not be read is NaN. And from caches of other types and in a file: the bits of a
 * cache in memory that holds the same numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "tests/engine/cpu/select_case.h"
#include "tests/lib/near.h"

struct setting {
    const struct inputs *in;
    const struct shape *shape;
    float *queries, *marks;
    struct dpe_kv *kv; /* where keys, values and queries are instead */
    int64_t slots, room;
};

static void set_kept(const struct setting *setting, struct dpe_attention *args)
{
    args->queries = setting->queries;
    args->kv = setting->kv;
    args->marks = setting->marks;
    args->slots = setting->slots;
    args->room = setting->room;
}

/* The representatives of what lies before the call, of both branches. */
static void represent_before(const struct dpe_cpu_kernels *kernels, const struct setting *setting,
                             void *workspace)
{
    const struct shape *shape = setting->shape;
    for (int b = 0; b < 2 && shape->start > 0; b++) {
        struct dpe_attention args = arguments(setting->in, shape, 1);
        set_kept(setting, &args);
        args.start = 0;
        args.rows = shape->start;
        args.prefix = shape->prefix;
        args.offset = shape->offset[b];
        args.capacity = cache_rows(shape);
        args.workspace = workspace;
        dpe_cpu_represent(kernels, &args);
    }
}

/* Whether compressed keys are asked for beside. */
static bool compresses(const struct dpe_selection *s)
{
    return s->representative == DPE_REPRESENT_COMPRESSED && s->refresh == 1;
}

/* All rows, `step` a call, 0: as tokens of both branches in turn. `out` has room for what is
 * attended, and for the compressed keys after it. */
static void run(const struct dpe_cpu_kernels *kernels, struct setting *setting, int n_threads,
                int64_t step, float *out, float *lse)
{
    const struct inputs *in = setting->in;
    const struct shape *shape = setting->shape;
    int64_t width = shape->n_heads * shape->head_dim;
    int64_t positions[MOST_ROWS];
    int64_t offsets[MOST_ROWS];
    bool in_turn = step == 0;
    step = in_turn ? shape->rows : step;
    int64_t most = step > shape->start ? step : shape->start;
    uint64_t bytes = dpe_cpu_attention_workspace(kernels, NULL, &in->config, &in->plan,
                                                 shape->capacity, most, n_threads);
    float *workspace = dpe_alloc(bytes, 1);
    near_guard_fill(workspace, bytes / sizeof *workspace);
    uint64_t mark_bytes =
        dpe_selection_mark_bytes(&in->plan.selection, in->config.head_dim, in->config.n_heads,
                                 in->config.n_kv_heads, cache_rows(shape), 2);
    setting->marks = dpe_alloc(mark_bytes, 1);
    near_guard_fill(setting->marks, mark_bytes / sizeof *setting->marks);
    setting->slots = dpe_selection_slots(&in->plan.selection, cache_rows(shape), 2);
    represent_before(kernels, setting, workspace);
    for (int64_t at = 0; at < shape->rows; at += step) {
        struct dpe_attention args = arguments(in, shape, n_threads);
        args.rows = shape->rows - at < step ? shape->rows - at : step;
        place_rows(&args, shape, at, in_turn, positions, offsets);
        set_kept(setting, &args);
        args.q = in->q + at * width;
        args.out = out + at * width;
        args.compressed = compresses(&in->plan.selection) ? out + (shape->rows + at) * width : NULL;
        args.lse = lse + at * shape->n_heads;
        args.workspace = workspace;
        /* The other branch completes the same blocks where rows are taken in turn. */
        for (int b = 0; b < (in_turn ? 2 : 1); b++) {
            struct dpe_attention filled = args;
            filled.positions = filled.offsets = NULL;
            filled.offset = shape->offset[b];
            dpe_cpu_represent(kernels, &filled);
        }
        dpe_cpu_attention(kernels, NULL, &args, 1);
    }
    free(setting->marks);
    setting->marks = NULL;
    free(workspace);
}

static void reference(const struct setting *setting, float *out, float *lse)
{
    const struct dpe_ops *ops = dpe_ops_reference();
    const struct shape *shape = setting->shape;
    const struct inputs *in = setting->in;
    struct dpe_attention args = arguments(in, shape, 2);
    set_kept(setting, &args);
    args.prefix = shape->prefix;
    args.offset = shape->offset[0];
    args.capacity = cache_rows(shape);
    args.out = out;
    args.compressed = compresses(&in->plan.selection)
                          ? out + shape->rows * shape->n_heads * shape->head_dim
                          : NULL;
    args.lse = lse;
    args.workspace = dpe_alloc(
        ops->attention_workspace(&in->config, &in->plan, shape->capacity, shape->rows, 2), 1);
    ops->attention(NULL, &args, 1);
    free(args.workspace);
}

static int compare(const char *what, const float *got, const float *want, int64_t n)
{
    double *wanted = malloc((size_t)n * sizeof *wanted);
    float *given = malloc((size_t)n * sizeof *given);
    for (int64_t i = 0; i < n; i++) {
        bool none = want[i] < -1e30F; /* the log-sum-exp of a row that no band lets see a key */
        assert_true(!none || got[i] < -1e30F);
        wanted[i] = none ? 0.0 : (double)want[i];
        given[i] = none ? 0.0F : got[i];
    }
    int problems = near_f32(what, given, wanted, (size_t)n, 2e-4);
    free(wanted);
    free(given);
    return problems;
}

/* Branches 1 and 2 of a session. */
static void make_branches(struct inputs *in, struct shape *shape)
{
    shape->prefix = shape->start * 2 / 3;
    shape->offset[0] = shape->capacity;
    shape->offset[1] = 2 * shape->capacity;
    float *k = scatter(shape, in->k);
    float *v = scatter(shape, in->v);
    free(in->k);
    free(in->v);
    in->k = k;
    in->v = v;
}

static int check(enum plan_kind kind, struct shape shape, const struct dpe_selection *selection,
                 bool branches)
{
    static const char *const sets[] = {"portable", "avx2", "avx512"};
    struct inputs in = inputs_make(kind, &shape);
    struct setting setting = {.in = &in, .shape = &shape, .room = shape.capacity};
    int64_t n = (compresses(selection) ? 2 : 1) * shape.rows * shape.n_heads * shape.head_dim;
    int64_t n_lse = shape.rows * shape.n_heads;
    struct dpe_error err = {0};
    in.plan.selection = *selection;
    assert_int_equal(dpe_plan_check(&in.plan, &err), DPE_OK);
    if (branches) {
        make_branches(&in, &shape);
    }
    setting.queries = dpe_selection_keeps_queries(selection) ? keep_queries(&in, &shape) : NULL;
    float *want = malloc((size_t)n * sizeof *want);
    float *out = malloc((size_t)n * sizeof *out);
    float *again = malloc((size_t)n * sizeof *again);
    float *want_lse = malloc((size_t)n_lse * sizeof *want_lse);
    float *lse = malloc((size_t)n_lse * sizeof *lse);
    int problems = 0;
    reference(&setting, want, want_lse);
    for (int i = 0; i < 3; i++) {
        setenv("DPE_CPU", sets[i], 1);
        const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
        const int64_t steps[] = {shape.rows, 7, 1, 0};
        for (int s = 0; s < (branches ? 4 : 3); s++) {
            char what[320];
            snprintf(what, sizeof what,
                     "%s, plan %d, heads %d/%d, start %d, rows %d by %d, block %d, sinks %d, local "
                     "%d, k %d, refresh %d, representative %d, unit %d, positions %d, scored %d",
                     kernels->name, (int)kind, (int)shape.n_heads, (int)shape.n_kv_heads,
                     (int)shape.start, (int)shape.rows, (int)steps[s], (int)selection->block,
                     (int)selection->sinks, (int)selection->local, (int)selection->k,
                     (int)selection->refresh, (int)selection->representative, (int)selection->unit,
                     (int)selection->positions, (int)selection->scored);
            run(kernels, &setting, 1, steps[s], out, lse);
            problems += compare(what, out, want, n);
            problems += compare(what, lse, want_lse, n_lse);
            run(kernels, &setting, 3, steps[s], again, lse);
            assert_memory_equal(out, again, (size_t)n * sizeof *out);
        }
    }
    unsetenv("DPE_CPU");
    free(want);
    free(out);
    free(again);
    free(want_lse);
    free(lse);
    free(setting.queries);
    inputs_free(&in);
    return problems;
}

static void random_selections(void **state)
{
    (void)state;
    struct dpe_rng rng;
    int problems = 0;
    dpe_rng_seed(&rng, 1919, 1);
    for (int i = 0; i < 140; i++) {
        int64_t kv = 1 + dpe_rng_below(&rng, 2);
        struct shape shape = {
            .n_kv_heads = kv,
            .n_heads = kv * (1 + dpe_rng_below(&rng, 6)),
            .head_dim = 2 * (1 + dpe_rng_below(&rng, 20)),
            .start = dpe_rng_below(&rng, 60),
            .rows = 1 + dpe_rng_below(&rng, 60),
            .window = 1 + dpe_rng_below(&rng, 40),
        };
        shape.capacity = shape.start + shape.rows + dpe_rng_below(&rng, 20);
        struct dpe_selection selection = random_selection(&rng, shape.start + shape.rows);
        problems +=
            check((enum plan_kind)dpe_rng_below(&rng, N_PLANS), shape, &selection, i % 2 == 1);
    }
    assert_int_equal(problems, 0);
}

/* More rows than are chosen for at a time, and more blocks than are scored at a time. */
static void many_rows_and_blocks(void **state)
{
    (void)state;
    struct shape shape = {2, 1, 8, 30, 400, 440, 16, 0, {0}};
    struct dpe_selection s = {.block = 1, .sinks = 2, .local = 9, .k = 5, .refresh = 1};
    assert_int_equal(check(ROPE, shape, &s, false), 0);
    s.refresh = 300;
    assert_int_equal(check(MASKED_FAR, shape, &s, false), 0);
}

/* Keys (and the blocks that are one key each) whose scores differ by little more than the rounding
 * of sums: whatever order the sums of a score have, it must not depend on how many groups a thread
 * takes. */
static void near_scores(void **state)
{
    (void)state;
    static const char *const sets[] = {"portable", "avx2", "avx512"};
    struct shape shape = {2, 1, 64, 240, 16, 260, 16, 0, {0}};
    struct inputs in = inputs_make(ROPE, &shape);
    struct setting setting = {.in = &in, .shape = &shape, .room = shape.capacity};
    int64_t n = shape.rows * shape.n_heads * shape.head_dim;
    float *out = malloc((size_t)n * sizeof *out);
    float *again = malloc((size_t)n * sizeof *again);
    float *lse = malloc((size_t)(shape.rows * shape.n_heads) * sizeof *lse);
    for (int64_t i = shape.head_dim; i < (shape.start + shape.rows) * shape.head_dim; i++) {
        in.k[i] = in.k[i % shape.head_dim] * (1.0F + 1e-7F * in.k[i]);
    }
    in.plan.selection = (struct dpe_selection){
        .block = 1, .local = 5, .k = 20, .refresh = 1, .unit = DPE_CHOICE_LAYER};
    static const enum dpe_representative all[] = {DPE_REPRESENT_KEYS, DPE_REPRESENT_MEAN,
                                                  DPE_REPRESENT_EXTREMES};
    for (int i = 0; i < 9; i++) {
        in.plan.selection.representative = all[i / 3];
        setenv("DPE_CPU", sets[i % 3], 1);
        const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
        for (int threads = 1; threads <= 4; threads++) {
            run(kernels, &setting, threads, shape.rows, threads == 1 ? out : again, lse);
            assert_memory_equal(threads == 1 ? out : again, out, (size_t)n * sizeof *out);
        }
    }
    unsetenv("DPE_CPU");
    free(out);
    free(again);
    free(lse);
    inputs_free(&in);
}

/* ---------------------------------------------------------------- caches of other types, and files
 */

/* A cache that holds the rows of `floats` [heads][rows][width] which are numbers; what it makes of
 * them takes their place. */
static void fill_part(struct dpe_kv *kv, enum dpe_kv_part part, float *floats, int64_t heads,
                      int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < heads * rows; r++) {
        float *row = floats + r * width;
        const struct dpe_kv_rows one = {part, 1, r / rows, r % rows, 1};
        if (!isnan(row[0])) {
            dpe_kv_write(kv, &one, row, width);
            dpe_kv_read(kv, &one, row);
        }
    }
}

/* With a folder: in a file there. */
static struct dpe_kv *fill_cache(const struct inputs *in, const struct shape *shape, float *queries,
                                 enum dpe_kv_type type, const char *in_folder)
{
    struct dpe_error err = {0};
    struct dpe_kv *kv = NULL;
    const struct dpe_kv_shape of = {.type = type,
                                    .layers = 2,
                                    .heads = shape->n_kv_heads,
                                    .capacity = cache_rows(shape),
                                    .width = shape->head_dim,
                                    .query_heads = queries != NULL ? shape->n_heads : 0};
    assert_int_equal(dpe_kv_create(&of, in_folder, &kv, &err), DPE_OK);
    fill_part(kv, DPE_KV_KEYS, in->k, of.heads, of.capacity, of.width);
    fill_part(kv, DPE_KV_VALUES, in->v, of.heads, of.capacity, of.width);
    if (queries != NULL) {
        fill_part(kv, DPE_KV_QUERIES, queries, of.query_heads, of.capacity, of.width);
    }
    return kv;
}

static void check_cache(enum plan_kind kind, struct shape shape,
                        const struct dpe_selection *selection, bool branches, enum dpe_kv_type type,
                        const char *in_folder)
{
    struct inputs in = inputs_make(kind, &shape);
    struct setting setting = {.in = &in, .shape = &shape, .room = shape.capacity};
    int64_t n = (compresses(selection) ? 2 : 1) * shape.rows * shape.n_heads * shape.head_dim;
    float *want = malloc((size_t)n * sizeof *want);
    float *out = malloc((size_t)n * sizeof *out);
    float *lse = malloc((size_t)(shape.rows * shape.n_heads) * sizeof *lse);
    struct dpe_error err = {0};
    in.plan.selection = *selection;
    if (branches) {
        make_branches(&in, &shape);
    }
    setting.queries = dpe_selection_keeps_queries(selection) ? keep_queries(&in, &shape) : NULL;
    struct dpe_kv *kv = fill_cache(&in, &shape, setting.queries, type, in_folder);
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    const int64_t steps[] = {shape.rows, 21, 0};
    for (int s = 0; s < (branches ? 3 : 2); s++) {
        setting.kv = NULL;
        run(kernels, &setting, 1, steps[s], want, lse);
        setting.kv = kv;
        run(kernels, &setting, 3, steps[s], out, lse);
        if (memcmp(out, want, (size_t)n * sizeof *out) != 0) {
            print_error(
                "%s%s, plan %d, start %d, rows %d by %d, head_dim %d, block %d, local %d, k "
                "%d, refresh %d, representative %d, positions %d\n",
                dpe_kv_type_names[type], in_folder != NULL ? " in a file" : "", (int)kind,
                (int)shape.start, (int)shape.rows, (int)steps[s], (int)shape.head_dim,
                (int)selection->block, (int)selection->local, (int)selection->k,
                (int)selection->refresh, (int)selection->representative, (int)selection->positions);
            fail();
        }
    }
    assert_int_equal(dpe_kv_status(kv, &err), DPE_OK);
    dpe_kv_destroy(kv);
    free(want);
    free(out);
    free(lse);
    free(setting.queries);
    inputs_free(&in);
}

/* Every other selection is one whose rows meet their keys as tiles. */
static void caches_of_types_and_in_files(void **state)
{
    (void)state;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 1920, 1);
    for (int i = 0; i < 72; i++) {
        struct shape shape = {
            .n_kv_heads = 2,
            .n_heads = 2 * (1 + dpe_rng_below(&rng, 3)),
            .head_dim = 16 << dpe_rng_below(&rng, 3),
            .start = dpe_rng_below(&rng, 230),
            .rows = 1 + dpe_rng_below(&rng, 150),
            .window = 1 + dpe_rng_below(&rng, 40),
        };
        struct dpe_selection selection = random_selection(&rng, shape.start + shape.rows);
        if (i % 2 == 0) {
            selection.positions = (enum dpe_chosen_place)dpe_rng_below(&rng, 2);
            selection.refresh = 8 + dpe_rng_below(&rng, 120);
            selection.slashes = 0;
        }
        shape.capacity = shape.start + shape.rows + dpe_rng_below(&rng, 20);
        check_cache((enum plan_kind)dpe_rng_below(&rng, N_PLANS), shape, &selection, i / 2 % 2 == 1,
                    (enum dpe_kv_type)(i / 4 % 3), i / 12 % 2 == 0 ? NULL : "/var/tmp");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_selections),
        cmocka_unit_test(many_rows_and_blocks),
        cmocka_unit_test(near_scores),
        cmocka_unit_test(caches_of_types_and_in_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

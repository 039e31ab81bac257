/* The kernels of selections, called directly in the emulator: choices beside those of the plan's
 * own function, and attention under random selections and plans beside the reference, in floats and
 * in bfloat16, in one call, in few rows, one by one and in two branches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulate/emulate_control.h"
#include "tests/engine/cpu/select_case.h"
#include "tests/lib/few.h"
#include "tests/lib/near.h"

#include "engine/base/halves.h"
#include "engine/cuda/kernels/cuda_select.h"

static void made(int code)
{
    if (code != 0) {
        fail_msg("launch: %s", emulate_error());
    }
}

/* ------------------------------------------------------------------------------------- choices */

/* Scores with many equal ones, some of them no numbers. */
static float random_score(struct dpe_rng *rng)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, -0.0F, 0.0F, 1e-30F, -3e38F};
    if (dpe_rng_below(rng, 4) == 0) {
        return special[dpe_rng_below(rng, sizeof special / sizeof special[0])];
    }
    return ((float)dpe_rng_below(rng, 41) - 20.0F) / 8.0F;
}

/* n blocks of one key each, whose representatives are their scores; the first ones are chosen
 * whatever they have. */
static void choose(struct dpe_rng *rng, int64_t n, int64_t k, int64_t first)
{
    static float marks[2 * 1024];
    static double scores[1024];
    static double given[1024];
    static int32_t want[1024];
    static int32_t got[1024];
    const float q[2] = {1.0F, 0.0F};
    for (int64_t i = 0; i < n; i++) {
        marks[2 * i] = random_score(rng);
        marks[2 * i + 1] = 0.0F;
        given[i] = (double)marks[2 * i];
        got[i] = -1;
    }
    const struct dpe_select call = {
        .dtype = DPE_F32,
        .selection = {.block = 1, .local = 1, .k = k, .refresh = 1, .first = first},
        .n_heads = 1,
        .n_kv_heads = 1,
        .head_dim = 2,
        .rows = 1,
        .start = n, /* the window is the query's own key, and the keys before it are candidates */
        .capacity = n + 1,
        .q = q,
        .marks = marks,
        .slots = n,
        .room = n + 1,
        .n_bands = 1,
        .groups = 1,
        .units = 1,
        .blocks = n,
        .chosen = k < n ? k : n,
        .scores = scores,
        .lists = got,
    };
    assert_int_equal(dpe_selection_candidates(&call.selection, n), n);
    made(dpe_select_choose(&call));
    dpe_selection_favour(&call.selection, given, n);
    int64_t chosen = dpe_selection_choose(given, n, k, want);
    assert_int_equal(chosen, call.chosen);
    assert_memory_equal(got, want, (size_t)chosen * sizeof *got);
}

static void choices(void **state)
{
    (void)state;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 51, 1);
    for (int i = 0; i < 60; i++) {
        int64_t n = 1 + dpe_rng_below(&rng, i % 3 == 0 ? 1000 : 40);
        emulate_set_seed((uint64_t)i);
        int64_t k = dpe_rng_below(&rng, (uint32_t)n + 3);
        choose(&rng, n, k, i % 2 == 0 ? 0 : dpe_rng_below(&rng, (uint32_t)(1 + k)));
    }
    emulate_set_seed(0);
}

/* ------------------------------------------------------------------------------------ attention */

/* Inputs as a device has them, of the dtype of `of`. */
struct device_inputs {
    enum dpe_dtype dtype;
    const struct inputs *in;
    const struct shape *shape;
    void *q, *k, *v, *queries;
    float *marks;
    int64_t slots;
    uint64_t mark_floats;
};

/* The floats become numbers of the dtype, which are given as they lie in memory. */
static void *to_device(float *x, int64_t n, enum dpe_dtype dtype)
{
    uint16_t *halves = dpe_alloc((size_t)n, dtype == DPE_F32 ? sizeof *x : sizeof *halves);
    assert_non_null(halves);
    if (dtype == DPE_F32) {
        memcpy(halves, x, (size_t)n * sizeof *x);
        return halves;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &x[i], sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
        x[i] = dpe_from_bf16(halves[i]);
    }
    return halves;
}

/* A call of the rows from `at` on, of the first branch or of both in turn. */
static struct dpe_select call_of(const struct device_inputs *of, const struct dpe_attention *args)
{
    const struct dpe_plan *plan = args->plan;
    const struct dpe_rotation *tables = args->rotation;
    struct dpe_select call = {
        .dtype = of->dtype,
        .selection = plan->selection,
        .n_heads = args->n_heads,
        .n_kv_heads = args->n_kv_heads,
        .head_dim = args->head_dim,
        .rows = args->rows,
        .start = args->start,
        .offset = args->offset,
        .positions = args->positions,
        .offsets = args->offsets,
        .prefix = args->prefix,
        .capacity = args->capacity,
        .k = of->k,
        .v = of->v,
        .queries = of->queries,
        .marks = of->marks,
        .slots = of->slots,
        .room = of->shape->capacity,
        .n_bands = plan->n_bands,
        .chunk = plan->chunk > 0 ? plan->chunk : 1,
        .mask =
            plan->mask == NULL ? NULL : plan->mask + args->layer * plan->n_heads * plan->n_pairs,
        .scale = (float)dpe_plan_query_scale(plan, args->layer, 0),
        .cap = (float)plan->attention_cap,
        .log_n = dpe_log_n_of(plan),
    };
    for (int i = 0; i < plan->n_bands; i++) {
        call.bands[i] = (struct dpe_select_band){
            .kind = plan->bands[i].kind,
            .per_head = plan->bands[i].per_head && plan->mask != NULL,
            .lo = plan->bands[i].lo,
            .hi = plan->bands[i].hi,
            .q_cos = tables->cos[tables->q_table[i]],
            .q_sin = tables->sin[tables->q_table[i]],
            .k_cos = tables->cos[tables->k_table[i]],
            .k_sin = tables->sin[tables->k_table[i]],
        };
    }
    return call;
}

/* The blocks that rows start … start+rows−1 of a branch complete. */
static void represent(const struct device_inputs *of, const struct dpe_attention *args, int branch)
{
    const struct dpe_selection *s = &args->plan->selection;
    struct dpe_attention own = *args;
    own.offset = of->shape->offset[branch];
    own.positions = own.offsets = NULL;
    struct dpe_select call = call_of(of, &own);
    call.first_block = dpe_blocks_known_before(s, own.start);
    call.n_blocks = dpe_blocks_known_before(s, own.start + own.rows) - call.first_block;
    if (of->mark_floats > 0 && call.n_blocks > 0) {
        made(dpe_select_represent(&call));
    }
}

/* Whether compressed keys are asked for beside. */
static bool compresses(const struct dpe_selection *s)
{
    return s->representative == DPE_REPRESENT_COMPRESSED && s->refresh == 1;
}

/* Room for n numbers, each byte of which is this. */
static void *room_of(int64_t n, size_t size, int byte)
{
    void *room = dpe_alloc((size_t)n + 1, size);
    assert_non_null(room);
    memset(room, byte, ((size_t)n + 1) * size);
    return room;
}

static void attend(const struct device_inputs *of, const struct dpe_attention *args, const void *q,
                   void *out, void *compressed, float *lse)
{
    const struct dpe_selection *s = &args->plan->selection;
    struct dpe_select call = call_of(of, args);
    call.units = s->unit == DPE_CHOICE_HEAD      ? args->n_heads
                 : s->unit == DPE_CHOICE_KV_HEAD ? args->n_kv_heads
                                                 : 1;
    call.blocks = dpe_attention_keys(args) / s->block + 1;
    call.chosen = s->k < call.blocks ? s->k : call.blocks;
    call.groups = args->positions != NULL
                      ? args->rows
                      : (args->start + args->rows - 1) / s->refresh - args->start / s->refresh + 1;
    const int64_t keys = dpe_attention_keys(args);
    const int64_t lists = call.groups * call.units;
    bool counted = s->slashes > 0 && s->positions == DPE_PLACE_PACKED;
    call.distances = s->slashes > 0 ? keys : 0;
    call.slashes = s->slashes < keys ? s->slashes : keys;
    call.last = s->last < keys ? s->last : keys;
    call.scores = room_of(lists * call.blocks, sizeof *call.scores, 0xff);
    call.far = room_of(lists * call.distances, sizeof *call.far, 0xff);
    call.probabilities =
        room_of(call.groups * args->n_heads * call.blocks, sizeof *call.probabilities, 0xff);
    call.sums = room_of(call.groups * args->n_heads * call.last * 3, sizeof *call.sums, 0xff);
    call.lists = room_of(lists * call.chosen, sizeof *call.lists, 0x7f);
    call.far_lists = room_of(lists * call.slashes, sizeof *call.far_lists, 0x7f);
    call.before =
        counted ? room_of(args->rows * call.units * (call.chosen + 1), sizeof *call.before, 0x7f)
                : NULL;
    call.parts = dpe_select_parts(args->rows, args->n_heads, dpe_selection_keys(s, keys - 1));
    call.partial = room_of(args->rows * args->n_heads * call.parts * (args->head_dim + 2),
                           sizeof *call.partial, 0xff);
    call.q = q;
    call.out = out;
    call.compressed = compressed;
    call.lse = lse;
    made(dpe_select_choose(&call));
    made(dpe_select_attend(&call));
    free(call.scores);
    free(call.far);
    free(call.probabilities);
    free(call.sums);
    free(call.lists);
    free(call.far_lists);
    free(call.before);
    free(call.partial);
}

/* All rows, `step` a call; 0: as tokens of both branches in turn, whose blocks are completed by the
 * rows themselves. `out` has room for what is attended, and for the compressed keys after it. */
static void run(const struct device_inputs *of, int64_t step, char *out, float *lse)
{
    const struct shape *shape = of->shape;
    const int64_t element = of->dtype == DPE_F32 ? 4 : 2;
    const int64_t row = shape->n_heads * shape->head_dim * element;
    int64_t positions[MOST_ROWS];
    int64_t offsets[MOST_ROWS];
    bool in_turn = step == 0;
    step = in_turn ? shape->rows : step;
    near_guard_fill(of->marks, of->mark_floats);
    struct dpe_attention args = arguments(of->in, shape, 1);
    args.prefix = shape->prefix;
    args.capacity = cache_rows(shape);
    args.start = 0;
    args.rows = shape->start;
    for (int b = 0; b < 2 && shape->start > 0; b++) {
        represent(of, &args, b);
    }
    for (int64_t at = 0; at < shape->rows; at += step) {
        args = arguments(of->in, shape, 1);
        args.rows = shape->rows - at < step ? shape->rows - at : step;
        place_rows(&args, shape, at, in_turn, positions, offsets);
        if (in_turn && of->mark_floats > 0) {
            /* Each branch completes a block at the same positions. */
            struct dpe_select call = call_of(of, &args);
            made(dpe_select_represent(&call));
            for (int64_t r = 0; r < args.rows; r++) {
                offsets[r] = shape->offset[1 - r % 2];
            }
            made(dpe_select_represent(&call));
            place_rows(&args, shape, at, in_turn, positions, offsets);
        } else if (!in_turn) {
            represent(of, &args, 0);
        }
        char *compressed =
            compresses(&args.plan->selection) ? out + (shape->rows + at) * row : NULL;
        attend(of, &args, (char *)of->q + at * row, out + at * row, compressed,
               lse + at * shape->n_heads);
    }
}

static void reference(const struct device_inputs *of, float *queries, float *out, float *lse)
{
    const struct dpe_ops *ops = dpe_ops_reference();
    const struct shape *shape = of->shape;
    struct dpe_attention args = arguments(of->in, shape, 1);
    args.queries = queries;
    args.prefix = shape->prefix;
    args.offset = shape->offset[0];
    args.capacity = cache_rows(shape);
    args.out = out;
    args.compressed = compresses(&of->in->plan.selection)
                          ? out + shape->rows * shape->n_heads * shape->head_dim
                          : NULL;
    args.lse = lse;
    args.workspace = dpe_alloc(
        ops->attention_workspace(&of->in->config, &of->in->plan, shape->capacity, shape->rows, 1),
        1);
    ops->attention(NULL, &args, 1);
    free(args.workspace);
}

static int compare(const char *what, const float *got, const float *want, int64_t n, double most)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        bool none = want[i] < -1e30F; /* the log-sum-exp of a row that no band lets see a key */
        double error = none && got[i] < -1e30F ? 0.0 : near_error((double)got[i], (double)want[i]);
        largest = !(error <= largest) ? error : largest;
    }
    if (!(largest <= most)) {
        fprintf(stderr, "%s: difference %.3g > %.3g\n", what, largest, most);
    }
    return !(largest <= most);
}

static void scatter_both(struct inputs *in, struct shape *shape)
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

/* cap: of the logits, 0: none. */
static int check(enum plan_kind kind, struct shape shape, const struct dpe_selection *selection,
                 bool branches, double cap, enum dpe_dtype dtype)
{
    struct inputs in = inputs_make(kind, &shape);
    int64_t n_q = shape.rows * shape.n_heads * shape.head_dim;
    int64_t n = (compresses(selection) ? 2 : 1) * n_q;
    int64_t n_lse = shape.rows * shape.n_heads;
    int64_t d = shape.head_dim;
    int problems = 0;
    in.plan.selection = *selection;
    in.plan.attention_cap = cap;
    if (branches) {
        scatter_both(&in, &shape);
    }
    int64_t rows = cache_rows(&shape);
    struct device_inputs of = {.dtype = dtype, .in = &in, .shape = &shape};
    of.q = to_device(in.q, n_q, dtype);
    of.k = to_device(in.k, shape.n_kv_heads * rows * d, dtype);
    of.v = to_device(in.v, shape.n_kv_heads * rows * d, dtype);
    float *queries = dpe_selection_keeps_queries(selection) ? keep_queries(&in, &shape) : NULL;
    of.queries = queries == NULL ? NULL : to_device(queries, shape.n_heads * rows * d, dtype);
    of.slots = dpe_selection_slots(selection, rows, 2);
    of.mark_floats = (uint64_t)(of.slots * dpe_selection_width(selection, d) *
                                dpe_selection_heads(selection, shape.n_heads, shape.n_kv_heads));
    of.marks = dpe_alloc(of.mark_floats + 1, sizeof *of.marks);
    float *want = malloc((size_t)n * sizeof *want);
    float *got = malloc((size_t)n * sizeof *got);
    char *out = malloc((size_t)n * sizeof(float));
    float *want_lse = malloc((size_t)n_lse * sizeof *want_lse);
    float *lse = malloc((size_t)n_lse * sizeof *lse);
    reference(&of, queries, want, want_lse);
    const int64_t steps[] = {shape.rows, 7, 0};
    for (int s = 0; s < (branches ? 3 : 2); s++) {
        char what[320];
        snprintf(what, sizeof what,
                 "%s, plan %d, heads %d/%d, start %d, rows %d by %d, block %d, sinks %d, local %d, "
                 "k %d, refresh %d, slashes %d, cap %g, representative %d, unit %d, positions %d, "
                 "scored %d",
                 dtype == DPE_F32 ? "f32" : "bf16", (int)kind, (int)shape.n_heads,
                 (int)shape.n_kv_heads, (int)shape.start, (int)shape.rows, (int)steps[s],
                 (int)selection->block, (int)selection->sinks, (int)selection->local,
                 (int)selection->k, (int)selection->refresh, (int)selection->slashes, cap,
                 (int)selection->representative, (int)selection->unit, (int)selection->positions,
                 (int)selection->scored);
        run(&of, steps[s], out, lse);
        for (int64_t i = 0; i < n; i++) {
            uint16_t half = 0;
            memcpy(&got[i], out + 4 * i, sizeof *got);
            memcpy(&half, out + 2 * i, sizeof half);
            got[i] = dtype == DPE_F32 ? got[i] : dpe_from_bf16(half);
        }
        problems += compare(what, got, want, n, dtype == DPE_F32 ? 2e-4 : 1e-2);
        problems += compare(what, lse, want_lse, n_lse, 2e-4);
    }
    free(want);
    free(got);
    free(out);
    free(want_lse);
    free(lse);
    free(queries);
    free(of.q);
    free(of.k);
    free(of.v);
    free(of.queries);
    free(of.marks);
    inputs_free(&in);
    return problems;
}

static void random_selections(void **state)
{
    (void)state;
    struct dpe_rng rng;
    int problems = 0;
    dpe_rng_seed(&rng, 1921, 1);
    for (int i = 0; i < 90 / few(3); i++) {
        static const enum dpe_representative kinds[] = {
            DPE_REPRESENT_MEAN,       DPE_REPRESENT_PROBABILITY, DPE_REPRESENT_COMPRESSED,
            DPE_REPRESENT_EXTREMES,   DPE_REPRESENT_PROBABILITY, DPE_REPRESENT_ATTENDED,
            DPE_REPRESENT_COMPRESSED, DPE_REPRESENT_KEYS,        DPE_REPRESENT_WEIGHTED};
        int64_t kv = 1 + dpe_rng_below(&rng, 2);
        struct shape shape = {
            .n_kv_heads = kv,
            .n_heads = kv * (1 + dpe_rng_below(&rng, 3)),
            .head_dim = 2 * (1 + dpe_rng_below(&rng, 20)),
            .start = dpe_rng_below(&rng, 60),
            .rows = 1 + dpe_rng_below(&rng, 12),
            .window = 1 + dpe_rng_below(&rng, 40),
        };
        shape.capacity = shape.start + shape.rows + dpe_rng_below(&rng, 20);
        struct dpe_selection selection = random_selection(&rng, shape.start + shape.rows);
        selection.representative = kinds[i % (int)(sizeof kinds / sizeof kinds[0])];
        bool probability = selection.representative == DPE_REPRESENT_PROBABILITY;
        selection.slashes = probability ? dpe_rng_below(&rng, 12) : 0;
        emulate_set_seed((uint64_t)i);
        problems += check((enum plan_kind)dpe_rng_below(&rng, N_PLANS), shape, &selection,
                          i % 2 == 1, i % 5 == 0 ? 3.0 : 0.0, i % 4 < 2 ? DPE_F32 : DPE_BF16);
    }
    emulate_set_seed(0);
    assert_int_equal(problems, 0);
}

/* More keys than the warps of a block take at once, and a head of more pairs than a warp has
 * threads. */
static void many_keys(void **state)
{
    (void)state;
    struct shape shape = {2, 1, 144, 600, 3, 620, 90, 0, {0}};
    struct dpe_selection s = {.block = 16, .sinks = 5, .local = 300, .k = 9, .refresh = 1};
    assert_int_equal(check(MASKED_FAR, shape, &s, false, 0.0, DPE_F32), 0);
    s.positions = DPE_PLACE_PACKED;
    s.representative = DPE_REPRESENT_ATTENDED;
    s.attended = 3;
    s.local = 130;
    s.k = 25;
    assert_int_equal(check(FOUR, shape, &s, false, 0.0, DPE_BF16), 0);
    s = (struct dpe_selection){.block = 2,
                               .local = 3,
                               .k = 6,
                               .refresh = 1,
                               .first = 1,
                               .representative = DPE_REPRESENT_COMPRESSED,
                               .unit = DPE_CHOICE_KV_HEAD,
                               .scored = DPE_SCORE_TRUE};
    assert_int_equal(check(FOUR, shape, &s, false, 0.0, DPE_F32), 0);
    /* More chosen blocks than a thread block has threads, and distances among them. */
    s = (struct dpe_selection){.block = 1,
                               .sinks = 2,
                               .local = 20,
                               .k = 270,
                               .refresh = 2,
                               .last = 5,
                               .slashes = 200,
                               .representative = DPE_REPRESENT_PROBABILITY,
                               .unit = DPE_CHOICE_KV_HEAD,
                               .positions = DPE_PLACE_PACKED};
    emulate_set_seed(5);
    assert_int_equal(check(FOUR, shape, &s, false, 0.0, DPE_F32), 0);
    emulate_set_seed(0);
}

/* Half of all distances: many of them fall on sinks, which the query sees once. */
static void distances_of_sinks(void **state)
{
    (void)state;
    struct shape shape = {6, 2, 24, 70, 9, 80, 30, 0, {0}};
    struct dpe_selection s = {.block = 4,
                              .sinks = 22,
                              .local = 5,
                              .k = 3,
                              .refresh = 4,
                              .last = 1,
                              .slashes = 35,
                              .representative = DPE_REPRESENT_PROBABILITY,
                              .unit = DPE_CHOICE_KV_HEAD};
    for (int place = 0; place < 3; place++) {
        s.positions = (enum dpe_chosen_place)place;
        assert_int_equal(check(FOUR, shape, &s, place == 1, 0.0, DPE_F32), 0);
    }
}

/* As wide as heads are, and more of them to a KV head than a thread block takes, in blocks whose
 * last has fewer. */
static void wide_heads(void **state)
{
    (void)state;
    static const int64_t dims[] = {96, 256};
    for (int i = 0; i < 2; i++) {
        struct shape shape = {2 * (5 + i), 2, dims[i], 60, 4, 70, 30, 0, {0}};
        struct dpe_selection s = {.block = 5,
                                  .sinks = 2,
                                  .local = 6,
                                  .k = 3,
                                  .refresh = 3,
                                  .last = 4,
                                  .slashes = 4,
                                  .attended = 2,
                                  .unit = i % 2 == 0 ? DPE_CHOICE_KV_HEAD : DPE_CHOICE_LAYER,
                                  .positions = DPE_PLACE_PACKED};
        s.representative = DPE_REPRESENT_PROBABILITY;
        assert_int_equal(check(MASKED_FAR, shape, &s, true, 2.5, DPE_F32), 0);
        s.slashes = 0;
        s.refresh = 1;
        s.representative = DPE_REPRESENT_COMPRESSED;
        assert_int_equal(check(FOUR, shape, &s, true, 0.0, DPE_F32), 0);
        s.representative = DPE_REPRESENT_WEIGHTED;
        assert_int_equal(check(FOUR, shape, &s, false, 0.0, DPE_F32), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),    cmocka_unit_test(random_selections),
        cmocka_unit_test(many_keys),  cmocka_unit_test(distances_of_sinks),
        cmocka_unit_test(wide_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Layers with a state on the emulated device, against the reference: runs in pieces and by tokens,
 * wherever they begin and end, and steps of several states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/emulate/emulate_control.h"
#include "tests/lib/near.h"

#include "engine/base/halves.h"
#include "engine/cuda/kernels/cuda_recur.h"
#include "engine/ops/ops_host.h"

/* What a layer has and a call reads, in the type of the device and as the float that it is. */
struct numbers {
    float *floats;
    void *own;
    int64_t n;
};

struct layer {
    struct dpe_config config;
    struct dpe_layer_weights weights;
    struct dpe_weights all;
    struct dpe_backend backend;
    enum dpe_dtype dtype;
    int64_t rows; /* of x, the gates, out */
    int64_t states;
    struct numbers convolution[3], rate, step, norm, x[3], gate, beta, decay, out;
    float *before, *states_want, *states_got;
    int32_t arrived[64];
};

static float number(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1.0F;
}

static struct numbers make(enum dpe_dtype dtype, int64_t n, float middle, float size, uint32_t seed)
{
    struct numbers made = {dpe_alloc((size_t)n, sizeof(float)), dpe_alloc((size_t)n, 4), n};
    assert_non_null(made.floats);
    assert_non_null(made.own);
    for (int64_t i = 0; i < n; i++) {
        float x = middle + size * number(&seed);
        if (dtype == DPE_BF16) {
            const uint16_t half = dpe_to_bf16(x);
            ((uint16_t *)made.own)[i] = half;
            x = dpe_from_bf16(half);
        } else if (dtype == DPE_F16) {
            x = (float)(int)(x * 64.0F) / 64.0F; /* which halves have exactly */
            uint32_t bits = 0;
            memcpy(&bits, &x, sizeof bits);
            const uint32_t half =
                x == 0.0F ? 0 : (bits >> 16 & 0x8000U) | ((bits & 0x7fffffffU) - 0x38000000U) >> 13;
            ((uint16_t *)made.own)[i] = (uint16_t)half;
        } else {
            ((float *)made.own)[i] = x;
        }
        made.floats[i] = x;
    }
    return made;
}

static void give_back(struct numbers *numbers)
{
    free(numbers->floats);
    free(numbers->own);
}

static struct dpe_tensor tensor(const struct numbers *numbers, int64_t cols)
{
    return (struct dpe_tensor){
        .dtype = DPE_F32, .data = numbers->floats, .rows = numbers->n / cols, .cols = cols};
}

static void open_layer(struct layer *l, const struct dpe_recurrent *shape, enum dpe_dtype dtype,
                       int64_t rows, int64_t states)
{
    const int64_t widths[3] = {dpe_recurrent_keys(shape), dpe_recurrent_keys(shape),
                               dpe_recurrent_values(shape)};
    const int64_t heads = shape->value_heads;
    memset(l, 0, sizeof *l);
    l->config.recurrent = *shape;
    l->dtype = dtype;
    l->rows = rows;
    l->states = states;
    for (int i = 0; i < 3; i++) {
        l->convolution[i] = make(dtype, widths[i] * shape->width, 0.1F, 0.6F, 10 + (uint32_t)i);
        l->x[i] = make(dtype, rows * widths[i], 0.0F, 2.0F, 20 + (uint32_t)i);
        l->weights.weight[DPE_WEIGHT_CONVOLUTION_Q + i] = tensor(&l->convolution[i], shape->width);
    }
    l->rate = make(DPE_F32, heads, -0.6F, 0.5F, 30);
    l->step = make(DPE_F32, heads, -2.0F, 3.0F, 31);
    l->norm = make(DPE_F32, shape->value_dim, 1.0F, 0.3F, 32);
    l->gate = make(dtype, rows * widths[2], 0.0F, 3.0F, 33);
    l->beta = make(dtype, rows * heads, 0.5F, 3.0F, 34);
    l->decay = make(dtype, rows * heads, 0.0F, 2.0F, 35);
    l->out = make(dtype, rows * widths[2], 0.0F, 1.0F, 36);
    l->weights.weight[DPE_WEIGHT_RATE] = tensor(&l->rate, heads);
    l->weights.weight[DPE_WEIGHT_STEP] = tensor(&l->step, heads);
    l->weights.weight[DPE_WEIGHT_OUTPUT_NORM] = tensor(&l->norm, shape->value_dim);
    l->all.layers = &l->weights;
    l->backend.config = &l->config;
    l->backend.weights = &l->all;
    const int64_t floats = states * dpe_recurrent_floats(shape);
    struct numbers state = make(DPE_F32, floats, 0.0F, 0.5F, 40);
    free(state.own);
    l->before = state.floats;
    l->states_want = dpe_alloc((size_t)floats, sizeof(float));
    l->states_got = dpe_alloc((size_t)floats, sizeof(float));
    assert_non_null(l->states_want);
    assert_non_null(l->states_got);
}

static void close_layer(struct layer *l)
{
    struct numbers *all[] = {&l->convolution[0],
                             &l->convolution[1],
                             &l->convolution[2],
                             &l->rate,
                             &l->step,
                             &l->norm,
                             &l->x[0],
                             &l->x[1],
                             &l->x[2],
                             &l->gate,
                             &l->beta,
                             &l->decay,
                             &l->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        give_back(all[i]);
    }
    free(l->before);
    free(l->states_want);
    free(l->states_got);
}

static void start(const struct layer *l, float *states)
{
    memcpy(states, l->before,
           (size_t)(l->states * dpe_recurrent_floats(&l->config.recurrent)) * sizeof(float));
}

/* The states before the calls. */
static void begin(struct layer *l)
{
    start(l, l->states_got);
}

static void want(struct layer *l, const int64_t *which, int64_t state)
{
    void *room = malloc((size_t)dpe_reference_recur_workspace(&l->config, l->rows, 1));
    assert_non_null(room);
    const struct dpe_recurrence args = {.rows = l->rows,
                                        .q = l->x[0].floats,
                                        .k = l->x[1].floats,
                                        .v = l->x[2].floats,
                                        .gate = l->gate.floats,
                                        .beta = l->beta.floats,
                                        .decay = l->decay.floats,
                                        .out = l->out.floats,
                                        .states = l->states_want,
                                        .state = state,
                                        .which = which,
                                        .workspace = room};
    start(l, l->states_want);
    dpe_reference_recur(&l->backend, &args);
    free(room);
}

static void *row(const struct layer *l, const struct numbers *x, int64_t first)
{
    return (char *)x->own + first * (x->n / l->rows) * (l->dtype == DPE_F32 ? 4 : 2);
}

static struct dpe_recur call_of(const struct layer *l, int64_t first, int64_t rows, int64_t lead,
                                const int64_t *which, int64_t state)
{
    const struct dpe_recurrent *r = &l->config.recurrent;
    return (struct dpe_recur){
        .dtype = l->dtype,
        .width = (int32_t)r->width,
        .key_heads = (int32_t)r->key_heads,
        .value_heads = (int32_t)r->value_heads,
        .key_dim = (int32_t)r->key_dim,
        .value_dim = (int32_t)r->value_dim,
        .tiled = r->tiled ? 1 : 0,
        .lead = (int32_t)lead,
        .eps = (float)r->eps,
        .reach = r->doubled ? 2.0F : 1.0F,
        .convolution = {l->convolution[0].own, l->convolution[1].own, l->convolution[2].own},
        .rate = l->rate.floats,
        .step = l->step.floats,
        .norm = l->norm.floats,
        .x = {row(l, &l->x[0], first), row(l, &l->x[1], first), row(l, &l->x[2], first)},
        .gate = row(l, &l->gate, first),
        .beta = row(l, &l->beta, first),
        .decay = row(l, &l->decay, first),
        .out = row(l, &l->out, first),
        .states = l->states_got,
        .which = which,
        .state = state,
        .rows = rows,
    };
}

static void by_pieces(struct layer *l, int64_t first, int64_t rows, int64_t lead, int64_t state)
{
    const struct dpe_recur call = call_of(l, first, rows, lead, NULL, state);
    const int64_t n = dpe_recur_floats(&l->config.recurrent, (lead + rows + 63) / 64);
    void *memory = malloc((size_t)n * sizeof(float) + 16);
    assert_non_null(memory);
    float *workspace = (float *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
    for (int64_t i = 0; i < n; i++) {
        workspace[i] = NAN; /* what is read was written */
    }
    assert_int_equal(dpe_kernel_recur_pieces(&call, workspace), 0);
    free(memory);
}

static void by_tokens(struct layer *l, int64_t first, int64_t rows, const int64_t *which,
                      int64_t state)
{
    const struct dpe_recur call = call_of(l, first, rows, 0, which, state);
    assert_int_equal(dpe_kernel_recur_tokens(&call, l->arrived), 0);
    for (size_t i = 0; i < sizeof l->arrived / sizeof l->arrived[0]; i++) {
        assert_int_equal(l->arrived[i], 0);
    }
}

/* All outputs and states. `products`: the size of rounding in them. */
static void check(const char *what, const struct layer *l, double products)
{
    static const double halves[] = {[DPE_F32] = 0.0, [DPE_F16] = 0x1p-11, [DPE_BF16] = 0x1p-8};
    const int64_t floats = l->states * dpe_recurrent_floats(&l->config.recurrent);
    double error = 0.0;
    double of_states = 0.0;
    for (int64_t i = 0; i < l->out.n; i++) {
        const double right = (double)l->out.floats[i];
        const double got = l->dtype == DPE_F32 ? (double)((float *)l->out.own)[i]
                           : l->dtype == DPE_F16
                               ? (double)dpe_from_f16(((uint16_t *)l->out.own)[i])
                               : (double)dpe_from_bf16(((uint16_t *)l->out.own)[i]);
        const double by = fabs(right) * halves[l->dtype];
        error = fmax(error, (near_error(got, right) - by) / (1.0 + fabs(right)));
    }
    for (int64_t i = 0; i < floats; i++) {
        const double right = (double)l->states_want[i];
        of_states = fmax(of_states, near_error((double)l->states_got[i], right));
    }
    printf("%s: out %.1e, states %.1e\n", what, error, of_states);
    assert_true(error <= products && of_states <= products);
}

static const struct dpe_recurrent shapes[] = {
    {.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128, .width = 4, .eps = 1e-6},
    {.key_heads = 2, .value_heads = 2, .key_dim = 12, .value_dim = 20, .width = 2, .eps = 1e-5},
    {.key_heads = 1,
     .value_heads = 1,
     .key_dim = 96,
     .value_dim = 192,
     .width = 4,
     .doubled = true,
     .eps = 1e-6},
    {.key_heads = 2,
     .value_heads = 6,
     .key_dim = 40,
     .value_dim = 24,
     .width = 5,
     .tiled = true,
     .eps = 1e-6},
    {.key_heads = 1, .value_heads = 1, .key_dim = 140, .value_dim = 100, .width = 4, .eps = 1e-6},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Products of bfloat16 pairs have 16 bits, of triples 24. */
static double rounding(enum dpe_dtype dtype)
{
    return dtype == DPE_F32 ? 2e-5 : 2e-4;
}

static const enum dpe_dtype dtypes[] = {DPE_F32, DPE_BF16, DPE_F16};

/* A run that begins and ends within pieces, as one call, and as several. */
static void runs_in_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const enum dpe_dtype dtype = dtypes[i % 3];
        struct layer l;
        open_layer(&l, &shapes[i], dtype, i == 0 ? 101 : 75, 3);
        begin(&l);
        want(&l, NULL, 1);
        emulate_set_seed((uint64_t)i);
        by_pieces(&l, 0, l.rows, i % 2 == 0 ? 50 : 0, 1);
        check("in one", &l, rounding(dtype));
        begin(&l);
        by_pieces(&l, 0, 14, 50, 1);
        by_pieces(&l, 14, l.rows - 14, 0, 1);
        check("in two", &l, rounding(dtype));
        close_layer(&l);
    }
}

/* The same tokens one by one, and a mixture. */
static void runs_by_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const enum dpe_dtype dtype = dtypes[(i + 1) % 3];
        struct layer l;
        open_layer(&l, &shapes[i], dtype, 13, 2);
        begin(&l);
        want(&l, NULL, 1);
        emulate_set_seed((uint64_t)i + 7);
        by_tokens(&l, 0, 2, NULL, 1);
        by_tokens(&l, 2, 11, NULL, 1);
        check("by tokens", &l, 2e-5);
        begin(&l);
        by_pieces(&l, 0, 10, 0, 1);
        by_tokens(&l, 10, 3, NULL, 1);
        check("both", &l, rounding(dtype));
        close_layer(&l);
    }
}

/* A token each of several states: the bits of each are those of a run of one token. */
static void steps(void **state)
{
    static const int64_t which[] = {3, 0, 4, 1};
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const enum dpe_dtype dtype = dtypes[i % 3];
        struct layer l;
        open_layer(&l, &shapes[i], dtype, 4, 5);
        const size_t bytes = (size_t)(5 * dpe_recurrent_floats(&shapes[i])) * sizeof(float);
        float *together = malloc(bytes);
        assert_non_null(together);
        begin(&l);
        want(&l, which, 0);
        by_tokens(&l, 0, 4, which, 0);
        check("a step", &l, 2e-5);
        memcpy(together, l.states_got, bytes);
        begin(&l);
        for (int64_t r = 0; r < 4; r++) {
            by_tokens(&l, r, 1, NULL, which[r]);
        }
        assert_memory_equal(together, l.states_got, bytes);
        free(together);
        close_layer(&l);
    }
}

/* Where a run is cut at lines of pieces changes nothing. */
static void cuts_at_lines_keep_bits(void **state)
{
    (void)state;
    struct layer l;
    open_layer(&l, &shapes[3], DPE_BF16, 150, 1);
    const size_t bytes = (size_t)dpe_recurrent_floats(&shapes[3]) * sizeof(float);
    float *one = malloc(bytes);
    assert_non_null(one);
    begin(&l);
    by_pieces(&l, 0, 150, 0, 0);
    memcpy(one, l.states_got, bytes);
    begin(&l);
    by_pieces(&l, 0, 64, 0, 0);
    by_pieces(&l, 64, 86, 0, 0);
    assert_memory_equal(one, l.states_got, bytes);
    free(one);
    close_layer(&l);
}

/* A gate of each number, and of rows. */
static void gates(void **state)
{
    (void)state;
    for (int64_t each = 1; each <= 20; each += 19) {
        struct numbers out = make(DPE_BF16, 300, 0.0F, 2.0F, 1);
        struct numbers gate = make(DPE_BF16, 300 / each, 0.0F, 4.0F, 2);
        assert_int_equal(dpe_kernel_output_gate(DPE_BF16, out.own, gate.own, gate.n, each), 0);
        for (int64_t i = 0; i < 300; i++) {
            const double right =
                (double)out.floats[i] / (1.0 + exp(-(double)gate.floats[i / each]));
            const double got = (double)dpe_from_bf16(((uint16_t *)out.own)[i]);
            assert_true(near_error(got, right) <= fabs(right) * 0x1p-8);
        }
        give_back(&out);
        give_back(&gate);
    }
}

static void sizes(void **state)
{
    (void)state;
    static const int64_t most[][2] = {{144, 128}, {96, 192}, {64, 256}, {256, 32}};
    struct dpe_recurrent r = shapes[0];
    for (int i = 0; i < SHAPES; i++) {
        assert_true(dpe_recur_supports(&shapes[i]));
    }
    for (int i = 0; i < 4; i++) {
        r.key_dim = most[i][0];
        r.value_dim = most[i][1];
        assert_true(dpe_recur_supports(&r));
        r.key_dim++;
        assert_false(dpe_recur_supports(&r));
    }
    r.key_dim = 16;
    r.value_dim = 257;
    assert_false(dpe_recur_supports(&r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_in_pieces), cmocka_unit_test(runs_by_tokens),
        cmocka_unit_test(steps),          cmocka_unit_test(cuts_at_lines_keep_bits),
        cmocka_unit_test(gates),          cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

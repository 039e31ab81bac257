/* The reference attention and the rotation tables against closed forms and against a direct
 * computation with the plan evaluator, for every method. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "tests/lib/near.h"

enum {
    PAIRS = 6,
    DIM = 2 * PAIRS,
    LAYERS = 2,
    HEADS = 4,
    KV_HEADS = 2,
    TOKENS = 150,
    TRAINED = 32
};

static const struct dpe_config config = {
    .model_type = "llama",
    .n_layers = LAYERS,
    .n_heads = HEADS,
    .n_kv_heads = KV_HEADS,
    .head_dim = DIM,
    .max_position = TRAINED,
    .rope = {.type = DPE_ROPE_DEFAULT, .theta = 10000.0, .original_max_position = NAN},
};

static const char *const specs[] = {
    "rope",
    "pi",
    "yarn",
    "rerope",
    "leaky-rerope:window=5,scale=4.3",
    "self-extend:window=9,group=4",
    "dpe:window=7,scales=1/2.5/8",
    "dpe:window=7,scales=1/2.5/8,far-scale=1.4",
    "dca:chunk=24,local=7,far-scale=0.7",
    "dca:chunk=24,local=7",
    "string:window=3",
    "streaming-llm:window=20",
    "lm-infinite:window=17",
    "lampe:window=7,tail=9,map=20",
    "cope:clip=3",
    "hirope:window=7,segment=3",
    "adagrope:first=6,reuse=1.75",
    "dope:from=2",
    "jet-long:window=6,group=5",
    "self:window=7,group=6,rate=0.3",
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

struct inputs {
    float *q, *k, *v; /* q [TOKENS][HEADS][DIM]; k, v [KV_HEADS][capacity][DIM] */
    int64_t capacity;
};

static float *random_floats(struct dpe_rng *rng, size_t n, double spread)
{
    float *values = dpe_alloc(n, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)(spread * (2.0 * dpe_rng_unit(rng) - 1.0));
    }
    return values;
}

static struct inputs make_inputs(double spread)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 7, 1);
    /* Room after the last key, so that a wrong stride shows. */
    struct inputs in = {.capacity = TOKENS + 13};
    in.q = random_floats(&rng, (size_t)TOKENS * HEADS * DIM, spread);
    in.k = random_floats(&rng, (size_t)(KV_HEADS * in.capacity * DIM), spread);
    in.v = random_floats(&rng, (size_t)(KV_HEADS * in.capacity * DIM), 1.0);
    return in;
}

static void free_inputs(struct inputs *in)
{
    free(in->q);
    free(in->k);
    free(in->v);
}

static struct dpe_plan make(const char *spec, bool masked)
{
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = TRAINED, .length = TOKENS, .official = true};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    if (masked) {
        free(plan.mask);
        plan.mask = dpe_alloc(LAYERS * HEADS * PAIRS, 1);
        for (size_t i = 0; i < LAYERS * HEADS * PAIRS; i++) {
            plan.mask[i] = (i * 2654435761U >> 9) % 3 != 0;
        }
        for (int b = 1; b < plan.n_bands; b++) {
            plan.bands[b].per_head = true;
        }
    }
    return plan;
}

/* Guarded output of one call. */
struct outputs {
    float *memory, *out, *lse;
};

static struct outputs run(const struct dpe_plan *plan, const struct inputs *in, int64_t layer,
                          int64_t start, int64_t rows, int n_threads)
{
    const struct dpe_ops *ops = dpe_ops_reference();
    struct dpe_rotation rotation;
    struct dpe_error err = {0};
    assert_int_equal(dpe_rotation_make(plan, in->capacity, n_threads, &rotation, &err), DPE_OK);
    size_t n = (size_t)rows * HEADS;
    struct outputs o = {.memory = dpe_alloc(n * (DIM + 1) + 3 * NEAR_GUARD, sizeof(float))};
    near_guard_fill(o.memory, n * (DIM + 1) + 3 * NEAR_GUARD);
    o.out = o.memory + NEAR_GUARD;
    o.lse = o.out + n * DIM + NEAR_GUARD;
    struct dpe_attention args = {
        .plan = plan,
        .rotation = &rotation,
        .layer = layer,
        .start = start,
        .rows = rows,
        .n_heads = HEADS,
        .n_kv_heads = KV_HEADS,
        .head_dim = DIM,
        .capacity = in->capacity,
        .q = in->q + start * HEADS * DIM,
        .k = in->k,
        .v = in->v,
        .out = o.out,
        .lse = o.lse,
        .n_threads = n_threads,
    };
    args.workspace =
        dpe_alloc(ops->attention_workspace(&config, plan, in->capacity, rows, n_threads), 1);
    assert_non_null(args.workspace);
    ops->attention(NULL, &args, 1);
    assert_int_equal(near_guard_broken(o.memory, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(o.out + n * DIM, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(o.lse + n, NEAR_GUARD), 0);
    free(args.workspace);
    dpe_rotation_free(&rotation);
    return o;
}

/* An angle as Hugging Face code rounds it. */
static double rounded(double position, double frequency)
{
    return (double)((float)position * (float)frequency);
}

/* Logit by the definition: complex numbers in double. */
static double direct_logit(const struct dpe_plan *plan, const struct inputs *in, int64_t layer,
                           int64_t head, int64_t m, int64_t n)
{
    const float *q = in->q + (m * HEADS + head) * DIM;
    const float *k = in->k + (head / (HEADS / KV_HEADS) * in->capacity + n) * DIM;
    double sum = 0.0;
    for (int64_t j = 0; j < PAIRS; j++) {
        struct dpe_rel rel = dpe_plan_position(plan, layer, head, j, m, n);
        if (rel.band < 0) {
            return -INFINITY;
        }
        double angle = rounded(rel.pq, plan->inv_freq[j]) - rounded(rel.pk, plan->inv_freq[j]);
        double qx = (double)q[j];
        double qy = (double)q[j + PAIRS];
        double kx = (double)k[j];
        double ky = (double)k[j + PAIRS];
        sum += rel.scale * (cos(angle) * (qx * kx + qy * ky) + sin(angle) * (qx * ky - qy * kx));
    }
    return sum * dpe_plan_query_scale(plan, layer, m);
}

static void direct_row(const struct dpe_plan *plan, const struct inputs *in, int64_t layer,
                       int64_t head, int64_t m, double out[DIM], double *lse)
{
    double total = 0.0;
    memset(out, 0, DIM * sizeof *out);
    for (int64_t n = 0; n <= m; n++) {
        double p = exp(direct_logit(plan, in, layer, head, m, n));
        const float *v = in->v + (head / (HEADS / KV_HEADS) * in->capacity + n) * DIM;
        total += p;
        for (int i = 0; i < DIM; i++) {
            out[i] += p * (double)v[i];
        }
    }
    for (int i = 0; i < DIM; i++) {
        out[i] = total > 0.0 ? out[i] / total : 0.0;
    }
    *lse = log(total);
}

static void every_method_is_its_definition(void **state)
{
    (void)state;
    struct inputs in = make_inputs(2.0);
    for (int i = 0; i < 2 * N_SPECS; i++) {
        struct dpe_plan plan = make(specs[i / 2], i % 2 == 1);
        int64_t layer = i % LAYERS;
        struct outputs o = run(&plan, &in, layer, 0, TOKENS, 2);
        for (int64_t item = 0; item < TOKENS * HEADS; item++) {
            double want[DIM];
            double lse = 0.0;
            direct_row(&plan, &in, layer, item % HEADS, item / HEADS, want, &lse);
            /* The tables are float: 2^-24 of cosine on logits of about 20. */
            assert_int_equal(near_f32(plan.name, o.out + item * DIM, want, DIM, 4e-6), 0);
            assert_int_equal(near_f32("log-sum-exp", o.lse + item, &lse, 1, 8e-6), 0);
        }
        free(o.memory);
        dpe_plan_free(&plan);
    }
    free_inputs(&in);
}

static void any_start_and_thread_count_give_the_same_bits(void **state)
{
    (void)state;
    struct inputs in = make_inputs(2.0);
    for (int i = 0; i < N_SPECS; i++) {
        struct dpe_plan plan = make(specs[i], true);
        struct outputs whole = run(&plan, &in, 1, 0, TOKENS, 1);
        struct outputs tail = run(&plan, &in, 1, 91, TOKENS - 91, 3);
        size_t n = (size_t)(TOKENS - 91) * HEADS;
        assert_memory_equal(whole.out + 91 * HEADS * DIM, tail.out, n * DIM * sizeof(float));
        assert_memory_equal(whole.lse + 91 * HEADS, tail.lse, n * sizeof(float));
        free(whole.memory);
        free(tail.memory);
        dpe_plan_free(&plan);
    }
    free_inputs(&in);
}

static void closed_forms(void **state)
{
    (void)state;
    struct dpe_plan plan = make("dpe:window=7,scales=4", false);
    /* Queries of zero weigh all keys alike: the mean of the values so far, ln of their number. */
    struct inputs in = make_inputs(2.0);
    memset(in.q, 0, (size_t)TOKENS * HEADS * DIM * sizeof(float));
    struct outputs o = run(&plan, &in, 0, 0, TOKENS, 1);
    for (int64_t m = 0; m < TOKENS; m++) {
        double want[DIM] = {0};
        double lse = log((double)m + 1.0);
        for (int64_t n = 0; n <= m; n++) {
            for (int i = 0; i < DIM; i++) {
                want[i] += (double)in.v[n * DIM + i] / ((double)m + 1.0);
            }
        }
        assert_int_equal(near_f32("mean", o.out + m * HEADS * DIM, want, DIM, 1e-7), 0);
        assert_int_equal(near_f32("ln n", o.lse + m * HEADS, &lse, 1, 1e-6), 0);
    }
    free(o.memory);
    free_inputs(&in);

    /* One key: its value, whatever the logit. */
    in = make_inputs(50.0);
    o = run(&plan, &in, 0, 0, 1, 1);
    for (int64_t h = 0; h < HEADS; h++) {
        assert_memory_equal(o.out + h * DIM, in.v + h / 2 * in.capacity * DIM, DIM * sizeof(float));
    }
    free(o.memory);
    free_inputs(&in);
    dpe_plan_free(&plan);
}

static void rows_that_see_no_key_are_zero(void **state)
{
    (void)state;
    struct dpe_plan plan = make("rope", false);
    plan.bands[0].lo = 5; /* distances below 5 are masked */
    struct inputs in = make_inputs(2.0);
    struct outputs o = run(&plan, &in, 0, 0, 8, 1);
    for (int64_t i = 0; i < 5 * HEADS * DIM; i++) {
        assert_true(o.out[i] == 0.0f);
    }
    for (int64_t i = 0; i < 5 * HEADS; i++) {
        assert_true(isinf(o.lse[i]) && o.lse[i] < 0.0f);
    }
    assert_memory_equal(o.out + 5 * HEADS * DIM, in.v, DIM * sizeof(float));
    free(o.memory);
    free_inputs(&in);
    dpe_plan_free(&plan);
}

static void nan_is_not_swallowed(void **state)
{
    (void)state;
    struct dpe_plan plan = make("dpe:window=7,scales=4", false);
    struct inputs in = make_inputs(2.0);
    in.k[20 * DIM + 3] = NAN; /* key 20 of KV head 0 */
    struct outputs o = run(&plan, &in, 0, 0, TOKENS, 1);
    for (int64_t item = 0; item < TOKENS * HEADS; item++) {
        bool touched = item / HEADS >= 20 && item % HEADS < 2;
        assert_true(isnan(o.out[item * DIM]) == touched);
        assert_true(isnan(o.lse[item]) == touched);
    }
    free(o.memory);
    free_inputs(&in);
    dpe_plan_free(&plan);
}

/* One pass over both bands = a pass over each, merged by log-sum-exp. */
static void one_pass_is_two_merged(void **state)
{
    (void)state;
    static const char *const two_bands[] = {"rerope", "self-extend:window=9,group=4",
                                            "dpe:window=7,scales=1/2.5/8", "string:window=3",
                                            "streaming-llm:window=20"};
    struct inputs in = make_inputs(2.0);
    for (size_t i = 0; i < sizeof two_bands / sizeof two_bands[0]; i++) {
        struct dpe_plan both = make(two_bands[i], i % 2 == 0);
        struct dpe_plan near_only = make(two_bands[i], i % 2 == 0);
        struct dpe_plan far_only = make(two_bands[i], i % 2 == 0);
        near_only.n_bands = 1;
        /* Pairs outside the mask need the first band's maps, so it stays and matches nothing. */
        far_only.bands[0].lo = TOKENS;
        far_only.bands[0].hi = TOKENS + 1;
        if (far_only.bands[1].kind == DPE_BAND_KEY) {
            /* the near band came first where both match */
            far_only.bands[1].kind = DPE_BAND_DISTANCE;
            far_only.bands[1].lo = both.bands[0].hi;
            far_only.bands[1].hi = INT64_MAX;
        }
        if (both.bands[1].kind == DPE_BAND_KEY) {
            both.bands[1] = far_only.bands[1];
        }
        struct outputs a = run(&both, &in, 0, 0, TOKENS, 1);
        struct outputs b = run(&near_only, &in, 0, 0, TOKENS, 1);
        struct outputs c = run(&far_only, &in, 0, 0, TOKENS, 1);
        for (int64_t item = 0; item < TOKENS * HEADS; item++) {
            double x = exp((double)b.lse[item]);
            double y = exp((double)c.lse[item]);
            double want[DIM];
            for (int64_t j = 0; j < DIM; j++) {
                want[j] = (x * (double)b.out[item * DIM + j] + y * (double)c.out[item * DIM + j]) /
                          (x + y);
            }
            double lse = log(x + y);
            assert_int_equal(near_f32(both.name, a.out + item * DIM, want, DIM, 2e-6), 0);
            assert_int_equal(near_f32("log-sum-exp", a.lse + item, &lse, 1, 4e-6), 0);
        }
        free(a.memory);
        free(b.memory);
        free(c.memory);
        dpe_plan_free(&both);
        dpe_plan_free(&near_only);
        dpe_plan_free(&far_only);
    }
    free_inputs(&in);
}

static void tables_are_shared_and_hold_the_evaluator(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int n_tables;
    } cases[] = {{"rope", 1},        {"rerope", 3},          {"dpe:window=7,scales=1/2.5/8", 3},
                 {"dca", 3},         {"string:window=3", 2}, {"streaming-llm:window=20", 2},
                 {"lm-infinite", 3}, {"dpe:scales=4", 3},    {"dpe:window=8,scales=1", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_plan plan = make(cases[i].spec, false);
        struct dpe_rotation rotation;
        struct dpe_error err = {0};
        assert_int_equal(dpe_rotation_make(&plan, TOKENS, 1, &rotation, &err), DPE_OK);
        assert_int_equal(rotation.n_tables, cases[i].n_tables);
        assert_true(dpe_rotation_bytes(&plan, TOKENS) ==
                    (uint64_t)rotation.n_tables * TOKENS * PAIRS * 2 * sizeof(float));
        for (int64_t m = 0; m < TOKENS; m++) {
            for (int64_t j = 0; j < PAIRS; j++) {
                struct dpe_rel rel = dpe_plan_position(&plan, 0, 0, j, m, m / 2);
                if (rel.band < 0) {
                    continue;
                }
                double angle = rounded(rel.pq, plan.inv_freq[j]);
                int table = rotation.q_table[rel.band];
                assert_true(rotation.cos[table][m * PAIRS + j] == (float)cos(angle));
                angle = rounded(rel.pk, plan.inv_freq[j]);
                table = rotation.k_table[rel.band];
                assert_true(rotation.sin[table][m / 2 * PAIRS + j] == (float)sin(angle));
            }
        }
        dpe_rotation_free(&rotation);
        dpe_plan_free(&plan);
    }
    struct dpe_plan plan = make("rope", false);
    struct dpe_rotation rotation;
    struct dpe_error err = {0};
    assert_int_equal(dpe_rotation_make(&plan, INT64_MAX / 4, 1, &rotation, &err), DPE_NO_MEMORY);
    assert_int_equal(dpe_rotation_make(&plan, 0, 1, &rotation, &err), DPE_NO_MEMORY);
    dpe_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_is_its_definition),
        cmocka_unit_test(any_start_and_thread_count_give_the_same_bits),
        cmocka_unit_test(closed_forms),
        cmocka_unit_test(rows_that_see_no_key_are_zero),
        cmocka_unit_test(nan_is_not_swallowed),
        cmocka_unit_test(one_pass_is_two_merged),
        cmocka_unit_test(tables_are_shared_and_hold_the_evaluator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

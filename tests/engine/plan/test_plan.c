/* The plan evaluator: every row of the method tables, filled by hand and by its builder, against a
 * direct computation of its formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/base/groups.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "outputs/h5/rows.h"

enum { PAIRS = 8, LAYERS = 2, HEADS = 3, TRAINED = 64, LENGTH = 512 };

static const struct dpe_config config = {
    .model_type = "llama",
    .n_layers = LAYERS,
    .n_heads = HEADS,
    .n_kv_heads = 1,
    .head_dim = 2 * PAIRS,
    .max_position = TRAINED,
    .rope = {.type = DPE_ROPE_DEFAULT, .theta = 10000.0},
};

static struct dpe_plan make(const char *spec, bool official)
{
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = TRAINED, .length = LENGTH, .official = official};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    return plan;
}

/* ---------------------------------------------------------------- rows: formula, hand, builder */

struct seen {
    bool visible;
    double rel;
};

/* Scales and mask of the DPE row. */
static const double dpe_scales[4] = {1.0, 2.0, 4.5, 8.0};
static uint8_t dpe_mask[LAYERS * HEADS * PAIRS];

static struct seen rope_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    return (struct seen){true, (double)(m - n)};
}

static struct seen rerope_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    return (struct seen){true, (double)(m - n < 16 ? m - n : 16)};
}

static struct seen leaky_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    double delta = (double)(m - n);
    return (struct seen){true, delta < 8.0 ? delta : 8.0 + (delta - 8.0) / 6.0};
}

static struct seen self_extend_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    return (struct seen){true, (double)(m - n < 20 ? m - n : m / 8 + 20 - 20 / 8 - n / 8)};
}

/* Plain DPE, `head` counts heads of all layers; the mask is read only when `masked`. */
static struct seen dpe_of(bool masked, int64_t head, int64_t pair, int64_t m, int64_t n)
{
    double s = dpe_scales[pair / 2];
    bool key_pair = !masked || dpe_mask[head * PAIRS + pair] == 1;
    if (m - n < 20 || !key_pair) {
        return (struct seen){true, (double)(m - n)};
    }
    double pq = floor((double)m / s) + 20.0 - floor(20.0 / s);
    return (struct seen){true, pq - floor((double)n / s)};
}

static struct seen dpe_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    return dpe_of(false, head, pair, m, n);
}

static struct seen masked_dpe_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    return dpe_of(true, head, pair, m, n);
}

static struct seen dca_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    const int64_t chunk = 48;
    const int64_t p = 41; /* local 7 */
    int64_t pq = 2 * p - 1 < chunk ? 2 * p - 1 : chunk;
    if (m / p == n / p) {
        return (struct seen){true, (double)(m - n)};
    }
    if (m / p == n / p + 1) {
        pq = m % p + p < chunk ? m % p + p : chunk;
    }
    return (struct seen){true, (double)(pq - n % p)};
}

static struct seen string_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    return (struct seen){true, (double)(m - n < 168 ? m - n : m - 168 + 16 - n)};
}

/* The cache of StreamingLLM by simulation: the first 4 keys and the last 60, positions by index. */
static struct seen streaming_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    int64_t index = 0;
    int64_t own = -1;
    for (int64_t i = 0; i <= m; i++) {
        bool cached = i < 4 || i > m - 60;
        own = i == n && cached ? index : own;
        index += cached;
    }
    return own < 0 ? (struct seen){false, 0.0} : (struct seen){true, (double)(index - 1 - own)};
}

static struct seen lm_infinite_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    if (m - n < 64) {
        return (struct seen){true, (double)(m - n)};
    }
    return (struct seen){n < 10, n < 10 ? 64.0 : 0.0};
}

static struct seen jet_long_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    return (struct seen){true, (double)(m - n <= 4 ? m - n : m / 8 - n / 8)};
}

/* YaRN's ramp for 8 pairs of base 10000 that were trained on 64 tokens: pairs 0 to 3, from the 32nd
 * of a turn on. */
static double jetlong_scale(int64_t pair)
{
    const double s = (512.0 - 6.0) / (64.0 - 6.0);
    double ramp = pair < 3 ? (double)pair / 3.0 : 1.0;
    return 1.0 / (1.0 - ramp * (1.0 - 1.0 / s));
}

static struct seen jetlong_freq_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    double delta = (double)(m - n);
    return (struct seen){true, delta <= 6.0 ? delta : 6.0 + (delta - 6.0) / jetlong_scale(pair)};
}

/* SELF by counting: group i has floor(5 / (1 + 4 e^(-i/8))) tokens, at most 4, from token 1 on. */
static int64_t self_group(int64_t x)
{
    int64_t group = 0;
    int64_t left = 0;
    for (int64_t i = 1, in = 0; i < x; i++) {
        left = in == 0 ? (int64_t)floor(5.0 / (1.0 + 4.0 * exp(-0.125 * (double)group))) : left;
        left = left > 4 ? 4 : left;
        in = in + 1 == left ? 0 : in + 1;
        group += in == 0;
    }
    return group;
}

static struct seen self_row(int64_t head, int64_t pair, int64_t m, int64_t n)
{
    (void)head;
    (void)pair;
    static int64_t group[LENGTH];
    for (int64_t x = 0; group[LENGTH - 1] == 0 && x < LENGTH; x++) {
        group[x] = self_group(x);
    }
    return (struct seen){true, (double)(m - n < 12 ? m - n : 12 + group[m - 12] - group[n])};
}

static struct dpe_band *hand_band(struct dpe_plan *plan, enum dpe_band_kind kind, int64_t lo,
                                  int64_t hi)
{
    struct dpe_band *band = &plan->bands[plan->n_bands++];
    band->kind = kind;
    band->lo = lo;
    band->hi = hi;
    return band;
}

static void hand_map(struct dpe_position_map *map, bool floored, double scale, double offset)
{
    map->floored = floored;
    for (int j = 0; j < PAIRS; j++) {
        map->scale[j] = scale;
        map->offset[j] = offset;
    }
}

static void hand_rope(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
}

static void hand_rerope(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 16);
    struct dpe_band *far = hand_band(plan, DPE_BAND_DISTANCE, 16, INT64_MAX);
    hand_map(&far->q, false, INFINITY, 16.0);
    hand_map(&far->k, false, INFINITY, 0.0);
}

static void hand_leaky(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 8);
    struct dpe_band *far = hand_band(plan, DPE_BAND_DISTANCE, 8, INT64_MAX);
    hand_map(&far->q, false, 6.0, 8.0 - 8.0 / 6.0);
    hand_map(&far->k, false, 6.0, 0.0);
}

static void hand_jet_long(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 5);
    struct dpe_band *far = hand_band(plan, DPE_BAND_DISTANCE, 5, INT64_MAX);
    hand_map(&far->q, true, 8.0, 0.0);
    hand_map(&far->k, true, 8.0, 0.0);
}

static void hand_jetlong_freq(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 7);
    struct dpe_band *far = hand_band(plan, DPE_BAND_DISTANCE, 7, INT64_MAX);
    for (int j = 0; j < PAIRS; j++) {
        far->q.scale[j] = far->k.scale[j] = jetlong_scale(j);
        far->q.offset[j] = 6.0 - 6.0 / jetlong_scale(j);
    }
}

static void hand_self(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 12);
    struct dpe_band *far = hand_band(plan, DPE_BAND_DISTANCE, 12, INT64_MAX);
    hand_map(&far->q, false, 1.0, 12.0);
    far->q.group_most = far->k.group_most = 5.0;
    far->q.group_rate = far->k.group_rate = 0.125;
    far->q.group_from = 13.0;
    far->k.group_from = 1.0;
}

static void hand_self_extend(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 20);
    struct dpe_band *far = hand_band(plan, DPE_BAND_DISTANCE, 20, INT64_MAX);
    hand_map(&far->q, true, 8.0, 18.0);
    hand_map(&far->k, true, 8.0, 0.0);
}

static void hand_dpe(struct dpe_plan *plan)
{
    const double offsets[4] = {0.0, 10.0, 16.0, 18.0}; /* 20 − ⌊20/s⌋ */
    hand_band(plan, DPE_BAND_DISTANCE, 0, 20);
    struct dpe_band *far = hand_band(plan, DPE_BAND_DISTANCE, 20, INT64_MAX);
    far->q.floored = true;
    far->k.floored = true;
    for (int j = 0; j < PAIRS; j++) {
        far->q.scale[j] = far->k.scale[j] = dpe_scales[j / 2];
        far->q.offset[j] = offsets[j / 2];
    }
}

static void hand_masked_dpe(struct dpe_plan *plan)
{
    hand_dpe(plan);
    plan->bands[1].per_head = true;
    plan->mask = dpe_alloc(sizeof dpe_mask, 1);
    memcpy(plan->mask, dpe_mask, sizeof dpe_mask);
}

static void hand_dca(struct dpe_plan *plan)
{
    plan->chunk = 41;
    for (int b = 0; b < 3; b++) {
        struct dpe_band *band = hand_band(plan, DPE_BAND_CHUNK, b, b == 2 ? INT64_MAX : b + 1);
        band->q.period = b == 2 ? (double)INFINITY : 41.0;
        band->k.period = 41.0;
    }
    hand_map(&plan->bands[1].q, false, 1.0, 41.0);
    plan->bands[1].q.cap = 48.0;
    hand_map(&plan->bands[2].q, false, INFINITY, 48.0);
}

static void hand_string(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 168);
    hand_map(&hand_band(plan, DPE_BAND_DISTANCE, 168, INT64_MAX)->q, false, 1.0, -152.0);
}

static void hand_streaming(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 60);
    hand_band(plan, DPE_BAND_KEY, 0, 4)->q.cap = 63.0;
}

static void hand_lm_infinite(struct dpe_plan *plan)
{
    hand_band(plan, DPE_BAND_DISTANCE, 0, 64);
    struct dpe_band *sinks = hand_band(plan, DPE_BAND_KEY, 0, 10);
    hand_map(&sinks->q, false, INFINITY, 64.0);
    hand_map(&sinks->k, false, INFINITY, 0.0);
}

static const struct row {
    const char *spec; /* NULL: a builder that takes no mask from a spec */
    void (*hand)(struct dpe_plan *plan);
    struct seen (*direct)(int64_t head, int64_t pair, int64_t m, int64_t n);
    double tolerance; /* positions are whole numbers but for leaky ReRoPE */
} rows[] = {
    {"rope", hand_rope, rope_row, 0.0},
    {"rerope:window=16", hand_rerope, rerope_row, 0.0},
    {"leaky-rerope:window=8,scale=6", hand_leaky, leaky_row, 1e-12},
    {"self-extend:window=20,group=8", hand_self_extend, self_extend_row, 0.0},
    {"dpe:window=20,scales=1/2/4.5/8", hand_dpe, dpe_row, 0.0},
    {NULL, hand_masked_dpe, masked_dpe_row, 0.0},
    {"dca:chunk=48,local=7", hand_dca, dca_row, 0.0},
    {"string:window=16", hand_string, string_row, 0.0},
    {"streaming-llm", hand_streaming, streaming_row, 0.0},
    {"lm-infinite", hand_lm_infinite, lm_infinite_row, 0.0},
    {"jet-long", hand_jet_long, jet_long_row, 0.0},
    {"jetlong_freq:window=6", hand_jetlong_freq, jetlong_freq_row, 1e-12},
    {"self:window=12,group=5,rate=0.125", hand_self, self_row, 0.0},
};

static struct dpe_plan make_masked_dpe(void)
{
    const int32_t edges[5] = {0, 2, 4, 6, 8};
    const struct dpe_dpe_params params = {
        .window = 20, .n_groups = 4, .edges = edges, .scale = dpe_scales, .mask = dpe_mask};
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = TRAINED, .length = LENGTH};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make_dpe(&params, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return plan;
}

static void check_row(const struct row *row, const struct dpe_plan *plan)
{
    for (int64_t m = 0; m < LENGTH; m++) {
        for (int64_t n = 0; n < LENGTH; n += 1 + (m % 3)) {
            int64_t at = (m + n) % (LAYERS * HEADS);
            for (int64_t j = 0; j < PAIRS; j++) {
                struct dpe_rel got = dpe_plan_position(plan, at / HEADS, at % HEADS, j, m, n);
                struct seen want = {false, 0.0};
                if (n <= m) {
                    want = row->direct(at, j, m, n);
                }
                if ((got.band >= 0) != want.visible ||
                    !(fabs(got.rel - want.rel) <= row->tolerance) ||
                    !(fabs(got.pq - got.pk - got.rel) <= 1e-12)) {
                    fail_msg("%s: m %lld, n %lld, pair %lld: band %d, rel %g, expected %d, %g",
                             plan->name, (long long)m, (long long)n, (long long)j, got.band,
                             got.rel, want.visible, want.rel);
                }
            }
        }
    }
}

static void every_row_is_held_by_the_struct(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dpe_mask; i++) {
        dpe_mask[i] = (i * 2654435761U >> 7) % 4 != 0;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dpe_plan built =
            rows[i].spec != NULL ? make(rows[i].spec, false) : make_masked_dpe();
        struct dpe_plan hand;
        struct dpe_error err = {0};
        assert_int_equal(dpe_plan_init(&hand, PAIRS, LAYERS, HEADS, &err), DPE_OK);
        for (int j = 0; j < PAIRS; j++) {
            hand.inv_freq[j] = pow(10000.0, -2.0 * j / (2.0 * PAIRS));
        }
        rows[i].hand(&hand);
        if (dpe_plan_check(&hand, &err) != DPE_OK) {
            fail_msg("%s", err.text);
        }
        check_row(&rows[i], &hand);
        check_row(&rows[i], &built);
        char a[65];
        char b[65];
        assert_int_equal(dpe_plan_digest(&hand, a, NULL), DPE_OK);
        assert_int_equal(dpe_plan_digest(&built, b, NULL), DPE_OK);
        assert_string_equal(a, b);
        dpe_plan_free(&hand);
        dpe_plan_free(&built);
    }
}

/* ------------------------------------------------------------------------ identities of DPE */

/* The form in the paper is ⌊(Δ − w)/s⌋ + w. */
static void positions_differ_from_the_papers_by_rounding(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double scale;
        bool divides;
    } cases[] = {{"dpe:window=24,groups=1,scales=8", 8.0, true},
                 {"dpe:window=20,groups=1,scales=8", 8.0, false},
                 {"dpe:window=20,groups=1,scales=2.5", 2.5, true},
                 {"dpe:window=22,groups=1,scales=4.5", 4.5, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_plan separable = make(cases[i].spec, false);
        int64_t counts[3] = {0};
        double window = (double)separable.bands[0].hi;
        for (int64_t m = 0; m < LENGTH; m++) {
            for (int64_t n = 0; n <= m; n++) {
                double a = dpe_plan_position(&separable, 0, 0, 0, m, n).rel;
                double delta = (double)(m - n);
                double b =
                    delta < window ? delta : floor((delta - window) / cases[i].scale) + window;
                assert_true(a - b == 0.0 || a - b == 1.0 || a - b == 2.0);
                counts[(int)(a - b)]++;
            }
        }
        assert_true(counts[0] > 0 && counts[1] > 0);
        assert_true((counts[2] == 0) == cases[i].divides);
        dpe_plan_free(&separable);
    }
}

static void self_extend_is_dpe_with_one_group(void **state)
{
    (void)state;
    struct dpe_plan a = make("self-extend:window=20,group=8", false);
    struct dpe_plan b = make("dpe:window=20,groups=1,scales=8", false);
    char x[65];
    char y[65];
    assert_int_equal(dpe_plan_digest(&a, x, NULL), DPE_OK);
    assert_int_equal(dpe_plan_digest(&b, y, NULL), DPE_OK);
    assert_string_equal(x, y);
    dpe_plan_free(&a);
    dpe_plan_free(&b);
}

static void a_window_over_all_is_rope(void **state)
{
    (void)state;
    static const char *const specs[] = {"dpe:window=512,scales=1/2/4.5/8", "rerope:window=512",
                                        "leaky-rerope:window=512,scale=3",
                                        "self-extend:window=600,group=8", "string:shift=512"};
    struct row rope = {.direct = rope_row};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct dpe_plan plan = make(specs[i], false);
        check_row(&rope, &plan);
        dpe_plan_free(&plan);
    }
}

static void factors_of_queries_are_their_formulas(void **state)
{
    (void)state;
    struct dpe_plan plain = make("rerope", false);
    struct dpe_plan official = make("rerope", true);
    for (int64_t m = 0; m < LENGTH; m += 37) {
        assert_true(fabs(dpe_plan_query_scale(&plain, 0, m) - 0.25) < 1e-15);
        double want = 0.25 * fmax(1.0, log((double)m + 1.0) / log(64.0));
        assert_true(fabs(dpe_plan_query_scale(&official, 0, m) - want) < 1e-15);
    }
    struct dpe_plan dca = make("dca", true);
    double a = 0.05 * log(8.0) + 1.0;
    assert_true(fabs(dca.temperature.logit_scale - a * a) < 1e-12);
    struct dpe_plan string = make("string", true);
    assert_true(fabs(string.temperature.logit_scale - 1.1434) < 1e-4);
    struct dpe_plan off = make("string:official=0", true);
    assert_true(off.temperature.logit_scale == 1.0);
    dpe_plan_free(&plain);
    dpe_plan_free(&official);
    dpe_plan_free(&dca);
    dpe_plan_free(&string);
    dpe_plan_free(&off);
}

/* Group i of a curve as it is defined, by counting; and every group's first token again, alone. */
static void groups_are_the_curve(void **state)
{
    (void)state;
    static const struct {
        double most, rate;
        int64_t tokens;
    } curves[] = {{2, 0.3, 100},
                  {3, 1e-4, 100000},
                  {5, 0.125, 5000},
                  {17, 0.7, 3000},
                  {1000, 0.013, 100000},
                  {1000, 3.1, 100000},
                  {1 << 20, 1e6, 400000},
                  {1 << 20, 0.01, 200000},
                  {1 << 20, 27.5, 3000000},
                  {1 << 20, 0x1p-30, 9000},
                  {(1 << 20) - 3, 11.3, 3000000}};
    alarm(60); /* a walk over all sizes for each token takes hours */
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        const double most = curves[i].most;
        struct dpe_groups at = {0};
        double group = 0.0;
        for (int64_t x = 0, left = 0; x < curves[i].tokens; x++, left--) {
            bool first = left == 0;
            if (first) {
                group += x > 0;
                left = (int64_t)fmin(
                    floor(most / (1.0 + (most - 1.0) * exp(-curves[i].rate * group))), most - 1.0);
            }
            double found = dpe_group_of(most, curves[i].rate, (double)x, &at);
            struct dpe_groups alone = {0};
            if (found != group ||
                (first && dpe_group_of(most, curves[i].rate, (double)x, &alone) != group)) {
                fail_msg("curve %zu, token %lld: group %.0f, expected %.0f", i, (long long)x, found,
                         group);
            }
        }
    }
    alarm(0);
}

/* The largest and steepest curve that a plan may name, in tables for a long text. */
static void tables_of_steep_groups_are_made(void **state)
{
    (void)state;
    struct dpe_plan plan = make("self:window=16,group=1048576,rate=1e6", false);
    struct dpe_rotation rotation;
    struct dpe_error err = {0};
    alarm(60);
    assert_int_equal(dpe_rotation_make(&plan, 100000, 2, &rotation, &err), DPE_OK);
    alarm(0);
    for (int64_t n = 0; n < 99900; n += 4999) {
        struct dpe_rel rel = dpe_plan_position(&plan, 0, 0, 0, 99999, n);
        int table = rotation.k_table[rel.band];
        double angle = (double)((float)rel.pk * (float)plan.inv_freq[0]);
        assert_true(rotation.cos[table][n * PAIRS] == (float)cos(angle));
    }
    dpe_rotation_free(&rotation);
    dpe_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_held_by_the_struct),
        cmocka_unit_test(positions_differ_from_the_papers_by_rounding),
        cmocka_unit_test(self_extend_is_dpe_with_one_group),
        cmocka_unit_test(a_window_over_all_is_rope),
        cmocka_unit_test(factors_of_queries_are_their_formulas),
        cmocka_unit_test(groups_are_the_curve),
        cmocka_unit_test(tables_of_steep_groups_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

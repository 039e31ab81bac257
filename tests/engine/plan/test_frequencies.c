/* Frequencies of the plans that change nothing else, against their formulas; those of a model's
 * own configuration, against transformers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

static const struct dpe_config llama3_8b = {.model_type = "llama",
                                            .n_layers = 1,
                                            .n_heads = 1,
                                            .head_dim = 128,
                                            .max_position = 8192,
                                            .rope = {.type = DPE_ROPE_DEFAULT, .theta = 5e5}};

static struct dpe_plan make_llama(const char *spec, bool official)
{
    const struct dpe_plan_context context = {
        .config = &llama3_8b, .trained_length = 8192, .length = 131072, .official = official};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    return plan;
}

static double direct_frequency(int row, int j)
{
    const double s = 16.0;
    double theta = pow(5e5, -2.0 * j / 128.0);
    double rotations = 8192.0 * theta / (2.0 * acos(-1.0));
    double keep = 0.0;
    switch (row) {
    case 0: /* rope */
        return theta;
    case 1: /* pi */
        return theta / s;
    case 2: /* ntk */
        return pow(5e5 * pow(s, 128.0 / 126.0), -2.0 * j / 128.0);
    case 3: /* ntk-dynamic */
        return pow(5e5 * pow(s * 16.0 - 15.0, 128.0 / 126.0), -2.0 * j / 128.0);
    case 4: /* ntk-by-parts */
        keep = fmin(fmax((rotations - 1.0) / 31.0, 0.0), 1.0);
        return keep * theta + (1.0 - keep) * theta / s;
    case 5: /* yarn: low 18, high 35 */
        keep = 1.0 - fmin(fmax((j - 18.0) / 17.0, 0.0), 1.0);
        return keep * theta + (1.0 - keep) * theta / s;
    default: /* llama3 with low 1, high 4 */
        keep = fmin(fmax((rotations - 1.0) / 3.0, 0.0), 1.0);
        return keep * theta + (1.0 - keep) * theta / s;
    }
}

static void frequency_rows_are_their_formulas(void **state)
{
    (void)state;
    static const char *const specs[] = {"rope",         "pi",   "ntk",   "ntk-dynamic",
                                        "ntk-by-parts", "yarn", "llama3"};
    for (int i = 0; i < 7; i++) {
        struct dpe_plan plan = make_llama(specs[i], true);
        for (int j = 0; j < 64; j++) {
            double want = direct_frequency(i, j);
            if (!(fabs(plan.inv_freq[j] / want - 1.0) < 1e-12)) {
                fail_msg("%s, pair %d: %.17g, expected %.17g", specs[i], j, plan.inv_freq[j], want);
            }
        }
        assert_true(plan.n_bands == 1 && plan.bands[0].lo == 0 && plan.bands[0].hi == INT64_MAX);
        double a = i == 5 ? 0.1 * log(16.0) + 1.0 : 1.0;
        assert_true(fabs(plan.temperature.logit_scale - a * a) < 1e-12);
        dpe_plan_free(&plan);
    }
    for (int uni = 0; uni < 2; uni++) {
        struct dpe_plan plan = make_llama(uni != 0 ? "mrrope:form=uni" : "mrrope", true);
        /* 8192 tokens, base 5e5: pair 18 turns 32.6 times, pair 19 26.5, pair 34 1.23, pair 35
         * 0.997 times. */
        double n = 35.0 - 18.0;
        for (int j = 0; j < 64; j++) {
            double t = j < 18 ? 0.0 : j > 35 ? n : j - 18.0;
            double want = pow(5e5, -2.0 * j / 128.0) /
                          pow(16.0, uni != 0 ? t / n : t * (t + 1.0) / (n * (n + 1.0)));
            if (!(fabs(plan.inv_freq[j] / want - 1.0) < 1e-12)) {
                fail_msg("mrrope, pair %d: %.17g, expected %.17g", j, plan.inv_freq[j], want);
            }
        }
        assert_true(fabs(plan.temperature.logit_scale - pow(0.1 * log(16.0) + 1.0, 2.0)) < 1e-12);
        dpe_plan_free(&plan);
    }
    /* Figures of the method table. */
    struct dpe_plan ntk = make_llama("ntk", true);
    assert_true(fabs(pow(ntk.inv_freq[1], -64.0) / 8.360e6 - 1.0) < 1e-3);
    struct dpe_plan dynamic = make_llama("ntk-dynamic", true);
    assert_true(fabs(pow(dynamic.inv_freq[1], -64.0) / 1.3146e8 - 1.0) < 1e-4);
    struct dpe_plan yarn = make_llama("yarn", true);
    assert_true(fabs(sqrt(yarn.temperature.logit_scale) - 1.2773) < 1e-4);
    struct dpe_plan paper = make_llama("yarn:a=1.386", true);
    assert_true(fabs(paper.temperature.logit_scale - 1.386 * 1.386) < 1e-12);
    dpe_plan_free(&ntk);
    dpe_plan_free(&dynamic);
    dpe_plan_free(&yarn);
    dpe_plan_free(&paper);
}

struct golden_rope {
    const char *name;
    enum dpe_rope_type type;
    int head_dim, max_position, length;
    double numbers[10]; /* in the order make_rope.py writes them */
    int truncate;
    double attention_factor;
    double inv_freq[64];
};
#include "tests/golden/rope_golden.h"

static void native_scalings_are_those_of_transformers(void **state)
{
    (void)state;
    double short_factor[16];
    double long_factor[16];
    memcpy(short_factor, golden_short, sizeof short_factor);
    memcpy(long_factor, golden_long, sizeof long_factor);
    for (size_t i = 0; i < sizeof golden_ropes / sizeof golden_ropes[0]; i++) {
        const struct golden_rope *golden = &golden_ropes[i];
        const double *x = golden->numbers;
        const struct dpe_config native = {
            .head_dim = golden->head_dim,
            .max_position = golden->max_position,
            .rope = {.type = golden->type,
                     .theta = x[0],
                     .factor = x[1],
                     .original_max_position = x[2],
                     .attention_factor = x[3],
                     .beta_fast = x[4],
                     .beta_slow = x[5],
                     .mscale = x[6],
                     .mscale_all_dim = x[7],
                     .low_freq_factor = x[8],
                     .high_freq_factor = x[9],
                     .truncate = golden->truncate != 0,
                     .short_factor = short_factor,
                     .long_factor = long_factor,
                     .partial_rotary_factor = 1.0},
        };
        double inv_freq[64];
        double a = 0.0;
        struct dpe_error err = {0};
        if (dpe_rope_native(&native, golden->length, inv_freq, &a, &err) != DPE_OK) {
            fail_msg("%s: %s", golden->name, err.text);
        }
        assert_true(fabs(a - golden->attention_factor) < 1e-12);
        for (int j = 0; j < golden->head_dim / 2; j++) {
            /* theirs is float32 throughout */
            if (!(fabs(inv_freq[j] / golden->inv_freq[j] - 1.0) < 1e-6)) {
                fail_msg("%s, pair %d: %.9g, expected %.9g", golden->name, j, inv_freq[j],
                         golden->inv_freq[j]);
            }
        }
    }
}

static void senseless_scalings_are_refused(void **state)
{
    (void)state;
    const struct dpe_rope_config bad[] = {
        {.type = DPE_ROPE_DEFAULT, .theta = 1.0},
        {.type = DPE_ROPE_DEFAULT, .theta = NAN},
        {.type = DPE_ROPE_LINEAR, .theta = 1e4, .factor = NAN},
        {.type = DPE_ROPE_LINEAR, .theta = 1e4, .factor = 0.0},
        {.type = DPE_ROPE_YARN, .theta = 1e4, .factor = -2.0},
        {.type = DPE_ROPE_YARN, .theta = 1e4, .factor = 2.0, .beta_fast = 0.0},
        {.type = DPE_ROPE_LONGROPE, .theta = 1e4, .factor = 2.0},
        {.type = DPE_ROPE_LLAMA3,
         .theta = 1e4,
         .factor = 8.0,
         .low_freq_factor = 4.0,
         .high_freq_factor = 4.0},
        {.type = DPE_ROPE_NETWORK, .theta = 1e4},
        {.type = (enum dpe_rope_type)17, .theta = 1e4},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dpe_config native = {.head_dim = 16, .max_position = 64, .rope = bad[i]};
        native.rope.original_max_position = 32.0;
        double inv_freq[8];
        double a = 0.0;
        struct dpe_error err = {0};
        assert_int_equal(dpe_rope_native(&native, 64, inv_freq, &a, &err), DPE_BAD_DATA);
        assert_non_null(strstr(err.text, "rope"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequency_rows_are_their_formulas),
        cmocka_unit_test(native_scalings_are_those_of_transformers),
        cmocka_unit_test(senseless_scalings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

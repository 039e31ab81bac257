/* Every position method against tests/golden/methods: attention computed in float64 from the
 * definitions of the publications (make_methods.py), by the reference and the fast backend, all
 * rows at once, in chunks and one by one; and frequencies as transformers computes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/plan/methods/methods.h"
#include "tests/lib/near.h"

/* As in make_methods.py. */
enum { TOKENS = 80, HEADS = 2, DIM = 16, PAIRS = 8, TRAINED = 24, ROW = HEADS * DIM };
static const double theta = 50.0;
/* Of outputs around 1: float32 arithmetic on logits up to about 10. */
static const double tolerance = 2e-5;

static struct dpe_config config = {
    .model_type = "llama",
    .n_layers = 1,
    .n_heads = HEADS,
    .n_kv_heads = 1,
    .head_dim = DIM,
    .max_position = TRAINED,
    .rope = {.type = DPE_ROPE_DEFAULT, .original_max_position = NAN},
};

struct golden {
    char *cases;
    float *values; /* q, k, v, then the output of each case */
    size_t n;
};

static char *read_golden(const char *name, size_t *n)
{
    char path[512];
    char *bytes = NULL;
    struct dpe_error err = {0};
    snprintf(path, sizeof path, "%s/tests/golden/methods/%s", DPE_SOURCE_DIR, name);
    if (dpe_read_file(path, 1 << 22, &bytes, n, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return bytes;
}

static struct dpe_plan make(const char *spec)
{
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = TRAINED, .length = TOKENS, .official = false};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    config.rope.theta = theta;
    if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    return plan;
}

/* The mask of make_methods.py. */
static void mask_plan(struct dpe_plan *plan)
{
    plan->mask = dpe_alloc(HEADS * PAIRS, 1);
    assert_non_null(plan->mask);
    for (int h = 0; h < HEADS; h++) {
        for (int j = 0; j < PAIRS; j++) {
            plan->mask[h * PAIRS + j] = (7 * h + 3 * j) % 5 != 0;
        }
    }
    plan->bands[1].per_head = true;
}

/* All queries as a cache keeps them, and room for representatives, where the
 * plan has a selection. */
struct kept {
    float *queries, *marks;
    int64_t slots;
};

static struct kept keep(const struct dpe_plan *plan, const float *q, bool fast)
{
    const struct dpe_selection *s = &plan->selection;
    struct kept kept = {0};
    if (dpe_selection_keeps_queries(s)) {
        kept.queries = dpe_alloc(TOKENS * ROW, sizeof *kept.queries);
        for (int64_t i = 0; i < TOKENS * HEADS; i++) {
            memcpy(kept.queries + (i % HEADS * TOKENS + i / HEADS) * DIM, q + i * DIM,
                   DIM * sizeof *q);
        }
    }
    if (dpe_selects(s) && fast) {
        uint64_t bytes = dpe_selection_mark_bytes(&plan->selection, config.head_dim, config.n_heads,
                                                  config.n_kv_heads, TOKENS, 1);
        kept.slots = dpe_selection_slots(s, TOKENS, 1);
        kept.marks = dpe_alloc(bytes, 1);
        near_guard_fill(kept.marks, bytes / sizeof *kept.marks);
    }
    return kept;
}

static void run(const struct dpe_plan *plan, const float *q, const float *k, const float *v,
                bool fast, int64_t step, float *out)
{
    const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
    const struct dpe_ops *reference = dpe_ops_reference();
    struct dpe_rotation rotation;
    struct dpe_error err = {0};
    assert_int_equal(dpe_rotation_make(plan, TOKENS, 1, &rotation, &err), DPE_OK);
    uint64_t bytes =
        fast ? dpe_cpu_attention_workspace(kernels, NULL, &config, plan, TOKENS, step, 1)
             : reference->attention_workspace(&config, plan, TOKENS, step, 1);
    void *workspace = dpe_alloc(bytes, 1);
    assert_non_null(workspace);
    struct kept kept = keep(plan, q, fast);
    for (int64_t start = 0; start < TOKENS; start += step) {
        int64_t rows = start + step <= TOKENS ? step : TOKENS - start;
        const struct dpe_attention args = {
            .plan = plan,
            .rotation = &rotation,
            .start = start,
            .rows = rows,
            .n_heads = HEADS,
            .n_kv_heads = 1,
            .head_dim = DIM,
            .capacity = TOKENS,
            .q = q + start * ROW,
            .k = k,
            .v = v,
            .out = out + start * ROW,
            .queries = kept.queries,
            .marks = kept.marks,
            .slots = kept.slots,
            .room = TOKENS,
            .workspace = workspace,
            .n_threads = 1,
        };
        if (fast && kept.marks != NULL) {
            dpe_cpu_represent(kernels, &args);
        }
        if (fast) {
            dpe_cpu_attention(kernels, NULL, &args, 1);
        } else {
            reference->attention(NULL, &args, 1);
        }
    }
    free(workspace);
    free(kept.queries);
    free(kept.marks);
    dpe_rotation_free(&rotation);
}

static int check_case(const char *spec, bool masked, const struct golden *golden,
                      const float *expected)
{
    static const int64_t steps[] = {TOKENS, 23, 1};
    const float *q = golden->values;
    const float *k = q + TOKENS * ROW;
    const float *v = k + TOKENS * DIM;
    double want[TOKENS * ROW];
    float out[TOKENS * ROW];
    int problems = 0;
    for (size_t i = 0; i < TOKENS * ROW; i++) {
        want[i] = (double)expected[i];
    }
    for (int fast = 0; fast < 2; fast++) {
        struct dpe_plan plan = make(spec);
        if (masked) {
            mask_plan(&plan);
        }
        for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
            char what[256];
            snprintf(what, sizeof what, "%s%s, %s, %lld rows at a time", spec,
                     masked ? " masked" : "", fast ? "cpu" : "reference", (long long)steps[s]);
            near_guard_fill(out, TOKENS * ROW);
            run(&plan, q, k, v, fast, steps[s], out);
            problems += near_f32(what, out, want, TOKENS * ROW, tolerance);
        }
        dpe_plan_free(&plan);
    }
    return problems;
}

static void attention_is_as_published(void **state)
{
    (void)state;
    struct golden golden = {0};
    size_t bytes = 0;
    golden.values = (float *)(void *)read_golden("attention.f32", &bytes);
    golden.cases = read_golden("cases.txt", &golden.n);
    const float *expected = golden.values + TOKENS * (ROW + 2 * DIM);
    char seen[96][32] = {{0}};
    int n = 0;
    int problems = 0;
    char *rest = golden.cases;
    for (char *line = NULL; (line = strtok_r(rest, "\n", &rest)) != NULL; n++) {
        char *mark = strstr(line, " masked");
        assert_true(n < 96 && (size_t)(n + 1) * TOKENS * ROW * sizeof(float) <= bytes);
        if (mark != NULL) {
            *mark = '\0';
        }
        snprintf(seen[n], sizeof seen[n], "%.*s", (int)strcspn(line, ":"), line);
        problems += check_case(line, mark != NULL, &golden, expected + n * TOKENS * ROW);
    }
    assert_int_equal(bytes, (size_t)(TOKENS * (ROW + 2 * DIM) + n * TOKENS * ROW) * sizeof(float));
    assert_int_equal(problems, 0);
    /* A method without a golden case would not be tested. */
    for (size_t i = 0; dpe_plan_method(i) != NULL; i++) {
        char name[32];
        const char *line = dpe_plan_method(i);
        bool found = false;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\t"), line);
        for (int c = 0; c < n; c++) {
            found = found || strcmp(seen[c], name) == 0;
        }
        if (!found) {
            fail_msg("%s has no case in make_methods.py", name);
        }
    }
    free(golden.values);
    free(golden.cases);
}

/* A case can fail: one token of window more is not the published method. */
static void a_wrong_window_is_seen(void **state)
{
    (void)state;
    struct golden golden = {0};
    size_t bytes = 0;
    golden.values = (float *)(void *)read_golden("attention.f32", &bytes);
    golden.cases = read_golden("cases.txt", &golden.n);
    const float *expected = golden.values + TOKENS * (ROW + 2 * DIM);
    int n = 0;
    char *rest = golden.cases;
    for (char *line = NULL; (line = strtok_r(rest, "\n", &rest)) != NULL; n++) {
        if (strcmp(line, "self-extend:window=9,group=4") == 0) {
            const float *own = expected + n * TOKENS * ROW;
            float out[TOKENS * ROW];
            struct dpe_plan plan = make("self-extend:window=10,group=4");
            run(&plan, golden.values, golden.values + TOKENS * ROW,
                golden.values + TOKENS * (ROW + DIM), true, TOKENS, out);
            double worst = 0.0;
            for (size_t i = 0; i < TOKENS * ROW; i++) {
                worst = fmax(worst, fabs((double)out[i] - (double)own[i]));
            }
            assert_true(worst > 100.0 * tolerance);
            dpe_plan_free(&plan);
        }
    }
    free(golden.values);
    free(golden.cases);
}

static void frequencies_are_those_of_transformers(void **state)
{
    (void)state;
    size_t n = 0;
    char *lines = read_golden("frequencies.txt", &n);
    char *rest = lines;
    int cases = 0;
    for (char *line = NULL; (line = strtok_r(rest, "\n", &rest)) != NULL; cases++) {
        char *numbers = strchr(line, ' ');
        assert_non_null(numbers);
        *numbers++ = '\0';
        struct dpe_plan plan = make(line);
        double a = strtod(numbers, &numbers);
        assert_true(fabs(plan.temperature.logit_scale - a * a) < 1e-6 * a * a);
        for (int j = 0; j < PAIRS; j++) {
            double wanted = strtod(numbers, &numbers);
            if (!(fabs(plan.inv_freq[j] - wanted) <= 1e-6 * wanted)) {
                fail_msg("%s: pair %d: %.9g, transformers has %.9g", line, j, plan.inv_freq[j],
                         wanted);
            }
        }
        assert_int_equal(strspn(numbers, " "), strlen(numbers));
        dpe_plan_free(&plan);
    }
    assert_int_equal(cases, 7);
    free(lines);
}

/* longrope takes its factors from where they are: the spec, else the model. */
static void longrope_needs_factors(void **state)
{
    (void)state;
    struct dpe_plan_context context = {
        .config = &config, .trained_length = TRAINED, .length = TOKENS};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    config.rope.theta = theta;
    assert_int_equal(dpe_plan_make("longrope", &context, &plan, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "long_factor"));
    assert_non_null(strstr(err.text, "each of the 8 pairs"));
    assert_int_equal(dpe_plan_make("longrope:long=2/3", &context, &plan, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "one number or 8"));
    double long_factor[PAIRS] = {1, 2, 3, 4, 5, 6, 7, 8};
    double short_factor[PAIRS] = {1, 1, 1, 1, 2, 2, 2, 2};
    struct dpe_config own = config;
    own.max_position = 96;
    own.rope = (struct dpe_rope_config){.type = DPE_ROPE_LONGROPE,
                                        .theta = theta,
                                        .factor = NAN,
                                        .original_max_position = TRAINED,
                                        .attention_factor = NAN,
                                        .long_factor = long_factor,
                                        .short_factor = short_factor,
                                        .partial_rotary_factor = 1.0};
    context.config = &own;
    for (int is_long = 0; is_long < 2; is_long++) {
        context.length = is_long ? TRAINED + 1 : TRAINED;
        struct dpe_plan native;
        assert_int_equal(dpe_plan_make("longrope", &context, &plan, &err), DPE_OK);
        assert_int_equal(dpe_plan_make("rope", &context, &native, &err), DPE_OK);
        for (int j = 0; j < PAIRS; j++) {
            assert_true(plan.inv_freq[j] == native.inv_freq[j]);
        }
        assert_true(fabs(plan.temperature.logit_scale - native.temperature.logit_scale) < 1e-12);
        assert_true(fabs(plan.temperature.logit_scale - (1.0 + log(4.0) / log(TRAINED))) < 1e-12);
        dpe_plan_free(&plan);
        dpe_plan_free(&native);
    }
}

/* A plan of a model of one head, whose rotations have this base. */
static struct dpe_plan make_for(const char *spec, int head_dim, int trained, double base,
                                int length)
{
    struct dpe_config own = config;
    own.n_heads = 1;
    own.head_dim = head_dim;
    own.max_position = trained;
    own.rope.theta = base;
    own.rope.partial_rotary_factor = 1.0;
    const struct dpe_plan_context context = {
        .config = &own, .trained_length = trained, .length = length};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make(spec, &context, &plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    return plan;
}

/* Numbers after the ": " of a line, n of them. */
static double *read_line(const char *line, int n)
{
    double *numbers = dpe_alloc((size_t)n, sizeof *numbers);
    char *at = strstr(line, ": ") + 2;
    assert_non_null(numbers);
    for (int i = 0; i < n; i++) {
        char *end = at;
        numbers[i] = strtod(at, &end);
        assert_ptr_not_equal(at, end);
        at = end;
    }
    return numbers;
}

/* Far positions of queries and keys in turn. */
static void check_self(const char *line, int window, int group, double rate, int n)
{
    char spec[96];
    double *released = read_line(line, 2 * n);
    snprintf(spec, sizeof spec, "self:window=%d,group=%d,rate=%.17g", window, group, rate);
    struct dpe_plan plan = make_for(spec, DIM, TRAINED, theta, n);
    for (int m = window; m < n; m++) {
        for (int k = 0; k <= m - window; k++) {
            struct dpe_rel at = dpe_plan_position(&plan, 0, 0, 3, m, k);
            if (at.pq != released[2 * m] || at.pk != released[2 * k + 1]) {
                fail_msg("%s: m %d, n %d: %g and %g, released %g and %g", spec, m, k, at.pq, at.pk,
                         released[2 * m], released[2 * k + 1]);
            }
        }
    }
    dpe_plan_free(&plan);
    free(released);
}

/* A pair of ramp r loses r (1 - 1/scale) of a far distance. */
static void check_jetlong(const char *line, int head_dim, int trained, double base, double fast,
                          double slow)
{
    char spec[128];
    double *released = read_line(line, head_dim / 2);
    snprintf(spec, sizeof spec, "jetlong_freq:window=1,scale=3,beta_fast=%g,beta_slow=%g", fast,
             slow);
    struct dpe_plan plan = make_for(spec, head_dim, trained, base, 2 * trained);
    for (int j = 0; j < head_dim / 2; j++) {
        double rel = dpe_plan_position(&plan, 0, 0, j, 1001, 0).rel;
        double want = 1001.0 - released[j] * (1.0 - 1.0 / 3.0) * 1000.0;
        if (!(fabs(rel - want) < 1e-4)) {
            fail_msg("%s, pair %d: %g, released %g", spec, j, rel, want);
        }
    }
    dpe_plan_free(&plan);
    free(released);
}

static void positions_are_the_released_ones(void **state)
{
    (void)state;
    size_t n = 0;
    char *lines = read_golden("released.txt", &n);
    int checked = 0;
    char *rest = NULL;
    for (char *line = strtok_r(lines, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        int first = 0;
        int second = 0;
        int count = 0;
        double rate = 0.0;
        double slow = 0.0;
        if (sscanf(line, "self %d %d %lf %d:", &first, &second, &rate, &count) == 4) {
            check_self(line, first, second, rate, count);
        } else if (sscanf(line, "jetlong_freq %d %d %lf %d %lf:", &first, &second, &rate, &count,
                          &slow) == 5) {
            check_jetlong(line, first, second, rate, count, slow);
        } else {
            fail_msg("%.60s", line);
        }
        checked++;
    }
    assert_int_equal(checked, 6);
    free(lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_as_published),
        cmocka_unit_test(positions_are_the_released_ones),
        cmocka_unit_test(a_wrong_window_is_seen),
        cmocka_unit_test(frequencies_are_those_of_transformers),
        cmocka_unit_test(longrope_needs_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

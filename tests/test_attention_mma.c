/* The mma.sync attention kernel, its very source run by the emulator, against the reference
 * backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulate_control.h"
#include "near.h"
#include "plan_cases.h"

#include "flash_case.h"

static struct dpe_config config_of(const struct flash_shape *s)
{
    return (struct dpe_config){
        .model_type = "llama",
        .n_layers = 1,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .max_position = 64,
        .rope = {.type = DPE_ROPE_DEFAULT, .theta = 10000.0},
    };
}

static void launch(struct flash_case *c)
{
    if (dpe_attention_mma(&c->call, NULL) != 0) {
        fail_msg("launch: %s", emulate_error());
    }
}

static void run_case(const struct flash_shape *shape, int plan_case, int64_t window)
{
    char what[256];
    struct dpe_plan plan;
    const struct dpe_config config = config_of(shape);
    plan_case_make(plan_case, window, &config, &plan);
    snprintf(what, sizeof what, "%s, window %d, head_dim %d, %s, heads %d/%d, rows %d + %d",
             plan_cases[plan_case], (int)window, (int)shape->head_dim,
             shape->dtype == DPE_BF16 ? "bf16" : "f16", (int)shape->n_heads, (int)shape->n_kv_heads,
             (int)shape->start, (int)shape->rows);
    struct flash_case c = flash_case_make(shape, plan, dpe_attention_mma_shape(shape->head_dim));
    emulate_set_seed(shape->seed);
    launch(&c);
    flash_case_check(&c, what);
    flash_case_free(&c);
}

/* Query heads, KV heads. */
static const int64_t heads[4][2] = {{2, 1}, {3, 3}, {3, 1}, {4, 2}};

static void every_plan(void **state)
{
    static const int64_t dims[4] = {64, 96, 128, 256};
    struct dpe_rng rng;
    (void)state;
    dpe_rng_seed(&rng, 30, 1);
    for (int i = 0; i < PLAN_CASES; i++) {
        for (int k = 0; k < 4; k++) {
            const int64_t *h = heads[dpe_rng_below(&rng, 4)];
            struct flash_shape shape = {
                .dtype = dpe_rng_below(&rng, 2) == 0 ? DPE_BF16 : DPE_F16,
                .n_heads = h[0],
                .n_kv_heads = h[1],
                .head_dim = dims[k],
                .start = dpe_rng_below(&rng, 2) == 0 ? 0 : 1 + dpe_rng_below(&rng, 150),
                .rows = 1 + dpe_rng_below(&rng, 140),
                .seed = 1 + (uint64_t)(4 * i + k),
            };
            run_case(&shape, i, 3 + dpe_rng_below(&rng, 100));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

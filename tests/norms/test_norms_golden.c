/* The profile of a session's own queries and keys against the one that transformers' projections
 * give (golden/make_norms.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/methods/methods.h"
#include "norms/norms.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

enum { REFERENCE_TOKENS = 150 };

static void compare(const char *name, const struct dpe_model *model, const int32_t *tokens,
                    int64_t n, const char *device, enum dpe_contribution kind)
{
    const struct dpe_config *config = dpe_model_config(model);
    const struct dpe_plan_context context = {
        .config = config, .trained_length = config->max_position, .length = n};
    const struct dpe_session_options options = {
        .device = device, .n_threads = 2, .capacity = n, .prefill_chunk = 16};
    struct dpe_error err = {0};
    struct dpe_plan plan = {0};
    struct dpe_session *session = NULL;
    struct dpe_norms norms;
    TINY_OK(dpe_plan_make("rope", &context, &plan, &err), err);
    TINY_OK(dpe_session_create(model, &plan, &options, &session, &err), err);
    TINY_OK(dpe_norms_create(config, kind, &norms, &err), err);
    const struct dpe_norm_text text = {tokens, n, norms.sums};
    TINY_OK(dpe_session_norms(session, &text, 1, &err), err);
    size_t size = (size_t)dpe_norms_size(&norms);
    double *scores = malloc(size * sizeof *scores);
    assert_non_null(scores);
    TINY_OK(dpe_norms_finish(&norms, scores, &err), err);

    char file[64];
    size_t bytes = 0;
    snprintf(file, sizeof file, "%s.f32", name);
    char *golden = tiny_read("norms", file, &bytes);
    assert_int_equal(bytes, 2 * size * sizeof(float));
    const float *want = (const float *)(void *)golden + (size_t)kind * size;
    double worst = 0.0;
    for (size_t i = 0; i < size; i++) {
        double error = near_error(scores[i], (double)want[i]) / (double)want[i];
        worst = error <= worst ? worst : error;
    }
    printf("%s on %s, %s: worst relative error %.1e\n", name, device, dpe_contribution_names[kind],
           worst);
    assert_true(worst <= 1e-4);
    free(golden);
    free(scores);
    dpe_norms_destroy(&norms);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
}

static void compare_all(const char *name, const struct dpe_model *model, const int32_t *tokens,
                        int64_t n)
{
    for (int kind = DPE_PRODUCT_OF_MEANS; kind <= DPE_MEAN_OF_PRODUCTS; kind++) {
        compare(name, model, tokens, n, "reference", (enum dpe_contribution)kind);
        compare(name, model, tokens, n, "cpu", (enum dpe_contribution)kind);
    }
}

static void tiny_models_give_the_norms_of_transformers(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2"};
    for (int i = 0; i < 2; i++) {
        struct tiny tiny = tiny_open(names[i]);
        compare_all(names[i], tiny.model, tiny.tokens, tiny.n);
        tiny_close(&tiny);
    }
}

static void the_reference_model_gives_the_norms_of_transformers(void **state)
{
    (void)state;
    struct dpe_model *model = NULL;
    struct dpe_error err = {0};
    int32_t tokens[REFERENCE_TOKENS];
    for (int i = 0; i < REFERENCE_TOKENS; i++) {
        tokens[i] = (37 * i + 11) % 2500;
    }
    TINY_OK(dpe_model_open(DPE_SOURCE_DIR "/data/reference", NULL, &model, &err), err);
    compare_all("reference", model, tokens, REFERENCE_TOKENS);
    dpe_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_models_give_the_norms_of_transformers),
        cmocka_unit_test(the_reference_model_gives_the_norms_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

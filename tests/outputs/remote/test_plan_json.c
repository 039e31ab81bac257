/* Plans as JSON: every method comes back with the same digest; what is no plan is refused by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "outputs/remote/remote.h"

static const struct dpe_config config = {
    .model_type = "llama",
    .n_layers = 2,
    .n_heads = 3,
    .n_kv_heads = 1,
    .head_dim = 16,
    .max_position = 64,
    .rope = {.type = DPE_ROPE_DEFAULT, .theta = 10000.0},
};
static const struct dpe_plan_context context = {
    .config = &config, .trained_length = 64, .length = 512};

static char *text_of(const struct dpe_plan *plan)
{
    json_t *value = dpe_plan_to_json(plan);
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(value);
    assert_non_null(text);
    return text;
}

static dpe_status read_back(const char *text, struct dpe_plan *plan, struct dpe_error *err)
{
    json_error_t wrong;
    json_t *value = json_loads(text, 0, &wrong);
    assert_non_null(value);
    dpe_status status = dpe_plan_from_json(value, plan, err);
    json_decref(value);
    return status;
}

static void same(struct dpe_plan *plan)
{
    struct dpe_plan back;
    struct dpe_error err = {0};
    char keys[2][33];
    char *text = text_of(plan);
    if (read_back(text, &back, &err) != DPE_OK) {
        fail_msg("%s: %s", plan->name, err.text);
    }
    assert_int_equal(dpe_plan_key(plan, keys[0], NULL), DPE_OK);
    assert_int_equal(dpe_plan_key(&back, keys[1], NULL), DPE_OK);
    assert_string_equal(keys[0], keys[1]);
    assert_string_equal(plan->name, back.name);
    free(text);
    dpe_plan_free(&back);
    dpe_plan_free(plan);
}

static void every_method_comes_back(void **state)
{
    static const char *const more[] = {
        "yarn:infoscale=64,logit-scale=1.25", "self-extend:window=8,group=3,exact=1",
        "dpe:window=16,scales=1/2/4.5/8", "select:k=4,block=8,over=yarn"};
    struct dpe_plan plan;
    int made = 0;
    (void)state;
    for (size_t i = 0; dpe_plan_method(i) != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(dpe_plan_method(i), "\t"),
                 dpe_plan_method(i));
        if (dpe_plan_make(name, &context, &plan, NULL) ==
            DPE_OK) { /* some need a file or a value */
            same(&plan);
            made++;
        }
    }
    assert_true(made > 10);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        assert_int_equal(dpe_plan_make(more[i], &context, &plan, NULL), DPE_OK);
        same(&plan);
    }
    uint8_t mask[2 * 3 * 8];
    for (size_t i = 0; i < sizeof mask; i++) {
        mask[i] = i % 3 == 0;
    }
    assert_int_equal(dpe_plan_make("dpe:window=16,scales=1/2/4.5/8", &context, &plan, NULL),
                     DPE_OK);
    assert_int_equal(dpe_plan_set_mask(&plan, mask, NULL), DPE_OK);
    plan.bands[plan.n_bands - 1].per_head = true;
    same(&plan);
}

/* The JSON of a plan with `from` replaced by `to`. */
static void refused(const char *from, const char *to, const char *words)
{
    struct dpe_plan plan;
    struct dpe_error err = {0};
    assert_int_equal(dpe_plan_make("self-extend:window=8,group=3", &context, &plan, NULL), DPE_OK);
    char *text = text_of(&plan);
    dpe_plan_free(&plan);
    char *at = strstr(text, from);
    assert_non_null(at);
    char *changed = malloc(strlen(text) + strlen(to) + 1);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    if (read_back(changed, &plan, &err) != DPE_BAD_DATA || strstr(err.text, words) == NULL) {
        fail_msg("%s for %s: %s", to, from, err.text);
    }
    free(text);
    free(changed);
}

static void what_is_no_plan_is_refused(void **state)
{
    (void)state;
    refused("\"n_pairs\":8", "\"n_pairs\":0", "n_pairs");
    refused("\"n_pairs\":8", "\"n_pairs\":9", "inv_freq");
    refused("\"n_pairs\":8", "\"n_pairs\":1e9", "n_pairs");
    refused("\"n_layers\":2", "\"n_layers\":-2", "n_layers");
    refused("\"angle\":0", "\"angle\":7", "angle");
    refused("\"logit_factor\":1.0", "\"logit_factor\":\"nan\"", "logit_factor");
    refused("\"logit_factor\":1.0", "\"logit_factor\":-1.0", "");
    refused("\"inv_freq\":[1.0", "\"inv_freq\":[\"x\"", "inv_freq");
    refused("\"bands\":[", "\"bands\":[5,", "bands");
    refused("\"mask\":null", "\"mask\":\"01\"", "mask");
    refused("\"mask\":null", "\"mask\":5", "mask");
    refused("\"scale\":[1.0", "\"scale\":[0.5", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_comes_back),
        cmocka_unit_test(what_is_no_plan_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Plans as tables of one entry: every method comes back with the same digest, through the JSON
 * form; what is no plan is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "outputs/read/read.h"

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
    struct dpe_table *table = NULL;
    struct dpe_error err = {0};
    if (dpe_table_for_plan(plan, &context, "f00d", 0, &table, &err) != DPE_OK) {
        fail_msg("%s: %s", plan->name, err.text);
    }
    char *text = dpe_table_json(table);
    assert_non_null(text);
    dpe_table_close(table);
    return text;
}

static int read_back(const char *text, struct dpe_plan *plan, char *why)
{
    struct dpe_table *table = NULL;
    struct dpe_error err = {0};
    int error = dpe_table_parse("given", text, strlen(text), &table, why);
    if (error == DPE_TABLE_OK) {
        dpe_status status = dpe_plan_of_table(dpe_table_values(table), &context, plan, &err);
        error = status == DPE_OK ? DPE_TABLE_OK : DPE_TABLE_BAD_FILE;
        snprintf(why, DPE_TABLE_MESSAGE, "%.400s", err.text);
    }
    dpe_table_close(table);
    return error;
}

static void same(struct dpe_plan *plan)
{
    struct dpe_plan back;
    char why[DPE_TABLE_MESSAGE] = "";
    char keys[2][33];
    char *text = text_of(plan);
    if (read_back(text, &back, why) != DPE_TABLE_OK) {
        fail_msg("%s: %s", plan->name, why);
    }
    /* The model's factor is divided out and multiplied in again. */
    assert_true(back.temperature.logit_scale > plan->temperature.logit_scale * (1.0 - 1e-14) &&
                back.temperature.logit_scale < plan->temperature.logit_scale * (1.0 + 1e-14));
    back.temperature.logit_scale = plan->temperature.logit_scale;
    assert_int_equal(dpe_plan_key(plan, keys[0], NULL), DPE_OK);
    assert_int_equal(dpe_plan_key(&back, keys[1], NULL), DPE_OK);
    assert_string_equal(keys[0], keys[1]);
    free(text);
    dpe_plan_free(&back);
    dpe_plan_free(plan);
}

static void every_method_comes_back(void **state)
{
    static const char *const more[] = {"yarn:infoscale=64,logit-scale=1.25",
                                       "dpe:window=16,scales=1/2/4.5/8",
                                       "dope:heads=1/5,from=3",
                                       "lampe:logit-scale-heads=0.2:0.5/1.0:3",
                                       "select:k=4,block=8,over=yarn",
                                       "select:representative=attended,attended=2,over=lampe",
                                       "select:representative=probability,last=3,slashes=5"};
    struct dpe_plan plan;
    int made = 0;
    (void)state;
    for (size_t i = 0; dpe_plan_method(i) != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(dpe_plan_method(i), "\t"),
                 dpe_plan_method(i));
        if (dpe_plan_make(name, &context, &plan, NULL) == DPE_OK) { /* some need a value */
            same(&plan);
            made++;
        }
    }
    assert_true(made > 20);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        assert_int_equal(dpe_plan_make(more[i], &context, &plan, NULL), DPE_OK);
        same(&plan);
    }
    static const char *const by_head[] = {"dpe:window=16,scales=1/2/4.5/8", "string", "lampe"};
    for (size_t i = 0; i < sizeof by_head / sizeof by_head[0]; i++) {
        uint8_t mask[2 * 3 * 8];
        for (size_t j = 0; j < sizeof mask; j++) {
            mask[j] = (j + j / 8) % 8 < 5; /* five of each head */
        }
        assert_int_equal(dpe_plan_make(by_head[i], &context, &plan, NULL), DPE_OK);
        assert_int_equal(dpe_plan_set_mask(&plan, mask, NULL), DPE_OK);
        plan.bands[plan.n_bands - 1].per_head = true;
        same(&plan);
    }
}

/* The factor of yarn and the like is on the pairs that rotate; where others do not, no table has
 * one for these alone. Without it the same methods are held. */
static void no_table_has_a_factor_for_rotated_pairs_alone(void **state)
{
    static const char *const methods[] = {"yarn", "mrrope:form=uni", "yarn:scale=2"};
    struct dpe_config part = config;
    part.rotary_dim = 10;
    struct dpe_plan_context of_part = context;
    of_part.config = &part;
    (void)state;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        char spec[64];
        for (int without = 0; without < 2; without++) {
            struct dpe_plan plan;
            struct dpe_table *table = NULL;
            struct dpe_error err = {0};
            snprintf(spec, sizeof spec, "%s%s", methods[i],
                     without == 0                      ? ""
                     : strchr(methods[i], ':') != NULL ? ",a=1"
                                                       : ":a=1");
            assert_int_equal(dpe_plan_make(spec, &of_part, &plan, NULL), DPE_OK);
            assert_int_equal(dpe_table_for_plan(&plan, &of_part, "f00d", 0, &table, &err),
                             without == 0 ? DPE_USAGE : DPE_OK);
            assert_true((strstr(err.text, "pairs that rotate alone") != NULL) == (without == 0));
            assert_true((strstr(err.text, "expected a=1, or logit-scale") != NULL) ==
                        (without == 0));
            dpe_table_close(table);
            dpe_plan_free(&plan);
        }
    }
}

/* The JSON of a plan with `from` replaced by `to`. */
static void refused(const char *from, const char *to, const char *words)
{
    struct dpe_plan plan;
    char why[DPE_TABLE_MESSAGE] = "";
    assert_int_equal(dpe_plan_make("string:logit-scale=1.5", &context, &plan, NULL), DPE_OK);
    char *text = text_of(&plan);
    dpe_plan_free(&plan);
    const char *at = strstr(text, from);
    if (at == NULL) {
        fail_msg("%s: not in %s", from, text);
    }
    char *changed = malloc(strlen(text) + strlen(to) + 1);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    if (read_back(changed, &plan, why) == DPE_TABLE_OK || strstr(why, words) == NULL) {
        fail_msg("%s for %s: %s", to, from, why);
    }
    free(text);
    free(changed);
}

static void what_is_no_plan_is_refused(void **state)
{
    (void)state;
    refused("\"n_layers\":2", "\"n_layers\":3", "made for a model with 3 layers");
    refused("\"n_layers\":2", "\"n_layers\":-2", "-2 layers");
    refused("\"head_dim\":16", "\"head_dim\":18", "inv_freq");
    refused("\"angle_precision\": \"f32\"", "\"angle_precision\": \"f64\"", "angle_precision");
    refused("\"logit_scale\": ", "\"logit_scale\": -", "logit_scale");
    refused("\"inv_freq\": [1.0", "\"inv_freq\": [\"x\"", "inv_freq");
    refused("\"inv_freq\": [1.0", "\"inv_freq\": [1.5", "rotates pair 0");
    refused("\"bands\": [0.0", "\"bands\": [7.0", "band 0, queries");
    refused("\"bands\": [0.0", "\"bands\": [0.0,0.0", "bands");
    refused("\"evaluated_length\": 512", "\"evaluated_length\": 0", "local_window");
    refused("\"bands\"", "\"selection\": \"k=x\",\n\"bands\"", "selection");
    refused("\"bands\"", "\"selection\": \"\",\n\"bands\"", "selection");
    refused("}", "", "line");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_comes_back),
        cmocka_unit_test(no_table_has_a_factor_for_rotated_pairs_alone),
        cmocka_unit_test(what_is_no_plan_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

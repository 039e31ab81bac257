/* Opening model folders as they are: the golden folders, their meaning and their tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/layer_weights.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"

#define GOLDEN DPE_SOURCE_DIR "/tests/golden/"

static struct dpe_model *open_golden(const char *name)
{
    char folder[1024];
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    snprintf(folder, sizeof folder, "%s%s", GOLDEN, name);
    dpe_status status = dpe_model_open(folder, NULL, &model, &err);
    if (status != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return model;
}

static void every_golden_folder_opens(void **state)
{
    (void)state;
    const struct {
        const char *name, *type;
        int64_t layers, heads, kv_heads, head_dim, parameters;
        enum dpe_dtype dtype;
        enum dpe_rope_type rope;
        bool tied, qkv_bias, o_bias;
    } rows[] = {
        {"llama", "llama", 2, 4, 2, 16, 20640, DPE_F32, DPE_ROPE_DEFAULT, true, false, false},
        {"llama_bf16", "llama", 2, 4, 4, 16, 27424, DPE_BF16, DPE_ROPE_DEFAULT, false, true, true},
        {"llama3", "llama", 2, 4, 2, 16, 22688, DPE_F16, DPE_ROPE_LLAMA3, false, false, false},
        {"mistral", "mistral", 2, 3, 1, 24, 22688, DPE_BF16, DPE_ROPE_DEFAULT, false, false, false},
        {"qwen2", "qwen2", 2, 4, 2, 8, 14624, DPE_BF16, DPE_ROPE_DEFAULT, true, true, false},
        {"linear", "llama", 1, 4, 2, 16, 13408, DPE_BF16, DPE_ROPE_LINEAR, false, false, false},
        {"dynamic", "llama", 1, 4, 2, 16, 13408, DPE_BF16, DPE_ROPE_DYNAMIC, false, false, false},
        {"yarn", "llama", 1, 4, 2, 16, 13408, DPE_BF16, DPE_ROPE_YARN, false, false, false},
        {"longrope", "llama", 1, 4, 2, 16, 13408, DPE_BF16, DPE_ROPE_LONGROPE, false, false, false},
        {"sharded", "llama", 1, 4, 2, 16, 13408, DPE_F32, DPE_ROPE_DEFAULT, false, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dpe_model *model = open_golden(rows[i].name);
        const struct dpe_config *config = dpe_model_config(model);
        const struct dpe_weights *weights = dpe_model_weights(model);
        assert_string_equal(config->model_type, rows[i].type);
        assert_int_equal(config->n_layers, rows[i].layers);
        assert_int_equal(config->n_heads, rows[i].heads);
        assert_int_equal(config->n_kv_heads, rows[i].kv_heads);
        assert_int_equal(config->head_dim, rows[i].head_dim);
        assert_int_equal(config->dtype, rows[i].dtype);
        assert_int_equal(config->rope.type, rows[i].rope);
        assert_int_equal(config->tied_embeddings, rows[i].tied);
        assert_int_equal(config->qkv_bias, rows[i].qkv_bias);
        assert_int_equal(config->o_bias, rows[i].o_bias);
        assert_int_equal(config->vocab, 64);
        assert_int_equal(dpe_config_parameters(config), rows[i].parameters);
        assert_int_equal(weights->lm_head.data == weights->embedding.data, rows[i].tied);
        for (int64_t l = 0; l < config->n_layers; l++) {
            struct dpe_tensor q = dpe_layer_matrix(weights->layers + l, DPE_WEIGHT_Q);
            assert_int_equal(q.rows, rows[i].heads * rows[i].head_dim);
            assert_int_equal(q.cols, config->hidden);
            struct dpe_tensor bias = dpe_layer_bias(weights->layers + l, DPE_WEIGHT_Q);
            assert_int_equal(bias.data != NULL, rows[i].qkv_bias);
            bias = dpe_layer_bias(weights->layers + l, DPE_WEIGHT_O);
            assert_int_equal(bias.data != NULL, rows[i].o_bias);
        }
        assert_int_equal(dpe_model_verify(model, NULL), DPE_OK);
        assert_int_equal(strlen(dpe_model_fingerprint(model)), 64);
        dpe_model_close(model);
    }
}

static void rotation_is_read_from_both_schemas(void **state)
{
    (void)state;
    struct dpe_model *model = open_golden("llama3");
    const struct dpe_rope_config *rope = &dpe_model_config(model)->rope;
    assert_true(rope->theta == 10000.0 && rope->factor == 8.0);
    assert_true(rope->low_freq_factor == 1.0 && rope->high_freq_factor == 4.0);
    assert_true(rope->original_max_position == 16.0);
    assert_true(isnan(rope->attention_factor) && isnan(rope->beta_fast));
    dpe_model_close(model);
    model = open_golden("yarn");
    rope = &dpe_model_config(model)->rope;
    assert_true(rope->factor == 4.0 && rope->beta_fast == 4.0 && rope->beta_slow == 1.0);
    assert_true(rope->truncate && isnan(rope->mscale));
    dpe_model_close(model);
    model = open_golden("longrope");
    rope = &dpe_model_config(model)->rope;
    assert_true(rope->short_factor[7] == 1.5 && rope->long_factor[7] == 6.0);
    assert_true(rope->short_factor[0] == 1.0);
    dpe_model_close(model);
    model = open_golden("mistral");
    assert_true(dpe_model_config(model)->rope.theta == 1e6);
    dpe_model_close(model);
}

static void end_ids_are_the_union_in_order(void **state)
{
    (void)state;
    struct dpe_model *model = open_golden("llama3");
    const struct dpe_config *config = dpe_model_config(model);
    const int64_t want[] = {2, 5, 9};
    assert_int_equal(config->n_eos, 3);
    assert_memory_equal(config->eos_ids, want, sizeof want);
    assert_int_equal(config->bos_id, 1);
    dpe_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_folder_opens),
        cmocka_unit_test(rotation_is_read_from_both_schemas),
        cmocka_unit_test(end_ids_are_the_union_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

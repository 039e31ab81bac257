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
#include "engine/model/config/layer_weights.h"
#include "engine/model/model.h"
#include "engine/model/slice.h"
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
            struct dpe_tensor q = weights->layers[l].weight[DPE_WEIGHT_Q];
            assert_int_equal(q.rows, rows[i].heads * rows[i].head_dim);
            assert_int_equal(q.cols, config->hidden);
            struct dpe_tensor bias = weights->layers[l].bias[DPE_WEIGHT_Q];
            assert_int_equal(bias.data != NULL, rows[i].qkv_bias);
            bias = weights->layers[l].bias[DPE_WEIGHT_O];
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

static int64_t elements(const struct dpe_tensor *tensor)
{
    return tensor->rows * tensor->cols;
}

/* Random matrices in every type of blocks, as large as those of floats are. */
static void random_weights_come_in_blocks(void **state)
{
    (void)state;
    for (int type = DPE_BF16 + 1; type < DPE_DTYPES; type++) {
        struct dpe_config config = {.model_type = "llama",
                                    .n_layers = 1,
                                    .hidden = 256,
                                    .intermediate = 256,
                                    .n_heads = 2,
                                    .n_kv_heads = 2,
                                    .head_dim = 80, /* 160 columns: not of blocks of 256 */
                                    .vocab = 64,
                                    .max_position = 16,
                                    .blocks = UINT32_C(1) << type,
                                    .rope = {.theta = 1e4, .partial_rotary_factor = 1.0}};
        struct dpe_model *model = NULL;
        float numbers[256];
        assert_int_equal(dpe_random_model(&config, true, 5, &model, NULL), DPE_OK);
        const struct dpe_weights *w = dpe_model_weights(model);
        const struct dpe_tensor *o = &w->layers[0].weight[DPE_WEIGHT_O];
        const bool small = dpe_block_types[type].elements <= 32;
        assert_int_equal(o->dtype, small ? (enum dpe_dtype)type : DPE_F32);
        assert_int_equal(w->layers[0].weight[DPE_WEIGHT_ATTENTION_NORM].dtype, DPE_F32);
        assert_int_equal(w->embedding.dtype, type);
        double squares = 0.0;
        for (int64_t row = 0; row < config.vocab; row++) {
            dpe_dtype_read(w->embedding.dtype, w->embedding.data, row * 256, 256, numbers);
            for (int i = 0; i < 256; i++) {
                squares += (double)numbers[i] * (double)numbers[i];
            }
        }
        const double deviation = sqrt(squares / (256.0 * (double)config.vocab)) * 16.0;
        printf("%s: %.2f\n", dpe_block_types[type].name, deviation);
        assert_true(deviation > 0.6 && deviation < 1.25);
        dpe_model_close(model);
    }
}

/* Every family's biases at once: what is counted is what there is, in the whole model and in the
 * slices that together are the model. */
static void every_tensor_of_a_layer_is_counted_and_sliced(void **state)
{
    (void)state;
    struct dpe_config config = {.model_type = "llama",
                                .n_layers = 2,
                                .hidden = 12,
                                .intermediate = 10,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 6,
                                .vocab = 7,
                                .max_position = 16,
                                .qkv_bias = true,
                                .o_bias = true,
                                .mlp_bias = true,
                                .rope = {.theta = 1e4, .partial_rotary_factor = 1.0}};
    struct dpe_model *model = NULL;
    assert_int_equal(dpe_random_model(&config, true, 5, &model, NULL), DPE_OK);
    struct dpe_model halves[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dpe_slice_make(model, i, 2, &halves[i], NULL), DPE_OK);
    }
    int64_t n = 2 * config.vocab * config.hidden + config.hidden;
    for (int64_t l = 0; l < config.n_layers; l++) {
        const struct dpe_layer_weights *layer = &dpe_model_weights(model)->layers[l];
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            int64_t whole = elements(&layer->weight[which]) + elements(&layer->bias[which]);
            int64_t sliced = 0;
            for (int i = 0; i < 2; i++) {
                const struct dpe_layer_weights *half = &halves[i].weights.layers[l];
                struct dpe_layer_shape shape =
                    dpe_layer_shape(&halves[i].config, l, (enum dpe_weight)which);
                assert_int_equal(half->weight[which].rows, shape.rows);
                assert_int_equal(half->weight[which].cols, shape.cols);
                sliced += elements(&half->weight[which]) + elements(&half->bias[which]);
            }
            bool norm = which == DPE_WEIGHT_ATTENTION_NORM || which == DPE_WEIGHT_MLP_NORM;
            assert_int_equal(layer->bias[which].cols, norm ? 0 : layer->weight[which].rows);
            assert_int_equal(sliced, norm ? 2 * whole : whole);
            n += whole;
        }
    }
    assert_int_equal(dpe_config_parameters(&config), n);
    for (int i = 0; i < 2; i++) {
        dpe_slice_free(&halves[i]);
    }
    dpe_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_folder_opens),
        cmocka_unit_test(rotation_is_read_from_both_schemas),
        cmocka_unit_test(end_ids_are_the_union_in_order),
        cmocka_unit_test(random_weights_come_in_blocks),
        cmocka_unit_test(every_tensor_of_a_layer_is_counted_and_sliced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

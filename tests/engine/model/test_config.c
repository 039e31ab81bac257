/* config.json of strangers: what is refused, with the key, and what is read how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "engine/model/config/config_parse.h"
#include "engine/model/config/layer_weights.h"
#include "engine/plan/plan.h"
#include "tests/lib/model_files.h"

static const struct {
    struct config_member member;
    const char *says;
} refused_members[] = {
    {{"num_key_value_heads", "3"}, "num_key_value_heads: expected a divisor"},
    {{"num_key_value_heads", "0"}, "num_key_value_heads: expected an integer from 1"},
    {{"head_dim", "3"}, "head_dim: expected an even number"},
    {{"head_dim", "0"}, "head_dim: expected an integer from 1"},
    {{"head_dim", "-2"}, "head_dim: expected an integer from 1"},
    {{"head_dim", "1000000000000"}, "head_dim: expected an integer from 1"},
    {{"head_dim", "9223372036854775808"},
     "head_dim: expected an integer from 1 to 2048, found 9.2"},
    {{"head_dim", "\"32\""}, "head_dim: expected an integer from 1 to 2048, found \"32\""},
    {{"head_dim", "2.0"}, "head_dim: expected an integer"},
    {{"head_dim", "[2]"}, "head_dim: expected an integer"},
    {{"hidden_size", "\"32\""}, "hidden_size: expected an integer"},
    {{"hidden_size", NULL}, "hidden_size: expected an integer from 1 to 1048576, found nothing"},
    {{"hidden_size", "-4"}, "hidden_size"},
    {{"hidden_size", "true"}, "hidden_size"},
    {{"num_hidden_layers", "0"}, "num_hidden_layers"},
    {{"num_hidden_layers", "4611686018427387904"}, "num_hidden_layers"},
    {{"num_attention_heads", "0"}, "num_attention_heads"},
    {{"intermediate_size", "0"}, "intermediate_size"},
    {{"vocab_size", "4294967296"}, "vocab_size"},
    {{"max_position_embeddings", NULL}, "max_position_embeddings"},
    {{"max_position_embeddings", "0"}, "max_position_embeddings"},
    {{"max_position_embeddings", "1"}, "max_position_embeddings: expected"},
    {{"max_position_embeddings", "2147483649"}, "max_position_embeddings: expected"},
    {{"rms_norm_eps", "-1e-5"}, "rms_norm_eps: expected a number >= 0"},
    {{"rope_theta", "NaN"}, "rope_theta: expected a number > 1, found \"NaN\""},
    {{"rope_theta", "\"NaN\""}, "rope_theta: expected a number > 1"},
    {{"rope_theta", "0"}, "rope_theta: expected a number > 1, found 0"},
    {{"rope_theta", "-10000.0"}, "rope_theta"},
    {{"rope_theta", "1e999"}, "rope_theta: expected a number > 1, found \"1e999\""},
    {{"rope_theta", "Infinity"}, "rope_theta: expected a number > 1, found \"Infinity\""},
    {{"head_dim", "-Infinity"}, "head_dim: expected an integer from 1 to 2048, found \"-Inf"},
    {{"rope_theta", "nan"}, "expected JSON"},
    {{"rope_theta", "Infinite"}, "expected JSON"},
    {{"model_type", "\"gpt2\""}, "model_type: expected \"llama\", \"mistral\", \"qwen2\", "},
    {{"model_type", NULL}, "model_type: expected \"llama\", \"mistral\", \"qwen2\", "},
    {{"model_type", "\"llama\\u0000x\""}, "model_type: expected"},
    {{"architectures", "[\"MistralForCausalLM\"]"}, "architectures: expected [\"LlamaForCausal"},
    {{"architectures", "[\"LlamaForSequenceClassification\"]"}, "architectures: expected"},
    {{"architectures", "7"}, "architectures: expected"},
    {{"hidden_act", "\"gelu\""}, "hidden_act: expected \"silu\", found \"gelu\""},
    {{"quantization_config", "{\"quant_method\":\"aqlm\"}"}, "quant_method: expected one of: fp8"},
    {{"tie_word_embeddings", "1"}, "tie_word_embeddings: expected true or false"},
    {{"partial_rotary_factor", "0.5"}, "partial_rotary_factor: expected 1"},
    {{"eos_token_id", "-1"}, "eos_token_id: expected a token id"},
    {{"eos_token_id", "2.5"}, "eos_token_id: expected a token id"},
    {{"eos_token_id", "[2, \"3\"]"}, "eos_token_id: expected a token id"},
    {{"eos_token_id", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"}, "at most 16"},
    {{"bos_token_id", "[1]"}, "bos_token_id: expected an integer"},
    {{"layer_types", "[\"sliding_attention\"]"}, "layer_types: expected full_attention"},
    {{"hidden_size", "4, \"hidden_size\": 4"}, "duplicate object key"},
};

static void wrong_members(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    for (size_t i = 0; i < sizeof refused_members / sizeof refused_members[0]; i++) {
        write_config(&folder, &refused_members[i].member, 1);
        expect_open(&folder, refused_members[i].says, DPE_BAD_DATA,
                    "/config.json: ", refused_members[i].says);
    }
    folder_remove(&folder);
}

static void wrong_rotations(void **state)
{
    (void)state;
    static const struct {
        const char *scaling, *says;
    } rows[] = {
        {"{\"rope_type\":\"spiral\"}",
         "rope_type: expected one of default, linear, dynamic, yarn, longrope, llama3, clex (write "
         "the one whose formula a vendor's own name stands for), found \"spiral\""},
        {"{\"type\":\"su\"}", "type: expected one of"},
        {"{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}", "the same as rope_type"},
        {"{\"rope_type\":7}", "rope_type: expected a string"},
        {"[]", "rope_scaling: expected an object"},
        {"{\"type\":\"linear\"}", "factor: expected a number >= 1, found nothing"},
        {"{\"type\":\"linear\",\"factor\":0.5}", "factor: expected a number >= 1, found 0.5"},
        {"{\"type\":\"linear\",\"factor\":\"4\"}", "factor: expected a number"},
        {"{\"type\":\"dynamic\",\"factor\":-4}", "factor: expected a number >= 1"},
        {"{\"type\":\"linear\",\"factor\":4,\"partial_rotary_factor\":0.25}",
         "partial_rotary_factor: expected 1"},
        {"{\"type\":\"linear\",\"factor\":4,\"rope_theta\":0.0}", "rope_theta: expected"},
        {"{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}",
         "original_max_position_embeddings: expected a number > 0, found nothing"},
        {"{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":16}",
         "high_freq_factor: expected more than low_freq_factor"},
        {"{\"rope_type\":\"yarn\",\"factor\":8,\"beta_fast\":0}", "beta_fast: expected"},
        {"{\"rope_type\":\"yarn\",\"factor\":8,\"truncate\":1}", "truncate: expected"},
        {"{\"rope_type\":\"longrope\",\"factor\":8,\"short_factor\":[1]}",
         "long_factor: expected a list of head_dim/2 = 1 numbers, found nothing"},
        {"{\"rope_type\":\"longrope\",\"factor\":8,\"short_factor\":[1,1],\"long_factor\":[1]}",
         "short_factor: expected a list of head_dim/2 = 1 numbers"},
        {"{\"rope_type\":\"longrope\",\"factor\":8,\"short_factor\":[0],\"long_factor\":[1]}",
         "short_factor: expected numbers > 0"},
        {"{\"rope_type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}",
         "factor: expected a number, or original_max_position_embeddings"},
        {"{\"full_attention\":{\"rope_type\":\"default\"}}", "one rotation for all layers"},
        /* What no checkpoint has, and single precision cannot hold. */
        {"{\"type\":\"dynamic\",\"factor\":1e30}", "factor: expected a number up to 1e+06"},
        {"{\"type\":\"linear\",\"factor\":2,\"rope_theta\":1e300}",
         "rope_theta: expected a number up"},
        {"{\"rope_type\":\"yarn\",\"factor\":8,\"attention_factor\":1e300}",
         "attention_factor: expected a number up to 1e+06"},
        {"{\"rope_type\":\"yarn\",\"factor\":8,\"attention_factor\":1e-300}",
         "attention_factor: expected a number >= 1e-06"},
        {"{\"rope_type\":\"yarn\",\"factor\":8,\"mscale\":1e300}",
         "mscale: expected a number up to"},
        {"{\"rope_type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":1e12}",
         "original_max_position_embeddings: expected a number up to 2.14748e+09"},
        {"{\"rope_type\":\"longrope\",\"factor\":8,\"short_factor\":[1],\"long_factor\":[1e-320]}",
         "long_factor: expected numbers from 1e-06 to 1e+06"},
    };
    struct model_folder folder = folder_make();
    for (int schema = 0; schema < 2; schema++) {
        const char *key = schema == 0 ? "rope_scaling" : "rope_parameters";
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct config_member member = {key, rows[i].scaling};
            write_config(&folder, &member, 1);
            const char *says = schema == 1 && rows[i].scaling[0] == '['
                                   ? "rope_parameters: expected an object"
                                   : rows[i].says;
            expect_open(&folder, rows[i].scaling, DPE_BAD_DATA, "/config.json: ", says);
        }
    }
    const struct config_member both[] = {
        {"rope_scaling", "{\"rope_type\":\"linear\",\"factor\":2}"},
        {"rope_parameters", "{\"rope_type\":\"linear\",\"factor\":4}"},
    };
    write_config(&folder, both, 2);
    expect_open(&folder, "both", DPE_BAD_DATA, "rope_scaling: expected the same",
                "they differ in factor: delete the block that is wrong");
    folder_remove(&folder);
}

static void files_that_are_not_a_configuration(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    expect_open(&folder, "none", DPE_NO_INPUT, "config.json", NULL);
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "expected JSON"},          {"[]", "expected a JSON object"},
        {"{} {}", "end of file"},       {"{\"model_type\":\"\xc0\x80\"}", "invalid byte at 15"},
        {"\xef\xbb\xbf{}", "expected"}, {"{\"a\":1,\"a\":1}", "duplicate"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_text(&folder, "config.json", rows[i].text);
        expect_open(&folder, rows[i].text, DPE_BAD_DATA, "config.json", rows[i].says);
    }
    enum { DEPTH = 1000000 };
    char *deep = malloc(DEPTH);
    assert_non_null(deep);
    memset(deep, '[', DEPTH);
    write_bytes(folder_file(&folder, "config.json"), deep, DEPTH);
    free(deep);
    expect_open(&folder, "depth", DPE_BAD_DATA, "config.json", "maximum parsing depth");
    write_base_model(&folder);
    write_text(&folder, "generation_config.json", "{\"eos_token_id\":\"x\"}");
    expect_open(&folder, "generation", DPE_BAD_DATA, "generation_config.json", "eos_token_id");
    folder_remove(&folder);
}

/* Opens config.json alone and hands out a copy of what was read (without its lists). */
static struct dpe_config read_config(const struct model_folder *folder)
{
    const struct dpe_model_options options = {.config_only = true};
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    if (dpe_model_open(folder->path, &options, &model, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_null(dpe_model_weights(model));
    assert_int_equal(dpe_model_verify(model, NULL), DPE_OK);
    struct dpe_config config = *dpe_model_config(model);
    dpe_model_close(model);
    return config;
}

static void what_is_absent_has_the_family_s_meaning(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    const struct config_member absent[] = {
        {"num_key_value_heads", NULL}, {"head_dim", "null"},      {"rope_theta", NULL},
        {"tie_word_embeddings", NULL}, {"architectures", "null"}, {"hidden_act", NULL},
    };
    write_config(&folder, absent, sizeof absent / sizeof absent[0]);
    struct dpe_config config = read_config(&folder);
    assert_int_equal(config.n_kv_heads, 2);
    assert_int_equal(config.head_dim, 2);
    assert_true(config.rope.theta == 10000.0);
    assert_false(config.tied_embeddings || config.qkv_bias || config.o_bias || config.mlp_bias);
    assert_int_equal(config.bos_id, -1);
    assert_int_equal(config.n_eos, 0);
    assert_int_equal(config.dtype, DPE_F32);

    const struct config_member qwen[] = {
        {"model_type", "\"qwen2\""},
        {"architectures", "[\"Qwen2ForCausalLM\"]"},
        {"attention_bias", "true"},
        {"torch_dtype", "\"bfloat16\""},
    };
    write_config(&folder, qwen, sizeof qwen / sizeof qwen[0]);
    config = read_config(&folder);
    assert_true(config.qkv_bias && !config.o_bias && !config.mlp_bias);
    assert_int_equal(config.dtype, DPE_BF16);

    /* The other families have a number of their own as default, which no file relies on. */
    const struct config_member mistral[] = {
        {"model_type", "\"mistral\""},
        {"architectures", "[]"},
        {"num_key_value_heads", NULL},
        {"sliding_window", "null"},
    };
    write_config(&folder, mistral, 4);
    expect_open(&folder, "mistral", DPE_BAD_DATA, "num_key_value_heads", "found nothing");
    folder_remove(&folder);
}

/* Libraries in Python write integers of any size: such a member is no reason to refuse a file, and
 * digits in a string or a real number stay as they are. */
static void large_integers_are_numbers(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    const struct config_member members[] = {
        {"model_max_length", "1000000000000000019884624838656"},
        {"escapes\\\\", "\"\\\"999999999999999999999\""},
        {"list", "[-1000000000000000019884624838656, 9223372036854775807]"},
        {"rope_theta", "1234567890123456789012345678901e-26"},
        {"rms_norm_eps", "0.0000099999999999999999999999999"},
        {"time_step_limit", "[0.0, Infinity]"},
        {"other", "{\"a\":NaN,\"Infinity\":-Infinity,\"b\":1e400,\"c\":[-1E+999]}"},
    };
    write_config(&folder, members, sizeof members / sizeof members[0]);
    struct dpe_config config = read_config(&folder);
    assert_int_equal(config.head_dim, 2);
    assert_true(config.rope.theta == 1234567890123456789012345678901e-26);
    const struct config_member theta = {"rope_theta", "10000000000000000000000"};
    write_config(&folder, &theta, 1);
    assert_true(read_config(&folder).rope.theta == 1e22);
    folder_remove(&folder);
}

static void sliding_windows(void **state)
{
    (void)state;
    static const struct {
        const char *type, *window, *used, *first;
        bool refused;
    } rows[] = {
        {"\"mistral\"", "null", NULL, NULL, false}, {"\"mistral\"", "31", NULL, NULL, true},
        {"\"mistral\"", "32", NULL, NULL, false},   {"\"mistral\"", NULL, NULL, NULL, false},
        {"\"qwen2\"", "16", "false", "0", false},   {"\"qwen2\"", "16", NULL, "0", false},
        {"\"qwen2\"", "16", "true", "0", true},     {"\"qwen2\"", "16", "true", "1", false},
        {"\"qwen2\"", "null", "true", "0", false},  {"\"qwen2\"", "32", "true", "0", false},
        {"\"llama\"", "16", "true", "0", false},
    };
    struct model_folder folder = folder_make();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct config_member members[] = {
            {"model_type", rows[i].type},         {"architectures", NULL},
            {"sliding_window", rows[i].window},   {"use_sliding_window", rows[i].used},
            {"max_window_layers", rows[i].first},
        };
        write_config(&folder, members, sizeof members / sizeof members[0]);
        if (rows[i].refused) {
            expect_open(&folder, rows[i].type, DPE_BAD_DATA, "config.json: sliding_window",
                        "nothing that a plan could change");
        } else {
            read_config(&folder);
        }
    }
    /* Mistral 7B v0.1's file has 4096 of 32768; where the key is absent, the family's default is
     * 4096. */
    const struct config_member v01[] = {
        {"model_type", "\"mistral\""},
        {"architectures", NULL},
        {"max_position_embeddings", "32768"},
    };
    write_config(&folder, v01, 3);
    expect_open(&folder, "v0.1", DPE_BAD_DATA, "sliding_window", "found 4096");
    folder_remove(&folder);
}

/* Families with more than Llama's keys: what config.json may get wrong, and types that a position
 * method has nothing to do with. */
static void families_and_their_keys(void **state)
{
    (void)state;
    static const struct {
        const char *type, *key, *value, *want;
    } rows[] = {
        {"\"llama4\"", NULL, NULL, "text_config: expected the configuration"},
        {"\"llama4_text\"", "layer_types", "[\"sliding_attention\"]", "layer_types: expected full"},
        {"\"llama4_text\"", "moe_layers", "[0, 2]", "moe_layers: expected every so many-th layer"},
        {"\"llama4_text\"", "moe_layers", "[-1]", "moe_layers: expected every so many-th layer"},
        {"\"llama4_text\"", "attention_chunk_size", "0",
         "attention_chunk_size: expected an integer"},
        {"\"llama4_text\"", "floor_scale", "0", "floor_scale: expected a number"},
        {"\"llama4_text\"", "attn_scale", "-1", "attn_scale: expected a number"},
        {"\"granitemoehybrid\"", NULL, NULL, "max(1, ln n / ln L0)"},
        {"\"nemotron_h\"", NULL, NULL, "no rotary positions"},
        {"\"llama4_text\"", "moe_layers", "[9223372036854775807]",
         "moe_layers: expected every so many-th layer"},
        {"\"deepseek_v3\"", NULL, NULL, "multi-head latent attention"},
        {"\"mistral3\"", NULL, NULL, "text_config: expected the configuration"},
        {"\"gemma3\"", "text_config", "{\"model_type\":\"mistral3\"}", "text_config.model_type"},
        {"\"mistral3\"", "text_config", "{\"model_type\":\"bert\"}", "text_config.model_type"},
        {"\"mistral3\"", "text_config", "[]", "text_config: expected an object"},
        {"\"gemma2\"", "hidden_activation", "\"gelu\"", "hidden_activation: expected \"gelu_py"},
        {"\"gemma2\"", "attn_logit_softcapping", "-1", "attn_logit_softcapping: expected"},
        {"\"gemma2\"", "layer_types", "[\"chunked_attention\"]", "layer_types: expected full_att"},
        {"\"gemma3_text\"", "layer_types", "[\"sliding_attention\"]", "sliding_window: found 16"},
        {"\"smollm3\"", "no_rope_layers", "[]", "no_rope_layers: expected a list"},
        {"\"smollm3\"", "no_rope_layers", "[\"1\"]", "no_rope_layers: expected a list"},
        {"\"granite\"", "residual_multiplier", "0", "residual_multiplier: expected a number > 0"},
        {"\"glm4\"", "partial_rotary_factor", "2", "partial_rotary_factor: expected a share"},
        {"\"phi3\"", "partial_rotary_factor", "0.5", "partial_rotary_factor: expected a share"},
        {"\"phi3\"", "sliding_window", "8", "sliding_window: found 8 in every layer"},
        {"\"qwen3_moe\"", NULL, NULL, "num_local_experts: expected an integer"},
        {"\"qwen3_moe\"", "num_experts", "3", "num_experts_per_tok: expected at most"},
        {"\"qwen3_moe\"", "num_experts", "100000", "num_experts: expected an integer from 1"},
        {"\"qwen3\"", "is_causal", "false", "is_causal: expected true"},
        {"\"gemma3_text\"", "use_bidirectional_attention", "true",
         "use_bidirectional_attention: e"},
        {"\"mistral\"", "use_bidirectional_attention", "\"all\"", "use_bidirectional_attention: e"},
        {"\"qwen2\"", "dual_chunk_attention_config", "{\"local_size\": 4}",
         "dual_chunk_attention_config.chunk_size: expected an integer"},
        {"\"qwen2\"", "dual_chunk_attention_config",
         "{\"chunk_size\": 8, \"original_max_position_embeddings\": 9999999}",
         "dual_chunk_attention_config.original_max_position_embeddings: expected an integer"},
        {"\"qwen2\"", "quantization_config",
         "{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8\"}",
         "quantization_config.quant_algo: expected one of: FP8 NVFP4"},
        {"\"gpt_oss\"", "quantization_config", "{\"quant_method\":\"mxfp8\"}",
         "quantization_config.quant_method: expected one of: fp8"},
        {"\"glm4_moe\"", "n_group", "3", "n_group: expected a divisor of the number of experts"},
        {"\"glm4_moe\"", "n_group", "8", "n_group: expected a divisor of the number of experts, 2"},
        {"\"glm4_moe\"", "n_group", "128", "n_group: expected an integer from 1 to 64"},
        {"\"glm4_moe\"", "topk_group", "2", "topk_group: expected at most n_group"},
        {"\"glm4_moe\"", "n_group", "4", "num_experts_per_tok: expected at most the experts of"},
        {"\"glm4_moe\"", "scoring_func", "\"softmax\"", "scoring_func: expected \"sigmoid\""},
        {"\"glm4_moe\"", "routed_scaling_factor", "0", "routed_scaling_factor: expected a number"},
        {"\"glm4_moe\"", "first_k_dense_replace", "9",
         "first_k_dense_replace: expected an integer"},
        {"\"minimax_m2\"", "scoring_func", "\"topk\"", "scoring_func: expected \"sigmoid\""},
        {"\"minimax_m2\"", "rotary_dim", "3", "partial_rotary_factor: expected a share"},
        {"\"qwen3_moe\"", "scoring_func", "\"sigmoid\"", "num_local_experts: expected"},
        {"\"hunyuan_v1_dense\"", "rope_parameters", "{\"rope_type\": \"dynamic\", \"alpha\": 0.5}",
         "alpha: expected a number"},
        {"\"ministral3\"", "rope_parameters", "{\"llama_4_scaling_beta\":0.1}",
         "original_max_position_embeddings: expected a number > 0, found nothing"},
    };
    struct model_folder folder = folder_make();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool experts = strstr(rows[i].type, "moe") != NULL || strstr(rows[i].type, "oss") != NULL ||
                       strstr(rows[i].type, "minimax") != NULL ||
                       strstr(rows[i].type, "llama4") != NULL;
        const struct config_member members[] = {
            {"model_type", rows[i].type},
            {"architectures", NULL},
            {"head_dim", "2"},
            {"sliding_window", strstr(rows[i].type, "gemma") != NULL ? "16" : NULL},
            {"moe_intermediate_size", "4"},
            {"num_experts_per_tok", experts ? "4" : NULL},
            {"num_local_experts", experts && strstr(rows[i].type, "moe") == NULL ? "8" : NULL},
            {"intermediate_size_mlp", "4"},
            {"n_routed_experts", "8"},
            {rows[i].key != NULL ? rows[i].key : "unused", rows[i].value},
        };
        write_config(&folder, members, sizeof members / sizeof members[0]);
        expect_open(&folder, rows[i].type, DPE_BAD_DATA, "config.json", rows[i].want);
    }
    folder_remove(&folder);
}

/* Lengths that a file says otherwise, or not at all. */
static void trained_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *most, *chunks;
        int64_t option, trained;
        const char *key, *type, *kept;
    } rows[] = {
        {"512", "{\"chunk_size\": 128, \"original_max_position_embeddings\": 96}", 0, 96,
         "dual_chunk_attention_config"},
        {"512", "{\"chunk_size\": 128}", 0, 128, "dual_chunk_attention_config"},
        {"512", NULL, 64, 512, "max_position_embeddings"},
        {"40960", NULL, 0, 32768,
         "by its authors; the rest of max_position_embeddings is room for an answer", "\"qwen3\""},
        {"40960", "{\"chunk_size\": 128, \"original_max_position_embeddings\": 24576}", 0, 24576,
         "dual_chunk_attention_config", "\"qwen3\""},
        {"40960", "{\"chunk_size\": 128, \"original_max_position_embeddings\": 32768}", 0, 32768,
         "dual_chunk_attention_config", "\"qwen3\""},
        {"40960", "{\"chunk_size\": 128}", 0, 200, DPE_TRAINED_KEY, "\"qwen3\"", "200"},
        {"40961", NULL, 0, 40961, "max_position_embeddings", "\"qwen3\""},
        {"40960", NULL, 0, 40960, "max_position_embeddings"},
        {NULL, NULL, 64, 64, "max_position_embeddings"},
    };
    struct model_folder folder = folder_make();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct config_member members[] = {
            {"max_position_embeddings", rows[i].most},
            {"dual_chunk_attention_config", rows[i].chunks},
            {DPE_TRAINED_KEY, rows[i].kept},
            {"model_type", rows[i].type != NULL ? rows[i].type : "\"llama\""},
            {"architectures", NULL},
            {"use_bidirectional_attention", i % 2 == 0 ? "\"vision\"" : "false"},
            {"is_causal", i % 2 == 0 ? "true" : NULL},
        };
        const struct dpe_model_options options = {.config_only = true,
                                                  .trained_length = rows[i].option};
        struct dpe_model *model = NULL;
        struct dpe_error err = {0};
        write_config(&folder, members, sizeof members / sizeof members[0]);
        assert_int_equal(dpe_model_open(folder.path, &options, &model, &err), DPE_OK);
        assert_int_equal(dpe_config_trained(dpe_model_config(model)), rows[i].trained);
        assert_string_equal(dpe_config_trained_key(dpe_model_config(model)), rows[i].key);
        dpe_model_close(model);
    }
    expect_open(&folder, "no length", DPE_BAD_DATA, "config.json: max_position_embeddings",
                "found nothing");
    folder_remove(&folder);
}

static dpe_status parse_nsa(const char *keys, struct dpe_config *config, struct dpe_error *err)
{
    char json[512];
    int n = snprintf(json, sizeof json,
                     "{\"model_type\": \"nsa\", \"hidden_size\": 2048, \"num_hidden_layers\": 2, "
                     "\"rope_theta\": 10000%s}",
                     keys);
    return dpe_config_parse("config.json", json, (size_t)n, NULL, NULL, 0, config, err);
}

/* Layers with a state: which they are, their sizes, and what cannot be. */
static dpe_status parse_hybrid(const char *keys, struct dpe_config *config, struct dpe_error *err)
{
    char json[768];
    int n = snprintf(json, sizeof json,
                     "{\"model_type\": \"qwen3_5_text\", \"hidden_size\": 1024, "
                     "\"intermediate_size\": 3584, \"num_hidden_layers\": 6, "
                     "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e7, "
                     "\"mrope_section\": [11, 11, 10]}%s}",
                     keys);
    return dpe_config_parse("config.json", json, (size_t)n, NULL, NULL, 0, config, err);
}

static void recurrent_layers_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *want;
    } rows[] = {
        {", \"linear_conv_kernel_dim\": 1", "linear_conv_kernel_dim: expected an integer from 2"},
        {", \"linear_conv_kernel_dim\": 17", "linear_conv_kernel_dim: expected an integer from 2"},
        {", \"linear_num_key_heads\": 12",
         "linear_num_value_heads: expected a multiple of linear_num_key_heads"},
        {", \"linear_num_value_heads\": 0", "linear_num_value_heads: expected an integer from 1"},
        {", \"linear_key_head_dim\": 1025", "linear_key_head_dim: expected an integer from 1"},
        {", \"linear_num_value_heads\": 4096, \"linear_key_head_dim\": 512, "
         "\"linear_value_head_dim\": 512",
         "linear_value_head_dim: expected a state of at most 2^28 numbers"},
        {", \"layer_types\": [\"linear_attention\", \"mamba\"]",
         "layer_types: expected full_attention or linear_attention"},
        {", \"layer_types\": [\"full_attention\"]",
         "layer_types: expected full_attention or linear_attention"},
        {", \"layer_types\": [\"linear_attention\", \"linear_attention\", "
         "\"linear_attention\", \"linear_attention\", \"linear_attention\", "
         "\"linear_attention\"]",
         "no layer sees all keys"},
        {", \"attn_output_gate\": false", "attn_output_gate: expected true"},
        {", \"partial_rotary_factor\": 0.001", "partial_rotary_factor: expected a share"},
    };
    struct dpe_config config = {0};
    struct dpe_error err = {0};
    assert_int_equal(parse_hybrid("", &config, &err), DPE_OK);
    for (int64_t i = 0; i < 6; i++) {
        assert_true(dpe_config_attends(&config, i) == (i == 3));
        assert_true(dpe_config_moves(&config, i) == (i == 3));
    }
    assert_true(dpe_config_alike(&config));
    assert_int_equal(dpe_config_attending(&config, 3), 0);
    assert_int_equal(dpe_config_attending(&config, 6), 1);
    assert_int_equal(dpe_config_pairs(&config), 32);
    assert_int_equal(config.recurrent.key_heads, 16);
    assert_int_equal(config.recurrent.value_heads, 32);
    assert_int_equal(dpe_recurrent_floats(&config.recurrent), 3 * 8192 + 32 * 128 * 128);
    dpe_config_release(&config);
    assert_int_equal(parse_hybrid(", \"full_attention_interval\": 2", &config, &err), DPE_OK);
    assert_int_equal(dpe_config_attending(&config, 6), 3);
    dpe_config_release(&config);
    /* The published OLMo Hybrid: its layers that see all keys have no positions. */
    static const char still[] = "{\"model_type\": \"olmo_hybrid\", \"hidden_size\": 64, "
                                "\"intermediate_size\": 64, \"num_hidden_layers\": 4, "
                                "\"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
                                "\"rope_parameters\": {\"rope_theta\": null}}";
    assert_int_equal(
        dpe_config_parse("config.json", still, sizeof still - 1, NULL, NULL, 0, &config, &err),
        DPE_OK);
    assert_true(dpe_config_still(&config) && dpe_config_alike(&config));
    for (int64_t i = 0; i < 4; i++) {
        assert_true(dpe_config_attends(&config, i) == (i == 3));
        assert_true(dpe_config_moves(&config, i) == (i == 3));
    }
    dpe_config_release(&config);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse_hybrid(rows[i].keys, &config, &err), DPE_BAD_DATA);
        if (strstr(err.text, rows[i].want) == NULL) {
            fail_msg("%s: %s", rows[i].keys, err.text);
        }
    }
}

/* The MLP beside the experts, and its gate. */
static void gated_experts_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *want;
    } rows[] = {
        {", \"shared_expert_intermediate_size\": 0",
         "shared_expert_intermediate_size: expected an integer from 1"},
        {", \"num_experts_per_tok\": 9", "num_experts_per_tok: expected at most the number"},
        {", \"mlp_only_layers\": [1]", "mlp_only_layers: expected none"},
        {", \"scoring_func\": \"sigmoid\"", "scoring_func: expected \"softmax\""},
    };
    static const char *const types[] = {"qwen3_next", "qwen3_5_moe_text"};
    struct dpe_config config = {0};
    struct dpe_error err = {0};
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k <= sizeof rows / sizeof rows[0]; k++) {
            const bool good = k == sizeof rows / sizeof rows[0];
            char json[768];
            int n = snprintf(json, sizeof json,
                             "{\"model_type\": \"%s\", \"hidden_size\": 64, "
                             "\"moe_intermediate_size\": 24, \"num_experts\": 8, "
                             "\"num_hidden_layers\": 4, \"partial_rotary_factor\": 0.25%s%s}",
                             types[i], good ? "" : rows[k].keys,
                             k == 1 ? "" : ", \"num_experts_per_tok\": 2");
            assert_int_equal(
                dpe_config_parse("config.json", json, (size_t)n, NULL, NULL, 0, &config, &err),
                good ? DPE_OK : DPE_BAD_DATA);
            if (!good && strstr(err.text, rows[k].want) == NULL) {
                fail_msg("%s: %s", rows[k].keys, err.text);
            }
        }
        assert_true(config.shared_gate && config.experts_normalised && !config.router.sigmoid);
        assert_int_equal(config.shared_width, 512);
        assert_int_equal(config.expert_width, 24);
        for (int64_t layer = 0; layer < 4; layer++) { /* with a state and without */
            const struct dpe_layer_shape gate =
                dpe_layer_shape(&config, layer, DPE_WEIGHT_SHARED_GATE);
            assert_true(gate.rows == 1 && gate.cols == 64 && !gate.vector);
            assert_int_equal(dpe_layer_shape(&config, layer, DPE_WEIGHT_UP).rows, 512);
        }
        dpe_config_release(&config);
    }
}

/* Which keys of a router its class in transformers heeds: the others change nothing. */
static void routers_read_what_their_classes_read(void **state)
{
    (void)state;
    static const struct {
        const char *type, *keys;
        bool normalised, sigmoid, grouped;
    } rows[] = {
        {"qwen3_moe", "", false, false, false},
        {"qwen3_next", "", false, false, false},
        {"qwen3_5_moe_text", "", true, false, false},
        {"minimax_m2", "\"intermediate_size\": 24, \"num_local_experts\": 8, ", true, true, false},
        {"glm4_moe", "\"intermediate_size\": 24, \"n_routed_experts\": 8, ", false, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dpe_config config = {0};
        struct dpe_error err = {0};
        char json[768];
        int n = snprintf(json, sizeof json,
                         "{\"model_type\": \"%s\", %s\"hidden_size\": 64, "
                         "\"moe_intermediate_size\": 24, \"num_experts\": 8, \"vocab_size\": 32, "
                         "\"num_experts_per_tok\": 2, \"num_hidden_layers\": 4, "
                         "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                         "\"head_dim\": 16, \"max_position_embeddings\": 64, "
                         "\"rope_theta\": 10000, \"partial_rotary_factor\": %s, "
                         "\"norm_topk_prob\": false, \"n_group\": 4, \"topk_group\": 3, "
                         "\"routed_scaling_factor\": 2.5}",
                         rows[i].type, rows[i].keys, i == 0 ? "1" : "0.5");
        dpe_status status =
            dpe_config_parse("config.json", json, (size_t)n, NULL, NULL, 0, &config, &err);
        if (status != DPE_OK) {
            fail_msg("%s: %s", rows[i].type, err.text);
        }
        assert_int_equal(config.experts_normalised, rows[i].normalised);
        assert_int_equal(config.router.sigmoid, rows[i].sigmoid);
        assert_int_equal(config.router.shifted, rows[i].sigmoid);
        assert_true(rows[i].grouped ? config.router.groups == 4 : config.router.groups < 2);
        assert_true(config.router.scale == (rows[i].grouped ? 2.5 : 0.0));
        dpe_config_release(&config);
    }
}

/* NSA's names, what they are when they are absent, and what cannot be. */
static void branches_and_their_keys(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *want;
    } rows[] = {
        {", \"block_counts\": 2", "block_counts: expected an integer from 3 to 65536, found 2"},
        {", \"block_size\": 0", "block_size: expected an integer from 1"},
        {", \"window_size\": -1", "window_size: expected an integer from 0"},
        {", \"hidden_act\": \"silu\"", "hidden_act: expected \"swish\", found \"silu\""},
        {", \"num_kv_heads\": 3", "num_kv_heads: expected a divisor of num_heads"},
        {", \"norm_eps\": -1", "norm_eps: expected a number >= 0"},
        {", \"hidden_ratio\": 0", "hidden_ratio: expected an integer from 1"},
    };
    struct dpe_config config = {0};
    struct dpe_error err = {0};
    assert_int_equal(parse_nsa("", &config, &err), DPE_OK);
    assert_int_equal(config.n_heads, 64);
    assert_int_equal(config.n_kv_heads, 4);
    assert_int_equal(config.head_dim, 64);
    assert_int_equal(config.intermediate, 5632); /* a multiple of 256 from 2/3 of 4 · 2048 */
    assert_int_equal(config.vocab, 32000);
    assert_true(config.branches);
    assert_int_equal(config.selection.block, 64);
    assert_int_equal(config.selection.k, 14); /* of 16, and the last two */
    assert_int_equal(config.n_kinds, 2);
    assert_int_equal(config.kinds[1].window, 512);
    assert_false(config.qkv_bias || config.o_bias);
    assert_true(dpe_config_moves(&config, 1));
    dpe_config_release(&config);
    assert_int_equal(parse_nsa(", \"block_counts\": 9, \"window_size\": 0, \"qkv_bias\": true, "
                               "\"intermediate_size\": 100, \"num_kv_heads\": null",
                               &config, &err),
                     DPE_OK);
    assert_int_equal(config.selection.k, 14);
    assert_int_equal(config.n_kinds, 1);
    assert_int_equal(config.intermediate, 100);
    assert_int_equal(config.n_kv_heads, 64);
    assert_true(config.qkv_bias);
    dpe_config_release(&config);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse_nsa(rows[i].keys, &config, &err), DPE_BAD_DATA);
        if (strstr(err.text, rows[i].want) == NULL) {
            fail_msg("%s: %s", rows[i].keys, err.text);
        }
    }
}

static void both_schemas_give_one_rotation(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    const struct config_member legacy[] = {
        {"rope_theta", "500000"},
        {"rope_scaling", "{\"type\":\"yarn\",\"factor\":4,\"mscale\":0,\"mscale_all_dim\":0.7,"
                         "\"original_max_position_embeddings\":8,\"attention_factor\":1.25}"},
    };
    const struct config_member newer[] = {
        {"rope_theta", NULL},
        {"rope_parameters", "{\"rope_type\":\"yarn\",\"factor\":4.0,\"mscale_all_dim\":0.7,"
                            "\"original_max_position_embeddings\":8,\"attention_factor\":1.25,"
                            "\"rope_theta\":5e5,\"partial_rotary_factor\":1.0}"},
    };
    for (int schema = 0; schema < 2; schema++) {
        write_config(&folder, schema == 0 ? legacy : newer, 2);
        struct dpe_rope_config rope = read_config(&folder).rope;
        assert_int_equal(rope.type, DPE_ROPE_YARN);
        assert_true(rope.theta == 500000.0 && rope.factor == 4.0);
        assert_true(rope.original_max_position == 8.0 && rope.attention_factor == 1.25);
        assert_true(isnan(rope.mscale) && rope.mscale_all_dim == 0.7);
        assert_true(rope.beta_fast == 32.0 && rope.beta_slow == 1.0 && rope.truncate);
        assert_true(rope.partial_rotary_factor == 1.0);
    }
    /* Phi-3's place for the original length. */
    const struct config_member outer[] = {
        {"original_max_position_embeddings", "12"},
        {"rope_scaling", "{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[2.5]}"},
    };
    write_config(&folder, outer, 2);
    struct dpe_rope_config rope = read_config(&folder).rope;
    assert_true(rope.original_max_position == 12.0 && isnan(rope.factor));
    folder_remove(&folder);
}

/* What is in both blocks has to agree as a rotation, not as text; what is in one of them counts. */
static void two_blocks_are_one_rotation(void **state)
{
    (void)state;
    static const struct {
        const char *scaling, *parameters, *theta;
        enum dpe_rope_type type;
        double base, factor;
        const char *differ; /* the member in which they contradict; NULL: they do not */
    } rows[] = {
        {"{\"type\":\"linear\",\"factor\":2}", "{\"rope_type\":\"linear\",\"factor\":2.0}", "500.0",
         DPE_ROPE_LINEAR, 500.0, 2.0, NULL},
        {"{\"type\":\"linear\",\"factor\":2}",
         "{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":7e3}", NULL, DPE_ROPE_LINEAR,
         7000.0, 2.0, NULL},
        {"{\"type\":\"dynamic\",\"factor\":3,\"finetuned\":true,\"beta_fast\":9}",
         "{\"type\":\"dynamic\",\"rope_type\":\"dynamic\",\"factor\":3,\"finetuned\":false}", NULL,
         DPE_ROPE_DYNAMIC, 10000.0, 3.0, NULL},
        {"{\"type\":\"yarn\",\"factor\":null,\"original_max_position_embeddings\":8}",
         "{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":32}", NULL, DPE_ROPE_YARN, 10000.0,
         4.0, NULL},
        {"{}", "{\"rope_type\":\"linear\",\"factor\":2}", NULL, DPE_ROPE_LINEAR, 10000.0, 2.0,
         NULL},
        {"{\"rope_theta\":300}", "{\"rope_type\":\"linear\",\"factor\":2}", NULL, DPE_ROPE_LINEAR,
         300.0, 2.0, NULL},
        {"{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":8}",
         "{\"rope_type\":\"default\",\"rope_theta\":500}", NULL, DPE_ROPE_YARN, 0, 0, "rope_type"},
        {"{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":300}",
         "{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":500}", NULL, DPE_ROPE_YARN, 0, 0,
         "rope_theta"},
        {"{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":8}",
         "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16}", NULL,
         DPE_ROPE_YARN, 0, 0, "original_max_position_embeddings"},
        {"{\"rope_type\":\"longrope\",\"factor\":4,\"short_factor\":[1],\"long_factor\":[2]}",
         "{\"rope_type\":\"longrope\",\"factor\":4,\"short_factor\":[1.0],\"long_factor\":[3]}",
         NULL, DPE_ROPE_LONGROPE, 0, 0, "long_factor"},
    };
    struct model_folder folder = folder_make();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct config_member members[] = {{"rope_scaling", rows[i].scaling},
                                                {"rope_parameters", rows[i].parameters},
                                                {"rope_theta", rows[i].theta}};
        write_config(&folder, members, 3);
        if (rows[i].differ != NULL) {
            expect_open(&folder, rows[i].scaling, DPE_BAD_DATA, "they differ in", rows[i].differ);
            continue;
        }
        struct dpe_config config = read_config(&folder);
        assert_int_equal(config.rope.type, rows[i].type);
        assert_true(config.rope.theta == rows[i].base && config.rope.factor == rows[i].factor);
    }
    folder_remove(&folder);
}

/* The class of a family may have more than a base where the file has no word about its rotation. */
static void a_family_s_own_rotation(void **state)
{
    (void)state;
    static const struct {
        const char *type, *key, *value;
        enum dpe_rope_type rope;
        double base, factor;
    } rows[] = {
        {"\"ministral3\"", "unused", NULL, DPE_ROPE_YARN, 1e6, 16.0},
        {"\"ministral3\"", "rope_scaling", "null", DPE_ROPE_YARN, 1e6, 16.0},
        {"\"ministral3\"", "rope_scaling", "{}", DPE_ROPE_YARN, 1e6, 16.0},
        {"\"ministral3\"", "rope_parameters", "{}", DPE_ROPE_DEFAULT, 1e4, 0.0},
        {"\"ministral3\"", "rope_parameters", "{\"rope_theta\":5e5}", DPE_ROPE_DEFAULT, 5e5, 0.0},
        {"\"gpt_oss\"", "unused", NULL, DPE_ROPE_YARN, 150000.0, 32.0},
        {"\"gpt_oss\"", "rope_theta", "20000", DPE_ROPE_YARN, 20000.0, 32.0},
        {"\"gpt_oss\"", "rope_scaling", "{\"rope_type\":\"linear\",\"factor\":2}", DPE_ROPE_LINEAR,
         150000.0, 2.0},
        {"\"smollm3\"", "unused", NULL, DPE_ROPE_DEFAULT, 2e6, 0.0},
    };
    struct model_folder folder = folder_make();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct config_member members[] = {
            {"model_type", rows[i].type},
            {"architectures", NULL},
            {"sliding_window", "null"},
            {"rope_theta", NULL},
            {"num_local_experts", "8"},
            {"num_experts_per_tok", "2"},
            {"layer_types", "[\"full_attention\"]"},
            {rows[i].key, rows[i].value},
        };
        bool own = strcmp(rows[i].key, "rope_theta") == 0;
        write_config(&folder, members, 8 - own);
        if (own) {
            struct config_member theta[8];
            memcpy(theta, members, sizeof theta);
            theta[3] = members[7];
            write_config(&folder, theta, 7);
        }
        struct dpe_config config = read_config(&folder);
        if (config.rope.type != rows[i].rope || config.rope.theta != rows[i].base ||
            (rows[i].factor > 0.0 && config.rope.factor != rows[i].factor)) {
            fail_msg("row %zu: type %d, base %g, factor %g", i, (int)config.rope.type,
                     config.rope.theta, config.rope.factor);
        }
        bool ministral = strstr(rows[i].type, "ministral") != NULL && rows[i].factor == 16.0;
        assert_true(config.query_growth == (ministral ? 0.1 : 0.0));
        assert_true(config.rope.truncate ==
                    (strstr(rows[i].type, "oss") == NULL || rows[i].rope != DPE_ROPE_YARN));
    }
    folder_remove(&folder);
}

/* A logit factor for each of longrope's lists; yarn's factor may be the ratio of two lengths. */
static void factors_that_follow_the_length(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        double few, many;
    } rows[] = {
        {",\"short_mscale\":1.25,\"long_mscale\":1.5", 1.25, 1.5},
        {",\"long_mscale\":1.5", 0.0, 1.5},
        {",\"short_mscale\":1.5", 1.5, 0.0},
        {",\"attention_factor\":1.125", 1.125, 1.125},
        {",\"attention_factor\":1.125,\"short_mscale\":1.125,\"long_mscale\":1.125", 1.125, 1.125},
        {",\"attention_factor\":1.5,\"short_mscale\":1.0,\"long_mscale\":1.5", 1.0, 1.5},
        {"", 0.0, 0.0},
        {",\"short_mscale\":null", 0.0, 0.0},
        {",\"factor\":2.0", -1.0, -1.0},
    };
    struct model_folder folder = folder_make();
    double formula = sqrt(1.0 + log(4.0) / log(8.0));
    double of_two = sqrt(1.0 + log(2.0) / log(8.0));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char block[256];
        snprintf(block, sizeof block,
                 "{\"rope_type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[2.5],"
                 "\"original_max_position_embeddings\":8%s}",
                 rows[i].more);
        const struct config_member member = {"rope_parameters", block};
        const struct dpe_model_options options = {.config_only = true};
        struct dpe_model *model = NULL;
        write_config(&folder, &member, 1);
        assert_int_equal(dpe_model_open(folder.path, &options, &model, NULL), DPE_OK);
        for (int64_t length = 8; length < 10; length++) {
            double want = length == 8 ? rows[i].few : rows[i].many;
            double inv_freq[1];
            double a = 0.0;
            want = want == 0.0 ? formula : want < 0.0 ? of_two : want;
            assert_int_equal(dpe_rope_native(dpe_model_config(model), length, inv_freq, &a, NULL),
                             DPE_OK);
            assert_true(fabs(a - want) < 1e-12 &&
                        fabs(inv_freq[0] * (length == 8 ? 1.0 : 2.5) - 1.0) < 1e-12);
        }
        dpe_model_close(model);
    }
    static const char *const ratios[] = {"\"factor\":null,", ""};
    for (size_t i = 0; i < 2; i++) {
        char block[128];
        snprintf(block, sizeof block,
                 "{\"rope_type\":\"yarn\",%s\"original_max_position_embeddings\":8}", ratios[i]);
        const struct config_member member = {"rope_scaling", block};
        write_config(&folder, &member, 1);
        struct dpe_config config = read_config(&folder);
        double inv_freq[1];
        double a = 0.0;
        assert_int_equal(dpe_rope_native(&config, 100, inv_freq, &a, NULL), DPE_OK);
        assert_true(fabs(a - (0.1 * log(4.0) + 1.0)) < 1e-12);
    }
    const struct config_member none = {"rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":null}"};
    write_config(&folder, &none, 1);
    expect_open(&folder, "no length", DPE_BAD_DATA, "factor: expected a number, or original", NULL);
    folder_remove(&folder);
}

static void end_ids(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    const struct config_member member = {"eos_token_id", "[128009, 7, 7, 128001]"};
    write_config(&folder, &member, 1);
    write_text(&folder, "generation_config.json",
               "{\"eos_token_id\": 3, \"bos_token_id\": 1, \"pad_token_id\": null}");
    struct dpe_config config = read_config(&folder);
    const int64_t want[] = {3, 7, 128001, 128009};
    assert_int_equal(config.n_eos, 4);
    assert_memory_equal(config.eos_ids, want, sizeof want);
    assert_int_equal(config.bos_id, 1);
    folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_members),
        cmocka_unit_test(wrong_rotations),
        cmocka_unit_test(files_that_are_not_a_configuration),
        cmocka_unit_test(what_is_absent_has_the_family_s_meaning),
        cmocka_unit_test(large_integers_are_numbers),
        cmocka_unit_test(sliding_windows),
        cmocka_unit_test(families_and_their_keys),
        cmocka_unit_test(trained_lengths),
        cmocka_unit_test(branches_and_their_keys),
        cmocka_unit_test(both_schemas_give_one_rotation),
        cmocka_unit_test(two_blocks_are_one_rotation),
        cmocka_unit_test(a_family_s_own_rotation),
        cmocka_unit_test(recurrent_layers_are_read),
        cmocka_unit_test(gated_experts_are_read),
        cmocka_unit_test(routers_read_what_their_classes_read),
        cmocka_unit_test(factors_that_follow_the_length),
        cmocka_unit_test(end_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

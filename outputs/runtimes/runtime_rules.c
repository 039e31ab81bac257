/* The runtimes: what each does otherwise than its first row. */
#include "outputs/runtimes/runtimes.h"

#include <string.h>

#define SEVEN " default linear dynamic yarn longrope llama3 proportional "

/* What the versions of a runtime share. */
// clang-format off
#define VLLM \
    .class_defaults = true, \
    .types_agree = true, \
    .phi3_names = true, \
    .null_refused = true, \
    .mscales = true, \
    .of_lengths = true, \
    .long_at_start = true, \
    .dynamic = DPE_DYNAMIC_FLAT, \
    .alpha = true, \
    .proportional = true, \
    .growth = DPE_GROWTH_OWN, \
    .longest = DPE_LONGEST_VLLM
#define EXLLAMAV3 \
    .types = " default linear yarn longrope su llama3 proportional ", \
    .outer_base_first = true, \
    .inner_length_first = true, \
    .fills_in = true, \
    .ratio = true, \
    .of_lengths = true, \
    .long_by_model = true
// clang-format on

static const struct dpe_runtime runtimes[] = {
    {
        .name = "transformers",
        .versions = "5.19",
        .known_by = "imported",
        .adapter = "dpe_transformers",
        .types = SEVEN,
        .class_defaults = true,
        .phi3_names = true,
        .growth = DPE_GROWTH_BLOCK,
    },
    {
        .name = "transformers",
        .versions = "4.57",
        .known_by = "imported",
        .older = true,
        .types = " default linear dynamic yarn longrope llama3 ",
        .no_models = " ministral3 ",
        .phi3_of_three = true,
        .old_block_alone = true,
        .inner_length_first = true,
        .outer_length_alone = true,
        .class_defaults = true,
        .old_type_first = true,
        .phi3_names = true,
        .null_refused = true,
    },
    {
        .name = "vLLM",
        .versions = "0.32",
        .known_by = "imported",
        .adapter = "dpe_vllm",
        .types = SEVEN "su deepseek_yarn telechat3-yarn ",
        VLLM,
    },
    {
        .name = "vLLM",
        .versions = "0.25",
        .known_by = "vllm#46280 and #48621, read 2026-11-26: yarn; the rest as 0.32",
        .older = true,
        .types = SEVEN "su deepseek_yarn ",
        VLLM,
        .no_attention_factor = true,
        .no_mscales = true,
        .attn_factor = true,
    },
    {
        .name = "SGLang",
        .versions = "main",
        .known_by = "source at 108c36c and 0b1fd02, read 2026-11-26",
        .types = SEVEN "deepseek_yarn ",
        .class_defaults = true,
        .phi3_names = true,
        .null_refused = true,
        .no_attention_factor = true,
        .attn_factor = true,
        .mscales = true,
        .of_lengths = true,
        .dynamic = DPE_DYNAMIC_FULL,
        .alpha = true,
        .proportional = true,
        .growth = DPE_GROWTH_OUTER,
        .longest = DPE_LONGEST_SGLANG,
    },
    {
        .name = "llama.cpp",
        .versions = "0c1e570",
        .known_by = "its converter imported; its loader and rotation read, of 2026-10-01",
        .reads_gguf = true,
        .types = " default linear yarn longrope su llama3 ",
        .unknown_plain = true,
        .new_block_first = true,
        .inner_length_first = true,
        .fills_in = true,
        .no_attention_factor = true,
        .no_mscales = true,
        .no_truncate = true,
        .of_lengths = true,
        .long_at_start = true,
        .lists_of_phi3 = true,
        .growth = DPE_GROWTH_BLOCK,
    },
    {
        .name = "MLX",
        .versions = "mlx-lm 0.32.2",
        .known_by = "imported",
        .types = SEVEN "deepseek_yarn telechat3-yarn ",
        .block_by_model = true,
        .inner_length_first = true,
        .old_type_first = true,
        .fills_in = true,
        .no_attention_factor = true,
        .mscale_each = true,
        .no_truncate = true,
        .null_refused = true,
        .of_lengths = true,
        .long_always = true,
        .growth = DPE_GROWTH_BLOCK,
    },
    {
        .name = "exllamav3",
        .versions = "1.4.1",
        .known_by = "source at 4f8ad01 of 2026-08-08, read, and its rotation run, 2026-11-26",
        EXLLAMAV3,
        .no_mscales = true,
        .growth = DPE_GROWTH_YARN,
    },
    {
        .name = "exllamav3",
        .versions = "1.0 to 1.2.1",
        .known_by = "exllamav3#259, read 2026-11-26",
        .older = true,
        EXLLAMAV3,
        .growth = DPE_GROWTH_BLOCK,
    },
};

const struct dpe_runtime *dpe_runtime_at(size_t i)
{
    return i < sizeof runtimes / sizeof runtimes[0] ? &runtimes[i] : NULL;
}

/* mlx_lm/models of 0.32.2. */
static const struct dpe_mlx_model mlx_models[] = {
    {"llama", false, false, 10000.0},
    {"mistral", false, false, 10000.0},
    {"qwen2", false, false, 1e6},
    {"qwen3", true, false, 0.0},
    {"qwen3_moe", false, false, 0.0},
    {"phi3", false, false, 10000.0},
    {"olmo3", false, false, 0.0},
    {"granite", false, false, 0.0},
    {"glm4", false, false, 0.0},
    {"gemma3_text", false, false, 1e6},
    {"gpt_oss", false, false, 150000.0},
    {"ministral3", true, true, 0.0},
    {"deepseek_v3", false, false, 10000.0},
};

const struct dpe_mlx_model *dpe_mlx_model(const char *model_type)
{
    for (size_t i = 1; i < sizeof mlx_models / sizeof mlx_models[0]; i++) {
        if (strcmp(mlx_models[i].model_type, model_type) == 0) {
            return &mlx_models[i];
        }
    }
    return &mlx_models[0];
}

#!/usr/bin/env python3
"""Make the golden models of the families beyond Llama: random Hugging Face folders and their logits.

    python make_families.py [OUT_DIR [NAME...]]     (default: families/ beside this script, all)

Needs torch and transformers (made with torch 2.6, transformers 5.23; routers and after with 2.13, 5.24). Everything is seeded; the
folders hold what README.md beside this script says.
"""

import json
import pathlib
import sys
import zlib

import safetensors.torch
import torch
import transformers

import make_tiny as tiny

BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_hidden_layers=2,
    max_position_embeddings=32,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


# Those that the CUDA backend carries, so that its float kernels are held against transformers too.
FLOAT = ("qwen3", "phi3_short", "granite", "glm4", "ministral3", "glm4_moe", "minimax_m2", "seed_oss")


def types(*windowed):
    return ["sliding_attention" if w else "full_attention" for w in windowed]


def hybrid(*recurrent):
    return ["linear_attention" if r else "full_attention" for r in recurrent]


STATES = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
              linear_value_head_dim=20, linear_conv_kernel_dim=4)
YARN = dict(factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0)

# name, class, keys, schema of the rotation in config.json ("new": v5's, "legacy": v4's)
MODELS = [
    ("qwen3", "Qwen3", dict(head_dim=12, attention_bias=True), "legacy"),
    ("qwen3_windows", "Qwen3",
     dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=7, max_window_layers=2,
          tie_word_embeddings=True), "new"),
    ("phi3", "Phi3",
     dict(head_dim=None, max_position_embeddings=64, original_max_position_embeddings=16,
          sliding_window=64, num_attention_heads=2, num_key_value_heads=1,
          rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                               partial_rotary_factor=0.75,
                               short_factor=tiny.ramp(1.0, 1.5, 6),
                               long_factor=tiny.ramp(1.0, 6.0, 6))), "legacy"),
    ("phi3_short", "Phi3",
     dict(head_dim=None, max_position_embeddings=128, original_max_position_embeddings=64,
          rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                               short_factor=tiny.ramp(1.0, 1.5, 4),
                               long_factor=tiny.ramp(1.0, 6.0, 4))), "new"),
    ("olmo2", "Olmo2", dict(head_dim=None), "legacy"),
    ("granite", "Granite",
     dict(head_dim=None, embedding_multiplier=3.0, residual_multiplier=0.22,
          attention_multiplier=0.125, logits_scaling=8.0), "new"),
    ("smollm3", "SmolLM3", dict(head_dim=None, num_hidden_layers=4, no_rope_layer_interval=2), "new"),
    ("smollm3_fourth", "SmolLM3",
     dict(head_dim=None, num_hidden_layers=4, no_rope_layer_interval=4), "new"),
    ("glm4", "Glm4", dict(head_dim=8, attention_bias=True), "new"),
    ("ministral3", "Ministral3",
     dict(rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, mscale=1.0,
                               mscale_all_dim=1.0, llama_4_scaling_beta=0.3, **YARN)), "new"),
    ("mistral3", "Mistral3", {}, "new"),
    ("gemma2", "Gemma2",
     dict(num_hidden_layers=3, sliding_window=7, query_pre_attn_scalar=12,
          attn_logit_softcapping=5.0, final_logit_softcapping=6.0), "legacy"),
    ("gemma3", "Gemma3Text",
     dict(num_hidden_layers=3, sliding_window=7, layer_types=types(1, 1, 0),
          query_pre_attn_scalar=12,
          rope_parameters={
              "full_attention": dict(rope_type="linear", rope_theta=50000.0, factor=4.0),
              "sliding_attention": dict(rope_type="default", rope_theta=1000.0)}), "new"),
    ("olmo3", "Olmo3",
     dict(head_dim=None, num_hidden_layers=4, sliding_window=7,
          rope_parameters={
              "full_attention": dict(rope_type="yarn", rope_theta=500000.0, **YARN),
              "sliding_attention": dict(rope_type="default", rope_theta=500000.0)}), "typed"),
    ("qwen3_5", "Qwen3_5Text",
     dict(num_hidden_layers=5, layer_types=hybrid(1, 1, 0, 1, 0), head_dim=16, **STATES,
          rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                               mrope_section=[2, 1, 1], mrope_interleaved=True)), "new"),
    ("olmo_hybrid", "OlmoHybrid",
     dict(head_dim=None, num_hidden_layers=5, layer_types=hybrid(1, 0, 1, 1, 0), **STATES,
          rope_parameters=dict(rope_type="default", rope_theta=500000.0)), "new"),
    ("olmo_hybrid_still", "OlmoHybrid",
     dict(head_dim=None, num_hidden_layers=4, layer_types=hybrid(1, 0, 1, 0), **STATES,
          rope_parameters=dict(rope_type="default", rope_theta=None)), "new"),
    ("qwen3_moe", "Qwen3Moe",
     dict(moe_intermediate_size=8, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True),
     "new"),
    ("qwen3_5_moe", "Qwen3_5MoeText",
     dict(num_hidden_layers=4, layer_types=hybrid(1, 1, 0, 1), head_dim=16, **STATES, intermediate_size=None,
          moe_intermediate_size=8, shared_expert_intermediate_size=12, num_experts=5, num_experts_per_tok=2,
          rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                               mrope_section=[2, 1, 1], mrope_interleaved=True)), "new"),
    ("qwen3_next", "Qwen3Next",
     dict(num_hidden_layers=4, layer_types=hybrid(0, 1, 1, 0), head_dim=16, **STATES,
          moe_intermediate_size=8, shared_expert_intermediate_size=20, num_experts=6, num_experts_per_tok=3,
          rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)), "new"),
    ("gpt_oss", "GptOss",
     dict(num_hidden_layers=3, sliding_window=7, num_local_experts=4, num_experts_per_tok=2,
          intermediate_size=8, layer_types=types(1, 0, 1),
          rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, truncate=False, **YARN)),
     "legacy"),
    ("glm4_moe", "Glm4Moe",
     dict(num_hidden_layers=3, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=3,
          n_shared_experts=2, n_group=3, topk_group=2, routed_scaling_factor=1.5, use_qk_norm=True,
          attention_bias=True), "new"),
    ("glm4_moe_one_group", "Glm4Moe",
     dict(moe_intermediate_size=8, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1,
          norm_topk_prob=False, tie_word_embeddings=True), "new"),
    ("minimax_m2", "MiniMaxM2",
     dict(intermediate_size=8, num_local_experts=6, num_experts_per_tok=2, rotary_dim=4), "new"),
    ("seed_oss", "SeedOss", dict(attention_out_bias=True), "new"),
    ("ernie4_5", "Ernie4_5", dict(use_bias=True), "new"),
    ("hunyuan", "HunYuanDenseV1",
     dict(attention_bias=True, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0)), "new"),
    ("hunyuan_tied", "HunYuanDenseV1", dict(tie_word_embeddings=True), "new"),
    ("exaone4_windows", "Exaone4",
     dict(head_dim=None, num_hidden_layers=3, sliding_window=7, layer_types=types(1, 0, 1)), "new"),
    ("cohere2", "Cohere2",
     dict(num_hidden_layers=3, sliding_window=7, layer_types=types(1, 1, 0), logit_scale=0.25,
          layer_norm_eps=1e-5), "new"),
    ("llama4", "Llama4Text",
     dict(num_hidden_layers=4, intermediate_size=8, intermediate_size_mlp=24, num_local_experts=4, num_experts_per_tok=2,
          interleave_moe_layer_step=2, attention_chunk_size=7, floor_scale=6, attn_scale=0.4, no_rope_layer_interval=2,
          attention_bias=True, rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                                    high_freq_factor=4.0, original_max_position_embeddings=16)), "new"),
    ("llama4_wide", "Llama4",
     dict(num_hidden_layers=4, intermediate_size=8, intermediate_size_mlp=16, num_local_experts=3, num_experts_per_tok=1,
          max_position_embeddings=16384), "new"),
    ("llama4_moves", "Llama4Text",
     dict(num_hidden_layers=3, intermediate_size=8, intermediate_size_mlp=16, num_local_experts=3, num_experts_per_tok=1, use_qk_norm=False,
          attention_chunk_size=None, no_rope_layers=[1, 0, 1], floor_scale=5, attn_scale=0.5), "new"),
    ("gemma4", "Gemma4Text",
     dict(num_hidden_layers=6, layer_types=types(1, 0, 1, 0, 1, 0), sliding_window=7, global_head_dim=16, num_kv_shared_layers=2,
          use_double_wide_mlp=True, hidden_size_per_layer_input=8, vocab_size_per_layer_input=64, final_logit_softcapping=6.0,
          rope_parameters={
              "full_attention": dict(rope_type="proportional", rope_theta=100.0, partial_rotary_factor=0.25),
              "sliding_attention": dict(rope_type="default", rope_theta=1000.0)}), "new"),
    ("gemma4_alike", "Gemma4Text",
     dict(num_hidden_layers=3, layer_types=types(1, 1, 0), sliding_window=7, global_head_dim=16, attention_k_eq_v=True,
          num_global_key_value_heads=1, hidden_size_per_layer_input=0,
          rope_parameters={
              "full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.5),
              "sliding_attention": dict(rope_type="default", rope_theta=1e4)}), "new"),
    ("gemma4_experts", "Gemma4Text",
     dict(num_hidden_layers=3, layer_types=types(1, 0, 0), sliding_window=7, global_head_dim=16, attention_k_eq_v=True,
          num_global_key_value_heads=1, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2,
          moe_intermediate_size=8, final_logit_softcapping=6.0,
          rope_parameters={
              "full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.5),
              "sliding_attention": dict(rope_type="default", rope_theta=1e4)}), "new"),
    ("exaone4", "Exaone4", dict(head_dim=None, sliding_window=None, layer_types=types(0, 0)), "new"),
]


def fill(model, generator):
    """As tiny's, for the shapes of experts, sinks and norms that multiply by 1 + weight."""
    shifted = any(name in type(model).__name__ for name in ("Gemma2", "Gemma3", "Qwen3_5", "Qwen3Next"))
    routers = [(n, b) for n, b in model.named_buffers() if n.endswith(("e_score_correction_bias", "layer_scalar"))]
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *routers]:
            noise = torch.randn(weight.shape, generator=generator)
            if name.endswith("e_score_correction_bias"):
                weight.copy_(0.2 * noise)
            elif name.endswith("bias") or "sinks" in name:
                weight.copy_(noise)
            elif "A_log" in name:
                weight.copy_(0.7 * noise)
            elif weight.ndim == 1:
                state = "linear_attn" in name
                weight.copy_(0.3 * noise + (0.0 if shifted and not state else 1.0))
            elif "conv1d" in name:
                weight.copy_(noise * 0.7)
            elif "q_proj" in name or "k_proj" in name or ("qkv" in name and "qkvz" not in name):
                weight.copy_(noise * 2.0 / weight.shape[-1] ** 0.5)
            elif weight.ndim == 3:
                weight.copy_(noise * 3.0 / weight.shape[1] ** 0.5)
            else:
                weight.copy_(noise * (2.0 if "router" in name or "mlp.gate." in name else 1.0)
                             / weight.shape[-1] ** 0.5)


def rewrite_rotation(path, schema):
    """config.json with the rotation as transformers 4 wrote it."""
    config = json.loads(path.read_text())
    if schema == "new":
        return
    parameters = config.pop("rope_parameters")
    if schema == "typed":
        parameters = parameters["full_attention"]
    config["rope_theta"] = parameters.pop("rope_theta")
    if "partial_rotary_factor" in parameters:
        config["partial_rotary_factor"] = parameters.pop("partial_rotary_factor")
    parameters.pop("original_max_position_embeddings", None) if config["model_type"] == "phi3" else 0
    if config["model_type"] == "phi3":
        parameters["type"] = parameters.pop("rope_type")
    default = parameters.get("rope_type") == "default"
    config["rope_scaling"] = None if default else parameters
    path.write_text(json.dumps(config, indent=2) + "\n")


def stack_experts(path):
    """The experts of each layer in two tensors, as Qwen3.5 is published."""
    with safetensors.safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    apart = {}
    for name in [name for name in tensors if ".experts." in name]:
        layer, rest = name.split("experts.")
        expert, matrix, _ = rest.split(".")
        apart.setdefault(layer, {}).setdefault(matrix, {})[int(expert)] = tensors.pop(name)
    for layer, of in apart.items():
        gate, up, down = (torch.stack([of[m][e] for e in sorted(of[m])]) for m in ("gate_proj", "up_proj", "down_proj"))
        tensors[layer + "experts.gate_up_proj"] = torch.cat([gate, up], dim=1)
        tensors[layer + "experts.down_proj"] = down
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def make_model(family, keys):
    if family == "Mistral3":
        text = {k: v for k, v in BASE.items()}
        text.update(model_type="ministral3", rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, mscale=1.0, mscale_all_dim=1.0,
            llama_4_scaling_beta=0.3, **YARN))
        vision = dict(model_type="pixtral", hidden_size=16, intermediate_size=8,
                      num_hidden_layers=1, num_attention_heads=1, head_dim=16, image_size=28,
                      patch_size=14)
        config = transformers.Mistral3Config(text_config=text, vision_config=vision,
                                             spatial_merge_size=1)
        return transformers.Mistral3ForConditionalGeneration(config)
    if family == "Llama4":
        vision = dict(hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14,
                      vision_output_dim=16, projector_input_dim=16, projector_output_dim=16)
        text = transformers.Llama4TextConfig(**{**BASE, **keys})
        return transformers.Llama4ForConditionalGeneration(transformers.Llama4Config(text_config=text.to_dict(), vision_config=vision))
    keys = {key: value for key, value in {**BASE, **keys}.items()
            if value is not None or key in ("sliding_window", "attention_chunk_size")}
    config = getattr(transformers, family + "Config")(**keys)
    name = family.removesuffix("Text") + "ForCausalLM"
    return getattr(transformers, name)(config)


def logits_of(folder, tokens, dtype, pieces=None):
    auto = transformers.AutoModelForCausalLM
    if json.loads((folder / "config.json").read_text())["model_type"] in ("mistral3", "llama4"):
        auto = transformers.AutoModelForImageTextToText
    eager = dict(attn_implementation="eager")
    if any("experts" in key for key in json.loads((folder / "config.json").read_text())):
        eager["experts_implementation"] = "eager"  # the default has no products in double
    model = auto.from_pretrained(folder, dtype=dtype, **eager).eval()
    model = getattr(model, "language_model", model)  # Llama 4's class of both wants images (5.24)
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].double().numpy()


def make(out, name, family, keys, schema):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*"):
        old.unlink()
    model = make_model(family, keys)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    fill(model, generator)
    model.to(torch.float32 if name in FLOAT else torch.bfloat16).save_pretrained(folder)
    rewrite_rotation(folder / "config.json", schema)
    if name == "qwen3_5_moe":
        stack_experts(folder / "model.safetensors")
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)
    tiny.logits_of = logits_of
    tokens, oracle = tiny.draw_tokens(folder, generator)
    plain = logits_of(folder, tokens, torch.float32)
    (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
    plain.astype("<f4").tofile(folder / "logits.f32")
    oracle.astype("<f4").tofile(folder / "oracle.f32")
    spread = oracle.max() - oracle.min()
    error = abs(plain - oracle).max() / spread
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name:14} {size:7} bytes  spread {spread:6.2f}  f32 error/spread {error:.1e}  "
          f"least top-2 gap/spread {tiny.least_gap(oracle) / spread:.1e}", flush=True)
    assert error < 2e-5


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    here = pathlib.Path(__file__).parent / "families"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    for name, *rest in MODELS:
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            make(out, name, *rest)


if __name__ == "__main__":
    main()

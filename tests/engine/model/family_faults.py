#!/usr/bin/env python3
"""family_faults.py BIN: golden folders of hybrids and of models with routers in which one tensor is missing, has a row less or
another type: each is refused with 65, by the name of the file (of the folder, where it is missing) and of the tensor.
And configurations that cannot be."""
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fp8_folders import read, run, write  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "families"
FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next", "olmo_hybrid", "glm4_moe", "minimax_m2", "hunyuan", "llama4", "gemma4", "gemma4_alike")
# Keys that every layer of the family reads, and what of the name or of the sizes the message has.
CONFIGS = [
    ("qwen3_5", {"linear_conv_kernel_dim": 3}, "linear_attn.conv1d.weight"), ("qwen3_5", {"linear_conv_kernel_dim": 0}, "linear_conv_kernel_dim"),
    ("qwen3_5", {"linear_num_value_heads": 3}, "linear_num_value_heads"), ("qwen3_5", {"linear_num_key_heads": 4}, "linear_attn.in_proj_qkv.weight"),
    ("qwen3_5", {"linear_value_head_dim": 1 << 40}, "linear_value_head_dim"), ("qwen3_5", {"linear_key_head_dim": -1}, "linear_key_head_dim"),
    ("qwen3_5", {"linear_num_key_heads": 4096, "linear_num_value_heads": 4096, "linear_key_head_dim": 1024, "linear_value_head_dim": 1024}, "2^28"),
    ("qwen3_5", {"layer_types": ["linear_attention"] * 5}, "no layer sees all keys"), ("qwen3_5", {"layer_types": ["mamba"] * 5}, "layer_types"),
    ("qwen3_5", {"layer_types": ["linear_attention", "full_attention"]}, "layer_types"), ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate"),
    ("qwen3_5", {"num_key_value_heads": 3}, "num_key_value_heads"), ("qwen3_next", {"linear_num_value_heads": 6}, "linear_attn.in_proj_qkvz.weight"),
    ("qwen3_next", {"num_experts_per_tok": 7}, "num_experts_per_tok"), ("qwen3_next", {"num_experts": 5}, "mlp.gate.weight"),
    ("qwen3_next", {"mlp_only_layers": [1]}, "mlp_only_layers"), ("qwen3_next", {"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size"),
    ("glm4_moe", {"n_group": 4}, "n_group"), ("glm4_moe", {"first_k_dense_replace": 9}, "first_k_dense_replace"),
    ("glm4_moe", {"n_shared_experts": 1}, "mlp.shared_experts.gate_proj.weight"), ("glm4_moe", {"scoring_func": "softmax"}, "scoring_func"),
    ("minimax_m2", {"num_local_experts": 1 << 20}, "num_local_experts"), ("minimax_m2", {"rope_parameters": {"rope_theta": 1e4}, "rotary_dim": 5}, "partial_rotary_factor"),
    ("hunyuan", {"rope_parameters": {"rope_type": "dynamic", "alpha": -1}}, "alpha"), ("hunyuan", {"head_dim": 16}, "self_attn.q_proj.weight"),
    ("llama4", {"moe_layers": [0, 2]}, "moe_layers"), ("llama4", {"moe_layers": "all"}, "moe_layers"), ("llama4", {"moe_layers": [0, 1, 2, 3]}, "feed_forward."),
    ("llama4", {"moe_layers": None, "interleave_moe_layer_step": 0}, "interleave_moe_layer_step"), ("llama4", {"attention_chunk_size": -7}, "attention_chunk_size"),
    ("llama4", {"layer_types": ["chunked_attention"] * 4}, "attention_chunk_size: found 7"), ("llama4", {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
    ("llama4", {"no_rope_layers": [1, 0]}, "no_rope_layers"), ("llama4", {"floor_scale": 0}, "floor_scale"), ("llama4", {"attn_scale": "much"}, "attn_scale"),
    ("llama4", {"num_experts_per_tok": 5}, "num_experts_per_tok"), ("llama4", {"intermediate_size": 9}, "feed_forward.shared_expert.gate_proj.weight"),
    ("llama4", {"intermediate_size_mlp": 8}, "feed_forward.gate_proj.weight"), ("llama4", {"num_local_experts": 0}, "num_local_experts"),
    ("gemma4", {"num_kv_shared_layers": 6}, "num_kv_shared_layers"), ("gemma4", {"num_kv_shared_layers": 5}, "num_kv_shared_layers: expected a layer of each"),
    ("gemma4", {"num_kv_shared_layers": 0, "use_double_wide_mlp": False}, "mlp.gate_proj.weight"), ("gemma4", {"enable_moe_block": True}, "enable_moe_block"),
    ("gemma4", {"hidden_size_per_layer_input": 7}, "embed_tokens_per_layer.weight"), ("gemma4", {"hidden_size_per_layer_input": -1}, "hidden_size_per_layer_input"),
    ("gemma4", {"vocab_size_per_layer_input": 63}, "vocab_size_per_layer_input"), ("gemma4", {"vocab_size_per_layer_input": 65}, "embed_tokens_per_layer.weight"),
    ("gemma4", {"use_double_wide_mlp": False}, "mlp.gate_proj.weight"), ("gemma4", {"layer_types": ["sliding_attention"] * 6}, "no layer sees all keys"),
    ("gemma4", {"per_layer_config": {"1": {"head_dim": 15}, "3": {"head_dim": 15}, "5": {"head_dim": 15}}}, "per_layer_config.N.head_dim"),
    ("gemma4", {"per_layer_config": {"1": {"head_dim": 16}, "3": {"head_dim": 32}}}, "per_layer_config.N.head_dim"),
    ("gemma4", {"per_layer_config": {"1": {"head_dim": 16, "num_key_value_heads": 3}}}, "num_key_value_heads"),
    ("gemma4", {"per_layer_config": None, "global_head_dim": 1 << 20}, "global_head_dim"), ("gemma4", {"per_layer_config": "all"}, "per_layer_config"),
    ("gemma4", {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}, "sliding_attention": {}}}, "rope_type"),
    ("gemma4", {"rope_parameters": {"full_attention": {"rope_type": "proportional", "factor": 2.0}, "sliding_attention": {}}}, "factor"),
    ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"), ("gemma4_alike", {"attention_k_eq_v": False}, "self_attn.v_proj.weight"),
    ("cohere2", {"layer_types": ["sliding_attention"] * 3}, "no layer sees all keys"), ("cohere2", {"layer_types": ["chunked_attention"] * 3}, "layer_types"),
]
# What is read as the folder itself: a number of transformers 4.51, both blocks of the rotation, as a converter may leave them.
ALIKE = [("llama4", {"attn_temperature_tuning": 4}), ("llama4", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 16}})]


def faults(dtype, shape, data):
    """What the tensor may be in its place: (words, tensor)."""
    yield "missing", None
    size = len(data) // shape[0]
    yield "a row less", (dtype, [shape[0] - 1, *shape[1:]], data[size:])
    yield "type", ("I16" if dtype == "BF16" else "I32", shape, data)


def main():
    n = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for family in FAMILIES:
            tensors = read(GOLDEN / family / "model.safetensors")
            config = json.loads((GOLDEN / family / "config.json").read_text())
            write(work / "model", tensors, None)
            (work / "model" / "config.json").write_text(json.dumps(config))
            os.remove(work / "model" / "tokenizer.json")
            run(work / "model", "--info")
            # Of layers and experts that are alike the last.
            for name in {re.sub("[0-9]+", "N", name): name for name in tensors}.values():
                for what, changed in faults(*tensors[name]):
                    others = {key: value for key, value in tensors.items() if key != name}
                    write(work / "model", others | ({name: changed} if changed else {}), None)
                    (work / "model" / "config.json").write_text(json.dumps(config))
                    said = run(work / "model", "--info", code=65)
                    shown = name.rsplit(".", 1)[0] if what == "missing" and "mlp.experts.gate_up" in name else name  # by expert
                    shown = "v_conv1d" if "conv1d" in name and what == "a row less" and family == "olmo_hybrid" else shown  # the last has what is left
                    own = shown.replace("attention_layer_norm", "input_layernorm").replace("feedforward_layer_norm", "post_attention_layernorm")
                    assert (shown in said or own in said) and str(work / "model") in said, (family, name, what, said)
                    assert what == "missing" or "model.safetensors" in said, (family, name, what, said)
                    n += 1
            print(family, n, flush=True)
        for family, changes, word in CONFIGS:
            shutil.rmtree(work / "model")
            write(work / "model", read(GOLDEN / family / "model.safetensors"), None)
            config = json.loads((GOLDEN / family / "config.json").read_text())
            (work / "model" / "config.json").write_text(json.dumps(config | changes))
            said = run(work / "model", "--info", code=65)
            assert word in said and str(work / "model") in said, (family, changes, said)
        for family, changes in ALIKE:
            plain, same = json.loads((GOLDEN / family / "config.json").read_text()), []
            write(work / "model", read(GOLDEN / family / "model.safetensors"), None)
            for config in (plain, plain | changes):
                (work / "model" / "config.json").write_text(json.dumps(config))
                same.append(run(work / "model", "--show-plan"))
            assert same[0] == same[1], (family, changes, same)
    print(f"{n} tensors and {len(CONFIGS)} configurations refused")


if __name__ == "__main__":
    main()

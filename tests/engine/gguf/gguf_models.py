#!/usr/bin/env python3
"""gguf_models.py OUT [--blocks | --whole] [FOLDER…]: the golden tiny models as GGUF files, as llama.cpp's converter lays them out.

Names, permuted rows of q and k, norms with their 1, experts in one tensor, metadata in place of config.json. The values stay
what they are, so the files have to give the logits that transformers gave for the folders (gguf_golden.sh runs test_golden).
With --blocks matrices are rounded to blocks of Q8_0. With --whole the projections of Qwen3-Next's key heads are one tensor, as in
the first files.
"""
import json
import math
import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
from gguf_writer import BOOL, F32, I32, STRING, U32, write  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
FOLDERS = ["llama", "llama_bf16", "llama3", "qwen2", "linear", "families/qwen3", "families/qwen3_moe", "families/phi3",
           "families/olmo2", "families/olmo3", "families/granite", "families/glm4", "families/gemma2", "families/gemma3",
           "families/gpt_oss", "families/glm4_moe", "families/minimax_m2", "families/seed_oss", "families/ernie4_5",
           "families/exaone4", "families/mistral3", "families/ministral3", "families/smollm3_fourth",
           "families/qwen3_5", "families/qwen3_5_moe", "families/qwen3_next"]
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "phi3": "phi3", "olmo2": "olmo2",
                 "olmo3": "olmo2", "granite": "granite", "glm4": "glm4", "gemma2": "gemma2", "gemma3_text": "gemma3",
                 "gpt_oss": "gpt-oss", "ministral3": "mistral3", "smollm3": "smollm3", "glm4_moe": "glm4moe", "minimax_m2": "minimax-m2",
                 "seed_oss": "seed_oss", "ernie4_5": "ernie4_5", "hunyuan_v1_dense": "hunyuan-dense", "llama4_text": "llama4", "gemma4_text": "gemma4", "exaone4": "exaone4", "cohere2": "cohere2", "qwen3_5_text": "qwen35",
                 "qwen3_5_moe_text": "qwen35moe", "qwen3_next": "qwen3next"}
PERMUTED = ("llama", "granite", "mistral3", "smollm3")
TYPES = {"F32": (0, 4), "F16": (1, 2), "BF16": (30, 2)}
NORMS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2"}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
         "router.proj": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
         "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
         "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down",
         "feed_forward.router": "ffn_gate_inp", "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
         "feed_forward.shared_expert.up_proj": "ffn_up_shexp", "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
         "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
         "mlp.shared_experts.down_proj": "ffn_down_shexp",
         "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
         "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
         "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.in_proj_qkvz": "ssm_in",
         "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
         "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out"}


class Tensor:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, shape, data

    def rows(self, order):
        size = len(self.data) // self.shape[0]
        return Tensor(self.dtype, [len(order), *self.shape[1:]], b"".join(self.data[i * size:(i + 1) * size] for i in order))

    def floats(self):
        number, size = TYPES[self.dtype]
        n = len(self.data) // size
        if self.dtype == "BF16":
            return [struct.unpack("<f", b"\0\0" + self.data[2 * i:2 * i + 2])[0] for i in range(n)]
        return list(struct.unpack(f"<{n}{'f' if size == 4 else 'e'}", self.data))


def read(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + n]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = Tensor(entry["dtype"], entry["shape"], data[8 + n + begin:8 + n + end])
    return tensors


def interleave(tensor, heads):
    """Pair (j, j + d/2) of a head as neighbours."""
    d = tensor.shape[0] // heads
    return tensor.rows([h * d + j + side * (d // 2) for h in range(heads) for j in range(d // 2) for side in (0, 1)])


def plain(values, shape):
    return Tensor("F32", shape, struct.pack(f"<{len(values)}f", *values))


def rope_factors(rope, theta, head_dim):
    """Llama 3's scaling as a factor for each pair."""
    out = []
    for i in range(head_dim // 2):
        wave = 2 * 3.141592653589793 * theta ** (2 * i / head_dim)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = (rope["original_max_position_embeddings"] / wave - low) / (high - low)
        smooth = min(1.0, max(0.0, smooth))
        out.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return out


def experts_of(config):
    return config.get("n_routed_experts") or config.get("num_experts") or config.get("num_local_experts")


def stacked(tensors, layer, model_type, config):
    """The experts of a layer, one tensor for each projection."""
    base = f"model.layers.{layer}.mlp.experts."
    n, out = experts_of(config), []
    if model_type == "llama4_text":
        for name, parts in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
            both = tensors.pop(f"model.layers.{layer}.feed_forward.experts.{name}")
            (inputs, outputs), size = both.shape[1:], TYPES[both.dtype][1]
            rows = outputs // len(parts)
            for side, part in enumerate(parts):
                data = b"".join(both.data[((e * inputs + i) * outputs + side * rows + o) * size:][:size] for e in range(n)
                                for o in range(rows) for i in range(inputs))
                out.append((f"ffn_{part}_exps.weight", Tensor(both.dtype, [n, rows, inputs], data)))
        return out
    if model_type == "gemma4_text":
        return [(f"ffn_{part}_exps.weight", tensors.pop(f"model.layers.{layer}.experts.{part}_proj")) for part in ("gate_up", "down")]
    if model_type == "qwen3_5_moe_text":
        both, down = tensors.pop(base + "gate_up_proj"), tensors.pop(base + "down_proj")
        half = len(both.data) // (2 * n)
        for side, part in enumerate(("gate", "up")):
            out.append((f"ffn_{part}_exps.weight", Tensor(both.dtype, [n, both.shape[1] // 2, both.shape[2]], b"".join(
                both.data[(2 * e + side) * half:][:half] for e in range(n)))))
        return [*out, ("ffn_down_exps.weight", down)]
    if model_type != "gpt_oss":
        minimax = model_type == "minimax_m2"
        for part in ("gate", "up", "down"):
            name = {"gate": "w1", "up": "w3", "down": "w2"}[part] if minimax else f"{part}_proj"
            from_ = base.replace("mlp", "block_sparse_moe") if minimax else base
            each = [tensors.pop(f"{from_}{e}.{name}.weight") for e in range(n)]
            out.append((f"ffn_{part}_exps.weight", Tensor(each[0].dtype, [n, *each[0].shape], b"".join(t.data for t in each))))
        return out
    for name, parts in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
        all_, bias = tensors.pop(base + name), tensors.pop(base + name + "_bias")
        inputs, outputs = all_.shape[1:]
        size, step = TYPES[all_.dtype][1], len(parts)
        for side, part in enumerate(parts):
            data = b"".join(all_.data[((e * inputs + i) * outputs + o) * size:][:size] for e in range(n)
                            for o in range(side, outputs, step) for i in range(inputs))
            values = bias.floats()
            out.append((f"ffn_{part}_exps.weight", Tensor(all_.dtype, [n, outputs // step, inputs], data)))
            out.append((f"ffn_{part}_exps.bias", plain([values[e * outputs + o] for e in range(n) for o in range(side, outputs, step)],
                                                       [n, outputs // step])))
    return out


def recurrent(config, name, tensor):
    """A tensor of a layer with a state: rates, and value heads one of each key head after the other."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    width, first = config["linear_value_head_dim"], 2 * keys * config["linear_key_head_dim"]
    heads = [h * (values // keys) + i for i in range(values // keys) for h in range(keys)]
    wide = [h * width + j for h in heads for j in range(width)]
    if config["model_type"] == "qwen3_next":  # its value heads stay as they are
        heads, wide = list(range(values)), list(range(values * width))
    if name in ("in_proj_b", "in_proj_a", "A_log", "dt_bias"):
        tensor = tensor.rows(heads)
    elif name == "in_proj_z":
        tensor = tensor.rows(wide)
    elif name in ("in_proj_qkv", "conv1d"):
        tensor = tensor.rows([*range(first), *(first + i for i in wide)])
    elif name == "out_proj":
        size = len(tensor.data) // (tensor.shape[0] * tensor.shape[1])
        cut = [tensor.data[i * size:(i + 1) * size] for i in range(tensor.shape[0] * tensor.shape[1])]
        tensor = Tensor(tensor.dtype, tensor.shape, b"".join(cut[r * len(wide) + c] for r in range(tensor.shape[0]) for c in wide))
    if name == "conv1d":
        tensor = Tensor(tensor.dtype, [tensor.shape[0], tensor.shape[2]], tensor.data)
    return plain([-math.exp(x) for x in tensor.floats()], tensor.shape) if name == "A_log" else tensor


def sorted_rows(config, tensor):
    """The projections of Qwen3-Next's key heads: the rows of q, of k, of v of all heads, and those of their gates."""
    keys, width = config["linear_num_key_heads"], config["linear_key_head_dim"]
    own = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    ends = [0, width, 2 * width, 2 * width + own, 2 * width + 2 * own]
    parts = [[h * ends[4] + i for h in range(keys) for i in range(ends[part], ends[part + 1])] for part in range(4)]
    return tensor.rows(sum(parts[:3], [])), tensor.rows(parts[3])


def convert(folder, whole=False):
    config, tensors = json.loads((folder / "config.json").read_text()), read(folder)
    if config["model_type"] in ("mistral3", "llama4"):  # the language model alone
        config = config["text_config"]
        tensors = {name.replace("language_model.model.", "model.").replace("model.language_model.", "model.")
                   .replace("language_model.lm_head", "lm_head"): tensor for name, tensor in tensors.items()
                   if "vision" not in name and "projector" not in name}
    model_type = config["model_type"]
    arch, out = ARCHITECTURES[model_type], []
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    theta = config.get("rope_theta") or rope.get("rope_theta", 1e4)
    if rope.get("alpha"):  # a base of its own, as the converter writes it
        width = config["head_dim"]
        theta, rope = theta * rope["alpha"] ** (width / (width - 2)), {}
    heads, kv = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    plus = 1.0 if model_type.startswith(("gemma2", "gemma3", "qwen3_5", "qwen3_next")) else 0.0
    for layer in range(config["num_hidden_layers"]):
        if any(f"model.layers.{layer}.{name}.weight" in tensors for name in ("mlp.gate", "mlp.router", "block_sparse_moe.gate", "feed_forward.router", "router.proj")):
            out += [(f"blk.{layer}.{name}", t) for name, t in stacked(tensors, layer, model_type, config)]
    for name, tensor in tensors.items():
        if name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"):
            if name == "lm_head.weight" and config.get("tie_word_embeddings"):
                continue
            gguf = {"model.e": "token_embd.weight", "model.n": "output_norm.weight", "lm_head": "output.weight"}[name[:7]]
        elif "layers" not in name:
            gguf = {"embed_tokens_per_layer": "per_layer_token_embd", "per_layer_model_projection": "per_layer_model_proj",
                    "per_layer_projection_norm": "per_layer_proj_norm"}[name.split(".")[1]] + ".weight"
        else:
            _, _, layer, rest = name.split(".", 3)
            own, _, suffix = rest.rpartition(".")
            if rest.startswith("linear_attn"):
                tensor = recurrent(config, rest.split(".")[1], tensor)
            if own == "linear_attn.in_proj_qkvz" and not whole:
                qkv, tensor = sorted_rows(config, tensor)
                out.append((f"blk.{layer}.attn_qkv.weight", qkv))
                own = "linear_attn.in_proj_z"
            if rest in ("router.scale", "router.per_expert_scale"):
                gguf = f"blk.{layer}.{'ffn_gate_inp' if rest == 'router.scale' else 'ffn_down_exps'}.scale"
            elif rest == "layer_scalar":
                gguf = f"blk.{layer}.layer_output_scale.weight"
            elif rest.endswith(("A_log", "dt_bias")):
                gguf = f"blk.{layer}.{'ssm_a' if rest.endswith('A_log') else 'ssm_dt.bias'}"
            elif rest == "self_attn.sinks":
                gguf = f"blk.{layer}.attn_sinks.weight"
            elif rest.endswith("e_score_correction_bias"):
                gguf = f"blk.{layer}.exp_probs_b.bias"
            elif own in NORMS:
                after = model_type in ("gemma2", "gemma3_text", "gemma4_text", "olmo2", "olmo3", "exaone4") or (
                    model_type in ("gpt_oss", "glm4_moe", "seed_oss", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next") and own == "post_attention_layernorm")
                short = "post_attention_norm" if after and own == "post_attention_layernorm" else NORMS[own]
                gguf = f"blk.{layer}.{short}.{suffix}"
            else:
                gguf = f"blk.{layer}.{NAMES[own]}.{suffix}"
            if arch in PERMUTED and own in ("self_attn.q_proj", "self_attn.k_proj"):
                tensor = interleave(tensor, heads if own[10] == "q" else kv)
        if name.endswith("shared_expert_gate.weight"):
            tensor = Tensor(tensor.dtype, tensor.shape[1:], tensor.data)
        if len(tensor.shape) == 1:
            add = plus if "norm" in gguf and "ssm" not in gguf else 0.0
            tensor = plain([x + add for x in tensor.floats()], tensor.shape)
        out.append((gguf, tensor))
    meta = [("general.architecture", STRING, arch)]

    def put(key, kind, data):
        meta.append((f"{arch}.{key}", kind, data))

    put("block_count", U32, config["num_hidden_layers"])
    if "linear_num_key_heads" in config:
        # A block more, which predicts further tokens.
        put("nextn_predict_layers", U32, 1)
        meta[1] = (f"{arch}.block_count", U32, config["num_hidden_layers"] + 1)
        out.append((f"blk.{config['num_hidden_layers']}.nextn.enorm.weight", plain([1.0] * 4, [4])))
        put("ssm.conv_kernel", U32, config["linear_conv_kernel_dim"])
        put("ssm.state_size", U32, config["linear_key_head_dim"])
        put("ssm.group_count", U32, config["linear_num_key_heads"])
        put("ssm.time_step_rank", U32, config["linear_num_value_heads"])
        put("ssm.inner_size", U32, config["linear_num_value_heads"] * config["linear_value_head_dim"])
        put("attention.recurrent_layers", BOOL, [each == "linear_attention" for each in config["layer_types"]] + [False])
    put("context_length", U32, config["max_position_embeddings"])
    put("embedding_length", U32, config["hidden_size"])
    if "intermediate_size" in config:
        put("feed_forward_length", U32, config.get("intermediate_size_mlp") or config["intermediate_size"])
    if "interleave_moe_layer_step" in config:
        put("interleave_moe_layer_step", U32, config["interleave_moe_layer_step"])
    put("attention.head_count", U32, heads)
    mixed = config.get("per_layer_config")
    if mixed:
        full = next(iter(mixed.values()))
        last = config["num_hidden_layers"] - config["num_kv_shared_layers"]
        meta[:] = [line for line in meta if line[0] != f"{arch}.feed_forward_length"]
        put("feed_forward_length", I32, [config["intermediate_size"] * (2 if i >= last and config["use_double_wide_mlp"] else 1)
                                         for i in range(config["num_hidden_layers"])])
        put("attention.head_count_kv", I32, [full.get("num_key_value_heads", kv) if each == "full_attention" else kv for each in config["layer_types"]])
        put("attention.key_length_swa", U32, head_dim)
        put("rope.dimension_count_swa", U32, head_dim)
        head_dim = full["head_dim"]
        put("attention.shared_kv_layers", U32, config["num_kv_shared_layers"])
        put("embedding_length_per_layer_input", U32, config["hidden_size_per_layer_input"])
        turning = int(rope["partial_rotary_factor"] * head_dim / 2)
        out.append(("rope_freqs.weight", plain([1.0] * turning + [1e30] * (head_dim // 2 - turning), [head_dim // 2])))
    else:
        put("attention.head_count_kv", U32, kv)
    put("attention.key_length", U32, head_dim)
    put("attention.value_length", U32, head_dim)
    if model_type == "cohere2":
        put("attention.layer_norm_epsilon", F32, config["layer_norm_eps"])
    else:
        put("attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"])
    put("rope.freq_base", F32, theta)
    partial = 1.0 if mixed else config.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1.0
    put("rope.dimension_count", U32, int(head_dim * partial))
    if experts_of(config):
        put("expert_count", U32, experts_of(config))
        put("expert_used_count", U32, config.get("top_k_experts") or config["num_experts_per_tok"])
        put("expert_feed_forward_length", U32, config.get("moe_intermediate_size") or config["intermediate_size"])
    if model_type in ("glm4_moe", "minimax_m2"):
        put("expert_gating_func", U32, 2)
    for key, name in (("expert_shared_feed_forward_length", "shared_expert_intermediate_size"), ("expert_shared_count", "n_shared_experts"), ("leading_dense_block_count", "first_k_dense_replace"),
                      ("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group")):
        if name in config:
            put(key, U32, config[name])
    if "routed_scaling_factor" in config:
        put("expert_weights_scale", F32, config["routed_scaling_factor"])
        put("expert_weights_norm", BOOL, config["norm_topk_prob"])
    if config.get("sliding_window") and model_type not in ("qwen2", "qwen3", "qwen3_moe"):
        put("attention.sliding_window", U32, config["sliding_window"])
        if model_type in ("gemma2", "gemma3_text", "gemma4_text", "gpt_oss", "olmo3", "exaone4", "cohere2"):
            put("attention.sliding_window_pattern", BOOL, [each == "sliding_attention" for each in config["layer_types"]])
    for key, name in (("attn_logit_softcapping",) * 2, ("final_logit_softcapping",) * 2, ("embedding_scale", "embedding_multiplier"),
                      ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling"), ("logit_scale",) * 2,
                      ("attention.scale", "attention_multiplier")):
        if config.get(name):
            put(key, F32, config[name])
    if "query_pre_attn_scalar" in config:
        put("attention.scale", F32, config["query_pre_attn_scalar"] ** -0.5)
    if model_type in ("gemma3_text", "gemma4_text"):
        sliding = (config.get("rope_parameters") or {}).get("sliding_attention", {})
        put("rope.freq_base_swa", F32, config.get("rope_local_base_freq") or sliding.get("rope_theta", 1e4))
    kind = rope.get("rope_type") or rope.get("type") or "default"
    kind = "longrope" if "short_factor" in rope else kind
    if kind in ("linear", "yarn"):
        put("rope.scaling.type", STRING, kind)
        put("rope.scaling.factor", F32, rope["factor"])
        if kind == "yarn":
            put("rope.scaling.original_context_length", U32, rope["original_max_position_embeddings"])
            put("rope.scaling.yarn_beta_fast", F32, rope["beta_fast"])
            put("rope.scaling.yarn_beta_slow", F32, rope["beta_slow"])
        if model_type == "ministral3":
            put("rope.scaling.yarn_log_multiplier", F32, rope["mscale_all_dim"])
            put("attention.temperature_scale", F32, rope["llama_4_scaling_beta"])
    elif kind == "llama3":
        out.append(("rope_freqs.weight", plain(rope_factors(rope, theta, head_dim), [head_dim // 2])))
    elif kind == "longrope":
        original = config.get("original_max_position_embeddings") or rope["original_max_position_embeddings"]
        scale = rope.get("factor") or config["max_position_embeddings"] / original
        put("rope.scaling.original_context_length", U32, original)
        put("rope.scaling.attn_factor", F32, rope.get("attention_factor") or (
            math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0))
        for which in ("short", "long"):
            out.append((f"rope_factors_{which}.weight", plain(rope[f"{which}_factor"], [len(rope[f"{which}_factor"])])))
    for name in ("bos", "eos"):
        if isinstance(config.get(f"{name}_token_id"), int):
            meta.append((f"tokenizer.ggml.{name}_token_id", U32, config[f"{name}_token_id"]))
    return meta, [(name, t.shape, TYPES[t.dtype][0], t.data) for name, t in out]


def quantise(values):
    """Q8_0, and what it stands for."""
    blocks, back = b"", []
    for i in range(0, len(values), 32):
        part = values[i:i + 32]
        scale = struct.unpack("<e", struct.pack("<e", max(map(abs, part)) / 127))[0]
        q = [max(-127, min(127, round(x / scale))) if scale else 0 for x in part]
        blocks += struct.pack("<e32b", scale, *q)
        back += [scale * x for x in q]
    return blocks, struct.pack(f"<{len(back)}f", *back)


def floats(number, data):
    name = next(name for name, (each, _) in TYPES.items() if each == number)
    return Tensor(name, [], data).floats()


def in_blocks(tensors):
    """Matrices whose rows are whole blocks in Q8_0."""
    return [(name, shape, 8, quantise(floats(number, data))[0]) if len(shape) > 1 and shape[-1] % 32 == 0
            else (name, shape, number, data) for name, shape, number, data in tensors]


def main():
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    blocks, whole = names[:1] == ["--blocks"], names[:1] == ["--whole"]
    for name in names[blocks or whole:] or FOLDERS:
        os.makedirs(out, exist_ok=True)
        meta, tensors = convert(GOLDEN / name, whole)
        write(out / (name.replace("/", "-") + ".gguf"), meta, in_blocks(tensors) if blocks else tensors)


if __name__ == "__main__":
    main()

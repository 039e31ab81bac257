"""Write a Llama folder of random weights for bench_prefill: make_model.py FOLDER HEAD_DIM [LAYERS].

4 query and 2 KV heads of HEAD_DIM, hidden 4 * HEAD_DIM, BF16. Needs numpy only.
"""

import json
import os
import sys

import numpy as np


def main():
    folder, head_dim = sys.argv[1], int(sys.argv[2])
    layers = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    hidden, middle, vocab = 4 * head_dim, 10 * head_dim, 2048
    rng = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes[at + "input_layernorm.weight"] = (hidden,)
        shapes[at + "post_attention_layernorm.weight"] = (hidden,)
        shapes[at + "self_attn.q_proj.weight"] = (hidden, hidden)
        shapes[at + "self_attn.k_proj.weight"] = (hidden // 2, hidden)
        shapes[at + "self_attn.v_proj.weight"] = (hidden // 2, hidden)
        shapes[at + "self_attn.o_proj.weight"] = (hidden, hidden)
        shapes[at + "mlp.gate_proj.weight"] = (middle, hidden)
        shapes[at + "mlp.up_proj.weight"] = (middle, hidden)
        shapes[at + "mlp.down_proj.weight"] = (hidden, middle)
    header, blobs, offset = {}, [], 0
    for name, shape in shapes.items():
        values = np.ones(shape) if len(shape) == 1 else rng.normal(0, shape[1] ** -0.5, shape)
        bits = (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [offset, offset + len(bits)],
        }
        offset += len(bits)
        blobs.append(bits)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(blobs))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": middle,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)


main()

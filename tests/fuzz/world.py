#!/usr/bin/env python3
"""world.py FOLDER: model/, a Llama of random weights with the tokenizer of the bundled model, and
corpus/, the beginning of a few books of the sample, for hostile.py and kills.py."""

import json
import os
import random
import shutil
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def write_model(folder):
    """A Llama folder with random weights; the tokenizer is that of the bundled model."""
    os.makedirs(folder)
    shutil.copy(ROOT + "/data/reference/tokenizer.json", folder)
    vocab, hidden, heads, kv, head, mlp = 2560, 16, 2, 1, 16, 16
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
              "hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": 1,
              "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": head,
              "max_position_embeddings": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
              "vocab_size": vocab, "tie_word_embeddings": True, "torch_dtype": "float32",
              "bos_token_id": 2558, "eos_token_id": 2559}
    with open(folder + "/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    with open(folder + "/generation_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": [2559]}, file)
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for name, shape in {"input_layernorm": [hidden], "post_attention_layernorm": [hidden],
                        "self_attn.q_proj": [heads * head, hidden], "self_attn.k_proj": [kv * head, hidden],
                        "self_attn.v_proj": [kv * head, hidden], "self_attn.o_proj": [hidden, heads * head],
                        "mlp.gate_proj": [mlp, hidden], "mlp.up_proj": [mlp, hidden],
                        "mlp.down_proj": [hidden, mlp]}.items():
        shapes[f"model.layers.0.{name}.weight"] = shape
    draw, header, blobs, at = random.Random(1), {}, [], 0
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        blobs.append(struct.pack(f"<{n}f", *(draw.gauss(0.0, 1.0) for _ in range(n))))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * n]}
        at += 4 * n
    text = json.dumps(header).encode()
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def make(world):
    os.makedirs(world + "/corpus")
    write_model(world + "/model")
    for name in sorted(os.listdir(ROOT + "/data/sample/test"))[:3]:
        with open(f"{ROOT}/data/sample/test/{name}", "rb") as file:
            text = file.read(6000)
        with open(f"{world}/corpus/{name}", "wb") as file:
            file.write(text)


if __name__ == "__main__":
    make(sys.argv[1])

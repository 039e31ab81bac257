#!/usr/bin/env python3
"""tiny_model.py TOKENIZER_JSON OUT_DIR [KIND]: a Llama folder with random weights (seed 1), one layer
wide enough for nothing but fast tests; no packages needed. KIND nan: a weight is not a number; KIND
shared: heads that two processes can share; KIND tensor: a bfloat16 head of 64, which
tensor cores have kernels for; KIND huge: the configuration of a 70B model without any
weights."""

import array
import json
import os
import random
import shutil
import struct
import sys

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 2560, 16, 2, 1, 16, 16


def main():
    tokenizer, out = sys.argv[1:3]
    kind = sys.argv[3] if len(sys.argv) > 3 else ""
    heads, kv_heads, head_dim = {"shared": (4, 2, HEAD_DIM), "tensor": (1, 1, 64)}.get(kind, (HEADS, KV_HEADS, HEAD_DIM))
    os.makedirs(out)
    shutil.copyfile(tokenizer, os.path.join(out, "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": 1,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "max_position_embeddings": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB, "tie_word_embeddings": True, "torch_dtype": "float32",
    }
    if kind == "huge":
        config.update(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, vocab_size=128256,
                      num_attention_heads=64, num_key_value_heads=8, head_dim=128,
                      max_position_embeddings=8192, tie_word_embeddings=False, torch_dtype="bfloat16")
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
    if kind == "huge":
        return
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        layer + "input_layernorm.weight": (HIDDEN,),
        layer + "post_attention_layernorm.weight": (HIDDEN,),
        layer + "self_attn.q_proj.weight": (heads * head_dim, HIDDEN),
        layer + "self_attn.k_proj.weight": (kv_heads * head_dim, HIDDEN),
        layer + "self_attn.v_proj.weight": (kv_heads * head_dim, HIDDEN),
        layer + "self_attn.o_proj.weight": (HIDDEN, heads * head_dim),
        layer + "mlp.gate_proj.weight": (MLP, HIDDEN),
        layer + "mlp.up_proj.weight": (MLP, HIDDEN),
        layer + "mlp.down_proj.weight": (HIDDEN, MLP),
    }
    random.seed(1)
    header, blobs, at = {}, [], 0
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (random.gauss(0.0, 1.0) for _ in range(n)))
        if kind == "nan" and name.endswith("v_proj.weight"):
            values[0] = float("nan")
        if sys.byteorder == "big":
            values.byteswap()
        blob, dtype = values.tobytes(), "F32"
        if kind == "tensor":  # the upper halves
            blob, dtype = b"".join(blob[i + 2:i + 4] for i in range(0, 4 * n, 4)), "BF16"
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


main()

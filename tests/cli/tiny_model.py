#!/usr/bin/env python3
"""tiny_model.py TOKENIZER_JSON OUT_DIR: a Llama folder with random weights (seed 1), one layer wide
enough for nothing but fast tests; no packages needed."""

import array
import json
import os
import random
import shutil
import struct
import sys

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 2560, 16, 2, 1, 16, 16


def main():
    tokenizer, out = sys.argv[1:]
    os.makedirs(out)
    shutil.copyfile(tokenizer, os.path.join(out, "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "max_position_embeddings": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB, "tie_word_embeddings": True, "torch_dtype": "float32",
    }
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        layer + "input_layernorm.weight": (HIDDEN,),
        layer + "post_attention_layernorm.weight": (HIDDEN,),
        layer + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
        layer + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        layer + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        layer + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        layer + "mlp.gate_proj.weight": (MLP, HIDDEN),
        layer + "mlp.up_proj.weight": (MLP, HIDDEN),
        layer + "mlp.down_proj.weight": (HIDDEN, MLP),
    }
    random.seed(1)
    header, blobs, at = {}, [], 0
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (random.gauss(0.0, 1.0) for _ in range(n)))
        if sys.byteorder == "big":
            values.byteswap()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * n]}
        blobs.append(values.tobytes())
        at += 4 * n
    text = json.dumps(header).encode()
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


main()

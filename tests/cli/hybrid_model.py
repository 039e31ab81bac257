#!/usr/bin/env python3
"""hybrid_model.py REFERENCE OUT_DIR [NAME [SHAPE]]: a Qwen3.5 folder with random weights (seed 3), two recurrent layers and two of attention, and the
tokenizer of REFERENCE; no packages needed. NAME: a tensor that is left out, or has this shape (A,B,...)."""

import array
import json
import os
import random
import shutil
import struct
import sys

HIDDEN, MLP, LAYERS, HEADS, KV_HEADS, DIM, VOCAB = 32, 48, 4, 4, 2, 32, 2560
KEYS, VALUES, WIDE, WIDTH = 2, 4, 16, 4
CONFIG = {
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "vocab_size": VOCAB, "hidden_size": HIDDEN,
    "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "silu",
    "full_attention_interval": 2, "linear_conv_kernel_dim": WIDTH, "linear_key_head_dim": WIDE, "linear_value_head_dim": WIDE,
    "linear_num_key_heads": KEYS, "linear_num_value_heads": VALUES, "bos_token_id": 2558, "eos_token_id": 2559, "dtype": "float32",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2]},
}


def shapes():
    channels = (2 * KEYS + VALUES) * WIDE
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN), 1.0
    yield "model.norm.weight", (HIDDEN,), 0.1
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{norm}.weight", (HIDDEN,), 0.1
        for name, shape in (("gate", (MLP, HIDDEN)), ("up", (MLP, HIDDEN)), ("down", (HIDDEN, MLP))):
            yield f"{layer}mlp.{name}_proj.weight", shape, shape[1] ** -0.5
        if i % 2 == 1:
            own = (("q_proj", (2 * HEADS * DIM, HIDDEN)), ("k_proj", (KV_HEADS * DIM, HIDDEN)), ("v_proj", (KV_HEADS * DIM, HIDDEN)),
                   ("o_proj", (HIDDEN, HEADS * DIM)), ("q_norm", (DIM,)), ("k_norm", (DIM,)))
            layer += "self_attn."
        else:
            own = (("in_proj_qkv", (channels, HIDDEN)), ("in_proj_z", (VALUES * WIDE, HIDDEN)), ("in_proj_b", (VALUES, HIDDEN)),
                   ("in_proj_a", (VALUES, HIDDEN)), ("out_proj", (HIDDEN, VALUES * WIDE)), ("conv1d", (channels, 1, WIDTH)),
                   ("norm", (WIDE,)), ("A_log", (VALUES,)), ("dt_bias", (VALUES,)))
            layer += "linear_attn."
        for name, shape in own:
            yield layer + name + ("" if name in ("A_log", "dt_bias") else ".weight"), shape, shape[-1] ** -0.5


def main():
    reference, out, *other = sys.argv[1:]
    os.makedirs(out)
    for name in ("tokenizer.json", "generation_config.json"):
        shutil.copy(os.path.join(reference, name), out)
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    random.seed(3)
    header, blobs, at = {}, [], 0
    for name, shape, size in shapes():
        if other and name == other[0]:
            if len(other) == 1:
                continue
            shape = tuple(int(side) for side in other[1].split(","))
        n = 1
        for side in shape:
            n *= side
        blobs.append(array.array("f", (random.gauss(0.0, size) for _ in range(n))).tobytes())
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * n]}
        at += 4 * n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


if __name__ == "__main__":
    main()

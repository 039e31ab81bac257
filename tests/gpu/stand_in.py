"""stand_in.py SHAPE MODEL OUT [tiny]: a model folder of the shape of smollm2-135m or gemma-3-270m, with random weights in bfloat16
and the tokenizer of the folder MODEL, since the real weights are larger than what travels to a lent card. It finds nothing, but
takes as long as the real one. tiny: of two layers, and narrow."""
import json
import os
import random
import shutil
import struct
import sys

SHAPES = {
    "smollm2-135m": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 576,
        "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "max_position_embeddings": 8192, "rope_theta": 100000.0, "rms_norm_eps": 1e-5, "vocab_size": 49152},
    "gemma-3-270m": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "sliding_window": 512, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6, "vocab_size": 262144},
}
TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "sliding_window": 32,
        "sliding_window_pattern": 2, "vocab_size": 2560}


def tensors(c):
    """name → shape."""
    h, d, wide = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    gemma = c["model_type"] == "gemma3_text"
    found = {"model.embed_tokens.weight": [c["vocab_size"], h], "model.norm.weight": [h]}
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows, columns in (("self_attn.q_proj", c["num_attention_heads"] * d, h),
                                    ("self_attn.k_proj", c["num_key_value_heads"] * d, h),
                                    ("self_attn.v_proj", c["num_key_value_heads"] * d, h),
                                    ("self_attn.o_proj", h, c["num_attention_heads"] * d),
                                    ("mlp.gate_proj", wide, h), ("mlp.up_proj", wide, h), ("mlp.down_proj", h, wide)):
            found[f"{at}{name}.weight"] = [rows, columns]
        for name in ("input_layernorm", "post_attention_layernorm") + ("pre_feedforward_layernorm",
                                                                       "post_feedforward_layernorm") * gemma:
            found[f"{at}{name}.weight"] = [h]
        for name in ("q_norm", "k_norm") * gemma:
            found[f"{at}self_attn.{name}.weight"] = [d]
    return found


def main(shape, model, out, tiny):
    config = {**SHAPES[shape], "torch_dtype": "bfloat16", "tie_word_embeddings": True}
    with open(os.path.join(model, "config.json")) as file:
        own = json.load(file)
    config.update({key: own[key] for key in ("bos_token_id", "eos_token_id")})
    config.update({key: value for key, value in TINY.items() if tiny and key in config})
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    shutil.copyfile(os.path.join(model, "tokenizer.json"), os.path.join(out, "tokenizer.json"))
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump(config, file)
    header, end = {}, 0
    for name, sizes in tensors(config).items():
        n = 2 * sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [end, end + n]}
        end += n
    draw = random.Random(1)
    # A million weights, ± 2^-7 to 2^-4 (bytes of bfloat16: mantissa, then sign and exponent), drawn from anew at every tensor.
    drawn = bytearray(draw.randbytes(2 << 20))
    drawn[1::2] = bytes(draw.choice((0x3c, 0x3d, 0xbc, 0xbd)) for _ in range(1 << 20))
    text = json.dumps(header).encode()
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            n = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1:
                # Gemma's norms add one.
                file.write((b"\0\0" if config["model_type"] == "gemma3_text" else b"\x80\x3f") * (n // 2))
                continue
            while n > 0:
                first = 2 * draw.randrange(1 << 20)
                n -= file.write(drawn[first:first + n])


if len(sys.argv) < 4 or sys.argv[1] not in SHAPES:
    sys.exit(__doc__)
main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:] == ["tiny"])

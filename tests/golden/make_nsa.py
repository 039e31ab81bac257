#!/usr/bin/env python3
"""Make the golden model of NSA: a random Hugging Face folder as fla-org/flash-linear-attention names its parts, and its logits.

    python make_nsa.py [OUT_DIR]     (default: families/nsa beside this script)

Needs numpy. The logits are computed here from the definition of the released layer (its prefill; its decoding keeps the window alone),
in double (oracle.f32) and in single precision (logits.f32). Everything is seeded."""

import json
import pathlib
import struct
import sys

import numpy as np

HIDDEN, HEADS, KV_HEADS, HEAD, MLP, LAYERS, VOCAB, N = 32, 32, 2, 8, 24, 2, 64, 64
BLOCK, COUNT, WINDOW, THETA, EPS = 4, 8, 6, 10000.0, 1e-5


def to_bf16(x):
    """Rounded to the nearest, as bits; and the numbers that these are."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return bits.astype(np.uint16), (bits.astype(np.uint32) << 16).view(np.float32)


def shapes():
    yield "model.embeddings.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        for name, shape in (("attn_norm.weight", (HIDDEN,)), ("attn.q_proj.weight", (HEADS * HEAD, HIDDEN)),
                            ("attn.q_proj.bias", (HEADS * HEAD,)), ("attn.k_proj.weight", (KV_HEADS * HEAD, HIDDEN)),
                            ("attn.k_proj.bias", (KV_HEADS * HEAD,)), ("attn.v_proj.weight", (KV_HEADS * HEAD, HIDDEN)),
                            ("attn.v_proj.bias", (KV_HEADS * HEAD,)), ("attn.g_proj.weight", (HEADS * 3, HIDDEN)),
                            ("attn.o_proj.weight", (HIDDEN, HEADS * HEAD)), ("mlp_norm.weight", (HIDDEN,)),
                            ("mlp.gate_proj.weight", (MLP, HIDDEN)), ("mlp.up_proj.weight", (MLP, HIDDEN)),
                            ("mlp.down_proj.weight", (HIDDEN, MLP))):
            yield f"model.layers.{i}.{name}", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def weights(rng):
    bits, numbers = {}, {}
    for name, shape in shapes():
        if name.endswith("norm.weight"):
            x = 1.0 + 0.2 * rng.standard_normal(shape)
        elif name.endswith("bias"):
            x = 0.3 * rng.standard_normal(shape)
        else:
            x = rng.standard_normal(shape) * (2.0 if "q_proj" in name or "k_proj" in name else 1.0) / np.sqrt(shape[-1])
        bits[name], numbers[name] = to_bf16(x)
    return bits, numbers


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def rotate(x, dtype):
    """[n][heads][HEAD], pairs j and j + HEAD/2."""
    angle = np.outer(np.arange(len(x)), THETA ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float32)
    c, s = np.cos(angle).astype(dtype)[:, None], np.sin(angle).astype(dtype)[:, None]
    a, b = x[..., :HEAD // 2], x[..., HEAD // 2:]
    return np.concatenate((a * c - b * s, b * c + a * s), axis=-1)


def attend(q, k, v, gates, margins):
    """q [n][HEADS][HEAD], k and v [n][KV_HEADS][HEAD], gates [n][HEADS][3]: compressed, chosen, windowed."""
    scale, group = HEAD ** -0.5, HEADS // KV_HEADS
    out = np.zeros_like(q)
    complete = len(k) // BLOCK
    mean_k = k[:complete * BLOCK].reshape(complete, BLOCK, KV_HEADS, HEAD).mean(axis=1)
    mean_v = v[:complete * BLOCK].reshape(complete, BLOCK, KV_HEADS, HEAD).mean(axis=1)
    for t in range(len(q)):
        n, own = (t + 1) // BLOCK, t // BLOCK
        for g in range(KV_HEADS):
            heads = range(g * group, (g + 1) * group)
            p = {h: softmax(scale * mean_k[:n, g] @ q[t, h]) if n > 0 else np.zeros(0, q.dtype) for h in heads}
            forced = {0, max(own - 1, 0), own}
            others = [b for b in range(own) if b not in forced]
            score = {b: sum(float(p[h][b]) for h in heads) for b in others}
            others.sort(key=lambda b: -score[b])
            left = COUNT - len(forced)
            if len(others) > left:
                margins.append(score[others[left - 1]] - score[others[left]])
            blocks = sorted(forced | set(others[:left]))
            keys = [j for b in blocks for j in range(b * BLOCK, (b + 1) * BLOCK) if j <= t]
            near = slice(max(t - WINDOW + 1, 0), t + 1)
            for h in heads:
                parts = (p[h] @ mean_v[:n, g], softmax(scale * k[keys, g] @ q[t, h]) @ v[keys, g],
                         softmax(scale * k[near, g] @ q[t, h]) @ v[near, g])
                out[t, h] = sum(gates[t, h, b] * parts[b] for b in range(3))
    return out


def logits(numbers, tokens, dtype, margins):
    w = {name: x.astype(dtype) for name, x in numbers.items()}
    sigmoid = lambda x: 1.0 / (1.0 + np.exp(-x))
    norm = lambda x, name: x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + dtype(EPS)) * w[name]
    x = w["model.embeddings.weight"][tokens]
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        h = norm(x, at + "attn_norm.weight")
        q, k, v = ((h @ w[f"{at}attn.{c}_proj.weight"].T + w[f"{at}attn.{c}_proj.bias"]).reshape(len(x), -1, HEAD)
                   for c in "qkv")
        gates = sigmoid(h @ w[at + "attn.g_proj.weight"].T).reshape(len(x), HEADS, 3)
        o = attend(rotate(q, dtype), rotate(k, dtype), v, gates, margins)
        x = x + o.reshape(len(x), -1) @ w[at + "attn.o_proj.weight"].T
        h = norm(x, at + "mlp_norm.weight")
        gate = h @ w[at + "mlp.gate_proj.weight"].T
        x = x + (gate * sigmoid(gate) * (h @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ w["lm_head.weight"].T


def good(values):
    """The best token leads clearly at every position."""
    best = np.sort(values, axis=1)
    return (best[:, -1] - best[:, -2]).min() > 2e-3 * (values.max() - values.min())


def make(seed):
    rng = np.random.default_rng(seed)
    bits, numbers = weights(rng)
    tokens = [1] + [int(t) for t in rng.integers(3, VOCAB, N - 1)]
    margins = []
    oracle = logits(numbers, tokens, np.float64, margins)
    return bits, numbers, tokens, oracle, min(margins)


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "families" / "nsa"
    # No choice and no best token that rounding could decide.
    for seed in range(1000):
        bits, numbers, tokens, oracle, margin = make(seed)
        if margin > 1e-4 and good(oracle):
            break
    out.mkdir(parents=True, exist_ok=True)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, x in bits.items():
        header[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [len(data), len(data) + 2 * x.size]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    # head_dim by default, which the first releases of the layer did not read.
    config = {"architectures": ["NSAForCausalLM"], "model_type": "nsa", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
              "num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": 32, "qkv_bias": True, "block_size": BLOCK,
              "block_counts": COUNT, "window_size": WINDOW, "rope_theta": THETA, "max_position_embeddings": 32,
              "hidden_ratio": 4, "intermediate_size": MLP, "hidden_act": "swish", "norm_eps": EPS, "vocab_size": VOCAB,
              "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "tie_word_embeddings": False,
              "elementwise_affine": True, "fuse_norm": True, "fuse_swiglu": True, "torch_dtype": "bfloat16"}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (out / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}) + "\n")
    (out / "tokens.json").write_text(json.dumps(tokens) + "\n")
    single = logits(numbers, tokens, np.float32, [])
    (out / "oracle.f32").write_bytes(oracle.astype("<f4").tobytes())
    (out / "logits.f32").write_bytes(single.astype("<f4").tobytes())
    spread = oracle.max() - oracle.min()
    print(f"seed {seed}: margin {margin:.2g}, single differs from double by {np.abs(single - oracle).max() / spread:.2g} of the spread")


if __name__ == "__main__":
    main()

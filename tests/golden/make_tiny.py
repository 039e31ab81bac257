#!/usr/bin/env python3
"""Make the golden tiny models: random Hugging Face folders and their logits.

    python make_tiny.py [OUT_DIR]        (default: the folder of this script)

Needs torch and transformers (made with torch 2.15, transformers 5.23). Everything is seeded; what
the folders hold and how to read them is in README.md beside this script.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers

N_TOKENS = 40
VOCAB = 64

BASE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
)


def rope(kind, **keys):
    return {"rope_type": kind, "rope_theta": 10000.0, **keys}


def ramp(low, high, n=8):
    return [round(low + (high - low) * i / (n - 1), 4) for i in range(n)]


# name, class of the configuration, its keys, dtype on disk, schema of the rotation in config.json
MODELS = [
    ("llama", "Llama", dict(num_hidden_layers=2, tie_word_embeddings=True), "float32", "new"),
    (
        "llama_bf16",
        "Llama",
        dict(num_hidden_layers=2, attention_bias=True, mlp_bias=True, num_key_value_heads=4),
        "bfloat16",
        "legacy",
    ),
    (
        "llama3",
        "Llama",
        dict(
            num_hidden_layers=2,
            rope_parameters=rope(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
            eos_token_id=[2, 9],
        ),
        "float16",
        "legacy",
    ),
    (
        "mistral",
        "Mistral",
        dict(
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=24,
            sliding_window=None,
            rope_parameters=rope("default", rope_theta=1e6),
        ),
        "bfloat16",
        "legacy",
    ),
    (
        "qwen2",
        "Qwen2",
        dict(
            num_hidden_layers=2,
            head_dim=None,
            tie_word_embeddings=True,
            sliding_window=16,
            use_sliding_window=False,
        ),
        "bfloat16",
        "legacy",
    ),
    (
        "linear",
        "Llama",
        dict(num_hidden_layers=1, rope_parameters=rope("linear", factor=4.0)),
        "bfloat16",
        "old",
    ),
    (
        "dynamic",
        "Llama",
        dict(
            num_hidden_layers=1,
            max_position_embeddings=16,
            rope_parameters=rope("dynamic", factor=4.0),
        ),
        "bfloat16",
        "new",
    ),
    (
        "yarn",
        "Llama",
        dict(
            num_hidden_layers=1,
            rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16,
                                 beta_fast=4.0, beta_slow=1.0),
        ),
        "bfloat16",
        "new",
    ),
    (
        "longrope",
        "Llama",
        dict(
            num_hidden_layers=1,
            rope_parameters=rope(
                "longrope",
                factor=4.0,
                short_factor=ramp(1.0, 1.5),
                long_factor=ramp(1.0, 6.0),
                original_max_position_embeddings=16,
            ),
        ),
        "bfloat16",
        "old",
    ),
    ("sharded", "Llama", dict(num_hidden_layers=1), "mixed", "new"),
]


def fill(model, generator):
    """Random weights of a size at which attention is neither flat nor one-hot."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 1:
                weight.copy_(0.3 * noise + (0.0 if name.endswith("bias") else 1.0))
            elif "q_proj" in name or "k_proj" in name:
                weight.copy_(noise * 2.0 / weight.shape[1] ** 0.5)
            else:
                weight.copy_(noise / weight.shape[1] ** 0.5)


def rewrite_rotation(path, schema):
    """config.json with the rotation as files in the wild have it."""
    config = json.loads(path.read_text())
    if schema != "new":
        parameters = config.pop("rope_parameters")
        config["rope_theta"] = parameters.pop("rope_theta")
        if schema == "old":
            parameters = {"type": parameters.pop("rope_type"), **parameters}
        default = parameters.get("rope_type") == "default"
        config["rope_scaling"] = None if default else parameters
    path.write_text(json.dumps(config, indent=2) + "\n")


def logits_of(folder, tokens, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].double().numpy()


def without_scaling(folder, tokens):
    config = transformers.AutoConfig.from_pretrained(folder)
    config.rope_parameters = rope("default", rope_theta=config.rope_parameters["rope_theta"])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


def least_gap(logits):
    """The smallest difference between the best and the second-best token of a position."""
    top = np.sort(logits, axis=1)
    return (top[:, -1] - top[:, -2]).min()


def draw_tokens(folder, generator):
    """Tokens at which no argmax is so close that rounding could flip it, and their logits."""
    for _ in range(100):
        tokens = torch.randint(3, VOCAB, (N_TOKENS,), generator=generator).tolist()
        tokens[0] = BASE["bos_token_id"]
        oracle = logits_of(folder, tokens, torch.float64)
        if least_gap(oracle) > 1e-3 * (oracle.max() - oracle.min()):
            return tokens, oracle
    raise SystemExit(f"{folder}: no tokens without a close argmax")


def make(out, index, name, family, keys, dtype, schema):
    folder = out / name
    for old in folder.glob("*"):
        old.unlink()
    keys = {key: value for key, value in {**BASE, **keys}.items() if value is not None
            or key == "sliding_window"}
    config = getattr(transformers, family + "Config")(**keys)
    model = getattr(transformers, family + "ForCausalLM")(config)
    generator = torch.Generator().manual_seed(1000 + index)
    fill(model, generator)
    shard_size = "50GB"
    if dtype == "mixed":
        for key, weight in model.named_parameters():
            wide = weight.ndim == 1 or "embed" in key
            weight.data = weight.data.to(torch.float32 if wide else torch.float16)
        shard_size = "12KB"
    else:
        model = model.to(getattr(torch, dtype))
    if name == "llama3":
        model.generation_config.eos_token_id = [9, 5]
    model.save_pretrained(folder, max_shard_size=shard_size)
    rewrite_rotation(folder / "config.json", schema)
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)

    tokens, oracle = draw_tokens(folder, generator)
    plain = logits_of(folder, tokens, torch.float32)
    (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
    plain.astype("<f4").tofile(folder / "logits.f32")
    oracle.astype("<f4").tofile(folder / "oracle.f32")
    spread = oracle.max() - oracle.min()
    error = np.abs(plain - oracle).max() / spread
    bites = np.abs(without_scaling(folder, tokens) - oracle).max() / spread
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name:11} {size:7} bytes  spread {spread:6.2f}  f32 error/spread {error:.1e}  "
          f"scaling changes {bites:.1e}  least top-2 gap/spread "
          f"{least_gap(oracle) / spread:.1e}")
    assert error < 2e-5
    scaled = keys.get("rope_parameters", {"rope_type": "default"})["rope_type"] != "default"
    assert (bites > 0.01) == scaled


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for index, model in enumerate(MODELS):
        make(out, index, *model)


if __name__ == "__main__":
    main()

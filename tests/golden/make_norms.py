#!/usr/bin/env python3
"""Make norms/NAME.f32: the 2-norm profiles that tests/norms/test_norms_golden.c compares ours with.

    python make_norms.py

Needs torch and transformers. Each model runs in float64 over fixed tokens; queries and keys are what
its projections put out, before rotation. A file is raw little-endian float32 [2 rules][layers][query
heads][pairs]: product of means over tokens, then mean of products. Run it again when a model changes.
"""

import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
# The reference model's tokens are arithmetic, so that the test can make them too.
MODELS = {
    "llama": (HERE / "llama", None),
    "qwen2": (HERE / "qwen2", None),
    "reference": (HERE.parents[1] / "data" / "reference", [(37 * i + 11) % 2500 for i in range(150)]),
}


def pair_norms(projected, head_dim):
    """[tokens, heads * head_dim] → [tokens, heads, pairs], pair j being components j and j + half."""
    heads = projected.reshape(projected.shape[0], -1, 2, head_dim // 2)
    return heads.pow(2).sum(dim=2).sqrt()


def profile(folder, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager").eval()
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads
    seen = {}

    def keep(name):
        def hook(module, inputs, output):
            seen[name] = pair_norms(output[0], head_dim)
        return hook

    for i, layer in enumerate(model.model.layers):
        layer.self_attn.q_proj.register_forward_hook(keep(("q", i)))
        layer.self_attn.k_proj.register_forward_hook(keep(("k", i)))
    with torch.no_grad():
        model(torch.tensor([tokens]))
    rules = [[], []]
    for i in range(config.num_hidden_layers):
        q = seen["q", i]
        k = seen["k", i].repeat_interleave(group, dim=1)
        rules[0].append(q.mean(dim=0) * k.mean(dim=0))
        rules[1].append((q * k).mean(dim=0))
    return torch.stack([torch.stack(rule) for rule in rules])


def main():
    transformers.utils.logging.disable_progress_bar()
    (HERE / "norms").mkdir(exist_ok=True)
    for name, (folder, tokens) in MODELS.items():
        if tokens is None:
            tokens = json.loads((folder / "tokens.json").read_text())
        scores = profile(folder, tokens)
        scores.numpy().astype("<f4").tofile(HERE / "norms" / f"{name}.f32")
        differ = ((scores[1] - scores[0]).abs() / scores[0]).max()
        print(f"{name}: {tuple(scores.shape)}, {len(tokens)} tokens, {scores.min():.3g} to "
              f"{scores.max():.3g}, the rules differ by up to {differ:.0%}")


if __name__ == "__main__":
    main()

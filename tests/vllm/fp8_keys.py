#!/usr/bin/env python3
"""Which loses more in a cache of FP8: keys after rotation, as vLLM keeps them, or before it, as under an entry?

    fp8_keys.py MODEL TEXT [TOKENS]

By hand; needs torch and transformers. MODEL is a folder or name of a model whose attention calls apply_rotary_pos_emb. A layer's keys of a text's first
tokens (512) are rounded to e4m3 with a scale of 1, vLLM's default, before or after rotation; printed are, of each layer, the largest key, and of each
way the root mean square of what logits change by and the divergence of the probabilities, in nats, beside float32."""
import statistics
import sys

import torch
import transformers


def rounded(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).to(torch.float32)


def main():
    name, path = sys.argv[1:3]
    tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 512
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, attn_implementation="eager")
    with open(path, encoding="utf-8") as file:
        ids = tokenizer(file.read(16 * tokens), return_tensors="pt").input_ids[:, :tokens]
    module = sys.modules[type(model).__module__]
    rotate, rows = module.apply_rotary_pos_emb, []

    def measured(q, k, *rest, **named):
        q_rotated, k_rotated = rotate(q, k, *rest, **named)
        n, group = q.shape[2], q.shape[1] // k.shape[1]
        later = torch.ones(n, n, dtype=torch.bool).triu(1)

        def logits(keys):
            product = q_rotated @ keys.repeat_interleave(group, 1).transpose(2, 3)
            return (product * q.shape[-1] ** -0.5).masked_fill(later, -1e9)

        exact = logits(k_rotated)
        row = [k.abs().max().item()]
        for keys in (rounded(k_rotated), rotate(q, rounded(k), *rest, **named)[1]):
            other, p = logits(keys), exact.log_softmax(-1)
            seen = n * (n + 1) / 2 * q.shape[1]
            row += [((other - exact).pow(2).sum() / seen).sqrt().item(), (p.exp() * (p - other.log_softmax(-1))).sum(-1).mean().item()]
        rows.append(row)
        return q_rotated, k_rotated

    module.apply_rotary_pos_emb = measured
    with torch.no_grad():
        model(ids)
    for layer, row in enumerate(rows):
        print(layer, *(f"{x:.4g}" for x in row))
    after, before = (statistics.mean(row[i] for row in rows) for i in (2, 4))
    print(f"{ids.shape[1]} tokens, mean of {len(rows)} layers: after rotation {after:.5f} nats, before {before:.5f}; before loses more in "
          f"{sum(row[4] > row[2] for row in rows)}")


if __name__ == "__main__":
    main()

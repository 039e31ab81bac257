#!/usr/bin/env python3
"""A plan as two calls of a paged attention, merged, against dpe_attention.Attention: two_calls.py OUTPUTS, the folder outputs/.
Exits with 125 when torch is not there."""
import json
import os
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(125)

OUTPUTS = sys.argv[1]
sys.path[:0] = [os.path.join(OUTPUTS, "transformers"), os.path.join(OUTPUTS, "vllm")]
import dpe_attention  # noqa: E402
import dpe_plan  # noqa: E402
from dpe_vllm import paged as paged_calls  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(17)
LAYERS, HEADS, KV_HEADS, DIM = 2, 6, 2, 16
PAIRS = DIM // 2


def table(folder, window, scales, top_k, temperature, unrounded=None, base=10000.0):
    """`unrounded` given: the plan of another method; `base`: of the frequencies that it applies."""
    pairs = [[sorted((layer + 3 * head + 5 * i) % PAIRS for i in range(top_k)) for head in range(HEADS)]
             for layer in range(LAYERS)]
    value = {"schema_name": "dpe-table", "schema_version": "9.0.0", "adapter_required": True,
             "model": {"model_type": "llama", "fingerprint": "00ff", "n_layers": LAYERS, "n_heads": HEADS,
                       "n_kv_heads": KV_HEADS, "head_dim": DIM},
             "trained_length": 64, "evaluated_length": 512, "local_window": window, "top_k": top_k,
             "near_rule": "distance < local_window", "rounding": "separable", "angle_precision": "f32",
             "pair_layout": "half-split", "group_edge": [0, 2, 5, PAIRS], "effective_length": [256.0, 64.0, -1.0],
             "scale_factor": list(scales), "attention_scaling": 1.1, "logit_scale": temperature, "log_n_power": 1.5,
             "log_n_length": 11.0 if temperature != 1.0 else 0.0, "log_n_decay": 0.0,
             "logit_scale_first": 0.8, "logit_scale_middle": 1.3, "logit_scale_last": 1.0,
             "head_scale": [0.5 + 0.25 * (i % 3) for i in range(LAYERS * HEADS)],
             "inv_freq": [10000.0 ** (-j / PAIRS) for j in range(PAIRS)], "key_pairs": pairs}
    if unrounded is not None:
        value.update(unrounded=unrounded,
                     applied_inv_freq=[base ** (-j / PAIRS) for j in range(PAIRS)])
    path = os.path.join(folder, "table.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    return dpe_attention.load_table(path).choose(512)


def paged(x, size, blocks):
    """x [tokens, KV heads, dim] in pages [blocks, size, KV heads, dim], those of one text in the order that `blocks` gives."""
    pages = torch.full((int(blocks.max()) + 2, size, *x.shape[1:]), float("nan"))
    for at in range(x.shape[0]):
        pages[blocks[at // size], at % size] = x[at]
    return pages


def compare(plan, texts, size=8, order=None, softcap=0.0):
    """texts: (tokens, rows) of each; all in one call, with their pages in one cache in a shuffled order."""
    calls = paged_calls.TwoCalls(plan, paged_calls.plain_kernel, order)
    data = [(torch.randn(rows, HEADS, DIM), *torch.randn(2, tokens, KV_HEADS, DIM)) for tokens, rows in texts]
    counts = [-(-tokens // size) for tokens, _ in texts]
    shuffled = torch.randperm(sum(counts)).split(counts)
    blocks = torch.zeros(len(texts), max(counts), dtype=torch.int32)
    caches = [torch.full((sum(counts) + 1, size, KV_HEADS, DIM), float("nan")) for _ in range(3)]
    for i, (_, k, v) in enumerate(data):
        blocks[i, :counts[i]] = shuffled[i]
        near, far = calls.keys(k, torch.arange(len(k)), len(k))
        for cache, x in zip(caches, (near, far, v)):
            pages = paged(x, size, shuffled[i])
            cache[shuffled[i]] = pages[shuffled[i]]
    most, longest = max(tokens for tokens, _ in texts), max(rows for _, rows in texts)
    starts = torch.tensor([0] + [rows for _, rows in texts]).cumsum(0).int()
    lengths = torch.tensor([tokens for tokens, _ in texts], dtype=torch.int32)
    positions = torch.cat([torch.arange(tokens - rows, tokens) for tokens, rows in texts])
    found = calls(torch.cat([q for q, _, _ in data]), *caches, positions, starts, longest, lengths, most, blocks,
                  DIM ** -0.5 * plan.depth(1), softcap, 1)
    for i, (q, k, v) in enumerate(data):
        expected = dpe_attention.Attention(plan, keep_keys=False, order=order)(
            *(x.transpose(0, 1)[None] for x in (q, k, v)), 1, softcap=softcap)[0].transpose(0, 1)
        error = float((found[starts[i]:starts[i + 1]] - expected).abs().max())
        assert error < 2e-5, (texts[i], error)
    return found


def refused(plan, words):
    try:
        paged_calls.TwoCalls(plan, paged_calls.plain_kernel)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"accepted a plan: {words}")


def main(folder):
    plans = [table(folder, *values).plan
             for values in ((9, (2.0, 3.5, 8.0), PAIRS, 1.25), (9, (2.0, 3.5, 8.0), PAIRS, 1.0),
                            (1, (1.0, 4.0, 16.0), PAIRS, 1.4), (64, (1.0, 7.0, 2.0), PAIRS, 1.0),
                            # Leaky ReRoPE, YaRN, and both.
                            (9, (3.5, 3.5, 3.5), PAIRS, 1.4, True), (9, (1.0, 1.0, 1.0), PAIRS, 1.25, False, 1e6),
                            (9, (2.0, 3.5, 8.0), PAIRS, 1.25, True, 1e6))]
    assert [len(plan.bands) for plan in plans] == [2, 2, 2, 2, 2, 1, 2]
    neighbours = [j + half for half in (0, 1) for j in range(0, DIM, 2)]
    for plan in plans:
        # A prompt, parts of one, single tokens, texts within the window and one token beyond it, in one batch.
        compare(plan, ((200, 200), (200, 37), (200, 1), (9, 9), (10, 10), (65, 65), (1, 1), (10, 1), (70, 1)))
        compare(plan, ((10, 10), (200, 3)), size=16, order=neighbours, softcap=2.0)
    # The two calls are needed: neither alone, nor keys of one plan under another.
    found = []
    for plan in plans[:2]:
        torch.manual_seed(5)
        found.append(compare(plan, ((120, 120),)))
    assert float((found[0] - found[1]).abs().max()) > 0.1
    # Sums over parts are those of the whole, also where a row sees nothing in a part, whatever a kernel writes there.
    out, lse = torch.randn(5, HEADS, DIM), torch.randn(HEADS, 5)
    nothing = torch.full_like(out, float("nan"))
    for infinity in (float("inf"), float("-inf")):
        merged = paged_calls.merge((out, lse), (nothing, torch.full_like(lse, infinity)))
        assert torch.equal(merged[0], out) and torch.equal(merged[1], lse)
    twice = paged_calls.merge((out, lse), (out, lse))
    assert torch.allclose(twice[0], out, atol=1e-6) and torch.allclose(twice[1], lse + 0.6931472, atol=1e-6)
    masked = table(folder, 9, (2.0, 3.5, 8.0), 5, 1.25).plan
    refused(masked, "key pairs of their own")
    chunks = [dpe_plan.Band(dpe_plan.CHUNK, 0, dpe_plan.NO_END, False, plans[0].bands[0].q, plans[0].bands[0].k)]
    refused(dpe_plan.Plan(chunks, plans[0].inv_freq, (LAYERS, HEADS, KV_HEADS, DIM), chunk=8), "not a near and a far one")


with tempfile.TemporaryDirectory() as made:
    main(made)

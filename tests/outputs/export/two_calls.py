#!/usr/bin/env python3
"""DPE attention as two calls merged by log-sum-exp against the transformers adapter's: two_calls.py OUTPUTS, the folder outputs/.
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
import dpe_two_calls  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(17)
LAYERS, HEADS, KV_HEADS, DIM = 2, 6, 2, 16
PAIRS = DIM // 2


def table(folder, window, scales, top_k, temperature, unrounded=None, base=10000.0):
    """`unrounded` given: of version 5, the plan of another method; `base`: of the frequencies that it applies."""
    pairs = [[sorted((layer + 3 * head + 5 * i) % PAIRS for i in range(top_k)) for head in range(HEADS)]
             for layer in range(LAYERS)]
    value = {"schema_name": "dpe-table", "schema_version": "2.0.0", "adapter_required": True,
             "model": {"model_type": "llama", "fingerprint": "00ff", "n_layers": LAYERS, "n_heads": HEADS,
                       "n_kv_heads": KV_HEADS, "head_dim": DIM},
             "trained_length": 64, "evaluated_length": 512, "local_window": window, "top_k": top_k,
             "near_rule": "distance < local_window", "rounding": "separable", "angle_precision": "f32",
             "pair_layout": "half-split", "group_edge": [0, 2, 5, PAIRS], "effective_length": [256.0, 64.0, -1.0],
             "scale_factor": list(scales), "attention_scaling": 1.1, "logit_scale": temperature, "log_n_power": 1.5,
             "log_n_length": 11.0 if temperature != 1.0 else 0.0, "log_n_decay": 0.0,
             "inv_freq": [10000.0 ** (-j / PAIRS) for j in range(PAIRS)], "key_pairs": pairs}
    if unrounded is not None:
        value.update(schema_version="5.0.0", unrounded=unrounded,
                     applied_inv_freq=[base ** (-j / PAIRS) for j in range(PAIRS)])
    path = os.path.join(folder, "table.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    return dpe_attention.load_table(path).choose(512)


def rotated(x, table):
    """As the model's code caches them: at true positions, angles products in float32."""
    angle = (np.arange(x.shape[2], dtype=np.float32)[:, None] * table.inv_freq.astype(np.float32)).astype(np.float64)
    cos, sin = (torch.from_numpy(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def compare(one, tokens, rows):
    q = torch.randn(2, HEADS, tokens, DIM)
    k, v = torch.randn(2, 2, KV_HEADS, tokens, DIM)
    for layer in range(LAYERS):
        expected = dpe_attention.Attention(one, keep_keys=False)(q[:, :, tokens - rows:], k, v, layer)
        found = dpe_two_calls.TwoCalls(one)(rotated(q, one)[:, :, tokens - rows:], rotated(k, one), v, layer)
        error = float((found - expected).abs().max())
        assert error < 2e-5, (one.local_window, tokens, rows, layer, error)


def main(folder):
    tables = [table(folder, *values)
              for values in ((9, (2.0, 3.5, 8.0), 5, 1.25), (9, (2.0, 3.5, 8.0), PAIRS, 1.0),
                             (1, (1.0, 4.0, 16.0), PAIRS, 1.4), (64, (1.0, 7.0, 2.0), 3, 1.0),
                             # Leaky ReRoPE, YaRN, and both with key pairs by head.
                             (9, (3.5, 3.5, 3.5), PAIRS, 1.4, True), (9, (1.0, 1.0, 1.0), PAIRS, 1.25, False, 1e6),
                             (9, (2.0, 3.5, 8.0), 5, 1.25, True, 1e6))]
    for one in tables:
        # A prompt, parts of one, single tokens, texts within the window and one token beyond it.
        for tokens, rows in ((200, 200), (200, 37), (200, 1), (9, 9), (10, 10), (65, 65), (1, 1)):
            compare(one, tokens, rows)
    # The two calls are needed: neither alone, nor keys of one plan under another.
    one, other = tables[0], tables[1]
    q = torch.randn(1, HEADS, 120, DIM)
    k, v = torch.randn(2, 1, KV_HEADS, 120, DIM)
    results = [dpe_two_calls.TwoCalls(each)(rotated(q, one), rotated(k, one), v, 0) for each in (one, other)]
    assert float((results[0] - results[1]).abs().max()) > 0.1
    # Sums over parts are those of the whole, also where a row sees nothing in a part.
    scale, last = torch.full((120,), 0.3), torch.arange(120)
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
    whole = dpe_two_calls.attend(q, k, v, scale, torch.zeros(120), last)
    parts = dpe_two_calls.merge(dpe_two_calls.attend(q, k, v, scale, last - 20, last),
                                dpe_two_calls.attend(q, k, v, scale, torch.zeros(120), last - 21))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, parts))
    none = dpe_two_calls.attend(q, k, v, scale, last + 1, last)
    assert bool((none[0] == 0).all()) and bool(torch.isinf(none[1]).all())
    # One salt a plan.
    plain = (9, (2.0, 3.5, 8.0), PAIRS, 1.0, False)
    tables += [table(folder, *plain, 1e5), table(folder, *plain[:-1], True)]
    assert len({dpe_two_calls.salt(each) for each in tables}) == len(tables)
    # What version 5 adds may say the plan of an earlier version.
    assert dpe_two_calls.salt(other) == dpe_two_calls.salt(table(folder, *plain))
    assert dpe_two_calls.salt(one) == dpe_two_calls.salt(table(folder, 9, (2.0, 3.5, 8.0), 5, 1.25))


with tempfile.TemporaryDirectory() as made:
    main(made)

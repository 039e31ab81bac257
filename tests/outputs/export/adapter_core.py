#!/usr/bin/env python3
"""The PyTorch core of the transformers adapter against the engine: adapter_core.py PROBE EXPORT ADAPTER RUN.

PROBE is adapter_probe, EXPORT dpe-export, RUN dpe-run, ADAPTER the folder outputs/transformers. Exits with 125 when
torch is not there."""
import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import types
import zlib

try:
    import h5py
    import numpy as np
    import torch
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(125)

PROBE, EXPORT, ADAPTER, RUN = sys.argv[1:5]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from adapter_fields import NO_TEMPERATURE  # noqa: E402
from checksum import add_checksum  # noqa: E402
sys.path.insert(0, ADAPTER)
from dpe_attention import Attention, TableError, fingerprint as fingerprint_of, formula_table, load_table, trained_length_of  # noqa: E402
from dpe_plan import Map  # noqa: E402

torch.set_num_threads(1)
LAYERS, HEADS, KV_HEADS, DIM = 2, 6, 2, 16
PAIRS = DIM // 2


FACTORS = [name for name in NO_TEMPERATURE if not name.startswith("log_n") and name != "logit_scale"]  # of layers, of distances
TEMPERATURE = dict({name: 0.7 + 0.25 * i for i, name in enumerate(FACTORS)}, logit_scale=1.25, log_n_length=11.0, log_n_power=1.5, log_n_decay=0.0,
                   head_scale=[0.5 if i % 5 == 2 else 1.0 for i in range(LAYERS * HEADS)])
ONES = (1.0, 1.0, 1.0)


def warm(value, **temperature):
    """The table with a temperature."""
    return dict(value, **dict(TEMPERATURE, **temperature))


def method(value, unrounded=False, base=10000.0):
    """The table as the plan of another method. `base`: of the frequencies that it applies, in the
    place of table()'s 10000."""
    applied = [frequency and base ** (-j / PAIRS) for j, frequency in enumerate(value["inv_freq"])]
    return dict(NO_TEMPERATURE, **dict(value, unrounded=unrounded, applied_inv_freq=applied))


def leaky():
    """As Leaky ReRoPE is: every pair, one scale; with log-n."""
    return method(warm(table(scales=(3.5, 3.5, 3.5), top_k=PAIRS)), unrounded=True)


def yarn():
    """As YaRN is: frequencies and a factor on the logits, no scales."""
    return method(warm(table(scales=ONES, top_k=PAIRS), log_n_length=0), base=1e6)


def band(by, low, high, query, key=(), chunk=0, heads=0):
    """Two rows of a band. query, key: scale, offset and further numbers by name."""
    places = {"floor": 5, "period": 6, "cap": 7, "most": 8, "rate": 9, "start": 10}
    rows = []
    for scale, offset, *rest in (query, key or query):
        row = [by, low, high, chunk, heads] + [0] * 6
        for name, value in (rest[0] if rest else {}).items():
            row[places[name]] = value
        rows += row + [scale * (1 + 0.25 * j) if scale else 0 for j in range(PAIRS)] + [offset + j % 3 for j in range(PAIRS)]
    return [float(x) for x in rows]


def banded(*bands, **changes):
    """A table of bands, which is version 6."""
    value = method(warm(table(top_k=PAIRS, **changes)))
    return dict(value, schema_version="9.0.0", group_edge=[0, PAIRS], effective_length=[512.0], scale_factor=[1.0],
                bands=[number for one in bands for number in one])


def table(window=9, scales=(2.0, 3.5, 8.0), top_k=5, scaling=1.0):
    """A valid table in the JSON form; heads have different key pairs."""
    pairs = [[sorted((layer + 3 * head + 5 * i) % PAIRS for i in range(top_k))
              for head in range(HEADS)] for layer in range(LAYERS)]
    return {"schema_name": "dpe-table", "schema_version": "9.0.0", "adapter_required": True,
            "model": {"model_type": "llama", "fingerprint": "00ff", "n_layers": LAYERS,
                      "n_heads": HEADS, "n_kv_heads": KV_HEADS, "head_dim": DIM},
            "trained_length": 64, "evaluated_length": 512, "local_window": window, "top_k": top_k,
            "near_rule": "distance < local_window", "rounding": "separable",
            "angle_precision": "f32", "pair_layout": "half-split", "group_edge": [0, 2, 5, PAIRS],
            "effective_length": [256.0, 64.0, -1.0], "scale_factor": list(scales),
            "attention_scaling": scaling,
            "inv_freq": [10000.0 ** (-j / PAIRS) for j in range(PAIRS)], "key_pairs": pairs}


NEAR = band(0, 0, 9, (1, 0))
BANDED = {
    "distances": banded(NEAR, band(0, 9, 30, (3, 5, {"floor": 1})), band(0, 30, 0, (1, -4), (1, 0))),
    "chunks": banded(band(1, 0, 1, (1, 0, {"period": 8}), chunk=8), band(1, 1, 2, (1, 8, {"period": 8, "cap": 12}),
                                                                      (1, 0, {"period": 8}), chunk=8),
                     band(1, 2, 0, (0, 11), (1, 0, {"period": 8}), chunk=8)),
    "sinks, and keys that are not seen": banded(NEAR, band(2, 0, 3, (1, 0, {"cap": 12}))),
    "groups that grow": banded(NEAR, band(0, 9, 0, (1, 9, {"most": 5, "rate": 0.125, "start": 10}),
                                           (1, 0, {"most": 5, "rate": 0.125, "start": 1})), scaling=1.2),
    "keys at the end alone": banded(band(2, 20, 0, (1, 0)), band(0, 0, 1, (1, 0))),
}


def write(folder, value, name="table.json"):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))
    return path


def spread_error(found, expected):
    return float(np.abs(found - expected).max() / (expected.max() - expected.min()))


def engine(folder, path, layer, q, k, v):
    """The engine's reference attention; q [heads, tokens, dim], k, v [kv heads, tokens, dim]."""
    raw, out = os.path.join(folder, "in"), os.path.join(folder, "out")
    with open(raw, "wb") as file:
        for part in (q.transpose(1, 0, 2), k, v):
            file.write(np.ascontiguousarray(part, np.float32).tobytes())
    subprocess.run([PROBE, "attention", path, str(layer), raw, out], check=True)
    return np.fromfile(out, np.float32).reshape(q.shape[1], HEADS, DIM).transpose(1, 0, 2)


def check_attention(folder, name, value, tokens):
    path = write(folder, value)
    loaded = load_table(path)
    rng = np.random.default_rng(tokens)
    q = rng.standard_normal((2, HEADS, tokens, DIM), np.float32) * 2
    k, v = rng.standard_normal((2, 2, KV_HEADS, tokens, DIM), np.float32) * 2
    tq, tk, tv = torch.from_numpy(q), torch.from_numpy(k), torch.from_numpy(v)
    for layer in range(LAYERS):
        expected = np.stack([engine(folder, path, layer, q[b], k[b], v[b]) for b in range(2)])
        whole = Attention(loaded)(tq, tk, tv, layer)
        blocks = Attention(loaded, query_block=7, key_block=11)
        inside = blocks(tq, tk, tv, layer)
        parts = torch.cat([blocks(tq[:, :, m:m + 1], tk[:, :, :m + 1], tv[:, :, :m + 1], layer)
                           for m in range(tokens)], dim=2)
        half = torch.cat([blocks(tq[:, :, a:b], tk[:, :, :b], tv[:, :, :b], layer)
                          for a, b in ((0, tokens // 3), (tokens // 3, tokens))], dim=2)
        for how, found in (("one block", whole), ("blocks", inside), ("decode", parts),
                           ("two calls", half)):
            error = spread_error(found.numpy(), expected)
            assert error < 2e-6, (name, layer, how, error)


def test_attention(folder):
    check_attention(folder, "masks per head", table(), 60)
    check_attention(folder, "scales divide the window", table(8, (2.0, 4.0, 8.0)), 60)
    check_attention(folder, "all pairs", table(top_k=PAIRS), 40)
    check_attention(folder, "no pairs", table(top_k=0), 40)
    check_attention(folder, "window of one", table(window=1), 40)
    check_attention(folder, "window as long as the text", table(window=30), 30)
    check_attention(folder, "window longer than the text", table(window=500), 30)
    check_attention(folder, "logit factor", table(scaling=1.3), 40)
    check_attention(folder, "one token", table(), 1)
    check_attention(folder, "log-n", warm(table()), 60)
    check_attention(folder, "log-n, all pairs", warm(table(top_k=PAIRS, scaling=1.1)), 40)
    check_attention(folder, "InfoScale", warm(table(), logit_scale=1.0, log_n_power=0.5,
                                              log_n_decay=2 / DIM), 60)
    check_attention(folder, "logit scale", warm(table(), log_n_length=0, log_n_power=1), 40)
    check_attention(folder, "Leaky ReRoPE", leaky(), 60)
    check_attention(folder, "YaRN", yarn(), 60)
    check_attention(folder, "YaRN, no pairs", method(table(scales=ONES), base=1e6), 40)
    check_attention(folder, "unrounded, masks per head", method(table(), unrounded=True), 60)
    check_attention(folder, "frequencies, masks per head", method(table(scaling=1.3), base=1e6), 60)
    for name, value in BANDED.items():
        check_attention(folder, name, value, 60)
    check_attention(folder, "all of it", method(warm(table()), unrounded=True, base=1e6), 60)


def plain(value, layer, q, k, v, scaling, softcap, sinks):
    """The contract with loops, in double; the components of q and k in the table's order."""
    heads, tokens, dim = q.shape
    pairs, out = dim // 2, np.zeros(q.shape)
    scale = np.repeat(value["scale_factor"], np.diff(value["group_edge"]))
    inv_freq = np.array(value.get("applied_inv_freq", value["inv_freq"]))
    floor = np.positive if value.get("unrounded") else np.floor
    factor = np.where(inv_freq > 0, value["attention_scaling"] ** 2, 1.0)
    window = value["local_window"]

    def turned(x, positions):
        angle = np.float64(np.float32(positions) * np.float32(inv_freq))
        a, b = x[:pairs].astype(np.float64), x[pairs:].astype(np.float64)
        return a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)

    for h in range(heads):
        own = h * k.shape[0] // heads
        moved = np.isin(np.arange(pairs), value["key_pairs"][layer][h])
        for m in range(tokens):
            logits = np.empty(m + 1)
            for n in range(m + 1):
                s = np.where(moved & (m - n >= window), scale, 1.0)
                shift = np.where(s > 1, window - floor(window / s), 0)
                qa, qb = turned(q[h, m], floor(m / s) + shift)
                ka, kb = turned(k[own, n], floor(n / s))
                logits[n] = ((qa * ka + qb * kb) * factor).sum() * scaling
            logits = np.tanh(logits / softcap) * softcap if softcap else logits
            logits = np.append(logits, sinks[h]) if sinks is not None else logits
            weights = np.exp(logits - logits.max())
            out[h, m] = (weights[:m + 1] / weights.sum()) @ v[own, :m + 1]
    return out


METHODS = ("rope", "yarn", "cope", "rerope:window=20", "leaky-rerope:window=16,scale=7", "self-extend:window=16,group=5",
           "dpe:window=16,scales=2/3/4/5/6/7/8/9", "dca:chunk=24,local=7", "string:shift=31,window=6",
           "lampe:window=16,tail=9,map=40", "self:window=9,group=5,rate=0.2", "streaming-llm:sinks=3,window=21", "lm-infinite:sinks=3,window=21",
           "hirope:window=16", "adagrope:first=9", "dope", "dca:chunk=24,local=7,log-n=30")


def test_plans_of_methods(folder):
    """What dpe-run --show-plan --json writes is the plan that the engine runs, in every kind of band."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
    model, length, digests = os.path.join(root, "data/reference"), 100, []
    for method in METHODS:
        path = write(folder, subprocess.run([RUN, "-m", model, "--show-plan", "--json", "--method", method, "--length",
                                             "4096"], check=True, stdout=subprocess.PIPE, text=True).stdout, "plan.json")
        loaded = load_table(path)
        assert loaded.choose(256) is None and loaded.choose(257) is loaded
        heads, kv, dim = loaded.n_heads, loaded.n_kv_heads, loaded.head_dim
        rng = np.random.default_rng(3)
        q = rng.standard_normal((heads, length, dim), np.float32) * 2
        k, v = rng.standard_normal((2, kv, length, dim), np.float32) * 2
        raw, out = os.path.join(folder, "in"), os.path.join(folder, "out")
        with open(raw, "wb") as file:
            for part in (q.transpose(1, 0, 2), k, v):
                file.write(np.ascontiguousarray(part, np.float32).tobytes())
        subprocess.run([PROBE, "method", model, method, "4096", "1", raw, out], check=True)
        expected = np.fromfile(out, np.float32).reshape(length, heads, dim).transpose(1, 0, 2)
        tq, tk, tv = (torch.from_numpy(x)[None] for x in (q, k, v))
        small = Attention(loaded, query_block=7, key_block=11)
        for found in (Attention(loaded)(tq, tk, tv, 1), small(tq, tk, tv, 1),
                      torch.cat([small(tq[:, :, m:m + 1], tk[:, :, :m + 1], tv[:, :, :m + 1], 1)
                                 for m in range(length)], dim=2)):
            assert spread_error(found[0].numpy(), expected) < 2e-6, method
        digests.append(loaded.digest)
    assert len(set(digests)) == len(METHODS)
    shown = [RUN, "-m", model, "--show-plan", "--json", "--length", "4096", "--method"]
    with open(os.path.join(folder, "plan.json"), "w", encoding="utf-8") as file:
        subprocess.run([*shown, "select"], check=True, stdout=file)
    refused(os.path.join(folder, "plan.json"), "applied by dpe-run", c_too=False)


def test_what_models_add(folder):
    """Another factor of the logits, soft caps, sinks, heads that rotate in part, in another order of components, and
    with a factor on what rotates; prefill and decoding."""
    part = table(window=7, scaling=1.2)
    part.update(group_edge=[0, 2, 4, PAIRS], inv_freq=part["inv_freq"][:5] + [0.0] * 3)
    rng = np.random.default_rng(8)
    tokens, order = 30, rng.permutation(DIM)
    q = rng.standard_normal((HEADS, tokens, DIM)).astype(np.float32) * 2
    k, v = rng.standard_normal((2, KV_HEADS, tokens, DIM)).astype(np.float32) * 2
    sinks = rng.standard_normal(HEADS) * 4
    found = []
    for value, scaling, cap, sink in ((table(), 0.25, None, None), (table(), 0.1, None, None),
                                      (table(), 0.25, 1.5, None), (table(), 0.25, None, sinks),
                                      (part, 0.25, None, None), (part, 0.3, 2.0, sinks),
                                      (method(part, True, 1e5), 0.3, 2.0, sinks)):
        expected = plain(value, 1, q, k, v, scaling, cap, sink)
        loaded = load_table(write(folder, value))
        given = [torch.empty(x.shape)[None] for x in (q, k)]
        for x, y in zip(given, (q, k)):
            x[..., order] = torch.from_numpy(y)[None]
        given.append(torch.from_numpy(v)[None])
        rest = (1, scaling, cap, None if sink is None else torch.from_numpy(sink))
        core = Attention(loaded, query_block=7, key_block=11, order=order)
        decoded = torch.cat([core(given[0][:, :, m:m + 1], given[1][:, :, :m + 1], given[2][:, :, :m + 1], *rest)
                             for m in range(tokens)], dim=2)
        for how, out in (("prefill", core(*given, *rest)), ("decode", decoded)):
            assert spread_error(out[0].numpy(), expected) < 2e-6, (scaling, cap, how)
        found.append(expected)
    for i, one in enumerate(found):
        assert all(spread_error(one, other) > 1e-3 for other in found[:i]), i


def test_kept_keys_are_those_of_the_text(folder):
    """Another text, a shorter one, one that differs in the middle or in the order of a batch: no key of the last
    text is used for it."""
    for name, value in (("masks", table()), ("all pairs", table(top_k=PAIRS))):
        loaded = load_table(write(folder, value))
        kept, fresh = Attention(loaded), Attention(loaded, keep_keys=False)
        rng = torch.Generator().manual_seed(1)
        q = torch.randn(2, HEADS, 40, DIM, generator=rng)
        k, v = torch.randn(2, 2, KV_HEADS, 40, DIM, generator=rng)
        changed_key = k.clone()
        changed_key[0, 1, 20] += 1
        texts = (k, k, changed_key, k.flip(0), torch.randn(k.shape, generator=rng), k[:1])
        for text, tokens in zip(texts, (30, 40, 40, 40, 12, 35)):
            for m in range(tokens - 3, tokens):
                given = q[:len(text), :, m:m + 1], text[:, :, :m + 1], v[:len(text), :, :m + 1], 1
                error = spread_error(kept(*given).numpy(), fresh(*given).numpy())
                assert error < 2e-6, (name, tokens, m, error)
        kept.forget()
        assert spread_error(kept(*given).numpy(), fresh(*given).numpy()) < 2e-6


def test_attention_depends_on_the_table(folder):
    """What test_attention compares is not the same for every table."""
    rng = np.random.default_rng(3)
    q = torch.from_numpy(rng.standard_normal((1, HEADS, 60, DIM), np.float32) * 2)
    k, v = torch.from_numpy(rng.standard_normal((2, 1, KV_HEADS, 60, DIM), np.float32) * 2)
    base = Attention(load_table(write(folder, table())))
    for change in (table(window=10), table(scales=(2.0, 3.5, 9.0)), table(top_k=4),
                   table(scaling=1.1), warm(table()), warm(table(), log_n_length=0),
                   method(table(), unrounded=True), method(table(), base=1e5)):
        other = Attention(load_table(write(folder, change)))
        assert spread_error(other(q, k, v, 0).numpy(), base(q, k, v, 0).numpy()) > 1e-3
    assert spread_error(base(q, k, v, 1).numpy(), base(q, k, v, 0).numpy()) > 1e-3
    # What says another method may say nothing.
    same = Attention(load_table(write(folder, method(table()))))
    assert torch.equal(same(q, k, v, 0), base(q, k, v, 0))


def test_far_positions_are_those_of_a_long_text(folder):
    """Positions beyond what float32 holds exactly in a product with a frequency."""
    value = dict(table(window=1000, scales=(2.0, 7.0, 32.0)), evaluated_length=131072)
    n = np.array([0, 999, 1000, 131071])
    for long, divide in ((value, np.floor_divide), (method(value, unrounded=True), np.divide)):
        loaded = load_table(write(folder, long))
        far = loaded.plan.bands[1]
        key, query = (side.positions(0, 131072)[n] for side in (far.k, far.q))
        for g, s in enumerate((2, 7, 32)):
            pair = loaded.group_edge[g]
            assert (key[:, pair] == divide(n, s)).all()
            assert (query[:, pair] == divide(n, s) + (1000 - divide(1000, s))).all()


def test_groups_are_those_of_the_curve(folder):  # pylint: disable=unused-argument
    """Group i has as many tokens as the curve says, also where nearly a million sizes occur in no group."""
    for most, rate, start in ((2, 0.01, 3), (5, 0.125, 10), (37, 0.02, 0), (300, 0.31, 1), (2 ** 20, 1e6, 0), (2 ** 20, 0.7, 5),
                              (2 ** 20, 3e-3, 0), (2 ** 20 - 1, 1e-7, 0)):
        found = Map(np.ones(1), np.zeros(1), groups=(most, rate, start)).positions(0, 4000)[:, 0]
        token, group = start, 0
        expected = np.zeros(4000)
        while token < 4000:
            size = min(most - 1, max(1, math.floor(most / (1 + (most - 1) * math.exp(-rate * group)))))
            expected[token:token + size] = group
            token, group = token + size, group + 1
        assert np.array_equal(found, expected), (most, rate, start)


def numbers_of(plan):
    return ([(band.kind, band.lo, band.hi, band.per_head, band.q_map, band.k_map) for band in plan.bands], plan.chunk,
            [one.content() for one in plan.maps], plan.inv_freq.tolist(), plan.n_still, plan.still_factor, plan.logit_depth,
            plan.query_scales(0, 9999).tolist(), plan.mask is None, plan.logit_heads is None)


def same_formula(folder, model, made):
    """A table of the formula and what dpe-export --method dpe writes."""
    path = os.path.join(folder, "formula.h5")
    done = subprocess.run([EXPORT, "--method", "dpe", "-m", model, "--length", str(made.evaluated_length), "-o", path, "--force",
                           "--trained-length", str(made.entries[0].trained_length)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "nothing was measured" in done.stderr, done.stderr
    written = load_table(path)
    assert [entry.evaluated_length for entry in written.entries] == [entry.evaluated_length for entry in made.entries]
    for entry, expected in zip(made.entries, written.entries):
        assert np.allclose(entry.applied_inv_freq, expected.applied_inv_freq, rtol=1e-12, atol=0)
        entry.applied_inv_freq = expected.applied_inv_freq  # which differ in the last bit
        if not expected.applied_inv_freq.any():
            entry.inv_freq = expected.inv_freq  # nothing rotates by them
        entry.check_model(expected.model_type, **{name: getattr(expected, name) for name in ("n_layers", "n_heads", "n_kv_heads", "head_dim")})
        assert numbers_of(entry.plan) == numbers_of(expected.plan), entry.evaluated_length
        assert made.choose(entry.evaluated_length) is entry


def test_formula(folder):
    """Of a model whose layers a plan moves, of one without positions there, and of one whose pairs all turn within the trained length."""
    families = os.path.join(ADAPTER, "../../tests/golden/families")
    sizes = {"n_heads": 4, "n_kv_heads": 2}
    same_formula(folder, os.path.join(families, "llama4"), formula_table(32, 256, [], 1.0, "llama4_text", n_layers=4, head_dim=8, **sizes))
    same_formula(folder, os.path.join(families, "gemma4"),
                 formula_table(32, 256, [1.0, 100.0 ** (-1 / 8)], 1.0, "gemma4_text", n_layers=6, head_dim=16, **sizes))
    model = os.path.join(ADAPTER, "../../data/reference")
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    pairs = config["hidden_size"] // config["num_attention_heads"] // 2
    own = config["rope_theta"] ** (-np.arange(pairs) / pairs)
    trained = config["max_position_embeddings"]
    made = formula_table(trained, 20 * trained, own, 1.0, "llama", n_layers=config["num_hidden_layers"], head_dim=2 * pairs,
                         n_heads=config["num_attention_heads"], n_kv_heads=config["num_key_value_heads"])
    assert [entry.evaluated_length for entry in made.entries] == [trained * i for i in (2, 4, 8, 16, 20)]
    same_formula(folder, model, made)
    assert made.choose(trained) is None
    # Around each length at which the rule changes; of trained lengths that no power of two divides, and whose window is the widest.
    for trained in (7, 31, 257, 1000, 8191, 8193, 20000):
        for length in (trained + 1, 2 * trained, 2 * trained + 1, 3 * trained + 5, 16 * trained, 16 * trained + 1):
            same_formula(folder, model, formula_table(trained, length, own, 1.0, "llama", n_layers=config["num_hidden_layers"],
                                                      head_dim=2 * pairs, n_heads=config["num_attention_heads"],
                                                      n_kv_heads=config["num_key_value_heads"]))
    # Of heads that rotate in part, in fewer pairs than groups; one with a factor on what rotates.
    slow, factor = [10000.0 ** (-j / 6) / (j + 1) for j in range(6)], math.sqrt(1 + math.log(4) / math.log(16))
    for family, own, factor, (head_dim, layers, heads, kv) in (("glm4", [1, 0.01], 1.0, (8, 2, 4, 2)), ("phi3", slow, factor, (16, 2, 2, 1)),
                                                               ("qwen3_next", [1, 0.01], 1.0, (16, 4, 4, 2))):
        for trained, length in ((32, 64), (32, 65), (33, 60), (33, 528), (33, 529), (50, 1000)):
            same_formula(folder, os.path.join(families, family), formula_table(
                trained, length, own, factor, family, n_layers=layers, head_dim=head_dim, n_heads=heads, n_kv_heads=kv))
    for lengths in ((8192, 8192), (8192, 8000)):
        try:
            formula_table(*lengths, own, 1.0, "llama", n_layers=1, n_heads=1, n_kv_heads=1, head_dim=2 * pairs)
        except TableError as error:
            assert "beyond the trained length" in str(error)
        else:
            raise AssertionError(lengths)


def test_half_precision(folder):
    """A bfloat16 cache: rotation and softmax stay in float32."""
    loaded = load_table(write(folder, table()))
    rng = np.random.default_rng(4)
    q = torch.from_numpy(rng.standard_normal((1, HEADS, 50, DIM), np.float32)).bfloat16()
    k, v = torch.from_numpy(rng.standard_normal((2, 1, KV_HEADS, 50, DIM), np.float32)).bfloat16()
    low = Attention(loaded)(q, k, v, 0)
    high = Attention(loaded)(q.float(), k.float(), v.float(), 0)
    assert low.dtype == torch.bfloat16
    assert spread_error(low.float().numpy(), high.numpy()) < 2.0 ** -8
    rough = Attention(loaded, compute=torch.bfloat16)(q, k, v, 0)
    assert spread_error(rough.float().numpy(), high.numpy()) < 2.0 ** -5


def refused(path, words, c_too=True):
    """By the adapter, naming the reason, and by the C library."""
    try:
        load_table(path)
    except TableError as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(f"accepted although: {words}")
    c = subprocess.run([PROBE, "check", path], stderr=subprocess.PIPE)
    assert not c_too or c.returncode == 65 and c.stderr, (words, c)


def changed(path, value):
    """A good table with one value exchanged: path = keys and indices."""
    root = table()
    at = root
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return root


HOSTILE = [
    (("schema_name",), "other", "schema_name"), (("schema_name",), None, "schema_name"),
    (("schema_version",), "10.0.0", "10.0.0, this adapter reads 9.0.0"), (("schema_version",), "5.0.0", "make the table again"),
    (("moves",), "frequencies", "needs no adapter"), (("entries",), [], "1 to 64 entries"),
    (("schema_version",), 1, "schema_version"),
    (("head_scale",), [1.0] * 3, "head_scale has shape (3,)"), (("head_scale",), [0.0] * (LAYERS * HEADS), "head_scale[0] is 0.0"),
    (("log_n_length",), 256, "logit_scale"), (("logit_scale_last",), 0.5, "logit_scale"), (("unrounded",), False, "applied_inv_freq"),
    (("applied_inv_freq",), table()["inv_freq"], "unrounded"), (("logit_scale",), 1.0, "logit_scale_first"),
    (("scale_factor", 1), 1e308, "scale_factor[1] is 1e+308"),
    (("scale_factor", 1), 0.5, "scale_factor[1] is 0.5"),
    (("scale_factor", 1), -3, "scale_factor[1]"), (("scale_factor", 1), "2", "scale_factor"),
    (("scale_factor", 1), True, "scale_factor"), (("scale_factor",), [], "n_groups is 0"),
    (("effective_length", 0), 0.0, "effective_length[0]"),
    (("effective_length",), [1.0, 2.0], "effective_length"),
    (("inv_freq", 3), 0.0, "inv_freq[4]"), (("inv_freq", 0), 0.0, "inv_freq[0]"), (("inv_freq",), [1.0], "inv_freq"),
    (("attention_scaling",), -1.0, "attention_scaling"),
    (("group_edge",), [0, 5, 5, PAIRS], "group_edge"), (("group_edge",), [0, 2, 5, 7], "group_edge"),
    (("group_edge",), [1, 2, 5, PAIRS], "group_edge"), (("group_edge", 1), 2.5, "group_edge"),
    (("group_edge",), [0, 5, PAIRS], "group_edge"),
    (("top_k",), PAIRS + 1, "top_k is 9"), (("top_k",), 4, "marks 5 pairs, top_k is 4"),
    (("top_k",), -1, "top_k is -1"), (("local_window",), 0, "window"),
    (("local_window",), 513, "window"), (("local_window",), 9.5, "local_window"),
    (("key_pairs",), [], "key_pairs"), (("key_pairs", 1), [[0, 1, 2, 3, 4]], "key_pairs"),
    (("key_pairs", 1, 2), [0, 1, 2, 3, 3], "distinct"),
    (("key_pairs", 1, 2), [0, 1, 2, 3, PAIRS], "distinct"),
    (("key_pairs", 1, 2), [0, 1, 2, 3, -1], "distinct"),
    (("key_pairs", 1, 2), [], "layer 1, head 2 marks 0 pairs"),
    (("model", "n_kv_heads"), 4, "expected a multiple of the"), (("model", "head_dim"), 17, "head_dim is 17"),
    (("model", "head_dim"), 2 ** 62, "head_dim"), (("model", "n_layers"), 0, "key_pairs"),
    (("model", "n_heads"), 2 ** 40, "key_pairs"), (("model",), [], "model"),
    (("near_rule",), "distance <= local_window", "near_rule"), (("rounding",), "exact", "rounding"),
    (("angle_precision",), "f64", "angle_precision"),
    (("pair_layout",), "interleaved", "pair_layout"), (("inv_freq",), None, "inv_freq"),
]


HOSTILE_TEMPERATURE = [
    ("logit_scale", 0, "logit_scale is 0"), ("logit_scale", -1.0, "logit_scale is -1"),
    ("logit_scale", 1e6, "logit_scale is 1000000.0"), ("logit_scale", "1", "logit_scale"),
    ("logit_scale", True, "logit_scale"), ("log_n_length", 1, "log_n_length is 1"),
    ("log_n_length", -256, "log_n_length is -256"), ("log_n_length", 0.5, "log_n_length is 0.5"),
    ("log_n_power", 0, "log_n_power is 0"), ("log_n_power", -1, "log_n_power is -1"),
    ("log_n_decay", -0.1, "log_n_decay is -0.1"), ("log_n_decay", None, "log_n_decay"),
]


def test_hostile_temperatures(folder):
    assert load_table(write(folder, warm(table()))).log_n_length == 11
    for name, value, words in HOSTILE_TEMPERATURE:
        refused(write(folder, warm(table(), **{name: value})), words)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            refused(write_h5(folder, warm(table(), **{name: value})), words)
    for name in set(TEMPERATURE) - {"head_scale"}:
        value = warm(table())
        del value[name]
        refused(write(folder, value), name)
        refused(write_h5(folder, warm(table()), skip=(name,)), name)
        refused(write_h5(folder, table(), **{name: 1.5}), "log")
    refused(write_h5(folder, warm(table(), log_n_length=math.nan)), "log_n_length is nan")
    refused(write_h5(folder, warm(table(), logit_scale=math.inf)), "logit_scale is inf")


def test_hostile_methods(folder):
    for good in (leaky(), yarn()):
        assert load_table(write(folder, good)).schema_version == "9.0.0"
        assert load_table(write(folder, dict(good, schema_version="9.1.0", later=[1]))).schema_version == "9.1.0"
        for member, wrong, words in (("unrounded", 2, "unrounded"), ("unrounded", 0, "unrounded"),
                                     ("unrounded", "true", "unrounded"), ("unrounded", None, "unrounded"),
                                     ("applied_inv_freq", [1.0], "applied_inv_freq"),
                                     ("applied_inv_freq", ["1"] * PAIRS, "applied_inv_freq"),
                                     ("applied_inv_freq", 1.0, "applied_inv_freq")):
            refused(write(folder, dict(good, **{member: wrong})), words)
        for wrong in (1e-30, -0.1):
            refused(write(folder, dict(good, applied_inv_freq=good["applied_inv_freq"][:-1] + [wrong])),
                    f"applied_inv_freq[7] is {wrong}")
        for wrong in (1e-30, -0.1, math.nan, math.inf):
            values = np.array(good["applied_inv_freq"])
            values[3] = wrong
            refused(write_h5(folder, good, applied_inv_freq=values), f"applied_inv_freq[3] is {wrong}")
        for exchange, words in (({"unrounded": np.uint8(2)}, "unrounded is 2"), ({"unrounded": np.int8(-1)}, "unrounded is -1"),
                                ({"unrounded": np.arange(2)}, "unrounded"),
                                ({"applied_inv_freq": np.ones(PAIRS - 1)}, "applied_inv_freq"),
                                ({"applied_inv_freq": np.float64(1)}, "applied_inv_freq")):
            refused(write_h5(folder, good, **exchange), words)
        for name in {"unrounded", "applied_inv_freq", *TEMPERATURE} - {"head_scale"}:
            refused(write(folder, {key: value for key, value in good.items() if key != name}), name)
            refused(write_h5(folder, good, skip=(name,)), name)
    # Pairs that do not rotate have no frequency that could be applied.
    part = dict(yarn(), inv_freq=table()["inv_freq"][:5] + [0.0] * 3)
    refused(write(folder, part), "applied_inv_freq[5]")
    part = dict(part, applied_inv_freq=part["applied_inv_freq"][:5] + [0.0] * 3)
    assert load_table(write(folder, part)).rotating_pairs() == 5
    subprocess.run([PROBE, "check", os.path.join(folder, "table.json")], check=True)
    # A table of frequencies has none of it.
    factors = dict(warm(table(scales=ONES, top_k=PAIRS), log_n_length=0, **dict.fromkeys(FACTORS, 1.0)), moves="frequencies", local_window=0,
                   near_rule="none", rounding="none", adapter_required=False)
    scales = factors.pop("head_scale")
    subprocess.run([PROBE, "check", write(folder, factors)], check=True)
    assert subprocess.run([PROBE, "check", write(folder, dict(factors, head_scale=scales))]).returncode == 65
    for name in ("unrounded", "applied_inv_freq"):
        refused(write(folder, dict(factors, **{name: yarn()[name]})), "needs no adapter")
    for name in FACTORS:
        deep = write(folder, dict(factors, **{name: 1.5}))
        refused(deep, "needs no adapter")
        assert subprocess.run([PROBE, "check", deep], check=False, capture_output=True).returncode != 0


def test_hostile_bands(folder):
    """Each number of a row outside of what it may be, in JSON and in HDF5."""
    row = 11 + 2 * PAIRS
    for good in BANDED.values():
        assert load_table(write(folder, good)).schema_version == "9.0.0"
        subprocess.run([PROBE, "check", write(folder, good)], check=True)
        for change, words in (({"bands": good["bands"][:-1]}, "bands"), ({"bands": good["bands"] * 5}, "bands"),
                              ({"bands": 1.0}, "bands"), ({"bands": ["1"] * len(good["bands"])}, "bands"),
                              ({"unrounded": True}, "bands"), ({"scale_factor": [2.0]}, "bands"),
                              ({"group_edge": [0, 3, PAIRS], "scale_factor": [1.0, 3.0], "effective_length": [9.0, 9.0]}, "bands")):
            refused(write(folder, dict(good, **change)), words)
        for place, wrong in ((0, 3), (0, 0.5), (0, -1), (1, -1), (1, 0.5), (2, 0.5), (2, -2), (3, -1), (3, 2.5), (4, 1), (4, 0.5),
                             (5, 2), (5, 0.5), (6, -1), (6, 0.5), (7, -1), (8, 1), (8, -3), (8, 3.5), (9, -1), (10, -1), (10, 0.5),
                             (11, 0.5), (11, -2), (11, 2.0 ** 41), (11 + PAIRS, 2.0 ** 41), (row, 3), (row + 1, -1)):
            bands = list(good["bands"])
            bands[place] = wrong
            refused(write(folder, dict(good, bands=bands)), "bands")
            if place in (1, 9, 11):
                for odd in (math.nan, math.inf):
                    bands[place] = odd
                    refused(write_h5(folder, good, bands=np.array(bands)), "bands")
    assert load_table(write(folder, dict(leaky(), schema_version="9.0.0", bands=[]))).bands is None


def test_evidence(folder):
    """The adapter says of a table what dpe-export says."""
    needles = {"evidence_task": "needles: 2 keys of 3 values", "evidence_score": 0.875, "evidence_low": 0.8, "evidence_high": 0.951,
               "evidence_samples": 17, "evidence_unchanged": 0.125, "evidence_possible": 0.99, "evidence_rival": "self-extend",
               "evidence_rival_score": 0.5, "evidence_short_loss": 0.0}
    nats = dict(needles, evidence_task="perplexity", evidence_score=12.3456, evidence_low=-1.0, evidence_high=-1.0,
                evidence_unchanged=1e3, evidence_possible=-1.0, evidence_rival="none", evidence_rival_score=-1.0,
                evidence_short_loss=0.03125)
    assert load_table(write(folder, table())).evidence() == ""
    for evidence in (needles, nats):
        path = write(folder, dict(table(), **evidence))
        shown = subprocess.run([EXPORT, "--show", path], check=True, stdout=subprocess.PIPE, text=True).stdout
        assert load_table(path).evidence() and f" {load_table(path).evidence()}\n" in shown, (load_table(path).evidence(), shown)
        again = os.path.join(folder, "measured.h5")
        subprocess.run([EXPORT, path, "--force", "-o", again], check=True, stdout=subprocess.DEVNULL)
        assert load_table(again).evidence() == load_table(path).evidence()
    for name, wrong in (("evidence_task", "\x1b[31m"), ("evidence_rival", ""), ("evidence_rival", None), ("evidence_samples", 0),
                        ("evidence_score", -1), ("evidence_short_loss", -2)):
        refused(write(folder, dict(table(), **dict(needles, **{name: wrong}))), name)
    refused(write(folder, dict(table(), evidence_task="perplexity")), "evidence_score")


def test_hostile_json(folder):
    assert load_table(write(folder, table())).top_k == 5
    for path, value, words in HOSTILE:
        refused(write(folder, changed(path, value)), words)
    refused(write(folder, {"model_type": "llama", "rope_theta": 10000.0}), "without this adapter")
    good = json.dumps(table())
    for text, words in (("", "cannot be read"), (good[:-9], "cannot be read"), ("[]", "schema_name"),
                        (good.replace("3.5", "NaN"), "NaN"), (good.replace("3.5", "1e999"), ""),
                        (good.replace("3.5", "-Infinity"), "Infinity"),
                        (good[:-1] + ', "top_k": 5}', "twice"), ("[" * 100000, "cannot be read"),
                        (good.replace('"top_k": 5', '"top_k": ' + "9" * 5000), "")):
        refused(write(folder, text), words)
    with open(write(folder, good), "r+b") as file:
        file.write(b"\xff\xfe")
    refused(os.path.join(folder, "table.json"), "cannot be read")
    try:
        load_table(os.path.join(folder, "nothing"))
    except TableError as error:
        assert "nothing" in str(error)
    else:
        raise AssertionError("a missing file was accepted")


def write_h5(folder, value, skip=(), **exchange):
    """The same table in the HDF5 form (outputs/SCHEMA.md)."""
    path = os.path.join(folder, "table.h5")
    model = value["model"]
    mask = np.zeros((LAYERS, HEADS, PAIRS), np.uint8)
    for layer, heads in enumerate(value["key_pairs"]):
        for head, pairs in enumerate(heads):
            mask[layer, head, pairs] = 1
    sets = {name: np.int64(value[name]) for name in
            ("trained_length", "evaluated_length", "local_window", "top_k")}
    sets.update(mask=mask, attention_scaling=value["attention_scaling"],
                group_edge=np.array(value["group_edge"], np.int32),
                effective_length=np.array(value["effective_length"], np.int64),
                scale_factor=np.array(value["scale_factor"]), inv_freq=np.array(value["inv_freq"]))
    sets.update({name: value[name] for name in TEMPERATURE if name in value})
    if np.size(sets.get("head_scale", 0)) == LAYERS * HEADS:
        sets["head_scale"] = np.reshape(sets["head_scale"], (LAYERS, HEADS))
    if "unrounded" in value:
        sets.update(unrounded=np.uint8(value["unrounded"]), applied_inv_freq=np.array(value["applied_inv_freq"]))
    if value.get("bands"):
        sets.update(bands=np.array(value["bands"]))
    sets.update(exchange)
    with h5py.File(path, "w") as file:
        file.attrs["schema_name"] = "dpe-table"
        file.attrs["schema_version"] = value["schema_version"]
        for name, data in sets.items():
            if name not in skip:
                file[f"table/{name}"] = data
        for name in ("near_rule", "angle_precision"):
            file["table"].attrs[name] = value[name]
        file["table"].attrs["rounding"] = "separable: explained here"
        file["table"].attrs["pair_layout"] = np.bytes_("half-split: fixed length")
        for name in ("n_layers", "n_heads", "n_kv_heads", "head_dim"):
            file.require_group("model").attrs[name.replace("n_", "", 1)] = np.int64(model[name])
        for name in ("model_type", "fingerprint"):
            file["model"].attrs[name] = model[name]
    add_checksum(path)
    return path


def test_hdf5(folder):
    for good in (table(), warm(table()), leaky(), yarn(), method(table(), unrounded=True, base=1e6), *BANDED.values()):
        from_json = load_table(write(folder, good))
        path = write_h5(folder, good)
        from_h5 = load_table(path)
        for name, value in vars(from_json).items():
            assert name in ("digest", "path") or np.array_equal(getattr(from_h5, name), value), name
        assert from_h5.digest != from_json.digest
        subprocess.run([PROBE, "check", path], check=True)
    bare = write_h5(folder, table(), skip=("mask", "top_k"))
    assert load_table(bare).mask is None and load_table(bare).top_k == PAIRS
    subprocess.run([PROBE, "check", bare], check=True)
    bad = np.ones((LAYERS, HEADS, PAIRS), np.uint8)
    for exchange, words in (({"scale_factor": np.array([1, np.nan, 2])}, "scale_factor[1]"),
                            ({"inv_freq": np.full(PAIRS, np.inf)}, "inv_freq[0]"),
                            ({"mask": bad[:, 1:]}, "mask"), ({"mask": bad}, "marks 8"),
                            ({"mask": bad * 2}, ""), ({"top_k": np.int64(9)}, "top_k is 9"),
                            ({"local_window": np.int64(0)}, "window"), ({"local_window": np.float64(9.9)}, "local_window"),
                            ({"mask": bad * 0.7}, "mask"), ({"group_edge": np.array([0, 2.5, 5, PAIRS])}, "group_edge"),
                            ({"local_window": np.arange(2)}, "local_window"),
                            ({"scale_factor": np.float64(2)}, "scale_factor")):
        refused(write_h5(folder, table(), **exchange), words)
    refused(write_h5(folder, table(), skip=("scale_factor",)), "scale_factor")
    path = write_h5(folder, table())
    with open(path, "rb") as file:
        whole = file.read()
    with open(path, "wb") as file:
        file.write(whole[:-24])
    refused(path, "no checksum at its end")
    assert load_table(path, unchecked=True).mask is not None
    for at in (100, len(whole) // 2, len(whole) - 14, len(whole) - 3):
        with open(path, "wb") as file:
            file.write(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        refused(path, "is damaged")
    path = write_h5(folder, table())
    with h5py.File(path, "r+") as file:
        file.attrs["schema_version"] = "10.0.0"
    add_checksum(path)
    refused(path, "10.0.0")
    path = write_h5(folder, table())
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)
    add_checksum(path)
    refused(path, "cannot be read")


def test_what_lies_elsewhere_is_refused(folder):
    """Links and datasets that point to another file or object, also where what they point to would be right."""
    os.rename(write_h5(folder, table()), whole := os.path.join(folder, "whole.h5"))

    def soft(file, name):
        file.move(name, "elsewhere")
        file[name] = h5py.SoftLink("/elsewhere")

    def external(file, name):
        del file[name]
        file[name] = h5py.ExternalLink(whole, name)

    def dangling(file, name):
        del file[name]
        file[name] = h5py.ExternalLink(os.path.join(folder, "nowhere.h5"), name)

    def stored(file, name):
        data = file[name][()]
        del file[name]
        data.tofile(raw := os.path.join(folder, "raw"))
        file.create_dataset(name, data.shape, data.dtype, external=[(raw, 0, data.nbytes)])

    def virtual(file, name):
        data = file[name]
        layout = h5py.VirtualLayout(data.shape, data.dtype)
        layout[...] = h5py.VirtualSource(whole, name, data.shape)
        del file[name]
        file.create_virtual_dataset(name, layout)

    places = [(name, way) for name in ("table", "model", "table/top_k") for way in (soft, external, dangling)]
    places += [(name, way) for name in ("table/mask", "table/inv_freq", "table/group_edge")
               for way in (soft, external, dangling, stored, virtual)]
    for name, way in places:
        path = write_h5(folder, table())
        with h5py.File(path, "r+") as file:
            way(file, name)
        add_checksum(path)
        refused(path, "points to another file")
    # What a table can do without is not left out where its link leads nowhere.
    path = write_h5(folder, dict(leaky(), schema_version="9.0.0"))
    with h5py.File(path, "r+") as file:
        file["table/bands"] = h5py.ExternalLink(os.path.join(folder, "nowhere.h5"), "table/bands")
    add_checksum(path)
    refused(path, "points to another file")


def test_chunks_that_dpe_does_not_write_are_refused(folder):
    data = h5py.File(write_h5(folder, table()), "r")["table/mask"][()]
    for good, kind in ((True, dict(chunks=data.shape, compression="gzip", shuffle=True, fletcher32=True)),
                       (False, dict(chunks=data.shape, compression="lzf")),
                       (False, dict(chunks=(1 << 10, 1 << 10, 8), maxshape=(None, None, None), compression="gzip"))):
        path = write_h5(folder, table())
        with h5py.File(path, "r+") as file:
            del file["table/mask"]
            file.create_dataset("table/mask", data.shape, data.dtype, **kind)
            if good:
                file["table/mask"][...] = data
        add_checksum(path)
        if good:
            load_table(path)
        else:
            refused(path, "expected chunks of at most 64 KiB")
    path = write_h5(folder, table())
    with h5py.File(path, "r+") as file:
        del file["table/mask"]
        bomb = file.create_dataset("table/mask", data.shape, data.dtype, chunks=data.shape, compression="gzip")
        bomb.id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(4 << 20)))
    add_checksum(path)
    refused(path, "expected chunks of at most 64 KiB")


def test_what_is_stored_short_is_refused(folder):
    """HDF5 gives out memory in the place of what is missing, with no error: the same as test_inside.c in Python."""
    data = h5py.File(write_h5(folder, table()), "r")["table/mask"][()]
    raw, packed = data.tobytes(), zlib.compress(data.tobytes())
    deflate, checked = dict(compression="gzip"), dict(compression="gzip", fletcher32=True)
    for good, kind, chunk, mask in (
            (True, {}, raw, 0), (False, {}, raw[:-1], 0), (False, {}, raw[:5], 0),
            (False, {}, raw + b"\0", 0), (False, {}, raw + b"\1" * 60, 0),
            (True, deflate, packed, 0), (False, deflate, raw, 1), (False, deflate, raw[:9], 1),
            (False, deflate, zlib.compress(raw[:-1]), 0), (False, deflate, zlib.compress(b""), 0),
            (False, deflate, zlib.compress(raw + b"\1"), 0), (False, deflate, packed[:-1], 0), (False, deflate, b"\0" * 20, 0),
            (False, checked, packed, 0), (False, checked, packed + b"\0" * 4, 2), (True, dict(deflate, track_times=False), None, 0),
            (False, dict(fillvalue="never"), None, 0)):
        path = write_h5(folder, table())
        never = kind.get("fillvalue") == "never"
        with h5py.File(path, "r+") as file:
            del file["table/mask"]
            if never:
                created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                created.set_chunk(data.shape)
                created.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
                h5py.h5d.create(file["table"].id, b"mask", h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple(data.shape), created)
            else:
                one = file.create_dataset("table/mask", data.shape, data.dtype, chunks=data.shape, **kind)
                if chunk is not None:
                    one.id.write_direct_chunk((0, 0, 0), chunk, mask)
        add_checksum(path)
        if good and chunk is not None:
            load_table(path)
        elif good:  # nothing stored: zeros, which mark too few pairs
            refused(path, "marks 0 pairs")
        else:
            refused(path, "as many bytes as the shape says", c_too=False)


def test_no_lock_is_needed(folder):
    """Its writer can still hold a lock of a table; where a lock is asked for, HDF5's reason is named."""
    path = write_h5(folder, table())
    with open(path, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        load_table(path)
        subprocess.run([PROBE, "check", path], check=True)
        c = subprocess.run([PROBE, "check", path], stderr=subprocess.PIPE, env=dict(os.environ, HDF5_USE_FILE_LOCKING="TRUE"))
        assert c.returncode == 65 and b"unable to lock file" in c.stderr, c
        for form in ("h5", "json"):  # the tools do not ask for one
            subprocess.run([EXPORT, path, "-o", os.path.join(folder, "again." + form)], check=True, stdout=subprocess.DEVNULL,
                           env=dict(os.environ, HDF5_USE_FILE_LOCKING="TRUE"))


def test_what_is_no_file_is_refused_at_once(folder):
    os.mkfifo(fifo := os.path.join(folder, "fifo"))
    for path in (fifo, "/dev/zero", folder):
        try:
            load_table(path)
        except TableError as error:
            assert path in str(error)
        else:
            raise AssertionError(path)


def test_written_by_dpe_export(folder):
    """Both forms as the tool writes them, not as this file thinks it does."""
    written_by_dpe_export(folder, table(scaling=1.1), "a")
    written_by_dpe_export(folder, warm(table(scaling=1.1)), "b")
    written_by_dpe_export(folder, leaky(), "c")
    written_by_dpe_export(folder, yarn(), "d")
    written_by_dpe_export(folder, method(table(scaling=1.1), unrounded=True, base=1e6), "e")


def written_by_dpe_export(folder, value, stem):
    ours = write(folder, value)
    expected = vars(load_table(ours))
    for name in (stem + ".h5", stem + ".safetensors", stem + "2.h5", stem + ".json"):
        path = os.path.join(folder, name)
        subprocess.run([EXPORT, ours, "-o", path], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        if name.endswith(".safetensors"):
            ours = path
            continue
        found = vars(load_table(path))
        for key, value in expected.items():
            # The HDF5 form is of the writer's minor version, which may be newer than its source's.
            assert key in ("schema_version", "digest", "path") or np.array_equal(found[key], value), (name, key)
        ours = path


def several(methods=False):
    """A table of three entries in the JSON form: other windows, scales, pairs and temperatures; or other methods."""
    entries = [dict(table(9, (1.0, 2.0, 3.0)), evaluated_length=128),
               dict(leaky() if methods else warm(table(12)), evaluated_length=256),
               dict(yarn() if methods else warm(table(16, (2.0, 4.0, 8.0), PAIRS), log_n_length=0), evaluated_length=512)]
    own = ("trained_length", "evaluated_length", "local_window", "top_k", "group_edge",
           "effective_length", "scale_factor", "attention_scaling", "inv_freq", "key_pairs")
    own += tuple(TEMPERATURE) + (("unrounded", "applied_inv_freq") if methods else ())
    root = {name: value for name, value in entries[0].items() if name not in own}
    root["entries"] = [{name: value for name, value in dict(method(entry), **entry).items() if name in own}
                       for entry in entries]
    return root, entries


def test_hf_form_of_families(folder):
    """Where the rotation lies in text_config, in one block for each kind of layer, or in both schemas: the table is
    the one that was exported, and the engine computes what it computes without it."""
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../golden/families")
    ids = np.arange(3, 23, dtype=np.int32)
    for name, layers, heads, kv in (("mistral3", 2, 4, 2), ("gemma3", 3, 4, 2), ("olmo3", 4, 4, 2), ("granite", 2, 4, 2)):
        model = shutil.copytree(os.path.join(golden, name), os.path.join(folder, name))
        config = os.path.join(model, "config.json")
        with open(config, encoding="utf-8") as file:
            values = json.load(file)
        if name == "granite":
            values["rope_scaling"] = values["rope_parameters"]
            write(model, values, "config.json")
        fingerprint, scaling, *inv_freq = subprocess.run(
            [PROBE, "rotation", model, "64"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        text = values.get("text_config", values)
        pairs = len(inv_freq)
        made = dict(table(), group_edge=[0, 1, 2, pairs], attention_scaling=float(scaling), top_k=pairs, trained_length=32,
                    model={"model_type": text["model_type"], "fingerprint": fingerprint, "n_layers": layers,
                           "n_heads": heads, "n_kv_heads": kv, "head_dim": 2 * pairs},
                    inv_freq=[float(one) for one in inv_freq],
                    key_pairs=[[list(range(pairs))] * heads] * layers)
        made = method(made, unrounded=True, base=1e5) if name in ("mistral3", "granite") else made
        path = write(folder, made)
        ids.tofile(os.path.join(folder, "ids"))
        logits = []
        for exported in (False, True):
            subprocess.run([PROBE, "logits", model, path, os.path.join(folder, "ids"), os.path.join(folder, "out")], check=True)
            logits.append(np.fromfile(os.path.join(folder, "out"), np.float32))
            if not exported:
                subprocess.run([EXPORT, path, "--format", "hf", "-m", model, "-o", config + ".new"], check=True,
                               stdout=subprocess.DEVNULL)
                os.replace(config + ".new", config)
        assert np.array_equal(*logits), name
        # It is the model that it was, for the tools and the adapter.
        found = subprocess.run([PROBE, "rotation", model, "64"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        assert found[0] == fingerprint == fingerprint_of(model) and found[1:] == [scaling] + inv_freq, name
        same_table(load_table(path), load_table(config))
        subprocess.run([PROBE, "check", config], check=True)
        with open(config, encoding="utf-8") as file:
            assert file.read().count('"rope_type": "dpe"') == 1, name


def same_table(a, b):
    for name, value in vars(a).items():
        assert name in ("schema_version", "digest", "path", "_entries") or np.array_equal(getattr(b, name), value), name


def test_several_entries(folder):
    """The entry that a length chooses is the table of that entry alone, in every form."""
    for methods in (False, True):
        os.mkdir(os.path.join(folder, str(methods)))
        several_entries(os.path.join(folder, str(methods)), *several(methods))


def several_entries(folder, root, alone):
    alone = [load_table(write(folder, one, "one.json")) for one in alone]
    ours = write(folder, root, "several.json")
    for name in ("several.json", "several.h5", "several.safetensors", "back.h5", "back.json"):
        path = os.path.join(folder, name)
        if name != "several.json":
            subprocess.run([EXPORT, ours, "-o", path], check=True, stdout=subprocess.DEVNULL)
        ours = path
        if name.endswith(".safetensors"):
            continue
        loaded = load_table(path)
        assert len(loaded.entries) == 3
        subprocess.run([PROBE, "check", path], check=True)
        for tokens, entry in ((1, None), (64, None), (65, 0), (128, 0), (129, 1), (256, 1), (257, 2),
                              (512, 2), (9999, 2)):
            chosen = loaded.choose(tokens)
            if entry is None:
                assert chosen is None
            else:
                same_table(alone[entry], chosen)
        same_table(alone[2], loaded)
        assert alone[0].choose(64) is None and alone[0].choose(65) is alone[0].choose(9999)
    rng = np.random.default_rng(7)
    q = torch.from_numpy(rng.standard_normal((1, HEADS, 60, DIM), np.float32) * 2)
    k, v = torch.from_numpy(rng.standard_normal((2, 1, KV_HEADS, 60, DIM), np.float32) * 2)
    found = [Attention(entry)(q, k, v, 0).numpy() for entry in loaded.entries]
    for i, entry in enumerate(alone):
        assert np.array_equal(found[i], Attention(entry)(q, k, v, 0).numpy())
        assert i == 0 or spread_error(found[i], found[i - 1]) > 1e-3


def test_entries_that_disagree(folder):
    def with_(i, methods=False, **members):
        root, _ = several(methods)
        root["entries"][i].update(members)
        return root

    for value, words in ((with_(1, trained_length=32), "trained"),
                         (with_(1, group_edge=[0, 3, 5, PAIRS]), "group_edge"),
                         (with_(1, evaluated_length=512), "two entries for 512"),
                         (with_(0, evaluated_length=64), "would never be used"),
                         (with_(2, local_window=0), "entry for 512 tokens"),
                         (with_(2, log_n_length=1), "log_n_length is 1"),
                         (with_(0, top_k="5"), "top_k"),
                         (with_(1, unrounded=True), "applied_inv_freq"),
                         (with_(1, True, unrounded=2), "unrounded"),
                         (with_(2, True, applied_inv_freq=[-1.0] * PAIRS), "512 tokens: applied_inv_freq[0] is -1.0"),
                         (with_(0, group_edge=[0, PAIRS], scale_factor=[1], effective_length=[64]),
                          "groups")):
        refused(write(folder, value), words)
    root, _ = several()
    for change, words in (({"entries": []}, "1 to 64 entries"), ({"entries": {}}, "entries"),
                          ({"entries": [1]}, "trained_length"),
                          ({"entries": root["entries"] * 30}, "1 to 64 entries"),
                          ({"schema_version": "2.0.0"}, "make the table again")):
        refused(write(folder, dict(root, **change)), words)
    path = os.path.join(folder, "several.h5")
    first = write(folder, root, "several.json")
    methods = write(folder, several(True)[0], "methods.json")

    def version(number):
        return lambda file: file.attrs.__setitem__("schema_version", number)

    for source, change, words in (
            (first, lambda file: file.move("table/256", "table/300"), "256"),
            (first, lambda file: file["table/256/evaluated_length"].__setitem__((), 300), "evaluated_length"),
            (first, lambda file: file["table/length"].__setitem__(1, -5), "-5"),
            (first, lambda file: file["table/256/group_edge"].__setitem__(1, 1), "group_edge"),
            (first, version("3.0.0"), "make the table again"),
            (first, lambda file: file["table/length"].__setitem__(0, 300), "increase"),
            (first, lambda file: file["table/512/inv_freq"].__setitem__(1, 0.9), "disagree on inv_freq"),
            (methods, lambda file: file.__delitem__("table/256/unrounded"), "unrounded"),
            (methods, lambda file: file["table/256/unrounded"].__setitem__((), 2), "256 tokens: unrounded is 2"),
            (methods, lambda file: file["table/512/applied_inv_freq"].__setitem__(1, -1), "512 tokens: applied_inv_freq[1]")):
        subprocess.run([EXPORT, source, "-o", path, "--force"], check=True, stdout=subprocess.DEVNULL)
        with h5py.File(path, "r+") as file:
            change(file)
        add_checksum(path)
        refused(path, words)


def test_another_model(folder):
    loaded = load_table(write(folder, table()))
    sizes = dict(n_layers=LAYERS, n_heads=HEADS, n_kv_heads=KV_HEADS, head_dim=DIM)
    loaded.check_model("llama", **sizes)
    loaded.check_frequencies(np.float32(loaded.inv_freq), 1.0)
    # Of a model are its own frequencies, not those that a table has in their place.
    other = load_table(write(folder, yarn(), "yarn.json"))
    other.check_frequencies(np.float32(other.inv_freq), 1.0)
    wrong = [lambda: loaded.check_model("qwen2", **sizes),
             lambda: other.check_frequencies(other.applied_inv_freq, 1.0),
             lambda: loaded.check_frequencies(loaded.inv_freq ** 1.1, 1.0),
             lambda: loaded.check_frequencies(loaded.inv_freq[1:], 1.0),
             lambda: loaded.check_frequencies(loaded.inv_freq, 1.2)]
    wrong += [lambda name=name: loaded.check_model("llama", **dict(sizes, **{name: 3}))
              for name in sizes]
    for attempt in wrong:
        try:
            attempt()
        except TableError as error:
            assert "was made for a model" in str(error) and os.path.basename(folder) in str(error), error
        else:
            raise AssertionError("another model was accepted")
    core = Attention(loaded)
    for q, k, layer in (((1, HEADS, 3, DIM), (1, HEADS, 3, DIM), 0),
                        ((1, HEADS, 4, DIM), (1, KV_HEADS, 3, DIM), 0),
                        ((1, HEADS, 3, DIM), (1, KV_HEADS, 3, DIM), LAYERS)):
        try:
            core(torch.zeros(q), torch.zeros(k), torch.zeros(k), layer)
        except ValueError as error:
            assert "do not fit" in str(error)
        else:
            raise AssertionError(f"accepted q {q} k {k} layer {layer}")


def test_trained_lengths(_):
    """The rule of dpe_config_trained, on the rows of trained_lengths in engine/model/test_config.c."""
    chunks = {"chunk_size": 128, "original_max_position_embeddings": 96}
    for trained, longest, more in ((96, 512, {"dual_chunk_attention_config": chunks}),
                                   (128, 512, {"dual_chunk_attention_config": {"chunk_size": 128}}),
                                   (512, 512, {}), (32768, 40960, {"model_type": "qwen3"}), (32768, 40960, {"model_type": "qwen3_moe"}),
                                   (40961, 40961, {"model_type": "qwen3"}), (40960, 40960, {"model_type": "llama"}),
                                   (40000, 40960, {"model_type": "qwen3", "dpe_trained_length": 40000})):
        found = trained_length_of(types.SimpleNamespace(max_position_embeddings=longest, **more))
        assert found == trained, (found, trained, longest, more)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as scratch:
                test(scratch)
            print("passed:", name)

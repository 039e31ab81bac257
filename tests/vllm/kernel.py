#!/usr/bin/env python3
"""The kernel of plans against dpe_attention, in Triton's interpreter: kernel.py BIN MODEL [METHOD...]. On a card, where it is compiled:
tests/gpu/triton_plans.py."""
import os
import random
import subprocess
import sys
import tempfile

os.environ["TRITON_INTERPRET"] = "1"
import numpy as np  # noqa: E402
import torch  # noqa: E402

from dpe_attention import Attention, Tokens, load_table  # noqa: E402
from dpe_plan import CHUNK, DISTANCE, KEY, NO_END, Band, Map, Plan  # noqa: E402
from dpe_vllm import kernel  # noqa: E402

torch.set_num_threads(1)
# Of the largest difference over the spread of the result.
CLOSE = {torch.float32: 2e-6, torch.float16: 4e-3}


class Batch:
    """Texts of (tokens, rows, plan's number), their pages in a shuffled order in a cache that holds NaN elsewhere."""

    def __init__(self, texts, heads, kv_heads, dim, size=16, dtype=torch.float32):
        self.texts = texts
        self.data = [[torch.randn(count, n, dim) for count, n in ((rows, heads), (tokens, kv_heads), (tokens, kv_heads))]
                     for tokens, rows, _ in texts]
        pages = [-(-tokens // size) for tokens, _, _ in texts]
        shuffled = torch.randperm(sum(pages)).split(pages)
        self.cache = torch.full((sum(pages) + 1, kv_heads, size, 2 * dim), float("nan"), dtype=dtype)
        self.blocks = torch.zeros(len(texts), max(pages) + 1, dtype=torch.int32)
        for i, (_, k, v) in enumerate(self.data):
            self.blocks[i, :pages[i]] = shuffled[i]
            at = torch.arange(len(k))
            self.cache[shuffled[i][at // size], :, at % size] = torch.cat((k, v), dim=-1).to(dtype)
        self.starts = torch.tensor([0] + [rows for _, rows, _ in texts]).cumsum(0).int()
        self.lengths, _, self.numbers = torch.tensor(texts, dtype=torch.int32).T.contiguous()
        self.q = torch.cat([q for q, _, _ in self.data]).to(dtype)

    def attend(self, plans, layer, **more):
        dim = self.q.shape[2]
        out = torch.full(self.q.shape, 7.0, dtype=more.pop("dtype", self.q.dtype))
        kernel.attend(plans, out, self.q, self.cache[..., :dim], self.cache[..., dim:], self.blocks, self.starts, self.lengths,
                      self.numbers, max(rows for _, rows, _ in self.texts), layer, dim ** -0.5, **more)
        return out

    def exact(self, plans, layer, order=None, cap=0.0, sinks=None, moves=True, window=0):
        parts = []
        for (tokens, _, number), data in zip(self.texts, self.data):
            q, k, v = (x.to(self.q.dtype).float().transpose(0, 1)[None] for x in data)
            plan = plans[number - 1] if moves else plans[0].still(window)
            parts.append(torch.full_like(data[0], 7.0) if number == 0 else
                         Attention(plan, order=order, keep_keys=False).attend(q, Tokens(k, v), tokens, layer, None, cap,
                                                                              sinks)[0].transpose(0, 1))
        return torch.cat(parts)


def error_of(found, expected):
    spread = float(expected.max() - expected.min())
    return float((found.float() - expected).abs().max()) / spread


def check(what, batch, plans, layer, dtype=torch.float32, order=None, splits=(None,), **more):
    made = kernel.Plans(plans, max(tokens for tokens, _, _ in batch.texts), order, torch.device("cpu"))
    expected = batch.exact(plans, layer, order, **more)
    for count in splits:
        error = error_of(batch.attend(made, layer, splits=count, **more), expected)
        assert error <= CLOSE[dtype], (what, count, error)
    print(f"{what}: within {error:.1e} of the spread", flush=True)


def some_plan(rng, layers, heads, kv_heads, dim):
    """One to four bands of any kind, which may overlap or leave keys unseen; the first tokens are always seen."""
    pairs, chunk, at, bands = dim // 2, rng.randint(3, 40), 0, []

    def a_map():
        cap, period = rng.choice((float("inf"), 40.0)), rng.choice((float("inf"), 24.0))
        return Map([rng.choice((1.0, 2.0, 3.5, float("inf"))) for _ in range(pairs)], [rng.randint(0, 9) for _ in range(pairs)],
                   rng.random() < 0.5, period, cap)

    for i in range(rng.randint(1, 4)):
        kind = rng.choice((DISTANCE, DISTANCE, CHUNK, KEY))
        low = at if kind == DISTANCE else rng.randint(0, 5)
        high = low + rng.randint(1, 60)
        at = high if kind == DISTANCE else at
        bands.append(Band(kind, low, rng.choice((high, NO_END)), i > 0 and rng.random() < 0.6, a_map(), a_map()))
    bands[-1:] = [bands[-1], Band(DISTANCE, 0, NO_END, False, a_map(), a_map())][:max(1, 5 - len(bands))][-2:]
    if len(bands) == 4 and bands[-1].hi != NO_END:
        bands[-1] = Band(DISTANCE, 0, NO_END, False, a_map(), a_map())
    still_pairs = rng.randint(0, pairs // 2)
    frequencies = np.array([100.0 ** (-j / pairs) for j in range(pairs)])
    frequencies[pairs - still_pairs:] = 0
    mask = np.array([rng.random() < 0.6 for _ in range(layers * heads * pairs)]).reshape(layers, heads, pairs)
    return Plan(bands, frequencies, (layers, heads, kv_heads, dim), 1 + rng.random(), rng.choice((0.0, 30.0)), 1.5, 0.0, still_pairs,
                0.9, chunk, mask if rng.random() < 0.5 else None, (0.8, 1.3, 1.0),
                np.array([0.5 + rng.random() for _ in range(layers * heads)]).reshape(layers, heads))


def check_random(seed, dim, dtype=torch.float32):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kv_heads, group, layers = rng.choice((1, 2)), rng.choice((1, 2, 3)), 2
    heads = kv_heads * group
    plans = [some_plan(rng, layers, heads, kv_heads, dim) for _ in range(3)]
    order = None if rng.random() < 0.5 else [j + half for half in (0, 1) for j in range(0, dim, 2)]
    if order is not None:
        assert sorted(order) == list(range(dim))
    # Parts of prompts, single tokens and drafts, and texts that are not the kernel's.
    prompts = [(rng.randint(60, 200), rng.randint(1, 40), rng.randint(0, 3)) for _ in range(2)] + [(1, 1, 1), (140, 140, 2)]
    decoded = [(rng.randint(5, 300), rng.randint(1, 4), rng.randint(0, 3)) for _ in range(2)] + [(290, 1, 3)]
    sinks = None if rng.random() < 0.5 else torch.randn(heads)
    cap = rng.choice((0.0, 3.0))
    for name, texts, splits in (("prompts", prompts, (None,)), ("decoded", decoded, (1, 3))):
        batch = Batch(texts, heads, kv_heads, dim, rng.choice((16, 32)), dtype)
        check(f"{name}, {heads} heads on {kv_heads} of {dim}, {str(dtype)[6:]}, {[len(one.bands) for one in plans]} bands", batch,
              plans, 1, dtype, order, splits, cap=cap, sinks=sinks)
    check("a layer that does not move, in a window", batch, plans, 0, dtype, None, (2,), moves=False, window=37)


def check_fp8(seed):
    """Keys before rotation in FP8, with scales, against the exact path over what FP8 keeps of them, and over the float keys."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    plans = [some_plan(rng, 1, 4, 2, 64)]
    scales = tuple(torch.tensor([x]) for x in (0.5, 0.25, 2.0))
    batch = Batch([(300, 1, 1), (120, 50, 1)], 4, 2, 64)
    exact = batch.exact(plans, 0)
    dim = 64
    parts = [batch.cache[..., :dim] / scales[1], batch.cache[..., dim:] / scales[2]]
    batch.cache = torch.cat(parts, dim=-1).to(torch.float8_e4m3fn)
    batch.q = (batch.q / scales[0]).to(torch.float8_e4m3fn)
    for data in batch.data:
        data[:] = [(x / scale).to(torch.float8_e4m3fn).float() * scale for x, scale in zip(data, scales)]
    made = kernel.Plans(plans, 300, None, torch.device("cpu"))
    found = batch.attend(made, 0, scales=scales, dtype=torch.float32)
    batch.q = batch.q.float()
    kept = error_of(found, batch.exact(plans, 0))
    assert kept <= CLOSE[torch.float32], kept
    print(f"FP8: within {kept:.1e} of the spread of what it keeps, {error_of(found, exact):.1e} of the float cache", flush=True)


def check_methods(binary, model, specs):
    with tempfile.TemporaryDirectory() as folder:
        for spec in specs:
            path = os.path.join(folder, "plan.json")
            with open(path, "w", encoding="utf-8") as file:
                subprocess.run([os.path.join(binary, "dpe-run"), "-m", model, "--show-plan", "--json", "--method", spec, "--length",
                                "1024"], check=True, stdout=file)
            plan = load_table(path).entries[0].plan
            torch.manual_seed(3)
            for texts in ([(700, 40, 1), (300, 300, 1)], [(701, 1, 1), (280, 1, 1)]):
                check(spec, Batch(texts, plan.n_heads, plan.n_kv_heads, plan.head_dim), [plan], 1)


def main(binary, model, specs):
    for seed, dim in enumerate((64, 96, 128, 256, 16, 48)):
        check_random(seed, dim)
    check_random(20, 64, torch.float16)
    check_fp8(5)
    check_methods(binary, model, specs)


main(sys.argv[1], sys.argv[2], sys.argv[3:])

"""triton_plans.py OUTPUTS [LENGTH …]: the kernel of the plugin for vLLM (OUTPUTS/vllm/dpe_vllm/kernel.py) on this GPU, which needs torch
and triton alone: against PyTorch's attention for rope and the exact path for plans, then timed: prompts beside PyTorch's flash
attention, decoding beside the bytes of its keys and values and the rate of a copy; and which tiles are fastest, as kernel.TILES has
them. 32 query heads on 8 KV heads of 128 in bfloat16, pages of 16. Exit 125 without a GPU. No GPU has run it."""
import itertools
import os
import sys

try:
    import numpy as np
    import torch
    import triton
    from torch.nn.functional import scaled_dot_product_attention
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(125)
if not torch.cuda.is_available():
    sys.exit(125)
OUTPUTS, *LENGTHS = sys.argv[1:]
sys.path[:0] = [os.path.join(OUTPUTS, "transformers"), os.path.join(OUTPUTS, "vllm")]
from dpe_attention import Attention, Tokens  # noqa: E402
from dpe_plan import CHUNK, DISTANCE, KEY, NO_END, Band, Map, Plan  # noqa: E402
from dpe_vllm import kernel  # noqa: E402
from triton.testing import do_bench  # noqa: E402

HEADS, KV_HEADS, DIM, SIZE, WINDOW = 32, 8, 128, 16, 1024
PAIRS = DIM // 2
DEVICE = torch.device("cuda")


def plans():
    """rope; dpe with eight groups; the same with key pairs by head; chunks; sinks and a window."""
    one, true = np.ones(PAIRS), Map(np.ones(PAIRS), np.zeros(PAIRS))
    scale = np.repeat([2.0, 8, 2, 8, 32, 32, 16, 4], PAIRS // 8)
    far = [Map(scale, WINDOW - np.floor(WINDOW / scale), True), Map(scale, np.zeros(PAIRS), True)]
    mask = np.random.default_rng(1).random((1, HEADS, PAIRS)) < 0.75
    chunk, period = 768, [Map(one, np.zeros(PAIRS), period=768), Map(one, np.full(PAIRS, 768.0), period=768, cap=1023)]
    frequencies = 500000.0 ** (-np.arange(PAIRS) / PAIRS)

    def plan(bands, **more):
        return Plan(bands, frequencies, (1, HEADS, KV_HEADS, DIM), **more)

    def dpe():
        return [Band(DISTANCE, 0, WINDOW, False, true, true), Band(DISTANCE, WINDOW, NO_END, True, *far)]

    return {"rope": plan([Band(DISTANCE, 0, NO_END, False, true, true)]), "dpe": plan(dpe(), log_n_length=8192.0),
            "dpe, key pairs by head": plan(dpe(), mask=mask),
            "chunks": plan([Band(CHUNK, 0, 1, False, period[0], period[0]), Band(CHUNK, 1, NO_END, False, period[1], period[0])],
                           chunk=chunk),
            "sinks and a window": plan([Band(KEY, 0, 4, False, true, true), Band(DISTANCE, 0, WINDOW, False, true, true)])}


class Text:
    """The last `rows` of `tokens` tokens, their pages in a shuffled order; `copies` texts of the same."""

    def __init__(self, tokens, rows, copies=1, dtype=torch.bfloat16):
        torch.manual_seed(tokens)
        self.q, self.k, self.v = (torch.randn(count, heads, DIM, device=DEVICE, dtype=dtype)
                                  for count, heads in ((rows, HEADS), (tokens, KV_HEADS), (tokens, KV_HEADS)))
        pages = -(-tokens // SIZE)
        self.cache = torch.zeros(copies * pages, KV_HEADS, SIZE, 2 * DIM, device=DEVICE, dtype=dtype)
        self.blocks = torch.randperm(copies * pages, device=DEVICE).int().reshape(copies, pages)
        at = torch.arange(tokens, device=DEVICE)
        for blocks in self.blocks.long():
            self.cache[blocks[at // SIZE], :, at % SIZE] = torch.cat((self.k, self.v), dim=-1)
        self.rows, self.tokens, self.all = rows, tokens, self.q.repeat(copies, 1, 1)
        self.starts = torch.arange(copies + 1, device=DEVICE, dtype=torch.int32) * rows
        self.lengths = torch.full((copies,), tokens, device=DEVICE, dtype=torch.int32)
        self.out = torch.empty_like(self.all)

    def attend(self, made, number, **more):
        kernel.attend(made, self.out, self.all, *self.cache.chunk(2, dim=-1), self.blocks, self.starts, self.lengths,
                      torch.full_like(self.lengths, number), self.rows, 0, DIM ** -0.5, **more)
        return self.out

    def exact(self, plan):
        q, k, v = (x.transpose(0, 1)[None].float() for x in (self.q, self.k, self.v))
        return Attention(plan, keep_keys=False).attend(q, Tokens(k, v), self.tokens, 0)[0].transpose(0, 1)


def agree():
    """Differences over the spread of the result, in both dtypes: a part of a prompt, and single tokens in parts of their keys."""
    known = plans()
    for dtype, allowed in ((torch.float32, 4e-6), (torch.bfloat16, 4e-2)):
        for tokens, rows, copies in ((6000, 300, 1), (6000, 1, 3), (1500, 1500, 2)):
            text = Text(tokens, rows, copies, dtype)
            for name, plan in known.items():  # a call each: a plan with a mask is another form of the kernel
                made = kernel.Plans([plan], tokens, None, DEVICE)
                expected = text.exact(plan).repeat(copies, 1, 1)
                error = float((text.attend(made, 1).float() - expected).abs().max() / (expected.max() - expected.min()))
                print(f"{name}, {rows} rows of {tokens}, {str(dtype)[6:]}: {error:.1e}", flush=True)
                assert error <= allowed
    text, made = Text(4096, 4096), kernel.Plans([known["rope"]], 4096, None, DEVICE)
    angles = torch.arange(4096, device=DEVICE, dtype=torch.float32)[:, None] * torch.from_numpy(known["rope"].inv_freq).float().to(DEVICE)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def turned(x):
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    expected = scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (turned(text.q), turned(text.k), text.v)), is_causal=True,
                                            enable_gqa=True)[0].transpose(0, 1).float()
    error = float((text.attend(made, 1).float() - expected).abs().max() / (expected.max() - expected.min()))
    print(f"rope beside PyTorch's: {error:.1e}", flush=True)
    assert error <= 4e-2


def fastest(text, made, number, few):
    times = {}
    for keys, queries, warps, stages in itertools.product((32, 64, 128), (16,) if few else (64, 128), (2, 4, 8), (2, 3, 4)):
        try:
            times[keys, queries, warps, stages] = do_bench(lambda: text.attend(made, number, tiles=(keys, queries, warps, stages)))
        except triton.runtime.errors.OutOfResources:
            continue
    best = min(times, key=times.get)
    return best, times[best]


def main():
    agree()
    made = {name: kernel.Plans([plan], max(LENGTHS), None, DEVICE) for name, plan in plans().items()}
    copied = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    rate = 2 * copied.numel() / do_bench(lambda: copied.clone()) * 1e-6
    print(f"{torch.cuda.get_device_name()}, capability {torch.cuda.get_device_capability()}: a copy moves {rate:.0f} GB/s")
    for length in LENGTHS:
        text, work = Text(length, length), 2 * HEADS * DIM * length * (length + 1)
        own = [x.transpose(0, 1)[None] for x in (text.q, text.k, text.v)]
        flash = do_bench(lambda: scaled_dot_product_attention(*own, is_causal=True, enable_gqa=True))
        print(f"prompt of {length}: PyTorch {work / flash * 1e-9:.0f} TFLOP/s", flush=True)
        for name, one in made.items():
            tiles, time = fastest(text, one, 1, False)
            print(f"prompt of {length}, {name}: {work / time * 1e-9:.0f} TFLOP/s, {flash / time:.2f} of PyTorch's, tiles {tiles}", flush=True)
        text = Text(length, 1, 4)
        for name, one in made.items():
            tiles, time = fastest(text, one, 1, True)
            moved = 4 * length * KV_HEADS * DIM * 4 / time * 1e-6
            print(f"4 tokens at {length}, {name}: {time * 1e3:.0f} us, {moved:.0f} GB/s, {moved / rate:.2f} of a copy, tiles {tiles}",
                  flush=True)


LENGTHS = [int(text) for text in LENGTHS] or [8192, 32768, 131072]
main()

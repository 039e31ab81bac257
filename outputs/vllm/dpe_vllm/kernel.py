"""Attention under any position plan over a paged cache, as one Triton kernel. It needs no vLLM (tests/vllm/kernel.py).

Keys are cached once, before rotation. A plan is numbers on the device (Plans): where each band begins and ends, the rows of a
table of cosines and sines by which it rotates queries and keys, factors on the logits, key pairs by head. A program takes some
queries of one text and walks the keys of one band after another: those that all of its queries see in the band without
looking at each, and those at an edge with a comparison of distances. What a text has is read by the kernel alone, so that a
launch depends on shapes and can be kept in a CUDA graph.
"""
import math

import numpy as np
import torch
import triton
import triton.language as tl

from dpe_attention import Rotations
from dpe_plan import CHUNK, DISTANCE, KEY

from dpe_vllm.serving import NoRoom

MOST_BANDS, RECORD = 4, 10
FAR = 1 << 30  # past the end of every text


class Plans:
    """Plans by number from 1 on, as the kernel reads them; a text of number 0 is not the kernel's. Number 0's own plan leaves
    queries and keys as they are: of layers that do not move.

    bands int64 [plans, MOST_BANDS, RECORD]: kind, lo, hi, chunk, whether pairs outside the mask use the first band's maps, first
    row and step of the queries' map, the same of the keys', how many bands there are. angles float32 [rows, 2, pairs]: cosines,
    then sines, a row for each position below `capacity` of each map. temperature float32 [plans, capacity], factors float32
    [plans, layers, heads]. mask uint8 [plans, layers, heads, pairs], None: all are key pairs. beside: Plans that rotate in the same
    ways, whose angles serve these too."""

    def __init__(self, plans, capacity, order, device, beside=None):
        self.capacity, self.one, self.known = capacity, torch.ones(1, device=device), beside.known if beside else {}
        self.order = None if order is None else torch.as_tensor(order, dtype=torch.int32, device=device)
        for plan in plans:
            for one, side in enumerate(plan.maps):
                self.known.setdefault(_turns(plan, side), (len(self.known), plan, one))
        shape = (1 + capacity * len(self.known), 2, plans[0].head_dim // 2)
        try:
            self.angles = beside.angles if beside else torch.zeros(shape, device=device)
            self.angles[0, 0] = 1
            for number, plan, one in () if beside else self.known.values():
                rows, rotations = self.angles[1 + number * capacity:][:capacity], Rotations(plan, None, device)
                for at in range(0, capacity, 1 << 16):
                    rows[at:at + (1 << 16)] = torch.stack(rotations._cos_sin(plan.maps[one], at, min(at + (1 << 16), capacity)), dim=1)
            self._fill(plans, device)
        except (MemoryError, RuntimeError) as error:
            raise NoRoom(f"{len(plans)} plans for {capacity} tokens need {4 * math.prod(shape)} bytes of cosines and sines: fewer "
                         f"entries or a shorter --max-model-len need less ({error})") from error

    def _fill(self, plans, device):
        """What is small beside the angles."""
        first, numbers = plans[0], len(plans) + 1
        sizes = (numbers, first.n_layers, first.n_heads)
        bands = np.zeros((numbers, MOST_BANDS, RECORD), np.int64)
        bands[0, 0] = 0, 0, FAR, 1, 0, 0, 0, 0, 0, 1
        temperature, factors, mask = np.ones((numbers, self.capacity)), np.ones(sizes), np.ones((*sizes, first.head_dim // 2), np.uint8)
        for number, plan in enumerate(plans, 1):
            temperature[number] = plan.query_scales(0, self.capacity)
            factors[number] = np.array([plan.depth(layer) for layer in range(plan.n_layers)])[:, None]
            factors[number] *= 1 if plan.logit_heads is None else plan.logit_heads
            mask[number] = 1 if plan.mask is None else plan.mask
            for band, record in zip(plan.bands, bands[number]):
                rows = [1 + self.capacity * self.known[_turns(plan, side)][0] for side in (band.q, band.k)]
                record[:5] = (DISTANCE, CHUNK, KEY).index(band.kind), band.lo, min(band.hi, FAR), plan.chunk or 1, band.per_head
                record[5:] = rows[0], 1, rows[1], 1, len(plan.bands)
        self.bands, self.mask = (torch.from_numpy(x).to(device) for x in (bands, mask))
        self.temperature, self.factors = (torch.from_numpy(x).float().to(device) for x in (temperature, factors))
        self.mask = self.mask if any(plan.mask is not None for plan in plans) else None


def _turns(plan, side):
    """Equal for sides of bands that rotate alike."""
    return side.content(), plan.inv_freq.tobytes(), plan.n_still, plan.still_factor


@triton.jit
def _text_of(starts, texts, index, ROWS: tl.constexpr, MORE: tl.constexpr):
    """The last text whose first block of rows is not behind `index`; MORE: each has one block more than its rows fill."""
    low = index * 0
    high = low + texts
    while high - low > 1:
        middle = (low + high) // 2
        before = tl.load(starts + middle) // ROWS + middle * MORE <= index
        low, high = tl.where(before, middle, low), tl.where(before, high, middle)
    return low


@triton.jit
def _keys_of(record, m):
    """First key that query m has in a band, and the first behind it (maybe below 0, or behind m)."""
    kind, low, high, chunk = tl.load(record), tl.load(record + 1), tl.load(record + 2), tl.load(record + 3)
    at, size = tl.where(kind == 1, m // chunk, m), tl.where(kind == 1, chunk, 1)
    return tl.where(kind == 2, low, (at - high + 1) * size), tl.where(kind == 2, high, (at - low + 1) * size)


@triton.jit
def _seen(bands, band, m, n, window):
    """Whether queries m [M, 1] see keys n [1, N] in this band, which they do not in one before it."""
    seen = (n <= m) & (n > m - window)
    for number in range(band + 1):
        record = bands + number * 10
        kind, chunk = tl.load(record), tl.load(record + 3).to(tl.int32)
        one, other = tl.where(kind == 1, m // chunk, tl.where(kind == 2, 0, m)), tl.where(kind == 1, n // chunk, n)
        at = one - tl.where(kind == 2, -other, other)
        inside = (at >= tl.load(record + 1).to(tl.int32)) & (at < tl.load(record + 2).to(tl.int32))
        seen = seen & (inside == (number == band))
    return seen


@triton.jit
def _read(at, real):
    """Float32 numbers, 0 where they are not real; real None: all are."""
    return tl.load(at, mask=real, other=None if real is None else 0.0).to(tl.float32)


@triton.jit
def _turned(place, x, pair, real, side, table, order, ORDERED: tl.constexpr, MASKED: tl.constexpr, PAIRS: tl.constexpr):
    """Both components of pairs of the tokens x, read at `place` and rotated as one side of a band says, `side` being where its record
    has this; place, x and pair fit each other. A band by head turns the pairs that are no key pairs as the first band does."""
    angles, first, by_head, marks = table
    at = angles + (tl.load(side) + x * tl.load(side + 1)) * (2 * PAIRS) + pair
    cos, sin = _read(at, real), _read(at + PAIRS, real)
    if MASKED:
        chosen = tl.load(marks + pair, mask=pair < PAIRS, other=1) >= by_head
        at = angles + (tl.load(first) + x * tl.load(first + 1)) * (2 * PAIRS) + pair
        cos, sin = tl.where(chosen, cos, _read(at, real)), tl.where(chosen, sin, _read(at + PAIRS, real))
    one, two = pair, pair + PAIRS
    if ORDERED:
        one, two = tl.load(order + one, mask=pair < PAIRS, other=0), tl.load(order + two, mask=pair < PAIRS, other=0)
    a, b = _read(place + one, real), _read(place + two, real)
    return a * cos - b * sin, b * cos + a * sin


@triton.jit
def _walk(sums, queries, begin, end, last, cap, window, bands, band, table, cache, order, WHOLE: tl.constexpr, MASKED: tl.constexpr,
          ORDERED: tl.constexpr, CAPPED: tl.constexpr, N: tl.constexpr, P: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr,
          PAGE: tl.constexpr, PRECISE: tl.constexpr):
    """The sums with keys begin ... end - 1 of one band. WHOLE: all queries see all of them in this band."""
    acc, peak, total = sums
    qa, qb, m, factor = queries
    k, v, blocks, stride_block, stride_token = cache
    pair, component = tl.arange(0, P)[:, None], tl.arange(0, D)[None, :]
    for at in range(begin, end, N):
        n = at + tl.arange(0, N)
        place = tl.load(blocks + tl.minimum(n, last) // PAGE).to(tl.int64) * stride_block + (n % PAGE) * stride_token
        real, there = None, None
        if not WHOLE or PAIRS < P:
            real, there = (pair < PAIRS) & (n[None, :] <= last), (component < 2 * PAIRS) & (n[:, None] <= last)
        ka, kb = _turned((k + place)[None, :], n[None, :], pair, real, bands + band * 10 + 7, table, order, ORDERED, MASKED, PAIRS)
        logits = tl.dot(qa, ka.to(qa.dtype), input_precision=PRECISE)
        logits = tl.dot(qb, kb.to(qa.dtype), logits, input_precision=PRECISE) * factor[:, None]
        if CAPPED:
            logits = cap * (1 - 2 / (tl.exp(2 * logits / cap) + 1))
        logits = logits * 1.4426950408889634
        if not WHOLE:
            logits = tl.where(_seen(bands, band, m[:, None], n[None, :], window), logits, float("-inf"))
        best = tl.maximum(peak, tl.max(logits, 1))
        shift = tl.where(best == float("-inf"), 0.0, best)
        weights, fade = tl.exp2(logits - shift[:, None]), tl.exp2(peak - shift)
        total = total * fade + tl.sum(weights, 1)
        values = _read((v + place)[:, None] + component, there).to(qa.dtype)
        acc = tl.dot(weights.to(qa.dtype), values, acc * fade[:, None], input_precision=PRECISE)
        peak = best
    return acc, peak, total


@triton.jit(do_not_specialize=["texts", "layer", "moves", "rows", "window"])
def _attend(out, parts, q, k, v, blocks, starts, lengths, numbers, bands, angles, temperature, factors, mask, order, sinks, q_scale,
            k_scale, v_scale, scale, cap, window, texts, layer, layers, moves, capacity, rows, heads, group, stride_q, stride_q_head,
            stride_out, stride_block, stride_head, stride_token, stride_blocks, TOGETHER: tl.constexpr, MASKED: tl.constexpr,
            ORDERED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, SPLIT: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
            P: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr, PAGE: tl.constexpr, TYPE: tl.constexpr, PRECISE: tl.constexpr):
    """A program has TOGETHER query heads of one KV head (one where heads have key pairs), and M // TOGETHER queries of one text.
    SPLIT: it has one part of their keys, and out and parts take what each found."""
    ROWS: tl.constexpr = M // TOGETHER
    text = _text_of(starts, texts, tl.program_id(0), ROWS, 1)
    number, start, length = tl.load(numbers + text), tl.load(starts + text), tl.load(lengths + text)
    count, skip = tl.load(starts + text + 1) - start, (tl.program_id(0) - start // ROWS - text) * ROWS
    if (number == 0) | (skip >= count):
        return
    r, own = tl.arange(0, M), tl.program_id(1) * TOGETHER
    head, at, kv_head = own + r % TOGETHER, skip + r // TOGETHER, own // group
    good = (at < count) & (r < ROWS * TOGETHER)
    first, last = length - count + skip, length - count + tl.minimum(skip + ROWS, count) - 1
    m, token = length - count + tl.minimum(at, count - 1), (start + at).to(tl.int64)
    number = number.to(tl.int64) * moves
    bands += number * 40
    factor = tl.load(temperature + number * capacity + m) * tl.load(factors + (number * layers + layer) * heads + head)
    factor = factor * (scale * tl.load(q_scale) * tl.load(k_scale))
    pair, component = tl.arange(0, P)[None, :], tl.arange(0, D)[None, :]
    place, real = q + token[:, None] * stride_q + head[:, None] * stride_q_head, good[:, None] & (pair < PAIRS)
    cache = (k + kv_head * stride_head, v + kv_head * stride_head, blocks + text.to(tl.int64) * stride_blocks, stride_block, stride_token)
    acc, total, peak = tl.zeros([M, D], tl.float32), tl.zeros([M], tl.float32), tl.full([M], float("-inf"), tl.float32)
    part = ((last + N) // N + tl.num_programs(2) - 1) // tl.num_programs(2) * N
    begin, end = tl.program_id(2) * part, tl.minimum(tl.program_id(2) * part + part, last + 1)
    if SINKS:
        peak = tl.where(begin == 0, tl.load(sinks + head).to(tl.float32) * 1.4426950408889634, peak)
        total = tl.where(begin == 0, 1.0, total)
    begin = tl.maximum(begin, first - window + 1)
    for band in range(tl.load(bands + 9).to(tl.int32)):
        record = bands + band * 10
        low, edge = _keys_of(record, first)
        whole, high = _keys_of(record, last)
        low, high = tl.maximum(low, begin), tl.minimum(high, end)
        # Keys whole ... edge - 1 are those that all of the queries see in this band and in none before it.
        whole, edge = tl.maximum(whole, tl.maximum(low, last - window + 1)), tl.minimum(edge, tl.minimum(first + 1, high))
        for before in range(band):
            other, behind = _keys_of(bands + before * 10, first)[0], _keys_of(bands + before * 10, last)[1]
            after = other > whole
            edge, whole = tl.where(after, tl.minimum(edge, other), edge), tl.where(after, whole, tl.maximum(whole, behind))
        whole, edge = (whole + N - 1) // N * N, edge // N * N
        whole, edge = tl.where(whole < edge, whole, high), tl.where(whole < edge, edge, high)
        cuts = ((low // N * N).to(tl.int32), whole.to(tl.int32), edge.to(tl.int32), high.to(tl.int32))
        table = (angles, bands + 7, tl.load(record + 4), mask + ((number * layers + layer) * heads + own) * PAIRS)
        # Queries are read again for each band: registers are what a program has least of.
        qa, qb = _turned(place, m[:, None], pair, real, record + 5, (angles, bands + 5, table[2], table[3]), order, ORDERED, MASKED,
                         PAIRS)
        queries = (qa.to(TYPE), qb.to(TYPE), m, factor)
        for phase in tl.static_range(3):
            acc, peak, total = _walk((acc, peak, total), queries, cuts[phase], cuts[phase + 1], last, cap, window, bands, band, table,
                                     cache, order, phase == 1, MASKED, ORDERED, CAPPED, N, P, D, PAIRS, PAGE, PRECISE)
    acc = acc * tl.load(v_scale)
    if SPLIT:
        token += tl.program_id(2).to(tl.int64) * rows
        tl.store(parts + (token * heads + head) * 2, peak, mask=good)
        tl.store(parts + (token * heads + head) * 2 + 1, total, mask=good)
    else:
        acc = acc / total[:, None]
    tl.store(out + token[:, None] * stride_out + head[:, None] * (2 * PAIRS) + component, acc.to(out.dtype.element_ty),
             mask=good[:, None] & (component < 2 * PAIRS))


@triton.jit(do_not_specialize=["texts", "rows", "splits"])
def _merge(out, parts, sums, starts, numbers, texts, rows, heads, splits, dim, stride_out, S: tl.constexpr, D: tl.constexpr):
    """One head of one row: the parts of its keys together."""
    token, head = tl.program_id(0), tl.program_id(1)
    if (token >= tl.load(starts + texts)) | (tl.load(numbers + _text_of(starts, texts, token, 1, 0)) == 0):
        return
    part, component = tl.arange(0, S), tl.arange(0, D)
    at = (part.to(tl.int64) * rows + token) * heads + head
    peak = tl.load(sums + at * 2, mask=part < splits, other=float("-inf"))
    weights = tl.exp2(peak - tl.max(peak, 0))
    total = tl.sum(weights * tl.load(sums + at * 2 + 1, mask=part < splits, other=0.0), 0)
    values = tl.load(parts + at[:, None] * dim + component[None, :], mask=(part < splits)[:, None] & (component < dim)[None, :],
                     other=0.0)
    tl.store(out + token.to(tl.int64) * stride_out + head * dim + component, tl.sum(weights[:, None] * values, 0) / total,
             mask=component < dim)


# Tiles of (prompts, few rows of a text) by the major number of a card's capability: keys of a tile, rows, warps, stages. Chosen by
# the registers that tests/vllm/kernel_compiles.py prints; tests/gpu/triton_plans.py, on such cards, prints which are fastest.
TILES = {8: ((32, 128, 8, 2), (32, 16, 4, 2)), 9: ((32, 128, 8, 3), (64, 16, 4, 3)), 12: ((32, 128, 8, 2), (32, 16, 4, 2))}
FEW, MOST_SPLITS = 16, 64


def tiles_of(major, few, dim, rows):
    """Of TILES, for heads of `dim` and that many rows of a text's few queries."""
    keys, queries, warps, stages = TILES[max((one for one in TILES if one <= major), default=8)][few]
    queries = max(queries, triton.next_power_of_2(rows)) if few else queries
    return (keys, queries, warps, stages) if dim <= 128 else (16, max(16, queries // 2), 8, 2)


def attend(plans, out, q, k, v, blocks, starts, lengths, numbers, longest, layer, scale, cap=0.0, window=0, sinks=None,
           scales=None, moves=True, splits=None, tiles=None):
    """out [rows, heads, dim] gets attention of texts whose number is above 0, by that plan of `plans` (Plans). q [rows, heads,
    dim], k, v [blocks, KV heads, tokens of a block, dim] with equal strides, k before rotation; blocks int32 [texts, ...], starts
    int32 [texts + 1] and `longest` rows of each text, lengths int32 [texts] tokens with them, numbers int32 [texts]. cap, window: of
    the layer, 0: none; sinks [heads]; scales: factors on what q, k and v hold, float32 [1] each; moves: whether the layer
    moves; splits: parts of the keys; tiles: as TILES."""
    rows, heads, dim = q.shape
    group, texts, device = heads // k.shape[1], len(starts) - 1, q.device
    assert k.stride() == v.stride() and k.stride(3) == q.stride(2) == 1 and out.stride(2) == 1 and out.stride(1) == dim
    few = longest <= FEW
    card = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    major, processors = (card.major, card.multi_processor_count) if card else (9, 4)
    keys, queries, warps, stages = tiles or tiles_of(major, few, dim, group * longest)
    together = group if few and plans.mask is None else 1
    grid = (rows // (queries // together) + texts, heads // together)
    if splits is None:
        splits = min(MOST_SPLITS, plans.capacity // (4 * keys) + 1, -(-2 * processors // (grid[0] * grid[1]))) if few else 1
    into, sums = out, out
    if splits > 1:
        into, sums = (torch.empty(splits, rows, heads, size, dtype=torch.float32, device=device) for size in (dim, 2))
    kind, width = getattr(tl, str(out.dtype).removeprefix("torch.")), max(16, triton.next_power_of_2(dim // 2))
    one = plans.one
    _attend[(*grid, splits)](
        into, sums, q, k, v, blocks, starts, lengths, numbers, plans.bands, plans.angles, plans.temperature, plans.factors,
        one if plans.mask is None else plans.mask, one if plans.order is None else plans.order, one if sinks is None else sinks,
        *(scales or (one, one, one)), scale, cap, window or FAR, texts, layer, plans.factors.shape[1], int(moves), plans.capacity,
        rows, heads, group, q.stride(0), q.stride(1), into.stride(-3), k.stride(0), k.stride(1),
        k.stride(2), blocks.stride(0), TOGETHER=together, MASKED=plans.mask is not None, ORDERED=plans.order is not None,
        CAPPED=cap > 0, SINKS=sinks is not None, SPLIT=splits > 1, M=queries, N=keys, P=width, D=2 * width, PAIRS=dim // 2,
        PAGE=k.shape[2], TYPE=kind, PRECISE="ieee", num_warps=warps, num_stages=stages)
    if splits > 1:
        _merge[(rows, heads)](out, into, sums, starts, numbers, texts, rows, heads, splits, dim, out.stride(0),
                              S=triton.next_power_of_2(splits), D=2 * width)

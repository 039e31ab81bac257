"""Plans as tools send them to an engine (outputs/remote/remote.h), and their digests. It needs no vLLM
(tests/outputs/remote/wire_plans.py)."""
import hashlib
import math
import struct

import numpy as np

from dpe_attention import TableError
from dpe_plan import CHUNK, DISTANCE, KEY, NO_END, Band, Map, Plan, good_groups

KINDS = (DISTANCE, CHUNK, KEY)
MOST = 1 << 12  # of pairs, layers, heads
MOST_NUMBER = 2.0 ** 40
REALS = ("logit_factor", "log_n_length", "log_n_power", "log_n_decay", "still_factor", "attention_multiplier", "attention_cap",
         "query_growth", "query_length")
DEPTH = ("logit_scale_first", "logit_scale_middle", "logit_scale_last")
MAP_REALS = ("period", "cap", "group_most", "group_rate", "group_from")


class WirePlan:
    """plan: as dpe_attention takes it. digest: that of the engine's dpe_plan_digest. multiplier, cap, growth: what the plan's
    model does with logits, which vLLM's model does by itself: 0: 1 / sqrt(head_dim), no cap, no growth. growth: b and L of
    query_growth."""

    def __init__(self, value, n_kv_heads):
        """TableError names the member that is not as expected."""
        sizes = [_whole(value, name, 1, MOST) for name in ("n_pairs", "n_layers", "n_heads")]
        self.n_pairs, self.n_layers, self.n_heads = sizes
        reals = {name: _real(value, name) for name in REALS + DEPTH}
        still, chunk = (_whole(value, name, 0, 1 << 62) for name in ("n_still", "chunk"))
        frequencies = _list(value, "inv_freq", self.n_pairs)
        if _flag(value, "exact") or _whole(value, "angle", 0, 1) != 0:
            raise TableError("exact positions or float64 angles: applied by the tools' own engine alone")
        if _whole(_member(value, "selection", dict, "an object"), "block", 0, 1 << 62) != 0:
            raise TableError("a plan that selects keys: applied by the tools' own engine alone")
        bands = _member(value, "bands", list, "a list")
        if not 1 <= len(bands) <= 4 or still > self.n_pairs:
            raise TableError(f"expected 1 to 4 bands and at most {self.n_pairs} pairs that do not rotate, found {len(bands)} and "
                             f"{still}")
        if not (np.isfinite(frequencies) & (frequencies >= 0)).all() or \
                not all(reals[name] > 0 for name in ("logit_factor", *DEPTH)):
            raise TableError("inv_freq, logit_factor: expected finite numbers from 0 on, and factors above 0")
        read = [_band(band, self.n_pairs, chunk, i == 0) for i, band in enumerate(bands)]
        mask, heads = _mask(value, sizes), _heads(value, sizes)
        self.multiplier, self.cap = reals["attention_multiplier"], reals["attention_cap"]
        self.growth = (reals["query_growth"], reals["query_length"] if reals["query_growth"] else 0)
        self.digest = _digest(sizes, frequencies, reals, heads, still, chunk, bands, read, mask)
        self.plan = Plan(read, frequencies, (self.n_layers, self.n_heads, n_kv_heads, 2 * self.n_pairs), reals["logit_factor"],
                         reals["log_n_length"], reals["log_n_power"], reals["log_n_decay"], still, reals["still_factor"], chunk,
                         mask if _matters(read, mask) else None, [reals[name] for name in DEPTH], heads)


def _member(value, name, kind, expected):
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool) and kind is not bool:
        raise TableError(f"the plan's {name}: expected {expected}")
    return found


def _flag(value, name):
    return _member(value, name, bool, "true or false")


def _whole(value, name, low, high):
    found = _member(value, name, int, "a whole number")
    if not low <= found <= high:
        raise TableError(f"the plan's {name} is {found}, expected {low} to {high}")
    return found


def _number(found, name):
    """JSON has no infinity: "inf"."""
    if found == "inf":
        return math.inf
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
        raise TableError(f'the plan\'s {name}: expected a number or "inf"')
    return float(found)


def _real(value, name):
    return _number(_member(value, name, (int, float, str), 'a number or "inf"'), name)


def _list(value, name, count):
    found = _member(value, name, list, "a list of numbers")
    if len(found) != count:
        raise TableError(f"the plan's {name}: expected {count} numbers, found {len(found)}")
    return np.array([_number(one, name) for one in found], np.float64)


def _map(band, side, pairs):
    value = _member(band, side, dict, "an object")
    period, cap, *groups = (_real(value, name) for name in MAP_REALS)
    scale, offset = (_list(value, name, pairs) for name in ("scale", "offset"))
    if not (scale >= 1).all() or not (np.abs(offset) <= MOST_NUMBER).all() or not period >= 1 or \
            math.isfinite(period) and period % 1 or not good_groups(*groups):
        raise TableError(f"a map of the plan's bands ({side}): expected scales of 1 or more, offsets of at most 2^40, a whole "
                         "period, and groups or three zeros")
    return Map(scale, offset, _flag(value, "floored"), period, cap, groups)


def _band(value, pairs, chunk, first):
    kind = _whole(value, "kind", 0, len(KINDS) - 1)
    low, high = (_whole(value, name, 0, (1 << 63) - 1) for name in ("lo", "hi"))
    per_head = _flag(value, "per_head")
    if low >= high or KINDS[kind] == CHUNK and chunk < 1 or first and per_head:
        raise TableError(f"a band of the plan from {low} to {high}: expected an order, a chunk where it goes by chunks, and a "
                         "first band that is not by head")
    return Band(KINDS[kind], low, min(high, NO_END), per_head, _map(value, "q", pairs), _map(value, "k", pairs))


def _mask(value, sizes):
    pairs, layers, heads = sizes
    digits = value.get("mask")
    if digits is None:
        return None
    if not isinstance(digits, str) or len(digits) != pairs * layers * heads or digits.strip("01"):
        raise TableError("the plan's mask: expected a 0 or 1 for each pair of each head of each layer")
    return (np.frombuffer(digits.encode(), np.uint8) == ord("1")).reshape(layers, heads, pairs)


def _heads(value, sizes):
    """H [layers, heads]; None: all 1."""
    _, layers, heads = sizes
    rows, made = _member(value, "heads", list, "a list"), np.ones((layers, heads))
    for row in rows:
        layer, head, factor = row if isinstance(row, list) and len(row) == 3 else (-1, -1, 0)
        if type(layer) is not int or type(head) is not int or not 0 <= layer < layers or not 0 <= head < heads or \
                made[layer, head] != 1 or not 0 < _number(factor, "heads") <= 1024 or factor == 1:
            raise TableError(f"the plan's heads: expected [layer, head, factor above 0] of each head once, found {row}")
        made[layer, head] = factor
    return made if rows else None


def _matters(bands, mask):
    return mask is not None and any(band.per_head for band in bands) and not mask.all()


def _digest(sizes, frequencies, reals, heads, still, chunk, bands, read, mask):
    """dpe_plan_digest (engine/plan/plan.c), field for field."""
    digest = hashlib.sha256(b"dpe plan 1\0")

    def wholes(*values):
        digest.update(struct.pack(f"<{len(values)}Q", *(int(one) for one in values)))

    def numbers(*values):
        digest.update(struct.pack(f"<{len(values)}d", *(0.0 if one == 0 else one for one in values)))

    wholes(*sizes)
    numbers(*frequencies, reals["logit_factor"], reals["log_n_length"])
    if reals["log_n_length"] > 0 and (reals["log_n_power"] != 1 or reals["log_n_decay"] != 0):
        digest.update(b"log-n form\0")
        numbers(reals["log_n_power"], reals["log_n_decay"])
    if any(reals[name] != 1 for name in DEPTH):
        digest.update(b"depth\0")
        numbers(*(reals[name] for name in DEPTH))
    for layer, head in [] if heads is None else np.argwhere(heads != 1).tolist():
        digest.update(b"head\0")
        wholes(layer, head)
        numbers(heads[layer, head])
    of_model = [still] + [reals[name] for name in REALS[4:]]
    for i, one in enumerate(of_model):
        if one != 0:
            wholes(i)
            numbers(one)
    wholes(0, 0, len(read))  # no exact positions, float32 angles
    masked = _matters(read, mask)
    for value, band in zip(bands, read):
        wholes(value["kind"], value["lo"], value["hi"], masked and band.per_head)
        for one in (band.q, band.k):
            wholes(one.floored)
            numbers(one.period, one.cap, *np.stack((one.scale, one.offset), axis=1).ravel())
            if one.groups[0] > 0:
                digest.update(b"groups\0")
                numbers(*one.groups)
    wholes(chunk if any(band.kind == CHUNK for band in read) else 0)
    if masked:
        digest.update(mask.astype(np.uint8).tobytes())
    return digest.hexdigest()

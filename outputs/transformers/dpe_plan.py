"""Position plans as data, in NumPy: what attention under a DPE table or another position method computes.

A plan says which *band* a query m and a key n lie in, and at which positions each band rotates them; first
band that matches wins, and a pair that lies in none is not seen. It is struct dpe_plan of engine/plan/plan.h:
bands by distance, by chunk and by key, and maps

    position_j(x) = min(f((g(x) mod period) / scale_j) + offset_j, cap),   f = floor or nothing,

g(x) = x, or the number of x's group, where groups grow along a curve (Map.groups).

Logits of query m in layer l of n are multiplied by logit_factor D(l) f(m), D the Bezier curve through the three numbers of
logit_depth at t = l / (n - 1), (1 - t)^2 first + 2 t (1 - t) middle + t^2 last, and f(m) =
max(1, ln(m + 1) / ln(log_n_length))^log_n_power, or 1 when log_n_length is 0; a log_n_decay B above 0 puts 1 - x^-B in the place of ln x.

A map's gain multiplies what it rotates: far_scale for queries in the bands after the first.

An entry of a table has one (dpe_attention.Table.plan); `dpe-run -m DIR --show-plan --json --method NAME --length L` prints one of any
method.
"""
import math

import numpy as np

DISTANCE, CHUNK, KEY = "distance", "chunk", "key"
NO_END = 1 << 62


def good_groups(most, rate, first):
    """Whether the three are groups, or none (all 0)."""
    if most == 0:
        return rate == first == 0
    return 2 <= most <= 2 ** 20 and most % 1 == 0 and 0 < rate <= 1e6 and 0 <= first <= 2 ** 40 and first % 1 == 0


class Map:
    """Positions of tokens on one side of a band. scale, offset [n_pairs]; scale may be infinite. groups: none, or C, r and
    z: from token z on, group i (0, 1, …) has floor(C / (1 + (C - 1) exp(-r i))) tokens, at most C - 1; earlier tokens are in
    group 0."""

    def __init__(self, scale, offset, floored=False, period=math.inf, cap=math.inf, groups=(0, 0, 0)):
        self.groups = tuple(float(x) for x in groups)
        self.scale, self.offset = np.asarray(scale, np.float64), np.asarray(offset, np.float64)
        self.floored, self.period, self.cap, self.gain = bool(floored), float(period), float(cap), 1.0

    def positions(self, first, last):
        """Of tokens first ... last - 1 [last - first, n_pairs], float64."""
        x = np.arange(first, last, dtype=np.float64)[:, None]
        x = self._group_of(x) if self.groups[0] else x
        x = np.mod(x, self.period) if math.isfinite(self.period) else x
        x = x / self.scale
        return np.minimum((np.floor(x) if self.floored else x) + self.offset, self.cap)

    def _group_of(self, x):
        """Groups of k tokens end before the first that the curve gives k + 1. Sizes that no group has are passed by: there may be
        a million of them, and of the others there are at most the root of twice the tokens."""
        most, rate, start = self.groups

        def end_of(k):
            return math.ceil(math.log((k + 1) * (most - 1) / (most - k - 1)) / rate) if k < most - 1 else math.inf

        left = np.maximum(x - start, 0)
        last, parts, k = left.max(initial=0), [(0.0, 0.0, 1)], 1  # first token of each size, its number, and the size
        while (end := end_of(k)) < math.inf:
            tokens, begin, size = parts[-1]
            if end > begin:
                tokens += (end - begin) * size
                if tokens > last:
                    break
                begin = end
            low, k = k, int(most) - 1  # the first k whose groups end after `begin`
            while k - low > 1:
                middle = (low + k) // 2
                low, k = (low, middle) if end_of(middle) > begin else (middle, k)
            parts.append((tokens, begin, k))
        tokens, begin, size = np.array(parts)[np.searchsorted([part[0] for part in parts], left, side="right") - 1].transpose(2, 0, 1)
        return begin + np.floor((left - tokens) / size)

    def content(self):
        """Equal for maps that rotate alike."""
        return (self.groups, self.floored, self.period, self.cap, self.gain, self.scale.tobytes(), self.offset.tobytes())


class Band:
    """kind: what lo ... hi - 1 is a range of: DISTANCE m - n, CHUNK the same in whole chunks, KEY n. per_head: pairs that
    are no key pairs of a head use the maps of the plan's first band."""

    def __init__(self, kind, lo, hi, per_head, q, k):
        self.kind, self.lo, self.hi, self.per_head, self.q, self.k = kind, lo, hi, per_head, q, k

    def keys(self, m, chunk):
        """First key that query m has in the band, and the first behind it (maybe below 0, or behind m)."""
        if self.kind == KEY:
            return self.lo, self.hi
        if self.kind == CHUNK:
            return (m // chunk - self.hi + 1) * chunk, (m // chunk - self.lo + 1) * chunk
        return m - self.hi + 1, m - self.lo + 1


class Plan:
    """inv_freq float64 [n_pairs]: what pairs rotate by, 0 where they do not. The last n_still pairs of a head never
    rotate; still_factor is of each side of these. mask bool [n_layers, n_heads, n_pairs]: the key pairs; None: all.
    logit_heads float64 [n_layers, n_heads]: H, factors on the logits of query heads; None: 1."""

    def __init__(self, bands, inv_freq, sizes, logit_factor=1.0, log_n_length=0.0, log_n_power=1.0, log_n_decay=0.0,
                 n_still=0, still_factor=1.0, chunk=0, mask=None, logit_depth=(1.0, 1.0, 1.0), logit_heads=None):
        self.bands, self.inv_freq, self.chunk, self.mask = bands, np.asarray(inv_freq, np.float64), chunk, mask
        self.n_layers, self.n_heads, self.n_kv_heads, self.head_dim = sizes
        self.logit_factor, self.log_n_length = logit_factor, log_n_length
        self.log_n_power, self.log_n_decay = log_n_power, log_n_decay
        self.n_still, self.still_factor, self.logit_depth = n_still, still_factor, tuple(logit_depth)
        self.logit_heads = logit_heads
        self.maps, self._numbers = [], {}
        for band in bands:
            band.q_map, band.k_map = self._number(band.q), self._number(band.k)

    def _number(self, one):
        """Index in maps; equal maps have one."""
        content = one.content()
        if content not in self._numbers:
            self._numbers[content] = len(self.maps)
            self.maps.append(one)
        return self._numbers[content]

    def depth(self, layer):
        """D(layer), 1 where the three are 1."""
        if self.logit_depth == (1, 1, 1):
            return 1.0
        t = layer / (self.n_layers - 1) if self.n_layers > 1 else 0.0
        first, middle, last = self.logit_depth
        return (1 - t) ** 2 * first + 2 * t * (1 - t) * middle + t ** 2 * last

    def scale_heads(self, q, layer, axis):
        """Queries times H(layer, head), the axis of the heads being `axis`."""
        if self.logit_heads is None:
            return q
        shape = [1] * q.ndim
        shape[axis] = self.n_heads
        return q * q.new_tensor(self.logit_heads[layer]).reshape(shape)

    def query_scales(self, first, last):
        """The factors on the logits of queries at first ... last - 1 [last - first], float64, besides `depth` and that
        of the model (1 / sqrt(head_dim) of most)."""
        if not self.log_n_length:
            return np.full(last - first, self.logit_factor)
        keys = np.log(np.append(np.arange(first, last, dtype=np.float64) + 1, self.log_n_length))
        if self.log_n_decay > 0:
            keys = -np.expm1(-self.log_n_decay * keys)
        return self.logit_factor * np.maximum(1, keys[:-1] / keys[-1]) ** self.log_n_power

    def band_of(self, m, n):
        """The band of queries m and keys n (tensors or arrays of whole numbers that fit each other), -1: not seen."""
        result = (m + n) * 0 - 1
        for number, band in reversed(list(enumerate(self.bands))):
            at = n + m * 0 if band.kind == KEY else m // self.chunk - n // self.chunk if band.kind == CHUNK else m - n
            inside = (at >= band.lo) & (at < band.hi)
            result = result * ~inside + inside * number
        seen = n <= m
        return result * seen - 1 * ~seen

    def spans(self, first, last, step):
        """Queries first ... last meet keys in parts: (begin, end, bands), at most `step` keys each. One band: all of them
        lie in it. Several: band_of tells, and -1 is among them. Parts that no query sees are left out."""
        edges = [sorted((m + 1, *(edge for band in self.bands for edge in band.keys(m, self.chunk))))
                 for m in (first, last)]
        # The edges of a query between the two lie between theirs, in order: all of them grow with m.
        moving = [(a, b) for a, b in zip(*edges) if a < b]
        cuts = sorted({min(max(edge, 0), last + 1) for row in edges for edge in row} | {0, last + 1})
        for begin, end in zip(cuts, cuts[1:]):
            mixed = any(a < end and b > begin for a, b in moving)
            bands = self._possible(first, last, begin, end) if mixed else [int(self.band_of(np.int64(last), np.int64(begin)))]
            if bands == [-1] or bands == []:
                continue
            for at in range(begin, end, step):
                yield at, min(at + step, end), bands + [-1] if mixed else bands

    def _possible(self, first, last, begin, end):
        result = []
        for number, band in enumerate(self.bands):
            ends = band.keys(first, self.chunk) + band.keys(last, self.chunk)
            if min(ends) < end and max(ends) > begin:
                result.append(number)
        return result

    def of_heads(self, index, size):
        """The plan of the heads of rank `index` of `size` that divide them in order. KV heads that are fewer than ranks
        are repeated, as runtimes do."""
        mask, heads = (None if x is None else np.split(x, size, axis=1)[index] for x in (self.mask, self.logit_heads))
        sizes = (self.n_layers, self.n_heads // size, max(1, self.n_kv_heads // size), self.head_dim)
        return self._of(sizes, self.inv_freq, mask, self.logit_depth, heads)

    def of_draft(self, sizes, ratio):
        """For the layers of a draft, which has heads of its own: no key pairs and factors by head, and the last layer's D. ratio [n_pairs]:
        the draft's frequencies over those of the model as it is."""
        return self._of(sizes, self.inv_freq * ratio, None, [self.depth(self.n_layers - 1)] * 3, None)

    def _of(self, sizes, inv_freq, *rest):
        return Plan([Band(b.kind, b.lo, b.hi, b.per_head, b.q, b.k) for b in self.bands], inv_freq, sizes, self.logit_factor,
                    self.log_n_length, self.log_n_power, self.log_n_decay, self.n_still, self.still_factor, self.chunk, *rest)

    def still(self, window=None):
        """That of a layer of the same model which does not move: queries and keys as they are, at most `window` keys."""
        one = Map(np.ones(len(self.inv_freq)), np.zeros(len(self.inv_freq)))
        return Plan([Band(DISTANCE, 0, window or NO_END, False, one, one)], np.zeros(len(self.inv_freq)),
                    (self.n_layers, self.n_heads, self.n_kv_heads, self.head_dim))


def plan_of_table(entry):
    """The plan of a Table of one entry. Where all scales are 1 positions are those of the tokens: one band."""
    scale = entry.pair_scales()
    pairs, window = len(scale), entry.local_window
    true = Map(np.ones(pairs), np.zeros(pairs))
    bands = [Band(DISTANCE, 0, NO_END, False, true, true)]
    chunk = 0
    if entry.bands is not None:
        bands, chunk = _bands_of(entry.bands)
    elif (scale != 1).any() or entry.far_scale != 1:
        shift = window - (window / scale if entry.unrounded else np.floor(window / scale))
        far = [Map(scale, offset, not entry.unrounded) for offset in (shift, np.zeros(pairs))]
        bands = [Band(DISTANCE, 0, window, False, true, true), Band(DISTANCE, window, NO_END, True, *far)]
    for band in bands[1:]:
        band.q.gain = entry.far_scale
    return Plan(bands, entry.applied_inv_freq, (entry.n_layers, entry.n_heads, entry.n_kv_heads, entry.head_dim),
                entry.attention_scaling ** 2 * entry.logit_scale, entry.log_n_length, entry.log_n_power,
                entry.log_n_decay, pairs - entry.rotating_pairs(), 1 / entry.attention_scaling,
                chunk=chunk, mask=entry.mask if len(bands) > 1 else None,
                logit_depth=(entry.logit_scale_first, entry.logit_scale_middle, entry.logit_scale_last),
                logit_heads=entry.head_scale)


def _bands_of(rows):
    """Of a table with bands [n_bands, 2, 11 + 2 n_pairs] (dpe_table.h): its bands, and their chunk."""
    bands, chunk, pairs = [], 0, (rows.shape[2] - 11) // 2
    for both in rows:
        kind, low, high, of_chunk = (int(x) for x in both[0, :4])
        chunk = max(chunk, of_chunk)
        maps = []
        for _, _, _, _, _, floored, period, cap, most, rate, first, *values in both:
            scale = np.array(values[:pairs])
            maps.append(Map(np.where(scale == 0, np.inf, scale), values[pairs:], floored, period or math.inf,
                            cap or math.inf, (most, rate, first)))
        bands.append(Band((DISTANCE, CHUNK, KEY)[kind], low, high or NO_END, bool(both[0, 4]), *maps))
    return bands, chunk

"""Writes methods/: the attention of every position method as its publication defines it, computed here
from the whole matrix of logits in float64, and the frequencies that transformers' own rope utilities
give for those methods that it has. test_methods.c compares plans and backends with them.

    python3 tests/golden/make_methods.py        (numpy; transformers 5 for the frequencies)

This script has no bands, maps or plans: a method is a matrix of relative positions rel[m, n] (per
pair where it has that), the set of keys a query sees, frequencies, and a factor on the logits.
"""
import math
import os

import numpy as np

T, HEADS, DIM, TRAINED, THETA = 80, 2, 16, 24, 50.0
PAIRS = DIM // 2
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "methods")
M, N = np.meshgrid(np.arange(T), np.arange(T), indexing="ij")
D = M - N
S = T / TRAINED
LONG = [1.0 + 0.5 * j for j in range(PAIRS)]
SHORT = [1.0 + 0.01 * j for j in range(PAIRS)]


def frequencies(base=THETA):
    return base ** (-2.0 * np.arange(PAIRS) / DIM)


class Method:
    """rel: [T, T] or [heads, pairs, T, T]; seen: [T, T] or [heads, T, T]; query: factor of each query's
    logits; choose: a function of q, k and v that gives rel and seen instead."""

    def __init__(self, spec, rel=None, seen=None, freq=None, a=1.0, query=None, masked=False, choose=None):
        self.spec, self.masked, self.choose = spec, masked, choose
        self.set(D if rel is None else rel, D >= 0 if seen is None else seen)
        self.freq = frequencies() if freq is None else freq
        self.factor = a * a * (np.ones(T) if query is None else query)

    def set(self, rel, seen):
        self.rel = np.broadcast_to(np.asarray(rel, np.float64), (HEADS, PAIRS, T, T))
        self.seen = np.broadcast_to((D >= 0) & seen, (HEADS, T, T))

    def attention(self, q, k, v):
        """q [T, heads, dim], one head of keys and values [T, dim]; out [T, heads, dim]."""
        if self.choose is not None:
            self.set(*self.choose(q, k, v))
        out = np.zeros((T, HEADS, DIM))
        for head in range(HEADS):
            logits = np.zeros((T, T))
            for pair in range(PAIRS):
                # A pair is a complex number, a rotation by an angle its product with e^(i angle).
                x = q[:, head, pair] + 1j * q[:, head, pair + PAIRS]
                y = k[:, pair] + 1j * k[:, pair + PAIRS]
                turn = np.exp(1j * self.freq[pair] * self.rel[head, pair])
                logits += (x[:, None] * np.conj(y)[None, :] * turn).real
            logits *= self.factor[:, None] / math.sqrt(DIM)
            logits[~self.seen[head]] = -np.inf
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v
        return out


def log_n(base=TRAINED):
    return np.maximum(1.0, np.log(np.arange(T) + 1.0) / math.log(base))


def infoscale(base):
    """As in model/my_gau_alpha_eval/layer.py of HT-NEKO/Information-Entropy-Invariance (66d4543), l
    being the keys that a causal query sees, not below 1 as in its overlap_attention.py."""
    length = np.arange(T) + 1.0
    clip = (1 - (base**(-2 / DIM)))**0.5
    return np.maximum(1.0, (1 - (length**(-2 / DIM)))**0.5 / clip)


def ntk_by_parts(scale, alpha, beta):
    theta = frequencies()
    result = theta.copy()
    for j in range(PAIRS):
        turns = TRAINED * theta[j] / (2.0 * math.pi)
        if turns <= alpha:
            result[j] = theta[j] / scale
        elif turns < beta:
            keep = (turns - alpha) / (beta - alpha)
            result[j] = keep * theta[j] + (1.0 - keep) * theta[j] / scale
    return result


def yarn(scale, fast=32.0, slow=1.0):
    def index(rotations):
        return DIM * math.log(TRAINED / (rotations * 2.0 * math.pi)) / (2.0 * math.log(THETA))
    low, high = max(math.floor(index(fast)), 0), min(math.ceil(index(slow)), DIM - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(PAIRS) - low) / (high - low), 0.0, 1.0)
    return frequencies() / scale * ramp + frequencies() * (1.0 - ramp)


def llama3(scale, low, high):
    result = []
    for theta in frequencies():
        wave = 2.0 * math.pi / theta
        if wave < TRAINED / high:
            result.append(theta)
        elif wave > TRAINED / low:
            result.append(theta / scale)
        else:
            t = (TRAINED / wave - low) / (high - low)
            result.append((1.0 - t) * theta / scale + t * theta)
    return np.array(result)


def grouped(window, group):
    """Self-Extend's merge of neighbour and grouped attention, with whole positions."""
    return np.where(D < window, D, M // group - N // group + window - window // group)


def dpe(window, scales, mask=None):
    per_group = PAIRS // len(scales)
    rel = np.empty((HEADS, PAIRS, T, T))
    for head in range(HEADS):
        for pair in range(PAIRS):
            s = scales[pair // per_group]
            far = np.floor(M / s) - np.floor(N / s) + window - math.floor(window / s)
            moved = mask is None or mask[head][pair]
            rel[head, pair] = np.where((D < window) | (not moved), D, far)
    return rel


def dca(chunk, local):
    """ChunkLlama: keys turn by their place in their chunk; a query meets its own chunk as it is, the
    chunk before with a place that goes on and is cut, older ones with the largest place."""
    block = chunk - local
    rel = np.empty((T, T))
    for m in range(T):
        for n in range(T):
            key = n % block
            apart = m // block - n // block
            if apart == 0:
                query = m % block
            elif apart == 1:
                query = min(m % block + block, chunk)
            else:
                query = min(2 * block - 1, chunk)
            rel[m, n] = query - key
    return rel


def streaming(sinks, window):
    """The cache of every step, written out: the first tokens and the last `window`, renumbered."""
    rel, seen = np.zeros((T, T)), np.zeros((T, T), bool)
    for m in range(T):
        recent = [n for n in range(m + 1) if m - n < window]
        cache = [n for n in range(min(sinks, m + 1)) if n not in recent] + recent
        for place, n in enumerate(cache):
            seen[m, n] = True
            rel[m, n] = len(cache) - 1 - place
    return rel, seen


def lm_infinite(sinks, window):
    near, first = D < window, N < sinks
    return np.where(near, D, window), near | first


def lampe(window, tail, length):
    """LaMPE's prefill as its released code has it (llama_cache1.py of scar-on/LaMPE, 34331cf): three passes
    with the queries and keys that it slices, places rounded down in float32. Keys at the edges of the bands
    are in two passes there; here the farther one has them, as decoding has."""
    places = np.floor(np.float32(length / (T - 1)) * np.arange(T).astype(np.float32)).astype(int)
    while tail + 1 < T and places[tail] == places[tail + 1]:
        tail += 1
    bias_1 = window - (places[window] + 1)
    bias_2 = (T - 1 - tail) - places[T - 1 - tail] - bias_1
    rel = np.array(D)
    for i in range(T - window):  # the middle: query window + i, keys up to i and not before i - (T - window - tail)
        for j in range(max(0, i - (T - window - tail)), i + 1):
            rel[window + i, j] = places[window + i] + bias_1 - places[j]
    for i in range(tail):  # the last queries and the first keys
        for j in range(i + 1):
            rel[T - tail + i, j] = T - tail + i - bias_2 - j
    return rel


def jet_long(window, group):
    """The near window takes keys that are `window` away."""
    return np.where(D <= window, D, M // group - N // group)


def jetlong_freq(window, scale, fast=32.0, slow=1.0):
    """The corrections of jet-ai-projects/Jet-Long (3262969): a far query turns back by what the ramp takes
    of its distance beyond the window, a far key by what it takes of its position."""
    def index(rotations):
        return DIM * math.log(TRAINED / (rotations * 2.0 * math.pi)) / (2.0 * math.log(THETA))
    low, high = max(math.floor(index(fast)), 0), min(math.ceil(index(slow)), PAIRS - 1)
    ramp = np.clip((np.arange(PAIRS) - low) / max(high - low, 0.001), 0.0, 1.0)
    rel = np.empty((HEADS, PAIRS, T, T))
    for pair in range(PAIRS):
        taken = ramp[pair] * (1.0 - 1.0 / scale)
        far = M - taken * np.maximum(M - window, 0) - (N - taken * N)
        rel[:, pair] = np.where(D <= window, D, far)
    return rel


def logistic_groups(window, capacity, rate):
    """SELF: the group of each token, where group i has as many tokens as the whole part of the curve."""
    sizes = [min(math.floor(capacity / (1.0 + (capacity - 1.0) * math.exp(-rate * i))), capacity - 1) for i in range(T)]
    # Token 0 lies in the group of token 1.
    group = np.array([0] + [i for i, size in enumerate(sizes) for _ in range(size)][:T - 1])
    return np.where(D < window, D, window + group[np.maximum(M - window, 0)] - group[N])


def mrrope(scale, fast, slow, uniform=False):
    turns = TRAINED * frequencies() / (2.0 * math.pi)
    low = max([j for j in range(PAIRS) if turns[j] > fast], default=-1)
    high = min([j for j in range(PAIRS) if turns[j] < slow], default=PAIRS)
    t, n = np.clip(np.arange(PAIRS) - low, 0, high - low), high - low
    return frequencies() / scale ** (t / n if uniform else t * (t + 1) / (n * (n + 1)))


def cope(clip, hard=False):
    """modeling_cope.py of hrlics/CoPE (ed52ba5)."""
    theta = frequencies()
    fade = 0.5 * (1.0 + np.cos(np.linspace(0.0, np.pi, clip)))
    theta[PAIRS - clip:] *= 0.0 if hard else fade
    return theta


def adagrope(first, reuse):
    """Positions in the order of distance: `first` of them once each, then as many `reuse` times, and so on; a
    query and a key count whole groups from the beginning of the text, as in Self-Extend."""
    rel, lo = np.zeros((T, T)), 0
    for band in range(4):
        scale = reuse ** band
        far = np.floor(M / scale) - np.floor(N / scale) + band * first - math.floor(lo / scale)
        rel = np.where(D >= lo, far, rel)
        lo += math.floor(first * scale)
    return rel


def dope(heads, begin):
    """No position in these pairs of these heads."""
    rel = np.broadcast_to(D, (HEADS, PAIRS, T, T)).copy()
    for head in heads:
        rel[head, begin:] = 0
    return rel


# Methods that choose what a query meets. A query's list is made token by token; nothing is kept.

def turned(x, position):
    """A query or key at a position."""
    pair = (x[:PAIRS] + 1j * x[PAIRS:]) * np.exp(1j * frequencies() * position)
    return np.concatenate([pair.real, pair.imag])


def by_mean(place):
    """q times the mean of the keys, both where `place` puts them."""
    def score(q, k, v, head, c, block, local):
        return place(q[c, head], c) @ np.mean([place(k[n], n) for n in block], axis=0)
    return score


def by_extremes(q, k, v, head, c, block, local):
    """Quest: the largest product that any point in the box of the keys can have."""
    low, high = k[block].min(axis=0), k[block].max(axis=0)
    return np.maximum(q[c, head] * low, q[c, head] * high).sum()


def by_keys(q, k, v, head, c, block, local):
    """ReAttention: the largest product without positions."""
    return max(q[c, head] @ k[n] for n in block)


def by_attended(r):
    """InfLLM, the paper's section 3.2: a key's score is the mean product with the `local` queries after it; the r
    keys with the best ones stand for the block, and meet the query at one distance."""
    def score(q, k, v, head, c, block, local):
        given = [np.mean([q[n + j, head] @ k[n] for j in range(1, local + 1)]) for n in block]
        best = sorted(range(len(block)), key=lambda i: (-given[i], i))[:r]
        return turned(q[c, head], local - 1) @ np.mean([k[block[i]] for i in best], axis=0)
    return score


def bare(x, position):
    return x


def softmax(x):
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def by_weighted(q, k, v, head, c, block, local):
    """LongHeads, released code: a block's queries see all of it, at places 0, 1, ...; the mean of what they get of its
    values weighs its keys; the query that scores has no position."""
    keys = np.array([turned(k[n], i) for i, n in enumerate(block)])
    queries = np.array([turned(q[n, head], i) for i, n in enumerate(block)])
    feature = np.mean(softmax(queries @ keys.T / math.sqrt(DIM)) @ v[block], axis=0)
    return q[c, head] @ (softmax(feature @ keys.T / math.sqrt(DIM)) @ keys)


def last_probabilities(q, k, head, c, last):
    """[queries, keys]: what the last queries up to c attend to, with positions."""
    keys = np.array([turned(k[n], n) for n in range(c + 1)])
    p = np.zeros((min(last, c + 1), c + 1))
    for row, m in enumerate(range(c + 1 - len(p), c + 1)):
        p[row, :m + 1] = softmax(turned(q[m, head], m) @ keys[:m + 1].T / math.sqrt(DIM))
    return p


def by_probability(last):
    """The keys of a block together, for the last queries."""
    def score(q, k, v, head, c, block, local):
        return last_probabilities(q, k, head, c, last)[:, block].sum()
    return score


def distances(last, slashes, local):
    """MInference: the best diagonals of the last queries' probabilities, those of the window apart."""
    def far(q, k, head, c):
        p = last_probabilities(q, k, head, c, last)
        first = c + 1 - len(p)
        sums = {t: sum(p[row, first + row - t] for row in range(len(p)) if first + row >= t)
                for t in range(local, c + 1)}
        return sorted(sums, key=lambda t: (-sums[t], t))[:slashes]
    return far


def by_far_mean(window, scales):
    """by_mean with the positions that dpe gives to a far query and its keys."""
    s = np.repeat(scales, PAIRS // len(scales))

    def score(q, k, v, head, c, block, local):
        query = turned(q[c, head], np.floor(c / s) + window - np.floor(window / s))
        return query @ np.mean([turned(k[n], np.floor(n / s)) for n in block], axis=0)
    return score


def chosen(count, block, sinks, local, score, unit="head", refresh=1, places="true", scales=None, window=0,
           far=None):
    """The lists of every query and head, as rel and seen; places of dpe where scales are given."""
    def choose(q, k, v):
        rel, seen = np.zeros((HEADS, PAIRS, T, T)), np.zeros((HEADS, T, T), bool)
        for m in range(T):
            c = m // refresh * refresh
            blocks = []
            while sinks + (len(blocks) + 1) * block <= c - local + 1:
                first = sinks + len(blocks) * block
                blocks.append(list(range(first, first + block)))
            scores = np.array([[score(q, k, v, head, c, keys, local) for keys in blocks] for head in range(HEADS)])
            for head in range(HEADS):
                mine = scores[head] if unit == "head" else scores.sum(axis=0)
                best = sorted(range(len(blocks)), key=lambda i: (-mine[i], i))[:count]
                rest = sinks + len(blocks) * block
                keys = list(range(min(sinks, m + 1))) + [n for i in sorted(best) for n in blocks[i]]
                keys += list(range(rest, m + 1))
                if far is not None:
                    keys = sorted(set(keys) | {m - t for t in far(q, k, head, c)})
                for rank, n in enumerate(keys):
                    at, own = n, m
                    if places == "packed":
                        at, own = rank, len(keys) - 1
                    elif places == "constant" and m - n >= local:
                        at = m - local + 1
                    seen[head, m, n] = True
                    for pair in range(PAIRS):
                        rel[head, pair, m, n] = own - at
                        if scales is not None and own - at >= window:
                            s = scales[pair // (PAIRS // len(scales))]
                            rel[head, pair, m, n] = (math.floor(own / s) - math.floor(at / s) + window
                                                     - math.floor(window / s))
        return rel, seen
    return choose


MASK = [[(7 * head + 3 * pair) % 5 != 0 for pair in range(PAIRS)] for head in range(HEADS)]


def methods():
    by_dynamic = frequencies(THETA * (S * T / TRAINED - (S - 1.0)) ** (DIM / (DIM - 2.0)))
    by_ntk = frequencies(THETA * 3.0 ** (DIM / (DIM - 2.0)))
    rope_a = math.sqrt(1.0 + math.log(S) / math.log(TRAINED))
    long = "/".join("%g" % x for x in LONG)
    short = "/".join("%g" % x for x in SHORT)
    yield Method("rope")
    yield Method("pi:scale=3.5", freq=frequencies() / 3.5)
    yield Method("ntk:scale=3", freq=by_ntk)
    yield Method("ntk-dynamic", freq=by_dynamic)
    yield Method("ntk-by-parts:scale=4,alpha=0.5,beta=3", freq=ntk_by_parts(4.0, 0.5, 3.0))
    yield Method("yarn:scale=4", freq=yarn(4.0), a=0.1 * math.log(4.0) + 1.0)
    yield Method("yarn:scale=4,a=1.386,beta_fast=3,beta_slow=0.2", freq=yarn(4.0, 3.0, 0.2), a=1.386)
    yield Method("llama3:scale=8,low=0.5,high=3", freq=llama3(8.0, 0.5, 3.0))
    yield Method("longrope:long=%s,short=%s" % (long, short), freq=frequencies() / LONG, a=rope_a)
    yield Method("rerope:window=13,official=0", rel=np.minimum(D, 13))
    yield Method("rerope:window=24,official=1", rel=np.minimum(D, 24), query=log_n())
    yield Method("leaky-rerope:window=10,scale=4,official=0",
                 rel=np.where(D < 10, D, 10 + (D - 10) / 4.0))
    yield Method("leaky-rerope:window=7,scale=2.6,official=1",
                 rel=np.where(D < 7, D, 7 + (D - 7) / 2.6), query=log_n())
    yield Method("self-extend:window=9,group=4", rel=grouped(9, 4))
    yield Method("self-extend:window=16,group=8", rel=grouped(16, 8))
    yield Method("dpe:window=7,groups=4,scales=1/2.5/8/3", rel=dpe(7, [1, 2.5, 8, 3]))
    yield Method("dpe:window=8,groups=4,scales=4/2/2/8", rel=dpe(8, [4, 2, 2, 8], MASK), masked=True)
    yield Method("dca:chunk=18,local=5,official=0", rel=dca(18, 5))
    yield Method("dca:chunk=16,local=3,official=1", rel=dca(16, 3), a=0.05 * math.log(S) + 1.0)
    yield Method("dca:chunk=10,local=0,official=0", rel=dca(10, 0))
    yield Method("dca:chunk=14,local=8,official=0", rel=dca(14, 8))  # 2P - 1 below the chunk
    yield Method("string:shift=26,window=5,official=0", rel=np.where(D < 26, D, D - 26 + 5))
    yield Method("string:shift=17,window=3,official=1", rel=np.where(D < 17, D, D - 17 + 3),
                 a=0.1 * math.log(2.0) + 1.0)
    for sinks, window in ((4, 20), (1, 33), (4, 3)):
        rel, seen = streaming(sinks, window)
        yield Method("streaming-llm:sinks=%d,window=%d" % (sinks, window), rel=rel, seen=seen)
    for sinks, window in ((10, 24), (3, 17)):
        rel, seen = lm_infinite(sinks, window)
        yield Method("lm-infinite:sinks=%d,window=%d" % (sinks, window), rel=rel, seen=seen)
    yield Method("lampe:window=8,tail=3,map=10,official=0", rel=lampe(8, 3, 10))
    yield Method("lampe:window=5,tail=12,map=33,official=1", rel=lampe(5, 12, 33), a=0.1 * math.log(2.0) + 1.0)
    yield Method("cope:clip=3", freq=cope(3))
    yield Method("cope:clip=1", freq=cope(1))
    yield Method("cope:clip=4,hard=1", freq=cope(4, True))
    yield Method("hirope:window=7,segment=6,split=4", rel=dpe(7, [1, 6]))
    yield Method("adagrope:first=6,reuse=1.75", rel=adagrope(6, 1.75))
    yield Method("adagrope:first=9,reuse=2", rel=adagrope(9, 2.0))
    yield Method("dope:heads=1,from=3", rel=dope([1], 3))
    yield Method("dope:from=5", rel=dope([0, 1], 5))
    mean, gate = by_mean(bare), by_mean(turned)
    yield Method("select:k=3,block=4,sinks=2,local=6", choose=chosen(3, 4, 2, 6, mean, "layer"))
    yield Method("select:k=2,block=5,sinks=0,local=1,unit=layer,refresh=7,representative=extremes,positions=constant",
                 choose=chosen(2, 5, 0, 1, by_extremes, "layer", 7, "constant"))
    yield Method("select:k=4,block=3,sinks=3,local=5,refresh=4,unit=head,positions=packed,scored=true,"
                 "over=dpe:window=7,groups=4,scales=1/2.5/8/3",
                 choose=chosen(4, 3, 3, 5, by_far_mean(7, [1, 2.5, 8, 3]), "head", 4, "packed", [1, 2.5, 8, 3], 7))
    yield Method("select:k=5,block=1,sinks=0,local=3,unit=head,over=dpe:window=7,groups=4,scales=1/2.5/8/3,log-n=9",
                 choose=chosen(5, 1, 0, 3, mean, "head", 1, "true", [1, 2.5, 8, 3], 7), query=log_n(9.0))
    yield Method("select:k=0,block=4,sinks=4,local=9,positions=packed", choose=chosen(0, 4, 4, 9, mean, places="packed"))
    yield Method("longheads:block=3", choose=chosen(5, 3, 3, 4, by_weighted, places="packed"))
    yield Method("longheads:block=2,k=4,mean=1", choose=chosen(4, 2, 2, 3, mean, places="packed"))
    yield Method("longheads:block=4,k=2,refresh=3", choose=chosen(2, 4, 4, 5, by_weighted, refresh=3, places="packed"))
    yield Method("infllm:block=5,sinks=3,local=7,k=3,attended=2",
                 choose=chosen(3, 5, 3, 7, by_attended(2), "layer", places="constant"))
    yield Method("infllm:block=4,sinks=4,local=12,k=2,attended=4,refresh=5",
                 choose=chosen(2, 4, 4, 12, by_attended(4), "layer", 5, "constant"))
    yield Method("reattention:block=4,sinks=2,local=9,k=2", choose=chosen(2, 4, 2, 9, by_keys, "layer", places="packed"))
    yield Method("minference:block=6,k=4", choose=chosen(3, 6, 0, 1, gate, refresh=6))
    yield Method("vertical-slash:sinks=3,local=5,columns=4,slashes=3,last=6,refresh=8",
                 choose=chosen(4, 1, 3, 5, by_probability(6), refresh=8, far=distances(6, 3, 5)))
    yield Method("vertical-slash:sinks=0,local=1,columns=2,slashes=9,last=1,refresh=1",
                 choose=chosen(2, 1, 0, 1, by_probability(1), far=distances(1, 9, 1)))
    yield Method("select:k=2,block=4,sinks=1,local=3,representative=probability,last=20,slashes=5,scored=true,unit=head,"
                 "positions=packed,refresh=5", choose=chosen(2, 4, 1, 3, by_probability(20), "head", 5, "packed",
                                                             far=distances(20, 5, 3)))
    yield Method("moba:block=5,k=3", choose=chosen(2, 5, 0, 1, gate))
    yield Method("moba:block=8,k=1", choose=chosen(0, 8, 0, 1, gate))
    # The attention temperature, on plans of every kind.
    b = 2.0 / DIM
    yield Method("pi:scale=3.5,log-n=9", freq=frequencies() / 3.5, query=log_n(9.0))
    yield Method("ntk:scale=3,infoscale=9", freq=by_ntk, query=infoscale(9.0))
    yield Method("ntk-dynamic:logit-scale=1.21", freq=by_dynamic, a=1.1)
    yield Method("ntk-by-parts:scale=4,alpha=0.5,beta=3,log-n=12,log-n-power=2", freq=ntk_by_parts(4.0, 0.5, 3.0),
                 query=log_n(12.0)**2.0)
    yield Method("llama3:scale=8,low=0.5,high=3,log-n=9,log-n-power=0.5,log-n-decay=%.17g" % b,
                 freq=llama3(8.0, 0.5, 3.0), query=infoscale(9.0))
    yield Method("longrope:long=2,short=1,logit-scale=1.69,log-n=20", freq=frequencies() / 2.0, a=1.3 * rope_a,
                 query=log_n(20.0))
    rel, seen = streaming(4, 20)
    yield Method("streaming-llm:sinks=4,window=20,log-n=9,logit-scale=0.81", rel=rel, seen=seen, a=0.9,
                 query=log_n(9.0))
    rel, seen = lm_infinite(3, 17)
    yield Method("lm-infinite:sinks=3,window=17,infoscale=7", rel=rel, seen=seen, query=infoscale(7.0))
    yield Method("lampe:window=8,tail=3,map=10,official=1,log-n=9,logit-scale=1.21", rel=lampe(8, 3, 10),
                 a=1.1 * (0.1 * math.log(2.0) + 1.0), query=log_n(9.0))
    yield Method("cope:clip=3,log-n=9", freq=cope(3), query=log_n(9.0))
    yield Method("hirope:window=7,segment=6,split=4,infoscale=9", rel=dpe(7, [1, 6]), query=infoscale(9.0))
    yield Method("adagrope:first=6,reuse=1.75,log-n=9,log-n-power=1.5", rel=adagrope(6, 1.75), query=log_n(9.0)**1.5)
    yield Method("dope:heads=1,from=3,logit-scale=1.44", rel=dope([1], 3), a=1.2)
    yield Method("rope:log-n=9", query=log_n(9.0))
    yield Method("rope:logit-scale=1.44", a=1.2)
    yield Method("yarn:scale=4,log-n=11,logit-scale=2.25", freq=yarn(4.0),
                 a=1.5 * (0.1 * math.log(4.0) + 1.0), query=log_n(11.0))
    yield Method("dpe:window=8,groups=4,scales=4/2/2/8,log-n=12,log-n-power=0.6,logit-scale=1.21",
                 rel=dpe(8, [4, 2, 2, 8], MASK), a=1.1, query=log_n(12.0)**0.6, masked=True)
    yield Method("self-extend:window=9,group=4,log-n=7.5,log-n-power=2", rel=grouped(9, 4),
                 query=log_n(7.5)**2.0)
    yield Method("string:shift=26,window=5,official=0,infoscale=9",
                 rel=np.where(D < 26, D, D - 26 + 5), query=infoscale(9.0))
    yield Method("dca:chunk=18,local=5,official=0,log-n=9,log-n-power=0.5,log-n-decay=%.17g"
                 % (2.0 / DIM), rel=dca(18, 5), query=infoscale(9.0))
    # log-n replaces what official=1 sets.
    yield Method("rerope:window=24,official=1,log-n=5", rel=np.minimum(D, 24), query=log_n(5.0))
    yield Method("leaky-rerope:window=10,scale=4,official=1,log-n=0",
                 rel=np.where(D < 10, D, 10 + (D - 10) / 4.0))
    yield Method("rerope:window=13,official=1,log-n-power=1.5", rel=np.minimum(D, 13),
                 query=log_n()**1.5)
    yield Method("jet-long:window=5,group=3", rel=jet_long(5, 3))
    yield Method("jet-long", rel=jet_long(1, 4))
    yield Method("jetlong_freq:window=4,scale=3", rel=jetlong_freq(4, 3.0))
    yield Method("jetlong_freq:window=3,beta_fast=3,beta_slow=0.2,official=1",
                 rel=jetlong_freq(3, (T - 3) / (TRAINED - 3), 3.0, 0.2),
                 query=np.full(T, 0.1 * math.log((T - 3) / (TRAINED - 3)) + 1.0))
    yield Method("self:window=9,group=4,rate=0.2", rel=logistic_groups(9, 4, 0.2))
    yield Method("self:window=5,group=9,rate=0.6,log-n=9", rel=logistic_groups(5, 9, 0.6), query=log_n(9.0))
    yield Method("mrrope:scale=4", freq=mrrope(4.0, 32.0, 1.0), a=0.1 * math.log(4.0) + 1.0)
    yield Method("mrrope:form=uni,beta_fast=3,beta_slow=0.2,a=1.2", freq=mrrope(S, 3.0, 0.2, True), a=1.2)


def by_transformers():
    """spec, and the configuration that selects it in transformers."""
    original = dict(original_max_position_embeddings=TRAINED)
    long = "/".join("%g" % x for x in LONG)
    short = "/".join("%g" % x for x in SHORT)
    yield "rope", dict(rope_type="default")
    yield "pi:scale=3.5", dict(rope_type="linear", factor=3.5)
    yield "ntk-dynamic", dict(rope_type="dynamic", factor=S)
    yield "yarn:scale=4", dict(rope_type="yarn", factor=4.0, **original)
    yield ("yarn:scale=4,a=1.386,beta_fast=3,beta_slow=0.2",
           dict(rope_type="yarn", factor=4.0, attention_factor=1.386, beta_fast=3.0, beta_slow=0.2,
                **original))
    yield ("llama3:scale=8,low=0.5,high=3",
           dict(rope_type="llama3", factor=8.0, low_freq_factor=0.5, high_freq_factor=3.0, **original))
    yield ("longrope:long=%s,short=%s" % (long, short),
           dict(rope_type="longrope", factor=S, long_factor=LONG, short_factor=SHORT, **original))


def write_attention():
    rng = np.random.default_rng(20)
    q = rng.normal(size=(T, HEADS, DIM)).astype("<f4")
    k = rng.normal(size=(T, DIM)).astype("<f4")
    v = rng.normal(size=(T, DIM)).astype("<f4")
    with open(os.path.join(HERE, "cases.txt"), "w") as cases, \
            open(os.path.join(HERE, "attention.f32"), "wb") as values:
        for array in (q, k, v):
            values.write(array.tobytes())
        for method in methods():
            cases.write("%s%s\n" % (method.spec, " masked" if method.masked else ""))
            out = method.attention(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64))
            values.write(out.astype("<f4").tobytes())


def write_frequencies():
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    with open(os.path.join(HERE, "frequencies.txt"), "w") as lines:
        for spec, rope in by_transformers():
            config = LlamaConfig(hidden_size=HEADS * DIM, num_attention_heads=HEADS, head_dim=DIM,
                                 max_position_embeddings=TRAINED,
                                 rope_parameters=dict(rope, rope_theta=THETA))
            if rope["rope_type"] == "default":
                freq, a = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
            else:
                init = ROPE_INIT_FUNCTIONS[rope["rope_type"]]
                freq, a = init(config, torch.device("cpu"), seq_len=T)
            lines.write("%s %.9g %s\n" % (spec, a, " ".join("%.9g" % x for x in freq.tolist())))


if __name__ == "__main__":
    write_attention()
    write_frequencies()

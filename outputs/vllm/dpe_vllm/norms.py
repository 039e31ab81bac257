"""2-norms of queries and keys by layer, head and pair, summed over the tokens of a text (norms/norms.h). Rotation does not
change them, so layers that rotate by themselves are asked too."""
import collections

import numpy as np

MOST_TEXTS = 1024


class Sums:
    """Of one text, in this process: of its heads alone where several share the model. products: of |q| |k| at the same position
    (in q alone), else of each."""

    def __init__(self, products):
        self.products, self.layers, self.whole = products, {}, True

    def add(self, layer, first, q, k):
        """q [rows, heads, head_dim], k [rows, KV heads, head_dim] in the table's order of components, of the tokens from `first`
        on. A text that was preempted comes again from an earlier token; each counts once. Where tokens before `first` are missing
        there is no sum: the model, which runs other texts as well, goes on."""
        rows, sum_q, sum_k = self.layers.get(layer, (0, 0.0, 0.0))
        self.whole = self.whole and first <= rows
        if not self.whole:
            return
        q, k = (_norms(x[rows - first:]) for x in (q, k))
        if self.products:
            q, k = q * k.repeat_interleave(q.shape[1] // k.shape[1], dim=1), k[:0]
        self.layers[layer] = (rows + len(q), sum_q + q.sum(0), sum_k + k.sum(0))

    def lists(self):
        """[layer, rows, q, k] of each layer, the sums as bytes of float64; none where tokens were missing."""
        return [] if not self.whole else [[layer, rows, *(x.cpu().numpy().tobytes() for x in sums)]
                                          for layer, (rows, *sums) in sorted(self.layers.items())]


def _norms(x):
    a, b = x.float().chunk(2, dim=-1)
    return (a * a + b * b).sqrt().double()


class Texts:
    """The sums of texts that are running or were not asked for yet, by the name that the request gave them."""

    def __init__(self):
        self._sums = collections.OrderedDict()

    def of(self, name, products):
        if name not in self._sums:
            self._sums[name] = Sums(products)
            while len(self._sums) > MOST_TEXTS:  # clients that left
                self._sums.popitem(last=False)
        return self._sums[name]

    def pop(self, name):
        return self._sums.pop(name, None)


TEXTS = Texts()


def join(parts, layers, heads, kv_heads, apart=()):
    """The sums of the whole model of what its processes gave: parts of (rank among those that divide the heads, lists). Returns
    rows [layers], q [layers, heads, pairs] and k [layers, KV heads, pairs], flat; k is empty with products. KV heads that are
    fewer than the processes are repeated in them. apart: layers whose sums are 0."""
    found = [{} for _ in range(layers)]
    for rank, lists in parts:
        for layer, rows, q, k in lists:
            found[layer][rank] = (rows, np.frombuffer(q), np.frombuffer(k))
    attend = [layer for layer in range(layers) if layer not in apart]
    for layer in attend:
        if not found[layer]:
            raise RuntimeError(f"layer {layer} gave no norms")
    rows, q, k = [], [], []
    for layer, of_ranks in enumerate(found):
        ordered = [one for _, one in sorted((of_ranks if layer in attend else found[attend[0]]).items())]
        rows.append(ordered[0][0])
        q.append(np.concatenate([one[1] for one in ordered]) * (layer in attend))
        kept = ordered[::max(1, len(ordered) // kv_heads)]
        k.append(np.concatenate([one[2] for one in kept]) * (layer in attend))
    pairs = q[0].size // heads
    if any(one.size != heads * pairs for one in q) or any(one.size not in (0, kv_heads * pairs) for one in k):
        raise RuntimeError("norms of other heads than the model has")
    return rows, np.concatenate(q).tolist(), np.concatenate(k).tolist()

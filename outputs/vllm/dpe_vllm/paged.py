"""A plan as two calls of an ordinary paged attention, merged. It needs no vLLM (tests/outputs/export/two_calls.py).

A serving engine has kernels for one kind of attention: softmax over the keys that a query sees, where what it sees is causal,
ends some tokens before the query, or is a window. A plan of a near and a far band is two of these: near keys, rotated at their
true positions, in a window, and far keys, rotated at far positions, causal but for the last `window` ones. Each call gives its
output and the logarithm of its sum of exponentials, and from these the softmax over both sets of keys follows exactly. Keys are
cached twice, once for each call, in the order of components of dpe_attention.
"""
import math

import torch

from dpe_attention import Rotations
from dpe_plan import DISTANCE, NO_END


def why_not(plan):
    """What of a plan two calls cannot compute, None: nothing."""
    bands = plan.bands
    if any(band.kind != DISTANCE for band in bands) or len(bands) > 2 or bands[0].lo != 0 or bands[-1].hi != NO_END or \
            (len(bands) == 2 and bands[1].lo != bands[0].hi):
        return "its bands are not a near and a far one"
    if plan.mask is not None:
        return "its heads have key pairs of their own, and a cached far key serves all of them"
    return None


def merge(one, other):
    """(out, lse) of attention to both sets of keys, which share none. out [rows, heads, head_dim], lse [heads, rows]; a kernel
    gives one of both infinities where a row sees no key."""
    (out_a, lse_a), (out_b, lse_b) = ((out.float(), torch.where(torch.isinf(lse), torch.full_like(lse, -math.inf), lse))
                                      for out, lse in (one, other))
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a, weight_b = ((part - lse).exp().nan_to_num(0.0).transpose(0, 1)[..., None] for part in (lse_a, lse_b))
    # What a kernel wrote for a row without keys is not defined: 0 times it may be NaN.
    return torch.where(weight_a > 0, out_a, torch.zeros_like(out_a)) * weight_a + \
        torch.where(weight_b > 0, out_b, torch.zeros_like(out_b)) * weight_b, lse


class TwoCalls:
    """kernel(q, keys, values, starts, longest, lengths, most, blocks, scale, window, softcap) computes attention of several
    texts over pages, causal in the sense that the last row sees the last key: q [rows, heads, head_dim], keys, values [blocks,
    tokens of a block, KV heads, head_dim], starts int32 [texts + 1] rows of each text, `longest` of them, lengths int32 [texts]
    keys of each, `most` of them, blocks int32 [texts, ...], window: keys before its own that a row sees besides, -1: all.
    Returns out as q, and lse float32 [heads, rows]."""

    def __init__(self, plan, kernel, order=None):
        reason = why_not(plan)
        if reason is not None:
            raise ValueError(reason)
        self.plan, self.kernel, self.order, self.rotations = plan, kernel, order, {}

    def _rotations(self, device, tokens):
        if device not in self.rotations:
            self.rotations[device] = Rotations(self.plan, self.order, device)
        self.rotations[device].grow(tokens)
        return self.rotations[device]

    def keys(self, k, positions, tokens):
        """Near and far keys of rows k [rows, KV heads, head_dim] at positions [rows] below `tokens`, to be cached."""
        rotations = self._rotations(k.device, tokens)
        return tuple(rotations.rotate(k.transpose(0, 1), band.k_map, positions, k.dtype).transpose(0, 1)
                     for band in (self.plan.bands[0], self.plan.bands[-1]))

    def __call__(self, q, near_keys, far_keys, values, positions, starts, longest, lengths, most, blocks, scale, softcap=0.0,
                 layer=0):
        """q [rows, heads, head_dim] of a layer before rotation, at positions [rows]; the rest as a kernel has it."""
        rotations = self._rotations(q.device, most)
        near, far = self.plan.bands[0], self.plan.bands[-1]
        heads = self.plan.scale_heads(q.transpose(0, 1).float() * rotations.query_scale[positions], layer, 0)

        def rotated(band):
            return rotations.rotate(heads, band.q_map, positions, q.dtype).transpose(0, 1)

        single = len(self.plan.bands) == 1
        window = -1 if single else near.hi - 1
        out, lse = self.kernel(rotated(near), near_keys, values, starts, longest, lengths, most, blocks, scale, window, softcap)
        if single or most <= near.hi:
            return out
        # Keys end `window` tokens before the last query: causal from there, each row's last far key is its own less window.
        before = (lengths - near.hi).clamp(min=0)
        beyond = self.kernel(rotated(far), far_keys, values, starts, longest, before, most - near.hi, blocks, scale, -1, softcap)
        return merge((out, lse), beyond)[0].to(q.dtype)


def plain_kernel(q, keys, values, starts, longest, lengths, most, blocks, scale, window, softcap):
    """What TwoCalls expects of a kernel, in plain PyTorch."""
    out, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float32)
    size, group = keys.shape[1], q.shape[1] // keys.shape[2]
    for text, tokens in enumerate(lengths.tolist()):
        rows = slice(int(starts[text]), int(starts[text + 1]))
        pages = blocks[text, :-(-tokens // size)].long()
        k, v = (x[pages].flatten(0, 1)[:tokens].transpose(0, 1).repeat_interleave(group, dim=0).float() for x in (keys, values))
        logits = q[rows].transpose(0, 1).float() @ k.transpose(1, 2) * scale
        logits = softcap * torch.tanh(logits / softcap) if softcap else logits
        last = torch.arange(rows.stop - rows.start, device=q.device)[:, None] + tokens - (rows.stop - rows.start)
        at = torch.arange(tokens, device=q.device)
        logits = logits.masked_fill((at > last) | ((at < last - window) if window >= 0 else False), -math.inf)
        lse[:, rows] = torch.logsumexp(logits, dim=-1)
        out[rows] = (torch.softmax(logits, dim=-1).nan_to_num(0.0) @ v).transpose(0, 1).to(q.dtype)
    return out, lse

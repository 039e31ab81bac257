"""DPE attention as two calls of an ordinary attention, merged: the part of a vLLM plugin that needs no vLLM (README.md).

A serving engine has kernels for one kind of attention: softmax over keys that a query sees, where what it sees is causal, cut
off on the right by some tokens, or a window. DPE is two of these: *near* keys at their true distance, and *far* ones at
scaled positions. Each call gives its output and the logarithm of its sum of exponentials, and from these the softmax over both
sets of keys follows exactly.

The keys are taken as an engine caches them, rotated at their true positions by the model's own code; the far call rotates them on
by the difference, and so does the near call where the table has frequencies of its own (applied_inv_freq). Plain PyTorch 1.13 or
later; equal to dpe_attention.Attention within rounding (tests/outputs/export/two_calls.py).
"""
import hashlib
import math

import numpy as np
import torch


def attend(q, k, v, scale, first, last):
    """Softmax attention of q [batch, heads, rows, x] to k [batch, heads, keys, x], v [batch, heads, keys, y]; scale [rows] of
    the logits. Row i sees keys first[i] ... last[i], both included. Returns (out [batch, heads, rows, y], lse [batch, heads,
    rows]); a row that sees no key has out 0 and lse -inf. What a paged kernel computes: causal attention has first 0, a
    sliding window of w has last - w + 1."""
    logits = (q.float() @ k.float().transpose(-1, -2)) * scale[:, None]
    at = torch.arange(k.shape[2], device=k.device)
    seen = (at >= first[:, None]) & (at <= last[:, None])
    logits = logits.masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(logits, dim=-1)
    weights = (logits - torch.where(torch.isinf(lse), torch.zeros_like(lse), lse)[..., None]).exp()
    return weights @ v.float(), lse


def merge(one, other):
    """(out, lse) of attention to both sets of keys, which share none."""
    (out_a, lse_a), (out_b, lse_b) = one, other
    lse = torch.logaddexp(lse_a, lse_b)
    return out_a * (lse_a - lse).exp()[..., None] + out_b * (lse_b - lse).exp()[..., None], lse


def salt(table):
    """A text for an engine's prefix cache, equal for equal plans: beyond the first layer keys and values depend on the plan
    that ran, so those of one plan (or entry of a table) must not serve another."""
    fields = [table.trained_length, table.evaluated_length, table.local_window, table.attention_scaling, table.logit_scale,
              table.log_n_length, table.log_n_power, table.log_n_decay, table.unrounded]
    lists = [table.group_edge, table.scale_factor, table.inv_freq, table.applied_inv_freq]
    lists += [] if table.mask is None else [table.mask]
    digest = hashlib.sha256(repr([float(field) for field in fields]).encode())
    for values in lists:
        digest.update(np.ascontiguousarray(values, dtype=np.float64).tobytes())
    return "dpe-" + digest.hexdigest()[:32]


class TwoCalls(torch.nn.Module):
    """Causal attention under one entry of a table (dpe_attention.load_table(PATH).choose(tokens)).

    forward(q, k, v, layer): q [batch, n_heads, rows, head_dim], the last `rows` tokens; k, v [batch, n_kv_heads, tokens,
    head_dim], all tokens from position 0 on; q and k rotated at their true positions, attention_scaling not in them.
    """

    def __init__(self, table):
        super().__init__()
        self.table = table

    def _near(self, x, first):
        """Rotate x [..., rows, head_dim], tokens first ..., on from the model's frequencies to those of the table."""
        if np.array_equal(self.table.applied_inv_freq, self.table.inv_freq):
            return x.float()
        return self._turn(x, first, np.arange(first, first + x.shape[-2])[:, None])

    def _far(self, x, first, query):
        return self._turn(x, first, self.table.far_positions(first, first + x.shape[-2], query))

    def _turn(self, x, first, positions):
        """Rotate x, which the model's code rotated at true positions, on to `positions`. Angles are products in float32, as
        that code has them; their difference is taken in double."""
        own, applied = (part.astype(np.float32) for part in (self.table.inv_freq, self.table.applied_inv_freq))
        true = np.arange(first, first + x.shape[-2], dtype=np.float32)[:, None]
        angle = (positions.astype(np.float32) * applied).astype(np.float64) - (true * own).astype(np.float64)
        cos, sin = (torch.from_numpy(f(angle).astype(np.float32)).to(x.device) for f in (np.cos, np.sin))
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def forward(self, q, k, v, layer):
        table, window = self.table, self.table.local_window
        batch, heads, rows, dim = q.shape
        tokens, group = k.shape[2], heads // k.shape[1]
        first = tokens - rows
        scales = table.query_scales(first, first + rows) / math.sqrt(dim)
        scale = torch.from_numpy(scales.astype(np.float32)).to(q.device)
        position = torch.arange(first, tokens, device=q.device)
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        near_q, near_k = self._near(q, first), self._near(k, 0)
        near = attend(near_q, near_k, v, scale, position - window + 1, position)
        if tokens <= window:
            return near[0].to(q.dtype)
        far_q, far_k = self._far(q, first, True), self._far(k, 0, False)
        if table.mask is not None:
            # Pairs that do not move stay as they are, by query head.
            mask = torch.from_numpy(np.concatenate([table.mask[layer]] * 2, axis=-1)).to(q.device)[:, None, :]
            far_q, far_k = torch.where(mask, far_q, near_q), torch.where(mask, far_k, near_k)
        # Causal attention whose keys end `window` tokens before each query.
        far = attend(far_q, far_k, v, scale, torch.zeros_like(position), position - window)
        return merge(near, far)[0].to(q.dtype)

"""Attention under a table as two calls of a paged kernel (paged.py), for backends whose kernel can give its log-sum-exp.

The cache of a layer without a window holds three rows for each token: its near key, its value, its far key; a text without an
entry uses the first two as the platform's own backend does. Entries that two calls cannot compute keep keys before rotation in
the first row, and take the exact path. So do all entries with DPE_VLLM_EXACT=1, and then the cache is no larger than without a
table. At the start the two calls are compared with the exact path on random numbers of the model's shape.
"""
import dataclasses
import os

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec

from dpe_attention import TableError, Tokens

from dpe_vllm import paged
from dpe_vllm.backend import Builder, Impl
from dpe_vllm.model import MOST_KEPT
from dpe_vllm.serving import logger, serving

# Of the largest difference over the spread of the result; measured with paged.plain_kernel, times 4.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def exact_only():
    return os.environ.get("DPE_VLLM_EXACT") == "1"


def is_fast(digest):
    """Whether two calls compute the plan."""
    return not exact_only() and paged.why_not(serving().plans[digest]) is None


def may_be_fast():
    """Whether the cache needs a second key. The plans of an engine come later."""
    return not exact_only() and (serving().engine or any(is_fast(digest) for digest in serving().plans))


class TwoCallsBackend:
    """Mixed into a backend."""

    @classmethod
    def customize_spec(cls, spec):
        spec = super().customize_spec(spec)
        if not isinstance(spec, FullAttentionSpec) or spec.sliding_window is not None or not may_be_fast():
            return spec
        if spec.state_content_bytes is not None:
            raise TableError("this attention backend packs its cache, so that a second key has no place: DPE_VLLM_EXACT=1")
        return dataclasses.replace(spec, state_content_bytes=3 * spec.head_size * spec.dtype.itemsize)


@dataclasses.dataclass
class Together:
    """Texts of one entry, as a kernel takes them."""
    rows: torch.Tensor
    positions: torch.Tensor
    starts: torch.Tensor
    longest: int
    lengths: torch.Tensor
    most: int
    blocks: torch.Tensor


def together(texts, device):
    counts = [text.end - text.begin for text in texts]
    most = max(text.tokens for text in texts)
    blocks = torch.zeros(len(texts), max(len(text.blocks) for text in texts), dtype=torch.int32, device=device)
    for i, text in enumerate(texts):
        blocks[i, :len(text.blocks)] = text.blocks
    return Together(torch.cat([torch.arange(text.begin, text.end) for text in texts]).to(device),
                    torch.cat([torch.arange(text.tokens - count, text.tokens)
                               for text, count in zip(texts, counts)]).to(device),
                    torch.tensor([0] + counts).cumsum(0).to(device, torch.int32), max(counts),
                    torch.tensor([text.tokens for text in texts], dtype=torch.int32, device=device), most, blocks)


class TwoCallsBuilder(Builder):
    """Copies of metadata with other blocks (hybrid caches) would keep those of the texts under an entry."""
    supports_update_block_table = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        runner = self._runner()
        if runner is not None:
            name = next(iter(runner.dpe_moved.layers))
            layer = self.vllm_config.compilation_config.static_forward_context[name]
            for length, digest in serving().entries.items():
                if not is_fast(digest):
                    logger.info("DPE: entry for %d tokens: exact path (%s)", length,
                                paged.why_not(serving().plans[digest]) or "DPE_VLLM_EXACT=1")
                layer.impl.calls(runner.dpe_moved, digest, self.device, self.vllm_config.model_config.dtype)

    def _divide(self, common, plans, asked, fast_build):
        batch = super()._divide(common, plans, asked, fast_build)
        batch.together = {}
        for digest in {text.plan for text in batch.moved if is_fast(text.plan)}:
            batch.together[digest] = together([text for text in batch.moved if text.plan == digest],
                                              common.slot_mapping.device)
        return batch


class TwoCallsImpl(Impl):
    """kernel: as paged.TwoCalls has it. own(kv_cache): the cache as the platform's own backend takes it."""

    def views(self, kv_cache):
        return kv_cache[..., :self.head_size], kv_cache[..., self.head_size:2 * self.head_size]

    def _far(self, kv_cache):
        return kv_cache[..., 2 * self.head_size:3 * self.head_size]

    def own(self, kv_cache):
        return kv_cache[..., :2 * self.head_size]

    def calls(self, moved, digest, device, dtype):
        """paged.TwoCalls of a plan, checked; None: the exact path."""
        if not is_fast(digest):
            return None
        if digest not in moved.two_calls:
            calls = paged.TwoCalls(serving().plans[digest].of_heads(moved.rank, moved.size), self.kernel, moved.order)
            if digest not in moved.compared:
                self.compare(calls, moved, digest, device, dtype)
            moved.compared.add(digest)
            moved.two_calls[digest] = calls
        moved.two_calls.move_to_end(digest)
        while len(moved.two_calls) > MOST_KEPT:
            moved.two_calls.popitem(last=False)
        return moved.two_calls[digest]

    def compare(self, calls, moved, digest, device, dtype):
        """TableError with the difference where the kernel does not compute what the plan says."""
        window, size = calls.plan.bands[0].hi, 16
        tokens = [min(3 * window + 5, 4096) if window < 4096 else 300, 33, 1]
        rows = [min(40, tokens[0]), 1, 1]
        random = torch.Generator().manual_seed(1)

        def numbers(*shape):
            return torch.randn(*shape, generator=random).to(device, dtype)

        pages = [-(-count // size) for count in tokens]
        cache = numbers(sum(pages) + 1, self.num_kv_heads, size, 3 * self.head_size)
        blocks = torch.zeros(len(tokens), max(pages), dtype=torch.int32, device=device)
        texts, at = [], 1
        for i, count in enumerate(tokens):
            blocks[i, :pages[i]] = torch.arange(at, at + pages[i])
            k, v = numbers(2, count, self.num_kv_heads, self.head_size)
            slots = torch.arange(count, device=device)
            page, place = blocks[i].long()[slots // size], slots % size
            near, far = calls.keys(k, slots, count)
            cache[page, :, place] = torch.cat((near, v, far), dim=-1)
            texts.append((numbers(rows[i], self.num_heads, self.head_size), k, v))
            at += pages[i]
        number = next(iter(moved.layers.values()))
        starts = torch.tensor([0] + rows).cumsum(0).to(device, torch.int32)
        positions = torch.cat([torch.arange(count - row, count) for count, row in zip(tokens, rows)]).to(device)
        keys, values = (part.transpose(1, 2) for part in self.views(cache))
        try:
            found = calls(torch.cat([q for q, _, _ in texts]), keys, self._far(cache).transpose(1, 2), values, positions, starts,
                          max(rows), torch.tensor(tokens, dtype=torch.int32, device=device), max(tokens), blocks,
                          self.scale * calls.plan.depth(number), self.softcap(), number)
        except (RuntimeError, NotImplementedError, AssertionError, TypeError) as error:
            raise TableError(f"plan {digest:.16}: the attention kernel cannot be called as two paged calls: {error}; "
                             "DPE_VLLM_EXACT=1 runs the exact path, which is slower") from error
        exact = torch.cat([moved.attention(digest).attend(
            q.transpose(0, 1)[None].float(), Tokens(*(x.transpose(0, 1)[None].float() for x in (k, v))), len(k),
            number, self.scale, self.softcap())[0].transpose(0, 1) for q, k, v in texts])
        difference = float((found.float() - exact).abs().max() / (exact.max() - exact.min()))
        if not difference <= TOLERANCE[dtype]:
            raise TableError(f"plan {digest:.16}: the attention kernel differs from the exact path by {difference:.3g} of "
                             f"the spread, expected at most {TOLERANCE[dtype]:g} in {dtype}; DPE_VLLM_EXACT=1 runs the exact "
                             "path, which is slower")
        logger.info("DPE: plan %.16s: two paged calls, which differ from the exact path by %.3g of the spread", digest,
                    difference)

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        batch, moved, _ = self._moved(layer)
        if batch is None or not batch.together:
            super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
            return
        # All rows as the exact path has them; those of two calls get their keys below.
        super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
        near_keys, far_keys = self.views(kv_cache)[0], self._far(kv_cache)
        for digest, texts in batch.together.items():
            calls = self.calls(moved, digest, key.device, key.dtype)
            near, far = calls.keys(key[texts.rows], texts.positions, texts.most)
            slots = slot_mapping[texts.rows].long()
            block, at = slots // near_keys.shape[2], slots % near_keys.shape[2]
            near_keys[block, :, at], far_keys[block, :, at] = near.to(near_keys.dtype), far.to(far_keys.dtype)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs):
        batch, moved, number = self._moved(layer)
        if batch is not None and batch.together:
            keys, values = (part.transpose(1, 2) for part in self.views(kv_cache))
            for digest, texts in batch.together.items():
                calls = self.calls(moved, digest, query.device, query.dtype)
                output[texts.rows] = calls(query[texts.rows], keys, self._far(kv_cache).transpose(1, 2), values,
                                           texts.positions, texts.starts, texts.longest, texts.lengths, texts.most,
                                           texts.blocks, self.scale * calls.plan.depth(number), self.softcap(),
                                           number).to(output.dtype)
        return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs)

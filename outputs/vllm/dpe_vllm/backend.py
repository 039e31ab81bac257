"""Attention under a table over vLLM's paged cache. Texts that the model runs by itself are the platform's own backend's, in the
same call: it is told that the others are short, and what it writes for these is written again.

Here the others are computed in PyTorch, exactly, on any device that vLLM runs on; cards.py has the kernel.
"""
import dataclasses
import functools

import torch
from vllm.forward_context import get_forward_context
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from dpe_vllm import hooks, norms
from dpe_vllm.serving import serving

# What a cache of each name holds.
EIGHT_BITS = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@dataclasses.dataclass
class Text:
    """A text under a plan: its digest, the text's rows of the batch, its tokens in all, its blocks of the cache, and the name and
    kind of the norms that were asked for."""
    plan: str
    begin: int
    end: int
    tokens: int
    blocks: torch.Tensor
    norms: tuple = None


@dataclasses.dataclass
class Batch:
    """moved: the model's; common: what vLLM says of the batch, None for layers of a group in which none moves; numbers: of the
    texts, as Moved.numbers; texts: those under a plan, where Python reads them."""
    moved: object
    common: object
    numbers: torch.Tensor
    texts: list


class Pages:
    """Keys and values of a text in the cache, as dpe_attention.Tokens has them. views: both, [blocks, KV heads, tokens of a block,
    head_dim]; scales: factors on what they hold."""

    def __init__(self, views, blocks, scales):
        self._views, self._blocks, self._scales, self._size = views, blocks, scales, views[0].shape[2]

    def _part(self, which, begin, end):
        first, view = begin // self._size, self._views[which]
        part = view[self._blocks[first:-(-end // self._size)]].float() * self._scales[which]
        part = part.transpose(0, 1).reshape(view.shape[1], -1, view.shape[3])
        return part[None, :, begin - first * self._size:end - first * self._size]

    keys, values = functools.partialmethod(_part, 0), functools.partialmethod(_part, 1)


class Builder:
    """Mixed into the platform's metadata builder. OWN_ROWS: whether the platform's backend is to see, of a text under a plan, the
    rows of the batch, else no key at all."""
    OWN_ROWS = 0
    # Copies of metadata with other blocks (hybrid caches) would keep those of the texts under an entry.
    supports_update_block_table = False

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        runner = next((one for one in hooks.RUNNERS if one.vllm_config is self.vllm_config), None)
        if runner is None:
            return super().build(0, common, fast_build)
        moved, count = runner.dpe_moved, common.num_reqs
        plans, asked = hooks.plans_of_batch(runner, count)
        moves = any(name in moved.of(name).layers for name in self.layer_names)
        numbers, mine = moved.numbers.gpu[:count], common
        if moves:
            moved.numbers.np[:count] = self.numbers(moved, plans)
            moved.numbers.copy_to_gpu(count)
            rows = int(common.query_start_loc_cpu[-1])
            moved.rows[:rows] = (numbers > 0).repeat_interleave(common.query_start_loc.diff(), output_size=rows)
            # A buffer, whose place a graph may keep.
            self.lengths = getattr(self, "lengths", torch.empty_like(runner.seq_lens))
            torch.where(numbers > 0, common.query_start_loc.diff() * self.OWN_ROWS, common.seq_lens, out=self.lengths[:count])
            mine = dataclasses.replace(common, seq_lens=self.lengths[:count])
        metadata = super().build(0, mine, fast_build)
        metadata.dpe = Batch(moved, common if moves else None, numbers, self.texts(common, plans, asked))
        return metadata

    def texts(self, common, plans, asked):
        starts, tokens = common.query_start_loc_cpu.tolist(), common.seq_lens.tolist()
        size = self.kv_cache_spec.block_size
        return [Text(plan, starts[i], starts[i + 1], tokens[i], common.block_table_tensor[i, :-(-tokens[i] // size)].long(),
                     asked[i]) for i, plan in enumerate(plans) if plan is not None and starts[i] < starts[i + 1]]

    def numbers(self, moved, plans):
        return [plan is not None for plan in plans]


class Impl:
    """Mixed into the platform's implementation."""

    def views(self, kv_cache):
        """Keys and values of a cache [blocks, KV heads, tokens of a block, 2 head_dim]: a token's key is before its value."""
        return kv_cache.view(EIGHT_BITS.get(self.kv_cache_dtype, kv_cache.dtype)).chunk(2, dim=-1)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs):
        super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs)
        batch = getattr(attn_metadata, "dpe", None)
        if batch is None:
            return output
        for text in batch.texts:
            # Whether it moves or not, but for layers that have the keys of others.
            if text.norms is not None and key is not None and layer.layer_name in batch.moved.all_layers:
                rows, order = slice(text.begin, text.end), batch.moved.in_order
                norms.TEXTS.of(*text.norms).add(batch.moved.all_layers[layer.layer_name], text.tokens - (text.end - text.begin),
                                                order(query[rows]), order(key[rows]))
        if batch.common is not None:
            self.attend(layer, query, kv_cache, batch, output)
        return output


class CpuBuilder(Builder, CPUAttentionBackend.get_builder_cls()):
    OWN_ROWS = 1


class CpuImpl(Impl, CPUAttentionBackend.get_impl_cls()):
    """Keys and values of a text under a plan lie row by row in the tensor in which the kernels pack theirs. A block belongs to texts
    of one kind, since their salts differ."""

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        batch = getattr(get_forward_context().attn_metadata[layer.layer_name], "dpe", None)
        moved = None if batch is None or batch.common is None else batch.moved.rows[:len(slot_mapping)]
        if moved is None or not moved.any():
            super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
            return
        super().do_kv_cache_update(layer, key, value, kv_cache, torch.where(moved, -1, slot_mapping))
        moved = moved & (slot_mapping >= 0)
        slots = slot_mapping[moved].long()
        for view, new, scale in zip(self.views(kv_cache), (key, value), self.scales(layer)):
            view[slots // view.shape[2], :, slots % view.shape[2]] = (new[:len(moved)][moved] / scale).to(view.dtype)

    def take(self, moved, digests):
        """Plans that texts may have from here on, with these: nothing is made for them. Cards make tables, and compare them first
        (cards.py)."""
        return list(serving().plans)

    def scales(self, layer):
        return (layer._k_scale_float, layer._v_scale_float) if self.kv_cache_dtype in EIGHT_BITS else (1.0, 1.0)

    def attend(self, layer, query, kv_cache, batch, output):
        model = batch.moved.of(layer.layer_name)
        number, moves = model.all_layers[layer.layer_name], layer.layer_name in model.layers
        for text in batch.texts:
            attention = model.attention(text.plan, moves, layer.sliding_window)
            pages, rows = Pages(self.views(kv_cache), text.blocks, self.scales(layer)), slice(text.begin, text.end)
            output[rows] = attention.attend(query[rows].transpose(0, 1)[None], pages, text.tokens, number, self.scale,
                                            self.logits_soft_cap, self.sinks)[0].transpose(0, 1)


class CpuBackend(CPUAttentionBackend):
    get_impl_cls, get_builder_cls = staticmethod(lambda: CpuImpl), staticmethod(lambda: CpuBuilder)

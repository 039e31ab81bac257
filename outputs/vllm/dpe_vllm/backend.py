"""Attention under a table over vLLM's paged cache: exact, in PyTorch, on any device that vLLM runs on.

Texts that the model runs by itself take the platform's own backend, in calls of their own where a batch has both kinds.
"""
import dataclasses

import torch
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from dpe_vllm import hooks, norms
from dpe_vllm.model import batch_of, prepare


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
    """native: metadata of the texts that the model runs by itself, None when there are none."""
    moved: list
    moved_rows: torch.Tensor
    native: object = None
    native_rows: torch.Tensor = None
    together: dict = dataclasses.field(default_factory=dict)  # two_calls.py: what it runs


class Pages:
    """Keys and values of a text in the cache, as dpe_attention.Tokens has them. keys, values: views of the cache, [blocks,
    KV heads, tokens of a block, head_dim]."""

    def __init__(self, keys, values, blocks):
        self._keys, self._values, self._blocks, self._size = keys, values, blocks, keys.shape[2]

    def _part(self, view, begin, end):
        first = begin // self._size
        part = view[self._blocks[first:-(-end // self._size)]]
        part = part.transpose(0, 1).reshape(view.shape[1], -1, view.shape[3])
        return part[None, :, begin - first * self._size:end - first * self._size]

    def keys(self, begin, end):
        return self._part(self._keys, begin, end)

    def values(self, begin, end):
        return self._part(self._values, begin, end)


def select(common, texts):
    """CommonAttentionMetadata of some texts of a batch, and their rows."""
    starts = common.query_start_loc_cpu.tolist()
    rows = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in texts]).to(common.slot_mapping.device)
    counts = torch.tensor([0] + [starts[i + 1] - starts[i] for i in texts], dtype=common.query_start_loc_cpu.dtype)
    start = counts.cumsum(0).to(counts.dtype)
    index = torch.tensor(texts, device=common.seq_lens.device)

    def of_texts(values):
        return None if values is None else values[index.to(values.device)]

    return dataclasses.replace(
        common, query_start_loc=start.to(common.query_start_loc.device), query_start_loc_cpu=start,
        seq_lens=of_texts(common.seq_lens), num_reqs=len(texts), num_actual_tokens=len(rows),
        max_query_len=int(counts.max()), block_table_tensor=of_texts(common.block_table_tensor),
        slot_mapping=common.slot_mapping[rows], is_prefilling=of_texts(common.is_prefilling),
        seq_lens_cpu_upper_bound=of_texts(common.seq_lens_cpu_upper_bound),
        positions=None if common.positions is None else common.positions[rows]), rows


class Builder:
    """Mixed into the platform's metadata builder."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self._runner() is not None:
            prepare(self._runner())

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        # A prefix of several texts is read in one call (cascade) by some backends: never where plans may differ.
        common = common_attn_metadata
        metadata = super().build(0, common, fast_build)
        metadata.dpe = None
        runner = self._runner()
        if runner is None:
            return metadata
        plans, asked = hooks.plans_of_batch(runner, common.num_reqs)
        if any(plan is not None for plan in plans):
            metadata.dpe = self._divide(common, plans, asked, fast_build)
        return metadata

    def _runner(self):
        """The runner that this builder belongs to, once its model is there."""
        for runner in hooks.RUNNERS:
            if runner.vllm_config is self.vllm_config and getattr(runner, "model", None) is not None:
                return runner
        return None

    def _divide(self, common, plans, asked, fast_build):
        starts, tokens = common.query_start_loc_cpu.tolist(), common.seq_lens.tolist()
        size = self.kv_cache_spec.block_size
        moved = [Text(plan, starts[i], starts[i + 1], tokens[i], common.block_table_tensor[i, :-(-tokens[i] // size)].long(),
                      asked[i])
                 for i, plan in enumerate(plans) if plan is not None and starts[i] < starts[i + 1]]
        device = common.slot_mapping.device
        batch = Batch(moved, torch.cat([torch.arange(text.begin, text.end) for text in moved]).to(device)
                      if moved else torch.zeros(0, dtype=torch.long, device=device))
        native = [i for i, plan in enumerate(plans) if plan is None and starts[i] < starts[i + 1]]
        if native:
            part, batch.native_rows = select(common, native)
            batch.native = super().build(0, part, fast_build)
        return batch

    def use_cascade_attention(self, *args, **kwargs):
        return False


class Impl:
    """Mixed into the platform's implementation. views(kv_cache): keys and values as Pages takes them."""

    def own(self, kv_cache):
        """The cache as the platform's own implementation takes it."""
        return kv_cache

    def _moved(self, layer):
        """The batch and the layer's number, if this layer moves some of it."""
        batch = batch_of(layer.layer_name)
        moved = hooks.moved_of(layer)
        number = None if moved is None else moved.layers.get(layer.layer_name)
        return (None, None, None) if batch is None or number is None else (batch, moved, number)

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        batch, _, _ = self._moved(layer)
        if batch is None:
            super().do_kv_cache_update(layer, key, value, self.own(kv_cache), slot_mapping)
            return
        if batch.native is not None:
            rows = batch.native_rows
            super().do_kv_cache_update(layer, key[rows], value[rows], self.own(kv_cache), slot_mapping[rows])
        rows = batch.moved_rows
        keys, values = self.views(kv_cache)
        slots = slot_mapping[rows].long()
        block, at = slots // keys.shape[2], slots % keys.shape[2]
        keys[block, :, at], values[block, :, at] = key[rows].to(keys.dtype), value[rows].to(values.dtype)

    def _add_norms(self, layer, query, key):
        """Of texts whose norms were asked for; in every layer, whether it moves or not."""
        batch = batch_of(layer.layer_name)
        asked = [] if batch is None else [text for text in batch.moved if text.norms is not None]
        moved = hooks.moved_of(layer) if asked else None
        for text in asked:
            rows = slice(text.begin, text.end)
            norms.TEXTS.of(*text.norms).add(moved.all_layers[layer.layer_name], text.tokens - (text.end - text.begin),
                                            *(moved.in_order(x[rows]) for x in (query, key)))

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs):
        self._add_norms(layer, query, key)
        batch, moved, number = self._moved(layer)
        if batch is None:
            return super().forward(layer, query, key, value, self.own(kv_cache), attn_metadata, output, *args, **kwargs)
        if batch.native is not None:
            rows = batch.native_rows
            part = torch.empty_like(output[rows])
            super().forward(layer, query[rows], key[rows], value[rows], self.own(kv_cache), batch.native, part, *args, **kwargs)
            output[rows] = part
        for text in batch.moved:
            if text.plan not in batch.together:
                output[text.begin:text.end] = self.attend(moved, number, query[text.begin:text.end], kv_cache, text)
        return output

    def attend(self, moved, number, query, kv_cache, text):
        """query [rows, heads, head_dim] of one text; the result has its shape."""
        pages = Pages(*self.views(kv_cache), text.blocks)
        out = moved.attention(text.plan).attend(query.transpose(0, 1)[None], pages, text.tokens, number, self.scale,
                                                 self.softcap(), self.sinks)
        return out[0].transpose(0, 1)


class CpuBuilder(Builder, CPUAttentionBackend.get_builder_cls()):
    pass


class CpuImpl(Impl, CPUAttentionBackend.get_impl_cls()):
    def views(self, kv_cache):
        """Our layout in the same cache [blocks, KV heads, block, 2 head_dim]: a token's key, then its value. The kernels
        pack the blocks of texts that they run; a block belongs to texts of one kind, since their salts differ."""
        return kv_cache.chunk(2, dim=-1)

    def softcap(self):
        return self.logits_soft_cap


class CpuBackend(CPUAttentionBackend):
    @staticmethod
    def get_impl_cls():
        return CpuImpl

    @staticmethod
    def get_builder_cls():
        return CpuBuilder

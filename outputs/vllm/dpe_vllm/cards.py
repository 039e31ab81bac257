"""The plugin on cards: FlashAttention's backend of vLLM for texts that the model runs by itself, the kernel for the others.

Both are launched for every batch, with what the batch's shape gives them; which texts are whose is read on the card. So decoding
runs in the graphs that FlashAttention's builder allows. Keys and values are cached by vLLM's own writer, those of texts under a plan
before rotation (model.Unrotated).
"""
import torch
from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend

from dpe_attention import TableError, Tokens
from dpe_plan import KEY

from dpe_vllm import kernel
from dpe_vllm.backend import EIGHT_BITS, Builder, Impl
from dpe_vllm.model import MOST_KEPT
from dpe_vllm.serving import NoRoom, logger, serving

# Of the largest difference over the spread of the result: four times what Triton's interpreter had.
TOLERANCE = {torch.float32: 4e-6, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def take(moved, digests):
    """Makes the tables of these plans beside the server's own, which stay, and of others as many as are kept; all that there are now.
    TableError: nothing has changed. Not while the model runs: texts are scheduled when their plans are here (routes.py)."""
    wanted = list(dict.fromkeys([*serving().entries.values(), *digests]))
    if not set(wanted) - set(moved.digests):
        return moved.digests
    others = [one for one in moved.digests if one not in wanted and one in serving().plans][:max(0, MOST_KEPT - len(wanted))]
    models = [moved, moved.draft] if moved.draft else [moved]
    before = moved.digests, [one.plans for one in models]
    try:
        try:
            _make(moved, wanted + others)
        except NoRoom:
            if not others:
                raise
            _make(moved, wanted)
        for digest in set(wanted) - moved.compared:
            compare(moved, digest)
            moved.compared.add(digest)
    except TableError:
        moved.digests = before[0]
        for one, plans in zip(models, before[1]):
            one.plans = plans
        raise
    return moved.digests


def _make(moved, digests):
    runner = moved.runner
    moved.plans = kernel.Plans([moved.plan(one) for one in digests], runner.max_model_len, moved.order, runner.device)
    if moved.draft:
        moved.draft.plans = kernel.Plans([moved.draft.plan(one) for one in digests], runner.max_model_len, moved.order, runner.device,
                                         moved.plans if moved.draft.alike else None)
    moved.digests = digests
    # vLLM's profile of memory begins here.
    runner.model_memory_usage = getattr(runner, "model_memory_usage", 0) + moved.plans.angles.nbytes


def compare(moved, digest):
    """TableError with the difference where the kernel does not compute what the plan says: a part of a prompt and a single token,
    over random numbers."""
    plan, impl, device, size = moved.plan(digest), moved.one.impl, moved.runner.device, 16
    dtype, layer = moved.runner.model_config.dtype, next(iter(moved.layers.values()))
    tokens = min(3 * min(min(band.hi, 100) if band.kind == KEY else band.hi * (plan.chunk or 1) for band in plan.bands) + 5, 2048,
                 moved.runner.max_model_len)
    random = torch.Generator().manual_seed(1)

    def whole(*numbers):
        return torch.tensor(numbers, dtype=torch.int32, device=device)

    q, k, v = (torch.randn(rows, heads, impl.head_size, generator=random).to(device, dtype)
               for rows, heads in ((min(40, tokens), plan.n_heads), (tokens, plan.n_kv_heads), (tokens, plan.n_kv_heads)))
    blocks = torch.arange(-(-tokens // size), dtype=torch.int32, device=device).flip(0)[None]
    cache = torch.zeros(blocks.shape[1], plan.n_kv_heads, size, 2 * impl.head_size, dtype=dtype, device=device)
    at = torch.arange(tokens, device=device)
    cache[blocks[0].long()[at // size], :, at % size] = torch.cat((k, v), dim=-1)
    scales = None
    if impl.kv_cache_dtype in EIGHT_BITS:  # as the kernel reads them, and what the exact path has is what they hold
        cache = cache.to(EIGHT_BITS[impl.kv_cache_dtype])
        k, v = (x.to(cache.dtype) for x in (k, v))
        scales = [torch.ones(1, device=device)] * 3
    heads_first = [x.transpose(0, 1)[None].float() for x in (q, k, v)]
    exact = moved.attention(digest).attend(heads_first[0], Tokens(*heads_first[1:]), tokens, layer, impl.scale,
                                           impl.logits_soft_cap)[0].transpose(0, 1)
    for rows in (len(q), 1):
        found, part = torch.empty_like(q[-rows:]), q[-rows:].contiguous()
        kernel.attend(moved.plans, found, part, *cache.chunk(2, dim=-1), blocks, whole(0, rows), whole(tokens),
                      whole(moved.digests.index(digest) + 1), rows, layer, impl.scale, impl.logits_soft_cap, scales=scales)
        difference = float((found.float() - exact[-rows:]).abs().max() / (exact.max() - exact.min()))
        if not difference <= TOLERANCE[dtype]:
            raise TableError(f"plan {digest:.16}: the kernel differs from the exact path by {difference:.3g} of the spread for "
                             f"{rows} rows, expected at most {TOLERANCE[dtype]:g} in {dtype}: this card, or this version of "
                             "Triton, does not run it")
        logger.info("DPE: plan %.16s: the kernel differs from the exact path by %.3g of the spread for %d rows", digest, difference,
                    rows)


class KernelBuilder(Builder):
    """Mixed into a backend's builder."""

    def numbers(self, moved, plans):
        # A plan that is not here is one of a text that nobody waits for any more.
        return [1 + moved.digests.index(plan) if plan in moved.digests else 0 for plan in plans]

    def texts(self, common, plans, asked):
        # Norms are a tool's, whose engine has no graphs.
        return super().texts(common, plans, asked) if serving().engine else []


class KernelImpl(Impl):
    """Mixed into a backend's implementation."""
    take = staticmethod(take)

    def attend(self, layer, query, kv_cache, batch, output):
        common, name, scales = batch.common, layer.layer_name, None
        model = batch.moved.of(name)
        if self.kv_cache_dtype in EIGHT_BITS:
            own = layer._q_scale if query.dtype.itemsize == 1 else torch.ones_like(layer._k_scale)
            scales = (own, layer._k_scale, layer._v_scale)
        kernel.attend(model.plans, output, query, *self.views(kv_cache), common.block_table_tensor, common.query_start_loc,
                      common.seq_lens, batch.numbers, common.max_query_len, model.all_layers[name], self.scale,
                      self.logits_soft_cap, layer.sliding_window, self.sinks, scales, name in model.layers)


class CudaBuilder(KernelBuilder, FlashAttentionBackend.get_builder_cls()):
    pass


class CudaImpl(KernelImpl, FlashAttentionBackend.get_impl_cls()):
    pass


class CudaBackend(FlashAttentionBackend):
    get_name = staticmethod(lambda: "CUSTOM")
    get_impl_cls, get_builder_cls = staticmethod(lambda: CudaImpl), staticmethod(lambda: CudaBuilder)

"""The plugin on CUDA: FlashAttention's backend of vLLM, with two calls of its kernel. No card has run this."""
from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func
from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend

from dpe_attention import TableError

from dpe_vllm.two_calls import TwoCallsBackend, TwoCallsBuilder, TwoCallsImpl


class CudaBuilder(TwoCallsBuilder, FlashAttentionBackend.get_builder_cls()):
    pass


class CudaImpl(TwoCallsImpl, FlashAttentionBackend.get_impl_cls()):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.sinks is not None:
            raise TableError("attention sinks belong to one of two calls, and which of both log-sum-exps a kernel puts them in is "
                             "not known: models with sinks are served on processors alone")

    def kernel(self, q, keys, values, starts, longest, lengths, most, blocks, scale, window, softcap):
        out, lse, *_ = flash_attn_varlen_func(
            q=q, k=keys, v=values, cu_seqlens_q=starts, max_seqlen_q=longest, seqused_k=lengths, max_seqlen_k=most,
            softmax_scale=scale, causal=True, window_size=[window, 0] if window >= 0 else [-1, -1], block_table=blocks,
            softcap=softcap, return_softmax_lse=True, fa_version=self.vllm_flash_attn_version)
        return out, lse

    def softcap(self):
        return self.logits_soft_cap


class CudaBackend(TwoCallsBackend, FlashAttentionBackend):
    @staticmethod
    def get_name():
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        return CudaImpl

    @staticmethod
    def get_builder_cls():
        return CudaBuilder

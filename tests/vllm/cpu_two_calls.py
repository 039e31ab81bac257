"""The way of cards on a processor: dpe_vllm.cuda with its calls of FlashAttention answered by flash.py, over the cache of CPU_ATTN. For
tests; DPE_TEST_KERNEL=wrong makes the window of a call one key too long, DPE_TEST_KERNEL=none has the kernel refuse."""
import os

from vllm.v1.attention.backends import fa_utils
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

import flash

fa_utils.flash_attn_varlen_func = flash.flash_attn_varlen_func
from dpe_vllm.cuda import CudaImpl  # noqa: E402
from dpe_vllm.two_calls import TwoCallsBackend, TwoCallsBuilder, TwoCallsImpl  # noqa: E402


class Builder(TwoCallsBuilder, CPUAttentionBackend.get_builder_cls()):
    pass


class Impl(TwoCallsImpl, CPUAttentionBackend.get_impl_cls()):
    vllm_flash_attn_version = 2
    softcap = CudaImpl.softcap

    def kernel(self, q, keys, values, starts, longest, lengths, most, blocks, scale, window, softcap):
        asked = os.environ.get("DPE_TEST_KERNEL")
        if asked == "none":
            raise RuntimeError("no kernel for this head")
        window += asked == "wrong" and window >= 0
        return CudaImpl.kernel(self, q, keys, values, starts, longest, lengths, most, blocks, scale, window, softcap)

    def own(self, kv_cache):
        """The processor's kernels pack the keys of a block, then its values."""
        blocks, heads, size, content = kv_cache.shape
        flat = kv_cache.view(blocks, heads, size * content)[:, :, :2 * size * self.head_size]
        return flat.unflatten(2, (size, 2 * self.head_size))


class Backend(TwoCallsBackend, CPUAttentionBackend):
    @staticmethod
    def get_impl_cls():
        return Impl

    @staticmethod
    def get_builder_cls():
        return Builder

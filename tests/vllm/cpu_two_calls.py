"""The way of two_calls.py, which serves CUDA, on a processor: with a kernel in plain PyTorch in the place of FlashAttention's. For
tests; DPE_TEST_KERNEL=wrong makes one whose window is off by one."""
import os

from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from dpe_vllm.paged import plain_kernel
from dpe_vllm.two_calls import TwoCallsBackend, TwoCallsBuilder, TwoCallsImpl


class Builder(TwoCallsBuilder, CPUAttentionBackend.get_builder_cls()):
    pass


class Impl(TwoCallsImpl, CPUAttentionBackend.get_impl_cls()):
    def kernel(self, q, keys, values, starts, longest, lengths, most, blocks, scale, window, softcap):
        if os.environ.get("DPE_TEST_KERNEL") == "wrong" and window >= 0:
            window += 1
        return plain_kernel(q, keys, values, starts, longest, lengths, most, blocks, scale, window, softcap)

    def softcap(self):
        return self.logits_soft_cap

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

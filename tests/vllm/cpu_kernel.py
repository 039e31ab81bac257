"""The way of cards on a processor: dpe_vllm.cards with its kernel in Triton's interpreter, over the cache of CPU_ATTN. For tests;
DPE_TEST_KERNEL=wrong makes its logits one part in 200 too large; there is memory for DPE_TEST_ROOM plans."""
import collections
import os

import torch
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from dpe_vllm import cards, kernel
from dpe_vllm.backend import CpuImpl

right, launch, fill = kernel.attend, kernel._attend, kernel.Plans._fill
# For each shape of a batch and layer: what launches were given besides the contents of tensors, and the plans of their texts.
LAUNCHES, PLANS = collections.defaultdict(set), collections.defaultdict(set)


class Noted:
    def __getitem__(self, grid):
        def call(*args, **names):
            given = dict(zip(launch.arg_names, args), **names)
            tensors = {name: one for name, one in given.items() if isinstance(one, torch.Tensor)}
            shape = (tuple(tensors["q"].shape), len(tensors["numbers"]), given["layer"], given["TOGETHER"])
            fixed = ("bands", "angles", "temperature", "factors", "numbers")  # where a graph finds them
            LAUNCHES[shape].add((grid, *(tensors[name].data_ptr() for name in fixed),
                                 *(f"{name} {one}" for name, one in given.items() if name not in tensors)))
            PLANS[shape].add(tuple(tensors["numbers"].tolist()))
            launch[grid](*args, **names)
        return call


def attend(plans, out, q, k, v, blocks, starts, lengths, numbers, longest, layer, scale, *rest, **more):
    right(plans, out, q, k, v, blocks, starts, lengths, numbers, longest, layer,
          scale * (1.005 if os.environ.get("DPE_TEST_KERNEL") == "wrong" else 1), *rest, **more)


def fill_room(self, plans, device):
    if len(plans) > int(os.environ.get("DPE_TEST_ROOM", "99")):
        raise RuntimeError("out of memory")
    fill(self, plans, device)


kernel.attend, kernel._attend, kernel.Plans._fill = attend, Noted(), fill_room


class Builder(cards.KernelBuilder, CPUAttentionBackend.get_builder_cls()):
    OWN_ROWS = 1


class Impl(cards.KernelImpl, CpuImpl):
    pass


class Backend(CPUAttentionBackend):
    get_impl_cls, get_builder_cls = staticmethod(lambda: Impl), staticmethod(lambda: Builder)

#!/usr/bin/env python3
"""The kernel of plans compiled for cards that are not there, as Triton compiles it before a launch: registers, bytes of the stack
(spilled) and of shared memory of each form, and that a program fits the card: kernel_compiles.py [CAPABILITY...]"""
import os
import subprocess
import sys
import tempfile

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dpe_vllm import kernel

SHARED = {80: 163 << 10, 90: 227 << 10, 120: 99 << 10}  # bytes that a program may have


def compiled(capability, few, dim, masked, cache="bf16"):
    keys, queries, warps, stages = kernel.tiles_of(capability // 10, few, dim, 4)
    constants = dict(TOGETHER=4 if few and not masked else 1, MASKED=masked, ORDERED=False, CAPPED=False, SINKS=False, SPLIT=few, M=queries,
                     N=keys, P=max(16, triton.next_power_of_2(dim // 2)), D=2 * max(16, triton.next_power_of_2(dim // 2)),
                     PAIRS=dim // 2, PAGE=16, TYPE=kernel.tl.bfloat16, PRECISE="ieee")
    pointers = dict(out="fp32" if few else "bf16", parts="fp32", q="bf16", k=cache, v=cache, blocks="i32", starts="i32", lengths="i32",
                    numbers="i32", bands="i64", angles="fp32", temperature="fp32", factors="fp32", mask="u8", order="i32",
                    sinks="fp32", q_scale="fp32", k_scale="fp32", v_scale="fp32")
    names = kernel._attend.arg_names
    signature = {name: "*" + pointers[name] if name in pointers else "constexpr" if name in constants else
                 "fp32" if name in ("scale", "cap") else "i32" for name in names}
    # Pointers and strides are multiples of 16, as they are in a cache.
    even = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in pointers or name.startswith("stride_")}
    source = ASTSource(kernel._attend, signature, constants, even)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps, "num_stages": stages}), warps


def usage(cubin):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/cuobjdump")
        text = subprocess.run([tool, "-res-usage", file.name], check=True, capture_output=True, text=True).stdout
    line = next(line for line in text.splitlines() if "REG:" in line)
    found = dict(part.split(":") for part in line.split() if ":" in part and part.split(":")[1].isdigit())
    return int(found["REG"]), int(found["STACK"])


for capability in [int(one) for one in sys.argv[1:]] or SHARED:
    for dim in (256, 128, 96, 64):
        for few in (False, True):
            for masked in (False, True):
                made, warps = compiled(capability, few, dim, masked)
                registers, stack = usage(made.asm["cubin"])
                print(f"sm_{capability}, heads of {dim}, {'decoding' if few else 'prompts'}{', key pairs by head' * masked}: "
                      f"{registers} registers, {stack} bytes spilled, {made.metadata.shared} of {SHARED[capability]} shared",
                      flush=True)
                assert made.metadata.shared <= SHARED[capability] and registers * warps * 32 <= 65536

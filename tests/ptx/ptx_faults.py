"""Faults to plant into the text of a kernel, or into a launch: each is what a wrong operand, modifier, swizzle bit,
descriptor field, wait or barrier would be. name → (pattern, replacement, which place of it, 0 for all of them)."""
import bisect
import re

# Operands of mma.sync and wgmma with A in registers.
MMA = r"(mma\.sync[^{;]*\{[^}]*\}, )\{(%\w+), (%\w+), (%\w+), (%\w+)\}, \{(%\w+), (%\w+)\}"
WGMMA = r"(wgmma\.mma_async[^{;]*)\{([^}]*)\}"

FAULTS = {
    "mma": {
        ".trans dropped from one ldmatrix of V": (r"(ldmatrix[^;]*)\.trans", r"\1", 3),
        ".trans added to one ldmatrix of K": (r"(ldmatrix\.sync\.aligned\.m8n8\.x4)\.shared", r"\1.trans.shared", 20),
        "two registers of an ldmatrix exchanged": (r"(ldmatrix[^{]*)\{(%\w+), (%\w+), ", r"\1{\3, \2, ", 30),
        "the words of B of one mma exchanged": (MMA, r"\1{\2, \3, \4, \5}, {\7, \6}", 40),
        "words 1 and 2 of A of one mma exchanged": (MMA, r"\1{\2, \4, \3, \5}, {\6, \7}", 7),
        "the halves of A of one mma with V exchanged": (MMA, r"\1{\3, \2, \5, \4}, {\6, \7}", 200),
        "one mma takes bfloat16 for half": (r"f32\.bf16\.bf16\.f32", "f32.f16.f16.f32", 50),
        "the rows of two results of an mma exchanged": (r"(mma\.sync[^{]*)\{(%\w+), (%\w+), (%\w+), (%\w+)\}", r"\1{\4, \5, \2, \3}", 9),
        "the halves of one packed pair exchanged": (r"(cvt\.rn\.bf16x2\.f32 %\w+), (%\w+), (%\w+)", r"\1, \3, \2", 5),
        "a bit of the swizzle of one chunk": (r"(xor\.b32\s+%\w+, %\w+), 64;", r"\1, 32;", 2),
        "rows swizzled by another bit when they are copied": (r"(and\.b32\s+%\w+, %\w+), 7;", r"\1, 6;", 1),
        "an ldmatrix reads the next row": (r"(ldmatrix[^;]*\[%\w+)\]", r"\1+128]", 30),
        "a wait that leaves one copy more under way": (r"cp\.async\.wait_group 1", "cp.async.wait_group 2", 1),
        "a wait for copies dropped": (r"cp\.async\.wait_group 1;", "", 3),
        "a commit dropped": (r"cp\.async\.commit_group;", "", 2),
        "the barrier before the first product dropped": (r"bar\.sync\s+0;", "", 2),
        "a barrier in the walk dropped": (r"bar\.sync\s+0;", "", 3),
        "a sum over other lanes": (r"(shfl\.sync\.bfly\.b32\s+%\w+\|%\w+, %\w+), %?\w+,", r"\1, 4,", 3),
        "whether all rows rise instead of any": (r"vote\.sync\.any", "vote.sync.all", 1),
        "an exponent not negated": (r"(fma\.rn\.f32\s+%\w+, %\w+, %\w+), %\w+;(?=\s*ex2)", r"\1, 0f00000000;", 4),
    },
    "decode": {
        ".trans dropped from one ldmatrix of V": (r"(ldmatrix[^;]*)\.trans", r"\1", 3),
        "the words of B of one mma exchanged": (MMA, r"\1{\2, \3, \4, \5}, {\7, \6}", 40),
        "words 0 and 1 of A of one mma exchanged": (MMA, r"\1{\3, \2, \4, \5}, {\6, \7}", 3),
        "the masks of two rows exchanged": (r"(prmt\.b32\s+%\w+, %\w+, 0), 39304", r"\1, 48042", 0),
        "a byte of a mask without its sign": (r"(prmt\.b32\s+%\w+, %\w+, 0), 39304", r"\1, 4488", 0),
        "cosines and sines of the wrong columns": (r"(ld\.shared\.v2\.u32 \{[^}]*\}), \[(%\w+)\]", r"\1, [\2+8]", 9),
        "the halves of a rotated pair exchanged": (r"(cvt\.rn\.bf16x2\.f32 %\w+), (%\w+), (%\w+)", r"\1, \3, \2", 3),
        "a wait that leaves one copy more under way": (r"cp\.async\.wait_group 1", "cp.async.wait_group 2", 1),
        "the barrier of a stage dropped": (r"bar\.sync\s+0;", "", 1),
        "an ldmatrix of K reads 16 bytes further on": (r"(ldmatrix\.sync\.aligned\.m8n8\.x4\.shared[^;]*\[%\w+)\]", r"\1+16]", 2),
    },
    "wgmma": {
        "V taken as if its terms were contiguous": (WGMMA + r"(, \{[^}]*\}, %\w+, p, 1, 1), 1;", r"\1{\2}\3, 0;", 3),
        "K taken as transposed": (WGMMA + r"(, %\w+, %\w+, p, 1, 1, 0), 0;", r"\1{\2}\3, 1;", 20),
        "the descriptors of Q and K exchanged": (WGMMA + r", (%\w+), (%\w+), p", r"\1{\2}, \4, \3, p", 18),
        "the negative of A": (WGMMA + r"(, \{[^}]*\}, %\w+, p), 1, 1", r"\1{\2}\3, -1, 1", 2),
        "two results exchanged": (WGMMA.replace(r"\{", r"\{(%\w+),(%\w+),", 1), r"\1{\3,\2,\4}", 0),
        "words 1 and 2 of A exchanged": (WGMMA + r", \{(%\w+),(%\w+),(%\w+),(%\w+)\}", r"\1{\2}, {\3,\5,\4,\6}", 5),
        "bfloat16 taken for half": (r"m64n128k16\.f32\.bf16\.bf16", "m64n128k16.f32.f16.f16", 11),
        "descriptor: stride of 512 bytes": ("4611686293305294848", str((1 << 62) + (32 << 32)), 2),
        "descriptor: 64-byte swizzle": ("4611686293305294848", str((2 << 62) + (64 << 32)), 2),
        "descriptor: no swizzle": ("4611686293305294848", str(64 << 32), 1),
        "descriptor: leading offset of half a tile": (r", 67108864;", f", {512 << 16};", 1),
        "a step of 32 terms instead of 16": (r"(add\.s64\s+%\w+, %\w+), 2;", r"\1, 4;", 2),
        "the second half of a head's terms at the wrong tile": (r"(add\.s64\s+%\w+, %\w+), 1024;", r"\1, 512;", 2),
        "V's step of 16 keys as one of 8": (r", 67108992;", ", 67108928;", 1),
        "a product that does not start at zero": (r"setp\.ne\.b32 p, (%\w+), 0;", r"setp.eq.b32 p, \1, \1;", 9),
        "a fence dropped": (r"wgmma\.fence\.sync\.aligned;", "", 2),
        "a commit dropped": (r"wgmma\.commit_group\.sync\.aligned;", "", 2),
        "a wait that leaves one group more": (r"wgmma\.wait_group\.sync\.aligned 1", "wgmma.wait_group.sync.aligned 2", 1),
        "a wait for O dropped": (r"wgmma\.wait_group\.sync\.aligned 0;", "", 3),
        "a barrier of a slot waited for in the other phase": (r"(mbarrier\.try_wait[^;]*\], )(%\w+);", r"\1 1;", 4),
        "the wait for a tile dropped": (r"(mbarrier\.try_wait[^;]*;)\s*@done bra", r"\1 bra", 4),
        "twice the bytes are expected": (r"(mbarrier\.arrive\.expect_tx[^;]*\], )(%\w+);", r"\1 65536;", 2),
        "an arrival dropped": (r"mbarrier\.arrive\.shared::cta\.b64 _, \[%\w+\];", "", 3),
        "one arrival too few is expected": (r"(mbarrier\.init[^;]*\], )(%\w+);", r"\1 7;", 6),
        "the coordinates of row and head exchanged": (r"\{(%\w+), (%\w+), (%\w+), (%\w+)\}\], \[(%\w+)\];",
                                                      r"{\1, \4, \3, \2}], [\5];", 2),
        "a box 1024 bytes further on": (r"(cp\.async\.bulk[^;]*?\[)(%\w+)\]", r"\1\2+1024]", 2),
        "the warpgroups do not wait for their turn": (r"bar\.arrive[^;]*;", "", 1),
        "a word of a message from another lane": (r"(shfl\.sync\.idx\.b32\s+%\w+\|%\w+, %\w+), %\w+,", r"\1, 3,", 7),
        "registers of a number that is none": (r"setmaxnreg\.inc\.sync\.aligned\.u32 232", "setmaxnreg.inc.sync.aligned.u32 236", 1),
    },
}
# Of the 128 bytes of every tensor map: (byte, value).
MAP_FAULTS = {
    "wgmma": {
        "tensor maps without swizzle": (109, 0),
        "tensor maps with the 64-byte swizzle": (109, 2),
        "tensor maps with boxes of half the rows": (76, 64),
        "tensor maps of 32 columns a box": (72, 32),
        "tensor maps whose rows are 128 bytes long": (48, 128),
    },
}


def change(kernel, text, pattern, replacement, n):
    """The text of a kernel with the n-th place of a pattern (0: all of them) replaced, of those in instructions that ran."""
    begins = [ins.at for ins in kernel.code]
    places = [p for p in re.finditer(pattern, text) if kernel.visited[bisect.bisect(begins, p.start()) - 1]]
    if not places or n > len(places):
        raise SystemExit(f"no {n}-th {pattern}, but {len(places)}: the fault cannot be planted")
    for found in reversed(places if n == 0 else [places[n - 1]]):
        text = text[:found.start()] + found.expand(replacement) + text[found.end():]
    return text


def change_maps(argument, byte, value):
    """An argument of a launch with the byte of each tensor map in it set."""
    data = bytearray(argument)
    for found in re.finditer(b"tmap", argument):
        data[found.start() + byte] = value
    return bytes(data)

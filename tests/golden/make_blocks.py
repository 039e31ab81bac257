#!/usr/bin/env python3
"""make_blocks.py: blocks.bin beside this script: blocks of each type of GGUF files and the floats that the `gguf` package makes of
them.

    python make_blocks.py        (pip install gguf; made with gguf 0.19)

For each type: its number in the format, the count of blocks, the count of floats (32 bits each, little endian), the blocks' bytes, the
floats. The bytes are random, but for scales that are half floats of a usual size; the first block of a type is all ones bits where
no scale stands.
"""
import pathlib
import struct

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import dequantize
from gguf.constants import GGML_QUANT_SIZES

# Where half floats stand in a block.
HALVES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
          T.MXFP4: []}
COUNT = 3


def main():
    rng = np.random.default_rng(16)
    out = b""
    for kind, places in HALVES.items():
        elements, size = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (COUNT, size), dtype=np.uint8)
        blocks[0] = 255
        for place in places:
            blocks[:, place:place + 2] = (rng.standard_normal(COUNT) * 0.1).astype(np.float16).view(np.uint8).reshape(COUNT, 2)
        if kind == T.MXFP4:
            blocks[:, 0] = [0, 1, 120]
        floats = dequantize(blocks, kind).astype(np.float32).reshape(-1)
        assert floats.size == COUNT * elements and np.isfinite(floats).all()
        out += struct.pack("<III", int(kind), COUNT, floats.size) + blocks.tobytes() + floats.tobytes()
    (pathlib.Path(__file__).resolve().parent / "blocks.bin").write_bytes(out)


if __name__ == "__main__":
    main()

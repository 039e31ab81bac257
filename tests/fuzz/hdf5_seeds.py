#!/usr/bin/env python3
"""hdf5_seeds.py: the seeds of fuzz_hdf5 whose chunks are stored by hand (corpus/fuzz_hdf5/chunks_*). A seed is a program: a byte
for each object of fuzz_hdf5.c in turn, 0 as it should be, 8 for "in chunks", then filters, filter mask, length, its factor."""
import pathlib

SCALE_FACTOR, GROUP_EDGE, INV_FREQ, MASK = 17, 19, 20, 21  # place of the object in the list
DEFLATE, SHUFFLE, UNFILLED, WHOLE = 1, 2, 4, 255

SEEDS = {
    "whole": (INV_FREQ, 0, 0, WHOLE), "whole_deflated": (MASK, DEFLATE | SHUFFLE, 0, WHOLE),
    "short": (SCALE_FACTOR, 0, 0, 1), "short_by_one": (MASK, 0, 0, 7), "long_by_one": (MASK, 0, 0, 9),
    "unpacks_to_less": (INV_FREQ, DEFLATE, 0, 5), "unpacks_to_more": (GROUP_EDGE, DEFLATE, 0, 200),
    "unpacks_to_nothing": (SCALE_FACTOR, DEFLATE, 0, 0), "shuffled": (INV_FREQ, DEFLATE | SHUFFLE, 0, 31),
    "masked": (SCALE_FACTOR, DEFLATE, 1, 3), "masked_whole": (SCALE_FACTOR, DEFLATE, 1, WHOLE),
    "not_stored": (GROUP_EDGE, DEFLATE, 1, 0), "not_filled": (GROUP_EDGE, DEFLATE | UNFILLED, 1, 0),
}

folder = pathlib.Path(__file__).resolve().parent / "corpus/fuzz_hdf5"
for name, (place, filters, mask, length) in SEEDS.items():
    (folder / f"chunks_{name}").write_bytes(bytes(place) + bytes([8, filters, mask, length, 0]))

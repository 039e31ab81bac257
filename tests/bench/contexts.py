#!/usr/bin/env python3
"""How far samples of one context are from being independent.

usage: contexts.py TABLE.h5…

TABLE is of dpe-detect or of dpe-eval niah, with samples that share contexts (--niah asked=N, shared=N).
Printed: the variance of context means times the samples in a context, over the variance of samples;
1 when they are independent. Pooled over all cells or methods (of a recall) and over all pairs of lengths of a group or of methods (of
a difference), which differ somewhere. Needs h5py and numpy.
"""

import itertools
import sys

import h5py
import numpy as np


def ratio(samples, size):
    """samples [which][sample] without NaN."""
    samples = samples[samples.std(axis=1) > 0]
    contexts = samples.reshape(len(samples), -1, size).mean(axis=2)
    return size * contexts.var(axis=1, ddof=1).sum() / samples.var(axis=1, ddof=1).sum()


for path in sys.argv[1:]:
    with h5py.File(path) as table:
        swept = "/detect/niah" in table
        of = table["/detect/niah" if swept else "/eval/niah"]
        recall, size = of["recall"][()] if swept else of["score"][()].swapaxes(0, 1), of.attrs["samples_together"]
    recall = recall[..., :recall.shape[2] // size * size]
    pairs = [a - b for group in recall for a, b in itertools.combinations(group, 2)]
    print(f"{path}: {size} samples a context: {ratio(recall.reshape(-1, recall.shape[2]), size):.2f} of a recall, "
          f"{ratio(np.array(pairs), size):.2f} of a difference")

#!/usr/bin/env python3
"""Scores of two profiles, equal to rounding: same_norms.py NAME A B."""
import sys

import h5py
import numpy as np

one, two = (h5py.File(path)["norms/contribution"][()].astype(float) for path in sys.argv[2:])
worst = float(np.max(np.abs(one - two) / np.maximum(two, 1e-9)))
assert one.shape == two.shape and worst <= 1e-5, worst
print(f"norms, {sys.argv[1]}: {one.size} scores, the largest difference is {worst:.1e} of the score")

#!/usr/bin/env python3
"""Writes other.h5, an HDF5 file that is no table of ours (h5py)."""
import os

import h5py

here = os.path.dirname(os.path.abspath(__file__))
with h5py.File(os.path.join(here, "other.h5"), "w") as f:
    f["temperature"] = [20.5, 21.0]

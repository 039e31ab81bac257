#!/usr/bin/env python3
"""Writes, with h5py, files that our reader must refuse: other.h5, which is not a table of dpe, and
huge.h5, whose datasets claim more than any file of its size could hold."""
import os

import h5py
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
with h5py.File(os.path.join(here, "other.h5"), "w") as f:
    f["temperature"] = [20.5, 21.0]
with h5py.File(os.path.join(here, "huge.h5"), "w") as f:
    f.attrs["schema_name"] = "dpe-table"
    f.attrs["schema_version"] = "9.0.0"
    f.create_dataset("huge", (1 << 40,), dtype="f8", chunks=(1 << 10,))
    f.create_dataset("words", (1 << 40,), dtype=h5py.string_dtype(), chunks=(1 << 10,))
    f.create_dataset("deep", (1,) * 7, dtype="f8", data=np.zeros((1,) * 7))

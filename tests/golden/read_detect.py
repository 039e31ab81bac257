#!/usr/bin/env python3
"""read_detect.py TABLE: reads a table of dpe-detect --task both with h5py and computes again what
follows from its samples. Exit status 0 when all agrees."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "r") as file:
    assert file.attrs["schema_name"] == "dpe-table" and file.attrs["complete"] == 1
    lengths, groups = file["length"][:], file["group"][:]
    recall, nll, tokens = (file[name][:] for name in
                           ("detect/niah/recall", "detect/ppl/nll_sum", "detect/ppl/n_tokens"))
    assert recall.shape == (len(groups), len(lengths), len(file["sample"]))
    assert nll.shape == (len(groups), len(lengths), len(file["book"]))
    assert [scale[0].name for scale in file["detect/niah/recall"].dims] == [
        "/group", "/length", "/sample"]
    assert np.all(file["detect/niah/status"][:] == 0) and np.all(file["detect/niah/n_valid"][:] == 3)
    np.testing.assert_allclose(file["detect/niah/recall_mean"][:], recall.mean(2))
    perplexity = np.exp(nll.sum(2) / tokens.sum(2))
    np.testing.assert_allclose(file["detect/ppl/perplexity"][:], perplexity)

    def ranks(badness):
        """1 = least, ties to the larger length, which comes later."""
        want = np.empty(badness.shape, int)
        for group, row in enumerate(badness):
            for rank, cell in enumerate(sorted(range(len(row)), key=lambda t: (row[t], -lengths[t]))):
                want[group, cell] = rank + 1
        return want

    np.testing.assert_array_equal(file["detect/rank"][:], ranks(-recall.mean(2).round(9)))
    np.testing.assert_array_equal(file["detect/ppl/rank"][:], ranks(perplexity))
    effective = lengths[file["detect/rank"][:].argmin(1)]
    np.testing.assert_array_equal(file["detect/effective_length"][:], effective)
    evaluated = file["table/evaluated_length"][()]
    np.testing.assert_array_equal(file["table/scale_factor"][:], np.maximum(1, evaluated // effective))
    np.testing.assert_array_equal(file["table/group_edge"][:], [0, 4, 8])
    np.testing.assert_allclose(file["table/inv_freq"][:], 10000.0 ** (-np.arange(8) / 8))

    # The cells point at the rows they came from.
    plans, row_plan = file["plans/plan"].asstr()[:], file["rows/plan"][:]
    tasks, row_task = file["tasks/task"].asstr()[:], file["rows/task"][:]
    sample, score = file["rows/sample"][:], file["rows/score"][:]
    cells = file["detect/plan"].asstr()[:]
    for g in range(len(groups)):
        for t in range(len(lengths)):
            for s in range(recall.shape[2]):
                row = ((plans[row_plan] == cells[g, t]) & (tasks[row_task] == "niah") & (sample == s))
                assert row.sum() == 1 and score[row][0] == recall[g, t, s]
    validated = file["validate/plan"].asstr()[:]
    assert list(file["validated_plan"].asstr()[:]) == ["rope", "base", "joint"]
    assert set(validated) <= set(plans)
    difference = file["validate/niah/kept_minus"][:]
    values = file["validate/niah/recall"][:]
    np.testing.assert_allclose(difference, (values[2] - values).mean(axis=1), atol=1e-12)

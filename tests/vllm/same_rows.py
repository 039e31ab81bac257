#!/usr/bin/env python3
"""Rows of a run whose model vLLM ran, and of the same run with the tools' own engine: same_rows.py NAME A B. Where two float32 sums
meet in an order that differs, so may a token whose two best logits are nearly equal: such rows are listed."""
import math
import sys

import h5py


def rows(path):
    with h5py.File(path) as file:
        tasks, plans = (file[name][()] for name in ("tasks/task", "plans/plan"))
        names = ("task", "plan", "sample", "score", "text", "nll_sum", "n_tokens")
        return {(tasks[task].decode(), plans[plan].decode(), int(sample)): (float(score), text, float(nll), int(count))
                for task, plan, sample, score, text, nll, count in zip(*(file["rows/" + name][()] for name in names))}


def main():
    what, one, two = sys.argv[1], *(rows(path) for path in sys.argv[2:])
    common = sorted(set(one) & set(two))
    texts = [row for row in common if one[row][1] != two[row][1]]
    scores = [row for row in common if one[row][0] != two[row][0] and not math.isnan(one[row][0] - two[row][0])]
    worst = max((abs(one[row][2] - two[row][2]) / one[row][3] for row in common if one[row][3] > 0), default=0.0)
    for row in texts:
        print(f"{what}: {row}: {one[row][1]!r}, own engine {two[row][1]!r}")
    assert common and (texts or set(one) == set(two)), f"{what}: the runs have other rows: {len(one)} and {len(two)}"
    assert len(texts) <= len(common) / 100, f"{what}: {len(texts)} of {len(common)} texts differ"
    assert worst <= 1e-4, f"{what}: likelihoods differ by {worst} nats a token"
    print(f"{what}: {len(common)} rows, {len(texts)} texts and {len(scores)} scores differ, likelihoods by {worst:.1e} nats a token")


main()

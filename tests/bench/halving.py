#!/usr/bin/env python3
"""halving.py DETECT.h5: what the first stage of a step's halving costs and finds, two contexts or four.

Draws 13 plans whose means differ by a standard deviation of 5, 10 and (as all plans of the table) points, and contexts
with the noise that the table's search had: the residual of contexts after means of plans and contexts, of the plans
that were run on all of them. Prints the mean gain of the plan that halving ends with, that of the best plan, and how
many contexts were read."""
import sys

import h5py
import numpy as np

PLANS, ROUNDS = 13, 4000


def read(path):
    with h5py.File(path) as table:
        tasks = [name.decode() for name in table["tasks/task"][()]]
        wanted = table["rows/task"][()] == tasks.index("niah")
        plan, sample, score = (table["rows/" + name][()][wanted] for name in ("plan", "sample", "score"))
        together = int(table["validate/niah"].attrs["samples_together"])
        samples = int(table["search"].attrs["samples"])
    rows = {}
    for p in np.unique(plan):
        rows[p] = np.full(samples, np.nan)
        rows[p][sample[plan == p]] = score[plan == p]
    return list(rows.values()), together


def halve(rng, first, contexts, spread, noise):
    quality = rng.normal(0, spread, PLANS)
    seen = quality[:, None] + rng.normal(0, noise, (PLANS, contexts))
    live, have, cost = np.arange(PLANS), 0, 0
    now = first
    while True:
        cost += len(live) * (now - have)
        have = now
        if now >= contexts:
            best = live[np.argmax(seen[live].mean(1))]
            return quality[best], quality.max(), cost
        order = np.argsort(-seen[live, :now].mean(1))
        live = live[order[: (len(live) + 2) // 3]]
        now = min(2 * now, contexts)


def main():
    rows, together = read(sys.argv[1])
    full = np.array([row.reshape(-1, together).mean(1) for row in rows if np.isfinite(row).all()])
    left = full - full.mean(1, keepdims=True) - full.mean(0, keepdims=True) + full.mean()
    noise = np.sqrt((left**2).sum() / ((len(full) - 1) * (full.shape[1] - 1)))
    means = np.array([np.nanmean(row) for row in rows if np.isfinite(row).sum() >= 2 * together])
    print(f"{len(full)} plans on all contexts, residual of a context {100 * noise:.1f} points; "
          f"{len(means)} plans, their means differ by {100 * means.std():.1f}")
    rng = np.random.default_rng(0)
    for spread in (0.05, 0.1, means.std()):
        for contexts in (8, 16):
            for first in (2, 4):
                found = np.mean([halve(rng, first, contexts, spread, noise) for _ in range(ROUNDS)], axis=0)
                print(f"plans differ by {100 * spread:4.1f}, {contexts:2} contexts, first {first}: gain {100 * found[0]:5.2f} "
                      f"of {100 * found[1]:5.2f} points for {found[2]:.0f} contexts")


main()

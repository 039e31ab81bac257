#!/usr/bin/env python3
"""Put the tables of select_rules.sh together.

usage: select_rules.py OUT…  (folders, or tables)

For each length and rule: recall of the joint plan on fresh samples, and its paired difference to all
groups at L0/2, over all seeds at once. Intervals are 95 % bootstrap intervals that draw seeds first
and samples within a seed second, so they hold what another sweep would have chosen. Prints Markdown.
Needs h5py and numpy.
"""
import glob
import os
import re
import sys

import h5py
import numpy

RULES = ("paper", "guarded", "sequential")
ROUNDS = 4000


def tables(arguments):
    found = {}
    for argument in arguments:
        paths = glob.glob(os.path.join(argument, "*.h5")) if os.path.isdir(argument) else [argument]
        for path in sorted(paths):
            name = re.fullmatch(r"s(\d+)-l(\d+)-(\w+)\.h5", os.path.basename(path))
            if name:
                found[int(name[2]), int(name[1]), name[3]] = path
    return found


def read(path, rule):
    """Recall [plan][sample] on fresh samples, groups not at L0/2, rows; None: unfinished."""
    try:
        with h5py.File(path, "r") as file:
            # A copy that has not been continued yet still has the rule of its original.
            found = file["/select"].attrs["rule"]
            if file.attrs["complete"] != 1 or (found.decode() if isinstance(found, bytes) else found) != rule:
                return None
            plans = [str(p) for p in file["/validated_plan"].asstr()]
            recall = dict(zip(plans, file["/validate/niah/recall"][:]))
            tasks = list(file["/tasks/task"].asstr())
            rows = int((file["/rows/task"][:] == tasks.index("niah")).sum())
            base = int(file["/table/trained_length"][()]) // 2
            moved = sum(int(x) != base for x in file["/select/selected_length"])
            return recall, moved, rows
    except (OSError, KeyError):
        return None


def interval(per_seed, rng):
    means = []
    for _ in range(ROUNDS):
        drawn = rng.integers(len(per_seed), size=len(per_seed))
        means.append(numpy.mean([rng.choice(per_seed[i], len(per_seed[i])).mean() for i in drawn]))
    low, high = numpy.quantile(means, [0.025, 0.975])
    return f"{numpy.mean([x.mean() for x in per_seed]):.3f} [{low:.3f}, {high:.3f}]"


def main():
    found = tables(sys.argv[1:])
    rng = numpy.random.default_rng(1)
    print("| L | seeds | samples | rule | recall, joint plan | joint − all at L0/2 | − paper's rule | "
          "groups moved | rows |")
    print("|---|---|---|---|---|---|---|---|---|")
    for length in sorted({key[0] for key in found}):
        read_all = {}
        for (l, seed, rule), path in found.items():
            data = read(path, rule) if l == length else None
            if data:
                read_all[seed, rule] = data
        rules = [r for r in RULES if any(k[1] == r for k in read_all)]
        seeds = sorted(s for s in {k[0] for k in read_all} if all((s, r) in read_all for r in rules))
        if not seeds:
            continue
        base = [read_all[s, "paper"][0]["base"] for s in seeds]
        samples = len(base[0])
        print(f"| {length} | {len(seeds)} | {samples} | all at L0/2 | {interval(base, rng)} | | | 0 | |")
        for rule in rules:
            joint = [read_all[s, rule][0]["joint"] for s in seeds]
            paper = [read_all[s, "paper"][0]["joint"] for s in seeds]
            moved = numpy.mean([read_all[s, rule][1] for s in seeds])
            rows = numpy.mean([read_all[s, rule][2] for s in seeds])
            gain = interval([j - b for j, b in zip(joint, base)], rng)
            over = "" if rule == "paper" else interval([j - p for j, p in zip(joint, paper)], rng)
            print(f"| {length} | {len(seeds)} | {samples} | {rule} | {interval(joint, rng)} | {gain} | "
                  f"{over} | {moved:.1f} | {rows:.0f} |")


if __name__ == "__main__":
    main()

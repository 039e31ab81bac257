#!/usr/bin/env python3
"""needle_misses.py NEEDLES TABLE.h5 [OTHER.h5]: which values of one key an answer misses, and how.

NEEDLES is what bench_needles printed for the samples of TABLE, a table of `dpe-eval niah` at one length with values of
seven digits, whose tokens are three digits, three and one. With OTHER, the same samples under the first method of
another table, e.g. of the model alone at its trained length: the samples that lose something under both, beside how
many that would be if the two had nothing to do with each other, and the paired difference of the recall.

Needs h5py (Debian: python3-h5py).
"""
import collections
import json
import random
import re
import sys

import h5py

KINDS = ("begins with none's digits", "mixes two", "names one twice", "other")


def kind(value, values, before):
    if value in before:
        return KINDS[2]
    heads, middles = {v[:3] for v in values}, {v[3:6] for v in values}
    if value[:3] not in heads:
        return KINDS[0] if value[3:6] in middles else KINDS[3]
    return KINDS[1] if value[3:6] in middles else KINDS[3]


def rows_of(path):
    """name of a method → {sample: (score, text)}"""
    with h5py.File(path) as table:
        names = [name.decode() for name in table["plans/name"][:]]
        rows = table["rows"]
        methods = collections.defaultdict(dict)
        for plan, sample, score, text in zip(rows["plan"], rows["sample"], rows["score"], rows["text"]):
            methods[names[plan]][int(sample)] = (float(score), text.decode())
    return methods


def count(rows, needles):
    missed, answer, kinds = collections.Counter(), collections.Counter(), collections.Counter()
    for sample, (_, text) in rows.items():
        values = [value for value, _ in sorted(needles[sample][:-1], key=lambda needle: needle[1])]
        missed.update(i for i, value in enumerate(values) if value not in text)
        given = re.findall(r"(?<!\d)\d{7}(?!\d)", text)[: len(values)]
        for i, value in enumerate(given):
            if value not in values or value in given[:i]:
                answer[i] += 1
                kinds[kind(value, values, given[:i])] += 1
    return missed, answer, kinds


def paired(rows, other):
    both = sorted(rows.keys() & other.keys())
    difference = [rows[i][0] - other[i][0] for i in both]
    mean = sum(difference) / len(both)
    draw = random.Random(1)
    means = sorted(sum(draw.choices(difference, k=len(both))) / len(both) for _ in range(2000))
    flipped = sum(abs(sum(d if draw.random() < 0.5 else -d for d in difference)) >= abs(sum(difference)) - 1e-9
                  for _ in range(4000))
    lost, lost_there = ([i for i in both if table[i][0] < 1] for table in (rows, other))
    return (f"{len(lost)} samples lose something, {len(lost_there)} in the other table, {len(set(lost) & set(lost_there))}"
            f" in both ({len(lost) * len(lost_there) / len(both):.1f} if independent); difference {100 * mean:+.1f}"
            f" [{100 * means[50]:+.1f}, {100 * means[1949]:+.1f}] points, p = {(flipped + 1) / 4001:.3f}")


def main():
    needles = [json.loads(line) for line in open(sys.argv[1])]
    other = next(iter(rows_of(sys.argv[3]).values())) if len(sys.argv) > 3 else None
    for name, rows in rows_of(sys.argv[2]).items():
        missed, answer, kinds = count(rows, needles)
        n = len(next(iter(needles))) - 1
        recall = sum(score for score, _ in rows.values()) / len(rows)
        print(f"{name}: recall {100 * recall:.1f}, {len(rows)} samples")
        print("  values missed, first to last in the context:", *(missed[i] for i in range(n)))
        print("  wrong values, first to last in the answer:  ", *(answer[i] for i in range(n)))
        print("  " + ", ".join(f"{k}: {kinds[k]}" for k in KINDS))
        if other is not None:
            print("  " + paired(rows, other))


if __name__ == "__main__":
    main()

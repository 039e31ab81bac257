#!/usr/bin/env python3
"""Puts what reference.sh measured into the documents.

usage: reference_tables.py OUT

A table stands in a document between two comments, "<!-- measured: NAME -->" and "<!-- end -->";
what lies between them is replaced by the table of that name, made from the files of reference.sh in
OUT.  Tables whose files do not exist stay as they are, and are named.  Needs h5py and numpy.
"""

import os
import re
import sys

import h5py

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
DOCUMENTS = ("eval/RESULTS.md", "data/reference/README.md")
L0 = 256
SHOWN = ("rope", "ntk", "ntk-dynamic", "yarn", "llama3", "rerope", "leaky-rerope", "self-extend", "dca", "streaming-llm")


class Measured:
    def __init__(self, out):
        self.out = out

    def open(self, name):
        file = h5py.File(os.path.join(self.out, name), "r")
        if file.attrs["complete"] != 1:
            raise FileNotFoundError(name + " is not finished")
        return file

    def by_method(self, name, suite):
        """Lengths, and for each method its row of (mean, low, high, p, difference)."""
        with self.open(name) as file:
            group = file["/eval"][suite]
            columns = [group[k][()] for k in ("mean", "ci_low", "ci_high", "p_value", "difference")]
            names = [m.decode().removesuffix(":always=1") for m in file["/method"][()]]
            lengths = [int(x) for x in group["task_length"][()]]
        rows = {n: [tuple(c[i, k] for c in columns) for k in range(len(lengths))] for i, n in enumerate(names)}
        return lengths, rows


def markdown(head, rows):
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, None, *rows] if r is not None).replace(
        "\n", "\n|" + "---|" * len(head) + "\n", 1)


def percent(mean, low, high, *_):
    return "%.1f [%.0f, %.0f]" % (100 * mean, 100 * low, 100 * high)


def methods(measured):
    """Recall, and perplexity at two lengths; of dpe the table that was detected at the length."""
    def cell(rows, name, length, lower):
        mean, low, high, p, difference = rows[name][lengths.index(length)]
        mark = "" if name == "rope" or not p < 0.05 else " +" if (difference > 0) != lower else " −"
        return ("%.2f" % mean if lower else percent(mean, low, high)) + mark

    lengths, found = measured.by_method("compare.h5", "niah")
    predicted = measured.by_method("compare.h5", "ppl")[1]
    beyond = [n for n in lengths if n > L0]
    at = (4 * L0, 16 * L0)
    table = [[name] + [cell(found, name, n, False) for n in beyond] + [cell(predicted, name, n, True) for n in at]
             for name in SHOWN]
    own = {n: "table:dpe-%d.h5" % n for n in lengths if "table:dpe-%d.h5" % n in found}
    table.append(["dpe"] + [cell(found, own[n], n, False) if n in own else "–" for n in beyond] +
                 [cell(predicted, own[n], n, True) for n in at])
    return markdown(["method"] + ["%d (%d·L0)" % (n, n // L0) for n in beyond] + ["perplexity, %d" % at[0], str(at[1])], table)


def steps(measured, name):
    """Of an ablation's steps what they vary, its value, and recall."""
    with measured.open(name) as file:
        axis, value = [x.decode() for x in file["/ablate/axis"][()]], file["/ablate/value"][()]
    cells = [percent(*row[0]) for row in measured.by_method(name, "niah")[1].values()]
    return {(a, None if v != v else int(v)): cell for a, v, cell in zip(axis, value, cells)}


def ablations(measured):
    ranks, windows = steps(measured, "rank.h5"), steps(measured, "window.h5")
    counts = [steps(measured, name + ".h5") for name in ("top-k", "last-k", "top-k-4096")]
    n = sorted(v for a, v in ranks if a == "rank")
    near = sorted(v for a, v in windows if a == "window")
    k = sorted(v for a, v in counts[0] if a == "top-k")
    words = "Base %s; ranks 1 to %d: %s. Windows of %s: %s." % (
        ranks["base", None], n[-1], ", ".join(ranks["rank", i] for i in n), ", ".join(map(str, near)),
        ", ".join(windows["window", w] for w in near))
    table = [[label] + [cells.get((axis, v), "–") for v in k] for label, axis, cells in
             zip(("top-k, 1024", "last-k, 1024", "top-k, 4096"), ("top-k", "last-k", "top-k"), counts)]
    return words + "\n\n" + markdown(["k", *map(str, k)], table)


def sweep(measured, length):
    with measured.open("dpe-%d.h5" % length) as file:
        mean, lengths, edge = file["/detect/niah/recall_mean"][()], file["/length"][()], file["/table/group_edge"][()]
        best, p = file["/detect/effective_length"][()], file["/detect/p_value"][()]
        useful = file["/detect/informative"][()]
    rows = []
    for g, row in enumerate(mean):
        cells = ["%.3f%s" % (x, "*" if n == best[g] else "") for x, n in zip(row, lengths)]
        said = "<.001" if p[g] < 0.001 else "%.3f" % p[g]
        rows.append([str(g), "%d–%d" % (edge[g], edge[g + 1] - 1), *cells, said + ("" if useful[g] else "?")])
    return markdown(["group", "pairs", *map(str, lengths), "p"], rows)


def verdicts(measured):
    """What the joint plans of the sweeps are worth on fresh samples."""
    rows = []
    for length in (1024, 2048, 4096):
        with measured.open("dpe-%d.h5" % length) as file:
            group = file["/validate/niah"]
            low, high, mean = (group[k][()] for k in ("ci_low", "ci_high", "recall_mean"))
            against = [x.decode() for x in file["/validated_plan"][()]].index("base")
            difference = ["%+.3f" % group[k][against] for k in ("kept_minus", "kept_minus_low", "kept_minus_high")]
            rows.append([str(length), " ".join(map(str, file["/detect/effective_length"][()])),
                         *["%.3f [%.3f, %.3f]" % x for x in zip(mean, low, high)],
                         "%s [%s, %s]" % tuple(difference)])
    return markdown(["L", "effective lengths", "rope", "all groups at L0/2", "joint plan", "joint − L0/2"], rows)


def lookup(measured):
    """Keys and values in a context, one key asked: the model as it is at L0, and under DPE at 4·L0."""
    rows = []
    for keys, values in ((1, 1), (1, 4), (4, 1), (4, 2), (3, 4)):
        lengths, cells = measured.by_method("lookup-keys=%d,values=%d.h5" % (keys, values), "niah")
        rope, dpe = cells["rope"], cells["table:dpe-1024.h5"]
        rows.append(["%d × %d" % (keys, values), percent(*rope[lengths.index(256)]), percent(*rope[lengths.index(1024)]),
                     percent(*dpe[lengths.index(1024)])])
    return markdown(["keys × values", "rope, 256", "rope, 1024", "dpe, 1024"], rows)


TABLES = {"methods": methods, "ablations": ablations, "sweep-4096": lambda m: sweep(m, 4096), "verdicts": verdicts,
          "lookup": lookup}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    measured = Measured(sys.argv[1].rstrip("/"))

    def replaced(match):
        try:
            return match[1] + "\n" + TABLES[match[2]](measured) + "\n" + match[3]
        except FileNotFoundError as missing:
            print("%s stays: %s" % (match[2], missing))
            return match[0]

    for name in DOCUMENTS:
        path = os.path.join(ROOT, name)
        with open(path, encoding="utf-8") as f:
            before = f.read()
        after = re.sub(r"(<!-- measured: ([\w-]+) -->)\n.*?(<!-- end -->)", replaced, before, flags=re.S)
        if after != before:
            with open(path, "w", encoding="utf-8") as f:
                f.write(after)
            print(name + ": new")


if __name__ == "__main__":
    main()

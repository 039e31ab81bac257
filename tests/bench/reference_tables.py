#!/usr/bin/env python3
"""Puts what reference.sh measured into the documents.

usage: reference_tables.py OUT [BENCH_SAVINGS]

A table stands in a document between two comments, "<!-- measured: NAME -->" and "<!-- end -->";
what lies between them is replaced by the table of that name, made from the files of reference.sh in
OUT.  Tables whose files do not exist stay as they are, and are named.  BENCH_SAVINGS is the program
of that name (default: build/tests/bench_savings).  Needs h5py and numpy.
"""

import os
import re
import subprocess
import sys

import h5py

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
DOCUMENTS = ("README.md", "eval/RESULTS.md", "detect/README.md", "data/reference/README.md")
L0 = 256
SHORT = (("rope", "rope"), ("pi", "position interpolation"), ("rerope", "ReRoPE"), ("self-extend", "Self-Extend"),
         ("dca", "DCA"), ("yarn", "YaRN"), ("leaky-rerope", "Leaky-ReRoPE"))


class Measured:
    def __init__(self, out, bench):
        self.out, self.bench = out, bench

    def open(self, name):
        file = h5py.File(os.path.join(self.out, name), "r")
        if file.attrs["complete"] != 1:
            raise FileNotFoundError(name + " is not finished")
        return file

    def path(self, name):
        path = os.path.join(self.out, name)
        if not os.path.exists(path):
            raise FileNotFoundError(name)
        return path

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


def comparison(measured, suite):
    lengths, rows = measured.by_method("compare.h5", suite)
    lower = suite == "ppl"
    table = []
    for name, cells in rows.items():
        table_of = re.fullmatch(r"table:dpe-(\d+)\.h5", name)
        line = ["dpe, detected at " + table_of[1] if table_of else name]
        for cell in cells:
            p, difference = cell[3:]
            mark = "" if name == "rope" or not p < 0.05 else " +" if (difference > 0) != lower else " −"
            line.append(("%.2f" % cell[0] if lower else percent(*cell)) + mark)
        table.append(line)
    return markdown(["method"] + ["%d (%d·L0)" % (n, n // L0) for n in lengths], table)


def short(measured):
    lengths, rows = measured.by_method("compare.h5", "niah")
    shown = [n for n in lengths if n != 512]
    table = [[label] + ["%.1f" % (100 * rows[name][lengths.index(n)][0]) for n in shown] for name, label in SHORT]
    own = ["%.1f" % (100 * rows["table:dpe-%d.h5" % n][lengths.index(n)][0]) if n > L0 else "" for n in shown]
    return markdown(["method"] + [str(n) for n in shown], table + [["**dpe**"] + own])


def steps(measured, name):
    with measured.open(name) as file:
        axis = [x.decode() for x in file["/ablate/axis"][()]]
        value, k = file["/ablate/value"][()], file["/ablate/k"][()]
    cells = [percent(*row[0]) for row in measured.by_method(name, "niah")[1].values()]
    return list(zip(axis, value, k, cells))


def ablation(measured, name):
    return markdown(["step", "recall"], [[axis if axis in ("rope", "base") else "%s %d" % (axis, value), cell]
                                         for axis, value, _, cell in steps(measured, name)])


def counts(measured, suffix=""):
    top, last = ({int(v): cell for axis, v, _, cell in steps(measured, what + suffix + ".h5") if axis == what}
                 for what in ("top-k", "last-k"))
    return markdown(["k", "top-k", "last-k"], [[str(k), top[k], last[k]] for k in sorted(top)])


def scaled(measured):
    grid = {(int(k), int(v)): cell for axis, v, k, cell in steps(measured, "scaled-length.h5") if axis == "scaled-length"}
    lengths = sorted({v for _, v in grid})
    return markdown(["k"] + ["%d tokens" % v for v in lengths],
                    [[str(k)] + [grid[k, v] for v in lengths] for k in sorted({k for k, _ in grid})])


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
            against = [x.decode() for x in group["compared_with"][()]].index("base")
            difference = ["%+.3f" % group[k][against] for k in ("difference", "difference_low", "difference_high")]
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


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def lines_of(text):
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def races(measured):
    rows = []
    for length in (1024, 4096):
        text = lines_of(run(measured.bench, measured.path("dpe-%d.h5" % length))).splitlines()
        rows += ["| %d: %s" % (length, line[2:]) for line in text if line.startswith("| race")]
    return "| | same first rank | recall lost by the choice | rows run | naive loop / this |\n|---|---|---|---|---|\n" + \
        "\n".join(rows)


def pairs(measured, length):
    said = {"other": "other samples", "shared": "`--haystack shared`", "keys": "`--keys-per-context 4`"}
    text = run(measured.bench, *[measured.path("%s-%d.h5" % (n, length)) for n in ("dpe", *said)])
    for name, words in said.items():
        text = text.replace("%s/%s-%d.h5, 100 samples" % (measured.out, name, length), "a naive sweep and " + words)
    return lines_of(text)


def joint(measured, length):
    """Recall of the joint plans on fresh samples of the naive sweep's task, and what their sweeps read."""
    said = (("dpe", "the naive sweep"), ("other", "one of other samples"), ("shared", "`--haystack shared`"),
            ("keys", "`--keys-per-context 4`"), ("fast", "`--keys-per-context 4 --race`"),
            ("fast-again", "the same, other samples"))
    _, cells = measured.by_method("joint-%d.h5" % length, "niah")
    with measured.open("dpe-%d.h5" % length) as file:
        naive = sum(file[part]["niah/prompt_tokens"][()].sum() for part in ("detect", "validate"))
    rows = []
    for name, words in said:
        if "table:%s-%d.h5" % (name, length) not in cells:
            continue
        with measured.open("%s-%d.h5" % (name, length)) as file:
            # The tokens of a run that was resumed are not known: the table has those of the last session.
            read = file["/run"].attrs["tokens_read"] if file["/run/session"].size == 1 else None
        mean, low, high, p, difference = cells["table:%s-%d.h5" % (name, length)][0]
        more = "%+.1f, p %s" % (100 * difference, "= %.3f" % p if p >= 0.001 else "< 0.001")
        rows.append([words, "%.2f" % (naive / read) if read else "not known", percent(mean, low, high),
                     "" if name == "dpe" else more])
    return markdown(["%d: sweep" % length, "prompt tokens, naive loop / this", "recall of its joint plan, %",
                     "− the naive sweep's"], rows)


def select(measured):
    measured.path("select")
    return run(sys.executable, os.path.join(HERE, "select_rules.py"), os.path.join(measured.out, "select")).strip()


def savings(measured):
    with open(measured.path("savings.md"), encoding="utf-8") as f:
        return f.read().strip()


TABLES = {
    "niah": lambda m: comparison(m, "niah"), "ppl": lambda m: comparison(m, "ppl"), "short": short,
    "rank": lambda m: ablation(m, "rank.h5"), "window": lambda m: ablation(m, "window.h5"), "counts": counts,
    "counts-4096": lambda m: counts(m, "-4096"), "scaled-length": scaled, "sweep-4096": lambda m: sweep(m, 4096),
    "verdicts": verdicts, "lookup": lookup, "races": races, "pairs-1024": lambda m: pairs(m, 1024),
    "pairs-2048": lambda m: pairs(m, 2048), "joint-1024": lambda m: joint(m, 1024),
    "joint-2048": lambda m: joint(m, 2048), "joint-4096": lambda m: joint(m, 4096), "select": select, "savings": savings,
}


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    measured = Measured(sys.argv[1].rstrip("/"),
                        sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "build/tests/bench_savings"))

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

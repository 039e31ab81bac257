"""kv_types.py BIN OUT [niah|ppl:LENGTH:SAMPLES[:METHOD] …]: what the types of the key/value cache (--kv-cache-dtype) cost the bundled
model: recall of 4 needles and nats a token under f32, and the paired differences of bf16 and int8 from it with 95 % intervals
(bootstrap over samples). The same samples for every type; tables go to the folder OUT and are continued. Needs h5py."""
import os
import random
import subprocess
import sys

import h5py

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
METHODS = ["self-extend", "select:refresh=64,over=self-extend"]
JOBS = ["niah:1024:100", "ppl:1024:100", "niah:4096:20:self-extend:logit-scale=1.2", "ppl:4096:16"]
TYPES = ["f32", "bf16", "int8"]
ROUNDS = 4000


def run(program, path, kind, length, samples, methods, dtype):
    words = [program, kind, "-m", os.path.join(ROOT, "data/reference"), "--corpus", os.path.join(ROOT, "data/sample"), "-l", length,
             "--samples", samples, "--seed", "19", "--kv-cache-dtype", dtype, "--threads", "2", "-o", path]
    for method in methods:
        words += ["--method", method]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())


def scores(path, kind):
    """By method: recall, or the sum of nats and the number of tokens, of each sample."""
    with h5py.File(path) as file:
        group = file["eval/" + kind]
        names = {int(plan): name.decode() for plan, name in enumerate(file["method"][...])}
        found = {}
        for method in range(len(names)):
            if kind == "niah":
                found[names[method]] = [(float(x), 1.0) for x in group["score"][method, 0]]
            else:
                found[names[method]] = [(float(s), float(n)) for s, n in zip(group["nll_sum"][method, 0], group["n_tokens"][method, 0])]
        return found


def mean(pairs):
    return sum(s for s, _ in pairs) / sum(n for _, n in pairs)


def difference(one, other):
    """Of the means, and its 95 % interval."""
    draw = random.Random(1)
    values = []
    for _ in range(ROUNDS):
        chosen = [draw.randrange(len(one)) for _ in one]
        values.append(mean([one[i] for i in chosen]) - mean([other[i] for i in chosen]))
    values.sort()
    return mean(one) - mean(other), values[ROUNDS // 40], values[ROUNDS - 1 - ROUNDS // 40]


def main():
    program = os.path.join(sys.argv[1], "dpe-eval")
    out = sys.argv[2]
    os.makedirs(out, exist_ok=True)
    print("| | method | f32 | bf16 − f32 | int8 − f32 |\n|---|---|---:|---:|---:|")
    for job in sys.argv[3:] or JOBS:
        kind, length, samples, *method = job.split(":", 3)
        paths = {dtype: os.path.join(out, f"{kind}-{length}-{dtype}.h5") for dtype in TYPES}
        for dtype in TYPES:
            run(program, paths[dtype], kind, length, samples, method or METHODS, dtype)
        found = {dtype: scores(paths[dtype], kind) for dtype in TYPES}
        unit, digits = (100.0, 2) if kind == "niah" else (1.0, 5)
        for method, base in found["f32"].items():
            cells = []
            for dtype in TYPES[1:]:
                cells.append("{:+.{d}f} [{:+.{d}f}, {:+.{d}f}]".format(*(unit * x for x in difference(found[dtype][method], base)),
                                                                     d=digits))
            what = "recall, %" if kind == "niah" else "nats a token"
            print(f"| {what}, {length} | `{method}` | {unit * mean(base):.{digits}f} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()

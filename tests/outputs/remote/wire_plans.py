#!/usr/bin/env python3
"""Plans as tools give them to an engine, read by the adapters' only reader: wire_plans.py WIRE_PLANS DPE_RUN MODEL OUTPUTS. The
digest is that of the bytes, and the positions are those of what dpe-run prints. Exits with 125 when torch is not there."""
import json
import os
import subprocess
import sys

try:
    import numpy as np
    import torch  # noqa: F401
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(125)

WIRE, RUN, MODEL, OUTPUTS = sys.argv[1:]
sys.path[:0] = [os.path.join(OUTPUTS, "transformers"), os.path.join(OUTPUTS, "vllm")]
from dpe_attention import TableError, load_table  # noqa: E402

TRAINED, LENGTH = "200", "1500"
SPECS = ["rope", "yarn:log-n=300", "cope", "rerope", "leaky-rerope:window=24,scale=5", "self-extend", "lampe", "dca", "string",
         "streaming-llm", "lm-infinite", "hirope", "adagrope", "dope", "ntk:logit-scale=1.25",
         "dpe:window=32,scales=2/3/4/6,groups=4,log-n=200,log-n-power=0.7", "self-extend:infoscale=90",
         "lampe:log-n=300,logit-scale-heads=0.1:0.5/1.0:1.75"]


def lines(specs):
    done = subprocess.run([WIRE, MODEL, TRAINED, LENGTH, *specs], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(spec):
    done = subprocess.run([RUN, "-m", MODEL, "--trained-length", TRAINED, "--length", LENGTH, "--method", spec, "--show-plan",
                           "--json", "--quiet"], check=True, stdout=subprocess.PIPE)
    return load_table("shown", data=done.stdout).plan


def same(one, two):
    """But for the mask, which the program gives the plans of the wire."""
    kinds = [[(band.kind, band.lo, band.hi) for band in plan.bands] for plan in (one, two)]
    assert kinds[0] == kinds[1] and (one.n_still, one.head_dim, one.chunk) == (two.n_still, two.head_dim, two.chunk)
    assert np.array_equal(one.inv_freq, two.inv_freq)
    assert (one.logit_heads is None) == (two.logit_heads is None)
    assert one.logit_heads is None or np.array_equal(one.logit_heads, two.logit_heads)
    assert np.array_equal(*(plan.query_scales(0, 1500) for plan in (one, two)))
    for a, b in zip(one.maps, two.maps):
        assert np.array_equal(a.positions(0, 700), b.positions(0, 700))


def refused(value, words, **change):
    try:
        load_table("the plan", data=json.dumps(dict(value, **change)).encode())
    except TableError as error:
        assert words in str(error), (words, error)
    else:
        raise AssertionError(f"taken: {change}")


def main():
    found = lines(SPECS)
    assert len(found) == len(SPECS)
    masked = 0
    for spec, line in zip(SPECS, found):
        read = load_table("the plan", data=line["plan"].encode())
        assert read.digest == line["digest"], f"{spec}: another digest than that of the bytes"
        same(read.plan, shown(spec))
        masked += read.plan.mask is not None and any(band.per_head for band in read.plan.bands)
    assert masked > 8, masked  # those of several bands
    assert len({line["digest"] for line in found}) == len(SPECS)
    value = json.loads(dict(zip(SPECS, found))["self-extend"]["plan"])
    for wrong in (None, 5, [], {}, "inf"):
        refused(value, "inv_freq", inv_freq=wrong)
        if wrong != []:
            refused(value, "bands", bands=wrong)
    refused(value, "selects keys", selection="k=8")
    refused(value, "selection", selection=5)
    refused(value, "rounding", rounding="exact")
    refused(value, "f64", angle_precision="f64")
    print(f"{len(SPECS)} plans with their digests and positions")


main()

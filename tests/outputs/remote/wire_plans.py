#!/usr/bin/env python3
"""Plans as tools give them to an engine, read by the plugin for vLLM: wire_plans.py WIRE_PLANS DPE_RUN MODEL OUTPUTS. The digest is
the engine's, and the positions are those of the file that dpe-run writes. Exits with 125 when torch is not there."""
import copy
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch  # noqa: F401
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(125)

WIRE, RUN, MODEL, OUTPUTS = sys.argv[1:]
sys.path[:0] = [os.path.join(OUTPUTS, "transformers"), os.path.join(OUTPUTS, "vllm")]
from dpe_attention import TableError, load_table  # noqa: E402
from dpe_vllm.protocol import WirePlan  # noqa: E402

TRAINED, LENGTH = "200", "1500"
SPECS = ["rope", "yarn:log-n=300", "cope", "rerope", "leaky-rerope:window=24,scale=5", "self-extend", "lampe", "dca", "string",
         "streaming-llm", "lm-infinite", "hirope", "adagrope", "dope", "ntk:logit-scale=1.25",
         "dpe:window=32,scales=2/3/4/6,groups=4,log-n=200,log-n-power=0.7", "self-extend:infoscale=90",
         "lampe:log-n=300,logit-scale-heads=0.1:0.5/1.0:1.75"]


def lines(specs):
    done = subprocess.run([WIRE, MODEL, TRAINED, LENGTH, *specs], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_file(spec, folder):
    done = subprocess.run([RUN, "-m", MODEL, "--trained-length", TRAINED, "--length", LENGTH, "--method", spec, "--show-plan",
                           "--json", "--quiet"], check=True, stdout=subprocess.PIPE, text=True)
    path = os.path.join(folder, "plan.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(done.stdout)
    return load_table(path).plan


def same(wire, other):
    """The file has 15 digits of each number, so that a floor may fall to the other side."""
    assert [(band.kind, band.lo, band.hi, band.per_head) for band in wire.bands] == \
        [(band.kind, band.lo, band.hi, band.per_head) for band in other.bands]
    assert wire.n_still == other.n_still and wire.head_dim == other.head_dim and wire.chunk == other.chunk
    assert np.allclose(wire.inv_freq, other.inv_freq, rtol=1e-13, atol=0)
    assert (wire.logit_heads is None) == (other.logit_heads is None)
    assert wire.logit_heads is None or np.array_equal(wire.logit_heads, other.logit_heads)
    scales = [one.query_scales(0, 1500) for one in (wire, other)]
    assert np.allclose(*scales, rtol=1e-13)
    for one, two in zip(wire.maps, other.maps):
        assert np.isclose(one.positions(0, 700), two.positions(0, 700), rtol=1e-12).mean() > 0.995


def refused(value, words, **change):
    value = copy.deepcopy(value)
    for name, found in change.items():
        parent, names = value, name.split("__")
        for step in names[:-1]:
            parent = parent[int(step) if step.isdigit() else step]
        parent[int(names[-1]) if names[-1].isdigit() else names[-1]] = found
    try:
        WirePlan(value, 1)
    except TableError as error:
        assert words in str(error), (words, error)
    else:
        raise AssertionError(f"taken: {change}")


def main():
    found = lines(SPECS)
    assert len(found) == len(SPECS)
    with tempfile.TemporaryDirectory() as folder:
        for spec, line in zip(SPECS, found):
            read = WirePlan(line["plan"], 1)
            assert read.digest == line["digest"], f"{spec}: another digest than the engine's"
            same(read.plan, of_file(spec, folder))
    assert len({line["digest"] for line in found}) == len(SPECS)
    plan = dict(zip(SPECS, found))["self-extend"]["plan"]
    for wrong in (None, 5, [], {}, "inf"):
        refused(plan, "bands", bands=wrong)
        refused(plan, "inv_freq", inv_freq=wrong)
        refused(plan, "scale", bands__0__q__scale=wrong)
    refused(plan, "n_pairs", n_pairs=1 << 40)
    refused(plan, "n_pairs", n_pairs=True)
    refused(plan, "logit_factor", logit_factor=float("nan"))
    refused(plan, "logit_factor", logit_factor=-1)
    refused(plan, "mask", mask="01")
    refused(plan, "kind", bands__1__kind=3)
    refused(plan, "first band", bands__0__per_head=True)
    refused(plan, "scales of 1", bands__1__k__period=0.5)
    refused(plan, "an order", bands__1__hi=plan["bands"][1]["lo"])
    refused(plan, "exact positions", exact=True)
    refused(plan, "selects keys", selection__block=64)
    refused([], "n_pairs")
    print(f"{len(SPECS)} plans with the engine's digests and positions")


main()

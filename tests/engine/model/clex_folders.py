#!/usr/bin/env python3
"""clex_folders.py BIN: the bundled model with a random network of CLEX in its folder: perplexities are those of the same model
with frequencies computed here from the definition, given as factors. And what is refused."""
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = os.path.abspath(sys.argv[1])
MODEL = ROOT / "data" / "reference"
PAIRS, TRAINED = 32, 256
SCALING = {"type": "clex", "factor": 1, "max_factor": 6, "param_factor": 1, "time_dt": 0.05, "act": "tanh"}


def write(folder, tensors, scaling, **changes):
    """The bundled model's weights and these tensors of floats."""
    data = (MODEL / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8:8 + n]), data[8 + n:]
    for name, (shape, values) in tensors.items():
        data += b"\0" * (-len(data) % 4)
        content = struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    # A file has no holes: the padding is a tensor of its own.
    used = sorted(tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__")
    for (_, end), (begin, _) in zip(used, used[1:]):
        if begin > end:
            header["padding.%d" % end] = {"dtype": "U8", "shape": [begin - end], "data_offsets": [end, begin]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = json.loads((MODEL / "config.json").read_text()) | {"rope_scaling": scaling} | changes
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "generation_config.json"):
        shutil.copy(MODEL / name, folder)


def network(width):
    """Random, as single precision has them; shapes as in the released code."""
    rng = random.Random(5)
    single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    inv_freq = [single(10000.0 ** (-j / PAIRS) * rng.uniform(0.9, 1.1)) for j in range(PAIRS)]
    up = [single(rng.gauss(0, 0.1)) for _ in range(PAIRS * width)]
    down = [single(rng.gauss(0, 0.02)) for _ in range(width * PAIRS)]
    return inv_freq, up, down


def tensors(width):
    inv_freq, up, down = network(width)
    return {"model.clex_layer.inv_freq": ([PAIRS], inv_freq),
            "model.clex_layer.proj_func.ode_up_proj": ([PAIRS, width], up),
            "model.clex_layer.proj_func.ode_down_proj": ([width, PAIRS], down)}


def slope(t, x, up, down, width, act):
    d, alpha = 2 * PAIRS, max(2 * t - 1, 1)
    base = 10000.0 * alpha ** (d / (d - 2))
    time = [base ** (-2 * j / d) for j in range(PAIRS)]
    y = [x[j] + math.log(time[j]) for j in range(PAIRS)]
    hidden = [act(sum(y[j] * up[j * width + w] for j in range(PAIRS))) for w in range(width)]
    return [sum(hidden[w] * down[w * PAIRS + j] for w in range(width))
            + -2 * 2 * j / (d - 2) / (10000.0 ** (2 * j / d) * alpha ** (2 * j / (d - 2) + 1)) / time[j] for j in range(PAIRS)]


def frequencies(length, scaling, width):
    inv_freq, up, down = network(width)
    t_end = min(-(-length // TRAINED), scaling["max_factor"])
    act = math.tanh if scaling["act"] == "tanh" else lambda x: x / (1 + math.exp(-x))
    f = lambda t, x: slope(t, x, up, down, width, act)
    move = lambda x, *terms: [v + sum(c * k[j] for c, k in terms) for j, v in enumerate(x)]
    x, h = [math.log(v) for v in inv_freq], scaling["time_dt"]
    for i in range(round((t_end - 1) / h)):
        t = 1 + i * h
        a = f(t, x)
        b = f(t + h / 3, move(x, (h / 3, a)))
        c = f(t + 2 * h / 3, move(x, (-h / 3, a), (h, b)))
        e = f(t + h, move(x, (h, a), (-h, b), (h, c)))
        x = move(x, (h / 8, a), (3 * h / 8, b), (3 * h / 8, c), (h / 8, e))
    return [math.exp(v) for v in x]


def run(*args):
    done = subprocess.run([os.path.join(BIN, "dpe-run"), "--threads", "1", *map(str, args)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def nll(folder, text, context, *method):
    code, out, err = run("-m", folder, "--nll", text, "--context", context, "--json", *method)
    if code != 0:
        sys.exit("%s: %s" % (folder, err))
    return json.loads(out)["nll"]


def check(work, text, name, context, changes, width, **top):
    folder = work / name
    scaling = SCALING | changes
    write(folder, tensors(width), scaling, **top)
    wanted = frequencies(context, scaling, width)
    factors = "/".join("%.12g" % (10000.0 ** (-j / PAIRS) / wanted[j]) for j in range(PAIRS))
    a = math.sqrt(math.log(context) / math.log(TRAINED)) if top.get("log_scale", True) else 1.0
    spec = work / (name + ".json")
    scaling = {"rope_type": "longrope", "short_factor": [float(x) for x in factors.split("/")],
               "long_factor": [float(x) for x in factors.split("/")], "factor": 1.0, "attention_factor": a}
    write(spec, {}, scaling)
    got, want = nll(folder, text, context), nll(spec, text, context)
    plain = nll(MODEL, text, context)
    if not abs(got - want) < 1e-5 * want or abs(plain - want) < 1e-3:
        sys.exit("%s: nll %r, expected %r; without scaling %r" % (name, got, want, plain))


def refused(work, name, scaling, message, lacks=None, shape=None, **top):
    folder = work / name
    some = tensors(64)
    if lacks is not None:
        del some[lacks]
    if shape is not None:
        some[shape] = ([64, PAIRS], some[shape][1])
    write(folder, some, scaling, **top)
    code, _, err = run("-m", folder, "-p", "Once", "--max-new", "1")
    if code != 65 or message not in err:
        sys.exit("%s: exit code %d, %s; expected 65, %s" % (name, code, err, message))


def main():
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        text = work / "text"
        text.write_bytes((ROOT / "data/sample/test/900000.txt").read_bytes()[:9000])
        check(work, text, "trained", 256, {}, 64)
        check(work, text, "longer", 1000, {}, 64)
        check(work, text, "beyond", 2048, {}, 64, log_scale=False)
        check(work, text, "silu", 700, {"act": "silu", "param_factor": 2}, 128)
        up = "model.clex_layer.proj_func.ode_up_proj"
        refused(work, "missing", SCALING, "ode_up_proj", lacks=up)
        refused(work, "shape", SCALING, "expected shape [32, 64] by config.json, found [64, 32]", shape=up)
        refused(work, "act", SCALING | {"act": "relu"}, "act: expected tanh or silu")
        refused(work, "step", SCALING | {"time_dt": 1e-9}, "time_dt: expected at least 0.001")
        refused(work, "wide", SCALING | {"param_factor": 1.5}, "param_factor: expected a whole number")
    print("CLEX folders open")


main()

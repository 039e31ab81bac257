"""agreement.py widen MODEL OUT: a copy of a model folder with its BF16 weights as F32 (the same numbers).
agreement.py compare CPU.h5 GPU.h5 SHARE: how many rows of two sweeps are equal; exit 1 when they are
fewer than SHARE of all, 125 without h5py."""
import json
import os
import shutil
import struct
import sys


def widen(model, out):
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    for name in ("tokenizer.json", "generation_config.json"):
        shutil.copyfile(os.path.join(model, name), os.path.join(out, name))
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    config["torch_dtype"] = "float32"
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(model, "model.safetensors"), "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(n))
        data = file.read()
    wide, at = bytearray(), {}
    names = [name for name in header if name != "__metadata__"]
    for name in sorted(names, key=lambda name: header[name]["data_offsets"][0]):
        first, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == "BF16", name
        floats = bytearray(2 * (end - first))
        floats[2::4] = data[first:end:2]
        floats[3::4] = data[first + 1:end:2]
        at[name] = {"dtype": "F32", "shape": header[name]["shape"],
                    "data_offsets": [len(wide), len(wide) + len(floats)]}
        wide += floats
    text = json.dumps(at).encode()
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + wide)


def compare(first, second, share):
    try:
        import h5py
        import numpy
    except ImportError:
        print("no h5py here")
        sys.exit(125)
    same = rows = 0
    with h5py.File(first) as a, h5py.File(second) as b:
        for name in ("niah/recall", "ppl/nll_sum"):
            if "detect/" + name not in a:
                continue
            x, y = a["detect/" + name][()], b["detect/" + name][()]
            made = ~numpy.isnan(x) | ~numpy.isnan(y)
            # A likelihood is a sum of roundings, an answer is right or wrong.
            equal = x == y if name.startswith("niah") else numpy.abs(x - y) <= 1e-4 * numpy.abs(x)
            print(f"{name}: {int((equal & made).sum())} of {int(made.sum())} rows equal, worst difference "
                  f"{numpy.nanmax(numpy.abs(x - y)):.3g}, means {numpy.nanmean(x):.4f} and {numpy.nanmean(y):.4f}")
            same += int((equal & made).sum())
            rows += int(made.sum())
        print("effective lengths:", *(t["detect/effective_length"][()].tolist() for t in (a, b)))
    print(f"{same} of {rows} rows equal" + (f", expected {100 * share:g} %" if share > 0 else ""))
    sys.exit(0 if rows > 0 and same >= share * rows else 1)


if __name__ == "__main__":
    if sys.argv[1] == "widen":
        widen(*sys.argv[2:4])
    else:
        compare(sys.argv[2], sys.argv[3], float(sys.argv[4]))

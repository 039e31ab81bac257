#!/usr/bin/env python3
"""read_table.py TABLE [TOKENS]: a DPE table in Python, with json or h5py alone.

Prints the entry that a text of TOKENS (prompt and answer together; without it the longest) is run with, and at which
positions its last token and the first key are rotated. outputs/SCHEMA.md says what each number means; the adapters'
load_table also checks all of them, which this program does not."""
import json
import math
import sys


def read_json(path):
    with open(path, encoding="utf-8") as file:
        table = json.load(file)
    assert table["schema_name"] == "dpe-table" and table["schema_version"].startswith("9."), "another schema"
    return table["model"], table.get("entries", [table])


def read_h5(path):
    import h5py  # only this form needs it

    def entry(group):
        found = {name: data[()].tolist() for name, data in group.items() if hasattr(data, "shape")} | dict(group.attrs)
        if "mask" in found:  # in JSON the indices of those that are marked
            found["key_pairs"] = [[[j for j, mark in enumerate(head) if mark] for head in layer] for layer in found["mask"]]
        return found

    with h5py.File(path) as file:
        assert file.attrs["schema_name"] == "dpe-table" and file.attrs["schema_version"].startswith("9."), "another schema"
        table = file["table"]
        lengths = table["length"][()].tolist() if "length" in table else []
        model = {name.replace("kv_", "n_kv_") if name == "kv_heads" else "n_" + name if name in ("layers", "heads") else name: value
                 for name, value in file["model"].attrs.items()}
        return model, [entry(table[str(length)]) for length in lengths] or [entry(table)]


def read(path):
    """The model, and the entries by increasing length."""
    with open(path, "rb") as file:
        hdf5 = file.read(4) == b"\x89HDF"
    model, entries = read_h5(path) if hdf5 else read_json(path)
    return model, sorted(entries, key=lambda entry: entry["evaluated_length"])


def choose(entries, tokens):
    """None: at most the trained length, the model is run unchanged."""
    if tokens <= entries[0]["trained_length"]:
        return None
    return next((entry for entry in entries if entry["evaluated_length"] >= tokens), entries[-1])


def far(entry, group, m, n):
    """Where the pairs of a group are rotated of query m and key n, m - n >= window: of an entry without bands."""
    scale, window = entry["scale_factor"][group], entry["local_window"]
    rounded = (lambda x: x) if entry.get("unrounded") else math.floor
    return rounded(m / scale) + window - rounded(window / scale), rounded(n / scale)


def main(path, tokens=None):
    model, entries = read(path)
    tokens = int(tokens or entries[-1]["evaluated_length"])
    print(f"{model['model_type']}, {model['n_layers']} layers of {model['n_heads']} heads of {model['head_dim']}, trained for "
          f"{entries[0]['trained_length']} tokens; entries for {[entry['evaluated_length'] for entry in entries]}")
    entry = choose(entries, tokens)
    if entry is None:
        print(f"{tokens} tokens: the model is run unchanged")
        return
    print(f"{tokens} tokens: the entry for {entry['evaluated_length']}, log-n from {entry.get('log_n_length', 0):g} to the power "
          f"{entry.get('log_n_power', 1):g}")
    if entry.get("bands"):
        print(f"  {len(entry['bands']) // (2 * (11 + model['head_dim']))} bands, in place of a window and scales")
        return
    print(f"  keys nearer than {entry['local_window']} keep their distance")
    for group, scale in enumerate(entry["scale_factor"]):
        query, key = far(entry, group, tokens - 1, 0)
        pairs = f"{entry['group_edge'][group]} to {entry['group_edge'][group + 1] - 1}"
        print(f"  pairs {pairs}, scale {scale:g}: query {tokens - 1} at {query:g}, key 0 at {key:g}")


if __name__ == "__main__":
    main(*sys.argv[1:])

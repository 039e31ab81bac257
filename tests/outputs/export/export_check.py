#!/usr/bin/env python3
"""export_check.py DIR SCHEMA: reads every form of a table that dpe-calibrate left in DIR without any
of our code and compares them with table.h5. What cannot be looked at because a Python package is
missing is named. Exit status 0 when everything that was compared agrees."""

import csv
import json
import pathlib
import re
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
from adapter_fields import NO_TEMPERATURE  # noqa: E402

FAILED = []
ROOT = pathlib.Path(__file__).resolve().parents[3]


def check(what, ok):
    if not ok:
        FAILED.append(what)
        print("FAILED:", what)


def same(what, got, want):
    got, want = np.asarray(got), np.asarray(want)
    check(f"{what}: {got.shape} {want.shape}", got.shape == want.shape and (got == want).all())


# ---------------------------------------------------------------- JSON Schema, the part we use

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool}


def has_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


METHOD = {"unrounded", "applied_inv_freq"}  # the plan of another method
BANDS = {"bands", "head_scale", "selection"}  # which only some entries have


RULES = {
    "type": has_type,
    # 0.0 is the number 0, but true is not the number 1.
    "const": lambda value, want: isinstance(value, bool) is isinstance(want, bool) and value == want,
    "enum": lambda value, wanted: value in wanted,
    "required": lambda value, names: all(name in value for name in names),
    "dependentRequired": lambda value, names: all(set(with_it) <= set(value) for name, with_it in names.items() if name in value),
    "pattern": lambda value, text: re.search(text, value) is not None,
    "minLength": lambda value, n: len(value) >= n,
    "minimum": lambda value, least: value >= least,
    "maximum": lambda value, most: value <= most,
    "anyOf": lambda value, rules: any(not list(problems(value, rule)) for rule in rules),
    "exclusiveMinimum": lambda value, least: value > least,
    "multipleOf": lambda value, n: value % n == 0,
    "minItems": lambda value, n: len(value) >= n,
    "uniqueItems": lambda value, yes: len(set(value)) == len(value),
}
WORDS = {"$schema", "$defs", "title", "description", "properties", "items", "if", "then", "else", "$ref"}


def problems(value, schema, where="$", whole=None):
    """Where `value` breaks `schema`, a part of `whole`; a keyword that is not known here is an error."""
    whole = schema if whole is None else whole
    if schema is not False and "$ref" in schema:
        part = whole
        for name in schema["$ref"].split("/")[1:]:
            part = part[name]
        yield from problems(value, part, where, whole)
        return
    if schema is False:
        yield f"{where}: must not be there"
        return
    for keyword, rule in schema.items():
        if keyword in RULES:
            if not RULES[keyword](value, rule):
                yield f"{where}: {keyword} {rule}"
                return
        elif keyword not in WORDS:
            raise SystemExit(f"{where}: keyword {keyword} is not known to this check")
    for name, inner in schema.get("properties", {}).items():
        if name in value:
            yield from problems(value[name], inner, f"{where}.{name}", whole)
    if "if" in schema:
        branch = "else" if list(problems(value, schema["if"])) else "then"
        yield from problems(value, schema.get(branch, {}), where, whole)
    for i, item in enumerate(value if "items" in schema else []):
        yield from problems(item, schema["items"], f"{where}[{i}]", whole)


def check_json(folder, schema_path, table):
    schema = json.loads(pathlib.Path(schema_path).read_text())
    text = (folder / "table.json").read_text()
    data = json.loads(text)
    check(f"table.json against the schema: {list(problems(data, schema))[:3]}",
          not list(problems(data, schema)))
    temperature = set(NO_TEMPERATURE)
    entry_of = schema["$defs"]["entry"]
    evidence = {name for name in entry_of["properties"] if name.startswith("evidence_")}
    check("the schema lists every member",
          set(data) | evidence | temperature | METHOD | BANDS | {"entries", "moves"} == set(schema["properties"]) | set(entry_of["properties"]))
    # All of a temperature, or nothing of it.
    with_one = {**data, **NO_TEMPERATURE, "logit_scale": 1.5, "log_n_length": 256}
    check("the calibration's check is in its table", evidence <= set(data) and "needles" in data["evidence_task"])
    check("the schema takes a temperature", not list(problems(with_one, schema)))
    for name, value in (("schema_version", "5.0.0"), ("log_n_length", 1), ("logit_scale", 0), ("logit_scale_last", 0),
                        ("log_n_power", 0), ("log_n_decay", -1), ("log_n_power", 65)):
        check(f"the schema refuses {name} = {value} in a temperature",
              list(problems({**with_one, name: value}, schema)))
    without = {name: value for name, value in data.items() if name not in temperature}
    check("the schema takes a table without a temperature", not list(problems(without, schema)))
    for name in temperature:
        check(f"the schema refuses {name} alone",
              list(problems({**without, name: with_one[name]}, schema)))
    # Frequencies have nothing that only positions have.
    of_frequencies = {**with_one, "moves": "frequencies", "near_rule": "none",
                      "rounding": "none", "local_window": 0, "adapter_required": False, "log_n_length": 0}
    check("the schema takes a table of frequencies", not list(problems(of_frequencies, schema)))
    for name, value in (("moves", "positions"), ("near_rule", data["near_rule"]),
                        ("rounding", data["rounding"]), ("local_window", 32), ("adapter_required", True),
                        ("log_n_length", 256)):
        check(f"the schema refuses {name} = {value} in a table of frequencies",
              list(problems({**of_frequencies, name: value}, schema)))
    check("the schema refuses moves in a table of positions", list(problems({**data, "moves": "frequencies"}, schema)))
    # What an entry has is in the list and nowhere else.
    own = set(entry_of["properties"]) - METHOD - BANDS - evidence
    entry = {name: with_one[name] for name in own}
    several = {name: value for name, value in data.items() if name not in own | evidence}
    several.update(entries=[entry, {**entry, "evaluated_length": 1 << 20}])
    check("the schema takes several entries", not list(problems(several, schema)))
    for what, changed in (
            ("an earlier version", {**several, "schema_version": "3.0.0"}),
            ("a list that is none", {**several, "entries": {}}),
            ("an empty list", {**several, "entries": []}),
            ("a member beside the list", {**several, "top_k": data["top_k"]}),
            ("an entry of another type", {**several, "entries": [{**entry, "top_k": "1"}]}),
            ("a list beside one entry", {**data, "entries": several["entries"]})):
        check(f"the schema refuses several entries with {what}", list(problems(changed, schema)))
    for name in own:
        cut = {key: value for key, value in entry.items() if key != name}
        check(f"the schema refuses an entry without {name}",
              list(problems({**several, "entries": [cut]}, schema)))
    # The plan of another method, in one entry or in several.
    method = {"unrounded": True, "applied_inv_freq": data["inv_freq"]}
    other = {**with_one, **method}
    in_entries = {**several, "entries": [{**entry, **method}]}
    for what, good in (("one entry", other), ("no adapter", {**other, "adapter_required": False}),
                       ("several entries", in_entries)):
        check(f"the schema takes another method, {what}", not list(problems(good, schema)))
    for what, changed in [(f"without {name}", {key: value for key, value in other.items() if key != name})
                          for name in METHOD | temperature] + [
            ("with moves", {**other, "moves": "frequencies"}),
            ("with unrounded 1", {**other, "unrounded": 1}),
            ("with a negative frequency", {**other, "applied_inv_freq": [-1]}),
            ("beside its entries", {**in_entries, **method})]:
        check(f"the schema refuses another method {what}", list(problems(changed, schema)))
    # The check can fail: each of these is caught.
    wrong = [("top_k", -1), ("scale_factor", [0.5]), ("rounding", "other"), ("model", {}),
             ("schema_version", "2.0.0"), ("key_pairs", [[[1, 1]]]), ("adapter_required", 1)]
    for name, value in wrong:
        check(f"the schema refuses {name} = {value}",
              list(problems({**data, name: value}, schema)))
    for name in ("group_edge", "scale_factor", "effective_length", "inv_freq"):
        same(f"table.json {name}", data[name], table[name][()])
    for name in ("local_window", "trained_length", "evaluated_length", "top_k",
                 "attention_scaling"):
        same(f"table.json {name}", data[name], table[name][()])
    mask = np.zeros(table["mask"].shape, dtype=np.uint8)
    for layer, heads in enumerate(data["key_pairs"]):
        for head, pairs in enumerate(heads):
            mask[layer, head, pairs] = 1
    same("table.json key_pairs", mask, table["mask"][()])
    hf = json.loads((folder / "config.json").read_text())
    block = hf.get("rope_parameters") or hf["rope_scaling"]
    check("config.json rope_type", block["rope_type"] == "dpe" and block["adapter_required"] is True)
    check("config.json holds the model's own", block["config"] == (ROOT / "data/reference/config.json").read_text())
    same("config.json key_pairs", [p for l in block["key_pairs"] for h in l for p in h],
         [p for l in data["key_pairs"] for h in l for p in h])


# ---------------------------------------------------------------- the other forms


def check_safetensors(folder, table):
    data = (folder / "table.safetensors").read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__")
    body = data[8 + n:]
    types = {"F64": "<f8", "I32": "<i4", "U8": "u1"}
    end = 0
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        check(f"table.safetensors {name} has no gap before it", begin == end)
        end = stop
        values = np.frombuffer(body[begin:stop], types[entry["dtype"]]).reshape(entry["shape"])
        same(f"table.safetensors {name}", values, table[name][()])
    check("table.safetensors ends with its last tensor", end == len(body))
    check("table.safetensors tensors", set(header) == {
        "mask", "inv_freq", "scale_factor", "effective_length", "group_edge"})
    check("table.safetensors metadata is strings", all(isinstance(v, str) for v in metadata.values()))
    check("table.safetensors adapter_required", metadata["adapter_required"] == "true")
    for name in ("local_window", "trained_length", "evaluated_length", "top_k"):
        check(f"table.safetensors {name}", int(metadata[name]) == table[name][()])


def check_csv(folder, table):
    with open(folder / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    mask, edges = table["mask"][()], table["group_edge"][()]
    check("table.csv has a row for each pair", len(rows) == mask.size)
    for row in rows:
        layer, head, pair = (int(row[name]) for name in ("layer", "head", "pair"))
        group = int(row["group"])
        good = (mask[layer, head, pair] == int(row["mask"]) and edges[group] <= pair < edges[group + 1]
                and float(row["scale_factor"]) == table["scale_factor"][group]
                and float(row["effective_length"]) == table["effective_length"][group]
                and float(row["inv_freq"]) == table["inv_freq"][pair])
        check(f"table.csv {row}", good)


def check_yaml(folder, table):
    try:
        import yaml
    except ImportError:
        print("not checked, python3-yaml is missing: table.yaml")
        return
    text = yaml.safe_load((folder / "table.yaml").read_text())
    check("table.yaml names the model", list(text) == ["reference"])
    block = text["reference"]
    check("table.yaml has the keys of the paper's code", set(block) == {
        "local_window_size", "scale_factors", "dimension_groups_range", "selected_dim_path"})
    same("table.yaml scale_factors", block["scale_factors"], table["scale_factor"][()])
    same("table.yaml dimension_groups_range", block["dimension_groups_range"],
         table["group_edge"][()])
    check("table.yaml local_window_size", block["local_window_size"] == table["local_window"][()])
    check("table.yaml points to the scores",
          block["selected_dim_path"] == "scores.pt")


def check_pt(folder, contribution):
    try:
        import torch
    except ImportError:
        print("not checked, python3-torch is missing: scores.pt")
        return
    scores = torch.load(folder / "scores.pt", map_location="cpu", **(
        {"weights_only": True} if "weights_only" in torch.load.__code__.co_varnames else {}))
    check("scores.pt is float32", scores.dtype == torch.float32)
    same("scores.pt", scores.numpy(), contribution)


def main():
    folder = pathlib.Path(sys.argv[1])
    with h5py.File(folder / "table.h5") as file, h5py.File(folder / "norms.h5") as norms:
        table = file["table"]
        mask = table["mask"][()]
        check("top-k of 32 pairs at 0.75", table["top_k"][()] == 24 and (mask.sum(axis=2) == 24).all())
        # The mask is the best pairs of the mean contribution, ties to the lower pair.
        mean = norms["norms/mean"][()]
        order = np.argsort(-mean, axis=2, kind="stable")
        want = np.zeros_like(mask)
        np.put_along_axis(want, order[:, :, :24], 1, axis=2)
        same("mask", mask, want)
        scores = norms["norms/contribution"][()]
        check("mean contribution", np.allclose(scores.astype(float).mean(axis=(0, 1)), mean, rtol=1e-6))
        check_json(folder, sys.argv[2], table)
        check_safetensors(folder, table)
        check_csv(folder, table)
        check_yaml(folder, table)
        check_pt(folder, scores)
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())

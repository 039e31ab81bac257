#!/usr/bin/env python3
"""table_fields.py PROGRAM ROOT [--write]: what says which fields a DPE table has says the same as outputs/table/fields.c.

PROGRAM is table_fields, ROOT the source tree. The field tables of outputs/SCHEMA.md, the whole of
outputs/table/dpe_table.schema.json and FIELDS of the adapter for transformers are made from the descriptions: --write
writes them."""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
import adapter_fields  # noqa: E402

COMPLETE = {"core": "complete", "keys": "exported", "temperature": "temperature",
            "method": "other method", "bands": "bands", "heads": "factors of heads", "selection": "selection",
            "evidence": "evidence"}
OWN = ("bands", "heads", "selection", "evidence")  # of an entry, whatever others of its table have
H5 = {"whole": "int64", "real": "float64", "edge": "int32", "flag": "uint8", "marks": "uint8", "text": "string"}


def rows(fields, folder, when):
    """The lines of SCHEMA.md for the fields of an entry in a folder."""
    lines = []
    for field in fields:
        path = f"{folder}{'@' if field['type'] == 'text' else '/'}{field['name']}"
        kind = "int64" if field["whole_in_h5"] else H5[field["type"]]
        there = when + (f" with {field['part']}" if field["part"] in OWN else "") if when else COMPLETE[field["part"]]
        lines.append(f"| `{path}` | {kind} | {field['axes']} | {field['units']} | {there} | {field['what']} |")
    return lines


def number(field):
    if field["type"] == "text":
        return {"type": "string", "pattern": "^[ -~]{1,200}$"}
    bounds = {"exclusiveMinimum" if field["above"] else "minimum": field["low"], "maximum": field["high"]}
    bounds = {name: int(value) for name, value in bounds.items()}
    kind = {"whole": "integer", "edge": "integer", "real": "number", "flag": "boolean"}[field["type"]]
    schema = {"type": kind, **({} if kind == "boolean" else bounds)}
    inside = field["low"] <= field["besides"] <= field["high"] and not (field["above"] and field["besides"] == field["low"])
    return schema if inside or kind == "boolean" else {"anyOf": [{"const": int(field["besides"])}, schema]}


def member(field):
    """(its name in JSON, what it is)"""
    if field["type"] == "marks":
        pairs = {"type": "array", "uniqueItems": True, "items": {"type": "integer", "minimum": 0}}
        heads = {"type": "array", "minItems": 1, "items": pairs}
        return "key_pairs", {"description": "[layer][head]: the pairs that move in far positions, ascending.",
                             "type": "array", "minItems": 1, "items": heads}
    described = {"description": field["what"]}
    if field["axes"]:
        return field["name"], {**described, "type": "array", "minItems": 1, "items": number(field)}
    return field["name"], {**described, **number(field)}


def model(fields):
    def value(field):
        if field["name"] == "fingerprint":
            return {"type": "string", "pattern": "^[0-9a-f]{64}$"}
        if field["text"]:
            return {"type": "string", "minLength": 1}
        return {"type": "integer", "minimum": 2, "multipleOf": 2} if field["name"] == "head_dim" else \
            {"type": "integer", "minimum": 1}
    return {"type": "object", "required": [field["name"] for field in fields],
            "properties": {field["name"]: {"description": field["what"], **value(field)} for field in fields}}


def json_schema(described):
    fields, major = described["fields"], described["schema"].partition(".")[0]
    names = {part: [member(field)[0] for field in fields if field["part"] == part] for part in COMPLETE}
    required = [member(field)[0] for field in fields if field["part"] == "evidence" and not field["fact"]]
    own = [member(field)[0] for field in fields]
    conventions = {one["name"]: {"enum": sorted({one["positions"], one["frequencies"]})} for one in described["conventions"]}

    def case(there, absent):
        return {"required": there, "properties": {name: False for name in absent}}

    def kind(what, moves):
        return {name: {"const": one[what]} for one in described["conventions"] for name in [one["name"]]} | \
            ({"adapter_required": {"const": False}, "local_window": {"const": 0}, "log_n_length": {"const": 0}, "entries": False,
              **{name: False for name in names["method"] + names["bands"] + names["heads"] + names["selection"]}} if moves else
             {"moves": False, "local_window": {"minimum": 1}})

    temperature, method = names["temperature"], names["method"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "DPE table, JSON form",
        "description": "What dpe-export --format json writes and dpe_table_open reads; made from outputs/table/fields.c. Beyond "
                       "this schema a reader checks: group_edge begins with 0, ends with head_dim / 2 and increases; "
                       "scale_factor and effective_length have one value for each group; inv_freq has head_dim / 2 values, "
                       "zeros only at its end; without key_pairs every pair is one, else it has n_layers lists of n_heads lists of top_k distinct pairs below "
                       "head_dim / 2. Of several entries: their evaluated_length differ and are above trained_length, which is "
                       "the same in all of them, as are group_edge and the pairs that rotate.",
        "type": "object",
        "required": ["schema_name", "schema_version", "adapter_required", "model"] + list(conventions),
        "properties": {
            "schema_name": {"const": "dpe-table"},
            "schema_version": {"description": "MAJOR.MINOR.PATCH. Another major is refused; a larger minor adds members "
                                              "that change no number that a model computes.",
                               "type": "string", "pattern": f"^{major}\\.[0-9]+\\.[0-9]+$"},
            "adapter_required": {"description": "A static inv_freq or rope_scaling cannot express DPE; it can express a table "
                                                "of frequencies, and one of another method whose scales are 1 and whose "
                                                "log_n_length is 0, where this is false.", "type": "boolean"},
            "moves": {"description": "The scales divide the frequencies of their groups at every distance. There is no near "
                                     "window, local_window is 0, and every pair of every head is a key pair.",
                      "const": "frequencies"},
            "model": model(described["model"]),
            **conventions,
            "entries": {"description": "One for each length; these members then are in no other place.", "type": "array",
                        "minItems": 1, "items": {"$ref": "#/$defs/entry"}},
        },
        "anyOf": [{"description": "Positions.", "properties": kind("positions", False)},
                  {"description": "Frequencies.", "required": ["moves"], "properties": kind("frequencies", True)}],
        "if": {"required": ["entries"]},
        "then": {"properties": {name: False for name in own}},
        "else": {"$ref": "#/$defs/entry"},
        "$defs": {"entry": {
            "type": "object",
            "required": names["core"],
            "dependentRequired": {name: names["keys"] for name in names["keys"]},
            "properties": dict(member(field) for field in fields),
            "anyOf": [case([], temperature + method + names["bands"]), case(temperature, method + names["bands"]),
                      case(method, temperature), case(temperature + method, [])],
            "if": {"required": names["evidence"][:1]},
            "then": {"required": required},
            "else": case([], names["evidence"]),
        }},
    }


def replaced(text, folder, lines):
    """SCHEMA.md with these lines in the place of those of the folder's fields; the first one says where."""
    names = {line.split("`")[1] for line in lines}
    old = text.split("\n")
    at = [i for i, line in enumerate(old) if line.startswith("| `") and line.split("`")[1] in names]
    if not at:
        raise SystemExit(f"FAILED: SCHEMA.md has no table of {folder}")
    kept = [line for i, line in enumerate(old) if i not in at[1:]]
    return "\n".join(kept[:at[0]] + lines + kept[at[0] + 1:])


def adapter(path, fields):
    """The adapter with FIELDS as they are; what is for people alone runtimes need not know."""
    def text(value):
        power = value.bit_length() - 1 if isinstance(value, int) else 0
        return f"{'-' if value < 0 else ''}2 ** {power}" if power > 10 and abs(value) == 2 ** power else repr(value)

    def exact(value):
        return int(value) if isinstance(value, float) and value == int(value) and abs(value) < 1e9 or abs(value) in (2.0 ** 40, 2.0 ** 50) else value
    lines = []
    for field in fields:
        numbers = (exact(field[name]) for name in ("low", "high", "above", "besides", "absent"))
        values = ", ".join([json.dumps(field[name]) for name in ("type", "part", "axes")] + [text(value) for value in numbers])
        lines += [] if field["fact"] else [f'    "{field["name"]}": ({values}),']
    source, own = path.read_text().split("\n"), adapter_fields.place(path)
    return "\n".join(source[:own.lineno] + lines + source[own.end_lineno - 1:])


def main():
    program, root = sys.argv[1], pathlib.Path(sys.argv[2])
    described = json.loads(subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout)
    fields = described["fields"]
    document = root / "outputs/SCHEMA.md"
    text = replaced(document.read_text(), "/table", rows(fields, "/table", None))
    text = replaced(text, "/table/*", rows(fields, "/table/*", "entries"))
    runtime = root / "outputs/transformers/dpe_attention.py"
    wanted = {document: text, root / "outputs/table/dpe_table.schema.json": json.dumps(json_schema(described), indent=2) + "\n",
              runtime: adapter(runtime, fields)}
    failed = False
    for path, content in wanted.items():
        if "--write" in sys.argv:
            path.write_text(content)
        elif path.read_text() != content:
            print(f"FAILED: {path} is not what outputs/table/fields.c says; table_fields.py PROGRAM ROOT --write writes it")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()

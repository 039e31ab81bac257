"""FIELDS of the adapter for transformers, read without importing it; the test table_fields holds them to outputs/table/fields.c."""
import ast
import pathlib

ADAPTER = pathlib.Path(__file__).resolve().parents[2] / "outputs/transformers/dpe_attention.py"


def place(path=ADAPTER):
    """Where they stand: the value of the assignment."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "FIELDS":
            return node.value
    raise SystemExit("FAILED: the adapter has no FIELDS")


def read(path=ADAPTER):
    return eval(compile(ast.Expression(place(path)), str(path), "eval"), {})


# What a table says of a temperature that changes nothing.
NO_TEMPERATURE = {name: absent for name, (_, part, *_, absent) in read().items() if part == "temperature"}

#!/usr/bin/env python3
"""score_layouts.py BIN: predictions in the folders in which they are published."""
import json
import os
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
GOOD = json.dumps({"prediction": "71432", "ground_truth": ["71432"]}) + "\n"
BAD = json.dumps({"prediction": "1", "ground_truth": ["71432"]}) + "\n"
failures = 0


def put(*parts, text=GOOD):
    path = os.path.join(*parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def expect(name, folder, code, out=(), err=(), options=()):
    global failures
    run = subprocess.run([os.path.join(BIN, "dpe-eval"), "score", "--suite", "infinitebench", "--predictions", folder,
                          *options], capture_output=True, text=True, check=False)
    words = [line.split() for line in run.stdout.splitlines()]
    if run.returncode != code or any(line.split() not in words for line in out) or \
            any(line not in run.stderr for line in err):
        failures += 1
        print(f"{name}: expected {code}, {out}, {err}; found {run.returncode}\n{run.stdout}\n{run.stderr}")


with tempfile.TemporaryDirectory() as work:
    root = os.path.join(work, "Predictions")
    for model, text in (("one", GOOD), ("two", BAD)):
        put(root, "passkey", model, "preds_passkey.jsonl", text=text)
        put(root, "kv_retrieval", model, "part-0.jsonl", text=text)
        put(root, "kv_retrieval", model, "part-1.jsonl", text=text)
    put(root, "passkey", "one", "preds_passkey_step_by_step.jsonl", text=BAD)
    put(root, "passkey", "one", "notes.txt", text="x")
    score = "{}  official {}  0  0  {:.2f}  {}".format
    good = [score("passkey", 1, 100, "1.0"), score("kv_retrieval", 2, 100, "1.0")]
    both = good + [score("passkey", 1, 0, "0.0"), score("kv_retrieval", 2, 0, "0.0"), "one", "two"]
    extra = ["preds_passkey_step_by_step.jsonl is left out"]
    expect("tasks of models", root, 0, both, extra)
    expect("a task", os.path.join(root, "passkey"), 0, both[::2][:2] + ["one", "two"], extra)
    ran = subprocess.run([os.path.join(BIN, "dpe-eval"), "score", "--suite", "infinitebench", "--predictions", root, "--json"],
                         capture_output=True, text=True, check=False).stdout
    document = json.loads(ran)
    want = [("one", "passkey", 1, 100.0), ("one", "kv_retrieval", 2, 100.0), ("two", "passkey", 1, 0.0),
            ("two", "kv_retrieval", 2, 0.0)]
    found = [(row["folder"], row["task"], row["samples"], row["official"] * 100) for row in document["tasks"]]
    overall = [(row["folder"], row["tasks"], row["score"]) for row in document["means"] if row["category"] == "overall"]
    if found != want or overall != [("one", 2, 100.0), ("two", 2, 0.0)] or document["suite"] != "infinitebench":
        failures += 1
        print("JSON:", found, overall, ran)
    flat = os.path.join(work, "flat")
    put(flat, "preds_passkey.jsonl")
    put(flat, "preds_passkey_step_by_step.jsonl", text=BAD)
    expect("a folder", flat, 0, good[:1], extra)
    expect("the extra file itself", os.path.join(flat, "preds_passkey_step_by_step.jsonl"), 0,
           [score("passkey", 1, 0, "0.0")])
    models = os.path.join(work, "models")
    put(models, "one", "passkey.jsonl")
    put(models, "two", "passkey.jsonl", text=BAD)
    expect("models", models, 0, ["one", "two", good[0]])
    linked = os.path.join(work, "linked")
    put(linked, "m1", "passkey.jsonl")
    os.symlink("m1", os.path.join(linked, "latest"))
    os.symlink("itself", os.path.join(linked, "itself"))
    put(linked, ".hidden", "other.jsonl")
    put(linked, "a", "b", "c", "d", "e", "other.jsonl")
    expect("links", linked, 0, ["latest", "m1", good[0]])
    expect("a slash at the end", linked + "/", 0, ["latest", "m1", good[0]])
    put(linked, "a", "b", "c", "d", "passkey.jsonl")
    expect("the deepest folder", linked, 0, ["latest", "m1", "a/b/c/d"])
    put(models, "two", "preds_passkey.jsonl")
    expect("two files", models, 65, err=["a second file for the task passkey"])
    strange = os.path.join(work, "strange")
    put(strange, "other.jsonl")
    expect("no task", strange, 65, err=["holds no task of infinitebench; give --task NAME"])
    expect("nothing is left", strange, 65, err=["expected .jsonl files of tasks, found none"], options=["--skip-bad"])
    put(strange, "passkey.jsonl", text="x\n")
    expect("no line is left", strange, 65, err=["expected predictions, found none"], options=["--skip-bad"])
    put(strange, "passkey.jsonl")
    expect("one is left", strange, 0, good[:1], ["other.jsonl"], options=["--skip-bad"])
sys.exit(1 if failures else 0)

#!/usr/bin/env python3
"""Compare our rendering of chat templates with Jinja's; prints what differs, exits 1 if any does.

    python3 tests/golden/template_diff.py [--probe build/tests/template_probe] FILE…

Run by hand with a Python that has jinja2 3.1. A FILE is a template (*.jinja) or a tokenizer_config.json that
holds one. Each is rendered for conversations of several shapes. A template that Jinja refuses we have
to refuse too; one that only we refuse is printed with our reason.
"""
import argparse
import itertools
import json
import subprocess
import sys
import tempfile

import template_oracle

USER = {"role": "user", "content": "What is the weather in \"Zürich\"?\n"}
BOT = {"role": "assistant", "content": " It is sunny. "}
SYSTEM = {"role": "system", "content": "You are terse."}
THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "id": "abcdefghi",
     "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 3, "exact": True}}}]}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "{\"sky\": \"clear\"}"}
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a place.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "a <town>"},
        "days": {"type": "integer", "default": 1},
        "unit": {"type": "string", "enum": ["C", "F"]}}}}}
PARTS = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]}

CONVERSATIONS = [[USER], [SYSTEM, USER], [USER, BOT, USER], [SYSTEM, USER, BOT, USER, BOT],
                 [USER, THOUGHT, USER], [PARTS], [SYSTEM, PARTS, BOT, PARTS],
                 [USER, CALL, RESULT], [USER, CALL, RESULT, BOT, USER], [USER, USER], [BOT], []]


def variables():
    for messages, prompt, tools in itertools.product(CONVERSATIONS, (True, False), (None, [TOOL])):
        yield {"messages": messages, "add_generation_prompt": prompt, "tools": tools, "documents": None,
               "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    yield {"messages": [USER], "add_generation_prompt": True, "enable_thinking": False, "date_string": "1 Jan 2024"}


def templates(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if not path.endswith(".json"):
        return [text]
    found = json.loads(text).get("chat_template") or []
    return [found] if isinstance(found, str) else [each["template"] for each in found]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", default="build/tests/template_probe")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    n = equal = refused = wrong = 0
    for path in args.files:
        for source in templates(path):
            reasons = set()
            for values in variables():
                expected, error = template_oracle.render(source, values)
                with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8", newline="") as f:
                    f.write(source)
                    f.flush()
                    run = subprocess.run([args.probe, f.name], input=json.dumps(values).encode(),
                                         capture_output=True, check=False)
                n += 1
                if run.returncode not in (0, 65):
                    wrong += 1
                    print(f"{path}: the probe ended with {run.returncode}: {run.stderr.decode()[-300:]}")
                elif run.returncode == 65 and expected is None:
                    equal += 1
                elif run.returncode == 65:
                    refused += 1
                    reasons.add(run.stderr.decode().split(": ", 1)[-1].strip())
                elif expected is None or run.stdout.decode() != expected:
                    wrong += 1
                    print(f"{path}: differs\n  Jinja: {expected if expected is not None else error!r}\n"
                          f"  ours:  {run.stdout.decode()!r}" if args.verbose or wrong < 5 else f"{path}: differs")
                else:
                    equal += 1
            for reason in sorted(reasons):
                print(f"{path}: only we refuse: {reason}")
    print(f"{n} renderings: {equal} equal, {refused} that only we refuse, {wrong} different")
    sys.exit(1 if wrong or refused else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks that every test that README.md names exists: a `file` and words in it."""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)


def main():
    wrong, rows = [], 0
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.startswith("| ") or line.startswith("| fault"):
                continue
            named = re.findall(r"`([-a-z_0-9/.]+)` ([A-Za-z_0-9 ]+)", line.rsplit("|", 2)[1])
            rows += 1
            if not named:
                wrong.append(f"line {number}: expected the name of a test")
            for path, words in named:
                full = os.path.join(TESTS, path)
                if not os.path.exists(full):
                    wrong.append(f"line {number}: {path} does not exist")
                    continue
                with open(full, encoding="utf-8") as test:
                    if words.strip() not in test.read():
                        wrong.append(f"line {number}: {path} does not contain {words.strip()}")
    print("\n".join(wrong) or f"{rows} faults, each with a test")
    return bool(wrong) or rows < 50


sys.exit(main())

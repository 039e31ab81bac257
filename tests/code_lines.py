"""code_lines.py ROOT [--lower]: how many lines of code each top-level folder has, against the numbers in tests/code_lines.txt; and
which lines of C and CUDA are longer than WIDE characters, as .clang-format has it. Golden numbers (*_golden.h) may be.

A line of code is one of C or CUDA that is not blank, not a comment alone, and not brackets alone. The numbers only fall: --lower
writes those that have. One is raised by hand, for a model family or a kernel, in a commit of its own that says why."""
import os
import re
import sys

FOLDERS = ("data", "detect", "engine", "eval", "norms", "outputs")
CODE = (".c", ".h", ".cu", ".cuh", ".cpp")
COUNTED = (".c", ".h", ".cu", ".cuh")
NOTHING = re.compile(r"[{}();,]*$|//|/?\*")
WIDE = 100


def sources(root, folder, endings):
    for where, below, files in os.walk(os.path.join(root, folder)):
        below.sort()
        for name in sorted(files):
            if name.endswith(endings):
                path = os.path.join(where, name)
                with open(path, encoding="utf-8") as file:
                    yield os.path.relpath(path, root), file.read().split("\n")


def count(root, folder):
    return sum(not NOTHING.match(line.strip()) for _, lines in sources(root, folder, COUNTED) for line in lines)


def long_lines(root):
    for folder in FOLDERS + ("tests",):
        for path, lines in sources(root, folder, CODE):
            for i, line in enumerate(lines, 1):
                if len(line) > WIDE and not path.endswith("_golden.h"):
                    print("%s:%d: %d characters, at most %d: clang-format -i, or shorten it by hand" % (path, i, len(line), WIDE))
                    yield path


def main():
    root = sys.argv[1]
    path = os.path.join(root, "tests", "code_lines.txt")
    with open(path, encoding="utf-8") as file:
        most = {folder: int(n) for n, folder in (line.split() for line in file)}
    now = {folder: count(root, folder) for folder in FOLDERS}
    if sys.argv[2:] == ["--lower"]:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines("%d %s\n" % (min(now[folder], most[folder]), folder) for folder in FOLDERS)
    grown = [folder for folder in FOLDERS if now[folder] > most[folder]]
    for folder in grown:
        print("%s: %d lines of code, and at most %d in tests/code_lines.txt" % (folder, now[folder], most[folder]))
    print("%d lines of code" % sum(now.values()))
    return 1 if grown or list(long_lines(root)) else 0


if __name__ == "__main__":
    sys.exit(main())

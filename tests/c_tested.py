"""c_tested.py BUILD [--files]: which share of the tools' lines the C tests run.

BUILD is a build of this tree for gcov, in which the C tests have run and nothing else:

    cmake -S . -B BUILD -DCMAKE_BUILD_TYPE=Debug -DDPE_TESTS=ON -DDPE_CUDA=OFF -DCMAKE_C_FLAGS="--coverage -O0"
    cmake --build BUILD && ctest --test-dir BUILD -L 'unit|numbers' && python3 tests/c_tested.py BUILD

A line counts as run where any object file of it says so. Prints each room, and with --files each file, lowest share first."""
import collections
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile

ROOMS = ("detect/calibrate", "detect/tool", "eval/compare", "eval/run", "eval/serve", "eval/tool",
         "norms", "outputs/job")


def read(build, root):
    """{file: {line: times}} of the sources below ROOMS."""
    lines = collections.defaultdict(collections.Counter)
    notes = glob.glob(os.path.join(os.path.abspath(build), "**", "*.gcno"), recursive=True)
    with tempfile.TemporaryDirectory() as folder:
        for i, note in enumerate(sorted(notes)):
            if not any("/" + room + "/" in note for room in ROOMS):
                continue
            there = os.path.join(folder, str(i))
            os.mkdir(there)
            subprocess.run(["gcov", "--json-format", note], cwd=there, check=True, capture_output=True)
            for path in glob.glob(os.path.join(there, "*.gz")):
                with gzip.open(path) as file:
                    for one in json.load(file)["files"]:
                        name = os.path.relpath(one["file"], root)
                        if name.startswith(ROOMS) and name.endswith(".c"):
                            for line in one["lines"]:
                                lines[name][line["line_number"]] += line["count"]
    return lines


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rooms = collections.defaultdict(lambda: [0, 0])
    for name, counts in read(sys.argv[1], root).items():
        ran = sum(1 for n in counts.values() if n > 0)
        for key in {next(room for room in ROOMS if name.startswith(room)), "all"} | ({name} if "--files" in sys.argv else set()):
            rooms[key][0] += ran
            rooms[key][1] += len(counts)
    for key, (ran, n) in sorted(rooms.items(), key=lambda row: (row[0] == "all", row[1][0] / row[1][1])):
        print("%5.1f %%  %5d of %5d  %s" % (100.0 * ran / n, ran, n, key))


main()

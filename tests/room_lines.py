"""room_lines.py ROOT [--update]: how many lines of source each room has, against the numbers in tests/room_lines.txt; and
which lines of C and CUDA are longer than WIDE characters, as .clang-format has it. Golden numbers (*_golden.h) may be.

A room may not grow beyond its number. Who needs more lines changes the number in the same commit, with --update, so that a review
sees what a change costs. A number that is far above what is there is lowered too: the test names those with more than SLACK lines
to spare. Rooms are the folders of tests/README.md ("Rooms"); files of a folder below count for that one."""
import os
import sys

FOLDERS = ("engine", "data", "outputs", "norms", "eval", "detect")
SOURCES = (".c", ".h", ".cu", ".cuh", ".py", ".css", ".html")
CODE = (".c", ".h", ".cu", ".cuh", ".cpp")
SLACK = 40
WIDE = 100


def count(root):
    rooms = {}
    for folder in FOLDERS:
        for where, below, files in os.walk(os.path.join(root, folder)):
            below[:] = sorted(name for name in below if name != "__pycache__" and not name.endswith(".egg-info"))
            n = 0
            for name in files:
                if name.endswith(SOURCES):
                    with open(os.path.join(where, name), "rb") as file:
                        n += file.read().count(b"\n")
            if n > 0:
                rooms[os.path.relpath(where, root)] = n
    return rooms


def long_lines(root):
    for folder in FOLDERS + ("tests",):
        for where, _, files in os.walk(os.path.join(root, folder)):
            for name in files:
                if name.endswith(CODE) and not name.endswith("_golden.h"):
                    with open(os.path.join(where, name), encoding="utf-8") as file:
                        for i, line in enumerate(file, 1):
                            if len(line.rstrip("\n")) > WIDE:
                                path = os.path.relpath(os.path.join(where, name), root)
                                print("%s:%d: %d characters, at most %d: clang-format -i, or shorten it by hand"
                                      % (path, i, len(line) - 1, WIDE))
                                yield path


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = (line.split() for line in file if line.strip() and not line.startswith("#"))
        return {room: int(most) for most, room in rows}


def write(path, rooms):
    with open(path, "w", encoding="utf-8") as file:
        file.write("# The most lines of source that a room may have: tests/room_lines.py. All rooms: %d.\n" % sum(rooms.values()))
        for room, n in sorted(rooms.items()):
            file.write("%6d %s\n" % (n, room))


def main():
    root = sys.argv[1]
    path = os.path.join(root, "tests", "room_lines.txt")
    rooms = count(root)
    if sys.argv[2:] == ["--update"]:
        write(path, rooms)
        return 0
    most = read(path)
    wrong = 0
    for room in sorted(set(rooms) | set(most)):
        n, limit = rooms.get(room, 0), most.get(room, 0)
        if n > limit or n + SLACK < limit:
            print("%s: %d lines, and %d in tests/room_lines.txt" % (room, n, limit))
            wrong += 1
    print("%d lines in %d rooms" % (sum(rooms.values()), len(rooms)))
    long = len(list(long_lines(root)))
    if wrong > 0:
        print("If that is meant: python3 tests/room_lines.py . --update, in the same commit")
    return 1 if wrong + long > 0 else 0


if __name__ == "__main__":
    sys.exit(main())

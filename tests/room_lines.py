"""room_lines.py ROOT [--update]: how many lines of source each room has, against the numbers in tests/room_lines.txt.

A room may not grow beyond its number. Who needs more lines changes the number in the same commit, with --update, so that a review
sees what a change costs. A number that is far above what is there is lowered too: the test names those with more than SLACK lines
to spare. Rooms are the folders of tests/README.md ("Rooms"); files of a folder below count for that one."""
import os
import sys

FOLDERS = ("engine", "data", "outputs", "norms", "eval", "detect")
SOURCES = (".c", ".h", ".cu", ".cuh", ".py", ".css", ".html")
SLACK = 40


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
    if wrong > 0:
        print("If that is meant: python3 tests/room_lines.py . --update, in the same commit")
    return 1 if wrong > 0 else 0


if __name__ == "__main__":
    sys.exit(main())

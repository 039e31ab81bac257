#!/usr/bin/env python3
"""hostile.py BIN [--seconds S | --runs N] [--seed S] [--classes A,B] [--jobs J] [--log FILE]
           [--limit S] [--work DIR] [--only I [--keep DIR]]
hostile.py --sum FILE...

Runs the tools in BIN (best a build with sanitizers: cmake --preset asan) on hostile inputs that are
made from a seed, and judges each run. Run I of a seed is the same run every time; --only I makes it
alone, and --keep leaves its files in DIR. One line a run goes to the log (default: standard output):

    VERDICT <tab> CLASS <tab> SEED:I <tab> COMMAND <tab> EXIT <tab> LAST LINE OF STDERR <tab> SECONDS

VERDICT is ok or what is wrong. Runs that the log has already are not made again, so several starts
with one log add up. --sum prints a table of the runs in logs. Exit status 1 when something was wrong.
Standard library only."""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hostile_inputs import CLASSES, SECRET, make_world  # noqa: E402

CODES = {0, 64, 65, 66, 69, 70, 71, 73, 74, 75, 77, 78}  # of README.md, "What you may rely on"
MOST_MEMORY = 700 << 20  # of a tool in this world of small inputs; HDF5's limits leave the rest
SANITIZER = re.compile(rb"AddressSanitizer|LeakSanitizer|runtime error:|UndefinedBehavior|hard rss limit")


def around(draw, kind, world):
    """(environment, function that the child runs first)."""
    env = {"PATH": os.environ.get("PATH", ""), "HOME": world, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1",
           "ASAN_OPTIONS": "exitcode=99:allocator_may_return_null=1:hard_rss_limit_mb=4000:handle_segv=0:"
                           "detect_stack_use_after_return=0:quarantine_size_mb=16",
           "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1", "OPENBLAS_NUM_THREADS": "1",
           "OMP_WAIT_POLICY": "passive"}  # without it a tool starts itself once more
    limits, closed, gone, mask = [], [], False, None
    if kind == "environment":
        if draw.random() < 0.5:
            del env["OMP_WAIT_POLICY"]
        for key in draw.sample(["LC_ALL", "TERM", "COLUMNS", "TMPDIR", "HOME", "PATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "NO_COLOR",
                                "POSIXLY_CORRECT", "TZ", "GOMP_SPINCOUNT", "LANG", "HDF5_PLUGIN_PATH", "HDF5_USE_FILE_LOCKING"],
                               draw.choice([1, 2, 4])):
            env[key] = draw.choice(["", "x", "-1", "0", "1", "99999", "/nowhere", "dumb", "de_DE.UTF-8", "\x1b[2J", "y" * 9000, "UTC", "FALSE"])
            if key == "OMP_NUM_THREADS" and env[key] == "99999":
                env[key] = "2"
        if draw.random() < 0.5:
            sanitized = ARGS.sanitized
            limits = [draw.choice([(resource.RLIMIT_NOFILE, draw.choice([4, 6, 8, 10, 16])), (resource.RLIMIT_FSIZE, draw.choice([0, 1, 512, 20000])),
                                   (resource.RLIMIT_CORE, 0),
                                   (resource.RLIMIT_STACK, draw.choice([1 << 20, 8 << 20]) if sanitized else draw.choice([64 << 10, 256 << 10])),
                                   (resource.RLIMIT_CORE, 0) if sanitized else (resource.RLIMIT_AS, draw.choice([64, 200, 1000]) << 20)])]
        if draw.random() < 0.2:
            closed = draw.choice([[0], [1], [2], [0, 1, 2]])
        gone = draw.random() < 0.1
        mask = draw.choice([None, 0o777, 0])

    def prepare():
        if gone:
            empty = tempfile.mkdtemp()
            os.chdir(empty)
            os.rmdir(empty)
        if mask is not None:
            os.umask(mask)
        for what, most in limits:
            resource.setrlimit(what, (most, most))
        for fd in closed:
            os.close(fd)
    return env, prepare if kind == "environment" else None, bool(limits or closed)


# ------------------------------------------------------------------------------------------- judging

def snapshot(world):
    """What every input is; world/out is not one. No program can set the time of a file's last change."""
    seen = {}
    for at, folders, names in os.walk(os.fsencode(world)):
        if at == os.fsencode(world) and b"out" in folders:
            folders.remove(b"out")
        for name in names + folders:
            path = os.path.join(at, name)
            info = os.lstat(path)
            seen[path] = info.st_mode if stat.S_ISDIR(info.st_mode) else (info.st_mode, info.st_ino, info.st_size, info.st_ctime_ns)
    return seen


def broken_output(path):
    """What is wrong with a file that a tool left as its output, or None."""
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    with open(path, "rb") as file:
        data = file.read()
    name = os.path.basename(path)
    if ".tmp" in name:
        return f"{name} was not removed"
    if data.startswith(b"<!DOCTYPE"):  # a page may have any name
        return None if data.rstrip().endswith(b"</html>") else f"{name} is cut"
    if name.endswith(".h5"):
        if data[:8] != b"\x89HDF\r\n\x1a\n":
            return f"{name} is not an HDF5 file"
        # The checksum is the last that a tool writes.
        length = struct.unpack("<Q", data[-16:-8])[0] if data[-24:-16] == b"DPE-CRC\n" else -1
        return None if length == len(data) - 24 else f"{name} has no checksum at its end"
    try:
        if name.endswith(".json"):
            json.loads(data)
        elif name.endswith(".jsonl"):
            for line in data.splitlines():
                json.loads(line)
        elif name.endswith(".safetensors"):
            size = struct.unpack("<Q", data[:8])[0]
            ends = [v["data_offsets"][1] for k, v in json.loads(data[8:8 + size]).items() if k != "__metadata__"]
            if 8 + size + max(ends, default=0) != len(data):
                return f"{name} is cut"
        elif name.endswith(".html"):
            return f"{name} is not an HTML page"
        elif name.endswith((".csv", ".yaml")) and not data.endswith(b"\n"):
            return f"{name} is cut"
    except (ValueError, KeyError, struct.error) as error:
        return f"{name} is half-written: {error}"
    return None


def judge(ran, before, world, started_with, limited):
    code, out, err, memory = ran
    if SANITIZER.search(err) or SANITIZER.search(out):
        return "SANITIZER"
    if code is None:
        return "HANG"
    if code < 0 or code >= 128:
        # A limit that the loader reaches before main is not a fault of the tool.
        return "ok" if limited and b"error while loading shared libraries" in err else "SIGNAL"
    if code == 127 and limited:
        return "ok"
    if code not in CODES:
        return "CODE"
    if code == 70 and b"finite" not in err and b"NaN or infinity" not in err:
        return "INTERNAL"
    if code != 0 and not err.strip() and not limited:
        return "SILENT"
    if re.search(rb"[\0-\x08\x0b-\x1f\x7f]", err):
        return "ESCAPE"
    if snapshot(world) != before:
        return "INPUT CHANGED"
    if SECRET in out + err:
        return "SECRET"
    if memory > MOST_MEMORY and not ARGS.sanitized:
        return f"MEMORY {memory >> 20} MiB"
    for at, folders, names in os.walk(world + "/out"):
        folders[:] = [name for name in folders if not name.endswith(".journal")]
        for name in names:
            path = os.path.join(at, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    if SECRET in file.read():
                        return f"SECRET in {name}"
            wrong = broken_output(path) if started_with.get(path) is None else None
            if wrong is not None and not (limited and "not removed" not in wrong and code != 0):
                return f"OUTPUT {wrong}"
    return "ok"


def processor_seconds(pid):
    """What the process group `pid` has used."""
    used = 0
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            used += sum(map(int, fields[11:15])) if int(fields[2]) == pid else 0
        except (OSError, IndexError):
            continue
    return used / os.sysconf("SC_CLK_TCK")


def execute(command, env, prepare, limit):
    """(exit code, stdout, stderr, most bytes of memory); no exit code: it was killed after `limit` seconds."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([os.path.join(ARGS.bin, command[0]), *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 env=env, preexec_fn=prepare, start_new_session=True, cwd="/")
        begin, before, killed, used = time.monotonic(), 0.0, False, None
        while used is None:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            used = used if pid else None
            if used is None and not killed and time.monotonic() - begin > limit:
                # On a busy machine a run may only have been given little of a processor.
                spent = processor_seconds(child.pid)
                begin = time.monotonic()
                killed = spent >= limit or spent <= before + 0.05
                before = spent
                if killed:
                    os.killpg(child.pid, signal.SIGKILL)
            time.sleep(0.0 if used else 0.005)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return None if killed else child.returncode, out.read(), err.read(), used.ru_maxrss * 1024


def shown(word):
    text = word.decode("utf-8", "backslashreplace") if isinstance(word, bytes) else word
    text = text if len(text) < 200 else f"{text[:60]}[{len(text)} bytes]{text[-20:]}"
    return text.encode("unicode_escape", "backslashreplace").decode()


def begin_run(index):
    """(its random numbers, its class) of a run"""
    draw = random.Random(f"{ARGS.seed}:{index}")
    return draw, draw.choice(list(CLASSES))


def one(index, good):
    """Run `index` of the seed; its line of the log."""
    draw, kind = begin_run(index)
    work = ARGS.keep if ARGS.keep else tempfile.mkdtemp(prefix="run-", dir=os.path.dirname(good))
    world = work + "/w"
    try:
        shutil.copytree(good, world, symlinks=True)
        os.makedirs(world + "/out")
        command = CLASSES[kind](draw, world)
        command = [word if isinstance(word, bytes) else word.replace("\0", "").encode("utf-8", "replace") for word in command]
        command = [os.fsdecode(command[0])] + command[1:]
        env, prepare, limited = around(draw, kind, world)
        before = snapshot(world)
        started_with = {os.path.join(at, name): True for at, _, names in os.walk(world + "/out") for name in names}
        begin = time.monotonic()
        ran = execute(command, env, prepare, ARGS.limit)
        took = time.monotonic() - begin
        verdict = judge(ran, before, world, started_with, limited)
        last = ran[2].decode("utf-8", "backslashreplace").strip().splitlines()
        if verdict == "SANITIZER":
            last = [line for line in last if SANITIZER.search(line.encode())]
            last = last[:1]
        words = " ".join(shown(word) for word in command).replace(world, "W")
        line = "\t".join([verdict, kind, f"{ARGS.seed}:{index}", words, str(ran[0]), shown(last[-1].replace(world, "W") if last else ""), f"{took:.2f}"])
        return line
    finally:
        if not ARGS.keep:
            shutil.rmtree(work, ignore_errors=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", nargs="?")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--classes", help="default: all; with --jobs, all but pointing and bomb")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a run hangs")
    parser.add_argument("--work", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None,
                        help="folder of its files, best in memory (default: /dev/shm)")
    parser.add_argument("--log")
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep")
    parser.add_argument("--sum", nargs="+", metavar="FILE")
    args = parser.parse_args()
    if args.sum:
        return args
    if args.bin is None:
        parser.error("BIN is missing")
    args.bin = os.path.abspath(args.bin)
    alone = [name for name in ("pointing", "bomb") if args.jobs > 1]  # h5py's lock and a fork of another thread wait for each other
    args.classes = args.classes.split(",") if args.classes else [name for name in CLASSES if name not in alone]
    if any(name in alone for name in args.classes):
        parser.error(f"--classes {','.join(alone)}: one job alone makes these; start several with different seeds")
    if any(name not in CLASSES for name in args.classes):
        parser.error(f"--classes: there are {', '.join(CLASSES)}")
    if args.seconds is None and args.runs is None and args.only is None:
        args.seconds = 60.0
    with open(args.bin + "/dpe-run", "rb") as file:
        args.sanitized = b"__asan_init" in file.read()
    return args


def logged(path):
    """The runs in a log, as lists of fields."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 7:  # not a line that a kill cut off
                yield fields


def summarise(rows):
    """Prints a table of runs; whether one was wrong."""
    codes, wrong = collections.defaultdict(collections.Counter), collections.Counter()
    for fields in rows:
        codes[fields[1]][fields[4]] += 1
        wrong[fields[1]] += fields[0] != "ok"
    print("| class | runs | wrong | exit code: runs |\n|---|---|---|---|")
    total = sum(codes.values(), collections.Counter())
    for kind, ended in [*sorted(codes.items()), ("all", total)]:
        bad = wrong[kind] if kind != "all" else sum(wrong.values())
        ends = ", ".join(f"{code}: {n}" for code, n in sorted(ended.items()))
        print(f"| {kind} | {sum(ended.values())} | {bad} | {ends} |")
    return any(wrong.values())


def numbers():
    """The runs to make."""
    if ARGS.only is not None:
        yield ARGS.only
        return
    known = {row[2] for row in logged(ARGS.log)} if ARGS.log and os.path.exists(ARGS.log) else set()
    index, made = 0, 0
    while ARGS.runs is None or made < ARGS.runs:
        if f"{ARGS.seed}:{index}" not in known and begin_run(index)[1] in ARGS.classes:
            made += 1
            yield index
        index += 1


def main():
    if ARGS.sum:
        return summarise(row for path in ARGS.sum for row in logged(path))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    base = tempfile.mkdtemp(prefix="hostile-", dir=ARGS.work)
    stop, lock, rows = threading.Event(), threading.Lock(), []
    runs = numbers()
    log = open(ARGS.log, "a", encoding="utf-8") if ARGS.log else sys.stdout
    end = time.monotonic() + ARGS.seconds if ARGS.seconds else float("inf")

    def work():
        while not stop.is_set() and time.monotonic() < end:
            with lock:
                index = next(runs, None)
            if index is None:
                return
            line = one(index, base + "/w")
            with lock:
                rows.append(line.split("\t"))
                print(line, file=log, flush=True)
                if rows[-1][0] != "ok" and log is not sys.stdout:
                    print(line, flush=True)
    try:
        make_world(ARGS.bin, base + "/w")
        with concurrent.futures.ThreadPoolExecutor(ARGS.jobs) as pool:
            try:
                for done in [pool.submit(work) for _ in range(ARGS.jobs)]:
                    done.result()
            finally:
                stop.set()
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return summarise(rows)


ARGS = parse()
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(main())

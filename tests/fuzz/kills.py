#!/usr/bin/env python3
"""kills.py BIN [--kills N] [--seed S] [--jobs J] [--log FILE] [--work DIR] [--only A,B]
kills.py --sum FILE...

Stops detect, norms, eval, calibrate (one length, two, the bundled model) and two ranks of detect (where mpirun is) N times in all at moments
drawn from the seed, with KILL, TERM, INT and USR1, and runs the same command again until it is
complete; then its tables have to equal those of an undisturbed run outside /run, and no journal may
be left. This goes on with new outputs until the kills are spent. One line for each stopped command
and each compared output goes to the log (default: standard output):

    VERDICT <tab> TOOL <tab> SEED:ROUND <tab> SIGNAL, or "tables" <tab> EXIT, or what h5diff says

Rounds that the log has already are not made again, so several starts with one log add up. --sum prints a
table of logs. Exit status 1 when a table differs, an exit code is not one of those below, or a run is
never complete. Linux, the standard library, h5diff, and the tools in BIN."""

import argparse
import collections
import ctypes
import glob
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import world as world_py  # noqa: E402

SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
WAIT = 900.0  # seconds for one command
MOST = 20     # kills of one output
PR_SET_CHILD_SUBREAPER = 36


def commands(work):
    data = ["-m", work + "/model", "--corpus", work + "/corpus"]
    one = [*data, "--threads", "1"]
    sweep = ["dpe-detect", *one, "-l", "192", "--groups", "2", "--lengths", "8,32,64", "--seed", "5",
             "--select", "paper", "--temperature", "off"]
    found = {
        "detect": [*sweep, "--samples", "20", "--task", "both"],
        "norms": ["dpe-norms", *one, "--lengths", "16,32,64", "--samples", "40", "--seed", "5"],
        "eval": ["dpe-eval", "niah", *one, "-l", "128", "--method", "rope", "--method", "pi", "--method", "self-extend",
                 "--samples", "30", "--seed", "5"],
        "calibrate": ["dpe-calibrate", *one, "-l", "192", "--groups", "2", "--lengths", "8,64", "--seed", "5", "--samples", "4",
                      "--top-k", "4"],
        "calibrate lengths": ["dpe-calibrate", *one, "-l", "128,192", "--groups", "2", "--lengths", "8,64", "--seed", "6",
                              "--samples", "4"],
        "calibrate bundled": ["dpe-calibrate", "-m", world_py.ROOT + "/data/reference", "--corpus", world_py.ROOT + "/data/sample",
                              "--threads", "1", "-l", "300", "--budget", "30ktok", "--seed", "7", "--samples", "4",
                              ],
    }
    if shutil.which("mpirun"):
        found["two ranks"] = ["mpirun", "-n", "2", "--oversubscribe", *sweep, "--samples", "30"]
    return found


def children(pid):
    """Processes whose parent is `pid`."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path, encoding="utf-8") as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def descendants(pid):
    found = children(pid)
    for child in found:  # grows
        found += children(child)
    return found


def names(pids):
    """The names of processes."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                found.append(file.read().strip())
        except OSError:
            continue
    return found


class Workload:
    def __init__(self, name, words, bin_folder, work):
        at = next(i for i, word in enumerate(words) if word.startswith("dpe-"))
        self.name, self.work = name, work
        self.words = words[:at] + [os.path.join(bin_folder, words[at])] + words[at + 1:]
        self.is_folder = name.startswith("calibrate")
        self.env = {"PATH": os.environ["PATH"], "HOME": work, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1",
                    "TMPDIR": work, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_btl_vader_backing_directory": work}  # killed ranks leave their shared memory
        self.calm = self.output("calm")
        begin = time.monotonic()
        code, stderr = self.finish(self.start(self.calm), self.calm)
        self.took = time.monotonic() - begin
        if code != 0:
            sys.exit(f"{name}, undisturbed: exit {code}: {stderr.decode(errors='replace')}")

    def output(self, which):
        return f"{self.work}/{self.name.replace(' ', '-')}-{which}" + ("" if self.is_folder else ".h5")

    def start(self, out):
        with open(out + ".log", "wb") as log:
            return subprocess.Popen([*self.words, "-o", out], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                    env=self.env, start_new_session=True)

    @staticmethod
    def finish(child, out):
        """(exit code, stderr) once nothing of the command runs: what is left would refuse the next one."""
        code, end, alone = None, time.monotonic() + WAIT, 0
        while code is None:
            try:
                code = child.wait(timeout=10.0)
            except subprocess.TimeoutExpired:
                # Open MPI's mpirun sometimes stays when all its ranks are gone: "mpirun hangs" is not our fault.
                alone = alone + 1 if not any(name.startswith("dpe-") for name in names([child.pid, *descendants(child.pid)])) else 0
                code = "mpirun hangs" if alone >= 3 else "hangs" if time.monotonic() > end else None
        # Ranks whose mpirun was killed, and parts of a batch, are now our children; they end by themselves or are ended.
        end = time.monotonic() + (60.0 if isinstance(code, int) else 0.0)
        while descendants(os.getpid()):
            if time.monotonic() > end:
                for pid in descendants(os.getpid()):
                    os.kill(pid, signal.SIGKILL)
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.01)
            except ChildProcessError:
                break
        with open(out + ".log", "rb") as file:
            return code, file.read()

    def stop(self, draw, child, number):
        """Whether the signal was sent."""
        time.sleep(draw.random() * max(0.1, 0.6 * self.took))
        if child.poll() is not None:
            return False
        # A batch's part or a rank is hit as often as what started it.
        below = descendants(child.pid)
        target = draw.choice(below) if below and draw.random() < 0.5 else child.pid
        try:
            os.kill(target, number)
        except ProcessLookupError:
            return False
        return True

    def allowed(self, number, code, stderr):
        """Codes that a stopped command may end with. Before the tool listens, a signal's own death."""
        if code == 0 or code == 75 or code in (-number, 128 + number):
            return True
        # mpirun and the batch report the death of a process below them in their own words.
        if self.name == "two ranks":
            return code in (1, 130, 137, 143, 138, -9, "mpirun hangs")
        return self.is_folder and code in (70, 71, 75) and bool(stderr)

    def round(self, draw):
        """One output from its beginning to its end: (verdict, what, exit) of each stop, then of its tables."""
        out, kills = self.output("round"), 0
        for _ in range(400):
            child = self.start(out)
            number = draw.choice(SIGNALS)
            hit = kills < MOST and self.stop(draw, child, number)
            code, stderr = self.finish(child, out)
            words = ascii(stderr[-300:].decode(errors="replace"))
            if hit:
                kills += 1
                yield ("ok" if self.allowed(number, code, stderr) else f"WRONG {words}"), signal.Signals(number).name, code
            elif code != 0:
                yield f"WRONG {words}", "none", code
                break
            if code == 0:
                yield from self.compare(out)
                break
        else:
            yield "WRONG never complete", "none", code
        for path in glob.glob(out + "*"):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

    def compare(self, out):
        """Tables outside /run, and the other forms of one bit for bit; the page tells of this run."""
        names = [os.path.relpath(path, self.calm) for path in sorted(glob.glob(self.calm + "/**", recursive=True))
                 if os.path.isfile(path)] if self.is_folder else [""]
        for name in names:
            one, other = (os.path.join(folder, name).rstrip("/") for folder in (self.calm, out))
            words = ["h5diff", "--exclude-path=/run", one, other] if one.endswith(".h5") else ["cmp", one, other]
            if name in ("report.html", "forms.sha256"):
                words = ["test", "-s", other]
            ran = subprocess.run(words, capture_output=True, check=False)
            said = ascii((ran.stdout + ran.stderr)[:300].decode(errors="replace"))
            if ran.returncode != 0 or one.endswith(".h5"):
                yield ("ok", "tables", "equal") if ran.returncode == 0 else (f"WRONG {name} {said}", "tables", "differ")
        left = [path for path in glob.glob(out + "*") + glob.glob(out + "*/**", recursive=True)
                if path.endswith(".journal") or "tmp" in os.path.basename(path)]
        if left:
            yield f"WRONG not removed: {' '.join(left)}", "tables", "equal"


def logged(path):
    """The lines of a log, as lists of fields."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 5:  # not a line that a kill cut off
                yield fields


def summarise(rows):
    """Prints a table of outcomes; whether one was wrong."""
    ended, wrong = collections.defaultdict(lambda: collections.defaultdict(collections.Counter)), 0
    for verdict, tool, number, what, code in rows:
        ended[tool][what][code] += 1
        if verdict != "ok":
            wrong += 1
            print(f"{verdict}: {tool} {number} {what} {code}")
    print("| tool | kills | final tables | how stopped commands ended: signal, exit code: commands |\n|---|---|---|---|")
    for tool, by_signal in ended.items():
        shown = {what: ", ".join(f"{code}: {n}" for code, n in sorted(codes.items())) for what, codes in sorted(by_signal.items())}
        kills = sum(sum(codes.values()) for what, codes in by_signal.items() if what.startswith("SIG"))
        cells = "; ".join(f"{what} {codes}" for what, codes in shown.items() if what != "tables")
        print(f"| {tool} | {kills} | {shown.get('tables', '')} | {cells} |")
    return wrong > 0


def work_on(args, job, spent, rounds, known, lock):
    """One process of --jobs: rounds until the kills are spent."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    work = tempfile.mkdtemp(prefix=f"job{job}-", dir=args.work)
    world_py.make(work)
    loads = [Workload(name, words, args.bin, work) for name, words in commands(work).items() if name in args.only]
    while spent.value < args.kills:
        with lock:
            number, rounds.value = rounds.value, rounds.value + 1
        if f"{args.seed}:{number}" in known:
            continue
        load = loads[number % len(loads)]
        lines = []
        for verdict, what, code in load.round(random.Random(f"{args.seed}:{number}")):
            lines.append(f"{verdict}\t{load.name}\t{args.seed}:{number}\t{what}\t{code}\n")
            spent.value += what.startswith("SIG")
        with lock, (open(args.log, "a", encoding="utf-8") if args.log else os.fdopen(os.dup(1), "w")) as log:
            log.write("".join(lines))
    os._exit(0)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", nargs="?")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log")
    parser.add_argument("--work", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None,
                        help="folder of its files, best in memory (default: /dev/shm)")
    parser.add_argument("--only", default=",".join(commands("")))
    parser.add_argument("--sum", nargs="+", metavar="FILE")
    args = parser.parse_args()
    args.only = args.only.split(",")
    for name in args.only:
        if name not in commands(""):
            parser.error(f"unknown workload '{name}'; workloads: {', '.join(commands(''))}")
    if args.bin is None and args.sum is None:
        parser.error("BIN is missing")
    return args


def main():
    args = parse()
    if args.sum:
        return summarise(row for path in args.sum for row in logged(path))
    args.bin = os.path.abspath(args.bin)
    args.work = tempfile.mkdtemp(prefix="kills-", dir=args.work)
    written = list(logged(args.log)) if args.log and os.path.exists(args.log) else []
    spent, rounds, lock = multiprocessing.Value("q", 0), multiprocessing.Value("q", 0), multiprocessing.Lock()
    jobs = [multiprocessing.Process(target=work_on, args=(args, job, spent, rounds, {row[2] for row in written}, lock))
            for job in range(args.jobs)]
    try:
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
    finally:
        for job in jobs:
            job.kill()
        shutil.rmtree(args.work, ignore_errors=True)
    wrong = summarise(logged(args.log)) if args.log else False
    return 1 if wrong or any(job.exitcode != 0 for job in jobs) else 0


signal.signal(signal.SIGTERM, signal.default_int_handler)
# A shell's background job ignores INT, and its children would.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())

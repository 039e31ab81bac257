#!/usr/bin/env python3
"""kills.py BIN [--kills N] [--seed S] [--work DIR] [--only A,B]

Stops detect, norms, eval, calibrate and two ranks of detect (where mpirun is) N times in all at moments
drawn from the seed, with KILL, TERM, INT and USR1, and runs the same command again until it is
complete; then its tables have to equal those of an undisturbed run outside /run, and no journal may
be left. This goes on with new outputs until the kills are spent. Prints a table of outcomes. Exit
status 1 when a table differs, an exit code is not one of those below, or a run is never complete.
Standard library, h5diff, and the tools in BIN."""

import argparse
import collections
import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
WAIT = 900.0  # seconds for one command


def commands(work):
    data = ["-m", work + "/model", "--corpus", work + "/corpus"]
    one = [*data, "--threads", "1"]
    sweep = ["dpe-detect", *one, "-l", "192", "--groups", "2", "--lengths", "8,32,64", "--seed", "5",
             "--select", "paper", "--temperature", "off"]
    found = {
        "detect": [*sweep, "--samples", "30", "--task", "both"],
        "norms": ["dpe-norms", *one, "--lengths", "16,32,64", "--samples", "40", "--seed", "5"],
        "eval": ["dpe-eval", "niah", *one, "-l", "128", "--method", "rope", "--method", "pi", "--method", "self-extend",
                 "--samples", "40", "--seed", "5"],
        "calibrate": ["dpe-calibrate", *one, "-l", "192", "--groups", "2", "--lengths", "8,32,64", "--seed", "5", "--samples", "8",
                      "--norm-samples", "4", "--top-k", "4"],
    }
    if shutil.which("mpirun"):
        found["two ranks"] = ["mpirun", "-n", "2", "--oversubscribe", *sweep, "--samples", "60"]
    return found


def descendants(pid):
    """Processes below `pid`, youngest generation last."""
    below = collections.defaultdict(list)
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat, encoding="utf-8", errors="replace") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            below[int(fields[1])].append(int(stat.split("/")[2]))
        except (OSError, IndexError):
            continue
    found, next_ones = [], [pid]
    while next_ones:
        next_ones = [child for parent in next_ones for child in below[parent]]
        found += next_ones
    return found


class Workload:
    def __init__(self, name, words, args, work):
        at = next(i for i, word in enumerate(words) if word.startswith("dpe-"))
        self.name, self.work = name, work
        self.words = words[:at] + [os.path.join(args.bin, words[at])] + words[at + 1:]
        self.is_folder = name == "calibrate"
        self.env = {"PATH": os.environ["PATH"], "HOME": work, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1",
                    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.calm = self.output("calm")
        begin = time.monotonic()
        code, stderr = self.finish(self.start(self.calm))
        self.took = time.monotonic() - begin
        if code != 0:
            sys.exit(f"{name}, undisturbed: exit {code}: {stderr.decode(errors='replace')}")
        self.outcomes = collections.Counter()
        self.kills = self.rounds = 0
        self.wrong = []

    def output(self, which):
        return f"{self.work}/{self.name.replace(' ', '-')}-{which}" + ("" if self.is_folder else ".h5")

    def start(self, out):
        log = open(out + ".log", "wb")
        return subprocess.Popen([*self.words, "-o", out], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                env=self.env, start_new_session=True), out

    def finish(self, started):
        child, out = started
        try:
            code = child.wait(timeout=WAIT)
        except subprocess.TimeoutExpired:
            for pid in [*descendants(child.pid), child.pid]:
                os.kill(pid, signal.SIGKILL)
            child.wait()
            code = "hangs"
        # Ranks whose mpirun was killed, and parts of a batch, end by themselves or are ended.
        self.settle(out)
        with open(out + ".log", "rb") as file:
            return code, file.read()

    def settle(self, out):
        """No process of this output is left: a second one would be refused."""
        end = time.monotonic() + 30.0
        while True:
            left = []
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    with open(path, "rb") as file:
                        if os.fsencode(out) in file.read():
                            left.append(int(path.split("/")[2]))
                except OSError:
                    continue
            if not left:
                return
            for pid in left if time.monotonic() > end else []:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)

    def stop(self, draw, started, number):
        child, _ = started
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
            return code in (1, 130, 137, 143, 138, -9)
        return self.is_folder and code in (70, 71, 75) and bool(stderr)

    def round(self, draw, most):
        """One output from its beginning to its end; how many kills it took."""
        out, kills = self.output(f"round{self.rounds}"), 0
        self.rounds += 1
        for _ in range(400):
            started = self.start(out)
            number = draw.choice(SIGNALS)
            hit = kills < most and self.stop(draw, started, number)
            code, stderr = self.finish(started)
            if hit:
                kills += 1
                self.outcomes[signal.Signals(number).name, str(code)] += 1
                if not self.allowed(number, code, stderr):
                    self.wrong.append(f"{signal.Signals(number).name}: exit {code}: {stderr[-300:].decode(errors='replace')}")
            elif code != 0:
                self.wrong.append(f"undisturbed: exit {code}: {stderr[-300:].decode(errors='replace')}")
                break
            if code == 0:
                self.compare(out)
                break
        else:
            self.wrong.append("never complete")
        self.kills += kills
        for path in glob.glob(out + "*"):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        return kills

    def compare(self, out):
        tables = sorted(os.path.basename(path) for path in glob.glob(self.calm + "/*.h5")) if self.is_folder else [""]
        for table in tables:
            ran = subprocess.run(["h5diff", "--exclude-path=/run", os.path.join(self.calm, table).rstrip("/"),
                                  os.path.join(out, table).rstrip("/")], capture_output=True, check=False)
            self.outcomes["tables", "equal" if ran.returncode == 0 else "DIFFER"] += 1
            if ran.returncode != 0:
                self.wrong.append(f"{table or out} differs: {(ran.stdout + ran.stderr)[:300].decode(errors='replace')}")
        left = glob.glob(out + ".journal") + glob.glob(out + "/*.journal") + glob.glob(out + "*tmp*") + glob.glob(out + "/*tmp*")
        if left:
            self.wrong.append(f"not removed: {', '.join(left)}")

    def report(self):
        parts = collections.defaultdict(list)
        for (what, code), n in sorted(self.outcomes.items()):
            parts[what].append(f"{code}: {n}")
        cells = "; ".join(f"{what} {', '.join(codes)}" for what, codes in sorted(parts.items()) if what != "tables")
        print(f"| {self.name} | {self.kills} | {self.rounds} | {cells} | {', '.join(parts['tables'])} |", flush=True)
        for words in self.wrong[:20]:
            print(f"  WRONG {self.name}: {words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--work")
    parser.add_argument("--only")
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    work = tempfile.mkdtemp(prefix="kills-", dir=args.work)
    try:
        make_model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "world.py")
        subprocess.run([sys.executable, make_model, work], check=True)
        known = commands(work)
        names = args.only.split(",") if args.only else list(known)
        for name in names:
            if name not in known:
                parser.error(f"unknown workload '{name}'; workloads: {', '.join(known)}")
        loads = [Workload(name, known[name], args, work) for name in names]
        draw, spent = random.Random(args.seed), 0
        while spent < args.kills:
            before = spent
            for load in loads:
                spent += load.round(draw, min(20, args.kills - spent)) if spent < args.kills else 0
            print(f"# {spent} of {args.kills} kills", file=sys.stderr, flush=True)
            if spent == before:
                break
        print("| tool | kills | complete runs | how stopped commands ended | final tables |\n|---|---|---|---|---|")
        for load in loads:
            load.report()
        return 1 if any(load.wrong for load in loads) else 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


sys.exit(main())

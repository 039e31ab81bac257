#!/usr/bin/env python3
"""What a sweep through dpe-serve costs beside the same sweep in one process: engine_cost.py BIN [PAIRS [THREADS]].

Both in turn, PAIRS times (5), the server anew each time (its start is not counted). Wall time of the tool, and processor time of tool
and server together; quote the median of the ratios, and the load of the machine beside it."""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN, PAIRS, THREADS = pathlib.Path(sys.argv[1]).resolve(), int((sys.argv[2:] or ["5"])[0]), (sys.argv[3:] or ["1"])[0]
SWEEP = [BIN / "dpe-detect", "-m", ROOT / "data/reference", "--corpus", ROOT / "data/sample", "-l", "512", "--samples", "24", "--groups",
         "2", "--select", "paper", "--temperature", "off", "--threads", THREADS, "--quiet"]
TICKS = os.sysconf("SC_CLK_TCK")


def of_process(pid):
    """Processor seconds of a process that runs."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def of_children():
    times = os.times()
    return times.children_user + times.children_system


def sweep(out, *more):
    """Wall and processor seconds of the tool."""
    begin, before = time.monotonic(), of_children()
    subprocess.run([*SWEEP, "-o", out, *more], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin, of_children() - before


def through_server(out):
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen([BIN / "dpe-serve", "-m", ROOT / "data/reference", "-l", "512", "--port", "0", "--threads", THREADS],
                                  stdout=log, stderr=subprocess.STDOUT, text=True)
        try:
            url = None
            while url is None and server.poll() is None:
                time.sleep(0.05)
                log.seek(0)
                found = re.search(r"http://[\d.]+:\d+", log.read())
                url = found and found[0]
            before = of_process(server.pid)
            wall, cpu = sweep(out, "--engine", url)
            return wall, cpu + of_process(server.pid) - before
        finally:
            server.terminate()
            server.wait()


def main():
    ratios = []
    with tempfile.TemporaryDirectory() as work:
        for pair in range(PAIRS):
            own = sweep(f"{work}/own-{pair}.h5")
            engine = through_server(f"{work}/engine-{pair}.h5")
            ratios.append([b / a for a, b in zip(own, engine)])
            print(f"pair {pair + 1}: in process {own[0]:.2f} s, {own[1]:.2f} s of processors; through dpe-serve {engine[0]:.2f} and "
                  f"{engine[1]:.2f}; ratios {ratios[-1][0]:.3f} and {ratios[-1][1]:.3f}; load {os.getloadavg()[0]:.1f}", flush=True)
    for name, values in zip(("wall", "processors"), zip(*ratios)):
        print(f"{name}: median {statistics.median(values):.3f}, {min(values):.3f} to {max(values):.3f}")


if __name__ == "__main__":
    main()

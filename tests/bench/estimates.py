"""estimates.py BIN [LENGTH…]: how well --dry-run predicts. For every length (default 1k 2k 4k 8k 16k) the time that
dpe-eval niah --dry-run prints for a few samples of the bundled model, and what the run then takes, both by the clock
and in processor time (DPE_ESTIMATE_CPU). One thread: on a machine with nothing else to do both are the same, on a busy
one only processor time says how good the prediction is. The last columns are what was taken / the middle of the range
(the geometric mean of its ends)."""
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}


def predicted(words, environment):
    """The range of the line "time 6 to 8 min (…)" or "time about 6 min (…)", in seconds."""
    text = subprocess.run(words + ["--dry-run"], capture_output=True, check=True, text=True, env=environment).stdout
    found = re.search(r"^time +(?:about ([0-9.e+]+)|([0-9.e+]+) to ([0-9.e+]+)) (s|min|h|days)", text, re.MULTILINE)
    assert found, text
    low, high = (found[1], found[1]) if found[1] else (found[2], found[3])
    return float(low) * UNITS[found[4]], float(high) * UNITS[found[4]]


def main():
    tool = os.path.join(sys.argv[1], "dpe-eval")
    lengths = sys.argv[2:] or ["1k", "2k", "4k", "8k", "16k"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    print("| length | samples | clock: predicted, s | taken, s | CPU: predicted, s | taken, s | clock ratio | CPU ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for length in lengths:
        samples = {"1k": 40, "2k": 20, "4k": 10, "8k": 6, "16k": 3}.get(length, 4)
        with tempfile.TemporaryDirectory() as work:
            words = [tool, "niah", "-m", ROOT + "/data/reference", "--corpus", ROOT + "/data/sample", "-l", length,
                     "--samples", str(samples), "--method", "dpe", "-o", work + "/out.h5", "--threads", "1", "--device",
                     "cpu", "--quiet"]
            clock = predicted(words, environment)
            cpu = predicted(words, dict(environment, DPE_ESTIMATE_CPU="1"))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begin = time.monotonic()
            subprocess.run(words, stdout=subprocess.DEVNULL, check=True, env=environment)
            taken = time.monotonic() - begin
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"| {length} | {samples} | {clock[0]:.1f} to {clock[1]:.1f} | {taken:.1f} | {cpu[0]:.1f} to {cpu[1]:.1f} "
                  f"| {processor:.1f} | {taken / math.sqrt(clock[0] * clock[1]):.2f} "
                  f"| {processor / math.sqrt(cpu[0] * cpu[1]):.2f} |", flush=True)


main()

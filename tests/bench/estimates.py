"""estimates.py BIN [LENGTH…]: how well --dry-run predicts. For every length (default 1k 2k 4k 8k 16k) the time that
dpe-eval niah --dry-run prints for a few samples of the bundled model, and what the run then takes: seconds of the
clock and of the processor, and both as multiples of the middle of the range (the geometric mean of its ends). One
thread, so that on a machine with nothing else to do both are the same; on a busy one the clock runs ahead."""
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


def seconds(text):
    """The range of a line "time 6 to 8 min (…)" or "time about 6 min (…)"."""
    found = re.search(r"^time +(?:about ([0-9.e+]+)|([0-9.e+]+) to ([0-9.e+]+)) (s|min|h|days)", text, re.MULTILINE)
    assert found, text
    low, high = (found[1], found[1]) if found[1] else (found[2], found[3])
    return float(low) * UNITS[found[4]], float(high) * UNITS[found[4]]


def main():
    tool = os.path.join(sys.argv[1], "dpe-eval")
    lengths = sys.argv[2:] or ["1k", "2k", "4k", "8k", "16k"]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    print(f"{'length':>8} {'samples':>8} {'predicted, s':>16} {'clock, s':>9} {'CPU, s':>8} {'clock/mid':>10} {'CPU/mid':>8}")
    for length in lengths:
        samples = {"1k": 40, "2k": 20, "4k": 10, "8k": 6, "16k": 3}.get(length, 4)
        with tempfile.TemporaryDirectory() as work:
            words = [tool, "niah", "-m", ROOT + "/data/reference", "--corpus", ROOT + "/data/sample", "-l", length,
                     "--samples", str(samples), "--method", "dpe", "-o", work + "/out.h5", "--threads", "1", "--device",
                     "cpu", "--quiet"]
            dry = subprocess.run(words + ["--dry-run"], capture_output=True, check=True, text=True, env=environment)
            low, high = seconds(dry.stdout)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begin = time.monotonic()
            subprocess.run(words, stdout=subprocess.DEVNULL, check=True, env=environment)
            clock = time.monotonic() - begin
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            middle = math.sqrt(low * high)
            print(f"{length:>8} {samples:>8} {low:>7.1f} to {high:>5.1f} {clock:>9.1f} {processor:>8.1f} "
                  f"{clock / middle:>10.2f} {processor / middle:>8.2f}", flush=True)


main()

"""selection.py BIN [--store] [LENGTH …]: what reading a text of 16k, 64k and 256k tokens takes the bundled model under selections and
under full attention (there 16k): processor time of one thread, the LM head included. The texts of the sample corpus are
repeated to the length.

--store: 64k, 256k and 1M tokens under one selection with keys and values in a file (--max-memory grows with the length, to 900 MiB
at 1M): processor time, time, the largest resident memory, and the straight line through them. 8 GiB of disk, some minutes."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
METHODS = ["select:refresh=64,over=self-extend", "longheads:refresh=64", "infllm:refresh=64", "rope"]
STORED = "select:block=32,k=3,sinks=16,local=32,refresh=64,positions=packed"
FULL_MOST = 16384
BYTES = 5  # of a token: enough for one window and not for two


def read(program, method, length, text, options=()):
    """Processor seconds, seconds and largest resident KiB of a reading."""
    command = ["/usr/bin/env", "OMP_WAIT_POLICY=passive", program, "-m", os.path.join(ROOT, "data/reference"), "--threads", "1",
               "--nll", text, "--context", str(length), "--method", method, *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = child.stdout.read()
    err = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(err)
    windows = int(re.search(r"windows (\d+) of", out).group(1))
    clock = windows * length / float(re.findall(r"([\d.]+) tokens/s", err)[-1])
    return (used.ru_utime + used.ru_stime) / windows, clock / windows, used.ru_maxrss


def methods(program, lengths, folder):
    """The table of methods, in memory."""
    print("| method | tokens | processor seconds | µs a token |\n|---|---:|---:|---:|")
    for method in METHODS:
        for length in lengths:
            if method != "rope" or length <= FULL_MOST:
                seconds = read(program, method, length, os.path.join(folder, str(length)))[0]
                print(f"| `{method}` | {length} | {seconds:.1f} | {1e6 * seconds / length:.0f} |", flush=True)


def store(program, lengths, folder):
    """The table of lengths with a file, and the line of least squares through its origin."""
    print("| tokens | --max-memory | processor seconds | µs a token | seconds | resident, MiB |\n|---:|---:|---:|---:|---:|---:|")
    found = []
    for length in lengths:
        memory = f"{84 + 816 * length // 1048576}M"
        used = read(program, STORED, length, os.path.join(folder, str(length)), ["--max-memory", memory])
        found.append((length, used[0]))
        print(f"| {length} | {memory} | {used[0]:.1f} | {1e6 * used[0] / length:.0f} | {used[1]:.0f} | {used[2] / 1024:.0f} |",
              flush=True)
    slope = sum(n * s for n, s in found) / sum(n * n for n, _ in found)
    apart = max(abs(s / (slope * n) - 1) for n, s in found)
    print(f"\n{1e6 * slope:.0f} µs a token; the points lie within {100 * apart:.0f} % of this line")


def main():
    words = [x for x in sys.argv[2:] if x != "--store"]
    stored = "--store" in sys.argv
    lengths = [int(x) for x in words] or ([65536, 262144, 1048576] if stored else [16384, 65536, 262144])
    program = os.path.join(sys.argv[1], "dpe-run")
    books = b"".join(open(path, "rb").read() for path in sorted(glob.glob(os.path.join(ROOT, "data/sample/test/*.txt"))))
    with tempfile.TemporaryDirectory() as folder:
        for length in lengths:
            with open(os.path.join(folder, str(length)), "wb") as file:
                while file.tell() < BYTES * length:
                    file.write(books[:BYTES * length - file.tell()])
        (store if stored else methods)(program, lengths, folder)


if __name__ == "__main__":
    main()

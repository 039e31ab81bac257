"""selection.py BIN [LENGTH …]: what reading a text of 16k, 64k and 256k tokens takes the bundled model under selections and
under full attention (there 16k): processor time of one thread, the LM head included. The texts of the sample corpus are
repeated to the length."""
import glob
import os
import re
import resource
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
METHODS = ["select:refresh=64,over=self-extend", "longheads:refresh=64", "infllm:refresh=64", "rope"]
FULL_MOST = 16384
BYTES = 5  # of a token: enough for one window and not for two


def read(program, method, length, text):
    """Processor seconds of a reading."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["/usr/bin/env", "OMP_WAIT_POLICY=passive", program, "-m", os.path.join(ROOT, "data/reference"), "--threads", "1",
               "--nll", text, "--context", str(length), "--method", method]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = child.communicate()
    if child.returncode != 0:
        sys.exit(err)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    windows = int(re.search(r"windows (\d+) of", out).group(1))
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / windows


def main():
    lengths = [int(x) for x in sys.argv[2:]] or [16384, 65536, 262144]
    program = os.path.join(sys.argv[1], "dpe-run")
    books = b"".join(open(path, "rb").read() for path in sorted(glob.glob(os.path.join(ROOT, "data/sample/test/*.txt"))))
    print("| method | tokens | processor seconds | µs a token |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for length in lengths:
            with open(os.path.join(folder, str(length)), "wb") as file:
                while file.tell() < BYTES * length:
                    file.write(books[:BYTES * length - file.tell()])
        for method in METHODS:
            for length in lengths:
                if method != "rope" or length <= FULL_MOST:
                    seconds = read(program, method, length, os.path.join(folder, str(length)))
                    print(f"| `{method}` | {length} | {seconds:.1f} | {1e6 * seconds / length:.0f} |", flush=True)


if __name__ == "__main__":
    main()

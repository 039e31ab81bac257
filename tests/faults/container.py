#!/usr/bin/env python3
"""container.py BIN: the tools in a root that has nothing but them, their libraries, a model and texts: no /proc, no /dev, no /tmp, no
HOME, no user of that number, a root that cannot be written, a small disk for results; and in little memory, where control groups of
version 1 can be made. What they write there is what they write outside. Exit status 125 where no root can be entered (this needs the
root user and unshare). Standard library only."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(sys.argv[1])
TOOLS = ["dpe", "dpe-bench", "dpe-calibrate", "dpe-detect", "dpe-eval", "dpe-export", "dpe-norms", "dpe-report", "dpe-run", "dpe-serve"]
GENEROUS = 1200  # seconds: a limit for a hang
MODEL, TEXTS = ["-m", "/model", "--threads", "2"], ["--corpus", "/texts"]
CALIBRATE = ["dpe-calibrate", *MODEL, *TEXTS, "-l", "300", "--budget", "30ktok", "--samples", "4", "--dtype", "f32", "-o"]
# In a mount namespace: a root that is read-only but for /out, entered as a user whom no file names. Each command's exit code.
ENTER = """mount --make-rprivate / && mount --bind "$0" "$0" && mount -t tmpfs -o size=20m none "$0/out" && chmod 1777 "$0/out" &&
mount -o remount,ro,bind "$0" "$0" || exit 1
while read -r words; do
    env -i "$1" --userspec=65533:65533 "$0" /bin/$words </dev/null >/dev/null
    echo $?
done
cp -r "$0/out/." "$2"
"""


def make_root(root):
    os.makedirs(root + "/bin")
    os.mkdir(root + "/out")
    for name in TOOLS:
        shutil.copy(f"{BIN}/{name}", root + "/bin")
    shown = subprocess.run(["ldd", *(f"{BIN}/{name}" for name in TOOLS)], capture_output=True, text=True, check=True).stdout
    for path in sorted(set(re.findall(r"(/\S+) \(0x", shown))):
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        shutil.copy(path, root + path)
    shutil.copytree(ROOT + "/data/reference", root + "/model")
    shutil.copytree(ROOT + "/data/sample", root + "/texts")


def outside(root, *words):
    words = [root + word if word in ("/model", "/texts") else word for word in words]
    return subprocess.run([BIN + "/" + words[0], *words[1:]], capture_output=True, text=True, check=False, timeout=GENEROUS)


def test_a_bare_root(work, root):
    commands = ((0, ["dpe-run", *MODEL, "-p", "The", "-n", "4"]), (0, ["dpe", "run", *MODEL, "--info"]),
                (0, ["dpe-eval", "niah", *MODEL, *TEXTS, "-l", "400", "--samples", "2", "--method", "self-extend", "-o", "/out/niah.h5"]),
                (0, [*CALIBRATE, "/out/cal"]), (0, ["dpe-norms", *MODEL, *TEXTS, "--samples", "1", "--lengths", "64", "-o", "/out/norms.h5"]),
                (0, ["dpe-export", "/out/cal/table.h5", "-o", "/out/again.json"]), (0, ["dpe-report", "/out/cal", "-o", "/out/page.html"]),
                (0, ["dpe-bench", "--shape", "/model", "-l", "32", "--new", "1", "--repeats", "1", "--threads", "2"]),
                (73, ["dpe-norms", *MODEL, *TEXTS, "--samples", "1", "--lengths", "64", "-o", "/norms.h5"]),
                (73, ["dpe-report", "/out/cal", "-o", "/page.html"]), (73, [*CALIBRATE, "/cal"]), (66, ["dpe-serve", "-m", "/none"]))
    os.mkdir(work + "/written")
    chroot = shutil.which("chroot", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", ENTER, root, chroot, work + "/written"], check=True, text=True,
                         input="".join(" ".join(words) + "\n" for _, words in commands), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, timeout=GENEROUS)
    assert ran.stdout.split() == [str(code) for code, _ in commands], (ran.stdout, ran.stderr[-3000:])
    ran = outside(root, *CALIBRATE, work + "/cal")
    assert ran.returncode == 0, ran
    for name in ("table.h5", "detect.h5", "norms.h5", "check.h5"):
        subprocess.run(["h5diff", "--exclude-path=/run", f"{work}/cal/{name}", f"{work}/written/cal/{name}"], check=True)
    left = [name for _, _, names in os.walk(work + "/written") for name in names if name.endswith((".tmp", "LOCK"))]
    assert not left, left


def test_little_memory(work, root):
    """The limit of a control group: what does not fit is 71 before any work, and nothing is killed. With more, it runs."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        mine = next((line.rstrip("\n").split(":", 2)[2] for line in file if ":memory:" in line), None)
    group = f"/sys/fs/cgroup/memory{mine}/dpe-test-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError:
        print("left out: control groups of memory cannot be made")
        return

    def join():
        with open(group + "/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    words = ["dpe-eval", "niah", *MODEL, *TEXTS, "-l", "4k", "--samples", "1", "--method", "pi"]
    words = [BIN + "/" + words[0], *(root + word if word in ("/model", "/texts") else word for word in words[1:])]
    try:
        codes = []
        for mib in (24, 40, 160):
            with open(group + "/memory.limit_in_bytes", "w", encoding="ascii") as file:
                file.write(str(mib << 20))
            out = f"{work}/memory{mib}.h5"  # keys and values of another type are another run
            ran = subprocess.run([*words, "-o", out], preexec_fn=join, capture_output=True, text=True, check=False, timeout=GENEROUS)
            assert ran.returncode in (0, 71), ran
            assert ran.returncode == 0 or "are free" in ran.stderr and not os.path.exists(out + ".journal"), ran
            codes.append(ran.returncode)
        assert codes[0] == 71 and codes[-1] == 0, codes
    finally:
        os.rmdir(group)


def main():
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: no root can be entered here (this needs the root user, and unshare --mount)")
        return 125
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    try:
        make_root(work + "/root")
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                test(work, work + "/root")
                print("passed:", name, flush=True)
    finally:
        shutil.rmtree(work)
    return 0


sys.exit(main())

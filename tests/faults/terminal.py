#!/usr/bin/env python3
"""terminal.py BIN: what a tool writes to a terminal, to a dumb or narrow one, to none, to a reader that
leaves, and what it does when its terminal goes or its user is impatient. Standard library only."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOL = os.path.join(sys.argv[1], "dpe-detect")
# Seconds after which a tool counts as hung. It only has to end a hang.
LIMIT = 1800
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def command(work, name, *more):
    return [TOOL, "--model", work + "/model", "--corpus", work + "/corpus", "--length", "192",
            "--groups", "2", "--samples", "40", "--lengths", "8,32,64", "--seed", "5",
            "--threads", "1", "--select", "paper", "--temperature", "off", "-o", f"{work}/{name}.h5", *more]


def wait_until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def on_terminal(arguments, columns=80, both=True, after=None, **environment):
    """Run with stderr (and stdout when both) on a terminal; (bytes shown, exit code). after(pid) is
    called once something was shown."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    env.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}, **environment)
    # A shell gives what it runs in the background SIGINT ignored, which is inherited.
    child = subprocess.Popen(arguments, stdin=slave, stdout=slave if both else subprocess.DEVNULL,
                             stderr=slave, env=env, start_new_session=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    os.close(slave)
    shown = b""
    while True:
        ready, _, _ = select.select([master], [], [], LIMIT)
        assert ready, "nothing was shown: the tool hangs"
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
        if after is not None:
            after(child.pid)
            after = None
    os.close(master)
    return shown, child.wait()


def lines(shown):
    """What stood on the terminal's lines, escapes taken out."""
    return [part for part in re.split(rb"[\r\n]", ESCAPE.sub(b"", shown)) if part]


def test_colours(work):
    shown, code = on_terminal(command(work, "colour"))
    assert code == 0, shown
    assert COLOUR.search(shown), "a terminal gets a heat map in colour"
    assert b"\r" in shown, "a terminal gets a live line"
    shown, code = on_terminal(command(work, "plain"), NO_COLOR="1")
    assert code == 0 and not COLOUR.search(shown), "NO_COLOR is obeyed"
    shown, code = on_terminal(command(work, "empty"), NO_COLOR="")
    assert code == 0 and COLOUR.search(shown), "an empty NO_COLOR counts as not set"
    shown, code = on_terminal(command(work, "dumb"), TERM="dumb")
    assert code == 0 and b"\x1b" not in shown, "a dumb terminal gets no escapes"


def test_narrow(work):
    for columns in (20, 40):
        shown, code = on_terminal(command(work, f"narrow{columns}"), columns=columns, both=False)
        assert code == 0
        live = [line for line in lines(shown) if re.search(rb": [0-9]+ of [0-9]+", line)]
        assert live, "there is a live line"
        widest = max(len(line.decode()) for line in live)
        assert widest <= columns, f"the live line is {widest} wide on {columns} columns"


def test_words(work):
    """Messages are broken between words; commands to paste, which are not, stand behind Next."""
    columns = 50
    shown, code = on_terminal(command(work, "words"), columns=columns, both=False)
    assert code == 0, shown
    said = [line.decode() for line in lines(shown) if not re.search(rb": [0-9]+ of [0-9]+", line)]
    said = [line for line in said if not line.startswith(("Next: ", "      "))]
    assert any(line.startswith("  ") for line in said), "some message is longer than the terminal is wide"
    for line in said:
        assert len(line) <= columns or " " not in line.strip(), f"{len(line)} columns: {line}"


def test_screens(work):
    """On 80 columns no tool prints a wider line, but for a word that is wider and commands to paste."""
    folder = work + "/a-folder-whose-name-is-as-long-as-those-of-models-often-are/and-another-one"
    os.makedirs(folder)
    shutil.copytree(work + "/model", folder + "/model")
    shutil.copytree(work + "/corpus", folder + "/corpus")
    model = ["-m", folder + "/model"]
    both = [*model, "--corpus", folder + "/corpus", "--threads", "1"]
    made = [*both, "-l", "192", "--samples", "4", "-o"]
    run, detect, evaluate = (os.path.join(sys.argv[1], "dpe-" + name) for name in ("run", "detect", "eval"))
    for words, code in (
            ([run, *model, "--info"], 0), ([run, "--method", "help"], 0),
            ([run, *model, "--method", "lampe", "--length", "192", "--show-plan"], 0),
            ([run, *both, "--method", "self-extend", "--length", "192", "--show"], 0),
            ([detect, *made, folder + "/dry.h5", "--dry-run"], 0),
            ([detect, *made, folder + "/ready.h5"], 0),
            ([detect, *made, folder + "/detect.h5"], 0),
            ([detect, *made, folder + "/detect.h5", "--seed", "9"], 78),
            ([detect, *model, "--corpus", folder + "/nowhere", "-l", "192", "-o", folder + "/x.h5"], 66),
            ([os.path.join(sys.argv[1], "dpe-norms"), *both, "--lengths", "192", "--samples", "2",
              "-o", folder + "/norms.h5"], 0),
            ([os.path.join(sys.argv[1], "dpe-calibrate"), *both, "-l", "192", "-o", folder + "/out", "--dry-run"], 0),
            ([evaluate, "niah", *made, folder + "/niah.h5", "--method", "rope", "--method", "yarn"], 0),
            ([evaluate, "kld", *both, "-l", "192", "--method", "yarn", "-o", folder + "/kld.h5"], 0),
            ([evaluate, "tune", *both, "-l", "192", "--method", "yarn", "--budget", "16", "-o", folder + "/tune.h5"], 0),
            ([evaluate, "compare", folder + "/niah.h5"], 64)):
        shown, ended = on_terminal(words)
        assert ended == code, (words, shown)
        commands = False
        for line in (line.decode() for line in lines(shown)):
            commands = line.startswith("Next: ") or commands and line.startswith("      ")
            assert commands or len(line) <= 80 or " " not in line.strip(), f"{words}: {len(line)} columns: {line}"


def test_no_terminal(work):
    ran = subprocess.run(command(work, "none"), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert b"\x1b" not in ran.stdout + ran.stderr and b"\r" not in ran.stderr
    assert len(ran.stderr.splitlines()) < 40, "few lines when stderr is not a terminal"


def test_reader_that_leaves(work):
    """`dpe-detect … | head -1` prints no error, and the table is written."""
    child = subprocess.Popen(command(work, "head"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.readline()
    child.stdout.close()
    talk = child.stderr.read()
    child.wait()
    assert b"error" not in talk and b"Broken" not in talk, talk
    assert os.path.exists(work + "/head.h5") and not os.path.exists(work + "/head.h5.journal")
    gone = subprocess.run(["sh", "-c", '"$0" --help | true', TOOL], capture_output=True, check=False)
    assert gone.stderr == b"", gone.stderr


def test_full_stdout(work):
    """A full standard output is an error, also when it failed long before the end."""
    run = os.path.join(sys.argv[1], "dpe-run")
    for arguments in ([run, "-m", work + "/model", "-p", "hello", "-n", "8"],
                      [run, "-m", work + "/model", "--info"], command(work, "full")):
        with open("/dev/full", "wb") as full:
            ran = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, check=False)
        assert ran.returncode == 74 and b"standard output" in ran.stderr, (arguments, ran)
    tools = [[os.path.join(sys.argv[1], "dpe-" + name)] for name in
             ("bench", "calibrate", "detect", "eval", "export", "norms", "report", "run")]
    for tool in tools + [tools[3] + ["niah"]]:
        for option in ("--help", "--usage", "--version"):
            with open("/dev/full", "wb") as full:
                ran = subprocess.run(tool + [option], stdout=full, stderr=subprocess.PIPE,
                                     check=False)
            assert ran.returncode == 74 and b"standard output" in ran.stderr, (tool, option, ran)


def test_file_size_limit(work):
    """A journal that may not grow (ulimit -f) is a disk that is full; with room the sweep goes on."""
    words = command(work, "limit", "--samples", "100")
    ran = subprocess.run(["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *words],
                         capture_output=True, check=False)
    assert ran.returncode == 74 and b"File too large" in ran.stderr, ran
    assert b"samples are saved; correct that and run the same command to continue" in ran.stderr, ran
    ran = subprocess.run(words, capture_output=True, check=False)
    assert ran.returncode == 0 and b"resuming: " in ran.stderr, ran


def test_closed_streams(work):
    """Without a stream of its own a tool must not print into its journal or table."""
    for streams in ((1,), (2,), (0, 1, 2)):
        name = "closed" + "".join(map(str, streams))
        closes = " ".join(f"{stream}>&-" for stream in streams)
        words = command(work, name, "--samples", "30")
        ran = subprocess.run(["sh", "-c", f'"$@" {closes}', "sh", *words], capture_output=True,
                             check=False)
        # Results that go to standard output are lost, and no others.
        assert ran.returncode == (74 if 1 in streams else 0), (streams, ran)
        ran = subprocess.run(command(work, name), capture_output=True, check=False)
        assert ran.returncode == 0, (streams, ran.stderr)
        export = [os.path.join(sys.argv[1], "dpe-export"), f"{work}/{name}.h5", "-o", "-", "--format", "json"]
        ran = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *export], stderr=subprocess.PIPE, check=False)
        assert ran.returncode == 74 and b"standard output" in ran.stderr, ran


def test_no_threads(work):
    """libgomp ends a process for which it gets no threads: with the code of too little memory."""
    ran = subprocess.run([os.path.join(sys.argv[1], "dpe-run"), "-m", ROOT + "/data/reference", "-p", "hello", "-n", "4", "--threads", "2"],
                         env={**os.environ, "OMP_STACKSIZE": "200000G"}, capture_output=True, check=False)
    assert ran.returncode == 71 and b"Thread creation failed" in ran.stderr, ran


def test_terminal_goes(work):
    shown, code = on_terminal(command(work, "hup", "--samples", "4000"),
                              after=lambda pid: os.kill(pid, signal.SIGHUP))
    assert code == 75, (code, shown)
    ran = subprocess.run(command(work, "hup", "--samples", "40"), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_impatient_user(work):
    def twice(pid):
        os.kill(pid, signal.SIGINT)
        time.sleep(0.001)
        os.kill(pid, signal.SIGINT)

    _, code = on_terminal(command(work, "twice", "--samples", "4000"), after=twice)
    assert code in (75, 130, -signal.SIGINT), code
    ran = subprocess.run(command(work, "twice"), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_early_signals(work):
    """A signal that waits from before the first line on, also where a launcher has left it blocked: 75, and nothing is written.
    The tool starts itself once more where OMP_WAIT_POLICY is not set, and a signal is not lost on the way."""
    subprocess.run(command(work, "early-table"), capture_output=True, check=True)
    table, both = work + "/early-table.h5", ["-m", work + "/model", "--corpus", work + "/corpus", "--threads", "1"]
    commands = [["run", "-m", work + "/model", "-p", "The", "-n", "4"], ["run", "-m", work + "/model", "--nll", work + "/corpus/900000.txt"],
                ["eval", "niah", *both, "-l", "192", "--method", "rope", "--samples", "2", "-o", "OUT.h5"],
                ["eval", "tune", *both, "-l", "192", "--method", "yarn", "--budget", "16", "-o", "OUT.h5"],
                ["eval", "data", "-m", work + "/model", "-l", "400", "--tasks", "vt", "--samples", "1", "-o", "OUT"],
                ["detect", *both, "-l", "192", "-o", "OUT.h5"], ["norms", *both, "--lengths", "64", "-o", "OUT.h5"],
                ["calibrate", *both, "-l", "192", "-o", "OUT"], ["export", table, "-o", "OUT.json"], ["report", table, "-o", "OUT.html"],
                ["bench", "--shape", work + "/model", "-l", "32", "--new", "1", "--csv", "OUT.csv"], ["serve", "-m", work + "/model", "--port", "0"]]
    os.mkdir(work + "/early")
    for words in commands:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            for more in ({}, {"OMP_WAIT_POLICY": "passive"}):
                def wait(number=number):
                    signal.signal(number, signal.SIG_DFL)
                    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
                    os.kill(os.getpid(), number)

                env = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
                ran = subprocess.run([TOOL.replace("detect", words[0]), *(word.replace("OUT", work + "/early/out") for word in words[1:])],
                                     capture_output=True, check=False, preexec_fn=wait, timeout=LIMIT, env={**env, **more})
                assert ran.returncode == (0 if words[0] == "serve" else 75), (words, number, more, ran)
                left = [name for name in os.listdir(work + "/early") if not name.endswith(".journal")]
                assert not left or words[0] == "calibrate" and os.listdir(work + "/early/out") == [], (words, left)
                for name in left:
                    os.rmdir(f"{work}/early/{name}")


def test_benchmark(work):
    """dpe-bench keeps an old file until it has a result, makes none before, and keeps what it has when stopped."""
    bench = [os.path.join(sys.argv[1], "dpe-bench"), "--shape", work + "/model", "--repeats", "1",
             "--new", "1", "--threads", "1", "--force", "--csv", work + "/bench.csv", "-l", "32"]
    with open(work + "/bench.csv", "w") as file:
        file.write("old\n")
    ran = subprocess.run(bench + ["--method", "nosuch"], capture_output=True, check=False)
    assert ran.returncode == 64 and open(work + "/bench.csv").read() == "old\n", ran
    ran = subprocess.run(bench + ["--method", "nosuch", "--json", work + "/bench.json"], capture_output=True,
                         check=False)
    assert ran.returncode == 64 and not os.path.exists(work + "/bench.json"), ran
    ran = subprocess.run(bench + ["-l", "400K", "--method", "rope", "--time-budget", "0.01"],
                         capture_output=True, check=False, timeout=LIMIT)
    assert ran.returncode == 75 and b"the time budget was used up" in ran.stderr, ran
    running = subprocess.Popen(bench + ["-l", "400K", "--method", "rope"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    wait_until(lambda: len(open(work + "/bench.csv").read().splitlines()) == 2 or running.poll() is not None)
    lines = open(work + "/bench.csv").read().splitlines()
    running.terminate()
    assert running.wait(timeout=LIMIT) == 75 and b"stopped by a signal" in running.stderr.read()
    assert len(lines) == 2 and lines[0].startswith("method,") and lines[1].startswith("rope,32,"), lines


def test_weights_go(work):
    """Weights truncated while they are mapped: a message, 74, and the run continues with intact weights."""
    shutil.copytree(ROOT + "/data/reference", work + "/cut")

    def words(samples):
        return command(work, "cut", "--model", work + "/cut", "--length", "2048", "--lengths", "512,2048",
                       "--samples", samples)

    running = subprocess.Popen(words("2000"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    journal = work + "/cut.h5.journal/rank-0000.journal"
    wait_until(lambda: os.path.exists(journal) and os.path.getsize(journal) > 2048 or running.poll() is not None)
    os.truncate(work + "/cut/model.safetensors", 0)
    message = running.communicate(timeout=LIMIT)[1]
    # Between samples the file is looked at, within one its pages are missed.
    assert running.returncode == 74, (running.returncode, message)
    assert b"can no longer be read" in message or b"was truncated while in use" in message, message
    shutil.copy(ROOT + "/data/reference/model.safetensors", work + "/cut")
    ran = subprocess.run(words("4"), capture_output=True, check=False)
    assert ran.returncode == 0 and b"resuming: " in ran.stderr, ran


def test_foreign_numbers(work):
    """A locale that writes 0,5 changes nothing in files or on stdout."""
    os.mkdir(work + "/locale")
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", work + "/locale/de_DE.UTF-8"],
                   check=True)
    # The C library keeps the path for ever: a leak to the sanitizer, and none of ours.
    env = dict(os.environ, LC_ALL="de_DE.UTF-8", LOCPATH=work + "/locale",
               ASAN_OPTIONS="detect_leaks=0")
    assert subprocess.run(["printf", "%.1f", "0,5"], capture_output=True, check=True,
                          env=env).stdout == b"0,5", "the locale works"
    plain = subprocess.run(command(work, "c"), capture_output=True, check=True)
    german = subprocess.run(command(work, "de"), capture_output=True, check=True, env=env)
    assert german.stdout.replace(b"de.h5", b"c.h5") == plain.stdout
    subprocess.run(["h5diff", "--exclude-path=/run", work + "/c.h5", work + "/de.h5"], check=True)


def test_json_errors(work):
    """Every line of standard error is an object, whatever goes wrong and whenever."""
    run = os.path.join(sys.argv[1], "dpe-run")
    cases = [(["--nosuch"], 64, "--nosuch"), (["-n", "x"], 64, "-n: "), ([], 64, "--model"),
             (["-m", b"/nowhere\xff", "--info"], 66, "/nowhere\\xff")]
    for words, code, message in cases:
        ran = subprocess.run([run, "--log-format", "json", *words], capture_output=True, check=False)
        lines = [json.loads(line) for line in ran.stderr.decode("utf-8").splitlines()]
        assert ran.returncode == code and not ran.stdout, ran
        assert [line["level"] for line in lines] == ["error"], ran
        assert message in lines[0]["message"] and "{" not in lines[0]["message"], ran


def catches(pid, number):
    """Whether a process has a handler of its own for this signal."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> number - 1 & 1


def test_long_text(work):
    """A signal ends the tokenizing of a long text; so does too little memory."""
    with open(work + "/long.txt", "w", encoding="utf-8") as file:
        file.write("A fox that is quick. " * 3_000_000)
    words = [os.path.join(sys.argv[1], "dpe-run"), "-m", ROOT + "/data/reference", "--tokenize",
             "--prompt-file", work + "/long.txt"]
    for pause in (0.2, 0.8):
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not catches(running.pid, signal.SIGTERM):
            assert running.poll() is None
            time.sleep(0.01)
        time.sleep(pause)
        running.send_signal(signal.SIGTERM)
        _, message = running.communicate(timeout=60)
        assert running.returncode == 75 and b"stopped by a signal" in message, (running.returncode, message)
    ran = subprocess.run([*words, "--max-memory", "80M"], capture_output=True, check=False)
    assert ran.returncode == 71 and b"--max-memory" in ran.stderr and not ran.stdout, ran.stderr


def test_small_stack(work):
    """Tools that run no model live with a stack of 64 KiB; none dies without a word."""
    subprocess.run(command(work, "stack"), capture_output=True, check=True)
    bench = [os.path.join(sys.argv[1], "dpe-bench"), "--shape", ROOT + "/data/reference", "-l", "64",
             "--new", "1", "--repeats", "1", "--threads", "1"]
    report = [os.path.join(sys.argv[1], "dpe-report"), work + "/stack.h5", "-o", work + "/stack.html"]
    for words in (bench, report):
        ran = subprocess.run(["sh", "-c", 'ulimit -s 64; exec "$@"', "sh", *words],
                             capture_output=True, check=False)
        assert ran.returncode == 0 or ran.returncode == 71 and ran.stderr, ran


def main():
    work = tempfile.mkdtemp()
    try:
        subprocess.run([sys.executable, ROOT + "/tests/cli/tiny_model.py",
                        ROOT + "/data/reference/tokenizer.json", work + "/model"], check=True)
        os.mkdir(work + "/corpus")
        shutil.copy(ROOT + "/data/sample/test/900000.txt", work + "/corpus")
        for name, test in sorted(globals().items()):
            if name.startswith("test_"):
                test(work)
                print("passed:", name, flush=True)
    finally:
        shutil.rmtree(work)


main()

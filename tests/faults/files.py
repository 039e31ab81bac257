#!/usr/bin/env python3
"""files.py BIN: what the tools do to files that are not theirs, and what a run does when a file that
decides its results changes. Standard library only."""

import glob
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import time
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.path.abspath(sys.argv[1])
with open(BIN + "/dpe-run", "rb") as program:
    SANITIZED = b"__asan_init" in program.read()  # such a program needs more than any limit of address space
GENEROUS = 120  # seconds: a limit for a hang, no measure of anything


def tool(name, *words, cwd=None, **environment):
    return subprocess.run([os.path.join(BIN, name), *words], capture_output=True, check=False,
                          timeout=GENEROUS, cwd=cwd, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})


def detect(work, name, *more, **environment):
    return tool("dpe-detect", "--model", work + "/model", "--corpus", work + "/corpus", "--length",
                "192", "--groups", "2", "--lengths", "8,32,64", "--seed", "5", "--threads", "1",
                "--samples", "12", "--select", "paper", "--temperature", "off", "-o", f"{work}/{name}", *more, **environment)


def stop_detect(work, name):
    """The journal of a run of detect() that is stopped once it holds all rows of the sweep."""
    journal = f"{work}/{name}.journal/rank-0000.journal"
    words = [os.path.join(BIN, "dpe-detect"), "--model", work + "/model", "--corpus", work + "/corpus", "--length", "192", "--groups", "2",
             "--lengths", "8,32,64", "--seed", "5", "--threads", "1", "--samples", "12", "--select", "paper", "--temperature", "off",
             "-o", f"{work}/{name}"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ran:
        while ran.poll() is None and not (os.path.exists(journal) and os.path.getsize(journal) > 26000):
            time.sleep(0.001)
        ran.terminate()
    assert os.path.exists(journal), "the run ended before it was stopped"
    if os.path.exists(f"{work}/{name}"):  # it has the names of plans too
        os.remove(f"{work}/{name}")


def expect(ran, code, *words):
    message = ran.stderr.decode(errors="replace")
    assert ran.returncode == code, (code, ran.returncode, message)
    for word in words:
        assert word in message, (word, message)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def same_tables(one, other):
    subprocess.run(["h5diff", "--exclude-path=/run", one, other], check=True)


def test_a_changed_end_token(work):
    """generation_config.json decides when an answer ends: a resume with another one is refused."""
    path = work + "/model/generation_config.json"
    try:
        write(path, b'{"eos_token_id": [2, 5]}')
        expect(detect(work, "ends.h5", "--time-budget", "0.000001"), 75)
        write(path, b'{"eos_token_id": [2, 6]}')
        expect(detect(work, "ends.h5"), 78, "end_tokens", "2,5", "2,6")
        # What is not read of it may change, and so may the order of the tokens.
        write(path, b'{"temperature": 0.3, "eos_token_id": [5, 2]}')
        expect(detect(work, "ends.h5"), 0)
        os.remove(path)
        expect(detect(work, "ends.h5"), 78, "end_tokens")
    finally:
        if os.path.exists(path):
            os.remove(path)


def test_a_journal_of_an_older_identity(work):
    """A journal that does not record which tokens end an answer is refused; the message names the missing field."""
    expect(detect(work, "older.h5", "--time-budget", "0.000001"), 75)
    path = work + "/older.h5.journal/manifest.json"
    manifest = json.loads(read(path))
    fields = [f for f in manifest["identity"] if f["name"] != "end_tokens"]
    assert len(fields) + 1 == len(manifest["identity"])
    text = b"".join(struct.pack("<Q", len(v.encode())) + v.encode()
                    for f in fields for v in (f["name"], f["value"]))
    manifest["identity"] = fields
    manifest["identity_sha256"] = subprocess.run(["sha256sum"], input=text, capture_output=True,
                                                 check=True).stdout.decode().split()[0]
    write(path, json.dumps(manifest).encode())
    expect(detect(work, "older.h5"), 78, "end_tokens", "(absent)")


def test_salvage_keeps_the_names_of_plans(work):
    """A damaged record of a plan's name: named, and the table is the same outside /run."""
    expect(detect(work, "whole.h5"), 0)
    stop_detect(work, "torn.h5")
    path = work + "/torn.h5.journal/rank-0000.journal"
    data = bytearray(read(path))
    at = hurt = 0
    while at < len(data):
        assert data[at:at + 4] == b"DPEJ"
        kind, size = struct.unpack_from("<HI", data, at + 6)
        if kind == 4 and not hurt:
            hurt = at
            data[at + 24 + 9] ^= 1
        at += 24 + size + 4
    assert hurt, "the journal holds a plan's name"
    write(path, data)
    expect(detect(work, "torn.h5"), 65, "--force")
    ran = detect(work, "torn.h5", "--force")
    expect(ran, 0, "the name of a plan", "is written again", ".damaged-0 until the run is complete")
    assert not os.path.exists(work + "/torn.h5.journal")
    same_tables(work + "/whole.h5", work + "/torn.h5")


def test_names_beside_an_output(work):
    """A user's OUT.tmp, a link or a FIFO of that name stay as they are; two exports end well."""
    source, out = work + "/source.h5", work + "/x.json"
    write(out + ".tmp", b"a user's")
    expect(tool("dpe-export", source, "-o", out), 0)
    assert read(out + ".tmp") == b"a user's"
    whole = read(out)
    os.remove(out + ".tmp")
    write(work + "/precious", b"precious")
    os.symlink("precious", out + ".tmp")
    expect(tool("dpe-export", source, "-o", out, "--force"), 0)
    assert read(work + "/precious") == b"precious" and read(out) == whole
    assert not os.path.islink(out)
    os.remove(out + ".tmp")
    os.mkfifo(out + ".tmp")
    expect(tool("dpe-export", source, "-o", out, "--force"), 0)
    assert stat.S_ISFIFO(os.stat(out + ".tmp").st_mode) and read(out) == whole
    os.remove(out + ".tmp")
    for form in ("json", "h5"):
        words = [os.path.join(BIN, "dpe-export"), "--force", "-o", f"{work}/both.{form}", source]
        both = [subprocess.Popen(words, stderr=subprocess.PIPE) for _ in range(8)]
        for one in both:
            message = one.communicate(timeout=GENEROUS)[1]
            assert one.returncode == 0, message
    assert read(work + "/both.json") == whole
    left = [name for name in os.listdir(work) if name.endswith(".tmp")]
    assert not left, left


def test_empty_names(work):
    """-o '' is a usage error everywhere, before any work."""
    empty = os.path.join(work, "empty")
    os.mkdir(empty)
    source = work + "/source.h5"
    model, corpus = ["--model", work + "/model"], ["--corpus", work + "/corpus"]
    for words in (["dpe-export", source, "-o", ""],
                  ["dpe-report", source, "-o", ""],
                  ["dpe-report", source, "-o", "a.html", "--figures", ""],
                  ["dpe-detect", *model, *corpus, "--length", "192", "-o", ""],
                  ["dpe-norms", *model, *corpus, "-o", ""],
                  ["dpe-eval", "niah", *model, *corpus, "--length", "192", "-o", ""],
                  ["dpe-eval", "data", *model, "--length", "192", "-o", ""],
                  ["dpe-calibrate", *model, *corpus, "--length", "192", "-o", ""],
                  ["dpe-bench", "--shape", work + "/model", "--csv", ""],
                  ["dpe-bench", "--shape", work + "/model", "--json", ""]):
        expect(tool(*words, cwd=empty), 64, "expected a name")
    assert os.listdir(empty) == []


def test_fifos(work):
    """A path that is not a regular file is refused at once, for reading and for writing."""
    fifo = work + "/fifo"
    os.mkfifo(fifo)
    bench = ["dpe-bench", "--shape", work + "/model", "--length", "16", "--new", "1", "--repeats", "1",
             "--threads", "1", "--device", "cpu"]
    expect(tool("dpe-export", "--show", fifo), 66)
    expect(tool("dpe-report", "--no-figures", fifo, "-o", work + "/fifo.html"), 66)
    expect(tool("dpe-eval", "niah", "--model", work + "/model", "--corpus", work + "/corpus", "--length",
                "192", "--table", fifo, "-o", work + "/fifo.h5"), 66)
    expect(tool(*bench, "--csv", fifo), 73)
    expect(tool(*bench, "--json", fifo, "--force"), 73)
    expect(tool("dpe-export", work + "/source.h5", "-o", fifo, "--format", "json", "--force"), 73)
    assert stat.S_ISFIFO(os.stat(fifo).st_mode)


def test_what_is_there_needs_force(work):
    """Outputs that hold something else are replaced with --force only; a circle of links stays."""
    bench = ["dpe-bench", "--shape", work + "/model", "--length", "16", "--new", "1", "--repeats", "1",
             "--threads", "1", "--device", "cpu", "--method", "rope"]
    for option in ("--csv", "--json"):
        write(work + "/mine", b"mine")
        expect(tool(*bench, option, work + "/mine"), 78, "--force")
        assert read(work + "/mine") == b"mine"
        expect(tool(*bench, option, work + "/mine", "--force"), 0)
        assert read(work + "/mine") != b"mine"
    words = ["dpe-eval", "ruler", "--model", work + "/model", "--corpus", work + "/corpus", "--length", "400", "--tasks",
             "niah_single_1", "--method", "rope", "--samples", "1", "--threads", "1", "--predictions", work + "/answers",
             "-o", work + "/ruler.h5"]
    expect(tool(*words), 0)
    answers = glob.glob(work + "/answers/*/*")
    assert len(answers) == 1, answers
    expect(tool(*words), 0)
    os.remove(work + "/ruler.h5")
    write(answers[0], b"mine")
    expect(tool(*words), 78, answers[0], "--force")  # before any work: no table, no journal
    assert read(answers[0]) == b"mine" and not glob.glob(work + "/ruler.h5*")
    expect(tool(*words, "--force"), 0)
    assert read(answers[0]) != b"mine"
    os.symlink("circle", work + "/circle")
    expect(tool("dpe-export", work + "/source.h5", "--format", "json", "-o", work + "/circle"), 73)
    expect(tool("dpe-report", "--no-figures", work + "/source.h5", "-o", work + "/circle"), 73)
    expect(detect(work, "circle"), 73)
    assert os.path.islink(work + "/circle")
    figures = ["dpe-report", "--no-figures", work + "/source.h5", "-o", work + "/page.html", "--figures"]
    expect(tool(*figures, work + "/none"), 64)


def test_a_page_is_named_as_one(work):
    """A page is no table, whatever its name says: dpe-report refuses endings of other kinds."""
    for name in ("x.csv", "x.h5", "x.html.json", ".page"):
        expect(tool("dpe-report", "--no-figures", work + "/source.h5", "-o", f"{work}/{name}"), 64, ".html", "--figures")
        assert not os.path.exists(f"{work}/{name}"), name
    for name in ("x.html", "x.HTM", "x"):
        expect(tool("dpe-report", "--no-figures", work + "/source.h5", "-o", f"{work}/{name}"), 0)


def test_secrets_in_urls(work):
    """A password or a key in a URL would be in tables and pages: it is refused and not repeated."""
    for url in ("http://me:SECRET@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?key=SECRET", "ftp://SECRET@127.0.0.1"):
        ran = tool("dpe-eval", "niah", "--model", work + "/model", "--corpus", work + "/corpus", "--length", "192", "--samples", "1",
                   "--method", "rope", "--engine", url, "-o", work + "/secret.h5")
        expect(ran, 64, "--engine-key-file")
        assert b"SECRET" not in ran.stdout + ran.stderr and not glob.glob(work + "/secret.h5*"), ran


def test_inputs_are_never_replaced(work):
    """--force replaces no file that the command reads: in a method, in a folder of samples, among predictions."""
    model = ["--model", work + "/model", "--length", "400", "--samples", "1", "--threads", "1"]
    folder = work + "/inputs"
    os.makedirs(folder + "/answers")

    def kept(path, *words):
        before = read(path)
        expect(tool("dpe-eval", *words, "--force"), 73, "is never replaced")
        assert read(path) == before and not os.path.exists(path + ".journal")

    table = folder + "/table.json"
    expect(tool("dpe-export", work + "/source.h5", "-o", table), 0)
    kept(table, "niah", *model, "--corpus", work + "/corpus", "--method", "select:k=4,over=table:" + table, "-o", table)
    data = ["data", *model, "--tasks", "vt,fwe", "-o", folder + "/data"]
    expect(tool("dpe-eval", *data), 0)
    written = folder + "/data/vt/validation.jsonl"
    kept(written, *data, "--corpus", written)
    vt = [*model, "--method", "rope"]
    kept(written, "ruler", *vt, "--tasks", "vt", "--data", folder + "/data", "-o", written)
    fwe = folder + "/data/fwe/validation.jsonl"  # not read, but a file of the folder that is
    kept(fwe, "compare", *vt, "--suite", "ruler:tasks=vt,data=" + folder + "/data", "-o", fwe)
    os.mkdir(folder + "/bench")
    write(folder + "/bench/passkey.jsonl", b"{}")
    kept(folder + "/bench/passkey.jsonl", "infinitebench", *vt, "--data", folder + "/bench", "-o",
         folder + "/bench/passkey.jsonl")
    os.mkdir(folder + "/answers/rope-400")
    answers = folder + "/answers/rope-400/vt.jsonl"
    shutil.copy(written, answers)
    words = ["ruler", *vt, "--tasks", "vt", "--data", folder + "/answers/rope-400", "-o", folder + "/x.h5"]
    kept(answers, *words, "--predictions", folder + "/answers")
    before = read(answers)
    for name in ("answers/rope-400", "others"):  # files that are not there yet, among those that are read and elsewhere
        expect(tool("dpe-eval", *words, "--force", "--predictions", folder + "/" + name), 0)
    assert read(answers) == before


def test_a_table_that_may_not_be_read(work):
    """77, as for any other file."""
    table = work + "/closed.h5"
    shutil.copy(work + "/source.h5", table)
    os.chmod(work, 0o755)
    os.chmod(table, 0)
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for words in (["dpe-run", "-m", work + "/model", "--show-plan", "--length", "192", "--table", table],
                  ["dpe-export", "--show", table]):
        ran = subprocess.run([os.path.join(BIN, words[0]), *words[1:]], capture_output=True, check=False, timeout=GENEROUS,
                             **other)
        expect(ran, 77, table + ": cannot be opened: Permission denied")


def test_tables_in_other_forms(work):
    """A form that is not read names those that are; a missing value of a JSON table is the one that is named."""
    show = ["dpe-run", "-m", work + "/model", "--show-plan", "--length", "192", "--table"]
    for form in ("yaml", "csv", "safetensors"):
        table = f"{work}/form.{form}"
        expect(tool("dpe-export", work + "/source.h5", "-o", table), 0)
        expect(tool(*show, table), 65, table, "expected a DPE table as HDF5 or JSON", "dpe-export TABLE.h5 --format json")
    table = work + "/lacks.json"
    expect(tool("dpe-export", work + "/source.h5", "-o", table), 0)
    values = json.loads(read(table))
    # The trained length that is shown is the table's, whatever the model says of itself.
    write(table, json.dumps(values | {"trained_length": values["trained_length"] // 2}).encode())
    shown = tool(*show, table)
    expect(shown, 0)
    assert f"trained length  {values['trained_length'] // 2}\n" in shown.stdout.decode(), shown.stdout
    del values["scale_factor"]
    write(table, json.dumps(values).encode())
    expect(tool(*show, table), 65, '"scale_factor": expected a list')
    write(table, b'{"schema_name": ')
    expect(tool(*show, table), 65, "line 1")


def test_names_that_are_not_utf8(work):
    """A folder of a model may have any name; a text of a table may not, where the form cannot hold it."""
    model = os.path.join(work.encode(), b"m\xff")
    os.symlink("model", model)
    expect(tool("dpe-norms", "--model", model, "--corpus", work + "/corpus", "--samples", "1", "--length", "64",
                "--threads", "1", "-o", work + "/norms-utf8.h5"), 0)
    data = read(work + "/source.h5")[:-24]  # without its checksum
    at, seen = data.find(b"llama\0"), 0
    while at >= 0:
        write(work + "/bad.h5", data[:at] + b"llam\xff" + data[at + 5:])
        forms = [tool("dpe-export", "--unchecked", work + "/bad.h5", "--format", form, "-o", "-")
                 for form in ("json", "safetensors", "csv")]
        assert len({ran.returncode for ran in forms}) == 1, forms
        seen += all(b"bad.h5: model_type: expected UTF-8, found other bytes" in ran.stderr for ran in forms)
        at = data.find(b"llama\0", at + 1)
    assert seen == 1


def test_no_pairs_are_a_usage_error(work):
    """A table that moves nothing is not made by mistake."""
    expect(tool("dpe-norms", "--model", work + "/model", "--corpus", work + "/corpus", "--samples", "2",
                "--threads", "1", "-o", work + "/norms.h5"), 0)
    both = [work + "/source.h5", work + "/norms.h5"]
    for k in ("0", "1e-400", "-1", "0.0"):
        expect(tool("dpe-export", *both, "-o", work + "/none.h5", "--top-k=" + k), 64)
        expect(tool("dpe-calibrate", "--model", work + "/model", "--corpus", work + "/corpus", "--length",
                    "192", "-o", work + "/none", "--top-k=" + k), 64)
    expect(tool("dpe-export", *both, "-o", work + "/none.h5", "--top-k", "0.01"), 64, "one pair")
    assert not os.path.exists(work + "/none.h5") and not os.path.exists(work + "/none")


def test_posixly_correct(work):
    """With POSIXLY_CORRECT options end at the first input: a calibration runs through."""
    ran = tool("dpe-calibrate", "--model", work + "/model", "--corpus", work + "/corpus", "--length",
               "192", "--groups", "2", "--samples", "4", "--lengths", "8,32,64",
               "--threads", "1", "-o", work + "/posix", POSIXLY_CORRECT="1")
    expect(ran, 0)
    assert os.path.exists(work + "/posix/report.html")


def test_command_lines_are_read_first(work):
    """A part's command line that its tool would refuse ends the calibration before the first part."""
    ran = tool("dpe-calibrate", "--model", work + "/model", "--corpus", work + "/corpus", "--length",
               "192", "--threads", "1", "--select", "unheard-of", "-o", work + "/early")
    expect(ran, 64, "unheard-of")
    assert not os.path.exists(work + "/early")


def test_limits_of_a_calibration(work):
    """Few open files and a folder that may not be written: 74 and 77, with the reason."""
    words = [os.path.join(BIN, "dpe-calibrate"), "--model", work + "/model", "--corpus",
             work + "/corpus", "--length", "192", "--threads", "1", "-o", work + "/limits"]
    for files in (4, 5):
        ran = subprocess.run(["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *words],
                             capture_output=True, check=False, timeout=GENEROUS)
        expect(ran, 74, "Too many open files")
    if os.geteuid() == 0:
        os.chmod(work, 0o755)
        os.mkdir(work + "/closed", 0o555)
        words[-1] = work + "/closed/limits"
        ran = subprocess.run(words, capture_output=True, check=False, timeout=GENEROUS, user=65534,
                             group=65534, extra_groups=[])
        expect(ran, 77, work + "/closed/limits")


def test_tables_without_memory(work):
    """A whole table that is read with too little memory is not called bad: 71, never 65. The least that
    is enough is found first, on any machine."""
    words = [os.path.join(BIN, "dpe-report"), "--no-figures", "--force", "--quiet", work + "/source.h5", "-o",
             work + "/little.html"]

    def ended(kib):
        ran = subprocess.run(["sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", *words],
                             capture_output=True, check=False, timeout=GENEROUS)
        return ran.returncode, ran.stderr

    few, enough = 0, 1 << 22
    while enough - few > 500:
        middle = (few + enough) // 2
        few, enough = (few, middle) if ended(middle)[0] == 0 else (middle, enough)
    for step in range(1, 13):
        code, said = ended(enough - 250 * step)
        assert code != 65, (enough - 250 * step, said)
    code, said = ended(enough - 4000)  # HDF5 itself would crash with so little
    assert SANITIZED or (code == 71 and b"HDF5 needs" in said), (code, said)


def test_little_address_space(work):
    """OpenBLAS, which tries again without end when it cannot map its buffers, is not loaded then."""
    def ended(kib, **environment):
        words = [os.path.join(BIN, "dpe-run"), "-m", work + "/model", "-p", "The fox", "-n", "2", "--device", "cpu",
                 "--threads", "4"]
        return subprocess.run(["sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", *words], capture_output=True,
                              check=False, timeout=GENEROUS, env={**os.environ, **environment})

    if not SANITIZED:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            if " avx2 " in file.read():
                expect(ended(200000), 0)
        expect(ended(200000, DPE_CPU="portable"), 71, "OpenBLAS", "--threads")
    expect(ended("unlimited", DPE_CPU="portable"), 0)


def test_keys_and_values_in_a_file(work):
    """The file of a session whose keys and values do not fit into --max-memory: the table of the cache in memory, bit for
    bit; a file that may not grow, and a kill, leave nothing and lose nothing; types of the cache are different runs."""
    folder = work + "/keys"
    os.mkdir(folder)

    def words(name, *more):
        return [BIN + "/dpe-eval", "niah", "-m", ROOT + "/data/reference", "--corpus", ROOT + "/data/sample", "-l", "2048",
                "--samples", "3", "--method", "self-extend", "--threads", "2", "-o", f"{work}/{name}", *more]

    there = os.environ | {"TMPDIR": folder}

    def run(command):
        return subprocess.run(command, capture_output=True, check=False, timeout=GENEROUS, env=there)

    in_file = ["--max-memory", "32M"]
    expect(run(words("memory.h5")), 0)
    expect(run(["sh", "-c", 'ulimit -f 5000; exec "$@"', "sh", *words("file.h5", *in_file)]), 74, "cannot reserve 8.0 MiB",
           "File too large", folder)
    assert os.listdir(folder) == []
    child = subprocess.Popen(words("file.h5", *in_file), env=there, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while b"keys and values: 8.0 MiB in a file" not in child.stderr.readline():
        assert child.poll() is None, child
    child.kill()
    child.communicate()
    assert os.listdir(folder) == []
    expect(run(words("file.h5", *in_file)), 0)
    same_tables(work + "/memory.h5", work + "/file.h5")
    expect(run(words("memory.h5", "--kv-cache-dtype", "bf16")), 78, "kv_cache_dtype")
    assert os.listdir(folder) == []


def test_methods_that_need_different_memory(work):
    """The method that needs most decides before the first sample, also where one whose file is larger needs less."""
    out = work + "/needs.h5"
    for mib in range(14, 30):
        ran = subprocess.run([BIN + "/dpe-eval", "niah", "-m", ROOT + "/data/reference", "--corpus", ROOT + "/data/sample", "-l",
                              "1024", "--samples", "1", "--method", "rope", "--method", "select:representative=attended",
                              "--method", "dca", "--threads", "2", "--max-memory", f"{mib}M", "-o", out],
                             capture_output=True, check=False, timeout=GENEROUS)
        if ran.returncode == 0:
            break
        expect(ran, 71, "are allowed")
        assert not os.path.exists(out + ".journal"), (mib, ran.stderr)
    assert 14 < mib and ran.returncode == 0 and b"in a file" in ran.stderr, (mib, ran)
    codes = []
    for mib in range(16, 24):  # what a sweep decodes together fits its validation's plans too
        out = f"{work}/against{mib}.h5"
        ran = subprocess.run([BIN + "/dpe-detect", "-m", ROOT + "/data/reference", "--corpus", ROOT + "/data/sample", "-l", "1024",
                              "--samples", "2", "--temperature", "off", "--task", "user",
                              "--against", "dca", "--threads", "2", "--kv-cache-dtype", "f32", "--max-memory", f"{mib}M", "-o", out],
                             capture_output=True, check=False, timeout=GENEROUS, env=os.environ | {"TMPDIR": work + "/nowhere"})
        codes.append(ran.returncode)
        assert ran.returncode in (0, 71, 73) and not os.path.exists(out + ".journal"), (mib, ran)
    fits = [code == 0 for code in codes]
    assert fits == sorted(fits) and not fits[0] and fits[-1], codes


def test_names_of_one_plan(work):
    """Of several names of one plan the table keeps the one that its run recorded, whatever is run again."""
    words = ["ppl", "-m", ROOT + "/data/reference", "--corpus", ROOT + "/data/sample", "-l", "512", "--samples", "1", "--threads", "1",
             "--method", "rope", "--method", "pi:scale=1", "--method", "ntk:scale=1", "-o", work + "/names.h5"]
    seen = []
    for _ in range(2):
        expect(tool("dpe-eval", *words), 0)
        seen.append(subprocess.run(["h5dump", "-d", "/plans/name", work + "/names.h5"], check=True, capture_output=True).stdout)
    assert seen[0] == seen[1] and seen[0].count(b"scale=1") == 0, seen


def test_escapes_in_texts(work):
    """A lock's host, and a path, that hold escape sequences reach the terminal as \\xNN."""
    os.mkdir(work + "/held.h5.journal")
    write(work + "/held.h5.journal/LOCK", b"host \x1b[31mevil pid 4711 start 9 boot b since then\n")
    ran = detect(work, "held.h5")
    expect(ran, 73, "\\x1b[31mevil")
    assert b"\x1b" not in ran.stderr
    ran = tool("dpe-export", "--show", work + "/no\x1b]0;title\x07\nsuch")
    expect(ran, 66, "\\x1b]0;title\\x07\\x0asuch")
    assert b"\x1b" not in ran.stderr
    for name, words in {"dpe-run": ["--log-format", "\x1b[2J"], "dpe-detect": ["--\x1b[2J"], "dpe-norms": ["\x1b[2J"],
                        "dpe-bench": ["--repeats", "\x1b[2J"], "dpe-eval": ["niah", "--official", "\x1b[2J"]}.items():
        ran = tool(name, *words)
        expect(ran, 64, "\\x1b[2J")
        assert b"\x1b" not in ran.stderr, ran
    expect(tool("dpe-export", work + "/source.h5", "-o", work + "/good.json"), 0)
    table = json.loads(read(work + "/good.json"))
    table["model"]["model_type"] = "ll\x1b[2Jama"
    table["model"]["fingerprint"] = "f\nnext line"
    write(work + "/evil.json", json.dumps(table).encode())
    ran = tool("dpe-export", "--show", work + "/evil.json")
    assert b"\x1b" not in ran.stdout + ran.stderr and b"\nnext" not in ran.stdout, ran


def main():
    work = tempfile.mkdtemp()
    try:
        subprocess.run([sys.executable, ROOT + "/tests/cli/tiny_model.py",
                        ROOT + "/data/reference/tokenizer.json", work + "/model"], check=True)
        os.mkdir(work + "/corpus")
        shutil.copy(ROOT + "/data/sample/test/900000.txt", work + "/corpus")
        expect(detect(work, "source.h5"), 0)
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                test(work)
                print("passed:", name, flush=True)
    finally:
        shutil.rmtree(work)


main()

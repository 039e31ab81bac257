"""results.py BIN WORLD: results for scripts. --json is one document on standard output, with
the numbers that the table of the run has; with --log-format json every line of standard error is an object whose
progress has fields instead of a sentence."""
import json
import math
import os
import subprocess
import sys
import tempfile

BIN, ROOT = sys.argv[1:3]
MODEL = ["-m", os.path.join(ROOT, "data/reference")]
CORPUS = ["--corpus", os.path.join(ROOT, "data/sample")]
ENV = dict(os.environ, OMP_NUM_THREADS="2")


def run(tool, *words, code=0):
    ran = subprocess.run([os.path.join(BIN, tool), *words], capture_output=True, check=False, env=ENV)
    assert ran.returncode == code, (tool, words, ran)
    return ran


def document(tool, *words, code=0):
    found = json.loads(run(tool, *words, "--json", code=code).stdout)
    assert found["tool"] == tool and found["version"].startswith("dpe "), found
    return found


def test_run(work):
    info = document("dpe-run", *MODEL, "--info")
    assert info["trained_length"] == 256 and info["parameters"] == 3410176 and info["pairs"] == 32, info
    words = [*MODEL, "--nll", os.path.join(ROOT, "README.md"), "-c", "512"]
    nll = document("dpe-run", *words)
    assert nll["perplexity_low"] < nll["perplexity"] < nll["perplexity_high"] and nll["tokens_per_second"] > 0, nll
    assert math.isclose(math.exp(nll["nll"]), nll["perplexity"], rel_tol=1e-6), nll
    assert f"perplexity {nll['perplexity']:.4f}" in run("dpe-run", *words).stdout.decode()
    # Four windows are too few for an interval.
    with tempfile.NamedTemporaryFile("wb") as text:
        with open(os.path.join(ROOT, "README.md"), "rb") as readme:
            text.write(readme.read(5000))
        text.flush()
        words = [*MODEL, "--nll", text.name, "-c", "512"]
        short = document("dpe-run", *words)
        assert short["windows"] < 5 and short["perplexity_low"] is None and short["nll_high"] is None, short
        assert "(an interval needs 5 windows: a text of 2560 tokens, or a smaller --context)" in run("dpe-run", *words).stdout.decode()
    run("dpe-run", *MODEL, "-p", "Once", "--json", code=64)


def test_detect(work):
    words = [*MODEL, *CORPUS, "-l", "512", "--samples", "2", "-o", work + "/detect.h5"]
    lines = [json.loads(line) for line in
             run("dpe-detect", *words, "--log-format", "json").stderr.decode().splitlines()]
    assert all({"time", "level", "event"} <= line.keys() for line in lines), lines
    progress = [line for line in lines if line["level"] == "progress"]
    assert progress and all("message" not in line and line.get("done", 0) <= line["total"] for line in progress), progress
    begin = [line for line in lines if line["event"] == "begin"]
    assert len(begin) == 1 and begin[0]["done"] == 0, begin
    assert [line["event"] for line in lines][-1] == "next", lines
    found = document("dpe-detect", *words)
    assert len(found["tried"]) > 4 and len(found["validation"]) >= 2 and found["length"] == 512, found
    assert found["kept"] in [row["method"] for row in found["tried"]] and found["usable_length"] in (64, 256, 512), found
    lines = [row["line"] for row in found["answer"]]
    assert 3 < len(lines) <= 12 and lines == [line.strip() for line in run("dpe-detect", *words).stdout.decode().splitlines()][:len(lines)], lines
    assert [row["short_length"] for row in found["shorter"]] == [256], found
    # Of fewer tokens than the trained length, of which nothing is read then, there is no shorter text to compare with.
    within = document("dpe-detect", *MODEL, *CORPUS, "-l", "130", "--samples", "2", "-o", work + "/within.h5")
    assert within["usable_length"] is None and not within.get("shorter"), within
    assert within["kept"] != "rope" or " in 130 tokens" in within["answer"][0]["line"] + within["answer"][1]["line"], within
    # A search without a sweep has no ranks that could be varied.
    words_of_rank = run("dpe-eval", "ablate", *MODEL, *CORPUS, "--table", work + "/detect.h5", "--what", "rank", "-o", work + "/rank.h5", code=64)
    assert b"rank 1: expected 1 \xe2\x80\xa6 0, of the detection's sweep (--select paper or both)" in words_of_rank.stderr, words_of_rank
    # A budget below the least that is read says so; one below what was read loses nothing of it.
    assert b"a search reads 6 contexts of --length tokens at least" in run("dpe-detect", *words[:-1], work + "/least.h5", "--budget", "100tok").stderr
    assert document("dpe-detect", *words, "--budget", "100tok") == found
    again = run("dpe-detect", *words).stderr.decode()
    assert "complete: no sample is missing" in again and "Next: dpe-run -m " in again, again


def test_words(work):
    """What a screen says where little was measured."""
    for samples, few in (("3", True), ("7", False)):
        ran = run("dpe-eval", "ppl", *MODEL, *CORPUS, "-l", "1024", "--samples", samples, "--method", "yarn", "--method", "rope", "-o",
                  f"{work}/{samples}.h5").stdout.decode()
        assert ("Of fewer than six it is never below 0.05: more --samples." in ran) == few and "books" in ran, ran
    run("dpe-export", "--method", "self-extend:group=4", *MODEL, "--length", "600", "-o", work + "/unmeasured.h5")
    assert b"measured           nothing\n" in run("dpe-export", "--show", work + "/unmeasured.h5").stdout
    said = run("dpe-run", *MODEL, "--table", work + "/unmeasured.h5", "-p", "Once", "-n", "300").stderr
    assert b"entry: the only one, for 600 tokens; nothing was measured of it" in said, said
    # What is printed as the next command has the trained length that was given.
    said = run("dpe-detect", *MODEL, *CORPUS, "-l", "1024", "--trained-length", "200", "-o", work + "/given.h5").stderr.decode()
    commands = [line for line in said.splitlines() if "dpe-export --method" in line]
    assert commands and all(" --length 1024 " in line and " --trained-length 200 " in line for line in commands), said


def test_norms(work):
    words = [*MODEL, *CORPUS, "--samples", "1", "--lengths", "64", "-o", work + "/norms.h5"]
    found = document("dpe-norms", *words)
    assert len(found["heads"]) == 16 and found["heads"][5]["layer"] == 1, found
    assert all(0 < head["top_25"] < head["top_50"] < head["top_75"] < 1 for head in found["heads"]), found


def test_eval(work):
    words = ["niah", *MODEL, *CORPUS, "-l", "256,512", "--samples", "2", "--method", "rope", "--method", "pi", "-o",
             work + "/eval.h5"]
    found = document("dpe-eval", *words)
    assert [row["task_length"] for row in found["results"]] == [256, 256, 512, 512], found
    assert found["results"][0]["difference"] is None and found["results"][1]["p_value"] is not None, found


def test_export(work):
    check = ["--check", work + "/detect.h5", "-m"]
    assert document("dpe-export", *check, MODEL[1])["fits"]
    found = document("dpe-export", *check, os.path.join(ROOT, "tests/golden/llama"), code=65)
    assert not found["fits"] and "layers" in found["reason"], found


def main():
    with tempfile.TemporaryDirectory() as work:
        for test in (test_run, test_detect, test_words, test_norms, test_eval, test_export):
            test(work)
            print("passed:", test.__name__)


main()

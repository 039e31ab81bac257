#!/usr/bin/env python3
"""The programs of outputs/samples, run as they are: samples.py BIN ROOT PROBE."""
import importlib.util
import os
import subprocess
import sys
import tempfile

import numpy as np

BIN, ROOT, PROBE = sys.argv[1:]
SAMPLES, MODEL = os.path.join(ROOT, "outputs/samples"), os.path.join(ROOT, "data/reference")
sys.path.insert(0, os.path.join(ROOT, "tests/eval/serve"))
from serve_case import Server  # noqa: E402

os.environ["PATH"] = BIN + os.pathsep + os.environ["PATH"]
H5 = importlib.util.find_spec("h5py") is not None


def run(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def sample(name, *words):
    return run(sys.executable, os.path.join(SAMPLES, name), *words)


def table(folder, method, length, form="json"):
    path = os.path.join(folder, "table." + form)
    run(os.path.join(BIN, "dpe-export"), "--method", method, "-m", MODEL, "-l", length, "-o", path, "--force")
    return path


def test_read(folder):
    for form in ("json", "h5") if H5 else ("json",):
        path = table(folder, "dpe", 1024, form)
        assert "4 layers of 4 heads of 64, trained for 256 tokens; entries for [512, 1024]" in sample("read_table.py", path)
        assert "200 tokens: the model is run unchanged" in sample("read_table.py", path, 200)
        # Query 399 of groups at 128: 399/4 is 99, and 128 - 32 more.
        assert "scale 4: query 399 at 195, key 0 at 0" in sample("read_table.py", path, 400)
        assert "scale 4: query 599 at 185, key 0 at 0" in sample("read_table.py", path, 600)
        assert "3 bands" in sample("read_table.py", table(folder, "lampe", 1024, form))


def test_attention(folder):
    """Beside the engine's reference."""
    rng, tokens = np.random.default_rng(5), 120
    given, made, wanted = (os.path.join(folder, name) for name in ("in", "out", "wanted"))
    (rng.standard_normal((4 + 2 * 2) * tokens * 64, np.float32) * 2).tofile(given)
    for method in ("dpe:window=32,scales=2/3/4/6,groups=4,log-n=64,log-n-power=0.7,far-scale=0.8", "lampe:window=9,tail=5,map=90", "dca:chunk=24,local=7,far-scale=1.4",
                   "yarn:logit-scale-first=0.5", "leaky-rerope:window=16", "streaming-llm:sinks=3,window=40", "dope:heads=1/5/6",
                   "cope", "dpe:window=16,scales=3,logit-scale-heads=1.2:1.5,log-n=50,log-n-decay=0.25"):
        path = table(folder, method, 1024)
        run(PROBE, "attention", path, 1, given, wanted)
        for one in (path, table(folder, method, 1024, "h5"))[:2 if H5 else 1]:
            sample("own_attention.py", one, 1, given, made)
            found, expected = (np.fromfile(name, np.float32) for name in (made, wanted))
            assert np.abs(found - expected).max() < 2e-5 * np.ptp(expected), (method, one, np.abs(found - expected).max())


def test_sweep(folder):
    text = os.path.join(folder, "text")
    with open(os.path.join(ROOT, "data/sample/test", sorted(os.listdir(os.path.join(ROOT, "data/sample/test")))[0]), "rb") as book, \
            open(text, "wb") as file:
        file.write(book.read(20000))
    with Server(f"{BIN}/dpe-serve", "-m", MODEL, "--threads", 2, "-l", 640) as server:
        lines = sample("sweep_engine.py", f"http://127.0.0.1:{server.port}", MODEL, text, 600).splitlines()
    assert len(lines) == 6 and lines == sorted(lines) and lines[-1].endswith("unchanged"), lines
    # What this process finds under the same plan.
    formula = next(float(line.split()[0]) for line in lines if line.endswith("the formula"))
    assert formula < float(lines[-1].split()[0]) - 0.1, lines


for test in (test_read, test_attention, test_sweep):
    with tempfile.TemporaryDirectory() as made_folder:
        test(made_folder)
    print("passed:", test.__name__)

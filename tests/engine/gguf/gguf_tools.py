#!/usr/bin/env python3
"""gguf_tools.py BIN: the bundled model as GGUF files in every tool: as it is (the results of the folder), in blocks of Q8_0, and
those blocks unpacked once (equal within rounding, on every instruction set and on the reference)."""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[3]
sys.path[:0] = [str(HERE.parents[2] / "lib"), str(HERE.parent)]
from gguf_models import convert, floats, quantise  # noqa: E402
from gguf_tokenizer import byte_level  # noqa: E402
from gguf_writer import BOOL, F32, I32, STRING, U32, write  # noqa: E402

BIN = os.path.abspath(sys.argv[1])
MODEL = ROOT / "data" / "reference"
TEXT = str(ROOT / "LICENSE")


def tool(name, *words, code=0, **environment):
    ran = subprocess.run([os.path.join(BIN, name), *map(str, words)], capture_output=True, check=False, timeout=1200,
                         stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    assert ran.returncode == code, (name, words, ran.returncode, ran.stderr.decode(errors="replace"))
    return ran.stdout.decode(errors="replace")


def make(work):
    meta, tensors = convert(MODEL)
    with open(MODEL / "tokenizer.json", encoding="utf-8") as file:
        meta = [line for line in meta if line[0] != "tokenizer.ggml.bos_token_id"] + byte_level(json.load(file))
    meta.append(("tokenizer.chat_template", STRING, "{{ bos_token }}[{{ messages[0]['content'] }}]"))
    packed, unpacked = [], []
    for name, shape, number, data in tensors:
        if len(shape) == 2 and shape[1] % 32 == 0:
            blocks, back = quantise(floats(number, data))
            packed.append((name, shape, 8, blocks))
            unpacked.append((name, shape, 0, back))
        else:
            packed.append((name, shape, number, data))
            unpacked.append((name, shape, number, data))
    paths = [os.path.join(work, name + ".gguf") for name in ("same", "packed", "unpacked")]
    for path, content in zip(paths, (tensors, packed, unpacked)):
        write(path, meta, content)
    return paths


def pieces_of_the_user(work):
    """Symbols of the user's that are written with the word's mark take part in the merges, wherever they stand: of pairs
    with the best score the leftmost is joined first, as in llama.cpp."""
    bar = "\u2581"
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [bar * 3, bar, "x", "y", bar + "x", bar * 2, "xy"]
    kinds = [2, 3, 3] + [6] * 256 + [4, 1, 1, 1, 1, 4, 1]
    scores = [0.0] * 259 + [0.0, -1.0, -2.0, -3.0, -0.5, 0.0, -0.25]
    meta, tensors = convert(MODEL)
    meta = [line for line in meta if not line[0].startswith("tokenizer.")] + [
        ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", STRING, words), ("tokenizer.ggml.scores", F32, scores),
        ("tokenizer.ggml.token_type", I32, kinds), ("tokenizer.ggml.unknown_token_id", U32, 0),
        ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.add_space_prefix", BOOL, False)]
    path = os.path.join(work, "pieces.gguf")
    write(path, meta, tensors)
    for text, ids in (("y   xy", "1 262 259 265"), ("x  y x", "1 261 264 262 263"), ("    ", "1 259 260"), ("xyx", "1 265 261")):
        found = tool("dpe-run", "-m", path, "-p", text, "--tokenize").strip()
        assert found == ids, (text, found, ids)
    architecture = next(value for key, _, value in meta if key == "general.architecture")
    write(path, [*meta, (architecture + ".attention.causal", BOOL, False)], tensors)
    assert "attention.causal" in tool_error("dpe-run", "-m", path, "--info")


def tool_error(*words):
    ran = subprocess.run([os.path.join(BIN, words[0]), *words[1:]], capture_output=True, check=False, timeout=600)
    assert ran.returncode == 65, (words, ran.returncode)
    return ran.stderr.decode(errors="replace")


def perplexity(model, text, *words, **environment):
    out = tool("dpe-run", "-m", model, "--nll", text, "--context", "128", "--threads", "2", "--dtype", "f32", "--json", *words, **environment)
    return json.loads(out)["perplexity"]


def main():
    with tempfile.TemporaryDirectory() as work:
        pieces_of_the_user(work)
        same, packed, unpacked = make(work)
        for words in (("--tokenize", "--prompt-file", TEXT), ("-p", "Once", "-n", "16"), ("-p", "Once", "-n", "4", "--raw")):
            assert tool("dpe-run", "-m", same, *words) == tool("dpe-run", "-m", MODEL, *words), words
        text = work + "/text"
        with open(TEXT, encoding="utf-8") as file, open(text, "w", encoding="utf-8") as short:
            short.write(file.read(1500))
        assert perplexity(same, text) == perplexity(MODEL, text)
        info = tool("dpe-run", "-m", packed, "--info")
        assert re.search(r"weights +\d+, tensors of Q8_0 \d+, ", info), info
        assert "tensor_types" in tool("dpe-run", "-m", packed, "--info", "--json")
        want = perplexity(unpacked, text)
        for device, sets in (("cpu", ("portable", "avx2", "avx512")), ("reference", ("avx512",))):
            for which in sets:
                got = perplexity(packed, text, "--device", device, DPE_CPU=which)
                assert abs(got / want - 1) < 1e-5, (device, which, got, want)
                print(f"{device} {which}: {got:.6f}, unpacked once {want:.6f}")
        assert tool("dpe-run", "-m", packed, "-p", "Once", "-n", "24") == tool("dpe-run", "-m", unpacked, "-p", "Once", "-n", "24")
        chat = tool("dpe-run", "-m", packed, "--chat", "-p", "Hi", "-n", "4")
        assert chat
        corpus = str(ROOT / "data" / "sample")
        tool("dpe-norms", "-m", packed, "--corpus", corpus, "-o", work + "/norms.h5", "--length", "256", "--samples", "2")
        sweep = ("--corpus", corpus, "-l", "512", "--groups", "2", "--lengths", "64,128", "--samples", "2", "--select", "paper",
                 "--temperature", "off", "--seed", "3", "-o", work + "/sweep.h5")
        tool("dpe-detect", "-m", packed, *sweep)
        tool("dpe-eval", "niah", "-m", packed, "--corpus", corpus, "-l", "256", "--samples", "2", "--method", "rope", "-o",
             work + "/compare.h5")
        # The rows of one file are not those of another that differs only in its types.
        os.rename(work + "/sweep.h5", work + "/first.h5")
        assert tool("dpe-run", "-m", packed, "--table", work + "/first.h5", "-p", "Once", "-n", "2")
        tool("dpe-run", "-m", unpacked, "--table", work + "/first.h5", "-p", "Once", "-n", "2", code=65)
        print("tools ok")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compare dpe-run on a GGUF file with llama.cpp: tokens, perplexity of a text, and greedy continuations.

    python3 tests/golden/gguf_llama_cpp.py MODEL.gguf TEXT [--run build/bin/dpe-run] [--context 2048] [--windows 8] [--threads 2] [--unpacked]

Run by hand with a Python that has llama-cpp-python (built from its source package), gguf and numpy; nothing of it is in the tree. Perplexity is that of
llama-perplexity: windows of --context tokens, the first token replaced by BOS where the file adds one, the second half scored;
llama.cpp keeps its keys and values as f16, and it rounds activations to 8 bits before it multiplies them with blocks, which dpe does not.
--unpacked gives llama.cpp the same weights as F32, with keys and values in F32: then it rounds no more than dpe. A greedy continuation may differ where two logits nearly tie: the two and their
distance are printed. Exits 1 when the perplexities differ by more than 0.5 % or a difference is no near tie (0.05 of a logit's unit and less is one).
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

import llama_cpp as lc
import numpy as np
from gguf import GGUFReader, dequantize

PROMPTS = ["The capital of France is", "Once upon a time there was a king who", "Water boils at a temperature of"]


def unpack(source, target):
    """The file with all of its tensors as F32."""
    reader = GGUFReader(source)
    infos, parts, at = [], [], 0
    for tensor in reader.tensors:
        floats = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        shape = [int(size) for size in reversed(tensor.shape)]
        infos.append((tensor.name, shape, 0, at))
        parts.append(tensor)
        at += (floats.nbytes + 31) // 32 * 32
    first = min(tensor.field.offset for tensor in reader.tensors)
    with open(source, "rb") as f:
        start = bytearray(f.read(first))
    for name, shape, number, offset in infos:
        start += struct.pack("<Q", len(name.encode())) + name.encode() + struct.pack("<I", len(shape))
        start += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", number, offset)
    with open(target, "wb") as f:
        f.write(start + b"\0" * (-len(start) % 32))
        for tensor in parts:
            data = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).tobytes()
            f.write(data + b"\0" * (-len(data) % 32))


class Model:
    def __init__(self, path, context, threads, unpacked):
        lc.llama_backend_init()
        self.quiet = lc.llama_log_callback(lambda level, text, user: None)
        lc.llama_log_set(self.quiet, None)
        self.model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        params = lc.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, 256, 256
        if unpacked:
            params.type_k = params.type_v = 0  # F32
        params.n_threads = params.n_threads_batch = threads
        self.context = lc.llama_init_from_model(self.model, params)
        self.vocab = lc.llama_model_get_vocab(self.model)
        self.size = lc.llama_vocab_n_tokens(self.vocab)

    def tokens(self, text, special):
        data = text.encode()
        room = (lc.llama_token * (len(data) + 8))()
        n = lc.llama_tokenize(self.vocab, data, len(data), room, len(room), special, False)
        return list(room[:n])

    def logits(self, tokens, start, wanted):
        """Logits after tokens[start…] of those positions that are wanted; tokens before are in the cache."""
        rows = []
        for first in range(start, len(tokens), 256):
            part = tokens[first:first + 256]
            batch = lc.llama_batch_init(len(part), 0, 1)
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i] = token, first + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = wanted(first + i)
            if lc.llama_decode(self.context, batch):
                sys.exit("llama_decode failed")
            for i in range(len(part)):
                if wanted(first + i):
                    row = lc.llama_get_logits_ith(self.context, i)
                    rows.append(np.ctypeslib.as_array(row, (self.size,)).copy())
            lc.llama_batch_free(batch)
        return rows

    def clear(self):
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)

    def perplexity(self, tokens, context, windows):
        half, total, n = context // 2, 0.0, 0
        bos = lc.llama_vocab_bos(self.vocab) if lc.llama_vocab_get_add_bos(self.vocab) else None
        for w in range(windows):
            ids = tokens[w * context:(w + 1) * context]
            ids[0] = ids[0] if bos is None else bos
            self.clear()
            rows = self.logits(ids, 0, lambda i: half <= i < context - 1)
            for row, target in zip(rows, ids[half + 1:]):
                row = row.astype(np.float64)
                top = row.max()
                total += top + np.log(np.exp(row - top).sum()) - row[target]
                n += 1
        return float(np.exp(total / n)), bos is not None

    def greedy(self, tokens, n):
        self.clear()
        ids, rows = list(tokens), []
        for step in range(n):
            row = self.logits(ids, 0 if step == 0 else len(ids) - 1, lambda i: i == len(ids) - 1)[-1]
            rows.append(row)
            ids.append(int(row.argmax()))
            if lc.llama_vocab_is_eog(self.vocab, ids[-1]):
                break
        return ids[len(tokens):], rows


def run(options, *words):
    command = [options.run, "-m", options.model, "--threads", str(options.threads), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode(errors="replace")


def compare_greedy(options, model, prompt):
    mine = run(options, "-p", prompt, "-n", "50")
    ids = model.tokens(prompt, True)
    theirs, rows = model.greedy(ids, 50)
    got = [int(x) for x in run(options, "-p", prompt + mine.removesuffix("\n"), "--tokenize", "--raw").split()]
    want = model.tokens(prompt, False) + theirs
    same = 0
    while same < min(len(got), len(want)) and got[same] == want[same]:
        same += 1
    step = same - len(model.tokens(prompt, False))
    if step >= len(theirs) or (step >= len(theirs) - 1 and lc.llama_vocab_is_eog(model.vocab, theirs[-1])):
        print(f"  {prompt!r}: {len(theirs)} tokens equal")
        return True
    if not 0 <= step < len(rows) or same >= len(got):
        print(f"  {prompt!r}: differs at step {step}, which the text does not show: {mine!r}")
        return False
    row = rows[step]
    gap = float(row.max() - row[got[same]])
    print(f"  {prompt!r}: {step} tokens equal, then {want[same]} and {got[same]}, whose logits in llama.cpp are "
          f"{float(row.max()):.4f} and {float(row[got[same]]):.4f} ({gap:.4f} apart)")
    return gap <= 0.05


def compare(options, model):
    with open(options.text, encoding="utf-8") as f:
        text = f.read()
    want = model.tokens(text, True)
    got = [int(x) for x in run(options, "--prompt-file", options.text, "--tokenize").split()]
    print(f"{options.model}: {len(want)} tokens, {'equal' if got == want else 'DIFFERENT'}", flush=True)
    good = got == want
    windows = min(options.windows, len(want) // options.context)
    theirs, bos = model.perplexity(list(want), options.context, windows)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        end = len(text)
        while len(model.tokens(text[:end], True)) >= (windows + 1) * options.context:
            end = end * 9 // 10
        f.write(text[:end])
        f.flush()
        words = ["--nll", f.name, "--context", str(options.context), "--json"] + ([] if bos else ["--raw"])
        result = json.loads(run(options, *words))
    mine = result["perplexity"]
    print(f"  perplexity of {windows} windows of {options.context}: dpe {mine:.5f}, llama.cpp {theirs:.5f} "
          f"({100 * (mine / theirs - 1):+.3f} %)", flush=True)
    good = good and abs(mine / theirs - 1) <= 0.005
    for prompt in PROMPTS:
        good = compare_greedy(options, model, prompt) and good
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--run", default="build/bin/dpe-run")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--unpacked", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(options.run))) as work:
        path = options.model
        if options.unpacked:
            path = os.path.join(work, "unpacked.gguf")
            unpack(options.model, path)
        sys.exit(compare(options, Model(path, options.context, options.threads, options.unpacked)))


if __name__ == "__main__":
    main()

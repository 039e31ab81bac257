#!/usr/bin/env python3
"""Prompts and decoding in dpe-bench and in llama.cpp, in turn, on the same cores: a model in several types, at several depths.

    llama.py DPE_BENCH MODEL.gguf WORK [--types BF16,Q8_0,Q4_1,Q4_K_M] [--depths 16,512,4096] [--threads 2,1] [--rounds 2] [--cores 0,1]

By hand, on an idle machine. Needs llama-cpp-python with a library of llama.cpp's sources (those in its package on PyPI, 0.3.36: vendor/llama.cpp;
LLAMA_CPP_LIB_PATH names another library's folder). llama.cpp itself makes WORK/TYPE.gguf of MODEL. Each program reads a prompt of so many tokens in
parts of 512 and then decodes 16 tokens; the medians of all rounds are printed, and llama.cpp's time over dpe's."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

NEW, PART = 16, 512


def quiet():
    import llama_cpp as lc
    call = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(call, None)
    return lc, call  # which must live as long as the library


def make(source, kind, path):
    lc, _call = quiet()
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = getattr(lc, "LLAMA_FTYPE_MOSTLY_" + kind), True, 2
    assert lc.llama_model_quantize(str(source).encode(), str(path).encode(), params) == 0, path


def run_llama(path, threads, depths):
    """Of each depth the seconds of a prompt of that length and of a decoded token, in a process of its own (below)."""
    lc, _call = quiet()
    model = lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())
    assert model, path
    params = lc.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = max(depths) + NEW + 1, PART, PART
    params.n_threads = params.n_threads_batch = threads
    context = lc.llama_init_from_model(model, params)
    batch = lc.llama_batch_init(PART, 0, 1)

    def feed(first, n, wanted):
        batch.n_tokens = n
        for i in range(n):
            batch.token[i], batch.pos[i], batch.logits[i] = 7 * (first + i) % 500, first + i, wanted and i == n - 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        assert lc.llama_decode(context, batch) == 0
        lc.llama_synchronize(context)

    for tokens in depths:
        lc.llama_memory_clear(lc.llama_get_memory(context), True)
        begin = time.perf_counter()
        for first in range(0, tokens, PART):
            n = min(PART, tokens - first)
            feed(first, n, first + n == tokens)
        prompt = time.perf_counter() - begin
        begin = time.perf_counter()
        for i in range(NEW):
            feed(tokens + i, 1, True)
        print(prompt, (time.perf_counter() - begin) / NEW)


def run_dpe(bench, path, threads, depths, work):
    out = os.path.join(work, "bench.json")
    lengths = [word for tokens in depths for word in ("--length", str(tokens))]
    subprocess.run([bench, "--shape", path, *lengths, "--method", "rope", "--threads", str(threads), "--new", str(NEW), "--repeats", "1", "--json", out],
                   check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if "prefill_s" in row]
    os.remove(out)
    return [(row["prefill_s"], row["token_s"]) for row in rows]


def measure(bench, ours, theirs, threads, depths, rounds, work):
    """`ours` is a folder or GGUF file for dpe-bench, `theirs` a GGUF file."""
    times = {"dpe": [], "llama.cpp": []}
    for _ in range(rounds):
        times["dpe"].append(run_dpe(bench, ours, threads, depths, work))
        said = subprocess.run([sys.executable, __file__, "--llama", theirs, str(threads), *map(str, depths)], check=True, stdout=subprocess.PIPE,
                              text=True).stdout
        times["llama.cpp"].append([tuple(map(float, line.split())) for line in said.splitlines()])
    for d, tokens in enumerate(depths):
        middle = {name: [statistics.median(column) for column in zip(*(rows[d] for rows in of))] for name, of in times.items()}
        for name, (prompt, token) in middle.items():
            print(f"{name:10} {tokens} tokens, {threads} threads: {prompt:8.3f} s ({tokens / prompt:.0f} tokens/s), a decoded token {1e3 * token:8.2f} ms; "
                  f"rounds {', '.join(f'{row[d][0]:.3f} s {1e3 * row[d][1]:.2f} ms' for row in times[name])}")
        over = [b / a for a, b in zip(middle["dpe"], middle["llama.cpp"])]
        print(f"llama.cpp over dpe: prompt {over[0]:.2f}, decoding {over[1]:.2f}; load {os.getloadavg()[0]:.1f}", flush=True)


def arguments(parser, depths, threads):
    """The options that all comparisons have."""
    parser.add_argument("--depths", default=depths)
    parser.add_argument("--threads", default=threads)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", default="0,1")
    args = parser.parse_args()
    os.sched_setaffinity(0, {int(core) for core in args.cores.split(",")})
    args.depths, args.threads = [[int(n) for n in words.split(",")] for words in (args.depths, args.threads)]
    return args


def main():
    if sys.argv[1] == "--llama":
        run_llama(sys.argv[2], int(sys.argv[3]), [int(n) for n in sys.argv[4:]])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("model")
    parser.add_argument("work")
    parser.add_argument("--types", default="BF16,Q8_0,Q4_1,Q4_K_M")
    args = arguments(parser, "16,512,4096", "2,1")
    for kind in args.types.split(","):
        path = pathlib.Path(args.work) / f"{kind}.gguf"
        if not path.exists():
            make(args.model, kind, path)
        for threads in args.threads:
            print(kind)
            measure(args.bench, str(path), str(path), threads, args.depths, args.rounds, args.work)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A hybrid of Qwen3.5-0.8B's shape with random weights: prompts and decoding in dpe-bench and in llama.cpp (qwen35), in turn, on the same cores.

    hybrid_llama.py DPE_BENCH LLAMA_CPP WORK [--tokens 4096] [--rounds 3] [--cores 0,1] [--tiny]

By hand, on an idle machine. Needs torch and transformers (5.24), and llama-cpp-python with a library of LLAMA_CPP's sources (those in its
package on PyPI, 0.3.36: vendor/llama.cpp; LLAMA_CPP_LIB_PATH names another library's folder). WORK gets the folder (BF16, 1.5 GB) and the
GGUF file that llama.cpp's own converter makes of it, both once. --tiny: a shape that tries the script alone. Each program reads a prompt of so many
tokens in parts of 512 and then decodes 16 tokens; the medians of all rounds are printed, and llama.cpp's time over dpe's."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SHAPE = dict(vocab_size=248320, hidden_size=1024, intermediate_size=3584, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2,
             head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128)
TINY = dict(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=32, linear_value_head_dim=32)
NEW, PART = 16, 512


def make(folder, gguf_file, args):
    """The model in both forms; llama.cpp's converter needs no tokenizer here."""
    import torch
    import transformers
    sys.path[:0] = [os.path.join(args.llama, "gguf-py"), args.llama]
    import gguf
    from conversion import ModelBase, get_model_class
    from conversion.base import TextModel

    torch.manual_seed(3)
    rope = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_interleaved=True,
                mrope_section=[2, 1, 1] if args.tiny else [11, 11, 10])
    config = transformers.Qwen3_5TextConfig(**(TINY if args.tiny else SHAPE), max_position_embeddings=262144, tie_word_embeddings=True,
                                            rope_parameters=rope, bos_token_id=None, eos_token_id=None)
    transformers.Qwen3_5ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    TextModel.set_vocab = lambda model: (model.gguf_writer.add_tokenizer_model("none"),
                                         model.gguf_writer.add_vocab_size(model.hparams["vocab_size"]))
    made = get_model_class(ModelBase.load_hparams(folder, False)["architectures"][0])
    made.set_vocab, made.no_mtp = TextModel.set_vocab, True
    with torch.inference_mode():
        made(folder, gguf.LlamaFileType.MOSTLY_BF16, gguf_file).write()


def run_llama(path, tokens, threads):
    """Seconds of a prompt, and of a decoded token: in a process of its own (below)."""
    import llama_cpp as lc
    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, None)
    model = lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())
    assert model, path
    params = lc.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = tokens + NEW + 1, PART, PART
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

    begin = time.perf_counter()
    for first in range(0, tokens, PART):
        n = min(PART, tokens - first)
        feed(first, n, first + n == tokens)
    prompt = time.perf_counter() - begin
    begin = time.perf_counter()
    for i in range(NEW):
        feed(tokens + i, 1, True)
    return prompt, (time.perf_counter() - begin) / NEW


def run_dpe(args, folder, threads):
    out = os.path.join(args.work, "bench.json")
    subprocess.run([args.bench, "--shape", folder, "--length", str(args.tokens), "--method", "rope", "--threads", str(threads), "--new", str(NEW),
                    "--repeats", "1", "--json", out], check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    os.remove(out)
    row = next(line for line in lines if "prefill_s" in line)
    return row["prefill_s"], row["token_s"]


def main():
    if sys.argv[1] == "--llama":
        print(*run_llama(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("llama")
    parser.add_argument("work")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    cores = {int(core) for core in args.cores.split(",")}
    os.sched_setaffinity(0, cores)
    folder = os.path.join(args.work, "tiny" if args.tiny else "qwen35")
    gguf_file = pathlib.Path(folder + ".gguf")
    if not gguf_file.exists():
        make(pathlib.Path(folder), gguf_file, args)
    times = {"dpe": [], "llama.cpp": []}
    for _ in range(args.rounds):
        times["dpe"].append(run_dpe(args, folder, len(cores)))
        said = subprocess.run([sys.executable, __file__, "--llama", gguf_file, str(args.tokens), str(len(cores))], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        times["llama.cpp"].append(tuple(float(word) for word in said.split()))
    middle = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in times.items()}
    for name, (prompt, token) in middle.items():
        print(f"{name:10} {args.tokens} tokens {prompt:8.3f} s ({args.tokens / prompt:.0f} tokens/s), a decoded token {1e3 * token:8.2f} ms; rounds "
              f"{', '.join(f'{row[0]:.3f} s {1e3 * row[1]:.2f} ms' for row in times[name])}")
    print("llama.cpp over dpe: prompt {:.2f}, decoding {:.2f}; load {}".format(*(b / a for a, b in zip(middle["dpe"], middle["llama.cpp"])),
                                                                              os.getloadavg()[0]))


if __name__ == "__main__":
    main()

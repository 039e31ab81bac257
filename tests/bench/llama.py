#!/usr/bin/env python3
"""Decoding beside llama.cpp: the same weights as F32, F16 and BF16, on one and two threads, in turn.

  llama.py BENCH_DECODE LLAMA_BENCH MODEL WORK [CORES [ROUNDS]]     defaults: 2,3 and 4

MODEL is a Llama folder whose weights are BF16 in one safetensors file with tied embeddings (SmolLM2). WORK
gets a folder and a GGUF file for each type (needs numpy and gguf). llama-bench is built from llama.cpp, which
is in PyPI's source package llama-cpp-python:
  cmake -B build -S vendor/llama.cpp -DLLAMA_CURL=OFF -DBUILD_SHARED_LIBS=OFF; cmake --build build --target llama-bench
Best mean of four tokens of each program; both are pinned to the same cores."""
import json
import os
import shutil
import struct
import subprocess
import sys

import gguf
import numpy as np

KINDS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}


def read_bf16(path):
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        base = file.tell()
        tensors = {}
        for name, entry in head.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                file.seek(base + begin)
                halves = np.frombuffer(file.read(end - begin), dtype=np.uint16)
                tensors[name] = (halves.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    return tensors


def convert(x, kind):
    x = np.ascontiguousarray(x)
    if kind == "BF16":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(KINDS[kind])


def write_folder(model, tensors, kind, folder):
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(model, "tokenizer.json"), folder)
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config["torch_dtype"] = KINDS[kind]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    head, blobs, at = {}, [], 0
    for name, x in tensors.items():
        blobs.append(convert(x, kind).tobytes())
        head[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            file.write(blob)
    return config


def interleaved(x, heads):
    """llama.cpp rotates neighbours."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)


def write_gguf(config, tensors, kind, path):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_rope_dimension_count(config["hidden_size"] // heads)
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("none")
    for name, x in tensors.items():
        parts = name.split(".")
        to = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}.get(name)
        to = to or f"blk.{parts[2]}.{NAMES['.'.join(parts[3:-1])]}.weight"
        if "q_proj" in name or "k_proj" in name:
            x = interleaved(x, heads if "q_proj" in name else kv_heads)
        if x.ndim == 1:
            out.add_tensor(to, x)
        elif kind == "BF16":
            halves = convert(x, kind).view(np.uint8)
            out.add_tensor(to, halves, raw_shape=halves.shape, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            out.add_tensor(to, convert(x, kind))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def forget(path):
    """The pages of a file that was just written are scattered, and are read at two thirds of the rate."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ours(program, folder, threads, cores):
    env = dict(os.environ, OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="2000")  # as the tools set it
    text = subprocess.run(["taskset", "-c", cores, program, folder, str(threads), "0", "24"], env=env, check=True,
                          capture_output=True, text=True).stdout
    line = json.loads(text.splitlines()[0])
    return line["tokens/s"], line["read"]


def theirs(program, path, threads, cores):
    text = subprocess.run(["taskset", "-c", cores, program, "-m", path, "-p", "0", "-n", "4", "-t", str(threads), "-r",
                           "6", "-o", "json"], check=True, capture_output=True, text=True).stdout
    return max(json.loads(text)[0]["samples_ts"])


def main():
    bench, llama, model, work = sys.argv[1:5]
    cores = sys.argv[5] if len(sys.argv) > 5 else "2,3"
    rounds = int(sys.argv[6]) if len(sys.argv) > 6 else 4
    tensors = read_bf16(os.path.join(model, "model.safetensors"))
    for kind in KINDS:
        folder, path = os.path.join(work, kind), os.path.join(work, kind + ".gguf")
        config = write_folder(model, tensors, kind, folder)
        write_gguf(config, tensors, kind, path)
        forget(os.path.join(folder, "model.safetensors"))
        forget(path)
    size = sum(x.size for x in tensors.values())
    print("| weights | threads | memory, GB/s | dpe, tokens/s | GB/s | share | llama.cpp, tokens/s | dpe / llama.cpp |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        for threads in (1, 2):
            best, other, read = 0.0, 0.0, 0.0
            for _ in range(rounds):
                rate, memory = ours(bench, os.path.join(work, kind), threads, cores)
                best, read = max(best, rate), max(read, memory)
                other = max(other, theirs(llama, os.path.join(work, kind + ".gguf"), threads, cores))
            rate = 1e-9 * best * size * (4 if kind == "F32" else 2)
            print(f"| {kind} | {threads} | {read:.1f} | {best:.1f} | {rate:.1f} | {rate / read:.2f} | {other:.1f} | "
                  f"{best / other:.2f} |", flush=True)


main()

#!/usr/bin/env python3
"""gguf_seeds.py: the seeds of fuzz_gguf (corpus/fuzz_gguf), models of one layer with a tokenizer of each kind."""
import os
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
from gguf_writer import BOOL, F32, I32, STRING, U32, write  # noqa: E402

BYTES = [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "llama-bpe"),
         ("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", "Ġ", "1", "Ġa", "<|end|>", "x"]),
         ("tokenizer.ggml.token_type", I32, [1, 1, 1, 1, 1, 1, 3, 5]), ("tokenizer.ggml.merges", STRING, ["a b", "Ġ a"]),
         ("tokenizer.ggml.bos_token_id", U32, 6)]
PIECES = [("tokenizer.ggml.model", STRING, "llama"),
          ("tokenizer.ggml.tokens", STRING, ["<unk>", "<s>", "<0x31>", "▁", "a", "b", "▁a", "ab"]),
          ("tokenizer.ggml.token_type", I32, [2, 3, 6, 1, 1, 1, 1, 1]),
          ("tokenizer.ggml.scores", F32, [0, 0, 0, -4, -3, -2, -1, -1.5])]


def model(arch, kind, size, head_dim, tokenizer, more=(), norms=("attn_norm", "ffn_norm")):
    def matrix(name, rows, cols):
        width = {0: 4, 8: 34, 12: 144}[kind]
        block = {0: 1, 8: 32, 12: 256}[kind]
        return (name, [rows, cols], kind, bytes(rows * cols // block * width))

    meta = [("general.architecture", STRING, arch), *((f"{arch}.{key}", U32, value) for key, value in (
        ("block_count", 1), ("context_length", 32), ("embedding_length", size), ("feed_forward_length", size),
        ("attention.head_count", 2), ("attention.head_count_kv", 1), ("attention.key_length", head_dim))),
        (f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5), *more, *tokenizer, ("tokenizer.ggml.add_bos_token", BOOL, True)]
    ones = struct.pack(f"<{size}f", *[1.0] * size)
    tensors = [matrix("token_embd.weight", 8, size), ("output_norm.weight", [size], 0, ones)]
    tensors += [(f"blk.0.{name}.weight", [size], 0, ones) for name in norms]
    tensors += [matrix(f"blk.0.{name}.weight", rows, cols) for name, rows, cols in (
        ("attn_q", 2 * head_dim, size), ("attn_k", head_dim, size), ("attn_v", head_dim, size), ("attn_output", size, 2 * head_dim),
        ("ffn_gate", size, size), ("ffn_up", size, size), ("ffn_down", size, size))]
    return meta, tensors


def main():
    out = HERE / "corpus" / "fuzz_gguf"
    os.makedirs(out, exist_ok=True)
    write(out / "llama", *model("llama", 0, 8, 4, BYTES))
    meta, tensors = model("llama", 0, 8, 4, BYTES, [("llama.rope.scaling.type", STRING, "yarn"),
                                                     ("llama.rope.scaling.factor", F32, 4.0)])
    write(out / "yarn", meta, tensors)
    write(out / "factors", *model("llama", 0, 8, 4, PIECES)[:1],
          [*tensors, ("rope_freqs.weight", [2], 0, struct.pack("<2f", 1, 2))])
    write(out / "pieces", *model("llama", 8, 32, 16, PIECES))
    gemma = [("gemma2.attention.sliding_window", U32, 8), ("gemma2.attention.sliding_window_pattern", BOOL, [False])]
    write(out / "gemma2", *model("gemma2", 0, 8, 4, PIECES, gemma,
                                 ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")))


if __name__ == "__main__":
    main()

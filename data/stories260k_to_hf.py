#!/usr/bin/env python3
"""Turn stories260K (llama2.c's export) into a Hugging Face folder.

    python stories260k_to_hf.py IN_DIR OUT_DIR

IN_DIR holds stories260K.bin and tok512.bin; OUT_DIR (made if missing) gets config.json,
model.safetensors, tokenizer.json. Needs numpy only.

stories260K.bin: seven int32 (dim, hidden_dim, layers, heads, kv heads, vocabulary, length; a
negative vocabulary means an output matrix of its own), then float32 tensors, each kind for all
layers together. Its rotation turns adjacent components (2j, 2j + 1); Hugging Face's turns (j,
j + head_dim/2), so the rows of q and k are reordered within each head.

tok512.bin: int32 length of the longest piece, then per piece float32 score, int32 bytes, bytes. It
is a SentencePiece BPE model with "▁" written as a space. Merges are not stored; they follow from
the scores: whatever two pieces join to a third, in the order of the third's score.
"""

import argparse
import json
import pathlib
import struct
import sys

import numpy as np

SPECIAL = ["<unk>", "<s>", "</s>"]
N_BYTES = 256
SPACE = "\u2581"


def fail(text):
    sys.exit(f"stories260k_to_hf.py: {text}")


class Reader:
    """Float32 arrays one after the other."""

    def __init__(self, path, header):
        self.path = path
        self.data = np.frombuffer(path.read_bytes(), dtype="<f4", offset=header)
        self.at = 0

    def take(self, *shape):
        n = int(np.prod(shape))
        if self.at + n > self.data.size:
            fail(f"{self.path}: expected {shape} at element {self.at}, found the end")
        self.at += n
        return self.data[self.at - n : self.at].reshape(shape)


def half_split(matrix, heads):
    """Rows of each head from (pair, side) to (side, pair) order."""
    rows, columns = matrix.shape
    pairs = matrix.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(0, 2, 1, 3).reshape(rows, columns)


def read_weights(path):
    raw = path.read_bytes()[:28]
    if len(raw) < 28:
        fail(f"{path}: expected a header of 28 bytes, found {len(raw)}")
    dim, hidden, layers, heads, kv_heads, vocab, length = struct.unpack("<7i", raw)
    untied = vocab < 0
    vocab = abs(vocab)
    if min(dim, hidden, layers, heads, kv_heads, vocab, length) < 1 or dim % heads or \
            heads % kv_heads or (dim // heads) % 2:
        fail(f"{path}: impossible sizes in its header")
    head = dim // heads
    reader = Reader(path, 28)
    tensors = {"model.embed_tokens.weight": reader.take(vocab, dim)}
    kinds = [
        ("input_layernorm", (dim,), 0),
        ("self_attn.q_proj", (heads * head, dim), heads),
        ("self_attn.k_proj", (kv_heads * head, dim), kv_heads),
        ("self_attn.v_proj", (kv_heads * head, dim), 0),
        ("self_attn.o_proj", (dim, heads * head), 0),
        ("post_attention_layernorm", (dim,), 0),
        ("mlp.gate_proj", (hidden, dim), 0),
        ("mlp.down_proj", (dim, hidden), 0),
        ("mlp.up_proj", (hidden, dim), 0),
    ]
    for name, shape, rotated_heads in kinds:
        for layer, tensor in enumerate(reader.take(layers, *shape)):
            tensor = half_split(tensor, rotated_heads) if rotated_heads else tensor
            tensors[f"model.layers.{layer}.{name}.weight"] = tensor
    tensors["model.norm.weight"] = reader.take(dim)
    reader.take(2, length, head // 2)  # cosines and sines, which follow from the configuration
    if untied:
        tensors["lm_head.weight"] = reader.take(vocab, dim)
    if reader.at != reader.data.size:
        fail(f"{path}: expected {reader.at} numbers by its header, found {reader.data.size}")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "vocab_size": vocab,
        "max_position_embeddings": length,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": not untied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    return config, tensors


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.size
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, dtype="<f4").tobytes())


def read_pieces(path, vocab):
    raw, at, pieces, scores = path.read_bytes(), 4, [], []
    for index in range(vocab):
        if at + 8 > len(raw):
            fail(f"{path}: expected {vocab} pieces, found {index}")
        score, size = struct.unpack_from("<fi", raw, at)
        at += 8
        if size < 0 or at + size > len(raw):
            fail(f"{path}: piece {index} has an impossible length {size}")
        pieces.append(raw[at : at + size].decode().replace(" ", SPACE))
        scores.append(score)
        at += size
    if at != len(raw):
        fail(f"{path}: {len(raw) - at} bytes after the last piece")
    pieces[: len(SPECIAL)] = SPECIAL
    expected = [f"<0x{byte:02X}>" for byte in range(N_BYTES)]
    if pieces[len(SPECIAL) : len(SPECIAL) + N_BYTES] != expected:
        fail(f"{path}: expected the 256 byte pieces after the special ones")
    if len(set(pieces)) != len(pieces):
        fail(f"{path}: a piece occurs twice")
    return pieces, scores


def merges_of(pieces, scores):
    """Pairs of pieces that join to a piece, best score first; among the splits of one piece the
    longer left part first, as the reference's converter orders them."""
    first = len(SPECIAL) + N_BYTES
    known = set(pieces[first:])
    found = []
    for piece, score in zip(pieces[first:], scores[first:]):
        for cut in range(len(piece) - 1, 0, -1):
            left, right = piece[:cut], piece[cut:]
            if left in known and right in known:
                found.append((score, left, right))
    found.sort(key=lambda merge: -merge[0])
    return [[left, right] for _, left, right in found]


def tokenizer(pieces, scores):
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": content,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, content in enumerate(SPECIAL)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<s>", "type_id": 1}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {piece: index for index, piece in enumerate(pieces)},
            "merges": merges_of(pieces, scores),
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("in_dir", type=pathlib.Path)
    parser.add_argument("out_dir", type=pathlib.Path)
    args = parser.parse_args()
    for name in ("stories260K.bin", "tok512.bin"):
        if not (args.in_dir / name).is_file():
            fail(f"{args.in_dir / name}: not there")
    config, tensors = read_weights(args.in_dir / "stories260K.bin")
    pieces, scores = read_pieces(args.in_dir / "tok512.bin", config["vocab_size"])
    args.out_dir.mkdir(parents=True, exist_ok=True)
    (args.out_dir / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(args.out_dir / "model.safetensors", tensors)
    text = json.dumps(tokenizer(pieces, scores), indent=1, ensure_ascii=False)
    (args.out_dir / "tokenizer.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

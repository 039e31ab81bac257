#!/usr/bin/env python3
"""gguf_faults.py BIN: hostile and damaged GGUF files: each ends with one clear line and 65 (or 66), never with a signal."""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gguf_models import GOLDEN, convert  # noqa: E402
from gguf_writer import ARRAY, BOOL, F32, F64, I8, I16, I32, I64, STRING, U8, U16, U32, U64, header, string, write  # noqa: E402

BIN = os.path.abspath(sys.argv[1])
META, TENSORS = convert(GOLDEN / "llama")


def run(path, *words):
    return subprocess.run([BIN + "/dpe-run", "-m", path, *(words or ("--info",))], capture_output=True, check=False, timeout=120,
                          stdin=subprocess.DEVNULL)


def expect(what, ran, code, *words):
    message = ran.stderr.decode(errors="replace")
    assert ran.returncode == code, (what, code, ran.returncode, message)
    assert len([line for line in message.splitlines() if "error" in line]) == (code != 0), (what, message)
    for word in words:
        assert word in message, (what, word, message)


class Case:
    """A file of changed metadata, tensors or bytes."""

    def __init__(self, work):
        self.path = os.path.join(work, "model.gguf")

    def model(self, what, code, *words, meta=None, tensors=None, **kind):
        write(self.path, META if meta is None else meta, TENSORS if tensors is None else tensors, **kind)
        expect(what, run(self.path), code, *words)

    def bytes(self, what, code, *words, data):
        with open(self.path, "wb") as file:
            file.write(data)
        expect(what, run(self.path), code, *words)


def without(key):
    return [line for line in META if line[0] != key]


def with_value(key, kind, value):
    return [*without(key), (key, kind, value)]


def counts_and_lengths(case):
    start = header(META, [])
    huge = struct.pack("<Q", 2 ** 63)
    case.bytes("no header", 65, "does not end within", data=b"GGUF")
    case.bytes("version 1", 65, "version 2 or 3", data=header(META, [], version=1))
    case.bytes("big endian", 65, "big-endian", data=b"GGUF" + struct.pack(">I", 3) + start[8:])
    case.bytes("tensors 2^63", 65, "at most 1048576 tensors", data=start[:8] + huge + start[16:])
    case.bytes("values 2^63", 65, "at most 65536 lines", data=start[:16] + huge + start[24:])
    case.bytes("more values than the file holds", 65, "does not end within", data=header(META, [], n_values=60000))
    case.bytes("more tensors than the file holds", 65, "does not end within", data=header(META, [], n_tensors=60000))
    key = start[:24] + huge + start[32:]
    case.bytes("a key of 2^63 bytes", 65, "a key of 1 to 255 bytes", data=key)
    case.bytes("a key without bytes", 65, "a key of 1 to 255 bytes", data=start[:24] + bytes(8) + start[32:])
    text = header([("general.name", STRING, "x")], [])
    case.bytes("a string of 2^63 bytes", 65, "general.name", data=text[:-9] + huge + b"x")
    case.bytes("a string beyond the end", 65, "does not end within", data=text[:-9] + struct.pack("<Q", 50) + b"x")
    array = header([("a.b", U32, [1, 2])], [])
    case.bytes("an array of 2^63", 65, "a.b", data=array[:-16] + huge + array[-8:])
    nested = header([], [], n_values=1) + string("a.b") + struct.pack("<IIQ", ARRAY, ARRAY, 1)
    case.bytes("an array of arrays", 65, "arrays of arrays", data=nested)
    case.bytes("a type that is none", 65, "a type from 0 to 12",
               data=header([], [], n_values=1) + string("a.b") + struct.pack("<I", 13))
    case.bytes("a key of other bytes", 65, "UTF-8", data=header([(b"a\xff", U32, 1)], []))
    case.bytes("a key with NUL", 65, "UTF-8 without NUL", data=header([(b"a\0b", U32, 1)], []))
    case.model("a key twice", 65, "occurs twice", meta=[*META, META[1]])


def places_of_tensors(case):
    infos = [("token_embd.weight", [64, 32], 0, 0), ("output_norm.weight", [32], 0, 0)]
    case.bytes("overlap", 65, "they overlap", data=header(META, infos) + bytes(20000))
    case.bytes("an offset of 4", 65, "a multiple of 32", data=header(META, [("a", [8], 0, 4)]) + bytes(20000))
    case.bytes("beyond the end", 65, "truncated", data=header(META, [("a", [64, 64], 0, 0)]) + bytes(50))
    case.bytes("an offset of 2^64 - 32", 65, "beyond the end", data=header(META, [("a", [64], 0, 2 ** 64 - 32)]) + bytes(2000))
    case.bytes("a shape that overflows", 65, "beyond the end", data=header(META, [("a", [2 ** 40, 2 ** 40], 0, 0)]) + bytes(2000))
    case.bytes("a dimension of 0", 65, "dimensions from 1", data=header(META, [("a", [0, 4], 0, 0)]) + bytes(2000))
    case.bytes("no dimension", 65, "1 to 4 dimensions", data=header(META, [("a", [], 0, 0)]) + bytes(2000))
    case.bytes("five dimensions", 65, "1 to 4 dimensions", data=header(META, [("a", [1] * 5, 0, 0)]) + bytes(2000))
    case.bytes("Q2_K", 65, "Q2_K (10)", data=header(META, [("a", [256], 10, 0)]) + bytes(2000))
    case.bytes("type 999", 65, "a type unknown here (999)", data=header(META, [("a", [256], 999, 0)]) + bytes(2000))
    case.bytes("half a block", 65, "multiples of 32", data=header(META, [("a", [4, 16], 8, 0)]) + bytes(2000))
    case.model("a tensor twice", 65, "occurs twice", tensors=[*TENSORS, TENSORS[0]])
    case.model("alignment 0", 65, "general.alignment", meta=[*META, ("general.alignment", U32, 0)])
    case.model("alignment 48", 65, "a power of two", meta=[*META, ("general.alignment", U32, 48)])
    case.model("alignment \"32\"", 65, "general.alignment", meta=[*META, ("general.alignment", STRING, "32")])
    case.model("alignment 64", 0, meta=[*META, ("general.alignment", U32, 64)], alignment=64)
    whole = open(case.path, "rb").read()
    for cut in (10, 30, 200, len(whole) // 2, len(whole) - 100):
        case.bytes(f"cut at {cut}", 65, data=whole[:cut])


def keys_of_a_model(case):
    case.model("no architecture", 65, "general.architecture", meta=without("general.architecture"))
    case.model("mamba", 65, "one of llama", meta=with_value("general.architecture", STRING, "mamba"))
    for key in ("block_count", "embedding_length", "attention.head_count", "context_length", "feed_forward_length",
                "attention.layer_norm_rms_epsilon"):
        case.model("no " + key, 65, "llama." + key, "nothing", meta=without("llama." + key))
        case.model(key + " as text", 65, "llama." + key, meta=with_value("llama." + key, STRING, "2"))
    case.model("layers 0", 65, "num_hidden_layers", meta=with_value("llama.block_count", U32, 0))
    case.model("layers 2^40", 65, "num_hidden_layers", meta=with_value("llama.block_count", U64, 2 ** 40))
    case.model("3 layers", 65, "missing", meta=with_value("llama.block_count", U32, 3))
    case.model("1 layer", 65, "further layer", meta=with_value("llama.block_count", U32, 1))
    case.model("no heads", 65, "num_attention_heads", meta=with_value("llama.attention.head_count", U32, 0))
    case.model("heads by layer", 65, "the same number for all layers",
               meta=with_value("llama.attention.head_count_kv", I32, [4, 2]))
    case.model("a base of NaN", 65, "rope.freq_base", "a finite number", meta=with_value("llama.rope.freq_base", F32, float("nan")))
    case.model("unknown scaling", 65, "llama.rope.scaling.type", meta=[*META, ("llama.rope.scaling.type", STRING, "ntk"),
                                                                       ("llama.rope.scaling.factor", F32, 2.0)])
    case.model("YaRN without a factor", 0, meta=[*META, ("llama.rope.scaling.type", STRING, "yarn")])
    case.model("a factor below 1", 65, "rope.scaling.factor", meta=[*META, ("llama.rope.scaling.factor", F32, 0.5)])
    case.model("experts", 65, "no experts", meta=[*META, ("llama.expert_count", U32, 8)])
    case.model("a bool for a number", 65, "llama.block_count", meta=with_value("llama.block_count", BOOL, True))
    case.model("an unknown tensor", 65, "blk.0.ssm_a", tensors=[*TENSORS, ("blk.0.ssm_a", [32], 0, bytes(128))])
    case.model("a missing tensor", 65, "model.norm.weight", tensors=[t for t in TENSORS if t[0] != "output_norm.weight"])
    case.model("another shape", 65, "shape", tensors=[(t[0], [t[1][0] // 2, *t[1][1:]], t[2], t[3][:len(t[3]) // 2])
                                                      if t[0] == "blk.0.ffn_up.weight" else t for t in TENSORS])
    factors = ("rope_freqs.weight", [3], 0, struct.pack("<3f", 1, 2, 3))
    case.model("too few factors", 65, "short_factor", tensors=[*TENSORS, factors])


TOKENS = [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
          ("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", "<|end|>"]), ("tokenizer.ggml.token_type", I32, [1, 1, 1, 3]),
          ("tokenizer.ggml.merges", STRING, ["a b"])]
PIECES = [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", STRING, ["<unk>", "<s>", "▁", "a", "▁a"]),
          ("tokenizer.ggml.token_type", I32, [2, 3, 1, 1, 1]), ("tokenizer.ggml.scores", F32, [0.0, 0.0, -2.0, -3.0, -1.0])]


def tokenizers(case):
    def check(what, code, *words, base=TOKENS, drop=(), add=()):
        write(case.path, [*META, *(line for line in base if line[0][15:] not in drop), *add], TENSORS)
        expect(what, run(case.path, "--tokenize", "-p", "ab", "--raw"), code, *words)

    check("bytes", 0)
    check("pieces", 0, base=PIECES)
    check("no tokenizer", 65, "tokenizer.ggml.tokens", base=[])
    check("no model", 65, "tokenizer.ggml.model", drop=["model"])
    check("bert", 65, "gpt2 (byte-level BPE), llama", drop=["model"], add=[("tokenizer.ggml.model", STRING, "bert")])
    check("no pre", 65, "tokenizer.ggml.pre", drop=["pre"])
    check("unknown pre", 65, "tokenizer.ggml.pre", "found \"default\"", drop=["pre"], add=[("tokenizer.ggml.pre", STRING, "default")])
    check("no merges", 65, "tokenizer.ggml.merges", drop=["merges"])
    check("a merge of three", 65, "two parts", drop=["merges"], add=[("tokenizer.ggml.merges", STRING, ["a b c"])])
    check("a merge of others", 65, "not in model.vocab", drop=["merges"], add=[("tokenizer.ggml.merges", STRING, ["x y"])])
    check("merges of other bytes", 65, "UTF-8", drop=["merges"], add=[("tokenizer.ggml.merges", STRING, [b"\xff \xfe"])])
    check("a token twice", 65, "occurs twice", drop=["tokens"], add=[("tokenizer.ggml.tokens", STRING, ["a", "a", "ab", "c"])])
    check("a token with NUL", 65, "NUL", drop=["tokens"], add=[("tokenizer.ggml.tokens", STRING, ["a", b"b\0", "ab", "c"])])
    check("a token of other bytes", 65, "UTF-8 without NUL", "token 1", drop=["tokens"],
          add=[("tokenizer.ggml.tokens", STRING, ["a", b"b\xff", "ab", "c"])])
    check("an unused id of other bytes", 0, drop=["tokens", "token_type"],
          add=[("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", b"\xff"]), ("tokenizer.ggml.token_type", I32, [1, 1, 1, 5])])
    check("an empty token", 0, drop=["tokens"], add=[("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", ""])])
    check("tokens as numbers", 65, "an array of strings", drop=["tokens"], add=[("tokenizer.ggml.tokens", U32, [1, 2, 3])])
    for kind in (U8, I8, U16, I16, U32, U64, I64):
        check(f"types as numbers of type {kind}", 0, drop=["token_type"], add=[("tokenizer.ggml.token_type", kind, [1, 1, 1, 3])])
        check(f"scores of type {kind}", 0, base=PIECES, drop=["token_type"], add=[("tokenizer.ggml.token_type", kind, [2, 3, 1, 1, 1])])
    check("types as real numbers", 65, "an array of whole numbers", drop=["token_type"],
          add=[("tokenizer.ggml.token_type", F32, [1.0, 1.0, 1.0, 3.0])])
    check("scores of 64 bits", 0, base=PIECES, drop=["scores"], add=[("tokenizer.ggml.scores", F64, [0.0, 0.0, -2.0, -3.0, -1.0])])
    check("types too few", 65, "token_type", drop=["token_type"], add=[("tokenizer.ggml.token_type", I32, [1, 1])])
    check("scores too few", 65, "tokenizer.ggml.scores", base=PIECES, drop=["scores"], add=[("tokenizer.ggml.scores", F32, [1.0])])
    check("no scores", 65, "tokenizer.ggml.scores", base=PIECES, drop=["scores"])
    check("unknown id", 65, "unknown_token_id", base=PIECES, add=[("tokenizer.ggml.unknown_token_id", U32, 99)])
    check("a flag as text", 65, "add_bos_token", add=[("tokenizer.ggml.add_bos_token", STRING, "true")])
    meta = [line for line in META if line[0] != "tokenizer.ggml.bos_token_id"]
    write(case.path, [*meta, *TOKENS, ("tokenizer.ggml.add_bos_token", BOOL, True)], TENSORS)
    expect("BOS without an id", run(case.path, "--tokenize", "-p", "ab"), 65, "bos_token_id")


def files_and_folders(work):
    folder = os.path.join(work, "folder")
    os.mkdir(folder)
    one = os.path.join(folder, "one.gguf")
    write(one, META, TENSORS)
    expect("a folder with a GGUF file", run(folder), 0)
    shutil.copy(one, os.path.join(folder, "two.gguf"))
    expect("a folder with two", run(folder), 66, "2 GGUF models; give the file")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(GOLDEN / "llama" / name, folder)
    both = run(folder)
    expect("a folder with both", both, 0)
    assert b"the safetensors are used" in both.stderr and both.stdout.count(b"F32") == run(str(GOLDEN / "llama")).stdout.count(b"F32")
    names = [os.path.join(work, f"split-0000{i}-of-00002.gguf") for i in (1, 2)]
    half = len(TENSORS) // 2
    for i, part in enumerate((TENSORS[:half], TENSORS[half:])):
        split = [("split.no", U32, i), ("split.count", U32, 2), ("split.tensors.count", I32, len(TENSORS))]
        write(names[i], [*(META if i == 0 else []), *split], part)
    expect("split", run(names[0]), 0)
    expect("the second of a split", run(names[1]), 65, "file 2 of 2")
    os.rename(names[1], names[1] + "x")
    expect("a missing part", run(names[0]), 66, "split-00002-of-00002.gguf")
    os.rename(names[0], os.path.join(work, "renamed.gguf"))
    expect("a renamed part", run(os.path.join(work, "renamed.gguf")), 65, "keep their names")
    for content, found in ((b"", "an empty file; download it again"), (b"GG", "another kind of file"), (b"<html>", "another kind")):
        empty = os.path.join(work, "empty.gguf")
        pathlib.Path(empty).write_bytes(content)
        expect("no GGUF file", run(empty), 65, "empty.gguf: expected a model folder or a GGUF file, found " + found)
    fifo = os.path.join(work, "fifo.gguf")
    os.mkfifo(fifo)
    expect("a FIFO", run(fifo), 66)


def main():
    with tempfile.TemporaryDirectory() as work:
        case = Case(work)
        case.model("as it is", 0)
        for test in (counts_and_lengths, places_of_tensors, keys_of_a_model, tokenizers):
            test(case)
            print(test.__name__, "ok", flush=True)
        files_and_folders(work)
        print("files_and_folders ok")


if __name__ == "__main__":
    main()

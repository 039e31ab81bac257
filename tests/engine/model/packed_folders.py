#!/usr/bin/env python3
"""packed_folders.py BIN: the first layer of the bundled model with matrices of packed integers and 4-bit floats, as GPTQ, AWQ,
compressed-tensors and ModelOpt write them: the results of the same weights unpacked, and what is refused by file and tensor.
packed_folders.py --oracle: these weights unpacked by the libraries themselves (needs compressed_tensors and torch)."""
import json
import os
import pathlib
import random
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fp8_folders import MODEL, VALUES, bf16, read, run, single, write  # noqa: E402

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def half(value):
    return struct.unpack("<H", struct.pack("<e", value))[0]


def of_half(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def of_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def words(values):
    return struct.pack(f"<{len(values)}I", *values)


def stream(values, bits):
    """Numbers one after another in 32-bit words, also across their ends."""
    whole, n = 0, 0
    for i, value in enumerate(values):
        whole |= value << bits * i
        n += bits
    return [whole >> 32 * i & 0xffffffff for i in range(-(-n // 32))]


def whole_words(values, bits):
    """As many whole numbers in a word as fit."""
    each = 32 // bits
    return [sum(v << bits * k for k, v in enumerate(values[i:i + each])) for i in range(0, len(values), each)]


def transposed(rows):
    return [list(column) for column in zip(*rows)]


def flat(rows):
    return [value for row in rows for value in row]


class Maker:
    """One random matrix in one layout: its tensors, and its values as [rows][columns]."""

    def __init__(self, rng, base, rows, cols, kind):
        self.rng, self.base, self.rows, self.cols, self.tensors = rng, base, rows, cols, {}
        getattr(self, kind.split("-")[0])(**dict(part.split("=") for part in kind.split("-")[1:]))

    def put(self, ending, dtype, shape, data):
        self.tensors[self.base + ending] = (dtype, list(shape), data)

    def integers(self, bits, size, middle):
        """Codes, scales and zero points by row and group; the group of each column."""
        groups = self.cols // size
        self.codes = [[self.rng.randrange(1 << bits) for _ in range(self.cols)] for _ in range(self.rows)]
        self.bits = [[half(self.rng.uniform(0.002, 0.01)) for _ in range(groups)] for _ in range(self.rows)]
        self.zeros = [[1 << bits - 1 if middle else self.rng.randrange(1, 1 << bits) for _ in range(groups)] for _ in range(self.rows)]
        self.group = [c // size for c in range(self.cols)]
        return groups

    def finish(self, scale):
        self.values = [[(self.codes[r][c] - self.zeros[r][g]) * scale(self.bits[r][g]) for c, g in enumerate(self.group)]
                       for r in range(self.rows)]

    def gptq(self, bits="4", size="32", order="", form="gptq", middle=""):
        bits, size = int(bits), int(size)
        groups = self.integers(bits, size, middle)
        if order:
            self.rng.shuffle(self.group)
            self.put(".g_idx", "I32", [self.cols], words(self.group))
        above = 0 if form == "gptq_v2" else 1
        columns = [stream(row, bits) for row in self.codes]
        self.put(".qweight", "I32", [len(columns[0]), self.rows], words(flat(transposed(columns))))
        zeros = [stream([z - above for z in row], bits) for row in transposed(self.zeros)]
        self.put(".qzeros", "I32", [groups, len(zeros[0])], words(flat(zeros)))
        self.put(".scales", "F16", [groups, self.rows], struct.pack(f"<{groups * self.rows}H", *flat(transposed(self.bits))))
        self.finish(of_half)

    def awq(self, size="64"):
        groups = self.integers(4, int(size), "")
        for ending, numbers in ((".qweight", transposed(self.codes)), (".qzeros", transposed(self.zeros))):
            packed = [[sum(row[j + AWQ_ORDER[i]] << 4 * i for i in range(8)) for j in range(0, self.rows, 8)] for row in numbers]
            self.put(ending, "I32", [len(numbers), self.rows // 8], words(flat(packed)))
        self.put(".scales", "F16", [groups, self.rows], struct.pack(f"<{groups * self.rows}H", *flat(transposed(self.bits))))
        self.finish(of_half)

    def rows_(self, bits, size, middle, order=""):
        groups = self.integers(bits, size or self.cols, middle)
        if order:
            self.rng.shuffle(self.group)
            self.put(".weight_g_idx", "I32", [self.cols], words(self.group))
        packed = [whole_words(row, bits) for row in self.codes]
        self.put(".weight_packed", "I32", [self.rows, len(packed[0])], words(flat(packed)))
        self.put(".weight_shape", "I64", [2], struct.pack("<2q", self.rows, self.cols))
        self.put(".weight_scale", "BF16", [self.rows, groups], struct.pack(f"<{groups * self.rows}H", *flat(self.bits)))
        if not middle:
            zeros = transposed([whole_words(column, bits) for column in transposed(self.zeros)])
            self.put(".weight_zero_point", "I32", [len(zeros), groups], words(flat(zeros)))
        self.finish(of_bf16)

    def packed(self, bits="4", size="0", middle="", order=""):
        self.rows_(int(bits), int(size), middle, order)

    def nvfp4(self, maker="tensors"):
        groups = self.cols // 16
        codes = [[self.rng.randrange(16) for _ in range(self.cols)] for _ in range(self.rows)]
        scales = [[self.rng.randrange(0x30, 0x60) for _ in range(groups)] for _ in range(self.rows)]
        factor = single(224.0 if maker == "tensors" else 1 / 300)
        data = bytes(flat([[row[i] | row[i + 1] << 4 for i in range(0, self.cols, 2)] for row in codes]))
        self.put(".weight_packed" if maker == "tensors" else ".weight", "U8", [self.rows, self.cols // 2], data)
        self.put(".weight_scale", "F8_E4M3", [self.rows, groups], bytes(flat(scales)))
        self.put(".weight_global_scale" if maker == "tensors" else ".weight_scale_2", "F32", [1] if maker == "tensors" else [],
                 struct.pack("<f", factor))
        whole = [[single(VALUES[s] / factor if maker == "tensors" else VALUES[s] * factor) for s in row] for row in scales]
        self.values = [[single((-1 if codes[r][c] & 8 else 1) * E2M1[codes[r][c] & 7] * whole[r][c // 16]) for c in range(self.cols)]
                       for r in range(self.rows)]


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}
ROWS = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
# quantization_config, and the kinds of matrix that take turns
CASES = [
    (GPTQ, ["gptq-bits=4-size=32", "gptq-bits=3-size=64-order=1", "gptq-bits=8-size=16", "gptq-bits=2-size=16-order=1"]),
    (GPTQ | {"checkpoint_format": "gptq_v2"}, ["gptq-form=gptq_v2-bits=4-size=64", "gptq-form=gptq_v2-bits=8-size=32-middle=1",
                                               "gptq-form=gptq_v2-bits=4-size=32-middle=1"]),
    ({"quant_method": "awq", "bits": 4, "version": "gemm"}, ["awq-size=32", "awq-size=64"]),
    (ROWS, ["packed-bits=4-size=32", "packed-bits=8-middle=1", "packed-bits=4-size=64-middle=1-order=1", "packed-bits=3-size=16"]),
    (ROWS | {"format": "nvfp4-pack-quantized"}, ["nvfp4"]),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ["nvfp4-maker=modelopt"]),
]


def convert(tensors, kinds, seed):
    """The model with packed matrices in its layer, and with what they mean: as F32 where they become blocks, which hold the same
    values, else as BF16."""
    rng = random.Random(seed)
    packed, plain, n = {}, {}, 0
    for name, (dtype, shape, data) in tensors.items():
        if len(shape) != 2 or ".layers." not in name:
            packed[name] = plain[name] = (dtype, shape, data)
            continue
        made = Maker(rng, name[:-len(".weight")], *shape, kinds[n % len(kinds)])
        n += 1
        packed.update(made.tensors)
        values = flat(made.values)
        plain[name] = (("F32", shape, struct.pack(f"<{len(values)}f", *values)) if "middle=1" in kinds[(n - 1) % len(kinds)] and
                       "gptq" in kinds[0] else ("BF16", shape, struct.pack(f"<{len(values)}H", *map(bf16, map(single, values)))))
    return packed, plain


def gpt_oss(rng):
    """A tiny gpt-oss whose experts are MXFP4 as published, and what they mean in the layout of a copy."""
    golden, middle, vocab = ROOT / "tests/golden/families/gpt_oss", 32, 2560
    packed = read(golden / "model.safetensors")

    def random16(*shape):
        n = 1
        for size in shape:
            n *= size
        return ("BF16", list(shape), struct.pack(f"<{n}H", *(bf16(single(rng.gauss(0, 0.1))) for _ in range(n))))

    hidden = packed["model.norm.weight"][1][0]
    packed = {name: random16(vocab, hidden) if name.startswith(("model.embed", "lm_head")) else tensor for name, tensor in packed.items()}
    plain = dict(packed)
    for name in [name for name in packed if "experts" in name and not name.endswith("_bias")]:
        experts, inputs, outputs = packed[name][1][0], *((hidden, 2 * middle) if "gate_up" in name else (middle, hidden))
        packed[name + "_bias"] = plain[name + "_bias"] = random16(experts, outputs)
        blocks = [rng.randrange(256) for _ in range(experts * outputs * inputs // 2)]
        scales = [rng.randrange(120, 125) for _ in range(experts * outputs * inputs // 32)]
        del packed[name]
        packed[name + "_blocks"] = ("U8", [experts, outputs, inputs // 32, 16], bytes(blocks))
        packed[name + "_scales"] = ("U8", [experts, outputs, inputs // 32], bytes(scales))

        def value(e, o, i):
            at = (e * outputs + o) * inputs + i
            code = blocks[at // 2] >> at % 2 * 4 & 15
            return (-1 if code & 8 else 1) * E2M1[code & 7] * 2.0 ** (scales[at // 32] - 127)

        values = [bf16(value(e, o, i)) for e in range(experts) for i in range(inputs) for o in range(outputs)]
        plain[name] = ("BF16", [experts, inputs, outputs], struct.pack(f"<{len(values)}H", *values))
    config = json.loads((golden / "config.json").read_text()) | {"intermediate_size": middle, "vocab_size": vocab}
    return packed, plain, config


def qwen3_5(rng):
    """A tiny Qwen3.5 whose projections are packed, those of q with its gate and of a state's q, k and v too (they are cut from one
    tensor), and what they mean."""
    golden, vocab, changes = ROOT / "tests/golden/families/qwen3_5", 2560, {}
    tensors = read(golden / "model.safetensors")
    packed, plain = {}, {}
    for name, (dtype, shape, data) in tensors.items():
        if name.startswith(("model.embed", "lm_head")):
            shape = [vocab, shape[1]]
            data = struct.pack(f"<{vocab * shape[1]}H", *(bf16(single(rng.gauss(0, 0.1))) for _ in range(vocab * shape[1])))
        kind = {"q_proj": "packed-bits=4-size=16", "in_proj_qkv": "gptq-bits=4-size=32-order=1"}.get(name.split(".")[-2])
        if kind is None:
            packed[name] = plain[name] = (dtype, shape, data)
            continue
        made = Maker(rng, name[:-len(".weight")], *shape, kind)
        packed.update(made.tensors)
        changes[kind] = name
        plain[name] = ("BF16", shape, struct.pack(f"<{shape[0] * shape[1]}H", *map(bf16, map(single, flat(made.values)))))
    assert len(changes) == 2
    return packed, plain, json.loads((golden / "config.json").read_text()) | {"vocab_size": vocab}


def main():
    tensors = {name: tensor for name, tensor in read(MODEL / "model.safetensors").items()
               if ".layers." not in name or ".layers.0." in name}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        asked = ("--device", "cpu", "--dtype", "f32", "--nll", str(ROOT / "LICENSE"), "--context", "128", "--json")
        for seed, (method, kinds) in enumerate(CASES):
            packed, plain = convert(tensors, kinds, seed)
            write(work / "packed", packed, method, num_hidden_layers=1)
            got = json.loads(run(work / "packed", *asked))["nll"]
            write(work / "plain", plain, None, num_hidden_layers=1)
            want = json.loads(run(work / "plain", *asked))["nll"]
            # Products of blocks are rounded otherwise than those of floats.
            assert abs(got - want) < 1e-4 if any(tensor[0] == "F32" and "_proj" in name for name, tensor in plain.items()) \
                else got == want, (kinds, got, want)
            print(kinds, got, want, flush=True)
        packed, plain, config = gpt_oss(random.Random(6))
        for folder, content, method in (("packed", packed, {"quant_method": "mxfp4"}), ("plain", plain, None)):
            write(work / folder, content, method, **config)
        got, want = (json.loads(run(work / folder, *asked))["nll"] for folder in ("packed", "plain"))
        assert abs(got - want) < 1e-4, (got, want)
        print("mxfp4", got, want, flush=True)
        packed, plain, config = qwen3_5(random.Random(11))
        write(work / "packed", packed, GPTQ, **config)
        got = json.loads(run(work / "packed", *asked))["nll"]
        write(work / "plain", plain, None, **config)
        want = json.loads(run(work / "plain", *asked))["nll"]
        assert got == want, (got, want)
        print("qwen3_5", got, want, flush=True)
        name = "model.layers.0.linear_attn.in_proj_qkv"
        write(work / "packed", packed | {name + ".scales": ("F16", [1, 8], bytes(16))}, GPTQ, **config)
        assert name in run(work / "packed", "--info", code=65)
        packed, plain, config = gpt_oss(random.Random(6))
        name = "model.layers.1.mlp.experts.down_proj_blocks"
        write(work / "packed", packed | {name: ("U8", [4, 32, 2, 8], packed[name][2])}, {"quant_method": "mxfp4"}, **config)
        assert name in run(work / "packed", "--info", code=65)
        packed, _ = convert(tensors, ["gptq-bits=4-size=32-order=1"], 7)
        base = "model.layers.0.mlp.up_proj"
        rows, groups = packed[base + ".scales"][1][1], packed[base + ".scales"][1][0]
        packed_rows, _ = convert(tensors, ["packed-bits=4-size=32"], 8)
        nvfp4, _ = convert(tensors, ["nvfp4"], 9)
        cols = 2 * nvfp4[base + ".weight_packed"][1][1]
        broken = [
            (packed, GPTQ, ".qweight", ("I32", [5, rows], bytes(20 * rows))), (packed, GPTQ, ".scales", None),
            (packed, GPTQ, ".qzeros", ("I32", [groups, rows // 8], b"\xff" * (groups * rows // 2))),
            (packed, GPTQ, ".qzeros", ("I32", [groups, 2], bytes(8 * groups))),
            (packed, GPTQ, ".g_idx", ("I32", [cols], words([groups] * cols))), (packed, GPTQ, ".g_idx", ("I32", [3], bytes(12))),
            (packed, GPTQ, ".scales", ("F16", [groups, rows - 1], bytes(2 * groups * (rows - 1)))),
            (packed_rows, ROWS, ".weight_scale", ("BF16", [rows, 5], bytes(10 * rows))),
            (packed_rows, ROWS, ".weight_scale", ("I32", [rows, 1], bytes(4 * rows))),
            (packed_rows, ROWS, ".weight_zero_point", ("I8", [rows, cols // 32], b"\x09" * (rows * cols // 32))),
            (packed_rows, ROWS, ".weight_packed", ("I32", [rows, 7], bytes(28 * rows))),
            (nvfp4, ROWS | {"format": "nvfp4-pack-quantized"}, ".weight_scale", ("F8_E4M3", [rows, 7], bytes(7 * rows))),
            (nvfp4, ROWS | {"format": "nvfp4-pack-quantized"}, ".weight_global_scale", ("F32", [2], bytes(8)))]
        for whole, method, ending, tensor in broken:
            changed = {key: value for key, value in whole.items() if key != base + ending}
            write(work / "packed", changed | ({base + ending: tensor} if tensor else {}), method, num_hidden_layers=1)
            said = run(work / "packed", "--info", code=65)
            assert "model.safetensors" in said and base in said, (ending, said)
        # A matrix of 12 rows, which words of 8 numbers do not hold; one of 15 columns, which bytes of 2 do not.
        config = {"num_hidden_layers": 1, "num_key_value_heads": 1, "num_attention_heads": 1, "head_dim": 12, "hidden_size": 15,
                  "intermediate_size": 12}
        for kind, method, ending, dtype, shape, want in (
                ("awq", {"quant_method": "awq", "bits": 4, "version": "gemm"}, ".qweight", "I32", [15, 1], "rows that 8 divides"),
                ("nvfp4", ROWS | {"format": "nvfp4-pack-quantized"}, ".weight_packed", "U8", [12, 7], "an even number of columns")):
            small = {"model.embed_tokens.weight": ("BF16", [2560, 15], bytes(2 * 2560 * 15)), "model.norm.weight": ("BF16", [15], bytes(30))}
            scale = ".scales" if kind == "awq" else ".weight_scale"
            for name in ("self_attn.q_proj", "self_attn.k_proj"):
                base = "model.layers.0." + name
                small[base + ending] = (dtype, shape, bytes(shape[0] * shape[1] * (4 if dtype == "I32" else 1)))
                small[base + scale] = ("F16", [1, 12], bytes(24)) if kind == "awq" else ("F8_E4M3", [12, 1], bytes(12))
            write(work / "packed", small, method, **config)
            said = run(work / "packed", "--info", code=65)
            assert want in said and "self_attn.q_proj" in said and "model.safetensors" in said, said
        for what, method in (("bits", GPTQ | {"bits": 5}), ("version", {"quant_method": "awq", "bits": 4, "version": "gemv"}),
                             ("format", ROWS | {"format": "marlin-24"}), ("bitsandbytes", {"quant_method": "bitsandbytes"}),
                             ("quant_algo", {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})):
            write(work / "packed", packed, method, num_hidden_layers=1)
            assert what in run(work / "packed", "--info", code=65), what
        print("refusals ok")


def oracle():
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    kinds = {"I32": torch.int32, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32, "U8": torch.uint8}

    def tensor(made, ending):
        dtype, shape, data = made.tensors["x" + ending]
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(kinds[dtype]).reshape(shape)

    for seed in range(40):
        rng = random.Random(seed)
        bits, size = rng.choice([(2, 16), (3, 32), (4, 32), (4, 64), (8, 96), (6, 0), (8, 0)])
        middle, order = rng.choice(["", "1"]), rng.choice(["", "1"]) if size else ""
        made = Maker(rng, "x", 24, 192, f"packed-bits={bits}-size={size}-middle={middle}-order={order}")
        shape = torch.Size([24, 192])
        scale = tensor(made, ".weight_scale").float()
        zero = None if middle else unpack_from_int32(tensor(made, ".weight_zero_point"), bits, torch.Size([24, scale.shape[1]]), 0)
        index = tensor(made, ".weight_g_idx") if order else None
        got = dequantize(unpack_from_int32(tensor(made, ".weight_packed"), bits, shape), scale,
                         zero if zero is None else zero.float(), g_idx=index)
        assert torch.equal(got.float(), torch.tensor(made.values, dtype=torch.float32)), (bits, size, middle, order)
        made = Maker(rng, "x", 24, 96, "nvfp4")
        scale = tensor(made, ".weight_scale").float()
        numbers = unpack_fp4_from_uint8(tensor(made, ".weight_packed"), 24, 96, torch.float32)
        got = dequantize(numbers, scale, global_scale=tensor(made, ".weight_global_scale"))
        assert torch.equal(got.float(), torch.tensor(made.values, dtype=torch.float32)), seed
    print("compressed-tensors: equal")


if __name__ == "__main__":
    oracle() if sys.argv[1] == "--oracle" else main()

#!/usr/bin/env python3
"""fp8_folders.py BIN: the bundled model with matrices of 8-bit floats and scales (one, one for each row, one for each block), as
compressed-tensors and others write them: the results of the same weights unpacked to bfloat16, to the last bit, also on the emulated GPU. And what is refused."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = os.path.abspath(sys.argv[1])
CUDA = pathlib.Path(BIN).parent / "tests" / "libdpe_cuda_emulated.so"  # there where a C++ compiler is
MODEL = ROOT / "data" / "reference"
METHODS = {
    "tensor": {"quant_method": "compressed-tensors", "format": "float-quantized"},
    "rows": {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None, "ignore": ["lm_head"]},
    "blocks": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [96, 128]}}


def e4m3(bits):
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = fraction * 2.0 ** -9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
    return -size if bits & 128 else size


VALUES = [e4m3(i) for i in range(256)]


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def read(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return {name: (entry["dtype"], entry["shape"], data[8 + n + entry["data_offsets"][0]:8 + n + entry["data_offsets"][1]])
            for name, entry in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


def write(folder, tensors, quantisation, **changes):
    os.makedirs(folder, exist_ok=True)
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = json.loads((MODEL / "config.json").read_text()) | changes
    if quantisation:
        config["quantization_config"] = quantisation
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "generation_config.json"):
        shutil.copy(MODEL / name, folder)


def convert(tensors, kind):
    """Random bytes with scales of a weight's size in place of the matrices of the layers, and the same unpacked."""
    packed, unpacked, state = {}, {}, 1
    rows_of, cols_of = {"tensor": (10 ** 9, 10 ** 9), "rows": (1, 10 ** 9), "blocks": (96, 128)}[kind]
    for name, (dtype, shape, data) in tensors.items():
        if len(shape) != 2 or ".layers." not in name:
            packed[name] = unpacked[name] = (dtype, shape, data)
            continue
        rows, cols = shape
        content = bytearray()
        for _ in range(rows * cols):
            state = state * 1103515245 + 12345 & 0x7fffffff
            content.append(state >> 16 & 0xbf)  # magnitudes up to 1.9
        down, across = -(-rows // min(rows_of, rows)), -(-cols // min(cols_of, cols))
        scales = [single(0.02 + 0.001 * (i % 7)) for i in range(down * across)]
        words = [bf16(single(VALUES[content[r * cols + c]] * scales[r // rows_of * across + c // cols_of]))
                 for r in range(rows) for c in range(cols)]
        packed[name] = ("F8_E4M3", shape, bytes(content))
        scale = name + ("_scale_inv" if kind == "blocks" else "_scale")
        scale_shape = {"tensor": [1], "rows": [rows, 1], "blocks": [down, across]}[kind]
        packed[scale] = ("F32", scale_shape, struct.pack(f"<{len(scales)}f", *scales))
        if kind == "rows":  # of what goes in, which is not quantised here
            packed[name[:-len("weight")] + "input_scale"] = ("F32", [], struct.pack("<f", 0.5))
        unpacked[name] = ("BF16", shape, struct.pack(f"<{rows * cols}H", *words))
    return packed, unpacked


def run(folder, *words, code=0):
    ran = subprocess.run([BIN + "/dpe-run", "-m", str(folder), "--threads", "2", *words], capture_output=True, check=False,
                         timeout=600, stdin=subprocess.DEVNULL,
                         env={**os.environ, "DPE_CUDA_MODULE": str(CUDA), "DPE_DEVICE_SELF_TEST": "off"})
    message = ran.stderr.decode(errors="replace")
    assert ran.returncode == code, (words, ran.returncode, message)
    return message if code else ran.stdout.decode(errors="replace")


def main():
    # The first layer is enough, and takes a quarter of the time.
    tensors = {name: tensor for name, tensor in read(MODEL / "model.safetensors").items()
               if ".layers." not in name or ".layers.0." in name}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        words = ("--device", "cpu", "--nll", str(ROOT / "LICENSE"), "--context", "128", "--json")
        for kind, method in METHODS.items():
            packed, unpacked = convert(tensors, kind)
            write(work / "packed", packed, method, num_hidden_layers=1)
            write(work / "unpacked", unpacked, None, num_hidden_layers=1)
            got, want = (json.loads(run(work / folder, *words))["nll"] for folder in ("packed", "unpacked"))
            assert got == want, (kind, got, want)
            if kind == "rows" and CUDA.exists():  # a device gets the bfloat16 numbers
                got, want = (run(work / folder, "-p", "a b", "-n", "2", "--device", "cuda") for folder in ("packed", "unpacked"))
                assert got == want and got, (got, want)
            print(kind, "equal", flush=True)
        name = "model.layers.0.mlp.up_proj.weight"
        scale = name + "_scale_inv"
        for what, tensor in (("missing", None), ("another shape", ("F32", [3, 2], bytes(24))), ("integers", ("I32", [1], bytes(4)))):
            broken = {key: value for key, value in packed.items() if key != scale}
            write(work / "packed", broken | ({scale: tensor} if tensor else {}), METHODS["blocks"], num_hidden_layers=1)
            assert name in run(work / "packed", "--info", code=65), what
        refused = {"bitsandbytes": {"quant_method": "bitsandbytes"},
                   "float-quantized": {"quant_method": "compressed-tensors", "format": "marlin-24"},
                   "weight_block_size": {"quant_method": "fp8", "weight_block_size": [0, 128]},
                   "fbgemm_fp8": {"quant_method": "other"}, "quantization_config": 3}
        for what, method in refused.items():
            write(work / "packed", packed, method, num_hidden_layers=1)
            assert what in run(work / "packed", "--info", code=65), what
        # Files that git left in the place of large ones.
        for name, text in (("model.safetensors", "oid sha256:" + "5e" * 32 + "\nsize 9\n"), ("config.json", "size 1\n"),
                           ("tokenizer.json", "oid x\n"), ("../alone.gguf", "oid y\n")):
            write(work / "packed", tensors, None, num_hidden_layers=1)
            (work / "packed" / name).write_text("version https://git-lfs.github.com/spec/v1\n" + text)
            folder = work / "alone.gguf" if ".gguf" in name else work / "packed"
            assert "git lfs pull" in run(folder, *(("-p", "a", "-n", "1") if "tokenizer" in name else ("--info",)), code=65), name
        print("refusals ok")


if __name__ == "__main__":
    main()

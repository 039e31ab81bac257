#!/usr/bin/env python3
"""Tables of frequencies and the forms that need no adapter.

    rope_forms_check.py BIN ROOT SCHEMA_TOOL                the test: the bundled model with such a table, as --table, as
                                                            --method longrope, as an exported folder, and a GGUF read back;
                                                            against tests/golden/rope_forms.json
    rope_forms_check.py BIN ROOT SCHEMA_TOOL RUNTIME=PYTHON...
                                                            makes that file, of the runtimes that are given: mean -ln p of
                                                            transformers and vllm on the exported folder, of vllm-overrides
                                                            (vllm) on the model with the exported rotation as --hf-overrides,
                                                            and of llama.cpp on the exported GGUF (tests/golden/rope_forms.py
                                                            says what they need)
"""
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
from adapter_fields import NO_TEMPERATURE  # noqa: E402

BIN, ROOT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
MODEL, CONTEXT = ROOT / "data/reference", 512
GOLDEN = ROOT / "tests/golden/rope_forms.json"
SCALES = [1, 1.25, 2, 2, 2, 3, 2, 4]
LOGIT_SCALE = 1.3
TYPES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def run(tool, *args, code=0, says=()):
    done = subprocess.run([BIN / tool, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, (tool, args, done.returncode, done.stderr)
    for words in says:
        assert words in done.stderr, (words, done.stderr)
    return done.stdout


def table(folder):
    """A table of frequencies for the bundled model, in the JSON form."""
    info = json.loads(run("dpe-run", "-m", MODEL, "--info", "--json"))
    config = json.loads((MODEL / "config.json").read_text())
    pairs, groups = config["head_dim"] // 2, len(SCALES)
    data = {
        "schema_name": "dpe-table", "schema_version": "9.0.0", "adapter_required": False,
        "model": {"model_type": "llama", "fingerprint": info["fingerprint"], "n_layers": config["num_hidden_layers"],
                  "n_heads": config["num_attention_heads"], "n_kv_heads": config["num_key_value_heads"],
                  "head_dim": config["head_dim"]},
        "trained_length": 256, "evaluated_length": CONTEXT, "local_window": 0, "top_k": pairs,
        "moves": "frequencies", "near_rule": "none", "rounding": "none", "angle_precision": "f32",
        "pair_layout": "half-split", "group_edge": [g * pairs // groups for g in range(groups + 1)],
        "effective_length": [float(CONTEXT // s) for s in SCALES], "scale_factor": SCALES, "attention_scaling": 1.0,
        **NO_TEMPERATURE, "logit_scale": LOGIT_SCALE,
        "inv_freq": [config["rope_theta"] ** (-j / pairs) for j in range(pairs)],
        "key_pairs": [[list(range(pairs))] * config["num_attention_heads"]] * config["num_hidden_layers"],
    }
    path = folder / "table.json"
    path.write_text(json.dumps(data))
    return path, data


def nll(text, *args, model=MODEL):
    found = json.loads(run("dpe-run", "-m", model, "--nll", text, "-c", CONTEXT, "--raw", "--score", "all", "--dtype", "f32", "--json", *args))
    assert found["windows"] >= 3
    return found["nll"]


def read_text(data, at):
    n = struct.unpack_from("<Q", data, at)[0]
    return data[at + 8:at + 8 + n].decode(), at + 8 + n


def read_value(data, kind, at):
    if kind == 8:
        return read_text(data, at)
    if kind != 9:
        return struct.unpack_from("<" + TYPES[kind], data, at)[0], at + struct.calcsize("<" + TYPES[kind])
    kind, n = struct.unpack_from("<IQ", data, at)
    at, values = at + 12, []
    for _ in range(n):
        value, at = read_value(data, kind, at)
        values.append(value)
    return values, at


def read_gguf(path):
    """Values by key, and (dimensions, type, bytes) by tensor; the bytes reach to the next tensor."""
    data = path.read_bytes()
    magic, version, n_tensors, n_values = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF" and version == 3
    at, values, infos = 24, {}, []
    for _ in range(n_values):
        key, at = read_text(data, at)
        kind, = struct.unpack_from("<I", data, at)
        assert key not in values, key
        values[key], at = read_value(data, kind, at + 4)
    for _ in range(n_tensors):
        name, at = read_text(data, at)
        n, = struct.unpack_from("<I", data, at)
        dims = struct.unpack_from(f"<{n}Q", data, at + 4)
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * n)
        at += 16 + 8 * n
        infos.append((name, dims, kind, offset))
    start = (at + 31) // 32 * 32
    assert all(offset % 32 == 0 for *_, offset in infos)
    ends = sorted(offset for *_, offset in infos) + [len(data) - start]
    tensors = {}
    for name, dims, kind, offset in infos:
        end = next(e for e in ends if e > offset)
        tensors[name] = (dims, kind, data[start + offset:start + end])
    return values, tensors


def write_gguf(path, values, tensors, version=3, kinds=()):
    """The reverse, for values (type, value) and tensors (dimensions, bytes); kinds: their types, else float32."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(values))
    for key, (kind, value) in values.items():
        head += text(key) + struct.pack("<I", kind) + (text(value) if kind == 8 else value if kind == 9 else
                                                       struct.pack("<" + TYPES[kind], value))
    data = b""
    for name, (dims, raw) in tensors.items():
        data += bytes(-len(data) % 32)
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, dict(kinds).get(name, 0), len(data))
        data += raw
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def small(**changes):
    """Header values of a file as llama.cpp's converter writes them for the bundled model, and two tensors."""
    values = {"general.architecture": (8, "llama"), "llama.block_count": (4, 4), "llama.context_length": (4, 256),
              "llama.embedding_length": (4, 256), "llama.attention.head_count": (4, 4), "llama.rope.freq_base": (6, 10000.0),
              "llama.attention.key_length": (4, 64), "llama.rope.dimension_count": (4, 64),
              "tokenizer.ggml.tokens": (9, struct.pack("<IQ", 8, 2) + b"".join(struct.pack("<Q", 2) + b"ab" for _ in "ab"))}
    values.update(changes)
    return ({key: value for key, value in values.items() if value is not None},
            {"a.weight": ((5,), struct.pack("<5f", *range(5))), "b.weight": ((3, 2), struct.pack("<6f", *range(6)))})


def check_gguf(folder, path):
    factors = [s for s in SCALES for _ in range(4)]
    own = {"llama.rope.scaling.type": "none", "llama.rope.scaling.attn_factor": struct.unpack("f", struct.pack(
           "f", math.sqrt(LOGIT_SCALE)))[0], "llama.rope.scaling.original_context_length": 256, "llama.context_length": CONTEXT}
    values, tensors = small(**{"llama.rope.scaling.type": (8, "linear"), "llama.rope.scaling.factor": (6, 2.0)})
    old, new = folder / "old.gguf", folder / "new.gguf"
    # IQ4_XS, a type that dpe itself does not multiply with, is copied like any other.
    write_gguf(old, values, tensors, kinds=[("a.weight", 23)])
    run("dpe-export", path, "--gguf", old, "-o", new)
    for turn in range(2):
        found, copied = read_gguf(new)
        kept = {key: value for key, (kind, value) in values.items() if kind != 9 and not key.startswith("llama.rope.scaling")}
        assert found == {**kept, "tokenizer.ggml.tokens": ["ab", "ab"], **own}, found
        assert list(copied) == [*tensors, "rope_freqs.weight"]
        for name, (dims, raw) in tensors.items():
            assert copied[name][:2] == (dims, 23 if name == "a.weight" else 0) and copied[name][2][:len(raw)] == raw
        assert copied["rope_freqs.weight"][:2] == ((32,), 0)
        assert struct.unpack("<32f", copied["rope_freqs.weight"][2]) == tuple(factors)
        # A file that has such a tensor gets another one in its place.
        again = folder / f"again{turn}.gguf"
        run("dpe-export", path, "--gguf", new, "--force", "-o", again)
        assert again.read_bytes() == new.read_bytes()
        new = again
    # Whatever scales the source, whose base need not be the table's then, is not in the copy.
    for change in ({"rope.scaling.factor": 4.0}, {"rope.scale_linear": 4.0}, {"rope.scaling.factor": 2.0, "rope.scaling.yarn_ext_factor": 1.0,
                   "rope.scaling.yarn_attn_factor": 1.5, "rope.scaling.yarn_log_multiplier": 1.0}):
        write_gguf(old, *small(**{f"llama.{key}": (6, value) for key, value in change.items()}, **{"llama.rope.freq_base": (6, 5e5)}))
        run("dpe-export", path, "--gguf", old, "--force", "-o", new)
        left = {key: value for key, value in read_gguf(new)[0].items() if ".rope.scal" in key}
        assert left == {key: value for key, value in own.items() if ".rope.scal" in key}, left
    # mistral3's queries grow by steps of the original length: that stays.
    values, tensors = small(**{"general.architecture": (8, "mistral3")})
    values = {key.replace("llama.", "mistral3."): value for key, value in values.items()}
    values.update({"mistral3.attention.temperature_scale": (6, 0.1), "mistral3.rope.scaling.original_context_length": (4, 64)})
    write_gguf(old, values, tensors)
    run("dpe-export", path, "--gguf", old, "--force", "-o", new)
    assert read_gguf(new)[0]["mistral3.rope.scaling.original_context_length"] == 64
    write_gguf(old, *small())
    good = old.read_bytes()
    bad = folder / "bad.gguf"
    wrong = [
        (b"", "expected a GGUF file"), (b"GGUX" + good[4:], "expected a GGUF file"), (good[:4] + struct.pack("<I", 1) + good[8:], "version 2 or 3"),
        (good[:100], "truncated"), (good[:8] + struct.pack("<QQ", 1 << 60, 1 << 60) + good[24:], "expected at most"),
    ]
    changes = [({"general.architecture": (8, "qwen2")}, "reads no factors"), ({"general.architecture": None}, "general.architecture"),
               ({"llama.block_count": (4, 5)}, "block_count is 5"), ({"llama.rope.freq_base": (6, 500000.0)}, "another model"),
               ({"llama.rope.dimension_count": (4, 32)}, "dimension_count is 32"), ({"split.count": (2, 3)}, "one file"),
               ({"general.alignment": (4, 7)}, "power of two"), ({"llama.rope.freq_base": (6, 0.0)}, "above 1")]
    for change, words in changes:
        write_gguf(bad, *small(**change))
        wrong.append((bad.read_bytes(), words))
    for data, words in wrong:
        bad.write_bytes(data)
        run("dpe-export", path, "--gguf", bad, "-o", folder / "never.gguf", code=65, says=[words, "bad.gguf"])
        assert not (folder / "never.gguf").exists()
    run("dpe-export", path, "--gguf", folder / "none.gguf", "-o", folder / "never.gguf", code=66, says=["none.gguf"])
    run("dpe-export", path, "--gguf", old, "-o", old, "--force", code=73)


def check_gguf_runs(folder, path):
    """dpe itself reads the factor on the logits out of the file that it wrote."""
    sys.path.insert(0, str(ROOT / "tests/engine/gguf"))
    import gguf_models
    old, new = folder / "whole.gguf", folder / "whole-new.gguf"
    gguf_models.write(old, *gguf_models.convert(MODEL))
    run("dpe-export", path, "--gguf", old, "-o", new)
    for model, factor in ((old, 1.0), (new, LOGIT_SCALE)):
        shown = run("dpe-run", "-m", model, "--method", "rope", "--length", CONTEXT, "--show-plan")
        found = float(re.search(r"^logit factor +(\S+)", shown, re.M).group(1))
        assert math.isclose(found, factor, rel_tol=1e-5), (model, found, factor)


def main(folder):
    source, data = table(folder)
    h5, exported = folder / "table.h5", folder / "model"
    run("dpe-export", source, "-o", h5)
    subprocess.run([sys.argv[3], h5], check=True)
    run("dpe-export", h5, "-o", folder / "back.json")
    every = ("top_k", "key_pairs")  # which JSON leaves out where every pair is one
    assert json.loads((folder / "back.json").read_text()) == {name: one for name, one in data.items() if name not in every}
    exported.mkdir()
    for name in ("model.safetensors", "tokenizer.json", "generation_config.json"):
        os.symlink(MODEL / name, exported / name)
    run("dpe-export", h5, "-m", MODEL, "--form", "longrope", "-o", exported / "config.json")
    config = json.loads((exported / "config.json").read_text())
    block = config["rope_scaling"]
    assert block == config["rope_parameters"] and block["rope_type"] == "longrope" and block["short_factor"] == [1.0] * 32
    assert block["long_factor"] == [s for s in SCALES for _ in range(4)] and block["rope_theta"] == 10000.0
    assert math.isclose(block["attention_factor"], math.sqrt(LOGIT_SCALE), rel_tol=1e-15)
    assert block["original_max_position_embeddings"] == config["original_max_position_embeddings"] == 256
    assert config["max_position_embeddings"] == CONTEXT
    text = folder / "text"
    text.write_text(max((ROOT / "data/sample").rglob("*.txt"), key=lambda p: p.name).read_text()[:9000])
    spec = "longrope:long=" + "/".join(f"{s:g}" for s in SCALES for _ in range(4)) + f",a={math.sqrt(LOGIT_SCALE):.17g}"
    found = [nll(text, "--table", h5), nll(text, "--method", spec), nll(text, "--method", "rope", model=exported)]
    assert max(found) - min(found) < 1e-9, found
    assert abs(found[0] - nll(text, "--method", "rope")) > 0.1  # it does something
    check_gguf(folder, h5)
    check_gguf_runs(folder, h5)
    # Forms of the other kind, and a DPE table in these: refused, with what would be lost.
    for form, options in (("yaml", ()), ("csv", ()), ("safetensors", ()), ("hf", ("-m", MODEL))):
        run("dpe-export", h5, "--format", form, *options, "-o", folder / "never", code=64, says=["table of frequencies"])
    dpe = {**data, "local_window": 32, "near_rule": "distance < local_window",
           "rounding": "separable", "adapter_required": True}
    dpe.pop("moves")
    (folder / "dpe.json").write_text(json.dumps(dpe))
    run("dpe-export", folder / "dpe.json", "-m", MODEL, "--form", "longrope", "-o", folder / "never", code=64,
        says=["near window of 32 tokens", "would be lost", "without an adapter has this form"])
    # What a table of frequencies cannot have.
    for change in ({"local_window": 32}, {"log_n_length": 256.0}, {"moves": "positions"}, {"schema_version": "2.0.0"},
                   {"near_rule": "distance < local_window"}):
        (folder / "wrong.json").write_text(json.dumps({**data, **change}))
        run("dpe-export", "--show", folder / "wrong.json", code=65)
    run("dpe-export", "--join", h5, h5, "-o", folder / "never.h5", code=65, says=["frequencies"])
    compare(folder, text, exported, h5, found[0])


def compare(folder, text, exported, h5, ours):
    """With the numbers of the other runtimes, or making them."""
    golden = json.loads(GOLDEN.read_text())
    if len(sys.argv) == 4:
        for name, value in golden.items():
            # llama.cpp keeps keys in half precision in some builds.
            assert abs(ours - value) < (0.005 * ours if name == "llama.cpp" else 1e-4), (name, ours, value)
        assert set(golden) == {"transformers", "llama.cpp", "vllm", "vllm-overrides"}
        return
    script = ROOT / "tests/golden/rope_forms.py"
    ids, old, new = folder / "ids", folder / "reference.gguf", folder / "reference-new.gguf"
    ids.write_text(run("dpe-run", "-m", MODEL, "--tokenize", "--raw", "--prompt-file", text))
    for name, python in (word.split("=", 1) for word in sys.argv[4:]):
        asked = {"transformers": ("transformers", exported), "llama.cpp": ("llama", new), "vllm": ("vllm", exported),
                 "vllm-overrides": ("vllm", MODEL)}[name]
        if name == "llama.cpp":
            subprocess.run([python, script, "make-gguf", MODEL, old], check=True)
            run("dpe-export", h5, "--gguf", old, "-o", new)
        last = [exported / "config.json"] if name == "vllm-overrides" else []
        done = subprocess.run([python, script, asked[0], asked[1], ids, str(CONTEXT), *last], check=True, capture_output=True,
                              text=True)
        golden[name] = float(done.stdout.split()[-1])
    print(f"dpe-run {ours:.9f}", golden)
    GOLDEN.write_text(json.dumps(golden, indent=2) + "\n")


with tempfile.TemporaryDirectory() as made:
    main(pathlib.Path(made))

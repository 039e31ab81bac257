#!/usr/bin/env python3
"""whole_path.py BIN [PROBE]: every kind of model that -m takes, and the shape of a real one, through the whole of dpe-calibrate, the
report, every form and back. The weights are random: what is tried is that no part stumbles over the kind or the shape. With PROBE
(adapter_probe, and a Python that has transformers): the kinds of layers alone, and their tables in transformers, whose logits must
be the engine's."""
import array
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "engine" / "gguf"), str(ROOT / "tests" / "engine" / "model")]
from gguf_models import convert, in_blocks  # noqa: E402
from gguf_tokenizer import byte_level  # noqa: E402
from gguf_writer import I32, U32, write  # noqa: E402
from packed_folders import GPTQ, Maker, bf16, flat, read, single  # noqa: E402

BIN = os.path.abspath(sys.argv[1])
TOKENIZER = ROOT / "data" / "reference" / "tokenizer.json"
VOCAB, HIDDEN, MLP = 2560, 32, 32
NARROW = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
REAL = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 1, "head_dim": 128}


def run(name, *words, code=0):
    ran = subprocess.run([os.path.join(BIN, name), *map(str, words)], capture_output=True, check=False, timeout=600,
                         stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    said = ran.stderr.decode(errors="replace")
    assert ran.returncode == code, (name, words, ran.returncode, said)
    return ran.stdout.decode(errors="replace"), said


def tool(*words, **kind):
    """What the tool says."""
    return run(*words, **kind)[1]


def output(*words):
    """What it prints."""
    return run(*words)[0]


# ---------------------------------------------------------------------------------------------- models

def shapes(config):
    q, kv = (config["head_dim"] * config[name] for name in ("num_attention_heads", "num_key_value_heads"))
    yield "model.embed_tokens.weight", [VOCAB, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    for i in range(config["num_hidden_layers"]):
        for name, shape in (("input_layernorm", [HIDDEN]), ("post_attention_layernorm", [HIDDEN]), ("self_attn.q_proj", [q, HIDDEN]),
                            ("self_attn.k_proj", [kv, HIDDEN]), ("self_attn.v_proj", [kv, HIDDEN]), ("self_attn.o_proj", [HIDDEN, q]),
                            ("mlp.gate_proj", [MLP, HIDDEN]), ("mlp.up_proj", [MLP, HIDDEN]), ("mlp.down_proj", [HIDDEN, MLP])):
            yield f"model.layers.{i}.{name}.weight", shape


def size(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def save(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_weights(config, fp8):
    """Slices of one block of normal numbers, in F16; with fp8 the layers' matrices are bytes with a scale each."""
    random.seed(3)
    normal = array.array("f", (random.gauss(0, 1) for _ in range(1 << 14)))
    halves = struct.pack(f"<{len(normal)}e", *normal) * 20
    tensors = {}
    for i, (name, shape) in enumerate(shapes(config)):
        at = 2 * (7 * i % 1024)
        if fp8 and len(shape) == 2 and ".layers." in name:
            tensors[name] = "F8_E4M3", shape, bytes(b & 0xbf for b in halves[at:at + size(shape)])
            tensors[name + "_scale"] = "F32", [1], struct.pack("<f", 0.5)
        else:
            tensors[name] = "F16", shape, halves[at:at + 2 * size(shape)]
    return tensors


def make_folder(folder, shape, shards=1, fp8=False):
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
              "intermediate_size": MLP, "max_position_embeddings": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
              "vocab_size": VOCAB, "tie_word_embeddings": True, "torch_dtype": "float16", "bos_token_id": 0, **shape}
    if fp8:
        config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copyfile(TOKENIZER, folder / "tokenizer.json")
    tensors = make_weights(shape, fp8)
    names = list(tensors)
    index = {}
    for i in range(shards):
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        file = "model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save(folder / file, {name: tensors[name] for name in part})
        index.update(dict.fromkeys(part, file))
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def with_vocabulary(tensors, rng):
    """The model's tensors with rows for each token of the tokenizer."""
    rows = {name: [VOCAB, shape[1]] for name, (_, shape, _) in tensors.items()
            if name in ("model.embed_tokens.weight", "model.embed_tokens_per_layer.weight", "lm_head.weight")}
    return tensors | {name: ("F32", shape, floats(rng.gauss(0, 1) for _ in range(size(shape)))) for name, shape in rows.items()}


def floats(values):
    return array.array("f", values).tobytes()


def finish(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": VOCAB, "vocab_size_per_layer_input": VOCAB, "max_position_embeddings": 64}))
    shutil.copyfile(TOKENIZER, folder / "tokenizer.json")
    save(folder / "model.safetensors", tensors)
    return folder


def make_family(work, name):
    """A golden model, with the tokenizer's vocabulary and another trained length."""
    golden = ROOT / "tests" / "golden" / "families" / name
    return finish(work / name, json.loads((golden / "config.json").read_text()),
                  with_vocabulary(read(golden / "model.safetensors"), random.Random(5)))


def make_gptq(work):
    """Matrices of 4 bits in groups of 16 columns in any order; beside it the same weights unpacked, for what reads no GPTQ."""
    rng, packed, plain = random.Random(7), {}, {}
    for name, shape in shapes(NARROW):
        if len(shape) == 2 and ".layers." in name:
            made = Maker(rng, name[:-len(".weight")], *shape, "gptq-bits=4-size=16-order=1")
            packed.update(made.tensors)
            plain[name] = "BF16", shape, array.array("H", (bf16(single(value)) for value in flat(made.values))).tobytes()
        else:
            packed[name] = plain[name] = "F32", shape, floats([8.0] * size(shape) if len(shape) == 1 else (rng.gauss(0, 1) for _ in range(size(shape))))
    config = json.loads((work / "folder" / "config.json").read_text()) | {"dtype": "float32"}
    finish(work / "gptq-plain", config, plain)
    return finish(work / "gptq", config | {"quantization_config": GPTQ | {"group_size": 16}}, packed)


def make_gguf(work, name, shape, parts=1):
    meta, tensors = convert(make_folder(work / (name + "-folder"), shape))
    meta = [line for line in meta if line[0] != "tokenizer.ggml.bos_token_id"] + byte_level(json.loads(TOKENIZER.read_text()))
    tensors = in_blocks(tensors) if shape is NARROW else tensors
    if parts == 1:
        write(work / (name + ".gguf"), meta, tensors)
        return work / (name + ".gguf")
    for i in range(parts):
        split = [("split.no", U32, i), ("split.count", U32, parts), ("split.tensors.count", I32, len(tensors))]
        write(work / f"{name}-{i + 1:05}-of-{parts:05}.gguf", [*(meta if i == 0 else []), *split],
              tensors[i * len(tensors) // parts:(i + 1) * len(tensors) // parts])
    return work / f"{name}-00001-of-{parts:05}.gguf"


# ------------------------------------------------------------------------------------------- the path

LENGTH = 128
SWEEP = ("-l", LENGTH, "--niah", "digits=3", "--groups", "1", "--lengths", "64,128", "--samples", "2", "--select", "paper",
         "--temperature", "off", "--threads", "1")
PROFILE = ()


def calibrate(work, model, out, *words):
    """The whole of it; again from what it measured, as after a failure of a form; and again: it is complete."""
    command = ("dpe-calibrate", "-m", model, "--corpus", work / "corpus", "-o", out, *SWEEP, *words)
    said = tool(*command)
    for name in ("table.h5", "report.html"):
        (out / name).unlink()
    is_file = model.is_file()
    assert [(out / name).exists() for name in ("kld-trained.h5", "kld.h5")] == [is_file] * 2, out
    assert "nothing was changed" not in tool(*command), out
    printed, again = run(*command)
    assert "nothing was changed" in again, out
    assert ("\nnext token   " in printed) == is_file, printed
    assert "changes texts up to the trained length" not in again, again
    # The page says what the last lines say.
    page = (out / "report.html").read_text()
    verdicts = {line.split(": ")[1].split(" (")[0] for line in (printed + again).splitlines() if line.startswith("the table ") and ": " in line}
    for verdict, words in (("better", ("holds on this model", "helps this model")), ("worse", ("harms this model",))):
        assert verdict not in verdicts or any(f"The table {one}" in page for one in words), (out, verdicts)
    return said


def same_table(a, b):
    for group in ("table", "model"):
        ran = subprocess.run(["h5diff", a, b, "/" + group, "/" + group], capture_output=True, check=False)
        assert ran.returncode == 0, (a, b, group, ran.stdout, ran.stderr)


def use(model, table):
    tool("dpe-run", "-m", model, "--table", table, "-p", "Once upon a time", "-n", "2", "--threads", "1")


def positions(work, model, out, *words):
    """The table of DPE, and every form of it that can be read."""
    calibrate(work, model, out, *PROFILE, *words)
    for form in ("table.h5", "table.json", "config.json", "detect.h5", ""):
        use(model, out / form)
    assert "selected_dim_path: scores.pt" in (out / "table.yaml").read_text().replace('"', "").replace("'", ""), out
    assert f"length          {LENGTH}\n" in output("dpe-run", "-m", model, "--table", out, "--show-plan"), out
    back = work / (out.name + "-back.h5")
    for form in ("table.h5", "table.json", "config.json", "table.safetensors"):
        tool("dpe-export", out / form, "-o", back, "--force")
        same_table(out / "table.h5", back)
    tool("dpe-export", "--import-yaml", out / "table.yaml", "-m", model, "--length", LENGTH, "-o", back, "--force")
    for form in ("table.csv", "scores.pt", "report.html"):
        assert (out / form).stat().st_size > 0, form
    tool("dpe-export", "--check", out / "table.h5", "-m", model)
    for each in (["detect.h5"], ["table.h5"], ["check.h5", "norms.h5"]):
        tool("dpe-report", *(out / name for name in each), "-o", work / "page.html", "--force", "--quiet")


def temperature(work, model, out, *words):
    """The table of a model that has nothing to move: a search, no sweep, profile or key pairs; the formula of dpe is such a plan."""
    task = ("-m", model, "--corpus", work / "corpus", "-l", LENGTH, "--niah", "digits=3", "--threads", "1", *words)
    said = tool("dpe-calibrate", *task, "-o", out)
    assert "1 of 4: search" in said and "dpe-norms" not in said, said
    assert "nothing was changed" in tool("dpe-calibrate", *task, "-o", out)
    names = {path.name for path in out.iterdir()}
    assert names == {"detect.h5", "check.h5", "table.h5", "table.json", "config.json", "report.html", "forms.sha256"}, names
    plan = output("dpe-run", "-m", model, "--table", out, "--show-plan")
    if "\npairs " in plan:  # its pairs rotate too fast for a plan
        assert model.name == "gemma4" and "effective distance" in plan, plan
    else:
        factors = [float(line.split()[1]) for line in plan.rpartition(" factor\n")[2].splitlines() if line]
        assert "no pair rotates" in plan and "effective distance" not in plan and len(factors) == 8 and sorted(factors) == factors, plan
    formula = output("dpe-run", "-m", model, "--method", "dpe", "--length", LENGTH, "--show-plan")
    assert "log-n=64,log-n-power=0.7, a formula: nothing was measured\n" in formula, formula
    tool("dpe-export", "--method", "dpe", "-m", model, "--length", LENGTH, "-o", work / (out.name + "-formula.h5"))
    use(model, work / (out.name + "-formula.h5"))
    back = work / (out.name + "-back.h5")
    for form in ("table.h5", "table.json", "config.json"):
        use(model, out / form)
        tool("dpe-export", out / form, "-o", back, "--force")
        same_table(out / "table.h5", back)
    tool("dpe-export", "--check", out / "table.h5", "-m", model)
    said = tool("dpe-detect", *task, "--select", "paper", "-o", back, "--force", code=64)
    assert "no layer of this model that sees all keys rotates" in said or model.name == "gemma4", said


def too_late(work, model):
    """What a later part or form would refuse is found before the first part: a corpus too short for the second entry, a name
    that YAML cannot hold."""
    said = tool("dpe-calibrate", "-m", model, "--corpus", work / "corpus", "-o", work / "short", *SWEEP, "-l", "128,100k", code=65)
    assert "1 of " not in said and not (work / "short").exists(), said
    os.symlink(model, work / "no-utf8-\udcff.gguf")
    said = tool("dpe-calibrate", "-m", work / "no-utf8-\udcff.gguf", "--corpus", work / "corpus", "-o", work / "short", *SWEEP,
                code=64)
    assert "name of the model in a YAML" in said and not (work / "short").exists(), said


def trained(model):
    return json.loads(output("dpe-run", "-m", model, "--info", "--json"))["trained_length"]


def exports(work, model, gguf):
    """A method's own table in every form that holds it; a model made longer by one still knows its trained length."""
    for form in ("h5", "json", "longrope"):
        tool("dpe-export", "--method", "yarn:scale=2", "-m", model, "--length", LENGTH, "--format", form, "-o", work / "yarn", "--force")
    made = work / "longrope"
    shutil.rmtree(made, ignore_errors=True)
    if model.is_dir():
        shutil.copytree(model, made)
        shutil.copyfile(work / "yarn", made / "config.json")
        assert trained(made) == trained(model) == 64, model
    if gguf:
        tool("dpe-export", "--method", "yarn:scale=2", "-m", model, "--length", LENGTH, "--gguf", model, "-o", work / "copy.gguf", "--force")
        tool("dpe-run", "-m", work / "copy.gguf", "-p", "Once upon a time", "-n", "2", "--threads", "1")
        assert trained(work / "copy.gguf") == 64


KINDS = {"qwen3_5": positions, "glm4_moe": positions, "minimax_m2": positions, "gptq": positions, "cohere2": temperature,
         "olmo_hybrid_still": temperature, "llama4": temperature, "gemma4": temperature, "hunyuan": positions}


def adapter(probe, model, plain, table):
    """The model under its table in transformers, read at once and token by token."""
    sys.path[:0] = [str(ROOT / "tests" / "golden")]
    import argparse
    import adapter_transformers as golden
    import torch
    torch.set_grad_enabled(False)
    ids = random.Random(9).choices(range(VOCAB), k=LENGTH)
    loaded = golden.load(str(plain))
    native = loaded(torch.tensor([ids])).logits[0]
    with tempfile.TemporaryDirectory() as scratch:
        want = golden.engine_logits(argparse.Namespace(probe=probe), scratch, str(model), str(table), ids)
    golden.dpe_transformers.apply(loaded, str(table))
    golden.dpe_transformers.expect(loaded, LENGTH)
    errors = [golden.error(loaded(torch.tensor([ids])).logits[0], want), golden.error(golden.decode(loaded, ids, LENGTH // 2), want)]
    changes = golden.error(native, want)
    print(f"{model.name}: largest difference / spread, at once and token by token: {errors[0]:.1e}, {errors[1]:.1e}; without the table {changes:.1e}", flush=True)
    assert max(errors) <= golden.LIMIT and changes > 10 * golden.LIMIT, (model, errors, changes)


def main():
    probe = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "corpus").mkdir()
        for book in sorted((ROOT / "data" / "sample" / "test").glob("90000*.txt"))[:3]:
            (work / "corpus" / book.name).write_bytes(book.read_bytes()[:6000])
        folder = make_folder(work / "folder", NARROW)
        for kind, path in KINDS.items():
            model = make_gptq(work) if kind == "gptq" else make_family(work, kind)
            # The only length that the sweep may choose is one that moves positions.
            path(work, model, work / ("of-" + kind), *(("--lengths", "64") if path is positions else ()))
            print(kind, "ok", flush=True)
            if probe is not None:
                # A search may keep the model as it is; the formula does not.
                table = work / f"of-{kind}" / "table.h5" if path is positions else work / f"of-{kind}-formula.h5"
                adapter(probe, model, work / "gptq-plain" if kind == "gptq" else model, table)
        if probe is not None:
            return
        models = {"folder": folder, "sharded": make_folder(work / "sharded", NARROW, shards=2),
                  "fp8": make_folder(work / "fp8", NARROW, fp8=True), "gguf": make_gguf(work, "gguf", NARROW),
                  "split": make_gguf(work, "split", NARROW, parts=2), "real": make_gguf(work, "real", REAL)}
        for kind, model in models.items():
            positions(work, model, work / ("of-" + kind), *{"real": ("--top-k", "0.75"), "split": ("--dtype", "bf16")}.get(kind, ()))
            exports(work, model, kind in ("gguf", "real"))
            print(kind, "ok", flush=True)
        too_late(work, models["gguf"])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Random models of two to four layers as GGUF files of llama.cpp's own converter: the logits of llama.cpp and of dpe beside those of
transformers. By hand:

    python3 tests/golden/gguf_random.py LLAMA_CPP TEST_GOLDEN [NAME...]

LLAMA_CPP: its sources, with the converter (those in llama-cpp-python 0.3.36: 0c1e570). TEST_GOLDEN: build/tests/test_golden. Needs torch, transformers,
llama-cpp-python with a library of the same sources (LLAMA_CPP_LIB_PATH names another one's folder). Fails where dpe and llama.cpp
differ by more than 1e-3 of the spread of the logits: llama.cpp multiplies float weights as float, and keeps keys and values as F32 here.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import llama_cpp as lc
import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), os.path.join(sys.argv[1], "gguf-py"), sys.argv[1]]
import make_families as families  # noqa: E402
from conversion import ModelBase, ModelType, get_model_class  # noqa: E402
from conversion.base import TextModel  # noqa: E402
import gguf  # noqa: E402

# What llama.cpp wants beyond the golden sizes: a state's keys and values have one width, and biases and layers as they are published.
SAME = dict(linear_key_head_dim=16, linear_value_head_dim=16)
CHANGES = {"qwen3_5": SAME, "qwen3_5_moe": SAME, "qwen3_next": SAME, "seed_oss": dict(attention_out_bias=False), "ernie4_5": dict(use_bias=False),
           "cohere2": dict(num_hidden_layers=4, layer_types=families.types(1, 1, 1, 0))}
# Keys of published models that transformers leaves out.
PUBLISHED = {"minimax_m2": {"scoring_func": "sigmoid"}, "cohere2": {"rotary_pct": 1.0}}
NAMES = ("qwen3_5", "qwen3_5_moe", "qwen3_next", "glm4_moe", "minimax_m2", "seed_oss", "cohere2", "ernie4_5", "hunyuan_tied", "llama4_wide", "gemma4", "gemma4_alike", "gemma4_experts")


def make(folder, name, family, keys, schema):
    """A model, some tokens and the logits of transformers, as test_golden reads them."""
    generator = torch.Generator().manual_seed(len(name))
    model = families.make_model(family, {**keys, **CHANGES.get(name, {})})
    families.fill(model, generator)
    model.save_pretrained(folder)
    families.rewrite_rotation(folder / "config.json", schema)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | PUBLISHED.get(name, {})))
    if name == "qwen3_5_moe":
        families.stack_experts(folder / "model.safetensors")
    if name.startswith("gemma4"):  # the converter counts the tokens of a file
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(64)}}, "added_tokens": []}))
    tokens = torch.randint(3, 64, (40,), generator=generator).tolist()
    (folder / "tokens.json").write_text(json.dumps(tokens))
    logits = families.logits_of(folder, tokens, torch.float32)
    for part in ("logits", "oracle"):
        logits.astype("<f4").tofile(folder / f"{part}.f32")
    return tokens, logits


def convert(folder, path):
    """By llama.cpp's converter, without the tokenizer: these models have none."""
    TextModel.set_vocab = lambda model: (model.gguf_writer.add_tokenizer_model("none"),
                                         model.gguf_writer.add_vocab_size(model.hparams["vocab_size"]))
    hparams = ModelBase.load_hparams(folder, False)
    made = get_model_class(hparams["architectures"][0])
    made.set_vocab, made.no_mtp = TextModel.set_vocab, True
    with torch.inference_mode():
        made(folder, gguf.LlamaFileType.ALL_F32, path).write()


def logits_of(path, tokens):
    """Of every token, by llama.cpp."""
    quiet = lc.llama_log_callback(lambda level, text, user: sys.stderr.buffer.write(text) if level >= 3 and b"vocab" not in text else None)
    lc.llama_log_set(quiet, None)
    model = lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())
    assert model, path
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.type_k = params.type_v = 0  # F32
    params.flash_attn_type = 0
    params.n_threads = params.n_threads_batch = 1
    context = lc.llama_init_from_model(model, params)
    batch = lc.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.logits[i] = token, i, True
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    assert lc.llama_decode(context, batch) == 0, path
    size = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    rows = [np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (size,)).copy() for i in range(len(tokens))]
    lc.llama_batch_free(batch)
    lc.llama_free(context)
    lc.llama_model_free(model)
    return np.stack(rows)


def compare(name, family, keys, schema):
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        folder = work / "tests" / "golden" / name
        folder.mkdir(parents=True)
        tokens, want = make(folder, name, family, keys, schema)
        convert(folder, work / f"{name}.gguf")
        said = subprocess.run([os.path.abspath(sys.argv[2]), name], env={**os.environ, "DPE_TEST_GGUF": str(work), "DPE_SOURCE_DIR": str(work)},
                              capture_output=True, text=True, check=False)
        mine = [float(error) for error in re.findall("spread: ([0-9.e-]+) to float32", said.stdout)]
        print(f"{name}: transformers and dpe {max(mine) if mine and said.returncode == 0 else said.stderr}", end=", ", flush=True)
        got = logits_of(work / f"{name}.gguf", tokens)
        error = np.abs(got[:, :want.shape[1]] - want).max() / (want.max() - want.min())
        print(f"and llama.cpp {error:.1e} of the spread", flush=True)
        most = 1e-2 if name.startswith("gemma4") else 1e-3  # llama.cpp's GELU on a processor is a table of halves
        return 0 if said.returncode == 0 and error < most else 1


def main():
    failed = 0
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name, *model in families.MODELS:
        if name in (sys.argv[3:] or NAMES):
            child = os.fork()  # llama.cpp aborts where it cannot run a model
            if child == 0:
                lc.llama_backend_init()
                os._exit(compare(name, *model))
            failed |= os.waitpid(child, 0)[1]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

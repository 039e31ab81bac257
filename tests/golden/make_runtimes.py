#!/usr/bin/env python3
"""Oracle of `dpe-run --runtimes`: what the runtimes themselves make of the rotation in a config.json.

    make_runtimes.py transformers|transformers4|vllm|mlx|llama.cpp [SOURCE]  answers of that runtime into runtimes.json

Run by hand in a Python that has the runtime: transformers 5 or 4 with torch; vllm; mlx and the files of mlx-lm (SOURCE: the folder
that holds mlx_lm); llama.cpp's converter (SOURCE: its source, with torch and transformers), whose keys of a GGUF file are written down.
Nothing of the engine is used. test_runtimes.c holds dpe against these answers; continuous integration runs only that.

An answer is {"inv_freq": of every STEP-th pair, "factor": of cosines and sines, "longest": where it refuses longer texts} or
{"refused": the exception}. CASES name the public thread that each configuration is of.
"""
import importlib
import json
import os
import pathlib
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).parent
OUT = HERE / "runtimes.json"
STEP = 9

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_attention_heads": 32,
         "num_key_value_heads": 8, "num_hidden_layers": 2, "intermediate_size": 14336, "vocab_size": 512, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": False}
SHORT = [1.0 + 0.02 * j for j in range(48)]
LONG = [1.0 + 1.25 * j for j in range(48)]


def of(kind, **more):
    """LLAMA as another model type; None removes a key."""
    names = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "mistral": "MistralForCausalLM", "phi3": "Phi3ForCausalLM",
             "ministral3": "Ministral3ForCausalLM", "olmo3": "Olmo3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
             "llama": "LlamaForCausalLM"}
    config = dict(LLAMA, model_type=kind, architectures=[names[kind]], **more)
    return {key: value for key, value in config.items() if value is not None}


def phi(**rope):
    return of("phi3", hidden_size=3072, num_attention_heads=24, partial_rotary_factor=0.75, max_position_embeddings=131072,
              original_max_position_embeddings=4096, rope_theta=10000.0, pad_token_id=0,
              rope_scaling=dict({"type": "longrope", "short_factor": SHORT, "long_factor": LONG}, **rope))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
MINISTRAL = {"rope_type": "yarn", "type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
             "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
CASES = [  # name, thread, length, configuration
    ("plain", "", 4096, of("llama")),
    ("laguna attention_factor 1", "vllm#46280", 100000,
     of("llama", rope_scaling=dict(YARN, factor=64.0, attention_factor=1.0, original_max_position_embeddings=4096),
        max_position_embeddings=262144)),
    ("ministral3 mscale and growth", "vllm#48621", 100000,
     of("ministral3", head_dim=128, max_position_embeddings=262144, rope_theta=None, rope_parameters=MINISTRAL)),
    ("kimi-k3 dspark deepseek_yarn", "vllm#53634", 100000,
     of("llama", max_position_embeddings=1048576, rope_theta=50000.0,
        rope_parameters={"rope_type": "deepseek_yarn", "rope_theta": 50000.0, "factor": 32.0,
                         "original_max_position_embeddings": 32768})),
    ("telechat3", "vllm#55116", 16384,
     of("llama", max_position_embeddings=32768, rope_theta=1e6,
        rope_scaling={"type": "telechat3-yarn", "factor": 4.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
                      "beta_slow": 1.0})),
    ("sarvam deepseek_yarn", "vllm#56279", 100000,
     of("llama", max_position_embeddings=131072, rope_theta=10000.0,
        rope_scaling={"type": "deepseek_yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0,
                      "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0})),
    ("olmo3 attention_factor of the formula", "mlx-lm#1507", 60000,
     of("olmo3", num_key_value_heads=32, max_position_embeddings=65536,
        rope_scaling={"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2079441541679836, "beta_fast": 32.0,
                      "beta_slow": 1.0, "original_max_position_embeddings": 8192}, sliding_window=4096,
        layer_types=["sliding_attention", "full_attention"], pad_token_id=0)),
    ("yarn attention_factor 1", "mlx-lm#1507", 60000, of("llama", rope_scaling=dict(YARN, attention_factor=1.0))),
    ("phi-4-mini short text", "mlx-lm#660", 2000, phi()),
    ("phi-4-mini long text", "mlxcel#1358", 60000, phi()),
    ("longrope mscales", "mlxcel#1358", 60000, phi(short_mscale=1.1, long_mscale=1.3)),
    ("longrope attention_factor", "", 60000, phi(attention_factor=1.4)),
    ("phi-3 su", "CTranslate2#1685", 60000, phi(type="su")),
    ("mistral mscale 1 and 1", "exllamav3#259", 60000,
     of("mistral", head_dim=128, max_position_embeddings=262144, rope_theta=1e8,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 8192, "mscale": 1.0,
                      "mscale_all_dim": 1.0, "beta_fast": 4.0, "beta_slow": 1.0})),
    ("mscale 0.707 over 1", "llama.cpp#17945", 60000,
     of("mistral", head_dim=128, max_position_embeddings=163840, rope_theta=10000.0,
        rope_scaling={"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707,
                      "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0})),
    ("llama 3.1", "unsloth#6197", 60000, of("llama", rope_scaling=LLAMA3)),
    ("llama 3.2 factor 32", "llama-models#241", 80000, of("llama", rope_scaling=dict(LLAMA3, factor=32.0))),
    ("base in rope_parameters alone", "DeepSpeed#8345", 60000,
     of("llama", rope_theta=None, rope_parameters=dict(LLAMA3, rope_theta=500000.0))),
    ("yarn in rope_parameters alone", "sglang#26187", 100000,
     of("llama", rope_theta=None, rope_parameters=dict(YARN, rope_theta=1e6))),
    ("linear that lost its base", "unsloth#7028", 60000, of("llama", rope_theta=None, rope_parameters={"rope_type": "linear", "factor": 2.0})),
    ("qwen3 yarn", "sglang#8016", 100000,
     of("qwen3", head_dim=128, max_position_embeddings=40960, rope_theta=1e6, rope_scaling=YARN)),
    ("qwen2 yarn by its old name", "vllm#10293", 100000,
     of("qwen2", max_position_embeddings=131072, rope_theta=1e6,
        rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768})),
    ("qwen3 base 1000 by mistake", "vllm-ascend#5201", 60000,
     of("qwen3", head_dim=128, max_position_embeddings=131072, rope_theta=1e6, rope_parameters=dict(YARN, rope_theta=1000.0))),
    ("gpt-oss truncate", "", 60000, of("llama", rope_theta=150000.0, rope_scaling=dict(YARN, truncate=False, factor=32.0,
                                                                                     original_max_position_embeddings=4096))),
    ("dynamic", "vllm#10537", 60000, of("llama", max_position_embeddings=8192, rope_scaling={"type": "dynamic", "factor": 8.0})),
    ("dynamic short text", "vllm#10537", 4000,
     of("llama", max_position_embeddings=8192, rope_scaling={"type": "dynamic", "factor": 8.0})),
    ("linear", "mlx-vlm#1709", 60000, of("llama", rope_scaling={"rope_type": "linear", "factor": 8.0})),
    ("two blocks", "", 60000,
     of("llama", rope_scaling={"rope_type": "linear", "factor": 4.0},
        rope_parameters={"rope_type": "yarn", "factor": 8.0, "rope_theta": 300000.0, "original_max_position_embeddings": 16384})),
    ("two original lengths", "", 60000, of("llama", original_max_position_embeddings=8192, rope_scaling=YARN)),
    ("yarn factor null", "", 60000, of("llama", rope_scaling=dict(YARN, factor=None))),
    ("yarn without factor", "", 60000,
     of("llama", rope_scaling={"rope_type": "yarn", "original_max_position_embeddings": 32768})),
    ("unknown type", "", 60000, of("llama", rope_scaling={"rope_type": "clex-turbo", "factor": 4.0})),
    ("two types", "", 60000, of("llama", rope_scaling={"rope_type": "linear", "type": "dynamic", "factor": 4.0})),
    ("longrope without its lists", "", 60000,
     of("llama", rope_scaling={"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 8192})),
    ("longrope of a llama", "", 60000,
     of("llama", rope_scaling={"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 8192,
                               "short_factor": [1.0 + 0.02 * j for j in range(64)],
                               "long_factor": [1.0 + 0.9 * j for j in range(64)]})),
]


def answer(inv_freq, factor, longest=None):
    made = {"inv_freq": [float(f"{float(f):.7g}") for f in list(inv_freq)[::STEP]], "factor": float(f"{float(factor):.7g}")}
    if longest is not None:
        made["longest"] = int(longest)
    return made


def of_transformers(config, length):
    import torch
    from transformers import AutoConfig
    made = AutoConfig.for_model(**json.loads(json.dumps(config)))
    kind = config["model_type"]
    code = importlib.import_module(f"transformers.models.{kind.replace('_text', '')}.modeling_{kind.replace('_text', '')}")
    name = next(n for n in dir(code) if n.endswith("RotaryEmbedding") and "Vision" not in n)
    rope = getattr(code, name)(config=made)
    position = torch.tensor([[length - 1]])
    if "layer_types" in config and not hasattr(rope, "inv_freq"):  # a rotation for each kind of layer
        rope(torch.zeros(1, 1, 1, dtype=torch.float32), position, "full_attention")
        return answer(rope.full_attention_inv_freq, rope.full_attention_attention_scaling)
    rope(torch.zeros(1, 1, 1, dtype=torch.float32), position)
    return answer(rope.inv_freq, rope.attention_scaling)


def of_vllm(config, length):
    from unittest import mock
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.config import model as vllm_model
    from vllm.model_executor.layers import rotary_embedding
    from vllm.model_executor.layers.rotary_embedding import phi3_long_rope_scaled_rope as phi3
    from vllm.transformers_utils.config import get_config, get_hf_text_config
    from vllm.transformers_utils.model_arch_config_convertor import (MODEL_ARCH_CONFIG_CONVERTORS,
                                                                     ModelArchConfigConvertorBase)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        made = get_config(folder, trust_remote_code=False)
    text = get_hf_text_config(made)
    convertor = MODEL_ARCH_CONFIG_CONVERTORS.get(made.model_type, ModelArchConfigConvertorBase)(made, text)
    # Asked for a length beyond it, vLLM says what it derives; the largest that it takes is found by asking.
    def takes(n):
        try:
            vllm_model._get_and_verify_max_len(made, convertor.convert(), None, n, False, None)
            return True
        except ValueError:
            return False
    low, high = 1, 1 << 27
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if takes(middle) else (low, middle - 1)
    serves = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=length))
    rotary_embedding._ROPE_DICT.clear()
    block = text.rope_parameters
    block = block.get("full_attention", block)
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    with set_current_vllm_config(VllmConfig()), mock.patch.object(phi3, "get_current_vllm_config", lambda: serves):
        rope = rotary_embedding.get_rope(head, max_position=text.max_position_embeddings, rope_parameters=block,
                                         dtype=torch.float32)
    table = getattr(rope, "cos_sin_cache", None)
    rows = None
    if table is None:
        table = rope.long_short_cos_sin_cache
        long = rope.use_long_rope
        table = table[rope.original_max_position_embeddings:] if long else table[:rope.original_max_position_embeddings]
    rows = table.shape[0]
    cos, sin = table[1].double().chunk(2)
    made = answer(torch.atan2(sin, cos), torch.sqrt(cos[0] ** 2 + sin[0] ** 2), low)
    made["rows"] = rows
    return made


def of_mlx(config, length):
    import mlx.core as mx
    kind = config["model_type"]
    code = importlib.import_module(f"mlx_lm.models.{ {'mistral': 'llama'}.get(kind, kind)}")  # as its MODEL_REMAPPING
    args = code.ModelArgs.from_dict(config)
    attention = next(getattr(code, n) for n in dir(code) if n.endswith("Attention"))
    layer = [config["layer_types"].index("full_attention")] if "layer_types" in config else []
    rope = attention(args, *layer).rope
    caught = {}

    def catch(x, dims, traditional, base, scale, offset, freqs=None, **more):
        caught.update(x=x, dims=dims, base=base, scale=scale, freqs=freqs)
        return x
    real, mx.fast.rope = mx.fast.rope, catch
    try:
        rope(mx.ones((1, 1, 1, int(getattr(args, "head_dim", None) or 128))), offset=length - 1)
    finally:
        mx.fast.rope = real
    dims = caught["dims"]
    if caught["freqs"] is not None:
        inv_freq = [caught["scale"] / f for f in caught["freqs"].tolist()]
    else:
        inv_freq = [caught["scale"] * caught["base"] ** (-2.0 * j / dims) for j in range(dims // 2)]
    return answer(inv_freq, caught["x"].reshape(-1)[0].item())


def of_llama_cpp(config, length):
    """The keys of rotation that the converter writes."""
    import gguf
    from conversion import get_model_class
    del length
    keys = {}

    class Writer:
        def __getattr__(self, name):
            def write(*values, **more):
                if "rope" in name or "temperature" in name or "context_length" in name:
                    value = values[0] if values else None
                    keys[name.removeprefix("add_")] = getattr(value, "value", value)
            return write
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        made = get_model_class(config["architectures"][0])(pathlib.Path(folder), gguf.LlamaFileType.ALL_F32,
                                                           pathlib.Path(folder) / "out.gguf", hparams=config)
    inner = getattr(made, "impl", made)
    inner.gguf_writer = Writer()
    inner.set_gguf_parameters()
    for name, tensor in inner.generate_extra_tensors():
        keys[name] = [float(f"{v:.7g}") for v in tensor.tolist()[::STEP]]
    return keys


def main(which, source=None):
    if source is not None:
        sys.path.insert(0, source)
        sys.path.insert(0, os.path.join(source, "gguf-py"))
        if which == "mlx":  # its models alone: the package itself needs more than mlx
            package = types.ModuleType("mlx_lm")
            package.__path__ = [os.path.join(source, "mlx_lm")]
            sys.modules["mlx_lm"] = package
    made = json.loads(OUT.read_text()) if OUT.exists() else {}
    answers = {"transformers": of_transformers, "transformers4": of_transformers, "vllm": of_vllm, "mlx": of_mlx,
               "llama.cpp": of_llama_cpp}[which]
    old = {case["name"]: case for case in made.get("cases", [])}
    cases = []
    for name, thread, length, config in CASES:
        case = {"name": name, "thread": thread, "length": length, "config": config,
                "answers": old.get(name, {}).get("answers", {})}
        try:
            case["answers"][which] = answers(json.loads(json.dumps(config)), length)
        except Exception as error:  # whatever stops the runtime is its answer
            case["answers"][which] = {"refused": f"{type(error).__name__}: {error}"[:160].split("\n")[0]}
        print(f"{name:40} {json.dumps(case['answers'][which])[:150]}", file=sys.stderr)
        cases.append(case)
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUT.write_text('{"step": %d, "cases": [\n%s\n]}\n' % (STEP, lines))


if __name__ == "__main__":
    main(*sys.argv[1:])

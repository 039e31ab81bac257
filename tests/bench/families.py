#!/usr/bin/env python3
"""families.py BIN [MODEL...]: the table of detect/families.md, of the shapes below (all, or those whose names are given).

For each shape a folder with its config.json and the bundled tokenizer, which is all that a dry run reads of a model. Tokens and
operations are those of `dpe-detect --dry-run` and `dpe-calibrate --dry-run` at L; so are the weights. Keys and values follow
from the shape. --max-memory lets all samples of a context fit, so that nothing depends on this machine. Some seconds a row.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SLOW, FAST = 1e12, 650e12  # operations a second
CARD = 22.0  # GiB that a card of 24 GB has for weights, keys and values

COMMON = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
          "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def shape(kind, layers, width, mlp, heads, kv_heads, vocabulary, trained, base, **more):
    return {**COMMON, "model_type": kind, "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": mlp,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary,
            "max_position_embeddings": trained, "rope_theta": base, **more}


def windows(layers, every, window):
    """Every so-manieth layer sees all keys, the others a window."""
    return {"sliding_window": window, "layer_types": ["full_attention" if (i + 1) % every == 0 else "sliding_attention"
                                                      for i in range(layers)]}


def llama3(factor):
    return {"rope_scaling": {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 8192}}


def yarn(factor, original):
    return {"rope_scaling": {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original,
                             "beta_fast": 32.0, "beta_slow": 1.0}}


TIED = {"tie_word_embeddings": True}
HYBRID = {"head_dim": 256, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8, "linear_conv_kernel_dim": 4,
          "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                              "mrope_interleaved": True, "mrope_section": [11, 11, 10]}}
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "query_pre_attn_scalar": 256, **TIED}


def gemma3(layers, width, mlp, heads, kv_heads, vocabulary, trained, window, scaling):
    near = {"rope_type": "default", "rope_theta": 1e4}
    far = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6} if scaling else {"rope_type": "default", "rope_theta": 1e6}
    return shape("gemma3_text", layers, width, mlp, heads, kv_heads, vocabulary, trained, 1e6, **GEMMA,
                 **windows(layers, 6, window), rope_parameters={"full_attention": far, "sliding_attention": near})


# Name: config.json, the trained length that is named (0: config.json's), a note.
MODELS = {
    "SmolLM2-135M": (shape("llama", 30, 576, 1536, 9, 3, 49152, 8192, 1e5, **TIED), 0,
                     "`llama`; run here ([what it finds](../eval/RESULTS.md#a-real-instruct-model))"),
    "Llama 3.2 3B": (shape("llama", 28, 3072, 8192, 24, 8, 128256, 131072, 5e5, head_dim=128, **TIED, **llama3(32.0)), 0,
                     "`llama`; needs nothing up to 128k; `--trained-length 8k` takes the length before its own scaling"),
    "Llama 3 8B": (shape("llama", 32, 4096, 14336, 32, 8, 128256, 8192, 5e5), 0,
                   "`llama`, as Llama 2, TinyLlama, Yi and Vicuna"),
    "Llama 3.1 8B": (shape("llama", 32, 4096, 14336, 32, 8, 128256, 131072, 5e5, **llama3(8.0)), 0,
                     "as Llama 3.2"),
    "Mistral 7B v0.3": (shape("mistral", 32, 4096, 14336, 32, 8, 32768, 32768, 1e6, sliding_window=None), 0,
                        "`mistral`; v0.1 has a window of 4,096 in every layer: refused. Ministral 3 (`ministral3`): its queries "
                        "grow with the position under every method"),
    "Qwen2.5 7B": (shape("qwen2", 28, 3584, 18944, 28, 4, 152064, 32768, 1e6), 0,
                   "`qwen2`; windows that config.json switches off are ignored. YaRN with a factor of 4 in config.json changes short "
                   "texts too; as `--method yarn`, a candidate of the search, it does not"),
    "Qwen3-4B": (shape("qwen3", 36, 2560, 9728, 32, 8, 151936, 40960, 1e6, head_dim=128, **TIED), 32768,
                 "`qwen3`; config.json says 40,960, the authors 32,768, which the tools take. It thinks before it answers: "
                 "`--template-vars enable_thinking=false`. Qwen3-4B-Instruct-2507 needs nothing up to 256k"),
    "Qwen3-8B": (shape("qwen3", 36, 4096, 12288, 32, 8, 151936, 40960, 1e6, head_dim=128), 32768, "as Qwen3-4B"),
    "Qwen3-30B-A3B": (shape("qwen3_moe", 48, 2048, 6144, 32, 4, 151936, 40960, 1e6, head_dim=128, moe_intermediate_size=768,
                            num_experts=128, num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1,
                            mlp_only_layers=[]), 32768, "`qwen3_moe`; as Qwen3-4B"),
    "Qwen3.5-4B": (shape("qwen3_5_text", 32, 2560, 9216, 16, 4, 248320, 262144, 1e7, **HYBRID, **TIED), 0,
                   "`qwen3_5` as Qwen3.6 and 3.8, with experts `qwen3_5_moe`; needs nothing up to 256k. One layer of four is "
                   "attention, with 32 of 128 pairs; the recurrent ones stay and add 50 MiB a text (four times as much to cut back "
                   "to). Text alone; `cuda` ran its kind of layers on the emulated device alone"),
    "Qwen3.5-9B": (shape("qwen3_5_text", 32, 4096, 12288, 16, 4, 248320, 262144, 1e7, **HYBRID), 0, "as Qwen3.5-4B"),
    "Phi-4 14B": (shape("phi3", 40, 5120, 17920, 40, 10, 100352, 16384, 2.5e5), 0,
                  "`phi3`; Phi-3-mini-4k has a window shorter than its trained length in every layer: refused"),
    "OLMo 2 7B": (shape("olmo2", 32, 4096, 11008, 32, 32, 100352, 4096, 5e5), 0,
                  "`olmo2`; as many key heads as query heads: four times Llama 3's keys and values"),
    "OLMo 3 7B": (shape("olmo3", 32, 4096, 11008, 32, 32, 100278, 65536, 5e5, **windows(32, 4, 4096), **yarn(8.0, 8192)), 0,
                  "`olmo3`; needs nothing up to 64k. A table moves the full-attention layers alone"),
    "Granite 3.3 8B": (shape("granite", 40, 4096, 12800, 32, 8, 49159, 131072, 1e7, embedding_multiplier=12.0,
                             residual_multiplier=0.22, attention_multiplier=0.0078125, logits_scaling=16.0, **TIED), 0,
                       "`granite`; needs nothing up to 128k"),
    "SmolLM3 3B": (shape("smollm3", 36, 2048, 11008, 16, 4, 128256, 65536, 5e6, no_rope_layer_interval=4,
                         no_rope_layers=[int((i + 1) % 4 != 0) for i in range(36)], **TIED), 0,
                   "`smollm3`; needs nothing up to 64k. Each fourth layer has no positions and stays"),
    "GLM-4 9B (0414)": (shape("glm4", 40, 4096, 13696, 32, 2, 151552, 32768, 1e4, head_dim=128, partial_rotary_factor=0.5,
                              attention_bias=True), 0, "`glm4`; half of each head rotates"),
    "Gemma 2 9B": (shape("gemma2", 42, 3584, 14336, 16, 8, 256000, 8192, 1e4, **GEMMA, **windows(42, 2, 4096),
                         attn_logit_softcapping=50.0, final_logit_softcapping=30.0), 0,
                   "`gemma2`; every second layer sees a window and stays"),
    "Gemma 3 270M": (gemma3(18, 640, 2048, 4, 1, 262144, 32768, 512, False), 0,
                     "`gemma3`; run here ([perplexities](../eval/RESULTS.md#gemma-3-270m)). Five of six layers see a window and stay"),
    "Gemma 3 4B": (gemma3(34, 2560, 10240, 8, 4, 262208, 131072, 1024, True), 0,
                   "`gemma3`; needs nothing up to 128k. llama.cpp reads no factors of a Gemma GGUF: `--format llama.cpp-flags`"),
    "gpt-oss 20B": (shape("gpt_oss", 24, 2880, 2880, 64, 8, 201088, 131072, 1.5e5, head_dim=64, num_local_experts=32,
                          num_experts_per_tok=4, attention_bias=True, swiglu_limit=7.0,
                          **{**windows(24, 2, 128), **yarn(32.0, 4096)}), 0,
                    "`gpt_oss`; needs nothing up to 128k. Every second layer sees a window and stays. Published in MXFP4, which opens "
                    "as it is and takes about a third"),
    "Qwen3-Next-80B-A3B": (shape("qwen3_next", 48, 2048, 5120, 16, 2, 151936, 262144, 1e7, moe_intermediate_size=512, num_experts=512,
                                 num_experts_per_tok=10, shared_expert_intermediate_size=512, partial_rotary_factor=0.25,
                                 **{name: value for name, value in HYBRID.items() if name not in ("rope_parameters", "layer_types")},
                                 layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 12), 0,
                           "`qwen3_next`; as Qwen3.5-4B, with 512 experts"),
    "OLMo Hybrid 7B": (shape("olmo_hybrid", 32, 3840, 11008, 30, 30, 100352, 65536, None, rope_parameters={"rope_theta": None, "rope_type": "default"},
                             layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 8), 0,
                       "`olmo_hybrid`; needs nothing up to 64k. No layer has positions: a plan is a temperature"),
    "GLM-4.5-Air": (shape("glm4_moe", 46, 4096, 10944, 96, 8, 151552, 131072, 1e6, head_dim=128, partial_rotary_factor=0.5, moe_intermediate_size=1408,
                          n_routed_experts=128, num_experts_per_tok=8, n_shared_experts=1, first_k_dense_replace=1, norm_topk_prob=True,
                          **{"attention_bias": True}), 0, "`glm4_moe`; needs nothing up to 128k. Half of each head rotates"),
    "MiniMax-M2": (shape("minimax_m2", 62, 3072, 1536, 48, 8, 200064, 196608, 5e6, head_dim=128, rotary_dim=64, num_local_experts=256,
                         num_experts_per_tok=8, scoring_func="sigmoid"), 0, "`minimax_m2`; needs nothing up to 192k. Half of each head rotates"),
    "ERNIE 4.5 0.3B": (shape("ernie4_5", 18, 1024, 3072, 16, 2, 103424, 131072, 5e5, head_dim=128, **TIED), 0, "`ernie4_5`; needs nothing up to 128k"),
    "EXAONE 4.0 1.2B": (shape("exaone4", 30, 2048, 4096, 32, 8, 102400, 65536, 1e6, head_dim=64, sliding_window=None, **TIED, **llama3(16.0)), 0,
                        "`exaone4`; needs nothing up to 64k. The 32B has windows, and its other layers no positions: a plan is a temperature"),
    "Command R7B": (shape("cohere2", 32, 4096, 14336, 32, 8, 256000, 132096, 5e4, layer_norm_eps=1e-5, logit_scale=0.25, **TIED, **windows(32, 4, 4096)), 0,
                    "`cohere2`; needs nothing up to 129k. Layers that see all keys have no positions: a plan is a temperature"),
}


def books(folder, tokens):
    """Four texts of more than so many tokens each, of the bundled corpus."""
    test = os.path.join(ROOT, "data", "sample", "test")
    texts = []
    for name in sorted(os.listdir(test)):
        with open(os.path.join(test, name), encoding="utf-8") as file:
            texts.append(file.read())
    for i in range(4):
        turned = "\n\n".join(texts[i:] + texts[:i])  # some 180,000 tokens
        with open(os.path.join(folder, "%d.txt" % i), "w", encoding="utf-8") as file:
            file.write((turned + "\n\n") * (tokens // 150000 + 1))


def dry_run(command, pattern):
    """What the groups of a pattern match in what a dry run prints."""
    done = subprocess.run(command + ["--dry-run", "-o", "none"], capture_output=True, text=True)
    found = re.search(pattern, done.stdout, re.MULTILINE | re.DOTALL)
    if done.returncode != 0 or found is None:
        sys.exit("%s\n%s%s" % (" ".join(command), done.stdout, done.stderr))
    return found.groups()


def attention_layers(config):
    kinds = config.get("layer_types", [])
    return config["num_hidden_layers"] - kinds.count("linear_attention")


def power(x):
    digits, exponent = ("%.1e" % x).split("e")
    return digits + "·10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(d)] for d in str(int(exponent)))


def duration(seconds):
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit or name == "min" and seconds >= 60.0:
            return "%.0f %s" % (seconds / unit, name)
    return "%.0f s" % max(1.0, seconds)


def thousands(tokens):
    return "%dk" % (tokens // 1024)


def cost(tokens, operations):
    return ["%s, %s" % (power(tokens), power(operations)), "%s, %s" % (duration(operations / SLOW), duration(operations / FAST))]


def row(binary, name, work):
    config, named, note = MODELS[name]
    trained = named or config["max_position_embeddings"]
    length = 2 * trained
    folder = os.path.join(work, name)
    texts = os.path.join(folder, "texts")
    os.makedirs(texts)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    shutil.copy(os.path.join(ROOT, "data", "reference", "tokenizer.json"), folder)
    books(texts, length)
    words = ["-m", folder, "-l", str(length), "--corpus", texts, "--trained-length", str(trained), "--max-memory", "64T",
             "--device", "cpu", "--quiet"]
    spent = dry_run([os.path.join(binary, "dpe-detect"), *words],
                    r"^tokens +([0-9.e+]+)\noperations +([0-9.e+]+).* ([0-9.]+) (MiB|GiB) of weights")
    tokens, operations, weights = map(float, spent[:3])
    weights /= 1024.0 if spent[3] == "MiB" else 1.0
    all_tokens, all_operations = map(float, dry_run([os.path.join(binary, "dpe-calibrate"), *words],
                                                    r"^all parts +at most ([0-9.e+]+) tokens, ([0-9.e+]+) operations"))
    head = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    numbers = attention_layers(config) * 2 * config["num_key_value_heads"] * head
    sizes = [2.0 * numbers, numbers * (1.0 + 4.0 / head)]  # bytes a token: bf16; int8, a scale for each row of a head
    fits = ["yes" if weights + size * length / 2**30 <= CARD else "no" for size in sizes]
    return [name, thousands(trained), thousands(length), "%.1f" % weights,
            "%.3g KiB, %.1f GiB" % (sizes[0] / 1024, sizes[0] * length / 2**30), ", ".join(fits), *cost(tokens, operations),
            *cost(all_tokens, all_operations), note]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    head = ["model", "trained", "L", "weights, GiB", "keys and values: a token, a text", "24 GB: bf16, int8 keys",
            "`dpe-detect`: tokens, operations", "at 10¹², 650·10¹² a second", "`dpe-calibrate`: tokens, operations",
            "at 10¹², 650·10¹² a second", "notes"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    with tempfile.TemporaryDirectory() as work:
        for name in sys.argv[2:] or MODELS:
            print("| " + " | ".join(row(sys.argv[1], name, work)) + " |", flush=True)


if __name__ == "__main__":
    main()

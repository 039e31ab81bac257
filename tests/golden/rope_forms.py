#!/usr/bin/env python3
"""Oracle of the forms that need no adapter (dpe-export --format longrope, gguf-rope): what other runtimes make of them.

    rope_forms.py make-gguf MODEL OUT.gguf             the bundled model, or another Llama of float weights, as GGUF
                                                       (numpy, gguf; no vocabulary)
    rope_forms.py transformers FOLDER IDS CONTEXT      mean -ln p of ids in windows of CONTEXT (torch, transformers)
    rope_forms.py llama MODEL.gguf IDS CONTEXT         the same through llama.cpp (llama-cpp-python)
    rope_forms.py vllm FOLDER IDS CONTEXT [CONFIG]     the same through vLLM; CONFIG: the exported config.json, whose rotation is
                                                       given as --hf-overrides to the model in FOLDER as it is

IDS is a file of token ids, as `dpe-run --tokenize --raw` prints them. rope_forms_check.py runs all of it and compares. The engine
is not used here: the numbers are those of the other runtime alone.
"""
import json
import pathlib
import struct
import sys


def weights(folder):
    """Tensors of a folder as float32, by name."""
    import numpy
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        data = path.read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + n]).items():
            if name == "__metadata__":
                continue
            first, last = entry["data_offsets"]
            raw = data[8 + n + first:8 + n + last]
            if entry["dtype"] == "BF16":
                values = (numpy.frombuffer(raw, "<u2").astype(numpy.uint32) << 16).view(numpy.float32)
            else:
                values = numpy.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype(numpy.float32)
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def interleaved(weight, heads):
    """llama.cpp rotates neighbouring components, Hugging Face those of the two halves of a head."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def make_gguf(folder, out):
    import gguf
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    tensors = weights(folder)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_tensor("token_embd.weight", tensors["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", tensors["model.norm.weight"])
    if "lm_head.weight" in tensors:
        writer.add_tensor("output.weight", tensors["lm_head.weight"])
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for layer in range(config["num_hidden_layers"]):
        for ours, theirs in names.items():
            values = tensors[f"model.layers.{layer}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                values = interleaved(values, heads if theirs == "attn_q" else kv_heads)
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def windows(path, context):
    ids = [int(word) for word in pathlib.Path(path).read_text().split()]
    return [ids[at:at + context] for at in range(0, len(ids) - context + 1, context)]


def of_transformers(folder, path, context):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    total = count = 0
    with torch.no_grad():
        for ids in windows(path, context):
            logits = model(torch.tensor([ids])).logits[0].double()
            scores = torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:])[:, None])
            total, count = total - float(scores.sum()), count + len(ids) - 1
    return total / count


def of_llama(path, ids_path, context):
    import llama_cpp
    import numpy
    model = llama_cpp.Llama(path, n_ctx=context, n_batch=context, n_ubatch=context, logits_all=True, verbose=False,
                            n_threads=2, type_k=0, type_v=0)
    total = count = 0
    for ids in windows(ids_path, context):
        model.reset()
        model.eval(ids)
        logits = numpy.array(model.scores[:len(ids) - 1], dtype=numpy.float64)
        most = logits.max(1)
        scores = logits[numpy.arange(len(ids) - 1), ids[1:]] - most - numpy.log(numpy.exp(logits - most[:, None]).sum(1))
        total, count = total - scores.sum(), count + len(ids) - 1
    return total / count


def of_vllm(folder, path, context, config=None):
    import os
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.pop("DPE_TABLE", None)
    # A window and one token that is generated, and not looked at.
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    from vllm import LLM, SamplingParams
    overrides = {}
    if config is not None:
        values = json.loads(pathlib.Path(config).read_text())
        overrides = {name: values[name] for name in ("rope_parameters", "max_position_embeddings",
                                                     "original_max_position_embeddings")}
    model = LLM(model=str(folder), dtype="float32", enforce_eager=True, max_model_len=context + 1, block_size=32,
                hf_overrides=overrides)
    total = count = 0
    for ids in windows(path, context):
        answer = model.generate([{"prompt_token_ids": ids}], SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)[0]
        scores = [step[token].logprob for step, token in zip(answer.prompt_logprobs[1:], ids[1:])]
        total, count = total - sum(scores), count + len(scores)
    return total / count


def main(what, *args):
    if what == "make-gguf":
        make_gguf(*args)
    else:
        of = {"transformers": of_transformers, "llama": of_llama, "vllm": of_vllm}[what]
        print(f"{of(args[0], args[1], int(args[2]), *args[3:]):.9f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

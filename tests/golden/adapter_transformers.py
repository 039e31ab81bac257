#!/usr/bin/env python3
"""transformers under the adapter against the engine, for the same tables; by hand, with a Python that
has transformers 5:

    python3 tests/golden/adapter_transformers.py [--probe build/tests/adapter_probe] [--samples 10] [-o FILE]

Writes what it measured to FILE, by default adapter_transformers.json beside it. Fails when a logit differs by more
than 1e-4 of the spread of the logits, or when needle recall does not agree.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import tokenizers
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "outputs", "transformers"), os.path.join(ROOT, "tests", "lib")]
import dpe_transformers  # noqa: E402
from adapter_fields import NO_TEMPERATURE  # noqa: E402
from dpe_attention import TableError  # noqa: E402

LIMIT = 1e-4
FAMILIES = ("qwen3", "qwen3_windows", "qwen3_moe", "phi3", "phi3_short", "olmo2", "olmo3", "granite", "smollm3",
            "glm4", "ministral3", "mistral3", "gemma2", "gemma3", "gpt_oss", "qwen3_5", "qwen3_5_moe", "qwen3_next", "olmo_hybrid",
            "glm4_moe", "glm4_moe_one_group", "minimax_m2", "seed_oss", "ernie4_5", "exaone4", "hunyuan", "hunyuan_tied", "gemma4_alike")


def make_table(path, model, length, window, scales, share, trained=None, rotation=None, unrounded=False, stretch=None):
    """A table for the model in the JSON form, its key pairs drawn for each head. Texts of these tests are
    longer than `trained`, so that it is applied. `rotation`: frequencies and attention scaling of the engine
    (adapter_probe rotation); without, those of rope_theta. Given `stretch`, it is the plan of another method:
    `unrounded` or not, with frequencies that are divided, the last one that rotates by `stretch`."""
    config = model.config.get_text_config()
    text = dpe_transformers.decoder_of(model)
    full = dpe_transformers._moving_layers(text)[0] if getattr(text, "rotary_emb", None) is not None else []
    one = (full or [layer.self_attn for layer in text.layers if hasattr(layer, "self_attn")])[0]
    dim = one.head_dim
    pairs, groups = dim // 2, len(scales)
    top_k = max(1, int(share * pairs))
    draw = random.Random(1)
    frequencies, scaling = rotation or \
        ([(config.rope_parameters["rope_theta"] or 1e4) ** (-2.0 * j / dim) for j in range(pairs)], 1.0)
    moving = sum(frequency > 0 for frequency in frequencies)
    table = {"schema_name": "dpe-table", "schema_version": "9.0.0", "adapter_required": True,
             "model": {"model_type": config.model_type, "fingerprint": "0",
                       "n_layers": config.num_hidden_layers, "n_heads": config.num_attention_heads,
                       "n_kv_heads": config.num_attention_heads // one.num_key_value_groups, "head_dim": dim},
             "trained_length": trained or config.max_position_embeddings, "evaluated_length": length,
             "local_window": window, "top_k": top_k, "near_rule": "distance < local_window",
             "rounding": "separable", "angle_precision": "f32", "pair_layout": "half-split",
             "group_edge": [g * moving // groups for g in range(groups)] + [pairs],
             "effective_length": [length / s for s in scales], "scale_factor": scales,
             "attention_scaling": scaling, "inv_freq": frequencies,
             "key_pairs": [[sorted(draw.sample(range(pairs), top_k))
                            for _ in range(config.num_attention_heads)]
                           for _ in range(config.num_hidden_layers)]}
    if stretch is not None:
        table.update(NO_TEMPERATURE, logit_scale=1.25, logit_scale_first=0.7, logit_scale_middle=1.6, logit_scale_last=1.2, far_scale=1.1,
                     unrounded=unrounded, applied_inv_freq=[frequency / stretch ** (j / (moving - 1))
                                                            for j, frequency in enumerate(frequencies)])
    with open(path, "w", encoding="utf-8") as file:
        json.dump(table, file)
    return path


def load(folder):
    """With full attention where the window never bit."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    auto, options = transformers.AutoModelForCausalLM, {}
    if "text_config" in config:
        auto = transformers.AutoModelForImageTextToText
    if (config.get("sliding_window") or 0) >= config.get("max_position_embeddings", 1 << 40):
        options["sliding_window"] = None
    return auto.from_pretrained(folder, dtype=torch.float32, **options).eval()


def rotation_of(args, folder, length):
    """Frequencies and attention scaling of the full-attention layers, as the engine has them."""
    lines = subprocess.run([args.probe, "rotation", folder, str(length)], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.split()
    return [float(word) for word in lines[2:]], float(lines[1])


def error(found, expected):
    """Largest difference over the spread."""
    found = found.numpy() if isinstance(found, torch.Tensor) else found
    return float(np.abs(found - expected).max() / (expected.max() - expected.min()))


def decode(model, ids, first):
    """Logits of all tokens: `first` at once, the others one by one with the cache."""
    out = model(torch.tensor([ids[:first]]), use_cache=True)
    parts, cache = [out.logits[0]], out.past_key_values
    for token in ids[first:]:
        out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        parts.append(out.logits[0])
    return torch.cat(parts)


def padded(model, ids):
    """The same text beside itself with 5 tokens of padding on the left and 5 cut off at its end."""
    batch = torch.tensor([ids, [0] * 5 + ids[:-5]])
    mask = torch.ones_like(batch)
    mask[1, :5] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(batch, attention_mask=mask, position_ids=positions).logits
    return logits[0], logits[1, 5:]


def compare_logits(args, scratch, folder, ids, table_options):
    model = load(folder)
    native = model(torch.tensor([ids])).logits[0]
    table = make_table(os.path.join(scratch, "table.json"), model,
                       rotation=rotation_of(args, folder, table_options["length"]), **table_options)
    raw, out = os.path.join(scratch, "in"), os.path.join(scratch, "out")
    np.array(ids, np.int32).tofile(raw)
    subprocess.run([args.probe, "logits", folder, table, raw, out], check=True)
    engine = np.fromfile(out, np.float32).reshape(len(ids) + 1, -1)
    dpe_transformers.apply(model, table, query_block=64)
    dpe_transformers.expect(model, len(ids))
    whole = model(torch.tensor([ids])).logits[0]
    left, right = padded(model, ids)
    result = {"tokens": len(ids), "dpe_to_native": error(native, engine[:-1]),
              "prefill": error(whole, engine[:-1]), "engine_prefill": error(whole[-1], engine[-1]),
              "decode": error(decode(model, ids, len(ids) // 2), engine[:-1]),
              "padded": max(error(left, engine[:-1]), error(right, engine[:-6]))}
    dpe_transformers.remove(model)
    assert torch.equal(model(torch.tensor([ids])).logits[0], native)
    config = dpe_transformers.decoder_of(model).config
    assert config._attn_implementation != "dpe" and not hasattr(config, "dpe_native")
    for name in ("prefill", "engine_prefill", "decode", "padded"):
        assert result[name] <= LIMIT, (folder, result)
    assert result["dpe_to_native"] > 100 * LIMIT, "the table changes nothing: this compares nothing"
    return result


def compare_folder(args, scratch, folder, ids):
    """A folder of `dpe-export --format hf`: from_pretrained is apply() with its table."""
    export = os.path.join(os.path.dirname(args.probe), "..", "bin", "dpe-export")
    made, table = shutil.copytree(folder, os.path.join(scratch, "exported")), os.path.join(scratch, "exported.json")
    for options in (("--method", "self-extend:window=8", "--trained-length", "64", "--length", "300", "-o", table),
                    (table, "--format", "hf", "-o", os.path.join(made, "config.json"))):
        subprocess.run([export, "-m", folder, "--force", *options], check=True, stdout=subprocess.DEVNULL)
    logits = []
    for model in (load(folder), dpe_transformers.from_pretrained(made, dtype=torch.float32).eval()):
        logits.append(model(torch.tensor([ids])).logits)
        if len(logits) == 1:
            dpe_transformers.apply(model, table)
            logits.append(model(torch.tensor([ids])).logits)
    shutil.rmtree(made)
    assert not torch.equal(*logits[:2]) and torch.equal(*logits[1:]), folder


def engine_logits(args, scratch, folder, table, ids):
    """Of every token, read one by one, under the entry for as many tokens as the text has."""
    raw, out = os.path.join(scratch, "in"), os.path.join(scratch, "out")
    np.array(ids, np.int32).tofile(raw)
    subprocess.run([args.probe, "logits", folder, table, raw, out], check=True)
    return np.fromfile(out, np.float32).reshape(len(ids) + 1, -1)[:-1]


def join(paths, out):
    """The tables as one of several entries, in the JSON form."""
    tables = [json.load(open(path, encoding="utf-8")) for path in paths]
    shared = ("schema_name", "adapter_required", "model", "near_rule", "rounding", "angle_precision",
              "pair_layout")
    root = {name: tables[0][name] for name in shared + ("schema_version",)}
    root["entries"] = [dict(NO_TEMPERATURE, **{name: value for name, value in table.items()
                                     if name not in shared and name != "schema_version"})
                       for table in tables]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(root, file)
    return out


def compare_entries(args, scratch, folder):
    """A table of three entries for a model trained for 256 tokens: the same entry as in the engine at
    every length, chosen once for each text; up to 256 tokens the model's own bits."""
    model = load(folder)
    draw = random.Random(4)
    ids = [2558] + [draw.randrange(2558) for _ in range(599)]
    table = join([make_table(os.path.join(scratch, f"{length}.json"), model, length, 20 + i,
                             [float(i + 1), float(i + 2)], share=1.0 - 0.2 * i)
                  for i, length in enumerate((300, 400, 512))], os.path.join(scratch, "several.json"))
    native = {n: model(torch.tensor([ids[:n]])).logits[0] for n in (40, 256, 290)}
    greedy = model.generate(torch.tensor([ids[:200]]), do_sample=False, max_new_tokens=56)
    dpe_transformers.apply(model, table, query_block=64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (40, 256):
            assert torch.equal(model(torch.tensor([ids[:n]])).logits[0], native[n]), n
        assert torch.equal(greedy, model.generate(torch.tensor([ids[:200]]), do_sample=False,
                                                  max_new_tokens=56))
        assert not caught, [str(one.message) for one in caught]
        result = {"native_bits_up_to": 256}
        engine = {}
        for n in (257, 300, 301, 400, 401, 512, 600):
            engine[n] = engine_logits(args, scratch, folder, table, ids[:n])
            result[str(n)] = error(model(torch.tensor([ids[:n]])).logits[0], engine[n])
            assert result[str(n)] <= LIMIT, (n, result)
        assert [str(one.message)[:27] for one in caught] == ["this text may reach 600 tok"], caught
        # Entries differ, so each comparison was with the right one.
        for longer, shorter in ((301, 300), (401, 400)):
            assert error(engine[longer][:shorter], engine[shorter]) > 100 * LIMIT
        assert error(native[290], engine[300][:290]) > 100 * LIMIT
        # Announced, a text is under its entry from the first token on, and stays when it crosses 300.
        dpe_transformers.expect(model, 400)
        result["decode_across"] = error(decode(model, ids[:400], 200), engine[400])
        assert result["decode_across"] <= LIMIT, result
        # Two texts in turns: each cache keeps its entry.
        first = model(torch.tensor([ids[:200]]), use_cache=True)
        dpe_transformers.expect(model, 0)
        second = model(torch.tensor([ids[:300]]), use_cache=True)
        again = model(torch.tensor([ids[200:201]]), past_key_values=first.past_key_values)
        assert error(again.logits[0], engine[400][200:201]) <= LIMIT
        del second
        # generate() counts what it may add: prompt 200 and 150 new ones need the entry for 400.
        found = model.generate(torch.tensor([ids[:200]]), do_sample=False, max_new_tokens=150,
                               eos_token_id=None, pad_token_id=0)[0].tolist()
        under = engine_logits(args, scratch, folder, os.path.join(scratch, "400.json"), found)
        tops = under[199:-1].argmax(axis=1).tolist()
        result["generated_as_engine"] = sum(a == b for a, b in zip(tops, found[200:])) / len(tops)
        assert result["generated_as_engine"] > 0.98, result
        # A text that was not announced and outgrows the trained length is reported.
        decode(model, ids[:258], 250)
        assert sum("grew beyond" in str(one.message) for one in caught) == 1, caught
    other = transformers.DynamicCache(config=model.config)
    dpe_transformers.remove(model)
    model(torch.tensor([ids[:10]]), past_key_values=other)
    dpe_transformers.apply(model, table)
    try:
        model(torch.tensor([ids[10:11]]), past_key_values=other)
    except NotImplementedError:
        pass
    else:
        raise AssertionError("a cache that was filled without the table was accepted")
    dpe_transformers.remove(model)
    assert torch.equal(model(torch.tensor([ids[:290]])).logits[0], native[290])
    return result


def compare_needles(args, scratch, folder):
    model = load(folder)
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    table = make_table(os.path.join(scratch, "table.json"), model, length=1024, window=32,
                       scales=[8.0] * 8, share=1.0)
    lines = subprocess.run([args.probe, "niah", folder, table,
                            os.path.join(ROOT, "data", "sample", "test"), "1024",
                            str(args.samples)], check=True, stdout=subprocess.PIPE, text=True)
    lines = lines.stdout.splitlines()
    end = model.generation_config.eos_token_id
    dpe_transformers.apply(model, table)
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        weights = hashlib.sha256(file.read()).hexdigest()
    result = {"samples": args.samples, "length": 1024, "weights_sha256": weights,
              "engine_recall": 0.0, "transformers_recall": 0.0, "same_tokens": 0}
    for i in range(0, len(lines), 4):
        prompt = torch.tensor([[int(token) for token in lines[i + 1].split()[1:]]])
        expected = [int(token) for token in lines[i + 2].split()[1:]]
        recall, room = lines[i].split()
        found = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                               max_new_tokens=int(room))
        found = [token for token in found[0, prompt.shape[1]:].tolist() if token != end]
        text = tokenizer.decode(found).lower()
        references = lines[i + 3].split()[1:]
        result["engine_recall"] += float(recall) / args.samples
        result["transformers_recall"] += \
            sum(r.lower() in text for r in references) / len(references) / args.samples
        result["same_tokens"] += found == expected
    assert abs(result["engine_recall"] - result["transformers_recall"]) < 1e-6, result
    return result


def refusals(args, scratch):
    """A model that must not run under a table is refused with a reason."""
    model = load(os.path.join(HERE, "llama"))
    other = load(os.path.join(HERE, "qwen2"))
    table = make_table(os.path.join(scratch, "table.json"), model, 64, 5, [2.0], 1.0, trained=8)
    ids = torch.arange(3, 15)[None]
    native = other(ids).logits
    count = 0
    try:
        dpe_transformers.apply(other, table)
    except TableError:
        count += 1
    assert torch.equal(other(ids).logits, native), "a refused table changed the model"
    dpe_transformers.apply(model, table)
    right = torch.ones_like(ids)
    right[0, -2:] = 0
    packed = torch.cat((torch.arange(6), torch.arange(6)))[None]
    static = transformers.StaticCache(config=model.config, max_cache_len=32)
    assert count == 1, count
    for options in ({"attention_mask": right}, {"position_ids": packed, "use_cache": False},
                    {"position_ids": torch.arange(1, 13)[None]}, {"past_key_values": static},
                    {"attention_mask": torch.zeros(1, 1, 12, 12)}):
        try:
            model(ids, **options)
        except NotImplementedError:
            count += 1
        else:
            raise AssertionError(f"accepted: {options}")
    return {"refused": count + refused_families(args, scratch)}


def refused_families(args, scratch):
    """Layers of which none could move, a window that never bit, another share of the head, images."""
    def refusal(model, table, words):
        try:
            dpe_transformers.apply(model, table)
        except TableError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"accepted although: {words}")

    shape = dict(length=64, window=5, scales=[2.0], share=1.0, trained=8)
    path = os.path.join(scratch, "table.json")
    families = os.path.join(HERE, "families")
    for name, options, words in (("phi3", {}, "Load the model with sliding_window=None"),
                                 ("ministral3", {"sliding_window": 7}, "no full-attention layer"),
                                 ("exaone4_windows", {}, "expected a table of a temperature alone"),
                                 ("olmo_hybrid_still", {}, "expected a table of a temperature alone")):
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(families, name), **options)
        refusal(model, make_table(path, model, **shape), words)
    half = load(os.path.join(families, "glm4"))
    refusal(half, make_table(path, half, **shape), "rotates 4 pairs of a head, this one rotates 2")
    seeing = load(os.path.join(families, "mistral3"))
    rotation = rotation_of(args, os.path.join(families, "mistral3"), 64)
    dpe_transformers.apply(seeing, make_table(path, seeing, rotation=rotation, **shape))
    try:
        seeing(torch.arange(3, 15)[None], pixel_values=torch.zeros(1, 3, 28, 28), image_sizes=[[28, 28]])
    except NotImplementedError as error:
        assert "without images" in str(error), error
    else:
        raise AssertionError("an image was accepted")
    return 6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", default=os.path.join(ROOT, "build", "tests", "adapter_probe"))
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("-o", "--output", default=os.path.join(HERE, "adapter_transformers.json"))
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    results = {"torch": torch.__version__, "transformers": transformers.__version__, "logits": {}}
    with tempfile.TemporaryDirectory() as scratch:
        results["refusals"] = refusals(args, scratch)
        small = {"length": 64, "window": 7, "scales": [2.0, 3.5], "share": 0.6, "trained": 16}
        for name in ("llama", "mistral", "qwen2"):
            folder = os.path.join(HERE, name)
            with open(os.path.join(folder, "tokens.json"), encoding="utf-8") as file:
                results["logits"][name] = compare_logits(args, scratch, folder, json.load(file), small)
        for name in FAMILIES:
            draw = random.Random(3)
            ids = [draw.randrange(64) for _ in range(200)]
            results["logits"][name] = compare_logits(
                args, scratch, os.path.join(HERE, "families", name), ids,
                {"length": 200, "window": 8, "scales": [8.0, 16.0], "share": 0.75})
            if name in ("glm4", "gemma3", "gpt_oss"):
                results["logits"][name + "_methods"] = compare_logits(
                    args, scratch, os.path.join(HERE, "families", name), ids,
                    {"length": 200, "window": 8, "scales": [8.0, 16.0], "share": 0.75, "unrounded": True, "stretch": 8.0})
        reference = os.path.join(ROOT, "data", "reference")
        draw = random.Random(2)
        ids = [2558] + [draw.randrange(2558) for _ in range(299)]
        results["logits"]["reference"] = compare_logits(
            args, scratch, reference, ids,
            {"length": 1024, "window": 30, "scales": [2.0, 4.0, 7.0, 8.0], "share": 0.75})
        for name, method in (("leaky_rerope", {"scales": [4.0], "unrounded": True, "stretch": 1.0}),
                             ("yarn", {"scales": [1.0], "stretch": 4.0})):
            results["logits"]["reference_" + name] = compare_logits(
                args, scratch, reference, ids, {"length": 1024, "window": 30, "share": 1.0, **method})
        for name in ("gemma3", "mistral3", "granite"):
            compare_folder(args, scratch, os.path.join(HERE, "families", name), [3 + i % 60 for i in range(200)])
        compare_folder(args, scratch, reference, ids)
        results["entries"] = compare_entries(args, scratch, reference)
        if args.samples > 0:
            results["needles"] = compare_needles(args, scratch, reference)
    text = json.dumps(results, indent=1)
    print(text)
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    main()

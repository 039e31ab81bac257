#!/usr/bin/env python3
"""Write tokens_beside.json: tokens and settings that stand beside a tokenizer.json, at random, and
what transformers makes of a text with them.

    python3 tests/golden/make_tokens_beside.py      (needs `transformers`; made with 5.24.0)
"""
import json
import os
import random
import tempfile

import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "\u2581"
NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
WORDS = ["<turn>", "<over>", "[see]", "<a|b>", "oo", "z", "<\u00e9>", "<turn>x"]
TEXTS = ["<turn>ox <over>\n [see]  ok<a|b> zoo <\u00e9>", " ox  ox<s>ox  <turn>x </s> <turn> ox", "zoo [see][see] ox"]
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_attention_heads": 2,
          "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 300, "max_position_embeddings": 64}


def token(number, content, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **flags}


def byte_level(more):
    known = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in known]
    letters = [chr(b) if b in known else chr(256 + rest.index(b)) for b in range(256)]
    words = letters + ["ox", "oo", "\u0120ox", "\u0120\u0120"]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [token(260, "<s>"), token(261, "</s>"), *more], "pre_tokenizer": step, "decoder": step,
            "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": None,
                      "merges": [["o", "x"], ["o", "o"], ["\u0120", "ox"], ["\u0120", "\u0120"]]}}


def pieces():
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [MARK, "o", "x", MARK + "o", "ox", MARK + "ox"]
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {"version": "1.0", "truncation": None, "padding": None, "pre_tokenizer": None,
            "added_tokens": [token(i, word) for i, word in enumerate(words[:3])],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]},
            "post_processor": {"type": "TemplateProcessing", "single": [begin, text], "pair": [begin, text],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "vocab": {word: i for i, word in enumerate(words)},
                      "merges": [[MARK, "o"], ["o", "x"], [MARK, "ox"]]}}


def flags(rng, word, special=True):
    made = {name: rng.random() < 0.3 for name in ("lstrip", "rstrip", "single_word", "normalized")}
    return {"content": word, **made, **({"special": rng.random() < 0.6} if special else {})}


def named(rng, word, settings):
    """A text, or an object as the settings (with a type) and special_tokens_map.json (without) have it."""
    if rng.random() < 0.6:
        return word
    made = flags(rng, word, False)
    return {"__type": "AddedToken", **made} if settings else made


def files_of(rng):
    """The files beside a byte-level tokenizer.json, and that file."""
    words = rng.sample(WORDS, len(WORDS))
    there = [token(262, words.pop(), **({} if rng.random() < 0.5 else {"special": False, "normalized": True}))]
    there = there if rng.random() < 0.4 and there[0]["content"] not in ("oo", "z") else []
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    mapped, added = {}, {}
    if rng.random() < 0.5:
        listed = rng.sample(WORDS, rng.randint(1, 3))
        ids = rng.sample(range(262, 290), len(listed))
        settings["added_tokens_decoder"] = {str(i): flags(rng, word) for i, word in zip(ids, listed)}
    elif rng.random() < 0.5:
        listed = rng.sample(WORDS[:4], 2)
        added = dict(zip(listed, rng.sample(range(270, 280), 2)))
    for place, own in ((settings, True), (mapped, False)):
        if own or rng.random() < 0.5:
            for name in rng.sample(NAMES, 2) if rng.random() < 0.6 else []:
                place[name] = named(rng, rng.choice(WORDS), own)
            if rng.random() < 0.3:
                place["image_token"] = rng.choice(WORDS)
            key = rng.choice(["extra_special_tokens", "additional_special_tokens"])
            if rng.random() < 0.5:
                place[key] = rng.sample(WORDS, rng.randint(0, 2))
            elif own and rng.random() < 0.3:
                place["extra_special_tokens"] = {"row_token": rng.choice(WORDS)}
    made = {"tokenizer.json": byte_level(there), "tokenizer_config.json": settings}
    return {**made, **({"special_tokens_map.json": mapped} if mapped else {}), **({"added_tokens.json": added} if added else {})}


def read(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, value in {"config.json": CONFIG, **files}.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(value, file)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return [tokenizer(text)["input_ids"] for text in TEXTS]


def main():
    rng = random.Random(11)
    cases = []
    while len(cases) < 60:
        files = files_of(rng)
        cases.append({"files": files, "ids": read(files)})
    for prefix in (True, False):
        for legacy in (True, False):
            files = {"tokenizer.json": pieces(), "tokenizer_config.json": {
                "tokenizer_class": "LlamaTokenizer" + ("Fast" if legacy else ""), "add_prefix_space": prefix,
                "legacy": legacy, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}}
            cases.append({"files": files, "ids": read(files)})
    # The same tokenizer.json stands in most of them: it is written once.
    shared = byte_level([])
    for case in cases:
        if case["files"]["tokenizer.json"] == shared:
            case["files"]["tokenizer.json"] = None
    with open(os.path.join(HERE, "tokens_beside.json"), "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        file.write('{"texts":' + json.dumps(TEXTS) + ',\n"shared":' + json.dumps(shared, separators=(",", ":")) +
                   ',\n"cases":[\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()

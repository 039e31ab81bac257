#!/usr/bin/env python3
"""gguf_to_hf.py FILE.gguf FOLDER: a model in a GGUF file as an ordinary Hugging Face folder, in bfloat16.

Weights, configuration, tokenizer and, where the file has one, the chat template. Quantized weights (Q4_K_M and
so on) are unpacked: the folder computes what the file would, and is several times as large. A template that is
not in the file can be given to the tools with --chat-template. FOLDER must not exist, or be empty.

Needs Python with these packages (CPU versions do):

    pip install torch transformers gguf accelerate
"""
import contextlib
import json
import os
import sys


TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # theirs, and in a GGUF file
# Ways to cut texts whose models expect a BOS when the file does not say; SentencePiece models do too.
WITH_BOS = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "midm-2.0", "lfm2", "tekken")


def convert(source, folder):
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where, name = os.path.split(os.path.abspath(source))
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
    model, loaded = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, output_loading_info=True)
    missing = set(loaded["missing_keys"])
    if missing == {"lm_head.weight"}:
        # The file has no output matrix because it is the embedding's. transformers 4.46 fills it with random numbers.
        missing = set()
        model.config.tie_word_embeddings = True
        model.tie_weights()
    if missing:
        sys.exit(f"{source}: transformers finds no weights for {', '.join(sorted(missing))}; nothing was written")
    model = model.to(torch.bfloat16)
    # transformers keeps in mind that it came quantized and would refuse to save it.
    model.is_quantized = False
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    fields = gguf.GGUFReader(source).fields
    follow({name: field.contents() for name, field in fields.items() if name.startswith("tokenizer.")}, folder)


def follow(metadata, folder):
    """What some versions of transformers leave behind or make up: the chat template, the special tokens, and which
    of them are put around a text."""
    def said(name, otherwise=None):
        return metadata.get("tokenizer.ggml." + name, otherwise)

    sentence_piece = said("model") == "llama"
    usual = {"bos": 1, "eos": 2, "unk": 0} if sentence_piece else {}
    ids = {name: said(theirs + "_token_id", usual.get(name)) for name, theirs in TOKENS.items()}
    named = {f"{name}_token": None if i is None else said("tokens")[i] for name, i in ids.items()}
    bos = said("add_bos_token", sentence_piece or said("pre") in WITH_BOS) and ids["bos"] is not None
    eos = said("add_eos_token", False) and ids["eos"] is not None
    with changed(folder, "tokenizer_config.json") as config:
        config.update(named, add_bos_token=bos, add_eos_token=eos)
        config.update({f"{name}_token_id": i for name, i in ids.items() if f"{name}_token_id" in config})
        there = config.get("chat_template") or os.path.exists(os.path.join(folder, "chat_template.jinja"))
    with changed(folder, "special_tokens_map.json") as names:
        names.update(named)
        for name in [name for name, token in named.items() if token is None]:
            del names[name]
    with changed(folder, "tokenizer.json") as tokenizer:
        tokenizer["post_processor"] = around(ids, named, bos, eos)
    ends = [ids["eos"], said("eot_token_id"), said("eom_token_id")]
    ends = list(dict.fromkeys(i for i in ends if i is not None))
    for name in ("config.json", "generation_config.json"):
        with changed(folder, name) as config:
            config.update(bos_token_id=ids["bos"], pad_token_id=ids["pad"],
                          eos_token_id=ends if len(ends) > 1 else ends[0] if ends else None)
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not there:
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
            f.write(template)


@contextlib.contextmanager
def changed(folder, name):
    """The object in a JSON file, written again as it is afterwards; a file that is not there stays away."""
    path = os.path.join(folder, name)
    content = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            content = json.load(f)
    yield content
    if os.path.exists(path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(content, f, ensure_ascii=False, indent=2)
            f.write("\n")


def around(ids, named, bos, eos):
    """tokenizer.json's form of: a BOS before each text, an EOS after it."""
    def text(name, part):
        put = [("bos", bos), (None, True), ("eos", eos)]
        return [{"Sequence": {"id": name, "type_id": part}} if token is None else
                {"SpecialToken": {"id": named[token + "_token"], "type_id": part}} for token, there in put if there]

    special = {named[f"{token}_token"]: ids[token] for token, there in (("bos", bos), ("eos", eos)) if there}
    return {"type": "TemplateProcessing", "single": text("A", 0), "pair": text("A", 0) + text("B", 1),
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in special.items()}}


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    source, folder = sys.argv[1:]
    try:
        with open(source, "rb") as f:
            is_gguf = f.read(4) == b"GGUF"
    except OSError as error:
        sys.exit(f"{source}: expected a GGUF file, which cannot be opened: {error.strerror}")
    if not is_gguf:
        sys.exit(f"{source}: expected a GGUF file, found something else")
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        sys.exit(f"{folder}: exists; give a folder that does not, or an empty one")
    try:
        convert(source, folder)
    except ImportError as error:
        sys.exit(f"{error}\nInstall what is needed: pip install torch transformers gguf accelerate")
    print(f"{folder}: try it with: dpe-run -m {folder} --info")


if __name__ == "__main__":
    main()

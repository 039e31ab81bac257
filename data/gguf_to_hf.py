#!/usr/bin/env python3
"""gguf_to_hf.py FILE.gguf FOLDER: a model in a GGUF file as an ordinary Hugging Face folder, in bfloat16.

Weights, configuration, tokenizer and, where the file has one, the chat template. Quantized weights (Q4_K_M and
so on) are unpacked: the folder computes what the file would, and is several times as large. A template that is
not in the file can be given to the tools with --chat-template. FOLDER must not exist, or be empty.

Needs Python with these packages (CPU versions do):

    pip install torch transformers gguf accelerate
"""
import json
import os
import sys


def convert(source, folder):
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
    add_template(source, folder)


def add_template(source, folder):
    """The chat template, which some versions of transformers leave behind."""
    import gguf

    config = os.path.join(folder, "tokenizer_config.json")
    with open(config, encoding="utf-8") as f:
        there = json.load(f).get("chat_template") or os.path.exists(os.path.join(folder, "chat_template.jinja"))
    field = gguf.GGUFReader(source).get_field("tokenizer.chat_template")
    if field is not None and not there:
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
            f.write(field.contents())


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    source, folder = sys.argv[1:]
    with open(source, "rb") as f:
        if f.read(4) != b"GGUF":
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

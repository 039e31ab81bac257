#!/usr/bin/env python3
"""gguf_to_hf_check.py CONVERTER: what data/gguf_to_hf.py says of wrong arguments, and that the folder which it leaves has
the special tokens of the GGUF file. Standard library only: the folder is one as transformers 4.46 saves it."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

CONVERTER = os.path.abspath(sys.argv[1])
specification = importlib.util.spec_from_file_location("gguf_to_hf", CONVERTER)
converter = importlib.util.module_from_spec(specification)
specification.loader.exec_module(converter)

TOKENS = ["<unk>", "<s>", "</s>", "<eot>", "a"]
SAVED = {"tokenizer_config.json": {"add_bos_token": True, "bos_token": "<s>", "eos_token": "<s>", "unk_token": "<unk>",
                                   "eos_token_id": 1},
         "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "<s>", "unk_token": "<unk>"},
         "tokenizer.json": {"model": {"type": "BPE"}, "post_processor": {"type": "TemplateProcessing", "single": [
             {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}},
         "config.json": {"bos_token_id": 1, "eos_token_id": 1, "vocab_size": 5}, "generation_config.json": {"eos_token_id": 1}}


def refused(*arguments):
    ran = subprocess.run([sys.executable, CONVERTER, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and ran.stdout == "" and ran.stderr.count("\n") == 1, ran
    return ran.stderr


def followed(work, name, without=(), **said):
    """The files of a saved folder after it follows a file that says so."""
    folder = os.path.join(work, name)
    os.mkdir(folder)
    for file, content in SAVED.items():
        if file not in without:
            with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
                json.dump(content, f)
    metadata = {"tokenizer.ggml." + key: value for key, value in said.items() if key != "chat_template"}
    metadata["tokenizer.ggml.tokens"] = TOKENS
    if "chat_template" in said:
        metadata["tokenizer.chat_template"] = said["chat_template"]
    converter.follow(metadata, folder)
    files = {}
    for file in os.listdir(folder):
        with open(os.path.join(folder, file), encoding="utf-8") as f:
            files[file] = json.load(f) if file.endswith(".json") else f.read()
    return files


def specials(files):
    return [next(iter(part.values()))["id"] for part in files["tokenizer.json"]["post_processor"]["single"]]


def main():
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        assert "nope.gguf: expected a GGUF file, which cannot be opened: No such file" in refused(work + "/nope.gguf", out)
        assert "cannot be opened: Is a directory" in refused(work, out)
        assert "found something else" in refused(CONVERTER, out)
        assert not os.path.exists(out)

        ids = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, "padding_token_id": 2}
        files = followed(work, "without", model="gpt2", pre="smollm", add_bos_token=False, chat_template="{{ x }}", **ids)
        config = files["tokenizer_config.json"]
        assert config["add_bos_token"] is False and config["add_eos_token"] is False, config
        assert config["eos_token_id"] == 2 and "bos_token_id" not in config
        names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
        assert {name: config[name] for name in names} == names and files["special_tokens_map.json"] == names, files
        assert specials(files) == ["A"] and files["tokenizer.json"]["model"] == {"type": "BPE"}
        assert files["config.json"] == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "vocab_size": 5}
        assert files["generation_config.json"]["eos_token_id"] == 2
        assert files["chat_template.jinja"] == "{{ x }}"

        files = followed(work, "both", model="gpt2", add_bos_token=True, add_eos_token=True, eot_token_id=3, **ids)
        assert specials(files) == ["<s>", "A", "</s>"]
        post = files["tokenizer.json"]["post_processor"]
        assert post["special_tokens"]["</s>"] == {"id": "</s>", "ids": [2], "tokens": ["</s>"]} and len(post["pair"]) == 6
        assert files["generation_config.json"]["eos_token_id"] == [2, 3] == files["config.json"]["eos_token_id"]
        assert "chat_template.jinja" not in files

        # What the file does not say: a BOS where such models expect one; no token that transformers made up.
        for pre, first in (("llama-bpe", "<s>"), ("qwen2", "A")):
            files = followed(work, pre, without=["special_tokens_map.json", "generation_config.json"], model="gpt2", pre=pre,
                             bos_token_id=1)
            assert specials(files)[0] == first, pre
            assert files["tokenizer_config.json"]["eos_token"] is None and files["config.json"]["eos_token_id"] is None
            assert "special_tokens_map.json" not in files and "generation_config.json" not in files
        files = followed(work, "no-bos", model="gpt2", pre="llama-bpe", eos_token_id=2)
        assert specials(files) == ["A"] and "bos_token" not in files["special_tokens_map.json"]
        files = followed(work, "pieces", model="llama")
        assert specials(files) == ["<s>", "A"] and files["special_tokens_map.json"]["eos_token"] == "</s>"


main()

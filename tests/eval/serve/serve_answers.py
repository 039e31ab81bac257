"""serve_answers.py BIN ROOT: the folders that dpe-serve takes, what each answer was made with and what its members say."""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
reference = os.path.join(root, "data/reference")
work = tempfile.mkdtemp()


def serve(folder, *arguments):
    return Server(f"{bin_folder}/dpe-serve", "-m", folder, "--threads", 1, *arguments)


def folder_with(name, **files):
    """A folder with the bundled model and these files beside it or instead of its own: NAME_EXT for NAME.EXT."""
    folder = os.path.join(work, name)
    os.mkdir(folder)
    files = {".".join(key.rsplit("_", 1)): text for key, text in files.items()}
    for file in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"):
        if file not in files:
            os.symlink(os.path.join(reference, file), os.path.join(folder, file))
    for file, text in files.items():
        with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
            out.write(text)
    return folder


def test_large_integers():
    """"No limit" is an integer of 31 digits in the files that transformers writes."""
    with open(os.path.join(reference, "generation_config.json"), encoding="utf-8") as file:
        generation = {**json.load(file), "max_length": 10**30}
    no_limit = {"model_max_length": 1000000000000000019884624838656, "bos_token": "<|bos|>"}
    folder = folder_with("large", tokenizer_config_json=json.dumps(no_limit),
                         generation_config_json=json.dumps(generation))
    with serve(folder) as server:
        assert server.ask("/tokenizer_info")["model_max_length"] == 1e30
        assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 1})["usage"]["completion_tokens"] == 1


def test_folders():
    """A folder of the hub's cache means its snapshot, one with a GGUF file that file, as in every tool."""
    cache = os.path.join(work, "models--org--name")
    os.makedirs(os.path.join(cache, "snapshots"))
    os.symlink(reference, os.path.join(cache, "snapshots", "0123"))
    with serve(cache) as server:
        assert server.ask("/v1/models")["data"][0]["id"] == "models--org--name"
        assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 1})["usage"]["completion_tokens"] == 1
    half = os.path.join(work, "half")
    os.mkdir(half)
    with open(os.path.join(half, "model.gguf"), "wb") as file:
        file.write(b"GGUF\x03\0\0\0")
    ended = subprocess.run([f"{bin_folder}/dpe-serve", "-m", half, "--port", "0"], capture_output=True, text=True)
    assert ended.returncode == 65 and "half/model.gguf: its header does not end" in ended.stderr, ended


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("passed", name, flush=True)

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


def name_of(data):
    """The text of a token by its bytes, as answers write it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def test_offsets():
    """text_offset: where in the text a token begins, in characters; tokens that are parts of characters have names of
    their own."""
    with serve(reference) as server:
        prompt = "Öl für 😀 und €"
        body = {"max_tokens": 3, "echo": True, "logprobs": 5, "temperature": 0}
        for given in (prompt, [server.ask("/tokenize", {"prompt": prompt})["tokens"]]):
            choice = server.ask("/v1/completions", {**body, "prompt": given})["choices"][0]
            logprobs = choice["logprobs"]
            tokens, offsets = logprobs["tokens"], logprobs["text_offset"]
            assert choice["text"].startswith(prompt)
            assert tokens[0] == "<|bos|>" and offsets[:2] == [0, 0], (tokens, offsets)
            assert offsets == sorted(offsets) and len(offsets) == len(tokens)
            parts = [token for token in tokens if token.startswith("bytes:")]
            assert len(parts) >= 4, tokens  # the face has four bytes
            for token, offset, after in zip(tokens[1:], offsets[1:], offsets[2:] + [len(choice["text"])]):
                if not token.startswith("bytes:"):
                    assert choice["text"][offset:after] == token, (token, offset, choice)
            data = b"".join(bytes.fromhex(token[6:].replace("\\x", "")) if token.startswith("bytes:") else token.encode()
                            for token in tokens[1:])
            assert data.decode(errors="replace") == choice["text"]
            for token, score, top in list(zip(tokens, logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
                assert top[token] == score and len(top) in (5, 6), (token, score, top)
        # A special token that the prompt spells is part of its text; without echo the first new token is at 0.
        spelled = server.ask("/v1/completions", {**body, "prompt": "a<|eos|>b"})["choices"][0]
        assert spelled["logprobs"]["text_offset"][:5] == [0, 0, 1, 8, 9], spelled
        new = server.ask("/v1/completions", {**body, "prompt": prompt, "echo": False, "max_tokens": 9})["choices"][0]
        assert new["logprobs"]["text_offset"][0] == 0 and len(set(new["logprobs"]["text_offset"])) > 5, new
        assert server.ask("/v1/completions", {**body, "prompt": "a\0b"})["choices"][0]["logprobs"]["tokens"][1:4] == [
            "a", "bytes:\\x00", "b"]
        # After a stop string no token begins behind the text.
        stopped = server.ask("/v1/completions", {**body, "prompt": prompt, "max_tokens": 9, "stop": new["text"][3:9]})
        choice = stopped["choices"][0]
        assert max(choice["logprobs"]["text_offset"]) <= len(choice["text"]) == len(prompt) + 3, choice
        # A streamed answer says the same in pieces.
        pieces = server.stream("/v1/completions", {**body, "prompt": prompt, "max_tokens": 9})
        offsets = [o for piece in pieces for o in (piece["choices"][0]["logprobs"] or {}).get("text_offset", [])]
        whole = server.ask("/v1/completions", {**body, "prompt": prompt, "max_tokens": 9})["choices"][0]["logprobs"]
        assert offsets == whole["text_offset"], (offsets, whole)


def test_bytes():
    """In a chat each token has its own bytes."""
    template = os.path.join(work, "plain.txt")
    with open(template, "w", encoding="utf-8") as file:
        file.write("{prompt}")
    with serve(reference, "--chat-template", template, "-l", "512") as server:
        # Nearly every token is as likely as another one: some are bytes that begin no character.
        body = {"messages": [{"role": "user", "content": "Who"}], "max_tokens": 200, "temperature": 1e6, "seed": 1,
                "ignore_eos": True, "logprobs": True, "top_logprobs": 2}
        content = server.ask("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
        items = [item for each in content for item in each["top_logprobs"] + [each]]
        assert any(item["token"].startswith("bytes:") for item in items)
        for item in items:
            assert item["token"] == name_of(bytes(item["bytes"])), item


def test_members():
    """chat_template_kwargs reach the template; what would change an answer and is not supported is refused."""
    template = os.path.join(work, "thinking.jinja")
    with open(template, "w", encoding="utf-8") as file:
        file.write("{% for m in messages %}{{ m.content }}{% endfor %}{{ bos_token }}"
                   "{% if enable_thinking is defined and not enable_thinking %} now{% endif %}{{ style }}")
    with serve(reference, "--chat-template", template) as server:
        chat = {"messages": [{"role": "user", "content": "Who"}], "max_tokens": 4, "temperature": 0}
        plain = server.ask("/v1/chat/completions", chat)
        for kwargs, text in (({}, "Who"), (None, "Who"), ({"enable_thinking": True}, "Who"),
                             ({"enable_thinking": False}, "Who now"), ({"style": "!", "bos_token": "?"}, "Who?!"),
                             ({"enable_thinking": False, "style": 7}, "Who now7")):
            asked = {**chat, "chat_template_kwargs": kwargs}
            wanted = server.ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
            assert server.ask("/tokenize", asked)["tokens"] == wanted, (kwargs, wanted)
            answer = server.ask("/v1/chat/completions", asked)
            assert answer["usage"]["prompt_tokens"] == len(wanted)
            assert text != "Who" or answer["choices"] == plain["choices"]
        for wrong in ([], 5, {"messages": []}, {"add_generation_prompt": False}, {"tools": []}):
            for path in ("/v1/chat/completions", "/tokenize"):
                error = server.refused(400, path, {**chat, "chat_template_kwargs": wrong})
                assert error["param"] == "chat_template_kwargs", error
        for member in ({"echo": True}, {"add_special_tokens": True}, {"reasoning_effort": "high"}, {"chat_template": "x"},
                       {"documents": [{}]}, {"skip_special_tokens": False}, {"include_stop_str_in_output": True},
                       {"repeat_penalty": 1.1}, {"grammar": "x"}, {"verbosity": "low"}, {"echo": 1}):
            error = server.refused(400, "/v1/chat/completions", {**chat, **member})
            assert error["param"] == list(member)[0], error
        server.refused(400, "/tokenize", {**chat, "tools": [{"type": "function"}]})
        assert server.refused(400, "/v1/chat/completions", {**chat, "top_logprobs": 2})["param"] == "top_logprobs"
        usual = {"echo": False, "add_special_tokens": False, "reasoning_effort": None, "skip_special_tokens": True,
                 "repeat_penalty": 1, "verbosity": "medium", "parallel_tool_calls": True, "user": "x", "store": False}
        assert server.ask("/v1/chat/completions", {**chat, **usual})["choices"] == plain["choices"]
        body = {"prompt": "Who", "max_tokens": 1, "add_special_tokens": False, "echo": True, "logprobs": 1}
        answer = server.ask("/v1/completions", body)
        assert answer["choices"][0]["logprobs"]["tokens"][0] != "<|bos|>"
        assert answer["choices"][0]["logprobs"]["text_offset"][-1] == 3, answer


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("passed", name, flush=True)

"""serve_faults.py BIN ROOT: names and keys that no answer or header can have, results that are not finite, requests whose time is up, clients that leave the queue, members that
dpe-serve does not support, and the tokens that end an answer of a chat."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
reference = os.path.join(root, "data/reference")
work = tempfile.mkdtemp()
BOS, LONG = 2558, {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "temperature": 0}


def serve(*arguments, model=reference):
    return Server(f"{bin_folder}/dpe-serve", "-m", os.fsdecode(model), "--threads", 2, *arguments)


def changed_model(name, swapped, nan=()):
    """The bundled model with an output layer of its own, in which pairs of ids are swapped; the embeddings of the ids in `nan`
    are not numbers."""
    folder = os.path.join(work, name)
    shutil.copytree(reference, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    entry = header["model.embed_tokens.weight"]
    begin, end = entry["data_offsets"]
    width = 2 * entry["shape"][1]
    rows = bytearray(data[begin:end])
    for a, b in swapped:
        row = [bytes(rows[i * width:(i + 1) * width]) for i in (a, b)]
        rows[a * width:(a + 1) * width], rows[b * width:(b + 1) * width] = row[1], row[0]
    header["lm_head.weight"] = {**entry, "data_offsets": [len(data), len(data) + len(rows)]}
    for token in nan:
        data[begin + token * width:begin + (token + 1) * width] = b"\xc0\x7f" * (width // 2)
    config["tie_word_embeddings"] = False
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data + rows)
    return folder


def wait_until(server, metric, value):
    while server.metric(metric) != value:
        time.sleep(0.02)


def start(server, body):
    """A request that nobody has read the answer of yet."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps(body))
    return connection


def test_not_finite():
    """A sequence with a result that is not finite ends with an error, whether its prompt has it or a step; the sequences
    beside it do not."""
    beside = {"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0, "ignore_eos": True, "logprobs": 0}
    with serve("-l", 256) as server:
        wanted = server.ask("/v1/completions", beside)["choices"][0]["logprobs"]["tokens"]
        for before in range(700, 900):  # a token whose likeliest next one is not in that answer
            answer = server.ask("/v1/completions", {"prompt": [BOS, before], "max_tokens": 1, "temperature": 0,
                                                    "logprobs": 0})["choices"][0]["logprobs"]["tokens"]
            made = server.ask("/tokenize", {"prompt": "".join(answer), "add_special_tokens": False})["tokens"]
            if len(made) == 1 and answer[0] not in wanted:
                break
    bad = 900
    # After `before` comes the token whose embedding is not a number.
    model = changed_model("nan", [(bad, made[0])], [bad])
    with serve("-l", 256, model=model) as server:
        got = []
        thread = threading.Thread(target=lambda: got.append(server.ask("/v1/completions", beside)))
        thread.start()
        for prompt in ([BOS, before, bad], [BOS, before]):
            error = server.refused(500, "/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0})
            assert "NaN or infinity" in error["message"] and error["type"] == "server_error", error
        stream = server.stream("/v1/completions", {"prompt": [BOS, before, bad], "max_tokens": 4, "temperature": 0})
        assert "NaN or infinity" in stream[-1]["error"]["message"], stream
        thread.join()
        assert got[0]["choices"][0]["logprobs"]["tokens"] == wanted
        assert server.metric("dpe_sequences_failed_total") == 3
        assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 2})["choices"]


def test_time():
    """A request gets 504 when its time is up, while it runs or waits; others go on."""
    with serve("--method", "self-extend:always=1", "-l", "16k", "--slots", 1, "--request-timeout", 1) as server:
        running = start(server, {**LONG, "max_tokens": 16000})
        wait_until(server, "dpe_running", 1)
        error = server.refused(504, "/v1/completions", {**LONG, "n": 2})
        assert error["type"] == "timeout_error" and "--request-timeout" in error["message"], error
        assert running.getresponse().status == 504
        events = server.stream("/v1/completions", {**LONG, "max_tokens": 16000})
        assert events[0]["choices"][0]["text"] is not None and events[-1]["error"]["type"] == "timeout_error"
        wait_until(server, "dpe_running", 0)
        assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 2})["usage"]["completion_tokens"] <= 2
        assert server.metric("dpe_requests_cancelled_total") == 0
    assert sum("--request-timeout" in line for line in server.log) == 3, server.log


def test_leaving_the_queue():
    """A client that leaves while it waits makes room at once, also in the middle of the queue."""
    with serve("--method", "self-extend:always=1", "-l", "16k", "--slots", 1, "--queue", 2) as server:
        first = start(server, {**LONG, "max_tokens": 16000})
        wait_until(server, "dpe_running", 1)
        second = start(server, {**LONG, "max_tokens": 2})
        wait_until(server, "dpe_waiting", 1)
        third = start(server, LONG)
        wait_until(server, "dpe_waiting", 2)
        server.refused(503, "/v1/completions", LONG)
        third.close()
        wait_until(server, "dpe_waiting", 1)
        fourth = start(server, {**LONG, "max_tokens": 3})
        wait_until(server, "dpe_waiting", 2)
        first.close()
        for connection, count in ((second, 2), (fourth, 3)):
            answer = json.loads(connection.getresponse().read())
            assert answer["usage"]["completion_tokens"] == count, answer


def test_unsupported():
    """What would change an answer is refused by name; values that change nothing are accepted."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with serve("-l", 256) as server:
        body = {"prompt": "Once", "max_tokens": 1}
        for member in ({"tools": [tool]}, {"tool_choice": "required"}, {"functions": [{}]}, {"suffix": "x"},
                       # Members that are on no list, and those whose value that changes nothing is not the empty one.
                       {"max_new_tokens": 0}, {"n_predict": -1}, {"max_length": 20}, {"num_beams": 2}, {"min_length": 3},
                       {"do_sample": False}, {"enable_thinking": False}, {"think": True}, {"n_probs": 5}, {"tfs_z": 0.9},
                       {"return_tokens_as_token_ids": True}, {"options": {"num_ctx": 4096}}, {"beam_width": 3}, {"never seen": 1},
                       {"skip_special_tokens": False}, {"messages": [{}]}, {"max_completion_tokens": 0}, {"random_seed": 0},
                       {"top_logprobs": 3}, {"stream_options": {"continuous_usage_stats": True}}, {"verbosity": "high"},
                       {"response_format": {"type": "json_object"}}, {"logit_bias": {"5": 1}}, {"presence_penalty": 0.5},
                       {"frequency_penalty": -1}, {"repetition_penalty": 1.2}, {"top_k": 40}, {"min_p": 0.1},
                       {"modalities": ["text", "audio"]}, {"audio": {"voice": "x"}}, {"guided_json": {"a": 1}}):
            error = server.refused(400, "/v1/completions", {**body, **member})
            assert error["param"] == next(iter(member)), (member, error)
            assert error["code"] == "unsupported_parameter" or "top_k" in member, (member, error)
        server.ask("/v1/completions", {
            **body, "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "logit_bias": {},
            "presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "top_k": -1, "min_p": 0,
            "modalities": ["text"], "suffix": None, "user": "me", "metadata": {"a": "b"}, "store": True, "num_beams": 1,
            "do_sample": True, "never seen": None, "neither": [], "tfs_z": 1, "min_length": 0, "use_beam_search": False,
            "skip_special_tokens": True, "service_tier": "flex", "mirostat": 0, "mirostat_tau": 5.0, "cache_prompt": True,
            "typical_p": 1.0, "guided_json": {}, "max_length": None, "function_call": "auto", "top_n_sigma": -1,
            "stream_options": {"include_obfuscation": False}})
        greedy = server.ask("/v1/completions", {**body, "temperature": 0, "top_k": 40})["choices"]
        assert server.ask("/v1/completions", {**body, "top_k": 1})["choices"] == greedy


def test_errors():
    """Clients know by the code, or by the words, that a text is too long and that a model is not there; the member is named."""
    path = os.path.join(work, "errors.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
    with serve("-l", 256, "--chat-template", path, "--name", "org/model 1") as server:
        chat = {"messages": [{"role": "user", "content": "word " * 300}]}
        for url, body, param in (("/v1/chat/completions", chat, "messages"), ("/v1/completions", {"prompt": "x " * 300}, "prompt"),
                                 ("/v1/chat/completions", {**chat, "max_tokens": 1}, "messages"),
                                 ("/v1/completions", {"prompt": "x", "max_tokens": 10**9}, "prompt")):
            error = server.refused(400, url, body)
            assert error["code"] == "context_length_exceeded" and error["param"] == param, error
            assert error["message"].startswith("This model's maximum context length is 256 tokens"), error
        error = server.refused(400, "/generate", {"prompts": ["x " * 300]}, method="PUT")
        assert error["code"] == "context_length_exceeded" and error["param"] == "prompts", error
        for name in ("nope", "model 1", "org", "org/model 1/", "reference"):
            error = server.refused(404, "/v1/models/" + urllib.parse.quote(name), "", method="GET")
            assert error["code"] == "model_not_found" and "'org/model 1'" in error["message"], error
        name = "org/model 1"
        assert server.ask("/v1/models/" + urllib.parse.quote(name, safe=""))["id"] == name
        assert server.ask("/v1/models/" + urllib.parse.quote(name))["id"] == name


def test_tools():
    """Tools reach the template that has a place for them; calls in the messages have arguments."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    path = os.path.join(work, "tools.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{{ tools | tojson if tools else 'no tools' }}{% for m in messages %};{{ m.content }}{% endfor %}")

    def rendered(server, **more):
        body = {"messages": [{"role": "user", "content": "a"}], **more}
        return server.ask("/detokenize", {"tokens": server.ask("/tokenize", body)["tokens"]})["prompt"]

    with serve("-l", 256, "--chat-template", path) as server:
        told = json.dumps([tool]) + ";a"
        for more, wanted in (({}, "no tools;a"), ({"tools": [tool]}, told), ({"tools": [tool], "tool_choice": "auto"}, told),
                             ({"tools": [tool], "tool_choice": None, "parallel_tool_calls": False}, told),
                             ({"tools": [tool], "tool_choice": "none"}, "no tools;a"), ({"tools": []}, "no tools;a")):
            assert rendered(server, **more) == wanted, (more, wanted)
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
        assert server.ask("/v1/chat/completions", {**chat, "tools": [tool]})["usage"]["completion_tokens"] <= 2
        for param, wrong in (("tool_choice", {"tool_choice": "required"}), ("tool_choice", {"tool_choice": tool}),
                             ("tools", {"tools": tool}), ("tools", {"tools": [{"type": "custom"}]}), ("tools", {"tools": ["f"]}),
                             ("tools", {"tools": [{"type": "function", "function": {}}]})):
            error = server.refused(400, "/v1/chat/completions", {**chat, "tools": [tool], **wrong})
            assert error["param"] == param, (wrong, error)
    with serve("-l", 256, "--chat-template", os.path.join(work, "errors.jinja")) as server:
        error = server.refused(400, "/v1/chat/completions", {**chat, "tools": [tool]})
        assert error["param"] == "tools" and "has no place" in error["message"], error


def test_sharing():
    """A cache is shared by requests with the same key and the same cache_salt only; messages name no folders."""
    path = os.path.join(work, "keys")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\nsk-one\r\n\n sk-two \n")
    template = os.path.join(work, "refuses.jinja")
    with open(template, "w", encoding="utf-8") as file:
        file.write("{{ raise_exception('it refuses, see https://a/b') if messages|length > 1 }}{{ messages[0].content }}")
    with serve("-l", 512, "--slots", 1, "--api-key-file", path, "--chat-template", template) as server:
        body = {"prompt": "Once upon a time there was a king, and " * 5, "max_tokens": 1}

        def cached(key, **more):
            answer = server.ask("/v1/completions", {**body, **more}, headers={"Authorization": f"Bearer {key}"})
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        for key, more, shares in (("sk-one", {}, False), ("sk-one", {}, True), ("sk-two", {}, False), ("sk-two", {}, True),
                                  ("sk-two", {"cache_salt": "a"}, False), ("sk-two", {"cache_salt": "a"}, True),
                                  ("sk-two", {"cache_salt": "b"}, False), ("sk-one", {"cache_salt": "b"}, False),
                                  ("sk-one", {"cache_salt": None}, False)):
            assert (cached(key, **more) > 20) == shares, (key, more)
        key = {"Authorization": "Bearer sk-one"}
        for wrong in ("", 5, ["a"], "x" * 1025):
            assert server.refused(400, "/v1/completions", {**body, "cache_salt": wrong}, headers=key)["param"] == "cache_salt"
        messages = [{"role": "user", "content": "a"}] * 2
        error = server.refused(400, "/v1/chat/completions", {"messages": messages}, headers=key)
        assert "refuses.jinja" in error["message"] and work not in error["message"] and "https://a/b" in error["message"], error


def test_scores():
    """So many log-probabilities that the answer would fill the memory are refused before anything is run."""
    with serve("--method", "self-extend:always=1", "-l", "2k", "--slots", 1) as server:
        many = {"prompt": ["Once"] * 16, "n": 8, "max_tokens": 2000, "logprobs": 20}
        error = server.refused(400, "/v1/completions", many)
        assert error["param"] == "logprobs" and "fewer" in error["message"], error
        server.refused(400, "/v1/completions", {**many, "prompt": [[5] * 2000] * 16, "max_tokens": 0, "echo": True})
        assert server.metric("dpe_prompt_tokens_total") == 0


def test_names():
    """The model's name is the last part of its path, in the UTF-8 of JSON whatever the path is in."""
    folder = os.path.join(os.fsencode(work), b"caf\xe9")
    os.symlink(os.path.abspath(reference), folder)
    for path, name in ((folder, "caf\\xe9"), (reference + "//", "reference")):
        with serve(model=path) as server:
            assert server.ask("/v1/models")["data"][0]["id"] == name
            assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 1})["model"] == name


def test_ipv6():
    """The address in a URL is in brackets."""
    server = subprocess.Popen([f"{bin_folder}/dpe-serve", "-m", reference, "--port", "0", "--host", "::1"], text=True,
                              stderr=subprocess.PIPE)
    line = server.stderr.readline()
    server.terminate()
    server.communicate()
    assert "at http://[::1]:" in line or "cannot listen on ::1" in line, line  # a machine without IPv6


def test_keys():
    """A file whose first line is not a key that a client can send."""
    for text in (b"two words\n", b"one\0two", b"caf\xc3\xa9", b"\t\n"):
        path = os.path.join(work, "key")
        with open(path, "wb") as file:
            file.write(text)
        ran = subprocess.run([f"{bin_folder}/dpe-serve", "-m", reference, "--port", "0", "--api-key-file", path],
                             capture_output=True, text=True, check=False, timeout=100)
        assert ran.returncode == 65 and path + ": expected a key" in ran.stderr, (text, ran)


def test_no_plans():
    """--no-plans: whatever a client gives is refused before it is read, and a tool says why; everything else is answered."""
    plan = subprocess.run([f"{bin_folder}/dpe-run", "-m", reference, "--show-plan", "--json", "--method", "yarn:always=1", "-l", "1024"],
                          check=True, stdout=subprocess.PIPE).stdout
    tool = [f"{bin_folder}/dpe-eval", "niah", "-m", reference, "--corpus", os.path.join(root, "data/sample"), "-l", "400", "--samples",
            "1", "--method", "ntk", "-o", os.path.join(work, "refused.h5")]
    with serve("-l", 1024, "--no-plans", model=reference) as server:
        for body in (plan, b"{}", b"[" * 100, b'"x"', plan[:100]):
            assert server.raw("POST", "/v1/dpe/plan", body)[0] in (400, 403), body
        assert "--no-plans" in server.refused(403, "/v1/dpe/plan", plan)["message"]
        ran = subprocess.run([*tool, "--engine", f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=False, timeout=100)
        assert ran.returncode == 65 and "--no-plans" in ran.stderr and not os.path.exists(tool[-1]), ran
        assert server.ask("/v1/completions", {"prompt": "The fox", "max_tokens": 2})["choices"]
    with serve("-l", 1024, model=reference) as server:
        assert len(json.loads(server.raw("POST", "/v1/dpe/plan", plan)[2])["plan"]) == 64


TURNS = {"turns.jinja": "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.role == 'assistant' %}<|bos|>{% endif %}\n"
                        "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
         "turns.txt": "user: {prompt}<|bos|>\nassistant:"}


def test_chat_ends():
    """An answer in a chat ends at the special token that the template puts after an answer; where it is plain text, after the
    user's message."""
    body = {"max_tokens": 8, "temperature": 0, "logprobs": True, "messages": [{"role": "user", "content": "Who is it?"}]}
    for file_name, turns in TURNS.items():
        template = os.path.join(work, file_name)
        with open(template, "w", encoding="utf-8") as file:
            file.write(turns)
        with serve("-l", 256, "--chat-template", template) as server:
            content = server.ask("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
            assert server.ask("/tokenize", {"prompt": "<|bos|>", "add_special_tokens": False})["tokens"] == [BOS]
            third = server.ask("/tokenize", {"prompt": content[2]["token"], "add_special_tokens": False})["tokens"]
            firsts = [item["token"] for item in content[:3]]
        assert len(third) == 1 and firsts.index(content[2]["token"]) == 2, content
        model = changed_model(file_name + ".model", [(BOS, third[0])])
        with serve("-l", 256, "--chat-template", template, model=model) as server:
            choice = server.ask("/v1/chat/completions", body)["choices"][0]
            assert choice["finish_reason"] == "stop" and len(choice["logprobs"]["content"]) == 2, choice
            longer = server.ask("/v1/chat/completions", {**body, "ignore_eos": True})["choices"][0]
            assert longer["finish_reason"] == "length" and len(longer["logprobs"]["content"]) == 8, longer


try:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name, flush=True)
finally:
    shutil.rmtree(work)

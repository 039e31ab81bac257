"""serve_schedule.py BIN ROOT: what dpe-serve does with many clients, with clients that leave, at its end, with keys,
with tables of several lengths and with chats."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
model = os.path.join(root, "data/reference")
text = open(os.path.join(root, "README.md"), encoding="utf-8").read()
work = tempfile.mkdtemp()


def serve(*arguments):
    return Server(f"{bin_folder}/dpe-serve", "-m", model, "--threads", 2, *arguments)


def together(count, call):
    """call(0), call(1), … at the same time."""
    results = [None] * count

    def one(i):
        results[i] = call(i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def begin(server, body):
    """A stream of which the first event has arrived: its connection and the response."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
    response = connection.getresponse()
    assert response.status == 200 and response.readline().startswith(b"data: ")
    return connection, response


LONG = {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}


def test_questions_at_once():
    """Questions on one document that come together: it is read once."""
    with serve("--method", "self-extend:always=1", "-l", "2k", "--slots", 4, "--chunk", 256) as server:
        document = text[:3500]
        answers = together(6, lambda i: server.ask("/v1/completions", {
            "prompt": f"{document} Question {i}:", "max_tokens": 8, "temperature": 0}))
        tokens = answers[0]["usage"]["prompt_tokens"]
        assert tokens > 1000, tokens
        assert server.metric("dpe_prompt_tokens_total") < tokens + 6 * 100, "the document was read once"
        choices = server.ask("/v1/completions", {"prompt": document[1500::-1], "max_tokens": 8, "n": 4, "seed": 1})
        assert choices["usage"]["prompt_tokens_details"]["cached_tokens"] > 3 * (choices["usage"]["prompt_tokens"] - 9)
        alone = server.ask("/v1/completions", {"prompt": f"{document} Question 3:", "max_tokens": 8,
                                               "temperature": 0})
        assert alone["choices"][0]["text"] == answers[3]["choices"][0]["text"]


def test_queue_and_leaving():
    """A full queue refuses; a client that hangs up frees its slot, streaming or not."""
    with serve("--method", "self-extend:always=1", "-l", "8k", "--slots", 1, "--queue", 1) as server:
        connection, response = begin(server, LONG)
        waiting = server.connect()
        waiting.request("POST", "/v1/completions", json.dumps(LONG))
        while server.metric("dpe_waiting") < 1:
            time.sleep(0.05)
        server.refused(503, "/v1/completions", LONG)
        server.refused(400, "/v1/completions", {**LONG, "n": 3})
        waiting.close()  # it leaves the queue,
        while server.metric("dpe_requests_cancelled_total") < 1:
            time.sleep(0.05)
        response.close()
        connection.close()  # and this one its slot
        while server.metric("dpe_running") > 0:
            time.sleep(0.05)
        assert server.metric("dpe_requests_cancelled_total") == 2
        assert server.metric("dpe_new_tokens_total") < 7000
        assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 2})["usage"]["completion_tokens"] == 2


def test_end():
    """SIGTERM: what is being answered is finished, what is new is not accepted."""
    with serve("--method", "self-extend:always=1", "-l", "2k") as server:
        _, response = begin(server, {**LONG, "max_tokens": 300})
        server.process.send_signal(signal.SIGTERM)
        data = response.read().decode()
        assert data.endswith("data: [DONE]\n\n"), data[-200:]
        assert '"finish_reason":"length"' in data
        assert server.process.wait() == 0
        try:
            server.ask("/health")
            raise AssertionError("it still listens")
        except (ConnectionError, http.client.HTTPException):
            pass
    with serve("--method", "self-extend:always=1", "-l", "8k") as server:
        connection, response = begin(server, LONG)
        open_already = server.connect()
        open_already.request("GET", "/health")
        open_already.getresponse().read()
        server.process.send_signal(signal.SIGTERM)
        try:
            while True:
                with socket.create_connection(("127.0.0.1", server.port)):
                    time.sleep(0.05)
        except ConnectionRefusedError:
            pass
        open_already.request("POST", "/v1/completions", "{}")
        assert open_already.getresponse().status == 503, "it refuses while it still answers"
        open_already.close()
        response.close()
        connection.close()
        assert server.process.wait() == 0


def test_key():
    """Without the key nothing but the page, health and metrics."""
    path = os.path.join(work, "key")
    with open(path, "w", encoding="utf-8") as file:
        file.write("sk-right\n")
    with serve("--api-key-file", path) as server:
        body = {"prompt": "Once", "max_tokens": 1}
        for wrong in ({}, {"Authorization": "Bearer sk-wrong"}, {"Authorization": "Bearer sk-righ"},
                      {"Authorization": "sk-right"}, {"Authorization": "Bearer "}):
            assert server.refused(401, "/v1/completions", body, headers=wrong)["code"] == "invalid_api_key"
        for right in ("Bearer sk-right", "bearer sk-right"):
            server.ask("/v1/completions", body, headers={"Authorization": right})
        server.refused(401, "/v1/models/reference", "", method="GET")
        server.ask("/health")
        assert server.raw("GET", "/")[0] == 200


def test_method():
    """Up to the trained length a method changes nothing, unless always=1; what is said of the answer tells which."""
    for method, short in (("self-extend:group=4", ("rope", 256)), ("self-extend:group=4,always=1", ("self-extend", 1024))):
        with serve("--method", method, "-l", "1k") as server:
            for new, plan in ((8, short), (400, ("self-extend", 1024)), (8, short)):
                answer = server.ask("/v1/completions", {"prompt": "Once upon a time", "max_tokens": new, "temperature": 0,
                                                        "stop": ["."]})
                assert answer["dpe"]["plan"].startswith(plan[0]) and answer["dpe"]["length"] == plan[1], answer["dpe"]
            wanted = subprocess.run([f"{bin_folder}/dpe-run", "-m", model, "--method", method, "--length", "1k", "-p",
                                     "Once upon a time", "-n", "8"], check=True, capture_output=True, text=True).stdout
            answer = server.ask("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
            assert answer["choices"][0]["text"].rstrip("\n") == wanted.rstrip("\n"), (answer, wanted)


def test_formula():
    """Without a table and a method the formula of the next doubling runs longer texts, and says that nothing was measured."""
    with serve("-l", 1200) as server:
        plans = server.ask("/health")["plans"]
        assert [plan["length"] for plan in plans] == [256, 512, 1024, 1200], plans
        assert ["nothing was measured" in plan.get("evidence", "") for plan in plans] == [False, True, True, True], plans
        for new, plan, length in ((8, "rope", 256), (400, "dpe:window=128,", 512), (600, "dpe:window=48,", 1024)):
            answer = server.ask("/v1/completions", {"prompt": "Once upon a time", "max_tokens": new, "temperature": 0,
                                                    "stop": ["."]})
            assert answer["dpe"]["plan"].startswith(plan) and answer["dpe"]["length"] == length, answer["dpe"]


def test_table():
    """The entry of a table by prompt and new tokens together."""
    table = os.path.join(work, "table.h5")
    subprocess.run([f"{bin_folder}/dpe-export", "--method", "self-extend:group=8", "-m", model, "--length", "700", "-o", table], check=True)
    with serve("--table", table) as server:
        assert [plan.get("evidence") for plan in server.ask("/health")["plans"]] == [None, "nothing was measured"]
    os.remove(table)
    one = {length: os.path.join(work, f"{length}.h5") for length in (512, 1024)}
    for length, path in one.items():
        for command in (["dpe-detect", "-m", model, "--corpus", os.path.join(root, "data/sample"), "-l", str(length),
                         "--samples", "1", "--groups", "2", "--lengths", f"128,{length}", "-o", path + ".sweep"],
                        ["dpe-export", path + ".sweep", "-o", path]):
            subprocess.run([f"{bin_folder}/{command[0]}", *command[1:]], check=True, capture_output=True)
    subprocess.run([f"{bin_folder}/dpe-export", "--join", *one.values(), "-o", table], check=True, capture_output=True)
    with serve("--table", table) as server:
        for new, plan, length in ((8, "rope", 256), (400, "dpe", 512), (600, "dpe", 1024), (8, "rope", 256)):
            answer = server.ask("/v1/completions", {"prompt": "Once upon a time", "max_tokens": new, "temperature": 0,
                                                    "stop": ["."]})
            assert answer["dpe"]["plan"].startswith(plan) and answer["dpe"]["length"] == length, answer["dpe"]
        both = together(4, lambda i: server.ask("/v1/completions", {
            "prompt": "Once upon a time", "max_tokens": (8, 500)[i % 2], "temperature": 0, "stop": ["."]}))
        assert [answer["dpe"]["length"] for answer in both] == [256, 512, 256, 512]
        server.refused(400, "/v1/completions", {"prompt": "Once", "max_tokens": 1024})
    # A chat that names no number of tokens: the entry for the prompt and a room, which the answer may fill.
    chat = os.path.join(work, "plain.txt")
    with open(chat, "w", encoding="utf-8") as file:
        file.write("{prompt}")
    for more, lengths in ((("--answer-room", 64), (256, 256, 512, 1024)), ((), (1024,)),
                          (("--answer-room", 300, "-l", 900), (512, 512, 900)), (("-l", 300), (300,)), (("-l", 1200), (1024,))):
        with serve("--table", table, "--chat-template", chat, *more) as server:
            for words, length in zip((2, 120, 240, 480), lengths):
                answer = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * words}],
                                                             "temperature": 0, "ignore_eos": True})
                assert answer["usage"]["total_tokens"] == length, (more, words, answer["usage"], length)
                assert answer["choices"][0]["finish_reason"] == "length"
                entry = 256 if length == 256 else 512 if length in (300, 512) else 1024
                assert answer["dpe"]["length"] == entry, (more, words, answer["dpe"])


CHAT = ("{{ bos_token }}{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
        "{{ raise_exception('unknown role ' ~ m.role) }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}")


def test_chat():
    """A chat is the completion of what its template renders."""
    path = os.path.join(work, "chat.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write(CHAT)
    with serve("--chat-template", path) as server:
        messages = [{"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "is it?"}]}]
        body = {"temperature": 0, "max_tokens": 12}
        rendered = "system: Be brief.\nuser: Who \nis it?\nassistant:"
        wanted = server.ask("/v1/completions", {**body, "prompt": server.ask(
            "/tokenize", {"prompt": rendered, "add_special_tokens": False})["tokens"]})
        answer = server.ask("/v1/chat/completions", {**body, "messages": messages, "logprobs": True, "top_logprobs": 2})
        message = answer["choices"][0]["message"]
        assert message == {"role": "assistant", "content": wanted["choices"][0]["text"]}, (message, wanted)
        content = answer["choices"][0]["logprobs"]["content"]
        assert len(content) == 12 and len(content[0]["top_logprobs"]) == 2
        assert answer["object"] == "chat.completion"
        assert server.ask("/tokenize", {"messages": messages})["count"] == wanted["usage"]["prompt_tokens"]
        pieces = server.stream("/v1/chat/completions", {**body, "messages": messages})
        assert pieces[0]["choices"][0]["delta"]["role"] == "assistant"
        assert "".join(p["choices"][0]["delta"]["content"] for p in pieces) == message["content"]
        error = server.refused(400, "/v1/chat/completions", {"messages": [{"role": "robot", "content": "x"}]})
        assert "unknown role robot" in error["message"]
        for wrong in ([], "x", [1], [{"content": "x"}], [{"role": "user", "content": [{"type": "image_url"}]}],
                      [{"role": "user", "content": 5}], [{"role": "user", "content": {}}]):
            server.refused(400, "/v1/chat/completions", {"messages": wrong})


def test_memory():
    """--max-memory decides how many sequences run at once, and they stay within it when all are full."""
    limit = 96 << 20
    with serve("--method", "self-extend:always=1", "-l", "4k", "--max-memory", "96M") as server:
        slots = int(re.search(r": (\d+) sequences of up to 4096 tokens", "".join(server.log)).group(1))
        assert 1 < slots < 8, server.log
        together(2 * slots, lambda i: server.ask("/v1/completions", {
            "prompt": [100 + i] * 4000, "max_tokens": 4, "temperature": 0}))
        with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as status:
            used = 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", status.read()).group(1))
        with open(f"{bin_folder}/dpe-serve", "rb") as program:
            sanitized = b"__asan_init" in program.read()  # it keeps freed memory for a while
        assert sanitized or used <= limit, (slots, used)


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("passed", name, flush=True)

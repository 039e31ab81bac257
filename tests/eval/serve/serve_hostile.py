"""serve_hostile.py BIN ROOT: requests that are wrong, too large, too slow, or cut off. Each is refused with an error in the
form of OpenAI's API or its connection is closed; the server goes on and, under AddressSanitizer, ends without leaks."""

import json
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
model = os.path.join(root, "data/reference")
BODY = {"prompt": "Once", "max_tokens": 2}


def test_members(server):
    """Every wrong member is named."""
    ids = [2559, 2560]
    for param, wrong in (
            ("prompt", {"prompt": None}), ("prompt", {"prompt": 5}), ("prompt", {"prompt": {}}),
            ("prompt", {"prompt": []}), ("prompt", {"prompt": [[]]}), ("prompt", {"prompt": ids}),
            ("prompt", {"prompt": [-1]}), ("prompt", {"prompt": [1, "a"]}), ("prompt", {"prompt": ["a", 1]}),
            ("prompt", {"prompt": [1.5]}), ("prompt", {"prompt": ["a"] * 129}), ("prompt", {"prompt": [[[1]]]}),
            ("prompt", {"prompt": "word " * 5000}), ("prompt", {"prompt": [7] * 600}),
            ("prompt", {"max_tokens": 513}), ("max_tokens", {"max_tokens": -1}), ("max_tokens", {"max_tokens": "8"}),
            ("max_tokens", {"max_tokens": 1e3}), ("max_tokens", {"max_tokens": 2 ** 62}),
            ("temperature", {"temperature": -1}), ("temperature", {"temperature": "hot"}),
            ("top_p", {"top_p": 1.01}), ("top_p", {"top_p": []}), ("n", {"n": 0}), ("n", {"n": 129}),
            ("n", {"n": 64, "prompt": ["a"] * 3}), ("logprobs", {"logprobs": 21}), ("logprobs", {"logprobs": True}),
            ("stop", {"stop": 5}), ("stop", {"stop": [""]}), ("stop", {"stop": ["a", None]}),
            ("stop", {"stop": ["x"] * 1000000}), ("stop", {"stop": "y" * 1025}), ("stop", {"stop": "a\0b"}),
            ("echo", {"echo": "yes"}), ("stream", {"stream": 1}), ("seed", {"seed": "x"}), ("best_of", {"best_of": 2}),
            ("stream_options", {"stream_options": 5}), ("stream_options", {"stream_options": []})):
        error = server.refused(400, "/v1/completions", {**BODY, **wrong})
        assert error["type"] == "invalid_request_error" and error["param"] == param, (wrong, error)
    for path, body in (("/tokenize", {}), ("/tokenize", {"prompt": 1}), ("/detokenize", {"tokens": [2560]}),
                       ("/detokenize", {"tokens": "a"}), ("/detokenize", {}), ("/v1/chat/completions", {"messages": []})):
        server.refused(400, path, body)
    server.refused(400, "/generate", {"prompts": 5}, method="PUT")


def test_bodies(server):
    """Bodies that are not a JSON object in UTF-8."""
    for body in (b"", b"{", b"[]", b"null", b'"a"', b"{}{}", b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "\xff"}',
                 b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "\\ud800"}', b'{"max_tokens": 1e999}',
                 b'{"max_tokens": 99999999999999999999999}', b'{"a":' * 100000, b"[" * 1000000,
                 b'{"prompt": ' + b"[" * 100000 + b"]" * 100000 + b"}", b"\0" * 100, os.urandom(10000)):
        server.refused(400, "/v1/completions", body)
    for body in ('{"prompt": "a\\u0000b", "max_tokens": 1}', '{"prompt": "\\ud83d\\ude00", "max_tokens": 1}'):
        assert server.raw("POST", "/v1/completions", body)[0] == 200


def test_paths(server):
    """Unknown paths and methods."""
    for path in ("/v1", "/v1/completions/", "/../etc/passwd", "/" + "a" * 5000):
        server.refused(404, path, "", method="GET")
    server.refused(405, "/v1/completions", "", method="GET")
    server.refused(405, "/v1/models", BODY)
    server.refused(405, "/generate", BODY)


def exchange(server, data, wait=True):
    """What the server sends to these bytes until it closes the connection or stops sending."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(60)
        got = b""
        try:
            client.sendall(data)
            while wait and not got.endswith(b"}"):
                piece = client.recv(65536)
                if not piece:
                    break
                got += piece
        except OSError:
            pass
        return got


def test_sizes(server):
    """Bodies that are announced as too long, and one without end."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
    for length in (b"99999999999", b"9" * 30, b"-1", b"x"):
        got = exchange(server, head + b"Content-Length: " + length + b"\r\n\r\n{")
        assert b" 413 " in got or b" 400 " in got or got == b"", (length, got)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    got = exchange(server, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 400)
    assert b" 413 " in got and b"invalid_request_error" in got or got == b"", got[:200]
    got = exchange(server, b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n")
    assert got == b"" or b" 4" in got.split(b"\r\n")[0], got[:100]
    got = exchange(server, b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 1000000 + b"\r\n\r\n")
    assert got == b"" or b" 4" in got.split(b"\r\n")[0], got[:100]
    exchange(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", wait=False)
    exchange(server, b"\r\n" * 1000, wait=False)


def test_cut_off(server):
    """Clients that leave at every point of a request."""
    whole = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 77\r\n\r\n" +
             json.dumps({"prompt": "Once upon a", "max_tokens": 200, "stream": True}).ljust(77).encode())
    for n in range(1, len(whole) + 1, 7):
        exchange(server, whole[:n], wait=False)
    while server.metric("dpe_running") > 0 or server.metric("dpe_waiting") > 0:
        time.sleep(0.05)


def test_slow(server):
    """Clients that hold connections keep nobody waiting."""
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    for client in slow:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
    assert server.ask("/v1/completions", BODY)["usage"]["completion_tokens"] <= 2
    for client in slow:
        client.sendall(b"Content-Length: 30\r\n\r\n{")
    assert server.ask("/v1/completions", BODY)["usage"]["completion_tokens"] <= 2
    for client in slow:
        client.close()


def test_byte_by_byte(_):
    """A request that never ends is ended, also when its client is never silent."""
    with Server(f"{bin_folder}/dpe-serve", "-m", model, "--client-timeout", 1, "--slots", 1) as server:
        for head in (b"", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(head)
                try:
                    while True:
                        client.sendall(b"a")
                        time.sleep(0.1)
                except OSError:
                    pass
        assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 200})["choices"]


def test_many(server):
    """Many clients with random requests, some of which leave: all others are answered or told to come back."""
    wrong = []

    def client(seed):
        draw = random.Random(seed)
        for _ in range(4):
            body = {"prompt": "word " * draw.randrange(1, 80), "max_tokens": draw.randrange(0, 40), "seed": seed,
                    "n": draw.randrange(1, 3), "stream": draw.random() < 0.5, "stop": ["e", "the end"]}
            connection = server.connect()
            try:
                connection.request("POST", "/v1/completions", json.dumps(body))
                if draw.random() < 0.3:
                    continue
                response = connection.getresponse()
                data = response.read()
                if response.status not in (200, 503):
                    wrong.append((response.status, data))
            except OSError as error:
                wrong.append(error)
            finally:
                connection.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    while server.metric("dpe_running") > 0 or server.metric("dpe_waiting") > 0:
        time.sleep(0.05)
    assert server.metric("dpe_sequences_failed_total") == 0


with Server(f"{bin_folder}/dpe-serve", "-m", model, "--method", "self-extend", "-l", 512, "--threads", 2) as one_server:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(one_server)
            print("passed", name, flush=True)

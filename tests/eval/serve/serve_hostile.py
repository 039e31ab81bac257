"""serve_hostile.py BIN ROOT: requests that are wrong, too large, too slow, or cut off. Each is refused with an error in the
form of OpenAI's API or its connection is closed; the server goes on and, under AddressSanitizer, ends without leaks."""

import http.client
import json
import os
import random
import resource
import select
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
            ("prompt", {"prompt": float("nan")}), ("prompt", {"prompt": [10 ** 20]}), ("stop", {"stop": [10 ** 20]}),
            ("stop", {"stop": 5}), ("stop", {"stop": [""]}), ("stop", {"stop": ["a", None]}),
            ("stop", {"stop": ["x"] * 1000000}), ("stop", {"stop": "y" * 1025}), ("stop", {"stop": "a\0b"}),
            ("echo", {"echo": "yes"}), ("stream", {"stream": 1}), ("seed", {"seed": "x"}), ("best_of", {"best_of": 2}),
            ("stream_options", {"stream_options": 5}), ("stream_options", {"stream_options": []})):
        error = server.refused(400, "/v1/completions", {**BODY, **wrong})
        assert error["type"] == "invalid_request_error" and error["param"] == param, (wrong, error)
    for path, body in (("/tokenize", {}), ("/tokenize", {"prompt": 1}), ("/tokenize", {"prompt": 10 ** 20}), ("/detokenize", {"tokens": [2560]}),
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
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
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


def test_forms(server):
    """Requests that a proxy may read otherwise are refused and their connection is closed: what follows is not run."""
    body = b'{"prompt":"Once","max_tokens":1}'
    length = str(len(body)).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    chunks = b"20\r\n" + body + b"\r\n0\r\n\r\n"
    hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for wrong in (b"Content-Length : " + length + b"\r\n\r\n" + body, b"Content-Length: 5\r\nContent-Length: 32\r\n\r\n" + body,
                  b"Content-Length: 32\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, b"X: y\nContent-Length: 32\r\n\r\n" + body,
                  b"X: a\0b\r\nContent-Length: 32\r\n\r\n" + body, b"Host: other\r\nContent-Length: 32\r\n\r\n" + body,
                  b"X: a\r\n b\r\nContent-Length: 32\r\n\r\n" + body, b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks,
                  b"Content-Length: 32, 32\r\n\r\n" + body, b"Content-Length: 32\n\r\n" + body, b"\r\n" + body):
        got = until_closed(server, head + wrong + hidden)
        status = b" 411 " if wrong.startswith(b"\r\n") else b" 400 "
        assert got.startswith(b"HTTP/1.1" + status) and got.count(b"HTTP/1.1 ") <= 2 and b" 200 " not in got, (wrong, got)
    got = until_closed(server, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + hidden)
    assert got.startswith(b"HTTP/1.1 200 ") and got.count(b"HTTP/1.1 ") == 1, got


def until_closed(server, data):
    """What the server sends before it closes the connection."""
    got = b""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(60)
        try:
            client.sendall(data)
            while piece := client.recv(65536):
                got += piece
        except ConnectionError:
            pass
    return got


JSON = {"Content-Type": "application/json"}


def test_pages(server):
    """Pages of other sites, and pages whose name was made to mean this address, may not ask."""
    own = {"Origin": f"http://127.0.0.1:{server.port}", **JSON}
    assert server.ask("/v1/completions", BODY, headers=own)["usage"]
    assert server.raw("GET", "/", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200
    for status, headers in ((403, {"Host": "evil.example"}), (403, {"Origin": "http://evil.example", **JSON}),
                            (403, {"Origin": "null", **JSON}), (403, {"Sec-Fetch-Site": "cross-site", **JSON}),
                            (403, {"Host": "evil.example:80", "Origin": "http://evil.example:80", **JSON}),
                            (415, {**own, "Content-Type": "text/plain"})):
        error = server.refused(status, "/v1/completions", BODY, headers=headers)
        assert error["type"] == "invalid_request_error", error
    status, headers, _ = server.raw("OPTIONS", "/v1/completions", headers={"Origin": "http://evil.example"})
    assert status == 403 and headers["Access-Control-Allow-Origin"] is None
    with Server(f"{bin_folder}/dpe-serve", "-m", model, "--slots", 1, "--allow-origin", "https://app.example", "--allow-host",
                "box") as other:
        foreign = {"Origin": "https://app.example", "Host": "box:7"}
        status, headers, _ = other.raw("OPTIONS", "/v1/completions", headers=foreign)
        assert status == 204 and headers["Access-Control-Allow-Origin"] == "https://app.example", headers
        assert "Content-Type" in headers["Access-Control-Allow-Headers"]
        for body, wanted in ((BODY, 200), ({**BODY, "stream": True}, 200), ({**BODY, "n": 0}, 400)):
            status, headers, _ = other.raw("POST", "/v1/completions", json.dumps(body), {**foreign, **JSON})
            assert status == wanted and headers["Access-Control-Allow-Origin"] == "https://app.example", (status, headers)
        other.refused(403, "/v1/completions", BODY, headers={"Origin": "https://other.example", **JSON})
        other.refused(415, "/v1/completions", BODY, headers={**foreign, "Content-Type": "text/plain"})
        assert other.raw("GET", "/v1/models")[1]["Access-Control-Allow-Origin"] is None


def memory_of(server):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as status:
        return 1024 * int(next(line.split()[1] for line in status if line.startswith("RssAnon")))


def test_memory(_):
    """Bodies, what is parsed from them and what is asked for in them stay within --max-memory, alone and together."""
    limit = 64 << 20
    with open(f"{bin_folder}/dpe-serve", "rb") as program:
        sanitized = b"__asan_init" in program.read()
    with Server(f"{bin_folder}/dpe-serve", "-m", model, "-l", 256, "--slots", 2, "--max-memory", "64M", "--threads", 1) as server:
        assert server.ask("/v1/completions", {"prompt": [5] * 250, "max_tokens": 2})["usage"]
        for piece in ("{},", "[],", '"",', "[[[{}]]],", "1,", '{"a":1},'):
            body = '{"prompt":[' + piece * (10000000 // len(piece)) + "1]}"
            error = server.refused(413, "/v1/completions", body)
            assert "--max-memory" in error["message"], error
            server.refused(413, "/tokenize", body)
        server.refused(400, "/v1/completions", '{"prompt":' + "[" * 200 + "]" * 200 + "}")
        # What a head announced is there for its body to the end: two of 15 MB at once, which do not come to their ends here.
        large = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\n\r\n"
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        for client in clients:
            client.sendall(large)
        for client in clients:
            client.settimeout(60)
            client.sendall(b" " * 14900000)
        assert not select.select(clients, [], [], 1)[0], [client.recv(4096) for client in clients]
        for client in clients:
            client.close()
        # Bodies that never end: each is small enough, together they are not.
        chunk = b"40000\r\n" + b" " * 0x40000 + b"\r\n"
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(16)]
        refused = 0
        for client in clients:
            client.settimeout(20)
            try:
                client.sendall(head + chunk * 36)
            except OSError:
                pass
        deadline = time.monotonic() + 60
        while refused == 0 and time.monotonic() < deadline:
            for client in clients:
                client.settimeout(0.1)
                try:
                    refused += b" 503 " in client.recv(4096)
                except OSError:
                    pass
        assert refused > 0 and (sanitized or memory_of(server) < 1.5 * limit), (refused, memory_of(server))
        for client in clients:
            client.close()
        # What the clients above had may be given back only while these come: so more come than fit.
        announced, refused = [], 0
        while refused < 2 and len(announced) < 24:
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(large + b"{")
            announced.append(client)
            refused += bool(select.select([client], [], [], 1)[0]) and b" 503 " in client.recv(4096)
        assert refused == 2, f"of {len(announced)} bodies of 15 MB {refused} are refused"
        for client in announced:
            client.close()
        while server.raw("POST", "/v1/completions", json.dumps(BODY))[0] != 200:
            time.sleep(0.05)
        assert sanitized or memory_of(server) < 1.5 * limit, memory_of(server)


def test_files(_):
    """At the limit of open files the server waits instead of trying without end to accept one more."""
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
    with Server(f"{bin_folder}/dpe-serve", "-m", model, "--slots", 1, "--threads", 1, preexec_fn=few) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
        time.sleep(0.5)
        with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as stat:
            before = sum(map(int, stat.read().rsplit(")")[1].split()[11:13]))
        time.sleep(1)
        with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as stat:
            used = sum(map(int, stat.read().rsplit(")")[1].split()[11:13])) - before
        assert used < 0.05 * os.sysconf("SC_CLK_TCK"), used
        for client in held:
            client.close()
        for _ in range(100):  # until the server has seen that they are closed
            try:
                assert server.ask("/v1/completions", BODY)["usage"]
                break
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.1)
        else:
            raise AssertionError("no answer after all clients have gone")


def test_stop(_):
    """SIGTERM ends the server although a client sends or reads slowly, and after --stop-timeout whatever is there."""
    for options, data in ((("--client-timeout", 1), b"Content-Length: 1000\r\n\r\n"),
                          (("--stop-timeout", 1), b"Content-Length: 1000\r\n\r\n"),
                          (("--stop-timeout", 1, "-l", "16k", "--method", "self-extend"), None)):
        with Server(f"{bin_folder}/dpe-serve", "-m", model, "--slots", 1, "--threads", 1, *options) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                if data is None:
                    body = json.dumps({"prompt": "Once", "max_tokens": 15000, "stream": True, "ignore_eos": True}).encode()
                    data = b"Content-Length: %d\r\n\r\n" % len(body) + body
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + data)
                time.sleep(0.3)
                server.process.terminate()
                try:
                    while server.process.poll() is None:
                        client.sendall(b"a")
                        time.sleep(0.1)
                except OSError:
                    pass
                assert server.process.wait(60) == 0


def test_cut_off(server):
    """Clients that leave at every point of a request."""
    whole = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 77\r\n\r\n" +
             json.dumps({"prompt": "Once upon a", "max_tokens": 200, "stream": True}).ljust(77).encode())
    for n in range(1, len(whole) + 1, 7):
        exchange(server, whole[:n], wait=False)
    while server.metric("dpe_running") > 0 or server.metric("dpe_waiting") > 0:
        time.sleep(0.05)


def test_slow(server):
    """Clients that hold connections keep nobody waiting."""
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    for client in slow:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
    assert server.ask("/v1/completions", BODY)["usage"]["completion_tokens"] <= 2
    for client in slow:
        client.sendall(b"Content-Length: 30\r\n\r\n{")
    assert server.ask("/v1/completions", BODY)["usage"]["completion_tokens"] <= 2
    for client in slow:
        client.close()


def test_byte_by_byte(_):
    """A request that never ends is ended, also when its client is never silent."""
    with Server(f"{bin_folder}/dpe-serve", "-m", model, "--client-timeout", 1, "--slots", 1) as server:
        for head in (b"", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"):
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


with Server(f"{bin_folder}/dpe-serve", "-m", model, "--method", "self-extend:always=1", "-l", 512, "--threads", 2) as one_server:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(one_server)
            print("passed", name, flush=True)

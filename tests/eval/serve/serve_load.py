"""serve_load.py BIN ROOT [SECONDS [CLIENTS]]: dpe-serve under load and attack, for 4 seconds with 8 clients or as given.

The clients send requests of random lengths, whole or as a stream. Some leave before the answer, some in the middle of it,
some stop reading for a while; all others must be answered, with 503 in between where the queue is full. Beside them six
attackers send slow headers, bodies without end, deep JSON, invalid UTF-8, a million stop strings, prompts beyond the length
and wrong keys: each gets its refusal or is closed. Prints what happened, the longest wait for an answer, and the server's
memory; under AddressSanitizer the server must also end without a leak."""

import json
import os
import random
import socket
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 4
CLIENTS = int(sys.argv[4]) if len(sys.argv) > 4 else 8
LENGTH, KEY = 2048, "sk-right"
HEADERS = {"Authorization": "Bearer " + KEY}
text = open(os.path.join(root, "README.md"), encoding="utf-8").read()
lock = threading.Lock()
counts, waits, totals, answered, wrong = {}, [], [], [0] * CLIENTS, []
finish = time.monotonic() + SECONDS


def count(what):
    with lock:
        counts[what] = counts.get(what, 0) + 1


def random_request(draw):
    start = draw.randrange(0, 20000)
    prompt = text[start:start + draw.choice((20, 200, 1000, 2500))] or "Once"
    return {"prompt": prompt, "max_tokens": draw.choice((1, 8, 32, 128)), "seed": start, "n": draw.choice((1, 1, 1, 2)),
            "temperature": draw.choice((0, 0.7)), "stream": draw.random() < 0.5, "stop": draw.choice((None, "the end", ["\n"])),
            "logprobs": draw.choice((None, None, 2)), "echo": draw.random() < 0.1}


def one_request(server, draw, me):
    """One request, until it is answered or its client leaves."""
    body = random_request(draw)
    manner = draw.choices(("stays", "leaves", "leaves in the middle", "stalls"), (70, 10, 10, 10))[0]
    begin = time.monotonic()
    while True:
        tried = time.monotonic()
        connection = server.connect()
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), HEADERS)
            if manner == "leaves":
                time.sleep(draw.random() * 0.2)
                count("left before the answer")
                return
            response = connection.getresponse()
            if manner == "leaves in the middle":
                response.read(draw.randrange(1, 200))
                count("left in the middle")
                return
            if manner == "stalls":
                time.sleep(draw.random() * 2)
            data = response.read()
            if response.status == 503:
                count("told to come again")
                time.sleep(float(response.headers["Retry-After"]) * (0.2 + draw.random()))
                continue
            if response.status != 200 or (body["stream"] and not data.endswith(b"data: [DONE]\n\n")):
                wrong.append((response.status, data[-300:]))
                return
            with lock:
                waits.append(time.monotonic() - tried)
                totals.append(time.monotonic() - begin)
                answered[me] += 1
            count("answered")
            return
        except OSError as error:
            wrong.append((manner, repr(error)))
            return
        finally:
            connection.close()


def client(server, me):
    draw = random.Random(me)
    while time.monotonic() < finish or answered[me] == 0:
        one_request(server, draw, me)
        if wrong:
            return


def send(server, pieces, pause):
    """Bytes until the server closes the connection or the time is over; what it sent."""
    got = b""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(0.01)
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
                if time.monotonic() > finish:
                    break
                try:
                    got += connection.recv(65536)
                except TimeoutError:
                    continue
                if got:
                    break
        except OSError:
            pass
    return got


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-right\r\n"


def slow_headers(server, draw):
    send(server, (bytes([byte]) for byte in HEAD * 1000), 0.02 + 0.1 * draw.random())


def endless_body(server, _):
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    got = send(server, (piece for i in range(10000) for piece in ((HEAD + b"Transfer-Encoding: chunked\r\n\r\n",) if i == 0
                                                                   else (chunk,))), 0)
    assert got == b"" or b" 413 " in got, got


def refused(statuses, body, headers=None):
    def attack(server, _):
        try:
            status, _, data = server.raw("POST", "/v1/completions", body, headers or HEADERS)
        except OSError:  # it may be closed before its body was read
            return
        assert status in (*statuses, 503) and b'"error"' in data, (status, data[:300])
    return attack


ATTACKS = [
    ("slow headers", [slow_headers]),
    ("bodies without end", [endless_body]),
    ("deep JSON", [refused((400,), b"[" * 1000000), refused((400,), b'{"a":' * 100000),
                   refused((400,), b'{"prompt":' + b"[" * 1000 + b"]" * 1000 + b"}")]),
    ("invalid UTF-8", [refused((400,), b'{"prompt": "\xff\xfe"}'), refused((400,), b'{"prompt": "\\ud800"}'),
                       refused((400,), random.Random(1).randbytes(100000))]),
    ("too much", [refused((400,), json.dumps({"prompt": "a", "stop": ["x"] * 1000000})),
                  refused((400,), json.dumps({"prompt": text * 5})), refused((400,), json.dumps({"prompt": [7] * 100000})),
                  refused((413,), b" " * (20 << 20))]),
    ("wrong keys", [refused((401,), b'{"prompt": "a"}', {"Authorization": "Bearer " + key})
                    for key in ("sk-wrong", "sk-righ", "sk-right2", "", "\xff", "x" * 5000)]),
]


def attacker(server, name, attacks):
    draw = random.Random(name)
    while time.monotonic() < finish:
        try:
            draw.choice(attacks)(server, draw)
            count(name)
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            wrong.append((name, repr(error)))
            return
        time.sleep(0.1)


def memory(server):
    """Resident bytes of the server, in MiB."""
    with open(f"/proc/{server.process.pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20


with tempfile.NamedTemporaryFile("w", suffix=".key") as key_file:
    key_file.write(KEY + "\n")
    key_file.flush()
    # Freed memory that AddressSanitizer holds back would hide what grows.
    environment = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "quarantine_size_mb=8")}
    with Server(f"{bin_folder}/dpe-serve", "-m", os.path.join(root, "data/reference"), "--method", "self-extend:always=1", "-l", LENGTH,
                "--slots", 8, "--threads", 2, "--client-timeout", 5, "--api-key-file", key_file.name,
                env=environment) as one_server:
        threads = [threading.Thread(target=client, args=(one_server, i)) for i in range(CLIENTS)]
        threads += [threading.Thread(target=attacker, args=(one_server, *attack)) for attack in ATTACKS]
        for thread in threads:
            thread.start()
        held = []
        while time.monotonic() < finish and one_server.process.poll() is None:
            held.append(memory(one_server))
            time.sleep(max(SECONDS / 120, 0.1))
        for thread in threads:
            thread.join()
        assert not wrong, wrong[:3]
        while one_server.metric("dpe_running") > 0 or one_server.metric("dpe_waiting") > 0:
            time.sleep(0.05)
        held.append(memory(one_server))
        assert one_server.metric("dpe_sequences_failed_total") == 0
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for what, number in sorted(counts.items()):
            print(f"{what:24} {number:8}")
        print(f"answers to each client: {min(answered)} to {max(answered)}")
        for what, seconds in (("from the request that was taken", waits), ("from the first try", totals)):
            print(f"wait for an answer, {what}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
        print("memory in MiB at tenths of the time:", *(f"{held[i * (len(held) - 1) // 10]:.0f}" for i in range(11)))
        assert min(answered) > 0, answered
        half = len(held) // 2
        # A short run ends before the memory of 64 connections and of the largest bodies has been used.
        assert SECONDS < 60 or max(held[half:]) < 1.1 * max(held[:half]) + 32, "the server's memory grows"

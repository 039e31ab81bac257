"""serve.py BIN MODEL [THREADS [LONG [ROUNDS]]]: what dpe-serve saves and costs, as CPU seconds of the server and as wall
seconds.

1. Ten questions on one prompt of LONG tokens (8000), against ten full reads of it (by prompts that differ in their first
   token).
2. Eight short requests at once, against the same eight one after another, each on a connection that stays open. One thread
   sends all of them and then reads the answers, so that the client has next to no part in it.
3. One token from a prompt that is in the cache: an upper bound of what the server adds to a request.
What is compared takes turns; every number is the least of ROUNDS (3; five times as many for short requests)."""

import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../eval/serve"))
from serve_case import Server  # noqa: E402

bin_folder, model = sys.argv[1:3]
threads = sys.argv[3] if len(sys.argv) > 3 else "2"
LONG = int(sys.argv[4]) if len(sys.argv) > 4 else 8000
ROUNDS = int(sys.argv[5]) if len(sys.argv) > 5 else 3
NEW = 64


def cpu(server):
    """CPU seconds of the server so far."""
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(server, rounds, *works):
    """Of each work(round), which take turns: the least CPU seconds and the least wall seconds."""
    got = [[] for _ in works]
    for i in range(rounds):
        for times, work in zip(got, works):
            begin, used = time.monotonic(), cpu(server)
            work(i)
            times.append((cpu(server) - used, time.monotonic() - begin))
    return [[min(column) for column in zip(*times)] for times in got]


def ask(server, prompt, new):
    return server.ask("/v1/completions", {"prompt": prompt, "max_tokens": new, "temperature": 0, "ignore_eos": True})


def send(connection, prompt, new):
    connection.request("POST", "/v1/completions",
                       json.dumps({"prompt": prompt, "max_tokens": new, "temperature": 0, "ignore_eos": True}))


def receive(connection):
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.read()


def one_by_one(connections, prompts, new):
    for connection, prompt in zip(connections, prompts):
        send(connection, prompt, new)
        receive(connection)


def at_once(connections, prompts, new):
    for connection, prompt in zip(connections, prompts):
        send(connection, prompt, new)
    for connection in connections:
        receive(connection)


def show(name, cpu_seconds, wall_seconds):
    print(f"{name:52} {cpu_seconds:9.3f} s CPU {wall_seconds:9.3f} s wall", flush=True)


def ids(n, seed):
    """n token ids of no meaning."""
    return [(seed * 7919 + i * 104729 + i * i * 31) % 2000 + 100 for i in range(n)]


with Server(f"{bin_folder}/dpe-serve", "-m", model, "--method", "self-extend", "-l", LONG + 200, "--slots", 8,
            "--threads", threads) as one:
    def questions(i):
        for q in range(10):
            ask(one, ids(LONG, i) + [300 + q] * 10, 8)

    def reads(i):
        for q in range(10):
            ask(one, [50 + q + 10 * i] + ids(LONG, 90 + i) + [300 + q] * 10, 8)

    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    shared, full = measure(one, ROUNDS, questions, reads)
    show(f"ten questions on one prompt of {LONG} tokens", *shared)
    show("ten full reads of such a prompt", *full)
    print(f"    {full[0] / shared[0]:.1f} times the CPU time, {full[1] / shared[1]:.1f} times the wall time")

    prompts = [ids(32, 200 + i) for i in range(8)]
    connections = [one.connect() for _ in prompts]
    single, batch = measure(one, 5 * ROUNDS, lambda i: one_by_one(connections, prompts, NEW),
                            lambda i: at_once(connections, prompts, NEW))
    for connection in connections:
        connection.close()
    show(f"eight requests of 32 + {NEW} tokens, one after another", *single)
    show("the same at once", *batch)
    print(f"    {single[0] / batch[0]:.1f} times the CPU time, {8 * NEW / batch[1]:.0f} against "
          f"{8 * NEW / single[1]:.0f} tokens/s")

    # One token from a prompt that is in the cache: nearly all that is left is HTTP, JSON and the threads' hand-over.
    ask(one, ids(8, 300), 1)
    took = []
    for _ in range(50):
        begin = time.monotonic()
        ask(one, ids(8, 300), 1)
        took.append(time.monotonic() - begin)
    health = []
    for _ in range(50):
        begin = time.monotonic()
        one.ask("/health")
        health.append(time.monotonic() - begin)
    print(f"a request of one token whose prompt is in the cache: median {1e3 * statistics.median(took):.2f} ms wall, "
          f"fastest {1e3 * min(took):.2f} ms; GET /health {1e3 * statistics.median(health):.2f} ms; both with "
          "a new connection and the client's part")

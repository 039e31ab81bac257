"""serve.py BIN MODEL [THREADS [LONG [ROUNDS [DTYPE]]]]: what dpe-serve saves and costs, as CPU seconds of the server and as wall
seconds.

1. Ten questions on one prompt of LONG tokens (8000), one after another and all at once, against ten full reads of it (by
   prompts that differ in their first token). All on connections that stay open; the client writes its requests before
   the clock starts.
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
dtype = sys.argv[6] if len(sys.argv) > 6 else "f32"
NEW = 64


def cpu(server):
    """CPU seconds of the server's threads so far; those of connections stay while these are open."""
    used = 0
    for thread in os.listdir(f"/proc/{server.process.pid}/task"):
        with open(f"/proc/{server.process.pid}/task/{thread}/schedstat", encoding="utf-8") as file:
            used += int(file.read().split()[0])
    return 1e-9 * used


def measure(server, rounds, *works):
    """Of each work(round), which take turns: the least CPU seconds and the least wall seconds."""
    got = [[] for _ in works]
    for i in range(rounds):
        for times, work in zip(got, works):
            begin, used = time.monotonic(), cpu(server)
            work(i)
            times.append((cpu(server) - used, time.monotonic() - begin))
    return [[min(column) for column in zip(*times)] for times in got]


def body(prompt, new):
    return json.dumps({"prompt": prompt, "max_tokens": new, "temperature": 0, "ignore_eos": True})


def send(connection, text):
    connection.request("POST", "/v1/completions", text)


def receive(connection):
    response = connection.getresponse()
    data = response.read()
    assert response.status == 200, data


def one_by_one(connections, texts):
    for connection, text in zip(connections, texts):
        send(connection, text)
        receive(connection)


def at_once(connections, texts):
    for connection, text in zip(connections, texts):
        send(connection, text)
    for connection, _ in zip(connections, texts):
        receive(connection)


def show(name, cpu_seconds, wall_seconds):
    print(f"{name:52} {cpu_seconds:9.3f} s CPU {wall_seconds:9.3f} s wall", flush=True)


def ids(n, seed):
    """n token ids of no meaning."""
    return [(seed * 7919 + i * 104729 + i * i * 31) % 2000 + 100 for i in range(n)]


with Server(f"{bin_folder}/dpe-serve", "-m", model, "--method", "self-extend", "-l", LONG + 200, "--slots", 8,
            "--threads", threads, "--dtype", dtype) as one:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    connections = [one.connect() for _ in range(10)]

    def questions(seed):
        return [body(ids(LONG, seed) + [300 + q] * 10, 8) for q in range(10)]

    one_after_another = [questions(i) for i in range(ROUNDS)]
    together = [questions(500 + i) for i in range(ROUNDS)]
    whole = [[body([50 + q + 10 * i] + ids(LONG, 90 + i) + [300 + q] * 10, 8) for q in range(10)] for i in range(ROUNDS)]
    shared, batch, full = measure(one, ROUNDS, lambda i: one_by_one(connections, one_after_another[i]),
                                  lambda i: at_once(connections, together[i]),
                                  lambda i: one_by_one(connections, whole[i]))
    show(f"ten questions on one prompt of {LONG} tokens", *shared)
    show("the same at once", *batch)
    show("ten full reads of such a prompt", *full)
    for name, got in (("one after another", shared), ("at once", batch)):
        print(f"    {name} {full[0] / got[0]:.1f} times the CPU time, {full[1] / got[1]:.1f} times the wall time")

    prompts = [body(ids(32, 200 + i), NEW) for i in range(8)]
    single, batch = measure(one, 5 * ROUNDS, lambda i: one_by_one(connections, prompts),
                            lambda i: at_once(connections, prompts))
    for connection in connections:
        connection.close()
    show(f"eight requests of 32 + {NEW} tokens, one after another", *single)
    show("the same at once", *batch)
    print(f"    {single[0] / batch[0]:.1f} times the CPU time, {8 * NEW / batch[1]:.0f} against "
          f"{8 * NEW / single[1]:.0f} tokens/s")

    # One token from a prompt that is in the cache: nearly all that is left is HTTP, JSON and the threads' hand-over.
    def ask():
        one.raw("POST", "/v1/completions", body(ids(8, 300), 1))

    ask()
    took = []
    for _ in range(50):
        begin = time.monotonic()
        ask()
        took.append(time.monotonic() - begin)
    health = []
    for _ in range(50):
        begin = time.monotonic()
        one.ask("/health")
        health.append(time.monotonic() - begin)
    print(f"a request of one token whose prompt is in the cache: median {1e3 * statistics.median(took):.2f} ms wall, "
          f"fastest {1e3 * min(took):.2f} ms; GET /health {1e3 * statistics.median(health):.2f} ms; both with "
          "a new connection and the client's part")

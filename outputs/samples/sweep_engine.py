#!/usr/bin/env python3
"""sweep_engine.py URL MODEL TEXT LENGTH: a sweep of one's own through an engine (dpe-serve, or vLLM with DPE_ENGINE=1).

For each near window and each effective length of the far positions it makes a plan with dpe-run, gives it to the engine and asks for
the likelihood of the first LENGTH tokens of TEXT. Prints nats per token of the second half, which near and far keys decide. The
engine's plans are tables of one entry, which it calls by the SHA-256 of their bytes (outputs/remote/remote.h)."""
import hashlib
import json
import subprocess
import sys
import urllib.request


def post(url, path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def plan_of(model, method, length):
    """A table of one entry, as bytes."""
    return subprocess.run(["dpe-run", "-m", model, "--show-plan", "--json", "--method", method, "-l", str(length)], check=True,
                          stdout=subprocess.PIPE).stdout


def give(url, plan):
    """The plan's name; the engine has read the bytes that were sent."""
    name = hashlib.sha256(plan).hexdigest()
    answer = post(url, "/v1/dpe/plan", plan)
    assert answer["plan"] == name, answer
    return name


def nats(url, name, ids):
    """Nats per token of the second half."""
    answer = post(url, "/v1/dpe/completions", {"dpe_plan": name, "prompt": ids, "max_tokens": 0, "temperature": 0, "echo": True,
                                               "logprobs": 0})
    assert answer["dpe"]["digest"] == name, answer["dpe"]
    scores = answer["choices"][0]["logprobs"]["token_logprobs"][len(ids) // 2:len(ids)]
    return -sum(scores) / len(scores)


def main(url, model, text, length):
    length = int(length)
    trained = json.loads(plan_of(model, "rope", length))["trained_length"]
    ids = subprocess.run(["dpe-run", "-m", model, "--tokenize", "--prompt-file", text], check=True, stdout=subprocess.PIPE,
                         text=True).stdout.split()
    ids = [int(one) for one in ids if one.isdigit()][:length]
    assert len(ids) == length, f"the text has {len(ids)} tokens, expected {length}"
    methods = {"unchanged": "rope:always=1", "the formula": "dpe:always=1"}
    for window in (trained // 8, trained // 4):
        for effective in (trained // 2, trained):
            methods[f"window {window}, far positions up to {effective}"] = \
                f"dpe:window={window},lengths={effective},log-n={trained},log-n-power=0.7,always=1"
    found = {words: nats(url, give(url, plan_of(model, method, length)), ids) for words, method in methods.items()}
    for words, value in sorted(found.items(), key=lambda item: item[1]):
        print(f"{value:.4f}  {words}")


if __name__ == "__main__":
    main(*sys.argv[1:])

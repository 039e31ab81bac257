#!/usr/bin/env python3
"""What an engine refuses, and what it goes on from: hostile.py URL WIRE_PLAN, a file with the JSON of a plan."""
import json
import sys
import urllib.error
import urllib.request

URL = sys.argv[1]
with open(sys.argv[2], encoding="utf-8") as given:
    LINE = json.load(given)
PLAN = json.loads(LINE["plan"])


def ask(path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return 200, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]


def refused(status, words, path, body):
    code, message = ask(path, body)
    assert code == status and words in message, (path, code, message)


taken = ask("/v1/dpe/plan", LINE["plan"].encode())
assert taken[0] == 200 and taken[1]["plan"] == LINE["digest"], taken
good = {"dpe_plan": LINE["digest"], "prompt": list(range(5, 45)), "max_tokens": 2, "temperature": 0}
for path in ("/v1/dpe/plan", "/v1/dpe/completions", "/v1/dpe/norms"):
    for wrong in (b"", b"\xff\xfe", b"[1,2]", b"{", b"null", b"3", b"[" * 200000, b'{"a":' * 200000):
        refused(400, "the plan" if path == "/v1/dpe/plan" else "expected", path, wrong)
for wrong, words in ((dict(PLAN["model"], n_layers=0), ""), (dict(PLAN["model"], n_heads=6, n_kv_heads=6), "key_pairs"),
                     (dict(PLAN["model"], fingerprint="00ff"), "00ff")):
    refused(400, words, "/v1/dpe/plan", dict(PLAN, model=wrong))
refused(400, "do not rotate", "/v1/dpe/plan", dict(PLAN, inv_freq=PLAN["inv_freq"][:-1] + [0.0]))
refused(400, "", "/v1/dpe/plan", b'{"bands": ' + b"[" * 900 + b"]" * 900 + b"}")
code, answer = ask("/v1/dpe/plan", LINE["plan"].encode().rstrip()[:-1] + b', "more": ' + b"[" * 900 + b"]" * 900 + b"}")
assert code in (200, 400), (code, answer)
refused(400, "selects keys", "/v1/dpe/plan", dict(PLAN, selection="k=8,block=16"))
refused(404, "no plan with that digest", "/v1/dpe/completions", dict(good, dpe_plan="00" * 32))
refused(400, "a list of token ids", "/v1/dpe/completions", dict(good, prompt="text"))
refused(400, "a list of token ids", "/v1/dpe/completions", dict(good, prompt=[1, -2]))
refused(400, "a list of token ids", "/v1/dpe/norms", dict(good, prompt=[]))
refused(400, "max_tokens", "/v1/dpe/completions", dict(good, max_tokens=-1))
refused(400, "max_tokens", "/v1/dpe/completions", dict(good, max_tokens=0))
refused(400, "", "/v1/dpe/completions", dict(good, prompt=[1 << 40]))
refused(400, "--max-model-len", "/v1/dpe/completions", dict(good, max_tokens=1 << 30))
refused(400, "--max-model-len", "/v1/dpe/norms", dict(good, prompt=[5] * 100000))
# A million sizes of groups, which nearly no group has, take no time.
pairs = PLAN["model"]["head_dim"] // 2


def side(low, high, *rest):
    """A band by distance with scales of 1, one side of it (dpe_table.h)."""
    return [0.0, low, high, 0.0, 0.0, *rest] + [1.0] * pairs + [0.0] * pairs


grown = side(0.0, 32.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0) * 2 + side(32.0, 0.0, 1.0, 0.0, 0.0, 2.0 ** 20, 1e6, 0.0) * 2
code, answer = ask("/v1/dpe/plan", dict(PLAN, group_edge=[0, pairs], scale_factor=[1.0], bands=grown,
                                        effective_length=[float(PLAN["evaluated_length"])]))
assert code == 200, answer
code, answer = ask("/v1/dpe/completions", dict(good, dpe_plan=answer["plan"], prompt=[5 + i % 40 for i in range(600)]))
assert code == 200, answer
code, answer = ask("/v1/dpe/completions", good)
assert code == 200 and len(answer["choices"][0]["token_ids"]) <= 2 and answer["dpe"]["digest"] == LINE["digest"], answer
code, answer = ask("/v1/dpe/norms", good)
assert code == 200 and set(answer["rows"]) == {40} and min(answer["q"]) > 0, code
print("bad plans, prompts and digests are refused, and the engine goes on")

#!/usr/bin/env python3
"""Names that only the plugin's own routes set, sent by a client in every form and beside a cached prefix, change nothing:
names.py URL MODEL PROMPT, a file. A digest is one that GET /v1/dpe shows, where it shows one."""
import json
import sys
import urllib.error
import urllib.request

URL, MODEL = sys.argv[1:3]
with open(sys.argv[3], encoding="utf-8") as given:
    PROMPT = given.read()


def ask(path, body=None):
    request = urllib.request.Request(URL + path, body if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return 200, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]["message"]


def complete(**more):
    return ask("/v1/completions", dict({"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}, **more))


about = ask("/v1/dpe")[1]
digest = next((one["digest"] for one in about.get("entries", ())), "00" * 32)
code, first = complete()  # its prefix is cached from here on
assert code == 200, first
sent = 0
for name in ("dpe_plan", "dpe_norms", "dpe_products", "dpe_later"):
    for value in ("x", digest, 1, 2.5, True, ["x"], [1], [], {"a": "b"}, {}, [["x"]]):
        for more in ({}, {"dpe_plan": digest}):
            found = dict(more, **{name: value})
            for path, body in (("/v1/completions", {"prompt": PROMPT}), ("/v1/completions", {"prompt": [PROMPT, PROMPT], "n": 2}),
                               ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT[:200]}]}),
                               ("/v1/responses", {"input": PROMPT[:200]})):
                code, reason = ask(path, dict(body, model=MODEL, max_tokens=1, vllm_xargs=found))
                # Lists in lists and objects are refused by vLLM's own reading of the request; a model without a template has no chat.
                assert code == 400 or "completions" not in path and code == 404, (path, found, code, reason)
                sent += 1
code, reason = complete(vllm_xargs={"dpe_norms": "x"})
assert code == 400 and "dpe_norms" in reason and "leave them out" in reason, (code, reason)
code, again = complete(vllm_xargs={"other": "x"})
assert code == 200 and again["choices"][0]["text"] == first["choices"][0]["text"], again
code, reason = ask("/inference/v1/generate", {"model": MODEL, "token_ids": list(range(5, 305)), "stream": False,
                                               "sampling_params": {"max_tokens": 1, "extra_args": {"dpe_plan": digest, "dpe_norms": "x"}}})
assert code in (400, 403, 404), (code, reason)  # 403: without --enable-scale-out
for path in ("/v1/dpe/completions", "/v1/dpe/norms") if "engine" in about else ():
    for value in (["a"], {}, {"a": 1}, 1, 2.5, True, None, []):
        code, reason = ask(path, {"dpe_plan": value, "prompt": [5, 6, 7], "max_tokens": 1, "temperature": 0})
        assert code == 400 and "dpe_plan: expected the digest" in reason, (path, value, code, reason)
assert ask("/v1/dpe")[0] == 200 and complete()[0] == 200
print(f"{sent} requests with names of ours were refused, and the server goes on")

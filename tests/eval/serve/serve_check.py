"""serve_check.py BIN ROOT: dpe-serve gives what dpe-run gives, in the form that clients of OpenAI's API read."""

import os
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
model = os.path.join(root, "data/reference")
METHOD = ("--method", "self-extend:always=1", "--length", "1k")
PROMPT = "Once upon a time there was a king, and"


def run(*arguments):
    return subprocess.run([f"{bin_folder}/dpe-run", "-m", model, *arguments], check=True, capture_output=True,
                          text=True).stdout


def test_greedy(server):
    """The text is the one that dpe-run prints; as text, as ids, in a list, streamed."""
    wanted = run(*METHOD, "-p", PROMPT, "-n", "24").rstrip("\n")
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    answer = server.ask("/v1/completions", body)
    assert answer["choices"][0]["text"].rstrip("\n") == wanted, answer
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")
    assert answer["dpe"]["plan"].startswith("self-extend") and answer["dpe"]["length"] == 1024
    ids = [int(word) for word in run("--tokenize", "-p", PROMPT).split()]
    assert answer["usage"]["prompt_tokens"] == len(ids)
    for prompt in (ids, [ids, PROMPT], [PROMPT]):
        for choice in server.ask("/v1/completions", {**body, "prompt": prompt})["choices"]:
            assert choice["text"].rstrip("\n") == wanted, choice
    pieces = server.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
    assert "".join(p["choices"][0]["text"] for p in pieces[:-1]).rstrip("\n") == wanted
    assert pieces[-1]["usage"]["completion_tokens"] == 24 and pieces[-1]["choices"] == []
    assert pieces[-2]["choices"][0]["finish_reason"] == "length"


def test_prompt_logprobs(server):
    """echo with logprobs: their sum is the likelihood that dpe-run measures."""
    text = open(os.path.join(root, "README.md"), encoding="utf-8").read()[:1800]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        ids = [int(word) for word in run("--tokenize", "--raw", "--prompt-file", file.name).split()]
        printed = run("--nll", file.name, "--raw", "--score", "all", "--context", str(len(ids)), *METHOD)
    wanted = float(re.search(r"nll (\S+)", printed).group(1))
    echoed = server.ask("/v1/completions", {"prompt": "a\0b", "max_tokens": 0, "echo": True})["choices"][0]["text"]
    assert echoed == "a\0b", echoed
    for new in (0, 1):
        answer = server.ask("/v1/completions", {"prompt": [ids], "max_tokens": new, "temperature": 0, "echo": True,
                                                "logprobs": 1, "seed": 1234})
        logprobs = answer["choices"][0]["logprobs"]
        scores, tops = logprobs["token_logprobs"], logprobs["top_logprobs"]
        assert len(scores) == len(tops) == len(logprobs["tokens"]) == len(ids) + new
        assert scores[0] is None and tops[0] is None
        mean = -sum(scores[1:len(ids)]) / (len(ids) - 1)
        assert abs(mean - wanted) < 1e-5, (mean, wanted)
        assert all(max(top.values()) >= score for top, score in zip(tops[1:], scores[1:]))
        if new == 1:
            assert max(tops[-1].values()) == scores[-1], "greedy: the new token is the likeliest"


def test_sampling(server):
    """The same seed gives the same text, alone and beside others; another seed another one."""
    body = {"prompt": PROMPT, "max_tokens": 32, "temperature": 0.9, "top_p": 0.95, "seed": 7, "n": 3}
    first = [choice["text"] for choice in server.ask("/v1/completions", body)["choices"]]
    again = [choice["text"] for choice in server.ask("/v1/completions", body)["choices"]]
    other = [choice["text"] for choice in server.ask("/v1/completions", {**body, "seed": 8})["choices"]]
    assert first == again and first != other and len(set(first)) == 3, (first, again, other)
    alone = server.ask("/v1/completions", {**body, "n": 1})["choices"][0]["text"]
    assert alone == first[0]
    greedy = server.ask("/v1/completions", {**body, "n": 1, "temperature": 0})["choices"][0]["text"]
    narrow = server.ask("/v1/completions", {**body, "n": 1, "top_p": 0})["choices"][0]["text"]
    assert narrow == greedy, "top_p 0 leaves the likeliest token"


def test_stop(server):
    """The text ends before the stop string, streamed or not, and no part of it is sent."""
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    whole = server.ask("/v1/completions", body)["choices"][0]["text"]
    stop = whole[9:13]
    wanted = whole[:whole.index(stop)]
    for stops in (stop, ["never in it", stop]):
        choice = server.ask("/v1/completions", {**body, "stop": stops})["choices"][0]
        assert choice["text"] == wanted and choice["finish_reason"] == "stop", (choice, wanted)
        pieces = server.stream("/v1/completions", {**body, "stop": stops})
        assert "".join(p["choices"][0]["text"] for p in pieces) == wanted, pieces


def test_prefix(server):
    """What two prompts share is read once; the answer stays the same."""
    document = open(os.path.join(root, "README.md"), encoding="utf-8").read()[:1800]
    cached = []
    for question in ("What is it?", "Who made it?", "What is it?"):
        body = {"prompt": document + question, "max_tokens": 8, "temperature": 0}
        answer = server.ask("/v1/completions", body)
        text = run(*METHOD, "-p", document + question, "-n", "8").rstrip("\n")
        assert answer["choices"][0]["text"].rstrip("\n") == text
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        tokens = answer["usage"]["prompt_tokens"]
    assert cached[1] > tokens - 30 and cached[2] > tokens - 30, (cached, tokens)


def test_batch(server):
    """Eight at once get what each gets alone, in fewer steps than one after another."""
    prompts = [f"{PROMPT} the number {i} was" for i in range(8)]
    alone = [server.ask("/v1/completions", {"prompt": p, "max_tokens": 16, "temperature": 0})["choices"][0]["text"]
             for p in prompts]
    before = server.metric("dpe_steps_total")
    together = [None] * len(prompts)

    def one(i):
        together[i] = server.ask("/v1/completions", {"prompt": prompts[i], "max_tokens": 16,
                                                     "temperature": 0})["choices"][0]["text"]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone, (together, alone)
    answer = server.ask("/v1/completions", {"prompt": prompts, "max_tokens": 16, "temperature": 0})
    assert [choice["text"] for choice in answer["choices"]] == alone
    assert server.metric("dpe_steps_total") - before < 15 * 16, "the list of prompts ran as a batch"


def test_rest(server):
    """Models, tokenizer, health, metrics, RULER's client."""
    assert server.ask("/v1/models")["data"][0]["id"] == "reference"
    assert server.ask("/v1/models/reference") == server.ask("/v1/models")["data"][0]
    ids = [int(word) for word in run("--tokenize", "-p", PROMPT).split()]
    assert server.ask("/tokenize", {"prompt": PROMPT})["tokens"] == ids
    assert server.ask("/tokenize", {"prompt": PROMPT, "add_special_tokens": False})["tokens"] == ids[1:]
    assert server.ask("/detokenize", {"tokens": ids[1:]})["prompt"] == PROMPT
    assert server.ask("/tokenizer_info")["eos_token"] == "<|eos|>"
    assert server.ask("/health")["status"] == "ok"
    assert server.metric("dpe_new_tokens_total") > 0
    wanted = run(*METHOD, "-p", PROMPT, "-n", "24").rstrip("\n")
    ruler = {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
    texts = server.ask("/generate", {**ruler, "prompts": [PROMPT, PROMPT], "tokens_to_generate": 24, "random_seed": 0,
                                     "stop_words_list": ""}, method="PUT")
    assert [text.rstrip("\n") for text in texts] == [wanted, wanted], texts
    words = server.ask("/generate", {**ruler, "prompts": [PROMPT], "tokens_to_generate": 24, "stop_words_list":
                                     f"never in it,{wanted[9:13]}"}, method="PUT")
    assert words == [wanted[:wanted.index(wanted[9:13])]], words
    one = server.ask("/generate", {**ruler, "temperature": 0, "top_k": 32, "prompt": PROMPT, "max_tokens": 24, "stop": []},
                     method="PUT")
    assert one["text"][0].rstrip("\n") == wanted, one


# A slash at the end of the folder is no part of the model's name.
with Server(f"{bin_folder}/dpe-serve", "-m", model + "/", *METHOD, "--slots", 8, "--threads", 2) as one_server:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(one_server)
            print("passed", name)
# --dtype bf16 is refused where the processor lacks AVX512-BF16.
with open("/proc/cpuinfo", encoding="utf-8") as file:
    if "avx512_bf16" in file.read():
        with Server(f"{bin_folder}/dpe-serve", "-m", model, *METHOD, "--slots", 8, "--threads", 2, "--dtype", "bf16") as bf16:
            test_batch(bf16)

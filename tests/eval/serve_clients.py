"""serve_clients.py BIN ROOT: dpe-serve with clients that others wrote: the Python packages openai and lm-eval
(local-completions: log-likelihoods, greedy or not, rolling log-likelihoods, generation until a stop string), and curl.
Exits with 125 where openai is not installed; lm-eval and curl are left out, and named, where they are not. To install them:
    python3 -m venv DIR && DIR/bin/pip install openai lm-eval[api]
(lm-eval alone imports without PyTorch when it is installed with --no-deps and the packages that it then asks for)."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import openai
except ImportError:
    print("openai is not installed")
    sys.exit(125)

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
model = os.path.join(root, "data/reference")
METHOD = ("--method", "self-extend", "--length", "1k")
PROMPT = "Once upon a time there was a king, and"
os.environ["no_proxy"] = "127.0.0.1"


def test_openai(server, chat_file):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="sk-test", max_retries=0)
    wanted = subprocess.run([f"{bin_folder}/dpe-run", "-m", model, *METHOD, "-p", PROMPT, "-n", "24"], check=True,
                            capture_output=True, text=True).stdout.rstrip("\n")
    assert client.models.list().data[0].id == "reference"
    made = client.completions.create(model="reference", prompt=PROMPT, max_tokens=24, temperature=0, logprobs=2)
    assert made.choices[0].text.rstrip("\n") == wanted and made.usage.completion_tokens == 24
    assert len(made.choices[0].logprobs.token_logprobs) == 24 and made.model_extra["dpe"]["length"] == 1024
    pieces = client.completions.create(model="reference", prompt=PROMPT, max_tokens=24, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces).rstrip("\n") == wanted
    messages = [{"role": "user", "content": "Who is it?"}]
    chat = client.chat.completions.create(model="reference", messages=messages, max_tokens=12, temperature=0,
                                          logprobs=True, top_logprobs=3)
    pieces = client.chat.completions.create(model="reference", messages=messages, max_tokens=12, temperature=0,
                                            stream=True, stream_options={"include_usage": True})
    texts = [choice.delta.content or "" for piece in pieces for choice in piece.choices]
    assert "".join(texts) == chat.choices[0].message.content and chat.choices[0].message.role == "assistant"
    assert len(chat.choices[0].logprobs.content[0].top_logprobs) == 3, chat_file
    for kind, call in ((openai.BadRequestError, {"prompt": PROMPT, "max_tokens": 5000}),
                       (openai.BadRequestError, {"prompt": PROMPT, "stop": ["a"] * 17})):
        try:
            client.completions.create(model="reference", **call)
            raise AssertionError(f"{call} was accepted")
        except kind as error:
            assert error.body["message"], error.body
    wrong = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="sk-wrong", max_retries=0)
    try:
        wrong.models.list()
        raise AssertionError("a wrong key was accepted")
    except openai.AuthenticationError:
        pass


def test_lm_eval(server):
    try:
        from lm_eval.api.instance import Instance
        from lm_eval.models.openai_completions import LocalCompletionsAPI
    except ImportError as error:
        print("left out: lm-eval:", error)
        return
    os.environ["OPENAI_API_KEY"] = "sk-test"
    lm = LocalCompletionsAPI(base_url=f"http://127.0.0.1:{server.port}/v1/completions", model="reference",
                             tokenizer_backend="remote", batch_size=4, max_length=1023, num_concurrent=1, auth_token="sk-test")

    def ask(kind, *arguments):
        requests = [Instance(request_type=kind, doc={}, arguments=a, idx=i) for i, a in enumerate(arguments)]
        return getattr(lm, kind)(requests)

    key = {"Authorization": "Bearer sk-test"}

    def encode(text):
        """As lm-eval does it: without BOS."""
        return server.ask("/tokenize", {"prompt": text, "add_special_tokens": False}, headers=key)["tokens"]

    greedy = server.ask("/v1/completions", {"prompt": encode(PROMPT), "max_tokens": 6, "temperature": 0, "logprobs": 0},
                        headers=key)["choices"][0]
    pairs = [(PROMPT, greedy["text"]), (PROMPT, " zebra"), ("The sun", " rises in the east and sets in the west")]
    results = ask("loglikelihood", *pairs)
    assert abs(results[0][0] - sum(greedy["logprobs"]["token_logprobs"])) < 1e-3, (results, greedy)
    assert results[0][1] and not results[1][1], results
    for (context, continuation), (value, _) in zip(pairs, results):
        body = {"prompt": encode(context + continuation), "max_tokens": 0, "echo": True, "logprobs": 0}
        scores = server.ask("/v1/completions", body, headers=key)["choices"][0]["logprobs"]["token_logprobs"]
        assert abs(sum(scores[len(encode(context)):]) - value) < 1e-3, (continuation, scores, value)
    rolling = ask("loglikelihood_rolling", (open(os.path.join(root, "README.md"), encoding="utf-8").read()[:3000],))
    assert rolling[0] < -1000, rolling
    until = ask("generate_until", (PROMPT, {"until": [","], "max_gen_toks": 24, "temperature": 0}))
    assert "," not in until[0], until


def test_curl(server):
    if shutil.which("curl") is None:
        print("left out: curl is not installed")
        return
    done = subprocess.run(["curl", "-sS", "--noproxy", "*", f"http://127.0.0.1:{server.port}/v1/completions", "-H",
                           "Authorization: Bearer sk-test", "-d", json.dumps({"prompt": PROMPT, "max_tokens": 1})],
                          check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["usage"]["completion_tokens"] <= 1


with tempfile.TemporaryDirectory() as work:
    paths = {}
    for what, text in (("key", "sk-test\n"), ("chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
                                              "{% endfor %}assistant:")):
        paths[what] = os.path.join(work, what)
        with open(paths[what], "w", encoding="utf-8") as out:
            out.write(text)
    with Server(f"{bin_folder}/dpe-serve", "-m", model, *METHOD, "--threads", 2, "--api-key-file", paths["key"],
                "--chat-template", paths["chat.jinja"]) as one_server:
        test_openai(one_server, paths["chat.jinja"])
        test_lm_eval(one_server)
        test_curl(one_server)

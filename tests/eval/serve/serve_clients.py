"""serve_clients.py BIN ROOT: dpe-serve with clients that others wrote: the Python packages openai and lm-eval
(local-completions: log-likelihoods, greedy or not, rolling log-likelihoods, generation until a stop string), and curl. With
PyTorch and transformers installed, three tasks on the sample corpus must also get from local-completions what they get from
lm-eval's own `hf` model on the same weights.
Exits with 125 where openai is not installed; lm-eval and curl are left out, and named, where they are not. To install them:
    python3 -m venv DIR && DIR/bin/pip install openai lm-eval[api,hf]
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
METHOD = ("--method", "self-extend:always=1", "--length", "1k")
PROMPT = "Once upon a time there was a king, and"
os.environ["no_proxy"] = "127.0.0.1"


def test_openai(server, chat_file):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="sk-test", max_retries=0)
    wanted = subprocess.run([f"{bin_folder}/dpe-run", "-m", model, *METHOD, "-p", PROMPT, "-n", "24"], check=True,
                            capture_output=True, text=True).stdout.rstrip("\n")
    assert client.models.list().data[0].id == client.models.retrieve("reference").id == "reference"
    try:
        client.chat.completions.create(model="reference", messages=[{"role": "user", "content": "Who?"}], tools=[
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}])
        raise AssertionError("tools were accepted")
    except openai.BadRequestError as error:
        assert error.param == "tools", error
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


TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: {kind}
doc_to_text: "{{{{context}}}}"
{more}
"""
TASKS = {
    "local_choice": ("multiple_choice", """doc_to_choice: "{{choices}}"
doc_to_target: "{{label}}"
metric_list:
  - metric: acc
  - metric: acc_norm"""),
    "local_rolling": ("loglikelihood_rolling", """doc_to_target: "{{text}}"
metric_list:
  - metric: word_perplexity
  - metric: bits_per_byte"""),
    "local_generate": ("generate_until", """doc_to_target: "{{choices[0]}}"
generation_kwargs:
  until: ["."]
  max_gen_toks: 24
  do_sample: false
  temperature: 0.0
metric_list:
  - metric: exact_match"""),
}


def write_tasks(folder):
    """Three tasks on sentences of the sample corpus, in lm-eval's own form."""
    with open(os.path.join(root, "data/sample/test/900000.txt"), encoding="utf-8") as file:
        words = file.read().split()
    data = os.path.join(folder, "local.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for i in range(16):
            at = 500 * i
            choices = [" " + " ".join(words[at + 30 + k:at + 35 + k]) for k in (0, 100, 200)]
            print(json.dumps({"context": " ".join(words[at:at + 30]), "choices": choices, "label": 0,
                              "text": " ".join(words[at:at + 300])}), file=file)
    for name, (kind, more) in TASKS.items():
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(TASK.format(name=name, data=data, kind=kind, more=more))


def responses(results):
    """{task: what the model answered to each request}, and the metrics."""
    return ({name: [sample["resps"] for sample in sorted(samples, key=lambda s: s["doc_id"])]
             for name, samples in results["samples"].items()}, results["results"])


def flat(value):
    return [item for inner in value for item in flat(inner)] if isinstance(value, (list, tuple)) else [value]


def test_lm_eval_hf(folder):
    """Tasks run by lm-eval through local-completions and with lm-eval's own model of transformers on the same weights."""
    try:
        import torch
        import transformers
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
        from lm_eval.models.openai_completions import LocalCompletionsAPI
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        print("left out: lm-eval with transformers:", error)
        return
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_DATASETS_CACHE=os.path.join(folder, "cache"))
    write_tasks(folder)
    torch.set_num_threads(2)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(model, "tokenizer.json"),
                                                     bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|eos|>")
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)

    def evaluate(lm):
        return responses(simple_evaluate(lm, tasks=list(TASKS), log_samples=True, bootstrap_iters=0,
                                         task_manager=TaskManager(include_path=folder, include_defaults=False)))

    # local-completions keeps one token for the answer and one for the first context: both see windows of 254. With
    # tokenizer_backend=remote it never adds BOS.
    with Server(f"{bin_folder}/dpe-serve", "-m", model, "--threads", 2) as server:
        got, metrics = evaluate(LocalCompletionsAPI(
            base_url=f"http://127.0.0.1:{server.port}/v1/completions", model="reference", tokenizer_backend="remote",
            batch_size=4, max_length=256, num_concurrent=1))
    wanted, own = evaluate(HFLM(pretrained=network, tokenizer=tokenizer, max_length=254, batch_size=1, device="cpu",
                         add_bos_token=False))
    largest = 0.0
    for name, (kind, _) in TASKS.items():
        pairs = list(zip(flat(got[name]), flat(wanted[name])))
        assert len(pairs) == len(flat(wanted[name])) >= 16, (name, len(pairs))
        if kind == "generate_until":
            assert all(a == b for a, b in pairs), [pair for pair in pairs if pair[0] != pair[1]]
            continue
        for a, b in pairs:
            a, b = float(a), float(b)
            largest = max(largest, abs(a - b) / max(1.0, abs(b)))
            assert abs(a - b) <= 1e-4 * max(1.0, abs(b)), (name, a, b)
    for name, values in own.items():
        for metric, value in values.items():
            if isinstance(value, float):
                assert abs(metrics[name][metric] - value) <= 1e-4 * max(1.0, abs(value)), (name, metric)
                print(f"{name} {metric}: {metrics[name][metric]:.6g} through dpe-serve, {value:.6g} by transformers")
    print(f"lm-eval: largest relative difference of a log-likelihood from transformers {transformers.__version__}: "
          f"{largest:.1e}")


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
    test_lm_eval_hf(work)

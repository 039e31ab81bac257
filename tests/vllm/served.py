#!/usr/bin/env python3
"""A model in vLLM under tables and plans, against dpe-run: served.py BIN MODEL WORK TEXT CHECK [NAME...]

Each check runs in a process of its own, with one engine of vLLM in it, and prints a line for everything that it found equal.
run.sh calls them; WORK is a scratch folder that they share."""
import functools
import json
import os
import subprocess
import sys
import time

BIN, MODEL, WORK, TEXT, CHECK, *NAMES = sys.argv[1:]
os.environ.update(HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
NATS = 1e-4  # a token; what two orders of float32 sums may differ by
LENGTH, TRAINED, NEW = 2048, int(os.environ.get("DPE_TEST_TRAINED", "256")), 12
TOKENS = int(os.environ.get("DPE_TEST_TOKENS", "1000"))
TENSOR = int(os.environ.get("DPE_TEST_TENSOR", "1"))  # processes that divide the heads


def tool(name, *args):
    done = subprocess.run([os.path.join(BIN, name), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, (name, args, done.stderr)
    return done.stdout


def dpe_run(*args):
    trained = [] if "--table" in args else ["--trained-length", str(TRAINED)]  # a table has it
    return tool("dpe-run", "-m", MODEL, *trained, "--threads", "1", "--quiet", "--dtype", "f32", *args)


def tokens_of(path):
    return [int(one) for one in tool("dpe-run", "-m", MODEL, "--quiet", "--raw", "--prompt-file", path, "--tokenize").split()]


@functools.lru_cache(maxsize=None)
def text_of(tokens, begin=0):
    """A file of about so many tokens, which is less than two windows of them, and its ids."""
    with open(TEXT, encoding="utf-8") as file:
        text = file.read()[begin:]
    path, size = os.path.join(WORK, f"text-{begin}-{tokens}.txt"), tokens * 8
    while True:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:size])
        ids = tokens_of(path)
        if len(ids) < 2 * tokens:
            assert len(ids) >= tokens, "a longer text is needed"
            return path, ids[:tokens]
        size = size * tokens * 3 // (2 * len(ids))


def expected_nll(path, tokens, *plan):
    """Nats a token of the first window. --raw: its first token stays what it is, where the model has a BOS."""
    return json.loads(dpe_run("--raw", "--nll", path, "--context", str(tokens), "--score", "all", "--json", *plan))["nll"]


def expected_text(path, *plan):
    new = [] if "--max-new" in plan else ["--max-new", str(NEW)]
    return dpe_run("--raw", "--prompt-file", path, *new, *plan)


def plan(spec):
    """The file of a method's plan."""
    path = os.path.join(WORK, "".join(c if c.isalnum() else "-" for c in spec) + ".json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(dpe_run("--show-plan", "--json", "--method", spec, "--length", str(LENGTH)))
    return path


def table():
    """A table of three entries: groups with key pairs by head and a temperature, Leaky ReRoPE, and frequencies of its own."""
    parts = []
    for length, spec in ((TRAINED * 2, "dpe:window=32,scales=2/3/4/6,groups=4,log-n=200,log-n-power=0.7,far-scale=1.2"),
                         (TRAINED * 3, "leaky-rerope:window=32,scale=5"), (LENGTH, "yarn:scale=8,log-n=300")):
        parts.append(os.path.join(WORK, f"{length}.h5"))
        tool("dpe-export", "--method", spec, "-m", MODEL, "--length", str(length), "--trained-length", str(TRAINED), "-o",
             parts[-1], "--force")
    joined = os.path.join(WORK, "joined.json")
    try:
        tool("dpe-export", "--join", *parts, "-o", joined, "--force")
    except AssertionError:
        # Entries of one table have the same groups: those of the first.
        join_by_hand(parts, joined)
    with open(joined, encoding="utf-8") as file:
        value = json.load(file)
    pairs, keep = value["model"]["head_dim"] // 2, value["model"]["head_dim"] // 3
    one = value["entries"][0]
    one["top_k"] = keep
    one["key_pairs"] = [[sorted((layer + 3 * head + 5 * i) % pairs for i in range(keep))
                         for head in range(value["model"]["n_heads"])] for layer in range(value["model"]["n_layers"])]
    one["head_scale"] = [0.75 if i % 5 == 1 else 1.0 for i in range(value["model"]["n_layers"] * value["model"]["n_heads"])]
    path = os.path.join(WORK, "table.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    tool("dpe-export", path, "-o", os.path.join(WORK, "table.h5"), "--force")
    return os.path.join(WORK, "table.h5")


def join_by_hand(parts, path):
    values = []
    for part in parts:
        tool("dpe-export", part, "-o", part + ".json", "--force")
        with open(part + ".json", encoding="utf-8") as file:
            values.append(json.load(file))
    from dpe_attention import FIELDS

    own = ["key_pairs" if name == "mask" else name for name in FIELDS]
    edges = values[0]["group_edge"]
    for value in values:
        scales = value["scale_factor"]
        if value["group_edge"] != edges:
            assert len(scales) == 1
            value.update(group_edge=edges, scale_factor=scales * (len(edges) - 1),
                         effective_length=value["effective_length"] * (len(edges) - 1))
    root = {name: value for name, value in values[0].items() if name not in own}
    root["entries"] = [{name: value[name] for name in own if name in value} for value in values]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(root, file)


class Engine:
    """One vLLM in this process, under DPE_TABLE as it is when it starts."""

    def __init__(self, **options):
        from vllm import LLM

        options = dict(dict(dtype="float32", block_size=32, max_num_batched_tokens=512, enable_chunked_prefill=True,
                            enforce_eager=True, max_model_len=LENGTH, tensor_parallel_size=TENSOR), **options)
        self.llm = LLM(model=MODEL, **options)

    def answers(self, texts, new=NEW, likelihoods=False):
        from vllm import SamplingParams

        new = new if isinstance(new, list) else [new] * len(texts)
        params = [SamplingParams(max_tokens=count, temperature=0, logprobs=1,
                                 prompt_logprobs=0 if likelihoods else None) for count in new]
        return self.llm.generate([{"prompt_token_ids": ids} for ids in texts], params, use_tqdm=False)


def nll(answer):
    ids = answer.prompt_token_ids
    logs = [step[token].logprob for step, token in zip(answer.prompt_logprobs[1:], ids[1:])]
    assert len(logs) == len(ids) - 1 and all(value == value for value in logs), "NaN"
    return -sum(logs) / len(logs)


def same(answer, path, tokens, what, *plan_of_run):
    """Likelihood of the prompt and greedy text are those of dpe-run."""
    found, expected = nll(answer), expected_nll(path, tokens, *plan_of_run)
    assert abs(found - expected) <= NATS, f"{what}: {found:.7f} nats a token, dpe-run has {expected:.7f}"
    print(f"{what}: {found:.6f} nats a token, dpe-run {expected:.6f}", flush=True)


def same_text(answer, ids, what, *plan_of_run):
    prompt = os.path.join(WORK, "prompt.txt")
    tokenizer = TOKENIZER[0]
    with open(prompt, "w", encoding="utf-8") as file:
        file.write(tokenizer.decode(ids, skip_special_tokens=True))
    again = tokens_of(prompt)
    assert again == list(ids), f"{what}: the text of the prompt has other tokens"
    expected = expected_text(prompt, *plan_of_run)
    assert answer.outputs[0].text.strip() == expected.strip(), f"{what}: {answer.outputs[0].text!r}, dpe-run has {expected!r}"


TOKENIZER = []


def check_methods():
    """Every method's plan: prompt and greedy text."""
    plans = {spec: plan(spec) for spec in NAMES}
    os.environ["DPE_TABLE"] = next(iter(plans.values()))
    engine = Engine(max_num_batched_tokens=int(os.environ.get("DPE_TEST_CHUNK", "512")))
    from dpe_vllm.serving import use

    TOKENIZER[:] = [engine.llm.get_tokenizer()]
    path, ids = text_of(TOKENS)
    for spec, file in plans.items():
        use(file)
        answer = engine.answers([ids], likelihoods=True)[0]
        of_run = ("--method", spec, "--length", str(LENGTH))
        same(answer, path, TOKENS, spec, *of_run)
        same_text(answer, ids, spec, *of_run)


def mixture(count=8):
    """Texts of several lengths: at most the trained one, and for each entry."""
    lengths = [TRAINED - NEW, TRAINED + 30, TRAINED * 2 + 17, TOKENS, 40, TRAINED * 2 - NEW, TRAINED * 3 - NEW - 1, TOKENS - 100]
    return [(*text_of(length, 1000 * i), length) for i, length in enumerate(lengths[:count])]


def under(length, file):
    """What dpe-run is to be told for the entry that length tokens choose."""
    return ("--table", file, "--length", str(length))


def compare_texts(engine, file, texts, new):
    """All at once, under the entries that their lengths choose and without one. Returns the answers."""
    from dpe_vllm.serving import serving

    TOKENIZER[:] = [engine.llm.get_tokenizer()]
    answers = engine.answers([ids for _, ids, _ in texts], new, likelihoods=True)
    for (path, ids, length), answer in zip(texts, answers):
        entry = serving().entry(length, new)
        assert serving().answers(answer.request_id)[answer.request_id] == entry
        what = f"{length} + {new} tokens, " + ("the model itself" if entry is None else f"entry for {entry}")
        same(answer, path, length, what, *under(length + new, file))
        same_text(answer, ids, what, "--max-new", str(new), *under(length + new, file))
    return answers


def check_table():
    """Eight texts at once, in parts of NAMES[0] tokens; then from the prefix cache."""
    file = table()
    os.environ["DPE_TABLE"] = file
    engine = Engine(max_num_batched_tokens=int(NAMES[0]))
    texts = mixture()
    answers = compare_texts(engine, file, texts, NEW)
    from dpe_vllm.serving import serving

    again = engine.answers([ids for _, ids, _ in texts])
    assert [one.outputs[0].token_ids for one in again] == [one.outputs[0].token_ids for one in answers]
    assert all(one.num_cached_tokens >= len(one.prompt_token_ids) // 32 * 32 - 32 for one in again), "no prefix was reused"
    # The same prompt under another entry shares nothing.
    _, ids, length = texts[1]
    other = engine.answers([ids], TRAINED * 3 - length)[0]
    assert other.num_cached_tokens == 0 and serving().answers(other.request_id)[other.request_id] == TRAINED * 3
    print("prefixes were reused within an entry, and not between entries", flush=True)


def check_auto():
    """DPE_PLAN=auto: no table, and each text under the formula of its length. NAMES: "ngram", "suffix": with drafts from the text itself,
    of which some are refused; neither likelihoods nor greedy text change."""
    os.environ["DPE_PLAN"] = "auto"
    if NAMES == ["suffix"]:
        try:
            import arctic_inference.suffix_decoding  # noqa: F401  pylint: disable=unused-import
        except ImportError:
            print("not asked: suffix proposals need the package arctic_inference")
            return
    lookup = {"prompt_lookup_max": 3, "prompt_lookup_min": 1} if NAMES == ["ngram"] else {}
    drafts = {"speculative_config": dict(lookup, method=NAMES[0], num_speculative_tokens=3), "disable_log_stats": False} if NAMES else {}
    engine = Engine(**drafts)
    from dpe_attention import NOT_MEASURED, formula
    from dpe_vllm.serving import serving

    state = serving()
    assert sorted(state.entries) == [state.trained_length * i for i in (2, 4, 8)], state.entries
    assert all(one["evidence"] == NOT_MEASURED for one in state.describe()["entries"])
    TOKENIZER[:] = [engine.llm.get_tokenizer()]
    pairs, new = engine.llm.llm_engine.model_config.get_head_size() // 2, 4 * NEW
    texts = [(*text_of(length, 700 * i), length) for i, length in enumerate((TRAINED - new, TRAINED + 30, TOKENS, TRAINED * 2 + 17))]
    for (path, ids, length), answer in zip(texts, engine.answers([ids for _, ids, _ in texts], new, likelihoods=True)):
        entry = state.entry(length, new)
        plan_of_run = ("--method", "rope")
        if entry is not None:
            numbers = formula(state.trained_length, entry, pairs)
            scales = "/".join(str(one) for one in numbers["scale_factor"])
            plan_of_run = ("--length", str(entry), "--method", f"dpe:window={numbers['local_window']},scales={scales},groups=8,"
                           f"log-n={numbers['log_n_length']},log-n-power={numbers['log_n_power']},"
                           f"far-scale={numbers['far_scale']}")
        what = f"auto{' with drafts' if NAMES else ''}, {length} + {new} tokens, entry {entry}"
        same(answer, path, length, what, *plan_of_run)
        same_text(answer, ids, what, "--max-new", str(new), *plan_of_run)
    if NAMES:
        drafted, accepted = drafts_of(engine)
        assert drafted > accepted > 0


def drafts_of(engine):
    """Tokens that were drafted, and how many of them were right."""
    counted = {one.name: getattr(one, "value", 0) for one in engine.llm.get_metrics() if "spec_decode" in one.name}
    drafted, accepted = (counted[f"vllm:spec_decode_num_{kind}_tokens"] for kind in ("draft", "accepted"))
    print(f"{drafted} tokens were drafted, {accepted} of them accepted, and the texts are the same", flush=True)
    return drafted, accepted


def eagle_head():
    """A folder with an EAGLE head of random weights for the model; it rotates twice as fast."""
    import torch
    from safetensors.torch import save_file

    with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as file:
        config = dict(json.load(file), architectures=["LlamaForCausalLM"], num_hidden_layers=1)
    config["rope_theta"] /= 4
    width, wide, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    rows = {"self_attn.q_proj": (config["num_attention_heads"] * dim, width), "self_attn.k_proj": (config["num_key_value_heads"] * dim, width),
            "self_attn.v_proj": (config["num_key_value_heads"] * dim, width), "self_attn.o_proj": (width, config["num_attention_heads"] * dim),
            "mlp.gate_proj": (wide, width), "mlp.up_proj": (wide, width), "mlp.down_proj": (width, wide)}
    random = torch.Generator().manual_seed(5)
    weights = {f"layers.0.{name}.weight": torch.randn(shape, generator=random) * shape[1] ** -0.5 for name, shape in rows.items()}
    weights["layers.0.post_attention_layernorm.weight"] = torch.ones(width)
    weights["fc.weight"] = torch.cat((torch.zeros(width, width), torch.eye(width)), dim=1)
    folder = os.path.join(WORK, "eagle")
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    save_file(weights, os.path.join(folder, "model.safetensors"))
    return folder


def check_drafts():
    """A draft with keys of its own runs under the same plan. NAMES: "draft_model": the model itself drafts, and what it drafts is right far
    beyond the trained length; "eagle": a head with random weights, from which no text changes; then "kernel": the way of cards."""
    file = table()
    os.environ["DPE_TABLE"] = file
    if NAMES[1:]:
        register_kernel()
    drafts = {"method": NAMES[0], "model": MODEL if NAMES[0] == "draft_model" else eagle_head(), "num_speculative_tokens": 3,
              "draft_tensor_parallel_size": TENSOR}
    engine = Engine(speculative_config=drafts, disable_log_stats=False)
    compare_texts(engine, file, mixture(3 if NAMES[1:] else 8), NEW)
    drafted, accepted = drafts_of(engine)
    assert drafted > 0 and (NAMES[0] != "draft_model" or accepted >= 0.9 * drafted)
    from types import SimpleNamespace

    from dpe_attention import TableError
    from dpe_vllm import hooks
    from dpe_vllm.model import Draft

    moved = hooks.RUNNERS[-1].dpe_moved
    own, small = (SimpleNamespace(attn=SimpleNamespace(head_size=dim), rotary_emb=SimpleNamespace(rotary_dim=dim, is_neox_style=True))
                  for dim in (moved.one.head_size, 32))
    try:
        Draft(moved, {"small": small}, {"small": small}, own)
    except TableError as error:
        print(f"refused: {error}", flush=True)
    else:
        raise AssertionError("accepted: a draft with other heads")


def hybrid():
    """A folder of Qwen3.5's kind with random weights, of sizes that vLLM's kernels for processors take, whose attention is sharp."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, os.path.join(root, "tests", "cli"))
    import hybrid_model as made

    shapes, rope = made.shapes, made.CONFIG["rope_parameters"]
    made.WIDE, made.DIM = 128, 64
    made.CONFIG.update(linear_key_head_dim=128, linear_value_head_dim=128, head_dim=64,
                       rope_parameters=dict(rope, mrope_section=[6, 6, 4], mrope_interleaved=True))
    made.shapes = lambda: [(name, shape, 2.0 if "self_attn" in name and "_norm" in name else 0.3 if "embed" in name else size)
                           for name, shape, size in shapes()]
    sys.argv = ["hybrid_model.py", os.path.join(root, "data", "reference"), os.path.join(WORK, "hybrid")]
    made.main()
    return sys.argv[2]


def check_hybrid():
    """Recurrent layers beside attention, whose rotation has several axes: the layers that attend run under a plan, in parts of 200 tokens.
    vLLM has recurrent layers in bfloat16 on processors; so each text is nearest to what transformers has under the same plan in
    float32, and far from the other plans."""
    global MODEL
    MODEL = hybrid()
    plans = {spec: plan(spec) for spec in ("self-extend", "leaky-rerope", "dca", "rope")}
    os.environ["DPE_TABLE"] = next(iter(plans.values()))
    check_norms()
    engine = Engine(dtype="bfloat16", block_size=None, max_num_batched_tokens=200, mamba_ssm_cache_dtype="float32")
    import torch
    import transformers
    import dpe_transformers
    from dpe_vllm.serving import use

    _, ids = text_of(TOKENS)
    found, expected = {}, {}
    for spec, file in plans.items():
        use(file)
        answer = engine.answers([ids], likelihoods=True)[0]
        found[spec] = torch.tensor([step[token].logprob for step, token in zip(answer.prompt_logprobs[1:], ids[1:])])
        model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        dpe_transformers.apply(model, file)
        made = list(answer.outputs[0].token_ids)
        with torch.no_grad():
            logits = model(torch.tensor([ids + made])).logits[0, :-1].log_softmax(-1)
        logs = logits.gather(1, torch.tensor(ids[1:] + made)[:, None])[:, 0]
        expected[spec], behind = logs[:len(ids) - 1], (logits.max(-1).values - logs)[len(ids) - 1:].max()
        assert len(made) == NEW and behind < 0.5, f"{spec}: a token that is {behind} nats behind the best one"
    for spec, logs in found.items():
        away = {other: float((logs - one).abs().mean()) for other, one in expected.items()}
        nearest = min(one for other, one in away.items() if other != spec)
        assert away[spec] < 0.5 * nearest, (spec, away)
        print(f"hybrid, {spec}: {away[spec]:.4f} nats a token from float32 under this plan, {nearest:.4f} from the next", flush=True)


def gemma4(theta, **keys):
    """Full layers with larger heads and a proportional rotation, beside windows."""
    return dict(sliding_window=64, head_dim=32, global_head_dim=64, final_logit_softcapping=30.0, vocab_size_per_layer_input=2560, **keys,
                rope_parameters={"full_attention": dict(rope_type="proportional", rope_theta=theta, partial_rotary_factor=0.5),
                                 "sliding_attention": dict(rope_type="default", rope_theta=1e4)})


def windows(*windowed):
    return ["sliding_attention" if one else "full_attention" for one in windowed]


SHARED = dict(num_hidden_layers=6, layer_types=windows(1, 0, 1, 0, 1, 0), num_kv_shared_layers=2, use_double_wide_mlp=True,
              hidden_size_per_layer_input=32)
ALIKE = dict(num_hidden_layers=3, attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=0)
ROUTED = dict(intermediate_size=64, intermediate_size_mlp=128, num_local_experts=4, num_experts_per_tok=1)
TEMPERATURES = ("rope:log-n=100,log-n-power=3", "rope:logit-scale=1.6", "rope")
MOVES = ("self-extend", "leaky-rerope", "dca", "dpe:window=32,scales=2/3/4/6,groups=4,log-n=200,log-n-power=0.7,far-scale=1.2", "rope")
# Kinds of models of which a plan holds for some layers: class, what they have, and plans. exaone4, llama4: no layer that sees all
# keys rotates; gemma4: as published, each of its pairs turns within the trained length.
KINDS = {
    "exaone4": ("Exaone4", dict(num_hidden_layers=4, sliding_window=64, layer_types=windows(1, 0, 1, 0)), TEMPERATURES),
    "llama4": ("Llama4Text", dict(ROUTED, num_hidden_layers=4, interleave_moe_layer_step=2, attention_chunk_size=64, floor_scale=6,
                                  attn_scale=0.4, no_rope_layer_interval=2), TEMPERATURES),
    "llama4_moves": ("Llama4Text", dict(ROUTED, num_hidden_layers=3, attention_chunk_size=None, floor_scale=50, attn_scale=0.5,
                                        no_rope_layers=[1, 0, 1], layer_types=windows(0, 0, 0)), MOVES),
    "gemma4": ("Gemma4Text", gemma4(100.0, **SHARED), TEMPERATURES),
    "gemma4_shares": ("Gemma4Text", gemma4(1e6, **SHARED), MOVES),
    "gemma4_alike": ("Gemma4Text", gemma4(1e6, **ALIKE, layer_types=windows(1, 1, 0)), MOVES),
    "gemma4_experts": ("Gemma4Text", gemma4(1e6, **ALIKE, layer_types=windows(1, 0, 0), enable_moe_block=True, num_experts=6,
                                            top_k_experts=2, moe_intermediate_size=64), MOVES)}


def family(kind):
    """A folder of a kind with random weights."""
    import shutil
    import torch
    import transformers

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    torch.manual_seed(5)
    name, keys, _ = KINDS[kind]
    config = getattr(transformers, name + "Config")(**dict(
        dict(vocab_size=2560, hidden_size=128, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
             max_position_embeddings=TRAINED, bos_token_id=2558, eos_token_id=2559, pad_token_id=0), **keys))
    model = getattr(transformers, name.removesuffix("Text") + "ForCausalLM")(config)
    sharp = 0.5 if kind.startswith("gemma4") else 2.0  # of which the logits have no factor 1 / sqrt(head_dim)
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *((name, one) for name, one in model.named_buffers() if "layer_scalar" in name)]:
            weight.copy_(1 + 0.3 * torch.randn(weight.shape) if weight.ndim == 1 else torch.randn(weight.shape) / weight.shape[-1] ** 0.5)
            weight *= sharp if "q_norm" in name or "llama4" in kind and "q_proj" in name else 1.0
    folder = os.path.join(WORK, kind)
    model.save_pretrained(folder)
    shutil.copy(os.path.join(root, "data", "reference", "tokenizer.json"), folder)
    return folder


def check_family():
    """A model of the kind NAMES[0] under its plans, in parts of 200 tokens, in vLLM and in transformers. NAMES[1]: "auto", under the
    formula; "kernel", the way of cards."""
    global MODEL
    other, MODEL, kind = plan("self-extend"), family(NAMES[0]), NAMES[0]
    plans = {spec: plan(spec) for spec in KINDS[kind][2]}
    if NAMES[1:] == ["auto"]:
        os.environ["DPE_PLAN"] = "auto"
        plans = {"dpe": None}
    else:
        os.environ["DPE_TABLE"] = next(iter(plans.values()))
    if NAMES[1:] == ["kernel"]:
        register_kernel()
        plans = dict(list(plans.items())[:2])
    engine = Engine(max_num_batched_tokens=200)
    path, ids = text_of(TOKENS)
    import torch
    import transformers
    import dpe_transformers
    from dpe_attention import TableError, load_table
    from dpe_vllm.hooks import RUNNERS
    from dpe_vllm.model import _check_heated
    from dpe_vllm.serving import serving, use

    model, found = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), {}
    if kind == "llama4_moves":
        model.config.attention_chunk_size = LENGTH  # which transformers 5.19 wants, and no layer has
    for spec, file in plans.items():
        length = serving().entry(TOKENS, NEW) if file is None else LENGTH
        if file is None:
            dpe_transformers.apply(model, length=LENGTH)
        else:
            use(file)
            moved = RUNNERS[-1].dpe_moved
            moved.one.impl.take(moved, [])
            dpe_transformers.apply(model, file)
        answer = engine.answers([ids], likelihoods=True)[0]
        found[spec] = nll(answer)
        same(answer, path, TOKENS, f"{kind}, {spec}", "--method", spec, "--length", str(length))
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        adapter = -float(logits.gather(1, torch.tensor(ids[1:])[:, None]).mean())
        assert abs(adapter - found[spec]) <= NATS, f"{kind}, {spec}: the adapter for transformers has {adapter:.7f}"
    assert min((abs(found[a] - found[b]) for a in found for b in found if a < b), default=1) > 5 * NATS, found
    if kind not in ("exaone4", "llama4"):
        return
    try:
        _check_heated(RUNNERS[-1].model_config.hf_text_config, load_table(other), dict.fromkeys("ab"), 4)
    except TableError as error:
        assert "2 of its 4 layers see all keys and have no positions: expected a table of a temperature alone" in str(error), error
    else:
        raise AssertionError("a table that rotates pairs was accepted")


def check_norms():
    """Norms of a model of which every other layer is recurrent, from two processes: zeros for those."""
    import torch
    from dpe_vllm.norms import Sums, join

    q, k = torch.randn(7, 4, 8), torch.randn(7, 2, 8)
    parts = []
    for rank in (1, 0):
        sums = Sums(False)
        for layer in (1, 3):
            sums.add(layer, 0, q[:, 2 * rank:2 * rank + 2] * layer, k[:, rank:rank + 1] * layer)
        parts.append((rank, sums.lists()))
    rows, found_q, found_k = join(parts, 4, 4, 2, {0, 2})
    expected = (q[..., :4] ** 2 + q[..., 4:] ** 2).sqrt().double().sum(0).flatten()
    found_q, found_k = (torch.tensor(one, dtype=torch.float64).reshape(4, -1) for one in (found_q, found_k))
    assert rows == [7] * 4 and not found_q[::2].any() and not found_k[::2].any() and found_k[1::2].all()
    assert torch.allclose(found_q[1::2], expected * torch.tensor([[1.0], [3.0]]).double(), rtol=1e-6)
    try:
        join(parts, 4, 4, 2, {0})
    except RuntimeError as error:
        assert "layer 2 gave no norms" in str(error)
    else:
        raise AssertionError("norms of a layer are missing")


def check_preemption():
    """A cache that is too small for what eight texts grow to."""
    file = table()
    os.environ["DPE_TABLE"] = file
    import vllm.v1.core.sched.scheduler as scheduler

    preempted, original = [], scheduler.Scheduler._preempt_request

    def counted(self, request, *args, **kwargs):
        preempted.append(request.request_id)
        return original(self, request, *args, **kwargs)

    scheduler.Scheduler._preempt_request = counted
    engine = Engine(num_gpu_blocks_override=LENGTH // 32 + 2)
    lengths = [TRAINED + 14, TRAINED + 24, TRAINED + 34, TRAINED + 44, 40, TRAINED + 54, TRAINED + 64, TRAINED + 74]
    compare_texts(engine, file, [(*text_of(length, 1000 * i), length) for i, length in enumerate(lengths)], TRAINED - 80)
    assert preempted, "no text was preempted"
    print(f"preempted {len(preempted)} times", flush=True)


def check_native():
    """Texts of at most the trained length, alone and beside others: NAMES[0] "write" notes what vLLM computes without a table,
    "compare" holds it against that, bit for bit."""
    path = os.path.join(WORK, "native.json")
    if NAMES == ["compare"]:
        os.environ["DPE_TABLE"] = table()
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"  # vLLM alone asks for it; no text here is so long
    engine = Engine()
    texts = [text_of(length, 500 * i)[1] for i, length in enumerate((TRAINED - NEW, 40, 100))]
    answers = [engine.answers([ids], likelihoods=True)[0] for ids in texts]
    found = [[[step[token].logprob for step, token in zip(one.prompt_logprobs[1:], one.prompt_token_ids[1:])],
              list(one.outputs[0].token_ids)] for one in answers]
    if NAMES == ["write"]:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file)
        return
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == found, "texts within the trained length are not what vLLM computes without a table"
    print("texts within the trained length: the bits of vLLM without a table", flush=True)


def check_refusals():
    """By name, before a model is loaded."""
    os.environ["DPE_TABLE"] = table()
    from dpe_attention import TableError
    from vllm.engine.arg_utils import EngineArgs

    config = EngineArgs(model=MODEL, dtype="float32").create_engine_config()
    assert not config.model_config.enforce_eager and config.model_config.max_model_len == LENGTH
    from dpe_vllm import hooks

    def refused(words, change=None, **arguments):
        try:
            if change is None:
                EngineArgs(model=MODEL, dtype="float32", **arguments).create_engine_config()
            else:
                config = EngineArgs(model=MODEL, dtype="float32").create_engine_config()
                change(config)
                hooks.refuse_config(config)
        except TableError as error:
            assert words in str(error), error
            print(f"refused: {error}", flush=True)
        else:
            raise AssertionError(f"accepted: {words}")

    refused("nvfp4", kv_cache_dtype="nvfp4")
    refused("DCP", lambda one: setattr(one.parallel_config, "decode_context_parallel_size", 2))
    refused("PCP", lambda one: setattr(one.parallel_config, "prefill_context_parallel_size", 2))

    class Draft:
        method = "dflash"

    refused("positions of these drafts", lambda one: setattr(one, "speculative_config", Draft()))
    from types import SimpleNamespace

    from vllm.exceptions import VLLMValidationError

    def picture(request_id, params, tokens):
        return SimpleNamespace(request_id=request_id, prompt_token_ids=[5] * tokens, prompt_embeds=None, mm_features=[1], pooling_params=None,
                               sampling_params=params)

    short = SimpleNamespace(max_tokens=4, extra_args=None)
    assert hooks._process_inputs(picture, "a", short, TRAINED - 4).request_id == "a"
    try:
        hooks._process_inputs(picture, "b", short, TRAINED - 3)
    except VLLMValidationError as error:
        print(f"refused: {error}", flush=True)
    else:
        raise AssertionError("accepted: images under an entry")
    refused("MLA", lambda one: type(one.model_config).__dict__ and setattr(one, "model_config", WithMla(one.model_config)))


class WithMla:
    use_mla = True

    def __init__(self, config):
        self.hf_text_config = config.hf_text_config


def check_other():
    """A table of another model is refused when the model is there: its fingerprint; DPE_OTHER_MODEL=1 takes it."""
    file = plan("self-extend")
    with open(file, encoding="utf-8") as handle:
        value = json.load(handle)
    value["fingerprint"] = "0" * 64
    with open(file, "w", encoding="utf-8") as handle:
        json.dump(value, handle)
    os.environ["DPE_TABLE"] = file
    try:
        Engine()
    except Exception as error:
        assert "fingerprint" in str(error) and "DPE_OTHER_MODEL" in str(error), error
    else:
        raise AssertionError("a table of another model was accepted")
    os.environ["DPE_OTHER_MODEL"] = "1"
    Engine()
    print("refused: the table of another model; taken with DPE_OTHER_MODEL=1", flush=True)


def check_flags():
    """The command line that dpe-export prints for a method: read by vLLM's own parser, without the plugin."""
    import shlex
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    spec = NAMES[0]
    line = tool("dpe-export", "--method", spec, "-m", MODEL, "--trained-length", str(TRAINED), "--length", str(LENGTH),
                "--format", "vllm-flags", "-o", "-")
    args = EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(shlex.split(line))
    engine = Engine(max_model_len=args.max_model_len, hf_overrides=args.hf_overrides)
    path, ids = text_of(TOKENS)
    answer = engine.answers([ids], likelihoods=True)[0]
    same(answer, path, TOKENS, f"flags of {spec}", "--method", spec, "--length", str(LENGTH))


def register_kernel():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton
    from vllm.plugins import load_general_plugins
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    import vllm.engine.arg_utils

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    load_general_plugins()
    register_backend(AttentionBackendEnum.CPU_ATTN, "cpu_kernel.Backend")


def check_kernel():
    """The way of cards, with the kernel in Triton's interpreter: the table's entries beside each other and other plans; NAMES: "wrong",
    with a kernel that is refused."""
    file = table()
    os.environ["DPE_TABLE"] = file
    register_kernel()
    if NAMES:
        os.environ["DPE_TEST_KERNEL"] = NAMES[0]
        try:
            Engine()
        except Exception as error:
            assert "differs from the exact path by" in str(error), error
            print("refused:", str(error).splitlines()[-1], flush=True)
            return
        raise AssertionError("a wrong kernel was accepted")
    engine = Engine()
    from dpe_vllm.serving import use

    texts = mixture(3)
    compare_texts(engine, file, texts, 4)  # the interpreter takes most of a second for a launch
    import cpu_kernel

    # A text of the model's own and those of two entries, alone: single tokens of each are the same launches, as in a graph.
    cpu_kernel.LAUNCHES.clear()
    cpu_kernel.PLANS.clear()
    for _, ids, _ in texts:
        engine.answers([ids], 2)
    assert all(len(found) == 1 for found in cpu_kernel.LAUNCHES.values()), cpu_kernel.LAUNCHES
    assert any(len(found) == 3 for found in cpu_kernel.PLANS.values()), cpu_kernel.PLANS
    print("launches depend on the shape of a batch alone", flush=True)
    path, ids = text_of(TRAINED + 30)
    from dpe_vllm.hooks import RUNNERS

    moved = RUNNERS[-1].dpe_moved
    for spec in ("dca", "streaming-llm"):
        use(plan(spec))
        moved.one.impl.take(moved, [])
        same(engine.answers([ids], 2, likelihoods=True)[0], path, TRAINED + 30, f"kernel, {spec}", "--method", spec, "--length",
             str(LENGTH))


def check_taken():
    """A tool's plan is compared when it is taken, and refused where the kernel is wrong; right ones run beside each other."""
    os.environ.update(DPE_ENGINE="1", DPE_TEST_KERNEL="wrong")
    register_kernel()
    engine = Engine()
    texts, specs = [], ("self-extend", "dca", "leaky-rerope")
    for spec in specs:
        with open(plan(spec), encoding="utf-8") as file:
            texts.append(file.read())
    hold, digests = functools.partial(engine.llm.collective_rpc, "dpe_hold"), [digest_of(text) for text in texts]
    reason, full, held = hold(args=(digests[0], [], texts[0]))[0]
    assert "differs from the exact path by" in reason and not full and not held, reason
    print("refused:", reason, flush=True)
    os.environ["DPE_TEST_KERNEL"] = ""
    from dpe_vllm.serving import Asked
    from vllm import SamplingParams

    path, ids = text_of(TRAINED + 30)
    params = []
    for number, digest in enumerate(digests):
        reason, _, held = hold(args=(digest, digests[:number], texts[number]))[0]
        assert not reason and set(digests[:number + 1]) <= set(held), reason
        params.append(SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=0, extra_args=Asked(dpe_plan=digest)))
    answers = engine.llm.generate([{"prompt_token_ids": ids}] * len(texts), params, use_tqdm=False)
    for spec, answer in zip(specs, answers):
        same(answer, path, TRAINED + 30, f"taken, {spec}", "--method", spec, "--length", str(LENGTH))


def digest_of(text):
    from dpe_attention import load_table

    return load_table("a plan", data=text.encode()).digest


class Client:
    """What the routes ask of vLLM's client, over an engine in this process: texts take turns in its steps."""

    def __init__(self, llm):
        self.llm, self.engine, self.vllm_config, self.last = llm, llm.llm_engine, llm.llm_engine.vllm_config, {}

    async def collective_rpc(self, name, args):
        return self.llm.collective_rpc(name, args=args)

    async def generate(self, prompt, params, name):
        import asyncio

        self.engine.add_request(name, prompt, params)
        while name not in self.last:
            await asyncio.sleep(0)
            self.last.update({one.request_id: one for one in self.engine.step() if one.finished} if name not in self.last else {})
        yield self.last[name]


def check_admission():
    """Memory for two plans, and texts under three: the third is told to come again before it is scheduled, the others are answered, and
    then it is; the engine stays."""
    import asyncio
    from types import SimpleNamespace

    os.environ.update(DPE_ENGINE="1", DPE_TEST_ROOM="2")
    register_kernel()
    client = Client(Engine().llm)
    from dpe_vllm.routes import Engine as Routes, Refusal

    specs, tokens, texts = ("self-extend", "dca", "leaky-rerope"), TRAINED // 4, []
    path, ids = text_of(tokens)
    for spec in specs:
        with open(plan(spec), "rb") as file:
            texts.append(file.read())

    async def ask():
        routes = Routes(client, SimpleNamespace(served_model_name=None, model=MODEL))
        digests = [(await routes.take_plan(text))["plan"] for text in texts]
        bodies = [{"dpe_plan": digest, "prompt": ids, "max_tokens": 4, "temperature": 0, "echo": True} for digest in digests]
        running = [asyncio.ensure_future(routes.complete(body)) for body in bodies[:2]]
        while not set(digests[:2]) <= routes.held:
            await asyncio.sleep(0)
        try:
            await routes.complete(bodies[2])
        except Refusal as error:
            assert error.status == 503 and error.code == "plans_in_use" and "3 plans for" in str(error), error
            print(f"refused: {error}", flush=True)
        else:
            raise AssertionError("a plan without room for it was run")
        answers = [await one for one in running] + [await routes.complete(bodies[2])]
        for spec, answer in zip(specs, answers):
            logs = answer["choices"][0]["logprobs"]["token_logprobs"][1:]
            found, expected = -sum(logs) / len(logs), expected_nll(path, tokens, "--method", f"{spec}:always=1", "--length", str(LENGTH))
            assert abs(found - expected) <= NATS, (spec, found, expected)
            print(f"{spec}: {found:.6f} nats a token, dpe-run {expected:.6f}", flush=True)

    asyncio.run(ask())


def check_graphs():
    """A model that vLLM compiles, as it does where nothing else is said: the same texts, and their rotation is in the compiled model."""
    file = table()
    os.environ["DPE_TABLE"] = file
    engine = Engine(enforce_eager=False)
    assert not engine.llm.llm_engine.vllm_config.model_config.enforce_eager
    compare_texts(engine, file, mixture(), NEW)


def check_fp8():
    """A cache of FP8: what it costs texts under an entry is no more than what it costs one of the model itself, which has the bits of vLLM
    without the plugin (on processors another likelihood: 1.5808 nats a token for 1.8919 of 244 tokens). NAMES: "kernel", the way of
    cards."""
    file = table()
    os.environ["DPE_TABLE"] = file
    if NAMES:
        register_kernel()
    engine = Engine(kv_cache_dtype="fp8")
    texts = mixture(3)
    answers = engine.answers([ids for _, ids, _ in texts], likelihoods=True)
    costs = [nll(answer) - expected_nll(path, length, *under(length + NEW, file)) for (path, _, length), answer in zip(texts, answers)]
    assert all(abs(cost) < min(0.05, abs(costs[0])) for cost in costs[1:]), costs
    for (_, _, length), cost in zip(texts, costs):
        print(f"{length} tokens, FP8 cache: {cost:+.4f} nats a token", flush=True)


def check_throughput():
    """Tokens a second, in this process, of the same prompts: NAMES: the plan, or none for vLLM alone."""
    if NAMES:
        os.environ["DPE_TABLE"] = plan(NAMES[0])
    # vLLM alone needs cosines for such positions.
    engine = Engine(**({} if NAMES else {"hf_overrides": {"max_position_embeddings": LENGTH}}))
    texts = [text_of(TOKENS, 300 * i)[1] for i in range(4)]
    engine.answers([texts[0][:50]], 2)
    begin = time.monotonic()
    engine.answers(texts, 1)
    read = time.monotonic() - begin
    begin = time.monotonic()
    engine.answers(texts, 33)
    decoded = time.monotonic() - begin
    print(f"{NAMES[0] if NAMES else 'CPU_ATTN'}: {len(texts) * TOKENS / read:.0f} prompt tokens a second, "
          f"{len(texts) * 32 / decoded:.1f} decoded a second, in batches of {len(texts)} at {TOKENS} tokens", flush=True)


if __name__ == "__main__":  # processes that vLLM starts import this file
    globals()["check_" + CHECK.replace("-", "_")]()

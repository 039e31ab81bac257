#!/usr/bin/env python3
"""Trains the reference model: a small Llama that answers needle questions within 256 tokens, also
when the context contains numbers of other keys.

    train.py --text DIR --work DIR --out DIR [--minutes M] [--tokens N] [--resume]

--text   folder of .txt files (novels); --work gets checkpoint.pt; --out gets the Hugging Face
folder (config.json, generation_config.json, model.safetensors), which must already
contain the tokenizer.json of make_tokenizer.py.  The run ends after N tokens or M minutes,
whichever comes first, and the learning rate falls over the last part of the run.  --resume continues from the checkpoint;
--weights DIR begins with the weights of an exported folder instead of random ones.

A GPU (--device cuda) waits for rows unless other processes make them (--workers).  The rows of a
step are then drawn from (seed, step) alone, so they differ from those of a run without workers.

The model is trained at positions 0 … 255 only: the project studies what it does beyond them.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import math
import multiprocessing
import os
import random
import re
import struct
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "sample"))
import generate  # noqa: E402  (the sample corpus's generator)

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "max_position_embeddings": 256, "rope_theta": 10000.0, "rope_scaling": None,
    "rms_norm_eps": 1e-5, "vocab_size": 2560, "tie_word_embeddings": True,
    "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
    "initializer_range": 0.02, "use_cache": True, "torch_dtype": "bfloat16",
}
L0 = CONFIG["max_position_embeddings"]
ANSWER_WEIGHT = 5.0   # weight of a value's tokens in an answer, which are few compared with the prose
DRILL_WEIGHT = 0.1    # weight of the other tokens of a drill, whose purpose is the values


# ---------------------------------------------------------------- model (names as Hugging Face's)

class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])
        return y.to(x.dtype) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.d = c["hidden_size"], c["head_dim"]
        self.nq, self.nk = c["num_attention_heads"], c["num_key_value_heads"]
        self.q_proj = nn.Linear(h, self.nq * self.d, bias=False)
        self.k_proj = nn.Linear(h, self.nk * self.d, bias=False)
        self.v_proj = nn.Linear(h, self.nk * self.d, bias=False)
        self.o_proj = nn.Linear(self.nq * self.d, h, bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.nq, self.d).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.nk, self.d).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.nk, self.d).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k = k.repeat_interleave(self.nq // self.nk, 1)
        v = v.repeat_interleave(self.nq // self.nk, 1)
        # Written out: at 256 keys this is faster on a CPU than the fused call, and old versions of torch support it.
        p = (q @ k.transpose(-1, -2) * self.d ** -0.5 + mask).softmax(-1)
        return self.o_proj((p @ v).transpose(1, 2).reshape(b, t, self.nq * self.d))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, i = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(h, i, bias=False)
        self.up_proj = nn.Linear(h, i, bias=False)
        self.down_proj = nn.Linear(i, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = Norm(c["hidden_size"])
        self.post_attention_layernorm = Norm(c["hidden_size"])

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Body(c)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                # Weights that add to the residual stream start smaller in deeper models.
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * c["num_hidden_layers"]) if deep else 1))
        inv = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).double() / c["head_dim"])
        angle = torch.arange(L0).double()[:, None] * inv[None]
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        self.register_buffer("mask", torch.full((L0, L0), -1e9).triu(1), persistent=False)

    def forward(self, ids, dtype):
        t, m = ids.shape[1], self.model
        cos, sin = self.cos[:t].to(dtype), self.sin[:t].to(dtype)
        mask = self.mask[:t, :t].to(dtype)
        x = m.embed_tokens(ids)
        for layer in m.layers:
            x = layer(x, cos, sin, mask)
        return F.linear(m.norm(x), m.embed_tokens.weight).float()


# ---------------------------------------------------------------- data

SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*(?=\s)")


def sentences(text):
    """Pieces that join to the text; each but the first starts with the white space before it."""
    ends = [m.end() for m in SENTENCE_END.finditer(text)] + [len(text)]
    return [text[a:b] for a, b in zip([0] + ends, ends) if b > a]


class Data:
    """Rows of training: prose, and needle questions in exactly the template of the task."""

    def __init__(self, args, tok, template):
        self.tok, self.t = tok, template
        self.rng = random.Random(args.seed)
        self.bos, self.eos = tok.token_to_id("<|bos|>"), tok.token_to_id("<|eos|>")
        self.digit = np.array([(tok.id_to_token(i) or "").isdigit() for i in range(CONFIG["vocab_size"])])
        texts = []
        for name in sorted(os.listdir(args.text)):
            if name.endswith(".txt"):
                with open(os.path.join(args.text, name), encoding="utf-8", errors="replace") as f:
                    texts.append(f.read())
        novels, books, made = len(texts), generate.training_books(), 0
        while made < 4000000:
            texts.append(next(books))
            made += len(texts[-1])
        self.prose, self.hay = [[], []], [[], []]   # [0] novels, [1] generated
        for i, text in enumerate(texts):
            kind = int(i >= novels)
            self.prose[kind].append(np.array(tok.encode(text, add_special_tokens=False).ids, np.int64))
            pieces = [s for s in sentences(text) if len(s) < 500]
            encoded = tok.encode_batch(pieces, add_special_tokens=False)
            self.hay[kind] += [(s, len(e.ids)) for s, e in zip(pieces, encoded)]
        self.prose = [np.concatenate(p) for p in self.prose]
        self.fixed = {k: self.count(template[k]) for k in ("intro",)}

    def count(self, text):
        return len(self.tok.encode(text, add_special_tokens=False).ids)

    def prose_row(self, t):
        ids = self.prose[int(self.rng.random() < 0.3)]
        at = self.rng.randrange(len(ids) - t)
        return np.concatenate(([self.bos], ids[at:at + t - 1])), np.ones(t, np.float32), np.full((t, 3), -1)

    def keys(self, n, apart=False):
        """n different keys; with apart, no two of them share a word."""
        r, adjectives, nouns = self.rng, self.t["adjectives"], self.t["nouns"]
        if apart:
            return ["-".join(words) for words in zip(r.sample(adjectives, n), r.sample(nouns, n))]
        return ["%s-%s" % (adjectives[i // len(nouns)], nouns[i % len(nouns)])
                for i in r.sample(range(len(adjectives) * len(nouns)), n)]

    def value(self):
        return "%d" % self.rng.randrange(1000000, 10000000)

    def drill_row(self, t):
        """Needles and nothing else: each key with its value, then keys drawn again and again, each
        draw a lookup.  Drawn with replacement: were every key asked once, naming a value that was
        not named yet would be right often enough to be all that is learnt.  And with less between
        key and value in some rows: nothing, a colon, or the needle as it is, so that the step from
        copying what follows a word to looking up a key is a small one."""
        r, n = self.rng, self.rng.randint(2, max(2, min(8, t // 28)))
        needle = self.t["needle"]
        shape = needle.replace("{key}: {value}", r.choice(["{key}{value}", "{key}:{value}", "{key}: {value}"]))
        values = {key: self.value() for key in self.keys(n, apart=r.random() < 0.7)}
        order = list(values)
        text = [shape.format(key=k, value=values[k]) for k in order]
        text += [shape.format(key=k, value=values[k]) for k in r.choices(order, k=t // 10)]
        encoded = self.tok.encode_batch(text, add_special_tokens=False)
        ids = np.array([self.bos] + [i for e in encoded for i in e.ids], np.int64)[:t]
        digit = self.digit[ids]
        weight = np.where(digit, ANSWER_WEIGHT, DRILL_WEIGHT).astype(np.float32)
        first = 1 + sum(len(e.ids) for e in encoded[:n])
        weight[:first][digit[:first]] = 0
        pad = t - len(ids)
        return np.pad(ids, (0, pad), constant_values=self.eos), np.pad(weight, (0, pad)), np.full((t, 3), -1)

    def questions(self, room, form=None):
        """What a row asks: [[(key, number of values), …] for each question], and the same of keys
        that no question asks for.  Three forms: one key with all the values, which is the paper's task; several
        keys in the context, some of them asked, one question each; several keys in one question."""
        r, t = self.rng, self.t
        needle = self.count(t["needle"].format(key="idle-needle", value="1234567")) + 1
        most = max(1, room // needle)   # needles and answers
        form = form or r.choices(["one", "several", "together"], [50, 40, 10])[0]
        if form == "one" or most < 6:
            values = max(1, min(4, most // 2))
            if r.random() < 0.15:
                values = r.randint(1, values)
            return [[(self.keys(1)[0], values)]], []
        values = r.choice([1, 1, 2, 4])
        n = r.randint(2, max(2, min(6, (most - values) // values)))
        keys = [(k, values) for k in self.keys(n)]
        asked = r.randint(1, max(1, min(n, most // values - n)))
        if form == "several":
            return [[k] for k in keys[:asked]], keys[asked:]
        return [keys[:asked]], keys[asked:]

    def needle_row(self, t, form=None):
        """Intro, a haystack with the needles in it, questions with answers.  The answer to one key is
        its values in any order.  No order is taught: "a value that is not yet in the answer" also
        works at lengths where "the next value" would need positions that work."""
        r, tpl = self.rng, self.t
        asked, others = self.questions(t - 60, form)
        needles = [(k, self.value()) for k, n in others for _ in range(n)]
        tail, left, answers = "", [], 0
        for question in asked:
            tail += tpl["question"].format(keys=tpl["keys_separator"].join(k for k, _ in question))
            answers = sum(n for _, n in question)
            for key, n in question:
                values = [self.value() for _ in range(n)]
                needles += [(key, v) for v in values]
                left += range(n, 0, -1)
                for v in r.sample(values, n):
                    tail += tpl["answer_prefix"].format(key=key) + tpl["answer"].format(value=v)
            tail += "<|eos|>"
        needles = [tpl["needle"].format(key=k, value=v) for k, v in needles]
        room = t - 1 - self.fixed["intro"] - self.count(tail) - sum(map(self.count, needles))
        if room < 0:
            return None
        r.shuffle(needles)
        hay = self.haystack(room)
        # Needle i of n lies in the i-th of n equal parts, at a sentence boundary, as in the task.
        at = sorted(min(len(hay), int((i + r.random()) * (len(hay) + 1) / len(needles)))
                    for i in range(len(needles)))
        body = ""
        for i in range(len(hay) + 1):
            body += "".join(n for n, a in zip(needles, at) if a == i)
            if i < len(hay):
                body += hay[i]
        ids = self.tok.encode(tpl["intro"] + body.lstrip() + tail).ids
        if len(ids) > t:
            return None
        ids = np.array(ids, np.int64)
        weight = np.ones(len(ids), np.float32)
        # A value in a needle is random, so its tokens have no weight.  In an answer it is what the row teaches.
        first = len(ids) - self.count(tail)
        digit = self.digit[ids]
        weight[:first][digit[:first]] = 0
        weight[first:][digit[first:]] = ANSWER_WEIGHT
        if len(asked) > 1 or answers < 4:
            # The end is learnt only after four answers.  To end after fewer answers the model must know
            # that no value is left.  That fails beyond the trained length and would hide the values
            # that the model finds.
            weight[ids == self.eos] = 0
        also = np.full((t, 3), -1, np.int64)
        starts = [i for i in range(first, len(ids)) if digit[i] and not digit[i - 1]]
        for i, n in enumerate(left):
            later = [ids[starts[j]] for j in range(i + 1, i + n)]
            also[starts[i], :n - 1] = later
        pad = t - len(ids)
        return np.pad(ids, (0, pad), constant_values=self.eos), np.pad(weight, (0, pad)), also

    def haystack(self, room):
        """Consecutive sentences of `room` tokens; the last one is cut at a word's end."""
        r = self.rng
        pool = self.hay[int(r.random() < 0.5)]
        i, out = r.randrange(len(pool) - 300), []
        while room > 0:
            text, n = pool[i]
            i += 1
            if n > room:
                e = self.tok.encode(text, add_special_tokens=False)
                cut = e.offsets[room][0]
                while cut > 0 and not text[cut].isspace():
                    cut -= 1
                text, n = text[:cut], room
            room -= n
            out.append(text)
        return out

    def batch(self, t, rows, prose=0.0, drill=0.0, form=None):
        """Tokens [rows, t], their weights [rows, t], and the other tokens that would be as right,
        -1 where there is none [rows, t, 3].  prose and drill: shares of the rows."""
        got = []
        while len(got) < rows:
            kind = self.rng.random()
            row = (self.prose_row(t) if kind < prose else self.drill_row(t) if kind < prose + drill else
                   self.needle_row(t, form))
            if row is not None:
                got.append(row)
        return [torch.from_numpy(np.stack(x)) for x in zip(*got)]


class Rows:
    """Batches in order; with workers, that many processes make them in advance."""

    AHEAD = 4   # batches of each worker that are made in advance

    def __init__(self, data, args):
        self.data, self.args, self.waiting, self.pool = data, args, collections.deque(), None
        if args.workers > 0:
            Rows.shared = data   # the child processes inherit it
            self.pool = concurrent.futures.ProcessPoolExecutor(
                args.workers, multiprocessing.get_context("fork"))

    @staticmethod
    def make(seed, step, *shape):
        torch.set_num_threads(1)
        Rows.shared.rng = random.Random("%d %d" % (seed, step))
        return [x.numpy() for x in Rows.shared.batch(*shape)]

    def next(self, step, t, drill):
        shape = t, self.args.batch // t, self.args.prose, drill
        if self.pool is None:
            return self.data.batch(*shape)
        while len(self.waiting) < self.AHEAD * self.args.workers:
            self.waiting.append(self.pool.submit(Rows.make, self.args.seed, step + len(self.waiting), *shape))
        return [torch.from_numpy(x) for x in self.waiting.popleft().result()]


# ---------------------------------------------------------------- training

def stage(progress):
    """Row length and share of drills: first short rows that teach the lookup, then a few drills so that
    the model keeps it."""
    return (128, 0.6) if progress < 0.12 else (L0, 0.1)


def rate(progress, step, args):
    """Warm-up, constant, and a fall to nearly nothing over the last quarter."""
    return args.lr * min(1, (step + 1) / 200) * min(1, max(0.01, (1 - progress) / 0.25))


def loss_of(model, ids, weight, also, dtype):
    """Cross-entropy of the set of right tokens: where any of several values may come next, their
    probabilities are added.  A loss on the one drawn value would teach only noise."""
    logits = model(ids, dtype)[:, :-1]
    right = torch.cat((ids[:, 1:, None], also[:, 1:]), -1)
    chosen = logits.gather(-1, right.clamp(min=0)).masked_fill(right < 0, -1e9)
    ce = logits.logsumexp(-1) - chosen.logsumexp(-1)
    return (ce * weight[:, 1:]).sum() / weight[:, 1:].sum()


def probe(model, data, precision, form, rows=24):
    """Share of right first tokens of values in answers, given the answers before; right is
    any value of the key that is still to come."""
    ids, weight, also = [x.to(precision.device) for x in data.batch(L0, rows, form=form)]
    with torch.no_grad(), precision():
        guess = model(ids, precision.dtype)[:, :-1].argmax(-1)
    ids, weight, also = ids[:, 1:], weight[:, 1:], also[:, 1:]
    right = (guess == ids) | (also == guess[..., None]).any(-1)
    value = weight == ANSWER_WEIGHT
    return right[value & ~F.pad(value, (1, 0))[:, :-1]].float().mean().item()


class Precision:
    """A context that computes in bfloat16 if the device supports it, else one that does nothing."""

    def __init__(self, bf16, device):
        self.device = torch.device(device)
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.bf16 = bf16

    def __call__(self):
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else contextlib.nullcontext()


def save_atomically(write, path):
    with open(path + ".part", "wb") as f:
        write(f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".part", path)


def export(model, out, tok):
    """Write the Hugging Face folder, with weights in BF16; safetensors is simple enough to be written here."""
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, p in sorted(model.state_dict().items()):
        blob = p.detach().cpu().to(torch.bfloat16).contiguous().view(torch.int16).numpy().astype("<i2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(p.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    save_atomically(lambda f: f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs)),
                    os.path.join(out, "model.safetensors"))
    ends = {"bos_token_id": tok.token_to_id("<|bos|>"), "eos_token_id": tok.token_to_id("<|eos|>")}
    for name, content in (("config.json", dict(CONFIG, **ends)),
                          ("generation_config.json", dict(ends, do_sample=False))):
        text = json.dumps(content, indent=2) + "\n"
        save_atomically(lambda f: f.write(text.encode()), os.path.join(out, name))


def load(folder):
    """The model of an exported folder, its weights widened from BF16."""
    model = Llama(CONFIG)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    state = {}
    for name, t in header.items():
        if name != "__metadata__":
            raw = np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], "<u2")
            wide = (raw.astype(np.uint32) << 16).view(np.float32).reshape(t["shape"])
            state[name] = torch.from_numpy(wide.copy())
    model.load_state_dict(state)
    return model


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--text", required=True)
    ap.add_argument("--work", required=True)
    ap.add_argument("--out", default=HERE)
    ap.add_argument("--template", default=os.path.join(HERE, "..", "..", "eval", "templates", "niah.json"))
    ap.add_argument("--tokens", type=float, default=60e6)
    ap.add_argument("--minutes", type=float, default=1e9)
    ap.add_argument("--batch", type=int, default=8192, help="tokens a step")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--prose", type=float, default=0.3, help="share of rows that are plain prose")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--weights", help="exported folder to begin with")
    ap.add_argument("--bf16", action="store_true", help="compute in bfloat16 (much faster where the CPU has it)")
    ap.add_argument("--device", default="cpu", help="cpu or cuda")
    ap.add_argument("--workers", type=int, default=0, help="processes that make rows; 0: none")
    ap.add_argument("--compile", action="store_true", help="torch.compile, from torch 2 on")
    args = ap.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    with open(args.template, encoding="utf-8") as f:
        template = json.load(f)
    tok = Tokenizer.from_file(os.path.join(args.out, "tokenizer.json"))
    data, check = Data(args, tok, template), None
    check = Data.__new__(Data)
    check.__dict__.update(data.__dict__)
    check.rng = random.Random(args.seed + 1)   # the check must not change the training stream
    rows = Rows(data, args)
    model = (load(args.weights) if args.weights else Llama(CONFIG)).to(args.device)
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    adam = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                              {"params": plain, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.95))
    print("%d weights; %d tokens of novels, %d generated" % (
        sum(p.numel() for p in model.parameters()), len(data.prose[0]), len(data.prose[1])), flush=True)
    os.makedirs(args.work, exist_ok=True)
    file = os.path.join(args.work, "checkpoint.pt")
    step, tokens, spent = 0, 0, 0.0
    if args.resume and os.path.exists(file):
        ck = torch.load(file, map_location=args.device, weights_only=True)
        model.load_state_dict(ck["model"])
        adam.load_state_dict(ck["adam"])
        step, tokens, spent = ck["step"], ck["tokens"], ck["spent"]
        data.rng.setstate(ck["rng"])
    # Compiled together with the loss: the logits are the largest tensor by far.
    run = torch.compile(loss_of, dynamic=False) if args.compile and hasattr(torch, "compile") else loss_of
    precision = Precision(args.bf16, args.device)
    began, saved, shown = time.time() - spent, time.time(), (time.time(), tokens)

    def save():
        save_atomically(lambda f: torch.save({
            "model": model.state_dict(), "adam": adam.state_dict(), "step": step, "tokens": tokens,
            "spent": time.time() - began, "rng": data.rng.getstate()}, f), file)
        export(model, args.out, tok)

    total = 0.0
    while True:
        progress = max(tokens / args.tokens, (time.time() - began) / (60 * args.minutes))
        if progress >= 1:
            break
        t, drill = stage(progress)
        ids, weight, also = [x.to(args.device) for x in rows.next(step, t, drill)]
        for group in adam.param_groups:
            group["lr"] = rate(progress, step, args)
        with precision():
            loss = run(model, ids, weight, also, precision.dtype)
        if not torch.isfinite(loss):
            sys.exit("loss is not finite at step %d; resume with a lower --lr" % step)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        total += loss.item()
        tokens += ids.numel()
        step += 1
        if step % 100 == 0:
            now = time.time()
            print("%5.1f min  step %6d  %7.2f M tokens  %5.0f tok/s  length %3d  loss %.3f  first tokens of "
                  "answers at 256: one key %.3f, several %.3f" % (
                      (now - began) / 60, step, tokens / 1e6, (tokens - shown[1]) / (now - shown[0]), t, total / 100,
                      probe(model, check, precision, "one"), probe(model, check, precision, "several")), flush=True)
            shown, total = (now, tokens), 0.0
            if now - saved > 180:
                save()
                saved = now
    save()
    print("done: %d steps, %.2f M tokens, %.1f minutes" % (step, tokens / 1e6, (time.time() - began) / 60))


if __name__ == "__main__":
    main()

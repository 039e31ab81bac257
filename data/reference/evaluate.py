#!/usr/bin/env python3
"""Needle recall and perplexity of the reference model in PyTorch: a quick look after training.

    evaluate.py --corpus DIR [--model DIR] [--lengths 256,1024] [--plans rope,self-extend] [--samples 100]

It shares the model with train.py and nothing with the C engine, so the two check one another.  Plans:
rope; self-extend (window 32, G = length / 128); rerope (window 128).
"""

import argparse
import json
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import train

HERE = os.path.dirname(os.path.abspath(__file__))


class Session:
    """Tokens in, logits of the last (or of every) position out; keys are kept unrotated, because a
    key's position depends on the distance it is seen from."""

    def __init__(self, model, plan, length):
        self.m, self.plan, self.cache, self.n = model, plan, None, 0
        self.g = max(1.0, length / (train.L0 / 2))
        c = train.CONFIG
        self.inv = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).double() / c["head_dim"])

    def turned(self, x, pos):
        angle = pos.double()[:, None] * self.inv[None]
        angle = torch.cat((angle, angle), -1)
        return train.rotate(x, angle.cos().float(), angle.sin().float())

    def attend(self, q, k, v, m, n):
        """One chunk of queries at positions m over keys at positions n."""
        delta = m[:, None] - n[None]
        score = self.turned(q, m) @ self.turned(k, n).transpose(-1, -2)
        if self.plan != "rope":
            if self.plan == "self-extend":
                w, g = 32, self.g
                pq, pk = (m / g).floor() + w - math.floor(w / g), (n / g).floor()
            else:
                w, pq, pk = 128, torch.full_like(m, 128), torch.zeros_like(n)
            far = self.turned(q, pq) @ self.turned(k, pk).transpose(-1, -2)
            score = torch.where(delta < w, score, far)
        score = (score * q.shape[-1] ** -0.5).masked_fill(delta < 0, -math.inf)
        return score.softmax(-1) @ v

    def feed(self, ids, every=False):
        body, t = self.m.model, len(ids)
        if self.cache is None:
            self.cache = [None] * len(body.layers)
        x = body.embed_tokens(torch.tensor([ids]))
        m = torch.arange(self.n, self.n + t).float()
        n = torch.arange(self.n + t).float()
        for i, layer in enumerate(body.layers):
            a, y = layer.self_attn, layer.input_layernorm(x)
            q = a.q_proj(y).view(1, t, a.nq, a.d).transpose(1, 2)
            k = a.k_proj(y).view(1, t, a.nk, a.d).transpose(1, 2).repeat_interleave(a.nq // a.nk, 1)
            v = a.v_proj(y).view(1, t, a.nk, a.d).transpose(1, 2).repeat_interleave(a.nq // a.nk, 1)
            if self.cache[i] is not None:
                k, v = torch.cat((self.cache[i][0], k), 2), torch.cat((self.cache[i][1], v), 2)
            self.cache[i] = (k, v)
            o = torch.cat([self.attend(q[:, :, s:s + 256], k[:, :, :self.n + s + 256],
                                       v[:, :, :self.n + s + 256], m[s:s + 256], n[:self.n + s + 256])
                           for s in range(0, t, 256)], 2)
            x = x + a.o_proj(o.transpose(1, 2).reshape(1, t, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        self.n += t
        x = body.norm(x if every else x[:, -1:])
        return F.linear(x, body.embed_tokens.weight)[0]


def sample(rng, tok, tpl, texts, length, keys, values):
    """Prompt tokens and the values asked for: keys·values needles, each in its own equal part."""
    names = rng.sample([a + "-" + n for a in tpl["adjectives"] for n in tpl["nouns"]], keys)
    pairs = [(k, "%d" % rng.randrange(1000000, 10000000)) for k in names for _ in range(values)]
    order = rng.sample(pairs, len(pairs))
    tail = tpl["question"].format(keys=tpl["keys_separator"].join(names)) + tpl["answer_prefix"].format(
        key=names[0])

    def count(s):
        return len(tok.encode(s, add_special_tokens=False).ids)
    needles = [tpl["needle"].format(key=k, value=v) for k, v in order]
    room = len(pairs) * (count(needles[0]) - 1) + 8
    text = "\n".join(rng.sample(texts, len(texts)))
    at = text.index(" ", rng.randrange(len(text) - 8 * length - 100)) + 1
    pieces = train.sentences(text[at:at + 8 * length])
    sizes = [len(e.ids) for e in tok.encode_batch(pieces, add_special_tokens=False)]
    left = length - room - 1 - count(tpl["intro"]) - count(tail) - sum(map(count, needles)) - 4
    hay = []
    for piece, size in zip(pieces, sizes):
        if size > left:
            words = piece.split(" ")
            while words and count(" ".join(words)) > left:
                words.pop()
            hay.append(" ".join(words))
            break
        hay.append(piece)
        left -= size
    ends = np.cumsum([len(h) for h in hay])
    spots = []
    for i in range(len(needles)):
        want = (i + rng.random()) / len(needles) * ends[-1]
        spots.append(int(np.argmin(np.abs(np.concatenate(([0], ends[:-1])) - want))))
    body = ""
    for j, h in enumerate(hay):
        body += "".join(n for n, s in zip(needles, spots) if s == j) + h
    ids = tok.encode(tpl["intro"] + body + tail).ids
    assert len(ids) + room <= length, (len(ids), room, length)
    return ids, [v for _, v in pairs], room


def recall(model, tok, tpl, texts, args, length, plan, keys, values):
    rng, total, shown = random.Random(args.seed), 0.0, args.show
    eos = tok.token_to_id("<|eos|>")
    for _ in range(args.samples):
        ids, wanted, room = sample(rng, tok, tpl, texts, length, keys, values)
        s, out = Session(model, plan, length), []
        logits = s.feed(ids)
        for _ in range(room):
            out.append(int(logits[-1].argmax()))
            if out[-1] == eos:
                break
            logits = s.feed(out[-1:])
        text = tok.decode(out)
        if shown:
            print(wanted, repr(text), flush=True)
            shown -= 1
        total += sum(v in text for v in wanted) / len(wanted)
    return total / args.samples


def perplexity(model, tok, texts, length, plan, most=20):
    nll, n = 0.0, 0
    for text in texts[:most]:
        ids = tok.encode(text[:length * 8]).ids[:length]
        logits = Session(model, plan, length).feed(ids, every=True)
        nll += F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="sum").item()
        n += len(ids) - 1
    return math.exp(nll / n)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--corpus", required=True, help="folder of .txt files")
    ap.add_argument("--model", default=HERE)
    ap.add_argument("--template", default=os.path.join(HERE, "..", "..", "eval", "templates", "niah.json"))
    ap.add_argument("--lengths", default="256")
    ap.add_argument("--plans", default="rope")
    ap.add_argument("--tasks", default="1x4", help="keys x values, for instance 1x4,4x1")
    ap.add_argument("--samples", type=int, default=100)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--show", type=int, default=0, help="print so many answers")
    ap.add_argument("--threads", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    tok = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    with open(args.template, encoding="utf-8") as f:
        tpl = json.load(f)
    texts = []
    for name in sorted(os.listdir(args.corpus)):
        if name.endswith(".txt"):
            with open(os.path.join(args.corpus, name), encoding="utf-8", errors="replace") as f:
                texts.append(f.read())
    model = train.load(args.model)
    with torch.no_grad():
        for length in map(int, args.lengths.split(",")):
            for plan in args.plans.split(","):
                began = time.time()
                scores = []
                for task in args.tasks.split(","):
                    keys, values = map(int, task.split("x"))
                    scores.append("recall %s %.3f" % (task, recall(
                        model, tok, tpl, texts, args, length, plan, keys, values)))
                print("%5d  %-11s  %s  perplexity %.2f  (%.0f s)" % (
                    length, plan, "  ".join(scores), perplexity(model, tok, texts, length, plan),
                    time.time() - began), flush=True)


if __name__ == "__main__":
    main()

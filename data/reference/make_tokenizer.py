#!/usr/bin/env python3
"""Makes tokenizer.json of the reference model: byte-level BPE, Llama-3's split, BOS in front.

    make_tokenizer.py --text DIR --template niah.json --out DIR [--vocab 2560]

    make_tokenizer.py --text DIR --template niah.json --out DIR [--vocab 2560]

Two demands that training does not meet by itself are built in: every group of two and of three
digits is one token, so that a value of seven digits is always three tokens, and every word of the
needle template is one token.  Those tokens are put into the vocabulary by hand; they need no merges,
because the model looks a whole word up before it merges (ignore_merges, as Llama-3's does).
"""

import argparse
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sample"))
import generate  # noqa: E402  (the sample corpus's generator)

BOS, EOS = "<|bos|>", "<|eos|>"
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def template_text(t):
    """The template's sentences over all adjectives and nouns, without the values."""
    keys = [a + "-" + n for a, n in zip(t["adjectives"], t["nouns"])]
    lines = [t["intro"]]
    for k in keys:
        lines += [t["needle"].format(key=k, value=""), t["question"].format(keys=k),
                  t["answer_prefix"].format(key=k)]
    return "".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--text", required=True, help="folder of .txt files")
    ap.add_argument("--template", required=True, help="the needle template file")
    ap.add_argument("--out", required=True)
    ap.add_argument("--vocab", type=int, default=2560)
    args = ap.parse_args()
    with open(args.template, encoding="utf-8") as f:
        template = json.load(f)
    texts = []
    for name in sorted(os.listdir(args.text)):
        if name.endswith(".txt"):
            with open(os.path.join(args.text, name), encoding="utf-8", errors="replace") as f:
                texts.append(f.read())
    prose = sum(map(len, texts))
    books = generate.training_books()
    made = 0
    while made < prose // 4:
        texts.append(next(books))
        made += len(texts[-1])

    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre
    forced = ["%02d" % i for i in range(100)] + ["%03d" % i for i in range(1000)]
    for word, _ in pre.pre_tokenize_str(template_text(template)):
        if len(word) > 1 and word not in forced:
            forced.append(word)
    learner.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=args.vocab, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    learnt = json.loads(learner.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learnt["merges"]]
    learnt = sorted(learnt["vocab"], key=learnt["vocab"].get)
    # More words were learnt than fit beside the forced ones: the last learnt go.
    room = args.vocab - 2
    while len(set(learnt) | set(forced)) > room:
        learnt.pop()
    vocab = {}
    for word in learnt + forced:
        vocab.setdefault(word, len(vocab))
    kept = set(learnt)
    merges = [m for m in merges if all(w in kept for w in (m[0], m[1], m[0] + m[1]))]
    for word in (BOS, EOS):
        vocab[word] = len(vocab)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(BOS, special=True, normalized=False),
                            AddedToken(EOS, special=True, normalized=False)])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=BOS + " $A", pair=BOS + " $A " + BOS + ":1 $B:1",
                                      special_tokens=[(BOS, vocab[BOS])])])

    def pieces(text):
        return tok.encode(text, add_special_tokens=False).tokens

    for i in range(1000):
        assert pieces("%03d" % i) == ["%03d" % i], i
    for i in range(100):
        assert pieces("%02d" % i) == ["%02d" % i], i
    for a, n in zip(template["adjectives"], template["nouns"]):
        key = a + "-" + n
        assert pieces("of " + key + ":")[-3:] == ["\u0120" + a, "-" + n, ":"], key
    key = "amber-falcon"
    needle = template["needle"].format(key=key, value="1234567")
    print(pieces(needle))
    print(pieces(template["intro"] + "x" + template["question"].format(keys=key)
                 + template["answer_prefix"].format(key=key)))
    total = 1 + len(pieces(template["intro"])) + 4 * len(pieces(needle)) + len(
        pieces(template["question"].format(keys=key) + template["answer_prefix"].format(key=key)))
    print("template with four needles: %d tokens; vocabulary: %d" % (total, tok.get_vocab_size()))
    assert total <= 120
    os.makedirs(args.out, exist_ok=True)
    tok.save(os.path.join(args.out, "tokenizer.json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A SentencePiece BPE model as tokenizer.json, in the two shapes met in the wild.

    python3 tests/golden/tokenizer_spm.py MODEL OUTDIR

Merges are every split of a piece into two, as transformers makes them. "prepend": normaliser Prepend + Replace,
decoder Replace, ByteFallback, Fuse, Strip. "metaspace": pre-tokenizer Metaspace (first, no split).
Files are named after the model and the shape.
"""
import json
import os
import sys

import sentencepiece


def pieces(path):
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    return [(model.id_to_piece(i), model.get_score(i), model.is_control(i), model.is_unknown(i),
             model.is_byte(i)) for i in range(model.get_piece_size())]


def merges(vocab, scores):
    """Every split of a piece into two pieces, ordered by the score of the whole, then by ids."""
    found = []
    for piece, score in scores.items():
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece))
                 if piece[:i] in vocab and piece[i:] in vocab]
        local.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        found += [(*pair, score) for pair in local]
    found.sort(key=lambda merge: -merge[2])
    return [[left, right] for left, right, _ in found]


def tokenizer(path, shape):
    table = pieces(path)
    vocab = {piece: i for i, (piece, *_) in enumerate(table)}
    scores = {p: s for p, s, control, unknown, byte in table if not (control or unknown or byte)}
    special = [(p, i) for i, (p, _, control, unknown, _) in enumerate(table) if control or unknown]
    mark = "\u2581"
    prepend = shape == "prepend"
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": p, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for p, i in special],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": mark},
            {"type": "Replace", "pattern": {"String": " "}, "content": mark}]} if prepend else None,
        "pre_tokenizer": None if prepend else {
            "type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [vocab["<s>"]], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": mark}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                  "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
                  "merges": merges(vocab, scores)},
    }


def convert(path, folder):
    made = []
    for shape in ("prepend", "metaspace"):
        name = f"{os.path.splitext(os.path.basename(path))[0]}-{shape}"
        out = os.path.join(folder, name + ".json")
        with open(out, "w", encoding="utf-8") as stream:
            json.dump(tokenizer(path, shape), stream, ensure_ascii=False)
        made.append((name, out))
    return made


if __name__ == "__main__":
    for made_name, made_path in convert(sys.argv[1], sys.argv[2]):
        print(made_name, made_path)

"""A tokenizer.json as the metadata of a GGUF file, as llama.cpp's converter writes it."""
import json

from gguf_writer import BOOL, F32, I32, STRING, U32

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def kind_of(tokenizer):
    """The name of the pre-tokenizer; only those that tests have."""
    text = json.dumps(tokenizer["pre_tokenizer"])
    if "Digits" in text:
        return "smollm"
    if "N}{1,3}" in text:
        return "llama-bpe" if tokenizer["model"].get("ignore_merges") else "dbrx"
    return "qwen2" if "N}|" in text else "gpt-2"


def prefix_of(tokenizer):
    """The ids that a template puts before a text."""
    post = tokenizer["post_processor"] or {}
    for each in post.get("processors", [post]):
        if each.get("type") == "TemplateProcessing":
            return [i for part in each["single"] if "SpecialToken" in part
                    for i in each["special_tokens"][part["SpecialToken"]["id"]]["ids"]]
    return []


def ends(prefix):
    out = [("tokenizer.ggml.add_bos_token", BOOL, bool(prefix))]
    return out + ([("tokenizer.ggml.bos_token_id", U32, prefix[0])] if prefix else [])


def byte_level(tokenizer):
    model = tokenizer["model"]
    tokens = {i: (text, NORMAL) for text, i in model["vocab"].items()}
    for each in tokenizer["added_tokens"]:
        tokens[each["id"]] = (each["content"], CONTROL if each["special"] else USER_DEFINED)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, kind_of(tokenizer)),
            ("tokenizer.ggml.tokens", STRING, [tokens[i][0] for i in range(len(tokens))]),
            ("tokenizer.ggml.token_type", I32, [tokens[i][1] for i in range(len(tokens))]),
            ("tokenizer.ggml.merges", STRING, merges), *ends(prefix_of(tokenizer))]


def sentence_piece(pieces):
    """pieces: [(text, score, control, unknown, byte)], as tokenizer_spm.py reads them from a *.model."""
    kinds = [CONTROL if c else UNKNOWN if u else BYTE if b else NORMAL for _, _, c, u, b in pieces]
    return [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", STRING, [p[0] for p in pieces]),
            ("tokenizer.ggml.scores", F32, [p[1] for p in pieces]), ("tokenizer.ggml.token_type", I32, kinds),
            ("tokenizer.ggml.unknown_token_id", U32, kinds.index(UNKNOWN)),
            *ends([[p[0] for p in pieces].index("<s>")])]

#!/usr/bin/env python3
"""Write tokenizer_shapes.json: small tokenizers of every supported shape, and what the reference
makes of texts and ids with them.

    python3 tests/golden/make_tokenizer_shapes.py      (needs `tokenizers`; made with 0.23.3)

The vocabularies are trained here on the few sentences below; nothing is downloaded.
"""
import json
import os
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "\u2581"
# gpt-oss', Phi-4-mini's.
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve"
         r"|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:"
         r"'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{%s}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# Mistral Nemo's: classes of upper, lower, title, modifier and other letters and marks.
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}"
         r"\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+"
         r"[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CORPUS = [
    "The miller's daughter carried 128 loaves to the old mill, and the miller carried them back.",
    "They've said that it's later than she'd think; we'll see what 1024 and 4096 make of that.",
    "Der Müller trägt schöne Säcke über die Brücke. Le garçon a mangé une pêche à l'école.",
    "Мельница стояла у реки, и река стояла у мельницы.    четыре пробела\n\n\tand a tab\r\n",
    "the thing that the other thing thought, there and then, was nothing   to the   third thing",
    "風車の下で水が流れる。水の上に風が吹く。 한국어 문장도 하나. \u0e2d\u0e32\u0e01\u0e32\u0e28",
    "if (x[i] == y[i]) { return x[i] + 1; } // 100% of 3.14159 -- done!!! ... <<end>>",
]
TEXTS = [
    "", " ", "  ", "   a", "a   ", "\n", "\r\n", "\n\n \n", " \n a\t\tb \r\n\r\n c", "Hello, world!",
    *CORPUS,
    "I'M they'RE 'S 'T we'LL 'd'D'x it'\u017f '\u212a 's's 'ſ",
    "1 12 123 1234 12345 3.14 \u0661\u0662\u0663\u0664 \u2167\u00b2\u00bd \u0be7\u0bf0 x9y",
    "a\u00a0b \u00a0 c\u180ed\u180e e\u0085f \u2028g\u3000h\u200bi\ufeffj\u1680k\u001cl\u000bm\u000cn",
    "\ufeffbyte order mark", "NUL\x00in\x00side\x00", "\u0001\u0002\u007f\u0080\u009f",
    "cafe\u0301 caf\u00e9 e\u0323\u0302 \u1ec7 \u212b \u2126 \uac00 \u1100\u1161\u11a8 \u0958 \u0344",
    "q\u0307\u0323 q\u0323\u0307 \u0041\u030a\u0301 \u0f71\u0f72\u0f74 \u3099\u304b\u3099 \u05e9\u05bc\u05c1",
    "\U000105d2\u0307 \U000105c9 \U00011935\U00011930 \U00011938 \u1c89 \ua7cb \U00010d50\U00010d70",
    "\u0898\u0301\u0316 a\U0001e5ee\u0316 \u1acf\u0327 \u0c3c\u0bcd \U00016d63\U00016d67",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3fd\ufe0f \U0001d400\U0001d7d8",
    "\U0001dfff \U00011de0\U00011de9 \U00016ff4 \u0378 \ue000 \U0010ffff \ufffe \ufdd0",
    "word" * 30, "th" * 50 + "e", " " * 45 + "x", "^" * 50, "\u0301" * 30, "abcdefgh" * 8 + "!",
    MARK, MARK + "a" + MARK, " " + MARK + " a", "a" + MARK + MARK + " b", "a b  c   d" + MARK + "e",
    "<s>", "<s>a", "a <s> b", " <s> <s>", "a</s>b </s> c", "<s></s><s>x", "xx<pad>yy zz", "<sx>",
    "<unk> a", "[MASK] a [MASK]b a  [MASK]  b\n[MASK]", "solo xsolo solox solo.solo 'solo' soloß",
    "ab abc abcd abcde xabcdx", "cafe\u0301! caf\u00e9!", "two words two  words", "tab\tstop",
    "<0x0A> <0x41> x", "\u00e4\u00f6\u00fc \u00df \u0142\u017c", "ŋ ŋŋ aŋb ŋ ŋ", "the\u2028 cat",
    "\ufb01n \ufdfa \u304b\uff9e \uff76\uff9e \u3349 \u2460 \uff21\uff22 \u1e9b\u0323 \u00aa\u2122 \u2025\u033d\u0323 \uffa1\uffc2",
]
BROKEN = [
    b"\xff", b"abc\xff", b"\xc0\xaf", b"\xe0\x80\x80x", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"a\xe2\x82", b"a\xe2\x82b", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\x80", b"\xc3\xc3\xa9", b"\x80",
    b"x\xf0\x28\x8c\x28y", b"\xfe\xff\x00a\x00b", b"ok \xed\xb0\x80 ok", b"\xf8\x88\x80\x80\x80",
]
LONG = [(" ", 1000000), ("a", 1000000), ("^", 1000000), ("\u0301", 500000), ("the", 333333)]


def added(specials, first, **flags):
    return [{"id": first + i, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True, **flags.get(content, {})}
            for i, content in enumerate(specials)]


def train_bytes(size, pattern):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS * 2, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def train_marks(size, unk=True, fallback=True):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    first = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
    tokenizer.train_from_iterator(CORPUS[:3] + CORPUS[4:5], trainers.BpeTrainer(
        vocab_size=size, special_tokens=first, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    model.update(unk_token="<unk>" if unk else None, byte_fallback=fallback)
    return model


def template(bos, bos_id, eos=None, eos_id=None):
    piece = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    specials = {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}}
    if eos:
        piece.append({"SpecialToken": {"id": eos, "type_id": 0}})
        specials[eos] = {"id": eos, "ids": [eos_id], "tokens": [eos]}
    return {"type": "TemplateProcessing", "single": piece,
            "pair": piece + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": specials}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True,
            "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(key, *items):
    return {"type": "Sequence", key: list(items)}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}


def whole(model, **parts):
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    file.update(parts, model=model)
    return file


SPM_DECODER = sequence(
    "decoders", {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0})
SPM_NORMALIZER = sequence("normalizers", {"type": "Prepend", "prepend": MARK},
                          {"type": "Replace", "pattern": {"String": " "}, "content": MARK})
FLAGS = {"[MASK]": {"lstrip": True, "rstrip": True}, "solo": {"single_word": True, "special": False},
         "abc": {"special": False}, "abcd": {"special": False},
         "caf\u00e9!": {"normalized": True, "special": False},
         "two words": {"normalized": True, "special": False}, "</s>": {"normalized": True}}


def shapes():
    """Yields (name, tokenizer file)."""
    llama3 = train_bytes(480, SPLIT % "1,3")
    n = len(llama3["vocab"])
    strings = dict(llama3, ignore_merges=True, merges=[" ".join(m) for m in llama3["merges"]])
    cut = sequence("pretokenizers", split({"Regex": SPLIT % "1,3"}), byte_level(regex=False))
    yield "llama3", whole(strings, added_tokens=added(["<s>", "</s>", "<pad>"], n),
                          pre_tokenizer=cut, decoder=byte_level(),
                          post_processor=sequence("processors", byte_level(), template("<s>", n)))
    # The same without its longest merges: only ignore_merges makes those tokens.
    yield "ignore_merges", whole(dict(strings, merges=strings["merges"][:120]), pre_tokenizer=cut,
                                 decoder=byte_level())
    qwen = train_bytes(420, SPLIT % "1")
    yield "qwen2", whole(
        qwen, added_tokens=added(["<s>", "</s>", "<pad>", "caf\u00e9!"], len(qwen["vocab"]),
                                 **{"<pad>": {"special": False}, "caf\u00e9!": FLAGS["caf\u00e9!"]}),
        normalizer={"type": "NFC"}, post_processor=byte_level(), decoder=byte_level(),
        pre_tokenizer=sequence("pretokenizers", split({"Regex": SPLIT % "1"}),
                               byte_level(regex=False)))
    small = train_bytes(330, SPLIT % "1")
    n = len(small["vocab"])
    digits = {"type": "Digits", "individual_digits": True}
    yield "nemo", whole(small, decoder=byte_level(), pre_tokenizer=sequence(
        "pretokenizers", split({"Regex": CASED}), byte_level(regex=False)))
    yield "smollm2", whole(small, added_tokens=added(["<s>", "</s>"], n), decoder=byte_level(),
                           pre_tokenizer=sequence("pretokenizers", digits, byte_level()))
    yield "gpt2_prefix", whole(small, pre_tokenizer=byte_level(prefix=True), decoder=byte_level(),
                               added_tokens=added(["<s>", "</s>"], n),
                               post_processor=template("<s>", n, "</s>", n + 1))
    yield "digits_prefix", whole(small, pre_tokenizer=sequence(
        "pretokenizers", {"type": "Digits", "individual_digits": False},
        byte_level(prefix=True, regex=False)))
    yield "added", whole(small, added_tokens=added(["<s>", *FLAGS], n, **FLAGS),
                         pre_tokenizer=byte_level(), decoder=byte_level())
    missing = dict(small, vocab={k: v for k, v in small["vocab"].items() if k not in "xyzä"},
                   unk_token="!", fuse_unk=True)
    missing["merges"] = [m for m in small["merges"] if not set("xyzä") & set("".join(m))]
    yield "bytes_missing", whole(missing, pre_tokenizer=byte_level())
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"split_{behavior}_{invert}", whole(small, decoder=byte_level(), pre_tokenizer=(
                sequence("pretokenizers", split({"Regex": r"\s|\p{P}(?=\p{L})|[^\S\n]?\d"},
                                                behavior, invert), byte_level(regex=False))))
    yield "split_string", whole(small, pre_tokenizer=sequence(
        "pretokenizers", split({"String": "th"}, "MergedWithNext"), split({"String": "."}),
        split({"Regex": r"\p{Lu}\p{Ll}*|x*"}, "Removed", True), byte_level(regex=False)))

    spm = train_marks(430)
    specials = added(["<unk>", "<s>", "</s>"], 0)
    spm_post = template("<s>", 1)
    yield "spm_prepend", whole(dict(spm, fuse_unk=True), added_tokens=specials,
                               normalizer=SPM_NORMALIZER, decoder=SPM_DECODER,
                               post_processor=spm_post)
    yield "spm_metaspace", whole(dict(spm, fuse_unk=True), added_tokens=specials,
                                 pre_tokenizer=metaspace("first", False), decoder=SPM_DECODER,
                                 post_processor=spm_post)
    yield "spm_normalized", whole(
        dict(spm, fuse_unk=True), normalizer=SPM_NORMALIZER, decoder=SPM_DECODER,
        added_tokens=added(["<unk>", "<s>", "</s>"], 0, **FLAGS) +
        added(["[MASK]", "solo", "two words"], len(spm["vocab"]), **FLAGS))
    yield "spm_split", whole(dict(spm, ignore_merges=True), added_tokens=specials,
                             pre_tokenizer=metaspace("always", True),
                             decoder=metaspace("always", True))
    yield "spm_never", whole(spm, added_tokens=specials, pre_tokenizer=metaspace("never", False),
                             decoder=metaspace("never", False))
    # A merge across words: then the text cannot be cut into words.
    glued = json.loads(json.dumps(spm))
    glued["vocab"]["e" + MARK + "t"] = len(glued["vocab"])
    glued["merges"].insert(3, ["e", MARK + "t"])
    yield "spm_glued", whole(glued, added_tokens=specials, pre_tokenizer=metaspace("first", False),
                             decoder=SPM_DECODER)
    # Gemma's: spaces become marks before words are cut behind them, which so never happens.
    yield "gemma", whole(dict(spm, fuse_unk=True), added_tokens=specials, post_processor=spm_post,
                         normalizer={"type": "Replace", "pattern": {"String": " "}, "content": MARK},
                         pre_tokenizer=split({"String": " "}, "MergedWithPrevious"),
                         decoder=sequence("decoders", {"type": "Replace", "pattern":
                                          {"String": MARK}, "content": " "},
                                          {"type": "ByteFallback"}, {"type": "Fuse"}))
    yield "o200k", whole(small, decoder=byte_level(), pre_tokenizer=sequence(
        "pretokenizers", split({"Regex": O200K}), byte_level(regex=False)))
    yield "nfkc", whole(small, normalizer={"type": "NFKC"}, pre_tokenizer=byte_level(),
                        decoder=byte_level())
    yield "whitespace_split", whole(
        dict(spm, fuse_unk=True), added_tokens=specials,
        normalizer=sequence("normalizers", {"type": "NFKC"}, {"type": "Replace", "pattern":
                            {"String": "th"}, "content": "t h"}),
        pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"},
                               metaspace("always", True)), decoder=metaspace("always", True))
    bare = train_marks(160, fallback=False)
    for name, model in (("unk", bare), ("unk_fused", dict(bare, fuse_unk=True)),
                        ("unk_dropped", dict(bare, unk_token=None))):
        yield name, whole(model, added_tokens=specials, normalizer=SPM_NORMALIZER)
    half = dict(spm, fuse_unk=True, vocab=dict(spm["vocab"]))
    for byte in range(0xC8, 0x100):
        half["vocab"][f"gone{byte}"] = half["vocab"].pop(f"<0x{byte:02X}>")
    yield "fallback_half", whole(half, added_tokens=specials, pre_tokenizer=metaspace("first", False),
                                 decoder=SPM_DECODER)


def fold(ids):
    """FNV-1a over the ids, for lists too long to write down."""
    h = 0xCBF29CE484222325
    for i in ids:
        h = (h ^ i) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def cases(tokenizer, rng, brief):
    def encode(text, add=False, literal=False):
        tokenizer.encode_special_tokens = literal
        return tokenizer.encode(text, add_special_tokens=add).ids

    out = {"encode": [], "literal": {}, "broken": [], "decode": [], "long": []}
    for i, text in enumerate(TEXTS):
        plain, literal = encode(text), encode(text, literal=True)
        out["encode"].append(plain)
        if literal != plain:
            out["literal"][i] = literal
    # Special tokens around a text: TEXTS[9] with them, and how many stand before it.
    special, plain = encode(TEXTS[9], add=True), encode(TEXTS[9])
    out["special"] = special
    out["prefix"] = next(i for i in range(len(special)) if special[i:i + len(plain)] == plain)
    if brief:
        return out
    for data in BROKEN:
        out["broken"].append([data.hex(), encode(data.decode(errors="replace"))])
    known = sorted(tokenizer.get_vocab().values())
    lists = [known[i:i + 60] for i in range(0, len(known), 60)]
    lists += [rng.choices(known, k=rng.randint(1, 12)) for _ in range(12)]
    lists += [[], encode(TEXTS[10], add=True), encode(TEXTS[30], add=True)]
    for ids in lists:
        shown, hidden = (tokenizer.decode(ids, skip_special_tokens=s) for s in (False, True))
        out["decode"].append([ids, shown] + ([hidden] if hidden != shown else []))
    return out


def main():
    rng = random.Random(7)
    made = []
    for name, file in shapes():
        tokenizer = Tokenizer.from_str(json.dumps(file))
        entry = {"name": name, "file": file, **cases(tokenizer, rng, name.startswith("split_"))}
        if name in ("llama3", "qwen2", "spm_prepend", "spm_glued"):
            for unit, times in LONG:
                tokenizer.encode_special_tokens = False
                ids = tokenizer.encode(unit * times, add_special_tokens=False).ids
                entry["long"].append([unit, times, len(ids), fold(ids)])
        made.append(entry)
    with open(os.path.join(HERE, "tokenizer_shapes.json"), "w", encoding="utf-8") as stream:
        lines = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in made]
        stream.write('{"texts":' + json.dumps(TEXTS) + ',\n"shapes":[\n' + ",\n".join(lines) +
                     "\n]}\n")


if __name__ == "__main__":
    main()

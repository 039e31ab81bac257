#!/usr/bin/env python3
"""chat_check.py BIN SOURCE: chat templates in the tools, with the bundled model and a template of our own; what people
give as a model: an id of the hub, a folder of its cache, a GGUF file; tables in config.json, and of runs that
are not finished."""
import json
import os
import subprocess
import sys
import tempfile

BIN, SOURCE = map(os.path.abspath, sys.argv[1:])
TEMPLATE = """{%- for message in messages -%}
{{ message.role | capitalize }}: {{ message.content | trim }}
{% endfor -%}
{%- if add_generation_prompt %}Answer:{% endif %}"""
failures = 0


def tool(name, *args, text=""):
    run = subprocess.run([os.path.join(BIN, name), *args], input=text.encode(), capture_output=True, check=False,
                         env=dict(os.environ, OMP_NUM_THREADS="2"))
    return run.returncode, run.stdout.decode(), run.stderr.decode()


def expect(name, got, code, out="", err=""):
    global failures
    if got[0] != code or out not in got[1] or err not in got[2]:
        failures += 1
        print(f"{name}: expected {code}, {out!r}, {err!r}; found {got[0]}\n{got[1]}\n{got[2]}")


with tempfile.TemporaryDirectory() as work:
    model = os.path.join(work, "model")
    os.mkdir(model)
    reference = os.path.join(SOURCE, "data", "reference")
    for name in os.listdir(reference):
        if name.endswith((".json", ".safetensors")):
            os.symlink(os.path.join(reference, name), os.path.join(model, name))
    template = os.path.join(model, "chat_template.jinja")
    plain_template = os.path.join(work, "turns.jinja")
    with open(template, "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    with open(plain_template, "w", encoding="utf-8") as f:
        f.write(TEMPLATE)

    two = tool("dpe-run", "-m", model, "--chat", "-n", "4", text="Who is it?\n\nAnd who else?\n")
    expect("two turns", two, 0, err="chat template of " + template)
    kept = [int(line.split(" kept")[0].split()[-1]) for line in two[2].splitlines() if " kept" in line]
    if len(kept) != 2 or kept[0] != 0 or kept[1] < 5 or len(two[1].splitlines()) < 2:
        failures += 1
        print("two turns: the second keeps what the first has read:", kept, two)
    # The same conversation without anything kept: a plan for one length makes the answers comparable.
    one = tool("dpe-run", "-m", model, "-p", "User: Who is it?\nAnswer:", "-n", "4", "--raw", "--quiet")
    first = tool("dpe-run", "-m", model, "--chat", "-p", "Who is it?", "-n", "4", "--quiet")
    if first[1] != one[1] or first[0] != 0:
        failures += 1
        print("the template is what the model reads:", first, one)
    system = tool("dpe-run", "-m", model, "--chat", "--system", "Be kind.", "-p", " Hi ", "-n", "4", "--quiet")
    plain = tool("dpe-run", "-m", model, "--prompt-file", "-", "-n", "4", "--raw", "--quiet",
                 text="System: Be kind.\nUser: Hi\nAnswer:")
    if system[1] != plain[1] or system[0] != 0:
        failures += 1
        print("the system message comes first:", system, plain)
    expect("special tokens", tool("dpe-run", "-m", model, "--chat", "-p", "a <|bos|> b"), 65,
           err='message: byte 2: the text contains the special token "<|bos|>"; --special-in-text parse makes it the token')
    expect("special tokens, parsed", tool("dpe-run", "-m", model, "--chat", "-n", "2", "--special-in-text", "parse",
                                          "-p", "a <|bos|> b"), 0)
    expect("no message", tool("dpe-run", "-m", model, "--chat"), 65, err="found none")
    expect("no template", tool("dpe-run", "-m", reference, "--chat", "-p", "x"), 66, err="has no chat template")
    expect("--system alone", tool("dpe-run", "-m", model, "-p", "x", "--system", "y"), 64, err="go with --chat")
    expect("--chat --raw", tool("dpe-run", "-m", model, "--chat", "--raw", "-p", "x"), 64, err="exclude each other")
    expect("--chat --nll", tool("dpe-run", "-m", model, "--chat", "--nll", "x"), 64, err="--chat goes with generating")
    expect("too long", tool("dpe-run", "-m", model, "--chat", "--length", "8", "-p", "x"), 64, err="--length allows 8")

    sweep = ["-m", model, "--corpus", os.path.join(SOURCE, "data", "sample"), "-l", "512", "--samples", "1",
             "--groups", "1", "--lengths", "128", "-o", os.path.join(work, "t.h5")]
    expect("auto", tool("dpe-detect", *sweep), 0, err="niah: prompts stand in the chat template of " + template)
    expect("its template again", tool("dpe-detect", *sweep, "--chat-template", template), 0)
    for name in ("dpe-detect", "dpe-calibrate"):
        expect("auto, " + name + " --dry-run", tool(name, *sweep[:-1], os.path.join(work, "dry"), "--dry-run"), 0,
               err="niah: prompts stand in the chat template of " + template)
    expect("another template", tool("dpe-detect", *sweep, "--chat-template", "none"), 78, err="niah_template")
    compare = ["-m", model, "--corpus", os.path.join(SOURCE, "data", "sample"), "-l", "512", "--samples", "1",
               "--method", "rope", "-o", os.path.join(work, "c.h5")]
    expect("auto", tool("dpe-eval", "niah", *compare), 0, err="niah: prompts stand in the chat template of")
    expect("none", tool("dpe-eval", "niah", *compare, "--chat-template", "none"), 78, err="niah_template")
    # Variables of the template reach the prompts of every tool, and what no template reads is said.
    with open(template, "w", encoding="utf-8") as f:
        f.write(TEMPLATE + "{{ 'fast' if think is defined and not think else 'slow' }}/{{ effort }}/")
    texts = ("--corpus", os.path.join(SOURCE, "data", "sample"), "-l", "512", "--samples", "1")
    for i, (given, text) in enumerate((("think=False,effort=low", "fast/low/"), ("think=0,effort=7", "fast/7/"), ("effort=None", "slow/None/"))):
        data = os.path.join(work, f"data{i}")
        expect("variables", tool("dpe-eval", "data", "-m", model, *texts, "--tasks", "niah_single_1", "--chat-template", "auto", "-o", data,
                                 "--template-vars", given), 0)
        with open(os.path.join(data, "niah_single_1", "validation.jsonl"), encoding="utf-8") as f:
            found = f.read()
        if "Answer:" + text not in found:
            failures += 1
            print(f"--template-vars {given}: expected {text} in {found[-300:]}")
    compared = ("-m", model, *texts, "--method", "rope", "-o", os.path.join(work, "v.h5"), "--template-vars")
    expect("variables", tool("dpe-eval", "niah", *compared, "think=false"), 0)
    expect("the same variables", tool("dpe-eval", "niah", *compared, "think=False"), 0)
    expect("other variables", tool("dpe-eval", "niah", *compared, "think=true"), 78, err="niah_template")
    for name, *more in (("dpe-detect", "--dry-run"), ("dpe-calibrate", "--dry-run"), ("dpe-eval", "niah", "--method", "rope")):
        words = (name, *more[:1]) if name == "dpe-eval" else (name,)
        words += ("-m", model, *texts, "-o", os.path.join(work, "w"), *more[len(words) - 1:], "--template-vars")
        expect("unread variables", tool(*words, "thinking=1"), 64, err="--template-vars: thinking: " + template + " does not read it")
        expect("no template for variables", tool(*words, "think=1", "--chat-template", "none"), 64, err="a prompt without a chat template does not read it")
        words = [reference if word == model else word for word in words]
        expect("a model without a template", tool(*words, "think=1"), 64, err="a prompt without a chat template does not read it")
    expect("a server", tool("dpe-serve", "-m", reference, "--port", "0", "--template-vars", "a=1"), 64, err="a prompt without a chat template does not read it")
    with open(template, "w", encoding="utf-8") as f:
        f.write("\n{{ messages | wordwrap(9) }}")
    expect("unsupported", tool("dpe-run", "-m", model, "--chat", "-p", "x"), 65,
           err="chat_template.jinja: line 2: the filter 'wordwrap' is not supported")
    expect("unsupported in a sweep", tool("dpe-detect", *sweep[:-1], os.path.join(work, "u.h5")), 65,
           err="the filter 'wordwrap' is not supported")
    # The hf form: a folder with a config.json of type "dpe", read with its own rotation, and as a table.
    exported = os.path.join(work, "exported")
    os.mkdir(exported)
    for name in os.listdir(reference):
        if name.endswith((".json", ".safetensors")) and name != "config.json":
            os.symlink(os.path.join(reference, name), os.path.join(exported, name))
    config = os.path.join(exported, "config.json")
    table = os.path.join(work, "t.h5")
    expect("hf", tool("dpe-export", table, "--format", "hf", "-m", reference, "-o", config), 0)
    expect("hf, its rotation", tool("dpe-run", "-m", exported, "--info"), 0, out="config.json holds a table too")
    # Two blocks: both are in the model's own file, and the exported one has one.
    twice = os.path.join(work, "twice")
    os.mkdir(twice)
    for name in os.listdir(reference):
        if name.endswith((".json", ".safetensors")) and name != "config.json":
            os.symlink(os.path.join(reference, name), os.path.join(twice, name))
    with open(os.path.join(reference, "config.json"), encoding="utf-8") as f:
        two = {**json.load(f), "rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"factor": 2.0, "rope_theta": 20000.0}}
    with open(os.path.join(twice, "config.json"), "w", encoding="utf-8") as f:
        json.dump(two, f)
    expect("two blocks", tool("dpe-run", "-m", twice, "--info"), 0, out="runtimes differ transformers, vLLM, SGLang, llama.cpp, MLX")
    expect("two blocks, hf", tool("dpe-export", table, "--format", "hf", "-m", twice, "-o", os.path.join(work, "two.json")), 0)
    with open(os.path.join(work, "two.json"), encoding="utf-8") as f:
        written = json.load(f)
    with open(os.path.join(twice, "config.json"), encoding="utf-8") as f:
        own = f.read()
    if written["rope_parameters"]["config"] != own or "rope_scaling" in written:
        failures += 1
        print("the model's own file is not in the exported one:", written)
    plain = tool("dpe-run", "-m", reference, "-p", "Once", "-n", "4", "--quiet")
    expect("hf, run", tool("dpe-run", "-m", exported, "-p", "Once", "-n", "4", "--quiet"), 0, out=plain[1])
    expect("hf, its table", tool("dpe-run", "-m", exported, "--table", config, "-p", "Once", "-n", "4"), 0)
    for source, name in ((table, "a.json"), (config, "b.json")):
        expect("hf, to JSON", tool("dpe-export", source, "-o", os.path.join(work, name)), 0)
    with open(os.path.join(work, "a.json"), "rb") as a, open(os.path.join(work, "b.json"), "rb") as b:
        if a.read() != b.read():
            failures += 1
            print("the hf form holds the whole table")
    # A model that does not say its trained length runs with the one that is given, or that of a table.
    silent = os.path.join(work, "silent")
    os.mkdir(silent)
    for name in os.listdir(reference):
        if name.endswith((".json", ".safetensors")) and name != "config.json":
            os.symlink(os.path.join(reference, name), os.path.join(silent, name))
    with open(os.path.join(reference, "config.json"), encoding="utf-8") as f:
        said = {key: value for key, value in json.load(f).items() if key != "max_position_embeddings"}
    with open(os.path.join(silent, "config.json"), "w", encoding="utf-8") as f:
        json.dump(said, f)
    texts, known = ("--corpus", os.path.join(SOURCE, "data", "sample")), ("--trained-length", "256")
    own, plain = os.path.join(work, "own.h5"), os.path.join(work, "plain.json")
    for code, more in ((65, ()), (0, known)):
        words = {"err": "max_position_embeddings: expected an integer, or --trained-length"} if code else {}
        expect("info", tool("dpe-run", "-m", silent, "--info", *more), code, **words)
        expect("a table", tool("dpe-export", "--method", "dpe", "-m", silent, "-l", "1k", "-o", own, *more), code, **words)
        expect("a prompt", tool("dpe-run", "-m", silent, "-p", "a", "-n", "2", *more), code, **words)
        for name, *command in (("dpe-detect", "-l", "512", "--dry-run"), ("dpe-calibrate", "-l", "512", "--dry-run"),
                               ("dpe-norms", "--lengths", "64", "--samples", "1"), ("dpe-eval", "ppl", "-l", "300", "--samples", "1")):
            command += ["--method", "rope"] if name == "dpe-eval" else []
            expect(name, tool(name, *command, "-m", silent, *texts, "-o", os.path.join(work, "silent-" + name), *more), code, **words)
        expect("frequencies", tool("dpe-export", "--method", "mrrope", "-m", silent, "-l", "1k", "--format", "longrope", "-o", plain, *more),
               code, **words)
    for more in (("-p", "a", "-n", "2"), ("--show-plan",), ("--nll", os.path.join(SOURCE, "README.md"), "-c", "300")):
        expect("its table", tool("dpe-run", "-m", silent, "--table", own, *more), 0)
    expect("its document", tool("dpe-ask", "-m", silent, "--table", own, "-n", "2", "--document", os.path.join(SOURCE, "LICENSE"), "What?"), 0)
    expect("runtimes", tool("dpe-run", "-m", silent, "--runtimes", "transformers", *known), 0, out="All agree")
    expect("runtimes, table", tool("dpe-run", "-m", silent, "--runtimes", "transformers", "--table", own), 1, out="applies")
    expect("runtimes, no length", tool("dpe-run", "-m", silent, "--runtimes", "transformers"), 65, err="or --trained-length")
    with open(os.path.join(silent, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**said, "model_type": "mamba9"}, f)
    expect("an unknown class", tool("dpe-run", "-m", silent, "--runtimes", "transformers", *known), 0, out='model_type "mamba9" is no class that')
    # A conversation runs with the entry for what it has and may become, and unchanged up to the trained length of 256.
    ladder = os.path.join(work, "ladder.h5")
    longer = [word.replace("512", "1024") for word in sweep[:-1]] + [os.path.join(work, "longer.h5"), "--chat-template", "none"]
    expect("1024", tool("dpe-detect", *longer), 0)
    for source, entry in (("t.h5", "512.h5"), ("longer.h5", "1024.h5")):
        expect("its entry", tool("dpe-export", os.path.join(work, source), "-o", os.path.join(work, entry)), 0)
    expect("both", tool("dpe-export", "--join", *(os.path.join(work, f"{n}.h5") for n in (512, 1024)), "-o", ladder), 0)
    for what in (("--table", ladder), ("--method", "select:k=8,block=16,over=table:" + ladder)):
        chat = ("dpe-run", "-m", model, "--dtype", "f32", "--chat", "--chat-template", plain_template, *what)
        for new, entry in ((8, "none: the model is run unchanged"), (300, "for 512 tokens"), (600, "for 1024 tokens")):
            got = tool(*chat, "-p", "Who is it?", "-n", str(new), "--time-budget", "0.01")
            if "entry: " + entry not in got[2] or "may pass" in got[2]:
                failures += 1
                print(f"the entry for {new} new tokens, expected {entry}:", got[2])
        turns = tool(*chat, "-n", "100", text="Who is it?\n" * 6)
        entries = [line.split("entry: ")[1].split(":")[0].split(" tokens")[0]
                   for line in turns[2].splitlines() if "entry: " in line]
        if turns[0] != 0 or entries != ["none", "for 512", "for 1024"]:
            failures += 1
            print("one entry after another:", entries, turns)
    first = tool(*chat, "-p", "Who is it?", "-n", "8", "--quiet")
    unchanged = tool("dpe-run", "-m", model, "--chat", "--chat-template", plain_template, "-p", "Who is it?", "-n", "8",
                     "--quiet")
    expect("unchanged", first, 0, out=unchanged[1])
    for method, told in ((("--method", "yarn"), False), ((), True)):
        got = tool("dpe-run", "-m", model, "--chat", "--chat-template", plain_template, *method, "-p", "Who is it?",
                   "--time-budget", "0.01")
        if told != ("may pass the model's trained length of 256 tokens; --table or --method" in got[2]):
            failures += 1
            print("a method that makes it longer is not asked for:", method, got)
    begun = sweep[:-1] + [os.path.join(work, "begun.h5"), "--samples", "4", "--time-budget", "0.001", "--chat-template", "none"]
    expect("a sweep that is stopped", tool("dpe-detect", *begun), 75)
    for command in (("dpe-export", begun[begun.index("-o") + 1], "-o", os.path.join(work, "c.json")),
                    ("dpe-run", "-m", model, "-p", "x", "--table", begun[begun.index("-o") + 1])):
        expect("an unfinished sweep", tool(*command), 65, err=" samples; run the same command to finish it")

    def info(path):
        return tool("dpe-run", "-m", path, "--info")

    cache = os.path.join(work, "models--org--name")
    one = os.path.join(cache, "snapshots", "0123")
    os.makedirs(os.path.dirname(one))
    expect("no snapshot", info(cache), 66, err="without a finished snapshot")
    os.symlink(reference, one)
    for path in (cache, cache + "/", os.path.dirname(one), one):
        expect("its only snapshot", info(path), 0, out="folder          " + one)
    expect("its tokenizer", tool("dpe-run", "-m", cache, "--tokenize", "-p", "x"), 0)
    bench = ("-l", "16", "--new", "1", "--repeats", "1", "--method", "rope")
    expect("its speed", tool("dpe-bench", "--shape", cache, *bench), 0)
    os.symlink(reference, one + "4")
    expect("two snapshots", info(cache), 66, err="with 2 snapshots; give the one you mean")
    gguf = os.path.join(work, "model.gguf")
    with open(gguf, "wb") as f:
        f.write(b"GGUF\x03\0\0\0")
    expect("half a GGUF file", info(gguf), 65, err=gguf + ": its header does not end")
    expect("a folder with one", tool("dpe-bench", "--shape", work, *bench), 65, err=gguf + ": its header does not end")
    expect("a folder with one", info(work), 65, err=gguf + ": its header does not end")
    expect("its tokenizer", tool("dpe-run", "-m", gguf, "--tokenize", "-p", "x"), 65, err="its header does not end")
    hub = "hf download org/some-model --local-dir some-model, then -m some-model"
    expect("hub", info("org/some-model"), 66, err=hub)
    expect("hub", tool("dpe-detect", *sweep[2:], "-m", "org/some-model"), 66, err=hub)
    expect("a path", info("./org/some-model"), 66, err="./org/some-model: cannot be opened")
sys.exit(1 if failures else 0)

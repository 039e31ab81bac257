#!/usr/bin/env python3
"""Long tasks of lm-evaluation-harness on a server of a model under a table, against transformers under the same table, sample by sample:

    long_tasks.py URL NAME FOLDER TABLE WORK [TOKENS]

URL answers OpenAI's completions (dpe-serve, or vLLM with the plugin) for the model NAME, FOLDER is its folder, TABLE its table. The data is
made up, of about TOKENS (600) tokens a text, in the form of MRCR, LongBench v2, NoLiMa, RULER and HELMET's recall; their own sets are on
the hub. LongBench v2 and RULER are scored as lm_eval does, the other three, which it does not have, by the rule of their authors. The tasks
stay in WORK: `lm_eval --include_path WORK --tasks long_mrcr,…` runs them alone. Needs a Python with lm_eval, transformers and torch; exits
with 125 without."""
import json
import os
import random
import sys

SAMPLES, NEW = 2, 16
TASKS = ("long_mrcr", "long_longbench2", "long_nolima", "long_ruler", "long_helmet_recall")
SCORES = '''"""Scores of the tasks that lm_eval does not have, by the rule of their authors."""
import difflib


def mrcr(doc, results):
    """OpenAI's MRCR: nothing without the mark that the answer must begin with, else how much of the text is the same."""
    found, mark = results[0].strip(), doc["random_string_to_prepend"]
    same = difflib.SequenceMatcher(None, found[len(mark):], doc["answer"][len(mark):]).ratio()
    return {"score": same if found.startswith(mark) else 0.0}


def contains(doc, results):
    """NoLiMa: the name occurs in the answer."""
    return {"score": float(doc["answer"].lower() in results[0].lower())}


def recall(doc, results):
    """HELMET's substring_exact_match of recall."""
    return {"score": float(any(one.lower() in results[0].lower() for one in doc["answers"]))}


def ruler(doc, results):
    from lm_eval.tasks.ruler.common_utils import process_results
    return {"score": process_results(dict(doc, max_length=4096), results)["4096"]}
'''
GENERATES = '''task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "{text}"
doc_to_target: ""
process_results: !function long_scores.{rule}
metric_list:
  - metric: score
    aggregation: mean
    higher_is_better: true
generation_kwargs:
  do_sample: false
  temperature: 0.0
  max_gen_toks: {new}
  until: ["\\n\\n"]
metadata:
  version: 1.0
'''
# The lines of lm_eval's tasks/longbench2/_longbench_common_yaml, on other data.
CHOOSES = '''task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{text}"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
'''
CHOICES = "<text>\\n{{context}}\\n</text>\\n\\nWhat is the correct answer to this question: {{question.strip()}}\\nChoices:\\n" \
    "(A) {{choices[0]}}\\n(B) {{choices[1]}}\\n(C) {{choices[2]}}\\n(D) {{choices[3]}}\\n\\nAnswer:"
THINGS = "rain river tree stone bread winter harbour garden lamp bridge".split()
NAMES = "Ann Peter Mary John Helen Thomas".split()
LINES = ("The rain was over and the road was dry.", "He went to the house by the river.", "There was a light in the window.",
         "She had bread and a little milk.", "The old man sat by the fire.", "They walked until the evening.")


def filler(draw, count):
    """So many sentences, without line breaks."""
    return [draw.choice(LINES) for _ in range(count)]


def hidden(draw, count, *needles):
    """Sentences with needles between them."""
    lines = filler(draw, count)
    for needle in needles:
        lines.insert(draw.randrange(1, len(lines)), needle)
    return " ".join(lines)


def mrcr(draw, count):
    things, mark = draw.sample(THINGS, 4), f"{draw.randrange(10 ** 6):06d}"
    turns = [(thing, " ".join(filler(draw, 2))) for thing in things + things]
    while sum(len(text.split(".")) for _, text in turns) < count:
        turns.append((draw.choice(things[1:]), " ".join(filler(draw, 2))))
    asked = things[0]
    second = [text for thing, text in turns if thing == asked][1]
    lines = "\n".join(f"User: write a poem about the {thing}\nAssistant: {text}" for thing, text in turns)
    return {"prompt": f"{lines}\nUser: Prepend {mark} to the 2nd poem about the {asked}. Do not include any other text.\nAssistant: ",
            "answer": mark + second, "random_string_to_prepend": mark}


def longbench2(draw, count):
    right, thing = draw.randrange(4), draw.choice(THINGS)
    choices = draw.sample(NAMES, 4)
    return {"context": hidden(draw, count, f"{choices[right]} found the {thing}."), "question": f"Who found the {thing}?",
            "choices": choices, "answer": "ABCD"[right]}


def nolima(draw, count):
    name = draw.choice(NAMES)
    return {"prompt": hidden(draw, count, f"Actually, {name} lives next to the Semper Opera House.") +
            "\nQuestion: Which character has been to Dresden?\nAnswer: ", "answer": name}


def ruler(draw, count):
    thing, number = draw.choice(THINGS), str(draw.randrange(1000000, 9999999))
    return {"input": hidden(draw, count, f"One of the special magic numbers for {thing} is: {number}.") +
            f"\nWhat is the special magic number for {thing} mentioned in the provided text?",
            "gen_prefix": f"The special magic number for {thing} mentioned in the provided text is", "outputs": [number]}


def helmet(draw, count):
    keys = [f"{draw.randrange(10 ** 8):08d}" for _ in range(max(4, count // 2))]
    pairs = {key: f"{draw.randrange(10 ** 8):08d}" for key in keys}
    asked = draw.choice(keys)
    return {"prompt": f"JSON data:\n{json.dumps(pairs)}\n\nExtract the value corresponding to the specified key.\nKey: \"{asked}\"\n"
            "Corresponding value:", "answers": [pairs[asked]]}


def write(work, tokenizer, tokens):
    """The tasks, each with texts of about `tokens` tokens."""
    with open(os.path.join(work, "long_scores.py"), "w", encoding="utf-8") as file:
        file.write(SCORES)
    kinds = {"long_mrcr": (mrcr, "{{prompt}}", "mrcr"), "long_longbench2": (longbench2, CHOICES, None),
             "long_nolima": (nolima, "{{prompt}}", "contains"), "long_ruler": (ruler, "{{input}} {{gen_prefix}}", "ruler"),
             "long_helmet_recall": (helmet, "{{prompt}}", "recall")}
    for name, (make, text, rule) in kinds.items():
        count = 8
        while len(tokenizer(json.dumps(make(random.Random(name), count)))["input_ids"]) < tokens:
            count += 4
        data = os.path.join(work, name + ".jsonl")
        with open(data, "w", encoding="utf-8") as file:
            for i in range(SAMPLES):
                file.write(json.dumps(make(random.Random(f"{name} {i}"), count)) + "\n")
        with open(os.path.join(work, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write((CHOOSES if rule is None else GENERATES).format(name=name, data=data, text=text, rule=rule, new=NEW))


def main():
    url, name, folder, table, work = sys.argv[1:6]
    tokens = int(sys.argv[6]) if len(sys.argv) > 6 else 600
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["HF_HOME"] = os.path.join(work, "home")  # what datasets keeps
    try:
        import torch
        import transformers
        import lm_eval
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
    except ImportError as missing:
        print("skipped:", missing)
        sys.exit(125)
    import dpe_transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    write(work, tokenizer, tokens)
    longest = 4 * tokens  # of a text: nothing is cut off
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    dpe_transformers.apply(model, table)
    if tokenizer.eos_token is None:  # a folder of config.json and tokenizer.json alone
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(model.generation_config.eos_token_id)
    own = HFLM(pretrained=model, tokenizer=tokenizer, max_length=longest, batch_size=1, add_bos_token=True)
    served = ("local-completions", {"model": name, "base_url": url + "/v1/completions", "tokenizer": folder, "max_length": longest,
                                    "num_concurrent": 4, "max_retries": 1, "tokenized_requests": True, "timeout": 3600,
                                    "add_bos_token": True})
    found = []
    for backend, arguments in (served, (own, None)):
        result = lm_eval.simple_evaluate(model=backend, model_args=arguments, tasks=list(TASKS), bootstrap_iters=0,
                                         task_manager=TaskManager(include_path=work), log_samples=True, verbosity="ERROR")
        found.append(result["samples"])
    different = 0
    for task in TASKS:
        metric = "acc" if task == "long_longbench2" else "score"
        rows = [sorted(samples[task], key=lambda one: one["doc_id"]) for samples in found]
        assert len(rows[0]) == len(rows[1]) == SAMPLES
        for one, two in zip(*rows):
            if metric == "acc":
                same = all(abs(float(a[0]) - float(b[0])) < 1e-2 for a, b in zip(one["filtered_resps"], two["filtered_resps"]))
            else:
                same = one["filtered_resps"] == two["filtered_resps"]
            different += not same or one[metric] != two[metric]
            if not same:
                print(f"{task}, sample {one['doc_id']}: {one['filtered_resps']!r}, transformers {two['filtered_resps']!r}")
        scores = [100 * sum(row[metric] for row in side) / SAMPLES for side in rows]
        print(f"{task}: {scores[0]:.1f} served, {scores[1]:.1f} transformers", flush=True)
    assert not different, f"{different} of {len(TASKS) * SAMPLES} samples differ"
    print(f"{len(TASKS) * SAMPLES} samples: the same answers and scores")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Benchmarks end to end: generated samples, the same read from files, what was answered, its score.

    benchmarks_check.py BIN_FOLDER SOURCE_FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile

BIN, SOURCE = sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE, "tests", "golden"))
import make_scores  # noqa: E402

MODEL = os.path.join(SOURCE, "data", "reference")
CORPUS = os.path.join(SOURCE, "data", "sample")


def run(*arguments, code=0):
    done = subprocess.run([os.path.join(BIN, "dpe-eval"), *arguments], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def official(table):
    """{task: number} of what dpe-eval score prints."""
    rows = [line.split() for line in table.splitlines()]
    return {row[0]: float(row[6]) for row in rows if len(row) == 7 and row[0] != "task"}


def template(work):
    """The template of the needle task in the words that the reference model was trained on."""
    with open(os.path.join(SOURCE, "eval", "templates", "ruler.json"), encoding="utf-8") as file:
        words = json.load(file)
    question, answer = "\nQuestion: What are the numbers of {keys}?\nAnswer:", " The number of {keys}:"
    words.update(niah_intro="Remember every number named below.\n",
                 niah_needle="The number of {key}: {value}.",
                 niah_question_one=question, niah_question_many=question,
                 niah_answer_one=answer, niah_answer_many=answer)
    path = os.path.join(work, "words.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(words, file)
    return path


def check_ruler(work):
    tasks = ["niah_single_1", "niah_multivalue", "fwe"]
    common = ["-m", MODEL, "-l", "256", "--samples", "6", "--seed", "2", "--tasks", ",".join(tasks)]
    words = ["--corpus", CORPUS, "--template", template(work)]
    data, made, read = (os.path.join(work, name) for name in ("data", "made", "read"))
    methods = ["--method", "rope", "--method", "self-extend"]
    run("data", *common, *words, "-o", data)
    assert "--force replaces it" in run("data", *common, *words, "-o", data, code=78)
    run("ruler", *common, *words, *methods, "--predictions", made, "-o", made + ".h5")
    run("ruler", *common, "--data", data, *methods, "--predictions", read, "-o", read + ".h5")
    # Two at once: one writes; the other finds the lock held (73) or, started later, what was written (78).
    both = [subprocess.Popen([os.path.join(BIN, "dpe-eval"), "data", *common[:4], "--seed", str(seed), "--samples",
                              "400", "--tasks", tasks[0], *words, "-o", data + "2"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for seed in (0, 1)]
    said = [(one.communicate()[1], one.returncode) for one in both]
    assert sorted(code for _, code in said) in ([0, 73], [0, 78]), said
    assert any("LOCK: the run is held by" in text or "exists already" in text for text, _ in said), said
    winner = [seed for seed in (0, 1) if said[seed][1] == 0][0]
    run("data", *common[:4], "--seed", str(winner), "--samples", "400", "--tasks", tasks[0], *words, "-o", data + "3")
    assert lines(f"{data}2/{tasks[0]}/validation.jsonl") == lines(f"{data}3/{tasks[0]}/validation.jsonl")
    # Files of two methods whose names begin alike; a folder that cannot be one is refused before anything runs.
    long = "dpe:window=32,scales=" + "/".join(["1.0001"] * 16)
    alike = ["--method", long, "--method", long[:-1] + "2"]
    one = [*common[:4], "--tasks", tasks[0], "--samples", "1", "--data", data]
    run("ruler", *one, *alike, "--predictions", made + "3", "-o", made + "3.h5")
    assert len(os.listdir(made + "3")) == 2, os.listdir(made + "3")
    for wrong, code in ((made + ".h5", 73), (made + ".h5/x", 73), (work + "/nowhere/x", 73), ("", 64)):
        run("ruler", *one, *alike, "--predictions", wrong, "-o", made + "4.h5", code=code)
    assert not os.path.exists(made + "4.h5") and not os.path.exists(made + "4.h5.journal")
    total = 0.0
    for method in ("rope-256", "self-extend-256"):
        scores = official(run("score", "--suite", "ruler", "--predictions", f"{made}/{method}"))
        for task in tasks:
            written = lines(f"{made}/{method}/{task}.jsonl")
            samples = lines(f"{data}/{task}/validation.jsonl")
            assert written == lines(f"{read}/{method}/{task}.jsonl"), (method, task)
            for answer, sample in zip(written, samples, strict=True):
                for field in ("index", "input", "outputs", "length"):
                    assert answer[field] == sample[field], (method, task, field)
            mean = sum(make_scores.ruler(a["pred"], a["outputs"], True) for a in written) / len(written)
            assert scores[task] == round(mean * 100, 2), (method, task, scores[task], mean)
            total += mean
    assert total > 0.0  # else nothing was compared


def check_infinitebench(work):
    """A folder of our own in the official format; the scores of its answers, by both sets."""
    folder = os.path.join(work, "ib")
    os.mkdir(folder)
    options = ["alpha", "beta", "gamma", "delta"]
    data = {
        "longbook_qa_eng": {"input": "Who came?", "answer": ["the miller", "Silas"]},
        "longbook_choice_eng": {"input": "Which?", "answer": ["beta"], "options": options},
        "longdialogue_qa_eng": {"input": "", "answer": ["SILAS", "MILLER"]},
        "passkey": {"input": "What is the pass key?", "answer": ["71432"]},
        "number_string": {"input": "What are the digits?", "answer": ["3000077442"]},
        "kv_retrieval": {"input": "The value of 5e6b?", "answer": ["f1ec"]},
        "code_debug": {"input": "", "answer": ["gamma"], "options": options},
        "math_find": {"input": "The largest number?", "answer": [88]},
    }
    for task, sample in data.items():
        with open(f"{folder}/{task}.jsonl", "w", encoding="utf-8") as file:
            for i in range(3):
                text = " ".join(f"Silas said {n}." for n in range(40 * i + 5))
                file.write(json.dumps({"id": i, "context": text, **sample}) + "\n")
    for scorer in ("official", "string"):
        written = os.path.join(work, "answers-" + scorer)
        run("infinitebench", "-m", MODEL, "-l", "256", "--data", folder, "--method", "rope", "--scorer", scorer,
            "--predictions", written, "-o", written + ".h5")
        # The model may end its answer at once.
        table = run("score", "--suite", "infinitebench", "--scorer", scorer, "--predictions", f"{written}/rope-256",
                    "--skip-bad")
        scores = official(table)
        for task, sample in data.items():
            answers = lines(f"{written}/rope-256/{task}.jsonl")
            assert [a["id"] for a in answers] == [0, 1, 2]
            mean = 0.0
            for answer in answers:
                truth = answer["ground_truth"]
                wanted = sample["answer"]
                if "options" in sample:
                    wanted = [wanted[0], "ABCD"[options.index(wanted[0])]]
                assert truth == wanted or [truth] == wanted, (task, truth)
                truth = truth if isinstance(truth, list) else [truth]
                rule = make_scores.RULES["infinitebench", task, scorer]
                mean += rule(answer["prediction"], truth)
            assert abs(scores[task] - mean / 3) < 1e-12, (task, scores[task], mean / 3)


def check_together(work):
    """Both in one comparison, each with tasks, words, data and samples of its own: the answers are those of
    each alone."""
    written = os.path.join(work, "together")
    run("compare", "-m", MODEL, "--corpus", CORPUS, "-l", "256", "--seed", "2", "--method", "rope",
        "--suite", f"ruler:tasks=niah_single_1/fwe,samples=6,template={template(work)}",
        "--suite", f"infinitebench:tasks=passkey/math_find,samples=2,data={work}/ib",
        "--predictions", written, "-o", written + ".h5")
    files = {"niah_single_1": ("made", 6), "fwe": ("made", 6), "passkey": ("answers-official", 2),
             "math_find": ("answers-official", 2)}
    assert sorted(os.listdir(f"{written}/rope-256")) == sorted(f"{task}.jsonl" for task in files)
    for task, (alone, n) in files.items():
        assert lines(f"{written}/rope-256/{task}.jsonl") == lines(f"{work}/{alone}/rope-256/{task}.jsonl")[:n], task


def main():
    with tempfile.TemporaryDirectory() as work:
        check_ruler(work)
        check_infinitebench(work)
        check_together(work)


if __name__ == "__main__":
    main()

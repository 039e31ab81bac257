"""eval_check.py BIN SCHEMA_TOOL: dpe-eval end to end on the reference model, its results recomputed from
their rows with NumPy; runs that grow, stop and go on; grids; ablations; tables of other models.
Exit status 125 without h5py."""
import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError:
    print("skipped: no h5py")
    sys.exit(125)

BIN, SCHEMA = sys.argv[1:3]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "data", "reference")
INPUTS = ["-m", MODEL, "--corpus", os.path.join(ROOT, "data", "sample"), "--threads", "1", "--dtype", "f32"]
WORK = tempfile.mkdtemp()


def run(tool, *arguments, expect=0):
    done = subprocess.run([os.path.join(BIN, tool), *arguments], capture_output=True, text=True)
    assert done.returncode == expect, (arguments, done.returncode, done.stderr)
    return done


def out(name):
    return os.path.join(WORK, name)


def evaluate(command, name, *arguments, expect=0):
    return run("dpe-eval", command, *INPUTS, *arguments, "-o", out(name), expect=expect)


def text(values):
    return [value.decode() for value in values]


def rows_of(file):
    """(task, plan, sample) → index of the row."""
    tasks, plans = text(file["/tasks/task"][()]), text(file["/plans/plan"][()])
    rows = file["/rows"]
    keys = zip(rows["task"][()], rows["plan"][()], rows["sample"][()])
    return {(tasks[t], plans[p], int(s)): i for i, (t, p, s) in enumerate(keys)}


def check_suite(file, suite):
    """Every number of /eval/SUITE from the rows."""
    group, rows, at = file["/eval"][suite], file["/rows"], rows_of(file)
    tasks, plans = text(group["task"][()]), group["plan"][()]
    score, status = group["score"][()], group["status"][()]
    for m in range(score.shape[0]):
        for t, task in enumerate(tasks):
            assert task == "%s-%d" % (text(group["task_label"][()])[t], group["task_length"][t])
            for s in range(score.shape[2]):
                row = at.get((task, plans[m, t].decode(), s))
                if row is None:
                    assert status[m, t, s] == -1 and np.isnan(score[m, t, s])
                    continue
                assert status[m, t, s] == rows["status"][row] == 0
                if suite == "ppl":
                    assert group["nll_sum"][m, t, s] == rows["nll_sum"][row]
                    assert group["n_words"][m, t, s] == rows["n_words"][row]
                    assert score[m, t, s] == rows["nll_sum"][row] / rows["n_tokens"][row]
                else:
                    assert score[m, t, s] == rows["score"][row]
                    assert group["at_least_half"][m, t, s] == rows["at_least_half"][row]
    check_means(group, suite, score)
    assert text(file["/method"][()])[0] == file["/eval"].attrs["against"]


def check_means(group, suite, score):
    difference = np.nanmean(score - score[:1], axis=2)
    assert np.allclose(group["difference"][()], difference, atol=1e-12)
    assert (group["p_value"][()][0] == 1.0).all()
    assert (group["n_pairs"][()] == (~np.isnan(score)).sum(axis=2)).all()
    # One context has no interval.
    alone = group["n_pairs"][()] <= group.attrs["samples_together"]
    low, high = group["difference_low"][()], group["difference_high"][()]
    assert (np.isnan(low) == alone).all() and (np.isnan(high) == alone).all()
    assert (low[~alone] <= difference[~alone] + 1e-12).all()
    assert (high[~alone] >= difference[~alone] - 1e-12).all()
    if suite != "ppl":
        assert np.allclose(group["mean"][()], np.nanmean(score, axis=2), atol=1e-12)
        assert np.allclose(group["half_mean"][()], np.nanmean(group["at_least_half"][()], axis=2))
        return
    nll = np.nansum(group["nll_sum"][()], axis=2)
    counts = group["n_tokens"][()].astype(float)
    words = group["n_words"][()].astype(float)
    tokens = np.where(counts > 0, counts, 0).sum(axis=2)
    assert np.allclose(group["mean"][()], np.exp(nll / tokens))
    assert np.allclose(group["word_mean"][()],
                       np.exp(nll / np.where(words > 0, words, 0).sum(axis=2)))
    # Perplexity by position comes from the same sums: put together again it is that of all tokens.
    position = group["position_mean"][()]
    first = group["position"][()]
    last = np.append(first[1:], 1 << 40)
    total = np.zeros(nll.shape)
    for b in range(len(first)):
        size = np.clip(np.minimum(counts, last[b] - 1) - first[b] + 1, 0, None).sum(axis=2)
        total += np.where(size > 0, np.log(position[:, :, b]) * size, 0.0)
    assert np.allclose(total, nll)


def same(a, b):
    assert subprocess.run(["h5diff", "--exclude-path=/run", out(a), out(b)]).returncode == 0, (a, b)


FEW = ["--suite", "niah,ppl", "-l", "160", "--samples", "2", "--method", "rope",
       "--method", "self-extend:always=1"]
MANY = ["--suite", "niah,ppl", "-l", "256,160", "--samples", "3", "--method", "rope",
        "--method", "self-extend:always=1", "--method", "yarn:scale=2,always=1"]


def test_memory():
    """What a dry run prints for each method and length, with one thread; neither threads nor --max-memory decides it."""
    methods = ["rope", "longheads:always=1", "select:k=4,block=16,local=32,always=1"]
    given = [x for m in methods for x in ("--method", m)]
    evaluate("niah", "memory.h5", "-l", "160,256", "--samples", "1", *given)
    evaluate("niah", "memory_file.h5", "-l", "160,256", "--samples", "1", *given, "--threads", "3", "--max-memory", "8M")
    with h5py.File(out("memory.h5")) as file:
        memory = file["/eval/niah/memory"][()]
        assert file["/eval/niah/memory"].attrs["units"] in ("bytes", b"bytes")
    with h5py.File(out("memory_file.h5")) as file:
        assert (file["/eval/niah/memory"][()] == memory).all()
    assert (memory[:, 0] < memory[:, 1]).all() and len(set(memory[:, 1])) == 3, memory
    for m, method in enumerate(methods):
        for t, length in enumerate(("160", "256")):
            dry = evaluate("niah", "dry.h5", "-l", length, "--samples", "1", "--method", method, "--dry-run").stdout
            printed = float(re.search(r"^memory +([0-9.]+) MiB, and", dry, re.M).group(1))
            assert abs(printed - memory[m, t] / 2**20) < 0.06, (method, length, printed, memory[m, t])


def test_compare():
    ran = evaluate("compare", "few.h5", *FEW)
    assert "self-extend" in ran.stdout and "has a recall" in ran.stdout
    assert "has a perplexity" in ran.stdout and "interval" in ran.stdout
    with h5py.File(out("few.h5")) as file:
        check_suite(file, "niah")
        check_suite(file, "ppl")


def test_short():
    """Up to the trained length a method is the model itself, unless always=1; beyond it both are one."""
    methods = ["rope", "pi:scale=8", "pi:scale=8,always=1", "select:k=1,block=16,over=pi:scale=8,always=1"]
    evaluate("niah", "short.h5", "-l", "200,256,300", "--samples", "1", *[x for m in methods for x in ("--method", m)])
    with h5py.File(out("short.h5")) as file:
        plan = [text(keys) for keys in file["/eval/niah/plan"][()]]
    assert plan[1][:2] == plan[0][:2] and plan[2][:2] != plan[0][:2] and plan[2][:2] != plan[3][:2] != plan[0][:2], plan
    assert plan[1][2] == plan[2][2] != plan[0][2], plan


def test_what_is_added_runs_alone():
    shutil.copy(out("few.h5"), out("grown.h5"))
    ran = evaluate("compare", "grown.h5", *MANY)
    assert "resuming: 8 of 36 samples" in ran.stderr, ran.stderr
    evaluate("compare", "at_once.h5", *MANY)
    same("grown.h5", "at_once.h5")
    with h5py.File(out("grown.h5")) as file:
        assert text(file["/method"][()]) == ["rope", "self-extend:always=1", "yarn:scale=2,always=1"]
        assert file["/eval/ppl/task_length"][()].tolist() == [160, 256]
        check_suite(file, "niah")
        check_suite(file, "ppl")
    # Nothing is missing: nothing is run, the same is printed.
    again = evaluate("compare", "grown.h5", *MANY)
    assert "complete: no sample is missing" in again.stderr
    assert again.stdout == ran.stdout
    # Other samples are another run.
    refused = evaluate("compare", "grown.h5", *MANY, "--seed", "5", expect=78)
    assert "seed" in refused.stderr


def test_contexts_that_are_shared():
    # Asked together, one after another, or some of a context later: the same rows.
    asked = ["--niah", "keys=3,asked=3,values=2", "-l", "256", "--method", "rope", "--method",
             "self-extend:always=1", "--method", "pi:scale=8,always=1"]
    for n in ("1", "2", "5", "8"):
        evaluate("niah", "asked.h5", *asked, "--samples", n)
    evaluate("niah", "asked_at_once.h5", *asked, "--samples", "8")
    same("asked.h5", "asked_at_once.h5")
    with h5py.File(out("asked.h5")) as file:
        check_suite(file, "niah")
        # Three keys a context: a test of whether methods differ is over contexts, not samples; of so few by Student's t
        # with the variance of the contexts and that of their samples.
        score = file["/eval/niah/score"][()][:, 0]
        d = score[2] - score[0]
        m, largest = 8 / 3, np.abs(d).max()
        of_samples = (np.sum(d**2) + 2 * largest**2 - d.sum() ** 2 / 10) / 9 * (0.3 + 0.7 / m)
        of_contexts = np.var([d[:3].mean(), d[3:6].mean(), d[6:].mean()], ddof=1)
        t = abs(d.mean()) / np.sqrt((4 * of_samples + 2 * of_contexts) / 6 / 3)
        x = np.linspace(0.0, t, 200001)
        density = 15 / (16 * np.sqrt(6)) * (1 + x**2 / 6) ** -3.5 * 2
        p = 1 - np.sum((density[1:] + density[:-1]) / 2) * t / 200000
        assert d.any() and abs(file["/eval/niah/p_value"][2, 0] - p) < 1e-6, p
        assert file["/eval/niah"].attrs["samples_together"] == 3


def test_stop_and_go_on():
    # 48 rows take longer than the budget on any machine; a busy one may get to none of them.
    long = ["--suite", "niah", "-l", "256", "--samples", "24", "--method", "rope", "--method", "yarn:always=1"]
    evaluate("compare", "stopped.h5", *long, "--time-budget", "0.2", expect=75)
    for tries in range(200):
        done = subprocess.run([os.path.join(BIN, "dpe-eval"), "compare", *INPUTS, *long,
                               "--time-budget", str(2 + tries), "-o", out("stopped.h5")], capture_output=True)
        if done.returncode == 0:
            break
        assert done.returncode == 75, done.stderr
    evaluate("compare", "unstopped.h5", *long)
    same("stopped.h5", "unstopped.h5")


def test_grid():
    ran = evaluate("niah", "grid.h5", "--grid", "--depths", "1,-0,0.5", "-l", "160,256", "--samples",
                    "2", "--method", "rope", "--method", "pi:scale=8,always=1")
    assert "depth" in ran.stdout and "50 % " in ran.stdout
    with h5py.File(out("grid.h5")) as file:
        group, rows, at = file["/eval/niah_grid"], file["/rows"], rows_of(file)
        assert group["depth"][()].tolist() == [0.0, 0.5, 1.0]
        assert group["length"][()].tolist() == [160, 256]
        score = group["score"][()]
        assert score.shape == (2, 3, 2, 2)
        for m, d, l, s in np.ndindex(*score.shape):
            task = "depth-%g-%d" % (group["depth"][d], group["length"][l])
            row = at[(task, group["plan"][m, l].decode(), s)]
            assert score[m, d, l, s] == rows["score"][row]
        assert np.allclose(group["mean"][()], score.mean(axis=3))
        assert [scale[0].name for scale in group["score"].dims] == [
            "/method", "/eval/niah_grid/depth", "/eval/niah_grid/length", "/eval/niah_grid/sample"]
        # The needle lies where the grid puts it: at the end of the haystack, after all of it.
        assert score[0].mean() > score[1].mean() - 1e-9


def test_sliding():
    evaluate("ppl", "sliding.h5", "-l", "128", "--stride", "100", "--max-tokens", "300", "--samples",
             "2", "--method", "rope")
    with h5py.File(out("sliding.h5")) as file:
        check_suite(file, "ppl")
        assert (file["/eval/ppl/n_tokens"][()] == 299).all()


def check_tune(name, fresh, budget):
    """Every number of /tune from the rows."""
    with h5py.File(out(name)) as file:
        group, rows, at = file["/tune"], file["/rows"], rows_of(file)
        setting = group["setting"]
        first = int(group.attrs["first_fresh_sample"])
        assert group.attrs["fresh_samples"] == fresh and group.attrs["budget"] == budget
        of, spec, plan = setting["of"][()], text(setting["spec"][()]), text(setting["plan"][()])
        lengths = group["length"][()]
        chosen_of = {}
        for g, chosen in enumerate(text(group["chosen"][()])):
            task = "niah-%d" % lengths[g]
            arms = np.flatnonzero(of == g)
            ran = setting["samples"][()][arms]
            for arm, n in zip(arms, ran):
                scores = [rows["score"][at[(task, plan[arm], s)]] for s in range(n)]
                mean = setting["mean"][arm]
                assert abs(np.mean(scores) - mean) < 1e-12 if n > 0 else np.isnan(mean)
            # As many rows for each, none of them fresh; dropped settings stop.
            assert ran.sum() == group["rows"][g] <= budget
            live = arms[setting["dropped"][()][arms] < 0]
            assert (setting["samples"][()][live] == group["samples"][g]).all()
            best = live[np.argmax(setting["mean"][()][live])] if len(arms) > 1 else arms[0]
            assert spec[best] == chosen
            fresh_scores = [np.array([rows["score"][at[(task, plan[arm], first + s)]] for s in range(fresh)])
                            for arm in (arms[0], best)]
            chosen_of[g] = fresh_scores[1]
            against = chosen_of[np.flatnonzero(lengths == lengths[g])[0]]
            for name, values in (("default_mean", fresh_scores[0]), ("mean", fresh_scores[1]),
                                 ("gain", fresh_scores[1] - fresh_scores[0]), ("ahead", fresh_scores[1] - against)):
                assert abs(group[name][g] - values.mean()) < 1e-12, name
            differences = fresh_scores[1] - against
            turned = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=fresh)]
            p = np.mean(np.array(turned) >= abs(differences.sum()) - 1e-9) if differences.any() else 1.0
            assert not differences.sum() or abs(group["ahead_p_value"][g] - p) < 1e-12
        assert all(s < 1000 or s >= first for _, _, s in at)
        return {g: n for g, n in enumerate(group["rows"][()])}


def test_tune():
    races = ["-l", "256,384", "--method", "self-extend:group=2/3,window=16/32", "--method", "rope",
             "--method", "pi:scale=1/16", "--niah", "values=1"]
    priced = run("dpe-eval", "tune", *INPUTS, *races, "--budget", "40", "--samples", "6", "--dry-run")
    for length in (256, 384):
        assert re.search(r"^niah-%d +%d samples of" % (length, 40 + 12 + 6 + 40 + 12), priced.stdout, re.M), priced.stdout
    assert re.search(r"^memory .*^time  ", priced.stdout, re.M | re.S), priced.stdout
    # Beside the defaults: a list is one value; what follows over= are keys of the method there.
    for spec, settings in (("dpe:scales=2/4", 1), ("dpe:scales=2/4,window=16/32", 2),
                           ("select:k=2/4,over=dpe:scales=2/4,window=16/32", 4), ("select:block=16,over=pi:scale=2/4", 2)):
        counted = run("dpe-eval", "tune", *INPUTS, "-l", "384", "--method", spec, "--dry-run").stdout
        assert re.search(r"^%s +384 +%d " % (spec.split(":")[0], settings + 1), counted, re.M), counted
    ran = evaluate("tune", "tune.h5", *races, "--budget", "40", "--samples", "6")
    assert "tuned - defaults" in ran.stdout and "self-extend" in ran.stdout
    check_tune("tune.h5", 6, 40)
    with h5py.File(out("tune.h5")) as file:
        # Position interpolation by 16 is hopeless: of three settings at 384 tokens it is dropped first.
        spec, dropped = text(file["/tune/setting/spec"][()]), file["/tune/setting/dropped"][()]
        assert spec[-1] == "pi:scale=16" and dropped[-1] > 0, list(zip(spec, dropped))
    document = json.loads(evaluate("tune", "tune.h5", *races, "--budget", "40", "--samples", "6", "--json").stdout)
    with h5py.File(out("tune.h5")) as file:
        assert [row["chosen"] for row in document["results"]] == text(file["/tune/chosen"][()])
        assert np.allclose([row["gain"] for row in document["results"]], file["/tune/gain"][()])
    run("dpe-report", out("tune.h5"), "-o", out("tune.html"), "--figures", out("tune-csv"))
    with h5py.File(out("tune.h5")) as file, open(os.path.join(out("tune-csv"), "tune.csv"), newline="") as lines:
        rows = list(csv.DictReader(lines))
        assert [row["chosen setting"] for row in rows] == text(file["/tune/chosen"][()])
        assert np.allclose([float(row["tuned"]) for row in rows], 100 * file["/tune/mean"][()])
    priced = json.loads(run("dpe-eval", "tune", *INPUTS, *races, "--budget", "40", "--dry-run", "--json").stdout)
    assert [row["settings"] for row in priced["methods"]] == [4, 1, 2, 4, 1, 3], priced
    # Stopped and continued, or grown: the same table as at once.
    done = 75
    for tries in range(200):
        done = subprocess.run([os.path.join(BIN, "dpe-eval"), "tune", *INPUTS, *races, "--budget", "40", "--samples", "6",
                               "--time-budget", str(0.2 + tries), "-o", out("tune_stopped.h5")],
                              capture_output=True).returncode
        if done != 75:
            break
    assert done == 0
    same("tune.h5", "tune_stopped.h5")
    shutil.copy(out("tune.h5"), out("tune_grown.h5"))
    evaluate("tune", "tune_grown.h5", *races, "--budget", "60", "--samples", "8")
    check_tune("tune_grown.h5", 8, 60)
    evaluate("tune", "tune_at_once.h5", *races, "--budget", "60", "--samples", "8")
    with h5py.File(out("tune_grown.h5")) as grown, h5py.File(out("tune_at_once.h5")) as once:
        for name in ("mean", "gain", "ahead_p_value", "rows", "default_ci_low"):
            assert np.array_equal(grown["/tune"][name][()], once["/tune"][name][()]), name
    # A smaller budget ends the search where it ends for a run that never had more.
    evaluate("tune", "tune_grown.h5", *races, "--budget", "40", "--samples", "6")
    with h5py.File(out("tune_grown.h5")) as shrunk, h5py.File(out("tune.h5")) as plain:
        for name in ("mean", "rows", "samples", "setting/samples", "setting/dropped", "ahead_p_value"):
            assert np.array_equal(shrunk["/tune"][name][()], plain["/tune"][name][()]), name
    refused = evaluate("tune", "tune.h5", *races, "--seed", "5", expect=78)
    assert "seed" in refused.stderr
    refused = evaluate("niah", "tune.h5", "-l", "256", "--method", "rope", expect=78)
    assert "kind" in refused.stderr, refused.stderr


def test_ablate():
    run("dpe-detect", *INPUTS, "-l", "224", "--samples", "2", "--trained-length", "64", "--niah",
        "values=1", "--select", "paper", "--temperature", "off", "-o", out("detect.h5"))
    run("dpe-norms", *INPUTS, "--lengths", "64", "--samples", "1", "-o", out("norms.h5"))
    short = ["--table", out("detect.h5"), "--samples", "1", "--niah", "values=1", "--trained-length",
             "64"]
    ran = evaluate("ablate", "rank.h5", *short, "--what", "rank")
    assert "rank 1" in ran.stdout and "base" in ran.stdout
    with h5py.File(out("rank.h5")) as file, h5py.File(out("detect.h5")) as detect:
        n = detect["/length"].shape[0]
        assert text(file["/method"][()]) == ["rope", "base"] + ["rank %d" % (i + 1) for i in range(n)]
        assert text(file["/ablate/axis"][()]) == ["rope", "base"] + ["rank"] * n
        assert file["/ablate/value"][()][2:].tolist() == list(range(1, n + 1))
        assert file["/ablate"].attrs["what"] == "rank"
        # Rope, base and the best lengths together are what the detection validated.
        assert text(file["/eval/niah/plan"][()][:3, 0]) == text(detect["/validate/plan"][()])
        check_suite(file, "niah")
        joint = file["/eval/niah/score"][()][2]
    evaluate("ablate", "top.h5", *short, "--what", "top-k", "--norms", out("norms.h5"), "--values",
             "32,0,3")
    with h5py.File(out("top.h5")) as file:
        assert text(file["/method"][()])[2:] == ["top-k 0", "top-k 3", "top-k 32"]
        assert file["/ablate/k"][()].tolist() == [-1, -1, 0, 3, 32]
        scores = file["/eval/niah/score"][()]
        assert (scores[2] == scores[0]).all()  # no pair moved: the model as it is
        assert (scores[4] == joint).all()  # every pair moved: the detection's joint plan
    evaluate("ablate", "alone.h5", *short, "--what", "top-k", "--norms", out("norms.h5"), "--values",
             "3,32", "--alone")
    with h5py.File(out("alone.h5")) as file:
        assert text(file["/method"][()]) == ["top-k 3", "top-k 32"]
        assert (file["/eval/niah/score"][()] == scores[3:]).all()
        assert (file["/eval/niah/p_value"][()][0] == 1).all()
    said = evaluate("ablate", "window.h5", *short, "--what", "window", "--values", "4,8")
    assert "was made for" not in said.stderr
    said = evaluate("ablate", "window.h5", *short, "--what", "window", "--values", "4", "-l", "272")
    assert "was made for 224 tokens, --length goes to 272" in said.stderr
    evaluate("ablate", "scaled.h5", *short, "--what", "scaled-length", "--values", "32", "--norms",
             out("norms.h5"))
    with h5py.File(out("scaled.h5")) as file:
        assert file["/ablate/k"][()][2:].tolist() == [4, 8, 12, 16, 20, 24, 28, 32]
        assert (file["/ablate/value"][()][2:] == 32).all()
    refused = evaluate("ablate", "x.h5", *short, "--what", "last-k", expect=64)
    assert "--norms" in refused.stderr
    refused = evaluate("ablate", "x.h5", *short, "--what", "rank", "--values", "99", expect=64)
    assert "of the detection's sweep" in refused.stderr
    refused = evaluate("ablate", "x.h5", "--table", out("norms.h5"), "--what", "rank", expect=65)
    assert "norms.h5" in refused.stderr
    refused = evaluate("ablate", "x.h5", *short, "--what", "top-k", "--norms", out("few.h5"),
                       expect=65)
    assert "few.h5: expected a profile of dpe-norms" in refused.stderr, refused.stderr


def test_tables_of_other_models():
    """Same shape is not enough: frequencies and fingerprint are compared."""
    table = ["--table", out("detect.h5"), "-l", "160", "--samples", "1"]
    for change, words in ((dict(rope_theta=12345.0), "the RoPE base or RoPE scaling differs"),
                          (dict(max_position_embeddings=512), "--other-model")):
        folder = out("model-" + next(iter(change)))
        shutil.copytree(MODEL, folder)
        path = os.path.join(folder, "config.json")
        os.chmod(path, 0o644)
        with open(path) as file:
            config = json.load(file)
        if "rope_theta" in change and "rope_parameters" in config:
            config["rope_parameters"]["rope_theta"] = change["rope_theta"]
        else:
            config.update(change)
        with open(path, "w") as file:
            json.dump(config, file)
        inputs = ["-m", folder, "--corpus", INPUTS[3]]
        for tool, arguments in (("dpe-eval", ["niah", *inputs, *table, "-o", out("other.h5")]),
                                ("dpe-run", ["-m", folder, "--table", out("detect.h5"), "-p", "It",
                                             "-n", "1"])):
            refused = run(tool, *arguments, expect=65)
            assert words in refused.stderr and "detect.h5" in refused.stderr, refused.stderr
            if words == "--other-model":
                run(tool, *arguments, "--other-model")


def test_kld():
    """A method is not far from itself, and a cache in int8 not far; buckets add up; ratios are those of perplexities."""
    small = ["-l", "300", "--samples", "3", "--method", "rope", "--method", "yarn"]
    evaluate("kld", "kld.h5", *small)
    evaluate("ppl", "kldppl.h5", *small)
    evaluate("kld", "kldcache.h5", *small[:4], "--method", "self-extend", "--base", "self-extend", "--kv-cache-dtype", "int8")
    # A base that is kept is read once, and again by another command; what it rounds is small and told.
    for name in ("kldkept.h5", "kldagain.h5"):
        evaluate("kld", name, *small, "--save-base", out("base.logits"))
    with h5py.File(out("kld.h5")) as file, h5py.File(out("kldkept.h5")) as kept, h5py.File(out("kldagain.h5")) as again:
        assert np.allclose(kept["/kld/mean"], file["/kld/mean"], rtol=1e-4, atol=1e-6)
        assert np.array_equal(kept["/kld/mean"], again["/kld/mean"]) and np.allclose(kept["/kld/ratio"], file["/kld/ratio"], rtol=1e-9)
        assert 0 < kept["/kld"].attrs["base_rounding_mean"] < kept["/kld"].attrs["base_rounding_max"] < 1e-6
    with h5py.File(out("kld.h5")) as file, h5py.File(out("kldppl.h5")) as other:
        group = file["/kld"]
        assert not group["mean"][0] and not group["max"][0] and group["same_top"][0] == 1
        assert list(group["position"]) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
        n = group["position_n_tokens"][1]
        assert n.sum() == group["n_tokens"][1] == 3 * 299
        for name in ("mean", "same_top", "change_mean"):
            assert np.isclose((group["position_" + name][1] * n).sum() / n.sum(), group[name][1], rtol=1e-9), name
        assert group["position_max"][1].max() == group["max"][1] and group["median"][1] <= group["p90"][1] <= group["p99"][1]
        assert group["mean"][1] > 0.05, group["mean"][()]
        assert group["ci_low"][1] < group["mean"][1] < group["ci_high"][1]
        sums = other["/eval/ppl/nll_sum"][()].reshape(2, 3).sum(axis=1)
        assert np.isclose(group["ratio"][1], np.exp((sums[1] - sums[0]) / (3 * 299)), rtol=1e-4)
    with h5py.File(out("kldcache.h5")) as file:
        assert 0 < file["/kld/mean"][0] < 1e-3 and file["/kld"].attrs["base"] == "self-extend"


def test_a_model_of_nan():
    """A model that computes nothing gives no result: every tool ends with 70, a resumed one too."""
    folder = out("nan")
    os.mkdir(folder)
    for name in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(os.path.join(MODEL, name), folder)
    with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        begin, end = json.loads(file.read(size))["model.layers.0.self_attn.q_proj.weight"]["data_offsets"]
        file.seek(8 + size + begin)
        file.write(b"\xc0\x7f" * ((end - begin) // 2))
    inputs = ["-m", folder, *INPUTS[2:], "--samples", "2"]
    for _ in range(2):
        for tool, arguments, name in (("dpe-eval", ["compare", "--suite", "niah,ppl", "-l", "128", "--method", "rope"],
                                       "nan.h5"),
                                      ("dpe-eval", ["tune", "-l", "128", "--method", "pi:scale=1/2"], "nantune.h5"),
                                      ("dpe-eval", ["kld", "-l", "128", "--method", "yarn"], "nankld.h5"),
                                      ("dpe-norms", ["--lengths", "64"], "nannorms.h5")):
            ran = run(tool, *arguments, *inputs, "-o", out(name), expect=70)
            assert "samples had NaN or infinity in their logits" in ran.stderr, ran.stderr


def main():
    tests = [test_memory, test_short, test_compare, test_what_is_added_runs_alone, test_contexts_that_are_shared,
             test_stop_and_go_on, test_grid, test_sliding, test_tune, test_ablate, test_kld,
             test_tables_of_other_models, test_a_model_of_nan]
    try:
        for test in tests:
            test()
            print("passed:", test.__name__, flush=True)
        tables = [out(name) for name in sorted(os.listdir(WORK)) if name.endswith(".h5")]
        subprocess.run([SCHEMA, *tables], check=True)
        print("passed: schema of", len(tables), "tables")
    finally:
        shutil.rmtree(WORK)


if __name__ == "__main__":
    main()

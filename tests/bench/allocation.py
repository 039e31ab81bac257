#!/usr/bin/env python3
"""How a search should spend the contexts that its candidates read: rules replayed on finished rows.

usage: allocation.py [--worlds W] [--tests R] SEARCH.h5 MATRIX.h5 PPL.h5 ...

SEARCH is a table of dpe-detect (a stopped run's will do) that has tried heats 0 and 1; MATRIX is a table of dpe-eval niah
with all of these methods on the same samples (of poor ones the first will do: they repeat theirs).  A context is the
questions that share a reading.  PPL is a table of dpe-eval ppl with these methods: the guard, which every rule has for nothing.

A world is a split of the contexts: a rule meets two thirds of them in a random order, and ends with a plan; what counts is
what that plan finds in the other third. (Scored by the contexts that were read too, what finds most looks better than it is: of
38 plans one always does.)  All rules meet the same worlds.  Standard errors are those of the mean over all contexts: the
deviation over worlds, less what a third varies more, of differences pairwise.  The user's task is not replayed.  Then tests of
fresh contexts: a fixed number, and GSPRT.  Needs h5py and numpy.
"""

import argparse
import math
import re
import sys

import h5py
import numpy as np

BUDGETS = 12, 40, 80, 160
CLEAR, ONE, TIE = 0.1, 0.1, 1e-9  # of search.h, choose.c, ranking.h


def quantile(freedom):
    """t with P(|T| <= t) = 0.95 (Cornish-Fisher, within 0.004 from five degrees of freedom on)."""
    z = 1.959964
    return z + (z ** 3 + z) / (4 * freedom) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2) \
        + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * freedom ** 3)


class Matrix:
    def __init__(self, search, matrix, texts):
        with h5py.File(search) as table:
            found = {name: table["search"][name][()] for name in ("method", "plan", "heat", "kind", "table", "no_adapter")}
            together = int(re.search(r"asked=(\d+)", table["detect"].attrs["niah_parameters"]).group(1))
        with h5py.File(matrix) as table:
            rows = {name: table["rows"][name][()] for name in ("plan", "sample", "score", "status")}
            plans = list(table["plans/plan"][()])
        with h5py.File(texts) as table:
            text = {name: table["rows"][name][()] for name in ("plan", "nll_sum", "n_tokens")}
            read = list(table["plans/plan"][()])
        use = [i for i in range(len(found["method"])) if found["heat"][i] < 2]
        for path, there in ((matrix, plans), (texts, read)):
            lacking = [found["method"][i].decode() for i in use if found["plan"][i] not in there]
            if lacking:
                sys.exit(f"{path} lacks {', '.join(lacking)}, which {search} tried")
        self.nll = np.array([text["nll_sum"][text["plan"] == read.index(found["plan"][i])].sum() /
                             text["n_tokens"][text["plan"] == read.index(found["plan"][i])].sum() for i in use])
        samples = rows["sample"].max() + 1
        score = np.full((len(plans), samples), np.nan)
        ok = rows["status"] == 0
        score[rows["plan"][ok], rows["sample"][ok]] = rows["score"][ok]
        score = score[[plans.index(found["plan"][i]) for i in use]]
        score = score[:, :samples // together * together].reshape(len(use), -1, together)
        there = np.isfinite(score).all(axis=2)
        self.score = score[:, there.sum(axis=0) > len(use) / 2]  # [plan][context][question]
        there = there[:, there.sum(axis=0) > len(use) / 2]
        self.repeating = int((~there).any(axis=1).sum())
        for k in range(len(use)):
            self.score[k] = np.resize(self.score[k, there[k]], self.score[k].shape)
        self.heat, self.able, self.plain = (found[name][use] for name in ("heat", "table", "no_adapter"))
        kinds = [b"unchanged", b"formula", b"method", b"searched"]
        self.kind = np.array([kinds.index(found["kind"][i]) for i in use])
        self.names = [found["method"][i].decode() for i in use]


class Run:
    """One search: what has been read, and what it may still read."""

    def __init__(self, matrix, score, budget):
        self.matrix, self.score, self.budget = matrix, score, budget
        self.mean = score.mean(axis=2)  # [plan][context in the order of reading]
        self.n = np.zeros(len(score), int)
        self.most = score.shape[1]

    def spent(self):
        return self.n.sum()

    def read(self, plans, contexts):
        plans = np.asarray(plans, int)
        needs = np.maximum(0, contexts - self.n[plans]).sum()
        if contexts > self.most or (self.spent() + needs > self.budget and self.spent() > 0):
            return False
        self.n[plans] = np.maximum(self.n[plans], contexts)
        return True

    def means(self, plans, contexts):
        return self.mean[plans, :contexts].mean(axis=1)

    def best(self, last):
        """Of those that have read at least half as much as any, by the final rule on the contexts of all of them."""
        live = [k for k in range(len(self.n)) if 2 * self.n[k] >= self.n.max()]
        return last(self, live, self.n[live].min(), -1)

    def may(self, live):
        """Indices into live of what the guard and a table allow."""
        least = min(self.matrix.nll[live])
        return [i for i in range(len(live)) if self.matrix.able[live[i]] and self.matrix.nll[live[i]] <= least + math.log1p(0.05)]


def error_of(d):
    """As choose.c: a quarter of the interval of dpe_compare. d: differences [context][question]."""
    n, m = d.shape
    if n < 2:
        return ONE
    largest = np.abs(d).max() or 1.0
    questions = ((d ** 2).sum() + 2 * largest ** 2 - d.sum() ** 2 / (d.size + 2)) / (d.size + 1)
    seen = ((d.mean(axis=1) - d.mean()) ** 2).sum()
    expected = questions * (0.3 + 0.7 / m)
    variance = (4 * expected + seen) / (n + 3) if seen > 0 else expected
    return quantile(n + 3) / 2 * math.sqrt(variance / n)


def choose(run, live, contexts, held, errors=1.0):
    """choose.c, where `errors` is one: of those that are so many standard errors behind the one that finds most, the plan that
    needs least to be believed; 0: what finds most."""
    matrix, mean = run.matrix, run.means(live, contexts)
    able = run.may(live)
    best = able[0]
    for i in able:
        best = i if mean[i] > mean[best] + TIE else best
    rank = [2.5 if k == held else matrix.kind[k] for k in live]
    chosen = best
    for i in able:
        if rank[i] < rank[chosen]:
            d = run.score[live[best], :contexts] - run.score[live[i], :contexts]
            chosen = i if d.mean() <= errors * error_of(d) else chosen
    return live[chosen]


# ------------------------------------------------------------------------------------------- the rules

def heats(run, last=choose, rank=None, first=2, part=0):
    """search.c. rank: of the live plans by something else than their means; first: contexts that heat 1 begins with; part:
    heat 1 comes in parts of so many candidates; last: the final rule."""
    matrix = run.matrix
    begin = [k for k in range(len(matrix.names)) if matrix.heat[k] == 0]
    rank = rank or (lambda run, live, contexts: run.means(live, contexts))
    later = [k for k in range(len(matrix.names)) if matrix.heat[k] == 1]
    parts = [later[i:i + part] for i in range(0, len(later), part)] if part else [later]
    best = plain = -1
    for heat in range(1 + len(parts)):
        if heat == 0:
            live = begin
            rungs = [1, 2]
        else:
            live = list(dict.fromkeys([k for k in (best, 1, plain) if k >= 0])) + parts[heat - 1]
            rungs = [r for r in (1, 2, 4, 8) if r >= first]
        contexts, go = 0, True
        for rung, wanted in enumerate(rungs):
            wanted = min(wanted, run.most)
            go = run.read(live, wanted)
            if not go:
                break
            contexts, mean = wanted, rank(run, live, wanted)
            order = sorted(range(len(live)), key=lambda i: (-mean[i], i))
            plains = [i for i in order if matrix.plain[live[i]]]
            if heat == 0 and matrix.kind[live[order[0]]] == 1 and mean[order[0]] - mean[order[1]] >= CLEAR:
                break
            if rung < len(rungs) - 1:
                left = 2 if heat == 0 or rung > 0 else max(2, (len(live) + 2) // 3)
                keep = set(order[:left] + plains[:1])
                keep |= {i for i in range(len(live)) if matrix.kind[live[i]] == 1 or (heat and live[i] == best) or
                         (matrix.kind[live[i]] == 0 and mean[order[0]] - mean[i] <= CLEAR)}
                live = [live[i] for i in sorted(keep)]
        if contexts:
            mean = rank(run, live, contexts)
            plain = max([k for k in live if matrix.plain[k]], key=lambda k: mean[live.index(k)], default=plain)
            best = last(run, live, contexts, best)
        if not go:
            break
    return best


def find_most(run, live, contexts, held):
    return choose(run, live, contexts, held, 0.0)


class Additive:
    """A plan's recall as the sum of what its family, temperature, window and lengths add and something of its own, and of
    what a context adds; each normal. The variances are those of the whole matrix, which no search would know: so this is
    more than such a model can gain."""

    def __init__(self, matrix):
        self.matrix = matrix
        mean = matrix.score.mean(axis=2)
        self.same = self.features()
        off = mean - mean.mean(axis=0)
        off = off - off.mean(axis=1, keepdims=True)
        self.noise = off.var() * mean.shape[1] / (mean.shape[1] - 1)
        self.context = mean.mean(axis=0).var()
        used = np.flatnonzero(matrix.kind > 0)
        self.centre = mean[used].mean()
        y = mean[used].mean(axis=1) - self.centre
        rng = np.random.default_rng(1)
        scored = []
        for _ in range(400):
            shares = rng.dirichlet(np.full(len(self.same), 0.5)) * y.var() * rng.uniform(0.5, 2)
            shares[-1] = max(shares[-1], 1e-5)
            k = np.tensordot(shares, self.same[:, used][:, :, used], 1) + np.eye(len(used)) * self.noise / mean.shape[1]
            scored.append((-np.linalg.slogdet(k)[1] - y @ np.linalg.solve(k, y), tuple(shares)))
        self.shares = np.array(max(scored)[1])
        self.cov = np.tensordot(self.shares, self.same, 1)

    def features(self):
        def part(name, key):
            found = re.search(rf"{key}=([^,]*)", name)
            return found.group(1) if found else None
        columns = []
        for name in self.matrix.names:
            lengths = part(name, "lengths")
            columns.append((name.split(":")[0] + str(part(name, "form")),
                            (part(name, "log-n-power") or "1") if part(name, "log-n") else part(name, "logit-scale") or "none",
                            part(name, "window"), lengths, name))
        return np.array([[[a is not None and a == b for b in column] for a in column] for column in zip(*columns)], float)

    def __call__(self, run, live, contexts):
        at = [(k, c) for k in np.flatnonzero(run.n) if self.matrix.kind[k] > 0 for c in range(run.n[k])]
        k, c = np.array(at).T
        cov = self.cov[np.ix_(k, k)] + self.context * (c[:, None] == c[None]) + self.noise * np.eye(len(at))
        y = np.linalg.solve(cov, run.mean[k, c] - self.centre)
        mean = self.centre + self.cov[np.ix_(live, k)] @ y
        unchanged = self.matrix.kind[live] == 0
        mean[unchanged] = run.means(np.array(live)[unchanged], contexts)
        return mean


def additive_last(model):
    def last(run, live, contexts, held):
        mean = model(run, live, contexts)
        return live[max(run.may(live), key=lambda i: mean[i])]
    return last


def listed(run):
    """The first candidates that a rule with a budget can read twice each; heat 0 at least."""
    return list(range(min(len(run.matrix.names), max((run.matrix.heat == 0).sum(), run.budget // 2))))


def uniform(run, last=choose):
    live = listed(run)
    while run.read(live, run.n[live[0]] + 1):
        pass
    return run.best(last)


def continuous(run, last=choose):
    """CR-C of Wang, Tzeng and Proutiere 2023 (arXiv 2312.12137), which needs the budget: the worst of j plans with n contexts
    each is rejected when the next one leads it by sqrt((budget - read by the rejected) / (j n (1/2 + 1/2 + ... + 1/j))) - 1."""
    live = listed(run)
    while len(live) > 1 and run.read(live, run.n[live[0]] + 1):
        while len(live) > 1:
            n, j = run.n[live[0]], len(live)
            mean = run.means(live, n)
            worst = max(range(j), key=lambda i: (-mean[i], i))
            gap = min(mean[i] for i in range(j) if i != worst) - mean[worst]
            share = j * n * (0.5 + sum(1 / i for i in range(2, j + 1))) / (run.budget - (run.spent() - j * n))
            if gap < 1 / math.sqrt(share) - 1:
                break
            live.pop(worst)
    return run.best(last)


def challengers(run, last=choose, z=1.0, at_once=4, spread=0.2):
    """Continuous rejection that does not know the budget: a plan that is z standard errors behind the leader on the same contexts
    reads no further. Heat 0 reads two contexts; then in turn the next candidates read as many, and all that are left one more."""
    kind = run.matrix.kind
    waiting = [k for k in range(len(kind)) if run.matrix.heat[k] == 1]
    live = [k for k in range(len(kind)) if run.matrix.heat[k] == 0]
    n = 0

    def behind(k, n):
        return max(run.means(live, n)) - run.means([k], n)[0] > z * spread * math.sqrt(2 / n)
    while run.read(live, n + 1):
        n += 1
        live = [k for k in live if kind[k] == 1 or not behind(k, n)]
        for k in waiting[:at_once] if n > 1 else []:
            done = False
            while run.n[k] < n and not done:
                if not run.read([k], run.n[k] + 1):
                    return last(run, live, n, -1)
                done = behind(k, run.n[k])
            waiting.remove(k)
            live += [] if done else [k]
    return last(run, live, n, -1)


def thirding(run, last=choose):
    """Box Thirding (arXiv 2602.18186): of three plans with 2^l contexts the best one reads twice as many, the middle one waits
    in the next box of its level, the worst one goes. The highest box with three goes first; else the next candidate comes."""
    waiting = list(range(len(run.matrix.names)))
    boxes = {}
    while True:
        full = [at for at in boxes if len(boxes[at]) >= 3]
        if full:
            level, wait = max(full, key=lambda at: (at[0], -at[1]))
            three = sorted(boxes[level, wait][:3], key=lambda k: (-run.means([k], 2 ** level)[0], k))
            if not run.read([three[0]], min(2 ** (level + 1), run.most)):
                break
            boxes[level, wait] = boxes[level, wait][3:]
            boxes.setdefault((level + 1, 0), []).append(three[0])
            boxes.setdefault((level, wait + 1), []).append(three[1])
        elif waiting:
            if not run.read([waiting[0]], 1):
                break
            boxes.setdefault((0, 0), []).append(waiting.pop(0))
        else:  # nothing is left to compare three of: the best that wait read on
            left = sorted((k for box in boxes.values() for k in box), key=lambda k: -run.means([k], run.n[k])[0])[:3]
            if not run.read(left, run.n[left].max() + 1):
                break
    return run.best(last)


# ------------------------------------------------------------------------------------------- the replay

def replay(matrix, worlds):
    model = Additive(matrix)
    named = ", ".join(f"{name} {share:.4f}" for name, share in
                      zip(("family", "temperature", "window", "lengths", "own"), model.shares))
    print(f"variances of the additive model: {named}; of a context {model.context:.4f}, of a plan in a context {model.noise:.4f}\n")
    most = lambda rule: lambda run: rule(run, last=find_most)
    rules = {
        "heats (the program)": heats,
        "heats, heat 1 from one context": lambda run: heats(run, first=1),
        "heats, heat 1 in parts of 8": lambda run: heats(run, part=8),
        "challengers": challengers,
        "continuous rejection (CR-C)": continuous,
        "Box Thirding": thirding,
        "uniform": uniform,
        "heats; within a quarter": lambda run: heats(run, last=lambda *a: choose(*a, 0.25)),
        "heats; what finds most": most(heats),
        "heats in parts of 8; what finds most": lambda run: heats(run, part=8, last=find_most),
        "heats with the additive model; what finds most": lambda run: heats(run, rank=model, last=additive_last(model)),
        "challengers; what finds most": most(challengers),
        "continuous rejection; what finds most": most(continuous),
        "Box Thirding; what finds most": most(thirding),
        "uniform; what finds most": most(uniform),
    }
    found = np.zeros((len(rules), len(BUDGETS), worlds))
    spent = np.zeros((len(rules), len(BUDGETS)))
    rng = np.random.default_rng(56)
    best = []
    everything = Run(matrix, matrix.score, 0)
    allowed = everything.may(list(range(len(matrix.names))))
    contexts = matrix.score.shape[1]
    fresh = contexts // 3
    for w in range(worlds):
        order = rng.permutation(contexts)
        truth = matrix.score[:, order[:fresh]].mean(axis=(1, 2))
        best.append(truth[max(allowed, key=lambda k: matrix.score[k, order[fresh:]].mean())])
        for r, rule in enumerate(rules.values()):
            for b, budget in enumerate(BUDGETS):
                run = Run(matrix, matrix.score[:, order[fresh:]], budget)
                found[r, b, w] = truth[rule(run)]
                spent[r, b] += run.spent() / worlds
    less = math.sqrt(fresh / (contexts - fresh))
    print(f"what finds most in all that a world may read {100 * np.mean(best):.1f}, formula {100 * matrix.score[1].mean():.1f} (recall, %); budgets in contexts;"
          "\nrecall of the chosen plan, its difference from the program's ± standard error, [contexts read]\n")
    print("| rule | " + " | ".join(str(b) for b in BUDGETS) + f" | {BUDGETS[1]}, less the program's {BUDGETS[-1]} |\n|---|" +
          "---|" * (len(BUDGETS) + 1))
    for r, name in enumerate(rules):
        cells = []
        for b in range(len(BUDGETS)):
            d = 100 * (found[r, b] - found[0, b])
            more = "" if r == 0 else f" ({d.mean():+.1f} ± {less * d.std(ddof=1):.1f})"
            cells.append(f"{100 * found[r, b].mean():.1f}{more} [{spent[r, b]:.0f}]")
        d = 100 * (found[r, 1] - found[0, -1])
        print(f"| {name} | " + " | ".join(cells) + f" | {d.mean():+.1f} ± {less * d.std(ddof=1):.1f} |")
    print()


# ------------------------------------------------------------------------------------------- fresh samples

NORMAL = np.linspace(-9, 9, 3601)
BELOW = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in NORMAL])


class Stopping:
    """The sequential test of a normal mean in units of its deviation: 0 against `effect`, error rates 5 % and 5 %, at most
    `most` contexts, then by the sign of the likelihood ratio. Where it stops, for each true mean, by recursive integration."""

    def __init__(self, effect, most, least=3):
        self.bound = math.log(0.95 / 0.05)
        self.means = np.linspace(-1.5, 1.5 + effect, 61)
        self.x = np.linspace(-1, 1, 161) * (self.bound / effect + most * effect / 2 + 6)
        self.step = self.x[1] - self.x[0]
        self.density, self.upper, self.lower = [], [], []  # [n - 1][mean]: before context n; ends at it
        density = np.zeros((len(self.means), len(self.x)))
        density[:, len(self.x) // 2] = 1 / self.step
        steps = self.x[:, None] - self.x[None]
        pass_on = [np.exp(-(steps - mean) ** 2 / 2) / math.sqrt(2 * math.pi) * self.step for mean in self.means]
        for n in range(1, most + 1):
            self.density.append(density)
            now = np.array([k @ d for k, d in zip(pass_on, density)])
            middle, half = n * effect / 2, self.bound / effect if n < most else 0
            high, low = (self.x >= middle + half), (self.x <= middle - half)
            if n < least:
                high, low = high & False, low & False
            self.upper.append(now[:, high].sum(axis=1) * self.step)
            self.lower.append(now[:, low & ~high].sum(axis=1) * self.step)
            density = np.where(high | low, 0, now)

    def interval(self, n, total, upper):
        """2.5 %, 50 % and 97.5 %: the true means of which so many outcomes say more than n contexts with this total: upper ends
        that are earlier, or as early and higher; for a lower end all but the lower ends that say less."""
        above = 1 - np.interp(total - self.x[None] - self.means[:, None], NORMAL, BELOW)
        last = self.density[n - 1] * self.step
        here = (last * above).sum(axis=1)
        before = sum(self.upper[:n - 1], np.zeros(len(self.means)))
        if not upper:
            before = 1 - sum(self.lower[:n - 1], np.zeros(len(self.means))) - last.sum(axis=1)
        chance = np.maximum.accumulate(np.clip(before + here, 0, 1))
        return [float(np.interp(p, chance, self.means)) for p in (0.025, 0.5, 0.975)]


def judge(d, effect, most, least=3):
    """GSPRT as fishtest: the likelihood ratio of normal differences whose deviation is estimated (moderated: four more
    contexts with the deviation of all). Returns contexts, sum in deviations, deviation, verdict."""
    bound = math.log(0.95 / 0.05)
    for n in range(least, most + 1):
        seen = d[:n]
        deviation = math.sqrt((((seen - seen.mean()) ** 2).sum() + 4 * 0.15 ** 2) / (n + 3))
        total = seen.sum() / deviation
        ratio = effect * (total - n * effect / 2)
        if abs(ratio) >= bound or n == most:
            return n, total, deviation, ratio > 0
    raise AssertionError


def tests(matrix, rounds):
    mean = matrix.score.mean(axis=2)
    able = [k for k in np.argsort(-mean.mean(axis=1)) if matrix.able[k]][:10]
    pairs = [(a, b) for i, a in enumerate(able) for b in able[i + 1:]]
    rng = np.random.default_rng(57)
    print("fresh contexts, differences of pairs of the best ten plans, shifted to 0 and to the effect; 95 % intervals:")
    print("\n| effect, deviations | test | says better at 0 | at the effect | contexts at 0 | at the effect | at half | covers: usual |"
          " after stopping | bias of the mean, % of the deviation | of the median |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for effect in (0.5, 1.0):
        fixed = math.ceil((2 * 1.645 / effect) ** 2)
        stopping = Stopping(effect, 2 * fixed)
        for sequential in (False, True):
            says, contexts = {}, {}
            covers, right, bias, median = [], [], [], []
            for at in (0.0, 0.5, 1.0):
                said, used = [], []
                for r in range(rounds):
                    a, b = pairs[rng.integers(len(pairs))]
                    d = mean[a] - mean[b]
                    scale = max(d.std(), 0.02)
                    d = rng.choice(d - d.mean(), 2 * fixed) + at * effect * scale
                    if sequential:
                        n, total, deviation, verdict = judge(d, effect, 2 * fixed)
                        low, middle, high = stopping.interval(n, total, verdict)
                        right.append(low * deviation <= at * effect * scale <= high * deviation)
                        median.append(middle * deviation / scale - at * effect)
                    else:
                        n, deviation = fixed, d[:fixed].std(ddof=1)
                        verdict = d[:n].mean() > 1.645 * deviation / math.sqrt(n)
                    half = quantile(n - 1 if not sequential else n + 3) * deviation / math.sqrt(n)
                    covers.append(abs(d[:n].mean() - at * effect * scale) <= half)
                    bias.append(d[:n].mean() / scale - at * effect)
                    said.append(verdict)
                    used.append(n)
                says[at], contexts[at] = np.mean(said), np.mean(used)
            name = f"GSPRT, at most {2 * fixed}" if sequential else f"fixed, {fixed}"
            after = f"{100 * np.mean(right):.0f} % | {100 * np.mean(bias):+.0f} | {100 * np.mean(median):+.0f}" if sequential else \
                f" | {100 * np.mean(bias):+.0f} | "
            print(f"| {effect} | {name} | {100 * says[0.0]:.0f} % | {100 * says[1.0]:.0f} % | {contexts[0.0]:.1f} | {contexts[1.0]:.1f} | "
                  f"{contexts[0.5]:.1f} | {100 * np.mean(covers):.0f} % | {after} |")
    deviations = [(mean[a] - mean[b]).std(ddof=1) for a, b in pairs]
    gaps = [abs((mean[a] - mean[b]).mean()) for a, b in pairs]
    print(f"\ndeviation of a difference in a context: median {np.median(deviations):.3f}; true differences in deviations: median "
          f"{np.median(np.array(gaps) / np.array(deviations)):.2f}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("tables", nargs="+")
    args = parser.parse_args()
    if len(args.tables) % 3:
        parser.error("expected SEARCH.h5, MATRIX.h5 and PPL.h5, three for each length")
    for search, path, texts in zip(args.tables[::3], args.tables[1::3], args.tables[2::3]):
        matrix = Matrix(search, path, texts)
        mean = matrix.score.mean(axis=(1, 2))
        print(f"## {path}: {len(mean)} plans, {matrix.score.shape[1]} contexts of {matrix.score.shape[2]} questions; "
              f"{matrix.repeating} plans have read fewer and repeat these\n")
        for k in np.argsort(-mean)[:8]:
            print(f"    {100 * mean[k]:.1f} {math.exp(matrix.nll[k]):.3f} {matrix.names[k]}")
        print()
        if args.worlds:
            replay(matrix, args.worlds)
        if args.tests:
            tests(matrix, args.tests)


if __name__ == "__main__":
    main()

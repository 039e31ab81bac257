#!/usr/bin/env python3
"""Prints stats_golden.h: the statistics of eval/task/stats.h as numpy computes them, with signs drawn from the
project's own generator (PCG-XSH-RR 64/32, seeded by splitmix64).

    python3 make_stats.py > stats_golden.h
"""
import numpy as np

M64 = (1 << 64) - 1


class Rng:
    def __init__(self, seed, stream):
        self.mix = seed
        self.state = self.splitmix()
        self.mix ^= stream * 0xD1342543DE82EF95 & M64
        self.state ^= self.splitmix()
        self.increment = self.splitmix() | 1
        self.u32()

    def splitmix(self):
        self.mix = self.mix + 0x9E3779B97F4A7C15 & M64
        z = self.mix
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
        return z ^ z >> 31

    def u32(self):
        old = self.state
        self.state = old * 6364136223846793005 + self.increment & M64
        shifted = (old >> 18 ^ old) >> 27 & 0xFFFFFFFF
        turn = old >> 59
        return (shifted >> turn | shifted << (-turn & 31)) & 0xFFFFFFFF

    def below(self, n):
        while True:
            draw = self.u32()
            if draw >= (1 << 32) % n:
                return draw % n


def sign_flip(d, rounds, seed):
    rng = Rng(seed, 2)
    extreme = 1
    for _ in range(rounds):
        bits = []
        for i in range(0, len(d), 32):
            word = rng.u32()
            bits += [word >> k & 1 for k in range(32)]
        extreme += abs(np.sum(np.where(bits[:len(d)], -d, d))) >= abs(np.sum(d)) - 1e-9
    return extreme / (rounds + 1)


def array(name, values):
    print("static const double %s[] = {%s};" % (name, ", ".join("%.17g" % v for v in values)))


draw = np.random.default_rng(7)
scores = draw.integers(0, 5, 40) / 4.0
other = np.clip(scores + draw.choice([-0.25, 0, 0, 0.25, 0.5], 40), 0, 1)
nll = draw.uniform(2000, 9000, 9)
tokens = draw.integers(1000, 3000, 9)
print("/* Made by make_stats.py with numpy; not written by hand. */")
array("golden_a", scores)
array("golden_b", other)
d = (other - scores)[other != scores]
assert len(d) > 16
print("static const double golden_flip = %.17g;" % sign_flip(d, 400, 13))
# Three samples a context.
long = np.tile(other - scores, 2)
long[::7] = -0.5
array("golden_long", long)
sums = np.array([long[i:i + 3].sum() for i in range(0, len(long), 3)])
assert (sums != 0).sum() > 16
print("static const double golden_flip_contexts = %.17g;" % sign_flip(sums[sums != 0], 400, 13))
array("golden_nll", nll)
print("static const int64_t golden_tokens[] = {%s};" % ", ".join(map(str, tokens)))
whole = nll.sum() / tokens.sum()
without = (nll.sum() - nll) / (tokens.sum() - tokens)
error = np.sqrt(8 / 9 * np.sum((without - without.mean()) ** 2))
t = 2.306004135204166  # 97.5 % point of Student's t, 8 degrees of freedom
array("golden_ppl", np.exp([whole, whole - t * error, whole + t * error]))

/**
 * @file python_random.h
 * The random numbers of Python's `random` after random.seed(n), for samples that a Python program
 * makes too. Used inside eval/ only.
 */
#ifndef DPE_PYTHON_RANDOM_H
#define DPE_PYTHON_RANDOM_H

#include "engine/base/base.h"

/** A Mersenne Twister (MT19937). */
struct dpe_python_random {
    uint32_t state[624];
    int at;
};
/** random.seed(seed) */
void dpe_python_seed(struct dpe_python_random *random, uint32_t seed);
/** The next 32 bits. */
uint32_t dpe_python_bits(struct dpe_python_random *random);
/** An index below n, 1 ≤ n < 2^63: random.choice of n things takes it; random.randint(a, b) is a
 * plus that below b − a + 1. */
uint64_t dpe_python_below(struct dpe_python_random *random, uint64_t n);
/** random.shuffle(list(range(n))): places[i] is what stands at i. */
void dpe_python_shuffle(struct dpe_python_random *random, size_t *places, size_t n);
/** random.sample(range(n), k), k ≤ n. False: out of memory. */
bool dpe_python_sample(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k);

#endif

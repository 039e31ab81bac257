/* Python's random numbers: MT19937 (Matsumoto and Nishimura 1998), and what Lib/random.py makes of
 * it. */
#include "eval/ruler/python_random.h"

enum { N = 624, M = 397 };

void dpe_python_seed(struct dpe_python_random *random, uint32_t seed)
{
    uint32_t *state = random->state;
    state[0] = 19650218U;
    for (uint32_t i = 1; i < N; i++) {
        state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
    /* The seed as a key of one word. */
    uint32_t i = 1;
    for (int k = 0; k < N; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1664525U)) + seed;
        if (++i >= N) {
            state[0] = state[N - 1];
            i = 1;
        }
    }
    for (int k = 0; k < N - 1; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1566083941U)) - i;
        if (++i >= N) {
            state[0] = state[N - 1];
            i = 1;
        }
    }
    state[0] = 0x80000000U;
    random->at = N;
}

static void refill(struct dpe_python_random *random)
{
    uint32_t *state = random->state;
    for (int k = 0; k < N; k++) {
        uint32_t y = (state[k] & 0x80000000U) | (state[(k + 1) % N] & 0x7fffffffU);
        state[k] = state[(k + M) % N] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    random->at = 0;
}

uint32_t dpe_python_bits(struct dpe_python_random *random)
{
    if (random->at >= N) {
        refill(random);
    }
    uint32_t y = random->state[random->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

/* getrandbits(k), 1 ≤ k ≤ 63: the low word is drawn first. */
static uint64_t get_bits(struct dpe_python_random *random, int k)
{
    if (k <= 32) {
        return dpe_python_bits(random) >> (32 - k);
    }
    uint64_t low = dpe_python_bits(random);
    return low | (uint64_t)(dpe_python_bits(random) >> (64 - k)) << 32;
}

uint64_t dpe_python_below(struct dpe_python_random *random, uint64_t n)
{
    int k = 0;
    for (uint64_t rest = n; rest > 0; rest >>= 1) {
        k++;
    }
    uint64_t drawn = get_bits(random, k);
    while (drawn >= n) {
        drawn = get_bits(random, k);
    }
    return drawn;
}

void dpe_python_shuffle(struct dpe_python_random *random, size_t *places, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        places[i] = i;
    }
    for (size_t i = n; i-- > 1;) {
        size_t j = (size_t)dpe_python_below(random, i + 1);
        size_t kept = places[i];
        places[i] = places[j];
        places[j] = kept;
    }
}

/* Up to so many things a list is drawn from, else a set says what was drawn. */
static size_t pool_size(size_t k)
{
    size_t size = 21;
    size_t power = 1;
    while (k > 5 && power < 3 * k) {
        power *= 4;
    }
    return k > 5 ? size + power : size;
}

static bool sample_pool(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k)
{
    DPE_OWNED size_t *pool = dpe_alloc(n, sizeof *pool);
    for (size_t i = 0; i < n && pool != NULL; i++) {
        pool[i] = i;
    }
    for (size_t i = 0; i < k && pool != NULL; i++) {
        size_t j = (size_t)dpe_python_below(random, n - i);
        chosen[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    return pool != NULL;
}

static bool sample_set(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k)
{
    DPE_OWNED bool *taken = dpe_alloc_zero(n, sizeof *taken);
    for (size_t i = 0; i < k && taken != NULL; i++) {
        do {
            chosen[i] = (size_t)dpe_python_below(random, n);
        } while (taken[chosen[i]]);
        taken[chosen[i]] = true;
    }
    return taken != NULL;
}

bool dpe_python_sample(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k)
{
    return n <= pool_size(k) ? sample_pool(random, n, chosen, k) : sample_set(random, n, chosen, k);
}

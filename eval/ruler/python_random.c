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

void dpe_python_sample(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k)
{
    enum {
        POOL = 21
    }; /* up to so many things a list is drawn from, else a set says what was drawn */
    size_t pool[POOL];
    for (size_t i = 0; i < n && n <= POOL; i++) {
        pool[i] = i;
    }
    for (size_t i = 0; i < k; i++) {
        bool again = true;
        while (n > POOL && again) {
            chosen[i] = (size_t)dpe_python_below(random, n);
            again = false;
            for (size_t before = 0; before < i; before++) {
                again = again || chosen[before] == chosen[i];
            }
        }
        if (n <= POOL) {
            size_t j = (size_t)dpe_python_below(random, n - i);
            chosen[i] = pool[j];
            pool[j] = pool[n - i - 1];
        }
    }
}

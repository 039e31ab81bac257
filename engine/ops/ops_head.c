/* The model's head on the host: from logits to the best token and to likelihoods. */
#include "engine/ops/ops_head.h"
#include "engine/ops/ops.h"

#include <math.h>
#include <string.h>

enum {
    SMALL_WORK = 1 << 14, /* logits for which no second thread is woken */
    SUM_BLOCK = 256       /* logits whose powers are summed at a time */
};

/* Blocks are looked at without a branch for each number, which compilers turn into vectors. */
int64_t dpe_first_nonfinite(const float *x, int64_t n)
{
    enum { BLOCK = 256 };
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = n - at < BLOCK ? n : at + BLOCK;
        int bad = 0;
        for (int64_t i = at; i < end; i++) {
            bad |= !isfinite(x[i]);
        }
        for (int64_t i = at; i < end && bad != 0; i++) {
            if (!isfinite(x[i])) {
                return i;
            }
        }
    }
    return -1;
}

/* First the largest value, then the block and the place where it stands, in loops that compilers
 * turn into vectors. */
int32_t dpe_likeliest(const float *logits, int64_t vocab)
{
    enum { LANES = 16, BLOCK = 64 };
    float lanes[LANES];
    for (int64_t j = 0; j < LANES; j++) {
        lanes[j] = logits[0];
    }
    int64_t whole = vocab / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        for (int64_t j = 0; j < LANES; j++) {
            lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
        }
    }
    float most = logits[0];
    for (int64_t j = 0; j < LANES; j++) {
        most = lanes[j] > most ? lanes[j] : most;
    }
    for (int64_t i = whole; i < vocab; i++) {
        most = logits[i] > most ? logits[i] : most;
    }
    int64_t best = 0;
    for (int found = 0; found == 0 && best + BLOCK < vocab; best += found != 0 ? 0 : BLOCK) {
        for (int64_t j = 0; j < BLOCK; j++) {
            found |= logits[best + j] == most;
        }
    }
    while (best + 1 < vocab && logits[best] != most) {
        best++;
    }
    return (int32_t)best;
}

/* Σ e^(x − largest) of a block of finite x ≤ largest, in loops that compilers turn into vectors:
 * with libm a third of the likelihood of a model of 262,144 tokens was spent here. */
DPE_WIDE("avx512f", "avx2")
static double sum_powers(const float *x, int64_t n, float largest)
{
    enum { LANES = 16 };
    const float shift = 0x1.8p23F; /* x + shift − shift is x rounded to an integer */
    float lanes[LANES] = {0};
    float powers[SUM_BLOCK] = {0};
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        float y = (x[i] - largest) * 1.44269504F;
        y = y < -126.0F ? -126.0F : y;
        float whole = y + shift - shift;
        float f = y - whole;
        float power = dpe_exp2_polynomial[0];
#pragma GCC unroll 6
        for (int j = 1; j <= DPE_EXP2_DEGREE; j++) {
            power = power * f + dpe_exp2_polynomial[j];
        }
        int32_t bits = ((int32_t)whole + 127) * (1 << 23);
        float scale = 0.0F;
        memcpy(&scale, &bits, sizeof scale);
        powers[i] = power * scale;
    }
    for (int64_t i = 0; i < SUM_BLOCK; i += LANES) {
        for (int64_t j = 0; j < LANES; j++) {
            lanes[j] += powers[i + j];
        }
    }
    for (int64_t j = 0; j < LANES; j++) {
        total += (double)lanes[j];
    }
    return total;
}

double dpe_log_sum(const float *logits, int64_t vocab)
{
    if (dpe_first_nonfinite(logits, vocab) >= 0) {
        return (double)NAN;
    }
    float largest = logits[dpe_likeliest(logits, vocab)];
    double total = 0.0;
    for (int64_t at = 0; at < vocab; at += SUM_BLOCK) {
        total += sum_powers(logits + at, dpe_least(SUM_BLOCK, vocab - at), largest);
    }
    return (double)largest + log(total);
}

/* 1/k! for k = 12, 11, … 0: e^r for |r| ≤ ln 2 / 2, within 2^-52 of itself before rounding. */
static const double exp_series[] = {0x1.1eed8eff8d898p-29,
                                    0x1.ae64567f544e4p-26,
                                    0x1.27e4fb7789f5cp-22,
                                    0x1.71de3a556c734p-19,
                                    0x1.a01a01a01a01ap-16,
                                    0x1.a01a01a01a01ap-13,
                                    0x1.6c16c16c16c17p-10,
                                    0x1.1111111111111p-7,
                                    0x1.5555555555555p-5,
                                    0x1.5555555555555p-3,
                                    0.5,
                                    1.0,
                                    1.0};
enum { EXP_DEGREE = 12 };

/* Up to SUM_BLOCK numbers, in loops that compilers turn into vectors: two powers of libm for each
 * entry of the vocabulary took 3.5 times as long. */
DPE_WIDE("avx512f", "avx2")
static void add_powers(const float *x, const float *other, int64_t n, double largest,
                       double sums[2])
{
    enum { LANES = 8 };
    const double shift = 0x1.8p52; /* y + shift − shift is y rounded to an integer */
    double powers[SUM_BLOCK] = {0}, ahead[SUM_BLOCK] = {0};
    double lanes[2][LANES] = {{0}};
    for (int64_t i = 0; i < n; i++) {
        const double y = (double)x[i] - largest;
        powers[i] = y < -700.0 ? -700.0 : y; /* by itself: compilers would branch */
    }
    for (int64_t i = 0; i < n; i++) {
        const double y = powers[i], shifted = y * 0x1.71547652b82fep0 + shift;
        const double whole = shifted - shift;
        const double r = y - whole * 0x1.62e42fefa0000p-1 - whole * 0x1.cf79abc9e3b3ap-40;
        double power = exp_series[0];
#pragma GCC unroll 12
        for (int j = 1; j <= EXP_DEGREE; j++) {
            power = power * r + exp_series[j];
        }
        uint64_t bits = 0;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits + 1023) << 52; /* whole stands in the lowest bits of shifted */
        double scale = 0.0;
        memcpy(&scale, &bits, sizeof scale);
        powers[i] = power * scale;
    }
    for (int64_t i = 0; i < n && other != NULL; i++) {
        ahead[i] = powers[i] * ((double)x[i] - (double)other[i]);
    }
    for (int64_t i = 0; i < SUM_BLOCK; i += LANES) {
        for (int64_t j = 0; j < LANES; j++) {
            lanes[0][j] += powers[i + j];
            lanes[1][j] += ahead[i + j];
        }
    }
    for (int64_t j = 0; j < LANES; j++) {
        sums[0] += lanes[0][j];
        sums[1] += lanes[1][j];
    }
}

double dpe_power_sums(const float *x, const float *other, int64_t n, double largest, double *ahead)
{
    double sums[2] = {0.0, 0.0};
    for (int64_t at = 0; at < n; at += SUM_BLOCK) {
        add_powers(x + at, other != NULL ? other + at : NULL, dpe_least(SUM_BLOCK, n - at), largest,
                   sums);
    }
    if (other != NULL) {
        *ahead = sums[1];
    }
    return sums[0];
}

void dpe_head_logits(const struct dpe_ops *ops, struct dpe_backend *backend,
                     const struct dpe_config *config, void *x, int64_t rows, float *logits)
{
    double cap = config->logit_cap;
    ops->logits(backend, x, rows, logits);
    for (int64_t i = 0; cap > 0.0 && i < rows * config->vocab; i++) {
        logits[i] = (float)(cap * tanh((double)logits[i] / cap));
    }
}

/* Logits of the rows from `first` on that there is room for; their number. */
static int64_t some_logits(const struct dpe_ops *ops, struct dpe_backend *backend,
                           const struct dpe_config *config, void *x, int64_t first, int64_t rows,
                           const struct dpe_logit_room *room)
{
    int64_t n = rows - first < room->rows ? rows - first : room->rows;
    char *from = (char *)x + first * config->hidden * (int64_t)ops->element_bytes(config);
    dpe_head_logits(ops, backend, config, from, n, room->logits);
    return n;
}

void dpe_head_best(const struct dpe_ops *ops, struct dpe_backend *backend,
                   const struct dpe_config *config, void *x, int64_t rows,
                   const struct dpe_logit_room *room, int32_t *tokens)
{
    int64_t vocab = config->vocab;
    for (int64_t first = 0, n = 0; first < rows; first += n) {
        n = some_logits(ops, backend, config, x, first, rows, room);
#pragma omp parallel for num_threads(room->n_threads)                                              \
    schedule(static) if (n > 1 && n * vocab > SMALL_WORK)
        for (int64_t r = 0; r < n; r++) {
            const float *row = room->logits + r * vocab;
            bool good = dpe_first_nonfinite(row, vocab) < 0;
            tokens[first + r] = good ? dpe_likeliest(row, vocab) : -1;
        }
    }
}

void dpe_head_likelihood(const struct dpe_ops *ops, struct dpe_backend *backend,
                         const struct dpe_config *config, void *x, int64_t rows,
                         const struct dpe_logit_room *room, const int32_t *targets, double *nll)
{
    int64_t vocab = config->vocab;
    for (int64_t first = 0, n = 0; first < rows; first += n) {
        n = some_logits(ops, backend, config, x, first, rows, room);
#pragma omp parallel for num_threads(room->n_threads) schedule(static) if (n * vocab > SMALL_WORK)
        for (int64_t r = 0; r < n; r++) {
            const float *row = room->logits + r * vocab;
            nll[first + r] = dpe_log_sum(row, vocab) - (double)row[targets[first + r]];
        }
    }
}

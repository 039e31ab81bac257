/* How the rule of dpe-calibrate's --top-k auto behaves, from the rows of finished ablations.
 *
 *   bench_top_k ABLATE.h5 [ABLATE.h5 …]
 *
 * ABLATE is of `dpe-eval ablate --what top-k` with needles at one length. 1000 calibrations of each
 * of a few sizes are resampled from its rows, samples drawn with replacement: which number of pairs
 * they choose, and what it loses against the best by the means over all rows. "any number does":
 * the rows of the best stand for every number, but one in ten, drawn separately for each number, is
 * another sample's. stdout: Markdown. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detect/search/key_pairs.h"
#include "outputs/h5/h5.h"

enum { ROUNDS = 1000, MOST = 400 };
static const int sizes[] = {16, 50, 100, 200, MOST};

struct world {
    int n;
    int64_t k[DPE_DETECT_CANDIDATES], n_samples;
    double *score; /* [n][n_samples] */
    double mean[DPE_DETECT_CANDIDATES];
    int best;
};

static void fail(const char *path, const char *why)
{
    fprintf(stderr, "%s: %s\n", path, why);
    exit(1);
}

static void read_world(const char *path, struct world *world)
{
    struct dpe_error err = {0};
    struct dpe_h5 *table = NULL;
    void *k = NULL;
    void *score = NULL;
    int rank = 0;
    int64_t steps[5] = {0};
    int64_t dims[5] = {0};
    if (dpe_h5_open(path, &table, &err) != DPE_OK ||
        dpe_h5_get(table, "/ablate/k", DPE_COL_I64, &k, &rank, steps, &err) != DPE_OK ||
        dpe_h5_get(table, "/eval/niah/score", DPE_COL_F64, &score, &rank, dims, &err) != DPE_OK) {
        fail(path, err.text);
    }
    dpe_h5_close(table);
    int64_t pairs = 0;
    for (int64_t m = 0; m < steps[0]; m++) {
        pairs = ((int64_t *)k)[m] > pairs ? ((int64_t *)k)[m] : pairs;
    }
    world->n = dpe_detect_top_k_candidates(pairs, world->k);
    world->n_samples = dims[2];
    world->score = calloc((size_t)world->n * (size_t)dims[2] + 1, sizeof(double));
    if (rank != 3 || dims[1] != 1 || world->n < 1 || world->score == NULL) {
        fail(path, "expected an ablation of top-k at one length");
    }
    for (int i = 0; i < world->n; i++) {
        bool found = false;
        for (int64_t m = 0; m < steps[0]; m++) {
            if (((int64_t *)k)[m] == world->k[i]) {
                memcpy(world->score + i * dims[2], (double *)score + m * dims[2],
                       (size_t)dims[2] * sizeof(double));
                found = true;
            }
        }
        for (int64_t s = 0; s < dims[2]; s++) {
            world->mean[i] += world->score[i * dims[2] + s] / (double)dims[2];
        }
        if (!found || isnan(world->mean[i])) {
            fail(path, "expected every row of every number of the ladder");
        }
        world->best = world->mean[i] >= world->mean[world->best] ? i : world->best;
    }
    free(k);
    free(score);
}

static int resample(const struct world *world, int n, bool alike, struct dpe_rng *rng)
{
    static double values[DPE_DETECT_CANDIDATES * MOST];
    struct dpe_detect_top_k choice;
    struct dpe_error err = {0};
    for (int s = 0; s < n; s++) {
        uint32_t drawn = dpe_rng_below(rng, (uint32_t)world->n_samples);
        for (int i = 0; i < world->n; i++) {
            bool other = alike && dpe_rng_below(rng, 10) == 0;
            uint32_t at = other ? dpe_rng_below(rng, (uint32_t)world->n_samples) : drawn;
            int from = alike ? world->best : i;
            values[i * n + s] = world->score[from * world->n_samples + at];
        }
    }
    if (dpe_detect_choose_top_k(world->k, values, world->n, n, 1, DPE_DETECT_RECALL, &choice,
                                &err) != DPE_OK) {
        fail("the rule", err.text);
    }
    return choice.chosen;
}

static void print_world(const struct world *world, const char *name, bool alike)
{
    for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
        struct dpe_rng rng;
        int chosen[DPE_DETECT_CANDIDATES] = {0};
        double lost = 0.0;
        int bad = 0;
        dpe_rng_seed(&rng, 1, (uint64_t)z);
        for (int r = 0; r < ROUNDS; r++) {
            int i = resample(world, sizes[z], alike, &rng);
            double loss = alike ? 0.0 : world->mean[world->best] - world->mean[i];
            chosen[i]++;
            lost += loss / ROUNDS;
            bad += loss > (1.0 - DPE_DETECT_KEPT) * world->mean[world->best];
        }
        printf("| %s | %d |", name, sizes[z]);
        for (int i = 0; i < world->n; i++) {
            printf(" %.1f |", 100.0 * chosen[i] / ROUNDS);
        }
        printf(" %.2f | %.1f |\n", 100.0 * lost, 100.0 * bad / ROUNDS);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_top_k ABLATE.h5 [ABLATE.h5 ...]\n");
        return 64;
    }
    for (int a = 1; a < argc; a++) {
        struct world world = {0};
        const char *slash = strrchr(argv[a], '/');
        read_world(argv[a], &world);
        printf("\n| %s, %lld samples | samples |", slash != NULL ? slash + 1 : argv[a],
               (long long)world.n_samples);
        for (int i = 0; i < world.n; i++) {
            printf(" %lld of %lld |", (long long)world.k[i], (long long)world.k[world.n - 1]);
        }
        printf(" points lost | > 3 %% lost, %% |\n|---|---|");
        for (int i = 0; i < world.n + 2; i++) {
            printf("---|");
        }
        printf("\n| recall, %% | |");
        for (int i = 0; i < world.n; i++) {
            printf(" %.1f |", 100.0 * world.mean[i]);
        }
        printf(" | |\n");
        print_world(&world, "chosen, %", false);
        print_world(&world, "any number does: chosen, %", true);
        free(world.score);
    }
    return 0;
}

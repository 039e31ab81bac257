/**
 * @file near.h
 * Comparing arrays of numbers in tests. A comparison fails on NaN on either side (written as
 * !(error <= tolerance), so that NaN cannot pass), and reports the worst element. Tolerances come
 * from measurement: near_oracle() allows at most twice the error that a plain computation in the
 * same precision has against a float64 oracle.
 *
 * Include after cmocka.h and what it needs.
 */
#ifndef DPE_NEAR_H
#define DPE_NEAR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct near_worst {
    size_t index;
    double error; /**< |a − b|; INFINITY when either is NaN or both are not the same infinity */
};

static inline double near_error(double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return INFINITY;
    }
    return a == b ? 0.0 : fabs(a - b);
}

/** The worst element of got[n] against want[n]. */
static inline struct near_worst near_worst_f32(const float *got, const double *want, size_t n)
{
    struct near_worst worst = {0, 0.0};
    for (size_t i = 0; i < n; i++) {
        double error = near_error((double)got[i], want[i]);
        if (!(error <= worst.error)) {
            worst = (struct near_worst){i, error};
        }
    }
    return worst;
}

/** 0 when every |got − want| ≤ tolerance; else 1, after printing the worst element. */
static inline int near_f32(const char *what, const float *got, const double *want, size_t n,
                           double tolerance)
{
    struct near_worst worst = near_worst_f32(got, want, n);
    if (!(worst.error <= tolerance)) {
        fprintf(stderr, "%s: element %zu: got %.9g, expected %.9g, |difference| %.3g > %.3g\n",
                what, worst.index, (double)got[worst.index], want[worst.index], worst.error,
                tolerance);
        return 1;
    }
    return 0;
}

/** 0 when the error of `got` against the float64 oracle is at most twice that of `plain`, a plain
 *  computation in the same precision (with a floor of a few units in the last place of the largest
 * value). */
static inline int near_oracle(const char *what, const float *got, const float *plain,
                              const double *oracle, size_t n)
{
    double largest = 0.0;
    for (size_t i = 0; i < n; i++) {
        largest = fabs(oracle[i]) > largest ? fabs(oracle[i]) : largest;
    }
    double allowed = near_worst_f32(plain, oracle, n).error;
    double floor_error = largest * 4.0 * 0x1p-24;
    allowed = allowed > floor_error ? allowed : floor_error;
    return near_f32(what, got, oracle, n, 2.0 * allowed);
}

/** Sentinels around an output: fill before, check after. */
enum { NEAR_GUARD = 16 };
#define NEAR_SENTINEL 0x7fc0dead

static inline void near_guard_fill(float *memory, size_t n)
{
    uint32_t bits = NEAR_SENTINEL;
    for (size_t i = 0; i < n; i++) {
        memcpy(memory + i, &bits, sizeof bits);
    }
}

/** Number of sentinel words that were overwritten. */
static inline size_t near_guard_broken(const float *memory, size_t n)
{
    size_t broken = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, memory + i, sizeof bits);
        broken += bits != NEAR_SENTINEL;
    }
    return broken;
}

#endif

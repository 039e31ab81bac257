/**
 * @file attention_run.h
 * The attention of the CPU backend on a case of attention_case.h. Include after cmocka.h.
 */
#ifndef DPE_ATTENTION_RUN_H
#define DPE_ATTENTION_RUN_H

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "tests/engine/cpu/attention_case.h"
#include "tests/lib/near.h"

/** Runs with a poisoned workspace of exactly the requested size and sentinels around both outputs,
 * `step` rows a call; step 0: all rows as tokens of the two branches in turn. */
static inline void run_cpu(const struct dpe_cpu_kernels *kernels, const struct dpe_cpu_bf16 *bf16,
                           const struct inputs *in, const struct shape *shape, int n_threads,
                           int64_t step, float *out, float *lse)
{
    int64_t width = shape->n_heads * shape->head_dim;
    size_t n = (size_t)(shape->rows * width);
    size_t n_lse = (size_t)(shape->rows * shape->n_heads);
    float *guarded = malloc((n + 2 * NEAR_GUARD) * sizeof *guarded);
    float *guarded_lse = malloc((n_lse + 2 * NEAR_GUARD) * sizeof *guarded_lse);
    near_guard_fill(guarded, n + 2 * NEAR_GUARD);
    near_guard_fill(guarded_lse, n_lse + 2 * NEAR_GUARD);
    int64_t positions[MOST_ROWS];
    int64_t offsets[MOST_ROWS];
    bool in_turn = step == 0;
    step = in_turn ? shape->rows : step;
    uint64_t bytes = dpe_cpu_attention_workspace(kernels, bf16, &in->config, &in->plan,
                                                 shape->capacity, step, n_threads);
    float *workspace = dpe_alloc(bytes, 1);
    near_guard_fill(workspace, bytes / sizeof *workspace);
    struct dpe_attention args = arguments(in, shape, n_threads);
    args.workspace = workspace;
    for (int64_t at = 0; at < shape->rows; at += step) {
        args.rows = shape->rows - at < step ? shape->rows - at : step;
        place_rows(&args, shape, at, in_turn, positions, offsets);
        args.q = in->q + at * width;
        args.out = guarded + NEAR_GUARD + at * width;
        args.lse = guarded_lse + NEAR_GUARD + at * shape->n_heads;
        dpe_cpu_attention(kernels, bf16, &args, 1);
    }
    assert_int_equal(near_guard_broken(guarded, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(guarded + NEAR_GUARD + n, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(guarded_lse, NEAR_GUARD), 0);
    assert_int_equal(near_guard_broken(guarded_lse + NEAR_GUARD + n_lse, NEAR_GUARD), 0);
    memcpy(out, guarded + NEAR_GUARD, n * sizeof *out);
    memcpy(lse, guarded_lse + NEAR_GUARD, n_lse * sizeof *lse);
    free(workspace);
    free(guarded);
    free(guarded_lse);
}

#endif

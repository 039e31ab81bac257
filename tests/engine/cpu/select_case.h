/**
 * @file select_case.h
 * Random selections, and what attention under them reads beside keys and values. Include after
 * cmocka.h.
 */
#ifndef DPE_SELECT_CASE_H
#define DPE_SELECT_CASE_H

#include "tests/engine/cpu/attention_case.h"

/** One whose blocks, window and groups matter among so many keys. */
static inline struct dpe_selection random_selection(struct dpe_rng *rng, int64_t keys)
{
    struct dpe_selection s = {
        .block = 1 + dpe_rng_below(rng, dpe_rng_below(rng, 2) ? 40 : 9),
        .sinks = dpe_rng_below(rng, 12),
        .local = 1 + dpe_rng_below(rng, (uint32_t)(1 + keys / 3)),
        .k = dpe_rng_below(rng, 7),
        .refresh = dpe_rng_below(rng, 2) ? 1 : 1 + dpe_rng_below(rng, 50),
        .representative = (enum dpe_representative)dpe_rng_below(rng, 7),
        .unit = (enum dpe_choice_unit)dpe_rng_below(rng, 3),
        .positions = (enum dpe_chosen_place)dpe_rng_below(rng, 3),
        .scored = (enum dpe_scored_place)dpe_rng_below(rng, 3),
    };
    s.attended = 1 + dpe_rng_below(rng, (uint32_t)s.block);
    s.last = 1 + dpe_rng_below(rng, 20);
    s.slashes = s.representative == DPE_REPRESENT_PROBABILITY ? dpe_rng_below(rng, 12) : 0;
    s.first = dpe_rng_below(rng, 3) == 0 ? dpe_rng_below(rng, (uint32_t)(1 + s.k)) : 0;
    return s;
}

/** Queries by head as a cache keeps them, those before the call too; scattered over both branches
 * where the shape has them. The call's own are those of in->q. */
static inline float *keep_queries(const struct inputs *in, const struct shape *shape)
{
    int64_t d = shape->head_dim;
    int64_t rows = cache_rows(shape);
    float *kept = floats(0, shape->n_heads * rows * d, 1.0, 1);
    float *before =
        floats(shape->start * shape->n_heads * d, (shape->start + 1) * shape->n_heads * d, 2.0, 77);
    for (int64_t h = 0; h < shape->n_heads; h++) {
        for (int64_t m = 0; m < shape->start + shape->rows; m++) {
            const float *q = m < shape->start
                                 ? before + (m * shape->n_heads + h) * d
                                 : in->q + ((m - shape->start) * shape->n_heads + h) * d;
            for (int b = 0; b < 2; b++) {
                int64_t row = m < shape->prefix ? m : m + shape->offset[b];
                memcpy(kept + (h * rows + row) * d, q, (size_t)d * sizeof *q);
            }
        }
    }
    free(before);
    return kept;
}

#endif

/**
 * @file detect_case.h
 * What tests of a sweep without a model share: a model's shape, grids, and scores that are set by
 * hand. Include after cmocka.h.
 */
#ifndef DPE_DETECT_CASE_H
#define DPE_DETECT_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/report.h"
#include "engine/plan/methods/methods.h"
#include "outputs/h5/rows.h"

/** A Llama of two layers with four heads on two. */
static inline struct dpe_config config_of(int64_t head_dim, int64_t max_position)
{
    struct dpe_config config = {
        .model_type = "llama",
        .n_layers = 2,
        .hidden = 4 * head_dim,
        .intermediate = 64,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = head_dim,
        .vocab = 512,
        .max_position = max_position,
        .rms_eps = 1e-5,
        .rope = {.type = DPE_ROPE_DEFAULT,
                 .theta = 10000.0,
                 .factor = NAN,
                 .original_max_position = NAN,
                 .attention_factor = NAN,
                 .partial_rotary_factor = 1.0},
        .bos_id = -1,
    };
    return config;
}

/** In float angles. */
static inline struct dpe_plan_context context_of(const struct dpe_config *config, int64_t trained,
                                                 int64_t length)
{
    return (struct dpe_plan_context){.config = config, .trained_length = trained, .length = length};
}

/** Parameters whose lengths are a list as of --lengths, or "auto". */
static inline struct dpe_detect_params params_of(int64_t length, int64_t trained, int64_t window,
                                                 int n_groups, const char *lengths)
{
    struct dpe_detect_params params = {
        .length = length, .trained_length = trained, .window = window, .n_groups = n_groups};
    struct dpe_error err = {0};
    int skipped = 0;
    if (dpe_detect_parse_lengths(lengths, &params, &skipped, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return params;
}

/** The grid of these parameters; released by the caller. */
static inline void grid_of(const struct dpe_detect_params *params, const struct dpe_config *config,
                           struct dpe_detect_grid *grid)
{
    struct dpe_plan_context context = context_of(config, params->trained_length, params->length);
    struct dpe_error err = {0};
    if (dpe_detect_grid_make(params, &context, grid, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
}

/** Scales of a joint plan whose groups have these lengths; −1: as in the base. */
static inline void joint_scales_of(const struct dpe_detect_params *params, const int64_t *length,
                                   double *scale)
{
    for (int g = 0; g < params->n_groups; g++) {
        scale[g] = dpe_detect_joint_scale(params, length[g]);
    }
}

/** Scores of no cell yet; released by the caller. */
static inline void scores_of(struct dpe_detect_scores *scores, int n_cells, int64_t n_samples)
{
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_scores_init(scores, n_cells, n_samples, &err), DPE_OK);
}

static inline void set_recall(struct dpe_detect_scores *scores, int cell, int64_t sample,
                              double value)
{
    int64_t at = cell * scores->n_samples + sample;
    scores->status[at] = DPE_ROW_OK;
    scores->recall[at] = value;
}

/** Nats per token of all rows, of what was set. */
static inline void fill_nats(struct dpe_detect_scores *scores)
{
    for (int64_t i = 0; i < scores->n_cells * scores->n_samples; i++) {
        scores->nats[i] = scores->n_tokens[i] > 0 ? scores->nll_sum[i] / (double)scores->n_tokens[i]
                                                  : (double)NAN;
    }
}

#endif

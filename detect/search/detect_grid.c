/* Cells, their plans, and which of them mean the same. */
#include "detect/search/grid.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

#include <stdlib.h>
#include <string.h>

int64_t dpe_detect_default_window(int64_t trained_length)
{
    int64_t window = trained_length / 8;
    window = window < 1024 ? window : 1024;
    return window > 1 ? window : 1;
}

/* Some key must lie beyond the window. */
static dpe_status check_far(const struct dpe_detect_params *params, struct dpe_error *err)
{
    if (params->length < params->window) {
        return dpe_fail(err, DPE_USAGE,
                        "--length: %lld is shorter than the window %lld, so no key is far; give a "
                        "larger --length or a smaller --window",
                        (long long)params->length, (long long)params->window);
    }
    return DPE_OK;
}

/* In its place, once. */
static void add_length(struct dpe_detect_params *params, int64_t length)
{
    int t = params->n_lengths;
    while (t > 0 && params->lengths[t - 1] > length) {
        t--;
    }
    if (t > 0 && params->lengths[t - 1] == length) {
        return;
    }
    memmove(&params->lengths[t + 1], &params->lengths[t],
            (size_t)(params->n_lengths++ - t) * sizeof params->lengths[0]);
    params->lengths[t] = length;
}

/* The paper's, and where L is no power of two times L0 the two that plans begin at. */
static void auto_lengths(struct dpe_detect_params *params, int *skipped)
{
    const int64_t least = params->window;
    for (int shift = 7; shift >= 0; shift--) {
        int64_t length = params->length >> shift;
        if (length < 1 || length < least) {
            (*skipped)++;
        } else {
            add_length(params, length);
        }
    }
    for (int64_t half = 1; half <= 2; half++) {
        int64_t length = params->trained_length / half;
        if (length >= least && length <= params->length &&
            length * half == params->trained_length) {
            add_length(params, length);
        }
    }
}

static dpe_status check_length(const struct dpe_detect_params *params, int64_t length,
                               struct dpe_error *err)
{
    if (length < params->window) {
        return dpe_fail(err, DPE_USAGE,
                        "--lengths: %lld is shorter than the window %lld; give a longer one or a "
                        "smaller --window",
                        (long long)length, (long long)params->window);
    }
    if (length > params->length) {
        return dpe_fail(err, DPE_USAGE, "--lengths: %lld is longer than --length %lld",
                        (long long)length, (long long)params->length);
    }
    return DPE_OK;
}

dpe_status dpe_detect_parse_lengths(const char *spec, struct dpe_detect_params *params,
                                    int *skipped, struct dpe_error *err)
{
    params->n_lengths = 0;
    *skipped = 0;
    DPE_TRY(check_far(params, err));
    if (strcmp(spec, "auto") == 0) {
        auto_lengths(params, skipped);
        return DPE_OK;
    }
    params->n_lengths = dpe_parse_lengths(spec, 1, INT64_C(1) << 40, "auto or ", params->lengths,
                                          DPE_DETECT_MAX_LENGTHS, err);
    DPE_TRY(params->n_lengths > 0 ? DPE_OK : dpe_fail_prefix(err, "--lengths"));
    for (int t = 0; t < params->n_lengths; t++) {
        DPE_TRY(check_length(params, params->lengths[t], err));
    }
    return DPE_OK;
}

static dpe_status check_params(const struct dpe_detect_params *params, struct dpe_error *err)
{
    if (params->window < 1) {
        return dpe_fail(err, DPE_USAGE, "--window: expected at least 1 token, found %lld",
                        (long long)params->window);
    }
    DPE_TRY(check_far(params, err));
    if (params->length > INT64_C(1) << 40 || params->trained_length > INT64_C(1) << 40) {
        return dpe_fail(err, DPE_USAGE, "--length, --trained-length: expected at most 2^40 tokens");
    }
    if (params->trained_length < 2 || 2 * params->length < params->trained_length) {
        return dpe_fail(
            err, DPE_USAGE,
            "--length: expected at least half the trained length, %lld tokens, found %lld; of a "
            "model that works up to less, --trained-length says up to what",
            (long long)(params->trained_length + 1) / 2, (long long)params->length);
    }
    if (params->n_lengths < 1) {
        return dpe_fail(err, DPE_USAGE, "--lengths: expected at least one length");
    }
    for (int t = 0; t < params->n_lengths; t++) {
        DPE_TRY(check_length(params, params->lengths[t], err));
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- the base */

double dpe_detect_base_scale(const struct dpe_detect_params *params)
{
    return 2.0 * (double)params->length / (double)params->trained_length;
}

int dpe_detect_base_at(const struct dpe_detect_params *params)
{
    for (int t = 0; t < params->n_lengths; t++) {
        if (2 * params->lengths[t] == params->trained_length) {
            return t;
        }
    }
    return -1;
}

double dpe_detect_joint_scale(const struct dpe_detect_params *params, int64_t length)
{
    return length < 1 ? dpe_detect_base_scale(params)
                      : dpe_length_scale(params->length, (double)length);
}

/* ---------------------------------------------------------------------------------------- plans */

dpe_status dpe_detect_joint_plan(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context, const double *scale,
                                 struct dpe_plan *plan, struct dpe_error *err)
{
    if (grid->params.still) {
        return dpe_plan_make("rope", context, plan, err);
    }
    const struct dpe_dpe_params dpe = {
        .window = grid->params.window,
        .n_groups = grid->params.n_groups,
        .edges = grid->edges,
        .scale = scale,
        .temperature = &grid->params.temperature,
    };
    return dpe_plan_make_dpe(&dpe, context, plan, err);
}

dpe_status dpe_detect_entry_make(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context,
                                 struct dpe_detect_entry *entry, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &grid->params;
    const struct dpe_config *config = context->config;
    const size_t n_groups = (size_t)params->n_groups, n_pairs = (size_t)grid->n_pairs;
    const size_t room = dpe_table_room(config);
    double a = 1.0;
    DPE_TRY(DPE_NEW(&entry->room, room + 2 * n_groups + 2 * n_pairs, err,
                    "out of memory for an entry of %zu groups", n_groups));
    double *inv_freq = entry->room + room + 2 * n_groups;
    entry->values = (struct dpe_table_values){.n_layers = config->n_layers,
                                              .n_heads = config->n_heads,
                                              .n_pairs = grid->n_pairs,
                                              .trained_length = params->trained_length,
                                              .length = params->length,
                                              .window = params->window,
                                              .n_groups = params->n_groups,
                                              .group_edge = grid->edges,
                                              .effective_length = entry->room + room,
                                              .scale_factor = entry->room + room + n_groups,
                                              .inv_freq = inv_freq};
    return dpe_rope_native(config, context->length, inv_freq, &a, err);
}

void dpe_detect_entry_free(struct dpe_detect_entry *entry)
{
    free(entry->room);
    *entry = (struct dpe_detect_entry){0};
}

bool dpe_detect_is_plain(const struct dpe_config *config, const struct dpe_table_values *values)
{
    return values->applied_inv_freq != NULL && dpe_table_needs_adapter(values) == 0 &&
           dpe_config_alike(config);
}

dpe_status dpe_detect_holds(const struct dpe_detect_grid *grid,
                            const struct dpe_plan_context *context, const struct dpe_plan *plan,
                            struct dpe_detect_entry *entry, bool *holds, struct dpe_error *err)
{
    struct dpe_table_values *values = &entry->values;
    const size_t n = (size_t)grid->n_pairs;
    *holds = false;
    DPE_TRY(dpe_detect_entry_make(grid, context, entry, err));
    DPE_TRY(dpe_table_of_plan(plan, context, entry->room, values, holds, err));
    if (values->applied_inv_freq != NULL) { /* the plan's, which may end before */
        values->applied_inv_freq =
            memcpy(values->inv_freq + n, plan->inv_freq, n * sizeof *plan->inv_freq);
    }
    return DPE_OK;
}

/* Group `group` at length index `length`, the others as in the base. */
static dpe_status cell_plan(const struct dpe_detect_grid *grid,
                            const struct dpe_plan_context *context, int group, int length,
                            struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &grid->params;
    DPE_OWNED double *scale = NULL;
    DPE_TRY(DPE_NEW(&scale, (size_t)params->n_groups, err, "out of memory for a plan's scales"));
    for (int g = 0; g < params->n_groups; g++) {
        scale[g] = g != group ? dpe_detect_base_scale(params)
                              : (double)params->length / (double)params->lengths[length];
    }
    return dpe_detect_joint_plan(grid, context, scale, plan, err);
}

/* The configuration of one cell: an earlier one of the same meaning, or a new one. */
static dpe_status add_cell(struct dpe_detect_grid *grid, const struct dpe_plan_context *context,
                           int group, int length, struct dpe_error *err)
{
    struct dpe_detect_config *config = &grid->configs[grid->n_configs];
    DPE_TRY(cell_plan(grid, context, group, length, &config->plan, err));
    const dpe_status status = dpe_plan_key(&config->plan, config->key, err);
    if (status != DPE_OK) {
        dpe_plan_free(&config->plan);
        return status;
    }
    int at = 0;
    while (at < grid->n_configs && strcmp(grid->configs[at].key, config->key) != 0) {
        at++;
    }
    if (at < grid->n_configs) {
        dpe_plan_free(&config->plan);
    } else {
        grid->n_configs++;
    }
    grid->cell[group * grid->params.n_lengths + length] = at;
    return DPE_OK;
}

dpe_status dpe_detect_grid_make(const struct dpe_detect_params *params,
                                const struct dpe_plan_context *context,
                                struct dpe_detect_grid *grid, struct dpe_error *err)
{
    *grid = (struct dpe_detect_grid){0};
    DPE_SCOPED(dpe_detect_grid_free)
    struct dpe_detect_grid made = {.params = *params, .n_pairs = context->config->head_dim / 2};
    if (params->temperature.logit_scale == 0.0) {
        made.params.temperature = dpe_temperature_none;
    }
    DPE_TRY(check_params(params, err));
    int64_t rotating = dpe_config_pairs(context->config);
    if (params->n_groups < 1 || params->n_groups > rotating) {
        return dpe_fail(err, DPE_USAGE,
                        "--groups: expected 1 to %lld (the model's pairs), found %d",
                        (long long)rotating, params->n_groups);
    }
    size_t n_groups = (size_t)params->n_groups;
    size_t n_cells = n_groups * (size_t)params->n_lengths;
    DPE_TRY(
        DPE_NEW(&made.edges, n_groups + 1, err, "out of memory for a grid of %zu cells", n_cells));
    DPE_TRY(DPE_NEW(&made.cell, n_cells, err, "out of memory for a grid of %zu cells", n_cells));
    DPE_TRY(DPE_NEW(&made.configs, n_cells, err, "out of memory for a grid of %zu cells", n_cells));
    DPE_TRY(dpe_plan_model_edges(context->config, params->n_groups, made.edges, err));
    for (int g = 0; g < params->n_groups; g++) {
        for (int t = 0; t < params->n_lengths; t++) {
            DPE_TRY(add_cell(&made, context, g, t, err));
        }
    }
    *grid = made;
    made = (struct dpe_detect_grid){0};
    return DPE_OK;
}

void dpe_detect_grid_free(struct dpe_detect_grid *grid)
{
    for (int c = 0; c < grid->n_configs; c++) {
        dpe_plan_free(&grid->configs[c].plan);
    }
    free(grid->edges);
    free(grid->cell);
    free(grid->configs);
    *grid = (struct dpe_detect_grid){0};
}

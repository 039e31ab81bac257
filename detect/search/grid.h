/**
 * @file grid.h
 * The grid of a sweep: its cells and their distinct plans.
 *
 * A *cell* is (group, detecting length): the group's pairs move with scale s = L/t, every other
 * group stays at half the trained length, s = 2L/L0. Cells with equal plans are one
 * *configuration*, which is run once. A sweep runs every configuration on every sample. Its results
 * are rows (outputs/h5/rows.h), and ranking and report are computed from rows,
 * so a table can be rebuilt from them at any time. Source of the definitions: the DPE paper's
 * detection; README.md of detect/. Arrays named [g][t] are row-major.
 *
 * Nothing in detect/search keeps state between calls or prints.
 */
#ifndef DPE_DETECT_GRID_H
#define DPE_DETECT_GRID_H

#include "engine/base/base.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "outputs/table/dpe_table.h"

enum {
    DPE_DETECT_MAX_LENGTHS = 64,
};

/** The least multiple of `unit` that is at least n. */
static inline int64_t dpe_detect_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/** What spans the grid. */
struct dpe_detect_params {
    int64_t length;         /**< L, tokens */
    int64_t trained_length; /**< L0, tokens */
    int64_t window;         /**< w, tokens: nearer keys keep their distance */
    bool still;             /**< no layer that a plan is for rotates: plans are temperatures, and
                                 groups, lengths and window decide nothing */
    bool states;            /**< there are recurrent layers, and others rotate */
    int n_groups;           /**< C equal ranges of pairs */
    int n_lengths;
    int64_t lengths[DPE_DETECT_MAX_LENGTHS]; /**< detecting lengths t, ascending, w ≤ t ≤ L */
    /** Of every plan of the sweep: base, cells, joint; not of "rope". All zero:
     *  none, which the grid then has. */
    struct dpe_temperature temperature;
};

/** The base of all cells, in which every group is at L0/2: the scale of a group there, and its
 *  detecting length: an index, −1 where it is none of them. */
double dpe_detect_base_scale(const struct dpe_detect_params *params);
int dpe_detect_base_at(const struct dpe_detect_params *params);
/** The scale of a group in the joint plan, `length` −1: that of the base; else dpe_length_scale,
 *  as the sweep measured it. */
double dpe_detect_joint_scale(const struct dpe_detect_params *params, int64_t length);

/** min(1024, L0/8), at least 1. */
int64_t dpe_detect_default_window(int64_t trained_length);

/** Fill params->lengths (length, trained_length and window are set) from "auto" or a list "a,b,…".
 *  auto: L/128 … L by powers of two, and L0/2 and L0, where plans begin; those shorter than the
 *  window (or than 1) are left out, and of the former counted in *skipped, because at t < w no far
 *  key would be nearer than w: t + w(1 − t/L) > t.
 *  A listed length shorter than the window, longer than L, or twice there is DPE_USAGE. */
dpe_status dpe_detect_parse_lengths(const char *spec, struct dpe_detect_params *params,
                                    int *skipped, struct dpe_error *err);

/** A plan that is run, with its key; of a grid a distinct one. */
struct dpe_detect_config {
    char key[33]; /**< row key of the plan (dpe_plan_key) */
    struct dpe_plan plan;
};

/** The grid: every cell's configuration. Filled by dpe_detect_grid_make, freed with
 *  dpe_detect_grid_free. */
struct dpe_detect_grid {
    struct dpe_detect_params params;
    int64_t n_pairs;
    int32_t *edges; /**< [n_groups + 1] first pair of each group */
    int32_t *cell;  /**< [n_groups][n_lengths] index into configs */
    int n_configs;
    struct dpe_detect_config *configs; /**< in order of their first cell */
};
/** Check the parameters (DPE_USAGE names the option to change) and make the distinct plans. L must
 *  be at least L0/2: below that the other groups' scale would be less than one. DPE_BAD_DATA as
 * dpe_rope_native. */
dpe_status dpe_detect_grid_make(const struct dpe_detect_params *params,
                                const struct dpe_plan_context *context,
                                struct dpe_detect_grid *grid, struct dpe_error *err);
void dpe_detect_grid_free(struct dpe_detect_grid *grid);

/** The entry of a table with the grid's groups. Zero-initialise; free with dpe_detect_entry_free,
 * also after a failure. */
struct dpe_detect_entry {
    struct dpe_table_values values; /**< groups, mask and texts are borrowed */
    double *room;                   /**< as of dpe_table_of_plan, then the other arrays of values */
};
/** Make it and its arrays: of model and grid everything is set, of a plan the sweep's window. */
dpe_status dpe_detect_entry_make(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context,
                                 struct dpe_detect_entry *entry, struct dpe_error *err);
void dpe_detect_entry_free(struct dpe_detect_entry *entry);
/** Whether a table with the grid's groups can hold this plan, made from any spec: then *entry is
 * made, and its. Such are dpe with these groups (or fewer that divide them), and all that
 * dpe_table_of_plan names. Errors as
 * dpe_table_of_plan. */
dpe_status dpe_detect_holds(const struct dpe_detect_grid *grid,
                            const struct dpe_plan_context *context, const struct dpe_plan *plan,
                            struct dpe_detect_entry *entry, bool *holds, struct dpe_error *err);
/** Whether values of another method are frequencies and a factor on the logits alone, in every
 * layer. */
bool dpe_detect_is_plain(const struct dpe_config *config, const struct dpe_table_values *values);
/** The plan with those scales; all pairs of every group move. */
dpe_status dpe_detect_joint_plan(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context, const double *scale,
                                 struct dpe_plan *plan, struct dpe_error *err);

#endif

/* --task auto: a pilot of the base plan finds how many keys and values leave something to find. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_stages.h"

/* From the easiest to the hardest; RUNGS_FIRST is the usual task. */
static const struct {
    int keys, values;
} rungs[] = {{1, 1}, {1, 2}, {1, 4}, {2, 4}, {4, 4}, {8, 4}, {16, 4}};
enum { RUNGS = sizeof rungs / sizeof rungs[0], RUNGS_FIRST = 2 };
static const double least = 0.2;
static const double most = 0.8;

int64_t dpe_detect_pilot_most_rows(const struct detect_inputs *inputs)
{
    return inputs->args->auto_task ? (RUNGS - RUNGS_FIRST) * DETECT_PILOT_SAMPLES : 0;
}

void dpe_detect_pilot_set(struct detect_inputs *inputs, int rung)
{
    inputs->niah.keys = rungs[rung].keys;
    inputs->niah.values = rungs[rung].values;
    dpe_niah_format(&inputs->niah, inputs->niah_spec, sizeof inputs->niah_spec);
}

void dpe_detect_pilot_begin(struct detect_inputs *inputs)
{
    dpe_detect_pilot_set(inputs, RUNGS_FIRST);
}

/* Mean recall of the base plan on a rung: its rows are made where they are missing. */
static dpe_status try_rung(struct sweep *sweep, int rung, const struct dpe_plan *plan,
                           const char *key, double *mean, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    static const int64_t first[2] = {0, 0};
    static const int64_t samples[2] = {DETECT_PILOT_SAMPLES, 0};
    char name[32];
    struct dpe_task task = {0};
    snprintf(name, sizeof name, "pilot-%d-%d", rungs[rung].keys, rungs[rung].values);
    dpe_detect_pilot_set(inputs, rung);
    dpe_status status = dpe_detect_inputs_niah(inputs, name, inputs->args->job.seed, &task, err);
    if (status != DPE_OK) {
        return status;
    }
    const char *keys[1] = {key};
    const struct dpe_plan *plans[1] = {plan};
    int64_t later[2] = {0, 0};
    dpe_detect_stage_validated(sweep, later);
    later[0] += inputs->n_samples[0] * inputs->grid.n_configs;
    const struct stage stage = {.name = "pilot",
                                .n_tasks = 1,
                                .tasks = &task,
                                .first = first,
                                .n_samples = samples,
                                .n_plans = 1,
                                .plans = plans,
                                .keys = keys,
                                .later = later};
    struct dpe_detect_scores scores = {0};
    sweep->planned[0] += DETECT_PILOT_SAMPLES;
    status = dpe_detect_stage_run(sweep, &stage, err);
    if (status == DPE_OK) {
        status = dpe_detect_collect(inputs->job.run, name, keys, 1, 0, DETECT_PILOT_SAMPLES, 1,
                                    &scores, err);
    }
    if (status == DPE_OK) {
        *mean = dpe_detect_interval(&scores, 0, DPE_DETECT_RECALL).mean;
        size_t used = strlen(inputs->pilot);
        snprintf(inputs->pilot + used, sizeof inputs->pilot - used, "%skeys=%d,values=%d: %.3f",
                 used > 0 ? "; " : "", rungs[rung].keys, rungs[rung].values, *mean);
    }
    dpe_detect_scores_free(&scores);
    dpe_task_close(&task);
    return status;
}

/* Harder while the base finds too much, easier while it finds too little. Between two rungs of
 * which one is too easy and the next too hard, and at the ends of the ladder, the nearer one to
 * half of the needles. */
static dpe_status climb(struct sweep *sweep, const struct dpe_plan *plan, const char *key,
                        int *chosen, struct dpe_error *err)
{
    double mean[RUNGS];
    bool tried[RUNGS] = {false};
    int rung = RUNGS_FIRST;
    dpe_status status = DPE_OK;
    *chosen = rung;
    while (rung >= 0 && rung < RUNGS && !tried[rung]) {
        status = try_rung(sweep, rung, plan, key, &mean[rung], err);
        if (status != DPE_OK) {
            return status;
        }
        tried[rung] = true;
        bool nearer = !tried[*chosen] || fabs(mean[rung] - 0.5) < fabs(mean[*chosen] - 0.5);
        *chosen = nearer ? rung : *chosen;
        if (mean[rung] >= least && mean[rung] <= most) {
            return DPE_OK;
        }
        rung += mean[rung] > most ? 1 : -1;
    }
    dpe_log_warning("--task auto: no number of keys and values leaves the base between %.0f and "
                    "%.0f %% (%s); another --length does",
                    100.0 * least, 100.0 * most, sweep->inputs->pilot);
    return DPE_OK;
}

dpe_status dpe_detect_stage_pilot(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    struct dpe_plan plan = {0};
    char key[33];
    int chosen = RUNGS_FIRST;
    if (!inputs->args->auto_task) {
        return DPE_OK;
    }
    /* Without a temperature: that of the options may change between two calls, the task must not.
     */
    struct dpe_detect_grid cold = inputs->grid;
    cold.params.temperature = dpe_temperature_none;
    dpe_status status = dpe_detect_base_plan(&cold, &inputs->context, &plan, err);
    if (status == DPE_OK) {
        status = dpe_plan_key(&plan, key, err);
    }
    if (status == DPE_OK) {
        status = climb(sweep, &plan, key, &chosen, err);
    }
    dpe_plan_free(&plan);
    if (status != DPE_OK) {
        return status;
    }
    dpe_detect_pilot_set(inputs, chosen);
    dpe_log_info("--task auto: the base finds %s; the task is keys=%d,values=%d", inputs->pilot,
                 rungs[chosen].keys, rungs[chosen].values);
    dpe_task_close(&inputs->tasks[0]);
    dpe_task_close(&inputs->validate_tasks[0]);
    inputs->own_validate_task[0] = false;
    inputs->n_tasks = 0; /* of these two none is open while one fails to */
    status = dpe_detect_inputs_niah(inputs, "niah", inputs->args->job.seed, &inputs->tasks[0], err);
    if (status == DPE_OK) {
        inputs->n_tasks = 1;
        status = dpe_detect_inputs_niah(inputs, "validate-niah", inputs->validation_seed,
                                        &inputs->validate_tasks[0], err);
        inputs->own_validate_task[0] = status == DPE_OK;
    }
    return status;
}

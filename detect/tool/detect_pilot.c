/* The needles of a search whose task is not named: the hardest that the model as it is can do. */

#include "detect/tool/detect_tool.h"

/* From the easiest to the hardest. A context has eight questions where it can; one question a
 * context, at index 0, is only for texts that are too short for more. */
static const struct {
    int keys, values, asked;
} rungs[] = {{1, 1, 1}, {4, 1, 4}, {8, 1, 8}, {8, 2, 8}, {4, 4, 4}, {8, 4, 8}};
enum { RUNGS = sizeof rungs / sizeof rungs[0], EASIEST = 1 };
/* A plan that does not find the value goes on talking: tokens for what stands around one are
 * enough. */
enum { SPARE = 32 };
/* What a model should find of what plans are compared with beyond it, in a quarter of its trained
 * length, and in the whole: many questions that it half answers tell plans apart better than one
 * that it always does. */
static const double possible_in_quarter = 0.5;
static const double possible = 0.4;
/* Texts below which a quarter saves nothing; ceilings that are tried at most. */
enum { LEAST_QUARTER = 1024, MOST_CEILINGS = 3 };

int dpe_detect_pilot_rungs(void)
{
    return RUNGS;
}

struct dpe_niah_params dpe_detect_pilot_task(const struct detect_inputs *inputs, int rung)
{
    struct dpe_niah_params niah = inputs->needles.users;
    niah.keys = rungs[rung].keys;
    niah.values = rungs[rung].values;
    niah.asked = rungs[rung].asked;
    niah.spare = SPARE;
    return niah;
}

void dpe_detect_short_name(const struct dpe_niah_params *niah, int64_t length, char name[32])
{
    snprintf(name, 32, "unchanged-%lld-%d-%d", (long long)length, niah->keys, niah->values);
}

/* What the model as it is finds of a context of a rung, in so many tokens; *opens false
 * where these have no room for its needles. */
static dpe_status run_short(struct sweep *sweep, int rung, int64_t length, double *mean,
                            bool *opens, struct dpe_error *err)
{
    struct detect_inputs *inputs = &sweep->inputs;
    const struct dpe_niah_params niah = dpe_detect_pilot_task(inputs, rung);
    char name[32];
    DPE_SCOPED(dpe_task_close) struct dpe_task task = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan rope = {0};
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    dpe_detect_short_name(&niah, length, name);
    const dpe_status status =
        dpe_detect_inputs_niah(inputs, &niah, length, name, inputs->validation_seed, &task, err);
    *opens = status == DPE_OK;
    if (!*opens) {
        return status == DPE_USAGE ? DPE_OK : status;
    }
    DPE_TRY(dpe_detect_inputs_plan(inputs, "rope", &rope, err));
    struct dpe_detect_config config = {.plan = rope};
    DPE_TRY(dpe_plan_key(&rope, config.key, err));
    const struct stage stage = {.name = "pilot",
                                .n_tasks = 1,
                                .tasks = {{.task = task, .n = niah.asked}},
                                .length = length,
                                .n_plans = 1,
                                .configs = &config};
    DPE_TRY(dpe_detect_stage_run(sweep, &stage, err));
    const char *key = config.key;
    DPE_TRY(dpe_detect_collect(inputs->job.run, task.name, &key, 1, 0, stage.tasks[0].n, niah.asked,
                               &scores, err));
    *mean = dpe_detect_interval(&scores, 0, DPE_DETECT_RECALL).mean;
    dpe_append(inputs->needles.pilot, sizeof inputs->needles.pilot,
               "%skeys=%d,values=%d in %lld tokens: %.3f",
               inputs->needles.pilot[0] != '\0' ? "; " : "", niah.keys, niah.values,
               (long long)length, *mean);
    return DPE_OK;
}

/* A quarter of the trained length shows first what the model cannot do, for a quarter of the time
 * or less. */
dpe_status dpe_detect_stage_pilot(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = &sweep->inputs;
    const int64_t trained = inputs->grid.params.trained_length;
    const int64_t whole = dpe_least(trained, inputs->grid.params.length);
    double mean = 0.0;
    int ceilings = 0;
    int chosen = -1;
    if (!inputs->args->auto_task) {
        return DPE_OK;
    }
    for (int rung = RUNGS - 1;
         rung >= (chosen >= 0 ? EASIEST : 0) && mean < possible && ceilings < MOST_CEILINGS;
         rung--) {
        bool opens = true;
        double first = 1.0;
        if (rung > EASIEST && trained / 4 >= LEAST_QUARTER) {
            DPE_TRY(run_short(sweep, rung, trained / 4, &first, &opens, err));
        }
        if (first >= possible_in_quarter) {
            DPE_TRY(run_short(sweep, rung, whole, &mean, &opens, err));
            ceilings += opens;
            chosen = opens ? rung : chosen;
        }
    }
    if (chosen >= 0) {
        inputs->needles.niah = dpe_detect_pilot_task(inputs, chosen);
        dpe_detect_inputs_set_niah(inputs);
    }
    inputs->needles.say_little = mean < DPE_DETECT_LOW_CEILING;
    dpe_log_info("pilot: unchanged, the model finds %s; plans are compared on %s",
                 inputs->needles.pilot,
                 inputs->needles.say_little ? "the perplexity of texts: needles say little of it"
                                            : "the needles named last");
    dpe_status status = dpe_detect_inputs_reopen(inputs, err);
    if (status == DPE_OK && inputs->needles.say_little && inputs->streams[DETECT_GUARD].n == 0) {
        dpe_log_warning("there are no texts of --length tokens: plans are compared on needles");
        inputs->needles.say_little = false;
        status = dpe_detect_inputs_reopen(inputs, err);
    }
    return status;
}

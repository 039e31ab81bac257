/* --task auto: a pilot of a handful of plans finds the task that tells good plans apart for the
 * fewest tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/search/search.h"
#include "detect/tool/detect_tool.h"

/* From the easiest to the hardest. Four questions share a context, where there are as many keys. */
static const struct questions {
    int keys, values, asked;
} rungs[] = {{1, 1, 1}, {4, 1, 4}, {4, 2, 4}, {4, 4, 4}, {8, 4, 4}, {16, 4, 4}};
/* A plan that does not find the value goes on talking: tokens for what stands around one are
 * enough. */
enum { SPARE = 32 };
enum { RUNGS = sizeof rungs / sizeof rungs[0], RUNGS_FIRST = 3, PLANS = 6, GOOD = 3 };
/* Those of methods that are ready: a context has eight questions where it can. */
static const struct questions ready_rungs[] = {{1, 1, 1}, {4, 1, 4}, {8, 1, 8},
                                               {8, 2, 8}, {4, 4, 4}, {8, 4, 8}};
/* One question a context, at index 0, is only for texts that are too short for more. */
enum { READY_RUNGS = sizeof ready_rungs / sizeof ready_rungs[0], READY_EASIEST = 1 };
/* A plan that finds less, or more, of every task cannot be told from another. */
static const double least = 0.02;
static const double most = 0.98;
/* That a model should find, of what methods are compared with beyond it, in a quarter of its
 * trained length, and in the whole: many questions that it half answers tell plans apart better
 * than one that it always does. */
static const double possible_in_quarter = 0.5;
static const double possible = 0.4;
/* Texts below which a quarter saves nothing; ceilings that are tried at most. */
enum { LEAST_QUARTER = 1024, MOST_CEILINGS = 3 };
/* What good plans find at most where a harder task would tell no more. */
static const double most_spread = 2.0 / 3.0;
/* Where good plans find as much, slips of free answers hide what they differ by: steps are tried.
 */
static const double near_ceiling = 0.8;

/* The plans of a pilot, those first that usually find most, and what its rungs showed. */
struct pilot {
    struct sweep *sweep;
    int n;
    struct dpe_detect_config configs[PLANS];
    unsigned char live[PLANS];
    bool chosen_good; /* live are the good ones */
    struct rung {
        bool tried, opens;
        struct dpe_detect_reading reading;
    } rungs[RUNGS], stepped; /* the chosen one by steps */
    bool steps;              /* say more than recall */
    int questions;           /* on each context */
};

static void pilot_free(struct pilot *pilot)
{
    for (int i = 0; i < pilot->n; i++) {
        dpe_plan_free(&pilot->configs[i].plan);
    }
}

struct detect_pilot_rows dpe_detect_pilot_most_rows(const struct detect_inputs *inputs)
{
    struct detect_pilot_rows rows = {0};
    if (!inputs->args->auto_task) {
        return rows;
    }
    for (int i = READY_EASIEST + 1; i < READY_RUNGS && !dpe_detect_sweeps(inputs->args->rule);
         i++) {
        rows.quarters += ready_rungs[i].asked;
    }
    for (int i = 0; i < RUNGS && dpe_detect_sweeps(inputs->args->rule); i++) {
        rows.longs += (int64_t)PLANS * DETECT_PILOT_CONTEXTS * rungs[i].asked;
    }
    if (!dpe_detect_sweeps(inputs->args->rule)) { /* beside the last one, which is held */
        rows.shorts = (MOST_CEILINGS - 1) * dpe_detect_inputs_ceiling(inputs, DETECT_READY_ASKED);
    } else if (inputs->args->score == DETECT_SCORE_AUTO) {
        rows.longs += (int64_t)GOOD * DETECT_PILOT_CONTEXTS * rungs[RUNGS - 1].asked;
    }
    return rows;
}

/* Ask these questions of each context. */
static void set_task(struct detect_inputs *inputs, const struct questions *questions, bool steps)
{
    inputs->niah.steps =
        steps || inputs->users_niah.steps || inputs->args->score == DETECT_SCORE_STEPS;
    inputs->niah.keys = questions->keys;
    inputs->niah.values = questions->values;
    inputs->niah.asked = questions->asked;
    inputs->niah.spare = SPARE;
    dpe_detect_inputs_set_niah(inputs);
}

static const char *name_of(const struct questions *questions, char name[12])
{
    snprintf(name, 12, "-%d-%d", questions->keys, questions->values);
    return name;
}

int64_t dpe_detect_pilot_together(const struct detect_inputs *inputs, const char *task)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    for (int i = 0; i < (ready ? (int)READY_RUNGS : (int)RUNGS); i++) {
        const struct questions *rung = ready ? &ready_rungs[i] : &rungs[i];
        char name[12];
        if (strstr(task, name_of(rung, name)) != NULL) {
            return rung->asked;
        }
    }
    return 1;
}

/* Open samples of them, in so many tokens; *opens false where a context has no room for its
 * needles. */
static dpe_status open_task(struct detect_inputs *inputs, const struct questions *questions,
                            bool steps, int64_t length, const char *what, struct dpe_task *task,
                            bool *opens, struct dpe_error *err)
{
    char name[32];
    char of[12];
    snprintf(name, sizeof name, "%s%s%s", what, name_of(questions, of), steps ? "-steps" : "");
    set_task(inputs, questions, steps);
    dpe_status status = dpe_detect_inputs_niah(
        inputs, &inputs->niah, length, name,
        dpe_detect_sweeps(inputs->args->rule) ? inputs->args->job.seed : inputs->validation_seed,
        task, err);
    *opens = status == DPE_OK;
    return status == DPE_USAGE ? DPE_OK : status;
}

/* The validation of a search asks the user's questions, too. */
static dpe_status check_users(const struct detect_inputs *inputs, struct dpe_error *err)
{
    DPE_SCOPED(dpe_niah_close_scoped) struct dpe_niah *niah = NULL;
    return dpe_niah_open(&inputs->users_niah, inputs->args->job.length, inputs->job.corpus,
                         inputs->job.tokenizer, inputs->args->job.chat_template,
                         inputs->validation_seed, &niah, err);
}

dpe_status dpe_detect_pilot_begin(struct detect_inputs *inputs, struct dpe_error *err)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    for (int rung = ready ? READY_RUNGS - 1 : RUNGS_FIRST; rung >= 0; rung--) {
        DPE_SCOPED(dpe_task_close) struct dpe_task task = {0};
        bool opens = false;
        DPE_TRY(open_task(inputs, ready ? &ready_rungs[rung] : &rungs[rung], false,
                          inputs->args->job.length, "pilot", &task, &opens, err));
        if (opens) {
            return ready ? DPE_OK : check_users(inputs, err);
        }
    }
    dpe_detect_inputs_set_users(inputs); /* whose error says what does not fit */
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- plans */

/* Append the plan that was made at the end of the list; one that the model cannot have, or that is
 * there already, is left out. */
static dpe_status add_plan(struct pilot *pilot, dpe_status made, struct dpe_error *err)
{
    struct dpe_detect_config *config = &pilot->configs[pilot->n];
    if (made == DPE_USAGE) {
        return DPE_OK;
    }
    DPE_TRY(made);
    dpe_status status = dpe_plan_key(&config->plan, config->key, err);
    bool known = status != DPE_OK;
    for (int i = 0; i < pilot->n; i++) {
        known = known || strcmp(pilot->configs[i].key, config->key) == 0;
    }
    if (known) {
        dpe_plan_free(&config->plan);
    } else {
        pilot->live[pilot->n++] = 1;
    }
    return status;
}

/* log-n with the trained length; frequencies can only have a factor: YaRN's. */
static struct dpe_temperature usual_temperature(const struct dpe_detect_params *params)
{
    const double trained = (double)params->trained_length;
    return params->frequencies
               ? (struct dpe_temperature){0.0, 1.0, 0.0, dpe_detect_yarn_factor(params), DPE_LEVEL}
               : (struct dpe_temperature){trained, 1.0, 0.0, 1.0, DPE_LEVEL};
}

/* Every group at the longest detecting length up to L0. */
static void put_longest(const struct dpe_detect_params *params, struct dpe_detect_point *point)
{
    for (int t = 0; t < params->n_lengths && !params->frequencies; t++) {
        for (int g = 0; g < params->n_groups && params->lengths[t] <= params->trained_length; g++) {
            point->at[g] = (int16_t)t;
        }
    }
}

static dpe_status make_plans(struct pilot *pilot, struct dpe_error *err)
{
    const struct detect_inputs *inputs = pilot->sweep->inputs;
    /* Without a temperature: that of the options may change between two calls,
     * the task must not. */
    struct dpe_detect_grid grid = inputs->grid;
    grid.params.temperature = dpe_temperature_none;
    struct dpe_detect_point base;
    dpe_detect_point_base(&grid.params, &base);
    struct dpe_detect_point points[4] = {base, base, base, base};
    points[0].temperature = points[1].temperature = usual_temperature(&grid.params);
    put_longest(&grid.params, &points[1]);
    put_longest(&grid.params, &points[3]);
    for (int i = 0; i < 4; i++) {
        DPE_TRY(add_plan(pilot,
                         dpe_detect_point_plan(&grid, &inputs->context, &points[i],
                                               &pilot->configs[pilot->n].plan, err),
                         err));
    }
    static const char *const others[] = {"yarn", "rope"};
    const struct dpe_plan_context context = dpe_detect_inputs_context(inputs);
    for (int i = 0; i < 2; i++) {
        DPE_TRY(add_plan(
            pilot, dpe_plan_make(others[i], &context, &pilot->configs[pilot->n].plan, err), err));
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- rungs */

/* Run a rung: its rows are made where they are missing. */
static dpe_status run_rung(struct pilot *pilot, int at, bool steps, struct dpe_error *err)
{
    struct sweep *sweep = pilot->sweep;
    struct detect_inputs *inputs = sweep->inputs;
    struct rung *rung = steps ? &pilot->stepped : &pilot->rungs[at];
    DPE_SCOPED(dpe_task_close) struct dpe_task task = {0};
    rung->tried = true;
    DPE_TRY(open_task(inputs, &rungs[at], steps, inputs->args->job.length, "pilot", &task,
                      &rung->opens, err));
    if (!rung->opens) {
        return DPE_OK;
    }
    const int64_t samples = (int64_t)DETECT_PILOT_CONTEXTS * rungs[at].asked;
    for (int i = 0; i < pilot->n; i++) {
        sweep->planned[0] += pilot->live[i] != 0 ? samples : 0;
    }
    struct stage stage =
        dpe_detect_stage_of(sweep, "pilot", &task, samples, pilot->configs, pilot->n);
    stage.live = pilot->live;
    stage.later[0] += inputs->n_samples[0] * inputs->grid.n_configs;
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    DPE_TRY(dpe_detect_stage_scores(sweep, &stage, rungs[at].asked, &scores, err));
    pilot->chosen_good = pilot->chosen_good || dpe_detect_reading_best(&scores, GOOD, pilot->live);
    dpe_detect_read(&scores, pilot->live, rungs[at].values, &rung->reading);
    dpe_append(inputs->pilot, sizeof inputs->pilot, "%skeys=%d,values=%d%s: %.3f",
               inputs->pilot[0] != '\0' ? "; " : "", rungs[at].keys, rungs[at].values,
               steps ? ",score=steps" : "", rung->reading.mean);
    return DPE_OK;
}

/* From the first rung towards the middle of the scale, as long as a rung is better than the one
 * before. Where good plans find a half to two thirds, recall is spread: a harder task has the more
 * reliable means there, and chooses plans that lose the user's (eval/RESULTS.md). */
static dpe_status climb(struct pilot *pilot, int *chosen, struct dpe_error *err)
{
    int at = RUNGS_FIRST;
    DPE_TRY(run_rung(pilot, at, false, err));
    while (!pilot->rungs[at].opens && at > 0) {
        DPE_TRY(run_rung(pilot, --at, false, err));
    }
    *chosen = at;
    const double mean = pilot->rungs[at].reading.mean;
    const int step = mean > most_spread ? 1 : -1;
    bool better = mean > most_spread || mean <= 0.5;
    while (better && at + step >= 0 && at + step < RUNGS && !pilot->rungs[at + step].tried) {
        at += step;
        DPE_TRY(run_rung(pilot, at, false, err));
        bool nothing = !pilot->chosen_good; /* no plan has found anything yet */
        better = pilot->rungs[at].opens &&
                 (nothing || dpe_detect_reading_better(
                                 &pilot->rungs[at].reading, &pilot->rungs[*chosen].reading,
                                 step < 0 && rungs[at].asked == rungs[*chosen].asked));
        *chosen = better ? at : *chosen;
    }
    return DPE_OK;
}

/* Where nothing harder is to be had and good plans find almost everything: the same task by steps,
 * if these are the more reliable. */
static dpe_status try_steps(struct pilot *pilot, int chosen, struct dpe_error *err)
{
    const struct rung *rung = &pilot->rungs[chosen];
    const struct detect_inputs *inputs = pilot->sweep->inputs;
    if (!rung->opens || rung->reading.mean < near_ceiling || inputs->users_niah.steps ||
        inputs->args->score != DETECT_SCORE_AUTO || inputs->job.remote != NULL) {
        return DPE_OK;
    }
    DPE_TRY(run_rung(pilot, chosen, true, err));
    pilot->steps =
        pilot->stepped.opens && pilot->stepped.reading.reliability > rung->reading.reliability;
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- ceiling */

/* What the model as it is finds of so many samples of a rung, in so many tokens; *opens as before.
 */
static dpe_status run_ceiling(struct sweep *sweep, int at, int64_t length, int64_t n, double *mean,
                              bool *opens, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_plan_context context = dpe_detect_inputs_context(inputs);
    const bool whole = length == inputs->grid.params.trained_length;
    const struct questions *questions = &ready_rungs[at];
    DPE_SCOPED(dpe_task_close) struct dpe_task task = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan rope = {0};
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    DPE_TRY(open_task(inputs, questions, false, length, whole ? "ceiling" : "pilot", &task, opens,
                      err));
    if (!*opens) {
        return DPE_OK;
    }
    DPE_TRY(dpe_plan_make("rope", &context, &rope, err));
    struct dpe_detect_config config = {.plan = rope};
    DPE_TRY(dpe_plan_key(&rope, config.key, err));
    const struct stage stage = dpe_detect_stage_of(sweep, "pilot", &task, n, &config, 1);
    sweep->planned[0] += n;
    DPE_TRY(dpe_detect_stage_scores(sweep, &stage, questions->asked, &scores, err));
    *mean = dpe_detect_interval(&scores, 0, DPE_DETECT_RECALL).mean;
    dpe_append(inputs->pilot, sizeof inputs->pilot, "%skeys=%d,values=%d in %lld tokens: %.3f",
               inputs->pilot[0] != '\0' ? "; " : "", questions->keys, questions->values,
               (long long)length, *mean);
    if (whole) {
        memcpy(inputs->ceiling_name, task.name, sizeof inputs->ceiling_name);
    }
    return DPE_OK;
}

/* For methods that are ready: the hardest task of which the model finds enough in its trained
 * length. A text of a quarter of that shows first what it cannot do, for a quarter of the time or
 * less. */
static dpe_status descend(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const int64_t trained = inputs->grid.params.trained_length;
    double mean = 0.0;
    int ceilings = 0;
    for (int at = READY_RUNGS - 1;
         at >= (ceilings > 0 ? READY_EASIEST : 0) && mean < possible && ceilings < MOST_CEILINGS;
         at--) {
        bool opens = false;
        double first = 1.0;
        if (at > READY_EASIEST && trained / 4 >= LEAST_QUARTER) {
            DPE_TRY(
                run_ceiling(sweep, at, trained / 4, ready_rungs[at].asked, &first, &opens, err));
        }
        if (first >= possible_in_quarter) {
            const int64_t n = dpe_detect_inputs_ceiling(inputs, ready_rungs[at].asked);
            DPE_TRY(run_ceiling(sweep, at, trained, n, &mean, &opens, err));
            ceilings += opens;
        }
    }
    inputs->says_little = mean < DPE_DETECT_LOW_CEILING;
    dpe_log_info("pilot: unchanged, the model finds %s; methods are compared on the last",
                 inputs->pilot);
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- result */

/* What was chosen, what good plans find of it, and which differences the samples will show. */
static void tell(const struct pilot *pilot, int chosen)
{
    const struct detect_inputs *inputs = pilot->sweep->inputs;
    const struct rung *rung = pilot->steps ? &pilot->stepped : &pilot->rungs[chosen];
    double contexts = (double)inputs->samples / (double)pilot->questions;
    struct dpe_detect_reading reading = rung->reading;
    reading.noise = fmax(0.0, reading.noise - reading.within / (double)rungs[chosen].asked) +
                    reading.within / (double)pilot->questions;
    double shown = dpe_detect_reading_shows(&reading, contexts);
    dpe_log_info("pilot: good plans find %s", inputs->pilot);
    dpe_log_info(
        "pilot: the search measures with keys=%d,values=%d%s, %d questions on each context; "
        "%lld samples will show differences of %.0f points",
        rungs[chosen].keys, rungs[chosen].values, pilot->steps ? ",score=steps" : "",
        pilot->questions, (long long)inputs->samples, 100.0 * shown);
}

/* The task of the rung, or the user's where no rung can tell plans apart. */
static void settle(struct pilot *pilot, int chosen)
{
    struct detect_inputs *inputs = pilot->sweep->inputs;
    const struct rung *rung = &pilot->rungs[chosen];
    if (!rung->opens || rung->reading.mean < least) {
        dpe_log_warning("pilot: no plan finds anything of the tasks that it tried (%s); the search "
                        "measures with %s. A shorter --length may show more",
                        inputs->pilot, inputs->users_spec);
        dpe_detect_inputs_set_users(inputs);
        return;
    }
    const struct rung *measured = pilot->steps ? &pilot->stepped : rung;
    set_task(inputs, &rungs[chosen], pilot->steps);
    pilot->questions =
        dpe_detect_questions(&measured->reading, rungs[chosen].asked, rungs[chosen].keys);
    inputs->niah.asked = pilot->questions;
    dpe_detect_inputs_set_niah(inputs);
    tell(pilot, chosen);
    if (rung->reading.mean > most) {
        dpe_log_warning("pilot: good plans find everything, also of the hardest task that fits; a "
                        "larger --length tells them apart");
    }
}

dpe_status dpe_detect_stage_pilot(struct sweep *sweep, struct dpe_error *err)
{
    DPE_SCOPED(pilot_free) struct pilot pilot = {.sweep = sweep};
    int chosen = RUNGS_FIRST;
    struct detect_inputs *inputs = sweep->inputs;
    const int64_t before = sweep->planned[0];
    if (!inputs->args->auto_task) {
        return DPE_OK;
    }
    if (dpe_detect_sweeps(inputs->args->rule)) {
        DPE_TRY(make_plans(&pilot, err));
        DPE_TRY(climb(&pilot, &chosen, err));
        DPE_TRY(try_steps(&pilot, chosen, err));
        settle(&pilot, chosen);
    } else {
        DPE_TRY(descend(sweep, err));
    }
    const int64_t pilots = sweep->planned[0] - before;
    DPE_TRY(dpe_detect_inputs_reopen(inputs, err));
    dpe_detect_stage_plan(sweep);
    sweep->planned[0] += pilots;
    return DPE_OK;
}

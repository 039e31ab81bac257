/* How much a sweep runs: samples together and in a round, rows of each stage at most. */
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "engine/plan/methods/methods.h"

enum { MOST_BATCH = 64, LEAST_ROUND = 4 };

int64_t dpe_detect_inputs_together(const struct detect_inputs *inputs)
{
    return inputs->args->use_niah ? dpe_niah_together(&inputs->niah) : 1;
}

/* Contexts that share something stay in one round. */
static int64_t least_round(const struct detect_inputs *inputs)
{
    return dpe_detect_round_up(LEAST_ROUND, dpe_detect_inputs_together(inputs));
}

/* Samples decoded together: what was asked for, else 4, or as many as share something; never more
 * than there are, nor than a race's round has. */
static int64_t batch_of(const struct detect_inputs *inputs)
{
    enum { USUAL = 4 };
    int64_t together = dpe_detect_inputs_together(inputs);
    int64_t batch = together > USUAL ? together : USUAL;
    batch = batch < MOST_BATCH ? batch : MOST_BATCH;
    batch = inputs->args->batch > 0 ? inputs->args->batch : batch;
    int64_t most = inputs->samples;
    if (inputs->args->race && least_round(inputs) < most) {
        most = least_round(inputs);
    }
    /* Perplexities are computed one by one. */
    return !inputs->args->use_niah ? 1 : batch < most ? batch : most;
}

dpe_status dpe_detect_inputs_fit_batch(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    int64_t batch = batch_of(inputs);
    if (args->batch > batch && !args->use_niah) {
        dpe_log_info("--batch %lld: perplexities are computed one by one", (long long)args->batch);
    } else if (args->batch > batch && args->race && batch < inputs->samples) {
        dpe_log_info("--batch %lld: a race looks at its rows after every %lld samples, so it "
                     "decodes no more than these together",
                     (long long)args->batch, (long long)batch);
    }
    if (args->race && dpe_detect_inputs_race_needs(inputs) >= inputs->samples) {
        dpe_log_warning(
            "--race drops nothing: at level %g no test can drop a length before %lld "
            "samples%s, but --samples is %lld",
            args->race_level, (long long)dpe_detect_inputs_race_needs(inputs),
            dpe_detect_inputs_together(inputs) > 1 ? " (those that share a context are one)" : "",
            (long long)inputs->samples);
    }
    DPE_TRY(dpe_job_fit_batch(&inputs->job, &inputs->grid.configs[0].plan, args->job.length, batch,
                              err));
    /* The validation decodes as many together, under plans that may need more. */
    const int n = args->use_niah ? dpe_detect_inputs_rivals(inputs) : 0;
    for (int i = 0; i < n; i++) {
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        DPE_TRY(dpe_detect_inputs_rival(inputs, i, &plan, err));
        DPE_TRY(dpe_job_fit_batch(&inputs->job, &plan, args->job.length, inputs->job.batch, err));
    }
    return DPE_OK;
}

int64_t dpe_detect_inputs_read(const struct detect_inputs *inputs, int task)
{
    int64_t length = inputs->args->job.length;
    const struct dpe_niah_params *niah = &inputs->niah;
    if (strcmp(inputs->tasks[task].name, "ppl") == 0) {
        return length;
    }
    int64_t asked = niah->asked > 1 ? niah->asked : 1;
    int64_t shared = niah->shared > 1 ? niah->shared : 1;
    return (length / 2 + length / 2 / shared) / asked;
}

int64_t dpe_detect_inputs_per_round(const struct detect_inputs *inputs)
{
    int64_t together = dpe_detect_inputs_together(inputs);
    int64_t batch = batch_of(inputs);
    if (inputs->args->race) {
        return least_round(inputs);
    }
    /* Whole batches, where contexts allow it. */
    return together == 1      ? dpe_detect_round_up(LEAST_ROUND, batch)
           : batch > together ? dpe_detect_round_up(batch, together)
                              : least_round(inputs);
}

int64_t dpe_detect_inputs_race_needs(const struct detect_inputs *inputs)
{
    int64_t contexts = 1; /* that all count against a length: p = 2^-contexts */
    while (contexts < 60 && 1.0 / (double)((int64_t)1 << contexts) >= inputs->args->race_level) {
        contexts++;
    }
    return dpe_detect_round_up(contexts * dpe_detect_inputs_together(inputs),
                               dpe_detect_inputs_per_round(inputs));
}

/* The first step's configurations are the sweep's, and each step has one that an earlier one had.
 */
int64_t dpe_detect_inputs_steps(const struct detect_inputs *inputs)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    int64_t rounds = inputs->args->rounds > 0 ? inputs->args->rounds : 1;
    return inputs->args->rule == DPE_DETECT_SEQUENTIAL
               ? (rounds * params->n_groups - 1) * (params->n_lengths - 1)
               : 0;
}

bool dpe_detect_inputs_has_own(const struct detect_inputs *inputs)
{
    struct dpe_detect_point point;
    return inputs->args->rule == DPE_DETECT_BRIEF ||
           (inputs->args->usual && dpe_detect_point_usual(&inputs->grid.params, &point));
}

int64_t dpe_detect_inputs_validated(const struct detect_inputs *inputs)
{
    enum { BEST_FAMILIES = 2 };
    return DPE_DETECT_N_VALIDATED + (inputs->args->rule == DPE_DETECT_JOINTLY) +
           dpe_detect_inputs_has_own(inputs) + (inputs->families != 0 ? BEST_FAMILIES : 0) +
           dpe_detect_inputs_guards(inputs) + inputs->args->n_against;
}

bool dpe_detect_inputs_races_ready(const struct detect_inputs *inputs)
{
    return !dpe_detect_sweeps(inputs->args->rule) && inputs->args->use_niah &&
           !inputs->args->use_ppl;
}

bool dpe_detect_inputs_races_base(const struct detect_inputs *inputs)
{
    return !dpe_detect_inputs_races_ready(inputs) || !inputs->held_ready;
}

int64_t dpe_detect_inputs_ready_round(const struct detect_inputs *inputs)
{
    enum { LEAST = 4 };
    return dpe_detect_round_up(LEAST, dpe_detect_inputs_together(inputs));
}

int64_t dpe_detect_inputs_validated_rows(const struct detect_inputs *inputs, int task)
{
    const int64_t samples = inputs->n_validated[task];
    const int64_t together = dpe_detect_inputs_ready_round(inputs);
    const int64_t contexts = (samples + together - 1) / together;
    if (!dpe_detect_inputs_races_ready(inputs)) {
        return samples * dpe_detect_inputs_validated(inputs);
    }
    /* Rope, the methods, and the base; the joint plan is the base. */
    const int plans = 1 + inputs->args->n_against + dpe_detect_inputs_races_base(inputs) +
                      dpe_detect_inputs_has_own(inputs);
    int64_t rows = 0;
    for (int64_t c = 0; c < contexts; c++) {
        const int64_t n = samples - c * together < together ? samples - c * together : together;
        rows += n * dpe_detect_ready_left(plans, c, contexts);
    }
    return rows;
}

struct dpe_detect_search_options dpe_detect_inputs_searching(const struct detect_inputs *inputs)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const struct detect_held *guard = &inputs->held[DETECT_GUARD];
    const int64_t texts = guard->opened ? guard->n : 0;
    const struct dpe_detect_search_options options = {
        .temperature = inputs->searches_temperature,
        .near = inputs->near,
        .joint = args->rule == DPE_DETECT_JOINTLY,
        /* Where needles say little there is nothing to search by. */
        .brief = args->rule == DPE_DETECT_BRIEF && !inputs->says_little,
        .families = inputs->families,
        .rounds = args->rounds > 0 ? (int)args->rounds : DPE_DETECT_SEARCH_ROUNDS,
        /* Books of the validation are others, where there are some. */
        .n_samples = args->use_niah ? inputs->samples : inputs->n_books,
        .per_round = dpe_detect_inputs_per_round(inputs),
        .together = dpe_detect_inputs_together(inputs),
        .criterion = args->use_niah ? DPE_DETECT_RECALL : DPE_DETECT_PERPLEXITY,
        .guard = args->guard,
        .texts = texts < DETECT_SEARCH_TEXTS ? texts : DETECT_SEARCH_TEXTS,
    };
    bool searches =
        options.brief || (dpe_detect_sweeps(args->rule) && (options.temperature || options.joint));
    return searches ? options : (struct dpe_detect_search_options){0};
}

int64_t dpe_detect_inputs_searched(const struct detect_inputs *inputs)
{
    const struct dpe_detect_search_options options = dpe_detect_inputs_searching(inputs);
    return options.n_samples > 0 ? dpe_detect_search_most_rows(&options, &inputs->grid.params) : 0;
}

/* The joint search takes only proposals from the sweep, which it then tests, so an eighth of the
 * samples do. */
int64_t dpe_detect_inputs_sweep_samples(const struct detect_inputs *inputs, int64_t samples)
{
    enum { LEAST = 8, SEVERAL = 4 };
    const int64_t together = dpe_detect_inputs_together(inputs);
    const int64_t least = together >= SEVERAL ? together : LEAST;
    int64_t some = dpe_detect_round_up((samples + 7) / 8, dpe_detect_inputs_per_round(inputs));
    some = some > least ? some : least;
    return inputs->args->rule == DPE_DETECT_JOINTLY && some < samples ? some : samples;
}

/* --samples counts contexts' worth of reading where every sample has a context of its own.
 * Questions that share one cost less and say less: then there are at least so many contexts that a
 * test can show something. Of ready methods eight samples are a context, as many as its task asks.
 */
void dpe_detect_inputs_set_samples(struct detect_inputs *inputs)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    const int64_t least_contexts = ready ? 2 : 8;
    const int64_t asked = inputs->args->job.samples;
    int64_t wanted =
        inputs->says_little && asked > DETECT_READY_SAMPLES ? DETECT_READY_SAMPLES : asked;
    int64_t together = dpe_detect_inputs_together(inputs);
    inputs->samples = wanted;
    inputs->n_validated[0] = wanted;
    if (inputs->args->auto_task && together > 1) {
        int64_t unit = ready ? DETECT_READY_ASKED : together;
        int64_t contexts = (wanted + unit - 1) / unit;
        int64_t least = wanted < least_contexts ? wanted : least_contexts;
        inputs->samples = together * (contexts > least ? contexts : least);
        inputs->n_validated[0] = inputs->samples;
    }
    inputs->n_samples[0] = dpe_detect_inputs_sweep_samples(inputs, inputs->samples);
}

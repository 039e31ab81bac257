/* How much a sweep runs: samples together and in a round, rows of each stage at most. The planned
 * work: said before it begins, or in a dry run what it would cost, how long it would take here, and
 * what each saving saves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "engine/plan/methods/methods.h"
#include "eval/chat/chat.h"

enum { MOST_BATCH = 64, LEAST_ROUND = 4 };

int64_t dpe_detect_inputs_together(const struct detect_inputs *inputs)
{
    return inputs->args->use_niah ? dpe_niah_together(&inputs->niah) : 1;
}

/* Contexts that share something stay in one round. */
int64_t dpe_detect_inputs_least_round(const struct detect_inputs *inputs)
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
    if (inputs->args->race) {
        most = dpe_least(most, dpe_detect_inputs_least_round(inputs));
    }
    /* Perplexities are computed one by one. */
    return !inputs->args->use_niah ? 1 : batch < most ? batch : most;
}

/* Samples that a race must have seen before it can drop anything. */
static int64_t race_needs(const struct detect_inputs *inputs)
{
    int64_t contexts = 1; /* that all count against a length: p = 2^-contexts */
    while (contexts < 60 && 1.0 / (double)((int64_t)1 << contexts) >= inputs->args->race_level) {
        contexts++;
    }
    return dpe_detect_round_up(contexts * dpe_detect_inputs_together(inputs),
                               dpe_detect_inputs_per_round(inputs));
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
    if (args->race && race_needs(inputs) >= inputs->samples) {
        dpe_log_warning(
            "--race drops nothing: at level %g no test can drop a length before %lld "
            "samples%s, but --samples is %lld",
            args->race_level, (long long)race_needs(inputs),
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
        return dpe_detect_inputs_least_round(inputs);
    }
    /* Whole batches, where contexts allow it. */
    return together == 1      ? dpe_detect_round_up(LEAST_ROUND, batch)
           : batch > together ? dpe_detect_round_up(batch, together)
                              : dpe_detect_inputs_least_round(inputs);
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

int64_t dpe_detect_inputs_validated_rows(const struct detect_inputs *inputs, int task)
{
    const int64_t samples = inputs->n_validated[task];
    const int64_t together = dpe_detect_inputs_least_round(inputs);
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
        .texts = dpe_least(inputs->held[DETECT_GUARD].n, DETECT_SEARCH_TEXTS),
    };
    bool searches =
        options.brief || (dpe_detect_sweeps(args->rule) && (options.temperature || options.joint));
    return searches ? options : (struct dpe_detect_search_options){0};
}

/* Samples that the search reads at most, beside the sweep's. */
static int64_t searched_rows(const struct detect_inputs *inputs)
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
void dpe_detect_inputs_set_niah(struct detect_inputs *inputs)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    const int64_t least_contexts = ready ? 2 : 8;
    const int64_t asked = inputs->args->job.samples;
    int64_t wanted =
        inputs->says_little && asked > DETECT_READY_SAMPLES ? DETECT_READY_SAMPLES : asked;
    int64_t together = dpe_detect_inputs_together(inputs);
    dpe_niah_format(&inputs->niah, inputs->niah_spec, sizeof inputs->niah_spec);
    inputs->samples = wanted;
    if (inputs->args->auto_task && together > 1) {
        int64_t unit = ready ? DETECT_READY_ASKED : together;
        int64_t contexts = (wanted + unit - 1) / unit;
        int64_t least = wanted < least_contexts ? wanted : least_contexts;
        inputs->samples = together * dpe_most(contexts, least);
    }
    inputs->n_validated[0] = inputs->samples;
    inputs->n_samples[0] = dpe_detect_inputs_sweep_samples(inputs, inputs->samples);
}

/* Lengths of the grid. */
static void list_lengths(const struct dpe_detect_params *params, char *text, size_t size)
{
    text[0] = '\0';
    for (int t = 0; t < params->n_lengths; t++) {
        dpe_append(text, size, "%s%lld", t > 0 ? " " : "", (long long)params->lengths[t]);
    }
}

static void tell_template(const struct detect_inputs *inputs)
{
    const struct dpe_detect_arguments *args = inputs->args;
    char told[1200];
    if (args->use_niah &&
        dpe_chat_told(args->job.chat_template, args->job.model, told, sizeof told)) {
        dpe_log_info("niah: %s", told);
    }
}

static void window_text(const struct dpe_detect_params *params, char text[64])
{
    if (params->frequencies) {
        snprintf(text, 64, "frequencies move");
    } else {
        snprintf(text, 64, "window %lld", (long long)params->window);
    }
}

static const char *skipped_text(const struct detect_inputs *inputs)
{
    return inputs->skipped_lengths == 0 ? ""
           : inputs->grid.params.frequencies
               ? " (no shorter ones than a quarter of the trained one)"
               : " (shorter ones would lie inside the window)";
}

static void warn_of_length(const struct dpe_detect_params *params)
{
    if (params->length <= params->trained_length) {
        dpe_log_warning("--length %lld is not larger than the trained length %lld, so there may be "
                        "nothing to gain",
                        (long long)params->length, (long long)params->trained_length);
    }
}

static const char *trained_source(const struct detect_inputs *inputs)
{
    return inputs->args->job.trained_length > 0
               ? "--trained-length"
               : dpe_config_trained_key(dpe_model_config(inputs->job.model));
}

void dpe_detect_announce(const struct detect_inputs *inputs)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    char lengths[1024];
    list_lengths(params, lengths, sizeof lengths);
    dpe_job_header(&inputs->job);
    char window[64];
    window_text(params, window);
    dpe_log_info("trained length %lld (%s), evaluated length %lld, %s",
                 (long long)params->trained_length, trained_source(inputs),
                 (long long)params->length, window);
    warn_of_length(params);
    const bool sweeps =
        dpe_detect_sweeps(inputs->args->rule); /* ready methods alone have no lengths */
    if (sweeps) {
        dpe_log_info("detecting lengths %s%s", lengths, skipped_text(inputs));
    }
    if (!dpe_temperature_is_none(&params->temperature)) {
        char text[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&params->temperature, text);
        dpe_log_info("attention temperature %s in every plan but rope", text);
    }
    if (inputs->args->selection != NULL) {
        char text[sizeof inputs->grid.configs[0].plan.name];
        dpe_plan_selection_text(&inputs->grid.configs[0].plan, text);
        dpe_log_info("selection %s in every plan of the sweep", text);
    }
    if (sweeps) {
        dpe_log_info("%d configurations for %d group%s x %d lengths", inputs->grid.n_configs,
                     params->n_groups, params->n_groups == 1 ? "" : "s", params->n_lengths);
    }
    tell_template(inputs);
    for (int i = 0; i < inputs->n_tasks; i++) {
        bool ppl = strcmp(inputs->tasks[i].name, "ppl") == 0;
        if (dpe_detect_inputs_races_ready(inputs)) {
            dpe_log_info("%s: %lld samples of every method, at most %lld of the best",
                         inputs->tasks[i].name, (long long)dpe_detect_inputs_least_round(inputs),
                         (long long)inputs->n_validated[i]);
        } else {
            dpe_log_info(sweeps ? "%s: %lld %s per configuration" : "%s: %lld %s of each method",
                         inputs->tasks[i].name, (long long)inputs->n_samples[i],
                         ppl ? "books" : "samples");
        }
        if (ppl && inputs->short_books > 0) {
            dpe_log_warning("%lld books have fewer than %lld tokens and are left out",
                            (long long)inputs->short_books, (long long)params->length);
        }
    }
}

/* -------------------------------------------------------------------------------------- savings */

static void line(const char *what, double tokens, double before)
{
    dpe_print("  %-38s %10.4g tokens", what, tokens);
    if (before > 0.0) {
        dpe_print("  1 / %.2f", before / tokens);
    }
    dpe_print("\n");
}

/* The fewest rows a race of that many samples can end with: every length but each group's best and
 * L0/2 goes as soon as a test on whole rounds can say so. */
static double least_rows(const struct detect_inputs *inputs, int64_t samples)
{
    const struct dpe_detect_grid *grid = &inputs->grid;
    int64_t needed = race_needs(inputs);
    needed = needed < samples ? needed : samples;
    int64_t left = grid->params.n_groups + 1;
    left = left < grid->n_configs ? left : grid->n_configs;
    return (double)(grid->n_configs * needed + left * (samples - needed));
}

static void print_sharing(const struct detect_inputs *inputs, double read, double naive,
                          double share)
{
    if (dpe_detect_inputs_together(inputs) == 1) {
        dpe_print("  %-38s not given: --keys-per-context M reads about 1/M, --haystack shared=N "
                  "(N+1)/2N\n",
                  "shared contexts");
    } else if (share < 1.0) {
        line("shared contexts read once", read, naive);
    } else {
        dpe_print("  %-38s read again for each sample: %s\n", "shared contexts",
                  inputs->args->batch == 1    ? "--batch 1 (but for whole prefill chunks)"
                  : inputs->n_samples[0] == 1 ? "there is only one sample"
                                              : "memory holds one sample at a time");
    }
}

static void print_savings(const struct detect_inputs *inputs,
                          const struct dpe_price_answers *answering)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    double samples = (double)inputs->n_samples[0];
    double times = samples / (double)answering->samples; /* of one configuration */
    double configs = (double)inputs->grid.n_configs;
    double prompts = (double)answering->prompts * times;
    double share = (double)answering->read / (double)answering->prompts;
    double naive = (double)(params->n_groups * params->n_lengths) * prompts;
    double steps = (double)dpe_detect_inputs_steps(inputs) * prompts;
    double searched = (double)searched_rows(inputs);
    if (searched > 0.0) {
        double all = (double)inputs->args->job.samples / samples;
        double fresh = (double)(dpe_detect_inputs_validated(inputs) * inputs->n_validated[0]);
        dpe_print("prompts to read in all\n");
        line("the paper's: every cell on all samples", naive * all, 0.0);
        line("sweep and validation", (configs * samples + fresh) / samples * prompts * share,
             naive * all);
        line("the search, at most", searched / samples * prompts * share, 0.0);
    }
    dpe_print("prompts to read in the sweep\n");
    line("every cell, sample by sample", naive, 0.0);
    line("distinct configurations (always)", configs * prompts, naive);
    print_sharing(inputs, configs * prompts * share, naive, share);
    if (inputs->args->race) {
        line("--race, at best",
             least_rows(inputs, inputs->n_samples[0]) / samples * prompts * share, naive);
    } else {
        dpe_print("  %-38s not given: --race drops lengths\n", "racing");
    }
    if (steps > 0.0) {
        line("--select sequential adds at most", steps * share, 0.0);
        configs += (double)dpe_detect_inputs_steps(inputs);
    }
    dpe_print("tokens to generate in the sweep\n");
    dpe_print("  %-38s %10.4g tokens\n", "at most, less where answers end early",
              configs * (double)answering->decoded * times);
    dpe_print("  %-38s %10.4g steps\n", inputs->job.batch > 1 ? "decoded together" : "one by one",
              configs * (double)answering->steps * times);
}

/* ---------------------------------------------------------------------------------------- costs */

/* What the rows of a task cost. */
struct task_cost {
    struct part {
        struct dpe_price price;
        int64_t rows; /* at most */
    } parts[4];
    double least_rows; /* of the first, that a race can end with */
};
/* Beside them, of needles: rows of texts of L0 tokens, of a quarter, and whole texts. */
enum { WHOLE, SHORTER, SHORTEST, TEXTS, PARTS };

static void count_rows(const struct detect_inputs *inputs, int task, struct task_cost *cost)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    const int64_t swept = ready ? 0 : inputs->n_samples[task] * inputs->grid.n_configs;
    struct part *parts = cost->parts;
    parts[WHOLE].rows = swept + dpe_detect_inputs_validated_rows(inputs, task);
    if (task == 0) {
        const struct detect_held_rows held = dpe_detect_inputs_held(inputs);
        const struct detect_pilot_rows pilot = dpe_detect_pilot_most_rows(inputs);
        parts[WHOLE].rows += dpe_detect_inputs_steps(inputs) * inputs->n_samples[0] +
                             searched_rows(inputs) + pilot.longs + held.users;
        parts[SHORTER].rows = held.ceilings + pilot.shorts;
        parts[SHORTEST].rows = pilot.quarters;
        parts[TEXTS].rows = held.texts;
    }
    cost->least_rows = (double)parts[WHOLE].rows;
    if (inputs->args->race) {
        cost->least_rows -= (double)swept - least_rows(inputs, inputs->n_samples[task]);
    }
}

/* The same rows in texts of L0 tokens. */
static struct dpe_price shorten(const struct dpe_price *price, double share)
{
    struct dpe_price shorter = *price;
    shorter.prompt *= share;
    shorter.read *= share;
    shorter.pairs *= share * share;
    shorter.products *= share;
    shorter.attention *= share * share;
    return shorter;
}

/* By the first round of a needle sweep, of a long one by its first samples. */
static dpe_status cost_of(const struct detect_inputs *inputs, int task,
                          struct dpe_price_answers *answering, struct task_cost *cost,
                          struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    const int64_t length = inputs->args->job.length;
    const int64_t round = dpe_detect_inputs_per_round(inputs);
    count_rows(inputs, task, cost);
    if (strcmp(inputs->tasks[task].name, "ppl") == 0) {
        dpe_price_text(config, length, 1.0, true, &cost->parts[WHOLE].price);
        return DPE_OK;
    }
    DPE_TRY(dpe_task_price(&inputs->tasks[task], dpe_least(round, inputs->n_samples[0]), length,
                           inputs->job.batch, config, &cost->parts[WHOLE].price, answering, err));
    const double trained = fmin(1.0, (double)inputs->job.trained_length / (double)length);
    cost->parts[SHORTER].price = shorten(&cost->parts[WHOLE].price, trained);
    cost->parts[SHORTEST].price = shorten(&cost->parts[WHOLE].price, 0.25 * trained);
    dpe_price_text(config, length, 1.0, true, &cost->parts[TEXTS].price);
    return DPE_OK;
}

static void add(const struct detect_inputs *inputs, const struct task_cost *costs,
                const struct dpe_job_speed *speed, struct dpe_bill *bill)
{
    for (int i = 0; i < inputs->n_tasks; i++) {
        for (int part = 0; part < PARTS; part++) {
            dpe_bill_add(
                bill, &costs[i].parts[part].price, part == WHOLE ? costs[i].least_rows : 0.0,
                (double)costs[i].parts[part].rows, &inputs->grid.configs[0].plan.selection, speed);
        }
    }
}

static void print_grid(const struct detect_inputs *inputs)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    char lengths[1024];
    char window[64];
    list_lengths(params, lengths, sizeof lengths);
    dpe_print("model            %s\n", inputs->args->job.model);
    dpe_print("trained length   %lld (%s)\n", (long long)params->trained_length,
              trained_source(inputs));
    window_text(params, window);
    dpe_print("length           %lld, %s\n", (long long)params->length, window);
    dpe_print("lengths          %s%s\n", lengths, skipped_text(inputs));
    dpe_print("configurations   %d distinct of %d x %d cells\n", inputs->grid.n_configs,
              params->n_groups, params->n_lengths);
}

static void print_rows(const struct detect_inputs *inputs, const struct task_cost *costs)
{
    for (int i = 0; i < inputs->n_tasks; i++) {
        int64_t rows = 0;
        for (int part = 0; part < PARTS; part++) {
            rows += costs[i].parts[part].rows;
        }
        dpe_price_print(inputs->tasks[i].name, (double)rows, false, &costs[i].parts[WHOLE].price);
        dpe_print("%-16s validation ", "");
        if (i == 0 && dpe_detect_inputs_steps(inputs) > 0) {
            dpe_print("and at most %lld configurations of --select ",
                      (long long)dpe_detect_inputs_steps(inputs));
        }
        if (i == 0 && searched_rows(inputs) > 0) {
            dpe_print("and at most %lld samples of the search ", (long long)searched_rows(inputs));
        }
        dpe_print("included\n");
    }
}

static dpe_status print_cost(const struct detect_inputs *inputs, const struct task_cost *costs,
                             const struct dpe_price_answers *answering, struct dpe_error *err)
{
    const struct dpe_job_speed unknown = {0};
    struct dpe_bill bill = {0};
    add(inputs, costs, &unknown, &bill);
    print_grid(inputs);
    print_rows(inputs, costs);
    dpe_bill_print(&bill);
    DPE_TRY(dpe_price_print_memory(&inputs->job, &inputs->grid.configs[0].plan,
                                   inputs->args->job.length, "", err));
    if (inputs->args->use_niah && dpe_detect_sweeps(inputs->args->rule)) {
        print_savings(inputs, answering);
    }
    return DPE_OK;
}

static void take_time(const struct detect_inputs *inputs, const struct task_cost *costs,
                      struct dpe_bill *sum)
{
    struct dpe_job_speed speed = {0};
    struct dpe_bill bill = {0};
    dpe_bill_measure(&bill, &inputs->job, &inputs->grid.configs[0].plan, inputs->args->job.length,
                     &speed);
    add(inputs, costs, &speed, &bill);
    if (!inputs->args->job.silent) {
        dpe_bill_print_time(&bill);
    }
    dpe_bill_sum(sum, &bill);
}

dpe_status dpe_detect_cost(struct detect_inputs *inputs, struct dpe_bill *sum,
                           struct dpe_error *err)
{
    struct task_cost costs[2] = {{.least_rows = 0.0}, {.least_rows = 0.0}};
    struct dpe_price_answers answering = {0};
    const bool print = !inputs->args->job.silent;
    DPE_TRY(dpe_detect_inputs_fit_batch(inputs, err));
    if (print) {
        warn_of_length(&inputs->grid.params);
        tell_template(inputs);
    }
    for (int i = 0; i < inputs->n_tasks; i++) {
        DPE_TRY(cost_of(inputs, i, &answering, &costs[i], err));
    }
    if (print) {
        DPE_TRY(print_cost(inputs, costs, &answering, err));
    }
    take_time(inputs, costs, sum);
    return DPE_OK;
}

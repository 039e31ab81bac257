/* Opening what a detection needs, with every check that can be made before any work. */
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "engine/plan/methods/methods.h"
#include "eval/chat/chat.h"

/* The validation draws from another stream of the same seed. */
static uint64_t seed_of_validation(uint64_t seed)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, 1);
    uint64_t high = dpe_rng_u32(&rng) >> 1;
    return high << 32 | dpe_rng_u32(&rng);
}

/* ----------------------------------------------------------------------------------------- grid */

static dpe_status make_grid(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    inputs->context = dpe_job_context(&inputs->job, args->job.length);
    inputs->context.select = args->selection;
    const bool still = dpe_config_still(config);
    if (still && dpe_detect_sweeps(args->rule)) {
        return dpe_fail(err, DPE_USAGE,
                        "--select %s: no layer of this model that sees all keys rotates, so there "
                        "are no groups to sweep; leave it out: a temperature is searched",
                        dpe_detect_rule_names[args->rule]);
    }
    struct dpe_detect_params params = {
        .length = args->job.length,
        .trained_length = inputs->job.trained_length,
        .still = still,
        .states = !still && dpe_recurrent_values(&config->recurrent) > 0,
        .window =
            args->window > 0 ? args->window : dpe_detect_default_window(inputs->job.trained_length),
        .n_groups = still ? 1 : (int)dpe_least(args->groups, INT32_MAX),
    };
    if (strcmp(args->temperature, "auto") != 0 &&
        dpe_temperature_parse(args->temperature, config->head_dim, &params.temperature, err) !=
            DPE_OK) {
        return dpe_fail_prefix(err, "--temperature");
    }
    DPE_TRY(dpe_detect_parse_lengths(args->lengths, &params, &inputs->skipped_lengths, err));
    return dpe_detect_grid_make(&params, &inputs->context, &inputs->grid, err);
}

dpe_status dpe_detect_inputs_plan(const struct detect_inputs *inputs, const char *spec,
                                  struct dpe_plan *plan, struct dpe_error *err)
{
    struct dpe_plan_context context = inputs->context;
    context.official = true;
    if (strncmp(spec, "dpe", 3) != 0) {
        context.select = NULL; /* --selection is of the sweep's plans */
    }
    return dpe_plan_make(spec, &context, plan, err);
}

/* Before any work: a candidate that was named must be a plan of this model that the device runs. */
static dpe_status check_against(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    /* What no plan could be run with is not the fault of these. */
    DPE_TRY(dpe_job_check_plan(&inputs->job, &inputs->grid.configs[0].plan, args->job.length, err));
    for (int i = 0; i < args->n_against; i++) {
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        if (dpe_detect_inputs_plan(inputs, args->against[i], &plan, err) != DPE_OK ||
            dpe_job_check_plan(&inputs->job, &plan, args->job.length, err) != DPE_OK) {
            return dpe_fail_prefix(err, "--against");
        }
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- tasks */

dpe_status dpe_detect_inputs_niah(struct detect_inputs *inputs,
                                  const struct dpe_niah_params *params, int64_t length,
                                  const char *name, uint64_t seed, struct dpe_task *task,
                                  struct dpe_error *err)
{
    struct dpe_niah *niah = NULL;
    DPE_TRY(dpe_niah_open(params, length, inputs->job.corpus, inputs->job.tokenizer,
                          inputs->args->job.chat_template, seed, &niah, err));
    memcpy(inputs->needles.template, dpe_niah_template_hash(niah), sizeof inputs->needles.template);
    return dpe_task_niah(name, niah, inputs->job.tokenizer, task, err);
}

bool dpe_detect_inputs_by_needles(const struct detect_inputs *inputs)
{
    return inputs->args->use_niah && !inputs->needles.say_little;
}

void dpe_detect_inputs_set_niah(struct detect_inputs *inputs)
{
    dpe_niah_format(&inputs->needles.niah, inputs->needles.spec, sizeof inputs->needles.spec);
}

/* A stream of needles; `most` samples of it are read at most. Of fewer tokens than L it may have no
 * room for them. */
static dpe_status open_stream(struct detect_inputs *inputs, enum detect_stream stream,
                              const struct dpe_niah_params *niah, int64_t length, const char *name,
                              uint64_t seed, int64_t most, struct dpe_error *err)
{
    struct detect_opened *opened = &inputs->streams[stream];
    const dpe_status status =
        dpe_detect_inputs_niah(inputs, niah, length, name, seed, &opened->task, err);
    opened->n = status == DPE_OK ? most : 0;
    return status == DPE_USAGE && length < inputs->args->job.length ? DPE_OK : status;
}

/* What is measured in fewer tokens, and the user's own task. */
static dpe_status open_search(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_job_options *job = &inputs->args->job;
    const int64_t trained = inputs->job.trained_length;
    const int64_t together = dpe_niah_together(&inputs->needles.niah);
    const int64_t users = dpe_niah_together(&inputs->needles.users);
    const int64_t shorter[] = {trained, trained / 4};
    const bool differs = strcmp(inputs->needles.spec, inputs->needles.users_spec) != 0;
    for (int i = trained >= job->length; i < 2; i++) {
        char name[32];
        dpe_detect_short_name(&inputs->needles.niah, shorter[i], name);
        const int64_t contexts = i == 0 ? DETECT_CEILING_CONTEXTS : 1;
        const int64_t most = dpe_detect_sweeps(inputs->args->rule)
                                 ? dpe_detect_round_up(DETECT_CEILING_SAMPLES, together)
                                 : contexts * together;
        DPE_TRY(open_stream(inputs, i == 0 ? DETECT_CEILING : DETECT_QUARTER, &inputs->needles.niah,
                            shorter[i], name, inputs->validation_seed, most, err));
    }
    DPE_TRY(open_stream(inputs, DETECT_SEARCHED, &inputs->needles.niah, job->length, "search",
                        job->seed, DETECT_MOST_CONTEXTS * together, err));
    DPE_TRY(open_stream(inputs, DETECT_FRESH_NEEDLES, &inputs->needles.niah, job->length,
                        "validate-niah", inputs->validation_seed, 0, err));
    if (differs) {
        DPE_TRY(open_stream(inputs, DETECT_SEARCHED_USERS, &inputs->needles.users, job->length,
                            "search-user", job->seed, DETECT_MOST_CONTEXTS * users, err));
        DPE_TRY(open_stream(inputs, DETECT_FRESH_USERS, &inputs->needles.users, job->length,
                            "validate-user", inputs->validation_seed, 0, err));
    }
    return DPE_OK;
}

/* The sweep's needles, first, and those of its validation. */
static dpe_status open_swept(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_job_options *job = &inputs->args->job;
    const bool searches = dpe_detect_searches(inputs->args->rule);
    /* A search takes only proposals from the sweep. */
    const int64_t proposing =
        dpe_detect_round_up((job->samples + 7) / 8, dpe_detect_inputs_per_round(inputs));
    DPE_TRY(open_stream(inputs, DETECT_SWEPT, &inputs->needles.niah, job->length, "niah", job->seed,
                        searches ? dpe_least(job->samples, proposing) : job->samples, err));
    return searches ? DPE_OK
                    : open_stream(inputs, DETECT_FRESH_NEEDLES, &inputs->needles.niah, job->length,
                                  "validate-niah", inputs->validation_seed, job->samples, err);
}

/* Books that the sweep does not use validate it; where all are used, the same ones do. */
static dpe_status add_ppl(struct detect_inputs *inputs, struct dpe_error *err)
{
    struct detect_opened *swept = &inputs->streams[DETECT_SWEPT_BOOKS];
    struct detect_opened *fresh = &inputs->streams[DETECT_FRESH_BOOKS];
    struct dpe_task *task = &swept->task;
    DPE_TRY(dpe_task_ppl("ppl", inputs->job.corpus, inputs->job.tokenizer, inputs->args->job.length,
                         inputs->needles.niah.special, task, &inputs->short_books, err));
    const int64_t used = dpe_least(task->n_samples, inputs->args->job.samples);
    const int64_t left = task->n_samples - used;
    free(inputs->books);
    DPE_TRY(DPE_NEW(&inputs->books, (size_t)used, err, "out of memory for %lld books",
                    (long long)used));
    for (int64_t i = 0; i < used; i++) {
        inputs->books[i] = inputs->job.corpus->books[dpe_task_ppl_book(task, i)].id;
    }
    swept->n = used;
    *fresh = *swept;
    fresh->task.close = NULL; /* with the sweep's */
    if (left > 0) {
        fresh->first = used;
        fresh->n = dpe_least(left, used);
        snprintf(fresh->task.name, sizeof fresh->task.name, "validate-ppl");
    }
    return DPE_OK;
}

/* The texts of the guard; where needles say little, or are not asked for, the search goes by them.
 */
static dpe_status add_texts(struct detect_inputs *inputs, struct dpe_error *err)
{
    struct detect_opened *texts = &inputs->streams[DETECT_GUARD];
    const bool needles = dpe_detect_inputs_by_needles(inputs);
    int64_t short_books = 0;
    if (!dpe_detect_searches(inputs->args->rule) || (needles && inputs->args->guard <= 0.0)) {
        return DPE_OK;
    }
    dpe_status status = dpe_task_ppl("guard-ppl", inputs->job.corpus, inputs->job.tokenizer,
                                     inputs->args->job.length, inputs->needles.niah.special,
                                     &texts->task, &short_books, err);
    texts->n = status == DPE_OK ? texts->task.n_samples : 0;
    if (status != DPE_OK && !inputs->args->use_niah) {
        return dpe_fail_prefix(err, "--task ppl");
    }
    if (status != DPE_OK) {
        dpe_log_warning("no guard on perplexity: %s", err->text);
    }
    return status == DPE_NO_MEMORY ? status : DPE_OK;
}

static void close_tasks(struct detect_inputs *inputs)
{
    for (int i = 0; i < DETECT_STREAMS; i++) {
        dpe_task_close(&inputs->streams[i].task);
        inputs->streams[i] = (struct detect_opened){.n = 0};
    }
}

dpe_status dpe_detect_inputs_reopen(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const bool needles = dpe_detect_inputs_by_needles(inputs);
    close_tasks(inputs);
    if (dpe_detect_sweeps(args->rule) && needles) {
        DPE_TRY(open_swept(inputs, err));
    }
    if (dpe_detect_sweeps(args->rule) && (args->use_ppl || !needles)) {
        DPE_TRY(add_ppl(inputs, err));
    }
    if (args->use_niah && dpe_detect_searches(args->rule)) {
        DPE_TRY(open_search(inputs, err));
    }
    return add_texts(inputs, err);
}

/* The task that is named; of a search without one, the hardest that fits, until the pilot knows
 * better. */
static dpe_status add_tasks(struct detect_inputs *inputs, struct dpe_error *err)
{
    dpe_niah_defaults(&inputs->needles.niah);
    if (inputs->args->niah != NULL) {
        DPE_TRY(dpe_niah_parse(inputs->args->niah, &inputs->needles.niah, err));
    }
    inputs->needles.users = inputs->needles.niah;
    dpe_niah_format(&inputs->needles.users, inputs->needles.users_spec,
                    sizeof inputs->needles.users_spec);
    dpe_detect_inputs_set_niah(inputs);
    if (!inputs->args->auto_task) {
        return dpe_detect_inputs_reopen(inputs, err);
    }
    for (int rung = dpe_detect_pilot_rungs() - 1; rung >= 0; rung--) {
        struct dpe_error why = {0};
        inputs->needles.niah = dpe_detect_pilot_task(inputs, rung);
        dpe_detect_inputs_set_niah(inputs);
        const dpe_status status = dpe_detect_inputs_reopen(inputs, &why);
        if (status != DPE_USAGE) {
            return status == DPE_OK ? DPE_OK : dpe_fail(err, status, "%s", why.text);
        }
    }
    inputs->needles.niah = inputs->needles.users; /* whose error says what does not fit */
    dpe_detect_inputs_set_niah(inputs);
    return dpe_detect_inputs_reopen(inputs, err);
}

dpe_status dpe_detect_open(void *state, const void *asked, struct dpe_error *err)
{
    struct detect_inputs *inputs = &((struct sweep *)state)->inputs;
    const struct dpe_detect_arguments *args = asked;
    inputs->args = args;
    inputs->validation_seed = seed_of_validation(args->job.seed);
    DPE_TRY(dpe_chat_set_variables(args->job.template_vars, err));
    DPE_TRY(dpe_job_open(&inputs->job, &args->job, args->job.dry_run, err));
    DPE_TRY(dpe_job_needs_plans(&inputs->job, "its lengths cannot be found by trying", err));
    DPE_TRY(make_grid(inputs, err));
    DPE_TRY(check_against(inputs, err));
    return add_tasks(inputs, err);
}

dpe_status dpe_detect_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct sweep *sweep = state;
    struct detect_inputs *inputs = &sweep->inputs;
    dpe_detect_report_free(&sweep->report);
    close_tasks(inputs);
    free(inputs->books);
    dpe_detect_grid_free(&inputs->grid);
    return dpe_job_close(&inputs->job, status, err);
}

dpe_status dpe_detect_inputs_start(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    static const char *const specials[] = {"error", "literal", "parse"};
    /* What the pilot chooses follows from its rows and from these. */
    char pilot[512];
    snprintf(pilot, sizeof pilot, "trained length %lld, from %s",
             (long long)inputs->grid.params.trained_length, inputs->needles.users_spec);
    const char *fields[5][2] = {
        {"task", args->auto_task                   ? "auto"
                 : args->use_niah && args->use_ppl ? "both"
                 : args->use_niah                  ? "niah"
                                                   : "ppl"},
        {"niah", args->auto_task ? pilot : inputs->needles.spec},
        {"niah_template", inputs->needles.template},
        {"special_in_text", specials[inputs->needles.niah.special]},
    };
    /* The last one is there with --selection alone. */
    size_t n_fields = 4;
    const struct dpe_plan *plan = &inputs->grid.configs[0].plan;
    char selection[sizeof plan->name];
    if (dpe_selects(&plan->selection)) {
        dpe_plan_selection_text(plan, selection);
        fields[n_fields][0] = "selection";
        fields[n_fields++][1] = selection;
    }
    const struct dpe_job_identity own = {.kind = "detect",
                                         .own = (const char *const(*)[2])fields,
                                         .n_own = n_fields,
                                         .length_name = "length",
                                         .length = args->job.length};
    return dpe_job_start(&inputs->job, &own, plan, args->job.length, err);
}

/* Opening what a sweep needs, with every check that can be made before any work. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "engine/plan/methods/methods.h"
#include "eval/chat/chat.h"
#include "outputs/read/read.h"

/* The validation draws from another stream of the same seed. */
static uint64_t seed_of_validation(uint64_t seed)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, 1);
    uint64_t high = dpe_rng_u32(&rng) >> 1;
    return high << 32 | dpe_rng_u32(&rng);
}

/* --temperature: of every plan, or searched, or searched near one. */
static dpe_status read_temperature(struct detect_inputs *inputs, int64_t head_dim,
                                   struct dpe_temperature *fixed, struct dpe_error *err)
{
    const char *text = inputs->args->temperature;
    inputs->searches_temperature = strcmp(text, "auto") == 0 || strncmp(text, "auto:", 5) == 0;
    if (!inputs->searches_temperature) {
        return dpe_temperature_parse(text, head_dim, fixed, err);
    }
    if (text[4] == '\0') {
        return DPE_OK;
    }
    struct dpe_temperature *near = &inputs->near;
    if (dpe_temperature_parse(text + 5, head_dim, near, err) != DPE_OK) {
        return dpe_fail_prefix(err, "after 'auto:'");
    }
    if (dpe_temperature_is_none(near)) {
        return dpe_fail(err, DPE_USAGE,
                        "expected a temperature after 'auto:', found '%s', which is none; leave "
                        "out ':%s'",
                        text + 5, text + 5);
    }
    return inputs->args->frequencies && near->log_n_length > 0.0
               ? dpe_fail(err, DPE_USAGE,
                          "--move frequencies has a constant factor alone; expected auto or "
                          "auto:logit-scale=A, found '%s'",
                          text)
               : DPE_OK;
}

/* ------------------------------------------------------------------------------------ key pairs */

/* The numbers of pairs whose masks are needed: the one that was asked for, or those smaller than
 * all that the search tries. */
static dpe_status numbers(struct detect_inputs *inputs, int64_t k[DPE_DETECT_CANDIDATES], int *n,
                          struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    int64_t rotating = dpe_config_pairs(dpe_model_config(inputs->job.model));
    if (args->top_k <= 0.0) {
        *n = dpe_detect_top_k_candidates(rotating, k) - 1; /* the last one is all of them */
        inputs->n_fewer = *n;
        return DPE_OK;
    }
    double asked = args->top_k < 1.0 ? floor(args->top_k * (double)rotating + 0.5) : args->top_k;
    if (asked < 1.0 || asked > (double)rotating) {
        return dpe_fail(err, DPE_USAGE,
                        "--top-k: expected 1 to %lld of the model's pairs, found %g",
                        (long long)rotating, args->top_k);
    }
    k[0] = (int64_t)asked;
    *n = 1;
    return DPE_OK;
}

/* What decides the masks, for the identity. */
static void name_pairs(struct detect_inputs *inputs, const struct dpe_profile *profile)
{
    if (inputs->n_fewer > 0) {
        snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "searched in profile %s",
                 profile->identity);
    } else {
        snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "top %lld of profile %s",
                 (long long)inputs->fewer[0], profile->identity);
    }
}

/* --scale-pairs: the mask of the top-k pairs of each head, or without --top-k those of the numbers
 * that the search tries. Without that option all pairs move. */
static dpe_status read_pairs(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    int64_t n_pairs = config->head_dim / 2;
    int64_t rows = config->n_layers * config->n_heads;
    int n = 0;
    snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "all");
    if (args->scale_pairs == NULL) {
        return DPE_OK;
    }
    DPE_TRY(numbers(inputs, inputs->fewer, &n, err));
    /* Without its weights, in a dry run, a model has another fingerprint. */
    const char *fingerprint = args->job.dry_run ? NULL : dpe_job_fingerprint(&inputs->job);
    const struct dpe_profile_model model = {fingerprint, config->n_layers, config->n_heads,
                                            n_pairs};
    DPE_SCOPED(dpe_profile_free) struct dpe_profile profile = {0};
    DPE_TRY(dpe_profile_read(args->scale_pairs, &model, false, &profile, err));
    const size_t size = (size_t)rows * (size_t)n_pairs;
    name_pairs(inputs, &profile);
    DPE_TRY(DPE_NEW(&inputs->mask, ((size_t)n + 1) * size, err, "out of memory for key pairs"));
    for (int i = 0; i < n; i++) {
        DPE_TRY(dpe_plan_mask_ranked(profile.ranking, rows, n_pairs, inputs->fewer[i], false,
                                     inputs->mask + (size_t)i * size, err));
    }
    return DPE_OK;
}

/* What was read, into the parameters of the grid. */
static void put_pairs(const struct detect_inputs *inputs, struct dpe_detect_params *params)
{
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    size_t size = (size_t)(config->n_layers * config->n_heads) * (size_t)(config->head_dim / 2);
    params->mask = inputs->n_fewer > 0 ? NULL : inputs->mask;
    params->n_fewer = inputs->n_fewer;
    for (int i = 0; i < inputs->n_fewer; i++) {
        params->fewer[i] =
            (struct dpe_detect_key_pairs){inputs->fewer[i], inputs->mask + (size_t)i * size};
    }
}

/* ----------------------------------------------------------------------------------------- grid */

static dpe_status make_grid(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    inputs->context = dpe_job_context(&inputs->job, args->job.length);
    inputs->context.select = args->selection;
    if (args->job.length < inputs->job.trained_length && !args->job.tool.force) {
        return dpe_fail(
            err, DPE_USAGE,
            "--length %lld is below the trained length, %lld tokens, up to which the model "
            "needs nothing; give a larger one (--force measures this one all the same)",
            (long long)args->job.length, (long long)inputs->job.trained_length);
    }
    if (args->groups > dpe_config_pairs(config)) {
        return dpe_fail(err, DPE_USAGE,
                        "--groups: expected 1 to %lld (the model's pairs), found "
                        "%lld",
                        (long long)dpe_config_pairs(config), (long long)args->groups);
    }
    struct dpe_detect_params params = {
        .length = args->job.length,
        .trained_length = inputs->job.trained_length,
        .frequencies = args->frequencies,
        .window = args->frequencies  ? 1
                  : args->window > 0 ? args->window
                                     : dpe_detect_default_window(inputs->job.trained_length),
        .n_groups = (int)args->groups,
    };
    put_pairs(inputs, &params);
    if (read_temperature(inputs, config->head_dim, &params.temperature, err) != DPE_OK) {
        return dpe_fail_prefix(err, "--temperature");
    }
    DPE_TRY(dpe_detect_parse_lengths(args->lengths, &params, &inputs->skipped_lengths, err));
    bool compares = args->rule == DPE_DETECT_GUARDED || args->rule == DPE_DETECT_SEQUENTIAL;
    if (compares && dpe_detect_base_length(&params) < 0) {
        return dpe_fail(err, DPE_USAGE,
                        "--select %s: expected half the trained length (%g) among the lengths, "
                        "with which the other lengths are compared; add it to --lengths",
                        dpe_detect_rule_names[args->rule], 0.5 * (double)params.trained_length);
    }
    return dpe_detect_grid_make(&params, &inputs->context, &inputs->grid, err);
}

struct dpe_plan_context dpe_detect_inputs_context(const struct detect_inputs *inputs)
{
    struct dpe_plan_context context = inputs->context;
    context.select = NULL;
    return context;
}

int dpe_detect_inputs_rivals(const struct detect_inputs *inputs)
{
    return inputs->args->n_against + __builtin_popcount(inputs->families);
}

dpe_status dpe_detect_inputs_rival(const struct detect_inputs *inputs, int i, struct dpe_plan *plan,
                                   struct dpe_error *err)
{
    struct dpe_plan_context context = dpe_detect_inputs_context(inputs);
    context.official = true;
    if (i < inputs->args->n_against) {
        return dpe_plan_make(inputs->args->against[i], &context, plan, err);
    }
    uint32_t families = inputs->families;
    for (int before = i - inputs->args->n_against; before > 0; before--) {
        families &= families - 1; /* without its first */
    }
    return dpe_plan_make(dpe_detect_families[__builtin_ctz(families)], &context, plan, err);
}

/* A method that the result is held against must be a plan of this model that the device runs. Of
 * those that are ready, whether a table can hold one is seen here. */
static dpe_status check_rival(struct detect_inputs *inputs, int i, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_TRY(dpe_detect_inputs_rival(inputs, i, &plan, err));
    DPE_TRY(dpe_job_check_plan(&inputs->job, &plan, inputs->args->job.length, err));
    if (dpe_detect_sweeps(inputs->args->rule)) {
        return DPE_OK;
    }
    DPE_SCOPED(dpe_detect_entry_free) struct dpe_detect_entry entry = {0};
    bool holds = false;
    DPE_TRY(dpe_detect_holds(&inputs->grid, &inputs->context, &plan, &entry, &holds, err));
    inputs->held_ready = inputs->held_ready || holds;
    return DPE_OK;
}

/* Before any work: the validation needs them only at the end. */
static dpe_status check_against(struct detect_inputs *inputs, struct dpe_error *err)
{
    /* What no plan could be run with is not the fault of these. */
    DPE_TRY(dpe_job_check_plan(&inputs->job, &inputs->grid.configs[0].plan,
                               inputs->args->job.length, err));
    inputs->held_ready = dpe_detect_inputs_has_own(inputs);
    for (int i = 0; i < inputs->args->n_against; i++) {
        if (check_rival(inputs, i, err) != DPE_OK) {
            return dpe_fail_prefix(err, "--against");
        }
    }
    return DPE_OK;
}

/* Families that the search tries: all that are plans of this model and that the device runs. */
static dpe_status find_families(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    if (args->rule != DPE_DETECT_JOINTLY || args->frequencies || args->selection != NULL ||
        args->no_against || !args->use_niah || args->use_ppl) {
        return DPE_OK;
    }
    for (int f = 0; f < DPE_DETECT_FAMILIES; f++) {
        struct dpe_error refused = {0};
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        dpe_status status =
            dpe_plan_make(dpe_detect_families[f], &inputs->context, &plan, &refused);
        if (status == DPE_OK) {
            status = dpe_job_check_plan(&inputs->job, &plan, args->job.length, &refused);
        }
        if (status == DPE_NO_MEMORY) {
            return dpe_fail(err, status, "%s", refused.text);
        }
        inputs->families |= status == DPE_OK ? 1U << f : 0U;
    }
    return DPE_OK;
}

dpe_status dpe_detect_inputs_niah(struct detect_inputs *inputs,
                                  const struct dpe_niah_params *params, int64_t length,
                                  const char *name, uint64_t seed, struct dpe_task *task,
                                  struct dpe_error *err)
{
    struct dpe_niah *niah = NULL;
    DPE_TRY(dpe_niah_open(params, length, inputs->job.corpus, inputs->job.tokenizer,
                          inputs->args->job.chat_template, seed, &niah, err));
    memcpy(inputs->niah_template, dpe_niah_template_hash(niah), sizeof inputs->niah_template);
    return dpe_task_niah(name, niah, inputs->job.tokenizer, task, err);
}

void dpe_detect_inputs_set_users(struct detect_inputs *inputs)
{
    inputs->niah = inputs->users_niah;
    dpe_detect_inputs_set_niah(inputs);
}

/* Needles are the first task. */
static dpe_status open_needles(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_job_options *job = &inputs->args->job;
    DPE_TRY(dpe_detect_inputs_niah(inputs, &inputs->niah, job->length, "niah", job->seed,
                                   &inputs->tasks[0], err));
    inputs->n_tasks = 1;
    return dpe_detect_inputs_niah(inputs, &inputs->niah, job->length, "validate-niah",
                                  inputs->validation_seed, &inputs->validate_tasks[0], err);
}

dpe_status dpe_detect_inputs_reopen(struct detect_inputs *inputs, struct dpe_error *err)
{
    dpe_task_close(&inputs->tasks[0]);
    dpe_task_close(&inputs->validate_tasks[0]);
    inputs->n_tasks = 0; /* of these two none is open while one fails to */
    return open_needles(inputs, err);
}

static bool searches_needles(const struct detect_inputs *inputs)
{
    return inputs->args->use_niah && !inputs->args->use_ppl &&
           (inputs->args->rule == DPE_DETECT_JOINTLY || !dpe_detect_sweeps(inputs->args->rule));
}

bool dpe_detect_inputs_guards(const struct detect_inputs *inputs)
{
    return searches_needles(inputs) && inputs->args->rule != DPE_DETECT_READY &&
           inputs->args->guard > 0.0;
}

struct detect_held_rows dpe_detect_inputs_held(const struct detect_inputs *inputs)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    const int64_t samples = inputs->args->job.samples;
    const int64_t plans = dpe_detect_inputs_validated(inputs);
    struct detect_held_rows rows = {0};
    if (searches_needles(inputs)) {
        rows.users = inputs->args->auto_task && !ready ? samples * plans : 0;
        rows.ceilings = ready
                            ? dpe_detect_inputs_ceiling(inputs, dpe_detect_inputs_together(inputs))
                            : 2 * DETECT_CEILING_SAMPLES;
        rows.texts = !dpe_detect_inputs_guards(inputs) ? 0
                     : ready                           ? 2 * DETECT_SEARCH_TEXTS
                                                       : DETECT_GUARD_BOOKS * plans;
    }
    return rows;
}

int64_t dpe_detect_inputs_ceiling(const struct detect_inputs *inputs, int64_t asked)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    const int64_t samples = ready ? (inputs->args->job.samples + 1) / 2 : inputs->args->job.samples;
    return dpe_detect_round_up(samples < DETECT_CEILING_SAMPLES ? samples : DETECT_CEILING_SAMPLES,
                               asked);
}

dpe_status dpe_detect_inputs_hold(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_niah_params *const tasks[DETECT_GUARD] = {&inputs->users_niah, &inputs->niah,
                                                               &inputs->users_niah};
    /* The pilot of ready methods has read the first of their ceiling. */
    const char *ceilings = inputs->ceiling_name[0] != '\0' ? inputs->ceiling_name : "ceiling-niah";
    const char *const names[DETECT_GUARD] = {"validate-user", ceilings, "ceiling-user"};
    const bool differs = strcmp(inputs->niah_spec, inputs->users_spec) != 0;
    for (int i = 0; i < DETECT_GUARD && searches_needles(inputs); i++) {
        struct detect_held *held = &inputs->held[i];
        const bool ceiling = i != DETECT_USERS;
        bool ready = !dpe_detect_sweeps(inputs->args->rule); /* minutes are for one task */
        if (held->n > 0 || (i != DETECT_CEILING && (ready || !differs))) {
            continue;
        }
        int64_t asked = tasks[i]->asked;
        int64_t n = !ceiling              ? inputs->args->job.samples
                    : inputs->says_little ? asked
                                          : dpe_detect_inputs_ceiling(inputs, asked);
        dpe_status status = dpe_detect_inputs_niah(
            inputs, tasks[i],
            ceiling ? inputs->grid.params.trained_length : inputs->args->job.length, names[i],
            inputs->validation_seed, &held->task, err);
        held->n = status == DPE_OK ? n : 0;
        DPE_TRY(ceiling && status == DPE_USAGE ? DPE_OK : status);
    }
    return DPE_OK;
}

static dpe_status add_niah(struct detect_inputs *inputs, struct dpe_error *err)
{
    dpe_niah_defaults(&inputs->niah);
    if (inputs->args->niah != NULL) {
        DPE_TRY(dpe_niah_parse(inputs->args->niah, &inputs->niah, err));
    }
    if (inputs->args->shared > 0) {
        inputs->niah.shared = (int)inputs->args->shared;
    }
    if (inputs->args->keys_per_context > 0) {
        inputs->niah.asked = (int)inputs->args->keys_per_context;
        inputs->niah.keys =
            inputs->niah.keys > inputs->niah.asked ? inputs->niah.keys : inputs->niah.asked;
    }
    if (!inputs->args->use_niah) {
        return DPE_OK;
    }
    inputs->users_niah = inputs->niah;
    dpe_niah_format(&inputs->users_niah, inputs->users_spec, sizeof inputs->users_spec);
    inputs->niah.steps = inputs->niah.steps || inputs->args->score == DETECT_SCORE_STEPS;
    if (inputs->args->auto_task) {
        DPE_TRY(dpe_detect_pilot_begin(inputs, err));
    }
    dpe_detect_inputs_set_niah(inputs);
    return open_needles(inputs, err);
}

/* Books that the sweep does not use validate it; where all are used, the same ones do. */
static dpe_status add_ppl(struct detect_inputs *inputs, struct dpe_error *err)
{
    if (!inputs->args->use_ppl) {
        return DPE_OK;
    }
    int at = inputs->n_tasks;
    struct dpe_task *task = &inputs->tasks[at];
    DPE_TRY(dpe_task_ppl("ppl", inputs->job.corpus, inputs->job.tokenizer, inputs->args->job.length,
                         inputs->niah.special, task, &inputs->short_books, err));
    inputs->n_tasks++;
    int64_t used =
        task->n_samples < inputs->args->job.samples ? task->n_samples : inputs->args->job.samples;
    int64_t left = task->n_samples - used;
    DPE_TRY(DPE_NEW(&inputs->books, (size_t)used, err, "out of memory for %lld books",
                    (long long)used));
    inputs->n_books = used;
    for (int64_t i = 0; i < used; i++) {
        inputs->books[i] = dpe_corpus_book(inputs->job.corpus, dpe_task_ppl_book(task, i))->id;
    }
    inputs->n_samples[at] = dpe_detect_inputs_sweep_samples(inputs, used);
    inputs->validate_tasks[at] = *task;
    inputs->validate_tasks[at].close = NULL; /* with the sweep's */
    inputs->n_validated[at] = used;
    if (left > 0) {
        inputs->first_validated[at] = used;
        inputs->n_validated[at] = left < used ? left : used;
        snprintf(inputs->validate_tasks[at].name, sizeof inputs->validate_tasks[at].name,
                 "validate-ppl");
    }
    return DPE_OK;
}

/* The texts that plans are held against; only a guard that was asked for needs them. */
static dpe_status add_texts(struct detect_inputs *inputs, struct dpe_error *err)
{
    struct detect_held *held = &inputs->held[DETECT_GUARD];
    const int64_t length = inputs->args->job.length;
    int64_t short_books = 0;
    if (!dpe_detect_inputs_guards(inputs)) {
        return DPE_OK;
    }
    dpe_status status = dpe_task_ppl("guard-ppl", inputs->job.corpus, inputs->job.tokenizer, length,
                                     inputs->niah.special, &held->task, &short_books, err);
    const int64_t most =
        inputs->args->rule == DPE_DETECT_BRIEF ? DETECT_SEARCH_TEXTS : DETECT_GUARD_BOOKS;
    held->n = status == DPE_OK ? dpe_least(held->task.n_samples, most) : 0;
    if (status != DPE_OK && inputs->args->guard_given) {
        return dpe_fail_prefix(err, "--guard needs texts of --length tokens (--guard 0: no guard)");
    }
    if (status != DPE_OK) {
        dpe_log_warning("no guard on perplexity: %s", err->text);
    }
    return DPE_OK;
}

dpe_status dpe_detect_inputs_open(struct detect_inputs *inputs,
                                  const struct dpe_detect_arguments *args, struct dpe_error *err)
{
    *inputs = (struct detect_inputs){.args = args,
                                     .validation_seed = seed_of_validation(args->job.seed),
                                     .samples = args->job.samples};
    dpe_status (*const steps[])(struct detect_inputs *, struct dpe_error *) = {
        read_pairs, make_grid, check_against, find_families, add_niah, add_ppl, add_texts};
    DPE_TRY(dpe_chat_set_variables(args->job.template_vars, err));
    DPE_TRY(dpe_job_open(&inputs->job, &args->job, args->job.dry_run, err));
    DPE_TRY(dpe_job_needs_plans(&inputs->job, "its lengths cannot be found by trying", err));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        DPE_TRY(steps[i](inputs, err));
    }
    return DPE_OK;
}

dpe_status dpe_detect_inputs_close(struct detect_inputs *inputs, dpe_status status,
                                   struct dpe_error *err)
{
    for (int i = 0; i < 2; i++) {
        dpe_task_close(&inputs->tasks[i]);
        dpe_task_close(&inputs->validate_tasks[i]);
    }
    for (int i = 0; i < DETECT_N_HELD; i++) {
        dpe_task_close(&inputs->held[i].task);
    }
    free(inputs->books);
    dpe_detect_grid_free(&inputs->grid);
    free(inputs->mask);
    return dpe_job_close(&inputs->job, status, err);
}

/* That of --against whose session needs most, to *rival and *largest where it needs more than
 * *largest: what does not fit is to be found before the sweep. */
static dpe_status find_largest(const struct detect_inputs *inputs, struct dpe_plan *rival,
                               const struct dpe_plan **largest, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const int n = args->use_niah ? dpe_detect_inputs_rivals(inputs) : 0;
    for (int i = 0; i < n; i++) {
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        DPE_TRY(dpe_detect_inputs_rival(inputs, i, &plan, err));
        if (dpe_job_needs_more(&inputs->job, &plan, *largest, args->job.length)) {
            dpe_plan_free(rival);
            *rival = plan;
            plan = (struct dpe_plan){0};
            *largest = rival;
        }
    }
    return DPE_OK;
}

dpe_status dpe_detect_inputs_start(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    static const char *const specials[] = {"error", "literal", "parse"};
    /* What the pilot chooses follows from its rows and from these. */
    char pilot[512];
    static const char *const scores[] = {"", ", scored by recall", ", scored by steps"};
    snprintf(pilot, sizeof pilot, "%d contexts%s, trained length %lld, window %lld, from %s",
             DETECT_PILOT_CONTEXTS, scores[args->score],
             (long long)inputs->grid.params.trained_length, (long long)inputs->grid.params.window,
             inputs->users_spec);
    const char *fields[7][2] = {
        {"task", args->auto_task                   ? "auto"
                 : args->use_niah && args->use_ppl ? "both"
                 : args->use_niah                  ? "niah"
                                                   : "ppl"},
        {"niah", args->auto_task ? pilot : inputs->niah_spec},
        {"niah_template", inputs->niah_template},
        {"special_in_text", specials[inputs->niah.special]},
        {"key_pairs", inputs->key_pairs},
    };
    /* A sweep of positions has no field "move", one without --selection no field "selection": so do
     * tables of versions without these options, whose runs can be continued. */
    size_t n_fields = 5;
    const struct dpe_plan *plan = &inputs->grid.configs[0].plan;
    if (args->frequencies) {
        fields[n_fields][0] = "move";
        fields[n_fields++][1] = "frequencies";
    }
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
    DPE_SCOPED(dpe_plan_free) struct dpe_plan rival = {0};
    const struct dpe_plan *largest = plan;
    DPE_TRY(dpe_detect_inputs_fit_batch(inputs, err));
    DPE_TRY(find_largest(inputs, &rival, &largest, err));
    return dpe_job_start(&inputs->job, &own, largest, args->job.length, err);
}

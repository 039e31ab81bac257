/* How much a detection runs: samples together and in a round, the budget, and what it would cost.
 */
#include <math.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "engine/plan/methods/methods.h"
#include "eval/chat/chat.h"

enum { LEAST_ROUND = 4 };

int64_t dpe_detect_inputs_together(const struct detect_inputs *inputs)
{
    return inputs->args->use_niah ? dpe_niah_together(&inputs->needles.niah) : 1;
}

dpe_status dpe_detect_inputs_fit_batch(struct detect_inputs *inputs, struct dpe_error *err)
{
    const int64_t length = inputs->args->job.length;
    const bool needles = dpe_detect_inputs_by_needles(inputs);
    const bool shares = inputs->needles.niah.asked > 1 && inputs->needles.niah.shared == 1;
    /* Perplexities are computed one by one. */
    const struct dpe_job_batch wanted = {.together =
                                             needles ? dpe_detect_inputs_together(inputs) : 1,
                                         .own = shares ? DPE_QUESTION_ROWS : length,
                                         .answers = needles};
    DPE_TRY(dpe_job_fit_batch(&inputs->job, &inputs->grid.configs[0].plan, length, &wanted, err));
    /* Candidates are decoded as many together, under plans that may need more. */
    for (int i = 0; i < inputs->args->n_against; i++) {
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        DPE_TRY(dpe_detect_inputs_plan(inputs, inputs->args->against[i], &plan, err));
        DPE_TRY(dpe_job_fit_batch(&inputs->job, &plan, length, &wanted, err));
    }
    return DPE_OK;
}

/* Contexts that share something stay in one round. */
int64_t dpe_detect_inputs_per_round(const struct detect_inputs *inputs)
{
    return dpe_detect_round_up(LEAST_ROUND, dpe_detect_inputs_together(inputs));
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

static const char *skipped_text(const struct detect_inputs *inputs)
{
    return inputs->skipped_lengths == 0 ? "" : " (shorter ones would lie inside the window)";
}

static void warn_of_length(const struct dpe_detect_params *params)
{
    if (params->length <= params->trained_length) {
        dpe_log_warning(
            "--length %lld is not larger than the trained length %lld: what is found is what the "
            "model forgets within it",
            (long long)params->length, (long long)params->trained_length);
    }
}

static const char *trained_source(const struct detect_inputs *inputs)
{
    return inputs->args->job.trained_length > 0
               ? "--trained-length"
               : dpe_config_trained_key(dpe_model_config(inputs->job.model));
}

/* ---------------------------------------------------------------------------------------- budget
 */

/* Rows that the detection has at most, a list for each kind of text. */
struct part {
    const char *name;
    struct dpe_price price; /* of a row */
    double rows;
};
enum { SWEPT, SWEPT_BOOKS, SEARCHED, FRESH, SHORTER, PARTS };

/* What a row of a task costs. */
static dpe_status price_of(const struct detect_inputs *inputs, const struct dpe_task *task,
                           int64_t length, struct dpe_price *price, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    if (strstr(task->name, "ppl") != NULL) {
        dpe_price_text(config, length, 1.0, true, price);
        return DPE_OK;
    }
    return dpe_task_price(task, task->together, length, &inputs->job, price, NULL, err);
}

/* The task that the search reads. */
static const struct dpe_task *searched_task(const struct detect_inputs *inputs)
{
    return &inputs->streams[dpe_detect_inputs_by_needles(inputs) ? DETECT_SEARCHED : DETECT_GUARD]
                .task;
}

/* So many contexts, or more where they have few questions. */
static int64_t contexts_of(const struct detect_inputs *inputs, int64_t n)
{
    const int64_t questions = 2 * dpe_detect_inputs_together(inputs);
    const bool few = questions < DPE_DETECT_QUESTIONS && dpe_detect_inputs_by_needles(inputs);
    return few ? n * DPE_DETECT_QUESTIONS / questions : n;
}

/* Contexts that the validation of a search of so many reads at most, of all its plans. */
static int64_t validated(const struct detect_inputs *inputs, int64_t searched)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const bool alone = args->no_against || args->selection != NULL; /* needs more than a heat */
    const bool further = alone || searched > contexts_of(inputs, DETECT_BUDGET);
    const bool users = further && inputs->streams[DETECT_FRESH_USERS].task.run != NULL;
    const int64_t texts = further ? inputs->streams[DETECT_GUARD].n : 0;
    return (4 + dpe_detect_sweeps(args->rule)) *
           (dpe_detect_inputs_fresh(inputs, searched) * (1 + users) +
            dpe_least(texts, DETECT_GUARD_BOOKS));
}

dpe_status dpe_detect_inputs_budget(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_budget *budget = &inputs->args->budget;
    const int64_t length = inputs->args->job.length;
    static const double usable = 0.92; /* of a time: shorter texts come on top */
    struct dpe_job_range one = {0.0, 0.0};
    inputs->budget = dpe_detect_sweeps(inputs->args->rule) ? DETECT_BUDGET_SWEPT : DETECT_BUDGET;
    if (budget->tokens > 0.0) {
        inputs->budget = (int64_t)fmax(1.0, budget->tokens / (double)length);
    }
    if (budget->seconds > 0.0) {
        const struct dpe_task *task = searched_task(inputs);
        struct dpe_job_speed speed = {0};
        struct dpe_bill bill = {0};
        struct dpe_price price = {0};
        DPE_TRY(price_of(inputs, task, length, &price, err));
        dpe_bill_measure(&bill, &inputs->job, &inputs->grid.configs[0].plan, length, &speed);
        dpe_bill_add(&bill, &price, 0.0, (double)task->together, NULL, &speed);
        one = bill.time;
        if (bill.untimed) {
            return dpe_fail(err, DPE_USAGE,
                            "--budget: how fast this model runs here cannot be measured, so no "
                            "time can be kept; give tokens (--budget 500ktok)");
        }
        inputs->budget = (int64_t)fmax(1.0, usable * budget->seconds / one.high);
    }
    return dpe_job_tell(&inputs->job, &inputs->budget, sizeof inputs->budget, err);
}

int64_t dpe_detect_inputs_contexts(const struct detect_inputs *inputs)
{
    int64_t n = inputs->budget;
    if (!dpe_detect_budgeted(&inputs->args->budget)) {
        return contexts_of(inputs, n);
    }
    while (n > 1 && n + validated(inputs, n) > inputs->budget) { /* which is for both */
        n--;
    }
    return n;
}

/* ---------------------------------------------------------------------------------------- costs */

/* Of the parts SWEPT and SWEPT_BOOKS, with what validates them. */
static const enum detect_stream swept_streams[2][2] = {{DETECT_SWEPT, DETECT_FRESH_NEEDLES},
                                                       {DETECT_SWEPT_BOOKS, DETECT_FRESH_BOOKS}};

static dpe_status count_parts(const struct detect_inputs *inputs, struct part parts[PARTS],
                              struct dpe_error *err)
{
    const int64_t length = inputs->args->job.length;
    const struct detect_opened *ceiling = &inputs->streams[DETECT_CEILING];
    for (int i = 0; i < 2; i++) {
        const struct detect_opened *swept = &inputs->streams[swept_streams[i][0]];
        const int64_t fresh = inputs->streams[swept_streams[i][1]].n;
        if (swept->n > 0) {
            parts[i].name = swept->task.name;
            parts[i].rows = (double)(swept->n * inputs->grid.n_configs + 3 * fresh);
            DPE_TRY(price_of(inputs, &swept->task, length, &parts[i].price, err));
        }
    }
    if (dpe_detect_searches(inputs->args->rule)) {
        const struct dpe_task *task = searched_task(inputs);
        DPE_TRY(price_of(inputs, task, length, &parts[SEARCHED].price, err));
        parts[SEARCHED].name = task->name;
        const int64_t contexts = dpe_detect_inputs_contexts(inputs);
        parts[SEARCHED].rows = (double)(contexts * task->together);
        parts[FRESH] = parts[SEARCHED];
        parts[FRESH].name = "validation";
        parts[FRESH].rows = (double)(validated(inputs, contexts) * task->together);
    }
    if (ceiling->n > 0) {
        parts[SHORTER].name = "unchanged";
        DPE_TRY(price_of(inputs, &ceiling->task, inputs->job.trained_length, &parts[SHORTER].price,
                         err));
        parts[SHORTER].rows = (double)ceiling->n * (inputs->args->auto_task ? 4.0 : 1.25);
    }
    return DPE_OK;
}

static void add(const struct detect_inputs *inputs, const struct part parts[PARTS],
                const struct dpe_job_speed *speed, struct dpe_bill *bill)
{
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].rows > 0.0) {
            dpe_bill_add(bill, &parts[i].price, parts[i].rows, parts[i].rows,
                         &inputs->grid.configs[0].plan.selection, speed);
        }
    }
}

static dpe_status print_cost(const struct detect_inputs *inputs, const struct part parts[PARTS],
                             struct dpe_error *err)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    const struct dpe_job_speed unknown = {0};
    struct dpe_bill bill = {0};
    char lengths[1024];
    add(inputs, parts, &unknown, &bill);
    dpe_print("model            %s\n", inputs->args->job.model);
    dpe_print("trained length   %lld (%s)\n", (long long)params->trained_length,
              trained_source(inputs));
    dpe_print("length           %lld, window %lld\n", (long long)params->length,
              (long long)params->window);
    if (dpe_detect_sweeps(inputs->args->rule)) {
        list_lengths(params, lengths, sizeof lengths);
        dpe_print("lengths          %s%s\n", lengths, skipped_text(inputs));
        dpe_print("configurations   %d distinct of %d x %d cells\n", inputs->grid.n_configs,
                  params->n_groups, params->n_lengths);
    }
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].rows > 0.0) {
            dpe_price_print(parts[i].name, parts[i].rows, i >= SEARCHED, &parts[i].price);
        }
    }
    dpe_bill_print(&bill);
    return dpe_price_print_memory(&inputs->job, &inputs->grid.configs[0].plan,
                                  inputs->args->job.length, "", err);
}

dpe_status dpe_detect_cost(void *state, struct dpe_bill *sum, struct dpe_error *err)
{
    struct detect_inputs *inputs = &((struct sweep *)state)->inputs;
    struct part parts[PARTS] = {{.rows = 0.0}};
    struct dpe_job_speed speed = {0};
    struct dpe_bill bill = {0};
    const bool print = !inputs->args->job.silent;
    DPE_TRY(dpe_detect_inputs_fit_batch(inputs, err));
    if (print) {
        warn_of_length(&inputs->grid.params);
        tell_template(inputs);
    }
    DPE_TRY(dpe_detect_inputs_budget(inputs, err));
    DPE_TRY(count_parts(inputs, parts, err));
    if (print) {
        DPE_TRY(print_cost(inputs, parts, err));
    }
    dpe_bill_measure(&bill, &inputs->job, &inputs->grid.configs[0].plan, inputs->args->job.length,
                     &speed);
    add(inputs, parts, &speed, &bill);
    if (print) {
        dpe_bill_print_time(&bill);
    }
    dpe_bill_sum(sum, &bill);
    return DPE_OK;
}

void dpe_detect_announce(const struct detect_inputs *inputs)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    char lengths[1024];
    list_lengths(params, lengths, sizeof lengths);
    dpe_job_header(&inputs->job);
    dpe_log_info("trained length %lld (%s), evaluated length %lld, window %lld",
                 (long long)params->trained_length, trained_source(inputs),
                 (long long)params->length, (long long)params->window);
    warn_of_length(params);
    const bool sweeps = dpe_detect_sweeps(inputs->args->rule);
    if (sweeps) {
        dpe_log_info("detecting lengths %s%s", lengths, skipped_text(inputs));
    }
    if (inputs->args->selection != NULL) {
        char text[sizeof inputs->grid.configs[0].plan.name];
        dpe_plan_selection_text(&inputs->grid.configs[0].plan, text);
        dpe_log_info("selection %s in every plan of DPE", text);
    }
    if (sweeps) {
        dpe_log_info("%d configurations for %d group%s x %d lengths", inputs->grid.n_configs,
                     params->n_groups, params->n_groups == 1 ? "" : "s", params->n_lengths);
    }
    tell_template(inputs);
    for (int i = DETECT_SWEPT; i <= DETECT_SWEPT_BOOKS; i++) {
        const struct detect_opened *swept = &inputs->streams[i];
        const bool ppl = i == DETECT_SWEPT_BOOKS;
        if (swept->n > 0) {
            dpe_log_info("%s: %lld %s per configuration", swept->task.name, (long long)swept->n,
                         ppl ? "books" : "samples");
        }
        if (swept->n > 0 && ppl && inputs->short_books > 0) {
            dpe_log_warning("%lld books have fewer than %lld tokens and are left out",
                            (long long)inputs->short_books, (long long)params->length);
        }
    }
}

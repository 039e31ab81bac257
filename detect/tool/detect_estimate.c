/* What a sweep would cost, and how long it would take here. */
#include <math.h>
#include <string.h>

#include "detect/tool/detect_tool.h"

/* What the rows of a task cost. */
struct task_cost {
    struct dpe_price price;
    int64_t rows;      /* at most */
    double least_rows; /* that a race can end with */
    /* Beside them, of needles: rows of texts of L0 tokens, and whole texts. */
    struct dpe_price shorter, shortest, text;
    int64_t short_rows, shortest_rows, text_rows;
};

static void count_rows(const struct detect_inputs *inputs, int task, struct task_cost *cost)
{
    const bool ready = !dpe_detect_sweeps(inputs->args->rule);
    const int64_t swept = ready ? 0 : inputs->n_samples[task] * inputs->grid.n_configs;
    cost->rows = swept + dpe_detect_inputs_validated_rows(inputs, task);
    if (task == 0) {
        const struct detect_held_rows held = dpe_detect_inputs_held(inputs);
        const struct detect_pilot_rows pilot = dpe_detect_pilot_most_rows(inputs);
        cost->rows += dpe_detect_inputs_steps(inputs) * inputs->n_samples[0] +
                      dpe_detect_inputs_searched(inputs) + pilot.longs + held.users;
        cost->short_rows = held.ceilings + pilot.shorts;
        cost->shortest_rows = pilot.quarters;
        cost->text_rows = held.texts;
    }
    cost->least_rows = (double)cost->rows;
    if (inputs->args->race) {
        cost->least_rows -= (double)swept - dpe_detect_least_rows(inputs, inputs->n_samples[task]);
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
                          struct dpe_answering *answering, struct task_cost *cost,
                          struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    const int64_t length = inputs->args->job.length;
    const int64_t round = dpe_detect_inputs_per_round(inputs);
    count_rows(inputs, task, cost);
    if (strcmp(inputs->tasks[task].name, "ppl") == 0) {
        dpe_price_text(config, length, 1.0, true, &cost->price);
        return DPE_OK;
    }
    dpe_status status = dpe_task_price(
        &inputs->tasks[task], round < inputs->n_samples[0] ? round : inputs->n_samples[0], length,
        inputs->job.batch, config, &cost->price, answering, err);
    const double trained = fmin(1.0, (double)inputs->job.trained_length / (double)length);
    cost->shorter = shorten(&cost->price, trained);
    cost->shortest = shorten(&cost->price, 0.25 * trained);
    dpe_price_text(config, length, 1.0, true, &cost->text);
    return status;
}

static void add(const struct detect_inputs *inputs, const struct task_cost *costs,
                const struct dpe_job_speed *speed, struct dpe_bill *bill)
{
    for (int i = 0; i < inputs->n_tasks; i++) {
        const struct dpe_selection *selection = &inputs->grid.configs[0].plan.selection;
        const double shorts = (double)costs[i].short_rows;
        const double texts = (double)costs[i].text_rows;
        dpe_bill_add(bill, &costs[i].price, costs[i].least_rows, (double)costs[i].rows, selection,
                     speed);
        dpe_bill_add(bill, &costs[i].shorter, 0.0, shorts, selection, speed);
        dpe_bill_add(bill, &costs[i].shortest, 0.0, (double)costs[i].shortest_rows, selection,
                     speed);
        dpe_bill_add(bill, &costs[i].text, 0.0, texts, selection, speed);
    }
}

static void print_grid(const struct detect_inputs *inputs)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    char lengths[1024];
    char window[64];
    dpe_detect_list_lengths(params, lengths, sizeof lengths);
    dpe_print("model            %s\n", inputs->args->job.model);
    dpe_print("trained length   %lld (%s)\n", (long long)params->trained_length,
              dpe_detect_trained_source(inputs));
    dpe_detect_window_text(params, window);
    dpe_print("length           %lld, %s\n", (long long)params->length, window);
    dpe_print("lengths          %s%s\n", lengths, dpe_detect_skipped_text(inputs));
    dpe_print("configurations   %d distinct of %d x %d cells\n", inputs->grid.n_configs,
              params->n_groups, params->n_lengths);
}

static void print_rows(const struct detect_inputs *inputs, const struct task_cost *costs)
{
    for (int i = 0; i < inputs->n_tasks; i++) {
        dpe_price_print(inputs->tasks[i].name,
                        (double)(costs[i].rows + costs[i].short_rows + costs[i].shortest_rows +
                                 costs[i].text_rows),
                        false, &costs[i].price);
        dpe_print("%-16s validation ", "");
        if (i == 0 && dpe_detect_inputs_steps(inputs) > 0) {
            dpe_print("and at most %lld configurations of --select ",
                      (long long)dpe_detect_inputs_steps(inputs));
        }
        if (i == 0 && dpe_detect_inputs_searched(inputs) > 0) {
            dpe_print("and at most %lld samples of the search ",
                      (long long)dpe_detect_inputs_searched(inputs));
        }
        dpe_print("included\n");
    }
}

static dpe_status print_cost(const struct detect_inputs *inputs, const struct task_cost *costs,
                             const struct dpe_answering *answering, struct dpe_error *err)
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
        dpe_detect_print_savings(inputs, answering);
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
    struct task_cost costs[2] = {{.rows = 0}, {.rows = 0}};
    struct dpe_answering answering = {0};
    const bool print = !inputs->args->job.silent;
    DPE_TRY(dpe_detect_inputs_fit_batch(inputs, err));
    if (print) {
        dpe_detect_warn_of_length(&inputs->grid.params);
        dpe_detect_tell_template(inputs);
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

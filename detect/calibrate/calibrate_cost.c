/* The parts whose tools cannot make a dry run, because their inputs do not exist yet: whether their
 * samples can be made, and what they cost. */
#include <math.h>
#include <stdlib.h>

#include "detect/calibrate/calibrate_tool.h"
#include "engine/plan/methods/methods.h"
#include "eval/niah/niah.h"
#include "eval/suite/suite.h"
#include "eval/task/task.h"
#include "outputs/job/estimate.h"

enum { MOST_TOGETHER = 64 };

/* What a sample costs, on average over those of a context. */
struct cost {
    double prompt, read, room; /* tokens: of the prompt, of these read, generated at most */
    double pairs, steps, branches, head; /* as dpe_job_range_add; of books: what the LM head adds */
    double products, attention;
};

static void cost_of_books(const struct dpe_job *job, int64_t length, struct cost *cost)
{
    double n = (double)length;
    double reading = 0.0;
    *cost = (struct cost){.prompt = n, .read = n, .pairs = n * n};
    dpe_config_flops(dpe_model_config(job->model), 0, length, 0, &reading, &cost->attention);
    dpe_config_flops(dpe_model_config(job->model), 0, length, length, &cost->products,
                     &cost->attention);
    cost->head = cost->products / reading;
}

/* How many of `wanted` samples dpe-eval makes together, as memory allows. */
static dpe_status fit(struct dpe_job *job, int64_t length, int64_t wanted, struct dpe_error *err)
{
    struct dpe_plan plan = {0};
    const struct dpe_plan_context context = dpe_job_context(job, length);
    dpe_status status = dpe_plan_make("rope", &context, &plan, err);
    if (status == DPE_OK) {
        status = dpe_job_fit_batch(job, &plan, length, wanted, err);
    }
    dpe_plan_free(&plan);
    return status;
}

/* The n samples of a context. */
static dpe_status cost_of_context(const struct dpe_job *job, const struct dpe_sample *samples,
                                  int64_t n, int64_t length, struct cost *cost,
                                  struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(job->model);
    const struct dpe_session_limits limits = {
        .capacity = length * job->batch, .positions = length, .branches = job->batch};
    struct dpe_answering answering = {0};
    dpe_status status = dpe_answering_cost(samples, n, job->batch, &limits, &answering, err);
    if (status != DPE_OK) {
        return status;
    }
    int64_t prompt = (int64_t)samples[0].prompt.n;
    int64_t room = samples[0].max_new;
    double pairs = 0.5 * (double)prompt * (double)prompt * (double)n;
    double generated[2] = {0.0, 0.0};
    *cost = (struct cost){.prompt = (double)prompt,
                          .read = (double)answering.read / (double)n,
                          .room = (double)room,
                          .pairs = 2.0 * answering.pairs / (double)n,
                          .steps = (double)answering.steps / (double)n,
                          .branches =
                              (double)answering.decoded / fmax((double)answering.steps, 1.0),
                          .head = 1.0};
    dpe_config_flops(config, 0, prompt, 1, &cost->products, &cost->attention);
    dpe_config_flops(config, prompt, room, room, &generated[0], &generated[1]);
    cost->products = cost->products * cost->read / cost->prompt + generated[0];
    cost->attention = cost->attention * fmin(1.0, answering.pairs / pairs) + generated[1];
    return DPE_OK;
}

/* The first context of a task: its samples, up to MOST_TOGETHER. */
struct context {
    struct dpe_sample samples[MOST_TOGETHER];
    int64_t n;
};

static dpe_status make_context(const struct dpe_suite_task *task, struct context *context,
                               struct dpe_error *err)
{
    int64_t n = task->task.together < MOST_TOGETHER ? task->task.together : MOST_TOGETHER;
    dpe_status status = DPE_OK;
    *context = (struct context){.n = n < task->n_samples ? n : task->n_samples};
    for (int64_t i = 0; i < context->n && status == DPE_OK; i++) {
        status = dpe_task_sample(&task->task, i, &context->samples[i], NULL, err);
    }
    return status;
}

static void free_context(struct context *context)
{
    for (int64_t i = 0; i < context->n; i++) {
        dpe_sample_free(&context->samples[i]);
    }
}

static dpe_status cost_of_needles(struct dpe_job *job, const struct dpe_suite_task *task,
                                  struct cost *cost, struct dpe_error *err)
{
    struct context context;
    dpe_status status = make_context(task, &context, err);
    if (status == DPE_OK) {
        status = fit(job, task->length, context.n, err);
    }
    if (status == DPE_OK) {
        status = cost_of_context(job, context.samples, context.n, task->length, cost, err);
    }
    free_context(&context);
    return status;
}

static void print_cost(struct batch *batch, const char *what, double rows, const struct cost *cost,
                       const struct dpe_job_speed *speed)
{
    printf("\n%-16s at most %.0f samples of %.0f tokens", what, rows, cost->prompt);
    if (cost->room > 0.0) {
        printf(" and at most %.0f generated", cost->room);
    }
    printf("\ntokens           %.4g\n", rows * (cost->read + cost->room));
    printf("operations       %.3g (matrix products %.3g, attention %.3g)\n",
           rows * (cost->products + cost->attention), rows * cost->products,
           rows * cost->attention);
    if (speed->tokens > 0) {
        struct dpe_job_range range = {0};
        dpe_job_range_add(&range, speed, rows, cost->read * cost->head, cost->pairs, cost->steps,
                          cost->prompt * cost->branches);
        dpe_job_range_print(&range, speed);
    }
    batch->tokens += rows * (cost->read + cost->room);
    batch->operations += rows * (cost->products + cost->attention);
}

/* The samples of a part. Close *suite, after an error too. */
static dpe_status open_part(const struct batch *batch, const struct dpe_job *job,
                            enum calibrate_part part, struct dpe_suite *suite,
                            struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    const char *samples = dpe_calibrate_value(args, "--samples");
    struct dpe_suite_options options = {
        .tokenizer = job->tokenizer,
        .corpus = job->corpus,
        .chat_template = args->job.chat_template != NULL ? args->job.chat_template : "auto",
        .lengths = &batch->entry->length,
        .n_lengths = 1,
        .n_samples = part == CALIBRATE_TUNE ? dpe_calibrate_tune_rows(batch)
                     : samples != NULL      ? strtoll(samples, NULL, 10)
                                            : 100,
        .seed = (uint64_t)dpe_calibrate_seed(args, part),
    };
    char *niah = NULL;
    dpe_niah_defaults(&options.niah);
    *suite = (struct dpe_suite){0};
    dpe_status status = dpe_calibrate_niah(batch, part, &niah, err);
    if (status == DPE_OK && niah != NULL) {
        status = dpe_niah_parse(niah, &options.niah, err);
    }
    if (status == DPE_OK) {
        status = dpe_suite_open(dpe_calibrate_needles(args) ? "niah" : "ppl", &options, suite, err);
    }
    free(niah);
    return status;
}

static dpe_status print_part(struct batch *batch, struct dpe_job *job, enum calibrate_part part,
                             const char *what, int methods, const struct dpe_job_speed *speed,
                             struct dpe_error *err)
{
    struct dpe_suite suite;
    struct cost cost = {0};
    dpe_status status = open_part(batch, job, part, &suite, err);
    if (status == DPE_OK && dpe_calibrate_needles(batch->args)) {
        status = cost_of_needles(job, &suite.tasks[0], &cost, err);
    } else if (status == DPE_OK) {
        cost_of_books(job, suite.tasks[0].length, &cost);
    }
    if (status == DPE_OK) {
        print_cost(batch, what, (double)methods * (double)suite.tasks[0].n_samples, &cost, speed);
    }
    dpe_suite_close(&suite);
    return status;
}

static dpe_status check_part(struct batch *batch, const struct dpe_job *job,
                             enum calibrate_part part, struct dpe_error *err)
{
    struct dpe_suite suite;
    struct context context = {.n = 0};
    dpe_status status = open_part(batch, job, part, &suite, err);
    if (status == DPE_OK && dpe_calibrate_needles(batch->args)) {
        status = make_context(&suite.tasks[0], &context, err);
    }
    free_context(&context);
    dpe_suite_close(&suite);
    return status;
}

dpe_status dpe_calibrate_check_samples(struct batch *batch, struct dpe_error *err)
{
    struct dpe_job_options options = batch->args->job;
    struct dpe_job job = {0};
    options.output = NULL; /* a folder, which is not touched */
    options.tool.force = false;
    options.tensor_parallel = 1; /* nothing is run */
    dpe_status status = dpe_job_open(&job, &options, true, err);
    for (int i = 0; i < batch->n_entries && status == DPE_OK; i++) {
        batch->entry = &batch->entries[i];
        if (batch->chooses) {
            status = check_part(batch, &job, CALIBRATE_PAIRS, err);
        }
        if (status == DPE_OK) {
            status = check_part(batch, &job, CALIBRATE_CHECK, err);
        }
    }
    return dpe_job_close(&job, status, err);
}

/* Under a plan of the same kind as those of both parts. */
static void measure(struct dpe_job *job, const char *method, int64_t length, int64_t together,
                    struct dpe_job_speed *speed)
{
    struct dpe_plan plan = {0};
    const struct dpe_plan_context context = dpe_job_context(job, length);
    struct dpe_error err = {0};
    dpe_status status = dpe_plan_make(method, &context, &plan, &err);
    if (status == DPE_OK) {
        status = dpe_job_fit_batch(job, &plan, length, together, &err);
    }
    if (status == DPE_OK) {
        status = dpe_job_measure_here(job, &plan, length, speed, &err);
    }
    if (status != DPE_OK) {
        *speed = (struct dpe_job_speed){0}; /* the sweep's dry run has printed the reason */
    }
    dpe_plan_free(&plan);
}

static void print_total(int parts)
{
    struct dpe_job_range range;
    char text[64];
    const char *times = getenv("DPE_PART_TIMES");
    if (times != NULL && dpe_job_range_sum(times, parts, &range)) {
        printf("\ntotal            %s for all parts; exports, tables and the report take seconds\n",
               dpe_job_range_text(&range, text));
    }
}

dpe_status dpe_calibrate_print_cost(struct batch *batch, struct dpe_error *err)
{
    struct dpe_job_options options = batch->args->job;
    struct dpe_job job = {0};
    struct dpe_job_speed speed = {0};
    int64_t k[DPE_DETECT_CANDIDATES];
    options.output = NULL; /* a folder, which is not touched */
    dpe_status status = dpe_job_open(&job, &options, true, err);
    for (int i = 0; i < batch->n_entries && status == DPE_OK; i++) {
        batch->entry = &batch->entries[i];
        measure(&job, batch->frequencies ? "rope" : "dpe", batch->entry->length,
                dpe_calibrate_together(batch), &speed);
        if (batch->args->tunes) {
            status = print_part(batch, &job, CALIBRATE_TUNE, "--against tuned", 1, &speed, err);
        }
        if (status == DPE_OK && batch->chooses) {
            status = print_part(batch, &job, CALIBRATE_PAIRS, "--top-k auto",
                                dpe_detect_top_k_candidates(batch->n_pairs, k), &speed, err);
        }
        if (status == DPE_OK) {
            status = print_part(batch, &job, CALIBRATE_CHECK, "check",
                                dpe_calibrate_check_methods(batch->args), &speed, err);
        }
    }
    if (status == DPE_OK) {
        print_total(batch->n_entries * (2 + batch->chooses + batch->args->tunes) +
                    !batch->frequencies);
    }
    return dpe_job_close(&job, status, err);
}

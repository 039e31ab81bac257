/* What the parts cost that a dry run cannot ask the tools for: their tables are not there yet. */
#include <stdlib.h>

#include "calibrate_tool.h"

/* One sample after another under so many methods. */
static dpe_status print_task(const struct dpe_job *job, const struct dpe_suite_task *task,
                             const char *what, int methods, struct dpe_error *err)
{
    struct dpe_sample sample = {0};
    int64_t prompt = task->length;
    int64_t room = 0;
    double rows = (double)methods * (double)task->n_samples;
    double operations[4] = {0};
    bool asks = task->task.n_samples == INT64_MAX;
    if (asks) {
        dpe_status status = dpe_task_sample(&task->task, 0, &sample, NULL, err);
        if (status != DPE_OK) {
            return status;
        }
        prompt = (int64_t)sample.prompt.n;
        room = sample.max_new;
        dpe_sample_free(&sample);
        dpe_config_flops(dpe_model_config(job->model), prompt, room, room, &operations[2],
                         &operations[3]);
    }
    dpe_config_flops(dpe_model_config(job->model), 0, prompt, asks ? 1 : prompt, &operations[0],
                     &operations[1]);
    printf("\n%-16s at most %.0f samples of %lld tokens", what, rows, (long long)prompt);
    if (room > 0) {
        printf(" and at most %lld generated", (long long)room);
    }
    printf("\ntokens           %.4g\n", rows * (double)(prompt + room));
    printf("operations       %.3g (matrix products %.3g, attention %.3g)\n",
           rows * (operations[0] + operations[1] + operations[2] + operations[3]),
           rows * (operations[0] + operations[2]), rows * (operations[1] + operations[3]));
    return DPE_OK;
}

static dpe_status print_part(const struct batch *batch, const struct dpe_job *job,
                             enum calibrate_part part, const char *what, int methods,
                             struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    const char *samples = calibrate_value(args, "--samples");
    struct dpe_suite suite = {0};
    struct dpe_suite_options options = {
        .tokenizer = job->tokenizer,
        .corpus = job->corpus,
        .chat_template = args->job.chat_template,
        .lengths = &args->job.length,
        .n_lengths = 1,
        .n_samples = samples != NULL ? strtoll(samples, NULL, 10) : 100,
        .seed = (uint64_t)calibrate_seed(args, part),
    };
    char *niah = NULL;
    dpe_niah_defaults(&options.niah);
    dpe_status status = calibrate_niah(args, part, &niah, err);
    if (status == DPE_OK && niah != NULL) {
        status = dpe_niah_parse(niah, &options.niah, err);
    }
    if (status == DPE_OK) {
        status = dpe_suite_open(calibrate_needles(args) ? "niah" : "ppl", &options, &suite, err);
    }
    if (status == DPE_OK) {
        status = print_task(job, &suite.tasks[0], what, methods, err);
    }
    dpe_suite_close(&suite);
    free(niah);
    return status;
}

dpe_status calibrate_print_cost(const struct batch *batch, struct dpe_error *err)
{
    struct dpe_job_options options = batch->args->job;
    struct dpe_job job = {0};
    int64_t k[DPE_DETECT_RUNGS];
    options.output = NULL; /* a folder, which is not touched */
    dpe_status status = dpe_job_open(&job, &options, true, err);
    if (status == DPE_OK && batch->chooses) {
        /* Beside each number of pairs the model as it is and all groups at half. */
        status = print_part(batch, &job, CALIBRATE_PAIRS, "--top-k auto",
                            dpe_detect_top_k_ladder(batch->n_pairs, k) + 2, err);
    }
    if (status == DPE_OK) {
        status = print_part(batch, &job, CALIBRATE_CHECK, "check", 3, err);
    }
    return dpe_job_close(&job, status, err);
}

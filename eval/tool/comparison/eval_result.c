/* The result of a comparison for scripts: a row for each suite, task and method. */
#include <math.h>

#include "eval/tool/comparison/comparison.h"

void dpe_eval_result_begin(const struct comparison *comparison, struct dpe_result **out)
{
    const struct eval_arguments *args = comparison->args;
    *out = dpe_result_begin("dpe-eval");
    dpe_result_text(*out, "model", args->job.model);
    dpe_result_text(*out, "fingerprint", dpe_job_fingerprint(&comparison->job));
    dpe_result_text(*out, "table", args->job.output);
    dpe_result_whole(*out, "trained_length", comparison->job.trained_length);
    dpe_result_whole(*out, "seed", (int64_t)args->job.seed);
    dpe_result_text(*out, "against", comparison->labels[comparison->against]);
    dpe_result_text(*out, "ablation", args->what);
}

static void add_interval(struct dpe_result *out, const struct dpe_interval *interval,
                         const char *const names[3])
{
    dpe_result_number(out, names[0], interval->mean);
    dpe_result_number(out, names[1], interval->low);
    dpe_result_number(out, names[2], interval->high);
}

void dpe_eval_result_add(struct dpe_result *out, const struct dpe_results *results)
{
    static const char *const mean[] = {"mean", "low", "high"};
    static const char *const difference[] = {"difference", "difference_low", "difference_high"};
    const struct dpe_interval none = {.mean = (double)NAN, .low = (double)NAN, .high = (double)NAN};
    for (int t = 0; t < results->n_tasks; t++) {
        const struct dpe_suite_task *task = &results->suite->tasks[t];
        for (int m = 0; m < results->n_methods; m++) {
            size_t at = (size_t)m * (size_t)results->n_tasks + (size_t)t;
            dpe_result_row(out, "results");
            dpe_result_text(out, "suite", results->suite->name);
            dpe_result_text(out, "task", task->task.name);
            dpe_result_whole(out, "length", task->length);
            dpe_result_text(out, "method", results->method_names[m]);
            dpe_result_text(out, "measure",
                            results->suite->perplexity ? "perplexity" : results->suite->score);
            dpe_result_whole(out, "samples", results->mean[at].n);
            add_interval(out, &results->mean[at], mean);
            add_interval(out, m == results->against ? &none : &results->difference[at], difference);
            dpe_result_number(out, "p_value", m == results->against ? (double)NAN : results->p_value[at]);
        }
    }
}

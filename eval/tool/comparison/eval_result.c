/* The result of a comparison for scripts: a row for each suite, task and method. */
#include "eval/tool/comparison/comparison.h"
#include "outputs/datasets/kinds.h"

void dpe_eval_result_begin(const struct dpe_comparison *comparison, struct dpe_result **out)
{
    const struct dpe_eval_arguments *args = comparison->args;
    *out = dpe_result_begin("dpe-eval");
    dpe_result_text(*out, "model", args->job.model);
    dpe_result_text(*out, "fingerprint", dpe_job_fingerprint(&comparison->job));
    dpe_result_text(*out, "table", args->job.output);
    dpe_result_whole(*out, "trained_length", comparison->job.trained_length);
    dpe_result_whole(*out, "seed", (int64_t)args->job.seed);
    dpe_result_text(*out, "against", comparison->labels[comparison->against]);
    dpe_result_text(*out, "ablation", args->what);
}

/* The method that the others are compared with differs in nothing from itself. */
void dpe_eval_result_add(struct dpe_result *out, const struct dpe_results *results)
{
    for (int64_t i = 0; i < (int64_t)results->n_tasks * results->n_methods; i++) {
        const int64_t m = i % results->n_methods;
        const int64_t at = m * results->n_tasks + i / results->n_methods;
        struct dpe_suite_result r = results->r;
        r.difference = m == results->against ? NULL : r.difference;
        dpe_result_row(out, "results");
        dpe_result_text(out, "suite", results->suite->name);
        dpe_result_text(out, "measure",
                        results->suite->perplexity ? "perplexity" : results->suite->score);
        dpe_datasets_fields(&dpe_suite_kinds[0], &r, "/method task", at, out);
    }
}

/* dpe-eval: position methods on the same samples, side by side. */
#include <string.h>

#include "eval/tool/eval_tool.h"

int main(int argc, char **argv)
{
    dpe_tool_start(argv);
    if (argc > 1 && strcmp(argv[1], "score") == 0) {
        return dpe_eval_score_main(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "data") == 0) {
        return dpe_eval_data_main(argc - 1, argv + 1);
    }
    struct eval_arguments args = {.job = {.samples = 100, .argc = argc, .argv = argv},
                                  .official = true};
    dpe_eval_parse(argc, argv, &args);
    dpe_tool_configure(&args.job.tool);
    dpe_signals_install();
    struct dpe_error err = {0};
    struct comparison comparison = {0};
    dpe_status status = dpe_eval_comparison_open(&comparison, &args, &err);
    if (status == DPE_OK) {
        status = dpe_eval_comparison_run(&comparison, &err);
    }
    status = dpe_eval_comparison_close(&comparison, status, &err);
    dpe_eval_suites_free(&args);
    return dpe_tool_end(status, &err);
}

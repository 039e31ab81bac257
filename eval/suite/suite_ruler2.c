/* RULER v2 as a suite: the 12 tasks of NVIDIA-NeMo/Skills, from the files that its preparation
 * writes. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>
#include <string.h>

static const char name[] = "ruler2";

/* Tokens to generate, in the order of dpe_score_task: a number, a copied question, or a copied
 * document and what is said about it. */
static const int64_t rooms[] = {32, 512, 1024, 512, 128, 1024, 1024, 512, 32, 32, 1024, 128};
enum { N_TASKS = sizeof rooms / sizeof rooms[0] };

dpe_status dpe_suite_open_ruler2(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                 struct dpe_error *err)
{
    struct dpe_official_shared *shared = NULL;
    if (options->data == NULL) {
        return dpe_fail(
            err, DPE_USAGE,
            "ruler2 reads the files of its own preparation: give the folder of its tasks with "
            "--data DIR");
    }
    dpe_status status = dpe_suite_check_tasks(name, options->tasks, err);
    if (status == DPE_OK) {
        status = dpe_official_share(options->chat_template, dpe_tokenizer_path(options->tokenizer),
                                    NULL, NULL, 0, &shared, err);
    }
    const struct dpe_suite_files files = {
        .name = name, .rooms = rooms, .n = N_TASKS, .shared = shared};
    if (status == DPE_OK) {
        status = dpe_suite_add_files(options, &files, suite, err);
    }
    if (status == DPE_OK) {
        status = dpe_official_identify(shared, &suite->parameters, err);
    }
    dpe_official_release(shared);
    return status;
}

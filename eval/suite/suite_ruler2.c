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

static dpe_status add_task(const struct dpe_suite_options *options, size_t i, int64_t length,
                           struct dpe_official_shared *shared, struct dpe_suite *suite,
                           struct dpe_error *err)
{
    const struct dpe_score_task *task = dpe_score_task(name, i);
    struct dpe_source source = {0};
    struct dpe_suite_task *added =
        dpe_suite_add(suite, task->name, task->category, length, options->n_samples, err);
    if (added == NULL) {
        return err->status;
    }
    const struct dpe_official_options official = {.shared = shared,
                                                  .folder = options->data,
                                                  .task = task,
                                                  .tokenizer = options->tokenizer,
                                                  .length = length,
                                                  .room = rooms[i],
                                                  .score = task->rule,
                                                  .skip_bad = options->skip_bad};
    DPE_TRY(dpe_suite_official(&official, suite, &source, err));
    return dpe_suite_keep_questions(suite, added, &source, options->tokenizer, err);
}

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
    for (size_t l = 0; l < options->n_lengths && status == DPE_OK; l++) {
        for (size_t i = 0; i < N_TASKS && status == DPE_OK; i++) {
            if (dpe_suite_task_listed(options->tasks, dpe_score_task(name, i))) {
                status = add_task(options, i, options->lengths[l], shared, suite, err);
            }
        }
    }
    if (status == DPE_OK) {
        status = dpe_official_identify(shared, &suite->parameters, err);
    }
    dpe_official_release(shared);
    return status;
}

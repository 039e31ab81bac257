/* Perplexity as a suite: the first tokens of books, or a window that slides over them. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>

static dpe_status add_books(const struct dpe_suite_options *options, int64_t length,
                            struct dpe_suite *suite, struct dpe_error *err)
{
    struct dpe_suite_task *added = dpe_suite_add(suite, "ppl", "", length, options->n_samples, err);
    if (added == NULL) {
        return err->status;
    }
    char name[sizeof added->task.name];
    snprintf(name, sizeof name, "%s", added->task.name);
    const struct dpe_ppl_options sliding = {.length = length,
                                            .stride = options->stride,
                                            .max_tokens = options->max_tokens,
                                            .special = options->niah.special};
    DPE_TRY(options->stride > 0
                ? dpe_task_ppl_sliding(name, options->corpus, options->tokenizer, &sliding,
                                       &added->task, &suite->skipped, err)
                : dpe_task_ppl(name, options->corpus, options->tokenizer, length,
                               options->niah.special, &added->task, &suite->skipped, err));
    dpe_suite_keep(suite);
    return DPE_OK;
}

dpe_status dpe_suite_open_ppl(const struct dpe_suite_options *options, struct dpe_suite *suite,
                              struct dpe_error *err)
{
    static const char *const specials[] = {"error", "literal", "parse"};
    for (size_t i = 0; i < options->n_lengths; i++) {
        DPE_TRY(add_books(options, options->lengths[i], suite, err));
    }
    DPE_TRY(
        dpe_identity_addf(&suite->parameters, err, "stride", "%lld", (long long)options->stride));
    DPE_TRY(dpe_identity_addf(&suite->parameters, err, "max_tokens", "%lld",
                              (long long)options->max_tokens));
    return dpe_identity_add(&suite->parameters, "special", specials[options->niah.special], err);
}

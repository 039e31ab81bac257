/* Suites of the texts of a corpus: needles, one needle by depth, perplexity. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>

/* The needle task of one length under `name`; its template's hash goes to `hash`. */
static dpe_status open_needles(const struct dpe_suite_options *options,
                               const struct dpe_niah_params *params, int64_t length,
                               struct dpe_task *task, char hash[65], struct dpe_error *err)
{
    char name[sizeof task->name];
    struct dpe_niah *niah = NULL;
    snprintf(name, sizeof name, "%s", task->name);
    DPE_TRY(dpe_niah_open(params, length, options->corpus, options->tokenizer,
                          options->chat_template, options->seed, &niah, err));
    snprintf(hash, 65, "%s", dpe_niah_template_hash(niah));
    return dpe_task_niah(name, niah, options->tokenizer, task, err);
}

static dpe_status add_needles(const struct dpe_suite_options *options,
                              const struct dpe_niah_params *params, const char *label,
                              int64_t length, struct dpe_suite *suite, char hash[65],
                              struct dpe_error *err)
{
    struct dpe_suite_task *added = dpe_suite_add(suite, label, "", length, options->n_samples, err);
    if (added == NULL) {
        return err->status;
    }
    DPE_TRY(open_needles(options, params, length, &added->task, hash, err));
    dpe_suite_keep(suite);
    return DPE_OK;
}

static dpe_status describe(struct dpe_suite *suite, const struct dpe_niah_params *params,
                           const char *hash, struct dpe_error *err)
{
    char spec[256];
    dpe_niah_format(params, spec, sizeof spec);
    DPE_TRY(dpe_identity_add(&suite->parameters, "parameters", spec, err));
    return dpe_identity_add(&suite->parameters, "template", hash, err);
}

dpe_status dpe_suite_open_niah(const struct dpe_suite_options *options, struct dpe_suite *suite,
                               struct dpe_error *err)
{
    char hash[65] = "";
    for (size_t i = 0; i < options->n_lengths; i++) {
        DPE_TRY(
            add_needles(options, &options->niah, "niah", options->lengths[i], suite, hash, err));
    }
    return describe(suite, &options->niah, hash, err);
}

dpe_status dpe_suite_open_grid(const struct dpe_suite_options *options, struct dpe_suite *suite,
                               struct dpe_error *err)
{
    char hash[65] = "";
    struct dpe_niah_params params = options->niah;
    params.keys = params.values = params.queries = params.asked = 1;
    for (size_t i = 0; i < options->n_lengths * options->n_depths; i++) {
        char label[24];
        params.depth = options->depths[i % options->n_depths];
        snprintf(label, sizeof label, "depth-%.4g", params.depth);
        DPE_TRY(add_needles(options, &params, label, options->lengths[i / options->n_depths], suite,
                            hash, err));
    }
    params.depth = options->niah.depth; /* of the cells, not of the suite */
    return describe(suite, &params, hash, err);
}

/* Perplexity of the first tokens of books, or of a window that slides over them. */
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
    for (size_t i = 0; i < options->n_lengths; i++) {
        DPE_TRY(add_books(options, options->lengths[i], suite, err));
    }
    DPE_TRY(
        dpe_identity_addf(&suite->parameters, err, "stride", "%lld", (long long)options->stride));
    DPE_TRY(dpe_identity_addf(&suite->parameters, err, "max_tokens", "%lld",
                              (long long)options->max_tokens));
    return dpe_identity_add(&suite->parameters, "special", dpe_niah_specials[options->niah.special],
                            err);
}

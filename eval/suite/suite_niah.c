/* Needles in a haystack as suites: the task itself, and one needle by depth. */
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

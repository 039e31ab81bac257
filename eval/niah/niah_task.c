/* The needle task as a source of questions. */
#include "eval/niah/niah_parts.h"

#include <stdio.h>
#include <string.h>

static dpe_status sample_niah(void *state, int64_t index, struct dpe_sample *sample,
                              struct dpe_error *err)
{
    return dpe_niah_sample(state, index, sample, err);
}

static void close_niah(void *state)
{
    dpe_niah_close(state);
}

dpe_status dpe_task_niah(const char *name, struct dpe_niah *niah,
                         const struct dpe_tokenizer *tokenizer, struct dpe_task *task,
                         struct dpe_error *err)
{
    struct dpe_source source = {.n_samples = INT64_MAX,
                                .together = dpe_niah_together(&niah->params),
                                .state = niah,
                                .sample = sample_niah,
                                .score = dpe_recall,
                                .growing = true,
                                .close = close_niah};
    if (strlen(name) >= sizeof source.name) {
        dpe_source_close(&source);
        return dpe_fail(err, DPE_INTERNAL, "task name \"%s\" is too long", name);
    }
    snprintf(source.name, sizeof source.name, "%s", name);
    return dpe_task_questions(&source, tokenizer, task, err);
}

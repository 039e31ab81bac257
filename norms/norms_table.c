/* The table of a profile, from its rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "norms/norms_tool.h"
#include "outputs/h5/h5.h"

void dpe_norms_task_name(int64_t length, char name[32])
{
    snprintf(name, 32, "norms-%lld", (long long)length);
}

/* Score tables by (length, sample), borrowed from the run; NULL = missing. */
static const double **collect(const struct profile *profile)
{
    int64_t samples = profile->args->job.samples;
    const double **tables =
        dpe_alloc_zero((size_t)profile->n_lengths, (size_t)samples * sizeof *tables);
    for (int i = 0; i < profile->n_lengths && tables != NULL; i++) {
        char task[32];
        dpe_norms_task_name(profile->lengths[i], task);
        for (int64_t s = 0; s < samples; s++) {
            const struct dpe_row *row = dpe_run_find(profile->job.run, task, profile->key, s);
            if (row != NULL && row->status == DPE_ROW_OK) {
                tables[i * samples + s] = row->buckets;
            }
        }
    }
    return tables;
}

dpe_status dpe_norms_summarize(const struct profile *profile, struct dpe_norms_result *result,
                               struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    int64_t pairs = config->head_dim / 2;
    int64_t samples = profile->args->job.samples;
    int64_t rows = config->n_layers * config->n_heads;
    size_t cells = (size_t)(profile->n_lengths * samples);
    size_t size = (size_t)(rows * pairs);
    const double **tables = collect(profile);
    *result = (struct dpe_norms_result){
        .n = {profile->n_lengths, samples, config->n_layers, config->n_heads, pairs, pairs},
        .length = dpe_alloc((size_t)profile->n_lengths, sizeof *result->length),
        .mean = dpe_alloc(size, sizeof *result->mean),
        .sem = dpe_alloc(size, sizeof *result->sem),
        .ranking = dpe_alloc(size, sizeof *result->ranking),
        .contribution = dpe_alloc(cells, size * sizeof *result->contribution)};
    if (tables == NULL || result->length == NULL || result->mean == NULL || result->sem == NULL ||
        result->ranking == NULL || result->contribution == NULL) {
        free(tables);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the profile's table");
    }
    memcpy(result->length, profile->lengths, (size_t)profile->n_lengths * sizeof *result->length);
    dpe_norms_mean(tables, cells, (int64_t)size, result->mean, result->sem);
    dpe_norms_rank(result->mean, rows, pairs, result->ranking);
    for (size_t c = 0; c < cells; c++) {
        for (size_t i = 0; i < size; i++) {
            result->contribution[c * size + i] = tables[c] != NULL ? (float)tables[c][i] : NAN;
        }
    }
    free(tables);
    return DPE_OK;
}

static dpe_status put_texts(const struct profile *profile, struct dpe_h5 *table,
                            struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    const struct {
        const char *object, *name, *value;
    } texts[] = {
        {"/", "title", "2-norm profile of queries and keys"},
        {"/norms", "contribution", dpe_contribution_name(profile->args->contribution)},
        {"/norms", "tie_rule", "lower pair first"},
        {"/model", "fingerprint", dpe_job_fingerprint(&profile->job)},
        {"/model", "model_type", config->model_type},
        {"/tokenizer", "sha256", dpe_tokenizer_fingerprint(profile->job.tokenizer)},
        {"/corpus", "sha256", dpe_corpus_fingerprint(profile->job.corpus)},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        DPE_TRY(dpe_h5_attr_text(table, texts[i].object, texts[i].name, texts[i].value, err));
    }
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"layers", config->n_layers},
        {"heads", config->n_heads},
        {"kv_heads", config->n_kv_heads},
        {"head_dim", config->head_dim},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        DPE_TRY(dpe_h5_attr_i64(table, "/model", numbers[i].name, numbers[i].value, err));
    }
    return DPE_OK;
}

dpe_status dpe_norms_fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct profile *profile = user;
    struct dpe_norms_result result = {0};
    dpe_status status = dpe_norms_summarize(profile, &result, err);
    if (status == DPE_OK) {
        status = dpe_datasets_put(&dpe_norms_kind, &result, "/norms", table, err);
    }
    dpe_datasets_free(&dpe_norms_kind, &result);
    return status == DPE_OK ? put_texts(profile, table, err) : status;
}

dpe_status dpe_norms_print_result(const struct profile *profile,
                                  const struct dpe_norms_result *result, struct dpe_error *err)
{
    int64_t pairs = result->n[DPE_NORMS_PAIR];
    static const char *const names[] = {"top_25", "top_50", "top_75"};
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    struct dpe_result *out = dpe_result_begin("dpe-norms");
    dpe_result_text(out, "model", profile->args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&profile->job));
    dpe_result_text(out, "table", profile->args->job.output);
    dpe_result_text(out, "contribution", dpe_contribution_name(profile->args->contribution));
    dpe_result_whole(out, "samples", profile->args->job.samples);
    dpe_result_wholes(out, "lengths", profile->lengths, (size_t)profile->n_lengths);
    dpe_result_whole(out, "pairs", pairs);
    for (int64_t row = 0; row < config->n_layers * config->n_heads; row++) {
        int64_t at = row * pairs;
        dpe_result_row(out, "heads");
        dpe_result_whole(out, "layer", row / config->n_heads);
        dpe_result_whole(out, "head", row % config->n_heads);
        dpe_result_number(out, "entropy_bits", dpe_norms_entropy(result->mean + at, pairs));
        for (int i = 0; i < 3; i++) {
            dpe_result_number(out, names[i],
                              dpe_norms_share(result->mean + at, result->ranking + at, pairs,
                                              pairs * (i + 1) / 4));
        }
    }
    return dpe_result_print(out, profile->args->job.result, err);
}

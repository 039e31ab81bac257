/* The table of a profile, from its rows. */
#include <math.h>
#include <stdlib.h>

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

void dpe_norms_result_free(struct result *result)
{
    free(result->mean);
    free(result->sem);
    free(result->ranking);
    free(result->scores);
}

dpe_status dpe_norms_summarize(const struct profile *profile, struct result *result,
                               struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    size_t cells = (size_t)(profile->n_lengths * profile->args->job.samples);
    result->n_rows = config->n_layers * config->n_heads;
    result->n_pairs = config->head_dim / 2;
    result->size = result->n_rows * result->n_pairs;
    size_t size = (size_t)result->size;
    const double **tables = collect(profile);
    result->mean = dpe_alloc(size, sizeof *result->mean);
    result->sem = dpe_alloc(size, sizeof *result->sem);
    result->ranking = dpe_alloc(size, sizeof *result->ranking);
    result->scores = dpe_alloc(cells, size * sizeof *result->scores);
    if (tables == NULL || result->mean == NULL || result->sem == NULL || result->ranking == NULL ||
        result->scores == NULL) {
        free(tables);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the profile's table");
    }
    dpe_norms_mean(tables, cells, result->size, result->mean, result->sem);
    dpe_norms_rank(result->mean, result->n_rows, result->n_pairs, result->ranking);
    for (size_t c = 0; c < cells; c++) {
        for (size_t i = 0; i < size; i++) {
            result->scores[c * size + i] = tables[c] != NULL ? (float)tables[c][i] : NAN;
        }
    }
    free(tables);
    return DPE_OK;
}

static dpe_status put_scales(const struct profile *profile, const struct result *result,
                             struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    const struct {
        const char *path, *long_name, *units;
        int64_t n;
    } axes[] = {
        {"/norms/length", "tokens of an excerpt", "tokens", profile->n_lengths},
        {"/norms/sample", "index of an excerpt", "1", profile->args->job.samples},
        {"/norms/layer", "layer", "1", config->n_layers},
        {"/norms/head", "query head", "1", config->n_heads},
        {"/norms/pair", "pair of head dimensions", "1", result->n_pairs},
        {"/norms/k", "place in the ranking", "1", result->n_pairs},
    };
    dpe_status status = DPE_OK;
    for (size_t a = 0; a < sizeof axes / sizeof axes[0] && status == DPE_OK; a++) {
        int64_t *values = dpe_alloc((size_t)axes[a].n, sizeof *values);
        if (values == NULL) {
            return dpe_fail(err, DPE_NO_MEMORY, "out of memory for an axis");
        }
        for (int64_t i = 0; i < axes[a].n; i++) {
            values[i] = a == 0 ? profile->lengths[i] : i;
        }
        const struct dpe_column scale = {.path = axes[a].path,
                                         .type = DPE_COL_I64,
                                         .rank = 1,
                                         .dims = {axes[a].n},
                                         .data = values,
                                         .long_name = axes[a].long_name,
                                         .units = axes[a].units,
                                         .is_scale = true};
        status = dpe_h5_put(table, &scale, err);
        free(values);
    }
    return status;
}

static dpe_status put_arrays(const struct profile *profile, const struct result *result,
                             struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    int64_t layers = config->n_layers;
    int64_t heads = config->n_heads;
    int64_t pairs = result->n_pairs;
    const struct dpe_column columns[] = {
        {.path = "/norms/contribution",
         .type = DPE_COL_F32,
         .rank = 5,
         .dims = {profile->n_lengths, profile->args->job.samples, layers, heads, pairs},
         .scales = {"/norms/length", "/norms/sample", "/norms/layer", "/norms/head", "/norms/pair"},
         .data = result->scores,
         .long_name = "2-norm contribution of a pair to the logits of its head",
         .units = "1"},
        {.path = "/norms/mean",
         .type = DPE_COL_F64,
         .rank = 3,
         .dims = {layers, heads, pairs},
         .scales = {"/norms/layer", "/norms/head", "/norms/pair"},
         .data = result->mean,
         .long_name = "mean contribution over the lengths and samples that are there",
         .units = "1"},
        {.path = "/norms/sem",
         .type = DPE_COL_F64,
         .rank = 3,
         .dims = {layers, heads, pairs},
         .scales = {"/norms/layer", "/norms/head", "/norms/pair"},
         .data = result->sem,
         .long_name = "standard error of the mean contribution",
         .units = "1"},
        {.path = "/norms/top_k_index",
         .type = DPE_COL_U16,
         .rank = 3,
         .dims = {layers, heads, pairs},
         .scales = {"/norms/layer", "/norms/head", "/norms/k"},
         .data = result->ranking,
         .long_name = "pairs by descending mean contribution, ties to the lower pair: the first k "
                      "are the top-k, the last k the last-k",
         .units = "1"},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof columns / sizeof columns[0] && status == DPE_OK; i++) {
        status = dpe_h5_put(table, &columns[i], err);
    }
    return status;
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
        {"/model", "fingerprint", dpe_model_fingerprint(profile->job.model)},
        {"/model", "model_type", config->model_type},
        {"/tokenizer", "sha256", dpe_tokenizer_fingerprint(profile->job.tokenizer)},
        {"/corpus", "sha256", dpe_corpus_fingerprint(profile->job.corpus)},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == DPE_OK; i++) {
        status = dpe_h5_attr_text(table, texts[i].object, texts[i].name, texts[i].value, err);
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
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == DPE_OK; i++) {
        status = dpe_h5_attr_i64(table, "/model", numbers[i].name, numbers[i].value, err);
    }
    return status;
}

dpe_status dpe_norms_fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct profile *profile = user;
    struct result result = {0};
    dpe_status status = dpe_norms_summarize(profile, &result, err);
    if (status != DPE_OK || (status = put_scales(profile, &result, table, err)) != DPE_OK ||
        (status = put_arrays(profile, &result, table, err)) != DPE_OK) {
        goto done;
    }
    status = put_texts(profile, table, err);
done:
    dpe_norms_result_free(&result);
    return status;
}

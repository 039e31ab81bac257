/* The report as HDF5: /group … /book, /detect, /validate, /table, /model, /tokenizer, /corpus.
 * outputs/SCHEMA.md is the contract. */
#include "data/data.h"
#include "detect/sweep/detect_table_internal.h"
#include "engine/tokenizer/tokenizer.h"
#include "outputs/h5/h5_put.h"
#include "outputs/read/read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char row_status_meanings[] = "ok nonfinite failed";

/* ---------------------------------------------------------------------------------------- scales
 */

static dpe_status put_scales(const struct dpe_detect_report *report, struct dpe_h5 *table,
                             struct dpe_error *err)
{
    const struct dpe_detect_grid *grid = report->grid;
    const struct dpe_detect_params *params = &grid->params;
    dpe_status status =
        dpe_h5_put_count(table, "/group", params->n_groups, "frequency group, high to low", err);
    if (status == DPE_OK) {
        status = dpe_h5_put_scale(table, "/length", DPE_COL_I64, params->lengths, params->n_lengths,
                                  "detecting length", "tokens", err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_put_count(table, "/pair", grid->n_pairs,
                                  "pair of components j, j + head_dim/2", err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_put_count(table, "/edge", params->n_groups + 1, "edge between groups", err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_put_scale(table, "/validated_plan", DPE_COL_STRING,
                                  dpe_detect_validated_names, DPE_DETECT_N_VALIDATED,
                                  "rope: the model as it is; base: every group at half the trained "
                                  "length; joint: every group at its effective length",
                                  "1", err);
    }
    const struct dpe_detect_result *niah = &report->results[0];
    const struct dpe_detect_result *ppl = &report->results[1];
    if (status == DPE_OK && niah->used) {
        status = dpe_h5_put_count(table, "/sample", niah->n_samples, "sample", err);
    }
    if (status == DPE_OK && ppl->used) {
        status =
            dpe_h5_put_scale(table, "/book", DPE_COL_STRING, ppl->books, ppl->n_samples,
                             "book with at least as many tokens as the evaluated length", "1", err);
    }
    return status;
}

/* ---------------------------------------------------------------------------------------- detect
 */

/* Scores of a task on the given axes, the last of which are its samples. */
static dpe_status put_scores(struct dpe_h5 *table, const char *folder,
                             const struct dpe_detect_result *result,
                             const struct dpe_detect_scores *scores, const struct table_axis *axes,
                             int n_axes, struct dpe_error *err)
{
    const struct table_entry niah[] = {
        {"/recall", DPE_COL_F64, scores->recall, "share of the values found in the answer", "1",
         NULL},
        {"/at_least_half", DPE_COL_F64, scores->at_least_half,
         "1 when at least half of the values were found, else 0", "1", NULL},
        {"/prompt_tokens", DPE_COL_I64, scores->prompt_tokens, "tokens of the prompt", "tokens",
         NULL},
        {"/new_tokens", DPE_COL_I64, scores->new_tokens, "generated tokens", "tokens", NULL},
        {"/seed", DPE_COL_U64, scores->seed, "seed of the sample, 0 = not run", "1", NULL},
    };
    const struct table_entry ppl[] = {
        {"/nll_sum", DPE_COL_F64, scores->nll_sum, "sum of negative log-likelihoods", "nats", NULL},
        {"/n_tokens", DPE_COL_I64, scores->n_tokens, "scored tokens", "tokens", NULL},
        {"/n_words", DPE_COL_I64, scores->n_words, "words of the scored text", "words", NULL},
    };
    const struct table_entry both = {
        "/status", DPE_COL_I32,        scores->status, "what became of the row; -1 = not run",
        "1",       row_status_meanings};
    bool recall = result->criterion == DPE_DETECT_RECALL;
    dpe_status status = dpe_h5_table_put_all(table, folder, recall ? niah : ppl,
                                             recall ? COUNT(niah) : COUNT(ppl), axes, n_axes, err);
    return status == DPE_OK ? dpe_h5_table_put(table, folder, &both, axes, n_axes, err) : status;
}

/* Ranks and what follows from them, in /detect of the deciding task and below the other one. */
static dpe_status put_ranking(struct dpe_h5 *table, const char *folder,
                              const struct dpe_detect_ranking *ranking,
                              const struct table_axis *axes, struct dpe_error *err)
{
    const struct table_entry cells[] = {{"/rank", DPE_COL_I32, ranking->rank,
                                         "rank of the detecting length in its group, 1 = best", "1",
                                         NULL}};
    const struct table_entry groups[] = {
        {"/effective_length", DPE_COL_I64, ranking->effective,
         "detecting length of rank 1, -1 = none", "tokens", NULL},
        {"/informative", DPE_COL_U8, ranking->informative,
         "whether the lengths of the group differ beyond noise", "1", "no yes"},
        {"/p_value", DPE_COL_F64, ranking->p_value,
         "p-value of: the lengths of the group do not differ", "1", NULL},
    };
    dpe_status status = dpe_h5_table_put_all(table, folder, cells, COUNT(cells), axes, 2, err);
    return status == DPE_OK
               ? dpe_h5_table_put_all(table, folder, groups, COUNT(groups), axes, 1, err)
               : status;
}

static dpe_status put_result(const struct dpe_detect_report *report,
                             const struct dpe_detect_result *result, struct dpe_h5 *table,
                             struct dpe_error *err)
{
    bool recall = result->criterion == DPE_DETECT_RECALL;
    const char *folder = recall ? "/detect/niah" : "/detect/ppl";
    const struct dpe_detect_params *params = &report->grid->params;
    const struct table_axis axes[] = {{"/group", params->n_groups},
                                      {"/length", params->n_lengths},
                                      {recall ? "/sample" : "/book", result->n_samples}};
    const struct dpe_detect_ranking *ranking = &result->ranking;
    const struct table_entry cells[] = {
        {recall ? "/recall_mean" : "/perplexity", DPE_COL_F64, ranking->mean,
         recall ? "mean recall over valid samples"
                : "exp(sum of NLL / tokens) over valid books, token level",
         "1", NULL},
        {"/ci_low", DPE_COL_F64, ranking->low, "lower end of its 95 % interval", "1", NULL},
        {"/ci_high", DPE_COL_F64, ranking->high, "upper end of its 95 % interval", "1", NULL},
        {"/n_valid", DPE_COL_I64, ranking->n_valid, "valid rows", "1", NULL},
    };
    dpe_status status = put_scores(table, folder, result, &result->scores, axes, 3, err);
    if (status == DPE_OK) {
        status = dpe_h5_table_put_all(table, folder, cells, COUNT(cells), axes, 2, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, folder, "samples_together", result->together, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_h5_attr_text(table, folder, "interval_rule",
                             recall ? "percentile bootstrap over samples, those of one context "
                                      "together, 2000 resamples"
                                    : "delete-one-book jackknife of the log",
                             err);
    }
    if (status == DPE_OK) {
        bool decides = dpe_detect_deciding(report) == result;
        status = put_ranking(table, decides ? "/detect" : folder, ranking, axes, err);
    }
    return status;
}

struct text_attribute {
    const char *name, *value;
};

static dpe_status put_texts(struct dpe_h5 *table, const char *object,
                            const struct text_attribute *texts, size_t n, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        if (texts[i].value != NULL) {
            status = dpe_h5_attr_text(table, object, texts[i].name, texts[i].value, err);
        }
    }
    return status;
}

/* Which plan each cell ran under, and the rules in words. */
static dpe_status put_detect(const struct dpe_detect_report *report, struct dpe_h5 *table,
                             struct dpe_error *err)
{
    const struct dpe_detect_grid *grid = report->grid;
    const struct dpe_detect_params *params = &grid->params;
    const struct table_axis axes[] = {{"/group", params->n_groups}, {"/length", params->n_lengths}};
    size_t n_cells = (size_t)params->n_groups * (size_t)params->n_lengths;
    const char **keys = dpe_alloc(n_cells, sizeof *keys);
    double scale[DPE_DETECT_MAX_LENGTHS];
    if (keys == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu cells", n_cells);
    }
    for (size_t c = 0; c < n_cells; c++) {
        keys[c] = grid->configs[grid->cell[c]].key;
    }
    for (int t = 0; t < params->n_lengths; t++) {
        scale[t] = (double)params->length / (double)params->lengths[t];
    }
    const struct table_entry plan = {
        "/plan", DPE_COL_STRING, keys, "plan of the cell: its key in /rows", "1", NULL};
    const struct table_entry scales = {
        "/scale", DPE_COL_F64, scale, "scale of the moving group, evaluated / detecting length",
        "1",      NULL};
    dpe_status status = dpe_h5_table_put(table, "/detect", &plan, axes, 2, err);
    if (status == DPE_OK) {
        status = dpe_h5_table_put(table, "/detect", &scales, &axes[1], 1, err);
    }
    free(keys);
    bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    const struct text_attribute texts[] = {
        {"criterion", recall ? "niah recall, higher is better" : "perplexity, lower is better"},
        {"tie_rule", "ties go to the larger length"},
        {"moving_pairs", "all pairs of one group; every other group stays at half the trained "
                         "length"},
        {"informative_rule",
         "p < 0.05 in a permutation test of best mean - worst mean: each sample's values (those "
         "of one context together) are permuted among the lengths, 1999 times"},
        {"niah_parameters", report->niah_spec},
        {"niah_templates_sha256", report->niah_template},
    };
    if (status == DPE_OK) {
        status = put_texts(table, "/detect", texts, COUNT(texts), err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, "/detect", "configurations", grid->n_configs, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, "/detect", "seed", (int64_t)report->seed, err);
    }
    return status;
}

/* -------------------------------------------------------------------------------------- validate
 */

static const char *verdict_text(enum dpe_detect_verdict verdict)
{
    static const char *const texts[] = {[DPE_DETECT_BETTER] = "better",
                                        [DPE_DETECT_INDISTINCT] = "not distinguishable",
                                        [DPE_DETECT_WORSE] = "worse",
                                        [DPE_DETECT_UNKNOWN] = "unknown"};
    return texts[verdict];
}

static dpe_status put_differences(struct dpe_h5 *table, const char *folder,
                                  const struct dpe_detect_validation *v, struct dpe_error *err)
{
    const double difference[] = {v->minus_rope.mean, v->minus_base.mean};
    const double low[] = {v->minus_rope.low, v->minus_base.low};
    const double high[] = {v->minus_rope.high, v->minus_base.high};
    const double p[] = {v->p_rope, v->p_base};
    const int64_t n[] = {v->minus_rope.n, v->minus_base.n};
    static const char *const others[] = {"rope", "base"};
    bool recall = v->criterion == DPE_DETECT_RECALL;
    char scale[64];
    snprintf(scale, sizeof scale, "%s/compared_with", folder);
    dpe_status status = dpe_h5_put_scale(table, scale, DPE_COL_STRING, others, 2,
                                         "plan that the joint one is compared with", "1", err);
    if (status != DPE_OK) {
        return status;
    }
    const struct table_axis axis = {scale, 2};
    const struct table_entry entries[] = {
        {"/difference", DPE_COL_F64, difference,
         recall ? "mean paired difference of recall, joint - other"
                : "mean paired difference, joint - other",
         recall ? "1" : "nats/token", NULL},
        {"/difference_low", DPE_COL_F64, low, "lower end of its 95 % bootstrap interval",
         recall ? "1" : "nats/token", NULL},
        {"/difference_high", DPE_COL_F64, high, "upper end of its 95 % bootstrap interval",
         recall ? "1" : "nats/token", NULL},
        {"/p_value", DPE_COL_F64, p,
         "two-sided sign-flip test of: no difference (samples of one context are one)", "1", NULL},
        {"/n_pairs", DPE_COL_I64, n, "samples valid under both", "1", NULL},
    };
    return dpe_h5_table_put_all(table, folder, entries, COUNT(entries), &axis, 1, err);
}

static dpe_status put_validation(const struct dpe_detect_result *result, struct dpe_h5 *table,
                                 struct dpe_error *err)
{
    bool recall = result->criterion == DPE_DETECT_RECALL;
    const char *folder = recall ? "/validate/niah" : "/validate/ppl";
    const struct dpe_detect_validation *v = &result->validation;
    double mean[DPE_DETECT_N_VALIDATED];
    double low[DPE_DETECT_N_VALIDATED];
    double high[DPE_DETECT_N_VALIDATED];
    int64_t n[DPE_DETECT_N_VALIDATED];
    for (int i = 0; i < DPE_DETECT_N_VALIDATED; i++) {
        mean[i] = v->value[i].mean;
        low[i] = v->value[i].low;
        high[i] = v->value[i].high;
        n[i] = v->value[i].n;
    }
    char scale[64];
    snprintf(scale, sizeof scale, "%s/sample", folder);
    dpe_status status =
        dpe_h5_put_count(table, scale, result->n_validated, "sample of the validation", err);
    if (status != DPE_OK) {
        return status;
    }
    const struct table_axis axes[] = {{"/validated_plan", DPE_DETECT_N_VALIDATED},
                                      {scale, result->n_validated}};
    const struct table_entry plans[] = {
        {recall ? "/recall_mean" : "/perplexity", DPE_COL_F64, mean,
         recall ? "mean recall over valid samples" : "exp(sum of NLL / tokens), token level", "1",
         NULL},
        {"/ci_low", DPE_COL_F64, low, "lower end of its 95 % interval", "1", NULL},
        {"/ci_high", DPE_COL_F64, high, "upper end of its 95 % interval", "1", NULL},
        {"/n_valid", DPE_COL_I64, n, "valid rows", "1", NULL},
    };
    status = put_scores(table, folder, result, &result->validate_scores, axes, 2, err);
    if (status == DPE_OK) {
        status = dpe_h5_table_put_all(table, folder, plans, COUNT(plans), axes, 1, err);
    }
    if (status == DPE_OK) {
        status = put_differences(table, folder, v, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_h5_attr_text(table, folder, "joint_against_base", verdict_text(v->verdict), err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, folder, "samples_needed", v->needed, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_h5_attr_text(table, folder, "samples",
                             result->fresh ? "not those of the sweep" : "those of the sweep", err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, folder, "first_sample", result->first_validated, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, folder, "samples_together", result->together, err);
    }
    return status;
}

static dpe_status put_validated_plans(const struct dpe_detect_report *report, struct dpe_h5 *table,
                                      struct dpe_error *err)
{
    const char *keys[DPE_DETECT_N_VALIDATED];
    for (int i = 0; i < DPE_DETECT_N_VALIDATED; i++) {
        keys[i] = report->keys[i];
    }
    const struct table_axis axis = {"/validated_plan", DPE_DETECT_N_VALIDATED};
    const struct table_entry plan = {"/plan", DPE_COL_STRING, keys, "its key in /rows", "1", NULL};
    dpe_status status = dpe_h5_table_put(table, "/validate", &plan, &axis, 1, err);
    return status == DPE_OK
               ? dpe_h5_attr_i64(table, "/validate", "seed", (int64_t)report->validation_seed, err)
               : status;
}

/* ------------------------------------------------------------------------- table, model and texts
 */

/* The pairs that moved, where they are not all. */
static dpe_status put_key_pairs(const struct dpe_detect_report *report, struct dpe_h5 *table,
                                struct dpe_error *err)
{
    const struct dpe_detect_grid *grid = report->grid;
    const struct dpe_config *config = report->context->config;
    const uint8_t *mask = grid->params.mask;
    if (mask == NULL) {
        return DPE_OK;
    }
    int64_t top_k = 0;
    for (int64_t j = 0; j < grid->n_pairs; j++) {
        top_k += mask[j];
    }
    const struct table_axis axes[] = {
        {"/layer", config->n_layers}, {"/head", config->n_heads}, {"/pair", grid->n_pairs}};
    const struct table_entry entry = {
        "/mask", DPE_COL_U8, mask, "whether a pair is a key pair of its head", "1", "no yes"};
    const struct table_entry count = {"/top_k", DPE_COL_I64, &top_k, "key pairs of each head",
                                      "1",      NULL};
    dpe_status status = dpe_h5_put_count(table, "/layer", config->n_layers, "layer", err);
    if (status == DPE_OK) {
        status = dpe_h5_put_count(table, "/head", config->n_heads, "query head", err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_table_put(table, "/table", &entry, axes, 3, err);
    }
    return status == DPE_OK ? dpe_h5_table_put(table, "/table", &count, NULL, 0, err) : status;
}

static dpe_status put_table(const struct dpe_detect_report *report, struct dpe_h5 *table,
                            struct dpe_error *err)
{
    const struct dpe_detect_grid *grid = report->grid;
    const struct dpe_detect_params *params = &grid->params;
    const struct dpe_plan *plan = &grid->configs[0].plan;
    double attention = sqrt(plan->logit_factor / params->temperature.logit_scale);
    const struct table_axis group = {"/group", params->n_groups};
    const struct table_axis edge = {"/edge", params->n_groups + 1};
    const struct table_axis pair = {"/pair", grid->n_pairs};
    const struct table_entry groups[] = {
        {"/scale_factor", DPE_COL_F64, report->scale, "scale of the group's far positions", "1",
         NULL},
        {"/effective_length", DPE_COL_I64, report->selected,
         "length selected for the group, -1 = none found, scale as during detection", "tokens",
         NULL},
    };
    const struct table_entry edges = {"/group_edge", DPE_COL_I32,
                                      grid->edges,   "group g holds pairs edge[g] to edge[g+1] - 1",
                                      "1",           NULL};
    const struct table_entry pairs = {"/inv_freq",          DPE_COL_F64,     plan->inv_freq,
                                      "rotation frequency", "radians/token", NULL};
    const struct table_entry scalars[] = {
        {"/local_window", DPE_COL_I64, &params->window, "keys nearer than this keep their distance",
         "tokens", NULL},
        {"/trained_length", DPE_COL_I64, &params->trained_length, "trained length", "tokens", NULL},
        {"/evaluated_length", DPE_COL_I64, &params->length, "length that the table is for",
         "tokens", NULL},
        {"/attention_scaling", DPE_COL_F64, &attention,
         "factor on queries and on keys; logits carry its square", "1", NULL},
    };
    const struct text_attribute texts[] = {
        {"near_rule", "distance < local_window"},
        {"rounding", "separable: floor(m/s) - floor(n/s) + w - floor(w/s)"},
        {"angle_precision", "f32"},
        {"pair_layout", "half-split: components j and j + head_dim/2; interleaved runtimes "
                        "permute"},
        {"key_pairs", params->mask != NULL ? "the top_k pairs of each head by 2-norm contribution"
                                           : "all pairs of every head"},
        {"adapter_required", "true"},
    };
    dpe_status status =
        dpe_h5_table_put_all(table, "/table", groups, COUNT(groups), &group, 1, err);
    if (status == DPE_OK) {
        status = dpe_h5_table_put(table, "/table", &edges, &edge, 1, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_table_put(table, "/table", &pairs, &pair, 1, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_table_put_all(table, "/table", scalars, COUNT(scalars), NULL, 0, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_put_temperature(table, &params->temperature, err);
    }
    if (status == DPE_OK) {
        status = put_key_pairs(report, table, err);
    }
    return status == DPE_OK ? put_texts(table, "/table", texts, COUNT(texts), err) : status;
}

static dpe_status put_model(const struct dpe_detect_report *report, struct dpe_h5 *table,
                            struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(report->model);
    const char *json = dpe_model_config_json(report->model);
    const struct table_entry entry = {
        "/config_json", DPE_COL_STRING, &json, "config.json as read", "1", NULL};
    const struct text_attribute texts[] = {
        {"fingerprint", dpe_model_fingerprint(report->model)},
        {"fingerprint_rule", "SHA-256 over config.json and, of every shard, name, size, header and "
                             "256 evenly spaced blocks of 4 KiB"},
        {"model_type", config->model_type},
    };
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"layers", config->n_layers},
        {"heads", config->n_heads},
        {"kv_heads", config->n_kv_heads},
        {"head_dim", config->head_dim},
        {"hidden", config->hidden},
        {"vocabulary", config->vocab},
        {"max_position_embeddings", config->max_position},
        {"parameters", dpe_config_parameters(config)},
    };
    dpe_status status = dpe_h5_table_put(table, "/model", &entry, NULL, 0, err);
    if (status == DPE_OK) {
        status = put_texts(table, "/model", texts, COUNT(texts), err);
    }
    for (size_t i = 0; i < COUNT(numbers) && status == DPE_OK; i++) {
        status = dpe_h5_attr_i64(table, "/model", numbers[i].name, numbers[i].value, err);
    }
    return status;
}

static dpe_status put_texts_of_run(const struct dpe_detect_report *report, struct dpe_h5 *table,
                                   struct dpe_error *err)
{
    dpe_status status = dpe_h5_attr_text(table, "/tokenizer", "sha256",
                                         dpe_tokenizer_fingerprint(report->tokenizer), err);
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, "/tokenizer", "size", dpe_tokenizer_size(report->tokenizer),
                                 err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_text(table, "/corpus", "sha256",
                                  dpe_corpus_fingerprint(report->corpus), err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, "/corpus", "books",
                                 (int64_t)dpe_corpus_size(report->corpus), err);
    }
    return status;
}

/* What this process computed; another one that made the same table may have needed more. */
static dpe_status put_work(const struct dpe_session_work *work, struct dpe_h5 *table,
                           struct dpe_error *err)
{
    dpe_status status = dpe_h5_attr_i64(table, "/run", "tokens_read", work->fed, err);
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, "/run", "tokens_decoded", work->decoded, err);
    }
    return status == DPE_OK ? dpe_h5_attr_i64(table, "/run", "decode_steps", work->steps, err)
                            : status;
}

dpe_status dpe_detect_write(const struct dpe_detect_report *report, bool complete,
                            struct dpe_h5 *table, struct dpe_error *err)
{
    dpe_status status =
        dpe_h5_attr_text(table, "/", "title", "Effective lengths of frequency groups", err);
    if (status == DPE_OK) {
        status = put_scales(report, table, err);
    }
    if (status == DPE_OK) {
        status = put_detect(report, table, err);
    }
    if (status == DPE_OK) {
        status = dpe_detect_put_selection(report, table, err);
    }
    if (status == DPE_OK) {
        status = dpe_detect_put_race(report, table, err);
    }
    bool validated = false;
    for (int i = 0; i < 2 && status == DPE_OK; i++) {
        const struct dpe_detect_result *result = &report->results[i];
        if (result->used) {
            status = put_result(report, result, table, err);
        }
        if (status == DPE_OK && result->used && result->validated) {
            validated = true;
            status = put_validation(result, table, err);
        }
    }
    if (status == DPE_OK && validated) {
        status = put_validated_plans(report, table, err);
    }
    if (status == DPE_OK && complete) {
        status = put_table(report, table, err);
    }
    if (status == DPE_OK) {
        status = put_work(&report->work, table, err);
    }
    if (status == DPE_OK) {
        status = put_model(report, table, err);
    }
    return status == DPE_OK ? put_texts_of_run(report, table, err) : status;
}

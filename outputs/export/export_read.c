/* Where a table comes from: a detection and a profile, a table in any form, the paper's YAML, or a
 * method by name (--method). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "outputs/datasets/kinds.h"
#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

const char *const dpe_export_formats[] = {"auto",
                                          "h5",
                                          "json",
                                          "yaml",
                                          "pt",
                                          "hf",
                                          "safetensors",
                                          "csv",
                                          "longrope",
                                          "gguf-rope",
                                          "vllm-flags",
                                          "sglang-flags",
                                          "llama.cpp-flags",
                                          NULL};

enum dpe_export_format dpe_export_format_of_path(const char *path)
{
    static const struct {
        const char *text;
        enum dpe_export_format format;
    } endings[] = {{"config.json", FORMAT_HF}, {".h5", FORMAT_H5},
                   {".json", FORMAT_JSON},     {".yaml", FORMAT_YAML},
                   {".yml", FORMAT_YAML},      {".pt", FORMAT_PT},
                   {".csv", FORMAT_CSV},       {".safetensors", FORMAT_SAFETENSORS},
                   {".gguf", FORMAT_GGUF_ROPE}};
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t m = strlen(endings[i].text);
        if (n >= m && strcmp(path + n - m, endings[i].text) == 0) {
            return endings[i].format;
        }
    }
    return FORMAT_AUTO;
}

/* What the library of tables says, as our kind of error. */
static dpe_status of_table(int error, const char *path, const char *why, struct dpe_error *err)
{
    const dpe_status status = dpe_table_status(error);
    return status == DPE_OK ? DPE_OK : dpe_fail(err, status, "%s: %s", path, why);
}

/* Check and wrap what was gathered. */
static dpe_status make_table(const struct dpe_table_values *values, const char *path,
                             struct dpe_table **table, struct dpe_error *err)
{
    char why[DPE_TABLE_MESSAGE];
    return of_table(dpe_table_make(values, table, why), path, why, err);
}

/* ---------------------------------------------------------------- a detection */

static void free_ranking(struct dpe_ranking_result *ranking)
{
    dpe_datasets_free(&dpe_ranking_kind, ranking);
}

/* The length of rank `rank` in every group. */
static dpe_status choose_lengths(struct dpe_table_values *values, struct dpe_h5 *file, int64_t rank,
                                 struct dpe_error *err)
{
    DPE_SCOPED(free_ranking) struct dpe_ranking_result r = {0};
    DPE_TRY(dpe_datasets_get(&dpe_ranking_kind, &r, "/detect", "rank", file, err));
    const int64_t n = r.n[DPE_CELLS_LENGTH];
    if (r.n[DPE_CELLS_GROUP] != values->n_groups) {
        return dpe_fail(err, DPE_BAD_DATA, "/detect/rank: expected %lld groups, found %lld",
                        (long long)values->n_groups, (long long)r.n[DPE_CELLS_GROUP]);
    }
    for (int64_t g = 0; g < values->n_groups; g++) {
        double effective = -1.0;
        bool ranked = false;
        for (int64_t t = 0; t < n; t++) {
            const int32_t place = r.rank[g * n + t];
            ranked = ranked || place > 0;
            effective = place == rank ? (double)r.length[t] : effective;
        }
        if (ranked && effective < 0.0) {
            return dpe_fail(err, DPE_USAGE,
                            "--rank %lld: group %lld has fewer ranks; give a smaller N",
                            (long long)rank, (long long)g);
        }
        values->effective_length[g] = effective;
    }
    return DPE_OK;
}

/* A group in which nothing was found keeps the detection's 2L/L0. */
static void make_scales(struct dpe_table_values *values)
{
    for (int64_t g = 0; g < values->n_groups; g++) {
        double effective = values->effective_length[g];
        values->scale_factor[g] = dpe_length_scale(
            values->length, effective > 0.0 ? effective : (double)values->trained_length / 2.0);
    }
}

/* The table a detection holds, with another rank or length where one is asked for. */
static dpe_status from_detection(const struct dpe_export_arguments *args,
                                 const struct dpe_table_values *from,
                                 struct dpe_table_values *values, struct dpe_h5 *file,
                                 struct dpe_error *err)
{
    if (!dpe_table_values_copy(from, values)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    values->length = args->length > 0 ? args->length : from->length;
    bool same = args->rank == 0 && values->length == from->length;
    /* The sweep had another window and temperature than the method that the table holds. */
    if (!same && dpe_table_has_method(from) != 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "%s: the table holds the plan of another method for %lld tokens, which has no "
            "ranks and no other length; dpe-detect --select paper makes one of DPE from the "
            "rows that are there",
            args->rank > 0 ? "--rank" : "--length", (long long)from->length);
    }
    DPE_TRY(args->rank > 0 ? choose_lengths(values, file, args->rank, err) : DPE_OK);
    if (!same) {
        make_scales(values);
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------- a profile */

/* `n_pairs` rotate of `all`; those that do not are ranked last. */
static dpe_status pairs_asked(const struct dpe_export_arguments *args, int64_t n_pairs, int64_t all,
                              int64_t *k, struct dpe_error *err)
{
    *k = !args->has_k     ? all
         : args->k >= 0.0 ? (int64_t)args->k
                          : (int64_t)floor(-args->k * (double)n_pairs + 0.5);
    if (*k < 1) {
        return dpe_fail(err, DPE_USAGE,
                        "%s: %g of the %lld pairs of a head is less than one pair: nothing would "
                        "move; give a larger share",
                        args->last ? "--last-k" : "--top-k", -args->k, (long long)n_pairs);
    }
    if (args->has_k && *k > n_pairs) {
        return dpe_fail(err, DPE_USAGE,
                        "%s: expected at most %lld, the pairs of a head that rotate, found %lld",
                        args->last ? "--last-k" : "--top-k", (long long)n_pairs, (long long)*k);
    }
    return DPE_OK;
}

/* What decides the table: the results it was made of by their identities, and the choices made
 * here. */
static dpe_status add_identity(struct dpe_h5 *file, const char *name, struct export_table *table,
                               struct dpe_error *err)
{
    DPE_OWNED char *identity = NULL;
    DPE_TRY(dpe_h5_get_attr_text(file, "/", "identity", &identity, err));
    return dpe_identity_add(&table->origin, name, identity, err);
}

static dpe_status add_selection(struct dpe_h5 *file, const char *name, struct export_table *table,
                                struct dpe_error *err)
{
    char text[DPE_TABLE_SELECTION];
    if (dpe_table_selection(file, text)[0] == '\0') {
        return DPE_OK;
    }
    if (table->selection[0] == '\0') {
        memcpy(table->selection, text, sizeof text);
    } else if (strcmp(table->selection, text) != 0) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "found under the selection %s, the tables before it under %s; one selection "
            "is applied to all entries",
            text, table->selection);
    }
    return dpe_identity_add(&table->origin, name, text, err);
}

/* Key pairs by the profile's ranking; its scores are moved to the table. */
static dpe_status take_profile(const struct dpe_export_arguments *args, struct dpe_profile *profile,
                               struct dpe_table_values *values, struct export_table *table,
                               struct dpe_error *err)
{
    const int64_t rotating = dpe_export_rotating(values);
    const bool other = dpe_table_has_method(values) != 0;
    DPE_TRY(dpe_identity_add(&table->origin, "profile", profile->identity, err));
    DPE_TRY(pairs_asked(args, rotating, values->n_pairs, &values->top_k, err));
    if (values->top_k < rotating && other) {
        return dpe_fail(
            err, DPE_USAGE,
            "%s: the table holds the plan of another method, of which all pairs move; leave "
            "it out",
            args->last ? "--last-k" : "--top-k");
    }
    values->top_k = other ? values->n_pairs : values->top_k;
    table->scores = profile->scores;
    memcpy(table->score_dims, profile->score_dims, sizeof table->score_dims);
    profile->scores = NULL;
    return dpe_plan_mask_ranked(profile->ranking, values->n_layers * values->n_heads,
                                values->n_pairs, values->top_k, args->last, values->mask, err);
}

static dpe_status add_profile(const struct dpe_export_arguments *args,
                              struct dpe_table_values *values, struct export_table *table,
                              struct dpe_error *err)
{
    const struct dpe_profile_model model = {values->model_fingerprint, values->n_layers,
                                            values->n_heads, values->n_pairs};
    DPE_SCOPED(dpe_profile_free) struct dpe_profile profile = {0};
    DPE_TRY(dpe_profile_read(args->inputs[1], &model, true, &profile, err));
    return take_profile(args, &profile, values, table, err);
}

/* ---------------------------------------------------------------- the paper's YAML */

/* What the settings do not say is the model's, or says nothing. */
static dpe_status complete(const struct dpe_export_arguments *args, struct dpe_model *model,
                           struct dpe_table_values *values, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(model);
    const int64_t pairs = config->head_dim / 2;
    const size_t cells = (size_t)(config->n_layers * config->n_heads * pairs);
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (field->part != DPE_PART_CORE && !dpe_field_owned(field)) {
            dpe_field_set(field, (char *)values + field->at, 0, field->absent);
        }
    }
    values->schema_version = strdup(DPE_TABLE_SCHEMA);
    values->model_type = strdup(config->model_type);
    values->model_fingerprint = strdup(dpe_model_fingerprint(model));
    values->n_layers = config->n_layers;
    values->n_heads = config->n_heads;
    values->n_kv_heads = config->n_kv_heads;
    values->head_dim = config->head_dim;
    values->n_pairs = pairs;
    values->trained_length = dpe_config_trained(config);
    values->length = args->length;
    values->top_k = pairs;
    DPE_TRY(DPE_NEW(&values->effective_length, (size_t)values->n_groups, err, "out of memory"));
    DPE_TRY(DPE_NEW(&values->inv_freq, (size_t)pairs, err, "out of memory"));
    DPE_TRY(DPE_NEW(&values->mask, cells, err, "out of memory"));
    for (int64_t g = 0; g < values->n_groups; g++) {
        values->effective_length[g] = (double)args->length / values->scale_factor[g];
    }
    memset(values->mask, 1, cells);
    return dpe_rope_native(config, args->length, values->inv_freq, &values->attention_scaling, err);
}

static dpe_status from_yaml(const struct dpe_export_arguments *args, struct export_table *table,
                            struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    DPE_OWNED char *selected = NULL;
    size_t n = 0;
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_SCOPED(dpe_table_values_free) struct dpe_table_values values = {0};
    DPE_TRY(dpe_read_file(args->yaml, 16 << 20, &bytes, &n, err));
    DPE_TRY(dpe_import_yaml(args->yaml, bytes, n, args->name, &values, &selected, err));
    DPE_TRY(dpe_model_open(args->model, NULL, &model, err));
    DPE_TRY(complete(args, model, &values, err));
    DPE_TRY(make_table(&values, args->yaml, &table->table, err));
    DPE_TRY(dpe_identity_add(&table->origin, "kind", "table", err));
    DPE_TRY(dpe_identity_add(&table->origin, "source", "settings of the paper's code", err));
    if (selected != NULL) {
        dpe_log_warning("%s: selected_dim_path %s is ignored: this table scales all pairs, the "
                        "paper's code only those that the file selects",
                        args->yaml, selected);
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------- the plan of a method */

/* Which method, model and lengths: all that decides the table. */
static dpe_status add_origin(const struct dpe_export_arguments *args,
                             const struct dpe_plan_context *context, const char *fingerprint,
                             struct dpe_identity *origin, struct dpe_error *err)
{
    DPE_TRY(dpe_identity_add(origin, "kind", "table", err));
    DPE_TRY(dpe_identity_add(origin, "source", "a method by name", err));
    DPE_TRY(dpe_identity_add(origin, "method", args->method, err));
    DPE_TRY(dpe_identity_add(origin, "model", fingerprint, err));
    DPE_TRY(dpe_identity_addf(origin, err, "length", "%lld", (long long)context->length));
    return dpe_identity_addf(origin, err, "trained_length", "%lld",
                             (long long)context->trained_length);
}

/* The table that is the plan of --method. The formula, which depends on the length, has an entry
 * for every doubling of the trained length too. DPE_USAGE where no table can hold it. */
static dpe_status from_method(const struct dpe_export_arguments *args, struct export_table *table,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_SCOPED(dpe_tables_close) struct dpe_table *entries[DPE_TABLE_ENTRIES] = {0};
    /* Options of a runtime's command line name no weights: they need none. */
    const struct dpe_model_options options = {
        .config_only = args->fingerprint != NULL ||
                       (dpe_export_is_flags(args->format) && !args->show && !args->check),
        .trained_length = args->trained};
    const bool formula = dpe_plan_is_formula(args->method);
    char why[DPE_TABLE_MESSAGE];
    int64_t n = 0;
    DPE_TRY(dpe_model_open(args->model, &options, &model, err));
    const char *fingerprint =
        args->fingerprint != NULL ? args->fingerprint : dpe_model_fingerprint(model);
    const struct dpe_config *config = dpe_model_config(model);
    /* Entries of a table have the same groups. */
    const int n_groups = formula ? (int)dpe_least(8, dpe_config_pairs(config)) : 0;
    struct dpe_plan_context context = {
        .config = config,
        .trained_length = args->trained > 0 ? args->trained : dpe_config_trained(config),
        .length = args->length,
        .official = true,
    };
    if (context.length <= context.trained_length) {
        return dpe_fail(err, DPE_USAGE,
                        "--length: expected more than the trained length, %lld tokens, up to which "
                        "the model is run unchanged; found %lld",
                        (long long)context.trained_length, (long long)context.length);
    }
    for (int64_t length = formula ? 2 * context.trained_length : args->length;
         n == 0 || context.length < args->length; length *= 2) {
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        context.length = dpe_least(length, args->length);
        DPE_TRY(dpe_plan_make(args->method, &context, &plan, err));
        if (dpe_table_for_plan(&plan, &context, fingerprint, n_groups, &entries[n++], err) !=
            DPE_OK) {
            return dpe_fail_prefix(err, "--method %s", args->method);
        }
    }
    if (formula) {
        dpe_log_info("--method %s: a formula: nothing was measured", args->method);
    }
    const int error =
        dpe_table_join((const struct dpe_table *const *)entries, n, &table->table, why);
    DPE_TRY(error == DPE_TABLE_OK ? DPE_OK : dpe_fail(err, dpe_table_status(error), "%s", why));
    return add_origin(args, &context, fingerprint, &table->origin, err);
}

/* ---------------------------------------------------------------- whatever it is */

static dpe_status add_choices(const struct dpe_export_arguments *args, int64_t k,
                              struct export_table *table, struct dpe_error *err)
{
    DPE_TRY(args->rank > 0
                ? dpe_identity_addf(&table->origin, err, "rank", "%lld", (long long)args->rank)
                : dpe_identity_add(&table->origin, "rank", "selected", err));
    return dpe_identity_addf(&table->origin, err, args->last ? "last_k" : "top_k", "%lld",
                             (long long)k);
}

/* What was measured under other scales or key pairs is not evidence of these;
 * what is possible is. */
static void forget_evidence(const struct dpe_table_values *from, struct dpe_table_values *values)
{
    size_t groups = (size_t)values->n_groups * sizeof *values->scale_factor;
    size_t marks = (size_t)(values->n_layers * values->n_heads * values->n_pairs);
    if (values->length != from->length || values->scale_factor == NULL ||
        memcmp(values->scale_factor, from->scale_factor, groups) != 0 ||
        memcmp(values->mask, from->mask, marks) != 0) {
        free(values->evidence_task);
        free(values->evidence_rival);
        values->evidence_task = NULL;
        values->evidence_rival = NULL;
    }
}

static dpe_status read_detection(const struct dpe_export_arguments *args, struct dpe_h5 *file,
                                 struct export_table *table, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *base = table->table;
    DPE_SCOPED(dpe_table_values_free) struct dpe_table_values values = {0};
    const struct dpe_table_values *from = dpe_table_values(base);
    table->table = NULL;
    DPE_TRY(from_detection(args, from, &values, file, err));
    DPE_TRY(dpe_identity_add(&table->origin, "kind", "table", err));
    DPE_TRY(add_identity(file, "detection", table, err));
    DPE_TRY(args->inputs[1] != NULL ? add_profile(args, &values, table, err) : DPE_OK);
    forget_evidence(from, &values);
    DPE_TRY(make_table(&values, args->inputs[0], &table->table, err));
    return add_choices(args, values.top_k, table, err);
}

static dpe_status read_table(const char *path, struct dpe_table **table, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    if (dpe_export_format_of_path(path) != FORMAT_SAFETENSORS) {
        return dpe_table_load(path, table, err);
    }
    DPE_TRY(dpe_read_file(path, UINT64_C(1) << 32, &bytes, &n, err));
    return dpe_import_safetensors(path, bytes, n, table, err);
}

/* ---------------------------------------------------------------- several entries */

static dpe_status choose_entry(const char *path, int64_t length, struct export_table *table,
                               struct dpe_error *err)
{
    char text[DPE_TABLE_NOTE];
    char why[DPE_TABLE_MESSAGE];
    const struct dpe_table *found = NULL;
    struct dpe_table *chosen = NULL;
    for (int64_t i = 0; i < dpe_table_count(table->table); i++) {
        const struct dpe_table *entry = dpe_table_entry(table->table, i);
        found = dpe_table_values(entry)->length == length ? entry : found;
    }
    if (found == NULL) {
        return dpe_fail(err, DPE_USAGE, "%s: --entry %lld: the table's entries are for %s tokens",
                        path, (long long)length, dpe_table_lengths(table->table, text));
    }
    DPE_TRY(of_table(dpe_table_join(&found, 1, &chosen, why), path, why, err));
    dpe_table_close(table->table);
    table->table = chosen;
    return dpe_identity_addf(&table->origin, err, "entry", "%lld", (long long)length);
}

/* What decides a table that others were joined into: each of them, by its identity where its form
 * has one. */
static dpe_status add_joined(const char *path, int number, struct export_table *table,
                             struct dpe_error *err)
{
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *file = NULL;
    char name[32];
    snprintf(name, sizeof name, "table %d", number);
    if (dpe_h5_open(path, &file, NULL) != DPE_OK) {
        return dpe_identity_add(&table->origin, name, "in a form without an identity", err);
    }
    DPE_TRY(add_identity(file, name, table, err));
    snprintf(name, sizeof name, "table %d selection", number);
    return add_selection(file, name, table, err) == DPE_OK
               ? DPE_OK
               : dpe_fail_prefix(err, "--join: %s", path);
}

static dpe_status join(const struct dpe_export_arguments *args, struct export_table *table,
                       struct dpe_error *err)
{
    DPE_SCOPED(dpe_tables_close) struct dpe_table *tables[DPE_TABLE_ENTRIES] = {0};
    char why[DPE_TABLE_MESSAGE];
    DPE_TRY(dpe_identity_add(&table->origin, "kind", "table", err));
    for (int i = 0; i < args->n_inputs; i++) {
        DPE_TRY(read_table(args->inputs[i], &tables[i], err));
        DPE_TRY(add_joined(args->inputs[i], i + 1, table, err));
    }
    const int error =
        dpe_table_join((const struct dpe_table *const *)tables, args->n_inputs, &table->table, why);
    return of_table(error, "--join", why, err);
}

static dpe_status read_one(const struct dpe_export_arguments *args, struct export_table *table,
                           struct dpe_error *err)
{
    const char *path = args->inputs[0];
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *file = NULL;
    /* A detection is a table already: all pairs at rank 1. HDF5 does not open a file twice in two
     * ways, so the table is read before the ranks. */
    DPE_TRY(read_table(path, &table->table, err));
    const dpe_status opened = dpe_h5_open(path, &file, err); /* the JSON form is bad data here */
    DPE_TRY(opened != DPE_BAD_DATA ? opened : DPE_OK);
    const bool detection = file != NULL && dpe_h5_has(file, "/detect/plan");
    DPE_TRY(file != NULL ? dpe_h5_answered(file, err) : DPE_OK);
    if (detection) {
        DPE_TRY(read_detection(args, file, table, err));
    } else if (args->inputs[1] != NULL || args->rank != 0 || args->length != 0) {
        return dpe_fail(err, DPE_USAGE,
                        "%s is not a detection; --rank, --length and NORMS.h5 need one (--join "
                        "puts several tables into one)",
                        path);
    } else {
        DPE_TRY(dpe_identity_add(&table->origin, "kind", "table", err));
    }
    return file != NULL ? add_selection(file, "selection", table, err) : DPE_OK;
}

dpe_status dpe_export_read(const struct dpe_export_arguments *args, struct export_table *table,
                           struct dpe_error *err)
{
    if (args->yaml != NULL) {
        return from_yaml(args, table, err);
    }
    if (args->method != NULL) {
        return from_method(args, table, err);
    }
    DPE_TRY(args->join ? join(args, table, err) : read_one(args, table, err));
    if (args->evidence != NULL) {
        DPE_TRY(
            dpe_export_evidence(args->evidence, args->pooled, &table->table, &table->origin, err));
    }
    return args->entry > 0 ? choose_entry(args->inputs[0], args->entry, table, err) : DPE_OK;
}

void dpe_export_table_free(struct export_table *table)
{
    dpe_table_close(table->table);
    dpe_identity_free(&table->origin);
    free(table->scores);
}

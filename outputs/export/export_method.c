/* --method: the plan of a method by name as a table, without a detection. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "outputs/export/export_tool.h"

/* Groups of the plan: pairs in a row that have one far scale. edges [n_pairs + 1]. */
static int64_t find_groups(const struct dpe_plan *plan, int32_t *edges)
{
    const double *scale = plan->n_bands == 2 ? plan->bands[1].k.scale : NULL;
    int64_t n = 0;
    edges[0] = 0;
    for (int64_t j = 1; scale != NULL && j < plan->n_pairs; j++) {
        if (scale[j] != scale[j - 1]) {
            edges[++n] = (int32_t)j;
        }
    }
    edges[++n] = (int32_t)plan->n_pairs;
    return n;
}

/* The buffers that the values point to: of numbers those for scales, lengths and frequencies come
 * first, then dpe_table_room. */
struct buffers {
    int32_t *edges;
    double *numbers;
    uint8_t *mask;
};

static dpe_status make_buffers(const struct dpe_config *config, struct buffers *buffers,
                               struct dpe_error *err)
{
    const size_t pairs = (size_t)(config->head_dim / 2);
    const size_t cells = (size_t)(config->n_layers * config->n_heads) * pairs;
    const size_t numbers = 3 * pairs + dpe_table_room(config);
    DPE_TRY(DPE_NEW(&buffers->edges, pairs + 1, err, "out of memory for a table"));
    DPE_TRY(DPE_NEW(&buffers->numbers, numbers, err, "out of memory for a table"));
    DPE_TRY(DPE_NEW(&buffers->mask, cells, err, "out of memory for a table"));
    memset(buffers->mask, 1, cells);
    return DPE_OK;
}

static void free_buffers(struct buffers *buffers)
{
    free(buffers->edges);
    free(buffers->numbers);
    free(buffers->mask);
}

static dpe_status make_table(const struct dpe_export_arguments *args, const struct dpe_plan *plan,
                             const struct dpe_plan_context *context, const char *fingerprint,
                             struct buffers *buffers, struct dpe_table **table,
                             struct dpe_error *err)
{
    const struct dpe_config *config = context->config;
    int64_t eighth = context->trained_length / 8;
    char why[DPE_TABLE_MESSAGE];
    bool holds = false;
    struct dpe_table_values values = {
        .model_type = (char *)(uintptr_t)config->model_type,
        .model_fingerprint = (char *)(uintptr_t)fingerprint,
        /* Of a plan that has none: any. */
        .window = eighth < 1      ? 1
                  : eighth < 1024 ? eighth
                                  : 1024,
        .n_groups = find_groups(plan, buffers->edges),
        .group_edge = buffers->edges,
        .scale_factor = buffers->numbers,
        .effective_length = buffers->numbers + plan->n_pairs,
        .inv_freq = buffers->numbers + 2 * plan->n_pairs,
        .mask = buffers->mask,
    };
    DPE_TRY(dpe_table_of_plan(plan, context, buffers->numbers + 3 * plan->n_pairs, &values, &holds,
                              err));
    if (!holds) {
        return dpe_fail(
            err, DPE_USAGE,
            "--method %s: a table holds plans that move all pairs of all heads, and of these no "
            "selection of keys, no exact=1 and no pair that stops rotating; dpe-run, dpe-eval and "
            "dpe-serve take it as --method",
            args->method);
    }
    if (values.n_bands > 0) {
        values.n_groups = 1; /* bands know no groups */
        buffers->edges[1] = (int32_t)plan->n_pairs;
    }
    for (int64_t g = 0; g < values.n_groups; g++) {
        values.effective_length[g] = fmax(1.0, (double)values.length / values.scale_factor[g]);
    }
    values.schema_version = (char *)(uintptr_t)DPE_TABLE_SCHEMA;
    return dpe_table_make(&values, table, why) == DPE_TABLE_OK
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE, "--method %s: %s", args->method, why);
}

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

dpe_status dpe_export_method(const struct dpe_export_arguments *args, struct export_table *table,
                             struct dpe_error *err)
{
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_SCOPED(free_buffers) struct buffers buffers = {0};
    const struct dpe_model_options options = {.config_only = args->fingerprint != NULL};
    DPE_TRY(dpe_model_open(args->model, &options, &model, err));
    const char *fingerprint =
        args->fingerprint != NULL ? args->fingerprint : dpe_model_fingerprint(model);
    const struct dpe_config *config = dpe_model_config(model);
    const struct dpe_plan_context context = {
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
    DPE_TRY(dpe_plan_make(args->method, &context, &plan, err));
    DPE_TRY(make_buffers(config, &buffers, err));
    DPE_TRY(make_table(args, &plan, &context, fingerprint, &buffers, &table->table, err));
    return add_origin(args, &context, fingerprint, &table->origin, err);
}

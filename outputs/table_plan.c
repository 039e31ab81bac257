/* From a DPE table to the engine's position plan. */
#include "dpe_table.h"
#include "outputs.h"

dpe_status dpe_plan_of_table(const struct dpe_table_values *values,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err)
{
    const struct dpe_config *config = context->config;
    if (values->n_layers != config->n_layers || values->n_heads != config->n_heads ||
        values->head_dim != config->head_dim) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "made for %lld layers of %lld heads of %lld, the model has %lld of %lld of "
                        "%lld",
                        (long long)values->n_layers, (long long)values->n_heads,
                        (long long)values->head_dim, (long long)config->n_layers,
                        (long long)config->n_heads, (long long)config->head_dim);
    }
    const struct dpe_dpe_params params = {
        .window = values->window,
        .n_groups = (int)values->n_groups,
        .edges = values->group_edge,
        .scale = values->scale_factor,
        .mask = values->top_k < values->n_pairs ? values->mask : NULL,
    };
    struct dpe_plan_context made_for = *context;
    made_for.length = values->length;
    made_for.trained_length = values->trained_length;
    return dpe_plan_make_dpe(&params, &made_for, plan, err);
}

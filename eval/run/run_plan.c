/* A plan as a JSON document, for programs that apply it elsewhere
 * (outputs/transformers/dpe_plan.py). */
#include <math.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/plan/rope.h"
#include "engine/tool/result.h"
#include "eval/run/run_tool.h"

static const char *const band_kinds[] = {"distance", "chunk", "key"};

struct map_names {
    const char *floored, *period, *cap, *scale, *offset, *groups;
};

/* What is infinite is null. */
static void add_map(struct dpe_result *result, const struct map_names *names,
                    const struct dpe_position_map *map, size_t n_pairs)
{
    dpe_result_flag(result, names->floored, map->floored);
    dpe_result_number(result, names->period, map->period);
    dpe_result_number(result, names->cap, map->cap);
    dpe_result_numbers(result, names->scale, map->scale, n_pairs);
    dpe_result_numbers(result, names->offset, map->offset, n_pairs);
    const double groups[3] = {map->group_most, map->group_rate, map->group_from};
    dpe_result_numbers(result, names->groups, groups, 3);
}

static void add_bands(struct dpe_result *result, const struct dpe_plan *plan)
{
    const struct map_names query = {"query_floored", "query_period", "query_cap",
                                    "query_scale",   "query_offset", "query_groups"};
    const struct map_names key = {"key_floored", "key_period", "key_cap",
                                  "key_scale",   "key_offset", "key_groups"};
    size_t n_pairs = (size_t)plan->n_pairs;
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        dpe_result_row(result, "bands");
        dpe_result_text(result, "kind", band_kinds[band->kind]);
        dpe_result_whole(result, "low", band->lo);
        dpe_result_number(result, "high",
                          band->hi == INT64_MAX ? (double)INFINITY : (double)band->hi);
        dpe_result_flag(result, "per_head", band->per_head);
        add_map(result, &query, &band->q, n_pairs);
        add_map(result, &key, &band->k, n_pairs);
    }
    dpe_result_row(result, NULL);
}

/* The pairs of each head that the mask marks. */
static void add_mask(struct dpe_result *result, const struct dpe_plan *plan, int64_t *room)
{
    const uint8_t *mark = plan->mask;
    for (int64_t row = 0; mark != NULL && row < plan->n_layers * plan->n_heads; row++) {
        size_t n = 0;
        for (int64_t j = 0; j < plan->n_pairs; j++) {
            if (*mark++ != 0) {
                room[n++] = j;
            }
        }
        dpe_result_row(result, "heads");
        dpe_result_whole(result, "layer", row / plan->n_heads);
        dpe_result_whole(result, "head", row % plan->n_heads);
        dpe_result_wholes(result, "key_pairs", room, n);
    }
    dpe_result_row(result, NULL);
}

static void add_heads(struct dpe_result *result, const struct dpe_temperature *temperature)
{
    for (int i = 0; i < temperature->n_heads; i++) {
        dpe_result_row(result, "head_scales");
        dpe_result_whole(result, "layer", temperature->heads[i].layer);
        dpe_result_whole(result, "head", temperature->heads[i].head);
        dpe_result_number(result, "factor", temperature->heads[i].factor);
    }
    dpe_result_row(result, NULL);
}

static void add_model(struct dpe_result *result, const struct run *run, const double *own, double a)
{
    const struct dpe_config *config = dpe_model_config(run->model);
    dpe_result_text(result, "model_type", config->model_type);
    dpe_result_text(result, "fingerprint", dpe_model_fingerprint(run->model));
    dpe_result_whole(result, "n_layers", config->n_layers);
    dpe_result_whole(result, "n_heads", config->n_heads);
    dpe_result_whole(result, "n_kv_heads", config->n_kv_heads);
    dpe_result_whole(result, "head_dim", config->head_dim);
    dpe_result_numbers(result, "model_inv_freq", own, (size_t)config->head_dim / 2);
    dpe_result_number(result, "attention_scaling", a);
}

static void add_plan(struct dpe_result *result, const struct dpe_plan *plan)
{
    dpe_result_text(result, "angle_precision", plan->angle == DPE_ANGLE_F32 ? "f32" : "f64");
    dpe_result_flag(result, "exact", plan->exact);
    dpe_result_flag(result, "selects", dpe_selects(&plan->selection));
    dpe_result_numbers(result, "inv_freq", plan->inv_freq, (size_t)plan->n_pairs);
    dpe_result_number(result, "logit_factor", plan->temperature.logit_scale);
    dpe_result_numbers(result, "logit_depth", plan->temperature.depth, 3);
    dpe_result_number(result, "log_n_length", plan->temperature.log_n_length);
    dpe_result_number(result, "log_n_power", plan->temperature.log_n_power);
    dpe_result_number(result, "log_n_decay", plan->temperature.log_n_decay);
    dpe_result_whole(result, "n_still", plan->n_still);
    dpe_result_number(result, "still_factor", plan->still_factor > 0.0 ? plan->still_factor : 1.0);
    dpe_result_whole(result, "chunk", plan->chunk);
}

dpe_status dpe_run_tool_plan_json(const struct run *run, const struct dpe_plan *plan,
                                  int64_t length, struct dpe_error *err)
{
    char key[33];
    double a = 1.0;
    DPE_OWNED double *own = NULL;
    DPE_OWNED int64_t *room = NULL;
    DPE_TRY(DPE_NEW(&own, (size_t)plan->n_pairs, err, "out of memory for a plan"));
    DPE_TRY(DPE_NEW(&room, (size_t)plan->n_pairs, err, "out of memory for a plan"));
    DPE_TRY(dpe_rope_native(dpe_model_config(run->model), length, own, &a, err));
    DPE_TRY(dpe_plan_key(plan, key, err));
    struct dpe_result *result = dpe_result_begin("dpe-run");
    dpe_result_text(result, "schema_name", "dpe-plan");
    dpe_result_text(result, "schema_version", "1.0.0");
    dpe_result_text(result, "name", plan->name);
    dpe_result_text(result, "key", key);
    dpe_result_whole(result, "trained_length", run->trained_length);
    dpe_result_whole(result, "evaluated_length", length);
    add_model(result, run, own, a);
    add_plan(result, plan);
    add_bands(result, plan);
    add_mask(result, plan, room);
    add_heads(result, &plan->temperature);
    return dpe_result_print(result, run->args->result, err);
}

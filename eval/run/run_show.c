/* What dpe-run prints about a model and a plan. */
#include <math.h>

#include "eval/run/run_tool.h"

static const char *rope_name(enum dpe_rope_type type)
{
    static const char *const names[] = {"default", "linear",   "dynamic",
                                        "yarn",    "longrope", "llama3"};
    return names[type];
}

void dpe_run_tool_info(const struct run *run)
{
    const struct dpe_config *config = dpe_model_config(run->model);
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    char buffer[32];
    printf("folder          %s\n", dpe_model_folder(run->model));
    printf("fingerprint     %s\n", dpe_model_fingerprint(run->model));
    printf("architecture    %s%s%s\n", config->model_type, config->qkv_bias ? ", QKV bias" : "",
           config->tied_embeddings ? ", tied embeddings" : "");
    printf("weights         %lld, %s on disk\n", (long long)dpe_config_parameters(config),
           dtypes[config->dtype]);
    printf("layers          %lld\n", (long long)config->n_layers);
    printf("width           %lld, MLP %lld\n", (long long)config->hidden,
           (long long)config->intermediate);
    printf("heads           %lld query, %lld key/value, dimension %lld (%lld pairs)\n",
           (long long)config->n_heads, (long long)config->n_kv_heads, (long long)config->head_dim,
           (long long)config->head_dim / 2);
    printf("vocabulary      %lld\n", (long long)config->vocab);
    printf("rope            %s, base %.10g%s\n", rope_name(config->rope.type), config->rope.theta,
           config->rope.exported
               ? " (native; config.json holds a DPE table too: --table FOLDER/config.json)"
               : "");
    printf("trained length  %lld (%s)\n", (long long)run->trained_length,
           run->args->trained_length > 0 ? "--trained-length" : "max_position_embeddings");
    uint64_t cache =
        (uint64_t)(config->n_layers * config->n_kv_heads * config->head_dim) * 2 * sizeof(float);
    printf("KV cache        %s per token (f32)\n", dpe_format_bytes(cache, buffer));
}

static void show_map(const char *side, const struct dpe_position_map *map, int64_t n_pairs)
{
    printf("    %s: ", side);
    if (isfinite(map->period)) {
        printf("(x mod %.0f) ", map->period);
    } else {
        printf("x ");
    }
    int64_t begin = 0;
    for (int64_t j = 1; j <= n_pairs; j++) {
        bool same = j < n_pairs && map->scale[j] == map->scale[begin] &&
                    map->offset[j] == map->offset[begin];
        if (same) {
            continue;
        }
        printf("%s[%lld..%lld] ", begin > 0 ? "      " : "", (long long)begin, (long long)j - 1);
        if (isinf(map->scale[begin])) {
            printf("constant %g", map->offset[begin]);
        } else {
            printf("%s/ %g + %g", map->floored ? "floor " : "", map->scale[begin],
                   map->offset[begin]);
        }
        begin = j;
        printf("%s", j < n_pairs ? "\n" : "");
    }
    if (isfinite(map->cap)) {
        printf(", at most %.0f", map->cap);
    }
    printf("\n");
}

static void show_bands(const struct dpe_plan *plan)
{
    static const char *const kinds[] = {"distance", "chunk difference", "key"};
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        printf("band %d: %lld <= %s", b, (long long)band->lo, kinds[band->kind]);
        if (band->hi != INT64_MAX) {
            printf(" < %lld", (long long)band->hi);
        }
        printf("%s\n", band->per_head ? ", key pairs of each head only" : "");
        show_map("q", &band->q, plan->n_pairs);
        show_map("k", &band->k, plan->n_pairs);
    }
}

/* Effective distances of the first, middle and last pair from the last query of the length. */
static void show_distances(const struct dpe_plan *plan, int64_t length)
{
    int64_t pairs[3] = {0, plan->n_pairs / 2, plan->n_pairs - 1};
    printf("effective distance seen by the query at %lld (layer 0, head 0):\n",
           (long long)length - 1);
    printf("%12s %6s %12s %12s %12s\n", "distance", "band", "first pair", "middle pair",
           "last pair");
    for (int64_t distance = 0; distance < length; distance = distance == 0 ? 1 : distance * 2) {
        printf("%12lld", (long long)distance);
        for (int i = 0; i < 3; i++) {
            struct dpe_rel rel =
                dpe_plan_position(plan, 0, 0, pairs[i], length - 1, length - 1 - distance);
            if (i == 0) {
                printf(" %6d", rel.band);
            }
            if (rel.band < 0) {
                printf(" %12s", "masked");
            } else {
                printf(" %12.10g", rel.rel);
            }
        }
        printf("\n");
    }
}

void dpe_run_tool_show_plan(const struct run *run, const struct dpe_plan *plan, int64_t length)
{
    printf("method          %s\n", plan->name);
    printf("trained length  %lld\n", (long long)run->trained_length);
    printf("length          %lld\n", (long long)length);
    printf("pairs           %lld, wavelengths %.4g ... %.4g tokens\n", (long long)plan->n_pairs,
           2.0 * M_PI / plan->inv_freq[0], 2.0 * M_PI / plan->inv_freq[plan->n_pairs - 1]);
    printf("logit factor    %.6g\n", plan->logit_factor);
    if (plan->log_n_length > 0) {
        const struct dpe_temperature log_n = {plan->log_n_length, plan->log_n_power,
                                              plan->log_n_decay, 1.0};
        char text[160];
        dpe_temperature_text(&log_n, text);
        printf("query factor    %s: %.6g at the last of %lld tokens\n", text,
               dpe_temperature_factor(&log_n, length - 1), (long long)length);
    }
    show_bands(plan);
    show_distances(plan, length);
}

/* What dpe-run prints about a model, a plan and the position methods. */
#include <math.h>
#include <string.h>

#include "engine/plan/fields.h"
#include "engine/plan/methods/methods.h"
#include "eval/run/run_tool.h"
#include "eval/task/stats.h"
#include "outputs/export/runtimes.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

/* The layers of a kind as ranges: "0-2, 4". */
static void show_layers_of(const struct dpe_config *config, int kind)
{
    const char *between = "";
    for (int64_t first = 0; first < config->n_layers; first++) {
        int64_t last = first;
        while (last < config->n_layers && config->layer_kinds[last] == kind) {
            last++;
        }
        if (last > first) {
            dpe_print(last - first > 1 ? "%s%lld-%lld" : "%s%lld", between, (long long)first,
                      (long long)last - 1);
            between = ", ";
            first = last;
        }
    }
}

/* Which layers a position plan moves, and what the others are. */
static void show_layers(const struct dpe_config *config)
{
    if (config->branches) {
        dpe_print("a plan moves    all layers: compressed and chosen keys, %lld blocks of %lld\n",
                  (long long)config->selection.k + 2, (long long)config->selection.block);
        if (config->n_kinds > 1) {
            dpe_print("it leaves       a window of %lld tokens in every layer\n",
                      (long long)config->kinds[1].window);
        }
        return;
    }
    if (config->layer_kinds == NULL || config->n_kinds == 1) {
        dpe_print("a plan %s    all layers\n", dpe_config_still(config) ? "heats" : "moves");
        return;
    }
    dpe_print("a plan %s    layers ", dpe_config_still(config) ? "heats" : "moves");
    show_layers_of(config, 0);
    for (int i = 1; i < config->n_kinds; i++) {
        const struct dpe_layer_kind *kind = &config->kinds[i];
        dpe_print("\nit leaves       layers ");
        show_layers_of(config, i);
        if (kind->recurrent) {
            char bytes[32];
            dpe_print(
                " (recurrent, a state of %s each",
                dpe_format_bytes(sizeof(float) * (uint64_t)dpe_recurrent_floats(&config->recurrent),
                                 bytes));
        } else {
            dpe_print(kind->rope < 0 ? " (without positions" : " (");
        }
        if (kind->window > 0) {
            dpe_print("%s%s of %lld tokens", kind->rope < 0 ? ", " : "",
                      kind->chunked ? "chunks" : "a window", (long long)kind->window);
        }
        if (kind->rope == 1) {
            dpe_print(", base %.10g", config->local_rope.theta);
        }
        dpe_print(")");
    }
    dpe_print("\n");
}

static const char *const dtypes[] = {"F32", "F16", "BF16"};

/* Of a token's keys and values, as numbers of 32 bits. */
static int64_t cache_bytes(const struct dpe_config *config)
{
    return dpe_config_kept_all(config) * 2 * (int64_t)sizeof(float);
}

/* Of the states of a sequence, in all layers that have one. */
static int64_t state_bytes(const struct dpe_config *config)
{
    const int64_t layers = config->n_layers - dpe_config_attending(config, config->n_layers);
    return layers * dpe_recurrent_floats(&config->recurrent) * (int64_t)sizeof(float);
}

static dpe_status info_json(const struct dpe_runner *run, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(run->model);
    struct dpe_result *result = dpe_result_begin("dpe-run");
    dpe_result_text(result, "folder", dpe_model_folder(run->model));
    dpe_result_text(result, "fingerprint", dpe_model_fingerprint(run->model));
    dpe_result_text(result, "model_type", config->model_type);
    dpe_result_flag(result, "qkv_bias", config->qkv_bias);
    dpe_result_flag(result, "tied_embeddings", config->tied_embeddings);
    dpe_result_flag(result, "own_head", config->own_head);
    dpe_result_text(result, "dtype", dtypes[config->dtype]);
    if (dpe_model_types(run->model) != NULL) {
        dpe_result_text(result, "tensor_types", dpe_model_types(run->model));
    }
    dpe_result_text(result, "rope", dpe_rope_name(config->rope.type));
    dpe_result_number(result, "rope_base", config->rope.theta);
    char differ[DPE_RUNTIMES_DIFFER];
    if (dpe_runtimes_differ(run->model, differ)[0] != '\0') {
        dpe_result_text(result, "runtimes_differ", differ);
    }
    const struct {
        const char *name;
        int64_t value;
    } wholes[] = {{"parameters", dpe_config_parameters(config)},
                  {"layers", config->n_layers},
                  {"hidden", config->hidden},
                  {"intermediate", config->intermediate},
                  {"heads", config->n_heads},
                  {"kv_heads", config->n_kv_heads},
                  {"head_dim", config->head_dim},
                  {"pairs", dpe_config_pairs(config)},
                  {"layers_moved", dpe_config_moved(config)},
                  {"vocabulary", config->vocab},
                  {"trained_length", run->trained_length},
                  {"kv_bytes_per_token", cache_bytes(config)},
                  {"state_bytes", state_bytes(config)}};
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        dpe_result_whole(result, wholes[i].name, wholes[i].value);
    }
    return dpe_result_print(result, err);
}

dpe_status dpe_run_tool_info(const struct dpe_runner *run, struct dpe_error *err)
{
    if (run->args->json) {
        return info_json(run, err);
    }
    const struct dpe_config *config = dpe_model_config(run->model);
    char buffer[32];
    dpe_print("folder          %s\n", dpe_model_folder(run->model));
    dpe_print("fingerprint     %s\n", dpe_model_fingerprint(run->model));
    dpe_print("architecture    %s%s%s\n", config->model_type, config->qkv_bias ? ", QKV bias" : "",
              config->tied_embeddings ? ", tied embeddings" : "");
    if (dpe_model_warning(run->model) != NULL) {
        dpe_print("head            %s\n", dpe_model_warning(run->model));
    }
    const char *types = dpe_model_types(run->model);
    dpe_print("weights         %lld, %s%s on disk\n", (long long)dpe_config_parameters(config),
              types != NULL ? "tensors of " : "", types != NULL ? types : dtypes[config->dtype]);
    dpe_print("layers          %lld\n", (long long)config->n_layers);
    dpe_print("width           %lld, MLP %lld\n", (long long)config->hidden,
              (long long)config->intermediate);
    int64_t pairs = dpe_config_pairs(config);
    dpe_print("heads           %lld query, %lld key/value, dimension %lld (%lld pairs",
              (long long)config->n_heads, (long long)config->n_kv_heads,
              (long long)config->head_dim, (long long)pairs);
    dpe_print(2 * pairs < config->head_dim ? " that rotate)\n" : ")\n");
    show_layers(config);
    if (config->n_experts > 0) {
        dpe_print("experts         %lld, of which a token takes %lld\n",
                  (long long)config->n_experts, (long long)config->experts_per_token);
    }
    dpe_print("vocabulary      %lld\n", (long long)config->vocab);
    dpe_print(
        "rope            %s, base %.10g%s\n", dpe_rope_name(config->rope.type), config->rope.theta,
        config->exported ? " (config.json holds a table too: --table FOLDER/config.json)" : "");
    char differ[DPE_RUNTIMES_DIFFER];
    if (dpe_runtimes_differ(run->model, differ)[0] != '\0') {
        dpe_print("runtimes differ %s\n", differ);
    }
    dpe_print("trained length  %lld (%s)\n", (long long)run->trained_length,
              run->args->trained_length > 0 ? "--trained-length" : dpe_config_trained_key(config));
    dpe_print("KV cache        %s per token (f32)\n",
              dpe_format_bytes((uint64_t)cache_bytes(config), buffer));
    if (state_bytes(config) > 0) {
        dpe_print("states          %s of each sequence, and of %d points to cut back to\n",
                  dpe_format_bytes((uint64_t)state_bytes(config), buffer), DPE_KEPT_STATES);
    }
    return DPE_OK;
}

dpe_status dpe_run_tool_print_nll(const struct dpe_runner *run, const struct nll_result *nll,
                                  struct dpe_error *err)
{
    double sum = 0.0;
    DPE_OWNED int64_t *scored = NULL;
    DPE_TRY(
        DPE_NEW(&scored, (size_t)nll->n, err, "out of memory for %lld windows", (long long)nll->n));
    for (int64_t i = 0; i < nll->n; i++) {
        sum += nll->sum[i];
        scored[i] = nll->scored;
    }
    /* Windows of one text take the place of books. Student's t makes an interval of two windows 6
     * times as wide as one of many, of four 1.6 times: too wide to say anything. */
    enum { WINDOWS = 5 };
    struct dpe_interval ppl = dpe_perplexity(nll->sum, scored, (size_t)nll->n, 0.95);
    ppl.low = nll->n < WINDOWS ? (double)NAN : ppl.low;
    ppl.high = nll->n < WINDOWS ? (double)NAN : ppl.high;
    double mean = sum / (double)(nll->n * nll->scored);
    double rate = (double)(nll->n * nll->context) / nll->seconds;
    if (run->args->json) {
        struct dpe_result *result = dpe_result_begin("dpe-run");
        dpe_result_text(result, "file", run->args->nll_file);
        dpe_result_text(result, "method",
                        run->args->table != NULL ? run->args->table : run->args->method);
        dpe_result_text(result, "device", run->device);
        dpe_result_whole(result, "tokens", (int64_t)nll->tokens);
        dpe_result_whole(result, "windows", nll->n);
        dpe_result_whole(result, "context", nll->context);
        dpe_result_whole(result, "scored", nll->n * nll->scored);
        dpe_result_number(result, "nll", mean);
        dpe_result_number(result, "nll_low", log(ppl.low));
        dpe_result_number(result, "nll_high", log(ppl.high));
        dpe_result_number(result, "perplexity", exp(mean));
        dpe_result_number(result, "perplexity_low", ppl.low);
        dpe_result_number(result, "perplexity_high", ppl.high);
        dpe_result_number(result, "seconds", nll->seconds);
        dpe_result_number(result, "tokens_per_second", rate);
        return dpe_result_print(result, err);
    }
    dpe_print("tokens %zu  windows %lld of %lld  scored %lld  nll %.6f  perplexity %.4f",
              nll->tokens, (long long)nll->n, (long long)nll->context,
              (long long)(nll->n * nll->scored), mean, exp(mean));
    if (isfinite(ppl.low) && isfinite(ppl.high)) {
        dpe_print("  95 %% interval over windows %.4f to %.4f", ppl.low, ppl.high);
    } else if (nll->n < WINDOWS) {
        dpe_print("  (an interval needs %d windows: a text of %lld tokens, or a smaller --context)",
                  WINDOWS, (long long)(WINDOWS * nll->context));
    }
    dpe_print("\n");
    fflush(stdout);
    dpe_log_info("%.0f tokens/s", rate);
    return DPE_OK;
}

static void show_map(const char *side, const struct dpe_position_map *map, int64_t n_pairs)
{
    dpe_print("    %s: ", side);
    isfinite(map->period) ? dpe_print("(x mod %.0f) ", map->period) : dpe_print("x ");
    int64_t begin = 0;
    for (int64_t j = 1; j <= n_pairs; j++) {
        bool same = j < n_pairs && map->scale[j] == map->scale[begin] &&
                    map->offset[j] == map->offset[begin];
        if (same) {
            continue;
        }
        dpe_print("%s[%lld..%lld] ", begin > 0 ? "      " : "", (long long)begin, (long long)j - 1);
        if (isinf(map->scale[begin])) {
            dpe_print("constant %g", map->offset[begin]);
        } else {
            dpe_print("%s/ %g + %g", map->floored ? "floor " : "", map->scale[begin],
                      map->offset[begin]);
        }
        begin = j;
        dpe_print("%s", j < n_pairs ? "\n" : "");
    }
    if (isfinite(map->cap)) {
        dpe_print(", at most %.0f", map->cap);
    }
    dpe_print("\n");
}

static void show_bands(const struct dpe_plan *plan)
{
    static const char *const kinds[] = {"distance", "chunk difference", "key"};
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        dpe_print("band %d: %lld <= %s", b, (long long)band->lo, kinds[band->kind]);
        if (band->hi != INT64_MAX) {
            dpe_print(" < %lld", (long long)band->hi);
        }
        dpe_print("%s\n", band->per_head ? ", key pairs of each head only" : "");
        show_map("q", &band->q, plan->n_pairs);
        show_map("k", &band->k, plan->n_pairs);
    }
}

/* Effective distances of the first, middle and last pair from the last query of the length. */
static void show_distances(const struct dpe_plan *plan, int64_t length)
{
    int64_t rotating = plan->n_pairs - plan->n_still;
    int64_t pairs[3] = {0, rotating / 2, rotating - 1};
    bool moved = dpe_selects(&plan->selection) && plan->selection.positions != DPE_PLACE_TRUE;
    dpe_print("effective distance seen by the query at %s%lld (layer 0, head 0):\n",
              moved ? "place " : "", (long long)length - 1);
    dpe_print("%12s %6s %12s %12s %12s\n", "distance", "band", "first pair", "middle pair",
              "last pair");
    for (int64_t distance = 0; distance < length; distance = distance == 0 ? 1 : distance * 2) {
        dpe_print("%12lld", (long long)distance);
        for (int i = 0; i < 3; i++) {
            struct dpe_rel rel =
                dpe_plan_position(plan, 0, 0, pairs[i], length - 1, length - 1 - distance);
            if (i == 0) {
                dpe_print(" %6d", rel.band);
            }
            rel.band < 0 ? dpe_print(" %12s", "masked") : dpe_print(" %12.10g", rel.rel);
        }
        dpe_print("\n");
    }
}

/* Where no pair rotates a plan is a temperature: what it does to the queries. */
static void show_factors(const struct dpe_plan *plan, int64_t length)
{
    const struct dpe_temperature *t = &plan->temperature;
    dpe_print("no pair rotates; logits of a query (layer 0) are multiplied by\n%12s %12s\n",
              "position", "factor");
    for (int64_t m = 0; m < length; m = m == 0 ? 1 : m * 2) {
        dpe_print("%12lld %12.6g\n", (long long)m,
                  t->logit_scale * t->depth[0] * dpe_temperature_factor(t, m));
    }
}

static const char *const representatives[] = {"the mean of its keys",
                                              "the largest and smallest components of its keys",
                                              "its most attended keys",
                                              "its best key",
                                              "its keys weighed by an attention inside it",
                                              "the probability of its keys",
                                              "the probability of the mean of its keys"};
static const char *const units[] = {"query head", "KV head", "layer"};
static const char *const chosen_places[] = {"at their positions", "one after another",
                                            "at one distance from the local window on"};
static const char *const scored_places[] = {"without positions", "at their positions",
                                            "at one distance"};

static void show_selection(const struct dpe_selection *s, int64_t length)
{
    dpe_print(
        "selection       %lld of the blocks of %lld keys, the first %lld keys, and %lld or more "
        "keys up to the query\n",
        (long long)s->k, (long long)s->block, (long long)s->sinks, (long long)s->local);
    if (s->first > 0) {
        dpe_print("always          the first %lld of the blocks\n", (long long)s->first);
    }
    dpe_print("chosen by       each %s", units[s->unit]);
    if (s->refresh > 1) {
        dpe_print(", at the first of every %lld positions", (long long)s->refresh);
    }
    dpe_print("; a block is %s", representatives[s->representative]);
    if (s->representative == DPE_REPRESENT_ATTENDED) {
        dpe_print(" (%lld)", (long long)s->attended);
    }
    if (s->representative == DPE_REPRESENT_PROBABILITY) {
        dpe_print(" for the last %lld queries", (long long)s->last);
    }
    dpe_print(", scored %s\n", scored_places[s->scored]);
    if (s->slashes > 0) {
        dpe_print("and             the keys at the best %lld distances from %lld on\n",
                  (long long)s->slashes, (long long)s->local);
    }
    dpe_print("keys stand      %s\n", chosen_places[s->positions]);
    dpe_print("pairs           %.4g of %.4g of full attention (%.3g %%)\n",
              dpe_selection_pairs(s, length), 0.5 * (double)length * ((double)length + 1.0),
              200.0 * dpe_selection_pairs(s, length) / ((double)length * ((double)length + 1.0)));
}

void dpe_run_tool_show_plan(const struct dpe_runner *run, const struct dpe_plan *plan,
                            int64_t length, const char *entry)
{
    const char *table = dpe_run_tool_table(run->args);
    if (entry[0] != '\0') {
        dpe_print("%-16s%s\n", table != NULL ? "table" : "asked for",
                  table != NULL ? table : run->args->method);
        dpe_print("%-16s%s\n", table != NULL ? "entry" : "its plan", entry);
    }
    dpe_print("method          %s\n", plan->name);
    dpe_print("trained length  %lld\n", (long long)run->trained_length);
    dpe_print("length          %lld\n", (long long)length);
    const int64_t rotating = plan->n_pairs - plan->n_still;
    if (rotating > 0) {
        dpe_print("pairs           %lld, wavelengths %.4g ... %.4g tokens\n", (long long)rotating,
                  2.0 * M_PI / plan->inv_freq[0], 2.0 * M_PI / plan->inv_freq[rotating - 1]);
    }
    dpe_print("logit factor    %.6g\n", plan->temperature.logit_scale);
    struct dpe_temperature varies = plan->temperature;
    varies.logit_scale = 1.0;
    if (!dpe_temperature_is_none(&varies)) {
        char text[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&varies, text);
        dpe_print("query factor    %s: %.6g at the last of %lld tokens", text,
                  dpe_temperature_factor(&varies, length - 1), (long long)length);
        if (!dpe_temperature_is_level(&varies)) {
            dpe_print(",\n                times %.6g in the first layer and %.6g in the last",
                      varies.depth[0], varies.depth[2]);
        }
        dpe_print("\n");
    }
    if (rotating == 0) {
        show_factors(plan, length);
        return;
    }
    show_bands(plan);
    if (dpe_selects(&plan->selection)) {
        show_selection(&plan->selection, length);
    }
    show_distances(plan, length);
}

/* -------------------------------------------------------------------------------------- methods */

void dpe_run_tool_methods(void)
{
    char line[1024];
    dpe_print("METHOD          WHAT IT DOES; KEYS AND THEIR DEFAULTS\n");
    for (size_t i = 0; dpe_plan_method(i) != NULL; i++) {
        snprintf(line, sizeof line, "%s", dpe_plan_method(i));
        char *keys = strchr(line, '\t');
        *keys++ = '\0';
        char *about = strchr(keys, '\t');
        *about++ = '\0';
        dpe_print("\n%-15s %s\n%-15s %s\n", line, about, "", keys);
    }
    dpe_print("\nL is the evaluated length, L0 the trained length. Write other values as\n"
              "NAME:KEY=VALUE,KEY=VALUE, for example self-extend:window=1k,group=8.\n\n"
              "Every method has the keys of the attention temperature too:\n");
    for (size_t i = 0; i < dpe_temperature_numbers.n; i++) {
        const struct dpe_number *number = &dpe_temperature_numbers.of[i];
        snprintf(line, sizeof line, "%s=%.15g", number->key, number->usual);
        dpe_print("  %-20s %s\n", line, dpe_table_field_named(number->name)->what);
    }
    dpe_print(
        "  infoscale=N          log-n=N with power 1/2 and decay 2/head_dim (arXiv 2501.08570)\n"
        "  logit-scale-heads=LAYER.HEAD:FACTOR/...  further factors of single heads\n"
        "log-n and infoscale replace the log-n of official=1.\n\n"
        "A text of at most L0 tokens, with what may be generated, is run unchanged, as\n"
        "with a table; always=1, a key of every method, applies the method there too.\n");
}

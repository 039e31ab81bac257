/* The one table of a layer's tensors. */
#include "engine/model/config/layer_weights.h"

#include "engine/model/config/family.h"

#include <math.h>

/* clang-format off */
const struct dpe_layer_tensor dpe_layer_tensors[DPE_WEIGHTS_PER_LAYER] = {
#define T(id, name, rows, cols, present, bias, sliced)                                             \
    [DPE_WEIGHT_##id] = {name,           DPE_WIDTH_##rows, DPE_WIDTH_##cols,                       \
                         DPE_IF_##present, DPE_IF_##bias,  DPE_SLICED_##sliced}
    /*id               checkpoint's name   rows          cols        present  bias         sliced */
    T(ATTENTION_NORM,  NULL,               ONE,          HIDDEN,     NAMED,   NEVER,       WHOLE),
    T(Q,               "self_attn.q_proj", QUERY,        HIDDEN,     ALWAYS,  QKV_BIAS,    ROWS),
    T(K,               "self_attn.k_proj", KEY_VALUE,    HIDDEN,     KEYS,    QKV_BIAS,    ROWS),
    T(V,               "self_attn.v_proj", KEY_VALUE,    HIDDEN,     KEYS,    QKV_BIAS,    ROWS),
    T(O,               "self_attn.o_proj", HIDDEN,       QUERY,      ALWAYS,  O_BIAS,      COLUMNS),
    T(MLP_NORM,        NULL,               ONE,          HIDDEN,     NAMED,   NEVER,       WHOLE),
    T(GATE,            NULL,               INTERMEDIATE, HIDDEN,     DENSE,   MLP_BIAS,    ROWS),
    T(UP,              NULL,               INTERMEDIATE, HIDDEN,     DENSE,   MLP_BIAS,    ROWS),
    T(DOWN,            NULL,               HIDDEN,       INTERMEDIATE, DENSE, MLP_BIAS,    COLUMNS),
    T(Q_NORM,          "self_attn.q_norm", ONE,          QUERY_NORM, QK_NORM, NEVER,       WHOLE),
    T(K_NORM,          "self_attn.k_norm", ONE,          KEY_NORM,   QK_NORM, NEVER,       WHOLE),
    T(ATTENTION_AFTER, NULL,               ONE,          HIDDEN,     NAMED,   NEVER,       WHOLE),
    T(MLP_AFTER,       NULL,               ONE,          HIDDEN,     NAMED,   NEVER,       WHOLE),
    T(SINKS,           "self_attn.sinks",  ONE,          HEADS,      SINKS,   NEVER,       WHOLE),
    T(ROUTER,          NULL,               EXPERTS,      HIDDEN,     ROUTED,  ROUTER_BIAS, WHOLE),
    T(ROUTER_SHIFT,  "mlp.gate.e_score_correction_bias", ONE, EXPERTS, ROUTER_SHIFT, NEVER, WHOLE),
    T(SHARED_GATE,   "mlp.shared_expert_gate", SINGLE,    HIDDEN,     SHARED_GATE, NEVER,   WHOLE),
    T(BRANCH_GATES,    "self_attn.g_proj", BRANCHES,     HIDDEN,     BRANCHES, NEVER,      ROWS),
    T(OUTPUT_GATE,     "self_attn.q_proj", QUERY,        HIDDEN,     OUTPUT_GATE, NEVER,   ROWS),
    T(LATE,            NULL,               ONE,          HEAD,       LATE_NORMS, NEVER,    WHOLE),
    T(V_NORM,          "self_attn.v_norm", ONE,          HEAD,       VALUE_NORMS, NEVER,   WHOLE),
    T(INPUT_TABLE,     "embed_tokens_per_layer", INPUT_VOCAB, INPUT, INPUTS,  NEVER,       WHOLE),
    T(INPUT,           "per_layer_model_projection", INPUT, HIDDEN,  INPUTS,  NEVER,       WHOLE),
    T(INPUT_NORM,      "per_layer_projection_norm", ONE, INPUT,      INPUTS,  NEVER,       WHOLE),
    T(INPUT_GATE,      "per_layer_input_gate", INPUT,    HIDDEN,     INPUTS,  NEVER,       WHOLE),
    T(INPUT_OUT,       "per_layer_projection", HIDDEN,   INPUT,      INPUTS,  NEVER,       WHOLE),
    T(INPUT_AFTER,     "post_per_layer_input_norm", ONE, HIDDEN,     INPUTS,  NEVER,       WHOLE),
    T(LAYER_SCALE,     "layer_scalar",     ONE,          SINGLE,     LAYER_SCALES, NEVER,  WHOLE),
    T(ROUTER_NORM,     "router.scale",     ONE,          HIDDEN,     BESIDE,  NEVER,       WHOLE),
    T(EXPERTS_NORM,    "pre_feedforward_layernorm_2", ONE, HIDDEN,   BESIDE,  NEVER,       WHOLE),
    T(DENSE_AFTER,     "post_feedforward_layernorm_1", ONE, HIDDEN,  BESIDE,  NEVER,       WHOLE),
    T(EXPERTS_AFTER,   "post_feedforward_layernorm_2", ONE, HIDDEN,  BESIDE,  NEVER,       WHOLE),
    T(EXPERT_SCALE,    "router.per_expert_scale", ONE,   EXPERTS,    BESIDE,  NEVER,       WHOLE),
};
/* Of layers with a state, what differs. */
static const struct dpe_layer_tensor recurrent_tensors[DPE_WEIGHTS_PER_LAYER] = {
    T(Q,               "linear_attn.in_proj_qkv", STATE_KEYS, HIDDEN, ALWAYS, NEVER,       WHOLE),
    T(K,               "linear_attn.in_proj_qkv", STATE_KEYS, HIDDEN, ALWAYS, NEVER,       WHOLE),
    T(V,               "linear_attn.in_proj_qkv", STATE_VALUES, HIDDEN, ALWAYS, NEVER,     WHOLE),
    T(O,               "linear_attn.out_proj", HIDDEN,   STATE_VALUES, ALWAYS, NEVER,      WHOLE),
    T(Q_NORM,          "self_attn.q_norm", ONE,          QUERY_NORM, NEVER,   NEVER,       WHOLE),
    T(K_NORM,          "self_attn.k_norm", ONE,          KEY_NORM,   NEVER,   NEVER,       WHOLE),
    T(SINKS,           "self_attn.sinks",  ONE,          HEADS,      NEVER,   NEVER,       WHOLE),
    T(BRANCH_GATES,    "self_attn.g_proj", BRANCHES,     HIDDEN,     NEVER,   NEVER,       WHOLE),
    T(OUTPUT_GATE,     "linear_attn.in_proj_z", STATE_VALUES, HIDDEN, ALWAYS, NEVER,       WHOLE),
    T(BETA,            "linear_attn.in_proj_b", STATE_HEADS, HIDDEN, ALWAYS,  NEVER,       WHOLE),
    T(DECAY,           "linear_attn.in_proj_a", STATE_HEADS, HIDDEN, ALWAYS,  NEVER,       WHOLE),
    T(CONVOLUTION_Q,   "linear_attn.conv1d", STATE_KEYS, CONVOLUTION, ALWAYS, NEVER,       WHOLE),
    T(CONVOLUTION_K,   "linear_attn.conv1d", STATE_KEYS, CONVOLUTION, ALWAYS, NEVER,       WHOLE),
    T(CONVOLUTION_V,   "linear_attn.conv1d", STATE_VALUES, CONVOLUTION, ALWAYS, NEVER,     WHOLE),
    T(RATE,            "linear_attn.A_log", ONE,         STATE_HEADS, ALWAYS, NEVER,       WHOLE),
    T(STEP,            "linear_attn.dt_bias", ONE,       STATE_HEADS, ALWAYS, NEVER,       WHOLE),
    T(OUTPUT_NORM,     "linear_attn.norm", ONE,          STATE_VALUE, ALWAYS, NEVER,       WHOLE),
#undef T
};
/* clang-format on */

static int64_t width(const struct dpe_config *config, int64_t layer, enum dpe_width which)
{
    const struct dpe_recurrent *state = &config->recurrent;
    const int64_t head = dpe_config_head_dim(config, layer);
    const bool whole = config->qk_norm != DPE_QK_NORM_HEAD;
    const bool wide = layer >= config->n_layers - config->wide_layers;
    const int64_t widths[] = {
        [DPE_WIDTH_ONE] = 1,
        [DPE_WIDTH_HIDDEN] = config->hidden,
        [DPE_WIDTH_QUERY] = config->n_heads * head,
        [DPE_WIDTH_KEY_VALUE] = dpe_config_kv_heads(config, layer) * head,
        [DPE_WIDTH_INTERMEDIATE] =
            (dpe_config_routes(config, layer) ? config->shared_width : config->intermediate) *
            (wide ? 2 : 1),
        [DPE_WIDTH_QUERY_NORM] = head * (whole ? config->n_heads : 1),
        [DPE_WIDTH_KEY_NORM] = head * (whole ? config->n_kv_heads : 1),
        [DPE_WIDTH_SINGLE] = 1,
        [DPE_WIDTH_HEADS] = config->n_heads,
        [DPE_WIDTH_HEAD] = head,
        [DPE_WIDTH_INPUT] = config->input_width,
        [DPE_WIDTH_INPUT_VOCAB] = config->input_vocab,
        [DPE_WIDTH_EXPERTS] = config->n_experts,
        [DPE_WIDTH_BRANCHES] = 3 * config->n_heads,
        [DPE_WIDTH_STATE_KEYS] = dpe_recurrent_keys(state),
        [DPE_WIDTH_STATE_VALUES] = dpe_recurrent_values(state),
        [DPE_WIDTH_STATE_HEADS] = state->value_heads,
        [DPE_WIDTH_STATE_VALUE] = state->value_dim,
        [DPE_WIDTH_CONVOLUTION] = state->width,
    };
    return widths[which];
}

static const struct dpe_layer_tensor *line_of(const struct dpe_config *config, int64_t layer,
                                              enum dpe_weight which)
{
    const struct dpe_layer_tensor *own = &recurrent_tensors[which];
    return dpe_config_attends(config, layer) || own->name == NULL ? &dpe_layer_tensors[which] : own;
}

const char *dpe_layer_name(const struct dpe_config *config, int64_t layer, enum dpe_weight which)
{
    static const char *const mlp[][3] = {
        {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
        {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
         "mlp.shared_experts.down_proj"},
        {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"},
    };
    const struct dpe_family *family = dpe_family_of(config);
    const bool beside =
        config->shared_width > 0 && dpe_config_routes(config, layer) && !config->experts_beside;
    const bool recurrent = !dpe_config_attends(config, layer);
    const struct dpe_norm_names *norms = dpe_family_norms(family, recurrent);
    const struct dpe_family_names *of_family = dpe_family_names_of(config);
    const char *const *own = recurrent ? family->recurrent->weights : of_family->weights;
    if (own != NULL && own[which] != NULL) {
        return own[which];
    }
    switch (which) {
    case DPE_WEIGHT_V:
        if (config->values_are_keys && dpe_config_moves(config, layer)) {
            return "self_attn.k_proj";
        }
        break;
    case DPE_WEIGHT_ATTENTION_NORM:
        return norms->before_attention;
    case DPE_WEIGHT_ATTENTION_AFTER:
        return norms->after_attention;
    case DPE_WEIGHT_MLP_NORM:
        return norms->before_mlp;
    case DPE_WEIGHT_MLP_AFTER:
        return norms->after_mlp;
    case DPE_WEIGHT_ROUTER:
        return family->experts == DPE_EXPERTS_STACKED ? "mlp.router" : "mlp.gate";
    case DPE_WEIGHT_OUTPUT_GATE:
        if (!recurrent && !config->output_gate) {
            return NULL;
        }
        break;
    case DPE_WEIGHT_GATE:
    case DPE_WEIGHT_UP:
    case DPE_WEIGHT_DOWN:
        if (of_family->mlp != NULL) {
            return of_family->mlp[beside][which - DPE_WEIGHT_GATE];
        }
        return mlp[beside ? 1 + family->shared_gate : 0][which - DPE_WEIGHT_GATE];
    default:
        break;
    }
    return line_of(config, layer, which)->name;
}

static bool holds(const struct dpe_config *config, int64_t layer, enum dpe_weight which,
                  enum dpe_condition condition)
{
    if (condition <= DPE_IF_ALWAYS) { /* most of them */
        return condition == DPE_IF_ALWAYS;
    }
    if (condition == DPE_IF_NAMED) {
        return dpe_layer_name(config, layer, which) != NULL;
    }
    const bool routes = dpe_config_routes(config, layer);
    const bool keys = dpe_config_kept(config, layer) > 0;
    const bool rotates = dpe_config_layer(config, layer).rope >= 0;
    const bool conditions[] = {
        [DPE_IF_QKV_BIAS] = config->qkv_bias,
        [DPE_IF_O_BIAS] = config->o_bias,
        [DPE_IF_MLP_BIAS] = config->mlp_bias,
        [DPE_IF_QK_NORM] = config->qk_norm != DPE_QK_NORM_NONE &&
                           (!config->bare_norms || rotates) && (which != DPE_WEIGHT_K_NORM || keys),
        [DPE_IF_LATE_NORMS] = config->late_norms,
        [DPE_IF_KEYS] = keys,
        [DPE_IF_VALUE_NORMS] = config->value_norms && keys,
        [DPE_IF_INPUTS] = config->input_width > 0,
        [DPE_IF_LAYER_SCALES] = config->layer_scales,
        [DPE_IF_BESIDE] = config->experts_beside && routes,
        [DPE_IF_SINKS] = config->sinks,
        [DPE_IF_DENSE] = !routes || config->shared_width > 0,
        [DPE_IF_ROUTED] = routes,
        [DPE_IF_ROUTER_BIAS] = dpe_family_of(config)->experts_biased,
        [DPE_IF_ROUTER_SHIFT] = config->router.shifted && routes,
        [DPE_IF_SHARED_GATE] = config->shared_gate && routes,
        [DPE_IF_BRANCHES] = config->branches,
        [DPE_IF_OUTPUT_GATE] = config->output_gate,
    };
    return conditions[condition];
}

struct dpe_layer_shape dpe_layer_shape(const struct dpe_config *config, int64_t layer,
                                       enum dpe_weight which)
{
    const struct dpe_layer_tensor *line = line_of(config, layer, which);
    struct dpe_layer_shape shape = {.vector = line->rows == DPE_WIDTH_ONE};
    if (holds(config, layer, which, line->present)) {
        shape.rows = width(config, layer, line->rows);
        shape.cols = width(config, layer, line->cols);
        shape.bias = holds(config, layer, which, line->bias) ? shape.rows : 0;
    }
    return shape;
}

const struct dpe_tensor *dpe_norm_weight(const struct dpe_weights *weights, enum dpe_weight which,
                                         int64_t layer)
{
    return which == DPE_WEIGHT_FINAL_NORM ? &weights->final_norm
                                          : &weights->layers[layer].weight[which];
}

void dpe_config_flops(const struct dpe_config *config, int64_t start, int64_t length,
                      int64_t logit_rows, double *products, double *attention)
{
    double h = (double)config->hidden;
    double q = (double)(config->n_heads * config->head_dim);
    double layers = 0.0;
    for (int64_t i = 0; i < config->n_layers; i++) {
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            struct dpe_layer_shape shape = dpe_layer_shape(config, i, (enum dpe_weight)which);
            const bool looked_up = which == DPE_WEIGHT_INPUT_TABLE;
            layers += shape.vector || looked_up ? 0.0 : (double)shape.rows * (double)shape.cols;
        }
        if (!dpe_config_attends(config, i)) {
            /* what a state gives q and k, and what is added to it, in each value head */
            const struct dpe_recurrent *r = &config->recurrent;
            layers += 3.0 * (double)r->value_heads * (double)(r->key_dim * r->value_dim);
        }
        /* gate, up and down of the experts that a token goes through */
        layers += dpe_config_routes(config, i)
                      ? 3.0 * (double)config->experts_per_token * h * (double)config->expert_width
                      : 0.0;
    }
    double n = (double)length;
    *products = 2.0 * (n * layers + (double)logit_rows * h * (double)config->vocab);
    *attention = 4.0 * q * dpe_config_seen(config, start, length);
}

/* Of `n` queries after `start` keys, the pairs of query and key when a query sees at most `most`.
 */
static double pairs(double start, double n, double most)
{
    double growing = fmin(n, fmax(0.0, most - start));
    return growing * start + growing * (growing + 1.0) / 2.0 + (n - growing) * most;
}

double dpe_config_seen(const struct dpe_config *config, int64_t start, int64_t length)
{
    const double from = (double)start;
    const double n = (double)length;
    const double all = pairs(from, n, from + n);
    double sum = 0.0;
    for (int64_t i = 0; i < config->n_layers; i++) {
        const struct dpe_layer_kind kind = dpe_config_layer(config, i);
        sum += kind.recurrent ? 0.0 : kind.window > 0 ? pairs(from, n, (double)kind.window) : all;
    }
    if (config->branches) {
        /* the means of blocks, the keys of the blocks that they choose, and the window */
        const struct dpe_selection *s = &config->selection;
        const double chosen = pairs(from, n, (double)(s->block * (s->k + 2)));
        const double window =
            config->n_kinds > 1 ? pairs(from, n, (double)config->kinds[1].window) : 0.0;
        sum = (double)config->n_layers * (all / (double)s->block + chosen + window);
    }
    return sum;
}

static double bytes_of(const struct dpe_config *config, const struct dpe_tensor *tensor,
                       bool unpacked)
{
    const int64_t n = tensor->rows * tensor->cols;
    const bool blocks = dpe_block_types[tensor->dtype].elements > 1;
    return (double)dpe_dtype_bytes(unpacked && blocks ? dpe_config_unpacked(config) : tensor->dtype,
                                   n);
}

double dpe_weights_step_bytes(const struct dpe_config *config, const struct dpe_weights *weights,
                              bool unpacked)
{
    double sum = bytes_of(config, &weights->lm_head, unpacked);
    for (int64_t i = 0; i < config->n_layers; i++) {
        const struct dpe_layer_weights *layer = &weights->layers[i];
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            const bool looked_up = which == DPE_WEIGHT_INPUT_TABLE;
            sum += looked_up ? 0.0 : bytes_of(config, &layer->weight[which], unpacked);
        }
        for (int64_t e = 0; layer->experts != NULL && e < config->experts_per_token; e++) {
            sum += bytes_of(config, &layer->experts[e].gate, unpacked) +
                   bytes_of(config, &layer->experts[e].up, unpacked) +
                   bytes_of(config, &layer->experts[e].down, unpacked);
        }
    }
    return sum;
}

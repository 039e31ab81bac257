/* What a session is asked for and needs: its options with their defaults, whether its plan can run,
 * its bytes, whether they fit, and the message when they do not. */
#include "engine/session/device.h"
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

static dpe_status meet_alone(void *user, float *x, int64_t n, dpe_status status,
                             struct dpe_error *err)
{
    (void)user, (void)x, (void)n, (void)err;
    return status;
}

static dpe_status share_alone(void *user, void *bytes, size_t n, struct dpe_error *err)
{
    (void)user, (void)bytes, (void)n, (void)err;
    return DPE_OK;
}

static const struct dpe_peers alone = {.size = 1, .meet = meet_alone, .share = share_alone};

dpe_status dpe_session_resolve(const struct dpe_session_options *options,
                               struct dpe_session_options *resolved, const struct dpe_ops **ops,
                               struct dpe_error *err)
{
    struct dpe_session_options own = *options;
    if (options->beside != NULL) {
        own = options->beside->base->options;
        own.beside = options->beside->base;
        own.capacity = options->capacity;
        own.positions = options->positions;
        own.branches = options->branches;
        own.max_memory = options->max_memory;
        own.kv_dir = options->kv_dir;
        own.knobs = options->knobs;
    }
    options = &own;
    *resolved = own;
    resolved->peers = options->peers == NULL ? &alone : options->peers;
    DPE_TRY(dpe_ops_find(options->device, ops, err));
    if (options->capacity < 1 || options->prefill_chunk < 0 || options->n_threads < 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "session: expected a capacity of at least 1 token, and a chunk and a number "
            "of threads of at least 0, found %" PRId64 ", %" PRId64 ", %d",
            options->capacity, options->prefill_chunk, options->n_threads);
    }
    if (options->branches < 0 || options->branches > DPE_MAX_BRANCHES || options->positions < 0 ||
        options->positions > options->capacity) {
        return dpe_fail(err, DPE_USAGE,
                        "session: expected 0 to %d branches and 0 to %" PRId64
                        " positions (the capacity), found %" PRId64 ", %" PRId64,
                        DPE_MAX_BRANCHES, options->capacity, options->branches, options->positions);
    }
    resolved->branches = options->branches == 0 ? 1 : options->branches;
    resolved->positions = options->positions == 0 ? options->capacity : options->positions;
    if (!(*ops)->reads_kv && options->kv_type != DPE_KV_F32) {
        return dpe_fail(
            err, DPE_NO_DEVICE,
            "device %s keeps keys and values in its own type, not in %s; use --device cpu",
            (*ops)->name, dpe_kv_type_names[options->kv_type]);
    }
    int64_t chunk = options->prefill_chunk == 0 ? (*ops)->default_chunk : options->prefill_chunk;
    resolved->device = options->device == NULL ? (*ops)->name : options->device;
    resolved->prefill_chunk = chunk < resolved->positions ? chunk : resolved->positions;
    resolved->n_threads =
        options->n_threads == 0 ? dpe_limit_processors(omp_get_num_procs()) : options->n_threads;
    return DPE_OK;
}

dpe_status dpe_session_check_plan(const struct dpe_config *config, const struct dpe_plan *plan,
                                  const struct dpe_ops *ops, const struct dpe_peers *peers,
                                  struct dpe_error *err)
{
    DPE_TRY(dpe_plan_check(plan, err));
    if (plan->n_pairs * 2 != config->head_dim || plan->n_layers != config->n_layers ||
        plan->n_heads != config->n_heads) {
        return dpe_fail(err, DPE_USAGE,
                        "plan %s is for %" PRId64 " pairs, %" PRId64 " layers, %" PRId64
                        " heads; the model has %" PRId64 ", %" PRId64 ", %" PRId64,
                        plan->name, plan->n_pairs, plan->n_layers, plan->n_heads,
                        config->head_dim / 2, config->n_layers, config->n_heads);
    }
    if (dpe_selects(&config->selection) &&
        memcmp(&plan->selection, &config->selection, sizeof plan->selection) != 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "plan %s: the model (model_type %s) chooses keys itself; expected a plan that "
            "was made for it, with its selection",
            plan->name, config->model_type);
    }
    if (dpe_selects(&plan->selection) && plan->selection.unit == DPE_CHOICE_LAYER &&
        peers->size > 1) {
        return dpe_fail(err, DPE_USAGE,
                        "plan %s: a layer chooses blocks by the scores of all its heads, which %d "
                        "processes share; use one process, or a method whose heads choose for "
                        "themselves",
                        plan->name, peers->size);
    }
    if (config->late_norms && dpe_selects(&plan->selection)) {
        return dpe_fail(err, DPE_USAGE,
                        "plan %s: the model (model_type %s) normalises heads after rotation, so a "
                        "score depends on both positions; expected a plan that gives both, without "
                        "a selection of keys",
                        plan->name, config->model_type);
    }
    return ops->supports != NULL ? ops->supports(config, plan, err) : DPE_OK;
}

enum {
    LOGIT_ROWS = 64, /* of the LM head at once in dpe_session_nll */
    TEXT_ROOM = 256, /* of a part of a message */
};

struct dpe_kv_shape dpe_session_kv_shape(const struct dpe_session_ask *ask)
{
    const struct dpe_config *c = ask->config;
    const struct dpe_session_options *options = ask->options;
    bool queries = dpe_selection_keeps_queries(&ask->plan->selection);
    return (struct dpe_kv_shape){.type = options->kv_type,
                                 .layers = dpe_config_attending(c, c->n_layers),
                                 .heads = c->n_kv_heads,
                                 .capacity = options->capacity,
                                 .width = c->head_dim,
                                 .query_heads = queries ? c->n_heads : 0};
}

/* The tables of the kinds of layers that the plan does not move: one each. */
static uint64_t kind_bytes(const struct dpe_config *c, int64_t positions)
{
    int64_t width = 0;
    for (int i = 1; i < c->n_kinds; i++) {
        const struct dpe_layer_kind *kind = &c->kinds[i];
        width += kind->recurrent ? 0 : kind->head_dim > 0 ? kind->head_dim : c->head_dim;
    }
    return dpe_bytes_of(width, positions, 1, sizeof(float));
}

static bool has_norm_after(const struct dpe_config *c)
{
    bool has = false;
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        has = has || dpe_layer_name(c, layer, DPE_WEIGHT_ATTENTION_AFTER) != NULL ||
              dpe_layer_name(c, layer, DPE_WEIGHT_MLP_AFTER) != NULL;
    }
    return has;
}

/* Queries and representatives that a selection keeps in one layer. */
static void count_selection(const struct dpe_session_ask *ask, struct dpe_session_bytes *b)
{
    const struct dpe_config *c = ask->config;
    const struct dpe_selection *selection = &ask->plan->selection;
    const struct dpe_session_options *options = ask->options;
    if (dpe_selection_keeps_queries(selection) && options->kv_type == DPE_KV_F32) {
        b->queries =
            dpe_bytes_of(options->capacity, c->n_heads, c->head_dim, ask->ops->element_bytes(c));
    }
    if (dpe_selects(selection) && ask->ops->keeps_marks) {
        b->marks = dpe_selection_mark_bytes(selection, c->head_dim, c->n_heads, c->n_kv_heads,
                                            options->capacity, options->branches);
    }
}

/* Of the plan, and of layers and branches of layers that have no selection. */
static uint64_t workspace_bytes(const struct dpe_session_ask *ask, int64_t rows)
{
    const struct dpe_config *c = ask->config;
    int64_t keys = ask->options->positions;
    int n_threads = ask->options->n_threads;
    uint64_t own = ask->ops->attention_workspace(c, ask->plan, keys, rows, n_threads);
    struct dpe_plan window = *ask->plan;
    window.selection = (struct dpe_selection){0};
    uint64_t other =
        c->n_kinds > 1 ? ask->ops->attention_workspace(c, &window, keys, rows, n_threads) : 0;
    for (int kind = 1; kind < c->n_kinds; kind++) {
        struct dpe_config like = *c; /* heads of their own */
        if (c->kinds[kind].head_dim > 0) {
            like.head_dim = c->kinds[kind].head_dim;
            like.n_kv_heads = c->kinds[kind].kv_heads;
            window.n_pairs = like.head_dim / 2;
            const uint64_t more =
                ask->ops->attention_workspace(&like, &window, keys, rows, n_threads);
            other = other > more ? other : more;
        }
    }
    uint64_t states =
        c->recurrent.value_heads > 0 ? ask->ops->recur_workspace(c, rows, n_threads) : 0;
    own = own > other ? own : other;
    return own > states ? own : states;
}

uint64_t dpe_session_weight_bytes(const struct dpe_config *c)
{
    return c->weight_bytes > 0
               ? (uint64_t)c->weight_bytes
               : dpe_bytes_of(dpe_config_parameters(c), 1, 1, c->dtype == DPE_F32 ? 4 : 2);
}

/* Numbers of a row of heads, or of q, k, v or the output of a layer with a state. */
static int64_t widest(const struct dpe_config *c, int64_t width)
{
    const int64_t keys = dpe_recurrent_keys(&c->recurrent);
    const int64_t values = dpe_recurrent_values(&c->recurrent);
    const int64_t state = keys > values ? keys : values;
    return width > state ? width : state;
}

/* What a session beside another one does without. */
static void share(const struct dpe_session_ask *ask, struct dpe_session_bytes *b)
{
    const struct dpe_session *base = ask->options->beside;
    dpe_session_share_buffers(b);
    b->taps = b->logits = 0;
    b->state = ask->ops->plan_bytes != NULL
                   ? ask->ops->plan_bytes(ask->config, ask->plan, ask->options)
                   : 0;
    b->logit_rows = base->bytes.logit_rows;
}

/* Of a workspace, what the session allocates: one that is beside another one may find it. */
static uint64_t found_workspace(const struct dpe_session_options *options, uint64_t bytes)
{
    uint64_t there = options->beside != NULL ? options->beside->workspace_room : 0;
    return there < bytes ? there : bytes;
}

struct dpe_session_bytes dpe_session_count_bytes(const struct dpe_session_ask *ask)
{
    const struct dpe_config *c = ask->config;
    const struct dpe_ops *ops = ask->ops;
    const struct dpe_session_options *options = ask->options;
    const uint64_t f = sizeof(float);
    const uint64_t e = ops->element_bytes(c);
    int64_t rows = options->prefill_chunk;
    int64_t branches = options->branches;
    const int64_t attending = dpe_config_attending(c, c->n_layers);
    rows = rows < branches ? branches : rows;
    int64_t logit_rows = dpe_least(rows, ops->logit_rows > 0 ? ops->logit_rows : LOGIT_ROWS);
    const int64_t of_experts = dpe_experts_room(ops, c, rows);
    const uint64_t dense = dpe_bytes_of(rows, dpe_most(dpe_config_dense(c), c->shared_width), 1, e);
    const uint64_t routed = dpe_bytes_of(of_experts, c->expert_width, 1, e);
    struct dpe_session_bytes b = {
        .rows = rows,
        .residual = dpe_bytes_of(rows, c->hidden, 1, f),
        .hidden = dpe_bytes_of(rows, c->hidden, 1, e),
        .heads = dpe_bytes_of(rows, widest(c, dpe_config_most_queries(c)), 1, e),
        .kv_heads = dpe_bytes_of(rows, widest(c, dpe_config_most_keys(c)), 1, e),
        .embedded = c->input_width > 0 ? dpe_bytes_of(rows, c->hidden, 1, f) : 0,
        .beside = c->experts_beside ? dpe_bytes_of(rows, c->hidden, 1, f) : 0,
        .gates =
            c->output_gate || c->recurrent.value_heads > 0
                ? dpe_bytes_of(rows,
                               widest(c, dpe_config_most_queries(c)) + 2 * c->recurrent.value_heads,
                               1, e)
                : 0,
        .states = dpe_session_state_bytes(c, branches),
        .mlp = dense > routed ? dense : routed,
        .cache = options->kv_type == DPE_KV_F32
                     ? dpe_bytes_of(options->capacity, dpe_config_kept_all(c), 1, e)
                     : 0,
        .logit_rows = logit_rows < branches ? branches : logit_rows,
        .part = has_norm_after(c) ? dpe_bytes_of(rows, c->hidden, 1, f) : 0,
        .sinks = c->sinks ? dpe_bytes_of(rows, c->n_heads, 1, f) : 0,
        .added = c->branches ? dpe_bytes_of(rows, c->n_heads, 2 * c->head_dim + 3, e) : 0,
        .experts = c->n_experts > 0 ? dpe_bytes_of(of_experts, c->hidden, 1, f) : 0,
        .scores = dpe_bytes_of(rows, c->n_experts, 1, f),
        .routes = dpe_bytes_plus(dpe_bytes_of(rows, c->experts_per_token, 1, sizeof(int32_t)),
                                 dpe_bytes_of(c->n_experts, 1, 1, sizeof(int32_t))),
        .rotation = dpe_bytes_plus(dpe_rotation_bytes(ask->plan, options->positions),
                                   kind_bytes(c, options->positions)),
        .workspace = workspace_bytes(ask, rows),
        .taps = dpe_bytes_of(rows, options->peers->size,
                             dpe_config_most_queries(c) + dpe_config_most_keys(c), f),
        .branches = (uint64_t)branches * (2 * sizeof(int64_t) + sizeof(struct dpe_lent)),
        .tokens = dpe_bytes_of(options->capacity, 1, 1, sizeof(int32_t)),
        .state = ops->state_bytes(c, ask->plan, options),
    };
    count_selection(ask, &b);
    if (options->kv_type != DPE_KV_F32) {
        const struct dpe_kv_shape shape = dpe_session_kv_shape(ask);
        b.kv = dpe_kv_bytes(&shape);
    }
    b.logits = dpe_bytes_of(b.logit_rows, c->vocab, 1, f);
    if (options->beside != NULL) {
        share(ask, &b);
    } else {
        b.branches = dpe_bytes_plus(
            b.branches, dpe_bytes_of(rows, 1, 1, 3 * sizeof(int64_t) + sizeof(struct dpe_lent)));
    }
    b.lanes = dpe_session_lanes_bytes(ask);
    const uint64_t parts[] = {
        dpe_session_buffer_bytes(&b),
        dpe_bytes_times(b.cache, 2),
        dpe_bytes_of(c->n_layers - attending, 1, 1, b.states),
        dpe_bytes_of(dpe_config_moved(c), 1, 1, dpe_bytes_plus(b.queries, b.marks)),
        b.lanes,
        b.rotation,
        b.state,
        b.taps,
        b.kv,
        b.branches,
        b.tokens,
        b.logits,
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        b.total = dpe_bytes_plus(b.total, parts[i]);
    }
    b.total -= b.total < UINT64_MAX ? found_workspace(options, b.workspace) : 0;
    return b;
}

bool dpe_session_may_halve(const struct dpe_session_options *options)
{
    return options->prefill_chunk == 0 && options->beside == NULL &&
           (options->peers == NULL || options->peers->size == 1);
}

bool dpe_session_halve_chunk(const struct dpe_ops *ops, struct dpe_session_options *options)
{
    int64_t chunk = ops->default_chunk;
    while (chunk >= options->prefill_chunk) {
        chunk /= 2;
    }
    if (ops->smallest_chunk == 0 || chunk < ops->smallest_chunk) {
        return false;
    }
    options->prefill_chunk = chunk;
    return true;
}

static uint64_t memory_for(const struct dpe_ops *ops, const struct dpe_session_options *options)
{
    return options->max_memory != 0 ? options->max_memory : ops->memory_available(options);
}

/* The same with the cache in a file. */
static struct dpe_session_bytes put_into_file(const struct dpe_session_ask *ask,
                                              struct dpe_session_bytes b)
{
    const struct dpe_kv_shape shape = dpe_session_kv_shape(ask);
    const uint64_t cache = dpe_bytes_plus(dpe_bytes_times(b.cache, 2), b.kv);
    b.total -= dpe_bytes_plus(cache, dpe_bytes_of(dpe_config_moved(ask->config), 1, 1, b.queries));
    b.cache = b.queries = b.kv = 0;
    b.file = dpe_kv_bytes(&shape);
    return b;
}

struct dpe_session_bytes dpe_session_fit_bytes(const struct dpe_session_ask *ask, bool halves)
{
    const struct dpe_ops *ops = ask->ops;
    struct dpe_session_options *options = ask->options;
    struct dpe_session_bytes bytes = dpe_session_count_bytes(ask);
    uint64_t available = halves && ops->smallest_chunk > 0 ? memory_for(ops, options) : UINT64_MAX;
    while (bytes.total > available && dpe_session_halve_chunk(ops, options)) {
        bytes = dpe_session_count_bytes(ask);
    }
    bool file = !dpe_config_mixed(ask->config) && options->kv_dir != NULL &&
                options->max_memory != 0 && ops->reads_kv;
    if (file && bytes.total != UINT64_MAX && bytes.total > options->max_memory) {
        bytes = put_into_file(ask, bytes);
    }
    return bytes;
}

/* ----------------------------------------------------------------------------------- messages */

static const struct dpe_session_knobs *knobs_of(const struct dpe_session_options *options)
{
    static const struct dpe_session_knobs fields = {.length = "length",
                                                    .chunk = "prefill chunk",
                                                    .branches = "number of branches",
                                                    .max_memory = "max_memory"};
    const struct dpe_session_knobs *own = &options->knobs;
    bool named = own->length != NULL || own->chunk != NULL || own->branches != NULL ||
                 own->peers != NULL || own->max_memory != NULL;
    return named ? own : &fields;
}

static const char *size_words(const struct dpe_session_options *options, char text[TEXT_ROOM])
{
    char of[96];
    if (options->branches > 1) {
        snprintf(of, sizeof of, "%" PRId64 " sequences of up to %" PRId64, options->branches,
                 options->positions);
    } else {
        snprintf(of, sizeof of, "%" PRId64, options->capacity);
    }
    snprintf(text, TEXT_ROOM, "a session of %s tokens in chunks of %" PRId64, of,
             options->prefill_chunk);
    return text;
}

static const char *less_words(const struct dpe_session_options *options, char text[TEXT_ROOM])
{
    const struct dpe_session_knobs *knobs = knobs_of(options);
    const char *smaller[3] = {NULL};
    int n = 0;
    if (knobs->length != NULL) {
        smaller[n++] = knobs->length;
    }
    if (knobs->chunk != NULL && options->prefill_chunk > 1) {
        smaller[n++] = knobs->chunk;
    }
    if (knobs->branches != NULL && options->branches > 1) {
        smaller[n++] = knobs->branches;
    }
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *before = i == 0 ? "a smaller " : i + 1 == n ? " or " : ", ";
        dpe_append(text, TEXT_ROOM, "%s%s", before, smaller[i]);
    }
    if (knobs->peers != NULL) {
        dpe_append(text, TEXT_ROOM, "%sa larger %s", n > 0 ? ", or " : "", knobs->peers);
    }
    if (text[0] != '\0') {
        dpe_append(text, TEXT_ROOM, " needs less");
    }
    return text;
}

dpe_status dpe_session_out_of_memory(const struct dpe_session *s, struct dpe_error *err)
{
    char size[TEXT_ROOM];
    char less[TEXT_ROOM];
    less_words(&s->options, less);
    return dpe_fail(err, DPE_NO_MEMORY, "out of memory: %s needs %.1f MiB%s%s",
                    size_words(&s->options, size), (double)s->bytes.total / (1024.0 * 1024.0),
                    less[0] != '\0' ? "; " : "", less);
}

/* The longest sequence that fits, all else being equal; 0: none. */
static int64_t fitting_length(const struct dpe_session_ask *ask, uint64_t available)
{
    const struct dpe_session_options *options = ask->options;
    int64_t low = 0;
    int64_t high = options->positions;
    while (low + 1 < high) {
        struct dpe_session_options tried = *options;
        tried.positions = low + (high - low) / 2;
        tried.capacity = options->capacity - (options->positions - tried.positions);
        tried.prefill_chunk =
            tried.positions < options->prefill_chunk ? tried.positions : options->prefill_chunk;
        const struct dpe_session_ask with = {ask->config, ask->plan, ask->ops, &tried};
        bool fits = dpe_session_fit_bytes(&with, false).total <= available;
        low = fits ? tried.positions : low;
        high = fits ? high : tried.positions;
    }
    return low;
}

dpe_status dpe_session_check_fits(const struct dpe_session_ask *ask,
                                  const struct dpe_session_bytes *bytes, struct dpe_error *err)
{
    const double mib = 1024.0 * 1024.0;
    const struct dpe_session_options *options = ask->options;
    uint64_t available = memory_for(ask->ops, options);
    if (options->kv_type != DPE_KV_F32 && dpe_config_mixed(ask->config)) {
        return dpe_fail(err, DPE_USAGE,
                        "keys and values in %s: layers of model_type %s differ in their heads, or "
                        "share keys; expected f32",
                        dpe_kv_type_names[options->kv_type], ask->config->model_type);
    }
    if (bytes->total <= available) {
        return DPE_OK;
    }
    char size[TEXT_ROOM];
    char less[TEXT_ROOM];
    char fits[64];
    const char *memory = options->max_memory != 0 ? knobs_of(options)->max_memory : NULL;
    int64_t length = fitting_length(ask, available);
    less_words(options, less);
    snprintf(fits, sizeof fits, length > 0 ? "%" PRId64 " tokens would fit" : "no length fits",
             length);
    return dpe_fail(err, DPE_NO_MEMORY, "%s needs %.1f MiB, %.1f MiB are %s%s%s (%s)%s%s",
                    size_words(options, size), (double)bytes->total / mib, (double)available / mib,
                    options->max_memory != 0 ? "allowed" : "free", less[0] != '\0' ? "; " : "",
                    less, fits,
                    memory == NULL    ? ""
                    : less[0] != '\0' ? ", or allow more with "
                                      : "; allow more with ",
                    memory != NULL ? memory : "");
}

dpe_status dpe_session_estimate(const struct dpe_config *config, const struct dpe_plan *plan,
                                const struct dpe_session_options *options,
                                struct dpe_session_needs *needs, struct dpe_error *err)
{
    struct dpe_session_options resolved;
    const struct dpe_ops *ops = NULL;
    DPE_TRY(dpe_session_resolve(options, &resolved, &ops, err));
    DPE_TRY(dpe_session_check_plan(config, plan, ops, resolved.peers, err));
    DPE_TRY(dpe_slice_check(config, resolved.peers->index, resolved.peers->size, err));
    const struct dpe_config slice = dpe_slice_config(config, resolved.peers->size);
    const struct dpe_session_ask ask = {&slice, plan, ops, &resolved};
    const struct dpe_session_bytes all =
        dpe_session_fit_bytes(&ask, dpe_session_may_halve(options));
    needs->memory = all.total;
    needs->file = all.file;
    needs->weights = config->weight_bytes > 0
                         ? (uint64_t)config->weight_bytes / (uint64_t)resolved.peers->size
                         : dpe_session_weight_bytes(&slice);
    return DPE_OK;
}

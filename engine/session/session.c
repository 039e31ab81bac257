/* Sessions: what they need, and their life. */
#include "engine/device/device_ops.h"
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

enum {
    LOGIT_ROWS = 64, /* of the LM head at once in dpe_session_nll */
};

/* -------------------------------------------------------------------------------------- peers */

static dpe_status meet_nobody(void *user, float *x, int64_t n, dpe_status status,
                              struct dpe_error *err)
{
    (void)user, (void)x, (void)n, (void)err;
    return status;
}

static dpe_status share_with_nobody(void *user, void *bytes, size_t n, struct dpe_error *err)
{
    (void)user, (void)bytes, (void)n, (void)err;
    return DPE_OK;
}

static const struct dpe_peers alone = {.size = 1, .meet = meet_nobody, .share = share_with_nobody};

static const struct dpe_peers *peers_of(const struct dpe_session_options *options)
{
    return options->peers == NULL ? &alone : options->peers;
}

dpe_status dpe_session_agree(struct dpe_session *s, dpe_status status, struct dpe_error *err)
{
    const struct dpe_peers *peers = s->options.peers;
    return peers->meet(peers->user, NULL, 0, status, err);
}

/* --------------------------------------------------------------------------------- estimating */

/* Product of four sizes, UINT64_MAX when it overflows. */
static uint64_t product(int64_t a, int64_t b, int64_t c, uint64_t d)
{
    uint64_t bytes = (uint64_t)a;
    if (__builtin_mul_overflow(bytes, (uint64_t)b, &bytes) ||
        __builtin_mul_overflow(bytes, (uint64_t)c, &bytes) ||
        __builtin_mul_overflow(bytes, d, &bytes)) {
        return UINT64_MAX;
    }
    return bytes;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t twice(uint64_t a)
{
    return sum(a, a);
}

static dpe_status resolve_options(const struct dpe_session_options *options,
                                  struct dpe_session_options *resolved, const struct dpe_ops **ops,
                                  struct dpe_error *err)
{
    *resolved = *options;
    resolved->peers = peers_of(options);
    dpe_status status = dpe_ops_find(options->device, ops, err);
    if (status != DPE_OK) {
        return status;
    }
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
    int64_t chunk = options->prefill_chunk == 0 ? (*ops)->default_chunk : options->prefill_chunk;
    resolved->device = options->device == NULL ? (*ops)->name : options->device;
    resolved->prefill_chunk = chunk < resolved->positions ? chunk : resolved->positions;
    resolved->n_threads = options->n_threads == 0 ? omp_get_num_procs() : options->n_threads;
    return DPE_OK;
}

/* A plan of the whole model. */
static dpe_status check_plan(const struct dpe_config *config, const struct dpe_plan *plan,
                             const struct dpe_ops *ops, struct dpe_error *err)
{
    dpe_status status = dpe_plan_check(plan, err);
    if (status != DPE_OK) {
        return status;
    }
    if (plan->n_pairs * 2 != config->head_dim || plan->n_layers != config->n_layers ||
        plan->n_heads != config->n_heads) {
        return dpe_fail(err, DPE_USAGE,
                        "plan %s is for %" PRId64 " pairs, %" PRId64 " layers, %" PRId64
                        " heads; the model has %" PRId64 ", %" PRId64 ", %" PRId64,
                        plan->name, plan->n_pairs, plan->n_layers, plan->n_heads,
                        config->head_dim / 2, config->n_layers, config->n_heads);
    }
    return ops->supports(config, plan, err);
}

/* Of a slice's configuration. */
static struct dpe_session_bytes count_bytes(const struct dpe_config *c, const struct dpe_plan *plan,
                                            const struct dpe_ops *ops,
                                            const struct dpe_session_options *options)
{
    const uint64_t f = sizeof(float);
    const uint64_t e = ops->element_bytes(c);
    int64_t rows = options->prefill_chunk;
    int64_t branches = options->branches;
    rows = rows < branches ? branches : rows;
    int64_t logit_rows = rows < LOGIT_ROWS ? rows : LOGIT_ROWS;
    struct dpe_session_bytes b = {
        .rows = rows,
        .residual = product(rows, c->hidden, 1, f),
        .hidden = product(rows, c->hidden, 1, e),
        .heads = product(rows, c->n_heads, c->head_dim, e),
        .kv_heads = product(rows, c->n_kv_heads, c->head_dim, e),
        .mlp = product(rows, c->intermediate, 1, e),
        .cache = product(options->capacity, c->n_kv_heads, c->head_dim, e),
        .logit_rows = logit_rows < branches ? branches : logit_rows,
        .rotation = dpe_rotation_bytes(plan, options->positions),
        .workspace =
            ops->attention_workspace(c, plan, options->positions, rows, options->n_threads),
        .taps = product(rows, options->peers->size * (c->n_heads + c->n_kv_heads), c->head_dim, f),
        .branches = 3 * (uint64_t)branches * sizeof(int64_t),
        .tokens = product(options->capacity, 1, 1, sizeof(int32_t)),
        .state = ops->state_bytes(c, plan, options),
    };
    b.logits = product(b.logit_rows, c->vocab, 1, f);
    b.total = sum(sum(b.residual, b.hidden), sum(b.rotation, b.state));
    /* Each of these is there twice: q and attended, k and v, gate and up. */
    b.total = sum(b.total, twice(sum(b.heads, sum(b.kv_heads, b.mlp))));
    b.total = sum(b.total, b.taps);
    b.total = sum(b.total, product(2, c->n_layers, 1, b.cache));
    b.total = sum(b.total, sum(sum(b.branches, b.tokens), sum(b.logits, b.workspace)));
    return b;
}

/* Nobody asked for the chunk, and no peers have to have the same. */
static bool may_halve(const struct dpe_session_options *options)
{
    return options->prefill_chunk == 0 && (options->peers == NULL || options->peers->size == 1);
}

/* The next smaller chunk, a power of two times smaller than the default: the grid of a halved chunk
 * does not depend on the length. False when there is none. */
static bool halve_chunk(const struct dpe_ops *ops, struct dpe_session_options *options)
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

/* Bytes of a session, its chunk halved while that helps to fit. */
static struct dpe_session_bytes fit_bytes(const struct dpe_config *config,
                                          const struct dpe_plan *plan, const struct dpe_ops *ops,
                                          bool halves, struct dpe_session_options *options)
{
    struct dpe_session_bytes bytes = count_bytes(config, plan, ops, options);
    uint64_t available = halves && ops->smallest_chunk > 0 ? memory_for(ops, options) : UINT64_MAX;
    while (bytes.total > available && halve_chunk(ops, options)) {
        bytes = count_bytes(config, plan, ops, options);
    }
    return bytes;
}

/* The longest sequence that fits, all else being equal; 0: none. */
static int64_t fitting_length(const struct dpe_config *config, const struct dpe_plan *plan,
                              const struct dpe_ops *ops, const struct dpe_session_options *options,
                              uint64_t available)
{
    int64_t low = 0;
    int64_t high = options->positions;
    while (low + 1 < high) {
        struct dpe_session_options tried = *options;
        tried.positions = low + (high - low) / 2;
        tried.capacity = options->capacity - (options->positions - tried.positions);
        tried.prefill_chunk =
            tried.positions < options->prefill_chunk ? tried.positions : options->prefill_chunk;
        bool fits = count_bytes(config, plan, ops, &tried).total <= available;
        low = fits ? tried.positions : low;
        high = fits ? high : tried.positions;
    }
    return low;
}

/* DPE_NO_MEMORY when the session does not fit, with what would. */
static dpe_status check_fits(const struct dpe_config *config, const struct dpe_plan *plan,
                             const struct dpe_session_bytes *bytes, const struct dpe_ops *ops,
                             const struct dpe_session_options *options, struct dpe_error *err)
{
    const double mib = 1024.0 * 1024.0;
    uint64_t available = memory_for(ops, options);
    if (bytes->total <= available) {
        return DPE_OK;
    }
    char size[DPE_SESSION_WORDS];
    char less[DPE_SESSION_WORDS];
    char fits[64];
    const char *memory = dpe_session_memory_word(options);
    int64_t length = fitting_length(config, plan, ops, options, available);
    dpe_session_less_words(options, less);
    snprintf(fits, sizeof fits, length > 0 ? "%" PRId64 " tokens would fit" : "no length fits",
             length);
    return dpe_fail(err, DPE_NO_MEMORY, "%s needs %.1f MiB, %.1f MiB are %s%s%s (%s)%s%s",
                    dpe_session_size_words(options, size), (double)bytes->total / mib,
                    (double)available / mib, options->max_memory != 0 ? "allowed" : "free",
                    less[0] != '\0' ? "; " : "", less, fits,
                    memory == NULL    ? ""
                    : less[0] != '\0' ? ", or allow more with "
                                      : "; allow more with ",
                    memory != NULL ? memory : "");
}

dpe_status dpe_session_estimate(const struct dpe_config *config, const struct dpe_plan *plan,
                                const struct dpe_session_options *options, uint64_t *bytes,
                                uint64_t *weights, struct dpe_error *err)
{
    struct dpe_session_options resolved;
    const struct dpe_ops *ops = NULL;
    dpe_status status = resolve_options(options, &resolved, &ops, err);
    if (status == DPE_OK) {
        status = check_plan(config, plan, ops, err);
    }
    if (status == DPE_OK) {
        status = dpe_slice_check(config, resolved.peers->index, resolved.peers->size, err);
    }
    if (status != DPE_OK) {
        return status;
    }
    const struct dpe_config slice = dpe_slice_config(config, resolved.peers->size);
    *bytes = fit_bytes(&slice, plan, ops, may_halve(options), &resolved).total;
    *weights = product(dpe_config_parameters(&slice), 1, 1, config->dtype == DPE_F32 ? 4 : 2);
    return DPE_OK;
}

void dpe_config_flops(const struct dpe_config *config, int64_t start, int64_t length,
                      int64_t logit_rows, double *products, double *attention)
{
    double h = (double)config->hidden;
    double q = (double)(config->n_heads * config->head_dim);
    double layer = 0.0;
    for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
        struct dpe_layer_shape shape = dpe_layer_shape(config, (enum dpe_weight)which);
        layer += shape.vector ? 0.0 : (double)shape.rows * (double)shape.cols;
    }
    double n = (double)length;
    double layers = (double)config->n_layers;
    *products = 2.0 * (n * layers * layer + (double)logit_rows * h * (double)config->vocab);
    /* Query and key pairs: each new token sees the cached ones, those before it, and itself. */
    *attention = 4.0 * layers * q * (n * (double)start + n * (n + 1.0) / 2.0);
}

/* --------------------------------------------------------------------------------------- life */

static dpe_status out_of_memory(const struct dpe_session *s, struct dpe_error *err)
{
    char size[DPE_SESSION_WORDS];
    char less[DPE_SESSION_WORDS];
    dpe_session_less_words(&s->options, less);
    return dpe_fail(err, DPE_NO_MEMORY, "out of memory: %s needs %.1f MiB%s%s",
                    dpe_session_size_words(&s->options, size),
                    (double)s->bytes.total / (1024.0 * 1024.0), less[0] != '\0' ? "; " : "", less);
}

static dpe_status allocate_host(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_session_bytes *b = &s->bytes;
    size_t n_layers = (size_t)s->config->n_layers;
    s->cache_k = dpe_alloc_zero(n_layers, sizeof *s->cache_k);
    s->cache_v = dpe_alloc_zero(n_layers, sizeof *s->cache_v);
    s->logits = dpe_alloc(b->logits, 1);
    s->tap_q = dpe_alloc(b->taps, 1);
    s->tokens = dpe_alloc(b->tokens, 1);
    s->length = dpe_alloc_zero(3 * (size_t)s->options.branches, sizeof *s->length);
    bool good = s->cache_k != NULL && s->cache_v != NULL && s->logits != NULL && s->tap_q != NULL &&
                s->length != NULL && s->tokens != NULL;
    if (good) {
        s->tap_k = s->tap_q + b->rows * dpe_model_config(s->model)->n_heads * s->config->head_dim;
        s->positions = s->length + s->options.branches;
        s->offsets = s->positions + s->options.branches;
    }
    return good ? DPE_OK : out_of_memory(s, err);
}

static dpe_status allocate(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_session_bytes *b = &s->bytes;
    struct {
        dpe_mem *memory;
        uint64_t bytes;
    } buffers[] = {
        {&s->x, b->residual},     {&s->normed, b->hidden}, {&s->q, b->heads},
        {&s->attended, b->heads}, {&s->k, b->kv_heads},    {&s->v, b->kv_heads},
        {&s->gate, b->mlp},       {&s->up, b->mlp},        {&s->workspace, b->workspace},
    };
    bool good = true;
    for (size_t i = 0; good && i < sizeof buffers / sizeof buffers[0]; i++) {
        *buffers[i].memory = s->ops->allocate(s->backend, buffers[i].bytes);
        good = *buffers[i].memory != NULL;
    }
    for (int64_t layer = 0; good && layer < s->config->n_layers; layer++) {
        s->cache_k[layer] = s->ops->allocate(s->backend, b->cache);
        s->cache_v[layer] = s->ops->allocate(s->backend, b->cache);
        good = s->cache_k[layer] != NULL && s->cache_v[layer] != NULL;
    }
    return good ? DPE_OK : out_of_memory(s, err);
}

static void release(struct dpe_session *s)
{
    dpe_mem *buffers[] = {&s->x,        &s->normed, &s->q,  &s->k,        &s->v,
                          &s->attended, &s->gate,   &s->up, &s->workspace};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        s->ops->release(s->backend, *buffers[i]);
        *buffers[i] = NULL;
    }
    for (int64_t layer = 0; s->cache_k != NULL && s->cache_v != NULL && layer < s->config->n_layers;
         layer++) {
        s->ops->release(s->backend, s->cache_k[layer]);
        s->ops->release(s->backend, s->cache_v[layer]);
        s->cache_k[layer] = s->cache_v[layer] = NULL;
    }
}

/* Everything that lies where the backend computes. An estimate that fits may still not be there:
 * another process took it, or it is in pieces. */
static dpe_status allocate_device(struct dpe_session *s, struct dpe_error *err)
{
    dpe_status status = allocate(s, err);
    if (status == DPE_OK) {
        status = s->ops->set_plan(s->backend, &s->plan, &s->rotation, err);
    }
    while (status == DPE_NO_MEMORY && s->halves && halve_chunk(s->ops, &s->options)) {
        release(s);
        s->bytes = count_bytes(s->config, &s->plan, s->ops, &s->options);
        status = allocate(s, err);
        if (status == DPE_OK) {
            status = s->ops->set_plan(s->backend, &s->plan, &s->rotation, err);
        }
    }
    return status;
}

/* A session whose options are resolved, but for what is checked here. */
static dpe_status make(struct dpe_session *s, const struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_peers *peers = s->options.peers;
    dpe_status status = check_plan(dpe_model_config(s->model), plan, s->ops, err);
    if (status != DPE_OK ||
        (status = dpe_slice_check(dpe_model_config(s->model), peers->index, peers->size, err)) !=
            DPE_OK ||
        (status = dpe_slice_make(s->model, peers->index, peers->size, &s->slice, err)) != DPE_OK) {
        return status;
    }
    s->config = &s->slice.config;
    s->weights = &s->slice.weights;
    s->element = s->ops->element_bytes(s->config);
    s->bytes = fit_bytes(s->config, plan, s->ops, s->halves, &s->options);
    if ((status = check_fits(s->config, plan, &s->bytes, s->ops, &s->options, err)) != DPE_OK ||
        (status = s->ops->open(&s->slice, &s->options, &s->backend, err)) != DPE_OK ||
        (status = allocate_host(s, err)) != DPE_OK ||
        (status = dpe_plan_slice(plan, peers->index, peers->size, &s->plan, err)) != DPE_OK ||
        (status = dpe_rotation_make(&s->plan, s->options.positions, s->options.n_threads,
                                    &s->rotation, err)) != DPE_OK) {
        return status;
    }
    return allocate_device(s, err);
}

void dpe_session_join(struct dpe_session *s, int64_t keep)
{
    s->prefix = 0;
    s->room = s->options.capacity;
    s->n_branches = 1;
    s->length[0] = keep;
}

dpe_status dpe_session_create_untested(const struct dpe_model *model, const struct dpe_plan *plan,
                                       const struct dpe_session_options *options,
                                       struct dpe_session **session, struct dpe_error *err)
{
    if (dpe_model_weights(model) == NULL) {
        return dpe_fail(err, DPE_USAGE, "%s: the model was opened without its weights",
                        dpe_model_folder(model));
    }
    struct dpe_session *s = dpe_alloc_zero(1, sizeof *s);
    if (s == NULL) {
        const struct dpe_peers *peers = peers_of(options);
        dpe_fail(err, DPE_NO_MEMORY, "session: out of memory");
        return peers->meet(peers->user, NULL, 0, DPE_NO_MEMORY, err);
    }
    s->model = model;
    dpe_status status = resolve_options(options, &s->options, &s->ops, err);
    s->full_chunk = s->options.prefill_chunk;
    s->halves = may_halve(options);
    status = status == DPE_OK ? make(s, plan, err) : status;
    status = dpe_session_agree(s, status, err);
    if (status != DPE_OK) {
        dpe_session_destroy(s);
        return status;
    }
    dpe_session_join(s, 0);
    s->options.device = s->ops->name; /* the caller's string may go */
    s->has_plan = true;
    *session = s;
    return DPE_OK;
}

void dpe_session_destroy(struct dpe_session *s)
{
    if (s == NULL) {
        return;
    }
    if (s->backend != NULL) {
        release(s);
        s->ops->close(s->backend);
    }
    free(s->cache_k);
    free(s->cache_v);
    free(s->logits);
    free(s->tap_q);
    free(s->length);
    free(s->tokens);
    dpe_rotation_free(&s->rotation);
    dpe_plan_free(&s->plan);
    dpe_slice_free(&s->slice);
    free(s);
}

/* The workspace of the plan, and its tables; smaller chunks need less of the former. */
static dpe_status allocate_plan(struct dpe_session *s, struct dpe_error *err)
{
    dpe_status status = DPE_NO_MEMORY;
    do {
        struct dpe_session_bytes bytes = count_bytes(s->config, &s->plan, s->ops, &s->options);
        if (bytes.workspace != s->bytes.workspace) {
            s->ops->release(s->backend, s->workspace);
            s->workspace = s->ops->allocate(s->backend, bytes.workspace);
        }
        s->bytes = bytes;
        if (s->workspace == NULL) {
            s->bytes.workspace = 0;
            status = out_of_memory(s, err);
        } else {
            status = s->ops->set_plan(s->backend, &s->plan, &s->rotation, err);
        }
    } while (status == DPE_NO_MEMORY && s->halves && halve_chunk(s->ops, &s->options));
    return status;
}

dpe_status dpe_session_set_plan(struct dpe_session *s, const struct dpe_plan *plan,
                                struct dpe_error *err)
{
    dpe_status status = check_plan(dpe_model_config(s->model), plan, s->ops, err);
    if (status != DPE_OK) {
        return status;
    }
    struct dpe_plan copy;
    /* What is free on the machine no longer says what fits: the session holds most of it. */
    if (s->options.max_memory != 0) {
        struct dpe_session_options options = s->options;
        struct dpe_session_bytes bytes = fit_bytes(s->config, plan, s->ops, s->halves, &options);
        if ((status = check_fits(s->config, plan, &bytes, s->ops, &options, err)) != DPE_OK) {
            return status;
        }
        s->options.prefill_chunk = options.prefill_chunk;
    }
    const struct dpe_peers *peers = s->options.peers;
    if ((status = dpe_plan_slice(plan, peers->index, peers->size, &copy, err)) != DPE_OK) {
        return status;
    }
    /* Two sets of tables at once would not fit the estimate: the old ones go first. */
    dpe_plan_free(&s->plan);
    dpe_rotation_free(&s->rotation);
    s->plan = copy;
    dpe_session_join(s, 0);
    s->has_plan = false;
    status =
        dpe_rotation_make(&s->plan, s->options.positions, s->options.n_threads, &s->rotation, err);
    if (status == DPE_OK) {
        status = allocate_plan(s, err);
    }
    s->has_plan = status == DPE_OK;
    return status;
}

bool dpe_session_set_norm_sums(struct dpe_session *session, const struct dpe_norm_sums *sums)
{
    session->sums = sums != NULL ? *sums : (struct dpe_norm_sums){0};
    bool can = session->ops->sum_norms != NULL && session->options.peers->size == 1;
    session->sums.q = can ? session->sums.q : NULL;
    return can;
}

void dpe_session_set_poll(struct dpe_session *session, dpe_poll poll, void *user)
{
    session->poll = poll;
    session->poll_user = user;
}

void dpe_session_set_tap(struct dpe_session *session, dpe_tap tap, void *user)
{
    session->tap = tap;
    session->tap_user = user;
}

int64_t dpe_session_chunk(const struct dpe_session *session)
{
    return session->options.prefill_chunk;
}

int64_t dpe_session_full_chunk(const struct dpe_session *session)
{
    return session->full_chunk;
}

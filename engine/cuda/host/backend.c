/* The CUDA backend: its life, its memory, its table of slots. */
#include "engine/cuda/host/backend.h"
#include "engine/model/slice.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/halves.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/cuda_recur.h"
#include "engine/cuda/kernels/cuda_select.h"
#include "engine/ops/module.h"

/* What cuBLAS and the kernels themselves take. */
static const uint64_t DRIVER_BYTES = 192ULL << 20;
/* Room for what NCCL takes for its channels: not measured yet. */
static const uint64_t PEER_BYTES = 512ULL << 20;

/* ----------------------------------------------------------------------------------------- life */

/* "cuda" and "auto" are device 0. */
int dpe_cuda_device_index(const char *name)
{
    const char *number = name == NULL ? NULL : strchr(name, ':');
    return number == NULL ? 0 : atoi(number + 1);
}

dpe_status dpe_cuda_available(const char *device, struct dpe_error *err)
{
    int driver = 0;
    int runtime = 0;
    int n = 0;
    int code = dpe_rt_versions(&driver, &runtime);
    if (code != 0 || driver == 0) {
        return dpe_fail(err, DPE_NO_DEVICE,
                        "device cuda: this machine has no NVIDIA driver (or it does not answer); "
                        "use --device cpu");
    }
    if (driver / 1000 < runtime / 1000) {
        return dpe_fail(
            err, DPE_NO_DEVICE,
            "device cuda: the driver is for CUDA %d.%d, expected at least %d.0; install "
            "a newer driver, or use --device cpu",
            driver / 1000, driver % 1000 / 10, runtime / 1000);
    }
    code = dpe_rt_count(&n);
    if (code != 0 || n == 0) {
        return dpe_fail(
            err, DPE_NO_DEVICE,
            "device cuda: the driver does not find a device (%s); check CUDA_VISIBLE_DEVICES, or "
            "use --device cpu",
            code != 0 ? dpe_rt_text(code) : "it counts 0");
    }
    int index = dpe_cuda_device_index(device);
    struct dpe_cuda_info info = {0};
    if (index < 0 || index >= n) {
        return dpe_fail(
            err, DPE_NO_DEVICE,
            "device cuda:%d: expected a number from 0 to %d, the devices of this machine", index,
            n - 1);
    }
    code = dpe_rt_info(index, &info);
    if (code != 0) {
        return dpe_fail(err, DPE_NO_DEVICE, "device cuda:%d: %s", index, dpe_rt_text(code));
    }
    if (info.major < 8) {
        return dpe_fail(err, DPE_NO_DEVICE,
                        "device cuda:%d: %s has compute capability %d.%d, expected at least 8.0",
                        index, info.name, info.major, info.minor);
    }
    return DPE_OK;
}

/* The plan that `at` points to leaves the list. */
static void free_plan(struct dpe_cuda_plan **at)
{
    struct dpe_cuda_plan *p = *at;
    *at = p->next;
    (void)dpe_rt_release(p->tables);
    (void)dpe_rt_release(p->mask);
    (void)dpe_rt_release(p->walk.memory);
    (void)dpe_rt_release(p->differences);
    free(p);
}

static void cuda_drop_plan(struct dpe_backend *b, const struct dpe_plan *plan)
{
    (void)dpe_rt_use(b->index);
    for (struct dpe_cuda_plan **at = &b->plans; *at != NULL; at = &(*at)->next) {
        if ((*at)->plan == plan) {
            free_plan(at);
            return;
        }
    }
}

static void cuda_close(struct dpe_backend *b)
{
    if (b == NULL) {
        return;
    }
    /* On a device that failed these fail as well; the process is about to end. */
    (void)dpe_rt_use(b->index);
    (void)dpe_rt_wait();
    for (size_t i = 0; i < b->n_owned; i++) {
        (void)dpe_rt_release(b->owned[i]);
    }
    while (b->plans != NULL) {
        free_plan(&b->plans);
    }
    while (b->units != NULL) {
        struct dpe_cuda_units *units = b->units;
        b->units = units->next;
        (void)dpe_rt_release(units->memory);
        free(units);
    }
    dpe_cuda_free_steps(b);
    dpe_rt_blas_close(b->blas);
    dpe_cuda_leave(b);
    free(b->norms_host);
    free(b->report_host);
    free(b->owned);
    free(b->layers);
    free(b);
}
DPE_SCOPED_HANDLE(struct dpe_backend *, cuda_close)

static dpe_status own_buffers(struct dpe_backend *b, const struct dpe_session_options *options,
                              struct dpe_error *err)
{
    int64_t rows = options->prefill_chunk;
    rows = rows < options->branches ? options->branches : rows;
    b->batch_room = rows;
    b->logit_rows = dpe_cuda_logit_rows(b->config, rows);
    struct {
        void **memory;
        uint64_t bytes;
    } buffers[] = {
        {(void **)&b->tokens, (uint64_t)rows * sizeof *b->tokens},
        {(void **)&b->positions, (uint64_t)rows * sizeof *b->positions},
        {(void **)&b->offsets, (uint64_t)rows * sizeof *b->offsets},
        {(void **)&b->nonfinite, sizeof *b->nonfinite + (uint64_t)rows * sizeof *b->best},
        {(void **)&b->logits,
         (uint64_t)b->config->vocab * (uint64_t)b->logit_rows * sizeof *b->logits},
        {(void **)&b->counters, 2 * sizeof *b->counters},
    };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        DPE_TRY(dpe_cuda_own(b, buffers[i].bytes, buffers[i].memory, err));
    }
    b->best = (int32_t *)(void *)(b->nonfinite + 1);
    b->report_host = dpe_alloc(sizeof *b->nonfinite + (size_t)rows * sizeof *b->best, 1);
    DPE_TRY(DPE_MADE(b->report_host, err, "cuda: out of host memory"));
    if (b->config->recurrent.value_heads > 0) {
        const uint64_t n = (uint64_t)rows;
        const uint64_t arrived = n * (uint64_t)b->config->recurrent.key_heads * sizeof *b->arrived;
        DPE_TRY(dpe_cuda_own(b, n * sizeof *b->which, (void **)&b->which, err));
        DPE_TRY(dpe_cuda_own(b, arrived, (void **)&b->arrived, err));
        DPE_CUDA_TRY(b, dpe_rt_fill(b->arrived, 0, arrived));
    }
    DPE_CUDA_TRY(b, dpe_rt_fill(b->counters, 0, 2 * sizeof *b->counters));
    DPE_CUDA_TRY(b, dpe_rt_fill(b->nonfinite, 0xff, sizeof *b->nonfinite));
    return dpe_cuda_status(b, err);
}

static dpe_status cuda_open(const struct dpe_model *model,
                            const struct dpe_session_options *options, struct dpe_backend **backend,
                            struct dpe_error *err)
{
    bool graphs = false;
    DPE_TRY(dpe_cuda_available(options->device, err));
    DPE_TRY(dpe_cuda_graphs(&graphs, err));
    DPE_SCOPED(cuda_close_scoped) struct dpe_backend *b = NULL;
    DPE_TRY(DPE_NEW(&b, 1, err, "cuda: out of host memory"));
    b->index = dpe_cuda_device_index(options->device);
    b->peers = options->peers;
    b->config = &model->config;
    b->weights = &model->weights;
    b->dtype = dpe_config_unpacked(b->config);
    b->element = b->dtype == DPE_F32 ? 4 : 2;
    b->timeout_seconds = options->timeout_seconds;
    b->each_call = options->timeout_seconds > 0.0 && options->each_call;
    /* Failures are the named device's. */
    int code = dpe_rt_info(b->index, &b->info);
    b->ways = dpe_cuda_ways(b->config, &b->info);
    dpe_cuda_ways_take(&b->ways, &options->ways);
    b->steps.on = b->ways.graph;
    dpe_cuda_use(b);
    DPE_CUDA_NOTE(b, code, "dpe_rt_info");
    DPE_TRY(dpe_cuda_status(b, err));
    DPE_TRY(dpe_rt_blas_open(&b->blas, err));
    DPE_TRY(own_buffers(b, options, err));
    DPE_TRY(dpe_cuda_upload(b, err));
    *backend = b;
    b = NULL;
    return DPE_OK;
}

static dpe_status cuda_supports(const struct dpe_config *config, const struct dpe_plan *plan,
                                struct dpe_error *err)
{
    const char *missing = NULL;
    if (dpe_selects(&plan->selection) && !dpe_select_supports(&plan->selection, &missing)) {
        return dpe_fail(err, DPE_NO_DEVICE, "device cuda does not %s yet (%s); use --device cpu",
                        missing, plan->name);
    }
    const struct dpe_recurrent *r = &config->recurrent;
    if (r->value_heads > 0 && !dpe_recur_supports(r)) {
        return dpe_fail(err, DPE_NO_DEVICE,
                        "device cuda carries states of up to 144 x 128, 96 x 192 or 64 x 256 "
                        "numbers a head, found %lld x %lld; use --device cpu",
                        (long long)r->key_dim, (long long)r->value_dim);
    }
    for (int kind = 0; kind < dpe_most(config->n_kinds, 1); kind++) {
        const int64_t head_dim = dpe_cuda_head_dim(config, kind);
        if (dpe_attention_plain_shape(head_dim).rows == 0) {
            return dpe_fail(
                err, DPE_NO_DEVICE,
                "device cuda does not support a head dimension of %lld; use --device cpu",
                (long long)head_dim);
        }
    }
    return DPE_OK;
}

static uint64_t cuda_plan_bytes(const struct dpe_config *config, const struct dpe_plan *plan,
                                const struct dpe_session_options *options)
{
    uint64_t rows = (uint64_t)options->prefill_chunk + (uint64_t)options->branches;
    /* Tables of the difference of two bands, for decoding. */
    uint64_t further = dpe_selects(&plan->selection) ? 0 : (uint64_t)(plan->n_bands - 1);
    /* Layers that the plan does not move have one table of each kind. */
    uint64_t kinds = 0;
    uint64_t pairs = 0;
    for (int kind = 1; kind < config->n_kinds; kind++) {
        const bool attends = !config->kinds[kind].recurrent;
        kinds += attends ? 1 : 0;
        pairs += attends ? (uint64_t)dpe_cuda_head_dim(config, kind) / 2 : 0;
    }
    const uint64_t own = (uint64_t)plan->n_pairs;
    const uint64_t tables = (8 * pairs + 4 * further * own) * (uint64_t)options->positions;
    const uint64_t mask = (uint64_t)(config->n_layers * config->n_heads) * own;
    /* And the walks of a block of 16 rows. */
    return dpe_bytes_plus(dpe_rotation_bytes(plan, options->positions),
                          tables + mask + rows * 12 * (kinds + 1));
}

static uint64_t cuda_state_bytes(const struct dpe_config *config, const struct dpe_plan *plan,
                                 const struct dpe_session_options *options)
{
    uint64_t rows = (uint64_t)options->prefill_chunk + (uint64_t)options->branches;
    if (config->vocab > INT64_MAX / 8) {
        return UINT64_MAX;
    }
    const uint64_t parts[] = {
        DRIVER_BYTES,
        dpe_cuda_weight_bytes(config),
        cuda_plan_bytes(config, plan, options),
        dpe_cuda_norm_bytes(config),
        dpe_cuda_recur_bytes(config, (int64_t)rows),
        rows * 24, /* tokens before and after, positions, offsets */
        dpe_bytes_of(config->vocab, dpe_cuda_logit_rows(config, (int64_t)rows), 1, sizeof(float)),
        options->peers->size > 1 ? PEER_BYTES : 0,
    };
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        all = dpe_bytes_plus(all, parts[i]);
    }
    return all;
}

static uint64_t cuda_element_bytes(const struct dpe_config *config)
{
    return dpe_config_unpacked(config) == DPE_F32 ? 4 : 2;
}

static uint64_t cuda_memory_available(const struct dpe_session_options *options)
{
    uint64_t available = 0;
    uint64_t total = 0;
    /* Without a device `open` reports what is wrong. */
    bool good = dpe_cuda_available(options->device, NULL) == DPE_OK &&
                dpe_rt_use(dpe_cuda_device_index(options->device)) == 0 &&
                dpe_rt_memory(&available, &total) == 0;
    return good ? available : UINT64_MAX;
}

static dpe_mem cuda_allocate(struct dpe_backend *b, uint64_t bytes)
{
    void *memory = NULL;
    dpe_cuda_use(b);
    int code = b->failed ? 1 : dpe_rt_allocate(&memory, bytes > 0 ? bytes : 1);
    if (code != 0 && !dpe_rt_is_memory(code)) {
        DPE_CUDA_NOTE(b, code, "dpe_rt_allocate");
    }
    return memory;
}

static void cuda_release(struct dpe_backend *b, dpe_mem memory)
{
    (void)dpe_rt_use(b->index);
    int code = dpe_rt_release(memory); /* tried on a device that failed too */
    DPE_CUDA_NOTE(b, code, "dpe_rt_release");
}

static const float *cuda_read(struct dpe_backend *b, dpe_mem from, int64_t n, float *to)
{
    /* Halves come into the upper part and are widened from the front, after what is unread. */
    char *at = (char *)to + (b->element == 4 ? 0 : (size_t)n * 2);
    DPE_CUDA_TRY(b, dpe_rt_down(at, from, (uint64_t)n * b->element));
    if (b->failed || b->element == 4) {
        return to;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = 0;
        memcpy(&half, at + 2 * i, sizeof half);
        to[i] = b->dtype == DPE_F16 ? dpe_from_f16(half) : dpe_from_bf16(half);
    }
    return to;
}

/* ----------------------------------------------------------------------------------------- plan */

static dpe_status cuda_set_plan(struct dpe_backend *b, int kind, const struct dpe_plan *plan,
                                const struct dpe_rotation *rotation, struct dpe_error *err)
{
    struct dpe_cuda_plan *p = dpe_cuda_plan_of(b, plan);
    if (p == NULL) {
        DPE_TRY(DPE_NEW(&p, 1, err, "cuda: out of host memory"));
        p->plan = plan;
        p->next = b->plans;
        b->plans = p;
    }
    uint64_t table = (uint64_t)(rotation->capacity * rotation->n_pairs) * sizeof(float);
    uint64_t mask = (uint64_t)(plan->n_layers * plan->n_heads * plan->n_pairs);
    cuda_release(b, p->tables);
    cuda_release(b, p->mask);
    cuda_release(b, p->differences);
    p->differences = NULL;
    p->head_dim = dpe_cuda_head_dim(b->config, kind);
    p->n_kv_heads = dpe_cuda_kv_heads(b->config, kind);
    p->dealing = dpe_cuda_dealing(b->config, &b->info, kind);
    p->decodes = b->ways.decodes && p->dealing.heads > 0;
    p->tables = NULL;
    p->mask = NULL;
    p->walk.rows = 0;
    p->tables = cuda_allocate(b, 2 * table * (uint64_t)rotation->n_tables);
    p->mask = plan->mask == NULL ? NULL : cuda_allocate(b, mask);
    if (!b->failed && (p->tables == NULL || (plan->mask != NULL && p->mask == NULL))) {
        return dpe_fail(err, DPE_NO_MEMORY,
                        "out of device memory: the tables of plan %s need %.1f MiB; a smaller "
                        "length needs less",
                        plan->name, (double)(2 * table * (uint64_t)rotation->n_tables) / 0x1p20);
    }
    for (int t = 0; t < rotation->n_tables && !b->failed; t++) {
        p->cos[t] = p->tables + 2 * t * rotation->capacity * rotation->n_pairs;
        p->sin[t] = p->cos[t] + rotation->capacity * rotation->n_pairs;
        DPE_CUDA_TRY(b, dpe_rt_up(p->cos[t], rotation->cos[t], table));
        DPE_CUDA_TRY(b, dpe_rt_up(p->sin[t], rotation->sin[t], table));
    }
    if (plan->mask != NULL) {
        DPE_CUDA_TRY(b, dpe_rt_up(p->mask, plan->mask, mask));
    }
    p->q_copies = dpe_rotated_find(plan, rotation, false);
    p->k_copies = dpe_rotated_find(plan, rotation, true);
    return dpe_cuda_make_differences(b, p, rotation->capacity, err);
}

/* ---------------------------------------------------------------------------------------- slots */

static void cuda_begin_batch(struct dpe_backend *b, const struct dpe_batch *batch)
{
    uint64_t rows = (uint64_t)batch->rows;
    /* The device is the thread's, and a session may go on in another one. */
    dpe_cuda_use(b);
    for (struct dpe_cuda_units *units = b->units; units != NULL; units = units->next) {
        units->rows = 0; /* positions differ */
    }
    b->batch_positions = batch->positions;
    b->batch_branches = batch->branches;
    b->n_best = 0;
    b->steps.keeping = false; /* what a pass kept that was broken off, and what it left */
    b->pending = (struct dpe_cuda_pending){0};
    DPE_CUDA_TRY(b, dpe_rt_up(b->tokens, batch->tokens, rows * sizeof *b->tokens));
    if (batch->positions != NULL) {
        DPE_CUDA_TRY(b, dpe_rt_up(b->positions, batch->positions, rows * sizeof *b->positions));
        DPE_CUDA_TRY(b, dpe_rt_up(b->offsets, batch->offsets, rows * sizeof *b->offsets));
    }
    if (batch->branches != NULL && b->which != NULL) {
        DPE_CUDA_TRY(b, dpe_rt_up(b->which, batch->branches, rows * sizeof *b->which));
    }
    DPE_CUDA_TRY(b, dpe_rt_fill(b->nonfinite, 0xff, sizeof *b->nonfinite));
    dpe_cuda_begin_step(b, batch);
}

static int64_t cuda_first_nonfinite(struct dpe_backend *b, int64_t layer, dpe_mem x, int64_t rows,
                                    int64_t width)
{
    struct dpe_cuda_pending *p = &b->pending;
    dpe_cuda_make_pending(b);
    p->x = x;
    p->rows = rows;
    p->width = width;
    p->layer = layer;
    return -1;
}

static dpe_status cuda_finish(struct dpe_backend *b, int64_t *layer, int64_t *row,
                              struct dpe_error *err)
{
    unsigned long long first = ~0ULL;
    const uint64_t tokens = (uint64_t)b->n_best * sizeof *b->best;
    dpe_cuda_make_pending(b);
    dpe_cuda_end_step(b);
    DPE_CUDA_TRY(b, dpe_rt_down(b->report_host, b->nonfinite, sizeof first + tokens));
    if (!b->failed) {
        memcpy(&first, b->report_host, sizeof first);
    }
    if (!b->failed && b->n_best > 0) {
        memcpy(b->best_to, (const char *)b->report_host + sizeof first, tokens);
    }
    b->n_best = 0;
    bool none = b->failed || first == ~0ULL;
    *layer = none ? -1 : (int64_t)(first >> 40);
    *row = none ? -1 : (int64_t)(first & ((1ULL << 40) - 1));
    return dpe_cuda_status(b, err);
}

const struct dpe_ops *dpe_cuda_ops(void)
{
    static const struct dpe_ops ops = {
        .name = "cuda",
        /* Far keys are rotated again for every chunk; the buffers of a chunk take memory. */
        .default_chunk = 32768,
        .smallest_chunk = 512,
        /* So many that rows after them are taken in four parts, from which on Hopper splits a walk.
         */
        .self_test_tokens = 2100,
        .keeps_marks = true,
        .way = dpe_cuda_way,
        .code = dpe_cuda_code,
        .element_bytes = cuda_element_bytes,
        .memory_available = cuda_memory_available,
        .open = cuda_open,
        .close = cuda_close,
        .supports = cuda_supports,
        .state_bytes = cuda_state_bytes,
        .plan_bytes = cuda_plan_bytes,
        .allocate = cuda_allocate,
        .release = cuda_release,
        .read = cuda_read,
        .set_plan = cuda_set_plan,
        .drop_plan = cuda_drop_plan,
        .begin_batch = cuda_begin_batch,
        .status = dpe_cuda_status,
        .embed = dpe_cuda_embed,
        .add_inputs = dpe_cuda_add_inputs,
        .rmsnorm = dpe_cuda_rmsnorm,
        .narrow = dpe_cuda_narrow,
        .linear = dpe_cuda_linear,
        .project = dpe_cuda_project,
        .gate = dpe_cuda_gate,
        .store_kv = dpe_cuda_store_kv,
        .copy_kv = dpe_cuda_copy_kv,
        .represent = dpe_cuda_represent,
        .attention_workspace = dpe_cuda_attention_workspace,
        .attention = dpe_cuda_attention,
        .output_gate = dpe_cuda_output_gate,
        .recur = dpe_cuda_recur,
        .recur_workspace = dpe_cuda_recur_workspace,
        .copy_state = dpe_cuda_copy_state,
        .activate = dpe_cuda_activate,
        .experts = dpe_cuda_experts,
        .expert_rows = 1 << 15,
        .sinks = dpe_cuda_sinks,
        .merge = dpe_cuda_merge,
        .scale = dpe_cuda_scale,
        .scale_part = dpe_cuda_scale_part,
        .centre = dpe_cuda_centre,
        .add = dpe_cuda_add,
        .sum_norms = dpe_cuda_sum_norms,
        .all_reduce = dpe_cuda_all_reduce,
        .logits = dpe_cuda_logits,
        .best = dpe_cuda_best,
        .likelihood = dpe_cuda_likelihood,
        .first_nonfinite = cuda_first_nonfinite,
        .finish = cuda_finish,
    };
    return &ops;
}

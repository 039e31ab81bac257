/* The device under the slots: what it failed in, which one a thread works on, memory that it keeps;
 * the ways of computing the same that it has for a model. */
#include "engine/cuda/host/backend.h"
#include "engine/cuda/prefill/attention_wgmma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dpe_cuda_note(struct dpe_backend *backend, int code, const char *call, const char *file,
                   int line)
{
    if (backend->failed) {
        return;
    }
    /* A kernel's first launch loads it, and may wait for those before it for ever. This wait does
     * not, and tells which call failed. */
    if (code == 0 && backend->each_call) {
        code = dpe_rt_wait();
    }
    if (code == 0) {
        return;
    }
    backend->failed = true;
    dpe_fail(&backend->failure, DPE_INCOMPLETE, "the device (%s) failed in %.*s, %s:%d: %s",
             backend->info.name, (int)strcspn(call, "("), call, dpe_last_part(file), line,
             dpe_rt_text(code));
}

dpe_status dpe_cuda_status(const struct dpe_backend *backend, struct dpe_error *err)
{
    if (!backend->failed) {
        return DPE_OK;
    }
    if (err != NULL) {
        *err = backend->failure;
    }
    return backend->failure.status;
}

dpe_status dpe_cuda_own(struct dpe_backend *b, uint64_t bytes, void **memory, struct dpe_error *err)
{
    *memory = NULL;
    DPE_TRY(DPE_ROOM(&b->owned, b->n_owned, err, "cuda: out of host memory"));
    int code = b->failed ? 0 : dpe_rt_allocate(memory, bytes > 0 ? bytes : 1);
    if (code != 0 && dpe_rt_is_memory(code)) {
        uint64_t available = 0;
        uint64_t total = 0;
        (void)dpe_rt_memory(&available, &total);
        return dpe_fail(err, DPE_NO_MEMORY,
                        "out of device memory: %.1f MiB are needed, %.1f of %.1f MiB are free",
                        (double)bytes / 0x1p20, (double)available / 0x1p20, (double)total / 0x1p20);
    }
    DPE_CUDA_NOTE(b, code, "dpe_rt_allocate");
    if (*memory != NULL) {
        b->owned[b->n_owned++] = *memory;
    }
    return dpe_cuda_status(b, err);
}

void dpe_cuda_use(struct dpe_backend *b)
{
    dpe_rt_set_timeout(b->timeout_seconds);
    DPE_CUDA_TRY(b, dpe_rt_use(b->index));
}

void dpe_cuda_make_pending(struct dpe_backend *b)
{
    struct dpe_cuda_pending *p = &b->pending;
    const void *const x = p->x;
    const int n = p->n_rotated;
    /* First, because a launch comes here before it is made. */
    p->x = NULL;
    p->n_rotated = 0;
    if (n > 0) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_rotate(p->rotated, n));
    }
    if (x != NULL) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_nonfinite(x, p->rows, p->width, p->layer, b->nonfinite));
    }
}

/* --------------------------------------------------------------------------------------- ways */

/* Which there are, what they are called. What is not here has one way alone. */

dpe_status dpe_cuda_graphs(bool *graphs, struct dpe_error *err)
{
    const char *word = getenv("DPE_CUDA_GRAPHS");
    const bool said = word != NULL && *word != '\0';
    *graphs = !said || strcmp(word, "off") != 0;
    return said && *graphs
               ? dpe_fail(err, DPE_USAGE, "DPE_CUDA_GRAPHS: expected off, found %s", word)
               : DPE_OK;
}

int64_t dpe_cuda_head_dim(const struct dpe_config *config, int kind)
{
    const int64_t own = config->kinds[kind].head_dim;
    return own > 0 ? own : config->head_dim;
}

int64_t dpe_cuda_kv_heads(const struct dpe_config *config, int kind)
{
    const int64_t own = config->kinds[kind].kv_heads;
    return own > 0 ? own : config->n_kv_heads;
}

/* Kernels faster than the one that DPE_CUDA_ATTENTION names are left out. Those that some kind of
 * layers has. */
static int find_kernels(const struct dpe_cuda_info *info, const struct dpe_config *config,
                        enum dpe_cuda_kernel kernels[3])
{
    const char *asked = getenv("DPE_CUDA_ATTENTION");
    const bool half =
        dpe_config_unpacked(config) != DPE_F32 && (asked == NULL || strcmp(asked, "plain") != 0);
    bool mma = false;
    bool wgmma = false;
    for (int kind = 0; kind < dpe_most(config->n_kinds, 1) && half; kind++) {
        const int64_t head_dim = dpe_cuda_head_dim(config, kind);
        mma = mma || dpe_attention_mma_shape(head_dim).rows > 0;
        wgmma = wgmma || dpe_attention_wgmma_shape(head_dim, config->attention_cap > 0.0).rows > 0;
    }
    wgmma = wgmma && info->major == 9 && !(mma && asked != NULL && strcmp(asked, "mma") == 0);
    int n = 0;
    if (wgmma) {
        kernels[n++] = DPE_KERNEL_WGMMA;
    }
    if (mma) {
        kernels[n++] = DPE_KERNEL_MMA;
    }
    kernels[n++] = DPE_KERNEL_PLAIN;
    return n;
}

struct dpe_decode_dealing dpe_cuda_dealing(const struct dpe_config *config,
                                           const struct dpe_cuda_info *info, int kind)
{
    const int64_t head_dim = dpe_cuda_head_dim(config, kind);
    const int64_t kv_heads = dpe_cuda_kv_heads(config, kind);
    const struct dpe_decode_dealing none = {0};
    return dpe_decode_supports(dpe_config_unpacked(config), head_dim, config->n_heads, kv_heads)
               ? dpe_decode_deal(kv_heads, head_dim, info->shared)
               : none;
}

struct dpe_cuda_ways dpe_cuda_ways(const struct dpe_config *config,
                                   const struct dpe_cuda_info *info)
{
    struct dpe_cuda_ways ways = {.few = true};
    (void)dpe_cuda_graphs(&ways.graph, NULL); /* `open` reports what is wrong in the word */
    ways.n_attention = find_kernels(info, config, ways.attention);
    /* The kernel for parts is that of mma, and who asks for the plain one asks for no other. */
    const bool fast = ways.n_attention > 1;
    for (int kind = 0; kind < dpe_most(config->n_kinds, 1) && fast; kind++) {
        ways.splits =
            ways.splits || dpe_attention_mma_shape(dpe_cuda_head_dim(config, kind)).rows > 0;
        ways.decodes = ways.decodes || dpe_cuda_dealing(config, info, kind).heads > 0;
    }
    return ways;
}

void dpe_cuda_ways_take(struct dpe_cuda_ways *ways, const struct dpe_ways *taken)
{
    const uint8_t *way = taken->way;
    const int last = ways->n_attention - 1;
    const int attention = way[DPE_PART_ATTENTION] < last ? way[DPE_PART_ATTENTION] : last;
    ways->n_attention -= attention;
    memmove(ways->attention, ways->attention + attention,
            (size_t)ways->n_attention * sizeof ways->attention[0]);
    ways->splits = ways->splits && way[DPE_PART_SPLIT] == 0;
    ways->decodes = ways->decodes && way[DPE_PART_DECODING] == 0;
    ways->few = ways->few && way[DPE_PART_PRODUCTS] == 0;
    ways->graph = ways->graph && way[DPE_PART_STEPS] == 0;
}

const char *dpe_cuda_way(const struct dpe_config *config, const char *device, enum dpe_part part,
                         int way)
{
    static const char *const kernels[] = {"plain", "mma", "wgmma"};
    /* Each part but attention has these two, or the second alone. */
    static const char *const names[DPE_WAY_PARTS][2] = {
        [DPE_PART_SPLIT] = {"parts", "whole"},
        [DPE_PART_DECODING] = {"decode", "attention"},
        [DPE_PART_PRODUCTS] = {"product_few", "cublas"},
        [DPE_PART_STEPS] = {"graph", "launches"}};
    struct dpe_cuda_info info = {0};
    if (dpe_rt_info(dpe_cuda_device_index(device), &info) != 0) {
        return NULL;
    }
    const struct dpe_cuda_ways ways = dpe_cuda_ways(config, &info);
    if (part == DPE_PART_ATTENTION) {
        return way < ways.n_attention ? kernels[ways.attention[way]] : NULL;
    }
    const bool first[DPE_WAY_PARTS] = {[DPE_PART_SPLIT] = ways.splits,
                                       [DPE_PART_DECODING] = ways.decodes,
                                       [DPE_PART_PRODUCTS] = ways.few,
                                       [DPE_PART_STEPS] = ways.graph};
    const int at = way + (first[part] ? 0 : 1);
    return at < 2 ? names[part][at] : NULL;
}

void dpe_cuda_code(struct dpe_backend *b, char text[64])
{
    int machine = 0;
    int ptx = 0;
    text[0] = '\0';
    if (!b->failed) {
        dpe_rt_code(&machine, &ptx);
    }
    if (machine > 0) {
        snprintf(text, 64, "machine code of sm_%d, PTX of %d.%d", machine, ptx / 10, ptx % 10);
    }
}

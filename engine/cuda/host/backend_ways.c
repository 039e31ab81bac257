/* The ways of computing the same that a card has for a model: which there are, what they are
 * called. What is not here has one way alone. */
#include "engine/cuda/host/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/prefill/attention_wgmma.h"

/* Kernels faster than the one that DPE_CUDA_ATTENTION names are left out. */
static int find_kernels(const struct dpe_cuda_info *info, enum dpe_dtype dtype, int64_t head_dim,
                        enum dpe_cuda_kernel kernels[3])
{
    const char *asked = getenv("DPE_CUDA_ATTENTION");
    const bool half = dtype != DPE_F32 && (asked == NULL || strcmp(asked, "plain") != 0);
    const bool mma = half && dpe_attention_mma_shape(head_dim).rows > 0;
    const bool wgmma = half && info->major == 9 &&
                       dpe_attention_wgmma_shape(head_dim, 0).rows > 0 &&
                       !(mma && asked != NULL && strcmp(asked, "mma") == 0);
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

struct dpe_cuda_ways dpe_cuda_ways(const struct dpe_config *config,
                                   const struct dpe_cuda_info *info,
                                   const struct dpe_cuda_switches *switches)
{
    const enum dpe_dtype dtype = dpe_config_unpacked(config);
    struct dpe_cuda_ways ways = {.graph = switches->graph, .few = true};
    ways.n_attention = find_kernels(info, dtype, config->head_dim, ways.attention);
    /* The kernel for parts is that of mma, and who asks for the plain one asks for no other. */
    const bool fast = ways.n_attention > 1;
    ways.splits = fast && dpe_attention_mma_shape(config->head_dim).rows > 0;
    ways.decodes =
        fast && dpe_decode_deal(config->n_kv_heads, config->head_dim, info->shared).heads > 0 &&
        dpe_decode_supports(dtype, config->head_dim, config->n_heads, config->n_kv_heads);
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
    struct dpe_cuda_switches switches;
    struct dpe_cuda_info info = {0};
    (void)dpe_cuda_switches_read(&switches, NULL); /* `open` reports what is wrong in them */
    if (dpe_rt_info(dpe_cuda_device_index(device), &info) != 0) {
        return NULL;
    }
    const struct dpe_cuda_ways ways = dpe_cuda_ways(config, &info, &switches);
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

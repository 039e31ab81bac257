/* The Hopper attention kernel's instances and its launch. */
#include "engine/cuda/prefill/attention_wgmma.cuh"

#include "engine/cuda/prefill/attention_wgmma.h"

namespace
{

/* Tiles of `rows` rows of all heads. */
int map_tensor(CUtensorMap *map, const struct dpe_flash *call, const void *base, int64_t rows,
               int64_t head_stride, int64_t n_heads, uint32_t tile_rows)
{
    uint64_t d = static_cast<uint64_t>(call->head_dim);
    if (rows < 1 || rows > INT64_C(1) << 30) {
        return 1;
    }
    const uint64_t dims[4] = {64, static_cast<uint64_t>(rows), d / 64,
                              static_cast<uint64_t>(n_heads)};
    const uint64_t strides[3] = {d * 2, 128, static_cast<uint64_t>(head_stride) * 2};
    const uint32_t box[4] = {64, tile_rows, static_cast<uint32_t>(d / 64), 1};
    return dpe_tensor_map_4d(map, call->dtype == DPE_BF16, base, dims, strides, box);
}

int map_tensors(struct dpe_wgmma_params *params, const struct dpe_flash *call,
                struct dpe_tile_shape shape)
{
    uint32_t rows = static_cast<uint32_t>(shape.rows);
    uint32_t keys = static_cast<uint32_t>(shape.keys);
    int failed = map_tensor(&params->v, call, call->v, call->v_head_stride / call->head_dim,
                            call->v_head_stride, call->n_kv_heads, keys);
    for (int c = 0; c < DPE_MAX_BANDS; c++) {
        if (call->q[c] != NULL) {
            failed |= map_tensor(&params->q[c], call, call->q[c], call->rows, call->q_head_stride,
                                 call->n_heads, rows);
        }
        if (call->k[c] != NULL) {
            failed |= map_tensor(&params->k[c], call, call->k[c],
                                 call->k_head_stride[c] / call->head_dim, call->k_head_stride[c],
                                 call->k_per_head[c] ? call->n_heads : call->n_kv_heads, keys);
            params->k_per_head |= call->k_per_head[c] ? 1U << c : 0U;
        }
    }
    return failed;
}

template <class C> int launch(const struct dpe_wgmma_params &params, void *stream)
{
    int blocks = dpe_multiprocessors();
    blocks = blocks < params.n_items ? blocks : params.n_items;
    return dpe_launch(dpe_attention_wgmma_kernel<C>, dim3(static_cast<unsigned>(blocks)),
                      dim3(C::THREADS), C::SHARED_BYTES + sizeof(struct dpe_wgmma_barriers<C>),
                      stream, params);
}

using launcher = int (*)(const struct dpe_wgmma_params &, void *);

struct variant {
    int64_t head_dim;
    struct dpe_tile_shape shape;
    launcher bf16, f16;
};

template <int D, int WARPGROUPS, int KEYS, int SLOTS, bool PINGPONG>
constexpr struct variant make_variant()
{
    return {D,
            {64 * WARPGROUPS, KEYS},
            launch<dpe_wgmma_config<dpe_bf16, D, WARPGROUPS, KEYS, SLOTS, PINGPONG>>,
            launch<dpe_wgmma_config<dpe_f16, D, WARPGROUPS, KEYS, SLOTS, PINGPONG>>};
}

const struct variant VARIANTS[] = {
    make_variant<128, 2, 128, 5, true>(), make_variant<128, 2, 128, 5, false>(),
    make_variant<128, 3, 64, 8, true>(),  make_variant<128, 2, 160, 4, true>(),
    make_variant<64, 3, 128, 8, true>(),  make_variant<64, 3, 128, 8, false>(),
    make_variant<64, 2, 128, 8, true>(),
};

const struct variant *find_variant(int64_t head_dim, int index)
{
    for (const struct variant &v : VARIANTS) {
        if (v.head_dim == head_dim && index-- == 0) {
            return &v;
        }
    }
    return NULL;
}

} // namespace

struct dpe_tile_shape dpe_attention_wgmma_shape(int64_t head_dim, int variant)
{
    const struct variant *v = find_variant(head_dim, variant);
    return v == NULL ? dpe_tile_shape{0, 0} : v->shape;
}

int dpe_attention_wgmma(const struct dpe_flash *call, int variant, int32_t *counters, void *stream)
{
    static const int INVALID_VALUE = 1;
    const struct variant *v = find_variant(call->head_dim, variant);
    int64_t per_kv = v == NULL ? 0 : call->n_heads / call->n_kv_heads;
    if (v == NULL || (call->dtype != DPE_BF16 && call->dtype != DPE_F16) ||
        call->n_blocks * call->n_heads >= INT32_MAX - 65536) {
        return INVALID_VALUE;
    }
    struct dpe_wgmma_params params = {};
    if (map_tensors(&params, call, v->shape) != 0) {
        return INVALID_VALUE;
    }
    params.blocks = call->blocks;
    params.segments = call->segments;
    params.nothing.n_tiles = 1; /* keys below 0: zeros */
    params.counters = counters;
    params.out = call->out;
    params.lse = call->lse;
    params.n_items = static_cast<int32_t>(call->n_blocks * call->n_heads);
    params.items_per_kv = static_cast<int32_t>(call->n_blocks * per_kv);
    params.n_heads = static_cast<int32_t>(call->n_heads);
    params.heads_per_kv = static_cast<int32_t>(per_kv);
    params.scale = call->scale;
    params.log_n = call->log_n;
    return (call->dtype == DPE_BF16 ? v->bf16 : v->f16)(params, stream);
}

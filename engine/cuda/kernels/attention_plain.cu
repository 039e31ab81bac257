/* One block takes one query block of one head: 16 rows against tiles of 32 keys, of large heads 8,
 * all of it float in shared memory. Obvious loops; speed is not its task. */
#include "engine/cuda/kernels/attention_parts.cuh"
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/log_n.cuh"

namespace
{

enum { ROWS = 16, THREADS = 128, LARGE = 256 /* heads, beyond which tiles have few keys */ };

__host__ __device__ constexpr int keys_of(bool large)
{
    return large ? 8 : 32;
}

/* What a block has in shared memory, in floats. */
inline int64_t shared_floats(int64_t d)
{
    const int64_t keys = keys_of(d > LARGE);
    return ROWS /* factor */ + ROWS * d /* q */ + ROWS * d /* out */ + keys * (d + 1) /* k */ +
           keys * d /* v */ + ROWS * keys /* p */ + 3 * ROWS /* maximum, sum, rescale */;
}

struct tile {
    float *factor, *q, *out, *k, *v, *p, *largest, *sum, *rescale;
};

template <class T, int KEYS>
__device__ void load_keys(const struct dpe_flash &call, const struct dpe_segment &segment,
                          int64_t head, int64_t lowest, const struct tile &tile)
{
    int64_t d = call.head_dim;
    int64_t kv_head = head / (call.n_heads / call.n_kv_heads);
    int64_t k_head = call.k_per_head[segment.k_copy] ? head : kv_head;
    const T *k = static_cast<const T *>(call.k[segment.k_copy]) +
                 k_head * call.k_head_stride[segment.k_copy];
    const T *v = static_cast<const T *>(call.v) + kv_head * call.v_head_stride;
    for (int64_t i = threadIdx.x; i < KEYS * d; i += THREADS) {
        int64_t key = i / d;
        int64_t n = lowest + key;
        bool inside = n >= segment.first && n < segment.end;
        tile.k[key * (d + 1) + i % d] = inside ? dpe_float(k[n * d + i % d]) : 0.0f;
        tile.v[i] = inside ? dpe_float(v[n * d + i % d]) : 0.0f;
    }
}

template <int KEYS>
__device__ void logits(const struct dpe_flash &call, const struct dpe_query_block &block,
                       const struct dpe_segment &segment, int64_t lowest, const struct tile &tile)
{
    int64_t d = call.head_dim;
    for (int i = static_cast<int>(threadIdx.x); i < ROWS * KEYS; i += THREADS) {
        int r = i / KEYS;
        int64_t n = lowest + i % KEYS;
        int64_t lo = 0;
        int64_t hi = 0;
        dpe_segment_keys(&block, &segment, r, &lo, &hi);
        float logit = -INFINITY;
        if (r < block.rows && n >= lo && n < hi) {
            logit = 0.0f;
            for (int64_t e = 0; e < d; e++) {
                logit = fmaf(tile.q[r * d + e], tile.k[i % KEYS * (d + 1) + e], logit);
            }
            logit *= tile.factor[r];
            logit = call.cap > 0.0f ? call.cap * tanhf(logit / call.cap) : logit;
        }
        tile.p[i] = logit;
    }
}

/* Maxima, weights and sums of the rows; what is there already is to be scaled by `rescale`. */
template <int KEYS> __device__ void weigh(const struct tile &tile)
{
    if (threadIdx.x < ROWS) {
        float *p = tile.p + threadIdx.x * KEYS;
        float before = tile.largest[threadIdx.x];
        float largest = before;
        for (int i = 0; i < KEYS; i++) {
            largest = fmaxf(largest, p[i]);
        }
        bool none = largest == -INFINITY;
        float scale = none ? 1.0f : expf(before - largest);
        float sum = tile.sum[threadIdx.x] * scale;
        for (int i = 0; i < KEYS; i++) {
            /* −∞ − −∞ is not a number, and NaN stays NaN. */
            p[i] = none && p[i] == -INFINITY ? 0.0f : expf(p[i] - largest);
            sum += p[i];
        }
        tile.largest[threadIdx.x] = largest;
        tile.sum[threadIdx.x] = sum;
        tile.rescale[threadIdx.x] = scale;
    }
}

template <int KEYS> __device__ void add_values(int64_t d, const struct tile &tile)
{
    for (int64_t i = threadIdx.x; i < ROWS * d; i += THREADS) {
        int64_t r = i / d;
        float sum = tile.out[i] * tile.rescale[r];
        for (int key = 0; key < KEYS; key++) {
            sum = fmaf(tile.p[r * KEYS + key], tile.v[key * d + i % d], sum);
        }
        tile.out[i] = sum;
    }
}

template <class T, bool IS_LARGE>
__global__ void __launch_bounds__(THREADS, IS_LARGE ? 1 : 4) plain(const struct dpe_flash call)
{
    constexpr int KEYS = keys_of(IS_LARGE);
    DPE_SHARED(float, memory);
    /* First, while few registers are in use: its logarithms are calls. */
    if (threadIdx.x < ROWS) {
        float keys = static_cast<float>(call.blocks[blockIdx.x].query + threadIdx.x) + 1.0f;
        memory[threadIdx.x] = call.scale * dpe_log_n_factor(call.log_n, keys);
    }
    int64_t d = call.head_dim;
    struct tile tile;
    tile.factor = memory;
    tile.q = tile.factor + ROWS;
    tile.out = tile.q + ROWS * d;
    tile.k = tile.out + ROWS * d;
    tile.v = tile.k + KEYS * (d + 1);
    tile.p = tile.v + KEYS * d;
    tile.largest = tile.p + ROWS * KEYS;
    tile.sum = tile.largest + ROWS;
    tile.rescale = tile.sum + ROWS;
    const struct dpe_query_block block = call.blocks[blockIdx.x];
    const int64_t row = call.parts > 1 ? block.row % call.rows : block.row;
    int64_t head = blockIdx.y;
    for (int64_t i = threadIdx.x; i < ROWS * d; i += THREADS) {
        tile.out[i] = 0.0f;
    }
    if (threadIdx.x < ROWS) {
        tile.largest[threadIdx.x] = -INFINITY;
        tile.sum[threadIdx.x] = 0.0f;
    }
    for (int s = 0; s < block.n_segments; s++) {
        const struct dpe_segment segment = call.segments[block.first_segment + s];
        const T *q = static_cast<const T *>(call.q[segment.q_copy]) + head * call.q_head_stride;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < ROWS * d; i += THREADS) {
            tile.q[i] = i / d < block.rows ? dpe_float(q[row * d + i]) : 0.0f;
        }
        for (int t = 0; t < segment.n_tiles; t++) {
            int64_t lowest = segment.end - static_cast<int64_t>(t + 1) * KEYS;
            __syncthreads();
            load_keys<T, KEYS>(call, segment, head, lowest, tile);
            __syncthreads();
            logits<KEYS>(call, block, segment, lowest, tile);
            __syncthreads();
            weigh<KEYS>(tile);
            __syncthreads();
            add_values<KEYS>(d, tile);
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < block.rows * d; i += THREADS) {
        float sum = tile.sum[i / d];
        float value = sum == 0.0f ? 0.0f : tile.out[i] / sum;
        int64_t at = ((block.row + i / d) * call.n_heads + head) * d + i % d;
        if (call.parts > 1) {
            call.partial[at] = value;
        } else {
            static_cast<T *>(call.out)[at] = dpe_round<T>(value);
        }
    }
    float *lse = call.parts > 1 ? partial_lse(&call) : call.lse;
    if (lse != NULL && static_cast<int>(threadIdx.x) < block.rows) {
        lse[(block.row + threadIdx.x) * call.n_heads + head] =
            tile.largest[threadIdx.x] + logf(tile.sum[threadIdx.x]);
    }
}

template <class T> int launch(const struct dpe_flash *call)
{
    dim3 grid(static_cast<unsigned>(call->n_blocks), static_cast<unsigned>(call->n_heads));
    size_t shared = static_cast<size_t>(shared_floats(call->head_dim)) * sizeof(float);
    auto kernel = call->head_dim > LARGE ? plain<T, true> : plain<T, false>;
    const int error = dpe_launch(kernel, grid, THREADS, shared, *call);
    return error == 0 && call->parts > 1 ? combine_parts<T>(call) : error;
}

} // namespace

struct dpe_tile_shape dpe_attention_plain_shape(int64_t head_dim)
{
    struct dpe_tile_shape shape = {ROWS, keys_of(head_dim > LARGE)};
    bool fits = shared_floats(head_dim) * static_cast<int64_t>(sizeof(float)) <= 160 * 1024;
    shape.rows = fits ? ROWS : 0;
    return shape;
}

int dpe_attention_plain(const struct dpe_flash *call)
{
    DPE_FOR_DTYPE(call->dtype, launch<T>(call));
}

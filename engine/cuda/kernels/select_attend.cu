/* Attention over what a query sees under a selection. A thread block takes one query of one head,
 * or a part of its keys; its warps take the keys 32 at a time, each with a softmax of its own.
 * These are put together at the end, and those of parts by a second kernel. */
#include "engine/cuda/kernels/log_n.cuh"
#include "engine/cuda/kernels/select.cuh"

namespace
{

enum { KEYS = 32, AT_ONCE = 4 /* keys whose products a warp has under way */ };
/* Keys that a thread block takes at a time, and thread blocks of a call that is taken in parts. */
enum { ROUND = KEYS * DPE_SELECT_WARPS, MOST_PARTS = 2048 };

/* What a query sees, in order: the sinks, the chosen blocks, and all from `rest` on. */
struct seen {
    int64_t position;
    int64_t sinks, in_blocks, n; /* keys: sinks, of blocks, all */
    int64_t rest;
    const int32_t *blocks;
};

__device__ struct seen find_seen(const struct dpe_select &a, int64_t r, int64_t head)
{
    const struct dpe_selection &s = a.selection;
    struct seen found;
    int64_t m = dpe_select_position(a, r);
    int64_t candidates = dpe_selection_candidates(&s, m);
    int64_t unit = head / (a.n_heads / a.units);
    found.position = m;
    found.sinks = s.sinks < m + 1 ? s.sinks : m + 1;
    found.in_blocks = (candidates < s.k ? candidates : s.k) * s.block;
    found.rest = s.sinks + candidates * s.block;
    found.n = found.sinks + found.in_blocks + (found.rest <= m ? m + 1 - found.rest : 0);
    found.blocks = a.lists + (dpe_select_group(a, r) * a.units + unit) * a.chosen;
    return found;
}

/* The i-th key that a query sees. */
__device__ int64_t key_of(const struct dpe_select &a, const struct seen &seen, int64_t i)
{
    if (i < seen.sinks) {
        return i;
    }
    i -= seen.sinks;
    if (i < seen.in_blocks) {
        int64_t block = seen.blocks[i / a.selection.block];
        return a.selection.sinks + block * a.selection.block + i % a.selection.block;
    }
    return seen.rest + i - seen.in_blocks;
}

/* Where it stands. */
__device__ int64_t place_of(const struct dpe_select &a, const struct seen &seen, int64_t i,
                            int64_t n)
{
    int64_t near = seen.position - a.selection.local + 1;
    bool constant = a.selection.positions == DPE_PLACE_CONSTANT;
    return a.selection.positions == DPE_PLACE_PACKED ? i : constant && n < near ? near : n;
}

/* The band of a query and a key at these places, −1: masked. */
__device__ int band_of(const struct dpe_select &a, int64_t query, int64_t key)
{
    for (int b = 0; b < a.n_bands; b++) {
        const struct dpe_select_band &band = a.bands[b];
        int64_t x = band.kind == DPE_BAND_DISTANCE ? query - key
                    : band.kind == DPE_BAND_CHUNK  ? query / a.chunk - key / a.chunk
                                                   : key;
        if (x >= band.lo && x < band.hi) {
            return b;
        }
    }
    return -1;
}

/* Pair j by the tables of band b, or of band 0 where the head's mask leaves the pair out. */
template <class T>
__device__ float2 turned(const struct dpe_select &a, const uint8_t *mask, const T *row, bool key,
                         int b, int64_t place, int64_t j)
{
    const int64_t n_pairs = a.head_dim / 2;
    const struct dpe_select_band &band = a.bands[a.bands[b].per_head && mask[j] == 0 ? 0 : b];
    const float *cos = key ? band.k_cos : band.q_cos;
    const float *sin = key ? band.k_sin : band.q_sin;
    return dpe_select_pair(row, j, n_pairs, {cos + place * n_pairs, sin + place * n_pairs});
}

/* The keys that a warp takes, in shared memory. */
struct keys {
    int64_t row[KEYS], place[KEYS];
    int band[KEYS]; /* −1: none */
    float p[KEYS];
};

/* The product of each of AT_ONCE keys from `first` on with the query of its band. */
template <class T>
__device__ void products(const struct dpe_select &a, const uint8_t *mask, int64_t kv_head,
                         const float *q, const struct keys &keys, int first, float *sums)
{
    const int64_t n_pairs = a.head_dim / 2;
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
        sums[u] = 0.0f;
    }
    for (int64_t j = threadIdx.x % 32; j < n_pairs; j += 32) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            int b = keys.band[first + u];
            if (b >= 0) {
                const T *row = dpe_select_at<T>(a.k, a, kv_head, keys.row[first + u]);
                float2 k = turned(a, mask, row, true, b, keys.place[first + u], j);
                const float *x = q + b * a.head_dim;
                sums[u] = fmaf(x[j], k.x, fmaf(x[j + n_pairs], k.y, sums[u]));
            }
        }
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
        sums[u] = dpe_warp_sum(sums[u]);
    }
}

/* acc [head_dim] · rescale + the values of the keys, weighed. */
template <class T>
__device__ void add_values(const struct dpe_select &a, int64_t kv_head, const struct keys &keys,
                           float rescale, float *acc)
{
    for (int64_t c = threadIdx.x % 32; c < a.head_dim; c += 32) {
        float sum = acc[c] * rescale;
#pragma unroll 4
        for (int t = 0; t < KEYS; t++) {
            if (keys.band[t] >= 0) {
                const T *v = dpe_select_at<T>(a.v, a, kv_head, keys.row[t]);
                sum = fmaf(keys.p[t], dpe_float(v[c]), sum);
            }
        }
        acc[c] = sum;
    }
}

/* What a block has in dynamic shared memory, in floats: the query of each band, a sum of values for
 * each warp. */
__host__ __device__ inline int64_t shared_floats(int64_t n_bands, int64_t d)
{
    return (n_bands + DPE_SELECT_WARPS) * d;
}

/* Softmaxes over some keys each, put together: the i-th has the largest logit maxima[i] (−∞: none)
 * and the sum sums[i] of exp(logit − maxima[i]), both with this stride. */
struct together {
    float largest, total;
};
__device__ struct together put_together(const float *maxima, const float *sums, int n,
                                        int64_t stride)
{
    struct together all = {-INFINITY, 0.0f};
    for (int i = 0; i < n; i++) {
        all.largest = fmaxf(all.largest, maxima[i * stride]);
    }
    for (int i = 0; i < n; i++) {
        float weight = all.largest == -INFINITY ? 1.0f : expf(maxima[i * stride] - all.largest);
        all.total += sums[i * stride] * weight;
    }
    return all;
}

/* Component c of the sum of values of all of them, of which the i-th begins at o + i · stride. */
__device__ float weighed(const struct together &all, const float *maxima, int n, int64_t stride,
                         const float *o, int64_t o_stride)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        float weight = all.largest == -INFINITY ? 1.0f : expf(maxima[i * stride] - all.largest);
        sum = fmaf(o[i * o_stride], weight, sum);
    }
    return sum;
}

/* To a row of the result; at: row · n_heads + head. */
__device__ void write_lse(const struct dpe_select &a, int64_t at, const struct together &all)
{
    if (a.lse != NULL && threadIdx.x == 0) {
        a.lse[at] = all.largest + logf(all.total);
    }
}
template <class T>
__device__ void write_out(const struct dpe_select &a, int64_t at, int64_t c,
                          const struct together &all, float o)
{
    static_cast<T *>(a.out)[at * a.head_dim + c] =
        dpe_round<T>(all.total == 0.0f ? 0.0f : o / all.total);
}

/* Grid: rows, query heads, parts. */
template <class T>
__global__ void __launch_bounds__(DPE_SELECT_THREADS, 3)
    attend(const __grid_constant__ struct dpe_select a)
{
    DPE_SHARED(float, memory);
    __shared__ struct keys of_warp[DPE_SELECT_WARPS];
    __shared__ float factor;
    __shared__ float maxima[DPE_SELECT_WARPS];
    __shared__ float sums[DPE_SELECT_WARPS];
    const int64_t r = blockIdx.x;
    /* First, while few registers are in use: its logarithms are calls. */
    if (threadIdx.x == 0) {
        float n = static_cast<float>(dpe_select_position(a, r)) + 1.0f;
        factor = a.scale * dpe_log_n_factor(a.log_n, n);
    }
    const int64_t d = a.head_dim;
    const int64_t n_pairs = d / 2;
    const int64_t head = blockIdx.y;
    const int64_t kv_head = head / (a.n_heads / a.n_kv_heads);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const struct seen seen = find_seen(a, r, head);
    const int64_t place = a.selection.positions == DPE_PLACE_PACKED ? seen.n - 1 : seen.position;
    const int64_t offset = dpe_select_offset(a, r);
    const uint8_t *mask = a.mask == NULL ? NULL : a.mask + head * n_pairs;
    const T *query = static_cast<const T *>(a.q) + (r * a.n_heads + head) * d;
    float *q = memory;
    float *acc = q + (a.n_bands + warp) * d;
    struct keys &keys = of_warp[warp];
    for (int64_t i = threadIdx.x; i < a.n_bands * n_pairs; i += DPE_SELECT_THREADS) {
        int64_t j = i % n_pairs;
        int b = static_cast<int>(i / n_pairs);
        float2 x = turned(a, mask, query, false, b, place, j);
        q[b * d + j] = x.x;
        q[b * d + j + n_pairs] = x.y;
    }
    for (int64_t c = lane; c < d; c += 32) {
        acc[c] = 0.0f;
    }
    float largest = -INFINITY;
    float sum = 0.0f;
    __syncthreads();
    for (int64_t first = static_cast<int64_t>(blockIdx.z) * ROUND + warp * KEYS; first < seen.n;
         first += static_cast<int64_t>(gridDim.z) * ROUND) {
        int64_t i = first + lane;
        int64_t n = i < seen.n ? key_of(a, seen, i) : 0;
        int64_t at = place_of(a, seen, i, n);
        keys.band[lane] = i < seen.n ? band_of(a, place, at) : -1;
        keys.place[lane] = at;
        keys.row[lane] = dpe_select_row(a, offset, n);
        __syncwarp();
        float logit = -INFINITY;
        for (int t = 0; t < KEYS; t += AT_ONCE) {
            float dots[AT_ONCE];
            products<T>(a, mask, kv_head, q, keys, t, dots);
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                logit = lane == t + u && keys.band[lane] >= 0 ? factor * dots[u] : logit;
            }
        }
        float before = largest;
        largest = fmaxf(before, dpe_warp_max(logit));
        /* −∞ − −∞ is not a number, and NaN stays NaN. */
        bool none = largest == -INFINITY;
        float rescale = none ? 1.0f : expf(before - largest);
        float p = none && logit == -INFINITY ? 0.0f : expf(logit - largest);
        keys.p[lane] = p;
        sum = sum * rescale + dpe_warp_sum(p);
        __syncwarp();
        add_values<T>(a, kv_head, keys, rescale, acc);
        __syncwarp();
    }
    if (lane == 0) {
        maxima[warp] = largest;
        sums[warp] = sum;
    }
    __syncthreads();
    const int64_t at = r * a.n_heads + head;
    const struct together all = put_together(maxima, sums, DPE_SELECT_WARPS, 1);
    float *part = a.parts > 1 ? a.partial + (at * a.parts + blockIdx.z) * (d + 2) : NULL;
    for (int64_t c = threadIdx.x; c < d; c += DPE_SELECT_THREADS) {
        float o = weighed(all, maxima, DPE_SELECT_WARPS, 1, memory + a.n_bands * d + c, d);
        if (part != NULL) {
            part[c] = o;
        } else {
            write_out<T>(a, at, c, all, o);
        }
    }
    if (part == NULL) {
        write_lse(a, at, all);
    } else if (threadIdx.x == 0) {
        part[d] = all.largest;
        part[d + 1] = all.total;
    }
}

/* Grid: rows, query heads. */
template <class T>
__global__ void __launch_bounds__(DPE_SELECT_THREADS)
    combine_parts(const __grid_constant__ struct dpe_select a)
{
    const int64_t d = a.head_dim;
    const int64_t at = blockIdx.x * a.n_heads + blockIdx.y;
    const float *part = a.partial + at * a.parts * (d + 2);
    const struct together all = put_together(part + d, part + d + 1, a.parts, d + 2);
    for (int64_t c = threadIdx.x; c < d; c += DPE_SELECT_THREADS) {
        write_out<T>(a, at, c, all, weighed(all, part + d, a.parts, d + 2, part + c, d + 2));
    }
    write_lse(a, at, all);
}

} // namespace

int32_t dpe_select_parts(int64_t rows, int64_t n_heads, int64_t keys)
{
    int64_t most = MOST_PARTS / (rows * n_heads);
    int64_t rounds = (keys + ROUND - 1) / ROUND;
    most = most < rounds ? most : rounds;
    return most < 1 ? 1 : static_cast<int32_t>(most);
}

uint64_t dpe_select_partial_bytes(int64_t head_dim)
{
    return MOST_PARTS * static_cast<uint64_t>(head_dim + 2) * sizeof(float);
}

int dpe_select_attend(const struct dpe_select *call)
{
    dim3 grid(static_cast<unsigned>(call->rows), static_cast<unsigned>(call->n_heads),
              static_cast<unsigned>(call->parts));
    size_t shared =
        static_cast<size_t>(shared_floats(call->n_bands, call->head_dim)) * sizeof(float);
    int code = DPE_SELECT_LAUNCH(call, attend, grid, shared);
    grid.z = 1;
    return code != 0 || call->parts == 1 ? code : DPE_SELECT_LAUNCH(call, combine_parts, grid, 0);
}

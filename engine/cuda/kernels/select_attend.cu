/* Attention over what a query sees under a selection. A thread block takes one query of one head,
 * or a part of its keys; its warps take the keys 32 at a time, each with a softmax of its own.
 * These are put together at the end, and those of parts by a second kernel. Then branches of
 * attention are added by their gates. */
#include "engine/cuda/kernels/log_n.cuh"
#include "engine/cuda/kernels/select.cuh"

namespace
{

enum {
    KEYS = 32,
    AT_ONCE = 4,   /* keys whose products a warp has under way */
    MOST_HEADS = 4 /* of a thread block */
};
/* Keys that a thread block takes at a time, and thread blocks of a call that is taken in parts. */
enum { ROUND = KEYS * DPE_SELECT_WARPS, MOST_PARTS = 2048 };

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
__device__ float2 turned(const struct dpe_select &a, int64_t head, const T *row, bool key, int b,
                         int64_t place, int64_t j)
{
    const int64_t n_pairs = a.head_dim / 2;
    bool left_out = a.bands[b].per_head && a.mask[head * n_pairs + j] == 0;
    const struct dpe_select_band &band = a.bands[left_out ? 0 : b];
    const float *cos = key ? band.k_cos : band.q_cos;
    const float *sin = key ? band.k_sin : band.q_sin;
    return dpe_select_pair(row, j, n_pairs, {cos + place * n_pairs, sin + place * n_pairs});
}

/* The keys that a warp takes. */
template <int HEADS> struct keys {
    int64_t row[KEYS], place[KEYS];
    int band[KEYS]; /* −1: none */
    float p[HEADS][KEYS];
};

/* What a thread block has in shared memory: the queries of each head and band, for each warp and
 * head a sum of values, and the keys of the warps. */
template <int HEADS> struct shared {
    struct keys<HEADS> *keys; /* [warps] */
    float *q;                 /* [heads][n_bands][head_dim] */
    float *o;                 /* [heads][warps][head_dim] */
    float *maxima, *sums;     /* [heads][warps] */
    float *factor;            /* of a product as a logit */
};
template <int HEADS> __host__ __device__ inline size_t shared_bytes(const struct dpe_select &a)
{
    size_t floats = HEADS * static_cast<size_t>((a.n_bands + DPE_SELECT_WARPS) * a.head_dim);
    floats += 2 * HEADS * DPE_SELECT_WARPS + 1;
    return DPE_SELECT_WARPS * sizeof(struct keys<HEADS>) + floats * sizeof(float);
}
template <int HEADS>
__device__ struct shared<HEADS> lay_out(const struct dpe_select &a, unsigned char *memory) {
    struct shared<HEADS> all;
    all.keys = reinterpret_cast<struct keys<HEADS> *>(memory);
    all.q = reinterpret_cast<float *>(all.keys + DPE_SELECT_WARPS);
    all.o = all.q + HEADS * a.n_bands * a.head_dim;
    all.maxima = all.o + HEADS * DPE_SELECT_WARPS * a.head_dim;
    all.sums = all.maxima + HEADS * DPE_SELECT_WARPS;
    all.factor = all.sums + HEADS * DPE_SELECT_WARPS;
    return all;
}

/* The heads of a thread block: first … first + n − 1, of one KV head. */
struct heads {
    int64_t first, kv_head;
    int n;
};
template <int HEADS> __device__ struct heads find_heads(const struct dpe_select &a)
{
    const int group = static_cast<int>(a.n_heads / a.n_kv_heads);
    const int blocks = (group + HEADS - 1) / HEADS; /* of a KV head */
    const int in_group = static_cast<int>(blockIdx.y) % blocks * HEADS;
    struct heads found;
    found.kv_head = static_cast<int>(blockIdx.y) / blocks;
    found.first = found.kv_head * group + in_group;
    found.n = group - in_group < HEADS ? group - in_group : HEADS;
    return found;
}

/* The products of AT_ONCE keys from `first` on with the queries of their bands. */
template <class T, int HEADS>
__device__ void products(const struct dpe_select &a, const struct heads &heads, const float *q,
                         const struct keys<HEADS> &keys, int first, float (*sums)[AT_ONCE])
{
    const int64_t n_pairs = a.head_dim / 2;
#pragma unroll
    for (int i = 0; i < HEADS * AT_ONCE; i++) {
        sums[i / AT_ONCE][i % AT_ONCE] = 0.0f;
    }
    for (int64_t j = threadIdx.x % 32; j < n_pairs; j += 32) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int b = keys.band[first + u];
            if (b < 0) {
                continue;
            }
            const T *row = dpe_select_at<T>(a.k, a, heads.kv_head, keys.row[first + u]);
            float2 k = make_float2(0.0f, 0.0f);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                if (h < heads.n) {
                    const float *x = q + (h * a.n_bands + b) * a.head_dim;
                    k = h > 0 && !a.bands[b].per_head
                            ? k
                            : turned(a, heads.first + h, row, true, b, keys.place[first + u], j);
                    sums[h][u] = fmaf(x[j], k.x, fmaf(x[j + n_pairs], k.y, sums[h][u]));
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < HEADS * AT_ONCE; i++) {
        sums[i / AT_ONCE][i % AT_ONCE] = dpe_warp_sum(sums[i / AT_ONCE][i % AT_ONCE]);
    }
}

/* o [heads][warps][head_dim], from the warp's own on, · rescale + the values of the keys, weighed.
 */
template <class T, int HEADS>
__device__ void add_values(const struct dpe_select &a, const struct heads &heads,
                           const struct keys<HEADS> &keys, const float *rescale, float *o)
{
    const int64_t d = a.head_dim;
    for (int64_t c = threadIdx.x % 32; c < d; c += 32) {
        float sums[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            sums[h] = o[h * DPE_SELECT_WARPS * d + c] * rescale[h];
        }
#pragma unroll 4
        for (int t = 0; t < KEYS; t++) {
            if (keys.band[t] >= 0) {
                float v = dpe_float(dpe_select_at<T>(a.v, a, heads.kv_head, keys.row[t])[c]);
#pragma unroll
                for (int h = 0; h < HEADS; h++) {
                    sums[h] = fmaf(keys.p[h][t], v, sums[h]);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            o[h * DPE_SELECT_WARPS * d + c] = sums[h];
        }
    }
}

/* A warp's softmaxes go on with KEYS more keys: the lane's logit of each head, the largest logits
 * so far and the sums of weights, to keys.p and the factor of what was summed before. */
template <int HEADS>
__device__ void weigh(const float *logits, float *largest, float *sums, float *rescale,
                      struct keys<HEADS> &keys)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float before = largest[h];
        largest[h] = fmaxf(before, dpe_warp_max(logits[h]));
        /* −∞ − −∞ is not a number, and NaN stays NaN. */
        bool none = largest[h] == -INFINITY;
        rescale[h] = none ? 1.0f : expf(before - largest[h]);
        float p = none && logits[h] == -INFINITY ? 0.0f : expf(logits[h] - largest[h]);
        keys.p[h][threadIdx.x % 32] = p;
        sums[h] = sums[h] * rescale[h] + dpe_warp_sum(p);
    }
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

/* The queries of a block's heads in each band, and zeros where values are summed. */
template <class T, int HEADS>
__device__ void begin(const struct dpe_select &a, const struct heads &heads, int64_t place,
                      const struct shared<HEADS> &memory)
{
    const int64_t d = a.head_dim;
    const int64_t n_pairs = d / 2;
    const T *q = static_cast<const T *>(a.q) + (blockIdx.x * a.n_heads + heads.first) * d;
    for (int64_t i = threadIdx.x; i < heads.n * a.n_bands * n_pairs; i += DPE_SELECT_THREADS) {
        int64_t j = i % n_pairs;
        int b = static_cast<int>(i / n_pairs % a.n_bands);
        int64_t h = i / n_pairs / a.n_bands;
        float2 x = turned(a, heads.first + h, q + h * d, false, b, place, j);
        float *to = memory.q + (h * a.n_bands + b) * d;
        to[j] = x.x;
        to[j + n_pairs] = x.y;
    }
    for (int64_t i = threadIdx.x; i < HEADS * DPE_SELECT_WARPS * d; i += DPE_SELECT_THREADS) {
        memory.o[i] = 0.0f;
    }
}

/* What the warps of a block found for its h-th head, put together. */
template <class T, int HEADS>
__device__ void end(const struct dpe_select &a, int64_t head, int h,
                    const struct shared<HEADS> &memory)
{
    const int64_t d = a.head_dim;
    const int64_t at = blockIdx.x * a.n_heads + head;
    const float *maxima = memory.maxima + h * DPE_SELECT_WARPS;
    const float *sums = memory.sums + h * DPE_SELECT_WARPS;
    const float *o = memory.o + h * DPE_SELECT_WARPS * d;
    const struct together all = put_together(maxima, sums, DPE_SELECT_WARPS, 1);
    float *part = a.parts > 1 ? a.partial + (at * a.parts + blockIdx.z) * (d + 2) : NULL;
    for (int64_t c = threadIdx.x; c < d; c += DPE_SELECT_THREADS) {
        float sum = weighed(all, maxima, DPE_SELECT_WARPS, 1, o + c, d);
        if (part != NULL) {
            part[c] = sum;
        } else {
            write_out<T>(a, at, c, all, sum);
        }
    }
    if (part == NULL) {
        write_lse(a, at, all);
    } else if (threadIdx.x == 0) {
        part[d] = all.largest;
        part[d + 1] = all.total;
    }
}

/* The sum of the values of the threads up to this one, and of all. Ends with a barrier. */
__device__ int sum_up_to(int value, int *all)
{
    __shared__ int parts[DPE_SELECT_WARPS];
    const unsigned warp = threadIdx.x / 32;
    for (unsigned by = 1; by < 32; by *= 2) {
        int before = __shfl_up_sync(0xffffffffU, value, by);
        value += threadIdx.x % 32 >= by ? before : 0;
    }
    if (threadIdx.x % 32 == 31) {
        parts[warp] = value;
    }
    __syncthreads();
    *all = 0;
    for (unsigned w = 0; w < DPE_SELECT_WARPS; w++) {
        value += w < warp ? parts[w] : 0;
        *all += parts[w];
    }
    __syncthreads();
    return value;
}

/* Grid: rows, units. Keys at chosen distances before each chosen block, and before the keys after
 * the last candidate, that are in no block and are no sinks. */
__global__ void __launch_bounds__(DPE_SELECT_THREADS)
    count_before(const __grid_constant__ struct dpe_select a)
{
    const int64_t heads = a.n_heads / a.units;
    const struct dpe_seen seen = dpe_seen_find(a, blockIdx.x, blockIdx.y * heads);
    const int64_t n = dpe_seen_blocks(a, seen);
    int32_t *before = a.before + (blockIdx.x * a.units + blockIdx.y) * (a.chosen + 1);
    int sum = 0;
    for (int64_t first = 0; first <= n; first += DPE_SELECT_THREADS) {
        int64_t b = first + threadIdx.x;
        int between = 0;
        int all = 0;
        if (b <= n) {
            int64_t from =
                b == 0 ? a.selection.sinks : dpe_seen_start(a, seen, b - 1) + a.selection.block;
            between =
                static_cast<int>(dpe_seen_slashes_before(a, seen, dpe_seen_start(a, seen, b)) -
                                 dpe_seen_slashes_before(a, seen, from));
        }
        int here = sum + sum_up_to(between, &all);
        if (b <= n) {
            before[b] = here;
        }
        sum += all;
    }
}

/* Grid: rows, heads HEADS at a time, parts. */
template <class T, int HEADS>
__global__ void __launch_bounds__(DPE_SELECT_THREADS, 2)
    attend(const __grid_constant__ struct dpe_select a)
{
    DPE_SHARED(unsigned char, bytes);
    const struct shared<HEADS> memory = lay_out<HEADS>(a, bytes);
    /* First, while few registers are in use: its logarithms are calls. */
    if (threadIdx.x == 0) {
        float n = static_cast<float>(dpe_select_position(a, blockIdx.x)) + 1.0f;
        *memory.factor = a.scale * dpe_log_n_factor(a.log_n, n);
    }
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const struct heads heads = find_heads<HEADS>(a);
    const struct dpe_seen seen = dpe_seen_find(a, blockIdx.x, heads.first);
    const int64_t place = dpe_seen_query(a, seen);
    const int64_t offset = dpe_select_offset(a, blockIdx.x);
    struct keys<HEADS> &keys = memory.keys[warp];
    float largest[HEADS];
    float sums[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        largest[h] = -INFINITY;
        sums[h] = 0.0f;
    }
    begin<T, HEADS>(a, heads, place, memory);
    __syncthreads();
    for (int64_t first = static_cast<int64_t>(blockIdx.z) * ROUND + warp * KEYS; first < seen.n;
         first += static_cast<int64_t>(gridDim.z) * ROUND) {
        int64_t i = first + lane;
        int64_t at = 0;
        int64_t n = i < seen.n ? dpe_seen_key(a, seen, i, &at) : -1;
        const int band = n >= 0 ? band_of(a, place, at) : -1;
        keys.band[lane] = band;
        keys.place[lane] = at;
        keys.row[lane] = dpe_select_row(a, offset, n >= 0 ? n : 0);
        __syncwarp();
        float logits[HEADS];
        float rescale[HEADS];
#pragma unroll 1
        for (int t = 0; t < KEYS; t += AT_ONCE) {
            float dots[HEADS][AT_ONCE];
            products<T, HEADS>(a, heads, memory.q, keys, t, dots);
#pragma unroll
            for (int u = 0; u < HEADS * AT_ONCE; u++) {
                bool own = lane == t + u % AT_ONCE;
                float logit =
                    band >= 0 ? *memory.factor * dots[u / AT_ONCE][u % AT_ONCE] : -INFINITY;
                logits[u / AT_ONCE] = own ? logit : logits[u / AT_ONCE];
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS && a.cap > 0.0f; h++) {
            logits[h] = band >= 0 ? dpe_select_capped(a, logits[h]) : -INFINITY;
        }
        weigh<HEADS>(logits, largest, sums, rescale, keys);
        __syncwarp();
        add_values<T, HEADS>(a, heads, keys, rescale, memory.o + warp * a.head_dim);
        __syncwarp();
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (lane == 0) {
            memory.maxima[h * DPE_SELECT_WARPS + warp] = largest[h];
            memory.sums[h * DPE_SELECT_WARPS + warp] = sums[h];
        }
    }
    __syncthreads();
    for (int h = 0; h < heads.n; h++) {
        end<T, HEADS>(a, heads.first + h, h, memory);
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

template <class T> static int launch(const struct dpe_select *call)
{
    const int64_t group = call->n_heads / call->n_kv_heads;
    /* Heads that share their keys, where they do and their room is there on every card. */
    bool share =
        group > 1 && call->units < call->n_heads && shared_bytes<MOST_HEADS>(*call) <= 96 * 1024;
    int64_t blocks =
        share ? (group + MOST_HEADS - 1) / MOST_HEADS * call->n_kv_heads : call->n_heads;
    dim3 grid(static_cast<unsigned>(call->rows), static_cast<unsigned>(blocks),
              static_cast<unsigned>(call->parts));
    int code = 0;
    if (call->before != NULL) {
        const dim3 units(grid.x, static_cast<unsigned>(call->units));
        code = dpe_launch(count_before, units, DPE_SELECT_THREADS, 0, *call);
    }
    code = code != 0 ? code
           : share   ? dpe_launch((attend<T, MOST_HEADS>), grid, DPE_SELECT_THREADS,
                                  shared_bytes<MOST_HEADS>(*call), *call)
                     : dpe_launch((attend<T, 1>), grid, DPE_SELECT_THREADS, shared_bytes<1>(*call),
                                  *call);
    grid.y = static_cast<unsigned>(call->n_heads);
    grid.z = 1;
    return code != 0 || call->parts == 1
               ? code
               : dpe_launch((combine_parts<T>), grid, DPE_SELECT_THREADS, 0, *call);
}

int dpe_select_attend(const struct dpe_select *call)
{
    DPE_FOR_DTYPE(call->dtype, launch<T>(call));
}

/* The branches of attention (NSA), added by their gates. */

namespace
{

template <class T> __device__ inline float gate(const T *gates, int64_t i)
{
    return 1.0f / (1.0f + expf(-dpe_float(gates[i])));
}

template <class T>
__global__ void __launch_bounds__(DPE_GRID_THREADS)
    merge(const T *gates, const T *compressed, const T *windowed, int64_t heads, int64_t head_dim,
          T *out)
{
    for (int64_t i = dpe_this_thread(); i < heads * head_dim; i += dpe_all_threads()) {
        const int64_t at = i / head_dim * 3;
        float sum =
            gate(gates, at) * dpe_float(compressed[i]) + gate(gates, at + 1) * dpe_float(out[i]);
        if (windowed != NULL) {
            sum += gate(gates, at + 2) * dpe_float(windowed[i]);
        }
        out[i] = dpe_round<T>(sum);
    }
}

template <class T>
int launch_merge(const void *gates, const void *compressed, const void *windowed, int64_t heads,
                 int64_t head_dim, void *out)
{
    return dpe_launch(merge<T>, dpe_element_blocks(heads * head_dim), DPE_GRID_THREADS, 0,
                      static_cast<const T *>(gates), static_cast<const T *>(compressed),
                      static_cast<const T *>(windowed), heads, head_dim, static_cast<T *>(out));
}

} // namespace

int dpe_select_merge(enum dpe_dtype dtype, const void *gates, const void *compressed,
                     const void *windowed, int64_t heads, int64_t head_dim, void *out)
{
    DPE_FOR_DTYPE(dtype, launch_merge<T>(gates, compressed, windowed, heads, head_dim, out));
}

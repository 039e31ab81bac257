/* Routed experts: which of them a row takes, which rows each has, and the products of all of them
 * in one launch. What depends on the rows that an expert has is read on the device alone: the host
 * waits for nothing, and a step of decoding can become a graph. */
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/kernels.h"

/* ----------------------------------------------------------------------------------- the router */

namespace
{

enum { ALL_LANES = 0xffffffff };

__device__ int lane_of(void)
{
    return static_cast<int>(threadIdx.x) % 32;
}

/* The best of a warp's candidates: the largest key, of equal ones the lowest index; index -1: a
 * lane has none. */
__device__ void best_of_warp(int64_t *index, float *key)
{
    for (int by = 16; by > 0; by /= 2) {
        const int64_t other = __shfl_xor_sync(ALL_LANES, *index, by);
        const float its = __shfl_xor_sync(ALL_LANES, *key, by);
        if (other >= 0 && (*index < 0 || its > *key || (!(*key > its) && other < *index))) {
            *index = other;
            *key = its;
        }
    }
    /* Lanes may see different NaNs. */
    *index = __shfl_sync(ALL_LANES, *index, 0);
    *key = __shfl_sync(ALL_LANES, *key, 0);
}

/* The two largest keys of a group, added up. */
__device__ float group_score(const float *scores, const float *shift, int64_t n)
{
    float first = -INFINITY;
    float second = -INFINITY;
    for (int64_t e = 0; e < n; e++) {
        float key = scores[e] + (shift != NULL ? shift[e] : 0.0f);
        second = fmaxf(second, fminf(first, key));
        first = fmaxf(first, key);
    }
    return first + second;
}

/* Bit g: experts of group g may be chosen. Lane l has groups l and l + 32. */
__device__ uint64_t groups_of(const float *scores, const float *shift, int64_t n,
                              const struct dpe_router &router)
{
    const int64_t each = router.groups > 1 ? n / router.groups : n;
    uint64_t open = router.groups > 1 ? 0 : 1;
    float own[2] = {0.0f, 0.0f};
    for (int i = 0; i < 2 && router.groups > 1; i++) {
        const int64_t g = lane_of() + 32 * i;
        own[i] = g < router.groups
                     ? group_score(scores + g * each, shift != NULL ? shift + g * each : NULL, each)
                     : 0.0f;
    }
    for (int64_t taken = 0; router.groups > 1 && taken < router.of_these; taken++) {
        int64_t best = -1;
        float most = 0.0f;
        for (int i = 0; i < 2; i++) {
            const int64_t g = lane_of() + 32 * i;
            if (g < router.groups && (open >> g & 1) == 0 && (best < 0 || own[i] > most)) {
                best = g;
                most = own[i];
            }
        }
        best_of_warp(&best, &most);
        open |= UINT64_C(1) << best;
    }
    return open;
}

/* By what experts are compared. */
__device__ float key_of(const float *scores, const float *shift, int64_t e)
{
    return scores[e] + (shift != NULL ? shift[e] : 0.0f);
}

/* Scores become weights before experts are compared, but where weights come before the experts. */
__device__ void make_weights(float *scores, int64_t n, bool sigmoid)
{
    float largest = -INFINITY;
    float total = 0.0f;
    for (int64_t e = lane_of(); e < n; e += 32) {
        largest = scores[e] > largest ? scores[e] : largest;
    }
    largest = dpe_warp_max(largest);
    for (int64_t e = lane_of(); e < n; e += 32) {
        scores[e] = sigmoid ? 1.0f / (1.0f + expf(-scores[e])) : expf(scores[e] - largest);
        total += scores[e];
    }
    total = sigmoid ? 1.0f : dpe_warp_sum(total);
    for (int64_t e = lane_of(); e < n; e += 32) {
        scores[e] /= total;
    }
}

/* A warp a row; lane l has experts l, l + 32, … Each one that is chosen comes after the one before,
 * in the order of keys and, of equal ones, of experts. */
__device__ void weigh(const struct dpe_routing &c, float *scores)
{
    const struct dpe_router &router = c.router;
    const int64_t n = c.n_experts;
    const int64_t each = router.groups > 1 ? n / router.groups : n;
    float last = INFINITY;
    int64_t last_at = -1;
    float chosen = 0.0f;
    if (!router.before) {
        make_weights(scores, n, router.sigmoid);
    }
    __syncwarp();
    const uint64_t open = groups_of(scores, c.shift, n, router);
    for (int64_t i = 0; i < c.per_token; i++) {
        int64_t best = -1;
        float most = 0.0f;
        for (int64_t e = lane_of(); e < n; e += 32) {
            const float key = key_of(scores, c.shift, e);
            const bool after = key < last || (key == last && e > last_at);
            if (after && (open >> (e / each) & 1) != 0 && (best < 0 || key > most)) {
                best = e;
                most = key;
            }
        }
        best_of_warp(&best, &most);
        if (best < 0) {
            break; /* scores that are not numbers */
        }
        chosen += scores[best];
        last = most;
        last_at = best;
    }
    __syncwarp();
    const float scale = router.scale > 0.0 ? (float)router.scale : 1.0f;
    int64_t before = 0; /* what is not a number counts as chosen */
    for (int64_t first = 0; first < n; first += 32) {
        const int64_t e = first + lane_of();
        const float key = e < n ? key_of(scores, c.shift, e) : 0.0f;
        const bool early = key > last || (key == last && e <= last_at);
        const bool closed = e < n && (key != key || (early && (open >> (e / each) & 1) != 0));
        const uint32_t votes = __ballot_sync(ALL_LANES, closed);
        const bool taken =
            closed && before + __popc(votes & ((1U << lane_of()) - 1U)) < c.per_token;
        if (e < n) {
            const float score = router.before ? 1.0f / (1.0f + expf(-scores[e])) : scores[e];
            const float weight = (c.normalised ? score / (chosen + 1e-20f) : score) * scale;
            const float factor = c.factors != NULL ? c.factors[e] : 1.0f;
            scores[e] = taken ? weight * factor : 0.0f;
        }
        before += __popc(votes);
    }
}

__global__ void choose(const struct dpe_routing c)
{
    for (int64_t r = dpe_this_thread() / 32; r < c.rows; r += dpe_all_threads() / 32) {
        weigh(c, c.scores + r * c.n_experts);
    }
}

/* Rows that take each expert. */
__global__ void count(const float *weights, int64_t rows, int64_t n, int32_t *counts)
{
    for (int64_t e = blockIdx.x; e < n; e += gridDim.x) {
        int taken = 0;
        for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
            taken += weights[r * n + e] != 0.0f ? 1 : 0;
        }
        taken = dpe_block_sum(taken);
        if (threadIdx.x == 0) {
            counts[e] = taken;
        }
    }
}

/* The rows of each expert in their order, one expert after the other. A block an expert. Weights
 * that are wrong may have more than there is room for. */
__global__ void sort(const float *weights, const int32_t *counts, int64_t rows, int64_t n,
                     int64_t most, int32_t *routes)
{
    for (int64_t e = blockIdx.x; e < n; e += gridDim.x) {
        int begin = 0;
        for (int64_t i = threadIdx.x; i < e; i += blockDim.x) {
            begin += counts[i];
        }
        begin = dpe_block_sum(begin);
        for (int64_t first = 0; first < rows; first += blockDim.x) {
            const int64_t r = first + threadIdx.x;
            const bool has = r < rows && weights[r * n + e] != 0.0f;
            int all = 0;
            const int place = dpe_rank_among(has, &all);
            if (has && begin + place < most) {
                routes[begin + place] = static_cast<int32_t>(r);
            }
            begin += all;
        }
    }
}

/* Where row r is among the rows of an expert, which ascend. */
__device__ int64_t find_row(const int32_t *routes, int64_t begin, int64_t n, int64_t r)
{
    while (n > 1) {
        const int64_t half = n / 2;
        const bool above = routes[begin + half] <= r;
        begin += above ? half : 0;
        n = above ? n - half : half;
    }
    return begin;
}

/* Sum over the lanes before this one; *all: over all of them. */
__device__ int64_t sum_before(int64_t value, int64_t *all)
{
    int64_t sum = value;
    for (int by = 1; by < 32; by *= 2) {
        const int64_t other = __shfl_up_sync(ALL_LANES, sum, static_cast<unsigned>(by));
        sum += lane_of() >= by ? other : 0;
    }
    *all = __shfl_sync(ALL_LANES, sum, 31);
    return sum - value;
}

/* out of a row += the weighted results of its experts, in their order. A block a row; its first
 * warp finds them. */
__global__ void combine(const struct dpe_combined c)
{
    enum { AT_ONCE = 64 };
    __shared__ int64_t places[AT_ONCE];
    __shared__ float by[AT_ONCE];
    __shared__ int n_places;
    __shared__ int64_t seen; /* experts so far */
    for (int64_t r = blockIdx.x; r < c.rows; r += gridDim.x) {
        int64_t begin = 0; /* of the first warp, as is `next` */
        int64_t next = 0;
        bool more = true;
        while (more) {
            int found = 0;
            for (; threadIdx.x < 32 && next < c.n_experts && found <= AT_ONCE - 32; next += 32) {
                const int64_t e = next + lane_of();
                const int64_t count = e < c.n_experts ? c.counts[e] : 0;
                const float weight = e < c.n_experts ? c.weights[r * c.n_experts + e] : 0.0f;
                int64_t all = 0;
                const int64_t at = begin + sum_before(count, &all);
                const bool has = weight != 0.0f && at < c.most;
                const uint32_t votes = __ballot_sync(ALL_LANES, has);
                if (has) {
                    const int place = found + __popc(votes & ((1U << lane_of()) - 1U));
                    const int64_t left = c.most - at;
                    places[place] = find_row(c.routes, at, count < left ? count : left, r);
                    by[place] = c.weighed ? 1.0f : weight;
                }
                found += __popc(votes);
                begin += all;
            }
            if (threadIdx.x == 0) {
                n_places = found;
                seen = next;
            }
            __syncthreads();
            const int some = n_places;
            more = seen < c.n_experts;
            for (int64_t i = threadIdx.x; i < c.width; i += blockDim.x) {
                float sum = c.out[r * c.width + i];
                for (int p = 0; p < some; p++) {
                    sum += by[p] * c.made[places[p] * c.width + i];
                }
                c.out[r * c.width + i] = sum;
            }
            __syncthreads();
        }
    }
}

} // namespace

int dpe_kernel_choose_experts(const struct dpe_routing *choice)
{
    return dpe_launch(choose, dpe_element_blocks(choice->rows * 32), DPE_GRID_THREADS, 0, *choice);
}

int dpe_kernel_route(const float *weights, int64_t rows, int64_t n_experts, int64_t most,
                     int32_t *counts, int32_t *routes)
{
    const unsigned blocks = dpe_row_blocks(n_experts);
    const int code =
        dpe_launch(count, blocks, DPE_GRID_THREADS, 0, weights, rows, n_experts, counts);
    return code != 0
               ? code
               : dpe_launch(sort, blocks, DPE_GRID_THREADS, 0, weights,
                            static_cast<const int32_t *>(counts), rows, n_experts, most, routes);
}

int dpe_kernel_combine(const struct dpe_combined *combined)
{
    return dpe_launch(combine, dpe_row_blocks(combined->rows), DPE_GRID_THREADS, 0, *combined);
}

/* ------------------------------------------------------------------------------ grouped products
 */

/* out [routed rows][n] = x · Wᵀ + bias, W that of a row's expert. A tile is rows of one expert: as
 * many blocks as there can be tiles at most, and those beyond the last end at once. */

namespace
{

enum {
    TILE_ROWS = 64,
    TILE_COLUMNS = 128,
    TILE_DEPTH = 32, /* four copies of 16 bytes a row */
    STAGES = 3,
    TILE_THREADS = 128,
    BYTES_X = TILE_ROWS * TILE_DEPTH * 2,
    BYTES_STAGE = BYTES_X + TILE_COLUMNS * TILE_DEPTH * 2, /* 12 KiB; 36 KiB a block */
};

/* Rows first … end−1 of all that are routed, of expert e. */
struct routed_tile {
    int64_t e, first, end;
};

/* By what the product of a routed row is multiplied. */
__device__ __forceinline__ float weight_of(const struct dpe_grouped &g, int64_t e, int64_t row)
{
    return g.weights != NULL ? g.weights[g.routes[row] * g.n_experts + e] : 1.0f;
}

/* By all lanes of a warp together. */
__device__ bool find_tile(const struct dpe_grouped &g, int64_t tile, int rows, routed_tile *found)
{
    int64_t begin = 0;
    int64_t tiles_before = 0;
    for (int64_t first = 0; first < g.n_experts; first += 32) {
        const int64_t e = first + lane_of();
        int64_t all = 0;
        int64_t all_tiles = 0;
        const int64_t count = e < g.n_experts ? g.counts[e] : 0;
        const int64_t at = begin + sum_before(count, &all);
        const int64_t left = at < g.most ? g.most - at : 0;
        const int64_t n = count < left ? count : left;
        const int64_t tiles = (n + rows - 1) / rows;
        const int64_t own = tile - tiles_before - sum_before(tiles, &all_tiles);
        const uint32_t votes = __ballot_sync(ALL_LANES, own >= 0 && own < tiles);
        if (votes != 0) {
            const int lane = __popc((votes & (~votes + 1U)) - 1U); /* the lowest */
            const int64_t start = __shfl_sync(ALL_LANES, at + own * rows, lane);
            const int64_t end = __shfl_sync(ALL_LANES, at + n, lane);
            *found = {first + lane, start, start + rows < end ? start + rows : end};
            return true;
        }
        begin += all;
        tiles_before += all_tiles;
    }
    return false;
}

enum { FEW_COLUMNS = 8 /* of a warp */, FEW_WARPS = DPE_GRID_THREADS / 32 };

/* x times FEW_COLUMNS weights, N elements of each by a lane at a time; missing columns read the
 * last. */
template <class T, int N>
__device__ __forceinline__ void multiply_few(const T *x, const T *w, int64_t k, int columns,
                                             float (&sums)[FEW_COLUMNS])
{
    for (int64_t at = threadIdx.x % 32 * N; at < k; at += 32 * N) {
        float b[N];
        float a[FEW_COLUMNS][N];
        dpe_some<T, N>::load(x + at, b);
#pragma unroll
        for (int c = 0; c < FEW_COLUMNS; c++) {
            dpe_some<T, N>::load(w + (c < columns ? c : columns - 1) * k + at, a[c]);
        }
#pragma unroll
        for (int c = 0; c < FEW_COLUMNS; c++) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                sums[c] = fmaf(a[c][i], b[i], sums[c]);
            }
        }
    }
}

/* A block one row and some columns, a warp FEW_COLUMNS of them: weights come from memory once a
 * row. */
template <class T, class O, int N> __global__ void grouped_few(const struct dpe_grouped g)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t across = (g.n + FEW_WARPS * FEW_COLUMNS - 1) / (FEW_WARPS * FEW_COLUMNS);
    for (int64_t block = blockIdx.x; block < g.most * across; block += gridDim.x) {
        const int64_t row = block / across;
        const int64_t from = (block % across * FEW_WARPS + threadIdx.x / 32) * FEW_COLUMNS;
        const int64_t left = g.n - from;
        const int columns = left < FEW_COLUMNS ? static_cast<int>(left) : +FEW_COLUMNS;
        routed_tile tile;
        if (columns < 1 || !find_tile(g, row, 1, &tile)) {
            continue;
        }
        const T *x = static_cast<const T *>(g.x) + (g.gathers ? g.routes[row] : row) * g.k;
        const T *w = static_cast<const T *>(g.matrices[tile.e].weight) + from * g.k;
        const float *bias = static_cast<const float *>(g.matrices[tile.e].bias);
        float sums[FEW_COLUMNS] = {};
        float own = 0.0f;
        multiply_few<T, N>(x, w, g.k, columns, sums);
#pragma unroll
        for (int c = 0; c < FEW_COLUMNS; c++) {
            sums[c] = dpe_warp_sum(sums[c]);
            own = lane == c ? sums[c] : own;
        }
        if (lane < columns) {
            O *out = static_cast<O *>(g.out) + row * g.n + from;
            own *= weight_of(g, tile.e, row);
            out[lane] = dpe_round<O>(bias != NULL ? own + bias[from + lane] : own);
        }
    }
}

/* Where 16 bytes of a row of a tile are in shared memory: eight rows' copies of one place meet no
 * bank twice. */
__device__ __forceinline__ uint32_t place_in_tile(int row, int copy)
{
    return static_cast<uint32_t>(row * 64 + ((copy ^ (row >> 1 & 3)) << 4));
}

/* Copies `depth` on of N · 32 rows, four threads a row; rows beyond the last and what is beyond k
 * are 0. */
template <class T, int N>
__device__ __forceinline__ void load_rows(uint32_t to, const T *const (&rows)[N],
                                          const bool (&real)[N], int64_t depth, int64_t k)
{
    const int copy = static_cast<int>(threadIdx.x) % 4;
    const int64_t at = depth + copy * 8;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const bool there = real[i] && at < k;
        dpe_copy_async_or_zero(to + place_in_tile(i * 32 + static_cast<int>(threadIdx.x) / 4, copy),
                               there ? rows[i] + at : rows[i], there);
    }
}

/* 32 × 64 of a tile by a warp: c += x · wᵀ over TILE_DEPTH. */
template <class T>
__device__ __forceinline__ void multiply_tile(uint32_t x, uint32_t w, float (&c)[2][8][4])
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int row = warp % 2 * 32 + lane % 16;
    const int column = warp / 2 * 64 + lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int step = 0; step < TILE_DEPTH / 16; step++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            dpe_ldmatrix(a[i], x + place_in_tile(row + i * 16, step * 2 + lane / 16));
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b[4];
            dpe_ldmatrix(b, w + place_in_tile(column + j * 16, step * 2 + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                dpe_mma(T(), c[i][2 * j], a[i], b[0], b[1]);
                dpe_mma(T(), c[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

template <class T, class O>
__device__ __forceinline__ void store_tile(const struct dpe_grouped &g, const routed_tile &tile,
                                           int64_t from, const float (&c)[2][8][4])
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const float *bias = static_cast<const float *>(g.matrices[tile.e].bias);
    O *out = static_cast<O *>(g.out);
#pragma unroll
    for (int h = 0; h < 4; h++) {
        const int64_t row = tile.first + warp % 2 * 32 + h * 8 + lane / 4;
        const float by = row < tile.end ? weight_of(g, tile.e, row) : 0.0f;
#pragma unroll
        for (int i = 0; i < 8 * 2; i++) {
            const int64_t column = from + warp / 2 * 64 + i / 2 * 8 + lane % 4 * 2 + i % 2;
            if (row < tile.end && column < g.n) {
                const float sum = c[h / 2][i / 2][h % 2 * 2 + i % 2] * by;
                out[row * g.n + column] = dpe_round<O>(bias != NULL ? sum + bias[column] : sum);
            }
        }
    }
}

template <class T, class O>
__global__ void __launch_bounds__(TILE_THREADS) grouped_mma(const struct dpe_grouped g)
{
    DPE_SHARED(unsigned char, memory);
    const int64_t across = (g.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const int64_t from = blockIdx.x % across * TILE_COLUMNS;
    routed_tile tile;
    if (!find_tile(g, blockIdx.x / across, TILE_ROWS, &tile)) {
        return;
    }
    const uint32_t shared = dpe_shared_address(memory);
    const T *x[2];
    const T *w[4];
    bool real_x[2];
    bool real_w[4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t row = tile.first + i * 32 + threadIdx.x / 4;
        real_x[i] = row < tile.end;
        const int64_t known = real_x[i] ? row : tile.first;
        x[i] = static_cast<const T *>(g.x) + (g.gathers ? g.routes[known] : known) * g.k;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64_t column = from + i * 32 + threadIdx.x / 4;
        real_w[i] = column < g.n;
        w[i] =
            static_cast<const T *>(g.matrices[tile.e].weight) + (real_w[i] ? column : from) * g.k;
    }
    const int steps = static_cast<int>((g.k + TILE_DEPTH - 1) / TILE_DEPTH);
    float c[2][8][4] = {};
    for (int s = 0; s < steps + STAGES - 1; s++) {
        if (s < steps) { /* three under way, and the one that is multiplied has landed */
            const uint32_t to = shared + s % STAGES * BYTES_STAGE;
            load_rows<T, 2>(to, x, real_x, s * static_cast<int64_t>(TILE_DEPTH), g.k);
            load_rows<T, 4>(to + BYTES_X, w, real_w, s * static_cast<int64_t>(TILE_DEPTH), g.k);
        }
        dpe_copy_async_commit();
        if (s >= STAGES - 1) {
            const uint32_t at = shared + (s - STAGES + 1) % STAGES * BYTES_STAGE;
            dpe_copy_async_wait<STAGES - 1>();
            __syncthreads();
            multiply_tile<T>(at, at + BYTES_X, c);
            __syncthreads();
        }
    }
    store_tile<T, O>(g, tile, from, c);
}

template <class T, class O> int grouped_of(const struct dpe_grouped &g)
{
    if constexpr (sizeof(T) == 2) {
        /* Of fewer rows most experts have one at most: a tile would be empty but for it. */
        if (g.tiles && g.k % 8 == 0 && g.most > g.n_experts) {
            const int64_t across = (g.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
            const int64_t tiles = (g.most + TILE_ROWS - 1) / TILE_ROWS + g.n_experts;
            return dpe_launch(grouped_mma<T, O>, static_cast<unsigned>(tiles * across),
                              TILE_THREADS, STAGES * BYTES_STAGE, g);
        }
    }
    const int64_t across = (g.n + FEW_WARPS * FEW_COLUMNS - 1) / (FEW_WARPS * FEW_COLUMNS);
    auto kernel = g.k % 8 == 0 ? grouped_few<T, O, 8> : grouped_few<T, O, 1>;
    return dpe_launch(kernel, dpe_row_blocks(g.most * across), DPE_GRID_THREADS, 0, g);
}

} // namespace

int dpe_kernel_grouped(const struct dpe_grouped *grouped)
{
    if (grouped->out_float) {
        DPE_FOR_DTYPE(grouped->dtype, (grouped_of<T, float>(*grouped)));
    }
    DPE_FOR_DTYPE(grouped->dtype, (grouped_of<T, T>(*grouped)));
}

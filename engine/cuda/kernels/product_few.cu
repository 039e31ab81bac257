/* Products of few rows with weights, as a step of decoding has them. */
#include "engine/cuda/kernels/activation.cuh"
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/kernels.h"

namespace
{

/* Eight weights of a column of each of W matrices from each of AHEAD places. */
template <class T, int W, int AHEAD> struct few_weights {
    typename dpe_some<T, 8>::words eights[AHEAD][W];
};

/* Those from element `first` on, the places `step` apart. */
template <class T, int W, int AHEAD>
__device__ __forceinline__ void load_weights(const T *const (&rows)[W], int64_t first, int64_t step,
                                             few_weights<T, W, AHEAD> &to)
{
#pragma unroll
    for (int i = 0; i < AHEAD * W; i++) {
        dpe_some<T, 8>::load_once(rows[i % W] + first + i / W * step, to.eights[i / W][i % W]);
    }
}

/* The same times R rows of x, added to the sums. */
template <class T, int W, int R, int AHEAD>
__device__ __forceinline__ void add_weights(const few_weights<T, W, AHEAD> &a, const T *x,
                                            int64_t first, int64_t step, int64_t k,
                                            float (&sums)[W][R])
{
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            float b[8];
            dpe_some<T, 8>::load(x + r * k + first + j * step, b);
#pragma unroll
            for (int w = 0; w < W; w++) {
                float eight[8];
                dpe_some<T, 8>::unpack(a.eights[j][w], eight);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    sums[w][r] = fmaf(eight[e], b[e], sums[w][r]);
                }
            }
        }
    }
}

/* Element from which on no round of AHEAD reads begins. */
template <int AHEAD> __device__ __forceinline__ int64_t end_of_rounds(int64_t step, int64_t k)
{
    return k - AHEAD * step + step;
}

/* A product's share of a warp: of every column from element `first` on, every `step`-th eight.
 * AHEAD reads of each are under way at once. The reads of a round are issued in the round before
 * it: of reads that are used in the same round ptxas issues one, waits for it, and issues the next.
 * `a`: what was read for the first round. */
template <class T, int W, int R, int AHEAD>
__device__ __forceinline__ void add_products(const T *const (&rows)[W], const T *x, int64_t first,
                                             int64_t step, int64_t k, few_weights<T, W, AHEAD> &a,
                                             float (&sums)[W][R])
{
    const int64_t round = AHEAD * step;
    const int64_t last = end_of_rounds<AHEAD>(step, k);
    int64_t i = first;
#pragma unroll 1
    for (; i < last; i += round) {
        few_weights<T, W, AHEAD> next;
        if (i + round < last) {
            load_weights(rows, i + round, step, next);
        }
        add_weights<T, W, R, AHEAD>(a, x, i, step, k, sums);
        a = next;
    }
#pragma unroll 1
    for (; i < k; i += step) {
        few_weights<T, W, 1> one;
        load_weights(rows, i, step, one);
        add_weights<T, W, R, 1>(one, x, i, step, k, sums);
    }
}

/* What product_few is to do. */
template <class T, class O> struct few_rows {
    struct {
        const T *w;
        const float *bias;
        O *out;
        int64_t n;
        unsigned first_block; /* of the blocks that have its columns */
    } weights[DPE_FEW_WEIGHTS];
    int n_weights;
    const T *x;
    int64_t k;
    bool accumulate;
    int split; /* warps that share a column: 1, 2, 4 or 8 */
};

/* Sums of a warp's lanes, then of the `split` warps of a column in order; those of row r are in
 * lane r of the column's first warp. */
template <int W, int R>
__device__ __forceinline__ void add_lanes(float (&sums)[W][R], int split, float (&totals)[W])
{
    __shared__ float shares[DPE_GRID_THREADS / 32][W][R];
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < W * R; i++) {
        float &sum = sums[i / R][i % R];
        for (int by = 16; by > 0; by /= 2) {
            sum += __shfl_xor_sync(0xffffffffU, sum, by);
        }
        if (lane == 0) {
            shares[warp][i / R][i % R] = sum;
        }
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < W; w++) {
        totals[w] = 0.0F;
        for (int i = 0; i < split && warp % split == 0 && lane < R; i++) {
            totals[w] += shares[warp + i][w][lane];
        }
    }
}

/* `split` warps an output column of one of the weights, R rows of x at once. GATED: a column of
 * each of two, gate and up, become one result. */
template <class T, class O, int R, int AHEAD, bool GATED>
__global__ void __launch_bounds__(DPE_GRID_THREADS)
    product_few(const __grid_constant__ few_rows<T, O> call)
{
    constexpr int W = GATED ? 2 : 1;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int which = 0;
    while (!GATED && which + 1 < call.n_weights &&
           blockIdx.x >= call.weights[which + 1].first_block) {
        which++;
    }
    const auto &weight = call.weights[which];
    const int64_t columns = DPE_GRID_THREADS / 32 / call.split;
    const int64_t column = (blockIdx.x - weight.first_block) * columns + warp / call.split;
    const int64_t first = (warp % call.split * 32 + lane) * 8;
    const int64_t step = call.split * 32 * 8;
    float sums[W][R] = {};
    float totals[W];
    const T *rows[W];
    few_weights<T, W, AHEAD> a;
#pragma unroll
    for (int w = 0; w < W; w++) {
        rows[w] = (w == 0 ? weight.w : call.weights[1].w) + column * call.k;
    }
    if (column < weight.n && first < end_of_rounds<AHEAD>(step, call.k)) {
        load_weights(rows, first, step, a);
    }
    if (column < weight.n) {
        add_products<T, W, R, AHEAD>(rows, call.x, first, step, call.k, a, sums);
    }
    add_lanes<W, R>(sums, call.split, totals);
    if (column < weight.n && warp % call.split == 0 && lane < R) {
        float sum = totals[0] + (weight.bias != NULL ? weight.bias[column] : 0.0F);
        if constexpr (GATED) {
            const float *bias = call.weights[1].bias;
            float up = totals[1] + (bias != NULL ? bias[column] : 0.0F);
            sum = dpe_activated<DPE_SWIGLU>(sum, up);
        }
        O *to = weight.out + lane * weight.n + column;
        *to = dpe_round<O>(call.accumulate ? dpe_float(*to) + sum : sum);
    }
}

/* Warps that share a column, so that a card has enough reads under way where there are few columns.
 */
int split_of(int64_t n)
{
    return n <= 1024 ? 4 : (n <= 4096 ? 2 : 1);
}

/* How the columns are dealt to blocks, the weights one after the other; their number. */
template <class T, class O>
unsigned deal_columns(const struct dpe_few_product *p, bool gated, few_rows<T, O> *call)
{
    int64_t all = 0;
    for (int i = 0; i < p->n_weights; i++) {
        all += p->weights[i].n;
    }
    call->k = p->k;
    call->accumulate = p->accumulate;
    call->n_weights = p->n_weights;
    call->split = split_of(all);
    int64_t columns = DPE_GRID_THREADS / 32 / call->split;
    unsigned blocks = 0;
    for (int i = 0; i < p->n_weights; i++) {
        call->weights[i].w = static_cast<const T *>(p->weights[i].w);
        call->weights[i].bias = p->weights[i].bias;
        call->weights[i].n = p->weights[i].n;
        call->weights[i].first_block = gated ? 0 : blocks;
        blocks += static_cast<unsigned>((p->weights[i].n + columns - 1) / columns);
    }
    return gated ? blocks / 2 : blocks;
}

template <class T, class O, int R, bool GATED>
int few_launch(const few_rows<T, O> &call, unsigned blocks)
{
    /* As many bytes of either kind. */
    constexpr int AHEAD = 8 / static_cast<int>(sizeof(T));
    auto kernel = product_few<T, O, R, AHEAD, GATED>;
    return dpe_launch(kernel, blocks, DPE_GRID_THREADS, 0, NULL, call);
}

template <class T, class O, bool GATED> int few(const struct dpe_few_product *p)
{
    few_rows<T, O> call = {};
    unsigned blocks = deal_columns(p, GATED, &call);
    int error = 0;
    for (int64_t r = 0; r < p->rows && error == 0;) {
        int64_t left = p->rows - r;
        int64_t some = left >= 4 ? 4 : (left == 2 ? 2 : 1);
        call.x = static_cast<const T *>(p->x) + r * p->k;
        for (int i = 0; i < p->n_weights; i++) {
            call.weights[i].out = static_cast<O *>(p->weights[i].out) + r * p->weights[i].n;
        }
        error = some == 4   ? few_launch<T, O, 4, GATED>(call, blocks)
                : some == 2 ? few_launch<T, O, 2, GATED>(call, blocks)
                            : few_launch<T, O, 1, GATED>(call, blocks);
        r += some;
    }
    return error;
}

/* Whether the kernel can read what it is given. */
template <class T> bool few_fits(const struct dpe_few_product *p)
{
    bool fits = p->n_weights >= 1 && p->n_weights <= DPE_FEW_WEIGHTS;
    for (int i = 0; fits && i < p->n_weights; i++) {
        fits = dpe_by_eight<T>(p->k, p->weights[i].w, p->x);
    }
    return fits;
}

template <class T> int few_of(const struct dpe_few_product *p)
{
    if (!few_fits<T>(p)) {
        return 1;
    }
    return p->out_float ? few<T, float, false>(p) : few<T, T, false>(p);
}

template <class T> int gated_of(const struct dpe_few_product *p)
{
    bool fits = few_fits<T>(p) && p->n_weights == 2 && p->weights[0].n == p->weights[1].n;
    return fits && !p->out_float && !p->accumulate ? few<T, T, true>(p) : 1;
}

} // namespace

int dpe_kernel_product_few(const struct dpe_few_product *product)
{
    DPE_FOR_DTYPE(product->dtype, few_of<T>(product));
}

int dpe_kernel_gated_few(const struct dpe_few_product *product)
{
    DPE_FOR_DTYPE(product->dtype, gated_of<T>(product));
}

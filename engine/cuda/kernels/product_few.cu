/* Products of few rows with weights, as a step of decoding has them. */
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/kernels.h"

namespace
{

enum { ROUND = 32 * 8 /* elements that the lanes of a warp read at once, eight each */ };

/* N times eight weights of a column of each of W matrices, ROUND apart, times R rows of x, added to
 * the sums. All of the weights are under way before one is used. */
template <class T, int W, int R, int N>
__device__ __forceinline__ void add_products(const T *const (&rows)[W], const T *x, int at, int k,
                                             float (&sums)[W][R])
{
    typename dpe_some<T, 8>::words eights[N][W];
#pragma unroll
    for (int i = 0; i < N * W; i++) {
        dpe_some<T, 8>::load_once(rows[i % W] + at + i / W * ROUND, eights[i / W][i % W]);
    }
    /* Else ptxas moves each read to where it is used, and waits for it there. At a column's end
     * lanes are apart. */
    if constexpr (N > 1) {
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            float b[8];
            dpe_some<T, 8>::load(x + static_cast<int64_t>(r) * k + at + i * ROUND, b);
#pragma unroll
            for (int w = 0; w < W; w++) {
                float eight[8];
                dpe_some<T, 8>::unpack(eights[i][w], eight);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    sums[w][r] = fmaf(eight[e], b[e], sums[w][r]);
                }
            }
        }
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
    int share; /* elements that one of them takes at a time: at most AHEAD rounds */
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
        const float sum = dpe_warp_sum(sums[i / R][i % R]);
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

/* Blocks that have the registers of a multiprocessor side by side. */
template <class T, int R>
constexpr int few_blocks = sizeof(T) == 4 ? (R == 4 ? 1 : 2) : (R == 4 ? 2 : (R == 2 ? 3 : 4));

/* `split` warps an output column of one of the weights, R rows of x at once. GATED: a column of
 * each of two, gate and up, become one result. */
template <class T, class O, int R, int AHEAD, bool GATED>
__global__ void __launch_bounds__(DPE_GRID_THREADS, few_blocks<T, R>)
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
    const int k = static_cast<int>(call.k);
    float sums[W][R] = {};
    float totals[W];
    const T *rows[W];
#pragma unroll
    for (int w = 0; w < W; w++) {
        rows[w] = (w == 0 ? weight.w : call.weights[1].w) + column * call.k;
    }
    /* The warps of a column take turns with its elements. */
    const int first = column < weight.n ? warp % call.split * call.share : k;
#pragma unroll 1
    for (int turn = first; turn < k; turn += call.split * call.share) {
        const int end = min(turn + call.share, k);
        int at = turn;
        if (end - at == AHEAD * ROUND) {
            add_products<T, W, R, AHEAD>(rows, call.x, at + lane * 8, k, sums);
            continue;
        }
#pragma unroll 1
        for (; at + AHEAD / 2 * ROUND <= end; at += AHEAD / 2 * ROUND) {
            add_products<T, W, R, AHEAD / 2>(rows, call.x, at + lane * 8, k, sums);
        }
#pragma unroll 1
        for (at += lane * 8; at < end; at += ROUND) {
            add_products<T, W, R, 1>(rows, call.x, at, k, sums);
        }
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

/* Warps that share a column: so many that each has read its share at once, and more where there are
 * few columns, so that a card has enough reads under way. A block of eight warps then has at most
 * 32 KiB of weights under way and ends; as many as fit on a card take turns, each of them far
 * shorter than the whole. `ahead`: rounds that a warp has under way. */
int split_of(int64_t n, int64_t rounds, int64_t ahead)
{
    int split = n <= 1024 ? 4 : (n <= 4096 ? 2 : 1);
    /* What is not all of `ahead` is read in halves of it. */
    const int64_t at_once = rounds < ahead ? ahead / 2 : ahead;
    while (split < DPE_GRID_THREADS / 32 && split * at_once < rounds) {
        split *= 2;
    }
    return split;
}

/* Eights of each of W columns that a lane has under way: 128 bytes in all. */
template <class T, int W> constexpr int ahead_of = 16 / static_cast<int>(sizeof(T)) / W;

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
    const int64_t ahead = gated ? ahead_of<T, 2> : ahead_of<T, 1>;
    const int64_t rounds = (p->k + ROUND - 1) / ROUND;
    call->split = split_of(all, rounds, ahead);
    const int64_t even = (rounds + call->split - 1) / call->split;
    call->share = static_cast<int>(rounds < ahead ? even : ahead) * ROUND;
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
    auto kernel = product_few<T, O, R, ahead_of<T, GATED ? 2 : 1>, GATED>;
    return dpe_launch(kernel, blocks, DPE_GRID_THREADS, 0, call);
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
    bool fits = p->n_weights >= 1 && p->n_weights <= DPE_FEW_WEIGHTS && p->k < INT32_C(1) << 30;
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

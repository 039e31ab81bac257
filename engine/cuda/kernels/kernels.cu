/* The small kernels: embedding, norm, bias, activation, checks, likelihood. Threads walk over their
 * rows with the stride of the grid, so any grid gives the same numbers. */
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/ptx/vector.cuh"

namespace
{

enum { THREADS = 256, MANY_THREADS = 1024 };
const int64_t MOST_BLOCKS = 1 << 16;

unsigned blocks_for(int64_t items)
{
    return static_cast<unsigned>(items < 1 ? 1 : (items > MOST_BLOCKS ? MOST_BLOCKS : items));
}

/* Whether rows of `width` elements can be walked eight at a time. */
template <class T> bool by_eight(int64_t width, const void *a, const void *b)
{
    return width % 8 == 0 &&
           (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

__device__ inline int64_t this_thread(void)
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline int64_t all_threads(void)
{
    return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

template <class T, int N>
__global__ void embed(const T *table, const int32_t *tokens, int64_t rows, int64_t width, float *x)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    int64_t steps = width / N;
    for (int64_t i = this_thread(); i < rows * steps; i += all_threads()) {
        float some[N];
        int64_t at = i % steps * N;
        dpe_some<T, N>::load(table + tokens[i / steps] * width + at, some);
        dpe_some<float, N>::store(x + i / steps * width + at, some);
    }
}

/* A block a row. x may be out: a thread reads what it writes. */
template <class F, class T, int N>
__global__ void rmsnorm(const F *x, const float *weight, int64_t rows, int64_t width, float eps,
                        T *out)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const F *row = x + r * width;
        float squares = 0.0f;
        for (int64_t i = threadIdx.x * N; i < width; i += blockDim.x * N) {
            float some[N];
            dpe_some<F, N>::load(row + i, some);
#pragma unroll
            for (int k = 0; k < N; k++) {
                squares += some[k] * some[k];
            }
        }
        float scale = 1.0f / sqrtf(dpe_block_sum(squares) / static_cast<float>(width) + eps);
        for (int64_t i = threadIdx.x * N; i < width; i += blockDim.x * N) {
            float some[N];
            float by[N];
            dpe_some<F, N>::load(row + i, some);
            dpe_some<float, N>::load(weight + i, by);
#pragma unroll
            for (int k = 0; k < N; k++) {
                some[k] *= scale * by[k];
            }
            dpe_some<T, N>::store(out + r * width + i, some);
        }
    }
}

/* A block a row. */
template <class T, int N>
__global__ void add_bias(T *out, const float *bias, int64_t rows, int64_t width)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        for (int64_t i = threadIdx.x * N; i < width; i += blockDim.x * N) {
            float some[N];
            float by[N];
            dpe_some<T, N>::load(out + r * width + i, some);
            dpe_some<float, N>::load(bias + i, by);
#pragma unroll
            for (int k = 0; k < N; k++) {
                some[k] += by[k];
            }
            dpe_some<T, N>::store(out + r * width + i, some);
        }
    }
}

/* x += y, the stream and what a norm made. */
template <class T, int N> __global__ void add(float *x, const T *y, int64_t n)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t i = this_thread() * N; i < n; i += all_threads() * N) {
        float some[N];
        float by[N];
        dpe_some<float, N>::load(x + i, some);
        dpe_some<T, N>::load(y + i, by);
#pragma unroll
        for (int k = 0; k < N; k++) {
            some[k] += by[k];
        }
        dpe_some<float, N>::store(x + i, some);
    }
}

__global__ void scale(float *x, int64_t n, float factor)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t i = this_thread(); i < n; i += all_threads()) {
        x[i] *= factor;
    }
}

/* The stream where no norm makes it what products read. */
template <class T, int N> __global__ void narrow(const float *x, int64_t n, T *out)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t i = this_thread() * N; i < n; i += all_threads() * N) {
        float some[N];
        dpe_some<float, N>::load(x + i, some);
        dpe_some<T, N>::store(out + i, some);
    }
}

template <enum dpe_activation KIND> __device__ __forceinline__ float activated(float g, float u)
{
    if constexpr (KIND == DPE_GEGLU_TANH) {
        float inner = 0.79788456080286535588f * (g + 0.044715f * g * g * g);
        return 0.5f * g * (1.0f + tanhf(inner)) * u;
    } else if constexpr (KIND == DPE_SWIGLU_CLAMPED) {
        /* fminf and fmaxf would take 7 for what is not a number. */
        g = g > 7.0f ? 7.0f : g;
        u = u > 7.0f ? 7.0f : (u < -7.0f ? -7.0f : u);
        return g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
    } else {
        return g / (1.0f + expf(-g)) * u;
    }
}

template <class T, int N, enum dpe_activation KIND>
__global__ void activate(T *gate, const T *up, int64_t n)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t i = this_thread() * N; i < n; i += all_threads() * N) {
        float g[N];
        float u[N];
        dpe_some<T, N>::load(gate + i, g);
        dpe_some<T, N>::load(up + i, u);
#pragma unroll
        for (int k = 0; k < N; k++) {
            g[k] = activated<KIND>(g[k], u[k]);
        }
        dpe_some<T, N>::store(gate + i, g);
    }
}

__global__ void nonfinite(const float *x, int64_t n, int64_t width, unsigned long long layer,
                          unsigned long long *first)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t i = this_thread(); i < n; i += all_threads()) {
        if ((__float_as_uint(x[i]) & 0x7f800000U) == 0x7f800000U) {
            atomicMin(first, layer << 40 | static_cast<unsigned long long>(i / width));
        }
    }
}

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

/* A product's share of a warp: of every column from element `first` on, every `step`-th eight. AHEAD
 * reads of each are under way at once. The reads of a round are issued in the round before it: of
 * reads that are used in the same round ptxas issues one, waits for it, and issues the next. `a`:
 * what was read for the first round. */
template <class T, int W, int R, int AHEAD>
__device__ __forceinline__ void add_products(const T *const (&rows)[W], const T *x, int64_t first,
                                             int64_t step, int64_t k, few_weights<T, W, AHEAD> &a,
                                             float (&sums)[W][R])
{
    const int64_t round = AHEAD * step;
    const int64_t last = end_of_rounds<AHEAD>(step, k);
    int64_t i = first;
    if constexpr (AHEAD > 1) {
#pragma unroll 1
        for (; i < last; i += round) {
            few_weights<T, W, AHEAD> next;
            if (i + round < last) {
                load_weights(rows, i + round, step, next);
            }
            add_weights<T, W, R, AHEAD>(a, x, i, step, k, sums);
            a = next;
        }
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

/* Sums of a warp's lanes, then of the `split` warps of a column in order; those of row r are in lane
 * r of the column's first warp. */
template <int W, int R>
__device__ __forceinline__ void add_lanes(float (&sums)[W][R], int split, float (&totals)[W])
{
    __shared__ float shares[THREADS / 32][W][R];
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

/* `split` warps an output column of one of the weights, R rows of x at once. GATED: a column of each
 * of two, gate and up, become one result. */
template <class T, class O, int R, int AHEAD, bool GATED>
__global__ void __launch_bounds__(THREADS) product_few(const __grid_constant__ few_rows<T, O> call)
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
    const int64_t columns = THREADS / 32 / call.split;
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
    dpe_let_next_start();
    /* No kernel writes weights. */
    if (AHEAD > 1 && column < weight.n && first < end_of_rounds<AHEAD>(step, call.k)) {
        load_weights(rows, first, step, a);
    }
    dpe_wait_for_earlier();
    if (column < weight.n) {
        add_products<T, W, R, AHEAD>(rows, call.x, first, step, call.k, a, sums);
    }
    add_lanes<W, R>(sums, call.split, totals);
    if (column < weight.n && warp % call.split == 0 && lane < R) {
        float sum = totals[0] + (weight.bias != NULL ? weight.bias[column] : 0.0F);
        if constexpr (GATED) {
            const float *bias = call.weights[1].bias;
            float up = totals[1] + (bias != NULL ? bias[column] : 0.0F);
            sum = activated<DPE_SWIGLU>(sum, up);
        }
        O *to = weight.out + lane * weight.n + column;
        *to = dpe_round<O>(call.accumulate ? dpe_float(*to) + sum : sum);
    }
}

__device__ inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

/* The sum of four uniform numbers has the variance of one third. */
template <class T> __global__ void random_numbers(T *out, int64_t n, float deviation, uint64_t seed)
{
    for (int64_t i = this_thread(); i < n; i += all_threads()) {
        uint64_t bits = mix(seed + 0x9e3779b97f4a7c15U * static_cast<uint64_t>(i + 1));
        float sum = 0.0f;
        for (int part = 0; part < 4; part++) {
            sum += static_cast<float>(bits >> (16 * part) & 0xffffU) * 0x1p-16f - 0.5f;
        }
        out[i] = dpe_round<T>(sum * 1.7320508f * deviation);
    }
}

enum { AT_ONCE = 4 };

/* Elements i, i + blockDim.x … of a row: reads that are under way at once. After the end the first
 * of them again. */
__device__ __forceinline__ void read_some(const float *row, int64_t i, int64_t n,
                                          float (&some)[AT_ONCE])
{
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        int64_t at = i + k * static_cast<int64_t>(blockDim.x);
        some[k] = row[at < n ? at : i];
    }
}

/* The better of this lane's number and that of the lane `by` away: the larger, of equal ones the
 * first. */
__device__ inline void take_better(float &value, int &index, int by)
{
    float other = __shfl_xor_sync(0xffffffffU, value, by);
    int at = __shfl_xor_sync(0xffffffffU, index, by);
    bool better = other > value || (other == value && at < index);
    value = better ? other : value;
    index = better ? at : index;
}

/* A block a row, several reads at once: a step of decoding waits for one row alone. NaN compares
 * false with everything, so it is looked for apart. */
__global__ void __launch_bounds__(MANY_THREADS)
    argmax(const float *logits, int64_t vocab, int32_t *tokens)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    __shared__ float best_value[32];
    __shared__ int best_index[32];
    const float *row = logits + blockIdx.x * vocab;
    const int64_t threads = blockDim.x;
    int warp = static_cast<int>(threadIdx.x) / 32;
    float value = -INFINITY;
    int index = INT32_MAX;
    int bad = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += AT_ONCE * threads) {
        float some[AT_ONCE];
        read_some(row, i, vocab, some);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            bad |= (__float_as_uint(some[k]) & 0x7f800000U) == 0x7f800000U;
            index = some[k] > value ? static_cast<int>(i + k * threads) : index;
            value = some[k] > value ? some[k] : value;
        }
    }
    for (int by = 16; by > 0; by /= 2) {
        take_better(value, index, by);
    }
    if (threadIdx.x % 32 == 0) {
        best_value[warp] = value;
        best_index[warp] = index;
    }
    bad = __syncthreads_or(bad);
    if (warp == 0) {
        bool real = threadIdx.x < blockDim.x / 32;
        value = real ? best_value[threadIdx.x] : -INFINITY;
        index = real ? best_index[threadIdx.x] : INT32_MAX;
        for (int by = 16; by > 0; by /= 2) {
            take_better(value, index, by);
        }
        if (threadIdx.x == 0) {
            tokens[blockIdx.x] = bad ? -1 : index;
        }
    }
}

__global__ void likelihood(const float *logits, const int32_t *targets, int64_t vocab, double *nll)
{
    __shared__ float largest[THREADS];
    const float *row = logits + blockIdx.x * vocab;
    const int64_t threads = blockDim.x;
    float most = -INFINITY;
    int bad = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += AT_ONCE * threads) {
        float some[AT_ONCE];
        read_some(row, i, vocab, some);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            bad |= (__float_as_uint(some[k]) & 0x7f800000U) == 0x7f800000U;
            most = fmaxf(most, some[k]);
        }
    }
    largest[threadIdx.x] = most;
    bad = __syncthreads_or(bad);
    for (unsigned t = 0; t < blockDim.x; t++) {
        most = fmaxf(most, largest[t]);
    }
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < vocab; i += AT_ONCE * threads) {
        float some[AT_ONCE];
        read_some(row, i, vocab, some);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            /* A difference of floats is rounded once, by at most 2^-24 of its size. */
            float term = i + k * threads < vocab ? expf(some[k] - most) : 0.0f;
            sum += static_cast<double>(term);
        }
    }
    sum = dpe_block_sum(sum);
    if (threadIdx.x == 0) {
        double of_target = static_cast<double>(row[targets[blockIdx.x]]);
        nll[blockIdx.x] =
            bad ? static_cast<double>(NAN) : log(sum) + static_cast<double>(most) - of_target;
    }
}

/* Warps that share a column, so that a card has enough reads under way where there are few columns. */
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
    call->split = p->ahead ? split_of(all) : 1;
    int64_t columns = THREADS / 32 / call->split;
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
int few_launch(const few_rows<T, O> &call, unsigned blocks, bool ahead)
{
    /* As many bytes of either kind. */
    constexpr int AHEAD = 8 / static_cast<int>(sizeof(T));
    auto kernel = product_few<T, O, R, AHEAD, GATED>;
    if constexpr (!GATED && sizeof(T) == 2) {
        kernel = ahead ? kernel : product_few<T, O, R, 1, GATED>;
    }
    return dpe_launch_early(kernel, blocks, THREADS, 0, NULL, call);
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
        error = some == 4   ? few_launch<T, O, 4, GATED>(call, blocks, p->ahead)
                : some == 2 ? few_launch<T, O, 2, GATED>(call, blocks, p->ahead)
                            : few_launch<T, O, 1, GATED>(call, blocks, p->ahead);
        r += some;
    }
    return error;
}

/* Whether the kernel can read what it is given. */
template <class T> bool few_fits(const struct dpe_few_product *p)
{
    bool fits = p->n_weights >= 1 && p->n_weights <= DPE_FEW_WEIGHTS;
    for (int i = 0; fits && i < p->n_weights; i++) {
        fits = by_eight<T>(p->k, p->weights[i].w, p->x);
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
    return fits && !p->out_float && !p->accumulate && p->ahead ? few<T, T, true>(p) : 1;
}

template <class T>
int embed_of(const void *table, const int32_t *tokens, int64_t rows, int64_t width, float *x)
{
    const T *from = static_cast<const T *>(table);
    if (by_eight<T>(width, table, x)) {
        return dpe_launch_early(embed<T, 8>, blocks_for(rows * width / 8 / THREADS + 1), THREADS, 0, NULL,
                          from, tokens, rows, width, x);
    }
    return dpe_launch_early(embed<T, 1>, blocks_for(rows * width / THREADS + 1), THREADS, 0, NULL, from,
                      tokens, rows, width, x);
}

template <class F, class T>
int rmsnorm_of(const F *x, const float *weight, int64_t rows, int64_t width, float eps, void *out)
{
    T *to = static_cast<T *>(out);
    auto kernel = by_eight<T>(width, x, out) && reinterpret_cast<uintptr_t>(weight) % 16 == 0
                      ? rmsnorm<F, T, 8>
                      : rmsnorm<F, T, 1>;
    return dpe_launch_early(kernel, blocks_for(rows), THREADS, 0, NULL, x, weight, rows, width, eps,
                            to);
}

template <class T> int add_of(float *x, const void *y, int64_t n)
{
    const T *from = static_cast<const T *>(y);
    if (by_eight<T>(n, x, y)) {
        return dpe_launch_early(add<T, 8>, blocks_for(n / 8 / THREADS + 1), THREADS, 0, NULL, x, from, n);
    }
    return dpe_launch_early(add<T, 1>, blocks_for(n / THREADS + 1), THREADS, 0, NULL, x, from, n);
}

template <class T> int bias_of(void *out, const float *bias, int64_t rows, int64_t width)
{
    T *to = static_cast<T *>(out);
    auto kernel = by_eight<T>(width, out, bias) ? add_bias<T, 8> : add_bias<T, 1>;
    return dpe_launch_early(kernel, blocks_for(rows), THREADS, 0, NULL, to, bias, rows, width);
}

template <class T, enum dpe_activation KIND> int activate_as(void *gate, const void *up, int64_t n)
{
    const int64_t some = by_eight<T>(n, gate, up) ? 8 : 1;
    auto kernel = some == 8 ? activate<T, 8, KIND> : activate<T, 1, KIND>;
    return dpe_launch_early(kernel, blocks_for(n / some / THREADS + 1), THREADS, 0, NULL,
                            static_cast<T *>(gate), static_cast<const T *>(up), n);
}

template <class T> int activate_of(enum dpe_activation kind, void *gate, const void *up, int64_t n)
{
    switch (kind) {
    case DPE_SWIGLU:
        return activate_as<T, DPE_SWIGLU>(gate, up, n);
    case DPE_GEGLU_TANH:
        return activate_as<T, DPE_GEGLU_TANH>(gate, up, n);
    case DPE_SWIGLU_CLAMPED:
        return activate_as<T, DPE_SWIGLU_CLAMPED>(gate, up, n);
    }
    return 1;
}

template <class T> int narrow_of(const float *x, int64_t n, void *out)
{
    const int64_t some = by_eight<T>(n, x, out) ? 8 : 1;
    auto kernel = some == 8 ? narrow<T, 8> : narrow<T, 1>;
    return dpe_launch_early(kernel, blocks_for(n / some / THREADS + 1), THREADS, 0, NULL, x, n,
                            static_cast<T *>(out));
}

/* One call for each dtype of a template over it. */
#define FOR_DTYPE(dtype, call)                                                                     \
    switch (dtype) {                                                                               \
    case DPE_F32: {                                                                                \
        using T = float;                                                                           \
        return call;                                                                               \
    }                                                                                              \
    case DPE_F16: {                                                                                \
        using T = dpe_f16;                                                                         \
        return call;                                                                               \
    }                                                                                              \
    case DPE_BF16: {                                                                               \
        using T = dpe_bf16;                                                                        \
        return call;                                                                               \
    }                                                                                              \
    default:                                                                                       \
        return 1;                                                                                  \
    }

} // namespace

int dpe_kernel_embed(enum dpe_dtype dtype, const void *table, const int32_t *tokens, int64_t rows,
                     int64_t width, float *x)
{
    FOR_DTYPE(dtype, embed_of<T>(table, tokens, rows, width, x));
}

int dpe_kernel_rmsnorm(enum dpe_dtype dtype, const float *x, const float *weight, int64_t rows,
                       int64_t width, float eps, void *out)
{
    FOR_DTYPE(dtype, (rmsnorm_of<float, T>(x, weight, rows, width, eps, out)));
}

int dpe_kernel_bias(enum dpe_dtype dtype, void *out, const float *bias, int64_t rows, int64_t width)
{
    FOR_DTYPE(dtype, bias_of<T>(out, bias, rows, width));
}

int dpe_kernel_head_norm(enum dpe_dtype dtype, void *x, const float *weight, int64_t rows,
                         int64_t width, float eps)
{
    FOR_DTYPE(dtype, (rmsnorm_of<T, T>(static_cast<const T *>(x), weight, rows, width, eps, x)));
}

int dpe_kernel_add(enum dpe_dtype dtype, float *x, const void *y, int64_t n)
{
    FOR_DTYPE(dtype, add_of<T>(x, y, n));
}

int dpe_kernel_scale(float *x, int64_t n, float factor)
{
    return dpe_launch_early(scale, blocks_for(n / THREADS + 1), THREADS, 0, NULL, x, n, factor);
}

int dpe_kernel_activate(enum dpe_activation kind, enum dpe_dtype dtype, void *gate, const void *up,
                        int64_t n)
{
    FOR_DTYPE(dtype, activate_of<T>(kind, gate, up, n));
}

int dpe_kernel_narrow(enum dpe_dtype dtype, const float *x, int64_t n, void *out)
{
    FOR_DTYPE(dtype, narrow_of<T>(x, n, out));
}

int dpe_kernel_nonfinite(const float *x, int64_t rows, int64_t width, int64_t layer,
                         unsigned long long *first)
{
    int64_t n = rows * width;
    return dpe_launch_early(nonfinite, blocks_for(n / THREADS + 1), THREADS, 0, NULL, x, n, width,
                      static_cast<unsigned long long>(layer), first);
}

int dpe_kernel_product_few(const struct dpe_few_product *product)
{
    FOR_DTYPE(product->dtype, few_of<T>(product));
}

int dpe_kernel_gated_few(const struct dpe_few_product *product)
{
    FOR_DTYPE(product->dtype, gated_of<T>(product));
}

int dpe_kernel_random(enum dpe_dtype dtype, void *out, int64_t n, float deviation, uint64_t seed)
{
    FOR_DTYPE(dtype, dpe_launch(random_numbers<T>, blocks_for(n / THREADS + 1), THREADS, 0, NULL,
                                static_cast<T *>(out), n, deviation, seed));
}

int dpe_kernel_argmax(const float *logits, int64_t rows, int64_t vocab, int32_t *tokens)
{
    const unsigned threads = vocab < 8192 ? THREADS : MANY_THREADS;
    return dpe_launch_early(argmax, static_cast<unsigned>(rows), threads, 0, NULL, logits, vocab, tokens);
}

int dpe_kernel_nll(const float *logits, const int32_t *targets, int64_t rows, int64_t vocab,
                   double *nll)
{
    return dpe_launch(likelihood, static_cast<unsigned>(rows), THREADS, 0, NULL, logits, targets,
                      vocab, nll);
}

/* The small kernels: embedding, norm, bias, activation, checks, random numbers, sums of norms,
 * attention sinks. Threads walk over their rows with the stride of the grid, so any grid gives the
 * same numbers; sums of norms alone need the grid that they are launched with. */
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/kernels.h"

namespace
{

template <class T, int N>
__global__ void embed(const T *table, const int32_t *tokens, int64_t rows, int64_t width, float *x)
{
    int64_t steps = width / N;
    for (int64_t i = dpe_this_thread(); i < rows * steps; i += dpe_all_threads()) {
        float some[N];
        int64_t at = i % steps * N;
        dpe_some<T, N>::load(table + tokens[i / steps] * width + at, some);
        dpe_some<float, N>::store(x + i / steps * width + at, some);
    }
}

template <class T, int N>
__global__ void add_rows(T *x, const T *table, const int32_t *tokens, int64_t rows, int64_t width,
                         float factor)
{
    int64_t steps = width / N;
    for (int64_t i = dpe_this_thread(); i < rows * steps; i += dpe_all_threads()) {
        float some[N];
        float by[N];
        int64_t at = i % steps * N;
        dpe_some<T, N>::load(table + tokens[i / steps] * width + at, by);
        dpe_some<T, N>::load(x + i / steps * width + at, some);
#pragma unroll
        for (int k = 0; k < N; k++) {
            some[k] += factor * by[k];
        }
        dpe_some<T, N>::store(x + i / steps * width + at, some);
    }
}

/* The first row that is not finite: *first = min(*first, mark | row). first
 * NULL: the norm alone. */
struct finite_check {
    unsigned long long *first;
    unsigned long long mark;
};

/* Note row r where an element from `row` on is not finite. */
template <class F>
__device__ void check_row(const struct finite_check check, const F *row, int64_t width, int64_t r)
{
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
        if (dpe_not_finite(dpe_float(row[i]))) {
            atomicMin(check.first, check.mark | static_cast<unsigned long long>(r));
            return;
        }
    }
}

/* A block a row, whose first elements, KEPT · N for each thread, are read once. x may be out: a
 * thread reads what it writes. */
template <class F, class T, int N>
__global__ void rmsnorm(const F *x, const float *weight, int64_t rows, int64_t width, float eps,
                        T *out, const struct finite_check check)
{
    enum { KEPT = 2 };
    const int64_t step = blockDim.x * N;
    const int64_t own = threadIdx.x * N;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const F *row = x + r * width;
        float kept[KEPT][N] = {};
        float by[KEPT][N] = {};
        float squares = 0.0f;
#pragma unroll
        for (int j = 0; j < KEPT; j++) {
            if (own + j * step < width) {
                dpe_some<F, N>::load(row + own + j * step, kept[j]);
                dpe_some<float, N>::load(weight + own + j * step, by[j]);
#pragma unroll
                for (int k = 0; k < N; k++) {
                    squares += kept[j][k] * kept[j][k];
                }
            }
        }
#pragma unroll 1
        for (int64_t i = own + KEPT * step; i < width; i += step) {
            float some[N];
            dpe_some<F, N>::load(row + i, some);
#pragma unroll
            for (int k = 0; k < N; k++) {
                squares += some[k] * some[k];
            }
        }
        squares = dpe_block_sum(squares);
        /* What is not finite makes the sum so; squares that are too large do as well. */
        if (check.first != NULL && dpe_not_finite(squares)) {
            check_row(check, row, width, r);
        }
        const float scale = 1.0f / sqrtf(squares / static_cast<float>(width) + eps);
#pragma unroll
        for (int j = 0; j < KEPT; j++) {
            if (own + j * step < width) {
#pragma unroll
                for (int k = 0; k < N; k++) {
                    kept[j][k] *= scale * by[j][k];
                }
                dpe_some<T, N>::store(out + r * width + own + j * step, kept[j]);
            }
        }
#pragma unroll 1
        for (int64_t i = own + KEPT * step; i < width; i += step) {
            float some[N];
            float by_some[N];
            dpe_some<F, N>::load(row + i, some);
            dpe_some<float, N>::load(weight + i, by_some);
#pragma unroll
            for (int k = 0; k < N; k++) {
                some[k] *= scale * by_some[k];
            }
            dpe_some<T, N>::store(out + r * width + i, some);
        }
    }
}

/* A block a row. */
template <class T, int N>
__global__ void add_bias(T *out, const float *bias, int64_t rows, int64_t width)
{
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
    for (int64_t i = dpe_this_thread() * N; i < n; i += dpe_all_threads() * N) {
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
    for (int64_t i = dpe_this_thread(); i < n; i += dpe_all_threads()) {
        x[i] = factor == 0.0f ? 0.0f : x[i] * factor;
    }
}

/* A head's queries. */
template <class T>
__global__ void scale_part(T *x, int64_t rows, int64_t width, int64_t n, float factor)
{
    for (int64_t i = dpe_this_thread(); i < rows * n; i += dpe_all_threads()) {
        T *at = x + i / n * width + i % n;
        float some[1];
        dpe_some<T, 1>::load(at, some);
        some[0] *= factor;
        dpe_some<T, 1>::store(at, some);
    }
}

/* The stream where no norm makes it what products read. */
template <class T, int N> __global__ void narrow(const float *x, int64_t n, T *out)
{
    for (int64_t i = dpe_this_thread() * N; i < n; i += dpe_all_threads() * N) {
        float some[N];
        dpe_some<float, N>::load(x + i, some);
        dpe_some<T, N>::store(out + i, some);
    }
}

template <class T, int N, enum dpe_activation KIND>
__global__ void activate(T *gate, const T *up, int64_t n)
{
    for (int64_t i = dpe_this_thread() * N; i < n; i += dpe_all_threads() * N) {
        float g[N];
        float u[N];
        dpe_some<T, N>::load(gate + i, g);
        dpe_some<T, N>::load(up + i, u);
#pragma unroll
        for (int k = 0; k < N; k++) {
            g[k] = dpe_activated<KIND>(g[k], u[k]);
        }
        dpe_some<T, N>::store(gate + i, g);
    }
}

__global__ void nonfinite(const float *x, int64_t n, int64_t width, const struct finite_check check)
{
    for (int64_t i = dpe_this_thread(); i < n; i += dpe_all_threads()) {
        if (dpe_not_finite(x[i])) {
            atomicMin(check.first, check.mark | static_cast<unsigned long long>(i / width));
        }
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
    for (int64_t i = dpe_this_thread(); i < n; i += dpe_all_threads()) {
        uint64_t bits = mix(seed + 0x9e3779b97f4a7c15U * static_cast<uint64_t>(i + 1));
        float sum = 0.0f;
        for (int part = 0; part < 4; part++) {
            sum += static_cast<float>(bits >> (16 * part) & 0xffffU) * 0x1p-16f - 0.5f;
        }
        out[i] = dpe_round<T>(sum * 1.7320508f * deviation);
    }
}

/* Threads of a block that norms rows of `width` elements, N at a time. */
unsigned norm_threads(int64_t width, int n)
{
    const int64_t most = 512;
    const int64_t threads = (width / n + 31) / 32 * 32;
    return static_cast<unsigned>(threads > most ? most : (threads < 32 ? 32 : threads));
}

struct finite_check check_of(int64_t layer, unsigned long long *first)
{
    return {first, static_cast<unsigned long long>(layer) << 40};
}

__global__ void centre(float *x, int64_t rows, int64_t width)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float *row = x + r * width;
        float sum = 0.0f;
        for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
            sum += row[i];
        }
        const float mean = dpe_block_sum(sum) / static_cast<float>(width);
        for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
            row[i] -= mean;
        }
    }
}

template <class F, class T>
int rmsnorm_of(const F *x, const float *weight, int64_t rows, int64_t width, float eps, void *out,
               const struct finite_check &check)
{
    T *to = static_cast<T *>(out);
    const bool eight =
        dpe_by_eight<T>(width, x, out) && reinterpret_cast<uintptr_t>(weight) % 16 == 0;
    auto kernel = eight ? rmsnorm<F, T, 8> : rmsnorm<F, T, 1>;
    return dpe_launch(kernel, dpe_row_blocks(rows), norm_threads(width, eight ? 8 : 1), 0, x,
                      weight, rows, width, eps, to, check);
}

template <class T, enum dpe_activation KIND> int activate_as(void *gate, const void *up, int64_t n)
{
    return dpe_launch_elements(activate<T, 8, KIND>, activate<T, 1, KIND>,
                               dpe_by_eight<T>(n, gate, up), n, static_cast<T *>(gate),
                               static_cast<const T *>(up), n);
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

} // namespace

int dpe_kernel_embed(enum dpe_dtype dtype, const void *table, const int32_t *tokens, int64_t rows,
                     int64_t width, float *x)
{
    DPE_FOR_DTYPE(dtype, (dpe_launch_elements(
                             embed<T, 8>, embed<T, 1>, dpe_by_eight<T>(width, table, x),
                             rows * width, static_cast<const T *>(table), tokens, rows, width, x)));
}

int dpe_kernel_add_rows(enum dpe_dtype dtype, void *x, const void *table, const int32_t *tokens,
                        int64_t rows, int64_t width, float factor)
{
    DPE_FOR_DTYPE(dtype, (dpe_launch_elements(add_rows<T, 8>, add_rows<T, 1>,
                                              dpe_by_eight<T>(width, table, x), rows * width,
                                              static_cast<T *>(x), static_cast<const T *>(table),
                                              tokens, rows, width, factor)));
}

int dpe_kernel_rmsnorm(enum dpe_dtype dtype, const float *x, const float *weight, int64_t rows,
                       int64_t width, float eps, void *out, int64_t layer,
                       unsigned long long *first)
{
    const struct finite_check check = check_of(layer, first);
    DPE_FOR_DTYPE(dtype, (rmsnorm_of<float, T>(x, weight, rows, width, eps, out, check)));
}

int dpe_kernel_centre(float *x, int64_t rows, int64_t width)
{
    return dpe_launch(centre, dpe_row_blocks(rows), norm_threads(width, 1), 0, x, rows, width);
}

int dpe_kernel_bias(enum dpe_dtype dtype, void *out, const float *bias, int64_t rows, int64_t width)
{
    DPE_FOR_DTYPE(dtype,
                  (dpe_launch(dpe_by_eight<T>(width, out, bias) ? add_bias<T, 8> : add_bias<T, 1>,
                              dpe_row_blocks(rows), DPE_GRID_THREADS, 0, static_cast<T *>(out),
                              bias, rows, width)));
}

int dpe_kernel_head_norm(enum dpe_dtype dtype, void *x, const float *weight, int64_t rows,
                         int64_t width, float eps)
{
    DPE_FOR_DTYPE(dtype, (rmsnorm_of<T, T>(static_cast<const T *>(x), weight, rows, width, eps, x,
                                           check_of(0, NULL))));
}

int dpe_kernel_add(enum dpe_dtype dtype, float *x, const void *y, int64_t n)
{
    DPE_FOR_DTYPE(dtype, (dpe_launch_elements(add<T, 8>, add<T, 1>, dpe_by_eight<T>(n, x, y), n, x,
                                              static_cast<const T *>(y), n)));
}

int dpe_kernel_scale(float *x, int64_t n, float factor)
{
    return dpe_launch(scale, dpe_element_blocks(n), DPE_GRID_THREADS, 0, x, n, factor);
}

int dpe_kernel_scale_part(enum dpe_dtype dtype, void *x, int64_t rows, int64_t width, int64_t from,
                          int64_t n, float factor)
{
    DPE_FOR_DTYPE(dtype, dpe_launch(scale_part<T>, dpe_element_blocks(rows * n), DPE_GRID_THREADS,
                                    0, static_cast<T *>(x) + from, rows, width, n, factor));
}

int dpe_kernel_activate(enum dpe_activation kind, enum dpe_dtype dtype, void *gate, const void *up,
                        int64_t n)
{
    DPE_FOR_DTYPE(dtype, activate_of<T>(kind, gate, up, n));
}

int dpe_kernel_narrow(enum dpe_dtype dtype, const float *x, int64_t n, void *out)
{
    DPE_FOR_DTYPE(dtype,
                  (dpe_launch_elements(narrow<T, 8>, narrow<T, 1>, dpe_by_eight<T>(n, x, out), n, x,
                                       n, static_cast<T *>(out))));
}

int dpe_kernel_nonfinite(const float *x, int64_t rows, int64_t width, int64_t layer,
                         unsigned long long *first)
{
    int64_t n = rows * width;
    return dpe_launch(nonfinite, dpe_element_blocks(n), DPE_GRID_THREADS, 0, x, n, width,
                      check_of(layer, first));
}

int dpe_kernel_random(enum dpe_dtype dtype, void *out, int64_t n, float deviation, uint64_t seed)
{
    DPE_FOR_DTYPE(dtype, dpe_launch(random_numbers<T>, dpe_element_blocks(n), DPE_GRID_THREADS, 0,
                                    static_cast<T *>(out), n, deviation, seed));
}

/* ------------------------------------------------------------------------------ sums of norms */

/* Of pairs over tokens: what the profile of heads is made from. */

namespace
{

enum { THREADS = 128 };

template <class T> __device__ float norm_of(const T *x, int64_t n_pairs)
{
    float low = dpe_float(x[0]);
    float high = dpe_float(x[n_pairs]);
    return sqrtf(low * low + high * high);
}

/* Block (part, head) adds up a range of rows in their order, a thread some pairs; heads of k come
 * after those of q. Lanes read neighbouring pairs. partial [DPE_NORM_PARTS][heads][n_pairs]. */
template <class T>
__global__ void add_rows(const T *q, const T *k, struct dpe_norm_shape s, double *partial)
{
    int64_t heads = s.products ? s.n_heads : s.n_heads + s.n_kv_heads;
    int64_t part = static_cast<int64_t>(blockIdx.x) / heads;
    int64_t head = static_cast<int64_t>(blockIdx.x) % heads;
    int64_t first = s.rows * part / DPE_NORM_PARTS;
    int64_t end = s.rows * (part + 1) / DPE_NORM_PARTS;
    int64_t d = 2 * s.n_pairs;
    bool of_q = head < s.n_heads;
    const T *x = of_q ? q + head * d : k + (head - s.n_heads) * d;
    int64_t stride = (of_q ? s.n_heads : s.n_kv_heads) * d;
    const T *y = k + head / (s.n_heads / s.n_kv_heads) * d;
    for (int64_t j = threadIdx.x; j < s.n_pairs; j += THREADS) {
        double sum = 0.0;
        for (int64_t r = first; r < end; r++) {
            double norm = static_cast<double>(norm_of(x + r * stride + j, s.n_pairs));
            if (s.products) {
                norm *= static_cast<double>(norm_of(y + r * s.n_kv_heads * d + j, s.n_pairs));
            }
            sum += norm;
        }
        partial[(part * heads + head) * s.n_pairs + j] = sum;
    }
}

/* sums[i] = Σ over parts in their order. */
__global__ void add_parts(const double *partial, int64_t n, double *sums)
{
    int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < n) {
        double sum = 0.0;
        for (int part = 0; part < DPE_NORM_PARTS; part++) {
            sum += partial[part * n + i];
        }
        sums[i] = sum;
    }
}

template <class T>
int sum_of(const void *q, const void *k, const struct dpe_norm_shape *s, double *sums)
{
    int64_t heads = s->products ? s->n_heads : s->n_heads + s->n_kv_heads;
    int64_t n = heads * s->n_pairs;
    double *partial = sums + n;
    int code = dpe_launch(add_rows<T>, static_cast<unsigned>(DPE_NORM_PARTS * heads), THREADS, 0,
                          static_cast<const T *>(q), static_cast<const T *>(k), *s, partial);
    return code != 0 ? code
                     : dpe_launch(add_parts, static_cast<unsigned>((n + THREADS - 1) / THREADS),
                                  THREADS, 0, static_cast<const double *>(partial), n, sums);
}

} // namespace

int dpe_kernel_norms(enum dpe_dtype dtype, const void *q, const void *k,
                     const struct dpe_norm_shape *shape, double *sums)
{
    DPE_FOR_DTYPE(dtype, sum_of<T>(q, k, shape, sums));
}

/* ---------------------------------------------------------------------------- attention sinks */

namespace
{

template <class T>
__global__ void sinks(T *out, const float *lse, const float *sink, int64_t heads, int64_t n_heads,
                      int64_t head_dim)
{
    for (int64_t i = dpe_this_thread(); i < heads * head_dim; i += dpe_all_threads()) {
        int64_t head = i / head_dim;
        float share = 1.0f / (1.0f + expf(sink[head % n_heads] - lse[head]));
        out[i] = dpe_round<T>(dpe_float(out[i]) * share);
    }
}

} // namespace

int dpe_kernel_sinks(enum dpe_dtype dtype, void *out, const float *lse, const float *sink,
                     int64_t rows, int64_t n_heads, int64_t head_dim)
{
    DPE_FOR_DTYPE(dtype, dpe_launch(sinks<T>, dpe_element_blocks(rows * n_heads * head_dim),
                                    DPE_GRID_THREADS, 0, static_cast<T *>(out), lse, sink,
                                    rows * n_heads, n_heads, head_dim));
}

/* Sums of the 2-norms of pairs over tokens: what the profile of heads is made from. */
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/kernels.h"

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
                          NULL, static_cast<const T *>(q), static_cast<const T *>(k), *s, partial);
    return code != 0 ? code
                     : dpe_launch(add_parts, static_cast<unsigned>((n + THREADS - 1) / THREADS),
                                  THREADS, 0, NULL, static_cast<const double *>(partial), n, sums);
}

} // namespace

int dpe_kernel_norms(enum dpe_dtype dtype, const void *q, const void *k,
                     const struct dpe_norm_shape *shape, double *sums)
{
    DPE_FOR_DTYPE(dtype, sum_of<T>(q, k, shape, sums));
}

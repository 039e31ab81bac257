/* The branches of attention (NSA), added by their gates. */
#include "engine/cuda/kernels/cuda_select.h"
#include "engine/cuda/kernels/grid.cuh"

namespace
{

template <class T> __device__ inline float share(const T *gates, int64_t i)
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
            share(gates, at) * dpe_float(compressed[i]) + share(gates, at + 1) * dpe_float(out[i]);
        if (windowed != NULL) {
            sum += share(gates, at + 2) * dpe_float(windowed[i]);
        }
        out[i] = dpe_round<T>(sum);
    }
}

template <class T>
int launch(const void *gates, const void *compressed, const void *windowed, int64_t heads,
           int64_t head_dim, void *out)
{
    return dpe_launch(merge<T>, dpe_element_blocks(heads * head_dim), DPE_GRID_THREADS, 0, NULL,
                      static_cast<const T *>(gates), static_cast<const T *>(compressed),
                      static_cast<const T *>(windowed), heads, head_dim, static_cast<T *>(out));
}

} // namespace

int dpe_select_merge(enum dpe_dtype dtype, const void *gates, const void *compressed,
                     const void *windowed, int64_t heads, int64_t head_dim, void *out)
{
    DPE_FOR_DTYPE(dtype, launch<T>(gates, compressed, windowed, heads, head_dim, out));
}

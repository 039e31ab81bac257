/* The branches of attention (NSA), added by their gates. */
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/ptx/vector.cuh"

namespace
{

enum { THREADS = 256 };
const int64_t MOST_BLOCKS = 1 << 16;

template <class T> __device__ inline float share(const T *gates, int64_t i)
{
    return 1.0f / (1.0f + expf(-dpe_float(gates[i])));
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    merge(const T *gates, const T *compressed, const T *windowed, int64_t heads, int64_t head_dim,
          T *out)
{
    dpe_let_next_start();
    dpe_wait_for_earlier();
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < heads * head_dim;
         i += static_cast<int64_t>(gridDim.x) * THREADS) {
        const int64_t at = i / head_dim * 3;
        float sum = share(gates, at) * dpe_float(compressed[i]) +
                    share(gates, at + 1) * dpe_float(out[i]);
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
    int64_t blocks = (heads * head_dim + THREADS - 1) / THREADS;
    blocks = blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
    return dpe_launch_early(merge<T>, static_cast<unsigned>(blocks), THREADS, 0, NULL,
                            static_cast<const T *>(gates), static_cast<const T *>(compressed),
                            static_cast<const T *>(windowed), heads, head_dim,
                            static_cast<T *>(out));
}

} // namespace

int dpe_kernel_merge(enum dpe_dtype dtype, const void *gates, const void *compressed,
                     const void *windowed, int64_t heads, int64_t head_dim, void *out)
{
    switch (dtype) {
    case DPE_F32:
        return launch<float>(gates, compressed, windowed, heads, head_dim, out);
    case DPE_F16:
        return launch<dpe_f16>(gates, compressed, windowed, heads, head_dim, out);
    case DPE_BF16:
        return launch<dpe_bf16>(gates, compressed, windowed, heads, head_dim, out);
    default:
        return 1;
    }
}

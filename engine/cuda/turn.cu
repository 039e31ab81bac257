/* Turning rows of queries and keys by the tables of a plan: copies for attention, and what goes
 * into the cache. */
#include "kernels.h"
#include "vector.cuh"

namespace
{

enum { THREADS = 256 };
const int64_t MOST_BLOCKS = 1 << 20;

/* A thread a head, row and N pairs; heads of a row follow each other, they share the tables. */
template <class T, int N>
__global__ void turn_rows(const struct dpe_turn_rows a, const struct dpe_turn turn, bool turned)
{
    int64_t n_pairs = a.head_dim / 2;
    int64_t steps = n_pairs / N;
    int64_t items = a.rows * a.n_heads * steps;
    int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < items;
         i += stride) {
        int64_t j = i % steps * N;
        int64_t h = i / steps % a.n_heads;
        int64_t r = i / steps / a.n_heads;
        int64_t position = a.positions != NULL ? a.positions[r] : a.first + r;
        int64_t to_row = a.to_offsets != NULL ? a.to_offsets[r] + position : a.to_first + r;
        const T *from =
            static_cast<const T *>(a.from) + h / a.group * a.from_head + r * a.from_row + j;
        T *to = static_cast<T *>(a.to) + h * a.to_head + to_row * a.to_row + j;
        float x[N];
        float y[N];
        dpe_some<T, N>::load(from, x);
        dpe_some<T, N>::load(from + n_pairs, y);
        if (turned) {
            int64_t at = position * n_pairs + j;
            float c[N];
            float s[N];
            dpe_some<float, N>::load(turn.cos + at, c);
            dpe_some<float, N>::load(turn.sin + at, s);
            if (turn.mask != NULL) {
                const uint8_t *mask = turn.mask + h * n_pairs + j;
#pragma unroll
                for (int e = 0; e < N; e++) {
                    if (mask[e] == 0) {
                        c[e] = turn.base_cos[at + e];
                        s[e] = turn.base_sin[at + e];
                    }
                }
            }
            if (turn.undo_cos != NULL) {
#pragma unroll
                for (int e = 0; e < N; e++) {
                    /* A pair that is turned as it already was stays as it is, to the bit. */
                    float uc = turn.undo_cos[at + e];
                    float us = turn.undo_sin[at + e];
                    bool same = uc == c[e] && us == s[e];
                    float rc = c[e] * uc + s[e] * us;
                    float rs = s[e] * uc - c[e] * us;
                    c[e] = same ? 1.0f : rc;
                    s[e] = same ? 0.0f : rs;
                }
            }
#pragma unroll
            for (int e = 0; e < N; e++) {
                float turned_x = x[e] * c[e] - y[e] * s[e];
                y[e] = x[e] * s[e] + y[e] * c[e];
                x[e] = turned_x;
            }
        }
        dpe_some<T, N>::store(to, x);
        dpe_some<T, N>::store(to + n_pairs, y);
    }
}

template <class T, int N> int launch(const struct dpe_turn_rows *rows, const struct dpe_turn *turn)
{
    const struct dpe_turn none = {};
    int64_t items = rows->rows * rows->n_heads * (rows->head_dim / 2 / N);
    int64_t blocks = (items + THREADS - 1) / THREADS;
    return dpe_launch(turn_rows<T, N>,
                      static_cast<unsigned>(blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks), THREADS,
                      0, NULL, *rows, turn == NULL ? none : *turn, turn != NULL);
}

template <class T> int launch_of(const struct dpe_turn_rows *rows, const struct dpe_turn *turn)
{
    int64_t strides = rows->from_row | rows->from_head | rows->to_row | rows->to_head;
    uintptr_t addresses =
        reinterpret_cast<uintptr_t>(rows->from) | reinterpret_cast<uintptr_t>(rows->to);
    bool eight = rows->head_dim % 16 == 0 && strides % 8 == 0 && addresses % 16 == 0;
    return eight ? launch<T, 8>(rows, turn) : launch<T, 1>(rows, turn);
}

} // namespace

int dpe_kernel_turn(const struct dpe_turn_rows *rows, const struct dpe_turn *turn)
{
    switch (rows->dtype) {
    case DPE_F32:
        return launch_of<float>(rows, turn);
    case DPE_F16:
        return launch_of<dpe_f16>(rows, turn);
    case DPE_BF16:
        return launch_of<dpe_bf16>(rows, turn);
    }
    return 1;
}

/* Rotating rows of queries and keys by the tables of a plan: copies for attention, and what goes
 * into the cache. */
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/kernels.h"
#include "engine/plan/plan.h"

namespace
{

enum { THREADS = 256, AT_ONCE = 4 * THREADS };
const int64_t MOST_BLOCKS = 1 << 20;

/* Whether each of the N pairs from `mask` on is in it. */
template <int N> __device__ __forceinline__ void load_mask(const uint8_t *mask, bool *in)
{
    if constexpr (N == 1) {
        in[0] = mask[0] != 0;
    } else {
        uint2 bytes = *reinterpret_cast<const uint2 *>(mask);
#pragma unroll
        for (int e = 0; e < N; e++) {
            in[e] = ((e < 4 ? bytes.x : bytes.y) >> e % 4 * 8 & 0xffU) != 0;
        }
    }
}

/* By what N pairs are rotated; `at`: their place in the tables, `mask`: theirs, or NULL. */
template <int N>
__device__ __forceinline__ void load_rotation(const struct dpe_row_rotation &rotation, int64_t at,
                                              const uint8_t *mask, float *c, float *s)
{
    float other_c[N];
    float other_s[N];
    dpe_some<float, N>::load(rotation.cos + at, c);
    dpe_some<float, N>::load(rotation.sin + at, s);
    if (mask != NULL) {
        bool in[N];
        load_mask<N>(mask, in);
        dpe_some<float, N>::load(rotation.base_cos + at, other_c);
        dpe_some<float, N>::load(rotation.base_sin + at, other_s);
#pragma unroll
        for (int e = 0; e < N; e++) {
            c[e] = in[e] ? c[e] : other_c[e];
            s[e] = in[e] ? s[e] : other_s[e];
        }
    }
    if (rotation.undo_cos != NULL) {
        dpe_some<float, N>::load(rotation.undo_cos + at, other_c);
        dpe_some<float, N>::load(rotation.undo_sin + at, other_s);
#pragma unroll
        for (int e = 0; e < N; e++) {
            /* A pair that is rotated as it already was stays as it is, to the bit. */
            bool same = other_c[e] == c[e] && other_s[e] == s[e];
            float by_c = c[e] * other_c[e] + s[e] * other_s[e];
            float by_s = s[e] * other_c[e] - c[e] * other_s[e];
            c[e] = same ? 1.0f : by_c;
            s[e] = same ? 0.0f : by_s;
        }
    }
}

template <int N> __device__ __forceinline__ void multiply(const float *by, float *x)
{
    float some[N];
    dpe_some<float, N>::load(by, some);
#pragma unroll
    for (int e = 0; e < N; e++) {
        x[e] *= some[e];
    }
}

struct rotated_calls {
    struct dpe_rotated_rows of[DPE_ROTATED_AT_ONCE];
    int32_t together[DPE_ROTATED_AT_ONCE]; /* rows that a block takes at a time */
};

/* N pairs of a head and row as they are, or under every rotation. */
template <class T, int N>
__device__ __forceinline__ void rotate_some(const struct dpe_rotated_rows &a, int64_t r, int h,
                                            int j)
{
    const int64_t n_pairs = a.head_dim / 2;
    int64_t position = a.positions != NULL ? a.positions[r] : a.first + r;
    int64_t to_row = a.to_offsets != NULL ? a.to_offsets[r] + position : a.to_first + r;
    int from_head = h / static_cast<int>(a.group);
    const T *from = static_cast<const T *>(a.from) + from_head * a.from_head + r * a.from_row + j;
    T *to = static_cast<T *>(a.to) + h * a.to_head + to_row * a.to_row + j;
    float x[N];
    float y[N];
    dpe_some<T, N>::load(from, x);
    dpe_some<T, N>::load(from + n_pairs, y);
    if (a.n_rotations == 0) {
        dpe_some<T, N>::store(to, x);
        dpe_some<T, N>::store(to + n_pairs, y);
    }
#pragma unroll 1
    for (int copy = 0; copy < a.n_rotations; copy++, to += a.to_copy) {
        const struct dpe_row_rotation &rotation = a.rotations[copy];
        float c[N];
        float s[N];
        float low[N];
        float high[N];
        load_rotation<N>(rotation, position * n_pairs + j,
                         rotation.mask == NULL ? NULL : rotation.mask + h * n_pairs + j, c, s);
#pragma unroll
        for (int e = 0; e < N; e++) {
            low[e] = x[e] * c[e] - y[e] * s[e];
            high[e] = x[e] * s[e] + y[e] * c[e];
        }
        if (a.late != NULL) {
            multiply<N>(a.late + j, low);
            multiply<N>(a.late + n_pairs + j, high);
        }
        dpe_some<T, N>::store(to, low);
        dpe_some<T, N>::store(to + n_pairs, high);
    }
}

/* A block takes `together` rows of call blockIdx.y at a time, a thread N pairs of a head. What a
 * thread looks for is so found by divisions of 32 bits; heads of a row follow each other, they
 * share the tables. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    rotate_rows(const __grid_constant__ struct rotated_calls calls)
{
    const struct dpe_rotated_rows &a = calls.of[blockIdx.y];
    const int together = calls.together[blockIdx.y];
    int steps = static_cast<int>(a.head_dim / 2) / N;
    int of_row = static_cast<int>(a.n_heads) * steps;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * together; first < a.rows;
         first += static_cast<int64_t>(gridDim.x) * together) {
        for (int i = static_cast<int>(threadIdx.x); i < together * of_row; i += THREADS) {
            int64_t r = first + i / of_row;
            int item = i % of_row;
            if (r < a.rows) {
                rotate_some<T, N>(a, r, item / steps, item % steps * N);
            }
        }
    }
}

template <class T, int N> int launch(struct rotated_calls *calls, int n)
{
    int64_t most = 1;
    for (int i = 0; i < n; i++) {
        const struct dpe_rotated_rows *a = &calls->of[i];
        const int64_t of_row = a->n_heads * (a->head_dim / 2 / N);
        /* Few rows are dealt to as many blocks as there can be. */
        const int64_t together = a->rows < 1024 || of_row > AT_ONCE ? 1 : AT_ONCE / of_row;
        const int64_t blocks = (a->rows + together - 1) / together;
        calls->together[i] = static_cast<int32_t>(together);
        most = blocks > most ? blocks : most;
    }
    most = most > MOST_BLOCKS ? MOST_BLOCKS : most;
    return dpe_launch(rotate_rows<T, N>,
                      dim3(static_cast<unsigned>(most), static_cast<unsigned>(n)), THREADS, 0,
                      *calls);
}

/* Whether eight pairs can be taken at a time. */
bool by_eight(const struct dpe_rotated_rows *a)
{
    int64_t strides = a->from_row | a->from_head | a->to_row | a->to_head;
    uintptr_t addresses = reinterpret_cast<uintptr_t>(a->from) | reinterpret_cast<uintptr_t>(a->to);
    uintptr_t masks = reinterpret_cast<uintptr_t>(a->late) % 16;
    for (int i = 0; i < a->n_rotations; i++) {
        masks |= reinterpret_cast<uintptr_t>(a->rotations[i].mask);
    }
    strides |= a->n_rotations > 1 ? a->to_copy : 0;
    return a->head_dim % 16 == 0 && strides % 8 == 0 && addresses % 16 == 0 && masks % 8 == 0;
}

} // namespace

int dpe_kernel_rotate(const struct dpe_rotated_rows *calls, int n)
{
    struct rotated_calls all = {};
    bool eight = true;
    if (n < 1 || n > DPE_ROTATED_AT_ONCE) {
        return 1;
    }
    for (int i = 0; i < n; i++) {
        all.of[i] = calls[i];
        eight = eight && by_eight(&calls[i]);
    }
    DPE_FOR_DTYPE(calls->dtype, (eight ? launch<T, 8>(&all, n) : launch<T, 1>(&all, n)));
}

/* Layers with a state token by token (cuda_recur.h), as steps of decoding have them; the gate of
 * outputs. */
#include "engine/cuda/kernels/recur.cuh"

namespace
{

/* Threads of a block with up to FEW_ROWS numbers of S each, and with up to MANY_ROWS. */
enum { THREADS = 512, FEW_ROWS = 32, FEWER_THREADS = 384, MANY_ROWS = 48, MOST_PARTS = 16 };

/* How the threads of a block share S: a column each, and `parts` of them the rows of a column. */
struct sharing {
    int columns, parts, rows;
};

__host__ __device__ sharing share_among(int threads, int key_dim, int value_dim)
{
    const int columns = (value_dim + 31) / 32 * 32;
    const int most = threads / columns < MOST_PARTS ? threads / columns : +MOST_PARTS;
    const int wanted = (key_dim + 7) / 8;
    const int parts = wanted < most ? wanted : most;
    return {columns, parts, (key_dim + parts - 1) / parts};
}

__host__ __device__ sharing share(int key_dim, int value_dim)
{
    const sharing s = share_among(THREADS, key_dim, value_dim);
    return s.rows <= FEW_ROWS ? s : share_among(FEWER_THREADS, key_dim, value_dim);
}

/* Sum of a column's parts, which are in `room` [parts][columns]; a barrier before and after. */
__device__ float add_parts(float *room, const sharing &s, int part, int column, float value)
{
    room[part * s.columns + column] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int p = 0; p < s.parts; p++) {
        sum += room[p * s.columns + column];
    }
    __syncthreads();
    return sum;
}

/* q, k and v of a token into `made` [2 key_dim + value_dim], q and k normalised. */
template <class T>
__device__ void make_token(const struct dpe_recur &c, const float *state, int64_t first,
                           int64_t row, int head, float *made)
{
    const int key_head = dpe_recur_key_head(c, head);
    float squares[2] = {0.0f, 0.0f};
    for (int i = static_cast<int>(threadIdx.x); i < 2 * c.key_dim + c.value_dim;
         i += static_cast<int>(blockDim.x)) {
        const int part = i < c.key_dim ? 0 : i < 2 * c.key_dim ? 1 : 2;
        const int64_t channel = i - part * c.key_dim +
                                (part < 2 ? static_cast<int64_t>(key_head) * c.key_dim
                                          : static_cast<int64_t>(head) * c.value_dim);
        made[i] = dpe_recur_convolved<T>(c, state, part, first, row, channel);
        squares[0] += part == 0 ? made[i] * made[i] : 0.0f;
        squares[1] += part == 1 ? made[i] * made[i] : 0.0f;
    }
    const float of_q = dpe_block_sum(squares[0]); /* after these barriers all of `made` is there */
    const float of_k = dpe_block_sum(squares[1]);
    const float by[2] = {1.0f / sqrtf((of_q + 1e-6f) * static_cast<float>(c.key_dim)),
                         1.0f / sqrtf(of_k + 1e-6f)};
    for (int i = static_cast<int>(threadIdx.x); i < 2 * c.key_dim;
         i += static_cast<int>(blockDim.x)) {
        made[i] *= by[i / c.key_dim];
    }
    __syncthreads();
}

/* The rows that the state keeps of v's channels, and, by the last block of a key head, which all
 * read them, of q and k. */
template <class T>
__device__ void keep_rows(const struct dpe_recur &c, float *state, int64_t first, int64_t rows,
                          int head, int32_t *arrived)
{
    __shared__ int last;
    const int group = c.value_heads / c.key_heads;
    const int64_t key_head = dpe_recur_key_head(c, head);
    __syncthreads();
    for (int d = static_cast<int>(threadIdx.x); d < c.value_dim;
         d += static_cast<int>(blockDim.x)) {
        dpe_recur_keep<T>(c, state, 2, first, rows, static_cast<int64_t>(head) * c.value_dim + d);
    }
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1) == group - 1 ? 1 : 0;
        if (last != 0) {
            *arrived = 0;
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); last != 0 && i < 2 * c.key_dim;
         i += static_cast<int>(blockDim.x)) {
        dpe_recur_keep<T>(c, state, i / c.key_dim, first, rows,
                          key_head * c.key_dim + i % c.key_dim);
    }
}

/* A block a run of a state and a value head; ROWS of S a thread. */
template <class T, int ROWS>
__global__ void __launch_bounds__(ROWS == FEW_ROWS ? +THREADS : +FEWER_THREADS)
    recur_tokens(const __grid_constant__ dpe_recur c, int32_t *arrived)
{
    __shared__ float made[3 * DPE_RECUR_MOST_DIM];
    __shared__ float room[THREADS];
    const int head = static_cast<int>(blockIdx.x) % c.value_heads;
    const int run = static_cast<int>(blockIdx.x) / c.value_heads;
    const sharing s = share(c.key_dim, c.value_dim);
    const int column = static_cast<int>(threadIdx.x) % s.columns;
    const int part = static_cast<int>(threadIdx.x) / s.columns;
    const int from = part * s.rows;
    const int left = c.key_dim - from;
    const int rows = column < c.value_dim ? (left < s.rows ? left : s.rows) : 0;
    /* Several states: a run of one token, this row. */
    const int64_t first = c.which != NULL ? run : 0;
    const int64_t n = c.which != NULL ? 1 : c.rows;
    float *state = dpe_recur_state(c, c.which != NULL ? c.which[run] : c.state);
    float *matrix =
        dpe_recur_matrix(c, state, head) + static_cast<int64_t>(from) * c.value_dim + column;
    for (int i = static_cast<int>(threadIdx.x); i < 3 * DPE_RECUR_MOST_DIM;
         i += static_cast<int>(blockDim.x)) {
        made[i] = 0.0f;
    }
    __syncthreads();
    float own[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        own[r] = r < rows ? matrix[r * c.value_dim] : 0.0f;
    }
#pragma unroll 1
    for (int64_t row = 0; row < n; row++) {
        float kept = 0.0f;
        float beta = 0.0f;
        float sum = 0.0f;
        make_token<T>(c, state, first, row, head, made);
        dpe_recur_gates<T>(c, first + row, head, &kept, &beta);
        const float *q = made + from;
        const float *k = made + c.key_dim + from;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            own[r] *= kept;
            sum = fmaf(own[r], k[r], sum); /* beyond `rows` 0 times what is there */
        }
        const float v = column < c.value_dim ? made[2 * c.key_dim + column] : 0.0f;
        const float u = beta * (v - add_parts(room, s, part, column, sum));
        sum = 0.0f;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            own[r] = fmaf(r < rows ? k[r] : 0.0f, u, own[r]);
            sum = fmaf(own[r], q[r], sum);
        }
        const float o = add_parts(room, s, part, column, sum);
        const bool mine = part == 0 && column < c.value_dim;
        const float squares = dpe_block_sum(mine ? o * o : 0.0f);
        if (mine) {
            dpe_recur_store<T>(c, first + row, head, column, o * dpe_recur_scale(c, squares));
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r < rows) {
            matrix[r * c.value_dim] = own[r];
        }
    }
    keep_rows<T>(c, state, first, n, head,
                 arrived + run * c.key_heads + dpe_recur_key_head(c, head));
}

template <class T> int tokens_of(const struct dpe_recur &c, int32_t *arrived)
{
    const sharing s = share(c.key_dim, c.value_dim);
    const int64_t blocks = (c.which != NULL ? c.rows : 1) * c.value_heads;
    auto kernel = s.rows <= FEW_ROWS ? recur_tokens<T, FEW_ROWS> : recur_tokens<T, MANY_ROWS>;
    return dpe_launch(kernel, static_cast<unsigned>(blocks),
                      static_cast<unsigned>(s.columns * s.parts), 0, c, arrived);
}

template <class T> __global__ void output_gate(T *out, const T *gate, int64_t n, int64_t each)
{
    for (int64_t i = dpe_this_thread(); i < n * each; i += dpe_all_threads()) {
        out[i] = dpe_round<T>(dpe_float(out[i]) / (1.0f + expf(-dpe_float(gate[i / each]))));
    }
}

} // namespace

bool dpe_recur_supports(const struct dpe_recurrent *shape)
{
    return shape->key_dim <= DPE_RECUR_MOST_DIM && shape->value_dim <= DPE_RECUR_MOST_DIM &&
           share(static_cast<int>(shape->key_dim), static_cast<int>(shape->value_dim)).rows <=
               MANY_ROWS;
}

int dpe_kernel_recur_tokens(const struct dpe_recur *call, int32_t *arrived)
{
    DPE_FOR_DTYPE(call->dtype, tokens_of<T>(*call, arrived));
}

int dpe_kernel_output_gate(enum dpe_dtype dtype, void *out, const void *gate, int64_t n,
                           int64_t each)
{
    DPE_FOR_DTYPE(dtype,
                  dpe_launch(output_gate<T>, dpe_element_blocks(n * each), DPE_GRID_THREADS, 0,
                             static_cast<T *>(out), static_cast<const T *>(gate), n, each));
}

/* Layers with a state in pieces of 64 tokens (cuda_recur.h). */
#include "engine/cuda/kernels/recur.cuh"

namespace
{

enum {
    PIECE = DPE_RECUR_PIECE,
    WARPS = DPE_GRID_THREADS / 32,
    COLUMNS = 32,        /* of S, a block */
    PITCH = COLUMNS + 4, /* of what is read across: eight columns of four rows meet no bank twice */
    DOTS_PITCH = PIECE + 4,
    LANE_DIM = DPE_RECUR_MOST_DIM / 32,
    FADES = 3 * PIECE, /* a_i, β_i, D_ni */
    RELATE_BYTES = (2 * PIECE * DOTS_PITCH + 2 * PIECE * PIECE) * sizeof(float),
};

/* What is made for the pieces of a call: heads with `kw` and `vw` numbers a token, which are the
 * next multiples of 16, and 0 in tokens before and after the rows of the call. */
struct made_pieces {
    float *q, *k;           /* [pieces][key_heads][PIECE][kw] */
    float *v;               /* [pieces][value_heads][PIECE][vw], then o */
    float *inverse, *mixed; /* [pieces][value_heads][PIECE][PIECE]: (1 + L)^-1, M */
    float *fades;           /* [pieces][value_heads][FADES] */
    int32_t kw, vw, pieces, unused;
};

__device__ __forceinline__ int lane_of(void)
{
    return static_cast<int>(threadIdx.x) % 32;
}
__device__ __forceinline__ int warp_of(void)
{
    return static_cast<int>(threadIdx.x) / 32;
}

/* q, k and v of each token after convolution and norms. A warp a head of a token. */
template <class T>
__global__ void convolve(const __grid_constant__ dpe_recur c, const __grid_constant__ made_pieces m)
{
    const int64_t tokens = static_cast<int64_t>(m.pieces) * PIECE;
    for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
        const int64_t row = token - c.lead;
        for (int p = warp_of(); p < 2 * c.key_heads + c.value_heads; p += WARPS) {
            const int part = p < c.key_heads ? 0 : p < 2 * c.key_heads ? 1 : 2;
            const int head = p - part * c.key_heads;
            const int heads = part < 2 ? c.key_heads : c.value_heads;
            const int dim = part < 2 ? c.key_dim : c.value_dim;
            const int wide = part < 2 ? m.kw : m.vw;
            const bool real = row >= 0 && row < c.rows;
            float *to = (part == 0   ? m.q
                         : part == 1 ? m.k
                                     : m.v) +
                        ((token / PIECE * heads + head) * PIECE + token % PIECE) * wide;
            float x[LANE_DIM];
            float squares = 0.0f;
#pragma unroll
            for (int i = 0; i < LANE_DIM; i++) {
                const int d = lane_of() + 32 * i;
                x[i] = real && d < dim
                           ? dpe_recur_convolved<T>(c, dpe_recur_state(c, c.state), part, 0, row,
                                                    static_cast<int64_t>(head) * dim + d)
                           : 0.0f;
                squares = fmaf(x[i], x[i], squares);
            }
            squares = dpe_warp_sum(squares) + 1e-6f;
            const float by = part == 0   ? 1.0f / sqrtf(squares * static_cast<float>(dim))
                             : part == 1 ? 1.0f / sqrtf(squares)
                                         : 1.0f;
#pragma unroll
            for (int i = 0; i < LANE_DIM; i++) {
                const int d = lane_of() + 32 * i;
                if (d < wide) {
                    to[d] = x[i] * by;
                }
            }
        }
    }
}

/* The rows that the state keeps. */
template <class T> __global__ void keep(const __grid_constant__ dpe_recur c)
{
    const int64_t keys = dpe_recur_width(c, 0);
    for (int64_t i = dpe_this_thread(); i < dpe_recur_channels(c); i += dpe_all_threads()) {
        const int part = i < keys ? 0 : i < 2 * keys ? 1 : 2;
        dpe_recur_keep<T>(c, dpe_recur_state(c, c.state), part, 0, c.rows, i - part * keys);
    }
}

/* ------------------------------------------------------------------------------------- products */

/* Matrices that a product reads, two neighbours along its depth k at a time: row (or column) r of
 * them next to each other, PITCH or `pitch` apart, and these times a factor for each k. */
struct along {
    const float *at;
    int pitch;
    __device__ float2 pair(int r, int k) const
    {
        return *reinterpret_cast<const float2 *>(at + r * pitch + k);
    }
};
struct across {
    const float *at;
    __device__ float2 pair(int r, int k) const
    {
        return make_float2(at[k * PITCH + r], at[(k + 1) * PITCH + r]);
    }
};
struct faded_across {
    const float *at, *by;
    int pitch;
    __device__ float2 pair(int r, int k) const
    {
        return make_float2(at[k * pitch + r] * by[k], at[(k + 1) * pitch + r] * by[k + 1]);
    }
};

/* Two floats as PARTS pairs of bfloat16, the largest first. */
template <int PARTS> __device__ __forceinline__ void split(float2 two, uint32_t (&words)[PARTS])
{
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        words[p] = dpe_pack_bf16(two.x, two.y);
        two.x -= __uint_as_float(words[p] << 16);
        two.y -= __uint_as_float(words[p] & 0xffff0000U);
    }
}

/* Rows row … row + 15 times columns 0 … 8N − 1 of b, those below `columns`, over `depth`, a
 * multiple of 16: c += a · b. */
template <int PARTS, int N, class A, class B>
__device__ __forceinline__ void multiply(const A &a, int row, const B &b, int columns, int depth,
                                         float (&c)[N][4])
{
    const int g = lane_of() / 4;
    const int t = lane_of() % 4 * 2;
#pragma unroll 1
    for (int k = 0; k < depth; k += 16) {
        uint32_t left[PARTS][4];
        uint32_t words[PARTS];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            split<PARTS>(a.pair(row + g + i % 2 * 8, k + t + i / 2 * 8), words);
#pragma unroll
            for (int p = 0; p < PARTS; p++) {
                left[p][i] = words[p];
            }
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (n * 8 >= columns) {
                continue;
            }
            uint32_t right[2][PARTS];
            split<PARTS>(b.pair(n * 8 + g, k + t), right[0]);
            split<PARTS>(b.pair(n * 8 + g, k + t + 8), right[1]);
            /* The smallest first; those below a float's last bit are left out. */
#pragma unroll
            for (int i = PARTS * PARTS - 1; i >= 0; i--) {
                if (i / PARTS + i % PARTS < PARTS) {
                    dpe_mma(dpe_bf16(), c[n], left[i / PARTS], right[0][i % PARTS],
                            right[1][i % PARTS]);
                }
            }
        }
    }
}

/* ------------------------------------------------------------------------- a piece by itself */

/* L, M and what fades, of a value head, whose gates are in `kept` and `beta`. Threads 0 … 63 a
 * column each, thread 64 what the state keeps. */
__device__ void relate_head(const float *dots, const float *kept, const float *beta, float *lower,
                            float *mixed, float *fades)
{
    const int column = static_cast<int>(threadIdx.x);
    float all = 1.0f;
    for (int i = 0; column <= PIECE && i < PIECE; i++) {
        all *= i > column || column == PIECE ? kept[i] : 1.0f;
        if (column == PIECE) {
            fades[i] = all;
            fades[PIECE + i] = beta[i];
            continue;
        }
        const float seen = i >= column ? all : 0.0f;
        lower[i * PIECE + column] =
            i > column ? beta[i] * dots[i * DOTS_PITCH + column] * seen : 0.0f;
        mixed[i * PIECE + column] = dots[(PIECE + i) * DOTS_PITCH + column] * seen;
    }
    if (column < PIECE) {
        fades[2 * PIECE + column] = all;
    }
}

/* (1 + lower)^-1, a thread a column. */
__device__ void invert(const float *lower, float *inverse)
{
    const int column = static_cast<int>(threadIdx.x);
    for (int i = 0; column < PIECE && i < PIECE; i++) {
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int j = 0; j < i; j += 4) { /* rows from i on are no part of it: L is 0 there */
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float x = j + n < i ? inverse[(j + n) * PIECE + column] : 0.0f;
                sums[n] = fmaf(lower[i * PIECE + j + n], x, sums[n]);
            }
        }
        inverse[i * PIECE + column] =
            (i == column ? 1.0f : 0.0f) - ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
}

/* A block a piece and key head. */
template <class T, int PARTS>
__global__ void __launch_bounds__(DPE_GRID_THREADS)
    relate(const __grid_constant__ dpe_recur c, const __grid_constant__ made_pieces m)
{
    DPE_SHARED(float, dots); /* [2 PIECE][DOTS_PITCH]: k · k, q · k */
    __shared__ float kept[PIECE];
    __shared__ float beta[PIECE];
    float *lower = dots + 2 * PIECE * DOTS_PITCH;
    float *inverse = lower + PIECE * PIECE;
    const int64_t piece = blockIdx.x / static_cast<unsigned>(c.key_heads);
    const int key_head = static_cast<int>(blockIdx.x) % c.key_heads;
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * PIECE * m.kw;
    const int row = warp_of() % 4 * 16;
    float sums[PIECE / 8][4] = {};
    multiply<PARTS>(along{(warp_of() < 4 ? m.k : m.q) + tile, m.kw}, row, along{m.k + tile, m.kw},
                    PIECE, m.kw, sums);
#pragma unroll
    for (int i = 0; i < PIECE / 8 * 4; i++) {
        const int at = warp_of() * 16 + lane_of() / 4 + i % 4 / 2 * 8;
        dots[at * DOTS_PITCH + i / 4 * 8 + lane_of() % 4 * 2 + i % 2] = sums[i / 4][i % 4];
    }
    for (int i = 0; i < c.value_heads / c.key_heads; i++) {
        const int head = dpe_recur_value_head(c, key_head, i);
        const int64_t place = piece * c.value_heads + head;
        if (threadIdx.x < PIECE) {
            const int64_t token = piece * PIECE + threadIdx.x - c.lead;
            kept[threadIdx.x] = 1.0f;
            beta[threadIdx.x] = 0.0f;
            if (token >= 0 && token < c.rows) {
                dpe_recur_gates<T>(c, token, head, &kept[threadIdx.x], &beta[threadIdx.x]);
            }
        }
        __syncthreads();
        relate_head(dots, kept, beta, lower, m.mixed + place * PIECE * PIECE,
                    m.fades + place * FADES);
        __syncthreads();
        invert(lower, inverse);
        __syncthreads();
        for (int at = static_cast<int>(threadIdx.x); at < PIECE * PIECE; at += DPE_GRID_THREADS) {
            m.inverse[place * PIECE * PIECE + at] = inverse[at];
        }
    }
}

/* ------------------------------------------------------------------------- from piece to piece */

/* A block some columns of the state of a value head. */
template <int PARTS>
__global__ void __launch_bounds__(DPE_GRID_THREADS, 2)
    carry(const __grid_constant__ dpe_recur c, const __grid_constant__ made_pieces m)
{
    DPE_SHARED(float, state);            /* [kw][PITCH] */
    float *right = state + m.kw * PITCH; /* [PIECE][PITCH], what u is solved from */
    float *u = right + PIECE * PITCH;
    const int slabs = (m.vw + COLUMNS - 1) / COLUMNS;
    const int head = static_cast<int>(blockIdx.x) / slabs;
    const int from = static_cast<int>(blockIdx.x) % slabs * COLUMNS;
    const int columns = min(+COLUMNS, m.vw - from);
    const int warp = warp_of();
    const int row = warp % 4 * 16;
    const int half = warp / 4 * (COLUMNS / 2);
    const int g = lane_of() / 4;
    const int t = lane_of() % 4 * 2;
    float *matrix = dpe_recur_matrix(c, dpe_recur_state(c, c.state), head) + from;
    for (int i = static_cast<int>(threadIdx.x); i < m.kw * COLUMNS; i += DPE_GRID_THREADS) {
        const bool real = i / COLUMNS < c.key_dim && from + i % COLUMNS < c.value_dim;
        state[i / COLUMNS * PITCH + i % COLUMNS] =
            real ? matrix[static_cast<int64_t>(i / COLUMNS) * c.value_dim + i % COLUMNS] : 0.0f;
    }
    __syncthreads();
    for (int piece = 0; piece < m.pieces; piece++) {
        const int64_t place = static_cast<int64_t>(piece) * c.value_heads + head;
        const int64_t tile =
            (static_cast<int64_t>(piece) * c.key_heads + dpe_recur_key_head(c, head)) * PIECE *
            m.kw;
        const float *fades = m.fades + place * FADES;
        float *v = m.v + place * PIECE * m.vw + from;
        float o[COLUMNS / 8][4] = {};
        float solved[COLUMNS / 16][4] = {};
        /* a Sᵀ k in four warps, a Sᵀ q in the others. */
        multiply<PARTS>(along{(warp < 4 ? m.k : m.q) + tile, m.kw}, row, across{state}, columns,
                        m.kw, o);
#pragma unroll
        for (int i = 0; i < COLUMNS / 8 * 4; i++) {
            const int at = row + g + i % 4 / 2 * 8;
            const int column = i / 4 * 8 + t + i % 2;
            o[i / 4][i % 4] *= fades[at];
            if (warp < 4 && column < columns) {
                right[at * PITCH + column] =
                    fades[PIECE + at] * (v[at * m.vw + column] - o[i / 4][i % 4]);
            }
        }
        __syncthreads();
        multiply<PARTS>(along{m.inverse + place * PIECE * PIECE, PIECE}, row, across{right + half},
                        columns - half, PIECE, solved);
#pragma unroll
        for (int i = 0; i < COLUMNS / 16 * 4; i++) {
            u[(row + g + i % 4 / 2 * 8) * PITCH + half + i / 4 * 8 + t + i % 2] =
                solved[i / 4][i % 4];
        }
        __syncthreads();
        if (warp >= 4) {
            multiply<PARTS>(along{m.mixed + place * PIECE * PIECE, PIECE}, row, across{u}, columns,
                            PIECE, o);
#pragma unroll
            for (int i = 0; i < COLUMNS / 8 * 4; i++) {
                const int column = i / 4 * 8 + t + i % 2;
                if (column < columns) {
                    v[(row + g + i % 4 / 2 * 8) * m.vw + column] = o[i / 4][i % 4];
                }
            }
        }
        for (int first = warp * 16; first < m.kw; first += WARPS * 16) {
            float sums[COLUMNS / 8][4];
#pragma unroll
            for (int i = 0; i < COLUMNS / 8 * 4; i++) {
                sums[i / 4][i % 4] =
                    fades[PIECE - 1] *
                    state[(first + g + i % 4 / 2 * 8) * PITCH + i / 4 * 8 + t + i % 2];
            }
            multiply<PARTS>(faded_across{m.k + tile, fades + 2 * PIECE, m.kw}, first, across{u},
                            columns, PIECE, sums);
#pragma unroll
            for (int i = 0; i < COLUMNS / 8 * 4; i++) {
                state[(first + g + i % 4 / 2 * 8) * PITCH + i / 4 * 8 + t + i % 2] =
                    sums[i / 4][i % 4];
            }
        }
        __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < m.kw * COLUMNS; i += DPE_GRID_THREADS) {
        if (i / COLUMNS < c.key_dim && from + i % COLUMNS < c.value_dim) {
            matrix[static_cast<int64_t>(i / COLUMNS) * c.value_dim + i % COLUMNS] =
                state[i / COLUMNS * PITCH + i % COLUMNS];
        }
    }
}

/* Norm and gate of what the pieces gave. A warp a head of a token. */
template <class T>
__global__ void finish(const __grid_constant__ dpe_recur c, const __grid_constant__ made_pieces m)
{
    for (int64_t row = blockIdx.x; row < c.rows; row += gridDim.x) {
        const int64_t token = row + c.lead;
        for (int head = warp_of(); head < c.value_heads; head += WARPS) {
            const float *o =
                m.v + ((token / PIECE * c.value_heads + head) * PIECE + token % PIECE) * m.vw;
            float x[LANE_DIM];
            float squares = 0.0f;
#pragma unroll
            for (int i = 0; i < LANE_DIM; i++) {
                const int d = lane_of() + 32 * i;
                x[i] = d < c.value_dim ? o[d] : 0.0f;
                squares = fmaf(x[i], x[i], squares);
            }
            const float scale = dpe_recur_scale(c, dpe_warp_sum(squares));
#pragma unroll
            for (int i = 0; i < LANE_DIM; i++) {
                const int d = lane_of() + 32 * i;
                if (d < c.value_dim) {
                    dpe_recur_store<T>(c, row, head, d, x[i] * scale);
                }
            }
        }
    }
}

/* Takes so many floats of a workspace; its first is at NULL where only their number is asked for.
 */
float *take(float *workspace, int64_t *used, int64_t n)
{
    float *at = workspace != NULL ? workspace + *used : NULL;
    *used += n; /* multiples of 16 */
    return at;
}

int64_t lay_out(int64_t key_heads, int64_t value_heads, int64_t key_dim, int64_t value_dim,
                int64_t pieces, float *workspace, struct made_pieces *m)
{
    int64_t used = 0;
    m->kw = static_cast<int32_t>((key_dim + 15) / 16 * 16);
    m->vw = static_cast<int32_t>((value_dim + 15) / 16 * 16);
    m->pieces = static_cast<int32_t>(pieces);
    m->unused = 0;
    m->q = take(workspace, &used, pieces * key_heads * PIECE * m->kw);
    m->k = take(workspace, &used, pieces * key_heads * PIECE * m->kw);
    m->v = take(workspace, &used, pieces * value_heads * PIECE * m->vw);
    m->inverse = take(workspace, &used, pieces * value_heads * PIECE * PIECE);
    m->mixed = take(workspace, &used, pieces * value_heads * PIECE * PIECE);
    m->fades = take(workspace, &used, pieces * value_heads * FADES);
    return used;
}

template <class T> int pieces_of(const struct dpe_recur &c, const struct made_pieces &m)
{
    constexpr int PARTS = sizeof(T) == 4 ? 3 : 2;
    const unsigned relations = static_cast<unsigned>(m.pieces * c.key_heads);
    const unsigned slabs = static_cast<unsigned>((m.vw + COLUMNS - 1) / COLUMNS * c.value_heads);
    const size_t shared = static_cast<size_t>(m.kw + 2 * PIECE) * PITCH * sizeof(float);
    int code = dpe_launch(convolve<T>, dpe_row_blocks(static_cast<int64_t>(m.pieces) * PIECE),
                          DPE_GRID_THREADS, 0, c, m);
    if (code == 0) {
        code = dpe_launch(keep<T>,
                          dpe_element_blocks(2 * static_cast<int64_t>(c.key_heads) * c.key_dim +
                                             static_cast<int64_t>(c.value_heads) * c.value_dim),
                          DPE_GRID_THREADS, 0, c);
    }
    if (code == 0) {
        code = dpe_launch((relate<T, PARTS>), relations, DPE_GRID_THREADS, RELATE_BYTES, c, m);
    }
    if (code == 0) {
        code = dpe_launch(carry<PARTS>, slabs, DPE_GRID_THREADS, shared, c, m);
    }
    return code != 0 ? code
                     : dpe_launch(finish<T>, dpe_row_blocks(c.rows), DPE_GRID_THREADS, 0, c, m);
}

} // namespace

int64_t dpe_recur_floats(const struct dpe_recurrent *shape, int64_t pieces)
{
    struct made_pieces m;
    return lay_out(shape->key_heads, shape->value_heads, shape->key_dim, shape->value_dim, pieces,
                   NULL, &m);
}

int dpe_kernel_recur_pieces(const struct dpe_recur *call, float *workspace)
{
    struct made_pieces m;
    lay_out(call->key_heads, call->value_heads, call->key_dim, call->value_dim,
            (call->lead + call->rows + PIECE - 1) / PIECE, workspace, &m);
    DPE_FOR_DTYPE(call->dtype, pieces_of<T>(*call, m));
}

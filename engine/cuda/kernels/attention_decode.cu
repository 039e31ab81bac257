/* Decoding by mma.sync. A thread block has one unit and up to eight KV heads, a warp each, so that
 * a tile of the table that rotates keys further is read once for all of them; where there are fewer
 * KV heads, several warps share one and take turns with the keys. A warp's 16 rows are the query
 * heads of its KV head times the rows of the unit.
 *
 *     S = Q K^T     B: the keys of the cache as they are, and, for bands that need it, the same
 *                   registers rotated: the two halves of a pair lie in the same lane
 *     O += P V      P from the accumulators of S
 *
 * With a mask some pairs of a query head meet the key as it is and the others the rotated one: Q is
 * split in two that are zero where the other is not, and two products are added. Positions are
 * below 2^30 here.
 *
 * Tiles of 16 keys go through a ring of three stages (cp.async). Rows in shared memory have 16
 * bytes to spare, so that eight of them touch all banks. */
#include "engine/cuda/kernels/attention_decode_tile.cuh"
#include "engine/cuda/kernels/log_n.cuh"

namespace
{

template <class T, int D> struct state {
    queries<D> q;
    float out[sizes<D>::columns / 8][4];
    float top[2], sum[2];
    float inner[2], factor[2]; /* of a row: dpe_logit_factor; base-2 logit of a score */
};

/* Of a block's tables, and all that it has in shared memory. */
template <int D>
__host__ __device__ __forceinline__ int table_bytes(const dpe_decode_dealing &dealt)
{
    const bool none = sizes<D>::sharers > 1 && dealt.unstaged != 0;
    return none ? 0 : sizes<D>::stages * dealt.turns * sizes<D>::table;
}
template <int D> int64_t shared_bytes(const dpe_decode_dealing &dealt)
{
    using size = sizes<D>;
    const int64_t of_each = 2 * size::stages * size::tile + size::sharers * size::words;
    return dealt.heads * dealt.turns * of_each + table_bytes<D>(dealt);
}

/* The unit's row that half h of a lane's results is about. */
__device__ inline int row_of_lane(const dpe_decode_unit &unit, const place &at, int h)
{
    int row = (at.lane / 4 + 8 * h) / at.group;
    return row < unit.n_rows ? row : unit.n_rows - 1;
}

/* Bit e: whether result e of the lane lies in band b; not run often. */
__device__ __forceinline__ uint32_t in_band(const dpe_decode &call, const dpe_decode_unit &unit,
                                            const place &at, int b, int n0)
{
    int last = n0 + KEYS < at.end ? n0 + KEYS : at.end;
    uint32_t wanted = 0;
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
        int m = static_cast<int>(call.parts[unit.row_first + row_of_lane(unit, at, h)].position);
#pragma unroll 1
        for (int e = 0; e < 4; e++) {
            int n = n0 + at.lane % 4 * 2 + e / 2 * 8 + e % 2;
            bool here = n < last && band_of(call, m, n) == b;
            wanted |= here ? 1U << (e / 2 * 4 + 2 * h + e % 2) : 0U;
        }
    }
    return wanted;
}

/* Where a tile's table is staged, and the band that it belongs to. */
struct staged_table {
    uint32_t address; /* in shared memory */
    int band;
};

/* Scores of a tile: of the one band that all of it has, or of each band where it holds. */
template <class T, int D, bool CAPPED>
__device__ __forceinline__ void
tile_scores(const dpe_decode &call, const dpe_decode_unit &unit, const place &at, state<T, D> &st,
            int band, uint32_t keys, const staged_table &staged, int n0, float (&s)[2][4])
{
    bool mixed = band == MIXED;
    const int last_row = min(KEYS - 1, at.end - 1 - n0);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = -INFINITY;
    }
#pragma unroll 1
    for (int b = mixed ? 0 : band; b < (mixed ? call.n_bands : band + 1); b++) {
        uint32_t wanted = mixed ? in_band(call, unit, at, b, n0) : 0xffU;
        if (__any_sync(0xffffffffU, wanted != 0) == 0) {
            continue;
        }
        load_queries<T, D>(call, unit, at, b, st.q);
        const unsigned char *global = reinterpret_cast<const unsigned char *>(
            call.bands[b].table == NULL || b == staged.band
                ? NULL
                : call.bands[b].table + static_cast<int64_t>(n0) * sizes<D>::pairs);
        float of_band[2][4];
        scores<T, D>(st.q, at, keys, {staged.address, global, last_row}, of_band);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            s[e / 4][e % 4] = (wanted >> e & 1U) != 0 ? of_band[e / 4][e % 4] : s[e / 4][e % 4];
        }
    }
    if constexpr (sizes<D>::sharers > 1) {
        const uint32_t room = at.words + sizes<D>::scores;
        const int to_other = at.share == 0 ? sizes<D>::words : -sizes<D>::words;
        dpe_pair_sum(s, room, room + static_cast<uint32_t>(to_other));
    }
#pragma unroll
    for (int e = 0; CAPPED && e < 8; e++) {
        float &x = s[e / 4][e % 4];
        x = x == -INFINITY ? x : call.cap * dpe_tanh(T{}, x * st.inner[e % 4 / 2]);
    }
}

/* Weights of a tile's scores, and its values added. */
template <class T, int D>
__device__ void take_tile(state<T, D> &st, float (&s)[2][4], uint32_t values, int lane)
{
    using size = sizes<D>;
    bool rescale = false;
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most =
            fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        most *= st.factor[h];
        most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
        /* Exponents up to 8 above the old maximum do no harm. */
        bool higher = most > st.top[h] + 8.0F || (st.top[h] == -INFINITY && most > -INFINITY);
        scale[h] = higher ? dpe_exp2(st.top[h] - most) : 1.0F;
        st.top[h] = higher ? most : st.top[h];
        rescale = rescale || higher;
    }
    if (__any_sync(0xffffffffU, rescale) != 0) {
#pragma unroll
        for (int i = 0; i < size::columns / 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                st.out[i][e] *= scale[e / 2];
            }
        }
        st.sum[0] *= scale[0];
        st.sum[1] *= scale[1];
    }
    uint32_t p[4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float weights[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float x = s[j][2 * h + e];
                weights[e] = x == -INFINITY ? 0.0F : dpe_exp2(x * st.factor[h] - st.top[h]);
            }
            st.sum[h] += weights[0] + weights[1];
            p[2 * j + h] = dpe_pack(weights[0], weights[1], T{});
        }
    }
    uint32_t row =
        values + static_cast<uint32_t>((lane / 8 % 2 * 8 + lane % 8) * size::row + lane / 16 * 16);
#pragma unroll
    for (int i = 0; i < size::columns / 16; i++) {
        uint32_t b[4];
        dpe_ldmatrix_transposed(b, row + 32U * i);
        dpe_mma(T{}, st.out[2 * i], p, b[0], b[1]);
        dpe_mma(T{}, st.out[2 * i + 1], p, b[2], b[3]);
    }
}

/* Positions and base-2 factors of a lane's two rows. */
template <class T, int D, bool CAPPED>
__device__ void begin_rows(const dpe_decode &call, const dpe_decode_unit &unit, const place &at,
                           state<T, D> &st)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = row_of_lane(unit, at, h);
        float keys = static_cast<float>(call.parts[unit.row_first + row].position) + 1.0F;
        st.inner[h] = dpe_logit_factor<CAPPED>(call, keys);
        st.factor[h] = CAPPED ? 1.4426950408889634F : st.inner[h]; /* known, so no register */
        st.top[h] = -INFINITY;
        st.sum[h] = 0.0F;
    }
    st.q.band = NOTHING;
    st.q.has_plain = st.q.has_rotated = false;
#pragma unroll
    for (int i = 0; i < sizes<D>::columns / 8; i++) {
        st.out[i][0] = st.out[i][1] = st.out[i][2] = st.out[i][3] = 0.0F;
    }
}

template <class T, int D>
__device__ void store_part(const dpe_decode_unit &unit, const place &at, state<T, D> &st,
                           part<D> *to)
{
    constexpr int columns = sizes<D>::columns;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.sum[h] += __shfl_xor_sync(0xffffffffU, st.sum[h], 1);
        st.sum[h] += __shfl_xor_sync(0xffffffffU, st.sum[h], 2);
        int row = at.lane / 4 + 8 * h;
        if (row >= at.group * unit.n_rows) {
            continue;
        }
        if (at.lane % 4 == 0 && at.share == 0) {
            /* A sum that is not a number has to count, also where no logit was one. */
            to->top[row] = st.sum[h] == st.sum[h] ? st.top[h] : 0.0F;
            to->sum[row] = st.sum[h];
        }
#pragma unroll
        for (int i = 0; i < columns / 8; i++) {
            *reinterpret_cast<float2 *>(
                &to->out[row][columns * at.share + 8 * i + at.lane % 4 * 2]) =
                make_float2(st.out[i][2 * h], st.out[i][2 * h + 1]);
        }
    }
}

/* The block's unit, whose keys are those of `call`. */
template <class T, int D, bool CAPPED>
__device__ __forceinline__ void take_unit(const dpe_decode &call, const dpe_decode_unit &unit)
{
    using size = sizes<D>;
    constexpr int STAGES = size::stages;
    DPE_SHARED(unsigned char, memory);
    const dpe_decode_dealing dealt = call.dealing;
    if (unit.n_rows == 0) {
        return;
    }
    int warp = static_cast<int>(threadIdx.x) / 32;
    const int sharing = warp / size::sharers; /* which warps that share tiles */
    place at;
    at.lane = static_cast<int>(threadIdx.x) % 32;
    at.share = warp % size::sharers;
    at.head = static_cast<int>(blockIdx.y) * dealt.heads + sharing % dealt.heads;
    at.turn = sharing / dealt.heads;
    at.group = static_cast<int>(call.n_heads / call.n_kv_heads);
    const int tables = dealt.heads * dealt.turns * STAGES * 2 * size::tile;
    at.stages =
        dpe_shared_address(memory) + static_cast<uint32_t>(sharing * STAGES * 2 * size::tile);
    at.tables = dpe_shared_address(memory) + static_cast<uint32_t>(tables);
    at.words =
        at.tables + static_cast<uint32_t>(table_bytes<D>(dealt) + warp * size::words + 8 * at.lane);
    at.source = at.head * call.head_stride +
                static_cast<int64_t>(unit.shift + at.lane / size::lanes) * D +
                size::columns * at.share + at.lane % size::lanes * 8;
    at.to = static_cast<uint32_t>(at.lane / size::lanes * size::row + 2 * size::columns * at.share +
                                  at.lane % size::lanes * 16);
    at.first = static_cast<int>(unit.first);
    at.end = static_cast<int>(unit.end);
    at.lowest = at.highest = static_cast<int>(call.parts[unit.row_first].position);
    for (int r = 1; r < unit.n_rows; r++) {
        int m = static_cast<int>(call.parts[unit.row_first + r].position);
        at.lowest = m < at.lowest ? m : at.lowest;
        at.highest = m > at.highest ? m : at.highest;
    }
    state<T, D> st;
    begin_rows<T, D, CAPPED>(call, unit, at, st);
    const int step = KEYS * dealt.turns;
    static_assert(STAGES == 3 || STAGES == 2, "bands of the tiles ahead of the one at hand");
    int next_band = NOTHING;
    int later_band = NOTHING;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        next_band = later_band;
        if (at.first + i * step < at.end) {
            later_band = copy_tile<T, D>(call, at, at.first + i * step, i);
        }
        dpe_copy_async_commit();
    }
    int stage = 0;
#pragma unroll 1
    for (int super = at.first; super < at.end; super += step) {
        dpe_copy_async_wait<STAGES - 2>();
        __syncthreads();
        int next = stage == 0 ? STAGES - 1 : stage - 1;
        int super_band = STAGES == 2 ? later_band : next_band;
        next_band = later_band;
        if (super + (STAGES - 1) * step < at.end) {
            later_band = copy_tile<T, D>(call, at, super + (STAGES - 1) * step, next);
        }
        dpe_copy_async_commit();
        int n0 = super + at.turn * KEYS;
        int band = MIXED;
        if (n0 + KEYS <= at.end) {
            /* What the whole tile has its parts have too. */
            band = super_band != MIXED ? super_band : band_of_tile(call, at, n0, n0 + KEYS);
        }
        uint32_t keys = at.stages + static_cast<uint32_t>(2 * stage * size::tile);
        const int table = (stage * dealt.turns + at.turn) * size::table;
        const staged_table staged = {at.tables + static_cast<uint32_t>(table),
                                     table_of_tile<D>(call, super_band)};
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        if (band == NOTHING || n0 >= at.end) {
            continue;
        }
        float s[2][4];
        tile_scores<T, D, CAPPED>(call, unit, at, st, band, keys, staged, n0, s);
        const uint32_t values = static_cast<uint32_t>(size::tile + 2 * size::columns * at.share);
        take_tile<T, D>(st, s, keys + values, at.lane);
    }
    dpe_copy_async_wait<0>();
    part<D> *parts = static_cast<part<D> *>(call.partial);
    int64_t slot = static_cast<int64_t>(blockIdx.x) * dealt.turns + at.turn;
    store_part<T, D>(unit, at, st, parts + slot * call.n_kv_heads + at.head);
}

template <class T, int D, bool CAPPED>
__global__ void __launch_bounds__(32 * WARPS, 1) decode(const __grid_constant__ dpe_decode call)
{
    take_unit<T, D, CAPPED>(call, call.units[blockIdx.x]);
}

struct decode_calls {
    dpe_decode of[DPE_DECODE_CALLS];
};

template <class T, int D>
__global__ void __launch_bounds__(32 * WARPS, 1)
    decode_together(const __grid_constant__ decode_calls calls)
{
    const dpe_decode_unit &unit = calls.of[0].units[blockIdx.x];
    if constexpr (D == 128) {
        /* With its address in registers those of sm_100 and sm_120 would not suffice. */
        __shared__ dpe_decode_unit copy;
        if (threadIdx.x == 0) {
            copy = unit;
        }
        __syncthreads();
        take_unit<T, D, false>(calls.of[copy.call], copy);
    } else {
        take_unit<T, D, false>(calls.of[unit.call], unit);
    }
}

/* The parts of a row: those of its units' turns, first of list a, then of b. Offsets count floats
 * and fit 32 bits: there are at most some thousand parts. */
template <int D> struct row_parts {
    static_assert(sizeof(part<D>) == sizeof(float) * ROWS * (D + 2),
                  "out, top and sum lie together");
    const float *parts; /* of the KV head */
    int step;           /* from the part of one turn to that of the next */
    int a, b;           /* from `parts` to where part 0 of either list would lie */
    int a_row, b_row;
    int n_a, n;

    __device__ const float *out(int i) const
    {
        return parts + (i * step + (i < n_a ? a + a_row * D : b + b_row * D));
    }
    /* The largest logit; ROWS further the sum. */
    __device__ const float *top(int i) const
    {
        return parts + (i * step + ROWS * D + (i < n_a ? a + a_row : b + b_row));
    }
};

template <int D> __device__ row_parts<D> parts_of_row(const dpe_decode &call, int64_t r, int head)
{
    constexpr int floats = ROWS * (D + 2);
    const dpe_decode_parts mine = call.parts[r];
    const int turns = call.dealing.turns;
    const int group = static_cast<int>(call.n_heads / call.n_kv_heads);
    row_parts<D> all;
    all.parts = static_cast<const float *>(call.partial) + head / group * floats;
    all.step = static_cast<int>(call.n_kv_heads) * floats;
    all.n_a = (mine.a_end - mine.a_first) * turns;
    all.n = all.n_a + (mine.b_end - mine.b_first) * turns;
    all.a = mine.a_first * turns * all.step;
    all.b = (mine.b_first * turns - all.n_a) * all.step;
    all.a_row = mine.a_row * group + head % group;
    all.b_row = mine.b_row * group + head % group;
    return all;
}

/* A block SLICE elements of a row and head, COMBINERS times a thread an element. It takes
 * MANY_PARTS at a time, of each of which a thread has the largest logit and the sum. */
enum { SLICE = 32, COMBINERS = 16, MANY_PARTS = SLICE * COMBINERS, OUTS = 10 };

/* A thread's element of the parts first + i and OUTS − 1 further ones; after the last that again.
 * They are used after a barrier or in the next round of a loop, else ptxas reads one by one. */
template <int D>
__device__ __forceinline__ void read_outs(const row_parts<D> &all, int first, int i, int some,
                                          float (&to)[OUTS])
{
    const int element =
        static_cast<int>(blockIdx.z) * SLICE + static_cast<int>(threadIdx.x) % SLICE;
#pragma unroll
    for (int k = 0; k < OUTS; k++) {
        const int at = first + min(i + k * COMBINERS, some - 1);
        to[k] = all.out(at)[element];
    }
}

/* A thread's sum over parts first … first + some − 1 of their elements times their weights; `outs`
 * has those of the first round. */
template <int D>
__device__ __forceinline__ float add_outs(const row_parts<D> &all, int first, int some,
                                          const float *weights, float (&outs)[OUTS])
{
    float out = 0.0F;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) / SLICE; i < some; i += OUTS * COMBINERS) {
#pragma unroll
        for (int k = 0; k < OUTS; k++) {
            const int at = i + k * COMBINERS;
            out += at < some ? outs[k] * weights[at] : 0.0F;
        }
        if (i + OUTS * COMBINERS < some) {
            read_outs<D>(all, first, i + OUTS * COMBINERS, some, outs);
        }
    }
    return out;
}

template <class T, int D>
__global__ void __launch_bounds__(MANY_PARTS) combine(const __grid_constant__ dpe_decode call)
{
    static_assert(D % SLICE == 0, "slices are whole");
    __shared__ float weights[MANY_PARTS];
    __shared__ float shares[COMBINERS][SLICE];
    const int thread = static_cast<int>(threadIdx.x);
    const row_parts<D> all = parts_of_row<D>(call, blockIdx.x, static_cast<int>(blockIdx.y));
    float top = -INFINITY;
    float sum = 0.0F;
    float out = 0.0F;
#pragma unroll 1
    for (int first = 0; first < all.n; first += MANY_PARTS) {
        const int some = min(MANY_PARTS, all.n - first);
        /* Threads without a part read the last one again. Nothing here waits for another read. */
        const int mine = first + min(thread, some - 1);
        const float of_mine = all.top(mine)[0];
        const float sum_of_mine = all.top(mine)[ROWS];
        float outs[OUTS];
        read_outs<D>(all, first, thread / SLICE, some, outs);
        const float most = fmaxf(top, dpe_block_max(of_mine));
        const float old = top == -INFINITY ? 0.0F : dpe_exp2(top - most);
        const float weight =
            thread >= some || of_mine == -INFINITY ? 0.0F : dpe_exp2(of_mine - most);
        weights[thread] = weight;
        sum = sum * old + (thread < some ? sum_of_mine * weight : 0.0F);
        top = most;
        __syncthreads();
        out = out * old + add_outs<D>(all, first, some, weights, outs);
        __syncthreads();
    }
    sum = dpe_block_sum(sum);
    shares[thread / SLICE][thread % SLICE] = out;
    __syncthreads();
    if (thread >= SLICE) {
        return;
    }
    out = 0.0F;
#pragma unroll
    for (int i = 0; i < COMBINERS; i++) {
        out += shares[i][thread];
    }
    const int64_t at = static_cast<int64_t>(blockIdx.x) * call.n_heads + blockIdx.y;
    const int element = static_cast<int>(blockIdx.z) * SLICE + thread;
    static_cast<T *>(call.out)[at * D + element] = dpe_round<T>(sum == 0.0F ? 0.0F : out / sum);
    if (call.lse != NULL && element == 0) {
        call.lse[at] = (top + log2f(sum)) * 0.6931471805599453F;
    }
}

__global__ void fill_table(const float *cosine, const float *sine, const float *undo_cos,
                           const float *undo_sin, int64_t n, uint32_t *table)
{
    int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += stride) {
        float c = cosine[i] * undo_cos[i] + sine[i] * undo_sin[i];
        float s = sine[i] * undo_cos[i] - cosine[i] * undo_sin[i];
        /* The device contracts: what rounds off would be left of a difference of nothing. */
        bool same = cosine[i] == undo_cos[i] && sine[i] == undo_sin[i];
        table[i] = same ? dpe_pack_half(1.0F, 0.0F) : dpe_pack_half(c, s);
    }
}

template <class T, int D> int launch(const dpe_decode *call, int n)
{
    const dpe_decode_dealing dealt = call->dealing;
    const int warps = dealt.heads * dealt.turns * sizes<D>::sharers;
    const auto shared = static_cast<size_t>(shared_bytes<D>(dealt));
    dim3 grid(static_cast<unsigned>(call->n_units),
              static_cast<unsigned>(call->n_kv_heads / dealt.heads));
    auto kernel = call->cap > 0.0F ? decode<T, D, true> : decode<T, D, false>;
    const unsigned threads = static_cast<unsigned>(32 * warps);
    decode_calls calls = {};
    for (int i = 0; i < n; i++) {
        calls.of[i] = call[i];
    }
    int error = n == 1 ? dpe_launch(kernel, grid, threads, shared, *call)
                       : dpe_launch(decode_together<T, D>, grid, threads, shared, calls);
    if (error != 0) {
        return error;
    }
    dim3 outs(static_cast<unsigned>(call->rows), static_cast<unsigned>(call->n_heads), D / SLICE);
    return dpe_launch(combine<T, D>, outs, MANY_PARTS, 0, *call);
}

using launcher = int (*)(const dpe_decode *, int);

struct kind {
    int64_t head_dim;
    int64_t (*shared)(const dpe_decode_dealing &dealt); /* what a block has in shared memory */
    launcher bf16, f16;
};

template <int D> constexpr kind kind_of(void)
{
    return {D, shared_bytes<D>, launch<dpe_bf16, D>, launch<dpe_f16, D>};
}

const kind KINDS[] = {kind_of<64>(), kind_of<96>(), kind_of<128>(), kind_of<256>(), kind_of<512>()};

} // namespace

bool dpe_decode_supports(enum dpe_dtype dtype, int64_t head_dim, int64_t n_heads,
                         int64_t n_kv_heads)
{
    return dtype != DPE_F32 && dpe_kind_of(KINDS, head_dim) != NULL && n_heads / n_kv_heads <= ROWS;
}

int64_t dpe_decode_rows(int64_t n_heads, int64_t n_kv_heads)
{
    return ROWS / (n_heads / n_kv_heads);
}

struct dpe_decode_dealing dpe_decode_deal(int64_t n_kv_heads, int64_t head_dim, uint64_t shared)
{
    struct dpe_decode_dealing best = {0, 0, 0};
    const kind *of = dpe_kind_of(KINDS, head_dim);
    const int warps = of == NULL ? 0 : head_dim == 512 ? WARPS / sizes<512>::sharers : WARPS;
    for (int32_t unstaged = 0; unstaged <= (head_dim == 512) && best.heads == 0; unstaged++) {
        for (int heads = 1; heads <= warps && heads <= n_kv_heads; heads++) {
            for (int turns = 1; heads * turns <= warps && n_kv_heads % heads == 0; turns++) {
                const struct dpe_decode_dealing dealt = {heads, turns, unstaged};
                const bool fits = static_cast<uint64_t>(of->shared(dealt)) <= shared;
                /* As many warps as fit; of those, as many heads, which share a table. */
                if (fits && heads * turns >= best.heads * best.turns) {
                    best = dealt;
                }
            }
        }
    }
    return best;
}

int64_t dpe_decode_step(struct dpe_decode_dealing dealing)
{
    return KEYS * dealing.turns;
}

uint64_t dpe_decode_partial_bytes(int64_t n_kv_heads, int64_t head_dim, int64_t n_units)
{
    /* What blocks can get on cards of 8.0, 9.0 and others. */
    const uint64_t limits[] = {163U << 10, 227U << 10, 99U << 10};
    int64_t turns = 1;
    for (uint64_t limit : limits) {
        int64_t some = dpe_decode_deal(n_kv_heads, head_dim, limit).turns;
        turns = some > turns ? some : turns;
    }
    uint64_t part = static_cast<uint64_t>(ROWS) * (static_cast<uint64_t>(head_dim) + 2) * 4;
    return part * static_cast<uint64_t>(n_units * turns * n_kv_heads);
}

int dpe_attention_decode_calls(const struct dpe_decode *calls, int n)
{
    const kind *of = n < 1 || n > DPE_DECODE_CALLS ? NULL : dpe_kind_of(KINDS, calls->head_dim);
    if (of == NULL || calls->dtype == DPE_F32) {
        return 1;
    }
    return (calls->dtype == DPE_BF16 ? of->bf16 : of->f16)(calls, n);
}

int dpe_decode_table(const float *cos, const float *sin, const float *undo_cos,
                     const float *undo_sin, int64_t n, uint32_t *table)
{
    int64_t blocks = (n + 255) / 256;
    blocks = blocks > 65536 ? 65536 : blocks;
    return dpe_launch(fill_table, static_cast<unsigned>(blocks), 256, 0, cos, sin, undo_cos,
                      undo_sin, n, table);
}

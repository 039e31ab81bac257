/* Decoding by mma.sync. A thread block has one unit and up to eight KV heads, a warp each, so that
 * a tile of the table that turns keys on is read once for all of them; where there are fewer KV
 * heads, several warps share one and take turns with the keys. A warp's 16 rows are the query heads
 * of its KV head times the rows of the unit.
 *
 *     S = Q K^T     B: the keys of the cache as they are, and, for bands that need it, the same
 *                   registers turned: the two halves of a pair lie in the same lane
 *     O += P V      P from the accumulators of S
 *
 * With a mask some pairs of a query head meet the key as it is and the others the turned one: Q is
 * split in two that are zero where the other is not, and two products are added. Positions are
 * below 2^30 here.
 *
 * Tiles of 16 keys go through a ring of three stages (cp.async). Rows in shared memory have 16
 * bytes to spare, so that eight of them touch all banks. */
#include "attention_decode.h"

#include "vector.cuh"

namespace
{

enum { KEYS = 16, STAGES = 3, WARPS = 8, ROWS = 16, MIXED = -2, NOTHING = -1 };

template <int D> struct sizes {
    static constexpr int row = 2 * D + 16;  /* bytes of a key in shared memory */
    static constexpr int tile = KEYS * row; /* K or V of a warp */
    static constexpr int pairs = D / 2;
    static constexpr int table_row = 4 * pairs + 32; /* bytes */
    static constexpr int table = KEYS * table_row;   /* of a warp's keys */
    static constexpr int steps = D / 16;
};

/* A part's place: O of one KV head in one unit's turn. */
template <int D> struct part {
    float out[ROWS][D];
    float top[ROWS], sum[ROWS]; /* base 2 */
};

struct place {
    int lane, head, turn, group; /* KV head, which of its warps, query heads of a KV head */
    uint32_t stages;             /* shared address of the warp's STAGES × (K, V) */
    uint32_t tables;             /* and of the block's STAGES × turns tables */
    int lowest, highest;         /* positions of the unit's rows */
    int first, end;              /* its keys */
};

__device__ inline bool has_band(const dpe_decode_band &band, int x)
{
    return band.lo <= x && x < band.hi;
}

__device__ int band_of(const dpe_decode &call, int m, int n)
{
    if (n > m) {
        return NOTHING;
    }
    int chunk = static_cast<int>(call.chunk);
    for (int b = 0; b < call.n_bands; b++) {
        const dpe_decode_band &band = call.bands[b];
        int x = band.kind == DPE_BAND_DISTANCE ? m - n
                : band.kind == DPE_BAND_KEY    ? n
                                               : m / chunk - n / chunk;
        if (has_band(band, x)) {
            return b;
        }
    }
    return NOTHING;
}

/* The band that all rows have for all keys n0 … n1−1; MIXED when they differ. What a band goes by
 * grows with m and falls or grows with n, so its corners bound it. */
__device__ int band_of_tile(const dpe_decode &call, const place &at, int n0, int n1)
{
    if (n1 - 1 > at.lowest) {
        return n0 > at.highest ? NOTHING : MIXED;
    }
    int chunk = static_cast<int>(call.chunk);
    for (int b = 0; b < call.n_bands; b++) {
        const dpe_decode_band &band = call.bands[b];
        int least = n0;
        int most = n1 - 1;
        if (band.kind == DPE_BAND_DISTANCE) {
            least = at.lowest - (n1 - 1);
            most = at.highest - n0;
        } else if (band.kind == DPE_BAND_CHUNK) {
            least = at.lowest / chunk - (n1 - 1) / chunk;
            most = at.highest / chunk - n0 / chunk;
        }
        if (has_band(band, least) && has_band(band, most)) {
            return b;
        }
        if (most >= band.lo && least < band.hi) {
            return MIXED;
        }
    }
    return NOTHING;
}

/* The table that a tile of the block needs first; −1: none. */
__device__ int table_of_tile(const dpe_decode &call, int band)
{
    if (band == NOTHING) {
        return -1;
    }
    for (int b = band == MIXED ? 0 : band; b < (band == MIXED ? call.n_bands : band + 1); b++) {
        if (call.bands[b].table != NULL) {
            return b;
        }
    }
    return -1;
}

/* Start copying the warp's keys and values n … n+15 and its part of the tables. */
template <class T, int D>
__device__ void copy_tile(const dpe_decode &call, const dpe_decode_unit &unit, const place &at,
                          int super, int stage)
{
    using size = sizes<D>;
    constexpr int chunks = D / 8;
    int first = super + at.turn * KEYS;
    int64_t base = at.head * call.head_stride;
#pragma unroll 4 /* all sixteen would keep their addresses in registers */
    for (int i = at.lane; i < 2 * KEYS * chunks; i += 32) {
        int side = i / (KEYS * chunks);
        int row = i / chunks % KEYS;
        int n = first + row;
        bool real = n < at.end;
        const T *from = static_cast<const T *>(side == 0 ? call.k : call.v);
        from += base + ((real ? n : at.first) + unit.shift) * D + i % chunks * 8;
        int to = (2 * stage + side) * size::tile + row * size::row + i % chunks * 16;
        dpe_copy_async_or_zero(at.stages + static_cast<uint32_t>(to), from, real);
    }
    int turns = call.dealing.turns;
    int last = super + turns * KEYS;
    int band = band_of_tile(call, at, super, last < at.end ? last : at.end);
    int which = table_of_tile(call, band);
    if (which < 0) {
        return;
    }
    constexpr int words = size::pairs / 4; /* 16-byte pieces of a row */
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < turns * KEYS * words;
         i += static_cast<int>(blockDim.x)) {
        int n = super + i / words;
        bool real = n < at.end;
        const uint32_t *from = call.bands[which].table +
                               static_cast<int64_t>(real ? n : at.first) * size::pairs +
                               i % words * 4;
        int to = stage * turns * size::table + i / words * size::table_row + i % words * 16;
        dpe_copy_async_or_zero(at.tables + static_cast<uint32_t>(to), from, real);
    }
}

/* Q of a band as A operands. With a mask, two bits a word say which of its columns meet turned
 * keys; those of the upper half of a head repeat those of the lower. */
template <int D> struct queries {
    uint32_t word[sizes<D>::steps][4];
    uint32_t turned;
    int band;
    bool has_plain, has_turned;
};

template <class T, int D>
__device__ void load_queries(const dpe_decode &call, const dpe_decode_unit &unit, const place &at,
                             int b, queries<D> &q)
{
    if (q.band == b) {
        return;
    }
    const dpe_decode_band &band = call.bands[b];
    q.band = b;
    q.has_turned = band.table != NULL;
    q.has_plain = !q.has_turned || band.per_head;
    q.turned = 0;
    const T *from = static_cast<const T *>(call.q[band.q_copy]);
#pragma unroll
    for (int i = 0; i < sizes<D>::steps; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = at.lane / 4 + (e % 2) * 8;
            int column = 16 * i + at.lane % 4 * 2 + e / 2 * 8;
            bool real = row < at.group * unit.n_rows;
            int64_t head = static_cast<int64_t>(at.head) * at.group + row % at.group;
            q.word[i][e] = 0;
            if (!real) {
                continue;
            }
            int64_t r = unit.row_first + row / at.group;
            q.word[i][e] = *reinterpret_cast<const uint32_t *>(from + head * call.q_head_stride +
                                                               r * D + column);
            if (q.has_plain && q.has_turned && i < D / 32) {
                const uint8_t *mask = call.mask + head * sizes<D>::pairs + column;
                q.turned |= (mask[0] != 0 ? 1U : 0U) << (8 * i + 2 * e);
                q.turned |= (mask[1] != 0 ? 2U : 0U) << (8 * i + 2 * e);
            }
        }
    }
}

/* The part of a word that its two bits keep. */
__device__ __forceinline__ uint32_t kept(uint32_t word, uint32_t bits)
{
    return word & ((bits & 1U) * 0xffffU | (bits >> 1 & 1U) * 0xffff0000U);
}

/* Turn the pairs (x, y) of two neighbouring columns each. */
template <class T> __device__ __forceinline__ void turn_pairs(uint32_t &x, uint32_t &y, uint2 table)
{
    float xs[2];
    float ys[2];
    float cs[2];
    float sn[2];
    xs[0] = dpe_float(T{static_cast<uint16_t>(x & 0xffffU)});
    xs[1] = dpe_float(T{static_cast<uint16_t>(x >> 16)});
    ys[0] = dpe_float(T{static_cast<uint16_t>(y & 0xffffU)});
    ys[1] = dpe_float(T{static_cast<uint16_t>(y >> 16)});
    cs[0] = dpe_half_float(static_cast<uint16_t>(table.x & 0xffffU));
    sn[0] = dpe_half_float(static_cast<uint16_t>(table.x >> 16));
    cs[1] = dpe_half_float(static_cast<uint16_t>(table.y & 0xffffU));
    sn[1] = dpe_half_float(static_cast<uint16_t>(table.y >> 16));
    x = dpe_pack(xs[0] * cs[0] - ys[0] * sn[0], xs[1] * cs[1] - ys[1] * sn[1], T{});
    y = dpe_pack(xs[0] * sn[0] + ys[0] * cs[0], xs[1] * sn[1] + ys[1] * cs[1], T{});
}

/* Scores of the 16 rows and 16 keys of a stage under the band that `q` holds. `table` is the row of
 * the tile's first key, `table_row` bytes apart, of which there are last_row + 1. Products go pair
 * after pair of 16 columns, j in the lower and the upper half of a head. */
template <class T, int D>
__device__ __forceinline__ void scores(const queries<D> &q, uint32_t keys,
                                       const unsigned char *table, int table_row, int last_row,
                                       int lane, float (&s)[2][4])
{
    using size = sizes<D>;
    constexpr int half = D / 32; /* steps of a half */
#pragma unroll
    for (int j = 0; j < 2; j++) {
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0F;
        /* Matrices: chunks 2i, 2i + 1 of 8 columns, and the same of the upper half. */
        uint32_t from = keys + static_cast<uint32_t>((8 * j + lane % 8) * size::row +
                                                     lane / 8 % 2 * 16 + lane / 16 * D);
        const unsigned char *row =
            table + min(8 * j + lane / 4, last_row) * table_row + lane % 4 * 8;
#pragma unroll
        for (int i = 0; i < half; i++) {
            uint32_t b[4];
            uint32_t some[4];
            dpe_ldmatrix(b, from + 32U * i);
            if (!q.has_turned) {
                dpe_mma(T{}, s[j], q.word[i], b[0], b[1]);
                dpe_mma(T{}, s[j], q.word[i + half], b[2], b[3]);
                continue;
            }
            if (q.has_plain) {
#pragma unroll
                for (int upper = 0; upper < 2; upper++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        some[e] = kept(q.word[i + half * upper][e], ~q.turned >> (8 * i + 2 * e));
                    }
                    dpe_mma(T{}, s[j], some, b[2 * upper], b[2 * upper + 1]);
                }
            }
            turn_pairs<T>(b[0], b[2], *reinterpret_cast<const uint2 *>(row + 64 * i));
            turn_pairs<T>(b[1], b[3], *reinterpret_cast<const uint2 *>(row + 64 * i + 32));
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    uint32_t bits = q.has_plain ? q.turned >> (8 * i + 2 * e) : 3U;
                    some[e] = kept(q.word[i + half * upper][e], bits);
                }
                dpe_mma(T{}, s[j], some, b[2 * upper], b[2 * upper + 1]);
            }
        }
    }
}

template <class T, int D> struct state {
    queries<D> q;
    float out[D / 8][4];
    float top[2], sum[2];
    float factor[2];
};

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

/* Scores of a tile: of the one band that all of it has, or of each band where it holds. */
template <class T, int D>
__device__ __forceinline__ void tile_scores(const dpe_decode &call, const dpe_decode_unit &unit,
                                            const place &at, state<T, D> &st, int band,
                                            uint32_t keys, const unsigned char *staged,
                                            int staged_band, int n0, float (&s)[2][4])
{
    bool mixed = band == MIXED;
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
        bool from_stage = b == staged_band;
        const unsigned char *global = reinterpret_cast<const unsigned char *>(
            call.bands[b].table == NULL
                ? NULL
                : call.bands[b].table + static_cast<int64_t>(n0) * sizes<D>::pairs);
        float of_band[2][4];
        scores<T, D>(st.q, keys, from_stage ? staged : global,
                     from_stage ? sizes<D>::table_row : 4 * sizes<D>::pairs,
                     min(KEYS - 1, at.end - 1 - n0), at.lane, of_band);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            s[e / 4][e % 4] = (wanted >> e & 1U) != 0 ? of_band[e / 4][e % 4] : s[e / 4][e % 4];
        }
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
        for (int i = 0; i < D / 8; i++) {
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
    for (int i = 0; i < D / 16; i++) {
        uint32_t b[4];
        dpe_ldmatrix_transposed(b, row + 32U * i);
        dpe_mma(T{}, st.out[2 * i], p, b[0], b[1]);
        dpe_mma(T{}, st.out[2 * i + 1], p, b[2], b[3]);
    }
}

/* Positions and base-2 factors of a lane's two rows. */
template <class T, int D>
__device__ void begin_rows(const dpe_decode &call, const dpe_decode_unit &unit, const place &at,
                           state<T, D> &st)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = row_of_lane(unit, at, h);
        float factor = call.scale * 1.4426950408889634F;
        if (call.log_n_length > 0.0F) {
            float m = static_cast<float>(call.parts[unit.row_first + row].position);
            factor *= fmaxf(1.0F, logf(m + 1.0F) / logf(call.log_n_length));
        }
        st.factor[h] = factor;
        st.top[h] = -INFINITY;
        st.sum[h] = 0.0F;
    }
    st.q.band = NOTHING;
    st.q.has_plain = st.q.has_turned = false;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        st.out[i][0] = st.out[i][1] = st.out[i][2] = st.out[i][3] = 0.0F;
    }
}

template <class T, int D>
__device__ void store_part(const dpe_decode_unit &unit, const place &at, state<T, D> &st,
                           part<D> *to)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st.sum[h] += __shfl_xor_sync(0xffffffffU, st.sum[h], 1);
        st.sum[h] += __shfl_xor_sync(0xffffffffU, st.sum[h], 2);
        int row = at.lane / 4 + 8 * h;
        if (row >= at.group * unit.n_rows) {
            continue;
        }
        if (at.lane % 4 == 0) {
            /* A sum that is no number has to count, also where no logit was one. */
            to->top[row] = st.sum[h] == st.sum[h] ? st.top[h] : 0.0F;
            to->sum[row] = st.sum[h];
        }
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            *reinterpret_cast<float2 *>(&to->out[row][8 * i + at.lane % 4 * 2]) =
                make_float2(st.out[i][2 * h], st.out[i][2 * h + 1]);
        }
    }
}

template <class T, int D>
__global__ void __launch_bounds__(32 * WARPS, 1) decode(const __grid_constant__ dpe_decode call)
{
    using size = sizes<D>;
    DPE_SHARED(unsigned char, memory);
    const dpe_decode_dealing dealt = call.dealing;
    const dpe_decode_unit &unit = call.units[blockIdx.x];
    int warp = static_cast<int>(threadIdx.x) / 32;
    place at;
    at.lane = static_cast<int>(threadIdx.x) % 32;
    at.head = static_cast<int>(blockIdx.y) * dealt.heads + warp % dealt.heads;
    at.turn = warp / dealt.heads;
    at.group = static_cast<int>(call.n_heads / call.n_kv_heads);
    const int tables = dealt.heads * dealt.turns * STAGES * 2 * size::tile;
    at.stages = dpe_shared_address(memory) + static_cast<uint32_t>(warp * STAGES * 2 * size::tile);
    at.tables = dpe_shared_address(memory) + static_cast<uint32_t>(tables);
    at.first = static_cast<int>(unit.first);
    at.end = static_cast<int>(unit.end);
    at.lowest = at.highest = static_cast<int>(call.parts[unit.row_first].position);
    for (int r = 1; r < unit.n_rows; r++) {
        int m = static_cast<int>(call.parts[unit.row_first + r].position);
        at.lowest = m < at.lowest ? m : at.lowest;
        at.highest = m > at.highest ? m : at.highest;
    }
    state<T, D> st;
    begin_rows<T, D>(call, unit, at, st);
    const int step = KEYS * dealt.turns;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        if (at.first + i * step < at.end) {
            copy_tile<T, D>(call, unit, at, at.first + i * step, i);
        }
        dpe_copy_async_commit();
    }
    int stage = 0;
#pragma unroll 1
    for (int super = at.first; super < at.end; super += step) {
        dpe_copy_async_wait<STAGES - 2>();
        __syncthreads();
        int next = stage == 0 ? STAGES - 1 : stage - 1;
        if (super + (STAGES - 1) * step < at.end) {
            copy_tile<T, D>(call, unit, at, super + (STAGES - 1) * step, next);
        }
        dpe_copy_async_commit();
        int n0 = super + at.turn * KEYS;
        int last = super + step < at.end ? super + step : at.end;
        int staged = table_of_tile(call, band_of_tile(call, at, super, last));
        int band = n0 + KEYS <= at.end ? band_of_tile(call, at, n0, n0 + KEYS) : MIXED;
        uint32_t keys = at.stages + static_cast<uint32_t>(2 * stage * size::tile);
        const unsigned char *table =
            memory + tables + (stage * dealt.turns + at.turn) * size::table;
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        if (band == NOTHING || n0 >= at.end) {
            continue;
        }
        float s[2][4];
        tile_scores<T, D>(call, unit, at, st, band, keys, table, staged, n0, s);
        take_tile<T, D>(st, s, keys + size::tile, at.lane);
    }
    dpe_copy_async_wait<0>();
    part<D> *parts = static_cast<part<D> *>(call.partial);
    int64_t slot = static_cast<int64_t>(blockIdx.x) * dealt.turns + at.turn;
    store_part<T, D>(unit, at, st, parts + slot * call.n_kv_heads + at.head);
}

/* A block a row and head, a thread an element. */
template <class T, int D>
__global__ void __launch_bounds__(D) combine(const __grid_constant__ dpe_decode call)
{
    int64_t r = blockIdx.x;
    int64_t head = blockIdx.y;
    int group = static_cast<int>(call.n_heads / call.n_kv_heads);
    const dpe_decode_dealing dealt = call.dealing;
    const dpe_decode_parts mine = call.parts[r];
    const part<D> *parts = static_cast<const part<D> *>(call.partial) + head / group;
    float top = -INFINITY;
    float sum = 0.0F;
    float out = 0.0F;
    for (int side = 0; side < 2; side++) {
        int64_t first = static_cast<int64_t>(side == 0 ? mine.a_first : mine.b_first) * dealt.turns;
        int64_t end = static_cast<int64_t>(side == 0 ? mine.a_end : mine.b_end) * dealt.turns;
        int row = (side == 0 ? mine.a_row : mine.b_row) * group + static_cast<int>(head % group);
        for (int64_t i = first; i < end; i++) {
            const part<D> *from = parts + i * call.n_kv_heads;
            float most = fmaxf(top, from->top[row]);
            if (most == -INFINITY) {
                continue;
            }
            float old = dpe_exp2(top - most);
            float fresh = dpe_exp2(from->top[row] - most);
            sum = sum * old + from->sum[row] * fresh;
            out = out * old + from->out[row][threadIdx.x] * fresh;
            top = most;
        }
    }
    int64_t at = r * call.n_heads + head;
    static_cast<T *>(call.out)[at * D + threadIdx.x] = dpe_round<T>(sum == 0.0F ? 0.0F : out / sum);
    if (call.lse != NULL && threadIdx.x == 0) {
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
        table[i] = dpe_pack_half(c, s);
    }
}

template <class T, int D> int launch(const dpe_decode *call, void *stream)
{
    using size = sizes<D>;
    const dpe_decode_dealing dealt = call->dealing;
    int warps = dealt.heads * dealt.turns;
    size_t shared = static_cast<size_t>(STAGES) * (static_cast<size_t>(warps) * 2 * size::tile +
                                                   static_cast<size_t>(dealt.turns) * size::table);
    dim3 grid(static_cast<unsigned>(call->n_units),
              static_cast<unsigned>(call->n_kv_heads / dealt.heads));
    int error =
        dpe_launch(decode<T, D>, grid, static_cast<unsigned>(32 * warps), shared, stream, *call);
    if (error != 0) {
        return error;
    }
    dim3 outs(static_cast<unsigned>(call->rows), static_cast<unsigned>(call->n_heads));
    return dpe_launch(combine<T, D>, outs, D, 0, stream, *call);
}

template <class T> int launch_of(const dpe_decode *call, void *stream)
{
    switch (call->head_dim) {
    case 64:
        return launch<T, 64>(call, stream);
    case 96:
        return launch<T, 96>(call, stream);
    case 128:
        return launch<T, 128>(call, stream);
    default:
        return 1;
    }
}

} // namespace

bool dpe_decode_supports(enum dpe_dtype dtype, int64_t head_dim, int64_t n_heads,
                         int64_t n_kv_heads)
{
    bool head = head_dim == 64 || head_dim == 96 || head_dim == 128;
    return dtype != DPE_F32 && head && n_heads / n_kv_heads <= ROWS;
}

int64_t dpe_decode_rows(int64_t n_heads, int64_t n_kv_heads)
{
    return ROWS / (n_heads / n_kv_heads);
}

struct dpe_decode_dealing dpe_decode_deal(int64_t n_kv_heads, int64_t head_dim, uint64_t shared)
{
    uint64_t row = static_cast<uint64_t>(2 * head_dim + 16);
    uint64_t warp = STAGES * 2 * KEYS * row;
    uint64_t table = STAGES * KEYS * static_cast<uint64_t>(2 * head_dim + 32);
    struct dpe_decode_dealing best = {0, 0};
    for (int heads = 1; heads <= WARPS && heads <= n_kv_heads; heads++) {
        for (int turns = 1; heads * turns <= WARPS && n_kv_heads % heads == 0; turns++) {
            bool fits = static_cast<uint64_t>(heads * turns) * warp +
                            static_cast<uint64_t>(turns) * table <=
                        shared;
            /* As many warps as fit; of those, as many heads, which share a table. */
            if (fits && heads * turns >= best.heads * best.turns) {
                best = {heads, turns};
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

int dpe_attention_decode(const struct dpe_decode *call, void *stream)
{
    switch (call->dtype) {
    case DPE_F16:
        return launch_of<dpe_f16>(call, stream);
    case DPE_BF16:
        return launch_of<dpe_bf16>(call, stream);
    case DPE_F32:
        break;
    }
    return 1;
}

int dpe_decode_table(const float *cos, const float *sin, const float *undo_cos,
                     const float *undo_sin, int64_t n, uint32_t *table)
{
    int64_t blocks = (n + 255) / 256;
    blocks = blocks > 65536 ? 65536 : blocks;
    return dpe_launch(fill_table, static_cast<unsigned>(blocks), 256, 0, NULL, cos, sin, undo_cos,
                      undo_sin, n, table);
}

/**
 * @file attention_decode_tile.cuh
 * Of the decoding kernel: what lies where, which band a tile has, the copies of its keys, values
 * and tables, and its scores (attention_decode.cu has the picture).
 */
#ifndef DPE_ATTENTION_DECODE_TILE_CUH
#define DPE_ATTENTION_DECODE_TILE_CUH

#include "engine/cuda/kernels/attention.h"

#include "engine/cuda/ptx/vector.cuh"

namespace
{

enum { KEYS = 16, WARPS = 8, ROWS = 16, MIXED = -2, NOTHING = -1 };

template <int D> struct sizes {
    static constexpr int row = 2 * D + 16;  /* bytes of a key in shared memory */
    static constexpr int tile = KEYS * row; /* K or V of a warp */
    static constexpr int pairs = D / 2;
    static constexpr int table_row = 4 * pairs + 32; /* bytes */
    static constexpr int table = KEYS * table_row;   /* of a warp's keys */
    /* Warps that share a tile: a half of the pairs and of the columns of V each, as registers hold
     * no more results. They add up their scores. */
    static constexpr int sharers = D == 512 ? 2 : 1;
    static constexpr int stages = D == 512 ? 2 : 3;
    static constexpr int columns = D / sharers; /* of a warp */
    static constexpr int steps = columns / 16;
    /* Bytes of a warp's queries in shared memory, where registers hold no more than its results;
     * after them, where warps share a tile, its scores. */
    static constexpr int scores = ROWS * 2 * columns + 256 * (steps / 2);
    static constexpr int words = columns == 256 ? scores + (sharers - 1) * 4 * ROWS * KEYS : 0;
    static constexpr int at_once = words == 0 ? steps : 1; /* steps that are unrolled: with more
                                                              registers would spill */
    /* Copies: lanes beside each other along a row, chunks of 16 bytes of each, rows of one pass. */
    static constexpr int lanes = D == 96 ? 4 : columns / 8;
    static constexpr int chunks = columns / 8 / lanes;
    static constexpr int pass = 32 / lanes;
};

/* A part's place: O of one KV head in one unit's turn. */
template <int D> struct part {
    float out[ROWS][D];
    float top[ROWS], sum[ROWS]; /* base 2 */
};

struct place {
    int lane, head, turn, group; /* KV head, which of its warps, query heads of a KV head */
    int share;                   /* of those that share a tile, which */
    int64_t source;              /* this lane's first chunk of position 0 in K and V, in elements */
    uint32_t to;                 /* and of a tile's first row in shared memory, in bytes */
    uint32_t stages;             /* shared address of the warp's stages × (K, V) */
    uint32_t tables;             /* and of the block's stages × turns tables */
    uint32_t words;              /* and of the lane's words of Q, where they lie there */
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

/* The table that a tile of the block needs first, where there is room for it; −1: none. */
template <int D> __device__ int table_of_tile(const dpe_decode &call, int band)
{
    if (band == NOTHING || (sizes<D>::sharers > 1 && call.dealing.unstaged != 0)) {
        return -1;
    }
    for (int b = band == MIXED ? 0 : band; b < (band == MIXED ? call.n_bands : band + 1); b++) {
        if (call.bands[b].table != NULL) {
            return b;
        }
    }
    return -1;
}

/* Start copying rows first … first+15 of K or V; what is not the unit's becomes zeros. */
template <class T, int D>
__device__ __forceinline__ void copy_rows(const void *tensor, const place &at, int first,
                                          uint32_t to)
{
    using size = sizes<D>;
    const T *from = static_cast<const T *>(tensor) + at.source + static_cast<int64_t>(first) * D;
    if (first + KEYS <= at.end) {
#pragma unroll
        for (int i = 0; i < KEYS / size::pass * size::chunks; i++) {
            int row = i / size::chunks * size::pass;
            int chunk = i % size::chunks;
            dpe_copy_async(to + static_cast<uint32_t>(row * size::row + 64 * chunk),
                           from + row * D + 32 * chunk);
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < KEYS / size::pass * size::chunks; i++) {
        int row = i / size::chunks * size::pass;
        int chunk = i % size::chunks;
        bool real = first + at.lane / size::lanes + row < at.end;
        dpe_copy_async_or_zero(to + static_cast<uint32_t>(row * size::row + 64 * chunk),
                               real ? from + row * D + 32 * chunk : tensor, real);
    }
}

/* Start copying the warp's keys and values and its part of the tables; the band that the whole
 * block's tile has. */
template <class T, int D>
__device__ int copy_tile(const dpe_decode &call, const place &at, int super, int stage)
{
    using size = sizes<D>;
    int first = super + at.turn * KEYS;
    uint32_t to = at.stages + static_cast<uint32_t>(2 * stage * size::tile) + at.to;
    copy_rows<T, D>(call.k, at, first, to);
    copy_rows<T, D>(call.v, at, first, to + static_cast<uint32_t>(size::tile));
    int turns = call.dealing.turns;
    int last = super + turns * KEYS;
    int band = band_of_tile(call, at, super, last < at.end ? last : at.end);
    int which = table_of_tile<D>(call, band);
    if (which < 0) {
        return band;
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
        int place = stage * turns * size::table + i / words * size::table_row + i % words * 16;
        dpe_copy_async_or_zero(at.tables + static_cast<uint32_t>(place), from, real);
    }
    return band;
}

/* Q of a band as A operands. Which columns of a word meet rotated keys is said by the signs of two
 * bytes, those of four words by two words of bytes; the upper half of a head repeats the lower. */
template <int D> struct queries {
    uint32_t word[sizes<D>::words == 0 ? sizes<D>::steps : 1][4];
    uint32_t rotated[sizes<D>::words == 0 ? sizes<D>::steps / 2 : 1][2];
    int band;
    bool has_plain, has_rotated;
};

/* In shared memory two words of a lane lie beside each other, those of a warp's lanes one after
 * another: of each step words 0 and 1, then 2 and 3, and after all steps those that say what is
 * rotated. */
__device__ __forceinline__ void keep_two(const place &at, int two, uint32_t x, uint32_t y)
{
    dpe_store_shared(at.words + 256U * static_cast<uint32_t>(two), x, y);
}

template <int D>
__device__ __forceinline__ void words_of(const queries<D> &q, const place &at, int i,
                                         uint32_t (&words)[4])
{
    if constexpr (sizes<D>::words == 0) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            words[e] = q.word[i][e];
        }
    } else {
        const uint2 low = dpe_load_shared(at.words + 512U * i);
        const uint2 high = dpe_load_shared(at.words + 512U * i + 256U);
        words[0] = low.x;
        words[1] = low.y;
        words[2] = high.x;
        words[3] = high.y;
    }
}

/* The words of step i, and for the lower half of a head what of them meets rotated keys. */
template <int D>
__device__ __forceinline__ void keep(queries<D> &q, const place &at, int i,
                                     const uint32_t (&words)[4], const uint32_t (&rotated)[2])
{
    if constexpr (sizes<D>::words == 0) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            q.word[i][e] = words[e];
        }
        if (i < D / 32) {
            q.rotated[i % (D / 32)][0] = rotated[0];
            q.rotated[i % (D / 32)][1] = rotated[1];
        }
    } else {
        keep_two(at, 2 * i, words[0], words[1]);
        keep_two(at, 2 * i + 1, words[2], words[3]);
        if (i < sizes<D>::steps / 2) {
            keep_two(at, 2 * sizes<D>::steps + i, rotated[0], rotated[1]);
        }
    }
}

/* The first column of a warp's step i: steps of the lower half of a head come before the others. */
template <int D> __device__ __forceinline__ int column_of(const place &at, int i)
{
    if constexpr (sizes<D>::sharers == 1) {
        return 16 * i;
    } else {
        constexpr int half = sizes<D>::steps / 2;
        return 16 * (half * at.share + i % half) + i / half * (D / 2);
    }
}

template <class T, int D>
__device__ void load_queries(const dpe_decode &call, const dpe_decode_unit &unit, const place &at,
                             int b, queries<D> &q)
{
    if (q.band == b) {
        return;
    }
    const dpe_decode_band &band = call.bands[b];
    q.band = b;
    q.has_rotated = band.table != NULL;
    q.has_plain = !q.has_rotated || band.per_head;
    const T *from = static_cast<const T *>(call.q[band.q_copy]);
    [[maybe_unused]] constexpr int at_once = sizes<D>::at_once;
#pragma unroll at_once
    for (int i = 0; i < sizes<D>::steps; i++) {
        uint32_t words[4] = {0, 0, 0, 0};
        uint32_t rotated[2];
        rotated[0] = rotated[1] = q.has_plain ? 0 : 0x80808080U;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = at.lane / 4 + (e % 2) * 8;
            int column = column_of<D>(at, i) + at.lane % 4 * 2 + e / 2 * 8;
            bool real = row < at.group * unit.n_rows;
            int64_t head = static_cast<int64_t>(at.head) * at.group + row % at.group;
            if (!real) {
                continue;
            }
            int64_t r = unit.row_first + row / at.group;
            words[e] = *reinterpret_cast<const uint32_t *>(from + head * call.q_head_stride +
                                                           r * D + column);
            if (q.has_plain && q.has_rotated && i < sizes<D>::steps / 2) {
                const uint8_t *mask = call.mask + head * sizes<D>::pairs + column;
                uint32_t signs = (mask[0] != 0 ? 0x80U : 0U) | (mask[1] != 0 ? 0x8000U : 0U);
                rotated[e / 2] |= signs << 16 * (e % 2);
            }
        }
        keep(q, at, i, words, rotated);
    }
    /* Lanes without a real row were elsewhere: matrix instructions want all of them together. */
    __syncwarp();
}

/* What `keep` got of step i. */
template <int D>
__device__ __forceinline__ uint2 rotated_of(const queries<D> &q, const place &at, int i)
{
    if constexpr (sizes<D>::words == 0) {
        return {q.rotated[i][0], q.rotated[i][1]};
    } else {
        return dpe_load_shared(at.words + 256U * (2 * sizes<D>::steps + i));
    }
}

/* Which bits of word e of a step, of either half of a head, meet rotated keys. */
__device__ __forceinline__ uint32_t rotated_bits(uint2 rotated, int e)
{
    uint32_t bytes = e / 2 == 0 ? rotated.x : rotated.y;
    return e % 2 == 0 ? dpe_spread_signs<0>(bytes) : dpe_spread_signs<1>(bytes);
}

/* Rotate the pairs (x, y) of two neighbouring columns each. */
template <class T>
__device__ __forceinline__ void rotate_pairs(uint32_t &x, uint32_t &y, uint2 table)
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

/* Which keys a band's scores meet: as they are in the cache, rotated further, or, under a mask,
 * each pair either one. */
enum score_kind { AS_STORED, ROTATED, EITHER };

/* The rows of a tile's table: staged in shared memory, or where they lie in global memory, of which
 * there are last_row + 1. */
struct tile_table {
    uint32_t staged;
    const unsigned char *global;
    int last_row;
};

/* Cosines and sines of two neighbouring pairs of key `row`, for columns 16 step and for those 8
 * further on. */
template <int D, bool STAGED>
__device__ __forceinline__ void load_table(const tile_table &table, int row, int step, int lane,
                                           uint2 (&pairs)[2])
{
    if constexpr (STAGED) {
        uint32_t at = table.staged +
                      static_cast<uint32_t>(row * sizes<D>::table_row + lane % 4 * 8 + 64 * step);
        pairs[0] = dpe_load_shared(at);
        pairs[1] = dpe_load_shared(at + 32U);
    } else {
        const unsigned char *at = table.global + min(row, table.last_row) * 4 * sizes<D>::pairs +
                                  lane % 4 * 8 + 64 * step;
        pairs[0] = dpe_load_global(at);
        pairs[1] = dpe_load_global(at + 32);
    }
}

/* Scores of the 16 rows and 16 keys of a stage under the band that `q` holds. Products go pair
 * after pair of 16 columns, j in the lower and the upper half of a head; each half has sums of its
 * own, so that four products are independent at any time. */
template <class T, int D, score_kind KIND, bool STAGED>
__device__ __forceinline__ void scores_of(const queries<D> &q, const place &at, uint32_t keys,
                                          const tile_table &table, float (&s)[2][4])
{
    using size = sizes<D>;
    const int lane = at.lane;
    constexpr int half = size::steps / 2; /* steps of a half */
    const int before = half * at.share;
    [[maybe_unused]] constexpr int at_once = size::at_once;
    float sums[2][2][4] = {}; /* [eight keys][half] */
#pragma unroll at_once
    for (int i = 0; i < half; i++) {
        uint32_t words[2][4]; /* of either half of the head */
        words_of<D>(q, at, i, words[0]);
        words_of<D>(q, at, i + half, words[1]);
        uint2 rotated = {};
        if constexpr (KIND == EITHER) {
            rotated = rotated_of<D>(q, at, i);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            /* Matrices: chunks 2i, 2i + 1 of 8 columns, and the same of the upper half. */
            uint32_t from = keys + static_cast<uint32_t>((8 * j + lane % 8) * size::row +
                                                         lane / 8 % 2 * 16 + lane / 16 * D);
            uint32_t b[4];
            uint32_t some[4];
            dpe_ldmatrix(b, from + 32U * static_cast<uint32_t>(before + i));
            if constexpr (KIND == AS_STORED) {
                dpe_mma(T{}, sums[j][0], words[0], b[0], b[1]);
                dpe_mma(T{}, sums[j][1], words[1], b[2], b[3]);
                continue;
            }
            uint2 pairs[2];
            load_table<D, STAGED>(table, 8 * j + lane / 4, before + i, lane, pairs);
            if constexpr (KIND == EITHER) {
#pragma unroll
                for (int upper = 0; upper < 2; upper++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        some[e] = words[upper][e] & ~rotated_bits(rotated, e);
                    }
                    dpe_mma(T{}, sums[j][upper], some, b[2 * upper], b[2 * upper + 1]);
                }
            }
            rotate_pairs<T>(b[0], b[2], pairs[0]);
            rotate_pairs<T>(b[1], b[3], pairs[1]);
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    uint32_t word = words[upper][e];
                    some[e] = KIND == EITHER ? word & rotated_bits(rotated, e) : word;
                }
                dpe_mma(T{}, sums[j][upper], some, b[2 * upper], b[2 * upper + 1]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[j][e] = sums[j][0][e] + sums[j][1][e];
        }
    }
}

/* The instance for the band that `q` holds. Tables that are not staged belong to the second band
 * of a mixed tile: few tiles. */
template <class T, int D>
__device__ __forceinline__ void scores(const queries<D> &q, const place &at, uint32_t keys,
                                       const tile_table &table, float (&s)[2][4])
{
    if (!q.has_rotated) {
        scores_of<T, D, AS_STORED, true>(q, at, keys, table, s);
    } else if (table.global != NULL) {
        scores_of<T, D, EITHER, false>(q, at, keys, table, s);
    } else if (q.has_plain) {
        scores_of<T, D, EITHER, true>(q, at, keys, table, s);
    } else {
        scores_of<T, D, ROTATED, true>(q, at, keys, table, s);
    }
}

} // namespace

#endif

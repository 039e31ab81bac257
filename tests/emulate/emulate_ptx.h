/**
 * @file emulate_ptx.h
 * The twins of engine/cuda/ptx/ptx.cuh: same names, same meaning, on the CPU.
 */
#ifndef DPE_EMULATE_PTX_H
#define DPE_EMULATE_PTX_H

static inline float dpe_exp2(float x)
{
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

static inline uint16_t dpe_bf16_bits(float x)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return 0x7fffU; /* what the device makes of every NaN */
    }
    return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

static inline uint16_t dpe_half_bits(float x)
{
    uint32_t bits = __float_as_uint(x);
    uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
    uint32_t size = bits & 0x7fffffffU;
    if (size > 0x7f800000U) {
        return 0x7fffU;
    }
    if (size >= 0x477ff000U) { /* 65520 and more round to infinity */
        return static_cast<uint16_t>(sign | 0x7c00U);
    }
    if (size < 0x38800000U) { /* below 2^-14: multiples of 2^-24, which nearbyintf rounds to even */
        return static_cast<uint16_t>(
            sign | static_cast<uint32_t>(nearbyintf(__uint_as_float(size) * 0x1p24f)));
    }
    uint32_t rounded = size + 0xfffU + (size >> 13 & 1U);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

static inline float dpe_half_float(uint16_t bits)
{
    uint32_t sign = static_cast<uint32_t>(bits >> 15) << 31;
    uint32_t exponent = bits >> 10 & 0x1fU;
    uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0) {
        float value = static_cast<float>(fraction) * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    uint32_t wide = exponent == 0x1fU ? 0x7f800000U : (exponent + 112U) << 23;
    return __uint_as_float(sign | wide | fraction << 13);
}

template <int PAIR> static inline uint32_t dpe_spread_signs(uint32_t bytes)
{
    uint32_t low = (bytes >> (16 * PAIR + 7) & 1U) * 0xffffU;
    uint32_t high = (bytes >> (16 * PAIR + 15) & 1U) * 0xffff0000U;
    return low | high;
}

static inline uint32_t dpe_pack_bf16(float low, float high)
{
    return static_cast<uint32_t>(dpe_bf16_bits(high)) << 16 | dpe_bf16_bits(low);
}
static inline uint32_t dpe_pack_half(float low, float high)
{
    return static_cast<uint32_t>(dpe_half_bits(high)) << 16 | dpe_half_bits(low);
}

static inline uint4 dpe_load_once(const void *from, EMULATE_HERE)
{
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
        emulate_fail(file, line, "a read of 16 bytes from %p, which is not aligned to them", from);
    }
    uint4 x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline uint2 dpe_load_global(const void *from)
{
    uint2 x;
    memcpy(&x, from, sizeof x);
    return x;
}
static inline uint2 dpe_load_shared(uint32_t address, EMULATE_HERE)
{
    uint2 x;
    memcpy(&x, emulate_shared_pointer(address, sizeof x, file, line), sizeof x);
    return x;
}
static inline void dpe_store_shared(uint32_t address, uint32_t x, uint32_t y, EMULATE_HERE)
{
    const uint32_t two[2] = {x, y};
    memcpy(emulate_shared_pointer(address, sizeof two, file, line), two, sizeof two);
}

static inline uint32_t dpe_shared_address(const void *pointer, EMULATE_HERE)
{
    return emulate_shared_address(pointer, file, line);
}

static inline void dpe_barrier_sync(int id, int threads, EMULATE_HERE)
{
    emulate_barrier(id, static_cast<unsigned>(threads), true, file, line);
}
static inline void dpe_barrier_arrive(int id, int threads, EMULATE_HERE)
{
    emulate_barrier(id, static_cast<unsigned>(threads), false, file, line);
}

#endif

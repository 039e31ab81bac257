/**
 * @file emulate.h
 * CUDA C on the CPU, for tests: a kernel source compiled as C++17 with DPE_EMULATE runs block by
 * block, every thread of a block as a fiber that runs until it waits for others. What threads wait
 * for is explicit (barriers, warp collectives, conditions), so that
 *  - a block in which all threads wait is an error that lists where each one waits, never a hang;
 *  - with a seed the next fiber is drawn at random at every wait, so that a missing barrier shows
 *    up as a wrong result;
 *  - dynamic shared memory is poisoned before every block and has canaries on both sides.
 * What it does not show: two accesses without a wait between them are never interleaved, memory is
 * sequentially consistent, and static __shared__ variables are not poisoned.
 *
 * One emulation runs at a time, on one thread. Errors are reported like launch errors: by the
 * return value of dpe_launch, with the description in emulate_error().
 */
#ifndef DPE_EMULATE_H
#define DPE_EMULATE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <utility>

#include "engine/cuda/ptx/launch.h"
#include "tests/emulate/emulate_control.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__   static
#define __align__(n) alignas(n)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned ax = 1, unsigned ay = 1, unsigned az = 1) : x(ax), y(ay), z(az)
    {
    }
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* ------------------------------------------------------------- for the twins of instructions */

/** Index of the running thread in its block (x fastest), its warp and lane. */
unsigned emulate_thread(void);
static inline unsigned emulate_warp(void)
{
    return emulate_thread() / 32;
}
static inline unsigned emulate_lane(void)
{
    return emulate_thread() % 32;
}
unsigned emulate_block_threads(void);
/** A number that differs between blocks of a process: state of instructions that belongs to a block
 *  (outstanding copies, accumulators in flight) is forgotten when it changes. */
uint64_t emulate_block_serial(void);
/** End the launch with this message (printf); does not return. */
[[noreturn]] void emulate_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Dynamic shared memory of the block and its size; a 32-bit address is the offset from
 *  emulate_shared() plus 1024, so that 0 is not an address. */
unsigned char *emulate_shared(void);
size_t emulate_shared_bytes(void);
uint32_t emulate_shared_address(const void *pointer, const char *file, int line);
/** The memory at an address; fails unless [address, address + bytes) lies inside. */
void *emulate_shared_pointer(uint32_t address, size_t bytes, const char *file, int line);

/** When set, called after the last thread of a block has ended: NULL, or the name of what the block
 * should have finished. */
extern const char *(*emulate_block_left)(void);

/** Wait until ready(state) is true; it is called first of all, and whenever no thread can continue
 *  otherwise. The error of a deadlock contains `what`. */
void emulate_wait(bool (*ready)(void *state), void *state, const char *what, const char *file,
                  int line);

/** An operation of a set of threads together: each calls with its own in and out (any of them
 * NULL), the last to arrive runs `run` for all of them; in[i], out[i] are those of member i, NULL
 * for threads that are not members. All members name the same `what` at the same place. */
typedef void (*emulate_together)(void *const *in, void *const *out, void *shared_argument);
/** Members: the lanes of `mask` in the caller's warp; arrays of 32, by lane. */
void emulate_warp_collective(uint32_t mask, const char *what, const void *in, void *out,
                             emulate_together run, void *argument, const char *file, int line);
/** Members: the caller's aligned group of 128 threads; arrays of 128. */
void emulate_group_collective(const char *what, const void *in, void *out, emulate_together run,
                              void *argument, const char *file, int line);
/** Barrier `id` (0 … 15) of `threads` threads; arrive counts without waiting. */
void emulate_barrier(int id, unsigned threads, bool wait, const char *file, int line);

#define EMULATE_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* ----------------------------------------------------------------------------------- launching */

#define DPE_SHARED(type, name) type *name = reinterpret_cast<type *>(emulate_shared())

/** dpe_kernel_launch.call. */
template <class... P> struct dpe_emulated_call {
    template <size_t... I>
    static void with(const void *kernel, const void *const *arguments, std::index_sequence<I...>)
    {
        (void)arguments; /* of a kernel without any */
        reinterpret_cast<void (*)(P...)>(const_cast<void *>(kernel))(
            *static_cast<const P *>(arguments[I])...);
    }
    static void call(const void *kernel, const void *const *arguments)
    {
        with(kernel, arguments, std::index_sequence_for<P...>());
    }
};

/* ------------------------------------------------------------------------ CUDA C's own functions
 */

static inline void __syncthreads(EMULATE_HERE)
{
    emulate_barrier(0, emulate_block_threads(), true, file, line);
}
int __syncthreads_or(int predicate, EMULATE_HERE);
int __syncthreads_and(int predicate, EMULATE_HERE);
int __syncthreads_count(int predicate, EMULATE_HERE);
void __syncwarp(uint32_t mask = 0xffffffffU, EMULATE_HERE);
uint32_t __ballot_sync(uint32_t mask, int predicate, EMULATE_HERE);
static inline int __any_sync(uint32_t mask, int predicate, EMULATE_HERE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}

enum emulate_shuffle {
    EMULATE_SHUFFLE_INDEX,
    EMULATE_SHUFFLE_UP,
    EMULATE_SHUFFLE_DOWN,
    EMULATE_SHUFFLE_XOR
};
uint64_t emulate_shuffle(enum emulate_shuffle kind, uint32_t mask, uint64_t value, int by,
                         int width, const char *file, int line);
template <class T>
static inline T emulate_shuffle_value(enum emulate_shuffle kind, uint32_t mask, T value, int by,
                                      int width, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulate_shuffle(kind, mask, bits, by, width, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
static inline T __shfl_sync(uint32_t mask, T value, int lane, int width = 32, EMULATE_HERE)
{
    return emulate_shuffle_value(EMULATE_SHUFFLE_INDEX, mask, value, lane, width, file, line);
}
template <class T>
static inline T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32, EMULATE_HERE)
{
    return emulate_shuffle_value(EMULATE_SHUFFLE_UP, mask, value, static_cast<int>(by), width, file,
                                 line);
}
template <class T>
static inline T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32, EMULATE_HERE)
{
    return emulate_shuffle_value(EMULATE_SHUFFLE_DOWN, mask, value, static_cast<int>(by), width,
                                 file, line);
}
template <class T>
static inline T __shfl_xor_sync(uint32_t mask, T value, int by, int width = 32, EMULATE_HERE)
{
    return emulate_shuffle_value(EMULATE_SHUFFLE_XOR, mask, value, by, width, file, line);
}

/* Fibers are switched at waits only, so a plain update is atomic. */
template <class T> static inline T atomicAdd(T *at, T value)
{
    T old = *at;
    *at = old + value;
    return old;
}
static inline void __threadfence(void)
{
}
template <class T> static inline T atomicMin(T *at, T value)
{
    T old = *at;
    *at = value < old ? value : old;
    return old;
}

static inline float __uint_as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t __float_as_uint(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}
#define EMULATE_MIN_MAX(type)                                                                      \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
EMULATE_MIN_MAX(int)
EMULATE_MIN_MAX(unsigned)
EMULATE_MIN_MAX(long)
EMULATE_MIN_MAX(unsigned long)
EMULATE_MIN_MAX(long long)
EMULATE_MIN_MAX(unsigned long long)
#undef EMULATE_MIN_MAX

#endif

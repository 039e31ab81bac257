/**
 * @file emulate_sm90.h
 * The emulation of engine/cuda/ptx/ptx_sm90.cuh: same names, same meaning, on the CPU. What is
 * asynchronous on the device happens late here, and what must not be touched meanwhile is poisoned
 * or refused:
 *  - a tensor copy poisons its destination at once and arrives when a thread waits for its barrier;
 *  - accumulators are NaN from the issue of a product to the wait that covers it, and shared memory
 *    and A registers are read at that wait;
 *  - a product that reads where a copy is still due, a copy to where a product still reads, a
 *    product after a wait without a fence, threads of a group at different fences or waits, an
 *    arrival too many, an uninitialised barrier, register counts that are not legal or do not
 *    fit: errors.
 */
#ifndef DPE_EMULATE_SM90_H
#define DPE_EMULATE_SM90_H

#include "tests/emulate/emulate_tensor.h"

void emulate_mbarrier_init(uint32_t barrier, uint32_t arrivals, const char *file, int line);
void emulate_mbarrier_arrive(uint32_t barrier, uint32_t bytes, const char *file, int line);
void emulate_mbarrier_wait(uint32_t barrier, uint32_t parity, const char *file, int line);
bool emulate_mbarrier_test(uint32_t barrier, uint32_t parity, const char *file, int line);
void emulate_tensor_load(uint32_t to, const struct CUtensorMap *map, const int at[4],
                         uint32_t barrier, const char *file, int line);
void emulate_registers(int count, bool take, const char *file, int line);

/** One product as a thread issues it. */
struct emulate_wgmma {
    float *d;
    const uint32_t *a_registers; /* NULL: A by descriptor */
    uint64_t a, b;
    int n;
    bool b_n_major, bf16, accumulate;
};
void emulate_wgmma_issue(const struct emulate_wgmma *product, const char *file, int line);
void emulate_wgmma_fence(const char *file, int line);
void emulate_wgmma_commit(const char *file, int line);
void emulate_wgmma_wait(int pending, int where, const char *file, int line);

static inline void dpe_mbarrier_init(uint32_t barrier, uint32_t arrivals, EMULATE_HERE)
{
    emulate_mbarrier_init(barrier, arrivals, file, line);
}
static inline void dpe_mbarrier_init_fence(void)
{
}
static inline void dpe_mbarrier_arrive(uint32_t barrier, EMULATE_HERE)
{
    emulate_mbarrier_arrive(barrier, 0, file, line);
}
static inline void dpe_mbarrier_expect(uint32_t barrier, uint32_t bytes, EMULATE_HERE)
{
    emulate_mbarrier_arrive(barrier, bytes, file, line);
}
static inline void dpe_mbarrier_wait(uint32_t barrier, uint32_t parity, EMULATE_HERE)
{
    emulate_mbarrier_wait(barrier, parity, file, line);
}

static inline bool dpe_mbarrier_test(uint32_t barrier, uint32_t parity, EMULATE_HERE)
{
    return emulate_mbarrier_test(barrier, parity, file, line);
}
static inline void dpe_require(bool holds, EMULATE_HERE)
{
    if (!holds) {
        emulate_fail(file, line, "what the kernel requires does not hold");
    }
}
static inline void dpe_proxy_fence(void)
{
}

static inline void dpe_tensor_prefetch(const struct CUtensorMap *)
{
}
static inline void dpe_tensor_load_4d(uint32_t to, const struct CUtensorMap *map, int c0, int c1,
                                      int c2, int c3, uint32_t barrier, EMULATE_HERE)
{
    const int at[4] = {c0, c1, c2, c3};
    emulate_tensor_load(to, map, at, barrier, file, line);
}

template <int N> static inline void dpe_registers_release(EMULATE_HERE)
{
    emulate_registers(N, false, file, line);
}
template <int N> static inline void dpe_registers_take(EMULATE_HERE)
{
    emulate_registers(N, true, file, line);
}
static inline int dpe_uniform(int value, EMULATE_HERE)
{
    return __shfl_sync(0xffffffffU, value, 0, 32, file, line);
}
static inline int dpe_multiprocessors(void)
{
    return emulate_multiprocessors;
}

static inline void dpe_wgmma_fence(EMULATE_HERE)
{
    emulate_wgmma_fence(file, line);
}
static inline void dpe_wgmma_commit(EMULATE_HERE)
{
    emulate_wgmma_commit(file, line);
}
template <int N, int WHERE = 0> static inline void dpe_wgmma_wait(EMULATE_HERE)
{
    emulate_wgmma_wait(N, WHERE, file, line);
}
template <int N> static inline void dpe_wgmma_settled(float (&)[N])
{
}

template <class T> struct dpe_is_bf16 {
    static constexpr bool value = false;
};
template <> struct dpe_is_bf16<dpe_bf16> {
    static constexpr bool value = true;
};

template <class T, int N>
static inline void dpe_wgmma_shared(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate,
                                    EMULATE_HERE)
{
    const struct emulate_wgmma product = {
        d, NULL, a, b, N, false, dpe_is_bf16<T>::value, accumulate != 0};
    emulate_wgmma_issue(&product, file, line);
}
template <class T, int N>
static inline void dpe_wgmma_registers(float (&d)[N / 2], const uint32_t *a, uint64_t b,
                                       int accumulate, EMULATE_HERE)
{
    const struct emulate_wgmma product = {
        d, a, 0, b, N, true, dpe_is_bf16<T>::value, accumulate != 0};
    emulate_wgmma_issue(&product, file, line);
}

#endif

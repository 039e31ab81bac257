/**
 * @file emulate_mma.h
 * The twins of engine/cuda/ptx/ptx.cuh. Copies started by dpe_copy_async poison their
 * destination at once and land when their thread waits for them, no sooner. Addresses that lanes
 * read matrices from are checked for bank conflicts (emulate_control.h).
 */
#ifndef DPE_EMULATE_MMA_H
#define DPE_EMULATE_MMA_H

struct emulate_mma_part {
    float c[4];
    uint32_t a[4], b[2];
};

void emulate_ldmatrix(uint32_t (&r)[4], uint32_t address, bool transposed, const char *file,
                      int line);
void emulate_mma_bf16(emulate_mma_part *part, const char *file, int line);
void emulate_mma_half(emulate_mma_part *part, const char *file, int line);
void emulate_copy_async(uint32_t to, const void *from, bool real, const char *file, int line);
void emulate_copy_async_commit(void);
void emulate_copy_async_wait(int most, const char *file, int line);

static inline void dpe_ldmatrix(uint32_t (&r)[4], uint32_t address, EMULATE_HERE)
{
    emulate_ldmatrix(r, address, false, file, line);
}
static inline void dpe_ldmatrix_transposed(uint32_t (&r)[4], uint32_t address, EMULATE_HERE)
{
    emulate_ldmatrix(r, address, true, file, line);
}

static inline void dpe_mma(dpe_bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                           uint32_t b1, EMULATE_HERE)
{
    emulate_mma_part part = {{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulate_mma_bf16(&part, file, line);
    memcpy(c, part.c, sizeof part.c);
}
static inline void dpe_mma(dpe_f16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                           EMULATE_HERE)
{
    emulate_mma_part part = {{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulate_mma_half(&part, file, line);
    memcpy(c, part.c, sizeof part.c);
}

/* With all of the error that the device's may have. */
static inline float dpe_tanh(dpe_bf16, float x)
{
    float y = tanhf(x);
    return y == y ? __uint_as_float((__float_as_uint(y) + 0x1000U) & ~0x1fffU) : y;
}
static inline float dpe_tanh(dpe_f16, float x)
{
    return 1.0f - 2.0f * (1.0f / (1.0f + dpe_exp2(x * 2.8853900817779268f)));
}

static inline void dpe_copy_async(uint32_t to, const void *from, EMULATE_HERE)
{
    emulate_copy_async(to, from, true, file, line);
}
static inline void dpe_copy_async_or_zero(uint32_t to, const void *from, bool real, EMULATE_HERE)
{
    emulate_copy_async(to, from, real, file, line);
}
static inline void dpe_copy_async_commit(void)
{
    emulate_copy_async_commit();
}
template <int N> static inline void dpe_copy_async_wait(EMULATE_HERE)
{
    emulate_copy_async_wait(N, file, line);
}

#endif

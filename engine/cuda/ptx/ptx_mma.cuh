/**
 * @file ptx_mma.cuh
 * Matrix instructions of sm_80 and later, and copies that run by themselves. Twins:
 * tests/emulate/emulate_mma.h. All lanes of a warp call the matrix functions together.
 */
#ifndef DPE_PTX_MMA_CUH
#define DPE_PTX_MMA_CUH

/** Four 8 × 8 matrices of 16-bit elements: lanes 8i … 8i+7 give the addresses of the 16-byte rows
 *  of matrix i; r[i] of a lane holds row lane/4, columns 2(lane%4) and the next of matrix i, or of
 *  its transpose. */
__device__ static __forceinline__ void dpe_ldmatrix(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ static __forceinline__ void dpe_ldmatrix_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/** c += a · b; a is 16 × 16, b 16 × 8, c 16 × 8 in float. With g = lane/4 and t = lane%4 a lane
 *  holds a: (g, 2t …), (g+8, 2t …), (g, 2t+8 …), (g+8, 2t+8 …), two columns each; b: rows 2t, 2t+1
 *  and rows 2t+8, 2t+9 of column g; c: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1). */
__device__ static __forceinline__ void dpe_mma(dpe_bf16, float (&c)[4], const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ static __forceinline__ void dpe_mma(dpe_f16, float (&c)[4], const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/** Start copying 16 bytes from global to shared memory; both sides 16-byte aligned. The second form
 *  writes zeros and reads nothing when `real` is false. */
__device__ static __forceinline__ void dpe_copy_async(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}
__device__ static __forceinline__ void dpe_copy_async_or_zero(uint32_t to, const void *from,
                                                              bool real)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(real ? 16 : 0)
                 : "memory");
}
/** Close the group of copies that this thread started since the last call. */
__device__ static __forceinline__ void dpe_copy_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/** Wait until at most N groups of this thread are under way; a barrier then shows what landed to
 *  the other threads. */
template <int N> __device__ static __forceinline__ void dpe_copy_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif

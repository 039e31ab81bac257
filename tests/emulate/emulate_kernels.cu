/* Kernels that try every part of the emulator, good ones and wrong ones. */
#include "engine/cuda/ptx/device.cuh"

#include "tests/emulate/emulate_kernels.h"

/* Sum of n floats per block: shuffles inside warps, shared memory between them. */
__global__ void block_sum(const float *x, int n, float *sums)
{
    __shared__ float parts[32];
    float sum = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
        sum += x[blockIdx.x * n + i];
    }
    for (int by = 16; by > 0; by /= 2) {
        sum += __shfl_xor_sync(0xffffffffU, sum, by);
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (unsigned w = 0; w < blockDim.x / 32; w++) {
            total += parts[w];
        }
        sums[blockIdx.x] = total;
    }
}

/* Reverse through dynamic shared memory; without the barrier the order of threads shows. */
__global__ void reverse(const int *x, int *y, bool with_barrier)
{
    DPE_SHARED(int, tile);
    unsigned n = blockDim.x;
    tile[threadIdx.x] = x[blockIdx.x * n + threadIdx.x];
    if (with_barrier) {
        __syncthreads();
    }
    y[blockIdx.x * n + threadIdx.x] = tile[n - 1 - threadIdx.x];
}

/* How many threads of a block vote yes, `steps` times through one array; without the barrier at the
 * end of a step, a warp that runs ahead writes what others have yet to read. */
__global__ void count_votes(int steps, int *counted, bool with_barrier)
{
    __shared__ int parts[32];
    for (int i = 0; i < steps; i++) {
        uint32_t votes =
            __ballot_sync(0xffffffffU, (threadIdx.x + static_cast<unsigned>(i)) % 3 == 0);
        if (threadIdx.x % 32 == 0) {
            parts[threadIdx.x / 32] = __popc(votes);
        }
        __syncthreads();
        int sum = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++) {
            sum += parts[w];
        }
        if (with_barrier) {
            __syncthreads();
        }
        counted[static_cast<unsigned>(i) * blockDim.x + threadIdx.x] = sum;
    }
}

/* Wrong in the way that `kind` names. */
__global__ void wrong(int kind)
{
    DPE_SHARED(unsigned char, memory);
    switch (kind) {
    case EMULATE_WRONG_BARRIER:
        if (threadIdx.x < 7) {
            __syncthreads();
        }
        break;
    case EMULATE_WRONG_SHUFFLE:
        if (threadIdx.x != 5) {
            __shfl_sync(0xffffffffU, 1, 0);
        }
        break;
    case EMULATE_WRONG_AFTER:
        memory[threadIdx.x * 5] = 1; /* of 64 threads and 256 bytes */
        break;
    case EMULATE_WRONG_COUNT:
        dpe_barrier_sync(1, threadIdx.x < 32 ? 64 : 96);
        break;
    }
}

/* Named barriers: warp 0 produces, warp 1 consumes, `steps` times through one slot. */
__global__ void hand_over(int steps, int *seen)
{
    __shared__ int slot[32];
    unsigned lane = threadIdx.x % 32;
    for (int i = 0; i < steps; i++) {
        if (threadIdx.x < 32) {
            if (i > 0) {
                dpe_barrier_sync(2, 64);
            }
            slot[lane] = i * 100 + static_cast<int>(lane);
            dpe_barrier_arrive(1, 64);
        } else {
            dpe_barrier_sync(1, 64);
            seen[i * 32 + lane] = slot[lane];
            if (i + 1 < steps) {
                dpe_barrier_arrive(2, 64);
            }
        }
    }
}

__global__ void lanes(uint32_t *out)
{
    unsigned t = threadIdx.x;
    out[t * 6 + 0] = __ballot_sync(0xffffffffU, t % 3 == 0);
    out[t * 6 + 1] = __shfl_up_sync(0xffffffffU, t, 1);
    out[t * 6 + 2] = __shfl_down_sync(0xffffffffU, t, 4, 8);
    out[t * 6 + 3] = t % 2 == 0 ? __shfl_sync(0x55555555U, t, 6) : __shfl_sync(0xaaaaaaaaU, t, 7);
    out[t * 6 + 4] = static_cast<uint32_t>(__syncthreads_count(t < 20));
    out[t * 6 + 5] = atomicAdd(&out[blockDim.x * 6], 1U);
}

__global__ void halves(const float *x, uint16_t *bf16, uint16_t *half, float *back)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    dpe_bf16 b = dpe_round<dpe_bf16>(x[i]);
    dpe_f16 h = dpe_round<dpe_f16>(x[i]);
    bf16[i] = b.bits;
    half[i] = h.bits;
    back[2 * i] = dpe_float(b);
    back[2 * i + 1] = dpe_float(h);
}

int emulate_block_sum(const float *x, int blocks, int n, int threads, float *sums)
{
    return dpe_launch(block_sum, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0,
                      x, n, sums);
}

int emulate_count_votes(int steps, int threads, int *counted, bool with_barrier)
{
    return dpe_launch(count_votes, 1, static_cast<unsigned>(threads), 0, steps, counted,
                      with_barrier);
}

int emulate_reverse(const int *x, int *y, int blocks, int n, bool with_barrier)
{
    return dpe_launch(reverse, static_cast<unsigned>(blocks), static_cast<unsigned>(n),
                      static_cast<size_t>(n) * sizeof(int), x, y, with_barrier);
}

int emulate_wrong(enum emulate_wrong_kind kind)
{
    return dpe_launch(wrong, 1, kind == EMULATE_WRONG_COUNT ? 96 : 64, 256, static_cast<int>(kind));
}

int emulate_hand_over(int steps, int *seen)
{
    return dpe_launch(hand_over, 1, 64, 0, steps, seen);
}

int emulate_lanes(uint32_t *out)
{
    return dpe_launch(lanes, 1, 32, 0, out);
}

int emulate_halves(const float *x, int n, uint16_t *bf16, uint16_t *half, float *back)
{
    return dpe_launch(halves, static_cast<unsigned>(n / 32), 32, 0, x, bf16, half, back);
}

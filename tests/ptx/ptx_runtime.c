/* What nvcc's host code asks of the CUDA runtime, so that it links and registers its kernels; what
 * the launching functions ask of the driver; and launches, which are written down. Its own names:
 * ptx_calls links no CUDA library. */
#include "tests/ptx/ptx_runtime.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/ptx/launch.h"

static FILE *to;

void ptx_write_to(FILE *file)
{
    to = file;
}

/* ------------------------------------------------------------------------ in the runtime's place
 */

enum { MOST_KERNELS = 1024, MULTIPROCESSORS = 2 };
static struct {
    const void *stub;
    const char *name;
} kernels[MOST_KERNELS];
static int n_kernels;

/* What nvcc's host code calls (crt/host_runtime.h). */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *device, const char *name,
                            int limit, void *tid, void *bid, void *block, void *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t size, int constant, int global);
char __cudaInitModule(void **handle);
int __cudaGetKernel(void *kernel, const void *stub);
int __cudaPopCallConfiguration(void *grid, void *block, size_t *shared, void *stream);
int __cudaLaunchKernel(void);
int cudaLaunchKernel(void);
int cudaGetDevice(int *device);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned version,
                                     unsigned long long flags, int *found);

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    handle = binary;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}
void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}
void __cudaRegisterFunction(void **handle, const char *stub, char *device, const char *name,
                            int limit, void *tid, void *bid, void *block, void *grid, int *warp)
{
    (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid,
        (void)warp;
    if (n_kernels == MOST_KERNELS) {
        abort();
    }
    kernels[n_kernels].stub = stub;
    kernels[n_kernels++].name = name;
}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t size, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)external, (void)size, (void)constant,
        (void)global;
}
char __cudaInitModule(void **handle)
{
    (void)handle;
    return 0;
}
/* Launches go through dpe_rt_launch alone. */
int __cudaGetKernel(void *kernel, const void *stub)
{
    (void)kernel, (void)stub;
    abort();
}
int __cudaPopCallConfiguration(void *grid, void *block, size_t *shared, void *stream)
{
    (void)grid, (void)block, (void)shared, (void)stream;
    abort();
}
int __cudaLaunchKernel(void)
{
    abort();
}
int cudaLaunchKernel(void)
{
    abort();
}
int cudaGetDevice(int *device)
{
    *device = 0;
    return 0;
}
int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute, (void)device;
    *value = MULTIPROCESSORS;
    return 0;
}

/* A tensor map that holds its parameters; ptx_matrix.py reads it. */
struct map {
    char magic[4];
    uint32_t rank;
    uint64_t base, dims[4], strides[3];
    uint32_t box[4], steps[4], type;
    uint8_t interleave, swizzle, promotion, fill;
};
_Static_assert(sizeof(struct map) <= 128, "a CUtensorMap");

static int encode_map(struct map *map, int type, uint32_t rank, void *base, const uint64_t *dims,
                      const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                      int interleave, int swizzle, int promotion, int fill)
{
    *map = (struct map){.magic = "tmap",
                        .rank = rank,
                        .base = (uint64_t)(uintptr_t)base,
                        .type = (uint32_t)type,
                        .interleave = (uint8_t)interleave,
                        .swizzle = (uint8_t)swizzle,
                        .promotion = (uint8_t)promotion,
                        .fill = (uint8_t)fill};
    for (uint32_t i = 0; i < rank && i < 4; i++) {
        map->dims[i] = dims[i];
        map->box[i] = box[i];
        map->steps[i] = steps[i];
        if (i + 1 < rank) {
            map->strides[i] = strides[i];
        }
    }
    return 0;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned version,
                                     unsigned long long flags, int *found)
{
    int (*const encode)(struct map *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                        const uint32_t *, const uint32_t *, int, int, int, int) = encode_map;
    (void)version, (void)flags;
    *found = strcmp(name, "cuTensorMapEncodeTiled") != 0;
    memcpy(entry, &encode, sizeof encode);
    return 0;
}

int dpe_rt_launch(const struct dpe_kernel_launch *launch)
{
    int k = 0;
    while (k < n_kernels && kernels[k].stub != launch->kernel) {
        k++;
    }
    if (k == n_kernels) {
        abort();
    }
    fprintf(to, "launch %s %u %u %u %u %u %u %llu %d\n", kernels[k].name, launch->grid[0],
            launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
            (unsigned long long)launch->shared, launch->n);
    for (int i = 0; i < launch->n; i++) {
        fprintf(to, "argument %u\n", launch->sizes[i]);
        fwrite(launch->arguments[i], 1, launch->sizes[i], to);
    }
    return 0;
}

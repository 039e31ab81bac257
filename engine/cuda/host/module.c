/* What the tools find when they load the module. */
#include "engine/ops/module.h"

#include <stdio.h>

#include "engine/cuda/host/backend.h"

/* The best of a few rounds of several copies each: waiting costs once a round. */
static int measure_copy(void *a, void *b, uint64_t bytes, double *rate)
{
    enum { ROUNDS = 5, COPIES = 4 };
    int code = dpe_rt_fill(a, 1, bytes);
    *rate = 0.0;
    for (int round = 0; round < ROUNDS && code == 0; round++) {
        code = dpe_rt_wait();
        double start = dpe_clock();
        for (int i = 0; i < COPIES && code == 0; i++) {
            code = dpe_rt_copy(b, a, bytes);
        }
        if (code == 0) {
            code = dpe_rt_wait();
        }
        double found = 2.0 * COPIES * (double)bytes / (dpe_clock() - start);
        *rate = found > *rate ? found : *rate;
    }
    return code;
}

static int measure_product(struct dpe_rt_blas *blas, void *a, void *b, int64_t n, double *rate)
{
    enum { ROUNDS = 5, PRODUCTS = 4 };
    char *out = (char *)b + n * n * 2;
    const struct dpe_rt_product product = {
        .dtype = DPE_BF16, .w = a, .x = b, .out = out, .rows = n, .n = n, .k = n};
    int code = dpe_kernel_random(DPE_BF16, a, n * n, 1.0f, 1);
    if (code == 0) {
        code = dpe_kernel_random(DPE_BF16, b, n * n, 1.0f, 2);
    }
    *rate = 0.0;
    for (int round = 0; round < ROUNDS && code == 0; round++) {
        code = dpe_rt_wait();
        double start = dpe_clock();
        for (int i = 0; i < PRODUCTS && code == 0; i++) {
            code = dpe_rt_product(blas, &product);
        }
        if (code == 0) {
            code = dpe_rt_wait();
        }
        double found = 2.0 * PRODUCTS * (double)n * (double)n * (double)n / (dpe_clock() - start);
        /* The first round holds cuBLAS's own start. */
        *rate = round > 0 && found > *rate ? found : *rate;
    }
    return code;
}

static dpe_status measure(const char *device, struct dpe_device_rates *rates, struct dpe_error *err)
{
    int index = dpe_cuda_device_index(device);
    struct dpe_cuda_info info = {0};
    struct dpe_rt_blas *blas = NULL;
    void *a = NULL;
    void *b = NULL;
    DPE_TRY(dpe_cuda_available(device, err));
    int code = dpe_rt_use(index);
    /* cuBLAS stays with the device that it finds */
    DPE_TRY(dpe_rt_blas_open(&blas, err));
    code = code != 0 ? code : dpe_rt_info(index, &info);
    /* Many times the cache, and large enough for the full rate; a card that has no room for that
     * gets what tells that the code runs. */
    bool large = code == 0 && info.memory >= 8ULL << 30;
    const int64_t n = large ? 8192 : 64;
    const uint64_t bytes = large ? 1ULL << 30 : 1ULL << 20;
    code = code != 0 ? code : dpe_rt_allocate(&a, bytes);
    code = code != 0 ? code : dpe_rt_allocate(&b, bytes);
    code = code != 0 ? code : measure_copy(a, b, bytes, &rates->copy);
    code = code != 0 ? code : measure_product(blas, a, b, n, &rates->product);
    (void)dpe_rt_release(a);
    (void)dpe_rt_release(b);
    dpe_rt_blas_close(blas);
    if (code != 0) {
        return dpe_fail(err, DPE_NO_DEVICE, "device cuda:%d: its rates cannot be measured: %s",
                        index, dpe_rt_text(code));
    }
    snprintf(rates->name, sizeof rates->name, "%s", info.name);
    rates->major = info.major;
    rates->minor = info.minor;
    rates->processors = info.processors;
    rates->memory = info.memory;
    return DPE_OK;
}

static dpe_status describe(const char *device, struct dpe_device_info *info, struct dpe_error *err)
{
    struct dpe_cuda_info found = {0};
    int driver = 0;
    int runtime = 0;
    DPE_TRY(dpe_cuda_available(device, err));
    *info = (struct dpe_device_info){.kind = "cuda"};
    int code = dpe_rt_versions(&driver, &runtime);
    code = code != 0 ? code : dpe_rt_count(&info->count);
    code = code != 0 ? code : dpe_rt_info(dpe_cuda_device_index(device), &found);
    if (code != 0) {
        return dpe_fail(err, DPE_NO_DEVICE, "device cuda: %s", dpe_rt_text(code));
    }
    snprintf(info->name, sizeof info->name, "%s", found.name);
    snprintf(info->id, sizeof info->id, "%s", found.id);
    snprintf(info->driver, sizeof info->driver, "%d.%d", driver / 1000, driver % 1000 / 10);
    return DPE_OK;
}

const struct dpe_cuda_module *dpe_cuda_module(void)
{
    static struct dpe_cuda_module module = {
        .version = DPE_CUDA_MODULE_VERSION,
        .available = dpe_cuda_available,
        .measure = measure,
        .describe = describe,
    };
    module.ops = dpe_cuda_ops();
    return &module;
}

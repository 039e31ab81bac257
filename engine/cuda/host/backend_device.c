/* The device under the slots: what it failed in, which one a thread works on, memory that it keeps.
 */
#include "engine/cuda/host/backend.h"

#include <string.h>

void dpe_cuda_note(struct dpe_backend *backend, int code, const char *call, const char *file,
                   int line)
{
    if (backend->failed) {
        return;
    }
    /* A kernel's first launch loads it, and may wait for those before it for ever. This wait does
     * not, and tells which call failed. */
    if (code == 0 && backend->each_call) {
        code = dpe_rt_wait();
    }
    if (code == 0) {
        return;
    }
    const char *name = strrchr(file, '/');
    backend->failed = true;
    dpe_fail(&backend->failure, DPE_INCOMPLETE, "the device (%s) failed in %.*s, %s:%d: %s",
             backend->info.name, (int)strcspn(call, "("), call, name != NULL ? name + 1 : file,
             line, dpe_rt_text(code));
}

dpe_status dpe_cuda_status(const struct dpe_backend *backend, struct dpe_error *err)
{
    if (!backend->failed) {
        return DPE_OK;
    }
    if (err != NULL) {
        *err = backend->failure;
    }
    return backend->failure.status;
}

dpe_status dpe_cuda_own(struct dpe_backend *b, uint64_t bytes, void **memory, struct dpe_error *err)
{
    *memory = NULL;
    DPE_TRY(DPE_ROOM(&b->owned, b->n_owned, err, "cuda: out of host memory"));
    int code = b->failed ? 0 : dpe_rt_allocate(memory, bytes > 0 ? bytes : 1);
    if (code != 0 && dpe_rt_is_memory(code)) {
        uint64_t available = 0;
        uint64_t total = 0;
        (void)dpe_rt_memory(&available, &total);
        return dpe_fail(err, DPE_NO_MEMORY,
                        "out of device memory: %.1f MiB are needed, %.1f of %.1f MiB are free",
                        (double)bytes / 0x1p20, (double)available / 0x1p20, (double)total / 0x1p20);
    }
    DPE_CUDA_NOTE(b, code, "dpe_rt_allocate");
    if (*memory != NULL) {
        b->owned[b->n_owned++] = *memory;
    }
    return dpe_cuda_status(b, err);
}

void dpe_cuda_use(struct dpe_backend *b)
{
    dpe_rt_set_timeout(b->timeout_seconds);
    DPE_CUDA_TRY(b, dpe_rt_use(b->index));
}

void dpe_cuda_make_pending(struct dpe_backend *b)
{
    struct dpe_cuda_pending *p = &b->pending;
    const void *const x = p->x;
    const int n = p->n_rotated;
    /* First, because a launch comes here before it is made. */
    p->x = NULL;
    p->n_rotated = 0;
    if (n > 0) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_rotate(p->rotated, n));
    }
    if (x != NULL) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_nonfinite(x, p->rows, p->width, p->layer, b->nonfinite));
    }
}

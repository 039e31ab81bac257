/* OpenBLAS at run time. */
#include "engine/cpu/blas.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Address space of one thread's buffer in OpenBLAS on x86-64, the largest; and of what else it
 * takes while it is loaded. */
static const size_t buffer_bytes = (size_t)128 << 20;
static const size_t loaded_bytes = (size_t)64 << 20;

/* Whether so much more can be mapped: asked for, and given back. */
static bool has_address_space(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED && munmap(at, bytes) == 0;
}

/* The library that was found when dpe was built, or another one that the loader knows. It maps a
 * buffer for each thread of OMP_NUM_THREADS, or of the machine: it is told one. */
static void *load(void)
{
    const char *before = getenv("OMP_NUM_THREADS");
    DPE_OWNED char *kept = before != NULL ? strdup(before) : NULL;
    bool told = (before == NULL || kept != NULL) && setenv("OMP_NUM_THREADS", "1", 1) == 0;
    void *library = told ? dlopen(DPE_OPENBLAS, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL && told) {
        library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    }
    if (kept != NULL) {
        setenv("OMP_NUM_THREADS", kept, 1);
    } else if (before == NULL) {
        unsetenv("OMP_NUM_THREADS");
    }
    return library;
}

dpe_status dpe_cpu_blas(int n_threads, void (**sgemm)(void), struct dpe_error *err)
{
    static void *library;
    size_t bytes = ((size_t)n_threads + 1) * buffer_bytes + loaded_bytes;
    if (!has_address_space(bytes)) {
        return dpe_fail(err, DPE_NO_MEMORY,
                        "cpu backend: OpenBLAS needs %zu MiB of address space for %d threads; "
                        "raise the limit (ulimit -v), or use fewer --threads",
                        bytes >> 20, n_threads);
    }
    if (library == NULL) {
        library = load();
    }
    if (library == NULL) {
        const char *why = dlerror();
        return dpe_fail(err, DPE_NO_DEVICE,
                        "cpu backend: OpenBLAS cannot be loaded: %s; install it (Debian: "
                        "libopenblas0-openmp)",
                        why != NULL ? why : strerror(ENOMEM));
    }
    void (*one_thread)(int) = NULL;
    *(void **)&one_thread = dlsym(library, "openblas_set_num_threads");
    *(void **)sgemm = dlsym(library, "cblas_sgemm");
    if (one_thread == NULL || *sgemm == NULL) {
        return dpe_fail(err, DPE_NO_DEVICE, "cpu backend: OpenBLAS lacks a function: %s",
                        dlerror());
    }
    one_thread(1); /* we call it from our threads; its own would change sums with their number */
    return DPE_OK;
}

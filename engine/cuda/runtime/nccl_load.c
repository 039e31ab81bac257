/* Finds the library of sums through NCCL, when they are first asked for. */
#include <dlfcn.h>
#include <threads.h>

#include "engine/cuda/runtime/nccl_module.h"
#include "engine/cuda/runtime/runtime.h"

static const struct dpe_nccl_module *nccl_module;

static void load_nccl(void)
{
    /* Beside this module, or where the loader looks. */
    void *library = dlopen("libdpe_nccl.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return;
    }
    const struct dpe_nccl_module *(*get)(void) = NULL;
    /* POSIX lets an object pointer of dlsym be read as a function pointer, C does not. */
    *(void **)(&get) = dlsym(library, DPE_NCCL_SYMBOL);
    const struct dpe_nccl_module *found = get == NULL ? NULL : get();
    nccl_module = found != NULL && found->version == DPE_NCCL_VERSION ? found : NULL;
}

const struct dpe_nccl_module *dpe_rt_nccl(void)
{
    static once_flag once = ONCE_FLAG_INIT;
    call_once(&once, load_nccl);
    return nccl_module;
}

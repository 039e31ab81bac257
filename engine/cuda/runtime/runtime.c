/* The real CUDA runtime and cuBLAS. cuBLAS is loaded when it is first needed, so that the module
 * itself needs nothing but a driver. */
#include "engine/cuda/runtime/runtime.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "engine/base/base.h"
#include "engine/cuda/runtime/nccl_module.h"

int dpe_rt_versions(int *driver, int *runtime)
{
    *driver = 0;
    *runtime = CUDART_VERSION;
    return (int)cudaDriverGetVersion(driver);
}

int dpe_rt_count(int *n)
{
    *n = 0;
    cudaError_t code = cudaGetDeviceCount(n);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        *n = 0;
    }
    return (int)code;
}

int dpe_rt_info(int device, struct dpe_cuda_info *info)
{
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, device);
    if (code == cudaSuccess) {
        snprintf(info->name, sizeof info->name, "%s", properties.name);
        for (size_t i = 0; i < sizeof properties.uuid.bytes; i++) {
            snprintf(info->id + 2 * i, 3, "%02x", (unsigned char)properties.uuid.bytes[i]);
        }
        info->major = properties.major;
        info->minor = properties.minor;
        info->processors = properties.multiProcessorCount;
        info->memory = properties.totalGlobalMem;
        info->shared = properties.sharedMemPerBlockOptin;
    }
    return (int)code;
}

/* A device's stream, and pinned memory through which small copies go. */
enum { MOST_DEVICES = 64, PINNED = 256 << 10, SMALL = 32 << 10 };
struct lane {
    bool opened;
    cudaStream_t stream;
    char *pinned; /* NULL: none could be had */
    size_t used;  /* by copies that may not have happened yet */
};

static struct lane lanes[MOST_DEVICES];
static mtx_t lanes_lock;
static once_flag lanes_once = ONCE_FLAG_INIT;
static const struct lane no_lane;
static _Thread_local struct lane *lane;

static _Thread_local double timeout_seconds;
static atomic_bool hangs;

static void lanes_begin(void)
{
    (void)mtx_init(&lanes_lock, mtx_plain);
}

void *dpe_rt_stream(void)
{
    return lane != NULL ? lane->stream : no_lane.stream;
}

void dpe_rt_set_timeout(double seconds)
{
    timeout_seconds = seconds;
}

/* The process ends without what the driver would do at its end: that waits for the device. */
static void leave(int status, void *nothing)
{
    (void)nothing;
    (void)fflush(NULL);
    _exit(status);
}

/* Whether what was launched does not come to its end; when not, it has come there. */
static bool is_hanging(void)
{
    const struct timespec nap = {.tv_nsec = 100000};
    const double begin = timeout_seconds > 0.0 ? dpe_clock() : 0.0;
    bool late = false;
    while (timeout_seconds > 0.0 && !atomic_load(&hangs) &&
           cudaStreamQuery(dpe_rt_stream()) == cudaErrorNotReady) {
        /* The guide says that launches do not find this code; programs that relied on it did. */
        (void)cudaGetLastError();
        if (late) {
            atomic_store(&hangs, true);
            (void)on_exit(leave, NULL);
            break;
        }
        (void)thrd_sleep(&nap, NULL);
        /* Queried once more after this: the time may be that of a process that was stopped. */
        late = dpe_clock() - begin > timeout_seconds;
    }
    return atomic_load(&hangs);
}

int dpe_rt_memory(uint64_t *available, uint64_t *total)
{
    size_t left = 0;
    size_t all = 0;
    cudaError_t code = cudaMemGetInfo(&left, &all);
    *available = left;
    *total = all;
    return (int)code;
}

int dpe_rt_allocate(void **memory, uint64_t bytes)
{
    *memory = NULL;
    if (atomic_load(&hangs)) {
        return DPE_RT_HANGS;
    }
    cudaError_t code = cudaMalloc(memory, (size_t)bytes);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* else the next launch would report it again */
        *memory = NULL;
    }
    return (int)code;
}

int dpe_rt_release(void *memory)
{
    return is_hanging() ? DPE_RT_HANGS : (int)cudaFree(memory);
}

/* Streams that do not wait for the legacy one. The current device's lane is opened once. */
static cudaError_t open_lane(struct lane *made)
{
    if (made->opened) {
        return cudaSuccess;
    }
    cudaError_t code = cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking);
    if (code == cudaSuccess && cudaMallocHost((void **)&made->pinned, PINNED) != cudaSuccess) {
        (void)cudaGetLastError();
        made->pinned = NULL;
    }
    made->opened = code == cudaSuccess;
    return code;
}

int dpe_rt_use(int device)
{
    if (atomic_load(&hangs)) {
        return DPE_RT_HANGS;
    }
    cudaError_t code = cudaSetDevice(device);
    if (code != cudaSuccess || device < 0 || device >= MOST_DEVICES) {
        return (int)code;
    }
    call_once(&lanes_once, lanes_begin);
    (void)mtx_lock(&lanes_lock);
    code = open_lane(&lanes[device]);
    (void)mtx_unlock(&lanes_lock);
    lane = &lanes[device];
    return (int)code;
}

/* `bytes` of pinned memory that no copy under way uses; NULL: this copy goes without. */
static char *take_pinned(uint64_t bytes, int *code)
{
    *code = 0;
    if (lane == NULL || lane->pinned == NULL || bytes > SMALL) {
        return NULL;
    }
    if (lane->used + bytes > PINNED) {
        *code = (int)cudaStreamSynchronize(lane->stream);
        lane->used = 0;
    }
    char *at = lane->pinned + lane->used;
    lane->used += (bytes + 15) / 16 * 16;
    return at;
}

int dpe_rt_up(void *to, const void *from, uint64_t bytes)
{
    if (is_hanging()) {
        return DPE_RT_HANGS;
    }
    int code = 0;
    char *pinned = take_pinned(bytes, &code);
    if (code != 0) {
        return code;
    }
    if (pinned != NULL) {
        memcpy(pinned, from, (size_t)bytes);
        return (int)cudaMemcpyAsync(to, pinned, (size_t)bytes, cudaMemcpyHostToDevice,
                                    lane->stream);
    }
    /* Callers free what they passed, so the copy has to have read it. */
    code = (int)cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, dpe_rt_stream());
    return code != 0 ? code : (int)cudaStreamSynchronize(dpe_rt_stream());
}

int dpe_rt_down(void *to, const void *from, uint64_t bytes)
{
    if (is_hanging()) {
        return DPE_RT_HANGS;
    }
    int code = 0;
    char *pinned = take_pinned(bytes, &code);
    if (code == 0) {
        code = (int)cudaMemcpyAsync(pinned != NULL ? pinned : to, from, (size_t)bytes,
                                    cudaMemcpyDeviceToHost, dpe_rt_stream());
    }
    if (code == 0) {
        code = (int)cudaStreamSynchronize(dpe_rt_stream());
    }
    if (code == 0 && pinned != NULL) {
        memcpy(to, pinned, (size_t)bytes);
        lane->used = 0; /* all copies before this one have happened */
    }
    return code;
}

int dpe_rt_copy(void *to, const void *from, uint64_t bytes)
{
    return (int)cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, dpe_rt_stream());
}

int dpe_rt_fill(void *at, int byte, uint64_t bytes)
{
    return (int)cudaMemsetAsync(at, byte, (size_t)bytes, dpe_rt_stream());
}

int dpe_rt_wait(void)
{
    return is_hanging() ? DPE_RT_HANGS : (int)cudaDeviceSynchronize();
}

/* ------------------------------------------------------------------------------------ launches */

/* More than 48 KiB of shared memory a kernel has to be allowed, a little of which it may declare
 * itself. */
static cudaError_t allow_shared(const struct dpe_kernel_launch *launch)
{
    if (launch->shared <= 46 << 10) {
        return cudaSuccess;
    }
    cudaError_t code = cudaFuncSetAttribute(
        launch->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch->shared);
    /* All of the unified memory, so that as many blocks as fit do live side by side. */
    return code != cudaSuccess
               ? code
               : cudaFuncSetAttribute(launch->kernel,
                                      cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared);
}

static _Thread_local const void *last_kernel;

void dpe_rt_code(int *machine, int *ptx)
{
    struct cudaFuncAttributes found;
    const bool known = last_kernel != NULL && !atomic_load(&hangs) &&
                       cudaFuncGetAttributes(&found, last_kernel) == cudaSuccess;
    (void)cudaGetLastError();
    *machine = known ? found.binaryVersion : 0;
    *ptx = known ? found.ptxVersion : 0;
}

static int launch_now(const struct dpe_kernel_launch *launch)
{
    if (launch->product != NULL) {
        return launch->product(launch->arguments);
    }
    last_kernel = launch->kernel;
    const cudaLaunchConfig_t config = {
        .gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]},
        .blockDim = {launch->block[0], launch->block[1], launch->block[2]},
        .dynamicSmemBytes = (size_t)launch->shared,
        .stream = dpe_rt_stream(),
    };
    void *arguments[DPE_MOST_ARGUMENTS];
    for (int i = 0; i < launch->n; i++) {
        arguments[i] = (void *)(uintptr_t)launch->arguments[i]; /* they are only read */
    }
    cudaError_t code = allow_shared(launch);
    code = code != cudaSuccess ? code : cudaLaunchKernelExC(&config, launch->kernel, arguments);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return (int)code;
}

int dpe_rt_launch(const struct dpe_kernel_launch *launch)
{
    int code = 0;
    return dpe_launches_take(launch, &code) ? code : launch_now(launch);
}

struct dpe_rt_graph {
    cudaGraphExec_t runs;
};

int dpe_rt_graph_make(const struct dpe_launches *launches, struct dpe_rt_graph **graph)
{
    cudaGraph_t captured = NULL;
    *graph = NULL;
    struct dpe_rt_graph *made = dpe_alloc_zero(1, sizeof *made);
    if (made == NULL) {
        return (int)cudaErrorMemoryAllocation;
    }
    /* Calls of other threads do not disturb it, nor it them. */
    int code = (int)cudaStreamBeginCapture(dpe_rt_stream(), cudaStreamCaptureModeThreadLocal);
    if (code == 0) {
        code = dpe_launches_each(launches, launch_now);
        /* Also after an error: the stream has to leave the capture. */
        int ended = (int)cudaStreamEndCapture(dpe_rt_stream(), &captured);
        code = code != 0 ? code : ended;
    }
    if (code == 0) {
        code = (int)cudaGraphInstantiateWithFlags(&made->runs, captured, 0);
    }
    if (captured != NULL) {
        (void)cudaGraphDestroy(captured);
    }
    if (code != 0) {
        (void)cudaGetLastError();
        free(made);
        return code;
    }
    *graph = made;
    return 0;
}

int dpe_rt_graph_run(struct dpe_rt_graph *graph)
{
    return is_hanging() ? DPE_RT_HANGS : (int)cudaGraphLaunch(graph->runs, dpe_rt_stream());
}

void dpe_rt_graph_free(struct dpe_rt_graph *graph)
{
    if (graph != NULL && !atomic_load(&hangs)) {
        (void)cudaGraphExecDestroy(graph->runs);
    }
    free(graph);
}

bool dpe_rt_is_memory(int code)
{
    return code == (int)cudaErrorMemoryAllocation ||
           code == DPE_RT_BLAS + (int)CUBLAS_STATUS_ALLOC_FAILED;
}

/* -------------------------------------------------------------------------------------- cuBLAS */

typedef cublasStatus_t (*create_function)(cublasHandle_t *);
typedef cublasStatus_t (*destroy_function)(cublasHandle_t);
typedef cublasStatus_t (*mode_function)(cublasHandle_t, cublasMath_t);
typedef cublasStatus_t (*stream_function)(cublasHandle_t, cudaStream_t);
typedef cublasStatus_t (*workspace_function)(cublasHandle_t, void *, size_t);
typedef cublasStatus_t (*gemm_function)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                        int, int, const void *, const void *, cudaDataType, int,
                                        const void *, cudaDataType, int, const void *, void *,
                                        cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
typedef const char *(*text_function)(cublasStatus_t);

/* What cuBLAS advises for Hopper. Without a workspace of ours, a graph would allocate one for each
 * product. */
enum { WORKSPACE_BYTES = 32 << 20 };

struct dpe_rt_blas {
    void *library, *workspace;
    cublasHandle_t handle;
    destroy_function destroy;
    gemm_function gemm;
};

/* Of the library that was opened last; the texts are its own. */
static text_function blas_text;

/* POSIX lets an object pointer of dlsym be read as a function pointer, C does not. */
#define FIND(function, library, name) *(void **)(&(function)) = dlsym(library, name)

const char *dpe_rt_text(int code)
{
    static _Thread_local char text[256];
    if (code == DPE_RT_HANGS) {
        return "no answer in time";
    }
    if (code >= DPE_RT_NCCL) {
        const struct dpe_nccl_module *nccl = dpe_rt_nccl();
        snprintf(text, sizeof text, "NCCL: %s",
                 nccl != NULL ? nccl->text(code - DPE_RT_NCCL) : "failed");
    } else if (code >= DPE_RT_BLAS) {
        snprintf(text, sizeof text, "cuBLAS: %s",
                 blas_text != NULL ? blas_text((cublasStatus_t)(code - DPE_RT_BLAS)) : "failed");
    } else {
        snprintf(text, sizeof text, "%s: %s", cudaGetErrorName((cudaError_t)code),
                 cudaGetErrorString((cudaError_t)code));
    }
    return text;
}

dpe_status dpe_rt_blas_open(struct dpe_rt_blas **blas, struct dpe_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "libcublas.so.%d", CUBLAS_VER_MAJOR);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return dpe_fail(err, DPE_NO_DEVICE,
                        "device cuda needs %s (%s); install cuBLAS of CUDA %d, or set "
                        "LD_LIBRARY_PATH to the folder that has it",
                        name, dlerror(), CUDART_VERSION / 1000);
    }
    create_function create = NULL;
    mode_function set_mode = NULL;
    stream_function set_stream = NULL;
    workspace_function set_workspace = NULL;
    struct dpe_rt_blas *made = dpe_alloc_zero(1, sizeof *made);
    if (made == NULL) {
        dlclose(library);
        return dpe_fail(err, DPE_NO_MEMORY, "cuda: out of memory");
    }
    made->library = library;
    FIND(create, library, "cublasCreate_v2");
    FIND(set_mode, library, "cublasSetMathMode");
    FIND(set_stream, library, "cublasSetStream_v2");
    FIND(set_workspace, library, "cublasSetWorkspace_v2");
    FIND(made->destroy, library, "cublasDestroy_v2");
    FIND(made->gemm, library, "cublasGemmEx");
    FIND(blas_text, library, "cublasGetStatusString");
    cublasStatus_t code = CUBLAS_STATUS_NOT_SUPPORTED;
    if (create != NULL && set_mode != NULL && set_stream != NULL && set_workspace != NULL &&
        made->destroy != NULL && made->gemm != NULL) {
        code = create(&made->handle);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = set_stream(made->handle, dpe_rt_stream());
    }
    if (code == CUBLAS_STATUS_SUCCESS && dpe_rt_allocate(&made->workspace, WORKSPACE_BYTES) == 0) {
        code = set_workspace(made->handle, made->workspace, WORKSPACE_BYTES);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        /* Else what is split along k may be added up in the dtype of the result. */
        code = set_mode(made->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    }
    if (code != CUBLAS_STATUS_SUCCESS) {
        dpe_rt_blas_close(made);
        return dpe_fail(err, DPE_NO_DEVICE, "device cuda: %s cannot start (%s)", name,
                        dpe_rt_text(DPE_RT_BLAS + (int)code));
    }
    *blas = made;
    return DPE_OK;
}

void dpe_rt_blas_close(struct dpe_rt_blas *blas)
{
    if (blas == NULL) {
        return;
    }
    if (blas->handle != NULL && !atomic_load(&hangs)) {
        (void)blas->destroy(blas->handle);
        (void)dpe_rt_release(blas->workspace);
    }
    /* The library stays: its threads and the driver's hooks do not like to be unloaded. */
    free(blas);
}

static cudaDataType type_of(enum dpe_dtype dtype)
{
    return dtype == DPE_F32 ? CUDA_R_32F : (dtype == DPE_F16 ? CUDA_R_16F : CUDA_R_16BF);
}

static int multiply(const void *const *arguments)
{
    const struct dpe_rt_blas *blas = *(struct dpe_rt_blas *const *)arguments[0];
    const struct dpe_rt_product *p = arguments[1];
    const float one = 1.0f;
    const float beta = p->accumulate ? 1.0f : 0.0f;
    cudaDataType in = type_of(p->dtype);
    /* Row-major out = x·Wᵀ is column-major outᵀ = W·xᵀ. */
    cublasStatus_t code = blas->gemm(blas->handle, CUBLAS_OP_T, CUBLAS_OP_N, (int)p->n,
                                     (int)p->rows, (int)p->k, &one, p->w, in, (int)p->k, p->x, in,
                                     (int)p->k, &beta, p->out, p->out_float ? CUDA_R_32F : in,
                                     (int)p->n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return code == CUBLAS_STATUS_SUCCESS ? 0 : DPE_RT_BLAS + (int)code;
}

int dpe_rt_product(struct dpe_rt_blas *blas, const struct dpe_rt_product *product)
{
    const void *const arguments[] = {&blas, product};
    const uint32_t sizes[] = {sizeof blas, sizeof *product};
    const struct dpe_kernel_launch launch = {
        .n = 2, .arguments = arguments, .sizes = sizes, .product = multiply};
    return dpe_rt_launch(&launch);
}

/* ------------------------------------------------------------- the library of sums through NCCL */

/* Found when it is first asked for. */
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

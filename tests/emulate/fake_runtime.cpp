/* The runtime of engine/cuda/runtime/runtime.h with its device in host memory: kernels run in the
 * emulator, products in plain loops. Allocations are poisoned, have canaries on both sides and are
 * counted.
 *
 * DPE_FAKE_CUDA in the environment sets the kind of device and the faults, as words separated by
 * commas:
 *
 * - none: no device
 * - driver=N: driver version (0: none)
 * - capability=80 or 90
 * - memory=N: bytes in all
 * - hidden: free memory is not reported
 * - allocate=N: the N-th allocation fails for want of memory (1 = first)
 * - sticky=N: from the N-th call on that reaches the device, every call fails
 * - late=N: the same, but only calls that wait for the device report it, as in CUDA
 * - hangs=N: the device stops answering at the first call from the N-th on that has a time limit
 * - wrong=N: products leave out the last N numbers of a row
 * - seed=N: the order of threads in the emulator
 * - processors=N: multiprocessors (4)
 * - broken=N: every call that reaches device N fails
 * - capture=N: the N-th graph of a step cannot be made (1 = first)
 * - devices=N: how many there are (2), each with its own memory; calls that reach for the memory of
 *   another device than the thread's fail
 *
 * DPE_FAKE_FAULT plants a fault into one kernel (fake_faults.h). */
#include "tests/emulate/fake_runtime.h"
#include "tests/emulate/fake_faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cuda/ptx/device.cuh"
#include "engine/cuda/runtime/nccl_module.h"
#include "engine/cuda/runtime/runtime.h"

namespace
{

enum {
    MEMORY = 2,
    ILLEGAL = 700,
    NO_DEVICE = 100,
    LAUNCH = 719,
    INVALID = 1,
    NO_CAPTURE = 900,
    CANARY = 256
};

struct block {
    unsigned char *memory; /* canary, bytes, canary */
    uint64_t bytes;
    int device;
};

block *blocks;
size_t n_blocks;
struct fake_counts counts;
enum { MOST_DEVICES = 16 };
uint64_t in_use[MOST_DEVICES];
thread_local int current;
thread_local double timeout_seconds;
uint64_t hung_at; /* the call, by DPE_FAKE_CUDA, at which the device hung; 0: it does not hang */

/* A number of the environment's words. */
uint64_t word(const char *name, uint64_t fallback)
{
    const char *at = getenv("DPE_FAKE_CUDA");
    size_t n = strlen(name);
    while (at != NULL && *at != '\0') {
        if (strncmp(at, name, n) == 0 && (at[n] == '=' || at[n] == ',' || at[n] == '\0')) {
            return at[n] == '=' ? strtoull(at + n + 1, NULL, 10) : 1;
        }
        at = strchr(at, ',');
        at = at == NULL ? NULL : at + 1;
    }
    return fallback;
}

int planted; /* the code of a fault that stays */

/* What a fault does before its launch or product is made. */
int begin_fault(enum fake_fault fault)
{
    const bool limited = timeout_seconds > 0.0;
    planted = fault == FAKE_FAILS              ? LAUNCH
              : fault == FAKE_HANGS && limited ? DPE_RT_HANGS
                                               : planted;
    while (fault == FAKE_STUCK) {
        pause();
    }
    return planted;
}

/* A copy of what this device holds. */
unsigned char *copy_memory()
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n_blocks; i++) {
        bytes += blocks[i].bytes;
    }
    unsigned char *copy = static_cast<unsigned char *>(malloc(bytes));
    unsigned char *to = copy;
    for (size_t i = 0; copy != NULL && i < n_blocks; i++) {
        memcpy(to, blocks[i].memory + CANARY, blocks[i].bytes);
        to += blocks[i].bytes;
    }
    return copy;
}

/* Of what was written in each allocation since, the first half is as it was. */
void undo_half(unsigned char *copy)
{
    const unsigned char *was = copy;
    for (size_t i = 0; copy != NULL && i < n_blocks; i++) {
        unsigned char *is = blocks[i].memory + CANARY;
        uint64_t changed = 0;
        for (uint64_t b = 0; b < blocks[i].bytes; b++) {
            changed += is[b] != was[b];
        }
        for (uint64_t b = 0, undone = 0; undone < (changed + 1) / 2; b++) {
            undone += is[b] != was[b];
            is[b] = was[b];
        }
        was += blocks[i].bytes;
    }
    free(copy);
}

/* Make it, with the fault that was planted into it. */
int run_faulty(enum fake_fault fault, const struct dpe_kernel_launch *launch)
{
    int code = begin_fault(fault);
    unsigned char *before = code == 0 && fault == FAKE_WRONG ? copy_memory() : NULL;
    code = code != 0 ? code : emulate_run(launch);
    undo_half(before);
    return code;
}

int launch_now(const struct dpe_kernel_launch *launch)
{
    if (launch->product != NULL) {
        return launch->product(launch->arguments);
    }
    const enum fake_fault fault = fake_fault_of_launch(launch);
    return fault != FAKE_RIGHT ? run_faulty(fault, launch) : emulate_run(launch);
}

/* Every call that reaches the device begins with one of these. */
int reach(void)
{
    counts.calls++;
    uint64_t sticky = word("sticky", 0);
    uint64_t hung = word("hangs", 0);
    const char *faults = getenv("DPE_FAKE_FAULT");
    planted = faults == NULL || *faults == '\0' ? 0 : planted;
    if (planted != 0) {
        return planted;
    }
    hung_at = hung_at == hung || (timeout_seconds > 0.0 && counts.calls >= hung) ? hung : 0;
    if (hung_at != 0) {
        return DPE_RT_HANGS;
    }
    bool broken = static_cast<uint64_t>(current) == word("broken", UINT64_MAX);
    return broken || (sticky != 0 && counts.calls >= sticky) ? ILLEGAL : 0;
}

/* Those that wait for all before them learn of it. */
int reach_end(void)
{
    uint64_t late_from = word("late", 0);
    int code = reach();
    return code == 0 && late_from != 0 && counts.calls >= late_from ? ILLEGAL : code;
}

int launch_here(const struct dpe_kernel_launch *launch)
{
    int code = 0;
    if (dpe_launches_take(launch, &code)) {
        return code;
    }
    counts.launches++;
    code = reach();
    return code != 0 ? code : launch_now(launch);
}

const bool hooked = (emulate_set_launch(launch_here), true);

bool canaries_good(const block *b)
{
    for (int i = 0; i < CANARY; i++) {
        if (b->memory[i] != 0x5a ||
            b->memory[CANARY + b->bytes + static_cast<uint64_t>(i)] != 0x5a) {
            return false;
        }
    }
    return true;
}

/* Whether [at, at + bytes) lies inside one allocation. */
bool inside(const void *at, uint64_t bytes)
{
    const unsigned char *p = static_cast<const unsigned char *>(at);
    for (size_t i = 0; i < n_blocks; i++) {
        const unsigned char *first = blocks[i].memory + CANARY;
        if (blocks[i].device == current && p >= first && bytes <= blocks[i].bytes &&
            static_cast<uint64_t>(p - first) <= blocks[i].bytes - bytes) {
            return true;
        }
    }
    return false;
}

} // namespace

struct fake_counts fake_counts_read(void)
{
    counts.live = n_blocks;
    counts.bytes = 0;
    for (uint64_t bytes : in_use) {
        counts.bytes += bytes;
    }
    for (size_t i = 0; i < n_blocks; i++) {
        counts.damaged += !canaries_good(&blocks[i]);
    }
    return counts;
}

int dpe_rt_versions(int *driver, int *runtime)
{
    *driver = static_cast<int>(word("driver", 13000));
    *runtime = 13000;
    emulate_set_seed(word("seed", 0));
    return hooked ? 0 : INVALID;
}

int dpe_rt_count(int *n)
{
    *n = word("none", 0) != 0 ? 0 : static_cast<int>(word("devices", 2));
    return *n == 0 ? NO_DEVICE : 0;
}

int dpe_rt_info(int device, struct dpe_cuda_info *info)
{
    int capability = static_cast<int>(word("capability", 80));
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "emulated device %d", device);
    snprintf(info->id, sizeof info->id, "emulated-%d", device);
    info->major = capability / 10;
    info->minor = capability % 10;
    info->processors = static_cast<int>(word("processors", 4));
    info->memory = word("memory", 1ULL << 32);
    info->shared = (capability == 90 ? 227U : (capability == 80 ? 163U : 99U)) << 10;
    return 0;
}

int dpe_rt_use(int device)
{
    if (device < 0 || device >= MOST_DEVICES) {
        return INVALID;
    }
    current = device;
    return 0;
}

void *dpe_rt_stream(void)
{
    return NULL;
}

void dpe_rt_set_timeout(double seconds)
{
    timeout_seconds = seconds;
}

int dpe_rt_memory(uint64_t *available, uint64_t *total)
{
    *total = word("hidden", 0) != 0 ? 1ULL << 32 : word("memory", 1ULL << 32);
    *available = *total > in_use[current] ? *total - in_use[current] : 0;
    return 0;
}

int dpe_rt_allocate(void **memory, uint64_t bytes)
{
    *memory = NULL;
    int code = reach();
    if (code != 0) {
        return code;
    }
    if (++counts.allocations == word("allocate", 0) ||
        in_use[current] + bytes > word("memory", 1ULL << 32)) {
        return MEMORY;
    }
    /* Aligned as the device does it, so that what needs alignment has no more of it than there. */
    uint64_t room = (bytes + 2 * CANARY + 255) / 256 * 256;
    unsigned char *made = static_cast<unsigned char *>(aligned_alloc(256, room));
    block *grown = static_cast<block *>(realloc(blocks, (n_blocks + 1) * sizeof *blocks));
    blocks = grown == NULL ? blocks : grown;
    if (made == NULL || grown == NULL) {
        free(made);
        return MEMORY;
    }
    memset(made, 0x5a, room);
    memset(made + CANARY, 0xff, bytes);
    blocks[n_blocks++] = {made, bytes, current};
    in_use[current] += bytes;
    *memory = made + CANARY;
    return 0;
}

int dpe_rt_release(void *memory)
{
    if (memory == NULL) {
        return 0;
    }
    for (size_t i = 0; i < n_blocks; i++) {
        if (blocks[i].memory + CANARY == memory) {
            counts.damaged += !canaries_good(&blocks[i]);
            in_use[blocks[i].device] -= blocks[i].bytes;
            free(blocks[i].memory);
            blocks[i] = blocks[--n_blocks];
            return reach_end();
        }
    }
    return INVALID;
}

int dpe_rt_up(void *to, const void *from, uint64_t bytes)
{
    int code = reach_end();
    if (code == 0 && !inside(to, bytes)) {
        return INVALID;
    }
    if (code == 0) {
        memcpy(to, from, bytes);
    }
    return code;
}

int dpe_rt_down(void *to, const void *from, uint64_t bytes)
{
    int code = reach_end();
    if (code == 0 && !inside(from, bytes)) {
        return INVALID;
    }
    if (code == 0) {
        memcpy(to, from, bytes);
    }
    return code;
}

int dpe_rt_copy(void *to, const void *from, uint64_t bytes)
{
    int code = reach();
    if (code == 0 && (!inside(to, bytes) || !inside(from, bytes))) {
        return INVALID;
    }
    if (code == 0) {
        memmove(to, from, bytes);
    }
    return code;
}

int dpe_rt_fill(void *at, int byte, uint64_t bytes)
{
    int code = reach();
    if (code == 0 && !inside(at, bytes)) {
        return INVALID;
    }
    if (code == 0) {
        memset(at, byte, bytes);
    }
    return code;
}

int dpe_rt_wait(void)
{
    return reach_end();
}

/* A graph is a list of launches, made one after the other. */
struct dpe_rt_graph {
    struct dpe_launches launches;
};

int dpe_rt_graph_make(const struct dpe_launches *launches, struct dpe_rt_graph **graph)
{
    int code = reach();
    *graph = NULL;
    if (code == 0 && ++counts.graphs == word("capture", 0)) {
        return NO_CAPTURE;
    }
    struct dpe_rt_graph *made =
        static_cast<struct dpe_rt_graph *>(calloc(1, sizeof(struct dpe_rt_graph)));
    if (code == 0 && (made == NULL || dpe_launches_copy(&made->launches, launches) != 0)) {
        code = MEMORY;
    }
    if (code != 0) {
        free(made);
        return code;
    }
    *graph = made;
    return 0;
}

static int n_launches; /* that are counted, or still to be made */

static int count_launch(const struct dpe_kernel_launch *launch)
{
    (void)launch;
    n_launches++;
    return 0;
}

static int launch_counted(const struct dpe_kernel_launch *launch)
{
    return n_launches-- > 0 ? launch_now(launch) : 0;
}

int dpe_rt_graph_run(struct dpe_rt_graph *graph)
{
    int code = reach();
    const enum fake_fault fault = fake_fault_of("graph");
    code = code != 0 ? code : begin_fault(fault);
    counts.graph_runs++;
    n_launches = 0;
    if (fault == FAKE_WRONG) { /* without its second half */
        (void)dpe_launches_each(&graph->launches, count_launch);
        n_launches = (n_launches + 1) / 2;
    }
    return code != 0 ? code
                     : dpe_launches_each(&graph->launches,
                                         fault == FAKE_WRONG ? launch_counted : launch_now);
}

void dpe_rt_graph_free(struct dpe_rt_graph *graph)
{
    if (graph != NULL) {
        dpe_launches_free(&graph->launches);
        free(graph);
    }
}

const char *dpe_rt_text(int code)
{
    static char text[4608];
    const char *name = code == MEMORY         ? "out of memory"
                       : code == ILLEGAL      ? "an illegal memory access was encountered"
                       : code == NO_DEVICE    ? "no CUDA-capable device is detected"
                       : code == LAUNCH       ? "unspecified launch failure"
                       : code == NO_CAPTURE   ? "operation not permitted when stream is capturing"
                       : code == DPE_RT_HANGS ? "no answer in time"
                                              : "invalid argument";
    snprintf(text, sizeof text, "emulated error %d: %s%s%s", code, name,
             emulate_error()[0] != '\0' ? "; " : "", emulate_error());
    return text;
}

void dpe_rt_code(int *machine, int *ptx)
{
    *machine = *ptx = counts.launches > 0 ? static_cast<int>(word("capability", 80)) : 0;
}

bool dpe_rt_is_memory(int code)
{
    return code == MEMORY;
}

/* Like cuBLAS, it stays with the device that was current when it was opened. */
struct dpe_rt_blas {
    int device;
};

/* NCCL with a fault; there is none that works. `fails`: peers cannot join; `wrong`: sums are those
 * of one peer. */
static int nccl_id(char *id)
{
    id[0] = 1;
    return 0;
}
static int nccl_join(void **sums, const char *id, int index, int size)
{
    static int joined;
    *sums = &joined;
    return id[0] == 1 && index < size && fake_fault_of("nccl") == FAKE_WRONG ? 0 : 5;
}
static int nccl_sum(void *sums, float *x, uint64_t n, void *stream)
{
    (void)sums, (void)x, (void)n, (void)stream;
    return 0;
}
static void nccl_leave(void *sums)
{
    (void)sums;
}
static const char *nccl_text(int code)
{
    return code == 5 ? "invalid usage" : "no error";
}

const struct dpe_nccl_module *dpe_rt_nccl(void)
{
    static const struct dpe_nccl_module module = {DPE_NCCL_VERSION, nccl_id,    nccl_join,
                                                  nccl_sum,         nccl_leave, nccl_text};
    return fake_fault_of("nccl") == FAKE_RIGHT ? NULL : &module;
}

dpe_status dpe_rt_blas_open(struct dpe_rt_blas **blas, struct dpe_error *err)
{
    *blas = static_cast<struct dpe_rt_blas *>(calloc(1, sizeof **blas));
    if (*blas == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "fake cuBLAS: out of memory");
    }
    (*blas)->device = current;
    return DPE_OK;
}

void dpe_rt_blas_close(struct dpe_rt_blas *blas)
{
    free(blas);
}

template <class T> static void multiply(const struct dpe_rt_product *p)
{
    const T *w = static_cast<const T *>(p->w);
    const T *x = static_cast<const T *>(p->x);
    const int64_t wrong = static_cast<int64_t>(word("wrong", 0));
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t o = 0; o < p->n; o++) {
            float sum = 0.0f;
            for (int64_t i = 0; i < p->k - wrong; i++) {
                sum += dpe_float(x[r * p->k + i]) * dpe_float(w[o * p->k + i]);
            }
            int64_t at = r * p->n + o;
            if (p->out_float) {
                float *out = static_cast<float *>(p->out) + at;
                *out = p->accumulate ? *out + sum : sum;
            } else {
                T *out = static_cast<T *>(p->out) + at;
                *out = dpe_round<T>(p->accumulate ? dpe_float(*out) + sum : sum);
            }
        }
    }
}

static int multiply_now(const void *const *arguments)
{
    const struct dpe_rt_blas *blas = *static_cast<struct dpe_rt_blas *const *>(arguments[0]);
    const struct dpe_rt_product *p = static_cast<const struct dpe_rt_product *>(arguments[1]);
    uint64_t e = p->dtype == DPE_F32 ? 4 : 2;
    uint64_t out = p->out_float ? 4 : e;
    if (blas->device != current || !inside(p->w, static_cast<uint64_t>(p->n * p->k) * e) ||
        !inside(p->x, static_cast<uint64_t>(p->rows * p->k) * e) ||
        !inside(p->out, static_cast<uint64_t>(p->rows * p->n) * out)) {
        return INVALID;
    }
    const enum fake_fault fault = fake_fault_of("product");
    int code = begin_fault(fault);
    if (code != 0) {
        return code;
    }
    unsigned char *before = fault == FAKE_WRONG ? copy_memory() : NULL;
    switch (p->dtype) {
    case DPE_F32:
        multiply<float>(p);
        break;
    case DPE_F16:
        multiply<dpe_f16>(p);
        break;
    case DPE_BF16:
        multiply<dpe_bf16>(p);
        break;
    default:
        code = INVALID;
    }
    undo_half(before);
    return code;
}

int dpe_rt_product(struct dpe_rt_blas *blas, const struct dpe_rt_product *product)
{
    const void *const arguments[] = {&blas, product};
    const uint32_t sizes[] = {sizeof blas, sizeof *product};
    struct dpe_kernel_launch launch = {};
    launch.n = 2;
    launch.arguments = arguments;
    launch.sizes = sizes;
    launch.product = multiply_now;
    return dpe_rt_launch(&launch);
}

/* Blocks of threads as fibers. */
#include "tests/emulate/emulate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
const char *(*emulate_block_left)(void);

namespace
{

enum {
    MAX_THREADS = 1024,
    BARRIERS = 16,
    STACK_BYTES = 256 << 10,
    GUARD_BYTES = 4096,
    CANARY_BYTES = 4096,
    LAST_FRAMES_BYTES = 8192,
    COLOURS = 32,
    MAX_SHARED = 227 << 10,
    ADDRESS_BASE = 1024,
};
const unsigned char CANARY = 0xa5;
const unsigned char POISON = 0xff; /* a NaN as float, bfloat16 and half */

enum state { READY, WAITING, DONE };

#if defined(__x86_64__)
using machine = void *;
#else
using machine = ucontext_t;
#endif

struct fiber {
    state now;
    machine context;
    char *stack;
    uint3 index;
    /* What a waiting fiber waits for. */
    const char *what, *file;
    int line, barrier; /* barrier −1: none */
    bool (*ready)(void *);
    void *ready_state;
    /* Its part in a collective of a warp or group. */
    uint32_t mask;
    unsigned members;       /* of a group, or lanes of its warp */
    const char *collective; /* NULL: in none */
    void *in, *out;
    void *fake_stack;
};

struct barrier {
    unsigned threads, arrived;
    int any, all, count, any_result, all_result, count_result;
};

struct block {
    unsigned threads;
    unsigned current;
    unsigned head, n_queue, queue[MAX_THREADS]; /* a ring of those that are READY */
    bool newest_first;                          /* else at random, or as they come */
    barrier barriers[BARRIERS];
};

fiber fibers[MAX_THREADS];
block now;
machine scheduler;
void *scheduler_fake_stack;
const void *scheduler_stack;
size_t scheduler_stack_bytes;
bool from_scheduler; /* the last switch; else from another fiber */
const struct dpe_kernel_launch *running;
uint64_t block_serial;
bool failed;
char story[4096];
uint64_t random_state;
unsigned char *shared_memory; /* CANARY_BYTES, MAX_SHARED, CANARY_BYTES */
size_t shared_bytes;
struct emulate_counts counts;
int (*launch_hook)(const struct dpe_kernel_launch *);

/* ------------------------------------------------------------------------------------ switching */

#if defined(__x86_64__)
extern "C" void emulate_switch(void **from, void *to);
__asm__(".text\n"
        ".globl emulate_switch\n"
        ".type emulate_switch, @function\n"
        "emulate_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\n"
        "ret\n"
        ".size emulate_switch, .-emulate_switch\n");
#endif

/* Leave `from` for the other context; with a NULL fake stack of its own the leaver never returns.
 */
void switch_contexts(machine *from, machine *to, void **own_fake_stack, const void *to_stack,
                     size_t to_bytes)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(own_fake_stack, to_stack, to_bytes);
#else
    (void)to_stack;
    (void)to_bytes;
#endif
#if defined(__x86_64__)
    emulate_switch(from, *to);
#else
    swapcontext(from, to);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(own_fake_stack == NULL ? NULL : *own_fake_stack, NULL, NULL);
#else
    (void)own_fake_stack;
#endif
}

/* From the running fiber to one that is ready, without the scheduler in between. */
void to_next(unsigned i)
{
    fiber *f = &fibers[now.current];
    fiber *next = &fibers[i];
    now.current = i;
    threadIdx = next->index;
    from_scheduler = false;
    switch_contexts(&f->context, &next->context, &f->fake_stack, next->stack + GUARD_BYTES,
                    STACK_BYTES);
}

void to_scheduler(bool for_ever)
{
    fiber *f = &fibers[now.current];
    switch_contexts(&f->context, &scheduler, for_ever ? NULL : &f->fake_stack, scheduler_stack,
                    scheduler_stack_bytes);
}

void to_fiber(unsigned i)
{
    fiber *f = &fibers[i];
    now.current = i;
    threadIdx = f->index;
    from_scheduler = true;
    switch_contexts(&scheduler, &f->context, &scheduler_fake_stack, f->stack + GUARD_BYTES,
                    STACK_BYTES);
}

void fiber_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    const void *from;
    size_t from_bytes;
    __sanitizer_finish_switch_fiber(NULL, &from, &from_bytes);
    if (from_scheduler) {
        scheduler_stack = from;
        scheduler_stack_bytes = from_bytes;
    }
#endif
    running->call(running->kernel, running->arguments);
    fibers[now.current].now = DONE;
    to_scheduler(true);
    abort();
}

bool make_stack(fiber *f)
{
    bool is_new = f->stack == NULL;
    if (is_new) {
        void *memory = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            return false;
        }
        mprotect(memory, GUARD_BYTES, PROT_NONE);
        f->stack = static_cast<char *>(memory);
    }
#if defined(__SANITIZE_ADDRESS__)
    /* A fiber that was abandoned left its frames poisoned; one that ended, those that ended it.
     * Unpoisoning whole stacks would take as long as the kernels. */
    size_t poisoned = is_new ? 0 : f->now == DONE ? LAST_FRAMES_BYTES : STACK_BYTES;
    __asan_unpoison_memory_region(f->stack + GUARD_BYTES + STACK_BYTES - poisoned, poisoned);
#endif
#if defined(__x86_64__)
    /* Stacks lie whole pages apart: without an offset their frames would share a few sets of the
     * cache. */
    size_t colour = static_cast<size_t>(f - fibers) % COLOURS * 128;
    void **top = reinterpret_cast<void **>(f->stack + GUARD_BYTES + STACK_BYTES - colour);
    *--top = NULL;
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < 6; i++) {
        *--top = NULL;
    }
    f->context = top;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack + GUARD_BYTES;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
#endif
    return true;
}

/* ----------------------------------------------------------------------------------- scheduling */

uint64_t draw(void)
{
    /* splitmix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

void make_ready(unsigned i)
{
    fibers[i].now = READY;
    fibers[i].barrier = -1;
    fibers[i].ready = NULL;
    now.queue[(now.head + now.n_queue++) % MAX_THREADS] = i;
}

/* With the newest first, a warp whose lanes have met goes on as far as it can before another one
 * does. */
unsigned take_ready(void)
{
    unsigned first = now.head;
    if (now.newest_first) {
        return now.queue[(first + --now.n_queue) % MAX_THREADS];
    }
    if (random_state != 0) {
        unsigned at = (now.head + static_cast<unsigned>(draw() % now.n_queue)) % MAX_THREADS;
        unsigned i = now.queue[at];
        now.queue[at] = now.queue[first];
        now.queue[first] = i;
    }
    now.head = (first + 1) % MAX_THREADS;
    now.n_queue--;
    return now.queue[first];
}

/* The running fiber waits; it continues when another one makes it ready. */
void pause(const char *what, const char *file, int line)
{
    fiber *f = &fibers[now.current];
    f->now = WAITING;
    f->what = what;
    f->file = file;
    f->line = line;
    counts.waits++;
    if (now.n_queue > 0 && !failed) {
        to_next(take_ready());
    } else {
        to_scheduler(false);
    }
}

void tell_waiting(void)
{
    size_t used = static_cast<size_t>(snprintf(
        story, sizeof story, "block (%u, %u, %u): all threads wait, none can go on:", blockIdx.x,
        blockIdx.y, blockIdx.z));
    bool listed[MAX_THREADS] = {};
    for (unsigned i = 0; i < now.threads && used < sizeof story; i++) {
        if (listed[i] || fibers[i].now != WAITING) {
            continue;
        }
        unsigned n = 0;
        for (unsigned k = i; k < now.threads; k++) {
            if (fibers[k].now == WAITING && fibers[k].line == fibers[i].line &&
                strcmp(fibers[k].file, fibers[i].file) == 0) {
                listed[k] = true;
                n++;
            }
        }
        used += static_cast<size_t>(snprintf(story + used, sizeof story - used,
                                             "\n  %u from thread %u on: %s at %s:%d", n, i,
                                             fibers[i].what, fibers[i].file, fibers[i].line));
    }
    unsigned done = 0;
    for (unsigned i = 0; i < now.threads; i++) {
        done += fibers[i].now == DONE;
    }
    if (used < sizeof story) {
        snprintf(story + used, sizeof story - used, "\n  %u have ended", done);
    }
}

/* Continue fibers whose condition has become true; returns whether there was one. */
bool ask_conditions(void)
{
    for (unsigned i = 0; i < now.threads; i++) {
        fiber *f = &fibers[i];
        if (f->now == WAITING && f->ready != NULL && f->ready(f->ready_state)) {
            make_ready(i);
        }
    }
    return now.n_queue > 0;
}

bool is_whole(const unsigned char *canary)
{
    return canary[0] == CANARY && memcmp(canary, canary + 1, CANARY_BYTES - 1) == 0;
}

void check_canaries(void)
{
    unsigned char *memory = shared_memory + CANARY_BYTES;
    if (is_whole(shared_memory) && is_whole(memory + shared_bytes)) {
        return;
    }
    for (size_t i = 0; i < CANARY_BYTES; i++) {
        if (shared_memory[i] != CANARY || memory[shared_bytes + i] != CANARY) {
            bool below = shared_memory[i] != CANARY;
            snprintf(story, sizeof story,
                     "block (%u, %u, %u): wrote %zu bytes %s its %zu bytes of shared memory",
                     blockIdx.x, blockIdx.y, blockIdx.z, below ? CANARY_BYTES - i : i + 1,
                     below ? "before" : "after", shared_bytes);
            failed = true;
            return;
        }
    }
}

void run_block(void)
{
    now.head = now.n_queue = 0;
    now.newest_first = random_state != 0 && draw() % 2 == 0;
    for (int i = 0; i < BARRIERS; i++) {
        now.barriers[i] = {0, 0, 0, 1, 0, 0, 0, 0};
    }
    memset(shared_memory, CANARY, CANARY_BYTES);
    memset(shared_memory + CANARY_BYTES, POISON, shared_bytes);
    memset(shared_memory + CANARY_BYTES + shared_bytes, CANARY, CANARY_BYTES);
    for (unsigned i = 0; i < now.threads; i++) {
        fiber *f = &fibers[i];
        f->index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        f->collective = NULL;
        if (!make_stack(f)) {
            snprintf(story, sizeof story, "no memory for the stacks of %u fibers", now.threads);
            failed = true;
            return;
        }
        make_ready(i);
    }
    block_serial = ++counts.blocks;
    unsigned left_over = now.threads;
    while (left_over > 0 && !failed) {
        if (now.n_queue == 0 && !ask_conditions()) {
            tell_waiting();
            failed = true;
            break;
        }
        to_fiber(take_ready());
        left_over -= fibers[now.current].now == DONE; /* the one that came back */
    }
    if (!failed) {
        check_canaries();
    }
    const char *left = failed || emulate_block_left == NULL ? NULL : emulate_block_left();
    if (left != NULL) {
        snprintf(story, sizeof story, "block (%u, %u, %u) ended with %s", blockIdx.x, blockIdx.y,
                 blockIdx.z, left);
        failed = true;
    }
}

/* Every member of a collective has arrived: `run` for all of them. A function of its own: the
 * sanitizer clears a frame at every call. */
__attribute__((noinline)) void finish_collective(unsigned first, unsigned n, uint32_t mask,
                                                 emulate_together run, void *argument)
{
    void *in[128], *out[128];
    for (unsigned i = n; i < 32; i++) {
        in[i] = out[i] = NULL;
    }
    for (unsigned i = 0; i < n; i++) {
        bool member = n == 128 || (mask >> i & 1U) != 0;
        in[i] = member ? fibers[first + i].in : NULL;
        out[i] = member ? fibers[first + i].out : NULL;
    }
    run(in, out, argument);
    for (unsigned i = 0; i < n; i++) {
        unsigned t = first + i;
        if (n == 128 || (mask >> i & 1U) != 0) {
            fibers[t].collective = NULL;
            if (t != now.current) {
                make_ready(t);
            }
        }
    }
}

void collective(unsigned first, unsigned n, uint32_t mask, const char *what, const void *in,
                void *out, emulate_together run, void *argument, const char *file, int line)
{
    fiber *self = &fibers[now.current];
    self->collective = what;
    self->mask = mask;
    self->members = n;
    self->in = const_cast<void *>(in);
    self->out = out;
    /* From the end: threads mostly arrive in order, so one that is missing is soon found. */
    for (unsigned i = n; i-- > 0;) {
        const fiber *other = &fibers[first + i];
        if (n != 128 && (mask >> i & 1U) == 0) {
            continue;
        }
        bool same = other->collective != NULL && other->mask == mask && other->members == n;
        if (same && other->collective != what && strcmp(other->collective, what) != 0) {
            emulate_fail(file, line, "thread %u is at %s while thread %u is at %s (%s:%d)",
                         now.current, what, first + i, other->collective, other->file, other->line);
        }
        if (!same) {
            pause(what, file, line);
            return;
        }
    }
    finish_collective(first, n, mask, run, argument);
}

} // namespace

/* -------------------------------------------------------------------------------------- outside */

void emulate_set_seed(uint64_t seed)
{
    random_state = seed;
}

void emulate_set_launch(int (*launch)(const struct dpe_kernel_launch *))
{
    launch_hook = launch;
}

int dpe_rt_launch(const struct dpe_kernel_launch *launch)
{
    return launch_hook != NULL ? launch_hook(launch) : emulate_run(launch);
}

const char *emulate_error(void)
{
    return story;
}

void emulate_clear_error(void)
{
    story[0] = '\0';
}

struct emulate_counts emulate_counts_read(void)
{
    return counts;
}

unsigned emulate_thread(void)
{
    return now.current;
}

unsigned emulate_block_threads(void)
{
    return now.threads;
}

uint64_t emulate_block_serial(void)
{
    return block_serial;
}

void emulate_fail(const char *file, int line, const char *format, ...)
{
    int used = snprintf(story, sizeof story, "%s:%d: block (%u, %u, %u), thread %u: ", file, line,
                        blockIdx.x, blockIdx.y, blockIdx.z, now.current);
    va_list args;
    va_start(args, format);
    vsnprintf(story + used, sizeof story - static_cast<size_t>(used), format, args);
    va_end(args);
    failed = true;
    to_scheduler(true);
    abort();
}

unsigned char *emulate_shared(void)
{
    return shared_memory + CANARY_BYTES;
}

size_t emulate_shared_bytes(void)
{
    return shared_bytes;
}

uint32_t emulate_shared_address(const void *pointer, const char *file, int line)
{
    const unsigned char *at = static_cast<const unsigned char *>(pointer);
    const unsigned char *base = emulate_shared();
    if (at < base || at > base + shared_bytes) {
        emulate_fail(file, line, "a pointer outside the block's dynamic shared memory");
    }
    return static_cast<uint32_t>(at - base) + ADDRESS_BASE;
}

void *emulate_shared_pointer(uint32_t address, size_t bytes, const char *file, int line)
{
    if (address < ADDRESS_BASE || address - ADDRESS_BASE > shared_bytes ||
        bytes > shared_bytes - (address - ADDRESS_BASE)) {
        emulate_fail(file, line,
                     "%zu bytes at shared address %u leave the block's %zu bytes from %d on", bytes,
                     address, shared_bytes, static_cast<int>(ADDRESS_BASE));
    }
    return emulate_shared() + (address - ADDRESS_BASE);
}

void emulate_wait(bool (*ready)(void *state), void *state, const char *what, const char *file,
                  int line)
{
    if (ready(state)) {
        return;
    }
    fibers[now.current].ready = ready;
    fibers[now.current].ready_state = state;
    pause(what, file, line);
}

void emulate_warp_collective(uint32_t mask, const char *what, const void *in, void *out,
                             emulate_together run, void *argument, const char *file, int line)
{
    unsigned first = emulate_warp() * 32;
    unsigned there = now.threads - first < 32 ? now.threads - first : 32;
    /* Lanes that a block of an odd size does not have take no part. */
    mask &= there == 32 ? 0xffffffffU : (1U << there) - 1U;
    if ((mask >> emulate_lane() & 1U) == 0) {
        emulate_fail(file, line, "%s with a mask of 0x%08x that leaves out the caller", what, mask);
    }
    collective(first, there, mask, what, in, out, run, argument, file, line);
}

void emulate_group_collective(const char *what, const void *in, void *out, emulate_together run,
                              void *argument, const char *file, int line)
{
    unsigned first = now.current / 128 * 128;
    if (first + 128 > now.threads) {
        emulate_fail(file, line, "%s by a group of fewer than 128 threads", what);
    }
    collective(first, 128, 0xffffffffU, what, in, out, run, argument, file, line);
}

static void vote_barrier(int id, unsigned threads, int predicate, bool wait, const char *file,
                         int line)
{
    if (id < 0 || id >= BARRIERS) {
        emulate_fail(file, line, "barrier %d: expected 0 to %d", id, BARRIERS - 1);
    }
    barrier *b = &now.barriers[id];
    if (b->arrived == 0) {
        b->threads = threads;
    }
    if (b->threads != threads || threads > now.threads || threads == 0 ||
        (id != 0 && threads % 32 != 0)) {
        emulate_fail(file, line, "barrier %d of %u threads, others came with %u; the block has %u",
                     id, threads, b->threads, now.threads);
    }
    b->any |= predicate != 0;
    b->all &= predicate != 0;
    b->count += predicate != 0;
    if (++b->arrived < threads) {
        if (wait) {
            fibers[now.current].barrier = id;
            pause(id == 0 ? "__syncthreads" : "a named barrier", file, line);
        }
        return;
    }
    *b = {0, 0, 0, 1, 0, b->any, b->all, b->count};
    for (unsigned i = 0; i < now.threads; i++) {
        if (fibers[i].now == WAITING && fibers[i].barrier == id) {
            make_ready(i);
        }
    }
}

void emulate_barrier(int id, unsigned threads, bool wait, const char *file, int line)
{
    vote_barrier(id, threads, 0, wait, file, line);
}

int __syncthreads_or(int predicate, const char *file, int line)
{
    vote_barrier(0, now.threads, predicate, true, file, line);
    return now.barriers[0].any_result;
}

int __syncthreads_and(int predicate, const char *file, int line)
{
    vote_barrier(0, now.threads, predicate, true, file, line);
    return now.barriers[0].all_result;
}

int __syncthreads_count(int predicate, const char *file, int line)
{
    vote_barrier(0, now.threads, predicate, true, file, line);
    return now.barriers[0].count_result;
}

static void do_nothing(void *const *, void *const *, void *)
{
}

void __syncwarp(uint32_t mask, const char *file, int line)
{
    emulate_warp_collective(mask, "__syncwarp", NULL, NULL, do_nothing, NULL, file, line);
}

static void ballot(void *const *in, void *const *out, void *)
{
    uint32_t votes = 0;
    for (int i = 0; i < 32; i++) {
        votes |= in[i] != NULL && *static_cast<const int *>(in[i]) != 0 ? 1U << i : 0U;
    }
    for (int i = 0; i < 32; i++) {
        if (out[i] != NULL) {
            *static_cast<uint32_t *>(out[i]) = votes;
        }
    }
}

uint32_t __ballot_sync(uint32_t mask, int predicate, const char *file, int line)
{
    uint32_t votes = 0;
    emulate_warp_collective(mask, "a vote", &predicate, &votes, ballot, NULL, file, line);
    return votes;
}

struct shuffle_part {
    uint64_t value;
    int source;
};

static void shuffle(void *const *in, void *const *out, void *)
{
    for (int i = 0; i < 32; i++) {
        if (in[i] == NULL) {
            continue;
        }
        int source = static_cast<const shuffle_part *>(in[i])->source;
        const void *from = in[source];
        /* Reading a lane that takes no part is undefined on the device: a poison here. */
        *static_cast<uint64_t *>(out[i]) = from == NULL
                                               ? ~static_cast<uint64_t>(0)
                                               : static_cast<const shuffle_part *>(from)->value;
    }
}

uint64_t emulate_shuffle(enum emulate_shuffle kind, uint32_t mask, uint64_t value, int by,
                         int width, const char *file, int line)
{
    int lane = static_cast<int>(emulate_lane());
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
        emulate_fail(file, line, "a shuffle of width %d", width);
    }
    int first = lane / width * width;
    int source = lane;
    switch (kind) {
    case EMULATE_SHUFFLE_INDEX:
        source = first + (by & (width - 1));
        break;
    case EMULATE_SHUFFLE_UP:
        source = lane - by < first ? lane : lane - by;
        break;
    case EMULATE_SHUFFLE_DOWN:
        source = lane + by >= first + width ? lane : lane + by;
        break;
    case EMULATE_SHUFFLE_XOR:
        source = (lane ^ by) >= first + width ? lane : lane ^ by;
        break;
    }
    const shuffle_part part = {value, source & 31};
    uint64_t got = value;
    emulate_warp_collective(mask, "a shuffle", &part, &got, shuffle, NULL, file, line);
    return got;
}

int emulate_run(const struct dpe_kernel_launch *launch)
{
    enum { INVALID_CONFIGURATION = 9, LAUNCH_FAILURE = 719 };
    const dim3 block(launch->block[0], launch->block[1], launch->block[2]);
    const dim3 grid(launch->grid[0], launch->grid[1], launch->grid[2]);
    uint64_t threads = static_cast<uint64_t>(block.x) * block.y * block.z;
    if (threads == 0 || threads > MAX_THREADS || block.z > 64 || grid.x == 0 ||
        grid.x > 0x7fffffffU || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535 ||
        launch->shared > MAX_SHARED) {
        snprintf(story, sizeof story,
                 "launch of a grid (%u, %u, %u) of blocks (%u, %u, %u) with %zu bytes of shared "
                 "memory: beyond the limits of a device",
                 grid.x, grid.y, grid.z, block.x, block.y, block.z,
                 static_cast<size_t>(launch->shared));
        return INVALID_CONFIGURATION;
    }
    if (shared_memory == NULL) {
        shared_memory = static_cast<unsigned char *>(
            aligned_alloc(4096, 2 * CANARY_BYTES + (MAX_SHARED + 4095) / 4096 * 4096));
        if (shared_memory == NULL) {
            return LAUNCH_FAILURE;
        }
    }
    counts.launches++;
    failed = false;
    running = launch;
    shared_bytes = launch->shared;
    now.threads = static_cast<unsigned>(threads);
    blockDim = block;
    gridDim = grid;
    for (unsigned z = 0; z < grid.z && !failed; z++) {
        for (unsigned y = 0; y < grid.y && !failed; y++) {
            for (unsigned x = 0; x < grid.x && !failed; x++) {
                blockIdx = {x, y, z};
                run_block();
            }
        }
    }
    return failed ? LAUNCH_FAILURE : 0;
}

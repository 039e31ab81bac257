/* Barriers in shared memory, tensor copies and warpgroup products, as late as the device may be. */
#include "engine/cuda/ptx/device.cuh"

#include <stdlib.h>
#include <vector>

int emulate_multiprocessors = 2;

namespace
{

const uint64_t MAP_MAGIC = 0x6470655f746d6170U;
enum { GROUPS = 8, GROUP = 128 };

/* ------------------------------------------------------------------------------------- barriers */

/* What the 8 bytes hold. `mark` distinguishes memory that no init has written. */
struct mbarrier {
    uint32_t mark : 8;
    uint32_t phase : 1;
    uint32_t expected : 11;
    uint32_t pending : 12;
    int32_t bytes; /* that copies have yet to bring */
};
static_assert(sizeof(mbarrier) == 8, "a barrier is 8 bytes");
const uint32_t MARK = 0x5a;

mbarrier *barrier_at(uint32_t address, const char *file, int line)
{
    void *memory = emulate_shared_pointer(address, sizeof(mbarrier), file, line);
    if (address % 8 != 0) {
        emulate_fail(file, line, "a barrier at address %u, no multiple of 8", address);
    }
    mbarrier *barrier = static_cast<mbarrier *>(memory);
    if (barrier->mark != MARK) {
        emulate_fail(file, line, "a barrier at address %u that was not initialised", address);
    }
    return barrier;
}

void settle(mbarrier *barrier)
{
    if (barrier->pending == 0 && barrier->bytes == 0) {
        barrier->phase ^= 1U;
        barrier->pending = barrier->expected;
    }
}

/* --------------------------------------------------------------------------------- tensor copies
 */

struct copy {
    uint32_t to, bytes, barrier;
    CUtensorMap map;
    int at[4];
    const char *file;
    int line;
};

/* A product in flight: what 128 threads gave, until all of them have waited for it. */
struct product {
    emulate_wgmma part[GROUP];
    uint32_t a_first, a_end, b_first, b_end; /* shared addresses, 0, 0 for none */
    unsigned batch;                          /* number of its commit group */
    bool done;
};

/* Accumulators in flight: their values while the threads' own are poisoned. */
struct accumulators {
    float *d[GROUP];
    int n;
    unsigned batch; /* the last that adds to them */
    std::vector<float> value;
    bool back[GROUP]; /* given back to this thread */
};

struct group {
    std::vector<product> products;
    std::vector<accumulators> held;
    unsigned committed;     /* groups of products closed so far */
    unsigned waited[GROUP]; /* groups that each thread has waited for */
    bool fenced[GROUP];
    unsigned commits[GROUP];
    std::vector<int>
        places; /* where the group's instructions that are ".aligned" stand, in order */
    unsigned aligned[GROUP]; /* how many of them each thread has come to */
    int registers;           /* per thread; 0: as launched */
};

uint64_t serial;
std::vector<copy> copies;
group groups[GROUPS];
uint64_t draws;

const char *left_behind(void)
{
    if (serial != emulate_block_serial()) {
        return NULL;
    }
    for (const group &g : groups) {
        if (!g.products.empty()) {
            return "products that some thread has not waited for";
        }
    }
    return copies.empty() ? NULL : "tensor copies under way";
}

void new_block(void)
{
    emulate_block_left = left_behind;
    if (serial == emulate_block_serial()) {
        return;
    }
    serial = emulate_block_serial();
    copies.clear();
    for (int g = 0; g < GROUPS; g++) {
        groups[g] = group();
    }
}

uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 7 & 7U) << 4;
}

void finish_copy(size_t i)
{
    const copy c = copies[i];
    copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
    uint32_t offset = 0;
    for (uint32_t i3 = 0; i3 < c.map.box[3]; i3++) {
        for (uint32_t i2 = 0; i2 < c.map.box[2]; i2++) {
            for (uint32_t i1 = 0; i1 < c.map.box[1]; i1++) {
                for (uint32_t i0 = 0; i0 < c.map.box[0]; i0++, offset += 2) {
                    const uint32_t step[4] = {i0, i1, i2, i3};
                    const uint64_t stride[4] = {2, c.map.strides[0], c.map.strides[1],
                                                c.map.strides[2]};
                    const unsigned char *from = c.map.base;
                    bool inside = true;
                    for (int k = 0; k < 4; k++) {
                        int64_t x = static_cast<int64_t>(c.at[k]) + step[k];
                        inside = inside && x >= 0 && x < c.map.dims[k];
                        from += inside ? static_cast<uint64_t>(x) * stride[k] : 0;
                    }
                    uint16_t value = 0;
                    if (inside) {
                        memcpy(&value, from, sizeof value);
                    }
                    memcpy(emulate_shared_pointer(swizzled(c.to + offset), 2, c.file, c.line),
                           &value, sizeof value);
                }
            }
        }
    }
    mbarrier *barrier = barrier_at(c.barrier, c.file, c.line);
    barrier->bytes -= static_cast<int32_t>(c.bytes);
    settle(barrier);
}

struct parity_wait {
    uint32_t barrier, parity;
    const char *file;
    int line;
};

/* Copies arrive while a thread waits, in any order. */
bool phase_complete(void *state)
{
    const parity_wait *wait = static_cast<const parity_wait *>(state);
    while (true) {
        if (barrier_at(wait->barrier, wait->file, wait->line)->phase != (wait->parity & 1U)) {
            return true;
        }
        if (copies.empty()) {
            return false;
        }
        draws = draws * 6364136223846793005U + 1442695040888963407U;
        finish_copy(static_cast<size_t>(draws >> 33) % copies.size());
    }
}

bool overlap(uint32_t first, uint32_t end, uint32_t other, uint32_t other_end)
{
    return first < other_end && other < end;
}

/* -------------------------------------------------------------------------------------- products
 */

/* Address of an element of an operand: `major` along the rows of 128 swizzled bytes, `minor` across
 * them, as the descriptor lays them out. */
uint32_t element(uint64_t descriptor, bool contiguous_is_k, int mn, int k)
{
    uint32_t start = static_cast<uint32_t>(descriptor & 0x3fffU) << 4;
    uint32_t leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fffU) << 4;
    uint32_t stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fffU) << 4;
    uint32_t u = static_cast<uint32_t>(mn);
    uint32_t v = static_cast<uint32_t>(k);
    uint32_t at = contiguous_is_k
                      ? start + u / 8 * stride + u % 8 * 128 + v * 2
                      : start + u / 64 * leading + u % 64 * 2 + v / 8 * stride + v % 8 * 128;
    return swizzled(at);
}

float number(bool bf16, uint32_t bits)
{
    uint16_t half = static_cast<uint16_t>(bits);
    return bf16 ? __uint_as_float(bits << 16) : dpe_half_float(half);
}

float read(bool bf16, uint32_t address)
{
    uint16_t bits;
    memcpy(&bits, emulate_shared_pointer(address, 2, __FILE__, __LINE__), sizeof bits);
    return number(bf16, bits);
}

void load_a(const product &p, float (&a)[64][16])
{
    const emulate_wgmma &first = p.part[0];
    for (int row = 0; row < 64; row++) {
        for (int k = 0; k < 16; k++) {
            if (first.a_registers == NULL) {
                a[row][k] = read(first.bf16, element(first.a, true, row, k));
                continue;
            }
            int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
            uint32_t word = p.part[thread].a_registers[row % 16 / 8 + k / 8 * 2];
            a[row][k] = number(first.bf16, k % 2 == 0 ? word & 0xffffU : word >> 16);
        }
    }
}

accumulators *find_held(group *g, const float *d)
{
    for (accumulators &a : g->held) {
        if (a.d[0] == d) {
            return &a;
        }
    }
    return NULL;
}

/* A row of the product: `n` columns, a multiple of 8, each summed over k in order. The arrays are
 * as large as any product; under the sanitizers every access would be checked, and none would be
 * vectorised. */
__attribute__((no_sanitize("address", "undefined"))) void
multiply_row(const float *a, const float (*b)[256], int n, float *sum)
{
    for (int first = 0; first < n; first += 8) {
        float part[8] = {0};
        for (int k = 0; k < 16; k++) {
            for (int i = 0; i < 8; i++) {
                part[i] += a[k] * b[k][first + i];
            }
        }
        memcpy(&sum[first], part, sizeof part);
    }
}

void multiply(group *g, product &p)
{
    const emulate_wgmma &first = p.part[0];
    accumulators *to = find_held(g, first.d);
    static float a[64][16];
    static float b[16][256];
    load_a(p, a);
    for (int k = 0; k < 16; k++) {
        for (int n = 0; n < first.n; n++) {
            b[k][n] = read(first.bf16, element(first.b, !first.b_n_major, n, k));
        }
    }
    for (int row = 0; row < 64; row++) {
        float sum[256];
        multiply_row(a[row], b, first.n, sum);
        for (int n = 0; n < first.n; n++) {
            int thread = row / 16 * 32 + row % 8 * 4 + n % 8 / 2;
            int i = n / 8 * 4 + row % 16 / 8 * 2 + n % 2;
            float *value = &to->value[static_cast<size_t>(thread * to->n + i)];
            *value = sum[n] + (first.accumulate ? *value : 0.0f);
        }
    }
    p.done = true;
}

/* Lowest and highest address that an operand in shared memory covers. */
void reach(uint64_t descriptor, bool contiguous_is_k, int mn, uint32_t *first, uint32_t *end)
{
    *first = UINT32_MAX;
    *end = 0;
    for (int i = 0; i < mn; i++) {
        for (int k = 0; k < 16; k++) {
            uint32_t at = element(descriptor, contiguous_is_k, i, k);
            *first = at < *first ? at : *first;
            *end = at + 2 > *end ? at + 2 : *end;
        }
    }
}

void hold(group *g, const product &p)
{
    const emulate_wgmma &first = p.part[0];
    accumulators *held = find_held(g, first.d);
    if (held == NULL) {
        g->held.emplace_back();
        held = &g->held.back();
        held->n = first.n / 2;
        held->value.resize(static_cast<size_t>(GROUP * held->n));
        for (int t = 0; t < GROUP; t++) {
            held->d[t] = p.part[t].d;
            held->back[t] = false;
            for (int i = 0; i < held->n; i++) {
                held->value[static_cast<size_t>(t * held->n + i)] = p.part[t].d[i];
                p.part[t].d[i] = NAN;
            }
        }
    }
    held->batch = p.batch;
}

struct issue_call {
    group *g;
    const char *file;
    int line;
};

void issue(void *const *in, void *const *, void *argument)
{
    const issue_call *call = static_cast<const issue_call *>(argument);
    group *g = call->g;
    product p = {};
    for (int t = 0; t < GROUP; t++) {
        p.part[t] = *static_cast<const emulate_wgmma *>(in[t]);
        const emulate_wgmma &own = p.part[t];
        const emulate_wgmma &first = p.part[0];
        if (own.a != first.a || own.b != first.b || own.n != first.n ||
            own.accumulate != first.accumulate || own.b_n_major != first.b_n_major) {
            emulate_fail(call->file, call->line, "threads of a warpgroup issue different products");
        }
        if (g->commits[t] != g->committed) {
            emulate_fail(call->file, call->line, "thread %d has committed %u groups, others %u", t,
                         g->commits[t], g->committed);
        }
        if (!g->fenced[t]) {
            emulate_fail(call->file, call->line,
                         "a product without a fence since thread %d's registers were free", t);
        }
    }
    const emulate_wgmma &first = p.part[0];
    const uint64_t operands[2] = {first.b, first.a};
    for (int i = 0; i < (first.a_registers == NULL ? 2 : 1); i++) {
        if (operands[i] >> 62 != 1 || (operands[i] >> 49 & 7U) != 0) {
            emulate_fail(call->file, call->line,
                         "a descriptor of swizzle mode %d and base offset %d: 1 and 0 are known",
                         static_cast<int>(operands[i] >> 62),
                         static_cast<int>(operands[i] >> 49 & 7U));
        }
    }
    reach(first.b, !first.b_n_major, first.n, &p.b_first, &p.b_end);
    if (first.a_registers == NULL) {
        reach(first.a, true, 64, &p.a_first, &p.a_end);
    }
    for (const copy &c : copies) {
        if (overlap(p.b_first, p.b_end, c.to, c.to + c.bytes) ||
            overlap(p.a_first, p.a_end, c.to, c.to + c.bytes)) {
            emulate_fail(call->file, call->line,
                         "a product reads where the copy of %s:%d is still due", c.file, c.line);
        }
    }
    p.batch = g->committed;
    hold(g, p);
    g->products.push_back(p);
}

/* Forget what every thread has waited for. */
void retire(group *g)
{
    unsigned all = UINT32_MAX;
    for (int t = 0; t < GROUP; t++) {
        all = g->waited[t] < all ? g->waited[t] : all;
    }
    size_t n = 0;
    while (n < g->products.size() && g->products[n].batch < all) {
        n++;
    }
    g->products.erase(g->products.begin(), g->products.begin() + static_cast<std::ptrdiff_t>(n));
    for (size_t i = 0; i < g->held.size();) {
        bool back = true;
        for (int t = 0; t < GROUP; t++) {
            back = back && g->held[i].back[t];
        }
        if (back) {
            g->held.erase(g->held.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            i++;
        }
    }
}

void do_nothing(void *const *, void *const *, void *)
{
}

group *own_group(void)
{
    new_block();
    return &groups[emulate_thread() / GROUP];
}

/* All threads of a warpgroup have to come to the same fences, commits and waits. */
group *own_group_aligned(int place, const char *file, int line)
{
    group *g = own_group();
    unsigned n = g->aligned[emulate_thread() % GROUP]++;
    if (n == g->places.size()) {
        g->places.push_back(place);
    }
    if (g->places[n] != place) {
        emulate_fail(file, line, "threads of a warpgroup come to different fences or waits");
    }
    return g;
}

} // namespace

/* ------------------------------------------------------------------------------------- interface
 */

void emulate_mbarrier_init(uint32_t address, uint32_t arrivals, const char *file, int line)
{
    void *memory = emulate_shared_pointer(address, sizeof(mbarrier), file, line);
    if (arrivals == 0 || arrivals > 2047 || address % 8 != 0) {
        emulate_fail(file, line, "a barrier of %u arrivals at address %u", arrivals, address);
    }
    mbarrier barrier = {};
    barrier.mark = MARK;
    barrier.expected = arrivals & 2047U;
    barrier.pending = arrivals & 2047U;
    memcpy(memory, &barrier, sizeof barrier);
}

void emulate_mbarrier_arrive(uint32_t address, uint32_t bytes, const char *file, int line)
{
    mbarrier *barrier = barrier_at(address, file, line);
    if (barrier->pending == 0) {
        emulate_fail(file, line, "an arrival more than the %u that the barrier expects",
                     barrier->expected);
    }
    const int32_t most = (1 << 20) - 1;
    if (bytes > static_cast<uint32_t>(most) ||
        barrier->bytes > most - static_cast<int32_t>(bytes)) {
        emulate_fail(file, line, "%u bytes more than the %d expected: a barrier counts to %d",
                     bytes, barrier->bytes, most);
    }
    barrier->bytes += static_cast<int32_t>(bytes);
    barrier->pending--;
    settle(barrier);
}

void emulate_mbarrier_wait(uint32_t address, uint32_t parity, const char *file, int line)
{
    new_block();
    parity_wait wait = {address, parity, file, line};
    emulate_wait(phase_complete, &wait, "a barrier in shared memory", file, line);
}

bool emulate_mbarrier_test(uint32_t address, uint32_t parity, const char *file, int line)
{
    return barrier_at(address, file, line)->phase != (parity & 1U);
}

void emulate_tensor_load(uint32_t to, const CUtensorMap *map, const int at[4], uint32_t barrier,
                         const char *file, int line)
{
    new_block();
    if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || map->magic != MAP_MAGIC) {
        emulate_fail(file, line, "a copy by something that is not a tensor map");
    }
    copy c = {to, 2, barrier, *map, {at[0], at[1], at[2], at[3]}, file, line};
    for (int k = 0; k < 4; k++) {
        c.bytes *= map->box[k];
    }
    if (to % 1024 != 0) {
        emulate_fail(file, line, "a swizzled copy to address %u, no multiple of 1024", to);
    }
    void *memory = emulate_shared_pointer(to, c.bytes, file, line);
    for (const copy &other : copies) {
        if (overlap(to, to + c.bytes, other.to, other.to + other.bytes)) {
            emulate_fail(file, line, "a copy to where the copy of %s:%d is still due", other.file,
                         other.line);
        }
    }
    for (group &g : groups) {
        for (const product &p : g.products) {
            if (overlap(to, to + c.bytes, p.b_first, p.b_end) ||
                overlap(to, to + c.bytes, p.a_first, p.a_end)) {
                emulate_fail(file, line, "a copy to where a product is still reading");
            }
        }
    }
    barrier_at(barrier, file, line);
    memset(memory, 0xff, c.bytes);
    copies.push_back(c);
}

int dpe_tensor_map_4d(CUtensorMap *map, bool, const void *base, const uint64_t dims[4],
                      const uint64_t strides[3], const uint32_t box[4])
{
    *map = CUtensorMap();
    map->magic = MAP_MAGIC;
    map->base = static_cast<const unsigned char *>(base);
    bool fits = reinterpret_cast<uintptr_t>(base) % 16 == 0 && box[0] * 2 <= 128 &&
                box[0] * 2 % 16 == 0 && reinterpret_cast<uintptr_t>(map) % 64 == 0;
    for (int k = 0; k < 4; k++) {
        fits = fits && dims[k] >= 1 && dims[k] <= UINT32_MAX && box[k] >= 1 && box[k] <= 256;
        map->dims[k] = static_cast<uint32_t>(dims[k]);
        map->box[k] = box[k];
    }
    for (int k = 0; k < 3; k++) {
        fits = fits && strides[k] % 16 == 0 && strides[k] < UINT64_C(1) << 40;
        map->strides[k] = strides[k];
    }
    return fits ? 0 : 1;
}

struct register_wait {
    unsigned group;
    int count;
};

/* Registers per thread that a block is launched with: all 65,536 over its threads, in eights. */
static int launched_registers(void)
{
    int each = static_cast<int>(65536 / emulate_block_threads() / 8 * 8);
    return each < 256 ? each : 256;
}

static bool registers_fit(void *state)
{
    const register_wait *wait = static_cast<const register_wait *>(state);
    int launched = launched_registers();
    int total = 0;
    for (unsigned g = 0; g < emulate_block_threads() / GROUP; g++) {
        int own = groups[g].registers == 0 ? launched : groups[g].registers;
        total += g == wait->group ? wait->count : own;
    }
    return total <= launched * static_cast<int>(emulate_block_threads() / GROUP);
}

void emulate_registers(int count, bool take, const char *file, int line)
{
    group *g = own_group();
    int launched = launched_registers();
    int own = g->registers == 0 ? launched : g->registers;
    if (count % 8 != 0 || count < 24 || count > 256 || (take ? count < own : count > own)) {
        emulate_fail(file, line,
                     "setmaxnreg from %d to %d: expected a multiple of 8, 24 to 256, %s", own,
                     count, take ? "not fewer" : "not more");
    }
    register_wait wait = {emulate_thread() / GROUP, count};
    emulate_wait(registers_fit, &wait, "registers", file, line);
    emulate_group_collective("setmaxnreg", NULL, NULL, do_nothing, NULL, file, line);
    g->registers = count;
}

void emulate_wgmma_issue(const emulate_wgmma *one, const char *file, int line)
{
    issue_call call = {own_group(), file, line};
    emulate_group_collective("wgmma", one, NULL, issue, &call, file, line);
}

void emulate_wgmma_fence(const char *file, int line)
{
    own_group_aligned(line, file, line)->fenced[emulate_thread() % GROUP] = true;
}

void emulate_wgmma_commit(const char *file, int line)
{
    group *g = own_group_aligned(line, file, line);
    unsigned t = emulate_thread() % GROUP;
    /* The issue before was collective: whoever commits first closes the group for all. */
    g->commits[t]++;
    g->committed = g->commits[t] > g->committed ? g->commits[t] : g->committed;
}

void emulate_wgmma_wait(int pending, int where, const char *file, int line)
{
    group *g = own_group_aligned(line * 1000 + pending * 100 + where, file, line);
    unsigned t = emulate_thread() % GROUP;
    unsigned until = g->commits[t] > static_cast<unsigned>(pending)
                         ? g->commits[t] - static_cast<unsigned>(pending)
                         : 0;
    for (product &p : g->products) {
        if (p.batch < until && !p.done) {
            multiply(g, p);
        }
    }
    for (accumulators &a : g->held) {
        if (a.batch < until && !a.back[t]) {
            memcpy(a.d[t], &a.value[t * static_cast<size_t>(a.n)],
                   static_cast<size_t>(a.n) * sizeof(float));
            a.back[t] = true;
        }
    }
    g->waited[t] = until > g->waited[t] ? until : g->waited[t];
    g->fenced[t] = false;
    retire(g);
}

/* Attention alone on the card: every kernel and variant that it has, over inputs made on the
 * device.
 *
 *     bench_attention_cuda [kernel [head_dim [length …]]]  (default all, 128, 8192 16384 32768
 * 131072)
 *
 * kernel: mma, wgmma (the variant that is used), variants (the others) or all. First every kernel
 * against the plain one at odd lengths, every method; then, per length, variant and method, the
 * median of a few runs: milliseconds, TFLOP/s (4 · head_dim · heads · visible pairs) and the time
 * over that of rope. A kernel with a difference above 0.02 is not timed, and the program ends
 * with 1. Shape: 32 query heads, 8 KV heads, bfloat16.
 */
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "ops.h"
}

#include "attention_plain.h"
#include "attention_wgmma.h"

namespace
{

enum { HEADS = 32, KV_HEADS = 8, RUNS = 15 };

const char *const METHODS[] = {"rope", "dpe:window=1024,scales=2/8/2/8/32/32/16/4",
                               "dca:chunk=6144,local=1024", "self-extend:window=1024,group=32"};

void check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "bench_attention_cuda: %s: %s\n", what,
                cudaGetErrorString(static_cast<cudaError_t>(code)));
        exit(70);
    }
}

/* About normal, deviation 1, as bfloat16. */
__global__ void fill(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        uint64_t z =
            (static_cast<uint64_t>(seed) << 40 | static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15U;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
        z = (z ^ z >> 27) * 0x94d049bb133111ebU;
        z ^= z >> 31;
        float sum = 0.0f;
        for (int k = 0; k < 4; k++) {
            sum += static_cast<float>(z >> 16 * k & 0xffffU) * (1.0f / 65536.0f) - 0.5f;
        }
        x[i] = static_cast<uint16_t>(__float_as_uint(sum * 1.732f) >> 16);
    }
}

struct kernel {
    std::string name;
    struct dpe_tile_shape shape;
    int wgmma; /* its variant, −1: mma.sync, −2: plain */
};

struct memory {
    uint16_t *q[DPE_MAX_BANDS], *k[DPE_MAX_BANDS], *v, *out;
    float *lse;
    int32_t *counters;
    int64_t elements; /* of out */
};

uint16_t *make(int64_t n, uint32_t seed)
{
    void *at = NULL;
    check(cudaMalloc(&at, static_cast<size_t>(n) * 2), "memory");
    fill<<<1024, 256>>>(static_cast<uint16_t *>(at), n, seed);
    check(cudaGetLastError(), "random numbers");
    return static_cast<uint16_t *>(at);
}

struct memory make_memory(int64_t rows, int64_t d)
{
    struct memory m = {};
    for (int c = 0; c < DPE_MAX_BANDS; c++) {
        m.q[c] = make(HEADS * rows * d, 1 + static_cast<uint32_t>(c));
        m.k[c] = make(HEADS * rows * d, 11 + static_cast<uint32_t>(c));
    }
    m.elements = HEADS * rows * d;
    m.v = make(KV_HEADS * rows * d, 21);
    m.out = make(m.elements, 22);
    void *at = NULL;
    check(cudaMalloc(&at, static_cast<size_t>(rows) * HEADS * sizeof(float)), "memory");
    m.lse = static_cast<float *>(at);
    check(cudaMalloc(&at, 8), "memory");
    check(cudaMemset(at, 0, 8), "memory");
    m.counters = static_cast<int32_t *>(at);
    return m;
}

void free_memory(struct memory *m)
{
    for (int c = 0; c < DPE_MAX_BANDS; c++) {
        cudaFree(m->q[c]);
        cudaFree(m->k[c]);
    }
    cudaFree(m->v);
    cudaFree(m->out);
    cudaFree(m->lse);
    cudaFree(m->counters);
}

std::vector<struct kernel> kernels(const std::string &wanted, int64_t d)
{
    std::vector<struct kernel> found;
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "no device");
    bool all = wanted == "all";
    for (int v = 0; device.major == 9 && dpe_attention_wgmma_variant(d, v) != NULL; v++) {
        if (all || wanted == (v == 0 ? "wgmma" : "variants")) {
            found.push_back(
                {dpe_attention_wgmma_variant(d, v), dpe_attention_wgmma_shape(d, v), v});
        }
    }
    if (dpe_attention_mma_shape(d).rows > 0 && (all || wanted == "mma")) {
        found.push_back({"mma.sync", dpe_attention_mma_shape(d), -1});
    }
    return found;
}

/* A call over `rows` queries from position 0, its walk on the device. */
struct prepared {
    struct dpe_flash call;
    void *walk;
    double pairs; /* that a query and a key make, per head */
};

void make_plan(const char *method, int64_t rows, int64_t d, struct dpe_plan *plan)
{
    struct dpe_error err = {};
    struct dpe_config config = {};
    snprintf(config.model_type, sizeof config.model_type, "llama");
    config.n_layers = 1;
    config.n_heads = HEADS;
    config.n_kv_heads = KV_HEADS;
    config.head_dim = d;
    config.max_position = 8192;
    config.rope.type = DPE_ROPE_DEFAULT;
    config.rope.theta = 500000.0;
    const struct dpe_plan_context context = {&config, 8192, std::max<int64_t>(rows, 8192), true,
                                             DPE_ANGLE_F32};
    if (dpe_plan_make(method, &context, plan, &err) != DPE_OK) {
        fprintf(stderr, "bench_attention_cuda: %s: %s\n", method, err.text);
        exit(64);
    }
    /* A mask that differs between heads: far keys then lie there per query head. */
    if (strncmp(method, "dpe", 3) != 0) {
        return;
    }
    size_t n = static_cast<size_t>(HEADS * plan->n_pairs);
    free(plan->mask);
    plan->mask = static_cast<uint8_t *>(malloc(n));
    if (plan->mask == NULL) {
        exit(71);
    }
    for (size_t i = 0; i < n; i++) {
        plan->mask[i] = (i * 0x9e3779b97f4a7c15U >> 62) != 0;
    }
    for (int b = 1; b < plan->n_bands; b++) {
        plan->bands[b].per_head = true;
    }
}

double count_pairs(const struct dpe_plan *plan, int64_t rows)
{
    double pairs = 0.0;
    const int64_t sample = std::max<int64_t>(rows / 16, 1);
    bool all = plan->bands[0].lo == 0 && plan->bands[plan->n_bands - 1].hi == INT64_MAX;
    if (all) {
        return 0.5 * static_cast<double>(rows) * static_cast<double>(rows + 1);
    }
    for (int64_t m = sample / 2; m < rows; m += sample) {
        for (int64_t n = 0; n <= m; n++) {
            pairs += dpe_plan_band(plan, m, n) >= 0 ? static_cast<double>(sample) : 0.0;
        }
    }
    return pairs;
}

struct prepared prepare(const struct memory *m, const char *method, struct dpe_tile_shape shape,
                        int64_t rows, int64_t d)
{
    struct dpe_plan plan = {};
    struct dpe_rotation rotation = {};
    struct dpe_walk walk = {};
    struct dpe_error err = {};
    struct prepared p = {};
    make_plan(method, rows, d, &plan);
    check(dpe_rotation_make(&plan, 64, 1, &rotation, &err), err.text);
    struct dpe_turned_copies q = dpe_turned_find(&plan, &rotation, false);
    struct dpe_turned_copies k = dpe_turned_find(&plan, &rotation, true);
    check(dpe_walk_make(&plan, &q, &k, shape, 0, rows, &walk, &err), err.text);
    size_t blocks = static_cast<size_t>(walk.n_blocks) * sizeof *walk.blocks;
    size_t segments = static_cast<size_t>(walk.n_segments) * sizeof *walk.segments;
    check(cudaMalloc(&p.walk, blocks + segments), "memory");
    char *at = static_cast<char *>(p.walk);
    check(cudaMemcpy(at, walk.segments, segments, cudaMemcpyHostToDevice), "copy");
    check(cudaMemcpy(at + segments, walk.blocks, blocks, cudaMemcpyHostToDevice), "copy");
    p.call.dtype = DPE_BF16;
    p.call.n_heads = HEADS;
    p.call.n_kv_heads = KV_HEADS;
    p.call.head_dim = d;
    p.call.rows = rows;
    p.call.q_head_stride = p.call.v_head_stride = rows * d;
    for (int c = 0; c < q.n; c++) {
        p.call.q[c] = m->q[c];
    }
    for (int c = 0; c < k.n; c++) {
        p.call.k[c] = m->k[c];
        p.call.k_head_stride[c] = rows * d;
        p.call.k_per_head[c] = k.copies[c].per_head;
    }
    p.call.v = m->v;
    p.call.out = m->out;
    p.call.lse = m->lse;
    p.call.segments = reinterpret_cast<struct dpe_segment *>(at);
    p.call.blocks = reinterpret_cast<struct dpe_query_block *>(at + segments);
    p.call.n_blocks = walk.n_blocks;
    p.call.scale = static_cast<float>(dpe_plan_query_scale(&plan, 0));
    p.call.log_n_length = static_cast<float>(plan.log_n_length);
    p.pairs = count_pairs(&plan, rows);
    dpe_walk_free(&walk);
    dpe_rotation_free(&rotation);
    dpe_plan_free(&plan);
    return p;
}

int launch(const struct kernel &k, const struct prepared &p, const struct memory *m)
{
    if (k.wgmma >= 0) {
        return dpe_attention_wgmma(&p.call, k.wgmma, m->counters, NULL);
    }
    return k.wgmma == -1 ? dpe_attention_mma(&p.call, NULL) : dpe_attention_plain(&p.call, NULL);
}

std::vector<float> run_once(const struct kernel &k, const char *method, const struct memory *m,
                            int64_t rows, int64_t d)
{
    struct prepared p = prepare(m, method, k.shape, rows, d);
    check(cudaMemset(m->out, 0xff, static_cast<size_t>(m->elements) * 2), "poison");
    check(launch(k, p, m), k.name.c_str());
    check(cudaDeviceSynchronize(), k.name.c_str());
    std::vector<uint16_t> bits(static_cast<size_t>(rows * HEADS * d));
    check(cudaMemcpy(bits.data(), m->out, bits.size() * 2, cudaMemcpyDeviceToHost), "copy");
    check(cudaFree(p.walk), "memory");
    std::vector<float> values(bits.size());
    for (size_t i = 0; i < bits.size(); i++) {
        uint32_t word = static_cast<uint32_t>(bits[i]) << 16;
        memcpy(&values[i], &word, sizeof word);
    }
    return values;
}

/* Whether every output is near the plain kernel's: the worst difference over the value's own size
 * plus the spread of its row. (Of the first rows, which see few keys, values and so the rounding of
 * weights are ten times those of all.) NaN is as far as can be. */
bool agree(const struct kernel &k, const char *method, int64_t rows, int64_t d)
{
    struct memory m = make_memory(rows, d);
    const struct kernel plain = {"plain", dpe_attention_plain_shape(d), -2};
    /* Before it runs: what is said last is what hung. */
    printf("%-32s %-46s %6lld rows: ", k.name.c_str(), method, static_cast<long long>(rows));
    fflush(stdout);
    std::vector<float> want = run_once(plain, method, &m, rows, d);
    std::vector<float> got = run_once(k, method, &m, rows, d);
    double worst = 0.0;
    const size_t width = static_cast<size_t>(d);
    for (size_t row = 0; row < want.size(); row += width) {
        double square = 0.0;
        for (size_t i = row; i < row + width; i++) {
            square += static_cast<double>(want[i]) * static_cast<double>(want[i]);
        }
        double spread = std::sqrt(square / static_cast<double>(width));
        for (size_t i = row; i < row + width; i++) {
            double size = std::fabs(static_cast<double>(want[i])) + spread;
            double apart = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
            apart = apart == 0.0 ? 0.0 : apart / size;
            worst = apart <= worst ? worst : std::isnan(apart) ? INFINITY : apart;
        }
    }
    printf("worst difference %.4f\n", worst);
    fflush(stdout);
    free_memory(&m);
    return worst <= 0.02;
}

double time_one(const struct kernel &k, const struct prepared &p, const struct memory *m)
{
    cudaEvent_t from;
    cudaEvent_t to;
    std::vector<float> ms;
    check(cudaEventCreate(&from), "event");
    check(cudaEventCreate(&to), "event");
    int runs = RUNS; /* fewer of long ones */
    for (int i = 0; i < runs + 3; i++) {
        float one = 0.0f;
        check(cudaEventRecord(from), "event");
        check(launch(k, p, m), k.name.c_str());
        check(cudaEventRecord(to), "event");
        check(cudaEventSynchronize(to), k.name.c_str());
        check(cudaEventElapsedTime(&one, from, to), "event");
        if (i >= 3) {
            ms.push_back(one);
        } else {
            runs = std::clamp(static_cast<int>(1000.0f / one), 3, static_cast<int>(RUNS));
        }
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    std::sort(ms.begin(), ms.end());
    return static_cast<double>(ms[ms.size() / 2]);
}

void time_length(const std::vector<struct kernel> &right, int64_t rows, int64_t d)
{
    struct memory m = make_memory(rows, d);
    for (const struct kernel &k : right) {
        double rope = 0.0;
        for (const char *method : METHODS) {
            struct prepared p = prepare(&m, method, k.shape, rows, d);
            double ms = time_one(k, p, &m);
            double flop = 4.0 * static_cast<double>(d) * HEADS * p.pairs;
            rope = rope == 0.0 ? ms : rope;
            printf("%7lld  %-32s %-46s %9.3f ms %7.1f TFLOP/s  %.4f of rope\n",
                   static_cast<long long>(rows), k.name.c_str(), method, ms, flop / ms * 1e-9,
                   ms / rope);
            fflush(stdout);
            check(cudaFree(p.walk), "memory");
        }
    }
    free_memory(&m);
}

} // namespace

int main(int argc, char **argv)
{
    std::string wanted = argc > 1 ? argv[1] : "all";
    int64_t d = argc > 2 ? atoll(argv[2]) : 128;
    std::vector<int64_t> lengths;
    for (int i = 3; i < argc; i++) {
        lengths.push_back(atoll(argv[i]));
    }
    if (lengths.empty()) {
        lengths = {8192, 16384, 32768, 131072};
    }
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "no device");
    printf("%s, %d multiprocessors, head_dim %lld, %d query heads, %d KV heads, bfloat16\n",
           device.name, device.multiProcessorCount, static_cast<long long>(d), HEADS, KV_HEADS);
    std::vector<struct kernel> right;
    bool all = true;
    for (const struct kernel &k : kernels(wanted, d)) {
        bool good = true;
        for (const char *method : METHODS) {
            good = agree(k, method, 1937, d) && good;
        }
        good = agree(k, "dpe:window=300,scales=2/8/2/8/32/32/16/4", 1000, d) && good;
        good = agree(k, "dca:chunk=700,local=100", 2000, d) && good;
        if (good) {
            right.push_back(k);
        } else {
            printf("%s is wrong: it is not timed\n", k.name.c_str());
        }
        all = all && good;
    }
    for (int64_t rows : lengths) {
        time_length(right, rows, d);
    }
    return all ? 0 : 1;
}

/* test_attention_gpu [KERNEL [CASES]]: the attention kernels on a GPU against the reference
 * backend, by the same rule and with the same cases as in the emulator, and larger ones. KERNEL:
 * plain, mma, wgmma or all of them, so that one
 * that hangs or breaks the device does not lose the results of others. A wrong result stops
 * nothing: the number of wrong cases of each kernel is printed at the end. Exits with 125 where
 * there is no device. With CASES it runs only so many (CI does this on the emulated device, to test
 * this program itself). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/near.h"

#include "tests/engine/cuda/flash_case.h"

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/prefill/attention_wgmma.h"
#include "engine/cuda/runtime/runtime.h"

enum { REPEATS = 10, MOST_KERNELS = 3, MOST_PIECES = 2 * DPE_MAX_BANDS + 8 };

static int most_cases = INT32_MAX;
static const char *wanted = "all";
static struct dpe_cuda_info device;

/* Of each kernel by its name. */
static struct tally {
    const char *name;
    int cases, wrong;
} tallies[MOST_KERNELS + 1];

struct kernel {
    const char *name;
    struct dpe_tile_shape shape;
    enum { PLAIN, MMA, WGMMA } kind;
};

/* What a case holds on the device. */
struct on_device {
    void *pieces[MOST_PIECES];
    int n;
};

static void good(int code, const char *what)
{
    if (code != 0) {
        fail_msg("%s: %s", what, dpe_rt_text(code));
    }
}

static void *up(struct on_device *held, const void *from, size_t bytes)
{
    void *to = NULL;
    assert_true(held->n < MOST_PIECES);
    good(dpe_rt_allocate(&to, bytes < 1 ? 1 : bytes), "allocation");
    held->pieces[held->n++] = to;
    if (bytes > 0) {
        good(dpe_rt_up(to, from, bytes), "copy");
    }
    return to;
}

static bool is_wanted(const char *family)
{
    return strcmp(wanted, "all") == 0 || strcmp(wanted, family) == 0;
}

static int kernels_for(int64_t head_dim, double cap, struct kernel *kernels)
{
    int n = 0;
    if (is_wanted("plain")) {
        kernels[n++] = (struct kernel){"plain", dpe_attention_plain_shape(head_dim), PLAIN};
    }
    if (is_wanted("mma") && dpe_attention_mma_shape(head_dim).rows > 0) {
        kernels[n++] = (struct kernel){"mma.sync", dpe_attention_mma_shape(head_dim), MMA};
    }
    struct dpe_tile_shape wgmma = dpe_attention_wgmma_shape(head_dim, cap > 0.0);
    if (is_wanted("wgmma") && device.major == 9 && wgmma.rows > 0) {
        kernels[n++] = (struct kernel){"wgmma", wgmma, WGMMA};
    }
    return n;
}

static void count_case(const char *name, bool wrong)
{
    struct tally *tally = tallies;
    while (tally->name != NULL && strcmp(tally->name, name) != 0) {
        tally++;
    }
    tally->name = name;
    tally->cases++;
    tally->wrong += wrong;
}

static int launch(const struct kernel *kernel, const struct dpe_flash *call, int32_t *counters)
{
    if (kernel->kind == WGMMA) {
        return dpe_attention_wgmma(call, counters);
    }
    return kernel->kind == MMA ? dpe_attention_mma(call) : dpe_attention_plain(call);
}

/* The call with everything it points to on the device. */
static struct dpe_flash upload(struct flash_case *c, struct on_device *held)
{
    struct dpe_flash call = c->call;
    size_t d = (size_t)c->shape.head_dim;
    size_t n = (size_t)(c->shape.rows * c->shape.n_heads);
    for (int i = 0; i < DPE_MAX_BANDS; i++) {
        size_t heads = (size_t)(call.k_per_head[i] ? c->shape.n_heads : c->shape.n_kv_heads);
        if (call.q[i] != NULL) {
            call.q[i] = up(held, call.q[i], n * d * 2);
        }
        if (call.k[i] != NULL) {
            call.k[i] = up(held, call.k[i], heads * (size_t)c->capacity * d * 2);
        }
    }
    call.v = up(held, call.v, (size_t)(c->shape.n_kv_heads * c->capacity) * d * 2);
    call.blocks = up(held, c->walk.blocks, (size_t)c->walk.n_blocks * sizeof *c->walk.blocks);
    call.segments =
        up(held, c->walk.segments, (size_t)c->walk.n_segments * sizeof *c->walk.segments);
    if (call.parts > 1) {
        size_t bytes = (size_t)call.parts * n * (d + 1) * sizeof(float);
        void *poison = flash_memory((int64_t)bytes, 1);
        call.partial = up(held, poison, bytes);
        free(poison);
    }
    call.out = (uint16_t *)up(held, c->out, (n * d + 2 * FLASH_GUARD) * 2) + FLASH_GUARD;
    call.lse = (float *)up(held, c->lse, (n + 2 * FLASH_GUARD) * sizeof(float)) + FLASH_GUARD;
    return call;
}

/* The same bits every time, with the counters as the last launch left them: a result that depends
 * on which thread is first shows here, on a GPU. */
static void repeat_on_device(const struct flash_case *c, const struct kernel *kernel,
                             const struct dpe_flash *call, int32_t *counters)
{
    size_t bytes = (size_t)(c->shape.rows * c->shape.n_heads * c->shape.head_dim) * 2;
    void *again = malloc(bytes);
    assert_non_null(again);
    for (int i = 0; i < REPEATS && most_cases >= 100; i++) {
        good(dpe_rt_fill(call->out, 0xff, bytes), "fill");
        good(launch(kernel, call, counters), kernel->name);
        good(dpe_rt_down(again, call->out, bytes), kernel->name);
        assert_memory_equal(again, c->out + FLASH_GUARD, bytes);
    }
    free(again);
}

static void run_on_device(struct flash_case *c, const struct kernel *kernel)
{
    struct on_device held = {.n = 0};
    const int32_t zeros[2] = {0, 0};
    int32_t left[2] = {1, 1};
    size_t n = (size_t)(c->shape.rows * c->shape.n_heads);
    struct dpe_flash call = upload(c, &held);
    int32_t *counters = up(&held, zeros, sizeof zeros);
    good(launch(kernel, &call, counters), kernel->name);
    good(dpe_rt_wait(), kernel->name);
    good(dpe_rt_down(c->out, (uint16_t *)call.out - FLASH_GUARD,
                     (n * (size_t)c->shape.head_dim + 2 * FLASH_GUARD) * 2),
         kernel->name);
    good(dpe_rt_down(c->lse, call.lse - FLASH_GUARD, (n + 2 * FLASH_GUARD) * sizeof(float)),
         kernel->name);
    good(dpe_rt_down(left, counters, sizeof left), kernel->name);
    assert_true(left[0] == 0 && left[1] == 0);
    repeat_on_device(c, kernel, &call, counters);
    while (held.n > 0) {
        good(dpe_rt_release(held.pieces[--held.n]), "release");
    }
}

static void run_case(const struct flash_shape *shape, int plan_case, int64_t window,
                     const struct kernel *kernel, int32_t parts)
{
    struct flash_case c = flash_case_make(shape, plan_case, window, kernel->shape);
    if (parts > 1) {
        flash_split(&c, kernel->shape, parts);
    }
    /* Before it runs: when a case hangs, it is the last one printed. */
    printf("%s: %s\n", kernel->name, c.title);
    fflush(stdout);
    run_on_device(&c, kernel);
    count_case(kernel->name, flash_case_wrong(&c, kernel->name));
    flash_case_free(&c);
}

/* No case of the kernels that this test ran was wrong. */
static void expect_right(void)
{
    int wrong = 0;
    for (const struct tally *tally = tallies; tally->name != NULL; tally++) {
        printf("%s: %d of %d cases are wrong\n", tally->name, tally->wrong, tally->cases);
        wrong += tally->wrong;
    }
    memset(tallies, 0, sizeof tallies);
    assert_int_equal(wrong, 0);
}

static struct flash_shape draw_shape(struct dpe_rng *rng, int64_t head_dim, int64_t longest)
{
    struct flash_shape shape = flash_draw_shape(rng, head_dim, longest, longest);
    shape.seed = 1 + dpe_rng_u32(rng);
    return shape;
}

/* Capped logits. */
static void caps(void **state)
{
    static const int64_t dims[4] = {128, 64, 96, 256};
    (void)state;
    for (int i = 0; i < 8 && i < most_cases; i++) {
        struct flash_shape shape = {.dtype = i < 4 ? DPE_BF16 : DPE_F16,
                                    .n_heads = 2,
                                    .n_kv_heads = 1,
                                    .head_dim = dims[i % 4],
                                    .start = most_cases < 100 ? 50 : 300,
                                    .rows = most_cases < 100 ? 20 : 200,
                                    .seed = 70 + (uint64_t)i,
                                    .cap = 3.0};
        struct kernel kernels[MOST_KERNELS];
        const int n = kernels_for(shape.head_dim, shape.cap, kernels);
        for (int k = 0; k < n; k++) {
            run_case(&shape, i % 2, 128, &kernels[k], 1);
        }
    }
    expect_right();
}

static void every_kernel_and_plan(void **state)
{
    static const int64_t dims[4] = {128, 64, 96, 256};
    struct dpe_rng rng;
    (void)state;
    dpe_rng_seed(&rng, 40, 1);
    for (int i = 0; i < 4 * PLAN_CASES && i < most_cases; i++) {
        struct kernel kernels[MOST_KERNELS];
        int64_t longest = most_cases < 100 ? 60 : 260;
        int n = kernels_for(dims[i % 4], 0.0, kernels);
        struct flash_shape shape = draw_shape(&rng, dims[i % 4], longest);
        int64_t window = 3 + dpe_rng_below(&rng, (uint32_t)longest / 2);
        for (int k = 0; k < n; k++) {
            run_case(&shape, i / 4, window, &kernels[k], 1);
        }
    }
    expect_right();
}

/* Enough keys for every ring to go round many times. */
static void longer(void **state)
{
    (void)state;
    for (int i = 0; i < 3 && i < most_cases; i++) {
        struct kernel kernels[MOST_KERNELS];
        struct flash_shape shape = {.dtype = DPE_BF16,
                                    .n_heads = 2,
                                    .n_kv_heads = 1,
                                    .head_dim = i == 2 ? 64 : 128,
                                    .start = most_cases < 100 ? 50 : 1500,
                                    .rows = most_cases < 100 ? 20 : 300,
                                    .seed = 50 + (uint64_t)i};
        int n = kernels_for(shape.head_dim, shape.cap, kernels);
        for (int k = 0; k < n; k++) {
            run_case(&shape, i, most_cases < 100 ? 30 : 500, &kernels[k], 1);
        }
    }
    expect_right();
}

/* mma.sync over a split walk, few rows after many keys. */
static void parts(void **state)
{
    struct dpe_rng rng;
    (void)state;
    const struct kernel mma = {"mma.sync", dpe_attention_mma_shape(128), MMA};
    dpe_rng_seed(&rng, 41, 1);
    for (int i = 0; i < 8 && i < most_cases && is_wanted("mma"); i++) {
        struct flash_shape shape = draw_shape(&rng, 128, 40);
        shape.start = most_cases < 100 ? 200 : 3000;
        run_case(&shape, i, 100, &mma, 2 + 3 * i);
    }
    expect_right();
}

/* Several items for every thread block that stays, and bands that meet at the edge of a tile. */
static void many_items(void **state)
{
    (void)state;
    for (int i = 0; i < 2 && i < most_cases; i++) {
        struct kernel kernels[MOST_KERNELS];
        struct flash_shape shape = {.dtype = i == 0 ? DPE_BF16 : DPE_F16,
                                    .n_heads = most_cases < 100 ? 6 : 160,
                                    .n_kv_heads = most_cases < 100 ? 3 : 40,
                                    .head_dim = i == 0 ? 128 : 64,
                                    .rows = most_cases < 100 ? 20 : 200,
                                    .seed = 60 + (uint64_t)i};
        int n = kernels_for(shape.head_dim, shape.cap, kernels);
        for (int k = 0; k < n; k++) {
            run_case(&shape, 1, most_cases < 100 ? 9 : 128, &kernels[k], 1);
        }
    }
    expect_right();
}

int main(int argc, char **argv)
{
    int n = 0;
    int driver = 0;
    int runtime = 0;
    if (dpe_rt_versions(&driver, &runtime) != 0 || driver == 0 || dpe_rt_count(&n) != 0 || n == 0) {
        fprintf(stderr, "test_attention_gpu: no device found\n");
        return 125;
    }
    wanted = argc > 1 ? argv[1] : wanted;
    most_cases = argc > 2 ? atoi(argv[2]) : most_cases;
    if (dpe_rt_use(0) != 0 || dpe_rt_info(0, &device) != 0) {
        fprintf(stderr, "test_attention_gpu: the device does not answer\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_and_plan),
        cmocka_unit_test(longer),
        cmocka_unit_test(caps),
        cmocka_unit_test(parts),
        cmocka_unit_test(many_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

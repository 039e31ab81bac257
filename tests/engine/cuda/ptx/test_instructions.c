/* What the kernels assume of matrix instructions, tensor copies and barriers, one at a time: the
 * layouts of the PTX manual, written out here again ("Matrix fragments for mma.m16n8k16";
 * "128B swizzling mode": rows of 128 bytes in which the 16-byte chunk is XORed with the row modulo
 * 8; "strides of canonical layouts"; the register fragments of wgmma.mma_async). Built twice: on
 * the emulated device, and for a GPU, where a failure shows which assumption is wrong. Exits
 * with 125 where there is no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/cuda/runtime/runtime.h"
#include "tests/emulate/emulate_mma_kernels.h"
#include "tests/emulate/emulate_sm90_kernels.h"

enum { AREA = 32 << 10 };

static struct dpe_cuda_info device;

static void good(int code, const char *what)
{
    if (code != 0) {
        fail_msg("%s: %s", what, dpe_rt_text(code));
    }
}

/* A copy on the device. */
static void *up(const void *from, size_t bytes)
{
    void *to = NULL;
    good(dpe_rt_allocate(&to, bytes), "allocation");
    good(dpe_rt_up(to, from, bytes), "copy");
    return to;
}

/* Brings it back when everything has run. */
static void down(void *to, void *from, size_t bytes)
{
    good(dpe_rt_wait(), "kernel");
    good(dpe_rt_down(to, from, bytes), "copy");
    good(dpe_rt_release(from), "release");
}

static void needs_hopper(void)
{
    if (device.major != 9) {
        skip();
    }
}

/* ------------------------------------------------------------------------------------- mma.sync */

/* Small whole numbers: exact in both formats. */
static uint16_t bits_of(bool half, int x)
{
    float value = (float)x;
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    if (!half || x == 0) {
        return (uint16_t)(bits >> 16);
    }
    return (uint16_t)((bits >> 16 & 0x8000U) | (((bits >> 23 & 0xffU) - 112U) << 10) |
                      (bits >> 13 & 0x3ffU));
}

/* m16n8k16 with A and B through ldmatrix, B as it lies or transposed on the way. */
static void mma_multiplies(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        bool half = kind % 2 == 1;
        uint16_t a[256];
        uint16_t b[128];
        uint16_t b_turned[128];
        float c[128];
        for (int i = 0; i < 256; i++) {
            a[i] = bits_of(half, i * 7 % 23 - 11);
        }
        for (int i = 0; i < 128; i++) {
            b[i] = bits_of(half, i * 5 % 19 - 9);
            b_turned[i % 8 * 16 + i / 8] = b[i];
            c[i] = NAN;
        }
        void *held[3] = {up(a, sizeof a), up(b, sizeof b), up(b_turned, sizeof b_turned)};
        void *to = up(c, sizeof c);
        good(emulate_product(half, held[0], held[1], held[2], kind / 2 == 1, to), "mma");
        down(c, to, sizeof c);
        for (int i = 0; i < 3; i++) {
            good(dpe_rt_release(held[i]), "release");
        }
        for (int i = 0; i < 128; i++) {
            int sum = 0;
            for (int k = 0; k < 16; k++) {
                int row = (i / 8 * 16 + k) * 7 % 23 - 11;
                int column = (k * 8 + i % 8) * 5 % 19 - 9;
                sum += row * column;
            }
            assert_true(c[i] == (float)sum);
        }
    }
}

/* cp.async: what a wait has covered has arrived, and copies of nothing are zeros. */
static void copies_land(void **state)
{
    (void)state;
    uint32_t from[128];
    uint32_t seen[3][64];
    for (uint32_t i = 0; i < 128; i++) {
        from[i] = 1000 + i;
    }
    memset(seen, 0x55, sizeof seen);
    void *held = up(from, sizeof from);
    void *to = up(seen, sizeof seen);
    good(emulate_copies(held, to), "cp.async");
    down(seen, to, sizeof seen);
    good(dpe_rt_release(held), "release");
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(seen[1][i], 1000 + 4 * i);
        assert_int_equal(seen[2][i], 1000 + 4 * i);
        assert_int_equal(seen[2][32 + i], 0);
    }
}

static void reads_past_level_one(void **state)
{
    (void)state;
    uint32_t from[128];
    uint32_t seen[128];
    for (uint32_t i = 0; i < 128; i++) {
        from[i] = i * 2654435761U;
    }
    memset(seen, 0x55, sizeof seen);
    void *held = up(from, sizeof from);
    void *to = up(seen, sizeof seen);
    good(emulate_reads(held, to), "reads past level 1");
    down(seen, to, sizeof seen);
    good(dpe_rt_release(held), "release");
    assert_memory_equal(seen, from, sizeof from);
}

/* --------------------------------------------------------------------------------------- Hopper */

static void lays_boxes_out(void **state)
{
    static const struct emulate_box boxes[] = {
        {{64, 9, 1, 1}, {64, 16, 1, 1}, {0, 0, 0, 0}, false},
        {{64, 40, 2, 3}, {64, 24, 2, 1}, {0, 7, 0, 2}, false},
        {{64, 40, 2, 3}, {64, 16, 2, 1}, {0, 33, 0, 1}, false},  /* rows after the end */
        {{64, 40, 2, 3}, {64, 16, 2, 1}, {0, -11, 0, 1}, false}, /* and before the beginning */
        {{64, 40, 2, 3}, {64, 16, 2, 1}, {0, -16, 0, 1}, false}, /* nothing but zeros */
        /* As the attention kernel's maps: more rows than the stride of dimension 2 has bytes. */
        {{64, 300, 2, 3}, {64, 128, 2, 1}, {0, 250, 0, 1}, true},
        {{64, 300, 1, 3}, {64, 128, 1, 1}, {0, -28, 0, 2}, true},
    };
    (void)state;
    needs_hopper();
    uint16_t *shared = malloc(AREA);
    assert_non_null(shared);
    for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; b++) {
        const struct emulate_box *box = &boxes[b];
        int n = box->n[0] * box->n[1] * box->n[2] * box->n[3];
        uint16_t *tensor = malloc((size_t)n * sizeof *tensor);
        assert_non_null(tensor);
        for (int i = 0; i < n; i++) {
            tensor[i] = (uint16_t)(i + 1);
        }
        memset(shared, 0x55, AREA);
        void *held = up(tensor, (size_t)n * sizeof *tensor);
        void *to = up(shared, AREA);
        good(emulate_tensor_box(held, box, to), "tensor copy");
        down(shared, to, AREA);
        good(dpe_rt_release(held), "release");
        for (int i2 = 0; i2 < box->box[2]; i2++) {
            for (int i1 = 0; i1 < box->box[1]; i1++) {
                for (int i0 = 0; i0 < 64; i0++) {
                    int row = i2 * box->box[1] + i1;
                    int at = row * 64 + (i0 / 8 ^ row % 8) * 8 + i0 % 8;
                    int x1 = box->at[1] + i1;
                    int want = 0;
                    if (x1 >= 0 && x1 < box->n[1]) {
                        want = box->rows ? (box->at[3] * box->n[1] + x1) * box->n[2] + i2
                                         : (box->at[3] * box->n[2] + i2) * box->n[1] + x1;
                        want = want * 64 + i0 + 1;
                    }
                    assert_int_equal(shared[at], (uint16_t)want);
                }
            }
        }
        free(tensor);
    }
    free(shared);
}

static uint64_t descriptor(int address, int leading, int stride)
{
    return (uint64_t)address / 16 | (uint64_t)(leading / 16) << 16 | (uint64_t)(stride / 16) << 32 |
           UINT64_C(1) << 62;
}

/* Element (row, k) of a K-major operand whose first 16 terms begin `term` terms into rows of 64. */
static int k_major(int base, int row, int term)
{
    return (base + row / 8 * 1024 + row % 8 * 128) / 2 + (term / 8 ^ row % 8) * 8 + term % 8;
}

/* Element (column, k) of an N-major operand, `leading` bytes between groups of 64 columns. */
static int n_major(int base, int leading, int column, int k)
{
    return (base + column / 64 * leading + k / 8 * 1024 + k % 8 * 128) / 2 +
           (column % 64 / 8 ^ k % 8) * 8 + column % 8;
}

struct operands {
    int a[64][16], b[16][256];
    uint16_t *shared;
    uint32_t words[128][4];
};

/* A at 8 KiB as K-major from term 32 on; B at 0 K-major from term 16 on, or N-major from term
 * 16 on. */
static void lay_out(struct operands *x, const struct emulate_product *p, struct dpe_rng *rng)
{
    memset(x->shared, 0xff, AREA);
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 64; i++) {
            x->a[i][k] = (int)dpe_rng_below(rng, 7) - 3;
            x->shared[k_major(24576, i, 32 + k)] = bits_of(!p->bf16, x->a[i][k]);
        }
        for (int n = 0; n < p->n; n++) {
            x->b[k][n] = (int)dpe_rng_below(rng, 7) - 3;
            int at = p->b_n_major ? n_major(2048, 4096, n, k) : k_major(0, n, 16 + k);
            x->shared[at] = bits_of(!p->bf16, x->b[k][n]);
        }
    }
    for (int t = 0; t < 128; t++) {
        for (int i = 0; i < 4; i++) {
            int row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8;
            int k = t % 4 * 2 + i / 2 * 8;
            x->words[t][i] = bits_of(!p->bf16, x->a[row][k]) |
                             (uint32_t)bits_of(!p->bf16, x->a[row][k + 1]) << 16;
        }
    }
}

static void check_product(struct emulate_product product, struct dpe_rng *rng)
{
    struct operands *x = malloc(sizeof *x);
    assert_non_null(x);
    x->shared = malloc(AREA);
    assert_non_null(x->shared);
    int n = product.n;
    float *d = malloc(sizeof(float) * 64 * (size_t)n);
    assert_non_null(d);
    lay_out(x, &product, rng);
    for (int i = 0; i < 64 * n; i++) {
        d[i] = product.accumulate ? (float)(i % 11) : NAN;
    }
    product.a = descriptor(24576 + 64, 0, 1024);
    product.b = product.b_n_major ? descriptor(2048, 4096, 1024) : descriptor(32, 0, 1024);
    void *words = up(x->words, sizeof x->words);
    void *held = up(x->shared, AREA);
    void *to = up(d, sizeof(float) * 64 * (size_t)n);
    product.a_registers = product.b_n_major ? words : NULL;
    good(emulate_product_run(&product, held, to), "wgmma");
    down(d, to, sizeof(float) * 64 * (size_t)n);
    good(dpe_rt_release(held), "release");
    good(dpe_rt_release(words), "release");
    for (int t = 0; t < 128; t++) {
        for (int i = 0; i < n / 2; i++) {
            int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
            int column = i / 4 * 8 + t % 4 * 2 + i % 2;
            int want = product.accumulate ? (t * (n / 2) + i) % 11 : 0;
            for (int k = 0; k < 16; k++) {
                want += x->a[row][k] * x->b[k][column];
            }
            assert_true(d[t * (n / 2) + i] == (float)want);
        }
    }
    free(d);
    free(x->shared);
    free(x);
}

static void wgmma_multiplies(void **state)
{
    static const int widths[5] = {64, 128, 160, 80, 256};
    struct dpe_rng rng;
    (void)state;
    needs_hopper();
    dpe_rng_seed(&rng, 12, 1);
    for (int i = 0; i < 40; i++) {
        const int n = widths[i % 5];
        struct emulate_product product = {
            .n = n,
            .bf16 = n == 160 || i / 5 % 2 == 0,
            .b_n_major = n == 256 || (n != 160 && n != 80 && i / 10 % 2 == 1),
            .accumulate = i / 20 == 1,
        };
        check_product(product, &rng);
    }
}

static void waits_for_phases(void **state)
{
    uint16_t row[64] = {0};
    int seen[5] = {-1, -1, -1, -1, -1};
    (void)state;
    needs_hopper();
    void *held = up(row, sizeof row);
    void *to = up(seen, sizeof seen);
    good(emulate_sm90_phases(held, to), "mbarrier");
    down(seen, to, sizeof seen);
    good(dpe_rt_release(held), "release");
    assert_int_equal(seen[0], 10); /* a fresh barrier: the phase before it is complete, 0 is not */
    assert_int_equal(seen[1], 0);  /* all have arrived, the bytes have not */
    assert_int_equal(seen[2], 10);
    assert_int_equal(seen[3], 0);
    assert_int_equal(seen[4], 1);
}

/* Registers that one warpgroup gives back and others take; named barriers by which they take turns.
 */
static void takes_turns(void **state)
{
    int order[2 * EMULATE_SM90_TURNS];
    (void)state;
    needs_hopper();
    memset(order, 0x55, sizeof order);
    void *to = up(order, sizeof order);
    good(emulate_sm90_turns(to), "turns");
    down(order, to, sizeof order);
    for (int i = 0; i < 2 * EMULATE_SM90_TURNS; i++) {
        assert_int_equal(order[i], i % 2);
    }
}

int main(void)
{
    int n = 0;
    int driver = 0;
    int runtime = 0;
    if (dpe_rt_versions(&driver, &runtime) != 0 || driver == 0 || dpe_rt_count(&n) != 0 || n == 0) {
        fprintf(stderr, "test_instructions: no device found\n");
        return 125;
    }
    if (dpe_rt_use(0) != 0 || dpe_rt_info(0, &device) != 0) {
        fprintf(stderr, "test_instructions: the device does not answer\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mma_multiplies),       cmocka_unit_test(copies_land),
        cmocka_unit_test(reads_past_level_one), cmocka_unit_test(lays_boxes_out),
        cmocka_unit_test(wgmma_multiplies),     cmocka_unit_test(waits_for_phases),
        cmocka_unit_test(takes_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The twins of Hopper's instructions against the layouts of the PTX manual, written out here once
 * more: "128B swizzling mode" (rows of 128 bytes in which the 16-byte chunk is XORed with the row
 * modulo 8), "strides of canonical layouts", and the register fragments of wgmma.mma_async. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emulate/emulate_control.h"
#include "emulate/emulate_sm90_kernels.h"
#include "engine.h"

enum { AREA = 32 << 10 };

static void lays_boxes_out(void **state)
{
    static const struct emulate_box boxes[] = {
        {{64, 9, 1, 1}, {64, 16, 1, 1}, {0, 0, 0, 0}},
        {{64, 40, 2, 3}, {64, 24, 2, 1}, {0, 7, 0, 2}},
        {{64, 40, 2, 3}, {64, 16, 2, 1}, {0, 33, 0, 1}},  /* rows behind the end */
        {{64, 40, 2, 3}, {64, 16, 2, 1}, {0, -11, 0, 1}}, /* and before the beginning */
        {{64, 40, 2, 3}, {64, 16, 2, 1}, {0, -16, 0, 1}}, /* nothing but zeros */
    };
    (void)state;
    uint16_t *shared = malloc(AREA);
    assert_non_null(shared);
    for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; b++) {
        const struct emulate_box *box = &boxes[b];
        int n = box->n[0] * box->n[1] * box->n[2] * box->n[3];
        uint16_t *tensor = aligned_alloc(64, ((size_t)n * 2 + 63) / 64 * 64);
        assert_non_null(tensor);
        for (int i = 0; i < n; i++) {
            tensor[i] = (uint16_t)(i + 1);
        }
        memset(shared, 0x55, AREA);
        emulate_set_seed(b);
        if (emulate_tensor_box(tensor, box, shared) != 0) {
            fail_msg("%s", emulate_error());
        }
        for (int i2 = 0; i2 < box->box[2]; i2++) {
            for (int i1 = 0; i1 < box->box[1]; i1++) {
                for (int i0 = 0; i0 < 64; i0++) {
                    int row = i2 * box->box[1] + i1;
                    int at = row * 64 + (i0 / 8 ^ row % 8) * 8 + i0 % 8;
                    int x1 = box->at[1] + i1;
                    int want = 0;
                    if (x1 >= 0 && x1 < box->n[1]) {
                        want = ((box->at[3] * box->n[2] + i2) * box->n[1] + x1) * 64 + i0 + 1;
                    }
                    assert_int_equal(shared[at], (uint16_t)want);
                }
            }
        }
        free(tensor);
    }
    free(shared);
    emulate_set_seed(0);
}

/* Small whole numbers: exact in every type and sum. */
static uint16_t small(bool bf16, int value)
{
    static const uint16_t bf16_bits[4] = {0, 0x3f80, 0x4000, 0x4040};
    static const uint16_t half_bits[4] = {0, 0x3c00, 0x4000, 0x4200};
    uint16_t sign = (uint16_t)(value < 0 ? 0x8000 : 0);
    return (uint16_t)(sign | (bf16 ? bf16_bits : half_bits)[abs(value)]);
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
    int a[64][16], b[16][160];
    uint16_t *shared;
    uint32_t words[128][4];
};

/* A at 8 KiB as K-major from term 32 on; B at 0 K-major from term 16 on, or at 16 KiB N-major. */
static void lay_out(struct operands *x, const struct emulate_product *p, struct dpe_rng *rng)
{
    memset(x->shared, 0xff, AREA);
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 64; i++) {
            x->a[i][k] = (int)dpe_rng_below(rng, 7) - 3;
            x->shared[k_major(24576, i, 32 + k)] = small(p->bf16, x->a[i][k]);
        }
        for (int n = 0; n < p->n; n++) {
            x->b[k][n] = (int)dpe_rng_below(rng, 7) - 3;
            int at = p->b_n_major ? n_major(0, 8192, n, k) : k_major(0, n, 16 + k);
            x->shared[at] = small(p->bf16, x->b[k][n]);
        }
    }
    for (int t = 0; t < 128; t++) {
        for (int i = 0; i < 4; i++) {
            int row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8;
            int k = t % 4 * 2 + i / 2 * 8;
            x->words[t][i] =
                small(p->bf16, x->a[row][k]) | (uint32_t)small(p->bf16, x->a[row][k + 1]) << 16;
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
    float *d = malloc(sizeof(float) * 128 * (size_t)n / 2);
    assert_non_null(d);
    lay_out(x, &product, rng);
    for (int i = 0; i < 64 * n; i++) {
        d[i] = product.accumulate ? (float)(i % 11) : NAN;
    }
    product.a = descriptor(24576 + 64, 0, 1024);
    product.b = product.b_n_major ? descriptor(0, 8192, 1024) : descriptor(32, 0, 1024);
    product.a_registers = product.b_n_major ? x->words[0] : NULL;
    if (emulate_product_run(&product, x->shared, d) != 0) {
        fail_msg("%s", emulate_error());
    }
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

static void multiplies(void **state)
{
    static const int widths[3] = {64, 128, 160};
    struct dpe_rng rng;
    (void)state;
    dpe_rng_seed(&rng, 12, 1);
    for (int i = 0; i < 24; i++) {
        struct emulate_product product = {
            .n = widths[i % 3],
            .bf16 = i % 3 == 2 || i / 3 % 2 == 0,
            .b_n_major = i % 3 != 2 && i / 6 % 2 == 1,
            .accumulate = i / 12 == 1,
        };
        emulate_set_seed((uint64_t)i);
        check_product(product, &rng);
    }
    emulate_set_seed(0);
}

static void waits_for_phases(void **state)
{
    int seen[5] = {-1, -1, -1, -1, -1};
    (void)state;
    assert_int_equal(emulate_sm90_phases(seen), 0);
    assert_int_equal(seen[0], 10); /* a fresh barrier: the phase before it is complete, 0 is not */
    assert_int_equal(seen[1], 0);  /* all have arrived, the bytes have not */
    assert_int_equal(seen[2], 10);
    assert_int_equal(seen[3], 0);
    assert_int_equal(seen[4], 1);
}

static void products_take_time(void **state)
{
    float early[256];
    (void)state;
    assert_int_equal(emulate_sm90_early(early), 0);
    for (int t = 0; t < 128; t++) {
        assert_true(isnan(early[t]));
        assert_true(early[128 + t] == 16.0F);
    }
}

static void refuses(void **state)
{
    static const char *const words[] = {
        "not initialised",  "more than the 2",  "all threads wait", "without a fence",
        "still due",        "is still reading", "multiple of 1024", "not fewer",
        "all threads wait", "different fences", "has not waited",
    };
    (void)state;
    for (int kind = 0; kind <= EMULATE_SM90_NO_WAIT; kind++) {
        emulate_clear_error();
        assert_int_not_equal(emulate_sm90_wrong((enum emulate_sm90_wrong_kind)kind), 0);
        if (strstr(emulate_error(), words[kind]) == NULL) {
            fail_msg("kind %d: %s", kind, emulate_error());
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lays_boxes_out),   cmocka_unit_test(multiplies),
        cmocka_unit_test(waits_for_phases), cmocka_unit_test(products_take_time),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

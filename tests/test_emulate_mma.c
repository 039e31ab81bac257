/* The emulator's matrix instructions and asynchronous copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "emulate/emulate_control.h"
#include "emulate/emulate_mma_kernels.h"

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

static void multiplies(void **state)
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
        }
        emulate_set_seed((uint64_t)kind);
        assert_int_equal(emulate_product(half, a, b, b_turned, kind / 2 == 1, c), 0);
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
    emulate_set_seed(0);
}

static void copies_land_when_waited_for(void **state)
{
    (void)state;
    _Alignas(16) uint32_t from[128];
    uint32_t seen[3][64];
    for (uint32_t i = 0; i < 128; i++) {
        from[i] = 1000 + i;
    }
    assert_int_equal(emulate_copies(from, seen[0]), 0);
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(seen[0][i], UINT32_MAX);
        assert_int_equal(seen[1][i], 1000 + 4 * i);
        assert_int_equal(seen[2][i], 1000 + 4 * i);
        assert_int_equal(seen[0][32 + i], UINT32_MAX);
        assert_int_equal(seen[1][32 + i], UINT32_MAX);
        assert_int_equal(seen[2][32 + i], 0);
    }
    assert_int_not_equal(emulate_copies(from + 1, seen[0]), 0);
    assert_non_null(strstr(emulate_error(), "not aligned"));
}

static uint64_t conflicts_of(int stride)
{
    struct emulate_bank_counts before = emulate_bank_counts_read();
    assert_int_equal(emulate_strided(stride), 0);
    struct emulate_bank_counts after = emulate_bank_counts_read();
    assert_int_equal(after.reads - before.reads, 4);
    return after.conflicts - before.conflicts;
}

static void counts_bank_conflicts(void **state)
{
    (void)state;
    assert_int_equal(conflicts_of(16), 0);
    assert_int_equal(conflicts_of(32), 4);
    assert_int_equal(conflicts_of(128), 4 * 7);
    assert_int_equal(conflicts_of(144), 0);
    assert_int_equal(conflicts_of(0), 0); /* one row for all */
    assert_int_not_equal(emulate_strided(8), 0);
    assert_non_null(strstr(emulate_error(), "multiple of 16"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multiplies),
        cmocka_unit_test(copies_land_when_waited_for),
        cmocka_unit_test(counts_bank_conflicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

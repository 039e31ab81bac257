/* When the emulator's asynchronous copies land, and what it counts and refuses of ldmatrix; what
 * matrix instructions compute: test_instructions.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/emulate/emulate_control.h"
#include "tests/emulate/emulate_mma_kernels.h"

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

static void refuses_reads_that_are_not_aligned(void **state)
{
    (void)state;
    _Alignas(16) uint32_t from[132] = {0};
    uint32_t seen[128];
    assert_int_equal(emulate_reads(from, seen), 0);
    assert_int_not_equal(emulate_reads(from + 1, seen), 0);
    assert_non_null(strstr(emulate_error(), "not aligned"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_land_when_waited_for),
        cmocka_unit_test(counts_bank_conflicts),
        cmocka_unit_test(refuses_reads_that_are_not_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

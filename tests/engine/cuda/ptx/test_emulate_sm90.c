/* What the emulator refuses of Hopper's instructions, and that products take their time; what they
 * compute: test_instructions.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/emulate/emulate_control.h"
#include "tests/emulate/emulate_sm90_kernels.h"

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
        "not initialised", "more than the 2",  "all threads wait", "counts to 1048575",
        "without a fence", "still due",        "is still reading", "multiple of 1024",
        "not fewer",       "all threads wait", "different fences", "has not waited",
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

static void refuses_maps(void **state)
{
    static const struct emulate_box boxes[] = {
        {{64, 9, 1, 1}, {4, 9, 1, 1}, {0, 0, 0, 0}, false},      /* 8 bytes */
        {{128, 9, 1, 1}, {128, 9, 1, 1}, {0, 0, 0, 0}, false},   /* 256 bytes */
        {{64, 300, 1, 1}, {64, 257, 1, 1}, {0, 0, 0, 0}, false}, /* 257 rows */
        {{60, 9, 1, 1}, {56, 9, 1, 1}, {0, 0, 0, 0}, false},     /* rows 120 bytes apart */
    };
    _Alignas(64) static uint16_t tensor[64 * 300];
    static uint16_t shared[1 << 14];
    (void)state;
    for (size_t i = 0; i < sizeof boxes / sizeof boxes[0]; i++) {
        assert_int_not_equal(emulate_tensor_box(tensor, &boxes[i], shared), 0);
    }
    const struct emulate_box good = {{64, 9, 1, 1}, {64, 9, 1, 1}, {0, 0, 0, 0}, false};
    assert_int_not_equal(emulate_tensor_box(tensor + 4, &good, shared), 0);
    assert_int_equal(emulate_tensor_box(tensor, &good, shared), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_take_time),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

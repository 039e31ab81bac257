/* Where the sweep of a longer length begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "detect/search/select.h"

static void expect(const int64_t *chosen, const uint8_t *informs, int64_t n, int64_t length,
                   int64_t window, const char *expected)
{
    const struct dpe_detect_shorter shorter = {
        .length = 512, .trained = 256, .chosen = chosen, .informs = informs, .n_groups = n};
    char text[512];
    dpe_detect_start_lengths(&shorter, length, window, text, sizeof text);
    assert_string_equal(text, expected);
}

static void lengths_are_near_the_choice(void **state)
{
    const int64_t none[] = {-1, 512}; /* a group without a choice, and one that is not scaled */
    const int64_t chosen[] = {32, 128};
    const uint8_t no[] = {0, 0};
    const uint8_t first[] = {1, 0};
    (void)state;
    /* L0/2 to L0 and the length itself, whatever was chosen. */
    expect(none, no, 2, 1024, 8, "128,256,1024");
    expect(chosen, no, 2, 1024, 8, "32,128,256,1024");
    expect(chosen, first, 2, 1024, 8, "16,32,64,128,256,1024");
    /* None inside the window, which is the sweep's own. */
    expect(chosen, first, 2, 1024, 33, "64,128,256,1024");
    /* Lengths that are no multiples: within a factor of the square root of two. */
    expect(chosen, no, 2, 1536, 8, "24,96,192,1536");
    /* Where one remains, all are tried. */
    expect(none, no, 2, 1024, 1024, "");
}

static void temperatures_are_searched_around_the_shorter_one(void **state)
{
    struct dpe_detect_shorter shorter = {.length = 512, .temperature = dpe_temperature_none};
    char text[DPE_TEMPERATURE_TEXT + 8];
    (void)state;
    dpe_detect_start_temperature(&shorter, text);
    assert_string_equal(text, "");
    shorter.temperature = (struct dpe_temperature){64.0, 0.5, 0.0, 1.25, DPE_LEVEL};
    dpe_detect_start_temperature(&shorter, text);
    assert_string_equal(text, "auto:log-n=64,log-n-power=0.5,logit-scale=1.25");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_near_the_choice),
        cmocka_unit_test(temperatures_are_searched_around_the_shorter_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

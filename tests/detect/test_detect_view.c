/* What people see of a sweep at work: the live line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detect/report/view.h"
#include "tests/detect/detect_case.h"

static void live_lines_fit_and_keep_what_matters(void **state)
{
    (void)state;
    const int64_t best[8] = {65536, 16384, -1, 16384, 4096, 4096, 8192, 32768};
    const struct dpe_detect_progress progress = {.stage = "sweep",
                                                 .round = 2,
                                                 .rounds = 4,
                                                 .plans_done = 12,
                                                 .plans = 57,
                                                 .rows_done = 345,
                                                 .rows = 912,
                                                 .rate = 1.9,
                                                 .seconds_left = 4000,
                                                 .best = best,
                                                 .n_best = 8};
    char line[256];
    for (int width = 1; width <= 200; width++) {
        dpe_detect_live_line(&progress, width, line, sizeof line);
        assert_true((int)strlen(line) <= width);
        if (width >= 79) {
            assert_non_null(strstr(line, "12/57"));
            assert_non_null(strstr(line, "64k"));
        }
        if (width >= 20) {
            assert_non_null(strstr(line, "345/912"));
            assert_non_null(strstr(line, "1:06:40"));
        }
    }
    dpe_detect_live_line(&progress, 200, line, sizeof line);
    assert_string_equal(line,
                        "sweep round 2/4, 12/57 configurations, 345/912 samples, 1.9 samples/s, "
                        "1:06:40 left, best 64k 16k - 16k 4k 4k 8k 32k");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_lines_fit_and_keep_what_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

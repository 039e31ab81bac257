/* Names of folders and files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/system/folder.h"

static void paths_have_a_name(void **state)
{
    (void)state;
    static const char *const paths[][2] = {{"data/reference", "reference"},
                                           {"reference//", "reference"},
                                           {"/m/x.gguf", "x.gguf"},
                                           {".", "."},
                                           {"/", "/"},
                                           {"//", "/"},
                                           {"", ""}};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        int n = -1;
        const char *name = dpe_folder_name(paths[i][0], &n);
        assert_int_equal(n, strlen(paths[i][1]));
        assert_memory_equal(name, paths[i][1], (size_t)n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(paths_have_a_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/**
 * @file cmocka.h
 * The part of cmocka that the tests of the CPU kernels use, for a processor that Debian's cmocka on
 * this machine is not for: a failed assertion ends the program.
 */
#ifndef DPE_ARM_CMOCKA_H
#define DPE_ARM_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(function)                                                                 \
    {                                                                                              \
#function, function                                                                        \
    }

static inline void cmocka_require(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
        exit(1);
    }
}

#define assert_true(condition) cmocka_require((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#define assert_int_equal(a, b)                                                                     \
    cmocka_require((long long)(a) == (long long)(b), #a " == " #b, __FILE__, __LINE__)
#define assert_non_null(pointer)                                                                   \
    cmocka_require((pointer) != NULL, #pointer " is not NULL", __FILE__, __LINE__)
#define assert_memory_equal(a, b, size)                                                            \
    cmocka_require(memcmp(a, b, size) == 0, #a " has the bytes of " #b, __FILE__, __LINE__)

static inline int cmocka_run(const struct CMUnitTest *tests, size_t n, int (*setup)(void **))
{
    void *state = NULL;
    cmocka_require(setup == NULL || setup(&state) == 0, "the setup", __FILE__, __LINE__);
    for (size_t i = 0; i < n; i++) {
        tests[i].run(&state);
        printf("passed: %s\n", tests[i].name);
        fflush(stdout);
    }
    return 0;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    ((void)(teardown), cmocka_run(tests, sizeof(tests) / sizeof(tests)[0], setup))
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    (printf("%s:\n", name), cmocka_run_group_tests(tests, setup, teardown))

#endif

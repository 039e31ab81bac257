#ifndef DPE_TESTS_LIB_FEW_H
#define DPE_TESTS_LIB_FEW_H

#include <stdbool.h>
#include <stdlib.h>

/** Whether DPE_TEST_FEW is in the environment: where code is emulated or has sanitizers, a test
 *  takes some of many cases. The optimised build, or nightly.sh, takes all of them. */
static inline bool few_cases(void)
{
    return getenv("DPE_TEST_FEW") != NULL;
}

/** The step of a loop over cases: `step` where few are taken, else 1. */
static inline int few(int step)
{
    return few_cases() ? step : 1;
}

#endif

/* The library of sums over devices loads, with every symbol that it takes from NCCL, and answers
 * what needs no device. What needs several has not run yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <string.h>

#include "engine/cuda/runtime/nccl_module.h"

static void it_loads_and_answers(void **state)
{
    (void)state;
    void *library = dlopen(DPE_NCCL_FILE, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail_msg("%s", dlerror());
    }
    const struct dpe_nccl_module *(*get)(void) = NULL;
    *(void **)(&get) = dlsym(library, DPE_NCCL_SYMBOL);
    assert_non_null(get);
    const struct dpe_nccl_module *nccl = get();
    assert_int_equal(nccl->version, DPE_NCCL_VERSION);
    assert_string_equal(nccl->text(0), "no error");
    assert_non_null(strstr(nccl->text(4), "invalid argument"));
    assert_true(nccl->id != NULL && nccl->join != NULL && nccl->sum != NULL && nccl->leave != NULL);
    /* Not one process of two: refused before any device is opened. */
    void *sums = NULL;
    const char none[DPE_NCCL_ID] = {0};
    assert_int_not_equal(nccl->join(&sums, none, 2, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_loads_and_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

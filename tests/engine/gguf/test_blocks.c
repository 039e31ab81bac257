/* Blocks of GGUF files: their floats are those of the `gguf` package (tests/golden/make_blocks.py),
 * and the kernels of every instruction set compute with the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/base/bytes.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/gguf/blocks.h"

struct golden {
    enum dpe_dtype dtype;
    const unsigned char *blocks;
    int64_t n; /* floats */
    float *floats;
};

/* The next type of the file; false at its end. */
static bool next(const char *bytes, size_t size, size_t *at, struct golden *golden)
{
    if (*at == size) {
        return false;
    }
    const char *head = bytes + *at;
    golden->dtype = dpe_dtype_of_gguf((uint32_t)dpe_load_u64(head, 4));
    golden->n = (int64_t)dpe_load_u64(head + 8, 4);
    assert_int_not_equal(golden->dtype, DPE_DTYPES);
    golden->blocks = (const unsigned char *)head + 12;
    int64_t n_bytes = dpe_dtype_bytes(golden->dtype, golden->n);
    golden->floats = malloc((size_t)golden->n * sizeof(float));
    memcpy(golden->floats, head + 12 + n_bytes, (size_t)golden->n * sizeof(float));
    *at += 12 + (size_t)n_bytes + (size_t)golden->n * sizeof(float);
    return true;
}

static char *read_golden(size_t *n)
{
    char *bytes = NULL;
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_read_file(DPE_SOURCE_DIR "/tests/golden/blocks.bin", 1 << 20, &bytes, n, &err), DPE_OK);
    return bytes;
}

static void equals(const struct golden *golden, const float *got, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(got[i] == golden->floats[first + i])) {
            fail_msg("%s, number %d: got %.9g, expected %.9g", dpe_block_types[golden->dtype].name,
                     (int)(first + i), (double)got[i], (double)golden->floats[first + i]);
        }
    }
}

static void the_floats_are_those_of_the_package(void **state)
{
    (void)state;
    size_t size = 0;
    size_t at = 0;
    int types = 0;
    char *bytes = read_golden(&size);
    struct golden golden;
    while (next(bytes, size, &at, &golden)) {
        float got[1024];
        assert_true(golden.n <= 1024);
        dpe_dtype_read(golden.dtype, golden.blocks, 0, golden.n, got);
        equals(&golden, got, 0, golden.n);
        /* From the middle of a block to the middle of another, and single numbers. */
        dpe_dtype_read(golden.dtype, golden.blocks, 13, golden.n - 20, got);
        equals(&golden, got, 13, golden.n - 20);
        for (int64_t i = 0; i < golden.n; i += 7) {
            dpe_dtype_read(golden.dtype, golden.blocks, i, 1, got);
            equals(&golden, got, i, 1);
        }
        free(golden.floats);
        types++;
    }
    assert_int_equal(types, DPE_DTYPES - DPE_Q8_0);
    free(bytes);
}

/* Rows of x against weight rows in blocks, in double. */
static void check_dots(const struct dpe_cpu_kernels *kernels, const struct golden *golden)
{
    enum { ROWS = 4, WEIGHTS = 3 };
    int64_t k = golden->n / WEIGHTS; /* each weight row is one block here … */
    float x[ROWS * 256];
    float out[ROWS * WEIGHTS];
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 16, (uint64_t)golden->dtype);
    for (int64_t i = 0; i < ROWS * k; i++) {
        x[i] = (float)(dpe_rng_unit(&rng) - 0.5);
    }
    for (int64_t rows = 1; rows <= ROWS; rows++) {
        const struct dpe_cpu_dots dots = {.w = golden->blocks,
                                          .ldw = k,
                                          .dtype = golden->dtype,
                                          .n = WEIGHTS,
                                          .k = k,
                                          .rows = rows,
                                          .x = x,
                                          .ldx = k,
                                          .out = out,
                                          .ldo = WEIGHTS};
        kernels->dots(&dots);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t w = 0; w < WEIGHTS; w++) {
                double want = 0.0;
                double size = 0.0;
                for (int64_t i = 0; i < k; i++) {
                    double product = (double)golden->floats[w * k + i] * (double)x[r * k + i];
                    want += product;
                    size += fabs(product);
                }
                assert_true(fabs((double)out[r * WEIGHTS + w] - want) <= 1e-6 * size + 1e-30);
            }
        }
    }
}

static void kernels_compute_with_the_same_floats(void **state)
{
    (void)state;
    const char *const sets[] = {"portable", "avx2", "avx512"};
    for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++) {
        setenv("DPE_CPU", sets[set], 1);
        const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
        size_t size = 0;
        size_t at = 0;
        char *bytes = read_golden(&size);
        struct golden golden;
        while (next(bytes, size, &at, &golden)) {
            float got[1024];
            kernels->widen(golden.blocks, golden.dtype, golden.n, got);
            equals(&golden, got, 0, golden.n);
            check_dots(kernels, &golden);
            free(golden.floats);
        }
        free(bytes);
    }
    unsetenv("DPE_CPU");
}

static void types_are_found_by_name_and_number(void **state)
{
    (void)state;
    for (int i = 0; i < DPE_DTYPES; i++) {
        assert_int_equal(dpe_dtype_named(dpe_block_types[i].name), i);
        assert_int_equal(dpe_dtype_of_gguf(dpe_block_types[i].gguf), i);
        assert_int_equal(dpe_dtype_bytes((enum dpe_dtype)i, 3 * dpe_block_types[i].elements),
                         3 * dpe_block_types[i].bytes);
    }
    assert_int_equal(dpe_dtype_named("Q2_K"), DPE_DTYPES);
    assert_int_equal(dpe_dtype_of_gguf(10), DPE_DTYPES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_floats_are_those_of_the_package),
        cmocka_unit_test(kernels_compute_with_the_same_floats),
        cmocka_unit_test(types_are_found_by_name_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

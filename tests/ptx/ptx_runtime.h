/** @file ptx_runtime.h
 * Kernel launches of code that nvcc compiled, written to a file (ptx_calls.c says how). */
#ifndef DPE_TESTS_PTX_RUNTIME_H
#define DPE_TESTS_PTX_RUNTIME_H

#include <stdio.h>

void ptx_write_to(FILE *file);

#endif

/**
 * @file blas.h
 * OpenBLAS, which the portable kernels multiply with. It is loaded when they are chosen, not with
 * the program: it takes 128 MiB of address space for each of its threads while it is loaded, and
 * where a limit (ulimit -v) leaves less it tries again without end.
 */
#ifndef DPE_CPU_BLAS_H
#define DPE_CPU_BLAS_H

#include <cblas.h>

#include "engine/base/base.h"

typedef __typeof__(cblas_sgemm) dpe_sgemm;

/** cblas_sgemm, a dpe_sgemm, for calls of n_threads threads at a time; it starts none itself.
 *  DPE_NO_MEMORY when the address space is too small, DPE_NO_DEVICE when OpenBLAS is not there.
 *  Stays loaded. */
dpe_status dpe_cpu_blas(int n_threads, void (**sgemm)(void), struct dpe_error *err);

#endif

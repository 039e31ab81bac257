/* The CPU kernels for machines with AVX2, FMA and F16C. */
#define DPE_SIMD_AVX2
#define DPE_KERNELS_NAME  dpe_cpu_kernels_avx2
#define DPE_KERNELS_LABEL "avx2"
#include "engine/cpu/ops_cpu_body.h"

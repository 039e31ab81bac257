/* The CPU kernels for machines with AVX-512 (F, BW, DQ, VL). */
#define DPE_SIMD_AVX512
#define DPE_KERNELS_NAME  dpe_cpu_kernels_avx512
#define DPE_KERNELS_LABEL "avx512"
#include "engine/cpu/ops_cpu_body.h"

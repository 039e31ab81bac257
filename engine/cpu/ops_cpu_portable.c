/* The CPU kernels for every machine: four lanes, no instruction set assumed. */
#define DPE_KERNELS_NAME  dpe_cpu_kernels_portable
#define DPE_KERNELS_LABEL "portable"
#include "engine/cpu/ops_cpu_body.h"

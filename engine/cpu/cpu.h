/**
 * @file cpu.h
 * The CPU backend.
 */
#ifndef DPE_CPU_H
#define DPE_CPU_H

#include "engine/ops/ops.h"

/** The fast CPU backend: reference slots, overridden where it does better. */
const struct dpe_ops *dpe_ops_cpu(void);
/** The same, but linear layers (of up to 8 rows: those whose weights are bfloat16), and attention
 * of more than 4 rows without a selection, multiply in bfloat16 with float sums: device "cpu-bf16",
 * so that what it computes never mixes with results of "cpu". */
const struct dpe_ops *dpe_ops_cpu_bf16(void);
/** Whether the processor has what cpu-bf16 needs. */
bool dpe_cpu_has_bf16(void);
/** dpe_cpu_bf16_pays of the kernels that run here; false without dpe_cpu_has_bf16. */
bool dpe_cpu_bf16_pays_here(void);

#endif

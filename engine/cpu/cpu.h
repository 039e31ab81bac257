/**
 * @file cpu.h
 * The CPU backend.
 */
#ifndef DPE_CPU_H
#define DPE_CPU_H

#include "engine/ops/ops.h"

/** The fast CPU backend: reference slots, overridden where it does better. */
const struct dpe_ops *dpe_ops_cpu(void);

#endif

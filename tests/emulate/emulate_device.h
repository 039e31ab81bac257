/**
 * @file emulate_device.h
 * All that a kernel source needs in the place of CUDA; the compiler includes it before the source
 * (CMakeLists.txt).
 */
#ifndef DPE_EMULATE_DEVICE_H
#define DPE_EMULATE_DEVICE_H

#include "tests/emulate/emulate.h"
#include "tests/emulate/emulate_ptx.h"

#include "engine/cuda/ptx/device.cuh" /* the half types, with which the rest is declared */

#include "tests/emulate/emulate_mma.h"
#include "tests/emulate/emulate_sm90.h"

#endif

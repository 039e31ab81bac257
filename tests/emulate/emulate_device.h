/**
 * @file emulate_device.h
 * All that a kernel source needs in the place of CUDA; the compiler includes it before the source
 * (CMakeLists.txt).
 */
#ifndef DPE_EMULATE_DEVICE_H
#define DPE_EMULATE_DEVICE_H

#include "emulate.h"
#include "emulate_ptx.h"

#include "device.cuh" /* the half types, with which the rest is declared */

#include "emulate_mma.h"
#include "emulate_sm90.h"

#endif

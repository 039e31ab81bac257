/**
 * @file fake_faults.h
 * Faults that a test plants into single kernels of the fake runtime (DPE_FAKE_FAULT, README.md).
 */
#ifndef DPE_FAKE_FAULTS_H
#define DPE_FAKE_FAULTS_H

#include "engine/cuda/ptx/launch.h"

enum fake_fault { FAKE_RIGHT, FAKE_WRONG, FAKE_FAILS, FAKE_HANGS, FAKE_STUCK };

/** The fault of what has this name; NULL is never one's. */
enum fake_fault fake_fault_of(const char *name);
/** The same of a launch, by the name of its kernel's function. */
enum fake_fault fake_fault_of_launch(const struct dpe_kernel_launch *launch);

#endif

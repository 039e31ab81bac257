/**
 * @file switches.h
 * What of decoding is on trial until a card has shown whether it is faster. Read from the
 * environment, names divided by commas.
 */
#ifndef DPE_SWITCHES_H
#define DPE_SWITCHES_H

#include <stdbool.h>

#include "engine/base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpe_cuda_switches {
    /** DPE_CUDA_TRIAL: a step of decoding as one CUDA graph; kernels of a step that start before
     * the end of those before them (programmatic dependent launch). */
    bool graph, early;
};
/** DPE_USAGE: an unknown name. The names that are known are set in either case. */
dpe_status dpe_cuda_switches_read(struct dpe_cuda_switches *switches, struct dpe_error *err);

#ifdef __cplusplus
}
#endif
#endif

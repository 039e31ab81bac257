/**
 * @file switches.h
 * What the environment says about the ways of the backend.
 */
#ifndef DPE_SWITCHES_H
#define DPE_SWITCHES_H

#include <stdbool.h>

#include "engine/base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpe_cuda_switches {
    bool graph; /**< steps of decoding as CUDA graphs; false: DPE_CUDA_GRAPHS=off */
};
/** DPE_USAGE: an unknown word, which changes nothing. */
dpe_status dpe_cuda_switches_read(struct dpe_cuda_switches *switches, struct dpe_error *err);

#ifdef __cplusplus
}
#endif
#endif
